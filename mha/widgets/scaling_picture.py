"""The picture of a ScalingExplorer's state, for readers without JavaScript."""

import math

import numpy as np

from .picture import WEIGHT, png

BARS = "0.72"


def scaling_picture(explorer):
    """Return a PNG as bytes: the logits with the predicted density, and one row's softmax."""
    return png(_draw, explorer)


def _draw(figure, explorer):
    left, right = figure.subplots(1, 2)
    _draw_logits(left, explorer)
    _draw_weights(right, explorer)
    for axes in (left, right):
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)


def _draw_logits(axes, explorer):
    edges, counts = explorer._histogram()
    known, found = explorer.predicted(), explorer.measured()
    density = counts / explorer.logits().size / np.diff(edges)
    axes.stairs(density, edges, fill=True, color=BARS)
    deviation = math.sqrt(known["variance"])
    places = np.linspace(edges[0], edges[-1], 201)
    normal = np.exp(-0.5 * ((places - known["mean"]) / deviation) ** 2)
    normal /= deviation * math.sqrt(2 * math.pi)
    axes.plot(places, normal, color="black", lw=1.4)
    axes.set(xlim=(edges[0], edges[-1]), ylim=(0, None), yticks=[])
    axes.set_xlabel("logit; line: the normal density predicted", fontsize=8)
    variance, error = found["variance"]
    title = f"variance {known['variance']:.3g} predicted, {variance:.3g} ± {error:.2g} measured"
    axes.set_title(title, loc="left", fontsize=9)


def _draw_weights(axes, explorer):
    weights = explorer.weights()[explorer.row]
    norms = explorer.gradient_norms()[0]
    axes.bar(range(len(weights)), weights, color=WEIGHT)
    axes.axhline(1 / len(weights), color="black", lw=0.8, ls="--")
    axes.set(ylim=(0, 1), yticks=(0, 0.5, 1))
    state = f"d_k = {explorer.d_k}, scale {explorer.scale}".replace("_k", "ₖ")
    axes.set_xlabel(f"weights of query {explorer.row} on its keys; {state}", fontsize=8)
    title = f"largest weight {weights.max():.3f}, median of ‖J‖ {np.median(norms):.2g}"
    axes.set_title(title, loc="left", fontsize=9)
