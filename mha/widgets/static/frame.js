// What every widget does around its own parts: drawing once, saving, saying, following the theme, cleaning up.

import { announcer, element, followTheme, keepKeys } from "./dom.js";

/**
 * A frame for one view of `model`. Parts listen with `on`; a reader's act calls `put({trait: value, …})`,
 * which sets, saves and draws once. `show` puts the widget on the page and returns its clean-up.
 */
export function frame(model, traits) {
  const abort = new AbortController();
  const { signal } = abort;
  const changes = traits.map((name) => `change:${name}`).join(" ");
  const live = element("p", { class: "mha-live", "aria-live": "polite" });
  const say = announcer(live, signal);
  let draw = () => "";
  let acted = false; // since the last drawing, by the reader
  let waiting = false; // several traits set in one go are drawn once

  const paint = () => {
    const spoken = draw();
    if (acted && spoken) say(spoken);
    acted = false;
  };
  const later = () => {
    if (waiting) return;
    waiting = true;
    queueMicrotask(() => {
      waiting = false;
      if (!signal.aborted) paint();
    });
  };

  return {
    id: `mha-${Math.random().toString(36).slice(2, 10)}`, // each view loads its own module
    signal,
    on: (node, type, handle) => node.addEventListener(type, handle, { signal }),
    later,
    put(values) {
      for (const [name, value] of Object.entries(values)) model.set(name, value);
      acted = waiting; // nothing changed: nothing to say
      model.save_changes();
    },
    /**
     * `root` becomes a labelled group in `el`; `drawAll(theme)` draws the state and returns what a screen
     * reader says after an act; `placed()` is called once the root is on the page.
     */
    show({ el, root, label, drawAll, placed = () => {} }) {
      root.setAttribute("class", `mha-widget ${root.getAttribute("class")}`);
      root.setAttribute("role", "group");
      root.setAttribute("aria-label", label);
      root.append(live);
      keepKeys(root, signal);
      model.on(changes, later);
      followTheme((theme) => {
        root.dataset.mhaTheme = theme;
        draw = () => drawAll(theme);
        paint();
      }, signal);
      el.append(root);
      placed();
      root.dataset.ready = "true";
      return () => {
        model.off(changes, later);
        abort.abort();
        root.remove();
      };
    },
  };
}
