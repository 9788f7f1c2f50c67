"""The same rows with outlier dimensions held down: what similarity remains is not owed to a few of them.

A cosine is ruled by the one to five dimensions with the most energy (Timkey and van Schijndel 2021). A change that
shows in the raw vectors alone is a change of those.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cls_analysis.matrices import profile_vectors
from cls_analysis.moments import Array
from cls_analysis.statistics.normalizers import Affine, standardize

#: Dimensions that ``without_largest`` leaves out.
LARGEST = 5


@dataclass(frozen=True)
class Twins:
    """Two changes of vectors, both fitted on the base encoder's rows and applied alike to every encoder's.

    Attributes
    ----------
    standardize : Affine
        (x − μ)/σ with the base's μ and σ; its dead dimensions give 0.
    largest : array (5,)
        The dimensions with the most energy E[x_i²] in the base.
    """

    standardize: Affine
    largest: NDArray[np.int64]

    @classmethod
    def of(cls, base: ArrayLike) -> Twins | None:
        """Fitted on rows (n, d); None where the rows are all the same."""
        rows = np.asarray(base, dtype=np.float32)
        layer = profile_vectors(rows)[-1]
        if layer.collapsed:
            return None
        made = standardize(layer)
        assert isinstance(made, Affine)
        return cls(made, np.argsort(-layer.moments.energy, kind="stable")[:LARGEST])

    def standardized(self, x: ArrayLike) -> Array:
        """Rows (n, d) by the base's mean and standard deviation."""
        return self.standardize(np.asarray(x, dtype=np.float64))

    def without_largest(self, x: ArrayLike) -> Array:
        """Rows without the base's five dimensions of most energy, shape (n, d − 5)."""
        return np.delete(np.asarray(x, dtype=np.float64), self.largest, axis=1)
