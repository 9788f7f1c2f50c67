"""Outlier dimensions: the two predicates that tables, figures and the diagnosis share."""

from __future__ import annotations

import numpy as np
import scipy.stats
from numpy.typing import NDArray

from cls_analysis.profiles import LayerProfile

#: A dimension is an outlier if it holds so many times its even share.
FACTOR = 5.0
#: Probability that any of d isotropic dimensions is called mean-dominant by chance.
ALPHA = 0.05


def mean_dominant(layer: LayerProfile) -> NDArray[np.bool_]:
    """Dimensions whose mean dominates, shape (d,).

    μ_i² ≥ 5·E‖x‖²/d, and |μ_i|√n/σ_i above the normal quantile with Bonferroni's correction for d dimensions. None in
    a collapsed layer.
    """
    moments = layer.moments
    if layer.collapsed:
        return np.zeros(layer.dim, dtype=bool)
    large = moments.mean**2 >= FACTOR * moments.energy.sum() / layer.dim
    quantile = scipy.stats.norm.ppf(1.0 - ALPHA / (2.0 * layer.dim))
    certain = np.abs(moments.mean) * np.sqrt(layer.n) > quantile * moments.std
    return np.asarray(large & certain)


def variance_dominant(layer: LayerProfile) -> NDArray[np.bool_]:
    """Dimensions whose variance dominates, shape (d,): Var_i ≥ 5·mean_j Var_j (Rudman et al. 2023)."""
    variance = layer.moments.variance
    if layer.collapsed:
        return np.zeros(layer.dim, dtype=bool)
    return np.asarray((variance >= FACTOR * variance.mean()) & layer.living)
