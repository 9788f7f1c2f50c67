"""Differences between arms when seeds and development rows are resampled together.

A resample of rows is a weight for each of them, and every metric a function of weighted counts, so that thousands of
resamples of all runs are a few products of matrices.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cls_analysis.moments import Array

RESAMPLES = 2_000


def joint_intervals(
    metric: str, truth: NDArray[Any], base: NDArray[Any], arm: NDArray[Any], *, seed: int = 0
) -> tuple[float, float]:
    """95 % interval of the mean paired difference between two arms, over seeds and rows.

    Percentiles of 2,000 resamples, each of k seeds and m rows with replacement, the same for all arms of a seed. With
    few seeds, resampling them shows too little of their spread; the interval over seeds stands beside this one.
    Spearman's correlation keeps the ranks that all rows have.

    Parameters
    ----------
    metric : str
        As ``tasks.metrics`` has it.
    truth : array (m,)
    base, arm : arrays (k, m)
        Predictions of each seed.
    """
    k = len(base)
    if k < 2:
        return float("nan"), float("nan")
    if np.array_equal(base, arm):
        return 0.0, 0.0
    rows, seeds = _resamples(k, len(truth), seed)
    difference = weighted_scores(metric, truth, arm, rows) - weighted_scores(metric, truth, base, rows)
    # Seeds whose score is undefined in a resample leave it to the others.
    known = np.isfinite(difference)
    with np.errstate(invalid="ignore"):
        means = (np.where(known, difference, 0.0) * seeds).sum(axis=0) / (known * seeds).sum(axis=0)
    if np.isnan(means).all():
        return float("nan"), float("nan")
    low, high = np.nanpercentile(means, [2.5, 97.5])
    return float(low), float(high)


# Drawing them takes longer than the scores do, and the arms of a condition share them.
@lru_cache(maxsize=1)
def _resamples(k: int, m: int, seed: int) -> tuple[Array, Array]:
    """How often each resample holds each row, shape (m, resamples), and each seed (k, resamples)."""
    rng = np.random.default_rng(seed)
    rows, seeds = (rng.multinomial(n, np.full(n, 1.0 / n), RESAMPLES).T.astype(np.float64) for n in (m, k))
    return rows, seeds


def weighted_scores(metric: str, truth: NDArray[Any], predicted: NDArray[Any], weights: Array) -> Array:
    """A metric of each run under each weighting of rows, shape (runs, resamples); NaN where it is undefined.

    Parameters
    ----------
    truth : array (m,)
    predicted : array (runs, m)
    weights : array (m, resamples)
    """
    if metric in ("pearson", "spearman"):
        if metric == "spearman":
            from scipy.stats import rankdata  # noqa: PLC0415 (slow to import)

            truth, predicted = rankdata(truth), rankdata(predicted, axis=1)
        return _correlation(truth, predicted, weights)
    total = weights.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        if metric == "accuracy":
            return np.asarray((predicted == truth) @ weights / total)
        if metric == "f1":
            return _f1(truth, predicted, weights, 1)
        if metric == "macro_f1":
            return _macro_f1(truth, predicted, weights)
    return _mcc(truth, predicted, weights)


def _f1(truth: NDArray[Any], predicted: NDArray[Any], weights: Array, number: int) -> Array:
    named = predicted == number
    right = (named & (truth == number)) @ weights
    return np.asarray(2.0 * right / (named @ weights + (truth == number) @ weights))


def _macro_f1(truth: NDArray[Any], predicted: NDArray[Any], weights: Array) -> Array:
    """Over the classes that the resample's truth has."""
    total, classes = np.zeros((len(predicted), weights.shape[1])), np.zeros(weights.shape[1])
    for number in np.unique(truth):
        there = (truth == number) @ weights > 0
        total += np.where(there, _f1(truth, predicted, weights, number), 0.0)
        classes += there
    return total / classes


def _mcc(truth: NDArray[Any], predicted: NDArray[Any], weights: Array) -> Array:
    """Matthews' correlation of any number of classes (Gorodkin 2004), with the rules of ``tasks.metrics``."""
    total = weights.sum(axis=0)
    right = (predicted == truth) @ weights
    both = np.zeros_like(right)
    of_truth, of_prediction = total**2, np.broadcast_to(total**2, right.shape).copy()
    for number in np.union1d(truth, predicted):
        named, there = (predicted == number) @ weights, (truth == number) @ weights
        both += named * there
        of_truth = of_truth - there**2
        of_prediction -= named**2
    product = of_truth * of_prediction
    with np.errstate(invalid="ignore", divide="ignore"):
        score = np.where(product > 0, (right * total - both) / np.sqrt(product), 0.0)
    return np.asarray(np.where((of_truth == 0) & (of_prediction == 0), np.nan, score))


def _correlation(truth: NDArray[Any], predicted: NDArray[Any], weights: Array) -> Array:
    share = weights / weights.sum(axis=0)
    # Centred first: raw second moments would lose what a large mean leaves.
    y = truth - truth.mean()
    x = predicted - predicted.mean(axis=1, keepdims=True)
    mean_x, mean_y = x @ share, y @ share
    covariance = (x * y) @ share - mean_x * mean_y
    variance_x, variance_y = (x * x) @ share - mean_x**2, (y * y) @ share - mean_y**2
    constant = (variance_x <= 1e-14 * (x * x).max(axis=1, keepdims=True)) | (variance_y <= 1e-14 * (y * y).max())
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(constant, np.nan, covariance / np.sqrt(variance_x * variance_y)))
