"""The tables of a diagnosis: main figures with null and interval, condition numbers, contributions to the cosine."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.statistics import nulls
from cls_analysis.statistics.intervals import BIASED_BY_N, WIDTH
from cls_analysis.statistics.normalizers import NORMALIZERS
from cls_analysis.statistics.samples import (
    UNIFORMITY_T,
    partition_isotropy,
    twonn_dimension,
    uniformity,
    unit_rows,
)


@dataclass(frozen=True)
class FigureKind:
    """One figure of the table.

    ``name`` is its column in ``summarize`` (or that of the sample); ``better`` is −1 where lower is better, 1 where
    higher is, 0 where neither; ``definition`` gives formula and source.
    """

    name: str
    label: str
    better: int
    definition: str
    of_sample: bool = False


#: The main figures, by axis.
FIGURES = (
    FigureKind(
        "common_mean_share",
        "common mean share",
        -1,
        "‖μ‖²/E‖x‖²: share of the squared length that all vectors have in common (after Zhou, Du and Ren 2019)",
    ),
    FigureKind(
        "average_cosine",
        "average cosine",
        -1,
        "mean cosine over all pairs of different rows, exact (Ethayarajh 2019)",
    ),
    FigureKind(
        "rms_cosine",
        "RMS cosine",
        -1,
        "√ of the mean squared cosine over pairs; 1/√d if isotropic (ours)",
        of_sample=True,
    ),
    FigureKind(
        "average_cosine_centred",
        "average cosine, centred",
        0,
        "the same after the mean is subtracted: about 0 for any vectors, so it proves nothing",
        of_sample=True,
    ),
    FigureKind(
        "rms_cosine_centred", "RMS cosine, centred", -1, "RMS cosine after the mean is subtracted", of_sample=True
    ),
    FigureKind(
        "rms_cosine_standardized",
        "RMS cosine, standardised",
        -1,
        "RMS cosine after every dimension is standardised (Timkey and van Schijndel 2021)",
        of_sample=True,
    ),
    FigureKind(
        "top1_energy_share",
        "energy in one dimension",
        -1,
        "largest E[x_i²]/E‖x‖² (Zhou, Du and Ren 2019)",
    ),
    FigureKind("energy_gini", "energy Gini", -1, "Gini coefficient of E[x_i²] over the dimensions"),
    FigureKind(
        "std_ratio",
        "largest / median std",
        -1,
        "over living dimensions (IsoBN, Zhou et al. 2021)",
    ),
    FigureKind(
        "mean_abs_correlation",
        "mean |correlation|",
        -1,
        "mean |r_ij| over i < j, living dimensions (IsoBN, Zhou et al. 2021)",
    ),
    FigureKind(
        "isoscore",
        "IsoScore",
        1,
        "(PR − 1)/(d − 1), of the covariance alone: blind to the mean (Rudman et al. 2022)",
    ),
    FigureKind(
        "participation_ratio",
        "participation ratio",
        1,
        "PR = (Σλ)²/Σλ² over eigenvalues of the centred covariance",
    ),
    FigureKind(
        "effective_rank",
        "effective rank",
        1,
        "exp of the entropy of λ/Σλ (Roy and Vetterli 2007)",
    ),
    FigureKind("ev1", "EV1", -1, "share of the variance in the first principal component (IsoBN, Zhou et al. 2021)"),
    FigureKind("ev3", "EV3", -1, "share of the variance in the first three"),
    FigureKind(
        "condition_number",
        "condition number",
        -1,
        "λmax/λmin of E[x xᵀ] over living dimensions; needs more rows than those",
    ),
    FigureKind(
        "partition_isotropy",
        "partition isotropy, unit rows",
        1,
        "min/max of F(c) = Σ exp(cᵀu) over ± eigenvectors c of UᵀU (Mu and Viswanath 2018)",
        of_sample=True,
    ),
    FigureKind(
        "uniformity",
        "uniformity",
        -1,
        "log E exp(−2‖u − v‖²), −4 to 0 (Wang and Isola 2020)",
        of_sample=True,
    ),
    FigureKind(
        "twonn_dimension",
        "intrinsic dimension",
        0,
        "TwoNN (Facco et al. 2017); low where many texts are near-duplicates",
        of_sample=True,
    ),
    FigureKind("median_kurtosis_excess", "median excess kurtosis", 0, "g2 over texts, median of the living dimensions"),
    FigureKind("max_kurtosis_excess", "largest excess kurtosis", 0, "g2 over texts, largest of the living dimensions"),
)
LABELS = {kind.name: kind.label for kind in FIGURES}


def figure_table(evidence: Evidence, *, intervals: bool = True) -> pd.DataFrame:
    """The main figures of a layer, one row each.

    Columns: ``figure``, ``value``, ``null``, ``low``, ``high`` (95 %, half-sampling; NaN where there is none), ``n``,
    ``rows`` (n, or S where it comes from the sample), ``biased_by_n`` (the interval is then for the value at this n).
    Empty for a collapsed layer, which has no shape.
    """
    if evidence.layer.collapsed:
        return pd.DataFrame(columns=["figure", "value", "null", "low", "high", "n", "rows", "biased_by_n"])
    values, null_values = _values(evidence)
    deviations = evidence.deviations if intervals else {}
    records = []
    for kind in FIGURES:
        half = WIDTH * deviations.get(kind.name, float("nan"))
        records.append(
            {
                "figure": kind.name,
                "value": values[kind.name],
                "null": null_values[kind.name],
                "low": values[kind.name] - half,
                "high": values[kind.name] + half,
                "n": evidence.layer.n,
                "rows": len(evidence.layer.sample) if kind.of_sample else evidence.layer.n,
                "biased_by_n": kind.name in BIASED_BY_N,
            }
        )
    return pd.DataFrame(records)


def condition_table(evidence: Evidence) -> pd.DataFrame:
    """Condition number of E[y yᵀ] for the vectors y after each normalisation, one row each; and its null."""
    null = evidence.null("condition_number")
    names = list(NORMALIZERS)
    return pd.DataFrame(
        {"normalization": names, "condition_number": [evidence.condition(name) for name in names], "null": null}
    )


def contribution_table(evidence: Evidence, k: int = 10) -> pd.DataFrame:
    """The ``k`` dimensions that add most to the average cosine, of the sampled rows.

    Columns ``dimension``, ``none``, ``center``, ``standardize``: what it adds as the rows are, and after those; and
    ``share`` of the average cosine as it is. Timkey and van Schijndel 2021.
    """
    columns = {name: evidence.directions(name).contributions for name in ("none", "center", "standardize")}
    top = np.argsort(-columns["none"], kind="stable")[:k]
    table = pd.DataFrame({"dimension": top} | {name: column[top] for name, column in columns.items()})
    table["share"] = table["none"] / evidence.directions("none").average_cosine
    return table


def _values(evidence: Evidence) -> tuple[dict[str, float], dict[str, float]]:
    layer = evidence.layer
    values: dict[str, float] = {}
    null_values: dict[str, float] = {}
    for kind in FIGURES:
        if not kind.of_sample:
            values[kind.name] = evidence.figure(kind.name)
            null_values[kind.name] = (
                evidence.null(kind.name) if f"{kind.name}_null" in evidence.summary else float("nan")
            )
    unit = unit_rows(layer.sample)
    living = int(layer.living.sum())
    sample_null = nulls.sample_null(len(layer.sample), living)
    values |= {
        "rms_cosine": evidence.directions("none").rms_cosine,
        "average_cosine_centred": evidence.directions("center").average_cosine,
        "rms_cosine_centred": evidence.directions("center").rms_cosine,
        "rms_cosine_standardized": evidence.directions("standardize").rms_cosine,
        "partition_isotropy": partition_isotropy(unit) if len(unit) else float("nan"),
        "uniformity": uniformity(unit),
        "twonn_dimension": twonn_dimension(layer.sample),
    }
    null_values |= {
        "rms_cosine": evidence.cosine_null,
        "average_cosine_centred": 0.0,
        "rms_cosine_centred": evidence.cosine_null,
        "rms_cosine_standardized": evidence.cosine_null,
        "partition_isotropy": sample_null.partition_isotropy,
        "uniformity": nulls.uniformity_null(living, UNIFORMITY_T),
        "twonn_dimension": sample_null.twonn_dimension,
    }
    return values, null_values
