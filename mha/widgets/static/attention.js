// Attention in doubles, for every widget of this book and for Node. No DOM, no imports.
// Matrices are flat Float64Arrays, row by row: element (i, j) of T rows and S columns is [i * S + j].
// A mask holds 1 where a query may attend and 0 where it may not.

/** Bytes as the widget protocol hands them over (DataView, typed array or ArrayBuffer). */
function asView(bytes) {
  if (ArrayBuffer.isView(bytes)) return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return new DataView(bytes);
}

/** One IEEE 754 half (its 16 bits as a whole number) as a double. */
function halfToDouble(bits) {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24; // zero and subnormal numbers
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

/** Little-endian float16 bytes as doubles. The view may start at any byte. */
export function decodeFloat16(bytes) {
  const view = asView(bytes);
  const out = new Float64Array(view.byteLength >> 1);
  for (let i = 0; i < out.length; i++) out[i] = halfToDouble(view.getUint16(2 * i, true));
  return out;
}

/** Little-endian float64 bytes as doubles. The view may start at any byte. */
export function decodeFloat64(bytes) {
  const view = asView(bytes);
  const out = new Float64Array(view.byteLength >> 3);
  for (let i = 0; i < out.length; i++) out[i] = view.getFloat64(8 * i, true);
  return out;
}

/** What a score is multiplied by to become a logit. */
export function scaleFactor(scale, dHead, temperature = 1) {
  if (scale === "sqrt") return 1 / Math.sqrt(dHead);
  if (scale === "none") return 1;
  if (scale === "inverse") return 1 / dHead;
  if (scale === "temperature") return 1 / temperature;
  throw new RangeError(`scale=${scale} is not one of sqrt, none, inverse, temperature`);
}

/** Raw q·k of one head: q is T × D, k is S × D, head h owns columns h·d … (h+1)·d. */
export function attentionScores(q, k, dModel, nHeads, head) {
  if (dModel % nHeads) throw new RangeError(`d_model=${dModel} is not divisible by n_heads=${nHeads}`);
  const d = dModel / nHeads;
  const nQueries = q.length / dModel;
  const nKeys = k.length / dModel;
  const scores = new Float64Array(nQueries * nKeys);
  for (let i = 0; i < nQueries; i++) {
    const qStart = i * dModel + head * d;
    for (let j = 0; j < nKeys; j++) {
      const kStart = j * dModel + head * d;
      let sum = 0;
      for (let c = 0; c < d; c++) sum += q[qStart + c] * k[kStart + c];
      scores[i * nKeys + j] = sum;
    }
  }
  return scores;
}

/** The last query sees the last key: with T > S the first T − S queries see none. */
export function causalMask(nQueries, nKeys = nQueries) {
  const mask = new Uint8Array(nQueries * nKeys);
  for (let i = 0; i < nQueries; i++) {
    const visible = i + 1 + nKeys - nQueries;
    for (let j = 0; j < visible; j++) mask[i * nKeys + j] = 1;
  }
  return mask;
}

/**
 * Softmax over the keys of each query. A hidden key weighs exactly 0, so a row that may see no key is
 * all zero; where what a row sees has no softmax (NaN, +∞, nothing but −∞), what it sees weighs NaN.
 */
export function maskedSoftmax(logits, nKeys, mask = null) {
  const weights = new Float64Array(logits.length);
  for (let start = 0; start < logits.length; start += nKeys) {
    let max = -Infinity;
    for (let j = start; j < start + nKeys; j++) {
      if (!mask || mask[j]) max = Math.max(max, logits[j]); // NaN stays NaN
    }
    let sum = 0;
    for (let j = start; j < start + nKeys; j++) {
      if (!mask || mask[j]) sum += weights[j] = Math.exp(logits[j] - max);
    }
    for (let j = start; j < start + nKeys; j++) {
      if (!mask || mask[j]) weights[j] /= sum;
    }
  }
  return weights;
}

/** Weights from raw scores: scale, mask, softmax. */
export function attentionWeights(scores, nKeys, factor, mask = null) {
  return maskedSoftmax(
    scores.map((score) => score * factor),
    nKeys,
    mask,
  );
}

/** Entropy of each row in bits; a row of zeros has none. */
export function rowEntropy(weights, nKeys) {
  const bits = new Float64Array(weights.length / nKeys);
  for (let i = 0; i < bits.length; i++) {
    let sum = 0;
    for (let j = i * nKeys; j < (i + 1) * nKeys; j++) {
      if (weights[j] > 0) sum -= weights[j] * Math.log2(weights[j]);
    }
    bits[i] = sum;
  }
  return bits;
}

/** Mean over the queries of the row entropy in bits: one number for a head. */
export function headEntropy(weights, nKeys) {
  const bits = rowEntropy(weights, nKeys);
  return bits.reduce((sum, value) => sum + value, 0) / bits.length;
}

/** The largest mean entropy the mask allows, in bits: log2 of the keys each query may see. */
export function maxEntropy(nQueries, nKeys, mask = null) {
  if (!mask) return Math.log2(nKeys);
  let sum = 0;
  for (let i = 0; i < nQueries; i++) {
    let visible = 0;
    for (let j = 0; j < nKeys; j++) visible += mask[i * nKeys + j];
    if (visible) sum += Math.log2(visible);
  }
  return sum / nQueries;
}
