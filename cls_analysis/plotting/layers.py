"""Figures ``freezing`` and ``truncation``: what a task reaches with fewer layers that move, or fewer layers at all."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cls_analysis.plotting.outcomes import near_majority
from cls_analysis.plotting.style import COLOURS, COLUMN, GREY, TEXT, new_figure, paper_style, title
from cls_analysis.tasks.metrics import METRIC_NAMES

#: Title and x axis of each curve.
CURVES = {
    "freezing": ("Freezing", "blocks frozen (0: the embeddings alone)"),
    "truncation": ("Truncation", "blocks kept"),
}
#: Where training everything stands on the axis of frozen blocks, and what it is called.
NONE, BEFORE = "none", -1.0


def curve_numbers(curves: pd.DataFrame, scores: pd.DataFrame, curve: str) -> pd.DataFrame:
    """Numbers of a figure: each seed's score of a task's first metric, with its point's mean and share kept.

    Parameters
    ----------
    curves, scores : DataFrame
        As ``finetuning.curves.layer_curves`` gives them.
    curve : str
        ``freezing`` or ``truncation``.
    """
    keys = ["task", "metric", "curve", "k", "dropout"]
    points = curves[[*keys, "mean", "std", "n_seeds", "learning_rate", "share_kept"]]
    table = scores[[*keys, "seed", "score_report", "majority"]].merge(points, on=keys)
    primary = table.groupby("task", sort=False)["metric"].transform("first")
    return table[(table["metric"] == primary) & (table["curve"] == curve)].reset_index(drop=True)


def draw_curve(table: pd.DataFrame, curve: str, subtitle: str) -> Figure:
    """A panel for each task: a dot for every seed, a line through the means, which leaves out training without dropout.

    Parameters
    ----------
    table : DataFrame
        As ``curve_numbers`` gives it.
    curve : str
        ``freezing`` or ``truncation``.
    subtitle : str
        What is trained.
    """
    what, axis = CURVES[curve]
    tasks = list(dict.fromkeys(table["task"]))
    with paper_style():
        columns = min(2, len(tasks))
        rows = -(-len(tasks) // columns)
        figure = new_figure(COLUMN if columns == 1 else TEXT, 0.7 + 1.9 * rows)
        axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
        for ax, task in zip(axes, tasks, strict=False):
            panel = table[table["task"] == task]
            _draw_points(ax, panel)
            ax.set_title(task)
            ax.set_xlabel(axis)
            metric = str(panel["metric"].iloc[0])
            ax.set_ylabel(METRIC_NAMES[metric])
        for unused in axes[len(tasks) :]:
            unused.set_axis_off()
        _name_marks(figure, table)
        title(figure, what, subtitle)
        return figure


def _draw_points(ax: Axes, panel: pd.DataFrame) -> None:
    place = {str(k): BEFORE if k == NONE else float(k) for k in panel["k"].unique()}
    shown = panel.assign(x=panel["k"].astype(str).map(place))
    dropped = shown[shown["dropout"]]
    means = dropped.drop_duplicates("x").sort_values("x")
    ax.plot(means["x"], means["mean"], "-", color=COLOURS[0], zorder=2)
    ax.plot(dropped["x"], dropped["score_report"], "o", color=COLOURS[0], markersize=2.8, alpha=0.8, zorder=3)
    undropped = shown[~shown["dropout"]]
    # Beside the dots with dropout, so that neither hides the other.
    ax.plot(undropped["x"] + ASIDE, undropped["score_report"], "D", color=COLOURS[1], markersize=2.8, fillstyle="none")
    if near_majority(panel):
        ax.axhline(panel["majority"].iloc[0], color=GREY, linestyle=":", linewidth=0.8, zorder=0)
    ax.set_xticks(sorted(place.values()), [name for name, _ in sorted(place.items(), key=lambda item: item[1])])


#: How far seeds without dropout stand beside those with it, in blocks.
ASIDE = 0.2


def _name_marks(figure: Figure, table: pd.DataFrame) -> None:
    """The legend: what dots, the line and diamonds stand for, as far as there are any."""
    marks = [Line2D([], [], color=COLOURS[0], marker="o", markersize=2.8, label="seeds and their mean")]
    if (~table["dropout"]).any():
        label = "without dropout"
        marks.append(Line2D([], [], color=COLOURS[1], linestyle="", marker="D", markersize=2.8, fillstyle="none"))
        marks[-1].set_label(label)
    if any(near_majority(panel) for _, panel in table.groupby("task", sort=False)):
        marks.append(Line2D([], [], color=GREY, linestyle=":", linewidth=0.8, label="majority's class"))
    figure.legend(handles=marks, loc="outside lower center", ncols=2 if figure.get_figwidth() == COLUMN else 3)
