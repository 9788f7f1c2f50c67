"""What the rules on dominating dimensions share: each is one by its mean or by its variance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from cls_analysis.diagnosis.evidence import Evidence, ordered
from cls_analysis.diagnosis.findings import Finding, Judgement
from cls_analysis.diagnosis.rules.base import Rule
from cls_analysis.diagnosis.thresholds import Limits


class Dominating(Rule):
    """Dimensions of high energy, those with μ_i² > Var_i or (``by_mean`` false) the others."""

    by_mean: ClassVar[bool]

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Compare the energy shares of outlier dimensions with the limits."""
        if self.by_mean:
            candidates = evidence.mean_dominant & evidence.mean_is_larger
        else:
            candidates = evidence.variance_dominant & ~evidence.mean_is_larger
        share, even = evidence.energy_share, 1.0 / evidence.layer.dim
        dimensions = ordered(candidates & (share >= limits[f"{self.code}.warning"]), share)
        if not dimensions:
            return None
        largest = float(share[dimensions[0]])
        reached = limits.reached(self.code, largest)
        if reached is None:
            return None
        shown = ", ".join(f"dimension {i} holds {share[i]:.1%}" for i in dimensions[:3])
        return Judgement(
            reached[0], largest, reached[1], f"{shown} of the energy ({even:.2%} if even)", even, dimensions
        )
