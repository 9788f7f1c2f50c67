"""Diagnosis: what is wrong with an encoder's vectors, how sure that is, and what to do."""

from cls_analysis.diagnosis.findings import Finding
from cls_analysis.diagnosis.thresholds import Limits
from cls_analysis.diagnosis.verdict import Diagnosis, diagnose

__all__ = ["Diagnosis", "Finding", "Limits", "diagnose"]
