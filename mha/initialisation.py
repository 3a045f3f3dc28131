"""How far the logits spread: for weights drawn as libraries draw them, and in a trained BERT."""

import math
from typing import NamedTuple

import torch
from torch import nn

from mha.attention import attention_scores
from mha.heads import split_heads


class Initialiser(NamedTuple):
    draw: object  # (d_model, n_heads) -> a (q_proj, k_proj) of nn.Linear
    weight_variance: object  # (d_model) -> the variance of one entry of W_Q or W_K
    bias_variance: object  # (d_model) -> that of one entry of a bias


class Spread(NamedTuple):
    predicted: float
    measured: float


class LogitMoments(NamedTuple):
    mean: torch.Tensor  # n_layers H
    variance: torch.Tensor  # n_layers H, about the mean of the head
    row_variance: torch.Tensor  # n_layers H, about the mean of each row: what the softmax sees


def _linear(fill):
    """Return a drawer of two bias-free layers, each weight filled by `fill(weight, d_model)`."""

    def draw(d_model, n_heads):
        pair = [nn.Linear(d_model, d_model, bias=False) for _ in "qk"]
        for linear in pair:
            fill(linear.weight, d_model)
        return pair

    return draw


def _packed(d_model, n_heads):
    """Take W_Q and W_K out of a new nn.MultiheadAttention, where one matrix holds W_V too."""
    packed = nn.MultiheadAttention(d_model, n_heads).in_proj_weight  # 3D D
    pair = [nn.Linear(d_model, d_model, bias=False) for _ in "qk"]
    for linear, weight in zip(pair, packed.chunk(3), strict=False):
        linear.weight = nn.Parameter(weight.detach().clone())
    return pair


def _none(d_model):
    return 0.0


# A uniform number from −a to a has variance a²/3; Xavier's a is √(6 / (inputs + outputs)).
INITIALISERS = {
    "N(0, 1/D)": Initialiser(
        _linear(lambda weight, d_model: nn.init.normal_(weight, std=d_model**-0.5)),
        lambda d_model: 1 / d_model,
        _none,
    ),
    "Xavier, each matrix": Initialiser(
        _linear(lambda weight, d_model: nn.init.xavier_uniform_(weight)),
        lambda d_model: 2 / (d_model + d_model),
        _none,
    ),
    "nn.MultiheadAttention": Initialiser(
        _packed,
        lambda d_model: 2 / (d_model + 3 * d_model),
        _none,
    ),
    "nn.Linear": Initialiser(
        lambda d_model, n_heads: [nn.Linear(d_model, d_model) for _ in "qk"],
        lambda d_model: 1 / (3 * d_model),
        lambda d_model: 1 / (3 * d_model),
    ),
    "N(0, 0.02²)": Initialiser(
        _linear(lambda weight, d_model: nn.init.normal_(weight, std=0.02)),
        lambda d_model: 0.02**2,
        _none,
    ),
}


def predicted_logit_variance(d_model, weight_variance, bias_variance=0.0):
    """Return the variance of a scaled logit: (D σ² + σ_b²)².

    x is normalised, |x|² = D, so an entry of q = x W_Q + b has variance D σ² + σ_b² when W_Q and b
    are drawn with mean 0 and variances σ² and σ_b², and so has one of k. q·k/√d_k multiplies the
    two: its variance over all draws does not depend on d_k, nor on the shape of the distribution.

    Parameters
    ----------
    d_model : int, D
    weight_variance, bias_variance : float, σ² and σ_b²

    Examples
    --------
    >>> predicted_logit_variance(768, 1 / 768)
    1.0
    >>> round(predicted_logit_variance(768, 0.02**2), 3)  # BERT's and GPT-2's
    0.094
    """
    return (d_model * weight_variance + bias_variance) ** 2


@torch.no_grad()
def audit(x, n_heads, *, seed=0):
    """Draw W_Q and W_K by each of INITIALISERS and say how far the scaled logits spread.

    Parameters
    ----------
    x : Tensor, B T D, normalised: each row with mean 0 and mean square 1, as LayerNorm makes it
    n_heads : int, a divisor of D
    seed : int, of the draws; the caller's own random state is left as it was

    Returns
    -------
    dict
        Name of the initialiser -> Spread(predicted, measured), two variances.

    Raises
    ------
    ValueError
        If x is not normalised.
    """
    squares = x.square().mean(-1)
    if x.mean(-1).abs().max() > 1e-3 or (squares - 1).abs().max() > 1e-2:
        raise ValueError(
            f"a row of x has mean square {squares.flatten()[(squares - 1).abs().argmax()]:.3g}; "
            "the prediction is for normalised rows: pass F.layer_norm(x, x.shape[-1:])"
        )
    d_model = x.shape[-1]
    spreads = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for name, (draw, weight_variance, bias_variance) in INITIALISERS.items():
            logits = _scaled_logits(x, *draw(d_model, n_heads), n_heads)
            predicted = predicted_logit_variance(
                d_model, weight_variance(d_model), bias_variance(d_model)
            )
            spreads[name] = Spread(predicted, logits.var().item())
    return spreads


@torch.no_grad()
def trained_logits(encoder, texts):
    """Return the mean and variance of every head's scaled logits on real texts, as LogitMoments.

    All pairs of tokens of a text are taken, [CLS] and [SEP] included, and all texts together.

    Parameters
    ----------
    encoder : mha.bert.BertEncoder
    texts : list of str

    Raises
    ------
    ValueError
        If there is no text.

    Examples
    --------
    >>> from mha import bert
    >>> trained_logits(bert.load(), ["The cat sat on the mat"]).mean.shape
    torch.Size([6, 12])
    """
    if isinstance(texts, str) or not len(texts):
        raise ValueError(f"texts={texts!r} is no list of texts; pass at least one, in a list")
    found = [[] for _ in encoder.layers]
    for text in texts:
        hidden = encoder(encoder.tokenize(text).ids).hidden
        for layer, x, logits in zip(encoder.layers, hidden, found, strict=False):
            heads = layer.attention
            logits.append(_scaled_logits(x, heads.q_proj, heads.k_proj, heads.n_heads)[0])  # H T T
    return LogitMoments(*(torch.stack(parts) for parts in zip(*map(_moments, found), strict=True)))


def _scaled_logits(x, q_proj, k_proj, n_heads):
    q, k = split_heads(q_proj(x), n_heads), split_heads(k_proj(x), n_heads)  # B H T d
    return attention_scores(q, k) / math.sqrt(q.shape[-1])  # B H T T


def _moments(per_text):
    """Return mean, variance and row variance, H each, of the logits of several texts."""
    flat = torch.cat([logits.flatten(1) for logits in per_text], dim=1)  # H all pairs
    centred = [logits - logits.mean(-1, keepdim=True) for logits in per_text]
    within = torch.cat([logits.flatten(1) for logits in centred], dim=1)
    return flat.mean(1), flat.var(1, correction=0), within.square().mean(1)
