"""How well conditioned the least-squares problem on top of the vectors is, before and after each normalisation."""

from __future__ import annotations

import numpy as np

from cls_analysis.moments import Array, single_threaded_blas
from cls_analysis.profiles import LayerProfile
from cls_analysis.statistics.normalizers import NORMALIZERS, Affine, removed_components
from cls_analysis.statistics.spectrum import condition_number


def condition_number_after(layer: LayerProfile, name: str) -> float:
    """λmax/λmin of E[y yᵀ] for the vectors y that normalisation ``name`` makes of the layer's, ≥ 1.

    It bounds how fast plain gradient descent trains a linear layer on them; AdamW is slowed only in part. Directions
    that the normalisation removes by design do not count. NaN if the rows are not more than the living dimensions;
    ``layernorm`` and ``l2norm`` are measured on the Profile's sample.
    """
    if name in ("none", "scale"):  # one factor for all changes no ratio
        return condition_number(layer)
    living = layer.living
    rank = int(living.sum())
    rows = layer.n if isinstance(normalizer := NORMALIZERS[name](layer), Affine) else len(layer.sample)
    if layer.collapsed or rows <= rank:
        return float("nan")
    if isinstance(normalizer, Affine):
        moment = _second_moment_after(layer, normalizer)
    else:
        y = normalizer(layer.sample.astype(np.float64))
        moment = y.T @ y / len(y)
    if name == "all-but-the-top":
        rank -= removed_components(layer.dim)
    elif name == "layernorm":
        rank -= 1  # its rows sum to zero
    if rank < 1:
        return float("nan")
    with single_threaded_blas():
        values = np.linalg.eigvalsh(moment[np.ix_(living, living)])[::-1]
    smallest = values[rank - 1]
    return float(values[0] / smallest) if smallest > rank * np.finfo(np.float64).eps * values[0] else float("nan")


def _second_moment_after(layer: LayerProfile, normalizer: Affine) -> Array:
    """E[y yᵀ] of y = (x − shift)·gain."""
    offset = layer.moments.mean - normalizer.shift
    moment = layer.moments.covariance + np.outer(offset, offset)
    gain = normalizer.gain
    return np.asarray(moment * np.outer(gain, gain) if gain.ndim == 1 else gain.T @ moment @ gain)
