"""Rules of the axis sample: whether the rows allow a diagnosis at all."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.diagnosis.findings import Finding, Judgement, count, listed
from cls_analysis.diagnosis.rules.base import Rule
from cls_analysis.diagnosis.thresholds import Limits

BIASED = "IsoScore, participation ratio, effective rank and EV1 to EV3"


class TooFewRows(Rule):
    """Few rows for so many dimensions."""

    code = "CLS501"
    name = "too-few-rows"
    axis = "sample"
    once = True
    measures = "rows per dimension, n/d"
    source = "Marchenko and Pastur 1967: eigenvalues of n rows spread although the true ones are equal"
    meaning = (
        "Figures of the spectrum are biased by n: isotropic vectors look anisotropic. Compare them at equal n, or "
        "with their null."
    )
    remedy = "More texts, ten or more a dimension; any texts of the domain will do, without labels."
    verify = "`diagnose --how-many` shows each figure against n."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Compare n with d, and say which figures suffer."""
        n, d, living = evidence.layer.n, evidence.layer.dim, int(evidence.layer.living.sum())
        reached = limits.reached(self.code, n / d)
        if reached is None:
            return None
        text = f"{n:,} rows for {d} dimensions: {BIASED} are for this n only, to be read against their nulls"
        if n <= living:
            text += f"; the condition number needs more than {living} rows and is undefined"
        if n < 100:
            text += "; the common mean share and the intervals are rough below 100 rows"
        return Judgement(reached[0], n / d, reached[1], text)


class TruncatedRows(Rule):
    """Texts were cut at the length limit."""

    code = "CLS502"
    name = "truncated-rows"
    axis = "sample"
    once = True
    measures = "the share of rows longer than the encoder's limit, of which only the beginning was read"
    source = "ours"
    meaning = "The vectors describe beginnings of texts; a classifier on them never sees the ends."
    remedy = "A larger --max-length if positions allow it, shorter texts, or a model for long inputs."
    verify = "rows_cut is 0."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Read the count in the Profile."""
        origin = evidence.profile.provenance
        share = origin.rows_cut / evidence.layer.n
        reached = limits.reached(self.code, share)
        if reached is None:
            return None
        length = origin.encoder.max_length if origin.encoder else 0
        text = f"{origin.rows_cut:,} of {evidence.layer.n:,} rows ({share:.1%}) were cut at {length} tokens"
        return Judgement(reached[0], share, reached[1], text, 0.0)


class ConstantDimensions(Rule):
    """Dimensions that never vary."""

    code = "CLS503"
    name = "constant-dimensions"
    axis = "sample"
    measures = "dimensions whose spread is nil or below the rounding of the encoder's dtype"
    source = "design of the moments: max = min, std ≤ 1e-6 of the median one, or ≤ 16 roundings"
    meaning = (
        "They carry nothing now. Dividing by their standard deviation gives infinities; fine-tuning may revive them."
    )
    remedy = "Nothing for the vectors as they are; a normalisation must guard them, as those of this package do."
    verify = "n_constant on other texts."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """List them."""
        dead = tuple(int(i) for i in np.flatnonzero(evidence.layer.dead))
        share = len(dead) / evidence.layer.dim
        reached = limits.reached(self.code, share)
        if reached is None:
            return None
        text = f"{count(dead)} {'does' if len(dead) == 1 else 'do'} not vary: {listed(dead)}"
        return Judgement(reached[0], share, reached[1], text, 0.0, dead)


class Collapse(Rule):
    """All texts have the same vector."""

    code = "CLS504"
    name = "collapse"
    axis = "sample"
    of_collapsed = True
    measures = "whether the vectors of all texts agree to the rounding of the encoder's dtype"
    source = "the rounding of one text in differently padded batches, below 1e-6 of the length"
    meaning = "The vector says nothing of the text: no classifier can work on it, and no figure of shape is defined."
    remedy = (
        "Check the texts (one repeated?), the tokenizer (all unknown words?) and the weights; no normalisation helps."
    )
    verify = "Two different texts give different vectors."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """See whether any dimension lives."""
        layer = evidence.layer
        if not layer.collapsed or layer.n < 2:
            return None
        spread = (
            float(np.sqrt(layer.moments.variance.sum() / layer.moments.energy.sum())) if layer.n_zero < layer.n else 0.0
        )
        rounding = f": they differ by {spread:.1e} of its length, which is rounding" if spread else ""
        text = f"{layer.n:,} rows are one vector{rounding}"
        return Judgement("severe", 1.0, limits[f"{self.code}.severe"], text, 0.0)


class ZeroVectors(Rule):
    """Rows without any direction."""

    code = "CLS505"
    name = "zero-vectors"
    axis = "sample"
    measures = "the share of rows that are zero in every dimension"
    source = "a cosine with a zero vector is 0/0"
    meaning = "They have no direction and are left out of every cosine; often they stand for missing texts."
    remedy = "Find out where they come from, and leave those rows out."
    verify = "n_zero is 0."

    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Read the count in the Profile."""
        share = evidence.layer.n_zero / evidence.layer.n
        reached = limits.reached(self.code, share)
        if reached is None:
            return None
        return Judgement(reached[0], share, reached[1], f"{evidence.layer.n_zero:,} rows are zero ({share:.1%})", 0.0)
