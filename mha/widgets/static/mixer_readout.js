// The chosen feature of y in words and numbers, added up in both ways; and how much of y is left.

import { element, numberText, withIndex, write } from "./dom.js";
import { inHeadColour } from "./head_colours.js";

const heard = (text) => element("span", { class: "mha-hear", text });

/** The parts of one feature as signed bars, their sum, and the product of the first way. */
export function featureReadout({ id, nHeads, nFeatures, hasBias, put, on }) {
  const feature = element("select", { id: `${id}-feature`, "data-role": "feature" });
  for (let j = 0; j < nFeatures; j++) feature.append(element("option", { value: j, text: j }));
  on(feature, "change", () => put({ feature: Number(feature.value) }));

  const count = hasBias ? nHeads + 1 : nHeads;
  const rows = Array.from({ length: count }, (_, h) => {
    const bar = element("span", { class: "mha-mix-amount" });
    const value = element("span", { class: "mha-mix-value" });
    const row = element(
      "li",
      { class: "mha-mix-row", "data-head": h },
      element("span", { class: "mha-mix-swatch" }),
      h < nHeads
        ? element("span", {}, heard("head "), String(h), heard(": "))
        : element("span", {}, ...withIndex("b", "O"), heard(": ")),
      element("span", { class: "mha-mix-track" }, bar),
      value,
    );
    if (h < nHeads) inHeadColour(row, h);
    return { row, bar, value };
  });
  const [sum, product, difference] = ["sum", "product", "difference"].map((role) =>
    element("b", { "data-role": role }),
  );
  const column = element("span");
  const plus = hasBias ? [" + ", ...withIndex("b", "O")] : [];
  const title = element(
    "p",
    { class: "mha-mix-title", id: `${id}-parts` },
    element("label", { for: feature.id, text: "feature" }),
    feature,
    "of y, spelled out",
  );
  const line = (mark, text, value) =>
    element("p", { class: "mha-mix-total" }, element("span", {}, element("b", { text: mark }), ...text), value);
  return {
    node: element(
      "div",
      { class: "mha-mix-readout" },
      title,
      element("ol", { class: "mha-mix-rows", "aria-labelledby": title.id }, ...rows.map(({ row }) => row)),
      element(
        "div",
        { class: "mha-mix-totals", id: `${id}-totals` },
        line("② ", ["the parts added: "], sum),
        line("① ", ["z × ", column, " of ", ...withIndex("W", "O"), ...plus, ": "], product),
        line("", ["difference: "], difference),
      ),
    ),
    rowOf: (head) => rows[head].row,
    update(s, mix) {
      feature.value = s.feature;
      rows.forEach(({ row, bar, value }, h) => {
        const off = s.off.includes(h);
        const part = h < nHeads ? mix.contributions[h * nFeatures + s.feature] : mix.bias[s.feature];
        row.dataset.part = off ? 0 : part;
        row.toggleAttribute("data-off", off);
        bar.toggleAttribute("data-negative", part < 0);
        bar.style.setProperty("--size", Math.abs(part) / mix.largestPart);
        write(value, off ? "off" : mix.text(part));
      });
      const numbers = { sum: mix.sums[s.feature], product: mix.product[s.feature] };
      numbers.difference = numbers.sum - numbers.product;
      write(sum, mix.text((sum.dataset.value = numbers.sum)));
      write(product, mix.text((product.dataset.value = numbers.product)));
      difference.dataset.value = numbers.difference;
      write(difference, numbers.difference === 0 ? "0" : numberText(numbers.difference));
      write(column, `column ${s.feature}`);
    },
  };
}

/** The length of y over all features, now and with all heads on, and the angle between the two. */
export function whatIsLeft({ dModel }) {
  const [length, full, cosine] = ["length", "full-length", "cosine"].map((role) =>
    element("b", { "data-role": role }),
  );
  const bars = [length, full].map(() => element("span", { class: "mha-mix-long" }));
  const row = (name, bar, value) =>
    element("p", { class: "mha-mix-left-row" }, element("span", { text: name }), element("span", {}, bar), value);
  return {
    node: element(
      "div",
      { class: "mha-mix-left" },
      element("p", {}, "Length of y over all ", element("b", { text: dModel }), " features"),
      row("now", bars[0], length),
      row("all heads on", bars[1], full),
      element("p", {}, "cosine between the two: ", cosine),
    ),
    update(s, mix) {
      const lengths = [mix.length, mix.fullLength];
      const longest = Math.max(...lengths) || 1;
      [length, full].forEach((node, i) => {
        node.dataset.value = lengths[i];
        write(node, numberText(lengths[i]));
        bars[i].style.setProperty("--size", lengths[i] / longest);
      });
      cosine.dataset.value = mix.cosine;
      write(cosine, Number.isNaN(mix.cosine) ? "none, one is zero" : numberText(mix.cosine));
    },
  };
}
