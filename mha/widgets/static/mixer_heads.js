// What the reader sets: the token, and which heads take part.

import { element, numberText, placeByKey, write } from "./dom.js";
import { inHeadColour } from "./head_colours.js";

const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 2 });

/** Two significant digits, for a narrow button: 0.25, 1.1, 99, 120, 12K. */
export function shortText(length) {
  if (length === 0) return "0";
  if (length < 0.01) return "<.01";
  const twoDigits = length.toPrecision(2);
  if (Number(twoDigits) < 100) return twoDigits;
  return length < 1000 ? length.toFixed(0) : compact.format(length);
}

/** "5.66 (now 77 % of it)"; no share of a length 0. */
export function shareText(length, full) {
  return full ? `${numberText(full)} (now ${numberText((100 * length) / full)} % of it)` : "0";
}

/** `names` are the tokens, told apart; `point(by, head)` outlines a head, or null for none. */
export function mixerControls({ id, names, nHeads, put, on, point }) {
  const token = element("select", { id: `${id}-token`, "data-role": "token" });
  names.forEach((text, value) => token.append(element("option", { value, text })));
  on(token, "change", () => put({ token: Number(token.value) }));

  let off = [];
  const everyHead = Array.from({ length: nHeads }, (_, h) => h);
  const all = [
    ["all on", []],
    ["all off", everyHead],
  ].map(([text, wanted]) => {
    const button = element("button", { type: "button", "data-role": text.replace(" ", "-"), text });
    on(button, "click", () => {
      if (off.length !== wanted.length) put({ off: wanted });
    });
    return button;
  });

  const heads = everyHead.map((h) => {
    const length = element("span", { class: "mha-mix-length" });
    const button = element(
      "button",
      { type: "button", class: "mha-mix-head", "data-head": h, "aria-pressed": "true" },
      element("span", { class: "mha-mix-name" }, inHeadColour(element("span", { class: "mha-mix-swatch" }), h)),
      length,
    );
    button.children[0].append(
      element("span", { class: "mha-hear", text: "head " }),
      element("b", { text: h }),
      element("span", { class: "mha-hear", text: ", length " }),
    );
    button.tabIndex = h === 0 ? 0 : -1;
    return { button, length };
  });
  const label = element("p", { class: "mha-mix-label", id: `${id}-heads` });
  label.append(
    element("b", { text: "Heads: " }),
    "press one to switch it off or on. Below its number: how long its contribution to y is.",
  );
  const bar = element(
    "div",
    { class: "mha-mix-heads", role: "toolbar", "aria-labelledby": label.id },
    ...heads.map(({ button }) => button),
  );
  const headOf = (event) => event.target.closest(".mha-mix-head")?.dataset.head;
  on(bar, "click", (event) => {
    const pressed = headOf(event);
    if (pressed === undefined) return;
    const head = Number(pressed);
    focus(head);
    put({ off: off.includes(head) ? off.filter((one) => one !== head) : [...off, head].sort((a, b) => a - b) });
  });
  on(bar, "keydown", (event) => {
    const head = placeByKey(event, Number(headOf(event)), nHeads);
    if (head !== null) focus(head);
  });
  const entering = {
    pointerover: ["pointer", true],
    pointerout: ["pointer", false],
    focusin: ["focus", true],
    focusout: ["focus", false],
  };
  for (const [type, [by, enters]] of Object.entries(entering)) {
    on(bar, type, (event) => {
      const head = headOf(event);
      point(by, enters && head !== undefined ? Number(head) : null);
    });
  }

  const [length, share] = ["length-beside", "share"].map((role) => element("b", { "data-role": role }));
  const left = element("p", { class: "mha-mix-beside" }, "length of y ", length, ", with all heads on ", share);

  function focus(head) {
    heads.forEach(({ button }, h) => {
      button.tabIndex = h === head ? 0 : -1;
    });
    if (document.activeElement !== heads[head].button) heads[head].button.focus();
  }

  return {
    node: element(
      "div",
      { class: "mha-mix-controls" },
      element("p", {}, element("label", { for: token.id, text: "token" }), token),
      element("p", { class: "mha-mix-every" }, ...all),
      label,
      bar,
      left,
    ),
    buttons: heads.map(({ button }) => button),
    update(s, mix) {
      off = s.off;
      token.value = s.token;
      write(length, numberText(mix.length));
      write(share, shareText(mix.length, mix.fullLength));
      heads.forEach(({ button, length }, h) => {
        button.setAttribute("aria-pressed", !off.includes(h));
        write(length, shortText(mix.lengths[h]));
      });
    },
  };
}
