"""``finetune`` and ``fold`` as a user runs them: what is printed where, exit codes, one-line errors."""

from __future__ import annotations

import csv

import pytest
from test_commands import run, run_process


@pytest.fixture
def letters(tmp_path):
    rows = [f"{'ab'[i % 2]} {'cdefgh'[i % 6]},{'no' if i % 2 else 'yes'}" for i in range(40)]
    (tmp_path / "letters.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return tmp_path


def test_the_example_of_the_readme(tmp_path):
    done = run(
        *("finetune", "embedded", "sample:questions", "--norms", "none,batchnorm,standardize", "--seeds", 3),
        *("--head", "linear", "--train", "head", "--out", "study"),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "| batchnorm" in done.stdout
    assert "3 seeds cannot reach p < 0.05" in done.stdout
    assert "sample:questions: 198 rows to train, 66 to select, 66 to report" in done.stderr
    for name in ("runs.csv", "outcomes.csv", "outcomes.md", "figures/outcomes.png", "figures/training.png"):
        assert (tmp_path / "study" / name).stat().st_size > 0
    with (tmp_path / "study" / "runs.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 4 * 3 * 2
    assert {row["norm"] for row in rows} == {"none", "batchnorm", "standardize"}
    # Well above chance of six classes at the chosen rate.
    best = max(float(row["score_report"]) for row in rows if row["metric"] == "accuracy")
    assert best > 0.35
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "study" / "runs").rglob("*")}
    again = run(
        *("finetune", "embedded", "sample:questions", "--norms", "none,batchnorm,standardize", "--seeds", 3),
        *("--head", "linear", "--train", "head", "--out", "study"),
        cwd=tmp_path,
    )
    assert again.stdout == done.stdout
    assert "to do" not in again.stderr
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "study" / "runs").rglob("*")} == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["letters.csv"], "give --metric: accuracy, f1"),
        (["letters.csv", "--metric", "accuracy", "--learning-rates", "fast"], "--learning-rates takes numbers"),
        (["letters.csv", "--metric", "accuracy", "--norms", "batchnorm(size=3)"], "unknown option of batchnorm 'size'"),
        (["letters.csv", "--metric", "accuracy", "--clip", "none"], "--clip takes a positive gradient norm or off"),
        (["nowhere.csv", "--metric", "accuracy"], "nowhere.csv"),
        (["letters.csv", "letters.csv", "--metric", "accuracy"], "two tasks are called 'letters'"),
        (["ud:train.conllu"], "train.conllu: cannot be read"),
        ([], "give a MODEL and at least one TASK"),
    ],
)
def test_one_line_and_exit_code_2(letters, arguments, message):
    done = run("finetune", "embedded", *arguments, "--out", "study", cwd=letters)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not (letters / "study").exists()


def test_a_grid_file_on_the_command_line(letters, tiny_folder):
    (letters / "grid.toml").write_text(
        f'model = "{tiny_folder("bert")}"\ntasks = ["letters.csv"]\nmetric = "accuracy"\nhead = "linear"\n'
        'train = "head"\n'
        'norms = ["none", "l2norm"]\nlearning_rates = [0.1]\nseeds = 2\nepochs = 1\n'
    )
    done = run("finetune", "--grid", "grid.toml", "--seeds", 3, "--jobs", 1, "--out", "study", cwd=letters)
    assert done.returncode == 0, done.stderr
    assert "accuracy, 3 seeds" in done.stdout


def test_two_processes_do_not_share_a_folder(letters, tiny_folder):
    from cls_analysis.files import locked

    with locked(letters / "study"):
        done = run(
            *("finetune", tiny_folder("bert"), "letters.csv", "--metric", "accuracy", "--seeds", 1, "--out", "study"),
            cwd=letters,
        )
    assert done.returncode == 2
    assert "another process is writing here" in done.stderr


def test_fold_says_what_is_wrong(tmp_path, tiny_folder):
    for folder, message in ((tmp_path / "nothing", "no config.json"), (tiny_folder("bert"), "weights are missing")):
        done = run("fold", folder, "out", cwd=tmp_path)
        assert done.returncode == 2
        assert message in done.stderr
    assert not (tmp_path / "out").exists()


def test_help_starts_without_torch(tmp_path):
    code = "import sys; from cls_analysis.cli.app import main; sys.argv = ['cls-analysis', 'finetune', '--help']\n"
    code += "try:\n    main()\nexcept SystemExit:\n    pass\nassert 'torch' not in sys.modules\n"
    import subprocess
    import sys

    assert subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, check=False).returncode == 0
    assert run_process("fold", "--help", cwd=tmp_path).returncode == 0
