"""Moments of products: each term of each formula, against sums over every outcome and samples."""

import itertools
import math
import re

import numpy as np
import pytest
import torch

from mha.moments import dot_product_moments, product_moments, square_moments, variance_interval


def moments(outcomes):
    """Return the mean and the variance of (value, probability) pairs, counted out."""
    mean = sum(value * p for value, p in outcomes)
    return mean, sum((value - mean) ** 2 * p for value, p in outcomes)


SKEWED = [(-1.0, 0.2), (0.5, 0.5), (3.0, 0.3)]  # mean 0.95, far from normal
LOPSIDED = [(-2.0, 0.4), (1.5, 0.6)]  # mean 0.1


def test_an_independent_product_is_counted_out_over_every_outcome():
    product = [(x * y, p * r) for (x, p), (y, r) in itertools.product(SKEWED, LOPSIDED)]
    found = product_moments(*moments(SKEWED), *moments(LOPSIDED))
    assert np.allclose(found, moments(product), rtol=1e-13)


def test_a_dot_product_is_counted_out_over_every_outcome():
    pairs = [(x * y, p * r) for (x, p), (y, r) in itertools.product(SKEWED, LOPSIDED)]
    three = [
        (sum(value for value, _ in columns), math.prod(p for _, p in columns))
        for columns in itertools.product(pairs, repeat=3)
    ]
    (mean_q, var_q), (mean_k, var_k) = moments(SKEWED), moments(LOPSIDED)
    found = dot_product_moments(3, mean_q, mean_k, var_q, var_k)
    assert np.allclose(found, moments(three), rtol=1e-12)


def gauss_moments(mean_x, var_x, mean_y, var_y, correlation):
    """Integrate over two normal numbers by Gauss-Hermite quadrature, exact for polynomials."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(7)
    weights = weights / weights.sum()
    a, b = np.meshgrid(nodes, nodes)
    chance = np.outer(weights, weights)
    x = mean_x + math.sqrt(var_x) * a
    y = mean_y + math.sqrt(var_y) * (correlation * a + math.sqrt(1 - correlation**2) * b)
    mean = (x * y * chance).sum()
    return mean, ((x * y - mean) ** 2 * chance).sum()


@pytest.mark.parametrize(
    "case", [(0.3, 2.0, -0.7, 0.5, 0.6), (1.1, 0.4, 2.3, 3.0, -0.9), (0.0, 1.0, 0.0, 1.0, 1.0)]
)
def test_a_correlated_product_of_normal_numbers_is_integrated(case):
    assert np.allclose(product_moments(*case), gauss_moments(*case), rtol=1e-12)
    mean_x, var_x, mean_y, var_y, correlation = case
    found = dot_product_moments(7, mean_x, mean_y, var_x, var_y, correlation)
    assert np.allclose(found, 7 * np.array(gauss_moments(*case)), rtol=1e-12)


def test_the_numbers_of_the_chapter():
    assert dot_product_moments(64) == (0, 64)
    assert dot_product_moments(64, 0.5, 0.5) == (16, 96)
    assert dot_product_moments(64, correlation=0.5) == (32, 80)
    assert square_moments(64) == (64, 128) == dot_product_moments(64, correlation=1)


def test_a_row_with_itself_is_counted_out_over_every_outcome():
    symmetric = [(-2.0, 0.1), (-1.0, 0.4), (1.0, 0.4), (2.0, 0.1)]
    _, variance = moments(symmetric)
    kurtosis = sum(value**4 * p for value, p in symmetric) / variance**2
    rows = [
        (sum(v**2 for v, _ in row), math.prod(p for _, p in row))
        for row in itertools.product(symmetric, repeat=3)
    ]
    assert np.allclose(square_moments(3, variance, kurtosis), moments(rows), rtol=1e-12)


@pytest.mark.parametrize("kind", ["normal", "skewed"])
def test_the_interval_holds_the_true_variance_as_often_as_it_says(kind):
    generator = torch.Generator().manual_seed(3)
    draws = torch.randn(997, 1009, generator=generator, dtype=torch.float64)
    if kind == "skewed":
        draws = draws.square() / 2**0.5  # variance 1 as well, kurtosis 15
    hits = [low < 1 < high for low, high in (variance_interval(row, errors=2) for row in draws)]
    # 95.4 % at 2 standard errors; heavy tails need more samples to get there
    share = sum(hits) / len(hits)
    assert (0.94 if kind == "normal" else 0.89) < share < 0.972


def test_the_interval_is_as_wide_as_the_fourth_moment_says():
    samples = torch.tensor([-3.0, -1.0, 0.0, 1.0, 4.0])
    values = samples.numpy().astype(np.float64)
    square = values.var(ddof=1)
    error = math.sqrt(((values - values.mean()) ** 4).mean() / 5 - square**2 * (2 / 4) / 5)
    assert np.allclose(variance_interval(samples, 3), (square - 3 * error, square + 3 * error))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: product_moments(0, -1, 0, 1), "var_x=-1 is no variance"),
        (lambda: product_moments(0, 1, 0, math.nan), "var_y=nan is no variance"),
        (lambda: product_moments(math.inf, 1, 0, 1), "mean_x=inf is not finite"),
        (lambda: product_moments(0, 1, 0, 1, 1.5), "correlation=1.5 is outside [-1, 1]"),
        (lambda: product_moments(0, 1, 0, 1, math.nan), "correlation=nan is outside"),
        (lambda: dot_product_moments(0), "d_k=0 is no width"),
        (lambda: dot_product_moments(2.5), "d_k=2.5 is no width"),
        (lambda: dot_product_moments(math.nan), "d_k=nan is no width"),
        (lambda: dot_product_moments(True), "d_k=True is no width"),
        (lambda: square_moments(3, kurtosis=0.5), "kurtosis=0.5 is none; E[X⁴]/V² is at least 1"),
        (lambda: square_moments(3, variance=-2), "variance=-2 is no variance"),
        (lambda: variance_interval(torch.ones(3)), "3 samples; pass at least 4"),
        (lambda: variance_interval(torch.full((9,), math.nan)), "9 samples; pass at least 4, all"),
        (lambda: variance_interval(torch.ones(9), errors=0), "errors=0 is not above 0"),
    ],
)
def test_what_no_distribution_has_is_refused(call, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        call()
