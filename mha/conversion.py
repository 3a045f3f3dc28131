"""Move weights between MultiHeadAttention, nn.MultiheadAttention and the BERT of `transformers`.

Nothing here builds the layer or imports it: what is read comes back as arguments of its constructor
and tensors of its state_dict, and a layer to be written is taken by its attributes.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn

from mha.heads import merge_heads, share_heads, split_heads

PROJECTIONS = ("q_proj", "k_proj", "v_proj", "out_proj")
# The models of `transformers` that compute BERT's attention under BERT's names. Others share the
# names alone: BigBird skips most keys, ESM rotates queries and keys.
LIKE_BERT = ("bert", "camembert", "electra", "roberta", "xlm_roberta")


def read_torch(module):
    """Return arguments and tensors of the MultiHeadAttention that equals an nn.MultiheadAttention.

    Raises
    ------
    TypeError, ValueError
        Another module, or an option that MultiHeadAttention has no place for.

    Examples
    --------
    >>> arguments, tensors = read_torch(nn.MultiheadAttention(6, 2, bias=False))
    >>> arguments["n_heads"], tensors["k_proj.weight"].shape
    (2, torch.Size([6, 6]))
    """
    _check_torch(module)
    if module.in_proj_weight is None:
        weights = [module.q_proj_weight, module.k_proj_weight, module.v_proj_weight]
    else:
        weights = module.in_proj_weight.chunk(3)  # first q, then k, then v, each D D
    biases = [None] * 3 if module.in_proj_bias is None else module.in_proj_bias.chunk(3)
    arguments = {"d_model": module.embed_dim, "n_heads": module.num_heads, "d_context": module.kdim}
    weights, biases = [*weights, module.out_proj.weight], [*biases, module.out_proj.bias]
    return _named(arguments, weights, biases, module.dropout)


def read_bert(attention):
    """Return arguments and tensors of the MultiHeadAttention that equals a BertAttention.

    Raises
    ------
    TypeError, ValueError
        Another module, or one that computes another function.
    """
    inner, output = getattr(attention, "self", None), getattr(attention, "output", None)
    needed = ("query", "key", "value", "num_attention_heads", "attention_head_size")
    if not all(hasattr(inner, name) for name in needed) or not hasattr(output, "dense"):
        lack = " without W_O, which is BertSelfOutput.dense" if hasattr(attention, "query") else ""
        raise TypeError(
            f"bert_attention is a {type(attention).__name__}{lack}; pass the BertAttention, which "
            "holds .self and .output.dense, such as model.encoder.layer[0].attention"
        )
    parts = {f"self.{name}": getattr(inner, name) for name in needed[:3]}
    parts["output.dense"] = output.dense
    for name, part in parts.items():
        check_linear(name, part)
    _check_bert(inner)
    n_heads, d_head = inner.num_attention_heads, inner.attention_head_size
    d_model, d_context = parts["self.query"].in_features, parts["self.key"].in_features
    shapes = [(n_heads * d_head, width) for width in (d_model, d_context, d_context)]
    for (name, part), shape in zip(parts.items(), [*shapes, (d_model, shapes[0][0])], strict=True):
        if part.weight.shape != shape:
            raise ValueError(
                f"{name}.weight has shape {tuple(part.weight.shape)}, but {n_heads} heads of width "
                f"{d_head} need {shape}; pass a BertAttention as transformers builds it"
            )
    arguments = {"d_model": d_model, "n_heads": n_heads, "d_head": d_head, "d_context": d_context}
    dropout = getattr(getattr(inner, "dropout", None), "p", 0.0)
    weights, biases = zip(*((part.weight, part.bias) for part in parts.values()), strict=True)
    return _named(arguments, weights, biases, dropout)


def write_torch(layer):
    """Return an nn.MultiheadAttention(batch_first=True) that equals a MultiHeadAttention.

    It has D / d heads of width d. Key/value heads are repeated for the query heads they serve, and
    the heads that are missing get zeros, in W_O too: they add nothing to y.

    Raises
    ------
    TypeError, ValueError
        A projection that is no nn.Linear; heads that do not fit.
    """
    for name in PROJECTIONS:
        check_linear(name, getattr(layer, name))
    d_model, d_head, n_heads = layer.d_model, layer.d_head, layer.n_heads
    missing = d_model - n_heads * d_head  # columns
    if missing < 0 or d_model % d_head:
        raise ValueError(
            f"nn.MultiheadAttention has D/d heads of width d; H·d={n_heads * d_head}, D={d_model}, "
            f"d={d_head} does not fit: d must divide D, and H·d be at most D"
        )

    def columns_for_torch(matrix, heads):  # in (heads d) → in D
        own = split_heads(matrix[None], heads)  # 1 heads in d
        return F.pad(merge_heads(share_heads(own, n_heads))[0], (0, missing))

    weights, biases = [], []
    heads_of = {"q_proj": n_heads, "k_proj": layer.n_kv_heads, "v_proj": layer.n_kv_heads}
    for name, heads in heads_of.items():
        projection = getattr(layer, name)
        bias = _or_zeros(projection.bias, projection.weight)
        weights.append(columns_for_torch(projection.weight.T, heads).T)  # D in
        biases.append(columns_for_torch(bias[None], heads)[0])  # D
    out_proj = layer.out_proj
    tensors = {"out_proj.weight": F.pad(out_proj.weight, (0, missing))}  # D D
    if layer.d_context == d_model:
        tensors["in_proj_weight"] = torch.cat(weights)
    else:
        names = (f"{letter}_proj_weight" for letter in "qkv")
        tensors |= zip(names, weights, strict=True)
    has_bias = any(getattr(layer, name).bias is not None for name in PROJECTIONS)
    if has_bias:
        tensors["in_proj_bias"] = torch.cat(biases)
        tensors["out_proj.bias"] = _or_zeros(out_proj.bias, out_proj.weight)
    with torch.device("meta"):  # neither memory nor random numbers: every value is here
        module = nn.MultiheadAttention(
            d_model, d_model // d_head, dropout=layer.dropout, bias=has_bias,
            kdim=layer.d_context, vdim=layer.d_context, batch_first=True,
        )  # fmt: skip
    return fill(module, tensors).train(layer.training)


def fill(module, tensors):
    """Give a module, built on the meta device, copies of the tensors as its parameters."""
    copies = {
        name: tensor.detach().clone(memory_format=torch.contiguous_format)
        for name, tensor in tensors.items()
    }
    module.load_state_dict(copies, assign=True)
    return module


def check_linear(name, projection):
    """Raise unless x Wᵀ + b, with float weights, is all that a projection computes."""
    if not is_plain(projection, nn.Linear) or not projection.weight.is_floating_point():
        raise TypeError(
            f"{name} is a {type(projection).__name__}, no plain nn.Linear of floats without hooks; "
            "merge its adapter, make its pruning or weight norm permanent or dequantise it first, "
            "so that weight and bias are all there is to copy"
        )


def is_plain(module, kind):
    """Whether the module computes what `kind` does: no other forward, no hook that changes it."""
    return (
        isinstance(module, kind)
        and type(module).forward is kind.forward
        and "forward" not in vars(module)
        and not module._forward_hooks
        and not module._forward_pre_hooks
    )


def _check_torch(module):
    if not isinstance(module, nn.MultiheadAttention):
        raise TypeError(
            f"module is a {type(module).__name__}; pass an nn.MultiheadAttention, such as the "
            "self_attn of an nn.TransformerEncoderLayer (for BERT there is from_bert)"
        )
    if not is_plain(module, nn.MultiheadAttention):
        raise TypeError(
            f"module is a {type(module).__name__} with a forward of its own or hooks; if that "
            "computes the same, load its weights into an nn.MultiheadAttention and pass this"
        )
    if module.bias_k is not None or module.bias_v is not None or module.add_zero_attn:
        option = "add_zero_attn" if module.add_zero_attn else "add_bias_kv"
        raise ValueError(
            f"module has {option}=True, a key and a value that belong to no token; "
            f"MultiHeadAttention has none: pass a module with {option}=False"
        )
    if module.kdim != module.vdim:
        raise ValueError(
            f"module has kdim={module.kdim} and vdim={module.vdim}; MultiHeadAttention makes keys "
            "and values from one context: pass a module with kdim equal to vdim"
        )


def _check_bert(inner):
    kind, d_head = type(inner), inner.attention_head_size
    known = {"query", "key", "value", "dropout"}
    more = [name for name, _ in [*inner.named_children(), *inner.named_parameters(recurse=False)]]
    more = sorted(set(more) - known)
    position = getattr(inner, "position_embedding_type", None) or "absolute"
    scaling = getattr(inner, "scaling", d_head**-0.5)
    known_kinds = [one for one in kind.__mro__ if one.__module__.startswith("transformers.")]
    origin = known_kinds[0] if known_kinds else kind  # what a subclass of your own builds on
    if known_kinds and not set(LIKE_BERT) & set(origin.__module__.split(".")):
        problem = f"is a {kind.__name__}, whose function may be another"
    elif not is_plain(inner, origin):
        problem = f"is a {kind.__name__} with a forward of its own or hooks"
    elif position != "absolute":
        problem = f"has position_embedding_type={position!r}, which changes the scores"
    elif more:
        problem = f"has {', '.join(more)} beside query, key and value"
    elif not math.isclose(scaling, d_head**-0.5):
        problem = f"has scaling={scaling}, not 1/√d={d_head**-0.5:.4g}"
    elif getattr(inner, "is_causal", False):
        raise ValueError(
            "bert_attention.self has is_causal=True, as in a decoder; here that is an argument of "
            "each call: set it to False, convert, and call layer(x, is_causal=True)"
        )
    else:
        return
    raise ValueError(f"bert_attention.self {problem}; pass one that computes what BERT's does")


def _named(arguments, weights, biases, dropout):
    """Name the tensors as the layer does; a bias that is missing beside others is 0."""
    has_bias = any(bias is not None for bias in biases)
    tensors = {}
    for name, weight, bias in zip(PROJECTIONS, weights, biases, strict=True):
        tensors[f"{name}.weight"] = weight
        if has_bias:
            tensors[f"{name}.bias"] = _or_zeros(bias, weight)
    return arguments | {"bias": has_bias, "dropout": dropout}, tensors


def _or_zeros(bias, weight):
    return weight.new_zeros(len(weight)) if bias is None else bias
