"""The common mean and the average cosine, against pairs counted one by one."""

from __future__ import annotations

from itertools import combinations
from math import nan, sqrt

import numpy as np
import pytest
import scipy.stats

from cls_analysis import profile_vectors
from cls_analysis.statistics.isotropy import average_cosine, common_mean_share, cosine_contributions


def layer_of(x):
    return profile_vectors(x)[-1]


def contributions_by_pairs(x) -> np.ndarray:
    """Mean over all pairs of different rows of u_i v_i."""
    rows = [row / np.linalg.norm(row) for row in np.asarray(x, dtype=np.float64) if row.any()]
    return np.mean([a * b for a, b in combinations(rows, 2)], axis=0)


X = np.random.default_rng(4).standard_normal((30, 5))
CLOUDS = {
    "isotropic": X,
    "common mean": np.add(X, [5, 0, 0, -3, 0]),
    "almost one direction": X + 1e3,
    "zero vectors": np.concatenate([X, np.zeros((4, 5))]),
    "very long and very short": X * np.logspace(-20, 20, 30)[:, None],
    "fewer rows than dimensions": X[:3] + 1,
    "opposite": np.array([[1.0, 1, 0], [-2, -2, 0]]),
    "one dimension": X[:, :1],
}


@pytest.mark.parametrize("x", CLOUDS.values(), ids=CLOUDS)
def test_contributions_are_means_over_pairs(x):
    layer, expected = layer_of(x), contributions_by_pairs(x)
    np.testing.assert_allclose(cosine_contributions(layer), expected, rtol=0, atol=1e-12)
    assert average_cosine(layer) == pytest.approx(expected.sum(), abs=1e-12)
    assert cosine_contributions(layer).sum() == average_cosine(layer)


def test_case_30_diagonal_left_out():
    """Case 30: the mean cosine over pairs of different rows; with the diagonal it would be 0.647603."""
    layer = layer_of([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert average_cosine(layer) == pytest.approx(sqrt(2) / 3, abs=1e-15)
    assert average_cosine(layer) == pytest.approx(0.471405, abs=5e-7)
    np.testing.assert_allclose(cosine_contributions(layer), [sqrt(2) / 6] * 2, rtol=1e-15)


@pytest.mark.parametrize(
    ("x", "share", "cosine"),
    [
        ([[3.0, 0.0], [1.0, 0.0]], 4 / 5, 1),
        ([[1.0, 0.0], [-1.0, 0.0]], 0, -1),
        ([[1.0, 0.0], [0.0, 1.0]], 1 / 2, 0),
        ([[1.0, 2.0]], 1, nan),  # one row has no pair
        ([[1.0, 2.0], [0.0, 0.0]], 1 / 2, nan),  # nor has one beside a zero vector
        ([[1.0, 2.0], [1.0, 2.0]], 1, nan),  # collapsed
        ([[0.0, 0.0], [0.0, 0.0]], nan, nan),
    ],
)
def test_by_hand(x, share, cosine):
    layer = layer_of(x)
    assert common_mean_share(layer) == pytest.approx(share, abs=1e-15, nan_ok=True)
    assert average_cosine(layer) == pytest.approx(cosine, abs=1e-15, nan_ok=True)


@pytest.mark.parametrize("scale", [1e-20, 3.0, -1e20])
def test_rotation_and_scale_change_nothing_a_shift_does(scale):
    x = np.random.default_rng(5).normal([2, 0, 0, 1, 0, 0], size=(40, 6))
    rotated = scale * x @ scipy.stats.ortho_group.rvs(6, random_state=0)
    for statistic in (common_mean_share, average_cosine):
        assert statistic(layer_of(rotated)) == pytest.approx(statistic(layer_of(x)), abs=1e-12)
        assert statistic(layer_of(x + 1)) != pytest.approx(statistic(layer_of(x)), abs=1e-3)
    assert abs(cosine_contributions(layer_of(rotated)) - cosine_contributions(layer_of(x))).max() > 1e-3
