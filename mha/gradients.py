"""The slope of the softmax, written out: which weight moves when which logit does."""

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
    if not isinstance(p, torch.Tensor):
        raise TypeError(f"p is a {type(p).__name__}; pass a torch tensor of weights, … n")
    if not p.is_floating_point():
        raise TypeError(f"p has dtype {p.dtype}; weights are floats: p = softmax(logits)")
    if p.ndim == 0:
        raise ValueError("p has shape (); pass weights along a last axis, … n: p[None] for one")
    products = p[..., :, None] * p[..., None, :]  # … n n
    return torch.diag_embed(p) - products
