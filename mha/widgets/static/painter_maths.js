// A mask, the rules that make one, and what becomes of it in code that reads it in another way.

import { causalMask, maskedSoftmax } from "./attention.js";

/** The rules by name; `real` tokens are no padding, a window goes `before` and `after` each query. */
export const RULES = {
  everything: () => () => true,
  causal: () => (i, j) => j <= i,
  padding: ({ real }) => (i, j) => j < real,
  window: ({ before, after }) => (i, j) => i - before <= j && j <= i + after,
  nothing: () => () => false,
};

/** The mask of the rules, all of which must let a key be seen: T × T ones and noughts. */
export function ruleMask(names, numbers, count) {
  const rules = names.map((name) => RULES[name](numbers));
  return Uint8Array.from({ length: count * count }, (_, at) =>
    Number(rules.every((sees) => sees(Math.floor(at / count), at % count))),
  );
}

export const inverted = (mask) => mask.map((one) => 1 - one);

/** The weights of the whole table, (T, T), for each reading; as `read_as` in mask_painter.py. */
export function readings(logits, count, mask) {
  const naive = (visible) => maskedSoftmax(logits.map((one, at) => (visible[at] ? one : -Infinity)), count);
  const rounded = (one, at) => (mask[at] ? Math.fround(one) : Math.fround(Math.fround(one) + Math.fround(-1e9)));
  return {
    attend: maskedSoftmax(logits, count, mask),
    blocked: naive(inverted(mask)),
    added: maskedSoftmax(logits.map((one, at) => one + mask[at]), count),
    "minus 1e9": maskedSoftmax(logits.map(rounded), count),
    naive: naive(mask),
    late: maskedSoftmax(logits, count).map((weight, at) => weight * mask[at]),
  };
}

/** How many keys each query sees, and of these, whether one comes after the query. */
export function maskFacts(mask, count) {
  const places = Array.from({ length: count }, (_, i) => i);
  const row = (i) => mask.subarray(i * count, (i + 1) * count);
  const sees = places.map((i) => row(i).reduce((sum, one) => sum + one, 0));
  return {
    sees,
    visible: sees.reduce((sum, one) => sum + one, 0),
    empty: places.filter((i) => !sees[i]),
    ahead: places.filter((i) => row(i).lastIndexOf(1) > i),
  };
}

/** Whether a mask is the causal one of its size. */
export const isCausal = (mask, count) => causalMask(count).every((one, at) => one === mask[at]);
