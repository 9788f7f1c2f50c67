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
    tokenizer: Any,
    sentences: Sequence[Sequence[str]],
    pairs: Sequence[Sequence[str]] | None = None,
    *,
    max_length: int,
    segments: bool,
) -> WordPieces:
    """Tokenise sentences of words, or pairs of them, whose words are numbered on through the second one.

    Words are joined by single spaces and found again by their characters, which every fast tokenizer keeps track of.
    A piece belongs to the word of its first character that is no space.

    Raises
    ------
    DataError
        If the tokenizer is a slow one, which does not keep track, or a sentence has no tokens.
    """
    sides = [sentences] if pairs is None else [sentences, pairs]
    texts = [[" ".join(words) for words in side] for side in sides]
    whole = token_places(tokenizer, texts, None)  # first: a slow tokenizer is refused before any work
    tokenized = tokenize(
        tokenizer,
        texts[0],
        None if pairs is None else texts[1],
        max_length=max_length,
        segments=segments,
        row_ids=range(len(sentences)),
    )
    spans, n_empty, n_cut = [], 0, 0
    for row in range(len(sentences)):
        words = [side[row] for side in sides]
        found = _spans(words, whole[row])
        n_empty += int((found[:, 0] < 0).sum())
        if tokenized.cut[row] or tokenized.cut_pair[row]:
            (short,) = token_places(tokenizer, [[side[row]] for side in texts], max_length)
            left = _spans(words, short)
            broken = (left[:, 1] - left[:, 0] != found[:, 1] - found[:, 0]) | (left[:, 0] < 0)
            n_cut += int((broken & (found[:, 0] >= 0)).sum())
            found = np.where(broken[:, None], -1, left)
        spans.append(found)
    return WordPieces(tokenized, spans, n_empty, n_cut)


#: Side, first character and the one behind the last, of a token of a text; None for the marks that a tokenizer adds.
Place = tuple[int, int, int] | None


def token_places(tokenizer: Any, texts: Sequence[Sequence[str]], max_length: int | None) -> list[list[Place]]:
    """The place of each token of each row, truncated as ``tokenize`` does; ``texts`` has one list a side.

    Raises
    ------
    DataError
        If the tokenizer is a slow one, which does not keep track of characters.
    """
    if not tokenizer.is_fast:
        raise DataError(f"{type(tokenizer).__name__} does not say which characters a piece is of: a fast one is needed")
    encoded = tokenizer(
        *[list(side) for side in texts],
        truncation="longest_first" if max_length is not None else False,
        max_length=max_length,
        return_offsets_mapping=True,
        return_attention_mask=False,
        verbose=False,
    )
    return [
        [None if side is None else (side, *span) for span, side in zip(spans, encoded.sequence_ids(row), strict=True)]
        for row, spans in enumerate(encoded["offset_mapping"])
    ]


def _spans(sides: Sequence[Sequence[str]], places: Sequence[Place]) -> NDArray[np.int64]:
    """First token of each word and the one behind its last; −1 where it has none."""
    texts = [" ".join(words) for words in sides]
    ends = [np.cumsum([len(word) + 1 for word in words]) for words in sides]  # with the space behind each
    spans = np.full((sum(map(len, sides)), 2), -1, dtype=np.int64)
    for token, place in enumerate(places):
        if place is None:
            continue
        side, start, stop = place
        start += len(texts[side][start:stop]) - len(texts[side][start:stop].lstrip())
        if start >= stop:
            continue  # a space alone
        word = int(np.searchsorted(ends[side], start, side="right")) + side * len(sides[0])
        if spans[word, 0] < 0:
            spans[word, 0] = token
        spans[word, 1] = token + 1
    return spans
