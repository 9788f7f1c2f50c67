"""Null values, against published numbers, closed forms and draws."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import mpmath
import numpy as np
import pytest
import scipy.stats

from cls_analysis.statistics import nulls
from cls_analysis.statistics.outliers import three_sigma
from cls_analysis.statistics.samples import partition_isotropy, twonn_dimension


@pytest.mark.parametrize(("n", "expected"), [(100, 88), (1_000, 433), (10_000, 713)])
def test_case_30_participation_ratio_depends_on_n(n, expected):
    """Case 30: 768 dimensions, all alike."""
    assert nulls.spectrum_null(n, 768).participation_ratio == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize(("n", "expected"), [(10, 0.13), (50, 0.49), (100, 0.66), (500, 0.91), (5_000, 0.99)])
def test_case_30_isoscore_depends_on_n(n, expected):
    """Case 30: an isotropic Gaussian of 50 dimensions."""
    assert nulls.spectrum_null(n, 50).isoscore == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize(("n", "expected"), [(2, 1), (3, 2 / math.pi), (4, 1 / 2), (6, 3 / 8)])
def test_correlation_closed_forms(n, expected):
    """r has the density (1 − r²)^((n−4)/2): arcsine for three rows, uniform for four; two rows lie on a line."""
    assert nulls.mean_absolute_correlation_null(n) == pytest.approx(expected, rel=1e-12)


def test_correlation_of_many_rows():
    assert nulls.mean_absolute_correlation_null(10**6) == pytest.approx(math.sqrt(2 / math.pi / 10**6), rel=1e-5)
    assert np.isnan(nulls.mean_absolute_correlation_null(1))


@pytest.mark.parametrize(("dof", "d"), [(40, 6), (5, 12), (1, 3)])
def test_wishart_eigenvalues(dof, d):
    """E tr W = k·d, E tr W² = k·d·(k + d + 1); the rank is min(k, d)."""
    rng = np.random.default_rng(0)
    draws = np.stack([nulls.wishart_eigenvalues(rng, dof, d) for _ in range(100)])
    assert (np.diff(draws, axis=1) <= 0).all()
    assert (draws >= 0).all()
    assert (draws[:, dof:] == 0).all()
    for power, expected in ((1, dof * d), (2, dof * d * (dof + d + 1))):
        traces = (draws**power).sum(axis=1)
        assert abs(traces.mean() - expected) < 4 * traces.std() / math.sqrt(100)


@pytest.mark.parametrize("n", [30, 200])
def test_kurtosis_band_agrees_with_draws(n):
    x = np.random.default_rng(1).standard_normal((n, 20_000))
    expected = np.quantile(scipy.stats.kurtosis(x), [0.025, 0.975])
    np.testing.assert_allclose(nulls.kurtosis_band(n), expected, atol=0.06)


def test_explained_variance_ascends_to_one():
    curve = nulls.spectrum_null(20, 30).explained_variance
    assert curve.shape == (30,)
    assert (np.diff(curve) >= -1e-15).all()
    np.testing.assert_allclose(curve[18:], 1, rtol=1e-12)  # 20 rows, centred, span 19 directions


def test_one_row_or_no_dimension_has_no_null():
    spectrum = nulls.spectrum_null(1, 3)
    values = [
        spectrum.participation_ratio,
        spectrum.isoscore,
        spectrum.effective_rank,
        *spectrum.explained_variance,
        nulls.std_ratio_null(1, 3),
        nulls.std_ratio_null(9, 0),
        nulls.max_kurtosis_null(1, 3),
        nulls.max_kurtosis_null(9, 0),
        nulls.condition_number_null(9, 0),
        nulls.condition_number_null(5, 5),
        nulls.spectrum_null(9, 1).isoscore,
    ]
    assert np.isnan(values).all()


@pytest.mark.parametrize("n", [2, 3])
def test_kurtosis_of_two_or_three_rows_is_one_number(n):
    """Two rows always have g2 = −2, three −1.5."""
    assert nulls.max_kurtosis_null(n, 5) == pytest.approx({2: -2, 3: -1.5}[n], abs=1e-12)


def test_one_dimension():
    assert nulls.std_ratio_null(10, 1) == nulls.condition_number_null(10, 1) == 1
    null = nulls.concentration_null(10, 1)
    assert (null.top1, null.top3, null.top10, null.gini) == (1, 1, 1, 0)


def test_drawn_once():
    for null in (nulls.spectrum_null, nulls.concentration_null):
        assert null(37, 5) is null(37, 5)
    for null in (nulls.condition_number_null, nulls.std_ratio_null, nulls.max_kurtosis_null):
        null(37, 5)
        hits = null.cache_info().hits
        null(37, 5)
        assert null.cache_info().hits == hits + 1


def test_same_value_in_a_fresh_process():
    code = (
        "import json; from cls_analysis.statistics import nulls as n;"
        "print(json.dumps([n.spectrum_null(37, 5).isoscore, n.concentration_null(37, 5).gini,"
        "n.condition_number_null(37, 5), n.std_ratio_null(37, 5), n.max_kurtosis_null(12, 5)]))"
    )
    here = [
        nulls.spectrum_null(37, 5).isoscore,
        nulls.concentration_null(37, 5).gini,
        nulls.condition_number_null(37, 5),
        nulls.std_ratio_null(37, 5),
        nulls.max_kurtosis_null(12, 5),
    ]
    output = subprocess.check_output([sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": "5"})
    assert json.loads(output) == here


# -- rows ------------------------------------------------------------------------------------------------------------


def directions(rng, m: int, d: int) -> np.ndarray:
    x = rng.standard_normal((m, d))
    return x / np.linalg.norm(x, axis=1, keepdims=True)


@pytest.mark.parametrize("d", [1, 2, 3, 10, 384])
def test_cosines_of_isotropic_directions_agree_with_draws(d):
    rng = np.random.default_rng(d)
    cosine = np.concatenate([(directions(rng, 5_000, d) * directions(rng, 5_000, d)).sum(axis=1) for _ in range(4)])
    assert nulls.rms_cosine_null(d) == pytest.approx(np.sqrt((cosine**2).mean()), rel=0.02)
    for t in (0.5, 2.0):
        kernel = np.exp(-t * (2 - 2 * cosine))
        standard_error = kernel.std() / kernel.mean() / math.sqrt(len(cosine))
        assert abs(nulls.uniformity_null(d, t) - math.log(kernel.mean())) <= 4 * standard_error + 1e-12


@pytest.mark.parametrize("d", [1, 2, 3, 768, 10**6])
@pytest.mark.parametrize("t", [0.5, 2.0, 10.0])
def test_uniformity_in_many_digits(d, t):
    """The integral over the sphere: c has the density (1 − c²)^((d−3)/2); in one dimension cosh, in three sinh."""
    with mpmath.workdps(30):
        expected = float(-2 * t + mpmath.log(mpmath.hyp0f1(mpmath.mpf(d) / 2, mpmath.mpf(t) ** 2)))
        closed = {1: mpmath.cosh(2 * t), 3: mpmath.sinh(2 * t) / (2 * t)}
        if d == 2:
            density = mpmath.quad(lambda a: mpmath.exp(2 * t * mpmath.cos(a)), [0, mpmath.pi]) / mpmath.pi
            assert float(-2 * t + mpmath.log(density)) == pytest.approx(expected, rel=1e-12)
        if d in closed:
            assert float(-2 * t + mpmath.log(closed[d])) == pytest.approx(expected, rel=1e-12)
    assert nulls.uniformity_null(d, t) == pytest.approx(expected, rel=1e-9)


def test_uniformity_falls_towards_its_limit():
    values = [nulls.uniformity_null(d, 2.0) for d in (1, 2, 10, 100, 1_000)]
    assert values == sorted(values, reverse=True)
    assert all(-4 < value < 0 for value in values)


@pytest.mark.parametrize(("m", "d"), [(200, 5), (300, 40)])
def test_sample_null_agrees_with_other_draws(m, d):
    rng = np.random.default_rng(99)
    dimension = [twonn_dimension(rng.standard_normal((m, d))) for _ in range(12)]
    isotropy = [partition_isotropy(directions(rng, m, d)) for _ in range(12)]
    null = nulls.sample_null(m, d)
    assert abs(null.twonn_dimension - np.mean(dimension)) < 4 * np.std(dimension) / math.sqrt(3)
    assert abs(null.partition_isotropy - np.mean(isotropy)) < 4 * np.std(isotropy) / math.sqrt(3)
    assert nulls.sample_null(m, d) is null


# -- outlier rules of the literature ---------------------------------------------------------------------------------


def expected_beyond_three_sigma(d: int) -> float:
    """Thompson 1935: of d normal values, (x − x̄)²d/(s²(d − 1)²) is Beta(½, d/2 − 1)."""
    return d * float(scipy.stats.beta.sf(9 * d / (d - 1) ** 2, 0.5, d / 2 - 1))


@pytest.mark.parametrize(("n", "d"), [(500, 11), (500, 64), (300, 384), (1_000, 768)])
def test_three_sigma_null_is_about_thompsons(n, d):
    """Means are normal, and standard deviations of many rows about so; 256 draws of a count, roughly Poisson."""
    null, expected = nulls.three_sigma_null(n, d), expected_beyond_three_sigma(d)
    for value in (null.mean, null.std):
        assert abs(value - expected) < 4 * math.sqrt(expected / 256) + 0.05 * expected


def test_three_sigma_rules_fire_on_isotropic_data():
    """More than half of all draws of 384 dimensions have an outlier by each rule."""
    rng = np.random.default_rng(0)
    means, deviations = np.empty((60, 384)), np.empty((60, 384))
    for i in range(60):
        x = rng.standard_normal((200, 384))
        means[i], deviations[i] = x.mean(axis=0), x.std(axis=0)
    null = nulls.three_sigma_null(200, 384)
    for values, expected in ((means, null.mean), (deviations, null.std)):
        hits = three_sigma(values)
        assert hits.any(axis=1).mean() > 0.5
        assert hits.sum(axis=1).mean() == pytest.approx(expected, abs=4 * math.sqrt(1 / 60 + 1 / 256))


def test_ten_dimensions_have_none_beyond_three_sigma():
    for d in (1, 2, 10):
        assert nulls.three_sigma_null(50, d) == nulls.ThreeSigmaNull(0, 0)


def test_no_rows_or_dimensions_have_no_null():
    null, few = nulls.sample_null(0, 3), [nulls.three_sigma_null(n, d) for n, d in ((0, 3), (1, 3), (9, 0))]
    values = [null.twonn_dimension, null.partition_isotropy, *(each.mean for each in few), *(each.std for each in few)]
    assert np.isnan([*values, nulls.rms_cosine_null(0), nulls.uniformity_null(0, 2.0)]).all()
    assert np.isnan(nulls.sample_null(9, 0).partition_isotropy)
    assert np.isnan(nulls.sample_null(2, 3).twonn_dimension)


# -- what chance gives the largest of d ------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 20, 768])
def test_normal_quantile_is_exceeded_by_one_set_in_twenty(d):
    """1 − (1 − α/d)^d lies just below α."""
    beyond = 2 * scipy.stats.norm.sf(nulls.normal_quantile(d))
    assert 0.048 < 1 - (1 - beyond) ** d <= 0.05 + 1e-9


def test_common_mean_quantile_of_equal_variances():
    """30 directions of 50 rows: n‖x̄‖²/E‖x‖² is χ²_30/30."""
    quantile = nulls.common_mean_quantile(50, 30.0)
    draws = np.random.default_rng(0).standard_normal((200_000, 30)) / math.sqrt(50)
    assert ((draws**2).sum(axis=1) / 30 > quantile).mean() == pytest.approx(1e-3, abs=3e-4)
    assert 1 / 50 < quantile < 3 / 50
    assert np.isnan(nulls.common_mean_quantile(50, float("nan")))


@pytest.mark.parametrize(("spread", "most"), [(1 / np.arange(1, 101), 0.012), (np.r_[1, np.full(1_000, 0.004)], 0.02)])
def test_common_mean_quantile_of_unequal_variances(spread, most):
    """Satterthwaite's approximation: the tail is a little longer than 0.1 %, and its docstring says how much."""
    weights = np.asarray(spread) / np.sum(spread)
    quantile = nulls.common_mean_quantile(1, 1 / (weights**2).sum())
    draws = np.random.default_rng(0).chisquare(1, size=(20_000, len(weights))) @ weights
    assert 5e-4 < (draws > quantile).mean() < most


@pytest.mark.parametrize(("n", "d"), [(10, 50), (100, 384), (30, 1)])
def test_largest_variance_ratio_is_exceeded_by_at_most_one_set_in_twenty(n, d):
    variances = np.random.default_rng(0).chisquare(n - 1, size=(4_000, d))
    exceeded = (variances.max(axis=1) / variances.mean(axis=1) > nulls.largest_variance_ratio(n, d)).mean()
    assert exceeded <= 0.05 + 4 * math.sqrt(0.05 * 0.95 / 4_000)
    assert nulls.largest_variance_ratio(1, d) == math.inf


@pytest.mark.parametrize(("n", "d"), [(20, 40), (100, 40), (400, 10)])
def test_largest_kurtosis_is_exceeded_by_at_most_one_set_in_twenty(n, d):
    rng = np.random.default_rng(0)
    largest = [scipy.stats.kurtosis(rng.standard_normal((n, d))).max() for _ in range(400)]
    quantile = nulls.largest_kurtosis(n, d)
    assert np.mean(np.array(largest) > quantile) <= 0.05
    # It lies above what is expected, not far above.
    assert nulls.max_kurtosis_null(n, d) < quantile < np.max(largest) * 2
    assert nulls.largest_kurtosis(19, d) == math.inf


@pytest.mark.parametrize("n", [20, 25, 50, 200, 10_000])
def test_largest_kurtosis_stays_within_what_n_rows_allow(n):
    """g2 of n values is at most n − 5 + 1/(n − 1); quantiles of many dimensions stay finite, positive and ascending."""
    values = [nulls.largest_kurtosis(n, d) for d in (1, 10, 384, 4_096)]
    assert values == sorted(values)
    assert 0 < values[0] < values[-1] < n - 5 + 1 / (n - 1)
