"""Vectors that exist already: arrays in memory and matrices in files, read block by block.

A matrix is read twice, once to check and hash it and once to reduce it, so that a file may be larger than memory.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
import safetensors
from numpy.typing import ArrayLike, DTypeLike, NDArray

from cls_analysis.errors import DataError, one_line, unknown_name
from cls_analysis.moments import as_matrix, check_finite
from cls_analysis.profiles import Profile, ProfileBuilder, RowSums
from cls_analysis.provenance import BLOCK_ROWS, SAMPLE_ROWS, DatasetIdentity, Provenance, versions

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
#: Types of safetensors that NumPy has; bfloat16 is read apart.
SAFETENSORS = {"BOOL": np.dtype(bool)} | {
    f"{kind}{8 * size}": np.dtype(f"{kind.lower()}{size}")
    for kind, sizes in (("F", (2, 4, 8)), ("I", (1, 2, 4, 8)), ("U", (1, 2, 4, 8)))
    for size in sizes
}
#: Bytes of a csv file that are parsed at a time, at least as many as a line of numbers may have.
CSV_BYTES, CELL_BYTES = 1 << 20, 64

#: Hands out the rows of a matrix from the first on, in arrays of any number of rows; can be called again.
Read = Callable[[], Iterator[NDArray[Any]]]


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
    read : callable () -> iterator of arrays (m, d)
        Gives the rows in order.
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
        for number, block in enumerate(_regroup(self.read(), BLOCK_ROWS)):
            yield number * BLOCK_ROWS, np.ascontiguousarray(block, dtype=self.dtype)

    def check(self, block: NDArray[Any], first_row: int) -> None:
        """Raise ``DataError`` naming the first row and dimension of ``block`` that is not finite."""
        try:
            check_finite(block, first_row=first_row)
        except DataError as error:
            dimension = int(np.argwhere(~np.isfinite(block))[0, 1])
            raise DataError(f"{self.prefix}{error}{_named(self.columns, dimension)}") from None

    def hash(self) -> str:
        """``hash_arrays`` of the whole under the name ``vectors``, without having it in memory; checks every value."""
        digest = hashlib.blake2b(f"vectors|{self.dtype.str}|{self.shape}|".encode(), digest_size=16)
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
    return Matrix("", rows.shape, rows.dtype, lambda: iter((rows,))).profile(layer, name)


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
    path, array = _locate(source)
    ending = path.suffix.lower()
    if path.is_dir():
        raise DataError(f"{path}: a folder; expected a file ({', '.join(READERS)})")
    if not path.is_file():
        raise DataError(f"{path}: no such file")
    if ending not in READERS:
        raise DataError(f"{path}: {unknown_name('file type', ending or '(none)', READERS)}")
    before = _state(path)
    with _readable(path):
        matrix = READERS[ending](path, array)
    profile = replace(matrix, read=partial(_guarded, path, matrix.read)).profile(
        layer, path.name if array is None else f"{path.name}#{array}"
    )
    # The hash was made in the first reading, the sums in the second.
    if _state(path) != before:
        raise DataError(f"{path}: the file changed while it was read; profile it again")
    return profile


# -- files -----------------------------------------------------------------------------------------------------------


def _locate(source: str | Path) -> tuple[Path, str | None]:
    """File and array of ``FILE#NAME``; both may contain ``#``, so the longest file that exists is meant."""
    text = str(source)
    for cut in [len(text), *(position for position in reversed(range(len(text))) if text[position] == "#")]:
        if Path(text[:cut]).is_file():
            return Path(text[:cut]), text[cut + 1 :] if cut < len(text) else None
    return Path(text), None


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_size, found.st_mtime_ns


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Whatever a library says of a damaged file becomes one line."""
    try:
        yield
    except BROKEN as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or one_line(error, 120)
        raise DataError(f"{path}: not a readable {path.suffix.lower()} file ({reason})") from None


def _guarded(path: Path, read: Read) -> Iterator[NDArray[Any]]:
    # Around the reading alone: what fails in the arithmetic is not the file's fault.
    with _readable(path):
        yield from read()


def _pick(path: Path, shapes: Mapping[str, tuple[int, ...]], name: str | None) -> str:
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


def _refuse_name(path: Path, name: str | None) -> None:
    if name is not None:
        raise DataError(f"{path}: holds one matrix without a name; leave #{name} away")


# -- npy and npz -----------------------------------------------------------------------------------------------------


def _npy(path: Path, name: str | None) -> Matrix:
    _refuse_name(path, name)
    with path.open("rb") as file:
        shape, fortran, dtype = _npy_header(file)
        offset = file.tell()

    def read() -> Iterator[NDArray[Any]]:
        rows = np.memmap(path, dtype, mode="r", offset=offset, shape=shape, order="F" if fortran else "C")
        yield np.asarray(rows)

    return Matrix(str(path), shape, dtype, read)


def _npz(path: Path, name: str | None) -> Matrix:
    with zipfile.ZipFile(path) as archive:
        headers = {}
        for member in archive.namelist():
            if member.endswith(".npy"):
                with archive.open(member) as file:
                    headers[member.removesuffix(".npy")] = _npy_header(file)
    key = _pick(path, {array: header[0] for array, header in headers.items()}, name)
    shape, fortran, dtype = headers[key]
    matrix = Matrix(f"{path}#{key}", shape, dtype, partial(_npz_rows, path, f"{key}.npy"))
    if fortran:
        raise DataError(
            f"{matrix.where}: stored column by column (Fortran order), so that its rows cannot be streamed; "
            "save np.ascontiguousarray of it, or a .npy file"
        )
    return matrix


def _npz_rows(path: Path, member: str) -> Iterator[NDArray[Any]]:
    with zipfile.ZipFile(path) as archive, archive.open(member) as file:
        (n, dim), _, dtype = _npy_header(file)
        for start in range(0, n, BLOCK_ROWS):
            size = min(BLOCK_ROWS, n - start) * dim * dtype.itemsize
            data = file.read(size)
            if len(data) < size:
                raise EOFError(f"{member} ends before row {n - 1}")
            yield np.frombuffer(data, dtype=dtype).reshape(-1, dim)
        # Reading beyond the last row is what makes zipfile compare the checksum.
        if file.read(1):
            raise ValueError(f"{member} goes on after row {n - 1}")


def _npy_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether in Fortran order, and dtype; ``file`` stands at the first value then."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    # Version 3 is for field names beyond Latin-1, which no matrix has.
    raise ValueError(f"version {version} of the format")


# -- safetensors -----------------------------------------------------------------------------------------------------


def _safetensors(path: Path, name: str | None) -> Matrix:
    with safetensors.safe_open(path, framework="numpy") as file:
        slices = {key: file.get_slice(key) for key in file.keys()}  # noqa: SIM118 (not a mapping)
        shapes = {key: tuple(each.get_shape()) for key, each in slices.items()}
        key = _pick(path, shapes, name)
        kind, where = slices[key].get_dtype(), f"{path}#{key}"
    if kind == "BF16":
        rows = partial(_bfloat16_rows, path, key, shapes[key])
        return Matrix(where, shapes[key], np.dtype(np.float32), rows, precision="bfloat16")
    if kind not in SAFETENSORS:
        raise DataError(f"{where}: expected a matrix of BF16, {', '.join(SAFETENSORS)}, got {kind}")
    return Matrix(where, shapes[key], SAFETENSORS[kind], partial(_safetensors_rows, path, key, shapes[key][0]))


def _safetensors_rows(path: Path, key: str, n: int) -> Iterator[NDArray[Any]]:
    with safetensors.safe_open(path, framework="numpy") as file:
        rows = file.get_slice(key)
        for start in range(0, n, BLOCK_ROWS):
            # Unlike NumPy's, these slices must not reach beyond the end.
            yield rows[start : min(start + BLOCK_ROWS, n)]


def _bfloat16_rows(path: Path, key: str, shape: tuple[int, ...]) -> Iterator[NDArray[Any]]:
    """Rows as float32, whose upper half a bfloat16 is; NumPy has none, so the bytes are taken from the file itself."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        begin = json.loads(file.read(length))[key]["data_offsets"][0]
    halves = np.memmap(path, dtype="<u2", mode="r", offset=8 + length + begin, shape=shape)
    for start in range(0, shape[0], BLOCK_ROWS):
        yield (np.asarray(halves[start : start + BLOCK_ROWS]).astype(np.uint32) << 16).view(np.float32)


# -- parquet ---------------------------------------------------------------------------------------------------------


def _parquet(path: Path, name: str | None) -> Matrix:
    with _parquet_file(path) as file:
        schema, n = file.schema_arrow, file.metadata.num_rows
    lists = {field.name: field.type for field in schema if _is_list(field.type) and _is_number(field.type.value_type)}
    if not lists:
        _refuse_name(path, name)
        return _numeric_columns(path, schema, n)
    key = _pick(path, dict.fromkeys(lists, (n, 0)), name)
    where = f"{path}#{key}"
    dim = _list_size(path, where, key)
    read = partial(_parquet_lists, path, where, key, dim)
    return Matrix(where, (n, dim), _numpy_type(lists[key].value_type), read)


def _numeric_columns(path: Path, schema: Any, n: int) -> Matrix:
    # The index that pandas writes along is not a dimension.
    index = [key for key in (schema.pandas_metadata or {}).get("index_columns", ()) if isinstance(key, str)]
    fields = [field for field in schema if field.name not in index]
    for field in fields:
        if not _is_number(field.type):
            raise DataError(f"{path}: column {field.name!r}: expected numbers, or lists of numbers, found {field.type}")
    names = [field.name for field in fields]
    dtype: np.dtype[Any] = np.result_type(np.float16, *(as_float(_numpy_type(field.type)) for field in fields))
    return Matrix(str(path), (n, len(names)), dtype, partial(_parquet_columns, path, names, dtype), names)


def _parquet_file(path: Path) -> Any:
    # Mapped: a file may be one row group, and reading that one would be reading all.
    return pa.parquet.ParquetFile(path, memory_map=True)


def _parquet_columns(path: Path, names: list[str], dtype: np.dtype[Any]) -> Iterator[NDArray[Any]]:
    first_row = 0
    with _parquet_file(path) as file:
        for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=names):
            missing = [(_first_null(each), number) for number, each in enumerate(batch.columns) if each.null_count]
            if missing:
                row, dimension = min(missing)
                named = _named(names, dimension)
                raise DataError(f"{path}: row {first_row + row}, dimension {dimension}: no value{named}")
            yield _stack(batch, dtype)
            first_row += batch.num_rows


def _parquet_lists(path: Path, where: str, name: str, dim: int) -> Iterator[NDArray[Any]]:
    first_row = 0
    with _parquet_file(path) as file:
        for batch in file.iter_batches(batch_size=BLOCK_ROWS, columns=[name]):
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
            first_row += batch.num_rows


def _list_size(path: Path, where: str, name: str) -> int:
    """Length of the first list, which all have to have."""
    with _parquet_file(path) as file:
        for batch in file.iter_batches(batch_size=1, columns=[name]):
            if first := batch.column(name)[0].as_py():
                return len(first)
            raise DataError(f"{where}: row 0: expected numbers, found none")
    return 0


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


# -- csv -------------------------------------------------------------------------------------------------------------


def _csv(path: Path, name: str | None) -> Matrix:
    _refuse_name(path, name)
    with path.open(encoding="utf-8-sig", newline="") as file:
        cells = next(csv.reader(file), None)
        more = file.read(1) != ""
    if not cells:
        found = "an empty file" if cells is None else "a blank first line"
        raise DataError(f"{path}: expected rows of numbers, with or without a header, found {found}")
    header = _is_header(path, cells)
    table = _CsvTable(path, cells, header)
    # Arrow does not take a header alone.
    n = sum(batch.num_rows for batch in table.batches()) if more or not header else 0
    return Matrix(str(path), (n, len(cells)), np.dtype(np.float64), table.rows, cells if header else ())


@dataclass(frozen=True)
class _CsvTable:
    path: Path
    first_line: list[str]
    header: bool

    @property
    def block_size(self) -> int:
        """Bytes to parse at a time; Arrow wants every line to fit in."""
        return max(CSV_BYTES, CELL_BYTES * len(self.first_line))

    def rows(self) -> Iterator[NDArray[Any]]:
        return (_stack(batch, np.float64) for batch in self.batches())

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
            named = _named(self.first_line if self.header else (), dimension)
            return f"row {row}, dimension {dimension}: expected a number, found {one_line(found[3], 80)!r}{named}"
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


# -- pieces ----------------------------------------------------------------------------------------------------------


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


def _stack(batch: Any, dtype: DTypeLike) -> NDArray[Any]:
    """The columns of a record batch as a matrix."""
    rows = np.empty((batch.num_rows, batch.num_columns), dtype=dtype)
    for dimension, column in enumerate(batch.columns):
        rows[:, dimension] = column.to_numpy(zero_copy_only=False)
    return rows


def _named(columns: Sequence[str], dimension: int) -> str:
    return f" (column {columns[dimension]!r})" if columns else ""


READERS: dict[str, Callable[[Path, str | None], Matrix]] = {
    ".csv": _csv,
    ".npy": _npy,
    ".npz": _npz,
    ".parquet": _parquet,
    ".safetensors": _safetensors,
}
