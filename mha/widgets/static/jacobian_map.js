// The Jacobian as a map: a row for the weight that moves, a column for the logit that is moved.

import { cellByKey, element, write } from "./dom.js";
import { STEEPEST } from "./jacobian_maths.js";
import { cellText } from "./jacobian_words.js";

const MOST_WRITTEN = 6; // logits; of more, the numbers don't fit the cells
const ROOM = 24; // letters of all names side by side above the columns

/** `put({cell})` is called after an act of the reader. */
export function jacobianMap({ id, on, put }) {
  const grid = element("div", {
    class: "mha-jac-map",
    role: "grid",
    "aria-labelledby": `${id}-rows ${id}-columns`,
    "aria-describedby": `${id}-keys`,
  });
  let names = null;
  let now = null; // what update() was last given
  let cells = []; // row by row
  let shares = []; // how much colour each has
  let heads = { rows: [], columns: [] };

  const choose = (i, k) => {
    if (i !== now.cell[0] || k !== now.cell[1]) put({ cell: [i, k] });
  };
  const build = () => {
    names = now.names;
    const head = (role, name) =>
      element("div", { role, title: name, class: `mha-jac-${role}` }, element("span", { text: name }));
    heads = {
      rows: names.map((name) => head("rowheader", name)),
      columns: names.map((name) => head("columnheader", name)),
    };
    shares = [];
    cells = names.flatMap((_, i) =>
      names.map((_, k) => {
        const number = element("span");
        const sign = i === k ? "plus" : "minus"; // p (1 − p) and −p_i p_k
        const cell = element(
          "div",
          { role: "gridcell", class: `mha-jac-cell mha-jac-${sign}`, tabindex: -1 },
          number,
        );
        on(cell, "click", () => choose(i, k));
        on(cell, "keydown", (event) => {
          const place = cellByKey(event, [i, k], names.length);
          if (place === null) return;
          choose(...place);
          cells[place[0] * names.length + place[1]].cell.focus();
        });
        return { cell, number };
      }),
    );
    const corner = element(
      "div",
      { role: "columnheader", class: "mha-jac-corner" },
      element("span", { class: "mha-hear", text: "weight" }),
    );
    grid.replaceChildren(
      element("div", { role: "row", class: "mha-jac-line" }, corner, ...heads.columns),
      ...names.map((_, i) =>
        element(
          "div",
          { role: "row", class: "mha-jac-line" },
          heads.rows[i],
          ...cells.slice(i * names.length, (i + 1) * names.length).map(({ cell }) => cell),
        ),
      ),
    );
    grid.style.setProperty("--count", names.length);
    grid.toggleAttribute("data-many", names.length > MOST_WRITTEN);
    grid.toggleAttribute("data-tall", Math.max(...names.map((name) => name.length)) > ROOM / names.length);
  };

  const note = (name, text) => element("p", { id: `${id}-${name}`, class: "mha-jac-axis", text });
  const legend = element(
    "div",
    { class: "mha-jac-legend", "aria-hidden": "true" },
    ...[-STEEPEST, 0, STEEPEST].map((value) => element("span", { text: String(value).replace("-", "−") })),
  );
  return {
    node: element(
      "div",
      { class: "mha-jac-left" },
      note("columns", "column → the z = logit / τ that is moved"),
      note("rows", "row ↓ the weight p that moves"),
      grid,
      legend,
      element("p", {
        id: `${id}-keys`,
        class: "mha-jac-help",
        text: "Click a cell, or move from cell to cell with the arrow keys.",
      }),
    ),
    update(state) {
      now = state;
      if (names !== state.names) build();
      const { cell: chosen, all } = state;
      cells.forEach(({ cell, number }, place) => {
        const slope = all.slopes[place];
        const [i, k] = [Math.floor(place / names.length), place % names.length];
        const here = i === chosen[0] && k === chosen[1];
        const share = Math.round((1000 * Math.abs(slope)) / STEEPEST) / 10; // per cent, as fine as is seen
        if (shares[place] !== share) cell.style.setProperty("--share", `${(shares[place] = share)}%`);
        cell.dataset.slope = slope;
        if (cell.getAttribute("aria-selected") !== String(here)) {
          cell.setAttribute("aria-selected", here);
          cell.setAttribute("tabindex", here ? 0 : -1);
        }
        write(number, cellText(slope));
      });
      heads.rows.forEach((head, i) => head.toggleAttribute("data-chosen", i === chosen[0]));
      heads.columns.forEach((head, k) => head.toggleAttribute("data-chosen", k === chosen[1]));
    },
  };
}
