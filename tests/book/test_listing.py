"""The layer that chapter 7 prints to be copied, run as it is printed, against the package."""

from pathlib import Path

import nbformat
import pytest
import torch
from torch import nn
from torch.testing import assert_close

import mha

CHAPTER = Path(__file__).parent.parent.parent / "book" / "07_concat_output.ipynb"
B, T, S, H, D_HEAD = 2, 3, 5, 7, 11
D = H * D_HEAD
exactly = {"atol": 1e-12, "rtol": 1e-12}


@pytest.fixture(scope="module")
def printed():
    """The class, from the text of the cell alone: PyTorch is all it may use."""
    [source] = [cell.source for cell in nbformat.read(CHAPTER, as_version=4).cells
                if "listing" in cell.metadata.get("tags", [])]
    names = {"torch": torch, "nn": nn}
    exec(compile(source, str(CHAPTER), "exec"), names)
    return names["Attention"]


def pair(printed, bias):
    """The printed layer and the package's, with the same random numbers."""
    torch.manual_seed(7)
    theirs = printed(D, H, bias=bias).double()
    ours = mha.MultiHeadAttention(D, H, bias=bias).double()
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def masks(n_queries, n_keys):
    generator = torch.Generator().manual_seed(8)
    per_head = torch.rand(B, H, n_queries, n_keys, generator=generator) > 0.4
    per_head[1, 3] = False  # a head whose queries see no key
    padding = mha.padding_mask([n_keys, n_keys - 2], n_keys)
    return {"none": None, "padding": padding, "per head, rows without keys": per_head}


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("kind", list(masks(1, 3)))
@pytest.mark.parametrize("cross", [False, True])
def test_the_printed_layer_is_the_package_s(printed, bias, is_causal, kind, cross):
    theirs, ours = pair(printed, bias)
    x = torch.randn(B, T, D, dtype=torch.float64, requires_grad=True)
    context = torch.randn(B, S, D, dtype=torch.float64, requires_grad=True) if cross else None
    mask = masks(T, S if cross else T)[kind]
    y, weights = theirs(x, context, mask=mask, is_causal=is_causal)
    expected_y, expected_weights = ours(
        x, context, mask=mask, is_causal=is_causal, return_weights=True)
    assert_close(y, expected_y, **exactly)
    assert_close(weights, expected_weights, **exactly)
    inputs = [x] if context is None else [x, context]
    upstream = torch.randn(B, T, D, dtype=torch.float64)
    found = torch.autograd.grad(y, [*inputs, *theirs.parameters()], upstream)
    expected = torch.autograd.grad(expected_y, [*inputs, *ours.parameters()], upstream)
    for one, other in zip(found, expected, strict=True):
        assert_close(one, other, **exactly)


def test_it_refuses_heads_that_do_not_fit(printed):
    with pytest.raises(ValueError, match="d_model=10 is not divisible by n_heads=3"):
        printed(10, 3)
