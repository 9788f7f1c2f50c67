"""Several encoders side by side: each main figure, with the best and the worst."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from cls_analysis.diagnosis.measures import FIGURES
from cls_analysis.diagnosis.verdict import Diagnosis
from cls_analysis.errors import OptionError
from cls_analysis.statistics.intervals import BIASED_BY_N

#: Values that differ by less, of themselves or where they are about 0, differ by rounding.
ROUNDING, ROUNDING_AT_0 = 1e-6, 1e-9

#: Figures whose isotropic value does not depend on d.
FREE_OF_DIM = frozenset({"common_mean_share", "average_cosine", "average_cosine_centred", "median_kurtosis_excess"})


def names_of(diagnoses: Sequence[Diagnosis]) -> list[str]:
    """What each is called: its encoder and data set as far as they differ, numbered where they do not."""
    encoders = [diagnosis.profile.encoder for diagnosis in diagnoses]
    datasets = [diagnosis.profile.dataset for diagnosis in diagnoses]
    columns = [column for column in (encoders, datasets) if len(set(column)) > 1] or [encoders]
    names = [" on ".join(parts) for parts in zip(*columns, strict=True)]
    return [name if names.count(name) == 1 else f"{name} #{i + 1}" for i, name in enumerate(names)]


def comparison_table(diagnoses: Sequence[Diagnosis]) -> pd.DataFrame:
    """One row a figure: columns ``figure``, ``label``, one for each Profile, ``best``, ``worst``, ``comparable``.

    ``comparable`` is false where n or d differs and the figure's isotropic value with it: read those against their
    nulls. ``best`` and ``worst`` are empty there, where no end is better, and where values differ by rounding only.

    Raises
    ------
    OptionError
        With fewer than two diagnoses.
    """
    if len(diagnoses) < 2:
        raise OptionError("a comparison needs at least two Profiles")
    names = names_of(diagnoses)
    same_dim = len({diagnosis.profile.dim for diagnosis in diagnoses}) == 1
    same_n = len({diagnosis.profile.n for diagnosis in diagnoses}) == 1
    records = []
    for kind in FIGURES:
        values = [_value(diagnosis, kind.name) for diagnosis in diagnoses]
        row: dict[str, object] = {"figure": kind.name, "label": kind.label}
        row |= dict(zip(names, values, strict=True))
        comparable = (same_n or kind.name not in BIASED_BY_N) and (same_dim or kind.name in FREE_OF_DIM)
        row |= _ends(dict(zip(names, values, strict=True)), kind.better if comparable else 0)
        row["comparable"] = comparable
        records.append(row)
    return pd.DataFrame(records)


def _value(diagnosis: Diagnosis, figure: str) -> float:
    row = diagnosis.figures.loc[diagnosis.figures["figure"] == figure, "value"]
    return float(row.iloc[0]) if len(row) else float("nan")


def _ends(values: dict[str, float], better: int) -> dict[str, str]:
    known = pd.Series(values).dropna()
    if better == 0 or len(known) < 2:
        return {"best": "", "worst": ""}
    if math.isclose(known.min(), known.max(), rel_tol=ROUNDING, abs_tol=ROUNDING_AT_0):
        return {"best": "", "worst": ""}
    low, high = str(known.idxmin()), str(known.idxmax())
    return {"best": high, "worst": low} if better > 0 else {"best": low, "worst": high}
