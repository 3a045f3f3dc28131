"""Chapter 3: right answers written several ways pass, usual mistakes are named."""

import math

import numpy as np
import pytest
import torch

from mha.exercises import check

MEANS_AND_VARIANCES = "V_q V_k + V_q μ_k² + V_k μ_q²"


@pytest.mark.parametrize("form", [list, tuple, np.array, torch.tensor],
                         ids=["list", "tuple", "array", "tensor"])
def test_the_two_numbers_may_come_in_any_form(form):
    assert check("03.1", form([0.0, 416.0])).right is True


@pytest.mark.parametrize(("answer", "says"), [
    ((0, 400), MEANS_AND_VARIANCES),
    ((0, 404), "meets the variance of q"),
    ((0, 4.16), "adds up 100 products"),
    ((0, 480), "not squared"),
    ((0, 20.396), "standard deviation"),
    ((0, 41.6), "divided by √d_k"),
    ((416, 0), "swapped"),
    ((20, 416), "product of the means"),
    (416, "The shape is (); (2,) is asked for"),
    ((0, math.nan), "not finite"),
    ((0, "many"), "can't be read as numbers"),
    ((0, 10**400), "can't be read as numbers"),
    ((0, 1 + 2j), "these are complex"),
    ((0, 500), "the largest difference is 84"),
])
def test_wrong_moments_are_named(answer, says):
    verdict = check("03.1", answer)
    assert verdict.right is False and says in verdict.text, verdict


def column_by_column(mean_q, mean_k):
    return sum(1 + float(q) ** 2 + float(k) ** 2 for q, k in zip(mean_q, mean_k, strict=True))


def all_at_once(mean_q, mean_k):
    return (1 + mean_q.square() + mean_k.square()).sum()


def from_raw_moments(mean_q, mean_k):
    squares = (1 + mean_q**2) * (1 + mean_k**2)
    return np.asarray(squares - (mean_q * mean_k) ** 2).sum()


@pytest.mark.parametrize("answer", [column_by_column, all_at_once, from_raw_moments])
def test_the_variance_may_be_written_several_ways(answer):
    assert check("03.2", answer).right is True


def squares(q, k):
    return q.square() + k.square()


@pytest.mark.parametrize(("answer", "says"), [
    (lambda q, k: len(q), "The means are left out"),
    (lambda q, k: 1 + squares(q, k), "variances of the single products"),
    (lambda q, k: (1 + squares(q, k)).mean(), "the variance of a scaled logit"),
    (lambda q, k: 1 + squares(q, k).sum(), "The 1 is there once"),
    (lambda q, k: squares(q, k).sum(), "The 1 is missing"),
    (lambda q, k: (1 + (q * k) ** 2).sum(), "each is squared on its own"),
    (lambda q, k: ((1 + q**2) * (1 + k**2)).sum(), "takes off the square of its mean"),
    (lambda q, k: (1 + q + k).sum(), "not squared"),
    (lambda q, k: len(q) * (1 + q.mean() ** 2 + k.mean() ** 2), "averaged over the columns"),
    (lambda q, k: (1 + q**2).sum(), "The mean of k is left out"),
    (lambda q, k: (1 + k**2).sum(), "The mean of q is left out"),
    (lambda q, k: q @ k, "That is the mean of q·k"),
    (lambda q, k: (1 + squares(q, k)).sum().sqrt(), "standard deviation"),
    (lambda q, k: 7 + squares(q, k).sum(), "the largest difference is 3"),
    (lambda q, k: None, "is a `return` missing?"),
    (lambda q, k: math.nan, "not finite"),
    (lambda q, k: (q, k), "returns a tuple of 2 parts"),
    (lambda q: q, "Called with shapes (7,), (7,), your function raised TypeError"),
    (96, "A function is asked for, this is a int"),
])
def test_mistakes_in_the_variance_are_named(answer, says):
    verdict = check("03.2", answer)
    assert verdict.right is False and says in verdict.text, verdict


@pytest.mark.parametrize("answer", [16, 16.0, [16], np.float32(16), torch.tensor(16.0), 256**0.5])
def test_the_scale_of_a_cosine(answer):
    assert check("03.3", answer).right is True


@pytest.mark.parametrize(("answer", "says"), [
    (1 / 16, "That is the scale for q·k"),
    (256, "take the root"),
    (1 / 256, "shrinks it further"),
    (1, "almost equal weights"),
    (4, "√256 is asked for"),
    (math.inf, "not finite"),
    (17, "the largest difference is 1"),
    ([16, 16], "One number is asked for; this has shape (2,)"),
    (lambda c: 16 * c, "this function can't be read as numbers"),
    (None, "not finite"),
])
def test_wrong_scales_are_named(answer, says):
    verdict = check("03.3", answer)
    assert verdict.right is False and says in verdict.text, verdict
