"""What every widget of the book shares: its front end, its picture, its text."""

import base64
import contextlib
import math
import numbers
import operator
import pathlib
import re

import anywidget
import numpy as np
import traitlets as t

STATIC = pathlib.Path(__file__).parent / "static"
LOCAL_IMPORT = re.compile(r'^import \{[^}]*\} from "\./(\w+)\.js";\n', re.MULTILINE)


class WidgetValueError(t.TraitError, ValueError):
    """A value outside the rule of its trait."""


class WidgetTypeError(t.TraitError, TypeError):
    """A value of a kind its trait can't hold."""


def front_end(name):
    """Return ``(esm, css)`` of the widget stored as ``static/<name>.js`` and ``.css``.

    The browser loads the module from a blob, where it can't import a neighbour. So the files it
    imports are put in front, each once, ``attention.js`` first, and the imports are taken out.
    ``base.css`` comes before the widget's own rules.
    """
    files = {"attention": _script("attention")}  # name -> text, in the order of the module
    _collect(name, files)
    styles = [(STATIC / f"{part}.css").read_text("utf-8") for part in ("base", name)]
    return "\n".join(files.values()), "\n".join(styles)


def _script(name):
    return (STATIC / f"{name}.js").read_text("utf-8")


def _collect(name, files):
    script = _script(name)
    for neighbour in LOCAL_IMPORT.findall(script):
        if neighbour not in files:
            _collect(neighbour, files)
    files[name] = LOCAL_IMPORT.sub("", script)


def float16_bytes(name, values):
    """Return `values` as little-endian float16 bytes, row by row.

    >>> float16_bytes("q", [[1.0, -2.0]]).hex()
    '003c00c0'
    """
    exact = np.asarray(values, dtype=np.float64)
    largest = float(np.abs(exact).max(initial=0.0))
    if not largest < 65520:  # above, float16 rounds to infinity; NaN compares false
        raise WidgetValueError(
            f"{name} holds {largest}, and a widget stores float16 (finite, at most 65504); "
            f"rescale {name} or replace what is not finite"
        )
    return exact.astype("<f2").tobytes()


def from_float16(stored, width):
    """Return float16 bytes as a float64 array with `width` columns."""
    return np.frombuffer(stored, dtype="<f2").astype(np.float64).reshape(-1, width)


def real_array(name, values):
    """Return `values` (a list, an array or a tensor of any float type) as a read-only float64 copy.

    >>> real_array("q", [[1, 2]])
    array([[1., 2.]])
    """
    if hasattr(values, "detach"):  # a torch tensor: perhaps on a device, in a graph, in bfloat16
        values = values.detach().cpu()
        values = values if values.is_complex() else values.double()
    try:
        found = np.asarray(values)
    except ValueError:  # rows of different lengths
        found = np.asarray(None)
    if found.dtype.kind not in "iuf":
        raise TypeError(f"{name} is not a matrix of real numbers; give one row of D for each token")
    found = found.astype(np.float64)
    found.flags.writeable = False
    return found


def _plain(value):
    """Return the Python number in a scalar of numpy or torch, anything else as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 else value


def _index(value):
    """Return `value` as an int, or None where it is no whole number."""
    value = _plain(value)
    if isinstance(value, bool) or getattr(value, "ndim", 0):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def whole(name, value, stop, plural):
    """Return `value` as an int in 0 … stop − 1, or raise with the rule and a way out."""
    index = _index(value)
    if index is None:
        raise WidgetTypeError(
            f"{name}={value!r} is not a whole number; give an int from 0 to {stop - 1}"
        )
    if not 0 <= index < stop:
        raise WidgetValueError(
            f"{name}={index} is out of range: there are {stop} {plural}, counted from 0; "
            f"give 0 to {stop - 1}"
        )
    return index


def divisor(name, value, width):
    """Return `value` as an int that divides `width` (d_model), or raise with those that do."""
    index = _index(value)
    if index is None:
        raise WidgetTypeError(f"{name}={value!r} is not a whole number; give an int")
    if index < 1 or width % index:
        fitting = ", ".join(str(n) for n in range(1, width + 1) if width % n == 0)
        raise WidgetValueError(
            f"{name}={index} does not divide d_model={width}; give one of {fitting}"
        )
    return index


def one_of(name, value, choices, way_out=""):
    """Return the member of `choices` that `value` is, or raise with the choices.

    The choices are all ints or all strings.
    """
    known = value if isinstance(value, str) else _index(value)
    if known in choices:
        return choices[choices.index(known)]
    listed = ", ".join(repr(choice) for choice in choices)
    kind = WidgetValueError if isinstance(known, type(choices[0])) else WidgetTypeError
    raise kind(f"{name}={value!r} is not a choice; try one of {listed}{way_out}")


def number(name, value, low, high):
    """Return `value` as a float in low … high, or raise with the rule."""
    plain = _plain(value)
    if isinstance(plain, bool) or not isinstance(plain, numbers.Real):
        raise WidgetTypeError(
            f"{name}={value!r} is not a number; give a float from {low} to {high}"
        )
    try:
        result = float(plain)
    except OverflowError:
        result = math.inf if plain > 0 else -math.inf
    if not (math.isfinite(result) and low <= result <= high):
        raise WidgetValueError(
            f"{name}={result} is out of range; give a number from {low} to {high}"
        )
    return result


def flag(name, value):
    """Return `value` as a bool, or raise."""
    plain = _plain(value)
    if isinstance(plain, bool):
        return plain
    raise WidgetTypeError(f"{name}={value!r} is not a bool; give True or False")


class AttentionWidget(anywidget.AnyWidget):
    """An anywidget whose output also carries a picture and a stable text.

    A subclass sets ``_esm, _css = front_end(name)``, lists in `_shown` the traits its text shows
    and draws itself in `picture()`.
    """

    _shown = ()
    _in_one_go = False  # whether several traits are being set together
    _ipython_display_ = None  # ipywidgets 7 would display without the picture

    def __init__(self, **state):
        self._in_one_go = True
        super().__init__(**state)
        self._in_one_go = False

    @contextlib.contextmanager
    def hold_trait_notifications(self):
        """Set several traits in one go, as a message from the page does."""
        before, self._in_one_go = self._in_one_go, True
        try:
            with super().hold_trait_notifications():
                yield
        finally:
            self._in_one_go = before

    def set_state(self, sync_data):
        """Take over what the page sends, but for what only Python sets."""
        traits = self.traits(sync=True)
        own = {n for n, trait in traits.items() if trait.read_only or n in ("_data", "_start")}
        super().set_state({name: value for name, value in sync_data.items() if name not in own})

    def __repr__(self):
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._shown)
        return f"{type(self).__name__}({shown})"

    def picture(self):
        """Return the current state as the bytes of a PNG, for readers without JavaScript."""
        raise NotImplementedError(f"{type(self).__name__} draws no picture; define picture()")

    def _repr_mimebundle_(self, **kwargs):
        data, metadata = super()._repr_mimebundle_(**kwargs)
        data["image/png"] = base64.b64encode(self.picture()).decode("ascii")
        return data, metadata
