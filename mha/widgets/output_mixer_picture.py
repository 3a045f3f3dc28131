"""The picture of an OutputMixer's state, for readers without JavaScript."""

import numpy as np

from ..plotting import HEAD_COLOURS
from .picture import OUTPUT, drawable, png

BIAS_COLOUR = "#D4D4D4"


def mixer_picture(z, contributions, bias, token, feature):
    """Return a PNG as bytes: z in blocks, y as bars, and y as a stack of what the heads add.

    Parameters
    ----------
    z : array, H d
        Zero for a head that is off.
    contributions : array, H F
    bias : array, F
    token : str
        Drawn letter by letter, never read as a formula.
    feature : int
        The column that is marked.
    """
    return png(_draw, z, contributions, bias, drawable(token), feature, inches=(6.2, 5.2))


def _draw(figure, z, contributions, bias, token, feature):
    strip, whole, stacked = figure.subplots(3, 1, height_ratios=(0.7, 2, 2))
    _strip(strip, z, token)
    y = contributions.sum(0) + bias
    columns = np.arange(len(y))
    whole.bar(columns, y, 0.88, color=OUTPUT, antialiased=False)
    _stacks(stacked, columns, contributions, bias)
    stacked.bar(columns, y, 0.88, color=OUTPUT, alpha=0.5, zorder=0, antialiased=False)
    for axes in (whole, stacked):
        axes.hlines(y, columns - 0.46, columns + 0.46, color="black", linewidth=2, zorder=3)
        axes.axhline(0, color="0.4", linewidth=0.7)
        axes.axvspan(feature - 0.5, feature + 0.5, color="0.92", zorder=-1)
        axes.set_xlim(-0.6, len(y) - 0.4)
        axes.tick_params(labelsize=7)
        axes.spines[["top", "right"]].set_visible(False)
    whole.sharey(stacked)
    _name(whole, "1: concatenate, then multiply by W_O")
    _name(stacked, "2: multiply head by head, then add. The marks are the same y")
    stacked.set_xlabel("feature of y", fontsize=8)


def _strip(axes, z, token):
    """Draw the concatenation: a tinted block of bars for each head, flat where it is off."""
    n_heads, width = z.shape
    for h in range(n_heads):
        start = h * width - 0.5
        if z[h].any():
            axes.axvspan(start, start + width, color=_colour(h), alpha=0.35, linewidth=0)
        axes.axvline(start, color="white", linewidth=1.5)
    axes.bar(np.arange(z.size), z.ravel(), 1.0, color="black", antialiased=False)
    axes.axhline(0, color="black", linewidth=0.5)
    axes.set_xlim(-0.5, z.size - 0.5)
    centres = (np.arange(n_heads) + 0.5) * width - 0.5
    axes.set_xticks(centres, [str(h) for h in range(n_heads)], fontsize=7)
    axes.set_yticks([])
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    _name(axes, f"z of the token {token}, all heads in one row")


def _stacks(axes, columns, contributions, bias):
    """Pile up what is positive and what is negative, the bias first, then head after head."""
    up, down = np.zeros(len(bias)), np.zeros(len(bias))
    parts = [(bias, BIAS_COLOUR), *((part, _colour(h)) for h, part in enumerate(contributions))]
    for h, (part, colour) in enumerate(parts, start=-1):
        base = np.where(part < 0, down, up)
        rim = {"edgecolor": "0.3", "linewidth": 0.5, "antialiased": False, "zorder": 2}
        axes.bar(columns, part, 0.56, base, color=colour, **rim)
        round_ = max(h, 0) // len(HEAD_COLOURS)  # the colours have begun again so many times
        for stripe in range(round_):
            beside = 0.2 * (stripe - (round_ - 1) / 2)
            axes.bar(columns + beside, part, 0.12, base, color="white", antialiased=False, zorder=2)
        up, down = up + part.clip(min=0), down + part.clip(max=0)


def _colour(head):
    return HEAD_COLOURS[head % len(HEAD_COLOURS)]


def _name(axes, text):
    axes.set_title(text, fontsize=8, loc="left", parse_math=False)
