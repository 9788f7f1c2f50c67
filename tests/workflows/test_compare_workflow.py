"""``compare``: files, controls, names that repeat, and the picture."""

from __future__ import annotations

import pandas as pd
import pytest
import tiny
from typer.testing import CliRunner

from cls_analysis.cli.app import app
from cls_analysis.comparison.layers import COLUMNS, MEASURES
from cls_analysis.errors import DataError, OptionError
from cls_analysis.plotting.similarity import draw_similarity
from cls_analysis.workflows.comparing import compare_encoders, summary


@pytest.fixture
def data(tmp_path):
    for name, seed in (("one", 0), ("two", 1)):
        (tmp_path / f"{name}.txt").write_text("\n".join(tiny.words(*[3, 4, 5, 6] * 5, seed=seed)) + "\n")
    return [str(tmp_path / "one.txt"), str(tmp_path / "two.txt")]


def test_a_model_with_itself_and_a_random_one(tiny_folder, data, tmp_path):
    folder = str(tiny_folder("bert"))
    done = compare_encoders(folder, [folder], data, tmp_path / "out", subsamples=5)
    table = done.similarity
    assert tuple(table.columns) == COLUMNS
    layers = {"cls": tiny.LAYERS, "tokens": tiny.LAYERS + 1}
    assert len(table) == 2 * 2 * sum(layers.values()) * len(MEASURES)
    names = table["tuned"].unique().tolist()
    assert names[0] == f"{table['base'][0]} #2"
    assert names[1] == "random (0)"
    itself = table[table["tuned"] == names[0]]
    expected = (itself["measure"] != "procrustes").astype(float)
    assert (itself["value"] - expected).abs().max() < 1e-6
    random = table[(table["tuned"] == names[1]) & (table["measure"] == "rsa_pearson")]
    assert random["value"].max() < 0.9
    distances = done.distances.set_index(["tuned", "block"])["distance"]
    assert distances[names[0], "all"] == 0.0
    assert distances[names[1], "all"] > 0.5
    assert all(path.is_file() and path.stat().st_size for path in done.files)
    assert pd.read_csv(tmp_path / "out" / "similarity.csv").shape == table.shape
    lines = summary(done).splitlines()
    assert lines[0].split() == ["tuned", "dataset", "stimuli", "measure", *map(str, range(tiny.LAYERS + 1))]
    assert len(lines) == 1 + 2 * 2 * 2 * 4


def test_a_stored_choice_of_words_is_the_same_for_all(tiny_folder, data, tmp_path):
    folder = str(tiny_folder("bert"))
    for name in "ab":
        compare_encoders(folder, [folder], data[:1], tmp_path / name, subsamples=0, control=False)
    first, second = ((tmp_path / name / "stimuli" / "one.json").read_bytes() for name in "ab")
    assert first == second


def test_the_command(tiny_folder, data, tmp_path):
    folder = str(tiny_folder("bert"))
    options = ["--stimuli", "cls", "--subsamples", "0", "--no-control", "--out", str(tmp_path / "out")]
    result = CliRunner().invoke(app, ["compare", folder, folder, "--data", data[0], *options])
    assert result.exit_code == 0, result.output
    assert "cka" in result.stdout
    table = pd.read_csv(tmp_path / "out" / "similarity.csv")
    assert set(table["stimuli"]) == {"cls"}
    assert table["ci_low"].isna().all()


def test_what_cannot_be_compared(tiny_folder, data, tmp_path):
    with pytest.raises(OptionError, match="unknown stimuli 'words'; expected cls or tokens"):
        compare_encoders("x", ["y"], data, tmp_path / "out", stimuli=["words"])
    result = CliRunner().invoke(
        app, ["compare", str(tiny_folder("bert")), str(tiny_folder("xlnet")), "--data", data[0], "--out", "o"]
    )
    assert result.exit_code == 2
    assert "cannot be compared" in result.stderr
    assert not (tmp_path / "o").exists()


def test_data_sets_of_one_name_and_texts_that_are_all_the_same(tiny_folder, data, tmp_path):
    with pytest.raises(OptionError, match="two data sets are called 'one'"):
        compare_encoders("x", ["y"], [data[0], data[0]], tmp_path / "out")
    folder, same = str(tiny_folder("bert")), tmp_path / "same.txt"
    same.write_text("a b c\n" * 12)
    with pytest.raises(DataError, match="nothing to compare: at every layer all vectors are the same"):
        compare_encoders(folder, [folder], [str(same)], tmp_path / "out", stimuli=["cls"], subsamples=0)
    assert not (tmp_path / "out" / "similarity.csv").exists()


def test_the_picture_names_what_it_shows():
    rows = [
        ("base", tuned, data, which, layer, measure, 0.9 - 0.1 * layer, 0.8 - 0.1 * layer, 0.95, 0.0, 100)
        for tuned in ("a", "b")
        for data in ("d1", "d2")
        for which in ("cls", "tokens")
        for layer in (1, 2, 3)
        for measure in MEASURES
    ]
    table = pd.DataFrame(rows, columns=list(COLUMNS))
    figure = draw_similarity(table, "base and what it became")
    assert [ax.get_title() for ax in figure.axes[:2]] == ["[CLS]", "words"]
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    assert labels == ["a, d1", "a, d2", "b, d1", "b, d2"]
    line = figure.axes[0].lines[0]
    assert line.get_ydata().tolist() == pytest.approx([0.8, 0.7, 0.6])
    one = draw_similarity(table[table["dataset"] == "d1"], "x")
    assert [text.get_text() for text in one.legends[0].get_texts()] == ["a", "b"]
