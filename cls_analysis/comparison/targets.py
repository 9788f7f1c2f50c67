"""What an edge probe must tell of a span of words, or of two: tasks from dependency trees and from span files."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cls_analysis.errors import DataError
from cls_analysis.provenance import hash_text
from cls_analysis.texts.conllu import Sentence
from cls_analysis.texts.formats import read_text, split_lines


@dataclass(frozen=True)
class Targets:
    """Spans of words and their labels (Tenney et al. 2019).

    Attributes
    ----------
    sentences : list of lists of str
        Words.
    sentence : int64 array (n,)
        The sentence that a target is in, from 0.
    first, second : int64 arrays (n, 2)
        Half-open ranges of words; ``second`` is None where a target has one span.
    labels : list of tuples of str
        The labels of each target, one or several.
    """

    sentences: list[list[str]]
    sentence: NDArray[np.int64]
    first: NDArray[np.int64]
    second: NDArray[np.int64] | None
    labels: list[tuple[str, ...]]

    def __len__(self) -> int:
        return len(self.labels)

    def names(self) -> tuple[str, ...]:
        """All labels, in order."""
        return tuple(sorted({label for labels in self.labels for label in labels}))

    def words(self, target: int) -> tuple[str, ...]:
        """The words of a target's spans."""
        words = self.sentences[self.sentence[target]]
        spans = [self.first] if self.second is None else [self.first, self.second]
        return tuple(" ".join(words[start:stop]) for start, stop in (span[target].tolist() for span in spans))


def part_of_speech(sentences: Sequence[Sentence]) -> Targets:
    """A target for each word: its universal part of speech."""
    return _of_words(sentences, lambda sentence: list(sentence.tags), pairs=False)


def dependency_relation(sentences: Sequence[Sentence]) -> Targets:
    """A target for each word and its head: their relation, subtypes included; a root's head is the root itself."""
    return _of_words(sentences, lambda sentence: list(sentence.relations), pairs=True)


def _of_words(sentences: Sequence[Sentence], labels: Callable[[Sentence], list[str]], *, pairs: bool) -> Targets:
    sentence = np.repeat(np.arange(len(sentences)), [len(each) for each in sentences])
    word = np.concatenate([np.arange(len(each)) for each in sentences])
    second = None
    if pairs:
        head = np.concatenate([np.array(each.heads) - 1 for each in sentences])
        second = _spans(np.where(head < 0, word, head))
    every: list[tuple[str, ...]] = [(label,) for each in sentences for label in labels(each)]
    return Targets([list(each.words) for each in sentences], sentence, _spans(word), second, every)


def _spans(word: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.stack([word, word + 1], axis=1)


def read_spans(path: str | Path, *, encoding: str = "utf-8") -> Targets:
    """Targets from JSON lines as jiant reads them.

    A line has ``text``, its words joined by spaces, and ``targets``, each with ``span1``, for pairs ``span2``, both
    half-open ranges of words, and ``label``, a string or a list of them.

    Raises
    ------
    DataError
        Naming the line: not JSON, a key that is missing, a span that is none of the text, pairs beside single spans;
        or a file without a target.
    """
    sentences: list[list[str]] = []
    rows: list[tuple[int, list[tuple[int, int]], tuple[str, ...]]] = []
    for number, line in enumerate(split_lines(read_text(Path(path), encoding)), start=1):
        if not line.strip():
            continue
        where = f"{path}, line {number}"
        try:
            record = json.loads(line)
            words = record["text"].split()
            for target in record["targets"]:
                label = target["label"]
                labels = (label,) if isinstance(label, str) else tuple(label)
                spans = [_checked_span(where, target[key], len(words)) for key in ("span1", "span2") if key in target]
                rows.append((len(sentences), spans, labels))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{where}: expected an object with text and targets, each with span1 and label ({error!r})"
            ) from None
        sentences.append(words)
    if not rows:
        raise DataError(f"{path}: no target; expected JSON lines with text and targets")
    if len({len(spans) for _, spans, _ in rows}) > 1:
        raise DataError(f"{path}: some targets have a span2 and others have none")
    columns = [np.array(column, dtype=np.int64) for column in zip(*[spans for _, spans, _ in rows], strict=True)]
    second = columns[1] if len(columns) > 1 else None
    return Targets(sentences, np.array([row for row, _, _ in rows]), columns[0], second, [row[2] for row in rows])


def _checked_span(where: str, span: Any, words: int) -> tuple[int, int]:
    start, stop = span
    if not 0 <= start < stop <= words:
        raise DataError(f"{where}: span {span} is none of {words} words")
    return int(start), int(stop)


def control_labels(targets: Targets, like: Targets, seed: int) -> Targets:
    """The same targets with a label for each type: one drawn for its words from the labels of ``like``.

    A probe can only learn these by heart; what it reaches beyond them on the real labels speaks for the vectors
    (Hewitt and Liang 2019). The draw depends on words and seed alone, so that training and test agree.
    """
    drawn: dict[tuple[str, ...], tuple[str, ...]] = {}
    for target in range(len(targets)):
        words = targets.words(target)
        if words not in drawn:
            number = int(hash_text(f"{seed}\0" + "\0".join(words))[:15], 16)
            drawn[words] = like.labels[number % len(like)]
    return replace(targets, labels=[drawn[targets.words(target)] for target in range(len(targets))])


def shuffled_labels(targets: Targets, seed: int) -> Targets:
    """The same targets, their labels dealt out anew: what a probe reaches without any signal."""
    order = np.random.default_rng(seed).permutation(len(targets))
    return replace(targets, labels=[targets.labels[place] for place in order])
