"""Splitting into heads and merging again: which number lands where."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mha import merge_heads, share_heads, split_heads
from mha.heads import check_count, check_flag, head_width

B, T, H, D_HEAD = 2, 3, 7, 11


def numbered(*shape):
    """Return a tensor in which every entry is different and tells its own place."""
    return torch.arange(torch.Size(shape).numel(), dtype=torch.float64).view(shape)


def test_split_by_hand():
    # One sequence, two tokens of width 6, three heads of width 2.
    x = torch.tensor([[[1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 60]]])
    expected = [[[[1, 2], [10, 20]], [[3, 4], [30, 40]], [[5, 6], [50, 60]]]]
    assert split_heads(x, 3).tolist() == expected


def test_merge_by_hand():
    z = torch.tensor([[[[1, 2], [10, 20]], [[3, 4], [30, 40]], [[5, 6], [50, 60]]]])
    assert merge_heads(z).tolist() == [[[1, 2, 3, 4, 5, 6], [10, 20, 30, 40, 50, 60]]]


def test_every_number_lands_in_its_head():
    x = numbered(B, T, H * D_HEAD)
    heads = split_heads(x, H)
    assert heads.shape == (B, H, T, D_HEAD)
    for h in range(H):
        assert torch.equal(heads[:, h], x[:, :, h * D_HEAD : (h + 1) * D_HEAD])


def test_the_popular_wrong_splits_give_other_numbers():
    x = numbered(B, T, H * D_HEAD)
    right = split_heads(x, H)
    cut_along_the_tokens = x.view(B, H, T, D_HEAD)
    strided = x.view(B, T, D_HEAD, H).permute(0, 3, 1, 2)  # (d h) in place of (h d)
    assert right.shape == cut_along_the_tokens.shape == strided.shape
    assert not torch.equal(right, cut_along_the_tokens)
    assert not torch.equal(right, strided)
    merged_without_the_transpose = right.reshape(B, T, H * D_HEAD)
    assert not torch.equal(merge_heads(right), merged_without_the_transpose)


@settings(deadline=None, derandomize=True, database=None, max_examples=50)
@given(st.tuples(*[st.integers(1, 5)] * 4))
def test_merge_undoes_split_and_split_undoes_merge(sizes):
    batch, n_tokens, n_heads, d_head = sizes
    x = numbered(batch, n_tokens, n_heads * d_head)
    assert torch.equal(merge_heads(split_heads(x, n_heads)), x)
    z = numbered(batch, n_heads, n_tokens, d_head)
    assert torch.equal(split_heads(merge_heads(z), n_heads), z)


def test_split_copies_nothing_and_takes_any_memory_order():
    x = numbered(B, T, H * D_HEAD)
    assert split_heads(x, H).data_ptr() == x.data_ptr()
    elsewhere = x.transpose(0, 1).contiguous().transpose(0, 1)  # equal numbers, other strides
    assert torch.equal(split_heads(elsewhere, H), split_heads(x, H))
    one_for_all = x[:1].expand(B, -1, -1)
    assert torch.equal(split_heads(one_for_all, H)[1], split_heads(x[:1], H)[0])


def test_gradients_return_to_their_place():
    x = numbered(B, T, H * D_HEAD).requires_grad_()
    upstream = numbered(B, T, H * D_HEAD) + 0.5
    (merge_heads(split_heads(x, H)) * upstream).sum().backward()
    assert torch.equal(x.grad, upstream)


def test_no_tokens_is_no_error():
    assert merge_heads(split_heads(torch.ones(B, 0, 6), 3)).shape == (B, 0, 6)
    assert share_heads(torch.ones(B, 2, 0, 3), 6).shape == (B, 6, 0, 3)


def test_share_by_hand():
    # Two key heads, one key each, for six query heads: three neighbours share one.
    k = torch.tensor([[[[1, 2]], [[10, 20]]]])
    assert share_heads(k, 6).tolist() == [[[[1, 2]]] * 3 + [[[10, 20]]] * 3]


@settings(deadline=None, derandomize=True, database=None, max_examples=50)
@given(st.tuples(*[st.integers(1, 5)] * 4), st.integers(1, 4))
def test_sharing_is_numpys_repeat(sizes, group):
    x = numbered(*sizes)
    shared = share_heads(x, sizes[1] * group)
    np.testing.assert_array_equal(shared.numpy(), np.repeat(x.numpy(), group, axis=1))


def test_whole_copies_in_a_row_are_another_order():
    x = numbered(B, 2, T, D_HEAD)
    one_after_the_other = x.repeat(1, 3, 1, 1)
    assert share_heads(x, 6).shape == one_after_the_other.shape
    assert not torch.equal(share_heads(x, 6), one_after_the_other)


def test_sharing_copies_nothing_where_it_need_not():
    x = numbered(B, H, T, D_HEAD)
    assert share_heads(x, H) is x
    one = x[:, :1]
    shared = share_heads(one, H)
    assert shared.data_ptr() == one.data_ptr()
    assert shared.stride(1) == 0
    assert torch.equal(shared, torch.cat([one] * H, dim=1))


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
def test_a_shared_head_gathers_the_gradients_of_those_it_serves(n_kv_heads):
    x = numbered(B, n_kv_heads, T, D_HEAD).requires_grad_()
    upstream = numbered(B, 6, T, D_HEAD) + 0.5
    (share_heads(x, 6) * upstream).sum().backward()
    group = 6 // n_kv_heads
    for g in range(n_kv_heads):
        served = upstream[:, g * group : (g + 1) * group]
        assert torch.equal(x.grad[:, g], served.sum(1))


@pytest.mark.parametrize(
    ("width", "n_heads", "advice"),
    [
        (10, 3, "try 1, 2, 5 or 10"),
        (12, 5, "try 1, 2, 3, 4, 6 or 12"),
        (7, 2, "try 1 or 7"),
        (1, 3, "try 1"),
        (4, 8, "try 1, 2 or 4"),
    ],
)
def test_indivisible_width_names_the_counts_that_fit(width, n_heads, advice):
    message = f"d_model={width} is not divisible by n_heads={n_heads}; {advice}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        head_width("d_model", width, n_heads)
    message = f"the last axis of x={width} is not divisible by n_heads={n_heads}; {advice}"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        split_heads(torch.ones(1, 9, width), n_heads)


def test_a_token_count_that_happens_to_fit_excuses_nothing():
    # 9 tokens × 10 columns do fit view(B, −1, 3, 3): the reshape alone would not complain.
    assert torch.ones(1, 9, 10).view(1, -1, 3, 3).shape == (1, 10, 3, 3)
    with pytest.raises(ValueError, match="not divisible"):
        split_heads(torch.ones(1, 9, 10), 3)


@pytest.mark.parametrize(("n_heads", "n_kv_heads"), [(6, 4), (6, 12), (2, 4)])
def test_heads_that_cannot_be_shared_out_name_the_counts_that_can(n_heads, n_kv_heads):
    advice = {6: "1, 2, 3 or 6", 2: "1 or 2"}[n_heads]
    message = f"is not divisible by the head count of x={n_kv_heads}; try {advice}"
    with pytest.raises(ValueError, match=f"^n_heads={n_heads} {message}$"):
        share_heads(torch.ones(1, n_kv_heads, 3, 5), n_heads)


def test_no_heads_are_shared_by_none():
    with pytest.raises(ValueError, match="the head count of x=0 is less than 1"):
        share_heads(torch.ones(1, 0, 3, 5), 2)
    with pytest.raises(ValueError, match="n_heads=0 is less than 1; pass an int"):
        share_heads(torch.ones(1, 2, 3, 5), 0)
    with pytest.raises(TypeError, match=r"n_heads=2\.0 is not a whole number"):
        share_heads(torch.ones(1, 2, 3, 5), 2.0)


@pytest.mark.parametrize("bad", [0, -1])
def test_counts_below_one_are_refused(bad):
    with pytest.raises(ValueError, match=f"n_heads={bad} is less than 1; pass an int"):
        split_heads(torch.ones(1, 2, 4), bad)


@pytest.mark.parametrize("bad", [2.0, True, "2", None])
def test_counts_that_are_no_whole_numbers_are_refused(bad):
    message = f"n_heads={bad!r} is not a whole number; pass an int of at least 1"
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        check_count("n_heads", bad)


def test_flags_are_true_or_false():
    for good in (True, False, np.True_, np.False_):
        assert check_flag("bias", good) is None
    for bad, kind in (
        (1, "int"),
        ("no", "str"),
        (None, "NoneType"),
        (torch.tensor(True), "Tensor"),
    ):
        with pytest.raises(TypeError, match=f"^bias is a {kind}; pass True or False$"):
            check_flag("bias", bad)
    with pytest.raises(TypeError, match=r"pass True or False, and hand a mask over as mask=$"):
        check_flag("is_causal", torch.ones(2, 2))


def test_wrong_ranks_are_refused():
    message = r"x has shape \(3, 4\), rank 2; pass rank 3, B T \(H d\)"
    with pytest.raises(ValueError, match=message):
        split_heads(torch.ones(3, 4), 2)
    with pytest.raises(ValueError, match=r"z has shape \(2, 3, 4\), rank 3; pass rank 4, B H T d"):
        merge_heads(torch.ones(2, 3, 4))
    with pytest.raises(ValueError, match=r"x has shape \(2, 3, 4\), rank 3; pass rank 4, B K S d"):
        share_heads(torch.ones(2, 3, 4), 2)
    with pytest.raises(TypeError, match="x is a ndarray; pass a torch tensor, B K S d"):
        share_heads(np.ones((1, 2, 3, 4)), 2)
    with pytest.raises(TypeError, match="x is a list; pass a torch tensor"):
        split_heads([[[1, 2]]], 2)
    with pytest.raises(TypeError, match="z is a list; pass a torch tensor"):
        merge_heads([[[[1, 2]]]])
