"""Questions about paragraphs, from SQuAD's JSON (Rajpurkar et al. 2016, version 1.1)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cls_analysis.errors import DataError, one_line
from cls_analysis.texts.formats import read_text


@dataclass(frozen=True)
class Question:
    """A question, and the spans of a paragraph that answer it.

    Attributes
    ----------
    id : str
    article : str
        Title of the article that the paragraph is of.
    question, context : str
    answers : tuple of (int, int)
        First character of each answer in ``context``, and the one behind its last.
    """

    id: str
    article: str
    question: str
    context: str
    answers: tuple[tuple[int, int], ...]


def read_squad(path: str | Path, *, encoding: str = "utf-8") -> list[Question]:
    """All questions of a file.

    Raises
    ------
    DataError
        If it is no such file, has no question, or names an answer that is not where it says; version 2.0's questions
        without an answer are none of this task.
    """
    text = read_text(Path(path), encoding)
    try:
        questions = [
            _question(str(path), article.get("title", f"article {number}"), paragraph["context"], row)
            for number, article in enumerate(json.loads(text)["data"], start=1)
            for paragraph in article["paragraphs"]
            for row in paragraph["qas"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path}: expected SQuAD's JSON, data → paragraphs → context and qas ({one_line(repr(error), 120)})"
        ) from None
    if not questions:
        raise DataError(f"{path}: no question")
    return questions


def _question(where: str, article: str, context: str, row: dict[str, Any]) -> Question:
    spans = []
    for answer in row["answers"]:
        start, text = answer["answer_start"], answer["text"]
        if not text or context[start : start + len(text)] != text:
            raise DataError(
                f"{where}: question {row['id']}: {text!r} does not stand at character {start} of its context"
            )
        spans.append((start, start + len(text)))
    if not spans:
        raise DataError(f"{where}: question {row['id']} has no answer; expected SQuAD 1.1, where each has one")
    return Question(str(row["id"]), str(article), row["question"], context, tuple(spans))
