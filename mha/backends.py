"""Compute the same attention in other ways, at other costs in time and memory.

Every backend takes q, k, v as B H T d, B H S d, B H S d and gives `(z, weights)`; `weights` is
None unless `return_weights`. A backend does what its name says, on every call.

Results agree up to the dtype's rounding as long as every score q · k fits the dtype. Beyond it
they part: float16 ends at 65504, and there "loop" and "explicit" hold an infinite score, while
"fused" may keep its scores in float32 and give a finite z.
"""

from itertools import repeat

import torch
import torch.nn.functional as F

from mha.attention import (
    attention_scores,
    check_attention_inputs,
    masked_softmax,
    scale_or_default,
    scaled_dot_product_attention,
)
from mha.heads import check_flag
from mha.masks import causal_mask, combine_masks


def explicit_attention(
    q, k, v, mask=None, *, scale=None, dropout=0.0, is_causal=False, return_weights=False
):
    """Hold all weights at once: this is `scaled_dot_product_attention` itself.

    Memory grows as B·H·T·S, asked for the weights or not.

    >>> q = k = v = torch.ones(1, 1, 2, 1)
    >>> explicit_attention(q, k, v)[0].flatten().tolist()
    [1.0, 1.0]
    """
    check_flag("return_weights", return_weights)
    z, weights = scaled_dot_product_attention(
        q, k, v, mask, scale=scale, dropout=dropout, is_causal=is_causal
    )
    return z, weights if return_weights else None


def loop_attention(
    q, k, v, mask=None, *, scale=None, dropout=0.0, is_causal=False, return_weights=False
):
    """Compute one head after the other, as the formula is read.

    Memory grows as B·T·S, one head's weights at a time, without gradients; autograd, or the
    weights when asked for, keep all B·H·T·S.

    >>> q = k = v = torch.ones(1, 3, 2, 1)
    >>> loop_attention(q, k, v)[0].shape
    torch.Size([1, 3, 2, 1])
    """
    _check(q, k, v, mask, dropout, is_causal, return_weights)
    # split keeps the head axis, so that a rank-4 mask keeps its meaning; no heads are one piece.
    pieces = (tensor.split(1, dim=1) for tensor in (q, k, v))  # B 1 T d, B 1 S d, B 1 S d
    per_head = mask is not None and mask.ndim == 4 and mask.shape[1] > 1
    masks = mask.split(1, dim=1) if per_head else repeat(mask)
    z_of_heads, weights_of_heads = [], []
    for q_h, k_h, v_h, mask_h in zip(*pieces, masks, strict=False):
        z, weights = scaled_dot_product_attention(
            q_h, k_h, v_h, mask_h, scale=scale, dropout=dropout, is_causal=is_causal
        )
        z_of_heads.append(z)  # B 1 T d
        if return_weights:
            weights_of_heads.append(weights)  # B 1 T S
    z = torch.cat(z_of_heads, dim=1)  # B H T d
    return z, torch.cat(weights_of_heads, dim=1) if return_weights else None


def fused_attention(
    q, k, v, mask=None, *, scale=None, dropout=0.0, is_causal=False, return_weights=False
):
    """Call torch's built-in attention, which never holds the T·S weights (Dao et al. 2022).

    Two of its rules differ from this package and are bridged here: it aligns `is_causal` with the
    first key, not the last, and what a query with no key gets depends on the kernel.
    `return_weights` computes the weights beside it as "explicit" does, at T·S cost; where a score
    overflows the dtype they can be NaN beside a finite z. On a CPU it has no forward-mode gradient.

    >>> q = k = v = torch.ones(1, 1, 2, 1)
    >>> fused_attention(q, k, v)[0].flatten().tolist()
    [1.0, 1.0]
    """
    _check(q, k, v, mask, dropout, is_causal, return_weights)
    scale, dropout, is_causal = scale_or_default(scale, q), float(dropout), bool(is_causal)
    n_queries, n_keys = q.shape[-2], k.shape[-2]
    weights = None
    if return_weights:
        causal = causal_mask(n_queries, n_keys, device=q.device) if is_causal else None
        logits = attention_scores(q * scale, k)  # B H T S
        weights = masked_softmax(logits, combine_masks(mask, causal))  # B H T S

    # First and last key are aligned alike only where T = S; torch refuses is_causal with a mask.
    if is_causal and (mask is not None or n_queries != n_keys):
        mask = combine_masks(mask, causal_mask(n_queries, n_keys, device=q.device))
        is_causal = False
    if mask is None:
        z = F.scaled_dot_product_attention(
            q, k, v, dropout_p=dropout, is_causal=is_causal, scale=scale
        )
        return z, weights
    empty = ~mask.any(dim=-1, keepdim=True)  # … T 1, rows that may see no key
    finite = q.masked_fill(empty, 0.0)  # an empty row hides nothing, with every score 0
    z = F.scaled_dot_product_attention(
        finite, k, v, attn_mask=mask | empty, dropout_p=dropout, scale=scale
    )
    return z.masked_fill(empty, 0.0), weights  # B H T d


BACKENDS = {"loop": loop_attention, "explicit": explicit_attention, "fused": fused_attention}


def find_backend(name):
    """Return the backend of that name.

    >>> find_backend("quick")
    Traceback (most recent call last):
    ValueError: backend='quick' is not known; choose 'loop', 'explicit' or 'fused'
    """
    if not isinstance(name, str) or name not in BACKENDS:
        *others, last = map(repr, BACKENDS)
        raise ValueError(f"backend={name!r} is not known; choose {', '.join(others)} or {last}")
    return BACKENDS[name]


def _check(q, k, v, mask, dropout, is_causal, return_weights):
    check_attention_inputs(q, k, v, mask, dropout=dropout, is_causal=is_causal)
    check_flag("return_weights", return_weights)
    if q.ndim != 4:
        raise ValueError(f"q has shape {tuple(q.shape)}; a backend takes rank 4, B H T d")
