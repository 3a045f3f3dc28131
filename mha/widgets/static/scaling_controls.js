// What the reader sets: width, scale, mean and correlation, another draw, the query that is shown.

import { element, fixedText, write } from "./dom.js";
import { N_ROWS, WIDTHS } from "./scaling_draw.js";
import { SCALES } from "./scaling_maths.js";

const SEEDS = 10000; // as in scaling_explorer.py
const NAMES = { 1: "1", "1/√d_k": "1/√dₖ", "1/d_k": "1/dₖ" };

/** A slider with its label before it and its value behind it, three cells of a grid. */
function slider({ id, role, label, ...limits }) {
  const input = element("input", { type: "range", id: `${id}-${role}`, "data-role": role, ...limits });
  const out = element("output", { for: input.id, "data-role": `${role}-out` });
  return {
    input,
    cells: [element("label", { for: input.id, text: label }), input, out],
    show(value, text) {
      input.value = value;
      input.setAttribute("aria-valuetext", text);
      write(out, text);
    },
  };
}

/** All but the query. `restart()` goes back to what Python gave. */
export function scalingControls({ id, on, put, restart, get }) {
  const width = slider({ id, role: "width", label: "width dₖ", min: 0, max: WIDTHS.length - 1, step: 1 });
  const mean = slider({ id, role: "mean", label: "mean m", min: -1, max: 1, step: 0.05 });
  const limits = { min: -0.95, max: 0.95, step: 0.05 };
  const correlation = slider({ id, role: "correlation", label: "correlation ρ", ...limits });
  on(width.input, "input", () => put({ d_k: WIDTHS[width.input.value] }));
  on(mean.input, "input", () => put({ mean: Number(mean.input.value) }));
  on(correlation.input, "input", () => put({ correlation: Number(correlation.input.value) }));
  const radios = Object.keys(SCALES).map((value) => {
    const radio = element("input", { type: "radio", name: `${id}-scale`, value, "data-role": "scale" });
    on(radio, "change", () => put({ scale: value }));
    return { radio, label: element("label", {}, radio, NAMES[value]) };
  });
  const another = element("button", { type: "button", "data-role": "another", text: "another draw" });
  on(another, "click", () => put({ seed: (get("seed") + 1) % SEEDS }));
  const again = element("button", { type: "button", "data-role": "restart", text: "start again" });
  on(again, "click", restart);
  return {
    node: element(
      "div",
      { class: "mha-scale-controls" },
      element("div", { class: "mha-scale-sliders" }, ...width.cells),
      element(
        "fieldset",
        { class: "mha-scale-choice" },
        element("legend", { text: "scale" }),
        ...radios.map(({ label }) => label),
      ),
      element("div", { class: "mha-scale-sliders" }, ...mean.cells, ...correlation.cells),
      element("div", { class: "mha-scale-buttons" }, another, again),
    ),
    update(s) {
      width.show(WIDTHS.indexOf(s.d_k), String(s.d_k));
      mean.show(s.mean, fixedText(s.mean, 2));
      correlation.show(s.correlation, fixedText(s.correlation, 2));
      for (const { radio } of radios) radio.checked = radio.value === s.scale;
    },
  };
}

/** Which query's softmax is shown. */
export function rowControl({ id, on, put }) {
  const row = slider({ id, role: "row", label: "query", min: 0, max: N_ROWS - 1, step: 1 });
  on(row.input, "input", () => put({ row: Number(row.input.value) }));
  return {
    node: element("div", { class: "mha-scale-sliders" }, ...row.cells),
    update: (s) => row.show(s.row, String(s.row)),
  };
}
