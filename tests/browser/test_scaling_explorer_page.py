"""ScalingExplorer on the static page: its numbers against Python's, by keyboard and by mouse."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mha.widgets import ScalingExplorer
from mha.widgets.scaling_explorer import CORRELATION, N_ROWS, SCALES, WIDTHS

PAGE = "book/03_scaling"

# Set each control as a reader's act would, and read what the page then says in full precision.
READ = """async (states) => {
  const root = document.querySelector('.mha-scale');
  const act = async (role, value) => {
    const node = root.querySelector(`input[data-role=${role}]`);
    node.value = value;
    node.dispatchEvent(new Event('input', {bubbles: true}));
    await Promise.resolve();                   // acts in one go are drawn once, in a microtask
  };
  const found = [];
  for (const {width, scale, mean, correlation, row} of states) {
    root.querySelector(`[data-role=scale][value="${scale}"]`).click();
    await act('width', width);
    await act('mean', mean);
    await act('correlation', correlation);
    await act('row', row);
    const numbers = (name) => [...root.querySelectorAll(`[data-line=${name}] td`)]
      .flatMap(({dataset}) => [dataset.value, dataset.error].filter(Boolean).map(Number));
    found.push(Object.fromEntries(['mean', 'variance', 'within', 'largest', 'norm', 'byQuery'].map(
      name => [name, numbers(name)])));
  }
  return found;
}"""


def expected(explorer) -> dict[str, list[float]]:
    """Return the numbers of both tables, computed by numpy in float64."""
    known, found = explorer.predicted(), explorer.measured()
    moments = {name: [known[name], *found[name]] for name in known}
    largest = explorer.weights().max(1)
    by_logits, by_query = explorer.gradient_norms()
    rows = {"largest": largest, "norm": by_logits, "byQuery": by_query}
    row = explorer.row
    return moments | {n: [x[row], np.median(x), x.mean()] for n, x in rows.items()}


def shown(explorer) -> dict[str, list[float]]:
    """Return the same as the page shows it now."""
    lines = explorer.locator("[data-line]").all()
    numbers = {}
    for line in lines:
        found = []
        for cell in line.locator("td").all():
            found.append(cell.get_attribute("data-value"))
            found.append(cell.get_attribute("data-error"))
        kept = [float(one) for one in found if one is not None]
        numbers[line.get_attribute("data-line")] = kept
    return numbers


def holds(found, wanted) -> None:
    """Compare the numbers of two tables."""
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name] == pytest.approx([float(x) for x in values], rel=1e-6, abs=1e-6), name


@pytest.fixture(scope="module")
def first(served) -> dict:
    """What the page sets at first."""
    before = len(served.contexts)
    root = served.open(PAGE).page.locator(".mha-scale").first

    def value(role):
        return float(root.locator(f"input[data-role={role}]").first.input_value())

    state = {
        "d_k": WIDTHS[int(value("width"))],
        "scale": root.locator("[data-role=scale]:checked").input_value(),
        "mean": value("mean"),
        "correlation": value("correlation"),
    }
    served.close_pages(since=before)
    return state


def test_numbers_equal_python_in_many_states(site):
    names = ("width", "scale", "mean", "correlation")
    choices = ((0, 1, 3, 6, 10), SCALES, (-1, 0, 0.35), (-CORRELATION, 0.4))
    states = [
        dict(zip(names, values, strict=True), row=7 * i % N_ROWS)
        for i, values in enumerate(itertools.product(*choices))
    ]
    found = site.open(PAGE).page.evaluate(READ, states)
    for state, numbers in zip(states, found, strict=True):
        d_k = WIDTHS[state.pop("width")]
        holds(numbers, expected(ScalingExplorer(d_k, **state)))


def test_everything_moves_by_keyboard(site, first):
    visit = site.open(PAGE)
    tab = visit.page
    root = tab.locator(".mha-scale").first

    def part(role):
        return root.locator(f"[data-role={role}]").first

    def press(role, *keys):
        part(role).focus()
        for key in keys:
            tab.keyboard.press(key)

    def is_(**state):
        holds(shown(root), expected(ScalingExplorer(**(first | state))))

    is_()
    press("width", "End")
    root.locator("[data-role=scale]:checked").focus()
    for _ in range(3):
        tab.keyboard.press("ArrowRight")
        if root.locator("[data-role=scale]:checked").input_value() == "1":
            break
    is_(d_k=1024, scale="1")
    assert "Without a scale the variance grows like" in part("status").inner_text()
    assert "one key has more than 0.99 of the weight" in part("status").inner_text()
    tab.wait_for_timeout(700)
    assert root.locator(".mha-live").inner_text().startswith("scale 1: variance 1024 predicted")
    press("mean", "End", "ArrowLeft")
    press("correlation", "Home")
    press("row", "End")
    state = {"mean": 0.95, "correlation": -CORRELATION, "row": N_ROWS - 1}
    is_(d_k=1024, scale="1", **state)
    assert "does not see that" in part("status").inner_text()
    press("width", "Home")
    is_(d_k=1, scale="1", **state)
    assert "not normal" in part("caption").inner_text()
    press("another", "Enter")
    is_(d_k=1, scale="1", seed=ScalingExplorer().seed + 1, **state)
    press("restart", "Enter")
    is_()
    assert visit.problems() == []


def test_a_label_and_a_slider_are_clicked(site, first):
    tab = site.open(PAGE).page
    root = tab.locator(".mha-scale").first
    root.locator("label", has=tab.locator("[value='1/d_k']")).click()
    slider = root.locator("[data-role=width]")
    box = slider.bounding_box()
    slider.click(position={"x": box["width"] - 2, "y": box["height"] / 2})
    state = first | {"d_k": 1024, "scale": "1/d_k"}
    holds(shown(root), expected(ScalingExplorer(**state)))
    assert "hardly tells the keys apart" in root.locator("[data-role=status]").inner_text()


@pytest.mark.parametrize("width", [360, 390])
def test_the_widget_fits_a_phone(site, width):
    tab = site.open(PAGE, width=width).page
    tab.locator("[data-role=width]").first.press("End")
    wide = tab.locator(".mha-scale").first.evaluate(
        """(root) => [...root.querySelectorAll('*')].filter(
             e => e.getBoundingClientRect().right > root.getBoundingClientRect().right + 1
           ).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert wide == []
    assert tab.evaluate("document.scrollingElement.scrollWidth") <= width


def test_widget_follows_the_theme(site):
    tab = site.open(PAGE, theme="dark").page
    assert tab.locator(".mha-scale").first.get_attribute("data-mha-theme") == "dark"
