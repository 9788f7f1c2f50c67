"""What happens to cosines and neighbours when the worst dimensions are removed: effect, not only shape."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cls_analysis.diagnosis.evidence import Evidence, ordered
from cls_analysis.moments import Array
from cls_analysis.statistics.normalizers import NORMALIZERS
from cls_analysis.statistics.samples import average_cosine_of, changed_neighbours, nearest_rows, rms_cosine, unit_rows

#: Dimensions removed at most.
REMOVED = 3
#: Neighbours of a text.
NEIGHBOURS = 10
SEED = 20_211_109
SHOWN_NORMALIZATIONS = ("center", "standardize", "whiten", "all-but-the-top")


def worst_dimensions(evidence: Evidence, k: int = REMOVED) -> tuple[int, ...]:
    """The ``k`` outlier dimensions of most energy, filled up with the next ones of most energy."""
    outliers = ordered(evidence.mean_dominant | evidence.variance_dominant, evidence.energy_share)
    rest = ordered(evidence.layer.living, evidence.energy_share)
    return tuple(dict.fromkeys([*outliers, *rest]))[:k]


def removal_table(evidence: Evidence) -> pd.DataFrame:
    """What removing the worst dimensions, or normalising, does to the sampled rows; one row each.

    Columns: ``change``; ``average_cosine`` and ``rms_cosine`` after it; ``neighbours_changed``, the share of each
    row's ten nearest (by cosine) that are others then, 0 to 1. Removing as many random living dimensions is the
    control. Empty for a collapsed layer.
    """
    columns = ["change", "average_cosine", "rms_cosine", "neighbours_changed"]
    layer = evidence.layer
    if layer.collapsed:
        return pd.DataFrame(columns=columns)
    rows = layer.sample.astype(np.float64)
    rows = rows[np.abs(rows).max(axis=1) > 0]
    before = nearest_rows(unit_rows(rows), NEIGHBOURS)
    worst = worst_dimensions(evidence)
    others = np.setdiff1d(np.flatnonzero(layer.living), worst)
    control = np.random.default_rng(SEED).permutation(others)[: len(worst)]
    changes: list[tuple[str, Array]] = [("none", rows)]
    for count in range(1, len(worst) + 1):
        if count < layer.dim:
            name = f"without {', '.join(map(str, worst[:count]))}"
            changes.append((name, _without(rows, np.array(worst[:count]))))
    if len(control):
        changes.append((f"without {len(control)} random ones", _without(rows, control)))
    changes += [(name, NORMALIZERS[name](layer)(rows)) for name in SHOWN_NORMALIZATIONS]
    records = []
    for name, changed in changes:
        unit = unit_rows(changed)
        # A row that became zero has no neighbours to compare.
        comparable = len(unit) == len(rows)
        share = changed_neighbours(before, nearest_rows(unit, NEIGHBOURS)) if comparable else float("nan")
        records.append(dict(zip(columns, (name, average_cosine_of(unit), rms_cosine(unit), share), strict=True)))
    return pd.DataFrame(records, columns=columns)


def _without(rows: Array, dimensions: NDArray[np.intp]) -> Array:
    return np.asarray(np.delete(rows, dimensions, axis=1))
