"""Which column of a table is the text, the pair and the label."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cls_analysis.errors import DataError, OptionError

#: Columns that hold a pair of texts, first matching pair wins.
PAIRS = (
    ("sentence1", "sentence2"),
    ("premise", "hypothesis"),
    ("question1", "question2"),
    ("question", "sentence"),
    ("text", "text_pair"),
)
#: Columns that hold a single text, first match wins.
SINGLES = ("text", "sentence")
LABEL = "label"


@dataclass(frozen=True)
class Columns:
    """Names of the columns to read; None where there is none."""

    text: str
    pair: str | None
    label: str | None


def choose_columns(
    where: str,
    found: Sequence[str],
    *,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
) -> Columns:
    """Take the columns that were named, guess the others from the field's conventions.

    Raises
    ------
    DataError
        If a named column is not there, a name stands there twice, or no convention matches.
    """
    repeated = sorted({column for column in found if found.count(column) > 1})
    if repeated:
        raise DataError(f"{where}: repeated column names {', '.join(map(repr, repeated))}; give each column its own")
    for column in (text_column, pair_column, label_column):
        if column is not None and column not in found:
            raise DataError(f"{where}: no column {column!r}; the columns are {', '.join(map(repr, found))}")
    if pair_column is not None and text_column is None:
        raise OptionError("a pair column needs a text column beside it")
    label = label_column or (LABEL if LABEL in found else None)
    if text_column is not None:
        return Columns(text_column, pair_column, label)
    return _guess(where, found, label)


def _guess(where: str, found: Sequence[str], label: str | None) -> Columns:
    others = [column for column in found if column != label]
    for first, second in PAIRS:
        if first in others and second in others:
            return Columns(first, second, label)
    for single in SINGLES:
        if single in others:
            return Columns(single, None, label)
    if len(others) == 1:
        return Columns(others[0], None, label)
    raise DataError(
        f"{where}: cannot tell which column holds the text; name it with --text-column; the columns are "
        f"{', '.join(repr(column[:40]) for column in found[:8])} (is the first line a header?)"
    )
