// Numbers of a softmax and its derivative as text, and in a sentence what is the case.

import { fixedText, numberText } from "./dom.js";

const FLAT = 0.001; // all slopes below: saturated
const FAR = 0.98; // of the weight on those that tie: the rest lies far below

/** "0.412"; what is neither 0 nor 1 never reads as 0 or 1. `rest` is 1 − weight. */
export function shareText(weight, rest) {
  if (weight < 0.0005) return "<0.001";
  return rest < 0.0005 ? ">0.999" : weight.toFixed(3);
}

/** Four decimals, or three digits and a power of ten; 0 only where a double holds 0. */
export function slopeText(value) {
  if (value === 0) return "0";
  return Math.abs(value) >= 0.01 ? fixedText(value, 4) : numberText(value);
}

/** Three decimals for a cell; what they don't show is not 0 in truth. */
export function cellText(value) {
  return Math.abs(value) >= 0.0005 ? fixedText(value, 3) : "≈0";
}

/** A weight as a factor: "0.6439", near 1 as what is missing, "(1 − 2.06e−9)". */
export function factorText(weight, rest) {
  return rest < 0.00005 ? `(1 − ${slopeText(rest)})` : slopeText(weight);
}

/** "‘a’", "‘a’ and ‘b’", "‘a’, ‘b’ and ‘c’". */
function listed(names) {
  const quoted = names.map((name) => `‘${name}’`);
  return quoted.length < 2 ? quoted[0] : `${quoted.slice(0, -1).join(", ")} and ${quoted.at(-1)}`;
}

/** The numbers of the logits whose weight is largest. */
export function heaviest(p) {
  const most = Math.max(...p);
  return [...p.keys()].filter((i) => p[i] === most);
}

/** How the weights lie, and what that does to the slopes. */
export function status({ names, all: { p, rest, slopes, norm } }) {
  const count = p.length;
  const top = heaviest(p);
  const first = top[0];
  const who = listed(top.map((i) => names[i]));
  const own = slopeText(p[first] * rest[first]);
  const steepest = Math.max(...slopes);
  const said = [];
  if (top.length === count) {
    said.push(
      `All weights are 1/${count}: a slope is ${own} by the own z and ${slopeText(-(p[0] ** 2))} by another.`,
    );
  } else if (top.length > 1) {
    const share = shareText(p[first], rest[first]);
    said.push(
      `${who} tie with ${share} each: among them a slope is ${own} by the own z and ${slopeText(-(p[first] ** 2))} by another.`,
    );
    if (top.length * p[first] >= FAR)
      said.push("The rest has almost no weight, and still these slopes stay.");
  } else if (steepest < FLAT) {
    said.push(
      `${who} takes all of the weight but ${slopeText(rest[first])}: saturated, no slope by z is larger than ${slopeText(steepest)}.`,
    );
  } else {
    said.push(
      `${who} weighs most, ${shareText(p[first], rest[first])}. The largest slope by z is ${slopeText(steepest)}.`,
    );
  }
  said.push(`The norm of J is ${slopeText(norm)}.`);
  return said.join(" ");
}

/** What a small rise of one z does to one weight. */
export function effect({ names, cell: [i, k], all: { slopes } }) {
  const slope = slopes[i * names.length + k];
  const who =
    i === k
      ? `Raise z of ‘${names[k]}’ a little: its own weight`
      : `Raise z of ‘${names[k]}’ a little: the weight of ‘${names[i]}’`;
  if (slope === 0) return `${who} moves by less than a double can hold.`;
  return `${who} ${slope > 0 ? "rises" : "falls"} by about ${slopeText(Math.abs(slope))} times as much.`;
}

/** Whether the measured slope confirms the formula, and if not, why. */
export function agreement(slope, measured) {
  const apart = Math.abs(slope - measured);
  if (apart === 0 && slope === 0) return "Both are 0 in doubles, the true slope is not.";
  if (apart === 0) return "They are equal.";
  if (apart <= 0.001 * Math.abs(slope)) return `They differ by ${apart.toExponential(0).replace("-", "−")}.`;
  return "So small a slope is lost in the rounding of what is measured.";
}
