"""Widgets from Python: traits, refusals, numbers, the stored bytes, the output, the front end."""

import base64
import importlib.util
import json
import pathlib
import re

import numpy as np
import pytest

from mha.reference.loops import attend
from mha.widgets import HeadExplorer, Sentence, base

ROOT = pathlib.Path(__file__).parent.parent
D_MODEL = 24
VIEW = "application/vnd.jupyter.widget-view+json"


def sentence(n_tokens, seed, **more):
    rng = np.random.default_rng(seed)
    q, k = 2 * rng.normal(size=(2, n_tokens, D_MODEL))
    return Sentence([f"w{i}" for i in range(n_tokens)], q, k, "Find the relation.", **more)


def two_sentences():
    return [sentence(5, 0, answer=(6, 5, 4, 3), text="Five words"), sentence(3, 1)]


def widget(**state):
    return HeadExplorer(two_sentences(), **state)


def test_the_state_can_be_read_and_set():
    explorer = widget(n_heads=4, head=3, query=4, key=2)
    assert (explorer.n_heads, explorer.scale, explorer.temperature) == (4, "sqrt", 1.0)
    explorer.scale, explorer.temperature, explorer.is_causal = "temperature", 3, True
    explorer.head = np.int64(1)
    assert (explorer.scale, explorer.temperature, explorer.is_causal) == ("temperature", 3.0, True)
    assert type(explorer.head) is int and explorer.head == 1


def test_fewer_heads_and_a_shorter_sentence_keep_the_indices_inside():
    explorer = widget(n_heads=24, head=23, query=4, key=3)
    explorer.n_heads = 6
    explorer.sentence = 1
    assert (explorer.head, explorer.query, explorer.key) == (5, 2, 2)


def test_heads_and_head_arrive_together_from_the_front_end():
    explorer = widget(n_heads=2, head=1)
    explorer.set_state({"head": 20, "n_heads": 24, "query": 4})
    assert (explorer.n_heads, explorer.head, explorer.query) == (24, 20, 4)


def test_the_choices_divide_the_width():
    q = np.ones((2, 12))
    assert HeadExplorer([Sentence(["a", "b"], q, q)]).choices == [1, 2, 3, 4, 6, 12]


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        (
            "n_heads",
            5,
            ValueError,
            "n_heads=5 is not a choice (a choice divides d_model=24); "
            "try one of 1, 2, 3, 4, 6, 12, 24",
        ),
        ("n_heads", True, ValueError, "n_heads=True is not a choice"),
        ("scale", "log", ValueError, "try one of 'sqrt', 'none', 'inverse', 'temperature'"),
        ("temperature", 0, ValueError, "temperature=0.0 is out of range; give a number from 0.1"),
        ("temperature", float("nan"), ValueError, "temperature=nan is out of range"),
        ("temperature", "hot", TypeError, "temperature='hot' is not a number; give a float"),
        ("is_causal", 1, TypeError, "is_causal=1 is not a bool; give True or False"),
        ("sentence", 2, ValueError, "there are 2 sentences, counted from 0; give 0 to 1"),
        ("head", 12, ValueError, "head=12 is out of range: there are 12 heads"),
        ("head", -1, ValueError, "head=-1 is out of range"),
        ("head", 1.0, TypeError, "head=1.0 is not a whole number; give an int from 0 to 11"),
        ("query", 5, ValueError, "query=5 is out of range: there are 5 tokens"),
        ("key", None, TypeError, "key=None is not a whole number"),
    ],
)
def test_a_wrong_value_is_refused_with_a_way_out(name, value, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        widget(**{name: value})
    explorer = widget()
    before = getattr(explorer, name)
    with pytest.raises(kind, match=re.escape(message)):
        setattr(explorer, name, value)
    assert getattr(explorer, name) == before


@pytest.mark.parametrize(
    ("make", "kind", "message"),
    [
        (lambda: HeadExplorer([]), TypeError, "must be one or more mha.widgets.Sentence"),
        (lambda: HeadExplorer([sentence(3, 0), "cat"]), TypeError, "must be one or more"),
        (lambda: HeadExplorer(two_sentences(), trained_heads=8), ValueError, "trained_heads=8"),
        (lambda: Sentence("cat", np.ones((3, 2)), np.ones((3, 2))), TypeError, "is one string"),
        (lambda: Sentence(["a"], np.ones((2, 2)), np.ones((2, 2))), ValueError, "(1, D)"),
        (lambda: Sentence(["a"], np.ones((1, 2)), np.ones((1, 3))), ValueError, "the same width"),
        (
            lambda: HeadExplorer(
                [Sentence(["a"], np.ones((1, w)), np.ones((1, w))) for w in (2, 4)]
            ),
            ValueError,
            "the widths [2, 4] differ",
        ),
        (
            lambda: HeadExplorer([Sentence(["a"], np.full((1, 12), 7e4), np.ones((1, 12)))]),
            ValueError,
            "q holds 70000.0, and a widget stores float16",
        ),
        (
            lambda: HeadExplorer([sentence(3, 0, answer=(6, 6, 0, 0))]),
            ValueError,
            "head of an answer=6 is out of range",
        ),
        (
            lambda: HeadExplorer([sentence(3, 0, answer=(6, 5, 3, 0))]),
            ValueError,
            "query of an answer=3 is out of range",
        ),
    ],
)
def test_wrong_sentences_are_refused(make, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        make()


def test_what_is_stored_is_little_endian_float16():
    one = two_sentences()[1]
    stored = HeadExplorer([one]).get_state()["_data"][0]
    assert bytes(stored["q"]) == one.q.astype("<f2").tobytes()
    assert bytes(stored["k"]) == one.k.astype("<f2").tobytes()
    assert base.float16_bytes("q", [[1.0, -2.0]]) == bytes.fromhex("003c00c0")


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("scale", ["sqrt", "none", "inverse", "temperature"])
@pytest.mark.parametrize("n_heads", [1, 2, 3, 4, 6, 12, 24])
def test_weights_and_entropy_equal_the_loops_on_the_stored_values(n_heads, scale, is_causal):
    explorer = widget(n_heads=n_heads, scale=scale, temperature=0.7, is_causal=is_causal)
    one = explorer.sentences[0]
    q, k = (x.astype(np.float16).astype(np.float64) for x in (one.q, one.k))
    d = D_MODEL // n_heads
    factor = {"sqrt": 1 / np.sqrt(d), "none": 1, "inverse": 1 / d, "temperature": 1 / 0.7}[scale]
    mask = np.tri(5, dtype=bool) if is_causal else None
    weights, entropy = explorer.weights(), explorer.entropy()
    assert weights.dtype == np.float64 and weights.shape == (n_heads, 5, 5)
    for h in range(n_heads):
        columns = slice(h * d, (h + 1) * d)
        expected = attend(q[:, columns], k[:, columns], k[:, columns], mask, scale=factor)[1]
        np.testing.assert_allclose(weights[h], expected, rtol=0, atol=1e-12)
        bits = -(expected * np.log2(np.where(expected > 0, expected, 1))).sum() / 5
        assert entropy[h] == pytest.approx(bits, abs=1e-12)


def test_entropy_of_equal_keys_is_the_logarithm_of_their_number():
    flat = HeadExplorer([Sentence(list("abcde"), np.ones((5, 12)), np.ones((5, 12)))], n_heads=3)
    np.testing.assert_allclose(flat.entropy(), [np.log2(5)] * 3, atol=1e-12)
    flat.is_causal = True
    np.testing.assert_allclose(flat.entropy(), [np.log2(120) / 5] * 3, atol=1e-12)


def test_the_module_is_the_shared_maths_and_then_the_widget():
    esm = str(HeadExplorer._esm)
    shared = (base.STATIC / "attention.js").read_text("utf-8")
    assert esm.startswith(shared)
    assert esm.count("export function attentionWeights") == 1
    assert esm.rstrip().endswith("export default { render };")
    assert not re.search(r"^import ", esm, re.MULTILINE)
    names = re.findall(r"^(?:export )?(?:function|const) (\w+)", esm, re.MULTILINE)
    assert len(names) == len(set(names))


def test_the_front_end_writes_no_html_and_asks_for_nothing_elsewhere():
    scripts = [*base.STATIC.glob("*.js"), ROOT / "book" / "_static" / "static-widgets.js"]
    for script in scripts:
        code = re.sub(r"^\s*//.*$", "", script.read_text("utf-8"), flags=re.MULTILINE)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|fetch\(|https?://", code)


def test_the_text_is_stable():
    expected = (
        "HeadExplorer(n_heads=12, scale='sqrt', temperature=1.0, is_causal=False, "
        "sentence=0, head=0, query=0, key=0)"
    )
    assert repr(widget()) == repr(widget()) == expected


def test_the_output_has_a_view_a_picture_and_a_text():
    explorer = widget(n_heads=3)
    data, _ = explorer._repr_mimebundle_()
    assert set(data) == {VIEW, "image/png", "text/plain"}
    assert data[VIEW]["model_id"] == explorer.model_id
    assert data["text/plain"] == repr(explorer)
    assert base64.b64decode(data["image/png"]) == explorer.picture()
    json.dumps(data)


def test_ipython_uses_that_output_and_nothing_before_it():
    from IPython.core.formatters import DisplayFormatter, IPythonDisplayFormatter

    explorer = widget(n_heads=3)
    assert IPythonDisplayFormatter()(explorer) is None
    data, _ = DisplayFormatter().format(explorer)
    assert set(data) == {VIEW, "image/png", "text/plain"}


def test_the_picture_is_a_small_png_with_the_same_bytes_each_time():
    first = widget(n_heads=24, head=7, is_causal=True).picture()
    assert first == widget(n_heads=24, head=7, is_causal=True).picture()
    assert first.startswith(b"\x89PNG\r\n\x1a\n") and len(first) <= 40_000
    assert first != widget(n_heads=24, head=8, is_causal=True).picture()


def test_a_token_is_drawn_as_it_is_written():
    rows = np.ones((2, 12))
    assert HeadExplorer([Sentence(["$a$", "b_{"], rows, rows)]).picture()


def test_the_golden_file_is_what_the_reference_computes_now():
    spec = importlib.util.spec_from_file_location("write_golden", ROOT / "tools/write_golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fresh = json.loads(json.dumps(module.golden()))
    stored = json.loads(module.PATH.read_text("utf-8"))
    cases, stored_cases = fresh.pop("cases"), stored.pop("cases")
    assert fresh.pop("empty_rows") == pytest.approx(stored.pop("empty_rows"), abs=1e-8)
    assert fresh == stored
    assert len(cases) == len(stored_cases) == 7 * 4 * 2
    for case, kept in zip(cases, stored_cases, strict=True):
        for name in ("first", "last", "entropy"):
            assert case.pop(name) == pytest.approx(kept.pop(name), abs=1e-8)
        assert case == kept
