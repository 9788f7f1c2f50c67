"""The figure ``similarity``: how alike a base encoder and tuned ones are, layer by layer."""

from __future__ import annotations

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cls_analysis.plotting.style import GREY, TEXT, legend_below, legend_label, look, new_figure, paper_style, title

#: Measures of the rows of panels: title, and whether unrelated vectors give 0.
PANELS = {
    "rsa_pearson": ("RSA", True),
    "rsa_pearson_without_top5": ("RSA, top 5 out", True),
    "cka": ("CKA, debiased", True),
    "procrustes": ("Procrustes distance", False),
}
#: What stimuli are called above a column.
STIMULI = {"cls": "[CLS]", "tokens": "words"}


def draw_similarity(table: pd.DataFrame, subtitle: str) -> Figure:
    """A line for each tuned encoder and data set, with its interval; a column of panels for [CLS] and for words.

    Parameters
    ----------
    table : DataFrame
        As ``comparison.layers.similarity_table`` gives it.
    subtitle : str
        What is compared.
    """
    stimuli = [name for name in STIMULI if name in set(table["stimuli"])]
    measures = [name for name in PANELS if name in set(table["measure"])]
    lines = list(dict.fromkeys(zip(table["tuned"], table["dataset"], strict=True)))
    several = len(set(table["dataset"])) > 1
    with paper_style():
        figure = new_figure(TEXT, 0.9 + 1.35 * len(measures))
        axes = figure.subplots(len(measures), len(stimuli), squeeze=False, sharex="col", sharey="row")
        for row, measure in zip(axes, measures, strict=True):
            for ax, which in zip(row, stimuli, strict=True):
                panel = table[(table["measure"] == measure) & (table["stimuli"] == which)]
                for place, (tuned, dataset) in enumerate(lines):
                    line = panel[(panel["tuned"] == tuned) & (panel["dataset"] == dataset)].sort_values("layer")
                    _draw_line(ax, line, place, f"{tuned}, {dataset}" if several else tuned)
                if PANELS[measure][1]:
                    ax.axhline(0.0, color=GREY, linestyle=":", linewidth=0.8)
                ax.xaxis.set_major_locator(MaxNLocator(integer=True))
                if measure == measures[0]:
                    ax.set_title(STIMULI[which])
                if measure == measures[-1]:
                    ax.set_xlabel("layer")
            row[0].set_ylabel(PANELS[measure][0])
        legend_below(figure, axes[0, 0])
        title(figure, "Similarity", subtitle)
        return figure


def _draw_line(ax: Axes, line: pd.DataFrame, place: int, label: str) -> None:
    style = look(place)
    ax.plot(line["layer"], line["value"], label=legend_label(label), **style)
    if line["ci_low"].notna().any():
        ax.fill_between(line["layer"], line["ci_low"], line["ci_high"], color=style["color"], alpha=0.15, linewidth=0)
