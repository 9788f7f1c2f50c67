"""Dependency trees from CoNLL-U files (universaldependencies.org/format): words, their tags, heads and relations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, shortest_path

from cls_analysis.errors import DataError
from cls_analysis.texts.formats import read_text, split_lines

COLUMNS = 10
ID, FORM, UPOS, HEAD, RELATION = 0, 1, 3, 6, 7


@dataclass(frozen=True)
class Sentence:
    """A sentence and its tree.

    Attributes
    ----------
    id : str
        As the file has it, else its number, from 1.
    document : str, or None
        The document that it is in.
    words : tuple of str
        Syntactic words; ranges (``2-3``) and empty nodes (``5.1``) are left out.
    tags : tuple of str
        Universal parts of speech.
    heads : tuple of int
        Place of each word's head, from 1; 0 for the root.
    relations : tuple of str
        Relation of each word to its head, subtypes included.
    """

    id: str
    document: str | None
    words: tuple[str, ...]
    tags: tuple[str, ...]
    heads: tuple[int, ...]
    relations: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def root(self) -> int:
        """Place of the root, from 0."""
        return self.heads.index(0)

    @cached_property
    def distances(self) -> NDArray[np.int64]:
        """Edges on the path between two words, shape (k, k)."""
        return np.asarray(shortest_path(_edges(self.heads), directed=False, unweighted=True), dtype=np.int64)

    @property
    def depths(self) -> NDArray[np.int64]:
        """Edges between each word and the root, shape (k,)."""
        return np.asarray(self.distances[self.root])


def read_conllu(path: str | Path, *, encoding: str = "utf-8") -> list[Sentence]:
    """All sentences of a file.

    Raises
    ------
    DataError
        Naming file and line: a line of other than ten columns, a word without a head, a head that is no word of the
        sentence, no root or several, a circle; or a file without a sentence.
    """
    path = Path(path)
    sentences: list[Sentence] = []
    document = None
    for block in _blocks(split_lines(read_text(path, encoding))):
        reader = _Reader(str(path), block, document, len(sentences) + 1)
        document = reader.document
        if reader.rows:
            sentences.append(reader.sentence())
    if not sentences:
        raise DataError(
            f"{path}: no sentence; expected CoNLL-U, ten columns a word and an empty line between sentences"
        )
    return sentences


def _blocks(lines: list[str]) -> Iterator[list[tuple[int, str]]]:
    """Numbered lines up to each empty one."""
    block: list[tuple[int, str]] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            block.append((number, line))
        elif block:
            yield block
            block = []
    if block:
        yield block


@dataclass
class _Reader:
    """One block of lines: its comments and words."""

    where: str
    block: list[tuple[int, str]]
    document: str | None
    number: int
    id: str = ""
    rows: list[tuple[int, list[str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.id = str(self.number)
        for number, line in self.block:
            if line.startswith("#"):
                self._comment(line)
                continue
            columns = line.split("\t")
            if len(columns) != COLUMNS:
                raise DataError(f"{self.where}, line {number}: expected {COLUMNS} columns, got {len(columns)}")
            if "-" not in columns[ID] and "." not in columns[ID]:
                self.rows.append((number, columns))

    def _comment(self, line: str) -> None:
        name, _, value = line[1:].partition("=")
        if name.strip() == "sent_id":
            self.id = value.strip()
        elif name.strip() in ("newdoc id", "newdoc"):
            self.document = value.strip() or f"document of sentence {self.number}"

    def sentence(self) -> Sentence:
        """The block as a sentence, its tree checked."""
        places = {columns[ID]: place for place, (_, columns) in enumerate(self.rows, start=1)}
        if len(places) < len(self.rows):
            raise DataError(f"{self.where}, line {self.rows[0][0]}: two words of sentence {self.id} have the same id")
        heads = []
        for number, columns in self.rows:
            head = 0 if columns[HEAD] == "0" else places.get(columns[HEAD])
            if head is None:
                raise DataError(
                    f"{self.where}, line {number}: head {columns[HEAD]!r} of word {columns[ID]} is no word of its "
                    "sentence"
                )
            heads.append(head)
        if heads.count(0) != 1:
            raise DataError(
                f"{self.where}, line {self.rows[0][0]}: sentence {self.id} has {heads.count(0)} roots, expected one"
            )
        root = heads.index(0)
        reached = breadth_first_order(_edges(tuple(heads)), root, directed=False, return_predecessors=False)
        if len(reached) < len(heads):
            raise DataError(f"{self.where}, line {self.rows[0][0]}: the heads of sentence {self.id} run in a circle")
        form, tag, relation = (tuple(columns[place] for _, columns in self.rows) for place in (FORM, UPOS, RELATION))
        return Sentence(self.id, self.document, form, tag, tuple(heads), relation)


def _edges(heads: tuple[int, ...]) -> csr_array:
    """Matrix with a 1 for each word and its head."""
    word = [place for place, head in enumerate(heads) if head]
    head = [heads[place] - 1 for place in word]
    return csr_array((np.ones(len(word)), (word, head)), shape=(len(heads), len(heads)))
