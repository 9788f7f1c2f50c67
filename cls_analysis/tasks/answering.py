"""Answering questions as a task: spans of paragraphs, scored as SQuAD scores them."""

from __future__ import annotations

import re
import string
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cls_analysis.errors import DataError
from cls_analysis.provenance import canonical_json, hash_text
from cls_analysis.tasks.splits import divide, split_places
from cls_analysis.tasks.task import Task
from cls_analysis.texts.squad import Question, read_squad

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True, eq=False)
class AnsweringTask(Task):
    """Questions, each answered by a span of its paragraph.

    Metrics are ``f1``, the overlap of words, and ``exact_match``, as SQuAD 1.1 defines them: without case, punctuation
    and articles, by the best of a question's answers. What is predicted for a question is its first character and the
    one behind its last; an empty span scores 0.

    Attributes
    ----------
    name : str
    train, dev : list of Question
    report : bool array (n_dev,)
        Questions that results are reported on: whole articles.
    """

    name: str
    train: list[Question]
    dev: list[Question]
    report: NDArray[np.bool_]
    metrics: tuple[str, ...] = ("f1", "exact_match")

    def __post_init__(self) -> None:
        # Other answers count as well; this is the one that is trained on.
        first = np.array([question.answers[0] for question in self.dev], dtype=np.int64)
        object.__setattr__(self, "dev_target", first)

    def __repr__(self) -> str:
        return f"AnsweringTask({self.name!r}: {self.n_train} questions to train, {self.n_dev} to judge)"

    @property
    def n_train(self) -> int:
        """Questions to train on."""
        return len(self.train)

    @property
    def n_dev(self) -> int:
        """Questions to judge by."""
        return len(self.dev)

    def identity(self) -> dict[str, Any]:
        """What a run depends on: questions and halves, as hashes."""
        return {
            "name": self.name,
            "metrics": list(self.metrics),
            "train": _hash(self.train),
            "dev": _hash(self.dev),
            "report": hash_text(canonical_json(self.report.tolist())),
        }

    def score(self, predicted: NDArray[Any], metric: str, half: NDArray[np.bool_]) -> float:
        """``f1`` or ``exact_match``, the mean over questions, 0 to 1."""
        measure = {"f1": overlap_f1, "exact_match": exact_match}[metric]
        scores = []
        for place in np.flatnonzero(half).tolist():
            question, (start, stop) = self.dev[place], predicted[place].tolist()
            found = question.context[start:stop]
            scores.append(max(measure(found, question.context[slice(*answer)]) for answer in question.answers))
        return float(np.mean(scores)) if scores else float("nan")

    def degenerate(self, predicted: NDArray[Any]) -> bool:
        """Whether no question of those that report shares a word with its answer."""
        return self.scores(predicted, "f1")[1] == 0.0


def load_answering(place: str, *, encoding: str = "utf-8", limit: int | None = None) -> AnsweringTask:
    """``TRAIN.json[,DEV.json]``; without the second, articles are dealt 60/20/20.

    Raises
    ------
    DataError
        If a file is none of SQuAD's, or has too few articles to be split.
    """
    first, second = split_places(place)
    train = read_squad(first, encoding=encoding)
    dev = read_squad(second, encoding=encoding) if second else None
    train, dev, report = divide(train, dev, lambda question: question.article, limit)
    if len(train) < 2 or not report.any() or report.all():
        raise DataError(
            f"squad:{place}: {len(train)} questions to train and {len(dev)} to judge are too few; articles stay whole"
        )
    return AnsweringTask(f"squad:{Path(first).stem}", train, dev, report)


def exact_match(found: str, answer: str) -> float:
    """1 if two answers have the same words, else 0."""
    return float(words_of(found) == words_of(answer))


def overlap_f1(found: str, answer: str) -> float:
    """F1 of the words of two answers, each counted as often as it stands there."""
    ours, theirs = words_of(found), words_of(answer)
    if not ours or not theirs:
        return float(ours == theirs)
    common = sum((Counter(ours) & Counter(theirs)).values())
    return 2.0 * common / (len(ours) + len(theirs))


def words_of(answer: str) -> list[str]:
    """Lower-case words without punctuation and articles."""
    return ARTICLES.sub(" ", answer.lower().translate(PUNCTUATION)).split()


def _hash(questions: list[Question]) -> str:
    return hash_text(canonical_json([[each.question, each.context, each.answers] for each in questions]))
