"""Multi-head attention as plain Python loops, one number at a time: the oracle.

Nothing here is clever and nothing is shared with the rest of the package, so that you can check
it by eye against Vaswani et al. 2017, §3.2, and then trust every faster version that agrees
with it. NumPy only holds the numbers. Weight matrices are [in, out], as in x W.
"""

import math

import numpy as np


def attend(q, k, v, mask=None, *, scale=None):
    """One head, one sequence: equation 1, with each query seeing only the keys the mask allows.

    Parameters
    ----------
    q, k, v : array, T d, S d and S d_v
    mask : bool array, T S, True = may attend; or None
    scale : float; None means 1/√d

    Returns
    -------
    z, weights : array, T d_v and T S; a query that may see no key gets zeros in both

    >>> attend(np.array([[0.0]]), np.array([[1.0], [2.0]]), np.array([[4.0], [8.0]]))
    (array([[6.]]), array([[0.5, 0.5]]))
    """
    assert mask is None or mask.dtype == bool, f"mask has dtype {mask.dtype}; pass bool"
    n_queries, d = q.shape
    n_keys, d_v = v.shape
    if scale is None:
        scale = 1 / math.sqrt(d)
    weights = np.zeros((n_queries, n_keys))
    z = np.zeros((n_queries, d_v))
    for t in range(n_queries):
        visible = [s for s in range(n_keys) if mask is None or mask[t, s]]
        if not visible:
            continue
        logits = {}
        for s in visible:
            score = sum(q[t, i] * k[s, i] for i in range(d))
            logits[s] = scale * score
        largest = max(logits.values())  # cancels in the fraction, and keeps exp from overflowing
        total = sum(math.exp(logits[s] - largest) for s in visible)
        for s in visible:
            weights[t, s] = math.exp(logits[s] - largest) / total
            for i in range(d_v):
                z[t, i] += weights[t, s] * v[s, i]
    return z, weights


def project(x, w, b=None):
    """Multiply every token by a matrix and add a bias: y[t, o] = Σ_i x[t, i] w[i, o] + b[o].

    Parameters
    ----------
    x : array, T in
    w : array, in out
    b : array, out; or None

    Returns
    -------
    array, T out

    >>> project(np.array([[1.0, 2.0]]), np.array([[3.0], [4.0]]), np.array([0.5]))
    array([[11.5]])
    """
    n_tokens, n_in = x.shape
    n_out = w.shape[1]
    y = np.zeros((n_tokens, n_out))
    for t in range(n_tokens):
        for o in range(n_out):
            y[t, o] = sum(x[t, i] * w[i, o] for i in range(n_in))
            if b is not None:
                y[t, o] += b[o]
    return y


def multi_head_attention(
    x, context, w_q, w_k, w_v, w_o, *, n_heads, n_kv_heads=None, b_q=None, b_k=None, b_v=None,
    b_o=None, mask=None, is_causal=False, head_gate=None,
):
    """The whole layer, sequence by sequence and head by head (Vaswani et al. 2017, §3.2.2).

    Fewer key/value heads than query heads: grouped-query attention (Ainslie et al. 2023, §2.2).

    Parameters
    ----------
    x, context : array, B T D and B S C, C the width of the context; x twice for self-attention
    w_q, w_o : array, D (H d) and (H d) D; head h owns d columns of w_q and d rows of w_o
    w_k, w_v : array, C (K d); head h reads group h // (H / K), which owns d columns
    n_heads, n_kv_heads : int, H and K; None means K = H, to each head its own keys and values
    b_q, b_k, b_v, b_o : array, (H d), (K d), (K d) and D; or None
    mask : bool array, (T, S) or broadcasting to (B, H, T, S), True = may attend; or None
    is_causal : bool; query t sees key s only where s ≤ t + (S − T)
    head_gate : array, H or B H, a factor for each head's z; or None

    Returns
    -------
    y, weights : array, B T D and B H T S

    >>> one = np.ones((1, 1))
    >>> multi_head_attention(one[None], one[None], one, one, one, 3 * one, n_heads=1)[0]
    array([[[3.]]])
    """
    assert w_q.shape[1] % n_heads == 0, f"n_heads={n_heads} does not divide {w_q.shape[1]} columns"
    assert w_v.shape == w_k.shape and w_o.shape[0] == w_q.shape[1], "matrices that do not fit"
    assert mask is None or mask.dtype == bool, f"mask has dtype {mask.dtype}; pass bool"
    n_batch, n_queries, d_model = x.shape
    n_keys = context.shape[1]
    d = w_q.shape[1] // n_heads
    n_sharing = 1 if n_kv_heads is None else n_heads // n_kv_heads  # query heads in a group
    visible = np.ones((n_batch, n_heads, n_queries, n_keys), dtype=bool)
    if mask is not None:
        assert (visible & mask).shape == visible.shape, f"mask has shape {mask.shape}; B H T S"
        visible = visible & mask
    gate = np.ones((n_batch, n_heads)) if head_gate is None else head_gate
    gate = np.broadcast_to(gate, (n_batch, n_heads))
    y = np.zeros((n_batch, n_queries, d_model))
    weights = np.zeros((n_batch, n_heads, n_queries, n_keys))
    for b in range(n_batch):
        q = project(x[b], w_q, b_q)  # T (H d)
        k = project(context[b], w_k, b_k)  # S (K d)
        v = project(context[b], w_v, b_v)  # S (K d)
        concat = np.zeros((n_queries, n_heads * d))
        for h in range(n_heads):
            group = h // n_sharing
            own = slice(h * d, (h + 1) * d)  # this head's columns
            shared = slice(group * d, (group + 1) * d)  # its group's columns
            allowed = visible[b, h].copy()  # T S
            if is_causal:
                for t in range(n_queries):
                    for s in range(n_keys):
                        if s > t + (n_keys - n_queries):
                            allowed[t, s] = False
            z, weights[b, h] = attend(q[:, own], k[:, shared], v[:, shared], allowed)
            concat[:, own] = gate[b, h] * z
        y[b] = project(concat, w_o, b_o)
    return y, weights
