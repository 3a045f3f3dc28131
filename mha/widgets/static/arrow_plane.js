// The plane: a query and its keys as arrows whose tips can be dragged, or moved by the arrow keys.

import { LONGEST, angleBetween, arrowTo, direction, lengthOf, stepped } from "./arrows.js";
import { drawing, element, plainKey, weightText, write } from "./dom.js";
import { LETTER, labelPlaces, shortened } from "./labels.js";

const SIDE = 340; // of the drawing, in its own units, CSS pixels where there is room
const UNIT = 53; // length 1
const HEAD = 12;
const STEPS = { plain: 0.1, shift: 0.01 };

const place = ([x, y]) => [SIDE / 2 + UNIT * x, SIDE / 2 - UNIT * y];
const from = ([x, y]) => [(x - SIDE / 2) / UNIT, (SIDE / 2 - y) / UNIT];

/** What does not move: the disc that arrows stay in, axes, and the circle of length 1. */
function paper() {
  const [centre, edge] = [SIDE / 2, UNIT * LONGEST];
  const circle = (className, r) => drawing("circle", { class: className, cx: centre, cy: centre, r });
  const [low, high] = [centre - edge, centre + edge];
  const one = (x, y, text, anchor) =>
    drawing("text", { class: "mha-arrow-tick", x, y, text, "text-anchor": anchor });
  return drawing(
    "g",
    {},
    circle("mha-arrow-disc", edge),
    drawing("path", { class: "mha-arrow-axes", d: `M${low} ${centre}H${high}M${centre} ${low}V${high}` }),
    circle("mha-arrow-unit", UNIT),
    ...[1, 2, 3].map((x) => one(centre + UNIT * x - 4, centre + 13, x, "end")),
    ...[1, 2, 3].map((y) => one(centre - 5, centre - UNIT * y + 13, y, "end")),
  );
}

/** One arrow: a shaft from the origin, a head at the tip, a dot where it has no length. */
function arrowNode(arrow) {
  const shaft = drawing("line", { x1: SIDE / 2, y1: SIDE / 2 });
  const head = drawing("path", { d: `M0 0L${-HEAD} ${-HEAD * 0.42}V${HEAD * 0.42}Z` });
  const dot = drawing("circle", { cx: SIDE / 2, cy: SIDE / 2, r: 4 });
  const node = drawing("g", { class: "mha-arrow", "data-arrow": arrow }, shaft, head, dot);
  return {
    node,
    update(tip) {
      const size = Math.min(1, (UNIT * lengthOf(tip)) / HEAD);
      const degrees = direction(tip) ?? 0;
      const [x, y] = place(tip);
      const back = [Math.cos, Math.sin].map((one) => HEAD * 0.8 * size * one((degrees * Math.PI) / 180));
      shaft.setAttribute("x2", x - back[0]);
      shaft.setAttribute("y2", y + back[1]);
      head.setAttribute("transform", `translate(${x} ${y}) rotate(${-degrees}) scale(${size})`);
      dot.setAttribute("visibility", size < 0.5 ? "visible" : "hidden");
    },
  };
}

/** The arc from one arrow to another, the short way, and where its text goes. */
function arcBetween(one, other) {
  const angle = angleBetween(one, other);
  if (angle === null) return { path: "", text: "" };
  const radius = Math.min(0.45, 0.7 * Math.min(lengthOf(one), lengthOf(other)));
  const left = one[0] * other[1] - one[1] * other[0] >= 0; // whether the other lies to the left
  const at = (degrees, r) => place([Math.cos, Math.sin].map((f) => r * f((degrees * Math.PI) / 180)));
  const start = direction(one);
  const end = left ? start + angle : start - angle;
  const path = `M${at(start, radius)}A${radius * UNIT} ${radius * UNIT} 0 0 ${left ? 0 : 1} ${at(end, radius)}`;
  // between two arrows that nearly lie on each other there is no room for a number
  return { path, text: angle < 25 ? "" : `${angle.toFixed(0)}°`, at: at((start + end) / 2, radius + 0.3) };
}

/** `move(arrow, tip)` and `choose(arrow)` are called after an act of the reader. */
export function arrowPlane({ id, on, move, choose }) {
  const arc = drawing("path", { class: "mha-arrow-arc" });
  const angle = drawing("text", { class: "mha-arrow-angle", "text-anchor": "middle" });
  const arrows = drawing("g");
  const labels = drawing("g");
  const picture = drawing(
    "svg",
    { viewBox: `0 0 ${SIDE} ${SIDE}`, "aria-hidden": "true" },
    paper(),
    arrows,
    arc,
    angle,
    labels,
  );
  const plane = element("div", {
    class: "mha-arrow-plane",
    tabindex: 0,
    role: "application",
    "aria-roledescription": "plane of arrows",
    "aria-label":
      "The query and the keys as arrows. The arrow keys move the tip of the chosen arrow by 0.1, with Shift by 0.01.",
    "aria-describedby": `${id}-where ${id}-pair`,
  });
  plane.append(picture);
  let now = null; // what update() was last given
  let parts = new Map(); // arrow -> its nodes
  let names = null;
  let held = null; // the arrow under the finger, and how far from its tip

  const build = () => {
    names = now.names;
    parts.forEach(({ grip }) => grip.remove());
    parts = new Map(
      now.arrows.map(({ arrow, name }) => {
        const weight = drawing("tspan", { class: "mha-arrow-weight" });
        const label = drawing(
          "text",
          { class: "mha-arrow-name", "data-arrow": arrow },
          shortened(name),
          weight,
        );
        const grip = element("div", { class: "mha-arrow-grip", "data-arrow": arrow });
        return [arrow, { ...arrowNode(arrow), label, weight, grip }];
      }),
    );
    const all = [...parts.values()];
    arrows.replaceChildren(...all.map(({ node }) => node));
    labels.replaceChildren(...all.map(({ label }) => label));
    plane.append(...all.map(({ grip }) => grip));
  };

  const pointOf = (event) => {
    const box = plane.getBoundingClientRect();
    return from([
      ((event.clientX - box.left) / box.width) * SIDE,
      ((event.clientY - box.top) / box.height) * SIDE,
    ]);
  };
  const apart = (one, other) => lengthOf([one[0] - other[0], one[1] - other[1]]);
  on(plane, "pointerdown", (event) => {
    if (held || event.button || !event.target.closest(".mha-arrow-grip")) return;
    const point = pointOf(event);
    // of tips that lie on each other, the chosen one
    const distance = ({ arrow, tip }) => apart(tip, point) - (arrow === now.chosen ? 0.1 : 0);
    const near = now.arrows.reduce((best, one) => (distance(one) < distance(best) ? one : best));
    held = { pointer: event.pointerId, arrow: near.arrow, offset: near.tip.map((one, i) => one - point[i]) };
    event.preventDefault(); // no text is selected
    plane.setPointerCapture(event.pointerId);
    plane.toggleAttribute("data-held", true);
    plane.focus({ preventScroll: true });
    if (near.arrow !== now.chosen) choose(near.arrow);
  });
  on(plane, "pointermove", (event) => {
    if (held?.pointer !== event.pointerId) return;
    const tip = arrowTo(pointOf(event).map((one, i) => one + held.offset[i]));
    if (String(tip) !== String(now.arrows.find(({ arrow }) => arrow === held.arrow).tip))
      move(held.arrow, tip);
  });
  for (const type of ["pointerup", "pointercancel", "lostpointercapture"]) {
    on(plane, type, (event) => {
      if (held?.pointer !== event.pointerId) return;
      held = null;
      plane.toggleAttribute("data-held", false);
    });
  }
  on(plane, "keydown", (event) => {
    if (!plainKey(event)) return;
    const ways = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowDown: [1, -1], ArrowUp: [1, 1] };
    if (!(event.key in ways)) return;
    event.preventDefault();
    const [axis, sign] = ways[event.key];
    const { arrow, tip } = now.arrows.find((one) => one.arrow === now.chosen);
    move(arrow, stepped(tip, axis, sign * (event.shiftKey ? STEPS.shift : STEPS.plain)));
  });

  return {
    node: plane,
    /** `arrows` are {arrow, name, tip, weight}, the query last; `names` is new where a name is. */
    update(state) {
      now = state;
      if (names !== state.names) build();
      state.arrows.forEach(({ arrow, tip, weight }) => {
        const part = parts.get(arrow);
        part.update(tip);
        for (const node of [part.node, part.grip])
          node.toggleAttribute("data-chosen", arrow === state.chosen);
        write(part.weight, weight === null ? "" : ` ${weightText(weight)}`);
        Object.assign(part.grip.dataset, { x: tip[0], y: tip[1] });
        place(tip).forEach((at, i) =>
          part.grip.style.setProperty(i ? "top" : "left", `${(100 * at) / SIDE}%`),
        );
      });
      const shown = [...parts.values()];
      const widths = shown.map(({ label }) => LETTER * label.textContent.length);
      labelPlaces(
        state.arrows.map(({ tip }) => tip),
        widths,
        { place, side: SIDE },
      ).forEach(([x, y], i) => {
        shown[i].label.setAttribute("x", x);
        shown[i].label.setAttribute("y", y + 4);
      });
      const tips = [state.query, state.keys[state.key]];
      const turn = arcBetween(...tips);
      arc.setAttribute("d", turn.path);
      write(angle, turn.text);
      if (turn.at) ["x", "y"].forEach((axis, i) => angle.setAttribute(axis, turn.at[i] + 4 * i));
    },
  };
}
