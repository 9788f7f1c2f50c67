"""Values of options as commands need them, and where results and remarks go."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from cls_analysis.errors import OptionError
from cls_analysis.files import write_text

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Options = TypeVar("Options", bound="DataclassInstance")


def layers_of(text: str) -> str | list[int]:
    """``all``, or numbers separated by commas."""
    if text == "all":
        return text
    try:
        return [int(number) for number in text.split(",")]
    except ValueError:
        raise OptionError(f"--layers takes 'all' or numbers separated by commas, got {text!r}") from None


def shard_of(text: str) -> tuple[int, int]:
    """``i/n`` as two numbers."""
    index, slash, count = text.partition("/")
    if not (slash and index.isdigit() and count.isdigit()):
        raise OptionError(f"--shard takes i/n, as in 0/4, got {text!r}")
    return int(index), int(count)


def names(values: list[str] | None) -> list[str]:
    """Values of an option that is repeated or separated by commas."""
    return [name.strip() for value in values or () for name in value.split(",") if name.strip()]


def numbers(option: str, values: list[str] | None) -> tuple[float, ...]:
    """Numbers of an option that is repeated or separated by commas."""
    try:
        return tuple(float(value) for value in names(values))
    except ValueError:
        raise OptionError(f"{option} takes numbers separated by commas, got {','.join(values or ())!r}") from None


def read_options(kind: type[Options], arguments: Mapping[str, Any]) -> Options:
    """The arguments of a command that ``kind``, a dataclass of options, has fields for."""
    return kind(**{each.name: arguments[each.name] for each in fields(kind) if each.name in arguments})


def emit(text: str, out: Path | None) -> None:
    """Print a result, or write it whole."""
    if out is None:
        typer.echo(text, nl=False)
    else:
        note(f"wrote {write_text(out, text)}")


def colours() -> bool:
    """Whether standard output is a terminal that wants colours (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def note(text: str) -> None:
    """Print a remark to standard error."""
    typer.echo(text, err=True)
