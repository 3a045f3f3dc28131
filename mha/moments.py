"""Mean and variance of products and dot products of random numbers, exactly.

What scaled dot-product attention divides by, and what becomes of it where an assumption fails.
"""

import math

import torch


def product_moments(mean_x, var_x, mean_y, var_y, correlation=0.0):
    """Return the mean and the variance of X·Y.

    With μ, V the means and variances and c = ρ √(V_x V_y) the covariance:
    mean = μ_x μ_y + c;  variance = V_x V_y + V_x μ_y² + V_y μ_x² + c² + 2 μ_x μ_y c.
    For ρ = 0 this holds for independent X and Y of any distribution. For ρ ≠ 0 it holds if X and Y
    are jointly normal: means, variances and ρ do not settle the variance of X·Y otherwise.

    Parameters
    ----------
    mean_x, var_x, mean_y, var_y : float, the variances 0 or more
    correlation : float in [−1, 1], ρ

    Returns
    -------
    mean, variance : float

    Raises
    ------
    ValueError
        A number that is not finite, a variance below 0, a correlation outside [−1, 1].

    Examples
    --------
    >>> product_moments(0.5, 1, 0.5, 1)  # the variance is not V_x V_y = 1
    (0.25, 1.5)
    """
    _check_finite(mean_x=mean_x, mean_y=mean_y)
    _check_variances(var_x=var_x, var_y=var_y)
    if not -1 <= correlation <= 1:  # written so that NaN fails too
        raise ValueError(f"correlation={correlation} is outside [-1, 1]; pass cov / √(var·var)")
    covariance = correlation * math.sqrt(var_x * var_y)
    mean = mean_x * mean_y + covariance
    variance = (
        var_x * var_y
        + var_x * mean_y**2
        + var_y * mean_x**2
        + covariance**2
        + 2 * mean_x * mean_y * covariance
    )
    return mean, variance


def dot_product_moments(d_k, mean_q=0.0, mean_k=0.0, var_q=1.0, var_k=1.0, correlation=0.0):
    """Return the mean and the variance of q·k = Σ_c q_c k_c, a sum of d_k products.

    d_k times `product_moments`. The sum of the variances is the variance of the sum only if the
    products of different columns are uncorrelated; here every column is independent of the others.
    Within a column q_c and k_c are independent (ρ = 0, any distribution), or jointly normal with
    correlation ρ. With means 0, variances 1 and ρ = 0 the variance is d_k (Vaswani et al. 2017,
    §3.2.1, footnote 4).

    Parameters
    ----------
    d_k : int, at least 1
    mean_q, mean_k, var_q, var_k : float, of each entry
    correlation : float in [−1, 1], of q_c with k_c

    Returns
    -------
    mean, variance : float

    Raises
    ------
    ValueError
        As `product_moments`; a d_k below 1.

    Examples
    --------
    >>> dot_product_moments(64), dot_product_moments(64, mean_q=0.5, mean_k=0.5)
    ((0.0, 64.0), (16.0, 96.0))
    """
    _check_width(d_k)
    mean, variance = product_moments(mean_q, var_q, mean_k, var_k, correlation)
    return d_k * mean, d_k * variance


def square_moments(d_k, variance=1.0, kurtosis=3.0):
    """Return the mean and the variance of q·q = Σ_c q_c², a row's product with itself.

    For entries with mean 0 and variance V, independent of each other: mean = d_k V,
    variance = d_k (κ − 1) V², where κ = E[q_c⁴] / V² is the kurtosis: 3 if they are normal,
    9/5 if uniform, 1 if they are ±√V.

    Parameters
    ----------
    d_k : int, at least 1
    variance : float, V
    kurtosis : float, κ, at least 1

    Raises
    ------
    ValueError
        A number that no distribution has.

    Examples
    --------
    >>> square_moments(64), square_moments(64, kurtosis=1)
    ((64.0, 128.0), (64.0, 0.0))
    """
    _check_width(d_k)
    _check_variances(variance=variance)
    if not 1 <= kurtosis < math.inf:
        raise ValueError(f"kurtosis={kurtosis} is none; E[X⁴]/V² is at least 1, 3 if X is normal")
    return d_k * variance, d_k * (kurtosis - 1) * variance**2


def variance_interval(samples, errors=4.0):
    """Return (low, high), the measured variance of independent samples ± `errors` standard errors.

    The standard error of a variance s² comes from the fourth moment m₄ about the mean, so it holds
    for samples that are not normal: SE² = (m₄ − s⁴ (n − 3)/(n − 1)) / n, both estimated, n large.
    At 4 standard errors the true variance is missed about once in 16 000 times.

    Parameters
    ----------
    samples : Tensor, any shape, read as n independent numbers, n at least 4
    errors : float, above 0

    Raises
    ------
    ValueError
        Fewer than 4 samples, or one that is not finite; an `errors` that is not above 0.

    Examples
    --------
    >>> variance_interval(torch.tensor([-1.0, 1.0, -1.0, 1.0]).repeat(1000))  # m₄ = s⁴: no spread
    (1.0002..., 1.0002...)
    """
    samples = torch.as_tensor(samples, dtype=torch.float64).flatten()
    n = len(samples)
    if n < 4 or not samples.isfinite().all():
        raise ValueError(f"{n} samples; pass at least 4, all finite: a fourth moment is estimated")
    if not 0 < errors < math.inf:
        raise ValueError(f"errors={errors} is not above 0; pass a number of standard errors, as 4")
    variance = samples.var().item()
    fourth = (samples - samples.mean()).pow(4).mean().item()
    squared = max(fourth - variance**2 * (n - 3) / (n - 1), 0.0) / n
    margin = errors * math.sqrt(squared)
    return variance - margin, variance + margin


def _check_width(d_k):
    if isinstance(d_k, bool) or d_k != d_k // 1 or not 1 <= d_k < math.inf:
        raise ValueError(f"d_k={d_k} is no width; pass a whole number of columns, at least 1")


def _check_finite(**numbers):
    for name, value in numbers.items():
        if not math.isfinite(value):
            raise ValueError(f"{name}={value} is not finite; the formula needs a finite mean")


def _check_variances(**variances):
    for name, value in variances.items():
        if not 0 <= value < math.inf:
            raise ValueError(f"{name}={value} is no variance; pass a finite number, 0 or more")
