"""``cls-analysis``: the commands. Each parses its arguments, calls one workflow and prints; no logic lives here.

Results go to standard output, everything else to standard error. Workflows are imported inside the commands, so that
``--help`` and ``stats`` start without torch.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cls_analysis import __version__
from cls_analysis.cli.guard import guarded, set_debug
from cls_analysis.cli.progress import progress_bar
from cls_analysis.errors import OptionError

app = typer.Typer(
    name="cls-analysis",
    help="How an encoder's [CLS] embedding is distributed before fine-tuning, and what is wrong with it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Targets = Annotated[
    list[Path], typer.Argument(metavar="PROFILE_OR_RUN...", help="Profiles, or folders given to --out.")
]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cls-analysis {__version__}")
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
    """Profile the bundled samples with the embedded encoder: tables, figures and the numbers behind them.

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
    _note(f"profiles: {out / 'run'}; begin with {out / 'figures' / 'mean.png'} and {out / 'figures' / 'layers.png'}")


@app.command()
@guarded
def extract(
    model: Annotated[str, typer.Argument(help="Hub name, folder, or 'embedded'.")],
    data: Annotated[
        list[str],
        typer.Argument(
            metavar="DATA...",
            help="Files (csv, tsv, jsonl, parquet, txt), - (lines of standard input), sample:NAME, glue/TASK@SPLIT, "
            "trec:DIR@SPLIT or hub:NAME[:CONFIG]@SPLIT.",
        ),
    ],
    out: Annotated[Path, typer.Option(metavar="RUN", help="Folder for the Profiles.")],
    layers: Annotated[str, typer.Option(help="'all', or numbers separated by commas; -1 is the last.")] = "all",
    source: Annotated[str, typer.Option(help="Vector of a text: cls, pooler, mean, first or last.")] = "cls",
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Also store the vectors; resumes where it stopped.")
    ] = False,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")] = "auto",
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens of a batch, padding included.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Longest input in tokens.")] = None,
    limit: Annotated[int | None, typer.Option(help="A seeded sample of so many rows, stratified by label.")] = None,
    first: Annotated[int | None, typer.Option(help="The first so many rows.")] = None,
    shard: Annotated[str, typer.Option(metavar="i/n", help="Do the i-th of n parts; join them with merge.")] = "0/1",
    data_dir: Annotated[Path | None, typer.Option(help="Folder of GLUE's official TSV files.")] = None,
    text_column: Annotated[str | None, typer.Option(help="Column of the text.")] = None,
    pair_column: Annotated[str | None, typer.Option(help="Column of the second text.")] = None,
    label_column: Annotated[str | None, typer.Option(help="Column of the label.")] = None,
    encoding: Annotated[str, typer.Option(help="Encoding of text files.")] = "utf-8",
    on_missing: Annotated[str, typer.Option(help="Rows without text: error, drop or empty.")] = "error",
    revision: Annotated[str | None, typer.Option(help="Revision on the hub.")] = None,
    trust_remote_code: Annotated[
        bool, typer.Option("--trust-remote-code", help="Let the model run code from its repository.")
    ] = False,
    apply_final_norm: Annotated[
        bool, typer.Option("--apply-final-norm", help="Pre-norm models: norm the inner layers too.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there with other settings.")] = False,
) -> None:
    """Profile an encoder's vectors on texts: RUN/<encoder>/<dataset>[-<split>].safetensors.

    Example: cls-analysis extract bert-base-uncased reviews.csv glue/cola@dev --out run
    """
    if limit is not None and first is not None:
        raise OptionError("give --limit (a sample) or --first (the beginning), not both")
    from cls_analysis.workflows.extract import EncoderOptions, TextOptions
    from cls_analysis.workflows.extract import extract as work

    text_options = TextOptions(
        data_dir, text_column, pair_column, label_column, encoding, on_missing, limit=limit, first=first
    )
    encoder_options = EncoderOptions(source, dtype, device, max_length, revision, trust_remote_code, apply_final_norm)
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


def _note(text: str) -> None:
    typer.echo(text, err=True)


def main() -> None:
    """Entry point of the command ``cls-analysis``."""
    app(prog_name="cls-analysis")
