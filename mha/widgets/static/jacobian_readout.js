// One slope taken apart: by the formula, measured, by the logit itself. And the Jacobian in three numbers.

import { element, fixedText, numberText, withIndex, write } from "./dom.js";
import { STEP, centralDifference } from "./jacobian_maths.js";
import { agreement, effect, factorText, slopeText } from "./jacobian_words.js";

const LONG = 8; // decimals in which the formula and the measured slope are compared

/** Eight decimals, or three digits and a power of ten. */
function longText(value) {
  return Math.abs(value) >= 0.001 ? fixedText(value, LONG) : slopeText(value);
}

/** The chosen cell, with its numbers filled in. */
export function slopeReadout() {
  const span = (role) => element("span", { "data-role": role });
  const index = () => element("sub");
  const [row, column, formula, factors, result] = ["row", "column", "formula", "factors", "slope"].map(span);
  const [measured, verdict, words, division, byLogit] = [
    "measured",
    "verdict",
    "effect",
    "division",
    "by-logit",
  ].map(span);
  const line = (...children) => element("p", {}, ...children);
  const mathLine = (...children) => element("p", { class: "mha-jac-maths" }, ...children);
  const symbols = { p: [], z: [] }; // the <sub> of every p_i and z_k
  const p = () => {
    const sub = index();
    symbols.p.push(sub);
    return ["p", sub];
  };
  const z = () => {
    const sub = index();
    symbols.z.push(sub);
    return ["z", sub];
  };
  const slope = () => ["∂", ...p(), " / ∂", ...z()];
  const whole = (...children) => element("span", { class: "mha-jac-whole" }, ...children);
  const byItself = index();
  const node = element(
    "div",
    { class: "mha-jac-readout", "data-role": "readout" },
    line(words),
    mathLine(
      whole(...slope(), " = ", formula),
      whole(" = ", factors),
      whole(" = ", element("b", {}, result)),
    ),
    element("p", { class: "mha-jac-note", text: "Measured by a central difference:" }),
    mathLine(
      whole("(", ...p(), " at ", ...z(), " + h, less "),
      whole(...p(), " at ", ...z(), " − h) / 2h"),
      whole(" = ", element("b", {}, measured)),
    ),
    element("p", { class: "mha-jac-note" }, `h = ${STEP}. `, verdict),
    element("p", { class: "mha-jac-note" }, "By the logit itself, before its division by τ:"),
    mathLine(
      whole("∂", ...p(), " / ∂logit", byItself, " = ", division),
      whole(" = ", element("b", {}, byLogit)),
    ),
  );
  return {
    node,
    update(state) {
      const {
        names,
        cell: [i, k],
        temperature,
        all,
      } = state;
      for (const sub of symbols.p) write(sub, names[i]);
      for (const sub of [...symbols.z, byItself]) write(sub, names[k]);
      const own = i === k;
      const key = `${own} ${names[i]} ${names[k]}`;
      if (formula.dataset.key !== key) {
        formula.dataset.key = key;
        const [one, other] = [withIndex("p", names[i]), withIndex("p", names[k])];
        formula.replaceChildren(...(own ? [...one, " (1 − ", ...other, ")"] : ["−", ...one, " ", ...other]));
      }
      const value = all.slopes[i * names.length + k];
      const found = centralDifference(all.z, i, k);
      const first = factorText(all.p[i], all.rest[i]);
      write(
        factors,
        own ? `${first} · ${slopeText(all.rest[i])}` : `−${first} · ${factorText(all.p[k], all.rest[k])}`,
      );
      write(result, longText(value));
      write(measured, longText(found));
      write(verdict, agreement(value, found));
      write(words, effect(state));
      const shown = slopeText(value);
      write(division, `${shown} / ${Number(temperature.toPrecision(3))}`);
      write(byLogit, slopeText(value / temperature));
      Object.assign(node.dataset, { slope: value, measured: found, byLogit: value / temperature });
    },
  };
}

/** The norm, the largest eigenvalue and its bound as bars on one scale, 0 to ½; the sum of a row. */
export function jacobianFigures() {
  const row = (role, ...name) => {
    const bar = element("span", { class: "mha-jac-gauge", "aria-hidden": "true" });
    const number = element("span", { class: "mha-jac-number", "data-role": role });
    const node = element("div", { class: "mha-jac-figure" }, element("span", {}, ...name), bar, number);
    const show = (value) => {
      bar.style.setProperty("--size", 2 * value);
      number.dataset.value = value;
      write(number, slopeText(value));
    };
    return { node, show };
  };
  const norm = row("norm", "‖J‖", element("sub", { text: "F" }));
  const eigenvalue = row("eigenvalue", "largest eigenvalue");
  const bound = row("bound", "its bound");
  const factor = element("span", { "data-role": "factor" });
  return {
    node: element(
      "div",
      { class: "mha-jac-figures" },
      norm.node,
      eigenvalue.node,
      bound.node,
      element("p", {
        class: "mha-jac-note",
        text: "Bars from 0 to ½; none is ever larger. The bound is the smaller of max p and 2 · max p · (1 − max p). Each row and each column sums to 0.",
      }),
      element("p", { class: "mha-jac-note" }, factor),
    ),
    update({ temperature, all }) {
      norm.show(all.norm);
      eigenvalue.show(all.eigenvalue);
      bound.show(all.bound);
      const times = `1/τ = ${numberText(1 / temperature)}`;
      write(
        factor,
        temperature === 1
          ? "τ is 1 now: z is the logit itself."
          : `By the logits themselves, J and all of this is multiplied by ${times}.`,
      );
    },
  };
}
