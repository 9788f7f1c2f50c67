"""``cls-analysis``: the commands. Each parses its arguments, calls one workflow and prints; no logic lives here.

Results go to standard output, everything else to standard error. Workflows are imported inside the commands, so that
``--help`` and ``stats`` start without torch.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cls_analysis import __version__
from cls_analysis.cli.comparing import compare
from cls_analysis.cli.diagnosing import diagnose
from cls_analysis.cli.guard import guarded, set_debug
from cls_analysis.cli.profiling import demo, extract, figures, merge, stats
from cls_analysis.cli.training import finetune, fold, layers

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


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Options before the command."""
    set_debug(debug)


for command in (demo, extract, merge, stats, figures, diagnose, finetune, layers, fold, compare):
    app.command()(guarded(command))


def main() -> None:
    """Entry point of the command ``cls-analysis``."""
    app(prog_name="cls-analysis")
