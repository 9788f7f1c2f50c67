"""All rules: how they are found, and their page in the documentation."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from cls_analysis.diagnosis.rules.base import Rule
from cls_analysis.diagnosis.thresholds import THRESHOLDS

#: The files of the rules, one a family.
FAMILIES = ("mean", "variance", "spectrum", "tails", "sample", "precision")


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
        importlib.import_module(f"cls_analysis.diagnosis.rules.{family}")


def _leaves(kind: Any) -> Iterator[Any]:
    for child in kind.__subclasses__():
        yield from _leaves(child) if child.__subclasses__() else [child]
