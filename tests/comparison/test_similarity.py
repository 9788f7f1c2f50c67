"""RSA, CKA and Procrustes: by their definitions on small matrices, their invariances, nulls by enumeration, errors."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.spatial.distance
import scipy.stats

from cls_analysis.comparison.pairs import correlation_null, debiased_null, pair_correlation, pair_sums
from cls_analysis.comparison.similarity import (
    debiased_cka,
    linear_cka,
    procrustes_distance,
    rsa_pearson,
    rsa_spearman,
)
from cls_analysis.errors import DataError


def gaussian(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d))


def related(n=60, d=12, seed=0):
    """Two sets that share a part, off the origin, of other widths."""
    x = gaussian(n, d, seed) * np.geomspace(0.2, 3, d) + 1.0
    return x, x @ gaussian(d, d + 3, seed + 1) + 2.0 * gaussian(n, d + 3, seed + 2)


def rotated(x, seed=9):
    q, _ = np.linalg.qr(gaussian(x.shape[1], x.shape[1], seed))
    return 3.0 * x @ q


# -- definitions -----------------------------------------------------------------------------------------------------


def test_rsa_is_the_correlation_of_the_cosine_matrices():
    x, y = related()
    cosines = [1 - scipy.spatial.distance.pdist(rows, "cosine") for rows in (x, y)]
    assert rsa_pearson(x, y).value == pytest.approx(np.corrcoef(cosines)[0, 1], abs=1e-12)
    assert rsa_spearman(x, y) == pytest.approx(scipy.stats.spearmanr(*cosines).statistic, abs=1e-12)


def test_rsa_keeps_its_digits_where_all_cosines_are_near_1():
    x, y = (1e4 + rows for rows in related())
    long = [np.asarray(rows, dtype=np.longdouble) for rows in (x, y)]
    long = [rows / np.sqrt((rows**2).sum(axis=1, keepdims=True)) for rows in long]
    i, j = np.triu_indices(len(x), 1)
    a, b = ((rows[i] * rows[j]).sum(axis=1) for rows in long)
    a, b = a - a.mean(), b - b.mean()
    expected = float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))
    assert rsa_pearson(x, y).value == pytest.approx(expected, abs=1e-6)


def by_u_statistics(x, y):
    """Debiased CKA as Song et al. 2007 write HSIC: traces of kernels without their diagonals."""
    n, kernels = len(x), []
    for rows in (x, y):
        kernel = rows @ rows.T
        np.fill_diagonal(kernel, 0.0)
        kernels.append(kernel)

    def hsic(k, m):
        one = np.ones(n)
        both = np.trace(k @ m) + (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
        return both - 2 / (n - 2) * (one @ k @ m @ one)

    k, m = kernels
    return hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))


@pytest.mark.parametrize("n", [20, 60])
def test_debiased_cka_three_ways(n):
    x, y = related(n)
    expected = by_u_statistics(x, y)
    assert debiased_cka(x, y).value == pytest.approx(expected, abs=1e-10)
    assert linear_cka(x, y).debiased == pytest.approx(expected, abs=1e-10)


def test_biased_cka_by_its_kernels():
    x, y = related()
    centre = np.eye(len(x)) - 1 / len(x)
    k, m = centre @ x @ x.T @ centre, centre @ y @ y.T @ centre
    expected = np.trace(k @ m) / np.sqrt(np.trace(k @ k) * np.trace(m @ m))
    assert linear_cka(x, y).biased == pytest.approx(expected, abs=1e-12)


def test_linear_cka_streams(monkeypatch):
    x, y = related()
    whole = linear_cka(x, y)
    monkeypatch.setattr("cls_analysis.comparison.similarity.STREAMED_ROWS", 7)
    parts = linear_cka(x.astype(np.float32), y.astype(np.float32))
    assert parts.debiased == pytest.approx(whole.debiased, abs=1e-6)
    assert parts.biased == pytest.approx(whole.biased, abs=1e-6)


def test_procrustes_is_scipys_disparity():
    x, y = related()
    y = y[:, : x.shape[1]]
    _, _, disparity = scipy.spatial.procrustes(x, y)  # 1 − (Σ singular values)², of the same normalised matrices
    nuclear = 1 - procrustes_distance(x, y) / 2
    assert 1 - nuclear**2 == pytest.approx(disparity, abs=1e-12)


# -- what is the same ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", [lambda x: x, rotated], ids=["itself", "rotated and scaled"])
def test_the_same_geometry_is_1(change):
    x, _ = related(100, 20)
    y = change(x)
    for found in (rsa_pearson(x, y), debiased_cka(x, y)):
        assert (found.value, found.low, found.high) == pytest.approx((1, 1, 1), abs=1e-12)
    assert rsa_spearman(x, y) == pytest.approx(1, abs=1e-9)
    assert linear_cka(x, y).biased == pytest.approx(1, abs=1e-12)
    assert procrustes_distance(x, y) == pytest.approx(0, abs=1e-12)


def test_independent_vectors():
    x, y = gaussian(1_043, 384, 1), gaussian(1_043, 384, 2)
    found = linear_cka(x, y)
    assert abs(found.debiased) < 0.01
    assert found.biased > 0.1
    assert found.biased == pytest.approx(found.biased_null, abs=0.01)
    assert found.biased_null == pytest.approx(384 / (1_043 + 384), abs=0.01)  # n·d/(n·d + d²) in expectation


def test_order_does_not_matter_and_blocks_neither(monkeypatch):
    x, y = related()
    order = np.random.default_rng(0).permutation(len(x))
    whole = rsa_pearson(x, y, count=0).value, debiased_cka(x, y, count=0).value
    monkeypatch.setattr("cls_analysis.comparison.pairs.BLOCK_NUMBERS", 100)
    again = rsa_pearson(x[order], y[order], count=0).value, debiased_cka(x[order], y[order], count=0).value
    assert again == pytest.approx(whole, abs=1e-12)


def test_spearman_by_seeded_pairs(monkeypatch):
    x, y = related(300)
    exact = rsa_spearman(x, y)
    monkeypatch.setattr("cls_analysis.comparison.similarity.EXACT_ROWS", 100)
    assert rsa_spearman(x, y) == pytest.approx(exact, abs=0.01)
    assert rsa_spearman(x, y) == rsa_spearman(x, y)
    assert rsa_spearman(x, y) != rsa_spearman(x, y, seed=1)


# -- nulls and intervals ---------------------------------------------------------------------------------------------


def test_nulls_are_those_of_all_permutations():
    n = 7
    x, y = related(n, 4)
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y)]
    everything = np.ones((n, 1))
    rsa, cka, biased = [], [], []
    for order in itertools.permutations(range(n)):
        shuffled = list(order)
        rsa.append(float(pair_correlation(pair_sums(unit[0], unit[1][shuffled], everything))[0]))
        one = linear_cka(x, y[shuffled])
        cka.append(one.debiased)
        biased.append(one.biased)
    sums = pair_sums(*unit, everything)
    assert np.mean(rsa) == pytest.approx(0, abs=1e-12)
    assert np.std(rsa) == pytest.approx(float(correlation_null(sums)[0]), rel=1e-9)
    assert np.mean(cka) == pytest.approx(0, abs=1e-12)
    assert np.std(cka) == pytest.approx(debiased_null(n), rel=1e-9)
    assert np.mean(biased) == pytest.approx(linear_cka(x, y).biased_null, rel=1e-9)


def test_permuted_rows_lie_inside_the_null():
    x, _ = related(400, 20)
    y = x[np.random.default_rng(3).permutation(len(x))]
    for found in (rsa_pearson(x, y), debiased_cka(x, y)):
        assert abs(found.value - found.null) < 3 * found.null_std


def test_coverage_for_independent_vectors():
    # Halves alone would give 100 %: the statistic is degenerate here, and its halves scatter √3 too far.
    held = 0
    for seed in range(200):
        found = debiased_cka(gaussian(120, 30, 2 * seed), gaussian(120, 30, 2 * seed + 1), seed=seed)
        held += found.low <= 0 <= found.high
    assert 0.90 <= held / 200 <= 0.99


@pytest.mark.parametrize("measure", [rsa_pearson, debiased_cka])
def test_coverage_for_related_vectors(measure):
    x, y = related(40_000)
    rng = np.random.default_rng(0)
    # Of 40,000 rows, the truth to a few thousandths of an interval.
    truth = linear_cka(x, y).debiased if measure is debiased_cka else _mean_rsa(x, y)
    held = []
    for seed in range(150):
        rows = rng.choice(len(x), 150, replace=False)
        found = measure(x[rows], y[rows], seed=seed)
        held.append(found.low <= truth <= found.high)
    assert 0.88 <= np.mean(held) <= 0.99


def _mean_rsa(x, y):
    parts = np.array_split(np.arange(len(x)), 10)
    return float(np.mean([rsa_pearson(x[rows], y[rows], count=0).value for rows in parts]))


# -- errors (hardcase 32) --------------------------------------------------------------------------------------------

MEASURES = (rsa_pearson, rsa_spearman, debiased_cka, linear_cka, procrustes_distance)


@pytest.mark.parametrize("measure", MEASURES)
def test_rows_that_do_not_match(measure):
    x, y = related()
    with pytest.raises(DataError, match="60 rows against 59: row i of both sides must be the same stimulus"):
        measure(x, y[:-1])
    x[17, 3] = np.nan
    with pytest.raises(DataError, match="the first vectors: row 17 holds a value that is not finite"):
        measure(x, y)
    with pytest.raises(DataError, match=r"the second vectors: expected shape \(n, d\), got \(60,\)"):
        measure(y, y[:, 0])
    with pytest.raises(DataError, match=r"at least [48] rows are needed to compare, got 3"):
        measure(y[:3], y[:3])


@pytest.mark.parametrize("measure", [rsa_pearson, rsa_spearman])
def test_rows_without_direction(measure):
    x, y = related()
    y[[4, 11]] = 0.0
    with pytest.raises(DataError, match=r"2 rows of zeros \(4, 11\) have no direction: leave them out on both sides"):
        measure(x, y)


def test_case_32_rescalings_of_one_pattern_have_no_order():
    pattern = np.outer([1.0, 0.3, 7.0, 11.0, 1e-3, 1e3], [0.1, -0.7, 0.2])
    x, _ = related(6, 5)
    assert np.isnan(rsa_spearman(pattern, x))


def test_vectors_that_do_not_vary():
    x, _ = related()
    same = np.ones_like(x)
    assert np.isnan(linear_cka(x, same).debiased)
    assert np.isnan(procrustes_distance(same, x))
    assert np.isnan(debiased_cka(x, same).value)
    assert np.isnan(rsa_pearson(x, same).value)
