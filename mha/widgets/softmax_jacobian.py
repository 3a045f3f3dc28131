"""SoftmaxJacobian: move the logits of one softmax and watch its derivative."""

import math

import numpy as np
import traitlets as t

from . import base

MOST = 12  # logits that the page has room for
LARGEST = 10.0  # of a logit: its slider goes from −10 to 10
TEMPERATURES = (0.05, 20.0)
LONGEST_NAME = 8  # letters; it names a row and a column of the map
MOVED = ("logits", "temperature", "cell")  # by the reader


class SoftmaxJacobian(base.AttentionWidget):
    """The softmax of two to twelve logits, and its Jacobian as a map of numbers.

    z = logit / temperature; p = softmax(z); J = ∂p[i]/∂z[k] = p[i] (δ_ik − p[k]), that is
    diag(p) − p pᵀ. Row i is the weight that moves, column k the logit that is moved. J is the
    derivative by z, *after* the division: by the logit itself it is J / temperature.

    `logits` are n numbers from −10 to 10, `names` n different words of at most 8 letters ("0",
    "1", … where none are given), `cell` the (row, column) that the page spells out. Every trait
    can be read and set; n stays. The page's button "Start again" goes back to what was given here.

    Raises ValueError or TypeError where a value breaks its rule.

    >>> softmax = SoftmaxJacobian([1.0, 1.0, -9.0], ["a", "b", "c"])
    >>> softmax.jacobian().round(3)[0].tolist()
    [0.25, -0.25, -0.0]
    >>> round(softmax.largest_eigenvalue(), 3)
    0.5
    """

    _esm, _css = base.front_end("softmax_jacobian")
    _shown = ("names", *MOVED)

    _start = t.Dict(read_only=True).tag(sync=True)
    logits = t.TraitType(()).tag(sync=True)
    names = t.TraitType(()).tag(sync=True)
    temperature = t.TraitType(1.0).tag(sync=True)
    cell = t.TraitType((0, 0)).tag(sync=True)

    def __init__(self, logits, names=None, *, temperature=1.0, cell=(0, 0)):
        logits = _several("logits", logits)
        if not 2 <= len(logits) <= MOST:
            raise base.WidgetValueError(
                f"{len(logits)} logits don't fit the page; give 2 to {MOST}"
            )
        self._count = len(logits)
        if names is None:
            names = [str(i) for i in range(self._count)]
        super().__init__(logits=logits, names=names, temperature=temperature, cell=cell)
        self.set_trait("_start", {name: getattr(self, name) for name in MOVED})

    @t.validate("logits")
    def _check_logits(self, proposal):
        given = enumerate(self._one_a_logit("logits", proposal.value))
        # −0.0 would be written "−0"
        return tuple(base.number(f"logits[{i}]", x, -LARGEST, LARGEST) + 0.0 for i, x in given)

    @t.validate("names")
    def _check_names(self, proposal):
        names = tuple(str(name) for name in self._one_a_logit("names", proposal.value))
        if len({"", *(name.strip() for name in names)}) != 1 + len(names):
            raise base.WidgetValueError(
                f"names={names!r} don't tell the logits apart; give each its own name, not blank"
            )
        longest = max(names, key=len)
        if len(longest) > LONGEST_NAME:
            raise base.WidgetValueError(
                f"the name {longest!r} has {len(longest)} letters; give at most {LONGEST_NAME}"
            )
        return names

    @t.validate("temperature")
    def _check_temperature(self, proposal):
        return base.number("temperature", proposal.value, *TEMPERATURES)

    @t.validate("cell")
    def _check_cell(self, proposal):
        pair = _several("cell", proposal.value, "(row, column)")
        if len(pair) != 2:
            raise base.WidgetValueError(
                f"cell={proposal.value!r} holds {len(pair)} numbers; give two, (row, column)"
            )
        return tuple(base.whole("a number of cell", x, self._count, "logits") for x in pair)

    def _one_a_logit(self, name, given):
        given = _several(name, given)
        if len(given) != self._count:
            raise base.WidgetValueError(
                f"{name} holds {len(given)}, but there are {self._count} logits; "
                "give one a logit, or make another SoftmaxJacobian"
            )
        return given

    def weights(self):
        """Return p = softmax(logits / temperature), float64 (n,); it sums to 1."""
        powers = self._powers()
        return powers / powers.sum()

    def jacobian(self):
        """Return ∂p[i]/∂z[k] with z = logit / temperature, float64 (n, n).

        Divide it by `temperature` for the derivative by the logit itself. On the diagonal 1 − p[i]
        is the sum of the other weights, so that it keeps its digits where p[i] is nearly 1.
        """
        p, others = self.weights(), self._others()
        slopes = -np.outer(p, p)
        np.fill_diagonal(slopes, p * others)
        return slopes

    def norm(self):
        """Return the Frobenius norm of the Jacobian, at most 1/2."""
        return math.hypot(*self.jacobian().ravel())  # squares of small numbers would be 0

    def largest_eigenvalue(self):
        """Return the largest eigenvalue of the Jacobian, from 0 to `eigenvalue_bound()`."""
        return float(np.linalg.eigvalsh(self.jacobian())[-1])

    def eigenvalue_bound(self):
        """Return min(max p, 2 · max p · (1 − max p)): no eigenvalue is larger, and it is ≤ 1/2."""
        p = self.weights()
        top = p.argmax()
        return float(min(p[top], 2 * p[top] * self._others()[top]))

    def picture(self):
        """Return the current state as the bytes of a PNG: the weights and the Jacobian."""
        from .softmax_jacobian_picture import jacobian_picture  # matplotlib takes a second

        return jacobian_picture(self)

    def _powers(self):
        z = np.array(self.logits) / self.temperature
        return np.exp(z - z.max())

    def _others(self):
        """Return 1 − p as sums of the other weights, (n,)."""
        powers = self._powers()
        beside = powers * (1 - np.eye(self._count))  # n n, no subtraction
        return beside.sum(1) / powers.sum()


def _several(name, given, wanted="one entry a logit"):
    """Return `given` (a list, an array or a tensor) as a list."""
    no_list = isinstance(given, (str, bytes)) or not hasattr(given, "__iter__")
    if no_list or getattr(given, "ndim", 1) == 0:
        raise base.WidgetTypeError(f"{name}={given!r} is not a list; give {wanted}")
    return list(given)
