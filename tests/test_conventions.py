"""Masks said in other conventions: the values, and that the other library then hides the same."""

import re

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.testing import assert_close

from mha import (
    MultiHeadAttention,
    causal_mask,
    combine_masks,
    from_additive,
    masked_softmax,
    padding_mask,
    to_additive,
    to_torch_mha,
    window_mask,
)

B, T, S, H, D_HEAD = 2, 3, 5, 7, 11
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
exactly = {"atol": 1e-12, "rtol": 0}
repeatable = settings(deadline=None, derandomize=True, database=None, max_examples=80)
INF = float("inf")


def draw(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def some_mask(*shape, seed=0):
    """Return a mask in which every query sees key 0."""
    mask = draw(*shape, seed=seed) > 0
    mask[..., 0] = True
    return mask


# additive


@pytest.mark.parametrize("dtype", DTYPES)
def test_additive_by_hand(dtype):
    bias = to_additive(torch.tensor([[True, False], [False, True]]), dtype)
    assert bias.dtype == dtype
    assert bias.tolist() == [[0, -INF], [-INF, 0]]
    assert from_additive(bias).tolist() == [[True, False], [False, True]]


def test_nothing_hidden_stays_none():
    assert to_additive(None, torch.float32) is None
    assert from_additive(None) is None


@pytest.mark.parametrize("shape", [(T, S), (B, 1, 1, S), (1, H, T, 1), (B, H, T, S)])
def test_the_logits_with_the_bias_have_the_weights_of_the_mask(shape):
    mask, logits = some_mask(*shape), draw(B, H, T, S, seed=1)
    if shape[-1] == 1:
        mask = mask.expand(*shape[:-1], S)
    with_bias = (logits + to_additive(mask, torch.float64)).numpy()
    exp = np.exp(with_bias - with_bias.max(-1, keepdims=True))
    expected = torch.from_numpy(exp / exp.sum(-1, keepdims=True))
    assert_close(masked_softmax(logits, mask), expected, **exactly)


def test_torchs_attention_reads_the_bias_as_the_mask():
    q, k, v = draw(B, H, T, D_HEAD), draw(B, H, S, D_HEAD, seed=1), draw(B, H, S, 13, seed=2)
    mask = combine_masks(causal_mask(T, S), padding_mask([3, 5], S))
    z = F.scaled_dot_product_attention(q, k, v, to_additive(mask, torch.float64))
    assert_close(z, F.scaled_dot_product_attention(q, k, v, mask), **exactly)


def test_additive_is_made_where_the_mask_is():
    mask = torch.ones(T, S, dtype=torch.bool, device="meta")
    assert to_additive(mask, torch.float32).device.type == "meta"


@repeatable
@given(
    st.lists(st.integers(1, 3), min_size=4, max_size=4),
    st.booleans(),
    st.sampled_from(DTYPES),
    st.integers(0, 99),
)
def test_there_and_back(shape, rank_2, dtype, seed):
    mask = draw(*shape[2 * rank_2 :], seed=seed) > 0
    assert torch.equal(from_additive(to_additive(mask, dtype)), mask)


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_least_numbers_of_a_dtype_hide_too(dtype):
    least = torch.finfo(dtype).min
    bias = torch.tensor([[0.0, -0.0, least, least / 2, -INF]], dtype=dtype)
    assert from_additive(bias).tolist() == [[True, True, False, False, False]]
    with pytest.raises(ValueError, match=re.escape(f"bias holds {least / 4}, neither 0")):
        from_additive(torch.tensor([[0.0, least / 4]], dtype=dtype))


@pytest.mark.parametrize("bad", [1.0, -1.0, -10000.0, 1e-8, INF, float("nan")])
def test_a_position_bias_is_not_a_mask(bad):
    message = re.escape(f"bias holds {bad}, neither 0 (may attend) nor at most -8.99e+307 (hidden)")
    with pytest.raises(ValueError, match=f"^{message}; a position bias is not a mask"):
        from_additive(torch.tensor([[0.0, -INF], [bad, 0.0]], dtype=torch.float64))


def test_the_bias_that_transformers_makes_is_read():
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    config = transformers.BertConfig(
        vocab_size=13, hidden_size=6, num_attention_heads=2, num_hidden_layers=1,
        intermediate_size=5, attn_implementation="eager",
    )  # fmt: skip
    model, seen = transformers.BertModel(config), []
    model.encoder.layer[0].attention.self.register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(kwargs["attention_mask"]), with_kwargs=True
    )
    ones = torch.tensor([[1, 1, 0, 0, 0], [1, 1, 1, 1, 0]])
    model(torch.ones(B, S, dtype=torch.int64), attention_mask=ones)
    assert torch.equal(from_additive(seen[0]), padding_mask([2, 4], S).expand(B, 1, S, S))


MASK = torch.ones(T, S, dtype=torch.bool)
REFUSED = [
    (lambda: to_additive(MASK, torch.int64), TypeError,
     "dtype=torch.int64 holds no bias; pass the logits' dtype, torch.float16, torch.bfloat16, "
     "torch.float32 or torch.float64"),
    (lambda: to_additive(MASK, torch.float8_e4m3fn), TypeError, "dtype=torch.float8_e4m3fn holds"),
    (lambda: to_additive(MASK, np.float32), TypeError, "holds no bias"),
    (lambda: to_additive(None, "float32"), TypeError, "dtype='float32' holds no bias"),
    (lambda: to_additive(MASK.float(), torch.float32), TypeError,
     "mask has dtype torch.float32, but a mask is bool"),
    (lambda: to_additive(MASK[None], torch.float32), ValueError, "mask has rank 3"),
    (lambda: to_additive([[True]], torch.float32), TypeError, "mask is a list"),
    (lambda: from_additive([[0.0]]), TypeError, "bias is a list; pass a torch tensor of floats"),
    (lambda: from_additive(MASK), TypeError, "bias has dtype torch.bool, an additive mask holds "
     "floats, 0 and -inf; a bool mask with True = may attend needs no conversion"),
    (lambda: from_additive(MASK.long()), TypeError, "a 0/1 mask becomes one as mask == 1"),
    (lambda: from_additive(torch.zeros(B, T, S)), ValueError,
     "bias has rank 3, shape (2, 3, 5); a mask is (T, S) or broadcasts to (B, H, T, S): if its "
     "first axis is the batch pass bias[:, None], if it is the heads pass bias[None]"),
    (lambda: from_additive(torch.zeros(S)), ValueError, "bias has rank 1"),
    (lambda: to_torch_mha(MASK.float(), H), TypeError, "mask has dtype torch.float32"),
    (lambda: to_torch_mha(MASK[None], H), ValueError, "mask has rank 3"),
    (lambda: to_torch_mha(MASK, 0), ValueError, "n_heads=0 is less than 1"),
    (lambda: to_torch_mha(None, 2.0), TypeError, "n_heads=2.0 is not a whole number"),
    (lambda: to_torch_mha(MASK.expand(B, 3, T, S), H), ValueError, "mask has shape (2, 3, 3, 5), "
     "3 heads, but n_heads=7; give its axis 1 the length 7, or 1 for one rule for every head"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=re.escape(message)):
        call()


# nn.MultiheadAttention


def listed(arguments):
    return {name: None if mask is None else mask.int().tolist() for name, mask in arguments.items()}


def test_torchs_arguments_by_hand():
    def arguments(mask, n_heads=2):
        return listed(to_torch_mha(mask, n_heads))

    assert arguments(None) == {"attn_mask": None, "key_padding_mask": None}
    assert arguments(causal_mask(2)) == {"attn_mask": [[0, 1], [0, 0]], "key_padding_mask": None}
    padding = padding_mask([1, 2], n_keys=2)
    assert arguments(padding) == {"attn_mask": None, "key_padding_mask": [[0, 1], [0, 0]]}
    # Sequence 0 has heads a and b, sequence 1 has c and d: a, b, c, d, never a, c, b, d.
    a, b, c, d = [[0, 1]], [[1, 0]], [[1, 1]], [[0, 0]]
    mask = torch.tensor([[a, b], [c, d]]) == 0
    assert arguments(mask) == {"attn_mask": [a, b, c, d], "key_padding_mask": None}
    # One rule for the heads of each sequence is written out for each: twice one, twice the other.
    both = combine_masks(causal_mask(2), padding)
    causal, hidden = [[0, 1], [0, 0]], [[0, 1], [0, 1]]
    assert arguments(both)["attn_mask"] == [hidden, hidden, causal, causal]


def test_one_rule_for_all_has_no_batch():
    mask = causal_mask(T, S)
    assert torch.equal(to_torch_mha(mask[None, None], H)["attn_mask"], ~mask)
    for_heads = some_mask(1, H, T, S)
    assert torch.equal(to_torch_mha(for_heads, H)["attn_mask"], ~for_heads[0])


def test_the_arguments_share_no_memory_with_the_mask():
    mask = some_mask(B, H, T, S)
    before = mask.clone()
    for given_mask in (mask, mask[0, 0], mask[:, :1, :1]):
        for converted in to_torch_mha(given_mask, H).values():
            if converted is not None:
                converted.fill_(True)
    assert torch.equal(mask, before)


def peers(n_heads):
    peer = nn.MultiheadAttention(n_heads * 2, n_heads, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for seed, parameter in enumerate(peer.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=seed))
    return MultiHeadAttention.from_torch(peer), peer


LIBRARY = [
    causal_mask(T, S),
    window_mask(T, S, before=1, after=1),
    padding_mask([2, 4], S),
    combine_masks(causal_mask(T, S), padding_mask([4, 5], S)),
    some_mask(B, H, T, S),
    some_mask(1, 1, T, S),
    some_mask(1, H, T, S).expand(B, -1, -1, -1),
    some_mask(1, 1, 1, S).expand(B, -1, -1, -1),
    None,
]


@pytest.mark.parametrize("mask", LIBRARY)
def test_torchs_layer_hides_the_same(mask):
    layer, peer = peers(H)
    x, context = draw(B, T, 2 * H, seed=5), draw(B, S, 2 * H, seed=6)
    y, weights = layer(x, context, mask=mask, return_weights=True)
    peer_y, peer_weights = peer(
        x, context, context, average_attn_weights=False, **to_torch_mha(mask, H)
    )
    assert_close(y, peer_y, **exactly)
    assert_close(weights, peer_weights, **exactly)


@repeatable
@given(
    sizes=st.tuples(*[st.integers(1, 4)] * 4),
    stretched=st.tuples(*[st.booleans()] * 4),
    fast=st.booleans(),
    seed=st.integers(0, 99),
)
def test_torch_refuses_or_agrees_whatever_is_stretched(sizes, stretched, fast, seed):
    """An axis of length 1 that nn.MultiheadAttention does not stretch must never pass unnoticed."""
    batch, n_heads, n_tokens, _ = sizes
    layer, peer = peers(n_heads)
    x = draw(batch, n_tokens, 2 * n_heads, seed=seed)
    full = (batch, n_heads, n_tokens, n_tokens)
    shape = [1 if one else size for size, one in zip(full, stretched, strict=True)]
    mask = some_mask(*shape, seed=seed)

    def ask(given_mask):
        # Without gradients and in eval mode torch takes another kernel, its fast path.
        with torch.set_grad_enabled(not fast):
            y = layer.train(not fast)(x, mask=mask)
            return y, peer.train(not fast)(x, x, x, **to_torch_mha(given_mask, n_heads))[0]

    try:
        y, peer_y = ask(mask)
    except (RuntimeError, AssertionError):  # torch's own words for a shape that does not fit
        assert mask.shape != full
        y, peer_y = ask(mask.expand(batch, -1, n_tokens, n_tokens))  # the way out
    assert_close(peer_y, y, **exactly)
