"""SoftmaxJacobian from Python: traits, refusals, numbers against torch, the front end."""

import base64
import json
import re

import matplotlib.style
import numpy as np
import pytest
import torch

from mha.plotting import STYLE
from mha.widgets import SoftmaxJacobian, base
from mha.widgets.softmax_jacobian_picture import slope_text

NAMES = ["a", "b", "c", "d"]
LOGITS = (2.0, 1.0, 0.0, -1.0)
VIEW = "application/vnd.jupyter.widget-view+json"


def four(**state):
    return SoftmaxJacobian(LOGITS, NAMES, **state)


def test_the_numbers_by_hand():
    softmax = SoftmaxJacobian([2 * np.log(2), 0, 0], temperature=2)
    np.testing.assert_allclose(softmax.weights(), [0.5, 0.25, 0.25], atol=1e-15)
    by_hand = np.array([[4, -2, -2], [-2, 3, -1], [-2, -1, 3]]) / 16
    np.testing.assert_allclose(softmax.jacobian(), by_hand, atol=1e-15)
    assert softmax.norm() == pytest.approx(np.sqrt(52) / 16, abs=1e-15)
    # (4 + 2, …): the vector (2, −1, −1) is turned into 6/16 of itself
    assert softmax.largest_eigenvalue() == pytest.approx(6 / 16, abs=1e-15)
    assert softmax.eigenvalue_bound() == pytest.approx(0.5, abs=1e-15)


@pytest.mark.parametrize("temperature", [0.05, 0.7, 1, 20])
@pytest.mark.parametrize("count", [2, 3, 5, 7, 12])
def test_weights_and_slopes_equal_torch_autograd(count, temperature):
    rng = np.random.default_rng(count)
    logits = rng.uniform(-1, 1, count) * min(10, 8 * temperature)
    softmax = SoftmaxJacobian(logits, temperature=temperature)
    z = torch.tensor(logits / temperature)
    slopes = torch.autograd.functional.jacobian(lambda x: x.softmax(0), z)
    assert softmax.weights().dtype == softmax.jacobian().dtype == np.float64
    np.testing.assert_allclose(softmax.weights(), z.softmax(0), rtol=0, atol=1e-14)
    np.testing.assert_allclose(softmax.jacobian(), slopes, rtol=0, atol=1e-14)
    assert softmax.norm() == pytest.approx(slopes.norm().item(), abs=1e-14)
    largest = torch.linalg.eigvalsh(slopes)[-1].item()
    assert softmax.largest_eigenvalue() == pytest.approx(largest, abs=1e-14)
    assert largest <= softmax.eigenvalue_bound() + 1e-14
    assert softmax.eigenvalue_bound() <= 0.5


def test_by_the_logit_itself_the_slope_is_divided_by_the_temperature():
    softmax = four(temperature=0.5)
    logits = torch.tensor(LOGITS, dtype=torch.float64)
    slopes = torch.autograd.functional.jacobian(lambda x: (x / 0.5).softmax(0), logits)
    np.testing.assert_allclose(softmax.jacobian() / softmax.temperature, slopes, atol=1e-14)


def test_where_one_weight_is_nearly_1_the_slopes_keep_their_digits():
    softmax = SoftmaxJacobian([10, -10, -10], temperature=0.5)  # e^−40 each
    slopes = softmax.jacobian() / np.exp(-40)
    wanted = [[2, -1, -1], [-1, 1, -np.exp(-40)], [-1, -np.exp(-40), 1]]
    np.testing.assert_allclose(slopes, wanted, rtol=1e-12)
    assert softmax.norm() / np.exp(-40) == pytest.approx(np.sqrt(10))
    assert softmax.largest_eigenvalue() / np.exp(-40) == pytest.approx(3)
    assert softmax.eigenvalue_bound() / np.exp(-40) == pytest.approx(4)
    softmax.temperature = 0.05
    assert softmax.norm() > 0  # its squares would be 0


def test_the_state_can_be_read_and_set():
    softmax = four(temperature=2, cell=(1, 3))
    state = (softmax.logits, softmax.names, softmax.temperature, softmax.cell)
    assert state == (LOGITS, tuple(NAMES), 2.0, (1, 3))
    softmax.logits = np.array([0.5, -0.0, 10, -10])
    softmax.names, softmax.cell = range(4), np.array([2, 0])
    assert str(softmax.logits) == "(0.5, 0.0, 10.0, -10.0)"
    assert (softmax.names, softmax.cell) == (("0", "1", "2", "3"), (2, 0))
    softmax.logits = torch.tensor(LOGITS, requires_grad=True)
    assert softmax.logits == LOGITS
    assert {type(one) for one in softmax.logits} == {float}
    assert {type(one) for one in softmax.cell} == {int}
    assert SoftmaxJacobian([1, 2]).names == ("0", "1")


def test_the_page_sends_lists_and_cannot_change_where_it_began():
    softmax = four(temperature=3)
    first = softmax.get_state()["_start"]
    assert first == {"logits": LOGITS, "temperature": 3.0, "cell": (0, 0)}
    json.dumps(first)
    softmax.set_state({"logits": [5, -5, -5, -5], "cell": [2, 1], "temperature": 0.502})
    softmax.set_state({"_start": {"logits": []}})
    assert softmax.logits == (5, -5, -5, -5) and softmax.cell == (2, 1)
    assert softmax.get_state()["_start"] == first


@pytest.mark.parametrize(
    ("name", "value", "kind", "message"),
    [
        ("temperature", 0.04, ValueError, "temperature=0.04 is out of range; give a number from"),
        ("temperature", 21, ValueError, "temperature=21.0 is out of range"),
        ("temperature", "hot", TypeError, "temperature='hot' is not a number"),
        ("cell", (0, 4), ValueError, "a number of cell=4 is out of range: there are 4 logits"),
        ("cell", (-1, 0), ValueError, "a number of cell=-1 is out of range"),
        ("cell", (0, 1.5), TypeError, "a number of cell=1.5 is not a whole number"),
        ("cell", (0, 1, 2), ValueError, "cell=(0, 1, 2) holds 3 numbers; give two, (row, column)"),
        ("cell", 3, TypeError, "cell=3 is not a list; give (row, column)"),
        ("cell", "ab", TypeError, "cell='ab' is not a list"),
    ],
)
def test_a_wrong_value_is_refused_with_a_way_out(name, value, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        four(**{name: value})
    softmax = four()
    before = getattr(softmax, name)
    with pytest.raises(kind, match=re.escape(message)):
        setattr(softmax, name, value)
    assert getattr(softmax, name) == before


@pytest.mark.parametrize(
    ("logits", "names", "kind", "message"),
    [
        ([1], None, ValueError, "1 logits don't fit the page; give 2 to 12"),
        (range(13), None, ValueError, "13 logits don't fit the page; give 2 to 12"),
        ("12", None, TypeError, "logits='12' is not a list; give one entry a logit"),
        (torch.tensor(3.0), None, TypeError, "is not a list"),
        (7, None, TypeError, "logits=7 is not a list"),
        ([0, 10.1], None, ValueError, "logits[1]=10.1 is out of range; give a number from -10.0"),
        ([0, float("nan")], None, ValueError, "logits[1]=nan is out of range"),
        ([0, -np.inf], None, ValueError, "logits[1]=-inf is out of range"),
        ([0, "1"], None, TypeError, "logits[1]='1' is not a number"),
        ([True, 0], None, TypeError, "logits[0]=True is not a number"),
        ([[1, 2], [3, 4]], None, TypeError, "logits[0]=[1, 2] is not a number"),
        ([0, 1], "ab", TypeError, "names='ab' is not a list"),
        ([0, 1], ["a"], ValueError, "names holds 1, but there are 2 logits; give one a logit"),
        ([0, 1], ["a", "a "], ValueError, "don't tell the logits apart; give each its own name"),
        ([0, 1], ["a", " "], ValueError, "not blank"),
        ([0, 1], ["a", "verylongs"], ValueError, "'verylongs' has 9 letters; give at most 8"),
    ],
)
def test_wrong_logits_and_names_are_refused(logits, names, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        SoftmaxJacobian(logits, names)


@pytest.mark.parametrize("name", ["logits", "names"])
def test_the_number_of_logits_stays(name):
    softmax = four()
    before = getattr(softmax, name)
    with pytest.raises(ValueError, match=f"{name} holds 3, but there are 4 logits; give one a"):
        setattr(softmax, name, before[:3])
    assert getattr(softmax, name) == before


def test_the_module_is_the_shared_maths_and_then_the_widget():
    esm = str(SoftmaxJacobian._esm)
    assert esm.startswith((base.STATIC / "attention.js").read_text("utf-8"))
    assert esm.rstrip().endswith("export default { render };")
    assert not re.search(r"^import ", esm, re.MULTILINE)
    names = re.findall(r"^(?:export )?(?:function|const|let) (\w+)", esm, re.MULTILINE)
    assert len(names) == len(set(names))


def test_every_rule_of_the_style_sheet_begins_with_the_class_of_the_widget():
    css = (base.STATIC / "softmax_jacobian.css").read_text("utf-8")
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.DOTALL)
    selectors = re.findall(r"^\s*([^@{}\n][^{}]*)\{", css, re.MULTILINE)
    assert len(selectors) > 30
    for selector in selectors:
        for one in re.split(r",\s*(?![^()]*\))", selector):
            assert one.startswith(".mha-jac"), selector


def test_the_page_and_python_agree_on_what_is_allowed():
    script = (base.STATIC / "jacobian_logits.js").read_text("utf-8")
    assert "const LARGEST = 10;" in script and "const HOTTEST = 20;" in script


def test_the_text_is_stable():
    assert repr(four()) == (
        "SoftmaxJacobian(names=('a', 'b', 'c', 'd'), logits=(2.0, 1.0, 0.0, -1.0), "
        "temperature=1.0, cell=(0, 0))"
    )


def test_the_output_has_a_view_a_picture_and_a_text():
    softmax = four()
    data, _ = softmax._repr_mimebundle_()
    assert set(data) == {VIEW, "image/png", "text/plain"}
    assert data["text/plain"] == repr(softmax)
    assert base64.b64decode(data["image/png"]) == softmax.picture()
    json.dumps(data)


def test_the_picture_is_a_small_png_with_the_same_bytes_each_time():
    first = four().picture()
    with matplotlib.style.context(STYLE):
        assert four().picture() == first
    assert first.startswith(b"\x89PNG\r\n\x1a\n") and len(first) <= 40_000
    other = SoftmaxJacobian([2, 1, 0, -1.5], NAMES)
    assert len({first, four(temperature=2).picture(), other.picture()}) == 3


@pytest.mark.parametrize("count", [2, 6, 12])
def test_any_name_is_drawn_as_it_is_written_and_fits(count):
    odd = ["$\\frac$", "W" * 8, "\N{CJK UNIFIED IDEOGRAPH-6F22}", "a\n"]
    names = [*odd, *(f"MMMMMM{i}" for i in range(8))][:count]
    softmax = SoftmaxJacobian(np.linspace(-1, 1, count), names)
    assert len(softmax.picture()) <= 40_000


def test_a_slope_that_is_not_0_is_not_drawn_as_0():
    assert [slope_text(x) for x in (0.25, -0.153, 0.0005, -1e-9)] == [
        "0.250", "−0.153", "0.001", "≈0",
    ]  # fmt: skip
