"""The shared training loop and its records: what they take, when they stop, what they refuse."""

import json

import pytest
import torch
from torch import nn

from mha.experiments import __main__ as command
from mha.experiments import records
from mha.experiments.training import train


def problem(seed=0):
    torch.manual_seed(seed)
    model = nn.Linear(3, 2)
    x, y = torch.randn(5, 3), torch.randn(5, 2)
    return model, lambda: (model(x) - y).square().mean()


def test_a_step_is_adams():
    model, loss = problem()
    losses = train(model, loss, steps=7, learning_rate=0.05)
    other, other_loss = problem()
    optimiser = torch.optim.Adam(other.parameters(), lr=0.05)
    expected = []
    for _ in range(7):
        optimiser.zero_grad()
        value = other_loss()
        value.backward()
        optimiser.step()
        expected.append(value.item())
    assert losses == expected
    assert torch.equal(model.weight, other.weight)


def test_gradients_from_before_do_not_count():
    model, loss = problem()
    (1e3 * loss()).backward()
    train(model, loss, steps=1, learning_rate=0.05)
    other, other_loss = problem()
    train(other, other_loss, steps=1, learning_rate=0.05)
    assert torch.equal(model.weight, other.weight)


def test_watch_sees_the_model_before_between_and_after():
    model, loss = problem()
    seen, graphs = {}, []

    def watch(step):
        graphs.append(torch.is_grad_enabled())
        seen[step] = loss().item()

    losses = train(model, loss, steps=7, learning_rate=0.05, watch=watch, every=3)
    assert list(seen) == [0, 3, 6, 7] and not any(graphs)
    assert [seen[step] for step in (0, 3, 6)] == [losses[step] for step in (0, 3, 6)]
    assert seen[7] < losses[6]


def test_watch_may_stop_it():
    model, loss = problem()
    assert len(train(model, loss, steps=7, learning_rate=0.05, watch=lambda s: s == 2)) == 2
    assert len(train(model, loss, steps=7, learning_rate=0.05, watch=lambda s: s)) == 7


def test_what_is_frozen_stays():
    model, loss = problem()
    model.bias.requires_grad_(False)
    before = model.bias.clone(), model.weight.clone()
    train(model, loss, steps=2, learning_rate=0.05)
    assert torch.equal(model.bias, before[0]) and not torch.equal(model.weight, before[1])


def test_a_loss_that_is_not_finite_is_refused_before_it_does_harm():
    model, loss = problem()
    values = iter([1.0, float("nan")])
    said = "the loss is nan at step 1; lower learning_rate=0.05"
    with pytest.raises(ValueError, match=said):
        train(model, lambda: loss() * next(values), steps=7, learning_rate=0.05)
    assert model.weight.isfinite().all()


def test_a_record_says_where_it_comes_from(tmp_path):
    path = records.write("try", {"curve": [1.5, 2.0], "name": "√d"}, folder=tmp_path)
    record = json.loads(path.read_text("utf-8"))
    assert path == tmp_path / "try.json" and record["curve"] == [1.5, 2.0]
    made = record["provenance"]
    assert made["command"] == "python -m mha.experiments try"
    assert set(made) == {"command", "date", "device", "threads", "versions"}
    assert made["versions"]["torch"] == torch.__version__


@pytest.mark.parametrize(
    ("result", "said"),
    [({"curve": [float("inf")]}, "not JSON compliant"), ({"provenance": {}}, "'provenance'")],
)
def test_nothing_half_done_is_left_behind(result, said, tmp_path):
    with pytest.raises(ValueError, match=said):
        records.write("try", result, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_runs_what_is_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(command.EXPERIMENTS, "try", "mha.experiments.records:provenance_of_try")
    monkeypatch.setattr(records, "provenance_of_try", lambda: {"a": 1}, raising=False)
    monkeypatch.setattr(records, "files", lambda package: tmp_path)
    command.main(["try"])
    assert json.loads((tmp_path / "try.json").read_text("utf-8"))["a"] == 1
    assert str(tmp_path / "try.json") in capsys.readouterr().out


def test_an_unknown_name_is_refused_with_those_there_are(capsys):
    with pytest.raises(SystemExit):
        command.main(["nothing"])
    assert "invalid choice: 'nothing'" in capsys.readouterr().err
