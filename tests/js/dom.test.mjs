// What the widgets share: numbers as text, colours, themes, keys.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import { Element, darkPreferred, observers } from "./fake_dom.mjs";
import * as dom from "../../mha/widgets/static/dom.js";

const golden = JSON.parse(readFileSync(new URL("golden.json", import.meta.url), "utf8"));

test("numbers have three significant digits, from 100 on all whole ones", () => {
  const wanted = {
    0: "0.00",
    0.00123: "0.00123",
    0.0449: "0.0449",
    0.5: "0.500",
    5.657: "5.66",
    "-25.31": "−25.3",
    99.96: "100",
    12345.6: "12346",
    "-0.000456": "−0.000456",
    1.234e-9: "1.23e−9",
  };
  for (const [value, text] of Object.entries(wanted)) assert.equal(dom.numberText(Number(value)), text);
  assert.equal(dom.numberText(-0), "0.00");
  assert.deepEqual([-Infinity, Infinity, NaN].map(dom.numberText), ["−∞", "Infinity", "NaN"]);
});

test("a weight has three decimals, and a positive one never reads as nought", () => {
  const texts = [0, 1e-9, 0.00049, 0.0005, 0.25, 1].map(dom.weightText);
  assert.deepEqual(texts, ["0.000", "<0.001", "<0.001", "0.001", "0.250", "1.000"]);
});

test("the light colours on white are those of the pictures made in Python", () => {
  const wanted = Buffer.from(golden.colours, "hex");
  const colours = dom.weightColours("light");
  assert.equal(colours.length, 4 * 256);
  for (let i = 0; i < 256; i++) {
    const alpha = colours[4 * i + 3] / 255;
    for (let c = 0; c < 3; c++) {
      const shown = colours[4 * i + c] * alpha + 255 * (1 - alpha);
      assert.ok(Math.abs(shown - wanted[3 * i + c]) < 1.5, `colour ${i}: ${shown}, ${wanted[3 * i + c]}`);
    }
  }
});

test("the legend shows the colours of the maps in both themes", () => {
  for (const theme of ["light", "dark"]) {
    const colours = dom.weightColours(theme);
    const stops = [...dom.weightGradient(theme).matchAll(/rgb\((\d+) (\d+) (\d+)( \/ 0%)?\)/g)];
    assert.deepEqual(
      stops.map((stop) => Boolean(stop[4])),
      [true, false, false],
    );
    const near = (stop, index) =>
      [0, 1, 2].every((c) => Math.abs(Number(stop[c + 1]) - colours[4 * index + c]) <= 1);
    assert.ok(near(stops[0], 0) && near(stops[1], 128) && near(stops[2], 255));
  }
});

test("weights find their place among the colours", () => {
  assert.deepEqual([0, 0.5, 1].map(dom.colourIndex), [0, 128, 255]);
});

test("the page's own word on the theme comes before the reader's preference", () => {
  const stop = new AbortController();
  const heard = [];
  dom.followTheme((theme) => heard.push(theme), stop.signal);
  darkPreferred.matches = true;
  darkPreferred.send("change");
  document.documentElement.dataset.theme = "light";
  observers.at(-1).tell();
  observers.at(-1).tell(); // no change, no word
  document.documentElement.removeAttribute("data-theme");
  document.body.dataset.vscodeThemeKind = "vscode-high-contrast-light";
  observers.at(-1).tell();
  document.body.dataset.vscodeThemeKind = "vscode-high-contrast";
  observers.at(-1).tell();
  document.body.removeAttribute("data-vscode-theme-kind");
  document.body.dataset.jpThemeLight = "true";
  observers.at(-1).tell();
  assert.deepEqual(heard, ["light", "dark", "light", "dark", "light"]);
  stop.abort();
  assert.equal(observers.at(-1).watches, false);
  assert.equal(darkPreferred.listeners.length, 0);
  document.body.removeAttribute("data-jp-theme-light");
  darkPreferred.matches = false;
});

test("plain keys stay inside, Escape and shortcuts of the browser go on", () => {
  const page = new Element("div");
  const root = new Element("div");
  page.append(root);
  const heard = [];
  page.addEventListener("keydown", ({ key }) => heard.push(key));
  dom.keepKeys(root, new AbortController().signal);
  root.send("keydown", { key: "a" });
  root.send("keydown", { key: "Escape" });
  root.send("keydown", { key: "k", ctrlKey: true });
  assert.deepEqual(heard, ["Escape", "k"]);
});

test("of a burst of messages the last is said, and none after the end", async () => {
  const stop = new AbortController();
  const region = new Element("p");
  const say = dom.announcer(region, stop.signal, 5);
  say("one");
  say("two");
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.equal(region.textContent, "two");
  say("three");
  stop.abort();
  await new Promise((resolve) => setTimeout(resolve, 30));
  assert.equal(region.textContent, "two");
});
