"""MaskPainter on the static page: its numbers against float64; by keyboard, mouse and touch."""

from __future__ import annotations

import json
import re

import pytest
import torch
from visits import STATE

import mha.bert

PAGE = "book/05_masks"
T = 8
RULES = ("all", "causal", "padding", "window", "causal and padding", "causal and window", "none")

# Press each button as a reader does, turn the first cell of each row, one by one, and read in full
# precision what the page then holds for that row.
READ = """async (rules) => {
  const root = document.querySelector('.mha-paint');
  const found = [];
  for (const rule of rules) {
    root.querySelector(`[data-role='${rule}']`).click();
    await Promise.resolve();                   // acts in one go are drawn once, in a microtask
    const cells = [...root.querySelectorAll('.mha-paint-cell')];
    const rows = [];
    for (let i = 0; i < cells.length; i += Math.sqrt(cells.length)) {
      cells[i].dispatchEvent(new PointerEvent('pointerdown', {bubbles: true, pointerId: 1,
        clientX: cells[i].getBoundingClientRect().x + 5,
        clientY: cells[i].getBoundingClientRect().y + 5}));
      cells[i].dispatchEvent(new PointerEvent('pointerup', {bubbles: true, pointerId: 1}));
      await Promise.resolve();
      rows.push({
        mask: cells.slice(i, i + 8).map(e => e.dataset.sees === '1'),
        weights: cells.slice(i, i + 8).map(e => Number(e.dataset.weight)),
        readings: [...root.querySelectorAll('[data-reading]')].map(
          e => [e.dataset.reading, e.dataset.weights.split(' ').map(Number).map(String)])});
    }
    found.push({status: root.querySelector('[data-role=status]').textContent, rows});
  }
  return found;
}"""


@pytest.fixture(scope="module")
def stored(html) -> dict:
    """The state of the widget as the page holds it."""
    page = (html / f"{PAGE}.html").read_bytes()
    scripts = (json.loads(re.sub(rb"<.*?>", b"", text)) for text in STATE.findall(page))
    states = (e["state"] for script in scripts for e in script["state"].values())
    return next(state for state in states if "mask" in state and "query" in state)


@pytest.fixture(scope="module")
def logits() -> torch.Tensor:
    """The scaled scores that the chapter paints on, computed anew, in float16 as stored."""
    encoder, words = mha.bert.load().requires_grad_(False), "The cat sat on the mat"
    layer = encoder.layers[2].attention
    x = encoder.layer_input(words, layer=2)
    q, k = (mha.split_heads(project(x), 12)[0, 8] for project in (layer.q_proj, layer.k_proj))
    return (mha.attention_scores(q, k) / 32**0.5).half().double()


def read_as(reading, logits, mask) -> torch.Tensor:
    """Return by torch what code makes of one row that reads it so."""
    hidden = torch.zeros_like(logits).masked_fill(~mask, -torch.inf)
    return {
        "attend": lambda: mha.masked_softmax(logits[None], mask[None])[0],
        "blocked": lambda: logits.masked_fill(mask, -torch.inf).softmax(-1),
        "added": lambda: (logits + mask.double()).softmax(-1),
        "minus 1e9": lambda: (logits.float() + torch.where(mask, 0.0, -1e9)).softmax(-1).double(),
        "naive": lambda: (logits + hidden).softmax(-1),
        "late": lambda: logits.softmax(-1) * mask,
    }[reading]()


def test_numbers_equal_float64_under_every_rule_and_reading(site, logits):
    found = site.open(PAGE).page.evaluate(READ, [f"rule {rule}" for rule in RULES])
    assert len(found) == len(RULES)
    for mask in found:
        assert len(mask["rows"]) == T
        for i, row in enumerate(mask["rows"]):
            visible = torch.tensor(row["mask"])
            weights = torch.tensor(row["weights"], dtype=torch.float64)
            near = {"rtol": 0, "atol": 1e-6, "equal_nan": True}
            expected = read_as("attend", logits[i], visible)
            torch.testing.assert_close(weights, expected, **near)
            assert len(row["readings"]) == 6
            for reading, shown in row["readings"]:
                shown = torch.tensor([float(one) for one in shown], dtype=torch.float64)
                torch.testing.assert_close(shown, read_as(reading, logits[i], visible), **near)


def shown(painter) -> list[list[bool]]:
    cells = painter.locator(".mha-paint-cell").all()
    sees = [cell.get_attribute("data-sees") == "1" for cell in cells]
    return [sees[i : i + T] for i in range(0, T * T, T)]


def test_everything_moves_by_keyboard(site, stored):
    visit = site.open(PAGE)
    tab = visit.page
    painter = tab.locator(".mha-paint")

    def press(*keys):
        for key in keys:
            tab.keyboard.press(key)

    def text(role):
        return painter.locator(f"[data-role={role}]").inner_text()

    assert shown(painter) == stored["mask"]
    for rule in RULES:
        painter.locator(f"[data-role='rule {rule}']").focus()
        press("Enter")
        assert painter.locator(f"[data-role='rule {rule}']").get_attribute("aria-pressed") == "true"
    assert not any(map(any, shown(painter)))
    painter.locator("[data-role=invert]").focus()
    press("Space")
    assert all(map(all, shown(painter)))

    painter.locator(".mha-paint-cell[tabindex='0']").focus()
    press("PageUp", "Home", "ArrowRight", "ArrowDown", "Space")
    expected = [[True] * T for _ in range(T)]
    expected[1][1] = False
    assert shown(painter) == expected
    assert text("pair") == "‘the (1)’ may not attend to ‘the (1)’."
    press("Space", "Home", *["Space", "ArrowRight"] * (T - 1), "Space")
    said = "56 of 64 pairs are visible. ‘the (1)’ sees no key. 6 of 8 queries see a later token."
    assert text("status") == said
    assert "NaN: 0 divided by 0" in painter.locator("[data-reading=naive]").inner_text()

    painter.locator("[data-role=real]").focus()
    press("Home")
    assert [sum(row) for row in shown(painter)] == [1] * T
    painter.locator("[data-role='rule window']").focus()
    press("Enter")
    painter.locator("[data-role=after]").focus()
    press("ArrowRight")
    assert [sum(row) for row in shown(painter)] == [2, *[3] * (T - 2), 2]
    painter.locator("[data-role=restart]").focus()
    press("Enter")
    assert shown(painter) == stored["mask"]
    tab.wait_for_timeout(600)
    assert "36 of 64 pairs are visible." in painter.locator("[aria-live]").inner_text()
    assert visit.problems() == []


def test_the_keys_of_the_map_do_not_scroll_the_page(site):
    tab = site.open(PAGE).page
    cell = tab.locator(".mha-paint-cell[tabindex='0']")
    cell.evaluate("(e) => e.scrollIntoView({block: 'center'})")
    cell.focus()
    height = tab.evaluate("scrollY")
    for key in ("PageDown", "End", "Space", "ArrowDown", "ArrowUp", "PageUp", "Home"):
        tab.keyboard.press(key)
    tab.wait_for_timeout(200)
    assert abs(tab.evaluate("scrollY") - height) < 10


def centre(painter, i, j) -> tuple[float, float]:
    box = painter.locator(".mha-paint-cell").nth(T * i + j).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_mouse_paints_over_cells_and_lets_go(site):
    tab = site.open(PAGE).page
    painter = tab.locator(".mha-paint")
    painter.locator("[data-role='rule all']").click()
    painter.locator(".mha-paint-map").evaluate("(e) => e.scrollIntoView({block: 'center'})")
    tab.mouse.move(*centre(painter, 1, 2))
    tab.mouse.down()
    tab.mouse.move(*centre(painter, 1, 5), steps=12)
    tab.mouse.move(*centre(painter, 3, 5), steps=12)
    tab.mouse.up()
    tab.mouse.move(*centre(painter, 6, 6), steps=6)
    expected = [[True] * T for _ in range(T)]
    expected[1][2:6] = [False] * 4
    expected[2][5] = expected[3][5] = False
    assert shown(painter) == expected
    tab.mouse.click(*centre(painter, 2, 5))
    expected[2][5] = True
    assert shown(painter) == expected
    assert "may attend to" in painter.locator("[data-role=pair]").inner_text()


def test_a_finger_paints_on_the_map_and_scrolls_the_page_beside_it(site):
    tab = site.open(PAGE, width=390).page
    painter = tab.locator(".mha-paint")
    painter.locator("[data-role='rule none']").click()
    painter.locator(".mha-paint-map").evaluate("(e) => e.scrollIntoView({block: 'center'})")
    touch = tab.context.new_cdp_session(tab)

    def swipe(start, end):
        def send(kind, *points):
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": list(points)})

        (x, y), (to_x, to_y) = start, end
        send("touchStart", {"x": x, "y": y})
        for step in range(1, 25):
            part = step / 24
            send("touchMove", {"x": x + (to_x - x) * part, "y": y + (to_y - y) * part})
        send("touchEnd")
        tab.wait_for_timeout(200)

    height = tab.evaluate("scrollY")
    swipe(centre(painter, 6, 3), centre(painter, 2, 3))
    assert tab.evaluate("scrollY") == height
    assert [row[3] for row in shown(painter)] == [False] * 2 + [True] * 5 + [False]
    x, y = centre(painter, 4, 0)
    swipe((x - 60, y), (x - 60, y - 150))  # from a row's heading
    assert tab.evaluate("scrollY") > height + 60


@pytest.mark.parametrize("width", [360, 390])
def test_the_widget_fits_a_phone(site, width):
    tab = site.open(PAGE, width=width).page
    painter = tab.locator(".mha-paint")
    for state in ("rule none", "rule all", "restart"):
        painter.locator(f"[data-role='{state}']").click()
        wide = painter.evaluate(
            """(root) => [...root.querySelectorAll(':not(.mha-paint-cell *)')].filter(
                 e => e.getBoundingClientRect().right > root.getBoundingClientRect().right + 1
               ).map(e => e.outerHTML.slice(0, 80))"""
        )
        assert wide == []
        clipped = painter.evaluate(
            """(root) => [...root.querySelectorAll('.mha-paint-cell, .mha-paint-bar')].filter(
                 e => e.dataset.sees !== '0' && e.scrollWidth > e.clientWidth
               ).map(e => e.textContent)"""
        )
        assert clipped == []
    small = painter.evaluate(
        """(root) => [...root.querySelectorAll('input, button, .mha-paint-cell')].filter(
             e => Math.min(e.offsetWidth, e.offsetHeight) < 24).map(e => e.outerHTML)"""
    )
    assert small == []
    assert tab.evaluate("document.scrollingElement.scrollWidth") <= width


def test_widget_follows_the_theme(site):
    tab = site.open(PAGE, theme="dark").page
    assert tab.locator(".mha-paint").get_attribute("data-mha-theme") == "dark"
