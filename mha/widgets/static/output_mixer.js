import { decodeFloat16, decodeFloat64 } from "./attention.js";
import { element, fixedText, numberText, withIndex, write } from "./dom.js";
import { frame } from "./frame.js";
import {
  addContributions,
  concatProduct,
  headContributions,
  headLength,
  stackRange,
  subsetCosine,
  subsetLength,
  withoutHeads,
} from "./mixing.js";
import { mixerControls } from "./mixer_heads.js";
import { concatStrip, outputPlots } from "./mixer_plots.js";
import { featureReadout, whatIsLeft } from "./mixer_readout.js";

const TRAITS = ["token", "feature", "off"];
const START = "Switch a head off and watch: its part leaves each feature, and no other part changes.";

/** The stored numbers, decoded once; then state -> everything that is drawn, the last of each kept. */
function calculator(model) {
  const { z, w_o, b_o, gram, tokens } = model.get("_data");
  const [nHeads, nFeatures] = [model.get("n_heads"), model.get("n_features")];
  const numbers = { z: decodeFloat16(z), wO: decodeFloat16(w_o), gram: decodeFloat64(gram) };
  const bias = b_o ? decodeFloat16(b_o) : new Float64Array(nFeatures);
  const rowOf = (values, token) => {
    const length = values.length / tokens.length;
    return values.subarray(token * length, (token + 1) * length);
  };
  let one = null; // what depends on the token alone
  let mix = null;
  return (s) => {
    if (one?.token !== s.token) {
      const whole = rowOf(numbers.z, s.token);
      const products = rowOf(numbers.gram, s.token);
      const contributions = headContributions(whole, numbers.wO, nHeads, nFeatures);
      const range = stackRange(contributions, bias);
      const largest = Math.max(...range.map(Math.abs));
      const digits = Math.max(0, Math.min(12, 3 - Math.floor(Math.log10(largest))));
      one = {
        token: s.token,
        whole,
        products,
        contributions,
        bias,
        range,
        largest: Math.max(...whole.map(Math.abs)) || 1,
        largestPart: Math.max(...contributions.map(Math.abs), ...bias.map(Math.abs)) || 1,
        full: addContributions(contributions, bias, []),
        fullLength: subsetLength(products, nHeads, []),
        lengths: Array.from({ length: nHeads }, (_, h) => headLength(products, nHeads, h)),
        digits,
        text: (value) => fixedText(value, digits),
      };
      mix = null;
    }
    if (mix?.off !== s.off.join()) {
      const z = withoutHeads(one.whole, nHeads, s.off);
      mix = {
        ...one,
        off: s.off.join(),
        z,
        product: concatProduct(z, numbers.wO, bias),
        sums: addContributions(one.contributions, bias, s.off),
        length: subsetLength(one.products, nHeads, s.off),
        cosine: subsetCosine(one.products, nHeads, s.off),
      };
    }
    return mix;
  };
}

/** The model's state as one plain object; indices clipped, for states that change in two steps. */
function snapshot(model) {
  const [token, feature, off] = TRAITS.map((name) => model.get(name));
  const last = model.get("_data").tokens.length - 1;
  return { token: Math.min(token, last), feature: Math.min(feature, model.get("n_features") - 1), off };
}

/** The heads that one state has off and the other has not. */
function switched(before, after) {
  return [
    ...before.filter((head) => !after.includes(head)),
    ...after.filter((head) => !before.includes(head)),
  ];
}

/** Two numbers and their difference, to so many digits that what is written adds up, too. */
export function consistent([from, to, change], least) {
  let digits = least;
  const rounded = (value) => Math.round(Number(value.toFixed(digits)) * 10 ** digits);
  while (digits < least + 4 && rounded(to) - rounded(from) !== rounded(change)) digits += 1;
  return [from, to, change].map((value) => fixedText(value, digits));
}

/** What there is to say while no single switch has been the last act. */
function standing(off, nHeads, hasBias) {
  if (!off.length) return START;
  if (off.length === nHeads) return `All heads are off: y is ${hasBias ? "the bias b_O alone" : "0"}.`;
  return `Off: ${off.length === 1 ? "head" : "heads"} ${off.join(", ")}.`;
}

/** The largest difference between two ways to the same numbers. */
export function largestDifference(one, other) {
  return Math.max(...one.map((value, j) => Math.abs(value - other[j])));
}

/** What switching one head did to the chosen feature, from the two sums themselves. */
function effect(head, s, mix) {
  const isOff = s.off.includes(head);
  const other = isOff ? s.off.filter((one) => one !== head) : [...s.off, head];
  const before = addContributions(mix.contributions, mix.bias, other)[s.feature];
  const after = mix.sums[s.feature];
  const [from, to, change] = consistent([before, after, after - before], mix.digits);
  return (
    `head ${head} ${isOff ? "off" : "on"}: feature ${s.feature} goes from ${from} to ${to}, a change of ` +
    `${change}, exactly ${isOff ? "minus " : ""}its contribution`
  );
}

function render({ model, el }) {
  const view = frame(model, TRAITS);
  const { tokens, z, b_o } = model.get("_data");
  const [nHeads, nFeatures, dModel] = ["n_heads", "n_features", "d_model"].map((name) => model.get(name));
  const width = z.byteLength / 2 / tokens.length; // H·d numbers of two bytes
  const names = tokens.map((token, i) => `${i} · ${token}`);
  const calculate = calculator(model);

  let ofHead = []; // ofHead[h]: the nodes that are head h's
  let pointed = null;
  const over = { pointer: null, focus: null }; // the head under each; the pointer's comes first
  const point = (by, which) => {
    over[by] = which;
    const head = over.pointer ?? over.focus;
    if (head === pointed) return;
    for (const [one, on] of [
      [pointed, false],
      [head, true],
    ]) {
      if (one !== null) for (const node of ofHead[one]) node.toggleAttribute("data-pointed", on);
    }
    pointed = head;
    plots.outline(head);
  };

  const parts = { ...view, names, nHeads, nFeatures, dModel, width, hasBias: Boolean(b_o), point };
  const controls = mixerControls(parts);
  const strip = concatStrip(parts);
  const plots = outputPlots({ ...parts, describedBy: `${view.id}-totals` });
  const readout = featureReadout(parts);
  const left = whatIsLeft(parts);
  ofHead = controls.buttons.map((button, h) => [button, strip.blocks[h], readout.rowOf(h)]);
  const happened = element("p", { class: "mha-mix-happened", "data-role": "happened" });
  const largest = element("b", { "data-role": "largest" });
  const plus = () => (b_o ? [" + ", ...withIndex("b", "O")] : []);
  const block = (h) => [...withIndex(" z", h), ...withIndex(" W", "O"), element("sup", { text: `(${h})` })];
  const some = nFeatures < dModel ? `first ${nFeatures} of ${dModel}` : dModel;
  const last = nHeads - 1;
  const sum = last ? [...block(0), last > 1 ? " + … +" : " +", ...block(last)] : block(0);
  const row = last ? [...withIndex("z", 0), last > 1 ? " … " : " ", ...withIndex("z", last)] : withIndex("z", 0);
  const key = (dashed) =>
    element("span", { class: "mha-mix-key", "data-dashed": dashed ? "" : null, "aria-hidden": "true" });
  const way = (mark, name, ...formula) =>
    element("p", { class: "mha-mix-way" }, element("b", { text: `${mark} ${name}` }), element("span", {}, ...formula));
  const root = element(
    "div",
    { class: "mha-mixer" },
    controls.node,
    happened,
    element(
      "div",
      { class: "mha-mix-main" },
      element(
        "div",
        { class: "mha-mix-ways" },
        way("①", "Concatenate, then multiply", "y = [", ...row, "] ", ...withIndex("W", "O"), ...plus()),
        strip.node,
        plots.bars,
        way("②", "Multiply head by head, then add", "y =", ...sum, ...plus()),
        plots.stacks,
        plots.axis,
        element("p", {
          class: "mha-mix-legend",
          text: `the ${some} features of y: click, or use ← →`,
        }),
        element(
          "p",
          { class: "mha-mix-same" },
          element(
            "span",
            {},
            key(false),
            "y, the same in ① and ②. In ② it is what stacks up minus what stacks down. Largest difference: ",
            largest,
          ),
          element("span", {}, key(true), "y with all heads on"),
        ),
      ),
      element("div", { class: "mha-mix-side" }, readout.node, left.node),
    ),
  );

  let drawn = null;
  let lastHead = null; // the head that was switched last, alone
  return view.show({
    el,
    root,
    label: "Output mixer",
    drawAll() {
      const s = snapshot(model);
      const mix = calculate(s);
      const heads = drawn ? switched(drawn.off, s.off) : [];
      controls.update(s, mix);
      strip.update(s, mix);
      plots.update(s, mix);
      readout.update(s, mix);
      left.update(s, mix);
      largest.dataset.value = largestDifference(mix.sums, mix.product);
      write(largest, Number(largest.dataset.value) ? numberText(Number(largest.dataset.value)) : "0");

      const changed = drawn && s.token !== drawn.token;
      const moved = drawn && s.feature !== drawn.feature;
      if (heads.length) lastHead = heads.length === 1 ? heads[0] : null;
      else if (changed) lastHead = null; // it was switched for another token
      const told = lastHead === null ? "" : effect(lastHead, s, mix);
      const value = mix.text(mix.sums[s.feature]);
      write(happened, told ? `${told[0].toUpperCase()}${told.slice(1)}.` : standing(s.off, nHeads, b_o));
      drawn = s;
      if (changed) {
        return `token ${names[s.token]}: feature ${s.feature} is ${value}, length of y ${numberText(mix.length)}`;
      }
      if (moved) return `feature ${s.feature}: the parts add up to ${value}, and so does the product`;
      if (heads.length === 1) return told;
      if (heads.length) return `${nHeads - s.off.length} of ${nHeads} heads on: feature ${s.feature} is ${value}`;
      return "";
    },
  });
}

export default { render };
