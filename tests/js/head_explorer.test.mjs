// HeadExplorer drawn on a page of Node's: numbers by hand, what an act sets, what is left behind.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import vm from "node:vm";

import { Element, darkPreferred, observers } from "./fake_dom.mjs";
import explorer from "../../mha/widgets/static/head_explorer.js";

const source = readFileSync(new URL("../../book/_static/static-widgets.js", import.meta.url), "utf8");
const page = vm.createContext({ atob, structuredClone, console });
vm.runInContext(source, page);

const HALVES = { 0: 0, 1: 0x3c00, 2: 0x4000, 3: 0x4200 };
const halves = (...values) => Uint16Array.from(values, (value) => HALVES[value]);
const TWO = {
  text: "oh oh",
  tokens: ["oh", "oh"],
  q: halves(1, 0, 0, 2, 0, 1, 1, 0), // T D = 2 4
  k: halves(1, 0, 0, 1, 0, 2, 0, 3),
  task: "Find it.",
  answer: [4, 3, 0, 1],
};
const ONE = { text: "oh", tokens: ["oh"], q: halves(1, 0, 0, 2), k: halves(1, 0, 0, 1), task: "", answer: null };
const SURE = 1 / (1 + Math.exp(-4)); // logits 2 and 6

/** The explorer drawn with `state` changed; by default head 1 of 2, scale none, query 0, key 1. */
function draw(state = {}) {
  const model = new page.staticWidgets.Model({
    state: {
      d_model: 4,
      trained_heads: 2,
      choices: [1, 2, 4],
      n_heads: 2,
      scale: "none",
      temperature: 1,
      is_causal: false,
      sentence: 0,
      head: 1,
      query: 0,
      key: 1,
    },
  });
  Object.assign(model.state, { _data: [TWO, ONE] }, state);
  let saved = 0;
  model.save_changes = () => (saved += 1);
  const el = new Element("div");
  const clean = explorer.render({ model, el });
  const root = el.children[0];
  const act = async (node, type, more) => {
    const event = node.send(type, more);
    await Promise.resolve();
    return event;
  };
  const set = async (role, value, type) => {
    const [node] = root.role(role);
    node.value = value;
    await act(node, type);
  };
  const get = (...names) => names.map((one) => model.get(one));
  return { model, el, root, clean, act, set, get, saves: () => saved };
}

const near = (found, wanted) => assert.ok(Math.abs(found - wanted) < 1e-12, `${found} is not ${wanted}`);
const readout = (root) => root.ofClass("mha-readout")[0].dataset;
const row = (root) => root.ofClass("mha-row")[0].children;

test("the page shows the numbers of the state", () => {
  const { root, saves } = draw();
  const { score, logit, weight } = readout(root);
  assert.deepEqual([score, logit], ["6", "6"]);
  near(weight, SURE);
  near(row(root)[0].dataset.weight, 1 - SURE);
  assert.deepEqual(
    row(root).map((item) => item.textContent),
    ["oh: .02", "oh: .98"],
  );
  near(root.role("row-sum")[0].dataset.sum, 1);
  const bits = -SURE * Math.log2(SURE) - (1 - SURE) * Math.log2(1 - SURE);
  const heads = root.ofClass("mha-head");
  near(heads[1].dataset.entropy, (bits + 1) / 2); // the second row is flat
  assert.equal(heads[1].textContent, `head 1 of 2, entropy ${((bits + 1) / 2).toFixed(2)} bits`);
  assert.deepEqual(
    heads.map((head) => [head.getAttribute("aria-pressed"), head.tabIndex]),
    [
      ["false", -1],
      ["true", 0],
    ],
  );
  assert.deepEqual(
    root.role("query")[0].children.map((option) => option.textContent),
    ["oh (1)", "oh (2)"],
  );
  assert.match(root.ofClass("mha-steps")[0].textContent, /^score q·k 6.00 = logit 6.00\./);
  assert.equal(saves(), 0);
});

test("small maps and the large one are painted in the colour of the weight", () => {
  const { root } = draw();
  const [small] = root.ofClass("mha-head")[1].all((node) => node.tag === "canvas");
  const alpha = small.context.pixels.filter((_, i) => i % 4 === 3);
  const first = Math.round(255 * Math.min(1, (2 * Math.round(255 * (1 - SURE))) / 255));
  assert.deepEqual(alpha, [first, 255, 255, 255]); // the flat row sits at ½, where alpha ends
  const [large] = root.ofClass("mha-map")[0].all((node) => node.tag === "canvas");
  const last = large.context.painted.slice(-4);
  assert.equal(last.length, 4);
  assert.deepEqual(
    last.map(([colour]) => Number(colour.match(/\/ (.+)\)/)[1])),
    [first / 255, 1, 1, 1],
  );
});

test("another number of heads keeps the columns, a shorter sentence the indices inside", async () => {
  const { root, set, get, saves } = draw({ query: 1 });
  await set("heads", 2, "input");
  assert.deepEqual(get("n_heads", "head"), [4, 2]);
  assert.equal(root.ofClass("mha-head").length, 4);
  assert.match(root.role("columns")[0].textContent, /columns 2–2/);
  await set("heads", 0, "input");
  assert.deepEqual(get("n_heads", "head"), [1, 0]);
  await set("sentence", 1, "change");
  assert.deepEqual(get("sentence", "query", "key"), [1, 0, 0]);
  assert.equal(row(root).length, 1);
  assert.equal(saves(), 3);
});

test("a free temperature starts at the divisor in force, inside what the trait takes", async () => {
  const { root, act, get } = draw({ scale: "inverse" });
  const [radio] = root.role("scale").filter((node) => node.value === "temperature");
  await act(radio, "change");
  assert.deepEqual(get("scale", "temperature"), ["temperature", 2]);
  const [slider] = root.role("temperature");
  for (const [position, temperature] of [
    [3, 1000],
    [-1, 0.1],
    [0.5, 3.16],
  ]) {
    slider.value = position;
    await act(slider, "input");
    assert.deepEqual(get("temperature"), [temperature]);
  }
  assert.equal(root.role("temperature-out")[0].textContent, "÷ 3.16");
});

test("at 1536 columns and one head, that divisor is more than the trait takes", async () => {
  const wide = { ...ONE, q: new Uint16Array(1536), k: new Uint16Array(1536) };
  const { root, act, get } = draw({
    _data: [wide],
    d_model: 1536,
    n_heads: 1,
    head: 0,
    key: 0,
    scale: "inverse",
  });
  assert.equal(root.role("temperature-out")[0].textContent, "÷ 1536");
  await act(root.role("scale").at(-1), "change");
  assert.deepEqual(get("scale", "temperature"), ["temperature", 1000]);
});

test("the mask hides what comes later", async () => {
  const { root, act } = draw();
  const [causal] = root.role("causal");
  causal.checked = true;
  await act(causal, "change");
  assert.equal(readout(root).logit, "-Infinity");
  assert.equal(readout(root).weight, "0");
  assert.deepEqual(
    row(root).map((item) => item.textContent),
    ["oh: 1.0", "oh: –"],
  );
  assert.match(root.ofClass("mha-steps")[0].textContent, /^score q·k 6.00, hidden by the mask: logit −∞\./);
  assert.match(root.ofClass("mha-statement")[0].textContent, /was not trained with this scaling or a causal mask/);
});

test("show me goes to the answer, as the model computes it", async () => {
  const { root, act, get } = draw({ is_causal: true });
  await act(root.role("show")[0], "click");
  assert.deepEqual(get("n_heads", "head", "query", "key", "scale", "is_causal"), [4, 3, 0, 1, "sqrt", false]);
});

test("arrow keys move the head and the cell, and stop at the edges", async () => {
  const { root, act, get } = draw();
  const press = (node, key) => act(node, "keydown", { key });
  await press(root.ofClass("mha-head")[1], "Home");
  await press(root.ofClass("mha-head")[0], "ArrowLeft");
  assert.deepEqual(get("head"), [0]);
  await press(root.ofClass("mha-head")[0], "ArrowRight");
  assert.deepEqual(get("head"), [1]);
  assert.equal(document.activeElement, root.ofClass("mha-head")[1]);
  const [map] = root.ofClass("mha-map");
  assert.equal((await press(map, "ArrowDown")).prevented, true);
  await press(map, "ArrowDown");
  await press(map, "ArrowLeft");
  assert.deepEqual(get("query", "key"), [1, 0]);
  assert.equal((await press(map, "Tab")).prevented, undefined);
});

test("a click on the map and on a small head chooses it", async () => {
  const { root, act, get } = draw();
  await act(root.ofClass("mha-map")[0], "click", { clientX: 20, clientY: 80 });
  assert.deepEqual(get("query", "key"), [1, 0]);
  await act(root.ofClass("mha-small")[0], "click");
  assert.deepEqual(get("head"), [0]);
});

test("a change from Python is drawn and not sent back", async () => {
  const { model, root, saves } = draw();
  model.set("n_heads", 1); // before the head that goes with it
  model.set("query", 1);
  await Promise.resolve();
  assert.equal(root.ofClass("mha-head").length, 1);
  assert.equal(readout(root).score, "2");
  assert.equal(saves(), 0);
});

test("nothing is left behind", () => {
  const before = observers.length;
  const themes = darkPreferred.listeners.length;
  const { model, el, root, clean } = draw();
  clean();
  assert.deepEqual(
    observers.slice(before).map(({ watches }) => watches),
    [false, false],
  );
  assert.equal(darkPreferred.listeners.length, themes);
  assert.equal([...model.listeners.values()].reduce((sum, all) => sum + all.size, 0), 0);
  assert.equal(root.all((node) => node.listeners.length).length, 0);
  assert.equal(el.children.length, 0);
});
