"""Tasks: rows, labels, halves, majorities; metrics where scikit-learn and SciPy do not define them."""

from __future__ import annotations

import numpy as np
import pytest

from cls_analysis.errors import DataError, OptionError
from cls_analysis.tasks import load_task
from cls_analysis.tasks.metrics import score
from cls_analysis.tasks.splits import deal


def write(path, rows, header="text,label"):
    path.write_text("\n".join([header, *rows]) + "\n")
    return str(path)


@pytest.fixture
def train(tmp_path):
    return write(tmp_path / "train.csv", [f"text {i},{'ab'[i % 3 == 0]}" for i in range(30)])


@pytest.mark.parametrize(
    ("metric", "truth", "predicted", "expected"),
    [
        # hardcases 23 and 24
        ("f1", [1, 0, 1, 1], [0, 0, 0, 0], 0.0),
        ("f1", [0, 0, 0], [0, 0, 0], np.nan),
        ("f1", [1, 0, 1, 0], [1, 1, 1, 1], 2 / 3),
        ("mcc", [1, 0, 1, 1], [0, 0, 0, 0], 0.0),
        ("mcc", [0, 0, 0], [0, 0, 0], np.nan),
        ("mcc", [1, 0, 1, 0], [1, 1, 1, 1], 0.0),
        ("pearson", [1, 2, 3, 4], [1, 1, 1, 1], np.nan),
        ("spearman", [1, 2, 3, 4], [1, 1, 1, 1], np.nan),
        ("spearman", [1, 2, 3, 4], [1, 10, 100, 90], 0.8),
        ("pearson", [1, 2, 3], [2, 4, 6], 1.0),
        ("accuracy", [0, 1, 2, 2], [0, 1, 2, 1], 0.75),
        ("macro_f1", [0, 0, 1, 1], [0, 0, 0, 0], (2 / 3 + 0) / 2),
        ("accuracy", [], [], np.nan),
    ],
)
def test_scores(metric, truth, predicted, expected):
    assert score(metric, np.array(truth), np.array(predicted)) == pytest.approx(expected, nan_ok=True)


@pytest.mark.parametrize(
    ("counts", "constant", "accuracy", "f1"),
    [((146, 131), 0, 0.527076, 0.0), ((322, 721), 1, 0.691275, None), ((129, 279), 1, 0.683824, 0.812227)],
)
def test_all_predictions_alike(counts, constant, accuracy, f1):
    # hardcase 11: RTE, CoLA, MRPC
    truth = np.repeat([0, 1], counts)
    predicted = np.full(len(truth), constant)
    assert score("accuracy", truth, predicted) == pytest.approx(accuracy, abs=1e-6)
    assert score("mcc", truth, predicted) == 0
    if f1 is not None:
        assert score("f1", truth, predicted) == pytest.approx(f1, abs=1e-6)


def test_halves_are_stratified_and_fixed():
    target = np.repeat([0, 1, 2], [41, 30, 9])
    parts = deal(target, (1, 2))
    assert np.array_equal(parts, deal(target, (1, 2)))
    for number in range(3):
        of_class = parts[target == number]
        assert abs(int((of_class == 1).sum()) - int((of_class == 2).sum())) <= 2
    values = np.random.default_rng(0).standard_normal(1000)
    halves = deal(values, (1, 2))
    assert abs(values[halves == 1].mean() - values[halves == 2].mean()) < 0.02


def test_a_task_without_development_rows_is_split_60_20_20():
    task = load_task("sample:sentiment")
    n = len(task.train) + len(task.dev)
    assert n == 334  # rows of the bundled sample
    assert len(task.train) == pytest.approx(0.6 * n, abs=2)
    assert task.report.sum() == pytest.approx(0.2 * n, abs=2)
    assert not set(task.train.row_id) & set(task.dev.row_id)
    assert set(task.train.row_id) | set(task.dev.row_id) == set(range(n))


def test_training_and_development_files(train, tmp_path):
    dev = write(tmp_path / "dev.csv", ["x,b", "y,a", "z,a", "w,b"])
    task = load_task(f"{train},{dev}", metric="accuracy")
    assert task.classes == ("a", "b")
    assert task.dev_target.tolist() == [1, 0, 0, 1]
    assert len(task.train) == 30


def test_classes_come_from_the_training_rows_alone(train, tmp_path):
    dev = write(tmp_path / "dev.csv", ["x,b", "y,c", "z,a"])
    with pytest.raises(DataError, match=r"row 1: label 'c' is none of the training rows' \(a, b\)"):
        load_task(f"{train},{dev}", metric="accuracy")


def test_a_file_needs_a_metric(train):
    with pytest.raises(OptionError, match="give --metric"):
        load_task(train)
    with pytest.raises(OptionError, match="unknown metric 'bleu'"):
        load_task(train, metric="bleu")


def test_values(tmp_path):
    rows = [f"text {i},{i / 10}" for i in range(20)]
    task = load_task(write(tmp_path / "v.csv", rows), metric="spearman")
    assert task.classes is None
    assert task.num_labels == 1
    assert task.train_target.dtype == np.float64
    with pytest.raises(DataError, match="no class"):
        load_task(write(tmp_path / "v.csv", rows), metric="accuracy")
    with pytest.raises(DataError, match="row 3: 'high' is no number"):
        load_task(write(tmp_path / "w.csv", [*rows[:3], "t,high", *rows[3:]]), metric="pearson")


def test_f1_is_of_two_classes():
    with pytest.raises(OptionError, match="macro_f1 averages"):
        load_task("sample:questions", metric="f1")


def test_limit_samples_training_rows_alone(train, tmp_path):
    dev = write(tmp_path / "dev.csv", ["x,b", "y,a", "z,a", "w,b"])
    whole, part = (load_task(f"{train},{dev}", metric="accuracy", limit=limit) for limit in (None, 12))
    assert len(part.train) == len(part.train_target) == 12
    assert len(part.dev) == 4
    labels = dict(zip(whole.train.row_id.tolist(), whole.train_target.tolist(), strict=True))
    assert [labels[i] for i in part.train.row_id] == part.train_target.tolist()
    assert part.identity() != whole.identity()


def test_degenerate(train, tmp_path):
    dev = write(tmp_path / "dev.csv", [f"t{i},{'ab'[i % 4 == 0]}" for i in range(16)])
    task = load_task(f"{train},{dev}", metric="mcc")
    constant = np.zeros(16, dtype=np.int64)
    assert task.degenerate(constant)
    assert task.scores(constant, "mcc")[1] == 0
    assert not task.degenerate(task.dev_target)
    assert task.majority("accuracy") == pytest.approx((task.dev_target[task.report] == 0).mean())
    # Two classes are named, but no better than the majority.
    worse = np.where(np.arange(16) == np.flatnonzero(task.report & (task.dev_target == 0))[0], 1, 0)
    assert task.degenerate(worse)


def test_glue_and_trec(glue_dir, trec_dir):
    task = load_task("glue/CoLA", data_dir=glue_dir)
    assert (len(task.train), len(task.dev), task.metrics) == (8551, 1043, ("mcc", "accuracy"))
    assert task.classes == ("unacceptable", "acceptable")
    assert np.bincount(task.dev_target).tolist() == [322, 721]
    assert np.bincount(task.dev_target[task.report]).tolist() in ([161, 360], [161, 361])
    assert load_task("glue/stsb", data_dir=glue_dir).classes is None
    trec = load_task(f"trec:{trec_dir}")
    assert trec.name == "trec"
    assert len(trec.classes) == 6
