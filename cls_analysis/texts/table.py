"""``Texts``: the rows of a data set (text, pair, label), checked, with their ids."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cls_analysis.errors import DataError, OptionError, list_rows, unknown_name
from cls_analysis.provenance import DatasetIdentity, hash_texts

#: What to do with rows whose text is missing.
ON_MISSING = ("error", "drop", "empty")
MISSING = "the text is missing"


@dataclass(frozen=True, eq=False)
class Texts:
    """Rows of text, or of pairs of texts.

    Attributes
    ----------
    name : str
        What the rows are called in tables, figures and file names, without the split.
    text : list of str
        The (first) text of each row.
    pair : list of str, or None
        The second text of each row.
    label : list, or None
        The label of each row as the source gives it; None where there are none, or where all are −1, which GLUE
        writes for hidden labels.
    row_id : int64 array
        Position of each row in its data set, 0-based, the header not counted.
    split : str, or None
        Name of the split.
    hash : str
        Hash of the whole data set, the rows that were not selected included.
    label_names : tuple of str, or None
        Names of the labels 0, 1, … where the source has them.
    selection : str
        ``all``, or which rows were taken.
    labels_hidden : bool
        Whether the source has labels, all of them −1.
    n_dropped : int
        Rows left out because their text is missing (``on_missing="drop"``).
    """

    name: str
    text: list[str]
    pair: list[str] | None
    label: list[Any] | None
    row_id: NDArray[np.int64]
    split: str | None
    hash: str
    label_names: tuple[str, ...] | None = None
    selection: str = "all"
    labels_hidden: bool = False
    n_dropped: int = 0

    def __len__(self) -> int:
        return len(self.text)

    def __repr__(self) -> str:
        return f"Texts({self.identity.label!r}: {len(self)} {'pairs' if self.pair is not None else 'texts'})"

    @property
    def identity(self) -> DatasetIdentity:
        """Name, split, hash and selection, as a Profile records them."""
        return DatasetIdentity(self.name, self.split, self.hash, self.selection)

    @cached_property
    def n_empty(self) -> int:
        """Rows with a text, or a side of a pair, of no characters."""
        sides = [self.text] if self.pair is None else [self.text, self.pair]
        return sum(not all(row) for row in zip(*sides, strict=True))

    def require_labels(self) -> list[Any]:
        """The labels, for fitting and scoring.

        Raises
        ------
        DataError
            If there are none, all are hidden (−1), or hidden ones stand among real ones.
        """
        if self.labels_hidden:
            raise DataError(f"split {self.split or self.name!r} has no labels (all -1)")
        if self.label is None:
            raise DataError(f"{self.identity.label} has no labels; name their column with --label-column")
        return self.label

    def take(self, positions: Sequence[int] | NDArray[np.int64], selection: str | None = None) -> Texts:
        """The rows at ``positions``, which keep their ids."""
        chosen = np.asarray(positions, dtype=np.int64)
        return replace(
            self,
            text=[self.text[i] for i in chosen],
            pair=None if self.pair is None else [self.pair[i] for i in chosen],
            label=None if self.label is None else [self.label[i] for i in chosen],
            row_id=self.row_id[chosen],
            selection=", ".join(part for part in (self.selection, selection) if part and part != "all") or "all",
        )

    def first(self, n: int) -> Texts:
        """The first ``n`` rows."""
        check_count("first", n)
        return self if n >= len(self) else self.take(np.arange(n), f"first {n}")

    def sample(self, n: int, *, seed: int = 0) -> Texts:
        """A seeded sample of ``n`` rows in their order, stratified by label where there are classes."""
        check_count("limit", n)
        if n >= len(self):
            return self
        rng = np.random.default_rng(seed)
        positions = _stratified(self._classes(), n, rng)
        return self.take(np.sort(positions), f"limit {n}, seed {seed}")

    def _classes(self) -> NDArray[np.int64]:
        """A class number for each row: its label where the labels are classes, else one class for all."""
        labels = self.label
        if labels is None or any(isinstance(label, float) for label in labels):
            return np.zeros(len(self), dtype=np.int64)
        _, numbers = np.unique([str(label) for label in labels], return_inverse=True)
        # More classes than a tenth of the rows is no classification: identifiers, or scores written as text.
        return numbers if numbers.max() + 1 <= max(2, len(self) // 10) else np.zeros(len(self), dtype=np.int64)


def check_count(option: str, n: int) -> None:
    """Raise ``OptionError`` unless ``n`` is a positive number of rows."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
        raise OptionError(f"{option} must be a whole number of rows from 1 on, got {n!r}")


def _stratified(classes: NDArray[np.int64], n: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """``n`` positions, each class in its share, rounded by largest remainder."""
    counts = np.bincount(classes)
    shares = counts * n / counts.sum()
    wanted = np.floor(shares).astype(np.int64)
    remainders = np.argsort(wanted - shares, kind="stable")[: n - wanted.sum()]
    wanted[remainders] += 1
    chosen = [
        rng.choice(np.flatnonzero(classes == number), size, replace=False) for number, size in enumerate(wanted) if size
    ]
    return np.concatenate(chosen)


# -- from columns to Texts -------------------------------------------------------------------------------------------


def make_texts(
    name: str,
    text: Sequence[Any],
    pair: Sequence[Any] | None = None,
    label: Sequence[Any] | None = None,
    *,
    where: str | None = None,
    split: str | None = None,
    label_names: tuple[str, ...] | None = None,
    on_missing: str = "error",
) -> Texts:
    """Check columns and make ``Texts`` of them; ``where`` is what errors call them, by default ``name``.

    Raises
    ------
    DataError
        Naming the rows whose text is missing or no string, or whose label is hidden among real ones.
    """
    if on_missing not in ON_MISSING:
        raise OptionError(unknown_name("on_missing", on_missing, ON_MISSING))
    where = where or name
    if len(text) == 0:
        raise DataError(f"{where}: no rows")
    columns = {"text": list(text)} | ({} if pair is None else {"pair": list(pair)})
    missing = _check_strings(where, columns, on_missing)
    # Over all rows, missing ones as empty, so that a row's id and the data set's hash name the same row however
    # missing ones are treated.
    everything = {key: ["" if is_missing(value) else value for value in column] for key, column in columns.items()}
    row_id = np.arange(len(text), dtype=np.int64)
    labels = None if label is None else list(label)
    if missing and on_missing == "drop":
        row_id = np.setdiff1d(row_id, np.array(missing))
        labels = None if labels is None else [labels[i] for i in row_id]
        if len(row_id) == 0:
            raise DataError(f"{where}: the text of every row is missing")
    columns = {key: [column[i] for i in row_id] for key, column in everything.items()}
    labels, hidden = _check_labels(where, labels, row_id)
    return Texts(
        name=name,
        text=columns["text"],
        pair=columns.get("pair"),
        label=labels,
        row_id=row_id,
        split=split,
        hash=hash_texts(everything["text"], everything.get("pair")),
        label_names=label_names,
        labels_hidden=hidden,
        n_dropped=len(text) - len(row_id),
    )


def is_missing(value: Any) -> bool:
    """None, a float NaN, or pandas' NA; never a string."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return True
    return type(value).__name__ in ("NAType", "NaTType")


def _check_strings(where: str, columns: dict[str, list[Any]], on_missing: str) -> list[int]:
    """Rows with a missing text; raises for those and, always, for values that are no strings."""
    missing: list[int] = []
    wrong: list[int] = []
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        kinds = {_kind(value) for value in values}
        if kinds != {"text"}:
            (missing if kinds <= {"text", MISSING} else wrong).append(row)
    if wrong or (missing and on_missing == "error"):
        bad = sorted(wrong + (missing if on_missing == "error" else []))
        kind = next(kind for column in columns.values() if (kind := _kind(column[bad[0]])) != "text")
        advice = "; give --on-missing drop or empty to go on" if not wrong else ""
        raise DataError(
            f"{where}: {len(bad)} of {len(columns['text'])} rows unusable, {list_rows(bad)}: {kind}{advice}"
        )
    return missing


def _kind(value: Any) -> str:
    """``text`` if it can be tokenised, else what is wrong with it."""
    if is_missing(value):
        return MISSING
    if not isinstance(value, str):
        return f"expected a string, found {type(value).__name__}"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "half a surrogate pair, which is no character"
    return "text"


def _check_labels(where: str, labels: list[Any] | None, row_id: NDArray[np.int64]) -> tuple[list[Any] | None, bool]:
    """The labels, None where all are hidden; and whether they are. Decided by value: MRPC's test split has labels."""
    if labels is None or all(is_missing(label) for label in labels):
        return None, False
    numbers = [_number(label) for label in labels]
    hidden = [row for row, number in enumerate(numbers) if number == -1]
    if len(hidden) == len(labels):
        return None, True
    # −1 among other whole numbers is GLUE's mark of a hidden label, unless the classes are −1 and 1 themselves.
    whole = all(number is not None and number == int(number) for number in numbers)
    if hidden and whole and set(numbers) != {-1.0, 1.0}:
        raise DataError(
            f"{where}: {len(hidden)} of {len(labels)} labels are -1 (no label) among real ones, "
            f"{list_rows(row_id[hidden].tolist())}: leave those rows out, or give the class another name"
        )
    return labels, False


def _number(label: Any) -> float | None:
    if isinstance(label, bool) or is_missing(label):
        return None
    try:
        number = float(label)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None
