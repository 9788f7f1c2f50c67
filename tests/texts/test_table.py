"""``Texts``: checks, ids, labels, selections and the hash."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cls_analysis import load_texts
from cls_analysis.errors import DataError, OptionError
from cls_analysis.provenance import DatasetIdentity
from cls_analysis.texts.table import make_texts

NAN = float("nan")
quick = settings(max_examples=60, deadline=None)


def labelled(labels, name="set", split=None):
    return make_texts(name, [f"text {row}" for row in range(len(labels))], label=labels, split=split)


# -- strings ---------------------------------------------------------------------------------------------------------


def test_case_06_none_nan_and_numbers_in_one_error(refused):
    with refused(DataError, "3 of 4", "rows 1, 2, 3"):
        load_texts(["a", None, NAN, 3])


def test_case_06_the_first_five_rows_and_the_count_of_the_rest(refused):
    with refused(DataError, "8 of 9", "rows 1, 2, 3, 4, 5 and 3 more", "--on-missing"):
        load_texts(["a", *[None] * 8])


def test_case_06_an_empty_text_is_legal_and_counted():
    texts = load_texts(["", "a", ""])
    assert (texts.text, texts.n_empty, texts.n_dropped) == (["", "a", ""], 2, 0)


def test_case_06_missing_as_empty():
    texts = load_texts(["a", None, NAN], on_missing="empty")
    assert (texts.text, texts.n_empty, texts.row_id.tolist()) == (["a", "", ""], 2, [0, 1, 2])


def test_case_06_missing_dropped_with_the_ids_and_labels_of_the_others():
    texts = make_texts("set", [None, "a", "", None, "b"], label=[0, 1, 2, 3, 4], on_missing="drop")
    assert (texts.text, texts.label, texts.row_id.tolist()) == (["a", "", "b"], [1, 2, 4], [1, 2, 4])
    assert (texts.n_dropped, texts.n_empty, len(texts)) == (2, 1, 3)


@pytest.mark.parametrize("on_missing", ["drop", "empty"])
@pytest.mark.parametrize("value", [3, 1.5, True, b"a", [], {"a": 1}], ids=repr)
def test_case_06_what_is_no_string_is_never_dropped(value, on_missing, refused):
    with refused(DataError, "1 of 3", "row 2", f"expected a string, found {type(value).__name__}"):
        make_texts("set", ["a", None, value], on_missing=on_missing)


@pytest.mark.parametrize("text", ["\ud800", "half a pair \udc00 of surrogates"])
def test_case_06_a_lone_surrogate_is_refused_before_a_tokenizer_meets_it(text, refused):
    with refused(DataError, "1 of 2", "row 1"):
        load_texts(["a", text])


def test_every_row_missing(refused):
    with refused(DataError, "every row"):
        load_texts([None, NAN], on_missing="drop")


def test_no_rows(refused):
    with refused(DataError, "no rows"):
        load_texts([])


def test_an_unknown_on_missing(refused):
    with refused(OptionError, "'dorp'", "did you mean 'drop'?", "error, drop, empty"):
        load_texts(["a"], on_missing="dorp")


class TestPairs:
    """A side of a pair that is missing makes the row missing."""

    ROWS = (("a", "b"), (None, "c"), ("d", NAN), None, ("e", ""))

    def test_error(self, refused):
        with refused(DataError, "3 of 5", "rows 1, 2, 3"):
            load_texts(list(self.ROWS))

    def test_drop(self):
        texts = load_texts(list(self.ROWS), on_missing="drop")
        assert (texts.text, texts.pair, texts.row_id.tolist()) == (["a", "e"], ["b", ""], [0, 4])

    def test_empty(self):
        texts = load_texts(list(self.ROWS), on_missing="empty")
        assert (texts.text, texts.pair) == (["a", "", "d", "", "e"], ["b", "c", "", "", ""])
        assert texts.n_empty == 4


# -- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [-1, -1.0, "-1", "-1.0", np.int64(-1)], ids=repr)
def test_case_08_all_labels_hidden(hidden, refused):
    texts = labelled([hidden] * 3, split="test")
    assert (len(texts), texts.label, texts.labels_hidden) == (3, None, True)
    with refused(DataError, "split 'test' has no labels (all -1)"):
        texts.require_labels()


@pytest.mark.parametrize("labels", [[0, 1, -1], [0.0, 1.0, -1.0], ["0", "1", "-1"], [2, 1, -1]])
def test_case_08_a_hidden_label_among_real_ones(labels, refused):
    with refused(DataError, "set", "1 of 3", "row 2"):
        labelled(labels)


def test_case_08_hidden_labels_are_named_by_id(refused):
    with refused(DataError, "1 of 3", "row 3"):
        make_texts("set", [None, "a", "b", "c"], label=[0, 1, 0, -1], on_missing="drop")


def test_case_08_a_split_called_test_may_have_labels():
    assert labelled([1, 0, 1], split="test").require_labels() == [1, 0, 1]


@pytest.mark.parametrize("labels", [[-1, 1, 1], [1.0, -1.0, 1.0], ["-1", "1", "1"]])
def test_case_08_the_classes_minus_one_and_one_are_labels(labels):
    assert labelled(labels).require_labels() == labels


@pytest.mark.parametrize("labels", [["3.8", "0.0"], [3.8, 0.0], ["b", "a"], ["01", "1"], [True, False], [-1.0, 0.5]])
def test_case_22_labels_stay_as_the_source_gives_them(labels):
    texts = labelled(labels)
    assert texts.label == labels
    assert [type(label) for label in texts.label] == [type(label) for label in labels]


@pytest.mark.parametrize("labels", [None, [None, None], [NAN, NAN]])
def test_no_labels(labels, refused):
    texts = make_texts("set", ["a", "b"], label=labels, split="dev")
    assert (texts.label, texts.labels_hidden) == (None, False)
    with refused(DataError, "set@dev", "no labels"):
        texts.require_labels()


# -- selections ------------------------------------------------------------------------------------------------------


def test_take_keeps_ids_and_their_order():
    texts = make_texts("set", list("abcd"), list("efgh"), [0, 1, 2, 3]).take([3, 0])
    assert (texts.text, texts.pair, texts.label) == (["d", "a"], ["h", "e"], [3, 0])
    assert texts.row_id.tolist() == [3, 0]
    assert texts.take([1]).row_id.tolist() == [0]


def test_first():
    texts = load_texts(list("abcd"))
    few = texts.first(3)
    assert (few.text, few.row_id.tolist(), few.selection) == (["a", "b", "c"], [0, 1, 2], "first 3")
    assert texts.first(4) is texts
    assert texts.first(9) is texts


def test_first_after_dropping_counts_rows_that_are_there():
    assert load_texts([None, "a", "b", "c"], on_missing="drop").first(2).row_id.tolist() == [1, 2]


def test_limit_is_seeded_and_in_original_order():
    texts = load_texts([f"text {row}" for row in range(1_000)])
    few = texts.sample(50)
    assert len(few) == 50
    assert (np.diff(few.row_id) > 0).all()
    assert few.text == [f"text {row}" for row in few.row_id]
    assert few.row_id.tolist() == load_texts(texts.text, limit=50).row_id.tolist()
    assert few.row_id.tolist() != texts.sample(50, seed=1).row_id.tolist()
    assert few.row_id.tolist() != list(range(50))
    assert few.selection == "limit 50, seed 0"
    assert texts.sample(1_000) is texts


def test_limit_stratifies_in_exact_shares():
    few = labelled(["a"] * 60 + ["b"] * 30 + ["c"] * 10).sample(20)
    assert few.label == ["a"] * 12 + ["b"] * 6 + ["c"] * 2


@quick
@given(counts=st.lists(st.integers(10, 60), min_size=1, max_size=4), share=st.floats(0.1, 0.9))
def test_limit_keeps_every_class_within_a_row_of_its_share(counts, share):
    labels = [number for number, count in enumerate(counts) for _ in range(count)]
    n = max(1, int(share * len(labels)))
    few = labelled(labels).sample(n)
    assert len(few) == len(set(few.row_id.tolist())) == n
    for number, count in enumerate(counts):
        assert abs(few.label.count(number) - count * n / len(labels)) < 1


@pytest.mark.parametrize(
    "labels", [[float(row % 3) for row in range(40)], [f"id {row}" for row in range(40)]], ids=["scores", "identifiers"]
)
def test_limit_does_not_stratify_by_what_is_no_class(labels):
    few = labelled(labels).sample(13)
    assert few.row_id.tolist() == load_texts(["x"] * 40, limit=13).row_id.tolist()
    assert few.label == [labels[row] for row in few.row_id]


@pytest.mark.parametrize("n", [0, -1, 2.0, "3", True], ids=repr)
def test_a_limit_that_is_no_number_of_rows(n, refused):
    texts = load_texts(["a", "b", "c", "d"])
    for choose in (lambda: load_texts(["a"], limit=n), lambda: texts.sample(n), lambda: texts.first(n)):
        with refused(OptionError, "whole number", repr(n)):
            choose()


def test_the_identity_of_a_selection_keeps_name_and_hash():
    texts = make_texts("glue/cola", ["a", "b", "c"], split="dev")
    assert texts.identity == DatasetIdentity("glue/cola", "dev", texts.hash, "all")
    assert texts.first(2).identity == DatasetIdentity("glue/cola", "dev", texts.hash, "first 2")
    assert texts.first(2).identity.label == "glue/cola@dev (first 2)"


def test_a_selection_of_a_selection_records_both():
    few = load_texts([f"text {row}" for row in range(100)]).first(50).sample(10)
    assert few.row_id.max() < 50
    assert "first 50" in few.selection
    assert "limit 10" in few.selection


def test_repr_says_what_it_holds():
    assert repr(make_texts("set", ["a"], split="dev")) == "Texts('set@dev': 1 texts)"
    assert repr(load_texts([["a", "b"]])) == "Texts('texts': 1 pairs)"


def test_comparing_texts_gives_an_answer():
    one = load_texts(["a", "b"])
    assert one in [load_texts(["a", "b"]), one]
    assert one != load_texts(["a", "c"])


# -- hash ------------------------------------------------------------------------------------------------------------


def test_labels_names_and_splits_do_not_count():
    plain = load_texts(["a", "b"]).hash
    assert make_texts("other", ["a", "b"], label=[1, 0], split="dev").hash == plain
    assert len(plain) == 32


def test_selections_have_the_hash_of_the_whole():
    texts = load_texts([f"text {row}" for row in range(20)])
    assert texts.first(3).hash == texts.sample(3).hash == texts.take([7]).hash == texts.hash


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["a", "b"], ["b", "a"]),
        (["a", "b"], ["a", "b", ""]),
        (["ab", "c"], ["a", "bc"]),
        (["ab", ""], ["a", "b"]),
        (["a", "b"], [["a", "b"]]),
        (["a"], [["a", ""]]),
        ([["ab", "c"]], [["a", "bc"]]),
        ([["a", "b"]], [["b", "a"]]),
        ([["a", "c"], ["b", "d"]], [["a", "b"], ["c", "d"]]),
        (["é"], ["e\u0301"]),
        (["a"], ["a "]),
    ],
)
def test_other_texts_have_another_hash(one, other):
    assert load_texts(one).hash != load_texts(other).hash


def test_dropped_rows_count_as_ids_do():
    dropped = load_texts(["a", None, "b"], on_missing="drop")
    assert dropped.hash != load_texts(["a", "b"]).hash
    assert dropped.hash != load_texts(["a", "b", None], on_missing="drop").hash


@quick
@given(
    one=st.lists(st.text("ab", max_size=2), min_size=1, max_size=3),
    other=st.lists(st.text("ab", max_size=2), min_size=1, max_size=3),
)
def test_hashes_agree_exactly_where_texts_do(one, other):
    assert (load_texts(one).hash == load_texts(other).hash) == (one == other)
