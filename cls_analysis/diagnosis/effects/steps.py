"""A linear layer after some steps of SGD or of AdamW: all arms and rates are trained together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from cls_analysis.diagnosis.effects.folds import Classes, Fold, Record, log_loss, log_softmax, with_ones
from cls_analysis.moments import Array

Single = NDArray[np.float32]
BATCH = 32


class _Optimizer(ABC):
    """Trains many layers at once; the rates broadcast to the weights."""

    #: Learning rates that are tried, in multiples of ``unit``: normalising changes which rates are large ones.
    MULTIPLES: ClassVar[Array]

    def __init__(self, weights: Single, rates: Single) -> None:
        self.rates = rates

    @staticmethod
    @abstractmethod
    def unit(x: Single) -> Array:
        """The learning rate in proportion to the size of rows (arms, m, d + 1), shape (arms,)."""

    @abstractmethod
    def step(self, weights: Single, gradient: Single) -> None:
        """Change ``weights`` in place."""


class _SGD(_Optimizer):
    """w ← w − ηg, η in units of 1/E‖x‖²: it becomes unstable at about 8 of them if one direction has all the energy."""

    MULTIPLES = np.logspace(-2.5, 1.5, 9)

    @staticmethod
    def unit(x: Single) -> Array:
        return np.asarray(1.0 / (x.astype(np.float64) ** 2).sum(axis=2).mean(axis=1))

    def step(self, weights: Single, gradient: Single) -> None:
        weights -= self.rates * gradient


class _AdamW(_Optimizer):
    """AdamW with torch's defaults (Loshchilov and Hutter 2019), η in units of 1/√Ex²; as there, the bias decays too."""

    MULTIPLES = np.logspace(-4.0, 0.0, 9)
    BETA1, BETA2, EPS, DECAY = 0.9, 0.999, 1e-8, 0.01

    def __init__(self, weights: Single, rates: Single) -> None:
        super().__init__(weights, rates)
        self.mean, self.square = np.zeros_like(weights), np.zeros_like(weights)
        self.steps = 0

    @staticmethod
    def unit(x: Single) -> Array:
        return np.asarray(1.0 / np.sqrt((x.astype(np.float64) ** 2).mean(axis=(1, 2))))

    def step(self, weights: Single, gradient: Single) -> None:
        self.steps += 1
        self.mean += (1.0 - self.BETA1) * (gradient - self.mean)
        self.square += (1.0 - self.BETA2) * (gradient * gradient - self.square)
        root = np.sqrt(self.square) / np.float32(np.sqrt(1.0 - self.BETA2**self.steps)) + self.EPS
        weights *= 1.0 - self.rates * self.DECAY
        weights -= self.rates / (1.0 - self.BETA1**self.steps) * (self.mean / root)


TRAINERS: dict[str, type[_Optimizer]] = {"sgd": _SGD, "adamw": _AdamW}


def draw_batches(m: int, steps: int, rng: np.random.Generator) -> Classes:
    """Row numbers of each batch, shape (steps, 32), shuffled anew whenever all rows have been seen."""
    epochs = -(-steps * BATCH // m)
    shuffled = np.concatenate([rng.permutation(m) for _ in range(epochs)])
    return np.asarray(shuffled[: steps * BATCH].reshape(steps, BATCH))


def after_steps(fold: Fold, choosing: Fold, batches: Sequence[Classes], trainer: type[_Optimizer]) -> list[Record]:
    """A record for each arm, with the rate of the least log-loss on the held-out rows of an inner fold."""
    # Of a rate at which training diverges, the log-loss is not finite, and the rate not chosen.
    with np.errstate(over="ignore", invalid="ignore"):
        rows, held_out = _single(choosing.train), _single(choosing.test)
        tried = np.outer(trainer.unit(rows), trainer.MULTIPLES)
        weights = _train(rows, choosing.train_targets, batches[0], tried, trainer)
        losses = np.array([log_loss(each, choosing.test_targets) for each in _scores(held_out, weights)])
        best = trainer.MULTIPLES[np.where(np.isfinite(losses), losses, np.inf).argmin(axis=1)]
        rows, held_out = _single(fold.train), _single(fold.test)
        rates = trainer.unit(rows) * best
        weights = _train(rows, fold.train_targets, batches[1], rates[:, None], trainer)
        scores = zip(_scores(rows, weights), _scores(held_out, weights), strict=True)
        return [
            fold.record(train[..., 0], test[..., 0], float(rate))
            for (train, test), rate in zip(scores, rates, strict=True)
        ]


def _single(rows: Array) -> Single:
    return with_ones(rows).astype(np.float32)


def _train(x: Single, targets: Array, batches: Classes, rates: Array, trainer: type[_Optimizer]) -> Single:
    """Weights after a step on each batch, from zero on, shape (arms, d + 1, classes, rates).

    Rows (arms, m, d + 1), targets (classes, m), rates (arms, rates).
    """
    (arms, _, width), classes, runs = x.shape, len(targets), rates.shape[1]
    weights = np.zeros((arms, width, classes * runs), dtype=np.float32)
    optimizer = trainer(weights, np.tile(rates, classes)[:, None, :].astype(np.float32))
    share = np.float32(1.0 / BATCH)
    goal = targets.astype(np.float32) * share
    for batch in batches:
        rows = x[:, batch]
        scores = np.moveaxis((rows @ weights).reshape(arms, BATCH, classes, runs), 2, 0)
        residual = np.exp(log_softmax(scores)) * share - goal[:, None, batch, None]
        residual = np.moveaxis(residual, 0, 2).reshape(arms, BATCH, classes * runs)
        optimizer.step(weights, rows.transpose(0, 2, 1) @ residual)
    return weights.reshape(arms, width, classes, runs)


def _scores(x: Single, weights: Single) -> Array:
    """Scores of rows (arms, m, d + 1), shape (arms, classes, m, rates), float64."""
    arms, width, classes, runs = weights.shape
    scores = (x @ weights.reshape(arms, width, classes * runs)).reshape(arms, -1, classes, runs)
    return np.moveaxis(scores.astype(np.float64), 2, 1)
