"""Profiles of vectors that exist already, in memory or in a file."""

from __future__ import annotations

from pathlib import Path

from numpy.typing import ArrayLike

from cls_analysis.matrices.formats import open_matrix
from cls_analysis.matrices.matrix import Matrix
from cls_analysis.matrices.names import locate
from cls_analysis.moments import as_matrix
from cls_analysis.profiles import Profile


def profile_vectors(array: ArrayLike, *, layer: int = -1, name: str = "vectors") -> Profile:
    """A Profile of vectors that exist already.

    Parameters
    ----------
    array : array-like, shape (n, d)
        One vector a row; a memory map is read block by block.
    layer : int, default -1
        The number to give them.
    name : str, default "vectors"
        What to call them in tables and figures.

    Raises
    ------
    DataError
        If it is not a matrix of numbers with at least one row and column, or a value is not finite.
    """
    rows = as_matrix(array)
    return Matrix("", rows.shape, rows.dtype, lambda _: (rows,)).profile(layer, name)


def profile_matrix(source: str | Path, *, layer: int = -1) -> Profile:
    """A Profile of the matrix in a file, the same as ``profile_vectors`` of it; memory does not grow with its rows.

    Parameters
    ----------
    source : str or Path
        A file with one vector a row: ``.npy``, ``.npz``, ``.safetensors``, ``.parquet`` (numeric columns, or one column
        of lists) or ``.csv`` (with or without a header). ``FILE#NAME`` picks one of several arrays or list columns.
        The file's name becomes that of the data set.
    layer : int, default -1
        The number to give them.

    Raises
    ------
    DataError
        If there is no such file or array, the ending is unknown, the file is damaged or changes meanwhile, it is not a
        matrix of numbers with at least one row and column, or a value is missing or not finite. The message has the
        file and, where it is a value's fault, row and dimension, both counted from 0 without the header.
    """
    path, array = locate(source)
    return open_matrix(path, array).profile(layer, path.name if array is None else f"{path.name}#{array}")
