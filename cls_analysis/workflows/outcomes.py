"""What a finished grid shows: tables and figures in its folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cls_analysis.files import write_text
from cls_analysis.finetuning.outcomes import DevRows, evaluate
from cls_analysis.finetuning.records import read_predictions, read_steps
from cls_analysis.finetuning.rendering import condition_title, outcomes_latex, outcomes_markdown
from cls_analysis.finetuning.settings import clip_name
from cls_analysis.plotting.outcomes import draw_outcomes, draw_training, outcomes_table, training_table
from cls_analysis.plotting.style import save_figure
from cls_analysis.provenance import slug
from cls_analysis.workflows.finetuning import RATES, RUNS, Study


@dataclass(frozen=True)
class Written:
    """The outcomes as text for the terminal, and the files that were written."""

    text: str
    files: tuple[Path, ...]


def write_outcomes(study: Study) -> Written:
    """Tables and figures of a finished grid.

    ``outcomes.csv``, ``.md`` and ``.tex``; ``rates.csv``, the whole sweep; ``expected_best.csv``; the figures
    ``training`` and ``outcomes``, one of each for every condition but the task, with their numbers.
    """
    out, runs = study.out, study.table()
    dev = {task.name: DevRows(task.dev_target, task.report) for task in study.grid.tasks}
    result = evaluate(runs, lambda run: read_predictions(out, run), dev)
    text = outcomes_markdown(result)
    files = [
        out / RUNS,
        write_text(out / "outcomes.csv", result.outcomes.to_csv(index=False)),
        write_text(out / "outcomes.md", text),
        write_text(out / "outcomes.tex", outcomes_latex(result)),
        write_text(out / RATES, result.rates.to_csv(index=False)),
        write_text(out / "expected_best.csv", result.expected_best.to_csv(index=False)),
    ]
    origin = json.dumps(study.description(), sort_keys=True)
    conditions = result.outcomes.drop_duplicates(list(SAME_FIGURE))[list(SAME_FIGURE)].to_dict("records")
    for condition in conditions:
        name = _figure_name(condition, conditions)
        subtitle = condition_title(condition)
        scores, outcomes = (_rows_of(table, condition) for table in (result.scores, result.outcomes))
        dots = outcomes_table(scores, outcomes)
        curves = training_table(_steps_of(study, scores))
        for kind, table, figure in (
            ("outcomes", dots, draw_outcomes(dots, subtitle)),
            ("training", curves, draw_training(curves, subtitle)),
        ):
            path = out / "figures" / f"{kind}{name}"
            files += save_figure(figure, path, ("pdf", "png"), origin)
            files.append(write_text(path.with_suffix(".csv"), table.to_csv(index=False, float_format="%.6g")))
    return Written(text, tuple(files))


#: Runs that agree in these share a figure, one panel a task.
SAME_FIGURE = ("model", "head", "train", "position", "optimizer", "clip")


def _rows_of(table: pd.DataFrame, condition: dict[Any, Any]) -> pd.DataFrame:
    same = pd.Series(True, index=table.index)
    for name, value in condition.items():
        same &= table[name] == value
    return table[same]


def _figure_name(condition: dict[Any, Any], conditions: Sequence[dict[Any, Any]]) -> str:
    """What tells this condition's figures from the others', as the end of a file's name."""
    differing = [name for name in SAME_FIGURE if len({each[name] for each in conditions}) > 1]
    parts = [f"clip-{condition[name]}" if name == "clip" else str(condition[name]) for name in differing]
    return "".join(f"-{slug(part)}" for part in parts)


def _steps_of(study: Study, scores: pd.DataFrame) -> pd.DataFrame:
    """Steps of the runs whose scores are reported."""
    wanted = set(scores[["task", "norm", "learning_rate", "seed"]].itertuples(index=False, name=None))
    condition = scores.iloc[0]
    tables = [
        read_steps(study.out, run).assign(task=run.task["name"], norm=run.norm, seed=run.seed)
        for run in study.runs
        if (run.task["name"], run.norm, run.learning_rate, run.seed) in wanted
        and (run.position, run.optimizer, clip_name(run.clip))
        == (condition["position"], condition["optimizer"], condition["clip"])
    ]
    return pd.concat(tables, ignore_index=True)
