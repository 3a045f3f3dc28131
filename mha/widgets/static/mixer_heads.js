// What the reader sets: the token, and which heads take part.

import { element, write } from "./dom.js";
import { inHeadColour } from "./head_colours.js";

/** Two significant digits, for a narrow button. */
const short = (value) => (value < 100 ? value.toPrecision(2) : value.toFixed(0));

/** `names` are the tokens, told apart; `point(head)` outlines a head, `point(null)` none. */
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
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    const now = Number(headOf(event));
    const steps = {
      ArrowLeft: now - 1,
      ArrowUp: now - 1,
      ArrowRight: now + 1,
      ArrowDown: now + 1,
      Home: 0,
      End: nHeads - 1,
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    focus(Math.max(0, Math.min(nHeads - 1, steps[event.key])));
  });
  const entering = { pointerover: true, pointerout: false, focusin: true, focusout: false };
  for (const [type, points] of Object.entries(entering)) {
    on(bar, type, (event) => {
      const head = headOf(event);
      point(points && head !== undefined ? Number(head) : null);
    });
  }

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
    ),
    buttons: heads.map(({ button }) => button),
    update(s, mix) {
      off = s.off;
      token.value = s.token;
      heads.forEach(({ button, length }, h) => {
        button.setAttribute("aria-pressed", !off.includes(h));
        write(length, short(mix.lengths[h]));
      });
    },
  };
}
