"""From words to their pieces: which tokens of a sentence make up each of its words, and which words have none left."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cls_analysis.encoder.tokens import Tokenized, tokenize
from cls_analysis.errors import DataError


@dataclass(frozen=True)
class WordPieces:
    """Sentences of words as tokens.

    Attributes
    ----------
    tokenized : Tokenized
        The sentences, their words joined by spaces.
    spans : list of int64 arrays (words, 2)
        First token of each word, and the one behind its last; −1 twice for a word that has no piece, or not all of
        them left.
    n_empty : int
        Words of which the tokenizer makes nothing, as a zero-width space.
    n_cut : int
        Words that truncation took, whole or in part.
    """

    tokenized: Tokenized
    spans: list[NDArray[np.int64]]
    n_empty: int
    n_cut: int


def tokenize_words(
    tokenizer: Any, sentences: Sequence[Sequence[str]], *, max_length: int, segments: bool
) -> WordPieces:
    """Tokenise sentences of words.

    Words are joined by single spaces and found again by their characters, which every fast tokenizer keeps track of.
    A piece belongs to the word of its first character that is no space.

    Raises
    ------
    DataError
        If the tokenizer is a slow one, which does not keep track, or a sentence has no tokens.
    """
    if not tokenizer.is_fast:
        raise DataError(f"{type(tokenizer).__name__} does not say which characters a piece is of: a fast one is needed")
    texts = [" ".join(words) for words in sentences]
    tokenized = tokenize(tokenizer, texts, None, max_length=max_length, segments=segments, row_ids=range(len(texts)))
    whole = _offsets(tokenizer, texts, None)
    spans, n_empty, n_cut = [], 0, 0
    for row, words in enumerate(sentences):
        found = _spans(texts[row], words, whole[row])
        n_empty += int((found[:, 0] < 0).sum())
        if tokenized.cut[row]:
            (short,) = _offsets(tokenizer, [texts[row]], max_length)
            left = _spans(texts[row], words, short)
            broken = (left[:, 1] - left[:, 0] != found[:, 1] - found[:, 0]) | (left[:, 0] < 0)
            n_cut += int((broken & (found[:, 0] >= 0)).sum())
            found = np.where(broken[:, None], -1, left)
        spans.append(found)
    return WordPieces(tokenized, spans, n_empty, n_cut)


def _offsets(tokenizer: Any, texts: Sequence[str], max_length: int | None) -> list[list[tuple[int, int] | None]]:
    """First and last character of each token; None for the marks that the tokenizer adds."""
    encoded = tokenizer(
        list(texts),
        truncation=max_length is not None,
        max_length=max_length,
        return_offsets_mapping=True,
        return_attention_mask=False,
        verbose=False,
    )
    return [
        [tuple(span) if side == 0 else None for span, side in zip(spans, encoded.sequence_ids(row), strict=True)]
        for row, spans in enumerate(encoded["offset_mapping"])
    ]


def _spans(text: str, words: Sequence[str], offsets: Sequence[tuple[int, int] | None]) -> NDArray[np.int64]:
    """First token of each word and the one behind its last; −1 where it has none."""
    ends = np.cumsum([len(word) + 1 for word in words])  # with the space behind it
    spans = np.full((len(words), 2), -1, dtype=np.int64)
    for token, offset in enumerate(offsets):
        if offset is None:
            continue
        start, stop = offset
        start += len(text[start:stop]) - len(text[start:stop].lstrip())
        if start >= stop:
            continue  # a space alone
        word = int(np.searchsorted(ends, start, side="right"))
        if spans[word, 0] < 0:
            spans[word, 0] = token
        spans[word, 1] = token + 1
    return spans
