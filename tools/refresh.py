"""Run the book's notebooks and store their outputs, the same bytes each time on one machine.

    python tools/refresh.py [02_one_head ...]

A notebook is replaced only after all of its cells have run. What differs from run to run is taken
out: cell times, kernel versions, the random ids of widgets, stored state that no output shows.
The first cells are written here too: the formula macros, for readers outside the website, and,
once `_config.yml` knows the repository's address, the cell that installs mha on Colab.
"""

import hashlib
import json
import os
import re
import sys
from pathlib import Path

import nbformat
import yaml
from nbclient import NotebookClient

from mha.checkpoint import PACKAGE

ROOT = Path(__file__).resolve().parent.parent
BOOK = ROOT / "book"
STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
KEPT_CELL_METADATA = {"tags", "mystnb"}


os.environ.setdefault("OMP_NUM_THREADS", "1")  # as in the tests: sums round the same way


def main(names):
    names = [name.removesuffix(".ipynb") for name in names]
    paths = [BOOK / f"{name}.ipynb" for name in names] or sorted(BOOK.glob("*.ipynb"))
    missing = [path.stem for path in paths if not path.is_file()]
    if missing:
        known = ", ".join(path.stem for path in sorted(BOOK.glob("*.ipynb")))
        sys.exit(f"no notebook {', '.join(missing)} in book/; there are {known}")
    for path in paths:
        refresh(path)


def refresh(path):
    """Execute one notebook and replace it, or leave it alone and raise."""
    notebook = nbformat.read(path, as_version=4)
    set_first_cells(notebook, config(), palette())
    NotebookClient(notebook, timeout=600, kernel_name="python3", record_timing=False,
                   resources={"metadata": {"path": str(path.parent)}}).execute()
    text = dump(normalise(notebook, path.stem))
    part = path.with_suffix(".part")
    part.write_text(text, encoding="utf-8")
    os.replace(part, path)
    print(f"{path.relative_to(ROOT)}: {len(text) / 1024:.0f} KiB")


def dump(notebook):
    """The one way a notebook is written as text."""
    return json.dumps(notebook, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def normalise(notebook, name):
    """The notebook without what changes from run to run; `name` seeds the widgets' ids."""
    for cell in notebook.cells:
        cell.metadata = {k: v for k, v in cell.metadata.items() if k in KEPT_CELL_METADATA}
        if cell.cell_type == "code":
            cell.outputs = _joined_streams(cell.outputs)
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        **_shown_widgets(notebook),
    }
    return _renamed_widgets(notebook, name)


def _joined_streams(outputs):
    """Neighbouring pieces of one stream as one output: how a stream is cut depends on timing."""
    joined = []
    for output in outputs:
        last = joined[-1] if joined else {}
        if output.output_type == "stream" and last.get("name") == output.name:
            last["text"] += output.text
        else:
            joined.append(output)
    return joined


def _shown_widgets(notebook):
    """The stored state of the widgets that an output shows, in the order of their appearance."""
    stored = notebook.metadata.get("widgets", {}).get(STATE)
    if not stored:
        return {}
    waiting = [output.data[VIEW]["model_id"] for cell in notebook.cells
               for output in cell.get("outputs", []) if VIEW in output.get("data", {})]
    shown = {}
    while waiting:
        model = waiting.pop(0)
        if model in stored["state"] and model not in shown:
            shown[model] = stored["state"][model]
            shown[model]["state"].pop("msg_id", None)  # an Output widget's last message
            waiting += re.findall(r"IPY_MODEL_(\w+)", json.dumps(shown[model]))
    return {"widgets": {STATE: {**stored, "state": shown}}} if shown else {}


def _renamed_widgets(notebook, name):
    """Widget ids counted from the notebook's name in place of random ones."""
    models = notebook.metadata.get("widgets", {}).get(STATE, {}).get("state", {})
    text = json.dumps(notebook)
    for count, model in enumerate(list(models)):
        text = text.replace(model, hashlib.sha256(f"{name}:{count}".encode()).hexdigest()[:32])
    return nbformat.from_dict(json.loads(text))


def set_first_cells(notebook, settings, colours):
    """Write the macro cell and, where the repository has an address, the install cell."""
    cells = [cell for cell in notebook.cells if cell.get("id") not in ("macros", "install")]
    first = [nbformat.v4.new_markdown_cell(macros(settings, colours), id="macros",
                                           metadata={"tags": ["remove-cell"]})]
    if settings["repository"]["url"]:
        first.append(nbformat.v4.new_code_cell(install(settings["repository"]["url"]), id="install",
                                               metadata={"tags": ["remove-cell", "install"]}))
    run_before = {cell.get("id"): cell for cell in notebook.cells if cell.cell_type == "code"}
    for cell in first:
        old = run_before.get(cell["id"])
        if old is not None and old.source == cell.source:
            cell.update(execution_count=old.execution_count, outputs=old.outputs)
    notebook.cells = first + cells


def macros(settings, colours):
    r"""The site's \query, \key … for Jupyter, Colab and GitHub, in the light theme's colours."""
    names = settings["sphinx"]["config"]["mathjax3_config"]["tex"]["macros"]
    lines = []
    for name, (body, _) in names.items():
        role = re.search(r"\\class\{(mha-\w+)\}", body).group(1)
        lines.append(rf"\newcommand{{\{name}}}[1]{{\textcolor{{{colours[role]}}}{{#1}}}}")
    return "$" + "\n".join(lines) + "$"


def install(url):
    """The install cell: does nothing where mha is installed."""
    return "\n".join([
        "import importlib.util",
        "",
        'if importlib.util.find_spec("mha") is None:',
        f"    %pip install -q git+{url}",
        f"    %pip install -q --no-deps {PACKAGE}",
    ])


def config():
    return yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))


def palette():
    """Role class -> colour of the light theme, read from the site's style sheet."""
    css = (BOOK / "_static" / "book.css").read_text(encoding="utf-8")
    found = {}
    for role, colour in re.findall(r"--(mha-\w+):\s*(#[0-9A-Fa-f]{6})", css):
        found.setdefault(role, colour)
    return found


if __name__ == "__main__":
    main(sys.argv[1:])
