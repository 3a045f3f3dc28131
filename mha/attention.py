"""Attention in named steps, scores → logits → weights → z: every other way is held against it."""

import math
from numbers import Real

import torch
import torch.nn.functional as F
from torch.autograd.forward_ad import unpack_dual
from torch.func import debug_unwrap

from mha.heads import check_flag
from mha.masks import causal_mask, check_mask, combine_masks


def attention_scores(q, k):
    """Compare each query with each key by their dot product: scores[t, s] = q[t] · k[s].

    The scores are raw: not scaled, masked or normalised yet (QKᵀ, Vaswani et al. 2017, equation 1).

    Parameters
    ----------
    q : Tensor, B H T d; any number of leading axes is taken, here and below
    k : Tensor, B H S d

    Returns
    -------
    Tensor, B H T S

    Raises
    ------
    TypeError, ValueError
        Dtypes, widths or leading axes of q and k that differ.

    Examples
    --------
    >>> q = torch.tensor([[1, 0], [2, 1]])
    >>> k = torch.tensor([[1, 1], [0, 3], [2, 0]])
    >>> attention_scores(q, k).tolist()
    [[1, 0, 2], [3, 3, 4]]
    """
    _check_pair(q, k)
    return q @ k.transpose(-2, -1)  # B H T S


def masked_softmax(logits, mask=None):
    """Turn each row of logits into weights: weights[t, s] = exp(logits[t, s]) / Σ_visible exp.

    A hidden key gets exactly 0, and each row sums to 1. A row that may see no key is all zero:
    exp(−∞) / 0 would be NaN, in the gradient too. So the logits of an empty row are 0 before the
    softmax and its weights are set to 0 after it; its gradient is zero. Half precision keeps its
    dtype: torch sums in float32 inside the softmax and rounds the result.

    Parameters
    ----------
    logits : Tensor of floats, B H T S
    mask : bool Tensor, (T, S) or broadcasting to (B, H, T, S), True = may attend; or None

    Returns
    -------
    Tensor, B H T S

    Examples
    --------
    >>> logits = torch.zeros(2, 3)
    >>> mask = torch.tensor([[True, True, False], [False, False, False]])
    >>> masked_softmax(logits, mask).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    """
    _check_floats("logits", logits)
    check_mask(mask, logits.shape)
    return _softmax(logits, mask, overwrite=False)


def scaled_dot_product_attention(q, k, v, mask=None, *, scale=None, dropout=0.0, is_causal=False):
    """Average the values, weighted by how well each key answers the query.

    logits = scale · q kᵀ;  weights = softmax(logits) over the visible keys;  z = weights v
    (Vaswani et al. 2017, equation 1). A query that may see no key has zero weights and z = 0.
    The rounding is the dtype's: in half precision the logits are rounded before the softmax.

    Parameters
    ----------
    q, k, v : Tensor, B H T d, B H S d and B H S d_v, of one float dtype
    mask : bool Tensor, (T, S) or broadcasting to (B, H, T, S), True = may attend; or None
    scale : float; None means 1/√d
    dropout : float in [0, 1), the share of weights dropped; applied whenever it is not 0
    is_causal : bool; and-ed with `mask`: the last query sees the last key (`causal_mask`)

    Returns
    -------
    z, weights : Tensor, B H T d_v and B H T S; the weights are those before dropout

    Examples
    --------
    >>> q, k = torch.tensor([[0.0]]), torch.tensor([[1.0], [2.0]])
    >>> scaled_dot_product_attention(q, k, v=torch.tensor([[4.0], [8.0]]))
    (tensor([[6.]]), tensor([[0.5000, 0.5000]]))
    """
    check_attention_inputs(q, k, v, mask, dropout=dropout, is_causal=is_causal)
    if is_causal:
        mask = combine_masks(mask, causal_mask(q.shape[-2], k.shape[-2], device=q.device))
    # Scaling q scales every score: T·d products instead of T·S, and no second T·S tensor.
    logits = attention_scores(q * scale_or_default(scale, q), k)  # B H T S
    weights = _softmax(logits, mask, overwrite=_may_overwrite(logits, mask))  # B H T S
    kept = F.dropout(weights, float(dropout)) if dropout else weights
    return kept @ v, weights  # B H T d_v, B H T S


def _softmax(logits, mask, *, overwrite):
    """Compute `masked_softmax` of checked input, in the memory of `logits` if `overwrite`."""
    out = logits if overwrite else None
    if mask is None:
        return torch.softmax(logits, dim=-1, out=out)
    sees = mask.any(dim=-1, keepdim=True)  # … T 1, whether the row may see a key at all
    fill = torch.where(sees, -math.inf, 0.0).to(logits.dtype)  # 0 keeps an empty row finite
    visible = torch.where(mask, logits, fill, out=out)
    weights = torch.softmax(visible, dim=-1, out=out)
    return torch.mul(weights, sees, out=out)


def _may_overwrite(logits, mask):
    """Whether the weights may take the logits' memory: nobody differentiates or transforms."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    transformed = any(t is not None and debug_unwrap(t) is not t for t in (logits, mask))  # vmap
    return not transformed and unpack_dual(logits).tangent is None  # no forward mode either


def scale_or_default(scale, q):
    """Return `scale` as a float, or 1/√d for None: the variance of q · k is then 1 for any d."""
    if scale is None:
        return 1 / math.sqrt(q.shape[-1])
    if isinstance(scale, bool) or not isinstance(scale, Real):
        raise TypeError(f"scale={scale!r} is not a number; pass a float, or None for 1/√d")
    try:
        scale = float(scale)
    except OverflowError:  # a whole number or a fraction beyond the largest float
        scale = math.inf
    if not math.isfinite(scale):
        raise ValueError(f"scale={scale} is not finite; pass a finite float, or None for 1/√d")
    return scale


def check_attention_inputs(q, k, v, mask, *, dropout, is_causal):
    """Raise unless attention is defined for these; every implementation asks here first."""
    _check_pair(q, k)
    _check_floats("q", q)
    _check_tensor("v", v, q)
    if v.shape[:-1] != k.shape[:-1]:
        raise ValueError(
            f"v has shape {tuple(v.shape)}, k has {tuple(k.shape)}; give every key one value: "
            "all axes but the last must agree"
        )
    check_mask(mask, (*q.shape[:-1], k.shape[-2]))
    check_dropout(dropout)
    check_flag("is_causal", is_causal)


def check_dropout(dropout):
    """Raise unless `dropout` is a number in [0, 1)."""
    if isinstance(dropout, bool) or not isinstance(dropout, Real):
        raise TypeError(f"dropout={dropout!r} is not a number; pass a float in [0, 1)")
    if not 0 <= dropout < 1:  # written so that NaN fails too
        raise ValueError(f"dropout={dropout} is outside [0, 1); pass 0.0 to drop nothing")


def _check_pair(q, k):
    _check_tensor("q", q, q)
    _check_tensor("k", k, q)
    if q.shape[:-2] != k.shape[:-2]:
        raise ValueError(
            f"q has shape {tuple(q.shape)}, k has {tuple(k.shape)}; "
            "the axes before the last two (batch, heads) must agree"
        )
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"q has width {q.shape[-1]}, k has width {k.shape[-1]}; "
            "a dot product needs equal widths: project both to one d"
        )


def _check_tensor(name, value, q):
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}; pass a torch tensor, B H T d")
    if value.ndim < 2 or value.shape[-1] == 0:
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}; pass (…, tokens, width) with a width of at "
            "least 1; a single vector becomes one token with [None, :]"
        )
    if value.dtype != q.dtype:
        raise TypeError(
            f"{name} has dtype {value.dtype}, q has {q.dtype}; convert one: {name}.to(q.dtype)"
        )


def _check_floats(name, value):
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{name} is a {type(value).__name__}; pass a torch tensor of floats")
    if not value.is_floating_point():
        raise TypeError(f"{name} has dtype {value.dtype}; the softmax needs floats: {name}.float()")
