"""Checks of chapter 6, splitting one projection into heads."""

import numpy as np
import torch

from mha.attention import scaled_dot_product_attention
from mha.exercises.frame import Wrong, as_array, call, compare
from mha.heads import split_heads


def split(answer):
    """06.1: a function (x, n_heads) -> B H T d, without mha."""
    for shape in (2, 3, 5, 7), (3, 2, 4, 1):  # two sizes: a number written into the code shows
        _check_split(answer, *shape)
    return "One view and one transpose do it, and move no number in memory."


def _check_split(answer, batch, n_tokens, n_heads, d_head):
    width = n_heads * d_head
    x = torch.arange(1.0 * batch * n_tokens * width).view(batch, n_tokens, width)  # B T (H d)
    right = split_heads(x, n_heads)
    mistakes = {
        "The shape is right and the numbers are not: `view` to B H T d cuts across tokens. "
        "View as B T H d, then transpose.": x.view(batch, n_heads, n_tokens, d_head),
        "The transpose is missing: this is B T H d.": x.view(batch, n_tokens, n_heads, d_head),
        "Head h has every H-th column: heads are blocks of d columns, so H comes before d "
        "in the view.": x.view(batch, n_tokens, d_head, n_heads).permute(0, 3, 1, 2),
        "This splits into n_heads wide heads: n_heads is the number of heads, not their width.":
            x.view(batch, n_tokens, d_head, n_heads).transpose(1, 2),
        "Batch and heads are swapped: B comes first.": right.transpose(0, 1),
        "This is B H d T: the last two axes are swapped.": right.mT,
    }
    compare(call(answer, x, n_heads), right, mistakes)


def head_rows(answer):
    """06.2: the rows of q_proj.weight (16 × 16, 4 heads) that belong to head 2."""
    rows = _rows(answer)
    mistakes = {
        "That is head 1 in code: heads are counted from 0.": [4, 5, 6, 7],
        "That is head 3 in code: heads are counted from 0.": [12, 13, 14, 15],
        "Those are every fourth row: a head is a block of neighbouring rows.": [2, 6, 10, 14],
        "Those are rows counted from 1; code counts from 0.": [9, 10, 11, 12],
        "That is where head 2 starts and where it stops; name all of its rows.": [8, 12],
        "That is the row where head 2 starts; a head has four rows.": 8,
        "That is the number of rows; name the rows.": 4,
        "A slice stops before its end: that is one row short.": [8, 9, 10],
        "A slice stops before its end: that is one row too many.": [8, 9, 10, 11, 12],
    }
    compare(rows, [8, 9, 10, 11], mistakes)
    return "Head h owns the rows h·d … (h+1)·d − 1 of q_proj.weight, and those columns of q."


def _rows(answer):
    """The row numbers that an index names: a slice, a range, a set, a mask, an index tuple."""
    if isinstance(answer, tuple) and answer and not isinstance(answer[0], int):
        answer = answer[0]  # np.s_[8:12, :] and np.where(...)
    if isinstance(answer, slice):
        try:
            return list(range(16)[answer])
        except TypeError:
            raise Wrong("The ends of the slice must be whole numbers.") from None
    if isinstance(answer, (range, set, frozenset)):
        return np.sort(as_array(list(answer)))
    rows = as_array(answer)
    if rows.shape == (16,) and set(rows.tolist()) <= {0.0, 1.0}:
        return rows.nonzero()[0]
    return rows


def heads_in_a_loop(answer):
    """06.3: a function (x, w_q, w_k, w_v) -> B H T d with one weight matrix a head, H D d."""
    for shape in (2, 3, 11, 5, 7), (3, 4, 6, 2, 5):  # two sizes, as above
        _check_loop(answer, *shape)
    return "The loop and the batched product are the same function."


def _check_loop(answer, batch, n_tokens, d_model, n_heads, d_head):
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(batch, n_tokens, d_model, generator=generator, dtype=torch.float64)  # B T D
    w_q, w_k, w_v = torch.randn(3, n_heads, d_model, d_head, generator=generator,
                                dtype=torch.float64)

    def heads(scale=None):
        each = x[:, None]  # B 1 T D
        return scaled_dot_product_attention(each @ w_q, each @ w_k, each @ w_v, scale=scale)[0]

    right = heads()
    mistakes = {
        "The heads are stacked on the first axis, H B T d: stack on axis 1.":
            right.transpose(0, 1),
        "The heads are stacked behind the tokens, B T H d: stack on axis 1.":
            right.transpose(1, 2),
        "The heads are concatenated already, B T (H d): stack them on axis 1 instead.":
            right.transpose(1, 2).flatten(2),
        "The scores aren't scaled: divide them by √d, d the width of one head.": heads(1.0),
        "The scale uses the model width D: each head divides by the root of its own width.":
            heads(d_model**-0.5),
        "Every head uses the weights of head 0.": right[:, :1].expand_as(right),
        "The heads are summed: keep them apart.": right.sum(1),
    }
    compare(call(answer, x, w_q, w_k, w_v), right, mistakes)


CHECKS = {"06.1": split, "06.2": head_rows, "06.3": heads_in_a_loop}
