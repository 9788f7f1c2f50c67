"""The stimuli on which encoders are compared: drawn once, saved, the same for every encoder."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cls_analysis.encoder import Encoder
from cls_analysis.errors import DataError
from cls_analysis.extraction import extract_tokens, extract_vectors
from cls_analysis.files import write_text
from cls_analysis.texts import Texts

#: Words that are compared, at most, and how many of one text.
WORDS, WORDS_OF_A_TEXT = 5_000, 2


@dataclass(frozen=True)
class Stimuli:
    """Texts, and the words of them that are compared.

    Attributes
    ----------
    texts : Texts
        Their [CLS] vectors are compared.
    sentence, word : int64 arrays (n,)
        The words: the position of the text, and of the word in it, split at white space; a pair's words count on.
    seed : int
    """

    texts: Texts
    sentence: NDArray[np.int64]
    word: NDArray[np.int64]
    seed: int

    @classmethod
    def draw(cls, encoder: Encoder, texts: Texts, *, words: int = WORDS, seed: int = 0) -> Stimuli:
        """Two words of each text, at random among those with pieces, and at most ``words`` in all.

        No more of one text, so that nearly all pairs are of different ones (and share no context).

        Raises
        ------
        DataError
            If fewer than eight words have pieces.
        """
        rng = np.random.default_rng(seed)
        found = encoder.tokenize_words(*_split(texts))
        chosen = []
        for row, spans in enumerate(found.spans):
            present = np.flatnonzero(spans[:, 0] >= 0)
            some = np.sort(rng.permutation(present)[:WORDS_OF_A_TEXT])
            chosen.append(np.stack([np.full(len(some), row), some], axis=1))
        both = np.concatenate(chosen)
        if len(both) < 8:
            raise DataError(f"{texts.identity.label}: {len(both)} words to compare; at least 8 are needed")
        both = both[np.sort(rng.permutation(len(both))[:words])]
        return cls(texts, both[:, 0], both[:, 1], seed)

    def save(self, path: Path) -> Path:
        """Write which rows and words these are, as JSON; the texts themselves stay where they are."""
        record = {
            "dataset": self.texts.identity.label,
            "hash": self.texts.hash,
            "selection": self.texts.selection,
            "seed": self.seed,
            "rows": self.texts.row_id.tolist(),
            "words": np.stack([self.texts.row_id[self.sentence], self.word], axis=1).tolist(),
        }
        return write_text(path, json.dumps(record) + "\n")

    def cls_vectors(self, encoder: Encoder) -> dict[int, NDArray[np.float32]]:
        """[CLS] of each text, at the layers 1 to L: at layer 0 all are the same vector."""
        return extract_vectors(encoder, self.texts, range(1, encoder.n_layers + 1))

    def word_vectors(self, encoder: Encoder, layers: str | Iterable[int] = "all") -> dict[int, NDArray[np.float32]]:
        """Each word, its pieces averaged, at the layers 0 to L."""
        first, second = _split(self.texts)
        found = extract_tokens(encoder, first, layers, pairs=second, only=(self.sentence, self.word))
        if len(found.word) != len(self.word):
            raise DataError(f"{encoder.name} makes pieces of {len(found.word)} of {len(self.word)} words")
        return found.vectors


def _split(texts: Texts) -> tuple[list[list[str]], list[list[str]] | None]:
    first = [text.split() for text in texts.text]
    return first, None if texts.pair is None else [text.split() for text in texts.pair]
