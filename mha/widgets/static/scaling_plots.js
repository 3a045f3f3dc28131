// The drawings: a histogram of the logits with the predicted density, and the weights of one row.

import { drawing, element, write } from "./dom.js";
import { N_KEYS } from "./scaling_draw.js";
import { N_BINS } from "./scaling_maths.js";

const WIDE = 360;
const HIGH = 130; // of a plot, without its axis
const N_TICKS = 5;
const N_POINTS = 120; // of the density
const GAP = 0.15; // of a weight's column

/** A number of an axis: its powers of two need no rounding. */
function tickText(value) {
  return String(Math.abs(value)) === "0" ? "0" : String(value).replace("-", "−");
}

/** Upright boxes side by side as one path: box j goes from the ground to `heights[j]`, 1 is the top. */
function boxes(heights, gap = 0) {
  const width = WIDE / heights.length;
  return heights
    .map((height, j) => {
      const [left, right] = [(j + gap) * width, (j + 1 - gap) * width];
      const top = HIGH * (1 - height);
      return `M${left.toFixed(2)} ${HIGH}V${top.toFixed(2)}H${right.toFixed(2)}V${HIGH}Z`;
    })
    .join("");
}

function plot(role, high, ...parts) {
  const box = { viewBox: `0 0 ${WIDE} ${high}`, role: "img", "data-role": role };
  return drawing("svg", box, ...parts, drawing("path", { class: "mha-scale-ground", d: `M0 ${HIGH}H${WIDE}` }));
}

/** The logits of all rows. */
export function logitPlot() {
  const band = drawing("rect", { class: "mha-scale-band", y: 0, height: HIGH });
  const bars = drawing("path", { class: "mha-scale-bars" });
  const line = drawing("path", { class: "mha-scale-line" });
  const ticks = Array.from({ length: N_TICKS }, (_, i) => {
    const anchor = i === 0 ? "start" : i === N_TICKS - 1 ? "end" : "middle";
    return drawing("text", { x: (WIDE * i) / (N_TICKS - 1), y: HIGH + 14, "text-anchor": anchor });
  });
  const svg = plot("histogram", HIGH + 18, band, bars, line, ...ticks);
  return {
    node: element("div", { class: "mha-scale-plot" }, svg),
    update({ known, histogram, logits }) {
      const { low, high, width, counts } = histogram;
      const deviation = Math.sqrt(known.variance);
      const peak = 1 / (deviation * Math.sqrt(2 * Math.PI));
      const densities = counts.map((count) => count / logits.length / width);
      const top = 1.08 * Math.max(peak, ...densities);
      bars.setAttribute("d", boxes(densities.map((density) => density / top)));
      const place = (logit) => (WIDE * (logit - low)) / (high - low);
      const points = Array.from({ length: N_POINTS + 1 }, (_, i) => {
        const logit = low + ((high - low) * i) / N_POINTS;
        const share = (peak * Math.exp(-(((logit - known.mean) / deviation) ** 2) / 2)) / top;
        return `${place(logit).toFixed(2)} ${(HIGH * (1 - share)).toFixed(2)}`;
      });
      line.setAttribute("d", `M${points.join("L")}`);
      const [left, right] = [Math.max(0, place(known.mean - 1)), Math.min(WIDE, place(known.mean + 1))];
      band.setAttribute("x", left.toFixed(2));
      band.setAttribute("width", Math.max(1, right - left).toFixed(2));
      ticks.forEach((tick, i) => write(tick, tickText(low + ((high - low) * i) / (N_TICKS - 1))));
      const ends = `${tickText(low)} to ${tickText(high)}`;
      svg.setAttribute("aria-label", `Histogram of ${logits.length} logits in ${N_BINS} bars, axis from ${ends}`);
    },
  };
}

/** The weights of one row; the dashed line is an even share. */
export function weightPlot() {
  const bars = drawing("path", { class: "mha-scale-weights" });
  const even = HIGH * (1 - 1 / N_KEYS);
  const share = drawing("path", { class: "mha-scale-even", d: `M0 ${even.toFixed(2)}H${WIDE}` });
  const ends = [
    drawing("text", { x: 0, y: 10, text: "weight 1" }),
    drawing("text", { x: 0, y: HIGH + 14, text: "key 0" }),
    drawing("text", { x: WIDE, y: HIGH + 14, "text-anchor": "end", text: `key ${N_KEYS - 1}` }),
  ];
  const svg = plot("weights", HIGH + 18, bars, share, ...ends);
  return {
    node: element("div", { class: "mha-scale-plot" }, svg),
    update(s) {
      bars.setAttribute("d", boxes([...s.all.row.p], GAP));
      svg.setAttribute("aria-label", `Weights of query ${s.row} on its ${N_KEYS} keys`);
    },
  };
}
