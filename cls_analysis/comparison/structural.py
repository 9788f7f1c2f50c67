"""Structural probes (Hewitt and Manning 2019): a linear map after which squared distances are those of the tree."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from cls_analysis.comparison.trees import (
    Gold,
    depth_spearman,
    distance_spearman,
    root_accuracy,
    undirected_attachment,
)
from cls_analysis.errors import DataError
from cls_analysis.extraction import WordVectors
from cls_analysis.moments import Array
from cls_analysis.texts.conllu import Sentence


@dataclass(frozen=True)
class ProbeRecipe:
    """How a probe is trained, as published.

    Adam; the rate falls to a tenth after an epoch that does not improve the development loss by 1e-4; training ends
    after five such epochs, and the best epoch's map is kept.
    """

    learning_rate: float = 1e-3
    batch_sentences: int = 20
    epochs: int = 40
    patience: int = 5
    least_gain: float = 1e-4
    first_weights: float = 0.05


@dataclass(frozen=True)
class ProbeData:
    """Sentences with the vectors of their words at one layer.

    Attributes
    ----------
    vectors : list of float32 tensors (k, d)
    gold : list of Gold
    """

    vectors: list[Tensor]
    gold: list[Gold]

    @classmethod
    def of(cls, sentences: Sequence[Sentence], found: WordVectors, layer: int) -> ProbeData:
        """Sentences with fewer than two words that have a vector are left out.

        Raises
        ------
        DataError
            If none is left.
        """
        starts = np.searchsorted(found.sentence, np.arange(len(sentences) + 1))
        vectors, gold = [], []
        for place, sentence in enumerate(sentences):
            part = slice(starts[place], starts[place + 1])
            if part.stop - part.start > 1:
                vectors.append(torch.from_numpy(found.vectors[layer][part]))
                gold.append(Gold.of(sentence, found.word[part]))
        if not gold:
            raise DataError("no sentence has two words with vectors")
        return cls(vectors, gold)


@dataclass(frozen=True)
class StructuralScores:
    """What the two probes of a layer reach; see ``comparison.trees``."""

    uuas: float
    distance_spearman: float
    depth_spearman: float
    root_accuracy: float


def structural_scores(
    train: ProbeData, dev: ProbeData, test: ProbeData, *, seed: int = 0, recipe: ProbeRecipe = ProbeRecipe()
) -> StructuralScores:
    """Train the distance probe and the depth probe on ``train``, choose their epochs on ``dev``, judge on ``test``."""
    distance = train_probe(train, dev, of_pairs=True, seed=seed, recipe=recipe)
    depth = train_probe(train, dev, of_pairs=False, seed=seed, recipe=recipe)
    with torch.no_grad():
        distances: list[Array] = [squared_distances(distance(x)[None])[0].double().numpy() for x in test.vectors]
        depths: list[Array] = [depth(x).square().sum(dim=1).double().numpy() for x in test.vectors]
    return StructuralScores(
        undirected_attachment(test.gold, distances),
        distance_spearman(test.gold, distances),
        depth_spearman(test.gold, depths),
        root_accuracy(test.gold, depths),
    )


def train_probe(
    train: ProbeData, dev: ProbeData, *, of_pairs: bool, seed: int, recipe: ProbeRecipe = ProbeRecipe()
) -> nn.Linear:
    """The map B, as a linear layer without bias, of rank d.

    Parameters
    ----------
    train, dev : ProbeData
    of_pairs : bool
        Fit squared distances ‖B(h_i − h_j)‖² to distances in the tree, else squared lengths ‖Bh_i‖² to depths.
    seed : int
        Of first weights and order.
    recipe : ProbeRecipe
    """
    dim = train.vectors[0].shape[1]
    order, weights = np.random.default_rng(seed), torch.Generator().manual_seed(seed)
    probe = nn.Linear(dim, dim, bias=False)
    nn.init.uniform_(probe.weight, -recipe.first_weights, recipe.first_weights, generator=weights)
    optimizer = torch.optim.Adam(probe.parameters(), lr=recipe.learning_rate)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.1, patience=0)
    best, kept, since = float("inf"), copy.deepcopy(probe), 0
    for _ in range(recipe.epochs):
        shuffled = order.permutation(len(train.gold))
        for start in range(0, len(shuffled), recipe.batch_sentences):
            optimizer.zero_grad()
            loss = _loss(probe, train, shuffled[start : start + recipe.batch_sentences], of_pairs)
            torch.autograd.backward(loss)
            optimizer.step()
        judged = _mean_loss(probe, dev, of_pairs, recipe.batch_sentences)
        schedule.step(judged)
        if judged < best - recipe.least_gain:
            best, kept, since = judged, copy.deepcopy(probe), 0
        else:
            since += 1
        if since >= recipe.patience:
            break
    return kept


def squared_distances(x: Tensor) -> Tensor:
    """‖x_i − x_j‖² of each sentence, (sentences, k, d) to (sentences, k, k)."""
    squares = x.square().sum(dim=2)
    products = torch.bmm(x, x.transpose(1, 2))
    return (squares[:, :, None] + squares[:, None] - 2 * products).clamp_min(0.0)


def _loss(probe: nn.Linear, data: ProbeData, rows: NDArray[np.int64], of_pairs: bool) -> Tensor:
    """Mean over sentences of the mean absolute error of a sentence's pairs, or words."""
    x: Tensor = probe(pad_sequence([data.vectors[row] for row in rows], batch_first=True))
    lengths = torch.tensor([len(data.gold[row]) for row in rows])
    real = torch.arange(x.shape[1]) < lengths[:, None]
    if not of_pairs:
        depths = pad_sequence([torch.from_numpy(data.gold[row].depths) for row in rows], batch_first=True)
        error = (x.square().sum(dim=2) - depths).abs() * real
        return (error.sum(dim=1) / lengths).mean()
    distances = torch.zeros(len(rows), x.shape[1], x.shape[1])
    for place, row in enumerate(rows):
        k = len(data.gold[row])
        distances[place, :k, :k] = torch.from_numpy(data.gold[row].distances)
    error = (squared_distances(x) - distances).abs() * (real[:, :, None] & real[:, None])
    return (error.sum(dim=(1, 2)) / lengths**2).mean()


@torch.no_grad()
def _mean_loss(probe: nn.Linear, data: ProbeData, of_pairs: bool, batch: int) -> float:
    total = 0.0
    for start in range(0, len(data.gold), batch):
        rows = np.arange(start, min(start + batch, len(data.gold)))
        total += float(_loss(probe, data, rows, of_pairs)) * len(rows)
    return total / len(data.gold)
