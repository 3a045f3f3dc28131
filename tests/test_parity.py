"""One layer, six computations: NumPy loops ≡ NumPy arrays ≡ loop ≡ explicit ≡ fused ≡ torch's.

Forward and gradients, for the inputs and every parameter, in float64 to 1e-12. NumPy has no
autograd: the slope of the loops is measured by central differences, so the gradients too end at an
oracle that can be checked by eye, and that of the arrays by a complex step, which is exact.
"""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from mha import MultiHeadAttention, combine_masks, padding_mask
from mha.backends import BACKENDS
from mha.reference import forward, loops

B, T, S, H, D_HEAD = 2, 3, 5, 7, 11
D_MODEL, D_CONTEXT = 17, 13
exactly = {"atol": 1e-12, "rtol": 1e-12}


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def build(d_model, n_heads, d_head, bias, **options):
    layer = MultiHeadAttention(d_model, n_heads, d_head=d_head, bias=bias, **options).double()
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=100 + seed) / math.sqrt(d_model))
    return layer


def for_numpy(layer, x, context, mask, is_causal, head_gate):
    """Return the layer's numbers as NumPy's arguments: W as [in, out], arrays for tensors."""
    arrays = {"x": x, "context": context, "head_gate": head_gate, "mask": mask}
    for letter, name in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True):
        projection = getattr(layer, name)
        arrays[f"w_{letter}"] = projection.weight.T
        arrays[f"b_{letter}"] = projection.bias
    arrays = {k: None if v is None else v.detach().numpy() for k, v in arrays.items()}
    heads = {"n_heads": layer.n_heads, "n_kv_heads": layer.n_kv_heads}
    return arrays | heads | {"is_causal": is_causal}


def by_loops(*case):
    """Return y and weights of the oracle."""
    return loops.multi_head_attention(**for_numpy(*case))


def by_arrays(*case):
    """Return y and weights of the NumPy layer in arrays."""
    y, saved = forward.multi_head_attention(**for_numpy(*case))
    return y, saved.weights


def by_torch(layer, x, context, mask, is_causal, head_gate):
    """Write the layer down once more, around torch's own attention and an additive mask."""
    batch, n_queries, _ = x.shape
    n_keys, n_heads, d = context.shape[1], layer.n_heads, layer.d_head
    own = range(n_heads)
    group = [h * layer.n_kv_heads // n_heads for h in own]

    def project(projection, tokens, heads):
        out = torch.einsum("bti,oi->bto", tokens, projection.weight)
        if projection.bias is not None:
            out = out + projection.bias
        return torch.stack([out[..., h * d : (h + 1) * d] for h in heads], dim=1)

    q = project(layer.q_proj, x, own)
    k = project(layer.k_proj, context, group)
    v = project(layer.v_proj, context, group)
    allowed = np.ones((batch, n_heads, n_queries, n_keys), dtype=bool)
    if mask is not None:
        allowed &= mask.numpy()
    if is_causal:
        positions = np.arange(n_queries)[:, None] + n_keys - n_queries
        allowed &= np.arange(n_keys) <= positions
    empty = torch.from_numpy(~allowed.any(-1, keepdims=True))
    bias = torch.from_numpy(np.where(allowed | ~allowed.any(-1, keepdims=True), 0.0, -np.inf))
    z = F.scaled_dot_product_attention(q, k, v, bias).masked_fill(empty, 0)
    y = torch.zeros_like(x) if layer.out_proj.bias is None else layer.out_proj.bias
    for h in range(n_heads):
        gate = 1.0 if head_gate is None else head_gate[..., h].reshape(-1, 1, 1)
        y = y + gate * z[:, h] @ layer.out_proj.weight[:, h * d : (h + 1) * d].T
    return y


def gradients(y, upstream, tensors):
    return torch.autograd.grad(y, tensors, upstream)


def visible(n_queries, n_keys, kind, n_heads=H):
    """Return mask and is_causal for one kind of masking."""
    if kind == "none":
        return None, False
    if kind == "causal":
        return None, True
    rank_2 = draw(n_queries, n_keys, seed=50) > -0.4
    rank_2[:, 0] = True
    padding = padding_mask([n_keys - 1, n_keys], n_keys)
    per_head = draw(B, n_heads, n_queries, n_keys, seed=51) > -0.8
    per_head[..., 0] = True
    some_rows_empty = draw(B, n_heads, n_queries, n_keys, seed=52) > 0
    some_rows_empty[:, :, 1] = False
    some_rows_empty[1, 3] = False
    return {
        "rank 2": (rank_2, False),
        "padding": (padding, False),
        "per head": (per_head, False),
        "one head's": (per_head[:1, 3:4], False),
        "per head only": (per_head[:1, :, :1], False),
        "combined": (combine_masks(rank_2, padding, per_head), False),
        "causal and padding": (padding, True),
        "causal and rank 2": (rank_2, True),
        "rows without keys": (some_rows_empty, False),
        "causal, rows without keys": (some_rows_empty, True),
        "nothing": (torch.zeros(n_queries, n_keys, dtype=torch.bool), False),
    }[kind]


KINDS = [
    "none", "rank 2", "causal", "padding", "per head", "one head's", "per head only", "combined",
    "causal and padding", "causal and rank 2", "rows without keys", "causal, rows without keys",
    "nothing",
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", ["self", (T, S), (S, T)], ids=str)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gated", [None, "H", "B H"])
def test_six_computations_agree(kind, sizes, bias, gated):
    check_six_computations(build(D_MODEL, H, D_HEAD, bias), kind, sizes, gated)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", ["self", (T, S), (S, T)], ids=str)
@pytest.mark.parametrize(("heads", "gated"), [((6, 2), "H"), ((H, 1), "B H")], ids=str)
def test_six_computations_agree_on_shared_heads_and_other_widths(kind, sizes, heads, gated):
    options = {} if sizes == "self" else {"d_context": D_CONTEXT}
    layer = build(D_MODEL, heads[0], D_HEAD, bias=True, n_kv_heads=heads[1], **options)
    check_six_computations(layer, kind, sizes, gated)


def check_six_computations(layer, kind, sizes, gated):
    n_queries, n_keys = (S, S) if sizes == "self" else sizes
    n_heads = layer.n_heads
    x = draw(B, n_queries, D_MODEL, seed=1).requires_grad_()
    context = x if sizes == "self" else draw(B, n_keys, layer.d_context, seed=2).requires_grad_()
    gate = None if gated is None else draw(*{"H": (), "B H": (B,)}[gated], n_heads, seed=3)
    mask, is_causal = visible(n_queries, n_keys, kind, n_heads)
    arguments = {"mask": mask, "is_causal": is_causal, "head_gate": gate}

    inputs = [x] if sizes == "self" else [x, context]
    if gate is not None:
        inputs.append(gate.requires_grad_())
    tensors = [*inputs, *layer.parameters()]
    upstream = draw(B, n_queries, D_MODEL, seed=4)
    expected_y, expected_weights = by_loops(layer, x, context, *arguments.values())
    arrays_y, arrays_weights = by_arrays(layer, x, context, *arguments.values())
    assert_close(arrays_y, expected_y, **exactly)
    assert_close(arrays_weights, expected_weights, **exactly)
    peer = by_torch(layer, x, context, **arguments)
    assert_close(peer.detach().numpy(), expected_y, **exactly)
    expected_gradients = gradients(peer, upstream, tensors)

    for backend in BACKENDS:
        layer.backend = backend
        other = None if sizes == "self" else context
        y, weights = layer(x, other, return_weights=True, **arguments)
        assert_close(y.detach().numpy(), expected_y, **exactly)
        assert_close(weights.detach().numpy(), expected_weights, **exactly)
        alone = layer(x, other, **arguments)
        assert_close(alone.detach().numpy(), expected_y, **exactly)
        for result in (y, alone):
            for grad, expected in zip(
                gradients(result, upstream, tensors), expected_gradients, strict=True
            ):
                assert_close(grad, expected, **exactly)


@pytest.mark.parametrize("kind", ["none", "causal", "per head", "rows without keys"])
def test_gradients_through_the_returned_weights_agree(kind):
    layer = build(D_MODEL, H, D_HEAD, bias=True)
    x = draw(B, T, D_MODEL, seed=1).requires_grad_()
    context = draw(B, S, D_MODEL, seed=2).requires_grad_()
    mask, is_causal = visible(T, S, kind)
    tensors = [x, context, *(p for n, p in layer.named_parameters() if n[0] in "qk")]
    upstream = draw(B, H, T, S, seed=5)
    results = []
    for backend in BACKENDS:
        layer.backend = backend
        _, weights = layer(x, context, mask=mask, is_causal=is_causal, return_weights=True)
        results.append(gradients(weights, upstream, tensors))
    for other in results[1:]:
        for grad, expected in zip(other, results[0], strict=True):
            assert_close(grad, expected, **exactly)
    assert results[0][0].abs().max() > 0.01


# gradients of NumPy


def small_case():
    """Build a layer small enough to move each of its numbers, with every option in use."""
    layer = build(3, 4, 2, bias=True, n_kv_heads=2, d_context=2)
    x = draw(2, 3, 3, seed=1).requires_grad_()
    context = draw(2, 5, 2, seed=2).requires_grad_()
    gate = draw(2, 4, seed=3).requires_grad_()
    mask = draw(2, 4, 3, 5, seed=6) > -0.3
    mask[0, :, 1] = False
    return layer, x, context, gate, mask


def central_differences(f, tensor, h):
    """Return ∂f/∂tensor, entry by entry: (f(t + h) − f(t − h)) / 2h."""
    slope = torch.zeros_like(tensor)
    flat = tensor.detach().view(-1)  # the same memory
    for i in range(flat.numel()):
        kept = flat[i].item()
        flat[i] = kept + h
        above = f()
        flat[i] = kept - h
        below = f()
        flat[i] = kept
        slope.view(-1)[i] = (above - below) / (2 * h)
    return slope


def measure(h):
    """Return the central differences of the loops, and autograd's answer for each backend."""
    layer, x, context, gate, mask = small_case()
    upstream = draw(*x.shape, seed=7)

    def loss_of_loops():
        y, _ = by_loops(layer, x, context, mask, True, gate)
        return (y * upstream.numpy()).sum()

    tensors = [x, context, gate, *layer.parameters()]
    measured = [central_differences(loss_of_loops, tensor, h) for tensor in tensors]
    exact = {}
    for backend in BACKENDS:
        layer.backend = backend
        y = layer(x, context, mask=mask, is_causal=True, head_gate=gate)
        exact[backend] = gradients(y, upstream, tensors)
    return measured, exact


def relative_error(measured, exact):
    return max(
        ((m - e).norm() / max(e.norm().item(), 1.0)).item()
        for m, e in zip(measured, exact, strict=True)
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_are_the_slope_of_the_loops(backend):
    measured, exact = measure(h=1e-4)
    assert relative_error(measured, exact[backend]) < 1e-7
    # None of these slopes is flat, but for b_K: it cancels in the softmax.
    b_k = 3 + [name for name, _ in small_case()[0].named_parameters()].index("k_proj.bias")
    assert [grad.norm().item() < 1e-12 for grad in exact[backend]] == [
        i == b_k for i in range(len(exact[backend]))
    ]


@pytest.mark.parametrize("backend", BACKENDS)
def test_gradients_are_the_complex_step_of_the_arrays(backend):
    layer, x, context, gate, mask = small_case()
    layer.backend = backend
    upstream = draw(*x.shape, seed=7)
    y = layer(x, context, mask=mask, is_causal=True, head_gate=gate)
    arguments = for_numpy(layer, x, context, mask, True, gate)
    named = {"x": x, "context": context, "head_gate": gate}
    for letter, name in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True):
        named[f"w_{letter}"] = getattr(layer, name).weight
        named[f"b_{letter}"] = getattr(layer, name).bias
    measured = forward.complex_step(
        lambda *moved: forward.multi_head_attention(
            **arguments | dict(zip(named, moved, strict=True))
        )[0],
        [arguments[name] for name in named],
        upstream.numpy(),
    )
    exact = gradients(y, upstream, list(named.values()))
    for name, slope, gradient in zip(named, measured, exact, strict=True):
        slope = slope.T if name[0] == "w" else slope  # [in, out] → [out, in]
        np.testing.assert_allclose(slope, gradient, **exactly, err_msg=name)


def test_the_error_of_the_slope_falls_as_h_squared():
    coarse, exact = measure(h=1e-1)
    fine, _ = measure(h=1e-2)
    ratio = relative_error(coarse, exact["explicit"]) / relative_error(fine, exact["explicit"])
    assert 80 < ratio < 120  # a step 10 times smaller, an error 100 times smaller


# any sizes


@settings(deadline=None, derandomize=True, database=None, max_examples=60)
@given(
    batch=st.integers(1, 3),
    n_queries=st.integers(1, 4),
    n_keys=st.integers(1, 4),
    n_kv_heads=st.integers(1, 3),
    n_sharing=st.integers(1, 2),
    d_head=st.integers(1, 3),
    d_model=st.integers(1, 4),
    d_context=st.integers(1, 4),
    bias=st.booleans(),
    is_causal=st.booleans(),
    density=st.sampled_from([None, -1.0, 0.0, 1.0]),
    seed=st.integers(0, 1000),
)
def test_any_small_layer_agrees_with_the_loops(
    batch, n_queries, n_keys, n_kv_heads, n_sharing, d_head, d_model, d_context, bias, is_causal,
    density, seed,
):  # fmt: skip
    n_heads = n_kv_heads * n_sharing
    layer = build(d_model, n_heads, d_head, bias, n_kv_heads=n_kv_heads, d_context=d_context)
    x, context = draw(batch, n_queries, d_model, seed=seed), draw(batch, n_keys, d_context, seed=9)
    gate = draw(batch, n_heads, seed=seed + 1)
    mask = None
    if density is not None:
        mask = draw(batch, n_heads, n_queries, n_keys, seed=seed + 2) > density
    expected_y, expected_weights = by_loops(layer, x, context, mask, is_causal, gate)
    arrays_y, arrays_weights = by_arrays(layer, x, context, mask, is_causal, gate)
    assert_close(arrays_y, expected_y, **exactly)
    assert_close(arrays_weights, expected_weights, **exactly)
    for backend in BACKENDS:
        layer.backend = backend
        y, weights = layer(
            x, context, mask=mask, is_causal=is_causal, head_gate=gate, return_weights=True
        )
        assert_close(y.detach().numpy(), expected_y, **exactly)
        assert_close(weights.detach().numpy(), expected_weights, **exactly)
