"""Say a mask in the words of other libraries, and read theirs.

Here a mask is bool, True = may attend. BERT in `transformers` adds a bias to the logits, 0 or −∞.
nn.MultiheadAttention takes bool masks, True = blocked, in two arguments; this package's mask gives
it the opposite, without an error. F.scaled_dot_product_attention reads bool as this package does.
Both add a 0/1 mask of floats to the logits, which hides nothing.
"""

import math

import torch

from mha.heads import check_count
from mha.masks import check_mask, check_mask_rank

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)  # they have an infinity


def to_additive(mask, dtype):
    """Turn a mask into a bias for the logits: 0 where a key may be seen, −∞ where it is hidden.

    softmax(logits + bias) then gives hidden keys the weight 0, but NaN to a query that may see no
    key: exp(−∞) / 0. `mha.masked_softmax` takes the bool mask and gives such a query zeros.

    Parameters
    ----------
    mask : bool Tensor, (T, S) or broadcasting to (B, H, T, S), True = may attend; or None
    dtype : torch.dtype, that of the logits: float16, bfloat16, float32 or float64

    Returns
    -------
    Tensor of that dtype, in the shape of mask; None for None

    Raises
    ------
    TypeError, ValueError
        What is no mask, or no such dtype.

    Examples
    --------
    >>> to_additive(torch.tensor([[True, False]]), torch.float32)
    tensor([[0., -inf]])
    """
    check_mask(mask)
    if dtype not in FLOATS:
        raise TypeError(f"dtype={dtype!r} holds no bias; pass the logits' dtype, {_listed(FLOATS)}")
    return None if mask is None else torch.where(mask, 0.0, -math.inf).to(dtype)


def from_additive(bias):
    """Read a bias of the logits as a mask: 0 may attend, −∞ is hidden.

    For −∞ also stands torch.finfo(bias.dtype).min, as in `transformers`, and all down from half of
    it. Any other value would change the weights of keys that stay visible, so it is refused. The
    values are read: on a GPU this waits for them.

    Parameters
    ----------
    bias : Tensor of floats, (T, S) or broadcasting to (B, H, T, S); or None

    Returns
    -------
    Tensor, bool, True = may attend, in the shape of bias; None for None

    Raises
    ------
    TypeError, ValueError
        No tensor of floats, another rank, or a value of another kind, NaN included.

    Examples
    --------
    >>> from_additive(torch.tensor([[0.0, -torch.inf, -3e38]]))
    tensor([[ True, False, False]])
    """
    if bias is None:
        return None
    if not isinstance(bias, torch.Tensor):
        raise TypeError(f"bias is a {type(bias).__name__}; pass a torch tensor of floats")
    if bias.dtype not in FLOATS:
        raise TypeError(
            f"bias has dtype {bias.dtype}, an additive mask holds floats, 0 and -inf; a bool mask "
            "with True = may attend needs no conversion, a 0/1 mask becomes one as mask == 1"
        )
    check_mask_rank("bias", bias)
    visible = bias == 0
    least = torch.finfo(bias.dtype).min / 2
    other = bias[~(visible | (bias <= least))]  # NaN is neither
    if len(other):
        raise ValueError(
            f"bias holds {other[0].item()}, neither 0 (may attend) nor at most {least:.3g} "
            "(hidden); a position bias is not a mask. If 0 alone means may attend, bias == 0 is "
            "the mask"
        )
    return visible


def to_torch_mha(mask, n_heads):
    """Write a mask as nn.MultiheadAttention takes it: bool, True = blocked, in two arguments.

    (T, S) is its attn_mask, and so is (1, 1, T, S) with T > 1: one rule for all. (B, 1, 1, S) is
    its key_padding_mask. Any other is written out as attn_mask (B·H, T, S), index b·H + h.

    nn.MultiheadAttention stretches no axis; only H is filled in here. But for the B of (1, 1, T, S)
    and the T of (B, 1, 1, S), an axis of length 1 is taken at its word: one sequence, one query or
    one key. Where there are more, torch refuses the call; convert mask.expand(B, -1, T, S) then.
    For a query that may see no key it can give NaN, where this package gives b_O.

    Parameters
    ----------
    mask : bool Tensor, (T, S) or broadcasting to (B, H, T, S), True = may attend; or None
    n_heads : int, H

    Returns
    -------
    dict, attn_mask and key_padding_mask, one of them None at least: module(x, x, x, **dict)

    Examples
    --------
    >>> to_torch_mha(torch.tensor([[[[True, True, False]]]]), n_heads=2)
    {'attn_mask': None, 'key_padding_mask': tensor([[False, False,  True]])}
    """
    check_mask(mask)
    check_count("n_heads", n_heads)
    blocked = {"attn_mask": None, "key_padding_mask": None}
    if mask is None:
        return blocked
    if mask.ndim == 2:
        return blocked | {"attn_mask": ~mask}  # T S
    batch, heads, n_queries, _ = mask.shape
    if heads not in (1, n_heads):
        raise ValueError(
            f"mask has shape {tuple(mask.shape)}, {heads} heads, but n_heads={n_heads}; give its "
            f"axis 1 the length {n_heads}, or 1 for one rule for every head"
        )
    if heads == n_queries == 1:
        return blocked | {"key_padding_mask": ~mask[:, 0, 0]}  # B S
    if batch == heads == 1:
        return blocked | {"attn_mask": ~mask[0, 0]}  # T S
    per_head = mask.expand(-1, n_heads, -1, -1)  # B H T S
    return blocked | {"attn_mask": ~per_head.flatten(0, 1)}  # (B H) T S


def _listed(values):
    *others, last = map(str, values)
    return f"{', '.join(others)} or {last}"
