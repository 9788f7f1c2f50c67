"""Do the vectors point in all directions alike? Statistics of their mean and of their cosines."""

from __future__ import annotations

import numpy as np

from cls_analysis.moments import Array
from cls_analysis.profiles import LayerProfile


def common_mean_share(layer: LayerProfile) -> float:
    """‖μ‖²/E‖x‖²: share of the mean squared length that all vectors have in common, 0 to 1; about 1/n where none is."""
    energy = float(layer.moments.energy.sum())
    mean = layer.moments.mean
    return float(mean @ mean) / energy if energy > 0 else float("nan")


def cosine_contributions(layer: LayerProfile) -> Array:
    """What each dimension adds to the average cosine, shape (d,); the sum is ``average_cosine``.

    CC(i) = ((Σu_i)² − Σu_i²) / (N(N − 1)) over the N vectors that are not zero: the mean over pairs i ≠ j of u_i v_i
    (Timkey and van Schijndel 2021, in closed form). NaN with fewer than two vectors, or where all are the same.
    """
    if layer.collapsed:
        return np.full(layer.dim, np.nan)
    return contributions(layer.unit_sum, layer.unit_square_sum, layer.n - layer.n_zero)


def contributions(unit_sum: Array, unit_square_sum: Array, n: int) -> Array:
    """CC(i) from Σu and Σu² over ``n`` unit vectors, shape (d,); NaN with fewer than two."""
    if n < 2:
        return np.full(len(unit_sum), np.nan)
    return np.asarray((unit_sum**2 - unit_square_sum) / (n * (n - 1.0)))


def average_cosine(layer: LayerProfile) -> float:
    """Mean cosine over all pairs of different rows, exact, −1/(n − 1) to 1; 0 for isotropic vectors."""
    return float(cosine_contributions(layer).sum())
