"""The site in a real browser: build it, serve it on the loopback, refuse every other host.

The tests use the Chrome or Chromium that is there (or the one in the variable MHA_BROWSER) and
are skipped where there is none. `pytest -m "not browser"` leaves
them out.

The site is never stale: the first test that needs it runs jupyter-book, which rebuilds what has
changed and takes a second or two when nothing has.
"""

from __future__ import annotations

import functools
import http.server
import pathlib
import subprocess
import sys
import threading

import pytest
from visits import HOW_TO_GET_ONE, HTML, ROOT, Site, find_browser


def pytest_configure(config) -> None:
    """Name the mark that leaves these tests out."""
    config.addinivalue_line("markers", "browser: opens the built site in Chrome or Chromium")


def pytest_collection_modifyitems(items) -> None:
    """Mark everything in this folder, so that it can be left out."""
    here = pathlib.Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def html() -> pathlib.Path:
    """The folder of the built site, brought up to date with the sources."""
    from filelock import FileLock

    (ROOT / "_build").mkdir(exist_ok=True)
    main = "from jupyter_book.cli.main import main; main()"
    command = [sys.executable, "-c", main, "build", str(ROOT), "-W", "-n", "--keep-going"]
    with FileLock(ROOT / "_build/browser-tests.lock"):  # one of several pytest workers builds
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        said = (done.stdout + done.stderr)[-4000:]
        pytest.fail(f"jupyter-book build . -W -n --keep-going failed:\n{said}")
    return HTML


@pytest.fixture(scope="session")
def browser():
    """A headless Chrome or Chromium."""
    path = find_browser()
    if path is None:
        pytest.skip(HOW_TO_GET_ONE)
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    flags = [
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
    ]
    with sync_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=flags)
        yield running
        running.close()


@pytest.fixture(scope="session")
def served(html, browser):
    """The site on a port of the loopback."""

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

    handler = functools.partial(Quiet, directory=str(html))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield Site(f"http://127.0.0.1:{server.server_port}/", browser)
        server.shutdown()
        thread.join()


@pytest.fixture
def site(served):
    """The served site; what a test opened is closed after it."""
    before = len(served.contexts)
    yield served
    served.close_pages(since=before)
