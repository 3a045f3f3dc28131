// Two tables: moments of the logits, predicted and measured; largest weight and gradients, of one row and of all.

import { element, numberText, write } from "./dom.js";
import { N_ROWS } from "./scaling_draw.js";
import { median } from "./scaling_maths.js";
import { meanText, shareText } from "./scaling_words.js";

/** A table from its column heads and, for each line, a role and a head; `cell(role, i)` is a number's place. */
function table(columns, lines) {
  const heads = columns.map((text) => element("th", { scope: "col", text }));
  const cells = new Map();
  const body = Object.entries(lines).map(([role, text]) => {
    const places = columns.slice(1).map(() => element("td"));
    cells.set(role, places);
    return element("tr", { "data-line": role }, element("th", { scope: "row", text }), ...places);
  });
  return {
    heads,
    node: element(
      "table",
      { class: "mha-scale-table" },
      element("thead", {}, element("tr", {}, ...heads)),
      element("tbody", {}, ...body),
    ),
    cell: (role, i) => cells.get(role)[i],
  };
}

function put(cell, value, text) {
  cell.dataset.value = value;
  write(cell, text);
}

export function momentTable() {
  const moments = { mean: "mean", variance: "variance", within: "variance within a row" };
  const { node, cell } = table(["of a logit", "predicted", "measured"], moments);
  return {
    node,
    update({ all: { known, found } }) {
      for (const role of Object.keys(moments)) {
        put(cell(role, 0), known[role], role === "mean" ? meanText(known[role]) : numberText(known[role]));
        const [value, error] = found[role];
        put(cell(role, 1), value, `${numberText(value)} ± ${numberText(error)}`);
        cell(role, 1).dataset.error = error;
      }
    },
  };
}

export function gradientTable() {
  const lines = { largest: "largest weight", norm: "‖J‖", byQuery: "‖∂p/∂q‖" };
  const { node, cell, heads } = table(["softmax", "", `median of ${N_ROWS}`, `mean of ${N_ROWS}`], lines);
  return {
    node,
    update({ row, all }) {
      write(heads[1], `query ${row}`);
      for (const role of Object.keys(lines)) {
        const values = all.rows.map((one) => one[role]);
        const text = role === "largest" ? shareText : numberText;
        const mean = values.reduce((sum, value) => sum + value, 0) / N_ROWS;
        [all.row[role], median(values), mean].forEach((value, i) => put(cell(role, i), value, text(value)));
      }
    },
  };
}
