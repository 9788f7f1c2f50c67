"""A diagnosis as text for a terminal: coloured there, plain in a pipe."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

import pandas as pd

from cls_analysis.diagnosis.agreement import Definition, layer_norm_definitions, layer_norm_table
from cls_analysis.diagnosis.findings import Finding
from cls_analysis.diagnosis.verdict import Diagnosis
from cls_analysis.report.wording import (
    cell,
    comparison_rows,
    curve_rows,
    figure_rows,
    heading,
    is_numeric,
    layer_name,
    layer_overview,
    listed_dimensions,
    number,
    probe_rows,
    readable,
    sentence,
    severity_counts,
    sufficiency_rows,
)
from cls_analysis.weights import LayerNorm

COLOURS = {"severe": "\x1b[1;31m", "warning": "\x1b[33m", "note": "\x1b[36m", "title": "\x1b[1m"}
RESET = "\x1b[0m"
WIDTH = 110


def render_text(diagnoses: Sequence[Diagnosis], *, colour: bool = False) -> str:
    """Every diagnosis, and the comparison where there are several."""
    parts = [_one(diagnosis, colour) for diagnosis in diagnoses]
    if len(diagnoses) > 1:
        table = comparison_rows(diagnoses)
        note = f"\n{COMPARISON_NOTE}" if "no" in set(table.iloc[:, -1]) else ""
        parts.append(_title("Comparison", colour) + _table(table) + note)
    return "\n\n".join(parts) + "\n"


def render_weights_text(name: str, norms: Sequence[LayerNorm], *, colour: bool = False) -> str:
    """The LayerNorm outliers of an encoder, layer by layer, and by the definitions of the literature."""
    table = layer_norm_table(norms)
    lines = [
        _paint(
            f"{name}: LayerNorm weights of {sum(norm.uses for norm in norms)} layers, d = {len(norms[0].weight)}",
            "title",
            colour,
        )
    ]
    if not all(norm.on_output for norm in norms):
        lines.append("(a pre-norm model: these norms scale what the next block reads, not the layer's vectors)")
    if table.empty:
        return "\n".join([*lines, "no entry lies beyond three standard deviations of its vector."]) + "\n"
    for layer, group in table.groupby("layer"):
        parts = []
        for part, rows in group.groupby("part", sort=False):
            named = ", ".join(f"{row.dimension} ({row.deviations:+.1f}σ)" for row in rows.head(8).itertuples())
            parts.append(f"{part}: {named}" + (f" and {len(rows) - 8} more" if len(rows) > 8 else ""))
        start = f"layer {layer}  "
        lines.append(start + f"\n{' ' * len(start)}".join(parts))
    lines.append(f"(by chance {table['expected'].iloc[0]:.1f} entries of each vector lie beyond 3σ)")
    lines += ["", *_definitions(layer_norm_definitions(norms))]
    return "\n".join(lines) + "\n"


def _one(diagnosis: Diagnosis, colour: bool) -> str:
    profile = diagnosis.profile
    where = layer_name(profile, diagnosis.layer)
    blocks = [
        _paint(heading(profile), "title", colour)
        + "\n"
        + textwrap.fill(f"{where}: {diagnosis.verdict()}", WIDTH, subsequent_indent="  ", break_on_hyphens=False),
        _title(f"Findings ({where}: {severity_counts(diagnosis)})", colour)
        + "\n".join(_finding(finding, colour) for finding in diagnosis.of_layer(diagnosis.layer)),
    ]
    if not diagnosis.figures.empty:
        blocks.append(_title(f"Figures of {where}", colour) + _table(figure_rows(diagnosis)) + f"\n{COSINE_NOTE}")
    if not diagnosis.removal.empty:
        blocks.append(
            _title("Removing the worst dimensions, or normalising", colour) + _table(readable(diagnosis.removal))
        )
    if not diagnosis.conditions.empty and diagnosis.conditions["condition_number"].notna().any():
        shown = diagnosis.conditions.drop(columns="null")
        null = number(float(diagnosis.conditions["null"].iloc[0]))
        blocks.append(
            _title(f"Condition number after normalising (isotropic: {null})", colour) + _table(readable(shown))
        )
    if not diagnosis.figures.empty:
        blocks.append(_title("Effect on a linear classifier", colour) + _probe(diagnosis))
    if diagnosis.definitions:
        blocks.append(
            _title("Outlier dimensions by definition", colour) + "\n".join(_definitions(diagnosis.definitions))
        )
    if len(profile.layers) > 1:
        blocks.append(_title("All layers", colour) + _table(layer_overview(diagnosis)))
    if diagnosis.sufficiency is not None:
        blocks.append(
            _title("How many rows?", colour)
            + textwrap.fill(sentence(diagnosis.sufficiency.sentence()), WIDTH)
            + "".join(f"\n{_table(rows)}" for rows in (sufficiency_rows(diagnosis), curve_rows(diagnosis)) if len(rows))
        )
    return "\n\n".join(block.rstrip("\n") for block in blocks)


#: What must stand beside the average cosine.
COSINE_NOTE = "(centring brings the average cosine of any vectors to about 0; the RMS cosine shows what is left)"
#: What "comparable" means.
COMPARISON_NOTE = "(not comparable: another isotropic value at another n or d; read those against it)"


def _finding(finding: Finding, colour: bool) -> str:
    mark = _paint(f"{finding.severity:<8}", finding.severity, colour)
    text = sentence(finding.evidence)
    named = f" [{listed_dimensions(finding.dimensions)}]" if finding.dimensions else ""
    first = f"{mark} {finding.code} {finding.name}{named}"
    rest = [textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)]
    if finding.severity != "note":
        rest.append(_indented(f"→ {finding.remedy}"))
    return "\n".join([first, *rest])


def _probe(diagnosis: Diagnosis) -> str:
    if diagnosis.probe is None:
        return f"not measured: {diagnosis.no_probe or 'no labels were given'}."
    probe = diagnosis.probe
    head = (
        f"n = {probe.n:,}, {probe.n_classes} classes, majority {probe.majority:.1%}; differences to none, 95 % interval"
    )
    return f"{head}\n{_table(probe_rows(diagnosis))}"


def _definitions(found: Sequence[Definition]) -> list[str]:
    width = max(len(definition.name) for definition in found)
    lines = []
    for definition in found:
        named = (
            listed_dimensions(definition.dimensions, 10).removeprefix("dimensions ").removeprefix("dimension ")
            or "none"
        )
        expected = "" if definition.expected != definition.expected else f"; by chance {number(definition.expected)}"
        lines.append(f"{definition.name:<{width}}  {named}  ({definition.source}{expected})")
    return lines


def _table(table: pd.DataFrame) -> str:
    """Columns side by side, numbers to the right."""
    if not len(table):
        return "(none)"
    columns = []
    for name, cells in zip(table.columns, table.map(cell).to_numpy().T.tolist(), strict=True):
        column = [str(name), *cells]
        side, width = ">" if is_numeric(cells) else "<", max(map(len, column))
        columns.append([f"{text:{side}{width}}" for text in column])
    return "\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True))


def _title(text: str, colour: bool) -> str:
    return _paint(text, "title", colour) + "\n"


def _indented(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="    ", subsequent_indent="      ", break_on_hyphens=False)


def _paint(text: str, what: str, colour: bool) -> str:
    return f"{COLOURS[what]}{text}{RESET}" if colour else text
