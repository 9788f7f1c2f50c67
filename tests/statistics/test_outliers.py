"""The two predicates: planted outliers are found, chance ones are not."""

from __future__ import annotations

import numpy as np
import pytest

from cls_analysis import profile_vectors
from cls_analysis.statistics.outliers import mean_dominant, variance_dominant


def found(x) -> tuple[list[int], list[int]]:
    layer = profile_vectors(x)[-1]
    return np.flatnonzero(mean_dominant(layer)).tolist(), np.flatnonzero(variance_dominant(layer)).tolist()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("n", "d"), [(200, 64), (30, 300)])
def test_isotropic_vectors_have_none(seed, n, d):
    assert found(np.random.default_rng(seed).standard_normal((n, d))) == ([], [])


@pytest.mark.parametrize("seed", range(5))
def test_planted_ones_are_found_exactly(seed):
    x = np.random.default_rng(seed).standard_normal((300, 60))
    x[:, [3, 17]] += [4, -4]
    x[:, [5, 40]] *= 4
    x[:, 9] = 4 * x[:, 9] - 6
    assert found(x) == ([3, 9, 17], [5, 9, 40])


@pytest.mark.parametrize(("size", "hit"), [(3.0, [0]), (2.999, [])])
def test_variance_five_times_the_mean_one(size, hit):
    """Var_0 = 9 and nine times 1 have the mean 1.8, a fifth of 9."""
    signs = np.array([[1.0], [-1.0]] * 4)
    assert found(signs * [size, *[1.0] * 9]) == ([], hit)


@pytest.mark.parametrize(("mean", "hit"), [(3.0, [0]), (2.999, [])])
def test_squared_mean_five_times_the_even_share(mean, hit):
    """μ_0² = 9 and E‖x‖² = 9 + 9 in ten dimensions: 5 · 18 / 10 = 9."""
    x = np.tile([[mean, *[1.0] * 9], [mean, *[-1.0] * 9]], (4, 1))
    assert found(x) == (hit, [])


@pytest.mark.parametrize(("n", "hit"), [(2, []), (12, []), (14, [0]), (200, [0])])
def test_mean_must_be_certain(n, hit):
    """Mean 5, σ = 5: |μ|√n/σ = √n, against 3.48, the normal quantile at 1 − 0.05/200."""
    x = np.zeros((n, 100))
    x[::2, 0] = 10
    assert found(x)[0] == hit


def test_dead_dimension_may_dominate_the_mean_not_the_variance():
    x = np.random.default_rng(0).standard_normal((50, 20))
    x[:, 4] = 30
    assert found(x) == ([4], [])


@pytest.mark.parametrize("x", [np.eye(1, 20) * 7 + np.zeros((9, 20)), np.eye(1, 20), np.zeros((3, 20))])
def test_collapsed_layer_has_none(x):
    assert found(x) == ([], [])
