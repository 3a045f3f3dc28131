"""Checks of chapter 1, the soft lookup."""

import math

import numpy as np
import torch

from mha.exercises.frame import Wrong, as_array, call, compare


def by_hand(answer):
    """01.1: the output of three keys with scores 0, ln 2, ln 5 and values 80, 40, 16."""
    mistakes = {
        "The powers 1, 2 and 5 are not divided by their sum, 8.": 240,
        "That is the plain mean of the values: weigh them.": 136 / 3,
        "That is the value of the best key, a strict lookup: share the weight out.": 16,
        "The scores themselves were taken for the weights: take e to the power of each.":
            math.log(2) * 40 + math.log(5) * 16,
        "The scores were divided by their sum: take e to the power of each first.":
            (math.log(2) * 40 + math.log(5) * 16) / math.log(10),
        "The weights stand in the reverse order: the best score belongs to the value 16.":
            (5 * 80 + 2 * 40 + 16) / 8,
        "The powers were divided by the largest, 5; divide by their sum, 8.": 240 / 5,
        "The powers were divided by 3, the number of keys; divide by their sum, 8.": 240 / 3,
    }
    compare(answer, 30, mistakes, tolerance=0.05)
    return "The weights are 1/8, 2/8 and 5/8."


def soft_lookup(answer):
    """01.2: a function (query, keys, values, temperature) -> d_v."""
    for shape in (5, 3, 2, 0.5), (4, 4, 4, 1.5):  # two sizes: a number written into the code shows
        _check_soft_lookup(answer, *shape)
    return "Scores, temperature, softmax, weighted sum."


def _check_soft_lookup(answer, n_keys, width, d_v, temperature):
    generator = torch.Generator().manual_seed(1)

    def draw(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    query, keys, values = draw(width), draw(n_keys, width), draw(n_keys, d_v)
    scores = keys @ query
    unit = torch.nn.functional.normalize
    weights = (scores / temperature).softmax(0)
    powers = (scores / temperature).exp()
    mistakes = {
        "The scores are multiplied by the temperature: divide.":
            (scores * temperature).softmax(0) @ values,
        "The temperature is not used.": scores.softmax(0) @ values,
        "The temperature divides the weights: divide the scores, before the softmax.":
            scores.softmax(0) @ values / temperature,
        "The scores are divided by √d as well; here the temperature alone does it.":
            (scores / temperature / width**0.5).softmax(0) @ values,
        "The scores are divided by √d; divide by the temperature.":
            (scores / width**0.5).softmax(0) @ values,
        "That takes the cosine; the score is the dot product.":
            (unit(keys, dim=-1) @ unit(query, dim=0) / temperature).softmax(0) @ values,
        "The powers are not divided by their sum.": powers @ values,
        "The softmax is missing: the weights must be positive and sum to 1.":
            scores / temperature @ values,
        "These are the weights: multiply them by the values.": weights,
        "That is the value of the best key, a strict lookup.": values[scores.argmax()],
        "That averages the keys: the values are what is averaged.": weights @ keys,
        "The weighted values are not added up: sum over the keys.": weights[:, None] * values,
    }
    compare(call(answer, query, keys, values, temperature), weights @ values, mistakes)


def two_measures(answer):
    """01.3: a query and two keys; the dot product prefers key 0, the cosine key 1."""
    pair = answer if isinstance(answer, (list, tuple)) and len(answer) == 2 else None
    if pair is None:
        raise Wrong("A pair is asked for: (query, keys).")
    query, keys = as_array(pair[0]), as_array(pair[1])
    if query.shape != (2,) or keys.shape != (2, 2):
        raise Wrong(f"The query has shape {query.shape} and the keys {keys.shape}; "
                    "(2,) and (2, 2) are asked for.")
    lengths = np.hypot(*keys.T)  # where squares would overflow
    if not (query.any() and lengths.all()):
        raise Wrong("An arrow of length 0 points nowhere: it has no cosine.")
    dot = keys @ query
    cosine = dot / lengths / np.hypot(*query)
    if not (math.isfinite(dot.sum()) and math.isfinite(cosine.sum())):
        raise Wrong("Some of the values are not finite.")
    near = 1e-9 * abs(dot).max()
    said = (f"The dot products are {dot[0]:.3g} and {dot[1]:.3g}, "
            f"the cosines {cosine[0]:.3f} and {cosine[1]:.3f}")
    by_dot, by_cosine = dot[0] - dot[1], cosine[1] - cosine[0]
    if by_dot > near and by_cosine > 1e-9:
        return f"{said}."
    if by_dot < -near and by_cosine < -1e-9:
        raise Wrong(f"{said}: each prefers the key that the other should. Swap the keys.")
    if by_dot <= near and by_cosine <= 1e-9:
        raise Wrong(f"{said}: no measure prefers the key it should.")
    missing = "the dot product does not prefer key 0" if by_dot <= near else \
        "the cosine does not prefer key 1"
    raise Wrong(f"{said}: {missing}.")


CHECKS = {"01.1": by_hand, "01.2": soft_lookup, "01.3": two_measures}
