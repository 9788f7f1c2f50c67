"""Normalisations of arrays, against scikit-learn and the formulas worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import OAS
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler, normalize

from cls_analysis import profile_vectors
from cls_analysis.statistics.normalizers import (
    NORMALIZERS,
    Affine,
    isobn_scale,
    oracle_shrinkage,
    removed_components,
)


def layer_of(x):
    return profile_vectors(x)[-1]


def after(name: str, x) -> np.ndarray:
    """Rows after the normalisation fitted on them."""
    return NORMALIZERS[name](layer_of(x))(np.asarray(x, dtype=np.float64))


def gaussian(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Correlated Gaussian rows of unlike spread with a mean."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((d, d)) * np.logspace(0, 1, d)
    return rng.standard_normal((n, d)) @ mixing + 3 * rng.standard_normal(d)


names = pytest.mark.parametrize("name", NORMALIZERS)
#: Those that give 0 in a dead dimension.
DROPPING = ["standardize", "whiten", "all-but-the-top"]
X = gaussian(40, 6)
CLOUDS = {
    "Gaussian": X,
    "dead dimensions": np.pad(X, ((0, 0), (1, 1)), constant_values=[[0, 0], [7, 0]]),
    "one living": np.pad(X[:, :1], ((0, 0), (0, 5))),
    "one dimension": X[:, :1],
    "two dimensions": X[:, :2],
    "fewer rows than dimensions": X[:4],
    "two rows": X[:2],
    "one row": X[:1],
    "one row, often": np.repeat(X[:1], 9, axis=0),
    "zeros": np.zeros((9, 4)),
    "some zero rows": np.concatenate([X, np.zeros((5, 6))]),
    "duplicates": np.repeat(X[:20], 2, axis=0),
    "dependent": np.column_stack([X, X[:, 0] + X[:, 1]]),
    "very long mean": X + 1e6,
    "tiny": X * 1e-20,
    "huge": X * 1e20,
    "float16": X.astype(np.float16),
}


# -- all -------------------------------------------------------------------------------------------------------------


@names
@pytest.mark.parametrize("x", CLOUDS.values(), ids=CLOUDS)
def test_finite_everywhere(name, x):
    y = after(name, x)
    assert y.shape == x.shape
    assert y.dtype == np.float64
    assert np.isfinite(y).all()


@pytest.mark.parametrize("name", DROPPING)
@pytest.mark.parametrize("x", [CLOUDS[name] for name in ("dead dimensions", "one living", "one row, often", "zeros")])
def test_dead_dimensions_become_zero(name, x):
    dead = layer_of(x).dead
    assert dead.any()
    y = after(name, x)
    assert (y[:, dead] == 0).all()
    # Rows never seen, in which the dead dimensions vary.
    assert (NORMALIZERS[name](layer_of(x))(np.random.default_rng(0).normal(size=x.shape))[:, dead] == 0).all()


@pytest.mark.parametrize("name", DROPPING)
def test_dead_dimensions_do_not_change_the_living(name):
    living = after(name, X)
    padded = np.insert(np.insert(X, 6, 0.0, axis=1), 2, 7.0, axis=1)
    found = np.delete(after(name, padded), [2, 7], axis=1)
    # Eigenvectors come with either sign.
    np.testing.assert_allclose(np.abs(found), np.abs(living), rtol=1e-9, atol=1e-9)


@names
def test_does_not_write_to_its_rows(name):
    x = X.copy()
    NORMALIZERS[name](layer_of(X))(x)
    np.testing.assert_array_equal(x, X)


@settings(max_examples=20, deadline=None)
@given(
    n=st.integers(3, 40),
    d=st.integers(1, 8),
    seed=st.integers(0, 999),
    exponent=st.integers(-15, 15),
    shift=st.floats(-100, 100),
)
def test_what_scale_and_shift_do(n, d, seed, exponent, shift):
    """Standardised and whitened rows know neither; the others follow the scale, or forget it."""
    x, factor = gaussian(n, d, seed), 10.0**exponent
    np.testing.assert_allclose(after("standardize", factor * (x + shift)), after("standardize", x), atol=1e-7)
    white, moved = after("whiten", x), after("whiten", factor * (x + shift))
    np.testing.assert_allclose(moved @ moved.T, white @ white.T, atol=1e-6)
    np.testing.assert_allclose(after("center", factor * (x + shift)), factor * after("center", x), atol=factor * 1e-9)
    for name in ("scale", "l2norm"):
        np.testing.assert_allclose(after(name, factor * x), after(name, x), rtol=1e-9, atol=1e-12)


# -- rescaling -------------------------------------------------------------------------------------------------------


def test_none_and_center():
    np.testing.assert_array_equal(after("none", X), X)
    np.testing.assert_allclose(after("center", X), X - X.mean(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize("factor", [1e-20, 1.0, 1e20])
def test_scale_makes_the_mean_square_one(factor):
    y = after("scale", factor * X)
    assert (y**2).mean() == pytest.approx(1, rel=1e-12)
    np.testing.assert_allclose(y / y[0, 0], X / X[0, 0], rtol=1e-12)
    assert (after("scale", np.zeros((3, 2))) == 0).all()


@pytest.mark.parametrize("shift", [0, 1e6])
def test_standardize_agrees_with_scikit_learn(shift):
    y = after("standardize", X + shift)
    np.testing.assert_allclose(y, StandardScaler().fit_transform(X + shift), rtol=0, atol=1e-8)
    np.testing.assert_allclose(y.var(axis=0), 1, rtol=1e-9)
    np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-9)


@pytest.mark.parametrize("factor", [1e-20, 1e-3, 1.0, 1e6])
def test_layernorm_standardizes_each_row(factor):
    """With torch's 1e-5 beside the variance."""
    variance = (factor * X).var(axis=1, keepdims=True)
    expected = scipy.stats.zscore(X, axis=1) * np.sqrt(variance / (variance + 1e-5))
    np.testing.assert_allclose(after("layernorm", factor * X), expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(after("layernorm", factor * X).mean(axis=1), 0, atol=1e-12)


def test_l2norm_agrees_with_scikit_learn():
    x = np.concatenate([X, np.zeros((2, 6))])
    np.testing.assert_allclose(after("l2norm", x), normalize(x), rtol=1e-14)
    assert (after("l2norm", x)[-2:] == 0).all()


# -- IsoBN -----------------------------------------------------------------------------------------------------------


def isobn_theta(x, eps: float = 1e-3, beta: float = 0.5) -> np.ndarray:
    """θ by the seven steps of the released code, at its fixed point and one entry at a time."""
    n, d = x.shape
    mu = [sum(x[:, i]) / n for i in range(d)]
    sigma = [(sum((x[:, i] - mu[i]) ** 2) / n) ** 0.5 for i in range(d)]
    c = [[sum((x[:, i] - mu[i]) * (x[:, j] - mu[j])) / n for j in range(d)] for i in range(d)]
    rho = [[max(-1, min(1, c[i][j] / (sigma[i] * sigma[j]))) for j in range(d)] for i in range(d)]
    gamma = [sum(r**2 for r in rho[i]) / d for i in range(d)]
    theta = [(gamma[i] * sigma[i] + eps) ** -beta for i in range(d)]
    total = sum(c[i][i] for i in range(d))
    scaled = sum(c[i][i] * theta[i] ** 2 for i in range(d))
    return np.array(theta) * (total / (scaled + eps)) ** 0.5


@pytest.mark.parametrize(("n", "d"), [(40, 6), (40, 1), (3, 5)])
@pytest.mark.parametrize("factor", [1e-20, 1e-3, 1.0, 1e3])
def test_isobn_by_hand(n, d, factor):
    x = factor * gaussian(n, d)
    np.testing.assert_allclose(after("isobn", x), x * isobn_theta(x), rtol=1e-9)


def test_isobn_keeps_the_total_variance_and_scales_the_mean():
    x = gaussian(200, 12)
    y = after("isobn", x)
    assert y.var(axis=0).sum() == pytest.approx(x.var(axis=0).sum(), rel=1e-3)
    np.testing.assert_allclose(y.mean(axis=0) / x.mean(axis=0), y.std(axis=0) / x.std(axis=0), rtol=1e-9)
    # It evens out the standard deviations.
    assert y.std(axis=0).max() / y.std(axis=0).min() < x.std(axis=0).max() / x.std(axis=0).min()


def test_isobn_leaves_equal_uncorrelated_dimensions():
    """γ = 1/d, so that γσ + ε = 1 at σ = d(1 − ε): θ = 1 before the variance is restored, and all but 1 after."""
    std = np.full(4, 4 * (1 - 1e-3))
    theta = isobn_scale(np.diag(std**2), std, np.ones(4, dtype=bool))
    np.testing.assert_allclose(theta, np.sqrt(1 / (1 + 1e-3 / (std**2).sum())), rtol=1e-14)
    np.testing.assert_allclose(theta, 1, rtol=1e-4)


def test_isobn_of_one_group_and_a_single():
    """Three copies and one alone, all of variance 1: γ = ¾ and ¼, so θ² is in the ratio of the two."""
    covariance = np.zeros((4, 4))
    covariance[:3, :3] = covariance[3, 3] = 1
    theta = isobn_scale(covariance, np.ones(4), np.ones(4, dtype=bool))
    assert theta[3] ** 2 / theta[0] ** 2 == pytest.approx((0.75 + 1e-3) / (0.25 + 1e-3), rel=1e-12)
    assert (theta[:3] == theta[0]).all()


def test_isobn_of_a_dead_dimension_is_finite_and_leaves_no_trace():
    """γσ = 0 leaves (0 + ε)^−½; γ of the others is over d, the dead one included."""
    x = np.insert(X, 2, 5.0, axis=1)
    theta = after("isobn", x)[0] / x[0]
    variance, std = x.var(axis=0), x.std(axis=0)
    rho = np.nan_to_num(np.corrcoef(np.delete(x, 2, axis=1).T))
    gamma = np.insert((rho**2).sum(axis=1) / 7, 2, 0.0)
    raw = 1 / np.sqrt(gamma * std + 1e-3)
    expected = raw * np.sqrt(variance.sum() / ((variance * raw**2).sum() + 1e-3))
    np.testing.assert_allclose(theta, expected, rtol=1e-9)


# -- whitening -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(30, 5), (300, 5), (10, 20), (4, 3), (20, 2)])
def test_shrinkage_agrees_with_scikit_learn(n, d):
    x = gaussian(n, d)
    values = np.linalg.eigvalsh(np.cov(x.T, bias=True))
    assert oracle_shrinkage(values, n) == pytest.approx(OAS().fit(x).shrinkage_, rel=1e-9)


@pytest.mark.parametrize(("values", "n"), [([3.0], 10), ([2.0] * 5, 10), ([1e-40] * 3, 9), ([1.0, 2.0], 1)])
def test_nothing_to_keep_apart_is_shrunk_wholly(values, n):
    assert oracle_shrinkage(np.array(values), n) == 1


@pytest.mark.parametrize(("n", "d"), [(40, 6), (300, 6), (5, 8)])
def test_whitening_inverts_the_shrunk_covariance(n, d):
    """W Wᵀ = Σ⁻¹ of scikit-learn's OAS."""
    x = gaussian(n, d)
    whiten = NORMALIZERS["whiten"](layer_of(x))
    assert isinstance(whiten, Affine)
    precision = np.linalg.inv(OAS().fit(x).covariance_)
    np.testing.assert_allclose(whiten.gain @ whiten.gain.T, precision, rtol=1e-8, atol=1e-10 * precision.max())
    np.testing.assert_allclose(whiten.shift, x.mean(axis=0), rtol=1e-12)


@pytest.mark.parametrize("shift", [0, 1e6])
def test_whitened_rows_are_uncorrelated_of_variance_one(shift):
    x = np.random.default_rng(0).standard_normal((50_000, 4)) @ (2 * np.eye(4) + np.tri(4)) + shift
    y = after("whiten", x)
    np.testing.assert_allclose(np.cov(y.T, bias=True), np.eye(4), atol=0.01)
    np.testing.assert_allclose(y.mean(axis=0), 0, atol=1e-6)
    # The shrinkage bends only the variances.
    np.testing.assert_allclose(np.corrcoef(y.T), np.eye(4), atol=1e-7)


def test_few_rows_are_not_blown_up():
    """Ten rows of 20 dimensions show nine directions; a new row stays of the order of √d all the same."""
    rng = np.random.default_rng(0)
    y = NORMALIZERS["whiten"](layer_of(rng.standard_normal((10, 20))))(rng.standard_normal((500, 20)))
    assert np.sqrt((y**2).sum(axis=1).mean() / 20) == pytest.approx(1, abs=0.2)


# -- all but the top -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "removed"), [(1, 1), (50, 1), (100, 1), (384, 4), (768, 8), (1_024, 10)])
def test_a_hundredth_of_the_components(d, removed):
    assert removed_components(d) == removed


@pytest.mark.parametrize(("n", "d"), [(60, 6), (200, 150), (30, 150)])
def test_exactly_the_top_components_go(n, d):
    x = gaussian(n, d)
    k = removed_components(d)
    pca = PCA(svd_solver="full").fit(x)
    scores = pca.transform(x)
    scores[:, :k] = 0
    y = after("all-but-the-top", x)
    np.testing.assert_allclose(y, scores @ pca.components_, rtol=0, atol=1e-8 * np.abs(x).max())
    # Nothing is left along them, and the rest is as it was.
    np.testing.assert_allclose(y @ pca.components_[:k].T, 0, atol=1e-8 * np.abs(x).max())
    left = np.linalg.eigvalsh(np.cov(y.T, bias=True))[::-1]
    rank = min(n - 1, d)
    np.testing.assert_allclose(left[: rank - k], pca.explained_variance_[k:rank] * (n - 1) / n, rtol=1e-6)
    np.testing.assert_allclose(left[rank - k :], 0, atol=1e-9 * left[0])


def test_more_components_to_remove_than_live():
    x = np.pad(X[:, :2], ((0, 0), (0, 398)))
    assert removed_components(400) == 4
    np.testing.assert_allclose(after("all-but-the-top", x), 0, atol=1e-12)


@pytest.mark.parametrize("name", ["whiten", "all-but-the-top", "center", "standardize"])
def test_rotation_changes_none_but_standardized_cosines(name):
    turn = scipy.stats.ortho_group.rvs(6, random_state=0)
    before, turned = after(name, X), after(name, X @ turn)
    same = np.allclose(turned @ turned.T, before @ before.T, atol=1e-7 * np.abs(X).max() ** 2)
    assert same == (name != "standardize")
