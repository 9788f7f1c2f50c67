"""Rules of the axis precision: whether half precision would spoil the vectors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cls_analysis.diagnosis.evidence import Evidence, ordered
from cls_analysis.diagnosis.findings import Finding, Judgement, count, listed
from cls_analysis.diagnosis.rules.base import Rule
from cls_analysis.diagnosis.thresholds import Limits
from cls_analysis.profiles import EPSILON
from cls_analysis.statistics.outliers import largest_magnitude

#: Largest finite number of float16.
FLOAT16_MAX = 65_504.0


class HalfPrecisionRange(Rule):
    """Values near float16's end."""

    code = "CLS601"
    name = "half-precision-range"
    axis = "precision"
    measures = "the largest |x| over 65,504, the largest number of float16"
    source = "IEEE 754 binary16"
    meaning = "In float16 such values overflow to infinity, in this layer or in the sums that follow."
    remedy = "bfloat16 or float32; `layernorm` or `scale` before any float16 arithmetic."
    verify = "An extraction with --dtype float16 stays finite."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Look at the extremes."""
        largest = largest_magnitude(evidence.layer)
        value = float(largest.max()) / FLOAT16_MAX
        reached = limits.reached(self.code, value)
        if reached is None:
            return None
        dimensions = ordered(largest >= limits[f"{self.code}.note"] * FLOAT16_MAX, largest)
        text = f"the largest value is {largest.max():,.0f}, in dimension {int(largest.argmax())}"
        return Judgement(reached[0], value, reached[1], text, 0.0, dimensions)


class HalfPrecisionResolution(Rule):
    """A mean so long that bfloat16 rounds the variation away."""

    code = "CLS602"
    name = "half-precision-resolution"
    axis = "precision"
    measures = "the step of bfloat16 at a dimension's mean, 2⁻⁷ of it, over the standard deviation"
    source = "bfloat16 has 8 bits of precision; limits ours"
    meaning = (
        "Stored or summed in bfloat16 these dimensions lose what distinguishes texts: the mean uses up the digits."
    )
    remedy = "float32 up to the normalisation; `center` in float32, then halve."
    verify = "An extraction with --dtype bfloat16 gives about the same standard deviations."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Compare step and spread of the living dimensions."""
        layer = evidence.layer
        std = np.where(layer.living, layer.moments.std, np.inf)
        ratio = EPSILON["bfloat16"] * np.abs(layer.moments.mean) / std
        limit, many = limits[f"{self.code}.note"], limits[f"{self.code}.warning"]
        dimensions = ordered(ratio >= limit, ratio)
        if not dimensions:
            return None
        share = len(dimensions) / max(1, int(layer.living.sum()))
        text = f"in {count(dimensions)} a bfloat16 step at the mean is as wide as the spread: {listed(dimensions)}"
        if share >= many:
            return Judgement("warning", share, many, text, 0.0, dimensions)
        return Judgement("note", float(ratio[dimensions[0]]), limit, text, 0.0, dimensions)
