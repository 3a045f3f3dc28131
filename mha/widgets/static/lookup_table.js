// The lookup in numbers: a row a key, the sum written out, and the values on an axis.

import { drawing, element, fixedText, numberText, weightText, write } from "./dom.js";
import { LETTER, labelLevels, shortened } from "./labels.js";

const AXIS = { width: 330, side: 30, top: 4, line: 15, dot: 12 }; // the drawing's own units

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

/** A number as it was given where it is whole, else its first three digits; 123K from 100,000 on. */
export function valueText(value) {
  if (Math.abs(value) >= 1e5) return compact.format(value).replace("-", "−");
  return Number.isInteger(value) ? String(value).replace("-", "−") : numberText(value);
}

/** Whether names, values or unit have changed since something was built of them. */
const outdated = (built, state) => ["names", "values", "unit"].some((name) => built[name] !== state[name]);

/** Three decimals, from 10 on one. */
export function scoreText(score) {
  return fixedText(score, Math.abs(score) < 10 ? 3 : 1);
}

/** A row a key: name, score, logit, weight as a bar and a number, value; below, the output. */
export function lookupTable({ id }) {
  const head = (text, more) => element("th", { scope: "col", ...more }, text);
  const unitHead = head("value", { class: "mha-lookup-value" });
  const body = element("tbody");
  const table = element(
    "table",
    { class: "mha-lookup-table", "aria-label": "The keys, their scores, weights and values" },
    element(
      "thead",
      {},
      element(
        "tr",
        {},
        head("key", { class: "mha-lookup-key" }),
        head("score"),
        head("logit"),
        head("weight", { class: "mha-lookup-weight" }),
        unitHead,
      ),
    ),
    body,
  );
  const sum = element("span", { class: "mha-lookup-terms" });
  const result = element("b", { "data-role": "output" });
  const output = element("p", { class: "mha-lookup-sum", id: `${id}-sum` }, "output = ", sum, " = ", result);
  let rows = [];
  let built = {};
  const build = ({ names, values, unit }) => {
    built = { names, values, unit };
    write(unitHead, unit ? `value, ${unit}` : "value");
    rows = names.map((name, j) => {
      const [score, logit] = [element("td"), element("td")];
      const bar = element("span", { class: "mha-lookup-bar", "aria-hidden": "true" });
      const weight = element("span");
      const row = element(
        "tr",
        { "data-key": j, "data-value": values[j] },
        element("th", { scope: "row", class: "mha-lookup-key", text: name }),
        score,
        logit,
        element("td", { class: "mha-lookup-weight" }, element("span", {}, bar, weight)),
        element("td", { class: "mha-lookup-value", text: valueText(values[j]) }),
      );
      const factor = element("span", { class: "mha-lookup-factor" });
      const value = element("span", { class: "mha-lookup-of", text: valueText(values[j]) });
      const term = element("span", { class: "mha-lookup-term" }, factor, " × ", value);
      return { row, score, logit, bar, weight, factor, term };
    });
    body.replaceChildren(...rows.map(({ row }) => row));
    sum.replaceChildren(...rows.flatMap(({ term }, j) => (j ? [" + ", term] : [term])));
  };
  return {
    node: element("div", { class: "mha-lookup-numbers" }, table, output),
    update(state) {
      const { unit, key, all } = state;
      if (outdated(built, state)) build(state);
      rows.forEach(({ row, score, logit, bar, weight, factor }, j) => {
        Object.assign(row.dataset, { score: all.scores[j], logit: all.logits[j], weight: all.weights[j] });
        row.toggleAttribute("data-chosen", j === key);
        write(score, scoreText(all.scores[j]));
        write(logit, scoreText(all.logits[j]));
        bar.style.setProperty("--weight", all.weights[j]);
        for (const node of [weight, factor]) write(node, weightText(all.weights[j]));
      });
      result.dataset.output = all.output;
      write(result, withUnit(all.output, unit));
    },
  };
}

/** "460 m", with a space where no line breaks. */
export function withUnit(value, unit) {
  return unit ? `${valueText(value)}\u00a0${unit}` : valueText(value);
}

/** The values on a line, each a dot as large as its weight, and the output as a mark below. */
export function valueAxis() {
  const svg = drawing("svg", { class: "mha-lookup-axis", "aria-hidden": "true" });
  let dots = [];
  let mark = null;
  let built = {};
  let scale = null; // value -> place
  let base = 0; // the height of the axis in the drawing
  const inside = (x, width) => Math.max(width / 2 + 1, Math.min(AXIS.width - width / 2 - 1, x));
  const build = ({ names, values, unit }) => {
    built = { names, values, unit };
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const span = AXIS.width - 2 * AXIS.side;
    scale = (value) => AXIS.side + span * (high > low ? (value - low) / (high - low) : 0.5);
    const widths = names.map((name) => LETTER * (shortened(name).length + 6)); // with its weight
    const middles = values.map((value, j) => inside(scale(value), widths[j]));
    const levels = labelLevels(middles, widths);
    const under = labelLevels(
      values.map((value) => inside(scale(value), LETTER * valueText(value).length)),
      values.map((value) => LETTER * valueText(value).length),
    );
    base = AXIS.top + AXIS.line * (Math.max(...levels) + 1) + AXIS.dot + 4;
    const foot = base + AXIS.line * (Math.max(...under) + 1) + 16;
    dots = values.map((value, j) => {
      const x = scale(value);
      const dot = drawing("circle", { class: "mha-lookup-dot", cx: x, cy: base });
      const weight = drawing("tspan", { class: "mha-lookup-part" });
      const y = base - AXIS.dot - 6 - AXIS.line * levels[j];
      const label = drawing(
        "text",
        { x: middles[j], y, "text-anchor": "middle" },
        `${shortened(names[j])} `,
        weight,
      );
      const lead = drawing("path", { class: "mha-lookup-lead", d: `M${x} ${base}V${y + 3}` });
      const number = drawing("text", {
        class: "mha-lookup-of",
        x: inside(x, LETTER * valueText(value).length),
        y: base + AXIS.line * (under[j] + 1) + 4,
        "text-anchor": "middle",
        text: valueText(value),
      });
      return { dot, weight, below: lead, nodes: [dot, label, number] };
    });
    mark = {
      line: drawing("path", { class: "mha-lookup-mark" }),
      text: drawing("text", { class: "mha-lookup-result", y: foot + 12, "text-anchor": "middle" }),
      foot,
    };
    const axis = drawing("path", { class: "mha-lookup-line", d: `M4 ${base}H${AXIS.width - 4}` });
    svg.setAttribute("viewBox", `0 0 ${AXIS.width} ${foot + 18}`);
    const over = dots.flatMap(({ nodes }) => nodes); // numbers stay readable where the mark passes
    svg.replaceChildren(axis, ...dots.map(({ below }) => below), mark.line, ...over, mark.text);
  };
  return {
    node: svg,
    update(state) {
      const { unit, all } = state;
      if (outdated(built, state)) build(state);
      dots.forEach(({ dot, weight }, j) => {
        dot.setAttribute("r", Math.max(1.5, AXIS.dot * Math.sqrt(all.weights[j]))); // its area is the weight
        write(weight, weightText(all.weights[j]));
      });
      const x = scale(all.output);
      const text = `output ${withUnit(all.output, unit)}`;
      mark.line.setAttribute("d", `M${x} ${base - 14}V${mark.foot}m0 -6l-5 8h10z`);
      write(mark.text, text);
      mark.text.setAttribute("x", inside(x, 1.2 * LETTER * text.length)); // bold
    },
  };
}
