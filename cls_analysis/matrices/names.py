"""Names: which file and which of its arrays ``FILE#NAME`` means, and what messages call a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from cls_analysis.errors import DataError, one_line, unknown_name


def locate(source: str | Path) -> tuple[Path, str | None]:
    """File and array of ``FILE#NAME``; both may contain ``#``, so the longest file that exists is meant."""
    text = str(source)
    for cut in [len(text), *(position for position in reversed(range(len(text))) if text[position] == "#")]:
        if Path(text[:cut]).is_file():
            return Path(text[:cut]), text[cut + 1 :] if cut < len(text) else None
    return Path(text), None


def pick(path: Path, shapes: Mapping[str, tuple[int, ...]], name: str | None) -> str:
    """The array called ``name``; without a name the only matrix there is."""
    if name is not None:
        if name not in shapes:
            raise DataError(f"{path}: {one_line(unknown_name('array', name, shapes))}")
        return name
    matrices = [key for key, shape in shapes.items() if len(shape) == 2]
    if len(matrices) > 1:
        names = one_line(", ".join(matrices))
        raise DataError(f"{path}: holds {len(matrices)} matrices; pick one, as in {path.name}#{matrices[0]}: {names}")
    if not matrices:
        held = one_line(", ".join(f"{key} {shape}" for key, shape in shapes.items())) or "nothing"
        raise DataError(f"{path}: expected a matrix of numbers (n, d), it holds {held}")
    return matrices[0]


def refuse_name(path: Path, name: str | None) -> None:
    """Raise ``DataError`` if an array of a file is named that holds one matrix only."""
    if name is not None:
        raise DataError(f"{path}: holds one matrix without a name; leave #{name} away")


def column_note(columns: Sequence[str], dimension: int) -> str:
    """What messages add to the number of a dimension whose column has a name."""
    return f" (column {columns[dimension]!r})" if columns else ""
