"""Which rows each step sees: the same for all arms of a seed, and none of them alone."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def plan_steps(n: int, batch_size: int, epochs: int, seed: int, steps: int | None = None) -> list[NDArray[np.int64]]:
    """Row numbers of each step over all epochs, or so many ``steps``; each epoch in an order of its own.

    A last row that would be alone joins the batch before it: one row has no batch statistics, and dropping it would
    show arms different rows than they were promised.
    """
    rng = np.random.default_rng(seed)
    starts = list(range(0, n, batch_size))
    if n % batch_size == 1 and len(starts) > 1 and batch_size > 1:
        starts.pop()
    total = epochs * len(starts) if steps is None else steps
    plan: list[NDArray[np.int64]] = []
    while len(plan) < total:
        plan += np.split(rng.permutation(n), starts[1:])
    return plan[:total]


def rate_factor(step: int, steps: int, warmup: int) -> float:
    """Share of the learning rate at a step (from 0 on): linear rise over ``warmup`` steps, then linear fall to 0."""
    if step < warmup:
        return step / warmup
    return max(0.0, (steps - step) / max(1, steps - warmup))
