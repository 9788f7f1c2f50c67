"""File formats: csv, tsv, jsonl, parquet and txt, each read into named columns.

Cells keep what the file says: ``NA``, ``null`` and ``007`` are texts, only an absent cell is missing.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from cls_analysis.errors import DataError, one_line, unknown_name

#: Last row given to the parser behind the file's own.
_MARK = "\x1aend of file\x1a"


class RawTable(dict[str, list[Any]]):
    """Columns by name; ``names`` keeps the header as it stands, repeated names included."""

    def __init__(self, names: Sequence[str], columns: Sequence[list[Any]]) -> None:
        super().__init__(zip(names, columns, strict=True))
        self.names = list(names)


def read_file(path: Path, encoding: str) -> RawTable:
    """Read a file by its ending.

    Raises
    ------
    DataError
        If it is not there, has an unknown ending, cannot be decoded (with the byte), or is malformed (with the row).
    """
    if path.is_dir():
        raise DataError(f"{path}: a folder; expected a file ({', '.join(sorted(READERS))})")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    ending = path.suffix.lower()
    if ending not in READERS:
        raise DataError(f"{path}: {unknown_name('file type', ending or '(none)', sorted(READERS))}")
    return READERS[ending](path, encoding)


def decode(data: bytes, where: str, encoding: str) -> str:
    """Decode ``data``; a byte-order mark is dropped, a bad byte named."""
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{where}: byte {error.start} (0x{data[error.start]:02x}) is not valid {encoding}; "
            "give the file's encoding with --encoding, as in --encoding latin-1"
        ) from None
    except (LookupError, ValueError):
        raise DataError(f"{where}: unknown encoding {encoding!r}") from None
    return text.removeprefix("\ufeff")


def read_text(path: Path, encoding: str) -> str:
    """The whole of a text file, decoded."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error
    return decode(data, str(path), encoding)


def parse_delimited(text: str, where: str, *, delimiter: str, quoting: bool, header: Sequence[str] | None) -> RawTable:
    """Parse delimited text; every cell is a str, or None where it is absent.

    Parameters
    ----------
    quoting : bool
        Whether ``"`` quotes a field (csv) or is a letter (tsv). An unquoted empty cell is absent, ``""`` is empty.
    header : sequence of str, or None
        Column names of a file without a header.
    """
    if not text.strip():
        raise DataError(f"{where}: the file is empty")
    names = list(header) if header else _header(text, where, delimiter, quoting)
    # A last row of our own: an unclosed quote swallows it, and a header without a line feed is no special case.
    mark = delimiter.join([_MARK] * len(names))
    data = (text if text.endswith("\n") else text + "\n").encode("utf-8", "surrogatepass") + mark.encode() + b"\n"
    # Own names while parsing, so that repeated ones in the header do not fold into one column.
    numbered = [f"column {index}" for index in range(len(names))]
    try:
        table = pa.csv.read_csv(
            pa.py_buffer(data),
            # One block for the whole file: rows of any size fit, and errors name the row.
            read_options=pa.csv.ReadOptions(
                block_size=min(max(len(data) + 1, 1 << 16), 2**31 - 1),
                use_threads=False,
                column_names=numbered,
                skip_rows_after_names=0 if header else 1,
            ),
            parse_options=pa.csv.ParseOptions(
                delimiter=delimiter,
                quote_char='"' if quoting else False,
                double_quote=quoting,
                newlines_in_values=quoting,
                ignore_empty_lines=False,
            ),
            convert_options=pa.csv.ConvertOptions(
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                # Every column as text: a label "01" or a text "007" stays what it is.
                column_types=dict.fromkeys(numbered, pa.string()),
            ),
        )
    except pa.ArrowInvalid as error:
        raise DataError(f"{where}: {_parse_error(str(error), header is None)}") from None
    columns = [table.column(index).to_pylist() for index in range(table.num_columns)]
    if not columns[0] or columns[0][-1] != _MARK:
        raise DataError(f'{where}: row {max(len(columns[0]) - 1, 0)}: a quote (") is opened and never closed')
    columns = [column[:-1] for column in columns]
    if len(columns) == 1:
        # In a file of one column a blank line is the only way to write an empty text.
        columns = [["" if cell is None else cell for cell in columns[0]]]
    return RawTable(names, columns)


def _header(text: str, where: str, delimiter: str, quoting: bool) -> list[str]:
    reader = csv.reader(
        io.StringIO(text, newline=""),
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if quoting else csv.QUOTE_NONE,
        strict=True,
    )
    try:
        names = next(reader)
    except (csv.Error, StopIteration) as error:
        raise DataError(f"{where}: no header could be read ({error})") from None
    if not names:
        raise DataError(f"{where}: the first line is blank; expected a header")
    return names


def _parse_error(message: str, has_header: bool) -> str:
    """Arrow's message with the row counted from 0 after the header, as everywhere else."""
    found = re.search(r"Row #(\d+): (Expected \d+ columns, got \d+): (.*)", message, flags=re.DOTALL)
    if not found:
        return one_line(message, 160)
    row = int(found[1]) - (2 if has_header else 1)
    return f"row {row}: {found[2].lower()}: {one_line(found[3], 80)!r}"


def _read_csv(path: Path, encoding: str) -> RawTable:
    return parse_delimited(read_text(path, encoding), str(path), delimiter=",", quoting=True, header=None)


def _read_tsv(path: Path, encoding: str) -> RawTable:
    return parse_delimited(read_text(path, encoding), str(path), delimiter="\t", quoting=False, header=None)


def _read_jsonl(path: Path, encoding: str) -> RawTable:
    rows: list[dict[str, Any]] = []
    # Split at line feeds alone: JSON may hold other line separators inside its strings.
    lines = read_text(path, encoding).split("\n")
    for number, line in enumerate(lines[:-1] if lines[-1].strip() == "" else lines):
        try:
            row = json.loads(line, object_pairs_hook=_without_repeats)
        except DataError as error:
            raise DataError(f"{path}: row {number}: {error}") from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path}: row {number} is not JSON ({error})") from None
        if not isinstance(row, dict):
            raise DataError(f"{path}: row {number}: expected a JSON object, found {type(row).__name__}")
        rows.append(row)
    if not rows:
        raise DataError(f"{path}: the file is empty")
    names = list(dict.fromkeys(name for row in rows for name in row))
    return RawTable(names, [[row.get(name) for row in rows] for name in names])


def _without_repeats(items: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, unless a key stands in it twice: Python would keep the last value without a word."""
    row = dict(items)
    if len(row) < len(items):
        keys = [key for key, _ in items]
        raise DataError(f"repeated key {next(key for key in keys if keys.count(key) > 1)!r}")
    return row


def _read_parquet(path: Path, encoding: str) -> RawTable:
    try:
        table = pa.parquet.ParquetFile(path).read()
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({one_line(error, 120)})") from None
    return RawTable(table.column_names, [column.to_pylist() for column in table.columns])


def _read_txt(path: Path, encoding: str) -> RawTable:
    return RawTable(["text"], [split_lines(read_text(path, encoding))])


def split_lines(text: str) -> list[str]:
    """One text a line. Only line feeds end a line; U+2028 and its like are part of the text."""
    lines = text.split("\n")
    if lines and lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


READERS: dict[str, Callable[[Path, str], RawTable]] = {
    ".csv": _read_csv,
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
    ".txt": _read_txt,
}
