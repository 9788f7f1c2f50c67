"""Null values: what an isotropic Gaussian of the same n and d gives.

In closed form, or as the mean over seeded draws whose cost does not grow with n: eigenvalues come from the Bartlett
decomposition of the Wishart matrix, variances from the χ² distribution.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import scipy.special

from cls_analysis.moments import Array, single_threaded_blas
from cls_analysis.statistics.concentration import gini, top_share
from cls_analysis.statistics.outliers import ALPHA, three_sigma
from cls_analysis.statistics.samples import partition_isotropy, twonn_dimension, unit_rows
from cls_analysis.statistics.spectrum import effective_rank, explained_variance, isoscore, participation_ratio

#: Draws per null value: enough for the third digit of every spectral one.
DRAWS = 8
SEED = 20_191_110
#: The skewed distribution of g2 is not approximated well below so many rows; there it is drawn.
FEW_ROWS = 20


@dataclass(frozen=True)
class ConcentrationNull:
    """Null of the energy over dimensions."""

    top1: float
    top3: float
    top10: float
    gini: float


@dataclass(frozen=True)
class SpectrumNull:
    """Null of the covariance's eigenvalues; ``spectrum`` is their mean share of the variance, shape (d,)."""

    participation_ratio: float
    isoscore: float
    effective_rank: float
    explained_variance: Array


@dataclass(frozen=True)
class SampleNull:
    """Null of statistics of rows."""

    twonn_dimension: float
    partition_isotropy: float


@dataclass(frozen=True)
class ThreeSigmaNull:
    """Expected number of dimensions called outliers by the three-sigma rules of the literature."""

    mean: float
    std: float


@lru_cache(maxsize=512)
def concentration_null(n: int, d: int) -> ConcentrationNull:
    """Top-k shares and Gini of E[x_i²] over i: d independent χ²_n / n."""
    rng = np.random.default_rng((SEED, n, d))
    draws = rng.chisquare(n, size=(16 * DRAWS, d))
    top1, top3, top10 = (float(np.mean([top_share(row, k) for row in draws])) for k in (1, 3, 10))
    return ConcentrationNull(top1, top3, top10, float(np.mean([gini(row) for row in draws])))


@lru_cache(maxsize=512)
def spectrum_null(n: int, d: int) -> SpectrumNull:
    """Statistics of the eigenvalues of a population covariance: Wishart with n − 1 degrees of freedom, over n."""
    if n < 2:
        nan = float("nan")
        return SpectrumNull(nan, nan, nan, np.full(d, nan))
    rng = np.random.default_rng((SEED, n, d, 1))
    spectra = [wishart_eigenvalues(rng, n - 1, d) for _ in range(DRAWS)]
    return SpectrumNull(
        participation_ratio=float(np.mean([participation_ratio(s) for s in spectra])),
        isoscore=float(np.mean([isoscore(s) for s in spectra])),
        effective_rank=float(np.mean([effective_rank(s) for s in spectra])),
        explained_variance=np.mean([explained_variance(s) for s in spectra], axis=0),
    )


@lru_cache(maxsize=512)
def condition_number_null(n: int, d: int) -> float:
    """λmax/λmin of E[x xᵀ]: Wishart with n degrees of freedom; NaN if n is not larger than d. Median over draws."""
    if d < 1 or n <= d:
        return float("nan")
    rng = np.random.default_rng((SEED, n, d, 2))
    spectra = [wishart_eigenvalues(rng, n, d) for _ in range(DRAWS)]
    return float(np.median([s[0] / s[-1] for s in spectra]))


@lru_cache(maxsize=512)
def std_ratio_null(n: int, d: int) -> float:
    """Largest over median standard deviation of d dimensions: square roots of χ²_{n−1}."""
    if n < 2 or d < 1:
        return float("nan")
    rng = np.random.default_rng((SEED, n, d, 3))
    std = np.sqrt(rng.chisquare(n - 1, size=(16 * DRAWS, d)))
    return float(np.mean(std.max(axis=1) / np.median(std, axis=1)))


@lru_cache(maxsize=512)
def max_kurtosis_null(n: int, d: int) -> float:
    """Expected largest g2 of d Gaussian dimensions.

    The quantiles of g2 come from the normalising transform of Anscombe and Glynn (1983), inverted; the largest of d is
    integrated over its distribution. With fewer than 20 rows it is drawn.
    """
    if n < 2 or d < 1:
        return float("nan")
    if n < FEW_ROWS:
        rng = np.random.default_rng((SEED, n, d, 4))
        x = rng.standard_normal((16 * DRAWS, n, d))
        return float(_kurtosis(x, axis=1).max(axis=1).mean())
    points = (np.arange(4_000) + 0.5) / 4_000
    return float(_kurtosis_quantile(n, scipy.special.ndtri(points ** (1.0 / d))).mean())


def mean_absolute_correlation_null(n: int) -> float:
    """E|r| of two independent Gaussian dimensions over n rows: Γ((n−1)/2) / (√π Γ(n/2))."""
    if n < 2:
        return float("nan")
    return float(np.exp(scipy.special.gammaln((n - 1) / 2) - scipy.special.gammaln(n / 2)) / np.sqrt(np.pi))


def wishart_eigenvalues(rng: np.random.Generator, dof: int, d: int) -> Array:
    """Eigenvalues of one draw of Wishart_d(I, dof), largest first, shape (d,).

    Bartlett: W = L Lᵀ with L lower triangular, χ on its diagonal and standard normals below. With dof < d the
    non-zero eigenvalues are those of Wishart_dof(I, d).
    """
    k, m = min(dof, d), max(dof, d)
    lower = np.tril(rng.standard_normal((k, k)), -1)
    lower[np.diag_indices(k)] = np.sqrt(rng.chisquare(m - np.arange(k)))
    with single_threaded_blas():
        values = np.linalg.eigvalsh(lower @ lower.T)
    return np.concatenate([np.clip(values[::-1], 0.0, None), np.zeros(d - k)])


@lru_cache(maxsize=512)
def kurtosis_band(n: int) -> tuple[float, float]:
    """Between which values g2 of 95 % of Gaussian dimensions of n rows lies; NaN below 4 rows, where it is fixed."""
    if n < 4:
        return float("nan"), float("nan")
    if n < FEW_ROWS:
        rng = np.random.default_rng((SEED, n, 5))
        low, high = np.quantile(_kurtosis(rng.standard_normal((n, 40_000)), axis=0), [0.025, 0.975])
    else:
        low, high = _kurtosis_quantile(n, scipy.special.ndtri(np.array([0.025, 0.975])))
    return float(low), float(high)


def _kurtosis(x: Array, axis: int) -> Array:
    """Excess kurtosis g2 along an axis; scipy.stats has it too, but takes a second to import."""
    squares = (x - x.mean(axis=axis, keepdims=True)) ** 2
    return np.asarray((squares**2).mean(axis=axis) / squares.mean(axis=axis) ** 2 - 3.0)


def _kurtosis_quantile(n: int, z: Array) -> Array:
    """g2 of n Gaussian rows at the normal score z (Anscombe and Glynn 1983, the transform of D'Agostino's test).

    Good from about 20 rows on.
    """
    mean = 3.0 * (n - 1) / (n + 1)
    variance = 24.0 * n * (n - 2) * (n - 3) / ((n + 1) ** 2 * (n + 3) * (n + 5))
    skew = 6.0 * (n * n - 5 * n + 2) / ((n + 7) * (n + 9)) * np.sqrt(6.0 * (n + 3) * (n + 5) / (n * (n - 2) * (n - 3)))
    a = 6.0 + 8.0 / skew * (2.0 / skew + np.sqrt(1.0 + 4.0 / skew**2))
    root = 1.0 - 2.0 / (9.0 * a) - z * np.sqrt(2.0 / (9.0 * a))
    standardized = ((1.0 - 2.0 / a) / root**3 - 1.0) / np.sqrt(2.0 / (a - 4.0))
    return np.asarray(standardized * np.sqrt(variance) + mean - 3.0)


def rms_cosine_null(d: int) -> float:
    """√E cos² of two independent isotropic vectors: 1/√d."""
    return 1.0 / float(np.sqrt(d)) if d > 0 else float("nan")


def uniformity_null(d: int, t: float) -> float:
    """Log E exp(−t‖u − v‖²) of two independent isotropic directions.

    With c their cosine, E exp(2tc) = ₀F₁(; d/2; t²), the moment-generating function of one coordinate of the sphere.
    """
    return float(-2.0 * t + np.log(scipy.special.hyp0f1(d / 2.0, t * t))) if d > 0 else float("nan")


@lru_cache(maxsize=64)
def sample_null(m: int, d: int) -> SampleNull:
    """TwoNN dimension of m isotropic rows of d, and partition isotropy of their directions: means over few draws."""
    if m < 1 or d < 1:
        return SampleNull(float("nan"), float("nan"))
    rng = np.random.default_rng((SEED, m, d, 6))
    draws = [rng.standard_normal((m, d)) for _ in range(3)]
    return SampleNull(
        twonn_dimension=float(np.mean([twonn_dimension(x) for x in draws])),
        partition_isotropy=float(np.mean([partition_isotropy(unit_rows(x)) for x in draws])),
    )


@lru_cache(maxsize=64)
def three_sigma_null(n: int, d: int) -> ThreeSigmaNull:
    """How many dimensions of isotropic data lie beyond three standard deviations of the others: means over draws."""
    if n < 2 or d < 1:
        return ThreeSigmaNull(float("nan"), float("nan"))
    rng = np.random.default_rng((SEED, n, d, 7))
    mean = rng.standard_normal((32 * DRAWS, d)) / np.sqrt(n)
    std = np.sqrt(rng.chisquare(n - 1, size=(32 * DRAWS, d)) / n)
    return ThreeSigmaNull(*(float(three_sigma(each).sum(axis=1).mean()) for each in (mean, std)))


def normal_quantile(d: int) -> float:
    """|z| that the largest of d standard normals exceeds with probability ``ALPHA`` at most (Bonferroni)."""
    return float(scipy.special.ndtri(1.0 - ALPHA / (2.0 * d)))


def common_mean_quantile(n: int, directions: float) -> float:
    """Common mean share that n rows of mean zero exceed with a probability of about 0.1 %.

    n‖x̄‖²/E‖x‖² is a sum of χ²_1 weighted by the eigenvalues' shares; Satterthwaite's approximation gives it as many
    degrees of freedom as the participation ratio says that there are ``directions``. Right where these hold equal
    variances; where one direction stands out from many small ones it is exceeded with up to 2 %.
    """
    if not np.isfinite(directions):
        return float("nan")
    return float(scipy.special.chdtri(directions, 0.001) / (directions * n))


def largest_variance_ratio(n: int, d: int) -> float:
    """Largest over mean variance of d Gaussian dimensions of equal σ, exceeded with probability ``ALPHA`` at most."""
    return float(scipy.special.chdtri(n - 1, ALPHA / d) / (n - 1)) if n > 1 else float("inf")


def largest_kurtosis(n: int, d: int) -> float:
    """Excess kurtosis that the largest of d Gaussian dimensions exceeds with probability ``ALPHA`` at most."""
    if n < FEW_ROWS:
        return float("inf")
    return float(_kurtosis_quantile(n, np.array([normal_quantile(d)]))[0])
