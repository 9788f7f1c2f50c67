"""``diagnose`` as a user runs it: targets, formats, exit codes, limits, labels."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import scipy.linalg
import tiny
from jsonschema import Draft202012Validator
from test_commands import one_error_line, run, write_csv

import cls_analysis as ca
from cls_analysis.checkpoints import find_checkpoint
from cls_analysis.cli.app import app
from cls_analysis.diagnosis.effects.probe import probe
from cls_analysis.diagnosis.rules import catalogue
from cls_analysis.files import bundled
from cls_analysis.workflows.diagnosing import resolve_format

N, D = 128, 8
#: Means of 0, variances of 1 and no correlations, exactly.
CLEAN = scipy.linalg.hadamard(N)[:, 1 : D + 1].astype(np.float64)
MEAN = CLEAN + 8.0 * (np.arange(D) == 3)
SCALE = CLEAN * np.where(np.arange(D) == 5, 6.0, 1.0)
#: A mean of an eighth of the length: a warning, nothing severe.
MILD = CLEAN + 0.378


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """A folder of matrices, and a RUN of their Profiles."""
    folder = tmp_path_factory.mktemp("vectors")
    for name, x in {"clean": CLEAN, "mean": MEAN, "scale": SCALE, "mild": MILD}.items():
        np.save(folder / f"{name}.npy", x)
    for name in ("clean", "mean", "scale"):
        ca.profile_matrix(folder / f"{name}.npy").save(folder / "run" / f"{name}.safetensors")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A folder with a tiny network beside texts with and without labels, and its Profile on both."""
    folder = tmp_path_factory.mktemp("model")
    texts = tiny.words(*[5, 9, 3, 12] * 15)
    write_csv(folder / "labelled.csv", [(text, str(row % 2)) for row, text in enumerate(texts)])
    write_csv(folder / "others.csv", [(text, str(row % 2)) for row, text in enumerate(tiny.words(*[4] * 60, seed=1))])
    (folder / "plain.txt").write_text("\n".join(texts) + "\n")
    (folder / "short.txt").write_text("\n".join(tiny.words(*[2] * 60, seed=2)) + "\n")
    tiny.make_folder("bert", folder / "bert")
    encoder = ca.Encoder.from_pretrained(folder / "bert", device="cpu")
    ca.compute_profile(encoder, folder / "labelled.csv").save(folder / "labelled.safetensors")
    return folder


def diagnosed(*arguments, cwd) -> str:
    """What a command prints that ends well and has nothing to complain of."""
    result = run("diagnose", *arguments, cwd=cwd)
    assert result.returncode == 0, result.stderr
    assert "error" not in result.stderr
    return result.stdout


def document_of(*arguments, cwd) -> dict:
    """The JSON of a command, strict and as its schema says."""

    def refuse(token):
        raise AssertionError(f"{token} is not JSON")

    document = json.loads(diagnosed(*arguments, "--format", "json", cwd=cwd), parse_constant=refuse)
    Draft202012Validator(json.loads(bundled("diagnosis.schema.json").read_text())).validate(document)
    return document


# -- formats ---------------------------------------------------------------------------------------------------------


def test_text(vectors):
    text = diagnosed("vectors:mean.npy", cwd=vectors)
    first, second = text.splitlines()[:2]
    assert first == "mean.npy: n = 128, d = 8, given vectors, float64"
    assert second.startswith("the vectors: mean severe, led by dimension 3")
    for part in ("CLS101 common-mean [dimension 3]", "RMS cosine", "without 3", "Outlier dimensions by definition"):
        assert part in text


def test_json(vectors):
    document = document_of("vectors:mean.npy", cwd=vectors)
    assert document["schema_version"] == 1
    (entry,) = document["profiles"]
    first = entry["findings"][0]
    assert (first["code"], first["severity"], first["dimensions"]) == ("CLS101", "severe", [3])
    assert first["value"] == pytest.approx(64 / 72)
    assert entry["recommendation"]["normalization"] == "center"
    assert document["comparison"] is None


def test_markdown(vectors):
    text = diagnosed("vectors:mean.npy", "--format", "markdown", cwd=vectors)
    assert text.startswith("## How the embedding is distributed\n")
    assert "**severe** CLS101 common-mean (dimension 3)" in text


def test_html(vectors):
    page = diagnosed("vectors:mean.npy", "--format", "html", cwd=vectors)
    assert page.startswith("<!doctype html>")
    assert page.rstrip().endswith("</html>")
    assert "CLS101 common-mean" in page
    assert "<script" not in page


@pytest.mark.parametrize(
    ("name", "begin"),
    [
        ("report.json", "{"),
        ("report.HTML", "<!doctype html>"),
        ("report.md", "## How"),
        ("report.txt", "clean.npy: n = 128"),
        ("report", "clean.npy: n = 128"),
        ("deep/report.json", "{"),
    ],
)
def test_out_infers_the_format(vectors, tmp_path, name, begin):
    result = run("diagnose", "vectors:clean.npy", "--out", tmp_path / name, cwd=vectors)
    assert (result.returncode, result.stdout) == (0, "")
    assert result.stderr.strip() == f"wrote {tmp_path / name}"
    assert (tmp_path / name).read_text(encoding="utf-8").startswith(begin)
    assert [path.name for path in (tmp_path / name).parent.iterdir()] == [(tmp_path / name).name]


@pytest.mark.parametrize(
    ("form", "out", "expected"),
    [
        (None, None, "text"),
        (None, "a.htm", "html"),
        (None, "a.json", "json"),
        (None, "a.md", "markdown"),
        (None, "a.csv", "text"),
        ("json", "a.html", "json"),
        ("markdown", None, "markdown"),
    ],
)
def test_resolve_format(form, out, expected):
    assert resolve_format(form, None if out is None else Path(out)) == expected


def test_format_wins_over_the_ending(vectors, tmp_path):
    out = tmp_path / "report.html"
    assert run("diagnose", "vectors:clean.npy", "--out", out, "--format", "json", cwd=vectors).returncode == 0
    assert json.loads(out.read_text())["schema_version"] == 1


class Terminal(io.StringIO):
    """A standard output that is a terminal."""

    def isatty(self) -> bool:
        return True


def printed_on_a_terminal(*arguments) -> str:
    screen = Terminal()
    with contextlib.redirect_stdout(screen), contextlib.redirect_stderr(io.StringIO()), pytest.raises(SystemExit):
        app(["diagnose", *map(str, arguments)])
    return screen.getvalue()


def test_colours_only_on_a_terminal(vectors, tmp_path, monkeypatch):
    monkeypatch.chdir(vectors)
    monkeypatch.delenv("NO_COLOR", raising=False)
    plain = diagnosed("vectors:mean.npy", cwd=vectors)
    assert "\x1b" not in plain
    coloured = printed_on_a_terminal("vectors:mean.npy")
    assert "\x1b[1;31msevere" in coloured
    for code in ("\x1b[1;31m", "\x1b[33m", "\x1b[36m", "\x1b[1m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain
    assert "\x1b" not in printed_on_a_terminal("vectors:mean.npy", "--format", "markdown")
    printed_on_a_terminal("vectors:mean.npy", "--out", tmp_path / "report.txt")
    assert "\x1b" not in (tmp_path / "report.txt").read_text()
    monkeypatch.setenv("NO_COLOR", "1")
    assert printed_on_a_terminal("vectors:mean.npy") == plain


# -- exit codes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "level", "code"),
    [
        ("mean", None, 0),
        ("mean", "warning", 1),
        ("mean", "severe", 1),
        ("mild", "warning", 1),
        ("mild", "severe", 0),
        ("clean", "warning", 0),
        ("clean", "severe", 0),
    ],
)
def test_fail_on(vectors, name, level, code):
    arguments = () if level is None else ("--fail-on", level)
    result = run("diagnose", f"vectors:{name}.npy", *arguments, cwd=vectors)
    assert result.returncode == code
    assert result.stdout.startswith(f"{name}.npy: ")
    assert "error" not in result.stderr


def test_fail_on_writes_the_report_first(vectors, tmp_path):
    out = tmp_path / "report.json"
    assert run("diagnose", "vectors:mean.npy", "--fail-on", "severe", "--out", out, cwd=vectors).returncode == 1
    assert json.loads(out.read_text())["profiles"][0]["worst_severity"] == "severe"


def test_fail_on_looks_at_every_target(vectors):
    targets = ("vectors:clean.npy", "vectors:mean.npy")
    assert run("diagnose", *targets, "--fail-on", "severe", cwd=vectors).returncode == 1


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (("vectors:clean.npy", "--fail-on", "note"), "unknown value of --fail-on 'note': known: warning, severe"),
        (("vectors:clean.npy", "--fail-on", "sever"), "did you mean 'severe'"),
        (("vectors:clean.npy", "--format", "yaml"), "unknown format 'yaml'"),
        (("vectors:clean.npy", "--layer", "3"), "layer 3 is not in this Profile of vectors; it holds [-1]"),
        (("vectors:clean.npy", "--limit", "5", "--first", "5"), "--limit (a sample) or --first (the beginning)"),
        (("vectors:clean.npy", "--threshold", "CLS101.warning"), "has the form CLS101.warning=0.2"),
        (("vectors:clean.npy", "--threshold", "CLS101.wrning=1"), "did you mean 'CLS101.warning'"),
        (("vectors:clean.npy", "--threshold", "CLS101.warning=a"), "expected a finite number, got 'a'"),
        (("vectors:clean.npy", "--threshold", "CLS101.severe=0.01"), "must lie above CLS101.warning = 0.1"),
        (("vectors:clean.npy", "--thresholds", "nowhere.toml"), "nowhere.toml: not a readable TOML file"),
        (("vectors:clean.npy", "--ignore", "CLS103,CLS1033"), "unknown rule 'CLS1033'"),
        (("vectors:nowhere.npy",), "nowhere.npy: no such file"),
        (("vectors:run",), "run: a folder"),
        (("vectors:clean.txt",), "clean.txt"),
        (("nowhere.safetensors",), "nowhere.safetensors: no such file"),
        (("clean.npy",), "a file of vectors is given as vectors:clean.npy"),
        (("vectors:clean.npy", "--data", "nowhere.csv"), "nowhere.csv: no such file"),
        (("vectors:clean.npy", "--out", "run"), "run: a folder; --out takes the name of a file"),
    ],
)
def test_what_cannot_be_done_is_one_line(vectors, arguments, part):
    assert part in one_error_line(run("diagnose", *arguments, cwd=vectors))


def test_usage(vectors):
    assert run("diagnose", cwd=vectors).returncode == 2
    assert run("diagnose", "vectors:clean.npy", "--layer", "last", cwd=vectors).returncode == 2


# -- vectors and Profiles --------------------------------------------------------------------------------------------


def test_csv_is_read_like_npy(vectors, tmp_path):
    header = ",".join(f"c{number}" for number in range(D))
    np.savetxt(tmp_path / "mean.csv", MEAN, delimiter=",", header=header, comments="")
    of_csv = document_of("vectors:mean.csv", cwd=tmp_path)["profiles"][0]
    of_npy = document_of("vectors:mean.npy", cwd=vectors)["profiles"][0]
    assert (of_csv["dataset"], of_npy["dataset"]) == ("mean.csv", "mean.npy")
    assert of_csv["findings"] == of_npy["findings"]


@pytest.mark.parametrize(("name", "column"), [("broken.npy", ""), ("broken.csv", " (column 'c2')")])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_named_by_row_and_column(tmp_path, name, column, value):
    x = MEAN.copy()
    x[7, 2] = value
    if name.endswith("npy"):
        np.save(tmp_path / name, x)
    else:
        header = ",".join(f"c{number}" for number in range(D))
        np.savetxt(tmp_path / name, x, delimiter=",", header=header, comments="")
    line = one_error_line(run("diagnose", f"vectors:{name}", cwd=tmp_path))
    assert f"{name}: row 7, dimension 2: " in line
    assert line.endswith(f"is not finite{column}")


def test_a_stored_profile_says_the_same_as_its_vectors(vectors):
    stored = document_of("run/mean.safetensors", cwd=vectors)["profiles"]
    assert stored == document_of("vectors:mean.npy", cwd=vectors)["profiles"]


def test_a_run_is_compared(vectors):
    document = document_of("run", cwd=vectors)
    assert [entry["name"] for entry in document["profiles"]] == ["clean.npy", "mean.npy", "scale.npy"]
    rows = {row["figure"]: row for row in document["comparison"]}
    assert rows["common_mean_share"]["worst"] == "mean.npy"
    assert rows["common_mean_share"]["mean.npy"] == pytest.approx(64 / 72)
    assert (rows["std_ratio"]["worst"], rows["std_ratio"]["scale.npy"]) == ("scale.npy", pytest.approx(6))
    assert rows["isoscore"]["worst"] == "scale.npy"
    assert all(row["comparable"] for row in rows.values())
    text = diagnosed("run", cwd=vectors)
    comparison = text[text.index("Comparison") :]
    (line,) = [line for line in comparison.splitlines() if line.strip().startswith("largest / median std")]
    assert line.split()[-3:-1] == ["6", "(worst)"]
    assert "### Comparison" in diagnosed("run", "--format", "markdown", cwd=vectors)


def test_targets_keep_their_order(vectors):
    document = document_of("vectors:scale.npy", "run/clean.safetensors", cwd=vectors)
    assert [entry["dataset"] for entry in document["profiles"]] == ["scale.npy", "clean.npy"]


def test_how_many(vectors):
    (entry,) = document_of("vectors:mean.npy", "--how-many", cwd=vectors)["profiles"]
    assert entry["sufficiency"]["sentence"].startswith("128 rows are enough for ")
    assert {row["n"] for row in entry["sufficiency"]["curve"]} == {16, 32, 64, 128}
    assert "How many rows?" in diagnosed("vectors:mean.npy", "--how-many", cwd=vectors)
    assert "How many rows?" not in diagnosed("vectors:mean.npy", cwd=vectors)


@pytest.mark.parametrize("n", [1, 20])
def test_how_many_of_few_rows(tmp_path, n):
    np.save(tmp_path / "few.npy", CLEAN[:n])
    for form in ("text", "markdown", "html"):
        diagnosed("vectors:few.npy", "--how-many", "--format", form, cwd=tmp_path)
    (entry,) = document_of("vectors:few.npy", "--how-many", cwd=tmp_path)["profiles"]
    assert entry["sufficiency"]["answers"] == []
    assert "at least 32" in entry["sufficiency"]["sentence"]


def test_one_vector_in_every_form(tmp_path):
    np.save(tmp_path / "same.npy", np.full((50, 8), 0.3))
    for form in ("text", "markdown", "html"):
        assert "CLS504 collapse" in diagnosed("vectors:same.npy", "--format", form, cwd=tmp_path)
    document = document_of("vectors:same.npy", "vectors:same.npy", cwd=tmp_path)
    assert document["profiles"][0]["figures"] == []
    assert document["profiles"][0]["recommendation"]["normalization"] == "none"


# -- limits ----------------------------------------------------------------------------------------------------------


def codes(document) -> list[str]:
    return [finding["code"] for finding in document["profiles"][0]["findings"]]


def test_thresholds_and_ignored_rules(vectors, tmp_path):
    default = codes(document_of("vectors:mean.npy", cwd=vectors))
    assert default == ["CLS101", "CLS102", "CLS103", "CLS104"]
    document = document_of(
        *("vectors:mean.npy", "--threshold", "CLS101.warning=0.9", "--threshold", "CLS101.severe=0.95"), cwd=vectors
    )
    assert codes(document) == ["CLS102", "CLS103", "CLS104"]
    assert document["limits"]["CLS101.warning"] == 0.9
    document = document_of("vectors:mean.npy", "--ignore", "CLS102,CLS104", "--ignore", "CLS103", cwd=vectors)
    assert codes(document) == ["CLS101"]
    assert document["ignored"] == ["CLS102", "CLS103", "CLS104"]


@pytest.mark.parametrize("spelling", ['"CLS103.warning" = 20', "CLS103.warning = 20"])
def test_thresholds_from_a_file(vectors, tmp_path, spelling):
    (tmp_path / "limits.toml").write_text(f'ignore = ["CLS104"]\n[thresholds]\n{spelling}\n')
    arguments = ("vectors:mean.npy", "--thresholds", tmp_path / "limits.toml")
    document = document_of(*arguments, cwd=vectors)  # 64/72 · 8 = 7.1 even shares
    assert codes(document) == ["CLS101", "CLS102"]
    assert document["limits"]["CLS103.warning"] == 20
    # The command line comes on top.
    document = document_of(*arguments, "--threshold", "CLS103.warning=7", "--ignore", "CLS102", cwd=vectors)
    assert codes(document) == ["CLS101", "CLS103"]


def test_a_threshold_decides_on_the_exit_code(vectors):
    command = ("diagnose", "vectors:mild.npy", "--fail-on", "severe")
    assert run(*command, cwd=vectors).returncode == 0
    assert run(*command, "--threshold", "CLS101.severe=0.1", cwd=vectors).returncode == 1


def test_list_rules(vectors):
    assert diagnosed("--list-rules", cwd=vectors) == catalogue()


# -- models ----------------------------------------------------------------------------------------------------------


def test_a_model_needs_texts(model):
    line = one_error_line(run("diagnose", "bert", cwd=model))
    assert "bert is a model: give texts with --data" in line
    assert "--weights-only" in line
    assert "embedded is a model" in one_error_line(run("diagnose", "embedded", cwd=model))


@pytest.mark.parametrize("arguments", [(), ("--data", "plain.txt"), ("--weights-only",)])
def test_an_unknown_model(model, hub_cache, arguments):
    line = one_error_line(run("diagnose", "no/such-model", *arguments, cwd=model))
    assert "no/such-model" in line
    assert "cache" in line


def test_a_model_on_texts(model):
    document = document_of("bert", "--data", "plain.txt", "--layer", "-1", cwd=model)
    (entry,) = document["profiles"]
    assert (entry["encoder"], entry["n"], entry["dim"], entry["layer"]) == ("bert", 60, 32, 3)
    assert entry["layers"] == [0, 1, 2, 3]
    assert not [finding for finding in entry["findings"] if finding["layer"] == 0]
    assert entry["no_probe"] == "the texts have no labels"
    assert [found["name"] for found in entry["definitions"] if found["reads"] == "weights"]


def test_layers_first_rows_and_source(model):
    arguments = ("bert", "--data", "plain.txt", "--first", 40, "--source", "mean", "--max-length", 8)
    (entry,) = document_of(*arguments, "--layer", 1, cwd=model)["profiles"]
    assert (entry["layer"], entry["n"], entry["source"]) == (1, 40, "mean")
    # Of five, nine, three, twelve words and two marks, two in four are cut at eight.
    assert entry["rows_cut"] == 20
    (found,) = [finding for finding in entry["findings"] if finding["code"] == "CLS502"]
    assert (found["value"], found["layer"]) == (0.5, 1)
    assert "20 of 40 rows (50.0%) were cut at 8 tokens" in found["evidence"]
    assert "bert has layers 0 to 3 (or -4 to -1), got [9]" in one_error_line(
        run("diagnose", *arguments, "--layer", 9, cwd=model)
    )


def test_several_data_sets(model):
    document = document_of("bert", "--data", "plain.txt", "--data", "short.txt", "--first", 30, cwd=model)
    assert [entry["name"] for entry in document["profiles"]] == ["plain (first 30)", "short (first 30)"]


def test_limit_and_first_together(model):
    line = one_error_line(run("diagnose", "bert", "--data", "plain.txt", "--limit", 9, "--first", 9, cwd=model))
    assert "not both" in line


# -- labels ----------------------------------------------------------------------------------------------------------


def test_a_profile_with_its_labels_is_probed(model, monkeypatch):
    quick = partial(probe, folds=2, repeats=1, steps=5)
    monkeypatch.setattr("cls_analysis.diagnosis.effects.probe.probe", quick)
    document = document_of("labelled.safetensors", "--data", "labelled.csv", cwd=model)
    (entry,) = document["profiles"]
    assert (entry["probe"]["n"], entry["probe"]["n_classes"], entry["probe"]["majority"]) == (60, 2, 0.5)
    assert entry["no_probe"] == ""


def test_a_profile_with_other_texts_is_not_probed(model):
    result = run("diagnose", "labelled.safetensors", "--data", "others.csv", "--format", "json", cwd=model)
    assert result.returncode == 0
    assert json.loads(result.stdout)["profiles"][0]["probe"] is None
    assert result.stderr == ("--data left out for labelled: none of it holds the texts that this Profile is of\n")


def test_the_right_texts_are_found_among_several(model, monkeypatch):
    asked = []
    monkeypatch.setattr("cls_analysis.diagnosis.effects.probe.probe", lambda rows, labels: asked.append(labels))
    result = run("diagnose", "labelled.safetensors", "--data", "others.csv", "--data", "labelled.csv", cwd=model)
    assert (result.returncode, result.stderr) == (0, "")
    (labels,) = asked
    assert [int(label) for label in labels] == [row % 2 for row in range(60)]


def test_a_selection_of_its_texts_is_refused(model):
    line = one_error_line(run("diagnose", "labelled.safetensors", "--data", "labelled.csv", "--first", 50, cwd=model))
    assert "lack row 50 of the Profile" in line


def test_vectors_have_no_texts(vectors):
    result = run("diagnose", "vectors:clean.npy", "--data", "sample:sentiment", cwd=vectors)
    assert result.returncode == 0
    assert "--data left out for clean.npy" in result.stderr


# -- weights ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def embedded_norms():
    """Entries beyond 3σ of the embedded encoder's output LayerNorms, read and counted here."""
    folder = Path(find_checkpoint("embedded", None, trust_remote_code=False).location)
    tensors = safetensors.numpy.load_file(folder / "model.safetensors")
    found = {}
    for layer in range(1, 7):
        for part in ("weight", "bias"):
            (name,) = [name for name in tensors if name.endswith(f"layer.{layer - 1}.output.LayerNorm.{part}")]
            values = tensors[name].astype(np.float64)
            score = (values - values.mean()) / values.std(ddof=1)
            beyond = np.flatnonzero(np.abs(score) > 3)
            found[layer, part] = sorted(beyond.tolist(), key=lambda i, score=score: -abs(score[i]))
    return found


def test_weights_of_the_embedded_encoder(tmp_path, embedded_norms):
    (entry,) = document_of("embedded", "--weights-only", cwd=tmp_path)["weights"]
    assert (entry["encoder"], entry["n_layers"], entry["dim"], entry["on_output"]) == ("embedded", 6, 384, True)
    found = {key: [] for key in embedded_norms}
    for row in entry["layer_norms"]:
        found[row["layer"], row["part"]].append(row["dimension"])
    assert found == embedded_norms
    hits = {part: np.zeros(384, dtype=int) for part in ("weight", "bias")}
    for (_, part), dimensions in embedded_norms.items():
        hits[part][dimensions] += 1
    for definition, least in zip(entry["definitions"], (3, 4), strict=True):
        expected = np.flatnonzero((hits["weight"] >= least) | (hits["bias"] >= least))
        assert sorted(definition["dimensions"]) == expected.tolist()


def test_weights_as_text(tmp_path, embedded_norms):
    text = diagnosed("embedded", "--weights-only", cwd=tmp_path)
    assert text.startswith("embedded: LayerNorm weights of 6 layers, d = 384\n")
    _, *layers = text.partition("\n(by chance")[0].split("\nlayer ")
    assert len(layers) == 6
    for number, lines in enumerate(layers, start=1):
        assert lines.startswith(f"{number} ")
        for part in ("weight", "bias"):
            named = lines.partition(f"{part}: ")[2].splitlines()[0]
            assert [int(entry.split()[0]) for entry in named.split(", ")] == embedded_norms[number, part][:8]
    assert "Kovaleva et al. 2021" in text
    assert "\x1b" not in text


@pytest.fixture(scope="module")
def random_bert(tmp_path_factory):
    """Two layers, whose norms are ones and zeros."""
    folder = tmp_path_factory.mktemp("random")
    tiny.make_model("bert", num_hidden_layers=2).save_pretrained(folder / "bert")
    return folder


def test_weights_of_a_random_network_have_no_outliers(random_bert):
    text = diagnosed("bert", "--weights-only", cwd=random_bert)
    assert text.splitlines() == [
        "bert: LayerNorm weights of 2 layers, d = 32",
        "no entry lies beyond three standard deviations of its vector.",
    ]
    (entry,) = document_of("bert", "--weights-only", cwd=random_bert)["weights"]
    assert entry["layer_norms"] == []
    assert [definition["dimensions"] for definition in entry["definitions"]] == [[], []]


def test_weights_of_several_models(random_bert):
    document = document_of("bert", "embedded", "--weights-only", cwd=random_bert)
    assert [entry["encoder"] for entry in document["weights"]] == ["bert", "embedded"]


@pytest.mark.parametrize("arguments", [("--format", "html"), ("--format", "markdown"), ("--out", "report.html")])
def test_weights_are_text_or_json(random_bert, arguments):
    line = one_error_line(run("diagnose", "bert", "--weights-only", *arguments, cwd=random_bert))
    assert "--weights-only prints text or json" in line
    assert not (random_bert / "report.html").exists()


def test_weights_of_what_is_no_model(vectors):
    assert "run" in one_error_line(run("diagnose", "run", "--weights-only", cwd=vectors))


def test_starts_without_torch(random_bert, vectors):
    """Nor scikit-learn, which only the probe needs."""
    commands = [["bert", "--weights-only"], [str(vectors / "run")], [f"vectors:{vectors / 'mean.npy'}", "--how-many"]]
    code = (
        "import sys\n"
        "from cls_analysis.cli.app import app\n"
        f"for command in {commands!r}:\n"
        "    try: app(['diagnose', *command])\n"
        "    except SystemExit as exit: assert not exit.code, exit.code\n"
        "loaded = {'torch', 'transformers', 'sklearn'} & set(sys.modules)\n"
        "assert not loaded, loaded\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=random_bert, check=False)
    assert done.returncode == 0, done.stderr
    assert "bert: LayerNorm weights of 2 layers" in done.stdout
