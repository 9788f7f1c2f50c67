"""``Moments``: exact to float64 rounding, however the rows arrive."""

from __future__ import annotations

from fractions import Fraction
from math import sqrt

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cls_analysis.errors import DataError
from cls_analysis.moments import Moments

EIGHT = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]
#: Multiples of 1/64 up to 100: sums of a few are exact, so that the rational reference decides.
GRID = st.integers(-6_400, 6_400).map(lambda k: k / 64)
MATRICES = hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=12), elements=GRID)


def moments_of(x, **options) -> Moments:
    x = np.asarray(x)
    moments = Moments(x.shape[1], **options)
    moments.update(x)
    return moments


def column(values) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)[:, None]


def central(values, k: int) -> Fraction:
    """k-th central moment in rational arithmetic."""
    exact = [Fraction(float(v)) for v in values]
    mean = sum(exact) / len(exact)
    return sum((v - mean) ** k for v in exact) / len(exact)


def merge_tree(shards: list[Moments], rng: np.random.Generator) -> Moments:
    """Merge in random order until one is left."""
    shards = list(shards)
    while len(shards) > 1:
        a = shards.pop(rng.integers(len(shards)))
        b = shards.pop(rng.integers(len(shards)))
        shards.append(a.merge(b))
    return shards[0]


def assert_within_contract(moments: Moments, x: np.ndarray) -> None:
    """1e-10 of the scale for the mean (of the RMS) and k-th moments (of σᵏ), 1e-8 for skewness and kurtosis."""
    n = len(x)
    state = moments.to_arrays()
    assert moments.n == n
    np.testing.assert_array_equal(moments.minimum, x.min(axis=0))
    np.testing.assert_array_equal(moments.maximum, x.max(axis=0))
    for i, values in enumerate(x.T):
        exact = [Fraction(float(v)) for v in values]
        rms = sqrt(sum(v * v for v in exact) / n)
        assert abs(Fraction(float(moments.mean[i])) - sum(exact) / n) <= 1e-10 * rms
        m2, m3, m4 = (central(values, k) for k in (2, 3, 4))
        if m2 == 0:
            assert moments.variance[i] == 0
            assert moments.constant[i]
            assert np.isnan(moments.skewness[i])
            assert np.isnan(moments.kurtosis_excess[i])
            continue
        sigma = sqrt(m2)
        for k, moment in ((2, m2), (3, m3), (4, m4)):
            assert abs(Fraction(float(state[f"m{k}"][i])) / n - moment) <= 1e-10 * sigma**k
        assert moments.variance[i] == pytest.approx(float(m2), rel=1e-10)
        assert moments.std[i] == pytest.approx(sigma, rel=1e-10)
        assert moments.skewness[i] == pytest.approx(float(m3) / sigma**3, abs=1e-8)
        assert moments.kurtosis_excess[i] == pytest.approx(float(m4 / m2**2) - 3, abs=1e-8)


# -- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "mean", "variance", "skewness", "kurtosis"),
    [
        (EIGHT, 5, 4, 0.65625, -0.21875),
        ([1, 2, 3, 4], 2.5, 1.25, 0, -1.36),
        ([1, 3], 2, 1, 0, -2),
        ([7], 7, 0, np.nan, np.nan),
    ],
)
def test_case_15_population_conventions(values, mean, variance, skewness, kurtosis):
    """Case 15: variance divided by n, g1 and excess g2, as SciPy does by default."""
    m = moments_of(column(values))
    found = [m.mean[0], m.variance[0], m.std[0], m.skewness[0], m.kurtosis_excess[0]]
    np.testing.assert_allclose(found, [mean, variance, variance**0.5, skewness, kurtosis], rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize("draw", ["normal", "exponential", "standard_cauchy", "random"])
def test_agrees_with_scipy(draw, dtype):
    x = getattr(np.random.default_rng(3), draw)(size=(5_000, 4)).clip(-1e4, 1e4).astype(dtype)
    m, wide = moments_of(x), x.astype(np.float64)
    np.testing.assert_allclose(m.mean, wide.mean(axis=0), rtol=0, atol=1e-10 * np.sqrt((wide**2).mean(axis=0)).max())
    np.testing.assert_allclose(m.variance, wide.var(axis=0), rtol=1e-10)
    np.testing.assert_allclose(m.skewness, scipy.stats.skew(wide), rtol=1e-10, atol=1e-8)
    np.testing.assert_allclose(m.kurtosis_excess, scipy.stats.kurtosis(wide), rtol=1e-10, atol=1e-8)
    np.testing.assert_array_equal(m.minimum, wide.min(axis=0))
    np.testing.assert_array_equal(m.maximum, wide.max(axis=0))
    assert {m.mean.dtype, m.variance.dtype, m.minimum.dtype, m.covariance.dtype} == {np.dtype(np.float64)}


@pytest.mark.parametrize("value", [14.3, 10.0, 1.0042855193121334, -0.1, 1e-30, 3e38])
@pytest.mark.parametrize("n", [2, 7, 11, 5_000])
def test_case_14_constant_dimensions(value, n):
    """Case 14: variance exactly 0, skewness and kurtosis NaN (never -3 or 0), whole and after merging shards."""
    x = column([value] * n)
    for m in (moments_of(x), moments_of(x[: n // 3]).merge(moments_of(x[n // 3 :])).merge(moments_of(x[:1]))):
        assert m.mean[0] == value
        assert m.variance[0] == m.std[0] == 0
        assert m.constant[0]
        assert np.isnan([m.skewness[0], m.kurtosis_excess[0]]).all()


def test_rounding_is_no_variation():
    one_up = np.nextafter(1e6, np.inf)
    x = np.array([[1e6, 1e6, 0.0], [one_up, 1e6 + 1e-6, 1e-30], [1e6, 1e6, 0.0]])
    m = moments_of(x)
    np.testing.assert_array_equal(m.constant, [True, False, False])
    assert np.isnan(m.skewness[0])
    assert m.skewness[1] == pytest.approx(sqrt(0.5), rel=1e-8)


@pytest.mark.parametrize(
    ("rows", "mean", "variance"),
    [
        (np.broadcast_to(np.array([100, -100], dtype=np.float32), (1_000_000, 2)), [100, -100], [0, 0]),
        (np.broadcast_to(np.float32(1), (17_000_000, 1)), [1], [0]),
        (np.array([[10_000], [10_001], [10_002]], dtype=np.float32), [10_001], [2 / 3]),
    ],
    ids=["hundreds", "ones", "ten thousand"],
)
def test_case_16_float32_sums(rows, mean, variance):
    """Case 16: beyond 2**24 rows a float32 sum of ones stands still; E[x²] − E[x]² of the last one is 0."""
    m = moments_of(rows)
    np.testing.assert_array_equal(m.mean, mean)
    np.testing.assert_allclose(m.variance, variance, rtol=1e-15)


# -- order, batches, shards ------------------------------------------------------------------------------------------


def test_case_17_shards_of_one_row():
    """Case 17: shards {5} and {7}."""
    merged = moments_of([[5.0]]).merge(moments_of([[7.0]]))
    state = merged.to_arrays()
    assert (merged.n, merged.mean[0], merged.minimum[0], merged.maximum[0]) == (2, 6, 5, 7)
    assert [state[name].item() for name in ("m2", "m3", "m4", "products")] == [2, 0, 2, 2]


@pytest.mark.parametrize("mask", range(2**7))
def test_case_17_any_split_of_eight(mask):
    """Case 17: every way to cut the eight numbers of case 15 into consecutive shards."""
    cuts = [i + 1 for i in range(7) if mask >> i & 1]
    merged = Moments(1)
    for shard in np.split(column(EIGHT), cuts):
        merged = merged.merge(moments_of(shard))
    found = [merged.mean[0], merged.variance[0], merged.skewness[0], merged.kurtosis_excess[0]]
    np.testing.assert_allclose(found, [5, 4, 0.65625, -0.21875], rtol=1e-13)


@settings(max_examples=80, deadline=None)
@given(x=MATRICES, seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 12), max_size=6))
def test_any_split_order_and_merge_tree(x, seed, cuts):
    rng = np.random.default_rng(seed)
    shards = np.split(rng.permutation(x), sorted(min(cut, len(x)) for cut in cuts))  # empty shards are among them
    merged = merge_tree([moments_of(shard) for shard in shards], rng)
    streamed = Moments(x.shape[1])
    for shard in shards:
        streamed.update(shard)
    for m in (merged, streamed):
        assert_within_contract(m, x)
        scale = np.sqrt(np.outer(x.var(axis=0), x.var(axis=0)))
        assert (np.abs(m.covariance - np.cov(x.T, bias=True).reshape(scale.shape)) <= 1e-10 * scale + 1e-12).all()


@settings(max_examples=40, deadline=None)
@given(x=MATRICES, shift=GRID, scale=st.sampled_from([-3.0, -1.0, 0.5, 2.0**40, 1e-6]))
def test_shift_and_scale(x, shift, scale):
    m, moved = moments_of(x), moments_of(scale * (x + shift))
    size = abs(scale) * (np.abs(x).max() + abs(shift))
    np.testing.assert_allclose(moved.mean, scale * (m.mean + shift), rtol=0, atol=1e-12 * size)
    np.testing.assert_allclose(moved.std, abs(scale) * m.std, rtol=1e-8, atol=1e-14 * size)
    varies = ~m.constant
    np.testing.assert_allclose(moved.skewness[varies], np.sign(scale) * m.skewness[varies], rtol=0, atol=1e-8)
    np.testing.assert_allclose(moved.kurtosis_excess[varies], m.kurtosis_excess[varies], rtol=0, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("offset", "noise"), [(1e3, 1.0), (1e6, 1.0), (1e6, 0.1)])
def test_large_offsets(offset, noise, dtype):
    """A mean a million times the spread costs no digits, in whatever shards the rows come."""
    rng = np.random.default_rng(11)
    for _ in range(5):
        x = (offset + noise * rng.standard_normal((60, 2))).astype(dtype)
        assert_within_contract(moments_of(x), x)
        assert_within_contract(merge_tree([moments_of(row[None]) for row in x], rng), x)


def test_many_small_updates():
    x = np.random.default_rng(0).gamma(2.0, size=(6_000, 3)) + 10
    m, whole = Moments(3), moments_of(x)
    for start in range(0, len(x), 7):
        m.update(x[start : start + 7])
    for name in ("mean", "variance", "covariance"):
        np.testing.assert_allclose(getattr(m, name), getattr(whole, name), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(m.skewness, whole.skewness, rtol=0, atol=1e-8)
    np.testing.assert_allclose(m.kurtosis_excess, whole.kurtosis_excess, rtol=0, atol=1e-8)


def test_empty_shard_is_neutral():
    m, empty = moments_of(column(EIGHT)), Moments(1)
    before = m.to_arrays()
    streamed = Moments.from_arrays(before)
    streamed.update(np.empty((0, 1)))
    for same in (m.merge(empty), empty.merge(m), streamed):
        for name, array in same.to_arrays().items():
            np.testing.assert_array_equal(array, before[name])
    assert empty.merge(Moments(1)).n == 0


def test_merge_leaves_both_as_they_were():
    a, b = moments_of([[1.0, 2.0]]), moments_of([[3.0, 5.0], [4.0, 4.0]])
    before = [{k: v.copy() for k, v in m.to_arrays().items()} for m in (a, b)]
    a.merge(b).update([[100.0, 100.0]])
    for m, state in zip((a, b), before, strict=True):
        for name, array in m.to_arrays().items():
            np.testing.assert_array_equal(array, state[name])


# -- matrices --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_covariance(offset):
    x = np.random.default_rng(1).standard_normal((5_000, 6)) @ np.random.default_rng(2).standard_normal((6, 6)) + offset
    m = moments_of(x[:1]).merge(moments_of(x[1:700])).merge(moments_of(x[700:]))
    np.testing.assert_allclose(m.covariance, np.cov(x.T, bias=True), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(m.second_moment, x.T @ x / len(x), rtol=1e-10)
    np.testing.assert_allclose(m.energy, (x**2).mean(axis=0), rtol=1e-10)
    np.testing.assert_array_equal(m.covariance, m.covariance.T)
    np.testing.assert_array_equal(np.diag(m.covariance), m.variance)


def test_without_covariance():
    m = moments_of(column(EIGHT), covariance=False)
    assert not m.has_covariance
    assert m.energy[0] == 29
    for name in ("covariance", "second_moment"):
        with pytest.raises(DataError, match="without covariance"):
            getattr(m, name)
    with pytest.raises(DataError, match="without"):
        m.merge(Moments(1))


def test_no_rows_define_nothing():
    m = Moments(3)
    for name in (
        "mean",
        "variance",
        "std",
        "skewness",
        "kurtosis_excess",
        "minimum",
        "maximum",
        "covariance",
        "energy",
    ):
        assert np.isnan(getattr(m, name)).all()
    assert m.n == len(m) == 0
    assert m.constant.all()


# -- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
@pytest.mark.parametrize(("row", "dimension"), [(0, 0), (2, 1), (2_999, 2)])
def test_not_finite_is_named_and_changes_nothing(value, dtype, row, dimension):
    m = moments_of(np.arange(12.0).reshape(4, 3))
    before = {name: array.copy() for name, array in m.to_arrays().items()}
    x = np.ones((3_000, 3), dtype=dtype)
    x[row, dimension] = value
    with pytest.raises(DataError, match=f"row {4 + row}, dimension {dimension}: value {value} is not finite"):
        m.update(x)  # the four rows before it count
    for name, array in m.to_arrays().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("x", [np.ones(3), np.ones((2, 2)), np.ones((1, 2, 3)), np.ones((3, 0)), 1.0, []])
def test_wrong_shape_is_refused(x):
    with pytest.raises(DataError, match=r"dimension 3 take arrays of shape \(n, 3\)"):
        Moments(3).update(x)


@pytest.mark.parametrize(
    "x",
    [[["a", "b"]], [[None, 1.0]], np.array([[1j, 1.0]]), [[1.0, 2.0], [3.0]]],
    ids=["str", "object", "complex", "ragged"],
)
def test_what_is_no_number_is_refused(x):
    with pytest.raises(DataError):
        Moments(2).update(x)


def test_other_dimensions_are_refused():
    with pytest.raises(DataError, match="dimension 2 with 3"):
        Moments(2).merge(Moments(3))
    with pytest.raises(DataError, match="at least one dimension"):
        Moments(0)


# -- state -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 50])
@pytest.mark.parametrize("covariance", [True, False])
def test_state_is_restored_bit_for_bit(n, covariance):
    x = np.random.default_rng(5).standard_normal((80, 3)) + 7
    m = moments_of(x[:n], covariance=covariance)
    again = Moments.from_arrays({name: array.copy() for name, array in m.to_arrays().items()})
    for part in (x[:0], x[n:]):  # as it is, and after going on
        for each in (m, again):
            each.update(part)
        assert again.has_covariance == covariance
        for name, array in m.to_arrays().items():
            assert again.to_arrays()[name].tobytes() == array.tobytes()


def test_state_taken_earlier_does_not_move():
    m = moments_of([[1.0, 2.0], [3.0, 5.0]])
    taken = m.to_arrays()
    copied = {name: array.copy() for name, array in taken.items()}
    m.update([[10.0, -10.0]])
    for name, array in taken.items():
        np.testing.assert_array_equal(array, copied[name], err_msg=name)


TAMPERED = {
    "mean missing": {"mean": None},
    "mean NaN": {"mean": [np.nan, 0]},
    "mean empty": {"mean": []},
    "m2 negative": {"m2": [-1, 1]},
    "m2 infinite": {"m2": [np.inf, 1]},
    "m3 too short": {"m3": [0]},
    "m4 negative": {"m4": [-1, 1]},
    "minimum above maximum": {"minimum": [9, 9], "maximum": [8, 8]},
    "minimum NaN": {"minimum": [np.nan, 0]},
    "maximum NaN": {"maximum": [np.nan, 0]},
    "n negative": {"n": [-1]},
    "n empty": {"n": []},
    "n two": {"n": [4, 4]},
    "n NaN": {"n": [np.nan]},
    "products not square": {"products": np.zeros((2, 3))},
    "products NaN": {"products": np.full((2, 2), np.nan)},
    "products not symmetric": {"products": [[20, 1], [2, 20]]},
    "products without their diagonal": {"products": [[1, 0], [0, 20]]},
}


@pytest.mark.parametrize("change", TAMPERED.values(), ids=TAMPERED)
def test_tampered_state_is_refused(change):
    state = moments_of([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0], [6.0, 7.0]]).to_arrays()
    assert state["m2"].tolist() == [20, 20]
    arrays = {name: np.asarray(array) for name, array in (state | change).items() if array is not None}
    with pytest.raises(DataError):
        Moments.from_arrays(arrays)


def test_takes_a_tensor():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(6).standard_normal((20, 3)).astype(np.float32)
    np.testing.assert_array_equal(moments_of(torch.from_numpy(x)).covariance, moments_of(x).covariance)
