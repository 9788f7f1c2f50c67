"""Arguments and options that several commands share, as typer reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Targets = Annotated[
    list[Path], typer.Argument(metavar="PROFILE_OR_RUN...", help="Profiles, or folders given to --out.")
]
DATA_HELP = (
    "Files (csv, tsv, jsonl, parquet, txt), - (lines of standard input), sample:NAME, glue/TASK@SPLIT, "
    "trec:DIR@SPLIT or hub:NAME[:CONFIG]@SPLIT."
)

# The encoder.
Source = Annotated[str, typer.Option(help="Vector of a text: cls, pooler, mean, first or last.")]
Dtype = Annotated[str, typer.Option(help="float32, bfloat16 or float16.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, …")]
MaxLength = Annotated[int | None, typer.Option(help="Longest input in tokens.")]
Revision = Annotated[str | None, typer.Option(help="Revision on the hub.")]
TrustRemoteCode = Annotated[
    bool, typer.Option("--trust-remote-code", help="Let the model run code from its repository.")
]
ApplyFinalNorm = Annotated[bool, typer.Option("--apply-final-norm", help="Pre-norm models: norm the inner layers too.")]

# The texts.
Limit = Annotated[int | None, typer.Option(help="A seeded sample of so many rows, stratified by label.")]
First = Annotated[int | None, typer.Option(help="The first so many rows.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of GLUE's official TSV files.")]
TextColumn = Annotated[str | None, typer.Option(help="Column of the text.")]
PairColumn = Annotated[str | None, typer.Option(help="Column of the second text.")]
LabelColumn = Annotated[str | None, typer.Option(help="Column of the label.")]
Encoding = Annotated[str, typer.Option(help="Encoding of text files.")]
OnMissing = Annotated[str, typer.Option(help="Rows without text: error, drop or empty.")]
