// One map of weights, large: tokens on both axes, a cursor, and the chosen row as bars and numbers.

import { colourIndex, element, plainKey, weightText, write } from "./dom.js";

const CELL = { least: 13, most: 44 }; // CSS pixels

/** `put({query, key})` is called after an act of the reader; `fit()` once the map is in the page. */
export function tokenMap({ id, put, on, signal, describedBy }) {
  const canvas = element("canvas", { "aria-hidden": "true" });
  const band = element("div", { class: "mha-band" });
  const cursor = element("div", { class: "mha-cursor" });
  const tip = element("div", { class: "mha-tip", "aria-hidden": "true", hidden: "" });
  const map = element(
    "div",
    {
      class: "mha-map",
      tabindex: 0,
      role: "application",
      "aria-roledescription": "map of weights",
      "aria-label":
        "Weights of the chosen head, a row for each query, a column for each key. The arrow keys move the cell.",
      "aria-describedby": describedBy,
    },
    canvas,
    band,
    cursor,
    tip,
  );
  const queries = element("div", { class: "mha-queries", "aria-hidden": "true" });
  const keys = element("div", { class: "mha-keys", "aria-hidden": "true" });
  const rowName = element("div", { class: "mha-row-name", id: `${id}-row` });
  const row = element("ol", { class: "mha-row", "aria-labelledby": `${id}-row` });
  const board = element(
    "div",
    { class: "mha-board" },
    element(
      "div",
      { class: "mha-corner", "aria-hidden": "true" },
      element("span", { text: "key →" }),
      element("span", { text: "query ↓" }),
    ),
    keys,
    queries,
    map,
    rowName,
    row,
  );
  const node = element("div", { class: "mha-scroll" }, board);
  let now = null; // what update() was last given
  let tokens = null;
  let side = 0;
  let bars = [];

  const build = () => {
    const label = (token) => element("span", { title: token, text: token });
    tokens = now.s.tokens;
    queries.replaceChildren(...tokens.map(label));
    keys.replaceChildren(...tokens.map(label));
    bars = tokens.map((token, j) => {
      const bar = element("span", { class: "mha-bar" });
      const value = element("span", { class: "mha-value" });
      const item = element(
        "li",
        { "data-key": j },
        element("span", { class: "mha-hear", text: `${token}: ` }),
        element("span", { class: "mha-column" }, bar),
        value,
      );
      return { item, bar, value };
    });
    row.replaceChildren(...bars.map(({ item }) => item));
    board.style.setProperty("--size", tokens.length);
    side = 0;
    fit();
  };

  function fit() {
    if (!tokens || !node.clientWidth) return;
    const free = node.clientWidth - queries.offsetWidth - 8;
    const cell = Math.max(CELL.least, Math.min(CELL.most, Math.floor(free / tokens.length)));
    const pixels = cell * devicePixelRatio;
    if (pixels === side) return;
    side = pixels;
    board.style.setProperty("--cell", `${cell}px`);
    board.toggleAttribute("data-narrow", cell < 28);
    // labels lie flat only where each fits above its column
    board.removeAttribute("data-flat");
    const widest = Math.max(...[...queries.children].map((label) => label.scrollWidth));
    board.toggleAttribute("data-flat", widest <= cell);
    paint();
  }

  function paint() {
    const { s, all, colours } = now;
    const size = tokens.length;
    if (!side || !colours) return;
    const edge = Array.from({ length: size + 1 }, (_, i) => Math.round(i * side));
    canvas.width = canvas.height = edge[size];
    const context = canvas.getContext("2d");
    const gap = side < 16 ? 0 : Math.max(1, Math.round(devicePixelRatio));
    const weights = all.weights[s.head];
    for (let i = 0; i < size; i++) {
      for (let j = 0; j < size; j++) {
        const [x, y] = [edge[j], edge[i]];
        const [width, height] = [edge[j + 1] - x - gap, edge[i + 1] - y - gap];
        if (all.mask && !all.mask[i * size + j]) {
          context.fillStyle = "rgb(128 128 128 / 45%)"; // a dot: hidden is not the same as small
          context.fillRect(x + width / 2 - gap, y + height / 2 - gap, 2 * gap || 1, 2 * gap || 1);
          continue;
        }
        const from = 4 * colourIndex(weights[i * size + j]);
        const [red, green, blue, alpha] = colours.subarray(from, from + 4);
        context.fillStyle = `rgb(${red} ${green} ${blue} / ${alpha / 255})`;
        context.fillRect(x, y, width, height);
      }
    }
  }

  const cellAt = (event) => {
    const box = map.getBoundingClientRect();
    const place = (offset, length) =>
      Math.max(0, Math.min(tokens.length - 1, Math.floor((offset / length) * tokens.length)));
    return {
      query: place(event.clientY - box.top, box.height),
      key: place(event.clientX - box.left, box.width),
    };
  };
  const moveTo = ({ query, key }) => {
    if (query !== now.s.query || key !== now.s.key) put({ query, key });
  };
  on(map, "click", (event) => moveTo(cellAt(event)));
  on(map, "pointermove", (event) => {
    if (event.pointerType === "touch") return;
    const { query, key } = cellAt(event);
    if (event.buttons === 1) moveTo({ query, key });
    const weight = now.all.weights[now.s.head][query * tokens.length + key];
    write(tip, `${tokens[query]} → ${tokens[key]} ${weightText(weight)}`);
    tip.style.setProperty("--tip-query", query);
    tip.style.setProperty("--tip-key", key);
    tip.toggleAttribute("data-left", key >= tokens.length / 2);
    tip.hidden = false;
  });
  on(map, "pointerleave", () => {
    tip.hidden = true;
  });
  on(map, "keydown", (event) => {
    if (!plainKey(event)) return;
    let { query, key } = now.s;
    const last = tokens.length - 1;
    if (event.key === "ArrowUp") query = Math.max(0, query - 1);
    else if (event.key === "ArrowDown") query = Math.min(last, query + 1);
    else if (event.key === "ArrowLeft") key = Math.max(0, key - 1);
    else if (event.key === "ArrowRight") key = Math.min(last, key + 1);
    else if (event.key === "Home") key = 0;
    else if (event.key === "End") key = last;
    else if (event.key === "PageUp") query = 0;
    else if (event.key === "PageDown") query = last;
    else return;
    event.preventDefault();
    moveTo({ query, key });
  });
  const observer = new ResizeObserver(fit);
  observer.observe(node);
  signal.addEventListener("abort", () => observer.disconnect());

  return {
    node,
    fit,
    update(s, all, colours) {
      const same = now && now.all === all && now.colours === colours && now.s.head === s.head;
      now = { s, all, colours };
      if (tokens !== s.tokens) build();
      if (!same) paint();
      const size = tokens.length;
      board.style.setProperty("--query", s.query);
      board.style.setProperty("--key", s.key);
      for (const [labels, index] of [
        [queries, s.query],
        [keys, s.key],
      ]) {
        [...labels.children].forEach((label, i) => label.toggleAttribute("data-chosen", i === index));
      }
      write(rowName, `row of ‘${tokens[s.query]}’`);
      bars.forEach(({ item, bar, value }, j) => {
        const weight = all.weights[s.head][s.query * size + j];
        const hidden = all.mask && !all.mask[s.query * size + j];
        item.dataset.weight = weight;
        item.toggleAttribute("data-chosen", j === s.key);
        bar.style.setProperty("--weight", weight);
        write(value, hidden ? "–" : weight >= 0.995 ? "1.0" : weight.toFixed(2).slice(1));
      });
    },
  };
}
