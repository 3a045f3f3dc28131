// Logits of random queries and keys in doubles: predicted, measured, and what the softmax makes of them. No DOM.

import { maskedSoftmax } from "./attention.js";
import { N_KEYS, N_ROWS } from "./scaling_draw.js";

export const SCALES = { 1: () => 1, "1/√d_k": (d) => 1 / Math.sqrt(d), "1/d_k": (d) => 1 / d };
export const N_BINS = 40;
export const SATURATED = 0.99; // of the weight on one key
export const COUNTED = 0.01; // a key with more weight is counted

/** Mean, variance, variance within a row, skewness and excess kurtosis of a logit, exact. */
export function predicted({ d_k: d, scale, mean: m, correlation: rho }) {
  const factor = SCALES[scale](d);
  // x y = up (A + δ)² − down B², with A and B normal and apart, and δ² = shift
  const [up, down] = [(1 + rho) / 2, (1 - rho) / 2];
  const shift = (m * m) / up;
  const variance = 1 + rho * rho + 2 * m * m * (1 + rho); // of one product
  const third = 8 * up ** 3 * (1 + 3 * shift) - 8 * down ** 3;
  const fourth = 48 * up ** 4 * (1 + 4 * shift) + 48 * down ** 4;
  return {
    factor,
    mean: factor * d * (m * m + rho),
    product: variance,
    variance: factor * factor * d * variance,
    within: factor * factor * d * (1 + m * m) * (1 - rho * rho),
    skewness: third / variance ** 1.5 / Math.sqrt(d),
    kurtosis: fourth / variance ** 2 / d,
  };
}

/** The logits of all rows, row by row, from the sums of a sample at this width. */
export function logitsOf(sums, { d_k: d, scale, mean: m, correlation: rho }) {
  const factor = SCALES[scale](d);
  const own = Math.sqrt(1 - rho * rho);
  return sums.w.map((w, at) => {
    const row = Math.floor(at / N_KEYS);
    const shared = m * m * d + m * (1 + rho) * sums.u[row] + rho * sums.uu[row]; // by all keys of the row
    return factor * (shared + own * (m * w + sums.uw[at]));
  });
}

function average(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** The mean of independent numbers and its standard error. */
function withError(values) {
  const mean = average(values);
  const squares = values.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return [mean, Math.sqrt(squares / (values.length - 1) / values.length)];
}

/** Of numbers, the one in the middle. */
export function median(values) {
  const sorted = Float64Array.from(values).sort();
  const half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

/**
 * Mean, variance and variance within a row of the logits, each [value, standard error]. The errors count rows:
 * the logits of one row share their query. So do the variances: what the mean itself varies is added.
 */
export function measured(logits) {
  const rows = Array.from({ length: N_ROWS }, (_, r) => logits.subarray(r * N_KEYS, (r + 1) * N_KEYS));
  const means = rows.map(average);
  const [mean, meanError] = withError(means);
  const spread = (row, centre) => row.reduce((sum, logit) => sum + (logit - centre) ** 2, 0);
  const [around, error] = withError(rows.map((row) => spread(row, mean) / N_KEYS));
  return {
    mean: [mean, meanError],
    variance: [around + meanError ** 2, error],
    within: withError(rows.map((row, r) => spread(row, means[r]) / (N_KEYS - 1))),
  };
}

/** The place of the largest number. */
function largestOf(values) {
  let top = 0;
  for (let j = 1; j < values.length; j++) if (values[j] > values[top]) top = j;
  return top;
}

/** ‖J‖ of one row of weights: J_i = p_i (e_i − p). No 1 − p is formed, so a weight near 1 keeps its digits. */
export function jacobianNorm(p) {
  let sum = 0;
  for (let i = 0; i < p.length; i++) {
    let [rest, squares] = [0, 0]; // of the others
    for (let k = 0; k < p.length; k++) {
      if (k === i) continue;
      rest += p[k];
      squares += p[k] * p[k];
    }
    sum += p[i] * p[i] * (rest * rest + squares);
  }
  return Math.sqrt(sum);
}

/**
 * ‖∂p/∂q‖ = factor · ‖J K‖ of one row. What all keys share drops out of J K, so K = √(1 − ρ²) W is enough:
 * (J W)_i = p_i (w_i − w̄). `gram` holds w_a · w_b; lengths are taken from the heaviest key, near which w̄ may be.
 */
export function slopeByQuery(p, gram, factor, correlation) {
  const n = p.length;
  const top = largestOf(p);
  const apart = (a, b) => gram[a * n + b] - gram[a * n + top] - gram[top * n + b] + gram[top * n + top];
  const towards = new Float64Array(n); // (w_a − w_top) · (w̄ − w_top)
  for (let a = 0; a < n; a++) {
    for (let b = 0; b < n; b++) if (b !== top) towards[a] += p[b] * apart(a, b);
  }
  let middle = 0; // ‖w̄ − w_top‖²
  for (let a = 0; a < n; a++) if (a !== top) middle += p[a] * towards[a];
  let sum = 0;
  for (let a = 0; a < n; a++) {
    const square = a === top ? middle : apart(a, a) - 2 * towards[a] + middle;
    sum += p[a] * p[a] * Math.max(0, square);
  }
  return factor * Math.sqrt(1 - correlation ** 2) * Math.sqrt(sum);
}

/** What the page shows of all rows and of one. */
export function explored(state, sums) {
  const known = predicted(state);
  const logits = logitsOf(sums, state);
  const weights = maskedSoftmax(logits, N_KEYS);
  const rows = Array.from({ length: N_ROWS }, (_, r) => {
    const p = weights.subarray(r * N_KEYS, (r + 1) * N_KEYS);
    const gram = sums.ww.subarray(r * N_KEYS ** 2, (r + 1) * N_KEYS ** 2);
    const byQuery = slopeByQuery(p, gram, known.factor, state.correlation);
    return { p, largest: p[largestOf(p)], norm: jacobianNorm(p), byQuery };
  });
  const row = rows[state.row];
  return {
    known,
    logits,
    found: measured(logits),
    rows,
    row: { ...row, top: largestOf(row.p), counted: row.p.filter((weight) => weight > COUNTED).length },
    saturated: rows.filter(({ largest }) => largest > SATURATED).length,
    histogram: histogram(logits, known),
  };
}

/**
 * An axis of round numbers around the predicted mean, four standard deviations or more wide to each side of its
 * middle, and how many logits lie in each bin: from the left edge on, up to the right one.
 */
export function histogram(logits, { mean, variance }) {
  const half = 2 ** Math.ceil(Math.log2(4 * Math.sqrt(variance)) - 1e-9); // 1e-9: rounding takes no other axis
  const middle = (half / 2) * Math.round(mean / (half / 2));
  const low = middle - half;
  const width = (2 * half) / N_BINS;
  const counts = new Array(N_BINS).fill(0);
  let beyond = 0;
  for (const logit of logits) {
    const bin = Math.floor((logit - low) / width);
    if (bin >= 0 && bin < N_BINS) counts[bin] += 1;
    else beyond += 1;
  }
  return { low, high: middle + half, width, counts, beyond };
}
