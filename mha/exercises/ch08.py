"""Checks of chapter 8, gradients by hand."""

import torch

from mha import example
from mha.exercises.frame import call, compare

W_O = torch.tensor([[1, 2, 0, 0], [0, 1, 0, 1], [3, 0, 1, 0], [0, 0, 2, 1]]).double()  # d D
V = (example.X @ example.W_V).double()  # S d


def weights_of_sat(answer):
    """08.1: the gradient of sat's row of weights, for the loss Y[1, 2], from pencil and paper."""
    d_z = W_O[:, 2]  # L reads column 2
    weights = (example.X @ example.W_Q @ (example.X @ example.W_K).T / 2).double().softmax(-1)
    mistakes = {
        "That takes row 2 of W_O: the gradient of z is d_y times W_Oᵀ, so column 2.": V @ W_O[2],
        "That takes column 1 of W_O: features count from 0.": V @ W_O[:, 1],
        "That takes row 1 of W_O: feature 2 is a column, and 1 is the token.": V @ W_O[1],
        "That is the gradient of z, one step too early: multiply it by each value.": d_z,
        "That is the gradient of the values of one key, not of the weights.":
            weights[1, 1] * d_z,
        "The weights do not belong here: d_weights = d_z Vᵀ.": weights[1] * (V @ d_z),
        "That is one step too far, through the softmax: the weights are asked for.":
            weights[1] * (V @ d_z - weights[1] @ (V @ d_z)),
    }
    compare(answer, V @ d_z, mistakes, tolerance=0.02)
    return "Column 2 of W_O, then its dot product with each value."


def d_matrix(answer):
    """08.2: a function (x, d_y) -> d_w, for any number of sequences."""
    for shape in (2, 5, 7, 3), (3, 4, 6, 6):  # two sizes, the second one with a square matrix
        _check_d_matrix(answer, *shape)
    return "Every token of every sequence has its say."


def _check_d_matrix(answer, batch, n_tokens, n_in, n_out):
    draw = _normal(8)
    x, d_y = draw(batch, n_tokens, n_in), draw(batch, n_tokens, n_out)
    each = x[..., :, None] * d_y[..., None, :]  # B T in out
    right = each.sum((0, 1))
    mistakes = {
        "The sequences are not added up: one W serves them all. Sum over B as well.": each.sum(1),
        "The tokens are not added up: one W serves them all. Sum over T as well.": each.sum(0),
        "Nothing is added up: one W serves every token. Sum over B and T.": each,
        "That is the mean over the tokens: the gradient is their sum.": each.mean((0, 1)),
        "That is the mean over the sequences: the gradient is their sum.": each.sum(1).mean(0),
        "That is the mean over the tokens of a sequence: the gradient is their sum.":
            each.mean(1).sum(0),
        "That is the transposed matrix, out × in: it must have the shape of W.": right.T,
        "That counts the first sequence alone.": each[0].sum(0),
        "The tokens are added up before the product: multiply token by token.":
            x.sum((0, 1))[:, None] * d_y.sum((0, 1)),
    }
    compare(call(answer, x, d_y), right, mistakes)


def d_tokens(answer):
    """08.3: a function (x, w_q, w_k, w_v, d_z) -> d_x, one head from end to end."""
    for shape in (5, 7, 3), (3, 4, 4):  # in the second one all matrices are square
        _check_d_tokens(answer, *shape)
    return "From z back to the tokens, along three ways."


def _check_d_tokens(answer, n_tokens, d_model, d_head):
    draw = _normal(3)
    x, d_z = draw(n_tokens, d_model), draw(n_tokens, d_head)
    matrices = [draw(d_model, d_head) for _ in range(3)]
    ways, root = _ways(x, *matrices, d_z), d_head**0.5
    right = sum(ways)
    without_average = _ways(x, *matrices, d_z, average=False)
    column = _ways(x, *matrices, d_z, axis=-2)
    q_and_k = ways[0] + ways[1]
    swapped = _ways(x, *matrices, d_z, swap=True)
    mistakes = {
        "Only the way through the queries counts here: x makes keys and values, too. Add all "
        "three.": ways[0],
        "Only the way through the keys counts here: add all three.": ways[1],
        "Only the way through the values counts here: add all three.": ways[2],
        "The way through the values is missing: add all three.": q_and_k,
        "The way through the keys is missing: add all three.": ways[0] + ways[2],
        "The way through the queries is missing: add all three.": ways[1] + ways[2],
        "The three ways are averaged: add them up.": right / 3,
        "The scale is missing on the way back: divide the gradient of the logits by √d.":
            q_and_k * root + ways[2],
        "The gradient is divided by d; the scale is 1/√d.": q_and_k / root + ways[2],
        "The softmax lacks its average: subtract Σ a·g in each row.": sum(without_average),
        "The softmax lacks its average, and the scale is missing.":
            (without_average[0] + without_average[1]) * root + ways[2],
        "The average of the softmax runs down the columns: sum along the row, over the keys.":
            sum(column),
        "The gradients of queries and keys are swapped: d_q = d_scores k, d_k = d_scoresᵀ q.":
            sum(swapped),
        "The softmax is skipped on the way back: the weights' gradient is not the logits'.":
            sum(_ways(x, *matrices, d_z, skip=True)),
    }
    if d_model == d_head:
        turned = _ways(x, *matrices, d_z, turned=True)
        mistakes["A transpose is missing: d_x = d_q w_qᵀ + …; the matrices were square."] = (
            sum(turned))
    compare(call(answer, x, *matrices, d_z), right, mistakes)


def _ways(x, w_q, w_k, w_v, d_z, *, average=True, axis=-1, swap=False, skip=False, turned=False):
    """The gradient of x through queries, keys and values, right or with one mistake."""
    q, k, v = x @ w_q, x @ w_k, x @ w_v
    root = q.shape[-1] ** 0.5
    weights = (q @ k.T / root).softmax(-1)
    d_weights, d_v = d_z @ v.T, weights.T @ d_z
    mean = (weights * d_weights).sum(axis, keepdim=True) if average else 0
    d_scores = (d_weights if skip else weights * (d_weights - mean)) / root
    d_q, d_k = (d_scores.T @ q, d_scores @ k) if swap else (d_scores @ k, d_scores.T @ q)
    pairs = (d_q, w_q), (d_k, w_k), (d_v, w_v)
    return [d @ w if turned else d @ w.T for d, w in pairs]


def _normal(seed):
    generator = torch.Generator().manual_seed(seed)
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


CHECKS = {"08.1": weights_of_sat, "08.2": d_matrix, "08.3": d_tokens}
