"""The checks: right answers written several ways pass, usual mistakes are named."""

import math

import numpy as np
import pytest
import torch

from mha import example
from mha.exercises import CHECKS, check
from mha.exercises.frame import Wrong, as_array, compare

X = example.X.double()
Z_MAT = [0.8452, 1.1545, 0.4895, 0.1801]


def test_nothing_answered_is_neither_right_nor_wrong():
    unanswered = [(number, ...) for number in CHECKS]
    unanswered += [("02.2", lambda *_: ...), ("02.3", (..., ...)), ("06.1", lambda *_: ...)]
    for number, answer in unanswered:
        verdict = check(number, answer)
        assert verdict.right is None
        assert repr(verdict) == (
            f"{number}: no answer yet. Replace the ... and run the cell again.")


def test_an_unknown_exercise_is_refused():
    with pytest.raises(ValueError, match=r"there is no exercise '99\.1'; there are 02\.1, 02\.2"):
        check("99.1", 1)


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
    (lambda x, q, k, v: x @ q.T, "Called with x of shape (2, 5, 7), your function raised Runtime"),
    (lambda x, q, k, v: torch.bmm(x, x), "shape (2, 5, 7), your function raised RuntimeError"),
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


def right_split(x, h):
    return x.view(*x.shape[:2], h, -1).transpose(1, 2)


@pytest.mark.parametrize("answer", [
    right_split,
    lambda x, h: torch.stack(x.chunk(h, dim=-1), dim=1),
    lambda x, h: x.unflatten(-1, (h, -1)).permute(0, 2, 1, 3).contiguous(),
    lambda x, h: np.stack(np.split(x.numpy(), h, axis=-1), axis=1),
], ids=["view", "chunk", "unflatten", "numpy"])
def test_the_split_may_be_written_several_ways(answer):
    assert check("06.1", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (lambda x, h: x.view(2, h, 3, -1), "cuts across tokens"),
    (lambda x, h: x.view(2, 3, h, -1), "transpose is missing"),
    (lambda x, h: x.view(2, 3, -1, h).permute(0, 3, 1, 2), "every H-th column"),
    (lambda x, h: x.view(2, 3, -1, h).transpose(1, 2), "not their width"),
    (lambda x, h: right_split(x, h).transpose(0, 1), "B comes first"),
    (lambda x, h: right_split(x, h).mT, "the last two axes are swapped"),
    (lambda x, h: x.chunk(h, dim=-1), "returns a tuple of 5 parts; one tensor is asked for"),
    (lambda x, h: x.view(2, 3, 5, 7).transpose(1, 2), "Called with x of shape (3, 2, 4)"),
    (lambda x, h: right_split(x, h) + 1e-3, "the largest difference is 0.001"),
    (lambda x, h: right_split(x, h)[:, :2], "The shape is (2, 2, 3, 7); (2, 5, 3, 7)"),
])
def test_mistakes_in_the_split_are_named(answer, says):
    verdict = check("06.1", answer)
    assert verdict.right is False and says in verdict.text, verdict


@pytest.mark.parametrize("answer", [
    [8, 9, 10, 11], (8, 9, 10, 11), {8, 9, 10, 11}, frozenset(range(8, 12)), range(8, 12),
    slice(8, 12), slice(-8, -4), np.s_[8:12, :], torch.arange(8, 12), np.arange(16) // 4 == 2,
    np.where(np.arange(16) // 4 == 2),
])
def test_rows_of_a_head_may_be_named_several_ways(answer):
    assert check("06.2", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (slice(4, 8), "head 1 in code"),
    (slice(12, 16), "head 3 in code"),
    (slice(2, 16, 4), "every fourth row"),
    (8, "where head 2 starts"),
    (4, "the number of rows"),
    ([9, 10, 11, 12], "counted from 1"),
    ((8, 12), "where it stops"),
    (slice("a", 3), "whole numbers"),
    ({"a", 1}, "can't be read as numbers"),
    (slice(8, 11), "one row short"),
    (slice(8, 13), "one row too many"),
    ([0], "The shape is (1,)"),
])
def test_wrong_rows_are_named(answer, says):
    verdict = check("06.2", answer)
    assert verdict.right is False and says in verdict.text, verdict


def heads_stacked(dim=1, power=0.5, width=None, first=False):
    def answer(x, w_q, w_k, w_v):
        heads = []
        for h in range(len(w_q)):
            i = 0 if first else h
            q, k, v = x @ w_q[i], x @ w_k[i], x @ w_v[i]
            logits = q @ k.mT / (width or k.shape[-1]) ** power
            heads.append(logits.softmax(-1) @ v)
        return heads if dim is None else torch.stack(heads, dim)
    return answer


def test_heads_in_a_loop():
    assert check("06.3", heads_stacked()).right is True
    for answer, says in [
        (heads_stacked(0), "stacked on the first axis"),
        (heads_stacked(2), "behind the tokens"),
        (heads_stacked(None), "returns a list of 5 parts"),
        (heads_stacked(width=7), "Called with x of shape (3, 4, 6)|largest difference"),
        (heads_stacked(power=0), "aren't scaled"),
        (heads_stacked(width=11), "uses the model width D"),
        (heads_stacked(first=True), "weights of head 0"),
        (lambda *a: heads_stacked()(*a).sum(1), "The heads are summed"),
        (lambda *a: heads_stacked(2)(*a).flatten(2), "concatenated already"),
    ]:
        verdict = check("06.3", answer)
        assert verdict.right is False, verdict
        assert any(part in verdict.text for part in says.split("|")), verdict


def test_compare_accepts_within_the_tolerance_only():
    compare(1.05, 1.0, {}, tolerance=0.1)
    with pytest.raises(Wrong, match=r"the largest difference is 0\.2"):
        compare(1.2, 1.0, {}, tolerance=0.1)


def test_numbers_are_read_from_anything_that_holds_them():
    assert as_array([torch.tensor(1.0, requires_grad=True), 2]).tolist() == [1.0, 2.0]
    with pytest.raises(Wrong, match="this dict can't be read as numbers"):
        as_array({"a": 1})
