"""The probe: its optimum is scikit-learn's, its SGD and AdamW are torch's, and normalising mends what was planted."""

from __future__ import annotations

import importlib

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, RepeatedStratifiedKFold, StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from cls_analysis.diagnosis.effects import optimum, steps
from cls_analysis.diagnosis.effects.probe import corrected_interval, probe, probe_labels
from cls_analysis.errors import DataError, OptionError
from cls_analysis.moments import single_threaded_blas
from cls_analysis.statistics.normalizers import NORMALIZERS

module = importlib.import_module("cls_analysis.diagnosis.effects.probe")
QUICK = {"folds": 3, "repeats": 1, "steps": 20}


def planted(n: int = 300, d: int = 30, classes: int = 2, seed: int = 0):
    """Isotropic rows and labels that depend on all dimensions but the first, to be made ill-conditioned by it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    scores = x[:, 1:] @ rng.standard_normal((d - 1, classes)) + rng.gumbel(size=(n, classes))
    return x, scores.argmax(axis=1)


def line(table: pd.DataFrame, optimizer: str, normalization: str) -> pd.Series:
    rows = table[(table["optimizer"] == optimizer) & (table["normalization"] == normalization)]
    assert len(rows) == 1
    return rows.iloc[0]


# -- right values from outside ---------------------------------------------------------------------------------------


class UnitSize(TransformerMixin, BaseEstimator):
    """Centres, and divides by one number: what makes a penalty mean the same for rows of any scale."""

    def fit(self, x, y=None):
        self.mean_ = x.mean(axis=0)
        self.size_ = np.sqrt(((x - self.mean_) ** 2).mean())
        return self

    def transform(self, x):
        return (x - self.mean_) / self.size_


class Penalized(LogisticRegression):
    """scikit-learn's, with λ of mean log-loss + λ/2‖W‖² instead of C."""

    def __init__(self, penalty_weight=1.0):
        super().__init__(solver="newton-cholesky", tol=1e-8)
        self.penalty_weight = penalty_weight

    def fit(self, x, y):
        self.C = 1.0 / (self.penalty_weight * len(x))
        return super().fit(x, y)


SCIKIT = {"none": FunctionTransformer(), "standardize": StandardScaler(), "l2norm": Normalizer()}


@pytest.mark.parametrize(("classes", "n", "d"), [(2, 90, 6), (3, 90, 6), (2, 36, 40)])
def test_optimum_is_that_of_grid_search(classes, n, d, monkeypatch):
    monkeypatch.setattr(optimum, "PENALTIES", np.logspace(1, -3, 5))
    x, y = planted(n, d, classes)
    x = x * np.linspace(0.5, 3, d) + 2
    result = probe(x, y, normalizations=list(SCIKIT), folds=3, repeats=1, steps=1, seed=7)
    splits = list(RepeatedStratifiedKFold(n_splits=3, n_repeats=1, random_state=7).split(x, y))
    for name, normalizer in SCIKIT.items():
        accuracies, penalties, losses = [], [], []
        for number, (train, test) in enumerate(splits):
            state = int(np.random.default_rng((7, number)).integers(2**31))
            search = GridSearchCV(
                make_pipeline(normalizer, UnitSize(), Penalized()),
                {"penalized__penalty_weight": optimum.PENALTIES},
                scoring="neg_log_loss",
                cv=StratifiedKFold(3, shuffle=True, random_state=state),
            )
            with single_threaded_blas():
                search.fit(x[train], y[train])
            accuracies.append(float((search.predict(x[test]) == y[test]).mean()))
            penalties.append(search.best_params_["penalized__penalty_weight"])
            losses.append(-np.log(search.predict_proba(x[train])[np.arange(len(train)), y[train]]).mean())
        row = line(result.table, "optimum", name)
        assert row["accuracy"] == pytest.approx(np.mean(accuracies))
        assert row["setting"] == pytest.approx(np.median(penalties))
        assert row["train_loss"] == pytest.approx(np.mean(losses), rel=1e-4)
    assert result.unconverged == 0


@pytest.mark.parametrize("trainer", ["sgd", "adamw"])
def test_training_is_that_of_torch(trainer):
    import torch

    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 70, 5)) * [[[1.0]], [[10.0]]] + 1, rng.integers(0, 3, 70)
    rates = np.array([[1e-3, 1e-2], [1e-4, 1e-3]])
    batches = steps.draw_batches(70, 15, rng)
    weights = steps._train(steps._single(x), np.eye(3)[:, y], batches, rates, steps.TRAINERS[trainer])
    for arm in range(2):
        for run in range(2):
            layer = torch.nn.Linear(5, 3)
            torch.nn.init.zeros_(layer.weight)
            torch.nn.init.zeros_(layer.bias)
            kind = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[trainer]
            optimizer = kind(layer.parameters(), lr=float(rates[arm, run]))
            for batch in batches:
                optimizer.zero_grad()
                scores = layer(torch.tensor(x[arm, batch], dtype=torch.float32))
                torch.nn.functional.cross_entropy(scores, torch.tensor(y[batch])).backward()
                optimizer.step()
            assert_allclose(weights[arm, :-1, :, run], layer.weight.detach().numpy().T, rtol=2e-3, atol=2e-6)
            assert_allclose(weights[arm, -1, :, run], layer.bias.detach().numpy(), rtol=2e-3, atol=2e-6)


def test_batches_show_every_row_before_any_twice():
    batches = steps.draw_batches(40, 10, np.random.default_rng(0))
    assert batches.shape == (10, 32)
    assert (np.bincount(batches.ravel()) == 8).all()
    assert steps.draw_batches(7, 2, np.random.default_rng(0)).shape == (2, 32)


def test_interval_by_hand():
    """Mean 0.25, s² = 0.05/3, (1/4 + 1/4)·s² = 0.05/6, its root times 3.18245, the t quantile with 3 degrees."""
    half = 3.182446305 * np.sqrt(0.05 / 6)
    assert corrected_interval(np.array([0.1, 0.2, 0.3, 0.4]), 0.25) == pytest.approx((0.25 - half, 0.25 + half))
    assert corrected_interval(np.zeros(10), 0.25) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (-0.01, 0.01, "harmless"),
        (0.002, 0.008, "harmless"),
        (0.002, 0.02, "better"),
        (-0.02, -0.002, "worse"),
        (-0.02, 0.005, "cannot be told apart"),
        (0.0, 0.02, "cannot be told apart"),
    ],
)
def test_verdicts(low, high, verdict):
    assert module._verdict(low, high) == verdict


# -- what was planted is found ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["huge mean", "huge scale"])
def test_ill_conditioning_slows_sgd_and_leaves_the_optimum(kind):
    x, y = planted()
    x[:, 0] = x[:, 0] + 100 if kind == "huge mean" else x[:, 0] * 100
    result = probe(x, y, normalizations=["standardize"], repeats=1)
    assert (result.n, result.n_classes, result.dropped, result.unconverged) == (300, 2, 0, 0)
    optimum = line(result.table, "optimum", "standardize")
    assert abs(optimum["difference"]) < 0.02
    assert optimum["verdict"] in ("harmless", "cannot be told apart")
    slow, fast = line(result.table, "sgd", "none"), line(result.table, "sgd", "standardize")
    assert fast["verdict"] == "better"
    assert slow["train_loss"] > 3 * fast["train_loss"]
    assert fast["accuracy"] > optimum["accuracy"] - 0.03
    assert slow["accuracy"] < optimum["accuracy"] - 0.2


def test_removing_the_signal_is_worse():
    x, y = planted(200, 10)
    x[:, 0] = 50.0 * (y - 0.5) + x[:, 0]
    result = probe(x, y, normalizations=["all-but-the-top"], **QUICK)
    assert line(result.table, "optimum", "all-but-the-top")["verdict"] == "worse"


@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_shift_and_factor_leave_the_optimum(factor, monkeypatch):
    """And so ``scale`` and ``center``, whose optimum is taken from ``none``, have it when it is computed."""
    x, y = planted(60, 8)
    options = {"normalizations": ["scale", "center", "standardize"], **QUICK}
    table = probe(x, y, **options).table
    monkeypatch.setattr(module, "SAME_OPTIMUM", {})
    moved = probe(x * factor + 3 * factor, y, **options).table
    columns = ["accuracy", "train_loss", "setting"]
    assert_allclose(moved.loc[:3, columns], table.loc[:3, columns], rtol=1e-4)


# -- arms and folds --------------------------------------------------------------------------------------------------


def test_table_is_tidy():
    x, y = planted(40, 5)
    table = probe(x, y, **QUICK).table
    assert len(table) == 3 * len(NORMALIZERS)
    assert table[["optimizer", "normalization"]].drop_duplicates().shape[0] == len(table)
    reference = table[table["normalization"] == "none"]
    assert (reference["verdict"] == "reference").all()
    assert (reference[["difference", "low", "high"]] == 0).all(axis=None)
    assert table["accuracy"].between(0, 1).all()
    assert ((table["low"] <= table["difference"]) & (table["difference"] <= table["high"])).all()


def test_normalisers_see_training_rows_only(monkeypatch):
    fits = []

    def spy(layer):
        fitted, applied = set(layer.sample[:, 0].tolist()), []
        fits.append((fitted, applied))
        return lambda rows: applied.append(set(rows[:, 0].tolist())) or rows

    monkeypatch.setitem(NORMALIZERS, "spy", spy)
    x, y = planted(60, 4)
    probe(x, y, normalizations=["spy"], **QUICK)
    # In each of three folds the outer 40 of 60 rows, and three times two thirds of those.
    assert len(fits) == 12
    assert sum(len(fitted) == 40 for fitted, _ in fits) == 3
    for fitted, (train, test) in fits:
        assert train == fitted
        assert not test & fitted


def test_identical_arms_do_not_differ(monkeypatch):
    monkeypatch.setitem(NORMALIZERS, "again", NORMALIZERS["none"])
    x, y = planted(80, 6, classes=3)
    table = probe(x, y, normalizations=["again"], folds=4, repeats=2, steps=30).table
    again = table[table["normalization"] == "again"]
    assert (again[["difference", "low", "high"]] == 0).all(axis=None)
    assert (again["verdict"] == "harmless").all()


def test_same_seed_same_table():
    x, y = planted(60, 5)
    first, second, other = (probe(x, y, normalizations=["l2norm"], seed=seed, **QUICK).table for seed in (3, 3, 4))
    pd.testing.assert_frame_equal(first, second)
    assert not first.equals(other)


def test_rows_stay_as_they_are():
    x, y = planted(40, 4)
    kept = x.copy()
    probe(x, y, **QUICK)
    assert (x == kept).all()


def test_unconverged_fits_are_counted(monkeypatch):
    monkeypatch.setattr(optimum, "MOST_ITERATIONS", 2)
    x, y = planted(40, 5)
    result = probe(x, y, normalizations=["none"], **QUICK)
    assert result.fits == 3 * (3 * len(optimum.PENALTIES) + 1)
    assert 0 < result.unconverged < result.fits


def test_dead_dimensions_and_zero_rows():
    x, y = planted(60, 6)
    x[:, 2] = 7.0
    x[:5] = 0.0
    assert np.isfinite(probe(x, y, **QUICK).table["train_loss"]).all()


# -- labels ----------------------------------------------------------------------------------------------------------


def test_rare_classes_and_missing_labels_are_dropped():
    x, y = planted(50, 4)
    labels = [["no", "yes"][label] for label in y]
    labels[:3] = [None, "maybe", float("nan")]
    result = probe(x, labels, normalizations=["none"], **QUICK)
    assert (result.n, result.dropped, result.n_classes) == (47, 3, 2)
    shares = pd.Series(labels[3:]).value_counts(normalize=True)
    assert result.majority == pytest.approx(shares.max())


def test_numbers_of_classes():
    labels = ["b"] * 5 + ["a"] * 6 + ["c"] * 4 + [None]
    assert probe_labels(labels).tolist() == [0] * 5 + [1] * 6 + [-1] * 5
    assert probe_labels(np.repeat([0.0, 1.0], 5)).tolist() == [0] * 5 + [1] * 5
    assert probe_labels([-1, 1] * 5).tolist() == [0, 1] * 5
    assert probe_labels([True, False] * 5).tolist() == [0, 1] * 5


@pytest.mark.parametrize(("folds", "least"), [(2, 6), (3, 5), (4, 4), (5, 5), (10, 10)])
def test_every_inner_fold_has_every_class(folds, least):
    assert probe_labels([0] * 50 + [1] * least, folds).max() == 1
    with pytest.raises(DataError, match=rf"1 of 2 classes have at least {least} rows"):
        probe_labels([0] * 50 + [1] * (least - 1), folds)
    y = np.array([0] * 50 + [1] * least)
    for train, _ in StratifiedKFold(folds, shuffle=True, random_state=0).split(y, y):
        assert np.bincount(y[train]).min() >= module.INNER_FOLDS


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (None, "no labels"),
        ([], "no labels"),
        ([None] * 9, "no labels"),
        ([-1] * 9, "no labels"),
        (["-1"] * 9, "no labels"),
        ([0.5, 1.0, 3.8] * 9, r"numbers such as 0\.5.*classification"),
        (["a"] * 9, "every label is a: .* at least 2 classes"),
        (["a"] * 9 + ["b"], "1 of 2 classes have at least 5 rows"),
        (list(range(60)), "0 of 60 classes have at least 5 rows"),
        (list(range(60)) * 5, "60 classes: .* at most 50"),
        ([[1], [2]] * 9, "one label a row, got list"),
        (np.ones((9, 2)), "one label a row, got ndarray"),
    ],
)
def test_labels_that_are_no_classes(labels, message):
    with pytest.raises(DataError, match=message) as error:
        probe_labels(labels)
    assert "\n" not in str(error.value)


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"normalizations": ["standardise"]}, "did you mean 'standardize'"),
        ({"folds": 1}, "folds must be a whole number from 2 on, got 1"),
        ({"repeats": 0}, "repeats must be"),
        ({"steps": 2.5}, "steps must be"),
        ({"seed": -1}, "seed must be"),
    ],
)
def test_options(options, message):
    x, y = planted(40, 4)
    with pytest.raises(OptionError, match=message):
        probe(x, y, **options)


def test_rows_that_cannot_be_probed():
    x, y = planted(40, 4)
    with pytest.raises(DataError, match="40 rows, but 39 labels"):
        probe(x, y[1:])
    with pytest.raises(DataError, match="matrix of numbers"):
        probe(x[0], y)
    with pytest.raises(DataError, match="same vector"):
        probe(np.ones((40, 4)), y)
    x[7, 2] = np.nan
    with pytest.raises(DataError, match="row 7, dimension 2"):
        probe(x, y)
