"""Figures of fine-tuning: numbers against pandas and NumPy, names that do not touch, what each mark is."""

from __future__ import annotations

import itertools

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from cls_analysis.plotting.outcomes import (
    MEASURES,
    SMOOTHED,
    draw_outcomes,
    draw_training,
    outcomes_table,
    training_table,
)

NORMS = (
    *("none", "scale", "center", "standardize", "batchnorm", "layernorm", "l2norm", "isobn", "whiten"),
    "all-but-the-top",
)
TASKS = ("glue/cola", "glue/mrpc", "glue/rte", "glue/stsb", "trec")
SUBTITLE = "google-bert/bert-base-uncased, linear head, all trained, norm at cls, adamw, clip 1.0"


def tables(tasks=2, arms=3, seeds=6, *, baseline="none", majority=0.5):
    """Scores and outcomes as ``finetuning.outcomes`` gives them; the last arm's first seed is degenerate."""
    rng = np.random.default_rng(0)
    scores, outcomes = [], []
    for task, metric in itertools.product(TASKS[:tasks], ("mcc", "accuracy")):
        base = rng.normal(0.7, 0.03, seeds)
        for i, norm in enumerate(NORMS[:arms]):
            values = base if i == 0 else rng.normal(0.7 + 0.01 * i, 0.03, seeds)
            broken = np.arange(seeds) == (0 if i == arms - 1 else -1)
            values = np.where(broken, 0.5, values)
            scores += [
                {"task": task, "norm": norm, "metric": metric, "seed": seed, "score_report": value,
                 "majority": majority, "degenerate": bool(bad)}
                for seed, (value, bad) in enumerate(zip(values, broken, strict=True))
            ]  # fmt: skip
            difference = values.mean() - base.mean() if i and baseline else np.nan
            outcomes.append(
                {"task": task, "norm": norm, "metric": metric, "mean": values.mean(), "baseline": baseline,
                 "difference": difference, "ci_low": difference - 0.02, "ci_high": difference + 0.02,
                 "n_degenerate": int(broken.sum()), "verdict": "better" if i else "baseline"}
            )  # fmt: skip
    return pd.DataFrame(scores), pd.DataFrame(outcomes)


def steps(tasks=2, arms=3, seeds=5, n=40):
    """Steps of runs, with noise of their own."""
    frames = []
    for task, (i, norm), seed in itertools.product(TASKS[:tasks], enumerate(NORMS[:arms]), range(seeds)):
        noise = np.exp(np.random.default_rng([i, seed]).normal(0, 0.3, n))
        k = np.arange(1, n + 1)
        columns = {"loss": 0.7 * np.exp(-k / n), "gradient_norm": 3.0 / k, "h_gradient": 0.02, "h_gradient_scaled": 0.3}
        values = {name: np.asarray(value) * noise for name, value in columns.items()}
        frames.append(pd.DataFrame({"task": task, "norm": norm, "seed": seed, "step": k} | values))
    return pd.concat(frames, ignore_index=True)


def overlapping(figure, artists):
    """Pairs of artists whose boxes meet on the drawn figure."""
    figure.canvas.draw()
    boxes = [artist.get_window_extent() for artist in artists]
    return [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]


def tick_texts(ax):
    return [label.get_text() for label in ax.get_xticklabels()]


def legend_texts(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_numbers_of_outcomes_are_those_of_the_primary_metric():
    scores, outcomes = tables()
    table = outcomes_table(scores, outcomes)
    assert len(table) == 2 * 3 * 6
    assert set(table["metric"]) == {"mcc"}
    means = table.groupby(["task", "norm"], sort=False)["score_report"].mean()
    np.testing.assert_allclose(means, outcomes.loc[outcomes["metric"] == "mcc", "mean"])


def test_every_seed_is_drawn_and_degenerate_runs_are_crosses():
    table = outcomes_table(*tables(tasks=1, arms=3, seeds=6))
    ax = draw_outcomes(table, SUBTITLE).axes[0]
    dots = [line for line in ax.lines if line.get_linestyle() == "None"]
    crosses = np.concatenate([line.get_ydata() for line in dots if line.get_marker() == "x"])
    assert crosses.tolist() == [0.5]
    seeds = np.concatenate([line.get_ydata() for line in dots if line.get_marker() not in ("x", "_")])
    np.testing.assert_allclose(np.sort(np.append(seeds, crosses)), np.sort(table["score_report"]))
    # One thin line for each seed, through all arms.
    joined = [line.get_ydata() for line in ax.lines if len(line.get_xdata()) == 3 and line.get_linewidth() < 0.5]
    wide = table.pivot_table(index="seed", columns="norm", values="score_report", sort=False)
    np.testing.assert_allclose(np.array(joined), wide.to_numpy())


def test_bars_are_intervals_of_differences_around_the_baseline():
    table = outcomes_table(*tables(tasks=1, arms=2))
    ax = draw_outcomes(table, SUBTITLE).axes[0]
    base = table.loc[table["norm"] == "none", "mean"].iloc[0]
    arm = table[table["norm"] == "scale"].iloc[0]
    (bar,) = [line.get_ydata() for line in ax.lines if line.get_linewidth() == 1.6]
    np.testing.assert_allclose(bar, base + arm[["ci_low", "ci_high"]].to_numpy(dtype=float))


@pytest.mark.parametrize(("tasks", "arms"), [(1, 2), (1, 4), (2, 2), (2, 5), (3, 5), (5, 10)])
def test_names_do_not_touch(tasks, arms):
    figure = draw_outcomes(outcomes_table(*tables(tasks, arms, 10)), SUBTITLE)
    axes = [ax for ax in figure.axes if ax.axison]
    assert [ax.get_title() for ax in axes] == list(TASKS[:tasks])
    for ax in axes:
        assert tick_texts(ax) == list(NORMS[:arms])
        labels = ax.get_xticklabels()
        if labels[0].get_rotation() == 0:
            assert not overlapping(figure, labels)
        else:  # turned names end at their ticks: parallel, a line's height apart
            figure.canvas.draw()
            ends = [ax.transData.transform((i, 0))[0] for i in range(arms)]
            height = labels[0].get_fontsize() / 72 * figure.dpi
            assert np.diff(ends).min() * np.sin(np.radians(30)) > height
    assert not overlapping(figure, [figure.legends[0], *(ax.xaxis.label for ax in axes), figure._suptitle])


def test_marks_are_named_where_there_are_any():
    named = legend_texts(draw_outcomes(outcomes_table(*tables()), SUBTITLE))
    assert named == ["mean of 'none'", "difference (95 %)", "majority's class", "degenerate run"]
    scores, outcomes = tables(majority=0.2)
    figure = draw_outcomes(outcomes_table(scores, outcomes), SUBTITLE)
    assert all(ax.get_ylim()[0] > 0.4 for ax in figure.axes)  # not pressed flat by a line far below
    assert [ax.get_xlabel() for ax in figure.axes] == ["majority's class: 0.200"] * 2
    assert "majority's class" not in [text.get_text() for text in figure.legends[0].get_texts()]
    scores, outcomes = tables(majority=np.nan)
    table = outcomes_table(scores.assign(degenerate=False), outcomes)
    assert legend_texts(draw_outcomes(table, SUBTITLE)) == named[:2]
    alone = outcomes_table(*tables(baseline=None))
    assert legend_texts(draw_outcomes(alone, SUBTITLE)) == named[2:]


def test_undefined_scores_and_single_seeds_are_drawn():
    scores, outcomes = tables(tasks=1, arms=3)
    scores.loc[scores["norm"] == "scale", "score_report"] = np.nan
    lost = outcomes["norm"] == "scale"
    outcomes.loc[lost, ["mean", "difference", "ci_low", "ci_high"]] = np.nan
    draw_outcomes(outcomes_table(scores, outcomes), SUBTITLE).canvas.draw()
    scores, outcomes = tables(tasks=1, arms=2, seeds=1)
    outcomes[["ci_low", "ci_high"]] = np.nan
    draw_outcomes(outcomes_table(scores, outcomes), SUBTITLE).canvas.draw()


def test_numbers_of_training_are_quantiles_over_seeds():
    frame = steps()
    table = training_table(frame)
    assert list(table.columns) == ["task", "norm", "measure", "step", "low", "median", "high"]
    assert len(table) == 2 * 3 * 4 * 40
    chosen = (frame["task"] == "glue/mrpc") & (frame["norm"] == "scale") & (frame["step"] == 7)
    (found,) = table.query("task == 'glue/mrpc' and norm == 'scale' and step == 7 and measure == 'h_gradient'").to_dict(
        "records"
    )
    expected = np.quantile(frame.loc[chosen, "h_gradient"], [0.1, 0.5, 0.9])
    assert [found[name] for name in ("low", "median", "high")] == pytest.approx(expected)


def test_long_curves_are_smoothed_and_short_ones_are_not():
    short, long = (steps(1, 1, 1, n) for n in (SMOOTHED, 500))
    table = training_table(short)
    np.testing.assert_allclose(table.loc[table["measure"] == "loss", "median"], short["loss"])
    table = training_table(long)
    smooth = table.loc[table["measure"] == "loss", "median"].to_numpy()
    # A window of ten steps, from five before to four after.
    assert smooth[100] == pytest.approx(np.median(long["loss"].to_numpy()[95:105]))
    assert np.abs(np.diff(smooth)).mean() < 0.5 * np.abs(np.diff(long["loss"])).mean()


@pytest.mark.parametrize(("tasks", "arms"), [(1, 2), (3, 5), (5, 10)])
def test_training_has_a_panel_for_each_measure_and_task(tasks, arms):
    figure = draw_training(training_table(steps(tasks, arms)), SUBTITLE)
    axes = np.array(figure.axes).reshape(tasks, len(MEASURES))
    assert [ax.get_title() for ax in axes[0]] == [heading for _, heading, _ in MEASURES]
    assert [ax.get_ylabel() for ax in axes[:, 0]] == list(TASKS[:tasks])
    for ax, (_, _, logarithmic) in zip(axes[-1], MEASURES, strict=True):
        assert (ax.get_yscale() == "log") == logarithmic
        looks = {(line.get_color(), str(line.get_linestyle()), str(line._dash_pattern)) for line in ax.lines}
        assert len(looks) == arms
    assert legend_texts(figure) == list(NORMS[:arms])
    assert not overlapping(figure, [ax.title for ax in axes[0]])


def test_an_axis_of_less_than_a_decade_has_several_numbers():
    figure = draw_training(training_table(steps(1, 2)), SUBTITLE)
    figure.canvas.draw()
    for ax in figure.axes[2:]:  # gradients that hardly change
        low, high = ax.get_ylim()
        shown = [tick for tick in ax.get_yticks() if low <= tick <= high]
        assert len(shown) >= 2, (low, high)


def test_measures_that_no_run_has_are_left_out():
    frame = steps(1, 2).drop(columns=["gradient_norm", "h_gradient_scaled"])
    figure = draw_training(training_table(frame), SUBTITLE)
    assert [ax.get_title() for ax in figure.axes] == ["training loss", MEASURES[2][1]]


def test_gradients_of_zero_are_drawn():
    frame = steps(1, 2).assign(h_gradient=0.0)
    draw_training(training_table(frame), SUBTITLE).canvas.draw()


def test_the_callers_settings_are_left_alone():
    before = dict(mpl.rcParams)
    draw_outcomes(outcomes_table(*tables()), SUBTITLE)
    draw_training(training_table(steps()), SUBTITLE)
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == []


def test_names_that_begin_with_an_underscore_are_shown():
    scores, outcomes = (each.replace({"norm": {"scale": "_scale"}}) for each in tables())
    figure = draw_outcomes(outcomes_table(scores, outcomes), SUBTITLE)
    assert tick_texts(figure.axes[0])[1].strip() == "_scale"
    figure = draw_training(training_table(steps().replace({"norm": {"scale": "_scale"}})), SUBTITLE)
    assert [text.strip() for text in legend_texts(figure)][1] == "_scale"
