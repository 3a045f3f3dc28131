"""Cut the theme's icon fonts down to the glyphs that the site shows.

    python tools/subset_icons.py

Reads the fonts of the installed pydata-sphinx-theme and writes book/_static/vendor/fontawesome.
The files keep the paths that the theme's style sheet asks for, so Sphinx puts them in the place of
the full fonts (300 KB). Run it again after an update of the theme or when a page uses a new icon;
tests/book/test_site.py names an icon that is missing.
"""

from __future__ import annotations

import pathlib
import re

import pydata_sphinx_theme
from fontTools import subset
from fontTools.ttLib import TTFont

TARGET = pathlib.Path(__file__).parents[1] / "book/_static/vendor/fontawesome/webfonts"
THEME = pathlib.Path(pydata_sphinx_theme.__file__).parent / "theme/pydata_sphinx_theme/static"

SOLID = [
    "angle-left",
    "angle-right",
    "angle-down",
    "angle-up",
    "arrow-up",
    "bars",
    "bell",
    "check-circle",
    "chevron-down",
    "chevron-right",
    "circle-half-stroke",
    "code",
    "download",
    "exclamation-circle",
    "exclamation-triangle",
    "expand",
    "external-link",
    "file",
    "file-lines",
    "file-pdf",
    "home",
    "info-circle",
    "lightbulb",
    "link",
    "list",
    "magnifying-glass",
    "moon",
    "outdent",
    "pencil",
    "pencil-alt",
    "play",
    "rocket",
    "search-minus",
    "share",
    "sun",
    "times-circle",
    "xmark",
]
BRANDS = ["bitbucket", "github", "gitlab", "square-github", "square-gitlab"]


def code_points(names: list[str]) -> list[int]:
    """Return the code point of each icon, as the theme's style sheet gives it."""
    css = (THEME / "styles/pydata-sphinx-theme.css").read_text("utf-8")
    found = []
    for name in names:
        match = re.search(rf'\.fa-{name}:before[^{{}}]*\{{content:"([^"]+)"\}}', css)
        if match is None:
            raise SystemExit(f"the theme's style sheet has no icon fa-{name}")
        text = match[1]
        found.append(int(text[1:], 16) if text.startswith("\\") else ord(text))
    return found


def cut(source: str, target: str, names: list[str]) -> None:
    """Write the glyphs of `names` as a WOFF2 font under another name, as the licence asks."""
    font = TTFont(THEME / "vendor/fontawesome/webfonts" / source, recalcTimestamp=False)
    options = subset.Options(layout_features=[], notdef_outline=True, flavor="woff2")
    cutter = subset.Subsetter(options)
    cutter.populate(unicodes=code_points(names))
    cutter.subset(font)
    for record in font["name"].names:
        if record.nameID in (1, 3, 4, 6, 16, 18, 21):
            record.string = "BookIcons" + source[2:].split(".")[0].title().replace("-", "")
    TARGET.mkdir(parents=True, exist_ok=True)
    subset.save_font(font, str(TARGET / target), options)
    print(f"{target}: {len(names)} icons, {(TARGET / target).stat().st_size} bytes")


if __name__ == "__main__":
    cut("fa-solid-900.ttf", "fa-solid-900.woff2", SOLID)
    cut("fa-brands-400.ttf", "fa-brands-400.woff2", BRANDS)
