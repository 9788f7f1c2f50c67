"""``stats``: the tables of Profiles as text, CSV or strict JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from cls_analysis.errors import OptionError, unknown_name
from cls_analysis.profiles import Profile
from cls_analysis.statistics import describe_all, summarize_all

BY = ("layer", "dimension")
FORMATS = ("table", "csv", "json")
#: Version of the JSON's layout.
SCHEMA_VERSION = 1
#: Dimensions of a layer that the text table shows; CSV and JSON have all.
SHOWN_DIMENSIONS = 10
#: What the text table shows of ``summarize``: column and heading. CSV and JSON have all columns.
LAYER_COLUMNS = {
    "layer": "layer",
    "n": "n",
    "common_mean_share": "common mean",
    "average_cosine": "avg cosine",
    "top1_energy_share": "top-1 energy",
    "top10_energy_share": "top-10",
    "isoscore": "IsoScore",
    "ev1": "EV1",
    "effective_rank": "eff. rank",
    "std_ratio": "std ratio",
    "mean_abs_correlation": "mean |r|",
    "max_kurtosis_excess": "max kurt.",
    "n_outliers": "outliers",
    "n_constant": "constant",
}
DIMENSION_COLUMNS = {
    "layer": "layer",
    "dimension": "dimension",
    "mean": "mean",
    "std": "std",
    "skewness": "skewness",
    "kurtosis_excess": "kurtosis",
    "energy_share": "energy share",
    "mean_share": "mean share",
    "variance_share": "variance share",
    "cosine_contribution": "cosine contrib.",
    "outlier": "outlier",
}


def tables_of(profiles: Sequence[Profile], *, by: str = "layer", layer: int | None = None) -> list[pd.DataFrame]:
    """``summarize`` (by layer) or ``describe`` (by dimension) of each profile, of one layer or of all."""
    if by not in BY:
        raise OptionError(unknown_name("value of --by", by, BY))
    layers = None if layer is None else [layer]
    table = summarize_all if by == "layer" else describe_all
    return [table([profile], layers) for profile in profiles]


def render(
    tables: Sequence[pd.DataFrame], profiles: Sequence[Profile], *, by: str = "layer", form: str = "table"
) -> str:
    """The profiles' tables as text for a terminal, as CSV, or as JSON."""
    if form not in FORMATS:
        raise OptionError(unknown_name("format", form, FORMATS))
    if form == "table":
        text = _layer_text if by == "layer" else _dimension_text
        return "\n\n".join(text(table, profile) for table, profile in zip(tables, profiles, strict=True)) + "\n"
    everything = pd.concat(tables, ignore_index=True)
    return everything.to_csv(index=False) if form == "csv" else to_json(everything, by)


def to_json(table: pd.DataFrame, by: str) -> str:
    """Strict JSON: what is undefined is ``null``, and ``undefined`` counts it by column."""
    rows = [{key: _plain(value) for key, value in row.items()} for row in table.to_dict("records")]
    undefined = {str(column): int(table[column].isna().sum()) for column in table.columns if table[column].isna().any()}
    document = {"schema_version": SCHEMA_VERSION, "by": by, "undefined": undefined, "rows": rows}
    return json.dumps(document, allow_nan=False, ensure_ascii=False, indent=1) + "\n"


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _layer_text(table: pd.DataFrame, profile: Profile) -> str:
    shown = table[list(LAYER_COLUMNS)].astype(object)
    null = {column: table[f"{column}_null"].iloc[-1] if f"{column}_null" in table else "" for column in LAYER_COLUMNS}
    null |= {"layer": "null"}
    return _headed(profile, pd.concat([shown, pd.DataFrame([null])]).rename(columns=LAYER_COLUMNS)) + (
        "\n(null: an isotropic Gaussian of the same n and d; all columns: --format csv)"
    )


def _dimension_text(table: pd.DataFrame, profile: Profile) -> str:
    parts = []
    for _, layer in table.groupby("layer"):
        order = layer["energy_share"].sort_values(ascending=False, kind="stable").index
        parts.append(layer.loc[order].head(SHOWN_DIMENSIONS))
    shown = pd.concat(parts)[list(DIMENSION_COLUMNS)].astype(object).rename(columns=DIMENSION_COLUMNS)
    note = f"\n(the {SHOWN_DIMENSIONS} dimensions of most energy in each layer; all {profile.dim}: --format csv)"
    return _headed(profile, shown) + (note if profile.dim > SHOWN_DIMENSIONS else "")


def _headed(profile: Profile, table: pd.DataFrame) -> str:
    origin = profile.provenance
    cut = f", {origin.rows_cut} rows cut" if origin.rows_cut else ""
    empty = f", {origin.rows_empty} empty texts" if origin.rows_empty else ""
    head = (
        f"{profile.encoder} on {profile.dataset}: n = {profile.n:,}, d = {profile.dim}, {origin.source}, {origin.dtype}"
    )
    return f"{head}{cut}{empty}\n" + table.map(_cell).to_string(index=False)


def _cell(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return "–" if math.isnan(value) else f"{value:.4g}" if abs(value) >= 1000 else f"{value:.4f}"
    return str(value)
