"""The list of references by author and year, as the citations in the text name them."""

from __future__ import annotations

from collections.abc import Iterator

from pybtex.plugin import register_plugin
from pybtex.style.formatting.plain import Style as PlainStyle
from pybtex.style.labels import BaseLabelStyle
from sphinx.application import Sphinx


class AuthorYearLabels(BaseLabelStyle):
    """Labels such as ``Wang et al., 2020`` and ``Jain and Wallace, 2019``."""

    def format_labels(self, sorted_entries) -> Iterator[str]:
        """Yield the label of each entry."""
        for entry in sorted_entries:
            names = [" ".join(person.last_names) for person in entry.persons["author"]]
            shown = f"{names[0]} et al." if len(names) > 2 else " and ".join(names)
            yield f"{shown}, {entry.fields['year']}"


class AuthorYear(PlainStyle):
    """The plain style, which sorts by author, with these labels."""

    default_label_style = AuthorYearLabels


def setup(app: Sphinx) -> dict:
    """Make the style known as ``author_year``."""
    register_plugin("pybtex.style.formatting", "author_year", AuthorYear)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
