// SoftmaxJacobian drawn on a page of Node's: numbers by hand and golden, words, keys, buttons, what is left behind.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import vm from "node:vm";

import { Element, darkPreferred, observers } from "./fake_dom.mjs";
import { cellByKey } from "../../mha/widgets/static/dom.js";
import { logitByKey, raised } from "../../mha/widgets/static/jacobian_logits.js";
import {
  centralDifference,
  largestEigenvalue,
  softmaxSlopes,
} from "../../mha/widgets/static/jacobian_maths.js";
import * as words from "../../mha/widgets/static/jacobian_words.js";
import jacobian from "../../mha/widgets/static/softmax_jacobian.js";

const source = readFileSync(new URL("../../book/_static/static-widgets.js", import.meta.url), "utf8");
const page = vm.createContext({ atob, structuredClone, console });
vm.runInContext(source, page);
const golden = JSON.parse(readFileSync(new URL("golden.json", import.meta.url), "utf8")).jacobians;

const START = { logits: [2, 1, 0, -1], temperature: 1, cell: [0, 0] };
const NAMES = ["a", "b", "c", "d"];

/** The widget drawn with `state` changed. */
function draw(state = {}, names = NAMES) {
  const start = { ...START, ...state };
  const model = new page.staticWidgets.Model({ state: { names, ...start, _start: start } });
  let saved = 0;
  model.save_changes = () => (saved += 1);
  const el = new Element("div");
  const clean = jacobian.render({ model, el });
  const root = el.children[0];
  const act = async (node, type, more) => {
    const event = node.send(type, more);
    await Promise.resolve();
    return event;
  };
  const slide = async (node, value) => {
    node.value = value;
    await act(node, "input");
  };
  const click = (role) => act(root.role(role)[0], "click");
  const get = (name) => structuredClone(model.get(name));
  return { model, el, root, clean, act, slide, click, get, saves: () => saved };
}

const text = (root, role) => root.role(role)[0].textContent;
const near = (found, wanted, off = 1e-9) =>
  assert.ok(Math.abs(found - wanted) <= off, `${found} is not ${wanted}`);
const nearAll = (found, wanted, off) => {
  assert.equal(found.length, wanted.length);
  wanted.forEach((one, i) => near(found[i], one, off));
};
const cells = (root) => root.ofClass("mha-jac-cell");
const said = (logits, temperature = 1, names = NAMES) =>
  words.status({ names, all: softmaxSlopes(logits, temperature) });

test("two equal logits by hand: slopes of ±1/4, norm and eigenvalue 1/2", () => {
  const { p, rest, slopes, norm, eigenvalue, bound } = softmaxSlopes([3, 3], 7);
  assert.deepEqual([...p, ...rest], [0.5, 0.5, 0.5, 0.5]);
  assert.deepEqual([...slopes], [0.25, -0.25, -0.25, 0.25]);
  nearAll([norm, eigenvalue, bound], [0.5, 0.5, 0.5], 1e-15);
});

test("weights 1/2, 1/4, 1/4 by hand, logits before a division by 2", () => {
  const { z, p, slopes, norm, bound } = softmaxSlopes([2 * Math.LN2, 0, 0], 2);
  nearAll(z, [Math.LN2, 0, 0], 0);
  nearAll(p, [0.5, 0.25, 0.25], 1e-15);
  nearAll(
    slopes,
    [4, -2, -2, -2, 3, -1, -2, -1, 3].map((one) => one / 16),
    1e-15,
  );
  near(norm, Math.sqrt(52) / 16, 1e-15);
  near(bound, 0.5, 1e-15);
});

golden.forEach(({ logits, temperature, weights, slopes, norm, eigenvalue }) => {
  test(`the reference agrees: ${logits.length} logits, temperature ${temperature}`, () => {
    const found = softmaxSlopes(logits, temperature);
    nearAll(found.p, weights);
    nearAll(found.slopes, slopes);
    near(found.norm, norm);
    near(found.eigenvalue, eigenvalue);
    assert.ok(found.eigenvalue <= found.bound + 1e-12 && found.bound <= 0.5);
    for (let i = 0; i < logits.length; i++) {
      const row = found.slopes.slice(i * logits.length, (i + 1) * logits.length);
      near(
        row.reduce((sum, one) => sum + one, 0),
        0,
        1e-15,
      );
      logits.forEach((_, k) => near(centralDifference(found.z, i, k), row[k]));
    }
  });
});

test("the largest eigenvalue of other matrices: by hand, equal, negative", () => {
  near(largestEigenvalue([2, 1, 1, 2], 2), 3, 1e-15);
  near(largestEigenvalue([0, 2, 0, 2, 0, 0, 0, 0, -7], 3), 2, 1e-15);
  near(largestEigenvalue([-1, 0, 0, -4], 2), -1, 0);
  near(largestEigenvalue([0, 0, 0, 0], 2), 0, 0);
});

test("slopes keep their digits where a weight is nearly 1", () => {
  const { rest, slopes, norm, eigenvalue, bound } = softmaxSlopes([10, -10, -10], 0.5); // e^−40 each
  const tiny = Math.exp(-40);
  for (const [found, wanted] of [
    [rest[0], 2],
    [slopes[0], 2],
    [slopes[1], -1],
    [slopes[4], 1],
    [norm, Math.sqrt(10)],
    [eigenvalue, 3],
    [bound, 4],
  ])
    near(found / tiny, wanted, 1e-9);
});

test("numbers read as they should", () => {
  const shares = [
    [0.5, 0.5],
    [0.9994, 0.0006],
    [1, 1e-17],
    [1e-17, 1],
    [0.0005, 0.9995],
  ];
  assert.deepEqual(
    shares.map((one) => words.shareText(...one)),
    ["0.500", "0.999", ">0.999", "<0.001", "0.001"],
  );
  assert.deepEqual([0.22928869, -0.25, 0.00117109, -3.4e-57, 0].map(words.slopeText), [
    "0.2293",
    "−0.2500",
    "0.00117",
    "−3.40e−57",
    "0",
  ]);
  assert.deepEqual([-0.0005, 0.0004, -1e-300, 0].map(words.cellText), ["−0.001", "≈0", "≈0", "≈0"]);
  assert.deepEqual(
    [words.factorText(0.6439, 0.3561), words.factorText(1, 2.06e-9)],
    ["0.6439", "(1 − 2.06e−9)"],
  );
});

test("the sentence says what is the case, at the extremes too", () => {
  assert.equal(
    said([2, 1, 0, -1]),
    "‘a’ weighs most, 0.644. The largest slope by z is 0.2293. The norm of J is 0.3837.",
  );
  assert.equal(
    said([3, 3, 3, 3]),
    "All weights are 1/4: a slope is 0.1875 by the own z and −0.0625 by another. The norm of J is 0.4330.",
  );
  assert.equal(
    said([5, -5, 5, -5]),
    "‘a’ and ‘c’ tie with 0.500 each: among them a slope is 0.2500 by the own z and −0.2500 by another. " +
      "The rest has almost no weight, and still these slopes stay. The norm of J is 0.5000.",
  );
  assert.equal(
    said([1, 1, 1, 0]),
    "‘a’, ‘b’ and ‘c’ tie with 0.297 each: among them a slope is 0.2088 by the own z and −0.0882 by another. " +
      "The norm of J is 0.4395.",
  );
  assert.equal(
    said([10, -10, -10, -10], 0.5),
    "‘a’ takes all of the weight but 1.27e−17: saturated, no slope by z is larger than 1.27e−17. The norm of J is 1.80e−17.",
  );
  assert.equal(
    said([-10, 10], 0.05, ["no", "yes"]),
    "‘yes’ takes all of the weight but 1.92e−174: saturated, no slope by z is larger than 1.92e−174. " +
      "The norm of J is 3.83e−174.",
  );
  assert.match(said([0.01, 0, -9, -9]), /^‘a’ weighs most, 0\.502\. The largest slope by z is 0\.2500\./);
});

test("what a rise of z does, and whether the measured slope agrees", () => {
  const state = (cell, logits = [2, 1, 0, -1], temperature = 1) => ({
    names: NAMES,
    cell,
    all: softmaxSlopes(logits, temperature),
  });
  assert.equal(
    words.effect(state([1, 1])),
    "Raise z of ‘b’ a little: its own weight rises by about 0.1808 times as much.",
  );
  assert.equal(
    words.effect(state([0, 1])),
    "Raise z of ‘b’ a little: the weight of ‘a’ falls by about 0.1525 times as much.",
  );
  assert.match(
    words.effect(state([1, 2], [10, -10, -10, -10], 0.05)),
    /^Raise z of ‘c’ a little: the weight of ‘b’ moves by less than a double can hold\.$/,
  );
  assert.equal(words.agreement(-0.25, -0.25), "They are equal.");
  assert.equal(words.agreement(-0.25, -0.25 + 3e-10), "They differ by 3e−10.");
  assert.match(words.agreement(-3e-57, 0), /^So small a slope is lost in the rounding/);
  assert.match(words.agreement(0, 0), /^Both are 0 in doubles, the true slope is not\.$/);
});

test("the page shows the numbers of the state", () => {
  const { root, saves } = draw({ cell: [0, 1] });
  const { p, slopes } = softmaxSlopes(START.logits, 1);
  assert.deepEqual(
    root.role("weight").map((node) => node.textContent),
    ["0.644", "0.237", "0.087", "0.032"],
  );
  root.role("weight").forEach((node, k) => near(node.dataset.weight, p[k], 0));
  assert.deepEqual(
    root.role("logit-out").map((node) => node.textContent),
    ["2.00", "1.00", "0.00", "−1.00"],
  );
  cells(root).forEach((cell, place) => {
    near(cell.dataset.slope, slopes[place], 0);
    const share = Number(cell.style.values["--share"].replace("%", ""));
    near(share, 400 * Math.abs(slopes[place]), 0.05 + 1e-9);
  });
  assert.deepEqual(
    cells(root)
      .slice(0, 6)
      .map((cell) => cell.textContent),
    ["0.229", "−0.153", "−0.056", "−0.021", "−0.153", "0.181"],
  );
  const chosen = cells(root).filter((cell) => cell.getAttribute("aria-selected") === "true");
  assert.deepEqual(chosen, [cells(root)[1]]);
  assert.deepEqual(
    cells(root).map((cell) => cell.getAttribute("tabindex")),
    ["-1", "0", ...Array(14).fill("-1")],
  );
  const lines = root.ofClass("mha-jac-maths").map((line) => line.textContent);
  assert.deepEqual(lines, [
    "∂pa / ∂zb = −pa pb = −0.6439 · 0.2369 = −0.15253222",
    "(pa at zb + h, less pa at zb − h) / 2h = −0.15253222",
    "∂pa / ∂logitb = −0.1525 / 1 = −0.1525",
  ]);
  assert.deepEqual(
    [text(root, "norm"), text(root, "eigenvalue"), text(root, "bound")],
    ["0.3837", "0.3630", "0.4586"],
  );
  assert.equal(text(root, "factor"), "τ is 1 now: z is the logit itself.");
  assert.match(text(root, "status"), /^‘a’ weighs most/);
  assert.equal(saves(), 0);
});

test("a logit is moved, its weight and all slopes with it", async () => {
  const { root, slide, get, saves } = draw();
  await slide(root.role("logit")[1], 2);
  assert.deepEqual(get("logits"), [2, 2, 0, -1]);
  assert.match(text(root, "status"), /^‘a’ and ‘b’ tie with 0\.458 each/);
  assert.equal(cells(root)[0].style.values["--share"], "99.3%");
  near(cells(root)[1].dataset.slope, -(root.role("weight")[0].dataset.weight ** 2), 1e-15);
  assert.equal(root.role("logit")[1].getAttribute("aria-valuetext"), "2.00, weight 0.458");
  near(root.role("logit")[1].style.values["--at"], 0.6);
  assert.equal(saves(), 1);
});

test("keys move a logit by 0.1, with Shift by 0.01, by pages of 1, and to the ends", async () => {
  const event = (key, more = {}) => ({ key, preventDefault() {}, ...more });
  const after = (key, now, more) => logitByKey(event(key, more), now);
  assert.deepEqual(
    ["ArrowLeft", "ArrowDown", "ArrowRight", "ArrowUp", "PageUp", "PageDown", "Home", "End"].map((key) =>
      after(key, 0.2),
    ),
    [0.1, 0.1, 0.3, 0.3, 1.2, -0.8, -10, 10],
  );
  assert.equal(after("ArrowUp", 0.3333, { shiftKey: true }), 0.3433);
  assert.equal(after("PageUp", 9.5), 10);
  assert.ok(Object.is(after("ArrowUp", -0.1), 0)); // −0 would be written "−0"
  for (const more of [{ ctrlKey: true }, { altKey: true }, { metaKey: true }])
    assert.equal(after("ArrowUp", 1, more), null);
  assert.equal(after("Tab", 1), null);

  const { root, act, get, saves } = draw({ logits: [10, 0, 0, 0] });
  assert.equal((await act(root.role("logit")[2], "keydown", { key: "PageDown" })).prevented, true);
  assert.deepEqual(get("logits"), [10, 0, -1, 0]);
  await act(root.role("logit")[0], "keydown", { key: "End" }); // it is there
  assert.equal(saves(), 1);
});

test("a cell is chosen by a click and by keys, and takes the focus", async () => {
  const move = (key, cell) => cellByKey({ key, preventDefault() {} }, cell, 4);
  assert.deepEqual(
    ["ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "Home", "End", "PageUp", "PageDown"].map((key) =>
      move(key, [1, 2]),
    ),
    [
      [0, 2],
      [2, 2],
      [1, 1],
      [1, 3],
      [1, 0],
      [1, 3],
      [0, 2],
      [3, 2],
    ],
  );
  assert.deepEqual(
    [move("ArrowUp", [0, 0]), move("ArrowRight", [3, 3])],
    [
      [0, 0],
      [3, 3],
    ],
  );
  const { root, act, get, saves } = draw();
  await act(cells(root)[6], "click");
  assert.deepEqual(get("cell"), [1, 2]);
  assert.match(text(root, "effect"), /z of ‘c’ a little: the weight of ‘b’ falls/);
  await act(cells(root)[6], "keydown", { key: "ArrowDown" });
  assert.deepEqual(get("cell"), [2, 2]);
  assert.equal(document.activeElement, cells(root)[10]);
  assert.match(
    root.ofClass("mha-jac-maths")[0].textContent,
    /^∂pc \/ ∂zc = pc \(1 − pc\) = 0\.0871 · 0\.9129 = 0\.0795/,
  );
  assert.equal(saves(), 2);
  await act(cells(root)[10], "click");
  assert.equal(saves(), 2);
});

test("the temperature divides the logits, and the slope by the logit itself is J / τ", async () => {
  const { root, slide, get } = draw({ cell: [0, 1] });
  for (const [position, temperature, factor] of [
    [-100, 0.05, "20.0"],
    [100, 20, "0.0500"],
    [-23, 0.502, "1.99"],
  ]) {
    await slide(root.role("temperature")[0], position);
    assert.equal(get("temperature"), temperature);
    assert.equal(text(root, "temperature-out"), String(temperature));
    const { slopes } = softmaxSlopes(START.logits, temperature);
    near(cells(root)[1].dataset.slope, slopes[1], 0);
    near(root.role("readout")[0].dataset.byLogit, slopes[1] / temperature, 0);
    assert.equal(text(root, "by-logit"), words.slopeText(slopes[1] / temperature));
    assert.ok(text(root, "factor").endsWith(`multiplied by 1/τ = ${factor}.`));
  }
});

test("buttons: a tie of the two heaviest, one that dominates, all equal, and back", async () => {
  const { root, click, slide, get } = draw({ logits: [-1, 1, 0, 3] });
  await slide(root.role("temperature")[0], 60);
  await click("tie");
  assert.deepEqual([get("logits"), get("temperature"), get("cell")], [[-5, 5, -5, 5], 1, [1, 3]]);
  assert.equal(cells(root)[7].textContent, "−0.250");
  await click("dominates");
  assert.deepEqual(
    [get("logits"), get("cell")],
    [
      [-5, 5, -5, -5],
      [1, 1],
    ],
  );
  assert.match(text(root, "status"), /saturated/);
  assert.ok(cells(root).every((cell) => cell.textContent === "≈0"));
  await click("equal");
  assert.deepEqual(get("logits"), [0, 0, 0, 0]);
  assert.match(text(root, "status"), /^All weights are 1\/4/);
  await click("restart");
  assert.deepEqual([get("logits"), get("temperature"), get("cell")], [[-1, 1, 0, 3], 1, [0, 0]]);
  assert.deepEqual(raised([0.2, 0.4, 0.4], 1), { chosen: [1], logits: [-5, 5, -5] }); // the first in order
});

test("an act is said, a change from Python is drawn and not sent back", async () => {
  const { model, root, act, slide, click, saves } = draw();
  const heard = async () => {
    await new Promise((resolve) => setTimeout(resolve, 550));
    return root.ofClass("mha-live")[0].textContent;
  };
  await slide(root.role("logit")[0], 1.5);
  assert.match(await heard(), /^Logit of ‘a’ 1\.50\. ‘a’ weighs most, 0\.523\. The largest slope by z/);
  await slide(root.role("temperature")[0], 100);
  assert.match(await heard(), /^Temperature 20\. ‘a’ weighs most, 0\.264\./);
  await act(cells(root)[4], "click");
  assert.match(await heard(), /^Raise z of ‘a’ a little: the weight of ‘b’ falls/);
  await click("equal");
  assert.match(await heard(), /^Temperature 1\. All weights are 1\/4/);
  const before = saves();
  model.set("names", ["w", "x", "y", "z"]);
  model.set("logits", [0, 0, 9, 9]);
  await Promise.resolve();
  assert.deepEqual(
    root.ofClass("mha-jac-name").map((label) => label.textContent),
    ["w", "x", "y", "z"],
  );
  for (const part of ["rowheader", "columnheader"])
    assert.equal(
      root
        .ofClass(`mha-jac-${part}`)
        .map((head) => head.textContent)
        .join(""),
      "wxyz",
    );
  assert.match(text(root, "status"), /^‘y’ and ‘z’ tie/);
  assert.match(root.ofClass("mha-jac-maths")[0].textContent, /^∂px \/ ∂zw = −px pw = /);
  assert.equal(saves(), before);
  assert.equal(cells(root).filter((cell) => cell.getAttribute("tabindex") === "0").length, 1);
});

test("more than six logits keep their numbers out of sight, not out of reach", () => {
  const many = (count) => {
    const names = Array.from({ length: count }, (_, i) => `name ${i}`.slice(0, 8));
    return draw({ logits: names.map((_, i) => i / 2) }, names).root;
  };
  for (const [count, hidden] of [
    [6, null],
    [7, ""],
    [12, ""],
  ]) {
    const root = many(count);
    assert.equal(root.ofClass("mha-jac-map")[0].getAttribute("data-many"), hidden);
    assert.equal(cells(root).length, count ** 2);
    assert.match(cells(root)[0].textContent, /^≈0|0\.\d{3}$/);
  }
});

test("nothing is left behind", () => {
  const before = observers.length;
  const themes = darkPreferred.listeners.length;
  const { model, el, root, clean } = draw();
  assert.ok(root.all((node) => node.listeners.length).length > 20);
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
