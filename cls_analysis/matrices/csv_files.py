"""Matrices in ``.csv`` files, with or without a header."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from cls_analysis.errors import DataError, one_line
from cls_analysis.matrices.matrix import Matrix
from cls_analysis.matrices.names import column_note, refuse_name

#: Bytes that are parsed at a time, at least as many as a line of numbers may have.
CSV_BYTES, CELL_BYTES = 1 << 20, 64


def open_csv(path: Path, name: str | None) -> Matrix:
    """The numbers of the file as float64; they are parsed once to count the rows."""
    refuse_name(path, name)
    with path.open(encoding="utf-8-sig", newline="") as file:
        cells = next(csv.reader(file), None)
        more = file.read(1) != ""
    if not cells:
        found = "an empty file" if cells is None else "a blank first line"
        raise DataError(f"{path}: expected rows of numbers, with or without a header, found {found}")
    header = _is_header(path, cells)
    table = _Table(path, cells, header)
    # Arrow does not take a header alone.
    n = sum(batch.num_rows for batch in table.batches()) if more or not header else 0
    return Matrix(str(path), (n, len(cells)), np.dtype(np.float64), table.rows, cells if header else ())


@dataclass(frozen=True)
class _Table:
    path: Path
    first_line: list[str]
    header: bool

    @property
    def block_size(self) -> int:
        """Bytes to parse at a time; Arrow wants every line to fit in."""
        return max(CSV_BYTES, CELL_BYTES * len(self.first_line))

    def rows(self, _: int) -> Iterator[NDArray[Any]]:
        """Matrices of as many rows as are parsed at a time."""
        for batch in self.batches():
            yield np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], axis=1)

    def batches(self) -> Iterator[Any]:
        """Record batches of float64 columns."""
        # Own names, so that repeated ones in the header do not fold into one column.
        names = [str(dimension) for dimension in range(len(self.first_line))]
        try:
            with pa.csv.open_csv(
                self.path,
                # One thread, so that errors name the row.
                read_options=pa.csv.ReadOptions(
                    block_size=self.block_size,
                    use_threads=False,
                    column_names=names,
                    skip_rows_after_names=int(self.header),
                ),
                # In a file of one column a blank line may be a missing value.
                parse_options=pa.csv.ParseOptions(ignore_empty_lines=len(names) > 1),
                convert_options=pa.csv.ConvertOptions(
                    column_types=dict.fromkeys(names, pa.float64()), null_values=[], strings_can_be_null=False
                ),
            ) as reader:
                yield from reader
        except pa.ArrowInvalid as error:
            raise DataError(f"{self.path}: {self._explain(str(error))}") from None

    def _explain(self, message: str) -> str:
        """Arrow's message with the row counted from 0 after the header, as everywhere else."""
        found = re.search(r"Row #(\d+): Expected (\d+) columns, got (\d+)", message)
        if found:
            row = int(found[1]) - 1 - self.header
            return f"row {row}: expected {found[2]} numbers, as many as the first line has cells, found {found[3]}"
        found = re.search(r"column #(\d+): Row #(\d+): .* invalid value '(.*)'", message, flags=re.DOTALL)
        if found:
            row, dimension = int(found[2]) - 1 - self.header, int(found[1])
            note = column_note(self.first_line if self.header else (), dimension)
            return f"row {row}, dimension {dimension}: expected a number, found {one_line(found[3], 80)!r}{note}"
        if "straddling" in message:
            return f"a line is longer than {self.block_size} bytes, {CELL_BYTES} for each number of the first line"
        return one_line(message, 160)


def _is_header(path: Path, cells: list[str]) -> bool:
    """Whether the first line names the columns; where it may do or not, a row would be lost or made up: refused."""
    if cells == [str(number) for number in range(len(cells))]:
        raise DataError(
            f"{path}: the first line counts from 0 to {len(cells) - 1}: pandas' numbers of the columns, or a row? "
            "Write names of columns there, or the numbers as 0.0, 1.0, …"
        )
    numbers = [cell for cell in cells if _reads_as_number(cell)]
    # Columns may be called 0 and 1 beside others, but not 0.25: that is a row with a cell that is wrong.
    if len(numbers) == len(cells) or not all(cell.strip().isdigit() for cell in numbers):
        return False
    unnamed = [dimension for dimension, cell in enumerate(cells) if not cell.strip()]
    if unnamed:
        raise DataError(
            f"{path}: the header has no name for dimension {unnamed[0]}; an index that was written along has to go"
        )
    return True


def _reads_as_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
