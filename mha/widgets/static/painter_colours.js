// A weight as the colour of a cell, and the ink that reads best on it.

import { colourIndex, weightColours } from "./dom.js";

const PAPER = { light: 255, dark: 27 }; // grey, below a colour that lets it through
const EVEN = 0.179; // luminance on which black and white read equally well, at a contrast of 4.6

function luminance(colour) {
  const [red, green, blue] = colour.map((part) =>
    part > 10 ? ((part / 255 + 0.055) / 1.055) ** 2.4 : part / 255 / 12.92,
  );
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** A function that gives a node the colour of a weight; NaN has that of 0. */
export function cellPaint(theme) {
  const colours = weightColours(theme);
  const table = Array.from({ length: 256 }, (_, i) => {
    const [red, green, blue, alpha] = colours.subarray(4 * i, 4 * i + 4);
    const seen = [red, green, blue].map((part) => PAPER[theme] + (alpha / 255) * (part - PAPER[theme]));
    return {
      colour: `rgb(${red} ${green} ${blue} / ${(alpha / 255).toFixed(3)})`,
      on: luminance(seen) > EVEN ? "#000" : "#fff",
    };
  });
  return (node, weight) => {
    const { colour, on } = table[Number.isNaN(weight) ? 0 : colourIndex(weight)];
    if (node.dataset.colour === colour) return;
    node.dataset.colour = colour;
    node.style.setProperty("--weight", colour);
    node.style.setProperty("--on", on);
  };
}
