"""The commands as a user runs them: exit codes, streams and files."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

import cls_analysis as ca
from cls_analysis.cli.app import app


@dataclass
class Result:
    """What a command left behind."""

    returncode: int
    stdout: str
    stderr: str


def run(*arguments: object, cwd: Path, stdin: str = "") -> Result:
    """Run a command in this process (loading torch anew for each would take minutes)."""
    out, err = io.StringIO(), io.StringIO()
    lines = io.TextIOWrapper(io.BytesIO(stdin.encode()))
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "stdin", lines),
        pytest.raises(SystemExit) as ended,
    ):
        app([str(argument) for argument in arguments])
    return Result(int(ended.value.code or 0), out.getvalue(), err.getvalue())


def run_process(*arguments: object, cwd: Path, stdin: str = "", **environment: str) -> Result:
    """Run a command in a process of its own, as from a shell."""
    done = subprocess.run(
        [sys.executable, "-m", "cls_analysis", *map(str, arguments)],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "default", **environment},
        check=False,
    )
    return Result(done.returncode, done.stdout, done.stderr)


def one_error_line(result: Result) -> str:
    """The only line on standard error; nothing on standard output; exit code 2."""
    assert result.returncode == 2, result.stderr
    assert result.stdout == ""
    lines = result.stderr.splitlines()
    assert len(lines) == 1, result.stderr
    return lines[0]


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory) -> Path:
    """A RUN of two samples."""
    folder = tmp_path_factory.mktemp("run")
    result = run(
        "extract",
        "embedded",
        "sample:questions",
        "sample:paraphrase",
        "--first",
        60,
        "--out",
        folder / "run",
        cwd=folder,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == ""
    return folder / "run"


def write_csv(path: Path, rows: list[tuple[str, str]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("text", "label"), *rows])
    return path


# -- extract ---------------------------------------------------------------------------------------------------------


def test_extract_names_its_files_after_encoder_and_dataset(run_folder):
    names = sorted(str(path.relative_to(run_folder)) for path in run_folder.rglob("*.safetensors"))
    assert names == ["embedded/sample-paraphrase.safetensors", "embedded/sample-questions.safetensors"]
    assert ca.Profile.load(run_folder / "embedded" / "sample-questions.safetensors").n == 60


def test_extract_records_times_and_machine_apart_from_the_profile(run_folder):
    record = json.loads((run_folder / "embedded" / "sample-questions.run.json").read_text())
    assert record["extraction"]["rows"] == 60
    assert record["extraction"]["seconds"] > 0
    assert {"platform", "python", "device"} <= set(record["machine"])


def test_extract_again_does_nothing_and_other_settings_are_refused(run_folder):
    command = ("extract", "embedded", "sample:questions", "--out", run_folder, "--first")
    profile = run_folder / "embedded" / "sample-questions.safetensors"
    before = profile.read_bytes(), profile.stat().st_mtime_ns
    again = run(*command, 60, cwd=run_folder)
    assert again.returncode == 0
    assert "there already" in again.stderr
    assert (profile.read_bytes(), profile.stat().st_mtime_ns) == before
    line = one_error_line(run(*command, 50, cwd=run_folder))
    assert "selection of rows" in line
    assert "--overwrite" in line
    assert profile.read_bytes() == before[0]


def test_extract_overwrite_gives_the_same_bytes(run_folder):
    profile = run_folder / "embedded" / "sample-questions.safetensors"
    before = profile.read_bytes()
    result = run(
        "extract", "embedded", "sample:questions", "--first", 60, "--out", run_folder, "--overwrite", cwd=run_folder
    )
    assert result.returncode == 0, result.stderr
    assert profile.read_bytes() == before


def test_two_data_sets_of_one_name_get_six_characters_of_their_hash(tmp_path):
    for folder, text in (("a", "one text"), ("b", "another text")):
        (tmp_path / folder).mkdir()
        write_csv(tmp_path / folder / "data.csv", [(text, "1"), (text + " more", "0")])
    result = run("extract", "embedded", "a/data.csv", "b/data.csv", "--out", "run", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    hashes = {ca.load_texts(tmp_path / folder / "data.csv").hash[:6] for folder in "ab"}
    assert {path.stem for path in (tmp_path / "run" / "embedded").glob("*.safetensors")} == {
        f"data-{h}" for h in hashes
    }


def test_case_46_an_unknown_model_offline_is_one_line_in_seconds(tmp_path):
    write_csv(tmp_path / "data.csv", [("a text", "1")])
    start = time.monotonic()
    line = one_error_line(
        run_process("extract", "no/such-model", "data.csv", "--out", "run", cwd=tmp_path, HF_HUB_OFFLINE="1")
    )
    assert "no/such-model" in line
    assert "cache" in line
    # Not a timing: with retries it would take minutes.
    assert time.monotonic() - start < 60
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("missing.csv",), "missing.csv: no such file"),
        (("data.csv", "--text-column", "body"), "no column 'body'"),
        (("data.csv", "--layers", "9"), "layers 0 to 6"),
        (("data.csv", "--layers", "last"), "--layers"),
        (("data.csv", "--source", "clss"), "did you mean 'cls'"),
        (("data.csv", "--dtype", "float8"), "unknown dtype"),
        (("data.csv", "--device", "nonsense"), "device 'nonsense'"),
        (("data.csv", "--shard", "2/2"), "shard 2/2"),
        (("data.csv", "--shard", "half"), "--shard takes i/n"),
        (("data.csv", "--limit", "2", "--first", "2"), "not both"),
        (("data.csv", "--max-length", "9999"), "512 positions"),
        (("data.csv", "--on-missing", "skip"), "on_missing"),
        (("glue/cola@dev", "--data-dir", "nowhere"), "no such folder"),
        (("sample:sentimental",), "did you mean 'sentiment'"),
    ],
)
def test_what_cannot_be_done_is_one_line(tmp_path, arguments, part):
    write_csv(tmp_path / "data.csv", [("a text", "1"), ("another", "0")])
    line = one_error_line(run("extract", "embedded", *arguments, "--out", "run", cwd=tmp_path))
    assert part in line
    assert not list(tmp_path.rglob("*.safetensors"))


def test_case_06_an_empty_cell_names_its_row_before_the_model_loads(tmp_path):
    write_csv(tmp_path / "data.csv", [("" if row == 17 else f"text {row}", "1") for row in range(30)])
    raw = (tmp_path / "data.csv").read_text().replace('"",1', ",1")
    (tmp_path / "data.csv").write_text(raw)
    # The model does not exist: were it loaded first, that would be the error.
    line = one_error_line(run("extract", "no/such-model", "data.csv", "--out", "run", cwd=tmp_path))
    assert "row 17" in line


def test_standard_input_to_strict_json(tmp_path):
    extracted = run_process("extract", "embedded", "-", "--out", "run", cwd=tmp_path, stdin="a text\nanother\n")
    assert (extracted.returncode, extracted.stdout) == (0, "")
    result = run_process("stats", "run", "--format", "json", cwd=tmp_path)
    assert (result.returncode, result.stderr) == (0, "")

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    document = json.loads(result.stdout, parse_constant=refuse)
    assert document["schema_version"] == 1
    assert [row["layer"] for row in document["rows"]] == list(range(7))
    assert {row["n"] for row in document["rows"]} == {2}
    assert document["rows"][0]["average_cosine"] is None
    assert document["undefined"]["average_cosine"] == 1


def test_shards_merge_to_the_whole(tmp_path):
    texts = [f"row {row}" for row in range(4_100)]
    (tmp_path / "many.txt").write_text("\n".join(texts) + "\n")
    options = ("--layers", "-1", "--max-length", "6", "--out")
    assert run("extract", "embedded", "many.txt", *options, "whole", cwd=tmp_path).returncode == 0
    for shard in ("0/2", "1/2"):
        result = run("extract", "embedded", "many.txt", "--shard", shard, *options, "parts", cwd=tmp_path)
        assert result.returncode == 0, result.stderr
    line = one_error_line(run("stats", "parts", cwd=tmp_path))
    assert "merge" in line
    shards = sorted((tmp_path / "parts").rglob("*.safetensors"))
    merged = run("merge", *shards, "--out", "joined.safetensors", cwd=tmp_path)
    assert merged.returncode == 0, merged.stderr
    whole = ca.Profile.load(tmp_path / "whole" / "embedded" / "many.safetensors")
    joined = ca.Profile.load(tmp_path / "joined.safetensors")
    assert (joined.n, joined.provenance.parts) == (whole.n, whole.provenance.parts)
    assert abs(joined[-1].moments.covariance - whole[-1].moments.covariance).max() < 1e-10
    assert (joined[-1].sample == whole[-1].sample).all()
    assert "hold rows" in one_error_line(run("merge", shards[0], shards[0], "--out", "x.safetensors", cwd=tmp_path))


# -- stats and figures -----------------------------------------------------------------------------------------------


def test_stats_tells_profiles_apart(run_folder):
    result = run("stats", run_folder, "--format", "csv", "--layer", "-1", cwd=run_folder)
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert [row["dataset"] for row in rows] == ["sample:paraphrase (first 60)", "sample:questions (first 60)"]
    assert {row["encoder"] for row in rows} == {"embedded"}


def test_stats_by_dimension(run_folder):
    profile = run_folder / "embedded" / "sample-questions.safetensors"
    result = run("stats", profile, "--by", "dimension", "--layer", 6, "--format", "csv", cwd=run_folder)
    rows = list(csv.DictReader(result.stdout.splitlines()))
    assert len(rows) == 384
    assert max(rows, key=lambda row: float(row["energy_share"]))["dimension"] == "99"


def test_stats_as_text_is_plain(run_folder):
    result = run("stats", run_folder, cwd=run_folder)
    assert result.returncode == 0
    assert "\x1b" not in result.stdout
    assert "embedded on sample:questions (first 60): n = 60" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("--by", "row"), "--by"),
        (("--format", "yaml"), "unknown format"),
        (("--layer", "7"), "layer 7"),
    ],
)
def test_stats_refuses_unknown_values(run_folder, arguments, part):
    assert part in one_error_line(run("stats", run_folder, *arguments, cwd=run_folder))


def test_stats_of_what_is_no_profile(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.safetensors").write_text("not tensors")
    assert "no Profile here" in one_error_line(run("stats", "empty", cwd=tmp_path))
    assert "nowhere" in one_error_line(run("stats", "nowhere", cwd=tmp_path))
    assert "not a safetensors file" in one_error_line(run("stats", "text.safetensors", cwd=tmp_path))


def test_figures_writes_pictures_and_numbers(run_folder, tmp_path):
    result = run("figures", run_folder, "--out", "out", "--only", "mean,layers", "--format", "svg", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "layers.csv",
        "layers.svg",
        "mean.csv",
        "mean.svg",
        "provenance.json",
    ]
    assert "did you mean 'kurtosis'" in one_error_line(
        run("figures", run_folder, "--out", "out", "--only", "kurtoses", cwd=tmp_path)
    )


# -- the process -----------------------------------------------------------------------------------------------------


def test_help_and_version(tmp_path):
    shown = run("--help", cwd=tmp_path)
    assert shown.returncode == 0
    assert all(command in shown.stdout for command in ("demo", "extract", "merge", "stats", "figures"))
    assert run("--version", cwd=tmp_path).stdout.strip() == f"cls-analysis {ca.__version__}"
    assert run("extracts", cwd=tmp_path).returncode == 2
    assert run("extract", "embedded", cwd=tmp_path).returncode == 2


@pytest.mark.parametrize("arguments", [["--help"], ["stats", "PROFILE"], ["figures", "PROFILE", "--out", "OUT"]])
def test_starts_without_torch(run_folder, tmp_path, arguments):
    profile = run_folder / "embedded" / "sample-questions.safetensors"
    given = [{"PROFILE": str(profile), "OUT": str(tmp_path)}.get(word, word) for word in arguments]
    code = (
        "import sys\n"
        "from cls_analysis.cli.app import app\n"
        f"try: app({given!r})\n"
        "except SystemExit as exit: assert not exit.code, exit.code\n"
        "loaded = {'torch', 'transformers'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_closed_pipe_ends_quietly(run_folder):
    command = f"{sys.executable} -m cls_analysis stats {run_folder} --by dimension --format csv | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, cwd=run_folder, check=False
    )
    assert done.stdout.startswith("encoder,dataset,layer,dimension")
    assert done.stderr == ""
    assert done.returncode == 0


def test_debug_shows_the_traceback(tmp_path):
    result = run("--debug", "stats", "nowhere", cwd=tmp_path)
    assert result.returncode == 2
    assert "Traceback" in result.stderr


def test_an_internal_error_is_one_line_with_its_log(tmp_path):
    code = (
        "import cls_analysis.workflows.runs as runs\n"
        "def broken(targets): raise RuntimeError('a bug\\nof two lines')\n"
        "runs.load_profiles = broken\n"
        "from cls_analysis.cli.app import app\n"
        "app(['stats', 'x'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 3
    (line,) = done.stderr.splitlines()
    log = Path(line.rpartition("log: ")[2].rstrip(")"))
    assert "RuntimeError: a bug" in log.read_text()
    log.unlink()


def test_an_interrupt_ends_with_130(tmp_path):
    code = (
        "import cls_analysis.workflows.runs as runs\n"
        "def interrupted(targets): raise KeyboardInterrupt\n"
        "runs.load_profiles = interrupted\n"
        "from cls_analysis.cli.app import app\n"
        "app(['stats', 'x'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
