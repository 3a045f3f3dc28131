"""What a missing causal mask does: a character model trained with it and without it.

Both models learn to name the next character at every place of a window at once. Without the mask
a place sees the character it is asked for, one place to its right, and learns to copy it.

The text is the help on Python that comes with Python, another one in each version.
"""

import hashlib
import math
from pydoc_data.topics import topics

import torch
import torch.nn.functional as F
from torch import nn

from mha.experiments.training import train
from mha.layer import MultiHeadAttention

WINDOW = 48  # characters a model sees at once
BATCH = 32
LEARNING_RATE = 3e-3
SEED = 0
PROMPT = "The value of "


def help_text():
    """Return the help on Python as one text, each paragraph once.

    Several topics hold the same paragraphs; twice in the text, they could stand in the part that
    is trained on and in the part that is held out.
    """
    paragraphs = "\n\n".join(topics.values()).split("\n\n")
    return "\n\n".join(dict.fromkeys(paragraphs))


class CharacterModel(nn.Module):
    """Give every character's row a vector for its place, let layers attend, read off the next one.

    h = E[character] + P[place];  h ← h + layer(norm(h)) for each layer;  logits = h W. The layers
    are `mha.MultiHeadAttention` without anything between them.

    Parameters
    ----------
    n_characters : int
    window : int, the largest number of characters at once
    is_causal : bool, whether a place sees only itself and the places before it
    d_model, n_heads, n_layers : int

    Examples
    --------
    >>> model = CharacterModel(n_characters=7, window=5, is_causal=True)
    >>> model(torch.zeros(2, 3, dtype=torch.int64)).shape  # B T n_characters
    torch.Size([2, 3, 7])
    """

    def __init__(self, n_characters, window, *, is_causal, d_model=64, n_heads=4, n_layers=2):
        super().__init__()
        self.is_causal = is_causal
        self.characters = nn.Embedding(n_characters, d_model)
        self.places = nn.Embedding(window, d_model)
        self.norms = nn.ModuleList(nn.LayerNorm(d_model) for _ in range(n_layers))
        self.layers = nn.ModuleList(MultiHeadAttention(d_model, n_heads) for _ in range(n_layers))
        self.readout = nn.Linear(d_model, n_characters)

    def forward(self, characters):
        places = torch.arange(characters.shape[1], device=characters.device)
        h = self.characters(characters) + self.places(places)  # B T D
        for norm, layer in zip(self.norms, self.layers, strict=True):
            h = h + layer(norm(h), is_causal=self.is_causal)
        return self.readout(h)  # B T n_characters


def parallel_loss(model, windows):
    """Return the mean loss, in nats, of the next characters, all places of a window at once.

    This is how such a model is trained and, as a rule, validated. `windows` is B (T + 1): the
    first T characters are given, the last T are asked for.
    """
    logits = model(windows[:, :-1])  # B T n_characters
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def prefix_loss(model, windows):
    """Return the same mean, but cut each window behind the place that answers.

    So the character that is asked for is not there to be seen, as when a text is written. For a
    causal model this is `parallel_loss`, at T times the cost.
    """
    n_places = windows.shape[1] - 1
    losses = [
        F.cross_entropy(model(windows[:, : t + 1])[:, -1], windows[:, t + 1])
        for t in range(n_places)
    ]
    return torch.stack(losses).mean()


@torch.no_grad()
def write_on(model, start, length, *, generator):
    """Draw `length` characters, one at a time, each given the last window's worth before it.

    `start` is (1, n); returns (1, n + length).
    """
    text = start
    window = model.places.num_embeddings
    for _ in range(length):
        logits = model(text[:, -window:])[:, -1]  # 1 n_characters
        following = torch.multinomial(logits.softmax(-1), 1, generator=generator)
        text = torch.cat([text, following], dim=1)
    return text


def baselines(data, held_out, n_characters):
    """Return the held-out loss of two guesses that read no context.

    "uniform" gives every character the same chance, ln n; "unigram" the share that it has of the
    training text, counted once more than it occurs, so that none has 0.
    """
    counts = torch.bincount(data, minlength=n_characters) + 1.0
    log_shares = (counts / counts.sum()).log()
    return {
        "uniform": math.log(n_characters),
        "unigram": -log_shares[held_out[:, 1:]].mean().item(),
    }


def train_one(is_causal, data, held_out, n_characters, *, steps, every):
    """Train one model; return it and what is recorded of it, losses in nats a character.

    "train" is the mean of the last `every` steps; "parallel" and "prefix" are curves on `held_out`
    at the steps in "step"; "last place" is the held-out loss of the last place alone, at the end.
    """
    torch.manual_seed(SEED)
    window = held_out.shape[1] - 1
    model = CharacterModel(n_characters, window, is_causal=is_causal)
    generator = torch.Generator().manual_seed(SEED)
    steps_seen, parallel, prefix = [], [], []

    def next_loss():
        starts = torch.randint(len(data) - window, (BATCH, 1), generator=generator)
        return parallel_loss(model, data[starts + torch.arange(window + 1)])

    def watch(step):
        steps_seen.append(step)
        parallel.append(parallel_loss(model, held_out).item())
        prefix.append(prefix_loss(model, held_out).item())

    losses = train(
        model, next_loss, steps=steps, learning_rate=LEARNING_RATE, watch=watch, every=every
    )
    with torch.no_grad():
        last = F.cross_entropy(model(held_out[:, :-1])[:, -1], held_out[:, -1]).item()
    return model, {
        "train": sum(losses[-every:]) / len(losses[-every:]),
        "step": steps_seen,
        "parallel": parallel,
        "prefix": prefix,
        "last place": last,
    }


def run(*, steps=3000, every=150, n_held_out=128):
    """Train both models on nine tenths of the text, hold them against the last tenth."""
    text = help_text()
    alphabet = sorted(set(text))
    number = {character: i for i, character in enumerate(alphabet)}
    characters = torch.tensor([number[character] for character in text])
    data, rest = characters.split(math.ceil(0.9 * len(text)))[:2]
    starts = torch.linspace(0, len(rest) - WINDOW - 1, n_held_out).long()
    held_out = rest[starts[:, None] + torch.arange(WINDOW + 1)]  # B (T + 1)
    result = {
        "about": "A character model with and without the causal mask; losses in nats a character.",
        "text": {
            "source": "pydoc_data.topics of the Python named above, each paragraph once",
            "characters": len(text),
            "different": len(alphabet),
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
        },
        "settings": {
            "window": WINDOW, "batch": BATCH, "steps": steps, "learning rate": LEARNING_RATE,
            "seed": SEED, "held-out windows": n_held_out, "prompt": PROMPT,
        },
        "baselines": baselines(data, held_out, len(alphabet)),
    }  # fmt: skip
    for name, is_causal in ("with mask", True), ("without mask", False):
        model, losses = train_one(
            is_causal, data, held_out, len(alphabet), steps=steps, every=every
        )
        prompt = torch.tensor([[number[character] for character in PROMPT]])
        written = write_on(model, prompt, 200, generator=torch.Generator().manual_seed(SEED))
        losses["written"] = "".join(alphabet[i] for i in written[0])
        result[name] = losses
    return result
