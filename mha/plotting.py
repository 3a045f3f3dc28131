"""Pictures of weights and matrices: arrays in, matplotlib Axes out.

Weights always have one colour map, fixed to [0, 1], so that two maps can be compared. The widgets
use it too.
"""

import matplotlib.pyplot as plt
import numpy as np
import seaborn as sns
from matplotlib.colors import to_rgba

WEIGHT_COLOURS = ("#FFFFFF", "#8F4A8B", "#3B1039")  # of the weights 0, 1/2 and 1
WEIGHT_MAP = sns.blend_palette(WEIGHT_COLOURS, as_cmap=True)
# Head h has colour h % 8, everywhere: Paul Tol's "muted", safe for colour-blind readers.
HEAD_COLOURS = ("#44AA99", "#CC6677", "#DDCC77", "#332288",
                "#88CCEE", "#882255", "#999933", "#117733")
STYLE = "mha.mha"  # the package's mha.mplstyle


def weight_map(weights, queries, keys=None, *, ax=None, numbers=False):
    """One head's weights as a heat map, queries down, keys across.

    Parameters
    ----------
    weights : array, T S
    queries, keys : list of str
        Labels of the rows and the columns; keys default to the queries.
    ax : Axes, optional
    numbers : bool
        Write the weights into their cells, those of at least 0.05.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the labels don't fit the weights.
    """
    weights = np.asarray(weights)
    keys = queries if keys is None else keys
    if weights.shape != (len(queries), len(keys)):
        raise ValueError(f"weights have shape {weights.shape}, the labels say "
                         f"({len(queries)}, {len(keys)}): pass one label a row and one a column")
    if ax is None:
        ax = plt.figure(figsize=(0.45 * len(keys) + 1.2, 0.4 * len(queries) + 1)).gca()
    sns.heatmap(weights, vmin=0, vmax=1, cmap=WEIGHT_MAP, square=True, cbar=False, ax=ax,
                linewidths=0.5, linecolor="0.9", xticklabels=keys, yticklabels=queries)
    for (t, s), weight in np.ndenumerate(weights):
        if numbers and weight >= 0.05:
            colour = "white" if weight > 0.43 else "black"  # a contrast of 4.4 or more in each cell
            ax.text(s + 0.5, t + 0.5, f"{weight:.2f}", size=8, color=colour,
                    ha="center", va="center")
    ax.set(xlabel="keys", ylabel="queries")
    ax.tick_params(axis="x", rotation=90 if len(keys) > 4 else 0, length=0)
    ax.tick_params(axis="y", rotation=0, length=0)
    return ax


def signed_map(values, rows, columns=None, *, ax=None):
    """A matrix of signed numbers as a heat map centred at 0, each number in its cell.

    Parameters
    ----------
    values : array, n m
        The colours run from minus the largest size to the largest size.
    rows, columns : list of str
        Labels; columns default to the rows.
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the labels don't fit the values.
    """
    values = np.asarray(values)
    columns = rows if columns is None else columns
    if values.shape != (len(rows), len(columns)):
        raise ValueError(f"values have shape {values.shape}, the labels say "
                         f"({len(rows)}, {len(columns)}): pass one label a row and one a column")
    if ax is None:
        ax = plt.figure(figsize=(0.75 * len(columns) + 1.2, 0.6 * len(rows) + 1)).gca()
    most = np.abs(values).max()
    sns.heatmap(values, vmin=-most, vmax=most, cmap="vlag", cbar=False, ax=ax, linewidths=0.5,
                linecolor="0.9", xticklabels=columns, yticklabels=rows)
    for (i, j), value in np.ndenumerate(values):
        dark = value > 0.84 * most or value < -0.9 * most  # a contrast of 4.4 or more in each cell
        ax.text(j + 0.5, i + 0.5, f"{value:+.3f}".replace("-", "−"), size=9,
                color="white" if dark else "black", ha="center", va="center")
    ax.tick_params(axis="y", rotation=0, length=0)
    ax.tick_params(axis="x", length=0)
    return ax


def head_maps(weights, tokens, *, names=None, columns=4, numbers=False):
    """Several heads side by side, each named above its map.

    Parameters
    ----------
    weights : array, H T S
    tokens : list of str
        Labels of the queries and the keys.
    names : list of str, optional
        One for each head; default "head 0", "head 1", …
    columns : int
        Maps in a row.
    numbers : bool
        As for `weight_map`.

    Returns
    -------
    array of Axes, H
    """
    weights = np.asarray(weights)
    names = [f"head {h}" for h in range(len(weights))] if names is None else names
    columns = min(columns, len(weights))
    rows = -(-len(weights) // columns)
    side = (0.4 if numbers else 0.26) * len(tokens) + 0.7
    _, grid = plt.subplots(rows, columns, squeeze=False, layout="constrained",
                           figsize=(columns * side + 0.6, rows * side + 0.5))
    for ax in grid.flat[len(weights):]:
        ax.remove()
    axes = grid.flat[: len(weights)]
    for h, ax in enumerate(axes):
        weight_map(weights[h], tokens, ax=ax, numbers=numbers)
        ax.set_title(names[h])
        if h % columns:
            ax.set(ylabel="", yticks=[])
        if h + columns < len(weights):
            ax.set(xlabel="", xticks=[])
    return axes


def weight_lines(steps, weights, names, xlabel, *, ax=None):
    """The weights of a few keys as lines over a quantity on a logarithmic axis, each with its name.

    Parameters
    ----------
    steps : array, n
        Where on the axis; positive.
    weights : array, n S
    names : list of str, S
    xlabel : str
    ax : Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the names or the steps don't fit the weights.
    """
    weights = np.asarray(weights)
    if weights.shape != (len(steps), len(names)):
        raise ValueError(f"weights have shape {weights.shape}, steps and names say "
                         f"({len(steps)}, {len(names)}): pass one row a step, one name a column")
    if ax is None:
        ax = plt.figure(figsize=(5.4, 3)).gca()
    dashes = [(None, None), (5, 1.5), (2.5, 1.5), (1, 1)]  # the colour says "weight" for all
    at = len(steps) // 2  # where the lines carry their names
    for s, name in enumerate(names):
        ax.plot(steps, weights[:, s], color=WEIGHT_COLOURS[1], dashes=dashes[s % len(dashes)])
        higher = weights[at] - weights[at, s]
        crowded = ((higher > 0) & (higher < 0.1)).any()  # then the name stands below its line
        ax.annotate(name, (steps[at], weights[at, s]), xytext=(0, -3 if crowded else 3),
                    textcoords="offset points", size=9, va="top" if crowded else "bottom")
    ax.set(xscale="log", ylim=(-0.02, 1.02), xlabel=xlabel, ylabel="weight")
    sns.despine(ax=ax)
    return ax


def head_lines(groups, titles, ylabel, *, mark):
    """Falling rows of numbers, one row a head: some heads as lines, the rest as a grey band.

    Parameters
    ----------
    groups : list of array, H n each, drawn in one panel a group
    titles : list of str, one a group
    ylabel : str
    mark : sequence of int
        Heads drawn in their colour and named. The band runs from the least to the largest number
        of the others at each place.

    Returns
    -------
    array of Axes, one a group

    Raises
    ------
    ValueError
        If `mark` names a head that is not there, one twice, or all.
    """
    n_heads, mark = len(groups[0]), list(mark)
    if not set(mark) < set(range(n_heads)) or len(set(mark)) < len(mark):
        raise ValueError(f"mark={mark} must name some of the heads 0 to {n_heads - 1}, each once, "
                         "and leave one for the band")
    _, axes = plt.subplots(1, len(groups), squeeze=False, figsize=(2.8 * len(groups), 2.4),
                           layout="constrained")
    for ax, group, title in zip(axes.flat, groups, titles, strict=True):
        group = np.asarray(group)
        places = np.arange(1, group.shape[1] + 1)
        others = np.delete(group, mark, axis=0)
        ax.fill_between(places, others.min(0), others.max(0), color="0.82", linewidth=0,
                        label=f"the other {len(others)}")
        for count, h in enumerate(mark):
            ax.plot(places, group[h], color=HEAD_COLOURS[h % len(HEAD_COLOURS)],
                    linestyle=("-", "--")[count % 2], label=f"head {h}")
        ax.set(title=title, xlabel="place", ylim=(0, None))
        sns.despine(ax=ax)
    axes[0, 0].set_ylabel(ylabel)
    axes[0, 0].legend(frameon=False)
    return axes.ravel()


def number_grid(values, *, blocks=1, ax=None, rows=None):
    """A matrix of whole numbers as a table, its columns tinted in equal blocks, one a head.

    Parameters
    ----------
    values : array, n m
    blocks : int
        Number of blocks the columns are tinted in; 1 leaves them white.
    ax : Axes, optional
    rows : list of str, optional
        Labels of the rows.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If the columns don't make equal blocks.
    """
    values = np.asarray(values)
    n_rows, n_columns = values.shape
    if n_columns % blocks:
        raise ValueError(f"{n_columns} columns can't be cut into blocks={blocks} equal blocks")
    if ax is None:
        ax = plt.figure(figsize=(0.42 * n_columns + 0.6, 0.42 * n_rows)).gca()
    width = n_columns // blocks
    for (i, j), value in np.ndenumerate(values):
        of_head = HEAD_COLOURS[j // width % len(HEAD_COLOURS)]
        colour = to_rgba(of_head, 0.35) if blocks > 1 else "white"
        ax.add_patch(plt.Rectangle((j, i), 1, 1, facecolor=colour, edgecolor="0.6", linewidth=0.6,
                                   clip_on=False))
        ax.text(j + 0.5, i + 0.5, f"{value:g}", ha="center", va="center")
    ax.set(xlim=(0, n_columns), ylim=(n_rows, 0), aspect="equal", xticks=[],
           yticks=np.arange(n_rows) + 0.5 if rows else [])
    ax.set_yticklabels(rows or [])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    return ax
