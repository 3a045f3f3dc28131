"""Checks of chapter 3, the scale."""

import math

import torch

from mha.exercises.frame import Wrong, as_array, call, compare
from mha.moments import product_moments


def by_hand(answer):
    """03.1: mean and variance of q·k for d_k = 100, means 0.2 and 0, variances 1 and 4."""
    mistakes = {
        "The terms with the means are missing: the variance of one product is "
        "V_q V_k + V_q μ_k² + V_k μ_q².": (0, 400),
        "The mean of q meets the variance of q: it is V_k that μ_q² multiplies.": (0, 404),
        "That is one product, or one scaled logit; q·k adds up 100 products.": (0, 4.16),
        "The mean is not squared: V_k μ_q², with μ_q = 0.2.": (0, 480),
        "That is the standard deviation; the variance is its square.": (0, math.sqrt(416)),
        "The variance is divided by √d_k, which is what the scores are divided by; "
        "here nothing is.": (0, 41.6),
        "The two numbers are swapped: first the mean.": (416, 0),
        "The mean of a product of independent numbers is the product of the means, "
        "and one of them is 0.": (20, 416),
    }
    compare(answer, (0, 416), mistakes, tolerance=0.05)
    return "100 · (1·4 + 1·0² + 4·0.2²) = 416, and the mean of k makes the mean 0."


def score_variance(answer):
    """03.2: a function (mean_q, mean_k), rows of d_k means -> the variance of q·k."""
    for width in 7, 4:  # two sizes: a number written into the code shows
        _check_score_variance(answer, width)
    return "One term a column, and with all means 0 it gives d_k."


def _check_score_variance(answer, width):
    generator = torch.Generator().manual_seed(3)
    mean_q, mean_k = torch.randn(2, width, generator=generator, dtype=torch.float64)
    columns = [product_moments(q, 1, k, 1)[1] for q, k in zip(mean_q, mean_k, strict=True)]
    right = sum(columns)
    squares_q, squares_k = mean_q.square().sum(), mean_k.square().sum()
    both = (mean_q * mean_k).square().sum()
    mistakes = {
        "The means are left out: that is the variance for means of 0.": width,
        "Those are the variances of the single products; q·k is their sum.": torch.stack(columns),
        "That is the mean of the columns' variances, or the variance of a scaled logit; "
        "q·k is the sum of the products.": right / width,
        "The 1 is there once; each column brings its own V_q V_k = 1.": right - width + 1,
        "The 1 is missing: each column brings V_q V_k = 1.": right - width,
        "The means are multiplied; each is squared on its own.": width + both,
        "That is the sum of E[(q_c k_c)²]; each column takes off the square of its mean, "
        "(μ_q μ_k)².": right + both,
        "The means are not squared.": width + mean_q.sum() + mean_k.sum(),
        "The means are averaged over the columns first; the squares add up column by column.":
            width * (1 + mean_q.mean() ** 2 + mean_k.mean() ** 2),
        "The mean of k is left out.": width + squares_q,
        "The mean of q is left out.": width + squares_k,
        "That is the mean of q·k; its variance is asked for.": mean_q @ mean_k,
        "That is the standard deviation; its square is asked for.": right.sqrt(),
    }
    compare(call(answer, mean_q, mean_k), right, mistakes)


def cosine_scale(answer):
    """03.3: the factor for cosines of rows of d_k = 256, so that the logits have variance 1."""
    value = as_array(answer)
    if value.shape not in ((), (1,)):
        raise Wrong(f"One number is asked for; this has shape {value.shape}.")
    mistakes = {
        "That is the scale for q·k. A cosine has variance 1/d_k: it has to grow, not shrink.":
            1 / 16,
        "The cosine's variance is multiplied by the square of the factor: take the root.": 256,
        "The cosine's variance is 1/d_k, so 1/d_k shrinks it further.": 1 / 256,
        "With the factor 1 the variance stays 1/256: almost equal weights.": 1,
        "That is the square root of 16: √256 is asked for.": 4,
    }
    compare(float(value.reshape(())), 16, mistakes, tolerance=1e-3)
    return "√d_k, because q·k = |q| |k| cosine and each length is near √d_k."


CHECKS = {"03.1": by_hand, "03.2": score_variance, "03.3": cosine_scale}
