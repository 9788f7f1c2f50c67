"""Matrices in files: every format gives the Profile of the array, block by block, or one line that says why not."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tracemalloc
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from cls_analysis import Profile, profile_matrix, profile_vectors
from cls_analysis.errors import DataError
from cls_analysis.matrices import READERS, Matrix, csv_files, matrix
from cls_analysis.profiles import RowSums
from cls_analysis.provenance import hash_arrays

N, D = 50, 3


@pytest.fixture(scope="module", autouse=True)
def versions_read_once():
    """Reading the versions of all packages takes longer than profiling a small matrix, and more memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix, "versions", functools.cache(matrix.versions))
        yield


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of eight rows: fifty rows make seven. A csv file is parsed in pieces that cut across them."""
    monkeypatch.setattr(matrix, "BLOCK_ROWS", 8)
    monkeypatch.setattr(csv_files, "CSV_BYTES", 256)


def vectors(n: int = N, d: int = D, dtype="float32") -> np.ndarray:
    return (np.random.default_rng(0).standard_normal((n, d)) * 9 + 2).astype(dtype)


def write_bfloat16(path, x):
    """A safetensors file by hand: the upper halves of float32."""
    data = (np.ascontiguousarray(x).view("<u4") >> 16).astype("<u2").tobytes()
    header = json.dumps({"x": {"dtype": "BF16", "shape": x.shape, "data_offsets": [0, len(data)]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + data)


def write_table(path, table, **options):
    pa.parquet.write_table(pa.table(table), path, **options)


def columns_of(x) -> dict:
    return {f"d{i}": column for i, column in enumerate(x.T)}


def with_ids(x) -> dict:
    return {"id": [str(row) for row in range(len(x))], "x": pa.FixedSizeListArray.from_arrays(x.ravel(), x.shape[1])}


def write_csv(path, x, **options):
    pd.DataFrame(x).to_csv(path, index=False, na_rep="nan", **options)


#: Case -> (file name, kinds of dtype it keeps, how to write a matrix there).
WRITERS = {
    "npy": ("x.npy", "fiub", np.save),
    "npy in Fortran order": ("f.npy", "fiub", lambda path, x: np.save(path, np.asfortranarray(x))),
    "npz": ("x.npz", "fiub", lambda path, x: np.savez(path, x=x)),
    "npz, compressed": ("c.npz", "fiub", lambda path, x: np.savez_compressed(path, x=x, labels=np.arange(3))),
    "safetensors": ("x.safetensors", "fiub", lambda path, x: safetensors.numpy.save_file({"x": x}, path)),
    "parquet": ("x.parquet", "fiub", lambda path, x: write_table(path, columns_of(x))),
    "parquet by pandas": ("p.parquet", "fiub", lambda path, x: pd.DataFrame(x, np.arange(len(x)) * 2).to_parquet(path)),
    "parquet, row groups": ("g.parquet", "f", lambda path, x: write_table(path, columns_of(x), row_group_size=147)),
    "parquet, lists": ("l.parquet", "fiub", lambda path, x: write_table(path, {"x": list(x)})),
    "parquet, lists of one size": ("s.parquet", "fiu", lambda path, x: write_table(path, with_ids(x))),
    "csv": ("x.csv", "", lambda path, x: write_csv(path, x, header=False)),
    "csv with a header": ("h.csv", "", lambda path, x: write_csv(path, x, header=[f"d{i}" for i in range(x.shape[1])])),
}


def bytes_of(profile: Profile, folder) -> bytes:
    return profile.save(folder / "profile").read_bytes()


def refuse(path, message: str) -> None:
    """``path`` is refused in one line that begins with the file and goes on with ``message``."""
    with pytest.raises(DataError) as caught:
        profile_matrix(path)
    assert str(caught.value) == f"{path}{message}"


# -- the same as the array -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "int64", "uint8", "bool"])
@pytest.mark.parametrize("case", WRITERS)
@pytest.mark.usefixtures("small_blocks")
def test_the_profile_of_the_array(tmp_path, case, dtype):
    name, kinds, write = WRITERS[case]
    x = np.abs(vectors(dtype="float64")).astype(dtype)
    if x.dtype.kind not in kinds:
        x = x.astype(np.float64)
    write(tmp_path / name, x)
    profile = profile_matrix(tmp_path / name, layer=4)
    assert bytes_of(profile, tmp_path) == bytes_of(profile_vectors(x, layer=4, name=name), tmp_path)
    # And that of NumPy.
    kept = x if x.dtype.kind == "f" else x.astype(np.float64)
    assert (profile.n, profile.dim, profile.layers, profile.dataset) == (N, D, (4,), name)
    assert profile.provenance.dtype == kept.dtype.name
    assert profile.provenance.datasets[0].hash == hash_arrays([("vectors", kept)])
    np.testing.assert_array_equal(profile[4].sample, kept)
    wide = x.astype(np.float64)
    np.testing.assert_allclose(profile[4].moments.mean, wide.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(profile[4].moments.covariance, np.cov(wide.T, bias=True), rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("case", WRITERS)
def test_more_rows_than_a_block_and_the_sample_hold(tmp_path, case):
    name, _, write = WRITERS[case]
    x = vectors(9_001, dtype="float64")
    write(tmp_path / name, x)
    profile = profile_matrix(str(tmp_path / name))
    assert bytes_of(profile, tmp_path) == bytes_of(profile_vectors(x, name=name), tmp_path)
    layer = profile[-1]
    assert (layer.n, len(layer.sample)) == (9_001, 1_024)
    np.testing.assert_array_equal(layer.sample, x[layer.sample_ids])
    np.testing.assert_allclose(layer.moments.variance, x.var(axis=0), rtol=1e-10)
    np.testing.assert_array_equal(layer.moments.maximum, x.max(axis=0))


@pytest.mark.parametrize("dtype", [">f4", ">i2", "longdouble"])
@pytest.mark.parametrize("case", ["npy", "npz"])
def test_other_byte_orders_and_sizes(tmp_path, case, dtype):
    name, _, write = WRITERS[case]
    x = vectors(dtype=dtype)
    write(tmp_path / name, x)
    profile = profile_matrix(tmp_path / name)
    assert bytes_of(profile, tmp_path) == bytes_of(profile_vectors(x, name=name), tmp_path)
    kept = x if dtype == ">f4" else x.astype(np.float64)
    assert profile.provenance.datasets[0].hash == hash_arrays([("vectors", kept)])
    np.testing.assert_array_equal(profile[-1].sample, kept)


@pytest.mark.usefixtures("small_blocks")
def test_the_layout_in_memory_does_not_matter(tmp_path):
    x = vectors()
    profiles = [
        profile_vectors(each) for each in (x, np.asfortranarray(x), np.repeat(x, 2, axis=1)[:, ::2], x.tolist())
    ]
    assert bytes_of(profiles[0], tmp_path) == bytes_of(profiles[1], tmp_path) == bytes_of(profiles[2], tmp_path)
    assert profiles[3].provenance.dtype == "float64"


@pytest.mark.usefixtures("small_blocks")
def test_bfloat16(tmp_path):
    x = (vectors().view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)  # what bfloat16 can hold
    write_bfloat16(tmp_path / "x.safetensors", x)
    profile = profile_matrix(tmp_path / "x.safetensors")
    assert profile.provenance.dtype == profile[-1].dtype == "bfloat16"
    assert profile.provenance.datasets[0].hash == hash_arrays([("vectors", x)])
    np.testing.assert_array_equal(profile[-1].sample, x)
    np.testing.assert_allclose(profile[-1].moments.mean, x.mean(axis=0, dtype=np.float64), rtol=1e-12)
    assert Profile.load(profile.save(tmp_path / "p"))[-1].dtype == "bfloat16"


def test_columns_of_several_types(tmp_path):
    columns = {"a": np.arange(4, dtype=np.float16), "b": np.arange(4, dtype=np.float32) / 4}
    write_table(tmp_path / "f.parquet", columns)
    write_table(tmp_path / "i.parquet", columns | {"c": np.array([2**31, 0, 1, -1])})
    assert profile_matrix(tmp_path / "f.parquet").provenance.dtype == "float32"
    wide = profile_matrix(tmp_path / "i.parquet")
    assert wide.provenance.dtype == "float64"
    np.testing.assert_array_equal(wide[-1].sample[:, 2], [2**31, 0, 1, -1])


def test_the_hash_by_hand():
    """Profiles that lie on a disk hold it: it must not change."""
    x = vectors(5, dtype="float32")
    by_hand = hashlib.blake2b(b"vectors|<f4|(5, 3)|" + x.tobytes(), digest_size=16).hexdigest()
    assert profile_vectors(x).provenance.datasets[0].hash == by_hand == hash_arrays([("vectors", x)])


finite = st.floats(-1e60, 1e60, allow_subnormal=True)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    return tmp_path_factory.mktemp("scratch")


@settings(max_examples=60, deadline=None)
@given(
    x=hnp.arrays(np.float64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=6), elements=finite),
    header=st.booleans(),
)
def test_csv_keeps_every_bit(scratch, x, header):
    lines = [",".join(f"dim {i}" for i in range(x.shape[1]))] * header + [
        ",".join(map(repr, row)) for row in x.tolist()
    ]
    (scratch / "x.csv").write_text("\n".join(lines), encoding="utf-8")
    read = READERS[".csv"](scratch / "x.csv", None)
    assert read.shape == x.shape
    assert b"".join(block.tobytes() for _, block in read.blocks()) == x.tobytes()


@pytest.mark.parametrize(
    "text",
    [
        "1,2\n3,4",
        "1,2\r\n3,4\r\n",
        "\ufeff1,2\n3,4\n",
        '" 1 ", 2\n\n+3,4e0\n\n',
        "a,b\n1,2\n3,4\n",
        '"a, or ""b""",ä\r\n1,2\r\n3,4\r\n',
        "id,0\n1,2\n3,4\n",
        "a,a\n1,2\n3,4\n",
        "\ufeffa,b\n1,2\n3,4\n",
    ],
)
def test_dialects_of_csv(tmp_path, text):
    (tmp_path / "x.csv").write_bytes(text.encode())
    assert profile_matrix(tmp_path / "x.csv")[-1].sample.tolist() == [[1, 2], [3, 4]]


# -- block by block --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", WRITERS)
def test_memory_does_not_grow_with_the_rows(tmp_path, monkeypatch, case):
    """What Python and NumPy allocate, in which a whole matrix would be seen; Arrow's pieces are counted below."""
    monkeypatch.setattr(matrix, "BLOCK_ROWS", 128)
    monkeypatch.setattr(matrix, "SAMPLE_ROWS", 16)
    monkeypatch.setattr(csv_files, "CSV_BYTES", 1 << 15)
    name, _, write = WRITERS[case]
    x = vectors(4_000, 24, dtype="float64")
    write(tmp_path / name, x)
    assert allocated(lambda: profile_matrix(tmp_path / name)) < x.nbytes / 2


def allocated(work) -> int:
    """Most bytes that NumPy and Python held at once for it."""
    profile_vectors(vectors())  # what is made on first use stays
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("case", WRITERS)
@pytest.mark.usefixtures("small_blocks")
def test_blocks_are_those_of_the_array(tmp_path, case):
    """Whatever the file hands out at a time, blocks are of eight rows: sums do not depend on the format."""
    name, _, write = WRITERS[case]
    x = vectors(dtype="float64")
    write(tmp_path / name, x)
    blocks = list(READERS[f".{name.rpartition('.')[2]}"](tmp_path / name, None).blocks())
    assert [start for start, _ in blocks] == [0, 8, 16, 24, 32, 40, 48]
    assert [block.shape for _, block in blocks] == [(8, 3)] * 6 + [(2, 3)]
    assert all(block.flags.c_contiguous and block.dtype == np.float64 for _, block in blocks)
    np.testing.assert_array_equal(np.concatenate([block for _, block in blocks]), x)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.usefixtures("small_blocks")
def test_npz_is_streamed(tmp_path, monkeypatch, save):
    save(tmp_path / "x.npz", x=vectors(dtype="float64"))
    sizes, read = [], zipfile.ZipExtFile.read

    def counted(self, n=-1):
        sizes.append(n)
        return read(self, n)

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counted)
    profile_matrix(tmp_path / "x.npz")
    assert max(sizes) == 8 * 3 * 8
    assert min(sizes) > 0


@pytest.mark.usefixtures("small_blocks")
def test_parquet_is_streamed(tmp_path, monkeypatch):
    write_table(tmp_path / "x.parquet", {"a": np.arange(50.0)})
    sizes, iter_batches = [], pa.parquet.ParquetFile.iter_batches

    def counted(self, **options):
        for batch in iter_batches(self, **options):
            sizes.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pa.parquet.ParquetFile, "iter_batches", counted)
    profile_matrix(tmp_path / "x.parquet")
    assert sizes == [8] * 6 + [2] + [8] * 6 + [2]


def test_arrays_are_read_a_block_at_a_time(monkeypatch):
    """A memory map of integers is not converted whole."""
    monkeypatch.setattr(matrix, "BLOCK_ROWS", 256)
    monkeypatch.setattr(matrix, "SAMPLE_ROWS", 16)
    x = np.arange(6_000 * 24).reshape(6_000, 24) % 251
    assert allocated(lambda: profile_vectors(x)) < x.nbytes / 2


# -- several arrays --------------------------------------------------------------------------------------------------


def three_arrays(path):
    arrays = {"a": vectors(), "b": 2 * vectors(), "ids": np.arange(N)}
    if path.suffix == ".npz":
        np.savez(path, **arrays)
    elif path.suffix == ".safetensors":
        safetensors.numpy.save_file(arrays, path)
    else:
        write_table(path, {name: list(x) if x.ndim == 2 else x for name, x in arrays.items()})
    return path


@pytest.mark.parametrize("name", ["x.npz", "x.safetensors", "x.parquet"])
def test_file_and_name(tmp_path, name):
    path = three_arrays(tmp_path / name)
    profile = profile_matrix(f"{path}#b")
    assert profile.dataset == f"{name}#b"
    np.testing.assert_array_equal(profile[-1].sample, 2 * vectors())
    refuse(path, f": holds 2 matrices; pick one, as in {name}#a: a, b")
    known = "a, b" if name == "x.parquet" else "a, b, ids"
    with pytest.raises(DataError) as caught:
        profile_matrix(f"{path}#c")
    assert str(caught.value) == f"{path}: unknown array 'c': known: {known}"


@pytest.mark.parametrize("name", ["x.npz", "x.safetensors"])
def test_the_named_one_is_no_matrix(tmp_path, name):
    refuse(f"{three_arrays(tmp_path / name)}#ids", ": expected a matrix of numbers (n, d), got int64 of shape (50,)")


def test_many_names_stay_one_line(tmp_path):
    np.savez(tmp_path / "x.npz", **{f"encoder.layer.{i}.weight": np.ones((2, 2)) for i in range(99)})
    for path in ("x.npz", "x.npz#y"):
        with pytest.raises(DataError, match=r"encoder\.layer\.0\.weight") as caught:
            profile_matrix(tmp_path / path)
        assert len(str(caught.value)) < 600


def test_files_with_a_hash_in_their_name(tmp_path):
    np.save(tmp_path / "a#b.npy", vectors())
    np.savez(tmp_path / "a#b.npz", **{"x#y": vectors(), "y": 3 * vectors()})
    assert profile_matrix(tmp_path / "a#b.npy").dataset == "a#b.npy"
    for array, factor in (("x#y", 1), ("y", 3)):
        profile = profile_matrix(f"{tmp_path}/a#b.npz#{array}")
        np.testing.assert_array_equal(profile[-1].sample, factor * vectors())
    # The whole name wins over FILE#NAME.
    np.savez(tmp_path / "c.npz", **{"d.npz": vectors()})
    np.savez(tmp_path / "c.npz#d.npz", x=5 * vectors())
    for source in ("c.npz#d.npz", "c.npz#d.npz#x"):
        np.testing.assert_array_equal(profile_matrix(tmp_path / source)[-1].sample, 5 * vectors())


@pytest.mark.parametrize("case", ["npy", "csv", "parquet"])
def test_files_of_one_matrix_take_no_name(tmp_path, case):
    name, _, write = WRITERS[case]
    write(tmp_path / name, vectors())
    with pytest.raises(DataError) as caught:
        profile_matrix(f"{tmp_path / name}#x")
    assert str(caught.value) == f"{tmp_path / name}: holds one matrix without a name; leave #x away"


# -- what is refused -------------------------------------------------------------------------------------------------


def test_no_such_file(tmp_path):
    refuse(tmp_path / "x.npy", ": no such file")
    refuse(tmp_path / "x.npz#a", ": no such file")
    refuse(tmp_path, ": a folder; expected a file (.csv, .npy, .npz, .parquet, .safetensors)")


@pytest.mark.parametrize(("name", "shown"), [("x.npyy", "'.npyy': did you mean '.npy'?"), ("x", "'(none)':")])
def test_unknown_ending(tmp_path, name, shown):
    (tmp_path / name).write_bytes(b"1")
    refuse(tmp_path / name, f": unknown file type {shown} known: .csv, .npy, .npz, .parquet, .safetensors")


def test_endings_in_capitals(tmp_path):
    with (tmp_path / "X.NPY").open("wb") as file:
        np.save(file, vectors())
    assert profile_matrix(tmp_path / "X.NPY").n == N


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("case", WRITERS)
@pytest.mark.usefixtures("small_blocks")
def test_not_finite(tmp_path, case, value):
    name, _, write = WRITERS[case]
    x = vectors(dtype="float64")
    x[[20, 21], 2] = x[22, 1] = value
    write(tmp_path / name, x)
    array = "#x" if "lists" in case or name.endswith((".npz", ".safetensors")) else ""
    column = {"p.parquet": "2", "h.csv": "d2", "x.parquet": "d2", "g.parquet": "d2"}.get(name)
    named = f" (column {column!r})" if column else ""
    if case == "parquet by pandas" and np.isnan(value):  # which pandas stores as null
        refuse(tmp_path / name, f": row 20, dimension 2: no value{named}")
    else:
        refuse(tmp_path / name, f"{array}: row 20, dimension 2: value {value} is not finite{named}")


MATRIX = "expected a matrix of numbers (n, d)"


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (np.ones(3), f"{MATRIX}, got float64 of shape (3,)"),
        (np.ones((2, 3, 4), dtype="int8"), f"{MATRIX}, got int8 of shape (2, 3, 4)"),
        (np.float64(3), f"{MATRIX}, got float64 of shape ()"),
        (np.ones((0, 3)), f"{MATRIX} with rows and columns, got shape (0, 3)"),
        (np.ones((3, 0)), f"{MATRIX} with rows and columns, got shape (3, 0)"),
        (np.ones((2, 2), dtype=complex), f"{MATRIX}, got complex128 of shape (2, 2)"),
        (np.full((2, 2), "a"), f"{MATRIX}, got <U1 of shape (2, 2)"),
        (np.full((2, 2), None), f"{MATRIX}, got object of shape (2, 2); pickled objects are never loaded"),
        (np.ones((2, 2), dtype="M8[s]"), f"{MATRIX}, got datetime64[s] of shape (2, 2)"),
        (np.ones((2, 2), dtype=[("a", "f4")]), f"{MATRIX}, got [('a', '<f4')] of shape (2, 2)"),
    ],
)
def test_what_is_no_matrix_of_numbers(tmp_path, x, message):
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    refuse(tmp_path / "x.npy", f": {message}")
    refuse(f"{tmp_path / 'x.npz'}#x", f": {message}")


def test_containers_without_a_matrix(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.ones(3), b=np.ones((1, 2, 3)))
    refuse(tmp_path / "x.npz", f": {MATRIX}, it holds a (3,), b (1, 2, 3)")
    np.savez(tmp_path / "e.npz")
    refuse(tmp_path / "e.npz", f": {MATRIX}, it holds nothing")
    safetensors.numpy.save_file({"a": np.ones((0, 3))}, tmp_path / "x.safetensors")
    refuse(tmp_path / "x.safetensors", f"#a: {MATRIX} with rows and columns, got shape (0, 3)")


def test_parquet_with_one_name_twice(tmp_path):
    columns = [pa.array([[1.0]]), pa.array([[2.0]])]
    pa.parquet.write_table(pa.Table.from_arrays(columns, names=["x", "x"]), tmp_path / "x.parquet")
    with pytest.raises(DataError, match=r"x\.parquet: .*exists 2 times"):
        profile_matrix(tmp_path / "x.parquet")


def test_npz_in_fortran_order(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.asfortranarray(vectors()))
    refuse(
        tmp_path / "x.npz",
        "#x: stored column by column (Fortran order), so that its rows cannot be streamed; "
        "save np.ascontiguousarray of it, or a .npy file",
    )


def test_safetensors_of_an_unknown_type(tmp_path):
    header = json.dumps({"x": {"dtype": "F8_E4M3", "shape": [2, 2], "data_offsets": [0, 4]}}).encode()
    (tmp_path / "x.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))
    refuse(
        tmp_path / "x.safetensors",
        "#x: expected a matrix of BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64, got F8_E4M3",
    )


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"a": [1.0], "t": ["x"]}, ": column 't': expected numbers, or lists of numbers, found string"),
        ({"t": [["x"]]}, ": column 't': expected numbers, or lists of numbers, found list<element: string>"),
        ({"t": pa.array([1], pa.date32())}, ": column 't': expected numbers, or lists of numbers, found date32[day]"),
        ({"a": pa.array([], pa.float32())}, f": {MATRIX} with rows and columns, got shape (0, 1)"),
        ({"l": pa.array([], pa.list_(pa.float32()))}, f"#l: {MATRIX} with rows and columns, got shape (0, 0)"),
        ({"l": [[], [1.0]]}, "#l: row 0: expected numbers, found none"),
        ({"l": [None, [1.0]]}, "#l: row 0: expected numbers, found none"),
        ({}, f": {MATRIX} with rows and columns, got shape (0, 0)"),
        ({"a": [1.0] * 11, "b": [1] * 10 + [None]}, ": row 10, dimension 1: no value (column 'b')"),
        ({"l": [[1.0, 2.0]] * 10 + [[3.0]]}, "#l: row 10: expected 2 numbers, found 1"),
        ({"l": [[1.0, 2.0]] * 10 + [None]}, "#l: row 10: expected 2 numbers, found 0"),
        ({"l": [[1.0, 2.0]] * 10 + [[3.0, None]]}, "#l: row 10, dimension 1: no value"),
        ({"l": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))}, "#l: row 1: expected 2 numbers, found 0"),
    ],
)  # fmt: skip
@pytest.mark.usefixtures("small_blocks")
def test_parquet_that_is_no_matrix(tmp_path, table, message):
    write_table(tmp_path / "x.parquet", table)
    refuse(tmp_path / "x.parquet", message)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected rows of numbers, with or without a header, found an empty file"),
        ("\n1,2\n", "expected rows of numbers, with or without a header, found a blank first line"),
        ("a,b\n", f"{MATRIX} with rows and columns, got shape (0, 2)"),
        ("a,b", f"{MATRIX} with rows and columns, got shape (0, 2)"),
        ("1,2\n3,x\n", "row 1, dimension 1: expected a number, found 'x'"),
        ("a,b\n1,2\n3,x\n", "row 1, dimension 1: expected a number, found 'x' (column 'b')"),
        ("a,b\n1,2\n\n,3\n", "row 1, dimension 0: expected a number, found '' (column 'a')"),
        ("1,2\n3,4_0\n", "row 1, dimension 1: expected a number, found '4_0'"),
        ("1,2\n3,1e999\n", "row 1, dimension 1: value inf is not finite"),
        ("a,b\n1,2\n3,nan\n", "row 1, dimension 1: value nan is not finite (column 'b')"),
        ("1,2\n3\n", "row 1: expected 2 numbers, as many as the first line has cells, found 1"),
        ("a,b\n1,2,3\n", "row 0: expected 2 numbers, as many as the first line has cells, found 3"),
        ("a\n1\n\n3\n", "row 1, dimension 0: expected a number, found '' (column 'a')"),
        ("a;b\n1;2\n", "row 0, dimension 0: expected a number, found '1;2' (column 'a;b')"),
        # A first row with a cell that is wrong does not become a header.
        ("1.5,\n3,4\n", "row 0, dimension 1: expected a number, found ''"),
        ("1.5,x\n3,4\n", "row 0, dimension 1: expected a number, found 'x'"),
        (",a,b\n0,1,2\n", "the header has no name for dimension 0; an index that was written along has to go"),
        ("1,,2\n0,1,2\n", "the header has no name for dimension 1; an index that was written along has to go"),
        (
            "0,1\n3,4\n",
            "the first line counts from 0 to 1: pandas' numbers of the columns, or a row? "
            "Write names of columns there, or the numbers as 0.0, 1.0, …",
        ),
    ],
)
def test_csv_that_is_no_matrix(tmp_path, text, message):
    (tmp_path / "x.csv").write_text(text, encoding="utf-8")
    refuse(tmp_path / "x.csv", f": {message}")


def test_csv_rows_are_counted_through_the_pieces_it_is_read_in(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "CSV_BYTES", 512)
    (tmp_path / "x.csv").write_text("a,b\n" + "1,2\n" * 1_000 + "3,x\n", encoding="utf-8")
    refuse(tmp_path / "x.csv", ": row 1000, dimension 1: expected a number, found 'x' (column 'b')")
    (tmp_path / "x.csv").write_text("1,2\n" * 1_000 + "3\n", encoding="utf-8")
    refuse(tmp_path / "x.csv", ": row 1000: expected 2 numbers, as many as the first line has cells, found 1")


def test_csv_lines_longer_than_a_piece(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_files, "CSV_BYTES", 64)
    x = vectors(5, 40, dtype="float64")
    write_csv(tmp_path / "x.csv", x, header=False)
    np.testing.assert_array_equal(profile_matrix(tmp_path / "x.csv")[-1].sample, x)
    (tmp_path / "x.csv").write_text("1,2\n3," + "4" * 3_000 + "\n5,6\n", encoding="utf-8")
    refuse(tmp_path / "x.csv", ": a line is longer than 128 bytes, 64 for each number of the first line")


def damage(path, case):
    data = bytearray(path.read_bytes())
    if case == "cut":
        del data[-40:]
    elif case == "random":
        data[:] = np.random.default_rng(0).bytes(999)
    else:
        data.clear()
    path.write_bytes(data)


@pytest.mark.parametrize("how", ["cut", "random", "empty"])
@pytest.mark.parametrize("case", [case for case in WRITERS if "csv" not in case])
def test_damaged_file(tmp_path, case, how):
    name, _, write = WRITERS[case]
    path = tmp_path / name
    write(path, vectors(dtype="float64"))
    damage(path, how)
    with pytest.raises(DataError) as caught:
        profile_matrix(path)
    assert str(caught.value).startswith(f"{path}: not a readable {path.suffix} file (")
    assert "\n" not in str(caught.value)


def test_csv_that_is_no_text(tmp_path):
    (tmp_path / "x.csv").write_bytes(b"\xff\xfe1\x00,\x002\x00\n\x00")
    with pytest.raises(DataError, match=r"x\.csv: not a readable \.csv file \('utf-8' codec"):
        profile_matrix(tmp_path / "x.csv")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_with_wrong_bytes(tmp_path, save):
    """The checksum is of the whole array: it has to be read to the end."""
    path = tmp_path / "x.npz"
    save(path, x=vectors(dtype="float64"))
    data = bytearray(path.read_bytes())
    data[600] ^= 1
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"x\.npz: not a readable \.npz file \(.*(CRC|decompress)"):
        profile_matrix(path)


@pytest.mark.parametrize(("rows", "message"), [(49, "goes on after row 48"), (51, "ends before row 50")])
def test_npz_of_another_length_than_its_header_says(tmp_path, rows, message):
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive, archive.open("x.npy", "w") as file:
        header = {"descr": "<f8", "fortran_order": False, "shape": (rows, D)}
        np.lib.format.write_array_header_1_0(file, header)
        file.write(vectors(dtype="float64").tobytes())
    refuse(tmp_path / "x.npz", f": not a readable .npz file (x.npy {message})")


def test_pickles_are_not_loaded(tmp_path, monkeypatch):
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(f"pickle.{name}", lambda *_: pytest.fail("unpickled"))
    np.save(tmp_path / "x.npy", np.full((2, 2), None), allow_pickle=True)
    refuse(tmp_path / "x.npy", f": {MATRIX}, got object of shape (2, 2); pickled objects are never loaded")


def test_a_file_that_changes_meanwhile(tmp_path, monkeypatch):
    path, hashed = tmp_path / "x.npy", Matrix.hash

    def hash_and_change(self):
        found = hashed(self)
        np.save(path, 2 * vectors())
        os.utime(path, ns=(0, 0))
        return found

    np.save(path, vectors())
    monkeypatch.setattr(Matrix, "hash", hash_and_change)
    refuse(path, ": the file changed while it was read; profile it again")


def test_arithmetic_is_not_blamed_on_the_file(tmp_path, monkeypatch):
    def fail(_):
        raise ValueError("a mistake of ours")

    np.save(tmp_path / "x.npy", vectors())
    monkeypatch.setattr(RowSums, "of", fail)
    with pytest.raises(ValueError, match="a mistake of ours"):
        profile_matrix(tmp_path / "x.npy")
