"""Say who may attend to whom.

A mask is a bool tensor, True = may attend. Its rank says what it means: rank 2 is (T, S), one
rule for every sequence and head; rank 4 broadcasts to (B, H, T, S). Rank 3 is refused, because
its first axis could be the batch or the heads.

A mask hides finite scores only: a hidden key is computed all the same, its score q · k and on the
way back dz · v, then weighted by 0, and 0 · ∞ = 0 · NaN = NaN. So a NaN or an infinity in a hidden
key or value can reach the output or the gradient, as in torch's attention, and so can a finite one
whose product overflows the dtype. Overwrite it first: `x.masked_fill(is_padding[..., None], 0)`.
"""

from numbers import Integral

import torch


def causal_mask(n_queries, n_keys=None, *, device=None):
    """Let no query see a key that comes after it.

    Query i may see key j where j ≤ i + (S − T): the last query sees the last key. So T queries
    against S > T keys are the newest T of S tokens, as in decoding; with T > S the first T − S
    queries see no key. (Vaswani et al. 2017, §3.2.3, has T = S only.)

    Parameters
    ----------
    n_queries, n_keys : int, T and S; n_keys None means S = T
    device : where the mask is made

    Returns
    -------
    Tensor, bool T S

    Raises
    ------
    TypeError, ValueError
        A size that is no whole number or is negative.

    Examples
    --------
    >>> causal_mask(2, 3).int().tolist()  # keys 0 1 2, queries 1 2
    [[1, 1, 0], [1, 1, 1]]
    """
    n_keys = n_queries if n_keys is None else n_keys
    _check_size("n_queries", n_queries)
    _check_size("n_keys", n_keys)
    everything = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return everything.tril(int(n_keys) - int(n_queries))  # T S; NumPy's unsigned would wrap


def window_mask(n_queries, n_keys=None, *, before, after=0, device=None):
    """Let each query see its neighbours only: itself, `before` keys before it and `after` after it.

    Query i stands at p = i + (S − T), the last query at the last key, as in `causal_mask`; it sees
    key j where p − before ≤ j ≤ p + after, so itself always. With T > S the first T − S queries
    stand before key 0 and see only what `after` reaches. (Vaswani et al. 2017, §4, "restricted".)

    Parameters
    ----------
    n_queries, n_keys : int, T and S; n_keys None means S = T
    before, after : int, in tokens, at least 0
    device : where the mask is made

    Returns
    -------
    Tensor, bool T S

    Raises
    ------
    TypeError, ValueError
        A size or a reach that is no whole number or is negative.

    Examples
    --------
    >>> window_mask(3, before=1).int().tolist()
    [[1, 0, 0], [1, 1, 0], [0, 1, 1]]
    """
    n_keys = n_queries if n_keys is None else n_keys
    sizes = {"n_queries": n_queries, "n_keys": n_keys, "before": before, "after": after}
    for name, value in sizes.items():
        _check_size(name, value)
    n_queries, n_keys, before, after = map(int, sizes.values())
    farthest = n_queries + n_keys  # no key is farther away; torch takes no larger whole numbers
    offset, before, after = n_keys - n_queries, min(before, farthest), min(after, farthest)
    everything = torch.ones(n_queries, n_keys, dtype=torch.bool, device=device)
    return everything.tril(offset + after).triu(offset - before)  # T S


def padding_mask(lengths, n_keys):
    """Hide the padding behind each sequence: sequence b has `lengths[b]` real keys.

    Key j of sequence b may be seen where j < lengths[b], by every query of every head. A
    sequence of length 0 has no visible key; its weights and its z are then zero.

    Parameters
    ----------
    lengths : sequence of int, or integer tensor, B; each from 0 to n_keys
    n_keys : int, S

    Returns
    -------
    Tensor, bool B 1 1 S, on the device of `lengths` if that is a tensor

    Raises
    ------
    TypeError, ValueError
        Lengths that are not whole numbers, not of rank 1 or out of range.

    Examples
    --------
    >>> padding_mask([1, 3], n_keys=3).int().tolist()
    [[[[1, 0, 0]]], [[[1, 1, 1]]]]
    """
    _check_size("n_keys", n_keys)
    counts, device = _whole_numbers(lengths)
    outside = [count for count in counts if not 0 <= count <= n_keys]
    if outside:
        raise ValueError(
            f"lengths holds {outside[0]}, outside 0 to n_keys={n_keys}; "
            "count the real tokens of each sequence, or raise n_keys"
        )
    counts = torch.tensor(counts, dtype=torch.int64, device=device)  # B
    positions = torch.arange(n_keys, device=device)  # S
    return (positions < counts[:, None])[:, None, None, :]  # B 1 1 S


def combine_masks(*masks):
    """Return the logical and of the masks: a key is seen where every mask lets it be seen.

    Parameters
    ----------
    *masks : bool Tensor of rank 2 (T, S) or rank 4 (B, H, T, S, each may be 1), or None

    Returns
    -------
    Tensor, bool, or None where every mask is None ("nothing is hidden")

    Raises
    ------
    TypeError, ValueError
        A mask that is not bool, has another rank or does not broadcast.

    Examples
    --------
    >>> both = combine_masks(causal_mask(2), None, padding_mask([1, 2], n_keys=2))
    >>> both.shape, both[0, 0].int().tolist()
    (torch.Size([2, 1, 2, 2]), [[1, 0], [1, 0]])
    """
    combined = None
    for mask in masks:
        if mask is None:
            continue
        check_mask(mask)
        if combined is not None and not _broadcast_together(combined, mask):
            raise ValueError(
                f"masks of shape {tuple(combined.shape)} and {tuple(mask.shape)} do not "
                "broadcast; build both for the same (T, S) or (B, H, T, S)"
            )
        combined = mask if combined is None else combined & mask
    return combined


def check_mask(mask, shape=None):
    """Raise unless `mask` is None, or a bool mask that fits weights of `shape` (…, T, S)."""
    if mask is None:
        return
    if not isinstance(mask, torch.Tensor):
        raise TypeError(
            f"mask is a {type(mask).__name__}; pass a torch tensor of dtype bool, True = may attend"
        )
    if mask.dtype != torch.bool:
        raise TypeError(
            f"mask has dtype {mask.dtype}, but a mask is bool, True = may attend; pass mask == 1 "
            "where 1 means may attend, mask == 0 where 1 means hidden or the mask is additive "
            "(0 and -inf)"
        )
    check_mask_rank("mask", mask)
    if shape is None:
        return
    if mask.ndim == 2 and mask.shape != shape[-2:]:
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, but a mask of rank 2 is (T, S) = "
            f"{tuple(shape[-2:])}; for padding, (B, S), use padding_mask(lengths, n_keys) or pass "
            "mask[:, None, None, :]"
        )
    if mask.ndim == 4 and not _broadcasts(mask.shape, shape):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, which does not broadcast to the weights' "
            f"{tuple(shape)}; give each axis of a rank-4 mask, (B, H, T, S), that size or 1"
        )


def check_mask_rank(name, mask):
    """Raise unless the tensor has rank 2 or 4."""
    if mask.ndim not in (2, 4):
        raise ValueError(
            f"{name} has rank {mask.ndim}, shape {tuple(mask.shape)}; a mask is (T, S) or "
            f"broadcasts to (B, H, T, S): if its first axis is the batch pass {name}[:, None], "
            f"if it is the heads pass {name}[None]"
        )


def _broadcasts(small, shape):
    # Stricter than torch: the mask may not make the weights larger.
    return len(small) == len(shape) and all(m in (1, n) for m, n in zip(small, shape, strict=True))


def _broadcast_together(one, other):
    # From the last axis on: S meets S and T meets T. Only a rank-4 mask may be stretched.
    sizes = zip(reversed(one.shape), reversed(other.shape), strict=False)
    return all(
        a == b or (a == 1 and one.ndim == 4) or (b == 1 and other.ndim == 4) for a, b in sizes
    )


def _whole_numbers(lengths):
    """Return lengths as a list of int, and their device; raise unless they are whole numbers."""
    if isinstance(lengths, torch.Tensor):
        if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
            raise TypeError(
                f"lengths has dtype {lengths.dtype}; pass whole numbers: from a bool mask (B, S) "
                "count them with mask.sum(-1)"
            )
        if lengths.ndim != 1:
            raise ValueError(f"lengths has shape {tuple(lengths.shape)}; pass rank 1, (B,)")
        return lengths.tolist(), lengths.device
    try:
        lengths = list(lengths)
    except TypeError:
        raise TypeError(f"lengths={lengths!r} is no list; pass ints in a list or tensor") from None
    for length in lengths:
        if isinstance(length, bool) or not isinstance(length, Integral):
            raise TypeError(f"lengths holds {length!r}, which is not a whole number; pass ints")
    return [int(length) for length in lengths], None


def _check_size(name, value):
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} is not a whole number; pass an int of at least 0")
    if value < 0:
        raise ValueError(f"{name}={value} is negative; pass an int of at least 0")
