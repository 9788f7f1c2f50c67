"""Null values, against published numbers, closed forms and draws."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.stats

from cls_analysis.statistics import nulls


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
