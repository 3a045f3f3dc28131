"""Chapter 4: right answers written several ways pass, usual mistakes are named."""

import numpy as np
import pytest
import torch

from mha.exercises import check

RIGHT = [[0.25, -0.15, -0.1], [-0.15, 0.21, -0.06], [-0.1, -0.06, 0.16]]
P = np.array([0.5, 0.3, 0.2])
OWN = np.eye(3, dtype=bool)


@pytest.mark.parametrize("answer", [
    RIGHT, np.array(RIGHT), torch.tensor(RIGHT), [tuple(row) for row in RIGHT],
    torch.autograd.functional.jacobian(lambda t: t.softmax(-1), torch.tensor(P).log()),
], ids=["list", "array", "tensor", "tuples", "autograd"])
def test_the_jacobian_by_hand(answer):
    assert check("04.1", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (np.where(OWN, -P[:, None] * P, (P * (1 - P))[:, None]), "swapped: p_i (1 − p_i) belongs on"),
    (np.where(OWN, -P[:, None] * P, P * (1 - P)), "swapped: p_j (1 − p_j) belongs on"),
    (P[:, None] * (1 - OWN - P), "swapped: p_i (1 − p_j) belongs on"),
    (-np.array(RIGHT), "All signs are turned round"),
    (np.abs(RIGHT), "The signs beside the diagonal are missing"),
    (np.diag(P * (1 - P)), "Beside the diagonal is not 0"),
    (P * (1 - P), "the diagonal alone"),
    (np.outer(P, P), "That is p pᵀ"),
    (-np.outer(P, P), "diag(p) is missing"),
    (np.diag(P), "p pᵀ has to be taken off"),
    ([[0.25, -0.15, -0.1]], "The shape is (1, 3)"),
    ([[0.25, -0.15, -0.1], [-0.15, 0.21, -0.06], [-0.1, -0.06, 0.17]], "difference is 0.01"),
    ([[float("nan")] * 3] * 3, "not finite"),
    ([[1, 2], [3]], "can't be read as numbers"),
    ("J", "can't be read as numbers"),
    (lambda p: p, "can't be read as numbers"),
])
def test_wrong_jacobians_are_named(answer, says):
    verdict = check("04.1", answer)
    assert verdict.right is False and says in verdict.text, verdict


def table(p):
    return torch.diag_embed(p) - p[..., :, None] * p[..., None, :]


def swapped(p, beside):
    products = p[..., :, None] * p[..., None, :]
    return torch.where(torch.eye(p.shape[-1], dtype=torch.bool), -products, beside)


def average(p, g):
    return (p * g).sum(-1, keepdim=True)


@pytest.mark.parametrize("answer", [
    lambda p, g: p * (g - average(p, g)),
    lambda p, g: p * g - p * average(p, g),
    lambda p, g: (table(p) @ g[..., None])[..., 0],
    lambda p, g: torch.einsum("...ij,...i->...j", table(p), g),
    lambda p, g: p.numpy() * (g.numpy() - np.sum((p * g).numpy(), -1, keepdims=True)),
    lambda p, g: torch._softmax_backward_data(g, p, -1, p.dtype),
], ids=["average", "expanded", "table", "einsum", "numpy", "torch"])
def test_backward_may_be_written_several_ways(answer):
    assert check("04.2", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (lambda p, g: p * g, "The average is missing"),
    (lambda p, g: p * (1 - p) * g, "the diagonal of J times g"),
    (lambda p, g: p * (g - g.mean(-1, keepdim=True)), "counts every weight alike"),
    (lambda p, g: p * (g - g.sum(-1, keepdim=True)), "is no average"),
    (lambda p, g: g - average(p, g), "The factor p in front is missing"),
    (lambda p, g: p * (g - (p * g).sum()), "The sum runs over everything"),
    (lambda p, g: p * (g - (p * g).sum(-2, keepdim=True)), "The sum runs over the rows"),
    (lambda p, g: p * (average(p, g) - g), "The signs are turned round"),
    (lambda p, g: (p * g).sum(-1), "That is the average of each row"),
    (lambda p, g: g, "the gradient of the weights themselves"),
    (lambda p, g: (swapped(p, (p * (1 - p))[..., None]).mT @ g[..., None])[..., 0],
     "swapped: p_i (1 − p_i)"),
    (lambda p, g: (swapped(p, (p * (1 - p))[..., None, :]).mT @ g[..., None])[..., 0],
     "swapped: p_j (1 − p_j)"),
    (lambda p, g: p * (g - (p * g).sum(-1)), "raised RuntimeError"),
    (lambda p, g: p * (g - average(p, g)) if p.ndim > 1 else p * g, "differs on a single row"),
    (lambda p, g: p * float("nan"), "not finite"),
    (lambda p, g: (p, g), "returns a tuple"),
    (lambda p, g: None, "is a `return` missing?"),
    (3, "A function is asked for"),
])
def test_mistakes_in_backward_are_named(answer, says):
    verdict = check("04.2", answer)
    assert verdict.right is False and says in verdict.text, verdict


@pytest.mark.parametrize("answer", [
    [400, 400, 0, 0, 0],
    np.array([-300.0, 0, -300, 0, -200]),
    torch.tensor([7, -900, 7, 0, -5]),
    (1000, 1000.001, -1000, -2000, 5),
])
def test_far_apart_and_awake(answer):
    assert check("04.3", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    ([400, 0, 0, 0, 0], "One logit dominates, with the weight 1.000"),
    ([400, 400, 400, 0, 0], "3 logits share the weight, and the norm is 0.471"),
    ([400, 399, 0, 0, 0], "bring the two largest logits closer together"),
    ([9, 9, 0, 0, 0], "the logits spread by 4.41 only"),
    ([5, 5, 5, 5, 5], "the logits spread by 0 only"),
    ([400, 400, 0, 0], "five numbers are asked for"),
    ([[400, 400, 0, 0, 0]], "The shape is (1, 5)"),
    ([float("inf"), 0, 0, 0, 0], "not finite"),
    ([float("nan")] * 5, "not finite"),
    ("five", "can't be read as numbers"),
    (None, ""),
    (7, "The shape is ()"),
    ([True, False, True, False, True], "only"),
])
def test_wrong_rows_are_named(answer, says):
    verdict = check("04.3", answer)
    assert verdict.right is False and says in verdict.text, verdict


@pytest.mark.parametrize("number", ["04.1", "04.2", "04.3"])
def test_no_answer_yet(number):
    assert check(number, ...).right is None
