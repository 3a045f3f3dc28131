"""Recall: the questions, the head, and what the scale does to it, small and in the record."""

import pytest
import torch

from mha import data
from mha.experiments import recall


def test_a_question_asks_for_a_key_that_is_there():
    asked, keys, values, answer = recall.draw_batch(23, 7, torch.Generator().manual_seed(0))
    assert keys.shape == (23, recall.N_PAIRS, 7)
    found = (keys == asked[:, None]).all(-1)  # B S
    assert (found.sum(-1) == 1).all()
    assert torch.equal(values[found].argmax(-1), answer)
    assert len(set(answer.tolist())) > 5
    assert torch.equal(values.sum(-1), torch.ones(23, recall.N_PAIRS))


@pytest.mark.parametrize(("scale", "variance"), [("1", 97), ("1/√d_k", 1), ("1/d_k", 1 / 97)])
def test_the_logits_start_with_the_variance_the_scale_says(scale, variance):
    torch.manual_seed(0)
    head = recall.RecallHead(scale=recall.SCALES[scale](97), d_k=97)
    torch.manual_seed(1)
    q, k = head.q_proj(torch.randn(500, 97)), head.k_proj(torch.randn(500, 97))
    logits = head.scale * q @ k.T
    assert logits.var().item() == pytest.approx(variance, rel=0.1)


def test_the_head_averages_the_values_with_its_scale():
    head = recall.RecallHead(scale=0.7, d_k=5)
    asked, keys, values, _ = recall.draw_batch(3, 5, torch.Generator().manual_seed(0))
    q, k = asked @ head.q_proj.weight.T, keys @ head.k_proj.weight.T
    weights = (0.7 * torch.einsum("bd,bsd->bs", q, k)).softmax(-1)
    expected = recall.SHARPNESS * torch.einsum("bs,bsv->bv", weights, values)
    assert torch.allclose(head(asked, keys, values), expected, atol=1e-6)


def test_small_the_root_is_the_first_to_learn_and_one_run_is_like_the_next():
    sizes = {"d_k": 64, "steps": 60, "every": 10, "batch": 64, "n_test": 300}
    record = recall.run(seeds=(0,), **sizes)
    last = {name: runs[0]["accuracy"][-1] for name, runs in record["scales"].items()}
    assert last["1/√d_k"] > last["1"] + 0.1 and last["1/√d_k"] > last["1/d_k"] + 0.1
    assert record["scales"]["1"][0]["step"] == [0, 10, 20, 30, 40, 50, 60]
    again = recall.train_one("1/√d_k", seed=0, **sizes)
    assert again["accuracy"] == record["scales"]["1/√d_k"][0]["accuracy"]


def test_the_goal_is_the_first_step_there(monkeypatch):
    monkeypatch.setattr(recall, "GOAL", 0.2)
    sizes = {"d_k": 64, "steps": 40, "every": 5, "batch": 64, "n_test": 300}
    curve = recall.train_one("1/√d_k", seed=0, **sizes)
    at = curve["step"].index(curve["goal_at"])
    assert curve["accuracy"][at] >= 0.2 > max(curve["accuracy"][:at])
    monkeypatch.setattr(recall, "GOAL", 1.1)
    assert recall.train_one("1", seed=0, **sizes)["goal_at"] is None


def test_numbers_below_the_smallest_normal_float_are_left_as_they_were_found():
    recall.run(seeds=(0,), d_k=2, steps=1, n_test=5)
    assert torch.tensor(1e-40).mul(1).item() != 0


def test_the_record_says_what_the_chapter_says():
    record = data.load("recall")
    assert record["seeds"] == [0, 1, 2] and record["goal"] == 0.95
    assert list(record["scales"]) == list(recall.SCALES)
    reached = {name: [run["goal_at"] for run in runs] for name, runs in record["scales"].items()}
    assert max(reached["1/√d_k"]) < min(reached["1/d_k"] + reached["1"])
    final = {name: [run["accuracy"][-1] for run in runs] for name, runs in record["scales"].items()}
    assert min(final["1/√d_k"] + final["1/d_k"]) > 0.999 > max(final["1"])
