"""Runs on disk: a folder each, finished when ``run.json`` is there, which is written last."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import safetensors.numpy
from numpy.typing import NDArray

from cls_analysis.errors import DataError, one_line
from cls_analysis.files import make_folder, whole_file, write_text
from cls_analysis.finetuning.settings import RunSettings
from cls_analysis.tasks import Task

RUN, PREDICTIONS, STEPS, MOMENTS = "run.json", "predictions.safetensors", "steps.csv", "moments.csv"
#: What a run predicts in evaluation, and with the statistics of batches instead of running ones.
PREDICTION, BY_BATCHES = "prediction", "by_batches"
#: A pre-clip gradient norm above so many times its running median is called an explosion.
EXPLOSION = 10.0
#: Steps of the running median, and the fewest that give one.
WINDOW, FEWEST = 100, 10
COLUMNS = (
    *("model", "task", "head", "train", "norm", "position", "optimizer", "clip", "learning_rate"),
    *("seed", "seed_head", "seed_order", "seed_dropout", "metric", "score_select", "score_report", "majority"),
    *("degenerate", "steps", "examples", "max_cls_gradient_norm", "clipped_share", "run_id"),
)


@dataclass(frozen=True)
class RunResult:
    """What a run gave.

    Attributes
    ----------
    predictions : array (n_dev,)
        Class numbers, or values.
    steps : DataFrame
        Measures by step; which ones depends on what is trained.
    counts : dict
        ``steps``, ``examples``, ``skipped`` (gradient not finite), ``exploded``, ``clipped_share``,
        ``max_cls_gradient_norm``.
    moments : DataFrame, or None
        How the vectors are distributed as they move; None where they are frozen.
    notes : dict
        Times and whatever else is worth keeping, outside of the tables.
    by_batches : array (n_dev,), or None
        Predictions where the norm takes each batch's own statistics, as in training; None where it never does.
    """

    predictions: NDArray[Any]
    steps: pd.DataFrame
    counts: dict[str, float]
    moments: pd.DataFrame | None = None
    notes: dict[str, Any] = field(default_factory=dict)
    by_batches: NDArray[Any] | None = None


def run_folder(out: Path, settings: RunSettings) -> Path:
    """Where a run lies."""
    return out / "runs" / settings.run_id


def is_finished(out: Path, settings: RunSettings) -> bool:
    """Whether a run is there, whole."""
    return (run_folder(out, settings) / RUN).is_file()


def write_run(
    out: Path, settings: RunSettings, task: Task, result: RunResult, *, also: Callable[[Path], None] = lambda _: None
) -> None:
    """Write a run; what an earlier, killed attempt left is removed. ``also`` adds to the folder before it counts."""
    folder = run_folder(out, settings)
    shutil.rmtree(folder, ignore_errors=True)
    make_folder(folder)
    also(folder)
    predictions = {PREDICTION: result.predictions}
    if result.by_batches is not None:
        predictions[BY_BATCHES] = result.by_batches
    with whole_file(folder / PREDICTIONS) as temporary:
        safetensors.numpy.save_file(predictions, temporary)
    write_text(folder / STEPS, result.steps.to_csv(index=False, float_format="%.6g"))
    if result.moments is not None:
        write_text(folder / MOMENTS, result.moments.to_csv(index=False, float_format="%.6g"))
    record = {
        "settings": settings.to_dict(),
        "rows": _rows(settings, task, result),
        "counts": result.counts,
        "notes": result.notes,
        "machine": {"platform": platform.platform(), "python": platform.python_version()},
    }
    write_text(folder / RUN, json.dumps(_strict(record), indent=1, sort_keys=True, allow_nan=False) + "\n")


def _rows(settings: RunSettings, task: Task, result: RunResult) -> list[dict[str, Any]]:
    """The run's rows of ``runs.csv``, one a metric."""
    rows = []
    for metric in task.metrics:
        select, report = task.scores(result.predictions, metric)
        rows.append(
            settings.columns()
            | {
                "metric": metric,
                "score_select": select,
                "score_report": report,
                "majority": task.majority(metric),
                "degenerate": task.degenerate(result.predictions),
                "steps": int(result.counts["steps"]),
                "examples": int(result.counts["examples"]),
                "max_cls_gradient_norm": result.counts["max_cls_gradient_norm"],
                "clipped_share": result.counts["clipped_share"],
                "run_id": settings.run_id,
            }
        )
    return rows


def read_rows(
    out: Path,
    settings: Iterable[RunSettings],
    known: dict[str, Any],
    *,
    more: Callable[[RunSettings, Mapping[str, Any]], dict[str, Any]] = lambda run, record: {},
    columns: Sequence[str] = COLUMNS,
) -> pd.DataFrame:
    """Rows of ``runs.csv`` for those runs that are finished, in the given order.

    ``known`` keeps what was read; ``more`` adds to each row of a run.
    """
    rows = []
    for each in settings:
        key = each.run_id
        if key not in known and is_finished(out, each):
            record = read_record(out, each)
            added = more(each, record)
            known[key] = [row | added for row in record["rows"]]
        rows += known.get(key, [])
    return pd.DataFrame(rows, columns=list(columns))


def read_record(out: Path, settings: RunSettings) -> dict[str, Any]:
    """What ``run.json`` says.

    Raises
    ------
    DataError
        If it cannot be read.
    """
    path = run_folder(out, settings) / RUN
    try:
        record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: cannot be read ({one_line(error, 120)}); remove its folder to run it again") from None
    for row in record["rows"]:
        row.update({key: float("nan") for key, value in row.items() if value is None})
    return record


def read_predictions(out: Path, run_id: str) -> dict[str, NDArray[Any]]:
    """Development predictions of a run, each of shape (n_dev,): ``PREDICTION``, and ``BY_BATCHES`` if it has any.

    Raises
    ------
    DataError
        If they cannot be read.
    """
    path = out / "runs" / run_id / PREDICTIONS
    try:
        predictions: dict[str, NDArray[Any]] = safetensors.numpy.load_file(path)
        return {PREDICTION: predictions.pop(PREDICTION)} | predictions
    except (OSError, KeyError, safetensors.SafetensorError) as error:
        raise DataError(f"{path}: cannot be read ({one_line(error, 120)}); remove its folder to run it again") from None


def read_steps(out: Path, settings: RunSettings) -> pd.DataFrame:
    """Measures of a run by step."""
    return pd.read_csv(run_folder(out, settings) / STEPS)


def count_explosions(norms: NDArray[Any]) -> NDArray[np.int64]:
    """Steps whose gradient norm explodes, for each run; ``norms`` has shape (steps, runs).

    A norm explodes if it is above ten times the median of the hundred before it, or not finite. The first ten steps
    have no median yet.
    """
    finite = np.isfinite(norms)
    frame = pd.DataFrame(np.where(finite, norms, np.nan))
    median = frame.rolling(WINDOW, min_periods=FEWEST).median().shift(1).to_numpy()
    with np.errstate(invalid="ignore"):
        return np.asarray(((norms > EXPLOSION * median) | ~finite).sum(axis=0), dtype=np.int64)


def _strict(value: Any) -> Any:
    """``value`` for strict JSON: not-a-number as null."""
    if isinstance(value, Mapping):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_strict(item) for item in value]
    if isinstance(value, np.generic):
        return _strict(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value
