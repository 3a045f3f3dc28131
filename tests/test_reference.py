"""The oracle itself: values worked out on paper, and nothing borrowed from the package."""

import math

import numpy as np
import pytest

from mha.reference import loops

exactly = {"atol": 1e-15, "rtol": 0}


def test_attend_by_hand():
    # Scores 0 and 2 log 3, scale 1/√4: logits 0 and log 3, weights 1/4 and 3/4.
    q = np.array([[2.0, 0.0, 0.0, 0.0]])
    k = np.array([[0.0, 1.0, 0.0, 0.0], [math.log(3), 0.0, 5.0, 0.0]])
    v = np.array([[4.0, 0.0], [8.0, -4.0]])
    z, weights = loops.attend(q, k, v)
    np.testing.assert_allclose(weights, [[0.25, 0.75]], **exactly)
    np.testing.assert_allclose(z, [[7.0, -3.0]], **exactly)
    z, weights = loops.attend(q, k, v, scale=1.0)
    np.testing.assert_allclose(weights, [[0.1, 0.9]], **exactly)
    np.testing.assert_allclose(z, [[7.6, -3.6]], atol=1e-14, rtol=0)


def test_attend_with_a_mask_by_hand():
    q, k = np.zeros((3, 2)), np.ones((2, 2))
    v = np.array([[2.0], [6.0]])
    z, weights = loops.attend(q, k, v, np.array([[True, True], [False, True], [False, False]]))
    assert weights.tolist() == [[0.5, 0.5], [0.0, 1.0], [0.0, 0.0]]
    assert z.tolist() == [[4.0], [6.0], [0.0]]


def test_attend_does_not_overflow():
    _, weights = loops.attend(np.array([[1e4]]), np.array([[1.0], [1.0], [-1.0]]), np.ones((3, 1)))
    assert weights.tolist() == [[0.5, 0.5, 0.0]]


def test_project_by_hand():
    x = np.array([[1.0, 2.0], [3.0, -1.0]])
    w = np.array([[1.0, 0.0, 2.0], [0.0, 10.0, 5.0]])  # [in, out]
    assert loops.project(x, w).tolist() == [[1.0, 20.0, 12.0], [3.0, -10.0, 1.0]]
    b = np.array([0.5, 0.0, -1.0])
    assert loops.project(x, w, b).tolist() == [[1.5, 20.0, 11.0], [3.5, -10.0, 0.0]]


def two_heads():
    """Build a layer of width 2 with two heads of width 1 whose numbers stay whole.

    Queries are 0, so each head averages the values that it may see.
    """
    x = np.array([[[2.0, 10.0], [4.0, 50.0]]])
    zero, identity = np.zeros((2, 2)), np.eye(2)
    w_o = np.array([[1.0, 1.0], [0.0, 100.0]])
    return {"x": x, "context": x, "w_q": zero, "w_k": identity, "w_v": identity, "w_o": w_o}


def test_layer_by_hand():
    # Head 0 averages 2 and 4, head 1 averages 10 and 50; W_O sends (3, 30) to (3, 3 + 3000).
    y, weights = loops.multi_head_attention(**two_heads(), n_heads=2)
    assert y.tolist() == [[[3.0, 3003.0], [3.0, 3003.0]]]
    assert weights.tolist() == [[[[0.5, 0.5], [0.5, 0.5]]] * 2]


def test_layer_with_causality_by_hand():
    y, weights = loops.multi_head_attention(**two_heads(), n_heads=2, is_causal=True)
    assert y.tolist() == [[[2.0, 1002.0], [3.0, 3003.0]]]
    assert weights[0, 0].tolist() == [[1.0, 0.0], [0.5, 0.5]]


@pytest.mark.parametrize(
    ("n_queries", "expected"),
    [
        (1, [[2.0, 1002.0]]),  # one query, one key
        (2, [[0.0, 0.0], [2.0, 1002.0]]),  # of two queries the last sees the one key
    ],
)
def test_causality_aligns_the_last_query_with_the_last_key(n_queries, expected):
    layer = two_heads()
    layer["x"] = layer["x"][:, :n_queries]
    layer["context"] = layer["context"][:, :1]
    y, _ = loops.multi_head_attention(**layer, n_heads=2, is_causal=True)
    assert y.tolist() == [expected]


def test_layer_with_a_mask_for_each_head_by_hand():
    mask = np.array([[[[True, False], [True, False]], [[False, True], [False, False]]]])
    y, weights = loops.multi_head_attention(**two_heads(), n_heads=2, mask=mask)
    assert y.tolist() == [[[2.0, 5002.0], [2.0, 2.0]]]
    assert weights[0, 1].tolist() == [[0.0, 1.0], [0.0, 0.0]]


def test_layer_with_gates_by_hand():
    layer = two_heads()
    y, _ = loops.multi_head_attention(**layer, n_heads=2, head_gate=np.array([1.0, 0.0]))
    assert y[0, 0].tolist() == [3.0, 3.0]
    layer["x"] = layer["context"] = np.concatenate([layer["x"]] * 2)
    gate = np.array([[0.0, 1.0], [2.0, 0.0]])
    y, _ = loops.multi_head_attention(**layer, n_heads=2, head_gate=gate)
    assert y[:, 0].tolist() == [[0.0, 3000.0], [6.0, 6.0]]


def test_layer_with_biases_by_hand():
    # b_V joins each value before the gate; b_O comes last, even for a query without keys.
    layer = two_heads()
    biases = {"b_v": np.array([1.0, 0.0]), "b_o": np.array([0.0, 0.5])}
    y, _ = loops.multi_head_attention(**layer, n_heads=2, **biases)
    assert y[0, 0].tolist() == [4.0, 3004.5]
    y, _ = loops.multi_head_attention(**layer, n_heads=2, **biases, head_gate=np.array([0.5, 0.0]))
    assert y[0, 0].tolist() == [2.0, 2.5]
    nothing = np.zeros((2, 2), dtype=bool)
    y, _ = loops.multi_head_attention(**layer, n_heads=2, **biases, mask=nothing)
    assert y[0].tolist() == [[0.0, 0.5], [0.0, 0.5]]


def test_query_and_key_biases_by_hand():
    # q = (log 3, 0) and k = x / 2 give head 0 the logits log 3 and 2 log 3: weights 1/4 and 3/4.
    # A bias on k shifts every logit of a row alike, and the softmax cancels it.
    layer = two_heads() | {"w_k": np.eye(2) / 2}
    b_q = np.array([math.log(3), 0.0])
    for b_k in (None, np.array([7.0, -7.0])):
        y, weights = loops.multi_head_attention(**layer, n_heads=2, b_q=b_q, b_k=b_k)
        np.testing.assert_allclose(weights[0, 0], [[0.25, 0.75]] * 2, atol=1e-14, rtol=0)
        np.testing.assert_allclose(y[0, 0], [3.5, 3003.5], atol=1e-11, rtol=0)


def test_grouped_heads_by_hand():
    # Four heads of width 1 over two groups. Queries are log 3; group 0 has the logits 0 and log 3,
    # group 1 log 3 and 0. Heads 0 and 1 read group 0 (weights 1/4, 3/4), heads 2 and 3 group 1.
    x = np.array([[[2.0, 1.0], [6.0, 0.0]]])
    layer = {"w_q": np.zeros((2, 4)), "b_q": np.full(4, math.log(3)), "w_v": np.eye(2)}
    layer |= {"w_k": np.array([[0.0, 0.0], [-1.0, 1.0]]), "b_k": np.array([1.0, 0.0])}
    layer["w_o"] = np.array([[1.0, 0.0], [10.0, 0.0], [0.0, 1.0], [0.0, 10.0]])
    y, weights = loops.multi_head_attention(x, x, **layer, n_heads=4, n_kv_heads=2)
    expected = [[[0.25, 0.75]] * 2] * 2 + [[[0.75, 0.25]] * 2] * 2
    np.testing.assert_allclose(weights[0], expected, **exactly)
    # Group 0 averages 2 and 6 to 5, group 1 averages 1 and 0 to 0.75; W_O takes 1 + 10 times each.
    np.testing.assert_allclose(y, [[[55.0, 8.25]] * 2], atol=1e-13, rtol=0)


def test_one_key_value_head_for_all_and_one_for_each():
    layer = two_heads()
    for_each, _ = loops.multi_head_attention(**layer, n_heads=2, n_kv_heads=2)
    assert for_each.tolist() == [[[3.0, 3003.0], [3.0, 3003.0]]]
    layer |= {"w_k": np.eye(2)[:, :1], "w_v": np.eye(2)[:, 1:]}  # the one value is column 1 of x
    for_all, _ = loops.multi_head_attention(**layer, n_heads=2, n_kv_heads=1)
    assert for_all.tolist() == [[[30.0, 3030.0], [30.0, 3030.0]]]


def test_a_context_of_another_width_by_hand():
    # Tokens of the context have three numbers; W_V keeps the last two.
    layer = two_heads() | {"context": np.array([[[9.0, 2.0, 10.0], [9.0, 4.0, 50.0]]])}
    layer["w_k"] = layer["w_v"] = np.eye(3)[:, 1:]
    y, weights = loops.multi_head_attention(**layer, n_heads=2)
    assert y.tolist() == [[[3.0, 3003.0], [3.0, 3003.0]]]
    assert weights.tolist() == [[[[0.5, 0.5], [0.5, 0.5]]] * 2]


@pytest.mark.parametrize(("change", "says"), [
    ({"n_heads": 3}, "n_heads=3 does not divide 4 columns"),
    ({"w_o": np.ones((6, 2))}, "matrices that do not fit"),
    ({"w_v": np.ones((2, 6))}, "matrices that do not fit"),
    ({"mask": np.zeros((1, 1))}, "mask has dtype float64; pass bool"),
    ({"mask": np.ones((3, 1, 1, 1), dtype=bool)}, "mask has shape"),
])  # fmt: skip
def test_the_oracle_cuts_nothing_off_in_silence(change, says):
    x = np.ones((1, 1, 2))
    named = dict.fromkeys(("w_q", "w_k", "w_v"), np.ones((2, 4))) | {"w_o": np.ones((4, 2))}
    loops.multi_head_attention(x, x, **named, n_heads=2)
    with pytest.raises(AssertionError, match=says):
        loops.multi_head_attention(x, x, **({**named, "n_heads": 2} | change))
