"""Rules of the axis tails: how values of one dimension are distributed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cls_analysis.diagnosis.evidence import Evidence, ordered
from cls_analysis.diagnosis.findings import Finding, Judgement, count, listed
from cls_analysis.diagnosis.rules.base import Rule
from cls_analysis.diagnosis.thresholds import Limits
from cls_analysis.statistics import nulls

#: Beyond this, tanh passes less than 2 % of a gradient.
SATURATED = 0.99


class HeavyTails(Rule):
    """Single texts have extreme values."""

    code = "CLS401"
    name = "heavy-tails"
    axis = "tails"
    measures = (
        "excess kurtosis g2 of each dimension over the texts, above 3 and above the normal-theory quantile for the "
        "largest "
        "of d; a warning where many dimensions are so"
    )
    source = "Anscombe and Glynn 1983 (null); limits ours"
    meaning = "A few texts with extreme values give rare, large gradients; mean and variance rest on them."
    remedy = (
        "Look at those texts first (empty, cut, another language?); clip gradients; `layernorm` bounds single vectors."
    )
    verify = "max_kurtosis_excess without those texts."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Count the dimensions beyond both limits."""
        layer = evidence.layer
        kurtosis = np.where(layer.living, layer.moments.kurtosis_excess, np.nan)
        effect, chance = limits[f"{self.code}.note"], nulls.largest_kurtosis(layer.n, layer.dim)
        with np.errstate(invalid="ignore"):
            heavy = (kurtosis >= effect) & (kurtosis > chance)
        dimensions = ordered(heavy, np.nan_to_num(kurtosis))
        if not dimensions:
            return None
        share, many = len(dimensions) / layer.dim, limits[f"{self.code}.warning"]
        text = (
            f"{count(dimensions)} with heavy tails: {listed(dimensions)}; excess kurtosis "
            f"{kurtosis[dimensions[0]]:.1f} in dimension {dimensions[0]} (at most {chance:.1f} if Gaussian)"
        )
        if share >= many:
            return Judgement("warning", share, many, text, 0.0, dimensions)
        return Judgement("note", float(kurtosis[dimensions[0]]), effect, text, chance, dimensions)


class SaturatedPooler(Rule):
    """The pooler's tanh is at its ends."""

    code = "CLS402"
    name = "saturated-pooler"
    axis = "tails"
    measures = "the share of the pooler's values beyond ±0.99 in the sampled rows, only for the source `pooler`"
    source = "tanh' = 1 − tanh²; limits ours"
    meaning = "Gradients hardly pass through a saturated tanh: the pooler's weights, and [CLS] below it, learn slowly."
    remedy = "Read [CLS] itself (`--source cls`, head `linear`), or normalise before the pooler's tanh."
    verify = "The gradient norm at [CLS] in the first steps, with and without the pooler."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Look at the sampled values."""
        if evidence.profile.provenance.source != "pooler":
            return None
        beyond = np.abs(evidence.layer.sample) > SATURATED
        share = float(beyond.mean())
        reached = limits.reached(self.code, share)
        if reached is None:
            return None
        dimensions = ordered(beyond.mean(axis=0) > 0.5, beyond.mean(axis=0))
        text = f"{share:.1%} of the pooler's values lie beyond ±{SATURATED}, in {count(dimensions)} for most texts"
        return Judgement(reached[0], share, reached[1], text, 0.0, dimensions)
