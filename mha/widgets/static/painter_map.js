// The mask as a table to paint in: a row for each query, a column for each key. What is visible shows its weight.

import { cellByKey, element, plainKey, write } from "./dom.js";
import { shortText } from "./painter_words.js";

const MOST_WRITTEN = 8; // tokens; of more, the numbers don't fit the cells

/** `paint(cells, visible)` and `put({query, key})` are called after an act of the reader. */
export function painterMap({ id, names, on, put, paint }) {
  const count = names.length;
  const label = (role, name) =>
    element("div", { role, title: name, class: `mha-paint-${role}` }, element("span", { text: name }));
  const heads = {
    rows: names.map((name) => label("rowheader", name)),
    columns: names.map((name) => label("columnheader", name)),
  };
  const cells = Array.from({ length: count * count }, () => {
    const text = element("span");
    const cell = element("div", { role: "gridcell", class: "mha-paint-cell", tabindex: -1 }, text);
    return { cell, text };
  });
  const lines = names.map((_, i) =>
    element(
      "div",
      { role: "row", class: "mha-paint-line" },
      heads.rows[i],
      ...cells.slice(i * count, (i + 1) * count).map(({ cell }) => cell),
    ),
  );
  const corner = element("div", { role: "columnheader", class: "mha-paint-corner", text: "query ↓ key →" });
  const grid = element(
    "div",
    {
      class: "mha-paint-map",
      role: "grid",
      "aria-label": "Mask and weights, a row for each query, a column for each key",
      "aria-describedby": `${id}-paint`,
    },
    element("div", { role: "row", class: "mha-paint-line" }, corner, ...heads.columns),
    ...lines,
  );
  grid.style.setProperty("--count", count);
  grid.toggleAttribute("data-many", count > MOST_WRITTEN);

  let now = null; // what update() was last given
  let brush = null; // while a pointer paints: 1 to show, 0 to hide, and the cells it has been to
  const cellAt = (event) => {
    const first = cells[0].cell.getBoundingClientRect();
    const last = cells[cells.length - 1].cell.getBoundingClientRect();
    const place = (at, from, to) => Math.max(0, Math.min(count - 1, Math.floor((count * (at - from)) / (to - from))));
    const i = place(event.clientY, first.top, last.top + last.height);
    const j = place(event.clientX, first.left, last.left + last.width);
    return i * count + j;
  };
  on(grid, "pointerdown", (event) => {
    if (event.button || !event.target.closest(".mha-paint-cell")) return;
    const at = cellAt(event);
    brush = { visible: 1 - now.mask[at], been: new Set([at]), pointer: event.pointerId };
    grid.setPointerCapture(event.pointerId);
    event.preventDefault(); // no text is selected
    paint([at], brush.visible);
    cells[at].cell.focus({ preventScroll: true });
  });
  on(grid, "pointermove", (event) => {
    if (!brush || event.pointerId !== brush.pointer) return;
    const at = cellAt(event);
    if (brush.been.has(at)) return;
    brush.been.add(at);
    paint([at], brush.visible);
  });
  for (const type of ["pointerup", "pointercancel", "lostpointercapture"]) {
    on(grid, type, () => {
      brush = null;
    });
  }
  heads.rows.forEach((head, i) => on(head, "click", () => put({ query: i })));
  heads.columns.forEach((head, j) => on(head, "click", () => put({ key: j })));
  cells.forEach(({ cell }, at) => {
    const here = [Math.floor(at / count), at % count];
    on(cell, "keydown", (event) => {
      if (plainKey(event) && (event.key === " " || event.key === "Enter")) {
        event.preventDefault();
        paint([at], 1 - now.mask[at]);
        return;
      }
      const place = cellByKey(event, here, count);
      if (place === null) return;
      const [query, key] = place;
      if (query !== now.query || key !== now.key) put({ query, key });
      cells[query * count + key].cell.focus();
    });
  });

  return {
    node: element("div", { class: "mha-paint-scroll" }, grid),
    update(state, colour) {
      now = state;
      const { mask, all, query, key } = state;
      cells.forEach(({ cell, text }, at) => {
        const weight = all.attend[at];
        const chosen = at === query * count + key;
        colour(cell, weight);
        cell.dataset.weight = weight;
        if (cell.dataset.sees !== String(mask[at])) cell.dataset.sees = mask[at];
        if (cell.getAttribute("aria-selected") !== String(chosen)) {
          cell.setAttribute("aria-selected", chosen);
          cell.setAttribute("tabindex", chosen ? 0 : -1);
        }
        write(text, mask[at] ? shortText(weight) : "hidden");
      });
      heads.rows.forEach((head, i) => head.toggleAttribute("data-chosen", i === query));
      heads.columns.forEach((head, j) => head.toggleAttribute("data-chosen", j === key));
    },
  };
}
