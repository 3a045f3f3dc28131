"""MaskPainter in Python: its weights under each reading, its traits, what it refuses."""

import base64

import numpy as np
import pytest
import torch

import mha
from mha.widgets import MaskPainter
from mha.widgets.mask_painter import MOST, READINGS

T = 5
WORDS = ["a", "b", "c", "d", "e"]


def draw_logits(n_tokens=T, seed=0):
    exact = 3 * np.random.default_rng(seed).normal(size=(n_tokens, n_tokens))
    return exact.astype(np.float16).astype(np.float64)  # what the widget stores


def painted():
    mask = np.random.default_rng(1).random((T, T)) < 0.5
    mask[1], mask[3] = False, True  # a row without keys, and one that hides nothing
    return mask


def by_torch(logits, mask, reading):
    logits, mask = torch.tensor(logits), torch.tensor(mask)
    hidden = torch.zeros_like(logits).masked_fill(~mask, -torch.inf)
    if reading == "attend":
        return mha.masked_softmax(logits, mask)
    if reading == "blocked":
        return logits.masked_fill(mask, -torch.inf).softmax(-1)
    if reading == "added":
        return (logits + mask.double()).softmax(-1)
    if reading == "minus 1e9":
        bias = torch.zeros(T, T).masked_fill(~mask, -1e9)
        return (logits.float() + bias).softmax(-1).double()
    if reading == "naive":
        return (logits + hidden).softmax(-1)
    return logits.softmax(-1) * mask


@pytest.mark.parametrize("reading", READINGS)
def test_a_reading_is_what_torch_computes(reading):
    logits, mask = draw_logits(), painted()
    painter = MaskPainter(WORDS, logits, mask=mask)
    found = torch.tensor(painter.read_as(reading))
    near = {"rtol": 0, "atol": 1e-6 if reading == "minus 1e9" else 1e-12, "equal_nan": True}
    torch.testing.assert_close(found, by_torch(logits, mask, reading), **near)


def test_the_row_without_keys_in_each_reading():
    painter = MaskPainter(WORDS, draw_logits(), mask=painted())
    row = {reading: painter.read_as(reading)[1] for reading in READINGS}
    assert (row["attend"] == 0).all() and (row["late"] == 0).all()
    assert np.isnan(row["naive"]).all() and np.isfinite(row["blocked"]).all()
    assert row["minus 1e9"].tolist() == [1 / T] * T
    assert row["added"] == pytest.approx(row["blocked"], abs=1e-15)


def test_the_mask_can_be_read_and_set():
    painter = MaskPainter(WORDS, draw_logits())
    assert painter.mask == ((True,) * T,) * T
    expected = tuple(tuple(row) for row in painted().tolist())
    for given in (painted(), painted().tolist(), torch.tensor(painted())):
        painter.mask = np.ones((T, T), dtype=bool)
        painter.mask = given
        assert painter.mask == expected and type(painter.mask[0][0]) is bool
    painter.set_state({"mask": [[True] * T] * T, "query": 2, "_data": {}, "_start": {}})
    assert painter.query == 2 and painter.mask == ((True,) * T,) * T
    assert painter.logits().tolist() == draw_logits().tolist()
    assert painter._start == {"mask": ((True,) * T,) * T, "query": 0, "key": 0}


@pytest.mark.parametrize(
    ("change", "kind", "says"),
    [
        ({"mask": np.ones((T, T))}, TypeError, "mask holds float64, not bools; give True where"),
        ({"mask": np.ones((T, T), dtype=int)}, TypeError, "mask == 1 for a table of 1 and 0"),
        ({"mask": [[True], [True, False]]}, TypeError, "mask holds object, not bools"),
        ({"mask": np.ones((T, 3), dtype=bool)}, ValueError, "mask has shape (5, 3), but there are"),
        ({"mask": True}, ValueError, "mask has shape (), but there are 5 tokens; give (5, 5)"),
        ({"logits": np.ones((T, 3))}, ValueError, "logits has shape (5, 3), but there are 5"),
        ({"logits": np.full((T, T), np.nan)}, ValueError, "logits holds nan"),
        ({"logits": np.full((T, T), 1e6)}, ValueError, "rescale logits"),
        ({"logits": [["a"] * T] * T}, TypeError, "logits is not a matrix of real numbers"),
        ({"tokens": "abcde"}, TypeError, "tokens='abcde' is not a list of words"),
        ({"tokens": [1, 2, 3, 4, 5]}, TypeError, "is not a list of words; give T of type str"),
        ({"tokens": []}, ValueError, "0 tokens don't fit the page; give 1 to 16"),
        ({"tokens": ["x"] * 17}, ValueError, "17 tokens don't fit the page"),
        ({"query": 5}, ValueError, "query=5 is out of range: there are 5 tokens"),
        ({"key": 1.5}, TypeError, "key=1.5 is not a whole number"),
    ],
)
def test_a_wrong_value_is_refused_with_a_way_out(change, kind, says):
    given = {"tokens": WORDS, "logits": draw_logits()} | change
    with pytest.raises(kind) as caught:
        MaskPainter(given.pop("tokens"), given.pop("logits"), **given)
    assert says in str(caught.value)


def test_an_unknown_reading_is_refused():
    with pytest.raises(ValueError, match="reading='hide' is not a choice; try one of 'attend'"):
        MaskPainter(WORDS, draw_logits()).read_as("hide")


def test_a_refused_mask_leaves_the_old_one():
    painter = MaskPainter(WORDS, draw_logits(), mask=painted())
    before = painter.mask
    with pytest.raises(TypeError):
        painter.mask = np.ones((T, T))
    assert painter.mask == before


@pytest.mark.parametrize("n_tokens", [1, 5, MOST])
def test_the_picture_is_a_small_png_with_the_same_bytes_each_time(n_tokens):
    words = ["$\\frac$", *("x" * 40 for _ in range(n_tokens - 1))]
    mask = np.tri(n_tokens, dtype=bool)
    painter = MaskPainter(words, draw_logits(n_tokens), mask=mask)
    picture = painter.picture()
    assert picture.startswith(b"\x89PNG") and len(picture) <= 40_000
    assert picture == painter.picture()
    painter.mask = ~mask
    assert picture != painter.picture()


def test_the_output_carries_view_picture_and_text():
    painter = MaskPainter(["a"], [[0]])
    data, _ = painter._repr_mimebundle_()
    assert base64.b64decode(data["image/png"]) == painter.picture()
    assert data["text/plain"] == "MaskPainter(mask=((True,),), query=0, key=0)"
