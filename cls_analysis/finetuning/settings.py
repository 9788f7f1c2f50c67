"""What a run is: everything its result depends on, and the hash that names its folder."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from cls_analysis.provenance import canonical_json, hash_text

OPTIMIZERS = ("adamw", "sgd")
HEADS = ("stock", "linear")
#: Version of a run's meaning: a change that gives other numbers raises it, and old runs are not taken for new ones.
RUN_VERSION = 1
#: Digits of a run's name.
ID_DIGITS = 12


@dataclass(frozen=True)
class Recipe:
    """How arms are trained; the same for all of a grid. ``steps``, if given, takes the place of ``epochs``.

    AdamW with bias correction, a linear rise over a tenth of the steps and a linear fall to 0 (Mosbach et al. 2021).
    """

    epochs: int = 10
    batch_size: int = 32
    weight_decay: float = 0.01
    warmup: float = 0.1
    early_stopping: int | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Layers:
    """Layers of a run; by default all are trained.

    Attributes
    ----------
    frozen : int, or None
        The embeddings and blocks 1 to so many do not move, and have no dropout; 0 freezes the embeddings alone.
    kept : int, or None
        Blocks beyond so many are cut off; the head sits on the last that is kept.
    dropout : bool
        Whether the encoder has its dropout; the head always has its own.
    """

    frozen: int | None = None
    kept: int | None = None
    dropout: bool = True


@dataclass(frozen=True)
class RunSettings:
    """One run of a grid.

    ``norm`` is what tables call the arm; ``clip`` is the largest gradient norm, None for no clipping.
    """

    model: str
    weights_hash: str
    task: dict[str, Any]
    head: str
    train: str
    norm: str
    norm_name: str
    norm_options: dict[str, Any]
    position: str
    optimizer: str
    clip: float | None
    learning_rate: float
    seed: int
    recipe: Recipe = field(default_factory=Recipe)
    max_length: int = 0
    dtype: str = "float32"
    layers: Layers = field(default_factory=Layers)
    version: int = RUN_VERSION

    @cached_property
    def run_id(self) -> str:
        """Hash of all settings, which names the run's folder."""
        return hash_text(canonical_json(self.to_dict()))[:ID_DIGITS]

    def to_dict(self) -> dict[str, Any]:
        """All settings; those that came later are left out where they change nothing, so that old runs keep names."""
        values = asdict(self)
        if self.layers == Layers():
            del values["layers"]
        if self.recipe.steps is None:
            del values["recipe"]["steps"]
        return values

    @property
    def seed_head(self) -> int:
        """Seed of the head's first weights."""
        return derived_seed(self.seed, 0)

    @property
    def seed_order(self) -> int:
        """Seed of the order of rows."""
        return derived_seed(self.seed, 1)

    @property
    def seed_dropout(self) -> int:
        """Seed of dropout."""
        return derived_seed(self.seed, 2)

    def columns(self) -> dict[str, Any]:
        """The columns of ``runs.csv`` that say which run it is, in its order."""
        return {
            "model": self.model,
            "task": self.task["name"],
            "head": self.head,
            "train": self.train,
            "norm": self.norm,
            "position": self.position,
            "optimizer": self.optimizer,
            "clip": clip_name(self.clip),
            "learning_rate": self.learning_rate,
            "seed": self.seed,
            "seed_head": self.seed_head,
            "seed_order": self.seed_order,
            "seed_dropout": self.seed_dropout,
        }


def clip_name(clip: float | None) -> str:
    """``1.0`` or ``off``, as tables show it."""
    return "off" if clip is None else str(clip)


def derived_seed(seed: int, use: int) -> int:
    """A seed for one use of a run's seed, so that head, order and dropout are independent of each other."""
    return int(np.random.SeedSequence([seed, use]).generate_state(1)[0]) % 2**31
