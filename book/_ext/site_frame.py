"""The frame of the site: what the theme shows on each page, decided in one place.

- Buttons that need the repository's address exist only while ``repository: url`` is set.
- The line that opens a folded cell is named by its own text.
- The list of references carries roles that ARIA knows; a picture without alternative text is
  reported, so that the build fails.
- MathJax is loaded where a page holds maths, and not on the root because its chapters do.
- A change in the frame itself builds the site anew.
"""

from __future__ import annotations

import hashlib
import pathlib
from html import escape

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode, depart_HideCellInput
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)

REPOSITORY_BUTTONS = ("use_repository_button", "use_issues_button", "use_edit_page_button")
LAUNCH_URLS = ("colab_url", "binderhub_url", "jupyterhub_url", "deepnote_url")


def switch_repository_buttons(app: Sphinx, config) -> None:
    """Show the buttons that need the repository's address when there is one, and only then."""
    options = config.html_theme_options
    known = bool((options.get("repository_url") or "").strip())
    for button in REPOSITORY_BUTTONS:
        options[button] = known
    if not known:
        options["repository_url"] = ""
        launch = options.get("launch_buttons") or {}
        options["launch_buttons"] = {k: v for k, v in launch.items() if k not in LAUNCH_URLS}


def visit_hidden_cell(self, node: HideCodeCellNode) -> None:
    """Open a folded cell: myst-nb's own HTML, without the aria-label that hid the visible name."""
    classes = " ".join(node["classes"])
    self.body.append(f'<details class="admonition hide {classes}">\n<summary>\n')
    for state in ("show", "hide"):
        shown = "collapsed" if state == "show" else "expanded"
        text = escape(node[f"prompt_{state}"])
        self.body.append(f'<span class="{shown} admonition-title">{text}</span>\n')
    self.body.append("</summary>\n")


def visit_citation(self, node: nodes.citation) -> None:
    """Open an entry of the references: docutils gives it a role that ARIA has dropped."""
    if not isinstance(node.previous_sibling(), type(node)):
        self.body.append('<div role="list" class="citation-list">\n')
    self.body.append(self.starttag(node, "div", classes=[node.tagname], role="listitem"))


def depart_citation(self, node: nodes.citation) -> None:
    """Close the entry, and the list after its last one."""
    self.body.append("</div>\n")
    if not isinstance(node.next_node(descend=False, siblings=True), type(node)):
        self.body.append("</div>\n")


def report_missing_alt(app: Sphinx, doctree: nodes.document) -> None:
    """Warn of a picture without alternative text (the build fails with ``-W``)."""
    for image in doctree.findall(nodes.image):
        if not image.get("alt", "").strip():
            LOGGER.warning(
                "a picture has no alternative text: give the code cell the metadata "
                '"mystnb": {"image": {"alt": "…"}}, or the image directive an :alt: option',
                location=image,
                type="book",
                subtype="alt",
            )


def drop_unused_mathjax(app: Sphinx, pagename, templatename, context, doctree) -> None:
    """Load MathJax where the page itself holds maths; Sphinx adds it where a page below does."""
    maths = (nodes.math, nodes.math_block)
    if doctree is None or any(isinstance(node, maths) for node in doctree.findall()):
        return
    scripts = context["script_files"]
    scripts[:] = [
        script
        for script in scripts
        if app.config.mathjax_path not in str(script.filename or "")
        and "window.MathJax" not in script.attributes.get("body", "")
    ]


def digest(*paths: pathlib.Path) -> str:
    """Return a hash of files and of what is in folders."""
    total = hashlib.sha256()
    for path in paths:
        files = [path] if path.is_file() else path.rglob("*")
        for file in sorted(p for p in files if p.suffix != ".pyc" and p.is_file()):
            total.update(str(file.relative_to(path)).encode() + file.read_bytes())
    return total.hexdigest()


def setup(app: Sphinx) -> dict:
    """Register the hooks."""
    app.setup_extension("myst_nb")
    # Sphinx copies no style sheet while no page has changed, keeps the old menu on pages that have
    # not, and doesn't watch local extensions. Their hashes are settings of the site: a change reads
    # (env) or writes (html) every page again.
    book = pathlib.Path(__file__).parents[1]
    around = book / "_static", book / "_templates", book.parent / "_toc.yml"
    app.add_config_value("book_code", digest(book / "_ext"), "env", str)
    app.add_config_value("book_assets", digest(*around), "html", str)
    app.connect("config-inited", switch_repository_buttons)
    app.connect("html-page-context", drop_unused_mathjax, priority=900)
    app.connect("doctree-read", report_missing_alt, priority=600)
    app.add_node(HideCodeCellNode, override=True, html=(visit_hidden_cell, depart_HideCellInput))
    app.add_node(nodes.citation, override=True, html=(visit_citation, depart_citation))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
