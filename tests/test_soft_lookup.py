"""SoftLookup from Python: traits, refusals, numbers against torch, the output, the front end."""

import base64
import json
import re

import matplotlib.style
import numpy as np
import pytest
import torch

from mha.plotting import STYLE
from mha.widgets import SoftLookup, base

NAMES = ["north", "east", "south", "west"]
KEYS = ((0, 1), (1, 0), (0, -1), (-1, 0))
VALUES = (800, 200, 100, 500)
VIEW = "application/vnd.jupyter.widget-view+json"


def hills(**state):
    return SoftLookup(KEYS, VALUES, NAMES, unit="m", **state)


def test_the_numbers_by_hand():
    lookup = SoftLookup([(0, 1), (2, 0)], [10, 40], ["up", "right"], query=(1.5, 2))
    assert lookup.scores().tolist() == [2, 3]
    assert lookup.output() == pytest.approx(10 + 30 / (1 + np.exp(-1)))
    lookup.temperature = 0.5
    assert lookup.logits().tolist() == [4, 6]
    lookup.measure = "cosine"
    np.testing.assert_allclose(lookup.scores(), [0.8, 0.6], atol=1e-15)


@pytest.mark.parametrize("measure", ["dot", "cosine"])
@pytest.mark.parametrize("temperature", [0.05, 0.7, 1, 20])
@pytest.mark.parametrize("n_keys", [2, 3, 5])
def test_weights_and_output_equal_torch(n_keys, temperature, measure):
    rng = np.random.default_rng(n_keys)
    keys, query = rng.uniform(-2, 2, (n_keys, 2)).round(6), rng.uniform(-2, 2, 2).round(6)
    values = rng.normal(size=n_keys)
    names = [f"key {j}" for j in range(n_keys)]
    lookup = SoftLookup(keys, values, names, query=query, temperature=temperature, measure=measure)
    k, q, v = (torch.tensor(x) for x in (keys, query, values))
    score = k @ q if measure == "dot" else torch.nn.functional.cosine_similarity(k, q[None])
    weights = (score / temperature).softmax(0)
    assert lookup.weights().dtype == np.float64
    np.testing.assert_allclose(lookup.scores(), score, rtol=0, atol=1e-12)
    np.testing.assert_allclose(lookup.weights(), weights, rtol=0, atol=1e-12)
    assert lookup.output() == pytest.approx((weights @ v).item(), abs=1e-12)


def test_an_arrow_of_length_0_scores_0_by_both_measures():
    lookup = SoftLookup([(0, 0), (0, 2)], [1, 3], ["none", "up"], query=(0, 1), measure="cosine")
    assert lookup.scores().tolist() == [0, 1]
    lookup.query = (0, 0)
    assert lookup.scores().tolist() == [0, 0] and lookup.output() == 2
    lookup.measure = "dot"
    assert lookup.output() == 2


def test_the_temperature_goes_from_a_strict_lookup_to_the_mean():
    lookup = hills(query=(0, 1))
    lookup.temperature = 0.05
    assert lookup.weights()[0] > 0.999 and round(lookup.output()) == 800
    lookup.temperature = 20
    assert np.abs(lookup.weights() - 0.25).max() < 0.02


def test_a_long_key_wins_by_the_dot_product_and_not_by_the_cosine():
    lookup = SoftLookup([(0, 1), (2.5, 0)], [1, 2], ["near", "long"], query=(0.6, 0.8))
    assert lookup.weights().argmax() == 1
    lookup.measure = "cosine"
    assert lookup.weights().argmax() == 0


def test_the_state_can_be_read_and_set():
    lookup = hills(temperature=2, measure="cosine", chosen=2)
    state = (lookup.query, lookup.temperature, lookup.measure, lookup.chosen, lookup.key)
    assert state == ((0.6, 0.8), 2.0, "cosine", 2, 2)
    lookup.key_arrows = np.array(KEYS) * 2
    lookup.query = torch.tensor([0.25, -0.0])
    lookup.values, lookup.names, lookup.unit = np.arange(4), list("abcd"), ""
    assert lookup.key_arrows == ((0, 2), (2, 0), (0, -2), (-2, 0))
    assert str(lookup.query) == "(0.25, 0.0)"
    assert (lookup.values, lookup.names) == ((0, 1, 2, 3), ("a", "b", "c", "d"))


def test_tensors_of_any_float_type_are_rounded_to_what_was_meant():
    keys = torch.tensor(KEYS, dtype=torch.float32) * 0.3
    query = torch.tensor([0.6, 0.8], requires_grad=True)
    lookup = SoftLookup(keys, torch.tensor(VALUES), NAMES, query=query)
    assert lookup.query == (0.6, 0.8) and lookup.key_arrows[1] == (0.3, 0.0)
    assert {type(one) for one in (*lookup.query, *lookup.values)} == {float}


def test_a_key_that_is_chosen_alone_is_taken_apart():
    lookup = hills()
    lookup.chosen = np.int64(3)
    assert (lookup.chosen, lookup.key) == (3, 3) and type(lookup.chosen) is int
    lookup.chosen = "query"
    assert lookup.key == 3
    lookup.set_state({"chosen": 1, "key": 0})  # the page has the last word
    assert (lookup.chosen, lookup.key) == (1, 0)
    assert hills(chosen=1, key=2).key == 2


def test_the_page_sends_lists():
    lookup = hills()
    lookup.set_state({"key_arrows": [[0, 3], [1, 0], [0, -1], [-1, 0]], "query": [3, 0]})
    assert lookup.key_arrows[0] == (0, 3) and lookup.query == (3, 0)
    lookup.set_state({"query": [2.1213205, 2.1213205]})  # length 3 and what rounding adds
    assert lookup.query == pytest.approx((2.1213205, 2.1213205), abs=1e-6)


def test_start_again_means_what_was_given():
    lookup = hills(query=(0, 2), temperature=3, measure="cosine", chosen=1, key=2)
    first = lookup.get_state()["_start"]
    lookup.query, lookup.key_arrows, lookup.chosen = (1, 1), np.zeros((4, 2)), "query"
    assert lookup.get_state()["_start"] == first == {
        "query": (0, 2), "key_arrows": KEYS, "temperature": 3, "measure": "cosine",
        "chosen": 1, "key": 2,
    }  # fmt: skip
    json.dumps(first)


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("query", (3, 1), ValueError, "query=(3, 1) has length 3.162278, and the plane shows"),
        ("query", (4, 0), ValueError, "query[0]=4.0 is out of range; give a number from -3.0"),
        ("query", (0, float("nan")), ValueError, "query[1]=nan is out of range"),
        ("query", (1, 2, 3), TypeError, "query=(1, 2, 3) is not an arrow of the plane; give two"),
        ("query", "up", TypeError, "query='up' is not an arrow of the plane"),
        ("query", 1, TypeError, "query=1 is not an arrow of the plane"),
        ("query", (True, 0), TypeError, "query[0]=True is not a number"),
        ("temperature", 0.04, ValueError, "temperature=0.04 is out of range; give a number from"),
        ("temperature", 21, ValueError, "temperature=21.0 is out of range"),
        ("measure", "l2", ValueError, "measure='l2' is not a choice; try one of 'dot', 'cosine'"),
        ("measure", 0, TypeError, "measure=0 is not a choice"),
        (
            "chosen",
            "north",
            ValueError,
            "chosen='north' is not a choice; try one of 'query', or the number of a key, 0 to 3",
        ),
        ("chosen", 4, ValueError, "chosen=4 is out of range: there are 4 keys"),
        ("chosen", -1, ValueError, "chosen=-1 is out of range"),
        ("chosen", None, TypeError, "chosen=None is not a whole number"),
        ("key", 4, ValueError, "key=4 is out of range: there are 4 keys"),
        ("key", "query", TypeError, "key='query' is not a whole number"),
        ("unit", 3, TypeError, "unit=3 is not a word; give a str"),
        ("unit", "kilometres", ValueError, "unit='kilometres' has 10 letters; give at most 8"),
    ],
)
def test_a_wrong_value_is_refused_with_a_way_out(name, value, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        SoftLookup(KEYS, VALUES, NAMES, **{name: value})
    lookup = hills()
    before = getattr(lookup, name)
    with pytest.raises(kind, match=re.escape(message)):
        setattr(lookup, name, value)
    assert getattr(lookup, name) == before


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: SoftLookup(KEYS[:1], [1], ["a"]), ValueError, "1 keys don't fit the page; give 2"),
        (lambda: SoftLookup([(0, 1)] * 7, range(7), "abcdefg"), ValueError, "7 keys don't fit"),
        (lambda: SoftLookup("north", VALUES, NAMES), TypeError, "keys='north' is not a list"),
        (lambda: SoftLookup(torch.tensor(3), VALUES, NAMES), TypeError, "is not a list; give one"),
        (lambda: SoftLookup([1, 2], [1, 2], "ab"), TypeError, "keys[0]=1 is not an arrow"),
        (
            lambda: SoftLookup([(0, 1), (2.5, 2.5)], [1, 2], ["a", "b"]),
            ValueError,
            "keys[1]=(2.5, 2.5) has length 3.535534, and the plane shows arrows up to length 3; "
            "make it shorter",
        ),
        (lambda: SoftLookup(KEYS, VALUES[:3], NAMES), ValueError, "values holds 3, but there are"),
        (lambda: SoftLookup(KEYS, VALUES, NAMES[:3]), ValueError, "names holds 3, but there are 4"),
        (lambda: SoftLookup(KEYS, VALUES, "nesw"), TypeError, "names='nesw' is not a list"),
        (
            lambda: SoftLookup(KEYS, VALUES, ["north", "east", "south", "north"]),
            ValueError,
            "don't tell the arrows apart; give each key its own name",
        ),
        (lambda: SoftLookup(KEYS, VALUES, [*NAMES[:3], "query"]), ValueError, "not 'query'"),
        (lambda: SoftLookup(KEYS, VALUES, [*NAMES[:3], ""]), ValueError, "not blank"),
        (lambda: SoftLookup(KEYS, VALUES, [*NAMES[:3], "  "]), ValueError, "not blank"),
        (lambda: SoftLookup(KEYS, VALUES, [*NAMES[:3], "east "]), ValueError, "tell the arrows"),
        (lambda: SoftLookup(KEYS[:2], VALUES[:2], b"ab"), TypeError, "is not a list"),
        (
            lambda: SoftLookup(KEYS, [1, 2, 3, np.inf], NAMES),
            ValueError,
            "values[3]=inf is out of range; give a number from -1000000000.0 to 1000000000.0",
        ),
        (lambda: SoftLookup(KEYS, [1, 2, 3, "x"], NAMES), TypeError, "values[3]='x' is not a"),
    ],
)
def test_wrong_keys_values_and_names_are_refused(make, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        make()


@pytest.mark.parametrize("name", ["key_arrows", "values", "names"])
def test_the_number_of_keys_stays(name):
    lookup = hills()
    before = getattr(lookup, name)
    with pytest.raises(ValueError, match=f"{name} holds 3, but there are 4 keys; give one a key"):
        setattr(lookup, name, before[:3])
    assert getattr(lookup, name) == before


def test_the_module_is_the_shared_maths_and_then_the_widget():
    esm = str(SoftLookup._esm)
    assert esm.startswith((base.STATIC / "attention.js").read_text("utf-8"))
    assert esm.rstrip().endswith("export default { render };")
    assert not re.search(r"^import ", esm, re.MULTILINE)
    names = re.findall(r"^(?:export )?(?:function|const|let) (\w+)", esm, re.MULTILINE)
    assert len(names) == len(set(names))


def test_every_rule_of_the_style_sheet_begins_with_the_class_of_the_widget():
    css = re.sub(r"/\*.*?\*/", "", (base.STATIC / "soft_lookup.css").read_text("utf-8"), flags=re.S)
    selectors = re.findall(r"^\s*([^@{}\n][^{}]*)\{", css, re.MULTILINE)
    assert len(selectors) > 30
    for selector in selectors:
        for one in re.split(r",\s*(?![^()]*\))", selector):
            assert one.startswith(".mha-lookup"), selector


def test_the_text_is_stable():
    assert repr(hills()) == (
        "SoftLookup(query=(0.6, 0.8), key_arrows=((0.0, 1.0), (1.0, 0.0), (0.0, -1.0), "
        "(-1.0, 0.0)), temperature=1.0, measure='dot', chosen='query', key=0)"
    )


def test_the_output_has_a_view_a_picture_and_a_text():
    lookup = hills()
    data, _ = lookup._repr_mimebundle_()
    assert set(data) == {VIEW, "image/png", "text/plain"}
    assert data["text/plain"] == repr(lookup)
    assert base64.b64decode(data["image/png"]) == lookup.picture()
    json.dumps(data)


OTHERS = ({"query": (0.8, 0.6)}, {"temperature": 2}, {"measure": "cosine", "query": (1, 1)})


def test_the_picture_is_a_small_png_with_the_same_bytes_each_time():
    first = hills().picture()
    with matplotlib.style.context(STYLE):
        assert hills().picture() == first
    assert first.startswith(b"\x89PNG\r\n\x1a\n") and len(first) <= 40_000
    assert len({first, *(hills(**one).picture() for one in OTHERS)}) == 1 + len(OTHERS)


def test_any_name_is_drawn_as_it_is_written_and_any_arrow_fits():
    names = ["$\\frac$", "x" * 40, "\N{CJK UNIFIED IDEOGRAPH-6F22}", "a\n"]
    arrows = [(0, 0), (3, 0), (-3, 0), (1e-6, 0)]
    lookup = SoftLookup(arrows, [-1e9, 0, 1e9, 1e-9], names, query=(0, 0), unit="$x")
    assert len(lookup.picture()) <= 40_000
