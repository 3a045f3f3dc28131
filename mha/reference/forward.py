"""Multi-head attention in NumPy arrays, one function a stage, in the order of the data.

x → project → split → share → scores → scale → masked softmax → weighted sum → gate → merge → W_O.
Every stage is pure and small, so that a backward pass by hand needs one function for each.
Weight matrices are [in, out], as in x W.

Complex numbers pass through every stage (the softmax finds its maximum by the real part), so that
f(x + i·h).imag / h with h = 1e-30 is f′(x) to machine precision: the complex-step derivative, in
which no two close numbers are subtracted.
"""

import math
from typing import NamedTuple

import numpy as np


class Saved(NamedTuple):
    """What a backward pass needs of the forward pass; K key/value heads serve H query heads."""

    x: np.ndarray  # B T D
    context: np.ndarray  # B S C, C its width
    w_q: np.ndarray  # D (H d)
    w_k: np.ndarray  # C (K d)
    w_v: np.ndarray  # C (K d_v)
    w_o: np.ndarray  # (H d_v) D
    q: np.ndarray  # B H T d
    k: np.ndarray  # B K S d
    v: np.ndarray  # B K S d_v
    shared_k: np.ndarray  # B H S d, a copy for each query head
    shared_v: np.ndarray  # B H S d_v
    mask: np.ndarray  # bool B H T S, causality included
    weights: np.ndarray  # B H T S, before the gate
    z: np.ndarray  # B H T d_v, before the gate
    head_gate: np.ndarray | None  # H or B H
    gated: np.ndarray  # B H T d_v
    merged: np.ndarray  # B T (H d_v)


def project(x, w, b=None):
    """Multiply every token by a matrix, B T in → B T out, and add a bias if there is one.

    >>> project(np.array([[[1.0, 2.0]]]), np.array([[3.0], [4.0]]), np.array([0.5]))
    array([[[11.5]]])
    """
    y = x @ w  # B T out
    return y if b is None else y + b


def split_heads(x, n_heads):
    """Cut the last axis into heads, B T (H d) → B H T d: head h owns columns h·d … (h+1)·d − 1.

    >>> split_heads(np.arange(8).reshape(1, 2, 4), 2).tolist()
    [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]
    """
    batch, n_tokens, width = x.shape
    cut = x.reshape(batch, n_tokens, n_heads, width // n_heads)  # B T H d
    return cut.swapaxes(1, 2)  # B H T d


def share_heads(x, n_heads):
    """Hand each query head its group's keys or values, B K S d → B H S d: head h has h // (H / K).

    >>> share_heads(np.array([[[[1]], [[2]]]]), 4).ravel().tolist()
    [1, 1, 2, 2]
    """
    return x.repeat(n_heads // x.shape[1], axis=1)  # numpy's repeat keeps copies side by side


def attention_scores(q, k):
    """Compare each query with each key, B H T d and B H S d → B H T S: q[t] · k[s].

    >>> attention_scores(np.array([[1, 0], [2, 1]]), np.array([[1, 1], [0, 3]])).tolist()
    [[1, 0], [3, 3]]
    """
    return q @ k.swapaxes(-2, -1)


def scale_scores(scores, d_head):
    """Divide the scores by √d: these are the logits, B H T S.

    >>> scale_scores(np.array([6.0]), d_head=4).tolist()
    [3.0]
    """
    return scores / math.sqrt(d_head)


def visible_keys(shape, mask=None, is_causal=False):
    """Say for each weight whether it may be more than zero: mask and causality as one bool array.

    Parameters
    ----------
    shape : tuple, B H T S
    mask : bool array, (T, S) or broadcasting to `shape`, True = may attend; or None
    is_causal : bool; query t sees key s only where s ≤ t + (S − T)

    Returns
    -------
    array, bool of that shape

    >>> visible_keys((2, 3), np.array([[False, True, True]] * 2), is_causal=True).tolist()
    [[False, True, False], [False, True, True]]
    """
    visible = np.ones(shape, dtype=bool)
    if mask is not None:
        visible &= mask
    if is_causal:
        n_queries, n_keys = shape[-2:]
        visible &= np.tri(n_queries, n_keys, n_keys - n_queries, dtype=bool)  # T S
    return visible


def masked_softmax(logits, mask=None):
    """Turn each row of logits into weights, B H T S: exp(logit) / Σ_visible exp(logit).

    A hidden key gets 0; a row in which every key is hidden is 0 throughout.

    >>> mask = np.array([[True, True, False], [False, False, False]])
    >>> masked_softmax(np.zeros((2, 3)), mask).tolist()
    [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]]
    """
    visible = visible_keys(logits.shape, mask)
    empty = ~visible.any(-1, keepdims=True)  # B H T 1
    # The largest logit cancels in the fraction, and keeps exp from overflowing.
    largest = np.where(visible, logits.real, -np.inf).max(-1, keepdims=True, initial=-np.inf)
    largest = np.where(empty, 0, largest)
    shifted = np.where(visible, logits, largest) - largest  # a hidden logit may be anything
    powers = np.where(visible, np.exp(shifted), 0)
    return powers / (powers.sum(-1, keepdims=True) + empty)  # 0 / 1 in an empty row


def weighted_sum(weights, v):
    """Average the values, B H T S and B H S d_v → B H T d_v: z[t] = Σ_s weights[t, s] v[s].

    >>> weighted_sum(np.array([[0.25, 0.75]]), np.array([[4.0], [8.0]])).tolist()
    [[7.0]]
    """
    return weights @ v


def gate_heads(z, head_gate):
    """Multiply each head's z, B H T d_v, by its number, H or B H; None changes nothing.

    >>> gate_heads(np.ones((1, 2, 1, 1)), np.array([1.0, 0.5])).ravel().tolist()
    [1.0, 0.5]
    """
    return z if head_gate is None else z * head_gate[..., None, None]


def merge_heads(z):
    """Put the heads side by side, B H T d → B T (H d), the inverse of `split_heads`.

    >>> merge_heads(np.array([[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]])).tolist()
    [[[0, 1, 2, 3], [4, 5, 6, 7]]]
    """
    batch, n_heads, n_tokens, d_head = z.shape
    side_by_side = z.swapaxes(1, 2)  # B T H d
    return side_by_side.reshape(batch, n_tokens, n_heads * d_head)  # B T (H d)


def multi_head_attention(
    x, context, w_q, w_k, w_v, w_o, *, n_heads, n_kv_heads=None, b_q=None, b_k=None, b_v=None,
    b_o=None, mask=None, is_causal=False, head_gate=None,
):
    """The whole layer, with the arguments of `loops.multi_head_attention`.

    Returns
    -------
    y : array, B T D
    saved : Saved, what a backward pass needs

    >>> one = np.ones((1, 1))
    >>> y, saved = multi_head_attention(one[None], one[None], one, one, one, 3 * one, n_heads=1)
    >>> y.tolist(), saved.weights.tolist()
    ([[[3.0]]], [[[[1.0]]]])
    """
    n_kv_heads = n_heads if n_kv_heads is None else n_kv_heads
    q = split_heads(project(x, w_q, b_q), n_heads)  # B H T d
    k = split_heads(project(context, w_k, b_k), n_kv_heads)  # B K S d
    v = split_heads(project(context, w_v, b_v), n_kv_heads)  # B K S d_v
    shared_k, shared_v = share_heads(k, n_heads), share_heads(v, n_heads)  # B H S d, B H S d_v
    scores = attention_scores(q, shared_k)  # B H T S
    logits = scale_scores(scores, q.shape[-1])
    mask = visible_keys(logits.shape, mask, is_causal)
    weights = masked_softmax(logits, mask)  # B H T S
    z = weighted_sum(weights, shared_v)  # B H T d_v
    gated = gate_heads(z, head_gate)
    merged = merge_heads(gated)  # B T (H d_v)
    y = project(merged, w_o, b_o)  # B T D
    saved = Saved(
        x, context, w_q, w_k, w_v, w_o, q, k, v, shared_k, shared_v, mask, weights, z,
        head_gate, gated, merged,
    )  # fmt: skip
    return y, saved


def complex_step(function, arrays, upstream, h=1e-30):
    """Return the gradient of Σ upstream · function(*arrays) by each array, number by number.

    f(x + i·h) = f(x) + i·h·f′(x) up to h², so f′(x) is the imaginary part over h, to rounding. The
    function must be analytic and pass complex numbers through, as every stage above does.

    >>> complex_step(lambda x: x**3, [np.array([2.0])], upstream=1.0)
    [array([12.])]
    """
    gradients = []
    for place, array in enumerate(arrays):
        moved, gradient = array.astype(complex), np.zeros(array.shape)
        for index in np.ndindex(array.shape):
            moved[index] += 1j * h
            y = function(*arrays[:place], moved, *arrays[place + 1 :])
            gradient[index] = (upstream * y.imag).sum() / h
            moved[index] = array[index]
        gradients.append(gradient)
    return gradients
