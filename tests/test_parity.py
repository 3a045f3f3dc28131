"""One layer, five computations: loops in NumPy ≡ loop ≡ explicit ≡ fused ≡ torch's attention.

Forward and gradients, for the inputs and every parameter, in float64 to 1e-12. The loops have no
autograd: their derivative is measured by central differences, so the gradients too end at an
oracle that can be checked by eye.
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
from mha.reference import loops

B, T, S, H, D_HEAD = 2, 3, 5, 7, 11
D_MODEL = 17
exactly = {"atol": 1e-12, "rtol": 1e-12}


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def build(d_model, n_heads, d_head, bias):
    layer = MultiHeadAttention(d_model, n_heads, d_head=d_head, bias=bias).double()
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=100 + seed) / math.sqrt(d_model))
    return layer


def by_loops(layer, x, context, mask, is_causal, head_gate):
    """Hand the layer's numbers to the oracle: W as [in, out], arrays in place of tensors."""
    arrays = {"head_gate": head_gate, "mask": mask}
    for letter, name in zip("qkvo", ("q_proj", "k_proj", "v_proj", "out_proj"), strict=True):
        projection = getattr(layer, name)
        arrays[f"w_{letter}"] = projection.weight.T
        arrays[f"b_{letter}"] = projection.bias
    arrays = {k: None if v is None else v.detach().numpy() for k, v in arrays.items()}
    x, context = x.detach().numpy(), context.detach().numpy()
    return loops.multi_head_attention(
        x, context, **arrays, n_heads=layer.n_heads, is_causal=is_causal
    )


def by_torch(layer, x, context, mask, is_causal, head_gate):
    """Write the layer down once more, around torch's own attention and an additive mask."""
    batch, n_queries, _ = x.shape
    n_keys, n_heads, d = context.shape[1], layer.n_heads, layer.d_head

    def project(projection, tokens, n_tokens):
        out = torch.einsum("bti,oi->bto", tokens, projection.weight)
        if projection.bias is not None:
            out = out + projection.bias
        return torch.stack([out[..., h * d : (h + 1) * d] for h in range(n_heads)], dim=1)

    q = project(layer.q_proj, x, n_queries)
    k = project(layer.k_proj, context, n_keys)
    v = project(layer.v_proj, context, n_keys)
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


def visible(n_queries, n_keys, kind):
    """Return mask and is_causal for one kind of masking."""
    if kind == "none":
        return None, False
    if kind == "causal":
        return None, True
    rank_2 = draw(n_queries, n_keys, seed=50) > -0.4
    rank_2[:, 0] = True
    padding = padding_mask([n_keys - 1, n_keys], n_keys)
    per_head = draw(B, H, n_queries, n_keys, seed=51) > -0.8
    per_head[..., 0] = True
    some_rows_empty = draw(B, H, n_queries, n_keys, seed=52) > 0
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
def test_five_computations_agree(kind, sizes, bias, gated):
    n_queries, n_keys = (S, S) if sizes == "self" else sizes
    layer = build(D_MODEL, H, D_HEAD, bias)
    x = draw(B, n_queries, D_MODEL, seed=1).requires_grad_()
    context = x if sizes == "self" else draw(B, n_keys, D_MODEL, seed=2).requires_grad_()
    gate = None if gated is None else draw(*{"H": (H,), "B H": (B, H)}[gated], seed=3)
    mask, is_causal = visible(n_queries, n_keys, kind)
    arguments = {"mask": mask, "is_causal": is_causal, "head_gate": gate}

    inputs = [x] if sizes == "self" else [x, context]
    if gate is not None:
        inputs.append(gate.requires_grad_())
    tensors = [*inputs, *layer.parameters()]
    upstream = draw(B, n_queries, D_MODEL, seed=4)
    expected_y, expected_weights = by_loops(layer, x, context, **arguments)
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


# gradients of the loops


def small_case():
    """Build a layer small enough to move each of its numbers, with every option in use."""
    layer = build(3, 2, 2, bias=True)
    x = draw(2, 3, 3, seed=1).requires_grad_()
    context = draw(2, 5, 3, seed=2).requires_grad_()
    gate = draw(2, 2, seed=3).requires_grad_()
    mask = draw(2, 2, 3, 5, seed=6) > -0.3
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
    n_heads=st.integers(1, 3),
    d_head=st.integers(1, 3),
    d_model=st.integers(1, 4),
    bias=st.booleans(),
    is_causal=st.booleans(),
    density=st.sampled_from([None, -1.0, 0.0, 1.0]),
    seed=st.integers(0, 1000),
)
def test_any_small_layer_agrees_with_the_loops(
    batch, n_queries, n_keys, n_heads, d_head, d_model, bias, is_causal, density, seed
):
    layer = build(d_model, n_heads, d_head, bias)
    x, context = draw(batch, n_queries, d_model, seed=seed), draw(batch, n_keys, d_model, seed=9)
    gate = draw(batch, n_heads, seed=seed + 1)
    mask = None
    if density is not None:
        mask = draw(batch, n_heads, n_queries, n_keys, seed=seed + 2) > density
    expected_y, expected_weights = by_loops(layer, x, context, mask, is_causal, gate)
    for backend in BACKENDS:
        layer.backend = backend
        y, weights = layer(
            x, context, mask=mask, is_causal=is_causal, head_gate=gate, return_weights=True
        )
        assert_close(y.detach().numpy(), expected_y, **exactly)
        assert_close(weights.detach().numpy(), expected_weights, **exactly)
