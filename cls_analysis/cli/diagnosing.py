"""The command diagnose."""
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
    TextColumn,
    TrustRemoteCode,
)
from cls_analysis.cli.progress import progress_bar
from cls_analysis.cli.values import colours, emit, names, note, read_options
from cls_analysis.errors import OptionError


def _list_rules(wanted: bool) -> None:
    if wanted:
        from cls_analysis.diagnosis.rules import catalogue

        typer.echo(catalogue(), nl=False)
        raise typer.Exit


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
    arguments = locals()
    from cls_analysis.workflows import diagnosing as work
    from cls_analysis.workflows.options import EncoderOptions, TextOptions

    work.check_fail_on(fail_on)
    chosen = work.resolve_format(form, out)
    limits = work.make_limits(names(threshold), thresholds, names(ignore))
    encoder_options = read_options(EncoderOptions, arguments)
    colour = out is None and colours()
    if weights_only:
        if data or fail_on or how_many:
            raise OptionError("--weights-only reads no texts: leave out --data, --how-many and --fail-on")
        norms = work.read_norms(targets, encoder_options)
        emit(work.render_weights(norms, chosen, colour=colour), out)
        return
    diagnoses = work.diagnose_targets(
        targets,
        data or [],
        options=work.DiagnoseOptions(layer=layer, limits=limits, how_many=how_many),
        text_options=read_options(TextOptions, arguments),
        encoder_options=encoder_options,
        progress=progress_bar,
        note=note,
    )
    emit(work.render(diagnoses, limits, chosen, colour=colour), out)
    if work.fails(diagnoses, fail_on):
        raise typer.Exit(1)
