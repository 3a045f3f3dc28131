import {
  attentionScores,
  attentionWeights,
  causalMask,
  decodeFloat16,
  headEntropy,
  maxEntropy,
  rowEntropy,
  scaleFactor,
} from "./attention.js";
import { distinct, element, numberText, weightColours, weightGradient, weightText, write } from "./dom.js";
import { frame } from "./frame.js";
import { controls, ribbon, settings } from "./head_controls.js";
import { headGrid } from "./head_grid.js";
import { tokenMap } from "./token_map.js";

const TRAITS = ["n_heads", "scale", "temperature", "is_causal", "sentence", "head", "query", "key"];

/** The model's state as one plain object; indices clipped, for states that change in two steps. */
function snapshot(model, sentences) {
  const state = Object.fromEntries(TRAITS.map((name) => [name, model.get(name)]));
  const { tokens, task, answer } = sentences[state.sentence];
  const last = tokens.length - 1;
  return {
    ...state,
    tokens,
    task,
    answer,
    dModel: model.get("d_model"),
    trained: model.get("trained_heads"),
    dHead: model.get("d_model") / state.n_heads,
    head: Math.min(state.head, state.n_heads - 1),
    query: Math.min(state.query, last),
    key: Math.min(state.key, last),
  };
}

/** state -> scores and weights of all heads; keeps the last of each, as most acts change few. */
function calculator(sentences) {
  const kept = {};
  const keep = (name, id, make) => {
    if (kept[name]?.id !== id) kept[name] = { id, value: make() };
    return kept[name].value;
  };
  return (s) => {
    const size = s.tokens.length;
    const cut = `${s.sentence} ${s.n_heads}`;
    const scores = keep("scores", cut, () => {
      const [q, k] = keep("numbers", s.sentence, () =>
        ["q", "k"].map((name) => decodeFloat16(sentences[s.sentence][name])),
      );
      return Array.from({ length: s.n_heads }, (_, h) => attentionScores(q, k, s.dModel, s.n_heads, h));
    });
    const factor = scaleFactor(s.scale, s.dHead, s.temperature);
    return keep("all", `${cut} ${factor} ${s.is_causal}`, () => {
      const mask = s.is_causal ? causalMask(size) : null;
      const weights = scores.map((one) => attentionWeights(one, size, factor, mask));
      const entropy = weights.map((one) => headEntropy(one, size));
      return { scores, factor, mask, weights, entropy, most: maxEntropy(size, size, mask) };
    });
  };
}

/** The chosen cell in words: two selects and the numbers, from score to weight. */
function readout({ id, put, on }) {
  const pick = (role) => {
    const select = element("select", { "aria-label": role, "data-role": role, class: `mha-${role}` });
    on(select, "change", () => put({ [role]: Number(select.value) }));
    return select;
  };
  const [query, key] = [pick("query"), pick("key")];
  const [weight, logit, score, factor, sum, bits] = [
    "weight",
    "logit",
    "score",
    "factor",
    "row-sum",
    "row-entropy",
  ].map((role) => element("span", { "data-role": role }));
  const node = element(
    "div",
    { class: "mha-readout", id: `${id}-readout` },
    element(
      "p",
      { class: "mha-cell" },
      "query ",
      query,
      " → key ",
      key,
      ": ",
      element("span", { class: "mha-whole" }, "weight ", weight),
    ),
    element(
      "p",
      { class: "mha-steps" },
      "score q·k ",
      score,
      factor,
      " logit ",
      logit,
      ". Softmax over the row: sum ",
      sum,
      ", entropy ",
      bits,
      " bits.",
    ),
  );
  let shown = null;
  return {
    node,
    update(s, all, names) {
      if (shown !== names) {
        for (const select of [query, key]) {
          select.replaceChildren(...names.map((text, value) => element("option", { value, text })));
        }
        shown = names;
      }
      [query.value, key.value] = [s.query, s.key];
      const size = names.length;
      const cell = s.query * size + s.key;
      const hidden = all.mask !== null && !all.mask[cell];
      const numbers = { score: all.scores[s.head][cell], weight: all.weights[s.head][cell] };
      numbers.logit = hidden ? -Infinity : numbers.score * all.factor;
      const row = all.weights[s.head].subarray(s.query * size, (s.query + 1) * size);
      Object.assign(node.dataset, numbers);
      write(weight, hidden ? "0 (masked)" : weightText(numbers.weight));
      write(logit, numberText(numbers.logit));
      write(score, numberText(numbers.score));
      const divided = all.factor === 1 ? "" : ` ÷ ${numberText(1 / all.factor)}`;
      write(factor, hidden ? ", hidden by the mask:" : `${divided} =`);
      sum.dataset.sum = row.reduce((total, one) => total + one, 0);
      write(sum, Number(sum.dataset.sum).toFixed(3));
      write(bits, rowEntropy(row, size)[0].toFixed(2));
      return `head ${s.head} of ${s.n_heads}, query ${names[s.query]}, key ${names[s.key]}, weight ${weight.textContent}`;
    },
  };
}

/** What a reader is told who has picked a head that does what the task asks for, in the model as trained. */
function praise({ answer, n_heads, head, scale, is_causal }, all, names) {
  const [heads, right, query, key] = answer ?? [];
  if (n_heads !== heads || scale !== "sqrt" || is_causal) return "";
  const row = all.weights[head].subarray(query * names.length, (query + 1) * names.length);
  const pair = `‘${names[query]}’ gives ‘${names[key]}’`;
  if (head === right) return `✓ Found: ${pair} ${weightText(row[key])}.`;
  if (row.some((weight) => weight > row[key])) return "";
  return `Head ${head} does it too: ${pair} ${weightText(row[key])}, the most of its row. One head gives it more.`;
}

function render({ model, el }) {
  const view = frame(model, TRAITS);
  const sentences = model.get("_data");
  const names = sentences.map(({ tokens }) => distinct(tokens));
  const calculate = calculator(sentences);
  let picked = false; // whether the reader chose this head, and did not only come by it
  const put = (changes) => {
    // only ever after an act of the reader
    const before = snapshot(model, sentences);
    const after = { ...before, ...changes };
    const last = sentences[after.sentence].tokens.length - 1;
    if (!("head" in changes)) after.head = Math.floor((before.head * after.n_heads) / before.n_heads); // the same columns
    after.query = Math.min(after.query, last);
    after.key = Math.min(after.key, last);
    const was = picked;
    if ("head" in changes) picked = true;
    else if ("sentence" in changes || "n_heads" in changes) picked = false;
    if (picked !== was) view.later();
    view.put(Object.fromEntries(TRAITS.map((name) => [name, after[name]])));
  };

  const parts = { ...view, sentences, choices: model.get("choices"), trained: model.get("trained_heads"), put };
  const top = controls(parts);
  const more = settings(parts);
  const cut = ribbon();
  const grid = headGrid(parts);
  const map = tokenMap({ ...parts, describedBy: `${view.id}-readout` });
  const cell = readout(parts);
  const chosen = element("b");
  const entropy = element("span", { "data-role": "entropy" });
  const found = element("p", { class: "mha-found", "data-role": "found" });
  const root = element(
    "div",
    { class: "mha-explorer" },
    top.ask,
    element("div", { class: "mha-choose" }, top.heads, cut.node),
    element(
      "div",
      { class: "mha-main" },
      grid.node,
      element(
        "div",
        { class: "mha-one" },
        element("p", { class: "mha-title" }, chosen, " · ", cut.columns, " · entropy ", entropy),
        found,
        map.node,
        cell.node,
      ),
    ),
    more.node,
  );

  let colours = null;
  let painted = null; // the theme that the colours are of
  return view.show({
    el,
    root,
    label: "Head explorer",
    placed: map.fit,
    drawAll(theme) {
      if (theme !== painted) {
        painted = theme;
        root.style.setProperty("--ramp", weightGradient(theme));
        colours = weightColours(theme);
      }
      const s = snapshot(model, sentences);
      const all = calculate(s);
      top.update(s);
      more.update(s);
      cut.update(s);
      grid.update(s, all, colours);
      map.update(s, all, colours);
      const spoken = cell.update(s, all, names[s.sentence]);
      write(chosen, `Head ${s.head} of ${s.n_heads}`);
      write(entropy, `${all.entropy[s.head].toFixed(2)} of ${all.most.toFixed(2)} bits`);
      write(found, picked ? praise(s, all, names[s.sentence]) : "");
      return `${spoken}. ${found.textContent}`;
    },
  });
}

export default { render };
