"""Statistics of the eigenvalues of the covariance, of the second moment, and of correlations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.optimize
from numpy.typing import ArrayLike

from cls_analysis.moments import Array, single_threaded_blas
from cls_analysis.profiles import LayerProfile


@dataclass(frozen=True)
class Eigensystem:
    """Eigenvalues of the covariance of the living dimensions, ascending, and the mean in that basis."""

    values: Array
    mean: Array


def eigensystem(layer: LayerProfile) -> Eigensystem:
    """Decompose the covariance once, for everything that is read from it; empty for a collapsed layer."""
    living = np.flatnonzero(layer.living)
    if len(living) == 0:
        return Eigensystem(np.empty(0), np.empty(0))
    with single_threaded_blas():
        values, vectors = np.linalg.eigh(layer.moments.covariance[np.ix_(living, living)])
        return Eigensystem(np.clip(values, 0.0, None), vectors.T @ layer.moments.mean[living])


def covariance_spectrum(layer: LayerProfile, system: Eigensystem | None = None) -> Array:
    """Eigenvalues λ of the centred covariance, largest first, shape (d,); 0 for dead dimensions.

    NaN where the layer is collapsed.
    """
    if layer.collapsed:
        return np.full(layer.dim, np.nan)
    values = (system or eigensystem(layer)).values[::-1]
    return np.concatenate([values, np.zeros(layer.dim - len(values))])


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


def condition_number(layer: LayerProfile, system: Eigensystem | None = None) -> float:
    """λmax/λmin of E[x xᵀ] over living dimensions, ≥ 1; NaN if n is not larger than their number.

    It bounds how fast plain gradient descent can train a linear layer on these vectors. NaN, too, where λmin lies
    below the rounding of the covariance.

    Notes
    -----
    Where the mean is much longer than the spread, λmin of E[x xᵀ] drowns in the rounding of λmax. Both are found
    instead as roots of the secular equation of the rank-one update C + μμᵀ, 1 + Σ z_i²/(λ_i − λ) = 0 with z the mean
    in the eigenbasis of the covariance C (Golub 1973), which keeps the digits of C.
    """
    if layer.collapsed or layer.n <= int(layer.living.sum()):
        return float("nan")
    system = system or eigensystem(layer)
    smallest = _smallest_after_update(system.values, system.mean)
    resolution = len(system.values) * np.finfo(np.float64).eps * system.values[-1]
    return _largest_after_update(system.values, system.mean) / smallest if smallest > resolution else float("nan")


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


def _largest_after_update(values: Array, z: Array) -> float:
    """Largest eigenvalue of diag(values) + z zᵀ, values ascending: at most ‖z‖² above the largest of them."""
    highest, reach = float(values[-1]), float(z @ z)
    if reach == 0.0:
        return highest

    def secular(offset: float) -> float:
        return 1.0 - float((z**2 / (highest - values + offset)).sum())

    low, high = reach * 1e-15, reach * (1.0 + 1e-12)
    if secular(low) >= 0.0:
        return highest
    return highest + float(scipy.optimize.brentq(secular, low, high, xtol=reach * 1e-15))


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
