"""The Jacobian of the softmax, its eigenvalues and norms, the slope by the query, and samples."""

import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from mha import (
    gradient_study,
    jacobian_norm,
    masked_softmax,
    median_and_mean,
    query_gradient_norm,
    softmax_jacobian,
)

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


@pytest.mark.parametrize("of_row", [True, False])
def test_the_swapped_cases_fail_the_same_check(of_row):
    # Often written: −p_i p_k for i = k, and beside it p_i (1 − p_i), or p_i (1 − p_k).
    logits = draw(5, seed=5)
    p = torch.softmax(logits, -1)
    own = torch.eye(5, dtype=torch.bool)
    row, column = p[:, None].expand(5, 5), p.expand(5, 5)
    swapped = torch.where(own, -row * column, row * (1 - (row if of_row else column)))
    off = swapped - softmax_jacobian(p)
    assert_close(off.diagonal(), -p, **exactly)
    beside = row * (1 - row + column) if of_row else row
    assert_close(off[~own], beside[~own], **exactly)
    for h in (1e-2, 1e-3, 1e-4):  # no smaller step mends it
        assert (by_differences(logits, h) - swapped).abs().max() > 0.1
    assert swapped.sum(0).abs().max() > 0.1


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


def test_each_row_is_its_weight_times_the_way_to_that_key():
    p = torch.softmax(draw(7, seed=8), -1)
    assert_close(softmax_jacobian(p), p[:, None] * (torch.eye(7, dtype=p.dtype) - p), **exactly)


def test_along_a_direction_it_is_a_variance():
    p, v = torch.softmax(draw(7, seed=9), -1), draw(7, seed=10)
    mean = (p * v).sum()
    assert_close(v @ softmax_jacobian(p) @ v, (p * (v - mean) ** 2).sum(), **exactly)


def test_gershgorin_centre_and_radius_are_equal():
    jacobian = softmax_jacobian(torch.softmax(draw(7, seed=11), -1))
    radius = jacobian.abs().sum(-1) - jacobian.diagonal()
    assert_close(radius, jacobian.diagonal(), **exactly)


def test_the_vector_jacobian_product_needs_no_table():
    logits, g = draw(3, 7, seed=12).requires_grad_(), draw(3, 7, seed=13)
    p = torch.softmax(logits, -1)
    p.backward(g)
    p = p.detach()
    by_formula = p * (g - (p * g).sum(-1, keepdim=True))
    assert_close(by_formula, logits.grad, **exactly)
    assert_close(by_formula, (softmax_jacobian(p).mT @ g[..., None])[..., 0], **exactly)


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
    with pytest.raises(error, match=message):
        jacobian_norm(p)
    with pytest.raises(error, match=message):
        query_gradient_norm(p, torch.zeros(2, 3))


@settings(deadline=None, derandomize=True, database=None, max_examples=200)
@given(p=weights())
def test_the_norm_is_that_of_the_table_and_at_most_a_half(p):
    norm = jacobian_norm(p)
    assert_close(norm, softmax_jacobian(p).norm(), atol=1e-15, rtol=1e-7)
    squares, cubes = p.square().sum(), (p**3).sum()
    assert_close(norm**2, squares - 2 * cubes + squares**2, atol=1e-14, rtol=0)
    assert norm <= 0.5 + 1e-15


def test_norms_by_hand():
    assert jacobian_norm(torch.tensor([[0.5, 0.5], [0.0, 1.0], [0.0, 0.0]])).tolist() == [0.5, 0, 0]
    equal = torch.full((2, 3, 7), 1 / 7, dtype=torch.float64)
    assert_close(jacobian_norm(equal), math.sqrt(6) * equal[..., 0], **exactly)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_winner_keeps_the_digits_of_its_norm(dtype):
    # Two keys, one ahead by t: ‖J‖ = 2 p (1 − p), and 1 − p = 1/(1 + e^t) is far below the rounding
    # of p; the sums of powers cancel to nothing there.
    lead = torch.tensor([10.0, 20, 30], dtype=torch.float64)
    p = torch.softmax(torch.stack([torch.zeros(3, dtype=torch.float64), lead], -1), -1).to(dtype)
    lost = torch.sigmoid(-lead)
    assert_close(jacobian_norm(p).double(), 2 * lost * (1 - lost), atol=0, rtol=1e-6)
    k = torch.tensor([[3.0, 1.0], [7.0, 4.0]], dtype=dtype) + 1000  # 5 apart
    slope = query_gradient_norm(p, k, scale=1.0).double()
    assert_close(slope, math.sqrt(2) * 5 * lost * (1 - lost), atol=0, rtol=1e-6)


@pytest.mark.parametrize("scale", [None, 1.0, -0.7])
def test_the_slope_by_the_query_is_autograds(scale):
    q, k = draw(3, 11, seed=14), draw(3, 7, 11, seed=15)
    factor = 11**-0.5 if scale is None else scale
    for t in range(3):

        def weights_of(query, t=t):
            return torch.softmax(factor * k[t] @ query, -1)

        expected = torch.autograd.functional.jacobian(weights_of, q[t])  # n d
        p = weights_of(q[t])
        assert_close(factor * softmax_jacobian(p) @ k[t], expected, **exactly)
        mean = p @ k[t]
        assert_close(factor * p[:, None] * (k[t] - mean), expected, **exactly)
        assert_close(query_gradient_norm(p, k[t], scale), expected.norm(), **exactly)


def test_keys_are_shared_or_not():
    p = torch.softmax(draw(2, 3, 5, seed=16), -1)
    k = draw(2, 1, 5, 7, seed=17)
    together = query_gradient_norm(p, k)
    assert together.shape == (2, 3)
    assert_close(together[1, 2], query_gradient_norm(p[1, 2], k[1, 0]), **exactly)
    several = query_gradient_norm(p[0, 0], k)  # one row of weights, more keys
    assert_close(several[1, 0], query_gradient_norm(p[0, 0], k[1, 0]), **exactly)
    alike = draw(1, 7, seed=18).expand(5, 7)  # no query tells equal keys apart
    assert query_gradient_norm(p, alike).abs().max() < 1e-14
    assert not query_gradient_norm(torch.zeros(2, 5), torch.ones(5, 7)).any()  # no key seen


@pytest.mark.parametrize(
    ("p", "k", "message"),
    [
        (
            torch.ones(3),
            torch.ones(2, 5),
            r"k has shape \(2, 5\) and p has 3 weights; pass one key",
        ),
        (torch.ones(3), torch.ones(3), r"k has shape \(3,\)"),
        (
            torch.ones(2, 0),
            torch.ones(0, 5),
            r"p has shape \(2, 0\); a row needs at least one weight",
        ),
    ],
)
def test_keys_that_do_not_fit_are_refused(p, k, message):
    with pytest.raises(ValueError, match=message):
        query_gradient_norm(p, k)


def test_the_study_measures_what_the_tables_say():
    study = gradient_study(7, n_keys=5, n_rows=3, seed=19)
    generator = torch.Generator().manual_seed(19)
    q = torch.randn(3, 7, 1, generator=generator)
    k = torch.randn(3, 5, 7, generator=generator)
    for name, scale in ("unscaled", 1.0), ("scaled", 7**-0.5):
        p = torch.softmax(scale * (k @ q)[..., 0], -1)
        jacobian = softmax_jacobian(p)
        assert_close(study[name]["jacobian"], jacobian.flatten(1).norm(dim=1))
        assert_close(study[name]["query"], (scale * jacobian @ k).flatten(1).norm(dim=1))
        assert torch.equal(study[name]["top"], p.amax(-1))


def test_the_study_draws_each_row_anew_and_the_same_each_time():
    study = gradient_study(2**10, n_keys=64, n_rows=53)  # more than one chunk, the last one short
    again = gradient_study(2**10, n_keys=64, n_rows=53)
    for name in study:
        for what, values in study[name].items():
            assert values.shape == (53,) and len(set(values.tolist())) > 40
            assert torch.equal(values, again[name][what])


def test_the_intervals_hold_the_truth_about_as_often_as_they_say():
    truth = {"median": math.log(2), "mean": 1.0}  # of the exponential distribution, which is skew
    caught = dict.fromkeys(truth, 0)
    generator = torch.Generator().manual_seed(20)
    for _ in range(1000):
        sample = torch.empty(401).exponential_(generator=generator)
        for name, (value, low, high) in median_and_mean(sample).items():
            assert low < value < high
            caught[name] += low <= truth[name] <= high
    assert 920 < caught["median"] < 980 and 920 < caught["mean"] < 980


def test_median_and_mean_by_hand():
    found = median_and_mean(torch.tensor([9.0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 100]))  # 11 numbers
    assert found["median"] == (6, 4, 8)
    mean, low, high = found["mean"]
    assert mean == pytest.approx(155 / 11) and (low + high) / 2 == pytest.approx(mean)
    with pytest.raises(ValueError, match="sample has 9 draws"):
        median_and_mean(torch.zeros(9))


def test_subtracting_the_largest_logit_changes_neither_weights_nor_slopes():
    logits, g = draw(7, seed=21) + 300, draw(7, seed=22)
    slopes = []
    for largest in (logits.max(), None):  # a constant, or a function of the logits
        leaf = logits.clone().requires_grad_()
        powers = (leaf - (leaf.max() if largest is None else largest)).exp()
        p = powers / powers.sum()
        assert_close(p, torch.softmax(logits, -1), **exactly)
        p.backward(g)
        slopes.append(leaf.grad)
    p = torch.softmax(logits, -1)
    for slope in slopes:
        assert_close(slope, softmax_jacobian(p) @ g, **exactly)
