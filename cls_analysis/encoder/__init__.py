"""Frozen encoders: loading, limits, tokens, vectors."""

from cls_analysis.encoder.encoder import DTYPES, SOURCES, Encoder
from cls_analysis.encoder.loading import EMBEDDED

__all__ = ["DTYPES", "EMBEDDED", "SOURCES", "Encoder"]
