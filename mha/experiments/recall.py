"""Recall: one query, S pairs of a key and a value; return the value of the key that is asked for.

The same head, trained with its scores times 1, 1/√d_k and 1/d_k. The record shows what the scale
does to learning: `python -m mha.experiments recall`.
"""

import torch
import torch.nn.functional as F
from torch import nn

from mha.attention import scaled_dot_product_attention
from mha.experiments.training import train

SCALES = {"1": lambda d_k: 1.0, "1/√d_k": lambda d_k: d_k**-0.5, "1/d_k": lambda d_k: 1 / d_k}
N_PAIRS = 16  # S
N_VALUES = 16  # what a value can be; one right answer in 16 is chance
SHARPNESS = 8.0  # of the answer: a weight of 1 on one value gives it e⁸ times the others' chance
GOAL = 0.95


class RecallHead(nn.Module):
    """One head whose only parameters are W_Q and W_K: it has to learn where to look.

    q = asked W_Q, k = keys W_K, both Xavier-uniform; z = the weighted values, which are one-hot;
    logits of the answer = SHARPNESS · z. With entries of mean 0 and variance 1 in asked and keys
    the scores have variance d_k at the start.

    Parameters
    ----------
    scale : float, what the scores are multiplied by
    d_k : int, the width of queries and keys, and of what they are made from

    Examples
    --------
    >>> asked, keys, values, answer = draw_batch(5, 6, torch.Generator().manual_seed(0))
    >>> RecallHead(scale=0.5, d_k=6)(asked, keys, values).shape  # B N_VALUES
    torch.Size([5, 16])
    """

    def __init__(self, *, scale, d_k):
        super().__init__()
        self.scale = scale
        self.q_proj = nn.Linear(d_k, d_k, bias=False)
        self.k_proj = nn.Linear(d_k, d_k, bias=False)
        for projection in (self.q_proj, self.k_proj):
            nn.init.xavier_uniform_(projection.weight)

    def forward(self, asked, keys, values):
        q, k = self.q_proj(asked)[:, None], self.k_proj(keys)  # B 1 d, B S d
        z, _ = scaled_dot_product_attention(q, k, values, scale=self.scale)  # B 1 N_VALUES
        return SHARPNESS * z[:, 0]  # B N_VALUES


def draw_batch(size, d_k, generator):
    """Draw `size` questions: asked (B d), keys (B S d), values (B S N_VALUES), answer (B).

    `asked` is one of the keys, and `answer` the number of this key's value. Every question has new
    keys: no key can be learnt by heart.
    """
    keys = torch.randn(size, N_PAIRS, d_k, generator=generator)
    numbers = torch.randint(N_VALUES, (size, N_PAIRS), generator=generator)  # B S
    place = torch.randint(N_PAIRS, (size,), generator=generator)
    rows = torch.arange(size)
    values = F.one_hot(numbers, N_VALUES).to(keys.dtype)
    return keys[rows, place], keys, values, numbers[rows, place]


def train_one(scale, *, seed, d_k=256, steps=240, every=4, batch=128, n_test=1000):
    """Train one head; return its steps, its accuracies on new questions, and when it reached GOAL.

    Parameters
    ----------
    scale : str, a key of SCALES
    seed : int, of the weights and the questions; scales share weights and questions of one seed
    d_k, steps, every, batch, n_test : int

    Returns
    -------
    dict
        "step" and "accuracy", lists; "goal_at", the first of these steps at GOAL, or None.
    """
    torch.manual_seed(seed)
    head = RecallHead(scale=SCALES[scale](d_k), d_k=d_k)
    generator = torch.Generator().manual_seed(seed)
    *test, right = draw_batch(n_test, d_k, torch.Generator().manual_seed(1000 + seed))
    curve = {"step": [], "accuracy": []}

    def next_loss():
        *questions, answer = draw_batch(batch, d_k, generator)
        return F.cross_entropy(head(*questions), answer)

    def watch(step):
        curve["step"].append(step)
        hits = head(*test).argmax(-1) == right
        curve["accuracy"].append(round(hits.double().mean().item(), 4))

    train(head, next_loss, steps=steps, learning_rate=1e-3, watch=watch, every=every)
    reached = [s for s, a in zip(curve["step"], curve["accuracy"], strict=True) if a >= GOAL]
    return {**curve, "goal_at": reached[0] if reached else None}


def run(seeds=(0, 1, 2), **sizes):
    """Train a head with each scale and each seed and return the record.

    Numbers below the smallest normal float, which a saturated softmax makes, are taken for 0: a
    CPU computes with them many times slower.
    """
    torch.set_flush_denormal(True)
    try:
        curves = {name: [train_one(name, seed=seed, **sizes) for seed in seeds] for name in SCALES}
    finally:
        torch.set_flush_denormal(False)
    return {"seeds": list(seeds), "goal": GOAL, "scales": curves}
