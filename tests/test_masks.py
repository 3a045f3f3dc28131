"""Masks: which pairs they let through, how they combine, what is refused."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mha import causal_mask, combine_masks, padding_mask, window_mask
from mha.masks import check_mask, check_mask_rank

B, T, S, H = 2, 3, 5, 7
repeatable = settings(deadline=None, derandomize=True, database=None, max_examples=50)


def test_causal_by_hand():
    assert causal_mask(3).int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]


def test_causal_aligns_the_last_query_with_the_last_key():
    assert causal_mask(2, 4).int().tolist() == [[1, 1, 1, 0], [1, 1, 1, 1]]
    assert causal_mask(1, 4).int().tolist() == [[1, 1, 1, 1]]  # decoding: one query, all keys


def test_causal_leaves_the_first_queries_without_keys_where_there_are_more_of_them():
    assert causal_mask(4, 2).int().tolist() == [[0, 0], [0, 0], [1, 0], [1, 1]]


@repeatable
@given(st.integers(0, 6), st.integers(0, 6))
def test_causal_is_the_inequality(n_queries, n_keys):
    mask = causal_mask(n_queries, n_keys)
    assert mask.dtype == torch.bool
    assert mask.shape == (n_queries, n_keys)
    for t in range(n_queries):
        for s in range(n_keys):
            assert mask[t, s].item() == (s <= t + n_keys - n_queries)


def test_causal_takes_numpys_whole_numbers():
    assert torch.equal(causal_mask(np.uint8(4), np.uint8(2)), causal_mask(4, 2))


def test_causal_device():
    assert causal_mask(2, device="meta").device.type == "meta"


def test_window_by_hand():
    assert window_mask(4, before=1, after=0).int().tolist() == [
        [1, 0, 0, 0],
        [1, 1, 0, 0],
        [0, 1, 1, 0],
        [0, 0, 1, 1],
    ]
    assert window_mask(4, before=0, after=2).int().tolist() == [
        [1, 1, 1, 0],
        [0, 1, 1, 1],
        [0, 0, 1, 1],
        [0, 0, 0, 1],
    ]


def test_a_window_without_reach_is_the_query_itself():
    assert torch.equal(window_mask(S, before=0), torch.eye(S, dtype=torch.bool))


def test_the_window_aligns_the_last_query_with_the_last_key():
    # Two newest of five tokens, at positions 3 and 4; aligned with the first they stood at 0 and 1.
    assert window_mask(2, 5, before=1).int().tolist() == [[0, 0, 1, 1, 0], [0, 0, 0, 1, 1]]
    assert window_mask(1, 5, before=1, after=1).int().tolist() == [[0, 0, 0, 1, 1]]


def test_the_window_of_a_query_before_the_first_key():
    # Four queries, two keys: they stand at positions −2, −1, 0 and 1.
    assert window_mask(4, 2, before=1).int().tolist() == [[0, 0], [0, 0], [1, 0], [1, 1]]
    assert window_mask(4, 2, before=0, after=1).int().tolist() == [[0, 0], [1, 0], [1, 1], [0, 1]]


@repeatable
@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 7), st.integers(0, 7))
def test_the_window_is_the_inequality(n_queries, n_keys, before, after):
    mask = window_mask(n_queries, n_keys, before=before, after=after)
    assert mask.dtype == torch.bool
    assert mask.shape == (n_queries, n_keys)
    for t in range(n_queries):
        position = t + n_keys - n_queries
        for s in range(n_keys):
            assert mask[t, s].item() == (position - before <= s <= position + after)
        if position >= 0:
            assert mask[t, position]


@repeatable
@given(st.integers(0, 6), st.integers(0, 6), st.integers(0, 7), st.integers(0, 7))
def test_a_window_is_two_half_windows_and_all_of_the_past_is_causal(
    n_queries, n_keys, before, after
):
    far = n_queries + n_keys
    causal = window_mask(n_queries, n_keys, before=far)
    assert torch.equal(causal, causal_mask(n_queries, n_keys))
    halves = combine_masks(
        window_mask(n_queries, n_keys, before=before, after=far),
        window_mask(n_queries, n_keys, before=far, after=after),
    )
    assert torch.equal(halves, window_mask(n_queries, n_keys, before=before, after=after))


@pytest.mark.parametrize("far", [2**62, 2**63, 10**30, np.uint64(2**63), np.int8(127)])
def test_a_window_of_any_reach(far):
    assert torch.equal(window_mask(T, S, before=far), causal_mask(T, S))
    assert window_mask(T, S, before=far, after=far).all()
    assert torch.equal(window_mask(np.uint8(T), np.uint8(2), before=far), causal_mask(T, 2))


def test_window_device():
    assert window_mask(2, before=0, device="meta").device.type == "meta"


@pytest.mark.parametrize("name", ["n_queries", "n_keys", "before", "after"])
def test_windows_that_are_no_sizes(name):
    sizes = {"n_queries": T, "n_keys": S, "before": 1, "after": 1}
    with pytest.raises(ValueError, match=f"^{name}=-1 is negative; pass an int of at least 0$"):
        window_mask(**sizes | {name: -1})
    for bad in (2.0, True, "2"):
        message = re.escape(f"{name}={bad!r} is not a whole number; pass an int of at least 0")
        with pytest.raises(TypeError, match=f"^{message}$"):
            window_mask(**sizes | {name: bad})
    with pytest.raises(TypeError, match="before=None is not a whole number"):
        window_mask(T, before=None)


def test_padding_by_hand():
    mask = padding_mask([2, 0, 3], n_keys=3)
    assert mask.int().tolist() == [[[[1, 1, 0]]], [[[0, 0, 0]]], [[[1, 1, 1]]]]
    assert mask.dtype == torch.bool


@pytest.mark.parametrize(
    "lengths",
    [
        (1, 4),
        np.array([1, 4]),
        torch.tensor([1, 4]),
        torch.tensor([1, 4], dtype=torch.uint8),
        torch.tensor([1, 4], dtype=torch.int32),
        torch.tensor([1, 4], dtype=torch.uint16),
        torch.tensor([1, 4], dtype=torch.uint64),
    ],
)
def test_padding_takes_any_whole_numbers(lengths):
    assert padding_mask(lengths, S).flatten(1).int().tolist() == [[1, 0, 0, 0, 0], [1, 1, 1, 1, 0]]
    assert list(lengths) == [1, 4]


def test_padding_is_made_where_the_lengths_are():
    lengths = torch.tensor([1, 4])
    with torch.device("meta"):  # what is made without naming a device has no numbers here
        mask = padding_mask(lengths, S)
    assert torch.equal(mask, padding_mask([1, 4], S))


@repeatable
@given(st.lists(st.integers(0, 6), max_size=4), st.integers(6, 8))
def test_padding_counts_back_to_the_lengths(lengths, n_keys):
    mask = padding_mask(lengths, n_keys)
    assert mask.shape == (len(lengths), 1, 1, n_keys)
    assert mask.sum(-1).flatten().tolist() == lengths
    assert torch.equal(mask, mask.sort(-1, descending=True).values)  # the padding stands behind


@pytest.mark.parametrize("bad", [-1, 6, 2**70])
def test_padding_lengths_out_of_range(bad):
    message = re.escape(f"lengths holds {bad}, outside 0 to n_keys=5")
    with pytest.raises(ValueError, match=message):
        padding_mask([2, bad], n_keys=5)
    if bad < 2**63:
        with pytest.raises(ValueError, match=message):
            padding_mask(torch.tensor([2, bad]), n_keys=5)


@pytest.mark.parametrize("bad", [2, None, np.array(2)])
def test_padding_lengths_that_are_no_list(bad):
    with pytest.raises(TypeError, match=re.escape(f"lengths={bad!r} is no list; pass ints in a")):
        padding_mask(bad, n_keys=5)


def test_padding_lengths_that_are_no_whole_numbers():
    with pytest.raises(TypeError, match=r"lengths holds 2\.0, which is not a whole number"):
        padding_mask([1, 2.0], 5)
    with pytest.raises(TypeError, match="lengths holds True"):
        padding_mask([True], 5)
    with pytest.raises(TypeError, match=r"torch\.float32; pass whole numbers"):
        padding_mask(torch.tensor([1.0]), 5)
    with pytest.raises(TypeError, match=r"torch\.bool; pass whole numbers.*mask\.sum\(-1\)"):
        padding_mask(torch.ones(2, 5, dtype=torch.bool), 5)
    with pytest.raises(ValueError, match=r"lengths has shape \(2, 1\); pass rank 1"):
        padding_mask(torch.tensor([[1], [2]]), 5)


@pytest.mark.parametrize("bad", [2.0, True, "2"])
def test_sizes_that_are_no_whole_numbers(bad):
    with pytest.raises(TypeError, match=re.escape(f"n_queries={bad!r} is not a whole number")):
        causal_mask(bad)
    with pytest.raises(TypeError, match=re.escape(f"n_keys={bad!r} is not a whole number")):
        causal_mask(2, bad)
    with pytest.raises(TypeError, match=re.escape(f"n_keys={bad!r} is not a whole number")):
        padding_mask([1], bad)


def test_negative_sizes():
    with pytest.raises(ValueError, match="n_queries=-1 is negative; pass an int of at least 0"):
        causal_mask(-1)
    with pytest.raises(ValueError, match="n_keys=-2 is negative; pass an int of at least 0"):
        causal_mask(1, -2)


def test_combine_by_hand():
    both = combine_masks(causal_mask(3), padding_mask([3, 1], n_keys=3))
    assert both[0, 0].int().tolist() == [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert both[1, 0].int().tolist() == [[1, 0, 0], [1, 0, 0], [1, 0, 0]]
    assert both.shape == (2, 1, 3, 3)


def test_combine_skips_none():
    mask = causal_mask(3)
    assert combine_masks() is None
    assert combine_masks(None, None) is None
    assert torch.equal(combine_masks(None, mask, None), mask)


def test_combine_leaves_its_arguments_alone():
    one, other = torch.ones(T, S, dtype=torch.bool), torch.zeros(T, S, dtype=torch.bool)
    combine_masks(one, other)
    assert one.all()
    assert not other.any()


def test_combine_is_and_in_any_order():
    generator = torch.Generator().manual_seed(0)
    shapes = [(T, S), (B, 1, 1, S), (1, H, T, 1), (B, H, T, S)]
    masks = [torch.rand(shape, generator=generator) < 0.7 for shape in shapes]
    expected = masks[0] & masks[1] & masks[2] & masks[3]
    assert torch.equal(combine_masks(*masks), expected)
    assert torch.equal(combine_masks(*reversed(masks)), expected)


@pytest.mark.parametrize(
    ("one", "other"), [((3, 5), (5, 3)), ((3, 5), (1, 5)), ((2, 1, 3, 5), (3, 1, 1, 5))]
)
def test_combine_refuses_masks_that_do_not_broadcast(one, other):
    message = re.escape(f"masks of shape {one} and {other} do not broadcast")
    with pytest.raises(ValueError, match=message):
        combine_masks(torch.ones(one) > 0, torch.ones(other) > 0)


def test_combine_never_stretches_a_mask_of_rank_2():
    with pytest.raises(ValueError, match="do not broadcast"):
        combine_masks(torch.ones(B, 1, T, S) > 0, torch.ones(1, S) > 0)


def test_combine_checks_each_mask():
    with pytest.raises(TypeError, match=r"mask has dtype torch\.float32"):
        combine_masks(causal_mask(3), torch.ones(3, 3))
    with pytest.raises(ValueError, match="mask has rank 3"):
        combine_masks(torch.ones(2, 3, 3) > 0)


@pytest.mark.parametrize("shape", [(T, S), (1, 1, 1, 1), (B, 1, 1, S), (1, H, 1, S), (B, H, T, S)])
def test_masks_that_fit(shape):
    assert check_mask(torch.ones(shape, dtype=torch.bool), (B, H, T, S)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.uint8])
def test_a_mask_of_numbers_is_refused(dtype):
    with pytest.raises(TypeError, match=f"{dtype}, but a mask is bool, True = may attend"):
        check_mask(torch.ones(T, S, dtype=dtype), (B, H, T, S))


def test_a_mask_that_is_no_tensor_is_refused():
    with pytest.raises(TypeError, match="mask is a list; pass a torch tensor of dtype bool"):
        check_mask([[True]], (1, 1, 1, 1))
    with pytest.raises(TypeError, match="mask is a ndarray"):
        check_mask(np.ones((T, S), dtype=bool), (B, H, T, S))


@pytest.mark.parametrize("shape", [(S,), (B, T, S), (1, B, H, T, S)])
def test_other_ranks_are_refused(shape):
    with pytest.raises(ValueError, match=rf"mask has rank {len(shape)}, .*mask\[:, None\]"):
        check_mask(torch.ones(shape, dtype=torch.bool), (B, H, T, S))


def test_a_rank_is_refused_under_the_name_of_its_argument():
    assert check_mask_rank("bias", torch.ones(T, S)) is None
    with pytest.raises(ValueError, match=r"^bias has rank 3, shape \(2, 3, 5\); .*bias\[None\]$"):
        check_mask_rank("bias", torch.ones(B, T, S))


def test_a_padding_mask_of_rank_2_is_told_to_use_padding_mask():
    message = r"mask has shape \(2, 5\).*\(3, 5\); for padding.*padding_mask\(lengths, n_keys\)"
    with pytest.raises(ValueError, match=message):
        check_mask(torch.ones(B, S, dtype=torch.bool), (B, H, T, S))


@pytest.mark.parametrize("shape", [(1, S), (T, 1), (S, T)])
def test_rank_2_is_exactly_queries_by_keys(shape):
    with pytest.raises(ValueError, match=r"a mask of rank 2 is \(T, S\) = \(3, 5\)"):
        check_mask(torch.ones(shape, dtype=torch.bool), (B, H, T, S))


@pytest.mark.parametrize("shape", [(B, T, 1, S), (T, 1, T, S), (1, 1, S, T)])
def test_rank_4_must_broadcast(shape):
    with pytest.raises(ValueError, match=r"does not broadcast to the weights' \(2, 7, 3, 5\)"):
        check_mask(torch.ones(shape, dtype=torch.bool), (B, H, T, S))


def test_a_mask_may_not_enlarge_the_weights():
    # torch would broadcast these two; a batch of 1 would silently become a batch of 2.
    with pytest.raises(ValueError, match="does not broadcast"):
        check_mask(torch.ones(B, 1, T, S, dtype=torch.bool), (1, H, T, S))
    with pytest.raises(ValueError, match="does not broadcast"):
        check_mask(torch.ones(1, 1, T, S, dtype=torch.bool), (T, S))
