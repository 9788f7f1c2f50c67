"""A task's rows as a network sees them: tokens, batches, targets, the loss, and what is predicted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cls_analysis.encoder import Encoder
from cls_analysis.encoder.tokens import Batch, Tokenized
from cls_analysis.finetuning.models import Base
from cls_analysis.finetuning.prefix import Prefix
from cls_analysis.normalization.heads import mean_loss
from cls_analysis.normalization.sites import evaluating
from cls_analysis.texts import Texts

#: Rows of a batch in evaluation are chosen by a budget of tokens, padding included.
BATCH_TOKENS = 4_096


class Rows(ABC):
    """Tokenised rows of one kind of task.

    Attributes
    ----------
    encoder : Encoder
    tokens : Tokenized
    pads_left : bool
        Whether padding comes before the text.
    prefix : Prefix, or None
        Where the first blocks are frozen: what they give, which batches then carry along.
    n_lost : int
        Words or answers that cannot be trained on, since their tokens are not there.
    """

    n_lost = 0

    def __init__(self, encoder: Encoder, tokens: Tokenized, *, pads_left: bool = False) -> None:
        self.encoder, self.tokens, self.pads_left = encoder, tokens, pads_left
        self.prefix: Prefix | None = None

    def __len__(self) -> int:
        return len(self.tokens.lengths)

    @abstractmethod
    def targets(self, rows: NDArray[np.int64], width: int) -> Batch:
        """What the loss compares with, for a batch padded to ``width`` tokens; none of the names is an input."""

    @abstractmethod
    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Any]:
        """The mean loss of a batch, and the model's output."""

    @abstractmethod
    def predictions(self, model: Any, batches: Iterable[NDArray[np.int64]] | None = None) -> NDArray[Any]:
        """What the task scores, with the modules in the modes that they are in."""

    def inputs(self, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """A padded batch for the network."""
        batch = self.encoder.collate(self.tokens, rows)
        if self.prefix is not None:
            batch |= self.prefix.batch(rows, batch["input_ids"].shape[1])
        if self.pads_left:
            batch = {name: _to_the_right(tensor, batch["attention_mask"]) for name, tensor in batch.items()}
        return batch

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """A padded batch with its targets."""
        inputs = self.inputs(rows)
        return inputs | self.targets(np.asarray(rows), inputs["input_ids"].shape[1])

    def by_length(self) -> list[NDArray[np.int64]]:
        """All rows in batches of similar length."""
        order = np.argsort(-self.tokens.lengths, kind="stable")
        batches, start = [], 0
        while start < len(order):
            size = max(1, BATCH_TOKENS // int(self.tokens.lengths[order[start]]))
            batches.append(order[start : start + size])
            start += size
        return batches

    @torch.no_grad()
    def outputs(
        self, model: Any, batches: Iterable[NDArray[np.int64]] | None = None, **extra: Any
    ) -> Iterator[tuple[NDArray[np.int64], Any]]:
        """Numbers of the rows of a batch, and the model's output for them; all rows by default."""
        device = next(model.parameters()).device
        for batch in self.by_length() if batches is None else batches:
            yield batch, model(**{name: tensor.to(device) for name, tensor in self.inputs(batch).items()}, **extra)


class TextRows(Rows):
    """Texts or pairs of texts, each with a class or a value."""

    def __init__(self, base: Base, texts: Texts, target: NDArray[Any]) -> None:
        tokens = base.encoder.tokenize(texts.text, texts.pair, texts.row_id.tolist())
        super().__init__(base.encoder, tokens, pads_left=base.pads_left)
        values = torch.from_numpy(target)
        self.target = values.float() if values.is_floating_point() else values

    def targets(self, rows: NDArray[np.int64], width: int) -> Batch:
        """``labels`` (rows,)."""
        return {"labels": self.target[rows]}

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Any]:
        """Cross-entropy or squared error, whatever the architecture's own classifier makes of labels."""
        labels = batch.pop("labels")
        outputs = model(**batch)
        return mean_loss(outputs.logits, labels), outputs

    def predictions(self, model: Any, batches: Iterable[NDArray[np.int64]] | None = None) -> NDArray[Any]:
        """Class numbers, or values, shape (n,)."""
        logits = np.empty((len(self), model.config.num_labels), dtype=np.float64)
        for batch, output in self.outputs(model, batches):
            logits[batch] = output.logits.float().cpu().numpy()
        return logits[:, 0] if logits.shape[1] == 1 else logits.argmax(axis=1)


def predict(model: Any, rows: Rows) -> NDArray[Any]:
    """Predictions of all rows in evaluation mode; modes are put back."""
    with evaluating(model):
        return rows.predictions(model)


def _to_the_right(tensor: Tensor, mask: Tensor) -> Tensor:
    """Rows moved behind their padding."""
    width = mask.shape[1]
    order = (torch.arange(width) + mask.sum(dim=1, keepdim=True)) % width
    order = order.reshape(*order.shape, *[1] * (tensor.ndim - 2)).expand(-1, -1, *tensor.shape[2:])
    return tensor.gather(1, order)
