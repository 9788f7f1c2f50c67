"""Progress of long work, on standard error, and only where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(total: int, title: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar over rows with rate and estimate; nothing where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm  # noqa: PLC0415 (only where a bar is shown)

    tokens = 0
    with tqdm(total=total, desc=title, unit=" rows", dynamic_ncols=True, leave=False) as bar:

        def advance(rows: int, more_tokens: int) -> None:
            nonlocal tokens
            tokens += more_tokens
            bar.update(rows)
            elapsed = bar.format_dict["elapsed"] or 1e-9
            bar.set_postfix_str(f"{tokens / elapsed:,.0f} tokens/s", refresh=False)

        yield advance


@contextmanager
def run_bar(total: int, title: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar over runs with an estimate; nothing where standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from tqdm import tqdm  # noqa: PLC0415 (only where a bar is shown)

    with tqdm(total=total, desc=title, unit=" runs", dynamic_ncols=True, leave=False, smoothing=0.05) as bar:
        yield lambda runs, _: bar.update(runs) and None
