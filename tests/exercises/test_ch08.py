"""Chapter 8: right answers written several ways pass, usual mistakes are named."""

import numpy as np
import pytest
import torch

from mha.exercises import check
from mha.reference import backward, forward


@pytest.mark.parametrize("answer", [
    [4, 2, 0], (4.0, 2, 0), np.array([4, 2, 0]), torch.tensor([4.0, 2, 0]),
])  # fmt: skip
def test_the_weights_of_sat_by_hand(answer):
    assert check("08.1", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    ([6, 2, 3], "row 2 of W_O"),
    ([4, 2, 3], "features count from 0"),
    ([2, 2, 1], "row 1 of W_O"),
    ([0, 0, 1, 2], "one step too early"),
    ([0, 0, 0.09, 0.18], "of the values of one key"),
    ([2.66, 0.18, 0], "The weights do not belong here"),
    ([0.77, -0.08, -0.70], "one step too far"),
    ([4, 2], "The shape is (2,)"),
    ([4, 2, 1], "the largest difference is 1"),
    ([4, 2, float("nan")], "not finite"),
    ("4, 2, 0", "can't be read as numbers"),
    (None, "The shape is ()"),
])  # fmt: skip
def test_wrong_weights_of_sat_are_named(answer, says):
    verdict = check("08.1", answer)
    assert verdict.right is False and says in verdict.text, verdict


@pytest.mark.parametrize("answer", [
    lambda x, d_y: x.flatten(0, 1).T @ d_y.flatten(0, 1),
    lambda x, d_y: (x.transpose(1, 2) @ d_y).sum(0),
    lambda x, d_y: torch.einsum("bti,bto->io", x, d_y),
    lambda x, d_y: torch.tensordot(x, d_y, dims=([0, 1], [0, 1])),
    lambda x, d_y: sum(torch.outer(x[b, t], d_y[b, t])
                       for b in range(len(x)) for t in range(x.shape[1])),
    lambda x, d_y: backward.d_project(d_y.numpy(), x.numpy(), np.ones((x.shape[-1], d_y.shape[-1]))
                                      )[1],
], ids=["flatten", "batched", "einsum", "tensordot", "loops", "numpy"])  # fmt: skip
def test_the_gradient_of_a_matrix_may_be_written_several_ways(answer):
    assert check("08.2", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (lambda x, d_y: x.mT @ d_y, "The sequences are not added up"),
    (lambda x, d_y: torch.einsum("bti,bto->tio", x, d_y), "The tokens are not added up"),
    (lambda x, d_y: x[..., None] * d_y[..., None, :], "Nothing is added up"),
    (lambda x, d_y: (x[..., None] * d_y[..., None, :]).mean((0, 1)), "mean over the tokens:"),
    (lambda x, d_y: (x.mT @ d_y).mean(0), "mean over the sequences"),
    (lambda x, d_y: (x.mT @ d_y).sum(0) / x.shape[1], "mean over the tokens of a sequence"),
    (lambda x, d_y: (d_y.mT @ x).sum(0), "transposed matrix, out × in"),
    (lambda x, d_y: x[0].T @ d_y[0], "the first sequence alone"),
    (lambda x, d_y: torch.outer(x.sum((0, 1)), d_y.sum((0, 1))), "before the product"),
    (lambda x, d_y: x @ d_y, "raised RuntimeError"),
    (lambda x, d_y: x.T @ d_y, "raised"),
    (lambda x, d_y: torch.full((x.shape[-1], d_y.shape[-1]), torch.nan), "not finite"),
    (lambda x, d_y: None, "returns None"),
    (lambda x, d_y: (x, d_y), "a tuple of 2 parts"),
    (lambda x: x, "raised TypeError"),
    (torch.ones(3, 3), "A function is asked for"),
])  # fmt: skip
def test_mistakes_in_the_gradient_of_a_matrix_are_named(answer, says):
    verdict = check("08.2", answer)
    assert verdict.right is False and says in verdict.text, verdict


def head(*, root=lambda d: d**0.5, average=True, axis=-1, ways="qkv", swap=False, turned=False,
         skip=False):  # fmt: skip
    """Build an answer, right or with a mistake."""

    def d_tokens(x, w_q, w_k, w_v, d_z):
        q, k, v = x @ w_q, x @ w_k, x @ w_v
        weights = torch.softmax(q @ k.T / k.shape[-1] ** 0.5, -1)
        d_weights = d_z @ v.T
        mean = (weights * d_weights).sum(axis, keepdim=True) if average else 0
        d_logits = d_weights if skip else weights * (d_weights - mean)
        d_scores = d_logits / root(k.shape[-1])
        d = {"q": d_scores @ k, "k": d_scores.T @ q, "v": weights.T @ d_z}
        if swap:
            d["q"], d["k"] = d_scores.T @ q, d_scores @ k
        w = {"q": w_q, "k": w_k, "v": w_v}
        square = turned and len(w_q) == len(w_q.T)
        return sum(d[one] @ (w[one] if square else w[one].T) for one in ways)

    return d_tokens


def by_autograd(x, w_q, w_k, w_v, d_z):
    x = x.clone().requires_grad_()
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    z = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
    return torch.autograd.grad(z, x, d_z)[0]


def by_reference(x, w_q, w_k, w_v, d_z):
    arrays = [tensor.numpy() for tensor in (x[None], x[None], w_q, w_k, w_v)]
    _, saved = forward.multi_head_attention(*arrays, np.eye(w_q.shape[1]), n_heads=1)
    slopes = backward.multi_head_attention(d_z[None].numpy(), saved)
    return (slopes.x + slopes.context)[0]


@pytest.mark.parametrize("answer", [head(), by_autograd, by_reference])
def test_the_whole_head_may_be_written_several_ways(answer):
    assert check("08.3", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (head(ways="q"), "Only the way through the queries"),
    (head(ways="k"), "Only the way through the keys"),
    (head(ways="v"), "Only the way through the values"),
    (head(ways="qk"), "The way through the values is missing"),
    (head(ways="qv"), "The way through the keys is missing"),
    (head(ways="kv"), "The way through the queries is missing"),
    (lambda *tables: head()(*tables) / 3, "The three ways are averaged"),
    (head(root=lambda d: 1), "The scale is missing"),
    (head(root=lambda d: d), "divided by d; the scale is 1/√d"),
    (head(average=False), "The softmax lacks its average: "),
    (head(average=False, root=lambda d: 1), "and the scale is missing"),
    (head(axis=-2), "down the columns"),
    (head(swap=True), "queries and keys are swapped"),
    (head(skip=True), "The softmax is skipped"),
    (head(turned=True), "A transpose is missing"),
    (lambda x, *rest: x, "the largest difference"),
    (lambda x, *rest: x * torch.nan, "not finite"),
    (lambda x, w_q, w_k, w_v, d_z: d_z @ w_v, "raised RuntimeError"),
    (lambda x, *rest: "x", "can't be read as numbers"),
    (7, "A function is asked for"),
])  # fmt: skip
def test_mistakes_in_the_whole_head_are_named(answer, says):
    verdict = check("08.3", answer)
    assert verdict.right is False and says in verdict.text, verdict
