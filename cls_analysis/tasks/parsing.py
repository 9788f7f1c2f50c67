"""Dependency parsing as a task: trees to train on and trees to judge by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cls_analysis.errors import DataError
from cls_analysis.provenance import canonical_json, hash_text
from cls_analysis.tasks.splits import divide, split_places
from cls_analysis.tasks.task import Task
from cls_analysis.texts.conllu import Sentence, read_conllu

#: Columns of what is predicted for a word: its head (from 1; 0 for the root) and the number of its relation. Both are
#: ``MISSING`` where a word has no vector, which counts as wrong.
HEAD, RELATION = 0, 1
MISSING = -1


@dataclass(frozen=True, eq=False)
class ParsingTask(Task):
    """Sentences with trees.

    Metrics are ``las`` and ``uas``, labelled and unlabelled attachment: the share of all words, punctuation included,
    whose head, and whose relation to it, is right; relations without subtypes (as in the CoNLL 2018 shared task).

    Attributes
    ----------
    name : str
    train, dev : list of Sentence
    relations : tuple of str
        Of the training sentences, in order; a relation's number is its place.
    report_sentence : bool array (len(dev),)
        Sentences that results are reported on: whole documents, where the file has any.
    """

    name: str
    train: list[Sentence]
    dev: list[Sentence]
    relations: tuple[str, ...]
    report_sentence: NDArray[np.bool_]
    metrics: tuple[str, ...] = ("las", "uas")

    def __post_init__(self) -> None:
        lengths = [len(sentence) for sentence in self.dev]
        object.__setattr__(self, "report", np.repeat(self.report_sentence, lengths))
        object.__setattr__(self, "dev_target", np.concatenate([self.target(sentence) for sentence in self.dev]))

    def __repr__(self) -> str:
        return f"ParsingTask({self.name!r}: {self.n_train} sentences to train, {self.n_dev} to judge)"

    @property
    def n_train(self) -> int:
        """Sentences to train on."""
        return len(self.train)

    @property
    def n_dev(self) -> int:
        """Sentences to judge by."""
        return len(self.dev)

    @property
    def n_report(self) -> int:
        """Sentences that report."""
        return int(self.report_sentence.sum())

    def identity(self) -> dict[str, Any]:
        """What a run depends on: trees and halves, as hashes."""
        return {
            "name": self.name,
            "metrics": list(self.metrics),
            "relations": list(self.relations),
            "train": _hash(self.train),
            "dev": _hash(self.dev),
            "report": hash_text(canonical_json(self.report_sentence.tolist())),
        }

    def target(self, sentence: Sentence) -> NDArray[np.int64]:
        """Head and relation of each word, shape (k, 2); ``MISSING`` for a relation that training sentences lack."""
        place = {name: number for number, name in enumerate(self.relations)}
        return np.array(
            [
                (head, place.get(universal(name), MISSING))
                for head, name in zip(sentence.heads, sentence.relations, strict=True)
            ],
            dtype=np.int64,
        )

    def score(self, predicted: NDArray[Any], metric: str, half: NDArray[np.bool_]) -> float:
        """``uas`` or ``las``, 0 to 1."""
        truth, found = self.dev_target[half], predicted[half]
        right = (truth[:, HEAD] == found[:, HEAD]) & (found[:, HEAD] != MISSING)
        if metric == "las":
            right &= (truth[:, RELATION] == found[:, RELATION]) & (truth[:, RELATION] != MISSING)
        return float(right.mean()) if len(right) else float("nan")

    def degenerate(self, predicted: NDArray[Any]) -> bool:
        """Whether no more heads are right than where each word hangs on the one before it."""
        return self.scores(predicted, "uas")[1] <= self.scores(self.left_neighbours(), "uas")[1]

    def left_neighbours(self) -> NDArray[np.int64]:
        """The prediction that hangs each word on the one before it, by the most frequent relation."""
        frequent = Counter(universal(name) for sentence in self.train for name in sentence.relations).most_common(1)
        heads = np.concatenate([np.arange(len(sentence)) for sentence in self.dev])
        return np.stack([heads, np.full_like(heads, self.relations.index(frequent[0][0]))], axis=1)

    def remark(self) -> str:
        """Sizes, and the score of left neighbours."""
        uas = self.scores(self.left_neighbours(), "uas")[1]
        return f"{super().remark()} (sentences); hanging each word on the one before it gives UAS {uas:.3f}"


def load_parsing(place: str, *, encoding: str = "utf-8", limit: int | None = None) -> ParsingTask:
    """``TRAIN.conllu[,DEV.conllu]``; without the second, documents are dealt 60/20/20.

    Raises
    ------
    DataError
        If a file is no CoNLL-U, or too small to be split.
    """
    first, second = split_places(place)
    train = read_conllu(first, encoding=encoding)
    dev = read_conllu(second, encoding=encoding) if second else None
    train, dev, report = divide(train, dev, lambda sentence: sentence.document, limit)
    if len(train) < 2 or not report.any() or report.all():
        raise DataError(f"ud:{place}: {len(train)} sentences to train and {len(dev)} to judge are too few")
    relations = tuple(sorted({universal(name) for sentence in train for name in sentence.relations}))
    return ParsingTask(f"ud:{Path(first).stem}", train, dev, relations, report)


def universal(relation: str) -> str:
    """A relation without its subtype: ``nsubj`` of ``nsubj:pass``."""
    return relation.partition(":")[0]


def _hash(sentences: Sequence[Sentence]) -> str:
    return hash_text(canonical_json([[each.words, each.heads, each.relations] for each in sentences]))
