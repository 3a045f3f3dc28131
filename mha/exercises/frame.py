"""The parts every chapter's checks are made of.

A check takes an answer and returns one sentence of praise, or raises `Wrong` with a sentence that
names the mistake. A usual mistake is recognised by computing what it gives: `compare` holds the
answer against the right value first, then against each wrong one.
"""

import warnings
from dataclasses import dataclass

import numpy as np
import torch

# where torch warns and then guesses: a softmax without its axis, `.T` on a batch
GUESSES = ("Implicit dimension choice", r"The use of `x\.T` on tensors")


class Wrong(Exception):
    """The answer is wrong; the message says how."""


class Unanswered(Exception):
    """The `...` is still there."""


@dataclass(frozen=True)
class Verdict:
    """What `check` returns; its repr is the line the reader sees."""

    number: str
    right: bool | None
    text: str

    def __repr__(self):
        return f"{self.number}: {self.text}"


def as_array(answer):
    """The answer as float64, whether it came as a number, list, array or tensor."""
    kind = type(answer).__name__
    try:
        if isinstance(answer, torch.Tensor):
            answer = answer.detach().cpu().numpy()
        elif isinstance(answer, (list, tuple)):
            answer = [as_array(part) for part in answer]
        array = np.asarray(answer)
        if np.iscomplexobj(array):
            raise Wrong("Real numbers are asked for; these are complex.")
        return array.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise Wrong(f"Numbers are asked for; this {kind} can't be read as numbers.") from None


def call(function, *arguments):
    """Call the reader's function; an error inside it becomes a verdict instead of a traceback."""
    if not callable(function):
        raise Wrong(f"A function is asked for, this is a {type(function).__name__}: "
                    "pass its name, without calling it.")
    tensors = [one for one in arguments if isinstance(one, torch.Tensor)]
    shapes = ", ".join(str(tuple(one.shape)) for one in tensors)
    always = torch.is_warn_always_enabled()  # else torch warns once a session
    copies = [one.clone() if isinstance(one, torch.Tensor) else one for one in arguments]
    try:
        torch.set_warn_always(True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            batched = any(one.ndim > 2 for one in tensors)  # `.T` of a vector is the vector
            for message in GUESSES if batched else GUESSES[:1]:
                warnings.filterwarnings("error", message=message)
            result = function(*copies)
    except Exception as error:
        hint = " For the last two axes, use transpose(-2, -1)." if ".T" in str(error) else ""
        raise Wrong(f"Called with shapes {shapes}, your function raised "
                    f"{type(error).__name__}: {error}{hint}") from None
    finally:
        torch.set_warn_always(always)
    if result is None:
        raise Wrong("Your function returns None: is a `return` missing?")
    if result is Ellipsis:
        raise Unanswered
    if isinstance(result, (list, tuple)):
        raise Wrong(f"Your function returns a {type(result).__name__} of {len(result)} parts; "
                    "one tensor is asked for.")
    return result


def compare(answer, right, mistakes, tolerance=1e-4):
    """Accept `right`; name the mistake where the answer equals one of the wrong values.

    Parameters
    ----------
    answer : number, list, array or tensor
    right : array
    mistakes : dict
        Sentence that names the mistake -> the value this mistake gives.
    tolerance : float
        Largest absolute difference that still counts as equal.

    Raises
    ------
    Wrong
        With the sentence of the mistake, else with the shape or the largest difference.
    """
    answer, right = as_array(answer), as_array(right)
    if _equal(answer, right, tolerance):
        return
    for sentence, value in mistakes.items():
        if _equal(answer, as_array(value), tolerance):
            raise Wrong(sentence)
    if answer.shape != right.shape:
        raise Wrong(f"The shape is {answer.shape}; {right.shape} is asked for.")
    if not np.isfinite(answer).all():
        raise Wrong("Some of the values are not finite.")
    raise Wrong(f"The shape is right; the largest difference is {abs(answer - right).max():.3g}.")


def _equal(a, b, tolerance):
    return a.shape == b.shape and bool((abs(a - b) <= tolerance).all())
