"""``Rule``: what all rules are, and how the known ones are found.

A rule is one small class in the file of its family. It has its texts as class attributes, its limits in the table of
``thresholds``, and one method that looks at the evidence of a layer.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.diagnosis.findings import Finding, Judgement
from cls_analysis.diagnosis.thresholds import THRESHOLDS, Limits

#: The files of the rules, one a family.
FAMILIES = ("mean", "variance", "spectrum", "tails", "sample", "precision")
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


def all_rules() -> list[Rule]:
    """Every rule, those that conclude last, else by code; a subclass of ``Rule`` that a user defines counts too."""
    _load_families()
    return sorted((kind() for kind in _leaves(Rule)), key=lambda rule: (rule.concludes, rule.code))


def rule_codes() -> list[str]:
    """The codes of all rules."""
    return sorted(rule.code for rule in all_rules())


def catalogue() -> str:
    """The rules as a Markdown page, one paragraph each, with the table of limits: ``docs/rules.md``."""
    rules = sorted(all_rules(), key=lambda rule: rule.code)
    lines = [
        "# Rules",
        "",
        "What `cls-analysis diagnose` looks for. This page is generated from the rules (`make docs`). A limit is",
        "changed with `--threshold CLS101.warning=0.2` or in a TOML file (`--thresholds FILE`), a rule left out with",
        "`--ignore CLS101`. *Null* is what an isotropic Gaussian of the same n and d gives.",
        "",
    ]
    for rule in rules:
        lines += [f"## {rule.code} {rule.name}", "", _paragraph(rule), ""]
    lines += ["## Limits", "", "| limit | value | of | source |", "|---|---|---|---|"]
    for key, limit in THRESHOLDS.items():
        sign = "≥" if limit.higher_is_worse and limit.value else ">" if limit.higher_is_worse else "≤"
        lines.append(f"| {key} | {sign} {limit.value:g} | {limit.what} | {limit.source} |")
    return "\n".join(lines) + "\n"


def _paragraph(rule: Rule) -> str:
    return (
        f"Axis: {rule.axis}. Measures {rule.measures}. *Means:* {rule.meaning} *Remedy:* {rule.remedy} "
        f"*Verify:* {rule.verify} *Source:* {rule.source}."
    )


@lru_cache(maxsize=1)
def _load_families() -> None:
    for family in FAMILIES:
        importlib.import_module(f"cls_analysis.diagnosis.{family}")


def _leaves(kind: Any) -> Iterator[Any]:
    for child in kind.__subclasses__():
        yield from _leaves(child) if child.__subclasses__() else [child]
