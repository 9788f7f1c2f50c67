"""Which normalisation a diagnosis recommends, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.diagnosis.findings import SHAPE_AXES, Finding, above_note

#: Rows a dimension from which the covariance is known well enough to whiten with.
ROWS_TO_WHITEN = 10


@dataclass(frozen=True)
class Recommendation:
    """The name of a normalisation, and one sentence why."""

    normalization: str
    why: str


def recommend(evidence: Evidence, findings: Sequence[Finding]) -> Recommendation:
    """The least that answers every finding of the layer above a note."""
    if evidence.layer.collapsed:
        return Recommendation("none", "all texts have the same vector; no normalisation can tell them apart")
    axes = {finding.axis for finding in above_note(findings, SHAPE_AXES)}
    if "spectrum" in axes:
        return _for_spectrum(evidence, findings, axes)
    if "variance" in axes:
        return Recommendation("standardize", "dimensions differ in scale" + (" and mean" if "mean" in axes else ""))
    if "mean" in axes:
        return Recommendation("center", "of what a normalisation can mend, only the mean is beyond its limits")
    return Recommendation("none", "mean, variances and spectrum are near isotropic")


def _for_spectrum(evidence: Evidence, findings: Sequence[Finding], axes: set[str]) -> Recommendation:
    n, d = evidence.layer.n, evidence.layer.dim
    others = {"mean": "the mean is far from zero", "variance": "dimensions differ in scale"}
    also = " and ".join(text for axis, text in others.items() if axis in axes)
    directions = "few directions hold the variance" + (f", {also}" if also else "")
    if n >= ROWS_TO_WHITEN * d:
        return Recommendation("whiten", f"{directions}; {n:,} rows are enough to know the covariance of {d} dimensions")
    few = f"{n:,} rows are too few to whiten {d} dimensions with (from {ROWS_TO_WHITEN * d:,} on)"
    if any(finding.code == "CLS303" and finding.axis == "spectrum" for finding in findings):
        return Recommendation("all-but-the-top", f"{directions}; {few}")
    return Recommendation("standardize", f"{directions}; {few}, scales and mean can be mended")
