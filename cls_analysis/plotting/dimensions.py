"""Figures over the dimensions of a vector: their means, standard deviations and kurtoses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cls_analysis.plotting.names import legend_names, panel_name, what_is_shown
from cls_analysis.plotting.style import COLOURS, GREY, label_dimensions, legend_below, panels, paper_style, say, title
from cls_analysis.profiles import Profile
from cls_analysis.statistics import describe
from cls_analysis.statistics.nulls import kurtosis_band

#: Dimensions labelled by number in a panel, the most extreme first.
LABELLED = 5


def dimension_table(profiles: Sequence[Profile], layer: int) -> pd.DataFrame:
    """``describe`` of one layer of each profile, with the columns ``profile``, ``encoder``, ``dataset``, ``source``."""
    tables = []
    for name, profile in zip(legend_names(profiles), profiles, strict=True):
        number = profile.resolve_layer(layer)
        table = describe(profile, layers=[number])
        table.insert(0, "profile", name)
        table.insert(1, "encoder", profile.encoder)
        table.insert(2, "dataset", profile.dataset)
        table.insert(3, "source", profile.provenance.source)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def mean_table(profiles: Sequence[Profile], layer: int) -> pd.DataFrame:
    """Numbers of the figure ``mean``."""
    return dimension_table(profiles, layer)[
        ["profile", "encoder", "dataset", "source", "layer", "n", "dimension", "mean", "std", "mean_share", "outlier"]
    ]


def draw_mean(table: pd.DataFrame, profiles: Sequence[Profile], layer: int) -> Figure:
    """The mean of each dimension, one panel per profile; dominant dimensions carry their number."""
    with paper_style():
        groups = _groups(table)
        figure, axes = panels(len(groups), height=1.55, sharey=True)
        for ax, (name, group) in zip(axes, groups, strict=True):
            ax.vlines(group["dimension"], 0, group["mean"], color=COLOURS[0], linewidth=0.5)
            ax.axhline(0, color=GREY, linewidth=0.5)
            ax.set_xlim(-0.02 * len(group), 1.02 * len(group))
            dominant = _worst(group[group["outlier"].str.contains("mean")], "mean")
            ax.plot(dominant["dimension"], dominant["mean"], "o", color=COLOURS[1], markersize=3)
            label_dimensions(ax, dominant["dimension"], dominant["mean"], dominant["dimension"])
            ax.set_title(panel_name(name, int(group["n"].iloc[0])))
            ax.set_xlabel("dimension")
        _label_left(axes, "mean")
        title(figure, "Mean of each dimension", what_is_shown(profiles, layer))
        return figure


def std_table(profiles: Sequence[Profile], layer: int) -> pd.DataFrame:
    """Numbers of the figure ``std``; dead dimensions have an empty kurtosis and are not drawn."""
    return dimension_table(profiles, layer)[
        ["profile", "encoder", "dataset", "source", "layer", "n", "dimension", "std", "variance_share", "outlier"]
    ]


def draw_std(table: pd.DataFrame, profiles: Sequence[Profile], layer: int) -> Figure:
    """Distribution of the standard deviations over the dimensions, against the spread that isotropy would give."""
    with paper_style():
        groups = _groups(table)
        figure, axes = panels(len(groups), height=1.55, sharex=True)
        for ax, (name, group), profile in zip(axes, groups, profiles, strict=True):
            living = group[profile[layer].living]
            if len(living) == 0:
                say(ax, "no dimension varies")
            else:
                n = int(group["n"].iloc[0])
                std = living["std"].to_numpy()
                bins = 40 if np.ptp(std) > 1e-9 * std.max() else 1
                sns.histplot(x=std, ax=ax, bins=bins, color=COLOURS[0], edgecolor="none")
                # Of n Gaussian rows with equal σ, standard deviations scatter by σ/√(2n).
                sigma = float(np.sqrt((living["std"] ** 2).mean()))
                half = 2.0 * sigma / np.sqrt(2.0 * n)
                ax.axvspan(sigma - half, sigma + half, color=GREY, alpha=0.35, linewidth=0, label="if all were equal")
                median = float(living["std"].median())
                ax.axvline(median, color=COLOURS[1], linestyle="--", linewidth=0.9, label="median")
                widest = _worst(living, "std").head(1)
                ax.annotate(
                    f"dimension {int(widest['dimension'].iloc[0])}",
                    (float(widest["std"].iloc[0]), 0),
                    xytext=(0.99, 0.92),
                    textcoords="axes fraction",
                    ha="right",
                    fontsize=7,
                    arrowprops={"arrowstyle": "-", "linewidth": 0.5},
                )
            ax.set_title(panel_name(name, int(group["n"].iloc[0])))
            ax.set_xlabel("standard deviation")
            ax.set_ylabel("")
        _label_left(axes, "dimensions")
        legend_below(figure, axes[0])
        title(figure, "Standard deviation of each dimension", what_is_shown(profiles, layer))
        return figure


def kurtosis_table(profiles: Sequence[Profile], layer: int) -> pd.DataFrame:
    """Numbers of the figure ``kurtosis``; dead dimensions are empty."""
    return dimension_table(profiles, layer)[
        ["profile", "encoder", "dataset", "source", "layer", "n", "dimension", "skewness", "kurtosis_excess"]
    ]


def draw_kurtosis(table: pd.DataFrame, profiles: Sequence[Profile], layer: int) -> Figure:
    """Excess kurtosis (g2) of each dimension; the band holds 95 % of Gaussian dimensions of the same n."""
    with paper_style():
        groups = _groups(table)
        figure, axes = panels(len(groups), height=1.55, sharey=True)
        for ax, (name, group) in zip(axes, groups, strict=True):
            n = int(group["n"].iloc[0])
            defined = group.dropna(subset=["kurtosis_excess"])
            low, high = kurtosis_band(n)
            if np.isfinite(low):
                ax.axhspan(low, high, color=GREY, alpha=0.35, linewidth=0, label="95 % of Gaussian dimensions")
            ax.plot(defined["dimension"], defined["kurtosis_excess"], ".", color=COLOURS[0], markersize=2)
            ax.set_xlim(-0.02 * len(group), 1.02 * len(group))
            worst = _worst(defined, "kurtosis_excess").head(3)
            label_dimensions(ax, worst["dimension"], worst["kurtosis_excess"], worst["dimension"])
            if len(defined) == 0:
                say(ax, "no dimension varies")
            ax.set_title(panel_name(name, n))
            ax.set_xlabel("dimension")
        _label_left(axes, "excess kurtosis")
        legend_below(figure, axes[0])
        title(figure, "Excess kurtosis of each dimension", what_is_shown(profiles, layer))
        return figure


def _groups(table: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    return [(str(name), group) for name, group in table.groupby("profile", sort=False)]


def _worst(group: pd.DataFrame, column: str) -> pd.DataFrame:
    order = group[column].abs().sort_values(ascending=False, kind="stable").index
    return group.loc[order].head(LABELLED)


def _label_left(axes: Sequence[Axes], label: str) -> None:
    for ax in axes[:: 1 if len(axes) == 1 else 2]:
        ax.set_ylabel(label)
