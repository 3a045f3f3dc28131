// OutputMixer: both ways of W_O by hand, what an act sets and says, what is left behind.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import vm from "node:vm";

import { Element, darkPreferred, observers } from "./fake_dom.mjs";
import { HEAD_COLOURS, inHeadColour } from "../../mha/widgets/static/head_colours.js";
import { shortText } from "../../mha/widgets/static/mixer_heads.js";
import { tickSteps } from "../../mha/widgets/static/mixer_plots.js";
import * as mixing from "../../mha/widgets/static/mixing.js";
import mixer, { consistent, largestDifference } from "../../mha/widgets/static/output_mixer.js";

const source = readFileSync(new URL("../../book/_static/static-widgets.js", import.meta.url), "utf8");
const page = vm.createContext({ atob, structuredClone, console });
vm.runInContext(source, page);

const near = (found, wanted, tolerance = 1e-12) =>
  assert.ok(Math.abs(found - wanted) <= tolerance, `${found} is not ${wanted}`);
const nearAll = (found, wanted, tolerance) => {
  assert.equal(found.length, wanted.length);
  wanted.forEach((value, i) => near(found[i], value, tolerance));
};

// H d F = 2 2 3; two tokens. Head 0 gives [1 2 4] of token 0, head 1 gives [7 −3 −3].
const HALVES = { 0: 0, 0.5: 0x3800, 1: 0x3c00, 2: 0x4000, 3: 0x4200, "-1": 0xbc00, "-3": 0xc200 };
const halves = (...values) => Uint16Array.from(values, (value) => HALVES[value]);
const Z = [1, 2, 3, 1, 0, 1, 1, 0];
const W_O = [1, 0, 2, 0, 1, 1, 2, -1, 0, 1, 0, -3];
const B_O = [0.5, -1, 0];
const PARTS = [
  [
    [1, 2, 4],
    [7, -3, -3],
    B_O,
  ],
  [[0, 1, 1], [2, -1, 0], B_O],
];
const dot = (a, b) => a.reduce((sum, value, i) => sum + value * b[i], 0);
const gramOf = (parts) => parts.flatMap((one) => parts.map((other) => dot(one, other)));
const DATA = {
  tokens: ["oh", "oh"],
  z: halves(...Z),
  w_o: halves(...W_O),
  b_o: halves(...B_O),
  gram: Float64Array.from(PARTS.flatMap(gramOf)),
};

/** The mixer drawn with `state` changed; by default token 0, feature 0, all heads on. */
function draw(state = {}, data = {}) {
  const model = new page.staticWidgets.Model({
    state: { n_heads: 2, n_features: 3, d_model: 3, token: 0, feature: 0, off: [], ...state },
  });
  model.state._data = { ...DATA, ...data };
  let saved = 0;
  model.save_changes = () => (saved += 1);
  const el = new Element("div");
  const clean = mixer.render({ model, el });
  const root = el.children[0];
  const act = async (node, type, more) => {
    const event = node.send(type, more);
    await Promise.resolve();
    return event;
  };
  const get = (...names) => names.map((one) => model.get(one));
  const heads = root.ofClass("mha-mix-head");
  const plots = root.ofClass("mha-mix-plot");
  return { model, el, root, clean, act, get, heads, plots, saves: () => saved };
}

const values = (root, ...roles) => roles.map((role) => Number(root.role(role)[0].dataset.value));
const rows = (root) => root.ofClass("mha-mix-row").map((row) => row.textContent);
const said = (root) => root.role("happened")[0].textContent;
/** The boxes of a path, column -> [upper, lower end] as values; the range is −4 … 8.5 with 4 % more at each end. */
const LOW = -4.5;
const HIGH = 9;
const toValue = (y) => HIGH - ((HIGH - LOW) * Number(y)) / 100;
const boxesOf = (node) =>
  Object.fromEntries(
    [...node.getAttribute("d").matchAll(/M([\d.]+) ([\d.]+)V([\d.]+)H/g)].map(([, x, from, to]) => [
      Math.floor(x),
      [toValue(from), toValue(to)],
    ]),
  );
const levelsOf = (node) => [...node.getAttribute("d").matchAll(/M[\d.]+ ([\d.]+)H/g)].map(([, y]) => toValue(y));

test("one token by hand, in both ways", () => {
  const z = Float64Array.from(Z.slice(0, 4));
  const [wO, bias] = [Float64Array.from(W_O), Float64Array.from(B_O)];
  assert.deepEqual([...mixing.headContributions(z, wO, 2, 3)], [1, 2, 4, 7, -3, -3]);
  assert.deepEqual([...mixing.concatProduct(z, wO, bias)], [8.5, -2, 1]);
  assert.deepEqual([...mixing.withoutHeads(z, 2, [0])], [0, 0, 3, 1]);
  assert.deepEqual([...mixing.concatProduct(mixing.withoutHeads(z, 2, [0]), wO, bias)], [7.5, -4, -3]);
  const contributions = mixing.headContributions(z, wO, 2, 3);
  assert.deepEqual([...mixing.addContributions(contributions, bias, [0])], [7.5, -4, -3]);
  assert.deepEqual([...mixing.addContributions(contributions, bias, [0, 1])], B_O);
});

test("both ways are equal for every choice of heads, and so is the length", () => {
  const [H, d, F] = [5, 7, 11];
  const random = (count, seed) => Float64Array.from({ length: count }, (_, i) => Math.sin(seed + 7.3 * i ** 1.5));
  const [z, wO, bias] = [random(H * d, 1), random(H * d * F, 2), random(F, 3)];
  const contributions = mixing.headContributions(z, wO, H, F);
  const parts = [...Array(H).keys()].map((h) => contributions.slice(h * F, (h + 1) * F));
  const gram = Float64Array.from(gramOf([...parts, bias].map((part) => [...part])));
  const full = mixing.concatProduct(z, wO, bias);
  for (let choice = 0; choice < 2 ** H; choice++) {
    const off = [...Array(H).keys()].filter((h) => choice & (1 << h));
    const product = mixing.concatProduct(mixing.withoutHeads(z, H, off), wO, bias);
    nearAll(mixing.addContributions(contributions, bias, off), [...product]);
    const length = Math.sqrt(dot([...product], product));
    near(mixing.subsetLength(gram, H, off), length);
    near(mixing.subsetCosine(gram, H, off), dot([...product], full) / length / Math.sqrt(dot([...full], full)));
  }
  parts.forEach((part, h) => near(mixing.headLength(gram, H, h), Math.sqrt(dot([...part], part))));
});

test("blocks in another order give another product, and blocks with their rows the same", () => {
  const [H, F] = [2, 3];
  const swap = (all, width) => [...all.slice(width), ...all.slice(0, width)];
  const [z, wO, bias] = [Z.slice(0, 4), W_O, B_O].map((all) => Float64Array.from(all));
  const turned = Float64Array.from(swap([...z], 2));
  assert.notDeepEqual(mixing.concatProduct(turned, wO, bias), mixing.concatProduct(z, wO, bias));
  const both = Float64Array.from(swap([...wO], 2 * F));
  assert.deepEqual(mixing.concatProduct(turned, both, bias), mixing.concatProduct(z, wO, bias));
  const contributions = [...mixing.headContributions(z, wO, H, F)];
  assert.deepEqual([...mixing.headContributions(turned, both, H, F)], swap(contributions, F));
});

test("a stack has its positive pieces above nought and its negative ones below", () => {
  const contributions = Float64Array.from([1, 2, 4, 7, -3, -3]);
  const pieces = (off, feature) => mixing.stackPieces(contributions, Float64Array.from(B_O), off, feature);
  assert.deepEqual(pieces([], 0), [
    [0.5, 1.5],
    [1.5, 8.5],
    [0, 0.5], // the bias, where the stack begins
  ]);
  assert.deepEqual(pieces([], 1), [
    [0, 2],
    [-1, -4],
    [0, -1],
  ]);
  assert.deepEqual(pieces([0], 0), [
    [0.5, 0.5],
    [0.5, 7.5], // as long as before
    [0, 0.5],
  ]);
  assert.deepEqual(mixing.stackRange(contributions, Float64Array.from(B_O)), [-4, 8.5]);
  assert.deepEqual(mixing.stackRange(new Float64Array(3), new Float64Array(3)), [-1, 1]);
});

test("nothing has a length of 0 and no direction", () => {
  const gram = new Float64Array(9);
  assert.equal(mixing.subsetLength(gram, 2, []), 0);
  assert.ok(Number.isNaN(mixing.subsetCosine(gram, 2, [])));
  gram[0] = -1e-9; // what rounding may leave
  assert.equal(mixing.subsetLength(gram, 2, [1]), 0);
});

test("ticks are round numbers that stay inside", () => {
  const list = (low, high) => {
    const { ticks, digits } = tickSteps(low, high);
    return ticks.map((tick) => tick.toFixed(digits)).join(" ");
  };
  assert.equal(list(-0.52, 0.37), "-0.4 -0.2 0.0 0.2");
  assert.equal(list(-4, 8.5), "0 5");
  assert.equal(list(-0.0011, 0.0003), "-0.0010 -0.0005 0.0000");
  assert.equal(list(-60, 150), "-50 0 50 100 150");
});

test("colours begin again after eight heads, with a stripe", () => {
  const [third, eleventh, last] = [3, 11, 40].map((h) => inHeadColour(new Element("i"), h));
  assert.equal(third.style.values["--head"], HEAD_COLOURS[3]);
  assert.equal(eleventh.style.values["--head"], HEAD_COLOURS[3]);
  assert.deepEqual([third, eleventh, last].map((node) => node.dataset.round), ["0", "1", "2"]);
});

test("the page shows the numbers of the state", () => {
  const { root, heads, saves } = draw();
  assert.deepEqual(values(root, "sum", "product", "difference", "largest"), [8.5, 8.5, 0, 0]);
  assert.deepEqual(rows(root), ["head 0: 1.000", "head 1: 7.000", "bO: 0.500"]);
  near(values(root, "length")[0], Math.sqrt(77.25), 1e-6);
  near(values(root, "cosine")[0], 1, 1e-12);
  assert.deepEqual(
    heads.map((head) => head.textContent),
    ["head 0, length 4.6", "head 1, length 8.2"],
  );
  assert.deepEqual(
    heads.map((head) => [head.getAttribute("aria-pressed"), head.tabIndex]),
    [
      ["true", 0],
      ["true", -1],
    ],
  );
  assert.deepEqual(
    root.role("token")[0].children.map((option) => option.textContent),
    ["0 · oh", "1 · oh"],
  );
  assert.match(said(root), /^Switch a head off and watch/);
  assert.equal(saves(), 0);
});

test("the mark of the second plot stands where the bar of the first ends, on one scale", async () => {
  const { plots, heads, act } = draw();
  const check = (wanted) => {
    const [first, second] = plots.map((plot) => plot.ofClass("mha-mix-cap")[0]);
    assert.equal(first.getAttribute("d"), second.getAttribute("d"));
    nearAll(levelsOf(first), wanted, 1e-3);
    const ends = [plots[0].ofClass("mha-mix-bar"), plots[1].ofClass("mha-mix-silhouette")];
    for (const [bars] of ends) wanted.forEach((y, j) => nearAll(boxesOf(bars)[j], [0, y], 1e-3));
  };
  check([8.5, -2, 1]);
  await act(heads[0], "click");
  check([7.5, -4, -3]);
  nearAll(levelsOf(plots[0].ofClass("mha-mix-ghost")[0]), [8.5, -2, 1], 1e-3);
});

test("a head that goes leaves the others as long as they were", async () => {
  const { plots, heads, act } = draw();
  const parts = plots[1].ofClass("mha-mix-part"); // head 0, head 1, the bias
  const lengths = () => parts.map((part) => Object.values(boxesOf(part)).map(([from, to]) => to - from));
  const before = lengths();
  nearAll(before.flat(), [1, 2, 4, 7, -3, -3, 0.5, -1], 1e-3);
  const where = boxesOf(parts[1])[0];
  await act(heads[0], "click");
  assert.deepEqual(lengths()[0], []);
  nearAll(lengths().flat(), before.slice(1).flat(), 1e-3);
  nearAll(boxesOf(parts[1])[0], [where[0] - 1, where[1] - 1], 1e-3); // it slid down by what went
});

test("ten heads: the ninth has the first colour and a stripe inside its boxes", () => {
  const z = new Uint16Array(20).fill(0x3c00);
  const data = { tokens: ["oh"], z, w_o: new Uint16Array(30).fill(0x3c00), gram: new Float32Array(121) };
  const { plots } = draw({ n_heads: 10, n_features: 3 }, data);
  const stripes = plots[1].ofClass("mha-mix-stripe");
  assert.equal(stripes.length, 2);
  const columns = stripes.map((stripe) => stripe.getAttribute("d").match(/M/g).length);
  assert.deepEqual(columns, [3, 3]);
});

test("a press switches a head, and what it did is told with the numbers themselves", async () => {
  const { root, heads, act, get, saves } = draw();
  await act(heads[1], "click");
  assert.deepEqual(get("off"), [[1]]);
  assert.equal(
    said(root),
    "Head 1 off: feature 0 goes from 8.500 to 1.500, a change of −7.000, exactly minus its contribution.",
  );
  assert.deepEqual(rows(root), ["head 0: 1.000", "head 1: off", "bO: 0.500"]);
  assert.deepEqual(
    root.ofClass("mha-mix-row").map((row) => row.dataset.part),
    ["1", "0", "0.5"],
  );
  near(values(root, "length")[0], Math.sqrt(1.5 ** 2 + 1 + 16), 1e-6);
  near(values(root, "full-length")[0], Math.sqrt(77.25), 1e-6);
  const cosine = (1.5 * 8.5 - 2 + 4) / Math.sqrt(19.25 * 77.25);
  near(values(root, "cosine")[0], cosine, 1e-6);
  await act(heads[0], "click");
  assert.deepEqual(get("off"), [[0, 1]]);
  assert.equal(heads[0].getAttribute("aria-pressed"), "false");
  await act(heads[1], "click");
  assert.deepEqual(get("off"), [[0]]);
  assert.equal(
    said(root),
    "Head 1 on: feature 0 goes from 0.500 to 7.500, a change of 7.000, exactly its contribution.",
  );
  assert.equal(document.activeElement, heads[1]);
  assert.equal(saves(), 3);
});

test("what is written adds up: a digit more where rounding would say otherwise", () => {
  assert.deepEqual(consistent([8.5, 1.5, -7], 3), ["8.500", "1.500", "−7.000"]);
  assert.deepEqual(consistent([0.18784, 0.16475, -0.02309], 4), ["0.18784", "0.16475", "−0.02309"]);
  assert.deepEqual(consistent([0.05, 0.15, 0.1], 1), ["0.05", "0.15", "0.10"]);
  const third = 1 / 3; // never adds up in decimals: four digits more are enough
  assert.deepEqual(consistent([third, 2 * third, third], 1), ["0.33333", "0.66667", "0.33333"]);
});

test("a screen reader hears what a press did", async () => {
  const { root, heads, act } = draw();
  await act(heads[0], "click");
  await new Promise((resolve) => setTimeout(resolve, 550));
  assert.equal(
    root.ofClass("mha-live")[0].textContent,
    "head 0 off: feature 0 goes from 8.500 to 7.500, a change of −1.000, exactly minus its contribution",
  );
});

test("all off and all on", async () => {
  const { root, act, get, saves } = draw();
  await act(root.role("all-on")[0], "click"); // they are
  assert.equal(saves(), 0);
  await act(root.role("all-off")[0], "click");
  assert.deepEqual([...get("off")[0]], [0, 1]);
  assert.deepEqual(values(root, "sum", "product"), [0.5, 0.5]);
  near(values(root, "length")[0], Math.sqrt(1.25), 1e-12);
  assert.equal(said(root), "All heads are off: y is the bias b_O alone.");
  await act(root.role("all-on")[0], "click");
  assert.deepEqual([...get("off")[0]], []);
  assert.equal(saves(), 2);
});

test("without a bias and without heads nothing is left", () => {
  const parts = PARTS.map(([one, other]) => [one, other, [0, 0, 0]]);
  const gram = Float64Array.from(parts.flatMap(gramOf));
  const { root } = draw({ off: [0, 1] }, { b_o: null, gram });
  assert.deepEqual(rows(root), ["head 0: off", "head 1: off"]);
  assert.deepEqual(values(root, "sum", "length"), [0, 0]);
  assert.equal(root.role("cosine")[0].textContent, "none, one is zero");
});

test("keys choose a feature and stop at the edges; a click on either plot does too", async () => {
  const { root, plots, act, get } = draw();
  const press = (key, more) => act(plots[1], "keydown", { key, ...more });
  assert.equal((await press("ArrowRight")).prevented, true);
  assert.deepEqual(get("feature"), [1]);
  await press("End");
  await press("ArrowRight");
  assert.deepEqual(get("feature"), [2]);
  assert.deepEqual(values(root, "sum"), [1]);
  assert.equal((await press("ArrowLeft", { ctrlKey: true })).prevented, undefined);
  assert.equal((await press("Tab")).prevented, undefined);
  await press("Home");
  await press("ArrowLeft");
  assert.deepEqual(get("feature"), [0]);
  await act(plots[0], "click", { clientX: 99 }); // of 100 pixels
  assert.deepEqual(get("feature"), [2]);
  assert.equal(document.activeElement, plots[1]);
  await act(plots[1].ofClass("mha-mix-part")[0], "click", { clientX: 40 });
  assert.deepEqual(get("feature"), [1]);
  assert.equal(root.role("feature")[0].value, "1");
  const bands = plots.map((plot) => parseFloat(plot.ofClass("mha-mix-band")[0].style.values.left));
  nearAll(bands, [100 / 3, 100 / 3], 1e-9);
  const chosen = root.ofClass("mha-mix-axis")[0].all((node) => node.getAttribute("data-chosen") !== null);
  assert.deepEqual(chosen.map((node) => node.textContent), ["1"]);
});

test("the selects choose token and feature, and what a head did is told for the new feature", async () => {
  const { root, heads, act, get } = draw();
  await act(heads[0], "click");
  const [feature] = root.role("feature");
  feature.value = 2;
  await act(feature, "change");
  assert.match(said(root), /^Head 0 off: feature 2 goes from 1.000 to −3.000, a change of −4.000/);
  const [token] = root.role("token");
  token.value = 1;
  await act(token, "change");
  assert.deepEqual(get("token", "feature"), [1, 2]);
  assert.deepEqual(values(root, "sum", "product"), [0, 0]);
  assert.equal(said(root), "Off: head 0."); // no head was switched for this token
  near(values(root, "full-length")[0], Math.sqrt(2.5 ** 2 + 1 + 1), 1e-12);
});

test("arrow keys walk along the heads without switching one", async () => {
  const { heads, act, get, saves } = draw();
  await act(heads[0], "keydown", { key: "ArrowRight" });
  assert.equal(document.activeElement, heads[1]);
  assert.deepEqual(heads.map((head) => head.tabIndex), [-1, 0]);
  await act(heads[1], "keydown", { key: "End" });
  await act(heads[1], "keydown", { key: "Home" });
  assert.equal(document.activeElement, heads[0]);
  assert.deepEqual(get("off"), [[]]);
  assert.equal(saves(), 0);
});

test("what is under the pointer or has the focus is outlined everywhere", async () => {
  const { root, plots, heads, act } = draw();
  const parts = plots[1].ofClass("mha-mix-part");
  const [outline] = plots[1].ofClass("mha-mix-outline");
  const marked = () => root.all((node) => node.getAttribute("data-pointed") !== null).length;
  for (const [enter, leave] of [
    ["pointerover", "pointerout"],
    ["focusin", "focusout"],
  ]) {
    await act(heads[1], enter);
    assert.equal(marked(), 3); // button, block and row
    assert.equal(outline.getAttribute("d"), parts[1].getAttribute("d"));
    await act(heads[1], leave);
    assert.equal(marked(), 0);
    assert.equal(outline.getAttribute("d"), "");
  }
  await act(parts[0], "pointermove", { clientX: 50 });
  assert.equal(marked(), 3);
  assert.equal(root.ofClass("mha-mix-tip")[0].textContent, "feature 1, head 0: 2.000");
  await act(heads[0], "click"); // the outline goes with the part
  assert.equal(outline.getAttribute("d"), "");
  await act(parts[2], "pointermove", { clientX: 50 });
  assert.equal(root.ofClass("mha-mix-tip")[0].textContent, "feature 1, b_O: −1.000");
  assert.equal(marked(), 0);
  await act(plots[1], "pointerleave");
  assert.ok(root.ofClass("mha-mix-tip")[0].hidden);
});

test("the block of a head that is off is flat", () => {
  const { root } = draw({ off: [0] });
  const painted = root.all((node) => node.tag === "canvas").map((canvas) => canvas.context.painted.slice(1));
  assert.deepEqual(painted[0], []);
  assert.deepEqual(painted[1].map(([, x, y, width, height]) => [x, y, width, height]), [
    [0, 0, 1, 16], // 3, the largest of the row
    [1, 11, 1, 5],
  ]);
});

test("a change from Python is drawn and not sent back", async () => {
  const { model, root, saves } = draw();
  model.set("off", [1]);
  model.set("feature", 1);
  await Promise.resolve();
  assert.deepEqual(values(root, "sum"), [1]);
  assert.match(said(root), /^Head 1 off: feature 1 goes from −2.000 to 1.000, a change of 3.000/);
  assert.equal(saves(), 0);
});

test("nothing is left behind", () => {
  const before = observers.length;
  const themes = darkPreferred.listeners.length;
  const { model, el, root, clean } = draw();
  clean();
  assert.ok(observers.slice(before).every(({ watches }) => !watches));
  assert.equal(darkPreferred.listeners.length, themes);
  assert.equal([...model.listeners.values()].reduce((sum, all) => sum + all.size, 0), 0);
  assert.equal(root.all((node) => node.listeners.length).length, 0);
  assert.equal(el.children.length, 0);
});

test("lengths on the buttons have two digits and never an exponent", () => {
  const given = [0, 1e-9, 0.25, 1.08, 99.4, 99.7, 123.4, 12345, 1e6];
  assert.deepEqual(given.map(shortText), ["0", "<.01", "0.25", "1.1", "99", "100", "123", "12K", "1M"]);
});

test("bars point where their numbers do, and a difference of the two ways is shown", () => {
  const { root } = draw({ feature: 2 });
  const rowsOf = root.ofClass("mha-mix-row");
  const negative = rowsOf.map((row) => row.ofClass("mha-mix-amount")[0].getAttribute("data-negative") !== null);
  assert.deepEqual(negative, rowsOf.map((row) => Number(row.dataset.part) < 0));
  assert.ok(negative.includes(true) && negative.includes(false));
  const found = largestDifference([1, 2, 3], [1, 2.5, 3]);
  assert.equal(found, 0.5);
});

test("when the pointer leaves, the head with the focus is outlined again", async () => {
  const { heads, act } = draw();
  const outlined = () => heads.map((head) => head.getAttribute("data-pointed") !== null);
  await act(heads[1], "focusin");
  await act(heads[0], "pointerover");
  assert.deepEqual(outlined(), [true, false]);
  await act(heads[0], "pointerout");
  assert.deepEqual(outlined(), [false, true]);
  await act(heads[1], "focusout");
  assert.deepEqual(outlined(), [false, false]);
});

test("contributions that cancel leave their true length", () => {
  const parts = [[1000, 2000, 3000], [-1000.9765625, -2000, -3000], [0, 0, 0]];
  const gram = Float64Array.from(gramOf(parts));
  near(mixing.subsetLength(gram, 2, []), 0.9765625, 1e-6);
});
