// SoftLookup drawn on a page of Node's: numbers by hand, dragging, keys, controls, what is left behind.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import vm from "node:vm";

import { Element, darkPreferred, observers } from "./fake_dom.mjs";
import * as arrows from "../../mha/widgets/static/arrows.js";
import { fixedText } from "../../mha/widgets/static/dom.js";
import { labelLevels, labelPlaces, shortened } from "../../mha/widgets/static/labels.js";
import { scoreText, valueText, withUnit } from "../../mha/widgets/static/lookup_table.js";
import lookup, { status } from "../../mha/widgets/static/soft_lookup.js";

const source = readFileSync(new URL("../../book/_static/static-widgets.js", import.meta.url), "utf8");
const page = vm.createContext({ atob, structuredClone, console });
vm.runInContext(source, page);

const START = {
  query: [0.6, 0.8],
  key_arrows: [
    [0, 1],
    [1, 0],
    [0, -1],
    [-1, 0],
  ],
  temperature: 1,
  measure: "dot",
  chosen: "query",
  key: 0,
};
const FIXED = { values: [800, 200, 100, 500], names: ["north", "east", "south", "west"], unit: "m" };

/** The widget drawn with `state` changed. */
function draw(state = {}) {
  const start = { ...START, ...state };
  const model = new page.staticWidgets.Model({ state: { ...FIXED, ...start, _start: start } });
  let saved = 0;
  model.save_changes = () => (saved += 1);
  const el = new Element("div");
  const clean = lookup.render({ model, el });
  const root = el.children[0];
  const act = async (node, type, more) => {
    const event = node.send(type, more);
    await Promise.resolve();
    return event;
  };
  const set = async (role, value, type = "input") => {
    const [node] = root.role(role);
    node.value = value;
    await act(node, type);
  };
  const radio = (value) =>
    act(
      root.role("measure").find((one) => one.value === value),
      "change",
    );
  const [plane] = root.ofClass("mha-arrow-plane");
  const press = (key, more) => act(plane, "keydown", { key, ...more });
  const get = (name) => structuredClone(model.get(name));
  return { model, el, root, plane, clean, act, set, radio, press, get, saves: () => saved };
}

const text = (root, role) => root.role(role)[0].textContent;
const near = (found, wanted) => assert.ok(Math.abs(found - wanted) < 1e-9, `${found} is not ${wanted}`);
const nearArrow = (found, wanted) => wanted.forEach((one, i) => near(found[i], one));
const rows = (root) => root.all((node) => node.tag === "tr" && node.dataset.weight !== undefined);
const output = (root) => Number(root.role("output")[0].dataset.output);
/** Where a tip is on a plane of 100 × 100 pixels. */
const pixels = ([x, y]) => ({ clientX: 50 + (5300 / 340) * x, clientY: 50 - (5300 / 340) * y });

test("dot products, cosines, angles and directions by hand", () => {
  assert.equal(arrows.dot([1.5, 2], [2, -1]), 1);
  assert.equal(arrows.lengthOf([3, 4]), 5);
  near(arrows.cosine([2, 0], [3, 3]), Math.SQRT1_2);
  assert.deepEqual([arrows.cosine([0, 0], [1, 0]), arrows.cosine([1, 0], [0, 0])], [0, 0]);
  assert.deepEqual(
    [
      [1, 0],
      [0, 2],
      [-1, 0],
      [0, -3],
    ].map(arrows.direction),
    [0, 90, 180, 270],
  );
  assert.equal(arrows.direction([0, 0]), null);
  near(arrows.angleBetween([1, 0], [-1, -1]), 135);
  near(arrows.angleBetween([-1, -1], [2, 0]), 135);
  assert.equal(arrows.angleBetween([0, 0], [1, 0]), null);
});

test("arrows from polar numbers, to a point, and by a step keep six decimals and the disc", () => {
  assert.deepEqual(arrows.fromPolar(90, 2), [0, 2]);
  assert.deepEqual(arrows.fromPolar(225, 1), [-0.707107, -0.707107]);
  assert.equal(Object.is(arrows.fromPolar(270, 1)[0], 0), true); // −0 would be written "−0"
  assert.deepEqual(arrows.arrowTo([0.123, -1.999]), [0.12, -2]);
  assert.deepEqual(arrows.arrowTo([30, 40]), [1.8, 2.4]);
  assert.deepEqual(arrows.stepped([0.7, 0], 0, 0.1), [0.8, 0]);
  assert.deepEqual(arrows.stepped([0, 2.95], 1, 0.1), [0, 3]);
  assert.deepEqual(arrows.stepped([1.8, 2.4], 0, 0.1), [1.8, 2.4]);
  assert.deepEqual(arrows.stepped([1.8, -2.35], 1, -0.1), [1.8, -2.4]);
});

test("a soft lookup by hand: scores 2 and 3, logits 4 and 6", () => {
  const state = {
    query: [1.5, 2],
    keys: [
      [0, 1],
      [2, 0],
    ],
    values: [10, 40],
    temperature: 0.5,
  };
  const dot = arrows.lookUp({ ...state, measure: "dot" });
  assert.deepEqual(
    [dot.scores, dot.logits],
    [
      [2, 3],
      [4, 6],
    ],
  );
  near(dot.weights[1], 1 / (1 + Math.exp(-2)));
  near(dot.output, 10 + 30 / (1 + Math.exp(-2)));
  nearArrow(arrows.lookUp({ ...state, measure: "cosine" }).logits, [1.6, 1.2]);
});

test("numbers read as they should", () => {
  assert.deepEqual(
    [0.005, -0.004, -1.236, 12].map((one) => fixedText(one, 2)),
    ["0.01", "0.00", "−1.24", "12.00"],
  );
  assert.deepEqual([0.6, -0.00001, -9.5, 59.08].map(scoreText), ["0.600", "0.000", "−9.500", "59.1"]);
  assert.deepEqual([800, -3, 7.25, 488.366].map(valueText), ["800", "−3", "7.25", "488"]);
  assert.deepEqual([withUnit(5, "m"), withUnit(5, "")], ["5\u00a0m", "5"]);
});

test("labels stay apart, inside the drawing, and off the tips", () => {
  const tips = [
    [0, 1],
    [0.05, 1],
    [0, 0.95],
    [3, 0],
    [0, 0],
    [0.05, 0.9],
  ];
  const plane = { side: 340, place: ([x, y]) => [170 + 53 * x, 170 - 53 * y] };
  const places = labelPlaces(tips, Array(6).fill(80), plane);
  places.forEach(([x, y], i) => {
    assert.ok(x >= 40 && x <= 300 && y >= 8 && y <= 332);
    for (const [u, v] of places.slice(0, i)) assert.ok(Math.abs(x - u) >= 79.9 || Math.abs(y - v) >= 15.9);
  });
  const [[x, y]] = labelPlaces([[1, 0]], [80], plane);
  assert.ok(x > 170 + 53 + 40 && y === 170); // beyond its tip
  assert.deepEqual(labelLevels([100, 130, 300], [80, 80, 80]), [0, 1, 0]);
});

test("the page shows the numbers of the state", () => {
  const { root, saves } = draw();
  const e = [0.8, 0.6, -0.8, -0.6].map(Math.exp);
  const sum = e.reduce((all, one) => all + one, 0);
  rows(root).forEach((row, j) => {
    near(row.dataset.score, [0.8, 0.6, -0.8, -0.6][j]);
    near(row.dataset.weight, e[j] / sum);
  });
  near(output(root), e.reduce((all, one, j) => all + one * FIXED.values[j], 0) / sum);
  const texts = [
    "north0.8000.8000.441800",
    "east0.6000.6000.361200",
    "south−0.800−0.8000.089100",
    "west−0.600−0.6000.109500",
  ];
  assert.deepEqual(
    rows(root).map((row) => row.textContent),
    texts,
  );
  assert.equal(
    root.ofClass("mha-lookup-sum")[0].textContent,
    "output = 0.441 × 800 + 0.361 × 200 + 0.089 × 100 + 0.109 × 500 = 488\u00a0m",
  );
  assert.deepEqual(
    root.ofClass("mha-arrow-name").map((label) => label.textContent),
    ["north 0.441", "east 0.361", "south 0.089", "west 0.109", "query"],
  );
  const radii = root.ofClass("mha-lookup-dot").map((dot) => Number(dot.getAttribute("r")));
  near((radii[0] / radii[1]) ** 2, e[0] / e[1]); // areas
  assert.equal(
    text(root, "status"),
    "The best key alone gives 800\u00a0m, the mean of the values 400\u00a0m. Here north weighs most, 0.441.",
  );
  assert.equal(saves(), 0);
});

test("one score is taken apart: lengths and angle, or the angle alone", async () => {
  const { root, set, radio, get } = draw({
    query: [0, 2],
    key_arrows: [
      [0, 1],
      [3, 0],
      [-1, -1],
      [0, 0],
    ],
  });
  const notes = () =>
    root
      .ofClass("mha-lookup-note")
      .filter((node) => !node.hidden)
      .map((node) => node.textContent);
  await set("key", 2, "change");
  assert.equal(text(root, "score"), "−2.000");
  near(root.role("score")[0].dataset.angle, 135);
  assert.deepEqual(notes(), [
    "= |q| · |k| · cos 135.0° = 2.00 · 1.41 · (−0.707)",
    "= 0.00 · (−1.00) + 2.00 · (−1.00)",
  ]);
  await radio("cosine");
  assert.equal(get("measure"), "cosine");
  near(root.role("score")[0].dataset.score, -Math.SQRT1_2);
  const hidden = root.ofClass("mha-lookup-pair")[0].all((node) => node.hidden);
  assert.equal(hidden.length, 3); // two places for the lengths, and the sentence on no angle
  assert.match(notes()[0], /cos 135.0° = .*\(−0.707\); the lengths drop out$/);
  assert.equal(notes()[1], "= (0.00 · (−1.00) + 2.00 · (−1.00)) ÷ (2.00 · 1.41)");
  await set("key", 3, "change");
  assert.deepEqual(notes(), ["An arrow of length 0 points nowhere: there is no angle."]);
  assert.equal(text(root, "score"), "0.000");
});

test("the status says one key, mean, tie, and what a length does", async () => {
  const { root, set, radio, model } = draw({
    query: [0, 1],
    key_arrows: [
      [0, 1],
      [1, 0],
      [0, -1],
      [-1, 0],
    ],
  });
  const said = () => text(root, "status").replaceAll("\u00a0", " ");
  await set("temperature", -100);
  assert.equal(said(), "north takes 1.000 of the weight. The best key alone gives 800 m.");
  await set("temperature", 100);
  await set("length", 0.1);
  assert.equal(said(), "All weights lie within 0.002 of 1/4. The plain mean of the values is 400 m.");
  await set("length", 0);
  assert.equal(said(), "Every weight is 1/4: the output is the mean of the values, 400 m.");
  await radio("cosine");
  assert.match(said(), / query has length 0, so it has no angle and no cosine: the score is taken as 0\.$/);
  model.set({ query: [0.6, 0.6], temperature: 0.2, measure: "dot" });
  await Promise.resolve();
  assert.equal(said(), "No key alone is the best: north and east weigh most, 0.499 each.");
  model.set({
    query: [0.6, 0.8],
    temperature: 1,
    key_arrows: [
      [0, 1],
      [2, 0],
      [0, -1],
      [-1, 0],
    ],
  });
  await Promise.resolve();
  assert.match(
    said(),
    /east weighs most, 0\.507\. The query points more nearly to north: east wins by its length\.$/,
  );
  await radio("cosine");
  assert.match(said(), /north weighs most, 0\.441\.$/);
});

test("weights within 0.01 of 1/n are nearly equal, 0.95 of the weight is nearly all", () => {
  const of = (...weights) => {
    const keys = weights.map(() => [0, 1]);
    const all = { weights };
    const names = weights.map((_, j) => "abcd"[j]);
    return status({ keys, all, names, values: weights, unit: "", measure: "dot", query: [0, 1], arrows: [] });
  };
  assert.match(of(0.2599, 0.2451, 0.245, 0.25), /^All weights lie within 0\.010 of/);
  assert.match(of(0.2611, 0.245, 0.2439, 0.25), /^The best key alone gives/);
  assert.match(of(0.95, 0.03, 0.02), /^a takes 0.950 of the weight. The best key alone gives 0.950\./);
  assert.match(of(0.949, 0.031, 0.02), /^The best key alone gives/);
});

test("a tip is dragged, within the disc, and chosen by that", async () => {
  const { root, plane, act, get, saves } = draw();
  const grip = root.ofClass("mha-arrow-grip").find((node) => node.dataset.arrow === "1");
  const { clientX, clientY } = pixels([1, 0]);
  const event = await act(grip, "pointerdown", { pointerId: 7, button: 0, clientX: clientX + 1, clientY });
  assert.equal(event.prevented, true);
  assert.equal(plane.captured, 7);
  assert.equal(document.activeElement, plane);
  assert.deepEqual([get("chosen"), get("key")], [1, 1]);
  assert.deepEqual(get("key_arrows")[1], [1, 0]); // it does not jump to where it was pressed
  const to = pixels([-1.5, 0.5]);
  await act(plane, "pointermove", { pointerId: 8, ...to }); // another finger
  assert.deepEqual(get("key_arrows")[1], [1, 0]);
  await act(plane, "pointermove", { pointerId: 7, clientX: to.clientX + 1, clientY: to.clientY });
  assert.deepEqual(get("key_arrows"), [
    [0, 1],
    [-1.5, 0.5],
    [0, -1],
    [-1, 0],
  ]);
  near(rows(root)[1].dataset.score, -0.9 + 0.4);
  await act(plane, "pointermove", { pointerId: 7, clientX: -1e4, clientY: 50 });
  nearArrow(get("key_arrows")[1], [-3, 0]);
  await act(plane, "pointerup", { pointerId: 7 });
  const before = saves();
  await act(plane, "pointermove", { pointerId: 7, ...to });
  nearArrow(get("key_arrows")[1], [-3, 0]);
  assert.equal(saves(), before);
});

test("of tips that lie on each other the chosen one is dragged; elsewhere nothing is", async () => {
  const down = (act, node, at, button = 0) =>
    act(node, "pointerdown", { pointerId: 1, button, ...pixels(at) });
  for (const [chosen, under] of [
    ["query", 0],
    [0, 4],
  ]) {
    const { root, plane, act, get } = draw({ query: [0, 1], chosen });
    await down(act, root.ofClass("mha-arrow-grip")[under], [0, 1]);
    await act(plane, "pointermove", { pointerId: 1, ...pixels([0.5, 1]) });
    const moved = chosen === "query" ? [0.5, 1] : [0, 1];
    assert.deepEqual([get("query"), get("key_arrows")[0]], [moved, [0.5 - moved[0], 1]]);
  }
  const { root, plane, act, get, saves } = draw();
  await down(act, plane, [2, 2]);
  await down(act, root.ofClass("mha-arrow-grip")[0], [0, 1], 2); // another button
  await act(plane, "pointermove", { pointerId: 1, ...pixels([1, 1]) });
  assert.equal(saves(), 0);
  await down(act, root.ofClass("mha-arrow-grip")[0], [0, 1]);
  await act(plane, "pointercancel", { pointerId: 1 });
  await act(plane, "pointermove", { pointerId: 1, ...pixels([1, 1]) });
  assert.deepEqual(get("key_arrows"), START.key_arrows);
});

test("the arrow keys move the chosen arrow by 0.1, with Shift by 0.01", async () => {
  const { press, set, get } = draw();
  assert.equal((await press("ArrowRight")).prevented, true);
  await press("ArrowDown");
  await press("ArrowUp", { shiftKey: true });
  assert.deepEqual(get("query"), [0.7, 0.71]);
  await set("arrow", 3, "change");
  assert.deepEqual([get("chosen"), get("key")], [3, 3]);
  await press("ArrowLeft");
  assert.deepEqual(get("key_arrows")[3], [-1.1, 0]);
  assert.deepEqual(get("query"), [0.7, 0.71]);
  assert.equal((await press("Tab")).prevented, undefined);
  assert.equal((await press("ArrowLeft", { ctrlKey: true })).prevented, undefined);
  await set("arrow", "query", "change");
  assert.deepEqual([get("chosen"), get("key")], ["query", 3]);
});

test("direction and length are set apart; length 0 does not forget the direction", async () => {
  const { model, root, set, get } = draw();
  const write = model.set.bind(model);
  // as Backbone, which says nothing where a list is equal to the old one
  model.set = (name, value) => String(value) !== String(model.get(name)) && write(name, value);
  await set("direction", 120);
  nearArrow(get("query"), [-0.5, 0.866025]);
  await set("length", 2);
  assert.ok(Math.abs(arrows.direction(get("query")) - 120) < 1e-4 && get("query")[0] < -0.99);
  await set("length", 0);
  assert.deepEqual(get("query"), [0, 0]);
  assert.equal(text(root, "direction-out"), "120°");
  await set("direction", 270);
  assert.equal(text(root, "direction-out"), "270°");
  await set("length", 1);
  nearArrow(get("query"), [0, -1]);
  await set("direction", 360); // the slider stays where the reader moved it
  nearArrow(get("query"), [1, 0]);
  assert.deepEqual([root.role("direction")[0].value, text(root, "direction-out")], ["360", "0°"]);
  model.set("query", [1, -0.001]);
  await Promise.resolve();
  assert.equal(text(root, "direction-out"), "0°");
});

test("the temperature's slider is logarithmic, 1 in its middle", async () => {
  const { root, set, get } = draw();
  for (const [position, temperature, shown] of [
    [-100, 0.05, "0.05"],
    [0, 1, "1"],
    [50, 4.47, "4.47"],
    [100, 20, "20"],
  ]) {
    await set("temperature", position);
    assert.equal(get("temperature"), temperature);
    assert.equal(text(root, "temperature-out"), shown);
    assert.ok(Math.abs(root.role("temperature")[0].value - position) < 0.5);
  }
  near(rows(root)[0].dataset.logit, 0.8 / 20);
});

test("start again puts everything back", async () => {
  const { root, act, set, radio, press, get } = draw({ chosen: 1, key: 2 });
  await press("ArrowUp");
  await set("arrow", "query", "change");
  await press("ArrowUp");
  await set("temperature", 30);
  await radio("cosine");
  assert.notDeepEqual(get("key_arrows"), START.key_arrows);
  await act(root.role("restart")[0], "click");
  for (const name of ["query", "key_arrows", "temperature", "measure"])
    assert.deepEqual(get(name), START[name]);
  assert.deepEqual([get("chosen"), get("key")], [1, 2]);
});

test("an act is said, a change from Python is drawn and not sent back", async () => {
  const { model, root, press, saves } = draw();
  await press("ArrowRight");
  await new Promise((resolve) => setTimeout(resolve, 600));
  const [live] = root.ofClass("mha-live");
  assert.match(live.textContent, /^query at \(0\.70, 0\.80\): output 478\sm, north weighs most, 0\.429$/);
  const before = saves();
  model.set("names", ["a", "b", "c", "d"]);
  await Promise.resolve();
  model.set("values", [1, 1, 1, 1]);
  model.set("unit", "");
  await Promise.resolve();
  assert.deepEqual(
    root.role("arrow")[0].children.map((option) => option.textContent),
    ["query", "a", "b", "c", "d"],
  );
  assert.equal(root.ofClass("mha-arrow-grip").length, 5);
  assert.deepEqual(
    rows(root).map((row) => row.children.at(-1).textContent),
    ["1", "1", "1", "1"],
  );
  assert.equal(Number(text(root, "output")), 1); // "1" or "1.00", without the unit
  assert.equal(saves(), before);
});

test("nothing is left behind", () => {
  const before = observers.length;
  const themes = darkPreferred.listeners.length;
  const { model, el, root, clean } = draw();
  assert.ok(root.all((node) => node.listeners.length).length > 5);
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
  assert.equal(root.listeners.length, 0);
  assert.equal(el.children.length, 0);
});

test("turning an arrow again and again never makes it longer than Python takes", () => {
  for (const start of [0.05, 1.25, 3]) {
    let arrow = arrows.fromPolar(87, start);
    for (let degrees = 86; degrees >= -360; degrees -= 1) {
      arrow = arrows.fromPolar(degrees, arrows.lengthOf(arrow));
      assert.ok(arrows.lengthOf(arrow) <= 3 + 1e-6, `${arrow} at ${degrees}`); // soft_lookup.py allows 2e-6
    }
  }
});

test("a key that wins with negative scores wins by being shorter", () => {
  const keys = [
    [0, -0.1],
    [1, -0.2],
  ];
  const all = arrows.lookUp({ query: [0, 1], keys, values: [1, 2], temperature: 0.1, measure: "dot" });
  const said = status({
    keys,
    all,
    names: ["a", "b"],
    values: [1, 2],
    unit: "",
    measure: "dot",
    query: [0, 1],
    arrows: [],
  });
  assert.match(said, /points more nearly to b: a wins by being shorter\.$/);
});

test("what only rounding leaves of a sum is 0", () => {
  const values = [0.1, 0.2, -0.3];
  const keys = values.map(() => [1, 0]);
  const { output } = arrows.lookUp({ query: [1, 0], keys, values, temperature: 1, measure: "dot" });
  assert.equal(output, 0);
  assert.equal(arrows.cleared([1, 2, -3 + 2 ** -30]), 2 ** -30);
  assert.equal(arrows.cleared([1, -1 + 2 ** -50]), 0);
});

test("large values are written short, and equal values still have an axis", () => {
  assert.deepEqual([1e9, -123456.789, 99999, -800].map(valueText), ["1B", "−123K", "99999", "−800"]);
  const { root } = draw({ values: [5, 5, 5, 5] });
  const dots = root.ofClass("mha-lookup-dot").map((dot) => Number(dot.getAttribute("cx")));
  assert.ok(dots.every((x) => x === 165), dots); // the middle
});

test("an emoji is one letter of a name", () => {
  assert.equal(shortened("abcdefghijkl😀xyz"), "abcdefghijkl😀…");
});

test("choosing another key, another measure or temperature is said", async () => {
  const { root, set, radio } = draw();
  const heard = async () => {
    await new Promise((resolve) => setTimeout(resolve, 550));
    return root.ofClass("mha-live")[0].textContent.replaceAll("\u00a0", " ");
  };
  await set("key", 2, "change");
  assert.match(await heard(), /^score of south −0\.800; query at/);
  await radio("cosine");
  assert.match(await heard(), /^cosine; query at/);
  await set("temperature", 100);
  assert.match(await heard(), /^temperature 20; query at/);
});
