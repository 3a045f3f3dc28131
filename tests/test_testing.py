"""mha.testing: the chain holds, each broken implementation is caught, each dash tells the truth."""

import copy
import math
import re
import sys
from functools import partial
from importlib.util import find_spec

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from mha import MultiHeadAttention, masked_softmax, to_additive, to_torch_mha
from mha.backends import BACKENDS
from mha.reference import loops
from mha.testing import (
    IMPLEMENTATIONS,
    SETTINGS,
    Case,
    Comparison,
    Difference,
    Unsupported,
    build_case,
    compare_implementations,
)
from mha.testing.comparison import _oracle, _slopes_oracle

BERT = "transformers' BERT"
OTHERS = [name for name in IMPLEMENTATIONS if name != "NumPy loops"]
needs_transformers = pytest.mark.skipif(
    find_spec("transformers") is None, reason="pip install transformers, one of the peers"
)
DASHES = {
    ("context of another width", BERT): "x and context must have one width",
    ("rows without keys", "nn.MultiheadAttention"): "a query without a visible key gives NaN",
    ("rows without keys", BERT): "a query without a visible key gives NaN",
}


@pytest.fixture(scope="module")
def whole():
    return compare_implementations()


# the chain


@needs_transformers
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("name", OTHERS)
def test_every_pair_holds_or_says_why_not(whole, setting, name):
    cell = whole.differences[setting][name]
    if (setting, name) in DASHES:
        assert cell == DASHES[setting, name]
        return
    assert isinstance(cell, Difference)
    assert cell.y <= 1e-12
    if name == "NumPy arrays":  # the oracle of the gradients
        assert cell.gradients is None
    else:
        assert cell.gradients <= 1e-12


@needs_transformers
def test_the_whole_table(whole):
    assert whole.holds(1e-12)
    assert not whole.holds(1e-17)  # numbers were compared, and rounded on different ways
    assert list(whole.differences) == list(SETTINGS)
    assert all(list(row) == OTHERS for row in whole.differences.values())


def test_the_implementations():
    assert list(IMPLEMENTATIONS) == [
        "NumPy loops", "NumPy arrays", *BACKENDS, "nn.MultiheadAttention", BERT,
    ]  # fmt: skip


def test_no_two_backends_are_one():
    # Were copy.copy to share the backend too, each column would show the same computation.
    case = build_case("causal")
    for name in BACKENDS:
        IMPLEMENTATIONS[name](case)
        assert case.layer.backend == "explicit"
    with pytest.MonkeyPatch.context() as patch:
        calls = []

        def spy(name, backend, *arguments, **options):
            calls.append(name)
            return backend(*arguments, **options)

        for name, backend in BACKENDS.items():
            patch.setitem(BACKENDS, name, partial(spy, name, backend))
        for name in BACKENDS:
            IMPLEMENTATIONS[name](case)
    assert calls == list(BACKENDS)


# cases


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_case_is_what_its_setting_says(setting):
    case, options = build_case(setting), SETTINGS[setting]
    layer = case.layer
    n_heads = options.get("n_heads", 3)
    n_keys = options.get("n_keys", 7)
    assert (layer.n_heads, layer.n_kv_heads) == (n_heads, options.get("n_kv_heads", n_heads))
    assert (layer.d_head, layer.d_model) == (5, 5 * n_heads)
    assert layer.d_context == options.get("d_context", layer.d_model)
    assert (layer.q_proj.bias is not None) == options.get("bias", False)
    assert case.x.shape == (2, 7, layer.d_model)
    assert case.context.shape == (2, n_keys, layer.d_context)
    assert (case.context is case.x) == ("n_keys" not in options)
    assert case.is_causal == options.get("is_causal", False)
    if case.mask is None:
        assert "mask" not in options
    else:
        assert torch.equal(case.mask, options["mask"]) and case.mask is not options["mask"]
    tensors = case.differentiable()
    assert len(tensors) == (1 if case.context is case.x else 2) + len(list(layer.parameters()))
    assert all(t.dtype == torch.float64 and t.requires_grad for t in tensors)
    for one, again in zip(tensors, build_case(setting).differentiable(), strict=True):
        assert torch.equal(one, again)
    # No number is one that would hide an error, and no two projections are equal.
    values = torch.cat([tensor.detach().flatten() for tensor in tensors])
    assert values.abs().min() > 0 and len(values.unique()) > 0.95 * len(values)


def test_only_one_setting_has_rows_without_keys():
    empty = []
    for setting in SETTINGS:
        mask = build_case(setting).whole_mask()
        if mask is not None and not mask.any(-1).all():
            empty.append(setting)
    assert empty == ["rows without keys"]
    mask = build_case("rows without keys").mask
    assert (~mask.any(-1)).sum() == 2 * 3 * 2  # queries 1 and 2, in every head and sequence


def test_masks_by_hand():
    case = build_case("padding")
    assert case.mask[:, 0, 0].sum(-1).tolist() == [5, 7]
    assert build_case("window").mask[3].int().tolist() == [0, 1, 1, 1, 1, 0, 0]
    assert build_case("causal").whole_mask().sum(-1).tolist() == [1, 2, 3, 4, 5, 6, 7]
    causal = build_case("causal, T ≠ S").whole_mask()
    assert causal.sum(-1).tolist() == [5, 6, 7, 8, 9, 10, 11]
    assert build_case("self-attention").whole_mask() is None


def test_the_oracle_is_the_loops_on_the_layers_numbers():
    case = build_case("rows without keys")
    arrays = {
        f"{kind}_{letter}": getattr(getattr(case.layer, name), attribute).detach().numpy()
        for letter, name in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True)
        for kind, attribute in (("w", "weight"), ("b", "bias"))
    }
    arrays = {name: array.T if name[0] == "w" else array for name, array in arrays.items()}
    x, context = case.x.detach().numpy(), case.context.detach().numpy()
    y, _ = loops.multi_head_attention(x, context, **arrays, n_heads=3, mask=case.mask.numpy())
    assert np.array_equal(IMPLEMENTATIONS["NumPy loops"](case).numpy(), y)
    assert_close(y[:, 1], np.stack([arrays["b_o"]] * 2), atol=0, rtol=0)


# broken implementations


def attend(case, *, mask=lambda mask: mask, scale=1.0, share="repeat_interleave",
           weights=lambda weights: weights, w_o=lambda w: w, bias=True):  # fmt: skip
    """Compute the layer once more, by torch; each argument breaks one thing."""
    layer = case.layer
    n_heads, d = layer.n_heads, layer.d_head

    def project(name, tokens):
        projection = getattr(layer, name)
        y = tokens @ projection.weight.T
        y = y if projection.bias is None or not bias else y + projection.bias
        split = y.view(*y.shape[:2], -1, d).transpose(1, 2)
        copies = n_heads // split.shape[1]
        if share == "repeat":
            return split.repeat(1, copies, 1, 1)
        return split.repeat_interleave(copies, dim=1)

    q, k, v = (
        project("q_proj", case.x), project("k_proj", case.context), project("v_proj", case.context)
    )  # fmt: skip
    seen = case.whole_mask()
    seen = None if seen is None else mask(seen)
    attention = weights(masked_softmax(scale * q @ k.mT / math.sqrt(d), seen))
    merged = (attention @ v).transpose(1, 2).flatten(2)
    y = merged @ w_o(layer.out_proj.weight).T
    return y if layer.out_proj.bias is None or not bias else y + layer.out_proj.bias


def swap_blocks(weight):  # of the first two heads
    return torch.cat([weight[:, 5:10], weight[:, :5], weight[:, 10:]], dim=1)


EVERYWHERE = list(SETTINGS)
MASKED = ["bool mask (T, S)", "causal", "causal, T ≠ S", "padding", "window", "mask per head",
          "rows without keys"]  # fmt: skip
BROKEN = {  # what is wrong, and the settings in which it shows
    "inverted mask": ({"mask": lambda mask: ~mask}, MASKED),
    "no mask": ({"mask": lambda mask: torch.ones_like(mask)}, MASKED),
    "one head's mask for all": (
        {"mask": lambda mask: mask if mask.ndim == 2 else mask[:, :1]},
        ["mask per head", "rows without keys"],
    ),
    "no 1/√d": ({"scale": math.sqrt(5)}, EVERYWHERE),
    "1/d": ({"scale": 1 / math.sqrt(5)}, EVERYWHERE),
    "repeat": ({"share": "repeat"}, ["grouped heads"]),
    "W_O blocks swapped": ({"w_o": swap_blocks}, EVERYWHERE),
    "no biases": ({"bias": False}, ["with biases", "rows without keys"]),
    "averaged heads": (
        {"weights": lambda w: w.mean(1, keepdim=True).expand_as(w)}, EVERYWHERE,
    ),
    "weights without gradient": ({"weights": lambda w: w.detach()}, EVERYWHERE),
}  # fmt: skip


def test_the_same_code_unbroken_holds():
    assert compare_implementations({"torch": attend}).holds(1e-12)


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_implementation_is_caught(what):
    options, shows = BROKEN[what]
    comparison = compare_implementations({what: lambda case: attend(case, **options)})
    assert not comparison.holds(1e-12)
    worst = {setting: row[what].largest() for setting, row in comparison.differences.items()}
    assert [setting for setting, largest in worst.items() if not largest <= 1e-3] == shows
    assert all(largest <= 1e-12 for setting, largest in worst.items() if setting not in shows)


def test_a_gradient_alone_is_enough_to_fail():
    wrong = {"detached": lambda case: attend(case, weights=torch.detach)}
    (cell,) = compare_implementations(wrong, ["causal"]).differences["causal"].values()
    assert cell.y <= 1e-12 and cell.gradients > 1e-3
    assert compare_implementations(wrong, ["causal"], gradients=False).holds(1e-12)


@pytest.mark.parametrize("index", range(6))
def test_every_gradient_counts(index):
    """One wrong gradient, of x, context or any parameter, is caught."""

    class Crooked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensor):
            return tensor.clone()

        @staticmethod
        def backward(ctx, upstream):
            wrong = upstream.clone()
            wrong.view(-1)[-1] += 1e-6
            return wrong

    def crooked(case):
        tensors = case.differentiable()
        tensors[index] = Crooked.apply(tensors[index])
        x, context, *weights = tensors
        layer = copy.deepcopy(case.layer)
        names = [name for name, _ in layer.named_parameters()]
        return torch.func.functional_call(
            layer, dict(zip(names, weights, strict=True)), (x, context)
        )

    comparison = compare_implementations({"crooked": crooked}, ["cross-attention"])
    (cell,) = comparison.differences["cross-attention"].values()
    assert cell.y <= 1e-12 and 1e-7 < cell.gradients < 1e-5


def test_nan_does_not_hold():
    comparison = compare_implementations(
        {"nan": lambda case: attend(case) * math.nan}, ["self-attention"]
    )
    assert math.isnan(comparison.differences["self-attention"]["nan"].y)
    assert not comparison.holds(math.inf)
    assert repr(comparison).endswith("\nself-attention  nan")
    only_gradient = Comparison({"a": {"b": Difference(0.0, math.nan)}})
    assert not only_gradient.holds(1.0)


def test_nothing_compared_does_not_hold():
    assert not Comparison({"a": {"b": "no reason"}}).holds(1.0)


# the dashes


def test_torchs_layer_gives_nan_to_a_query_without_keys():
    case = build_case("rows without keys")
    module = case.layer.to_torch()
    tokens = (case.x, case.context, case.context)
    options = to_torch_mha(case.mask, case.layer.n_heads)
    y, _ = module(*tokens, **options, need_weights=True)
    empty = ~case.mask.any(-1)[:, 0]  # B T
    assert y[empty].isnan().all() and y[~empty].isfinite().all()
    # The loss skips those rows, and still no gradient is left.
    (gradient,) = torch.autograd.grad(y[~empty].sum(), case.context)
    assert gradient.isnan().any()


@needs_transformers
def test_bert_gives_nan_to_a_query_without_keys_and_has_one_width():
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertAttention

    case = build_case("rows without keys")
    config = BertConfig(hidden_size=15, num_attention_heads=3, attn_implementation="eager")
    module = BertAttention(config, is_cross_attention=True).double().eval()
    mask = to_additive(case.mask, torch.float64)
    z, _ = module.self(case.x, encoder_hidden_states=case.context, attention_mask=mask)
    assert z[:, 1:3].isnan().all() and z[:, 0].isfinite().all()
    wide = build_case("context of another width").context
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        module.self(case.x, encoder_hidden_states=wide)


@needs_transformers
def test_bert_is_left_out_where_transformers_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)
    comparison = compare_implementations([BERT, "loop"], ["causal"])
    reason = comparison.differences["causal"][BERT]
    assert reason == "transformers is not installed, or older than 5"
    assert comparison.holds(1e-12)


@pytest.mark.parametrize("setting", [s for s in SETTINGS if s != "rows without keys"])
def test_torchs_layer_gets_the_weights_of_to_torch(setting, monkeypatch):
    """The numbers that stay tied to the layer are those that `to_torch` copies."""
    from mha.testing import implementations

    handed = {}
    call = torch.func.functional_call

    def spy(module, tensors, *arguments):
        handed.update(module=module, tensors=tensors)
        return call(module, tensors, *arguments)

    monkeypatch.setattr(implementations, "functional_call", spy)
    case = build_case(setting)
    y = IMPLEMENTATIONS["nn.MultiheadAttention"](case)
    assert set(handed["tensors"]) == set(dict(handed["module"].named_parameters()))
    for name, parameter in handed["module"].named_parameters():
        assert torch.equal(handed["tensors"][name], parameter)
    options = to_torch_mha(case.whole_mask(), case.layer.n_heads)
    expected, _ = case.layer.to_torch()(case.x, case.context, case.context, **options)
    assert torch.equal(y, expected)


# what is shown


def test_the_text_of_the_table():
    differences = {
        "self-attention": {"one": Difference(1e-15, 1e-12), "the <other>": "it can't"},
        "causal, T ≠ S": {"one": Difference(1.1e-12, 0.0), "the <other>": Difference(0.0, 0.26)},
        "window": {"one": "not here", "the <other>": "it can't"},
    }
    comparison = Comparison(differences)
    assert repr(comparison).splitlines() == [
        "Largest difference from NumPy: y from the loops, gradients from a complex step",
        "                one      the <other>",
        "self-attention  ≤ 1e-12  — (1)",
        "causal, T ≠ S   1e-12    3e-01",
        "window          — (2)    — (1)",
        "(1) the <other>: it can't",
        "(2) one: not here",
    ]
    page = comparison._repr_html_()
    (caption,) = re.findall("<caption>(.*?)</caption>", page)
    assert caption == repr(comparison).splitlines()[0]
    assert re.findall(r'<th scope="col">(.*?)</th>', page) == ["one", "the &lt;other&gt;"]
    assert re.findall(r'<th scope="row">(.*?)</th>', page) == list(differences)
    small = "≤ 10<sup>−12</sup>"
    cells = [small, "— (1)", "1e-12", "3e-01", "— (2)", "— (1)"]
    assert re.findall("<td>(.*?)</td>", page) == ["", *cells]
    notes = ["(1) the &lt;other&gt;: it can&#x27;t", "(2) one: not here"]
    assert re.findall("<p>(.*?)</p>", page) == notes


def test_y_alone():
    comparison = compare_implementations(["NumPy loops", "fused"], ["causal"], gradients=False)
    assert comparison.differences["causal"]["NumPy loops"] == Difference(0.0, None)
    assert repr(comparison).splitlines() == [
        "Largest difference from NumPy: y from the loops",
        "        NumPy loops  fused",
        "causal  ≤ 1e-12      ≤ 1e-12",
    ]


# refusals


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"settings": ["casual"]}, ValueError, "setting 'casual' is not known; choose from 'self-"),
        ({"implementations": ["flash"]}, ValueError, "implementation 'flash' is not known; choose"),
        ({"settings": [3]}, ValueError, "setting 3 is not known"),
        ({"settings": "causal"}, TypeError, r"settings='causal' is one name; pass a list, \['caus"),
        ({"implementations": "loop"}, TypeError, "implementations='loop' is one name"),
        ({"settings": []}, ValueError, "settings is empty; name one at least, or pass None"),
        ({"implementations": {}}, ValueError, "implementations is empty"),
        ({"implementations": ["NumPy loops"]}, ValueError,
         "'NumPy loops' returns a y without gradients.*gradients=False"),
    ],
)  # fmt: skip
def test_what_is_refused(arguments, error, says):
    with pytest.raises(error, match=says):
        compare_implementations(**{"settings": ["causal"]} | arguments)


def test_an_unknown_case_is_refused():
    with pytest.raises(ValueError, match="setting 'x' is not known; choose from 'self-attention'"):
        build_case("x")


def test_a_result_of_another_kind_is_refused():
    layer = lambda case: case.layer(case.x, return_weights=True)  # noqa: E731
    with pytest.raises(TypeError, match="'mine' returns a tuple; return y alone"):
        compare_implementations({"mine": layer}, ["self-attention"])
    flat = {"mine": lambda case: attend(case).transpose(0, 1)}
    with pytest.raises(ValueError, match=r"shape \(7, 2, 15\); return y, B T D = \(2, 7, 15\)"):
        compare_implementations(flat, ["self-attention"])
    flat = {"mine": lambda case: attend(case)[:1]}  # would broadcast
    with pytest.raises(ValueError, match=r"shape \(1, 7, 15\); return y, B T D = \(2, 7, 15\)"):
        compare_implementations(flat, ["self-attention"])


def test_an_implementation_may_say_that_it_has_no_such_setting():
    def mine(case):
        if case.is_causal:
            raise Unsupported("no causality yet")
        return attend(case)

    comparison = compare_implementations({"mine": mine}, ["self-attention", "causal"])
    assert comparison.holds(1e-12)
    assert repr(comparison).endswith("causal          — (1)\n(1) mine: no causality yet")


def test_a_layer_of_ones_own_makes_a_case():
    layer = MultiHeadAttention(6, 2).double()
    x = torch.ones(1, 3, 6, dtype=torch.float64)
    case = Case(layer, x, x, None, True)
    assert_close(IMPLEMENTATIONS["NumPy arrays"](case), layer(x, is_causal=True))


def test_who_writes_into_a_mask_changes_neither_the_oracle_nor_later_runs():
    def inverts_in_place(case):
        return case.layer(case.x, case.context, mask=case.mask.logical_not_())

    _oracle.cache_clear()
    _slopes_oracle.cache_clear()
    assert not compare_implementations({"bad": inverts_in_place}, ["window"]).holds(0.1)
    assert compare_implementations(["explicit", "loop"], ["window"]).holds(1e-12)
