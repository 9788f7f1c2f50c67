"""Outlier dimensions by every definition that applies, side by side: they disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cls_analysis.diagnosis.evidence import Evidence, ordered
from cls_analysis.moments import Array
from cls_analysis.statistics import nulls
from cls_analysis.statistics.isotropy import cosine_contributions
from cls_analysis.statistics.outliers import (
    large_features,
    largest_magnitude,
    massive,
    mostly_extreme,
    three_sigma,
)
from cls_analysis.statistics.samples import extreme_shares
from cls_analysis.weights import LayerNorm

#: How many dimensions the ranking of Timkey and van Schijndel names, whatever the data.
RANKED = 3


@dataclass(frozen=True)
class Definition:
    """One definition: its name, what it reads, the dimensions it names (worst first), how many isotropy would have."""

    name: str
    reads: str
    source: str
    dimensions: tuple[int, ...]
    expected: float


def definitions(evidence: Evidence, norms: Sequence[LayerNorm] = ()) -> list[Definition]:
    """Every definition of an outlier dimension for a layer; those of LayerNorm weights only if ``norms`` are given."""
    layer = evidence.layer
    if layer.collapsed:
        return []
    moments = layer.moments
    sigma = nulls.three_sigma_null(layer.n, layer.dim)
    contribution = cosine_contributions(layer)
    extreme = extreme_shares(layer.sample)
    largest = largest_magnitude(layer)
    ranked = tuple(int(i) for i in np.argsort(-contribution, kind="stable")[:RANKED])
    square, variance = moments.mean**2, moments.variance
    return [
        _of("mean-dominant", "moments", "ours: μ² ≥ 5 even shares, Bonferroni", evidence.mean_dominant, square, 0.0),
        _of("variance-dominant", "moments", "Rudman et al. 2023", evidence.variance_dominant, variance, 0.0),
        _of("mean beyond 3σ", "moments", "after Kovaleva et al. 2021", three_sigma(moments.mean), square, sigma.mean),
        _of("std beyond 3σ", "moments", "after Kovaleva et al. 2021", three_sigma(moments.std), variance, sigma.std),
        Definition(
            f"{RANKED} largest cosine contributions", "moments", "Timkey and van Schijndel 2021", ranked, float(RANKED)
        ),
        _of("extreme in half of the rows", "sample", "Luo et al. 2021", mostly_extreme(extreme), extreme, 0.0),
        _of(
            "|x| ≥ 6 (LLM.int8)",
            "sample",
            "Dettmers et al. 2022",
            large_features(evidence.profile),
            largest,
            float("nan"),
        ),
        _of("massive activation", "sample", "Sun et al. 2024", massive(layer), largest, 0.0),
        *layer_norm_definitions(norms),
    ]


def layer_norm_definitions(norms: Sequence[LayerNorm]) -> list[Definition]:
    """Outlier dimensions by the weights of the blocks' output LayerNorms, without any text.

    Kovaleva et al. 2021: beyond three standard deviations of its own vector, scale or bias, in at least half of the
    layers. Puccetti et al. 2022: in more than three layers, scale and bias counted apart.
    """
    if not norms:
        return []
    # A norm that several layers share counts in each.
    n_layers, d = sum(norm.uses for norm in norms), len(norms[0].weight)
    parts = 1 if all(norm.bias is None for norm in norms) else 2
    scale, bias = np.zeros(d, dtype=int), np.zeros(d, dtype=int)
    for norm in norms:
        scale += norm.uses * three_sigma(norm.weight)
        bias += norm.uses * three_sigma(np.zeros(d) if norm.bias is None else norm.bias)
    half = n_layers / 2.0
    kovaleva = (scale >= half) | (bias >= half)
    puccetti = (scale > 3) | (bias > 3)
    hits = scale + bias
    in_half, in_four = (parts * d * _chance_of_hits(norms, at_least) for at_least in (half, 4))
    return [
        _of("LayerNorm beyond 3σ in half of the layers", "weights", "Kovaleva et al. 2021", kovaleva, hits, in_half),
        _of("LayerNorm beyond 3σ in over 3 layers", "weights", "Puccetti et al. 2022", puccetti, hits, in_four),
    ]


def layer_norm_table(norms: Sequence[LayerNorm]) -> pd.DataFrame:
    """Entries of each output LayerNorm beyond three standard deviations, one row each, largest first within a layer.

    Columns ``layer``, ``part`` (``weight`` or ``bias``), ``dimension``, ``value``, ``deviations`` (from the vector's
    mean, in its standard deviations), ``expected`` (how many of d normals would lie beyond 3).
    """
    columns = ["layer", "part", "dimension", "value", "deviations", "expected"]
    records = []
    for norm in norms:
        for part, values in (("weight", norm.weight), ("bias", norm.bias)):
            if values is None or not three_sigma(values).any():
                continue
            deviations = (values - values.mean()) / values.std(ddof=1)
            for i in ordered(three_sigma(values), np.abs(deviations)):
                row = (norm.layer, part, i, float(values[i]), float(deviations[i]), TAIL * len(values))
                records.append(dict(zip(columns, row, strict=True)))
    return pd.DataFrame(records, columns=columns)


def agreement_table(found: Sequence[Definition], k: int = 12) -> pd.DataFrame:
    """Which definitions name which dimensions: one row a dimension, a column a definition, and their number.

    The ``k`` dimensions that most definitions name.
    """
    named = sorted({dimension for definition in found for dimension in definition.dimensions})
    table = pd.DataFrame({"dimension": named})
    for definition in found:
        table[definition.name] = [dimension in definition.dimensions for dimension in named]
    table["definitions"] = table.drop(columns="dimension").sum(axis=1).astype(int) if named else 0
    return table.sort_values(["definitions", "dimension"], ascending=[False, True], kind="stable").head(k)


#: P(|z| > 3) of a standard normal.
TAIL = 0.0026997960632601866


def _chance_of_hits(norms: Sequence[LayerNorm], at_least: float) -> float:
    """Probability that a dimension of independent normals is beyond 3σ in so many layers, of scales or of biases."""
    layers = np.ones(1)
    for norm in norms:
        one = np.zeros(norm.uses + 1)
        one[0], one[-1] = 1.0 - TAIL, TAIL
        layers = np.convolve(layers, one)
    return float(layers[int(np.ceil(at_least)) :].sum())


def _of(name: str, reads: str, source: str, chosen: NDArray[np.bool_], by: Array, expected: float) -> Definition:
    return Definition(name, reads, source, ordered(chosen, np.asarray(by, dtype=np.float64)), expected)
