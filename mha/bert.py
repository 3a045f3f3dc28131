"""A real BERT in one sitting: embeddings, then layers of mha.MultiHeadAttention and an MLP.

`load()` fills it with trained weights. Layers and heads count from 0 here; papers count from 1.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import nn

from mha.checkpoint import check_sizes, find_checkpoint, read_sizes, read_tensors, read_tokenizer
from mha.layer import MultiHeadAttention
from mha.masks import padding_mask


@dataclass(frozen=True)
class BertConfig:
    """The sizes of a BERT."""

    vocab_size: int
    d_model: int  # D
    n_heads: int  # H
    n_layers: int
    d_mlp: int
    max_length: int  # the most tokens, [CLS] and [SEP] included
    n_segments: int = 2
    norm_eps: float = 1e-12
    pad_id: int = 0

    def __post_init__(self):
        check_sizes(vars(self))


class Tokens(NamedTuple):
    tokens: list  # B lists of T str, with [CLS], [SEP] and [PAD]
    ids: torch.Tensor  # B T, int64
    lengths: torch.Tensor  # B, int64: how many are no padding


class Encoded(NamedTuple):
    hidden: tuple  # n_layers + 1 Tensors B T D: hidden[i] enters layer i, hidden[-1] is the output
    weights: tuple | None  # n_layers Tensors B H T T


class BertEmbeddings(nn.Module):
    """Word + position + segment, normalised. Every token is of segment 0: one text, no pair."""

    def __init__(self, config):
        super().__init__()
        self.word = nn.Embedding(config.vocab_size, config.d_model)
        self.position = nn.Embedding(config.max_length, config.d_model)
        self.segment = nn.Embedding(config.n_segments, config.d_model)
        self.norm = nn.LayerNorm(config.d_model, eps=config.norm_eps)

    def forward(self, ids):
        position = self.position.weight[: ids.shape[1]]  # T D
        return self.norm(self.word(ids) + self.segment.weight[0] + position)  # B T D


class BertLayer(nn.Module):
    """Attend, then transform each token alone; each time, add what came in and normalise."""

    def __init__(self, config, *, backend="explicit"):
        super().__init__()
        d_model, d_mlp, eps = config.d_model, config.d_mlp, config.norm_eps
        self.attention = MultiHeadAttention(d_model, config.n_heads, bias=True, backend=backend)
        self.attention_norm = nn.LayerNorm(d_model, eps=eps)
        self.mlp = nn.Sequential(nn.Linear(d_model, d_mlp), nn.GELU(), nn.Linear(d_mlp, d_model))
        self.mlp_norm = nn.LayerNorm(d_model, eps=eps)

    def forward(self, x, *, mask=None, head_gate=None, return_weights=False):
        y = self.attention(x, mask=mask, head_gate=head_gate, return_weights=return_weights)
        y, weights = y if return_weights else (y, None)  # B T D, B H T T
        x = self.attention_norm(x + y)  # B T D
        return self.mlp_norm(x + self.mlp(x)), weights


class BertEncoder(nn.Module):
    """The encoder of BERT (Devlin et al. 2019, §3; the layer of Vaswani et al. 2017, §3.1).

    `config` is a BertConfig, `tokenizer` a tokenizers.Tokenizer, used by `tokenize` alone. There
    is no dropout: the encoder is for reading trained weights.

    >>> config = BertConfig(vocab_size=9, d_model=6, n_heads=3, n_layers=2, d_mlp=8, max_length=5)
    >>> hidden, weights = BertEncoder(config)(torch.tensor([[1, 4, 2]]), return_weights=True)
    >>> len(hidden), hidden[2].shape, len(weights), weights[1].shape
    (3, torch.Size([1, 3, 6]), 2, torch.Size([1, 3, 3, 3]))
    """

    def __init__(self, config, tokenizer=None, *, backend="explicit"):
        super().__init__()
        self.config, self.tokenizer = config, tokenizer
        self.embeddings = BertEmbeddings(config)
        layers = (BertLayer(config, backend=backend) for _ in range(config.n_layers))
        self.layers = nn.ModuleList(layers)

    def forward(self, ids, *, lengths=None, mask=None, head_gate=None, return_weights=False):
        """Encode token ids; returns Encoded(hidden, weights).

        Parameters
        ----------
        ids : integer Tensor, B T
        lengths : sequence of int or Tensor, B; hides the padding behind each text
        mask : bool Tensor, (T, T) or broadcasting to (B, H, T, T), instead of lengths
        head_gate : Tensor, (n_layers, H) or (n_layers, B, H), or a list with one for each layer
        return_weights : bool

        Raises
        ------
        TypeError, ValueError
            Ids out of range, padding that nothing hides, a gate that misfits.
        """
        mask = self._check(ids, lengths, mask)
        gates = self._gates(head_gate)
        hidden, weights = [self.embeddings(ids)], []
        for layer, gate in zip(self.layers, gates, strict=True):  # gate: H or B H
            x, w = layer(hidden[-1], mask=mask, head_gate=gate, return_weights=return_weights)
            hidden.append(x)  # B T D
            weights.append(w)  # B H T T
        return Encoded(tuple(hidden), tuple(weights) if return_weights else None)

    def tokenize(self, texts):
        """Cut a text, or a list of texts, into word pieces, padded to the longest → Tokens."""
        one = isinstance(texts, str) or not isinstance(texts, Iterable)
        texts = [texts] if one else list(texts)
        if not all(isinstance(text, str) for text in texts):
            raise TypeError("texts holds what is no str; pass a str or a list of str")
        if not texts:
            raise ValueError("texts is empty; pass at least one text")
        if self.tokenizer is None:
            raise ValueError("there is no tokenizer; put tokenizer.json beside the weights")
        pieces = self.tokenizer.encode_batch(texts)
        lengths, limit = [len(piece.ids) for piece in pieces], self.config.max_length
        if max(lengths) > limit:
            raise ValueError(f"a text has {max(lengths)} tokens, max_length is {limit}; split it")
        for piece in pieces:
            piece.pad(max(lengths), pad_id=self.config.pad_id)
        ids = torch.tensor([piece.ids for piece in pieces], dtype=torch.int64)  # B T
        return Tokens([piece.tokens for piece in pieces], ids, torch.tensor(lengths))

    @torch.no_grad()
    def layer_input(self, text, layer):
        """Return the x (1 T D) that enters `layers[layer]` when BERT reads one text, a str.

        A "[PAD]" written in the text is a token like any other: no padding follows a single text.
        """
        if not isinstance(text, str):
            several = "for several, encoder(tokens.ids, lengths=tokens.lengths).hidden[layer]"
            raise TypeError(f"text is a {type(text).__name__}; pass one str, or {several}")
        if isinstance(layer, bool) or layer not in range(len(self.layers)):
            raise ValueError(f"layer={layer!r} is no whole number, 0 to {len(self.layers) - 1}")
        _, ids, lengths = self.tokenize(text)  # 1 T, 1
        return self(ids.to(self.embeddings.word.weight.device), lengths=lengths).hidden[int(layer)]

    def _gates(self, head_gate):
        """Return one gate, or None, for each layer."""
        n_layers, shapes = len(self.layers), "pass (n_layers, H) or (n_layers, B, H)"
        try:
            gates = [None] * n_layers if head_gate is None else list(head_gate)
        except TypeError:  # a number, a tensor of rank 0
            raise TypeError(f"head_gate={head_gate!r} has no entry a layer; {shapes}") from None
        if len(gates) == n_layers:
            return gates
        message = f"head_gate is for {len(gates)} layers, the encoder has {n_layers}"
        raise ValueError(f"{message}; {shapes}")

    def _check(self, ids, lengths, mask):
        """Refuse bad ids; return the mask that the layers get."""
        n_words, limit, pad = self.config.vocab_size, self.config.max_length, self.config.pad_id
        if not isinstance(ids, torch.Tensor) or ids.dtype not in (torch.int32, torch.int64):
            raise TypeError("ids is no integer tensor; pass encoder.tokenize(texts).ids")
        if ids.ndim != 2 or not 0 < ids.shape[1] <= limit:
            raise ValueError(f"ids has shape {tuple(ids.shape)}; pass (B, T), T from 1 to {limit}")
        if ((ids < 0) | (ids >= n_words)).any():
            raise ValueError(f"ids leaves 0 to {n_words - 1}; use the tokenizer of these weights")
        if lengths is None:
            if mask is None and (ids == pad).any():
                raise ValueError("nothing hides the padding in ids; pass lengths=tokens.lengths")
            return mask
        if mask is not None:
            raise ValueError("pass lengths or mask, not both; mha.combine_masks joins two masks")
        if not isinstance(lengths, Iterable):
            raise TypeError(f"lengths={lengths!r} is no sequence; pass one for each of {len(ids)}")
        mask = padding_mask(lengths, ids.shape[1])  # B 1 1 T
        if len(mask) != len(ids):
            raise ValueError(f"lengths has {len(mask)} entries; pass one for each of {len(ids)}")
        return mask.to(ids.device)


def load(name_or_path=None, *, backend="explicit"):
    """Load a trained BERT, a BertEncoder in eval mode and float32.

    No tensor may be missing, unexpected or quantised. Two things are left out: the pooler, and a
    task head, which is every tensor without the prefix "bert." in a file that has the prefix.

    Parameters
    ----------
    name_or_path : str, path or None
        None for all-MiniLM-L6-v2 from PACKAGE, the sha256 of its three files checked;
        a folder with config.json, model.safetensors and, for texts, tokenizer.json; or a name on
        the Hugging Face hub such as "bert-base-uncased", which alone uses a network, and only
        where no folder has that name
    backend : str, of every MultiHeadAttention

    Raises
    ------
    ModuleNotFoundError, FileNotFoundError, ConnectionError
        What to install or to fetch. Where the hub answers with an error, that error.
    TypeError, ValueError
        What can be no name; damaged or other files, by path; tensors, by name.
    """
    folder = find_checkpoint(name_or_path)
    with torch.device("meta"):  # neither memory nor random numbers: the file brings every value
        encoder = BertEncoder(BertConfig(*read_sizes(folder / "config.json")), backend=backend)
    tensors = read_tensors(folder / "model.safetensors", encoder.state_dict())
    encoder.to_empty(device="cpu").load_state_dict(tensors)
    if (folder / "tokenizer.json").is_file():
        encoder.tokenizer = read_tokenizer(folder / "tokenizer.json")
    return encoder.eval()
