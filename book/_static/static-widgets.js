// Draws stored widgets on a page without a kernel. A classic deferred script, so that file:// works.
// It reads the state and the views the notebook stored, and runs each anywidget's own module.
(() => {
  "use strict";
  const STATE = "application/vnd.jupyter.widget-state+json";
  const VIEW = "application/vnd.jupyter.widget-view+json";

  /** Base64 as a DataView, which is what a live notebook hands to a widget. */
  function decodeBuffer(base64) {
    const text = atob(base64);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
    return new DataView(bytes.buffer);
  }

  /** The part of a Backbone model that anywidgets use. Nothing is saved: there is no kernel. */
  class Model {
    constructor({ state, buffers = [] }) {
      this.state = structuredClone(state);
      this.listeners = new Map();
      for (const { path, data, encoding } of buffers) {
        if (encoding && encoding !== "base64") throw new Error(`buffer encoding ${encoding} is not base64`);
        const holder = path.slice(0, -1).reduce((part, key) => part[key], this.state);
        holder[path[path.length - 1]] = decodeBuffer(data);
      }
    }

    get(name) {
      return this.state[name];
    }

    /** `set(name, value)` or `set({name: value})`: every change:name first, then one change. */
    set(name, value) {
      const wanted = typeof name === "object" ? name : { [name]: value };
      const changed = Object.keys(wanted).filter((key) => !Object.is(this.state[key], wanted[key]));
      Object.assign(this.state, wanted);
      for (const key of changed) this.emit(`change:${key}`, this, wanted[key]);
      if (changed.length) this.emit("change", this);
    }

    emit(event, ...values) {
      for (const listener of [...(this.listeners.get(event) ?? [])]) {
        try {
          listener(...values);
        } catch (error) {
          console.error(error); // one view's fault must not stop the others
        }
      }
    }

    on(events, listener) {
      for (const event of events.split(/\s+/)) {
        if (!this.listeners.has(event)) this.listeners.set(event, new Set());
        this.listeners.get(event).add(listener);
      }
    }

    /** As in Backbone: without a listener all of the event's go, without events the listener everywhere. */
    off(events, listener) {
      for (const event of events ? events.split(/\s+/) : [...this.listeners.keys()]) {
        if (listener) this.listeners.get(event)?.delete(listener);
        else this.listeners.delete(event);
      }
    }

    save_changes() {}

    send() {
      console.warn("This page has no Python kernel: a widget's message was dropped.");
    }
  }

  const modules = new Map(); // source -> its one import
  const models = new Map(); // model id -> Promise of its widget, model and start
  const styles = new Set();

  async function load(source) {
    if (!modules.has(source)) {
      const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
      modules.set(
        source,
        import(url).finally(() => URL.revokeObjectURL(url)),
      );
    }
    const loaded = await modules.get(source);
    return loaded.default ?? loaded;
  }

  async function start(entry) {
    const model = new Model(entry);
    if (typeof model.get("_esm") !== "string") throw new Error("its stored state holds no module");
    const made = await load(model.get("_esm"));
    const widget = typeof made === "function" ? await made() : made;
    await widget.initialize?.({ model });
    return { widget, model };
  }

  function addStyle(css) {
    if (!css || styles.has(css)) return;
    styles.add(css);
    const style = document.createElement("style");
    style.textContent = css;
    document.head.append(style);
  }

  function note(place, className, text) {
    place.classList.add(className);
    place.setAttribute("role", "note");
    place.textContent = text;
  }

  /** Where a reader gets a kernel: the page's own links, where it has any. */
  function needsKernel(place) {
    note(
      place,
      "needs-kernel",
      "This control needs a running Python kernel, and this page has none. " +
        "Open the notebook in Jupyter or Colab and run it there. ",
    );
    const links = {
      "Download the notebook": 'a[href$=".ipynb"]',
      "Open it in Colab": 'a[href*="//colab.research.google.com/"]',
    };
    for (const [text, selector] of Object.entries(links)) {
      const found = document.querySelector(selector);
      if (!found) continue;
      const link = document.createElement("a");
      link.href = found.href;
      link.textContent = text;
      place.append(link, " ");
    }
  }

  async function draw(script, states) {
    const place = document.createElement("div");
    place.className = "static-widget";
    script.after(place);
    // what the page shows until the widget is drawn, and for good where it can't be
    const standIns = [...script.parentElement.querySelectorAll(":scope > .widget-stand-in")];
    const hide = (hidden) =>
      standIns.forEach((node) => {
        node.hidden = hidden;
      });
    const hasPicture = standIns.some((node) => node.matches("img, :has(img)"));
    try {
      const id = JSON.parse(script.textContent).model_id;
      place.dataset.modelId = id;
      const entry = states[id];
      if (!entry) throw new Error(`the page stores no state for widget ${id}`);
      if (entry.model_name !== "AnyModel") {
        hide(!hasPicture); // a stand-in in words would say it twice
        needsKernel(place);
        return;
      }
      if (!models.has(id)) models.set(id, start(entry));
      const { widget, model } = await models.get(id);
      addStyle(model.get("_css"));
      hide(true);
      await widget.render?.({ model, el: place });
      place.classList.add("drawn");
    } catch (error) {
      console.error(error);
      hide(false);
      note(
        place,
        "failed",
        `This widget could not be drawn here (${error.message}). ` +
          (hasPicture
            ? "The picture shows how it starts."
            : "Reload the page, or run the notebook in Jupyter."),
      );
    }
  }

  async function drawAll() {
    const states = {};
    for (const script of document.querySelectorAll(`script[type="${STATE}"]`)) {
      try {
        Object.assign(states, JSON.parse(script.textContent).state);
      } catch (error) {
        console.error(error);
      }
    }
    const views = [...document.querySelectorAll(`script[type="${VIEW}"]`)];
    await Promise.all(views.map((script) => draw(script, states)));
    document.documentElement.dataset.widgets = "done";
  }

  if (typeof document === "undefined")
    globalThis.staticWidgets = { Model, decodeBuffer }; // Node's tests
  else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", drawAll);
  else drawAll();
})();
