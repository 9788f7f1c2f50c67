"""Differences between arms that share seeds: intervals, exact tests, what so few seeds can show at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import fdtrc, stdtrit

from cls_analysis.moments import Array

#: Seeds up to which every assignment of signs is tried; beyond, so many random ones.
EXACT_SEEDS, FLIPS = 20, 100_000
#: Seeds from which on an interval comes from resampling them instead of Student's t, and resamples.
BOOTSTRAP_SEEDS, RESAMPLES = 20, 10_000
#: Two sums that differ by less than this share are the same but for rounding.
TIE = 1e-12
_CHUNK = 1 << 16


def mean_interval(differences: Array, *, seed: int = 0) -> tuple[float, float]:
    """95 % interval of the mean of paired differences, shape (k,).

    Student's t below 20 seeds; from there on percentiles of the means of 10,000 resamples of the seeds. NaN for fewer
    than two. Differences that are all alike give that value twice.
    """
    k = len(differences)
    if k < 2:
        return float("nan"), float("nan")
    mean = float(differences.mean())
    if np.ptp(differences) == 0:
        return mean, mean
    if k < BOOTSTRAP_SEEDS:
        half = float(stdtrit(k - 1, 0.975) * differences.std(ddof=1) / np.sqrt(k))
        return mean - half, mean + half
    rows = np.random.default_rng(seed).integers(0, k, (RESAMPLES, k))
    low, high = np.percentile(differences[rows].mean(axis=1), [2.5, 97.5])
    return float(low), float(high)


def sign_flip_test(differences: Array, *, seed: int = 0) -> float:
    """Two-sided p-value of the mean of paired differences (k,) under exchangeable signs (Fisher 1935).

    All 2^k assignments of signs up to 20 seeds; beyond, 100,000 random ones and (b + 1)/(m + 1). NaN without any.
    """
    k = len(differences)
    if k == 0:
        return float("nan")
    observed = abs(float(differences.sum()))
    least = observed - TIE * float(np.abs(differences).sum())
    if k <= EXACT_SEEDS:
        return float(_at_least(differences, least) / 2**k)
    rng = np.random.default_rng(seed)
    count = 0
    for start in range(0, FLIPS, _CHUNK):
        signs = rng.integers(0, 2, (min(_CHUNK, FLIPS - start), k), dtype=np.int8) * 2 - 1
        count += int((np.abs(signs @ differences) >= least).sum())
    return (count + 1) / (FLIPS + 1)


def _at_least(differences: Array, least: float) -> int:
    """How many assignments of signs give a sum of at least that size."""
    sums = np.zeros(1)
    for difference in differences:
        sums = np.concatenate([sums + difference, sums - difference])
    return int((np.abs(sums) >= least).sum())


def smallest_p(k: int) -> float:
    """The smallest two-sided p that ``sign_flip_test`` can give for k seeds; NaN for none."""
    if k == 0:
        return float("nan")
    return float(2.0 / 2**k) if k <= EXACT_SEEDS else 1.0 / (FLIPS + 1)


def holm(p: Sequence[float] | Array) -> Array:
    """p-values adjusted for their number (Holm 1979), shape (m,); NaN stays and does not count."""
    values = np.asarray(p, dtype=np.float64)
    adjusted = np.full(len(values), np.nan)
    known = np.flatnonzero(np.isfinite(values))
    order = known[np.argsort(values[known], kind="stable")]
    scaled = values[order] * np.arange(len(order), 0, -1)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def spreads(scores: Array) -> Array:
    """Distance of each score from the median of all, shape (k,)."""
    return np.asarray(np.abs(scores - np.median(scores)))


def brown_forsythe(a: Array, b: Array) -> float:
    """P-value of equal spread of two arms (Brown and Forsythe 1974); assumes unpaired seeds. NaN where undefined."""
    if min(len(a), len(b)) < 2:
        return float("nan")
    x, y = spreads(a), spreads(b)
    within = ((x - x.mean()) ** 2).sum() + ((y - y.mean()) ** 2).sum()
    n = len(x) + len(y)
    grand = (x.sum() + y.sum()) / n
    between = len(x) * (x.mean() - grand) ** 2 + len(y) * (y.mean() - grand) ** 2
    if within == 0:
        return float("nan") if between == 0 else 0.0
    return float(fdtrc(1, n - 2, between / within * (n - 2)))


def expected_best(select: Array, report: Array) -> Array:
    """Expected reported score of the best of k runs, k = 1 … n, shape (n,).

    The best is chosen by ``select``; what it scores is read off ``report`` (Dodge et al. 2019, with the two kept
    apart). Of n runs in ascending order of ``select``, the i-th is the best of k draws with replacement with
    probability (i/n)^k − ((i−1)/n)^k; runs with equal ``select`` share their mean.
    """
    n = len(select)
    values, group = np.unique(select, return_inverse=True)
    shared = np.bincount(group, weights=report) / np.bincount(group)
    reach = np.cumsum(np.bincount(group, minlength=len(values))) / n
    k = np.arange(1, n + 1)[:, None]
    weights = reach**k - np.concatenate([[0.0], reach[:-1]]) ** k
    return np.asarray(weights @ shared)
