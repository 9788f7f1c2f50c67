"""Outlier dimensions: the two predicates that tables, figures and the diagnosis share, and the literature's others.

The definitions disagree. Those that compare a dimension with the spread of the others fire on isotropic data, too; the
diagnosis lists them with the number expected there and rests on none of them.
"""

from __future__ import annotations

import numpy as np
import scipy.special
from numpy.typing import NDArray

from cls_analysis.moments import Array
from cls_analysis.profiles import LayerProfile, Profile

#: A dimension is an outlier if it holds so many times its even share.
FACTOR = 5.0
#: Probability that any of d isotropic dimensions is called mean-dominant by chance.
ALPHA = 0.05
#: Standard deviations of the literature's rules.
SIGMAS = 3.0
#: Share of the rows in which a dimension is the extreme one.
EXTREME_SHARE = 0.5
#: Magnitude of an outlier feature.
LARGE = 6.0


def mean_dominant(layer: LayerProfile) -> NDArray[np.bool_]:
    """Dimensions whose mean dominates, shape (d,).

    μ_i² ≥ 5·E‖x‖²/d, and |μ_i|√n/σ_i above the normal quantile with Bonferroni's correction for d dimensions. None in
    a collapsed layer.
    """
    moments = layer.moments
    if layer.collapsed:
        return np.zeros(layer.dim, dtype=bool)
    large = moments.mean**2 >= FACTOR * moments.energy.sum() / layer.dim
    quantile = scipy.special.ndtri(1.0 - ALPHA / (2.0 * layer.dim))
    certain = np.abs(moments.mean) * np.sqrt(layer.n) > quantile * moments.std
    return np.asarray(large & certain)


def variance_dominant(layer: LayerProfile) -> NDArray[np.bool_]:
    """Dimensions whose variance dominates, shape (d,): Var_i ≥ 5·mean_j Var_j (Rudman et al. 2023)."""
    variance = layer.moments.variance
    if layer.collapsed:
        return np.zeros(layer.dim, dtype=bool)
    return np.asarray((variance >= FACTOR * variance.mean()) & layer.living)


def three_sigma(values: Array) -> NDArray[np.bool_]:
    """Entries further than three standard deviations (n − 1) from the mean over the last axis.

    Kovaleva et al. 2021 and Puccetti et al. 2022 apply it to the weights of a LayerNorm, others to means or standard
    deviations of vectors. False everywhere where the values are all alike, and with ten or fewer, whatever they are.
    """
    if values.shape[-1] < 2:
        return np.zeros(values.shape, dtype=bool)
    centred = values - values.mean(axis=-1, keepdims=True)
    return np.asarray(np.abs(centred) > SIGMAS * values.std(axis=-1, ddof=1, keepdims=True))


def mostly_extreme(extreme_shares: Array) -> NDArray[np.bool_]:
    """Dimensions that are the smallest or the largest of all in at least half of the rows (Luo et al. 2021)."""
    return np.asarray(extreme_shares >= EXTREME_SHARE)


def large_features(profile: Profile) -> NDArray[np.bool_]:
    """Dimensions that reach |x| ≥ 6 in a quarter of the layers and in 6 % of the sampled rows of all, shape (d,).

    LLM.int8 (Dettmers et al. 2022) counts over the inputs of projections and all positions; here it is the vectors of
    the Profile. Descriptive: the threshold was set on large decoders.
    """
    layers = [profile[number] for number in profile.layers]
    in_layers = np.mean([largest_magnitude(layer) >= LARGE for layer in layers], axis=0)
    in_rows = np.mean([(np.abs(layer.sample) >= LARGE).mean(axis=0) for layer in layers], axis=0)
    return np.asarray((in_layers >= 0.25) & (in_rows >= 0.06))


def massive(layer: LayerProfile) -> NDArray[np.bool_]:
    """Dimensions with a value above 100 and above 1,000 times the median magnitude, shape (d,) (Sun et al. 2024)."""
    largest = largest_magnitude(layer)
    median = float(np.median(np.abs(layer.sample))) if layer.sample.size else 0.0
    return np.asarray((largest > 100.0) & (largest > 1_000.0 * median))


def largest_magnitude(layer: LayerProfile) -> Array:
    """Largest |x| of each dimension over all rows, shape (d,)."""
    return np.maximum(np.abs(layer.moments.minimum), np.abs(layer.moments.maximum))
