"""Curves: how concentrated the energy is, how the variance is spread over components, how both grow with the layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from cls_analysis.errors import OptionError
from cls_analysis.plotting.names import legend_names, what_is_shown
from cls_analysis.plotting.style import (
    GREY,
    HATCHES,
    TEXT,
    legend_below,
    legend_label,
    line_look,
    log_scale,
    look,
    new_figure,
    paper_style,
    say,
    title,
)
from cls_analysis.profiles import Profile
from cls_analysis.statistics import nulls, summarize
from cls_analysis.statistics.concentration import lorenz_curve
from cls_analysis.statistics.spectrum import covariance_spectrum

TOP = (1, 3, 10)
#: Profiles up to which the bars of ``concentration`` have room for their numbers.
LABELLED_BARS = 4
#: Figures of the panels of ``layers``: column of ``summarize``, title, and the range of its axis where it is fixed.
LAYER_PANELS: tuple[tuple[str, str, tuple[float | None, float | None]], ...] = (
    ("common_mean_share", "common mean share", (0, 1.03)),
    ("average_cosine", "average cosine", (None, 1.03)),
    ("top1_energy_share", "energy in one dimension", (0, 1.03)),
    ("isoscore", "IsoScore", (0, None)),
    ("std_ratio", "largest / median std", (0, None)),
    ("mean_abs_correlation", "mean |correlation|", (0, None)),
)


def concentration_table(profiles: Sequence[Profile], layer: int) -> pd.DataFrame:
    """Numbers of the figure ``concentration``: energy share of the k largest dimensions, k = 1 … d, and its null."""
    tables = []
    for name, profile in zip(legend_names(profiles), profiles, strict=True):
        held = profile[layer]
        order = np.argsort(-held.moments.energy, kind="stable")
        null = nulls.concentration_null(held.n, held.dim)
        table = pd.DataFrame(
            {
                "profile": name,
                "k": np.arange(1, held.dim + 1),
                "dimension": order,
                "energy_share_of_top_k": lorenz_curve(held.moments.energy),
                "even_share": np.arange(1, held.dim + 1) / held.dim,
            }
        )
        table["null_of_top_k"] = table["k"].map(dict(zip(TOP, (null.top1, null.top3, null.top10), strict=True)))
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def draw_concentration(table: pd.DataFrame, profiles: Sequence[Profile], layer: int) -> Figure:
    """Left, the Lorenz curve of E[x_i²], largest first; right, the share of the 1, 3 and 10 largest and its null."""
    with paper_style():
        figure = new_figure(TEXT, 2.6)
        curve, bars = figure.subplots(1, 2)
        groups = list(table.groupby("profile", sort=False))
        width = 0.8 / len(groups)
        for index, (name, group) in enumerate(groups):
            curve.plot(group["k"], group["energy_share_of_top_k"], label=legend_label(str(name)), **line_look(index))
            top = group[group["k"].isin(TOP)]
            where = np.arange(len(top)) + (index - (len(groups) - 1) / 2) * width
            style = look(index)
            bars.bar(
                where,
                top["energy_share_of_top_k"],
                width * 0.9,
                color=style["color"],
                hatch=HATCHES[index % len(HATCHES)],
                edgecolor="white",
                linewidth=0,
            )
            bars.hlines(top["null_of_top_k"], where - width / 2, where + width / 2, color="black", linewidth=1)
            for x, height, dimension, k in zip(
                where, top["energy_share_of_top_k"], top["dimension"], top["k"], strict=True
            ):
                if len(groups) > LABELLED_BARS:
                    break
                text = f" dim {dimension}: {height:.0%}" if k == 1 else f" {height:.0%}"
                bars.text(x, height + 0.01, text, rotation=90, ha="center", va="bottom", fontsize=6.5)
        even = table[table["profile"] == groups[0][0]]
        curve.plot(even["k"], even["even_share"], color=GREY, linewidth=0.8, linestyle=":", label="all dimensions even")
        log_scale(curve, "x")
        curve.set_ylim(0, 1.03)
        curve.set_xlabel("k largest dimensions")
        curve.set_ylabel("share of energy")
        legend_below(figure, curve)
        bars.set_xticks(range(len(TOP)), [f"top {k}" for k in TOP])
        bars.set_ylim(0, 1.55)
        bars.set_yticks(np.arange(0, 1.01, 0.2))
        bars.set_ylabel("share of energy")
        bars.set_title("black: isotropic null", fontsize=7)
        title(figure, "Concentration", what_is_shown(profiles, layer))
        return figure


def spectrum_table(profiles: Sequence[Profile], layer: int) -> pd.DataFrame:
    """Numbers of the figure ``spectrum``: each component's share of the variance, their sum so far, and the null."""
    tables = []
    for name, profile in zip(legend_names(profiles), profiles, strict=True):
        held = profile[layer]
        spectrum = covariance_spectrum(held)
        null = nulls.spectrum_null(held.n, held.dim).explained_variance
        share = spectrum / spectrum.sum()
        tables.append(
            pd.DataFrame(
                {
                    "profile": name,
                    "component": np.arange(1, held.dim + 1),
                    "variance_share": share,
                    "explained_variance": np.cumsum(share),
                    "variance_share_null": np.diff(null, prepend=0.0),
                    "explained_variance_null": null,
                }
            )
        )
    return pd.concat(tables, ignore_index=True)


def draw_spectrum(table: pd.DataFrame, profiles: Sequence[Profile], layer: int) -> Figure:
    """Left, the variance of each component; right, the explained variance; thin, the null of the same n and d."""
    with paper_style():
        figure = new_figure(TEXT, 2.6)
        each, cumulative = figure.subplots(1, 2)
        for index, (name, group) in enumerate(table.groupby("profile", sort=False)):
            style = line_look(index)
            k = group["component"]
            # Components below the rounding of the first are no variance; on a log axis they would rule the picture.
            visible = group["variance_share"] > 1e-8
            each.plot(k[visible], group["variance_share"][visible], label=legend_label(str(name)), **style)
            cumulative.plot(k, group["explained_variance"], label=legend_label(str(name)), **style)
            thin = style | {"linewidth": 0.6, "alpha": 0.6}
            null_visible = group["variance_share_null"] > 1e-8
            each.plot(k[null_visible], group["variance_share_null"][null_visible], **thin)
            cumulative.plot(k, group["explained_variance_null"], **thin)
        if table["variance_share"].isna().all():
            say(each, "no dimension varies")
        each.plot([], [], color=GREY, linewidth=0.6, label="isotropic null (thin)")
        log_scale(each, "x")
        if (table["variance_share"] > 0).any() or (table["variance_share_null"] > 0).any():
            log_scale(each, "y")
        each.set_xlabel("principal component")
        each.set_ylabel("share of variance")
        legend_below(figure, each)
        log_scale(cumulative, "x")
        cumulative.set_ylim(0, 1.03)
        cumulative.set_xlabel("first k components")
        cumulative.set_ylabel("explained variance")
        title(figure, "Spectrum of the covariance", what_is_shown(profiles, layer))
        return figure


def layers_table(profiles: Sequence[Profile], layer: int) -> pd.DataFrame:
    """Numbers of the figure ``layers``: ``summarize`` of each profile.

    Raises
    ------
    OptionError
        If every profile holds a single layer.
    """
    if all(len(profile.layers) == 1 for profile in profiles):
        raise OptionError("the figure 'layers' needs Profiles of several layers; extract with --layers all")
    tables = []
    for name, profile in zip(legend_names(profiles), profiles, strict=True):
        table = summarize(profile)
        table.insert(0, "profile", name)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def draw_layers(table: pd.DataFrame, profiles: Sequence[Profile], layer: int) -> Figure:
    """How the bias grows through the network; dotted, the isotropic null.

    Layer 0 is left out where it is the same vector for every text.
    """
    with paper_style():
        figure = new_figure(TEXT, 3.6)
        axes = figure.subplots(2, 3, sharex=True).ravel()
        constant = table["n_constant"] == table["dim"]
        names = list(dict.fromkeys(table["profile"]))
        shown = table[~constant]
        for ax, (column, heading, limits) in zip(axes, LAYER_PANELS, strict=True):
            for name, group in shown.groupby("profile", sort=False):
                style = look(names.index(name))
                ax.plot(group["layer"], group[column], label=legend_label(str(name)), **style)
                ax.plot(group["layer"], group[f"{column}_null"], ":", color=style["color"], linewidth=0.8)
            ax.set_title(heading)
            bottom, top = limits
            ax.set_ylim(bottom, 1.03 * ax.get_ylim()[1] if top is None else top)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        for ax in axes[3:]:
            ax.set_xlabel("layer")
        legend_below(figure, axes[0])
        note = _not_drawn(table.assign(constant=constant))
        title(figure, "Bias by layer", f"{what_is_shown(profiles, None)} (dotted: isotropic null{note})")
        return figure


def _not_drawn(table: pd.DataFrame) -> str:
    """Say which profiles and layers are one vector for all texts, and so not drawn."""
    profiles = table.groupby("profile", sort=False)["constant"].all()
    whole = profiles[profiles].index
    layers = table[~table["profile"].isin(whole)].groupby("layer")["constant"].all()
    parts = [f"layer {number}" for number in layers[layers].index] + [str(name) for name in whole]
    if not parts:
        return ""
    return f"; {', '.join(parts)} {'is' if len(parts) == 1 else 'are'} one vector for all texts, not drawn"
