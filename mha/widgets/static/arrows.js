// Arrows of a plane, [x, y], and what a soft lookup makes of them. No DOM.

import { maskedSoftmax } from "./attention.js";

export const LONGEST = 3; // as in soft_lookup.py
const DECIMALS = 6;

export const dot = ([a, b], [c, d]) => a * c + b * d;
export const lengthOf = ([x, y]) => Math.hypot(x, y);

/** The cosine of the angle between two arrows; 0 where one has length 0 and so no angle. */
export function cosine(one, other) {
  const lengths = lengthOf(one) * lengthOf(other);
  return lengths > 0 ? dot(one, other) / lengths : 0;
}

/** The direction of an arrow in degrees, 0 … 360: 0 is right, 90 is up. Null where it has none. */
export function direction([x, y]) {
  if (x === 0 && y === 0) return null;
  const degrees = (Math.atan2(y, x) * 180) / Math.PI;
  return degrees < 0 ? degrees + 360 : degrees;
}

/** The angle between two arrows in degrees, 0 … 180. Null where there is none. */
export function angleBetween(one, other) {
  if (!lengthOf(one) || !lengthOf(other)) return null;
  const across = one[0] * other[1] - one[1] * other[0];
  return (Math.atan2(Math.abs(across), dot(one, other)) * 180) / Math.PI;
}

/** Six decimals, and no minus zero. */
const rounded = (value) => Number(value.toFixed(DECIMALS)) + 0;

/** The arrow of a direction and a length, which rounding may have made a little too long before. */
export function fromPolar(degrees, length) {
  const angle = (degrees * Math.PI) / 180;
  const most = Math.min(length, LONGEST);
  return [rounded(most * Math.cos(angle)), rounded(most * Math.sin(angle))];
}

/** The arrow to a point of the plane, to `decimals`; beyond the longest, the one that points there. */
export function arrowTo(point, decimals = 2) {
  const arrow = point.map((one) => Number(one.toFixed(decimals)) + 0);
  return lengthOf(arrow) > LONGEST ? fromPolar(direction(arrow), LONGEST) : arrow;
}

/** One coordinate (axis 0 or 1) changed by `step`, as far as the longest arrow goes. */
export function stepped(arrow, axis, step) {
  const most = Math.sqrt(Math.max(0, LONGEST ** 2 - arrow[1 - axis] ** 2));
  const moved = [...arrow];
  moved[axis] = rounded(Math.max(-most, Math.min(most, arrow[axis] + step)));
  return moved;
}

/** A sum of the values, 0 where only rounding is left of it. */
export function cleared(sum, values) {
  return Math.abs(sum) < 1e-12 * Math.max(...values.map(Math.abs)) ? 0 : sum;
}

/** score = q·k or cosine; logit = score / temperature; weights = softmax; output = Σ weight · value. */
export function lookUp({ query, keys, values, temperature, measure }) {
  const scores = keys.map((key) => (measure === "cosine" ? cosine(query, key) : dot(query, key)));
  const logits = scores.map((score) => score / temperature);
  const weights = [...maskedSoftmax(logits, keys.length)];
  const output = weights.reduce((sum, weight, j) => sum + weight * values[j], 0);
  return { scores, logits, weights, output: cleared(output, values) };
}
