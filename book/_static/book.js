// Two small things that CSS can't do.
(() => {
"use strict";

// A formula or table that scrolls in its box can be reached and scrolled by keyboard.
const SCROLLS = "article div.math mjx-container, article .output.text_html";
const reach = () => {
  for (const box of document.querySelectorAll(SCROLLS)) {
    if (box.scrollWidth > box.clientWidth + 1) {
      box.tabIndex = 0;
      box.setAttribute("role", "group");
      box.setAttribute("aria-label", box.matches("mjx-container") ? "Formula, scrolls sideways" : "Table, scrolls sideways");
    } else {
      for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
    }
  }
};
let waiting = 0;
const soon = () => { clearTimeout(waiting); waiting = setTimeout(reach, 200); };
const start = async () => {
  reach();
  await window.MathJax?.startup?.promise;
  reach();
};
addEventListener("resize", soon);
addEventListener("load", start);

// On paper nothing can be opened: print folded answers and code open, then fold them again.
let folded = [];
addEventListener("beforeprint", () => {
  folded = [...document.querySelectorAll("article details:not([open])")];
  for (const box of folded) { box.dataset.group = box.name ?? ""; box.name = ""; box.open = true; }
});
addEventListener("afterprint", () => {
  for (const box of folded) { box.open = false; box.name = box.dataset.group; delete box.dataset.group; }
});
})();
