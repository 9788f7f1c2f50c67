"""Frozen encoders: loading, limits, tokens, vectors."""

from cls_analysis.checkpoints import EMBEDDED
from cls_analysis.encoder.encoder import DTYPES, SOURCES, Encoder

__all__ = ["DTYPES", "EMBEDDED", "SOURCES", "Encoder"]
