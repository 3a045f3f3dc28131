"""The Jacobian of the softmax: by hand, by autograd, by differences, and its eigenvalues."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from mha import masked_softmax, softmax_jacobian

exactly = {"atol": 1e-12, "rtol": 0}


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_by_hand():
    jacobian = softmax_jacobian(torch.tensor([0.5, 0.375, 0.125], dtype=torch.float64))
    expected = [[0.25, -0.1875, -0.0625], [-0.1875, 0.234375, -0.046875],
                [-0.0625, -0.046875, 0.109375]]  # fmt: skip
    assert jacobian.tolist() == expected
    assert softmax_jacobian(torch.ones(1)).tolist() == [[0.0]]
    assert softmax_jacobian(torch.tensor([0.0, 1.0])).tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_it_is_autograds():
    logits = draw(7, seed=1)
    expected = torch.autograd.functional.jacobian(lambda t: torch.softmax(t, -1), logits)
    assert_close(softmax_jacobian(torch.softmax(logits, -1)), expected, **exactly)


def test_with_a_mask_it_is_that_of_masked_softmax():
    logits = draw(2, 3, 5, seed=2)
    mask = draw(3, 5, seed=3) > -0.5
    mask[1] = False
    jacobian = softmax_jacobian(masked_softmax(logits, mask))  # B T S S
    assert jacobian.shape == (2, 3, 5, 5)
    full = torch.autograd.functional.jacobian(lambda t: masked_softmax(t, mask), logits)
    for b in range(2):
        for t in range(3):
            assert_close(jacobian[b, t], full[b, t, :, b, t], **exactly)
    assert not jacobian[:, 1].any()  # a row without keys
    hidden = ~mask[0]
    assert hidden.any() and not jacobian[:, 0, hidden].any() and not jacobian[:, 0, :, hidden].any()


def by_differences(logits, h):
    """Move each logit by ± h; column k says what moving logit k did."""
    steps = h * torch.eye(len(logits), dtype=logits.dtype)
    moved = torch.softmax(logits + steps, -1) - torch.softmax(logits - steps, -1)  # k i
    return moved.T / (2 * h)


def test_it_is_that_of_central_differences():
    logits = draw(7, seed=4)
    jacobian = softmax_jacobian(torch.softmax(logits, -1))
    worst = {h: (by_differences(logits, h) - jacobian).abs().max() for h in (1e-2, 1e-3, 1e-4)}
    assert worst[1e-4] < 1e-7 * jacobian.abs().max()
    assert worst[1e-2] / worst[1e-3] == pytest.approx(100, rel=0.01)  # the error falls as h²


def test_the_swapped_cases_are_wrong_by_the_weight_on_the_diagonal():
    # Often written: −y_i y_k for i = k, y_i (1 − y_k) beside it.
    logits = draw(5, seed=5)
    y = torch.softmax(logits, -1)
    swapped = y[:, None] * (1 - torch.eye(5, dtype=y.dtype) - y)
    off = softmax_jacobian(y) - swapped
    assert_close(off.diagonal(), y, **exactly)
    beside = ~torch.eye(5, dtype=torch.bool)
    assert_close(off[beside], -y[:, None].expand(5, 5)[beside], **exactly)
    assert (by_differences(logits, 1e-4) - swapped).abs().max() > 0.1


@st.composite
def weights(draw):
    sizes = st.floats(-8, 8)
    logits = draw(st.lists(sizes, min_size=1, max_size=7))
    return torch.softmax(torch.tensor(logits, dtype=torch.float64), -1)


@settings(deadline=None, derandomize=True, database=None, max_examples=200)
@given(p=weights())
@example(p=torch.tensor([0.5, 0.5], dtype=torch.float64))  # λ_max = 1/2: no bound can be smaller
@example(p=torch.tensor([0.0, 1.0], dtype=torch.float64))
def test_facts(p):
    jacobian = softmax_jacobian(p)
    assert torch.equal(jacobian, jacobian.T)
    assert jacobian.sum(-1).abs().max() < 1e-15 and jacobian.sum(-2).abs().max() < 1e-15
    assert (jacobian.diagonal() >= 0).all()
    values = torch.linalg.eigvalsh(jacobian)  # in rising order
    top = p.max().item()
    assert values[0] > -1e-14
    assert values[-1] <= min(top, 2 * top * (1 - top), 0.5) + 1e-14


def test_both_bounds_are_reached():
    # Of n equal weights every eigenvalue but one is 1/n; of two unequal weights it is 2 p (1 − p).
    equal = torch.full((7,), 1 / 7, dtype=torch.float64)
    assert_close(torch.linalg.eigvalsh(softmax_jacobian(equal))[1:], equal[1:], **exactly)
    pair = torch.tensor([0.75, 0.25], dtype=torch.float64)
    largest = torch.linalg.eigvalsh(softmax_jacobian(pair))[-1].item()
    assert math.isclose(largest, 2 * 0.75 * 0.25, abs_tol=1e-15)


def test_leading_axes_are_independent():
    p = torch.softmax(draw(2, 3, 5, 7, seed=6), -1)
    jacobian = softmax_jacobian(p)
    assert jacobian.shape == (2, 3, 5, 7, 7)
    assert torch.equal(jacobian[1, 2, 4], softmax_jacobian(p[1, 2, 4]))
    assert torch.equal(torch.func.vmap(softmax_jacobian)(p), jacobian)
    assert softmax_jacobian(torch.zeros(2, 0)).shape == (2, 0, 0)


def test_it_is_differentiable():
    logits = draw(2, 3, seed=7).requires_grad_()
    assert torch.autograd.gradcheck(lambda t: softmax_jacobian(torch.softmax(t, -1)), logits)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_dtype_is_kept(dtype):
    assert softmax_jacobian(torch.tensor([0.5, 0.5], dtype=dtype)).dtype == dtype


@pytest.mark.parametrize(
    ("p", "error", "message"),
    [
        ([0.5, 0.5], TypeError, "p is a list; pass a torch tensor"),
        (torch.tensor([0, 1]), TypeError, r"p has dtype torch.int64; .*softmax\(logits\)"),
        (torch.tensor([True]), TypeError, "p has dtype torch.bool"),
        (torch.tensor([1j]), TypeError, "p has dtype torch.complex64"),
        (torch.tensor(1.0), ValueError, r"p has shape \(\); .*p\[None\]"),
    ],
)
def test_refusals(p, error, message):
    with pytest.raises(error, match=message):
        softmax_jacobian(p)
