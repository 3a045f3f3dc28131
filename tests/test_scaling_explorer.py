"""ScalingExplorer from Python: its draws, formulas by quadrature, gradients by torch."""

import base64
import json
import math
import re

import matplotlib.style
import numpy as np
import pytest
import torch

from mha.moments import dot_product_moments
from mha.plotting import STYLE
from mha.widgets import ScalingExplorer, base
from mha.widgets.scaling_explorer import standard_normals

VIEW = "application/vnd.jupyter.widget-view+json"
SCALES = ("1", "1/√d_k", "1/d_k")


def by_quadrature(mean, correlation):
    """Return mean, variance and variance with X fixed of X·Y, by Gauss and Hermite's sum."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(9)  # exact for polynomials up to degree 17
    weights = weights / weights.sum()
    x = mean + nodes[:, None]
    y = mean + correlation * nodes[:, None] + math.sqrt(1 - correlation**2) * nodes[None, :]
    product, both = x * y, weights[:, None] * weights[None, :]
    first = (product * both).sum()
    given = (product * weights).sum(1)  # the mean while X stays
    within = (((product - given[:, None]) ** 2) * both).sum()
    return first, (((product - first) ** 2) * both).sum(), within


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("correlation", [-0.95, -0.3, 0, 0.55, 0.95])
@pytest.mark.parametrize("mean", [-1, 0, 0.35, 1])
@pytest.mark.parametrize("d_k", [1, 8, 1024])
def test_the_prediction_is_exact(d_k, mean, correlation, scale):
    known = ScalingExplorer(d_k, scale=scale, mean=mean, correlation=correlation).predicted()
    factor = {"1": 1, "1/√d_k": d_k**-0.5, "1/d_k": 1 / d_k}[scale]
    first, variance, within = by_quadrature(mean, correlation)
    assert known["mean"] == pytest.approx(factor * d_k * first, abs=1e-9)
    assert known["variance"] == pytest.approx(factor**2 * d_k * variance, rel=1e-12)
    assert known["within"] == pytest.approx(factor**2 * d_k * within, rel=1e-12)
    moments = dot_product_moments(d_k, mean, mean, correlation=correlation)
    assert known["mean"] == pytest.approx(factor * moments[0], abs=1e-9)
    assert known["variance"] == pytest.approx(factor**2 * moments[1], rel=1e-12)


def test_the_numbers_drawn_are_standard_normal_and_apart():
    x = np.concatenate([standard_normals(seed, np.arange(2112), 64) for seed in (0, 1, 9999)])
    n = x.size
    assert abs(x.mean()) * math.sqrt(n) < 4
    assert abs(x.var() - 1) * math.sqrt(n / 2) < 4
    assert abs((x**4).mean() - 3) * math.sqrt(n / 96) < 4
    for z in (0.5, 1, 2, 3):
        share = math.erfc(z / math.sqrt(2))
        assert abs((np.abs(x) > z).mean() - share) < 4 * math.sqrt(share / n)
    ahead = x[:, :-1] * x[:, 1:]
    seeds = x[:2112] * x[2112:4224]
    rows = x[:-1] * x[1:]
    for products in (ahead, seeds, rows, (x[:, ::2] ** 2 - 1) * (x[:, 1::2] ** 2 - 1) / 2):
        assert abs(products.mean()) * math.sqrt(products.size) < 4


def test_a_wider_vector_begins_like_a_narrow_one():
    whole = standard_normals(3, np.arange(5), 1024)
    for width in (1, 2, 8, 7):
        assert np.array_equal(standard_normals(3, np.arange(5), width), whole[:, :width])


def test_what_is_measured_is_what_is_predicted():
    """Over many draws the distance, counted in standard errors, is about normal."""
    distances = []
    for seed in range(100):
        explorer = ScalingExplorer(64, mean=0.5, correlation=-0.4, seed=seed)
        known, found = explorer.predicted(), explorer.measured()
        distances.append([(found[n][0] - known[n]) / found[n][1] for n in known])
    distances = np.array(distances)
    assert np.all(np.abs(distances.mean(0)) < 0.45)
    assert np.all((distances.std(0) > 0.7) & (distances.std(0) < 1.4))


def test_the_entries_have_the_mean_and_the_correlations_they_should():
    explorer = ScalingExplorer(1024, mean=0.5, correlation=0.6, seed=5)
    q = explorer.queries()
    k = np.stack([explorer.keys_of(row) for row in range(64)])
    assert q.mean() == pytest.approx(0.5, abs=0.02) and k.mean() == pytest.approx(0.5, abs=0.02)
    assert q.var() == pytest.approx(1, abs=0.03) and k.var() == pytest.approx(1, abs=0.03)
    assert np.corrcoef(q.ravel(), k[:, 7].ravel())[0, 1] == pytest.approx(0.6, abs=0.02)
    assert np.corrcoef(k[:, 3].ravel(), k[:, 7].ravel())[0, 1] == pytest.approx(0.36, abs=0.02)


@pytest.mark.parametrize(
    ("d_k", "scale", "mean", "correlation"),
    [(1, "1", 1, 0.95), (8, "1/d_k", -0.5, -0.95), (64, "1/√d_k", 0, 0), (256, "1", 0.3, 0.4)],
)
def test_weights_and_gradients_equal_torch(d_k, scale, mean, correlation):
    explorer = ScalingExplorer(d_k, scale=scale, mean=mean, correlation=correlation, seed=7)
    by_logits, by_query = explorer.gradient_norms()
    for row in (0, 13, 63):
        q, k = (torch.tensor(x) for x in (explorer.queries()[row], explorer.keys_of(row)))
        factor = {"1": 1, "1/√d_k": d_k**-0.5, "1/d_k": 1 / d_k}[scale]
        logits = factor * (k @ q)
        weights = logits.softmax(0)
        np.testing.assert_allclose(explorer.logits()[row], logits, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(explorer.weights()[row], weights, rtol=0, atol=1e-12)
        slopes = torch.func.jacrev(lambda x: x.softmax(0))(logits)
        assert by_logits[row] == pytest.approx(slopes.norm().item(), rel=1e-7, abs=1e-12)
        slopes = torch.func.jacrev(lambda x, k=k, f=factor: (f * (k @ x)).softmax(0))(q)
        assert by_query[row] == pytest.approx(slopes.norm().item(), rel=1e-7, abs=1e-12)


def test_a_gradient_near_one_hot_keeps_its_digits():
    """Two keys a lead apart: ‖J‖ = √2 ε (1 − ε), which 1 − p² would lose."""
    explorer = ScalingExplorer(1024, scale="1", seed=2)
    logits, (by_logits, _) = explorer.logits(), explorer.gradient_norms()
    row = np.diff(np.sort(logits, 1)[:, -2:], axis=1).argmax()
    shifted = torch.tensor(logits[row] - logits[row].max())
    small = shifted.exp()[torch.tensor(logits[row]) < logits[row].max()]
    rest = small.sum() / (1 + small.sum())
    p = small / (1 + small.sum())
    top = 1 - rest
    exact = top**2 * (rest**2 + (p**2).sum())  # the row of the heaviest key
    exact += (p**2 * ((1 - p) ** 2 + top**2 + (p**2).sum() - p**2)).sum()
    assert rest < 1e-12
    assert by_logits[row] == pytest.approx(exact.sqrt().item(), rel=1e-9, abs=0)


def test_width_and_scale_put_the_softmax_to_sleep_or_keep_it_awake():
    explorer = ScalingExplorer(1024, scale="1")
    assert explorer.saturated() > 0.5 and np.median(explorer.gradient_norms()[0]) < 0.02
    explorer.scale = "1/√d_k"
    assert explorer.saturated() == 0 and np.median(explorer.gradient_norms()[0]) > 0.15
    explorer.scale = "1/d_k"
    assert explorer.weights().max() < 2 / 32 and explorer.gradient_norms()[1].max() < 0.02


def test_the_state_can_be_read_and_set():
    explorer = ScalingExplorer(np.int64(8), mean=-0.0, correlation=-0.0)
    assert str(explorer.mean) == str(explorer.correlation) == "0.0" and type(explorer.d_k) is int
    explorer.scale, explorer.mean, explorer.correlation = "1", torch.tensor(0.5), 0.25
    explorer.seed, explorer.row = 9999, 63
    state = (explorer.d_k, explorer.scale, explorer.mean, explorer.correlation)
    assert state == (8, "1", 0.5, 0.25)
    assert explorer.get_state()["_start"] == {
        "d_k": 8, "scale": "1/√d_k", "mean": 0, "correlation": 0, "seed": 2, "row": 0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("d_k", 48, ValueError, "d_k=48 is not a choice; try one of 1, 2, 4, 8, 16, 32, 64, 128"),
        ("d_k", 64.0, TypeError, "d_k=64.0 is not a choice"),
        ("scale", "sqrt", ValueError, "scale='sqrt' is not a choice; try one of '1', '1/√d_k', "),
        ("scale", 1, TypeError, "scale=1 is not a choice; try one of '1', "),
        ("mean", 1.01, ValueError, "mean=1.01 is out of range; give a number from -1.0 to 1.0"),
        ("mean", "0", TypeError, "mean='0' is not a number"),
        ("correlation", -0.96, ValueError, "correlation=-0.96 is out of range; give a number from"),
        ("correlation", float("nan"), ValueError, "correlation=nan is out of range"),
        ("seed", -1, ValueError, "seed=-1 is out of range: there are 10000 draws"),
        ("seed", 0.5, TypeError, "seed=0.5 is not a whole number"),
        ("row", 64, ValueError, "row=64 is out of range: there are 64 queries"),
    ],
)
def test_a_wrong_value_is_refused_with_a_way_out(name, value, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        ScalingExplorer(**{name: value})
    explorer = ScalingExplorer()
    before = getattr(explorer, name)
    with pytest.raises(kind, match=re.escape(message)):
        setattr(explorer, name, value)
    assert getattr(explorer, name) == before


def test_the_module_is_the_shared_maths_and_then_the_widget():
    esm = str(ScalingExplorer._esm)
    assert esm.startswith((base.STATIC / "attention.js").read_text("utf-8"))
    assert esm.rstrip().endswith("export default { render };")
    assert not re.search(r"^import ", esm, re.MULTILINE)
    names = re.findall(r"^(?:export )?(?:function|const|let) (\w+)", esm, re.MULTILINE)
    assert len(names) == len(set(names))


def test_every_rule_of_the_style_sheet_begins_with_the_class_of_the_widget():
    css = (base.STATIC / "scaling_explorer.css").read_text("utf-8")
    selectors = re.findall(r"^\s*([^@{}\n][^{}]*)\{", css, re.MULTILINE)
    assert len(selectors) > 25
    for selector in selectors:
        for one in re.split(r",\s*(?![^()]*\))", selector):
            assert one.startswith(".mha-scale"), selector


def test_the_output_has_a_view_a_picture_and_a_stable_text():
    explorer = ScalingExplorer(8, scale="1", correlation=0.5)
    data, _ = explorer._repr_mimebundle_()
    assert set(data) == {VIEW, "image/png", "text/plain"}
    assert data["text/plain"] == (
        "ScalingExplorer(d_k=8, scale='1', mean=0.0, correlation=0.5, seed=2, row=0)"
    )
    assert base64.b64decode(data["image/png"]) == explorer.picture()
    json.dumps(data)


OTHERS = (
    {"d_k": 1024, "scale": "1"},
    {"d_k": 1, "mean": 1, "correlation": -0.95},
    {"scale": "1/d_k"},
    {"row": 3},
    {"seed": 4},
)


def test_the_picture_is_a_small_png_with_the_same_bytes_each_time():
    first = ScalingExplorer().picture()
    with matplotlib.style.context(STYLE):
        assert ScalingExplorer().picture() == first
    pictures = {first, *(ScalingExplorer(**one).picture() for one in OTHERS)}
    assert len(pictures) == 1 + len(OTHERS)
    assert all(p.startswith(b"\x89PNG\r\n\x1a\n") and len(p) <= 40_000 for p in pictures)
