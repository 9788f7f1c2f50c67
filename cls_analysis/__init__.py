"""Embedding-distribution analysis of encoders: what is wrong with a [CLS] vector, and whether normalising it helps.

The names below load on first use, so that tables and figures start without torch.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cls_analysis.diagnosis import Diagnosis, Finding, Limits, diagnose
    from cls_analysis.encoder import Encoder
    from cls_analysis.errors import ClsAnalysisError
    from cls_analysis.extraction import compute_profile, extract_tokens, extract_vectors
    from cls_analysis.matrices import profile_matrix, profile_vectors
    from cls_analysis.moments import Moments
    from cls_analysis.normalization import (
        attach_norm,
        detach_norm,
        fold_norm,
        load_classifier,
        make_norm,
        save_classifier,
    )
    from cls_analysis.profiles import LayerProfile, Profile
    from cls_analysis.statistics import describe, summarize
    from cls_analysis.texts import Texts, load_texts

#: Public name -> the module that holds it.
_HOMES = {
    "ClsAnalysisError": "errors",
    "Diagnosis": "diagnosis",
    "Encoder": "encoder",
    "Finding": "diagnosis",
    "LayerProfile": "profiles",
    "Limits": "diagnosis",
    "Moments": "moments",
    "Profile": "profiles",
    "Texts": "texts",
    "attach_norm": "normalization",
    "compute_profile": "extraction",
    "describe": "statistics",
    "detach_norm": "normalization",
    "diagnose": "diagnosis",
    "extract_tokens": "extraction",
    "extract_vectors": "extraction",
    "fold_norm": "normalization",
    "load_classifier": "normalization",
    "load_texts": "texts",
    "make_norm": "normalization",
    "profile_matrix": "matrices",
    "profile_vectors": "matrices",
    "save_classifier": "normalization",
    "summarize": "statistics",
}

__all__ = [
    "ClsAnalysisError",
    "Diagnosis",
    "Encoder",
    "Finding",
    "LayerProfile",
    "Limits",
    "Moments",
    "Profile",
    "Texts",
    "attach_norm",
    "compute_profile",
    "describe",
    "detach_norm",
    "diagnose",
    "extract_tokens",
    "extract_vectors",
    "fold_norm",
    "load_classifier",
    "load_texts",
    "make_norm",
    "profile_matrix",
    "profile_vectors",
    "save_classifier",
    "summarize",
]

__version__ = importlib.metadata.version("cls-analysis")


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
