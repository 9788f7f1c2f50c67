"""``describe`` and ``summarize``: the columns of the contract, and every value against a plain reference."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import scipy.stats

from cls_analysis import Profile, describe, profile_vectors, summarize
from cls_analysis.statistics import describe_all, nulls, summarize_all

DESCRIBE = [
    "layer", "dimension", "n", "mean", "variance", "std", "skewness", "kurtosis_excess", "minimum", "maximum",
    "mean_share", "energy_share", "variance_share", "cosine_contribution", "outlier",
]  # fmt: skip
SUMMARIZE = [
    "layer", "n", "dim", "norm_of_mean", "rms_norm", "common_mean_share", "average_cosine", "top1_energy_share",
    "top3_energy_share", "top10_energy_share", "energy_gini", "participation_ratio", "isoscore", "effective_rank",
    "ev1", "ev2", "ev3", "condition_number", "mean_abs_correlation", "std_ratio", "median_kurtosis_excess",
    "max_kurtosis_excess", "n_outliers", "n_constant",
]  # fmt: skip
NULLS = [
    "common_mean_share", "average_cosine", "top1_energy_share", "top3_energy_share", "top10_energy_share",
    "energy_gini", "participation_ratio", "isoscore", "effective_rank", "ev1", "ev2", "ev3", "condition_number",
    "mean_abs_correlation", "std_ratio", "max_kurtosis_excess",
]  # fmt: skip
#: What variation defines, and a collapsed layer therefore does not.
SHAPE = ["average_cosine", *SUMMARIZE[SUMMARIZE.index("participation_ratio") : SUMMARIZE.index("n_outliers")]]


def reference(x) -> dict[str, float]:
    """``summarize`` of vectors without dead dimensions, from the definitions."""
    x = np.asarray(x, dtype=np.float64)
    n, d = x.shape
    mean, energy, std = x.mean(axis=0), (x**2).mean(axis=0), x.std(axis=0)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    share = np.sort(energy)[::-1] / energy.sum()
    values = np.linalg.eigvalsh(np.cov(x.T, bias=True).reshape(d, d))[::-1].clip(0)
    part = values[values > 1e-12 * values[0]] / values.sum()
    kurtosis = scipy.stats.kurtosis(x)
    ratio = (values.sum() ** 2) / (values**2).sum()
    correlations = np.abs(np.corrcoef(x.T).reshape(d, d))[np.triu_indices(d, 1)]
    return {
        "norm_of_mean": np.linalg.norm(mean),
        "rms_norm": np.sqrt((np.linalg.norm(x, axis=1) ** 2).mean()),
        "common_mean_share": (mean @ mean) / energy.sum(),
        "average_cosine": ((unit @ unit.T).sum() - n) / (n * (n - 1)),
        "top1_energy_share": share[:1].sum(),
        "top3_energy_share": share[:3].sum(),
        "top10_energy_share": share[:10].sum(),
        "energy_gini": np.abs(share[:, None] - share).sum() / (2 * d),
        "participation_ratio": ratio,
        "isoscore": (ratio - 1) / (d - 1) if d > 1 else np.nan,
        "effective_rank": np.exp(-(part * np.log(part)).sum()),
        "ev1": values[:1].sum() / values.sum(),
        "ev2": values[:2].sum() / values.sum(),
        "ev3": values[:3].sum() / values.sum(),
        "condition_number": np.linalg.cond(x.T @ x) if n > d else np.nan,
        "mean_abs_correlation": correlations.mean() if d > 1 else np.nan,
        "std_ratio": std.max() / np.median(std),
        "median_kurtosis_excess": np.median(kurtosis),
        "max_kurtosis_excess": kurtosis.max(),
    }


def skewed(n: int, d: int) -> np.ndarray:
    """Correlated, skewed vectors with a common mean, of unlike spread."""
    rng = np.random.default_rng(n + d)
    return rng.gamma(1.5, size=(n, d)) @ rng.standard_normal((d, d)) * np.logspace(0, 1, d) + 4 * rng.random(d)


# -- columns ---------------------------------------------------------------------------------------------------------


def test_columns_and_rows():
    profile = profile_vectors(skewed(50, 4), layer=3)
    by_dimension, by_layer = describe(profile), summarize(profile)
    assert list(by_dimension) == DESCRIBE
    assert list(by_layer) == SUMMARIZE + [f"{name}_null" for name in NULLS]
    assert by_dimension["dimension"].tolist() == [0, 1, 2, 3]
    assert set(by_dimension["layer"]) == set(by_layer["layer"]) == {3}
    assert set(by_dimension["n"]) == set(by_layer["n"]) == {50}
    assert by_layer["dim"].tolist() == [4]


def test_layers_and_several_profiles():
    a, b = profile_vectors(skewed(50, 4), layer=0, name="a"), profile_vectors(skewed(30, 4), layer=0, name="b")
    two = Profile({0: a[0], 6: b[0]}, a.provenance)
    assert summarize(two)["layer"].tolist() == [0, 6]
    assert describe(two)["layer"].tolist() == [0] * 4 + [6] * 4
    assert summarize(two, layers=[6])["layer"].tolist() == describe(two, [6])["layer"].unique().tolist() == [6]
    for table, width in ((summarize_all([a, b]), 1), (describe_all([a, b]), 4)):
        assert list(table)[:3] == ["encoder", "dataset", "layer"]
        assert table["dataset"].tolist() == ["a"] * width + ["b"] * width
        assert set(table["encoder"]) == {"vectors"}
        assert table.index.tolist() == list(range(2 * width))


# -- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(200, 12), (10, 25), (2, 2), (2, 5), (3, 1), (30, 2)])
def test_summarize_agrees_with_the_definitions(n, d):
    x = skewed(n, d)
    row = summarize(profile_vectors(x)).iloc[0]
    for name, expected in reference(x).items():
        assert row[name] == pytest.approx(expected, rel=1e-6, abs=1e-9, nan_ok=True), name
    assert row["n_constant"] == 0
    assert row["n_outliers"] == (describe(profile_vectors(x))["outlier"] != "").sum()


def test_describe_agrees_with_the_definitions():
    x = skewed(100, 5)
    table = describe(profile_vectors(x))
    energy = (x**2).mean(axis=0)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    expected = {
        "mean": x.mean(axis=0),
        "variance": x.var(axis=0),
        "std": x.std(axis=0),
        "skewness": scipy.stats.skew(x),
        "kurtosis_excess": scipy.stats.kurtosis(x),
        "minimum": x.min(axis=0),
        "maximum": x.max(axis=0),
        "mean_share": x.mean(axis=0) ** 2 / (x.mean(axis=0) ** 2).sum(),
        "energy_share": energy / energy.sum(),
        "variance_share": x.var(axis=0) / x.var(axis=0).sum(),
        "cosine_contribution": (unit.sum(axis=0) ** 2 - (unit**2).sum(axis=0)) / (100 * 99),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(table[name], values, rtol=1e-9, atol=1e-12, err_msg=name)


def test_outliers_are_named_and_counted():
    x = np.random.default_rng(0).standard_normal((300, 40))
    x[:, 3] += 4
    x[:, 5] *= 4
    x[:, 9] = 4 * x[:, 9] - 6
    labels = describe(profile_vectors(x))["outlier"]
    assert labels[labels != ""].to_dict() == {3: "mean", 5: "variance", 9: "mean,variance"}
    assert summarize(profile_vectors(x))["n_outliers"].item() == 3


# -- what is undefined -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", [np.full((9, 4), 14.3), np.array([[1.0, -2.0, 0.0, 3.0]])], ids=["constant", "one row"])
def test_case_14_collapsed_layer(x):
    """Case 14: what a layer that does not vary leaves undefined is NaN; its dimensions are counted."""
    row, table = summarize(profile_vectors(x)).iloc[0], describe(profile_vectors(x))
    assert row[SHAPE].isna().all()
    assert row[[f"{name}_null" for name in SHAPE if name in NULLS]].isna().all()
    defined = [name for name in row.index if name.removesuffix("_null") not in SHAPE]
    assert row[defined].notna().all()
    assert (row["n_constant"], row["n_outliers"], row["common_mean_share"]) == (4, 0, pytest.approx(1))
    undefined = ["skewness", "kurtosis_excess", "variance_share", "cosine_contribution"]
    assert table[undefined].isna().all(axis=None)
    assert table.drop(columns=undefined).notna().all(axis=None)
    assert (table["variance"] == 0).all()
    assert (table["outlier"] == "").all()


def test_zero_vectors_only():
    row, table = summarize(profile_vectors(np.zeros((5, 3)))).iloc[0], describe(profile_vectors(np.zeros((5, 3))))
    assert (row["norm_of_mean"], row["rms_norm"]) == (0, 0)
    assert row[["common_mean_share", "average_cosine", "top1_energy_share", "energy_gini"]].isna().all()
    assert table[["mean_share", "energy_share", "variance_share"]].isna().all(axis=None)


def test_case_14_dead_dimensions_are_left_out():
    """Case 14: shape statistics of a layer with dead dimensions are those of the living ones."""
    x = skewed(60, 8)
    with_dead = np.insert(x, [2, 5], [14.3, 0.0], axis=1)
    whole, living = (summarize(profile_vectors(each)).iloc[0] for each in (with_dead, x))
    assert whole["n_constant"] == 2
    names = ["condition_number", "mean_abs_correlation", "std_ratio", "median_kurtosis_excess", "max_kurtosis_excess"]
    for name in [*names, "participation_ratio", "effective_rank", "ev2"]:
        assert whole[name] == pytest.approx(living[name], rel=1e-9), name
    for name in ("condition_number", "mean_abs_correlation", "std_ratio", "max_kurtosis_excess"):
        assert whole[f"{name}_null"] == living[f"{name}_null"]
    table = describe(profile_vectors(with_dead)).iloc[[2, 6]]
    assert table[["skewness", "kurtosis_excess"]].isna().all(axis=None)
    assert (table["variance_share"] == 0).all()


@pytest.mark.parametrize(
    ("n", "d", "undefined"),
    [
        (2, 1, {"isoscore", "mean_abs_correlation"}),
        (50, 1, {"isoscore", "mean_abs_correlation"}),
        (2, 2, {"condition_number"}),
        (50, 2, set()),
        (5, 8, {"condition_number"}),
    ],
)
def test_few_rows_or_dimensions(n, d, undefined):
    """What is undefined has no null either; all else has both."""
    row = summarize(profile_vectors(skewed(n, d))).iloc[0]
    assert set(row.index[row.isna()]) == undefined | {f"{name}_null" for name in undefined}


# -- nulls -----------------------------------------------------------------------------------------------------------

DRAWN = 480


@cache
def simulated(n: int, d: int) -> list[dict[str, float]]:
    """The reference on Gaussian vectors."""
    rng = np.random.default_rng((n, d))
    return [reference(rng.standard_normal((n, d))) for _ in range(DRAWN)]


@pytest.mark.parametrize("name", NULLS)
@pytest.mark.parametrize(("n", "d"), [(60, 12), (15, 30)])
def test_null_is_what_gaussian_vectors_give(n, d, name):
    """Within four standard errors of direct simulation, the null's own ``nulls.DRAWS`` draws included.

    The condition number is heavy-tailed: its null is the median, compared with medians of as many draws. The largest
    kurtosis is approximated from 20 rows on, to 5 %.
    """
    null = summarize(profile_vectors(np.random.default_rng(0).standard_normal((n, d))))[f"{name}_null"].item()
    draws = np.array([draw[name] for draw in simulated(n, d)])
    if name == "condition_number":
        if n <= d:
            assert np.isnan(null)
            return
        draws = np.median(draws.reshape(-1, nulls.DRAWS), axis=1)
        assert abs(null - draws.mean()) < 4 * draws.std()
        return
    error = draws.std() * (1 / nulls.DRAWS + 1 / DRAWN) ** 0.5
    slack = 0.05 * abs(draws.mean()) if name == "max_kurtosis_excess" else 0
    assert abs(null - draws.mean()) < 4 * error + slack
