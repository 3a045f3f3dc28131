"""Chapter 2: right answers written several ways pass, usual mistakes are named."""

import math

import numpy as np
import pytest
import torch

from mha import example
from mha.exercises import check

X = example.X.double()
Z_MAT = [0.8452, 1.1545, 0.4895, 0.1801]


@pytest.mark.parametrize("form", [list, tuple, np.array, torch.tensor],
                         ids=["list", "tuple", "array", "tensor"])
def test_numbers_may_come_in_any_form(form):
    verdict = check("02.1", form(Z_MAT))
    assert verdict.right is True


def test_weights_rounded_to_two_decimals_are_good_enough():
    assert check("02.1", [0.85, 1.15, 0.48, 0.18]).right is True


def test_a_wrong_shape_is_named():
    verdict = check("02.1", [Z_MAT])
    assert verdict.right is False and "The shape is (1, 4); (4,) is asked for" in verdict.text


@pytest.mark.parametrize(("answer", "says"), [
    ([0.090, 0.245, 0.665], "These are the weights"),
    ([2.0, 4.0, 2.0, 0.0], "softmax is missing"),
    ([0.4246, 1.5752, 1.3305, 0.1801], "first token"),
    ("about one", "this str can't be read as numbers"),
    ([10**400] * 4, "can't be read as numbers"),
    (torch.zeros(4, device="meta"), "this Tensor can't be read as numbers"),
    ([z + 5j for z in Z_MAT], "these are complex"),
    ([0.8791, 1.1209, 0.6144, 0.3726], "divided by d_k, 4"),
    ([math.nan] * 4, "not finite"),
    ([0.9, 1.1, 0.5, 0.2], "the largest difference is 0.05"),
])
def test_wrong_numbers_are_named(answer, says):
    verdict = check("02.1", answer)
    assert verdict.right is False and says in verdict.text, verdict


def right_one_head(x, w_q, w_k, w_v):
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    return (q @ k.mT / k.shape[-1] ** 0.5).softmax(-1) @ v


def with_einsum(x, w_q, w_k, w_v):
    logits = torch.einsum("...td,...sd->...ts", x @ w_q, x @ w_k) / math.sqrt(w_k.shape[1])
    powers = (logits - logits.amax(-1, keepdim=True)).exp()
    return torch.einsum("...ts,...sd->...td", powers / powers.sum(-1, keepdim=True), x @ w_v)


def with_torch(x, w_q, w_k, w_v):
    return torch.nn.functional.scaled_dot_product_attention(x @ w_q, x @ w_k, x @ w_v)


@pytest.mark.parametrize("answer", [right_one_head, with_einsum, with_torch])
def test_one_head_may_be_written_several_ways(answer):
    assert check("02.2", answer).right is True


def without_keepdim(logits):
    powers = logits.exp()
    return powers / powers.sum(-1)[:, None]


def _scores(x, w_q, w_k):
    return (x @ w_q) @ (x @ w_k).mT


@pytest.mark.parametrize(("answer", "says"), [
    (lambda x, q, k, v: _scores(x, q, k).softmax(-1) @ (x @ v), "aren't scaled"),
    (lambda x, q, k, v: (_scores(x, q, k) / x.shape[-1] ** 0.5).softmax(-1) @ (x @ v),
     "uses the model width D"),
    (lambda x, q, k, v: (_scores(x, q, k) / 3).softmax(-1) @ (x @ v), "square root is asked for"),
    (lambda x, q, k, v: (_scores(x, q, k) / 3**0.5).softmax(-2) @ (x @ v), "over the queries"),
    (lambda x, q, k, v: (_scores(x, q, k) / 3**0.5).softmax(0) @ (x @ v), "over the batch"),
    (lambda x, q, k, v: (_scores(x, k, q) / 3**0.5).softmax(-1) @ (x @ v), "are swapped"),
    (lambda x, q, k, v: (_scores(x, q, k) / 3**0.5) @ (x @ v), "softmax is missing"),
    (lambda x, q, k, v: (_scores(x, q, k) / 3**0.5).softmax(-1), "multiply them by the values"),
    (lambda x, q, k, v: (_scores(x, q, k) / 2).softmax(-1) @ (x @ v), "divided by 2"),
    (lambda x, q, k, v: (_scores(x, q, k) / 5**0.5).softmax(-1) @ (x @ v), "divided by √T"),
    (lambda x, q, k, v: (_scores(x, q, k) / 3**0.5).flatten(1).softmax(-1).view(2, 5, 5) @ (x @ v),
     "over the whole matrix"),
    (lambda x, q, k, v: without_keepdim(_scores(x, q, k) / 3**0.5) @ (x @ v), "keepdim=True"),
    (lambda x, q, k, v: (_scores(x, q, k) / 3**0.5).softmax(-1) @ x, "average their values"),
    (lambda x, q, k, v: (x @ q) @ (x @ k).T, "use transpose(-2, -1)"),
    (lambda x, q, k, v: None, "is a `return` missing?"),
    (lambda x, q, k, v: x @ q.T, "Called with shapes (2, 5, 7), (7, 3), (7, 3), (7, 3), your"),
    (lambda x, q, k, v: torch.bmm(x, x), "(7, 3), your function raised RuntimeError"),
    (lambda x, q, k, v: (_scores(x, q, k) / 3**0.5).softmax(-1) @ (x @ v), "largest difference"),
    (lambda x, q, k, v: (right_one_head(x, q, k, v), x), "returns a tuple of 2 parts"),
    (lambda x: x, "raised TypeError"),
    (torch.zeros(2, 5, 3), "A function is asked for"),
    (lambda x, q, k, v: right_one_head(x, q, k, v)[..., :2], "The shape is (2, 5, 2); (2, 5, 3)"),
    (lambda x, q, k, v: right_one_head(x.reshape(-1, x.shape[-2], 7), q, k, v),
     "differs on a single sequence"),
])
def test_mistakes_in_one_head_are_named(answer, says):
    verdict = check("02.2", answer)
    assert verdict.right is False and says in verdict.text, verdict


def test_looking_back():
    w_k = torch.linalg.pinv(X)
    w_q = 12 * w_k @ torch.eye(3, dtype=X.dtype)[[0, 0, 1]]
    assert check("02.3", (w_q, w_k)).right is True
    assert check("02.3", [w_q.numpy(), w_k.tolist()]).right is True
    for answer, says in [
        ((12 * w_k @ torch.eye(3, dtype=X.dtype)[[1, 2, 2]], w_k), "looks at the next one"),
        ((0.1 * w_q, w_k), "make the scores larger"),
        ((0.4 * w_q, w_k), "the smallest of them is 0.889"),
        ((12 * w_k @ torch.eye(3, dtype=X.dtype)[[1, 0, 1]], w_k), "cat looks most at sat"),
        ((w_q, w_k[:, :2]), "w_q has 3 columns and w_k has 2"),
        ((w_q.T, w_k), "w_q has shape (3, 4); it needs 4 rows"),
        ((X.T, torch.linalg.pinv(X)), "cat looks most at cat"),
        ((0 * w_q, w_k), "sat looks most at no single token"),
        ((1e200 * w_q, 1e200 * w_k), "The weights are not finite"),
        (w_q, "A pair is asked for"),
    ]:
        verdict = check("02.3", answer)
        assert verdict.right is False and says in verdict.text, verdict
