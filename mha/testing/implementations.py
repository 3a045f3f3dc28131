"""The same layer computed in several ways: each takes a Case and returns y, still differentiable.

Those of other libraries get the numbers of the case's layer. They know nothing of shared heads, so
each of their heads gets a copy of the key/value head that it uses.
"""

import copy
from functools import partial

import torch
from torch.func import functional_call

from mha.backends import BACKENDS
from mha.conventions import to_additive, to_torch_mha
from mha.conversion import PROJECTIONS
from mha.reference import forward, loops


class Unsupported(Exception):
    """What an implementation raises in a setting that it does not have; the text says why."""


def by_numpy(reference, case):
    """Compute y in NumPy, from weight matrices as [in, out]; its gradient is a complex step."""
    layer, tensors = case.layer, {"x": case.x, "context": case.context}
    for letter, name in zip("qkvo", PROJECTIONS, strict=True):
        projection = getattr(layer, name)
        tensors[f"w_{letter}"] = projection.weight.T
        if projection.bias is not None:
            tensors[f"b_{letter}"] = projection.bias
    mask = None if case.mask is None else case.mask.numpy()
    options = {"n_heads": layer.n_heads, "n_kv_heads": layer.n_kv_heads}

    def function(*arrays):
        named = dict(zip(tensors, arrays, strict=True))
        return reference(**named, **options, mask=mask, is_causal=case.is_causal)[0]

    return _ByComplexStep.apply(function, *tensors.values())


class _ByComplexStep(torch.autograd.Function):
    """A function of NumPy arrays, as a step that autograd can go back through."""

    @staticmethod
    def forward(ctx, function, *tensors):
        ctx.function, ctx.arrays = function, [tensor.numpy() for tensor in tensors]
        return torch.from_numpy(function(*ctx.arrays))

    @staticmethod
    def backward(ctx, upstream):
        gradients = forward.complex_step(ctx.function, ctx.arrays, upstream.numpy())
        return None, *map(torch.from_numpy, gradients)


def by_loops(case):
    """Compute y by the oracle, one number at a time; it takes real numbers only, so no gradient."""
    return by_numpy(loops.multi_head_attention, case).detach()


def by_layer(backend, case):
    """Compute y by the case's layer with this backend."""
    layer = copy.copy(case.layer)  # the same parameters, in an object with its own backend
    layer.backend = backend
    return layer(case.x, case.context, mask=case.mask, is_causal=case.is_causal)


def by_torch(case):
    """Compute y by torch's nn.MultiheadAttention, with need_weights=True, as it is by default."""
    mask = case.whole_mask()
    if _has_empty_rows(mask):
        raise Unsupported("a query without a visible key gives NaN")
    peer = case.layer.to_torch()
    weights, biases = _repeated(case.layer)
    # to_torch() copies. These are the same numbers, and depend on the layer's parameters still.
    tied = {f"{letter}_proj_weight": weight for letter, weight in zip("qkv", weights, strict=False)}
    if peer.in_proj_weight is not None:  # one matrix, where the widths of x and context are equal
        tied["in_proj_weight"] = torch.cat(weights[:3])
    tied |= {"in_proj_bias": torch.cat(biases[:3])}
    tied |= {"out_proj.weight": weights[3], "out_proj.bias": biases[3]}
    tied = {name: tied[name] for name, _ in peer.named_parameters()}
    tokens = (case.x, case.context, case.context)
    y, _ = functional_call(peer, tied, tokens, to_torch_mha(mask, case.layer.n_heads))
    return y


def by_bert(case):
    """Compute y by the attention of transformers' BERT, eager; W_O is its output.dense."""
    layer, mask, is_cross = case.layer, case.whole_mask(), case.context is not case.x
    if layer.d_context != layer.d_model:
        raise Unsupported("x and context must have one width")
    if _has_empty_rows(mask):
        raise Unsupported("a query without a visible key gives NaN")
    try:
        from transformers import BertConfig
        from transformers.models.bert import modeling_bert as bert

        attention = bert.BertCrossAttention if is_cross else bert.BertSelfAttention
    except (ImportError, AttributeError):
        raise Unsupported("transformers is not installed, or older than 5") from None
    config = BertConfig(
        hidden_size=layer.d_model, num_attention_heads=layer.n_heads, attn_implementation="eager"
    )
    peer, output = attention(config).double().eval(), bert.BertSelfOutput(config).double()
    weights, biases = _repeated(layer)
    tied = {}
    for name, weight, bias in zip(("query", "key", "value"), weights, biases, strict=False):
        tied |= {f"{name}.weight": weight, f"{name}.bias": bias}
    options = {"attention_mask": to_additive(mask, case.x.dtype)}
    if is_cross:
        options["encoder_hidden_states"] = case.context
    z, _ = functional_call(peer, tied, (case.x,), options)  # B T (H d), merged
    tied = {"weight": weights[3], "bias": biases[3]}
    return functional_call(output.dense, tied, (z,))


def _has_empty_rows(mask):
    return mask is not None and not bool(mask.any(-1).all())


def _repeated(layer):
    """Return weights and biases of q, k, v, o, with keys and values of their own for each head."""
    d, n_sharing = layer.d_head, layer.n_heads // layer.n_kv_heads
    rows = [h // n_sharing * d + i for h in range(layer.n_heads) for i in range(d)]
    weights, biases = [], []
    for name in PROJECTIONS:
        weight, bias = getattr(layer, name).weight, getattr(layer, name).bias
        bias = weight.new_zeros(len(weight)) if bias is None else bias
        shared = name in ("k_proj", "v_proj")
        weights.append(weight[rows] if shared else weight)
        biases.append(bias[rows] if shared else bias)
    return weights, biases


IMPLEMENTATIONS = {
    "NumPy loops": by_loops,
    "NumPy arrays": partial(by_numpy, forward.multi_head_attention),
    **{name: partial(by_layer, name) for name in BACKENDS},
    "nn.MultiheadAttention": by_torch,
    "transformers' BERT": by_bert,
}
