import { element, fixedText, write } from "./dom.js";
import { frame } from "./frame.js";
import { jacobianSettings, logitRows } from "./jacobian_logits.js";
import { jacobianMap } from "./jacobian_map.js";
import { softmaxSlopes } from "./jacobian_maths.js";
import { jacobianFigures, slopeReadout } from "./jacobian_readout.js";
import { effect, status } from "./jacobian_words.js";

const STATE = ["logits", "names", "temperature", "cell"];

/** The model's state and what follows from it. */
function snapshot(model) {
  const state = Object.fromEntries(STATE.map((name) => [name, model.get(name)]));
  return { ...state, all: softmaxSlopes(state.logits, state.temperature) };
}

/** What an act has changed, then what is the case. */
function spoken(s, before) {
  const moved = s.logits.flatMap((logit, k) => (logit === before?.logits[k] ? [] : [k]));
  const said = [];
  if (moved.length === 1) said.push(`Logit of ‘${s.names[moved[0]]}’ ${fixedText(s.logits[moved[0]], 2)}.`);
  if (s.temperature !== before?.temperature)
    said.push(`Temperature ${Number(s.temperature.toPrecision(3))}.`);
  const sameCell = String(s.cell) === String(before?.cell);
  if (!said.length && !moved.length && !sameCell) return effect(s); // the rest is as it was
  return [...said, status(s)].join(" ");
}

function render({ model, el }) {
  const view = frame(model, STATE);
  const { put } = view;
  const move = (k, logit) => put({ logits: model.get("logits").map((one, j) => (j === k ? logit : one)) });
  const parts = { ...view, move, restart: () => put(model.get("_start")) };

  const settings = jacobianSettings(parts);
  const rows = logitRows(parts);
  const map = jacobianMap(parts);
  const readout = slopeReadout();
  const figures = jacobianFigures();
  const state = element("p", { class: "mha-jac-status", "data-role": "status" });
  const help = element("p", {
    class: "mha-jac-help",
    text: "Drag a logit, or focus it: the arrow keys move it by 0.1, with Shift by 0.01, Page Up and Page Down by 1.",
  });
  const meaning = element("p", {
    class: "mha-jac-meaning",
    text: "z = logit / τ, p = softmax(z). The map shows J = ∂p / ∂z, the slope after the division by τ.",
  });
  const root = element(
    "div",
    { class: "mha-jac" },
    settings.node,
    rows.node,
    help,
    state,
    meaning,
    element(
      "div",
      { class: "mha-jac-main" },
      map.node,
      element("div", { class: "mha-jac-right" }, readout.node, figures.node),
    ),
  );

  let drawn = null;
  return view.show({
    el,
    root,
    label: "Softmax and its Jacobian",
    drawAll() {
      const s = snapshot(model);
      for (const part of [settings, rows, map, readout, figures]) part.update(s);
      write(state, status(s));
      const said = spoken(s, drawn);
      drawn = s;
      return said;
    },
  });
}

export default { render };
