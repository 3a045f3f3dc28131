import { LONGEST, angleBetween, atLongest, cleared, cosine, lengthOf, lookUp } from "./arrows.js";
import { element, fixedText, weightText, write } from "./dom.js";
import { frame } from "./frame.js";
import { arrowPlane } from "./arrow_plane.js";
import { arrowControls, arrowText, lookupSettings } from "./lookup_controls.js";
import { lookupTable, scoreText, valueAxis, withUnit } from "./lookup_table.js";

const STATE = ["query", "key_arrows", "temperature", "measure", "chosen", "key", "values", "names", "unit"];
const ALONE = 0.95; // of the weight on one key: nearly that key alone
const EVEN = 0.01; // how far from 1/n all weights lie: nearly equal

/** The model's state, what follows from it, and all arrows, the query last. */
function snapshot(model) {
  const state = Object.fromEntries(STATE.map((name) => [name, model.get(name)]));
  const keys = state.key_arrows;
  const all = lookUp({ ...state, keys });
  const arrows = keys.map((tip, j) => ({ arrow: j, name: state.names[j], tip, weight: all.weights[j] }));
  arrows.push({ arrow: "query", name: "query", tip: state.query, weight: null });
  return { ...state, keys, all, arrows };
}

/** "north", "north and east", "north, east and south". */
function listed(words) {
  return words.length < 2 ? words.join() : `${words.slice(0, -1).join(", ")} and ${words.at(-1)}`;
}

/** The keys that share the largest of some numbers. */
function largest(numbers) {
  const most = Math.max(...numbers);
  return [...numbers.keys()].filter((j) => most - numbers[j] < 1e-9);
}

/** Which keys weigh most, in words. */
function heaviest({ names, all }) {
  const top = largest(all.weights);
  const weight = weightText(all.weights[top[0]]);
  const who = listed(top.map((j) => names[j]));
  return top.length === 1 ? `${who} weighs most, ${weight}` : `${who} weigh most, ${weight} each`;
}

/** Where this lookup lies between the best key alone and a plain mean, and what the lengths do. */
export function status(s) {
  const { names, values, unit, measure, all } = s;
  const count = names.length;
  const top = largest(all.weights);
  const mean = withUnit(cleared(values) / count, unit);
  const spread = Math.max(...all.weights.map((weight) => Math.abs(weight - 1 / count)));
  const said = [];
  if (spread < 1e-9) said.push(`Every weight is 1/${count}: the output is the mean of the values, ${mean}.`);
  else if (spread <= EVEN) {
    const near = (Math.ceil(1000 * spread) / 1000).toFixed(3);
    said.push(`All weights lie within ${near} of 1/${count}. The plain mean of the values is ${mean}.`);
  } else if (top.length > 1) {
    said.push(`No key alone is the best: ${heaviest(s)}.`);
  } else {
    const best = withUnit(values[top[0]], unit);
    const [name, weight] = [names[top[0]], all.weights[top[0]]];
    said.push(
      weight >= ALONE
        ? `${name} takes ${weightText(weight)} of the weight. The best key alone gives ${best}.`
        : `The best key alone gives ${best}, the mean of the values ${mean}. Here ${heaviest(s)}.`,
    );
  }
  const cosines = s.keys.map((key) => cosine(s.query, key));
  const nearest = largest(cosines)[0];
  if (top.length === 1 && cosines[nearest] - cosines[top[0]] > 1e-9) {
    const longer = lengthOf(s.keys[top[0]]) > lengthOf(s.keys[nearest]);
    const by = longer ? "by its length" : "by being shorter";
    said.push(`The query points more nearly to ${names[nearest]}: ${names[top[0]]} wins ${by}.`);
  }
  const short = s.arrows.filter(({ tip }) => !lengthOf(tip)).map(({ name }) => name);
  if (measure === "cosine" && short.length) {
    const has =
      short.length === 1 ? "has length 0, so it has no angle" : "have length 0, so they have no angle";
    said.push(`${listed(short)} ${has} and no cosine: the score is taken as 0.`);
  }
  return said.join(" ");
}

/** A factor of a product: in brackets where it is negative. */
function factorText(value, digits = 2) {
  const text = fixedText(value, digits);
  return text.startsWith("−") ? `(${text})` : text;
}

/** The score of one key taken apart: by lengths and angle, and number by number. */
function pairLine({ id, on, put }) {
  const select = element("select", { "aria-label": "key", "data-role": "key" });
  on(select, "change", () => put({ key: Number(select.value) }));
  const part = (role, kind) => element("span", { "data-role": role, class: kind && `mha-lookup-${kind}` });
  const lead = part("lead", null);
  const result = element("b", { "data-role": "score" });
  const [query, key] = [part("length-query", "q"), part("length-key", "k")];
  const [angle, value, after] = [part("angle", null), part("cosine", null), part("after", null)];
  const lengths = element(
    "span",
    {},
    element("span", { class: "mha-lookup-q", text: "|q|" }),
    " · ",
    element("span", { class: "mha-lookup-k", text: "|k|" }),
    " · ",
  );
  const numbers = element("span", {}, query, " · ", key, " · ");
  const note = (...children) => element("p", { class: "mha-lookup-note" }, ...children);
  const apart = note("= ", lengths, angle, " = ", numbers, value, after);
  const none = note("An arrow of length 0 points nowhere: there is no angle.");
  const coordinates = part("coordinates", null);
  const byNumber = note("= ", coordinates);
  let names = null;
  return {
    node: element(
      "div",
      { class: "mha-lookup-pair", id: `${id}-pair` },
      element("p", {}, lead, select, element("span", { class: "mha-lookup-whole" }, " = ", result)),
      apart,
      none,
      byNumber,
    ),
    update(s) {
      if (names !== s.names) {
        names = s.names;
        select.replaceChildren(...names.map((text, j) => element("option", { value: j, text })));
      }
      select.value = s.key;
      const k = s.keys[s.key];
      const degrees = angleBetween(s.query, k);
      const byCosine = s.measure === "cosine";
      const two = [lengthOf(s.query), lengthOf(k)];
      Object.assign(result.dataset, { score: s.all.scores[s.key], angle: degrees ?? "", lengths: two });
      write(lead, byCosine ? "cosine of query and " : "query · ");
      write(result, scoreText(s.all.scores[s.key]));
      for (const node of [lengths, numbers]) node.hidden = byCosine;
      apart.hidden = degrees === null;
      none.hidden = degrees !== null;
      write(angle, `cos ${degrees?.toFixed(1)}°`);
      [query, key].forEach((node, i) => write(node, two[i].toFixed(2)));
      write(value, factorText(cosine(s.query, k), 3));
      write(after, byCosine ? "; the lengths drop out" : "");
      const sum = s.query.map((one, i) => `${factorText(one)} · ${factorText(k[i])}`).join(" + ");
      const divisor = `(${two.map((one) => one.toFixed(2)).join(" · ")})`;
      write(coordinates, byCosine ? `(${sum}) ÷ ${divisor}` : sum);
      byNumber.hidden = byCosine && degrees === null; // nothing is divided by 0
    },
  };
}

function render({ model, el }) {
  const view = frame(model, STATE);
  const { put } = view;
  const move = (arrow, tip) => {
    if (arrow === "query") put({ query: tip });
    else put({ key_arrows: model.get("key_arrows").map((one, j) => (j === arrow ? tip : one)) });
  };
  const choose = (arrow) => put(arrow === "query" ? { chosen: arrow } : { chosen: arrow, key: arrow });
  const parts = { ...view, move, choose, restart: () => put(model.get("_start")) };

  const plane = arrowPlane(parts);
  const arrow = arrowControls(parts);
  const settings = lookupSettings(parts);
  const pair = pairLine(parts);
  const table = lookupTable(parts);
  const axis = valueAxis();
  const now = element("p", { class: "mha-lookup-now", "aria-hidden": "true", "data-role": "now" }); // the live region says it
  const state = element("p", { class: "mha-lookup-status", "data-role": "status" });
  const help = element("p", {
    class: "mha-lookup-help",
    text: "Drag a tip, or focus the plane: the arrow keys move the chosen arrow by 0.1, with Shift by 0.01.",
  });
  const root = element(
    "div",
    { class: "mha-lookup" },
    element(
      "div",
      { class: "mha-lookup-main" },
      element(
        "div",
        { class: "mha-lookup-left" },
        plane.node,
        now,
        arrow.node,
        element("div", { class: "mha-lookup-end" }, help, settings.again),
      ),
      element("div", { class: "mha-lookup-right" }, settings.node, pair.node, table.node, axis.node),
    ),
    state,
  );

  let drawn = null;
  return view.show({
    el,
    root,
    label: "Soft lookup",
    drawAll() {
      const s = snapshot(model);
      for (const part of [plane, arrow, settings, pair, table, axis]) part.update(s);
      write(now, `output ${withUnit(s.all.output, s.unit)}: ${heaviest(s)}`);
      write(state, status(s));
      const { name, tip } = s.arrows.find((one) => one.arrow === s.chosen);
      const changed = (trait) => drawn !== null && s[trait] !== drawn[trait];
      const said = [];
      if (changed("key")) said.push(`score of ${s.names[s.key]} ${scoreText(s.all.scores[s.key])}`);
      if (changed("measure")) said.push(s.measure === "cosine" ? "cosine" : "dot product");
      if (changed("temperature")) said.push(`temperature ${s.temperature}`);
      said.push(`${name} at ${arrowText(tip)}: output ${withUnit(s.all.output, s.unit)}, ${heaviest(s)}`);
      if (drawn !== null && atLongest(tip)) said.push(`length ${LONGEST} is the longest`);
      drawn = s;
      return said.join("; ");
    },
  });
}

export default { render };
