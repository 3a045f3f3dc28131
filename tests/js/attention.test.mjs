// node --test tests/js
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import * as attention from "../../mha/widgets/static/attention.js";

const golden = JSON.parse(readFileSync(new URL("golden.json", import.meta.url), "utf8"));
const { n_queries: T, n_keys: S, d_model: D } = golden;

/** Bytes behind an odd offset, as a widget message may deliver them. */
function unaligned(hex) {
  const bytes = Buffer.from(hex, "hex");
  const room = new Uint8Array(bytes.length + 3);
  room.set(bytes, 1);
  return new DataView(room.buffer, 1, bytes.length);
}

function close(found, wanted, tolerance = 1e-8) {
  assert.equal(found.length, wanted.length);
  wanted.forEach((value, i) =>
    assert.ok(Math.abs(found[i] - value) <= tolerance, `[${i}] ${found[i]} is not ${value}`),
  );
}

function numbers(texts) {
  const special = { inf: Infinity, "-inf": -Infinity };
  return texts.map((text) => special[text] ?? Number(text));
}

const q = attention.decodeFloat16(unaligned(golden.q));
const k = attention.decodeFloat16(unaligned(golden.k));

test("float16 bytes decode exactly, at any offset and from any holder", () => {
  const { bytes, values } = golden.float16;
  const wanted = numbers(values);
  const whole = Uint8Array.from(Buffer.from(bytes, "hex"));
  const shifted = Uint8Array.of(9, ...whole, 9).subarray(1, whole.length + 1);
  for (const holder of [unaligned(bytes), whole, whole.buffer, shifted]) {
    const found = [...attention.decodeFloat16(holder)];
    wanted.forEach((value, i) => assert.ok(Object.is(found[i], value), `${found[i]} is not ${value}`));
  }
});

test("every finite half is larger than the one before", () => {
  const view = new DataView(new ArrayBuffer(2 * 0x7c00));
  for (let bits = 0; bits < 0x7c00; bits++) view.setUint16(2 * bits, bits, true);
  const values = attention.decodeFloat16(view);
  for (let bits = 1; bits < 0x7c00; bits++) assert.ok(values[bits] > values[bits - 1]);
});

test("a half with all exponent bits and a fraction is not a number", () => {
  assert.ok(Number.isNaN(attention.decodeFloat16(Uint8Array.of(0x01, 0x7c))[0]));
});

test("float64 bytes decode exactly", () => {
  const { bytes, values } = golden.float64;
  assert.deepEqual([...attention.decodeFloat64(unaligned(bytes))], numbers(values));
});

for (const { n_heads, scale, mask, first, last, entropy } of golden.cases) {
  test(`weights and entropy: ${n_heads} heads, scale ${scale}, mask ${mask}`, () => {
    const factor = attention.scaleFactor(scale, D / n_heads, golden.temperature);
    const seen = mask === "causal" ? attention.causalMask(T, S) : null;
    const weights = Array.from({ length: n_heads }, (_, head) =>
      attention.attentionWeights(attention.attentionScores(q, k, D, n_heads, head), S, factor, seen),
    );
    close(weights[0], first);
    close(weights.at(-1), last);
    close(
      weights.map((one) => attention.headEntropy(one, S)),
      entropy,
    );
  });
}

test("a query that may see no key gets zeros, and no bits", () => {
  const mask = attention.causalMask(S, T);
  const weights = attention.attentionWeights(attention.attentionScores(k, q, D, 1, 0), T, 0.1, mask);
  close(weights, golden.empty_rows);
  assert.deepEqual([...weights.slice(0, 2 * T)], Array(2 * T).fill(0));
  assert.deepEqual([...attention.rowEntropy(weights, T).slice(0, 3)], [0, 0, 0]);
});

test("large logits neither overflow nor lose the row sum", () => {
  const weights = attention.maskedSoftmax(Float64Array.of(1e5, 1e5 - 1, -1e5), 3);
  close(weights, [Math.E / (Math.E + 1), 1 / (Math.E + 1), 0], 1e-12);
});

test("a row without a softmax weighs NaN where the query sees, and 0 where it does not", () => {
  const [NONE, ALL] = [-Infinity, Infinity];
  const weigh = (logits, mask) => [...attention.maskedSoftmax(Float64Array.from(logits), logits.length, mask)];
  assert.deepEqual(weigh([NaN, NaN]), [NaN, NaN]);
  assert.deepEqual(weigh([1, NaN]), [NaN, NaN]);
  assert.deepEqual(weigh([NONE, NONE]), [NaN, NaN]);
  assert.deepEqual(weigh([ALL, 0]), [NaN, NaN]);
  assert.deepEqual(weigh([NaN, 1, 2], [1, 1, 0]), [NaN, NaN, 0]);
  assert.deepEqual(weigh([NONE, 3, NaN], [1, 1, 0]), [0, 1, 0]);
  assert.deepEqual(weigh([NaN, NaN], [0, 0]), [0, 0]);
});

test("the largest entropy counts the keys that each query may see", () => {
  assert.equal(attention.maxEntropy(T, S), Math.log2(5));
  const bits = attention.maxEntropy(T, S, attention.causalMask(T, S));
  assert.ok(Math.abs(bits - Math.log2(3 * 4 * 5) / 3) < 1e-12);
  const withEmptyRows = attention.maxEntropy(S, T, attention.causalMask(S, T)); // 0 0 1 2 3 keys
  assert.ok(Math.abs(withEmptyRows - Math.log2(1 * 2 * 3) / 5) < 1e-12);
});

test("an unknown scale and an indivisible width are refused", () => {
  assert.throws(() => attention.scaleFactor("log", 8), /not one of sqrt, none, inverse, temperature/);
  assert.throws(() => attention.attentionScores(q, k, D, 5, 0), /d_model=24 is not divisible by n_heads=5/);
});
