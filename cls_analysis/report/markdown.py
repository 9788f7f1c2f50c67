"""A diagnosis as a fragment of Markdown, for a model card."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Sequence

import pandas as pd

from cls_analysis.diagnosis.verdict import Diagnosis
from cls_analysis.report.wording import (
    comparison_rows,
    figure_rows,
    heading,
    is_numeric,
    layer_name,
    listed_dimensions,
    probe_rows,
)

#: Figures that a card has room for, as they are labelled.
SHOWN = (
    "common_mean_share",
    "average_cosine",
    "rms_cosine",
    "rms_cosine_centred",
    "top1_energy_share",
    "std_ratio",
    "mean_abs_correlation",
    "isoscore",
    "effective_rank",
    "ev1",
    "condition_number",
)


def render_markdown(diagnoses: Sequence[Diagnosis]) -> str:
    """A section of level 2 with a part for each diagnosis; deeper headings are level 3."""
    lines = ["## How the embedding is distributed", ""]
    for diagnosis in diagnoses:
        lines += _one(diagnosis)
    if len(diagnoses) > 1:
        lines += ["### Comparison", "", _table(comparison_rows(diagnoses)), ""]
    lines += [
        "*Isotropic* is what an isotropic Gaussian of the same n and d gives; intervals come from half-sampling.",
        f"Measured with `cls_analysis` {importlib.metadata.version('cls-analysis')} before any fine-tuning.",
    ]
    return "\n".join(lines) + "\n"


def _one(diagnosis: Diagnosis) -> list[str]:
    where = layer_name(diagnosis.profile, diagnosis.layer)
    findings = [
        f"- **{finding.severity}** {finding.code} {finding.name}"
        + (f" ({listed_dimensions(finding.dimensions)})" if finding.dimensions else "")
        + f": {escape(finding.evidence)}."
        for finding in diagnosis.of_layer(diagnosis.layer)
    ]
    figures = figure_rows(diagnosis)[diagnosis.figures["figure"].isin(SHOWN)]
    lines = [f"### {escape(heading(diagnosis.profile))}", "", f"{where}: {escape(diagnosis.verdict())}", ""]
    lines += [*(findings or ["- nothing found"]), ""]
    if len(figures):
        lines += [_table(figures), ""]
    if diagnosis.probe is not None:
        probe = diagnosis.probe
        lines += [f"A linear classifier on {probe.n:,} labelled rows (majority {probe.majority:.1%}):", ""]
        lines += [_table(probe_rows(diagnosis)), ""]
    return lines


def _table(table: pd.DataFrame) -> str:
    """A table in Markdown; numbers to the right."""
    rows = table.astype(str).to_numpy().tolist()
    rules = ["---:" if is_numeric(cells) else "---" for cells in zip(*rows, strict=True)]
    lines = [
        [escape(str(column)) for column in table.columns],
        rules,
        *([escape(cell) for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line."""
    return re.sub(r"[\\|*_`<\[&~$]", r"\\\g<0>", " ".join(text.split()))
