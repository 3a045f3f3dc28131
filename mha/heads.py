"""Cut a width into heads, let heads be shared, and glue them together again.

The only reshapes of heads in the package live here. Splitting and merging move an axis as well: a
lone `view(B, H, T, d)` has the right shape and the wrong numbers, because it cuts along the tokens.
"""

from numbers import Integral

import numpy as np
import torch


def split_heads(x, n_heads):
    """Cut the last axis into heads: B T (H d) → B H T d.

    Head h owns the columns h·d … (h+1)·d − 1 of `x`, so z[b, h, t, i] = x[b, t, h·d + i]
    (Vaswani et al. 2017, §3.2.2: head_i has its own d_k columns of the projection).

    Parameters
    ----------
    x : Tensor, B T (H d)
    n_heads : int, at least 1; must divide the last axis of x

    Returns
    -------
    Tensor, B H T d : a view, no number is copied

    Raises
    ------
    TypeError, ValueError
        No tensor of rank 3, or a width that n_heads does not divide.

    Examples
    --------
    >>> x = torch.arange(8).view(1, 2, 4)  # two tokens of width 4
    >>> split_heads(x, 2).tolist()         # head 0: columns 0, 1; head 1: columns 2, 3
    [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]
    """
    if not isinstance(x, torch.Tensor) or x.ndim != 3:
        raise _wrong_rank("x", x, "B T (H d)", 3)
    batch, n_tokens, width = x.shape
    d_head = head_width("the last axis of x", width, n_heads)
    # Naming every size makes torch refuse a wrong one; a −1 would make it fit.
    return x.view(batch, n_tokens, n_heads, d_head).transpose(1, 2)  # B H T d


def merge_heads(z):
    """Put the heads side by side again: B H T d → B T (H d), the inverse of `split_heads`.

    This is the Concat(head_1, …, head_h) of Vaswani et al. 2017, §3.2.2.

    Parameters
    ----------
    z : Tensor, B H T d

    Returns
    -------
    Tensor, B T (H d) : token t holds head 0's d numbers, then head 1's, and so on

    Raises
    ------
    TypeError, ValueError
        No tensor of rank 4.

    Examples
    --------
    >>> x = torch.arange(8).view(1, 2, 4)
    >>> torch.equal(merge_heads(split_heads(x, 2)), x)
    True
    """
    if not isinstance(z, torch.Tensor) or z.ndim != 4:
        raise _wrong_rank("z", z, "B H T d", 4)
    # flatten copies only where the memory is not in this order already.
    return z.transpose(1, 2).flatten(start_dim=2)  # B T H d → B T (H d)


def share_heads(x, n_heads):
    """Let each of K key/value heads serve H / K query heads: B K S d → B H S d.

    Head g becomes the heads g·H/K … (g+1)·H/K − 1, as by `repeat_interleave`, not by `repeat`.
    (Grouped-query attention, Ainslie et al. 2023, §2.2; multi-query, K = 1, Shazeer 2019, §3.)

    Parameters
    ----------
    x : Tensor, B K S d, keys or values
    n_heads : int, H, the query heads; K must divide it

    Returns
    -------
    Tensor, B H S d : x itself where K = H, a view where K = 1, else a copy

    Raises
    ------
    TypeError, ValueError
        No tensor of rank 4, or heads that do not divide n_heads.

    Examples
    --------
    >>> k = torch.tensor([10, 20]).view(1, 2, 1, 1)  # two key heads of one key
    >>> share_heads(k, 4).flatten().tolist()
    [10, 10, 20, 20]
    """
    if not isinstance(x, torch.Tensor) or x.ndim != 4:
        raise _wrong_rank("x", x, "B K S d", 4)
    n_heads = check_count("n_heads", n_heads)
    n_kv_heads = x.shape[1]
    group = head_width("n_heads", n_heads, n_kv_heads, "the head count of x")
    if group == 1:
        return x
    if n_kv_heads == 1:
        return x.expand(-1, n_heads, -1, -1)  # B H S d, every head in the same memory
    shared = x[:, :, None].expand(-1, -1, group, -1, -1)  # B K H/K S d
    return shared.flatten(1, 2)  # B H S d


def head_width(name, width, n_heads, count="n_heads"):
    """Return width / n_heads; raise where that is no whole number, naming the counts that fit.

    >>> head_width("d_model", 10, 3)
    Traceback (most recent call last):
    ValueError: d_model=10 is not divisible by n_heads=3; try 1, 2, 5 or 10
    """
    n_heads = check_count(count, n_heads)
    if width % n_heads:
        *others, last = (str(n) for n in range(1, width + 1) if width % n == 0)
        fitting = f"{', '.join(others)} or {last}" if others else last
        raise ValueError(f"{name}={width} is not divisible by {count}={n_heads}; try {fitting}")
    return width // n_heads


def check_count(name, value):
    """Return `value` as an int; raise unless it is a whole number of at least 1.

    An int, because the sizes are multiplied: a small integer of NumPy would wrap around.
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(f"{name}={value!r} is not a whole number; pass an int of at least 1")
    if value < 1:
        raise ValueError(f"{name}={value} is less than 1; pass an int of at least 1")
    return int(value)


def check_flag(name, value):
    """Raise unless `value` is True or False, Python's or NumPy's."""
    if not isinstance(value, bool | np.bool_):
        hint = ", and hand a mask over as mask=" if name == "is_causal" else ""
        raise TypeError(f"{name} is a {type(value).__name__}; pass True or False{hint}")


def _wrong_rank(name, value, axes, rank):
    if not isinstance(value, torch.Tensor):
        return TypeError(f"{name} is a {type(value).__name__}; pass a torch tensor, {axes}")
    return ValueError(
        f"{name} has shape {tuple(value.shape)}, rank {value.ndim}; pass rank {rank}, {axes}"
    )
