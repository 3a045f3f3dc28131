import { element, write } from "./dom.js";
import { frame } from "./frame.js";
import { rowControl, scalingControls } from "./scaling_controls.js";
import { sampleOf } from "./scaling_draw.js";
import { explored } from "./scaling_maths.js";
import { logitPlot, weightPlot } from "./scaling_plots.js";
import { gradientTable, momentTable } from "./scaling_tables.js";
import { DRAWN, caption, formulas, legend, rowText, spoken, status } from "./scaling_words.js";

const STATE = ["d_k", "scale", "mean", "correlation", "seed", "row"];
const AT_ONCE = 4; // rows of a wider width, drawn while nothing else happens

/** Samples by seed; the widths that come next are drawn ahead, a few rows at a time. */
function samples(signal) {
  let sample = null;
  let timer = 0;
  signal.addEventListener("abort", () => clearTimeout(timer));
  const ahead = () => {
    for (let i = 0; i < AT_ONCE; i++) if (!sample.step()) return;
    timer = setTimeout(ahead, 0);
  };
  return (seed, width) => {
    if (sample?.seed !== seed) {
      clearTimeout(timer);
      sample = sampleOf(seed);
      timer = setTimeout(ahead, 0);
    }
    return sample.at(width);
  };
}

/** A formula in three parts, each unbroken. */
function formula(name) {
  const parts = Array.from({ length: 3 }, () => element("span"));
  const [first, second, third] = parts;
  return {
    node: element("p", { class: "mha-scale-formula", "data-role": `${name}-formula` }, first, " ", second, " ", third),
    show: (texts) => texts.forEach((text, i) => write(parts[i], text)),
  };
}

function render({ model, el }) {
  const view = frame(model, STATE);
  const { put } = view;
  const get = (name) => model.get(name);
  const parts = { ...view, get, restart: () => put(model.get("_start")) };
  const sumsOf = samples(view.signal);

  const controls = scalingControls(parts);
  const row = rowControl(parts);
  const [histogram, weights] = [logitPlot(), weightPlot()];
  const [moments, gradients] = [momentTable(), gradientTable()];
  const text = (name) => element("p", { class: `mha-scale-${name}`, "data-role": name });
  const [mean, variance] = [formula("mean"), formula("variance")];
  const [about, one, below, state] = ["caption", "one", "legend", "status"].map(text);
  const root = element(
    "div",
    { class: "mha-scale" },
    controls.node,
    state,
    element(
      "div",
      { class: "mha-scale-main" },
      element("div", { class: "mha-scale-side" }, histogram.node, about, moments.node, mean.node, variance.node),
      element("div", { class: "mha-scale-side" }, weights.node, row.node, one, gradients.node, below),
    ),
    element("p", { class: "mha-scale-drawn", text: DRAWN }),
  );

  let drawn = null;
  return view.show({
    el,
    root,
    label: "Scaling explorer",
    drawAll() {
      const s = Object.fromEntries(STATE.map((name) => [name, get(name)]));
      s.all = explored(s, sumsOf(s.seed, s.d_k));
      for (const part of [controls, row, weights, moments, gradients]) part.update(s);
      histogram.update(s.all);
      const known = formulas(s);
      mean.show(known.mean);
      variance.show(known.variance);
      write(about, caption(s));
      write(one, rowText(s));
      write(below, legend(s));
      write(state, status(s));
      const said = spoken(s, drawn);
      drawn = s;
      return said;
    },
  });
}

export default { render };
