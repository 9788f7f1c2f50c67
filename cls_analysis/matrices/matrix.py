"""``Matrix``: rows that are read block by block, twice: once to check and hash them, once to reduce them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cls_analysis.errors import DataError
from cls_analysis.matrices.names import column_note
from cls_analysis.moments import check_finite
from cls_analysis.profiles import Profile, ProfileBuilder, RowSums
from cls_analysis.provenance import BLOCK_ROWS, SAMPLE_ROWS, DatasetIdentity, Provenance, array_header, versions

#: Hands out the rows of a matrix from the first on, best as many at a time as it is asked for; can be called again.
Read = Callable[[int], Iterable[NDArray[Any]]]


@dataclass(frozen=True)
class Matrix:
    """Rows that can be read as often as wanted, a block at a time.

    Attributes
    ----------
    where : str
        The file, and the array in it, for messages; empty for an array in memory.
    shape : (n, d)
    stored : dtype
        The dtype it is stored in.
    read : callable (rows at a time) -> arrays (m, d)
        Gives the rows in order, in arrays of any number of rows. What is mapped may come as one.
    columns : sequence of str
        Names of the dimensions, if they have any.
    precision : str, optional
        The dtype whose rounding the values have, where it is not theirs.

    Raises
    ------
    DataError
        If it is not a matrix of real numbers with at least one row and one column.
    """

    where: str
    shape: tuple[int, ...]
    stored: np.dtype[Any]
    read: Read
    columns: Sequence[str] = ()
    precision: str | None = None

    def __post_init__(self) -> None:
        expected = f"{self.prefix}expected a matrix of numbers (n, d)"
        if len(self.shape) != 2 or self.stored.kind not in "fiub":
            pickled = "; pickled objects are never loaded" if self.stored.hasobject else ""
            raise DataError(f"{expected}, got {self.stored} of shape {self.shape}{pickled}")
        if min(self.shape) < 1:
            raise DataError(f"{expected} with rows and columns, got shape {self.shape}")

    @property
    def prefix(self) -> str:
        """What messages begin with."""
        return f"{self.where}: " if self.where else ""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of its blocks: float16, 32 and 64 stay what they are, all else becomes float64."""
        return as_float(self.stored)

    def blocks(self) -> Iterator[tuple[int, NDArray[Any]]]:
        """Number of the first row, and a C-contiguous array of BLOCK_ROWS rows; the last one may have fewer."""
        for number, block in enumerate(_regroup(self.read(BLOCK_ROWS), BLOCK_ROWS)):
            yield number * BLOCK_ROWS, np.ascontiguousarray(block, dtype=self.dtype)

    def check(self, block: NDArray[Any], first_row: int) -> None:
        """Raise ``DataError`` naming the first row and dimension of ``block`` that is not finite."""
        try:
            check_finite(block, first_row=first_row)
        except DataError as error:
            dimension = int(np.argwhere(~np.isfinite(block))[0, 1])
            raise DataError(f"{self.prefix}{error}{column_note(self.columns, dimension)}") from None

    def hash(self) -> str:
        """``hash_arrays`` of the whole under the name ``vectors``, without having it in memory; checks every value."""
        digest = hashlib.blake2b(array_header("vectors", self.dtype, self.shape), digest_size=16)
        for first_row, block in self.blocks():
            self.check(block, first_row)
            digest.update(block.data.cast("B"))
        return digest.hexdigest()

    def profile(self, layer: int, name: str) -> Profile:
        """Its Profile, as layer ``layer`` of the data set ``name``."""
        provenance = Provenance(
            encoder=None,
            layers=(layer,),
            datasets=(DatasetIdentity(name, None, self.hash()),),
            parts=(),
            dtype=self.precision or self.dtype.name,
            sample_rows=SAMPLE_ROWS,
            versions=versions(),
        )
        builder = ProfileBuilder(provenance)
        for first_row, block in self.blocks():
            row_ids = np.arange(first_row, first_row + len(block), dtype=np.int64)
            builder.add({layer: RowSums.of(block)}, row_ids, lambda _, positions, block=block: block[positions])
        return builder.finish()


def as_float(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that vectors stored as ``dtype`` are taken in."""
    return dtype if dtype.kind == "f" and dtype.itemsize <= 8 else np.dtype(np.float64)


def _regroup(arrays: Iterable[NDArray[Any]], size: int) -> Iterator[NDArray[Any]]:
    """The same rows, ``size`` at a time: what is summed together must not depend on the format."""
    held: list[NDArray[Any]] = []
    missing = size
    for array in arrays:
        start = 0
        while start < len(array):
            held.append(array[start : start + missing])
            start += len(held[-1])
            missing -= len(held[-1])
            if missing == 0:
                yield np.concatenate(held)
                held, missing = [], size
    if held:
        yield np.concatenate(held)
