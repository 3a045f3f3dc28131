"""mha.reference.forward: stages by hand, the layer against the loops, gradients by complex step.

The slope of the NumPy layer needs no autograd: it and the torch layer's gradients are two witnesses
that share nothing.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy_layers import D_HEAD, D_MODEL, B, H, S, T, arrays, draw, masks
from torch.testing import assert_close

import mha
from mha import MultiHeadAttention
from mha.reference import forward, loops

exactly = {"atol": 1e-12, "rtol": 0}
to_rounding = {"atol": 1e-12, "rtol": 1e-12}


# stages


def test_project_by_hand():
    x = np.array([[[1.0, 2.0], [3.0, -1.0]]])
    w = np.array([[1.0, 0.0, 2.0], [0.0, 10.0, 5.0]])  # [in, out]
    assert forward.project(x, w).tolist() == [[[1.0, 20.0, 12.0], [3.0, -10.0, 1.0]]]
    b = np.array([0.5, 0.0, -1.0])
    assert forward.project(x, w, b).tolist() == [[[1.5, 20.0, 11.0], [3.5, -10.0, 0.0]]]


def test_split_and_merge_by_hand():
    x = np.arange(12).reshape(1, 3, 4)  # three tokens, two heads of width 2
    split = [[[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]]
    assert forward.split_heads(x, 2).tolist() == split
    assert forward.merge_heads(np.array(split)).tolist() == x.tolist()


def test_share_heads_by_hand():
    k = np.array([[[[1.0, 2.0]], [[3.0, 4.0]]]])  # two key heads, one key
    shared = forward.share_heads(k, 6)
    assert shared[0, :, 0].tolist() == [[1.0, 2.0]] * 3 + [[3.0, 4.0]] * 3
    assert forward.share_heads(k, 2).tolist() == k.tolist()
    assert forward.share_heads(k[:, 1:], 3)[0, :, 0].tolist() == [[3.0, 4.0]] * 3


def test_scores_and_logits_by_hand():
    q, k = np.array([[1.0, 0.0], [2.0, 1.0]]), np.array([[1.0, 1.0], [0.0, 3.0], [2.0, 0.0]])
    scores = forward.attention_scores(q, k)
    assert scores.tolist() == [[1.0, 0.0, 2.0], [3.0, 3.0, 4.0]]
    assert forward.scale_scores(scores, d_head=16).tolist() == [[0.25, 0, 0.5], [0.75, 0.75, 1]]


def test_visible_keys_by_hand():
    assert forward.visible_keys((1, 1, 2, 3)).tolist() == [[[[True] * 3] * 2]]
    causal = forward.visible_keys((2, 3), is_causal=True)  # the last query sees the last key
    assert causal.astype(int).tolist() == [[1, 1, 0], [1, 1, 1]]
    causal = forward.visible_keys((3, 2), is_causal=True)
    assert causal.astype(int).tolist() == [[0, 0], [1, 0], [1, 1]]
    padding = np.array([[[[True, False]]], [[[True, True]]]])  # B 1 1 S
    both = forward.visible_keys((2, 1, 2, 2), padding, is_causal=True)
    assert both[:, 0].astype(int).tolist() == [[[1, 0], [1, 0]], [[1, 0], [1, 1]]]


def test_masked_softmax_by_hand():
    logits = np.log([[1.0, 2.0, 5.0], [3.0, 1.0, 7.0], [1.0, 1.0, 1.0]])
    weights = forward.masked_softmax(logits)
    np.testing.assert_allclose(weights[0], [1 / 8, 2 / 8, 5 / 8], atol=1e-15)
    mask = np.array([[True, True, True], [True, True, False], [False, False, False]])
    weights = forward.masked_softmax(logits, mask)
    np.testing.assert_allclose(weights, [[1 / 8, 2 / 8, 5 / 8], [3 / 4, 1 / 4, 0], [0, 0, 0]],
                               atol=1e-15)  # fmt: skip
    assert weights[1, 2] == 0 and weights[2].tolist() == [0, 0, 0]


@pytest.mark.parametrize("hidden", [1e4, math.inf, -math.inf, math.nan])
def test_a_hidden_logit_may_be_anything(hidden):
    # Warnings are errors here, so this also shows that exp does not overflow.
    logits = np.array([[1e4, 1e4, hidden], [hidden, hidden, hidden]])
    mask = np.array([[True, True, False], [False, False, False]])
    assert forward.masked_softmax(logits, mask).tolist() == [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    weights = forward.masked_softmax(np.array([[-1e4, -1e4]]))
    assert weights.tolist() == [[0.5, 0.5]]
    far_below = np.array([[-1e4, -1e4, hidden]])  # the largest is that of what may be seen
    assert forward.masked_softmax(far_below, mask[:1]).tolist() == [[0.5, 0.5, 0.0]]


def test_masked_softmax_finds_the_maximum_by_the_real_part():
    # By value, complex numbers are compared real part first; by size, −800 would be the largest.
    logits = np.array([[-800.0, 0.0, math.log(3)]]) + 1e-30j
    weights = forward.masked_softmax(logits)
    np.testing.assert_allclose(weights.real, [[0, 0.25, 0.75]], atol=1e-15)


def test_weighted_sum_and_gate_by_hand():
    weights, v = np.array([[0.25, 0.75], [1.0, 0.0]]), np.array([[4.0, 0.0], [8.0, -4.0]])
    assert forward.weighted_sum(weights, v).tolist() == [[7.0, -3.0], [4.0, 0.0]]
    z = np.ones((2, 2, 1, 1))  # B H T d
    assert forward.gate_heads(z, None) is z
    assert forward.gate_heads(z, np.array([2.0, 3.0])).tolist() == [[[[2.0]], [[3.0]]]] * 2
    per_sequence = np.array([[2.0, 3.0], [5.0, 7.0]])
    assert forward.gate_heads(z, per_sequence)[..., 0, 0].tolist() == per_sequence.tolist()


def test_stages_are_those_of_the_package():
    x, logits = draw(B, T, 12, seed=1), draw(B, H, T, S, seed=2)
    q, k = draw(B, H, T, D_HEAD, seed=3), draw(B, H, S, D_HEAD, seed=4)
    mask = draw(B, 1, T, S, seed=5) > 0
    mask[0, 0, 1] = False
    pairs = [
        (forward.split_heads(x, 4), mha.split_heads(torch.tensor(x), 4)),
        (forward.merge_heads(q), mha.merge_heads(torch.tensor(q))),
        (forward.share_heads(q[:, :2], 6), mha.share_heads(torch.tensor(q[:, :2]), 6)),
        (forward.attention_scores(q, k), mha.attention_scores(torch.tensor(q), torch.tensor(k))),
        (forward.visible_keys((T, S), is_causal=True), mha.causal_mask(T, S)),
        (forward.masked_softmax(logits, mask),
         mha.masked_softmax(torch.tensor(logits), torch.tensor(mask))),
    ]  # fmt: skip
    for ours, other in pairs:
        assert_close(torch.tensor(ours), other, **exactly)


def test_one_head_is_the_loops():
    q, k, v = draw(T, D_HEAD, seed=1), draw(S, D_HEAD, seed=2), draw(S, 2, seed=3)
    mask = draw(T, S, seed=4) > 0
    mask[1] = False
    logits = forward.scale_scores(forward.attention_scores(q, k), D_HEAD)
    weights = forward.masked_softmax(logits, mask)
    z, expected = loops.attend(q, k, v, mask)
    np.testing.assert_allclose(weights, expected, **exactly)
    np.testing.assert_allclose(forward.weighted_sum(weights, v), z, **exactly)


# the layer


@pytest.mark.parametrize("kind", masks(2, 2, 3))
@pytest.mark.parametrize("sizes", [(T, S), (S, T)], ids=str)
@pytest.mark.parametrize(("heads", "gated"), [((H, H), "B H"), ((6, 2), "H"), ((H, 1), None)])
@pytest.mark.parametrize("bias", [False, True])
def test_the_layer_is_the_loops(kind, sizes, heads, gated, bias):
    n_heads, n_kv_heads = heads
    named = arrays(n_queries=sizes[0], n_keys=sizes[1], n_heads=n_heads, n_kv_heads=n_kv_heads,
                   bias=bias)  # fmt: skip
    mask, is_causal = masks(*sizes, n_heads)[kind]
    gate = {"B H": draw(B, n_heads, seed=30), "H": draw(n_heads, seed=31), None: None}[gated]
    options = {"mask": mask, "is_causal": is_causal, "head_gate": gate, "n_heads": n_heads}
    options["n_kv_heads"] = None if n_kv_heads == n_heads else n_kv_heads
    y, saved = forward.multi_head_attention(**named, **options)
    expected_y, expected_weights = loops.multi_head_attention(**named, **options)
    np.testing.assert_allclose(y, expected_y, **exactly)
    np.testing.assert_allclose(saved.weights, expected_weights, **exactly)


def test_what_is_saved_is_what_the_stages_gave():
    named = arrays(n_heads=6, n_kv_heads=2)
    gate, (mask, _) = draw(B, 6, seed=30), masks(T, S, 6)["B H T S, rows without keys"]
    y, saved = forward.multi_head_attention(
        **named, n_heads=6, n_kv_heads=2, mask=mask, is_causal=True, head_gate=gate
    )
    for name in ("x", "context", "w_q", "w_k", "w_v", "w_o"):
        assert getattr(saved, name) is named[name]
    assert saved.head_gate is gate
    shapes = {
        "q": (B, 6, T, D_HEAD), "k": (B, 2, S, D_HEAD), "v": (B, 2, S, D_HEAD),
        "shared_k": (B, 6, S, D_HEAD), "shared_v": (B, 6, S, D_HEAD), "mask": (B, 6, T, S),
        "weights": (B, 6, T, S), "z": (B, 6, T, D_HEAD), "gated": (B, 6, T, D_HEAD),
        "merged": (B, T, 6 * D_HEAD),
    }  # fmt: skip
    assert {name: getattr(saved, name).shape for name in shapes} == shapes
    # Each field, from the one before it, by loops over the heads.
    assert saved.mask.tolist() == (mask & np.tri(T, S, S - T, dtype=bool)).tolist()
    for b in range(B):
        for h in range(6):
            own, group = slice(h * D_HEAD, (h + 1) * D_HEAD), h // 3
            shared = slice(group * D_HEAD, (group + 1) * D_HEAD)
            q = (named["x"][b] @ named["w_q"] + named["b_q"])[:, own]
            k = (named["context"][b] @ named["w_k"] + named["b_k"])[:, shared]
            v = (named["context"][b] @ named["w_v"] + named["b_v"])[:, shared]
            z, weights = loops.attend(q, k, v, saved.mask[b, h])
            np.testing.assert_allclose(saved.q[b, h], q, **exactly)
            for field, expected in (("k", k), ("v", v)):
                np.testing.assert_allclose(getattr(saved, field)[b, group], expected, **exactly)
                np.testing.assert_allclose(getattr(saved, f"shared_{field}")[b, h], expected,
                                           **exactly)  # fmt: skip
            np.testing.assert_allclose(saved.weights[b, h], weights, **exactly)
            np.testing.assert_allclose(saved.z[b, h], z, **exactly)
            np.testing.assert_allclose(saved.gated[b, h], gate[b, h] * z, **exactly)
            np.testing.assert_allclose(saved.merged[b][:, own], gate[b, h] * z, **exactly)
    np.testing.assert_allclose(saved.merged @ named["w_o"] + named["b_o"], y, **exactly)


def test_nothing_that_is_handed_over_is_changed():
    named, gate = arrays(), draw(H, seed=30)
    mask = masks(T, S, H)["B H T S, rows without keys"][0]
    given = [*named.values(), gate, mask]
    before = [array.copy() for array in given]
    forward.multi_head_attention(**named, n_heads=H, mask=mask, is_causal=True, head_gate=gate)
    for array, copy in zip(given, before, strict=True):
        assert np.array_equal(array, copy)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
def test_every_number_keeps_its_dtype(dtype):
    named = {name: array.astype(dtype) for name, array in arrays().items()}
    mask = masks(T, S, H)["B H T S, rows without keys"][0]
    gate = draw(H, seed=30).astype(dtype)
    y, saved = forward.multi_head_attention(**named, n_heads=H, mask=mask, head_gate=gate)
    assert y.dtype == dtype
    assert {field.dtype for field in saved if field.dtype != bool} == {np.dtype(dtype)}


def test_x_alone_complex_is_enough():
    named = arrays()
    y, _ = forward.multi_head_attention(**named | {"x": named["x"] + 0j}, n_heads=H)
    expected, _ = forward.multi_head_attention(**named, n_heads=H)
    assert y.dtype == complex and not y.imag.any()
    np.testing.assert_allclose(y.real, expected, **exactly)


# invariants


def test_rows_sum_to_one_or_zero_and_a_query_without_keys_gives_the_bias():
    named = arrays()
    mask = masks(T, S, H)["B H T S, rows without keys"][0]
    y, saved = forward.multi_head_attention(**named, n_heads=H, mask=mask)
    np.testing.assert_allclose(saved.weights.sum(-1), mask.any(-1), **exactly)
    assert (saved.weights[~mask] == 0).all()
    assert np.array_equal(y[:, 1], [named["b_o"]] * B)


def test_a_later_token_changes_nothing_before_it():
    named = arrays(n_queries=S, d_context=D_MODEL) | {"context": None}
    x = named["x"]
    changed = x.copy()
    changed[:, 3:] += 5
    before, after = (
        forward.multi_head_attention(**named | {"x": t, "context": t}, n_heads=H, is_causal=True)[0]
        for t in (x, changed)
    )
    np.testing.assert_allclose(after[:, :3], before[:, :3], **exactly)
    assert (abs(after[:, 3:] - before[:, 3:]) > 1e-3).any(-1).all()


def test_groups_may_change_places_with_their_query_heads_and_blocks_of_w_o():
    named = arrays(n_heads=6, n_kv_heads=2)
    heads = [3, 4, 5, 0, 1, 2]  # group 1 first
    columns = np.concatenate([np.arange(h * D_HEAD, (h + 1) * D_HEAD) for h in heads])
    swapped = np.concatenate([np.arange(D_HEAD, 2 * D_HEAD), np.arange(D_HEAD)])
    other = dict(named)
    for letter, index in (("q", columns), ("k", swapped), ("v", swapped)):
        other[f"w_{letter}"] = named[f"w_{letter}"][:, index]
        other[f"b_{letter}"] = named[f"b_{letter}"][index]
    other["w_o"] = named["w_o"][columns]
    y, _ = forward.multi_head_attention(**named, n_heads=6, n_kv_heads=2)
    moved, _ = forward.multi_head_attention(**other, n_heads=6, n_kv_heads=2)
    np.testing.assert_allclose(moved, y, **exactly)


@settings(deadline=None, derandomize=True, database=None, max_examples=60)
@given(
    batch=st.integers(1, 3),
    n_queries=st.integers(1, 4),
    n_keys=st.integers(0, 4),
    n_kv_heads=st.integers(1, 3),
    n_sharing=st.integers(1, 3),
    widths=st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3)),
    is_causal=st.booleans(),
    density=st.sampled_from([None, -1.0, 0.0, 1.0]),
    seed=st.integers(0, 1000),
)
def test_any_small_layer_is_the_loops(
    batch, n_queries, n_keys, n_kv_heads, n_sharing, widths, is_causal, density, seed
):
    (d_model, d_context, d_head), n_heads = widths, n_kv_heads * n_sharing
    x, context = draw(batch, n_queries, d_model, seed=seed), draw(batch, n_keys, d_context, seed=9)
    w_q, w_o = draw(d_model, n_heads * d_head, seed=10), draw(n_heads * d_head, d_model, seed=11)
    w_k, w_v = (draw(d_context, n_kv_heads * d_head, seed=s) for s in (12, 13))
    mask = None if density is None else draw(batch, n_heads, n_queries, n_keys, seed=14) > density
    options = {"n_heads": n_heads, "n_kv_heads": n_kv_heads, "mask": mask, "is_causal": is_causal}
    options["head_gate"] = draw(batch, n_heads, seed=15)
    y, saved = forward.multi_head_attention(x, context, w_q, w_k, w_v, w_o, **options)
    expected = loops.multi_head_attention(x, context, w_q, w_k, w_v, w_o, **options)
    np.testing.assert_allclose(y, expected[0], **to_rounding)
    np.testing.assert_allclose(saved.weights, expected[1], **exactly)


# gradients


def test_complex_step_by_hand():
    # f = 3a²b − b has the slopes 6ab and 3a² − 1, each pulled by its own upstream number.
    a, b, upstream = np.array([2.0, -1.0]), np.array([5.0, 0.5]), np.array([1.0, 10.0])
    slopes = forward.complex_step(lambda a, b: 3 * a**2 * b - b, [a, b], upstream)
    np.testing.assert_allclose(slopes, [[60.0, -30.0], [11.0, 20.0]], rtol=1e-14)
    assert a.tolist() == [2.0, -1.0]  # moved in a copy
    # Where central differences lose half of the digits, nothing is lost: e^x at 1.
    slope = forward.complex_step(np.exp, [np.ones(1)], 1.0)[0]
    assert abs(slope.item() - math.e) < 1e-15


@pytest.mark.parametrize("kind", ["none", "causal and window", "B H T S, rows without keys",
                                  "causal, rows without keys", "nothing"])  # fmt: skip
@pytest.mark.parametrize(("heads", "bias", "gated"), [((H, H), True, "B H"), ((6, 2), True, "H"),
                                                      ((6, 1), False, None)])  # fmt: skip
def test_the_complex_step_is_autograds_gradient(kind, heads, bias, gated):
    (n_heads, n_kv_heads), d_head, d_model, d_context = heads, 2, 5, 3
    layer = MultiHeadAttention(
        d_model, n_heads, n_kv_heads=n_kv_heads, d_head=d_head, d_context=d_context, bias=bias
    ).double()
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(torch.tensor(draw(*parameter.shape, seed=seed)))
    named = {"x": torch.tensor(draw(B, T, d_model, seed=20), requires_grad=True)}
    named["context"] = torch.tensor(draw(B, S, d_context, seed=21), requires_grad=True)
    for letter, name in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True):
        projection = getattr(layer, name)
        named[f"w_{letter}"] = projection.weight
        if bias:
            named[f"b_{letter}"] = projection.bias
    if gated:
        shape = (n_heads,) if gated == "H" else (B, n_heads)
        named["head_gate"] = torch.tensor(draw(*shape, seed=22), requires_grad=True)
    mask, is_causal = masks(T, S, n_heads)[kind]
    upstream = draw(B, T, d_model, seed=23)

    y = layer(
        named["x"], named["context"], head_gate=named.get("head_gate"), is_causal=is_causal,
        mask=None if mask is None else torch.tensor(mask),
    )  # fmt: skip
    expected = torch.autograd.grad(y, list(named.values()), torch.tensor(upstream))

    def in_numpy(*moved):
        arrays = dict(zip(named, moved, strict=True))
        arrays |= {name: w.T for name, w in arrays.items() if name[0] == "w"}  # [in, out]
        return forward.multi_head_attention(
            **arrays, n_heads=n_heads, n_kv_heads=n_kv_heads, mask=mask, is_causal=is_causal
        )[0]

    values = [tensor.detach().numpy() for tensor in named.values()]
    slopes = forward.complex_step(in_numpy, values, upstream)
    for name, slope, gradient in zip(named, slopes, expected, strict=True):
        np.testing.assert_allclose(slope, gradient, **to_rounding, err_msg=name)
        flat = name == "b_k" or (kind == "nothing" and name != "b_o")  # b_K cancels in the softmax
        assert (abs(slope).max() < 1e-12) == flat, name
