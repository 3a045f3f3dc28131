// The colours of heads, the same in light and in dark, in figures and in widgets.

/** As HEAD_COLOURS in mha/plotting.py. */
export const HEAD_COLOURS = [
  "#44AA99",
  "#CC6677",
  "#DDCC77",
  "#332288",
  "#88CCEE",
  "#882255",
  "#999933",
  "#117733",
];

/** Mark a node as head h's: its colour, and how often the colours have begun again (drawn as stripes). */
export function inHeadColour(node, head) {
  node.style.setProperty("--head", HEAD_COLOURS[head % HEAD_COLOURS.length]);
  node.dataset.round = Math.min(2, Math.floor(head / HEAD_COLOURS.length));
  return node;
}
