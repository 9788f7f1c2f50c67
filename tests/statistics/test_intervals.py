"""Half-sampling, against standard errors that are known, and intervals that must cover the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.special

from cls_analysis import profile_vectors, summarize
from cls_analysis.errors import DataError
from cls_analysis.statistics import intervals
from cls_analysis.statistics.intervals import (
    BIASED_BY_N,
    OF_SAMPLE,
    WIDTH,
    curve_of_n,
    half_sample_deviations,
    main_figures,
)
from cls_analysis.statistics.isotropy import average_cosine
from cls_analysis.statistics.samples import average_cosine_of, unit_rows

FIGURES = [
    "common_mean_share", "average_cosine", "rms_cosine", "top1_energy_share", "energy_gini", "std_ratio",
    "mean_abs_correlation", "participation_ratio", "isoscore", "effective_rank", "ev1", "ev3",
]  # fmt: skip


def layer_of(x):
    return profile_vectors(x)[-1]


def skewed(n: int, d: int) -> np.ndarray:
    """Correlated, skewed vectors with a common mean, of unlike spread."""
    rng = np.random.default_rng(n + d)
    return rng.gamma(1.5, size=(n, d)) @ rng.standard_normal((d, d)) * np.logspace(0, 1, d) + 4 * rng.random(d)


def sphere(n: int, seed: int = 0) -> np.ndarray:
    """Rows of length 1 whose first dimension holds most: the top-1 energy share is the mean of x_0²."""
    return unit_rows(np.random.default_rng(seed).standard_normal((n, 6)) * [9, 1, 1, 1, 1, 1])


def sparse(n: int) -> np.ndarray:
    """Six living dimensions that are constant but in one of the first six rows each."""
    x = np.full((n, 6), 0.1)
    x[range(6), range(6)] = 1.0
    return x


# -- figures ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(200, 12), (10, 25), (8, 1), (30, 2), (2, 5)])
def test_figures_of_all_rows_are_those_of_summarize(n, d):
    x = skewed(n, d)
    profile = profile_vectors(x)
    found, row = main_figures(x, profile[-1].living), summarize(profile).iloc[0]
    assert list(found) == FIGURES
    for name in FIGURES:
        if name != "rms_cosine":
            assert found[name] == pytest.approx(row[name], rel=1e-9, nan_ok=True), name
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    pairs = (unit @ unit.T)[np.triu_indices(n, 1)]
    assert found["rms_cosine"] == pytest.approx(np.sqrt((pairs**2).mean()), rel=1e-9)


def test_dead_dimensions_are_left_out_as_in_summarize():
    profile = profile_vectors(np.insert(skewed(50, 6), [0, 3], [0.0, 7.0], axis=1))
    row = summarize(profile).iloc[0]
    for name, value in main_figures(profile[-1].sample, profile[-1].living).items():
        assert value == pytest.approx(row.get(name, value), rel=1e-9), name


@pytest.mark.parametrize("scale", [1e-20, 1.0, 1e6])
def test_scale_changes_no_figure(scale):
    x = skewed(40, 5)
    before, after = (main_figures(each, np.ones(5, dtype=bool)) for each in (x, scale * x))
    assert after == pytest.approx(before, rel=1e-9)


def test_what_does_not_vary_in_the_rows_is_left_out():
    """Constant at 0.1, whose mean is rounded; three dimensions vary, in one row each."""
    rows = sparse(40)[:3].repeat(5, axis=0)
    found = main_figures(rows, np.ones(6, dtype=bool))
    assert found["mean_abs_correlation"] == pytest.approx(0.5, rel=1e-12)
    assert found["participation_ratio"] == pytest.approx(2, rel=1e-9)
    found = main_figures(sparse(40)[10:], np.ones(6, dtype=bool))
    varying = ["std_ratio", "mean_abs_correlation", "participation_ratio", "isoscore", "effective_rank", "ev1", "ev3"]
    assert np.isnan([found[name] for name in varying]).all()
    assert found["common_mean_share"] == pytest.approx(1, rel=1e-12)
    assert found["average_cosine"] == pytest.approx(1, rel=1e-12)


def test_rows_of_zeros_have_no_figure():
    assert np.isnan(list(main_figures(np.zeros((9, 3)), np.ones(3, dtype=bool)).values())).all()


def test_biased_figures_change_with_n():
    """Of isotropic rows, between 16 and 256 of them."""
    assert set(FIGURES) >= OF_SAMPLE
    table = curve_of_n(layer_of(np.random.default_rng(0).standard_normal((256, 32))))
    few, many = (table[table["n"] == n].set_index("figure")["value"] for n in (16, 256))
    for name in BIASED_BY_N.intersection(FIGURES):
        assert not 0.8 < few[name] / many[name] < 1.25, name


# -- standard errors -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("m", [8, 9, 15, 200])
def test_standard_error_of_a_mean(m):
    """S/√m with S² over m − 1: half-sampling of a mean has no bias, of odd m neither. 1,000 halves know it to 2 %."""
    x = sphere(m)
    found = half_sample_deviations(layer_of(x), halves=1_000)["top1_energy_share"]
    assert found == pytest.approx((x[:, 0] ** 2).std(ddof=1) / np.sqrt(m), rel=0.08)


def test_standard_error_of_a_ratio():
    """The delta method for E[x_0²]/E‖x‖²."""
    x = np.random.default_rng(0).standard_normal((500, 6)) * [9, 1, 1, 1, 1, 1]
    part, whole = x[:, 0] ** 2, (x**2).sum(axis=1)
    residual = part - part.mean() / whole.mean() * whole
    found = half_sample_deviations(layer_of(x), halves=500)["top1_energy_share"]
    assert found == pytest.approx(residual.std(ddof=1) / whole.mean() / np.sqrt(500), rel=0.12)


def test_standard_error_of_cosines():
    """U-statistics: 2·S(u·ū)/√m, ū the mean direction; of squares 2·S(uᵀE[u uᵀ]u)/√m, of their root that over 2·RMS."""
    x = np.random.default_rng(1).normal([2, 0, 0, 0, 0, 0], size=(500, 6))
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    projected = unit @ unit.mean(axis=0)
    found = half_sample_deviations(layer_of(x), halves=500)
    assert found["average_cosine"] == pytest.approx(2 * projected.std(ddof=1) / np.sqrt(500), rel=0.12)
    squared = ((unit @ unit.T) ** 2).mean(axis=1)
    expected = 2 * squared.std(ddof=1) / np.sqrt(500) / (2 * np.sqrt(squared.mean()))
    assert found["rms_cosine"] == pytest.approx(expected, rel=0.12)


def test_standard_error_at_the_layers_n():
    """The same sample of 100 rows, of 100, of 400 and of 3,000: √(m/n) shrinks it, but for what only the sample has."""
    x = sphere(3_000)
    sample = x[:100]
    alone = half_sample_deviations(layer_of(sample), halves=10)
    for n in (400, 3_000):
        found = half_sample_deviations(replace(layer_of(x[:n]), sample=sample), halves=10)
        rms = found.pop("rms_cosine")
        assert rms == pytest.approx(alone["rms_cosine"], rel=1e-12)
        assert found == pytest.approx({name: alone[name] * np.sqrt(100 / n) for name in found}, rel=1e-12)


@pytest.mark.parametrize("n", [1_000, 3_000])
def test_sample_gives_about_the_error_of_all_rows(n):
    x = sphere(n)
    layer = layer_of(x)
    assert len(layer.sample) == min(n, 1_024)
    found = half_sample_deviations(layer, halves=60)["top1_energy_share"]
    assert found == pytest.approx((x[:, 0] ** 2).std(ddof=1) / np.sqrt(n), rel=0.3)


def test_seeded():
    layer = layer_of(sphere(50))
    first = half_sample_deviations(layer, halves=5)
    assert half_sample_deviations(layer, halves=5) == first
    assert half_sample_deviations(layer, halves=5, seed=1) != first
    assert list(first) == FIGURES


def test_half_precision_is_widened():
    x = (100 * sphere(50)).astype(np.float16)
    found = half_sample_deviations(layer_of(x), halves=5)
    assert found == pytest.approx(half_sample_deviations(layer_of(x.astype(np.float64)), halves=5), rel=1e-12)


@pytest.mark.parametrize("shift", [0, 1e6])
def test_every_figure_scatters(shift):
    found = half_sample_deviations(layer_of(skewed(60, 7) + shift), halves=20)
    assert all(value > 0 for value in found.values())


def test_duplicated_rows_are_no_structure():
    """Drawn without replacement, correlations of independent dimensions keep their null in the halves."""
    x = np.random.default_rng(0).standard_normal((400, 10))
    null = np.sqrt(2 / np.pi / 200)
    halves = curve_of_n(layer_of(x)).query("figure == 'mean_abs_correlation' and n == 200")["value"].item()
    assert halves == pytest.approx(null, rel=0.15)


@pytest.mark.parametrize("x", [np.full((20, 4), 14.3), np.zeros((20, 4)), sphere(7)], ids=["same", "zero", "few"])
def test_nothing_to_halve(x):
    assert half_sample_deviations(layer_of(x)) == {}
    table = curve_of_n(layer_of(x))
    assert list(table) == ["n", "figure", "value", "std"]
    assert table.empty


@pytest.mark.parametrize("halves", [1, 0, -3])
def test_too_few_halves(halves):
    with pytest.raises(DataError, match=f"at least 2 halves, got {halves}"):
        half_sample_deviations(layer_of(sphere(20)), halves=halves)


@pytest.mark.parametrize("x", [sparse(40), np.pad(np.eye(3), ((0, 37), (0, 0)))], ids=["few vary", "few not zero"])
def test_halves_that_do_not_define_a_figure(x):
    """Some halves hold no row that differs: the figure's error is NaN, without a warning."""
    found = half_sample_deviations(layer_of(x), halves=30)
    assert list(found) == FIGURES
    assert np.isnan(found["std_ratio"])
    assert len(curve_of_n(layer_of(x))) == 2 * len(FIGURES)


# -- coverage --------------------------------------------------------------------------------------------------------


def true_average_cosine(mu: np.ndarray) -> float:
    """‖E u‖² of N(μ, I): E u = μ Γ((d+1)/2)/(√2 Γ(d/2+1)) ₁F₁(½; d/2+1; −‖μ‖²/2)."""
    d, square = len(mu), mu @ mu
    gammas = np.exp(scipy.special.gammaln((d + 1) / 2) - scipy.special.gammaln(d / 2 + 1))
    return float(square * (gammas * scipy.special.hyp1f1(0.5, d / 2 + 1, -square / 2)) ** 2 / 2)


def test_true_average_cosine_agrees_with_draws():
    mu = np.full(16, 0.25)
    x = np.random.default_rng(0).standard_normal((200_000, 16)) + mu
    assert true_average_cosine(mu) == pytest.approx(average_cosine_of(unit_rows(x)), abs=5e-4)


@pytest.mark.parametrize("m", [200, 100])
def test_intervals_cover_the_true_average_cosine(monkeypatch, m):
    """200 Gaussian sets of 200 rows, of which ``m`` are stored; only the figure in question is computed."""
    monkeypatch.setattr(
        intervals, "main_figures", lambda rows, living: {"average_cosine": average_cosine_of(unit_rows(rows))}
    )
    mu = np.full(16, 0.25)
    truth, covered = true_average_cosine(mu), 0
    for seed in range(200):
        layer = layer_of(np.random.default_rng(seed).standard_normal((200, 16)) + mu)
        deviation = half_sample_deviations(replace(layer, sample=layer.sample[:m]))["average_cosine"]
        covered += abs(average_cosine(layer) - truth) <= WIDTH * deviation
    assert 180 <= covered <= 198


# -- curve over n ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("m", "sizes"),
    [(16, [16]), (31, [31]), (32, [16, 32]), (100, [25, 50, 100]), (1_024, [16, 32, 64, 128, 256, 512, 1_024])],
)
def test_sizes(monkeypatch, m, sizes):
    drawn = []

    def figures(rows, living):
        drawn.append(len(rows))
        assert len(np.unique(rows[:, 0])) == len(rows)  # without replacement
        return {"first": float(rows[:, 0].mean())}

    monkeypatch.setattr(intervals, "main_figures", figures)
    x = sphere(m)
    table = curve_of_n(layer_of(x))
    assert table["n"].tolist() == sizes
    assert drawn == [size for size in sizes for _ in range(1 if size == m else 8)]
    assert table["value"].iloc[-1] == pytest.approx(x[:, 0].mean(), rel=1e-12)
    assert np.isnan(table["std"].iloc[-1])
    assert (table["std"].iloc[:-1] > 0).all()


def test_curve_ends_at_the_figures_of_all_rows():
    x = skewed(100, 5)
    table = curve_of_n(layer_of(x))
    assert list(table) == ["n", "figure", "value", "std"]
    assert table["figure"].tolist() == FIGURES * 3
    assert table["n"].tolist() == [25] * 12 + [50] * 12 + [100] * 12
    last = table[table["n"] == 100].set_index("figure")["value"]
    row = summarize(profile_vectors(x)).iloc[0]
    for name in FIGURES:
        assert last[name] == pytest.approx(row.get(name, last[name]), rel=1e-9), name
    assert table.equals(curve_of_n(layer_of(x)))


def test_curve_shows_the_bias_of_the_participation_ratio():
    """Isotropic rows: PR ≈ d/(1 + d/n), so that it rises to the truth of 64 with n; the average cosine stays at 0."""
    x = np.random.default_rng(0).standard_normal((512, 64))
    table = curve_of_n(layer_of(x)).set_index(["figure", "n"])
    ratios = table.loc["participation_ratio"]
    assert ratios.index.tolist() == [16, 32, 64, 128, 256, 512]
    np.testing.assert_allclose(ratios["value"], 64 / (1 + 64 / ratios.index.to_numpy()), rtol=0.07)
    assert (abs(table.loc["average_cosine"]["value"]) < 0.01).all()
    np.testing.assert_allclose(table.loc["common_mean_share"]["value"] * ratios.index, 1, rtol=0.2)
