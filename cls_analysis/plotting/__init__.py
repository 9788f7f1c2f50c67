"""Figures: for each a table of the numbers it shows, and a matplotlib ``Figure`` drawn from that table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from cls_analysis.plotting import curves, dimensions, heatmaps
from cls_analysis.profiles import Profile


@dataclass(frozen=True)
class FigureKind:
    """One kind: ``table(profiles, layer)`` gives its numbers, ``draw(table, profiles, layer)`` the picture."""

    name: str
    shows: str
    table: Callable[[Sequence[Profile], int], pd.DataFrame]
    draw: Callable[[pd.DataFrame, Sequence[Profile], int], Figure]


FIGURES: dict[str, FigureKind] = {
    kind.name: kind
    for kind in (
        FigureKind("mean", "mean of each dimension", dimensions.mean_table, dimensions.draw_mean),
        FigureKind("values", "the vectors themselves", heatmaps.values_table, heatmaps.draw_values),
        FigureKind("std", "standard deviations", dimensions.std_table, dimensions.draw_std),
        FigureKind("kurtosis", "excess kurtoses", dimensions.kurtosis_table, dimensions.draw_kurtosis),
        FigureKind("concentration", "energy by dimension", curves.concentration_table, curves.draw_concentration),
        FigureKind("correlation", "correlations", heatmaps.correlation_table, heatmaps.draw_correlation),
        FigureKind("spectrum", "principal components", curves.spectrum_table, curves.draw_spectrum),
        FigureKind("layers", "bias by layer", curves.layers_table, curves.draw_layers),
    )
}

__all__ = ["FIGURES", "FigureKind"]
