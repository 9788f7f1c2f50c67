"""Are n rows enough? Each main figure against n, and a plain answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.diagnosis.measures import LABELS
from cls_analysis.statistics import nulls
from cls_analysis.statistics.intervals import BIASED_BY_N, WIDTH, curve_of_n

#: A figure is settled if the last doubling of n moved it by less than this share of itself …
DRIFT = 0.05
#: … and its interval is narrower than this share of itself, each way; for shares and cosines 0.01 is enough.
PRECISION, PRECISION_OF_SHARES = 0.1, 0.01
#: Figures between 0 and 1.
SHARES = frozenset(
    {"common_mean_share", "average_cosine", "rms_cosine", "top1_energy_share", "energy_gini", "mean_abs_correlation",
     "isoscore", "ev1", "ev3"}
)  # fmt: skip
COLUMNS = ["figure", "n", "value", "half_width", "drift", "enough", "why"]


@dataclass(frozen=True)
class Sufficiency:
    """Whether n rows are enough.

    ``answers``: one row a figure, columns ``figure``, ``n``, ``value``, ``half_width`` (of the 95 % interval),
    ``drift`` (relative change from half the rows, or from the stored sample where that is smaller), ``enough``,
    ``why``. ``curve``: columns ``n``, ``figure``, ``value``, ``std``, ``null``; from subsamples of the stored sample,
    and the value of all rows last. ``answers`` is empty below 32 rows and where the layer is collapsed.
    """

    answers: pd.DataFrame
    curve: pd.DataFrame

    def sentence(self) -> str:
        """The plain answer in one sentence."""
        if self.answers.empty:
            return "too few rows to say how many would be enough: at least 32 are needed, and vectors that differ"
        n = int(self.answers["n"].iloc[0])
        lacking = self.answers.loc[~self.answers["enough"], "figure"].tolist()
        settled = self.answers.loc[self.answers["enough"], "figure"].tolist()
        if not lacking:
            return f"{n:,} rows are enough for every main figure"
        if not settled:
            return f"{n:,} rows are too few for every main figure"
        enough, too_few = (", ".join(LABELS[name] for name in names) for names in (settled, lacking))
        return f"{n:,} rows are enough for {enough}; too few for {too_few}"


def judge_sufficiency(evidence: Evidence) -> Sufficiency:
    """Look at how the main figures move with n, down from the Profile's sample."""
    layer = evidence.layer
    curve = curve_of_n(layer)
    if not curve.empty and layer.n > int(curve["n"].max()):
        curve = pd.concat([curve, _whole(evidence, curve["figure"].unique())], ignore_index=True)
    curve["null"] = [_null(figure, int(n), layer.dim) for figure, n in zip(curve["figure"], curve["n"], strict=True)]
    answers = []
    # Where the smallest n is more than half of the largest, no doubling can be looked at.
    for figure, group in curve.groupby("figure", sort=False) if curve["n"].min() <= curve["n"].max() / 2 else ():
        value = group.set_index("n")["value"]
        before = value[value.index <= value.index.max() / 2]
        answers.append(_answer(str(figure), layer.n, value.iloc[-1], before, evidence.deviations[str(figure)]))
    return Sufficiency(pd.DataFrame(answers, columns=COLUMNS), curve)


def _whole(evidence: Evidence, figures: np.ndarray) -> pd.DataFrame:
    """The values of all rows; figures of the sample alone have none."""
    known = [figure for figure in figures if figure in evidence.summary]
    values = [evidence.figure(figure) for figure in known]
    return pd.DataFrame({"n": evidence.layer.n, "figure": known, "value": values, "std": float("nan")})


def _answer(figure: str, n: int, value: float, smaller: pd.Series[float], deviation: float) -> dict[str, object]:
    half, before = WIDTH * deviation, float(smaller.iloc[-1])
    drift = abs(value - before) / abs(value) if value else float("nan")
    wide = half > max(PRECISION * abs(value), PRECISION_OF_SHARES if figure in SHARES else 0.0)
    drifts = drift > DRIFT and (figure not in SHARES or abs(value - before) > PRECISION_OF_SHARES)
    reasons = []
    if not np.isfinite([value, half]).all():
        reasons.append("not defined in all of the rows, or in some halves of them")
    if wide:
        reasons.append(f"known to ± {half:.3g} only")
    if drifts:
        kind = "biased by n, " if figure in BIASED_BY_N else ""
        reasons.append(f"{kind}still moving: {drift:.0%} from {int(smaller.index[-1]):,} rows")
    return {
        "figure": figure,
        "n": n,
        "value": value,
        "half_width": half,
        "drift": drift,
        "enough": not reasons,
        "why": "; ".join(reasons) or f"± {half:.2g}",
    }


def _null(figure: str, n: int, d: int) -> float:
    if figure in ("isoscore", "participation_ratio", "effective_rank", "ev1", "ev3"):
        null = nulls.spectrum_null(n, d)
        explained = null.explained_variance
        return float(
            {
                "isoscore": null.isoscore,
                "participation_ratio": null.participation_ratio,
                "effective_rank": null.effective_rank,
                "ev1": explained[0],
                "ev3": explained[min(2, d - 1)],
            }[figure]
        )
    concentration = nulls.concentration_null(n, d)
    return {
        "common_mean_share": 1.0 / n,
        "average_cosine": 0.0,
        "rms_cosine": nulls.rms_cosine_null(d),
        "top1_energy_share": concentration.top1,
        "energy_gini": concentration.gini,
        "std_ratio": nulls.std_ratio_null(n, d),
        "mean_abs_correlation": nulls.mean_absolute_correlation_null(n),
    }[figure]
