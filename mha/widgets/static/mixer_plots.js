// The same output drawn twice, one scale and one column a feature: as bars, and as stacks of the heads' parts.

import { drawing, element, plainKey, write } from "./dom.js";
import { inHeadColour } from "./head_colours.js";
import { stackPieces } from "./mixing.js";

const STRIP = 33; // pixels of a block's height, the zero line in the middle
const BAR = [0.06, 0.94]; // from where to where in its column
const STACK = [0.22, 0.78];
const STRIPES = [[], [[0.43, 0.57]], [[0.34, 0.44], [0.56, 0.66]]]; // once and twice round the colours

/** Round steps that cut a range into three to six. */
export function tickSteps(low, high) {
  const rough = (high - low) / 6;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(i * step);
  return { ticks, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9)) };
}

const compactTick = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** A tick where five letters have room: 0.25, 250, 25K, 2e−7. */
export function tickText(value, digits) {
  const plain = digits > 4 ? value.toExponential(0) : value.toFixed(digits);
  const text = Number(value.toFixed(digits)) === 0 ? "0" : Math.abs(value) < 1e4 ? plain : compactTick.format(value);
  return digits > 0 && digits < 5 && text === "0" ? (0).toFixed(digits) : text.replaceAll("-", "−");
}

/** The concatenated z, cut into blocks: bars for the numbers of each head, flat where it is off. */
export function concatStrip({ nHeads }) {
  const blocks = Array.from({ length: nHeads }, (_, h) => {
    const canvas = element("canvas");
    const frame = element("span", { class: "mha-mix-numbers" }, canvas);
    const block = element("div", { class: "mha-mix-block" }, frame, element("span", { text: h }));
    return { canvas, block: inHeadColour(block, h) };
  });
  let drawn = null;
  return {
    node: element(
      "div",
      { class: "mha-mix-strip", "aria-hidden": "true" },
      element("span", { class: "mha-mix-z", text: "z" }),
      ...blocks.map(({ block }) => block),
    ),
    blocks: blocks.map(({ block }) => block),
    update(s, mix) {
      if (drawn === mix.z) return;
      drawn = mix.z;
      const width = mix.z.length / nHeads;
      const middle = (STRIP - 1) / 2;
      blocks.forEach(({ canvas, block }, h) => {
        block.toggleAttribute("data-off", s.off.includes(h));
        [canvas.width, canvas.height] = [width, STRIP]; // clears it; one pixel wide a number
        const context = canvas.getContext("2d");
        context.fillStyle = "#000"; // inverted by the style sheet in the dark
        context.fillRect(0, middle, width, 1);
        for (let c = 0; c < width; c++) {
          const height = Math.round((middle * mix.z[h * width + c]) / mix.largest);
          if (height > 0) context.fillRect(c, middle - height, 1, height);
          if (height < 0) context.fillRect(c, middle + 1, 1, -height);
        }
      });
    },
  };
}

/** One path for a whole row of boxes: box j lies in column j, from one height to another, or is left out. */
function boxes(ends, [left, right], place) {
  return ends
    .map(([from, to], j) => {
      if (from === to) return "";
      return `M${j + left} ${place(from)}V${place(to)}H${j + right}V${place(from)}Z`;
    })
    .join("");
}

/** One path for a row of level lines, each across the bar of its column. */
function levels(heights, place) {
  return heights.reduce((path, y, j) => `${path}M${j + BAR[0]} ${place(y)}H${j + BAR[1]}`, "");
}

const shape = (name) => drawing("path", { class: `mha-mix-${name}` });

/** A plot with ticks, one column of width 1 a feature and 100 high, and a band behind the chosen one. */
function columnPlot(nFeatures, shapes) {
  const ticks = element("div", { class: "mha-mix-ticks", "aria-hidden": "true" });
  const band = element("div", { class: "mha-mix-band" });
  const zero = element("div", { class: "mha-mix-zero" });
  const box = { viewBox: `0 0 ${nFeatures} 100`, preserveAspectRatio: "none", "aria-hidden": "true" };
  const plot = element("div", { class: "mha-mix-plot" }, ticks, band, zero, drawing("svg", box, ...shapes));
  band.style.setProperty("width", `${100 / nFeatures}%`);
  let range = null;
  return {
    plot,
    featureAt(event) {
      const { left, width } = plot.getBoundingClientRect();
      const place = Math.floor(((event.clientX - left) / width) * nFeatures);
      return Math.max(0, Math.min(nFeatures - 1, place));
    },
    choose: (feature) => band.style.setProperty("left", `${(100 * feature) / nFeatures}%`),
    scale(low, high, place) {
      if (range === `${low} ${high}`) return;
      range = `${low} ${high}`;
      const { ticks: at, digits } = tickSteps(low, high);
      ticks.replaceChildren(
        ...at.map((value) => {
          const tick = element("span", { text: tickText(value, digits) });
          tick.style.setProperty("top", `${place(value)}%`);
          return tick;
        }),
      );
      zero.style.setProperty("top", `${place(0)}%`);
    },
  };
}

/** Both plots and what joins them. `put({feature})` is called after an act of the reader. */
export function outputPlots({ nHeads, nFeatures, put, on, point, describedBy }) {
  const bars = { all: shape("bar"), ghost: shape("ghost"), halo: shape("halo"), cap: shape("cap") };
  // each part is one head's boxes in all columns; the bias comes last
  const parts = Array.from({ length: nHeads + 1 }, (_, h) => {
    const part = drawing("path", { class: "mha-mix-part", "data-head": h });
    return h < nHeads ? inHeadColour(part, h) : part;
  });
  const stripes = parts.map((part) => (part.dataset.round > 0 ? [shape("stripe")] : []));
  const stacks = {
    silhouette: shape("silhouette"),
    outline: shape("outline"),
    halo: shape("halo"),
    cap: shape("cap"),
  };
  const one = columnPlot(nFeatures, Object.values(bars));
  const two = columnPlot(nFeatures, [
    stacks.silhouette,
    ...parts.flatMap((part, h) => [part, ...stripes[h]]),
    stacks.outline,
    stacks.halo,
    stacks.cap,
  ]);
  const tip = element("div", { class: "mha-mix-tip", "aria-hidden": "true", hidden: "" });
  two.plot.append(tip);
  const keys = {
    tabindex: 0,
    role: "application",
    "aria-roledescription": "columns of y",
    "aria-label": "The shown features of y, one column each. The arrow keys choose a feature.",
    "aria-describedby": describedBy,
  };
  for (const [name, value] of Object.entries(keys)) two.plot.setAttribute(name, value);
  const every = nFeatures <= 12 ? 1 : nFeatures <= 24 ? 2 : 4; // where there is room for a number
  const numbers = Array.from({ length: nFeatures }, (_, j) =>
    element("span", { text: j, "data-spare": j % every ? "" : null }),
  );
  const axis = element("div", { class: "mha-mix-axis", "aria-hidden": "true" }, ...numbers);

  let now = null;
  let outlined = null;
  const outline = (head) => {
    outlined = head;
    stacks.outline.setAttribute("d", head === null ? "" : parts[head].getAttribute("d"));
  };
  const moveTo = (feature) => {
    if (feature !== now.s.feature) put({ feature });
  };
  for (const { plot, featureAt } of [one, two]) {
    on(plot, "click", (event) => {
      moveTo(featureAt(event));
      two.plot.focus({ preventScroll: true });
    });
  }
  on(two.plot, "keydown", (event) => {
    if (!plainKey(event)) return;
    const last = nFeatures - 1;
    const { feature } = now.s;
    const steps = { ArrowLeft: feature - 1, ArrowRight: feature + 1, Home: 0, End: last };
    if (!(event.key in steps)) return;
    event.preventDefault();
    moveTo(Math.max(0, Math.min(last, steps[event.key])));
  });
  on(two.plot, "pointermove", (event) => {
    if (event.pointerType === "touch") return;
    const part = event.target.closest(".mha-mix-part");
    tip.hidden = !part;
    if (!part) return point("pointer", null);
    const head = Number(part.dataset.head);
    const feature = two.featureAt(event);
    point("pointer", head < nHeads ? head : null);
    const value = head < nHeads ? now.mix.contributions[head * nFeatures + feature] : now.mix.bias[feature];
    write(tip, `feature ${feature}, ${head < nHeads ? `head ${head}` : "b_O"}: ${now.mix.text(value)}`);
    const inLeftHalf = feature < nFeatures / 2; // then the tip lies to the right of the column
    const columns = inLeftHalf ? feature + 1 : nFeatures - feature;
    tip.style.setProperty(inLeftHalf ? "left" : "right", `${(100 * columns) / nFeatures}%`);
    tip.style.setProperty(inLeftHalf ? "right" : "left", "auto");
  });
  on(two.plot, "pointerleave", () => {
    tip.hidden = true;
    point("pointer", null);
  });

  return {
    bars: one.plot,
    stacks: two.plot,
    axis,
    outline,
    update(s, mix) {
      const same = now?.mix === mix;
      if (now) numbers[now.s.feature].toggleAttribute("data-chosen", false);
      numbers[s.feature].toggleAttribute("data-chosen", true);
      now = { s, mix };
      for (const { choose } of [one, two]) choose(s.feature);
      if (same) return;
      const room = (mix.range[1] - mix.range[0]) * 0.04;
      const [low, high] = [mix.range[0] - room, mix.range[1] + room];
      const place = (value) => ((100 * (high - value)) / (high - low)).toFixed(3);
      for (const { scale } of [one, two]) scale(low, high, place);

      const draw = (node, path) => node.setAttribute("d", path);
      const fromZero = (values) => boxes([...values].map((y) => [0, y]), BAR, place);
      draw(bars.all, fromZero(mix.product));
      draw(bars.ghost, levels(mix.full, place));
      for (const node of [bars.halo, bars.cap]) draw(node, levels(mix.product, place));
      draw(stacks.silhouette, fromZero(mix.sums));
      for (const node of [stacks.halo, stacks.cap]) draw(node, levels(mix.sums, place));
      const columns = Array.from({ length: nFeatures }, (_, j) =>
        stackPieces(mix.contributions, mix.bias, s.off, j),
      );
      parts.forEach((part, h) => {
        const ends = columns.map((pieces) => pieces[h]);
        draw(part, boxes(ends, STACK, place));
        for (const stripe of stripes[h]) {
          const places = STRIPES[part.dataset.round];
          draw(stripe, places.map((sides) => boxes(ends, sides, place)).join(""));
        }
      });
      outline(outlined);
    },
  };
}
