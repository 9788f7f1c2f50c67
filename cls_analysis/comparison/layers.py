"""Two encoders on the same stimuli, layer by layer: the table ``similarity``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from cls_analysis.comparison.similarity import (
    SUBSAMPLES,
    debiased_cka,
    linear_cka,
    procrustes_distance,
    rsa_pearson,
    rsa_spearman,
)
from cls_analysis.comparison.twins import Twins
from cls_analysis.errors import DataError

#: Measures of a layer: name, what it is called, and its range.
MEASURES = {
    "rsa_pearson": "RSA, Pearson (−1 to 1; 1: the same geometry)",
    "rsa_spearman": "RSA, Spearman (−1 to 1)",
    "rsa_pearson_standardized": "RSA of vectors standardised by the base's mean and deviation",
    "rsa_pearson_without_top5": "RSA without the base's five dimensions of most energy",
    "cka": "linear CKA, debiased (at most 1; 0 on average for unrelated vectors)",
    "cka_biased": "linear CKA as published (0 to 1; near 1 for any two matrices of few rows)",
    "procrustes": "Procrustes distance (0: the same up to rotation and scale, to 2)",
}
COLUMNS = ("base", "tuned", "dataset", "stimuli", "layer", "measure", "value", "ci_low", "ci_high", "null", "n")

Vectors = Mapping[int, NDArray[np.float32]]


def similarity_table(
    base: Vectors,
    tuned: Vectors,
    *,
    names: tuple[str, str],
    dataset: str,
    stimuli: str,
    count: int = SUBSAMPLES,
    seed: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> pd.DataFrame:
    """How alike two encoders are at each layer.

    Parameters
    ----------
    base, tuned : mapping of layer number -> array (n, d)
        Row i is the same stimulus throughout.
    names : (base, tuned)
        What to call them.
    dataset, stimuli : str
        Where the stimuli are from, and whether they are ``cls`` or ``tokens``.
    count : int
        Subsamples of each size for the intervals; 0 for none.
    seed : int
    progress : callable
        Told each layer that is done.

    Returns
    -------
    DataFrame
        One row per layer and measure, with the columns ``COLUMNS``; ``null`` is the mean under permutations of one
        side's rows, NaN where it is not known. A layer at which all vectors of one side are equal, as layer 0 of
        ``cls``, has no rows.

    Raises
    ------
    DataError
        If the layers or rows of the two differ.
    """
    if list(base) != list(tuned):
        raise DataError(f"{names[0]} has the layers {list(base)}, {names[1]} {list(tuned)}: they cannot be compared")
    records = []
    for layer in base:
        twins = Twins.of(base[layer])
        if twins is not None and not _constant(tuned[layer]):
            for measure, found in _measures(base[layer], tuned[layer], twins, count, seed):
                value, low, high, null = found
                records.append((*names, dataset, stimuli, layer, measure, value, low, high, null, len(base[layer])))
        progress(layer)
    return pd.DataFrame(records, columns=list(COLUMNS))


def _measures(
    x: ArrayLike, y: ArrayLike, twins: Twins, count: int, seed: int
) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    """Value, bounds of the interval and null of each measure."""
    nan = float("nan")
    with_interval = {
        "rsa_pearson": lambda: rsa_pearson(x, y, count=count, seed=seed),
        "rsa_pearson_standardized": lambda: rsa_pearson(
            twins.standardized(x), twins.standardized(y), count=count, seed=seed
        ),
        "rsa_pearson_without_top5": lambda: rsa_pearson(
            twins.without_largest(x), twins.without_largest(y), count=count, seed=seed
        ),
        "cka": lambda: debiased_cka(x, y, count=count, seed=seed),
    }
    for measure in MEASURES:
        if measure in with_interval:
            found = with_interval[measure]()
            yield measure, (found.value, found.low, found.high, found.null)
        elif measure == "rsa_spearman":
            yield measure, (rsa_spearman(x, y, seed=seed), nan, nan, 0.0)
        elif measure == "cka_biased":
            cka = linear_cka(x, y)
            yield measure, (cka.biased, nan, nan, cka.biased_null)
        else:
            yield measure, (procrustes_distance(x, y), nan, nan, nan)


def _constant(rows: NDArray[np.float32]) -> bool:
    return bool((rows == rows[0]).all())
