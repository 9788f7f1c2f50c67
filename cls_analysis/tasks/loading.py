"""``load_task``: what a task's name means."""

from __future__ import annotations

from pathlib import Path

from cls_analysis.errors import OptionError
from cls_analysis.tasks.answering import load_answering
from cls_analysis.tasks.parsing import load_parsing
from cls_analysis.tasks.task import Task
from cls_analysis.tasks.texts import load_text_task

#: Tasks whose labels belong to words or spans, and what loads them.
TOKEN_TASKS = {"ud:": load_parsing, "squad:": load_answering}


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
        ``metric``; ``ud:TRAIN.conllu[,DEV.conllu]``, dependency parsing; ``squad:TRAIN.json[,DEV.json]``, questions
        answered by spans. Tasks without development rows are split 60/20/20: stratified by label, by document or by
        article, and fixed.
    metric : str, optional
        Of class numbers: ``accuracy``, ``f1``, ``macro_f1``, ``mcc``; of values: ``pearson``, ``spearman``, which make
        it a regression. By default the task's own.
    limit : int, optional
        Train on a seeded sample of so many rows, stratified where there are classes.
    data_dir, text_column, pair_column, label_column, encoding, on_missing
        As ``load_texts`` takes them.

    Raises
    ------
    OptionError
        If the name or metric is unknown, or a file's metric is missing.
    DataError
        If labels are missing, of the wrong kind, or the development rows have one that training rows have not.
    """
    for prefix, load in TOKEN_TASKS.items():
        if name.startswith(prefix):
            if metric is not None:
                raise OptionError(f"{name}: its metrics are fixed; leave out --metric {metric}")
            return load(name.removeprefix(prefix), encoding=encoding, limit=limit)
    return load_text_task(
        name,
        metric=metric,
        limit=limit,
        data_dir=data_dir,
        text_column=text_column,
        pair_column=pair_column,
        label_column=label_column,
        encoding=encoding,
        on_missing=on_missing,
    )
