"""HeadExplorer: cut the same queries and keys into another number of heads."""

import dataclasses
import io

import numpy as np
import traitlets as t

from . import base

HEAD_CHOICES = (1, 2, 3, 4, 6, 12, 24)
SCALES = ("sqrt", "none", "inverse", "temperature")
TEMPERATURES = (0.1, 1000.0)
PICTURE_COLOURS = ("#ffffff", "#9a5496", "#380a38")  # weight 0, ½, 1, as in the front end


@dataclasses.dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence with the queries and keys of one layer.

    `tokens` are T strings; `q` and `k` are (T, D), before the split into heads; `task` says which
    relation to find; `answer`, if given, is where to find it: (n_heads, head, query, key); `text`
    names the sentence in the list, the tokens joined by spaces if empty.
    """

    tokens: tuple
    q: np.ndarray
    k: np.ndarray
    task: str = ""
    answer: tuple | None = None
    text: str = ""

    def __post_init__(self):
        if isinstance(self.tokens, str):
            raise TypeError(f"tokens={self.tokens!r} is one string; give a list of tokens")
        object.__setattr__(self, "tokens", tuple(str(token) for token in self.tokens))
        for name in ("q", "k"):
            values = np.asarray(getattr(self, name))
            if values.ndim != 2 or len(values) != len(self.tokens) or not values.size:
                raise ValueError(
                    f"{name} has shape {values.shape}, but {len(self.tokens)} tokens need "
                    f"({len(self.tokens)}, D); give one row a token, heads not yet split"
                )
            object.__setattr__(self, name, values)
        if self.q.shape != self.k.shape:
            raise ValueError(
                f"q has shape {self.q.shape} and k {self.k.shape}; give both the same width"
            )

    def to_json(self):
        """Return what the front end reads: float16 bytes for `q` and `k`."""
        return {
            "text": self.text or " ".join(self.tokens),
            "tokens": list(self.tokens),
            "q": base.float16_bytes("q", self.q),
            "k": base.float16_bytes("k", self.k),
            "task": self.task,
            "answer": None if self.answer is None else [int(part) for part in self.answer],
        }


class HeadExplorer(base.AttentionWidget):
    """Every head's weights on real sentences, for any cut of the same q and k.

    logits = q·k · factor, with factor 1/√d_k (``scale="sqrt"``), 1 (``"none"``), 1/d_k
    (``"inverse"``) or 1/temperature (``"temperature"``). Heads, queries and keys count from 0.
    Every trait can be read and set. Only at ``n_heads == trained_heads`` are the slices those
    that training shaped.

    Raises ValueError or TypeError where a value breaks its rule.

    >>> rng = np.random.default_rng(0)
    >>> sentence = Sentence(["a", "b"], rng.normal(size=(2, 24)), rng.normal(size=(2, 24)))
    >>> explorer = HeadExplorer([sentence], n_heads=4)
    >>> explorer.n_heads = 6
    >>> explorer.weights().shape
    (6, 2, 2)
    """

    _esm, _css = base.front_end("head_explorer")
    _shown = ("n_heads", "scale", "temperature", "is_causal", "sentence", "head", "query", "key")

    _data = t.List().tag(sync=True)
    d_model = t.Int(read_only=True).tag(sync=True)
    trained_heads = t.Int(read_only=True).tag(sync=True)
    choices = t.List(read_only=True).tag(sync=True)
    n_heads = t.TraitType(12).tag(sync=True)
    scale = t.TraitType("sqrt").tag(sync=True)
    temperature = t.TraitType(1.0).tag(sync=True)
    is_causal = t.TraitType(False).tag(sync=True)
    sentence = t.TraitType(0).tag(sync=True)
    head = t.TraitType(0).tag(sync=True)
    query = t.TraitType(0).tag(sync=True)
    key = t.TraitType(0).tag(sync=True)

    def __init__(
        self,
        sentences,
        *,
        trained_heads=12,
        n_heads=12,
        scale="sqrt",
        temperature=1.0,
        is_causal=False,
        sentence=0,
        head=0,
        query=0,
        key=0,
    ):
        self.sentences = _checked(sentences)
        width = self.sentences[0].q.shape[1]
        choices = [choice for choice in HEAD_CHOICES if width % choice == 0]
        trained = base.one_of("trained_heads", trained_heads, choices, _divides(width))
        # traitlets checks in any order, and the other indices depend on these two
        n_heads = base.one_of("n_heads", n_heads, choices, _divides(width))
        sentence = base.whole("sentence", sentence, len(self.sentences), "sentences")
        self.set_trait("d_model", width)
        self.set_trait("choices", choices)
        self.set_trait("trained_heads", trained)
        super().__init__(
            _data=[one.to_json() for one in self.sentences],
            n_heads=n_heads,
            scale=scale,
            temperature=temperature,
            is_causal=is_causal,
            sentence=sentence,
            head=head,
            query=query,
            key=key,
        )

    @t.validate("n_heads")
    def _check_n_heads(self, proposal):
        return base.one_of("n_heads", proposal.value, self.choices, _divides(self.d_model))

    @t.validate("scale")
    def _check_scale(self, proposal):
        return base.one_of("scale", proposal.value, SCALES)

    @t.validate("temperature")
    def _check_temperature(self, proposal):
        return base.number("temperature", proposal.value, *TEMPERATURES)

    @t.validate("is_causal")
    def _check_is_causal(self, proposal):
        return base.flag("is_causal", proposal.value)

    @t.validate("sentence")
    def _check_sentence(self, proposal):
        return base.whole("sentence", proposal.value, len(self._data), "sentences")

    @t.validate("head")
    def _check_head(self, proposal):
        return base.whole("head", proposal.value, self.n_heads, "heads")

    @t.validate("query", "key")
    def _check_token(self, proposal):
        return base.whole(proposal.trait.name, proposal.value, len(self.tokens), "tokens")

    @t.observe("n_heads")
    def _keep_head(self, change):
        self.head = min(self.head, change.new - 1)

    @t.observe("sentence")
    def _keep_tokens(self, change):
        last = len(self.tokens) - 1
        self.query, self.key = min(self.query, last), min(self.key, last)

    @property
    def tokens(self):
        """The tokens of the chosen sentence."""
        return self.sentences[self.sentence].tokens

    @property
    def factor(self):
        """What a score is multiplied by to become a logit."""
        d_head = self.d_model // self.n_heads
        factors = {"sqrt": d_head**-0.5, "none": 1.0, "inverse": 1 / d_head}
        return factors.get(self.scale, 1 / self.temperature)

    def logits(self):
        """Return the scaled scores of the current state, (H, T, T), −inf where masked."""
        stored = self._data[self.sentence]
        q, k = (base.from_float16(stored[name], self.d_model) for name in ("q", "k"))
        q, k = (x.reshape(len(x), self.n_heads, -1).transpose(1, 0, 2) for x in (q, k))
        logits = q @ k.transpose(0, 2, 1) * self.factor  # (H, T, T)
        if self.is_causal:
            logits[:, ~np.tri(len(self.tokens), dtype=bool)] = -np.inf
        return logits

    def weights(self):
        """Return the weights of the current state, float64 (H, T, T); rows sum to 1."""
        logits = self.logits()
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def entropy(self):
        """Return each head's entropy in bits, (H,): the mean over its queries."""
        weights = self.weights()
        logs = np.log2(weights, where=weights > 0, out=np.zeros_like(weights))
        return -(weights * logs).sum(-1).mean(-1)

    def picture(self):
        """Return the current state as the bytes of a PNG: the chosen head, and all heads small."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.colors import LinearSegmentedColormap
        from matplotlib.figure import Figure

        colours = LinearSegmentedColormap.from_list("weight", PICTURE_COLOURS)
        weights, size = self.weights(), len(self.tokens)
        figure = Figure(figsize=(7.2, 3.8), dpi=100, layout="constrained")
        FigureCanvasAgg(figure)
        small, large = figure.subfigures(1, 2, width_ratios=(1, 1.15))
        columns = max(1, round((1.2 * self.n_heads) ** 0.5))
        grid = small.subplots(-(-self.n_heads // columns), columns, squeeze=False).ravel()
        for axes in grid:
            axes.axis("off")
        for h, axes in enumerate(grid[: self.n_heads]):
            axes.imshow(weights[h], cmap=colours, vmin=0, vmax=1)
            axes.set_title(str(h), fontsize=7, pad=2, weight="bold" if h == self.head else "normal")
        axes = large.subplots()
        image = axes.imshow(weights[self.head], cmap=colours, vmin=0, vmax=1)
        labels = [token.replace("$", r"\$") for token in self.tokens]  # "$" would start a formula
        axes.set_xticks(range(size), labels, rotation=90, fontsize=7)
        axes.set_yticks(range(size), labels, fontsize=7)
        axes.set_xlabel(f"key (head {self.head} of {self.n_heads})", fontsize=8)
        axes.set_ylabel("query", fontsize=8)
        large.colorbar(image, ax=axes, shrink=0.6).ax.tick_params(labelsize=7)
        png = io.BytesIO()
        figure.savefig(png, format="png", metadata={"Software": None})
        return png.getvalue()


def _divides(width):
    return f" (a choice divides d_model={width})"


def _checked(sentences):
    sentences = tuple(sentences)
    if not sentences or not all(isinstance(one, Sentence) for one in sentences):
        raise TypeError(f"sentences={sentences!r} must be one or more mha.widgets.Sentence")
    widths = sorted({one.q.shape[1] for one in sentences})
    if len(widths) > 1:
        raise ValueError(f"the widths {widths} differ; take q and k of all from one layer")
    for one in sentences:
        if one.answer is not None:
            _check_answer(one.answer, len(one.tokens), widths[0])
    return sentences


def _check_answer(answer, n_tokens, width):
    if len(answer) != 4:
        raise ValueError(f"answer={answer!r} must be (n_heads, head, query, key)")
    choices = [choice for choice in HEAD_CHOICES if width % choice == 0]
    n_heads = base.one_of("n_heads of an answer", answer[0], choices, _divides(width))
    base.whole("head of an answer", answer[1], n_heads, "heads")
    base.whole("query of an answer", answer[2], n_tokens, "tokens")
    base.whole("key of an answer", answer[3], n_tokens, "tokens")
