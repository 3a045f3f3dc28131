"""The same weights in torch's layer, in transformers' BERT and here: one function, both ways."""

import copy
import importlib
import math
import re

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune
from torch.testing import assert_close

from mha import (
    MultiHeadAttention,
    causal_mask,
    combine_masks,
    padding_mask,
    to_additive,
    to_torch_mha,
)
from mha.backends import BACKENDS
from mha.conversion import check_linear

B, T, S, H, D_HEAD = 2, 3, 5, 7, 11
D_MODEL, D_CONTEXT = H * D_HEAD, 13
exactly = {"atol": 1e-12, "rtol": 1e-12}


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def filled(module, seed=0):
    """Give every parameter its own numbers: biases start at 0, which would hide a lost one."""
    with torch.no_grad():
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=seed + number) / 4)
    return module


def torchs(*, bias=True, d_context=None, batch_first=True, dropout=0.0):
    sizes = {"kdim": d_context, "vdim": d_context}
    return filled(
        nn.MultiheadAttention(
            D_MODEL, H, bias=bias, batch_first=batch_first, dropout=dropout, **sizes,
            dtype=torch.float64,
        )
    )  # fmt: skip


def ours(d_model=D_MODEL, n_heads=H, *, bias=True, **options):
    return filled(MultiHeadAttention(d_model, n_heads, bias=bias, **options).double())


def visible(kind):
    per_head = draw(B, H, T, S, seed=50) > 0
    per_head[..., 0] = True
    padding = padding_mask([2, 4], S)
    return {
        "none": None,
        "causal": causal_mask(T, S),
        "padding": padding,
        "padding and causal": combine_masks(padding, causal_mask(T, S)),
        "per head": per_head,
    }[kind]


KINDS = ["none", "causal", "padding", "padding and causal", "per head"]


def packed_gradients(module):
    """Return the gradients of an nn.MultiheadAttention by the names of this layer."""
    if module.in_proj_weight is None:
        weights = [getattr(module, f"{letter}_proj_weight").grad for letter in "qkv"]
    else:
        weights = module.in_proj_weight.grad.chunk(3)
    found = {f"{letter}_proj.weight": grad for letter, grad in zip("qkv", weights, strict=True)}
    if module.in_proj_bias is not None:
        biases = module.in_proj_bias.grad.chunk(3)
        found |= {f"{letter}_proj.bias": grad for letter, grad in zip("qkv", biases, strict=True)}
    return found | {f"out_proj.{name}": p.grad for name, p in module.out_proj.named_parameters()}


def assert_one_function(layer, module, mask=None, *, cross=True):
    """Compare y, weights and gradients of layer and module for random tokens."""
    x = draw(B, T if cross else S, layer.d_model, seed=30).requires_grad_()
    inputs = [x, draw(B, S, layer.d_context, seed=31).requires_grad_()] if cross else [x]
    upstream = draw(*x.shape, seed=32)
    y, weights = layer(*inputs, mask=mask, return_weights=True)
    peer_y, peer_weights = module(
        x, inputs[-1], inputs[-1], average_attn_weights=False,
        **to_torch_mha(mask, module.num_heads),
    )  # fmt: skip
    assert_close(y, peer_y, **exactly)
    assert_close(weights, peer_weights[:, : layer.n_heads], **exactly)
    layer.zero_grad()
    module.zero_grad()
    gradients = torch.autograd.grad((y * upstream).sum(), inputs, retain_graph=True)
    peer_gradients = torch.autograd.grad((peer_y * upstream).sum(), inputs, retain_graph=True)
    assert_close(gradients, peer_gradients, **exactly)
    (y * upstream).sum().backward()
    (peer_y * upstream).sum().backward()
    return {name: p.grad for name, p in layer.named_parameters()}, packed_gradients(module)


# from_torch


def test_from_torch_by_hand():
    # Two heads of width 1; 10 · row + column tells where in the packed matrix a number stood.
    module = nn.MultiheadAttention(2, 2)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.tensor([[i * 10 + j for j in (0, 1)] for i in range(6)]))
        module.in_proj_bias.copy_(torch.arange(6))
        module.out_proj.weight.copy_(torch.tensor([[70, 71], [80, 81]]))
        module.out_proj.bias.copy_(torch.tensor([7, 8]))
    layer = MultiHeadAttention.from_torch(module)
    assert {name: p.tolist() for name, p in layer.named_parameters()} == {
        "q_proj.weight": [[0, 1], [10, 11]], "q_proj.bias": [0, 1],
        "k_proj.weight": [[20, 21], [30, 31]], "k_proj.bias": [2, 3],
        "v_proj.weight": [[40, 41], [50, 51]], "v_proj.bias": [4, 5],
        "out_proj.weight": [[70, 71], [80, 81]], "out_proj.bias": [7, 8],
    }  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("d_context", [None, D_CONTEXT])
def test_from_torch_is_the_same_function(d_context, bias, kind, backend):
    module = torchs(bias=bias, d_context=d_context)
    layer = MultiHeadAttention.from_torch(module, backend)
    assert (layer.d_context, layer.backend) == (d_context or D_MODEL, backend)
    gradients, expected = assert_one_function(layer, module, visible(kind))
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert_close(gradient, expected[name], **exactly)


@pytest.mark.parametrize("mask", [None, causal_mask(S), padding_mask([2, 4], S)])
def test_from_torch_in_self_attention(mask):
    module = torchs()
    assert_one_function(MultiHeadAttention.from_torch(module), module, mask, cross=False)


def test_the_copy_takes_the_batch_first_whatever_the_original_takes():
    module = torchs(batch_first=False)
    layer, x = MultiHeadAttention.from_torch(module), draw(B, T, D_MODEL)
    turned = x.transpose(0, 1)
    assert_close(layer(x), module(turned, turned, turned)[0].transpose(0, 1), **exactly)


@pytest.mark.parametrize("missing", ["in_proj_bias", "out_proj.bias"])
def test_from_torch_fills_in_biases_that_are_missing_beside_others(missing):
    module = torchs()
    *path, name = missing.split(".")
    owner = module.get_submodule(".".join(path))
    setattr(owner, name, None)
    layer = MultiHeadAttention.from_torch(module)
    zero = ["out_proj"] if path else ["q_proj", "k_proj", "v_proj"]
    for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
        assert (getattr(layer, projection).bias == 0).all() == (projection in zero)
    assert_one_function(layer, module)


class Named(nn.MultiheadAttention):
    """A subclass that keeps the function."""


def test_subclasses_that_keep_forward_are_taken():
    module = Named(D_MODEL, H, batch_first=True, dtype=torch.float64)
    assert_one_function(MultiHeadAttention.from_torch(filled(module)), module)


def test_weights_that_are_computed_are_read_as_they_are_computed():
    class Doubled(nn.Module):
        def forward(self, weight):
            return 2 * weight

    module = torchs()
    nn.utils.parametrize.register_parametrization(module, "in_proj_weight", Doubled())
    layer = MultiHeadAttention.from_torch(module)
    x = draw(B, T, D_MODEL)
    assert_close(layer(x), module(x, x, x)[0], **exactly)


class Loud(nn.MultiheadAttention):
    def forward(self, *args, **kwargs):
        y, weights = super().forward(*args, **kwargs)
        return 2 * y, weights


QUANTISABLE = torch.ao.nn.quantizable.MultiheadAttention
NOT_TORCHS = [
    (lambda: nn.Linear(6, 6), TypeError, "module is a Linear; pass an nn.MultiheadAttention, such "
     "as the self_attn of an nn.TransformerEncoderLayer (for BERT there is from_bert)"),
    (lambda: nn.MultiheadAttention, TypeError, "module is a type"),
    (lambda: MultiHeadAttention(6, 2), TypeError, "module is a MultiHeadAttention; pass an nn."),
    (lambda: nn.TransformerEncoderLayer(6, 2), TypeError, "module is a TransformerEncoderLayer"),
    (lambda: Loud(6, 2), TypeError, "module is a Loud with a forward of its own or hooks; if that "
     "computes the same, load its weights into an nn.MultiheadAttention"),
    (lambda: QUANTISABLE(6, 2), TypeError, "module is a MultiheadAttention with a forward of its"),
    (lambda: nn.MultiheadAttention(6, 2, add_bias_kv=True), ValueError, "module has "
     "add_bias_kv=True, a key and a value that belong to no token; MultiHeadAttention has none: "
     "pass a module with add_bias_kv=False"),
    (lambda: nn.MultiheadAttention(6, 2, add_zero_attn=True), ValueError, "module has "
     "add_zero_attn=True, a key and a value that belong to no token"),
    (lambda: nn.MultiheadAttention(6, 2, kdim=5, vdim=7), ValueError, "module has kdim=5 and "
     "vdim=7; MultiHeadAttention makes keys and values from one context: pass a module with kdim "
     "equal to vdim"),
    (lambda: nn.MultiheadAttention(6, 2, vdim=7), ValueError, "kdim=6 and vdim=7"),
    (lambda: nn.MultiheadAttention(6, 2, dropout=1.0), ValueError, "dropout=1.0 is outside [0, 1)"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "error", "message"), NOT_TORCHS)
def test_from_torch_refuses(build, error, message):
    with pytest.raises(error, match=re.escape(message)):
        MultiHeadAttention.from_torch(build())


# to_torch


SIZES = {
    "as many heads": {},
    "grouped": {"d_model": 66, "n_heads": 6, "n_kv_heads": 2},
    "grouped by two": {"d_model": 66, "n_heads": 6, "n_kv_heads": 3},
    "one key head": {"d_model": 66, "n_heads": 6, "n_kv_heads": 1},
    "another context": {"d_context": D_CONTEXT},
    "heads missing": {"n_heads": 3, "d_head": D_HEAD},
    "all but one missing": {"n_heads": 1, "d_head": D_HEAD},
    "everything": {"n_heads": 6, "n_kv_heads": 2, "d_head": D_HEAD, "d_context": D_CONTEXT},
}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("name", SIZES)
def test_to_torch_is_the_same_function(name, bias):
    layer = ours(**SIZES[name], bias=bias)
    module = layer.to_torch()
    assert type(module) is nn.MultiheadAttention
    assert module.batch_first
    heads, d = layer.n_heads, layer.d_head
    assert (module.num_heads, module.head_dim) == (layer.d_model // d, d)
    padding = padding_mask([2, 4], S)
    for mask in (None, causal_mask(T, S), combine_masks(causal_mask(T, S), padding)):
        gradients, found = assert_one_function(layer, module, mask)
    # A weight that was repeated has the gradients of its copies in sum.
    for parameter, gradient in gradients.items():
        theirs = found[parameter]
        if parameter.startswith("out"):
            theirs = theirs if parameter == "out_proj.bias" else theirs[:, : heads * d]
        else:
            count = heads if parameter.startswith("q") else layer.n_kv_heads
            rows = theirs[: heads * d].unflatten(0, (count, heads // count, d))
            theirs = rows.sum(1).flatten(0, 1)
        assert_close(gradient, theirs, **exactly)


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("bias", [False, True])
def test_there_and_back(name, bias):
    layer = ours(**SIZES[name], bias=bias, backend="loop")
    back = MultiHeadAttention.from_torch(layer.to_torch(), backend="loop")
    x, context = draw(B, T, layer.d_model), draw(B, S, layer.d_context, seed=1)
    y, weights = layer(x, context, is_causal=True, return_weights=True)
    back_y, back_weights = back(x, context, is_causal=True, return_weights=True)
    assert_close(back_y, y, **exactly)
    assert_close(back_weights[:, : layer.n_heads], weights, **exactly)
    if name in ("as many heads", "another context"):
        assert repr(back) == repr(layer)
        assert_close(dict(back.state_dict()), dict(layer.state_dict()), atol=0, rtol=0)


def test_grouped_rows_by_hand():
    # Two key heads of width 1 for four query heads: rows 0, 0, 1, 1.
    layer = MultiHeadAttention(4, 4, n_kv_heads=2, bias=True)
    with torch.no_grad():
        for projection in (layer.k_proj, layer.v_proj):
            projection.weight.copy_(torch.tensor([[1.0, 2, 3, 4], [5, 6, 7, 8]]))
            projection.bias.copy_(torch.tensor([10.0, 20.0]))
    module = layer.to_torch()
    rows = [[1, 2, 3, 4], [1, 2, 3, 4], [5, 6, 7, 8], [5, 6, 7, 8]]
    assert module.in_proj_weight[4:8].tolist() == module.in_proj_weight[8:].tolist() == rows
    assert module.in_proj_bias[4:].tolist() == [10, 10, 20, 20] * 2


@pytest.mark.parametrize("n_kv_heads", [1, 2, 3])
def test_grouped_heads_are_the_layer_with_rows_repeated(n_kv_heads):
    grouped = ours(66, 6, n_kv_heads=n_kv_heads)
    full = ours(66, 6)
    arrays = {name: p.detach().numpy() for name, p in grouped.named_parameters()}
    with torch.no_grad():
        for name, parameter in full.named_parameters():
            array = arrays[name]
            if name[0] in "kv":
                blocks = [array[g * D_HEAD : (g + 1) * D_HEAD] for g in range(n_kv_heads)]
                served = [block for block in blocks for _ in range(6 // n_kv_heads)]
                array = np.concatenate(served)
            parameter.copy_(torch.from_numpy(array))
    x, context = draw(B, T, 66), draw(B, S, 66, seed=1)
    mask, gate = visible("per head")[:, :6], draw(B, 6, seed=2)
    for backend in BACKENDS:
        grouped.backend = full.backend = backend
        arguments = {"mask": mask, "head_gate": gate, "return_weights": True}
        assert_close(grouped(x, context, **arguments), full(x, context, **arguments), **exactly)
        assert_close(grouped(x, is_causal=True), full(x, is_causal=True), **exactly)


def test_missing_heads_are_zero_in_every_matrix():
    layer = ours(6, 2, d_head=2)
    module = layer.to_torch()
    for weight, bias in zip(module.in_proj_weight.chunk(3), module.in_proj_bias.chunk(3),
                            strict=True):  # fmt: skip
        assert (weight[:4] != 0).all() and (weight[4:] == 0).all()
        assert (bias[:4] != 0).all() and (bias[4:] == 0).all()
    assert torch.equal(module.out_proj.weight[:, :4], layer.out_proj.weight)
    assert (module.out_proj.weight[:, 4:] == 0).all()


@pytest.mark.parametrize("kept", ["q_proj", "k_proj", "v_proj", "out_proj"])
def test_to_torch_fills_in_biases_that_are_missing_beside_others(kept):
    layer = ours(66, 6, n_kv_heads=2)
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        if name != kept:
            getattr(layer, name).bias = None
    module = layer.to_torch()
    found = [*module.in_proj_bias.chunk(3), module.out_proj.bias]
    names = ["q_proj", "k_proj", "v_proj", "out_proj"]
    assert [bool((bias != 0).any()) for bias in found] == [name == kept for name in names]
    x, context = draw(B, T, 66), draw(B, S, 66, seed=1)
    assert_close(layer(x, context), module(x, context, context)[0], **exactly)


@pytest.mark.parametrize(
    ("n_heads", "d_head", "d_model"),
    [(3, 4, 10), (3, 3, 6), (1, 4, 6), (2, 5, 12)],
)
def test_to_torch_refuses_heads_that_do_not_fit(n_heads, d_head, d_model):
    layer = MultiHeadAttention(d_model, n_heads, d_head=d_head)
    message = f"H·d={n_heads * d_head}, D={d_model}, d={d_head} does not fit: d must divide D"
    with pytest.raises(ValueError, match=re.escape(message)):
        layer.to_torch()


class Adapted(nn.Linear):
    """Add something to what the weight says, as low-rank adapters do."""

    def forward(self, x):
        return super().forward(x) + 1


@pytest.mark.parametrize("name", ["q_proj", "k_proj", "v_proj", "out_proj"])
@pytest.mark.parametrize("kind", [nn.Identity, nn.Sequential, Adapted])
def test_to_torch_refuses_projections_that_are_no_linear(name, kind):
    layer = MultiHeadAttention(6, 2)
    setattr(layer, name, Adapted(6, 6) if kind is Adapted else kind(nn.Linear(6, 6)))
    message = f"{name} is a {kind.__name__}, no plain nn.Linear of floats without hooks; "
    with pytest.raises(TypeError, match=f"^{re.escape(message)}"):
        layer.to_torch()


def test_a_linear_of_whole_numbers_is_quantised():
    linear = nn.Linear(2, 3)
    assert check_linear("q_proj", linear) is None
    linear.weight = nn.Parameter(torch.ones(3, 2, dtype=torch.int8), requires_grad=False)
    with pytest.raises(TypeError, match=r"q_proj is a Linear, no plain nn\.Linear of floats"):
        check_linear("q_proj", linear)


# from_bert


def bert(name="Bert", module="bert", *, arguments=None, attn_implementation="eager", **options):
    """Build the attention of one layer of a small BERT, or of a model like it."""
    needed = "pip install transformers, the oracle of from_bert"
    pytest.importorskip("transformers", reason=needed)
    found = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    config = getattr(found, f"{name}Config")(
        hidden_size=66, num_attention_heads=6, attn_implementation=attn_implementation, **options
    )
    return filled(getattr(found, f"{name}Attention")(config, **arguments or {}).double().eval())


def by_bert(attention, x, context=None, mask=None):
    bias = to_additive(mask, torch.float64)
    more = {} if context is None else {"encoder_hidden_states": context}
    z, weights = attention.self(x, attention_mask=bias, **more)
    return attention.output.dense(z), weights


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ["none", "padding", "causal", "both", "per head"])
def test_from_bert_is_the_same_function(backend, kind):
    attention = bert()
    layer = MultiHeadAttention.from_bert(attention, backend)
    assert layer.backend == backend
    padding, per_head = padding_mask([2, 4], S), draw(B, 6, S, S, seed=3) > 0
    per_head[..., 0] = True
    mask = {
        "none": None, "padding": padding, "causal": causal_mask(S)[None, None],
        "both": combine_masks(padding, causal_mask(S)), "per head": per_head,
    }[kind]  # fmt: skip
    x = draw(B, S, 66).requires_grad_()
    upstream = draw(B, S, 66, seed=4)
    y, weights = layer(x, mask=mask, return_weights=True)
    expected_y, expected_weights = by_bert(attention, x, mask=mask)
    assert_close(y, expected_y, **exactly)
    assert_close(weights, expected_weights, **exactly)
    inner = attention.self
    parts = (inner.query, inner.key, inner.value, attention.output.dense)
    theirs = [x, *(getattr(part, name) for name in ("weight", "bias") for part in parts)]
    projections = (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj)
    own = [x, *(getattr(part, name) for name in ("weight", "bias") for part in projections)]
    gradients = torch.autograd.grad((y * upstream).sum(), own)
    expected = torch.autograd.grad((expected_y * upstream).sum(), theirs)
    assert_close(gradients, expected, **exactly)


@pytest.mark.parametrize(
    ("name", "module"),
    [("Bert", "bert"), ("Roberta", "roberta"), ("Electra", "electra"),
     ("Camembert", "camembert"), ("XLMRoberta", "xlm_roberta")],
)  # fmt: skip
def test_models_that_compute_what_bert_does_are_taken(name, module):
    x, context = draw(B, T, 66), draw(B, S, 66, seed=1)
    attention = bert(name, module, attn_implementation="sdpa")
    layer = MultiHeadAttention.from_bert(attention)
    assert_close(layer(x), by_bert(attention, x)[0], **exactly)
    attention = bert(name, module, arguments={"is_cross_attention": True})
    layer = MultiHeadAttention.from_bert(attention)
    mask = padding_mask([2, 4], S)
    assert_close(layer(x, context, mask=mask), by_bert(attention, x, context, mask)[0], **exactly)


def pruned(attention, heads):
    """Keep some heads only, as transformers 4 did: fewer heads of the same width."""
    inner, dense = attention.self, attention.output.dense
    rows = torch.arange(66).view(6, 11)[heads].flatten()
    for part in (inner.query, inner.key, inner.value):
        part.weight = nn.Parameter(part.weight[rows])
        part.bias = nn.Parameter(part.bias[rows])
    dense.weight = nn.Parameter(dense.weight[:, rows])
    inner.num_attention_heads = len(heads)
    return attention


def test_a_bert_with_heads_pruned_keeps_their_width():
    attention = pruned(bert(), [0, 3, 4, 5])
    layer = MultiHeadAttention.from_bert(attention)
    assert (layer.n_heads, layer.d_head, layer.d_model) == (4, 11, 66)
    x = draw(B, T, 66)
    assert_close(layer(x), by_bert(attention, x)[0], **exactly)


def test_a_bert_without_some_biases():
    attention = bert()
    attention.self.key.bias = attention.output.dense.bias = None
    layer, x = MultiHeadAttention.from_bert(attention), draw(B, T, 66)
    assert (layer.k_proj.bias == 0).all() and (layer.out_proj.bias == 0).all()
    assert_close(layer(x), by_bert(attention, x)[0], **exactly)
    attention.self.query.bias = attention.self.value.bias = None
    assert MultiHeadAttention.from_bert(attention).q_proj.bias is None


def test_from_bert_copies_dropout_and_mode():
    attention = bert(attention_probs_dropout_prob=0.25)
    assert MultiHeadAttention.from_bert(attention).dropout == 0.25
    assert not MultiHeadAttention.from_bert(attention).training
    attention.self.train()  # the mode that decides about its dropout
    assert MultiHeadAttention.from_bert(attention).training


def test_a_class_of_your_own_with_berts_parts_is_taken():
    """As in a re-implementation of BERT: nothing of transformers in it."""
    own = nn.Module()
    own.self, own.output = nn.Module(), nn.Module()
    own.self.num_attention_heads, own.self.attention_head_size = 2, 3
    for part, name in ((own.self, "query"), (own.self, "key"), (own.self, "value"),
                       (own.output, "dense")):
        setattr(part, name, nn.Linear(6, 6))
    layer = MultiHeadAttention.from_bert(own)
    assert torch.equal(layer.k_proj.weight, own.self.key.weight)
    assert torch.equal(layer.out_proj.bias, own.output.dense.bias) and layer.dropout == 0.0


def changed(**attributes):
    attention = bert()
    for name, value in attributes.items():
        setattr(attention.self, name, value)
    return attention


def replaced(path, part):
    attention = bert()
    attention.set_submodule(path, part)
    return attention


def test_no_word_on_positions_means_absolute_ones():
    attention = changed(position_embedding_type=None)
    x = torch.randn(2, 3, 66, dtype=torch.float64)
    ours = MultiHeadAttention.from_bert(attention)
    torch.testing.assert_close(ours(x), attention.output.dense(attention.self(x)[0]))


def relative():
    """Build what transformers 4 had for relative positions."""
    attention = changed(position_embedding_type="relative_key")
    attention.self.distance_embedding = nn.Embedding(11, 11)
    return attention


WHOLE = "pass the BertAttention, which holds .self and .output.dense"
NOT_BERTS = [
    (lambda: bert().self, TypeError, "bert_attention is a BertSelfAttention without W_O, which is "
     f"BertSelfOutput.dense; {WHOLE}"),
    (lambda: bert().output, TypeError, f"bert_attention is a BertSelfOutput; {WHOLE}"),
    (lambda: nn.MultiheadAttention(6, 2), TypeError, "bert_attention is a MultiheadAttention; "),
    (lambda: None, TypeError, "bert_attention is a NoneType; pass the BertAttention"),
    (lambda: bert("BigBird", "big_bird"), ValueError, "bert_attention.self is a "
     "BigBirdBlockSparseAttention, whose function may be another; pass one that computes what"),
    (relative, ValueError, "bert_attention.self has position_embedding_type='relative_key', which "
     "changes the scores"),
    (lambda: changed(norm=nn.LayerNorm(11)), ValueError, "bert_attention.self has norm beside "
     "query, key and value"),
    (lambda: changed(temperature=nn.Parameter(torch.ones(6))), ValueError, "has temperature "),
    (lambda: changed(scaling=1.0), ValueError, "has scaling=1.0, not 1/√d=0.3015"),
    (lambda: changed(is_causal=True), ValueError, "bert_attention.self has is_causal=True, as in a "
     "decoder; here that is an argument of each call: set it to False, convert, and call "
     "layer(x, is_causal=True)"),
    (lambda: replaced("self.value", Adapted(66, 66)), TypeError, "self.value is a Adapted, no "),
    (lambda: replaced("output.dense", nn.Identity()), TypeError, "output.dense is a Identity, no"),
    (lambda: replaced("self.key", nn.Linear(66, 55)), ValueError, "self.key.weight has shape "
     "(55, 66), but 6 heads of width 11 need (66, 66); pass a BertAttention as transformers"),
    (lambda: replaced("self.value", nn.Linear(44, 66)), ValueError, "self.value.weight has shape "
     "(66, 44)"),
    (lambda: replaced("output.dense", nn.Linear(66, 55)), ValueError, "output.dense.weight has "
     "shape (55, 66)"),
]  # fmt: skip


@pytest.mark.parametrize(("build", "error", "message"), NOT_BERTS)
def test_from_bert_refuses(build, error, message):
    with pytest.raises(error, match=re.escape(message)):
        MultiHeadAttention.from_bert(build())


def test_a_decoder_is_told_in_each_call():
    attention = bert(arguments={"is_causal": True}, attn_implementation="sdpa")
    x = draw(B, S, 66)
    causal = by_bert(attention, x)[0]  # without a mask sdpa goes by is_causal
    attention.self.is_causal = False
    layer = MultiHeadAttention.from_bert(attention)
    assert_close(layer(x, is_causal=True), causal, **exactly)
    assert (layer(x) - causal).abs().max() > 1e-3


# every way


WAYS = {
    "from_torch": (lambda: torchs(dropout=0.25), MultiHeadAttention.from_torch),
    "from_torch, separate": (lambda: torchs(d_context=D_CONTEXT), MultiHeadAttention.from_torch),
    "from_bert": (bert, MultiHeadAttention.from_bert),
    "to_torch": (lambda: ours(dropout=0.25), MultiHeadAttention.to_torch),
    "to_torch, separate": (lambda: ours(d_context=D_CONTEXT), MultiHeadAttention.to_torch),
    "to_torch, grouped": (
        lambda: ours(66, 6, n_kv_heads=2, d_context=D_CONTEXT),
        MultiHeadAttention.to_torch,
    ),
}
every_way = pytest.mark.parametrize(("build", "convert"), WAYS.values(), ids=WAYS)


@every_way
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_dtype_dropout_and_mode_are_kept(build, convert, dtype, training):
    source = build().to(dtype).train(training)
    made = convert(source)
    assert {p.dtype for p in made.parameters()} == {dtype}
    assert {module.training for module in made.modules()} == {training}
    assert all(p.requires_grad and p.is_leaf and p.is_contiguous() for p in made.parameters())
    inner = getattr(source, "self", source)
    assert made.dropout == (inner.dropout.p if inner is not source else source.dropout)


@every_way
def test_the_copy_shares_nothing_with_the_original(build, convert):
    source = build()
    for parameter in source.parameters():
        parameter.requires_grad_(False)
    before = copy.deepcopy(source.state_dict())
    made = convert(source)
    with torch.no_grad():
        for parameter in made.parameters():
            assert parameter.requires_grad
            parameter.fill_(math.nan)
    assert all(torch.equal(before[name], value) for name, value in source.state_dict().items())
    assert [p.requires_grad for p in source.parameters()] == [False] * len(before)


@every_way
def test_no_random_number_is_drawn(build, convert):
    source = build()
    before = torch.get_rng_state()
    convert(source)
    assert torch.equal(torch.get_rng_state(), before)


@every_way
def test_the_device_is_kept(build, convert):
    source = build()
    with torch.device("meta"):  # neither the default device nor that of the skeleton
        assert {p.device.type for p in convert(source).parameters()} == {"cpu"}
    assert {p.device.type for p in convert(source.to("meta")).parameters()} == {"meta"}


@every_way
def test_what_was_made_can_be_trained(build, convert):
    made = convert(build()).train()
    if isinstance(made, nn.MultiheadAttention):
        x, context = draw(B, T, made.embed_dim), draw(B, S, made.kdim, seed=1)
        y = made(x, context, context)[0]
    else:
        y = made(draw(B, T, made.d_model), draw(B, S, made.d_context, seed=1))
    y.square().sum().backward()
    assert all(p.grad.abs().max() > 0 for n, p in made.named_parameters() if n != "k_proj.bias")


@pytest.mark.parametrize("convert", [MultiHeadAttention.from_torch, MultiHeadAttention.from_bert])
def test_an_unknown_backend_is_refused(convert):
    source = torchs() if convert == MultiHeadAttention.from_torch else bert()
    with pytest.raises(ValueError, match="backend='quick' is not known"):
        convert(source, backend="quick")


def test_a_subclass_converts_to_itself():
    class Own(MultiHeadAttention):
        pass

    assert type(Own.from_torch(torchs())) is Own
    assert type(Own.from_bert(bert())) is Own


# what computes more than its weights say


def doubled(module):
    """A hook: the module's output twice."""
    module.register_forward_hook(lambda module, inputs, output: output * 2)


def asked_first(module):
    module.register_forward_pre_hook(lambda module, inputs: None)


def patched(module):
    own = module.forward
    module.forward = lambda *inputs, **options: own(*inputs, **options)


@pytest.mark.parametrize("change", [doubled, asked_first, patched])
def test_hooks_and_patches_are_refused_in_every_direction(change):
    layer = MultiHeadAttention(6, 2)
    change(layer.v_proj)
    with pytest.raises(TypeError, match=r"^v_proj is a Linear, no plain nn\.Linear of floats"):
        layer.to_torch()
    layer = MultiHeadAttention(6, 2)
    change(layer)
    with pytest.raises(TypeError, match=r"^layer is a MultiHeadAttention with a forward of its"):
        layer.to_torch()
    module = nn.MultiheadAttention(6, 2)
    change(module)
    with pytest.raises(TypeError, match=r"^module is a MultiheadAttention with a forward of its"):
        MultiHeadAttention.from_torch(module)
    attention = bert()
    change(attention.self.value)
    with pytest.raises(TypeError, match=r"^self\.value is a Linear, no plain nn\.Linear"):
        MultiHeadAttention.from_bert(attention)
    attention = bert()
    change(attention.self)
    with pytest.raises(ValueError, match="BertSelfAttention with a forward of its own or hooks"):
        MultiHeadAttention.from_bert(attention)


def test_a_subclass_with_a_forward_of_its_own_is_no_layer_to_copy():
    class Louder(MultiHeadAttention):
        def forward(self, *inputs, **options):
            return 2 * super().forward(*inputs, **options)

    with pytest.raises(TypeError, match=r"^layer is a Louder with a forward of its own or hooks"):
        Louder(6, 2).to_torch()
    attention = bert()
    base = type(attention.self)

    class LouderBert(base):
        def forward(self, *inputs, **options):
            z, weights = super().forward(*inputs, **options)
            return 2 * z, weights

    attention.self.__class__ = LouderBert
    with pytest.raises(ValueError, match="is a LouderBert with a forward of its own or hooks"):
        MultiHeadAttention.from_bert(attention)


def test_pruned_and_weight_normed_projections_are_refused_until_made_permanent():
    layer = MultiHeadAttention(6, 2)
    prune.l1_unstructured(layer.k_proj, "weight", amount=0.5)
    with pytest.raises(TypeError, match=r"^k_proj is a Linear, .* make its pruning or weight norm"):
        layer.to_torch()
    prune.remove(layer.k_proj, "weight")
    x = torch.ones(1, 3, 6)
    assert_close(layer.to_torch()(x, x, x)[0], layer(x))
