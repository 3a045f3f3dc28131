"""OutputMixer on the static page: its numbers against float64, and moved by keyboard alone."""

from __future__ import annotations

import base64
import json
import re

import numpy as np
import pytest
from visits import STATE

PAGE = "book/07_concat_output"

# For each token and each list of heads that are off: what the page says, in full precision.
READ = """async ([tokens, features, choices]) => {
  const root = document.querySelector('.mha-mixer');
  const find = (role) => root.querySelector(`[data-role=${role}]`);
  const value = (role) => +find(role).dataset.value;
  const drawn = () => Promise.resolve();       // acts in one go are drawn once, in a microtask
  const select = async (role, value) => {
    find(role).value = value;
    find(role).dispatchEvent(new Event('change', {bubbles: true}));
    await drawn();
  };
  const heads = [...root.querySelectorAll('.mha-mix-head')];
  const found = [];
  for (let token = 0; token < tokens; token++) {
    await select('token', token);
    for (const off of choices) {
      for (const [h, head] of heads.entries()) {
        const isOff = head.getAttribute('aria-pressed') === 'false';
        if (isOff !== off.includes(h)) { head.click(); await drawn(); }
      }
      const y = [];
      for (let feature = 0; feature < features; feature++) {
        await select('feature', feature);
        const parts = [...root.querySelectorAll('.mha-mix-row')].map(e => +e.dataset.part);
        y.push({parts, sum: value('sum'), product: value('product')});
      }
      found.push({token, off, y, length: value('length'), full: value('full-length'),
                  cosine: value('cosine'), largest: value('largest')});
    }
  }
  return found;
}"""


@pytest.fixture(scope="module")
def stored(html) -> dict:
    """The state of the widget as the page holds it, its numbers in float64."""
    page = (html / f"{PAGE}.html").read_bytes()
    scripts = (json.loads(re.sub(rb"<.*?>", b"", text)) for text in STATE.findall(page))
    entries = [entry for script in scripts for entry in script["state"].values()]
    (entry,) = (e for e in entries if "off" in e["state"])
    state = entry["state"]
    kinds = {"z": "<f2", "w_o": "<f2", "b_o": "<f2", "gram": "<f8"}
    for buffer in entry["buffers"]:
        name = buffer["path"][-1]
        values = np.frombuffer(base64.b64decode(buffer["data"]), kinds[name])
        state["_data"][name] = values.astype(np.float64)
    data, n_heads = state["_data"], state["n_heads"]
    data["z"] = data["z"].reshape(len(data["tokens"]), -1)  # T (H d)
    data["w_o"] = data["w_o"].reshape(-1, state["n_features"])  # (H d) F
    data["gram"] = data["gram"].reshape(-1, n_heads + 1, n_heads + 1)
    return state


def expected(stored, token, off) -> dict:
    """Return the parts (H + 1, F), y (F,), its length and its cosine with all heads on."""
    data, n_heads = stored["_data"], stored["n_heads"]
    z = data["z"][token].reshape(n_heads, -1).copy()  # H d
    z[off] = 0
    blocks = data["w_o"].reshape(n_heads, -1, stored["n_features"])  # H d F
    parts = [z[h] @ blocks[h] for h in range(n_heads)]
    on, every = np.ones(n_heads + 1), np.ones(n_heads + 1)
    on[off] = 0
    gram = data["gram"][token]
    length, full = (np.sqrt(one @ gram @ one) for one in (on, every))
    return {
        "parts": np.array([*parts, data["b_o"]]),
        "y": z.ravel() @ data["w_o"] + data["b_o"],
        "length": length,
        "full": full,
        "cosine": on @ gram @ every / (length * full),
    }


def test_numbers_equal_float64_for_every_token(site, stored):
    n_heads, n_features = stored["n_heads"], stored["n_features"]
    n_tokens = len(stored["_data"]["tokens"])
    every = list(range(n_heads))
    choices = [[], [0], [n_heads - 1], every[::2], every[3:], every[:-1], every]
    visit = site.open(PAGE)
    found = visit.page.evaluate(READ, [n_tokens, n_features, choices])
    assert len(found) == n_tokens * len(choices)
    for one in found:
        known = expected(stored, one["token"], one["off"])
        case = f"token {one['token']}, off {one['off']}"
        close = {"rtol": 0, "atol": 1e-6, "err_msg": case}
        parts = np.array([column["parts"] for column in one["y"]]).T
        np.testing.assert_allclose(parts, known["parts"], **close)
        for way in ("sum", "product"):
            np.testing.assert_allclose([column[way] for column in one["y"]], known["y"], **close)
        for name in ("length", "full", "cosine"):
            np.testing.assert_allclose(one[name], known[name], **close)
        assert one["largest"] < 1e-12, case
    assert visit.problems() == []


def test_the_marks_of_both_plots_stand_equally_high(site, stored):
    """In pixels: each mark at the end of its bar, on one scale, where the value belongs."""
    tab = site.open(PAGE).page
    tab.locator(".mha-mix-head").nth(3).click()
    first, second = tab.evaluate(
        """() => [...document.querySelectorAll('.mha-mix-plot')].map(plot => {
             const svg = plot.querySelector('svg');
             const pixels = svg.getScreenCTM(), top = plot.getBoundingClientRect().top;
             const path = (name) => plot.querySelector(`.mha-mix-${name}`).getAttribute('d');
             const y = (text) => pixels.d * text + pixels.f - top;
             return {
               marks: [...path('cap').matchAll(/M[\\d.]+ ([\\d.]+)H/g)].map(m => y(m[1])),
               bars: [...(path(plot.querySelector('.mha-mix-bar') ? 'bar' : 'silhouette'))
                 .matchAll(/M([\\d.]+) [\\d.]+V([\\d.]+)H/g)].map(m => [m[1] | 0, y(m[2])]),
               zero: plot.querySelector('.mha-mix-zero').getBoundingClientRect().top - top,
               ticks: [...plot.querySelectorAll('.mha-mix-ticks span')].map(e => {
                 const box = e.getBoundingClientRect();
                 return [+e.textContent.replace('−', '-'), (box.top + box.bottom) / 2 - top]; }),
             };
           })"""
    )
    for plot in (first, second):
        (low, low_y), (high, high_y) = plot["ticks"][0], plot["ticks"][-1]
        y = expected(stored, stored["token"], [3])["y"]
        wanted = low_y + (y - low) / (high - low) * (high_y - low_y)
        np.testing.assert_allclose(plot["marks"], wanted, atol=0.6)
        for column, end in plot["bars"]:
            assert end == pytest.approx(plot["marks"][column], abs=0.01)
        assert len(plot["bars"]) == stored["n_features"]
    assert first["marks"] == pytest.approx(second["marks"], abs=0.01)
    assert first["zero"] == pytest.approx(second["zero"], abs=0.01)


def test_keyboard_alone_moves_everything(site, stored):
    visit = site.open(PAGE)
    tab = visit.page
    mixer = tab.locator(".mha-mixer")
    part = lambda role: mixer.locator(f"[data-role={role}]")  # noqa: E731
    part("token").focus()
    tab.keyboard.press("Home")
    assert part("token").input_value() == "0"
    tab.keyboard.press("ArrowDown")
    assert part("token").input_value() == "1"

    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")  # all off
    assert mixer.locator(".mha-mix-head[aria-pressed=true]").count() == 0
    tab.keyboard.press("Shift+Tab")
    tab.keyboard.press("Space")  # all on
    assert mixer.locator(".mha-mix-head[aria-pressed=false]").count() == 0

    tab.keyboard.press("Tab")
    tab.keyboard.press("Tab")
    for key in ("ArrowRight", "ArrowRight", "Space", "End", "Enter"):
        tab.keyboard.press(key)
    last = stored["n_heads"] - 1
    off = mixer.locator(".mha-mix-head[aria-pressed=false]")
    assert [one.get_attribute("data-head") for one in off.all()] == ["2", str(last)]

    tab.keyboard.press("Tab")  # the columns of y
    assert tab.evaluate("document.activeElement.getAttribute('role')") == "application"
    tab.keyboard.press("End")
    tab.keyboard.press("ArrowLeft")
    feature = stored["n_features"] - 2
    assert part("feature").input_value() == str(feature)
    y = expected(stored, 1, [2, last])["y"][feature]
    for role in ("sum", "product"):
        assert float(part(role).get_attribute("data-value")) == pytest.approx(y, abs=1e-6)
    assert f"Head {last} off: feature {feature} goes from" in part("happened").inner_text()

    tab.keyboard.press("Tab")
    tab.keyboard.press("Home")
    assert part("feature").input_value() == "0"
    assert visit.problems() == []


def test_the_head_with_the_focus_is_outlined(site):
    tab = site.open(PAGE).page
    tab.locator(".mha-mix-head").first.focus()
    tab.keyboard.press("ArrowRight")
    marked = tab.locator(".mha-mixer li[data-pointed]")
    assert [one.get_attribute("data-head") for one in marked.all()] == ["1"]
    outline = tab.locator(".mha-mix-outline").get_attribute("d")
    assert outline == tab.locator(".mha-mix-part[data-head='1']").get_attribute("d") != ""


def test_a_part_under_the_pointer_is_named(site, stored):
    tab = site.open(PAGE).page
    y = expected(stored, stored["token"], [])
    head, feature = np.unravel_index(np.abs(y["parts"][:-1]).argmax(), y["parts"][:-1].shape)
    stacks = tab.locator(".mha-mix-plot svg").nth(1)
    stacks.scroll_into_view_if_needed()
    path = tab.locator(f".mha-mix-part[data-head='{head}']").get_attribute("d")
    start, end = re.search(rf"M{feature}\.\d+ ([\d.]+)V([\d.]+)H", path).groups()
    box = stacks.bounding_box()
    across = (feature + 0.5) / stored["n_features"]
    down = (float(start) + float(end)) / 200
    tab.mouse.move(box["x"] + across * box["width"], box["y"] + down * box["height"])
    tip = tab.locator(".mha-mix-tip")
    assert tip.is_visible()
    said = re.fullmatch(rf"feature {feature}, head {head}: (\S+)", tip.inner_text())
    found = float(said[1].replace("−", "-"))
    assert found == pytest.approx(y["parts"][head, feature], abs=1e-3)
    assert tab.locator(".mha-mix-head[data-pointed]").get_attribute("data-head") == str(head)


def test_a_press_is_announced(site, stored):
    tab = site.open(PAGE).page
    tab.locator(".mha-mix-head").nth(3).click()
    tab.wait_for_function("() => document.querySelector('.mha-mixer .mha-live').textContent")
    spoken = tab.locator(".mha-mixer .mha-live").inner_text()
    feature, token = stored["feature"], stored["token"]
    before, after = (expected(stored, token, off)["y"][feature] for off in ([], [3]))
    found = re.fullmatch(
        r"head 3 off: feature (\d+) goes from (\S+) to (\S+), a change of (\S+), "
        r"exactly minus its contribution",
        spoken,
    )
    numbers = [float(text.replace("−", "-")) for text in found.groups()]
    assert numbers == pytest.approx([feature, before, after, after - before], abs=1e-3)


def test_page_keys_do_not_leave_the_widget(site):
    """The arrow keys of the widget must not scroll the page, nor turn it."""
    tab = site.open(PAGE).page
    address = tab.url
    for place in (".mha-mix-plot[tabindex]", ".mha-mix-head[tabindex='0']"):
        tab.locator(f".mha-mixer {place}").focus()
        height = tab.evaluate("scrollY")
        for key in ("ArrowRight", "End", "Home", "ArrowLeft"):
            tab.keyboard.press(key)
        tab.wait_for_timeout(300)
        # a key scrolls 40 pixels, or to the end
        assert abs(tab.evaluate("scrollY") - height) < 10, place
    assert tab.url == address


@pytest.mark.parametrize("width", [390, 360])
def test_everything_fits_a_phone(site, width):
    tab = site.open(PAGE, width=width).page
    assert tab.evaluate("document.scrollingElement.scrollWidth") <= width
    outside = tab.evaluate(
        """(width) => [...document.querySelectorAll('.mha-mixer *')].filter(e =>
             e.checkVisibility() && !e.closest('.mha-hear, .mha-live')
             && (e.getBoundingClientRect().right > width || e.getBoundingClientRect().left < 0)
           ).map(e => e.className)""",
        width,
    )
    assert outside == []
    small = tab.evaluate(
        """() => [...document.querySelectorAll('.mha-mixer :is(button, select)')].map(e =>
             e.getBoundingClientRect()).filter(e => e.width < 24 || e.height < 24).length"""
    )
    assert small == 0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_widget_follows_the_theme(site, theme):
    tab = site.open(PAGE, theme=theme).page
    assert tab.locator(".mha-mixer").get_attribute("data-mha-theme") == theme
