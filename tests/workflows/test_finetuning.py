"""The command's work: grids that resume, tables that do not depend on how they came about, what is refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
import tiny

import cls_analysis as ca
from cls_analysis.errors import DataError, OptionError
from cls_analysis.finetuning.records import COLUMNS
from cls_analysis.workflows.finetuning import plan_study, remarks, run_study
from cls_analysis.workflows.folding import fold_checkpoint
from cls_analysis.workflows.grids import FinetuneOptions, merge_options, model_and_tasks, read_grid_file
from cls_analysis.workflows.options import EncoderOptions
from cls_analysis.workflows.outcomes import write_outcomes

FROZEN = {"head": "linear", "train": "head", "seeds": 3, "epochs": 2, "batch_size": 8, "learning_rates": (0.01, 0.1)}
WHOLE = {"head": "linear", "train": "all", "seeds": 2, "epochs": 1, "batch_size": 8, "learning_rates": (1e-3,)}


@pytest.fixture(scope="module")
def task(tmp_path_factory):
    rng = np.random.default_rng(0)
    path = tmp_path_factory.mktemp("task") / "letters.csv"
    rows = [f"{'ab'[i % 2]} {' '.join(rng.choice(list('cdefgh'), 3))},{'no' if i % 2 else 'yes'}" for i in range(60)]
    path.write_text("text,label\n" + "\n".join(rows) + "\n")
    return str(path)


@pytest.fixture
def study(task, tiny_folder, tmp_path):
    """Plans a study in a folder of its own."""

    def plan(out="study", *, model="bert", **options):
        named = {key: options.pop(key) for key in ("profile", "rates_from", "save_models") if key in options}
        chosen = FinetuneOptions(**{"metric": "accuracy"} | FROZEN | options)
        return plan_study(
            str(tiny_folder(model)),
            [task],
            tmp_path / out,
            options=chosen,
            encoder_options=EncoderOptions(device="cpu"),
            **named,
        )

    return plan


def files(folder):
    return {path.relative_to(folder): path.stat().st_mtime_ns for path in folder.glob("runs/*/*")}


def test_tables_and_figures(study):
    planned = study()
    table = run_study(planned, jobs=1)
    assert list(table.columns) == list(COLUMNS)
    assert len(table) == 3 * 2 * 3
    written = write_outcomes(planned)
    names = {path.name for path in written.files}
    assert names >= {"runs.csv", "outcomes.csv", "outcomes.md", "outcomes.tex", "rates.csv", "expected_best.csv"}
    assert {"outcomes.png", "outcomes.pdf", "outcomes.csv", "training.png", "training.pdf", "training.csv"} <= names
    assert all(path.is_file() for path in written.files)
    outcomes = pd.read_csv(planned.out / "outcomes.csv")
    assert outcomes["norm"].tolist() == ["none", "standardize", "batchnorm"]
    assert outcomes.columns[:9].tolist() == [
        *("model", "task", "head", "train", "norm", "position", "optimizer", "clip", "metric")
    ]
    assert "3 seeds cannot reach p < 0.05" in written.text
    grid = json.loads((planned.out / "grid.json").read_text())
    assert grid["tasks"][0]["n_train"] == 36
    assert not list(planned.out.rglob("*.part*"))


def test_again_repeats_nothing(study):
    run_study(study(), jobs=1)
    before = files(study().out)
    said = []
    run_study(study(), jobs=1, note=said.append)
    assert files(study().out) == before
    assert said == []
    # More seeds do only what is missing.
    run_study(study(seeds=4), jobs=1, note=said.append)
    after = files(study().out)
    assert {path: after[path] for path in before} == before
    assert said[0] == "18 of 24 runs are finished, 6 to do"


@pytest.mark.parametrize("options", [FROZEN | {"seeds": 7}, WHOLE], ids=["frozen", "whole"])
def test_a_killed_study_ends_as_an_undisturbed_one(study, options):
    run_study(study("whole", **options), jobs=1)
    whole = (study("whole", **options).out / "runs.csv").read_bytes()
    planned = study("broken", **options)
    run_study(planned, jobs=1)
    # As a kill leaves it: some runs finished, one half-written, the table missing.
    (planned.out / "runs.csv").unlink()
    for i, run in enumerate(planned.runs):
        if i % 3:
            (planned.out / "runs" / run.run_id / "run.json").unlink()
    kept = {path for path in files(planned.out) if path.name == "run.json"}
    stamps = {path: stamp for path, stamp in files(planned.out).items() if path.parent in {k.parent for k in kept}}
    run_study(study("broken", **options), jobs=1)
    assert (planned.out / "runs.csv").read_bytes() == whole
    assert {path: files(planned.out)[path] for path in stamps} == stamps


def test_sigkill(task, tiny_folder, tmp_path):
    def command(out, *more):
        return [
            *(sys.executable, "-m", "cls_analysis", "finetune", str(tiny_folder("bert")), task, "--metric", "accuracy"),
            *("--norms", "none,batchnorm", "--seeds", "4", "--head", "linear", "--train", "all", "--epochs", "2"),
            *("--batch-size", "8", "--learning-rates", "1e-3", "--device", "cpu", "--out", str(out), *more),
        ]

    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run(command(tmp_path / "whole"), check=True, env=environment, capture_output=True)
    with subprocess.Popen(command(tmp_path / "killed"), env=environment, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 120
        while not list((tmp_path / "killed").glob("runs/*/run.json")) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    finished = {path: path.stat().st_mtime_ns for path in (tmp_path / "killed").glob("runs/*/run.json")}
    assert 0 < len(finished) < 8
    done = subprocess.run(
        command(tmp_path / "killed", "--jobs", "2"), check=True, env=environment, capture_output=True, text=True
    )
    assert f"{len(finished)} of 8 runs are finished" in done.stderr
    assert {path: path.stat().st_mtime_ns for path in finished} == finished
    assert (tmp_path / "killed" / "runs.csv").read_bytes() == (tmp_path / "whole" / "runs.csv").read_bytes()
    assert (tmp_path / "killed" / "outcomes.csv").read_bytes() == (tmp_path / "whole" / "outcomes.csv").read_bytes()


def test_processes_give_the_same_tables(study):
    tables = [run_study(study(f"jobs{jobs}", seeds=6), jobs=jobs) for jobs in (1, 2)]
    assert tables[0].equals(tables[1])


def test_twins(study):
    planned = study(norms=("none", "plain=none"), seeds=6)
    run_study(planned, jobs=1)
    write_outcomes(planned)
    outcomes = pd.read_csv(planned.out / "outcomes.csv").set_index("norm")
    twin = outcomes.loc["plain"]
    assert (twin["difference"], twin["p"], twin["ci_low"], twin["joint_high"]) == (0, 1, 0, 0)
    ids = pd.read_csv(planned.out / "runs.csv").groupby("norm")["run_id"].apply(set)
    assert not ids["none"] & ids["plain"]  # both were trained


def test_all_predictions_alike_are_flagged(study):
    planned = study(norms=("none",), learning_rates=(1e-12,), metric="mcc", seeds=4)
    table = run_study(planned, jobs=1)
    alike = table[table["degenerate"]]
    assert len(alike)
    text = write_outcomes(planned).text
    assert f"{len(alike)} of 4" in text
    constant = [row for row in alike.to_dict("records") if len(set(_predictions(planned, row["run_id"]).tolist())) == 1]
    assert constant
    assert all(row["score_report"] == 0 for row in constant)


def _predictions(planned, run_id):
    from cls_analysis.finetuning.records import read_predictions

    return read_predictions(planned.out, run_id)["prediction"]


def test_whole_models_are_kept_where_asked_for(study):
    planned = study(**WHOLE | {"seeds": 1}, norms=("standardize",), save_models=True)
    run_study(planned)
    (folder,) = planned.out.glob("runs/*/model")
    model = ca.load_classifier(folder)
    assert model.config.cls_norm["cls"]["name"] == "standardize"


def test_the_pilots_rates(study):
    pilot = study("pilot", **WHOLE | {"learning_rates": (1e-3, 1e-2), "first_seed": 50})
    run_study(pilot)
    write_outcomes(pilot)
    chosen = pd.read_csv(pilot.out / "rates.csv").query("chosen").set_index("norm")["learning_rate"].to_dict()
    planned = study("final", **WHOLE, rates_from=pilot.out)
    assert {run.norm: run.learning_rate for run in planned.runs} == chosen
    assert len(planned.runs) == 6
    run_study(planned)
    assert "chosen by a pilot" in json.loads((planned.out / "grid.json").read_text())["learning_rates"]
    write_outcomes(planned)
    with pytest.raises(OptionError, match=r"no rate for .*, isobn, cls, adamw there"):
        study("more", **WHOLE, norms=("none", "isobn"), rates_from=pilot.out)
    with pytest.raises(DataError, match="no table of rates"):
        study("none", **WHOLE, rates_from=pilot.out / "nowhere")


# -- a Profile instead of the measured statistics --------------------------------------------------------------------


@pytest.fixture
def profile(tiny_folder, tmp_path):
    def save(task, name="p", **options):
        encoder = ca.Encoder.from_pretrained(tiny_folder("bert"), device="cpu", **options)
        path = tmp_path / f"{name}.safetensors"
        ca.compute_profile(encoder, task).save(path)
        return path

    return save


def test_a_profile_of_the_training_rows_gives_what_is_measured(study, profile):
    measured = study("measured", norms=("none", "standardize", "whiten"))
    train = measured.grid.tasks[0].train
    given = study("given", norms=("none", "standardize", "whiten"), profile=profile(train))
    assert run_study(measured, jobs=1).equals(run_study(given, jobs=1))


def test_other_profiles_are_refused(study, profile, task, tiny_folder, tmp_path):
    train = study().grid.tasks[0].train
    with pytest.raises(OptionError, match=r"--profile: of other rows \(.*\) than those that letters trains on"):
        study(profile=profile(ca.load_texts(task)))
    with pytest.raises(OptionError, match="source 'mean'"):
        study(profile=profile(train, "mean", source="mean"))
    path = tmp_path / "vectors.safetensors"
    ca.profile_vectors(np.random.default_rng(0).standard_normal((36, tiny.HIDDEN))).save(path)
    with pytest.raises(OptionError, match="--profile: of other weights"):
        study(profile=path)


# -- options ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 1, "norms": ("none", "batchnorm")}, "batchnorm follows the statistics of batches"),
        ({"positions": ("pooled",)}, "--head linear has no position 'pooled'"),
        ({"positions": ("front",)}, "unknown position 'front'"),
        ({"optimizer": ("adam",)}, "unknown optimizer 'adam': did you mean 'adamw'"),
        ({"head": "mlp"}, "unknown head 'mlp'"),
        ({"train": "bottom"}, "--train takes all, head or top-K"),
        ({"clip": ("0",)}, "--clip takes a positive gradient norm or off"),
        ({"norms": ("none", "none")}, "two norms are called 'none'"),
        ({"norms": ("batchnrom",)}, "did you mean 'batchnorm'"),
        ({"seeds": 0}, "--seeds must be at least 1"),
        ({"learning_rates": (-1.0,)}, "--learning-rates must be positive"),
        ({"warmup": 1.0}, "--warmup is a share"),
    ],
)
def test_what_cannot_be_is_refused(study, options, message):
    with pytest.raises(OptionError, match=message):
        study(**options)


def test_batches_of_one_row_without_batch_statistics(study):
    table = run_study(study(batch_size=1, norms=("none", "standardize", "layernorm")), jobs=1)
    assert (table["steps"] == 72).all()


def test_a_grid_file(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(
        'model = "embedded"\ntasks = ["glue/rte"]\nnorms = ["none", "isobn(beta=1)"]\nlearning-rates = [1, 2e-5]\n'
        'clip = "off"\nseeds = 3\nwarmup = 0\nlimit = 50\n'
    )
    given = read_grid_file(path)
    assert model_and_tasks(None, None, given) == ("embedded", ("glue/rte",))
    assert model_and_tasks("other", ["a.csv"], given) == ("other", ("a.csv",))
    options = merge_options({"seeds": 5, "norms": (), "head": None}, given)
    assert (options.norms, options.learning_rates, options.clip) == (("none", "isobn(beta=1)"), (1.0, 2e-5), ("off",))
    assert (options.seeds, options.warmup, options.head) == (5, 0.0, "stock")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed = 3", "unknown option 'seed': did you mean 'seeds'"),
        ('seeds = "many"', "seeds takes a value of type int"),
        ('learning_rates = ["fast"]', "learning_rates takes float values"),
        ("seeds = ", "not a readable TOML file"),
    ],
)
def test_a_wrong_grid_file(tmp_path, text, message):
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises((OptionError, DataError), match=message):
        read_grid_file(path)


def test_a_model_and_a_task_are_needed():
    with pytest.raises(OptionError, match="give a MODEL and at least one TASK"):
        model_and_tasks("embedded", None, {})


def test_what_is_untrained_is_said(tmp_path, task):
    model = tiny.make_model("bert", kind="BertForMaskedLM")
    folder = tiny.save(model, tiny.make_tokenizer("bert"), tmp_path / "m")
    options = FinetuneOptions(metric="accuracy", seeds=1)
    planned = plan_study(
        str(folder), [task], tmp_path / "s", options=options, encoder_options=EncoderOptions(device="cpu")
    )
    assert "random by seed: pooler.dense.bias, pooler.dense.weight" in next(remarks(planned))


# -- fold ------------------------------------------------------------------------------------------------------------


def test_fold_checkpoint(study, tmp_path):
    import torch
    import transformers

    planned = study(**WHOLE | {"seeds": 1, "head": "stock"}, norms=("standardize",), save_models=True)
    run_study(planned)
    (folder,) = planned.out.glob("runs/*/model")
    out = fold_checkpoint(folder, tmp_path / "folded")
    stock = transformers.AutoModelForSequenceClassification.from_pretrained(out)
    ids = torch.randint(5, 20, (3, 6), generator=torch.Generator().manual_seed(0))
    expected = ca.load_classifier(folder)(input_ids=ids).logits
    torch.testing.assert_close(stock.eval()(input_ids=ids).logits, expected, atol=1e-5, rtol=1e-5)
    assert (out / "tokenizer.json").is_file()
    with pytest.raises(DataError, match="there already"):
        fold_checkpoint(folder, out)
    linear = study("linear", **WHOLE | {"seeds": 1}, norms=("standardize",), save_models=True)
    run_study(linear)
    (folder,) = linear.out.glob("runs/*/model")
    with pytest.raises(OptionError, match="BertForSequenceClassification reads it through layers of its own"):
        fold_checkpoint(folder, tmp_path / "other")
    assert not (tmp_path / "other").exists()
