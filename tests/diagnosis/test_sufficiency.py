"""Are n rows enough: the plain answer, and each figure against n."""

from __future__ import annotations

import numpy as np
import pytest
from planted import correlated, ev3, gaussian, profile_of

from cls_analysis import profile_vectors, summarize
from cls_analysis.diagnosis import sufficiency as module
from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.diagnosis.measures import LABELS
from cls_analysis.diagnosis.sufficiency import COLUMNS, Sufficiency, judge_sufficiency
from cls_analysis.statistics.intervals import half_sample_deviations

FIGURES = [
    "common_mean_share", "average_cosine", "rms_cosine", "top1_energy_share", "energy_gini", "std_ratio",
    "mean_abs_correlation", "participation_ratio", "isoscore", "effective_rank", "ev1", "ev3",
]  # fmt: skip


def judged(x) -> Sufficiency:
    return judge_sufficiency(Evidence(profile_of(x), -1))


def plenty() -> np.ndarray:
    """1,024 rows of 8 dimensions ±1 with a common part: every figure is far from its null."""
    return np.tile(correlated(1)[:, :8] + 2, (2, 1))


# -- the answer ------------------------------------------------------------------------------------------------------


def test_plenty_of_rows():
    found = judged(plenty())
    assert found.sentence() == "1,024 rows are enough for every main figure"
    assert found.answers["enough"].all()
    assert found.answers["why"].str.startswith("± ").all()


def test_few_rows():
    """40 isotropic rows of 64 dimensions: their cosines are known, their spectrum is not."""
    found = judged(gaussian(40, 64))
    sentence = found.sentence()
    assert sentence.startswith("40 rows are enough for ")
    settled, lacking = sentence.removeprefix("40 rows are enough for ").split("; too few for ")
    assert "RMS cosine" in settled.split(", ")
    assert {"IsoScore", "participation ratio", "effective rank", "EV1", "EV3"} <= set(lacking.split(", "))
    assert sorted([*settled.split(", "), *lacking.split(", ")]) == sorted(LABELS[name] for name in FIGURES)
    why = found.answers.set_index("figure").loc["effective_rank", "why"]
    assert why.startswith("biased by n, still moving: ")
    assert why.endswith(" from 20 rows")


def test_sentence_when_nothing_is_settled():
    answers = judged(plenty()).answers.assign(enough=False, n=50)
    assert Sufficiency(answers, answers).sentence() == "50 rows are too few for every main figure"


@pytest.mark.parametrize("n", [1, 2, 15, 16, 20, 31])
def test_too_few_rows_to_say(n):
    """Below 32 there is no half of at least 16 rows."""
    found = judged(gaussian(n, 8))
    assert found.answers.empty
    assert list(found.answers) == COLUMNS
    assert found.sentence().startswith("too few rows to say how many would be enough: at least 32")
    assert set(found.curve["n"]) == ({n} if n >= 16 else set())


def test_from_32_rows_on_there_is_an_answer():
    assert judged(gaussian(32, 8)).answers["figure"].tolist() == FIGURES


@pytest.mark.parametrize("x", [np.full((60, 4), 0.3), np.zeros((60, 4))])
def test_a_collapsed_layer_has_no_answer(x):
    found = judged(x)
    assert found.answers.empty
    assert found.curve.empty
    assert "vectors that differ" in found.sentence()


def test_an_undefined_figure_is_never_settled():
    """Six dimensions that vary in one row each: in most halves some do not, and no ratio of spreads is defined."""
    x = np.full((40, 6), 0.1)
    x[range(6), range(6)] = 1.0
    answers = judged(x).answers.set_index("figure")
    assert np.isnan(answers.loc["std_ratio", "half_width"])
    assert not answers.loc["std_ratio", "enough"]
    assert "not defined" in answers.loc["std_ratio", "why"]


# -- its numbers -----------------------------------------------------------------------------------------------------


def test_values_at_n_are_those_of_all_rows():
    x = gaussian(300, 10) + 0.5
    found = judged(x)
    assert list(found.answers) == COLUMNS
    answers = found.answers.set_index("figure")
    row = summarize(profile_vectors(x)).iloc[0]
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    pairs = (unit @ unit.T)[np.triu_indices(300, 1)]
    assert (answers["n"] == 300).all()
    for name in FIGURES:
        expected = np.sqrt((pairs**2).mean()) if name == "rms_cosine" else row[name]
        assert answers.loc[name, "value"] == pytest.approx(expected, rel=1e-9), name
    assert answers.loc["average_cosine", "value"] == pytest.approx(pairs.mean(), rel=1e-9)
    assert answers.loc["ev3", "value"] == pytest.approx(ev3(x), rel=1e-9)
    deviations = half_sample_deviations(profile_vectors(x)[-1])
    for name in FIGURES:
        assert answers.loc[name, "half_width"] == pytest.approx(1.96 * deviations[name], rel=1e-9), name


def test_drift_is_the_change_from_half_the_rows():
    found = judged(gaussian(200, 10) + 0.5)
    curve = found.curve.set_index(["figure", "n"])["value"]
    assert found.curve["n"].unique().tolist() == [25, 50, 100, 200]
    for row in found.answers.to_dict("records"):
        before, after = curve[row["figure"], 100], curve[row["figure"], 200]
        assert row["drift"] == pytest.approx(abs(after - before) / abs(after), rel=1e-9)


@pytest.mark.parametrize(
    ("figure", "value", "before", "deviation", "enough", "why"),
    [
        # Half-widths of 1.96 deviations: a tenth of the value, or 0.01 of a share.
        ("effective_rank", 100.0, 100.0, 5.0, True, "± 9.8"),
        ("effective_rank", 100.0, 100.0, 5.2, False, "known to ± 10.2 only"),
        ("average_cosine", 0.02, 0.02, 0.005, True, "± 0.0098"),
        ("average_cosine", 0.02, 0.02, 0.0052, False, "known to ± 0.0102 only"),
        ("average_cosine", 0.5, 0.5, 0.02, True, "± 0.039"),
        # Drifts of a twentieth, and of more than 0.01 of a share.
        ("effective_rank", 100.0, 95.1, 1.0, True, "± 2"),
        ("effective_rank", 100.0, 94.0, 1.0, False, "biased by n, still moving: 6% from 50 rows"),
        ("average_cosine", 0.05, 0.041, 0.001, True, "± 0.002"),
        ("average_cosine", 0.05, 0.038, 0.001, False, "still moving: 24% from 50 rows"),
        ("average_cosine", 0.0, 0.0, 0.001, True, "± 0.002"),
        ("std_ratio", 2.0, 1.0, 1.0, False, "known to ± 1.96 only; biased by n, still moving: 50% from 50 rows"),
        ("std_ratio", float("nan"), 1.0, 1.0, False, "not defined in all of the rows, or in some halves of them"),
        ("std_ratio", 2.0, 2.0, float("nan"), False, "not defined in all of the rows, or in some halves of them"),
    ],
)
def test_limits(monkeypatch, figure, value, before, deviation, enough, why):
    """By hand, on a curve of 50 and of 100 rows."""
    curve = {"n": [50, 100], "figure": figure, "value": [before, value], "std": [0.0, 0.0]}
    monkeypatch.setattr(module, "curve_of_n", lambda layer: module.pd.DataFrame(curve))
    evidence = Evidence(profile_of(gaussian(100, 5)), -1)
    evidence.deviations = {figure: deviation}
    (row,) = judge_sufficiency(evidence).answers.to_dict("records")
    assert (row["enough"], row["why"]) == (enough, why)
    assert type(row["enough"]) is bool


def test_more_rows_than_the_sample():
    """The last n is of all rows, from the moments; what only the sample has ends there, and no half is claimed."""
    x = gaussian(3_000, 6, seed=1) + [1.5, 0, 0, 0, 0, 0]  # noqa: RUF005 (an array)
    profile = profile_of(x)
    found = judge_sufficiency(Evidence(profile, -1))
    assert sorted(set(found.curve["n"])) == [16, 32, 64, 128, 256, 512, 1_024, 3_000]
    whole = found.curve[found.curve["n"] == 3_000].set_index("figure")["value"]
    row = summarize(profile).iloc[0]
    assert sorted(whole.index) == sorted(set(FIGURES) - {"rms_cosine"})
    for name, value in whole.items():
        assert value == pytest.approx(row[name], rel=1e-12), name
    answers = found.answers.set_index("figure")
    sample = profile[-1].sample
    unit = sample / np.linalg.norm(sample, axis=1, keepdims=True)
    assert answers.loc["rms_cosine", "value"] == pytest.approx(
        np.sqrt(((unit @ unit.T)[np.triu_indices(1_024, 1)] ** 2).mean())
    )
    assert (answers["n"] == 3_000).all()
    for reason in answers.loc[~answers["enough"], "why"]:
        assert "half the rows" not in reason
    curve = found.curve.set_index(["figure", "n"])["value"]
    expected = abs(row["common_mean_share"] - curve["common_mean_share", 1_024]) / row["common_mean_share"]
    assert answers.loc["common_mean_share", "drift"] == pytest.approx(expected)


def test_nulls_of_the_curve():
    """In closed form, or drawn here."""
    found = judged(gaussian(64, 12))
    null = found.curve.set_index(["figure", "n"])["null"]
    rng = np.random.default_rng(7)
    for n in (16, 32, 64):
        draws = [rng.standard_normal((n, 12)) for _ in range(300)]
        assert null["common_mean_share", n] == 1 / n
        assert null["average_cosine", n] == 0
        assert null["rms_cosine", n] == pytest.approx(1 / 12**0.5)
        energy = [(draw**2).mean(axis=0) for draw in draws]
        top = np.mean([each.max() / each.sum() for each in energy])
        assert null["top1_energy_share", n] == pytest.approx(top, rel=0.05)
        ratios = [draw.std(axis=0).max() / np.median(draw.std(axis=0)) for draw in draws]
        assert null["std_ratio", n] == pytest.approx(np.mean(ratios), rel=0.03)
        correlations = [np.abs(np.corrcoef(draw.T))[np.triu_indices(12, 1)].mean() for draw in draws]
        assert null["mean_abs_correlation", n] == pytest.approx(np.mean(correlations), rel=0.03)
        assert null["ev3", n] == pytest.approx(np.mean([ev3(draw) for draw in draws]), rel=0.05)
    assert np.isfinite(found.curve["null"]).all()


def test_curve_of_isotropic_rows_follows_its_null():
    found = judged(gaussian(512, 32))
    for figure in ("effective_rank", "mean_abs_correlation", "ev3", "energy_gini", "isoscore"):
        rows = found.curve[found.curve["figure"] == figure]
        np.testing.assert_allclose(rows["value"], rows["null"], rtol=0.25, err_msg=figure)
