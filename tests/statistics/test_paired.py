"""Paired comparisons against SciPy, published adjustments and hand calculation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.stats

from cls_analysis.statistics.paired import (
    brown_forsythe,
    expected_best,
    holm,
    mean_interval,
    sign_flip_test,
    smallest_p,
    spreads,
)

#: hardcase 33
BASE = np.array([0.60, 0.62, 0.53, 0.65, 0.66])
ARM = np.array([0.63, 0.64, 0.66, 0.66, 0.68])


def test_five_seeds_that_look_convincing():
    difference = ARM - BASE
    assert difference.mean() == pytest.approx(0.042)
    assert difference.std(ddof=1) == pytest.approx(0.049699, abs=1e-6)
    assert sign_flip_test(difference) == 0.0625 == smallest_p(5)


@pytest.mark.parametrize("k", [2, 5, 12])
def test_sign_flips_against_scipy(k):
    difference = np.random.default_rng(k).normal(0.3, 1.0, k)
    expected = scipy.stats.permutation_test(
        (difference,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
    )
    assert sign_flip_test(difference) == pytest.approx(expected.pvalue)


def test_sign_flips_beyond_twenty_seeds():
    difference = np.random.default_rng(0).normal(0.45, 1.0, 24)
    expected = scipy.stats.permutation_test(
        (difference,), np.mean, permutation_type="samples", n_resamples=200_000, rng=np.random.default_rng(1)
    )
    p = sign_flip_test(difference)
    assert p == pytest.approx(expected.pvalue, rel=0.1)
    # (b + 1)/(m + 1): never 0.
    assert sign_flip_test(np.ones(25)) == pytest.approx(smallest_p(25), abs=5e-5)
    assert sign_flip_test(np.ones(25)) >= 1 / 100_001


def test_ties_and_zeros():
    assert sign_flip_test(np.zeros(7)) == 1.0
    # 0.1 + 0.2 and 0.3 are the same but for rounding: all of these sums of three tie where they should.
    difference = np.array([0.1, 0.2, -0.3])
    sums = [
        abs(sum(s * d for s, d in zip(signs, (1, 2, -3), strict=True)))
        for signs in itertools.product((1, -1), repeat=3)
    ]
    assert sign_flip_test(difference) == np.mean([s >= 0 for s in sums]) == 1.0
    assert np.isnan(sign_flip_test(np.array([])))


@pytest.mark.parametrize(("k", "expected"), [(1, 1.0), (5, 0.0625), (6, 0.03125), (20, 2 / 2**20), (21, 1 / 100_001)])
def test_smallest_p(k, expected):
    assert smallest_p(k) == pytest.approx(expected)


def test_interval_is_students_below_twenty_seeds():
    difference = ARM - BASE
    expected = scipy.stats.ttest_1samp(difference, 0).confidence_interval()
    assert mean_interval(difference) == pytest.approx(tuple(expected))
    assert mean_interval(np.full(6, 0.25)) == (0.25, 0.25)
    assert np.isnan(mean_interval(np.array([0.1]))).all()


@pytest.mark.parametrize("k", [8, 25])
def test_interval_covers(k):
    rng = np.random.default_rng(3)
    draws = [mean_interval(rng.normal(0.2, 1.0, k)) for _ in range(400)]
    covered = np.mean([low <= 0.2 <= high for low, high in draws])
    assert 0.91 <= covered <= 0.98


def test_holm():
    # Holm 1979 by hand: 0.01·4, 0.02·3, 0.03·2 = 0.06 (not below the one before), 0.04·1.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9, 0.8]) == pytest.approx([1.0, 1.0, 1.0])
    adjusted = holm([0.01, np.nan, 0.04])
    assert adjusted[[0, 2]] == pytest.approx([0.02, 0.04])
    assert np.isnan(adjusted[1])


def test_brown_forsythe_against_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(0, 1, 12), rng.normal(0, 2, 15)
    assert brown_forsythe(a, b) == pytest.approx(scipy.stats.levene(a, b, center="median").pvalue)
    assert np.isnan(brown_forsythe(np.ones(4), np.ones(4)))
    assert np.isnan(brown_forsythe(np.ones(1), np.ones(4)))


def test_spreads_are_around_the_median():
    assert spreads(np.array([1.0, 2.0, 10.0])).tolist() == [1.0, 0.0, 8.0]


def test_expected_best_against_all_draws():
    # Every draw of k runs with replacement, the best by select taken; ties share their mean.
    select, report = np.array([0.5, 0.7, 0.7, 0.9]), np.array([0.6, 0.8, 0.4, 0.5])
    expected = []
    for k in range(1, 5):
        values = []
        for draw in itertools.product(range(4), repeat=k):
            best = max(select[list(draw)])
            values.append(np.mean(report[select == best]))
        expected.append(np.mean(values))
    assert expected_best(select, report) == pytest.approx(expected)
    # With select = report it is the expected maximum of Dodge et al., here of two values.
    assert expected_best(np.array([0.0, 1.0]), np.array([0.0, 1.0])) == pytest.approx([0.5, 0.75])
