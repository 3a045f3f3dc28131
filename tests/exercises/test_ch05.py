"""Chapter 5: right answers written several ways pass, usual mistakes are named."""

import math

import numpy as np
import pytest
import torch

from mha import causal_mask, masked_softmax
from mha.exercises import check

HAND = [[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 0]]


@pytest.mark.parametrize(
    "answer", [HAND, np.array(HAND) == 1, torch.tensor(HAND), torch.tensor(HAND).bool()]
)
def test_the_mask_by_hand(answer):
    assert check("05.1", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (1 - np.array(HAND), "That is inverted"),
    (np.triu(np.ones((4, 4)), 1), "triu with diagonal=1"),
    ([[1, 1, 1, 0], [0, 1, 1, 0], [0, 0, 1, 0], [0, 0, 0, 0]], "shows the future and hides"),
    ([[1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 0, 0]], "on the query axis"),
    (np.tril(np.ones((4, 4))), "the filler is not"),
    (np.array([[1, 1, 1, 0]] * 4), "the future is not"),
    ([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0], [1, 1, 1, 0]], "A token may see itself"),
    ([[1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 0], [1, 1, 1, 1]], "the or of the two"),
    (HAND[:3], "The shape is (3, 4)"),
    (np.full((4, 4), math.nan), "not finite"),
    ("causal", "can't be read as numbers"),
    (None, "not yet"),
])
def test_wrong_masks_are_named(answer, says):
    verdict = check("05.1", answer)
    assert verdict.right is False and says in verdict.text, verdict


def neutral(logits, mask):
    some = mask.any(-1, keepdim=True)
    return logits.masked_fill(~mask & some, -math.inf).softmax(-1) * some


def by_powers(logits, mask):
    powers = logits.exp() * mask
    return powers / powers.sum(-1, keepdim=True).clamp(min=1e-30)


def added(logits, mask):
    return logits + torch.where(mask, 0.0, -math.inf)


def replaced(logits, mask):
    """Leave no NaN behind: masked_fill, on the way back, replaces those of hidden logits by 0."""
    return logits.masked_fill(~mask, -math.inf).softmax(-1).nan_to_num()


def large_and_zero(logits, mask):
    return logits.masked_fill(~mask, -1e9).softmax(-1) * mask


@pytest.mark.parametrize("answer", [neutral, by_powers, large_and_zero, replaced, masked_softmax])
def test_a_safe_softmax_may_be_written_several_ways(answer):
    assert check("05.2", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (lambda x, m: x.masked_fill(~m, -math.inf).softmax(-1), "without a key is NaN"),
    (lambda x, m: added(x, m).softmax(-1), "without a key is NaN"),
    (lambda x, m: added(x, m).softmax(-1).nan_to_num(), "gradient is not finite"),
    (lambda x, m: torch.where(m, added(x, m).softmax(-1), 0), "gradient is not finite"),
    (lambda x, m: x.masked_fill(~m, -1e9).softmax(-1), "is uniform"),
    (lambda x, m: x.masked_fill(~m, torch.finfo(x.dtype).min).softmax(-1), "is uniform"),
    (lambda x, m: x.softmax(-1) * m, "after the softmax"),
    (lambda x, m: x.masked_fill(~m & m.any(-1, keepdim=True), -math.inf).softmax(-1), "every key"),
    (lambda x, m: masked_softmax(x, ~m), "inverted"),
    (lambda x, m: x.masked_fill(m, -math.inf).softmax(-1).nan_to_num(), "inverted"),
    (lambda x, m: x.softmax(-1), "not used"),
    (lambda x, m: neutral(x, m).detach(), "no gradient"),
    (lambda x, m: neutral(x, m).tolist(), "returns a list"),
    (lambda x, m: neutral(x, m).detach().numpy(), "stay with torch"),
    (lambda x, m: m.float(), "the largest difference"),
    (lambda x, m: x * math.nan, "not finite"),
    (lambda x, m: x[:, :1], "The shape is"),
    (lambda x: x, "raised TypeError"),
    (neutral(torch.zeros(2, 2), causal_mask(2)), "A function is asked for"),
])
def test_mistakes_in_a_softmax_are_named(answer, says):
    verdict = check("05.2", answer)
    assert verdict.right is False and says in verdict.text, verdict


def places(n_queries, n_keys):
    queries = np.arange(n_queries)[:, None] + n_keys - n_queries
    return np.arange(n_keys) <= queries


@pytest.mark.parametrize("answer", [
    causal_mask,
    places,
    lambda t, s: torch.ones(s, s).tril().bool()[s - t :],
    lambda t, s: ~torch.ones(t, s, dtype=torch.bool).triu(s - t + 1),
])
def test_a_decoding_mask_may_be_written_several_ways(answer):
    assert check("05.3", answer).right is True


def ones(t, s):
    return torch.ones(t, s, dtype=torch.bool)


@pytest.mark.parametrize(("answer", "says"), [
    (lambda t, s: ones(t, s).tril(), "aligned top-left"),
    (lambda t, s: ~causal_mask(t, s), "inverted"),
    (lambda t, s: ones(t, s).triu(1), "triu with diagonal=1"),
    (lambda t, s: ones(t, s).tril(s - t - 1), "each query may see itself"),
    (lambda t, s: ones(t, s).tril(s - t + 1), "the key after its own"),
    (lambda t, s: causal_mask(t, s).T, "the transpose"),
    (ones, "Nothing is hidden"),
    (lambda t, s: causal_mask(t, s).float(), "type is torch.float32"),
    (lambda t, s: causal_mask(t, s).tolist(), "returns a list"),
    (lambda t, s: None, "returns None"),
    (lambda t, s: "mask", "can't be read as numbers"),
    (causal_mask(2, 5), "A function is asked for"),
])
def test_mistakes_in_a_decoding_mask_are_named(answer, says):
    verdict = check("05.3", answer)
    assert verdict.right is False and says in verdict.text, verdict
