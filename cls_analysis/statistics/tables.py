"""``describe`` and ``summarize``: a Profile as tables, one row per dimension and one per layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from cls_analysis.moments import Array
from cls_analysis.profiles import LayerProfile, Profile
from cls_analysis.statistics import nulls
from cls_analysis.statistics.concentration import gini, shares, top_share
from cls_analysis.statistics.isotropy import average_cosine, common_mean_share, cosine_contributions
from cls_analysis.statistics.outliers import mean_dominant, variance_dominant
from cls_analysis.statistics.spectrum import (
    condition_number,
    covariance_spectrum,
    effective_rank,
    eigensystem,
    explained_variance,
    isoscore,
    mean_absolute_correlation,
    participation_ratio,
)

#: Columns of ``summarize`` that have a twin ``*_null``.
WITH_NULL = (
    "common_mean_share",
    "average_cosine",
    "top1_energy_share",
    "top3_energy_share",
    "top10_energy_share",
    "energy_gini",
    "participation_ratio",
    "isoscore",
    "effective_rank",
    "ev1",
    "ev2",
    "ev3",
    "condition_number",
    "mean_abs_correlation",
    "std_ratio",
    "max_kurtosis_excess",
)


def describe(profile: Profile, layers: Sequence[int] | None = None) -> pd.DataFrame:
    """One row per (layer, dimension), of ``layers`` or of all.

    Columns
    -------
    layer, dimension, n
    mean, variance, std, skewness, kurtosis_excess, minimum, maximum
        Population moments (divided by n); skewness g1, kurtosis g2 = excess; NaN in dead dimensions.
    mean_share : μ_i²/‖μ‖²
    energy_share : E[x_i²]/E‖x‖²
    variance_share : Var_i/Σ Var; NaN in a collapsed layer
    cosine_contribution
        What the dimension adds to the average cosine; NaN in a collapsed layer.
    outlier
        ``mean``, ``variance``, both joined by a comma, or empty; see ``statistics.outliers``.
    """
    numbers = _numbers(profile, layers)
    return pd.concat([_describe_layer(number, profile[number]) for number in numbers], ignore_index=True)


def summarize(profile: Profile, layers: Sequence[int] | None = None) -> pd.DataFrame:
    """One row per layer, of ``layers`` or of all, with the null value of the same n and d where there is one.

    Columns
    -------
    layer, n, dim
    norm_of_mean : ‖μ‖
    rms_norm : √E‖x‖²
    common_mean_share : ‖μ‖²/E‖x‖², 0 to 1
    average_cosine : over pairs of different rows, −1/(n − 1) to 1
    top1_energy_share, top3_energy_share, top10_energy_share, energy_gini
        Of E[x_i²] over i; higher is more concentrated.
    participation_ratio, isoscore, effective_rank, ev1, ev2, ev3
        Of the eigenvalues of the centred covariance; for the value at this n, which biases them.
    condition_number : of E[x xᵀ] over living dimensions
    mean_abs_correlation : mean |r_ij|, i < j, living dimensions
    std_ratio : largest over median standard deviation of the living dimensions
    median_kurtosis_excess, max_kurtosis_excess : over living dimensions
    n_outliers : dimensions whose ``outlier`` in ``describe`` is not empty
    n_constant : dead dimensions, left out of ratios, correlations, kurtosis and condition number
    """
    return pd.DataFrame([_summarize_layer(number, profile[number]) for number in _numbers(profile, layers)])


def describe_all(profiles: Sequence[Profile], layers: Sequence[int] | None = None) -> pd.DataFrame:
    """``describe`` of several Profiles, told apart by the columns ``encoder`` and ``dataset``."""
    return pd.concat([_named(describe(profile, layers), profile) for profile in profiles], ignore_index=True)


def summarize_all(profiles: Sequence[Profile], layers: Sequence[int] | None = None) -> pd.DataFrame:
    """``summarize`` of several Profiles, told apart by the columns ``encoder`` and ``dataset``."""
    return pd.concat([_named(summarize(profile, layers), profile) for profile in profiles], ignore_index=True)


def _numbers(profile: Profile, layers: Sequence[int] | None) -> list[int]:
    return list(profile.layers if layers is None else map(profile.resolve_layer, layers))


def _named(table: pd.DataFrame, profile: Profile) -> pd.DataFrame:
    table.insert(0, "encoder", profile.encoder)
    table.insert(1, "dataset", profile.dataset)
    return table


def _describe_layer(number: int, layer: LayerProfile) -> pd.DataFrame:
    moments = layer.moments
    return pd.DataFrame(
        {
            "layer": number,
            "dimension": np.arange(layer.dim),
            "n": layer.n,
            "mean": moments.mean,
            "variance": moments.variance,
            "std": moments.std,
            "skewness": _of_living(layer, moments.skewness),
            "kurtosis_excess": _of_living(layer, moments.kurtosis_excess),
            "minimum": moments.minimum,
            "maximum": moments.maximum,
            "mean_share": shares(moments.mean**2),
            "energy_share": shares(moments.energy),
            "variance_share": _nan(layer) if layer.collapsed else shares(moments.variance),
            "cosine_contribution": cosine_contributions(layer),
            "outlier": outlier_labels(layer),
        }
    )


def outlier_labels(layer: LayerProfile) -> list[str]:
    """``mean``, ``variance``, ``mean,variance`` or the empty string for each dimension."""
    kinds = (("mean", mean_dominant(layer)), ("variance", variance_dominant(layer)))
    return [",".join(name for name, hit in kinds if hit[i]) for i in range(layer.dim)]


def _summarize_layer(number: int, layer: LayerProfile) -> dict[str, Any]:
    moments = layer.moments
    energy = moments.energy
    system = eigensystem(layer)
    spectrum = covariance_spectrum(layer, system)
    explained = _padded(explained_variance(spectrum))
    std = moments.std[layer.living]
    kurtosis = moments.kurtosis_excess[layer.living]
    kurtosis = kurtosis[np.isfinite(kurtosis)]
    row: dict[str, Any] = {
        "layer": number,
        "n": layer.n,
        "dim": layer.dim,
        "norm_of_mean": float(np.linalg.norm(moments.mean)),
        "rms_norm": float(np.sqrt(energy.sum())),
        "common_mean_share": common_mean_share(layer),
        "average_cosine": average_cosine(layer),
        "top1_energy_share": top_share(energy, 1),
        "top3_energy_share": top_share(energy, 3),
        "top10_energy_share": top_share(energy, 10),
        "energy_gini": gini(energy),
        "participation_ratio": participation_ratio(spectrum),
        "isoscore": isoscore(spectrum),
        "effective_rank": effective_rank(spectrum),
        "ev1": float(explained[0]),
        "ev2": float(explained[1]),
        "ev3": float(explained[2]),
        "condition_number": condition_number(layer, system),
        "mean_abs_correlation": mean_absolute_correlation(layer),
        "std_ratio": float(std.max() / np.median(std)) if len(std) else float("nan"),
        "median_kurtosis_excess": float(np.median(kurtosis)) if len(kurtosis) else float("nan"),
        "max_kurtosis_excess": float(kurtosis.max()) if len(kurtosis) else float("nan"),
        "n_outliers": sum(1 for label in outlier_labels(layer) if label),
        "n_constant": int(layer.dead.sum()),
    }
    null = _null_row(layer.n, layer.dim, int(layer.living.sum()))
    # Where a figure is not defined, neither is what to compare it with.
    return row | {f"{name}_null": null[name] if np.isfinite(row[name]) else float("nan") for name in WITH_NULL}


def _null_row(n: int, d: int, living: int) -> dict[str, float]:
    concentration = nulls.concentration_null(n, d)
    spectrum = nulls.spectrum_null(n, d)
    explained = _padded(spectrum.explained_variance)
    return {
        "common_mean_share": 1.0 / n,
        "average_cosine": 0.0,
        "top1_energy_share": concentration.top1,
        "top3_energy_share": concentration.top3,
        "top10_energy_share": concentration.top10,
        "energy_gini": concentration.gini,
        "participation_ratio": spectrum.participation_ratio,
        "isoscore": spectrum.isoscore,
        "effective_rank": spectrum.effective_rank,
        "ev1": float(explained[0]),
        "ev2": float(explained[1]),
        "ev3": float(explained[2]),
        "condition_number": nulls.condition_number_null(n, living),
        "mean_abs_correlation": nulls.mean_absolute_correlation_null(n),
        "std_ratio": nulls.std_ratio_null(n, living),
        "max_kurtosis_excess": nulls.max_kurtosis_null(n, living),
    }


def _of_living(layer: LayerProfile, values: Array) -> Array:
    return np.where(layer.living, values, np.nan)


def _nan(layer: LayerProfile) -> Array:
    return np.full(layer.dim, np.nan)


def _padded(explained: Array) -> Array:
    """At least three entries: with fewer dimensions, all the variance is explained."""
    return np.concatenate([explained, np.full(max(0, 3 - len(explained)), explained[-1])])
