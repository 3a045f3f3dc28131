// What the widgets share in the page: elements, themes, keys, colours, announcements. No innerHTML.

/** An element from attributes (null is left out, `text` is its text) and children. */
export function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

const SVG = "http://www.w3.org/2000/svg"; // a name: nobody is asked there

/** The same for a part of a drawing (SVG). */
export function drawing(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "text") node.textContent = value;
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

/** Write a text only where it differs, so that an unchanged node costs no layout. */
export function write(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** "light" or "dark": the page's own word first, then the reader's preference. */
function currentTheme() {
  const page = document.documentElement;
  const body = document.body;
  const words = [
    page.dataset.theme, // pydata theme
    body.dataset.jpThemeLight && (body.dataset.jpThemeLight === "true" ? "light" : "dark"),
    // VS Code; its plain "vscode-high-contrast" is dark
    body.dataset.vscodeThemeKind?.match(/light|dark/)?.[0] ?? (body.dataset.vscodeThemeKind && "dark"),
    page.getAttribute("theme"), // Colab
  ];
  const word = words.find((one) => one === "light" || one === "dark");
  return word ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

/** Call `apply(theme)` now and at every change until `signal` aborts. */
export function followTheme(apply, signal) {
  let last = null;
  const check = () => {
    const theme = currentTheme();
    if (theme !== last) apply((last = theme));
  };
  const observer = new MutationObserver(check);
  const filter = ["data-theme", "data-jp-theme-light", "data-vscode-theme-kind", "theme"];
  for (const node of [document.documentElement, document.body]) {
    observer.observe(node, { attributes: true, attributeFilter: filter });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", check, { signal });
  signal.addEventListener("abort", () => observer.disconnect());
  check();
}

/** Keep plain keys from the notebook's and the page's shortcuts while a control has the focus. */
export function keepKeys(root, signal) {
  root.dataset.lmSuppressShortcuts = "true"; // JupyterLab from 4.1 on
  const keep = (event) => {
    if (!event.ctrlKey && !event.metaKey && event.key !== "Escape") event.stopPropagation();
  };
  for (const type of ["keydown", "keypress", "keyup"]) root.addEventListener(type, keep, { signal });
}

/** Whether a key comes alone: with Alt, Ctrl or Meta it is the browser's. */
export function plainKey(event) {
  return !event.altKey && !event.ctrlKey && !event.metaKey;
}

/** Where a key moves from place `now` in a row of `count`; null where it moves nowhere. */
export function placeByKey(event, now, count) {
  const places = {
    ArrowLeft: now - 1,
    ArrowUp: now - 1,
    ArrowRight: now + 1,
    ArrowDown: now + 1,
    Home: 0,
    End: count - 1,
  };
  if (!(event.key in places) || !plainKey(event)) return null;
  event.preventDefault();
  return Math.max(0, Math.min(count - 1, places[event.key]));
}

/** Where a key moves from the cell in row i and column k of `count` each; null where it moves nowhere. */
export function cellByKey(event, [i, k], count) {
  const last = count - 1;
  const places = {
    ArrowLeft: [i, Math.max(0, k - 1)],
    ArrowRight: [i, Math.min(last, k + 1)],
    ArrowUp: [Math.max(0, i - 1), k],
    ArrowDown: [Math.min(last, i + 1), k],
    Home: [i, 0],
    End: [i, last],
    PageUp: [0, k],
    PageDown: [last, k],
  };
  if (!(event.key in places) || !plainKey(event)) return null;
  event.preventDefault();
  return places[event.key];
}

/** A letter with an index below it. */
export function withIndex(letter, index) {
  return [letter, element("sub", { text: index })];
}

/** Say the last of a burst of messages in a live region, after a pause. */
export function announcer(region, signal, pause = 500) {
  let timer = 0;
  signal.addEventListener("abort", () => clearTimeout(timer));
  return (text) => {
    clearTimeout(timer);
    timer = setTimeout(() => write(region, text), pause);
  };
}

const RAMPS = {
  // weight 0 is transparent, ½ is the first colour, 1 the second; light as mha.plotting's WEIGHT_MAP
  light: [
    [143, 74, 139],
    [59, 16, 57],
  ],
  dark: [
    [184, 112, 178],
    [255, 236, 252],
  ],
};

/** The colours as a CSS gradient, for a legend. */
export function weightGradient(theme) {
  const [middle, end] = RAMPS[theme].map((colour) => colour.join(" "));
  return `linear-gradient(90deg, rgb(${middle} / 0%), rgb(${middle}), rgb(${end}))`;
}

/** 256 RGBA colours for weights from 0 to 1. */
export function weightColours(theme) {
  const [middle, end] = RAMPS[theme];
  const colours = new Uint8ClampedArray(256 * 4);
  for (let i = 0; i < 256; i++) {
    const part = i / 127.5;
    const towards = Math.max(0, part - 1);
    middle.forEach((from, c) => {
      colours[4 * i + c] = from + (end[c] - from) * towards;
    });
    colours[4 * i + 3] = 255 * Math.min(1, part);
  }
  return colours;
}

/** The place of a weight among the 256 colours. */
export function colourIndex(weight) {
  return Math.round(255 * weight);
}

/** "0.412"; a positive weight never reads as nought. */
export function weightText(weight) {
  return weight > 0 && weight < 0.0005 ? "<0.001" : weight.toFixed(3);
}

/** Three significant digits, from 100 on all whole digits, with a real minus sign. */
export function numberText(value) {
  if (!Number.isFinite(value)) return value < 0 ? "−∞" : String(value);
  const size = Math.abs(value);
  const text = size >= 100 ? size.toFixed(0) : size.toPrecision(3);
  return (value < 0 ? "−" : "") + text.replace("e-", "e−");
}

/** Fixed decimals, with a real minus sign and no minus zero. */
export function fixedText(value, digits) {
  const text = Math.abs(value).toFixed(digits);
  return (value < 0 && Number(text) ? "−" : "") + text;
}

/** Tokens that can be told apart: the second "the" is "the (2)". */
export function distinct(tokens) {
  return tokens.map((token, i) => {
    const before = tokens.slice(0, i).filter((one) => one === token).length;
    const several = tokens.indexOf(token) !== tokens.lastIndexOf(token);
    return several ? `${token} (${before + 1})` : token;
  });
}
