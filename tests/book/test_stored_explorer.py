"""The numbers in the stored HeadExplorer are the model's, and its state is the one its text tells.

The page computes from these bytes, so everything it shows rests on them.
"""

import base64
import re
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest

import mha

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from refresh import STATE, VIEW  # noqa: E402

LAYER = 2


@pytest.fixture(scope="module")
def stored():
    """The model entry and the text of the explorer in chapter 6."""
    notebook = nbformat.read(ROOT / "book/06_split_heads.ipynb", as_version=4)
    (output,) = [output for cell in notebook.cells for output in cell.get("outputs", [])
                 if VIEW in output.get("data", {})]
    model = notebook.metadata["widgets"][STATE]["state"][output.data[VIEW]["model_id"]]
    return model, output.data["text/plain"]


def test_stored_queries_and_keys_are_those_of_the_model(stored):
    model, _ = stored
    encoder = mha.bert.load().requires_grad_(False)
    layer = encoder.layers[LAYER].attention
    buffers = {tuple(buffer["path"]): base64.b64decode(buffer["data"])
               for buffer in model["buffers"]}
    sentences = model["state"]["_data"]
    assert len(buffers) == 2 * len(sentences) == 8
    for place, sentence in enumerate(sentences):
        assert list(sentence["tokens"]) == encoder.tokenize(sentence["text"]).tokens[0]
        x = encoder.layer_input(sentence["text"], layer=LAYER)
        for name, projection in ("q", layer.q_proj), ("k", layer.k_proj):
            found = np.frombuffer(buffers["_data", place, name], "<f2").astype(np.float64)
            exact = projection(x)[0].double().numpy().ravel()
            # half a step of float16, and what float32 differs by from machine to machine
            close = abs(found - exact) <= 2**-11 * abs(exact) + 1e-5
            assert close.all(), (sentence["text"], name)


def test_the_stored_state_is_the_one_its_text_tells(stored):
    model, text = stored
    told = dict(re.findall(r"(\w+)=([^,)]+)", text))
    assert {"n_heads", "scale", "head", "query", "key"} <= set(told)
    for name, value in told.items():
        assert repr(model["state"][name]) == value, name
