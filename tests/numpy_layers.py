"""Random layers and masks for the tests of the NumPy reference, forward and backward."""

import math

import numpy as np

from mha import window_mask

B, T, S, H, D_HEAD = 2, 3, 5, 7, 11
D_MODEL, D_CONTEXT = 17, 13


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def arrays(*, n_queries=T, n_keys=S, n_heads=H, n_kv_heads=H, d_head=D_HEAD, d_model=D_MODEL,
           d_context=D_CONTEXT, bias=True, gated=None):  # fmt: skip
    """Draw x, context and matrices [in, out]; biases and a gate, "H" or "B H", where asked for."""
    width, kv_width = n_heads * d_head, n_kv_heads * d_head
    shapes = {
        "x": (B, n_queries, d_model), "context": (B, n_keys, d_context),
        "w_q": (d_model, width), "w_k": (d_context, kv_width), "w_v": (d_context, kv_width),
        "w_o": (width, d_model), "b_q": (width,), "b_k": (kv_width,), "b_v": (kv_width,),
        "b_o": (d_model,),
    }  # fmt: skip
    if gated:
        shapes["head_gate"] = (n_heads,) if gated == "H" else (B, n_heads)
    if not bias:
        shapes = {name: shape for name, shape in shapes.items() if name[0] != "b"}
    named = {name: draw(*shape, seed=seed) for seed, (name, shape) in enumerate(shapes.items())}
    return {n: a / math.sqrt(len(a)) if n[0] == "w" else a for n, a in named.items()}


def masks(n_queries, n_keys, n_heads):
    """Return every kind of mask: (mask, is_causal)."""
    per_head = draw(B, n_heads, n_queries, n_keys, seed=20) > 0
    per_head[:, :, 1] = False
    per_head[1, 2] = False
    return {
        "none": (None, False),
        "T S": (draw(n_queries, n_keys, seed=21) > 0, False),
        "B 1 1 S": (np.arange(n_keys) < np.array([1, n_keys])[:, None, None, None], False),
        "1 H 1 1": (np.arange(n_heads)[None, :, None, None] % 2 > 0, False),
        "B H T S, rows without keys": (per_head, False),
        "causal": (None, True),
        "causal and window": (window_mask(n_queries, n_keys, before=1, after=2).numpy(), True),
        "causal, rows without keys": (per_head, True),
        "nothing": (np.zeros((n_queries, n_keys), dtype=bool), False),
    }
