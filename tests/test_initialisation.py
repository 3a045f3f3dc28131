"""The audit of initialisers: what each draws, and how far the logits spread, in new and trained."""

import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import mha.bert
from mha.attention import masked_softmax
from mha.initialisation import INITIALISERS, audit, predicted_logit_variance, trained_logits


def normalised(*shape, seed=0):
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return F.layer_norm(x, shape[-1:])


@pytest.mark.parametrize("name", INITIALISERS)
def test_each_draws_weights_of_the_variance_it_says(name):
    torch.manual_seed(1)
    draw, weight_variance, bias_variance = INITIALISERS[name]
    for linear in draw(210, 7):
        assert linear.weight.shape == (210, 210)
        assert linear.weight.var().item() == pytest.approx(weight_variance(210), rel=0.03)
        bias = torch.zeros(210) if linear.bias is None else linear.bias
        assert bias.var().item() == pytest.approx(bias_variance(210), rel=0.3)


def test_the_packed_draw_is_that_of_torch():
    torch.manual_seed(2)
    q_proj, k_proj = INITIALISERS["nn.MultiheadAttention"].draw(15, 3)
    torch.manual_seed(2)
    weight = nn.MultiheadAttention(15, 3).in_proj_weight
    assert torch.equal(q_proj.weight, weight[:15]) and torch.equal(k_proj.weight, weight[15:30])


def test_measured_agrees_with_predicted_for_every_initialiser():
    spreads = audit(normalised(2, 211, 154), n_heads=7)
    assert list(spreads) == list(INITIALISERS)
    for name, (predicted, measured) in spreads.items():
        assert measured == pytest.approx(predicted, rel=0.1), name
    assert spreads["nn.MultiheadAttention"].predicted == pytest.approx(1 / 4)
    assert spreads["nn.Linear"].predicted == pytest.approx((1 / 3 + 1 / (3 * 154)) ** 2)


def test_the_prediction_has_no_d_k_in_it():
    x = normalised(1, 211, 154)
    few, many = audit(x, 2), audit(x, 77)
    for name, (predicted, measured) in few.items():
        assert many[name].predicted == predicted
        assert many[name].measured == pytest.approx(measured, rel=0.15), name


def test_the_prediction_by_hand():
    assert predicted_logit_variance(5, 0.3, 0.1) == pytest.approx(1.6**2)


def test_the_random_state_of_the_caller_is_left_alone():
    x = normalised(1, 5, 6)
    torch.manual_seed(3)
    expected = torch.rand(7)
    torch.manual_seed(3)
    assert audit(x, 2, seed=8) == audit(x, 2, seed=8)
    assert torch.equal(torch.rand(7), expected)


def test_rows_that_are_not_normalised_are_refused():
    said = "a row of x has mean square 9; the prediction is for normalised rows"
    with pytest.raises(ValueError, match=re.escape(said)):
        audit(3 * normalised(2, 5, 6), 2)
    with pytest.raises(ValueError, match="normalised rows"):
        audit(torch.ones(2, 5, 6), 2)  # mean square 1, mean 1


@pytest.fixture(scope="module")
def encoder():
    return mha.bert.load()


TEXTS = ["The cat sat on the mat", "A wolf followed another wolf home"]


def test_the_logits_are_those_the_encoder_attends_with(encoder):
    moments = trained_logits(encoder, TEXTS[:1])
    weights = encoder(encoder.tokenize(TEXTS[0]).ids, return_weights=True).weights
    # the logarithm of the weights is the logits less a number a row: their row variance is the same
    for layer, w in enumerate(weights):
        logs = w[0].log()  # H T T
        centred = logs - logs.mean(-1, keepdim=True)
        expected = centred.square().mean((-2, -1))
        assert torch.allclose(moments.row_variance[layer], expected, rtol=1e-3)


def test_texts_count_by_their_pairs_and_each_is_read_alone(encoder):
    one, other = (trained_logits(encoder, [text]) for text in TEXTS)
    both = trained_logits(encoder, TEXTS)
    pairs = torch.tensor([len(encoder.tokenize(text).tokens[0]) ** 2 for text in TEXTS])
    share = pairs / pairs.sum()
    assert pairs.tolist() == [64, 64]
    mean = share[0] * one.mean + share[1] * other.mean
    assert torch.allclose(both.mean, mean, atol=1e-4)
    within = share[0] * one.row_variance + share[1] * other.row_variance
    assert torch.allclose(both.row_variance, within, rtol=1e-4)
    square = share[0] * (one.variance + one.mean**2) + share[1] * (other.variance + other.mean**2)
    assert torch.allclose(both.variance, square - mean**2, rtol=1e-3)


def test_a_constant_in_a_row_changes_the_variance_and_not_the_row_variance(encoder):
    moments = trained_logits(encoder, TEXTS)
    assert (moments.variance >= moments.row_variance - 1e-4).all()
    logits = torch.randn(3, 5)
    assert torch.allclose(masked_softmax(logits + 7), masked_softmax(logits), atol=1e-6)


@pytest.mark.parametrize("texts", [[], "The cat sat on the mat"])
def test_no_list_of_texts_is_refused(encoder, texts):
    with pytest.raises(ValueError, match="is no list of texts; pass at least one, in a list"):
        trained_logits(encoder, texts)


def test_0_02_is_what_bert_and_gpt_2_are_configured_with():
    transformers = pytest.importorskip("transformers", reason="pip install transformers")
    for config in (transformers.BertConfig(), transformers.GPT2Config()):
        assert config.initializer_range == 0.02
    assert INITIALISERS["N(0, 0.02²)"].weight_variance(768) == 0.02**2
