"""Edge probing (Tenney et al. 2019): a small classifier on the pieces of one span, or two, of a frozen layer."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from cls_analysis.comparison.targets import Targets
from cls_analysis.errors import DataError
from cls_analysis.extraction import WordVectors


@dataclass(frozen=True)
class EdgeRecipe:
    """How an edge probe is trained, as published but for the number of validations, which suits small treebanks.

    Adam (AMSGrad); the rate is halved after ``patience`` validations without a better micro-F1, and training ends
    after ``enough`` of them; the best validation's weights are kept.
    """

    learning_rate: float = 1e-4
    batch_size: int = 32
    clip: float = 5.0
    validate_every: int = 500
    validations: int = 100
    patience: int = 5
    enough: int = 20
    least_rate: float = 1e-6
    projection: int = 256
    dropout: float = 0.3


@dataclass(frozen=True)
class EdgeData:
    """Targets as rows of pieces.

    Attributes
    ----------
    pieces : float32 tensor (pieces, layers, d)
        One layer, or all that a probe mixes.
    spans : list of int64 tensors (n, 2)
        Half-open ranges of rows of ``pieces``: of the first spans and, for pairs, of the second ones.
    labels : float32 tensor (n, labels)
        1 for each label of a target.
    n_lost : int
        Targets left out, since a word of theirs has no vector.
    n_unknown : int
        Labels of targets that are not among the names, as of a test set.
    """

    pieces: Tensor
    spans: list[Tensor]
    labels: Tensor
    n_lost: int
    n_unknown: int

    @classmethod
    def of(cls, targets: Targets, found: WordVectors, layers: Sequence[int], names: Sequence[str]) -> EdgeData:
        """Targets with the vectors of their pieces (``extract_tokens(…, pieces="all")``).

        Raises
        ------
        DataError
            If no target is left.
        """
        # Words in the order of the pieces' rows, as one number each.
        width = max(len(words) for words in targets.sentences) + 1
        word_of_row = found.sentence * width + found.word
        present = np.unique(word_of_row)
        kept = np.ones(len(targets), dtype=bool)
        ranges = []
        for span in [targets.first] if targets.second is None else [targets.first, targets.second]:
            start, stop = (targets.sentence * width + span[:, side] for side in (0, 1))
            held = np.searchsorted(present, stop) - np.searchsorted(present, start)
            kept &= held == stop - start
            ranges.append(np.stack([np.searchsorted(word_of_row, edge) for edge in (start, stop)], axis=1))
        if not kept.any():
            raise DataError(f"none of {len(targets):,} targets has vectors for all its words")
        place = {name: number for number, name in enumerate(names)}
        labels = torch.zeros(int(kept.sum()), len(names))
        unknown = 0
        for row, target in enumerate(np.flatnonzero(kept).tolist()):
            for label in targets.labels[target]:
                if label in place:
                    labels[row, place[label]] = 1.0
                else:
                    unknown += 1
        pieces = torch.stack([torch.from_numpy(found.vectors[layer]) for layer in layers], dim=1)
        spans = [torch.from_numpy(each[kept]) for each in ranges]
        return cls(pieces, spans, labels, int((~kept).sum()), unknown)

    def __len__(self) -> int:
        return len(self.labels)


class EdgeProbe(nn.Module):
    """Pieces → projection → self-attentive pooling over the span → both spans together → two layers → label logits.

    With several layers, their scalar mix comes first: γ·Σ softmax(a)_l h_l (Peters et al. 2018).
    """

    def __init__(self, data: EdgeData, recipe: EdgeRecipe) -> None:
        super().__init__()
        _, layers, dim = data.pieces.shape
        width, spans = recipe.projection, len(data.spans)
        self.mix = nn.Parameter(torch.zeros(layers)) if layers > 1 else None
        self.gamma = nn.Parameter(torch.ones(())) if layers > 1 else None
        self.project = nn.ModuleList(nn.Linear(dim, width) for _ in range(spans))
        self.score = nn.ModuleList(nn.Linear(width, 1) for _ in range(spans))
        self.classify = nn.Sequential(
            nn.Linear(width * spans, width),
            nn.Tanh(),
            nn.LayerNorm(width),
            nn.Dropout(recipe.dropout),
            nn.Linear(width, data.labels.shape[1]),
        )

    def forward(self, data: EdgeData, rows: Tensor) -> Tensor:
        """Logits (rows, labels) of some targets."""
        pooled = [
            self._pool(data.pieces, spans[rows], project, score)
            for spans, project, score in zip(data.spans, self.project, self.score, strict=True)
        ]
        logits: Tensor = self.classify(torch.cat(pooled, dim=1))
        return logits

    def layer_weights(self) -> NDArray[np.float64] | None:
        """Share of each layer in the mix; None for one layer."""
        if self.mix is None:
            return None
        return np.asarray(self.mix.detach().double().softmax(dim=0).numpy())

    def _pool(self, pieces: Tensor, spans: Tensor, project: nn.Module, score: nn.Module) -> Tensor:
        longest = int((spans[:, 1] - spans[:, 0]).max())
        places = spans[:, :1] + torch.arange(longest)
        inside = places < spans[:, 1:]
        found = pieces[places.clamp_max(len(pieces) - 1)]
        if self.mix is None or self.gamma is None:
            x = found[:, :, 0]
        else:
            x = self.gamma * torch.einsum("bsld,l->bsd", found, self.mix.softmax(dim=0))
        projected = project(x)
        weights = score(projected)[..., 0].masked_fill(~inside, float("-inf")).softmax(dim=1)
        return torch.einsum("bs,bsd->bd", weights, projected)


def train_edge_probe(train: EdgeData, dev: EdgeData, *, seed: int, recipe: EdgeRecipe = EdgeRecipe()) -> EdgeProbe:
    """A probe, in evaluation mode; ``dev`` chooses when to stop.

    Raises
    ------
    DataError
        If the two have other labels or widths.
    """
    if train.labels.shape[1] != dev.labels.shape[1] or train.pieces.shape[1:] != dev.pieces.shape[1:]:
        raise DataError("training and development targets have other labels or other layers")
    order = np.random.default_rng(seed)
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        probe = EdgeProbe(train, recipe)
        optimizer = torch.optim.Adam(probe.parameters(), lr=recipe.learning_rate, amsgrad=True)
        schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(
            optimizer, mode="max", factor=0.5, patience=recipe.patience - 1, min_lr=recipe.least_rate
        )
        best, kept, since = -1.0, copy.deepcopy(probe), 0
        batches = _batches(len(train), recipe.batch_size, order)
        for _ in range(recipe.validations):
            probe.train()
            for _ in range(recipe.validate_every):
                rows = next(batches)
                loss = functional.binary_cross_entropy_with_logits(probe(train, rows), train.labels[rows])
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                nn.utils.clip_grad_norm_(probe.parameters(), recipe.clip)
                optimizer.step()
            score = micro_f1(probe, dev)
            schedule.step(score)
            if score > best:
                best, kept, since = score, copy.deepcopy(probe), 0
            else:
                since += 1
            if since >= recipe.enough:
                break
    return kept.eval()


@torch.no_grad()
def micro_f1(probe: EdgeProbe, data: EdgeData) -> float:
    """F1 of all decisions (target, label) at a probability of one half, 0 to 1.

    Labels that the probe does not know count as missed. NaN where there is nothing to find and nothing was named.
    """
    probe.eval()
    hits = named = 0
    for rows in torch.split(torch.arange(len(data)), 1_024):
        chosen = probe(data, rows) > 0
        hits += int((chosen & data.labels[rows].bool()).sum())
        named += int(chosen.sum())
    wanted = int(data.labels.sum()) + data.n_unknown
    return 2 * hits / (named + wanted) if named + wanted else float("nan")


def _batches(n: int, size: int, order: np.random.Generator) -> Iterator[Tensor]:
    while True:
        shuffled = torch.from_numpy(order.permutation(n))
        yield from torch.split(shuffled, size)
