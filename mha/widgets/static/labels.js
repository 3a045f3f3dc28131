// Labels of a drawing, kept off each other. Widths are in the drawing's own units, as if all letters were wide.

import { direction } from "./arrows.js";

export const LETTER = 7.2; // the width of a letter of 12 pixels
const LONGEST_NAME = 14;
const LINE = 16;

/** A name as a drawing has room for it. */
export function shortened(name) {
  const letters = [...name]; // an emoji is one, though two in a string
  return letters.length > LONGEST_NAME ? `${letters.slice(0, LONGEST_NAME - 1).join("")}…` : name;
}

/** For labels `widths` wide around `middles`, the lowest level on which each is free. */
export function labelLevels(middles, widths) {
  const order = middles.map((_, j) => j).sort((one, other) => middles[one] - middles[other]);
  const ends = []; // where the last label of each level ends
  const levels = [];
  for (const j of order) {
    const start = middles[j] - widths[j] / 2;
    let level = ends.findIndex((end) => end + 5 <= start);
    if (level < 0) level = ends.length;
    ends[level] = start + widths[j];
    levels[j] = level;
  }
  return levels;
}

/** Ways from a tip to its label: beyond the tip first, then turned aside, then farther off. */
const WAYS = [13, 30, 47].flatMap((far) =>
  [0, 35, -35, 70, -70, 110, -110, 180].map((turn) => ({ far, turn })),
);

/**
 * The middles of labels `widths` wide, each beside the tip of its arrow, where it covers least. `place` takes
 * an arrow to a point of the drawing, a square of `side`.
 */
export function labelPlaces(tips, widths, { place, side }) {
  const points = tips.map(place);
  const along = [0.2, 0.35, 0.5, 0.65, 0.8, 0.9];
  const shafts = tips.flatMap((tip) => along.map((part) => place(tip.map((one) => part * one))));
  const low = LINE / 2;
  const boxes = [];
  tips.forEach((tip, i) => {
    const home = direction(tip) ?? 90;
    const half = widths[i] / 2;
    const inside = (middle, reach) => Math.max(reach + 2, Math.min(side - reach - 2, middle));
    const at = ({ far, turn }) => {
      const angle = ((home + turn) * Math.PI) / 180;
      const x = inside(points[i][0] + Math.cos(angle) * (far + half), half);
      const y = inside(points[i][1] - Math.sin(angle) * (far + low), low);
      const covers = ([px, py], room) => Math.abs(px - x) < half + room && Math.abs(py - y) < low + room;
      const overlaps = (box) => Math.abs(box.x - x) < half + box.half && Math.abs(box.y - y) < LINE;
      const cost =
        10 * boxes.filter(overlaps).length +
        4 * points.filter((point) => covers(point, 8.5)).length +
        shafts.filter((point) => covers(point, 1)).length;
      return { x, y, half, cost };
    };
    boxes.push(WAYS.map(at).reduce((best, one) => (one.cost < best.cost ? one : best)));
  });
  return boxes.map(({ x, y }) => [x, y]);
}
