"""Checks of chapter 5, masks."""

import math

import numpy as np
import torch

from mha.attention import masked_softmax
from mha.exercises.frame import Wrong, as_array, call, compare
from mha.masks import causal_mask, combine_masks, padding_mask


def by_hand(answer):
    """05.1: the mask of four places, causal, the last one filler; 1 = may attend."""
    past = causal_mask(4)
    real = padding_mask([3], 4)[0, 0]  # 1 S
    right = combine_masks(past, real.expand(4, 4))
    mistakes = {
        "That is inverted: here 1 means may attend.": ~right,
        "That is triu with diagonal=1, the places after: as 1 = may attend it shows the future and "
        "hides the past.": past.T & ~torch.eye(4, dtype=torch.bool),
        "That shows the future and hides the past: row i may see the columns up to i.":
            past.T & real,
        "The filler is hidden on the query axis, a row; what must not be seen is a key, a column.":
            past & real.T,
        "The filler is hidden as a query as well: its row may stay, nobody reads its output.":
            right & real.T,
        "The future is hidden, the filler is not: nobody may see the last column.": past,
        "The filler is hidden, the future is not.": real.expand(4, 4),
        "A token may see itself: the diagonal is visible, but for the filler.":
            past.tril(-1) & real,
        "That is the or of the two masks: a key is seen where both let it be seen.": past | real,
    }
    compare(answer, right, mistakes)
    return "Columns are keys: the filler is a column, the future a triangle."


def safe_softmax(answer):
    """05.2: a function (logits, mask) -> weights; a row without a key is 0, gradients finite."""
    for shape in (3, 5), (7, 2):
        _check_safe_softmax(answer, *shape)
    return "Harmless before the softmax, zero after it: value and gradient are finite."


def _check_safe_softmax(answer, n_queries, n_keys):
    generator = torch.Generator().manual_seed(5)
    logits = torch.randn(n_queries, n_keys, generator=generator, dtype=torch.float64)
    mask = causal_mask(n_queries, n_keys)
    mask[:, 0] = True
    mask[1] = False  # the row without a key
    row = torch.arange(n_queries) == 1
    right = masked_softmax(logits, mask)
    given = logits.clone().requires_grad_()
    result = call(answer, given, mask)
    uniform = right.clone()
    uniform[1] = 1 / n_keys
    late = logits.softmax(-1) * mask
    unmasked = right.clone()
    unmasked[1] = logits[1].softmax(-1)
    inverted = masked_softmax(logits, ~mask)
    array = as_array(result)
    rest = ~row.numpy()
    if array.shape == right.shape and np.isnan(array[1]).all() and not np.isnan(array[rest]).any():
        compare(array[rest], right[~row], {
            "The mask is inverted: True means may attend.": inverted[~row],
            "The mask comes after the softmax: those rows do not sum to 1.": late[~row],
        })
        raise Wrong("The row without a key is NaN, 0/0: give it finite logits before the softmax "
                    "and set its weights to 0 after it.")
    compare(array, right, {
        "The mask comes after the softmax: those rows do not sum to 1.": late,
        "The row without a key is uniform, filler included: a large negative number cancels where "
        "every key has it. Set its weights to 0.": uniform,
        "The row without a key sees every key: set its weights to 0 after the softmax.": unmasked,
        "The mask is inverted: True means may attend.": inverted,
        "The mask is inverted: True means may attend; and a row without a key is to be 0.":
            logits.masked_fill(mask, -math.inf).softmax(-1).nan_to_num(),
        "The mask is not used.": logits.softmax(-1),
        "That is the softmax of the columns: each row sums to 1, dim=-1.":
            logits.masked_fill(~mask, -math.inf).softmax(0),
    })
    if not isinstance(result, torch.Tensor) or not result.requires_grad:
        raise Wrong("The values are right, but no gradient passes through: stay with torch, "
                    "without detach.")
    weighing = torch.randn(right.shape, generator=generator, dtype=torch.float64)
    (gradient,) = torch.autograd.grad((result * weighing).sum(), given, allow_unused=True)
    if gradient is None or not gradient.isfinite().all():
        raise Wrong("The values are right, but the gradient is not finite: a NaN that is replaced "
                    "on the way forward returns on the way back. Give the row finite logits before "
                    "the softmax.")


def decoding_mask(answer):
    """05.3: a function (n_queries, n_keys) -> bool T S, the last query at the last key."""
    for n_queries, n_keys in (3, 5), (4, 4), (1, 3):
        _check_decoding_mask(answer, n_queries, n_keys)
    return "The last query sees the last key, and so every key."


def _check_decoding_mask(answer, n_queries, n_keys):
    right = causal_mask(n_queries, n_keys)
    everything = torch.ones_like(right)
    result = call(answer, n_queries, n_keys)
    compare(result, right, {
        "That is aligned top-left: query 0 stands at key 0. The queries are the newest, and the "
        "last one must see every key.": everything.tril(),
        "That is inverted, True = blocked: here True means may attend.": ~right,
        "That is triu with diagonal=1: as True = may attend it shows the future only.":
            everything.triu(1),
        "The diagonal is off by one: each query may see itself.":
            everything.tril(n_keys - n_queries - 1),
        "The diagonal is off by one: a query sees the key after its own.":
            everything.tril(n_keys - n_queries + 1),
        "Rows are queries and columns keys: this is the transpose.": right.T,
        "Nothing is hidden.": everything,
    })
    dtype = str(getattr(result, "dtype", type(result).__name__))
    if dtype not in ("torch.bool", "bool"):
        raise Wrong(f"The values are right, but their type is {dtype}: numbers would be added to "
                    "the logits. Return bool.")


CHECKS = {"05.1": by_hand, "05.2": safe_softmax, "05.3": decoding_mask}
