"""SoftmaxJacobian on the static page: its numbers against float64; by keyboard, mouse and touch."""

from __future__ import annotations

import itertools
import json
import re

import pytest
import torch
from visits import STATE

PAGE = "book/04_softmax_gradient"
HEATS = (-100, -37, 0, 61, 100)  # places of the slider: 20 to the power of a hundredth of it
MOVES = ((0, 0.0), (1, 3.7), (2, 10), (3, -10), (0, 10))  # which logit goes where, one by one

# Set each control as a reader's act would, and read what the page then says in full precision.
READ = """async (states) => {
  const root = document.querySelector('.mha-jac');
  const act = async (node, value) => {
    node.value = value;
    node.dispatchEvent(new Event('input', {bubbles: true}));
    await Promise.resolve();                   // acts in one go are drawn once, in a microtask
  };
  const found = [];
  for (const {heat, logit, value, cell} of states) {
    await act(root.querySelector('[data-role=temperature]'), heat);
    await act(root.querySelectorAll('[data-role=logit]')[logit], value);
    root.querySelectorAll('.mha-jac-cell')[cell].click();
    await Promise.resolve();
    const weights = [...root.querySelectorAll('[data-role=weight]')];
    const number = (role) => Number(root.querySelector(`[data-role=${role}]`).dataset.value);
    const {slope, measured, byLogit} = root.querySelector('[data-role=readout]').dataset;
    found.push({
      logits: weights.map(({dataset}) => Number(dataset.logit)),
      weights: weights.map(({dataset}) => Number(dataset.weight)),
      slopes: [...root.querySelectorAll('.mha-jac-cell')].map(e => Number(e.dataset.slope)),
      norm: number('norm'), eigenvalue: number('eigenvalue'), bound: number('bound'),
      slope: Number(slope), measured: Number(measured), byLogit: Number(byLogit)});
  }
  return found;
}"""


@pytest.fixture(scope="module")
def stored(html) -> dict:
    """The state of the widget as the page holds it."""
    page = (html / f"{PAGE}.html").read_bytes()
    scripts = (json.loads(re.sub(rb"<.*?>", b"", text)) for text in STATE.findall(page))
    states = (e["state"] for script in scripts for e in script["state"].values())
    return next(state for state in states if "logits" in state and "cell" in state)


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def expected(logits, temperature) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the weights and ∂p/∂z, z = logits / temperature, by torch in float64."""
    z = tensor(logits) / temperature
    return z.softmax(0), torch.autograd.functional.jacobian(lambda x: x.softmax(0), z)


def test_numbers_equal_float64_in_many_states(site, stored):
    cells = len(stored["logits"]) ** 2
    states = [
        {"heat": heat, "logit": logit, "value": value, "cell": (3 * i) % cells}
        for i, (heat, (logit, value)) in enumerate(itertools.product(HEATS, MOVES))
    ]
    found = site.open(PAGE).page.evaluate(READ, states)
    assert len(found) == len(states)
    logits = list(stored["logits"])
    for state, read in zip(states, found, strict=True):
        logits[state["logit"]] = state["value"]
        assert read["logits"] == logits
        temperature = float(f"{20 ** (state['heat'] / 100):.3g}")  # the page keeps three digits
        weights, slopes = expected(logits, temperature)
        near = {"rtol": 0, "atol": 1e-9}
        torch.testing.assert_close(tensor(read["weights"]), weights, **near)
        torch.testing.assert_close(tensor(read["slopes"]), slopes.flatten(), **near)
        assert read["norm"] == pytest.approx(slopes.norm().item(), abs=1e-9)
        largest = torch.linalg.eigvalsh(slopes)[-1].item()
        assert read["eigenvalue"] == pytest.approx(largest, abs=1e-9)
        assert largest <= read["bound"] + 1e-12
        slope = slopes.flatten()[state["cell"]].item()
        assert read["slope"] == pytest.approx(slope, abs=1e-9)
        assert read["measured"] == pytest.approx(slope, abs=1e-8)
        assert read["byLogit"] == pytest.approx(slope / temperature, abs=1e-8)


def holds(jacobian, logits, temperature=1.0) -> None:
    """Compare what the page shows with float64."""
    weights, slopes = expected(logits, temperature)
    shown = {
        name: [float(one.get_attribute(f"data-{name}")) for one in jacobian.locator(where).all()]
        for name, where in (("weight", "[data-role=weight]"), ("slope", ".mha-jac-cell"))
    }
    torch.testing.assert_close(tensor(shown["weight"]), weights, rtol=0, atol=1e-9)
    torch.testing.assert_close(tensor(shown["slope"]), slopes.flatten(), rtol=0, atol=1e-9)


def test_everything_moves_by_keyboard(site, stored):
    visit = site.open(PAGE)
    tab = visit.page
    jacobian = tab.locator(".mha-jac")
    logits, start = list(stored["logits"]), stored["temperature"]

    def press(*keys):
        for key in keys:
            tab.keyboard.press(key)

    def text(role):
        return jacobian.locator(f"[data-role={role}]").first.inner_text()

    holds(jacobian, logits, start)
    jacobian.locator("[data-role=logit]").nth(1).focus()
    press("ArrowUp", "ArrowRight", "Shift+ArrowLeft", "PageUp")
    logits[1] = round(logits[1] + 1.19, 6)
    holds(jacobian, logits, start)
    press("Tab")
    press("Home")
    logits[2] = -10
    holds(jacobian, logits, start)

    jacobian.locator(".mha-jac-cell[tabindex='0']").focus()
    press("PageUp", "Home", "ArrowRight", "ArrowDown", "ArrowLeft")
    assert tab.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"
    one, other = stored["names"][:2]
    assert f"z of ‘{one}’ a little: the weight of ‘{other}’ falls" in text("effect")
    assert "They differ by" in text("verdict") or "They are equal" in text("verdict")

    jacobian.locator("[data-role=temperature]").focus()
    press("Home")
    holds(jacobian, logits, 0.05)
    assert "1/τ = 20.0" in text("factor")
    press("End")
    holds(jacobian, logits, 20)

    for role, said in (("tie", "tie with 0.500"), ("dominates", "saturated"), ("equal", "All w")):
        jacobian.locator(f"[data-role={role}]").focus()
        press("Enter")
        assert said in text("status")
    holds(jacobian, [0] * len(logits))
    jacobian.locator("[data-role=restart]").focus()
    press("Space")
    holds(jacobian, stored["logits"], start)
    tab.wait_for_timeout(600)
    assert "weighs most" in jacobian.locator("[aria-live]").inner_text()
    assert visit.problems() == []


def test_the_keys_of_the_widget_do_not_scroll_the_page(site):
    tab = site.open(PAGE).page
    for part in ("[data-role=logit]", ".mha-jac-cell[tabindex='0']"):
        node = tab.locator(f".mha-jac {part}").first
        node.evaluate("(e) => e.scrollIntoView({block: 'center'})")  # all cells are in sight
        node.focus()
        height, address = tab.evaluate("scrollY"), tab.url
        for key in ("PageDown", "End", "ArrowDown", "ArrowUp", "PageUp", "Home"):
            tab.keyboard.press(key)
        tab.wait_for_timeout(200)
        assert abs(tab.evaluate("scrollY") - height) < 10
        assert tab.url == address


def handle(slider, logit) -> tuple[float, float]:
    """Return where the handle of a slider is on the screen; it is 12 pixels wide."""
    box = slider.bounding_box()
    share = (logit + 10) / 20
    return box["x"] + 6 + share * (box["width"] - 12), box["y"] + box["height"] / 2


def test_a_logit_follows_the_mouse_and_a_click_chooses_a_cell(site, stored):
    tab = site.open(PAGE).page
    jacobian = tab.locator(".mha-jac")
    jacobian.scroll_into_view_if_needed()
    slider = jacobian.locator("[data-role=logit]").nth(1)
    tab.mouse.move(*handle(slider, stored["logits"][1]))
    tab.mouse.down()
    tab.mouse.move(*handle(slider, -3))
    tab.mouse.move(*handle(slider, -6))
    tab.mouse.up()
    shown = jacobian.locator("[data-role=weight]").nth(1).get_attribute("data-logit")
    assert float(shown) == pytest.approx(-6, abs=0.25)
    logits = [*stored["logits"]]
    logits[1] = float(shown)
    holds(jacobian, logits, stored["temperature"])
    tab.keyboard.press("ArrowRight")
    logits[1] = round(logits[1] + 0.1, 6)
    holds(jacobian, logits, stored["temperature"])
    jacobian.locator(".mha-jac-cell").nth(len(logits)).click()  # second row, first column
    assert "falls" in jacobian.locator("[data-role=effect]").inner_text()


def test_a_finger_drags_a_logit_and_a_swipe_across_it_scrolls_the_page(site, stored):
    tab = site.open(PAGE, width=390).page
    jacobian = tab.locator(".mha-jac")
    slider = jacobian.locator("[data-role=logit]").nth(1)
    slider.evaluate("(e) => e.scrollIntoView({block: 'center'})")
    touch = tab.context.new_cdp_session(tab)

    def swipe(x, y, right, down):
        def send(kind, *points):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": list(points)})

        send("touchStart", {"x": x, "y": y})
        for step in range(1, 11):
            send("touchMove", {"x": x + right * step / 10, "y": y + down * step / 10})
        send("touchEnd")
        tab.wait_for_timeout(200)

    def logit():
        shown = jacobian.locator("[data-role=weight]").nth(1).get_attribute("data-logit")
        return float(shown)

    height = tab.evaluate("scrollY")
    before = stored["logits"][1]
    x, y = handle(slider, before)
    swipe(x, y, 60, 0)
    assert tab.evaluate("scrollY") == height
    assert logit() > before + 2
    now = logit()
    x, y = handle(slider, now)
    swipe(x, y, 0, -150)
    assert tab.evaluate("scrollY") > height + 60
    assert logit() == now


@pytest.mark.parametrize("width", [360, 390])
def test_the_widget_fits_a_phone(site, width):
    tab = site.open(PAGE, width=width).page
    for state in ("tie", "dominates", "restart"):
        tab.locator(f".mha-jac [data-role={state}]").click()
        wide = tab.locator(".mha-jac").evaluate(
            """(root) => [...root.querySelectorAll('*')].filter(
                 e => e.getBoundingClientRect().right > root.getBoundingClientRect().right + 1
               ).map(e => e.outerHTML.slice(0, 80))"""
        )
        assert wide == []
    targets = "input, button, .mha-jac-cell"
    small = tab.locator(".mha-jac").evaluate(
        """(root, targets) => [...root.querySelectorAll(targets)].filter(
             e => Math.min(e.offsetWidth, e.offsetHeight) < 24).map(e => e.outerHTML)""",
        targets,
    )
    assert small == []
    assert tab.evaluate("document.scrollingElement.scrollWidth") <= width


def test_widget_follows_the_theme(site):
    tab = site.open(PAGE, theme="dark").page
    assert tab.locator(".mha-jac").get_attribute("data-mha-theme") == "dark"
