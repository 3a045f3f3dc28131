"""tools/refresh.py: stable bytes, the managed first cells, nothing half-done."""

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

import refresh  # noqa: E402

new = nbformat.v4
SETTINGS = {
    "repository": {"url": ""},
    "sphinx": {"config": {"mathjax3_config": {"tex": {"macros": {
        "query": [r"\class{mha-query}{#1}", 1]}}}}},
}
COLOURS = {"mha-query": "#0072B2"}


def notebook(*cells):
    return new.new_notebook(cells=list(cells))


def stream(text):
    return new.new_output("stream", name="stdout", text=text)


def test_macros_are_written_in_the_light_colours():
    expected = r"$\newcommand{\query}[1]{\textcolor{#0072B2}{#1}}$"
    assert refresh.macros(SETTINGS, COLOURS) == expected


def test_the_palette_is_the_light_theme_of_the_style_sheet():
    assert refresh.palette()["mha-query"] == "#0072B2"


def test_no_install_cell_while_the_address_is_unknown():
    book = notebook(new.new_markdown_cell("# Title"))
    refresh.set_first_cells(book, SETTINGS, COLOURS)
    assert [cell.id for cell in book.cells[:1]] == ["macros"]
    assert len(book.cells) == 2


def test_the_install_cell_comes_with_the_address_and_stays_one():
    known = {**SETTINGS, "repository": {"url": "https://host.invalid/book"}}
    book = notebook(new.new_markdown_cell("# Title"))
    for _ in range(2):
        refresh.set_first_cells(book, known, COLOURS)
    assert [cell.get("id") for cell in book.cells[:2]] == ["macros", "install"]
    assert len(book.cells) == 3
    assert "git+https://host.invalid/book" in book.cells[1].source
    assert book.cells[1].source.startswith("import importlib.util")


def test_an_install_cell_that_has_run_stays_as_it_is():
    known = {**SETTINGS, "repository": {"url": "https://host.invalid/book"}}
    book = notebook(new.new_markdown_cell("# Title"))
    refresh.set_first_cells(book, known, COLOURS)
    book.cells[1].execution_count = 1
    before = refresh.dump(book)
    refresh.set_first_cells(book, known, COLOURS)
    assert refresh.dump(book) == before


def test_pieces_of_a_stream_are_joined():
    cell = new.new_code_cell("1", outputs=[stream("a\n"), stream("b\n")])
    done = refresh.normalise(notebook(cell), "x")
    assert [output.text for output in done.cells[0].outputs] == ["a\nb\n"]


def test_times_and_editor_settings_go_tags_stay():
    metadata = {"vscode": {"x": 1}, "execution": {"t": "1"}, "tags": ["hide-cell"]}
    cell = new.new_code_cell("1", metadata=metadata)
    assert refresh.normalise(notebook(cell), "x").cells[0].metadata == {"tags": ["hide-cell"]}


def test_stored_widgets_that_nothing_shows_are_dropped_and_ids_are_stable():
    texts = []
    for shown, child, other in ("a" * 32, "b" * 32, "c" * 32), ("d" * 32, "e" * 32, "f" * 32):
        view = new.new_output("display_data", {refresh.VIEW: {"model_id": shown}})
        book = notebook(new.new_code_cell("w", id="w", outputs=[view]))
        models = nbformat.from_dict({
            other: {"model_name": "Lost", "state": {}},
            child: {"model_name": "LayoutModel", "state": {}},
            shown: {"model_name": "AnyModel", "state": {"layout": f"IPY_MODEL_{child}"}},
        })
        book.metadata["widgets"] = {refresh.STATE: {"version_major": 2, "state": models}}
        done = refresh.normalise(book, "x")
        state = done.metadata["widgets"][refresh.STATE]["state"]
        assert [model["model_name"] for model in state.values()] == ["AnyModel", "LayoutModel"]
        texts.append(refresh.dump(done))
    assert texts[0] == texts[1]


def test_an_unknown_name_is_refused_with_the_known_ones():
    known = "there are 01_lookup, 02_one_head"
    with pytest.raises(SystemExit, match=f"no notebook 99_none in book/; {known}"):
        refresh.main(["99_none"])


def test_a_failing_notebook_is_left_as_it_was(tmp_path):
    path = tmp_path / "bad.ipynb"
    nbformat.write(notebook(new.new_code_cell("1 / 0")), path)
    before = path.read_bytes()
    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        refresh.refresh(path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]
