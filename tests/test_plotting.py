"""Pictures: the numbers arrive in the cells, on the fixed colour scale, with their labels."""

import matplotlib
import numpy as np
import pytest
from matplotlib.colors import to_rgb

matplotlib.use("Agg")

from mha.plotting import (
    HEAD_COLOURS,
    STYLE,
    WEIGHT_COLOURS,
    WEIGHT_MAP,
    head_lines,
    head_maps,
    number_grid,
    plt,
    signed_map,
    weight_lines,
    weight_map,
)

WEIGHTS = np.array([[0.5, 0.25, 0.25], [0.04, 0.66, 0.3]])  # T S = 2 3, far from 0 and 1


@pytest.fixture(autouse=True)
def _close_figures():
    with plt.style.context(STYLE):
        yield
    plt.close("all")


def test_a_weight_map_shows_the_weights_on_a_fixed_scale():
    ax = weight_map(WEIGHTS, ["a", "b"], ["x", "y", "z"], numbers=True)
    mesh = ax.collections[0]
    assert np.array_equal(mesh.get_array().reshape(2, 3), WEIGHTS)
    assert mesh.get_clim() == (0, 1)
    assert [t.get_text() for t in ax.get_xticklabels()] == ["x", "y", "z"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("keys", "queries")
    assert [t.get_text() for t in ax.texts] == ["0.50", "0.25", "0.25", "0.66", "0.30"]


def test_the_colours_of_weights_run_from_white_over_purple_to_dark():
    for weight, colour in zip((0.0, 0.5, 1.0), WEIGHT_COLOURS, strict=True):
        found = np.array(WEIGHT_MAP(weight))
        assert np.abs(found - matplotlib.colors.to_rgba(colour)).max() < 1.5 / 255


def test_labels_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match=r"weights have shape \(2, 3\), the labels say \(2, 2\)"):
        weight_map(WEIGHTS, ["a", "b"])


def test_head_maps_draw_each_head_once():
    weights = np.stack([np.eye(3) * h / 5 + 0.1 for h in range(5)])
    axes = list(head_maps(weights, ["a", "b", "c"], columns=2))
    assert [ax.get_title() for ax in axes] == [f"head {h}" for h in range(5)]
    for ax, head in zip(axes, weights, strict=True):
        assert np.array_equal(ax.collections[0].get_array().reshape(3, 3), head)
        assert ax.collections[0].get_clim() == (0, 1)
        assert ax.collections[0].get_cmap() == WEIGHT_MAP
    assert len(axes[0].figure.axes) == 5  # the empty sixth place is gone


def test_a_number_grid_writes_each_number_and_tints_the_blocks():
    ax = number_grid(np.arange(12).reshape(2, 6), blocks=3)
    assert [t.get_text() for t in ax.texts] == [str(n) for n in range(12)]
    tints = [patch.get_facecolor() for patch in ax.patches][:6]
    assert tints[0] == tints[1] != tints[2] == tints[3] != tints[4] == tints[5] != tints[0]


def test_a_number_grid_refuses_blocks_that_do_not_fit():
    with pytest.raises(ValueError, match="5 columns can't be cut into blocks=2 equal blocks"):
        number_grid(np.zeros((1, 5)), blocks=2)


def luminance(colour):
    channels = np.asarray(to_rgb(colour))
    curved = ((channels + 0.055) / 1.055) ** 2.4
    linear = np.where(channels <= 0.04045, channels / 12.92, curved)
    return linear @ [0.2126, 0.7152, 0.0722]


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_numbers_can_be_read_on_every_weight():
    steps = np.linspace(0.05, 1, 96)
    ax = weight_map(steps[None], ["q"], [""] * len(steps), numbers=True)
    for weight, text in zip(steps, ax.texts, strict=True):
        assert contrast(WEIGHT_MAP(weight), text.get_color()) >= 4.4, weight


def test_a_signed_map_is_centred_at_0_and_its_numbers_can_be_read():
    values = np.array([[0.5, -0.25, 0.0], [0.125, -1.0, 0.4]])
    ax = signed_map(values, ["a", "b"], ["x", "y", "z"])
    mesh = ax.collections[0]
    assert np.array_equal(mesh.get_array().reshape(2, 3), values)
    assert mesh.get_clim() == (-1, 1)
    written = [text.get_text() for text in ax.texts]
    assert written == ["+0.500", "−0.250", "+0.000", "+0.125", "−1.000", "+0.400"]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["x", "y", "z"]
    assert [t.get_text() for t in ax.get_yticklabels()] == ["a", "b"]
    steps = np.linspace(-1, 1, 201)
    ax = signed_map(steps[None], ["a"], [""] * len(steps))
    colours = ax.collections[0].get_cmap()((steps + 1) / 2)
    for step, colour, text in zip(steps, colours, ax.texts, strict=True):
        assert contrast(colour, text.get_color()) >= 4.4, step
    with pytest.raises(ValueError, match=r"values have shape \(2, 3\), the labels say \(2, 2\)"):
        signed_map(values, ["a", "b"])


def test_weight_lines_are_the_columns_over_the_steps_and_carry_their_names():
    steps = [0.1, 1.0, 10.0]
    weights = np.array([[0.8, 0.1, 0.1], [0.52, 0.25, 0.23], [0.4, 0.3, 0.3]])
    ax = weight_lines(steps, weights, ["a", "b", "c"], "temperature")
    for s, line in enumerate(ax.lines):
        assert np.array_equal(line.get_xydata(), np.stack([steps, weights[:, s]], axis=1))
    names = [(text.get_text(), text.xy, text.get_va(), text.xyann[1]) for text in ax.texts]
    assert names == [
        ("a", (1.0, 0.52), "bottom", 3), ("b", (1.0, 0.25), "bottom", 3),
        ("c", (1.0, 0.23), "top", -3),
    ]
    assert len({str(line._dash_pattern) for line in ax.lines}) == 3  # not by colour alone
    assert (ax.get_xscale(), ax.get_xlabel(), ax.get_ylabel()) == ("log", "temperature", "weight")


def test_head_lines_mark_some_heads_and_shade_the_others():
    group = np.array([[3.0, 2.0], [5.0, 1.0], [4.0, 2.5]])  # H n
    with pytest.raises(ValueError, match=r"mark=\[0, 3\] must name some of the heads 0 to 2"):
        head_lines([group], ["a"], "singular value", mark=(0, 3))
    with pytest.raises(ValueError, match="leave one for the band"):
        head_lines([group], ["a"], "singular value", mark=(0, 1, 2))
    [both] = head_lines([group], ["a"], "singular value", mark=(1, 0))
    assert [line.get_linestyle() for line in both.lines] == ["-", "--"]
    left, right = head_lines([group, 2 * group], ["a", "b"], "singular value", mark=(1,))
    for ax, factor in ((left, 1), (right, 2)):
        [line], [band] = ax.lines, ax.collections
        assert np.array_equal(line.get_xydata(), [[1, factor * 5], [2, factor * 1]])
        assert line.get_color() == HEAD_COLOURS[1] and ax.get_ylim()[0] == 0
        corners = {tuple(point) for point in band.get_paths()[0].vertices.tolist()}
        assert corners == {(1, factor * 3), (1, factor * 4), (2, factor * 2), (2, factor * 2.5)}
    assert (left.get_title(), right.get_title(), left.get_ylabel()) == ("a", "b", "singular value")
    assert [text.get_text() for text in left.get_legend().texts] == ["the other 2", "head 1"]


def test_weight_lines_refuse_names_that_do_not_fit():
    with pytest.raises(ValueError, match=r"shape \(2, 3\), steps and names say \(2, 2\)"):
        weight_lines([1, 2], WEIGHTS, ["a", "b"], "temperature")
