"""Fixed, stratified splits: the same rows every time, each class in its share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

#: Seed of every split; a constant, so that all studies of a task select and report on the same rows.
SEED = 1
#: Parts of a task's rows: 60 % to train, 20 % to select, 20 % to report.
TRAIN, SELECT, REPORT = 0, 1, 2
WHOLE = (TRAIN, TRAIN, TRAIN, SELECT, REPORT)

Row = TypeVar("Row")


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


def deal_groups(groups: Sequence[Hashable], pattern: Sequence[int]) -> NDArray[np.int64]:
    """A part for each row, shape (n,): rows of a group (a document, an article) stay together; None is no group.

    Groups of similar size are dealt among the parts, so that these have about their shares of rows, too.
    """
    keys = [("row", place) if group is None else ("group", group) for place, group in enumerate(groups)]
    number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    of_row = np.array([number[key] for key in keys])
    return np.asarray(deal(np.bincount(of_row), pattern)[of_row])


def divide(
    train: list[Row], dev: list[Row] | None, group: Callable[[Row], Hashable], limit: int | None
) -> tuple[list[Row], list[Row], NDArray[np.bool_]]:
    """Rows to train on, rows to judge by, and which of these report; groups stay together.

    Without rows to judge by, those to train on are dealt 60/20/20; else the given ones are halved. ``limit`` samples
    what is left to train on.
    """
    if dev is None:
        parts = deal_groups([group(row) for row in train], WHOLE)
        dev = [row for row, part in zip(train, parts, strict=True) if part != TRAIN]
        train = [row for row, part in zip(train, parts, strict=True) if part == TRAIN]
        report = parts[parts != TRAIN] == REPORT
    else:
        report = deal_groups([group(row) for row in dev], (SELECT, REPORT)) == REPORT
    if limit is not None and limit < len(train):
        train = [train[place] for place in sample(len(train), limit)]
    return train, dev, report


def split_places(place: str) -> tuple[str, str | None]:
    """``TRAIN[,DEV]`` as two paths; a comma separates them unless it belongs to the name of one file."""
    first, comma, second = place.partition(",")
    return (first, second) if comma and not Path(place).is_file() else (place, None)


def sample(n: int, size: int) -> list[int]:
    """A fixed sample of ``size`` of ``n`` rows, in their order."""
    return sorted(np.random.default_rng(SEED).permutation(n)[:size].tolist())
