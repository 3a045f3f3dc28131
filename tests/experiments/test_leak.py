"""The missing causal mask: what the two losses see, and what the record must hold."""

import math
from pydoc_data.topics import topics

import pytest
import torch
from torch.testing import assert_close

from mha.data import load
from mha.experiments import leak
from mha.experiments.leak import (
    CharacterModel,
    baselines,
    help_text,
    parallel_loss,
    prefix_loss,
    write_on,
)

B, T, N = 3, 5, 7  # windows, places, characters


def model(is_causal, **sizes):
    torch.manual_seed(0)
    sizes = {"d_model": 22, "n_heads": 2, "n_layers": 2} | sizes
    return CharacterModel(N, T, is_causal=is_causal, **sizes).double()


def windows():
    return torch.randint(N, (B, T + 1), generator=torch.Generator().manual_seed(1))


def test_the_text_holds_each_paragraph_once():
    text = help_text()
    paragraphs = text.split("\n\n")
    assert len(set(paragraphs)) == len(paragraphs)
    assert set(paragraphs) == set("\n\n".join(topics.values()).split("\n\n"))


def test_the_model_is_its_formula():
    one = model(True, n_layers=1)
    characters = windows()[:, :T]
    h = one.characters.weight[characters] + one.places.weight  # B T D
    h = h + one.layers[0](torch.nn.functional.layer_norm(h, [22]), is_causal=True)
    assert_close(one(characters), h @ one.readout.weight.T + one.readout.bias)


def test_the_losses_are_those_of_one_place_at_a_time():
    given = windows()
    for is_causal in (True, False):
        some = model(is_causal)
        parallel, prefix = [], []
        for window in given:
            whole = some(window[None, :T])[0].log_softmax(-1)
            for t in range(T):
                cut = some(window[None, : t + 1])[0, t].log_softmax(-1)
                parallel.append(-whole[t, window[t + 1]])
                prefix.append(-cut[window[t + 1]])
        assert_close(parallel_loss(some, given), torch.stack(parallel).mean())
        assert_close(prefix_loss(some, given), torch.stack(prefix).mean())


def test_the_two_losses_are_one_with_the_mask_and_two_without():
    given = windows()
    with_mask, without = model(True), model(False)
    assert_close(parallel_loss(with_mask, given), prefix_loss(with_mask, given))
    assert abs(parallel_loss(without, given) - prefix_loss(without, given)) > 1e-3


def test_a_later_character_changes_an_earlier_answer_only_without_the_mask():
    given = windows()[:, :T]
    changed = given.clone()
    changed[:, -1] = (changed[:, -1] + 1) % N
    for is_causal in (True, False):
        some = model(is_causal)
        same = torch.allclose(some(given)[:, :-1], some(changed)[:, :-1], atol=1e-9)
        assert same is is_causal


def test_writing_goes_on_with_the_last_window():
    some = model(True)
    with torch.no_grad():  # whatever is read, the last character read is followed by the next one
        for parameter in some.parameters():
            parameter.zero_()
        some.characters.weight[:, :N] = torch.eye(N)
        some.readout.weight[:, :N] = 200 * torch.eye(N).roll(1, dims=0)
    start = torch.tensor([[2, 3]])
    text = write_on(some, start, 9, generator=torch.Generator().manual_seed(0))
    assert text.tolist() == [[2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5]]


def test_writing_reads_no_more_than_a_window():
    seen = []

    class Spy(CharacterModel):
        def forward(self, characters):
            seen.append(characters.tolist()[0])
            return super().forward(characters)

    torch.manual_seed(0)
    spy = Spy(N, T, is_causal=True, d_model=22, n_heads=2)
    text = write_on(spy, torch.tensor([[1]]), 7, generator=torch.Generator().manual_seed(0))
    whole = text[0].tolist()
    assert seen == [whole[max(0, n - T) : n] for n in range(1, 8)]


def test_the_baselines_by_hand():
    data, held_out = torch.tensor([0, 0, 1]), torch.tensor([[2, 0, 1]])
    found = baselines(data, held_out, n_characters=3)  # counted once more: 3/6, 2/6, 1/6
    assert found["uniform"] == math.log(3)
    assert found["unigram"] == pytest.approx((math.log(2) + math.log(3)) / 2)


def test_a_tiny_run_already_shows_it(monkeypatch):
    monkeypatch.setattr(leak, "WINDOW", 11)
    record = leak.run(steps=200, every=100, n_held_out=13)
    with_mask, without = record["with mask"], record["without mask"]
    assert with_mask["step"] == without["step"] == [0, 100, 200]
    for parallel, prefix in zip(with_mask["parallel"], with_mask["prefix"], strict=True):
        assert parallel == pytest.approx(prefix, abs=1e-5)
    unigram = record["baselines"]["unigram"]
    assert with_mask["prefix"][-1] < unigram < record["baselines"]["uniform"]
    assert without["parallel"][-1] < 1 < with_mask["parallel"][-1]
    assert without["prefix"][-1] > unigram
    assert without["last place"] > without["parallel"][-1]
    for run in (with_mask, without):
        assert run["written"].startswith(leak.PROMPT)
        assert len(run["written"]) == len(leak.PROMPT) + 200


def test_the_record_shows_what_the_chapter_says():
    record = load("leak")
    assert record["provenance"]["command"] == "python -m mha.experiments leak"
    assert "python" in record["provenance"]["versions"]
    with_mask, without = record["with mask"], record["without mask"]
    assert with_mask["prefix"][-1] == pytest.approx(with_mask["parallel"][-1], abs=1e-5)
    assert without["parallel"][-1] < 0.1 < 1 < with_mask["parallel"][-1] < 2
    assert without["prefix"][-1] > record["baselines"]["unigram"] > with_mask["prefix"][-1]
    window = record["settings"]["window"]
    assert without["last place"] / window == pytest.approx(without["parallel"][-1], rel=0.1)
