"""Chapter 6: right answers written several ways pass, usual mistakes are named."""

import numpy as np
import pytest
import torch

from mha.exercises import check


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
    (lambda x, h: x.view(2, 3, 5, 7).transpose(1, 2), "Called with shapes (3, 2, 4)"),
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
        (heads_stacked(width=7), "Called with shapes (3, 4, 6)|largest difference"),
        (heads_stacked(power=0), "aren't scaled"),
        (heads_stacked(width=11), "uses the model width D"),
        (heads_stacked(first=True), "weights of head 0"),
        (lambda *a: heads_stacked()(*a).sum(1), "The heads are summed"),
        (lambda *a: heads_stacked(2)(*a).flatten(2), "concatenated already"),
    ]:
        verdict = check("06.3", answer)
        assert verdict.right is False, verdict
        assert any(part in verdict.text for part in says.split("|")), verdict
