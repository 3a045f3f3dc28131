// The rules that make a mask: buttons, and the numbers that padding and windows take.

import { element, write } from "./dom.js";
import { ruleMask } from "./painter_maths.js";

const BUTTONS = [
  ["all", ["everything"]],
  ["causal", ["causal"]],
  ["padding", ["padding"]],
  ["window", ["window"]],
  ["causal and padding", ["causal", "padding"]],
  ["causal and window", ["causal", "window"]],
  ["none", ["nothing"]],
];

/** `set(mask)` is called after an act of the reader. */
export function painterControls({ id, count, on, set, invert, restart }) {
  const numbers = { real: Math.max(1, count - 2), before: Math.min(1, count - 1), after: 0 };
  const buttons = BUTTONS.map(([name, rules]) => {
    const button = element("button", { type: "button", "data-role": `rule ${name}`, text: name });
    on(button, "click", () => set(ruleMask(rules, numbers, count)));
    return { button, rules };
  });
  const other = [
    ["invert", "invert", invert],
    ["restart", "Start again", restart],
  ].map(([role, text, act]) => {
    const button = element("button", { type: "button", "data-role": role, text });
    on(button, "click", act);
    return button;
  });
  let now = null;
  const fits = (rules) => ruleMask(rules, numbers, count).every((one, at) => one === now.mask[at]);

  const slider = (name, text, low, high, rule) => {
    const limits = { min: low, max: high, step: 1 };
    const input = element("input", { type: "range", id: `${id}-${name}`, "data-role": name, ...limits });
    const out = element("output", { for: input.id });
    input.value = numbers[name];
    write(out, String(numbers[name]));
    on(input, "input", () => {
      const rules = buttons.map((one) => one.rules).filter((one) => one.includes(rule));
      const used = rules.find(fits) ?? [rule]; // the rule that is in use, with its number before
      numbers[name] = Number(input.value);
      write(out, input.value);
      set(ruleMask(used, numbers, count));
    });
    return [element("label", { for: input.id, text }), input, out];
  };
  return {
    node: element(
      "div",
      { class: "mha-paint-controls" },
      element(
        "div",
        { class: "mha-paint-buttons", role: "group", "aria-label": "Rules that make a mask" },
        ...buttons.map(({ button }) => button),
      ),
      element("div", { class: "mha-paint-buttons" }, ...other),
      element(
        "div",
        { class: "mha-paint-numbers" },
        ...slider("real", "tokens that are not padding", 1, count, "padding"),
        ...slider("before", "window: tokens before", 0, count - 1, "window"),
        ...slider("after", "window: tokens after", 0, count - 1, "window"),
      ),
    ),
    update(state) {
      now = state;
      buttons.forEach(({ button, rules }) => button.setAttribute("aria-pressed", fits(rules)));
    },
  };
}
