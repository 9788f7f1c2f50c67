"""What a command does when something goes wrong: one line on standard error, and the exit code."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import typer

from cls_analysis.errors import ClsAnalysisError, one_line

P = ParamSpec("P")

#: Exit codes.
USER_ERROR, INTERNAL_ERROR, INTERRUPTED = 2, 3, 130

_debug = False


def set_debug(on: bool) -> None:
    """Show tracebacks instead of one line."""
    global _debug  # noqa: PLW0603 (one switch for the process, set while the command line is parsed)
    _debug = on


def guarded(command: Callable[P, None]) -> Callable[P, None]:
    """``command`` with its errors turned into one line and an exit code."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            with warnings.catch_warnings():
                warnings.showwarning = _show_warning
                command(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has gone, as in `… | head`: nothing more to say, and nothing to complain of at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(0) from None
        except KeyboardInterrupt:
            _say("interrupted; what was finished is kept")
            raise SystemExit(INTERRUPTED) from None
        except typer.Exit:
            raise
        except Exception as error:  # noqa: BLE001 (the last resort: one line and a log)
            if _debug:
                traceback.print_exc()
            if isinstance(error, ClsAnalysisError):
                _say(f"error: {one_line(error, 1_000)}")
                raise SystemExit(USER_ERROR) from None
            _say(f"internal error: {type(error).__name__}: {one_line(error, 160)} (log: {_write_log()})")
            raise SystemExit(INTERNAL_ERROR) from None

    return run


def _write_log() -> Path:
    handle, name = tempfile.mkstemp(prefix="cls-analysis-", suffix=".log")
    with os.fdopen(handle, "w", encoding="utf-8") as log:
        log.write(" ".join(sys.argv) + "\n" + traceback.format_exc())
    return Path(name)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    _say(f"warning: {one_line(str(message))}")


def _say(text: str) -> None:
    print(f"cls-analysis: {text}", file=sys.stderr)  # noqa: T201
