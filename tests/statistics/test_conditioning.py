"""Condition numbers after each normalisation, against NumPy's of rows transformed one by one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from sklearn.covariance import OAS
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler, normalize

from cls_analysis import profile_vectors
from cls_analysis.statistics.conditioning import condition_number_after
from cls_analysis.statistics.normalizers import NORMALIZERS
from cls_analysis.statistics.spectrum import condition_number


def layer_of(x):
    return profile_vectors(x)[-1]


def gaussian(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Correlated Gaussian rows of unlike spread with a mean."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((d, d)) * np.logspace(0, 0.5, d)
    return rng.standard_normal((n, d)) @ mixing + 3 * rng.standard_normal(d)


def isobn(x) -> np.ndarray:
    gamma = (np.corrcoef(x.T).reshape(x.shape[1], -1) ** 2).mean(axis=1)
    return x / np.sqrt(gamma * x.std(axis=0) + 1e-3)  # one factor for all changes no ratio


def whiten(x) -> np.ndarray:
    values, vectors = np.linalg.eigh(OAS().fit(x).covariance_)
    return (x - x.mean(axis=0)) @ vectors / np.sqrt(values)


def all_but_the_top(x) -> np.ndarray:
    """Coordinates along the components that stay, the only ones that count."""
    return PCA(svd_solver="full").fit_transform(x)[:, max(1, round(x.shape[1] / 100)) :]


def layernorm(x) -> np.ndarray:
    """Coordinates in the plane of rows that sum to zero."""
    d = x.shape[1]
    y = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)
    return y @ np.linalg.svd(np.ones((1, d)))[2][1:].T


EXPLICIT = {
    "none": lambda x: x,
    "scale": lambda x: 7 * x,
    "center": lambda x: x - x.mean(axis=0),
    "standardize": lambda x: StandardScaler().fit_transform(x),
    "layernorm": layernorm,
    "l2norm": normalize,
    "isobn": isobn,
    "whiten": whiten,
    "all-but-the-top": all_but_the_top,
}
names = pytest.mark.parametrize("name", NORMALIZERS)


def expected(name: str, x) -> float:
    """λmax/λmin of the second moment: the square of the ratio of singular values."""
    return float(np.linalg.cond(EXPLICIT[name](x)) ** 2)


def test_every_normalisation_is_tried():
    assert list(EXPLICIT) == list(NORMALIZERS)


@names
@pytest.mark.parametrize(("n", "d"), [(200, 8), (13, 12), (50, 2), (300, 40)])
def test_agrees_with_explicit_rows(name, n, d):
    x = gaussian(n, d)
    assert condition_number_after(layer_of(x), name) == pytest.approx(expected(name, x), rel=1e-6)


@names
@pytest.mark.parametrize("factor", [1e-20, 1e20])
def test_scale_of_the_rows(name, factor):
    """Only IsoBN and LayerNorm, which have an ε, know the scale."""
    x = gaussian(60, 5)
    found = condition_number_after(layer_of(factor * x), name)
    assert found >= 1
    if name not in ("isobn", "layernorm"):
        assert found == pytest.approx(condition_number_after(layer_of(x), name), rel=1e-8)
    else:
        assert found == pytest.approx(expected(name, factor * x), rel=1e-6)


@pytest.mark.parametrize("name", ["none", "scale", "center", "standardize", "l2norm", "isobn", "whiten"])
def test_dead_dimensions_do_not_count(name):
    x = gaussian(60, 5)
    padded = np.insert(x, [1, 4], 0.0, axis=1)
    if name == "isobn":  # γ is over all dimensions, the dead ones included
        gamma = (np.corrcoef(x.T) ** 2).sum(axis=1) / 7
        right = np.linalg.cond(x / np.sqrt(gamma * x.std(axis=0) + 1e-3)) ** 2
    else:
        right = expected(name, x)
    assert condition_number_after(layer_of(padded), name) == pytest.approx(right, rel=1e-7)


@names
@pytest.mark.parametrize(
    "x",
    [np.full((20, 4), 14.3), np.zeros((20, 4)), np.ones((1, 4)), gaussian(4, 6), gaussian(6, 6)],
    ids=["collapsed", "zeros", "one row", "fewer rows", "as many rows"],
)
def test_undefined(name, x):
    assert np.isnan(condition_number_after(layer_of(x), name))


@pytest.mark.parametrize("name", ["layernorm", "l2norm"])
def test_rows_of_the_sample_count_where_they_are_measured(name):
    x = gaussian(200, 8)
    layer = layer_of(x)
    small = replace(layer, sample=layer.sample[:20])
    assert condition_number_after(small, name) == pytest.approx(expected(name, x[:20]), rel=1e-7)
    assert np.isnan(condition_number_after(replace(layer, sample=layer.sample[:8]), name))
    assert np.isnan(condition_number_after(replace(layer, sample=layer.sample[:0]), name))


@pytest.mark.parametrize("name", ["none", "scale", "center", "standardize", "isobn", "whiten", "all-but-the-top"])
def test_all_rows_count_elsewhere(name):
    layer = layer_of(gaussian(60, 5))
    assert condition_number_after(replace(layer, sample=layer.sample[:0]), name) == condition_number_after(layer, name)


@pytest.mark.parametrize("name", ["layernorm", "l2norm"])
def test_half_precision_is_widened(name):
    """Squares of 300 do not fit into float16."""
    x = (100 * gaussian(60, 5)).astype(np.float16)
    assert condition_number_after(layer_of(x), name) == pytest.approx(expected(name, x.astype(np.float64)), rel=1e-7)


@pytest.mark.parametrize("name", ["none", "center", "scale", "standardize", "l2norm", "isobn", "whiten"])
def test_one_dimension_is_one(name):
    assert condition_number_after(layer_of(gaussian(9, 1)), name) == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("name", ["layernorm", "all-but-the-top"])
def test_nothing_is_left_of_one_dimension(name):
    assert np.isnan(condition_number_after(layer_of(gaussian(9, 1)), name))
    assert np.isnan(condition_number_after(layer_of(np.pad(gaussian(9, 1), ((0, 0), (0, 3)))), name))


def test_more_components_to_remove_than_live():
    """Four of 400 go, and only three live."""
    x = np.pad(gaussian(50, 3), ((0, 0), (0, 397)))
    assert np.isnan(condition_number_after(layer_of(x), "all-but-the-top"))


@pytest.mark.parametrize("name", ["none", "scale", "center", "standardize", "l2norm", "isobn", "all-but-the-top"])
def test_dependent_dimensions_are_undefined(name):
    x = gaussian(50, 3)
    assert np.isnan(condition_number_after(layer_of(np.column_stack([x, x[:, 0] + x[:, 1]])), name))


@pytest.mark.parametrize("shift", [0, 1e3, 1e6])
def test_a_mean_counts_until_it_is_subtracted(shift):
    x = gaussian(60, 5)
    layer, before = layer_of(x + shift), layer_of(x)
    for name in ("center", "standardize", "whiten", "all-but-the-top"):
        assert condition_number_after(layer, name) == pytest.approx(condition_number_after(before, name), rel=1e-6)
    # Rescaled is not normalised.
    assert condition_number_after(layer, "scale") == condition_number_after(layer, "none") == condition_number(layer)
    if shift:
        assert condition_number(layer) > 1e3 * condition_number_after(layer, "center")


def test_well_conditioned_after_whitening_many_rows():
    x = np.random.default_rng(0).standard_normal((20_000, 5)) * [1, 2, 3, 4, 5]
    assert condition_number_after(layer_of(x), "center") == pytest.approx(25, rel=0.05)
    assert condition_number_after(layer_of(x), "standardize") < 1.1
    assert condition_number_after(layer_of(x), "whiten") < 1.01


@pytest.mark.parametrize("name", ["none", "scale", "center", "l2norm", "whiten", "all-but-the-top"])
def test_rotation_changes_nothing(name):
    x = gaussian(60, 5)
    turned = x @ scipy.stats.ortho_group.rvs(5, random_state=3)
    found, right = (condition_number_after(layer_of(each), name) for each in (turned, x))
    assert found == pytest.approx(right, rel=1e-7)


def test_unknown_name():
    with pytest.raises(KeyError):
        condition_number_after(layer_of(gaussian(9, 2)), "batchnorm")
