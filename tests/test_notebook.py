"""The strip and the glue: what every chapter shows around its own cells."""

import re

import pytest

from mha.notebook import STAGES, data_flow, glue


def test_the_strip_marks_the_named_stages_and_no_other():
    html = data_flow("scores", "softmax")._repr_html_()
    items = re.findall(r"<li(.*?)>.*?<span class=\"name\">(.*?)</span>", html)
    assert len(items) == len(STAGES)
    marked = [name for attributes, name in items if 'aria-current="step"' in attributes]
    assert marked == ["scores q·k", "softmax"]


def test_the_strip_as_text():
    assert repr(data_flow("x")).startswith("[x] → project → split")


def test_an_unknown_stage_is_refused():
    with pytest.raises(ValueError, match="stage 'concat' is unknown; use one of x, project, spl"):
        data_flow("concat")


def test_glue_writes_what_myst_nb_reads(monkeypatch):
    shown = []
    monkeypatch.setattr("IPython.display.display", lambda data, **more: shown.append((data, more)))
    glue("share", "0.84")
    (data, more), = shown
    assert data == {"application/papermill.record/text/plain": "0.84"}
    mark = {"name": "share", "mime_prefix": "application/papermill.record/"}
    assert more == {"metadata": {"scrapbook": mark}, "raw": True}
