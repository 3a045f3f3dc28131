"""Chapter 1: right answers written several ways pass, usual mistakes are named."""

import math

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from mha.exercises import check

LN_2, LN_5 = math.log(2), math.log(5)


@pytest.mark.parametrize("answer", [30, 30.0, np.float32(30.02), torch.tensor(29.96)])
def test_the_output_by_hand(answer):
    assert check("01.1", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (240, "not divided by their sum"),
    (136 / 3, "plain mean"),
    (16, "a strict lookup"),
    (LN_2 * 40 + LN_5 * 16, "The scores themselves"),
    ((LN_2 * 40 + LN_5 * 16) / (LN_2 + LN_5), "The scores were divided by their sum"),
    (62, "in the reverse order"),
    (48, "divided by the largest"),
    (80, "the number of keys"),
    (30.1, "the largest difference is 0.1"),
    ([30], "The shape is (1,)"),
])
def test_wrong_outputs_are_named(answer, says):
    verdict = check("01.1", answer)
    assert verdict.right is False and says in verdict.text, verdict


def right(query, keys, values, temperature):
    return (keys @ query / temperature).softmax(0) @ values


def by_powers(query, keys, values, temperature):
    powers = torch.einsum("sd,d->s", keys, query).div(temperature).exp()
    return (powers[:, None] * values).sum(0) / powers.sum()


def by_torch(query, keys, values, temperature):
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(query[None], keys, values, scale=1 / temperature)[0]


def by_loop(query, keys, values, temperature):
    powers = [math.exp(float(key @ query) / temperature) for key in keys]
    return sum(p * v for p, v in zip(powers, values, strict=True)) / sum(powers)


def by_numpy(query, keys, values, temperature):
    powers = np.exp(keys @ query / temperature)  # a warning of NumPy's is no mistake
    return (powers / powers.sum()) @ values


def in_place(query, keys, values, temperature):
    query.div_(temperature)  # the reader's own business
    return (keys @ query).softmax(0) @ values


def with_needless_transpose(query, keys, values, temperature):
    return (keys @ query.T / temperature).softmax(0) @ values


@pytest.mark.parametrize("answer", [
    right, by_powers, by_torch, by_loop, by_numpy, in_place, with_needless_transpose])
def test_the_soft_lookup_may_be_written_several_ways(answer):
    assert check("01.2", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (lambda q, k, v, t: (k @ q * t).softmax(0) @ v, "multiplied by the temperature"),
    (lambda q, k, v, t: (k @ q).softmax(0) @ v, "temperature is not used"),
    (lambda q, k, v, t: (k @ q).softmax(0) / t @ v, "divides the weights"),
    (lambda q, k, v, t: (k @ q / t / len(q) ** 0.5).softmax(0) @ v, "divided by √d as well"),
    (lambda q, k, v, t: (k @ q / len(q) ** 0.5).softmax(0) @ v, "divide by the temperature"),
    (lambda q, k, v, t: (normalize(k) @ normalize(q, dim=0) / t).softmax(0) @ v, "the cosine"),
    (lambda q, k, v, t: (k @ q / t).exp() @ v, "not divided by their sum"),
    (lambda q, k, v, t: k @ q / t @ v, "softmax is missing"),
    (lambda q, k, v, t: (k @ q / t).softmax(0), "multiply them by the values"),
    (lambda q, k, v, t: v[(k @ q).argmax()], "a strict lookup"),
    (lambda q, k, v, t: (k @ q / t).softmax(0) @ k, "averages the keys"),
    (lambda q, k, v, t: (k @ q / t).softmax(0)[:, None] * v, "not added up"),
    (lambda q, k, v, t: (k @ q / 0.5).softmax(0) @ v, "largest difference"),
    (lambda q, k, v, t: torch.nn.functional.softmax(k @ q / t) @ v, "Implicit dimension"),
    (lambda q, k, v, t: k @ v, "Called with shapes (3,), (5, 3), (5, 2), your function"),
    (lambda q, k, v, t: None, "is a `return` missing?"),
])
def test_mistakes_in_the_soft_lookup_are_named(answer, says):
    verdict = check("01.2", answer)
    assert verdict.right is False and says in verdict.text, verdict


def test_two_measures_that_disagree():
    for pair in [([1, 0], [[3, 3], [1, 0]]), ([1e-5, 0], [[3e-5, 3e-5], [1e-5, 0]]),
                 ([1, 0], [[1e200, 1e200], [1, 0]]),
                 (torch.tensor([0.0, 2]), np.array([[4, 5], [0, 1]]))]:
        verdict = check("01.3", pair)
        assert verdict.right is True
    assert "The dot products are 10 and 2, the cosines 0.781 and 1.000." in verdict.text
    for answer, says in [
        (([1, 0], [[1, 0], [3, 3]]), "Swap the keys"),
        (([1, 0], [[2, 0], [1, 1]]), "the cosine does not prefer key 1"),
        (([1, 0], [[1, 1], [2, 0]]), "the dot product does not prefer key 0"),
        (([1, 0], [[1, 1], [1, 0]]), "the dot product does not prefer key 0"),  # a tie
        (([1, 0], [[1, 0], [1, 0]]), "no measure prefers"),
        (([0, 0], [[1, 0], [3, 3]]), "length 0"),
        (([1, 0], [[1, 0], [0, 0]]), "length 0"),
        (([1, 0, 0], [[1, 0], [0, 1]]), "The query has shape (3,)"),
        (([math.nan, 0], [[1, 0], [0, 1]]), "not finite"),
        ([1, 0, 2], "A pair is asked for"),
    ]:
        verdict = check("01.3", answer)
        assert verdict.right is False and says in verdict.text, verdict
