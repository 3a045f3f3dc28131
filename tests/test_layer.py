"""The layer: a value by hand, its initialisation, what must always hold, what it refuses."""

import copy
import math
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from mha import MultiHeadAttention, causal_mask, padding_mask
from mha.backends import BACKENDS

B, T, S, H, D_HEAD = 2, 3, 5, 7, 11
D_MODEL = 17
exactly = {"atol": 1e-12, "rtol": 0}
every_backend = pytest.mark.parametrize("backend", BACKENDS)


def draw(*shape, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)


def build(backend="explicit", *, bias=True, dtype=torch.float64, dropout=0.0):
    layer = MultiHeadAttention(
        D_MODEL, H, d_head=D_HEAD, bias=bias, dropout=dropout, backend=backend
    )
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=seed) / math.sqrt(D_MODEL))
    return layer.to(dtype)


@every_backend
def test_layer_by_hand(backend):
    # Two heads of width 1. W_Q = 0, so each head averages the values it may see; with W_V = 1 head
    # 0 sees column 0 of x and head 1 column 1. W_O = [[1, 1], [0, 100]] in x W form, b_O = (0, .5).
    layer = MultiHeadAttention(2, 2, bias=True, backend=backend).double()
    with torch.no_grad():
        layer.q_proj.weight.zero_()
        layer.v_proj.weight.copy_(torch.eye(2))
        layer.out_proj.weight.copy_(torch.tensor([[1.0, 1.0], [0.0, 100.0]]).T)
        layer.out_proj.bias.copy_(torch.tensor([0.0, 0.5]))
    x = torch.tensor([[[2.0, 10.0], [4.0, 50.0]]], dtype=torch.float64)
    assert_close(layer(x).tolist(), [[[3.0, 3003.5], [3.0, 3003.5]]], **exactly)
    y, weights = layer(x, is_causal=True, return_weights=True)
    assert_close(y.tolist(), [[[2.0, 1002.5], [3.0, 3003.5]]], **exactly)
    assert weights.tolist() == [[[[1.0, 0.0], [0.5, 0.5]]] * 2]
    gated = layer(x, head_gate=torch.tensor([0.0, 2.0], dtype=torch.float64))
    assert_close(gated.tolist(), [[[0.0, 6000.5], [0.0, 6000.5]]], **exactly)


@every_backend
def test_grouped_heads_by_hand(backend):
    # W_Q = 0: each head averages its values. Key/value head 0 holds column 0 of x (mean 3), head 1
    # column 1 (mean 6). Query heads 0 and 1 are served by the first: 3, 3, 6, 6, and W_O puts each
    # into a digit of its own.
    layer = MultiHeadAttention(2, 4, n_kv_heads=2, d_head=1, backend=backend).double()
    with torch.no_grad():
        layer.q_proj.weight.zero_()
        layer.v_proj.weight.copy_(torch.eye(2))
        layer.out_proj.weight.copy_(torch.tensor([[1.0, 10, 100, 1000], [0, 0, 0, 0]]))
    x = torch.tensor([[[2.0, 5.0], [4.0, 7.0]]], dtype=torch.float64)
    y, weights = layer(x, return_weights=True)
    assert_close(y.tolist(), [[[6633.0, 0.0], [6633.0, 0.0]]], **exactly)
    assert weights.shape == (1, 4, 2, 2)
    gate = torch.tensor([1.0, 0.0, 2.0, 0.0], dtype=torch.float64)  # of query heads
    assert_close(layer(x, head_gate=gate)[0, 0, 0].item(), 3.0 + 1200.0, **exactly)


@every_backend
def test_a_context_of_another_width_by_hand(backend):
    # One head of width 1, W_Q = 0: y is 10 times the mean of the context's third column.
    layer = MultiHeadAttention(1, 1, d_context=3, backend=backend).double()
    with torch.no_grad():
        layer.q_proj.weight.zero_()
        layer.v_proj.weight.copy_(torch.tensor([[0.0, 0.0, 1.0]]))
        layer.out_proj.weight.fill_(10.0)
    context = torch.tensor([[[9.0, 9.0, 2.0], [9.0, 9.0, 6.0]]], dtype=torch.float64)
    x = torch.ones(1, 1, 1, dtype=torch.float64)
    assert_close(layer(x, context).tolist(), [[[40.0]]], **exactly)


@every_backend
def test_torchs_own_layer_agrees(backend):
    layer = MultiHeadAttention(H * D_HEAD, H, bias=True, backend=backend).double()
    peer = nn.MultiheadAttention(H * D_HEAD, H, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        for seed, parameter in enumerate(layer.parameters()):
            parameter.copy_(draw(*parameter.shape, seed=seed) / 9)
        projections = (layer.q_proj, layer.k_proj, layer.v_proj)
        peer.in_proj_weight.copy_(torch.cat([p.weight for p in projections]))
        peer.in_proj_bias.copy_(torch.cat([p.bias for p in projections]))
        peer.out_proj.load_state_dict(layer.out_proj.state_dict())
    x, context = draw(B, T, H * D_HEAD, seed=20), draw(B, S, H * D_HEAD, seed=21)
    mask = causal_mask(T, S)
    y, weights = layer(x, context, mask=mask, return_weights=True)
    peer_y, peer_weights = peer(x, context, context, attn_mask=~mask, average_attn_weights=False)
    assert_close(y, peer_y, **exactly)
    assert_close(weights, peer_weights, **exactly)


# construction


@pytest.mark.parametrize("bias", [False, True])
def test_parameters(bias):
    layer = MultiHeadAttention(D_MODEL, H, d_head=D_HEAD, bias=bias)
    width = H * D_HEAD
    expected = {f"{name}_proj.weight": (width, D_MODEL) for name in "qkv"}
    expected["out_proj.weight"] = (D_MODEL, width)
    if bias:
        expected |= {f"{name}_proj.bias": (width,) for name in "qkv"}
        expected["out_proj.bias"] = (D_MODEL,)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == expected
    assert list(layer.buffers()) == []
    assert (layer.d_model, layer.n_heads, layer.d_head) == (D_MODEL, H, D_HEAD)
    assert MultiHeadAttention(77, H).d_head == 11


def test_parameters_of_grouped_heads_and_another_context():
    layer = MultiHeadAttention(17, 6, n_kv_heads=2, d_head=11, d_context=13, bias=True)
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "q_proj.weight": (66, 17), "q_proj.bias": (66,),
        "k_proj.weight": (22, 13), "k_proj.bias": (22,),
        "v_proj.weight": (22, 13), "v_proj.bias": (22,),
        "out_proj.weight": (17, 66), "out_proj.bias": (17,),
    }  # fmt: skip
    assert (layer.n_heads, layer.n_kv_heads, layer.d_head, layer.d_context) == (6, 2, 11, 13)
    assert "d_model=17, n_heads=6, n_kv_heads=2, d_head=11, d_context=13, dropout" in repr(layer)
    plain = MultiHeadAttention(6, 2)
    assert (plain.n_kv_heads, plain.d_context) == (2, 6)


def test_defaults():
    layer = MultiHeadAttention(6, 2)
    assert (layer.backend, layer.dropout, layer.q_proj.bias) == ("explicit", 0.0, None)
    assert "d_model=6, n_heads=2, d_head=3, dropout=0.0, backend='explicit'" in repr(layer)


def test_each_matrix_is_xavier_uniform_and_each_bias_zero():
    torch.manual_seed(0)
    layer = MultiHeadAttention(96, 8, d_head=20, bias=True)
    bound = math.sqrt(6 / (96 + 160))
    for projection in (layer.q_proj, layer.k_proj, layer.v_proj, layer.out_proj):
        assert 0.99 * bound < projection.weight.abs().max().item() <= bound
        assert_close(projection.weight.std().item(), bound / math.sqrt(3), atol=0, rtol=0.02)
        assert (projection.bias == 0).all()


@pytest.mark.parametrize("seed", range(3))
def test_scaled_logits_have_variance_one_at_initialisation(seed):
    # Packed Xavier would give 0.25 here, nn.Linear's default 0.11, N(0, 0.02²) 0.09.
    torch.manual_seed(seed)
    layer = MultiHeadAttention(768, 12)
    x = nn.functional.layer_norm(torch.randn(4, 64, 768), (768,))
    q, k = layer.q_proj(x), layer.k_proj(x)
    q, k = (p.unflatten(-1, (12, 64)).transpose(1, 2) for p in (q, k))
    logits = q @ k.transpose(-2, -1) / 8
    assert 0.95 < logits.var().item() < 1.05
    assert abs(logits.mean().item()) < 0.05


@pytest.mark.parametrize(("n_kv_heads", "expected"), [(1, 24 / 13), (3, 8 / 5), (12, 1.0)])
def test_fewer_key_heads_start_with_a_larger_variance(n_kv_heads, expected):
    # 2D / (D + K·d): Xavier takes W_K for a narrower matrix and draws it wider.
    torch.manual_seed(0)
    layer = MultiHeadAttention(768, 12, n_kv_heads=n_kv_heads)
    x = nn.functional.layer_norm(torch.randn(4, 128, 768), (768,))
    q = layer.q_proj(x).unflatten(-1, (n_kv_heads, 12 // n_kv_heads, 64))
    k = layer.k_proj(x).unflatten(-1, (n_kv_heads, 64))
    logits = torch.einsum("btkgd,bskd->btskg", q, k) / 8
    assert_close(logits.var().item(), expected, atol=0, rtol=0.07)


# what must always hold


@every_backend
def test_rows_sum_to_one(backend):
    _, weights = build(backend)(draw(B, T, D_MODEL), draw(B, S, D_MODEL), return_weights=True)
    assert weights.shape == (B, H, T, S)
    assert_close(weights.sum(-1), torch.ones(B, H, T, dtype=torch.float64), **exactly)


@every_backend
def test_a_later_token_changes_nothing_before_it(backend):
    layer, x = build(backend), draw(B, S, D_MODEL)
    changed = x.clone()
    changed[:, 3:] = draw(B, 2, D_MODEL, seed=5)
    y, other = layer(x, is_causal=True), layer(changed, is_causal=True)
    assert_close(other[:, :3], y[:, :3], **exactly)
    assert (other[:, 3:] - y[:, 3:]).abs().min(-1).values.max() > 1e-3


@every_backend
def test_a_later_token_gets_no_gradient_from_before_it(backend):
    x = draw(B, S, D_MODEL).requires_grad_()
    build(backend)(x, is_causal=True)[:, :3].square().sum().backward()
    assert (x.grad[:, 3:] == 0).all()
    assert (x.grad[:, :3] != 0).all()


@every_backend
def test_the_newest_tokens_alone_give_the_end_of_the_causal_pass(backend):
    # As in decoding: the last two of five tokens ask, all five answer.
    layer, x = build(backend), draw(B, S, D_MODEL)
    assert_close(layer(x[:, 3:], x, is_causal=True), layer(x, is_causal=True)[:, 3:], **exactly)


@every_backend
def test_padding_changes_nothing(backend):
    layer, x, context = build(backend), draw(B, T, D_MODEL), draw(B, S, D_MODEL, seed=1)
    y = layer(x, context, mask=padding_mask([2, 4], S))
    assert_close(y[:1], layer(x[:1], context[:1, :2]), **exactly)
    assert_close(y[1:], layer(x[1:], context[1:, :4]), **exactly)


@every_backend
def test_permuted_tokens_permute_the_output(backend):
    layer, x, order = build(backend), draw(B, S, D_MODEL), [3, 0, 4, 1, 2]
    assert_close(layer(x[:, order]), layer(x)[:, order], **exactly)


@every_backend
def test_permuting_heads_with_the_blocks_of_w_o_changes_nothing(backend):
    layer, x, order = build(backend), draw(B, T, D_MODEL), [4, 2, 6, 0, 5, 1, 3]
    gate = draw(B, H, seed=2)
    moved = copy.deepcopy(layer)
    rows = torch.arange(H * D_HEAD).view(H, D_HEAD)[order].flatten()
    with torch.no_grad():
        for projection in (moved.q_proj, moved.k_proj, moved.v_proj):
            projection.weight.copy_(projection.weight[rows])
            projection.bias.copy_(projection.bias[rows])
        moved.out_proj.weight.copy_(moved.out_proj.weight[:, rows])
    y, weights = layer(x, head_gate=gate, return_weights=True)
    other, moved_weights = moved(x, head_gate=gate[:, order], return_weights=True)
    assert_close(other, y, **exactly)
    assert_close(moved_weights, weights[:, order], **exactly)


@every_backend
def test_the_output_is_a_sum_over_heads(backend):
    layer, x = build(backend), draw(B, T, D_MODEL)
    alone = [layer(x, head_gate=gate) for gate in torch.eye(H, dtype=torch.float64)]
    b_o = layer.out_proj.bias
    assert_close(sum(y - b_o for y in alone) + b_o, layer(x), **exactly)


@every_backend
def test_a_gate_of_zero_leaves_b_o_and_a_gate_multiplies_v_with_its_bias(backend):
    layer, x = build(backend), draw(B, T, D_MODEL)
    nothing = layer(x, head_gate=torch.zeros(H, dtype=torch.float64))
    assert_close(nothing, layer.out_proj.bias.expand(B, T, -1), **exactly)
    # Gating heads is scaling their rows of W_V and b_V.
    gate = draw(H, seed=3)
    scaled = copy.deepcopy(layer)
    with torch.no_grad():
        scaled.v_proj.weight.mul_(gate.repeat_interleave(D_HEAD)[:, None])
        scaled.v_proj.bias.mul_(gate.repeat_interleave(D_HEAD))
    assert_close(layer(x, head_gate=gate), scaled(x), **exactly)


@every_backend
def test_a_gate_can_be_learnt(backend):
    layer, x = build(backend), draw(B, T, D_MODEL)
    gate = nn.Parameter(torch.ones(H, dtype=torch.float64))
    loss = (layer(x, head_gate=gate) * draw(B, T, D_MODEL, seed=4)).sum()
    loss.backward()
    # The output is linear in the gate: the derivative is what one unit of it adds.
    for h, unit in enumerate(torch.eye(H, dtype=torch.float64)):
        added = layer(x, head_gate=gate.detach() + unit) - layer(x)
        assert_close(gate.grad[h], (added * draw(B, T, D_MODEL, seed=4)).sum(), **exactly)


@every_backend
@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_a_gate_of_another_dtype_is_converted(backend, dtype):
    layer, x = build(backend, dtype=torch.bfloat16), draw(B, T, D_MODEL, dtype=torch.bfloat16)
    gate = torch.tensor([1, 0, 1, 1, 0, 0, 1])
    y = layer(x, head_gate=gate.to(dtype))
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, layer(x, head_gate=gate.bfloat16()))


# queries without keys


def empty_rows(kind):
    """Return (T, S), the arguments that leave some queries without keys, and which (B T)."""
    if kind == "causal":  # five queries, three keys: the first two see none
        empty = torch.zeros(B, 5, dtype=torch.bool)
        empty[:, :2] = True
        return (5, 3), {"is_causal": True}, empty
    empty = torch.zeros(B, T, dtype=torch.bool)
    if kind == "padding":
        empty[1] = True
        return (T, S), {"mask": padding_mask([4, 0], S)}, empty
    mask = torch.ones(T, S, dtype=torch.bool)
    mask[1] = False
    empty[:, 1] = True
    if kind == "mask and causal":
        return (T, S), {"mask": mask, "is_causal": True}, empty
    return (T, S), {"mask": mask}, empty


@every_backend
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("kind", ["mask", "mask and causal", "padding", "causal"])
def test_a_query_without_keys_gives_b_o_and_finite_gradients(backend, dtype, training, bias, kind):
    torch.manual_seed(0)
    layer = build(backend, bias=bias, dtype=dtype, dropout=0.3).train(training)
    (n_queries, n_keys), arguments, empty = empty_rows(kind)
    x = draw(B, n_queries, D_MODEL, seed=30, dtype=dtype).requires_grad_()
    context = draw(B, n_keys, D_MODEL, seed=31, dtype=dtype).requires_grad_()
    gate = torch.ones(B, H, dtype=dtype, requires_grad=True)
    y, weights = layer(x, context, head_gate=gate, return_weights=True, **arguments)
    expected = layer.out_proj.bias if bias else torch.zeros(D_MODEL, dtype=dtype)
    assert torch.equal(y[empty], expected.expand(int(empty.sum()), -1))
    assert y.isfinite().all()
    by_query = weights.transpose(1, 2)  # B T H S
    assert (by_query[empty] == 0).all()
    assert_close(by_query[~empty].sum(-1).double(), torch.ones(int((~empty).sum()), H).double(),
                 atol=8 * torch.finfo(dtype).eps, rtol=0)  # fmt: skip
    y.square().sum().backward()
    for tensor in (x, context, gate, *layer.parameters()):
        assert tensor.grad.isfinite().all()
    assert (x.grad[empty] == 0).all()
    assert (x.grad[~empty] != 0).any()


@every_backend
def test_nothing_is_visible_anywhere(backend):
    layer = build(backend)
    x = draw(B, T, D_MODEL).requires_grad_()
    y = layer(x, mask=torch.zeros(T, T, dtype=torch.bool))
    assert torch.equal(y, layer.out_proj.bias.expand(B, T, -1))
    y.square().sum().backward()
    assert (x.grad == 0).all()


@every_backend
@pytest.mark.parametrize("n_kv_heads", [1, 2, 3, 6])
def test_queries_without_keys_in_grouped_heads(backend, n_kv_heads):
    layer = MultiHeadAttention(17, 6, n_kv_heads=n_kv_heads, d_head=11, d_context=13, bias=True,
                               backend=backend).double()  # fmt: skip
    nn.init.ones_(layer.out_proj.bias)
    x, context = draw(B, T, 17).requires_grad_(), draw(B, S, 13, seed=1).requires_grad_()
    y, weights = layer(x, context, mask=padding_mask([4, 0], S), return_weights=True)
    assert weights.shape == (B, 6, T, S)
    assert (y[1] == 1).all()
    assert (weights[1] == 0).all()
    y.square().sum().backward()
    for tensor in (x, context, *layer.parameters()):
        assert tensor.grad.isfinite().all()
        assert tensor.grad.abs().max() > 0 or tensor is layer.k_proj.bias
    assert (x.grad[1] == 0).all()
    assert (context.grad[1] == 0).all()


@every_backend
def test_grouped_heads_share_the_weights_of_no_other_group(backend):
    # Changing key/value head 1 of 2 leaves query heads 0, 1, 2 of 6 alone.
    layer = MultiHeadAttention(17, 6, n_kv_heads=2, d_head=11, backend=backend).double()
    x = draw(B, T, 17)
    before = layer(x, return_weights=True)[1]
    with torch.no_grad():
        layer.k_proj.weight[11:].mul_(-2)
    after = layer(x, return_weights=True)[1]
    assert torch.equal(after[:, :3], before[:, :3])
    assert ((after[:, 3:] - before[:, 3:]).abs().amax((0, 2, 3)) > 1e-3).all()


@every_backend
def test_an_empty_context_is_no_key_either(backend):
    layer = build(backend)
    y, weights = layer(draw(B, T, D_MODEL), draw(B, 0, D_MODEL), return_weights=True)
    assert torch.equal(y, layer.out_proj.bias.expand(B, T, -1))
    assert weights.shape == (B, H, T, 0)


# dropout, dtype, hooks


@every_backend
def test_dropout_acts_in_training_only(backend):
    layer, x = build(backend, dropout=0.5), draw(B, S, D_MODEL)
    without = build(backend)
    assert_close(layer.eval()(x), without(x), **exactly)
    torch.manual_seed(0)
    y, weights = layer.train()(x, return_weights=True)
    assert (y - without(x)).abs().max() > 0.01
    assert_close(weights, without(x, return_weights=True)[1], **exactly)
    torch.manual_seed(0)
    assert torch.equal(layer(x), y)


@every_backend
def test_dropout_keeps_the_mean(backend):
    torch.manual_seed(0)
    layer, x = build(backend, dropout=0.5), draw(1, S, D_MODEL)
    many = layer(x.expand(4000, -1, -1))
    expected = build(backend)(x)[0]
    error = (many.mean(0) - expected).abs()
    assert (error < 5 * many.std(0) / math.sqrt(4000)).all()


@every_backend
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_each_dtype_comes_back(backend, dtype):
    layer, x = build(backend, dtype=dtype), draw(B, T, D_MODEL, dtype=dtype)
    y, weights = layer(x, is_causal=True, return_weights=True)
    assert y.dtype == weights.dtype == dtype
    exact = build(backend, dtype=torch.float64)
    exact.load_state_dict(layer.double().state_dict())
    assert_close(y.double(), exact(x.double(), is_causal=True),
                 atol=16 * torch.finfo(dtype).eps, rtol=0)  # fmt: skip


@every_backend
def test_autocast_may_mix_dtypes(backend):
    layer, x = build(backend, dtype=torch.float32), draw(B, T, D_MODEL, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x, mask=causal_mask(T), head_gate=torch.ones(H))
        again = layer(x.bfloat16(), mask=causal_mask(T), head_gate=torch.ones(H))
        with torch.inference_mode():
            assert_close(layer(x, mask=causal_mask(T)), y, atol=0.05, rtol=0)
    assert y.dtype == again.dtype == torch.bfloat16
    assert_close(y.float(), layer(x, is_causal=True), atol=0.05, rtol=0)


@pytest.mark.parametrize("given", [torch.float64, torch.int64, torch.bool, torch.complex64])
def test_autocast_converts_floats_of_up_to_32_bits_only(untouched, given):
    layer, x = untouched.float(), draw(B, T, D_MODEL).to(given)
    message = f"x has dtype {given}, the layer's weights have torch.float32; convert one"
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with pytest.raises(TypeError, match=re.escape(message)):
            layer(x)
        with pytest.raises(TypeError, match=re.escape(message.replace("x has", "context has"))):
            layer(draw(B, T, D_MODEL).float(), x)
        with pytest.raises(TypeError, match=r"x has dtype torch\.float32, .* have torch\.float64"):
            layer.double()(draw(B, T, D_MODEL).float())


@every_backend
def test_autocast_leaves_float64_alone(backend):
    layer, x = build(backend), draw(B, T, D_MODEL)
    expected = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    assert torch.equal(y, expected)


class Wrapped(nn.Module):
    """Hold a projection as adapters and quantised layers do: without a tensor named weight."""

    def __init__(self, projection):
        super().__init__()
        self.inner = projection

    def forward(self, x):
        return self.inner(x)


class Packed(Wrapped):
    def weight(self):
        return self.inner.weight


@every_backend
@pytest.mark.parametrize("kind", [Wrapped, Packed])
def test_projections_may_be_replaced(backend, kind):
    layer, x, context = build(backend), draw(B, T, D_MODEL), draw(B, S, D_MODEL)
    expected = layer(x, context)
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        setattr(layer, name, kind(getattr(layer, name)))
    assert torch.equal(layer(x, context), expected)


def test_the_context_is_held_against_the_projection_it_meets():
    layer = build()
    layer.q_proj = Wrapped(layer.q_proj)
    with pytest.raises(TypeError, match=r"context has dtype torch\.float32, .* torch\.float64"):
        layer(draw(B, T, D_MODEL), draw(B, S, D_MODEL).float())


@every_backend
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's kernel, one by one
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_layers_can_be_stacked_and_run_as_one(backend, mode):
    layers, x = [build(backend), build(backend)], draw(B, T, D_MODEL)
    with torch.no_grad():
        layers[1].q_proj.weight.mul_(2)
    parameters, _ = torch.func.stack_module_state(layers)

    def call(parameters):
        return torch.func.functional_call(layers[0], parameters, (x,), {"mask": causal_mask(T)})

    with mode():
        y = torch.func.vmap(call)(parameters)
    for one, layer in zip(y, layers, strict=True):
        assert_close(one, layer(x, mask=causal_mask(T)), **exactly)


@every_backend
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_call_leaves_its_inputs_alone(backend, mode):
    def inputs():
        return {"x": draw(B, T, D_MODEL), "context": draw(B, S, D_MODEL, seed=1),
                "mask": draw(B, H, T, S, seed=2) > 0, "head_gate": draw(B, H, seed=3)}  # fmt: skip

    layer, given = build(backend), inputs()
    before = copy.deepcopy(layer.state_dict())
    with mode():
        layer(**given, is_causal=True, return_weights=True)
    assert all(torch.equal(given[name], value) for name, value in inputs().items())
    assert all(torch.equal(before[name], value) for name, value in layer.state_dict().items())


def test_the_layer_keeps_nothing_of_a_call():
    layer, x = build(), draw(B, T, D_MODEL)
    before = set(vars(layer)), set(layer.state_dict())
    layer(x, mask=causal_mask(T), head_gate=torch.ones(H), return_weights=True)
    assert (set(vars(layer)), set(layer.state_dict())) == before


def test_the_backend_can_be_changed_later():
    layer, x = build("loop"), draw(B, T, D_MODEL)
    y = layer(x)
    layer.backend = "fused"
    assert_close(layer(x), y, **exactly)
    layer.backend = "quick"
    with pytest.raises(ValueError, match="backend='quick' is not known; choose 'loop'"):
        layer(x)


# refusals


def refused(error, message, *args, **kwargs):
    with pytest.raises(error, match=re.escape(message)):
        MultiHeadAttention(*args, **kwargs)


def test_indivisible_width():
    message = "d_model=10 is not divisible by n_heads=3; try 1, 2, 5 or 10"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        MultiHeadAttention(10, 3)
    assert MultiHeadAttention(10, 3, d_head=4).out_proj.in_features == 12
    with pytest.raises(ValueError, match=r"d_model=1 is not divisible by n_heads=3; try 1$"):
        MultiHeadAttention(1, 3)


def test_key_heads_that_cannot_be_shared_out():
    message = "n_heads=6 is not divisible by n_kv_heads=4; try 1, 2, 3 or 6"
    with pytest.raises(ValueError, match=f"^{message}$"):
        MultiHeadAttention(12, 6, n_kv_heads=4)
    with pytest.raises(ValueError, match=r"n_kv_heads=12; try 1, 2, 3 or 6$"):
        MultiHeadAttention(12, 6, n_kv_heads=12)


def test_a_context_of_another_width_must_be_passed():
    layer, x = MultiHeadAttention(17, 7, d_head=11, d_context=13), torch.ones(B, T, 17)
    message = (
        "context is missing, and x cannot stand in: the layer has d_model=17 and d_context=13; "
        "pass a context, (B, S, d_context)"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        layer(x)
    message = (
        "context has width 17, but the layer has d_context=13; pass (B, S, d_context) with "
        "d_context=13, or build the layer for 17"
    )
    with pytest.raises(ValueError, match=re.escape(message)):
        layer(x, x)
    with pytest.raises(ValueError, match="x has width 13, but the layer has d_model=17"):
        layer(torch.ones(B, T, 13), torch.ones(B, S, 13))
    with pytest.raises(ValueError, match=r"the layer takes \(B, S, d_context\); add a batch axis"):
        layer(x, torch.ones(S, 13))


@pytest.mark.parametrize("name", ["d_model", "n_heads", "n_kv_heads", "d_head", "d_context"])
@pytest.mark.parametrize("bad", [0, -2, 2.0, True, "2"])
def test_sizes_that_are_no_counts(name, bad):
    sizes = {"d_model": 12, "n_heads": 3, "d_head": 4} | {name: bad}
    error = ValueError if type(bad) is int else TypeError
    refused(error, f"{name}={bad!r} is", **sizes)


@pytest.mark.parametrize("bad", [1.0, -0.1, math.nan, 2])
def test_dropout_out_of_range(bad):
    refused(ValueError, f"dropout={bad} is outside [0, 1)", 6, 2, dropout=bad)


@pytest.mark.parametrize("bad", [True, "0.1", None])
def test_dropout_that_is_no_number(bad):
    refused(TypeError, f"dropout={bad!r} is not a number", 6, 2, dropout=bad)


def test_flags_that_are_no_bool():
    refused(TypeError, "bias is a str; pass True or False", 6, 2, bias="no")
    refused(TypeError, "bias is a int; pass True or False", 6, 2, bias=1)
    assert MultiHeadAttention(6, 2, bias=np.False_).q_proj.bias is None


def test_dropout_of_another_kind():
    layer = MultiHeadAttention(6, 2, dropout=Fraction(1, 2))
    assert layer.dropout == 0.5
    assert "dropout=0.5" in repr(layer)
    assert layer(torch.ones(1, 3, 6)).shape == (1, 3, 6)


def test_unknown_backend():
    message = "backend='flash' is not known; choose 'loop', 'explicit' or 'fused'"
    refused(ValueError, message, 6, 2, backend="flash")


@pytest.fixture
def untouched(monkeypatch):
    """Build a layer that fails the test if it computes anything."""

    def compute(*args, **kwargs):
        pytest.fail("the layer computed something before it refused its input")

    layer = build()
    monkeypatch.setattr(nn.Linear, "forward", compute)
    return layer


X, CONTEXT = draw(B, T, D_MODEL), draw(B, S, D_MODEL)
BOOL = torch.ones(1, dtype=torch.bool)
REFUSED = [
    (ValueError, "x has shape (3, 17); the layer takes (B, T, D); add a batch axis: x[None]",
     X[0], {}),
    (ValueError, "x has shape (2, 1, 3, 17); the layer takes (B, T, D)", X[:, None], {}),
    (ValueError, "x has width 16, but the layer has d_model=17; pass (B, T, D) with D=17",
     X[..., :16], {}),
    (TypeError, "x is a list; pass a torch tensor, (B, T, D)", X.tolist(), {}),
    (TypeError, "x has dtype torch.float32, the layer's weights have torch.float64; convert one: "
     "x.to(torch.float64) or layer.to(x.dtype)", X.float(), {}),
    (TypeError, "x has dtype torch.int64", X.long(), {}),
    (ValueError, "context has shape (5, 17); the layer takes (B, S, D); add a batch axis: "
     "context[None]", X, {"context": CONTEXT[0]}),
    (ValueError, "context has width 16, but the layer has d_model=17", X,
     {"context": CONTEXT[..., :16]}),
    (ValueError, "context has batch size 1, x has 2; pass one context for each sequence", X,
     {"context": CONTEXT[:1]}),
    (TypeError, "context has dtype torch.float32", X, {"context": CONTEXT.float()}),
    (TypeError, "context is a str", X, {"context": "tokens"}),
    (TypeError, "mask has dtype torch.float64, but a mask is bool, True = may attend", X,
     {"mask": draw(T, T)}),
    (TypeError, "mask has dtype torch.int64", X, {"mask": torch.ones(T, T, dtype=torch.int64)}),
    (ValueError, "mask has rank 3", X, {"mask": BOOL.expand(B, T, T)}),
    (ValueError, "mask has shape (2, 3), but a mask of rank 2 is (T, S) = (3, 3); for padding, "
     "(B, S), use padding_mask(lengths, n_keys)", X, {"mask": BOOL.expand(B, T)}),
    (ValueError, "mask has shape (3, 3), but a mask of rank 2 is (T, S) = (3, 5)", X,
     {"context": CONTEXT, "mask": BOOL.expand(T, T)}),
    (ValueError, "mask has shape (2, 2, 3, 3), which does not broadcast to the weights' "
     "(2, 7, 3, 3)", X, {"mask": BOOL.expand(B, 2, T, T)}),
    (ValueError, "mask has shape (2, 1, 3, 3), which does not broadcast to the weights' "
     "(1, 7, 3, 3)", X[:1], {"mask": BOOL.expand(B, 1, T, T)}),
    (TypeError, "is_causal is a Tensor; pass True or False", X, {"is_causal": BOOL.expand(T, T)}),
    (TypeError, "is_causal is a int; pass True or False", X, {"is_causal": 1}),
    (TypeError, "return_weights is a str; pass True or False", X, {"return_weights": "no"}),
    (TypeError, "head_gate has dtype torch.complex64; pass real numbers", X,
     {"head_gate": torch.ones(H, dtype=torch.complex64)}),
    (TypeError, "head_gate is a list; pass a tensor, one number for each head", X,
     {"head_gate": [1.0] * H}),
    (ValueError, "head_gate has shape (6,); pass (H,) = (7,) or (B, H) = (2, 7)", X,
     {"head_gate": torch.ones(6)}),
    (ValueError, "head_gate has shape (1, 7)", X, {"head_gate": torch.ones(1, H)}),
    (ValueError, "head_gate has shape (7, 1, 1)", X, {"head_gate": torch.ones(H, 1, 1)}),
    (ValueError, "head_gate has shape ()", X, {"head_gate": torch.tensor(1.0)}),
]  # fmt: skip


@pytest.mark.parametrize(("error", "message", "x", "arguments"), REFUSED)
def test_bad_calls_are_refused_before_anything_is_computed(untouched, error, message, x, arguments):
    with pytest.raises(error, match=re.escape(message)):
        untouched(x, **arguments)


def test_small_numpy_integers_do_not_wrap_around():
    sizes = {"d_model": 300, "n_heads": 20, "n_kv_heads": 10, "d_head": 15}
    torch.manual_seed(0)
    expected = MultiHeadAttention(**sizes)
    sizes |= {name: np.uint8(sizes[name]) for name in ("n_heads", "n_kv_heads", "d_head")}
    torch.manual_seed(0)
    layer = MultiHeadAttention(**sizes)
    assert layer.q_proj.weight.shape == (300, 300) and layer.k_proj.weight.shape == (150, 300)
    assert {type(value) for value in (layer.n_heads, layer.n_kv_heads, layer.d_head)} == {int}
    x = torch.ones(1, 2, 300)
    assert torch.equal(layer(x), expected(x))
