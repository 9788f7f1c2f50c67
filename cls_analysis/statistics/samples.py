"""Statistics that moments do not hold: of the vectors themselves, row by row.

They take arrays of shape (m, d), as a Profile's seeded sample of m of its n rows. Rows of zeros have no direction and
are left out of what needs one.
"""

from __future__ import annotations

import numpy as np
import scipy.special
from numpy.typing import ArrayLike, NDArray

from cls_analysis.moments import Array, single_threaded_blas
from cls_analysis.statistics.isotropy import contributions

#: Share of the largest distance ratios that TwoNN leaves out (Facco et al. 2017).
TWONN_DISCARD = 0.1
#: Temperature t of uniformity (Wang and Isola 2020).
UNIFORMITY_T = 2.0


def unit_rows(x: ArrayLike) -> Array:
    """Rows divided by their length, float64; rows of zeros are left out."""
    rows = np.asarray(x, dtype=np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True)
    kept = largest[:, 0] > 0
    rows = rows[kept] / largest[kept]
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def cosine_contributions_of(unit: Array) -> Array:
    """What each dimension adds to the average cosine of unit rows, shape (d,); see ``isotropy``."""
    return contributions(unit.sum(axis=0), (unit**2).sum(axis=0), len(unit))


def average_cosine_of(unit: Array) -> float:
    """Mean cosine over pairs of different unit rows, −1/(m − 1) to 1."""
    return float(cosine_contributions_of(unit).sum())


def rms_cosine(unit: Array) -> float:
    """√ of the mean squared cosine over pairs of different unit rows, 0 to 1; 1/√d for isotropic vectors.

    Subtracting the mean brings the average cosine to about 0 unless the rows are very skewed; this it lowers only as
    far as the directions really spread. Ours.
    """
    m = len(unit)
    if m < 2:
        return float("nan")
    # Σ_ij cos² = ‖U Uᵀ‖² = ‖Uᵀ U‖²: the smaller of the two products will do.
    gram = unit @ unit.T if m < unit.shape[1] else unit.T @ unit
    return float(np.sqrt(max(0.0, (gram**2).sum() - m) / (m * (m - 1.0))))


def uniformity(unit: Array, t: float = UNIFORMITY_T) -> float:
    """Log E exp(−t‖u_i − u_j‖²) over pairs i < j (Wang and Isola 2020); lower is more uniform.

    −2t·m/(m − 1), where each row is as far from every other as can be, to 0, where all are the same.
    """
    m = len(unit)
    if m < 2:
        return float("nan")
    above = np.triu_indices(m, k=1)
    squared = np.clip(2.0 - 2.0 * (unit @ unit.T)[above], 0.0, 4.0)
    return float(scipy.special.logsumexp(-t * squared) - np.log(len(squared)))


def twonn_dimension(x: ArrayLike) -> float:
    """Intrinsic dimension from the ratio of the distances to the two nearest neighbours (TwoNN, Facco et al. 2017).

    Slope through the origin of −log(1 − F) over log(r2/r1), F the empirical distribution, without the largest tenth of
    the ratios. Rows that are there twice count once. It underestimates high dimensions: 384 isotropic ones give about
    110 at 2,000 rows. NaN with fewer than three different rows, or where the two neighbours are always equally far.
    """
    rows = np.unique(np.asarray(x, dtype=np.float64), axis=0)
    m = len(rows)
    if m < 3:
        return float("nan")
    nearest = np.sqrt(np.partition(_squared_distances(rows), (1, 2), axis=1)[:, 1:3])
    nearest = nearest[nearest[:, 0] > 0]
    if len(nearest) < 3:
        return float("nan")
    ratio = np.sort(np.log(nearest[:, 1] / nearest[:, 0]))
    kept = int(len(ratio) * (1.0 - TWONN_DISCARD))
    share = np.arange(1, len(ratio) + 1) / len(ratio)
    x_fit, y_fit = ratio[:kept], -np.log1p(-share[:kept])
    denominator = float(x_fit @ x_fit)
    return float(x_fit @ y_fit) / denominator if denominator > 0 else float("nan")


def partition_isotropy(x: ArrayLike) -> float:
    """I(W) = min F(c) / max F(c), F(c) = Σ exp(cᵀx), over the eigenvectors ±c of XᵀX (Mu and Viswanath 2018); 0 to 1.

    Both signs, so that it does not depend on those that the decomposition happens to give; in logarithms, so that
    nothing overflows. It depends on the scale of the rows: give unit rows to compare encoders. NaN without rows.
    """
    rows = np.asarray(x, dtype=np.float64)
    if len(rows) == 0:
        return float("nan")
    with single_threaded_blas():
        _, vectors = np.linalg.eigh(rows.T @ rows)
    projected = rows @ vectors
    log_f = scipy.special.logsumexp(np.stack([projected, -projected]), axis=1)
    return float(np.exp(np.min(log_f) - np.max(log_f)))


def nearest_rows(unit: Array, k: int = 10) -> NDArray[np.int64]:
    """The ``k`` nearest other rows of each by cosine, as row numbers, unordered, shape (m, min(k, m − 1))."""
    k = min(k, len(unit) - 1)
    cosine = unit @ unit.T
    np.fill_diagonal(cosine, -np.inf)
    return np.asarray(np.argpartition(-cosine, k - 1, axis=1)[:, :k]) if k > 0 else np.empty((len(unit), 0), np.int64)


def changed_neighbours(before: NDArray[np.int64], after: NDArray[np.int64]) -> float:
    """Share of the nearest rows ``before`` that are no longer among those ``after``, 0 to 1."""
    if before.size == 0:
        return float("nan")
    kept = [len(np.intersect1d(a, b)) for a, b in zip(before, after, strict=True)]
    return 1.0 - float(np.mean(kept) / before.shape[1])


def extreme_shares(x: ArrayLike) -> Array:
    """In which share of the rows each dimension is the smallest of all, or the largest, shape (d,) (Luo et al. 2021).

    The larger of the two shares; of equal values the first counts. Rows of one value have neither and are left out;
    NaN where there are no others.
    """
    rows = np.asarray(x)
    rows = rows[(rows != rows[:, :1]).any(axis=1)]
    d = rows.shape[1]
    if len(rows) == 0:
        return np.full(d, np.nan)
    lowest = np.bincount(rows.argmin(axis=1), minlength=d)
    highest = np.bincount(rows.argmax(axis=1), minlength=d)
    return np.asarray(np.maximum(lowest, highest) / len(rows))


def _squared_distances(rows: Array) -> Array:
    """Squared Euclidean distances, shape (m, m); centred first, or a long common mean would cost the digits."""
    centred = rows - rows.mean(axis=0)
    squares = np.einsum("ij,ij->i", centred, centred)
    distances = squares[:, None] + squares[None, :] - 2.0 * (centred @ centred.T)
    np.fill_diagonal(distances, 0.0)
    return np.asarray(np.clip(distances, 0.0, None))
