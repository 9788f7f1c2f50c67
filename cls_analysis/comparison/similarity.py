"""How alike two sets of vectors of the same rows are: RSA, CKA and Procrustes, by their published definitions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cls_analysis.comparison.pairs import (
    correlation_null,
    debiased_null,
    debiased_ratio,
    deviation,
    pair_correlation,
    pair_sums,
    subsamples,
)
from cls_analysis.errors import DataError
from cls_analysis.moments import Array
from cls_analysis.statistics.intervals import WIDTH
from cls_analysis.statistics.samples import average_cosine_of, unit_rows
from cls_analysis.tasks.metrics import score

#: Subsamples of each size that an interval comes from.
SUBSAMPLES = 100
#: Up to so many rows Spearman's correlation takes all pairs, else this number of seeded ones.
EXACT_ROWS, SEEDED_PAIRS = 1_500, 1_000_000
#: Pairs whose vectors are gathered at once.
PAIRS_AT_ONCE = 16_384
#: Rows that are held in float64 at once where products are streamed.
STREAMED_ROWS = 4_096


@dataclass(frozen=True)
class Similarity:
    """A measure of two sets of vectors.

    Attributes
    ----------
    value, low, high : float
        The measure over all n rows, and its 95 % interval; NaN bounds where none was asked for.
    null, null_std : float
        Mean and standard deviation under permutations of one side's rows.
    n : int
    """

    value: float
    low: float
    high: float
    null: float
    null_std: float
    n: int


def rsa_pearson(x: ArrayLike, y: ArrayLike, *, count: int = SUBSAMPLES, seed: int = 0) -> Similarity:
    """Representational similarity: Pearson's correlation of the two cosine matrices over all pairs i < j.

    Kriegeskorte et al. 2008; as Merchant et al. 2020 use it. From −1 to 1, 1 for the same geometry up to rotation and
    scale. The vectors are not centred.

    Parameters
    ----------
    x, y : arrays (n, d) and (n, e)
        Row i of both is the same stimulus.
    count : int
        Subsamples of each size for the interval; 0 for none.
    seed : int
        Of the subsamples.

    Raises
    ------
    DataError
        If the numbers of rows differ or are below 4, a row is zero (it has no direction), or a value is not finite.
    """
    a, b = (_unit(rows) for rows in _matching(x, y))
    sums = pair_sums(a, b, subsamples(len(a), count, seed), shift=(average_cosine_of(a), average_cosine_of(b)))
    return _similarity(pair_correlation(sums), null_std=float(correlation_null(sums)[0]), n=len(a))


def rsa_spearman(x: ArrayLike, y: ArrayLike, *, seed: int = 0) -> float:
    """Spearman's rank correlation of the two cosine matrices, over all pairs up to 1,500 rows, else 10⁶ seeded ones.

    Distances 1 − cosine below 64·eps·d are rounding and count as 0: invented order is no similarity. NaN where all
    distances of one side are equal.

    Raises
    ------
    DataError
        As ``rsa_pearson``.
    """
    a, b = (_unit(rows) for rows in _matching(x, y))
    n = len(a)
    if n <= EXACT_ROWS:
        first, second = np.triu_indices(n, k=1)
    else:
        rng = np.random.default_rng(seed)
        first = rng.integers(0, n, SEEDED_PAIRS)
        second = (first + rng.integers(1, n, SEEDED_PAIRS)) % n
    return score("spearman", _distances(a, first, second), _distances(b, first, second))


def debiased_cka(x: ArrayLike, y: ArrayLike, *, count: int = SUBSAMPLES, seed: int = 0) -> Similarity:
    """Linear CKA with U-statistics for its three terms, with an interval, over pairs of rows.

    Kornblith et al. 2019, debiased as in Song et al. 2007. At most 1, 1 for the same vectors up to rotation and scale;
    0 on average for independent ones, and so now and then negative. Memory and time grow with n²: for many rows see
    ``linear_cka``, which gives the same value without an interval.

    Raises
    ------
    DataError
        If the numbers of rows differ or are below 8, or a value is not finite.
    """
    a, b = (rows - rows.mean(axis=0) for rows in _matching(x, y, least=8))
    sums = pair_sums(a, b, subsamples(len(a), count, seed))
    return _similarity(debiased_ratio(sums), null_std=debiased_null(len(a)), n=len(a))


#: What the three terms of CKA are products of: the first side with itself, the second with itself, both.
SIDES = ((0, 0), (1, 1), (0, 1))


@dataclass(frozen=True)
class CKA:
    """Linear CKA of n rows: ``debiased``; ``biased``, which tends to 1 for any two matrices where n is not far above d.

    ``biased_null`` is the mean of the biased one under permutations of one side's rows, exact.
    """

    debiased: float
    biased: float
    biased_null: float
    n: int


def linear_cka(x: ArrayLike, y: ArrayLike) -> CKA:
    """Linear CKA by products of features: time n·d², memory d², however many rows there are.

    Kornblith et al. 2019; its debiased form as in the code of that paper, and equal to the U-statistics of
    ``debiased_cka``. The null is that of the RV coefficient, which biased linear CKA is (Kazi-Aoual et al. 1995).

    Raises
    ------
    DataError
        If the numbers of rows differ or are below 4, or a value is not finite.
    """
    pair = _matching(x, y, whole=False)
    n = len(pair[0])
    means = [rows.mean(axis=0, dtype=np.float64) for rows in pair]
    products = [np.zeros((pair[i].shape[1], pair[j].shape[1])) for i, j in SIDES]
    squares = np.zeros(3)
    for start in range(0, n, STREAMED_ROWS):
        part = [rows[start : start + STREAMED_ROWS] - mean for rows, mean in zip(pair, means, strict=True)]
        lengths = [(rows**2).sum(axis=1) for rows in part]
        for place, (i, j) in enumerate(SIDES):
            products[place] += part[i].T @ part[j]
            squares[place] += lengths[i] @ lengths[j]
    traces = np.trace(products[0]), np.trace(products[1])
    norms = np.array([(product**2).sum() for product in products])
    both = np.array([traces[0] ** 2, traces[1] ** 2, traces[0] * traces[1]])
    xx, yy, xy = norms - n / (n - 2) * squares + both / ((n - 1) * (n - 2))
    largest = float(np.sqrt(norms[0] * norms[1]))
    if not largest > 0:
        return CKA(float("nan"), float("nan"), float("nan"), n)
    debiased = float(xy / np.sqrt(xx * yy)) if xx > 0 and yy > 0 else float("nan")
    return CKA(debiased, float(norms[2]) / largest, float(both[2]) / ((n - 1) * largest), n)


def procrustes_distance(x: ArrayLike, y: ArrayLike) -> float:
    """Squared distance of the two after centring, scaling to Frobenius norm 1, and the best rotation.

    2 − 2‖XᵀY‖_* , from 0 (the same up to rotation and scale) to 2 (Schönemann 1966; Ding et al. 2021). Sets of another
    width count as padded with zeros. NaN where all rows of one side are equal.

    Raises
    ------
    DataError
        If the numbers of rows differ or are below 4, or a value is not finite.
    """
    a, b = (rows - rows.mean(axis=0) for rows in _matching(x, y))
    lengths = np.linalg.norm(a), np.linalg.norm(b)
    if not min(lengths) > 0:
        return float("nan")
    product = (a / lengths[0]).T @ (b / lengths[1])
    return float(np.clip(2.0 - 2.0 * np.linalg.svd(product, compute_uv=False).sum(), 0.0, 2.0))


def _similarity(values: Array, *, null_std: float, n: int) -> Similarity:
    value = float(values[0])
    half = WIDTH * deviation(values) if len(values) > 1 else float("nan")
    return Similarity(value, value - half, value + half, 0.0, null_std, n)


def _matching(x: ArrayLike, y: ArrayLike, *, least: int = 4, whole: bool = True) -> tuple[Array, Array]:
    """Both as arrays of the same rows, finite, in float64 where they are held whole."""
    pair = [np.asarray(rows, dtype=np.float64 if whole else None) for rows in (x, y)]
    for side, rows in zip(("the first", "the second"), pair, strict=True):
        if rows.ndim != 2:
            raise DataError(f"{side} vectors: expected shape (n, d), got {rows.shape}")
        if not (finite := np.isfinite(rows).all(axis=1)).all():
            raise DataError(f"{side} vectors: row {int(np.argmin(finite))} holds a value that is not finite")
    if len(pair[0]) != len(pair[1]):
        raise DataError(
            f"{len(pair[0]):,} rows against {len(pair[1]):,}: row i of both sides must be the same stimulus"
        )
    if len(pair[0]) < least:
        raise DataError(f"at least {least} rows are needed to compare, got {len(pair[0])}")
    return pair[0], pair[1]


def _unit(rows: Array) -> Array:
    """Rows of length 1; here none may be left out, or the sides would no longer match."""
    if zero := np.flatnonzero(~rows.any(axis=1)).tolist():
        named = ", ".join(map(str, zero[:5])) + (", …" if len(zero) > 5 else "")
        raise DataError(f"{len(zero)} rows of zeros ({named}) have no direction: leave them out on both sides")
    return unit_rows(rows)


def _distances(unit: Array, first: NDArray[np.int64], second: NDArray[np.int64]) -> Array:
    """1 − cosine of pairs of rows."""
    distances = np.empty(len(first))
    for start in range(0, len(first), PAIRS_AT_ONCE):
        part = slice(start, start + PAIRS_AT_ONCE)
        distances[part] = 1.0 - np.einsum("ij,ij->i", unit[first[part]], unit[second[part]])
    distances[np.abs(distances) < 64 * np.finfo(np.float64).eps * unit.shape[1]] = 0.0
    return distances
