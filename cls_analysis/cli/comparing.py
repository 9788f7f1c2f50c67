"""The command compare."""
# ruff: noqa: PLC0415

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cls_analysis.cli.options import (
    DATA_HELP,
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
    TextColumn,
    TrustRemoteCode,
)
from cls_analysis.cli.values import names, note, read_options


def compare(
    base: Annotated[str, typer.Argument(help="The encoder before: hub name, folder, or 'embedded'.")],
    tuned: Annotated[list[str], typer.Argument(metavar="TUNED...", help="What it became; heads are left away.")],
    data: Annotated[list[str], typer.Option(metavar="DATA", help=f"Texts to compare on; may be repeated. {DATA_HELP}")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder for tables and figures.")],
    stimuli: Annotated[list[str] | None, typer.Option(help="cls, tokens; both by default.")] = None,
    words: Annotated[int, typer.Option(help="Words of a data set that are compared, two of a text at most.")] = 5_000,
    subsamples: Annotated[int, typer.Option(help="Halves and quarters for each interval; 0 for none.")] = 100,
    seed: Annotated[int, typer.Option(help="Of the words, the subsamples and the random control.")] = 0,
    control: Annotated[bool, typer.Option(help="Compare with a random network, too.")] = True,
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
) -> None:
    """How alike an encoder and what fine-tuning made of it are, layer by layer: RSA, CKA, Procrustes, with controls.

    Example: cls-analysis compare bert-base-uncased tuned/ --data glue/mrpc@dev --data sample:sentiment --out changed
    """
    arguments = locals()
    from cls_analysis.workflows.comparing import STIMULI, compare_encoders, summary
    from cls_analysis.workflows.options import EncoderOptions, TextOptions

    done = compare_encoders(
        base,
        tuned,
        data,
        out,
        stimuli=names(stimuli) or STIMULI,
        words=words,
        subsamples=subsamples,
        seed=seed,
        control=control,
        text_options=read_options(TextOptions, arguments),
        encoder_options=read_options(EncoderOptions, arguments),
        note=note,
    )
    typer.echo(summary(done))
    for path in done.files:
        note(f"wrote {path}")
