"""mha.reference.backward: each stage by hand and by complex step, the layer against autograd.

Nothing is shared between the three witnesses: autograd differentiates the torch layer, the complex
step and the central differences ask the NumPy forward pass alone.
"""

import inspect
import types

import numpy as np
import pytest
import torch
from numpy_layers import D_CONTEXT, D_HEAD, D_MODEL, B, H, S, T, arrays, draw, masks

from mha import MultiHeadAttention
from mha.reference import backward, forward

to_rounding = {"atol": 1e-12, "rtol": 1e-12}
LETTERS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}


# stages


def test_project_by_hand():
    x = np.array([[[1.0, 2.0], [3.0, -1.0]]])
    w = np.array([[1.0, 0.0, 2.0], [0.0, 10.0, 5.0]])  # [in, out]
    d_y = np.array([[[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]]])
    d_x, d_w, d_b = backward.d_project(d_y, x, w)
    assert d_x.tolist() == [[[1.0, 0.0], [4.0, 20.0]]]
    assert d_w.tolist() == [[1.0, 3.0, 6.0], [2.0, -1.0, -2.0]]
    assert d_b.tolist() == [1.0, 1.0, 2.0]


def test_split_and_merge_by_hand():
    x = np.arange(12).reshape(1, 3, 4)  # three tokens, two heads of width 2
    split = [[[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]]
    assert backward.d_split_heads(np.array(split)).tolist() == x.tolist()
    assert backward.d_merge_heads(x, 2).tolist() == split


def test_share_heads_by_hand():
    d_shared = np.array([1.0, 2.0, 4.0, 10.0, 20.0, 40.0]).reshape(1, 6, 1, 1)
    assert backward.d_share_heads(d_shared, 2).tolist() == [[[[7.0]], [[70.0]]]]
    assert backward.d_share_heads(d_shared, 1).tolist() == [[[[77.0]]]]
    assert backward.d_share_heads(d_shared, 6).tolist() == d_shared.tolist()


def test_scores_and_logits_by_hand():
    q, k = np.array([[1.0, 0.0], [2.0, 1.0]]), np.array([[1.0, 1.0], [0.0, 3.0], [2.0, 0.0]])
    d_scores = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 10.0]])
    d_q, d_k = backward.d_attention_scores(d_scores, q, k)
    assert d_q.tolist() == [[1.0, 1.0], [20.0, 3.0]]
    assert d_k.tolist() == [[1.0, 0.0], [2.0, 1.0], [20.0, 10.0]]
    assert backward.d_scale_scores(d_scores, 16).tolist() == [[0.25, 0.0, 0.0], [0.0, 0.25, 2.5]]


def test_masked_softmax_by_hand():
    # Weights 1/4 and 3/4: ∂p₀/∂logits = 3/16 · (1, −1). A hidden key and an empty row get nothing.
    weights = np.array([[0.25, 0.75, 0.0], [0.0, 0.0, 0.0]])
    d_weights = np.array([[16.0, 0.0, 1e9], [16.0, 0.0, 1e9]])
    d_logits = backward.d_masked_softmax(d_weights, weights)
    assert d_logits.tolist() == [[3.0, -3.0, 0.0], [0.0, 0.0, 0.0]]


def test_weighted_sum_and_gate_by_hand():
    weights, v = np.array([[0.25, 0.75], [1.0, 0.0]]), np.array([[4.0, 0.0], [8.0, -4.0]])
    d_weights, d_v = backward.d_weighted_sum(np.array([[1.0, 1.0], [0.0, 8.0]]), weights, v)
    assert d_weights.tolist() == [[4.0, 4.0], [0.0, -32.0]]
    assert d_v.tolist() == [[0.25, 8.25], [0.75, 0.75]]
    z = np.array([1.0, 2.0, 3.0, 4.0]).reshape(2, 2, 1, 1)  # B H T d
    d_gated = np.full((2, 2, 1, 1), 10.0)
    d_z, d_gate = backward.d_gate_heads(d_gated, z, np.array([2.0, 0.5]))
    assert d_z.ravel().tolist() == [20.0, 5.0, 20.0, 5.0]
    assert d_gate.tolist() == [40.0, 60.0]
    d_z, d_gate = backward.d_gate_heads(d_gated, z, np.array([[2.0, 0.5], [1.0, 0.0]]))
    assert d_z.ravel().tolist() == [20.0, 5.0, 10.0, 0.0]
    assert d_gate.tolist() == [[10.0, 20.0], [30.0, 40.0]]
    assert backward.d_gate_heads(d_gated, z, None) == (d_gated, None)


def stages():
    """Name each stage with its inputs and its backward pass, from the upstream gradient on."""
    x, w, b = draw(B, T, D_MODEL, seed=1), draw(D_MODEL, 6, seed=2), draw(6, seed=3)
    q, k = draw(B, 3, T, 4, seed=4), draw(B, 3, S, 4, seed=5)
    weights, v = draw(B, 3, T, S, seed=6), draw(B, 3, S, 7, seed=7)
    mask = draw(B, 3, T, S, seed=8) > 0
    mask[:, :, 1] = False
    p = forward.masked_softmax(weights, mask)
    gate, gates = draw(3, seed=9), draw(B, 3, seed=10)
    back = backward
    return {
        "project": (forward.project, [x, w, b], lambda up: back.d_project(up, x, w)),
        "split": (lambda t: forward.split_heads(t, 3), [b[None, None]], back.d_split_heads),
        "share": (lambda t: forward.share_heads(t, 6), [k], lambda up: back.d_share_heads(up, 3)),
        "scores": (forward.attention_scores, [q, k],
                   lambda up: back.d_attention_scores(up, q, k)),
        "scale": (lambda t: forward.scale_scores(t, 5), [weights],
                  lambda up: back.d_scale_scores(up, 5)),
        "softmax": (lambda t: forward.masked_softmax(t, mask), [weights],
                    lambda up: back.d_masked_softmax(up, p)),
        "sum": (forward.weighted_sum, [weights, v],
                lambda up: back.d_weighted_sum(up, weights, v)),
        "gate H": (forward.gate_heads, [q, gate], lambda up: back.d_gate_heads(up, q, gate)),
        "gate B H": (forward.gate_heads, [q, gates], lambda up: back.d_gate_heads(up, q, gates)),
        "merge": (forward.merge_heads, [q], lambda up: back.d_merge_heads(up, 3)),
    }  # fmt: skip


@pytest.mark.parametrize("name", stages())
def test_a_stage_is_the_complex_step(name):
    stage, inputs, back = stages()[name]
    upstream = draw(*stage(*inputs).shape, seed=11)
    expected = forward.complex_step(stage, inputs, upstream)
    found = back(upstream)
    found = found if isinstance(found, tuple) else (found,)
    for ours, other, given in zip(found, expected, inputs, strict=True):
        assert ours.shape == given.shape
        np.testing.assert_allclose(ours, other, **to_rounding)


def test_every_stage_has_a_backward_pass():
    def functions(module):
        named = vars(module).items()
        return {name for name, value in named
                if inspect.isfunction(value) and value.__module__ == module.__name__}  # fmt: skip

    not_stages = {"visible_keys", "multi_head_attention", "complex_step"}
    expected = {f"d_{name}" for name in functions(forward) - not_stages}
    assert functions(backward) - {"multi_head_attention"} == expected


# the layer


def by_hand(named, upstream, **options):
    _, saved = forward.multi_head_attention(**named, **options)
    return backward.multi_head_attention(upstream, saved)


def by_autograd(named, upstream, *, n_heads, n_kv_heads, mask, is_causal):
    """Differentiate the torch layer; its matrices are [out, in], so turn them and their slopes."""
    d_model, width = named["w_q"].shape
    layer = MultiHeadAttention(
        d_model, n_heads, n_kv_heads=n_kv_heads, d_head=width // n_heads,
        d_context=named["w_k"].shape[0], bias="b_q" in named,
    ).double()  # fmt: skip
    leaves = {}
    for name in named:
        if name[0] in "wb":
            projection = getattr(layer, LETTERS[name[-1]])
            leaves[name] = projection.weight if name[0] == "w" else projection.bias
            leaves[name].data.copy_(torch.tensor(named[name].T))
        else:
            leaves[name] = torch.tensor(named[name], requires_grad=True)
    y = layer(
        leaves["x"], leaves["context"], head_gate=leaves.get("head_gate"), is_causal=is_causal,
        mask=None if mask is None else torch.tensor(mask),
    )  # fmt: skip
    slopes = torch.autograd.grad(y, list(leaves.values()), torch.tensor(upstream))
    return {name: (slope.T if name[0] == "w" else slope).numpy()
            for name, slope in zip(leaves, slopes, strict=True)}  # fmt: skip


def assert_equal_gradients(ours, expected):
    for name, slope in expected.items():
        assert getattr(ours, name).shape == slope.shape, name
        np.testing.assert_allclose(getattr(ours, name), slope, **to_rounding, err_msg=name)


def assert_only_b_o(ours):
    """Say that nothing but b_O moves y, as where no query sees a key."""
    moving = {name for name, slope in ours._asdict().items() if slope is not None and slope.any()}
    assert moving == {"b_o"}


@pytest.mark.parametrize("kind", masks(2, 2, 3))
@pytest.mark.parametrize("sizes", [(T, S), (S, T)], ids=str)
@pytest.mark.parametrize(("heads", "gated"), [((H, H), "B H"), ((6, 2), "H"), ((H, 1), None)])
@pytest.mark.parametrize("bias", [False, True])
def test_the_layer_is_autograd(kind, sizes, heads, gated, bias):
    n_heads, n_kv_heads = heads
    named = arrays(n_queries=sizes[0], n_keys=sizes[1], n_heads=n_heads, n_kv_heads=n_kv_heads,
                   gated=gated)  # fmt: skip
    if not bias:
        named = {name: array for name, array in named.items() if name[0] != "b"}
    mask, is_causal = masks(*sizes, n_heads)[kind]
    upstream = draw(*named["x"].shape, seed=30)
    options = {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "mask": mask, "is_causal": is_causal}
    ours = by_hand(named, upstream, **options)
    assert_equal_gradients(ours, by_autograd(named, upstream, **options))
    assert (ours.head_gate is None) == (gated is None)
    np.testing.assert_allclose(ours.b_k, 0, atol=1e-12)  # it cancels in the softmax
    np.testing.assert_allclose(ours.b_o, upstream.sum((0, 1)), **to_rounding)
    if kind == "nothing":
        assert_only_b_o(ours)


def test_biases_of_a_layer_without_are_those_of_zero_biases():
    named = arrays()
    without = {name: array for name, array in named.items() if name[0] != "b"}
    zero = {name: 0 * array for name, array in named.items() if name[0] == "b"}
    upstream = draw(B, T, D_MODEL, seed=30)
    pairs = zip(by_hand(without, upstream, n_heads=H), by_hand(without | zero, upstream, n_heads=H),
                strict=True)  # fmt: skip
    assert all(np.array_equal(ours, other) for ours, other in pairs)


def test_the_weights_come_back_from_one_number_a_row():
    # exp(logit − ℓ), with ℓ the log-sum-exp; and Σ_s p[s] d_p[s] is d_z · z (Dao et al. 2022, B.2).
    named = arrays(n_keys=S, gated=None)
    mask = draw(T, S, seed=31) > -1
    _, saved = forward.multi_head_attention(**named, n_heads=H, mask=mask)
    scores = forward.attention_scores(saved.q, saved.shared_k)
    powers = np.where(mask, np.exp(forward.scale_scores(scores, D_HEAD)), 0)
    log_sums = np.log(powers.sum(-1, keepdims=True))  # B H T 1
    again = np.where(mask, np.exp(forward.scale_scores(scores, D_HEAD) - log_sums), 0)
    np.testing.assert_allclose(again, saved.weights, **to_rounding)
    d_z = draw(*saved.z.shape, seed=32)
    d_weights, _ = backward.d_weighted_sum(d_z, saved.weights, saved.shared_v)
    average = (d_z * saved.z).sum(-1, keepdims=True)
    expected = backward.d_masked_softmax(d_weights, saved.weights)
    np.testing.assert_allclose(again * (d_weights - average), expected, **to_rounding)


def test_rows_of_d_logits_sum_to_0():
    _, saved = forward.multi_head_attention(**arrays(), n_heads=H, is_causal=True)
    d_weights = draw(*saved.weights.shape, seed=32)
    d_logits = backward.d_masked_softmax(d_weights, saved.weights)
    np.testing.assert_allclose(d_logits.sum(-1), 0, atol=1e-12)
    assert not d_logits[~saved.mask].any() and d_weights[~saved.mask].all()


def test_self_attention_adds_both_ways():
    named = arrays(n_keys=T, d_context=D_MODEL, n_heads=3, n_kv_heads=3, d_head=2)
    named["context"] = named["x"]
    upstream = draw(B, T, D_MODEL, seed=30)
    ours = by_hand(named, upstream, n_heads=3, is_causal=True)

    def layer(x):
        return forward.multi_head_attention(**named | {"x": x, "context": x}, n_heads=3,
                                            is_causal=True)[0]  # fmt: skip

    expected = forward.complex_step(layer, [named["x"]], upstream)[0]
    np.testing.assert_allclose(ours.x + ours.context, expected, **to_rounding)


def test_a_query_without_keys_sends_nothing_back():
    mask = draw(T, S, seed=31) > -1
    mask[1] = False
    ours = by_hand(arrays(), draw(B, T, D_MODEL, seed=30), n_heads=H, mask=mask)
    assert not ours.x[:, 1].any() and ours.x[:, [0, 2]].all()
    mask = mask.copy()
    mask[:, 3] = False  # a key that no query may see
    ours = by_hand(arrays(), draw(B, T, D_MODEL, seed=30), n_heads=H, mask=mask)
    assert not ours.context[:, 3].any() and ours.context[:, [0, 1, 2, 4]].all()


def test_no_keys_at_all():
    ours = by_hand(arrays(n_keys=0), np.ones((B, T, D_MODEL)), n_heads=H)
    assert ours.context.shape == (B, 0, D_CONTEXT) and ours.w_k.shape == (D_CONTEXT, H * D_HEAD)
    assert_only_b_o(ours)


def test_nothing_that_is_handed_over_is_changed_and_dtypes_are_kept():
    named = {n: a.astype(np.float32) for n, a in arrays(gated="H").items()}
    upstream = draw(B, T, D_MODEL, seed=30).astype(np.float32)
    _, saved = forward.multi_head_attention(**named, n_heads=H, is_causal=True)
    given = [*saved, upstream]
    before = [array.copy() for array in given]
    ours = backward.multi_head_attention(upstream, saved)
    assert all(np.array_equal(array, copy) for array, copy in zip(given, before, strict=True))
    assert {slope.dtype for slope in ours} == {np.dtype(np.float32)}


# central differences, and mistakes


def small(gated="B H"):
    """Build a layer in which D = H d, so that a transposed W_O still fits."""
    named = arrays(n_heads=4, n_kv_heads=2, d_head=3, d_model=12, gated=gated)
    mask = draw(B, 1, T, S, seed=32) > -0.5
    mask[0, 0, 1] = False
    return named, {"n_heads": 4, "n_kv_heads": 2, "mask": mask}, draw(B, T, 12, seed=33)


def central_differences(named, options, upstream, name, h):
    """Return the gradient by one input, number by number, from two runs each."""
    moved = named[name].copy()
    arguments, gradient = named | {name: moved}, np.zeros(moved.shape)
    for index in np.ndindex(moved.shape):
        losses = []
        for step in (h, -h):
            moved[index] = named[name][index] + step
            y, _ = forward.multi_head_attention(**arguments, **options)
            losses.append((upstream * y).sum())
        gradient[index] = (losses[0] - losses[1]) / (2 * h)
        moved[index] = named[name][index]
    return gradient


def test_the_layer_is_central_differences():
    named, options, upstream = small()
    ours = by_hand(named, upstream, **options)
    for name in set(named) - {"b_k"}:  # its gradient is 0: there is nothing to be relative to
        slope = getattr(ours, name)
        found = central_differences(named, options, upstream, name, 1e-4)
        assert abs(found - slope).max() < 1e-7 * abs(slope).max(), name
    assert abs(central_differences(named, options, upstream, "b_k", 1e-4)).max() < 1e-10


@pytest.mark.parametrize("name", ["x", "context", "w_q", "w_k", "b_q"])
def test_the_error_of_central_differences_falls_as_the_square_of_the_step(name):
    # The other inputs enter y in a straight line, where central differences have no error.
    named, options, upstream = small()
    slope = getattr(by_hand(named, upstream, **options), name)
    errors = [abs(central_differences(named, options, upstream, name, h) - slope).max()
              for h in (1e-2, 1e-3)]  # fmt: skip
    assert errors[0] / errors[1] == pytest.approx(100, rel=0.02)


BEFORE = {"w_o", "b_o"}  # what comes first on the way back, and so before most mistakes
BEHIND_SOFTMAX = {"x", "context", "w_q", "w_k", "b_q"}
BEHIND_W_O = {*BEHIND_SOFTMAX, "w_v", "b_v"}
ALTERED = {  # name: (formula in backward.py, another in its place, which gradients are off then)
    "W_O not transposed": (
        "d_project(d_y, saved.merged, saved.w_o)", "d_project(d_y, saved.merged, saved.w_o.T)",
        {*BEHIND_W_O, "head_gate"},
    ),
    "no matrix transposed": (
        "return d_y @ w.T,", "return d_y @ w if len(w) == len(w.T) else d_y @ w.T,",
        {*BEHIND_W_O, "head_gate"},
    ),
    "one sequence in d_w": (
        "tokens.T @ d_tokens", "tokens[: len(tokens) // 2].T @ d_tokens[: len(tokens) // 2]",
        {"w_q", "w_k", "w_v", "w_o"},
    ),
    "mean in d_b": ("d_tokens.sum(0)", "d_tokens.mean(0)", {"b_q", "b_v", "b_o"}),
    "merged as (d h)": (
        "forward.split_heads(d_merged, n_heads)",
        "forward.split_heads(d_merged, d_merged.shape[-1] // n_heads).swapaxes(1, 3)",
        {*BEHIND_W_O, "head_gate"},
    ),
    "split as (d h)": (
        "forward.merge_heads(d_heads)", "forward.merge_heads(d_heads.swapaxes(1, 3))",
        {*BEHIND_W_O},
    ),
    "gate forgotten": ("head_gate[..., None, None] * d_gated", "d_gated", BEHIND_W_O),
    "mean in d_gate": ("(d_gated * z).sum(", "(d_gated * z).mean(", {"head_gate"}),
    "mean over sequences in d_gate": ("d_gate.sum(0)", "d_gate.mean(0)", {"head_gate"}),
    "norms of values": ("d_z @ v.swapaxes", "d_z @ abs(v).swapaxes", BEHIND_SOFTMAX),
    "unweighted values": (
        "weights.swapaxes(-2, -1) @ d_z", "(weights > 0).swapaxes(-2, -1) @ d_z",
        {"context", "w_v", "b_v"},
    ),
    "no average": ("weights * (d_weights - average)", "weights * d_weights", BEHIND_SOFTMAX),
    "average of columns": (
        "(weights * d_weights).sum(-1", "(weights * d_weights).sum(-2", BEHIND_SOFTMAX
    ),
    "plain average": (
        "(weights * d_weights).sum(-1", "d_weights.mean(-1", BEHIND_SOFTMAX
    ),
    "swapped Jacobian": (  # −p_i p_k for i = k and p_i (1 − p_k) beside it
        "weights * (d_weights - average)",
        "(weights * d_weights).sum(-1, keepdims=True) - weights * (d_weights + average)",
        BEHIND_SOFTMAX,
    ),
    "no 1/√d": ("d_logits / math.sqrt(width)", "d_logits", BEHIND_SOFTMAX),
    "1/√d twice": ("d_logits / math.sqrt(width)", "d_logits / width", BEHIND_SOFTMAX),
    "signs of keys": ("return d_scores @ k,", "return d_scores @ abs(k),", {"x", "w_q", "b_q"}),
    "centred queries": (
        "d_scores.swapaxes(-2, -1) @ q",
        "d_scores.swapaxes(-2, -1) @ (q - q.mean(-2)[..., None, :])",
        {"context", "w_k"},
    ),
    "mean of a group": ("grouped.sum(2)", "grouped.mean(2)", {"context", "w_k", "w_v", "b_v"}),
    "groups side by side": (
        "grouped = d_shared.reshape(batch, n_kv_heads, n_heads // n_kv_heads, n_keys, width)",
        "grouped = d_shared.reshape(batch, -1, n_kv_heads, n_keys, width).swapaxes(1, 2)",
        {"context", "w_k", "w_v", "b_v"},
    ),
    "keys alone in context": ("through_k + through_v", "through_k", {"context"}),
    "values alone in context": ("through_k + through_v", "through_v", {"context"}),
}  # fmt: skip


@pytest.mark.parametrize("mistake", ALTERED)
def test_an_altered_formula_is_noticed(mistake):
    formula, other, expected = ALTERED[mistake]
    source = inspect.getsource(backward)
    assert source.count(formula) == 1
    altered = types.ModuleType("altered")
    exec(compile(source.replace(formula, other), mistake, "exec"), vars(altered))

    named, options, upstream = small(gated="H" if "over sequences" in mistake else "B H")
    slopes = by_autograd(named, upstream, **options, is_causal=False)
    assert_equal_gradients(by_hand(named, upstream, **options), slopes)
    _, saved = forward.multi_head_attention(**named, **options)
    ours = altered.multi_head_attention(upstream, saved)
    assert all(getattr(ours, name).shape == slope.shape for name, slope in slopes.items())
    off = {n for n, slope in slopes.items() if abs(getattr(ours, n) - slope).max() > 1e-2}
    assert off - {"b_k"} == expected  # b_k: 0 only where the rows of d_logits sum to 0
