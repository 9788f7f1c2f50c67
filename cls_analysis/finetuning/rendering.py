"""Outcomes as text: Markdown to read, LaTeX to paste."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cls_analysis.finetuning.outcomes import CONDITION, LEVEL, Outcomes
from cls_analysis.tasks.metrics import METRIC_NAMES

HEADINGS = (
    *("norm", "rate", "mean ± std", "worst to best", "degenerate", "difference"),
    *("95 %, seeds", "95 %, seeds and rows", "p", "verdict"),
)
SPREAD_HEADINGS = ("norm", "std", "difference of the distance", "p", "Brown-Forsythe p (assumes unpaired)")
SPREAD = "Spread over seeds: mean distance from the arm's median, against the baseline's (sign-flip p, not corrected)"
HOW_TO_READ = (
    "Scores are those of the reporting half of the development rows, at each arm's own learning rate, which the other "
    "half chose; * marks a rate at the edge of those tried. Differences are to the baseline at the same seeds. "
    "*Better* or *worse* is said only where the interval over seeds and the one over seeds and rows together exclude 0 "
    f"and p, after Holm over all comparisons, is below {LEVEL}. Degenerate runs name one class, or are no better than "
    "the majority's; they count like all others."
)


def outcomes_markdown(result: Outcomes) -> str:
    """All outcomes, one table per condition and metric."""
    parts = ["# Outcomes", HOW_TO_READ]
    for key, condition in result.outcomes.groupby(list(CONDITION), sort=False):
        named = dict(zip(CONDITION, key, strict=True))
        parts.append(f"## {named['task']}: {condition_title(named)}")
        for metric in dict.fromkeys(condition["metric"]):
            parts += _of_metric(metric, condition[condition["metric"] == metric].to_dict("records"))
    if result.notes:
        parts.append("\n".join(f"- {note}" for note in result.notes))
    return "\n\n".join(parts) + "\n"


def _of_metric(metric: str, rows: Sequence[Mapping[Any, Any]]) -> list[str]:
    """Scores of the arms of a condition, how they spread over seeds, and the gap between the modes of a norm."""
    majority = rows[0]["majority"]
    known = "" if np.isnan(majority) else f"; always naming the majority's class gives {majority:.3f}"
    parts = [f"{METRIC_NAMES[metric]}, {rows[0]['n_seeds']} seeds{known}", _table(HEADINGS, map(_cells, rows))]
    if any(np.isfinite(row["spread_difference"]) for row in rows):
        parts.append(SPREAD)
        parts.append(_table(SPREAD_HEADINGS, map(_spread_cells, rows)))
    gaps = [f"{row['norm']} {_number(row['mode_gap'], sign=True)}" for row in rows if np.isfinite(row["mode_gap"])]
    if gaps:
        parts.append(f"With each batch's own statistics instead of the running ones: {', '.join(gaps)}.")
    return parts


def outcomes_latex(result: Outcomes) -> str:
    """One tabular of all outcomes (booktabs); model, trained part and clip are columns where they differ."""
    differing = [name for name in ("model", "train", "clip") if len(set(result.outcomes[name])) > 1]
    frame = pd.DataFrame(
        [
            {
                "task": row["task"],
                "head": f"{row['head']}, {row['position']}",
                "optimizer": row["optimizer"],
                **{name: row[name] for name in differing},
                "metric": METRIC_NAMES[row["metric"]],
                **dict(zip(HEADINGS, _cells(row), strict=True)),
            }
            for row in result.outcomes.to_dict("records")
        ]
    )
    return str(frame.to_latex(index=False, escape=True))


def condition_title(condition: Mapping[Any, Any]) -> str:
    """A condition in words, but for its task."""
    trained = {"all": "all trained", "head": "head trained alone"}.get(
        condition["train"], f"{condition['train']} trained"
    )
    clip = "no clipping" if condition["clip"] == "off" else f"clip {condition['clip']}"
    return (
        f"{condition['model']}, {condition['head']} head, {trained}, norm at "
        f"{condition['position']}, {condition['optimizer']}, {clip}"
    )


def _cells(row: Mapping[Any, Any]) -> list[str]:
    edge = "*" if row["rate_at_edge"] else ""
    undefined = row["n_seeds"] - row["n_valid"]
    degenerate = f"{row['n_degenerate']} of {row['n_seeds']}" + (f", {undefined} undefined" if undefined else "")
    return [
        str(row["norm"]),
        f"{row['learning_rate']:g}{edge}",
        f"{_number(row['mean'])} ± {_number(row['std'])}",
        f"{_number(row['worst'])} to {_number(row['best'])}",
        degenerate,
        _number(row["difference"], sign=True),
        _interval(row["ci_low"], row["ci_high"]),
        _interval(row["joint_low"], row["joint_high"]),
        _p(row["p_holm"]),
        str(row["verdict"]),
    ]


def _spread_cells(row: Mapping[Any, Any]) -> list[str]:
    return [
        str(row["norm"]),
        _number(row["std"]),
        _number(row["spread_difference"], sign=True),
        _p(row["p_stability"]),
        _p(row["p_brown_forsythe"]),
    ]


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns are aligned, so that it can be read as it is."""
    lines = [list(headings), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(headings))]
    rule = ["-" * width for width in widths]
    return "\n".join(
        "| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) + " |"
        for line in [lines[0], rule, *lines[1:]]
    )


def _number(value: float, *, sign: bool = False) -> str:
    if np.isnan(value):
        return "–"
    return f"{value:+.3f}" if sign else f"{value:.3f}"


def _interval(low: float, high: float) -> str:
    return "–" if np.isnan(low) else f"{_number(low, sign=True)} to {_number(high, sign=True)}"


def _p(value: float) -> str:
    if np.isnan(value):
        return "–"
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
