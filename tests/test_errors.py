"""Messages that a user meets: one line, with what was found and what to do."""

from __future__ import annotations

import pytest

from cls_analysis import errors
from cls_analysis.errors import ClsAnalysisError, MissingPackageError, OptionError, list_rows, one_line, unknown_name


@pytest.mark.parametrize("name", ["DataError", "LoadingError", "ProfileError", "OptionError"])
def test_one_base_catches_all(name):
    with pytest.raises(ClsAnalysisError, match="what"):
        raise getattr(errors, name)("what")


def test_built_in_bases():
    assert issubclass(OptionError, ValueError)
    assert issubclass(MissingPackageError, ImportError)
    assert issubclass(MissingPackageError, ClsAnalysisError)


def test_missing_package_names_the_extra():
    message = str(MissingPackageError("datasets", "hub", "reading from the hub"))
    assert "'datasets'" in message
    assert "pip install 'cls-analysis[hub]'" in message
    assert message.startswith("reading from the hub")


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("a\n  b\tc\r\n", 300, "a b c"),
        ("", 300, ""),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        (ValueError("x\ny"), 300, "x y"),
    ],
)
def test_one_line(text, limit, expected):
    assert one_line(text, limit) == expected


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([17], "row 17"),
        ([1, 2, 3], "rows 1, 2, 3"),
        (range(5), "rows 0, 1, 2, 3, 4"),
        (range(8), "rows 0, 1, 2, 3, 4 and 3 more"),
    ],
)
def test_list_rows(rows, expected):
    assert list_rows(rows) == expected


def test_unknown_name_offers_the_nearest():
    assert unknown_name("figure", "spektrum", ["mean", "spectrum"]) == (
        "unknown figure 'spektrum': did you mean 'spectrum'? known: mean, spectrum"
    )
    assert unknown_name("figure", "zzz", ["mean", "spectrum"]) == "unknown figure 'zzz': known: mean, spectrum"
