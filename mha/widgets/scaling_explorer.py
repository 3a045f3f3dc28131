"""ScalingExplorer: what the width and the scale do to logits, softmax and gradient."""

import functools
import math

import numpy as np
import traitlets as t

from . import base

N_ROWS, N_KEYS = 64, 32  # queries, and keys of each; as in static/scaling_draw.js
WIDTHS = tuple(2**power for power in range(11))
SCALES = {"1": lambda d: 1.0, "1/√d_k": lambda d: 1 / math.sqrt(d), "1/d_k": lambda d: 1 / d}
MEAN, CORRELATION = 1.0, 0.95  # the largest
SEEDS = 10_000
SATURATED = 0.99  # of the weight on one key
N_BINS = 40
MOVED = ("d_k", "scale", "mean", "correlation", "seed", "row")  # by the reader


class ScalingExplorer(base.AttentionWidget):
    """Logits of 64 random queries, each with 32 random keys of its own, and their softmax.

    logit = scale · q·k over `d_k` entries. With u and w independent standard normal numbers, the
    entries are q_i = m + u_i and, for every key of the row, k_i = m + ρ u_i + √(1 − ρ²) w_i: each
    has mean m = `mean` and variance 1, and k_i is correlated by ρ = `correlation` with q_i of its
    row's query. So two keys of one row are correlated too, by ρ². `predicted()` holds exactly for
    one logit; `measured()` has standard errors over rows, as the logits of a row share their query.

    `d_k` is a power of two up to 1024, `scale` one of "1", "1/√d_k", "1/d_k", `mean` −1 … 1,
    `correlation` −0.95 … 0.95, `seed` names a draw, `row` the query whose softmax is drawn. Every
    trait can be read and set. A wider d_k adds entries to the same vectors.

    Raises ValueError or TypeError where a value breaks its rule.

    >>> explorer = ScalingExplorer(64, scale="1", mean=0.5)
    >>> explorer.predicted()["mean"], explorer.predicted()["variance"]
    (16.0, 96.0)
    """

    _esm, _css = base.front_end("scaling_explorer")
    _shown = MOVED

    _start = t.Dict(read_only=True).tag(sync=True)
    d_k = t.TraitType(64).tag(sync=True)
    scale = t.TraitType("1/√d_k").tag(sync=True)
    mean = t.TraitType(0.0).tag(sync=True)
    correlation = t.TraitType(0.0).tag(sync=True)
    seed = t.TraitType(2).tag(sync=True)
    row = t.TraitType(0).tag(sync=True)

    def __init__(self, d_k=64, *, scale="1/√d_k", mean=0.0, correlation=0.0, seed=2, row=0):
        super().__init__(
            d_k=d_k, scale=scale, mean=mean, correlation=correlation, seed=seed, row=row
        )
        self.set_trait("_start", {name: getattr(self, name) for name in MOVED})

    @t.validate("d_k")
    def _check_d_k(self, proposal):
        return base.one_of("d_k", proposal.value, WIDTHS)

    @t.validate("scale")
    def _check_scale(self, proposal):
        return base.one_of("scale", proposal.value, tuple(SCALES))

    @t.validate("mean")
    def _check_mean(self, proposal):
        return base.number("mean", proposal.value, -MEAN, MEAN) + 0.0  # −0.0 is written "−0"

    @t.validate("correlation")
    def _check_correlation(self, proposal):
        return base.number("correlation", proposal.value, -CORRELATION, CORRELATION) + 0.0

    @t.validate("seed")
    def _check_seed(self, proposal):
        return base.whole("seed", proposal.value, SEEDS, "draws")

    @t.validate("row")
    def _check_row(self, proposal):
        return base.whole("row", proposal.value, N_ROWS, "queries")

    def factor(self):
        """Return the number that a score is multiplied by."""
        return SCALES[self.scale](self.d_k)

    def queries(self):
        """Return the queries, float64 (64, d_k)."""
        return self.mean + _drawn(self.seed, self.d_k)[0]

    def keys_of(self, row):
        """Return the keys of one query, float64 (32, d_k)."""
        u, w = _drawn(self.seed, self.d_k)
        own = math.sqrt(1 - self.correlation**2)
        return self.mean + self.correlation * u[row] + own * w[row]

    def logits(self):
        """Return the scaled scores of each query with its keys, float64 (64, 32)."""
        queries = enumerate(self.queries())
        return self.factor() * np.array([self.keys_of(r) @ query for r, query in queries])

    def weights(self):
        """Return the softmax of the logits, float64 (64, 32); each row sums to 1."""
        logits = self.logits()
        powers = np.exp(logits - logits.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    def predicted(self):
        """Return the exact "mean" and "variance" of a logit, and "within".

        "within" is the variance of a logit while its query stays, averaged over queries. It is
        what the softmax sees: a shift that all keys of a row share does not move their weights.
        """
        m, rho, d, factor = self.mean, self.correlation, self.d_k, self.factor()
        return {
            "mean": factor * d * (m**2 + rho),
            "variance": factor**2 * d * (1 + rho**2 + 2 * m**2 * (1 + rho)),
            "within": factor**2 * d * (1 + m**2) * (1 - rho**2),
        }

    def measured(self):
        """Return the same three of the logits drawn, each a pair (value, standard error).

        Both variances are unbiased but for what is left of one mean for all rows; the errors are
        those of a mean over 64 independent rows.
        """
        logits = self.logits()
        mean, error = _with_error(logits.mean(1))
        around, spread = _with_error(((logits - mean) ** 2).mean(1))
        return {
            "mean": (mean, error),
            "variance": (around + error**2, spread),  # rows differ: their mean varies too
            "within": _with_error(logits.var(1, ddof=1)),
        }

    def gradient_norms(self):
        """Return ‖J‖ and ‖∂p/∂q‖ of each row, float64 (64,) each, Frobenius norms.

        J = diag(p) − p pᵀ is the slope of the weights by the logits, ∂p/∂q = factor · J K by the
        query, K the keys of the row.
        """
        by_logits, by_query = np.empty(N_ROWS), np.empty(N_ROWS)
        for row, p in enumerate(self.weights()):
            others = p * (1 - np.eye(N_KEYS))  # p without p_i in row i: no 1 − p that loses digits
            slopes = np.diag(p * others.sum(1)) - p[:, None] * others  # J
            keys = self.keys_of(row)
            centred = keys - keys[p.argmax()]  # J c = 0 for what all keys share
            by_logits[row] = np.linalg.norm(slopes)
            by_query[row] = self.factor() * np.linalg.norm(slopes @ centred)
        return by_logits, by_query

    def saturated(self):
        """Return the share of the 64 rows in which one key has more than 0.99 of the weight."""
        return float((self.weights().max(1) > SATURATED).mean())

    def picture(self):
        """Return the current state as the bytes of a PNG: the histogram and one softmax."""
        from .scaling_picture import scaling_picture  # matplotlib takes a second to import

        return scaling_picture(self)

    def _histogram(self):
        """Return the 41 edges of the bins and the counts in them, as on the page."""
        known = self.predicted()
        # rounding must not take another axis: hence 1e-9
        half = 2.0 ** math.ceil(math.log2(4 * math.sqrt(known["variance"])) - 1e-9)
        middle = half / 2 * math.floor(known["mean"] / (half / 2) + 0.5)
        edges = middle + np.linspace(-half, half, N_BINS + 1)
        bins = np.floor((self.logits() - edges[0]) / (half / 20)).astype(int)
        return edges, np.bincount(bins[(bins >= 0) & (bins < N_BINS)], minlength=N_BINS)


def _with_error(values):
    """Return the mean of independent numbers and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values)))


@functools.lru_cache(maxsize=1)
def _drawn(seed, width):
    """Return u, (64, width), and w, (64, 32, width), read-only."""
    vectors = np.arange(N_ROWS * (N_KEYS + 1)).reshape(N_ROWS, N_KEYS + 1)
    drawn = standard_normals(seed, vectors, width)
    drawn.flags.writeable = False
    return drawn[:, 0], drawn[:, 1:]


def standard_normals(seed, vectors, width):
    """Return the first `width` numbers of each of the `vectors` of a seed, … width.

    A place in the sequence is hashed to 32 bits, and two neighbours make two normal numbers
    (Box and Muller). The page draws the same: it holds no data.

    >>> standard_normals(0, np.array([0, 1]), 3).round(3).shape
    (2, 3)
    """
    step = np.uint32(0x9E3779B9)
    places = 1024 * np.asarray(vectors)[..., None] + np.arange(width + width % 2)
    origin = _mixed(np.array([seed], np.uint32) + step)
    uniform = (_mixed(places.astype(np.uint32) * step + origin) + 0.5) / 2**32  # never 0 or 1
    radius = np.sqrt(-2 * np.log(uniform[..., ::2]))
    angle = 2 * math.pi * uniform[..., 1::2]
    pairs = np.stack([radius * np.cos(angle), radius * np.sin(angle)], -1)
    return pairs.reshape(uniform.shape)[..., :width]


def _mixed(x):
    """Return whole numbers of 32 bits, well mixed."""
    x = (x ^ (x >> 16)) * np.uint32(0x21F0AAAD)
    x = (x ^ (x >> 15)) * np.uint32(0x735A2D97)
    return x ^ (x >> 15)
