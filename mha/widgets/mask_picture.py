"""The picture of a MaskPainter's state, for readers without JavaScript."""

import numpy as np

from ..plotting import WEIGHT_MAP
from .picture import drawable, png

MOST_WRITTEN = 8  # tokens; of more, the numbers don't fit the cells


def mask_picture(painter):
    """Return a PNG as bytes: what is hidden, crossed out, and the weights of the rest."""
    return png(_draw, painter, [drawable(token) for token in painter.tokens], inches=(5.2, 4.4))


def _draw(figure, painter, words):
    axes, rows = figure.subplots(), range(len(words))
    weights, visible = painter.weights(), np.array(painter.mask)
    image = axes.imshow(weights, cmap=WEIGHT_MAP, vmin=0, vmax=1)
    for i in rows:
        for j in rows:
            if not visible[i, j]:
                axes.plot([j - 0.3, j + 0.3], [i + 0.3, i - 0.3], color="0.55", lw=1.2)
            elif len(words) <= MOST_WRITTEN:
                colour = "white" if weights[i, j] > 0.45 else "black"
                number = f"{weights[i, j]:.2f}"
                axes.text(j, i, number, ha="center", va="center", size=7, color=colour)
    axes.set_xticks(rows, words, rotation=90, fontsize=8, parse_math=False)
    axes.set_yticks(rows, words, fontsize=8, parse_math=False)
    axes.set_xlabel("key", fontsize=8)
    axes.set_ylabel("query", fontsize=8)
    axes.set_title("a stroke: may not attend; the rest: weights", loc="left", fontsize=9)
    figure.colorbar(image, ax=axes, shrink=0.6).ax.tick_params(labelsize=7)
