"""GLUE: its tasks, the columns of its official TSV files, and its labels as the hub numbers them.

Wang et al. 2019. The official files are plain tab-separated text without quoting; MRPC's begin with a byte-order mark,
CoLA's train and dev have no header, and the test files of most tasks have no labels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cls_analysis.errors import DataError, OptionError, list_rows, unknown_name
from cls_analysis.texts.formats import parse_delimited, read_text
from cls_analysis.texts.table import Texts, make_texts

#: Where the hub keeps GLUE.
HUB_NAME = "nyu-mll/glue"
#: Other names of the splits, as the hub and the official files have them.
SPLIT_ALIASES = {
    "validation": "dev",
    "validation_matched": "dev_matched",
    "validation_mismatched": "dev_mismatched",
}
_STANDARD_SPLITS = {"train": ("train.tsv",), "dev": ("dev.tsv",), "test": ("test.tsv",)}


@dataclass(frozen=True)
class GlueTask:
    """One task: the folder of its official files, its columns there and on the hub, its labels in the hub's order."""

    folder: str
    columns: tuple[str, ...]
    hub_columns: tuple[str, ...]
    label: str
    labels: tuple[str, ...] | None
    splits: Mapping[str, tuple[str, ...]]
    headerless: Mapping[str, tuple[str, ...]] | None = None


_ENTAILMENT = ("entailment", "not_entailment")
_MNLI = ("entailment", "neutral", "contradiction")
_COLA_COLUMNS = ("source", "label", "mark", "sentence")

TASKS: dict[str, GlueTask] = {
    "cola": GlueTask(
        "CoLA",
        ("sentence",),
        ("sentence",),
        "label",
        ("unacceptable", "acceptable"),
        _STANDARD_SPLITS,
        headerless={"train.tsv": _COLA_COLUMNS, "dev.tsv": _COLA_COLUMNS},
    ),
    "sst2": GlueTask("SST-2", ("sentence",), ("sentence",), "label", ("negative", "positive"), _STANDARD_SPLITS),
    "mrpc": GlueTask(
        "MRPC",
        ("#1 String", "#2 String"),
        ("sentence1", "sentence2"),
        "Quality",
        ("not_equivalent", "equivalent"),
        _STANDARD_SPLITS | {"test": ("test.tsv", "msr_paraphrase_test.txt")},
    ),
    "qqp": GlueTask(
        "QQP",
        ("question1", "question2"),
        ("question1", "question2"),
        "is_duplicate",
        ("not_duplicate", "duplicate"),
        _STANDARD_SPLITS,
    ),
    "stsb": GlueTask(
        "STS-B",
        ("sentence1", "sentence2"),
        ("sentence1", "sentence2"),
        "score",
        None,
        _STANDARD_SPLITS,
    ),
    "mnli": GlueTask(
        "MNLI",
        ("sentence1", "sentence2"),
        ("premise", "hypothesis"),
        "gold_label",
        _MNLI,
        {
            "train": ("train.tsv",),
            "dev_matched": ("dev_matched.tsv",),
            "dev_mismatched": ("dev_mismatched.tsv",),
            "test_matched": ("test_matched.tsv",),
            "test_mismatched": ("test_mismatched.tsv",),
        },
    ),
    "qnli": GlueTask(
        "QNLI", ("question", "sentence"), ("question", "sentence"), "label", _ENTAILMENT, _STANDARD_SPLITS
    ),
    "rte": GlueTask(
        "RTE", ("sentence1", "sentence2"), ("sentence1", "sentence2"), "label", _ENTAILMENT, _STANDARD_SPLITS
    ),
    "wnli": GlueTask(
        "WNLI",
        ("sentence1", "sentence2"),
        ("sentence1", "sentence2"),
        "label",
        ("not_entailment", "entailment"),
        _STANDARD_SPLITS,
    ),
}


def find_task(name: str) -> tuple[str, GlueTask]:
    """The task called ``name``; ``SST-2``, ``sst2`` and ``sst-2`` are one.

    Raises
    ------
    OptionError
        If GLUE has no such task.
    """
    key = name.lower().replace("-", "").replace("_", "")
    if key not in TASKS:
        raise OptionError(unknown_name("GLUE task", name, sorted(TASKS)))
    return key, TASKS[key]


def choose_split(where: str, split: str | None, available: Sequence[str]) -> str:
    """The split to read; none given is an error unless there is only one, and the error lists them."""
    names = list(available)
    if split is None:
        if len(names) == 1:
            return names[0]
        raise OptionError(f"{where} has several splits, choose one as in {where}@{names[0]}: {', '.join(names)}")
    other_names = {ours: theirs for theirs, ours in SPLIT_ALIASES.items()}
    for candidate in (split, SPLIT_ALIASES.get(split, split), other_names.get(split, split)):
        if candidate in names:
            return candidate
    raise OptionError(f"{where}: {unknown_name('split', split, names)}")


def read_official(task_name: str, split: str | None, data_dir: Path, on_missing: str) -> Texts:
    """Read one split of a task from GLUE's official TSV files under ``data_dir``."""
    key, task = find_task(task_name)
    folder = data_dir / task.folder
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; --data-dir names the folder that holds GLUE's {task.folder}/")
    files = dict(_present(folder, task))
    if not files:
        raise DataError(f"{folder}: none of GLUE's files for {key} is here (train.tsv, dev.tsv, …)")
    chosen = choose_split(f"glue/{key}", split, list(files))
    path = files[chosen]
    table = parse_delimited(
        read_text(path, "utf-8"),
        str(path),
        delimiter="\t",
        quoting=False,
        header=(task.headerless or {}).get(path.name),
    )
    columns = task.columns if all(column in table for column in task.columns) else task.hub_columns
    absent = [column for column in columns if column not in table]
    if absent:
        raise DataError(f"{path}: no column {absent[0]!r}; is this GLUE's official file?")
    label = _labels(path, table[task.label], task.labels) if task.label in table else None
    return make_texts(
        f"glue/{key}",
        table[columns[0]],
        table[columns[1]] if len(columns) > 1 else None,
        label,
        where=str(path),
        split=chosen,
        label_names=task.labels,
        on_missing=on_missing,
    )


def _present(folder: Path, task: GlueTask) -> list[tuple[str, Path]]:
    found = []
    for split, names in task.splits.items():
        for name in names:
            if (folder / name).is_file():
                found.append((split, folder / name))
                break
    return found


def _labels(path: Path, values: Sequence[Any], names: tuple[str, ...] | None) -> list[Any]:
    """The file's labels as the hub numbers them: class numbers, or scores as float."""
    numbers = {name: number for number, name in enumerate(names or ())}
    result: list[Any] = []
    bad: list[int] = []
    for row, value in enumerate(values):
        try:
            result.append(numbers[value] if value in numbers else int(value) if names else float(value))
        except (TypeError, ValueError):
            bad.append(row)
            continue
        if names and not -1 <= result[-1] < len(names):
            bad.append(row)
    if bad:
        raise DataError(f"{path}: {list_rows(bad)}: label {values[bad[0]]!r} is none of {names or 'the scores'}")
    return result
