"""What may be said of arms: planted differences, twins, few seeds, degenerate runs, unfinished grids."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from cls_analysis.errors import DataError
from cls_analysis.finetuning.outcomes import DevRows, evaluate, rates_table
from cls_analysis.finetuning.records import COLUMNS, PREDICTION
from cls_analysis.finetuning.rendering import outcomes_latex, outcomes_markdown
from cls_analysis.finetuning.resampling import joint_intervals, weighted_scores
from cls_analysis.tasks.metrics import score

N_DEV = 200


class Study:
    """Made-up runs of one task: each arm is right with a probability of its own, by rate."""

    def __init__(self, arms, *, seeds=8, metrics=("accuracy",), rates=(0.1,), task="made", classes=2, rng=0):
        self.rng = np.random.default_rng(rng)
        self.truth = self.rng.integers(0, classes, N_DEV)
        self.report = np.arange(N_DEV) % 2 == 0
        self.predictions, rows = {}, []
        for arm, right in arms.items():
            for rate in rates:
                for seed in range(seeds):
                    p = right(rate, seed) if callable(right) else right
                    rows += self.run(task, arm, rate, seed, p, metrics, classes)
        self.runs = pd.DataFrame(rows, columns=list(COLUMNS))

    def run(self, task, arm, rate, seed, p, metrics, classes):
        noise = np.random.default_rng([seed, 6 if arm == "like none" else 5])  # the same for all other arms
        right = noise.random(N_DEV) < p
        wrong = (self.truth + 1 + noise.integers(0, classes - 1, N_DEV)) % classes if classes > 2 else 1 - self.truth
        predicted = np.where(right, self.truth, wrong)
        return self.rows(task, arm, rate, seed, predicted, metrics)

    def rows(self, task, arm, rate, seed, predicted, metrics):
        run_id = f"{task}-{arm}-{rate}-{seed}"
        self.predictions[run_id] = {PREDICTION: predicted}
        majority = np.full(int(self.report.sum()), np.bincount(self.truth).argmax())
        values = dict.fromkeys(COLUMNS, 0) | {
            "model": "m", "task": task, "head": "linear", "train": "head", "norm": arm, "position": "cls",
            "optimizer": "adamw", "clip": "1.0", "learning_rate": rate, "seed": seed, "run_id": run_id,
        }  # fmt: skip
        return [
            values
            | {
                "metric": metric,
                "score_select": score(metric, self.truth[~self.report], predicted[~self.report]),
                "score_report": score(metric, self.truth[self.report], predicted[self.report]),
                "majority": score(metric, self.truth[self.report], majority),
                "degenerate": len(set(predicted.tolist())) == 1,
            }
            for metric in metrics
        ]

    def dev(self, task="made"):
        return {task: DevRows(self.truth, self.report)}

    def evaluate(self, **options):
        return evaluate(self.runs, self.predictions.__getitem__, self.dev(), **options)


def row(result, norm, metric="accuracy"):
    table = result.outcomes
    (found,) = table[(table["norm"] == norm) & (table["metric"] == metric)].to_dict("records")
    return found


def test_a_planted_difference_is_found_and_nothing_else():
    study = Study({"none": 0.7, "better": 0.85, "worse": 0.55, "like none": 0.7}, seeds=25)
    result = study.evaluate()
    verdicts = {norm: row(result, norm)["verdict"] for norm in ("none", "better", "worse", "like none")}
    assert verdicts == {
        "none": "baseline",
        "better": "better",
        "worse": "worse",
        "like none": "cannot be told apart with 25 seeds",
    }
    better = row(result, "better")
    assert better["difference"] == pytest.approx(0.15, abs=0.02)
    assert 0 < better["joint_low"] < better["ci_low"] < better["difference"] < better["ci_high"] < better["joint_high"]


def test_two_names_of_one_arm():
    result = Study({"none": 0.7, "again": 0.7}).evaluate()
    again = row(result, "again")
    assert (again["difference"], again["p"], again["p_holm"], again["p_stability"]) == (0, 1, 1, 1)
    assert [again[name] for name in ("ci_low", "ci_high", "joint_low", "joint_high")] == [0, 0, 0, 0]
    assert again["verdict"] == "cannot be told apart with 8 seeds"


def test_five_seeds_cannot_show_anything():
    result = Study({"none": 0.5, "much better": 0.95}, seeds=5).evaluate()
    found = row(result, "much better")
    assert found["p"] == found["p_smallest"] == 0.0625
    assert found["ci_low"] > 0
    assert found["joint_low"] > 0
    assert found["verdict"] == "cannot be told apart with 5 seeds (5 seeds cannot reach p < 0.05)"


def test_numbers_against_pandas_and_scipy():
    study = Study({"none": 0.7, "a": 0.8}, metrics=("accuracy", "mcc"))
    result = study.evaluate()
    wide = study.runs[study.runs["metric"] == "mcc"].pivot_table(index="seed", columns="norm", values="score_report")
    found = row(result, "a", "mcc")
    for column, expected in (
        ("mean", wide["a"].mean()),
        ("median", wide["a"].median()),
        ("std", wide["a"].std()),
        ("best", wide["a"].max()),
        ("worst", wide["a"].min()),
        ("difference", (wide["a"] - wide["none"]).mean()),
        ("p", scipy.stats.permutation_test(((wide["a"] - wide["none"]).to_numpy(),), np.mean,
                                           permutation_type="samples", n_resamples=np.inf).pvalue),
        ("p_brown_forsythe", scipy.stats.levene(wide["a"], wide["none"], center="median").pvalue),
    ):  # fmt: skip
        assert found[column] == pytest.approx(expected), column
    interval = scipy.stats.ttest_rel(wide["a"], wide["none"]).confidence_interval()
    assert (found["ci_low"], found["ci_high"]) == pytest.approx(tuple(interval))


def test_the_rate_is_chosen_by_the_selecting_half_and_results_come_from_the_other():
    study = Study({"none": lambda rate, seed: rate, "a": lambda rate, seed: 1 - rate}, rates=(0.3, 0.6, 0.9))
    result = study.evaluate()
    assert row(result, "none")["learning_rate"] == 0.9
    assert row(result, "a")["learning_rate"] == 0.3
    assert row(result, "none")["rate_at_edge"]
    runs = study.runs
    at_rate = runs[(runs["norm"] == "none") & (runs["learning_rate"] == 0.9)]
    assert row(result, "none")["mean"] == pytest.approx(at_rate["score_report"].mean())
    sweep = result.rates
    assert len(sweep) == 6
    assert sweep["chosen"].sum() == 2


def test_of_equal_rates_the_smaller_is_chosen_and_undefined_scores_count_as_zero():
    study = Study({"none": 0.8, "a": 0.8}, rates=(0.1, 0.2, 0.3))
    table = rates_table(study.runs)
    assert set(table.loc[table["chosen"], "learning_rate"]) == {0.1}
    runs = study.runs.copy()
    runs.loc[(runs["learning_rate"] == 0.1) & (runs["seed"] == 0), "score_select"] = np.nan
    table = rates_table(runs)
    assert set(table.loc[table["chosen"], "learning_rate"]) == {0.2}
    assert not table["rate_at_edge"].any()


def test_degenerate_runs_stay_in_the_means_and_are_counted():
    study = Study({"none": 0.8}, metrics=("accuracy", "mcc"), seeds=6)
    rows = list(study.runs.to_dict("records"))
    for seed in range(6):
        predicted = np.ones(N_DEV, dtype=int) if seed == 0 else study.predictions[f"made-none-0.1-{seed}"][PREDICTION]
        rows += study.rows("made", "a", 0.1, seed, predicted, ("accuracy", "mcc"))
    study.runs = pd.DataFrame(rows)
    found = row(study.evaluate(), "a", "mcc")
    assert (found["n_degenerate"], found["n_valid"], found["worst"]) == (1, 6, 0.0)
    assert found["difference"] < 0


def test_undefined_scores_are_left_out_of_means_and_counted():
    study = Study({"none": 0.8, "a": 0.8}, seeds=6)
    study.runs.loc[(study.runs["norm"] == "a") & (study.runs["seed"] == 2), "score_report"] = np.nan
    found = row(study.evaluate(), "a")
    assert (found["n_seeds"], found["n_valid"]) == (6, 5)
    assert found["difference"] == 0
    assert "6, 1 undefined" in outcomes_markdown(study.evaluate())


def test_holm_is_over_all_tasks_and_arms():
    parts = [Study({"none": 0.7, "a": 0.85, "b": 0.7}, seeds=7, task=name, rng=i) for i, name in enumerate("xy")]
    runs = pd.concat([part.runs for part in parts], ignore_index=True)
    predictions = parts[0].predictions | parts[1].predictions
    result = evaluate(runs, predictions.__getitem__, parts[0].dev("x") | parts[1].dev("y"))
    of_a = result.outcomes[result.outcomes["norm"] == "a"]
    assert (of_a["p"] == 2 / 2**7).all()
    # Four comparisons: the two smallest of them are multiplied by 4.
    assert of_a["p_holm"].tolist() == pytest.approx([4 * 2 / 2**7] * 2)
    assert (of_a["verdict"] == "cannot be told apart with 7 seeds").all()


def test_unfinished_grids_are_refused():
    study = Study({"none": 0.7, "a": 0.8}, rates=(0.1, 0.2))
    runs = study.runs[~((study.runs["norm"] == "a") & (study.runs["seed"] == 3))]
    with pytest.raises(DataError, match=r"a at rate 0.1 lacks seed 3, which other runs have"):
        evaluate(runs, study.predictions.__getitem__, study.dev())
    runs = study.runs[~((study.runs["norm"] == "a") & (study.runs["learning_rate"] == 0.2))]
    with pytest.raises(DataError, match="a has 1 of 2 learning rates"):
        evaluate(runs, study.predictions.__getitem__, study.dev())
    with pytest.raises(DataError, match="no run is finished yet"):
        evaluate(study.runs.iloc[:0], study.predictions.__getitem__, study.dev())


def test_arms_that_tried_other_rates_are_refused():
    study = Study({"none": 0.7, "a": 0.8}, rates=(0.1, 0.2, 0.3))
    runs, norm, rate = study.runs, study.runs["norm"], study.runs["learning_rate"]
    runs = runs[~((norm == "none") & (rate == 0.1)) & ~((norm == "a") & (rate == 0.3))]
    with pytest.raises(DataError, match=r"none has 2 of 3 learning rates, 0\.1 is missing"):
        evaluate(runs, study.predictions.__getitem__, study.dev())
    # One rate each: a pilot's choice.
    runs = study.runs[(norm == "none") & (rate == 0.1) | (norm == "a") & (rate == 0.3)]
    result = evaluate(runs, study.predictions.__getitem__, study.dev())
    assert result.outcomes["learning_rate"].tolist() == [0.1, 0.3]
    assert not result.outcomes["rate_at_edge"].any()


def test_case_19_the_gap_between_the_modes_is_shown():
    study = Study({"none": 0.7, "tracked": 0.7}, seeds=3)
    for seed in range(3):
        right = study.truth.copy()
        right[np.flatnonzero(study.report)[: 5 * seed]] ^= 1
        study.predictions[f"made-tracked-0.1-{seed}"]["by_batches"] = right
    result = study.evaluate()
    n = study.report.sum()
    found = row(result, "tracked")
    assert found["mode_gap"] == pytest.approx(np.mean([1.0, 1 - 5 / n, 1 - 10 / n]) - found["mean"])
    assert np.isnan(row(result, "none")["mode_gap"])
    assert f"instead of the running ones: tracked {found['mode_gap']:+.3f}." in outcomes_markdown(result)


def test_an_arm_without_any_score_is_not_compared():
    study = Study({"none": 0.8, "a": 0.8, "b": 0.9}, seeds=7)
    study.runs.loc[study.runs["norm"] == "a", "score_report"] = np.nan  # as constant predictions of values
    result = study.evaluate()
    found = row(result, "a")
    assert (found["n_valid"], found["n_paired"], found["verdict"]) == (0, 0, "not compared")
    assert np.isnan([found[name] for name in ("mean", "difference", "ci_low", "joint_low", "p", "p_holm")]).all()
    # The arm that cannot be tested does not count in the family.
    assert row(result, "b")["p_holm"] == row(result, "b")["p"]
    assert "7 of 7" not in outcomes_markdown(result)
    assert "0 of 7, 7 undefined" in outcomes_markdown(result)


def test_the_verdict_counts_the_seeds_that_both_arms_have():
    study = Study({"none": 0.5, "a": 0.95}, seeds=6)
    study.runs.loc[(study.runs["norm"] == "none") & (study.runs["seed"] == 2), "score_report"] = np.nan
    found = row(study.evaluate(), "a")
    assert (found["n_valid"], found["n_paired"], found["p_smallest"]) == (6, 5, 0.0625)
    assert found["verdict"] == "cannot be told apart with 5 seeds (5 seeds cannot reach p < 0.05)"


def test_columns_do_not_depend_on_the_order_of_arms():
    first, last = (Study(dict.fromkeys(arms, 0.8)).evaluate().outcomes for arms in (("none", "a"), ("a", "none")))
    assert list(first.columns) == list(last.columns)
    assert list(first.columns)[-14:] == [
        *("n_paired", "difference", "ci_low", "ci_high", "joint_low", "joint_high", "p", "p_smallest", "p_holm"),
        *("spread_difference", "p_stability", "p_stability_smallest", "p_brown_forsythe", "verdict"),
    ]


def test_stability_is_tested_by_distances_from_the_own_median():
    rng = np.random.default_rng(2)
    scores = {"none": rng.normal(0.7, 0.08, 8), "calm": rng.normal(0.7, 0.01, 8)}
    study = Study(dict.fromkeys(scores, 0.7))
    for norm, values in scores.items():
        study.runs.loc[study.runs["norm"] == norm, "score_report"] = values
    found = row(study.evaluate(), "calm")
    apart = np.abs(scores["calm"] - np.median(scores["calm"])) - np.abs(scores["none"] - np.median(scores["none"]))
    assert found["spread_difference"] == pytest.approx(apart.mean())
    expected = scipy.stats.permutation_test((apart,), np.mean, permutation_type="samples", n_resamples=np.inf)
    assert found["p_stability"] == pytest.approx(expected.pvalue)
    assert found["p_stability_smallest"] == 2 / 2**8


def test_expected_best_is_at_the_chosen_rate():
    result = Study({"none": lambda rate, seed: rate}, rates=(0.4, 0.6, 0.9), seeds=5).evaluate()
    table = result.expected_best
    assert table["k"].tolist() == [1, 2, 3, 4, 5]
    assert table["expected_best"].iloc[0] == pytest.approx(row(result, "none")["mean"])


def test_without_a_baseline_nothing_is_compared():
    result = Study({"a": 0.7, "b": 0.8}).evaluate()
    assert (result.outcomes["verdict"] == "not compared").all()
    assert result.outcomes["difference"].isna().all()
    assert "no arm 'none' to compare with" in result.notes[0]
    named = Study({"a": 0.7, "b": 0.8}).evaluate(baseline="a")
    assert row(named, "b")["difference"] > 0


@pytest.mark.parametrize("metric", ["accuracy", "f1", "macro_f1", "mcc"])
@pytest.mark.parametrize("classes", [2, 4])
def test_weighted_scores_against_scikit_learn(metric, classes):
    rng = np.random.default_rng(classes)
    truth, predicted = rng.integers(0, classes, 60), rng.integers(0, classes, (3, 60))
    predicted[0] = np.where(rng.random(60) < 0.7, truth, predicted[0])
    weights = rng.multinomial(60, np.full(60, 1 / 60), 5).T.astype(float)
    found = weighted_scores(metric, truth, predicted, weights)
    for i, run in enumerate(predicted):
        for r in range(5):
            w = weights[:, r]
            expected = {
                "accuracy": lambda w=w, run=run: accuracy_score(truth, run, sample_weight=w),
                "f1": lambda w=w, run=run: f1_score(truth == 1, run == 1, sample_weight=w),
                "macro_f1": lambda w=w, run=run: f1_score(
                    truth, run, labels=np.unique(truth), average="macro", sample_weight=w, zero_division=0
                ),
                "mcc": lambda w=w, run=run: matthews_corrcoef(truth, run, sample_weight=w),
            }[metric]()
            assert found[i, r] == pytest.approx(expected)


@pytest.mark.parametrize("metric", ["pearson", "spearman"])
def test_weighted_correlations(metric):
    rng = np.random.default_rng(0)
    truth = rng.standard_normal(80) * 1e-3 + 5  # a mean that is long against the spread
    predicted = truth + rng.standard_normal((2, 80)) * 1e-3
    ones = np.ones((80, 1))
    for found, run in zip(weighted_scores(metric, truth, predicted, ones)[:, 0], predicted, strict=True):
        assert found == pytest.approx(score(metric, truth, run))
    draw = rng.integers(0, 80, 80)
    weights = np.bincount(draw, minlength=80)[:, None].astype(float)
    expected = score("pearson", truth[draw], predicted[0][draw])
    assert weighted_scores("pearson", truth, predicted, weights)[0, 0] == pytest.approx(expected)
    # Ranks are those of all rows: close to those within the resample.
    spearman = score("spearman", truth[draw], predicted[0][draw])
    assert weighted_scores("spearman", truth, predicted, weights)[0, 0] == pytest.approx(spearman, abs=0.02)


@pytest.mark.parametrize("metric", ["f1", "mcc", "pearson", "spearman"])
def test_weighted_scores_where_they_are_undefined(metric):
    truth = np.array([0.0, 0, 1, 1])
    predicted = np.array([[0.0, 0, 0, 0], [1, 1, 1, 1], [0, 1, 0, 1]])
    weights = np.array([[1.0, 1, 1, 1], [2, 2, 0, 0]]).T
    found = weighted_scores(metric, truth, predicted, weights)
    rows = (np.arange(4), np.array([0, 0, 1, 1]))
    expected = [[score(metric, truth[chosen], run[chosen]) for chosen in rows] for run in predicted]
    np.testing.assert_allclose(found, expected)


def test_joint_interval_against_resampling_by_hand():
    """Rows and seeds drawn by their numbers, scored by scikit-learn, at the percentiles of fewer resamples."""
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 2, 60)
    base, arm = (np.where(rng.random((6, 60)) < right, truth, 1 - truth) for right in (0.6, 0.8))
    means = []
    for _ in range(600):
        rows, seeds = rng.integers(0, 60, 60), rng.integers(0, 6, 6)
        scores = [
            [matthews_corrcoef(truth[rows], each[seed][rows]) for seed in range(6) if seed in seeds]
            for each in (arm, base)
        ]
        counts = np.bincount(seeds, minlength=6)
        means.append(np.average(np.subtract(*scores), weights=counts[counts > 0]))
    low, high = joint_intervals("mcc", truth, base, arm)
    assert (low, high) == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])), abs=0.05)
    assert joint_intervals("mcc", truth, base, arm) == (low, high)


def test_joint_interval_where_no_resample_defines_a_score():
    constant = np.ones((3, 4))
    found = joint_intervals("pearson", np.arange(4.0), constant, 2 * constant)
    assert np.isnan(found).all()


def test_joint_interval_covers_the_rows_and_seeds_it_did_not_see():
    """The spread over repeated studies, with new rows and seeds each time, is what the interval should tell."""
    rng = np.random.default_rng(1)
    covered, k, m = [], 12, 150
    for _ in range(120):
        truth = np.zeros(m, dtype=int)
        hard = rng.random(m)  # rows differ in how hard they are, for all seeds alike
        base, arm = (
            (rng.random((k, m)) + hard - shift - rng.normal(0, 0.05, (k, 1)) > 1.0).astype(int) for shift in (0, 0.1)
        )
        low, high = joint_intervals("accuracy", truth, base, arm)
        covered.append(low <= TRUE_DIFFERENCE <= high)
    assert 0.86 <= np.mean(covered) <= 1.0


def _chance(shift):
    """P(u + v − e > 1 + shift) of two uniform numbers and e from N(0, 0.05²)."""
    t = scipy.stats.norm.ppf((np.arange(2000) + 0.5) / 2000, shift, 0.05)
    return float(np.mean(np.where(t > 0, (1 - t) ** 2 / 2, 1 - (1 + t) ** 2 / 2)))


#: The truth is 0 throughout: what is named 1 is wrong.
TRUE_DIFFERENCE = _chance(0.0) - _chance(0.1)


def test_rendering():
    result = Study({"none": 0.7, "a_b": 0.85}, seeds=7, metrics=("accuracy", "mcc")).evaluate()
    text = outcomes_markdown(result)
    assert "## made: m, linear head, head trained alone, norm at cls, adamw, clip 1.0" in text
    (line,) = [line for line in text.splitlines() if line.startswith("| a_b") and "better" in line][:1]
    found = row(result, "a_b")
    for low, high in (("ci_low", "ci_high"), ("joint_low", "joint_high")):
        assert f"| {found[low]:+.3f} to {found[high]:+.3f} " in line
    assert len({len(each) for each in text.splitlines() if each.startswith("|")}) <= 2
    spread = [
        line for line in text.splitlines() if line.startswith("| a_b") and f"{found['spread_difference']:+.3f}" in line
    ]
    assert len(spread) == 1
    assert f"| {found['p_brown_forsythe']:.3f} " in spread[0]
    latex = outcomes_latex(result)
    assert r"a\_b" in latex
    assert r"\toprule" in latex


def test_latex_tells_conditions_apart():
    study = Study({"none": 0.7, "a": 0.8})
    both = pd.concat([study.runs, study.runs.assign(clip="off")], ignore_index=True)
    result = evaluate(both, study.predictions.__getitem__, study.dev())
    rows = [line.split(" & ") for line in outcomes_latex(result).splitlines() if "&" in line]
    clip = rows[0].index("clip")
    assert [row[clip] for row in rows[1:]] == ["1.0", "1.0", "off", "off"]
    assert "clip" not in outcomes_latex(study.evaluate())
