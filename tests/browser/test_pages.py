"""Every page of the book as a reader meets it."""

from __future__ import annotations

import pathlib
import re
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from fontTools.ttLib import TTFont
from visits import toc_pages

AXE = pathlib.Path(__file__).parent / "vendor/axe.min.js"
PAGES = toc_pages()
BUDGET_KB = {False: 800, True: 1200}  # without and with widget data
every_page = pytest.mark.parametrize("page", PAGES)


def table(weights: dict[str, int]) -> str:
    """Return the files of a visit, heaviest first, one a line."""
    rows = [f"{size / 1000:8.1f} KB  {name}" for name, size in weights.items()]
    return "\n".join([f"{sum(weights.values()) / 1000:8.1f} KB  in all", *rows])


@pytest.fixture(scope="module", params=PAGES)
def visit(request, served):
    """One first visit of each page on a desktop, looked at by several tests."""
    before = len(served.contexts)
    yield served.open(request.param)
    served.close_pages(since=before)


def test_page_loads_alone_and_silently(visit):
    assert visit.problems() == []


@pytest.mark.parametrize("widget_data", [False, True])
def test_first_visit_is_light(visit, widget_data):
    weights = visit.weights(widget_data=widget_data)
    assert sum(weights.values()) <= BUDGET_KB[widget_data] * 1000, table(weights)


def test_maths_is_drawn_and_only_there_loaded(visit):
    sources = visit.page.locator(".math").count()
    drawn = visit.page.locator("mjx-container").count()
    assert visit.page.locator("mjx-merror").all_inner_texts() == []
    assert drawn >= sources
    assert any("mathjax" in name for name in visit.files) == (sources > 0)


def test_pictures_have_alternative_text_and_load(visit):
    pictures = visit.page.evaluate(
        """() => [...document.images].map(i => ({src: i.getAttribute('src'), width: i.naturalWidth,
             alt: i.getAttribute('alt'), named: Boolean(i.closest('a')?.textContent.trim())}))"""
    )
    for picture in pictures:
        assert picture["width"] > 0, picture
        # an empty text marks a picture beside its own name, as the logo
        assert picture["alt"] or (picture["alt"] == "" and picture["named"]), picture
        assert not (picture["alt"] or "").endswith(".png"), picture


def test_widgets_are_drawn(visit):
    for box in visit.page.locator(".stored-widget").all():
        assert box.locator("script[type$='widget-view+json']").count() == 1
        drawn = box.evaluate(
            """(e) => [...e.children].some(c => !c.matches('script, .widget-stand-in')
                 && c.checkVisibility() && c.getBoundingClientRect().height > 0)"""
        )
        assert drawn, box.inner_text()


def test_paper_shows_the_stand_ins(visit):
    visit.page.emulate_media(media="print")
    for box in visit.page.locator(".stored-widget").all():
        assert box.locator(".widget-stand-in").is_visible()
        assert not box.locator(".static-widget").is_visible()
    assert not visit.page.locator("#pst-primary-sidebar").is_visible()
    visit.page.emulate_media(media="screen")


@pytest.mark.parametrize("page", [*PAGES, "search"])
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(site, page, theme, width):
    tab = site.open(page, theme=theme, width=width).page
    assert tab.evaluate("document.documentElement.dataset.theme") == theme
    tab.evaluate(AXE.read_text("utf-8"))
    found = tab.evaluate("() => axe.run({resultTypes: ['violations']})")["violations"]
    shown = [
        f"{rule['id']}: {node['html'][:160]} — {(node.get('failureSummary') or '')[:300]}"
        for rule in found
        for node in rule["nodes"][:4]
    ]
    assert not found, "\n".join(shown)


@every_page
def test_page_does_not_scroll_sideways_on_a_phone(site, page):
    tab = site.open(page, width=360).page
    wide = tab.evaluate(
        """() => document.scrollingElement.scrollWidth <= innerWidth ? [] :
             [...document.querySelectorAll('main *')].filter(
                 e => e.getBoundingClientRect().right > innerWidth + 1)
             .map(e => `${e.tagName}.${e.className}`).slice(0, 12)"""
    )
    assert wide == []
    assert tab.evaluate("document.scrollingElement.scrollWidth") <= 360


@every_page
def test_what_scrolls_is_reached_by_keyboard(site, page):
    tab = site.open(page, width=390).page
    tab.wait_for_timeout(400)  # the theme and book.js mark scrolling boxes after a pause of 300 ms
    unreachable = tab.evaluate(
        """() => [...document.querySelectorAll('article *')].filter(e =>
             e.checkVisibility() && e.scrollWidth > e.clientWidth + 1
             && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX)
             && e.tabIndex < 0 && !e.querySelector('a, button, input, select, [tabindex="0"]'))
             .map(e => e.outerHTML.slice(0, 120))"""
    )
    assert unreachable == []


def test_links_and_anchors_lead_somewhere(html):
    """Every page that was built, those outside the table of contents too."""
    soups = {}

    def soup(path):
        if path not in soups:
            soups[path] = BeautifulSoup(path.read_text("utf-8"), "html.parser")
        return soups[path]

    broken = []
    for path in sorted(p for p in html.rglob("*.html") if "_static" not in p.parts):
        for tag in soup(path).find_all(["a", "link", "script", "img"]):
            link = tag.get("href") or tag.get("src")
            if not link or link.startswith("data:"):
                continue
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if not target.is_file():
                broken.append(f"{path.name}: {link}")
            elif (
                anchor
                and target.suffix == ".html"
                and not (soup(target).find(id=anchor) or soup(target).find(attrs={"name": anchor}))
            ):
                broken.append(f"{path.name}: {link} (no such anchor)")
    assert broken == []


def pages_with_widgets(html) -> list[str]:
    """Return the pages that hold a drawable widget."""
    return [p for p in PAGES if 'class="stored-widget"' in (html / f"{p}.html").read_text("utf-8")]


def test_widgets_are_drawn_from_a_file(site, html):
    pages = pages_with_widgets(html)
    assert pages, "no page of the book holds a widget"
    for page in pages:
        visit = site.open(page, file_url=True)  # waits until each stand-in is hidden
        assert visit.problems() == [], page


def test_stand_ins_show_without_javascript(site, html):
    for page in pages_with_widgets(html):
        tab = site.open(page, javascript=False).page
        stand_ins = tab.locator(".stored-widget .widget-stand-in")
        assert stand_ins.count() > 0
        assert all(stand_in.is_visible() for stand_in in stand_ins.all()), page


def test_every_icon_has_its_glyph(html):
    """The icon fonts are cut down by tools/subset_icons.py to what the pages show."""
    css = (html / "_static/styles/pydata-sphinx-theme.css").read_text("utf-8")
    fonts = html / "_static/vendor/fontawesome/webfonts"
    drawn = {
        code
        for name in ("fa-solid-900.woff2", "fa-brands-400.woff2")
        for code in TTFont(fonts / name).getBestCmap()
    }
    used = set()
    for page in html.rglob("*.html"):
        used |= set(re.findall(r'class="[^"]*\bfa[sb]? fa-([a-z-]+)', page.read_text("utf-8")))
        used |= set(re.findall(r"\bfa-(?:solid|brands) fa-([a-z-]+)", page.read_text("utf-8")))
    assert {"bars", "download", "magnifying-glass"} <= used
    for name in sorted(used):
        code = re.search(rf'\.fa-{name}:before[^{{}}]*\{{content:"\\([0-9a-f]+)', css)
        assert code is not None and int(code[1], 16) in drawn, f"no glyph for fa-{name}"


def test_other_pages_load_no_widget_runner(html):
    for page in PAGES:
        text = (html / f"{page}.html").read_text("utf-8")
        assert ("static-widgets.js" in text) == ('class="stored-widget"' in text), page


def test_folded_code_opens_by_keyboard(site, html):
    folded = [
        p
        for p in PAGES
        if '<details class="admonition hide' in (html / f"{p}.html").read_text("utf-8")
    ]
    for page in folded:
        tab = site.open(page).page
        details = tab.locator("details.hide").first
        details.locator("summary").focus()
        tab.keyboard.press("Enter")
        assert details.evaluate("(e) => e.open"), page
        assert details.locator("pre").first.is_visible(), page


def test_search_finds_a_page(site):
    visit = site.open("search")
    tab = visit.page
    tab.locator("main input[name=q]").fill("attention")
    tab.keyboard.press("Enter")
    tab.locator("#search-results li a").first.wait_for(timeout=10_000)
    assert visit.problems() == []


def test_search_opens_by_keyboard_and_theme_by_button(site):
    tab = site.open(PAGES[0]).page
    tab.keyboard.press("Control+k")
    assert tab.locator("#pst-search-dialog input").is_visible()
    tab.keyboard.press("Escape")
    before = tab.evaluate("document.documentElement.dataset.mode")
    tab.locator(".theme-switch-button").first.focus()
    tab.keyboard.press("Enter")
    assert tab.evaluate("document.documentElement.dataset.mode") != before
