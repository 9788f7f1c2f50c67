"""What rules and tables read of a layer, against plain NumPy."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.stats
from planted import SIGNS, gaussian, profile_of, shifted, stretched

from cls_analysis import profile_vectors, summarize
from cls_analysis.diagnosis import evidence as module
from cls_analysis.diagnosis.evidence import Evidence, ordered
from cls_analysis.diagnosis.measures import FIGURES, condition_table, contribution_table, figure_table
from cls_analysis.errors import ProfileError
from cls_analysis.statistics.intervals import BIASED_BY_N, half_sample_deviations
from cls_analysis.statistics.normalizers import NORMALIZERS


def skewed(n: int = 120, d: int = 8) -> np.ndarray:
    """Correlated, skewed vectors with a common mean, of unlike spread, one dimension dead."""
    rng = np.random.default_rng(n + d)
    x = rng.gamma(1.5, size=(n, d)) @ rng.standard_normal((d, d)) * np.logspace(0, 1, d) + 4 * rng.random(d)
    return np.insert(x, 2, 7.0, axis=1)


@pytest.fixture(scope="module")
def x():
    return skewed()


@pytest.fixture(scope="module")
def evidence(x):
    return Evidence(profile_vectors(x), -1)


def cosines(x) -> np.ndarray:
    """Cosine of every pair of different rows that are not zero."""
    rows = [row / np.linalg.norm(row) for row in np.asarray(x, dtype=np.float64) if row.any()]
    return np.array([a @ b for a, b in combinations(rows, 2)])


def mean_products(x) -> np.ndarray:
    """What each dimension adds to the average cosine: the mean of u_i v_i over pairs."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return np.mean([a * b for a, b in combinations(unit, 2)], axis=0)


def normalized(x, name: str) -> np.ndarray:
    """The rows after the simplest normalisations."""
    centred = x - x.mean(axis=0)
    std = np.where(x.std(axis=0) > 0, x.std(axis=0), np.inf)
    return {"none": x, "center": centred, "standardize": centred / std}[name]


# -- evidence --------------------------------------------------------------------------------------------------------


def test_figures_and_nulls_are_those_of_summarize(x, evidence):
    row = summarize(profile_vectors(x)).iloc[0]
    for name in ("common_mean_share", "isoscore", "std_ratio", "condition_number"):
        assert evidence.figure(name) == pytest.approx(row[name], rel=1e-12)
        assert evidence.null(name) == pytest.approx(row[f"{name}_null"], rel=1e-12)


def test_shares_and_masks(x, evidence):
    energy = (x**2).mean(axis=0)
    np.testing.assert_allclose(evidence.energy_share, energy / energy.sum(), rtol=1e-10)
    np.testing.assert_array_equal(evidence.mean_is_larger, x.mean(axis=0) ** 2 > x.var(axis=0))


@pytest.mark.parametrize("n", [6, 30, 300])
def test_certain_means_and_variances(n):
    """Bonferroni's quantiles of the normal and of the χ² distribution."""
    x = gaussian(n, 40, seed=n) + np.linspace(0, 2, 40)
    x[:, 5] *= 6
    evidence = Evidence(profile_vectors(x), -1)
    scores = np.abs(x.mean(axis=0)) * np.sqrt(n) / x.std(axis=0)
    np.testing.assert_array_equal(evidence.mean_certain, scores > scipy.stats.norm.isf(0.025 / 40))
    ratio = x.var(axis=0) / x.var(axis=0).mean()
    largest = scipy.stats.chi2.isf(0.05 / 40, n - 1) / (n - 1)
    np.testing.assert_array_equal(evidence.variance_certain, ratio > largest)
    np.testing.assert_array_equal(evidence.variance_dominant, (ratio > largest) & (ratio >= 5))


def test_a_dead_dimension_varies_by_no_more_than_rounding(evidence):
    assert not evidence.variance_certain[2]
    assert evidence.mean_certain[2]


def test_certain_variance_is_rare_by_chance():
    hits = [Evidence(profile_vectors(gaussian(20, 40, seed)), -1).variance_certain.any() for seed in range(200)]
    assert np.mean(hits) <= 0.08


def test_standardized_spectrum(x, evidence):
    living = np.delete(x, 2, axis=1)
    expected = np.linalg.eigvalsh(np.corrcoef(living.T))[::-1]
    np.testing.assert_allclose(evidence.standardized_spectrum, expected, rtol=1e-8, atol=1e-12)


def test_deviations_are_those_of_half_sampling(evidence):
    assert evidence.deviations == half_sample_deviations(evidence.layer)
    assert evidence.deviations is evidence.deviations


@pytest.mark.parametrize("name", ["none", "center", "standardize"])
def test_directions(x, evidence, name):
    found = evidence.directions(name)
    rows = normalized(x, name)
    pairs = cosines(rows)
    assert found.average_cosine == pytest.approx(pairs.mean(), abs=1e-9)
    assert found.rms_cosine == pytest.approx(np.sqrt((pairs**2).mean()), rel=1e-6)
    np.testing.assert_allclose(found.contributions, mean_products(rows), atol=1e-9)
    assert evidence.directions(name) is found


def test_cosine_null_counts_living_dimensions(evidence):
    assert evidence.cosine_null == pytest.approx(1 / 8**0.5)


@pytest.mark.parametrize("name", ["none", "center", "standardize"])
def test_condition(x, evidence, name):
    rows = np.delete(normalized(x, name), 2, axis=1)
    assert evidence.condition(name) == pytest.approx(np.linalg.cond(rows.T @ rows), rel=1e-6)


def test_nothing_is_measured_twice_or_before_it_is_asked_for(x, monkeypatch):
    calls = []
    monkeypatch.setattr(module, "summarize", lambda *given: calls.append("s") or summarize(*given))
    monkeypatch.setattr(module, "half_sample_deviations", lambda layer: calls.append("d") or {})
    monkeypatch.setattr(module, "condition_number_after", lambda *given: calls.append("c") or 1.0)
    evidence = Evidence(profile_vectors(x), -1)
    assert calls == []
    for _ in range(2):
        evidence.figure("isoscore"), evidence.null("isoscore"), evidence.deviations, evidence.condition("none")
    assert sorted(calls) == ["c", "d", "s"]


def test_ordered():
    chosen = np.array([True, False, True, True, True])
    assert ordered(chosen, np.array([1.0, 9.0, 3.0, 1.0, -2.0])) == (2, 0, 3, 4)
    assert ordered(np.zeros(3, dtype=bool), np.arange(3.0)) == ()
    assert all(type(number) is int for number in ordered(chosen, np.arange(5.0)))


def test_layers():
    constant = np.full_like(SIGNS, 0.3)
    profile = profile_of({0: constant, 1: SIGNS}, source="cls")
    assert [Evidence(profile, number).expected_constant for number in (0, 1)] == [True, False]
    assert Evidence(profile, -1).number == 1
    assert not Evidence(profile_of({0: constant, 1: SIGNS}, source="mean"), 0).expected_constant
    assert not Evidence(profile_of({0: SIGNS, 1: SIGNS}, source="cls"), 0).expected_constant
    assert not Evidence(profile_of({1: constant}, source="cls"), 1).expected_constant
    with pytest.raises(ProfileError, match="layer 5"):
        Evidence(profile, 5)


# -- tables ----------------------------------------------------------------------------------------------------------


def test_figure_table(x, evidence):
    table = figure_table(evidence)
    assert table["figure"].tolist() == [kind.name for kind in FIGURES]
    assert list(table) == ["figure", "value", "null", "low", "high", "n", "rows", "biased_by_n"]
    table = table.set_index("figure")
    row = summarize(profile_vectors(x)).iloc[0]
    for name, found in table.iterrows():
        if name in row.index:
            assert found["value"] == pytest.approx(row[name], rel=1e-12), name
            if f"{name}_null" in row.index:
                assert found["null"] == pytest.approx(row[f"{name}_null"], rel=1e-12), name
        assert found["biased_by_n"] == (name in BIASED_BY_N)
    for name, suffix in (("none", ""), ("center", "_centred"), ("standardize", "_standardized")):
        pairs = cosines(normalized(x, name))
        assert table.loc[f"rms_cosine{suffix}", "value"] == pytest.approx(np.sqrt((pairs**2).mean()), rel=1e-6)
    assert table.loc["average_cosine_centred", "value"] == pytest.approx(cosines(normalized(x, "center")).mean())
    squared = 2 - 2 * cosines(x)
    assert table.loc["uniformity", "value"] == pytest.approx(np.log(np.exp(-2 * squared).mean()))


def test_figures_of_isotropic_vectors_are_near_their_nulls():
    """Every figure that has a null: within a tenth, or 0.01."""
    table = figure_table(Evidence(profile_vectors(gaussian(1_000, 24, seed=3)), -1), intervals=False)
    for row in table.to_dict("records"):
        if row["figure"] not in ("common_mean_share", "max_kurtosis_excess", "median_kurtosis_excess"):
            assert row["value"] == pytest.approx(row["null"], rel=0.1, abs=0.01), row["figure"]


def test_intervals_of_the_main_figures(evidence):
    table = figure_table(evidence).set_index("figure")
    for name, deviation in half_sample_deviations(evidence.layer).items():
        value = table.loc[name, "value"]
        expected = (value - 1.96 * deviation, value + 1.96 * deviation)
        assert tuple(table.loc[name, ["low", "high"]]) == pytest.approx(expected), name
    assert table["low"].notna().sum() == 12


def test_rows_that_a_figure_rests_on():
    """Cosines after centring come from the sample of 1,024."""
    table = figure_table(Evidence(profile_vectors(gaussian(1_300, 6)), -1), intervals=False).set_index("figure")
    assert set(table["n"]) == {1_300}
    of_sample = {kind.name for kind in FIGURES if kind.of_sample}
    assert table["rows"].to_dict() == {kind.name: 1_024 if kind.name in of_sample else 1_300 for kind in FIGURES}
    assert {"rms_cosine", "average_cosine_centred", "twonn_dimension"} <= of_sample
    assert "average_cosine" not in of_sample


def test_every_figure_is_defined_and_has_a_direction():
    assert len({kind.name for kind in FIGURES}) == len({kind.label for kind in FIGURES}) == len(FIGURES)
    assert all(kind.definition and kind.better in (-1, 0, 1) for kind in FIGURES)
    of = {better: {kind.name for kind in FIGURES if kind.better == better} for better in (-1, 0, 1)}
    assert of[1] == {"isoscore", "participation_ratio", "effective_rank", "partition_isotropy"}
    assert of[0] == {
        "average_cosine_centred", "twonn_dimension", "median_kurtosis_excess", "max_kurtosis_excess",
    }  # fmt: skip


def test_a_collapsed_layer_has_no_figures():
    table = figure_table(Evidence(profile_vectors(np.full((20, 4), 14.3)), -1))
    assert table.empty
    assert "figure" in table


def test_condition_table():
    """Unequal scales: centring leaves 64, standardising and whitening give about 1."""
    table = condition_table(Evidence(profile_of(stretched({4: 8})), -1)).set_index("normalization")
    assert list(table.index) == list(NORMALIZERS)
    number = table["condition_number"]
    assert number[["none", "scale", "center"]].to_list() == pytest.approx([64] * 3)
    assert number["standardize"] == pytest.approx(1)
    assert number["whiten"] == pytest.approx(1, abs=0.03)  # eigenvalues are shrunk first
    # By halves: variances times 1/(γσ + ε) with γ = 1/d and ε = 1e-3.
    assert number["isobn"] == pytest.approx(64 * (1 / 32 + 1e-3) / (8 / 32 + 1e-3))
    assert table["null"].nunique() == 1
    shift = condition_table(Evidence(profile_of(shifted({3: 8})), -1)).set_index("normalization")["condition_number"]
    assert shift[["none", "center"]].to_list() == pytest.approx([65, 1])


def test_contribution_table(x, evidence):
    table = contribution_table(evidence, k=4)
    by_pairs = {name: mean_products(normalized(x, name)) for name in ("none", "center", "standardize")}
    top = np.argsort(-by_pairs["none"])[:4]
    assert table["dimension"].tolist() == top.tolist()
    for name, expected in by_pairs.items():
        np.testing.assert_allclose(table[name], expected[top], atol=1e-9)
    np.testing.assert_allclose(table["share"], by_pairs["none"][top] / by_pairs["none"].sum(), rtol=1e-9)


def test_contributions_of_a_planted_mean():
    """One dimension of mean 8: nearly all of the average cosine, until centred."""
    table = contribution_table(Evidence(profile_of(shifted({3: 8})), -1))
    assert len(table) == 10
    assert table.loc[0, "dimension"] == 3
    assert table.loc[0, "share"] == pytest.approx(1, abs=0.01)
    assert abs(table.loc[0, "center"]) < 1e-3
