"""CoNLL-U: ranges and empty nodes left out, heads by id, trees checked, distances counted."""

from __future__ import annotations

import numpy as np
import pytest

from cls_analysis.errors import DataError
from cls_analysis.texts.conllu import read_conllu


def line(number, form, head, relation="dep", tag="X"):
    return "\t".join([str(number), form, "_", tag, "_", "_", str(head), relation, "_", "_"])


def write(tmp_path, *lines):
    path = tmp_path / "trees.conllu"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


#: "du" is the range of "de le"; an empty node stands between.
FRENCH = (
    "# newdoc id = d1",
    "# sent_id = s-1",
    line(1, "je", 2, "nsubj", "PRON"),
    line(2, "viens", 0, "root", "VERB"),
    line("3-4", "du", "_", "_"),
    line(3, "de", 5, "case", "ADP"),
    line(4, "le", 5, "det", "DET"),
    line("4.1", "ghost", "_", "_"),
    line(5, "nord", 2, "obl:arg", "NOUN"),
)


def test_ranges_and_empty_nodes_are_no_words(tmp_path):
    (sentence,) = read_conllu(write(tmp_path, *FRENCH))
    assert sentence.words == ("je", "viens", "de", "le", "nord")
    assert sentence.heads == (2, 0, 5, 5, 2)
    assert sentence.relations == ("nsubj", "root", "case", "det", "obl:arg")
    assert sentence.tags == ("PRON", "VERB", "ADP", "DET", "NOUN")
    assert (sentence.id, sentence.document, sentence.root) == ("s-1", "d1", 1)


def test_distances_are_edges_of_the_tree(tmp_path):
    (sentence,) = read_conllu(write(tmp_path, *FRENCH))
    expected = [[0, 1, 3, 3, 2], [1, 0, 2, 2, 1], [3, 2, 0, 2, 1], [3, 2, 2, 0, 1], [2, 1, 1, 1, 0]]
    assert np.array_equal(sentence.distances, expected)
    assert np.array_equal(sentence.depths, [1, 0, 2, 2, 1])


def test_heads_go_by_id_not_by_line(tmp_path):
    # Ids with a gap, as an editor may leave them.
    (sentence,) = read_conllu(write(tmp_path, line(1, "a", 4), line(2, "b", 0), line(4, "c", 2)))
    assert sentence.heads == (3, 0, 2)


def test_sentences_and_documents(tmp_path):
    path = write(
        tmp_path,
        *("# newdoc id = one", line(1, "a", 0), "", "", line(1, "b", 0), "   "),
        *("# newdoc id = two", "# text = only comments", "", "# sent_id = x", line(1, "c", 0), "", "# newdoc"),
    )
    found = [(sentence.id, sentence.document, sentence.words) for sentence in read_conllu(path)]
    assert found == [("1", "one", ("a",)), ("2", "one", ("b",)), ("x", "two", ("c",))]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ((), "no sentence; expected CoNLL-U"),
        (("only words",), "line 1: expected 10 columns, got 1"),
        ((line(1, "a", 0), line(2, "b", 7)), "line 2: head '7' of word 2 is no word of its sentence"),
        ((line(1, "a", "_"),), "line 1: head '_' of word 1 is no word"),
        (("# x", line(1, "a", 0), line(2, "b", 0)), "line 2: sentence 1 has 2 roots, expected one"),
        ((line(1, "a", 2), line(2, "b", 1)), "line 1: sentence 1 has 0 roots"),
        ((line(1, "a", 0), line(2, "b", 3), line(3, "c", 2)), "heads of sentence 1 run in a circle"),
        ((line(1, "a", 0), line(1, "b", 1)), "two words of sentence 1 have the same id"),
    ],
)
def test_what_is_no_tree(lines, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_conllu(write(tmp_path, *lines))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(DataError, match=r"none\.conllu"):
        read_conllu(tmp_path / "none.conllu")
