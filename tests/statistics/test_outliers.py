"""The two predicates: planted outliers are found, chance ones are not; and the literature's other definitions."""

from __future__ import annotations

import numpy as np
import pytest

from cls_analysis import Profile, profile_vectors
from cls_analysis.statistics.outliers import (
    large_features,
    largest_magnitude,
    massive,
    mean_dominant,
    mostly_extreme,
    three_sigma,
    variance_dominant,
)
from cls_analysis.statistics.samples import extreme_shares


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


# -- the literature's ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [0.0, 1e6])
def test_three_sigma_by_hand(shift):
    """20 zeros and one 1: mean 1/21, s = 1/√21, so that z = (20/21)·√21 = 4.36; two of opposite sign have 3.2 each."""
    one = np.eye(1, 21)[0]
    assert np.flatnonzero(three_sigma(one + shift)).tolist() == [0]
    assert np.flatnonzero(three_sigma(np.array([1.0, -1] + [0] * 19) + shift)).tolist() == [0, 1]
    assert not three_sigma(np.array([1.0, 1, 1] + [0] * 18) + shift).any()  # 2.4 each


def test_three_sigma_divides_by_one_less():
    """One of eleven stands 10/√11 = 3.015 out; beside another of 0.2 it is 2.91, with n in place of n − 1 3.05."""
    assert three_sigma(np.eye(1, 11)).sum() == 1
    assert three_sigma(np.eye(1, 10)).sum() == 0
    values = np.array([1, 0.2] + [0] * 9)
    assert (1 - values.mean()) / values.std() > 3
    assert not three_sigma(values).any()


@pytest.mark.parametrize(
    "values", [np.zeros(30), np.full(384, 0.1), np.full(99, 1e6 + 0.3), np.ones(1), np.ones((4, 1))]
)
def test_three_sigma_of_equal_values(values):
    found = three_sigma(values)
    assert found.shape == values.shape
    assert not found.any()


def test_three_sigma_takes_each_row_alone():
    x = np.random.default_rng(0).standard_normal((20, 384)) * np.logspace(-20, 20, 20)[:, None]
    expected = [np.abs(row - row.mean()) > 3 * row.std(ddof=1) for row in x]
    np.testing.assert_array_equal(three_sigma(x), expected)


def test_mostly_extreme():
    assert mostly_extreme(np.array([0.5, 0.499, 1.0, np.nan])).tolist() == [True, False, True, False]
    x = np.random.default_rng(0).standard_normal((200, 20))
    assert not mostly_extreme(extreme_shares(x)).any()
    x[:, 7] -= 10
    x[:110, 3] += 10
    assert np.flatnonzero(mostly_extreme(extreme_shares(x))).tolist() == [3, 7]


def layers(*arrays) -> Profile:
    """A Profile of several layers."""
    profiles = [profile_vectors(x) for x in arrays]
    return Profile({number: profile[-1] for number, profile in enumerate(profiles)}, profiles[0].provenance)


def test_large_features_in_a_quarter_of_the_layers():
    """Four layers of 100 rows: one layer is a quarter; 24 of its rows are 6 % of all 400."""
    quiet = np.zeros((100, 5))
    loud = quiet.copy()
    loud[:24, 0] = 6
    loud[:24, 1] = -6
    loud[:23, 2] = 60  # too few rows
    loud[:, 3] = 5.999  # too small
    assert large_features(layers(loud, quiet, quiet, quiet)).tolist() == [True, True, False, False, False]
    loud[:] = 6
    assert large_features(layers(loud, quiet, quiet, quiet)).all()
    assert not large_features(layers(loud, *[quiet] * 4)).any()  # one layer in five
    assert large_features(layers(loud)).all()


def test_large_features_in_half_precision():
    assert large_features(layers(np.full((3, 2), 7, dtype=np.float16))).all()


def test_massive_by_hand():
    """Median magnitude 1: a value must be above 100 and above 1,000."""
    x = np.ones((10, 6))
    x[3, 0], x[4, 1], x[5, 2] = 1_001, -1_001, 1_000
    assert massive(profile_vectors(x)[-1]).tolist() == [True, True, False, False, False, False]
    x = np.full((10, 6), 1e-3)
    x[3, 0], x[4, 1] = 100, 100.5
    assert massive(profile_vectors(x)[-1]).tolist() == [False, True, False, False, False, False]
    assert not massive(profile_vectors(np.full((9, 3), 500.0))[-1]).any()
    assert not massive(profile_vectors(np.zeros((9, 3)))[-1]).any()


def test_massive_values_count_in_all_rows():
    """The largest may stand outside the sample."""
    x = np.random.default_rng(0).standard_normal((3_000, 4))
    profile = profile_vectors(x)
    outside = next(row for row in range(3_000) if row not in profile[-1].sample_ids)
    x[outside, 2] = -5_000
    layer = profile_vectors(x)[-1]
    np.testing.assert_array_equal(largest_magnitude(layer), np.abs(x).max(axis=0))
    assert np.abs(layer.sample).max() < 100 or outside in layer.sample_ids
    assert massive(layer).tolist() == [False, False, True, False]
