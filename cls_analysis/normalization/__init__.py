"""Normalisations of [CLS] as modules."""

from cls_analysis.normalization.attaching import attach_norm, attached_norms, detach_norm
from cls_analysis.normalization.folding import fold_norm
from cls_analysis.normalization.heads import LinearHeadClassifier
from cls_analysis.normalization.making import make_norm
from cls_analysis.normalization.norms import Norm
from cls_analysis.normalization.saving import load_classifier, save_classifier

__all__ = [
    "LinearHeadClassifier",
    "Norm",
    "attach_norm",
    "attached_norms",
    "detach_norm",
    "fold_norm",
    "load_classifier",
    "make_norm",
    "save_classifier",
]
