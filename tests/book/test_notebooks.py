"""What nbval does not see: stored widget code, pictures, captions, and the notebooks' shape."""

import base64
import copy
import json
import re
import sys
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import refresh  # noqa: E402

from mha import widgets  # noqa: E402

NOTEBOOKS = sorted((ROOT / "book").glob("*.ipynb"))
SIMPLY = re.compile(r"\b(simply|obviously|clearly|just|trivial(ly)?)\b", re.IGNORECASE)

pytestmark = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_stored_widget_code_is_the_code_of_the_package(path):
    stored = read(path).metadata.get("widgets", {}).get(refresh.STATE, {}).get("state", {})
    for model in stored.values():
        if model["model_name"] == "AnyModel":
            name = model["state"]["_anywidget_id"].rsplit(".", 1)[1]
            current = getattr(widgets, name)
            assert model["state"]["_esm"] == str(current._esm), f"stale {name}: run make refresh"
            assert model["state"]["_css"] == str(current._css), f"stale {name}: run make refresh"


def test_every_widget_view_has_its_state_and_a_picture(path):
    notebook = read(path)
    stored = notebook.metadata.get("widgets", {}).get(refresh.STATE, {}).get("state", {})
    views = [output.data for cell in code_cells(notebook) for output in cell.outputs
             if refresh.VIEW in output.get("data", {})]
    for data in views:
        model = stored[data[refresh.VIEW]["model_id"]]
        if model["model_name"] == "AnyModel":  # a stock control is a sentence on the page
            assert data["image/png"]


def test_it_is_stored_as_refresh_writes_it(path):
    text = path.read_text(encoding="utf-8")
    notebook = read(path)
    again = copy.deepcopy(notebook)
    refresh.set_first_cells(again, refresh.config(), refresh.palette())
    assert [cell.source for cell in again.cells] == [cell.source for cell in notebook.cells]
    assert refresh.dump(refresh.normalise(again, path.stem)) == text, "run make refresh"


def test_every_cell_was_run_once_in_order_without_error(path):
    counts = [cell.execution_count for cell in code_cells(read(path))]
    assert counts == list(range(1, len(counts) + 1))
    errors = [output for cell in code_cells(read(path)) for output in cell.outputs
              if output.output_type == "error"]
    assert not errors


def test_cells_are_short(path):
    for cell in code_cells(read(path)):
        lines = cell.source.splitlines()
        most = 40 if "listing" in cell.metadata.get("tags", []) else 15  # a listing is to be copied
        assert len(lines) <= most, f"more than {most} lines, one idea a cell: {lines[0]}"
    lengths = [len(cell.source.splitlines()) for cell in code_cells(read(path))]
    assert sorted(lengths)[len(lengths) // 2] <= 5, "half of the cells should have 5 lines or fewer"


def test_code_fits_the_page(path):
    for cell in code_cells(read(path)):
        if "install" not in cell.metadata.get("tags", []):  # its address is as long as it is
            for line in cell.source.splitlines():
                assert len(line) <= 80, line


def test_pictures_are_small_and_have_words(path):
    for cell in code_cells(read(path)):
        for output in cell.outputs:
            if "image/png" in output.get("data", {}):
                size = len(base64.b64decode(output.data["image/png"]))
                assert size <= 40 * 1024, f"{size} bytes: {cell.source[:60]}"
                words = cell.metadata["mystnb"]
                assert len(words["image"]["alt"]) > 20, f"say what is to be seen: {words}"
                if refresh.VIEW not in output.data:
                    assert words["figure"]["caption"] and words["figure"]["name"]


def test_glued_numbers_are_used_and_used_numbers_are_glued(path):
    notebook = read(path)
    glued = {output.metadata["scrapbook"]["name"] for cell in code_cells(notebook)
             for output in cell.outputs if "scrapbook" in output.get("metadata", {})}
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    assert set(re.findall(r"\{glue:text\}`(\w+)", prose)) == glued, "glued ≠ used in the prose"


def test_the_chapter_has_its_parts(path):
    notebook = read(path)
    prose = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"][1:]
    opening = prose[0]
    assert opening.startswith("# ")
    assert len([line for line in opening.splitlines() if line.strip()]) <= 8
    assert all(word in opening for word in ("You will", "You will learn", "You need"))
    text = "\n".join(prose)
    headings = re.findall(r"^## (.*)$", text, re.MULTILINE)
    assert headings[-3:] == ["In practice", "Summary", "Exercises"]
    summary = text.split("## Summary")[1].split("## Exercises")[0]
    assert len(re.findall(r"[.!?](?=\s|$)", summary.strip())) == 3
    assert text.count('class="predict"') >= 2, "a chapter asks for two predictions or more"


def test_a_question_holds_no_formula(path):
    # the first line of a <details> is plain HTML: nobody turns its dollar signs into mathematics
    prose = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    questions = re.findall(r"<summary>(.*?)</summary>", prose, re.DOTALL)
    assert questions and not [question for question in questions if re.search(r"[$`*]", question)]


def test_each_exercise_is_asked_and_solved(path):
    sources = [cell.source for cell in code_cells(read(path))]
    chapter = path.stem[:2]
    asked = re.findall(rf'check\("({chapter}\.\d)"', "\n".join(sources))
    assert 2 <= len(set(asked)) <= 3, "a chapter has two or three exercises"
    outputs = json.dumps([cell.outputs for cell in code_cells(read(path))])
    for number in set(asked):
        assert asked.count(number) == 2, f"{number}: one cell with `...`, one with the solution"
        assert f"{number}: no answer yet" in outputs and f"{number}: right." in outputs


def test_prose_has_no_word_that_makes_a_reader_feel_slow(path):
    prose = [cell.source for cell in read(path).cells if cell.cell_type == "markdown"]
    found = [match.group() for text in prose for match in SIMPLY.finditer(text)]
    assert not found, f"words that make a reader feel slow: {found}"
