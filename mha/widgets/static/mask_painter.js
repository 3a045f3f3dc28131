import { decodeFloat16 } from "./attention.js";
import { distinct, element, write } from "./dom.js";
import { frame } from "./frame.js";
import { cellPaint } from "./painter_colours.js";
import { painterControls } from "./painter_controls.js";
import { painterMap } from "./painter_map.js";
import { inverted, maskFacts, readings } from "./painter_maths.js";
import { readingList, rowTable } from "./painter_tables.js";
import { pairText, spoken, status } from "./painter_words.js";

/** The model's mask as ones and noughts, row by row. */
const flat = (model) => Uint8Array.from(model.get("mask").flat(), Number);

function render({ model, el }) {
  const view = frame(model, ["mask", "query", "key"]);
  const { put } = view;
  const { tokens, logits: stored } = model.get("_data");
  const logits = decodeFloat16(stored);
  const names = distinct([...tokens]);
  const count = names.length;

  const rows = (mask) => names.map((_, i) => Array.from(mask.subarray(i * count, (i + 1) * count), Boolean));
  const set = (mask) => put({ mask: rows(mask) });
  const paint = (cells, visible) => {
    const mask = flat(model);
    for (const at of cells) mask[at] = visible;
    const [last] = cells.slice(-1);
    put({ mask: rows(mask), query: Math.floor(last / count), key: last % count });
  };
  const parts = { ...view, names, count, set, paint };
  parts.invert = () => set(inverted(flat(model)));
  parts.restart = () => put(model.get("_start"));

  const controls = painterControls(parts);
  const map = painterMap(parts);
  const row = rowTable(parts);
  const list = readingList(parts);
  const state = element("p", { class: "mha-paint-status", "data-role": "status" });
  const pair = element("p", { "data-role": "pair" });
  const help = element("p", {
    id: `${view.id}-paint`,
    class: "mha-paint-help",
    text: "Click or drag over cells to hide or show them; click a token to choose its row or column. By keyboard: the arrow keys move, Space hides or shows. Hatched: hidden; else the weight.",
  });
  const root = element(
    "div",
    { class: "mha-paint" },
    controls.node,
    element(
      "div",
      { class: "mha-paint-main" },
      element("div", { class: "mha-paint-left" }, map.node, help),
      element("div", { class: "mha-paint-right" }, state, pair, row.node),
    ),
    list.node,
  );

  let drawn = null;
  return view.show({
    el,
    root,
    label: "Mask to paint",
    drawAll(theme) {
      const mask = flat(model);
      const [query, key] = ["query", "key"].map((name) => model.get(name));
      const all = readings(logits, count, mask);
      const s = { names, mask, query, key, logits, all, facts: maskFacts(mask, count) };
      const colour = cellPaint(theme);
      for (const part of [controls, map, row, list]) part.update(s, colour);
      write(state, status(s));
      write(pair, pairText(s));
      const said = spoken(s, drawn);
      drawn = s;
      return said;
    },
  });
}

export default { render };
