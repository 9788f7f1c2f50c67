"""Rows of text: where they come from and what they must be."""

from cls_analysis.texts.sources import SAMPLES, load_texts
from cls_analysis.texts.table import Texts

__all__ = ["SAMPLES", "Texts", "load_texts"]
