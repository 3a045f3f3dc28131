"""Chapter 7: right answers written several ways pass, usual mistakes are named."""

import numpy as np
import pytest
import torch

from mha import MultiHeadAttention
from mha.exercises import check


@pytest.mark.parametrize("answer", [[9, 2, 9], (9.0, 2, 9), np.array([9, 2, 9])])
def test_the_contribution_by_hand(answer):
    assert check("07.1", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    ([13, 3, 15], "the whole output"),
    ([4, 1, 6], "heads count from 0"),
    ([9, 4, 3], "Those are the first two rows"),
    ([11, 4, 4], "head 0's row with head 1's rows"),
    ([21, 8, 6], "reverse order"),
    ([6, 1, 8], "not every second one"),
    ([6, 2, 3], "without weighing them"),
    ([9, 2, 9, 0], "The shape is (4,)"),
    ([9, 2, 8], "the largest difference is 1"),
])
def test_wrong_contributions_are_named(answer, says):
    verdict = check("07.1", answer)
    assert verdict.right is False and says in verdict.text, verdict


def blocks(z, w_o):
    return w_o.view(z.shape[1], z.shape[3], -1)  # H d D


def concat(z):
    return z.transpose(1, 2).reshape(len(z), z.shape[2], -1)


@pytest.mark.parametrize("answer", [
    lambda z, w: concat(z) @ w,
    lambda z, w: (z @ blocks(z, w)).sum(1),
    lambda z, w: torch.einsum("bhtd,hdo->bto", z, blocks(z, w)),
    lambda z, w: torch.cat(list(z.unbind(1)), dim=-1) @ w,
    lambda z, w: np.concatenate(list(z.numpy().transpose(1, 0, 2, 3)), axis=-1) @ w.numpy(),
], ids=["concatenate", "add", "einsum", "cat", "numpy"])
def test_merge_and_mix_may_be_written_several_ways(answer):
    assert check("07.2", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (lambda z, w: z.reshape(len(z), z.shape[2], -1) @ w, "The transpose is missing"),
    (lambda z, w: z.permute(0, 2, 3, 1).flatten(2) @ w, "merged as (d H)"),
    (lambda z, w: concat(z), "W_O is missing"),
    (lambda z, w: (z @ blocks(z, w)[0]).sum(1), "the block of head 0"),
    (lambda z, w: (z @ blocks(z, w)).mean(1), "are averaged"),
    (lambda z, w: z @ blocks(z, w), "not added up"),
    (lambda z, w: z[:, 0] @ blocks(z, w)[0], "head 0 alone"),
    (lambda z, w: z.sum(1) @ blocks(z, w).sum(0), "before W_O"),
    (lambda z, w: (concat(z) @ w).transpose(0, 1), "the batch comes first"),
    (lambda z, w: concat(z) @ w.T, "do not transpose it"),
    (lambda z, w: w @ concat(z), "raised RuntimeError"),
])
def test_mistakes_in_merge_and_mix_are_named(answer, says):
    verdict = check("07.2", answer)
    assert verdict.right is False and says in verdict.text, verdict


def in_blocks(w, order):
    return w.view(len(order), -1, w.shape[1])  # H d D


def rows_in(order, d):
    return [h * d + c for h in order for c in range(d)]


@pytest.mark.parametrize("answer", [
    lambda w, order: in_blocks(w, order)[order].flatten(0, 1),
    lambda w, order: w[rows_in(order, len(w) // len(order))],
    lambda w, order: torch.cat([in_blocks(w, order)[h] for h in order]),
    lambda w, order: np.concatenate([in_blocks(w, order).numpy()[h] for h in order]),
], ids=["blocks", "rows", "cat", "numpy"])
def test_reordered_heads_may_be_written_several_ways(answer):
    assert check("07.3", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (lambda w, order: in_blocks(w, order)[np.argsort(order)].flatten(0, 1), "That is the way back"),
    (lambda w, order: w, "Unchanged, each head"),
    (lambda w, order: w.view(-1, len(order), w.shape[1])[:, order].flatten(0, 1), "every H-th row"),
    (lambda w, order: in_blocks(w, order)[order], "fuse them again"),
    (lambda w, order: in_blocks(w, order).flip(0).flatten(0, 1), "in the reverse order"),
    (lambda w, order: w[order], "single rows"),
    (lambda w, order: w.T.view(len(order), -1, len(w))[order].flatten(0, 1).T, "those are columns"),
    (lambda w, order: w.view(3, 2, 6)[order].flatten(0, 1), "raised RuntimeError"),
    (lambda w, order: None, "returns None"),
])
def test_mistakes_in_reordered_heads_are_named(answer, says):
    verdict = check("07.3", answer)
    assert verdict.right is False and says in verdict.text, verdict


def test_the_new_w_o_is_that_of_the_reordered_layer():
    d_model, order, d = 15, [1, 4, 0, 2, 3], 3
    layer = MultiHeadAttention(d_model, len(order))
    rows, other = rows_in(order, d), MultiHeadAttention(d_model, len(order))
    numbers = layer.state_dict()
    for name in ("q_proj.weight", "k_proj.weight", "v_proj.weight"):
        numbers[name] = numbers[name][rows]
    w_o = in_blocks(numbers["out_proj.weight"].T, order)[order].flatten(0, 1)
    other.load_state_dict(numbers | {"out_proj.weight": w_o.T})
    x = torch.randn(2, 7, d_model)
    torch.testing.assert_close(other(x), layer(x))

