"""SoftLookup on the static page: its numbers against float64; by keyboard, mouse and touch."""

from __future__ import annotations

import itertools
import json
import math
import re

import pytest
import torch
from visits import STATE

PAGE = "book/01_lookup"
TURNS = ((0, 1), (53, 0.5), (97, 3), (180, 1.35), (251, 2.05), (360, 1), (14, 0))  # degrees, length
HEATS = (-100, -37, 0, 61, 100)  # places of the slider: 20 to the power of a hundredth of it

# Set each control as a reader's act would, and read what the page then says in full precision.
READ = """async (states) => {
  const root = document.querySelector('.mha-lookup');
  const act = async (role, value) => {
    const node = root.querySelector(`[data-role=${role}]`);
    node.value = value;
    for (const type of ['input', 'change']) node.dispatchEvent(new Event(type, {bubbles: true}));
    await Promise.resolve();                   // acts in one go are drawn once, in a microtask
  };
  const found = [];
  for (const {arrow, turn, heat, measure, key} of states) {
    root.querySelector(`[data-role=measure][value=${measure}]`).click();
    await act('temperature', heat);
    await act('arrow', arrow);
    await act('length', 1);                    // a direction needs a length
    await act('direction', turn[0]);
    await act('length', turn[1]);
    await act('key', key);
    const rows = [...root.querySelectorAll('tr[data-key]')];
    const numbers = (name) => rows.map(row => Number(row.dataset[name]));
    const grips = [...root.querySelectorAll('.mha-arrow-grip')];
    const tips = Object.fromEntries(
      grips.map(({dataset}) => [dataset.arrow, [Number(dataset.x), Number(dataset.y)]]));
    const pair = root.querySelector('[data-role=score]').dataset;
    found.push({tips, score: numbers('score'), logit: numbers('logit'), weight: numbers('weight'),
                output: [Number(root.querySelector('[data-role=output]').dataset.output)],
                pair: [Number(pair.score)], lengths: pair.lengths.split(',').map(Number),
                angle: pair.angle === '' ? null : Number(pair.angle)});
  }
  return found;
}"""


@pytest.fixture(scope="module")
def stored(html) -> dict:
    """The state of the widget as the page holds it."""
    page = (html / f"{PAGE}.html").read_bytes()
    scripts = (json.loads(re.sub(rb"<.*?>", b"", text)) for text in STATE.findall(page))
    states = (e["state"] for script in scripts for e in script["state"].values())
    return next(state for state in states if "key_arrows" in state)


def tensor(values) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def expected(keys, values, query, temperature, measure) -> dict[str, torch.Tensor]:
    """Return scores, logits, weights and output, computed by torch in float64."""
    k, q = tensor(keys), tensor(query)
    unit = torch.nn.functional.normalize  # leaves an arrow of length 0 as it is
    scores = k @ q if measure == "dot" else unit(k, dim=-1) @ unit(q, dim=0)
    logits = scores / temperature
    weights = logits.softmax(0)
    output = (weights @ tensor(values))[None]
    return {"score": scores, "logit": logits, "weight": weights, "output": output}


def tip(degrees, length) -> list[float]:
    """Return the numbers of an arrow from its direction and length."""
    return [length * f(math.radians(degrees)) for f in (math.cos, math.sin)]


def test_numbers_equal_float64_in_many_states(site, stored):
    n_keys = len(stored["key_arrows"])
    arrows = ["query", *range(n_keys)]
    states = [
        {"arrow": arrow, "turn": turn, "heat": heat, "measure": measure, "key": i % n_keys}
        for i, (arrow, turn, heat, measure) in enumerate(
            itertools.product(arrows, TURNS, HEATS, ("dot", "cosine"))
        )
    ]
    found = site.open(PAGE).page.evaluate(READ, states)
    assert len(found) == len(states) == len(arrows) * len(TURNS) * len(HEATS) * 2
    for state, read in zip(states, found, strict=True):
        assert read["tips"][str(state["arrow"])] == pytest.approx(tip(*state["turn"]), abs=5e-6)
        query, *keys = (read["tips"][str(arrow)] for arrow in arrows)
        temperature = float(f"{20 ** (state['heat'] / 100):.3g}")  # the page keeps three digits
        known = expected(keys, stored["values"], query, temperature, state["measure"])
        for name, value in known.items():
            torch.testing.assert_close(
                tensor(read[name]),
                value,
                rtol=0,
                atol=1e-6,
                msg=lambda text, at=(name, state): f"{at}: {text}",
            )
        pair = (tensor(query), tensor(keys[state["key"]]))
        assert read["pair"] == pytest.approx(known["score"][[state["key"]]].tolist(), abs=1e-6)
        assert read["lengths"] == pytest.approx([one.norm().item() for one in pair], abs=1e-6)
        if min(read["lengths"]) > 0:
            cosine = torch.nn.functional.cosine_similarity(*pair, dim=0).item()
            assert math.cos(math.radians(read["angle"])) == pytest.approx(cosine, abs=1e-6)
        else:
            assert read["angle"] is None


def numbers(lookup) -> tuple[list[float], float]:
    """Return the weights and the output that the page shows."""
    rows = lookup.locator("tr[data-key]").all()
    output = lookup.locator("[data-role=output]").get_attribute("data-output")
    return [float(row.get_attribute("data-weight")) for row in rows], float(output)


def holds(lookup, stored, *, temperature=1.0, measure="dot", query=None, keys=None) -> None:
    """Compare what the page shows with float64."""
    keys, query = keys or stored["key_arrows"], query or stored["query"]
    known = expected(keys, stored["values"], query, temperature, measure)
    weights, output = numbers(lookup)
    torch.testing.assert_close(tensor(weights), known["weight"], rtol=0, atol=1e-6)
    assert output == pytest.approx(known["output"].item(), abs=1e-6)


def test_everything_moves_by_keyboard(site, stored):
    visit = site.open(PAGE)
    tab = visit.page
    lookup = tab.locator(".mha-lookup")

    def part(role):
        return lookup.locator(f"[data-role={role}]").first

    def press(*keys):
        for key in keys:
            tab.keyboard.press(key)

    holds(lookup, stored, temperature=stored["temperature"])
    lookup.locator(".mha-arrow-plane").focus()
    press("ArrowLeft", "ArrowUp", "ArrowUp", "Shift+ArrowDown")
    x, y = stored["query"]
    query = [round(x - 0.1, 6), round(y + 0.19, 6)]
    holds(lookup, stored, query=query)
    assert part("where").inner_text() == f"({query[0]:.2f}, {query[1]:.2f})"

    part("arrow").focus()
    press("ArrowDown", "ArrowDown")  # the second key
    assert part("arrow").input_value() == part("key").input_value() == "1"
    part("length").focus()
    press("End", "ArrowLeft")
    keys = [list(arrow) for arrow in stored["key_arrows"]]
    keys[1] = tip(math.degrees(math.atan2(*reversed(keys[1]))), 2.95)
    holds(lookup, stored, query=query, keys=keys)
    assert "wins by its length" in part("status").inner_text()

    lookup.locator("[data-role=measure]:checked").focus()
    press("ArrowRight")
    holds(lookup, stored, query=query, keys=keys, measure="cosine")
    assert "wins by its length" not in part("status").inner_text()

    part("temperature").focus()
    press("Home")
    holds(lookup, stored, query=query, keys=keys, measure="cosine", temperature=0.05)
    press("End")
    holds(lookup, stored, query=query, keys=keys, measure="cosine", temperature=20)
    assert "the mean of the values" in part("status").inner_text()

    part("restart").focus()
    press("Enter")
    holds(lookup, stored, temperature=stored["temperature"])
    assert visit.problems() == []


def test_the_keys_of_the_plane_do_not_scroll_the_page(site):
    tab = site.open(PAGE).page
    tab.locator(".mha-arrow-plane").focus()
    height, address = tab.evaluate("scrollY"), tab.url
    for _ in range(3):
        tab.keyboard.press("ArrowDown")
        tab.keyboard.press("ArrowRight")
    tab.wait_for_timeout(300)
    assert abs(tab.evaluate("scrollY") - height) < 10
    assert tab.url == address


def middle(lookup, arrow) -> tuple[float, float]:
    """Return where the tip of an arrow is on the screen."""
    box = lookup.locator(f".mha-arrow-grip[data-arrow='{arrow}']").bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_tip_follows_the_mouse_and_the_arrow_keys_go_on_from_there(site, stored):
    tab = site.open(PAGE).page
    lookup = tab.locator(".mha-lookup")
    lookup.scroll_into_view_if_needed()
    (x, y), (up_x, up_y) = middle(lookup, 1), middle(lookup, 0)
    tab.mouse.move(x, y)
    tab.mouse.down()
    tab.mouse.move((x + up_x) / 2, (y + up_y) / 2)
    tab.mouse.move(up_x, up_y)
    tab.mouse.up()
    assert lookup.locator("[data-role=arrow]").input_value() == "1"
    keys = [list(arrow) for arrow in stored["key_arrows"]]
    x, y = keys[0]
    assert middle(lookup, 1) == pytest.approx((up_x, up_y), abs=1)
    tab.keyboard.press("ArrowLeft")
    shown = re.findall(r"[−.\d]+", lookup.locator("[data-role=where]").inner_text())
    moved = [float(one.replace("−", "-")) for one in shown]
    assert moved == pytest.approx([x - 0.1, y], abs=0.02)  # a pixel is 0.02


def test_a_finger_drags_a_tip_and_elsewhere_scrolls_the_page(site):
    tab = site.open(PAGE, width=390).page
    lookup = tab.locator(".mha-lookup")
    lookup.evaluate("(e) => e.scrollIntoView({block: 'center'})")
    touch = tab.context.new_cdp_session(tab)

    def swipe(x, y, far):
        def send(kind, *points):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": list(points)})

        send("touchStart", {"x": x, "y": y})
        for step in range(1, 11):
            send("touchMove", {"x": x, "y": y + far * step / 10})
        send("touchEnd")
        tab.wait_for_timeout(200)

    height = tab.evaluate("scrollY")
    x, y = middle(lookup, "query")
    before = numbers(lookup)
    swipe(x, y, 60)
    assert tab.evaluate("scrollY") == height
    assert numbers(lookup) != before
    assert middle(lookup, "query")[1] == pytest.approx(y + 60, abs=2)
    plane = lookup.locator(".mha-arrow-plane").bounding_box()
    before = numbers(lookup)
    swipe(plane["x"] + 30, plane["y"] + plane["height"] - 30, -120)
    assert tab.evaluate("scrollY") > height + 60
    assert numbers(lookup) == before


@pytest.mark.parametrize("width", [360, 390])
def test_the_widget_fits_a_phone(site, width):
    tab = site.open(PAGE, width=width).page
    wide = tab.locator(".mha-lookup").evaluate(
        """(root) => [...root.querySelectorAll('*')].filter(
             e => e.getBoundingClientRect().right > root.getBoundingClientRect().right + 1
               && !e.closest('.mha-arrow-grip')).map(e => e.outerHTML.slice(0, 80))"""
    )
    assert wide == []
    assert tab.evaluate("document.scrollingElement.scrollWidth") <= width


def test_widget_follows_the_theme(site):
    tab = site.open(PAGE, theme="dark").page
    assert tab.locator(".mha-lookup").get_attribute("data-mha-theme") == "dark"
