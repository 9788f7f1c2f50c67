"""What a task's name means: its rows, labels, metrics, and the halves of its development rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cls_analysis.errors import DataError, OptionError, list_rows, unknown_name
from cls_analysis.provenance import canonical_json, hash_text
from cls_analysis.tasks.metrics import METRICS, VALUE_METRICS, score
from cls_analysis.tasks.splits import deal
from cls_analysis.texts import Texts, load_texts
from cls_analysis.texts.glue import find_task

#: Metrics of the tasks that have a name, the one that chooses a learning rate first. Accuracy comes before F1: a run
#: that predicts one class for all rows has a high F1 where that class is frequent.
NAMED_METRICS = {
    "glue/cola": ("mcc", "accuracy"),
    "glue/sst2": ("accuracy",),
    "glue/mrpc": ("accuracy", "f1"),
    "glue/qqp": ("accuracy", "f1"),
    "glue/stsb": ("pearson", "spearman"),
    "glue/mnli": ("accuracy",),
    "glue/qnli": ("accuracy",),
    "glue/rte": ("accuracy",),
    "glue/wnli": ("accuracy",),
    "trec": ("accuracy", "macro_f1"),
    "sample:acceptability": ("accuracy", "mcc"),
    "sample:paraphrase": ("accuracy", "f1"),
    "sample:questions": ("accuracy", "macro_f1"),
    "sample:sentiment": ("accuracy",),
}
#: Development split of tasks that have several.
DEV_SPLITS = {"glue/mnli": "dev_matched"}
TOKEN_TASKS = ("ud:", "squad:")
#: 60 % to train, 20 % to select, 20 % to report.
TRAIN, SELECT, REPORT = 0, 1, 2
WHOLE = (TRAIN, TRAIN, TRAIN, SELECT, REPORT)


@dataclass(frozen=True, eq=False)
class Task:
    """Rows to train on and rows to judge by.

    Attributes
    ----------
    name : str
        As tables show it.
    metrics : tuple of str
        The first one chooses the learning rate.
    classes : tuple of str, or None
        Names of classes 0, 1, …; None for a task of values (regression).
    train, dev : Texts
    train_target, dev_target : arrays (n,)
        int64 class numbers, or float64 values.
    report : bool array (n_dev,)
        The half of the development rows that results are reported on; the other one selects.
    """

    name: str
    metrics: tuple[str, ...]
    classes: tuple[str, ...] | None
    train: Texts
    train_target: NDArray[Any]
    dev: Texts
    dev_target: NDArray[Any]
    report: NDArray[np.bool_]

    def __repr__(self) -> str:
        kind = f"{len(self.classes)} classes" if self.classes else "values"
        return f"Task({self.name!r}: {len(self.train)} rows to train, {len(self.dev)} to judge, {kind})"

    @property
    def num_labels(self) -> int:
        """Outputs of a classifier: the classes, or 1 for values."""
        return len(self.classes) if self.classes else 1

    def identity(self) -> dict[str, Any]:
        """What a run depends on: rows, labels and halves, as hashes."""
        targets = canonical_json([self.train_target.tolist(), self.dev_target.tolist(), self.report.tolist()])
        return {
            "name": self.name,
            "metrics": list(self.metrics),
            "classes": list(self.classes) if self.classes else None,
            "train": self.train.hash,
            "train_selection": self.train.selection,
            "dev": self.dev.hash,
            "dev_selection": self.dev.selection,
            "targets": hash_text(targets),
        }

    def scores(self, predicted: NDArray[Any], metric: str) -> tuple[float, float]:
        """The metric on the half that selects and on the one that reports; NaN where undefined."""
        halves = (~self.report, self.report)
        select, report = (score(metric, self.dev_target[half], predicted[half]) for half in halves)
        return select, report

    def majority(self, metric: str) -> float:
        """The metric, on the half that reports, of always naming the training rows' most frequent class; else NaN."""
        if not self.classes:
            return float("nan")
        frequent = np.bincount(self.train_target).argmax()
        truth = self.dev_target[self.report]
        return score(metric, truth, np.full(len(truth), frequent))

    def degenerate(self, predicted: NDArray[Any]) -> bool:
        """One class (or value) for all development rows, or accuracy on the reporting half not above the majority's."""
        if bool((predicted == predicted[0]).all()):
            return True
        return self.classes is not None and self.scores(predicted, "accuracy")[1] <= self.majority("accuracy")


def load_task(
    name: str,
    *,
    metric: str | None = None,
    data_dir: str | Path | None = None,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    encoding: str = "utf-8",
    on_missing: str = "error",
    limit: int | None = None,
) -> Task:
    """Load a task.

    Parameters
    ----------
    name : str
        ``glue/NAME``, ``sample:NAME``, ``trec:DIR``, or ``TRAIN.csv[,DEV.csv]`` (csv, tsv, jsonl, parquet) with
        ``metric``. Tasks without development rows are split 60/20/20 (stratified, fixed).
    metric : str, optional
        Of class numbers: ``accuracy``, ``f1``, ``macro_f1``, ``mcc``; of values: ``pearson``, ``spearman``, which make
        it a regression. By default the task's own.
    limit : int, optional
        Train on a seeded, stratified sample of so many rows.
    data_dir, text_column, pair_column, label_column, encoding, on_missing
        As ``load_texts`` takes them.

    Raises
    ------
    OptionError
        If the name or metric is unknown, or a file's metric is missing.
    DataError
        If labels are missing, of the wrong kind, or the development rows have one that training rows have not.
    """
    if name.startswith(TOKEN_TASKS):
        raise OptionError(f"{name}: its labels belong to tokens; fine-tuning on [CLS] needs a label for each text")
    if metric is not None and metric not in METRICS:
        raise OptionError(unknown_name("metric", metric, METRICS))
    reading = {
        "data_dir": data_dir,
        "text_column": text_column,
        "pair_column": pair_column,
        "label_column": label_column,
        "encoding": encoding,
        "on_missing": on_missing,
    }
    train, dev = _load(name, reading)
    known = NAMED_METRICS.get(train.name)
    metrics = (metric,) if metric else known
    if metrics is None:
        raise OptionError(
            f"{name}: give --metric: accuracy, f1, macro_f1 or mcc for classes; pearson or spearman for values"
        )
    return _make(name, metrics, train, dev, limit)


def _load(name: str, reading: dict[str, Any]) -> tuple[Texts, Texts | None]:
    if name.startswith("glue/") and not Path(name).is_file():
        key, _ = find_task(name.removeprefix("glue/"))
        task = f"glue/{key}"
        dev_split = DEV_SPLITS.get(task, "dev")
        return load_texts(f"{task}@train", **reading), load_texts(f"{task}@{dev_split}", **reading)
    if name.startswith("trec:"):
        return load_texts(f"{name}@train", **reading), None
    # A comma separates two files, unless it belongs to the name of one.
    first, comma, second = name.partition(",")
    if comma and not Path(name).is_file():
        return load_texts(first, **reading), load_texts(second, **reading)
    return load_texts(name, **reading), None


def _make(name: str, metrics: tuple[str, ...], train: Texts, dev: Texts | None, limit: int | None) -> Task:
    regression = metrics[0] in VALUE_METRICS
    classes = None if regression else _classes(train)
    target = _targets(train, classes)
    if dev is None:
        parts = deal(target, WHOLE)
        where = parts != TRAIN
        train, dev = train.take(np.flatnonzero(~where), "60 % to train"), train.take(np.flatnonzero(where), "40 %")
        train_target, dev_target = target[~where], target[where]
        report = parts[where] == REPORT
    else:
        train_target, dev_target = target, _targets(dev, classes)
        report = deal(dev_target, (SELECT, REPORT)) == REPORT
    if limit is not None and limit < len(train):
        sampled = train.sample(limit)
        kept = np.isin(train.row_id, sampled.row_id)
        train, train_target = sampled, train_target[kept]
    if len(train) < 2 or not report.any() or report.all():
        raise DataError(f"{name}: {len(train)} rows to train and {len(dev)} to judge are too few")
    if "f1" in metrics and classes is not None and len(classes) != 2:
        raise OptionError(f"{name}: f1 is of two classes, found {len(classes)}; macro_f1 averages over all")
    return Task(train.name, metrics, classes, train, train_target, dev, dev_target, report)


def _classes(train: Texts) -> tuple[str, ...]:
    """Names of the classes, from the training rows alone."""
    labels = train.require_labels()
    if train.label_names and all(isinstance(label, int) for label in labels):
        return tuple(train.label_names)
    if fractions := [row for row, label in zip(train.row_id, labels, strict=True) if _is_fraction(label)]:
        raise DataError(
            f"{train.identity.label}: {list_rows(fractions)}: label {labels[0]!r} is a number with a fraction, no "
            "class; give --metric pearson or spearman for values"
        )
    return tuple(sorted({str(label) for label in labels}))


def _is_fraction(label: Any) -> bool:
    try:
        return not isinstance(label, bool) and float(label) != math.floor(float(label))
    except (TypeError, ValueError, OverflowError):
        return False


def _targets(texts: Texts, classes: Sequence[str] | None) -> NDArray[Any]:
    labels = texts.require_labels()
    rows = texts.row_id.tolist()
    if classes is None:
        return _values(texts, labels, rows)
    if texts.label_names and all(isinstance(label, int) for label in labels):
        numbers = {number: number for number in range(len(classes))}
        keys: list[Any] = list(labels)
    else:
        numbers = {name: number for number, name in enumerate(classes)}  # type: ignore[misc]
        keys = [str(label) for label in labels]
    if unknown := [row for row, key in zip(rows, keys, strict=True) if key not in numbers]:
        label = labels[rows.index(unknown[0])]
        raise DataError(
            f"{texts.identity.label}: {list_rows(unknown)}: label {label!r} is none of the training rows' "
            f"({', '.join(classes)})"
        )
    return np.array([numbers[key] for key in keys], dtype=np.int64)


def _values(texts: Texts, labels: Sequence[Any], rows: Sequence[int]) -> NDArray[np.float64]:
    values, wrong = [], []
    for row, label in zip(rows, labels, strict=True):
        try:
            values.append(float(label))
        except (TypeError, ValueError):
            values.append(float("nan"))
        if not math.isfinite(values[-1]):
            wrong.append(row)
    if wrong:
        label = labels[list(rows).index(wrong[0])]
        raise DataError(f"{texts.identity.label}: {list_rows(wrong)}: {label!r} is no number, as pearson needs it")
    return np.array(values)
