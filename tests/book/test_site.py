"""The frame of the site, on a tree of two small pages built with the book's own settings."""

from __future__ import annotations

import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest
import yaml

import mha

ROOT = pathlib.Path(__file__).parents[2]
VIEW = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
PNG = base64.b64encode(  # one grey pixel
    bytes.fromhex(
        "89504e470d0a1a0a0000000d49484452000000010000000108000000003a7e9b55"
        "0000000a49444154789c636800000082008177cd72b60000000049454e44ae426082"
    )
).decode()
INDEX = """# Start

```{stored-widget} chapter Toy
:alt: Two squares.
:caption: Move **it**.
```
"""


def anymodel(name: str, **state) -> dict:
    """Return the stored state of an anywidget."""
    return {
        "model_module": "anywidget",
        "model_module_version": "~0.9.21",
        "model_name": "AnyModel",
        "state": {"_anywidget_id": f"mha.widgets.toy.{name}", "_esm": "", **state},
    }


def notebook(text: str = "</script><b>") -> dict:
    """Return a notebook with a widget, a control, and a model that no view reaches."""
    output = {"output_type": "execute_result", "metadata": {}, "execution_count": 1}
    toy = {VIEW: {"model_id": "a1"}, "image/png": PNG, "text/plain": "Toy(heads=2)"}
    control = {VIEW: {"model_id": "c3"}, "text/plain": "IntSlider(value=3)"}
    cell = {"cell_type": "code", "metadata": {}, "execution_count": 1}
    state = {
        "a1": anymodel("Toy", text=text, layout="IPY_MODEL_b2"),
        "b2": {"model_name": "LayoutModel", "state": {}},
        "c3": {"model_name": "IntSliderModel", "state": {"value": 3}},
        "d4": anymodel("Unreached"),
    }
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            "widgets": {STATE: {"version_major": 2, "version_minor": 0, "state": state}},
        },
        "cells": [
            {"cell_type": "markdown", "id": "m", "metadata": {}, "source": "# A chapter"},
            {**cell, "id": "t", "source": "Toy()", "outputs": [{**output, "data": toy}]},
            {**cell, "id": "s", "source": "slider", "outputs": [{**output, "data": control}]},
        ],
    }


class Tree:
    """A book of an index and a chapter, in a folder of its own."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.html = folder / "_build/html/book"
        for name in ("_ext", "_static", "_templates"):
            shutil.copytree(ROOT / "book" / name, folder / "book" / name)
        shutil.copy(ROOT / "book/references.bib", folder / "book")
        (folder / "_toc.yml").write_text(
            "format: jb-book\nroot: book/index\nchapters:\n- file: book/chapter\n", "utf-8"
        )
        self.configure()
        self.write()

    def configure(self, url: str = "") -> None:
        """Write the book's own _config.yml with another repository."""
        config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
        config["repository"]["url"] = url
        (self.folder / "_config.yml").write_text(yaml.safe_dump(config), "utf-8")

    def write(self, index: str = INDEX, chapter: dict | None = None) -> None:
        """Write the two pages."""
        text = json.dumps(chapter or notebook())
        (self.folder / "book/index.md").write_text(index, "utf-8")
        (self.folder / "book/chapter.ipynb").write_text(text, "utf-8")

    def build(self) -> tuple[int, str]:
        """Build with warnings as errors; return the exit status and what was said."""
        main = "from jupyter_book.cli.main import main; main()"
        command = [sys.executable, "-c", main, "build", ".", "-W", "-n", "--keep-going"]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr

    def page(self, name: str) -> str:
        """Return the HTML of a page."""
        return (self.html / f"{name}.html").read_text("utf-8")


@pytest.fixture(scope="module")
def tree(tmp_path_factory):
    """A tree that is built once; a test that changes it builds it again."""
    tree = Tree(tmp_path_factory.mktemp("site"))
    status, said = tree.build()
    assert status == 0, said
    return tree


def stored(html: str, mime: str) -> list[dict]:
    """Return the data scripts of one type on a page."""
    found = re.findall(rf'<script type="{re.escape(mime)}">(.*?)</script>', html, re.DOTALL)
    return [json.loads(text) for text in found]


def models(html: str) -> dict:
    """Return all the models that a page stores; none of them twice."""
    parts = [part["state"] for part in stored(html, STATE)]
    merged = {key: value for part in parts for key, value in part.items()}
    assert len(merged) == sum(map(len, parts))
    return merged


def test_another_page_shows_the_widget_that_the_notebook_stored(tree):
    html = tree.page("index")
    assert [view["model_id"] for view in stored(html, VIEW)] == ["a1"]
    assert models(html) == {
        key: notebook()["metadata"]["widgets"][STATE]["state"][key] for key in ("a1", "b2")
    }
    image = re.search(r'<img alt="Two squares\." class="widget-stand-in" src="([^"]+)"', html)
    assert (tree.html / image[1]).read_bytes() == base64.b64decode(PNG)
    assert "Move <strong>it</strong>." in html
    assert 'src="../_static/static-widgets.js' in html


def test_a_notebook_page_holds_the_view_and_the_picture(tree):
    html = tree.page("chapter")
    assert [view["model_id"] for view in stored(html, VIEW)] == ["a1", "c3"]
    assert set(models(html)) == {"a1", "b2", "c3"}  # d4 is reached by no view
    assert re.search(r'<img alt="Toy\(heads=2\)" class="[^"]*widget-stand-in', html)
    assert '<p class="widget-stand-in">' in html  # the control has no picture
    assert "IntSlider(value=3)" not in html
    assert "require.js" not in html and "html-manager" not in html


def test_buttons_that_need_the_repository_wait_for_its_address(tree):
    places = ("colab.research", "mybinder", "issues/new", "/edit/", "github", "epository")
    assert not [place for place in places if place in tree.page("chapter")]
    tree.configure("https://github.com/someone/some-book")
    try:
        status, said = tree.build()
        assert status == 0, said
        html = tree.page("chapter")
        assert "colab.research.google.com/github/someone/some-book/blob/main/book/chapter" in html
        for link in (
            "mybinder.org/v2/gh/someone/some-book/main",
            'href="https://github.com/someone/some-book"',
            "https://github.com/someone/some-book/issues/new",
            "https://github.com/someone/some-book/edit/main/book/chapter.ipynb",
        ):
            assert link in html
    finally:
        tree.configure()
        tree.build()


def test_a_changed_notebook_is_noticed(tree):
    tree.write(chapter=notebook("changed"))
    status, said = tree.build()
    assert status == 0, said
    assert models(tree.page("index"))["a1"]["state"]["text"] == "changed"


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ("# A\n\n```{stored-widget} nowhere Toy\n```\n", "there is no notebook book/nowhere.ipynb"),
        (
            "# A\n\n```{stored-widget} chapter Other\n```\n",
            "book/chapter.ipynb stores no view of Other (it has: IntSliderModel, Toy)",
        ),
    ],
)
def test_a_widget_that_is_not_there_fails_the_build(tree, index, message):
    tree.write(index=index)
    status, said = tree.build()
    assert status != 0
    assert message in said
    tree.write()


def test_a_picture_without_alternative_text_fails_the_build(tree):
    tree.write(index="# A\n\n![](_static/logo.svg)\n")
    status, said = tree.build()
    assert status != 0
    assert "a picture has no alternative text" in said
    tree.write()


def test_every_public_name_stands_in_the_reference():
    text = (ROOT / "book/api.md").read_text("utf-8")
    shown = {name.removeprefix("mha.") for name in re.findall(r":: +([\w.]+)", text)}
    assert set(mha.__all__) <= shown


def test_the_repository_address_stands_in_one_place():
    config = yaml.safe_load((ROOT / "_config.yml").read_text("utf-8"))
    assert set(config["repository"]) == {"url", "branch", "path_to_book"}
    assert not any(config["html"][key] for key in config["html"] if key.startswith("use_"))
