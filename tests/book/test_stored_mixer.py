"""The numbers in the stored OutputMixer are the model's, and its state is the one its text tells.

The page computes from these bytes, so everything it shows rests on them.
"""

import base64
import sys
from pathlib import Path

import nbformat
import numpy as np
import pytest
import torch

import mha
from mha.widgets import OutputMixer

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))

from refresh import STATE, VIEW  # noqa: E402

LAYER = 2
SENTENCE = "The cat sat on the mat"
HALF_STEP = 2.0**-11  # of float16, relative


@pytest.fixture(scope="module")
def stored():
    """The state, its bytes by name, and the text of the mixer in chapter 7."""
    notebook = nbformat.read(ROOT / "book/07_concat_output.ipynb", as_version=4)
    models = notebook.metadata["widgets"][STATE]["state"]
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])
               if VIEW in output.get("data", {})]
    (output,) = [one for one in outputs
                 if "off" in models[one.data[VIEW]["model_id"]]["state"]]
    model = models[output.data[VIEW]["model_id"]]
    data = {buffer["path"][-1]: base64.b64decode(buffer["data"]) for buffer in model["buffers"]}
    return model["state"], data, output.data["text/plain"]


@pytest.fixture(scope="module")
def exact():
    """The model's tokens, z (T, H d), W_O (H d, D), b_O (D,) and its own y (T, D), in float64."""
    encoder = mha.bert.load().requires_grad_(False)
    layer = encoder.layers[LAYER].attention
    x = encoder.layer_input(SENTENCE, layer=LAYER)
    projections = (layer.q_proj, layer.k_proj, layer.v_proj)
    q, k, v = (mha.split_heads(project(x), layer.n_heads) for project in projections)
    z, _ = mha.scaled_dot_product_attention(q, k, v)
    tensors = mha.merge_heads(z)[0], layer.out_proj.weight.T, layer.out_proj.bias, layer(x)[0]
    z, w_o, b_o, y = (tensor.double().numpy() for tensor in tensors)
    return {"tokens": encoder.tokenize(SENTENCE).tokens[0], "z": z, "w_o": w_o, "b_o": b_o, "y": y,
            "n_heads": layer.n_heads}


def test_stored_numbers_are_those_of_the_model(stored, exact):
    state, data, _ = stored
    assert list(state["_data"]["tokens"]) == exact["tokens"]
    assert (state["n_heads"], state["d_model"]) == (exact["n_heads"], 384) == (12, 384)
    shown = slice(state["n_features"])
    assert state["n_features"] == 24
    kinds = {"z": ("<f2", exact["z"]), "w_o": ("<f2", exact["w_o"][:, shown]),
             "b_o": ("<f2", exact["b_o"][shown])}
    assert set(data) == {*kinds, "gram"}
    for name, (kind, values) in kinds.items():
        found = np.frombuffer(data[name], kind).astype(np.float64)
        # half a step of float16, and what float32 differs by from machine to machine
        close = abs(found - values.ravel()) <= HALF_STEP * abs(values.ravel()) + 1e-5
        assert close.all(), name


def test_stored_lengths_and_angles_are_those_of_the_model(stored, exact):
    state, data, _ = stored
    n_heads, tokens = exact["n_heads"], len(exact["tokens"])
    gram = np.frombuffer(data["gram"], "<f8")
    gram = gram.reshape(tokens, n_heads + 1, n_heads + 1)
    blocks = exact["w_o"].reshape(n_heads, -1, state["d_model"])  # H d D
    for t in range(tokens):
        z = exact["z"][t].reshape(n_heads, -1)  # H d
        parts = np.array([*(z[h] @ blocks[h] for h in range(n_heads)), exact["b_o"]])  # H+1 D
        lengths = np.linalg.norm(parts, axis=1)
        # two roundings to float16 a product: 0.1 % of the lengths is room enough
        room = 1e-3 * np.outer(lengths, lengths)
        assert (abs(gram[t] - parts @ parts.T) <= room).all()
        length = np.sqrt(gram[t].sum())
        assert length == pytest.approx(np.linalg.norm(exact["y"][t]), rel=1e-3)


def test_the_widget_of_the_chapter_gives_what_the_layer_gives_with_a_gate(stored, exact):
    state, _, _ = stored
    mixer = OutputMixer(exact["tokens"], exact["z"], exact["w_o"], exact["b_o"],
                        n_heads=exact["n_heads"], n_features=state["n_features"])
    encoder = mha.bert.load().requires_grad_(False)
    layer = encoder.layers[LAYER].attention
    x = encoder.layer_input(SENTENCE, layer=LAYER)
    for off in ([], [3], [0, 5, 11], list(range(12))):
        gate = torch.ones(12)
        gate[off] = 0
        y = layer(x, head_gate=gate)[0].double().numpy()  # T D
        mixer.off = off
        for mixer.token in range(len(exact["tokens"])):
            shown = y[mixer.token, : state["n_features"]]
            np.testing.assert_allclose(mixer.output(), shown, rtol=0, atol=1e-3)
            assert mixer.length() == pytest.approx(np.linalg.norm(y[mixer.token]), abs=2e-3)


def test_the_stored_state_is_the_one_its_text_tells(stored):
    state, _, text = stored
    told = f"token={state['token']!r}, feature={state['feature']!r}, off={tuple(state['off'])!r}"
    assert text == f"OutputMixer({told})"
