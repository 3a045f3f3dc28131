"""SoftLookup: compare a query with a few keys, all arrows, and average the keys' values."""

import math

import numpy as np
import traitlets as t

from . import base

MEASURES = ("dot", "cosine")
TEMPERATURES = (0.05, 20.0)
LONGEST = 3.0  # of an arrow: the plane shows a disc of this radius
DECIMALS = 6  # of a coordinate, here and on the page: 0.6 in float32 stays 0.6
LARGEST = 1e9  # of a value
LONGEST_UNIT = 8  # letters; it stands behind each number
MOVED = ("query", "key_arrows", "temperature", "measure", "chosen", "key")  # by the reader


class SoftLookup(base.AttentionWidget):
    """A query and two to six keys, arrows of a plane, and the weighted mean of the keys' values.

    score = q·k with ``measure="dot"``, the cosine of their angle with ``"cosine"``; logit =
    score / temperature; weights = softmax of the logits; output = Σ weight · value. An arrow of
    length 0 has no angle, hence no cosine; its score is then taken as 0.

    `keys` are n arrows (x, y), no longer than 3, `values` n numbers in `unit`, `names` n different
    words. The page's controls move the arrow `chosen`, ``"query"`` or the number of a key, and take
    the score of the key `key` apart; its button "start again" goes back to what was given here.
    Every trait can be read and set; a key that is chosen alone becomes `key` too. The arrows of
    the keys are read and set as `key_arrows`: ipywidgets itself has the name ``keys``.
    Coordinates are rounded to six decimals.

    Raises ValueError or TypeError where a value breaks its rule.

    >>> lookup = SoftLookup([(0, 1), (1, 0)], [800, 200], ["north", "east"], query=(0, 1))
    >>> lookup.temperature = 0.05
    >>> round(lookup.output())
    800
    """

    _esm, _css = base.front_end("soft_lookup")
    _shown = MOVED

    _start = t.Dict(read_only=True).tag(sync=True)
    key_arrows = t.TraitType(()).tag(sync=True)
    values = t.TraitType(()).tag(sync=True)
    names = t.TraitType(()).tag(sync=True)
    unit = t.TraitType("").tag(sync=True)
    query = t.TraitType(()).tag(sync=True)
    temperature = t.TraitType(1.0).tag(sync=True)
    measure = t.TraitType("dot").tag(sync=True)
    chosen = t.TraitType("query").tag(sync=True)
    key = t.TraitType(0).tag(sync=True)

    def __init__(
        self,
        keys,
        values,
        names,
        *,
        query=(0.6, 0.8),
        temperature=1.0,
        measure="dot",
        chosen="query",
        key=None,
        unit="",
    ):
        keys = [_arrow(f"keys[{j}]", arrow) for j, arrow in enumerate(_several("keys", keys))]
        if not 2 <= len(keys) <= 6:
            raise base.WidgetValueError(f"{len(keys)} keys don't fit the page; give 2 to 6")
        self._n_keys = len(keys)
        chosen = self._arrow_number("chosen", chosen)
        if key is None:  # traitlets checks in any order, and this depends on another trait
            key = 0 if chosen == "query" else chosen
        super().__init__(
            key_arrows=keys,
            values=values,
            names=names,
            unit=unit,
            query=query,
            temperature=temperature,
            measure=measure,
            chosen=chosen,
            key=key,
        )
        self.set_trait("_start", {name: getattr(self, name) for name in MOVED})

    @t.validate("key_arrows")
    def _check_key_arrows(self, proposal):
        arrows = self._one_a_key("key_arrows", proposal.value)
        return tuple(_arrow(f"key_arrows[{j}]", arrow) for j, arrow in enumerate(arrows))

    @t.validate("values")
    def _check_values(self, proposal):
        values = self._one_a_key("values", proposal.value)
        checked = (base.number(f"values[{j}]", v, -LARGEST, LARGEST) for j, v in enumerate(values))
        return tuple(checked)

    @t.validate("names")
    def _check_names(self, proposal):
        names = tuple(str(name) for name in self._one_a_key("names", proposal.value))
        if len({"query", "", *(name.strip() for name in names)}) != 2 + len(names):
            raise base.WidgetValueError(
                f"names={names!r} don't tell the arrows apart; give each key its own name, "
                "not blank and not 'query'"
            )
        return names

    @t.validate("unit")
    def _check_unit(self, proposal):
        if not isinstance(proposal.value, str):
            raise base.WidgetTypeError(f"unit={proposal.value!r} is not a word; give a str")
        if len(proposal.value) > LONGEST_UNIT:
            raise base.WidgetValueError(
                f"unit={proposal.value!r} has {len(proposal.value)} letters; give at most "
                f"{LONGEST_UNIT}, such as 'm'"
            )
        return proposal.value

    @t.validate("query")
    def _check_query(self, proposal):
        return _arrow("query", proposal.value)

    @t.validate("temperature")
    def _check_temperature(self, proposal):
        return base.number("temperature", proposal.value, *TEMPERATURES)

    @t.validate("measure")
    def _check_measure(self, proposal):
        return base.one_of("measure", proposal.value, MEASURES)

    @t.validate("chosen")
    def _check_chosen(self, proposal):
        return self._arrow_number("chosen", proposal.value)

    @t.validate("key")
    def _check_key(self, proposal):
        return base.whole("key", proposal.value, self._n_keys, "keys")

    @t.observe("chosen")
    def _take_apart(self, change):
        if not self._in_one_go and change.new != "query":
            self.key = change.new

    def _arrow_number(self, name, value):
        """Return ``"query"`` or the number of a key."""
        if isinstance(value, str):
            numbers = f", or the number of a key, 0 to {self._n_keys - 1}"
            return base.one_of(name, value, ("query",), numbers)
        return base.whole(name, value, self._n_keys, "keys")

    def _one_a_key(self, name, given):
        given = _several(name, given)
        if len(given) != self._n_keys:
            raise base.WidgetValueError(
                f"{name} holds {len(given)}, but there are {self._n_keys} keys; "
                "give one a key, or make another SoftLookup"
            )
        return given

    def scores(self):
        """Return how well each key fits the query, float64 (n,)."""
        keys, query = np.array(self.key_arrows), np.array(self.query)  # n 2, 2
        scores = keys @ query
        if self.measure == "dot":
            return scores
        lengths = np.hypot(*keys.T) * np.hypot(*query)
        return np.divide(scores, lengths, where=lengths > 0, out=np.zeros_like(scores))

    def logits(self):
        """Return the scores divided by the temperature, float64 (n,)."""
        return self.scores() / self.temperature

    def weights(self):
        """Return the softmax of the logits, float64 (n,); it sums to 1."""
        logits = self.logits()
        powers = np.exp(logits - logits.max())
        return powers / powers.sum()

    def output(self):
        """Return the sum of every value times its weight, a float in `unit`."""
        return float(self.weights() @ np.array(self.values))

    def picture(self):
        """Return the current state as the bytes of a PNG: the arrows, the weights, the output."""
        from .soft_lookup_picture import lookup_picture  # matplotlib takes a second to import

        return lookup_picture(self)


def _several(name, given):
    """Return `given` (a list, an array or a tensor) as a list."""
    no_list = isinstance(given, (str, bytes)) or not hasattr(given, "__iter__")
    if no_list or getattr(given, "ndim", 1) == 0:
        raise base.WidgetTypeError(f"{name}={given!r} is not a list; give one entry a key")
    return list(given)


def _arrow(name, value):
    """Return `value` as a tuple (x, y) of rounded floats, or raise with the rule."""
    try:
        x, y = () if isinstance(value, (str, bytes)) else value
    except (TypeError, ValueError):
        raise base.WidgetTypeError(
            f"{name}={value!r} is not an arrow of the plane; give two numbers (x, y)"
        ) from None
    pair = (base.number(f"{name}[{i}]", one, -LONGEST, LONGEST) for i, one in enumerate((x, y)))
    x, y = (round(one, DECIMALS) + 0.0 for one in pair)  # −0.0 would be written "−0"
    length = math.hypot(x, y)
    if length > LONGEST + 2 * 10**-DECIMALS:  # what rounding may add
        raise base.WidgetValueError(
            f"{name}=({x:g}, {y:g}) has length {length:.7g}, and the plane shows arrows up to "
            f"length {LONGEST:g}; make it shorter"
        )
    return x, y
