"""Statistics of rows, against pairs counted one by one, closed forms, trees of neighbours and draws."""

from __future__ import annotations

from itertools import combinations

import mpmath
import numpy as np
import pytest
import scipy.spatial
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from cls_analysis import profile_vectors
from cls_analysis.statistics.isotropy import average_cosine, contributions, cosine_contributions
from cls_analysis.statistics.nulls import sample_null
from cls_analysis.statistics.samples import (
    average_cosine_of,
    changed_neighbours,
    cosine_contributions_of,
    extreme_shares,
    nearest_rows,
    partition_isotropy,
    rms_cosine,
    twonn_dimension,
    uniformity,
    unit_rows,
)

X = np.random.default_rng(4).standard_normal((30, 5))
CLOUDS = {
    "isotropic": X,
    "common mean": np.add(X, [5, 0, 0, -3, 0]),
    "almost one direction": X + 1e3,
    "very long mean": X + 1e6,
    "tiny": X * 1e-20,
    "very long and very short": X * np.logspace(-20, 20, 30)[:, None],
    "zero rows": np.concatenate([X, np.zeros((4, 5))]),
    "duplicates": np.repeat(X[:8], 3, axis=0),
    "fewer rows than dimensions": X[:3],
    "two rows": X[:2],
    "opposite": np.array([[1.0, 1, 0], [-2, -2, 0]]),
    "orthogonal": np.diag([1.0, 2, 3]),
    "one dimension": X[:, :1],
    "two dimensions": X[:, :2],
    "a constant dimension": np.pad(X, ((0, 0), (0, 1)), constant_values=2.0),
    "float16": X.astype(np.float16),
}
clouds = pytest.mark.parametrize("x", CLOUDS.values(), ids=CLOUDS)


def cosines(x) -> np.ndarray:
    """Cosine of every pair of different rows that are not zero."""
    rows = [row / np.linalg.norm(row) for row in np.asarray(x, dtype=np.float64) if row.any()]
    return np.array([a @ b for a, b in combinations(rows, 2)])


def rotation(d: int, seed: int = 0) -> np.ndarray:
    return scipy.stats.ortho_group.rvs(d, random_state=seed) if d > 1 else -np.eye(1)


# -- directions ------------------------------------------------------------------------------------------------------


@clouds
def test_unit_rows(x):
    unit = unit_rows(x)
    assert unit.dtype == np.float64
    assert len(unit) == sum(bool(row.any()) for row in x)
    np.testing.assert_allclose(np.linalg.norm(unit, axis=1), 1, rtol=1e-15)
    kept = [row.astype(np.float64) for row in x if row.any()]
    np.testing.assert_allclose(unit, [row / np.linalg.norm(row) for row in kept], rtol=1e-13)


def test_unit_rows_at_the_ends_of_float64():
    np.testing.assert_allclose(unit_rows([[3e307, 4e307], [3e-320, 4e-320]]), [[0.6, 0.8]] * 2, rtol=1e-3)


def test_half_precision_does_not_overflow():
    """300² is more than float16 holds."""
    np.testing.assert_allclose(unit_rows(np.full((2, 4), 300, dtype=np.float16)), 0.5, rtol=1e-15)


@clouds
def test_average_and_rms_cosine_are_means_over_pairs(x):
    found = cosines(x)
    unit = unit_rows(x)
    assert average_cosine_of(unit) == pytest.approx(found.mean(), abs=1e-13)
    assert rms_cosine(unit) == pytest.approx(np.sqrt((found**2).mean()), abs=1e-7)
    if np.sqrt((found**2).mean()) > 1e-3:
        assert rms_cosine(unit) == pytest.approx(np.sqrt((found**2).mean()), rel=1e-9)


@clouds
def test_contributions_sum_to_the_average_cosine(x):
    unit = unit_rows(x)
    by_pairs = np.mean([a * b for a, b in combinations(unit, 2)], axis=0)
    np.testing.assert_allclose(cosine_contributions_of(unit), by_pairs, rtol=0, atol=1e-14)
    assert cosine_contributions_of(unit).sum() == pytest.approx(cosines(x).mean(), abs=1e-13)
    if not profile_vectors(x)[-1].collapsed:
        layer = profile_vectors(x)[-1]
        np.testing.assert_allclose(cosine_contributions(layer), cosine_contributions_of(unit), rtol=0, atol=1e-13)
        assert average_cosine(layer) == pytest.approx(average_cosine_of(unit), abs=1e-13)


def test_case_30_diagonal_left_out():
    assert average_cosine_of(unit_rows([[1.0, 0], [0, 1], [1, 1]])) == pytest.approx(0.471405, abs=5e-7)


@pytest.mark.parametrize("n", [0, 1])
def test_contributions_need_two_rows(n):
    assert np.isnan(contributions(np.ones(3), np.ones(3), n)).all()


@pytest.mark.parametrize("d", [1, 2, 3, 10])
def test_rms_cosine_of_isotropic_rows(d):
    unit = unit_rows(np.random.default_rng(0).standard_normal((3_000, d)))
    assert rms_cosine(unit) == pytest.approx(1 / np.sqrt(d), rel=0.01)


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_centring_cannot_hide_a_dominant_direction(shift):
    """One direction 30 times as wide as 63 others: centred, cosines near ±1 cancel in the mean, not squared."""
    rng = np.random.default_rng(0)
    x = (rng.standard_normal((400, 64)) * [30, *[1] * 63] + shift) @ rotation(64)
    centred = unit_rows(x - x.mean(axis=0))
    assert abs(average_cosine_of(centred)) < 0.01
    assert rms_cosine(centred) == pytest.approx(np.sqrt((cosines(x - x.mean(axis=0)) ** 2).mean()), rel=1e-9)
    assert rms_cosine(centred) > 0.7
    isotropic = rng.standard_normal((400, 64)) + shift
    assert rms_cosine(unit_rows(isotropic - isotropic.mean(axis=0))) == pytest.approx(1 / 8, rel=0.02)


def test_centring_leaves_a_cosine_to_skewed_rows():
    """A hundred rows on one side, one far on the other: the docstring's exception."""
    x = np.array([[100.0]] + [[-1.0]] * 100)
    assert average_cosine_of(unit_rows(x - x.mean())) == pytest.approx(((99 / 101) ** 2 * 101 - 1) / 100, rel=1e-12)


# -- uniformity ------------------------------------------------------------------------------------------------------


@clouds
@pytest.mark.parametrize("t", [0.5, 2.0])
def test_uniformity_by_brute_force(x, t):
    rows = [row / np.linalg.norm(row) for row in np.asarray(x, dtype=np.float64) if row.any()]
    expected = np.log(np.mean([np.exp(-t * ((a - b) ** 2).sum()) for a, b in combinations(rows, 2)]))
    assert uniformity(unit_rows(x), t) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("m", [2, 3, 10])
def test_uniformity_ends(m):
    """A regular simplex is the lower end; squared distances are 2m/(m − 1)."""
    simplex = unit_rows(np.eye(m) - 1 / m)
    assert uniformity(simplex) == pytest.approx(-4 * m / (m - 1), rel=1e-12)
    assert uniformity(np.tile([[0.6, 0.8]], (m, 1))) == pytest.approx(0, abs=1e-14)


def test_large_t_does_not_vanish():
    assert uniformity(np.eye(3), t=1e4) == pytest.approx(-2e4, rel=1e-12)


# -- TwoNN -----------------------------------------------------------------------------------------------------------


def twonn_by_tree(x) -> float:
    """Facco et al. 2017 with a tree of neighbours: F_i = i/N, the largest tenth left out, least squares through 0."""
    rows = np.array(sorted({tuple(row) for row in np.asarray(x, dtype=np.float64).tolist()}))
    distance, _ = scipy.spatial.cKDTree(rows).query(rows, k=3)
    mu = np.sort(distance[:, 2] / distance[:, 1])
    n = len(mu)
    points = [(np.log(mu[i - 1]), -np.log(1 - i / n)) for i in range(1, n + 1) if i <= 0.9 * n]
    return sum(a * b for a, b in points) / sum(a * a for a, _ in points)


@pytest.mark.parametrize(("m", "d"), [(3, 2), (4, 1), (30, 5), (200, 3), (50, 80)])
@pytest.mark.parametrize(("scale", "shift"), [(1, 0), (1e-20, 0), (1, 1e6), (1e6, 1e6)])
def test_twonn_agrees_with_a_tree_of_neighbours(m, d, scale, shift):
    x = scale * np.random.default_rng(m + d).standard_normal((m, d)) + shift
    assert twonn_dimension(x) == pytest.approx(twonn_by_tree(x), rel=1e-5)


def test_twonn_of_five_dimensions_in_fifty():
    rng = np.random.default_rng(1)
    x = rng.standard_normal((3_000, 5)) @ rng.standard_normal((5, 50))
    assert twonn_dimension(x) == pytest.approx(5.0, abs=0.25)
    assert twonn_dimension(x) == pytest.approx(twonn_by_tree(x), rel=1e-8)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_twonn_of_few_dimensions(d):
    assert twonn_dimension(np.random.default_rng(0).random((2_000, d))) == pytest.approx(d, rel=0.06)


def test_twonn_underestimates_many_dimensions():
    assert twonn_dimension(np.random.default_rng(0).standard_normal((2_000, 384))) == pytest.approx(110, abs=10)


def test_twonn_counts_duplicates_once():
    x = np.random.default_rng(0).standard_normal((60, 4))
    assert twonn_dimension(np.concatenate([x, x[:25], x[:25]])) == twonn_dimension(x)
    half = x.astype(np.float16)
    assert twonn_dimension(half) == twonn_dimension(half.astype(np.float64))


@pytest.mark.parametrize(
    "x",
    [np.zeros((0, 3)), X[:1], X[:2], np.repeat(X[:2], 9, axis=0), np.zeros((9, 2)), np.arange(3.0)[:, None][[0, 2]]],
    ids=["none", "one", "two", "two, often", "zeros", "one dimension"],
)
def test_twonn_needs_three_different_rows(x):
    assert np.isnan(twonn_dimension(x))


def test_twonn_is_undefined_where_neighbours_are_equally_far():
    square = [[0.0, 0], [0, 1], [1, 0], [1, 1]]
    assert np.isnan(twonn_dimension(square))


# -- partition isotropy ----------------------------------------------------------------------------------------------


CROSS = np.array([[1.0, 0], [-1, 0], [0, 2], [0, -2]])


def test_case_30_partition_isotropy():
    assert partition_isotropy(CROSS) == pytest.approx(0.534014, abs=5e-7)
    assert partition_isotropy(CROSS) == pytest.approx((np.cosh(1) + 1) / (np.cosh(2) + 1), rel=1e-14)


@pytest.mark.parametrize("scale", [1e-20, 0.1, 1.0, 30.0, 500.0, -500.0])
def test_partition_isotropy_at_any_scale(scale):
    """At 500, cosh overflows in float64 and not in many digits."""
    s = mpmath.mpf(abs(scale))
    expected = float((mpmath.cosh(s) + 1) / (mpmath.cosh(2 * s) + 1))
    assert partition_isotropy(scale * CROSS) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("x", [CROSS, CROSS @ rotation(2), X], ids=["cross", "turned", "Gaussian"])
@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_partition_isotropy_does_not_overflow(x, scale):
    """The ratio is about exp(−10⁴): 0 in float64, and neither NaN nor a warning."""
    assert partition_isotropy(scale * x) == 0


def test_partition_isotropy_takes_both_signs():
    """F(±e1) = 1 + exp(±2), F(±e2) = 1 + exp(±1)."""
    for signs in ([1, 1], [-1, 1], [1, -1], [-1, -1]):
        found = partition_isotropy(np.diag([2.0, 1.0]) * signs)
        assert found == pytest.approx((1 + np.exp(-2)) / (1 + np.exp(2)), rel=1e-14)


@pytest.mark.parametrize(("m", "d"), [(1, 1), (1, 3), (20, 1), (20, 3), (4, 7), (200, 12)])
def test_partition_isotropy_by_singular_vectors(m, d):
    """Rows of Vᵀ are eigenvectors of XᵀX; taking the columns instead gives another value."""
    x = np.random.default_rng(m).standard_normal((m, d)) @ np.diag(np.linspace(0.2, 1, d)) @ rotation(d) + 0.3
    directions = np.linalg.svd(x)[2]
    sums = [np.exp(sign * x @ c).sum() for c in directions for sign in (1, -1)]
    assert partition_isotropy(x) == pytest.approx(min(sums) / max(sums), rel=1e-9)
    if d > 1 and m > 1:
        slip = [np.exp(sign * x @ c).sum() for c in directions.T for sign in (1, -1)]
        assert partition_isotropy(x) != pytest.approx(min(slip) / max(slip), rel=1e-3)


def test_partition_isotropy_of_nothing():
    assert np.isnan(partition_isotropy(np.zeros((0, 3))))
    assert partition_isotropy(np.zeros((5, 3))) == 1


def test_partition_isotropy_of_isotropic_directions_rises_with_rows():
    rng = np.random.default_rng(0)
    few, many = (partition_isotropy(unit_rows(rng.standard_normal((m, 16)))) for m in (50, 20_000))
    assert few < 0.9 < 0.97 < many < 1
    assert few == pytest.approx(sample_null(50, 16).partition_isotropy, abs=0.1)


# -- neighbours ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "k"), [(30, 10), (30, 1), (30, 29), (5, 10), (2, 10)])
def test_nearest_rows_by_sorting(m, k):
    unit = unit_rows(np.random.default_rng(m).standard_normal((m, 6)))
    found = nearest_rows(unit, k)
    assert found.shape == (m, min(k, m - 1))
    assert found.dtype == np.int64
    for i in range(m):
        others = sorted((j for j in range(m) if j != i), key=lambda j: -(unit[i] @ unit[j]))
        assert set(found[i]) == set(others[: min(k, m - 1)])


@pytest.mark.parametrize("m", [0, 1])
def test_no_neighbours(m):
    found = nearest_rows(np.eye(3)[:m])
    assert found.shape == (m, 0)
    assert np.isnan(changed_neighbours(found, found))


def test_a_copy_is_the_nearest_not_the_row_itself():
    unit = unit_rows(np.repeat(X[:6], 2, axis=0))
    assert nearest_rows(unit, 1)[:, 0].tolist() == [1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10]


@pytest.mark.parametrize(
    ("after", "changed"),
    [([[1, 2], [0, 2], [0, 1]], 0), ([[2, 1], [2, 0], [1, 0]], 0), ([[3, 1], [0, 2], [4, 5]], 0.5), ([[3, 4]] * 3, 1)],
)
def test_changed_neighbours(after, changed):
    before = np.array([[1, 2], [0, 2], [0, 1]])
    assert changed_neighbours(before, np.array(after)) == pytest.approx(changed, abs=1e-15)


# -- extremes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_extreme_shares_by_counting(dtype):
    x = np.random.default_rng(0).normal([0, 2, 0, -2, 0, 0, 0], [3, 1, 1, 1, 1, 1, 1], size=(50, 7)).astype(dtype)
    lowest = [sum(row[i] == min(row) for row in x) for i in range(7)]
    highest = [sum(row[i] == max(row) for row in x) for i in range(7)]
    expected = [max(low, high) / 50 for low, high in zip(lowest, highest, strict=True)]
    np.testing.assert_allclose(extreme_shares(x), expected, rtol=1e-15)


def test_extreme_shares_do_not_add_up_both_ends():
    x = np.array([[9.0, 1, 2], [-9, 1, 2], [9, 2, 1], [-9, 2, 1]])
    assert extreme_shares(x).tolist() == [0.5, 0.25, 0.25]


def test_rows_of_zeros_have_no_extreme():
    x = np.array([[0.0, 1, -1], [0, 0, 0], [0, 0, 0]])
    assert extreme_shares(x).tolist() == [0, 1, 1]
    for nothing in (x[1:], x[:0], np.ones((4, 1))):
        assert np.isnan(extreme_shares(nothing)).all()
        assert extreme_shares(nothing).shape == (nothing.shape[1],)


# -- what changes nothing ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [0, 1])
def test_one_row_has_no_pair(m):
    unit = np.eye(3)[:m]
    assert np.isnan([rms_cosine(unit), uniformity(unit), average_cosine_of(unit)]).all()
    assert np.isnan(cosine_contributions_of(unit)).all()


def test_zero_rows_alone_leave_nothing():
    unit = unit_rows(np.zeros((4, 3)))
    assert unit.shape == (0, 3)
    assert np.isnan([rms_cosine(unit), uniformity(unit), average_cosine_of(unit), partition_isotropy(unit)]).all()


@settings(max_examples=40, deadline=None)
@given(
    m=st.integers(4, 30),
    d=st.integers(1, 8),
    seed=st.integers(0, 999),
    exponent=st.integers(-20, 20),
    shift=st.floats(-5, 5),
)
def test_invariances(m, d, seed, exponent, shift):
    """Rotation and order of rows change nothing; lengths of rows nothing of directions; a shift nothing of TwoNN."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((m, d)) + rng.standard_normal(d)
    turned = (x @ rotation(d, seed))[rng.permutation(m)]
    longer = turned * np.exp(rng.standard_normal((m, 1))) * 10.0**exponent
    for statistic in (rms_cosine, uniformity, average_cosine_of):
        assert statistic(unit_rows(longer)) == pytest.approx(statistic(unit_rows(x)), abs=1e-7)
    assert 0 <= rms_cosine(unit_rows(x)) <= 1 + 1e-12
    assert rms_cosine(unit_rows(x)) >= abs(average_cosine_of(unit_rows(x))) - 1e-7
    moved = 10.0**exponent * (turned + shift)
    assert twonn_dimension(moved) == pytest.approx(twonn_dimension(x), rel=1e-4)
    assert partition_isotropy(turned) == pytest.approx(partition_isotropy(x), rel=1e-6)
    assert 0 < partition_isotropy(x) <= 1


def test_order_of_rows_renumbers_neighbours():
    unit, order = unit_rows(X), np.random.default_rng(0).permutation(30)
    before, after = nearest_rows(unit, 4), order[nearest_rows(unit[order], 4)]
    assert changed_neighbours(before[order], after) == 0
    assert changed_neighbours(before, after) > 0.5
