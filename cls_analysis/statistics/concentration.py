"""How few dimensions carry the length of a vector."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from cls_analysis.moments import Array


def shares(values: ArrayLike) -> Array:
    """Each value as a share of their sum; NaN where the sum is 0. Shape (d,), 0 to 1."""
    amounts = np.asarray(values, dtype=np.float64)
    total = amounts.sum()
    return amounts / total if total > 0 else np.full(amounts.shape, np.nan)


def top_share(values: ArrayLike, k: int) -> float:
    """Share of the ``k`` largest of non-negative ``values`` in their sum, k/d (even) to 1 (concentrated)."""
    ordered = np.sort(shares(values))[::-1]
    return float(ordered[:k].sum())


def gini(values: ArrayLike) -> float:
    """Gini coefficient of non-negative ``values``: 0 where all are equal, (d − 1)/d where one holds everything.

    G = Σ_i (2i − d − 1) v_(i) / (d Σ v), v sorted upwards.
    """
    ordered = np.sort(shares(values))
    d = len(ordered)
    return float((2.0 * np.arange(1, d + 1) - d - 1.0) @ ordered / d)


def lorenz_curve(values: ArrayLike) -> Array:
    """Share of the sum that the k largest values hold, for k = 1 … d; shape (d,)."""
    return np.cumsum(np.sort(shares(values))[::-1])
