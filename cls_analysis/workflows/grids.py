"""Options of a grid of runs, from the command line and a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from cls_analysis.errors import DataError, OptionError, unknown_name
from cls_analysis.finetuning.layers import top_blocks
from cls_analysis.finetuning.settings import HEADS, OPTIMIZERS, Recipe
from cls_analysis.normalization.sites import POSITIONS

#: Options that are whole numbers, or not given.
COUNTS = ("steps", "early_stopping")
#: Arms where none are given; the first alone for tasks that do not read [CLS].
NORMS = ("none", "standardize", "batchnorm")


@dataclass(frozen=True)
class FinetuneOptions:
    """A grid as it is asked for; lists as options and a TOML file give them. ``steps`` stands instead of ``epochs``."""

    norms: tuple[str, ...] = ()
    positions: tuple[str, ...] = ("cls",)
    learning_rates: tuple[float, ...] = ()
    optimizer: tuple[str, ...] = ("adamw",)
    clip: tuple[str, ...] = ("1.0",)
    seeds: int = 5
    first_seed: int = 0
    head: str = "stock"
    train: str = "all"
    epochs: int = 10
    steps: int | None = None
    batch_size: int = 32
    weight_decay: float = 0.01
    warmup: float = 0.1
    early_stopping: int | None = None
    metric: str | None = None

    def recipe(self) -> Recipe:
        """How arms are trained."""
        return Recipe(self.epochs, self.batch_size, self.weight_decay, self.warmup, self.early_stopping, self.steps)


def read_grid_file(path: Path) -> dict[str, Any]:
    """Options of a grid from a TOML file; keys are the options' names, with ``_`` or ``-``.

    Raises
    ------
    DataError
        If it cannot be read.
    OptionError
        If a key is unknown, or a value of the wrong kind.
    """
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable TOML file ({error})") from None
    known = {each.name: each for each in fields(FinetuneOptions)} | {"tasks": None, "model": None, "limit": None}
    given = {}
    for key, value in values.items():
        name = key.replace("-", "_")
        if name not in known:
            raise OptionError(f"{path}: {unknown_name('option', key, known)}")
        given[name] = tuple(value) if isinstance(value, list) else value
    return {key: _as_declared(str(path), key, value) for key, value in given.items()}


def _as_declared(where: str, key: str, value: Any) -> Any:
    """``value`` as ``FinetuneOptions`` declares it: single values of lists as lists, clips as text."""
    default = getattr(FinetuneOptions(), key, None)
    if key == "tasks" or isinstance(default, tuple):
        value = value if isinstance(value, tuple) else (value,)
        kind: type = float if key == "learning_rates" else str
        try:
            return tuple(kind(each) for each in value)
        except (TypeError, ValueError):
            raise OptionError(f"{where}: {key} takes {kind.__name__} values, got {value!r}") from None
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    expected = int if key in COUNTS else type(default)
    if (default is not None or key in COUNTS) and type(value) is not expected:
        raise OptionError(f"{where}: {key} takes a value of type {expected.__name__}, got {value!r}")
    return value


def merge_options(flags: dict[str, Any], file: dict[str, Any]) -> FinetuneOptions:
    """Options of a file, where no flag says otherwise."""
    given = {key: value for key, value in flags.items() if value is not None and value != ()}
    names = {each.name for each in fields(FinetuneOptions)}
    return replace(FinetuneOptions(), **{key: value for key, value in (file | given).items() if key in names})


def model_and_tasks(
    model: str | None, tasks: Sequence[str] | None, file: dict[str, Any]
) -> tuple[str, tuple[str, ...]]:
    """The model and tasks, from the command line or a file.

    Raises
    ------
    OptionError
        If one is given in neither.
    """
    chosen, named = model or file.get("model"), tuple(tasks or file.get("tasks") or ())
    if chosen is None or not named:
        raise OptionError("give a MODEL and at least one TASK, or name them in the --grid file (model, tasks)")
    return chosen, named


def check_options(options: FinetuneOptions) -> None:
    """Refuse values that no grid can have.

    Raises
    ------
    OptionError
        Naming the option.
    """
    for name, values, known in (
        ("position", options.positions, POSITIONS),
        ("optimizer", options.optimizer, OPTIMIZERS),
        ("head", (options.head,), HEADS),
    ):
        for value in values:
            if value not in known:
                raise OptionError(unknown_name(name, value, known))
    if options.train not in ("all", "head"):
        top_blocks(options.train)
    for name in ("seeds", "epochs", "batch_size", "steps"):
        if (value := getattr(options, name)) is not None and value < 1:
            raise OptionError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(options, name)}")
    if bad := [rate for rate in options.learning_rates if not rate > 0]:
        raise OptionError(f"--learning-rates must be positive, got {bad[0]}")
    if not 0 <= options.warmup < 1:
        raise OptionError(f"--warmup is a share of the steps, from 0 to below 1, got {options.warmup}")


def parse_clip(text: str) -> float | None:
    """A largest gradient norm, or None for ``off``.

    Raises
    ------
    OptionError
        If it is neither.
    """
    if text == "off":
        return None
    try:
        clip = float(text)
    except ValueError:
        clip = 0.0
    if not clip > 0:
        raise OptionError(f"--clip takes a positive gradient norm or off, got {text!r}")
    return clip
