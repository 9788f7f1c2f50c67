"""Rules: one file a family, one small class a rule."""

from cls_analysis.diagnosis.rules.base import Rule
from cls_analysis.diagnosis.rules.registry import all_rules, catalogue, rule_codes

__all__ = ["Rule", "all_rules", "catalogue", "rule_codes"]
