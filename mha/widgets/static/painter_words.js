// What MaskPainter says in words, on the page and to a screen reader.

import { weightText } from "./dom.js";
import { isCausal } from "./painter_maths.js";

/** The names of the readings and of the code that reads so. */
export const READING_NAMES = {
  attend: ["True = may attend", "this book; PyTorch’s F.scaled_dot_product_attention"],
  blocked: ["True = blocked", "nn.MultiheadAttention, asked for weights"],
  added: ["1 and 0, added to the logits", "a float mask, in PyTorch and elsewhere"],
  "minus 1e9": ["−1e9 added where hidden", "much older code; here in float32"],
  naive: ["−∞ added where hidden", "and no care of a row without keys"],
  late: ["weights set to 0 where hidden", "after the softmax, too late"],
};

/** A weight in the least room: "0", ".42", "1.0", "NaN"; ".00" is a little more than nought. */
export function shortText(weight) {
  if (weight === 0 || Number.isNaN(weight)) return String(weight);
  return weight >= 0.995 ? "1.0" : weight.toFixed(2).slice(1);
}

/** What a reading makes of a row that sees `sees` of `count` keys; `sum` is that of its weights. */
export function verdict(reading, sees, count, sum) {
  if (sees === count)
    return {
      blocked: "NaN: no key is left to see",
      added: "as meant: the same 1 was added to every logit",
    }[reading] ?? "as meant: nothing is hidden";
  if (sees === 0)
    return {
      attend: "no key, so every weight is 0",
      blocked: "sees every key",
      added: "sees every key: 0 was added to each logit",
      "minus 1e9": count > 1 ? "the same weight for every key" : "sees the one key there is",
      naive: "NaN: 0 divided by 0",
      late: "every weight is 0",
    }[reading];
  return {
    attend: "as meant",
    blocked: "sees the hidden keys, and only those",
    added: "hides nothing: visible logits rose by 1",
    "minus 1e9": "as meant: e to the −1e9 is 0",
    naive: "as meant",
    late: `its weights sum to ${weightText(sum)}, not to 1`,
  }[reading];
}

const keysText = (number) => (number === 1 ? "1 key" : `${number} keys`);

/** What is the case: pairs, empty rows, the future. */
export function status({ names, mask, facts }) {
  const count = names.length;
  const said = [`${facts.visible} of ${count * count} ${count > 1 ? "pairs are" : "pair is"} visible.`];
  const [first, ...more] = facts.empty;
  if (first === undefined) said.push("Every query sees a key.");
  else if (more.length) said.push(`${more.length + 1} of ${count} queries see no key.`);
  else said.push(`‘${names[first]}’ sees no key.`);
  if (count > 1 && facts.visible) {
    if (facts.ahead.length) said.push(`${facts.ahead.length} of ${count} queries see a later token.`);
    else said.push(`No query sees a later token${isCausal(mask, count) ? ": the causal mask" : ""}.`);
  }
  return said.join(" ");
}

/** The chosen pair: whether it is visible, and its weight. */
export function pairText({ names, mask, query, key, all }) {
  const at = query * names.length + key;
  const pair = `‘${names[query]}’ may ${mask[at] ? "" : "not "}attend to ‘${names[key]}’`;
  return mask[at] ? `${pair}: weight ${weightText(all.attend[at])}.` : `${pair}.`;
}

/** What an act has changed, then what is the case. */
export function spoken(s, before) {
  const changed = before ? s.mask.filter((one, at) => one !== before.mask[at]).length : 0;
  if (!changed) return `${pairText(s)} It sees ${keysText(s.facts.sees[s.query])}.`;
  return changed === 1 ? `${pairText(s)} ${status(s)}` : status(s);
}
