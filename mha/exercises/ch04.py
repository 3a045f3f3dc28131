"""Checks of chapter 4, the gradient of the softmax."""

import torch

from mha.exercises.frame import Wrong, as_array, call, compare
from mha.gradients import jacobian_norm, softmax_jacobian

P = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)


def _swapped(p):
    """Own and other slope the other way round, in the three ways texts write it."""
    own = torch.eye(p.shape[-1], dtype=torch.bool)
    row, column = p[..., :, None], p[..., None, :]
    beside = {
        "p_i (1 − p_i)": row * (1 - row),
        "p_j (1 − p_j)": column * (1 - column),
        "p_i (1 − p_j)": row * (1 - column),
    }
    return {formula: torch.where(own, -row * column, other) for formula, other in beside.items()}


def jacobian_by_hand(answer):
    """04.1: the Jacobian of the softmax where the weights are 0.5, 0.3 and 0.2."""
    right = softmax_jacobian(P)
    products = P[:, None] * P
    mistakes = {
        f"The two cases are swapped: {formula} belongs on the diagonal, and beside it stands "
        "−p_i p_j. Raising a logit raises its own weight.": value
        for formula, value in _swapped(P).items()
    } | {
        "All signs are turned round: a logit raises its own weight and lowers the others.": -right,
        "The signs beside the diagonal are missing: there a slope is −p_i p_j.": right.abs(),
        "Beside the diagonal is not 0: raising one logit takes weight from all the others.":
            right.diagonal().diag(),
        "That is the diagonal alone; three rows of three slopes are asked for.": right.diagonal(),
        "That is p pᵀ: the Jacobian is diag(p) − p pᵀ.": products,
        "That is −p pᵀ: diag(p) is missing.": -products,
        "That is diag(p): p pᵀ has to be taken off.": P.diag(),
    }
    compare(answer, right, mistakes)
    return "Each row and each column sums to 0."


def backward(answer):
    """04.2: a function (p, g) -> ∂L/∂logits, … n, without the n × n Jacobian."""
    for shape in (2, 3, 5), (3, 2, 7):  # two sizes: a number in the code shows
        _check_backward(answer, *shape)
    return "n numbers in, n numbers out, and no table of n × n."


def _check_backward(answer, *shape):
    generator = torch.Generator().manual_seed(4)
    p, g = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    p = p.softmax(-1)
    right = p * (g - (p * g).sum(-1, keepdim=True))
    mistakes = {
        "The average is missing: from each g the average Σ p g of its row is taken off.": p * g,
        "That is the diagonal of J times g: a logit also moves the other weights.": p * (1 - p) * g,
        "That average counts every weight alike: it is weighted with p, Σ p g.":
            p * (g - g.mean(-1, keepdim=True)),
        "Σ g is no average: weight it with p, Σ p g.": p * (g - g.sum(-1, keepdim=True)),
        "The factor p in front is missing: p (g − Σ p g).": g - (p * g).sum(-1, keepdim=True),
        "The sum runs over everything: each row has its own, dim=-1.": p * (g - (p * g).sum()),
        "The sum runs over the rows: it belongs on the last axis, dim=-1.":
            p * (g - (p * g).sum(-2, keepdim=True)),
        "The signs are turned round: p (g − Σ p g).": -right,
        "That is the average of each row; it is taken off from g, and the rest times p.":
            (p * g).sum(-1),
        "That is the gradient of the weights themselves, unchanged.": g,
    } | {
        f"The two cases of the Jacobian are swapped: {formula} belongs on its diagonal.":
            (jacobian.mT @ g[..., None])[..., 0]
        for formula, jacobian in _swapped(p).items()
    }
    compare(call(answer, p, g), right, mistakes, tolerance=1e-9)
    single = call(answer, p[0, 0], g[0, 0])
    compare(single, right[0, 0], {"It works on a batch, and differs on a single row.": single})


def far_apart_and_awake(answer):
    """04.3: five logits with a standard deviation above 100 whose Jacobian has the norm 0.5."""
    logits = torch.as_tensor(as_array(answer))
    if logits.shape != (5,):
        raise Wrong(f"The shape is {tuple(logits.shape)}; five numbers are asked for.")
    if not bool(logits.isfinite().all()):
        raise Wrong("Some of the logits are not finite.")
    spread = logits.std(correction=0).item()
    p = logits.softmax(-1)
    norm = jacobian_norm(p).item()
    if spread <= 100:
        raise Wrong(f"The norm is {norm:.3f}, but the logits spread by {spread:.3g} only: "
                    "more than 100 is asked for.")
    if norm > 0.499:
        return f"The logits spread by {spread:.3g}, and the norm is {norm:.3f}."
    tied = int((p > 0.99 * p.max()).sum())
    if tied == 1 and p.max() > 0.99:
        raise Wrong(f"One logit dominates, with the weight {p.max().item():.3f}: the norm is "
                    f"{norm:.3f}. Who could share the weight with it?")
    if tied > 2:
        raise Wrong(f"{tied} logits share the weight, and the norm is {norm:.3f}: with fewer of "
                    "them it is larger.")
    raise Wrong(f"The norm is {norm:.3f}: bring the two largest logits closer together, and the "
                "others further away from them.")


CHECKS = {"04.1": jacobian_by_hand, "04.2": backward, "04.3": far_apart_and_awake}
