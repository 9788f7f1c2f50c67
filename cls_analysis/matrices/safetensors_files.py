"""Matrices in ``.safetensors`` files, mapped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

from cls_analysis.errors import DataError
from cls_analysis.matrices.matrix import Matrix
from cls_analysis.matrices.names import pick

#: Types of the format -> how they lie on the disk. NumPy has no bfloat16: its bits are read instead.
TYPES = {"BF16": np.dtype("<u2"), "BOOL": np.dtype(bool)} | {
    f"{kind}{8 * size}": np.dtype(f"<{kind.lower()}{size}")
    for kind, sizes in (("F", (2, 4, 8)), ("I", (1, 2, 4, 8)), ("U", (1, 2, 4, 8)))
    for size in sizes
}


def open_safetensors(path: Path, name: str | None) -> Matrix:
    """A tensor of the file; bfloat16 becomes float32."""
    # The library checks the file, but does not say where in it the values are.
    with safetensors.safe_open(path, framework="numpy") as checked, path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        shapes = {key: tuple(header[key]["shape"]) for key in checked.keys()}  # noqa: SIM118 (not a mapping)
    key = pick(path, shapes, name)
    where, shape, kind = f"{path}#{key}", shapes[key], header[key]["dtype"]
    if kind not in TYPES:
        raise DataError(f"{where}: expected a matrix of {', '.join(TYPES)}, got {kind}")
    dtype, offset = TYPES[kind], 8 + length + header[key]["data_offsets"][0]

    def read(size: int) -> Iterable[NDArray[Any]]:
        rows = np.asarray(np.memmap(path, dtype, mode="r", offset=offset, shape=shape))
        return _from_bfloat16(rows, size) if kind == "BF16" else (rows,)

    if kind == "BF16":
        return Matrix(where, shape, np.dtype(np.float32), read, precision="bfloat16")
    return Matrix(where, shape, dtype, read)


def _from_bfloat16(bits: NDArray[Any], size: int) -> Iterator[NDArray[Any]]:
    """Rows as float32, whose upper half a bfloat16 is."""
    for start in range(0, len(bits), size):
        yield (bits[start : start + size].astype(np.uint32) << 16).view(np.float32)
