"""The formats a matrix may be stored in, and what their libraries say of a damaged file."""

from __future__ import annotations

import csv
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import safetensors
from numpy.typing import NDArray

from cls_analysis.errors import DataError, one_line, unknown_name
from cls_analysis.matrices.csv_files import open_csv
from cls_analysis.matrices.matrix import Matrix, Read
from cls_analysis.matrices.numpy_files import open_npy, open_npz
from cls_analysis.matrices.parquet_files import open_parquet
from cls_analysis.matrices.safetensors_files import open_safetensors

#: Ending -> what makes a Matrix of a file and the name of one of its arrays.
READERS: dict[str, Callable[[Path, str | None], Matrix]] = {
    ".csv": open_csv,
    ".npy": open_npy,
    ".npz": open_npz,
    ".parquet": open_parquet,
    ".safetensors": open_safetensors,
}
#: What libraries raise for a file that is not what its ending says.
BROKEN = (
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
    csv.Error,
    pa.ArrowException,
    safetensors.SafetensorError,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)


def open_matrix(path: Path, array: str | None) -> Matrix:
    """The matrix in a file; whatever a library says of a damaged one becomes one line, now and when it is read."""
    ending = path.suffix.lower()
    if path.is_dir():
        raise DataError(f"{path}: a folder; expected a file ({', '.join(READERS)})")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if ending not in READERS:
        raise DataError(f"{path}: {unknown_name('file type', ending or '(none)', READERS)}")
    with _readable(path):
        state = _state(path)
        matrix = READERS[ending](path, array)
    return replace(matrix, read=partial(_guarded, path, state, matrix.read))


def _guarded(path: Path, state: tuple[int, int], read: Read, size: int) -> Iterator[NDArray[Any]]:
    # Around the reading alone: what fails in the arithmetic is not the file's fault.
    with _readable(path):
        yield from read(size)
        # Hash and sums come from two readings, which must be of the same rows.
        if _state(path) != state:
            raise DataError(f"{path}: the file changed while it was read; profile it again")


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except BROKEN as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or one_line(error, 120)
        raise DataError(f"{path}: not a readable {path.suffix.lower()} file ({reason})") from None


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns
