// The chosen row, spelled out: number by number, and as code reads it that means something else by the mask.

import { element, fixedText, weightText, write } from "./dom.js";
import { READING_NAMES, shortText, verdict } from "./painter_words.js";

const HEADS = ["key", "logit", "mask", "added", "sum", "weight"];

/** One row of the mask: what is added to each logit, and the weight that follows. */
export function rowTable({ names }) {
  const rows = names.map((name) => {
    const cells = HEADS.slice(1).map(() => element("td"));
    return { line: element("tr", {}, element("th", { scope: "row", text: name }), ...cells), cells };
  });
  const title = element("caption");
  const head = element("tr", {}, ...HEADS.map((text) => element("th", { scope: "col", text })));
  return {
    node: element(
      "div",
      { class: "mha-paint-scroll" },
      element(
        "table",
        { class: "mha-paint-table", "data-role": "row" },
        title,
        element("thead", {}, head),
        element("tbody", {}, ...rows.map(({ line }) => line)),
      ),
    ),
    update({ query, key, mask, logits, all }) {
      write(title, `The row of ‘${names[query]}’`);
      rows.forEach(({ line, cells }, j) => {
        const at = query * names.length + j;
        const logit = fixedText(logits[at], 2);
        const texts = mask[at]
          ? [logit, "True", "0", logit, weightText(all.attend[at])]
          : [logit, "False", "−∞", "−∞", "0"];
        cells.forEach((cell, c) => write(cell, texts[c]));
        line.toggleAttribute("data-chosen", j === key);
        line.toggleAttribute("data-hidden", !mask[at]);
        line.dataset.weight = all.attend[at];
      });
    },
  };
}

/** The same row of True and False in the six readings: a strip of weights and what to make of it. */
export function readingList({ names }) {
  const count = names.length;
  const items = Object.entries(READING_NAMES).map(([reading, [name, who]]) => {
    const bars = names.map((token) => element("span", { class: "mha-paint-bar", title: token }));
    const says = element("span", { class: "mha-paint-says" });
    const strip = element("span", { class: "mha-paint-strip", "aria-hidden": "true" }, ...bars);
    const heard = element("span", { class: "mha-hear" });
    const item = element(
      "li",
      { "data-reading": reading },
      element("b", { text: name }),
      element("span", { class: "mha-paint-who", text: who }),
      strip,
      says,
      heard,
    );
    return { reading, item, bars, says, heard };
  });
  const title = element("p", { class: "mha-paint-title" });
  const list = element("ol", { class: "mha-paint-readings" }, ...items.map(({ item }) => item));
  list.style.setProperty("--count", count);
  return {
    node: element("div", {}, title, list),
    update({ query, mask, facts, all }, colour) {
      write(title, `The same row of ‘${names[query]}’ in code that reads it as …`);
      const own = mask.subarray(query * count, (query + 1) * count);
      for (const { reading, item, bars, says, heard } of items) {
        const row = all[reading].subarray(query * count, (query + 1) * count);
        const sum = row.reduce((total, weight) => total + weight, 0);
        item.dataset.weights = row.join(" ");
        bars.forEach((bar, j) => {
          colour(bar, row[j]);
          bar.toggleAttribute("data-hidden", !own[j]);
          write(bar, shortText(row[j]));
        });
        const words = verdict(reading, facts.sees[query], count, sum);
        write(says, words);
        const spelled = names.map((token, j) => `${token} ${Number.isNaN(row[j]) ? "NaN" : weightText(row[j])}`);
        write(heard, spelled.join(", "));
        item.toggleAttribute("data-wrong", !words.startsWith("as meant") && reading !== "attend");
      }
    },
  };
}
