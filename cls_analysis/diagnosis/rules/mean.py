"""Rules of the axis mean: what all vectors have in common."""

from __future__ import annotations

from collections.abc import Sequence

from cls_analysis.diagnosis.evidence import Evidence, ordered
from cls_analysis.diagnosis.findings import SHAPE_AXES, Finding, Judgement, above_note, count, listed
from cls_analysis.diagnosis.rules.base import COMPARE, Rule
from cls_analysis.diagnosis.rules.dominance import Dominating
from cls_analysis.diagnosis.thresholds import Limits
from cls_analysis.statistics import nulls


class CommonMean(Rule):
    """All vectors share one long part."""

    code = "CLS101"
    name = "common-mean"
    axis = "mean"
    measures = "‖μ‖²/E‖x‖², the share of the squared length that all vectors have in common; 1/n for isotropic ones"
    source = "Zhou, Du and Ren 2019 (the embedding is not zero-centred)"
    meaning = (
        "A linear layer on top sees mostly one constant vector. It acts as a second bias with a large learning rate, "
        "its "
        "direction dominates the gradient of the weights, and cosines between texts say little."
    )
    remedy = "`center`, which subtracts the mean; `standardize` or `batchnorm` where scales differ as well."
    verify = f"The common mean share is 0 after centring; {COMPARE}."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Compare the share with its limit, and with what chance gives at this n."""
        share = evidence.figure("common_mean_share")
        chance = nulls.common_mean_quantile(evidence.layer.n, evidence.figure("participation_ratio"))
        reached = limits.reached(self.code, share, certain=share > chance)
        if reached is None:
            return None
        text = (
            f"{share:.1%} of the squared length is common to all vectors ({evidence.null('common_mean_share'):.1%} if "
            f"isotropic); the average cosine of two texts is {evidence.figure('average_cosine'):.2f}"
        )
        dimensions = ordered(evidence.mean_dominant, evidence.layer.moments.mean**2)
        return Judgement(reached[0], share, reached[1], text, evidence.null("common_mean_share"), dimensions)


class DominatingMean(Dominating):
    """Single dimensions hold much of the length, by their mean."""

    code = "CLS102"
    name = "dominating-dimension-by-mean"
    axis = "mean"
    by_mean = True
    measures = "E[x_i²]/E‖x‖² of outlier dimensions whose squared mean is larger than their variance; 1/d if even"
    source = "Zhou, Du and Ren 2019 (values concentrate on few dimensions); Timkey and van Schijndel 2021"
    meaning = (
        "One or a few numbers decide lengths, cosines and neighbours, and the weights that read them get most of the "
        "gradient, although they are nearly the same for every text."
    )
    remedy = "`center` takes the mean of these dimensions away; `standardize` also evens what is left of them."
    verify = f"`stats --by dimension` shows their energy share; {COMPARE}."


class MeanOutliers(Rule):
    """Outlier dimensions of the mean."""

    code = "CLS103"
    name = "mean-outlier-dimensions"
    axis = "mean"
    measures = (
        "dimensions with μ_i² at least five times the even share of the energy, and |μ_i|√n/σ_i above the normal "
        "quantile "
        "with Bonferroni's correction for d dimensions"
    )
    source = "after Rudman et al. 2023, who take the variance; the null is ours"
    meaning = (
        "These dimensions are far from zero for every text. Layers that follow and weight decay treat them like any "
        "other."
    )
    remedy = "`center` or `standardize`; the table of removals shows what leaving them out would change."
    verify = f"The column `outlier` of `stats --by dimension` is empty after the normalisation; {COMPARE}."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """List them, the largest first."""
        moments = evidence.layer.moments
        ratio = moments.mean**2 * evidence.layer.dim / moments.energy.sum()
        limit = limits[f"{self.code}.warning"]
        # Not the predicate of the tables, whose factor is fixed: a lower limit must find more.
        dimensions = ordered(evidence.mean_certain & (ratio >= limit), ratio)
        if not dimensions:
            return None
        first = dimensions[0]
        text = (
            f"{count(dimensions)} with a mean far from zero: {listed(dimensions)}; "
            f"μ = {moments.mean[first]:.2f} in dimension {first} ({ratio[first]:.0f} even shares of the energy)"
        )
        return Judgement("warning", float(ratio[first]), limit, text, 1.0 / evidence.layer.n, dimensions)


class MeanAlone(Rule):
    """The anisotropy is the mean's alone."""

    code = "CLS104"
    name = "cured-by-centring"
    axis = "mean"
    concludes = True
    measures = "the RMS cosine of the vectors after their mean is subtracted, over 1/√d; the average cosine cannot tell"
    source = "ours"
    meaning = (
        "The vectors are anisotropic because of their mean alone: what is left after centring spreads in all "
        "directions."
    )
    remedy = "`center` is enough; nothing that scales or rotates is needed."
    verify = "The RMS cosine after centring stays near 1/√d on other texts."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Only where the mean is biased, and nothing of variance or spectrum remains."""
        mean, rest = above_note(found, ("mean",)), [f for f in found if f.axis in SHAPE_AXES and f.axis != "mean"]
        if not mean or rest:
            return None
        after, null = evidence.directions("center").rms_cosine, evidence.cosine_null
        reached = limits.reached(self.code, after / null)
        if reached is None:
            return None
        before = evidence.directions("none").rms_cosine
        text = (
            f"centring lowers the RMS cosine from {before:.3f} to {after:.3f}, {after / null:.2f} times its isotropic "
            "value"
        )
        return Judgement(reached[0], after / null, reached[1], text, 1.0)
