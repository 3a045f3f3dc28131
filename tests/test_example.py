"""The running example keeps the numbers that the chapters do by hand."""

import torch

from mha.example import TOKENS, W_K, W_Q, W_V, X


def test_every_number_is_small_and_whole():
    for matrix in (X, W_Q, W_K, W_V, X @ W_Q, X @ W_K, X @ W_V):
        assert torch.equal(matrix, matrix.round()) and matrix.abs().max() <= 2


def test_the_hand_computation():
    assert len(TOKENS) == len(X) == 3
    assert ((X @ W_Q) @ (X @ W_K).T).tolist() == [[0, 4, 2], [4, 0, 2], [0, 2, 4]]
    assert (X @ W_V).tolist() == [[2, 0, 0, 2], [0, 2, 2, 0], [1, 1, 0, 0]]


def test_two_heads_look_at_different_tokens():
    q, k = (X @ W_Q).view(3, 2, 2), (X @ W_K).view(3, 2, 2)
    scores = torch.einsum("thd,shd->hts", q, k)
    assert scores.argmax(-1).tolist() == [[1, 0, 1], [2, 2, 2]]
