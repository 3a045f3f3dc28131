"""Picture every page of the built site: both themes, a desktop and a phone.

    python tools/screenshots.py [PAGE …]        for instance: book/notation

Needs the built site (`make book`), Playwright for Python and a Chrome or Chromium, found as the
browser tests find it. Writes PAGE-WIDTH-THEME.png into _build/screenshots, each the whole page, and
readme.png, the widget of the landing page; the README shows a copy of that, book/readme.png.
"""

from __future__ import annotations

import pathlib
import sys

ROOT = pathlib.Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests/browser"))

from playwright.sync_api import sync_playwright  # noqa: E402
from visits import HOW_TO_GET_ONE, HTML, find_browser, toc_pages  # noqa: E402

WIDTHS = {1280: 900, 390: 844}
THEMES = ("light", "dark")
PART = 4000  # CSS pixels; a picture of more than about 16,000 is blank at its end
TARGET = ROOT / "_build/screenshots"


def main(pages: list[str]) -> None:
    """Write the pictures of `pages` (all when empty) and say where they are."""
    if not HTML.is_dir():
        raise SystemExit("there is no _build/html yet; run `make book` first")
    program = find_browser() or sys.exit(HOW_TO_GET_ONE)
    TARGET.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for width, height in WIDTHS.items():
            for theme in THEMES:
                context = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme=theme,
                    reduced_motion="reduce",
                )
                tab = context.new_page()
                for page in pages or [*toc_pages(), "search"]:
                    tab.goto((HTML / f"{page}.html").as_uri())
                    tab.evaluate("() => window.MathJax?.startup?.promise")
                    tab.wait_for_timeout(400)
                    name = f"{page.replace('/', '-')}-{width}-{theme}"
                    whole = tab.evaluate("() => document.documentElement.scrollHeight")
                    for part, top in enumerate(range(0, whole, PART)):
                        clip = {"x": 0, "y": top, "width": width, "height": min(PART, whole - top)}
                        path = str(TARGET / f"{name}-{part}.png")
                        tab.screenshot(path=path, full_page=True, clip=clip)
                context.close()
        tab = browser.new_page(viewport={"width": 1280, "height": 900})
        tab.goto((HTML / "book/index.html").as_uri())
        tab.wait_for_selector(".mha-explorer[data-ready]")
        tab.locator(".stored-widget").screenshot(path=str(TARGET / "readme.png"))
        browser.close()
    print(f"{len(list(TARGET.glob('*.png')))} pictures in {TARGET.relative_to(ROOT)}")


if __name__ == "__main__":
    main(sys.argv[1:])
