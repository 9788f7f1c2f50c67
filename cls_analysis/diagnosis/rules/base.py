"""``Rule``: what all rules are.

A rule is one small class in the file of its family. It has its texts as class attributes, its limits in the table of
``thresholds``, and one method that looks at the evidence of a layer.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.diagnosis.findings import Finding, Judgement
from cls_analysis.diagnosis.thresholds import Limits

#: How most remedies are checked.
COMPARE = "fine-tune with and without it over the same seeds"


class Rule(ABC):
    """One rule.

    Attributes
    ----------
    code, name, axis : str
        ``CLS101``, ``common-mean``, ``mean``.
    measures, source, meaning, remedy, verify : str
        What is measured; where the rule comes from; what it means for a classifier; what to do; how to check it.
    once : bool
        Whether it looks at the rows rather than at a layer, and so reports once for all layers.
    of_collapsed : bool
        Whether it applies to a layer that is one vector for all texts.
    concludes : bool
        Whether it needs the other findings of the layer, and so comes after them.
    """

    code: ClassVar[str]
    name: ClassVar[str]
    axis: ClassVar[str]
    measures: ClassVar[str]
    source: ClassVar[str]
    meaning: ClassVar[str]
    remedy: ClassVar[str]
    verify: ClassVar[str]
    once: ClassVar[bool] = False
    of_collapsed: ClassVar[bool] = False
    concludes: ClassVar[bool] = False

    @abstractmethod
    def judge(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Judgement | None:
        """Look at one layer; None where there is nothing to report. ``found`` is for rules that conclude."""

    def finding(self, evidence: Evidence, limits: Limits, found: Sequence[Finding]) -> Finding | None:
        """The judgement with the rule's texts."""
        judgement = self.judge(evidence, limits, found)
        if judgement is None:
            return None
        return Finding(
            code=self.code,
            name=self.name,
            axis=judgement.axis or self.axis,
            severity=judgement.severity,
            layer=evidence.number,
            dimensions=judgement.dimensions,
            value=judgement.value,
            null=judgement.null,
            threshold=judgement.threshold,
            evidence=judgement.evidence,
            source=self.source,
            meaning=self.meaning,
            remedy=self.remedy,
            verify=self.verify,
        )
