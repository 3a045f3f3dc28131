// All heads of a layer as small maps, one button each.

import { colourIndex, element, placeByKey, write } from "./dom.js";

/** All heads, small. One canvas pixel a weight: the browser enlarges it on any screen. */
export function headGrid({ id, put, on }) {
  const title = element("p", { class: "mha-title", id: `${id}-grid` });
  const grid = element("div", { class: "mha-grid", role: "toolbar", "aria-labelledby": title.id });
  const legend = element(
    "p",
    { class: "mha-legend" },
    "weight 0 ",
    element("span", { class: "mha-ramp" }),
    " 1",
  );
  const maps = [];
  let painted = null;
  const fitCount = (wanted) => {
    // a button stays the same node, so that the focus stays on it
    while (maps.length > wanted) maps.pop().button.remove();
    while (maps.length < wanted) {
      const h = maps.length;
      const canvas = element("canvas");
      const bits = element("span");
      const heard = (text) => element("span", { class: "mha-hear", text });
      const count = heard("");
      const button = element(
        "button",
        { type: "button", class: "mha-head", "data-head": h },
        element("span", { class: "mha-small" }, canvas),
        element(
          "span",
          { class: "mha-caption" },
          heard("head "),
          element("b", { text: h }),
          count,
          bits,
          heard(" bits"),
        ),
      );
      maps.push({ button, canvas, bits, count });
      grid.append(button);
    }
    grid.dataset.columns = wanted === 1 ? 1 : wanted <= 4 ? 2 : wanted <= 12 ? 3 : 4;
  };
  const choose = (head) => {
    put({ head });
    maps[head].button.focus();
  };
  on(grid, "click", (event) => {
    const button = event.target.closest(".mha-head");
    if (button) choose(Number(button.dataset.head));
  });
  on(grid, "keydown", (event) => {
    const head = placeByKey(event, Number(event.target.dataset.head), maps.length);
    if (head !== null) choose(head);
  });
  return {
    node: element("div", { class: "mha-all" }, title, grid, legend),
    update(s, all, colours) {
      const size = s.tokens.length;
      if (maps.length !== s.n_heads) fitCount(s.n_heads);
      const repaint = painted?.all !== all || painted.colours !== colours;
      maps.forEach(({ button, canvas, bits, count }, h) => {
        button.setAttribute("aria-pressed", h === s.head);
        button.tabIndex = h === s.head ? 0 : -1;
        if (!repaint) return;
        paintPixels(canvas, all.weights[h], size, colours);
        write(bits, all.entropy[h].toFixed(2));
        button.dataset.entropy = all.entropy[h];
        write(count, ` of ${s.n_heads}, entropy `);
      });
      painted = { all, colours };
      grid.style.setProperty("--size", size);
      grid.style.setProperty("--query", s.query);
      grid.style.setProperty("--key", s.key);
      const most = `${s.is_causal ? "" : `log₂ ${size} = `}${all.most.toFixed(2)}`;
      write(
        title,
        `The heads, counted from 0. Entropy in bits: 0 is each row on one token, ${most} is spread evenly`,
      );
    },
  };
}

function paintPixels(canvas, weights, size, colours) {
  if (canvas.width !== size) canvas.width = canvas.height = size;
  const context = canvas.getContext("2d");
  const image = context.createImageData(size, size);
  for (let i = 0; i < weights.length; i++) {
    const from = 4 * colourIndex(weights[i]);
    for (let c = 0; c < 4; c++) image.data[4 * i + c] = colours[from + c];
  }
  context.putImageData(image, 0, 0);
}
