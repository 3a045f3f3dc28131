"""Checks of chapter 7, concatenation and W_O."""

import torch

from mha.exercises.frame import call, compare
from mha.heads import merge_heads

W_O = torch.tensor([[1, 0, 3], [2, 1, 0], [5, 2, 1], [1, 0, 2]]).double()  # (H d) D = 4 3
Z_0, Z_1 = torch.tensor([2.0, 1]).double(), torch.tensor([1.0, 4]).double()  # d each


def contribution(answer):
    """07.1: what head 1 of two contributes to one token's output, from pencil and paper."""
    z = torch.cat([Z_0, Z_1])
    mistakes = {
        "That is the whole output; only head 1's part is asked for.": z @ W_O,
        "That is the contribution of head 0: heads count from 0.": Z_0 @ W_O[:2],
        "Those are the first two rows of W_O: head 1 owns the last two.": Z_1 @ W_O[:2],
        "That is head 0's row with head 1's rows of W_O.": Z_0 @ W_O[2:],
        "Head 1 owns the last two rows, not every second one.": Z_1 @ W_O[1::2],
        "The rows are taken in the reverse order: 1 belongs to the third row, 4 to the fourth.":
            Z_1.flip(0) @ W_O[2:],
        "That adds up head 1's rows of W_O without weighing them.": W_O[2:].sum(0),
    }
    compare(answer, Z_1 @ W_O[2:], mistakes)
    return "Head 1 owns the last two rows of W_O."


def merge_and_mix(answer):
    """07.2: a function (z, w_o) -> B T D, without mha."""
    for shape in (3, 2, 5, 4, 8), (2, 5, 3, 7, 11):  # two sizes: a number in the code shows
        _check_merge_and_mix(answer, *shape)
    return "Concatenate and multiply, or multiply and add: the same."


def _check_merge_and_mix(answer, batch, n_heads, n_tokens, d_head, d_model):
    generator = torch.Generator().manual_seed(7)
    z = torch.randn(batch, n_heads, n_tokens, d_head, generator=generator, dtype=torch.float64)
    w_o = torch.randn(n_heads * d_head, d_model, generator=generator, dtype=torch.float64)
    blocks = w_o.view(n_heads, d_head, d_model)
    right = merge_heads(z) @ w_o
    strided = z.permute(0, 2, 3, 1).flatten(2)  # B T (d H)
    mistakes = {
        "The transpose is missing: a reshape of B H T d cuts across heads. Transpose heads and "
        "tokens first.": z.reshape(batch, n_tokens, -1) @ w_o,
        "The columns are merged as (d H): head h's d numbers stay together, (H d).": strided @ w_o,
        "W_O is missing: that is the concatenation.": merge_heads(z),
        "Every head is multiplied by the block of head 0.": (z @ blocks[0]).sum(1),
        "The contributions are averaged: add them up.": right / n_heads,
        "The contributions are not added up: sum over the heads.": z @ blocks,
        "That is the contribution of head 0 alone.": z[:, 0] @ blocks[0],
        "The heads are added up before W_O: each has its own block of rows.":
            z.sum(1) @ blocks.sum(0),
        "This is T before B: the batch comes first.": right.transpose(0, 1),
    }
    if d_model == n_heads * d_head:
        mistakes["w_o is given as the formula has it, (H d) D: do not transpose it."] = (
            merge_heads(z) @ w_o.T)
    compare(call(answer, z, w_o), right, mistakes)


def new_w_o(answer):
    """07.3: a function (w_o, order) -> the w_o of the layer whose head i was head order[i]."""
    for d_head, d_model, order in (2, 6, [2, 0, 1]), (3, 11, [1, 4, 0, 2, 3]):
        _check_new_w_o(answer, d_head, d_model, order)
    return "The heads stand in another order, and the output is the same: a sum has no order."


def _check_new_w_o(answer, d_head, d_model, order):
    generator = torch.Generator().manual_seed(3)
    n_heads, width = len(order), len(order) * d_head
    w_o = torch.randn(width, d_model, generator=generator, dtype=torch.float64)
    blocks = w_o.view(n_heads, d_head, d_model)
    inverse = torch.tensor(order).argsort()
    strided = w_o.view(d_head, n_heads, d_model)[:, order].flatten(0, 1)
    mistakes = {
        "That is the way back: block i of the new w_o is block order[i] of the old one.":
            blocks[inverse].flatten(0, 1),
        "Unchanged, each head would meet the rows of another.": w_o,
        "A head owns d rows that stand together; those are every H-th row.": strided,
        "The blocks are right; fuse them again into a matrix of H·d rows.": blocks[order],
        "The heads are in the reverse order: the order is given.": blocks.flip(0).flatten(0, 1),
        "That takes single rows, one a head: a head owns d of them.": w_o[order],
    }
    if d_model == width:
        mistakes["Heads own rows of w_o; those are columns."] = (
            w_o.view(d_model, n_heads, d_head)[:, order].flatten(1))
    compare(call(answer, w_o, order), blocks[order].flatten(0, 1), mistakes)


CHECKS = {"07.1": contribution, "07.2": merge_and_mix, "07.3": new_w_o}
