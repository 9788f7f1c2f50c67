"""How few dimensions carry the length."""

from __future__ import annotations

import numpy as np
import pytest

from cls_analysis.statistics.concentration import gini, lorenz_curve, shares, top_share

EXAMPLES = [
    np.random.default_rng(0).random(20),
    np.random.default_rng(1).pareto(1.0, 50),
    [0.0, 0, 0, 3],
    [1.0, 1, 1, 1],
    [5.0],
    [2.0, 0.0],
]


def gini_by_pairs(v) -> float:
    """Half the mean absolute difference over all ordered pairs, relative to the mean."""
    return sum(abs(a - b) for a in v for b in v) / (2 * len(v) ** 2 * np.mean(v))


@pytest.mark.parametrize("values", EXAMPLES)
def test_gini_is_the_mean_difference(values):
    assert gini(values) == pytest.approx(gini_by_pairs(values), abs=1e-14)
    assert gini(np.array(values) * 1e-9) == pytest.approx(gini(values), abs=1e-14)


@pytest.mark.parametrize("d", [1, 2, 768])
def test_gini_bounds(d):
    assert gini(np.ones(d)) == pytest.approx(0, abs=1e-15)
    assert gini(np.eye(d)[0]) == pytest.approx((d - 1) / d, abs=1e-15)


@pytest.mark.parametrize("values", EXAMPLES)
def test_shares_and_curve(values):
    values = np.asarray(values)
    np.testing.assert_allclose(shares(values), values / sum(values), rtol=1e-14)
    largest = sorted(values, reverse=True)
    expected = [sum(largest[:k]) / sum(largest) for k in range(1, len(values) + 1)]
    np.testing.assert_allclose(lorenz_curve(values), expected, rtol=1e-13)
    np.testing.assert_allclose([top_share(values, k + 1) for k in range(len(values))], expected, rtol=1e-13)


def test_top_share_beyond_all():
    assert top_share([1.0, 3.0], 10) == 1


def test_nothing_has_no_shares():
    zeros = np.zeros(4)
    assert np.isnan([*shares(zeros), *lorenz_curve(zeros), gini(zeros), top_share(zeros, 1)]).all()
