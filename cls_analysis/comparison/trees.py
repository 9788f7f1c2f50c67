"""Trees that a structural probe predicts, against those of a treebank: the scores of Hewitt and Manning 2019."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import scipy.stats
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.csgraph import minimum_spanning_tree

from cls_analysis.moments import Array
from cls_analysis.tasks.metrics import score
from cls_analysis.texts.conllu import Sentence

#: Tag of words that a spanning tree and the search for a root leave out.
PUNCTUATION = "PUNCT"
#: Lengths of sentences over which Spearman's correlations are averaged.
SHORTEST, LONGEST = 5, 50


@dataclass(frozen=True)
class Gold:
    """The words of a sentence that have a vector, and their tree.

    Attributes
    ----------
    distances : int64 array (k, k)
        Edges between two words in the whole tree, words without a vector included.
    depths : int64 array (k,)
        Edges between each word and the root.
    punctuation : bool array (k,)
    """

    distances: NDArray[np.int64]
    depths: NDArray[np.int64]
    punctuation: NDArray[np.bool_]

    @classmethod
    def of(cls, sentence: Sentence, words: NDArray[np.int64]) -> Gold:
        """Of the words at these places, from 0."""
        punctuation = np.array([sentence.tags[word] == PUNCTUATION for word in words.tolist()], dtype=bool)
        return cls(sentence.distances[np.ix_(words, words)], sentence.depths[words], punctuation)

    def __len__(self) -> int:
        return len(self.depths)


def spanning_edges(distances: ArrayLike, kept: NDArray[np.bool_]) -> set[tuple[int, int]]:
    """Undirected edges of the minimum spanning tree over the words that are kept; places count all words."""
    places = np.flatnonzero(kept)
    if len(places) < 2:
        return set()
    inner = np.asarray(distances, dtype=np.float64)[np.ix_(places, places)]
    # A sparse graph has no edge where a distance is 0: ranks keep the order, and with it the tree.
    ranks = scipy.stats.rankdata(inner, method="dense").reshape(inner.shape).astype(np.float64)
    tree = minimum_spanning_tree(np.triu(ranks, k=1)).tocoo()
    return {(int(places[i]), int(places[j])) for i, j in zip(tree.row, tree.col, strict=True)}


def undirected_attachment(gold: Sequence[Gold], predicted: Sequence[Array]) -> float:
    """UUAS: the share of gold edges that the predicted spanning tree has, over all sentences; without punctuation.

    Gold edges are those of the spanning tree of gold distances, built alike (Hewitt and Manning 2019). From 0 to 1; NaN
    where there are none.
    """
    right = total = 0
    for tree, distances in zip(gold, predicted, strict=True):
        expected = spanning_edges(tree.distances, ~tree.punctuation)
        right += len(expected & spanning_edges(distances, ~tree.punctuation))
        total += len(expected)
    return right / total if total else float("nan")


def root_accuracy(gold: Sequence[Gold], predicted: Sequence[Array]) -> float:
    """Share of sentences whose word of least predicted depth, punctuation left out, is the root; NaN without any.

    Sentences whose root is punctuation, or has no vector, are left out.
    """
    right = total = 0
    for tree, depths in zip(gold, predicted, strict=True):
        words = np.flatnonzero(~tree.punctuation)
        if (tree.depths[words] == 0).any():
            total += 1
            right += int(tree.depths[words[np.argmin(np.asarray(depths)[words])]] == 0)
    return right / total if total else float("nan")


def distance_spearman(gold: Sequence[Gold], predicted: Sequence[Array]) -> float:
    """Spearman's correlation of a word's predicted and gold distances to all words of its sentence, itself included.

    Averaged over the words of sentences of equal length, then over the lengths 5 to 50 (Hewitt and Manning 2019).
    """
    return _by_length(
        gold,
        lambda place: [
            score("spearman", other, row) for row, other in zip(predicted[place], gold[place].distances, strict=True)
        ],
    )


def depth_spearman(gold: Sequence[Gold], predicted: Sequence[Array]) -> float:
    """Spearman's correlation of predicted and gold depths in a sentence, averaged as ``distance_spearman`` is."""
    return _by_length(gold, lambda place: [score("spearman", gold[place].depths, predicted[place])])


def _by_length(gold: Sequence[Gold], correlations: Callable[[int], Iterable[float]]) -> float:
    found: dict[int, list[float]] = {}
    for place, tree in enumerate(gold):
        if SHORTEST <= len(tree) <= LONGEST:
            found.setdefault(len(tree), []).extend(correlations(place))
    means = [np.nanmean(values) for values in found.values() if np.isfinite(values).any()]
    return float(np.mean(means)) if means else float("nan")
