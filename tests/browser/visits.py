"""What the browser tests share: the pages, the browser, a visit that records what a page does."""

from __future__ import annotations

import gzip
import os
import pathlib
import re
import shutil
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

import yaml

ROOT = pathlib.Path(__file__).parents[2]
HTML = ROOT / "_build/html"
STATE = re.compile(
    rb'<script type="application/vnd\.jupyter\.widget-state\+json">.*?</script>', re.DOTALL
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PLACES = (
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
)
HOW_TO_GET_ONE = (
    "no Chrome or Chromium found; install one (Debian: apt-get install chromium; "
    "macOS: brew install --cask chromium), or put its path in MHA_BROWSER"
)


def toc_pages() -> list[str]:
    """Return the pages of _toc.yml, in its order."""

    def walk(part):
        if isinstance(part, list):
            for item in part:
                yield from walk(item)
        elif isinstance(part, dict):
            for key, value in part.items():
                if key in ("root", "file"):
                    yield re.sub(r"\.(md|ipynb)$", "", value)
                else:
                    yield from walk(value)

    return list(walk(yaml.safe_load((ROOT / "_toc.yml").read_text("utf-8"))))


def find_browser() -> str | None:
    """Return the path of a browser, or None."""
    wanted = os.environ.get("MHA_BROWSER")
    if wanted:
        return wanted if os.path.exists(wanted) else None
    found = (shutil.which(name) for name in NAMES)
    return next(filter(None, found), next(filter(os.path.exists, PLACES), None))


@dataclass
class Visit:
    """A page in the browser and all that it asked for and said."""

    page: object
    outside: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)

    def problems(self) -> list[str]:
        """Return what a page must not do: ask other hosts, complain, miss a file."""
        return [
            *(f"asked another host: {url}" for url in self.outside),
            *(f"said: {text}" for text in self.said),
            *(f"did not get: {text}" for text in self.failed),
        ]

    def weights(self, *, widget_data: bool) -> dict[str, int]:
        """Return the gzip bytes of each file of the first visit."""
        found = {}
        for name in self.files:
            data = (HTML / name).read_bytes()
            if not widget_data and name.endswith(".html"):
                data = STATE.sub(b"", data)
            found[name] = min(len(data), len(gzip.compress(data, 6)))
        return dict(sorted(found.items(), key=lambda item: -item[1]))


class Site:
    """The served site; `open` visits a page in a fresh browser profile."""

    def __init__(self, base: str, browser) -> None:
        self.base = base
        self.browser = browser
        self.contexts: list = []

    def url(self, page: str) -> str:
        """Return the address of a page on the local server."""
        return f"{self.base}{page}.html"

    def open(self, page, *, width=1280, theme="light", file_url=False, javascript=True) -> Visit:
        """Load a page, wait until its maths and widgets had time to be drawn, record the rest."""
        context = self.browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=theme,
            reduced_motion="reduce",
            java_script_enabled=javascript,
        )
        self.contexts.append(context)
        tab = context.new_page()
        visit = Visit(tab)
        home = (HTML.as_uri() + "/") if file_url else self.base

        def route(handler):
            url = handler.request.url
            if url.startswith((home, "data:", "blob:")):
                handler.continue_()
            else:
                visit.outside.append(url)
                handler.abort()

        def received(response):
            if response.url.startswith(home):
                name = unquote(urlsplit(response.url[len(home) :]).path)
                if response.status not in (0, 200):  # a file has no status
                    visit.failed.append(f"{response.status} {response.url}")
                else:
                    visit.files.add(name)

        tab.route("**/*", route)
        tab.on("response", received)
        tab.on("requestfailed", lambda request: visit.failed.append(request.url))
        tab.on("pageerror", lambda error: visit.said.append(f"error {error}"))
        tab.on(
            "console",
            lambda message: (
                message.type in ("error", "warning")
                and visit.said.append(f"{message.type} {message.text}")
            ),
        )
        tab.goto(f"{home}{page}.html", wait_until="load")
        if javascript:
            tab.evaluate("() => window.MathJax?.startup?.promise")
            tab.evaluate("() => document.fonts.ready.then(() => true)")
            tab.wait_for_function(ALL_DRAWN, timeout=10_000)
            tab.wait_for_function("() => document.getAnimations().length === 0", timeout=10_000)
            tab.evaluate(NEXT_FRAME)  # styles of the theme are on the page
        return visit

    def close_pages(self, since: int) -> None:
        """Close the profiles that were opened after the first `since`."""
        while len(self.contexts) > since:
            self.contexts.pop().close()


NEXT_FRAME = """() => new Promise(
    (done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"""

# every anywidget on the page has hidden its stand-in; other controls only have their note
ALL_DRAWN = """() => [...document.querySelectorAll('.stored-widget')].every(
    (box) => !box.querySelector('img.widget-stand-in')
        || box.querySelector('img.widget-stand-in').checkVisibility() === false)"""
