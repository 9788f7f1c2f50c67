"""Tasks of texts: a class, or a value, for each text or pair of texts."""

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
from cls_analysis.tasks.splits import REPORT, SELECT, TRAIN, WHOLE, deal, split_places
from cls_analysis.tasks.task import Task
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


@dataclass(frozen=True, eq=False)
class TextTask(Task):
    """Texts to train on and texts to judge by.

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
        return f"TextTask({self.name!r}: {len(self.train)} rows to train, {len(self.dev)} to judge, {kind})"

    @property
    def num_labels(self) -> int:
        """Outputs of a classifier: the classes, or 1 for values."""
        return len(self.classes) if self.classes else 1

    @property
    def n_train(self) -> int:
        """Rows to train on."""
        return len(self.train)

    @property
    def n_dev(self) -> int:
        """Rows to judge by."""
        return len(self.dev)

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

    def score(self, predicted: NDArray[Any], metric: str, half: NDArray[np.bool_]) -> float:
        """One of ``metrics.METRICS``."""
        return score(metric, self.dev_target[half], predicted[half])

    def majority(self, metric: str) -> float:
        """The metric, on the half that reports, of always naming the training rows' most frequent class; else NaN."""
        if not self.classes:
            return float("nan")
        frequent = np.bincount(self.train_target).argmax()
        truth = self.dev_target[self.report]
        return score(metric, truth, np.full(len(truth), frequent))

    def degenerate(self, predicted: NDArray[Any]) -> bool:
        """One class (or value) for all development rows, or accuracy on the reporting half not above the majority's."""
        if super().degenerate(predicted):
            return True
        return self.classes is not None and self.scores(predicted, "accuracy")[1] <= self.majority("accuracy")


def load_text_task(name: str, *, metric: str | None = None, limit: int | None = None, **reading: Any) -> TextTask:
    """``glue/NAME``, ``sample:NAME``, ``trec:DIR``, or ``TRAIN.csv[,DEV.csv]`` with ``metric``; see ``load_task``."""
    if metric is not None and metric not in METRICS:
        raise OptionError(unknown_name("metric", metric, METRICS))
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
    first, second = split_places(name)
    return load_texts(first, **reading), load_texts(second, **reading) if second else None


def _make(name: str, metrics: tuple[str, ...], train: Texts, dev: Texts | None, limit: int | None) -> TextTask:
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
    return TextTask(train.name, metrics, classes, train, train_target, dev, dev_target, report)


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
