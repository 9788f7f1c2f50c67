"""How numbers and tables are worded, the same in every form of a report."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cls_analysis.diagnosis.comparing import comparison_table, names_of
from cls_analysis.diagnosis.findings import AXES, SEVERITIES, rank, worst
from cls_analysis.diagnosis.measures import LABELS
from cls_analysis.diagnosis.verdict import Diagnosis
from cls_analysis.profiles import Profile

#: What a figure of no value is shown as.
UNDEFINED = "–"
#: A cell that is a number, with or without its sign, thousands, power or per cent.
NUMBER = re.compile(r"[-+−]?[\d.,]*\d(e[-+]\d+)?%?")
#: Headings of the columns of tables; others are shown by their name.
HEADINGS = {
    "figure": "figure",
    "value": "value",
    "null": "isotropic",
    "interval": "95 % interval",
    "rows": "rows",
    "normalization": "normalisation",
    "condition_number": "condition number",
    "average_cosine": "average cosine",
    "rms_cosine": "RMS cosine",
    "neighbours_changed": "neighbours changed",
    "none": "as it is",
    "center": "centred",
    "standardize": "standardised",
    "train_loss": "training loss",
}


def number(value: float) -> str:
    """A number to three or four digits, two below 0.001; whole ones in full; ``–`` where there is none."""
    if value is None or math.isnan(value):
        return UNDEFINED
    size = abs(float(value))
    # Each limit is where the form below it would round up to one digit more.
    if size >= 99_999.5:
        return f"{value:.2e}"
    if size >= 99.95 or size.is_integer():
        return f"{value + 0.0:,.0f}"  # adding 0 takes the sign of a zero
    if size >= 9.9995:
        return f"{value:.1f}"
    if size >= 0.001:
        return f"{value:.3f}" if size >= 0.1 else f"{value:#.3g}"
    return f"{value:.1e}"


def cell(value: Any) -> str:
    """A cell of a table."""
    if isinstance(value, bool | np.bool_):
        return "yes" if value else ""
    if isinstance(value, float):
        return number(value)
    return str(value)


def is_numeric(cells: Iterable[str]) -> bool:
    """Whether a column holds numbers: such columns are set to the right."""
    filled = [cell for cell in cells if cell not in ("", UNDEFINED)]
    return bool(filled) and all(NUMBER.fullmatch(cell) for cell in filled)


def sentence(text: str) -> str:
    """Text that begins with a capital letter and ends with a full stop."""
    ended = text if text.endswith(".") else f"{text}."
    # A large μ would read as M.
    return ended[0].upper() + ended[1:] if ended[0].isascii() else ended


def layer_name(profile: Profile, layer: int) -> str:
    """``layer 6``; vectors that came without an encoder have none."""
    return f"layer {layer}" if layer >= 0 else "the vectors"


def heading(profile: Profile) -> str:
    """What was looked at, in one line."""
    origin = profile.provenance
    cut = f", {origin.rows_cut:,} rows cut" if origin.rows_cut else ""
    empty = f", {origin.rows_empty:,} empty texts" if origin.rows_empty else ""
    what = origin.source if origin.source != "vectors" else "given vectors"
    named = f"{profile.encoder} on {profile.dataset}" if origin.encoder else profile.dataset
    return f"{named}: n = {profile.n:,}, d = {profile.dim}, {what}, {origin.dtype}{cut}{empty}"


def figure_rows(diagnosis: Diagnosis) -> pd.DataFrame:
    """The main figures as they are read: label, value, interval, null, and which rows they rest on."""
    table = diagnosis.figures
    shown = pd.DataFrame(
        {
            "figure": [LABELS[name] for name in table["figure"]],
            "value": table["value"],
            "interval": [_interval(row["low"], row["high"], row["biased_by_n"]) for row in table.to_dict("records")],
            "null": table["null"],
            "rows": table["rows"],
        }
    )
    return shown.map(cell).rename(columns=HEADINGS)


def readable(table: pd.DataFrame) -> pd.DataFrame:
    """Any table with its cells and headings as they are read."""
    return table.map(cell).rename(columns=lambda name: HEADINGS.get(str(name), str(name).replace("_", " ")))


def comparison_rows(diagnoses: Sequence[Diagnosis]) -> pd.DataFrame:
    """The comparison as it is read: one row a figure, one column a diagnosis, its best and its worst value marked."""
    names = names_of(diagnoses)
    rows = [
        [row["label"], *(number(row[name]) + _end(row, name) for name in names), "yes" if row["comparable"] else "no"]
        for row in comparison_table(diagnoses).to_dict("records")
    ]
    return pd.DataFrame(rows, columns=["figure", *names, "comparable"])


def _end(row: Mapping[Any, Any], name: str) -> str:
    return " (best)" if row["best"] == name else " (worst)" if row["worst"] == name else ""


def sufficiency_rows(diagnosis: Diagnosis) -> pd.DataFrame:
    """Which figures n rows are enough for, and why."""
    if diagnosis.sufficiency is None or diagnosis.sufficiency.answers.empty:
        return pd.DataFrame()
    answers = diagnosis.sufficiency.answers
    return pd.DataFrame(
        {
            "figure": [LABELS[name] for name in answers["figure"]],
            "value": [number(value) for value in answers["value"]],
            "enough": ["yes" if enough else "no" for enough in answers["enough"]],
            "why": answers["why"],
        }
    )


def layer_overview(diagnosis: Diagnosis) -> pd.DataFrame:
    """One row a layer, from the top: the worst severity on each axis, and the codes found."""
    records = []
    for layer in reversed(diagnosis.profile.layers):
        found = diagnosis.of_layer(layer)
        row: dict[str, str] = {"layer": str(layer)}
        for axis in AXES:
            row[axis] = worst(finding for finding in found if finding.axis == axis) or ""
        codes = sorted(found, key=lambda finding: (-rank(finding.severity), finding.code))
        row["findings"] = ", ".join(dict.fromkeys(finding.code for finding in codes))
        records.append(row)
    return pd.DataFrame(records)


def probe_rows(diagnosis: Diagnosis) -> pd.DataFrame:
    """The probe's table as it is read: accuracies and differences in points."""
    if diagnosis.probe is None:
        return pd.DataFrame()
    table = diagnosis.probe.table
    return pd.DataFrame(
        {
            "classifier": [OPTIMIZERS[name].format(steps=diagnosis.probe.steps) for name in table["optimizer"]],
            "normalisation": table["normalization"],
            "accuracy": [f"{value:.1%}" for value in table["accuracy"]],
            "difference (points)": [_difference(row) for row in table.to_dict("records")],
            "training loss": [number(value) for value in table["train_loss"]],
            "verdict": table["verdict"],
        }
    )


def _difference(row: Mapping[Any, Any]) -> str:
    if row["verdict"] == "reference":
        return ""
    # Adding 0 takes the sign of a zero.
    difference, low, high = (round(100 * row[name], 1) + 0.0 for name in ("difference", "low", "high"))
    return f"{difference:+.1f} [{low:+.1f}, {high:+.1f}]"


OPTIMIZERS = {"optimum": "at its optimum", "sgd": "{steps} steps of SGD", "adamw": "{steps} steps of AdamW"}


def curve_rows(diagnosis: Diagnosis) -> pd.DataFrame:
    """Value of each figure at each n and, in brackets, what isotropy would give there."""
    if diagnosis.sufficiency is None or diagnosis.sufficiency.curve.empty:
        return pd.DataFrame()
    curve = diagnosis.sufficiency.curve
    text = curve.assign(
        shown=[f"{number(v)} ({number(n)})" for v, n in zip(curve["value"], curve["null"], strict=True)]
    )
    wide = text.pivot_table(index="figure", columns="n", values="shown", aggfunc="first", sort=False).fillna("")
    wide = wide.rename(columns=lambda n: f"n = {int(n):,}")
    wide.index = wide.index.map(LABELS)
    return wide.reset_index().rename(columns={"figure": "figure (isotropic)"})


def severity_counts(diagnosis: Diagnosis) -> str:
    """``2 severe, 3 warnings, 1 note`` of the judged layer."""
    found = diagnosis.of_layer(diagnosis.layer)
    counts = {severity: sum(f.severity == severity for f in found) for severity in reversed(SEVERITIES)}
    plural = {"severe": "severe", "warning": "warnings", "note": "notes"}
    parts = [f"{n} {plural[name] if n != 1 else name}" for name, n in counts.items() if n]
    return ", ".join(parts) or "nothing found"


def listed_dimensions(dimensions: Sequence[int], limit: int = 12) -> str:
    """``dimensions 99, 125``, cut."""
    if not dimensions:
        return ""
    more = f" and {len(dimensions) - limit} more" if len(dimensions) > limit else ""
    return f"dimension{'s' if len(dimensions) > 1 else ''} {', '.join(map(str, dimensions[:limit]))}{more}"


def _interval(low: float, high: float, biased: bool) -> str:
    if math.isnan(low):
        return ""
    return f"{number(low)} to {number(high)}" + (" at this n" if biased else "")
