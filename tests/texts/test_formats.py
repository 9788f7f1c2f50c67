"""Files: csv, tsv, jsonl, parquet and txt."""

from __future__ import annotations

import csv
import io
import json

import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cls_analysis import load_texts
from cls_analysis.errors import DataError

#: Case 5: the rows of a table as written in csv, and the texts that they are.
CELLS = ["NA", "null", "None", "nan", "", "N/A", '""', "true", "007"]
TEXTS = ["NA", "null", "None", "nan", "", "N/A", "", "true", "007"]

#: Every text a file may hold.
any_text = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
quick = settings(max_examples=60, deadline=None)


# -- missing and empty -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("one.csv", ["text", *CELLS]),
        ("two.csv", ["text,label", *(f"{cell},1" for cell in CELLS)]),
        ("quoted.csv", ["text,label", *(f'"{cell}",1' for cell in TEXTS)]),
        ("one.tsv", ["text", *TEXTS]),
        ("two.tsv", ["text\tlabel", *(f"{text}\t1" for text in TEXTS)]),
        ("lines.txt", TEXTS),
        ("objects.jsonl", [json.dumps({"text": text, "label": 1}) for text in TEXTS]),
    ],
)
def test_case_05_text_that_looks_missing(name, lines, write):
    texts = load_texts(write(name, "\n".join(lines) + "\n"), on_missing="empty")
    assert texts.text == ["NA", "null", "None", "nan", "", "N/A", "", "true", "007"]
    assert texts.row_id.tolist() == list(range(9))
    assert texts.n_empty == 2


def test_case_05_parquet(tmp_path):
    pa.parquet.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet")
    assert load_texts(tmp_path / "a.parquet").text == TEXTS


class TestUnquotedEmptyCell:
    """Missing in csv and tsv files of several columns; ``""`` is an empty text."""

    @pytest.fixture(params=[("a.csv", ","), ("a.tsv", "\t")], ids=["csv", "tsv"])
    def path(self, request, write):
        name, delimiter = request.param
        return write(name, "label,text\n1,a\n0,\n1,b\n0,\n".replace(",", delimiter))

    def test_error_by_default(self, path, refused):
        with refused(DataError, path, "2 of 4", "rows 1, 3"):
            load_texts(path)

    def test_empty(self, path):
        texts = load_texts(path, on_missing="empty")
        assert (texts.text, texts.label, texts.n_empty) == (["a", "", "b", ""], ["1", "0", "1", "0"], 2)

    def test_drop_keeps_the_ids_of_the_others(self, path):
        texts = load_texts(path, on_missing="drop")
        assert (texts.text, texts.label, texts.n_dropped) == (["a", "b"], ["1", "1"], 2)
        assert texts.row_id.tolist() == [0, 2]


def test_a_quoted_empty_cell_is_an_empty_text(write):
    texts = load_texts(write("a.csv", 'text,label\n"",1\na,0\n'))
    assert (texts.text, texts.n_empty) == (["", "a"], 1)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_blank_line_in_a_file_of_one_column_is_an_empty_text(name, newline, write):
    texts = load_texts(write(name, newline.join(["text", "a", "", "b", ""])))
    assert (texts.text, texts.n_empty) == (["a", "", "b"], 1)


def test_a_blank_line_in_a_file_of_several_columns_is_a_missing_row(write, refused):
    with refused(DataError, "row 1", "missing"):
        load_texts(write("a.csv", "text,label\na,1\n\nb,0\n"))


def test_json_null_nan_and_an_absent_key_are_missing(write, refused):
    path = write("a.jsonl", '{"text": "a"}\n{"text": null}\n{"label": 1}\n{"text": NaN}\n')
    with refused(DataError, path, "3 of 4", "rows 1, 2, 3"):
        load_texts(path)


def test_a_missing_label_is_no_missing_text(write):
    assert load_texts(write("a.csv", "text,label\na,1\nb,\n")).text == ["a", "b"]


# -- quotes ----------------------------------------------------------------------------------------------------------


def test_case_21_csv_quotes(write):
    texts = load_texts(write("a.csv", 'text,label\n"a, ""b""",1\n'))
    assert (texts.text, texts.label) == (['a, "b"'], ["1"])


def test_case_21_a_quote_in_tsv_is_a_letter(write):
    texts = load_texts(write("a.tsv", 'text\tlabel\n"open\t1\nsay ""hi""\t0\n"\t1\n"shut"\t0\n'))
    assert texts.text == ['"open', 'say ""hi""', '"', '"shut"']
    assert texts.label == ["1", "0", "1", "0"]


def test_a_quote_inside_an_unquoted_csv_field_is_a_letter(write):
    assert load_texts(write("a.csv", 'text,label\nthe "big" one,1\n')).text == ['the "big" one']


@pytest.mark.parametrize(
    ("content", "row"),
    [
        ('text,label\na,1\n"b,1\nc,1\n', 1),
        ('label,text\n1,a\n1,b\n1,"c\n1,d\n1,e\n', 2),
        ('text\na\n"b\nc\n', 1),
    ],
    ids=["first column", "last column", "only column"],
)
def test_case_21_an_unclosed_quote_is_named_and_swallows_nothing(content, row, write, refused):
    path = write("a.csv", content)
    with refused(DataError, path, f"row {row}"):
        load_texts(path)


def test_an_unclosed_quote_in_the_header(write, refused):
    path = write("a.csv", '"text,label\na,1\n')
    with refused(DataError, path, "header"):
        load_texts(path)


@quick
@given(
    rows=st.lists(any_text, min_size=1, max_size=8),
    label=st.sampled_from(["1", "", 'a "b"', "x,\ny"]),
    newline=st.sampled_from(["\n", "\r\n"]),
)
def test_every_quoted_text_survives_csv(tmp_path_factory, rows, label, newline):
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, quoting=csv.QUOTE_ALL, lineterminator=newline)
    writer.writerows([["text", "label"], *([text, label] for text in rows)])
    path = tmp_path_factory.getbasetemp() / "all.csv"
    path.write_text(buffer.getvalue(), encoding="utf-8", newline="")
    texts = load_texts(path)
    assert texts.text == rows
    assert texts.label == [label] * len(rows)


@quick
@given(rows=st.lists(any_text, min_size=1, max_size=8))
def test_every_quoted_text_survives_csv_of_one_column(tmp_path_factory, rows):
    buffer = io.StringIO(newline="")
    csv.writer(buffer, quoting=csv.QUOTE_ALL).writerows([["text"], *([text] for text in rows)])
    path = tmp_path_factory.getbasetemp() / "one.csv"
    path.write_text(buffer.getvalue(), encoding="utf-8", newline="")
    assert load_texts(path).text == rows


@quick
@given(rows=st.lists(any_text, min_size=1, max_size=8), escaped=st.booleans())
def test_every_text_survives_jsonl(tmp_path_factory, rows, escaped):
    lines = [json.dumps({"text": text}, ensure_ascii=escaped) for text in rows]
    path = tmp_path_factory.getbasetemp() / "all.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8", newline="")
    assert load_texts(path).text == rows


@quick
@given(rows=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r\0\ufeff")), min_size=1, max_size=8))
def test_every_line_of_text_survives_txt(tmp_path_factory, rows):
    path = tmp_path_factory.getbasetemp() / "all.txt"
    path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8", newline="")
    assert load_texts(path).text == rows


# -- encodings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\na,1\n"),
        ("quoted.csv", '"text","label"\n"a","1"\n'),
        ("a.tsv", "text\tlabel\na\t1\n"),
        ("a.jsonl", '{"text": "a", "label": "1"}\n'),
        ("a.txt", "a\n"),
    ],
)
def test_case_47_a_byte_order_mark_is_dropped(name, content, write):
    path = write(name, b"\xef\xbb\xbf" + content.encode())
    for encoding in ("utf-8", "UTF8", "utf_8", "utf-8-sig"):
        assert load_texts(path, encoding=encoding).text == ["a"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\ncafé,1\n"),
        ("a.tsv", "text\tlabel\ncafé\t1\n"),
        ("a.jsonl", '{"text": "café"}\n'),
        ("a.txt", "café\n"),
    ],
)
class TestCase47Encodings:
    def test_latin_1_is_refused_with_the_byte_and_the_option(self, name, content, write, refused):
        path = write(name, content.encode("latin-1"))
        with refused(DataError, path, f"byte {content.index('é')} ", "0xe9", "--encoding"):
            load_texts(path)

    @pytest.mark.parametrize("encoding", ["latin-1", "utf-16", "utf-16-le", "utf-32", "cp1252"])
    def test_another_encoding_when_named(self, name, content, encoding, write):
        assert load_texts(write(name, content.encode(encoding)), encoding=encoding).text == ["café"]

    def test_an_encoding_that_does_not_fit(self, name, content, write, refused):
        path = write(name, content.encode("utf-16"))
        with refused(DataError, path, "byte 0 ", "0xff", "--encoding"):
            load_texts(path)


def test_the_bad_byte_is_counted_from_the_start_of_the_file(write, refused):
    data = b"\xef\xbb\xbftext\ncaf\xe9\n"
    with refused(DataError, f"byte {data.index(0xE9)} ", "0xe9"):
        load_texts(write("a.csv", data))


@pytest.mark.parametrize("encoding", ["utf-9", "rot13", "undefined", "a\0b"])
def test_an_encoding_that_decodes_no_text(encoding, write, refused):
    with refused(DataError, "a.csv", "encoding"):
        load_texts(write("a.csv", "text\na\n"), encoding=encoding)


# -- lines -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_case_47_inner_newlines_are_kept_and_separators_are_text(newline, write):
    path = write("a.csv", newline.join(["text,label", "one,1", '"two\r\nlines",2', "three\u2028four,3", ""]))
    texts = load_texts(path)
    assert texts.text == ["one", "two\r\nlines", "three\u2028four"]
    assert texts.label == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [("a.csv", "text,label\n", ",1\n"), ("a.tsv", "text\tlabel\n", "\t1\n"), ("a.txt", "", "\n")],
)
@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_case_47_only_a_line_feed_ends_a_line(name, before, after, separator, write):
    assert load_texts(write(name, f"{before}three{separator}four{after}")).text == [f"three{separator}four"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "text,label\r\na,1\r\nb,2\r\n"),
        ("a.tsv", "text\tlabel\r\na\t1\r\nb\t2\r\n"),
        ("a.jsonl", '{"text": "a", "label": "1"}\r\n{"text": "b", "label": "2"}\r\n'),
        ("a.txt", "a\r\nb\r\n"),
    ],
)
@pytest.mark.parametrize("end", ["with", "without"])
def test_case_47_crlf_and_the_last_line(name, content, end, write):
    texts = load_texts(write(name, content if end == "with" else content.removesuffix("\r\n")))
    assert texts.text == ["a", "b"]
    assert texts.label == (None if name == "a.txt" else ["1", "2"])


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", "text,label\na\0b,1\n"), ("a.tsv", "text\tlabel\na\0b\t1\n"), ("a.txt", "a\0b\n")],
)
def test_a_nul_byte_is_part_of_the_text(name, content, write):
    assert load_texts(write(name, content)).text == ["a\0b"]


# -- malformed files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "row", "expected", "got"),
    [
        ("a.csv", "text,label\na,1\nb,1\nc,1,1\n", 2, 2, 3),
        ("a.csv", "text,label\na\nb,1\n", 0, 2, 1),
        ("a.csv", 'text,label\n"a\nb\nc",1\nd,1\ne\n', 2, 2, 1),
        ("a.csv", "text\nhello, world\n", 0, 1, 2),
        ("a.tsv", "text\tlabel\na\t1\nb\t1\t2\n", 1, 2, 3),
    ],
)
def test_a_ragged_row_is_named(name, content, row, expected, got, write, refused):
    path = write(name, content)
    with refused(DataError, path, f"row {row}:", f"expected {expected} columns", f"got {got}"):
        load_texts(path)


@pytest.mark.parametrize("content", ["text,text,label\na,b,1\n", "text,label,text\na,1,b\n"])
def test_case_47_a_repeated_header(content, write, refused):
    path = write("a.csv", content)
    with refused(DataError, path, "repeated", "'text'"):
        load_texts(path)


def test_case_47_a_repeated_key_in_jsonl(write, refused):
    path = write("a.jsonl", '{"text": "a"}\n{"text": "b", "text": "c"}\n')
    with refused(DataError, path, "row 1", "'text'"):
        load_texts(path)


def test_case_47_a_repeated_column_in_parquet(tmp_path, refused):
    path = tmp_path / "a.parquet"
    columns = [pa.array(["a"]), pa.array(["b"])]
    pa.parquet.write_table(pa.Table.from_arrays(columns, names=["text", "text"]), path)
    with refused(DataError, str(path), "repeated", "'text'"):
        load_texts(path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.txt", "a.parquet"])
@pytest.mark.parametrize("data", [b"", b"\xef\xbb\xbf"], ids=["empty", "only a byte-order mark"])
def test_an_empty_file(name, data, write, refused):
    path = write(name, data)
    with refused(DataError, path):
        load_texts(path)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize("content", ["text\n", "text\r\n", "text"])
def test_a_header_alone(name, content, write, refused):
    path = write(name, content)
    with refused(DataError, path, "no rows"):
        load_texts(path)


@pytest.mark.parametrize(
    ("name", "content"), [("a.csv", "\ntext,label\na,1\n"), ("a.tsv", "\ntext\tlabel\na\t1\n"), ("a.csv", "\na\nb\n")]
)
def test_a_blank_first_line_is_no_header(name, content, write, refused):
    path = write(name, content)
    with refused(DataError, path, "header"):
        load_texts(path)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('{"text":', "not JSON"),
        ("", "not JSON"),
        ('["b"]', "list"),
        ("7", "int"),
        pytest.param("[" * 100_000, "not JSON", id="too deep"),
    ],
)
def test_a_line_that_is_no_json_object_is_named(line, problem, write, refused):
    path = write("a.jsonl", f'{{"text": "a"}}\n{line}\n{{"text": "c"}}\n')
    with refused(DataError, path, "row 1", problem):
        load_texts(path)


@pytest.mark.parametrize("value", ["3", "true", '["a"]', '{"a": "b"}'])
def test_case_06_a_json_value_that_is_no_string(value, write, refused):
    path = write("a.jsonl", f'{{"text": "a"}}\n{{"text": {value}}}\n')
    with refused(DataError, path, "row 1", "expected a string"):
        load_texts(path, on_missing="drop")


# -- parquet ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", "b"]),
        pa.array(["a", "b"], pa.large_string()),
        pa.array(["a", "b"]).dictionary_encode(),
    ],
    ids=["string", "large string", "dictionary"],
)
def test_parquet_strings_of_any_kind(column, tmp_path):
    pa.parquet.write_table(pa.table({"text": column, "label": [0, 1]}), tmp_path / "a.parquet")
    texts = load_texts(tmp_path / "a.parquet")
    assert (texts.name, texts.text, texts.label) == ("a", ["a", "b"], [0, 1])


def test_parquet_from_pandas_with_a_missing_text(tmp_path, refused):
    path = tmp_path / "a.parquet"
    pd.DataFrame({"text": ["a", None], "label": [0, 1]}, index=[7, 9]).to_parquet(path)
    with refused(DataError, str(path), "row 1", "missing"):
        load_texts(path)
    assert load_texts(path, on_missing="drop").text == ["a"]


@pytest.mark.parametrize("column", [[1, 2], [b"a", b"b"], [["a"], ["b"]]], ids=["numbers", "bytes", "lists"])
def test_case_06_parquet_columns_that_hold_no_strings(column, tmp_path, refused):
    pa.parquet.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    with refused(DataError, "2 of 2", "rows 0, 1", "expected a string"):
        load_texts(tmp_path / "a.parquet")


def test_a_file_that_is_no_parquet(write, refused):
    path = write("a.parquet", "text,label\na,1\n")
    with refused(DataError, path, "Parquet"):
        load_texts(path)


# -- paths -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("a.cvs", ["'.cvs'", "did you mean '.csv'?"]),
        ("a.xlsx", ["'.xlsx'", ".parquet"]),
        ("a", ["(none)", ".txt"]),
        ("a.csv.gz", ["'.gz'", ".csv"]),
    ],
)
def test_an_unknown_file_type(name, parts, write, refused):
    path = write(name, "text\na\n")
    with refused(DataError, path, *parts):
        load_texts(path)


def test_the_ending_may_be_in_capitals(write):
    assert load_texts(write("A.CSV", "text\na\n")).text == ["a"]


def test_a_folder(tmp_path, refused):
    with refused(DataError, str(tmp_path), "folder", ".csv"):
        load_texts(tmp_path)


@pytest.mark.parametrize(
    "source", ["nowhere.csv", "nowhere/at/all.csv", pytest.param("many words " * 200, id="a text, too long for a path")]
)
def test_a_file_that_is_not_there(source, refused):
    with refused(DataError, source[:20], "no such file"):
        load_texts(source)
