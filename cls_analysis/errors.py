"""The exceptions a user can meet.

Every message is one line that says what was expected, what was found (file, row, layer) and what to do.
The command line prints it and exits with code 2; see ``cli/app.py``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

#: More known names than this are not listed beside a hint.
FEW_NAMES = 12


class ClsAnalysisError(Exception):
    """Base of all errors that are the input's fault, not the program's."""


class DataError(ClsAnalysisError):
    """The texts or vectors cannot be used as they are (missing cells, ragged rows, not finite, no rows)."""


class LoadingError(ClsAnalysisError):
    """An encoder or a data set cannot be loaded (not found, offline, gated, pickled weights, untrained parts)."""


class ProfileError(ClsAnalysisError):
    """A Profile cannot be read, or two Profiles do not belong together."""


class OptionError(ClsAnalysisError, ValueError):
    """An option has a value that is unknown or that does not fit the other options."""


class MissingPackageError(ClsAnalysisError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        super().__init__(
            f"{purpose} needs the package {package!r}, which is not installed: pip install 'cls-analysis[{extra}]'"
        )


def one_line(error: BaseException | str, limit: int = 300) -> str:
    """The message of ``error`` on one line, cut to ``limit`` characters."""
    text = " ".join(str(error).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def list_rows(rows: Iterable[int], limit: int = 5) -> str:
    """``rows 1, 2, 3`` or ``row 17``; beyond ``limit`` rows the count of the rest."""
    numbers = [int(row) for row in rows]
    shown = ", ".join(str(number) for number in numbers[:limit])
    more = f" and {len(numbers) - limit} more" if len(numbers) > limit else ""
    return f"row{'s' if len(numbers) > 1 else ''} {shown}{more}"


def unknown_name(kind: str, name: str, known: Iterable[str]) -> str:
    """A message for a name that is not known, with the nearest known one, and all of them unless they are many."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    if close and len(names) > FEW_NAMES:
        return f"unknown {kind} {name!r}: did you mean {close[0]!r}?"
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"unknown {kind} {name!r}: {hint}known: {', '.join(names)}"
