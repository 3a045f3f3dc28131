// What is the case, in sentences and numbers: true at every width, scale, mean and correlation.

import { fixedText, numberText, weightText } from "./dom.js";
import { N_KEYS, N_ROWS } from "./scaling_draw.js";
import { COUNTED, SATURATED, median } from "./scaling_maths.js";

const EVEN = 1 / N_KEYS;
const HARDLY = 2 * EVEN; // no weight larger: the keys are hardly told apart
const SHAPED = 0.5; // a skewness or excess kurtosis this large is seen
const FLAT_BELOW = 2 * (1 - SATURATED); // ‖J‖ ≤ 2 (1 − max p)

/** A weight below 1 never reads as 1, one above 0 never as 0. */
export function shareText(weight) {
  return weight >= 0.9995 ? ">0.999" : weightText(weight);
}

/** "1/√64". */
export function factorText({ d_k, scale }) {
  return scale.replace("d_k", d_k);
}

/** A mean is exactly 0 or not; what rounding leaves is no mean. */
export function meanText(value) {
  return Math.abs(value) < 1e-9 ? "0" : numberText(value);
}

/** The predicted mean and variance: formula, numbers, result. */
export function formulas(s) {
  const { known } = s.all;
  const factor = s.scale === "1" ? "1" : `(${factorText(s)})`;
  const mean = `${factor} · ${s.d_k} · ${fixedText(s.mean ** 2 + s.correlation, 3)}`;
  const variance = `${factor}² · ${s.d_k} · ${fixedText(known.product, 3)}`;
  return {
    mean: ["mean = scale · dₖ · (m² + ρ)", `= ${mean}`, `= ${meanText(known.mean)}`],
    variance: ["variance = scale² · dₖ · (1 + ρ² + 2m²(1 + ρ))", `= ${variance}`, `= ${numberText(known.variance)}`],
  };
}

/** What is drawn, what lies beyond, and whether the exact density is normal. */
export function caption({ d_k, all: { known, histogram, logits } }) {
  const said = [`Bars: ${logits.length} logits. Line: the normal density with the predicted mean and variance.`];
  const wide = histogram.high - histogram.low;
  said.push(wide > 2 ? "Band: predicted mean ± 1." : "The predicted mean ± 1 is at least as wide as the axis.");
  if (histogram.beyond) said.push(`Beyond the axis: ${histogram.beyond}.`);
  const { skewness, kurtosis } = known;
  const far = Math.max(Math.abs(skewness), kurtosis) >= SHAPED;
  const sum = d_k === 1 ? "one product" : `a sum of ${d_k} products`;
  const exact = `skewness ${fixedText(skewness, 2)}, excess kurtosis ${numberText(kurtosis)}, both 0 if it were normal`;
  said.push(`A logit is the scale times ${sum}: its exact density is ${far ? "not" : "nearly"} normal (${exact}).`);
  if (far) said.push(`With ${N_ROWS} rows the standard errors are then rough.`);
  return said.join(" ");
}

/** The softmax of the chosen query. */
export function rowText({ row, all: { row: one } }) {
  const percent = 100 * COUNTED;
  return `Query ${row}: largest weight ${shareText(one.largest)} (key ${one.top}); ${one.counted} of ${N_KEYS} keys have more than ${percent} %.`;
}

/** What the rows of the second table are. */
export function legend({ all: { saturated } }) {
  return `J = ∂p/∂logits = diag(p) − p pᵀ and ∂p/∂q = scale · J K; ‖·‖ is the root of the sum of squares. Rows with a weight above ${SATURATED}: ${saturated} of ${N_ROWS}.`;
}

/** What is drawn and what ± means. */
export const DRAWN = `Drawn: ${N_ROWS} queries, each with ${N_KEYS} keys of its own. Every entry is normal with mean m and variance 1. Entry i of a key is correlated by ρ with entry i of its query, so the keys of one row are correlated too, by ρ². The measured variance is that of all logits; ± is one standard error over rows, since the logits of one row share their query. A wider dₖ adds entries to the same vectors.`;

/** How the softmaxes of all rows are. */
export function saturation({ d_k, scale, all: { rows, saturated } }) {
  const most = Math.max(...rows.map(({ largest }) => largest));
  if (saturated) {
    const share = Math.round((100 * saturated) / N_ROWS);
    return `In ${saturated} of ${N_ROWS} rows (${share} %) one key has more than ${SATURATED} of the weight: there ‖J‖ is below ${FLAT_BELOW.toFixed(2)}.`;
  }
  if (most > HARDLY) return `No key has more than ${SATURATED} of its row's weight; the largest weight of all rows is ${shareText(most)}.`;
  const said = [`The largest weight of all rows is ${shareText(most)}, an even share ${shareText(EVEN)}: the softmax hardly tells the keys apart.`];
  if (scale === "1/d_k" && d_k > 1) said.push(`∂p/∂q = scale · J K carries the scale 1/${d_k}.`);
  return said.join(" ");
}

/** What the scale does to the variance, what the keys of a row share, and how the softmaxes are. */
export function status(s) {
  const { d_k, scale, mean, correlation } = s;
  const { known } = s.all;
  const variance = numberText(known.variance);
  const said = [];
  if (d_k === 1) said.push(`At dₖ = 1 all three scales are 1: the variance is ${variance}.`);
  else if (scale === "1") said.push(`Without a scale the variance grows like dₖ: here it is ${variance}.`);
  else if (scale === "1/d_k") said.push(`With 1/dₖ the variance falls like 1/dₖ: here it is ${variance}.`);
  else if (mean === 0 && correlation === 0) said.push("1/√dₖ cancels dₖ: the variance is 1 at every width.");
  else said.push(`1/√dₖ cancels dₖ in the variance: it is ${variance} at every width. It would be 1 with m = 0 and ρ = 0.`);
  if (mean !== 0 || correlation !== 0) {
    const shared = numberText(known.variance - known.within);
    said.push(`${shared} of it is shared by all keys of a row, and softmax does not see that: within a row it is ${numberText(known.within)}.`);
  }
  said.push(saturation(s));
  return said.join(" ");
}

/** What an act has changed, then what is the case. */
export function spoken(s, before) {
  const names = { d_k: "width", scale: "scale", mean: "mean", correlation: "correlation", seed: "draw", row: "query" };
  const changed = Object.keys(names).filter((name) => s[name] !== before?.[name]);
  if (changed.join() === "row") return `${rowText(s)} Norm of J ${numberText(s.all.row.norm)}.`;
  const what = changed.map((name) => {
    const value = s[name];
    return `${names[name]} ${name === "mean" || name === "correlation" ? fixedText(value, 2) : value}`;
  });
  const variance = `variance ${numberText(s.all.known.variance)} predicted, ${numberText(s.all.found.variance[0])} measured`;
  const middle = numberText(median(s.all.rows.map(({ norm }) => norm)));
  return `${what.join(", ")}: ${variance}. ${saturation(s)} Median of the norm of J ${middle}.`;
}
