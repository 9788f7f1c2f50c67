"""Curves of freezing and of truncation: what a task's metric loses with each layer that is still, or cut off.

All from the table of runs; no network is loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cls_analysis.finetuning.outcomes import CONDITION, rates_table
from cls_analysis.finetuning.settings import RunSettings
from cls_analysis.moments import Array
from cls_analysis.statistics.paired import mean_interval

#: What an arm of ``layers.csv`` is told by, and a point of a curve.
ARM = ("freeze", "truncate", "dropout")
POINT = (*CONDITION, "metric", "curve", "k", "dropout")
NONE = "none"
#: The gain of training anything at all must be above so many standard errors for shares of it to be told.
CLEAR = 2.0


@dataclass(frozen=True)
class Curves:
    """The tables of freezing and truncation.

    Attributes
    ----------
    curves : DataFrame
        One row per task, metric, curve (``freezing`` or ``truncation``) and point of it.
    scores : DataFrame
        The seeds behind them: ``score_report`` at the learning rate of the point.
    """

    curves: pd.DataFrame
    scores: pd.DataFrame


def layer_columns(run: RunSettings, record: Mapping[str, Any]) -> dict[str, Any]:
    """The columns of ``layers.csv`` beside those of ``runs.csv``: which layers, and whether frozen ones stood still."""
    layers, notes = run.layers, record["notes"]
    return {
        "freeze": NONE if layers.frozen is None else str(layers.frozen),
        "truncate": NONE if layers.kept is None else str(layers.kept),
        "dropout": layers.dropout,
        "trained_parameters": notes["trained_parameters"],
        "frozen_parameters": notes["frozen_parameters"],
        "frozen_weights": notes["frozen_weights"],
        "frozen_unchanged": notes["frozen_weights"] == notes["frozen_weights_after"],
    }


LAYER_COLUMNS = (*ARM, "trained_parameters", "frozen_parameters", "frozen_weights", "frozen_unchanged")


def layer_curves(runs: pd.DataFrame, depth: int) -> Curves:
    """Scores against the number of layers.

    Parameters
    ----------
    runs : DataFrame
        As ``layers.csv``: those of ``runs.csv`` with ``layer_columns``. Each point has its own learning rate, the one
        with the best mean ``score_select`` of the task's first metric.
    depth : int
        Blocks of the whole encoder, L.

    Returns
    -------
    Curves
        ``curves`` has ``mean``, ``std``, ``best``, ``worst`` over seeds; ``difference`` to training everything with
        dropout, paired by seed, with its 95 % interval; and ``share_kept`` = (s_k - s_L) / (s_none - s_L), where s_L
        has all blocks frozen: 1 keeps all that training the encoder gains, 0 no more than the head alone.
        ``share_kept_without_dropout`` takes s_none without dropout in the encoder. Both are NaN unless s_none is above
        s_L by more than two standard errors of their difference over the seeds.

    Raises
    ------
    DataError
        If points have other seeds or rates: an unfinished grid.
    """
    named = runs.assign(norm=[" ".join(map(str, arm)) for arm in runs[list(ARM)].itertuples(index=False)])
    keys = [*CONDITION, "norm", "metric", "learning_rate"]
    rates = rates_table(named)
    chosen = named.merge(rates.loc[rates["chosen"], [*keys, "rate_at_edge"]], on=keys)
    scores = chosen.merge(_places(chosen, depth), on=list(ARM)).sort_values("number", kind="stable")
    curves = [
        row
        for _, condition in scores.groupby([*CONDITION, "metric"], sort=False)
        for row in _points(condition.sort_values("curve", kind="stable"), str(depth))
    ]
    kept = [*POINT, "learning_rate", "seed", "score_select", "score_report", "majority", "run_id"]
    return Curves(pd.DataFrame(curves), scores[kept].reset_index(drop=True))


def _places(chosen: pd.DataFrame, depth: int) -> pd.DataFrame:
    """The curves that each arm lies on, and where; training the whole of an uncut encoder belongs to both.

    ``number`` puts the points of a curve in order.
    """
    places = []
    for freeze, truncate, dropout in chosen[list(ARM)].drop_duplicates().itertuples(index=False):
        arm = {"freeze": freeze, "truncate": truncate, "dropout": dropout}
        if truncate == NONE:
            places.append(arm | {"curve": "freezing", "k": freeze, "number": -1 if freeze == NONE else int(freeze)})
        if freeze == NONE and dropout:
            blocks = depth if truncate == NONE else int(truncate)
            places.append(arm | {"curve": "truncation", "k": str(blocks), "number": blocks})
    table = pd.DataFrame(places)
    # Training everything is a point of both curves, but no curve by itself.
    asked = table.loc[(table["freeze"] != NONE) | (table["truncate"] != NONE), "curve"]
    return table[table["curve"].isin(asked)] if len(asked) else table


def _points(condition: pd.DataFrame, depth: str) -> Iterator[dict[str, Any]]:
    """The points of a condition and metric."""
    whole, undropped, still = (
        _scores(condition, freeze, dropout) for freeze, dropout in ((NONE, True), (NONE, False), (depth, True))
    )
    for key, point in condition.groupby(list(POINT), sort=False):
        first, values = point.iloc[0], _values(point)
        row = dict(zip(POINT, key, strict=True)) | {name: first[name] for name in ("learning_rate", "rate_at_edge")}
        row |= {"n_seeds": len(values), "n_valid": int(np.isfinite(values).sum())}
        row |= {name: getattr(pd.Series(values), use)() for name, use in STATISTICS.items()}
        row |= {"majority": first["majority"]} | _difference(values, whole)
        row["share_kept"] = share_kept(values, still, whole)
        row["share_kept_without_dropout"] = share_kept(values, still, undropped)
        yield row


def _scores(condition: pd.DataFrame, freeze: str, dropout: bool) -> Array | None:
    """Scores of an arm that is not cut, by seed; None if there is none."""
    of_arm = (condition["freeze"] == freeze) & (condition["truncate"] == NONE) & (condition["dropout"] == dropout)
    rows = condition[of_arm].drop_duplicates("seed")
    return _values(rows) if len(rows) else None


def _values(rows: pd.DataFrame) -> Array:
    return rows.sort_values("seed")["score_report"].to_numpy(dtype=np.float64)


#: Columns over the seeds of a point, and what pandas calls them.
STATISTICS = {"mean": "mean", "std": "std", "worst": "min", "best": "max"}


def _difference(values: Array, whole: Array | None) -> dict[str, float]:
    if whole is None or len(whole) != len(values):
        return dict.fromkeys(("difference", "ci_low", "ci_high"), float("nan"))
    difference = (values - whole)[np.isfinite(values - whole)]
    low, high = mean_interval(difference)
    return {"difference": float(difference.mean()) if len(difference) else np.nan, "ci_low": low, "ci_high": high}


def share_kept(values: Array, still: Array | None, whole: Array | None) -> float:
    """(s_k - s_L) / (s_none - s_L) of means over seeds; NaN unless s_none is clearly above s_L.

    Parameters
    ----------
    values, still, whole : arrays (seeds,), or None
        Scores of the point, with all blocks frozen, and with all trained.
    """
    if still is None or whole is None or min(len(still), len(whole)) < 2:
        return float("nan")
    gain = float(whole.mean() - still.mean())
    error = float(np.sqrt(whole.var(ddof=1) / len(whole) + still.var(ddof=1) / len(still)))
    return float(values.mean() - still.mean()) / gain if gain > CLEAR * error else float("nan")
