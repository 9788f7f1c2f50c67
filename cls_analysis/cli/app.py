"""``cls-analysis``: the commands. Each parses its arguments, calls one workflow and prints; no logic lives here.

Results go to standard output, everything else to standard error. Workflows are imported inside the commands, so that
``--help`` and ``stats`` start without torch.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cls_analysis import __version__
from cls_analysis.cli.guard import guarded, set_debug
from cls_analysis.cli.options import (
    DATA_HELP,
    ApplyFinalNorm,
    DataDir,
    Device,
    Dtype,
    Encoding,
    First,
    LabelColumn,
    Limit,
    MaxLength,
    OnMissing,
    PairColumn,
    Revision,
    Source,
    Targets,
    TextColumn,
    TrustRemoteCode,
)
from cls_analysis.cli.progress import progress_bar, run_bar
from cls_analysis.errors import OptionError
from cls_analysis.files import write_text

app = typer.Typer(
    name="cls-analysis",
    help="How an encoder's [CLS] embedding is distributed before fine-tuning, and what is wrong with it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cls-analysis {__version__}")
        raise typer.Exit


def _list_rules(wanted: bool) -> None:
    if wanted:
        from cls_analysis.diagnosis.rules import catalogue

        typer.echo(catalogue(), nl=False)
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Options before the command."""
    set_debug(debug)


@app.command()
@guarded
def demo(
    out: Annotated[Path, typer.Option(help="Folder to fill.")] = Path("demo"),
) -> None:
    """The whole path on the bundled samples with the embedded encoder: Profiles, tables, figures, diagnosis, report.

    Needs no network; the encoder is all-MiniLM-L6-v2 from the extra [demo].
    """
    from cls_analysis.workflows import demo as work
    from cls_analysis.workflows.stats import render, tables_of

    profiles = []
    for done in work.extract_samples(out, progress=progress_bar):
        _note(f"{done.profile.dataset}: {done.report or 'there already'}")
        profiles.append(done.profile)
    typer.echo(render(tables_of(profiles), profiles))
    for path in work.write_tables(profiles, out):
        _note(f"wrote {path}")
    for figure in work.draw_all(profiles, out):
        _note(f"wrote {', '.join(str(path) for path in figure.files)}" if figure.files else figure.skipped or "")
    _note("diagnosing; the linear probe takes some seconds")
    diagnoses = work.diagnose_all(profiles)
    for diagnosis in diagnoses:
        typer.echo(f"{diagnosis.profile.dataset}: {diagnosis.verdict()}")
    for path in work.write_reports(diagnoses, out):
        _note(f"wrote {path}")
    _note(f"begin with {out / 'report.html'}; profiles: {out / 'run'}")


@app.command()
@guarded
def extract(
    model: Annotated[str, typer.Argument(help="Hub name, folder, or 'embedded'.")],
    data: Annotated[list[str], typer.Argument(metavar="DATA...", help=DATA_HELP)],
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder for the Profiles.")],
    layers: Annotated[str, typer.Option(help="'all', or numbers separated by commas; -1 is the last.")] = "all",
    source: Source = "cls",
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Also store the vectors; resumes where it stopped.")
    ] = False,
    dtype: Dtype = "float32",
    device: Device = "auto",
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens of a batch, padding included.")] = None,
    max_length: MaxLength = None,
    limit: Limit = None,
    first: First = None,
    shard: Annotated[str, typer.Option(metavar="i/n", help="Do the i-th of n parts; join them with merge.")] = "0/1",
    data_dir: DataDir = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    encoding: Encoding = "utf-8",
    on_missing: OnMissing = "error",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    apply_final_norm: ApplyFinalNorm = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there with other settings.")] = False,
) -> None:
    """Profile an encoder's vectors on texts: RUN/<encoder>/<dataset>[-<split>].safetensors.

    Example: cls-analysis extract bert-base-uncased reviews.csv glue/cola@dev --out run
    """
    from cls_analysis.workflows.extract import extract as work
    from cls_analysis.workflows.options import EncoderOptions, TextOptions

    text_options = TextOptions(
        data_dir=data_dir,
        text_column=text_column,
        pair_column=pair_column,
        label_column=label_column,
        encoding=encoding,
        on_missing=on_missing,
        limit=limit,
        first=first,
    )
    encoder_options = EncoderOptions(
        source=source,
        dtype=dtype,
        device=device,
        max_length=max_length,
        revision=revision,
        trust_remote_code=trust_remote_code,
        apply_final_norm=apply_final_norm,
    )
    for done in work(
        model,
        data,
        out,
        layers=_layers(layers),
        text_options=text_options,
        encoder_options=encoder_options,
        vectors=vectors,
        batch_tokens=batch_tokens,
        shard=_shard(shard),
        overwrite=overwrite,
        progress=progress_bar,
    ):
        _note(f"{done.profile.dataset}: {done.report}" if done.report else f"{done.profile.dataset}: there already")
        _note(
            f"wrote {done.path}" + (f" and {done.vectors}/" if done.vectors else "") if done.report else f"{done.path}"
        )


@app.command()
@guarded
def merge(
    profiles: Annotated[list[Path], typer.Argument(metavar="PROFILE...", help="Profiles of one encoder and settings.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The joined Profile.")],
) -> None:
    """Join Profiles of the same encoder and settings, as from shards."""
    from cls_analysis.workflows.merging import merge_profiles

    profile = merge_profiles(profiles, out)
    _note(f"wrote {out}: {profile.n:,} rows of {profile.dataset}")


@app.command()
@guarded
def stats(
    targets: Targets,
    by: Annotated[str, typer.Option(help="layer or dimension.")] = "layer",
    layer: Annotated[int | None, typer.Option(help="One layer; -1 is the last.")] = None,
    form: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
) -> None:
    """Print the statistics of Profiles, by layer or by dimension."""
    from cls_analysis.workflows.runs import load_profiles
    from cls_analysis.workflows.stats import render, tables_of

    profiles = load_profiles(targets)
    typer.echo(render(tables_of(profiles, by=by, layer=layer), profiles, by=by, form=form), nl=False)


@app.command()
@guarded
def figures(
    targets: Targets,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the figures.")],
    only: Annotated[list[str] | None, typer.Option(metavar="NAME,...", help="Only these figures.")] = None,
    form: Annotated[list[str] | None, typer.Option("--format", help="pdf, png, svg.")] = None,
    layer: Annotated[int, typer.Option(help="Layer to show; -1 is the last.")] = -1,
) -> None:
    """Draw the figures of the bias; several Profiles side by side, each figure with its numbers as CSV.

    Figures: mean, values, std, kurtosis, concentration, correlation, spectrum, layers.
    """
    from cls_analysis.workflows.figures import draw_figures
    from cls_analysis.workflows.runs import load_profiles

    profiles = load_profiles(targets)
    drawn = draw_figures(profiles, out, only=_names(only), formats=_names(form) or ("pdf", "png"), layer=layer)
    for figure in drawn:
        files = ", ".join(str(path) for path in figure.files)
        _note(f"wrote {files}" if files else f"left out {figure.name}: {figure.skipped}")


@app.command()
@guarded
def diagnose(
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="TARGET...",
            help="A model (hub name, folder or 'embedded'; with --data), a Profile, a RUN, or vectors:FILE "
            "(npy, npz, safetensors, parquet, csv).",
        ),
    ],
    data: Annotated[list[str] | None, typer.Option(metavar="DATA", help=f"Texts, repeatable. {DATA_HELP}")] = None,
    weights_only: Annotated[
        bool, typer.Option("--weights-only", help="Only the model's LayerNorm weights; no texts, no torch.")
    ] = False,
    how_many: Annotated[bool, typer.Option("--how-many", help="Also say whether so many rows are enough.")] = False,
    layer: Annotated[int, typer.Option(help="Layer that the classifier reads; -1 is the last.")] = -1,
    form: Annotated[
        str | None, typer.Option("--format", help="text, json, html or markdown; else by the ending of --out.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write there instead of standard output.")] = None,
    fail_on: Annotated[
        str | None, typer.Option(help="Exit with 1 at a finding of this severity: warning or severe.")
    ] = None,
    threshold: Annotated[
        list[str] | None, typer.Option(metavar="CODE.SEVERITY=X,...", help="Another limit, as in CLS101.warning=0.2.")
    ] = None,
    thresholds: Annotated[Path | None, typer.Option(metavar="FILE", help="Limits from a TOML file.")] = None,
    ignore: Annotated[list[str] | None, typer.Option(metavar="CODE,...", help="Rules to leave out.")] = None,
    list_rules: Annotated[
        bool,
        typer.Option("--list-rules", callback=_list_rules, is_eager=True, help="Print all rules (Markdown) and exit."),
    ] = False,
    source: Source = "cls",
    dtype: Dtype = "float32",
    device: Device = "auto",
    max_length: MaxLength = None,
    limit: Limit = None,
    first: First = None,
    data_dir: DataDir = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    encoding: Encoding = "utf-8",
    on_missing: OnMissing = "error",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
    apply_final_norm: ApplyFinalNorm = False,
) -> None:
    """Say what is wrong with an encoder's vectors, how sure that is, and what to do.

    Example: cls-analysis diagnose bert-base-uncased --data reviews.csv --format html --out report.html
    """
    from cls_analysis.workflows import diagnosing as work
    from cls_analysis.workflows.options import EncoderOptions, TextOptions

    work.check_fail_on(fail_on)
    chosen = work.resolve_format(form, out)
    limits = work.make_limits(_names(threshold), thresholds, _names(ignore))
    encoder_options = EncoderOptions(
        source=source,
        dtype=dtype,
        device=device,
        max_length=max_length,
        revision=revision,
        trust_remote_code=trust_remote_code,
        apply_final_norm=apply_final_norm,
    )
    colour = out is None and _colours()
    if weights_only:
        if data or fail_on or how_many:
            raise OptionError("--weights-only reads no texts: leave out --data, --how-many and --fail-on")
        norms = work.read_norms(targets, encoder_options)
        _emit(work.render_weights(norms, chosen, colour=colour), out)
        return
    diagnoses = work.diagnose_targets(
        targets,
        data or [],
        options=work.DiagnoseOptions(layer=layer, limits=limits, how_many=how_many),
        text_options=TextOptions(
            data_dir=data_dir,
            text_column=text_column,
            pair_column=pair_column,
            label_column=label_column,
            encoding=encoding,
            on_missing=on_missing,
            limit=limit,
            first=first,
        ),
        encoder_options=encoder_options,
        progress=progress_bar,
        note=_note,
    )
    _emit(work.render(diagnoses, limits, chosen, colour=colour), out)
    if work.fails(diagnoses, fail_on):
        raise typer.Exit(1)


@app.command()
@guarded
def finetune(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the study; resumes what is there.")],
    model: Annotated[str | None, typer.Argument(help="Hub name, folder, or 'embedded'.")] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TASK...", help="glue/NAME, sample:NAME, trec:DIR, or TRAIN.csv[,DEV.csv] with --metric."
        ),
    ] = None,
    grid: Annotated[Path | None, typer.Option(metavar="FILE", help="TOML file with these options; flags win.")] = None,
    norms: Annotated[
        list[str] | None, typer.Option(metavar="[LABEL=]NAME[(OPTION=X)],...", help="Arms, as in none,batchnorm.")
    ] = None,
    positions: Annotated[list[str] | None, typer.Option(help="cls, pooled.")] = None,
    seeds: Annotated[int | None, typer.Option(help="Runs of each arm and rate.")] = None,
    first_seed: Annotated[int | None, typer.Option(help="The first seed.")] = None,
    head: Annotated[
        str | None, typer.Option(help="stock: the architecture's own; linear: one layer on the raw vector.")
    ] = None,
    train: Annotated[str | None, typer.Option(help="all, head, or top-K: the last K blocks and the head.")] = None,
    learning_rates: Annotated[list[str] | None, typer.Option(metavar="X,...", help="Tried for every arm.")] = None,
    optimizer: Annotated[list[str] | None, typer.Option(help="adamw, sgd.")] = None,
    clip: Annotated[list[str] | None, typer.Option(help="Largest gradient norm, or off.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the training rows.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Rows of a step.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Of weights, not of biases.")] = None,
    warmup: Annotated[float | None, typer.Option(help="Share of the steps over which the rate rises.")] = None,
    early_stopping: Annotated[
        int | None, typer.Option(metavar="EPOCHS", help="Stop after so many without a better selecting half.")
    ] = None,
    metric: Annotated[str | None, typer.Option(help="Instead of the task's own.")] = None,
    limit: Annotated[int | None, typer.Option(help="Train on a seeded, stratified sample of so many rows.")] = None,
    profile: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Statistics at cls from this Profile of the training rows.")
    ] = None,
    rates_from: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Each arm's one learning rate, as that study chose it.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(help="Processes.")] = None,
    save_models: Annotated[bool, typer.Option("--save-models", help="Keep each run's classifier.")] = False,
    dtype: Dtype = "float32",
    device: Device = "auto",
    max_length: MaxLength = None,
    data_dir: DataDir = None,
    text_column: TextColumn = None,
    pair_column: PairColumn = None,
    label_column: LabelColumn = None,
    encoding: Encoding = "utf-8",
    on_missing: OnMissing = "error",
    revision: Revision = None,
    trust_remote_code: TrustRemoteCode = False,
) -> None:
    """Fine-tune with and without normalisation, over seeds and learning rates: runs.csv, outcomes, figures.

    Example: cls-analysis finetune bert-base-uncased glue/rte --norms none,batchnorm,standardize --seeds 10 --out study
    """
    from cls_analysis.workflows.finetuning import plan_study, remarks, run_study
    from cls_analysis.workflows.grids import merge_options, model_and_tasks, read_grid_file
    from cls_analysis.workflows.options import EncoderOptions, TextOptions
    from cls_analysis.workflows.outcomes import write_outcomes

    given = read_grid_file(grid) if grid else {}
    flags = {
        "norms": tuple(norms or ()),
        "positions": tuple(_names(positions)),
        "learning_rates": _numbers("--learning-rates", learning_rates),
        "optimizer": tuple(_names(optimizer)),
        "clip": tuple(_names(clip)),
        "seeds": seeds,
        "first_seed": first_seed,
        "head": head,
        "train": train,
        "epochs": epochs,
        "batch_size": batch_size,
        "weight_decay": weight_decay,
        "warmup": warmup,
        "early_stopping": early_stopping,
        "metric": metric,
    }
    study = plan_study(
        *model_and_tasks(model, tasks, given),
        out,
        options=merge_options(flags, given),
        text_options=TextOptions(
            data_dir=data_dir,
            text_column=text_column,
            pair_column=pair_column,
            label_column=label_column,
            encoding=encoding,
            on_missing=on_missing,
            limit=limit or given.get("limit"),
        ),
        encoder_options=EncoderOptions(
            dtype=dtype,
            device=device,
            max_length=max_length,
            revision=revision,
            trust_remote_code=trust_remote_code,
        ),
        profile=profile,
        rates_from=rates_from,
        save_models=save_models,
    )
    for line in remarks(study):
        _note(line)
    run_study(study, jobs=jobs, progress=run_bar, note=_note)
    outcome = write_outcomes(study)
    typer.echo(outcome.text, nl=False)
    for path in outcome.files:
        _note(f"wrote {path}")


@app.command()
@guarded
def fold(
    checkpoint: Annotated[Path, typer.Argument(help="Folder of a classifier with an attached norm.")],
    out: Annotated[Path, typer.Argument(help="Folder for the stock checkpoint.")],
) -> None:
    """Merge a norm into the layer behind it: a stock checkpoint with the same logits, at no cost at inference."""
    from cls_analysis.workflows.folding import fold_checkpoint

    _note(f"wrote {fold_checkpoint(checkpoint, out)}")


def _layers(text: str) -> str | list[int]:
    if text == "all":
        return text
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise OptionError(f"--layers takes 'all' or numbers separated by commas, got {text!r}") from None


def _shard(text: str) -> tuple[int, int]:
    index, slash, count = text.partition("/")
    if not (slash and index.isdigit() and count.isdigit()):
        raise OptionError(f"--shard takes i/n, as in 0/4, got {text!r}")
    return int(index), int(count)


def _names(values: list[str] | None) -> list[str]:
    """Values of an option that is repeated or separated by commas."""
    return [name.strip() for value in values or () for name in value.split(",") if name.strip()]


def _numbers(option: str, values: list[str] | None) -> tuple[float, ...]:
    """Numbers of an option that is repeated or separated by commas."""
    try:
        return tuple(float(value) for value in _names(values))
    except ValueError:
        raise OptionError(f"{option} takes numbers separated by commas, got {','.join(values or ())!r}") from None


def _emit(text: str, out: Path | None) -> None:
    """Print a result, or write it whole."""
    if out is None:
        typer.echo(text, nl=False)
    else:
        _note(f"wrote {write_text(out, text)}")


def _colours() -> bool:
    """Whether standard output is a terminal that wants colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def _note(text: str) -> None:
    typer.echo(text, err=True)


def main() -> None:
    """Entry point of the command ``cls-analysis``."""
    app(prog_name="cls-analysis")
