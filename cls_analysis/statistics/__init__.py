"""Functions of a Profile or of arrays; NumPy and SciPy only."""

from cls_analysis.statistics.tables import describe, describe_all, summarize, summarize_all

__all__ = ["describe", "describe_all", "summarize", "summarize_all"]
