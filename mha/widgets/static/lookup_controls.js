// What the reader sets: an arrow by direction and length, how arrows are compared, the temperature.

import { LONGEST, atLongest, direction, fromPolar, lengthOf } from "./arrows.js";
import { element, fixedText, write } from "./dom.js";

const HOTTEST = 20; // as in soft_lookup.py; the coldest is 1/20, so that 1 is in the middle
const MEASURES = { dot: "dot product", cosine: "cosine" };

/** The numbers of an arrow, to two decimals. */
export function arrowText(arrow) {
  return `(${arrow.map((one) => fixedText(one, 2)).join(", ")})`;
}

const COMPASS = ["east", "north", "west", "south"];
const SIDES = ["the right", "up", "the left", "down"];

/** "53° north of east" where keys bear such names, else "53° up from the right"; whole degrees. */
export function headingText(degrees, names) {
  const compass = names.some((name) => COMPASS.includes(name.trim().toLowerCase()));
  const words = compass ? COMPASS : SIDES;
  const turn = ((Math.round(degrees) % 360) + 360) % 360;
  if (turn % 90 === 0) return compass || turn % 180 ? words[turn / 90] : `to ${words[turn / 90]}`;
  const start = turn < 90 || turn > 270 ? 0 : 2; // east or west, whichever is nearer
  const from = Math.min(Math.abs(turn - 90 * start), 360 - turn);
  return `${from}° ${words[turn < 180 ? 1 : 3]} ${compass ? "of" : "from"} ${words[start]}`;
}

/** A slider with its label before it and its value behind it, three cells of a grid. */
function slider({ id, role, label, ...limits }) {
  const input = element("input", { type: "range", id: `${id}-${role}`, "data-role": role, ...limits });
  const out = element("output", { for: input.id, "data-role": `${role}-out` });
  return {
    input,
    cells: [element("label", { for: input.id, text: label }), input, out],
    show(value, text, spoken = text) {
      input.value = value;
      input.setAttribute("aria-valuetext", spoken);
      write(out, text);
    },
  };
}

/** Which arrow, its direction and its length. */
export function arrowControls({ id, on, move, choose }) {
  const select = element("select", { id: `${id}-arrow`, "data-role": "arrow" });
  const where = element("span", { id: `${id}-where`, "data-role": "where" });
  const turn = slider({ id, role: "direction", label: "direction", min: 0, max: 360, step: 1 });
  const stretch = slider({ id, role: "length", label: "length", min: 0, max: LONGEST, step: 0.05 });
  const heads = element("p", { class: "mha-lookup-heading", "data-role": "heading" });
  const headings = new Map(); // arrow -> its last direction, for when its length is 0
  let now = null; // what update() was last given
  let names = null;
  on(select, "change", () => choose(select.value === "query" ? "query" : Number(select.value)));
  on(turn.input, "input", () => {
    headings.set(now.chosen, Number(turn.input.value));
    move(now.chosen, fromPolar(Number(turn.input.value), lengthOf(now.tip)));
    if (!lengthOf(now.tip)) show(); // the arrow is where it was, but not the slider
  });
  on(stretch.input, "input", () => move(now.chosen, fromPolar(heading(), Number(stretch.input.value))));
  const heading = () => direction(now.tip) ?? headings.get(now.chosen) ?? 0;
  function show() {
    const degrees = heading();
    headings.set(now.chosen, degrees);
    const words = headingText(degrees, names);
    // 0 and 360 are the same direction: the slider stays at the end it was moved to
    const same = Math.abs(((turn.input.value - degrees + 540) % 360) - 180) < 0.5;
    turn.show(same ? turn.input.value : Math.round(degrees), `${(Math.round(degrees) % 360).toFixed(0)}°`, words);
    stretch.show(lengthOf(now.tip), lengthOf(now.tip).toFixed(2));
    write(where, arrowText(now.tip));
    const pointing = lengthOf(now.tip) ? `points ${words}` : "length 0: points nowhere";
    write(heads, atLongest(now.tip) ? `${pointing}; length ${LONGEST} is the longest` : pointing);
  }
  return {
    node: element(
      "div",
      { class: "mha-lookup-arrow" },
      element("label", { for: select.id, text: "arrow" }),
      element("span", { class: "mha-lookup-which" }, select, where),
      ...turn.cells,
      ...stretch.cells,
      heads,
    ),
    update(state) {
      if (names !== state.names) {
        names = state.names;
        const options = state.arrows.map(({ arrow, name }) =>
          element("option", { value: arrow, text: name }),
        );
        select.replaceChildren(options.at(-1), ...options.slice(0, -1)); // the query first
      }
      now = { chosen: state.chosen, tip: state.arrows.find(({ arrow }) => arrow === state.chosen).tip };
      select.value = state.chosen;
      select.dataset.kind = state.chosen === "query" ? "query" : "key";
      show();
    },
  };
}

/** What a score is, the temperature, and back to the start. */
export function lookupSettings({ id, on, put, restart }) {
  const radios = Object.entries(MEASURES).map(([value, text]) => {
    const radio = element("input", { type: "radio", name: `${id}-measure`, value, "data-role": "measure" });
    on(radio, "change", () => put({ measure: value }));
    return { radio, label: element("label", {}, radio, text) };
  });
  const heat = slider({ id, role: "temperature", label: "temperature", min: -100, max: 100, step: 1 });
  on(heat.input, "input", () => {
    put({ temperature: Number((HOTTEST ** (heat.input.value / 100)).toPrecision(3)) });
  });
  const again = element("button", { type: "button", "data-role": "restart", text: "start again" });
  on(again, "click", restart);
  return {
    node: element(
      "div",
      { class: "mha-lookup-settings" },
      element(
        "fieldset",
        { class: "mha-lookup-measure" },
        element("legend", { text: "score by" }),
        ...radios.map(({ label }) => label),
      ),
      element("div", { class: "mha-lookup-heat" }, ...heat.cells),
    ),
    again,
    update({ measure, temperature }) {
      for (const { radio } of radios) radio.checked = radio.value === measure;
      heat.show(
        (100 * Math.log(temperature)) / Math.log(HOTTEST),
        String(Number(temperature.toPrecision(3))),
      );
    },
  };
}
