"""Figures of fine-tuning: how arms train, and what they reach, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator

from cls_analysis.plotting.style import (
    COLUMN,
    GREY,
    TEXT,
    legend_label,
    line_look,
    log_scale,
    look,
    new_figure,
    paper_style,
    title,
)
from cls_analysis.tasks.metrics import METRIC_NAMES

#: Measures of the figure ``training``: column of a run's steps, title, and whether its axis is logarithmic.
MEASURES = (
    ("loss", "training loss", False),
    ("gradient_norm", "gradient norm", True),
    ("h_gradient", "∥∂L/∂h∥", True),
    ("h_gradient_scaled", "∥∂L/∂h∥·RMS∥h∥", True),
)
#: Curves of more steps than this are smoothed, by a running median over a fiftieth of them.
SMOOTHED = 100


def training_table(steps: pd.DataFrame) -> pd.DataFrame:
    """Numbers of the figure ``training``: median and 10 to 90 % over seeds, of each measure at each step.

    Parameters
    ----------
    steps : DataFrame
        Columns ``task``, ``norm``, ``seed``, ``step`` and the measures; one row per run and step, in order of steps.
    """
    columns = [name for name, _, _ in MEASURES if name in steps]
    long = steps.melt(["task", "norm", "seed", "step"], columns, "measure", "value")
    long["value"] = long.groupby(["task", "norm", "seed", "measure"], sort=False)["value"].transform(_smooth)
    grouped = long.groupby(["task", "norm", "measure", "step"], sort=False)["value"]
    shares = {"low": 0.1, "median": 0.5, "high": 0.9}
    return pd.DataFrame({name: grouped.quantile(share) for name, share in shares.items()}).reset_index()


def _smooth(values: pd.Series[float]) -> pd.Series[float]:
    if len(values) <= SMOOTHED:
        return values
    window = len(values) // 50
    return values.rolling(window, center=True, min_periods=1).median()


def draw_training(table: pd.DataFrame, subtitle: str) -> Figure:
    """Loss and gradients over the steps: a line for each arm, its band from 10 to 90 % of the seeds."""
    tasks, norms = (list(dict.fromkeys(table[name])) for name in ("task", "norm"))
    measures = [each for each in MEASURES if each[0] in set(table["measure"])]
    with paper_style():
        figure = new_figure(TEXT, 0.9 + 1.25 * len(tasks))
        axes = figure.subplots(len(tasks), len(measures), squeeze=False, sharex="row")
        for row, task in zip(axes, tasks, strict=True):
            for ax, (name, heading, logarithmic) in zip(row, measures, strict=True):
                panel = table[(table["task"] == task) & (table["measure"] == name)]
                _draw_curves(ax, panel, norms, logarithmic)
                if task == tasks[0]:
                    ax.set_title(heading)
                if task == tasks[-1]:
                    ax.set_xlabel("step")
            row[0].set_ylabel(task)
        handles, labels = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(5, len(norms)), handlelength=2.5)
        title(figure, "Training", subtitle)
        return figure


def _draw_curves(ax: Axes, panel: pd.DataFrame, norms: Sequence[str], logarithmic: bool) -> None:
    for i, norm in enumerate(norms):
        curve = panel[panel["norm"] == norm].sort_values("step")
        style = line_look(i)
        ax.plot(curve["step"], curve["median"], label=legend_label(norm), **style)
        ax.fill_between(curve["step"], curve["low"], curve["high"], color=style["color"], alpha=0.15, linewidth=0)
    ax.xaxis.set_major_locator(MaxNLocator(3, integer=True))
    if logarithmic and (panel["low"] > 0).any():
        log_scale(ax, "y")
        bottom, top = ax.get_ylim()
        if top < 50 * bottom:  # a decade or two would leave one number on the axis
            ax.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    elif not logarithmic:
        ax.set_ylim(bottom=0)


def outcomes_table(scores: pd.DataFrame, outcomes: pd.DataFrame) -> pd.DataFrame:
    """Numbers of the figure ``outcomes``: every seed's score, with its arm's mean, difference and interval.

    Parameters
    ----------
    scores, outcomes : DataFrame
        Of one condition but for the task; the primary metric of each task alone is shown.
    """
    keys = ["task", "norm", "metric"]
    arms = outcomes[[*keys, "mean", "baseline", "difference", "ci_low", "ci_high", "n_degenerate", "verdict"]]
    table = scores[[*keys, "seed", "score_report", "majority", "degenerate"]].merge(arms, on=keys)
    primary = table.groupby("task", sort=False)["metric"].transform("first")
    return table[table["metric"] == primary].reset_index(drop=True)


def draw_outcomes(table: pd.DataFrame, subtitle: str) -> Figure:
    """Every seed a dot, joined over the arms; the bar of an arm is the interval of its difference to the baseline.

    It is drawn around the baseline's mean (the grey line), so that a bar that leaves the line out stands for an
    interval that leaves 0 out. Crosses are degenerate runs; the dotted line is the majority's class, a number below
    the panel where it lies too far from the dots.
    """
    tasks = list(dict.fromkeys(table["task"]))
    arms = int(table.groupby("task")["norm"].nunique().max())
    with paper_style():
        columns = 1 if len(tasks) == 1 and arms <= 4 else 2 if arms <= 5 and len(tasks) > 1 else 1
        rows = -(-len(tasks) // columns)
        figure = new_figure(COLUMN if columns == len(tasks) == 1 and arms <= 4 else TEXT, 0.7 + 1.9 * rows)
        axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
        for ax, task in zip(axes, tasks, strict=False):
            _draw_arms(ax, table[table["task"] == task])
            ax.set_title(task)
            _name_arms(ax, figure.get_figwidth() / columns - 0.55)
        for unused in axes[len(tasks) :]:
            unused.set_axis_off()
        _name_marks(figure, table)
        title(figure, "Outcomes", subtitle)
        return figure


def _name_arms(ax: Axes, width: float) -> None:
    """Turn the arms' names where two neighbours would touch in an axis of ``width`` inches."""
    labels = ax.get_xticklabels()
    lengths = np.array([len(label.get_text()) for label in labels])
    # A character takes 0.058 inches at this size.
    if len(labels) > 1 and 0.058 * (lengths[1:] + lengths[:-1]).max() / 2 + 0.06 > width / len(labels):
        for label in labels:
            label.set(rotation=30, horizontalalignment="right", rotation_mode="anchor")


def _name_marks(figure: Figure, table: pd.DataFrame) -> None:
    """The legend: what lines, bars and crosses stand for, as far as there are any."""
    marks = []
    if table["difference"].notna().any():
        base = table["baseline"].dropna().iloc[0]
        marks.append(Line2D([], [], color=GREY, linewidth=0.6, label=f"mean of '{base}'"))
        marks.append(Line2D([], [], color=GREY, linewidth=1.6, marker="_", label="difference (95 %)"))
    if any(near_majority(panel) for _, panel in table.groupby("task", sort=False)):
        marks.append(Line2D([], [], color=GREY, linestyle=":", linewidth=0.8, label="majority's class"))
    if table["degenerate"].any():
        marks.append(Line2D([], [], color=GREY, linestyle="", marker="x", markersize=4.0, label="degenerate run"))
    if marks:
        figure.legend(handles=marks, loc="outside lower center", ncols=4 if figure.get_figwidth() > COLUMN else 2)


def _draw_arms(ax: Axes, panel: pd.DataFrame) -> None:
    norms = list(dict.fromkeys(panel["norm"]))
    wide = panel.pivot_table(index="seed", columns="norm", values="score_report", sort=False, dropna=False)[norms]
    shift = np.linspace(-0.16, 0.0, len(wide)) if len(wide) > 1 else np.zeros(1)
    for offset, (_, seed) in zip(shift, wide.iterrows(), strict=True):
        ax.plot(np.arange(len(norms)) + offset, seed.to_numpy(), color=GREY, linewidth=0.35, alpha=0.5, zorder=1)
    for i, norm in enumerate(norms):
        arm = panel[panel["norm"] == norm].set_index("seed").loc[wide.index]
        style = look(i)
        broken = arm["degenerate"].to_numpy(dtype=bool)
        y = arm["score_report"].to_numpy()
        ax.plot((i + shift)[~broken], y[~broken], style["marker"], color=style["color"], markersize=2.8, alpha=0.8)
        ax.plot((i + shift)[broken], y[broken], "x", color=style["color"], markersize=4.0)
        _draw_interval(ax, i + 0.18, arm.iloc[0], panel, style["color"])
    majority = panel["majority"].iloc[0]
    if near_majority(panel):
        ax.axhline(majority, color=GREY, linestyle=":", linewidth=0.8, zorder=0)
    elif np.isfinite(majority):
        ax.set_xlabel(f"majority's class: {majority:.3f}", color=GREY)
    ax.set_xticks(range(len(norms)), [legend_label(norm) for norm in norms])
    metric = str(panel["metric"].iloc[0])
    ax.set_ylabel(METRIC_NAMES[metric])
    ax.set_xlim(-0.5, len(norms) - 0.4)


def near_majority(panel: pd.DataFrame) -> bool:
    """Whether the majority's score can be drawn as a line without pressing the dots together."""
    scores, majority = panel["score_report"], panel["majority"].iloc[0]
    half = (scores.max() - scores.min()) / 2
    return bool(scores.min() - half <= majority <= scores.max() + half)


def _draw_interval(ax: Axes, x: float, arm: pd.Series[float], panel: pd.DataFrame, colour: str) -> None:
    base = panel.loc[panel["norm"] == arm["baseline"], "mean"]
    if np.isfinite(arm["difference"]) and len(base):
        level = float(base.iloc[0])
        low, high = level + arm["ci_low"], level + arm["ci_high"]
        ax.plot([x, x], [low, high], color=colour, linewidth=1.6, solid_capstyle="butt", zorder=3)
        ax.plot(x, level + arm["difference"], "_", color=colour, markersize=7, markeredgewidth=1.6, zorder=3)
        ax.axhline(level, color=GREY, linewidth=0.6, zorder=0)
    else:
        ax.plot(x, arm["mean"], "_", color=colour, markersize=7, markeredgewidth=1.6, zorder=3)
