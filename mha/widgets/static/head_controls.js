// What the reader sets, and in plain words what the chosen cut means.

import { scaleFactor } from "./attention.js";
import { element, numberText, write } from "./dom.js";

const SCALES = { sqrt: "÷ √dₖ", none: "none", inverse: "÷ dₖ", temperature: "÷ temperature" };
const TEMPERATURES = [0.1, 1000]; // as in head_explorer.py

/** A temperature that the trait accepts, to `digits` digits. */
function temperatureFrom(value, digits) {
  const [least, most] = TEMPERATURES;
  return Math.min(most, Math.max(least, Number(value.toPrecision(digits))));
}

/** Why only the trained number of heads shows heads that training shaped. */
function statement(s) {
  const rescaled = Math.abs(scaleFactor(s.scale, s.dHead, s.temperature) * Math.sqrt(s.dHead) - 1) > 0.005;
  const changed = [rescaled && "this scaling", s.is_causal && "a causal mask"].filter(Boolean);
  if (s.n_heads === s.trained && !changed.length) {
    return (
      `${s.trained} heads: the number this model was trained with. Training shaped these slices of ` +
      `${s.dHead} columns each, and these are the maps the model computes.`
    );
  }
  if (s.n_heads === s.trained) {
    return (
      `${s.trained} heads: the number this model was trained with, so the slices are those that training ` +
      `shaped. But it was not trained with ${changed.join(" or ")}: these are not the maps it computes.`
    );
  }
  const slices =
    s.n_heads === 1 ? `left whole, as 1 slice of ${s.dHead}` : `cut into ${s.n_heads} slices of ${s.dHead}`;
  return (
    `This model was trained with ${s.trained} heads. Here the same ${s.dModel} columns of q and k are ${slices}. ` +
    `Only at ${s.trained} are the slices the heads that training shaped: you see what re-cutting does, not what ` +
    `a model trained with ${s.n_heads} ${s.n_heads === 1 ? "head" : "heads"} would have learnt.`
  );
}

/** Sentence, task and number of heads: native controls with labels. */
export function controls({ id, sentences, choices, trained, put, on }) {
  const sentence = element("select", { id: `${id}-sentence`, "data-role": "sentence" });
  sentences.forEach(({ text }, value) => sentence.append(element("option", { value, text })));
  const task = element("span", { class: "mha-task" });
  const show = element("button", { type: "button", "data-role": "show", text: "Show me" });
  const heads = element("input", {
    type: "range",
    id: `${id}-heads`,
    min: 0,
    max: choices.length - 1,
    step: 1,
    "data-role": "heads",
  });
  const headsOut = element("output", { for: heads.id, "data-role": "heads-out" });
  const ticks = element(
    "span",
    { class: "mha-ticks", "aria-hidden": "true" },
    ...choices.map((choice) =>
      element("span", { class: choice === trained ? "mha-trained" : null, text: choice }),
    ),
  );
  on(sentence, "change", () => {
    const chosen = Number(sentence.value);
    const [, , query, key] = sentences[chosen].answer ?? [];
    put({ sentence: chosen, ...(query !== undefined && { query, key }) }); // the frame marks the pair
  });
  on(heads, "input", () => put({ n_heads: choices[heads.value] }));
  on(show, "click", () => {
    const [n_heads, head, query, key] = sentences[sentence.value].answer;
    put({ n_heads, head, query, key, scale: "sqrt", is_causal: false });
  });
  return {
    ask: element(
      "div",
      { class: "mha-ask" },
      element("label", { for: sentence.id, text: "sentence" }),
      sentence,
      element("p", {}, task, " ", show),
    ),
    heads: element(
      "div",
      { class: "mha-heads" },
      element("label", { for: heads.id }, "heads ", headsOut),
      heads,
      ticks,
    ),
    update(s) {
      sentence.value = s.sentence;
      write(task, s.task);
      show.hidden = !s.answer;
      heads.value = choices.indexOf(s.n_heads);
      heads.setAttribute(
        "aria-valuetext",
        `${s.n_heads} ${s.n_heads === 1 ? "head" : "heads"} of ${s.dHead} columns` +
          (s.n_heads === trained ? ", as trained" : ""),
      );
      write(headsOut, `${s.n_heads}, ${s.n_heads === 1 ? "of all" : "each of"} ${s.dHead} columns`);
    },
  };
}

/** Scaling and mask: what else a head's weights depend on. */
export function settings({ id, put, on }) {
  let divisor = 1; // what the scores are divided by now: where a free temperature starts
  const radios = Object.entries(SCALES).map(([value, text]) => {
    const radio = element("input", { type: "radio", name: `${id}-scale`, value, "data-role": "scale" });
    on(radio, "change", () =>
      put(value === "temperature" ? { scale: value, temperature: divisor } : { scale: value }),
    );
    return { radio, label: element("label", {}, radio, text) };
  });
  const [least, most] = TEMPERATURES.map(Math.log10);
  const temperature = element("input", {
    type: "range",
    min: least,
    max: most,
    step: 0.01,
    "aria-label": "temperature",
    "data-role": "temperature",
  });
  const temperatureOut = element("output", { "data-role": "temperature-out" });
  const causal = element("input", { type: "checkbox", "data-role": "causal" });
  on(temperature, "input", () => put({ temperature: temperatureFrom(10 ** temperature.value, 3) }));
  on(causal, "change", () => put({ is_causal: causal.checked }));
  const width = element("span");
  const labels = radios.map(({ label }) => label);
  const node = element(
    "div",
    { class: "mha-settings" },
    element(
      "fieldset",
      { class: "mha-scale" },
      element("legend", {}, "scaling of q·k, ", width),
      ...labels.slice(0, -1),
      element("span", { class: "mha-temperature" }, labels.at(-1), temperature, temperatureOut),
    ),
    element(
      "fieldset",
      { class: "mha-mask" },
      element("legend", { text: "mask" }),
      element("label", {}, causal, "causal: no token sees a later one"),
    ),
  );
  return {
    node,
    update(s) {
      write(width, `dₖ = ${s.dHead}`);
      for (const { radio } of radios) radio.checked = radio.value === s.scale;
      temperature.disabled = s.scale !== "temperature";
      const now = 1 / scaleFactor(s.scale, s.dHead, s.temperature);
      divisor = temperatureFrom(now, 6);
      temperature.value = Math.log10(now);
      temperature.setAttribute("aria-valuetext", numberText(now));
      write(temperatureOut, `÷ ${numberText(now)}`);
      causal.checked = s.is_causal;
    },
  };
}

/** The columns of q and k, as trained and as cut now, with the chosen slice filled. */
export function ribbon() {
  const rows = ["trained", "now"].map((name) => element("div", { class: "mha-slices", "data-cut": name }));
  const all = element("span", { class: "mha-all-columns" });
  const text = element("p", { class: "mha-statement" });
  const columns = element("span", { "data-role": "columns" });
  const node = element(
    "div",
    { class: "mha-cut" },
    element(
      "div",
      { class: "mha-ribbon", "aria-hidden": "true" },
      all,
      element("span", { text: "as trained" }),
      rows[0],
      element("span", { text: "as cut now" }),
      rows[1],
    ),
    text,
  );
  return {
    node,
    columns,
    update(s) {
      [s.trained, s.n_heads].forEach((count, row) => {
        if (rows[row].childElementCount !== count) {
          rows[row].replaceChildren(...Array.from({ length: count }, () => element("span")));
        }
      });
      [...rows[1].children].forEach((slice, h) => slice.toggleAttribute("data-chosen", h === s.head));
      write(all, `the ${s.dModel} columns of q and k, one piece a head:`);
      write(columns, `columns ${s.head * s.dHead}–${(s.head + 1) * s.dHead - 1}`);
      write(text, statement(s));
      text.dataset.trained = s.n_heads === s.trained;
    },
  };
}
