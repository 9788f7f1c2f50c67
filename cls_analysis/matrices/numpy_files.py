"""Matrices in ``.npy`` and ``.npz`` files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from cls_analysis.errors import DataError
from cls_analysis.matrices.matrix import Matrix
from cls_analysis.matrices.names import pick, refuse_name


def open_npy(path: Path, name: str | None) -> Matrix:
    """The array of a ``.npy`` file, mapped."""
    refuse_name(path, name)
    with path.open("rb") as file:
        shape, _, dtype = _header(file)
    return Matrix(str(path), shape, dtype, lambda _: (np.asarray(np.lib.format.open_memmap(path, mode="r")),))


def open_npz(path: Path, name: str | None) -> Matrix:
    """An array of a ``.npz`` file, whether compressed or not."""
    with zipfile.ZipFile(path) as archive:
        headers = {}
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    headers[member.removesuffix(".npy")] = _header(file)
    key = pick(path, {array: header[0] for array, header in headers.items()}, name)
    shape, fortran, dtype = headers[key]
    matrix = Matrix(f"{path}#{key}", shape, dtype, partial(_npz_rows, path, f"{key}.npy"))
    if fortran:
        raise DataError(
            f"{matrix.where}: stored column by column (Fortran order), so that its rows cannot be streamed; "
            "save np.ascontiguousarray of it, or a .npy file"
        )
    return matrix


def _npz_rows(path: Path, member: str, size: int) -> Iterator[NDArray[Any]]:
    with zipfile.ZipFile(path) as archive, archive.open(member) as file:
        (n, dim), _, dtype = _header(file)
        for start in range(0, n, size):
            expected = min(size, n - start) * dim * dtype.itemsize
            data = file.read(expected)
            if len(data) < expected:
                raise EOFError(f"{member} ends before row {n - 1}")
            yield np.frombuffer(data, dtype=dtype).reshape(-1, dim)
        # Reading beyond the last row is what makes zipfile compare the checksum.
        if file.read(1):
            raise ValueError(f"{member} goes on after row {n - 1}")


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and dtype; ``file`` stands at the first value then."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    # Version 3 is for field names beyond Latin-1, which no matrix has.
    raise ValueError(f"version {version} of the format")
