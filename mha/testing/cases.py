"""The settings in which implementations are compared, each a small layer with its input."""

import math
from typing import NamedTuple

import torch

from mha.layer import MultiHeadAttention
from mha.masks import causal_mask, combine_masks, padding_mask, window_mask

B, H, D_HEAD, T, S = 2, 3, 5, 7, 11  # distinct primes: no axis passes for another


class Case(NamedTuple):
    """A layer and its input, in float64; x, context and the parameters require gradients."""

    layer: MultiHeadAttention
    x: torch.Tensor  # B T D
    context: torch.Tensor  # B S C; x itself in self-attention
    mask: torch.Tensor | None  # bool, True = may attend
    is_causal: bool

    def differentiable(self):
        """Return what gradients are taken by: the inputs, then every parameter of the layer."""
        inputs = [self.x] if self.context is self.x else [self.x, self.context]
        return [*inputs, *self.layer.parameters()]

    def whole_mask(self):
        """Return mask and causality as one mask; None where nothing is hidden."""
        n_queries, n_keys = self.x.shape[1], self.context.shape[1]
        return combine_masks(self.mask, causal_mask(n_queries, n_keys) if self.is_causal else None)


def draw(*shape, seed):
    """Return normal numbers in float64, always the same for one seed.

    >>> torch.equal(draw(2, seed=0), draw(2, seed=0))
    True
    """
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _random_mask(*shape, n_empty=0):
    mask = draw(*shape, seed=30) > 0
    mask[..., 0] = True  # every query sees a key,
    mask[..., 1 : 1 + n_empty, :] = False  # but these
    return mask


SETTINGS = {  # name: what differs from self-attention without bias and mask
    "self-attention": {},
    "cross-attention": {"n_keys": S},
    "context of another width": {"n_keys": S, "d_context": 13},
    "with biases": {"bias": True},
    "bool mask (T, S)": {"n_keys": S, "mask": _random_mask(T, S)},
    "causal": {"is_causal": True},
    "causal, T ≠ S": {"n_keys": S, "is_causal": True},
    "padding": {"mask": padding_mask([T - 2, T], n_keys=T)},
    "window": {"mask": window_mask(T, before=2, after=1)},
    "mask per head": {"n_keys": S, "mask": _random_mask(B, H, T, S)},
    "rows without keys": {"n_keys": S, "bias": True, "mask": _random_mask(B, H, T, S, n_empty=2)},
    "grouped heads": {"n_heads": 6, "n_kv_heads": 2},
    "multi-query": {"n_kv_heads": 1},
}


def build_case(setting):
    """Build the case of a setting: random weights, biases and inputs, always the same.

    Parameters
    ----------
    setting : str, a name in SETTINGS

    Returns
    -------
    Case

    Raises
    ------
    ValueError
        An unknown setting.

    Examples
    --------
    >>> case = build_case("grouped heads")
    >>> case.layer.n_heads, case.layer.n_kv_heads, case.x.shape
    (6, 2, torch.Size([2, 7, 30]))
    """
    options = {"n_heads": H} | find("setting", setting, SETTINGS)
    n_keys, mask = options.pop("n_keys", None), options.pop("mask", None)
    is_causal = options.pop("is_causal", False)
    layer = MultiHeadAttention(options["n_heads"] * D_HEAD, **options).double()
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=seed) / math.sqrt(parameter.shape[-1]))
    x = context = draw(B, T, layer.d_model, seed=20).requires_grad_()
    if n_keys is not None:
        context = draw(B, n_keys, layer.d_context, seed=21).requires_grad_()
    mask = None if mask is None else mask.clone()  # whoever gets the case may write into it
    return Case(layer, x, context, mask, is_causal)


def find(kind, name, known):
    """Return `known[name]`; raise a ValueError that lists the names there are.

    >>> find("colour", "blue", {"red": 1, "green": 2})
    Traceback (most recent call last):
    ValueError: colour 'blue' is not known; choose from 'red', 'green'
    """
    if not isinstance(name, str) or name not in known:
        names = ", ".join(map(repr, known))
        raise ValueError(f"{kind} {name!r} is not known; choose from {names}")
    return known[name]
