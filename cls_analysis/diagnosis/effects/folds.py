"""Rows split into folds and normalised, and the log-loss of a linear layer on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cls_analysis.matrices import profile_vectors
from cls_analysis.moments import Array
from cls_analysis.statistics.normalizers import NORMALIZERS

Classes = NDArray[np.int64]
#: What an arm reaches: accuracy, training loss, and the penalty or rate it was reached with.
Record = dict[str, Any]
Float = TypeVar("Float", np.float32, np.float64)


@dataclass(frozen=True)
class Rows:
    """Rows (n, d) in the dtype they came in, whose rounding decides what is dead; their classes; the arms."""

    x: NDArray[Any]
    y: Classes
    names: tuple[str, ...]

    def fold(self, train: Classes, test: Classes) -> Fold:
        """Both halves of a split after each normalisation, which is fitted on the training rows."""
        layer = profile_vectors(self.x[train])[-1]
        normalizers = [NORMALIZERS[name](layer) for name in self.names]
        halves = [self.x[numbers].astype(np.float64) for numbers in (train, test)]
        a, b = (np.stack([normalize(half) for normalize in normalizers]) for half in halves)
        targets = np.eye(self.y.max() + 1)
        return Fold(a, b, targets[:, self.y[train]], targets[:, self.y[test]])


@dataclass(frozen=True)
class Fold:
    """Normalised rows, shape (arms, m, d), and their classes as columns of zeros and a one, shape (classes, m)."""

    train: Array
    test: Array
    train_targets: Array
    test_targets: Array

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.train_targets)

    def record(self, train_scores: Array, test_scores: Array, setting: float) -> Record:
        """What an arm reaches with these scores, shape (classes, m)."""
        right = test_scores.argmax(axis=0) == self.test_targets.argmax(axis=0)
        loss = float(log_loss(train_scores, self.train_targets))
        return {"accuracy": float(right.mean()), "train_loss": loss, "setting": setting}


def with_ones(rows: Array) -> Array:
    """Rows (…, m, d) with a last column of ones, which carries the intercept."""
    return np.concatenate([rows, np.ones((*rows.shape[:-1], 1))], axis=-1)


def log_loss(scores: Array, targets: Array) -> Array:
    """Mean −log p of the right class over the rows: scores (classes, m, …) and targets (classes, m) give (…)."""
    # Classes come first wherever scores are: a sum over a last axis of two entries is slow in NumPy.
    return np.asarray(-np.einsum("km,km...->m...", targets, log_softmax(scores)).mean(axis=0))


def log_softmax(scores: NDArray[Float]) -> NDArray[Float]:
    """Log p of each class, along the first axis."""
    shifted = scores - scores.max(axis=0)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=0)), dtype=scores.dtype)
