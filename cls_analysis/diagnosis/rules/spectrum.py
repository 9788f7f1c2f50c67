"""Rules of the axis spectrum: directions, not dimensions, that hold the variance."""

from __future__ import annotations

from collections.abc import Sequence

from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.diagnosis.findings import Finding, Judgement
from cls_analysis.diagnosis.rules.base import COMPARE, Rule
from cls_analysis.diagnosis.thresholds import Limits
from cls_analysis.statistics.spectrum import effective_rank, explained_variance

REMEDY = (
    "`whiten` with at least ten rows a dimension, else `all-but-the-top`; scaling single dimensions does nothing to it."
)


class CorrelatedDimensions(Rule):
    """Dimensions go together."""

    code = "CLS301"
    name = "correlated-dimensions"
    axis = "spectrum"
    measures = "the mean |r| over pairs of living dimensions, minus E|r| of independent ones at this n"
    source = "IsoBN, Zhou et al. 2021 (dimensions are highly correlated)"
    meaning = "Weights of correlated dimensions do the same work; the gradient moves them together and others slowly."
    remedy = f"`isobn`, which weakens groups of correlated dimensions; {REMEDY}"
    verify = f"mean_abs_correlation near its null after whitening; {COMPARE}."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Compare the excess over the null."""
        value, null = evidence.figure("mean_abs_correlation"), evidence.null("mean_abs_correlation")
        reached = limits.reached(self.code, value - null)
        if reached is None:
            return None
        text = f"two dimensions correlate by |r| = {value:.3f} on average ({null:.3f} if independent, at this n)"
        return Judgement(reached[0], value - null, reached[1], text, 0.0)


class LowEffectiveRank(Rule):
    """The variance fills few directions."""

    code = "CLS302"
    name = "low-effective-rank"
    axis = "spectrum"
    measures = (
        "exp of the entropy of the covariance's eigenvalues, over the same of an isotropic Gaussian of this n and d"
    )
    source = "Roy and Vetterli 2007, on eigenvalues of the centred covariance"
    meaning = (
        "The vectors use fewer directions than they have dimensions; what tells texts apart lies there. Where only "
        "single dimensions vary more than others, so that standardising cures it, the axis is variance."
    )
    remedy = REMEDY
    verify = f"effective_rank near its null; {COMPARE}."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Compare the ratio to the null, which small n lowers alike."""
        value, null = evidence.figure("effective_rank"), evidence.null("effective_rank")
        reached = limits.reached(self.code, value / null)
        if reached is None:
            return None
        of_scales = limits.reached(self.code, effective_rank(evidence.standardized_spectrum) / null) is None
        text = (
            f"effective rank {value:.0f} of {evidence.layer.dim}, {value / null:.0%} of what isotropic vectors have at "
            f"n = {evidence.layer.n:,} ({null:.0f}); IsoScore {evidence.figure('isoscore'):.2f} "
            f"({evidence.null('isoscore'):.2f})"
        )
        return Judgement(reached[0], value / null, reached[1], text, 1.0, axis="variance" if of_scales else None)


class DominatingComponents(Rule):
    """Three principal components hold much of the variance."""

    code = "CLS303"
    name = "dominating-components"
    axis = "spectrum"
    measures = (
        "EV3, the share of the variance in the first three principal components, minus the same of isotropic vectors"
    )
    source = "IsoBN, Zhou et al. 2021 (EV_k); Mu and Viswanath 2018"
    meaning = (
        "A few directions, often frequency, length or topic, decide which texts are near; they need not be the task's. "
        "The axis is variance where standardising cures it."
    )
    remedy = "`all-but-the-top`, which removes the first d/100 components, or `whiten`."
    verify = f"ev1 to ev3 near their nulls; {COMPARE}."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Compare the excess over the null."""
        value, null = evidence.figure("ev3"), evidence.null("ev3")
        reached = limits.reached(self.code, value - null)
        if reached is None:
            return None
        standardized = float(explained_variance(evidence.standardized_spectrum)[:3][-1])
        of_scales = limits.reached(self.code, standardized - null) is None
        text = (
            f"three principal components hold {value:.1%} of the variance ({null:.1%} if isotropic, at this n); "
            f"{standardized:.1%} after standardising"
        )
        return Judgement(reached[0], value - null, reached[1], text, 0.0, axis="variance" if of_scales else None)


class IllConditioned(Rule):
    """Plain gradient descent is slow on these vectors."""

    code = "CLS304"
    name = "ill-conditioned"
    axis = "spectrum"
    measures = "λmax/λmin of E[x xᵀ] over living dimensions, over the same of an isotropic Gaussian of this n"
    source = "the convergence bound of gradient descent on least squares; limits ours"
    meaning = (
        "Plain gradient descent needs of the order of this ratio more steps in the flattest direction. AdamW is "
        "slowed only "
        "in part, since it scales single weights. The axis is that of the normalisation which cures it: centring "
        "(mean), "
        "standardising (variance), or neither (spectrum)."
    )
    remedy = "The first of `center`, `standardize`, `whiten` that lowers the condition number (see the table of them)."
    verify = f"The condition number after it; steps to a given training loss; {COMPARE}."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Compare the ratio to the null, and see what cures it."""
        null = evidence.null("condition_number")
        value = evidence.condition("none")
        reached = limits.reached(self.code, value / null)
        if reached is None:
            return None
        after = {name: evidence.condition(name) for name in ("center", "standardize")}
        mild = limits[f"{self.code}.warning"] * null
        axis = "mean" if after["center"] < mild else "variance" if after["standardize"] < mild else "spectrum"
        text = (
            f"condition number {large(value)} ({large(null)} if isotropic); after centring {large(after['center'])}, "
            f"after standardising {large(after['standardize'])}"
        )
        return Judgement(reached[0], value / null, reached[1], text, 1.0, axis=axis)


def large(value: float) -> str:
    """A condition number: whole up to a million, then as a power of ten."""
    return f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"
