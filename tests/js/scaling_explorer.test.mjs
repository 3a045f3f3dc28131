// ScalingExplorer drawn on a page of Node's: golden numbers, words at the extremes, controls, what is left behind.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import vm from "node:vm";

import { Element, darkPreferred, observers } from "./fake_dom.mjs";
import { maskedSoftmax } from "../../mha/widgets/static/attention.js";
import { WIDTHS, fillNormals, sampleOf } from "../../mha/widgets/static/scaling_draw.js";
import * as maths from "../../mha/widgets/static/scaling_maths.js";
import * as words from "../../mha/widgets/static/scaling_words.js";
import explorer from "../../mha/widgets/static/scaling_explorer.js";

const source = readFileSync(new URL("../../book/_static/static-widgets.js", import.meta.url), "utf8");
const page = vm.createContext({ atob, structuredClone, console });
vm.runInContext(source, page);
const golden = JSON.parse(readFileSync(new URL("golden.json", import.meta.url), "utf8"));

const START = { d_k: 64, scale: "1/√d_k", mean: 0, correlation: 0, seed: 2, row: 0 };

/** The widget drawn with `state` changed. */
function draw(state = {}) {
  const start = { ...START, ...state };
  const model = new page.staticWidgets.Model({ state: { ...start, _start: start } });
  let saved = 0;
  model.save_changes = () => (saved += 1);
  const el = new Element("div");
  const clean = explorer.render({ model, el });
  const root = el.children[0];
  const act = async (node, type) => {
    node.send(type);
    await Promise.resolve();
  };
  const set = async (role, value) => {
    const [node] = root.role(role);
    node.value = value;
    await act(node, "input");
  };
  const radio = (value) =>
    act(
      root.role("scale").find((one) => one.value === value),
      "change",
    );
  const click = (role) => act(root.role(role)[0], "click");
  return { model, el, root, clean, set, radio, click, get: (name) => model.get(name), saves: () => saved };
}

const text = (root, role) => root.role(role)[0].textContent;
const close = (found, wanted, at = "") =>
  assert.ok(Math.abs(found - wanted) <= 1e-6 * Math.max(1, Math.abs(wanted)), `${at} ${found} is not ${wanted}`);
const line = (root, name) => root.all((node) => node.dataset.line === name)[0].children.slice(1);
const heard = async (root) => {
  await new Promise((resolve) => setTimeout(resolve, 560));
  return root.ofClass("mha-live")[0].textContent;
};

golden.scalings.forEach(([d_k, scale, mean, correlation, seed, row], at) => {
  test(`numbers as in Python: width ${d_k}, scale ${scale}, mean ${mean}, correlation ${correlation}`, () => {
    const state = { d_k, scale, mean, correlation, row };
    const all = maths.explored(state, sampleOf(seed).at(d_k));
    const [norms, slopes] = ["norm", "byQuery"].map((name) => all.rows.map((one) => one[name]));
    const average = (values) => values.reduce((sum, value) => sum + value, 0) / values.length;
    const found = [
      ...all.logits.slice(32 * row, 32 * row + 3),
      ...all.row.p.slice(0, 3),
      all.row.norm,
      all.row.byQuery,
      maths.median(norms),
      average(norms),
      maths.median(slopes),
      average(slopes),
      ...all.found.mean,
      all.found.variance[0],
      all.found.within[0],
    ];
    const wanted = golden.scaled[at];
    assert.equal(found.length, wanted.length);
    found.forEach((value, i) => close(value, wanted[i], `[${i}]`));
  });
});

test("the sums of a width do not depend on the way there, and a part of a vector is that part", () => {
  const [straight, stepped] = [sampleOf(7).at(32), sampleOf(7)];
  for (let i = 0; i < 1000; i++) stepped.step();
  for (const [name, values] of Object.entries(stepped.at(32))) assert.deepEqual(values, straight[name]);
  const [whole, part, first] = [new Float64Array(9), new Float64Array(3), new Float64Array(1)];
  fillNormals(whole, 7, 12, 0, 9);
  fillNormals(part, 7, 12, 5, 8);
  fillNormals(first, 7, 12, 0, 1);
  assert.deepEqual([...part], [...whole.slice(5, 8)]);
  assert.equal(first[0], whole[0]);
  const full = sampleOf(7);
  full.at(1024);
  assert.equal(full.step(), false);
});

test("norms by hand: even weights, two keys, and a lead of 40", () => {
  close(maths.jacobianNorm(Float64Array.from({ length: 32 }, () => 1 / 32)), Math.sqrt(31) / 32);
  const p = maskedSoftmax(Float64Array.of(0, 40), 2);
  const wanted = 2 * Math.exp(-40); // 2 p (1 − p)
  assert.ok(Math.abs(maths.jacobianNorm(p) / wanted - 1) < 1e-12);
  // keys (3, 0) and (0, 4): ∂p/∂q = ½ p₀ p₁ · (±(3, −4)), two rows of length p₀ p₁ · 5
  const slope = maths.slopeByQuery(p, Float64Array.of(9, 0, 0, 16), 0.5, 0.6);
  assert.ok(Math.abs(slope / (0.5 * 0.8 * Math.SQRT2 * 5 * Math.exp(-40)) - 1) < 1e-12);
});

test("moments by hand: skewness and kurtosis of products", () => {
  const of = (state) => maths.predicted({ d_k: 1, scale: "1", mean: 0, correlation: 0, ...state });
  assert.deepEqual([of({}).skewness, of({}).kurtosis, of({ d_k: 8 }).kurtosis], [0, 6, 0.75]);
  close(of({ correlation: 1 - 1e-12 }).skewness, Math.sqrt(8)); // nearly χ² with one degree of freedom
  close(of({ correlation: 1 - 1e-12 }).kurtosis, 12);
  close(of({ mean: 1 }).kurtosis, 30 / 9); // the fourth cumulant over the squared variance
  close(of({ mean: 1 }).skewness, 6 / 27 ** 0.5);
  assert.deepEqual([of({ d_k: 64, mean: 0.5 }).mean, of({ d_k: 64, mean: 0.5 }).variance], [16, 96]);
});

test("an axis spans powers of two around the mean, and every logit is counted", () => {
  const { low, high, counts, beyond } = maths.histogram([-4, -3.9, 3.999, 4, 70], { mean: 0.4, variance: 1 });
  assert.deepEqual([low, high, beyond], [-4, 4, 2]);
  assert.deepEqual([counts[0], counts.at(-1)], [2, 1]);
  const far = maths.histogram([1000], { mean: 1024, variance: 3072 });
  assert.deepEqual([far.low, far.high], [768, 1280]);
});

test("the words are true at every extreme", () => {
  const samples = sampleOf(2);
  for (const d_k of WIDTHS)
    for (const scale of Object.keys(maths.SCALES))
      for (const mean of [-1, 0, 0.5, 1])
        for (const correlation of [-0.95, -0.25, 0, 0.95]) {
          const s = { ...START, d_k, scale, mean, correlation };
          s.all = maths.explored(s, samples.at(d_k));
          const { known, rows, saturated, histogram, logits } = s.all;
          const { mean: first, variance } = words.formulas(s);
          const said = words.status(s);
          const all = [said, words.caption(s), words.rowText(s), words.legend(s), ...first, ...variance];
          const at = JSON.stringify([d_k, scale, mean, correlation]);
          for (const one of all) assert.doesNotMatch(one, /NaN|undefined|Infinity|-\d|−0[^.]|−0\.0+\b/, at + one);
          const largest = rows.map((one) => one.largest);
          // saturation
          const sleeping = rows.filter((one) => one.largest > 0.99);
          assert.equal(saturated, sleeping.length);
          assert.equal(/ rows \(/.test(said), sleeping.length > 0, at);
          assert.ok(sleeping.every(({ norm }) => norm < 0.02));
          if (/hardly/.test(said)) {
            assert.ok(Math.max(...largest) <= 2 / 32);
            for (const { norm } of rows) assert.ok(Math.abs(norm - 0.174) < 0.03);
          }
          // what the scale does
          assert.equal(/all three scales are 1/.test(said), d_k === 1);
          if (/variance is 1 at every width/.test(said)) close(known.variance, 1);
          if (/It would be 1 with/.test(said)) assert.ok(known.variance > 1 + 1e-9);
          assert.equal(/does not see that/.test(said), known.variance - known.within > 1e-9 * known.variance, at);
          // the mean is 0 only where it is
          assert.equal(first[2] === "= 0", Math.abs(mean ** 2 + correlation) < 1e-12, at);
          assert.equal(/not normal/.test(words.caption(s)), Math.abs(known.skewness) >= 0.5 || known.kurtosis >= 0.5);
          assert.ok(histogram.high - histogram.low >= 8 * Math.sqrt(known.variance) * (1 - 1e-6));
          assert.ok(Math.abs(known.mean - (histogram.low + histogram.high) / 2) <= (histogram.high - histogram.low) / 8);
          assert.equal(histogram.counts.reduce((sum, n) => sum + n, histogram.beyond), logits.length);
        }
});

test("the page shows the numbers of the state", () => {
  const { root, saves, clean } = draw();
  const [predicted, measured] = line(root, "variance");
  assert.equal(predicted.textContent, "1.00");
  assert.equal(measured.textContent, "1.02 ± 0.0454");
  close(measured.dataset.value, golden.scaled[0][14]);
  line(root, "norm").forEach((cell, i) => close(cell.dataset.value, golden.scaled[0][[6, 8, 9][i]]));
  line(root, "byQuery").forEach((cell, i) => close(cell.dataset.value, golden.scaled[0][[7, 10, 11][i]]));
  assert.equal(
    text(root, "variance-formula"),
    "variance = scale² · dₖ · (1 + ρ² + 2m²(1 + ρ)) = (1/√64)² · 64 · 1.000 = 1.00",
  );
  assert.match(text(root, "status"), /^1\/√dₖ cancels dₖ: the variance is 1 at every width\. No key has more than 0\.99/);
  assert.match(text(root, "one"), /^Query 0: largest weight 0\.278 \(key 16\); 22 of 32 keys have more than 1 %\.$/);
  assert.equal(saves(), 0);
  clean();
});

test("the bars of a row are its weights, and the axis has its numbers", async () => {
  const { root, set, radio, clean } = draw();
  const heights = () =>
    [...root.ofClass("mha-scale-weights")[0].getAttribute("d").matchAll(/V([\d.]+)H/g)].map(([, y]) => 1 - y / 130);
  assert.equal(heights().length, 32);
  assert.ok(Math.abs(heights().reduce((sum, height) => sum + height, 0) - 1) < 0.01);
  assert.ok(Math.abs(heights()[16] - 0.278) < 0.001);
  const ticks = () => root.role("histogram")[0].all((node) => node.tag === "text").map((node) => node.textContent);
  assert.deepEqual(ticks(), ["−4", "−2", "0", "2", "4"]);
  await set("width", 10);
  await radio("1/d_k");
  assert.deepEqual(ticks(), ["−0.125", "−0.0625", "0", "0.0625", "0.125"]);
  assert.match(text(root, "caption"), /The predicted mean ± 1 is at least as wide as the axis\./);
  const [band] = root.ofClass("mha-scale-band");
  assert.deepEqual([band.getAttribute("x"), band.getAttribute("width")], ["0.00", "360.00"]);
  clean();
});

test("every control moves its trait, and start again puts all back", async () => {
  const { root, set, radio, click, get, clean } = draw();
  await set("width", 0);
  await radio("1");
  await set("mean", 0.35);
  await set("correlation", -0.95);
  await set("row", 63);
  await click("another");
  assert.deepEqual(
    ["d_k", "scale", "mean", "correlation", "row", "seed"].map(get),
    [1, "1", 0.35, -0.95, 63, 3],
  );
  assert.deepEqual(
    ["width", "mean", "correlation", "row"].map((role) => text(root, `${role}-out`)),
    ["1", "0.35", "−0.95", "63"],
  );
  assert.equal(root.role("width")[0].getAttribute("aria-valuetext"), "1");
  await click("restart");
  for (const [name, value] of Object.entries(START)) assert.equal(get(name), value);
  assert.equal(root.role("scale").find((one) => one.checked).value, "1/√d_k");
  clean();
});

test("the draw after the last is the first", async () => {
  const { click, get, clean } = draw({ seed: 9999 });
  await click("another");
  assert.equal(get("seed"), 0);
  clean();
});

test("an act is said once, in words; a change from Python is drawn, not said and not sent back", async () => {
  const { model, root, set, saves, clean } = draw();
  await set("row", 5);
  assert.match(await heard(root), /^Query 5: largest weight 0\.\d+ \(key \d+\); \d+ of 32 .* Norm of J 0\.\d+\.$/);
  await set("width", 10);
  assert.match(await heard(root), /^width 1024: variance 1\.00 predicted, 0\.\d+ measured\. No key .* Median of the norm of J 0\.\d+\.$/);
  const before = [saves(), root.ofClass("mha-live")[0].textContent];
  model.set("scale", "1");
  await Promise.resolve();
  assert.match(text(root, "status"), /^Without a scale the variance grows like dₖ: here it is 1024\. In 52 of 64 rows/);
  assert.deepEqual([saves(), await heard(root)], before);
  clean();
});

/** Count the numbers drawn while `act` runs, and keep its timers: `fire()` runs those that still wait. */
async function watched(act) {
  const [imul, start, stop] = [Math.imul, globalThis.setTimeout, globalThis.clearTimeout];
  const waiting = new Map();
  let [work, timers] = [0, 0];
  Math.imul = (a, b) => {
    work += 1;
    return imul(a, b);
  };
  globalThis.setTimeout = (call) => {
    waiting.set((timers += 1), call);
    return timers;
  };
  globalThis.clearTimeout = (timer) => waiting.delete(timer);
  const fire = () => {
    const before = work;
    const calls = [...waiting.values()];
    waiting.clear();
    for (const call of calls) call();
    return work - before;
  };
  try {
    return await act(fire);
  } finally {
    Math.imul = imul;
    Object.assign(globalThis, { setTimeout: start, clearTimeout: stop });
  }
}

test("what comes next is drawn ahead, a little at a time, and not after the end", () =>
  watched(async (fire) => {
    const { clean, click, set } = draw({ d_k: 1 });
    for (let i = 0; i < 3; i++) {
      const work = fire();
      assert.ok(work > 0 && work < 5000, String(work));
    }
    await click("another"); // the old draw is given up
    assert.ok(fire() < 5000);
    await set("width", 3);
    for (let i = 0; i < 20; i++) assert.ok(fire() > 0);
    clean();
    assert.equal(fire(), 0);
  }));

test("nothing is left behind", () => {
  const before = observers.length;
  const themes = darkPreferred.listeners.length;
  const { model, el, root, clean } = draw({ d_k: 1 });
  assert.ok(root.all((node) => node.listeners.length).length > 6);
  clean();
  assert.deepEqual(
    observers.slice(before).map(({ watches }) => watches),
    [false],
  );
  assert.equal(darkPreferred.listeners.length, themes);
  assert.equal(
    [...model.listeners.values()].reduce((sum, all) => sum + all.size, 0),
    0,
  );
  assert.equal(root.all((node) => node.listeners.length).length, 0);
  assert.equal(el.children.length, 0);
});
