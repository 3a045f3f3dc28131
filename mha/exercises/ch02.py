"""Checks of chapter 2, one head."""

import torch

from mha import example
from mha.attention import masked_softmax
from mha.exercises.frame import Wrong, as_array, call, compare

X, W_Q, W_K, W_V = (m.double() for m in (example.X, example.W_Q, example.W_K, example.W_V))


def _logits(x, w_q, w_k):
    return (x @ w_q) @ (x @ w_k).mT / w_k.shape[-1] ** 0.5


def third_output(answer):
    """02.1: z of the third token of the running example, from pencil and paper."""
    v = X @ W_V
    logits = _logits(X, W_Q, W_K)
    weights = masked_softmax(logits)
    mistakes = {
        "These are the weights; the output is the values averaged with them.": weights[2],
        "The scores went into the softmax undivided: scale them by 1/√4 first.":
            masked_softmax(2 * logits)[2] @ v,
        "The scores are divided by d_k, 4; its square root is asked for.":
            masked_softmax(logits / 2)[2] @ v,
        "Queries and keys are swapped: the row of mat holds its query with each key.":
            masked_softmax(logits.mT)[2] @ v,
        "Those are the scaled scores times the values: the softmax is missing.": logits[2] @ v,
        "The softmax went down the column: it runs over the keys, along the row.":
            logits.softmax(-2)[2] @ v,
        "That averages the keys: the values are what is averaged.": weights[2] @ (X @ W_K),
        "That is the output of the first token; the third is asked for.": weights[0] @ v,
        "That is the output of the second token; the third is asked for.": weights[1] @ v,
    }
    compare(answer, weights[2] @ v, mistakes, tolerance=0.015)  # from weights of two decimals
    return "Every step of one head, by hand."


def one_head(answer):
    """02.2: a function (x, w_q, w_k, w_v) -> z."""
    for shape in (2, 5, 7, 3), (3, 4, 2, 6):  # two sizes: a number written into the code shows
        _check_one_head(answer, *shape)
    return "It works with and without a batch axis."


def _check_one_head(answer, batch, n_tokens, d_model, d_head):
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(batch, n_tokens, d_model, generator=generator, dtype=torch.float64)  # B T D
    w_q, w_k, w_v = torch.randn(3, d_model, d_head, generator=generator, dtype=torch.float64)
    logits = _logits(x, w_q, w_k)
    root = d_head**0.5
    v = x @ w_v
    mistakes = {
        "The scores aren't scaled: divide them by √d_k.": (logits * root).softmax(-1) @ v,
        "The scale uses the model width D; d_k is the width of q and k.":
            (logits * root / d_model**0.5).softmax(-1) @ v,
        "The scores are divided by d_k; its square root is asked for.":
            (logits / root).softmax(-1) @ v,
        "The scores are divided by 2, which is √4; here d_k is another number.":
            (logits * root / 2).softmax(-1) @ v,
        "The scores are divided by √T, the number of tokens; d_k is the width of q and k.":
            (logits * (d_head / n_tokens) ** 0.5).softmax(-1) @ v,
        "The softmax runs over the whole matrix: each row must sum to 1.":
            logits.flatten(-2).softmax(-1).view_as(logits) @ v,
        "The powers are divided by the sums of other rows: sum with keepdim=True.":
            (logits.exp() / logits.exp().sum(-1).unsqueeze(-2)) @ v,
        "That averages the tokens themselves: average their values, x @ w_v.":
            logits.softmax(-1) @ x,
        "The softmax runs over the queries: it belongs on the keys, the last axis.":
            logits.softmax(-2) @ v,
        "The softmax runs over the batch: it belongs on the keys, the last axis.":
            logits.softmax(0) @ v,
        "Queries and keys are swapped: rows of the scores are queries.":
            logits.mT.softmax(-1) @ v,
        "The softmax is missing: the rows of the weights must sum to 1.": logits @ v,
        "These are the weights: multiply them by the values.": logits.softmax(-1),
    }
    compare(call(answer, x, w_q, w_k, w_v), logits.softmax(-1) @ v, mistakes)
    single = call(answer, x[0], w_q, w_k, w_v)
    compare(single, (logits.softmax(-1) @ v)[0],
            {"It works on a batch, and differs on a single sequence T × D.": single})


def look_back(answer):
    """02.3: w_q and w_k with which each token looks at the one before it, the first at itself."""
    pair = answer if isinstance(answer, (list, tuple)) and len(answer) == 2 else None
    if pair is None:
        raise Wrong("A pair is asked for: (w_q, w_k).")
    w_q, w_k = (torch.as_tensor(as_array(w)) for w in pair)
    for name, w in ("w_q", w_q), ("w_k", w_k):
        if w.ndim != 2 or w.shape[0] != X.shape[1]:
            raise Wrong(f"{name} has shape {tuple(w.shape)}; it needs {X.shape[1]} rows, "
                        "one for each feature of x.")
    if w_q.shape != w_k.shape:
        raise Wrong(f"w_q has {w_q.shape[1]} columns and w_k has {w_k.shape[1]}: "
                    "a dot product needs as many in both.")
    weights = masked_softmax(_logits(X, w_q, w_k))
    wanted = weights[[0, 1, 2], [0, 0, 1]]
    if bool((wanted > 0.9).all()):
        return f"The three weights are {', '.join(f'{w:.3f}' for w in wanted)}."
    if not bool(weights.isfinite().all()):
        raise Wrong("The weights are not finite: make the numbers smaller.")
    if bool((weights[[0, 1], [1, 2]] > 0.9).all()):
        raise Wrong("Each token looks at the next one; the one before it is asked for.")
    favourites = [_favourite(row) for row in weights]
    if favourites == ["cat", "cat", "sat"]:
        raise Wrong(f"The largest weights stand where they should, the smallest of them is "
                    f"{wanted.min():.3f}: make the scores larger to get above 0.9.")
    seen = ", ".join(f"{token} looks most at {favourite}"
                     for token, favourite in zip(example.TOKENS, favourites, strict=True))
    raise Wrong(f"With these, {seen}.")


def _favourite(row):
    """The token with the largest weight, or a word for a tie."""
    first, second = row.topk(2).values
    return "no single token" if first - second < 1e-6 else example.TOKENS[row.argmax()]


CHECKS = {"02.1": third_output, "02.2": one_head, "02.3": look_back}
