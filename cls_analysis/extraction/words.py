"""Vectors of words: sentences through the frozen encoder; a word's pieces averaged, the first one, or all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from cls_analysis.encoder import Encoder
from cls_analysis.errors import DataError, OptionError, unknown_name
from cls_analysis.extraction.blocks import BATCH_TOKENS, plan_batches

PIECES = ("mean", "first", "all")


@dataclass(frozen=True)
class WordVectors:
    """Vectors of the words of sentences, by layer.

    Attributes
    ----------
    vectors : dict of layer number -> float32 array (n, d)
    sentence, word : int64 arrays (n,)
        Which word row i is of: its sentence, and its place there, both from 0, in ascending order; words without a
        vector are left out.
    n_empty : int
        Words of which the tokenizer makes no piece.
    n_cut : int
        Words beyond the length limit, whole or in part.
    """

    vectors: dict[int, NDArray[np.float32]]
    sentence: NDArray[np.int64]
    word: NDArray[np.int64]
    n_empty: int
    n_cut: int


def extract_tokens(
    encoder: Encoder,
    sentences: Sequence[Sequence[str]],
    layers: str | int | Iterable[int] = "all",
    *,
    pairs: Sequence[Sequence[str]] | None = None,
    only: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    pieces: str = "mean",
    batch_tokens: int | None = None,
) -> WordVectors:
    """Vectors of words.

    Parameters
    ----------
    encoder : Encoder
    sentences : list of lists of str
        Words of each sentence.
    layers : "all", int or list of int
        Which layers, all computed in one pass; layer 0, the embeddings, is of meaning for tokens.
    pairs : list of lists of str, optional
        The second sentence of each, as for a classifier of pairs; its words are numbered on.
    only : (sentence, word), int64 arrays (m,)
        The words that are wanted; all by default. Memory goes with their number.
    pieces : {"mean", "first", "all"}
        Mean of a word's pieces (Hewitt and Manning 2019), the first one, or a row for each.
    batch_tokens : int, optional
        Tokens of a batch, padding included.

    Returns
    -------
    WordVectors

    Raises
    ------
    DataError
        If no word has a vector, a sentence has no tokens, or a vector is not finite.
    OptionError
        If ``pieces`` is another.
    """
    if pieces not in PIECES:
        raise OptionError(unknown_name("pieces", pieces, PIECES))
    found = encoder.tokenize_words(sentences, pairs)
    sentence = np.repeat(np.arange(len(sentences)), [len(spans) for spans in found.spans])
    word = np.concatenate([np.arange(len(spans)) for spans in found.spans])
    spans = np.concatenate(found.spans)
    kept = spans[:, 0] >= 0
    if only is not None:
        width = int(word.max()) + 1
        kept &= np.isin(sentence * width + word, only[0] * width + only[1])
    if not kept.any():
        raise DataError(f"none of {len(spans):,} words has a piece of its own within {encoder.max_length} tokens")
    sentence, word, spans = sentence[kept], word[kept], spans[kept]
    if pieces == "all":
        sentence, word, spans = _apart(sentence, word, spans)
    rows_of = np.searchsorted(sentence, np.arange(len(sentences) + 1))
    chosen = encoder.resolve_layers(layers)
    vectors = {layer: np.empty((len(spans), encoder.hidden_size), dtype=np.float32) for layer in chosen}
    budget = BATCH_TOKENS.get(encoder.device.type, BATCH_TOKENS["cpu"]) if batch_tokens is None else batch_tokens
    with encoder.evaluating():
        for batch in plan_batches(found.tokenized.lengths, budget):
            states = encoder.states(encoder.collate(found.tokenized, batch), chosen)
            for layer, state in states.items():
                for place, row in enumerate(batch.tolist()):
                    part = slice(rows_of[row], rows_of[row + 1])
                    vectors[layer][part] = _of_words(state[place].float(), spans[part], pieces)
    for layer, rows in vectors.items():
        if not (finite := np.isfinite(rows).all(axis=1)).all():
            where = int(sentence[np.argmin(finite)])
            raise DataError(f"layer {layer}: the vector of a word of sentence {where} is not finite")
    return WordVectors(vectors, sentence, word, found.n_empty, found.n_cut)


def _apart(*words: NDArray[np.int64]) -> tuple[NDArray[np.int64], ...]:
    """Sentence, word and span of each piece, from those of each word."""
    sentence, word, spans = words
    counts = spans[:, 1] - spans[:, 0]
    within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
    start = np.repeat(spans[:, 0], counts) + within
    return np.repeat(sentence, counts), np.repeat(word, counts), np.stack([start, start + 1], axis=1)


def _of_words(tokens: torch.Tensor, spans: NDArray[np.int64], pieces: str) -> NDArray[np.float32]:
    """One row a word, from (tokens, d)."""
    start = torch.from_numpy(spans[:, 0]).to(tokens.device)
    if pieces == "first":
        return tokens[start].cpu().numpy()
    # Sums up to each token: in float64, or short words at the end of long sentences would lose digits.
    sums = torch.cumsum(torch.cat([torch.zeros_like(tokens[:1]), tokens]).double(), dim=0)
    stop = torch.from_numpy(spans[:, 1]).to(tokens.device)
    return ((sums[stop] - sums[start]) / (stop - start)[:, None]).float().cpu().numpy()
