"""Widgets from Python: traits, refusals, numbers, the stored bytes, the output, the front end."""

import base64
import importlib.util
import io
import json
import pathlib
import re

import matplotlib.image
import matplotlib.style
import numpy as np
import pytest
import torch

from mha.plotting import STYLE, WEIGHT_COLOURS
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


def test_the_page_has_the_last_word_on_the_head():
    explorer = widget(n_heads=4, head=3)
    explorer.set_state({"n_heads": 12})  # the page sends a head only where its number changed
    assert (explorer.n_heads, explorer.head) == (12, 3)
    with explorer.hold_trait_notifications():
        explorer.n_heads, explorer.head = 24, 3
    assert (explorer.n_heads, explorer.head) == (24, 3)


def test_another_number_of_heads_keeps_the_columns_as_the_slider_does():
    explorer = widget(n_heads=4, head=3)
    found = []
    for n_heads in (12, 24, 6, 1):
        explorer.n_heads = n_heads
        found.append(explorer.head)
    assert found == [9, 18, 4, 0]


def test_heads_start_as_trained():
    assert widget().n_heads == 12
    assert widget(trained_heads=8).n_heads == 8


def of_width(width, **more):
    rows = np.ones((2, width))
    return HeadExplorer([Sentence(["a", "b"], rows, rows)], **more)


@pytest.mark.parametrize(
    ("width", "more", "choices"),
    [
        (384, {}, [1, 2, 3, 4, 6, 12, 24]),
        (12, {}, [1, 2, 3, 4, 6, 12]),
        (64, {"trained_heads": 8}, [1, 2, 4, 8, 16]),
        (64, {"trained_heads": 16}, [1, 2, 4, 8, 16, 32]),
        (35, {"trained_heads": 5}, [1, 5]),
        (7, {"trained_heads": 7}, [1, 7]),
        (384, {"choices": (8, 16, 8)}, [8, 12, 16]),
        (384, {"choices": np.array([2])}, [2, 12]),
    ],
)
def test_the_choices_divide_the_width_and_hold_the_trained_number(width, more, choices):
    explorer = of_width(width, **more)
    assert explorer.choices == choices
    assert {type(choice) for choice in explorer.choices} == {int}
    assert explorer.n_heads == explorer.trained_heads == more.get("trained_heads", 12)


def test_sixteen_heads_can_be_shown():
    explorer = of_width(64, trained_heads=8, n_heads=16)
    np.testing.assert_allclose(explorer.weights(), np.full((16, 2, 2), 0.5))


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        (
            "n_heads",
            5,
            ValueError,
            "n_heads=5 is not a choice; try one of 1, 2, 3, 4, 6, 12, 24, "
            "or give others as choices=",
        ),
        ("n_heads", True, TypeError, "n_heads=True is not a choice"),
        ("n_heads", 4.0, TypeError, "n_heads=4.0 is not a choice; try one of 1, 2, 3"),
        ("n_heads", np.array([4, 6]), TypeError, "n_heads=array([4, 6]) is not a choice"),
        ("scale", np.array(["sqrt"]), TypeError, "is not a choice; try one of 'sqrt', 'none'"),
        ("scale", "log", ValueError, "try one of 'sqrt', 'none', 'inverse', 'temperature'"),
        ("temperature", 0, ValueError, "temperature=0.0 is out of range; give a number from 0.1"),
        ("temperature", float("nan"), ValueError, "temperature=nan is out of range"),
        ("temperature", 1000.5, ValueError, "temperature=1000.5 is out of range"),
        pytest.param(
            *("temperature", 10**400, ValueError, "temperature=inf is out of range"), id="huge"
        ),
        pytest.param(
            *("temperature", -(10**400), ValueError, "temperature=-inf is out of range"), id="-huge"
        ),
        ("temperature", "hot", TypeError, "temperature='hot' is not a number; give a float"),
        ("temperature", b"1", TypeError, "temperature=b'1' is not a number"),
        ("temperature", True, TypeError, "temperature=True is not a number"),
        ("temperature", np.True_, TypeError, "is not a number"),
        ("temperature", np.array([1.0]), TypeError, "temperature=array([1.]) is not a number"),
        ("temperature", torch.tensor(True), TypeError, "is not a number"),
        ("is_causal", 1, TypeError, "is_causal=1 is not a bool; give True or False"),
        ("is_causal", np.array([True]), TypeError, "is not a bool; give True or False"),
        ("sentence", 2, ValueError, "there are 2 sentences, counted from 0; give 0 to 1"),
        ("head", 12, ValueError, "head=12 is out of range: there are 12 heads"),
        ("head", -1, ValueError, "head=-1 is out of range"),
        ("head", 1.0, TypeError, "head=1.0 is not a whole number; give an int from 0 to 11"),
        ("head", torch.tensor(True), TypeError, "is not a whole number"),
        ("head", torch.tensor([1]), TypeError, "is not a whole number"),
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
        (
            lambda: of_width(64),
            ValueError,
            "trained_heads=12 does not divide d_model=64; give one of 1, 2, 4, 8, 16, 32, 64",
        ),
        (lambda: of_width(64, trained_heads=0), ValueError, "trained_heads=0 does not divide"),
        (lambda: of_width(12, trained_heads=4.0), TypeError, "trained_heads=4.0 is not a whole"),
        (lambda: of_width(12, choices=[5]), ValueError, "a number in choices=5 does not divide"),
        (lambda: of_width(12, choices=3), TypeError, "choices=3 is not a list"),
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
        (lambda: Sentence("a", [["x"]], [["y"]]), TypeError, "tokens='a' is one string"),
        (lambda: Sentence(["a"], [["x"]], [[1]]), TypeError, "q is not a matrix of real numbers"),
        (lambda: Sentence(["a"], [[1]], [[1j]]), TypeError, "k is not a matrix of real numbers"),
        (
            lambda: Sentence(["a"], torch.tensor([[1j]]), torch.ones(1, 1)),
            TypeError,
            "q is not a matrix of real numbers",
        ),
        (
            lambda: Sentence(["a", "b"], [[1], [1, 2]], [[1], [1]]),
            TypeError,
            "q is not a matrix of real numbers; give one row of D for each token",
        ),
        (
            lambda: HeadExplorer([Sentence(["a"], np.full((1, 12), np.nan), np.ones((1, 12)))]),
            ValueError,
            "q holds nan, and a widget stores float16",
        ),
        (
            lambda: HeadExplorer([Sentence(["a"], np.ones((1, 12)), np.full((1, 12), -65520))]),
            ValueError,
            "k holds 65520.0, and a widget stores float16",
        ),
        (
            lambda: HeadExplorer([sentence(3, 0, answer=(6, 6, 0))]),
            TypeError,
            "answer=(6, 6, 0) must be (n_heads, head, query, key)",
        ),
        (
            lambda: HeadExplorer([sentence(3, 0, answer=(8, 6, 0, 0))]),
            ValueError,
            "n_heads of an answer=8 is not a choice; try one of 1, 2, 3, 4, 6, 12, 24, or give",
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
    assert base.float16_bytes("q", [[65519.9]]) == bytes.fromhex("ff7b")  # the largest, 65504


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int64])
def test_tensors_are_stored_in_any_type_and_out_of_any_graph(dtype):
    rows = torch.arange(24, dtype=dtype).reshape(2, 12).requires_grad_(dtype.is_floating_point)
    one = Sentence(["a", "b"], rows, rows)
    assert np.array_equal(one.q, np.arange(24.0).reshape(2, 12))
    stored = HeadExplorer([one]).get_state()["_data"][0]
    assert bytes(stored["k"]) == np.arange(24).astype("<f2").tobytes()


def test_what_was_given_stays_as_it_was_stored():
    rows = np.ones((2, 12))
    explorer = HeadExplorer([Sentence(["a", "b"], rows, rows)])
    rows[0] = 9
    assert explorer.sentences[0].q[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        explorer.sentences[0].q[0] = 9
    with pytest.raises(AttributeError):
        explorer.sentences = two_sentences()


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


def test_large_logits_do_not_overflow():
    rows = np.diag([60.0, 60.0])
    explorer = HeadExplorer([Sentence(["a", "b"], rows, rows)], trained_heads=1, scale="none")
    assert np.array_equal(explorer.logits(), 3600 * np.eye(2)[None])  # exp(3600) is infinite
    assert np.array_equal(explorer.weights(), np.eye(2)[None])


def test_no_uncertainty_is_a_plain_zero():
    one = HeadExplorer([Sentence(["a"], np.ones((1, 12)), np.ones((1, 12)))])
    assert np.array_equal(one.entropy(), np.zeros(12)) and not np.signbit(one.entropy()).any()


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
        code = code.replace('"http://www.w3.org/2000/svg"', "")  # a name: nobody is asked there
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


@pytest.mark.parametrize("token", ["$\\frac$", "b_{", "\N{CJK UNIFIED IDEOGRAPH-6F22}", "\n"])
def test_any_token_is_drawn_as_it_is_written(token):
    rows = np.ones((2, 12))
    shown, empty = (
        HeadExplorer([Sentence([one, "b"], rows, rows)], n_heads=1).picture() for one in (token, "")
    )
    assert shown != empty


def test_a_long_token_leaves_room_for_the_map():
    rows = np.ones((2, 12))
    long, longer = (
        HeadExplorer([Sentence(["x" * n, "b"], rows, rows)], n_heads=1) for n in (15, 5000)
    )
    assert long.picture() == longer.picture()


def test_the_picture_does_not_depend_on_the_style_of_the_notebook():
    explorer = widget(n_heads=3)
    plain = explorer.picture()
    with matplotlib.style.context(STYLE), matplotlib.rc_context({"text.usetex": True}):
        assert explorer.picture() == plain


def test_the_picture_has_the_colours_of_weights():
    rows = np.diag([60.0, 60.0])
    explorer = HeadExplorer([Sentence(["a", "b"], rows, rows)], trained_heads=1, scale="none")
    shown = matplotlib.image.imread(io.BytesIO(explorer.picture()))[..., :3]
    first, last = (np.array(matplotlib.colors.to_rgb(WEIGHT_COLOURS[i])) for i in (0, 2))
    for colour in (first, last):  # two cells of each, in the small map and in the large one
        assert (np.abs(shown - colour).max(-1) < 1 / 255).mean() > 0.1


def test_the_golden_file_is_what_the_reference_computes_now():
    spec = importlib.util.spec_from_file_location("write_golden", ROOT / "tools/write_golden.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    fresh = json.loads(json.dumps(module.golden()))
    stored = json.loads(module.PATH.read_text("utf-8"))
    cases, stored_cases = fresh.pop("cases"), stored.pop("cases")
    for colours in (fresh, stored):
        colours["colours"] = list(bytes.fromhex(colours["colours"]))
    assert fresh.pop("colours") == pytest.approx(stored.pop("colours"), abs=1)
    assert fresh.pop("empty_rows") == pytest.approx(stored.pop("empty_rows"), abs=1e-8)
    for found, kept in zip(fresh.pop("scaled"), stored.pop("scaled"), strict=True):
        assert found == pytest.approx(kept, rel=1e-9, abs=1e-8)
    assert fresh == stored
    assert len(cases) == len(stored_cases) == 7 * 4 * 2
    for case, kept in zip(cases, stored_cases, strict=True):
        for name in ("first", "last", "entropy"):
            assert case.pop(name) == pytest.approx(kept.pop(name), abs=1e-8)
        assert case == kept
