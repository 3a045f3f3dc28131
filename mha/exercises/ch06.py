"""Checks of chapter 6, splitting one projection into heads."""

import torch

from mha.attention import scaled_dot_product_attention
from mha.exercises.frame import Wrong, call, compare
from mha.heads import split_heads

N_HEADS, D_HEAD = 5, 7  # five heads of seven: no axis can be taken for another


def split(answer):
    """06.1: a function (x, n_heads) -> B H T d, without mha."""
    x = torch.arange(2.0 * 3 * N_HEADS * D_HEAD).reshape(2, 3, N_HEADS * D_HEAD)  # B T (H d)
    mistakes = {
        "The shape is right and the numbers are not: `view` to B H T d cuts across tokens. "
        "View as B T H d, then transpose.": x.reshape(2, N_HEADS, 3, D_HEAD),
        "The transpose is missing: this is B T H d.": x.reshape(2, 3, N_HEADS, D_HEAD),
        "Head h has every H-th column: heads are blocks of d columns, so H comes before d "
        "in the view.": x.reshape(2, 3, D_HEAD, N_HEADS).permute(0, 3, 1, 2),
        "This splits into n_heads wide heads: n_heads is the number of heads, not their width.":
            x.reshape(2, 3, D_HEAD, N_HEADS).transpose(1, 2),
        "Batch and heads are swapped: B comes first.": split_heads(x, N_HEADS).transpose(0, 1),
        "This is B H d T: the last two axes are swapped.": split_heads(x, N_HEADS).mT,
    }
    compare(call(answer, x, N_HEADS), split_heads(x, N_HEADS), mistakes)
    return "Two steps, one view and one transpose, and no number moved in memory."


def head_rows(answer):
    """06.2: the rows of q_proj.weight (16 × 16, 4 heads) that belong to head 2."""
    if isinstance(answer, slice):
        answer = list(range(16))[answer]
    if isinstance(answer, (range, set)):
        answer = sorted(answer)
    mistakes = {
        "That is head 1 in code: heads are counted from 0.": [4, 5, 6, 7],
        "That is head 3 in code: heads are counted from 0.": [12, 13, 14, 15],
        "Those are every fourth row: a head is a block of neighbouring rows.": [2, 6, 10, 14],
        "That is the row where head 2 starts; a head has four rows.": 8,
        "That is the number of rows; name the rows.": 4,
        "A slice stops before its end: that is one row short.": [8, 9, 10],
        "A slice stops before its end: that is one row too many.": [8, 9, 10, 11, 12],
    }
    compare(answer, [8, 9, 10, 11], mistakes)
    return "Head h owns rows h·d … (h+1)·d of q_proj.weight, and so columns of q."


def heads_in_a_loop(answer):
    """06.3: a function (x, w_q, w_k, w_v) -> B H T d with one weight matrix a head, H D d."""
    generator = torch.Generator().manual_seed(6)
    x = torch.randn(2, 3, 11, generator=generator, dtype=torch.float64)  # B T D
    w_q, w_k, w_v = torch.randn(3, N_HEADS, 11, D_HEAD, generator=generator, dtype=torch.float64)

    def heads(x_q, x_k, x_v, scale=None):
        return scaled_dot_product_attention(x_q @ w_q, x_k @ w_k, x_v @ w_v, scale=scale)[0]

    per_head = x[:, None]  # B 1 T D
    right = heads(per_head, per_head, per_head)
    mistakes = {
        "The heads are stacked on the first axis, H B T d: stack on axis 1.":
            right.transpose(0, 1),
        "The heads are stacked behind the tokens, B T H d: stack on axis 1.":
            right.transpose(1, 2),
        "The heads are concatenated already, B T (H d): stack them on axis 1 instead.":
            right.transpose(1, 2).flatten(2),
        "The scores aren't scaled: divide them by √d, d the width of one head.":
            heads(per_head, per_head, per_head, 1.0),
        "The scale uses the model width D: each head divides by the root of its own width.":
            heads(per_head, per_head, per_head, 11**-0.5),
        "Every head uses the weights of head 0.": right[:, :1].expand_as(right),
        "The heads are summed: keep them apart.": right.sum(1),
    }
    result = call(answer, x, w_q, w_k, w_v)
    if isinstance(result, (list, tuple)) and len(result) == N_HEADS:
        raise Wrong("That is a list of heads: stack it on axis 1.")
    compare(result, right, mistakes)
    return "The loop and the batched product are the same function."


CHECKS = {"06.1": split, "06.2": head_rows, "06.3": heads_in_a_loop}
