// MaskPainter drawn on a page of Node's: golden readings, rules, words, keys, brush, what is left behind.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";
import vm from "node:vm";

import { Element, darkPreferred, observers } from "./fake_dom.mjs";
import { decodeFloat16 } from "../../mha/widgets/static/attention.js";
import painter from "../../mha/widgets/static/mask_painter.js";
import { cellPaint } from "../../mha/widgets/static/painter_colours.js";
import { inverted, isCausal, maskFacts, readings, ruleMask } from "../../mha/widgets/static/painter_maths.js";
import * as words from "../../mha/widgets/static/painter_words.js";

const source = readFileSync(new URL("../../book/_static/static-widgets.js", import.meta.url), "utf8");
const page = vm.createContext({ atob, structuredClone, console });
vm.runInContext(source, page);
const golden = JSON.parse(readFileSync(new URL("golden.json", import.meta.url), "utf8")).painted;

const view = (hex) => new DataView(Uint8Array.from(hex.match(/../g), (two) => parseInt(two, 16)).buffer);
const LOGITS = new Float64Array(9); // all 0: a weight is one over the number of keys seen
const TOKENS = ["a", "b", "a"];
const CAUSAL = [1, 0, 0, 1, 1, 0, 1, 1, 1];
const table = (flat) => {
  const count = Math.sqrt(flat.length);
  return Array.from({ length: count }, (_, i) => flat.slice(i * count, (i + 1) * count).map(Boolean));
};

/** The widget drawn with this mask and place. */
function draw({ tokens = TOKENS, mask = CAUSAL, query = 0, key = 0, hex = "0000".repeat(tokens.length ** 2) } = {}) {
  const start = { mask: table(mask), query, key };
  const data = { tokens, logits: view(hex) };
  const model = new page.staticWidgets.Model({ state: { _data: data, ...start, _start: start } });
  let saved = 0;
  model.save_changes = () => (saved += 1);
  const el = new Element("div");
  const clean = painter.render({ model, el });
  const root = el.children[0];
  const cells = root.ofClass("mha-paint-cell");
  cells.forEach((cell, at) => {
    const [i, j] = [Math.floor(at / tokens.length), at % tokens.length];
    cell.getBoundingClientRect = () => ({ left: 10 * j, top: 10 * i, width: 10, height: 10 });
  });
  const act = async (node, type, more) => {
    const event = node.send(type, more);
    await Promise.resolve();
    return event;
  };
  const click = (role) => act(root.role(role)[0], "click");
  const slide = async (role, value) => {
    root.role(role)[0].value = value;
    await act(root.role(role)[0], "input");
  };
  const get = (name) => structuredClone(model.get(name));
  const now = () => get("mask").flat().map(Number);
  return { model, el, root, cells, clean, act, click, slide, get, now, saves: () => saved };
}

const text = (root, role) => root.role(role)[0].textContent;
const pressed = (root) =>
  root
    .all((node) => node.getAttribute("aria-pressed") === "true")
    .map((node) => node.textContent);
const state = (mask, more = {}) => {
  const count = Math.sqrt(mask.length);
  const flat = Uint8Array.from(mask);
  const logits = new Float64Array(mask.length);
  const all = readings(logits, count, flat);
  const names = ["a", "b", "c"].slice(0, count);
  return { names, mask: flat, query: 0, key: 0, logits, all, facts: maskFacts(flat, count), ...more };
};

golden.forEach(({ logits, mask, readings: wanted }) => {
  test(`the readings of ${Math.sqrt(mask.length)} tokens are those of numpy`, () => {
    const found = readings(decodeFloat16(view(logits)), Math.sqrt(mask.length), Uint8Array.from(mask));
    assert.deepEqual(Object.keys(found), Object.keys(wanted));
    for (const [reading, weights] of Object.entries(wanted)) {
      weights.forEach((weight, at) => {
        const [is, off] = [found[reading][at], reading === "minus 1e9" ? 1e-6 : 1e-9];
        if (weight === null) assert.ok(Number.isNaN(is), reading);
        else assert.ok(Math.abs(is - weight) <= off, `${reading} ${at}: ${is} is not ${weight}`);
      });
    }
  });
});

test("each rule, by hand", () => {
  const numbers = { real: 2, before: 1, after: 0 };
  const made = (...rules) => [...ruleMask(rules, numbers, 3)].join("");
  assert.equal(made("everything"), "111111111");
  assert.equal(made("nothing"), "000000000");
  assert.equal(made("causal"), "100110111");
  assert.equal(made("padding"), "110110110");
  assert.equal(made("window"), "100110011");
  assert.equal(made("causal", "padding"), "100110110");
  assert.equal([...ruleMask(["window"], { before: 0, after: 2 }, 3)].join(""), "111011001");
  assert.deepEqual([...inverted(Uint8Array.of(1, 0, 0, 1))], [0, 1, 1, 0]);
  assert.ok(isCausal(Uint8Array.from(CAUSAL), 3) && !isCausal(new Uint8Array(9), 3));
});

test("what is said of the whole mask", () => {
  const said = (...mask) => words.status(state(mask));
  assert.equal(said(...CAUSAL), "6 of 9 pairs are visible. Every query sees a key. No query sees a later token: the causal mask.");
  assert.equal(said(1, 0, 0, 0, 0, 0, 1, 1, 1), "4 of 9 pairs are visible. ‘b’ sees no key. No query sees a later token.");
  assert.equal(said(1, 0, 1, 1, 1, 0, 0, 0, 0), "4 of 9 pairs are visible. ‘c’ sees no key. 1 of 3 queries see a later token.");
  assert.equal(said(0, 0, 0, 0, 0, 0, 0, 0, 0), "0 of 9 pairs are visible. 3 of 3 queries see no key.");
  assert.equal(said(1), "1 of 1 pair is visible. Every query sees a key.");
  assert.equal(said(0), "0 of 1 pair is visible. ‘a’ sees no key.");
});

test("what is said of a reading: nothing hidden, some hidden, all hidden, one token", () => {
  const says = (sees, count, sum = 0.25) =>
    Object.keys(words.READING_NAMES).map((reading) => words.verdict(reading, sees, count, sum));
  assert.deepEqual(says(3, 3), [
    "as meant: nothing is hidden",
    "NaN: no key is left to see",
    "as meant: the same 1 was added to every logit",
    ...Array(3).fill("as meant: nothing is hidden"),
  ]);
  assert.deepEqual(says(2, 3), [
    "as meant",
    "sees the hidden keys, and only those",
    "hides nothing: visible logits rose by 1",
    "as meant: e to the −1e9 is 0",
    "as meant",
    "its weights sum to 0.250, not to 1",
  ]);
  assert.deepEqual(says(0, 3), [
    "no key, so every weight is 0",
    "sees every key",
    "sees every key: 0 was added to each logit",
    "the same weight for every key",
    "NaN: 0 divided by 0",
    "every weight is 0",
  ]);
  assert.equal(says(0, 1)[3], "sees the one key there is");
});

test("a weight in the least room", () => {
  const short = [0, 1e-9, 0.0049, 0.405, 0.994, 0.995, 1, NaN].map(words.shortText);
  assert.deepEqual(short, ["0", ".00", ".00", ".41", ".99", "1.0", "1.0", "NaN"]);
});

test("the page shows the mask, the weights, the row and its six readings", () => {
  const { root, cells, saves } = draw({ query: 1, key: 2 });
  assert.deepEqual(
    cells.map((cell) => cell.textContent),
    ["1.0", "hidden", "hidden", ".50", ".50", "hidden", ".33", ".33", ".33"],
  );
  assert.deepEqual(
    cells.map((cell) => cell.dataset.sees),
    CAUSAL.map(String),
  );
  assert.deepEqual(
    cells.map((cell) => cell.getAttribute("tabindex")),
    ["-1", "-1", "-1", "-1", "-1", "0", "-1", "-1", "-1"],
  );
  const heads = root.ofClass("mha-paint-rowheader").map((head) => head.textContent);
  assert.deepEqual(heads, ["a (1)", "b", "a (2)"]);
  assert.equal(text(root, "pair"), "‘b’ may not attend to ‘a (2)’.");
  const row = root.role("row")[0];
  const lines = row.all((node) => node.tag === "tr").map((line) => line.children.map((cell) => cell.textContent).join(" "));
  assert.deepEqual(lines, [
    "key logit mask added sum weight",
    "a (1) 0.00 True 0 0.00 0.500",
    "b 0.00 True 0 0.00 0.500",
    "a (2) 0.00 False −∞ −∞ 0",
  ]);
  const items = root.all((node) => node.dataset.reading);
  const strips = items.map((item) => item.ofClass("mha-paint-bar").map((bar) => bar.textContent).join(" "));
  assert.deepEqual(strips, [".50 .50 0", "0 0 1.0", ".42 .42 .16", ".50 .50 0", ".50 .50 0", ".33 .33 0"]);
  assert.deepEqual(
    items.map((item) => item.getAttribute("data-wrong") !== null),
    [false, true, true, false, false, true],
  );
  const hidden = items[0].ofClass("mha-paint-bar").map((bar) => bar.getAttribute("data-hidden"));
  assert.deepEqual(hidden, [null, null, ""]);
  assert.equal(items[5].ofClass("mha-paint-says")[0].textContent, "its weights sum to 0.667, not to 1");
  assert.equal(items[2].ofClass("mha-hear")[0].textContent, "a (1) 0.422, b 0.422, a (2) 0.155");
  assert.deepEqual(pressed(root), ["causal"]);
  assert.equal(saves(), 0);
});

test("an empty row is NaN in naive code and marked so", () => {
  const { root } = draw({ mask: [0, 0, 0, 1, 1, 1, 1, 1, 1] });
  const [naive] = root.all((node) => node.dataset.reading === "naive");
  assert.deepEqual(
    naive.ofClass("mha-paint-bar").map((bar) => bar.textContent),
    ["NaN", "NaN", "NaN"],
  );
  assert.equal(naive.dataset.weights, "NaN NaN NaN");
  assert.equal(naive.ofClass("mha-hear")[0].textContent, "a (1) NaN, b NaN, a (2) NaN");
  assert.equal(text(root, "pair"), "‘a (1)’ may not attend to ‘a (1)’.");
});

test("buttons make masks, and the one that fits is pressed", async () => {
  const { root, cells, act, click, now, get, saves } = draw();
  await click("rule window");
  assert.equal(now().join(""), "100110011");
  assert.deepEqual(pressed(root), ["window", "causal and window"]); // with none after, the same
  await click("invert");
  assert.equal(now().join(""), "011001100");
  assert.deepEqual(pressed(root), []);
  await click("rule none");
  assert.match(text(root, "status"), /^0 of 9 pairs are visible\. 3 of 3 queries see no key\.$/);
  await act(cells[8], "keydown", { key: "PageUp" });
  assert.deepEqual([get("query"), get("key")], [0, 2]);
  await click("restart");
  assert.deepEqual([get("mask"), get("query"), get("key")], [table(CAUSAL), 0, 0]);
  assert.equal(saves(), 5);
});

test("a number makes the mask of the rule in use with it, else of its own", async () => {
  const { root, click, slide, now } = draw();
  await click("rule causal and padding"); // of the 3 tokens, 1 is no padding
  assert.equal(now().join(""), "100100100");
  await slide("real", 2);
  assert.equal(now().join(""), "110110110", "padding alone fits as well, and comes first");
  await click("rule causal and padding");
  await slide("real", 1);
  assert.equal(now().join(""), "100100100");
  await click("rule causal and window");
  await slide("after", 2); // the window alone comes first
  assert.equal(now().join(""), "111111011");
  await click("rule causal and window");
  await slide("before", 0);
  assert.equal(now().join(""), "100010001");
  const outs = root.all((node) => node.tag === "output").map((out) => out.textContent);
  assert.deepEqual(outs, ["1", "0", "2"]);
});

test("keys move over the table and hide or show", async () => {
  const { root, cells, act, get, now, saves } = draw();
  assert.equal((await act(cells[0], "keydown", { key: "ArrowDown" })).prevented, true);
  assert.equal(document.activeElement, cells[3]);
  assert.deepEqual([get("query"), get("key")], [1, 0]);
  await act(cells[3], "keydown", { key: "End" });
  assert.deepEqual([get("query"), get("key")], [1, 2]);
  assert.equal((await act(cells[5], "keydown", { key: " " })).prevented, true);
  assert.deepEqual(now(), [1, 0, 0, 1, 1, 1, 1, 1, 1]);
  assert.equal(text(root, "pair"), "‘b’ may attend to ‘a (2)’: weight 0.333.");
  await act(cells[5], "keydown", { key: "Enter" });
  assert.deepEqual(now(), CAUSAL);
  const before = saves();
  assert.equal((await act(cells[5], "keydown", { key: " ", ctrlKey: true })).prevented, undefined);
  await act(cells[5], "keydown", { key: "x" });
  assert.equal(saves(), before);
});

test("a pointer paints with what its first cell became, each cell once, until it is lifted", async () => {
  const { root, cells, act, now, get, saves } = draw();
  const at = (i, j, pointerId = 7) => ({ clientX: 10 * j + 5, clientY: 10 * i + 5, pointerId });
  const grid = root.ofClass("mha-paint-map")[0];
  const down = await act(cells[0], "pointerdown", { button: 0, ...at(0, 0) });
  assert.equal(down.prevented, true);
  assert.equal(grid.captured, 7);
  assert.equal(document.activeElement, cells[0]);
  await act(grid, "pointermove", at(0, 1)); // hidden already: it stays so
  await act(grid, "pointermove", at(1, 1));
  await act(grid, "pointermove", at(1, 1)); // again
  await act(grid, "pointermove", at(2, 0, 8)); // another finger
  assert.deepEqual(now(), [0, 0, 0, 1, 0, 0, 1, 1, 1]);
  assert.equal(saves(), 3);
  await act(grid, "pointermove", { clientX: -50, clientY: 900, pointerId: 7 }); // outside: the nearest cell
  assert.deepEqual([now()[6], get("query"), get("key")], [0, 2, 0]);
  for (const end of ["pointerup", "pointercancel", "lostpointercapture"]) {
    await act(grid, end, at(2, 0));
    await act(grid, "pointermove", at(2, 2));
    assert.equal(now()[8], 1, end);
    await act(cells[4], "pointerdown", { button: 0, ...at(1, 1) });
  }
  const before = saves();
  await act(cells[4], "pointerdown", { button: 2, ...at(1, 1) });
  await act(root.ofClass("mha-paint-rowheader")[0], "pointerdown", { button: 0, ...at(0, 0) });
  assert.equal(saves(), before);
});

test("a token at the side chooses its row, one at the top its column; nothing is painted", async () => {
  const { root, act, get, now } = draw();
  await act(root.ofClass("mha-paint-rowheader")[2], "click");
  await act(root.ofClass("mha-paint-columnheader")[1], "click");
  assert.deepEqual([get("query"), get("key"), now()], [2, 1, CAUSAL]);
  assert.equal(text(root, "pair"), "‘a (2)’ may attend to ‘b’: weight 0.333.");
});

test("a screen reader hears the pair, and the mask where more has changed", () => {
  const before = state([...CAUSAL]);
  assert.equal(words.spoken(before, null), "‘a’ may attend to ‘a’: weight 1.000. It sees 1 key.");
  const moved = state([...CAUSAL], { query: 2, key: 1 });
  assert.equal(words.spoken(moved, before), "‘c’ may attend to ‘b’: weight 0.333. It sees 3 keys.");
  const one = state([0, 0, 0, 1, 1, 0, 1, 1, 1]);
  assert.equal(words.spoken(one, before), `‘a’ may not attend to ‘a’. ${words.status(one)}`);
  const many = state(Array(9).fill(1));
  assert.equal(words.spoken(many, before), words.status(many));
});

test("black or white, whichever reads better, on every weight in both themes", () => {
  const channel = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  for (const [theme, paper] of [
    ["light", 255],
    ["dark", 27],
  ]) {
    const paint = cellPaint(theme);
    for (let i = 0; i <= 255; i++) {
      const node = new Element("div");
      paint(node, i / 255);
      const [red, green, blue, alpha] = node.style.values["--weight"].match(/[\d.]+/g).map(Number);
      const [r, g, b] = [red, green, blue].map((part) => channel((paper * (1 - alpha) + part * alpha) / 255));
      const light = 0.2126 * r + 0.7152 * g + 0.0722 * b;
      const contrast = node.style.values["--on"] === "#000" ? (light + 0.05) / 0.05 : 1.05 / (light + 0.05);
      assert.ok(contrast >= 4.5, `${theme} ${i}: ${contrast}`);
    }
    const [nothing, nan] = [0, NaN].map((weight) => {
      const node = new Element("div");
      paint(node, weight);
      return node.dataset.colour;
    });
    assert.equal(nan, nothing);
  }
});

test("more tokens than the cells have room for are shown without numbers", () => {
  const tokens = Array.from({ length: 9 }, (_, i) => `t${i}`);
  const many = draw({ tokens, mask: Array(81).fill(1) }).root.ofClass("mha-paint-map")[0];
  const few = draw().root.ofClass("mha-paint-map")[0];
  assert.deepEqual([many.getAttribute("data-many"), few.getAttribute("data-many")], ["", null]);
});

test("one token alone", async () => {
  const { root, click, now } = draw({ tokens: ["x"], mask: [1], hex: "0000" });
  assert.equal(text(root, "status"), "1 of 1 pair is visible. Every query sees a key.");
  await click("invert");
  assert.deepEqual(now(), [0]);
  const says = root.ofClass("mha-paint-says").map((one) => one.textContent);
  assert.equal(says[3], "sees the one key there is");
});

test("the theme is followed, and nothing is left behind", async () => {
  const { root, el, model, cells, clean } = draw();
  const light = cells[0].style.values["--weight"];
  darkPreferred.matches = true;
  darkPreferred.send("change");
  assert.equal(root.dataset.mhaTheme, "dark");
  assert.notEqual(cells[0].style.values["--weight"], light);
  darkPreferred.matches = false;
  clean();
  assert.equal(el.children.length, 0);
  assert.ok(observers.every(({ watches }, i) => i < observers.length - 1 || !watches));
  const shown = cells[0].textContent;
  model.set("mask", table(Array(9).fill(0)));
  await Promise.resolve();
  assert.equal(cells[0].textContent, shown);
});
