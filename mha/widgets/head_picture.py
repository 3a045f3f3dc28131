"""The picture of a HeadExplorer's state, for readers without JavaScript."""

from ..plotting import WEIGHT_MAP
from .picture import drawable, png


def head_picture(weights, tokens, head):
    """Return a PNG as bytes: all heads small, and head `head` large between its tokens.

    Parameters
    ----------
    weights : array, H T T
    tokens : sequence of str, T
        Drawn letter by letter, never read as formulas; cut after 14 letters. A letter that the
        font lacks is drawn as a box.
    head : int
    """
    return png(_draw, weights, [drawable(token) for token in tokens], head)


def _draw(figure, weights, labels, head):
    n_heads, size = len(weights), len(labels)
    small, large = figure.subfigures(1, 2, width_ratios=(1, 1.15))
    columns = max(1, round((1.2 * n_heads) ** 0.5))
    grid = small.subplots(-(-n_heads // columns), columns, squeeze=False).ravel()
    for axes in grid:
        axes.axis("off")
    for h, axes in enumerate(grid[:n_heads]):
        axes.imshow(weights[h], cmap=WEIGHT_MAP, vmin=0, vmax=1)
        axes.set_title(str(h), fontsize=7, pad=2, weight="bold" if h == head else "normal")
    axes = large.subplots()
    image = axes.imshow(weights[head], cmap=WEIGHT_MAP, vmin=0, vmax=1)
    axes.set_xticks(range(size), labels, rotation=90, fontsize=7, parse_math=False)
    axes.set_yticks(range(size), labels, fontsize=7, parse_math=False)
    axes.set_xlabel(f"key (head {head} of {n_heads})", fontsize=8)
    axes.set_ylabel("query", fontsize=8)
    large.colorbar(image, ax=axes, shrink=0.6).ax.tick_params(labelsize=7)
