"""The training loop that the chapters share."""

import math

import torch


def train(model, next_loss, *, steps, learning_rate, watch=None, every=1):
    """Train `model` with Adam and return the losses, one a step.

    Parameters
    ----------
    model : torch.nn.Module
        Its parameters are changed; those that need no gradient stay as they are.
    next_loss : callable
        Called without arguments at each step; draws a batch and returns its loss, a tensor ().
    steps : int
        How many times the parameters are changed.
    learning_rate : float
        Of Adam, with PyTorch's other defaults and no schedule.
    watch : callable, optional
        Called as ``watch(step)`` without a graph, before step 0, every `every` steps, and after the
        last step, when `step` equals `steps`. The training stops early where it returns True.
    every : int

    Returns
    -------
    list of float
        The loss of each step taken, measured before its change.

    Raises
    ------
    ValueError
        If a loss is not finite; the message names the step.

    Examples
    --------
    >>> line = torch.nn.Linear(1, 1)
    >>> one = torch.ones(1, 1)
    >>> losses = train(line, lambda: (line(one) - 5).square().mean(), steps=300, learning_rate=0.1)
    >>> len(losses), losses[-1] < 1e-3
    (300, True)
    """
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate)
    losses = []
    for step in range(steps):
        if _stops(watch, step, every):
            return losses
        loss = next_loss()
        if not math.isfinite(loss.item()):
            raise ValueError(
                f"the loss is {loss.item()} at step {step}; lower learning_rate={learning_rate}, "
                "or look for a row without a key in the mask"
            )
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    _stops(watch, steps, steps)
    return losses


def _stops(watch, step, every):
    if watch is None or step % every:
        return False
    with torch.no_grad():
        return watch(step) is True
