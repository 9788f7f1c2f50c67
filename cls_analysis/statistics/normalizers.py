"""Normalisations of vectors as functions of NumPy arrays, fitted on moments.

What a normalisation is stands here once: the condition numbers and the probes of the diagnosis apply it to arrays.
All but two are affine; ``layernorm`` and ``l2norm`` look at one row alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cls_analysis.moments import Array, single_threaded_blas
from cls_analysis.profiles import LayerProfile

#: Maps rows (m, d) to rows (m, d).
Normalizer = Callable[[Array], Array]
#: Added to the variance under the root of ``layernorm``, torch's default.
EPS = 1e-5
#: Constants of IsoBN's released code: exponent and stabiliser.
ISOBN_BETA, ISOBN_EPS = 0.5, 1e-3


@dataclass(frozen=True)
class Affine:
    """y = (x − shift) · gain; ``shift`` has shape (d,), ``gain`` (d,) for one factor a dimension, or (d, d)."""

    shift: Array
    gain: Array

    def __call__(self, x: Array) -> Array:
        """Apply it to rows, shape (m, d)."""
        centred = x - self.shift
        return centred * self.gain if self.gain.ndim == 1 else centred @ self.gain


def none(layer: LayerProfile) -> Normalizer:
    """The vectors as they are."""
    return Affine(np.zeros(layer.dim), np.ones(layer.dim))


def scale(layer: LayerProfile) -> Normalizer:
    """x·√(d/E‖x‖²): mean square 1 over all dimensions, the control that tells normalised from rescaled."""
    energy = layer.moments.energy.sum()
    return Affine(np.zeros(layer.dim), np.full(layer.dim, np.sqrt(layer.dim / energy) if energy > 0 else 1.0))


def center(layer: LayerProfile) -> Normalizer:
    """Subtracts the mean: x − μ."""
    return Affine(layer.moments.mean, np.ones(layer.dim))


def standardize(layer: LayerProfile) -> Normalizer:
    """(x − μ)/σ per dimension, dead ones 0; what batch normalisation does once its averages have settled."""
    std = np.where(layer.living, layer.moments.std, np.inf)
    return Affine(layer.moments.mean, 1.0 / std)


def layernorm(layer: LayerProfile) -> Normalizer:
    """Each row minus its mean over dimensions, divided by its standard deviation (Ba, Kiros and Hinton 2016)."""

    def apply(x: Array) -> Array:
        centred = x - x.mean(axis=1, keepdims=True)
        return np.asarray(centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPS))

    return apply


def l2norm(layer: LayerProfile) -> Normalizer:
    """x/‖x‖; zero rows stay zero."""

    def apply(x: Array) -> Array:
        length = np.linalg.norm(x, axis=1, keepdims=True)
        return np.asarray(x / np.where(length > 0, length, 1.0))

    return apply


def isobn(layer: LayerProfile) -> Normalizer:
    """x·θ, θ_i ∝ (γ_i σ_i + ε)^−β, γ_i the mean squared correlation of dimension i (IsoBN, Zhou et al. 2021).

    β = 0.5, ε = 1e-3; rescaled so that the total variance stays (where it is well above ε). As published, the mean is
    scaled and not subtracted.
    """
    covariance = layer.moments.covariance
    theta = isobn_scale(covariance, layer.moments.std, layer.living)
    return Affine(np.zeros(layer.dim), theta)


def isobn_scale(covariance: Array, std: Array, living: NDArray[np.bool_]) -> Array:
    """θ of IsoBN, shape (d,); correlations with a dead dimension, 0/0 in the released code, count as 0."""
    safe = np.where(living, std, np.inf)
    squared = np.clip(covariance / np.outer(safe, safe), -1.0, 1.0) ** 2
    theta = (squared.mean(axis=1) * std + ISOBN_EPS) ** -ISOBN_BETA
    variance = np.diag(covariance)
    return np.asarray(theta * np.sqrt(variance.sum() / ((variance * theta**2).sum() + ISOBN_EPS)))


def whiten(layer: LayerProfile) -> Normalizer:
    """(x − μ) V Λ^−½: components instead of dimensions, uncorrelated, of variance 1 (Su et al. 2021).

    The eigenvalues Λ are shrunk towards their mean by the oracle approximation (Chen et al. 2010, eq. 23), without
    which the directions that n rows hardly show would be blown up; those keep less than variance 1. The components fill
    the places of the living dimensions.
    """
    values, vectors, living = _eigen(layer)
    gain = np.zeros((layer.dim, layer.dim))
    if len(living):
        alpha = oracle_shrinkage(values, layer.n)
        shrunk = (1.0 - alpha) * values + alpha * values.mean()
        gain[np.ix_(living, living)] = vectors / np.sqrt(shrunk)
    return Affine(layer.moments.mean, gain)


def all_but_the_top(layer: LayerProfile) -> Normalizer:
    """Subtracts the mean, and the first d/100 principal components (Mu and Viswanath 2018); dead dimensions 0."""
    _, vectors, living = _eigen(layer)
    top = vectors[:, -removed_components(layer.dim) :]
    gain = np.zeros((layer.dim, layer.dim))
    gain[np.ix_(living, living)] = np.eye(len(living)) - top @ top.T
    return Affine(layer.moments.mean, gain)


def removed_components(dim: int) -> int:
    """How many components ``all-but-the-top`` removes: about d/100, at least one."""
    return max(1, round(dim / 100))


def oracle_shrinkage(values: Array, n: int) -> float:
    """Weight of the mean eigenvalue, 0 to 1 (oracle approximating shrinkage, Chen et al. 2010, eq. 23).

    Without the terms 2/p of that equation, as in scikit-learn.
    """
    p = len(values)
    # Mean over the p² entries of the covariance of their squares, and the square of the mean eigenvalue.
    entries, level = (values**2).sum() / p**2, values.mean() ** 2
    spread = (n + 1.0) * (entries - level / p)
    return 1.0 if spread <= 0 else float(min(1.0, (entries + level) / spread))


#: Every normalisation by its name; ``batchnorm`` is ``standardize`` to a probe that sees all rows.
NORMALIZERS: dict[str, Callable[[LayerProfile], Normalizer]] = {
    "none": none,
    "scale": scale,
    "center": center,
    "standardize": standardize,
    "layernorm": layernorm,
    "l2norm": l2norm,
    "isobn": isobn,
    "whiten": whiten,
    "all-but-the-top": all_but_the_top,
}


def _eigen(layer: LayerProfile) -> tuple[Array, Array, NDArray[np.intp]]:
    """Eigenvalues (ascending) and vectors of the living dimensions' covariance, and those dimensions."""
    living = np.flatnonzero(layer.living)
    with single_threaded_blas():
        values, vectors = np.linalg.eigh(layer.moments.covariance[np.ix_(living, living)])
    return np.clip(values, 0.0, None), vectors, living
