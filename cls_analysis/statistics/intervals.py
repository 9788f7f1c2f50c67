"""How sure the main figures are: intervals by half-sampling, and their values at smaller n.

Halves are drawn without replacement. Rows drawn with replacement come up twice, and doubled rows look like structure.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cls_analysis.errors import DataError
from cls_analysis.moments import Array, single_threaded_blas
from cls_analysis.profiles import LayerProfile
from cls_analysis.statistics.concentration import gini, top_share
from cls_analysis.statistics.samples import average_cosine_of, rms_cosine, unit_rows
from cls_analysis.statistics.spectrum import effective_rank, explained_variance, isoscore, participation_ratio

#: Halves of a sample; their standard deviation is then known to about 7 %.
HALVES = 100
#: Half-widths of a 95 % interval in standard deviations.
WIDTH = 1.96
#: Subsamples of each size of ``curve_of_n``.
REPEATS = 8
#: Figures that the number of rows biases: their intervals are for the value at this n.
BIASED_BY_N = frozenset(
    {
        "common_mean_share",
        "top1_energy_share",
        "energy_gini",
        "isoscore",
        "participation_ratio",
        "effective_rank",
        "ev1",
        "ev3",
        "mean_abs_correlation",
        "std_ratio",
        "condition_number",
        "max_kurtosis_excess",
        "partition_isotropy",
        "twonn_dimension",
    }
)
#: Figures that are measured on the sample alone: more rows than the sample's do not sharpen them.
OF_SAMPLE = frozenset({"rms_cosine"})


def main_figures(rows: Array, living: NDArray[np.bool_]) -> dict[str, float]:
    """The main figures of rows (m, d), by the names that ``summarize`` gives them, and ``rms_cosine``.

    Dimensions that live on few rows may be constant in these; where all are, what varies is NaN.
    """
    unit = unit_rows(rows)
    mean = rows.mean(axis=0)
    centred = (rows - mean)[:, living]
    centred[:, (rows[:, living] == rows[0, living]).all(axis=0)] = 0.0  # without the rounding of the mean
    covariance = centred.T @ centred / len(rows)
    std = np.sqrt(np.diag(covariance))
    spectrum = _spectrum(centred, covariance, rows.shape[1]) if std.any() else np.full(rows.shape[1], np.nan)
    energy = (rows**2).mean(axis=0)
    median = float(np.median(std))
    explained = explained_variance(spectrum)
    return {
        "common_mean_share": float(mean @ mean / energy.sum()) if energy.any() else float("nan"),
        "average_cosine": average_cosine_of(unit),
        "rms_cosine": rms_cosine(unit),
        "top1_energy_share": top_share(energy, 1),
        "energy_gini": gini(energy),
        "std_ratio": float(std.max()) / median if median > 0 else float("nan"),
        "mean_abs_correlation": _mean_absolute_correlation(covariance, std),
        "participation_ratio": participation_ratio(spectrum),
        "isoscore": isoscore(spectrum),
        "effective_rank": effective_rank(spectrum),
        "ev1": float(explained[0]),
        "ev3": float(explained[min(2, len(explained) - 1)]),
    }


def half_sample_deviations(layer: LayerProfile, *, halves: int = HALVES, seed: int = 0) -> dict[str, float]:
    """Standard errors of the main figures at the layer's n.

    The standard deviation over halves of the stored sample of m rows is that of a figure of m rows; times √(m/n) it is
    that of n. Empty where the layer is collapsed or the sample has fewer than eight rows; NaN where a half does not
    define the figure.

    Raises
    ------
    DataError
        With fewer than two halves.
    """
    if halves < 2:
        raise DataError(f"half-sampling needs at least 2 halves, got {halves}")
    rows = layer.sample.astype(np.float64)
    m = len(rows)
    if layer.collapsed or m < 8:
        return {}
    rng = np.random.default_rng(seed)
    with single_threaded_blas():
        values = [main_figures(rows[rng.permutation(m)[: m // 2]], layer.living) for _ in range(halves)]
    # A half of m rows, seen from its whole, scatters by σ²(2/m − 1/m): as the whole does from the truth.
    of_m = np.sqrt((m // 2) / (m - m // 2))
    of_n = of_m * np.sqrt(m / layer.n)
    return {
        name: float(np.std([value[name] for value in values], ddof=1) * (of_m if name in OF_SAMPLE else of_n))
        for name in values[0]
    }


def curve_of_n(layer: LayerProfile, *, seed: int = 0) -> pd.DataFrame:
    """The main figures of all m stored rows, of m/2, m/4, … down to 16: columns ``n``, ``figure``, ``value``, ``std``.

    ``value`` is the mean and ``std`` the standard deviation over subsamples without replacement, NaN for all rows.
    Empty where the layer is collapsed or the sample has fewer than 16 rows.
    """
    rows = layer.sample.astype(np.float64)
    m = len(rows)
    if layer.collapsed or m < 16:
        return pd.DataFrame({"n": [], "figure": [], "value": [], "std": []})
    rng = np.random.default_rng(seed)
    records = []
    sizes = [m // 2**k for k in range(int(np.log2(m / 16)), -1, -1)]
    with single_threaded_blas():
        for size in sizes:
            repeats = 1 if size == m else REPEATS
            values = [main_figures(rows[rng.permutation(m)[:size]], layer.living) for _ in range(repeats)]
            for name in values[0]:
                column = [value[name] for value in values]
                spread = float(np.std(column, ddof=1)) if repeats > 1 else float("nan")
                records.append({"n": size, "figure": name, "value": float(np.mean(column)), "std": spread})
    return pd.DataFrame(records)


def _spectrum(centred: Array, covariance: Array, dim: int) -> Array:
    """Eigenvalues of the covariance, largest first, with zeros for dead dimensions, shape (dim,)."""
    m, k = centred.shape
    # Fewer rows than dimensions: their products hold the same eigenvalues.
    values = np.linalg.eigvalsh(covariance if k <= m else centred @ centred.T / m)
    return np.concatenate([np.clip(values[::-1], 0.0, None), np.zeros(dim - len(values))])


def _mean_absolute_correlation(covariance: Array, std: Array) -> float:
    varying = std > 0
    k = int(varying.sum())
    if k < 2:
        return float("nan")
    absolute = np.abs(covariance[np.ix_(varying, varying)] / np.outer(std[varying], std[varying]))
    return float((absolute.sum() - k) / (k * (k - 1)))
