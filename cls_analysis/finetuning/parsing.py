"""A dependency parser on an encoder: biaffine scores of heads and relations (Dozat and Manning 2017)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from cls_analysis.encoder.tokens import Batch
from cls_analysis.finetuning.models import Base
from cls_analysis.finetuning.rows import Rows
from cls_analysis.moments import Array
from cls_analysis.tasks.parsing import HEAD, MISSING, RELATION, ParsingTask
from cls_analysis.texts.conllu import Sentence

#: Widths of what arcs and relations are scored from, and dropout there.
ARC_WIDTH, RELATION_WIDTH, DROPOUT = 256, 128, 0.33
#: What the losses leave out: words without a piece, and padding.
IGNORED = -100


@dataclass(frozen=True)
class Parses:
    """Scores of a batch of w words at most.

    Attributes
    ----------
    arcs : float tensor (rows, w, w + 1)
        Of each head, the root first, for each word.
    relations : float tensor (rows, w, relations) or (rows, w, w + 1, relations)
        Under the heads that were given, or under each.
    """

    arcs: Tensor
    relations: Tensor


class BiaffineParser(nn.Module):
    """An encoder, and biaffine scores of pairs of words, each read at its first piece; the root is a learned vector."""

    def __init__(self, encoder: Any, relations: int, seed: int) -> None:
        super().__init__()
        self.encoder, self.config = encoder, encoder.config
        dim = int(encoder.config.hidden_size)
        torch.manual_seed(seed)
        self.root = nn.Parameter(torch.randn(dim) * 0.02)
        self.arc_dependent, self.arc_head = _layer(dim, ARC_WIDTH), _layer(dim, ARC_WIDTH)
        self.relation_dependent, self.relation_head = _layer(dim, RELATION_WIDTH), _layer(dim, RELATION_WIDTH)
        self.arcs = Biaffine(ARC_WIDTH, 1)
        self.relations = Biaffine(RELATION_WIDTH, relations)

    @property
    def base_model(self) -> Any:
        """The encoder, by the name that Hugging Face models give it."""
        return self.encoder

    def forward(self, words: Tensor, heads: Tensor | None = None, **inputs: Tensor) -> Parses:
        """Scores of heads and relations.

        Parameters
        ----------
        words : int64 tensor (rows, w)
            Token of each word's first piece; ``MISSING`` where there is none.
        heads : int64 tensor (rows, w), optional
            Heads under which relations are scored; otherwise under all.
        inputs
            What the encoder takes.
        """
        states = self.encoder(**inputs, return_dict=True).last_hidden_state
        known = words != MISSING
        rows = torch.arange(len(words), device=words.device)[:, None]
        dependents = states[rows, words.clamp_min(0)]
        governors = torch.cat([self.root.expand(len(words), 1, -1), dependents], dim=1)
        arcs = self.arcs(self.arc_dependent(dependents), self.arc_head(governors))[..., 0]
        possible = functional.pad(known, (1, 0), value=True)
        # A word is not its own head.
        itself = torch.eye(words.shape[1], dtype=torch.bool, device=words.device)
        possible = possible[:, None] & ~functional.pad(itself, (1, 0))
        arcs = arcs.float().masked_fill(~possible, float("-inf"))
        x, y = self.relation_dependent(dependents), self.relation_head(governors)
        if heads is not None:
            return Parses(arcs, self.relations.of_pairs(x, y[rows, heads.clamp_min(0)]).float())
        return Parses(arcs, self.relations(x, y).float())

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Save the encoder as ``AutoModel`` reads it, and the parser's tensors beside its."""
        tensors = {f"parser.{key}": value for key, value in self.state_dict().items() if not key.startswith("encoder.")}
        self.encoder.save_pretrained(folder, state_dict=self.encoder.state_dict() | tensors, **options)


class Biaffine(nn.Module):
    """xᵀWy with a 1 beside each vector, so that either side's own score is in it."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, width + 1, width + 1))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Every x with every y: (rows, w, width) and (rows, v, width) to (rows, w, v, outputs)."""
        return torch.einsum("bwi,oij,bvj->bwvo", _with_one(x), self.weight, _with_one(y))

    def of_pairs(self, x: Tensor, y: Tensor) -> Tensor:
        """Each x with its y: (rows, w, width) twice to (rows, w, outputs)."""
        return torch.einsum("bwi,oij,bwj->bwo", _with_one(x), self.weight, _with_one(y))


class TreeRows(Rows):
    """Sentences with trees; words are read at their first piece.

    ``n_lost`` words have no piece, or were cut off: they are not trained on, and count as wrong.
    """

    def __init__(self, base: Base, task: ParsingTask, sentences: Sequence[Sentence]) -> None:
        found = base.encoder.tokenize_words([sentence.words for sentence in sentences])
        super().__init__(base.encoder, found.tokenized)
        self.words = [spans[:, 0] for spans in found.spans]
        self.gold = [
            _trainable(task.target(sentence), words) for sentence, words in zip(sentences, self.words, strict=True)
        ]
        self.n_lost = found.n_empty + found.n_cut

    def inputs(self, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """Tokens, and ``words``."""
        return super().inputs(rows) | {"words": _padded([self.words[row] for row in rows], MISSING)}

    def targets(self, rows: NDArray[np.int64], width: int) -> Batch:
        """``heads`` and ``relations`` (rows, w); ``IGNORED`` where there is no telling."""
        gold = [self.gold[row] for row in rows]
        return {
            "heads": _padded([each[:, HEAD] for each in gold], IGNORED),
            "relations": _padded([each[:, RELATION] for each in gold], IGNORED),
        }

    def loss(self, model: Any, batch: Batch) -> tuple[Tensor, Any]:
        """Cross-entropy of heads plus that of relations under the right heads, each the mean over words."""
        relations = batch.pop("relations")
        parses = model(**batch)
        return _cross_entropy(parses.arcs, batch["heads"]) + _cross_entropy(parses.relations, relations), parses

    def predictions(self, model: Any, batches: Iterable[NDArray[np.int64]] | None = None) -> NDArray[Any]:
        """Head and relation of each word of each sentence, shape (words, 2)."""
        found: dict[int, NDArray[np.int64]] = {}
        for rows, parses in self.outputs(model, batches):
            named = parses.relations.argmax(dim=3).cpu().numpy()
            arcs = parses.arcs.log_softmax(dim=2).double().cpu().numpy()
            for place, row in enumerate(rows.tolist()):
                found[row] = _decode(arcs[place], named[place], self.words[row])
        return np.concatenate([found[row] for row in range(len(self))])


def best_tree(scores: Array) -> NDArray[np.int64]:
    """The tree with one root that has the largest sum of scores (Chu and Liu 1965, Edmonds 1967).

    Parameters
    ----------
    scores : float64 array (k, k + 1)
        Of each head, the root first, for each of k words.

    Returns
    -------
    int64 array (k,)
        Head of each word, from 1; 0 for the root.
    """
    heads: NDArray[np.int64] = scores.argmax(axis=1)
    if _is_tree(heads):
        return heads
    finite = scores[np.isfinite(scores)]
    # An arc from the root costs more than all others can win back: there will be one.
    cost = (finite.max() - finite.min() + 1.0) * (len(scores) + 1)
    graph = networkx.DiGraph()
    for word, head in np.argwhere(np.isfinite(scores)).tolist():
        graph.add_edge(head, word + 1, weight=float(scores[word, head]) - (cost if head == 0 else 0.0))
    tree = networkx.maximum_spanning_arborescence(graph)
    for head, word in tree.edges:
        heads[word - 1] = head
    return heads


def _is_tree(heads: NDArray[np.int64]) -> bool:
    """Whether one word hangs on the root, and all others on it in the end."""
    if (heads == 0).sum() != 1:
        return False
    above = np.concatenate([[0], heads])
    at = np.arange(len(above))
    for _ in range(len(heads)):
        at = above[at]
    return not bool(at.any())


def _decode(arcs: Array, named: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Head and relation of each word of a sentence; ``MISSING`` for words without a piece."""
    parsed = np.full((len(words), 2), MISSING, dtype=np.int64)
    known = np.flatnonzero(words != MISSING)
    if len(known):
        places = np.concatenate([[0], known + 1])
        heads = places[best_tree(arcs[np.ix_(known, places)])]
        parsed[known, HEAD], parsed[known, RELATION] = heads, named[known, heads]
    return parsed


def _trainable(target: NDArray[np.int64], words: NDArray[np.int64]) -> NDArray[np.int64]:
    """Heads and relations, ``IGNORED`` where a word or its head has no piece, or training has no such relation."""
    known = np.concatenate([[True], words != MISSING])
    kept = known[1:] & known[target[:, HEAD]]
    kept = np.stack([kept, kept & (target[:, RELATION] != MISSING)], axis=1)
    return np.asarray(np.where(kept, target, IGNORED))


def _layer(dim: int, width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(dim, width), nn.LeakyReLU(0.1), nn.Dropout(DROPOUT))


def _with_one(x: Tensor) -> Tensor:
    return functional.pad(x, (0, 1), value=1.0)


def _padded(rows: Sequence[NDArray[np.int64]], filler: int) -> Tensor:
    return nn.utils.rnn.pad_sequence([torch.from_numpy(row) for row in rows], batch_first=True, padding_value=filler)


def _cross_entropy(scores: Tensor, target: Tensor) -> Tensor:
    """Mean over the words that count; 0 where none does."""
    total = functional.cross_entropy(scores.flatten(0, 1), target.flatten(), ignore_index=IGNORED, reduction="sum")
    return total / (target != IGNORED).sum().clamp_min(1)
