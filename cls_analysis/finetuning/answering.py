"""Questions as rows: tokens that begin and end an answer, as Hugging Face's question-answering models name them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from cls_analysis.encoder.tokens import Batch
from cls_analysis.encoder.words import Place, token_places
from cls_analysis.finetuning.models import Base
from cls_analysis.finetuning.rows import Rows
from cls_analysis.texts.squad import Question

#: Tokens of the longest answer that is considered.
LONGEST = 30
#: What the loss leaves out: questions whose answer was cut off.
IGNORED = -100


class AnswerRows(Rows):
    """Questions and their paragraphs; the first answer is trained on.

    ``n_lost`` answers are not within the length limit: they are not trained on, and cannot be found.
    """

    def __init__(self, base: Base, questions: Sequence[Question]) -> None:
        question, context = [each.question for each in questions], [each.context for each in questions]
        encoder = base.encoder
        super().__init__(encoder, encoder.tokenize(question, context))
        places = token_places(encoder.tokenizer, [question, context], encoder.max_length)
        #: First character of each token of a paragraph and the one behind its last; −1 for all other tokens.
        self.characters = [_of_context(row, each.context) for row, each in zip(places, questions, strict=True)]
        spans = [_tokens_of(each.answers[0], row) for each, row in zip(questions, self.characters, strict=True)]
        self.spans = torch.tensor(spans)
        self.n_lost = int((self.spans[:, 0] == IGNORED).sum())

    def targets(self, rows: NDArray[np.int64], width: int) -> Batch:
        """``start`` and ``end`` (rows,), the first and last token of the answer."""
        return {"start": self.spans[rows, 0], "end": self.spans[rows, 1]}

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Any]:
        """Mean of the cross-entropies of start and end."""
        start, end = batch.pop("start"), batch.pop("end")
        output = model(**batch)
        total = sum(
            functional.cross_entropy(logits.float(), target, ignore_index=IGNORED, reduction="sum")
            for logits, target in ((output.start_logits, start), (output.end_logits, end))
        )
        return torch.as_tensor(total) / (2 * (start != IGNORED).sum().clamp_min(1)), output

    def predictions(self, model: Any, batches: Iterable[NDArray[np.int64]] | None = None) -> NDArray[Any]:
        """First character of each answer and the one behind its last, shape (n, 2)."""
        found = np.zeros((len(self), 2), dtype=np.int64)
        for rows, output in self.outputs(model, batches):
            start, end = (logits.double().cpu().numpy() for logits in (output.start_logits, output.end_logits))
            for place, row in enumerate(rows.tolist()):
                found[row] = _best_span(start[place], end[place], self.characters[row])
        return found


def _of_context(places: Sequence[Place], context: str) -> NDArray[np.int64]:
    spans = np.full((len(places), 2), -1, dtype=np.int64)
    for token, place in enumerate(places):
        if place is not None and place[0] == 1:
            _, start, stop = place
            start += len(context[start:stop]) - len(context[start:stop].lstrip())
            if start < stop:
                spans[token] = start, stop
    return spans


def _tokens_of(answer: tuple[int, int], characters: NDArray[np.int64]) -> tuple[int, int]:
    """First and last token that share a character with an answer; ``IGNORED`` twice if its ends have none."""
    inside = np.flatnonzero((characters[:, 0] < answer[1]) & (characters[:, 1] > answer[0]))
    if not len(inside) or characters[inside[-1], 1] < answer[1]:
        return IGNORED, IGNORED
    return int(inside[0]), int(inside[-1])


def _best_span(start: NDArray[Any], end: NDArray[Any], characters: NDArray[np.int64]) -> tuple[int, int]:
    """The span with the largest sum of logits, of ``LONGEST`` tokens at most."""
    tokens = np.flatnonzero(characters[:, 0] >= 0)
    scores = start[tokens][:, None] + end[tokens]
    allowed = np.triu(np.ones_like(scores, dtype=bool)) & ~np.triu(np.ones_like(scores, dtype=bool), LONGEST)
    first, last = divmod(int(np.where(allowed, scores, -np.inf).argmax()), len(tokens))
    return int(characters[tokens[first], 0]), int(characters[tokens[last], 1])
