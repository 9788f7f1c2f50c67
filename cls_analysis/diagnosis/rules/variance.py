"""Rules of the axis variance: dimensions that vary more than others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cls_analysis.diagnosis.evidence import Evidence, ordered
from cls_analysis.diagnosis.findings import Finding, Judgement, count, listed
from cls_analysis.diagnosis.rules.base import COMPARE, Rule
from cls_analysis.diagnosis.rules.dominance import Dominating
from cls_analysis.diagnosis.thresholds import Limits


class UnequalVariances(Rule):
    """Standard deviations differ widely."""

    code = "CLS201"
    name = "unequal-variances"
    axis = "variance"
    measures = (
        "the largest over the median standard deviation of the living dimensions, over the same ratio of isotropic ones"
    )
    source = "IsoBN, Zhou et al. 2021 (per-dimension standard deviations differ widely)"
    meaning = (
        "Dimensions that vary most get the largest gradients; one learning rate is too high for them or too low for "
        "the rest."
    )
    remedy = "`standardize` or `batchnorm`; `isobn` does it by halves and leaves the mean."
    verify = f"std_ratio is 1 after it; {COMPARE}."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Compare the ratio with its null."""
        ratio, null = evidence.figure("std_ratio"), evidence.null("std_ratio")
        reached = limits.reached(self.code, ratio / null)
        if reached is None:
            return None
        widest = int(np.argmax(evidence.layer.moments.std))
        text = (
            f"the widest dimension ({widest}) has {ratio:.2f} times the median standard deviation ({null:.2f} if "
            "isotropic)"
        )
        dimensions = ordered(evidence.variance_dominant, evidence.layer.moments.variance)
        return Judgement(reached[0], ratio / null, reached[1], text, 1.0, dimensions)


class DominatingVariance(Dominating):
    """Single dimensions hold much of the length, by their variance."""

    code = "CLS202"
    name = "dominating-dimension-by-variance"
    axis = "variance"
    by_mean = False
    measures = "E[x_i²]/E‖x‖² of outlier dimensions whose variance is at least their squared mean; 1/d if even"
    source = "Zhou, Du and Ren 2019 (values concentrate on few dimensions); Rudman et al. 2023"
    meaning = "One or a few numbers decide lengths, cosines and neighbours, and their weights get most of the gradient."
    remedy = "`standardize` or `batchnorm`; centring does nothing to them."
    verify = f"`stats --by dimension` shows their energy share; {COMPARE}."


class VarianceOutliers(Rule):
    """Outlier dimensions of the variance."""

    code = "CLS203"
    name = "variance-outlier-dimensions"
    axis = "variance"
    measures = "dimensions with Var_i at least five times the mean variance, beyond what chance gives the largest of d"
    source = "Rudman et al. 2023; the null is ours"
    meaning = "These dimensions vary far more than the others; they may carry much of what the encoder says of a text."
    remedy = "`standardize`, which evens them; removing them can lose information, so look at the probe first."
    verify = f"The column `outlier` of `stats --by dimension` is empty after it; {COMPARE}."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """List them, the widest first."""
        variance = evidence.layer.moments.variance
        ratio = variance / variance.mean()
        limit = limits[f"{self.code}.warning"]
        # Not the predicate of the tables, whose factor is fixed: a lower limit must find more.
        dimensions = ordered(evidence.variance_certain & (ratio >= limit), ratio)
        if not dimensions:
            return None
        text = (
            f"{count(dimensions)} with far more variance than the others: {listed(dimensions)}; "
            f"{ratio[dimensions[0]]:.0f} times the mean variance in dimension {dimensions[0]}"
        )
        return Judgement("warning", float(ratio[dimensions[0]]), limit, text, 1.0, dimensions)
