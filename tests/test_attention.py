"""Scores, softmax over visible keys, weighted sum: values by hand and what must always hold."""

import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad
from torch.testing import assert_close

from mha import (
    attention,
    attention_scores,
    causal_mask,
    masked_softmax,
    scaled_dot_product_attention,
)
from mha.reference import loops

B, T, S, H, D, D_V = 2, 3, 5, 7, 11, 13
HALVES = [torch.float32, torch.bfloat16, torch.float16]
exactly = {"atol": 1e-12, "rtol": 0}
in_every_mode = pytest.mark.parametrize(
    "mode", [torch.enable_grad, torch.no_grad, torch.inference_mode], ids=lambda mode: mode.__name__
)
# torch's own forward mode calls torch.jit.script
forward_mode = pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def qkv(dtype=torch.float64):
    return (
        draw(B, H, T, D, seed=1, dtype=dtype),
        draw(B, H, S, D, seed=2, dtype=dtype),
        draw(B, H, S, D_V, seed=3, dtype=dtype),
    )


def random_mask(*shape, seed=4):
    return draw(*shape, seed=seed) > -0.3


# scores


def test_scores_by_hand():
    q = torch.tensor([[[[1.0, 2.0]]]])
    k = torch.tensor([[[[3.0, 4.0], [5.0, -6.0]]]])
    assert attention_scores(q, k).tolist() == [[[[11.0, -7.0]]]]


def test_each_score_is_one_dot_product():
    q, k, _ = qkv()
    scores = attention_scores(q, k)
    for t in range(T):
        for s in range(S):
            assert_close(scores[..., t, s], (q[..., t, :] * k[..., s, :]).sum(-1), **exactly)


# softmax


def test_softmax_by_hand():
    logits = torch.log(torch.tensor([[1.0, 2.0, 5.0], [3.0, 1.0, 0.5]], dtype=torch.float64))
    assert_close(masked_softmax(logits)[0].tolist(), [1 / 8, 2 / 8, 5 / 8], **exactly)
    mask = torch.tensor([[True, True, False], [True, True, True]])
    expected = [[1 / 3, 2 / 3, 0.0], [6 / 9, 2 / 9, 1 / 9]]
    assert_close(masked_softmax(logits, mask).tolist(), expected, **exactly)


@settings(deadline=None, derandomize=True, database=None, max_examples=100)
@given(st.integers(1, 4), st.integers(1, 6), st.integers(0, 2**20))
def test_rows_sum_to_one_and_hidden_keys_get_zero(n_queries, n_keys, seed):
    logits = 10 * draw(n_queries, n_keys, seed=seed)
    mask = random_mask(n_queries, n_keys, seed=seed + 1)
    weights = masked_softmax(logits, mask)
    assert (weights[~mask] == 0).all()
    assert_close(weights.sum(-1), mask.any(-1).double(), **exactly)
    shifted = masked_softmax(logits + 3 * draw(n_queries, 1, seed=seed + 2), mask)
    assert_close(shifted, weights, **exactly)  # a constant per row changes nothing
    changed = masked_softmax(logits.masked_fill(~mask, 77.0), mask)
    assert torch.equal(changed, weights)  # nor does what is hidden


def test_large_logits_do_not_overflow():
    logits = torch.tensor([[1e4, 1e4, -1e4]], dtype=torch.float64)
    assert masked_softmax(logits).tolist() == [[0.5, 0.5, 0.0]]
    # The largest logit is hidden, and e^−20000 would be 0 for the visible ones.
    mask = torch.tensor([[False, True, True]])
    logits = torch.tensor([[1e4, -1e4, -1e4]], dtype=torch.float64)
    assert masked_softmax(logits, mask).tolist() == [[0.0, 0.5, 0.5]]


@pytest.mark.parametrize("dtype", [torch.float64, *HALVES])
@pytest.mark.parametrize("with_mask", [False, True])
@in_every_mode
def test_softmax_does_not_touch_its_input(dtype, with_mask, mode):
    logits, mask = draw(B, H, T, S, dtype=dtype), random_mask(T, S)
    with mode():
        weights = masked_softmax(logits, mask if with_mask else None)
    assert torch.equal(logits, draw(B, H, T, S, dtype=dtype))
    assert torch.equal(mask, random_mask(T, S))
    assert weights.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float64, *HALVES])
def test_an_empty_row_is_zero_with_zero_gradient(dtype):
    logits = (50 * draw(B, H, T, S, dtype=dtype)).requires_grad_()
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[1] = False
    weights = masked_softmax(logits, mask)
    assert (weights[..., 1, :] == 0).all()
    (weights * draw(B, H, T, S, seed=9, dtype=dtype)).sum().backward()
    assert logits.grad.isfinite().all()
    assert (logits.grad[..., 1, :] == 0).all()
    assert (logits.grad[..., 0, :] != 0).any()


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_hidden_logits_that_are_not_finite_are_hidden(value):
    # A score q · k can overflow though q and k are finite.
    logits = draw(2, 3)
    logits[0] = value  # an empty row
    logits[1, 2] = value
    mask = torch.tensor([[False, False, False], [True, True, False]])
    logits.requires_grad_()
    weights = masked_softmax(logits, mask)
    finite = logits.detach().masked_fill(~mask, 7.0).requires_grad_()
    expected = masked_softmax(finite, mask)
    assert torch.equal(weights, expected)
    weights.square().sum().backward()
    expected.square().sum().backward()
    assert torch.equal(logits.grad, finite.grad)
    assert (logits.grad[0] == 0).all()


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_no_nan_arises_on_the_way_back_from_an_empty_row():
    # A NaN that a later step overwrites leaves finite gradients, but torch's hunt for NaN stops.
    logits = draw(T, S).requires_grad_()
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[1] = False
    with torch.autograd.detect_anomaly():
        masked_softmax(logits, mask).square().sum().backward()
    assert logits.grad.isfinite().all()


# attention


def test_attention_by_hand():
    # q · k = 0, 2 log 3, scale 1/√4: logits 0, log 3, weights 1/4, 3/4.
    q = torch.tensor([[2.0, 0.0, 0.0, 0.0]], dtype=torch.float64)
    k = torch.tensor([[0.0, 1.0, 0.0, 0.0], [math.log(3), 0.0, 5.0, 0.0]], dtype=torch.float64)
    v = torch.tensor([[4.0, 0.0], [8.0, -4.0]], dtype=torch.float64)
    z, weights = scaled_dot_product_attention(q, k, v)
    assert_close(weights.tolist(), [[0.25, 0.75]], **exactly)
    assert_close(z.tolist(), [[7.0, -3.0]], **exactly)
    z, weights = scaled_dot_product_attention(q, k, v, scale=1.0)  # unscaled: odds 1 to 9
    assert_close(weights.tolist(), [[0.1, 0.9]], **exactly)
    assert_close(z.tolist(), [[7.6, -3.6]], **exactly)


@pytest.mark.parametrize("scale", [None, 0.3, 0, -1])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shape", [None, (T, S), (B, 1, 1, S), (1, H, T, 1), (B, H, T, S)])
@in_every_mode
def test_attention_is_the_loops(scale, is_causal, shape, mode):
    q, k, v = qkv()
    mask = None if shape is None else random_mask(*shape)
    allowed = torch.ones(B, H, T, S, dtype=torch.bool)
    if mask is not None:
        allowed = allowed & mask
    if is_causal:
        allowed = allowed & torch.tensor([[s <= t + S - T for s in range(S)] for t in range(T)])
    q.requires_grad_(mode is torch.enable_grad)
    before = None if mask is None else mask.clone()
    with mode():
        z, weights = scaled_dot_product_attention(q, k, v, mask, scale=scale, is_causal=is_causal)
    for b in range(B):
        for h in range(H):
            one = [tensor[b, h].detach().numpy() for tensor in (q, k, v, allowed)]
            expected_z, expected_weights = loops.attend(*one, scale=scale)
            assert_close(z[b, h].detach().numpy(), expected_z, **exactly)
            assert_close(weights[b, h].detach().numpy(), expected_weights, **exactly)
    assert all(map(torch.equal, (q, k, v), qkv()))  # what the caller holds stays as it was
    assert mask is None or torch.equal(mask, before)


def test_leading_axes_are_free():
    q, k, v = qkv()
    z, weights = scaled_dot_product_attention(q, k, v, is_causal=True)
    one_z, one_weights = scaled_dot_product_attention(q[1, 2], k[1, 2], v[1, 2], causal_mask(T, S))
    assert_close(one_z, z[1, 2], **exactly)
    assert_close(one_weights, weights[1, 2], **exactly)


def test_permuted_keys_change_nothing_and_permuted_queries_permute():
    q, k, v = qkv()
    z, weights = scaled_dot_product_attention(q, k, v)
    order = [3, 0, 4, 1, 2]
    same, moved = scaled_dot_product_attention(q, k[..., order, :], v[..., order, :])
    assert_close(same, z, **exactly)
    assert_close(moved, weights[..., order], **exactly)
    order = [2, 0, 1]
    moved, _ = scaled_dot_product_attention(q[..., order, :], k, v)
    assert_close(moved, z[..., order, :], **exactly)


def test_scale_is_folded_into_q_without_changing_the_result():
    q, k, v = qkv()
    logits = attention_scores(q, k) / math.sqrt(D)
    _, weights = scaled_dot_product_attention(q, k, v)
    assert_close(weights, torch.softmax(logits, -1), **exactly)


@pytest.mark.parametrize("with_mask", [False, True])
@in_every_mode
def test_without_a_gradient_the_weights_take_the_memory_of_the_logits(monkeypatch, with_mask, mode):
    made = []

    def scores(q, k):
        made.append(attention_scores(q, k))
        return made[-1]

    monkeypatch.setattr(attention, "attention_scores", scores)
    mask = random_mask(T, S) if with_mask else None
    with mode():
        _, weights = scaled_dot_product_attention(*qkv(), mask)
    assert (weights.data_ptr() == made[0].data_ptr()) is (mode is not torch.enable_grad)


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("with_mask", [False, True])
def test_the_saving_in_memory_changes_no_bit(dtype, with_mask):
    # Without a gradient the softmax overwrites the logits.
    q, k, v = qkv(dtype)
    mask = random_mask(B, H, T, S) if with_mask else None
    with torch.inference_mode():
        in_place = scaled_dot_product_attention(q, k, v, mask)
    logits = attention_scores(q * (1 / math.sqrt(D)), k)
    assert torch.equal(in_place[1], masked_softmax(logits, mask))
    kept = scaled_dot_product_attention(q.requires_grad_(), k, v, mask)
    assert torch.equal(in_place[0], kept[0])


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 0.03), (torch.float16, 0.004)]
)
def test_half_precision_rounds_as_its_dtype_does(dtype, tolerance):
    q, k, v = qkv(dtype)
    z, weights = scaled_dot_product_attention(q, k, v)
    exact_z, exact_weights = scaled_dot_product_attention(q.double(), k.double(), v.double())
    assert z.dtype == weights.dtype == dtype
    assert_close(weights.double(), exact_weights, atol=tolerance, rtol=0)
    assert_close(z.double(), exact_z, atol=4 * tolerance, rtol=0)


@in_every_mode
@pytest.mark.parametrize("over", ["q k v", "q k v mask", "mask", "nothing but v"])
def test_attention_can_be_vectorised_by_vmap(over, mode):
    # vmap refuses results that are written into memory that is already there.
    q, k, v = qkv()
    mask = random_mask(B, H, T, S)
    axes = {"q k v": (0, 0, 0, None), "q k v mask": (0, 0, 0, 0), "mask": (None, None, None, 0),
            "nothing but v": (None, None, 0, None)}[over]  # fmt: skip
    given = [
        x[0, 0] if axis is None else x[0] for x, axis in zip((q, k, v, mask), axes, strict=True)
    ]
    each = [x.expand(H, *x.shape[-2:]) for x in given]
    with mode():
        z, weights = torch.func.vmap(scaled_dot_product_attention, axes)(*given)
    for h in range(H):
        one_z, one_weights = scaled_dot_product_attention(*(x[h] for x in each))
        assert_close(z[h], one_z, **exactly)
        assert_close(weights.expand(H, T, S)[h], one_weights, **exactly)


@in_every_mode
@forward_mode
@pytest.mark.parametrize("with_mask", [False, True])
def test_derivatives_forward_and_backward_agree_in_every_mode(with_mask, mode):
    q, k, v = (tensor[0, :2] for tensor in qkv())
    mask = random_mask(T, S) if with_mask else None

    def attend(q):
        return scaled_dot_product_attention(q, k, v, mask)

    expected = torch.func.jacrev(attend)(q)
    with mode():
        measured = torch.func.jacfwd(attend)(q)
    for one, other in zip(measured, expected, strict=True):
        assert_close(one, other, **exactly)


@forward_mode
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
def test_a_tangent_passes_through_without_a_graph(mode):
    q, k, v = qkv()
    _, expected = torch.func.jvp(lambda q: scaled_dot_product_attention(q, k, v), (q,), (q,))
    with forward_ad.dual_level(), mode():
        results = scaled_dot_product_attention(forward_ad.make_dual(q, q), k, v)
        tangents = [forward_ad.unpack_dual(result).tangent for result in results]
    for tangent, other in zip(tangents, expected, strict=True):
        assert_close(tangent, other, **exactly)


@in_every_mode
def test_attention_compiles_to_one_graph(mode):
    q, k, v = qkv()
    mask = random_mask(B, 1, T, S)
    expected = scaled_dot_product_attention(q, k, v, mask, is_causal=True)
    compiled = torch.compile(scaled_dot_product_attention, backend="eager", fullgraph=True)
    with mode():
        results = compiled(q, k, v, mask, is_causal=True)
    for result, other in zip(results, expected, strict=True):
        assert_close(result, other, **exactly)


def test_a_hidden_nan_is_not_hidden():
    # The module says so: weight 0 times NaN is NaN.
    q, k, v = qkv()
    v[..., 4, :] = math.nan
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[:, 4] = False
    assert scaled_dot_product_attention(q, k, v, mask)[0].isnan().all()


# dropout


def test_dropout_drops_weights_and_scales_the_others():
    q, k, _ = qkv()
    torch.manual_seed(0)
    identity = torch.eye(S, dtype=torch.float64).expand(B, H, S, S)  # z shows the weights used
    used, weights = scaled_dot_product_attention(q, k, identity, dropout=0.25)
    dropped = used == 0
    assert_close(used, torch.where(dropped, 0.0, weights / 0.75), **exactly)
    assert 0.1 < dropped.double().mean().item() < 0.4  # of 210; five standard deviations are 0.15
    assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64), **exactly)
    assert torch.equal(weights, scaled_dot_product_attention(q, k, identity)[1])


# refusals


def refused(error, message, *args, **kwargs):
    with pytest.raises(error, match=re.escape(message)):
        scaled_dot_product_attention(*args, **kwargs)


def test_shapes_that_do_not_fit():
    q, k, v = qkv()
    refused(ValueError, "q has width 11, k has width 10", q, k[..., :10], v)
    refused(ValueError, "the axes before the last two (batch, heads) must agree", q[:1], k, v)
    refused(ValueError, "give every key one value", q, k, v[..., :4, :])
    refused(ValueError, "give every key one value", q, k, v[:, :1])
    refused(ValueError, "a single vector becomes one token with [None, :]", q[0, 0, 0], k, v)
    refused(ValueError, "with a width of at least 1", q[..., :0], k[..., :0], v)
    refused(TypeError, "q is a list; pass a torch tensor", [[1.0]], k, v)
    refused(TypeError, "v is a NoneType; pass a torch tensor", q, k, None)
    with pytest.raises(ValueError, match="q has width 11, k has width 10"):
        attention_scores(q, k[..., :10])


def test_dtypes_that_do_not_fit():
    q, k, v = qkv()
    refused(TypeError, "k has dtype torch.float32, q has torch.float64", q, k.float(), v)
    refused(TypeError, "v has dtype torch.float32, q has torch.float64", q, k, v.float())
    message = "q has dtype torch.int64; the softmax needs floats: q.float()"
    refused(TypeError, message, q.long(), k.long(), v.long())
    with pytest.raises(TypeError, match=re.escape("the softmax needs floats: logits.float()")):
        masked_softmax(torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(TypeError, match="logits is a list"):
        masked_softmax([[1.0]])


def test_masks_that_do_not_fit():
    q, k, v = qkv()
    refused(TypeError, "mask has dtype torch.float64, but a mask is bool", q, k, v, draw(T, S))
    refused(ValueError, "use padding_mask(lengths, n_keys)", q, k, v, random_mask(B, S))
    refused(ValueError, "mask has rank 3", q, k, v, random_mask(B, T, S))
    refused(ValueError, "does not broadcast", q[:1], k[:1], v[:1], random_mask(B, 1, T, S))
    with pytest.raises(ValueError, match="does not broadcast"):
        masked_softmax(draw(1, H, T, S), random_mask(B, 1, T, S))


@pytest.mark.parametrize("bad", [1.0, 1, -0.1, math.nan, math.inf])
def test_dropout_out_of_range(bad):
    message = f"dropout={bad} is outside [0, 1); pass 0.0 to drop nothing"
    refused(ValueError, message, *qkv(), dropout=bad)


@pytest.mark.parametrize("bad", [True, "0.1", None])
def test_dropout_that_is_no_number(bad):
    message = f"dropout={bad!r} is not a number; pass a float in [0, 1)"
    refused(TypeError, message, *qkv(), dropout=bad)


def test_other_arguments_that_make_no_sense():
    q, k, v = qkv()
    refused(TypeError, "scale='1' is not a number", q, k, v, scale="1")
    refused(TypeError, "scale=True is not a number", q, k, v, scale=True)
    refused(ValueError, "scale=inf is not finite", q, k, v, scale=math.inf)
    refused(ValueError, "scale=inf is not finite; pass a finite float", q, k, v, scale=10**400)
    refused(TypeError, "is_causal is a Tensor; pass True or False", q, k, v,
            is_causal=causal_mask(T, S))  # fmt: skip
    refused(TypeError, "is_causal is a int; pass True or False", q, k, v, is_causal=1)


@pytest.mark.parametrize("kind", [Fraction, np.float32, np.float16, float])
def test_numbers_of_other_kinds(kind):
    q, k, v = qkv()
    expected = scaled_dot_product_attention(q, k, v, scale=0.5, is_causal=True)
    results = scaled_dot_product_attention(q, k, v, scale=kind(0.5), is_causal=np.True_)
    assert all(map(torch.equal, results, expected))
    torch.manual_seed(0)
    dropped, _ = scaled_dot_product_attention(q, k, v, dropout=kind(0.5))
    torch.manual_seed(0)
    assert torch.equal(dropped, scaled_dot_product_attention(q, k, v, dropout=0.5)[0])
