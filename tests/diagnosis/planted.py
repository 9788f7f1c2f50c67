"""Vectors with planted faults, of which every figure can be worked out by hand.

``SIGNS`` is the clean slate: 512 rows of 32 dimensions ±1 with means of exactly 0, variances of 1, no correlations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import numpy as np
import scipy.linalg

from cls_analysis import Profile, Texts, profile_vectors
from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.diagnosis.findings import Finding
from cls_analysis.diagnosis.thresholds import Limits
from cls_analysis.diagnosis.verdict import _all_findings
from cls_analysis.provenance import EncoderIdentity

N, D = 512, 32
WALSH = scipy.linalg.hadamard(N).astype(np.float64)
SIGNS = WALSH[:, 1 : D + 1]
#: A direction that is not among them.
OTHER = WALSH[:, D + 1]


def shifted(means: Mapping[int, float]) -> np.ndarray:
    """Means of some dimensions that are not 0."""
    x = SIGNS.copy()
    x[:, list(means)] += list(means.values())
    return x


def stretched(scales: Mapping[int, float]) -> np.ndarray:
    """Standard deviations of some dimensions that are not 1."""
    x = SIGNS.copy()
    x[:, list(scales)] *= list(scales.values())
    return x


def correlated(square: float) -> np.ndarray:
    """Every dimension has a common part of that variance: covariance I + c²·11ᵀ, |r| = c²/(1 + c²)."""
    return SIGNS + np.sqrt(square) * OTHER[:, None]


def heavy(counts: Mapping[int, int]) -> np.ndarray:
    """Dimensions that are 0 but in so many rows: variance 1, excess kurtosis n/k − 3."""
    x = SIGNS.copy()
    for dimension, k in counts.items():
        x[:, dimension] = 0
        x[:k, dimension] = np.sqrt(N / k) * (-1) ** np.arange(k)
    return x


def constant(dimensions: list[int]) -> np.ndarray:
    """Dimensions that are 0.3 in every row."""
    x = SIGNS.copy()
    x[:, dimensions] = 0.3
    return x


def zeroed(rows: int) -> np.ndarray:
    """The first rows are zero."""
    x = SIGNS.copy()
    x[:rows] = 0
    return x


def gaussian(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Isotropic vectors."""
    return np.random.default_rng(seed).standard_normal((n, d))


def profile_of(
    x: np.ndarray | Mapping[int, np.ndarray],
    *,
    source: str | None = None,
    rows_cut: int = 0,
    name: str = "encoder",
    texts: Texts | None = None,
) -> Profile:
    """A Profile of vectors as if an encoder had made them: with a ``source``, or several layers, or texts."""
    arrays = dict(x) if isinstance(x, Mapping) else {-1: x}
    profiles = {number: profile_vectors(array, layer=number) for number, array in arrays.items()}
    origin = next(iter(profiles.values())).provenance
    encoder = None
    if source is not None:
        encoder = EncoderIdentity(
            name, "w", "t", "BertModel", next(iter(profiles.values())).dim, max(arrays), source, 128, "sdpa", "none"
        )
    datasets = origin.datasets if texts is None else (texts.identity,)
    provenance = replace(origin, encoder=encoder, layers=tuple(arrays), rows_cut=rows_cut, datasets=datasets)
    return Profile({number: profile[number] for number, profile in profiles.items()}, provenance)


def findings_of(profile: Profile, layer: int = -1, limits: Limits | None = None) -> list[Finding]:
    """The findings of ``diagnose`` without its tables, which take most of the time; a test holds them equal."""
    return _all_findings(profile, Evidence(profile, layer), limits or Limits())


def of_code(findings: list[Finding], code: str) -> Finding | None:
    """The finding of a rule, if it has one."""
    found = [finding for finding in findings if finding.code == code]
    assert len(found) <= 1
    return found[0] if found else None


@cache
def drawn(statistic: Callable[[np.ndarray], float], n: int = N, d: int = D, draws: int = 200) -> float:
    """Mean of a statistic over Gaussian matrices drawn here: its null."""
    rng = np.random.default_rng(99)
    return float(np.mean([statistic(rng.standard_normal((n, d))) for _ in range(draws)]))


def eigenvalues(x: np.ndarray) -> np.ndarray:
    """Of the covariance, largest first."""
    return np.linalg.eigvalsh(np.cov(x.T, bias=True))[::-1]


def std_ratio(x: np.ndarray) -> float:
    """Largest over median standard deviation."""
    return float(x.std(axis=0).max() / np.median(x.std(axis=0)))


def effective_rank(x: np.ndarray) -> float:
    """Exponential of the entropy of the eigenvalues' shares."""
    share = eigenvalues(x).clip(1e-300)
    share = share / share.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def ev3(x: np.ndarray) -> float:
    """Share of the variance in three principal components."""
    values = eigenvalues(x)
    return float(values[:3].sum() / values.sum())


def condition(x: np.ndarray) -> float:
    """Condition number of the second moment."""
    return float(np.linalg.cond(x.T @ x))
