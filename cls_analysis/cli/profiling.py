"""The commands from texts to Profiles, tables and figures: demo, extract, merge, stats, figures."""
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
from cls_analysis.cli.progress import progress_bar
from cls_analysis.cli.values import layers_of, names, note, read_options, shard_of


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
        note(f"{done.profile.dataset}: {done.report or 'there already'}")
        profiles.append(done.profile)
    typer.echo(render(tables_of(profiles), profiles))
    for path in work.write_tables(profiles, out):
        note(f"wrote {path}")
    for figure in work.draw_all(profiles, out):
        note(f"wrote {', '.join(str(path) for path in figure.files)}" if figure.files else figure.skipped or "")
    note("diagnosing; the linear probe takes some seconds")
    diagnoses = work.diagnose_all(profiles)
    for diagnosis in diagnoses:
        typer.echo(f"{diagnosis.profile.dataset}: {diagnosis.verdict()}")
    for path in work.write_reports(diagnoses, out):
        note(f"wrote {path}")
    note(f"begin with {out / 'report.html'}; profiles: {out / 'run'}")


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
    arguments = locals()
    from cls_analysis.workflows.extract import extract as work
    from cls_analysis.workflows.options import EncoderOptions, TextOptions

    text_options = read_options(TextOptions, arguments)
    encoder_options = read_options(EncoderOptions, arguments)
    for done in work(
        model,
        data,
        out,
        layers=layers_of(layers),
        text_options=text_options,
        encoder_options=encoder_options,
        vectors=vectors,
        batch_tokens=batch_tokens,
        shard=shard_of(shard),
        overwrite=overwrite,
        progress=progress_bar,
    ):
        note(f"{done.profile.dataset}: {done.report}" if done.report else f"{done.profile.dataset}: there already")
        note(
            f"wrote {done.path}" + (f" and {done.vectors}/" if done.vectors else "") if done.report else f"{done.path}"
        )


def merge(
    profiles: Annotated[list[Path], typer.Argument(metavar="PROFILE...", help="Profiles of one encoder and settings.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The joined Profile.")],
) -> None:
    """Join Profiles of the same encoder and settings, as from shards."""
    from cls_analysis.workflows.merging import merge_profiles

    profile = merge_profiles(profiles, out)
    note(f"wrote {out}: {profile.n:,} rows of {profile.dataset}")


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
    drawn = draw_figures(profiles, out, only=names(only), formats=names(form) or ("pdf", "png"), layer=layer)
    for figure in drawn:
        files = ", ".join(str(path) for path in figure.files)
        note(f"wrote {files}" if files else f"left out {figure.name}: {figure.skipped}")
