"""Normalisations of [CLS] as modules."""

from cls_analysis.normalization.making import make_norm
from cls_analysis.normalization.norms import Norm

__all__ = ["Norm", "make_norm"]
