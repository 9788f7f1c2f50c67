"""Two encoders beside each other: whether they can be compared, how far their weights are apart, a random control."""

from __future__ import annotations

import copy

import pandas as pd
import torch

from cls_analysis.encoder import Encoder
from cls_analysis.encoder.encoder import hash_tokenizer
from cls_analysis.errors import DataError
from cls_analysis.finetuning.measures import block_of
from cls_analysis.normalization.heads import bare_model


def check_comparable(base: Encoder, tuned: Encoder) -> None:
    """Refuse encoders whose layers or tokens do not stand for the same.

    Raises
    ------
    DataError
        Saying what differs.
    """
    for what, ours, theirs in (
        ("layers", base.n_layers, tuned.n_layers),
        ("dimensions", base.hidden_size, tuned.hidden_size),
        ("tokens at most", base.max_length, tuned.max_length),
    ):
        if ours != theirs:
            raise DataError(f"{base.name} has {ours} {what}, {tuned.name} {theirs}: they cannot be compared")
    if hash_tokenizer(base.tokenizer) != hash_tokenizer(tuned.tokenizer):
        raise DataError(f"{base.name} and {tuned.name} have other tokenizers: their tokens cannot be compared")


def random_twin(encoder: Encoder, seed: int) -> Encoder:
    """The same network with random weights, as its architecture draws them, and the same tokenizer.

    A floor for similarity that lies above 0: random networks still tell words apart.
    """
    with torch.random.fork_rng([]):
        torch.manual_seed(seed)
        model = bare_model(copy.deepcopy(encoder.model.config))
    return Encoder(
        model.to(encoder.device),
        encoder.tokenizer,
        source=encoder.source,
        dtype=encoder.dtype,
        device=str(encoder.device),
        max_length=encoder.max_length,
        name=f"random ({seed})",
    )


@torch.no_grad()
def weight_distances(base: Encoder, tuned: Encoder) -> pd.DataFrame:
    """How far each block's weights are apart: columns ``block``, ``distance``.

    ‖W_tuned − W_base‖/‖W_base‖ over all weights of a block, 0 for the same; ``all`` is the whole encoder.
    """
    ours, theirs = (dict(each.model.named_parameters()) for each in (base, tuned))
    sums: dict[str, list[float]] = {}
    for name, weight in ours.items():
        if name in theirs:
            moved = float((theirs[name].double() - weight.double()).square().sum())
            for block in (block_of(name), "all"):
                total = sums.setdefault(block, [0.0, 0.0])
                total[0] += moved
                total[1] += float(weight.double().square().sum())
    rows = [(block, (moved / size) ** 0.5) for block, (moved, size) in sums.items()]
    return pd.DataFrame(rows, columns=["block", "distance"])
