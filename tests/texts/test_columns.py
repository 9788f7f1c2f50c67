"""Which column is the text, the pair and the label."""

from __future__ import annotations

import pytest

from cls_analysis.errors import DataError, OptionError
from cls_analysis.texts.columns import Columns, choose_columns


@pytest.mark.parametrize(
    ("header", "text", "pair", "label"),
    [
        ("text", "text", None, None),
        ("text,label", "text", None, "label"),
        ("label,idx,sentence", "sentence", None, "label"),
        ("sentence1,sentence2,label,idx", "sentence1", "sentence2", "label"),
        ("idx,premise,hypothesis,label", "premise", "hypothesis", "label"),
        ("id,question1,question2,label", "question1", "question2", "label"),
        ("index,question,sentence,label", "question", "sentence", "label"),
        ("text,text_pair,label", "text", "text_pair", "label"),
        ("review", "review", None, None),
        ("label,review", "review", None, "label"),
    ],
)
def test_columns_are_guessed_from_the_conventions(header, text, pair, label):
    assert choose_columns("f.csv", header.split(",")) == Columns(text, pair, label)


@pytest.mark.parametrize(
    ("named", "text", "pair", "label"),
    [
        ({"text_column": "a"}, "a", None, "label"),
        ({"text_column": "a", "pair_column": "b"}, "a", "b", "label"),
        ({"text_column": "b", "label_column": "a"}, "b", None, "a"),
        ({"label_column": "a"}, "sentence1", "sentence2", "a"),
        ({"text_column": "sentence2"}, "sentence2", None, "label"),
    ],
)
def test_named_columns_win(named, text, pair, label):
    found = ["a", "b", "sentence1", "sentence2", "label"]
    assert choose_columns("f.csv", found, **named) == Columns(text, pair, label)


def test_the_column_named_as_label_is_not_guessed_as_text():
    assert choose_columns("f.csv", ["text", "review"], label_column="text") == Columns("review", None, "text")


@pytest.mark.parametrize("option", ["text_column", "label_column"])
def test_a_named_column_that_is_not_there_lists_those_that_are(option, refused):
    with refused(DataError, "f.csv", "'body'", "'a', 'b'"):
        choose_columns("f.csv", ["a", "b"], **{option: "body"})


def test_a_pair_column_needs_a_text_column(refused):
    with refused(OptionError, "pair column", "text column"):
        choose_columns("f.csv", ["a", "b"], pair_column="b")


@pytest.mark.parametrize("header", ["a,b", "a,b,label", "Text,Label", "sentence1,label,id"])
def test_no_guess_without_a_convention(header, refused):
    with refused(DataError, "f.csv", "--text-column", *(repr(name) for name in header.split(","))):
        choose_columns("f.csv", header.split(","))


def test_case_47_repeated_names_are_listed(refused):
    with refused(DataError, "f.csv", "repeated", "'label', 'text'"):
        choose_columns("f.csv", ["text", "text", "label", "label", "id"], text_column="text")
