"""``Evidence``: what rules read of one layer, computed once and only when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cls_analysis.moments import Array, single_threaded_blas
from cls_analysis.profiles import LayerProfile, Profile
from cls_analysis.statistics import nulls, summarize
from cls_analysis.statistics.concentration import shares
from cls_analysis.statistics.conditioning import condition_number_after
from cls_analysis.statistics.intervals import half_sample_deviations
from cls_analysis.statistics.normalizers import NORMALIZERS
from cls_analysis.statistics.outliers import mean_dominant, variance_dominant
from cls_analysis.statistics.samples import average_cosine_of, cosine_contributions_of, rms_cosine, unit_rows
from cls_analysis.statistics.spectrum import correlation


@dataclass(frozen=True)
class Directions:
    """Cosines between the sampled rows, as they are or after a normalisation; ``contributions`` has shape (d,)."""

    average_cosine: float
    rms_cosine: float
    contributions: Array


class Evidence:
    """One layer of a Profile with everything that is measured of it."""

    def __init__(self, profile: Profile, number: int) -> None:
        self.profile = profile
        self.number = profile.resolve_layer(number)
        self.layer: LayerProfile = profile[number]

    @property
    def expected_constant(self) -> bool:
        """Whether this is the embedding output at the [CLS] token: the same vector for every text, by construction."""
        return self.number == 0 and self.profile.provenance.source == "cls" and self.layer.collapsed

    @cached_property
    def summary(self) -> dict[str, Any]:
        """The layer's row of ``summarize``."""
        row = summarize(self.profile, [self.number]).iloc[0].to_dict()
        return {str(name): value for name, value in row.items()}

    def figure(self, name: str) -> float:
        """One figure of ``summarize``."""
        return float(self.summary[name])

    def null(self, name: str) -> float:
        """What isotropy would give for it."""
        return float(self.summary[f"{name}_null"])

    @cached_property
    def energy_share(self) -> Array:
        """E[x_i²]/E‖x‖², shape (d,)."""
        return shares(self.layer.moments.energy)

    @cached_property
    def mean_is_larger(self) -> NDArray[np.bool_]:
        """Where μ_i² > Var_i: the energy of such a dimension belongs to the axis mean, of others to variance."""
        moments = self.layer.moments
        return np.asarray(moments.mean**2 > moments.variance)

    @cached_property
    def mean_dominant(self) -> NDArray[np.bool_]:
        """Outlier dimensions of the mean."""
        return mean_dominant(self.layer)

    @cached_property
    def mean_certain(self) -> NDArray[np.bool_]:
        """Where a mean is further from zero than chance takes the furthest of d."""
        moments = self.layer.moments
        reach = np.abs(moments.mean) * np.sqrt(self.layer.n)
        return np.asarray(reach > nulls.normal_quantile(self.layer.dim) * moments.std)

    @cached_property
    def variance_dominant(self) -> NDArray[np.bool_]:
        """Outlier dimensions of the variance, beyond what chance gives the largest of d."""
        return np.asarray(variance_dominant(self.layer) & self.variance_certain)

    @cached_property
    def variance_certain(self) -> NDArray[np.bool_]:
        """Where a dimension lives, with a variance beyond what chance gives the largest of d."""
        layer = self.layer
        variance = layer.moments.variance
        largest = nulls.largest_variance_ratio(layer.n, layer.dim) * variance.mean()
        return np.asarray((variance > largest) & layer.living)

    @cached_property
    def standardized_spectrum(self) -> Array:
        """Eigenvalues of the living dimensions' correlation matrix: what is left of the spectrum without scales."""
        living = self.layer.living
        with single_threaded_blas():
            values = np.linalg.eigvalsh(correlation(self.layer)[np.ix_(living, living)])
        return np.clip(values[::-1], 0.0, None)

    @cached_property
    def deviations(self) -> dict[str, float]:
        """Standard errors of the main figures by half-sampling."""
        return half_sample_deviations(self.layer)

    @cached_property
    def cosine_null(self) -> float:
        """RMS cosine of isotropic vectors in as many dimensions as live."""
        return nulls.rms_cosine_null(int(self.layer.living.sum()))

    @cached_property
    def _directions(self) -> dict[str, Directions]:
        return {}

    def directions(self, normalization: str) -> Directions:
        """Cosines of the sampled rows after ``none``, ``center``, ``standardize``, …."""
        if normalization not in self._directions:
            rows = NORMALIZERS[normalization](self.layer)(self.layer.sample.astype(np.float64))
            unit = unit_rows(rows)
            self._directions[normalization] = Directions(
                average_cosine_of(unit), rms_cosine(unit), cosine_contributions_of(unit)
            )
        return self._directions[normalization]

    @cached_property
    def _conditions(self) -> dict[str, float]:
        return {}

    def condition(self, normalization: str) -> float:
        """Condition number of the second moment after a normalisation."""
        if normalization not in self._conditions:
            self._conditions[normalization] = condition_number_after(self.layer, normalization)
        return self._conditions[normalization]


def ordered(chosen: NDArray[np.bool_], by: Array) -> tuple[int, ...]:
    """Numbers of the ``chosen`` dimensions, the one with the largest ``by`` first."""
    numbers = np.flatnonzero(chosen)
    return tuple(int(number) for number in numbers[np.argsort(-by[numbers], kind="stable")])
