"""``load_texts``: everything that rows may come from."""

from __future__ import annotations

import csv
import io
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cls_analysis import load_texts
from cls_analysis.errors import DataError, OptionError
from cls_analysis.texts import SAMPLES

NAN = float("nan")


# -- lists -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "source",
    [["a", "b"], ("a", "b"), iter(["a", "b"]), np.array(["a", "b"]), pd.Series(["a", "b"]), pd.Index(["a", "b"])],
    ids=lambda source: type(source).__name__,
)
def test_texts(source):
    texts = load_texts(source)
    assert (texts.name, texts.text, texts.pair, texts.label) == ("texts", ["a", "b"], None, None)
    assert (texts.row_id.tolist(), texts.row_id.dtype, texts.split) == ([0, 1], np.int64, None)


@pytest.mark.parametrize("source", [[["a", "b"]], [("a", "b")], (["a", "b"],), np.array([["a", "b"]])], ids=repr)
def test_pairs(source):
    texts = load_texts(source)
    assert (texts.text, texts.pair, len(texts)) == (["a"], ["b"], 1)


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ([("a", "b"), "c"], ["row 1", "single text"]),
        (["a", ("b", "c")], ["row 0", "single text"]),
        ([("a", "b"), ("c",)], ["row 1", "found 1"]),
        ([("a", "b"), ("c", "d"), ("e", "f", "g")], ["row 2", "found 3"]),
        ([("a", 3)], ["row 0", "expected a string, found int"]),
    ],
)
def test_rows_that_are_no_pair(source, parts, refused):
    with refused(DataError, *parts):
        load_texts(source)


@pytest.mark.parametrize("source", [3, None, b"text", {"text": ["a"]}, object()], ids=lambda s: type(s).__name__)
def test_what_holds_no_texts(source, refused):
    with refused(DataError, type(source).__name__):
        load_texts(source)


def test_texts_again():
    texts = load_texts([f"text {row}" for row in range(9)])
    assert load_texts(texts) is texts
    assert len(load_texts(texts, limit=4)) == 4


# -- pandas ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "series",
    [
        pd.Series(["a", None]),
        pd.Series(["a", NAN]),
        pd.Series(["a", pd.NA], dtype="string"),
        pd.Series(["a", pd.NA], dtype=object),
        pd.Series(["a", None], dtype="category"),
        pd.Series(["a", None], index=[7, 7]),
    ],
    ids=lambda series: str(series.dtype),
)
def test_case_06_missing_in_a_series(series, refused):
    with refused(DataError, "1 of 2", "row 1", "missing"):
        load_texts(series)
    assert load_texts(series, on_missing="drop").row_id.tolist() == [0]
    assert load_texts(series, on_missing="empty").text == ["a", ""]


@pytest.mark.parametrize("series", [pd.Series([1, 2]), pd.Series([1.5, 2.5]), pd.Series([True, False])])
def test_case_06_numbers_in_a_series(series, refused):
    with refused(DataError, "rows 0, 1", "expected a string"):
        load_texts(series)


def test_a_data_frame():
    frame = pd.DataFrame({"id": [5, 6], "sentence": ["NA", "007"], "label": [1, 0]}, index=["x", "y"])
    texts = load_texts(frame)
    assert (texts.name, texts.text, texts.label) == ("dataframe", ["NA", "007"], [1, 0])
    assert texts.row_id.tolist() == [0, 1]


def test_a_data_frame_with_named_columns():
    frame = pd.DataFrame([["a", "b", 1], ["c", "d", 0]])
    texts = load_texts(frame, text_column="0", pair_column="1", label_column="2")
    assert (texts.text, texts.pair, texts.label) == (["a", "c"], ["b", "d"], [1, 0])


@pytest.mark.parametrize(
    ("frame", "parts"),
    [
        (pd.DataFrame({"text": ["a", None], "label": [0, 1]}), ["row 1", "missing"]),
        (pd.DataFrame({"text": [1, 2]}), ["rows 0, 1", "expected a string"]),
        (pd.DataFrame([["a", "b"]], columns=["text", "text"]), ["repeated", "'text'"]),
        (pd.DataFrame([["a", "b"]], columns=[0, "0"]), ["repeated", "'0'"]),
        (pd.DataFrame({"x": ["a"], "y": ["b"]}), ["'x', 'y'"]),
        (pd.DataFrame({"text": []}), ["no rows"]),
        (pd.DataFrame(), ["columns"]),
    ],
)
def test_a_data_frame_that_cannot_be_used(frame, parts, refused):
    with refused(DataError, "DataFrame", *parts):
        load_texts(frame)


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [str, Path])
def test_a_file_by_its_path(kind, write):
    texts = load_texts(kind(write("reviews.csv", "text,label\na,1\nb,0\n")))
    assert (texts.name, texts.split, texts.text, texts.label) == ("reviews", None, ["a", "b"], ["1", "0"])


def test_columns_by_name(write):
    path = write("a.csv", "q,a,gold\nx,y,1\n")
    texts = load_texts(path, text_column="q", pair_column="a", label_column="gold")
    assert (texts.text, texts.pair, texts.label) == (["x"], ["y"], ["1"])


def test_limit_of_a_file_keeps_shares_order_and_ids(write):
    rows = [("ab"[row % 4 == 0], row) for row in range(80)]
    path = write("a.csv", "label,text\n" + "".join(f"{label},text {row}\n" for label, row in rows))
    texts = load_texts(path, limit=20)
    assert Counter(texts.label) == {"a": 15, "b": 5}
    assert texts.text == [f"text {row}" for row in texts.row_id]
    assert texts.row_id.tolist() == sorted(texts.row_id)
    assert texts.hash == load_texts(path).hash


def test_a_limit_is_checked_before_the_file_is_read(refused):
    with refused(OptionError, "limit"):
        load_texts("nowhere.csv", limit=0)


def test_an_existing_file_wins_and_a_folder_does_not(write, tmp_path, monkeypatch, refused):
    monkeypatch.chdir(tmp_path)
    write("glue/notes.txt", "a\nb\n")
    (tmp_path / "glue" / "cola").mkdir()
    assert load_texts("glue/notes.txt").text == ["a", "b"]
    with refused(OptionError, "glue/cola@dev"):
        load_texts("glue/cola@dev", split="dev")


@pytest.mark.parametrize("source", ["a.csv", ["a"], "sample:sentiment"], ids=["file", "list", "sample"])
def test_a_split_of_what_has_none(source, write, tmp_path, monkeypatch, refused):
    write("a.csv", "text\na\n")
    monkeypatch.chdir(tmp_path)
    with refused(OptionError, "no splits", "dev"):
        load_texts(source, split="dev")


def test_another_split_of_loaded_texts(write, refused):
    texts = load_texts(f"trec:{Path(write('TREC_10.label', 'NUM:dist How far ?')).parent}@test")
    assert load_texts(texts, split="test") is texts
    with refused(OptionError, "train", "test"):
        load_texts(texts, split="train")


# -- standard input --------------------------------------------------------------------------------------------------


@pytest.fixture
def pipe(monkeypatch):
    """Put bytes on standard input."""

    def put(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))

    return put


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"NA\r\n\r\n007\r\n", ["NA", "", "007"]),
        (b"\xef\xbb\xbfa\n", ["a"]),
        ("three\u2028four\n".encode(), ["three\u2028four"]),
        (b"\n", [""]),
    ],
)
def test_standard_input(data, text, pipe):
    pipe(data)
    texts = load_texts("-")
    assert (texts.name, texts.text, texts.label) == ("stdin", text, None)


def test_standard_input_in_another_encoding(pipe, refused):
    pipe(b"caf\xe9\n")
    with refused(DataError, "standard input", "byte 3 ", "0xe9"):
        load_texts("-")
    pipe(b"caf\xe9\n")
    assert load_texts("-", encoding="latin-1").text == ["café"]


def test_nothing_on_standard_input(pipe, refused):
    pipe(b"")
    with refused(DataError, "stdin", "no rows"):
        load_texts("-")


# -- samples ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bundled_samples(name):
    texts = load_texts(f"sample:{name}")
    assert (texts.name, texts.split) == (f"sample:{name}", None)
    assert len(texts) >= 300
    sides = [texts.text] if texts.pair is None else [texts.text, texts.pair]
    assert all(3 <= len(text.split()) <= 60 for side in sides for text in side)
    assert len(set(zip(*sides, strict=True))) == len(texts)
    assert min(Counter(texts.require_labels()).values()) > len(texts) / 10


@pytest.mark.parametrize("name", SAMPLES)
def test_the_bundled_samples_as_csv_reads_them(name):
    path = Path(__file__).parents[2] / "data" / "samples" / f"{name}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        header, *rows = csv.reader(file)
    texts = load_texts(f"sample:{name}")
    columns = [texts.text, texts.label] if texts.pair is None else [texts.text, texts.pair, texts.label]
    assert len(header) == len(columns)
    assert [list(row) for row in zip(*columns, strict=True)] == rows


def test_there_are_four_samples():
    assert SAMPLES == ("acceptability", "paraphrase", "questions", "sentiment")


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("sample:sentimnt", ["'sentimnt'", "did you mean 'sentiment'?", *SAMPLES]),
        ("sample:", list(SAMPLES)),
        ("sample:sentiment@train", ["no splits", "train"]),
    ],
)
def test_a_sample_that_is_not_there(source, parts, refused):
    with refused(OptionError, *parts):
        load_texts(source)


# -- TREC ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("split", "counts"),
    [
        ("train", {"ENTY": 1250, "HUM": 1223, "DESC": 1162, "NUM": 896, "LOC": 835, "ABBR": 86}),
        ("test", {"DESC": 138, "NUM": 113, "ENTY": 94, "LOC": 81, "HUM": 65, "ABBR": 9}),
    ],
)
def test_trec(split, counts, trec_dir):
    texts = load_texts(f"trec:{trec_dir}@{split}")
    assert (texts.name, texts.split) == ("trec", split)
    assert Counter(texts.label) == counts
    assert len(texts) == {"train": 5452, "test": 500}[split]


def test_trec_questions_as_they_stand(trec_dir):
    assert load_texts(f"trec:{trec_dir}", split="test").text[0] == "How far is it from Denver to Aspen ?"
    train = load_texts(f"trec:{trec_dir}", split="train")
    assert train.text[65] == "Which city has the oldest relationship as a sister\xf0city with Los Angeles ?"


@pytest.mark.parametrize(
    ("behind", "split", "parts"),
    [
        ("", None, ["train, test", "several splits"]),
        ("@dev", None, ["'dev'", "train, test"]),
        ("@tset", None, ["'tset'", "did you mean 'test'?"]),
        ("@test", "test", ["given twice", "@test", "split='test'"]),
        ("@test", "train", ["given twice"]),
    ],
)
def test_splits_of_trec(behind, split, parts, write, refused):
    folder = Path(write("TREC_10.label", "NUM:dist How far ?\n")).parent
    write("train_5500.label", "HUM:ind Who ?\n")
    with refused(OptionError, *parts):
        load_texts(f"trec:{folder}{behind}", split=split)


def test_the_only_split_needs_no_name(write):
    texts = load_texts(f"trec:{Path(write('TREC_10.label', 'NUM:dist How far ?')).parent}")
    assert (texts.split, texts.text, texts.label) == ("test", ["How far ?"], ["NUM"])


@pytest.mark.parametrize("row", ["How far ?", "NUM:dist", "NUM:dist ", ""])
def test_a_row_that_is_not_trec(row, write, refused):
    path = write("TREC_10.label", f"NUM:dist How far ?\n{row}\nHUM:ind Who ?\n")
    with refused(DataError, path, "row 1", "COARSE:fine"):
        load_texts(f"trec:{Path(path).parent}@test")


def test_no_trec_there(tmp_path, refused):
    with refused(DataError, str(tmp_path), "train_5500.label", "TREC_10.label"):
        load_texts(f"trec:{tmp_path}@test")


def test_an_at_sign_inside_a_path_is_no_split(write):
    path = Path(write("me@home/trec/TREC_10.label", "NUM:dist How far ?\n"))
    assert load_texts(f"trec:{path.parent}@test").text == ["How far ?"]
    assert load_texts(f"trec:{path.parent}", split="test").text == ["How far ?"]
