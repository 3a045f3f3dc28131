// What the reader moves: a slider for each logit beside the bar of its weight, the temperature, four states.

import { element, fixedText, plainKey, write } from "./dom.js";
import { shareText } from "./jacobian_words.js";

const LARGEST = 10; // of a logit, as in softmax_jacobian.py
const HOTTEST = 20; // the coldest is 1/20, so that 1 is in the middle
const [HIGH, LOW] = [5, -5]; // of the buttons: e^−10 is far enough
const STEPS = { plain: 0.1, shift: 0.01, page: 1 };

/** Where a key takes a logit; null where it takes it nowhere. Six decimals: 0.1 + 0.2 is 0.3. */
export function logitByKey(event, now) {
  const step = event.shiftKey ? STEPS.shift : STEPS.plain;
  const places = {
    ArrowLeft: now - step,
    ArrowDown: now - step,
    ArrowRight: now + step,
    ArrowUp: now + step,
    PageDown: now - STEPS.page,
    PageUp: now + STEPS.page,
    Home: -LARGEST,
    End: LARGEST,
  };
  if (!(event.key in places) || !plainKey(event)) return null;
  event.preventDefault();
  return Number(Math.max(-LARGEST, Math.min(LARGEST, places[event.key])).toFixed(6)) + 0;
}

/** `move(k, logit)` is called after an act of the reader. */
export function logitRows({ id, on, move }) {
  const head = element(
    "div",
    { class: "mha-jac-row mha-jac-head", "aria-hidden": "true" },
    element("span", { class: "mha-jac-over", text: `logit, −${LARGEST} to ${LARGEST}` }),
    element("span", { class: "mha-jac-under", text: "weight p, 0 to 1" }),
  );
  const node = element("div", { class: "mha-jac-rows" });
  let rows = [];
  let names = null;
  let now = null; // what update() was last given
  const build = () => {
    names = now.names;
    rows = names.map((name, k) => {
      const slider = element("input", {
        type: "range",
        id: `${id}-logit-${k}`,
        "data-role": "logit",
        "aria-label": `logit of ${name}`,
        min: -LARGEST,
        max: LARGEST,
        step: STEPS.plain,
      });
      on(slider, "input", () => move(k, Number(slider.value)));
      on(slider, "keydown", (event) => {
        const logit = logitByKey(event, now.logits[k]);
        if (logit !== null && logit !== now.logits[k]) move(k, logit);
      });
      const logit = element("span", { class: "mha-jac-number", "data-role": "logit-out" }); // 12 <output> would all be said
      const bar = element("span", { class: "mha-jac-bar", "aria-hidden": "true" });
      const weight = element("span", { class: "mha-jac-number mha-jac-weight", "data-role": "weight" });
      const label = element("label", { for: slider.id, class: "mha-jac-name", title: name, text: name });
      const row = element("div", { class: "mha-jac-row" }, label, slider, logit, bar, weight);
      return { row, slider, logit, bar, weight };
    });
    node.style.setProperty("--letters", Math.max(...names.map((name) => name.length)));
    node.replaceChildren(head, ...rows.map(({ row }) => row));
  };
  return {
    node,
    update(state) {
      now = state;
      if (names !== state.names) build();
      const { p, rest } = state.all;
      rows.forEach(({ row, slider, logit, bar, weight }, k) => {
        const value = state.logits[k];
        const [text, share] = [fixedText(value, 2), shareText(p[k], rest[k])];
        slider.value = value;
        slider.setAttribute("aria-valuetext", `${text}, weight ${share}`);
        slider.style.setProperty("--at", (value + LARGEST) / (2 * LARGEST));
        write(logit, text);
        bar.style.setProperty("--weight", p[k]);
        Object.assign(weight.dataset, { weight: p[k], logit: value });
        write(weight, share);
        row.toggleAttribute("data-moved", k === state.cell[1]);
      });
    },
  };
}

/** The logits of a button: the heaviest `many` high, the others low. The first in order win a tie. */
export function raised(p, many) {
  const order = [...p.keys()].sort((one, other) => p[other] - p[one] || one - other);
  const chosen = order.slice(0, many).sort((one, other) => one - other);
  return { chosen, logits: Array.from(p, (_, i) => (chosen.includes(i) ? HIGH : LOW)) };
}

/** The temperature and the four buttons. `put` and `restart` are called after an act of the reader. */
export function jacobianSettings({ id, on, put, restart }) {
  const heat = element("input", {
    type: "range",
    id: `${id}-temperature`,
    "data-role": "temperature",
    min: -100,
    max: 100,
    step: 1,
  });
  on(heat, "input", () => put({ temperature: Number((HOTTEST ** (heat.value / 100)).toPrecision(3)) }));
  const out = element("output", { for: heat.id, class: "mha-jac-number", "data-role": "temperature-out" });
  let now = null; // what update() was last given
  const button = (role, text, act) => {
    const node = element("button", { type: "button", "data-role": role, text });
    on(node, "click", act);
    return node;
  };
  const lift = (many) => () => {
    const { chosen, logits } = raised(now.all.p, many);
    put({ logits, temperature: 1, cell: [chosen[0], chosen.at(-1)] });
  };
  const buttons = element(
    "div",
    { class: "mha-jac-buttons" },
    button("tie", "Tie", lift(2)),
    button("dominates", "One dominates", lift(1)),
    button("equal", "All equal", () => put({ logits: now.logits.map(() => 0), temperature: 1 })),
    button("restart", "Start again", restart),
  );
  return {
    node: element(
      "div",
      { class: "mha-jac-settings" },
      buttons,
      element(
        "div",
        { class: "mha-jac-heat" },
        element("label", { for: heat.id, text: "temperature τ" }),
        heat,
        out,
      ),
    ),
    update(state) {
      now = state;
      const text = String(Number(state.temperature.toPrecision(3)));
      heat.value = (100 * Math.log(state.temperature)) / Math.log(HOTTEST);
      heat.setAttribute("aria-valuetext", text);
      write(out, text);
    },
  };
}
