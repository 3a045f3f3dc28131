"""OutputMixer: one output computed in two ways, by W_O whole and by W_O head by head."""

import numpy as np
import traitlets as t

from . import base

MOST_FEATURES = 64  # columns that a page has room for


class OutputMixer(base.AttentionWidget):
    """Mix the heads' outputs with W_O, heads on or off: y = [z_0 … z_(H−1)] W_O + b_O.

    That is the sum of z_h W_O^(h) over the heads, plus b_O: W_O^(h) are the d rows of W_O that
    head h owns. A head that is off has z_h = 0. Traits to read and set: `token`, `feature` (the
    column of y that is spelled out) and `off`, a tuple of the heads that are off, sorted.

    Parameters
    ----------
    tokens : list of T str
    z : array or tensor, T (H d), the merged heads
    w_o : array or tensor, (H d) D, as in the formula: the transpose of nn.Linear's weight
    b_o : array or tensor, D; None for a layer without bias
    n_heads : int, H
    n_features : int; the page shows the first n_features of y, or all where y has fewer

    Raises ValueError or TypeError where a value breaks its rule.

    >>> mixer = OutputMixer(["a"], [[1, 2]], [[1, 3], [0, 5]], n_heads=2)
    >>> mixer.off = [1]
    >>> mixer.output()
    array([1., 3.])
    """

    _esm, _css = base.front_end("output_mixer")
    _shown = ("token", "feature", "off")

    _data = t.Dict().tag(sync=True)
    d_model = t.Int(read_only=True).tag(sync=True)
    n_heads = t.Int(read_only=True).tag(sync=True)
    n_features = t.Int(read_only=True).tag(sync=True)
    token = t.TraitType(0).tag(sync=True)
    feature = t.TraitType(0).tag(sync=True)
    off = t.TraitType(()).tag(sync=True)

    def __init__(
        self, tokens, z, w_o, b_o=None, *, n_heads, n_features=24, token=0, feature=0, off=()
    ):
        self._tokens = _words(tokens)
        z, w_o, b_o = _matrices(self._tokens, z, w_o, b_o)
        d_model = w_o.shape[1]
        self.set_trait("d_model", d_model)
        self.set_trait("n_heads", _divisor(n_heads, z.shape[1]))
        self.set_trait("n_features", min(_count(n_features), d_model))
        shown = slice(self.n_features)
        z_bytes, w_bytes = base.float16_bytes("z", z), base.float16_bytes("w_o", w_o)
        z, w_o = base.from_float16(z_bytes, z.shape[1]), base.from_float16(w_bytes, d_model)
        b_bytes = base.float16_bytes("b_o", np.zeros(d_model) if b_o is None else b_o)
        bias = base.from_float16(b_bytes, d_model)[0]
        super().__init__(
            _data={
                "tokens": list(self._tokens),
                "z": z_bytes,
                "w_o": base.float16_bytes("w_o", w_o[:, shown]),
                "b_o": None if b_o is None else base.float16_bytes("b_o", bias[shown]),
                "gram": _gram(z, w_o, bias, self.n_heads).astype("<f8").tobytes(),
            },
            token=token,
            feature=feature,
            off=off,
        )

    @t.validate("token")
    def _check_token(self, proposal):
        return base.whole("token", proposal.value, len(self.tokens), "tokens")

    @t.validate("feature")
    def _check_feature(self, proposal):
        return base.whole("feature", proposal.value, self.n_features, "features shown")

    @t.validate("off")
    def _check_off(self, proposal):
        heads = proposal.value
        a_list = hasattr(heads, "__iter__") and getattr(heads, "ndim", 1) == 1
        if isinstance(heads, str) or not a_list:
            raise base.WidgetTypeError(
                f"off={heads!r} is not a list; give the heads to switch off, such as [0, 2]"
            )
        return tuple(sorted({base.whole("a head in off", h, self.n_heads, "heads") for h in heads}))

    @property
    def tokens(self):
        """The tokens, as given; to show others, make another mixer."""
        return self._tokens

    def contributions(self):
        """Return z_h W_O^(h) of the chosen token, (H, n_features); zero for a head that is off."""
        w_o = base.from_float16(self._data["w_o"], self.n_features)  # (H d) F
        blocks = w_o.reshape(self.n_heads, -1, self.n_features)  # H d F
        return np.einsum("hd,hdf->hf", self._z(), blocks)

    def output(self):
        """Return y of the chosen token with the heads that are on, (n_features,)."""
        return self.contributions().sum(0) + self._bias()

    def length(self):
        """Return ‖y‖ over all D features with the heads that are on."""
        on = self._on()
        return float(np.sqrt(max(0.0, on @ self._gram() @ on)))

    def cosine(self):
        """Return the cosine, over all D features, of y with y when all heads are on.

        It is nan where one of the two is zero.
        """
        on, gram = self._on(), self._gram()
        every = np.ones(len(on))
        lengths = np.sqrt(max(0.0, on @ gram @ on) * max(0.0, every @ gram @ every))
        return float(on @ gram @ every / lengths) if lengths else float("nan")

    def picture(self):
        """Return the current state as the bytes of a PNG: z, y, and y as a sum over heads."""
        from .output_mixer_picture import mixer_picture  # matplotlib takes a second to import

        token = self.tokens[self.token]
        return mixer_picture(self._z(), self.contributions(), self._bias(), token, self.feature)

    def _z(self):
        """Return z of the chosen token, (H, d); zero for a head that is off."""
        z = base.from_float16(self._data["z"], 1).reshape(len(self.tokens), self.n_heads, -1)
        z = z[self.token]
        z[list(self.off)] = 0
        return z

    def _bias(self):
        stored = self._data["b_o"]
        if stored is None:
            return np.zeros(self.n_features)
        return base.from_float16(stored, self.n_features)[0]

    def _gram(self):
        """Return the inner products of the H contributions and b_O of the chosen token."""
        gram = np.frombuffer(self._data["gram"], "<f8")  # doubles: a sum of parts may cancel
        return gram.reshape(len(self.tokens), self.n_heads + 1, -1)[self.token]

    def _on(self):
        """Return 1 for each head that is on and for b_O, 0 for a head that is off, (H + 1,)."""
        on = np.ones(self.n_heads + 1)
        on[list(self.off)] = 0
        return on


def _words(tokens):
    if isinstance(tokens, str):
        raise TypeError(f"tokens={tokens!r} is one string; give a list of tokens")
    tokens = tuple(str(token) for token in tokens)
    if not tokens:
        raise ValueError("tokens is empty; give one string for each row of z")
    return tokens


def _matrices(tokens, z, w_o, b_o):
    """Return z, w_o and b_o as float64 arrays that fit each other, or raise with what fits."""
    z, w_o = _real("z", z, "T rows of H·d numbers"), _real("w_o", w_o, "H·d rows of D numbers")
    if z.ndim != 2 or len(z) != len(tokens) or not z.size:
        raise ValueError(
            f"z has shape {z.shape}, but {len(tokens)} tokens need ({len(tokens)}, H·d); "
            "merge the heads and give one row a token, such as mha.merge_heads(z)[0]"
        )
    width = z.shape[1]
    if w_o.ndim != 2 or len(w_o) != width or not w_o.size:
        turned = w_o.ndim == 2 and w_o.shape[1] == width
        hint = "; nn.Linear stores the transpose: give out_proj.weight.T" if turned else ""
        raise ValueError(
            f"w_o has shape {w_o.shape}, but z has rows of {width} numbers, "
            f"so w_o needs ({width}, D){hint or '; give one row for each of them'}"
        )
    if b_o is None:
        return z, w_o, None
    b_o = _real("b_o", b_o, "D numbers")
    if b_o.shape != w_o.shape[1:]:
        raise ValueError(
            f"b_o has shape {b_o.shape}, but w_o has {w_o.shape[1]} columns; "
            f"give ({w_o.shape[1]},), or None for no bias"
        )
    return z, w_o, b_o


def _real(name, values, wanted):
    try:
        return base.real_array(name, values)
    except TypeError:
        raise TypeError(f"{name} is not made of real numbers; give {wanted}") from None


def _divisor(n_heads, width):
    fitting = [n for n in range(1, width + 1) if width % n == 0]
    return base.one_of("n_heads", n_heads, fitting, f": they divide the width of z, {width}")


def _count(n_features):
    try:
        return base.one_of("n_features", n_features, range(1, MOST_FEATURES + 1))
    except t.TraitError as error:
        raise type(error)(
            f"n_features={n_features!r} is no number of columns that a page has room for; "
            f"give an int from 1 to {MOST_FEATURES}"
        ) from None


def _gram(z, w_o, b_o, n_heads):
    """Return the inner products of each token's H contributions and b_O, T H+1 H+1."""
    n_tokens, width = z.shape
    heads = z.reshape(n_tokens, n_heads, 1, -1)  # T H 1 d
    blocks = w_o.reshape(n_heads, width // n_heads, -1)  # H d D
    parts = (heads @ blocks)[:, :, 0]  # T H D
    bias = np.broadcast_to(b_o, (n_tokens, 1, len(b_o)))  # T 1 D
    parts = np.concatenate([parts, bias], axis=1)  # T H+1 D
    return parts @ parts.transpose(0, 2, 1)
