"""Statistics of the eigenvalues of the covariance, of the second moment, and of correlations."""

from __future__ import annotations

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike

from cls_analysis.moments import Array, single_threaded_blas
from cls_analysis.profiles import LayerProfile


def eigenvalues(matrix: ArrayLike) -> Array:
    """Eigenvalues of a symmetric positive semi-definite matrix, largest first; rounding below 0 is 0."""
    with single_threaded_blas():
        values = np.linalg.eigvalsh(np.asarray(matrix, dtype=np.float64))
    return np.clip(values[::-1], 0.0, None)


def covariance_spectrum(layer: LayerProfile) -> Array:
    """Eigenvalues λ of the centred covariance, largest first, shape (d,); NaN where the layer is collapsed."""
    if layer.collapsed:
        return np.full(layer.dim, np.nan)
    return eigenvalues(layer.moments.covariance)


def participation_ratio(spectrum: ArrayLike) -> float:
    """(Σλ)² / Σλ²: how many directions carry the variance, 1 to d; n biases it downwards."""
    values = np.asarray(spectrum, dtype=np.float64)
    return float(values.sum() ** 2 / (values**2).sum())


def effective_rank(spectrum: ArrayLike) -> float:
    """Exponential of the entropy of λ/Σλ, 1 to d (Roy and Vetterli 2007, on eigenvalues of the centred covariance)."""
    share = np.asarray(spectrum, dtype=np.float64)
    share = share / share.sum()
    if np.isnan(share).any():
        return float("nan")
    positive = share[share > 0]
    return float(np.exp(-(positive * np.log(positive)).sum()))


def explained_variance(spectrum: ArrayLike) -> Array:
    """EV_k: share of the variance in the first k principal components, shape (d,), ascending to 1 (IsoBN 2021)."""
    values = np.asarray(spectrum, dtype=np.float64)
    return np.asarray(np.cumsum(values) / values.sum())


def isoscore(spectrum: ArrayLike) -> float:
    """IsoScore (Rudman et al. 2022) = (PR − 1)/(d − 1): 0 where one direction holds all variance, 1 where all are even.

    It depends on the covariance alone: a common mean, however large, leaves it as it is. n biases it downwards.
    """
    d = len(np.asarray(spectrum))
    return (participation_ratio(spectrum) - 1.0) / (d - 1.0) if d > 1 else float("nan")


def condition_number(layer: LayerProfile) -> float:
    """λmax/λmin of E[x xᵀ] over living dimensions, ≥ 1; NaN if n is not larger than their number.

    It bounds how fast plain gradient descent can train a linear layer on these vectors. NaN, too, where λmin lies below
    the rounding of the covariance.

    Notes
    -----
    Where the mean is much longer than the spread, λmin of E[x xᵀ] drowns in the rounding of λmax. It is found instead
    as the smallest root of the secular equation of the rank-one update C + μμᵀ, 1 + Σ z_i²/(λ_i − λ) = 0 with z the
    mean in the eigenbasis of the covariance C (Golub 1973), which keeps the digits of C.
    """
    living = layer.living
    if layer.collapsed or layer.n <= int(living.sum()):
        return float("nan")
    mean = layer.moments.mean[living]
    covariance = layer.moments.covariance[np.ix_(living, living)]
    with single_threaded_blas():
        values, vectors = np.linalg.eigh(covariance)
        largest = float(np.linalg.eigvalsh(covariance + np.outer(mean, mean))[-1])
    smallest = _smallest_after_update(values, vectors.T @ mean)
    resolution = len(values) * np.finfo(np.float64).eps * values[-1]
    return largest / smallest if smallest > resolution else float("nan")


def _smallest_after_update(values: Array, z: Array) -> float:
    """Smallest eigenvalue of diag(values) + z zᵀ, values ascending."""
    lowest = float(values[0])
    if len(values) == 1:
        return lowest + float(z[0] ** 2)
    gap = float(values[1]) - lowest
    if gap <= 0.0 or z[0] == 0.0:
        return lowest

    # The root lies between the two lowest eigenvalues; as an offset from the lowest it keeps all its digits.
    def secular(offset: float) -> float:
        return 1.0 - float(z[0] ** 2) / offset + float((z[1:] ** 2 / (values[1:] - lowest - offset)).sum())

    low, high = gap * 1e-15, gap * (1.0 - 1e-15)
    if secular(low) >= 0.0:
        return lowest
    if secular(high) <= 0.0:
        return float(values[1])
    return lowest + float(scipy.optimize.brentq(secular, low, high, xtol=gap * 1e-15))


def correlation(layer: LayerProfile) -> Array:
    """Pearson correlations of the dimensions, shape (d, d); NaN in the rows and columns of dead ones."""
    std = np.where(layer.living, layer.moments.std, np.nan)
    return np.asarray(np.clip(layer.moments.covariance / np.outer(std, std), -1.0, 1.0))


def mean_absolute_correlation(layer: LayerProfile) -> float:
    """Mean |r_ij| over i < j of the living dimensions, 0 to 1."""
    k = int(layer.living.sum())
    if k < 2:
        return float("nan")
    absolute = np.abs(correlation(layer)[np.ix_(layer.living, layer.living)])
    return float((absolute.sum() - np.trace(absolute)) / (k * (k - 1)))
