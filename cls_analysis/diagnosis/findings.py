"""What a diagnosis finds: severities, axes, and ``Finding``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

#: From harmless to bad.
SEVERITIES = ("note", "warning", "severe")
#: What a finding is about. The first three are independent: no measure of one sees the others.
AXES = ("mean", "variance", "spectrum", "tails", "sample", "precision")
#: The axes that a normalisation can change.
SHAPE_AXES = ("mean", "variance", "spectrum")


@dataclass(frozen=True)
class Finding:
    """One thing that a rule found in one layer.

    Attributes
    ----------
    code, name, axis : str
        Which rule it was, and what it is about.
    severity : {"note", "warning", "severe"}
    layer : int
    dimensions : tuple of int
        Those concerned, worst first; empty where it is not about single ones.
    value, null, threshold : float
        What was measured, what an isotropic Gaussian of the same n and d gives, and the limit that was crossed.
    evidence : str
        One sentence with the numbers.
    source, meaning, remedy, verify : str
        Where rule and limit come from, what it means for a classifier, what to do, how to check that it helped.
    """

    code: str
    name: str
    axis: str
    severity: str
    layer: int
    dimensions: tuple[int, ...]
    value: float
    null: float
    threshold: float
    evidence: str
    source: str
    meaning: str
    remedy: str
    verify: str


@dataclass(frozen=True)
class Judgement:
    """What a rule says of one layer; with the rule's texts it becomes a ``Finding``."""

    severity: str
    value: float
    threshold: float
    evidence: str
    null: float = float("nan")
    dimensions: tuple[int, ...] = ()
    axis: str | None = None


def rank(severity: str | None) -> int:
    """Order of a severity: 0 for none at all, then note, warning, severe."""
    return 0 if severity is None else SEVERITIES.index(severity) + 1


def worst(findings: Iterable[Finding]) -> str | None:
    """The worst severity among ``findings``; None where there are none."""
    return max((finding.severity for finding in findings), key=rank, default=None)


def above_note(findings: Iterable[Finding], axes: Iterable[str] = AXES) -> list[Finding]:
    """Those of ``findings`` on ``axes`` that are warnings or severe."""
    wanted = set(axes)
    return [finding for finding in findings if rank(finding.severity) > 1 and finding.axis in wanted]


def count(dimensions: Sequence[int]) -> str:
    """``1 dimension``, ``3 dimensions``."""
    return f"{len(dimensions)} dimension{'s' if len(dimensions) != 1 else ''}"


def listed(dimensions: Sequence[int], limit: int = 8) -> str:
    """The first numbers, and how many more there are."""
    more = f" and {len(dimensions) - limit} more" if len(dimensions) > limit else ""
    return ", ".join(map(str, dimensions[:limit])) + more
