"""Matrices in ``.parquet`` files: numeric columns, or a column of lists."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from cls_analysis.errors import DataError
from cls_analysis.matrices.matrix import Matrix, as_float
from cls_analysis.matrices.names import column_note, pick, refuse_name


def open_parquet(path: Path, name: str | None) -> Matrix:
    """A column of lists of numbers; all columns, where there is none."""
    with _file(path) as file:
        schema, n = file.schema_arrow, file.metadata.num_rows
    lists = {field.name: field.type for field in schema if _is_list(field.type) and _is_number(field.type.value_type)}
    if not lists:
        refuse_name(path, name)
        return _numeric_columns(path, schema, n)
    key = pick(path, dict.fromkeys(lists, (n, 0)), name)
    where = f"{path}#{key}"
    dim = _list_size(path, where, key)
    return Matrix(where, (n, dim), _numpy_type(lists[key].value_type), partial(_list_rows, path, where, key, dim))


def _numeric_columns(path: Path, schema: Any, n: int) -> Matrix:
    # The index that pandas writes along is not a dimension.
    index = [key for key in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(key, str)]
    fields = [field for field in schema if field.name not in index]
    for field in fields:
        if not _is_number(field.type):
            raise DataError(f"{path}: column {field.name!r}: expected numbers, or lists of numbers, found {field.type}")
    names = [field.name for field in fields]
    dtype: np.dtype[Any] = np.result_type(np.float16, *(as_float(_numpy_type(field.type)) for field in fields))
    return Matrix(str(path), (n, len(names)), dtype, partial(_column_rows, path, names, dtype), names)


def _column_rows(path: Path, names: list[str], dtype: np.dtype[Any], size: int) -> Iterator[NDArray[Any]]:
    for first_row, batch in _batches(path, names, size):
        missing = [(_first_null(each), number) for number, each in enumerate(batch.columns) if each.null_count]
        if missing:
            row, dimension = min(missing)
            note = column_note(names, dimension)
            raise DataError(f"{path}: row {first_row + row}, dimension {dimension}: no value{note}")
        yield np.stack([each.to_numpy(zero_copy_only=False) for each in batch.columns], axis=1, dtype=dtype)


def _list_rows(path: Path, where: str, name: str, dim: int, size: int) -> Iterator[NDArray[Any]]:
    for first_row, batch in _batches(path, [name], size):
        column = batch.column(name)
        sizes = pa.compute.fill_null(pa.compute.list_value_length(column), 0).to_numpy()
        if (sizes != dim).any():
            row = int(np.flatnonzero(sizes != dim)[0])
            raise DataError(f"{where}: row {first_row + row}: expected {dim} numbers, found {sizes[row]}")
        values = column.flatten()
        if values.null_count:
            row, dimension = divmod(_first_null(values), dim)
            raise DataError(f"{where}: row {first_row + row}, dimension {dimension}: no value")
        yield values.to_numpy(zero_copy_only=False).reshape(-1, dim)


def _list_size(path: Path, where: str, name: str) -> int:
    """Length of the first list, which all have to have."""
    for _, batch in _batches(path, [name], 1):
        if first := batch.column(name)[0].as_py():
            return len(first)
        raise DataError(f"{where}: row 0: expected numbers, found none")
    return 0


def _batches(path: Path, columns: list[str], size: int) -> Iterator[tuple[int, Any]]:
    """Number of the first row, and a record batch of at most ``size`` rows."""
    first_row = 0
    with _file(path) as file:
        for batch in file.iter_batches(batch_size=size, columns=columns):
            yield first_row, batch
            first_row += batch.num_rows


def _file(path: Path) -> Any:
    # Mapped: a file may be one row group, and reading that one would be reading all.
    return pa.parquet.ParquetFile(path, memory_map=True)


def _is_list(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_number(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))


def _numpy_type(kind: Any) -> np.dtype[Any]:
    dtype: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return dtype


def _first_null(column: Any) -> int:
    return int(pa.compute.index(column.is_null(), True).as_py())
