"""Eigenvalue statistics and correlations, against other programs, closed forms and many digits."""

from __future__ import annotations

from itertools import combinations

import mpmath
import numpy as np
import pytest
import scipy.stats
from sklearn.decomposition import PCA

from cls_analysis import profile_vectors
from cls_analysis.statistics.spectrum import (
    condition_number,
    correlation,
    covariance_spectrum,
    effective_rank,
    explained_variance,
    isoscore,
    mean_absolute_correlation,
    participation_ratio,
)


def layer_of(x):
    return profile_vectors(x)[-1]


def gaussian(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Correlated Gaussian rows with a mean."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + 3 * rng.standard_normal(d)


def axes(scales, mean=0.0) -> np.ndarray:
    """Rows ± along each axis, so that the covariance is exactly diag(scales²)."""
    k = len(scales)
    directions = np.diag(np.asarray(scales, dtype=float)) * np.sqrt(k)
    return np.concatenate([directions, -directions]) + mean


# -- centred covariance ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(60, 4), (200, 81), (30, 81)])
def test_isoscore_agrees_with_its_package(n, d):
    """The package takes roots in float32 that are exact for these d; there it agrees to 1e-9."""
    package = pytest.importorskip("IsoScore.IsoScore")
    x = gaussian(n, d)
    spectrum = covariance_spectrum(layer_of(x))
    assert isoscore(spectrum) == pytest.approx(float(package.IsoScore(x)), abs=1e-9)
    assert isoscore(spectrum) == (participation_ratio(spectrum) - 1) / (d - 1)


@pytest.mark.parametrize("d", [3, 50])
def test_isoscore_agrees_with_its_package_in_float32(d):
    package = pytest.importorskip("IsoScore.IsoScore")
    x = gaussian(100, d)
    assert isoscore(covariance_spectrum(layer_of(x))) == pytest.approx(float(package.IsoScore(x)), abs=1e-5)


@pytest.mark.parametrize(("k", "d"), [(1, 2), (1, 10), (3, 10), (10, 10), (5, 100)])
def test_k_equal_variances(k, d):
    spectrum = covariance_spectrum(layer_of(np.pad(axes([2.0] * k, 7), ((0, 0), (0, d - k)))))
    assert participation_ratio(spectrum) == pytest.approx(k, rel=1e-12)
    assert effective_rank(spectrum) == pytest.approx(k, rel=1e-12)
    assert isoscore(spectrum) == pytest.approx((k - 1) / (d - 1), abs=1e-12)
    np.testing.assert_allclose(explained_variance(spectrum), np.minimum(np.arange(1, d + 1) / k, 1), rtol=1e-12)


def test_closed_forms():
    spectrum = [4.0, 2.0, 2.0, 0.0]
    assert participation_ratio(spectrum) == 64 / 24
    assert effective_rank(spectrum) == pytest.approx(2**1.5, rel=1e-15)  # H(½, ¼, ¼) = 1.5 bits
    assert explained_variance(spectrum).tolist() == [0.5, 0.75, 1, 1]
    assert np.isnan(isoscore([3.0]))


@pytest.mark.parametrize(("n", "d"), [(100, 8), (50, 20), (6, 12)])
def test_spectrum_and_explained_variance_agree_with_pca(n, d):
    x = gaussian(n, d)
    pca = PCA().fit(x)
    k = min(n, d)
    spectrum = covariance_spectrum(layer_of(x))
    np.testing.assert_allclose(spectrum[:k], pca.explained_variance_ * (n - 1) / n, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(spectrum[k:], 0, atol=1e-9)
    np.testing.assert_allclose(
        explained_variance(spectrum)[:k], np.cumsum(pca.explained_variance_ratio_), rtol=0, atol=1e-9
    )


@pytest.mark.parametrize("scale", [1e-12, 1e-6, 1.0, 1e6])
def test_rotation_shift_and_scale_change_nothing(scale):
    x = gaussian(60, 7)
    moved = scale * (x @ scipy.stats.ortho_group.rvs(7, random_state=1) + 2)
    before, after = (covariance_spectrum(layer_of(each)) for each in (x, moved))
    np.testing.assert_allclose(after, scale**2 * before, rtol=1e-9)
    for statistic in (participation_ratio, effective_rank, isoscore):
        assert statistic(after) == pytest.approx(statistic(before), rel=1e-9)


def test_collapsed_layer_has_no_spectrum():
    layer = layer_of(np.full((9, 3), 14.3))
    spectrum = covariance_spectrum(layer)
    assert spectrum.shape == (3,)
    assert np.isnan([*spectrum, *explained_variance(spectrum)]).all()
    for statistic in (participation_ratio, effective_rank, isoscore):
        assert np.isnan(statistic(spectrum))
    assert np.isnan(condition_number(layer))
    assert np.isnan(mean_absolute_correlation(layer))


# -- condition number of E[x xᵀ] -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(50, 1), (50, 2), (13, 12), (300, 40)])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_condition_number_agrees_with_numpy(n, d, scale):
    x = scale * gaussian(n, d)
    assert condition_number(layer_of(x)) == pytest.approx(np.linalg.cond(x.T @ x / n), rel=1e-7)
    rotated = x @ scipy.stats.ortho_group.rvs(d, random_state=2) if d > 1 else -x
    assert condition_number(layer_of(rotated)) == pytest.approx(condition_number(layer_of(x)), rel=1e-7)


@pytest.mark.parametrize(
    ("scales", "mean", "expected"),
    [
        ((1, 2), (0, 0), 4),
        ((1, 2), (10, 0), 101 / 4),  # the mean lifts the smallest over the other
        ((1, 2), (0, 10), 104),
        ((1, 2), (1, 0), 2),
        ((3, 3, 3), (0, 4, 0), 25 / 9),
        ((1, 1, 2), (1e4, 0, 0), 1e8 + 1),
        ((1e-3, 1e-3), (0, 1e-3), 2),
        ((1e-3, 2e-3, 3e-3), (0, 0, 1e5), 1e16 + 9),
        ((5,), (100,), 1),
    ],
)
def test_condition_number_by_hand(scales, mean, expected):
    """Covariance diag(scales²) and a mean along one axis: E[x xᵀ] is diagonal too."""
    assert condition_number(layer_of(axes(scales, np.array(mean)))) == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize(("bias", "spread"), [(0, 1), (1e4, 1), (1e6, 1), (1e6, 1e-2), (1, 1e-8)])
def test_condition_number_keeps_its_digits_under_a_large_mean(bias, spread):
    """Against 50 digits; in float64 the smallest eigenvalue of E[x xᵀ] is lost in the rounding of the largest."""
    rng = np.random.default_rng(3)
    x = spread * rng.standard_normal((20, 4)) * [1, 0.3, 0.1, 0.03] + bias * rng.standard_normal(4)
    with mpmath.workdps(50):
        rows = mpmath.matrix(x.tolist())
        values = sorted(mpmath.eigsy(rows.T * rows / 20, eigvals_only=True))
        expected = float(values[-1] / values[0])
    assert condition_number(layer_of(x)) == pytest.approx(expected, rel=1e-6)


def test_condition_number_needs_more_rows_than_living_dimensions():
    x = gaussian(12, 12)
    assert np.isnan(condition_number(layer_of(x)))
    x[:, 5] = 3  # dead: eleven live
    living = np.delete(x, 5, axis=1)
    assert condition_number(layer_of(x)) == pytest.approx(np.linalg.cond(living.T @ living / 12), rel=1e-6)


def test_condition_number_of_dependent_dimensions_is_undefined():
    x = gaussian(50, 3)
    assert np.isnan(condition_number(layer_of(np.column_stack([x, x[:, 0] + x[:, 1]]))))


# -- correlation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(100, 6), (4, 10), (2, 3)])
def test_correlation_agrees_with_numpy(n, d):
    x = gaussian(n, d)
    layer, expected = layer_of(x), np.corrcoef(x.T)
    np.testing.assert_allclose(correlation(layer), expected, rtol=0, atol=1e-10)
    pairs = [abs(expected[i, j]) for i, j in combinations(range(d), 2)]
    assert mean_absolute_correlation(layer) == pytest.approx(np.mean(pairs), abs=1e-10)


def test_scale_shift_and_sign_of_a_dimension_change_no_absolute_correlation():
    x = gaussian(100, 4)
    moved = x * [1e-3, -3, 1e5, 1] + [0, 5, 0, 0]
    np.testing.assert_allclose(np.abs(correlation(layer_of(moved))), np.abs(correlation(layer_of(x))), atol=1e-9)


def test_dead_dimensions_are_left_out():
    x = gaussian(40, 5)
    x[:, 2] = 14.3
    layer = layer_of(x)
    found = correlation(layer)
    assert np.isnan(found[2]).all()
    assert np.isnan(found[:, 2]).all()
    np.testing.assert_allclose(np.diag(found)[layer.living], 1, rtol=1e-14)
    assert mean_absolute_correlation(layer) == pytest.approx(
        mean_absolute_correlation(layer_of(np.delete(x, 2, axis=1))), rel=1e-12
    )
    x[:, 1:] = 0
    assert np.isnan(mean_absolute_correlation(layer_of(x)))
