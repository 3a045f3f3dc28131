"""What every widget of the book shares: its front end, its picture, its text."""

import base64
import math
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
    """
    files = {"attention": _script("attention")}  # name -> text, in the order of the module
    _collect(name, files)
    return "\n".join(files.values()), (STATIC / f"{name}.css").read_text("utf-8")


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


def whole(name, value, stop, plural):
    """Return `value` as an int in 0 … stop − 1, or raise with the rule and a way out."""
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        index = operator.index(value)
    except TypeError:
        raise WidgetTypeError(
            f"{name}={value!r} is not a whole number; give an int from 0 to {stop - 1}"
        ) from None
    if not 0 <= index < stop:
        raise WidgetValueError(
            f"{name}={index} is out of range: there are {stop} {plural}, counted from 0; "
            f"give 0 to {stop - 1}"
        )
    return index


def one_of(name, value, choices, reason=""):
    """Return the member of `choices` equal to `value`, or raise with the choices."""
    for choice in choices:
        if type(value) is not bool and value == choice:
            return choice
    listed = ", ".join(repr(choice) for choice in choices)
    raise WidgetValueError(f"{name}={value!r} is not a choice{reason}; try one of {listed}")


def number(name, value, low, high):
    """Return `value` as a float in low … high, or raise with the rule."""
    try:
        if isinstance(value, (bool, str)):
            raise TypeError
        result = float(value)
    except TypeError:
        raise WidgetTypeError(
            f"{name}={value!r} is not a number; give a float from {low} to {high}"
        ) from None
    if not (math.isfinite(result) and low <= result <= high):
        raise WidgetValueError(
            f"{name}={result} is out of range; give a number from {low} to {high}"
        )
    return result


def flag(name, value):
    """Return `value` as a bool, or raise."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise WidgetTypeError(f"{name}={value!r} is not a bool; give True or False")


class AttentionWidget(anywidget.AnyWidget):
    """An anywidget whose output also carries a picture and a stable text.

    A subclass sets ``_esm, _css = front_end(name)``, lists in `_shown` the traits its text shows
    and draws itself in `picture()`.
    """

    _shown = ()
    _ipython_display_ = None  # ipywidgets 7 would display without the picture

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
