"""MaskPainter: paint a mask on real tokens and see the weights, read in five other ways."""

import numpy as np
import traitlets as t

from . import base

MOST = 16  # tokens that the page has room for
READINGS = ("attend", "blocked", "added", "minus 1e9", "naive", "late")
MOVED = ("mask", "query", "key")  # by the reader


class MaskPainter(base.AttentionWidget):
    """The logits of one head under a mask that the reader paints.

    Hidden keys get the logit −∞ before the softmax; a query that may see no key gets weights of 0.
    `read_as` says what becomes of the same table of True and False in code that means something
    else by it. Traits to read and set: `mask`, T rows of T bools, True = may attend; `query` and
    `key`, the row and the column that the page spells out. The page's button "Start again" goes
    back to what was given here.

    Parameters
    ----------
    tokens : sequence of str, 1 to 16
    logits : matrix of real numbers, T T
        Scaled scores, queries down and keys across; stored as float16.
    mask : matrix of bools, T T, optional
        None lets every query see every key.

    Raises ValueError or TypeError where a value breaks its rule.

    >>> painter = MaskPainter(["a", "b"], [[0, 0], [1, 1]], mask=[[True, False], [True, True]])
    >>> painter.weights().tolist()
    [[1.0, 0.0], [0.5, 0.5]]
    >>> painter.read_as("blocked")[0].tolist()  # attends where it must not
    [0.0, 1.0]
    """

    _esm, _css = base.front_end("mask_painter")
    _shown = ("mask", "query", "key")

    _data = t.Dict(read_only=True).tag(sync=True)
    _start = t.Dict(read_only=True).tag(sync=True)
    mask = t.TraitType(()).tag(sync=True)
    query = t.TraitType(0).tag(sync=True)
    key = t.TraitType(0).tag(sync=True)

    def __init__(self, tokens, logits, *, mask=None, query=0, key=0):
        self._tokens = _words(tokens)
        n_tokens = len(self._tokens)
        logits = base.real_array("logits", logits)
        if logits.shape != (n_tokens, n_tokens):
            raise base.WidgetValueError(
                f"logits has shape {logits.shape}, but there are {n_tokens} tokens; "
                f"give ({n_tokens}, {n_tokens}), the table of one head"
            )
        if mask is None:
            mask = np.ones((n_tokens, n_tokens), dtype=bool)
        stored = base.float16_bytes("logits", logits)
        super().__init__(mask=mask, query=query, key=key)
        self.set_trait("_data", {"tokens": list(self._tokens), "logits": stored})
        self.set_trait("_start", {name: getattr(self, name) for name in MOVED})

    @t.validate("mask")
    def _check_mask(self, proposal):
        given = proposal.value
        if hasattr(given, "detach"):  # a torch tensor
            given = given.detach().cpu()
        try:
            mask = np.asarray(given)
        except ValueError:  # rows of different lengths
            mask = np.asarray(None)
        n_tokens = len(self._tokens)
        if mask.dtype != bool:
            raise base.WidgetTypeError(
                f"mask holds {mask.dtype}, not bools; give True where a query may attend: "
                "mask == 1 for a table of 1 and 0"
            )
        if mask.shape != (n_tokens, n_tokens):
            raise base.WidgetValueError(
                f"mask has shape {mask.shape}, but there are {n_tokens} tokens; "
                f"give ({n_tokens}, {n_tokens}), queries down and keys across"
            )
        return tuple(tuple(row) for row in mask.tolist())

    @t.validate("query", "key")
    def _check_place(self, proposal):
        return base.whole(proposal.trait.name, proposal.value, len(self._tokens), "tokens")

    @property
    def tokens(self):
        """The tokens, a tuple of str."""
        return self._tokens

    def logits(self):
        """Return the stored logits, float64 (T, T)."""
        return base.from_float16(self._data["logits"], len(self._tokens))

    def weights(self):
        """Return the weights under the mask, float64 (T, T); a row without keys is 0."""
        visible = np.array(self.mask)
        weights = _softmax(np.where(visible, self.logits(), -np.inf))
        return np.where(visible.any(1, keepdims=True), weights, 0)

    def read_as(self, reading):
        """Return the weights that code gives which reads the table in another way, (T, T).

        "attend": True = may attend, as `weights`. "blocked": True = blocked. "added": as the
        numbers 1 and 0, added to the logits. "minus 1e9": −1e9 is added where it is False, in
        float32. "naive": −∞ is, and nobody looks after a row without keys, which becomes NaN.
        "late": the weights of hidden keys are set to 0 after the softmax.
        """
        logits, visible = self.logits(), np.array(self.mask)
        match base.one_of("reading", reading, READINGS):
            case "blocked":
                return _softmax(np.where(visible, -np.inf, logits))
            case "added":
                return _softmax(logits + visible)
            case "minus 1e9":
                bias = np.where(visible, 0, -1e9).astype(np.float32)
                return _softmax((logits.astype(np.float32) + bias).astype(np.float64))
            case "naive":
                return _softmax(np.where(visible, logits, -np.inf))
            case "late":
                return _softmax(logits) * visible
        return self.weights()

    def picture(self):
        """Return the current state as the bytes of a PNG: the mask, and the weights in it."""
        from .mask_picture import mask_picture  # matplotlib takes a second

        return mask_picture(self)


def _words(tokens):
    no_list = isinstance(tokens, (str, bytes)) or not hasattr(tokens, "__iter__")
    words = () if no_list else tuple(tokens)
    if no_list or not all(isinstance(word, str) for word in words):
        raise base.WidgetTypeError(f"tokens={tokens!r} is not a list of words; give T of type str")
    if not 1 <= len(words) <= MOST:
        raise base.WidgetValueError(f"{len(words)} tokens don't fit the page; give 1 to {MOST}")
    return words


def _softmax(logits):
    """Return the softmax of each row; NaN where it holds nothing but −∞."""
    with np.errstate(invalid="ignore"):
        powers = np.exp(logits - logits.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)
