"""Fixed, stratified splits: the same rows every time, each class in its share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: Seed of every split; a constant, so that all studies of a task select and report on the same rows.
SEED = 1


def deal(target: NDArray[Any], pattern: Sequence[int]) -> NDArray[np.int64]:
    """A part for each row, shape (n,): rows are sorted by target, in random order among equals, and dealt like cards.

    Parameters
    ----------
    target : array (n,)
        Class numbers, or values.
    pattern : sequence of int
        The parts that a deal goes through, as in (0, 0, 0, 1, 2) for 60, 20 and 20 %. Any run of so many neighbours in
        the sorted order has exactly these shares.
    """
    rng = np.random.default_rng(SEED)
    shuffled = rng.permutation(len(target))
    order = shuffled[np.argsort(np.asarray(target)[shuffled], kind="stable")]
    deals = [rng.permutation(np.asarray(pattern)) for _ in range(-(-len(target) // len(pattern)))]
    parts = np.empty(len(target), dtype=np.int64)
    parts[order] = np.concatenate(deals)[: len(target)] if deals else []
    return parts
