"""HeadExplorer: cut the same queries and keys into another number of heads."""

import dataclasses

import numpy as np
import traitlets as t

from . import base

HEAD_CHOICES = (1, 2, 3, 4, 6, 12, 24)
SCALES = ("sqrt", "none", "inverse", "temperature")
TEMPERATURES = (0.1, 1000.0)
CHOICES_WAY_OUT = ", or give others as choices="


@dataclasses.dataclass(frozen=True, eq=False)
class Sentence:
    """A sentence with the queries and keys of one layer.

    `tokens` are T strings; `q` and `k` are (T, D), before the split into heads, lists, arrays or
    tensors, kept as read-only float64 copies; `task` says which relation to find; `answer`, if
    given, is where to find it: (n_heads, head, query, key); `text` names the sentence in the list,
    the tokens joined by spaces if empty.
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
            values = base.real_array(name, getattr(self, name))
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

    def to_json(self, answer=None):
        """Return what the front end reads: float16 bytes for `q` and `k`, the checked answer."""
        return {
            "text": self.text or " ".join(self.tokens),
            "tokens": list(self.tokens),
            "q": base.float16_bytes("q", self.q),
            "k": base.float16_bytes("k", self.k),
            "task": self.task,
            "answer": answer,
        }


class HeadExplorer(base.AttentionWidget):
    """Every head's weights on real sentences, for any cut of the same q and k.

    logits = q·k · factor, with factor 1/√d_k (``scale="sqrt"``), 1 (``"none"``), 1/d_k
    (``"inverse"``) or 1/temperature (``"temperature"``). Heads, queries and keys count from 0.
    Every trait can be read and set. Only at ``n_heads == trained_heads`` are the slices those
    that training shaped. `choices` are the numbers of heads on offer, all divisors of D; by default
    those of 1, 2, 3, 4, 6, 12 and 24 that divide it, with `trained_heads`, its half and its double.
    `n_heads` starts as trained. Where `n_heads` is set alone, `head` keeps its first column.

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
        choices=None,
        n_heads=None,
        scale="sqrt",
        temperature=1.0,
        is_causal=False,
        sentence=0,
        head=0,
        query=0,
        key=0,
    ):
        self._sentences = _checked(sentences)
        width = self.sentences[0].q.shape[1]
        trained = base.divisor("trained_heads", trained_heads, width)
        choices = _choices(choices, trained, width)
        stored = [(one, _checked_answer(one, choices)) for one in self.sentences]
        # traitlets checks in any order, and the other indices depend on these two
        n_heads = trained if n_heads is None else n_heads
        n_heads = base.one_of("n_heads", n_heads, choices, CHOICES_WAY_OUT)
        sentence = base.whole("sentence", sentence, len(self.sentences), "sentences")
        self.set_trait("d_model", width)
        self.set_trait("choices", choices)
        self.set_trait("trained_heads", trained)
        super().__init__(
            _data=[one.to_json(answer) for one, answer in stored],
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
        return base.one_of("n_heads", proposal.value, self.choices, CHOICES_WAY_OUT)

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
        if not self._in_one_go:  # the slice that starts nearest before the same column
            self.head = self.head * change.new // change.old
        self.head = min(self.head, change.new - 1)

    @t.observe("sentence")
    def _keep_tokens(self, change):
        last = len(self.tokens) - 1
        self.query, self.key = min(self.query, last), min(self.key, last)

    @property
    def sentences(self):
        """The sentences, as given; to show others, make another explorer."""
        return self._sentences

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
        return 0.0 - (weights * logs).sum(-1).mean(-1)  # −0.0 would be the negative of a zero

    def picture(self):
        """Return the current state as the bytes of a PNG: the chosen head, and all heads small."""
        from .head_picture import head_picture  # matplotlib takes a second to import

        return head_picture(self.weights(), self.tokens, self.head)


def _checked(sentences):
    sentences = tuple(sentences)
    if not sentences or not all(isinstance(one, Sentence) for one in sentences):
        raise TypeError(f"sentences={sentences!r} must be one or more mha.widgets.Sentence")
    widths = sorted({one.q.shape[1] for one in sentences})
    if len(widths) > 1:
        raise ValueError(f"the widths {widths} differ; take q and k of all from one layer")
    return sentences


def _choices(wanted, trained, width):
    """Return the numbers of heads to choose from, ascending, `trained` always among them."""
    if wanted is None:
        wanted = {*HEAD_CHOICES, trained // 2 if trained % 2 == 0 else trained, 2 * trained}
        wanted = [number for number in wanted if width % number == 0]
    elif not hasattr(wanted, "__iter__"):
        raise base.WidgetTypeError(f"choices={wanted!r} is not a list; give numbers of heads")
    return sorted({trained, *(base.divisor("a number in choices", n, width) for n in wanted)})


def _checked_answer(sentence, choices):
    """Return the answer as ints, each in its range, or None."""
    answer = sentence.answer
    if answer is None:
        return None
    if isinstance(answer, str) or not hasattr(answer, "__len__") or len(answer) != 4:
        raise base.WidgetTypeError(f"answer={answer!r} must be (n_heads, head, query, key)")
    n_heads = base.one_of("n_heads of an answer", answer[0], choices, CHOICES_WAY_OUT)
    n_tokens = len(sentence.tokens)
    return [
        n_heads,
        base.whole("head of an answer", answer[1], n_heads, "heads"),
        base.whole("query of an answer", answer[2], n_tokens, "tokens"),
        base.whole("key of an answer", answer[3], n_tokens, "tokens"),
    ]
