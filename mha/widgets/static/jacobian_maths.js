// The derivative of a softmax in doubles: the Jacobian, its norm, its largest eigenvalue. No DOM.
// Matrices are flat Float64Arrays, row by row.

import { maskedSoftmax } from "./attention.js";

export const STEP = 1e-4; // of the central difference
export const STEEPEST = 0.25; // p (1 − p) and p_i p_k are never larger

/**
 * Of z = logit / temperature: weights p, 1 − p, and the Jacobian ∂p_i/∂z_k = p_i (δ_ik − p_k) with its norm,
 * its largest eigenvalue λ, and the bound min(max p, 2 · max p · (1 − max p)) of λ.
 */
export function softmaxSlopes(logits, temperature) {
  const count = logits.length;
  const z = Float64Array.from(logits, (logit) => logit / temperature);
  const p = maskedSoftmax(z, count);
  // 1 − p as a sum of the others keeps its digits where p is nearly 1
  const rest = p.map((_, i) => p.reduce((sum, one, k) => (k === i ? sum : sum + one), 0));
  const slopes = new Float64Array(count * count);
  for (let i = 0; i < count; i++) {
    for (let k = 0; k < count; k++) slopes[i * count + k] = i === k ? p[i] * rest[i] : 0 - p[i] * p[k];
  }
  const top = p.indexOf(Math.max(...p));
  return {
    z,
    p,
    rest,
    slopes,
    norm: Math.hypot(...slopes),
    eigenvalue: largestEigenvalue(slopes, count),
    bound: Math.min(p[top], 2 * p[top] * rest[top]),
  };
}

/** ∂p_i/∂z_k measured: how far p_i moves when z_k goes from z_k − step to z_k + step, over 2 · step. */
export function centralDifference(z, i, k, step = STEP) {
  const weight = (change) =>
    maskedSoftmax(
      z.map((one, j) => (j === k ? one + change : one)),
      z.length,
    )[i];
  return (weight(step) - weight(-step)) / (2 * step);
}

/** The largest eigenvalue of a symmetric matrix, by Jacobi's rotations. */
export function largestEigenvalue(matrix, count) {
  const a = Float64Array.from(matrix);
  const at = (i, k) => i * count + k;
  const size = Math.hypot(...a);
  for (let sweep = 0; sweep < 30; sweep++) {
    let left = 0; // beside the diagonal
    for (let i = 0; i < count; i++) {
      for (let k = i + 1; k < count; k++) left = Math.max(left, Math.abs(a[at(i, k)]));
    }
    if (left <= 1e-15 * size) break;
    for (let i = 0; i < count; i++) {
      for (let k = i + 1; k < count; k++) rotate(a, i, k, count);
    }
  }
  return Math.max(...Array.from({ length: count }, (_, i) => a[at(i, i)]));
}

/** Turn axes i and k of a symmetric matrix so that the number they share becomes 0. */
function rotate(a, i, k, count) {
  const shared = a[i * count + k];
  if (shared === 0) return;
  const ratio = (a[k * count + k] - a[i * count + i]) / (2 * shared);
  const tangent = (ratio < 0 ? -1 : 1) / (Math.abs(ratio) + Math.hypot(ratio, 1));
  const cosine = 1 / Math.hypot(tangent, 1);
  const sine = tangent * cosine;
  for (let j = 0; j < count; j++) {
    const [one, other] = [a[j * count + i], a[j * count + k]];
    a[j * count + i] = cosine * one - sine * other;
    a[j * count + k] = sine * one + cosine * other;
  }
  for (let j = 0; j < count; j++) {
    const [one, other] = [a[i * count + j], a[k * count + j]];
    a[i * count + j] = cosine * one - sine * other;
    a[k * count + j] = sine * one + cosine * other;
  }
}
