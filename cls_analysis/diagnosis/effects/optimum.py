"""A linear layer at its optimum: logistic regression with the penalty that serves held-out rows best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.optimize

from cls_analysis.diagnosis.effects.folds import Fold, Record, log_loss, log_softmax, with_ones
from cls_analysis.moments import Array

#: λ of mean log-loss + λ/2·v‖W‖², v the mean variance of the arm's dimensions: one grid suits rows of any scale.
PENALTIES = np.logspace(2, -6, 9)
#: Largest entry of the gradient of a converged fit, in units of curvature 1: to choose a penalty, and of the last one.
ROUGH, FINE = 1e-4, 1e-6
MOST_ITERATIONS = 1_000
#: Principal axes of less than this share of the largest variance: the smallest penalty leaves nothing of them.
NEGLIGIBLE = 1e-12


class Fitter:
    """Fits logistic regressions, and counts them and those that did not converge."""

    def __init__(self) -> None:
        self.fits = self.unconverged = 0

    def fit(self, axes: _Axes, targets: Array, penalty: float, start: Array, tolerance: float) -> Array:
        """Minimise mean log-loss + λ/2‖W‖², shape (columns, k + 1); the intercept, last, is free.

        L-BFGS in units in which every coordinate has about curvature 1. In those of the rows, ill-conditioned ones
        would take thousands of iterations, and the arms would differ in how far they got.
        """
        classes, m = targets.shape
        columns, width = start.shape
        shrink = np.append(np.full(width - 1, penalty), 0.0)
        # At even odds the curvature of the log-loss is p(1 − p) times the mean square of the coordinate.
        unit = 1.0 / np.sqrt((1.0 - 1.0 / classes) / classes * axes.mean_squares + shrink)

        def objective(flat: Array) -> tuple[float, Array]:
            weights = flat.reshape(columns, width) * unit
            log_p = log_softmax(axes.scores(axes.train, weights, classes))
            residual = (np.exp(log_p) - targets)[-columns:] / m
            loss = 0.5 * np.vdot(weights, shrink * weights) - np.vdot(log_p, targets) / m
            return float(loss), ((residual @ axes.train + shrink * weights) * unit).ravel()

        found = scipy.optimize.minimize(
            objective,
            np.ravel(start / unit),
            jac=True,
            method="L-BFGS-B",
            options={"gtol": tolerance, "ftol": 0.0, "maxiter": MOST_ITERATIONS, "maxfun": 2 * MOST_ITERATIONS},
        )
        self.fits += 1
        self.unconverged += not found.success
        return np.asarray(found.x.reshape(columns, width) * unit)


@dataclass(frozen=True)
class _Axes:
    """Training and test rows along the training rows' principal axes, and a last column of ones, shape (m, k + 1).

    Centred and divided by one number, so that the variance of a dimension is 1 on average. A fit with an L2 penalty
    and a free intercept sees neither shift nor rotation, and there are no more axes than rows.
    """

    train: Array
    test: Array

    @classmethod
    def of(cls, train: Array, test: Array) -> _Axes:
        mean = train.mean(axis=0)
        size = np.sqrt(((train - mean) ** 2).mean()) or 1.0
        a, b = (train - mean) / size, (test - mean) / size
        few = len(a) < a.shape[1]
        values, vectors = np.linalg.eigh(a @ a.T if few else a.T @ a)
        kept = values > NEGLIGIBLE * values[-1]
        axes = a.T @ (vectors[:, kept] / np.sqrt(values[kept])) if few else vectors[:, kept]
        return cls(with_ones(a @ axes), with_ones(b @ axes))

    @cached_property
    def mean_squares(self) -> Array:
        """Of each column, shape (k + 1,)."""
        return np.asarray((self.train**2).mean(axis=0))

    def start(self, classes: int) -> Array:
        """Weights of zero; two classes need the scores of one only."""
        return np.zeros((1 if classes == 2 else classes, self.train.shape[1]))

    @staticmethod
    def scores(rows: Array, weights: Array, classes: int) -> Array:
        """Shape (classes, m); 0 for the first of two classes."""
        scores = np.zeros((classes, len(rows)))
        scores[-len(weights) :] = weights @ rows.T
        return scores


def at_optimum(fold: Fold, choosing: Sequence[Fold], arm: int, fitter: Fitter) -> Record:
    """Record of logistic regression with the penalty whose log-loss is least on average over the inner folds."""
    losses = np.mean([_held_out_losses(each, arm, fitter) for each in choosing], axis=0)
    penalty = float(PENALTIES[losses.argmin()])
    axes = _Axes.of(fold.train[arm], fold.test[arm])
    weights = fitter.fit(axes, fold.train_targets, penalty, axes.start(fold.classes), FINE)
    train, test = (axes.scores(rows, weights, fold.classes) for rows in (axes.train, axes.test))
    return fold.record(train, test, penalty)


def _held_out_losses(fold: Fold, arm: int, fitter: Fitter) -> Array:
    """Log-loss of the held-out rows with each of the penalties, shape (penalties,)."""
    axes = _Axes.of(fold.train[arm], fold.test[arm])
    weights, losses = axes.start(fold.classes), []
    for penalty in PENALTIES:
        weights = fitter.fit(axes, fold.train_targets, float(penalty), weights, ROUGH)
        losses.append(log_loss(axes.scores(axes.test, weights, fold.classes), fold.test_targets))
    return np.array(losses)
