"""Compare implementations with the oracles, and show the result as a table."""

import math
from dataclasses import dataclass
from functools import cache
from html import escape
from typing import NamedTuple

import torch

from mha.testing.cases import SETTINGS, build_case, draw, find
from mha.testing.implementations import IMPLEMENTATIONS, Unsupported

TOLERANCE, SMALL = 1e-12, "≤ 1e-12"  # rounding, of which the table shows no digit
# The site's own rules for tables come earlier and weigh no more. On a phone heads stand upright.
STYLE = """<style>
.mha-agreement {font-family: var(--book-sans, sans-serif); font-size: .85rem; line-height: 1.3}
.mha-agreement table {border-collapse: collapse; font-size: inherit; margin: 0 0 .5rem}
.mha-agreement caption {caption-side: top; text-align: left; padding-bottom: .3rem}
.mha-agreement tr :is(th, td) {padding: .25rem .5rem .25rem 0; border-bottom: 1px solid #8886;
  text-align: left; vertical-align: top; font-size: inherit}
.mha-agreement thead :is(th, td) {vertical-align: bottom}
.mha-agreement tr td {white-space: nowrap}
.mha-agreement p {margin: 0}
@media (max-width: 600px) {
  .mha-agreement thead th {writing-mode: vertical-rl; transform: rotate(180deg)}
  .mha-agreement tr :is(th, td) {padding-right: .25rem}
  .mha-agreement tr td {font-size: .78rem; white-space: normal}
  .mha-agreement sup {font-size: .68em}
}
</style>"""
Y_ORACLE, GRADIENT_ORACLE = "NumPy loops", "NumPy arrays"


class Difference(NamedTuple):
    """The largest absolute differences from the oracles.

    `gradients` is None if not compared, and for the oracle of the gradients itself.
    """

    y: float
    gradients: float | None

    def largest(self):
        """Return the larger one; NaN if one of them is."""
        numbers = [number for number in self if number is not None]
        return math.nan if any(map(math.isnan, numbers)) else max(numbers)


def compare_implementations(implementations=None, settings=None, *, gradients=True):
    """Compare y and its gradients, by the inputs and all parameters, with those of the oracles.

    Parameters
    ----------
    implementations : list of names in IMPLEMENTATIONS, or dict, name to a function that takes a
        Case and returns y, B T D, or raises Unsupported; None means all but the oracle, the loops
    settings : list of names in SETTINGS; None means all
    gradients : bool, False for implementations that autograd can't go back through

    Returns
    -------
    Comparison, which shows itself as a table; `.holds(1e-12)` says whether they agree

    Raises
    ------
    TypeError, ValueError
        Unknown names; a result that is no tensor, has another shape or no gradient.

    >>> mine = {"mine": lambda case: case.layer(case.x, case.context)}  # forgets the mask
    >>> compare_implementations(mine, ["cross-attention", "padding"])
    Largest difference from NumPy: y from the loops, gradients from a complex step
                     mine
    cross-attention  ≤ 1e-12
    padding          2e+00
    """
    if implementations is None:
        implementations = [name for name in IMPLEMENTATIONS if name != Y_ORACLE]
    known = implementations if isinstance(implementations, dict) else IMPLEMENTATIONS
    names = _list("implementations", implementations)
    chosen = {name: find("implementation", name, known) for name in names}
    settings = list(SETTINGS) if settings is None else _list("settings", settings)
    differences = {}
    for setting in settings:
        row = {name: _compare(name, one, setting, gradients) for name, one in chosen.items()}
        differences[setting] = row
    return Comparison(differences)


@dataclass(frozen=True, repr=False)
class Comparison:
    """What `compare_implementations` found: `differences[setting][implementation]`.

    Each is a Difference, or a str, the reason why there is none. In the table a cell says
    "≤ 1e-12", or else the larger difference, of y or of a gradient, to one digit.
    """

    differences: dict

    def holds(self, tolerance):
        """Whether there are differences, and all are at most `tolerance` (NaN is not)."""
        cells = [cell for row in self.differences.values() for cell in row.values()]
        numbers = [cell.largest() for cell in cells if isinstance(cell, Difference)]
        return bool(numbers) and all(number <= tolerance for number in numbers)

    def __repr__(self):
        table, notes = self._texts()
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        return "\n".join([self._caption(), *lines, *notes])

    def _repr_html_(self):
        (_, *names), *rows = [[escape(text) for text in row] for row in self._texts()[0]]
        names = [name.replace("head", "<wbr>head") for name in names]  # where a long one may break
        head = "".join(f'<th scope="col">{name}</th>' for name in names)
        body = ""
        for setting, *cells in rows:
            cells = (cell.replace(SMALL, "≤ 10<sup>−12</sup>") for cell in cells)
            numbers = "".join(f"<td>{cell}</td>" for cell in cells)
            body += f'<tr><th scope="row">{setting}</th>{numbers}</tr>'
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._texts()[1])
        return (
            f'{STYLE}<div class="mha-agreement"><table><caption>{self._caption()}</caption>'
            f"<thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>{notes}</div>"
        )

    def _caption(self):
        cells = [cell for row in self.differences.values() for cell in row.values()]
        compared = any(cell.gradients is not None for cell in cells if isinstance(cell, Difference))
        slopes = ", gradients from a complex step" if compared else ""
        return f"Largest difference from NumPy: y from the loops{slopes}"

    def _texts(self):
        """Return the table as rows of text, the head first, and the notes below it."""
        names = list(next(iter(self.differences.values())))
        reasons, table = [], [["", *names]]
        for setting, row in self.differences.items():
            texts = []
            for name, cell in row.items():
                if isinstance(cell, Difference):
                    largest = cell.largest()
                    texts.append(SMALL if largest <= TOLERANCE else f"{largest:.0e}")
                    continue
                reason = f"{name}: {cell}"
                reasons += [] if reason in reasons else [reason]
                texts.append(f"— ({reasons.index(reason) + 1})")
            table.append([setting, *texts])
        return table, [f"({number}) {reason}" for number, reason in enumerate(reasons, 1)]


def _compare(name, implementation, setting, gradients):
    """Return a Difference, or the reason why there is none."""
    case = build_case(setting)
    try:
        y = implementation(case)
    except Unsupported as reason:
        return str(reason)
    expected = _oracle(setting)
    _check_result(name, y, expected)
    largest = _largest_difference([y], [expected])
    if not gradients or implementation is IMPLEMENTATIONS[GRADIENT_ORACLE]:
        return Difference(largest, None)
    return Difference(largest, _largest_difference(_slopes(name, y, case), _slopes_oracle(setting)))


@cache
def _oracle(setting):
    return IMPLEMENTATIONS[Y_ORACLE](build_case(setting))


@cache
def _slopes_oracle(setting):
    case = build_case(setting)
    return _slopes(GRADIENT_ORACLE, IMPLEMENTATIONS[GRADIENT_ORACLE](case), case)


def _slopes(name, y, case):
    """Return the gradients of Σ upstream · y, in which each number of y has its own factor."""
    if not y.requires_grad:
        raise ValueError(
            f"{name!r} returns a y without gradients; compute it from case.x, case.context and "
            "case.layer under autograd, or compare with gradients=False"
        )
    upstream = draw(*y.shape, seed=40)
    tensors = case.differentiable()
    # What y does not depend on has the gradient 0, as when a bias is forgotten.
    return torch.autograd.grad(y, tensors, upstream, allow_unused=True, materialize_grads=True)


def _largest_difference(ones, others):
    differences = [(a - b).abs().max() for a, b in zip(ones, others, strict=True)]
    return torch.stack(differences).max().item()  # NaN if there is one


def _check_result(name, y, expected):
    if not isinstance(y, torch.Tensor):
        raise TypeError(f"{name!r} returns a {type(y).__name__}; return y alone, a tensor B T D")
    if y.shape != expected.shape:
        raise ValueError(
            f"{name!r} returns shape {tuple(y.shape)}; return y, B T D = {tuple(expected.shape)}"
        )


def _list(kind, names):
    if isinstance(names, str):
        raise TypeError(f"{kind}={names!r} is one name; pass a list, [{names!r}]")
    names = list(names)
    if not names:
        raise ValueError(f"{kind} is empty; name one at least, or pass None for all")
    return names
