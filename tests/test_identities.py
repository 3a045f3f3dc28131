"""The identities of chapter 7, each beside the broken version that must not pass for it.

y = Σ_h z_h W_O^(h) + b_O; a gate removes one head's contribution and nothing else; b_K cancels,
b_V folds into b_O; W_Q W_Kᵀ and W_V W_O are all that a head is to the outside.
"""

import pytest
import torch
from torch.testing import assert_close
from torch.utils.flop_counter import FlopCounterMode

import mha

B, T, H, D_HEAD = 2, 5, 3, 7
D = H * D_HEAD
exactly = {"atol": 1e-12, "rtol": 1e-12}
VISIBLE = 0.05  # what a broken identity differs by, at least


def draw(*shape, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@pytest.fixture
def layer():
    built = mha.MultiHeadAttention(D, H, bias=True).double().requires_grad_(False)
    for seed, parameter in enumerate(built.parameters()):
        parameter.copy_(draw(*parameter.shape, seed=seed) / 2)
    return built


@pytest.fixture
def x():
    return draw(B, T, D, seed=20)


def heads_of(layer, x):
    q, k, v = (mha.split_heads(p(x), H) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
    z, _ = mha.scaled_dot_product_attention(q, k, v)
    return z  # B H T d


def broken(found, right):
    """Whether two results differ visibly."""
    return (found - right).abs().max().item() > VISIBLE


# concatenate and multiply = multiply and add


def test_the_output_is_one_contribution_a_head_plus_the_bias(layer, x):
    z, right = heads_of(layer, x), layer(x)
    by_rows = layer.out_proj.weight.T.reshape(H, D_HEAD, D)  # head h: rows h·d … of W_O
    assert_close((z @ by_rows).sum(1) + layer.out_proj.bias, right, **exactly)
    assert broken((z @ by_rows).sum(1), right)  # a dropped bias
    assert broken((z @ by_rows + layer.out_proj.bias).sum(1), right)  # a bias a head
    assert broken((z @ by_rows.flip(0)).sum(1) + layer.out_proj.bias, right)  # wrong blocks
    stored = layer.out_proj.weight.reshape(H, D_HEAD, D)  # not transposed
    assert broken((z @ stored).sum(1) + layer.out_proj.bias, right)
    strided = layer.out_proj.weight.T.reshape(D_HEAD, H, D).transpose(0, 1)  # every H-th row
    assert broken((z @ strided).sum(1) + layer.out_proj.bias, right)


@pytest.mark.parametrize("off", [(0,), (2,), (0, 2), (0, 1, 2), ()])
def test_switching_heads_off_removes_their_contributions_alone(layer, x, off):
    contributions = heads_of(layer, x) @ layer.out_proj.weight.T.reshape(H, D_HEAD, D)
    gate = torch.ones(H, dtype=torch.float64)
    gate[list(off)] = 0
    expected = layer(x) - contributions[:, list(off)].sum(1)
    assert_close(layer(x, head_gate=gate), expected, **exactly)
    if off:
        neighbours = [(h + 1) % H for h in off] if len(off) < H else list(off[1:])
        assert broken(layer(x) - contributions[:, neighbours].sum(1), layer(x, head_gate=gate))


# biases


def changed(layer, **biases):
    """A copy of the layer with other biases: k=0 sets b_K to 0."""
    copy = mha.MultiHeadAttention(D, H, bias=True).double().requires_grad_(False)
    copy.load_state_dict(layer.state_dict())
    for letter, value in biases.items():
        getattr(copy, {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}[letter])\
            .bias.copy_(torch.as_tensor(value))
    return copy


def test_the_bias_of_the_keys_cancels_and_that_of_the_queries_does_not(layer, x):
    assert_close(changed(layer, k=0.0)(x), layer(x), **exactly)
    assert_close(changed(layer, k=draw(D, seed=30))(x), layer(x), **exactly)
    assert broken(changed(layer, q=0.0)(x), layer(x))


def test_the_bias_of_the_values_folds_into_that_of_the_output(layer, x):
    b_v, w_o, b_o = layer.v_proj.bias, layer.out_proj.weight.T, layer.out_proj.bias
    assert_close(changed(layer, v=0.0, o=b_v @ w_o + b_o)(x), layer(x), **exactly)
    assert broken(changed(layer, v=0.0)(x), layer(x))
    assert broken(changed(layer, v=0.0, o=b_v @ w_o)(x), layer(x))
    assert broken(changed(layer, v=0.0, o=b_v @ w_o.T + b_o)(x), layer(x))


def test_the_fold_needs_rows_that_sum_to_one(layer, x):
    folded = changed(layer, v=0.0, o=layer.v_proj.bias @ layer.out_proj.weight.T
                     + layer.out_proj.bias)
    nobody = torch.zeros(T, T, dtype=torch.bool)
    gate = torch.full((H,), 0.5, dtype=torch.float64)
    assert broken(folded(x, mask=nobody), layer(x, mask=nobody))
    assert broken(folded(x, head_gate=gate), layer(x, head_gate=gate))
    past = mha.causal_mask(T)  # every query sees a key
    assert_close(folded(x, mask=past), layer(x, mask=past), **exactly)
    for each in (folded, layer):
        each.dropout = 0.5
        torch.manual_seed(0)
    torch.manual_seed(0)
    dropped = layer(x)
    torch.manual_seed(0)
    assert broken(folded(x), dropped)  # the same weights dropped, another output


def test_the_bias_of_the_keys_gets_no_gradient(layer, x):
    layer.requires_grad_(True)
    layer(x).pow(2).sum().backward()
    assert layer.k_proj.bias.grad.abs().max() < 1e-10
    assert layer.q_proj.bias.grad.abs().max() > VISIBLE


# freedom of basis


def rebased(layer, m, other_side):
    """A copy with head 1's queries times m and its keys times `other_side`, biases too."""
    copy = changed(layer)
    rows = slice(D_HEAD, 2 * D_HEAD)
    for projection, factor in ((copy.q_proj, m), (copy.k_proj, other_side)):
        projection.weight[rows] = factor.T @ projection.weight[rows]
        projection.bias[rows] = projection.bias[rows] @ factor
    return copy


def test_queries_and_keys_may_change_their_basis_together(layer, x):
    m = draw(D_HEAD, D_HEAD, seed=40)
    inverse = m.inverse()
    assert_close(rebased(layer, m, inverse.T)(x), layer(x), atol=1e-10, rtol=1e-10)
    assert broken(rebased(layer, m, inverse)(x), layer(x))  # the transpose forgotten
    assert broken(rebased(layer, m, m)(x), layer(x))
    assert broken(rebased(layer, m, torch.eye(D_HEAD, dtype=m.dtype))(x), layer(x))


def test_values_and_output_may_change_their_basis_together(layer, x):
    m = draw(D_HEAD, D_HEAD, seed=41)
    rows = slice(D_HEAD, 2 * D_HEAD)

    def values_by(first, second):
        copy = changed(layer)
        copy.v_proj.weight[rows] = first.T @ copy.v_proj.weight[rows]
        copy.v_proj.bias[rows] = copy.v_proj.bias[rows] @ first
        copy.out_proj.weight[:, rows] = copy.out_proj.weight[:, rows] @ second.T
        return copy(x)

    assert_close(values_by(m, m.inverse()), layer(x), atol=1e-10, rtol=1e-10)
    assert broken(values_by(m, m.inverse().T), layer(x))
    assert broken(values_by(m, m), layer(x))


# cost


@pytest.mark.parametrize("n_heads", [1, 2, 5, 10])
def test_parameters_and_products_do_not_depend_on_the_number_of_heads(n_heads):
    d_model, n_tokens = 10, 7
    layer = mha.MultiHeadAttention(d_model, n_heads)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        _, weights = layer(torch.zeros(1, n_tokens, d_model), return_weights=True)
    assert sum(p.numel() for p in layer.parameters()) == 4 * d_model**2
    products = 4 * n_tokens * d_model**2 + 2 * n_tokens**2 * d_model
    assert counter.get_total_flops() == 2 * products
    assert weights.numel() == n_heads * n_tokens**2
