"""Words and their pieces: against transformers' own word ids, on words without pieces, and where truncation cuts."""

from __future__ import annotations

import numpy as np
import pytest
import tiny

import cls_analysis as ca
from cls_analysis.encoder.words import tokenize_words
from cls_analysis.errors import DataError


@pytest.fixture(scope="module")
def minilm():
    return ca.Encoder.from_pretrained("embedded", device="cpu").tokenizer


def by_word_ids(tokenizer, words, **options):
    """Spans by what transformers keeps of words that it is given apart."""
    ids = tokenizer(words, is_split_into_words=True, **options).word_ids()
    return [
        [ids.index(word), len(ids) - ids[::-1].index(word)] if word in ids else [-1, -1] for word in range(len(words))
    ]


WORDS = [
    ["Hello", "unbelievable", "anti-establishment", "café", "naïve", "…", "x²", "don", "'t", "日本", "end"],
    ["one"],
    ["supercalifragilistic", ",", "the", "e-mail", "at", "5:30", "p.m.", "."],
]


def test_spans_are_those_of_transformers(minilm):
    found = tokenize_words(minilm, WORDS, max_length=64, segments=True)
    for words, spans, ids in zip(WORDS, found.spans, found.tokenized.ids, strict=True):
        assert spans.tolist() == by_word_ids(minilm, words)
        assert ids == minilm(words, is_split_into_words=True)["input_ids"]
    assert (found.n_empty, found.n_cut) == (0, 0)


def test_case_44_words_without_pieces_shift_no_others(minilm):
    found = tokenize_words(minilm, [["Hello", "", "unbelievable", "\u200b", "!"]], max_length=64, segments=True)
    (spans,) = found.spans
    assert spans.tolist() == [[1, 2], [-1, -1], [2, 3], [-1, -1], [3, 4]]
    assert minilm.convert_ids_to_tokens(found.tokenized.ids[0])[1:4] == ["hello", "unbelievable", "!"]
    assert found.n_empty == 2


def test_words_beyond_the_limit_are_lost_and_counted(minilm):
    words = ["a", "supercalifragilistic", "b", "", "c"]  # 1, 6, 1, 0 and 1 pieces
    assert by_word_ids(minilm, words)[1] == [2, 8]
    for limit, kept, cut in ((11, [1, 1, 1, 0, 1], 0), (10, [1, 1, 1, 0, 0], 1), (6, [1, 0, 0, 0, 0], 3)):
        found = tokenize_words(minilm, [words], max_length=limit, segments=True)
        assert (found.spans[0][:, 0] >= 0).astype(int).tolist() == kept, limit
        assert (found.n_cut, found.n_empty) == (cut, 1)
        assert len(found.tokenized.ids[0]) <= limit


@pytest.mark.parametrize("name", sorted(tiny.ARCHITECTURES))
def test_every_tokenizer(name):
    tokenizer = tiny.make_tokenizer(name)
    words = [["a", "b", "c", "d"], ["e"]]
    found = tokenize_words(tokenizer, words, max_length=32, segments=False)
    for sentence, spans, ids in zip(words, found.spans, found.tokenized.ids, strict=True):
        assert (spans >= 0).all()
        assert np.array_equal(spans[:-1, 1], spans[1:, 0])
        for word, (start, stop) in zip(sentence, spans, strict=True):
            assert tokenizer.decode(ids[start:stop]).strip() == word


def test_pairs_number_their_words_on(minilm):
    first, second = ["the", "unbelievable", "cat"], ["sat", "", "supercalifragilistic"]
    found = tokenize_words(minilm, [first], [second], max_length=64, segments=True)
    encoded = minilm(" ".join(first), " ".join(second))
    assert found.tokenized.ids[0] == encoded["input_ids"]
    tokens = minilm.convert_ids_to_tokens(encoded["input_ids"])
    read = ["".join(tokens[start:stop]).replace("##", "") if start >= 0 else None for start, stop in found.spans[0]]
    assert read == ["the", "unbelievable", "cat", "sat", None, "supercalifragilistic"]
    short = tokenize_words(minilm, [first], [second], max_length=9, segments=True)
    assert (short.spans[0][:, 0] >= 0).tolist() == [True, True, True, True, False, False]
    assert (short.n_cut, short.n_empty) == (1, 1)


def test_a_slow_tokenizer_is_refused():
    class Slow:
        is_fast = False

    with pytest.raises(DataError, match="Slow does not say which characters"):
        tokenize_words(Slow(), [["a"]], max_length=8, segments=False)
