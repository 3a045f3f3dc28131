"""What the pictures of all widgets share: a PNG, the same everywhere, and letters it can draw."""

import io
from functools import cache

from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, get_font

FONT = "DejaVu Sans"  # comes with matplotlib
LONGEST = 14  # letters of a word
# the colours of queries, keys, values, weights and outputs, as in book/_static/book.css
QUERY, KEY, VALUE, WEIGHT, OUTPUT = "#0072B2", "#B84E00", "#007A59", "#8F4A8B", "#7A5C00"


def png(draw, *arguments, inches=(7.2, 3.8)):
    """Return a PNG as bytes of what ``draw(figure, *arguments)`` draws.

    Drawn in matplotlib's own style, whatever style a notebook uses, so that the same state gives
    the same bytes.
    """
    with style.context("default"):
        figure = Figure(figsize=inches, dpi=100, layout="constrained")
        FigureCanvasAgg(figure)
        draw(figure, *arguments)
        file = io.BytesIO()
        figure.savefig(file, format="png", metadata={"Software": None})
        return file.getvalue()


@cache
def _letters():
    return frozenset(get_font(findfont(FONT)).get_charmap())


def drawable(word):
    """Return `word` with a box for each letter that the font lacks, and no longer than fits.

    Draw it with ``parse_math=False``: a dollar sign is a letter.

    >>> drawable("a漢b")
    'a□b'
    """
    shown = word if len(word) <= LONGEST else word[: LONGEST - 1] + "…"
    known = _letters()
    return "".join(c if c.isprintable() and ord(c) in known else "□" for c in shown)
