"""``diagnose``: a Profile in, a ``Diagnosis`` out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cls_analysis.diagnosis.agreement import Definition, definitions
from cls_analysis.diagnosis.effects.removal import removal_table
from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.diagnosis.findings import AXES, SHAPE_AXES, Finding, above_note, listed, rank, worst
from cls_analysis.diagnosis.measures import condition_table, contribution_table, figure_table
from cls_analysis.diagnosis.recommendation import Recommendation, recommend
from cls_analysis.diagnosis.rules import Rule, all_rules
from cls_analysis.diagnosis.sufficiency import Sufficiency, judge_sufficiency
from cls_analysis.diagnosis.thresholds import Limits
from cls_analysis.errors import ClsAnalysisError, OptionError, one_line
from cls_analysis.profiles import Profile
from cls_analysis.texts import Texts
from cls_analysis.weights import LayerNorm

if TYPE_CHECKING:
    from cls_analysis.diagnosis.effects.probe import ProbeResult


@dataclass(frozen=True, repr=False)
class Diagnosis:
    """What is wrong with the vectors of one Profile, how sure that is, and what to do.

    Attributes
    ----------
    profile : Profile
    layer : int
        The layer that the tables below are of: the one a classifier reads.
    findings : tuple of Finding
        Of that layer first, the worst first, then of the others from the top.
    recommendation : Recommendation
    figures, conditions, contributions, removal : DataFrame
        Main figures with null and interval; condition numbers after each normalisation; contributions to the average
        cosine; what removing the worst dimensions changes. Empty where the layer is collapsed.
    definitions : list of Definition
        Outlier dimensions by every definition.
    probe : ProbeResult or None
        What normalising does to a linear classifier, where labels were given; ``no_probe`` says why there is none.
    sufficiency : Sufficiency or None
        Whether n rows are enough, where that was asked for.
    """

    profile: Profile
    layer: int
    findings: tuple[Finding, ...]
    recommendation: Recommendation
    figures: pd.DataFrame
    conditions: pd.DataFrame
    contributions: pd.DataFrame
    removal: pd.DataFrame
    definitions: list[Definition]
    probe: ProbeResult | None = None
    no_probe: str = ""
    sufficiency: Sufficiency | None = None

    def __repr__(self) -> str:
        profile = self.profile
        return f"Diagnosis({profile.encoder!r} on {profile.dataset!r}, layer {self.layer}: {self.verdict()!r})"

    @property
    def worst_severity(self) -> str | None:
        """The worst severity in any layer; None where nothing was found."""
        return worst(self.findings)

    @property
    def recommended_normalization(self) -> str:
        """Name of the recommended normalisation, as ``make_norm`` takes it."""
        return self.recommendation.normalization

    def of_layer(self, number: int) -> list[Finding]:
        """The findings of one layer."""
        return [finding for finding in self.findings if finding.layer == number]

    def verdict(self) -> str:
        """One sentence on the judged layer: each axis with its worst severity, and what to do."""
        if self.profile[self.layer].collapsed:
            return _without_shape(Evidence(self.profile, self.layer))
        bad = above_note(self.of_layer(self.layer), SHAPE_AXES)
        if not bad:
            few = any(finding.code == "CLS501" and finding.severity != "note" for finding in self.of_layer(self.layer))
            return f"near isotropic{', as far as so few rows can show' if few else ''}: nothing to normalise."
        parts = [_on_axis(axis, [finding for finding in bad if finding.axis == axis]) for axis in SHAPE_AXES]
        return f"{'; '.join(filter(None, parts))}. Try {self.recommendation.normalization}: {self.recommendation.why}."


def diagnose(
    profile: Profile,
    *,
    layer: int = -1,
    texts: Texts | None = None,
    limits: Limits | None = None,
    layer_norms: Sequence[LayerNorm] = (),
    intervals: bool = True,
    how_many: bool = False,
) -> Diagnosis:
    """Say what is wrong with a Profile's vectors, how sure that is, and what to do.

    Parameters
    ----------
    profile : Profile
    layer : int, default -1
        The layer that a classifier reads: its tables are given in full. Findings are of all layers.
    texts : Texts, optional
        The texts of the Profile. If they have labels, a linear probe says whether normalising matters for them.
    limits : Limits, optional
        Thresholds and switched-off rules other than the default.
    layer_norms : list of LayerNorm, optional
        The encoder's output LayerNorms, for the definitions of outlier dimensions that read them.
    intervals : bool, default True
        Intervals of the main figures by half-sampling; they take most of the time.
    how_many : bool, default False
        Also judge whether n rows are enough.

    Raises
    ------
    ProfileError
        If the Profile does not hold the layer.
    OptionError
        If the texts are not those of the Profile.
    """
    limits = limits or Limits()
    evidence = Evidence(profile, layer)
    findings = _all_findings(profile, evidence, limits)
    own = [finding for finding in findings if finding.layer == evidence.number]
    collapsed = evidence.layer.collapsed
    result, reason = (None, "") if texts is None or collapsed else _probe(evidence, texts)
    return Diagnosis(
        profile=profile,
        layer=evidence.number,
        findings=tuple(findings),
        recommendation=recommend(evidence, own),
        figures=figure_table(evidence, intervals=intervals),
        conditions=pd.DataFrame() if collapsed else condition_table(evidence),
        contributions=pd.DataFrame() if collapsed else contribution_table(evidence),
        removal=removal_table(evidence),
        definitions=definitions(evidence, layer_norms),
        probe=result,
        no_probe=reason,
        sufficiency=judge_sufficiency(evidence) if how_many else None,
    )


def _without_shape(evidence: Evidence) -> str:
    """Why a layer has no shape to speak of."""
    if evidence.layer.n < 2:
        return "one row only: no figure of shape is defined."
    if evidence.expected_constant:
        return "one vector for all texts, by construction: [CLS] before the first block has seen none of them."
    return "collapsed: all texts have the same vector."


def _on_axis(axis: str, findings: Sequence[Finding]) -> str:
    """``mean severe, led by dimensions 99, 125 (common-mean, …)``; empty without findings."""
    if not findings:
        return ""
    dimensions = tuple(dict.fromkeys(number for finding in findings for number in finding.dimensions))
    led = f", led by dimension{'s' if len(dimensions) > 1 else ''} {listed(dimensions, 3)}" if dimensions else ""
    return f"{axis} {worst(findings)}{led} ({', '.join(finding.name for finding in findings)})"


def _all_findings(profile: Profile, main: Evidence, limits: Limits) -> list[Finding]:
    rules = [rule for rule in all_rules() if rule.code not in limits.ignored]
    order = [main.number, *sorted((number for number in profile.layers if number != main.number), reverse=True)]
    findings = []
    for number in order:
        evidence = main if number == main.number else Evidence(profile, number)
        findings += sorted(_findings(evidence, rules, limits, is_main=evidence is main), key=_gravity)
    return findings


def _findings(evidence: Evidence, rules: Sequence[Rule], limits: Limits, *, is_main: bool) -> list[Finding]:
    found: list[Finding] = []
    for rule in rules:
        if evidence.expected_constant and not rule.once:
            continue
        if (rule.once and not is_main) or (evidence.layer.collapsed and not (rule.once or rule.of_collapsed)):
            continue
        if finding := rule.finding(evidence, limits, found):
            found.append(finding)
    return found


def _gravity(finding: Finding) -> tuple[int, int, str]:
    return -rank(finding.severity), AXES.index(finding.axis), finding.code


def _probe(evidence: Evidence, texts: Texts) -> tuple[ProbeResult | None, str]:
    """The probe on the sampled rows that have a label, or why there is none."""
    held = {dataset.hash for dataset in evidence.profile.provenance.datasets}
    if held != {texts.hash}:
        raise OptionError(f"the Profile is of {evidence.profile.dataset}, the texts given are {texts.identity.label}")
    if texts.label is None:
        return None, "the texts have no labels"
    label_of = dict(zip(texts.row_id.tolist(), texts.label, strict=True))
    missing = [int(row) for row in evidence.layer.sample_ids if int(row) not in label_of]
    if missing:
        raise OptionError(f"the texts given lack row {missing[0]} of the Profile (another --limit or --first?)")
    labels = [label_of[int(row)] for row in evidence.layer.sample_ids]
    # scikit-learn takes a second to import, and only a probe needs it.
    from cls_analysis.diagnosis.effects.probe import probe  # noqa: PLC0415

    try:
        return probe(np.asarray(evidence.layer.sample), labels), ""
    except ClsAnalysisError as error:
        return None, one_line(error)
