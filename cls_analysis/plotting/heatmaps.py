"""Heat maps: the vectors themselves, and the correlations of their dimensions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import scipy.cluster.hierarchy
import scipy.spatial.distance
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from cls_analysis.moments import Array
from cls_analysis.plotting.names import legend_names, panel_name, what_is_shown
from cls_analysis.plotting.style import HEATMAP_CELLS, TEXT, new_figure, panels, paper_style, pool_columns, say, title
from cls_analysis.profiles import Profile
from cls_analysis.statistics.outliers import mean_dominant, variance_dominant
from cls_analysis.statistics.spectrum import correlation

#: Rows of a panel of ``values``.
VALUE_ROWS = 24
#: Cells along the side of a panel of ``correlation`` when it stands alone, and among others.
CORRELATION_CELLS, CORRELATION_CELLS_SMALL = 384, 128


def values_table(profiles: Sequence[Profile], layer: int) -> pd.DataFrame:
    """Numbers of the figure ``values``: of up to 24 sampled rows, every dimension, or the extreme of each group."""
    tables = []
    for name, profile in zip(legend_names(profiles), profiles, strict=True):
        held = profile[layer]
        # Spread over the sample, which is sorted by row: the first ones may be of one class, or of one data set.
        shown = np.unique(np.linspace(0, len(held.sample_ids) - 1, VALUE_ROWS).round().astype(np.int64))
        pooled, first = pool_columns(held.sample[shown], HEATMAP_CELLS)
        rows = held.sample_ids[shown]
        tables.append(
            pd.DataFrame(
                {
                    "profile": name,
                    "position": np.repeat(np.arange(len(rows)), len(first)),
                    "row": np.repeat(rows, len(first)),
                    "dimension": np.tile(first, len(rows)),
                    "value": pooled.ravel(),
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def draw_values(table: pd.DataFrame, profiles: Sequence[Profile], layer: int) -> Figure:
    """Vectors of the Profile's sample, a row each; colours end at the 99th percentile of |value|."""
    with paper_style():
        names = legend_names(profiles)
        figure = new_figure(TEXT, 1.4 * len(names) + 0.45)
        axes = figure.subplots(len(names), 1, squeeze=False).ravel().tolist()
        limit = float(np.percentile(table["value"].abs(), 99)) or 1.0
        image = None
        for ax, name, profile in zip(axes, names, profiles, strict=True):
            group = table[table["profile"] == name]
            # By position: rows of two data sets may have one id.
            matrix = group.pivot_table(index="position", columns="dimension", values="value").to_numpy()
            image = ax.imshow(
                matrix,
                aspect="auto",
                cmap="RdBu_r",
                vmin=-limit,
                vmax=limit,
                interpolation="nearest",
                extent=(-0.5, profile.dim - 0.5, len(matrix) - 0.5, -0.5),
                rasterized=True,
            )
            _mark_outliers(ax, profile, layer)
            ax.set_title(f"{panel_name(name, profile.n)}, {len(matrix)} rows of it", pad=17)
            ax.set_ylabel("row")
            ax.set_yticks([])
        axes[-1].set_xlabel("dimension")
        assert image is not None
        figure.colorbar(image, ax=axes, extend="both", shrink=0.8, label="value", aspect=30)
        title(figure, "Values", what_is_shown(profiles, layer))
        return figure


def _mark_outliers(ax: Axes, profile: Profile, layer: int) -> None:
    """Numbers of the dominant dimensions above the map."""
    held = profile[layer]
    dominant = np.flatnonzero(mean_dominant(held) | variance_dominant(held))
    strongest = dominant[np.argsort(-held.moments.energy[dominant], kind="stable")][:5]
    placed: list[int] = []
    for dimension in strongest.tolist():
        if all(abs(dimension - other) > 0.04 * profile.dim for other in placed):
            placed.append(dimension)
            ax.annotate(
                str(dimension),
                (dimension, -0.5),
                xytext=(0, 6),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontsize=7,
                arrowprops={"arrowstyle": "-", "linewidth": 0.6},
                annotation_clip=False,
            )


def correlation_table(profiles: Sequence[Profile], layer: int) -> pd.DataFrame:
    """Numbers of the figure ``correlation``: cells of the lower triangle with the means of |r| they show.

    ``position`` counts along the figure's axis; ``dimension`` is the first one of the cell at that position.
    """
    cells = CORRELATION_CELLS if len(profiles) == 1 else CORRELATION_CELLS_SMALL
    tables = []
    for name, profile in zip(legend_names(profiles), profiles, strict=True):
        matrix, dimensions = ordered_correlation(profile, layer, cells)
        i, j = np.tril_indices(len(matrix))
        tables.append(
            pd.DataFrame(
                {
                    "profile": name,
                    "position_1": i,
                    "position_2": j,
                    "dimension_1": dimensions[i],
                    "dimension_2": dimensions[j],
                    "mean_absolute_correlation": np.round(matrix[i, j], 4),
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def ordered_correlation(profile: Profile, layer: int, cells: int) -> tuple[Array, NDArray[np.int64]]:
    """|r| of the living dimensions, alike ones side by side, averaged over cells; and the first dimension of each cell.

    The order is that of the leaves of average-linkage clustering on 1 − |r|.
    """
    living = np.flatnonzero(profile[layer].living)
    if len(living) < 2:
        return np.empty((0, 0)), living
    absolute = np.abs(correlation(profile[layer])[np.ix_(living, living)])
    np.fill_diagonal(absolute, 1.0)
    distances = scipy.spatial.distance.squareform(np.clip(1.0 - absolute, 0.0, None), checks=False)
    order = scipy.cluster.hierarchy.leaves_list(scipy.cluster.hierarchy.linkage(distances, method="average"))
    ordered = absolute[np.ix_(order, order)]
    edges = np.unique(np.linspace(0, len(order), min(cells, len(order)) + 1).astype(np.int64))[:-1]
    sums = np.add.reduceat(np.add.reduceat(ordered, edges, axis=0), edges, axis=1)
    sizes = np.diff(np.append(edges, len(order)))
    return sums / np.outer(sizes, sizes), living[order][edges]


def draw_correlation(table: pd.DataFrame, profiles: Sequence[Profile], layer: int) -> Figure:
    """|Pearson correlation| of the dimensions, ordered so that blocks show; colours end at the 99.5th percentile."""
    with paper_style():
        names = legend_names(profiles)
        figure, axes = panels(len(names), height=2.5)
        off_diagonal = table[table["position_1"] != table["position_2"]]["mean_absolute_correlation"]
        limit = max(0.1, float(np.percentile(off_diagonal, 99.5))) if len(off_diagonal) else 1.0
        image = None
        for ax, name, profile in zip(axes, names, profiles, strict=True):
            group = table[table["profile"] == name]
            side = int(group["position_1"].max()) + 1 if len(group) else 1
            matrix = np.full((side, side), np.nan)
            i, j, value = (group[c].to_numpy() for c in ("position_1", "position_2", "mean_absolute_correlation"))
            matrix[i, j] = value
            matrix[j, i] = value
            image = ax.imshow(matrix, cmap="cividis", vmin=0, vmax=limit, interpolation="nearest", rasterized=True)
            ax.set_title(panel_name(name, profile.n))
            ax.set_xticks([])
            ax.set_yticks([])
            living = int(profile[layer].living.sum())
            if living < 2:
                say(ax, "no dimension varies")
            ax.set_xlabel(f"{living} living dimensions, clustered")
        assert image is not None
        figure.colorbar(image, ax=axes, extend="max", shrink=0.6, label="|r|", aspect=30)
        title(figure, "Correlation of dimensions", what_is_shown(profiles, layer))
        return figure
