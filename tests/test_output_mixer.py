"""OutputMixer from Python: against torch's own projection, the layer's gate, refusals, picture."""

import base64
import itertools
import re
from pathlib import Path

import matplotlib.style
import numpy as np
import pytest
import torch

import mha
from mha.plotting import HEAD_COLOURS, STYLE
from mha.widgets import OutputMixer, base

T, H, D_HEAD, D_MODEL = 5, 3, 7, 11
VIEW = "application/vnd.jupyter.widget-view+json"


@pytest.fixture(scope="module")
def layer():
    """A layer whose d_head is not D / H, with a bias that is not zero, and its merged z."""
    generator = torch.Generator().manual_seed(0)
    layer = mha.MultiHeadAttention(D_MODEL, H, d_head=D_HEAD, bias=True).double()
    with torch.no_grad():
        for parameter in layer.parameters():  # values that float16 holds exactly
            parameter.copy_(torch.randint(-8, 9, parameter.shape, generator=generator) / 16)
    return layer.requires_grad_(False)


@pytest.fixture(scope="module")
def z(layer):
    """What the heads give, T (H d), rounded to what a widget stores."""
    x = torch.randn(1, T, D_MODEL, generator=torch.Generator().manual_seed(1)).double()
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)
    q, k, v = (mha.split_heads(project(x), H) for project in projections)
    z, _ = mha.scaled_dot_product_attention(q, k, v)
    return mha.merge_heads(z)[0].half().double()


def words(count=T):
    return [f"w{i}" for i in range(count)]


def mixer(layer, z, **state):
    projection = layer.out_proj
    state = {"n_heads": H, "n_features": D_MODEL, **state}
    return OutputMixer(words(), z, projection.weight.T, projection.bias, **state)


def subsets():
    return [list(s) for n in range(H + 1) for s in itertools.combinations(range(H), n)]


@pytest.mark.parametrize("off", subsets(), ids=str)
@pytest.mark.parametrize("token", range(T))
def test_the_output_is_the_layers_own_projection_of_what_is_left(layer, z, token, off):
    widget = mixer(layer, z, token=token, off=off)
    gate = torch.ones(H, dtype=torch.float64)
    gate[off] = 0
    gated = z.reshape(T, H, D_HEAD) * gate[:, None]  # T H d
    y, full = (layer.out_proj(one.reshape(T, -1))[token] for one in (gated, z))
    np.testing.assert_allclose(widget.output(), y, rtol=0, atol=1e-12)
    # the Gram matrix is stored as float32
    assert widget.length() == pytest.approx(float(y.norm()), abs=1e-6)
    assert widget.cosine() == pytest.approx(float(y @ full / y.norm() / full.norm()), abs=1e-6)


@pytest.mark.parametrize("off", subsets(), ids=str)
def test_off_is_what_the_head_gate_of_the_layer_does(layer, off):
    x = torch.randn(1, T, D_MODEL, generator=torch.Generator().manual_seed(2)).double()
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)
    q, k, v = (mha.split_heads(project(x), H) for project in projections)
    z = mha.merge_heads(mha.scaled_dot_product_attention(q, k, v)[0])[0]
    gate = torch.ones(H, dtype=torch.float64)
    gate[off] = 0
    y = layer(x, head_gate=gate)[0]  # T D
    for token in range(T):
        found = mixer(layer, z, token=token, off=off).output()
        # z is stored as float16: half a step of it, times what W_O adds up
        room = 2.0**-11 * (z[token].abs() @ layer.out_proj.weight.abs().T)
        assert (abs(found - y[token].numpy()) <= room.numpy() + 1e-12).all()


def test_a_contribution_is_z_of_the_head_times_its_own_rows(layer, z):
    widget = mixer(layer, z, token=2, off=[1])
    w_o = layer.out_proj.weight.T.numpy()
    expected = np.zeros((H, D_MODEL))
    for h in (0, 2):
        rows = slice(h * D_HEAD, (h + 1) * D_HEAD)
        expected[h] = z[2, rows].numpy() @ w_o[rows]
    np.testing.assert_allclose(widget.contributions(), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("head", range(H))
def test_a_head_that_goes_takes_its_own_contribution_and_no_other(layer, z, head):
    widget = mixer(layer, z, token=3)
    parts, y = widget.contributions(), widget.output()
    widget.off = [head]
    left = np.delete(np.arange(H), head)
    assert np.array_equal(widget.contributions()[left], parts[left])
    np.testing.assert_allclose(widget.output() - y, -parts[head], rtol=0, atol=1e-12)


def test_permuting_heads_together_with_the_blocks_changes_nothing(layer, z):
    order = [2, 0, 1]
    rows = np.arange(H * D_HEAD).reshape(H, D_HEAD)[order].ravel()
    w_o, b_o = layer.out_proj.weight.T[rows], layer.out_proj.bias
    turned = OutputMixer(words(), z[:, rows], w_o, b_o, n_heads=H, n_features=D_MODEL, token=1)
    plain = mixer(layer, z, token=1)
    np.testing.assert_allclose(turned.output(), plain.output(), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(turned.contributions(), plain.contributions()[order])


def test_values_by_hand():
    w_o = [[1, 0, 2], [0, 1, 0], [3, 0, 0], [0, 0, 4]]  # (H d) D = 4 3
    widget = OutputMixer(["a"], [[1, 2, 3, 4]], w_o, [10, 20, 30], n_heads=2, n_features=2)
    assert widget.contributions().tolist() == [[1, 2], [9, 0]]
    assert widget.output().tolist() == [20, 22]
    assert widget.length() == pytest.approx(np.sqrt(20**2 + 22**2 + (2 + 16 + 30) ** 2))
    widget.off = [0]
    assert widget.contributions().tolist() == [[0, 0], [9, 0]]
    assert widget.output().tolist() == [19, 20]
    y, full = np.array([19, 20, 46]), np.array([20, 22, 48])
    assert widget.length() == pytest.approx(np.linalg.norm(y))
    cosine = y @ full / np.linalg.norm(y) / np.linalg.norm(full)
    assert widget.cosine() == pytest.approx(cosine, abs=1e-7)


def test_without_a_bias_no_head_leaves_nothing(layer, z):
    widget = OutputMixer(words(), z, layer.out_proj.weight.T, n_heads=H, off=range(H))
    assert not widget.output().any() and widget.length() == 0
    assert np.isnan(widget.cosine())
    widget.off = []
    y = z[0] @ layer.out_proj.weight.T
    np.testing.assert_allclose(widget.output(), y, rtol=0, atol=1e-12)
    assert widget.cosine() == pytest.approx(1, abs=1e-12)


def test_the_state_can_be_read_and_set(layer, z):
    widget = mixer(layer, z)
    assert (widget.token, widget.feature, widget.off) == (0, 0, ())
    widget.token, widget.feature = np.int64(4), torch.tensor(10)
    assert (widget.token, widget.feature) == (4, 10) and type(widget.token) is int
    for given in ((2, 0, 2), {0, 2}, np.array([2, 0]), torch.tensor([0, 2]), [np.int64(2), 0]):
        widget.off = []
        widget.off = given
        assert widget.off == (0, 2) and {type(head) for head in widget.off} == {int}
    widget.set_state({"off": [1], "token": 3})
    assert (widget.off, widget.token) == ((1,), 3)
    assert widget.tokens == ("w0", "w1", "w2", "w3", "w4")


def test_the_first_features_are_shown_or_all_there_are(layer, z):
    four = mixer(layer, z, n_features=4)
    np.testing.assert_array_equal(four.output(), mixer(layer, z).output()[:4])
    assert four.length() == mixer(layer, z).length()  # over all features
    assert mixer(layer, z, n_features=24).n_features == D_MODEL


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("token", 5, ValueError, "there are 5 tokens, counted from 0; give 0 to 4"),
        ("token", "cat", TypeError, "token='cat' is not a whole number; give an int from 0 to 4"),
        ("feature", 11, ValueError, "there are 11 features shown, counted from 0; give 0 to 10"),
        ("feature", 1.0, TypeError, "feature=1.0 is not a whole number"),
        ("off", 1, TypeError, "off=1 is not a list; give the heads to switch off, such as [0, 2]"),
        ("off", "12", TypeError, "off='12' is not a list"),
        ("off", None, TypeError, "off=None is not a list"),
        ("off", np.array(1), TypeError, "off=array(1) is not a list"),
        ("off", np.array([[1]]), TypeError, "off=array([[1]]) is not a list"),
        ("off", [0, 3], ValueError, "a head in off=3 is out of range: there are 3 heads"),
        ("off", [-1], ValueError, "a head in off=-1 is out of range"),
        ("off", [True], TypeError, "a head in off=True is not a whole number"),
    ],
)
def test_a_wrong_value_is_refused_with_a_way_out(layer, z, name, value, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        mixer(layer, z, **{name: value})
    widget = mixer(layer, z)
    before = getattr(widget, name)
    with pytest.raises(kind, match=re.escape(message)):
        setattr(widget, name, value)
    assert getattr(widget, name) == before


def build(tokens=("a", "b"), z=((1, 2, 3),) * 2, w_o=((1, 2),) * 3, b_o=(1, 2), n_heads=3, **more):
    return OutputMixer(tokens, z, w_o, b_o, n_heads=n_heads, **more)


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ({"tokens": "ab"}, TypeError, "tokens='ab' is one string; give a list of tokens"),
        ({"tokens": []}, ValueError, "tokens is empty; give one string for each row of z"),
        ({"tokens": ["a"]}, ValueError, "z has shape (2, 3), but 1 tokens need (1, H·d); merge"),
        ({"z": np.ones((1, 2, 3))}, ValueError, "z has shape (1, 2, 3), but 2 tokens need"),
        ({"z": [["x"], ["y"]]}, TypeError, "z is not made of real numbers; give T rows of H·d"),
        ({"z": np.full((2, 3), np.nan)}, ValueError, "z holds nan, and a widget stores float16"),
        ({"w_o": np.ones((2, 3))}, ValueError, "the transpose: give out_proj.weight.T"),
        (
            {"w_o": np.ones((4, 2))},
            ValueError,
            "w_o has shape (4, 2), but z has rows of 3 numbers, so w_o needs (3, D); give one row",
        ),
        ({"w_o": np.ones((3, 0))}, ValueError, "w_o has shape (3, 0)"),
        ({"w_o": np.full((3, 2), 7e4)}, ValueError, "w_o holds 70000.0, and a widget stores"),
        ({"w_o": [[1, 1j]] * 3}, TypeError, "w_o is not made of real numbers"),
        ({"b_o": [1]}, ValueError, "b_o has shape (1,), but w_o has 2 columns; give (2,), or None"),
        ({"b_o": [1, np.inf]}, ValueError, "b_o holds inf, and a widget stores float16 (finite"),
        ({"b_o": "b"}, TypeError, "b_o is not made of real numbers; give D numbers"),
        (
            {"n_heads": 2},
            ValueError,
            "n_heads=2 is not a choice; try one of 1, 3: they divide the width of z, 3",
        ),
        ({"n_heads": 3.0}, TypeError, "n_heads=3.0 is not a choice"),
        ({"n_features": 0}, ValueError, "n_features=0 is no number of columns that a page has"),
        ({"n_features": 65}, ValueError, "give an int from 1 to 64"),
        ({"n_features": 2.5}, TypeError, "n_features=2.5 is no number of columns"),
    ],
)
def test_wrong_matrices_are_refused(given, kind, message):
    build()
    with pytest.raises(kind, match=re.escape(message)):
        build(**given)


def test_what_is_stored_is_little_endian_and_small(layer, z):
    state = mixer(layer, z, n_features=4).get_state()
    stored = state["_data"]
    weight, bias = layer.out_proj.weight.T.numpy(), layer.out_proj.bias.numpy()
    assert stored["tokens"] == words()
    assert stored["z"] == z.numpy().astype("<f2").tobytes()
    assert stored["w_o"] == weight[:, :4].astype("<f2").tobytes()
    assert stored["b_o"] == bias[:4].astype("<f2").tobytes()
    assert (state["n_heads"], state["n_features"], state["d_model"]) == (H, 4, D_MODEL)
    gram = np.frombuffer(stored["gram"], "<f8").reshape(T, H + 1, H + 1)
    blocks = weight.reshape(H, D_HEAD, D_MODEL)
    for t, h, g in itertools.product(range(T), range(H), range(H)):
        one, other = (z[t].reshape(H, D_HEAD)[i].numpy() @ blocks[i] for i in (h, g))
        assert gram[t, h, g] == pytest.approx(one @ other, rel=1e-6, abs=1e-7)
        assert gram[t, h, H] == gram[t, H, h] == pytest.approx(one @ bias, rel=1e-6, abs=1e-7)
    assert gram[:, H, H] == pytest.approx(np.full(T, bias @ bias), rel=1e-6)
    assert mixer(layer, z)._data["b_o"] is not None
    assert OutputMixer(words(), z, weight, n_heads=H)._data["b_o"] is None


def test_tensors_of_any_type_and_in_a_graph_are_taken(layer, z):
    given = (z.float().requires_grad_(), layer.out_proj.weight.T.bfloat16(), layer.out_proj.bias)
    widget = OutputMixer(words(), *given, n_heads=H)
    exact = z[0].numpy() @ layer.out_proj.weight.T.numpy() + layer.out_proj.bias.numpy()
    np.testing.assert_allclose(widget.output(), exact, rtol=0, atol=1e-12)


def test_the_text_and_the_output_are_as_every_widgets(layer, z):
    widget = mixer(layer, z, token=2, feature=3, off=[1, 0])
    assert repr(widget) == "OutputMixer(token=2, feature=3, off=(0, 1))"
    data, _ = widget._repr_mimebundle_()
    assert set(data) == {VIEW, "image/png", "text/plain"}
    assert base64.b64decode(data["image/png"]) == widget.picture()


def test_the_picture_is_a_small_png_with_the_same_bytes_each_time():
    rng = np.random.default_rng(0)
    z, w_o, b_o = rng.normal(size=(3, 192)), rng.normal(size=(192, 71)), rng.normal(size=71)
    widget = OutputMixer(["$\\frac$", "b", "c"], z, w_o, b_o, n_heads=16, n_features=64, off=[3])
    first = widget.picture()
    assert first == widget.picture()
    assert first.startswith(b"\x89PNG\r\n\x1a\n") and len(first) <= 40_000
    with matplotlib.style.context(STYLE), matplotlib.rc_context({"text.usetex": True}):
        assert widget.picture() == first
    for name, value in {"token": 1, "feature": 3, "off": [4]}.items():
        before = getattr(widget, name)
        setattr(widget, name, value)
        assert widget.picture() != first, name
        setattr(widget, name, before)
    widget.off = range(16)
    assert widget.picture() != first


def test_the_module_holds_each_name_once_and_imports_nothing():
    esm = str(OutputMixer._esm)
    names = re.findall(r"^(?:export )?(?:function|const|let) (\w+)", esm, re.MULTILINE)
    assert len(names) == len(set(names)) and "headContributions" in names
    assert not re.search(r"^import ", esm, re.MULTILINE)
    assert esm.rstrip().endswith("export default { render };")


def test_every_rule_of_the_style_sheet_keeps_to_the_widget():
    rules = (base.STATIC / "output_mixer.css").read_text("utf-8")
    rules = re.sub(r"/\*.*?\*/", "", rules, flags=re.DOTALL)
    selectors = re.findall(r"(?:^|[{}])\s*([^{}@]+?)\s*\{", rules)
    assert len(selectors) > 40
    assert [one for one in selectors if not one.startswith(".mha-mixer")] == []


def test_the_colours_of_heads_are_those_of_the_figures():
    script = Path(base.STATIC / "head_colours.js").read_text("utf-8")
    assert tuple(re.findall(r'"(#[0-9A-F]{6})"', script)) == HEAD_COLOURS


def test_contributions_that_cancel_leave_their_true_length():
    widget = OutputMixer(["a"], [[1000, -1000]], [[1, 2, 3], [1.0009765625, 2, 3]], n_heads=2)
    assert widget.length() == pytest.approx(1000 * 0.0009765625, abs=1e-6)
    assert widget.cosine() == pytest.approx(1, abs=1e-6)


def test_a_page_does_not_set_what_only_python_sets(layer, z):
    widget = mixer(layer, z)
    before = widget.get_state()
    widget.set_state({"n_heads": 1, "d_model": 2, "n_features": 1, "_data": {}, "token": 1})
    after = widget.get_state()
    assert after.pop("token") == 1 and before.pop("token") == 0
    assert after == before
