// As much of a page as the widgets touch, for Node: elements, events, observers, a recording canvas.
import { setMaxListeners } from "node:events";

setMaxListeners(0); // every control of a widget listens for its end

const name = (key) => `data-${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

class Context {
  painted = []; // [colour, x, y, width, height] of each rectangle
  createImageData(width, height) {
    return { data: new Uint8ClampedArray(4 * width * height) };
  }
  putImageData({ data }) {
    this.pixels = [...data];
  }
  fillRect(...box) {
    this.painted.push([this.fillStyle, ...box]);
  }
}

export class Element {
  attributes = new Map();
  childNodes = []; // elements and strings
  listeners = [];
  parent = null;
  clientWidth = 600;
  offsetWidth = 60;
  scrollWidth = 10;
  style = { values: {}, setProperty: (key, value) => (this.style.values[key] = String(value)) };
  dataset = new Proxy(
    {},
    {
      get: (_, key) => this.attributes.get(name(key)),
      set: (_, key, value) => Boolean(this.attributes.set(name(key), String(value))),
    },
  );

  constructor(tag) {
    this.tag = tag;
  }
  setAttribute(key, value) {
    this.attributes.set(key, String(value));
  }
  getAttribute(key) {
    return this.attributes.get(key) ?? null;
  }
  removeAttribute(key) {
    this.attributes.delete(key);
  }
  toggleAttribute(key, on) {
    if (on) this.attributes.set(key, "");
    else this.attributes.delete(key);
  }
  get value() {
    return this.set ?? this.getAttribute("value");
  }
  set value(value) {
    this.set = String(value);
  }
  get children() {
    return this.childNodes.filter((node) => node instanceof Element);
  }
  get childElementCount() {
    return this.children.length;
  }
  get textContent() {
    return this.childNodes.map((node) => node.textContent ?? node).join("");
  }
  set textContent(text) {
    this.replaceChildren(String(text));
  }
  append(...nodes) {
    for (const node of nodes) {
      if (node instanceof Element) node.parent = this;
      this.childNodes.push(node);
    }
  }
  replaceChildren(...nodes) {
    this.childNodes = [];
    this.append(...nodes);
  }
  remove() {
    this.parent.childNodes = this.parent.childNodes.filter((node) => node !== this);
  }
  focus() {
    document.activeElement = this;
  }
  setPointerCapture(pointer) {
    this.captured = pointer;
  }
  closest(selector) {
    const found = this.getAttribute("class")?.split(" ").includes(selector.slice(1));
    return found ? this : (this.parent?.closest(selector) ?? null);
  }
  getBoundingClientRect() {
    return { left: 0, top: 0, width: 100, height: 100 };
  }
  getContext() {
    return (this.context ??= new Context());
  }
  addEventListener(type, listener, { signal } = {}) {
    const entry = { type, listener };
    this.listeners.push(entry);
    signal?.addEventListener("abort", () => this.listeners.splice(this.listeners.indexOf(entry), 1));
  }

  /** Tell the listeners here and above; returns the event. */
  send(type, more = {}) {
    const event = { type, target: this, ...more };
    event.preventDefault = () => (event.prevented = true);
    event.stopPropagation = () => (event.stopped = true);
    for (let node = this; node && !event.stopped; node = node.parent) {
      node.listeners.filter((entry) => entry.type === type).forEach(({ listener }) => listener(event));
    }
    return event;
  }

  /** All elements below for which `wanted` holds, in the order of the page. */
  all(wanted) {
    return this.children.flatMap((child) => [...(wanted(child) ? [child] : []), ...child.all(wanted)]);
  }
  role(role) {
    return this.all((node) => node.dataset.role === role);
  }
  ofClass(word) {
    return this.all((node) => node.getAttribute("class")?.split(" ").includes(word));
  }
}

class Observer {
  constructor(tell) {
    Object.assign(this, { tell, watches: true });
    observers.push(this);
  }
  observe() {}
  disconnect() {
    this.watches = false;
  }
}

export const observers = [];
export const darkPreferred = Object.assign(new Element("media"), { matches: false });

globalThis.document = {
  createElement: (tag) => new Element(tag),
  createElementNS: (_, tag) => new Element(tag),
  documentElement: new Element("html"),
  body: new Element("body"),
};
globalThis.matchMedia = () => darkPreferred;
globalThis.MutationObserver = Observer;
globalThis.ResizeObserver = Observer;
globalThis.devicePixelRatio = 1;
