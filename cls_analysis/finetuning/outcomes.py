"""What a grid of runs shows: a learning rate for each arm, scores at it, and differences to the arm without a norm.

All from the table of runs and the predictions on development rows; no network is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from cls_analysis.errors import DataError
from cls_analysis.finetuning.records import BY_BATCHES, PREDICTION
from cls_analysis.finetuning.resampling import joint_intervals
from cls_analysis.moments import Array
from cls_analysis.statistics.paired import (
    brown_forsythe,
    expected_best,
    holm,
    mean_interval,
    sign_flip_test,
    smallest_p,
    spreads,
)
from cls_analysis.tasks.metrics import score

#: What tells conditions apart, within which arms are compared; and what tells arms apart.
CONDITION = ("model", "task", "head", "train", "position", "optimizer", "clip")
ARM = ("model", "task", "head", "train", "norm", "position", "optimizer", "clip")
#: The arm that others are compared with.
BASELINE = "none"
LEVEL = 0.05


@dataclass(frozen=True)
class DevRows:
    """The development rows of a task: labels (n,), and which of them report (n,)."""

    label: NDArray[Any]
    report: NDArray[np.bool_]


@dataclass(frozen=True)
class Outcomes:
    """The tables of a study.

    Attributes
    ----------
    outcomes : DataFrame
        One row per arm and metric.
    rates : DataFrame
        The whole sweep: one row per arm, metric and learning rate.
    scores : DataFrame
        One row per arm, metric and seed, at the arm's rate.
    expected_best : DataFrame
        One row per arm, metric and number of runs k.
    notes : list of str
        What a reader should know, as conditions without a baseline.
    """

    outcomes: pd.DataFrame
    rates: pd.DataFrame
    scores: pd.DataFrame
    expected_best: pd.DataFrame
    notes: list[str]


def evaluate(
    runs: pd.DataFrame,
    predictions: Callable[[str], Mapping[str, NDArray[Any]]],
    dev: Mapping[str, DevRows],
    *,
    baseline: str = BASELINE,
) -> Outcomes:
    """Compare the arms of a grid.

    Parameters
    ----------
    runs : DataFrame
        As ``runs.csv``. The first metric of a task chooses the learning rate: the one with the best mean
        ``score_select`` over all seeds (undefined scores count as 0; of equal ones, the smaller).
    predictions : callable
        Gives a run's development predictions (n,) by its ``run_id``, as ``read_predictions`` does.
    dev : mapping of task name -> DevRows
    baseline : str
        Label of the arm that the others of its condition are compared with.

    Raises
    ------
    DataError
        If arms of a condition have other seeds or rates: an unfinished grid.
    """
    notes: list[str] = []
    rates = rates_table(runs)
    chosen = runs.merge(rates.loc[rates["chosen"], [*ARM, "metric", "learning_rate", "rate_at_edge"]])
    records = []
    for key, condition in chosen.groupby(list(CONDITION), sort=False):
        rows = dev[str(condition["task"].iloc[0])]
        if baseline not in set(condition["norm"]):
            notes.append(f"{_name(key)}: no arm {baseline!r} to compare with")
        for metric in _in_order(condition["metric"]):
            of_metric = condition[condition["metric"] == metric]
            records += list(_compare(of_metric, predictions, rows, baseline))
    outcomes = pd.DataFrame(records)
    outcomes["p_holm"] = _adjusted(outcomes)
    outcomes["verdict"] = [_verdict(row, baseline) for row in outcomes.to_dict("records")]
    order = {arm: i for i, arm in enumerate(dict.fromkeys(map(tuple, runs[list(ARM)].to_numpy())))}
    outcomes = outcomes.iloc[np.argsort([order[tuple(row)] for row in outcomes[list(ARM)].to_numpy()], kind="stable")]
    scores = chosen[[*ARM, "metric", "learning_rate", "seed", "score_select", "score_report", "majority", "degenerate"]]
    return Outcomes(
        outcomes.reset_index(drop=True), rates, scores.reset_index(drop=True), _expected_table(chosen), notes
    )


def rates_table(runs: pd.DataFrame) -> pd.DataFrame:
    """The learning-rate sweep: mean and standard deviation of both halves by arm, metric and rate, and which is chosen.

    ``rate_at_edge`` says that the arm's rate is the smallest or largest of several: the sweep was too narrow for it.

    Raises
    ------
    DataError
        If arms of a condition have other seeds or rates.
    """
    _check_complete(runs)
    tables = []
    for _, arm in runs.groupby(list(ARM), sort=False):
        primary = arm[arm["metric"] == arm["metric"].iloc[0]]
        means = primary.assign(score=primary["score_select"].fillna(0.0)).groupby("learning_rate")["score"].mean()
        best = float(means.idxmax())
        table = arm.groupby([*ARM, "metric", "learning_rate"], sort=False, as_index=False).agg(
            n_seeds=("seed", "size"),
            mean_select=("score_select", "mean"),
            std_select=("score_select", "std"),
            mean_report=("score_report", "mean"),
            std_report=("score_report", "std"),
            n_degenerate=("degenerate", "sum"),
        )
        table["chosen"] = table["learning_rate"] == best
        table["rate_at_edge"] = len(means) > 1 and best in (means.index.min(), means.index.max())
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _check_complete(runs: pd.DataFrame) -> None:
    if runs.empty:
        raise DataError("no run is finished yet")
    for key, condition in runs.groupby(list(CONDITION), sort=False):
        if lack := _lack(condition):
            raise DataError(f"{_name(key)}: {lack}: arms are compared on the same seeds and rates; finish the grid")


def _lack(condition: pd.DataFrame) -> str | None:
    """What keeps the arms of a condition from being compared: a seed or a rate that some have and others have not."""
    seeds, rates = set(condition["seed"]), set(condition["learning_rate"])
    # Arms of one rate each have their own: a pilot chose it.
    swept = condition.groupby("norm")["learning_rate"].nunique().max() > 1
    for norm, arm in condition.groupby("norm", sort=False):
        for rate, of_rate in arm.groupby("learning_rate"):
            if missing := sorted(seeds - set(of_rate["seed"])):
                return f"{norm} at rate {rate:g} lacks seed {missing[0]}, which other runs have"
        if swept and (unknown := sorted(rates - set(arm["learning_rate"]))):
            return f"{norm} has {len(rates) - len(unknown)} of {len(rates)} learning rates, {unknown[0]:g} is missing"
    return None


def _compare(
    condition: pd.DataFrame, predictions: Callable[[str], Mapping[str, NDArray[Any]]], rows: DevRows, baseline: str
) -> Iterator[dict[str, Any]]:
    """One record an arm, for one metric of a condition."""
    metric, label = str(condition["metric"].iloc[0]), rows.label[rows.report]
    by_norm = {str(norm): arm.sort_values("seed") for norm, arm in condition.groupby("norm", sort=False)}
    found = {norm: [predictions(run) for run in arm["run_id"]] for norm, arm in by_norm.items()}
    reported = {norm: np.array([run[PREDICTION][rows.report] for run in runs]) for norm, runs in found.items()}
    base = by_norm.get(baseline)
    for norm, arm in by_norm.items():
        record = {name: arm[name].iloc[0] for name in ARM} | {"metric": metric} | _summary(arm)
        record["mode_gap"] = _mode_gap(metric, label, arm["score_report"].to_numpy(), found[norm], rows.report)
        record |= {"baseline": baseline if base is not None else None, "n_paired": 0}
        record |= dict.fromkeys(COMPARED, float("nan"))
        if base is None or norm == baseline:
            yield record
            continue
        x, y = (each["score_report"].to_numpy() for each in (arm, base))
        both = np.isfinite(x) & np.isfinite(y)
        x, y = x[both], y[both]
        joint = joint_intervals(metric, label, reported[baseline][both], reported[norm][both])
        yield record | _differences(x, y) | dict(zip(("joint_low", "joint_high"), joint, strict=True))


#: Columns that compare an arm with the baseline.
COMPARED = (
    *("difference", "ci_low", "ci_high", "joint_low", "joint_high", "p", "p_smallest", "p_holm"),
    *("spread_difference", "p_stability", "p_stability_smallest", "p_brown_forsythe"),
)


def _summary(arm: pd.DataFrame) -> dict[str, Any]:
    """Scores of the reporting half; undefined ones are counted, not averaged."""
    scores = arm["score_report"].dropna()
    return {
        "learning_rate": arm["learning_rate"].iloc[0],
        "rate_at_edge": bool(arm["rate_at_edge"].iloc[0]),
        "n_seeds": len(arm),
        "n_valid": len(scores),
        "mean": scores.mean(),
        "median": scores.median(),
        "std": scores.std(ddof=1),
        "best": scores.max(),
        "worst": scores.min(),
        "majority": arm["majority"].iloc[0],
        "n_degenerate": int(arm["degenerate"].sum()),
    }


def _mode_gap(
    metric: str, label: NDArray[Any], scores: Array, runs: Sequence[Mapping[str, NDArray[Any]]], report: NDArray[Any]
) -> float:
    """Mean score with the batches' own statistics, minus the one with running ones; NaN where they do not differ."""
    if not runs or not all(BY_BATCHES in run for run in runs):
        return float("nan")
    gaps = np.array([score(metric, label, run[BY_BATCHES][report]) for run in runs]) - scores
    return float(gaps[np.isfinite(gaps)].mean()) if np.isfinite(gaps).any() else float("nan")


def _differences(x: Array, y: Array) -> dict[str, float]:
    """An arm's scores ``x`` against the baseline's ``y``, paired by seed; ``n_paired`` have both."""
    difference = x - y
    low, high = mean_interval(difference)
    nan = float("nan")
    apart = spreads(x) - spreads(y) if len(x) else np.array([])
    return {
        "n_paired": len(x),
        "difference": float(difference.mean()) if len(x) else nan,
        "ci_low": low,
        "ci_high": high,
        "p": sign_flip_test(difference),
        "p_smallest": smallest_p(len(x)),
        "spread_difference": float(apart.mean()) if len(x) else nan,
        "p_stability": sign_flip_test(apart),
        "p_stability_smallest": smallest_p(len(x)),
        "p_brown_forsythe": brown_forsythe(x, y),
    }


def _adjusted(outcomes: pd.DataFrame) -> Array:
    """Holm's p over all comparisons of the study: the primary metrics are one family, the second ones another."""
    rank = outcomes.groupby(list(CONDITION), sort=False)["metric"].transform(lambda names: pd.factorize(names)[0])
    adjusted = np.full(len(outcomes), np.nan)
    for number in rank.unique():
        family = (rank == number).to_numpy()
        adjusted[family] = holm(outcomes.loc[family, "p"].to_numpy())
    return adjusted


def _verdict(row: Mapping[Any, Any], baseline: str) -> str:
    """What may be said of an arm."""
    if row["norm"] == baseline:
        return "baseline"
    if row["baseline"] is None or not np.isfinite(row["difference"]):
        return "not compared"
    k = row["n_paired"]
    bounds = [(row["ci_low"], row["ci_high"]), (row["joint_low"], row["joint_high"])]
    if row["p_holm"] < LEVEL and all(low > 0 for low, _ in bounds):
        return "better"
    if row["p_holm"] < LEVEL and all(high < 0 for _, high in bounds):
        return "worse"
    seeds = f"{k} seed{'s' if k != 1 else ''}"
    short = f" ({seeds} cannot reach p < {LEVEL})" if not row["p_smallest"] < LEVEL else ""
    return f"cannot be told apart with {seeds}{short}"


def _expected_table(chosen: pd.DataFrame) -> pd.DataFrame:
    tables = []
    for _, arm in chosen.groupby([*ARM, "metric"], sort=False):
        # As where a rate is chosen, an undefined score counts as 0.
        select, report = (arm[column].fillna(0.0).to_numpy() for column in ("score_select", "score_report"))
        table = pd.DataFrame({"k": np.arange(1, len(arm) + 1), "expected_best": expected_best(select, report)})
        for position, name in enumerate((*ARM, "metric")):
            table.insert(position, name, arm[name].iloc[0])
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def _in_order(values: pd.Series[Any]) -> list[str]:
    return list(dict.fromkeys(values))


def _name(key: Sequence[Any] | Any) -> str:
    """A condition in words."""
    _, task, head, train, position, optimizer, clip = key
    return f"{task}, {head} head, train {train}, {position}, {optimizer}, clip {clip}"
