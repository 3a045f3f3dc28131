"""Write tests/js/golden.json: what the widgets' JavaScript must compute, and in which colours.

python tools/write_golden.py
"""

import json
import math
import pathlib

import numpy as np

from mha.plotting import WEIGHT_MAP
from mha.reference.backward import d_masked_softmax
from mha.reference.loops import attend
from mha.widgets.scaling_explorer import standard_normals

PATH = pathlib.Path(__file__).parent.parent / "tests" / "js" / "golden.json"
N_QUERIES, N_KEYS, D_MODEL = 3, 5, 24  # 24 is the least width that all choices divide
HEADS = (1, 2, 3, 4, 6, 12, 24)
TEMPERATURE = 0.37
JACOBIANS = ((2, 1.0, 0.1), (3, 0.37, 2.0), (5, 0.05, 0.1), (7, 20.0, 4.0), (12, 1.5, 2.0))
SCALINGS = (  # d_k, scale, mean, correlation, seed, row
    (64, "1/√d_k", 0.0, 0.0, 2, 0),
    (1, "1", 1.0, -0.95, 0, 63),
    (2, "1/d_k", -0.35, 0.95, 3, 5),
    (1024, "1", 0.0, 0.0, 9999, 17),
    (512, "1", 1.0, 0.95, 7, 31),
    (1024, "1/d_k", -1.0, 0.5, 11, 2),
)
HALVES = (0.0, -0.0, 1.0, -2.5, 1 / 3, 65504.0, 2**-14, 2**-24, -(2**-15), math.inf, -math.inf)


def golden():
    """Return the inputs, as stored bytes, and for each state the weights and the entropies.

    Weights of the first and the last head only, to keep the file small; the entropy in bits,
    mean over the queries, of every head. `colours` are the 256 of the weight map, red, green, blue.
    """
    rng = np.random.default_rng(7)
    q = (2 * rng.normal(size=(N_QUERIES, D_MODEL))).astype("<f2")
    k = (2 * rng.normal(size=(N_KEYS, D_MODEL))).astype("<f2")
    halves = np.array(HALVES, "<f2")
    doubles = np.array([1 / 3, -1e-310, 1e308], "<f8")
    return {
        "n_queries": N_QUERIES,
        "n_keys": N_KEYS,
        "d_model": D_MODEL,
        "temperature": TEMPERATURE,
        "q": q.tobytes().hex(),
        "k": k.tobytes().hex(),
        "float16": {"bytes": halves.tobytes().hex(), "values": [repr(float(x)) for x in halves]},
        "float64": {"bytes": doubles.tobytes().hex(), "values": [repr(float(x)) for x in doubles]},
        "cases": list(_cases(q.astype(np.float64), k.astype(np.float64))),
        "colours": WEIGHT_MAP(range(256), bytes=True)[:, :3].tobytes().hex(),
        "empty_rows": _empty_rows(q.astype(np.float64), k.astype(np.float64)),
        "jacobians": list(_jacobians()),
        "painted": list(_painted()),
        "scalings": [list(state) for state in SCALINGS],
        "scaled": [_scaled(*state) for state in SCALINGS],
    }


def _cases(q, k):
    for n_heads in HEADS:
        d = D_MODEL // n_heads
        factors = {"sqrt": d**-0.5, "none": 1.0, "inverse": 1 / d, "temperature": 1 / TEMPERATURE}
        for scale, factor in factors.items():
            for mask in ("none", "causal"):
                seen = np.tri(N_QUERIES, N_KEYS, N_KEYS - N_QUERIES, dtype=bool)
                weights = _weights(q, k, n_heads, factor, seen if mask == "causal" else None)
                yield {
                    "n_heads": n_heads,
                    "scale": scale,
                    "mask": mask,
                    "first": _rounded(weights[0]),
                    "last": _rounded(weights[-1]),
                    "entropy": _rounded([_entropy(head) for head in weights]),
                }


def _empty_rows(q, k):
    """More queries than keys and a causal mask: the first two queries see no key."""
    return _rounded(attend(k, q, q, np.tri(N_KEYS, N_QUERIES, -2, dtype=bool), scale=0.1)[1])


def _jacobians():
    """The slopes of some softmaxes, by one backward pass for each weight."""
    rng = np.random.default_rng(4)
    for count, temperature, spread in JACOBIANS:
        logits = (spread * rng.normal(size=count)).round(3)
        powers = np.exp((logits - logits.max()) / temperature)
        weights = powers / powers.sum()
        slopes = d_masked_softmax(np.eye(count), np.tile(weights, (count, 1)))
        yield {
            "logits": logits.tolist(),
            "temperature": temperature,
            "weights": _rounded(weights),
            "slopes": _rounded(slopes),
            "norm": round(float(np.linalg.norm(slopes)), 9),
            "eigenvalue": round(float(np.linalg.eigvalsh(slopes)[-1]), 9),
        }


def _scaled(d, scale, mean, correlation, seed, row):
    """What random queries with their own keys give: of one row, and of all 64."""
    factor = {"1": 1.0, "1/√d_k": d**-0.5, "1/d_k": 1 / d}[scale]
    drawn = standard_normals(seed, np.arange(64 * 33).reshape(64, 33), d)
    q = mean + drawn[:, 0]
    k = mean + correlation * drawn[:, :1] + (1 - correlation**2) ** 0.5 * drawn[:, 1:]
    logits = factor * np.einsum("rd,rkd->rk", q, k)
    weights = np.concatenate([attend(q[r : r + 1], k[r], k[r], scale=factor)[1] for r in range(64)])
    norms, slopes = np.empty(64), np.empty(64)
    for r, p in enumerate(weights):
        jacobian = d_masked_softmax(np.eye(32), np.tile(p, (32, 1)))
        norms[r], slopes[r] = np.linalg.norm(jacobian), factor * np.linalg.norm(jacobian @ k[r])
    rows = logits.mean(1)
    error = rows.std(ddof=1) / 8
    return _rounded(
        [
            *(*logits[row, :3], *weights[row, :3], norms[row], slopes[row]),
            *(np.median(norms), norms.mean(), np.median(slopes), slopes.mean()),
            *(rows.mean(), error, logits.var() + error**2, logits.var(1, ddof=1).mean()),
        ]
    )


def _painted():
    """What MaskPainter's readings make of masks; null for NaN."""
    rng = np.random.default_rng(6)
    for count in (1, 3, 5):
        stored = (3 * rng.normal(size=(count, count))).astype("<f2")
        logits, mask = stored.astype(np.float64), rng.random((count, count)) < 0.5
        mask[0], mask[-1] = False, True
        hidden = np.where(mask, 0, -np.inf)
        far = (stored.astype(np.float32) + np.where(mask, 0, np.float32(-1e9))).astype(np.float64)
        table = {
            "attend": np.where(mask.any(1, keepdims=True), _softmax(logits + hidden), 0),
            "blocked": _softmax(np.where(mask, -np.inf, logits)),
            "added": _softmax(logits + mask),
            "minus 1e9": _softmax(far),
            "naive": _softmax(logits + hidden),
            "late": _softmax(logits) * mask,
        }
        yield {
            "logits": stored.tobytes().hex(),
            "mask": mask.astype(int).ravel().tolist(),
            "readings": {
                name: [None if math.isnan(one) else one for one in _rounded(weights)]
                for name, weights in table.items()
            },
        }


def _softmax(logits):
    with np.errstate(invalid="ignore"):
        powers = np.exp(logits - logits.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)


def _weights(q, k, n_heads, factor, mask):
    d = D_MODEL // n_heads
    columns = [slice(h * d, (h + 1) * d) for h in range(n_heads)]
    return [attend(q[:, c], k[:, c], k[:, c], mask, scale=factor)[1] for c in columns]


def _entropy(weights):
    bits = [-sum(p * math.log2(p) for p in row if p > 0) for row in weights]
    return sum(bits) / len(bits)


def _rounded(values):
    return [round(float(value), 9) for value in np.ravel(values)]


if __name__ == "__main__":
    PATH.parent.mkdir(exist_ok=True)
    PATH.write_text(json.dumps(golden(), separators=(",", ":")) + "\n", "utf-8")
    print(f"wrote {PATH.name}, {PATH.stat().st_size} bytes")
