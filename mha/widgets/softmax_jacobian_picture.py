"""The picture of a SoftmaxJacobian's state, for readers without JavaScript."""

import io

from matplotlib.colors import LinearSegmentedColormap
from PIL import Image

from .picture import WEIGHT, drawable, png

# of the slopes −0.25, 0 and 0.25, as in static/softmax_jacobian.css
SLOPE_MAP = LinearSegmentedColormap.from_list("slopes", ["#6AA5E0", "#FFFFFF", "#EC8577"])
STEEPEST = 0.25  # no slope of a softmax is larger
MOST_WRITTEN = 6  # logits; of more, the numbers don't fit the cells


def jacobian_picture(softmax):
    """Return a PNG as bytes: a bar for each weight, and the Jacobian as a map."""
    return _few_colours(png(_draw, softmax, [drawable(name) for name in softmax.names]))


def _few_colours(picture):
    """Return the same PNG with a palette: so many letters would take 100 KB in full colour."""
    image, file = Image.open(io.BytesIO(picture)).convert("RGB"), io.BytesIO()
    method, dither = Image.Quantize.MEDIANCUT, Image.Dither.NONE
    image.quantize(64, method=method, dither=dither).save(file, "png", optimize=True)
    return file.getvalue()


def _draw(figure, softmax, names):
    left, right = figure.subplots(1, 2, width_ratios=(2, 3))
    _draw_weights(left, softmax, names)
    _draw_slopes(right, softmax, names)


def _draw_weights(axes, softmax, names):
    rows = range(len(names))
    axes.barh(rows, softmax.weights(), color=WEIGHT, height=0.55)
    for row, weight, logit in zip(rows, softmax.weights(), softmax.logits, strict=True):
        shown = "<0.001" if weight < 0.0005 else f"{weight:.3f}"
        place = {"va": "center", "size": 8, "parse_math": False}
        axes.text(weight + 0.02, row, shown, color=WEIGHT, **place)
        axes.text(1.52, row, f"{logit:.2f}".replace("-", "−"), ha="right", **place)
    axes.text(1.52, -0.75, "logit", ha="right", size=8)
    axes.set_yticks(rows, names, fontsize=9, parse_math=False)
    axes.set(xlim=(0, 1.54), ylim=(len(names) - 0.4, -1), xticks=(0, 0.5, 1))
    axes.tick_params(axis="x", labelsize=7)
    axes.set_xlabel(f"weight: softmax of logit / {softmax.temperature:.3g}", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _draw_slopes(axes, softmax, names):
    slopes, rows = softmax.jacobian(), range(len(names))
    axes.pcolormesh(slopes, cmap=SLOPE_MAP, vmin=-STEEPEST, vmax=STEEPEST, edgecolor="0.85", lw=0.5)
    if len(names) <= MOST_WRITTEN:
        for i in rows:
            for k in rows:
                place = {"ha": "center", "va": "center", "size": 8}
                axes.text(k + 0.5, i + 0.5, slope_text(slopes[i, k]), **place)
    centres = [i + 0.5 for i in rows]
    turned = 90 if max(map(len, names)) > 16 // len(names) else 0
    axes.set_xticks(centres, names, fontsize=8, rotation=turned, parse_math=False)
    axes.set_yticks(centres, names, fontsize=8, parse_math=False)
    axes.tick_params(length=0)
    axes.set(ylim=(len(names), 0))
    axes.set_xlabel("column: the z = logit / temperature that is moved", fontsize=8)
    axes.set_ylabel("row: the weight that moves", fontsize=8)
    numbers = f"norm {softmax.norm():.3g}, largest eigenvalue {softmax.largest_eigenvalue():.3g}"
    axes.set_title(f"−0.25 blue, 0.25 red; {numbers}", loc="left", fontsize=9)
    axes.spines[:].set_visible(False)


def slope_text(slope):
    """Return three decimals; what they don't show is not 0 in truth."""
    return f"{slope:.3f}".replace("-", "−") if abs(slope) >= 0.0005 else "≈0"
