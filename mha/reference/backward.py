"""The gradients of multi-head attention in NumPy, by hand: one function a stage of `forward`.

A loss L is a number computed from y. `d_y` is its gradient ∂L/∂y, of the shape of y, and so for
every name: `d_q` has the shape of q. The letter d alone is the width of a head, of its values too.
`d_stage` takes the gradient of what the stage returns, and what else it needs of the forward pass,
and returns the gradient of each input: the chain rule, one stage at a time, in the reverse order

W_O → merge → gate → weighted sum → masked softmax → scale → scores → share → split → project.

`forward.visible_keys` has no function here: a mask is true or false, and has no slope. Nor does any
stage need the mask: a hidden key has weight 0, and its logit gets the gradient 0 from that.
Complex numbers pass through here as well, without conjugation.
"""

import math
from typing import NamedTuple

import numpy as np

from mha.reference import forward


class Gradients(NamedTuple):
    """∂L/∂input for each input of the layer, with the shape of the input."""

    x: np.ndarray  # B T D, through the queries alone
    context: np.ndarray  # B S C, through keys and values; self-attention adds it to that of x
    w_q: np.ndarray  # D (H d)
    w_k: np.ndarray  # C (K d)
    w_v: np.ndarray  # C (K d)
    w_o: np.ndarray  # (H d) D
    b_q: np.ndarray  # (H d); biases get a gradient even where the layer has none: they are 0 then
    b_k: np.ndarray  # (K d), 0 to rounding: it cancels in the softmax
    b_v: np.ndarray  # (K d)
    b_o: np.ndarray  # D
    head_gate: np.ndarray | None  # H or B H, as the gate was; None without a gate


def d_project(d_y, x, w):
    """Return d_x, B T in, d_w, in out, and d_b, out, from d_y, B T out.

    y[t, o] = Σ_i x[t, i] w[i, o] + b[o], so d_x = d_y wᵀ; w and b serve every token of every
    sequence, so d_w = Σ_tokens x[t] d_y[t]ᵀ and d_b = Σ_tokens d_y[t].

    >>> d_x, d_w, d_b = d_project(np.array([[[10.0]]]), np.array([[[1.0, 2.0]]]), np.ones((2, 1)))
    >>> d_x.tolist(), d_w.tolist(), d_b.tolist()
    ([[[10.0, 10.0]]], [[10.0], [20.0]], [10.0])
    """
    n_in, n_out = w.shape
    tokens, d_tokens = x.reshape(-1, n_in), d_y.reshape(-1, n_out)  # (B T) in, (B T) out
    return d_y @ w.T, tokens.T @ d_tokens, d_tokens.sum(0)


def d_split_heads(d_heads):
    """Return d_x, B T (H d), from d_heads, B H T d.

    Splitting only moves numbers, heads[h, t, i] = x[t, h·d + i], so their gradients move back.

    >>> d_split_heads(np.array([[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]])).tolist()
    [[[0, 1, 2, 3], [4, 5, 6, 7]]]
    """
    return forward.merge_heads(d_heads)


def d_share_heads(d_shared, n_kv_heads):
    """Return d_x, B K S d, from d_shared, B H S d.

    shared[h] = x[h // (H / K)], so d_x[g] = Σ d_shared[h] over the H / K query heads of group g.

    >>> d_share_heads(np.array([[[[1.0]], [[2.0]], [[10.0]], [[20.0]]]]), 2).ravel().tolist()
    [3.0, 30.0]
    """
    batch, n_heads, n_keys, width = d_shared.shape
    grouped = d_shared.reshape(batch, n_kv_heads, n_heads // n_kv_heads, n_keys, width)
    return grouped.sum(2)  # B K S d


def d_attention_scores(d_scores, q, k):
    """Return d_q, B H T d, and d_k, B H S d, from d_scores, B H T S.

    scores[t, s] = Σ_i q[t, i] k[s, i], so d_q = d_scores k and d_k = d_scoresᵀ q.

    >>> d_q, d_k = d_attention_scores(np.array([[10.0]]), np.array([[1.0]]), np.array([[3.0]]))
    >>> d_q.tolist(), d_k.tolist()
    ([[30.0]], [[10.0]])
    """
    return d_scores @ k, d_scores.swapaxes(-2, -1) @ q


def d_scale_scores(d_logits, width):
    """Return d_scores from d_logits, both B H T S; `width` is that of a head, d.

    logits = scores / √d, so d_scores = d_logits / √d.

    >>> d_scale_scores(np.array([6.0]), width=4).tolist()
    [3.0]
    """
    return d_logits / math.sqrt(width)


def d_masked_softmax(d_weights, weights):
    """Return d_logits, B H T S, from d_weights and the weights p, both B H T S.

    ∂p[i]/∂logit[k] = p[i] (δ_ik − p[k]), so d_logits[k] = p[k] (d_p[k] − Σ_i p[i] d_p[i]).
    A hidden key has p = 0 and gets 0; so does every key of a row that sees none. The sum is d_z · z
    of the row as well, without any weight (Dao et al. 2022, appendix B.2).

    >>> weights = np.array([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])
    >>> d_masked_softmax(np.array([[1.0, 0.0, 8.0], [1.0, 0.0, 8.0]]), weights).tolist()
    [[0.25, -0.25, 0.0], [0.0, 0.0, 0.0]]
    """
    average = (weights * d_weights).sum(-1, keepdims=True)  # B H T 1
    return weights * (d_weights - average)


def d_weighted_sum(d_z, weights, v):
    """Return d_weights, B H T S, and d_v, B H S d, from d_z, B H T d.

    z[t, i] = Σ_s weights[t, s] v[s, i], so d_weights = d_z vᵀ and d_v = weightsᵀ d_z.

    >>> weights, v = np.array([[0.25, 0.75]]), np.array([[4.0], [8.0]])
    >>> d_weights, d_v = d_weighted_sum(np.array([[2.0]]), weights, v)
    >>> d_weights.tolist(), d_v.tolist()
    ([[8.0, 16.0]], [[0.5], [1.5]])
    """
    return d_z @ v.swapaxes(-2, -1), weights.swapaxes(-2, -1) @ d_z


def d_gate_heads(d_gated, z, head_gate):
    """Return d_z, B H T d, and d_gate, H or B H as the gate is, from d_gated, B H T d.

    gated = gate[h] · z, so d_z = gate[h] · d_gated and d_gate[h] = Σ_{t,i} d_gated · z, summed over
    the sequences if they share one gate. Without a gate d_z is d_gated, and d_gate is None.

    >>> z, gate = np.array([[[[5.0]], [[7.0]]]]), np.array([1.0, 0.5])
    >>> d_z, d_gate = d_gate_heads(np.array([[[[2.0]], [[2.0]]]]), z, gate)
    >>> d_z.ravel().tolist(), d_gate.tolist()
    ([2.0, 1.0], [10.0, 14.0])
    """
    if head_gate is None:
        return d_gated, None
    d_gate = (d_gated * z).sum((-2, -1))  # B H
    if head_gate.ndim == 1:
        d_gate = d_gate.sum(0)  # H
    return head_gate[..., None, None] * d_gated, d_gate


def d_merge_heads(d_merged, n_heads):
    """Return d_z, B H T d, from d_merged, B T (H d).

    Merging only moves numbers, merged[t, h·d + i] = z[h, t, i], so their gradients move back.

    >>> d_merge_heads(np.arange(8).reshape(1, 2, 4), 2).tolist()
    [[[[0, 1], [4, 5]], [[2, 3], [6, 7]]]]
    """
    return forward.split_heads(d_merged, n_heads)


def multi_head_attention(d_y, saved):
    """Return the gradient of every input of the layer from that of its output.

    Where two paths meet the gradients add: the keys' and the values' in `context`; and, which is
    left to you, `x` and `context` in self-attention: there ∂L/∂x is the sum of the two.

    Parameters
    ----------
    d_y : array, B T D
    saved : forward.Saved, what `forward.multi_head_attention` returned beside y

    Returns
    -------
    Gradients

    >>> one = np.ones((1, 1))
    >>> y, saved = forward.multi_head_attention(one[None], one[None], one, one, one, one, n_heads=1)
    >>> gradients = multi_head_attention(np.ones((1, 1, 1)), saved)
    >>> gradients.w_v.tolist(), gradients.w_q.tolist()  # one key: its weight is 1 for any query
    ([[1.0]], [[0.0]])
    """
    n_heads, n_kv_heads = saved.q.shape[1], saved.k.shape[1]
    d_merged, d_w_o, d_b_o = d_project(d_y, saved.merged, saved.w_o)  # B T (H d)
    d_gated = d_merge_heads(d_merged, n_heads)  # B H T d
    d_z, d_gate = d_gate_heads(d_gated, saved.z, saved.head_gate)
    d_weights, d_shared_v = d_weighted_sum(d_z, saved.weights, saved.shared_v)
    d_logits = d_masked_softmax(d_weights, saved.weights)  # B H T S
    d_scores = d_scale_scores(d_logits, saved.q.shape[-1])
    d_q, d_shared_k = d_attention_scores(d_scores, saved.q, saved.shared_k)
    d_k = d_share_heads(d_shared_k, n_kv_heads)  # B K S d
    d_v = d_share_heads(d_shared_v, n_kv_heads)
    d_x, d_w_q, d_b_q = d_project(d_split_heads(d_q), saved.x, saved.w_q)
    through_k, d_w_k, d_b_k = d_project(d_split_heads(d_k), saved.context, saved.w_k)
    through_v, d_w_v, d_b_v = d_project(d_split_heads(d_v), saved.context, saved.w_v)
    d_context = through_k + through_v  # B S C
    return Gradients(d_x, d_context, d_w_q, d_w_k, d_w_v, d_w_o, d_b_q, d_b_k, d_b_v, d_b_o, d_gate)
