"""The backends agree, each in its own way; what the fused one asks of torch."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from mha import backends, causal_mask, combine_masks, padding_mask
from mha import scaled_dot_product_attention as explicit
from mha.backends import BACKENDS, find_backend, fused_attention

B, T, S, H, D, D_V = 2, 3, 5, 7, 11, 13
exactly = {"atol": 1e-12, "rtol": 0}
every_backend = pytest.mark.parametrize("name", BACKENDS)


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def qkv(n_queries=T, n_keys=S, d_v=D_V, dtype=torch.float64, batch=B, n_heads=H):
    return (
        draw(batch, n_heads, n_queries, D, seed=1, dtype=dtype),
        draw(batch, n_heads, n_keys, D, seed=2, dtype=dtype),
        draw(batch, n_heads, n_keys, d_v, seed=3, dtype=dtype),
    )


def naive(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
    """Compute the formula of torch's documentation, in which an empty row is NaN."""
    logits = q @ k.transpose(-2, -1) * scale
    if is_causal:
        assert attn_mask is None
        attn_mask = torch.ones(logits.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None:
        logits = logits.masked_fill(~attn_mask, -math.inf)
    return torch.softmax(logits, -1) @ v


@every_backend
def test_attention_by_hand(name):
    # Two heads, one query, two keys of width 1: head 0 has logits 0 and log 3, head 1 log 4 and 0.
    q = torch.tensor([[[[1.0]], [[2.0]]]], dtype=torch.float64)
    k = torch.tensor([[[[0.0], [math.log(3)]], [[math.log(2)], [0.0]]]], dtype=torch.float64)
    v = torch.tensor([[[[4.0], [8.0]], [[5.0], [10.0]]]], dtype=torch.float64)
    z, weights = BACKENDS[name](q, k, v, return_weights=True)
    assert_close(z.flatten().tolist(), [7.0, 6.0], **exactly)
    assert_close(weights.flatten().tolist(), [0.25, 0.75, 0.8, 0.2], **exactly)


@every_backend
@pytest.mark.parametrize("sizes", [(3, 5), (5, 3), (1, 5), (3, 3), (0, 3), (3, 0)])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("with_mask", [False, True])
def test_is_causal_is_the_bottom_right_mask_anded_with_the_other(name, sizes, is_causal, with_mask):
    q, k, v = qkv(*sizes)
    mask = draw(B, H, *sizes, seed=5) > -0.5 if with_mask else None
    allowed = combine_masks(mask, causal_mask(*sizes) if is_causal else None)
    expected_z, expected_weights = explicit(q, k, v, allowed)
    z, weights = BACKENDS[name](q, k, v, mask, is_causal=is_causal, return_weights=True)
    assert_close(z, expected_z, **exactly)
    assert_close(weights, expected_weights, **exactly)
    alone, nothing = BACKENDS[name](q, k, v, mask, is_causal=is_causal)
    assert nothing is None
    assert_close(alone, expected_z, **exactly)


@settings(deadline=None, derandomize=True, database=None, max_examples=60)
@given(
    sizes=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.integers(1, 6)),
    stretched=st.sets(st.integers(0, 3)),
    density=st.sampled_from([-1.0, 0.0, 1.0]),
    is_causal=st.booleans(),
    scale=st.sampled_from([None, 0.1, 2.0]),
)
def test_backends_agree_on_any_mask(sizes, stretched, density, is_causal, scale):
    batch, n_heads, n_queries, n_keys = sizes
    q, k, v = qkv(n_queries, n_keys, batch=batch, n_heads=n_heads)
    shape = [1 if axis in stretched else size for axis, size in enumerate(sizes)]
    mask = draw(*shape, seed=6) > density
    arguments = {"scale": scale, "is_causal": is_causal}
    z, weights = explicit(q, k, v, mask, **arguments)
    for attend in BACKENDS.values():
        other_z, other_weights = attend(q, k, v, mask, return_weights=True, **arguments)
        assert_close(other_z, z, **exactly)
        assert_close(other_weights, weights, **exactly)


@every_backend
@pytest.mark.parametrize("n_keys", [600, 1100])
def test_long_rows_whose_visible_keys_come_late(name, n_keys):
    # Longer than one tile of torch's kernel; in the first tile some rows see nothing.
    q, k, v = qkv(40, n_keys, d_v=D, dtype=torch.float32, batch=1, n_heads=2)
    mask = torch.arange(n_keys) >= torch.linspace(0, n_keys + 9, 40)[:, None]
    assert not mask[-1].any()
    expected, _ = explicit(q.double(), k.double(), v.double(), mask)
    z, _ = BACKENDS[name](q, k, v, mask)
    assert_close(z.double(), expected, atol=1e-5, rtol=0)


@every_backend
def test_a_query_without_keys_gets_zero(name):
    q, k, v = qkv()
    z, weights = BACKENDS[name](q, k, v, padding_mask([0, 5], S), return_weights=True)
    assert (z[0] == 0).all()
    assert (weights[0] == 0).all()
    assert_close(z[1], explicit(q, k, v)[0][1], **exactly)


@every_backend
@pytest.mark.parametrize("is_causal", [False, True])  # T ≠ S, so the second one needs a mask
def test_dropout_drops_weights_and_returns_those_before(name, is_causal):
    q, k, _ = qkv()
    torch.manual_seed(0)
    identity = torch.eye(S, dtype=torch.float64).expand(B, H, S, S)  # z shows the weights used
    arguments = {"is_causal": is_causal, "return_weights": True}
    used, weights = BACKENDS[name](q, k, identity, dropout=0.25, **arguments)
    _, expected = explicit(q, k, identity, is_causal=is_causal)
    dropped = used == 0
    assert_close(weights, expected, **exactly)
    assert_close(used, torch.where(dropped, 0.0, weights / 0.75), **exactly)
    share = dropped[weights > 0].double().mean().item()
    assert 0.1 < share < 0.4  # of 168 or 210; four standard deviations are 0.13


def gradients_of_z(attend, q, k, v, mask):
    """Return z, and the gradients of its sum, with numbers that autograd cannot change."""
    inputs = [tensor.clone().requires_grad_() for tensor in (q, k, v)]
    z, weights = attend(*inputs, mask, return_weights=True)
    z.sum().backward()
    return [z, weights, *(tensor.grad for tensor in inputs)]


@every_backend
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_finite_scores_are_hidden_however_large(name, dtype):
    # The hidden key scores Σ q · k = max / 2 or less, and on the way back dz · v is max / 2.
    q, k, v = qkv(d_v=D, dtype=dtype)
    q = q.abs().clamp(0.5, 1)
    expected = gradients_of_z(BACKENDS[name], q, k, v, padding_mask([4, 4], S))
    k[..., 4, :] = v[..., 4, :] = torch.finfo(dtype).max / (2 * D)
    results = gradients_of_z(BACKENDS[name], q, k, v, padding_mask([4, 4], S))
    for result, other in zip(results, expected, strict=True):
        assert torch.equal(result, other)


@pytest.mark.parametrize("name", ["loop", "explicit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_loop_and_explicit_hide_a_score_that_overflows(name, dtype):
    # "fused" promises nothing here: torch adds −∞ to the score, and ∞ − ∞ is NaN.
    q = k = v = torch.ones(1, 1, 2, 4, dtype=dtype)
    k = k.clone()
    k[..., 0, :] = torch.finfo(dtype).max
    z, weights, *grads = gradients_of_z(BACKENDS[name], q, k, v, torch.tensor([[False, True]] * 2))
    assert (z == 1).all()
    assert weights[0, 0].tolist() == [[0, 1], [0, 1]]
    assert all(grad.isfinite().all() for grad in grads)


@every_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("q_size", [1.0, 1000.0])
def test_a_query_without_keys_has_zero_gradients_where_scores_overflow(name, dtype, q_size):
    q, v = torch.full((1, 1, 2, 4), q_size, dtype=dtype), torch.ones(1, 1, 2, 4, dtype=dtype)
    k = torch.full_like(q, torch.finfo(dtype).max)
    for result in gradients_of_z(BACKENDS[name], q, k, v, torch.zeros(2, 2, dtype=torch.bool)):
        assert (result == 0).all()


@every_backend
def test_no_heads_are_no_error(name):
    q, k, v = (tensor.requires_grad_() for tensor in qkv(n_heads=0))
    for mask in (None, padding_mask([4, 0], S), torch.ones(B, 0, T, S, dtype=torch.bool)):
        z, weights = BACKENDS[name](q, k, v, mask, is_causal=True, return_weights=True)
        assert z.shape == (B, 0, T, D_V)
        assert weights.shape == (B, 0, T, S)
        z.sum().backward()


@every_backend
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_call_leaves_its_inputs_alone(name, mode, is_causal):
    masks = padding_mask([0, 4], S), draw(B, H, T, S, seed=5) > 0, None
    for mask in masks:
        inputs, kept = qkv(), None if mask is None else mask.clone()
        with mode():
            BACKENDS[name](*inputs, mask, is_causal=is_causal, return_weights=True)
        assert all(map(torch.equal, inputs, qkv()))
        assert mask is None or torch.equal(mask, kept)


@every_backend
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_vmap_works_in_every_mode(name, mode):
    q, k, v = qkv()
    mask = draw(B, H, T, S, seed=5) > 0
    expected = BACKENDS[name](q, k, v, mask, return_weights=True)
    given = [tensor[:, None] for tensor in (q, k, v, mask)]  # B 1 H T d

    def attend(q, k, v, mask):
        return BACKENDS[name](q, k, v, mask, return_weights=True)

    with mode():
        results = torch.func.vmap(attend)(*given)
    for result, other in zip(results, expected, strict=True):
        assert_close(result[:, 0], other, **exactly)


@every_backend
@pytest.mark.parametrize("with_mask", [False, True])
def test_everything_is_made_where_the_queries_are(name, with_mask):
    q, k, v = qkv()
    mask = padding_mask([0, 4], S) if with_mask else None
    arguments = {"is_causal": True, "return_weights": True}
    expected = BACKENDS[name](q, k, v, mask, **arguments)
    with torch.device("meta"):  # what is made without naming a device has no numbers here
        results = BACKENDS[name](q, k, v, mask, **arguments)
    assert all(map(torch.equal, results, expected))


@every_backend
def test_numbers_of_other_kinds(name):
    q, k, v = qkv(T, T)
    expected = BACKENDS[name](q, k, v, scale=0.5, is_causal=True)[0]
    for half in (Fraction(1, 2), np.float32(0.5), np.float16(0.5)):
        assert torch.equal(BACKENDS[name](q, k, v, scale=half, is_causal=np.True_)[0], expected)
        torch.manual_seed(0)
        dropped = BACKENDS[name](q, k, v, dropout=half)[0]
        torch.manual_seed(0)
        assert torch.equal(dropped, BACKENDS[name](q, k, v, dropout=0.5)[0])


@every_backend
def test_a_hidden_nan_leaks_from_every_backend(name):
    q, k, v = qkv(d_v=D)
    v[..., 4, :] = math.nan
    z, _ = BACKENDS[name](q, k, v, padding_mask([4, 4], S))
    assert z.isnan().all()


# what the fused backend asks of torch


@pytest.fixture
def asked(monkeypatch):
    """Replace torch's attention by the naive formula, and write down what it is asked."""
    calls = []

    def spy(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None):
        calls.append({"attn_mask": attn_mask, "dropout_p": dropout_p, "is_causal": is_causal})
        return naive(q, k, v, attn_mask, dropout_p, is_causal, scale)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return calls


def test_fused_needs_no_tensor_of_queries_by_keys(asked, monkeypatch):
    for name in ("attention_scores", "masked_softmax", "causal_mask"):
        monkeypatch.setattr(backends, name, None)  # calling it would fail
    q, k, v = qkv(T, T)
    fused_attention(q, k, v)
    fused_attention(q, k, v, is_causal=True, dropout=0.5)
    assert asked == [
        {"attn_mask": None, "dropout_p": 0.0, "is_causal": False},
        {"attn_mask": None, "dropout_p": 0.5, "is_causal": True},
    ]


def test_fused_keeps_a_padding_mask_small(asked):
    fused_attention(*qkv(), padding_mask([4, 5], S))
    assert asked[0]["attn_mask"].shape == (B, 1, 1, S)


@pytest.mark.parametrize("sizes", [(3, 5), (5, 3)])
@pytest.mark.parametrize("with_mask", [False, True])
def test_fused_never_hands_on_is_causal_where_torch_aligns_it_otherwise(asked, sizes, with_mask):
    mask = torch.ones(sizes, dtype=torch.bool) if with_mask else None
    fused_attention(*qkv(*sizes), mask, is_causal=True)
    assert asked[0]["is_causal"] is False
    seen = causal_mask(*sizes)
    assert torch.equal(asked[0]["attn_mask"][seen.any(-1)], seen[seen.any(-1)])


def test_fused_keeps_an_empty_row_finite_in_any_kernel(asked):
    q = k = v = torch.full((1, 1, 2, 4), 1e30)
    *_, by_q, by_k, by_v = gradients_of_z(
        fused_attention, q, k, v, torch.zeros(2, 2, dtype=torch.bool)
    )
    assert len(asked) == 1
    assert (by_q == 0).all() and (by_k == 0).all() and (by_v == 0).all()


@pytest.mark.parametrize("is_causal", [False, True])
def test_fused_does_not_rely_on_what_a_kernel_gives_an_empty_row(asked, is_causal):
    inputs = [tensor.requires_grad_() for tensor in qkv(5, 3)]
    mask = torch.ones(5, 3, dtype=torch.bool)
    mask[4] = False
    z, weights = fused_attention(*inputs, mask, is_causal=is_causal, return_weights=True)
    expected_z, expected_weights = explicit(*inputs, mask, is_causal=is_causal)
    assert_close(z, expected_z, **exactly)
    assert_close(weights, expected_weights, **exactly)
    (z * draw(B, H, 5, D_V, seed=8)).sum().backward()
    grads = [tensor.grad.clone() for tensor in inputs]
    for tensor in inputs:
        tensor.grad = None
    (expected_z * draw(B, H, 5, D_V, seed=8)).sum().backward()
    for grad, tensor in zip(grads, inputs, strict=True):
        assert_close(grad, tensor.grad, **exactly)


def test_loop_handles_one_head_at_a_time(monkeypatch):
    heads = []

    def spy(q, k, v, mask, **options):
        heads.append((q.shape, mask.shape))
        return explicit(q, k, v, mask, **options)

    monkeypatch.setattr(backends, "scaled_dot_product_attention", spy)
    BACKENDS["loop"](*qkv(), torch.ones(1, H, T, S, dtype=torch.bool))
    assert heads == [((B, 1, T, D), (1, 1, T, S))] * H


# refusals


@pytest.mark.parametrize("bad", ["quick", "Fused", "", None, 3, ["loop"]])
def test_unknown_backend_lists_the_known(bad):
    message = f"backend={bad!r} is not known; choose 'loop', 'explicit' or 'fused'"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        find_backend(bad)


@every_backend
def test_find_backend(name):
    assert find_backend(name) is BACKENDS[name]


@every_backend
def test_every_backend_refuses_alike(name):
    q, k, v = qkv()
    attend = BACKENDS[name]
    with pytest.raises(TypeError, match="a mask is bool, True = may attend"):
        attend(q, k, v, torch.ones(T, S))
    with pytest.raises(ValueError, match=re.escape("use padding_mask(lengths, n_keys)")):
        attend(q, k, v, torch.ones(B, S, dtype=torch.bool))
    with pytest.raises(ValueError, match=re.escape("dropout=1.0 is outside [0, 1)")):
        attend(q, k, v, dropout=1.0)
    with pytest.raises(TypeError, match="is_causal is a int"):
        attend(q, k, v, is_causal=1)
    with pytest.raises(ValueError, match="q has width 11, k has width 10"):
        attend(q, k[..., :10], v)
    with pytest.raises(TypeError, match=re.escape("the softmax needs floats: q.float()")):
        attend(q.long(), k.long(), v.long())
    for bad in (math.nan, math.inf, -math.inf, 10**400, Fraction(10**400, 3)):
        with pytest.raises(
            ValueError, match=r"scale=-?(nan|inf) is not finite; pass a finite float"
        ):
            attend(q, k, v, scale=bad)
    with pytest.raises(TypeError, match="return_weights is a str; pass True or False"):
        attend(q, k, v, return_weights="no")


@pytest.mark.parametrize("name", ["loop", "fused"])
def test_a_backend_needs_the_head_axis(name):
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"q has shape \(7, 3, 11\); a backend takes rank 4"):
        BACKENDS[name](q[0], k[0], v[0])


def test_the_naive_stand_in_is_torchs_attention_where_no_row_is_empty():
    q, k, v = qkv(T, T)
    for is_causal in (False, True):
        expected = F.scaled_dot_product_attention(q, k, v, is_causal=is_causal, scale=0.3)
        assert_close(naive(q, k, v, is_causal=is_causal, scale=0.3), expected, **exactly)
    assert naive(q, k, v, torch.zeros(T, T, dtype=torch.bool), scale=0.3).isnan().all()
