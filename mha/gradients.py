"""The slope of the softmax, written out: which weight moves when which logit or query does.

Row i of the Jacobian of p = softmax(logits) is p[i] (e_i − p), where e_i is 1 at i and 0 elsewhere.
With logits = scale · K q, row i of ∂p/∂q is scale · p[i] (k_i − Σ_j p[j] k_j). The norms below are
the lengths of these rows together; no matrix of n × n is built for them.
"""

import torch


def softmax_jacobian(p):
    """Say how each weight changes with each logit, for weights p = softmax(logits).

    ∂p[i]/∂logit[k] = p[i] (δ_ik − p[k]), that is diag(p) − p pᵀ: p[i] (1 − p[i]) on the diagonal,
    −p[i] p[k] beside it. It is symmetric; rows and columns sum to 0, since weights always sum to 1;
    the eigenvalues lie in [0, 1/2], the largest at most min(max p, 2 · max p · (1 − max p)). A
    hidden key has weight 0, and so a row and a column of 0: no mask is needed here.

    Parameters
    ----------
    p : Tensor of floats, … n, weights along the last axis, as `masked_softmax` gives them

    Returns
    -------
    Tensor, … n n, differentiable by p

    Raises
    ------
    TypeError, ValueError
        Anything but a tensor of floats; a single number.

    Examples
    --------
    >>> softmax_jacobian(torch.tensor([0.5, 0.25, 0.25])).tolist()
    [[0.25, -0.125, -0.125], [-0.125, 0.1875, -0.0625], [-0.125, -0.0625, 0.1875]]
    """
    _refuse_unless_weights(p)
    products = p[..., :, None] * p[..., None, :]  # … n n
    return torch.diag_embed(p) - products


def jacobian_norm(p):
    """Return ‖J‖, the root of the sum of the squared slopes ∂p[i]/∂logit[k] (Frobenius norm).

    ‖J‖² = Σ p² − 2 Σ p³ + (Σ p²)² = Σ_i p[i]² ‖e_i − p‖². The largest weight is treated apart, by
    the sum of the others in place of 1 − p: so a weight near 1 keeps its digits. It is at most 1/2.

    Parameters
    ----------
    p : Tensor of floats, … n, each row with the sum 1, or 0 (a query without keys)

    Returns
    -------
    Tensor, …

    Raises
    ------
    TypeError, ValueError
        As for `softmax_jacobian`; no weight at all.

    Examples
    --------
    >>> jacobian_norm(torch.tensor([[0.5, 0.5], [1.0, 0.0]])).tolist()
    [0.5, 0.0]
    """
    _refuse_unless_weights(p)
    top, where = _largest(p)
    rest = p.scatter(-1, where, 0)  # … n, the largest weight replaced by 0
    squares = rest.square().sum(-1, keepdim=True)
    of_top = top.square() * (rest.sum(-1, keepdim=True).square() + squares)
    of_rest = rest.square() * (1 - 2 * rest + top.square() + squares)
    return (of_top[..., 0] + of_rest.sum(-1)).sqrt()


def query_gradient_norm(p, k, scale=None):
    """Return ‖∂p/∂q‖ for weights p = softmax(scale · K q): by how much a query moves its weights.

    ∂p/∂q = scale · J K, of shape n d. Row i is scale · p[i] (k_i − mean), where mean = Σ_j p[j] k_j
    is the average key. Keys are measured from that of the largest weight, since a vector added to
    every key changes nothing: so the small differences keep their digits.

    Parameters
    ----------
    p : Tensor of floats, … n, each row with the sum 1, or 0
    k : Tensor, … n d, the keys of each row; leading axes broadcast against those of p
    scale : float, optional
        The factor of the scores; 1/√d by default.

    Returns
    -------
    Tensor, …

    Raises
    ------
    TypeError, ValueError
        As for `jacobian_norm`; another number of keys than weights.

    Examples
    --------
    >>> query_gradient_norm(torch.tensor([0.5, 0.5]), torch.tensor([[2.0], [0.0]]), scale=1.0)
    tensor(0.7071)
    """
    _refuse_unless_weights(p)
    if k.ndim < 2 or k.shape[-2] != p.shape[-1]:
        raise ValueError(
            f"k has shape {tuple(k.shape)} and p has {p.shape[-1]} weights; "
            f"pass one key a weight, … {p.shape[-1]} d"
        )
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    _, where = _largest(p)
    k = k.expand(*torch.broadcast_shapes(p.shape[:-1], k.shape[:-2]), *k.shape[-2:])
    p, where = p.expand(k.shape[:-1]), where.expand(*k.shape[:-2], 1)
    k = k - k.take_along_dim(where[..., None], dim=-2)  # … n d
    mean = p[..., None, :] @ k  # … 1 d
    products = (k @ mean.mT)[..., 0]  # … n
    distances = k.square().sum(-1) - 2 * products + mean.square().sum(-1)  # ‖k_i − mean‖²
    return abs(scale) * (p.square() * distances.clamp(min=0)).sum(-1).sqrt()


def gradient_study(d_k, *, n_keys=64, n_rows=10_000, seed=0):
    """Measure ‖J‖ and ‖∂p/∂q‖ at random queries and keys, unscaled and scaled by 1/√d_k.

    Each row draws one query and `n_keys` keys of its own, all entries independent, N(0, 1), in
    float32; so the rows are independent. Both scales see the same draws.

    Parameters
    ----------
    d_k, n_keys, n_rows, seed : int

    Returns
    -------
    dict
        For "unscaled" and "scaled": a dict of tensors of n_rows, "jacobian" ‖J‖, "query" ‖∂p/∂q‖
        and "top", the largest weight.

    Examples
    --------
    >>> study = gradient_study(1, n_keys=3, n_rows=5)
    >>> torch.equal(study["scaled"]["query"], study["unscaled"]["query"])  # 1/√1 is 1
    True
    """
    generator = torch.Generator().manual_seed(seed)
    scales = {"unscaled": 1.0, "scaled": d_k**-0.5}
    parts = {name: {"jacobian": [], "query": [], "top": []} for name in scales}
    at_once = max(1, 2**20 // (n_keys * d_k))  # about 4 MiB of keys, so that they stay in the cache
    for start in range(0, n_rows, at_once):
        rows = min(at_once, n_rows - start)
        q = torch.randn(rows, d_k, 1, generator=generator, dtype=torch.float32)
        k = torch.randn(rows, n_keys, d_k, generator=generator, dtype=torch.float32)
        scores = (k @ q)[..., 0]  # rows n_keys
        for name, scale in scales.items():
            p = torch.softmax(scale * scores, -1)
            parts[name]["jacobian"].append(jacobian_norm(p))
            parts[name]["query"].append(query_gradient_norm(p, k, scale))
            parts[name]["top"].append(p.amax(-1))
    return {
        name: {what: torch.cat(values) for what, values in of_scale.items()}
        for name, of_scale in parts.items()
    }


def median_and_mean(sample):
    """Return the median and the mean of independent draws, each with its 95 % interval.

    The median's interval runs between two draws in rising order, 0.98 √n places below and above
    the middle: that holds for any distribution. The mean's is ± 1.96 standard errors, which takes
    many draws where a few are very large.

    Parameters
    ----------
    sample : Tensor, n, at least 10 numbers

    Returns
    -------
    dict
        "median" and "mean": (value, low, high).

    Raises
    ------
    ValueError
        Fewer than 10 draws.

    Examples
    --------
    >>> median_and_mean(torch.arange(100.0))["median"]
    (49.5, 40.0, 59.0)
    """
    n = sample.numel()
    if n < 10:
        raise ValueError(f"sample has {n} draws; an interval of the median needs at least 10")
    ordered = sample.flatten().double().sort().values
    middle = (ordered[(n - 1) // 2] + ordered[n // 2]) / 2
    reach = round(0.98 * n**0.5)
    low, high = ordered[(n - 1) // 2 + 1 - reach], ordered[n // 2 - 1 + reach]
    mean, error = ordered.mean(), 1.96 * ordered.std() / n**0.5
    return {
        "median": (middle.item(), low.item(), high.item()),
        "mean": (mean.item(), (mean - error).item(), (mean + error).item()),
    }


def _largest(p):
    """The largest weight of each row and where it stands, … 1 both."""
    if p.shape[-1] == 0:
        raise ValueError(f"p has shape {tuple(p.shape)}; a row needs at least one weight")
    return p.max(-1, keepdim=True)


def _refuse_unless_weights(p):
    if not isinstance(p, torch.Tensor):
        raise TypeError(f"p is a {type(p).__name__}; pass a torch tensor of weights, … n")
    if not p.is_floating_point():
        raise TypeError(f"p has dtype {p.dtype}; weights are floats: p = softmax(logits)")
    if p.ndim == 0:
        raise ValueError("p has shape (); pass weights along a last axis, … n: p[None] for one")
