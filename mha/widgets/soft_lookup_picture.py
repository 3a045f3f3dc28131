"""The picture of a SoftLookup's state, for readers without JavaScript."""

from matplotlib.patches import Circle

from .picture import KEY, OUTPUT, QUERY, VALUE, WEIGHT, drawable, png


def lookup_picture(lookup):
    """Return a PNG as bytes: the arrows, a bar for the weight of each key, the output."""
    return png(_draw, lookup, [drawable(name) for name in lookup.names])


def _draw(figure, lookup, names):
    left, right = figure.subplots(1, 2)
    _draw_arrows(left, lookup, names)
    _draw_weights(right, lookup, names)


def _draw_arrows(axes, lookup, names):
    axes.add_patch(Circle((0, 0), 1, fill=False, ec="0.6", ls=(0, (3, 3)), lw=0.8))
    axes.axhline(0, color="0.85", lw=0.8, zorder=0)
    axes.axvline(0, color="0.85", lw=0.8, zorder=0)
    arrows = [*zip(names, lookup.key_arrows, strict=True), ("query", lookup.query)]
    for name, (x, y) in arrows:
        colour, width = (QUERY, 2.4) if name == "query" else (KEY, 1.5)
        props = {"arrowstyle": "-|>", "color": colour, "lw": width, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", (x, y), (0, 0), arrowprops=props, annotation_clip=False)
        length = max((x**2 + y**2) ** 0.5, 1e-9)
        outwards = (16 * x / length, 12 * y / length)
        label = {"color": colour, "size": 8, "weight": "bold", "ha": "center", "va": "center"}
        axes.annotate(name, (x, y), outwards, textcoords="offset points", parse_math=False, **label)
    reach = max(1.5, *(abs(one) + 0.4 for _, arrow in arrows for one in arrow))
    axes.set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal", xticks=[], yticks=[])
    axes.set_xlabel("keys and query", fontsize=8)
    axes.spines[:].set_visible(False)


def _draw_weights(axes, lookup, names):
    weights, rows = lookup.weights(), range(len(names))
    unit = drawable(lookup.unit)
    beside = {"va": "center", "parse_math": False}
    axes.barh(rows, weights, color=WEIGHT, height=0.55)
    for row, weight, value in zip(rows, weights, lookup.values, strict=True):
        shown = "<0.001" if 0 < weight < 0.0005 else f"{weight:.3f}"
        axes.text(weight + 0.02, row, shown, size=8, color=WEIGHT, **beside)
        axes.text(1.22, row, f"{value:g}", size=9, color=VALUE, **beside)
    axes.text(1.22, -0.5, f"value, {unit}" if unit else "value", size=8, color=VALUE, **beside)
    axes.set_yticks(rows, names, fontsize=9, color=KEY, parse_math=False)
    axes.set(xlim=(0, 1), ylim=(len(names) - 0.4, -0.6), xticks=(0, 0.5, 1))
    axes.tick_params(axis="x", labelsize=7)
    score = "q·k" if lookup.measure == "dot" else "cosine"
    axes.set_xlabel(f"weight: softmax of {score} / {lookup.temperature:.3g}", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    bold = {"color": OUTPUT, "fontsize": 10, "weight": "bold", "parse_math": False}
    axes.set_title(f"output {lookup.output():.4g} {unit}".rstrip(), loc="left", **bold)
