"""Show the widgets that a notebook stored, on any page, with no kernel.

A notebook keeps the state of its widgets in ``metadata.widgets`` and a view of each in a cell
output. For every such view the page gets three things, in this order:

- ``<script type="application/vnd.jupyter.widget-state+json">``: the models that the view reaches,
- ``<script type="application/vnd.jupyter.widget-view+json">``: which of them to draw,
- the static picture of the same output (``class="widget-stand-in"``), for print and without
  JavaScript. ``static-widgets.js`` hides it once the widget is drawn.

myst-nb on its own keeps one mime type of an output, puts the whole state of a notebook into the
page's head, and can't show a widget on another page. So widget outputs are taken out of its hands
when the document has been read. In a page that isn't a notebook, write::

    ```{stored-widget} 06_split_heads HeadExplorer
    :alt: Six heat maps, one a head.
    :caption: Move the slider.
    ```
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import pathlib
import re
from collections.abc import Iterator
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

STATE = "application/vnd.jupyter.widget-state+json"
VIEW = "application/vnd.jupyter.widget-view+json"
RUNNER = "static-widgets.js"
STAND_IN = "widget-stand-in"
NO_PICTURE = "A control for a running notebook: it needs a Python kernel to answer."


class stored_widget(nodes.General, nodes.Element):
    """A widget's view: attributes ``model_id`` and ``state``; its child is the stand-in."""


def reachable(model_id: str, state: dict) -> dict:
    """Return the entries of `state` that the model refers to, itself first."""
    found: dict = {}
    waiting = [model_id]
    while waiting:
        name = waiting.pop()
        if name in found or name not in state:
            continue
        found[name] = state[name]
        waiting += re.findall(r"IPY_MODEL_([0-9a-f]+)", json.dumps(state[name]))
    return found


def script(mime: str, content: dict) -> str:
    """Return a data script; no ``<`` in it can end it or begin a comment."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":")).replace("<", "\\u003c")
    return f'<script type="{mime}">{text}</script>\n'


def visit_html(self, node: stored_widget) -> None:
    """Write the scripts; a model that the page already holds is not written again."""
    written = self.__dict__.setdefault("stored_widget_models", set())
    models = {k: v for k, v in node["state"].items() if k not in written}
    written.update(models)
    self.body.append('<div class="stored-widget">\n')
    if models:
        self.body.append(script(STATE, {"version_major": 2, "version_minor": 0, "state": models}))
    view = {"model_id": node["model_id"], "version_major": 2, "version_minor": 0}
    self.body.append(script(VIEW, view))


def depart_html(self, node: stored_widget) -> None:
    """Close the box."""
    self.body.append("</div>\n")


def visit_other(self, node: stored_widget) -> None:
    """In formats other than HTML, show the stand-in alone."""


def join(data: str | list[str]) -> str:
    """Return the text of a mime type's data: stored as a string, or as a list of lines."""
    return "".join(data)


def stand_in(picture: nodes.image | None, text: str | None) -> nodes.Element:
    """Return the picture with an alternative text, or a sentence where there is no picture."""
    if picture is None:
        return nodes.paragraph("", NO_PICTURE, classes=[STAND_IN])
    picture["classes"] = [*picture.get("classes", []), STAND_IN]
    if not picture.get("alt", "").strip() and text:
        picture["alt"] = text.strip()
    return picture


def replace_outputs(app: Sphinx, doctree: nodes.document) -> None:
    """Turn each widget output of a notebook into a `stored_widget`.

    It must happen before Sphinx collects the document's pictures, hence the event's priority, and
    before myst-nb chooses one mime type, which it does when it writes.
    """
    metadata = getattr(app.env, "nb_metadata", {}).get(app.env.docname, {})
    _, script_tag = metadata.get("js_files", {}).pop("ipywidgets_state", (None, {}))
    state = json.loads(script_tag.get("body", "{}")).get("state", {})
    for bundle in list(doctree.findall(nodes.container)):
        if bundle.get("nb_element") != "mime_bundle":
            continue
        parts = {part["mime_type"]: part for part in bundle.children}
        if VIEW not in parts:
            continue
        view = re.search(r"<script[^>]*>(.*)</script>", parts[VIEW].astext(), re.DOTALL)
        model_id = json.loads(view[1])["model_id"]
        picture = (
            next(iter(parts["image/png"].findall(nodes.image)), None)
            if "image/png" in parts
            else None
        )
        text = parts["text/plain"].astext() if "text/plain" in parts else None
        widget = stored_widget(model_id=model_id, state=reachable(model_id, state))
        widget += stand_in(picture, text)
        bundle.replace_self(widget)


def views(notebook: dict) -> Iterator[tuple[str, dict]]:
    """Yield the class name and the mime bundle of each widget view in a notebook."""
    state = notebook["metadata"].get("widgets", {}).get(STATE, {}).get("state", {})
    for cell in notebook["cells"]:
        for output in cell.get("outputs", []):
            data = output.get("data", {})
            entry = state.get(data.get(VIEW, {}).get("model_id"))
            if entry is not None:
                name = entry["state"].get("_anywidget_id") or entry["model_name"]
                yield name.rpartition(".")[2], data


class StoredWidget(SphinxDirective):
    """``{stored-widget} NOTEBOOK CLASSNAME``: see the head of this file."""

    required_arguments = 2
    option_spec: ClassVar = {"alt": directives.unchanged, "caption": directives.unchanged}

    def run(self) -> list[nodes.Node]:
        """Return the widget, in a figure where a caption is given."""
        name, wanted = self.arguments
        relative, absolute = self.env.relfn2path(name.removesuffix(".ipynb") + ".ipynb")
        self.env.note_dependency(relative)
        path = pathlib.Path(absolute)
        if not path.is_file():
            raise self.error(f"stored-widget: there is no notebook {relative}")
        notebook = json.loads(path.read_text("utf-8"))
        stored = list(views(notebook))
        data = next((data for name, data in stored if name == wanted), None)
        if data is None:
            have = ", ".join(sorted({name for name, _ in stored})) or "none"
            raise self.error(
                f"stored-widget: {relative} stores no view of {wanted} (it has: {have}); "
                "execute the notebook and save it with its widget state"
            )
        model_id = data[VIEW]["model_id"]
        state = notebook["metadata"]["widgets"][STATE]["state"]
        widget = stored_widget(model_id=model_id, state=reachable(model_id, state))
        widget += stand_in(self.picture(data), join(data.get("text/plain", "")))
        self.set_source_info(widget)
        if "caption" not in self.options:
            return [widget]
        figure = nodes.figure("", widget, classes=["widget-figure"])
        caption, messages = self.state.inline_text(self.options["caption"], self.lineno)
        figure += nodes.caption("", "", *caption)
        return [figure, *messages]

    def picture(self, data: dict) -> nodes.image | None:
        """Return the stand-in; its file lies where myst-nb puts those of the notebooks."""
        if "image/png" not in data:
            return None
        content = base64.b64decode(join(data["image/png"]))
        folder = pathlib.Path(self.env.mystnb_config.output_folder)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / f"{hashlib.sha256(content).hexdigest()}.png"
        file.write_bytes(content)
        uri = "/" + pathlib.Path(os.path.relpath(file, self.env.srcdir)).as_posix()
        return nodes.image(uri=uri, alt=self.options.get("alt", ""))


def load_runner(app: Sphinx, pagename, templatename, context, doctree) -> None:
    """Load the widget runner on the pages that hold a widget, and on no other."""
    if doctree is not None and next(iter(doctree.findall(stored_widget)), None) is not None:
        app.add_js_file(RUNNER, defer="defer")


def setup(app: Sphinx) -> dict:
    """Register the node, the directive and the hooks."""
    app.setup_extension("myst_nb")
    other = (visit_other, visit_other)
    app.add_node(
        stored_widget,
        html=(visit_html, depart_html),
        latex=other,
        text=other,
        man=other,
        texinfo=other,
    )
    app.add_directive("stored-widget", StoredWidget)
    app.connect("doctree-read", replace_outputs, priority=100)
    app.connect("html-page-context", load_runner)
    return {
        "version": "1",
        "env_version": 1,
        "parallel_read_safe": True,
        "parallel_write_safe": True,
    }
