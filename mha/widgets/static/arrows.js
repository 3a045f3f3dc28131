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

/** Six decimals, towards 0, but for what doubles leave of a rounder number. */
const cut = (value) => rounded(Math.trunc(value * 10 ** DECIMALS + Math.sign(value) * 1e-3) / 10 ** DECIMALS);

/** The arrow of a direction and a length; rounding never makes it longer than the longest. */
export function fromPolar(degrees, length) {
  const angle = (degrees * Math.PI) / 180;
  const exact = [Math.cos, Math.sin].map((one) => Math.min(length, LONGEST) * one(angle));
  const arrow = exact.map(rounded);
  return lengthOf(arrow) > LONGEST + 1e-9 ? exact.map(cut) : arrow;
}

/** Whether an arrow is as long as the plane shows. */
export const atLongest = (arrow) => lengthOf(arrow) > LONGEST - 1e-5;

/** The arrow to a point of the plane, to `decimals`; beyond the longest, the one that points there. */
export function arrowTo(point, decimals = 2) {
  const arrow = point.map((one) => Number(one.toFixed(decimals)) + 0);
  return lengthOf(arrow) > LONGEST ? fromPolar(direction(arrow), LONGEST) : arrow;
}

/** One coordinate (axis 0 or 1) changed by `step`, as far as the longest arrow goes. */
export function stepped(arrow, axis, step) {
  const most = Math.sqrt(Math.max(0, LONGEST ** 2 - arrow[1 - axis] ** 2));
  const moved = [...arrow];
  moved[axis] = rounded(Math.max(-cut(most), Math.min(cut(most), arrow[axis] + step)));
  return moved;
}

/** The sum of some terms, 0 where only rounding is left of it. */
export function cleared(terms) {
  const sum = terms.reduce((total, term) => total + term, 0);
  return Math.abs(sum) < 1e-12 * Math.max(...terms.map(Math.abs)) ? 0 : sum;
}

/** score = q·k or cosine; logit = score / temperature; weights = softmax; output = Σ weight · value. */
export function lookUp({ query, keys, values, temperature, measure }) {
  const scores = keys.map((key) => (measure === "cosine" ? cosine(query, key) : dot(query, key)));
  const logits = scores.map((score) => score / temperature);
  const weights = [...maskedSoftmax(logits, keys.length)];
  return { scores, logits, weights, output: cleared(weights.map((weight, j) => weight * values[j])) };
}
