"""A grid of runs: which there are, and how those that are missing get done, in one process or several."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor

from cls_analysis.encoder.encoder import hash_weights
from cls_analysis.errors import OptionError
from cls_analysis.extraction import extract_vectors
from cls_analysis.files import whole_file
from cls_analysis.finetuning.frozen import Frozen, train_frozen
from cls_analysis.finetuning.models import Base
from cls_analysis.finetuning.records import is_finished, write_run
from cls_analysis.finetuning.settings import Layers, Recipe, RunSettings
from cls_analysis.finetuning.training import Data, train_run
from cls_analysis.matrices import profile_vectors
from cls_analysis.normalization import make_norm, save_classifier
from cls_analysis.normalization.heads import classifier_dropout, initial_std
from cls_analysis.normalization.spelling import NormSpec
from cls_analysis.profiles import Profile
from cls_analysis.provenance import canonical_json, hash_text
from cls_analysis.tasks import AnsweringTask, ParsingTask, Task, TextTask

#: Learning rates that are tried where none are given, by optimizer: of a head alone, and of the encoder too.
HEAD_RATES = {"adamw": (1e-4, 1e-3, 1e-2, 1e-1), "sgd": (1e-2, 1e-1, 1.0, 10.0)}
FULL_RATES = {"adamw": (2e-5, 5e-5, 1e-4), "sgd": (1e-3, 1e-2, 1e-1)}
#: Heads of tasks that do not read [CLS]: a parser's biaffine scores, and the marks of an answer's first and last token.
OWN_HEADS = {ParsingTask: "biaffine", AnsweringTask: "span"}
#: Folder for the states of frozen blocks, as long as a run needs them.
PREFIX = "prefix"
#: Seeds of heads on frozen vectors that are trained in one go, which is what a kill can cost.
SEEDS_AT_ONCE = 5


@dataclass(frozen=True)
class Grid:
    """All runs of a study: the product of its lists.

    ``learning_rates`` may be empty: then they go by the optimizer. ``chosen_rates``, from a pilot, gives each arm its
    one rate, by task, norm, position and optimizer.
    """

    model: str
    tasks: tuple[Task, ...]
    norms: tuple[NormSpec, ...]
    seeds: tuple[int, ...]
    head: str = "stock"
    train: str = "all"
    positions: tuple[str, ...] = ("cls",)
    optimizers: tuple[str, ...] = ("adamw",)
    clips: tuple[float | None, ...] = (1.0,)
    learning_rates: tuple[float, ...] = ()
    chosen_rates: Mapping[tuple[str, str, str, str], float] = field(default_factory=dict)
    recipe: Recipe = field(default_factory=Recipe)
    layers: tuple[Layers, ...] = (Layers(),)
    dtype: str = "float32"
    loading: dict[str, Any] = field(default_factory=dict)

    @property
    def is_frozen(self) -> bool:
        """Whether only a linear layer on frozen vectors is trained, so that all runs can be trained together."""
        return self.head == "linear" and self.train == "head" and self.recipe.early_stopping is None

    def rates(self, optimizer: str) -> tuple[float, ...]:
        """Learning rates of an optimizer, ascending."""
        default = HEAD_RATES if self.train == "head" else FULL_RATES
        return tuple(sorted(self.learning_rates or default[optimizer]))

    def rates_of(self, task: str, norm: str, position: str, optimizer: str) -> tuple[float, ...]:
        """Learning rates of an arm: the pilot's one, or all of the optimizer's."""
        if not self.chosen_rates:
            return self.rates(optimizer)
        return (self.chosen_rates[task, norm, position, optimizer],)

    @property
    def reads_cls(self) -> bool:
        """Whether any task has the head that ``head`` names."""
        return any(type(task) not in OWN_HEADS for task in self.tasks)

    def runs(self, base: Base) -> list[RunSettings]:
        """Every run, in the order of the tables."""
        weights = hash_weights(base.encoder.model)
        return [
            RunSettings(
                model=base.encoder.name,
                weights_hash=weights,
                task=task.identity(),
                head=OWN_HEADS.get(type(task), self.head),
                train=self.train,
                norm=norm.label,
                norm_name=norm.name,
                norm_options=norm.options,
                position=position,
                optimizer=optimizer,
                clip=clip,
                learning_rate=rate,
                seed=seed,
                recipe=self.recipe,
                max_length=base.encoder.max_length,
                dtype=self.dtype,
                layers=layers,
            )
            for task in self.tasks
            for norm in self.norms
            for position in self.positions
            for optimizer in self.optimizers
            for clip in self.clips
            for layers in self.layers
            for rate in self.rates_of(task.name, norm.label, position, optimizer)
            for seed in self.seeds
        ]

    def check(self) -> None:
        """Refuse what cannot be trained.

        Raises
        ------
        OptionError
            Saying what to change.
        """
        if self.head == "linear" and "pooled" in self.positions:
            raise OptionError("--head linear has no position 'pooled': its one layer reads the raw vector")
        of_tokens = next((task for task in self.tasks if type(task) in OWN_HEADS), None)
        if of_tokens is not None and (norm := next((n for n in self.norms if n.name != "none"), None)):
            raise OptionError(
                f"{of_tokens.name} does not read [CLS], where {norm.label} would stand; give --norms none"
            )
        if of_tokens is not None and self.train == "head":
            raise OptionError(f"{of_tokens.name}: --train head is for classifiers; use the command layers --freeze")
        if self.recipe.batch_size == 1 and (norm := next((n for n in self.norms if n.needs_batches), None)):
            raise OptionError(
                f"{norm.label} follows the statistics of batches, and one row has none: give --batch-size 2 or more, "
                "or leave it out"
            )
        if self.chosen_rates:
            self._check_rates()

    def _check_rates(self) -> None:
        if self.is_frozen:
            raise OptionError("--rates-from is for runs that take long; heads on frozen vectors are swept in seconds")
        for task in self.tasks:
            for norm in self.norms:
                for position in self.positions:
                    for optimizer in self.optimizers:
                        key = (task.name, norm.label, position, optimizer)
                        if key not in self.chosen_rates:
                            raise OptionError(f"--rates-from: no rate for {', '.join(key)} there")


@dataclass(frozen=True)
class _Unit:
    """Runs that are done in one go; what ``work`` needs beside them is made once a process."""

    runs: tuple[RunSettings, ...]
    task: Task


@dataclass(frozen=True)
class Work:
    """What every process needs to do units: the grid, where results go, the Profile given, whether models are kept."""

    grid: Grid
    out: Path
    profile: Profile | None = None
    save_models: bool = False
    threads: int | None = None

    def pending(self, runs: Sequence[RunSettings]) -> list[RunSettings]:
        """Those that are not finished."""
        return [run for run in runs if not is_finished(self.out, run)]

    def tidy(self, runs: Sequence[RunSettings]) -> None:
        """Remove the states of frozen blocks that no run of the grid will need again: they can be large."""
        needed = {str(run.layers.frozen) for run in self.pending(runs)}
        for path in (self.out / PREFIX).glob("*.npy"):
            if path.stem.split("-")[1] not in needed:
                path.unlink(missing_ok=True)
        if not needed:
            shutil.rmtree(self.out / PREFIX, ignore_errors=True)


def do_runs(
    work: Work, base: Base, runs: Sequence[RunSettings], *, jobs: int = 1, done: Callable[[int], None] = lambda _: None
) -> None:
    """Do the runs that are not finished; ``done`` is told how many after each unit.

    Parameters
    ----------
    work : Work
    base : Base
        For this process; others load their own.
    runs : sequence of RunSettings
        All of the grid.
    jobs : int
        Processes. Heads on frozen vectors are always trained by one thread each, so that numbers do not depend on it.
    """
    units = _units(work, runs)
    if work.grid.is_frozen:
        for task in {id(unit.task): unit.task for unit in units}.values():
            assert isinstance(task, TextTask)
            frozen_vectors(work, base, task)
    if jobs == 1 or len(units) < 2:
        with _threads(1 if work.grid.is_frozen else work.threads):
            for unit in units:
                done(_do(unit, work, base))
                work.tidy(runs)
        return
    context = multiprocessing.get_context("spawn")
    threads = 1 if work.grid.is_frozen else work.threads or max(1, (os.cpu_count() or 1) // jobs)
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(work, threads)) as pool:
        futures = [pool.submit(_do_elsewhere, unit) for unit in units]
        try:
            for future in as_completed(futures):
                done(future.result())
                work.tidy(runs)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _units(work: Work, runs: Sequence[RunSettings]) -> list[_Unit]:
    pending = work.pending(runs)
    tasks = {canonical_json(task.identity()): task for task in work.grid.tasks}
    if not work.grid.is_frozen:
        return [_Unit((run,), tasks[canonical_json(run.task)]) for run in pending]
    units = []
    for key, task in tasks.items():
        of_task = [run for run in runs if canonical_json(run.task) == key]
        missing = {run.run_id for run in pending}
        # A seed is trained whole, so that a run's numbers are the same however the work was interrupted.
        seeds = sorted({run.seed for run in of_task if run.run_id in missing})
        for start in range(0, len(seeds), SEEDS_AT_ONCE):
            chunk = set(seeds[start : start + SEEDS_AT_ONCE])
            units.append(_Unit(tuple(run for run in of_task if run.seed in chunk), task))
    return units


def _do(unit: _Unit, work: Work, base: Base) -> int:
    """Do a unit; gives the number of runs that were finished by it."""
    if work.grid.is_frozen:
        return _do_frozen(unit, work, base)
    (run,) = unit.runs
    data = _data(base, unit.task, work.profile)
    model, result = train_run(base, data, run, work.out / PREFIX)

    def keep(folder: Path) -> None:
        if work.save_models:
            save = save_classifier if isinstance(unit.task, TextTask) else _save
            base.encoder.tokenizer.save_pretrained(save(model, folder / "model"))

    write_run(work.out, run, unit.task, result, also=keep)
    return 1


def _save(model: Any, folder: Path) -> Path:
    model.save_pretrained(folder)
    return folder


def _do_frozen(unit: _Unit, work: Work, base: Base) -> int:
    assert isinstance(unit.task, TextTask)
    start = time.perf_counter()
    train, dev = frozen_vectors(work, base, unit.task)
    config = base.encoder.model.config
    frozen = Frozen(unit.task, train, dev, classifier_dropout(config), initial_std(config))
    profile = work.profile or profile_vectors(train.numpy())
    norms = {spec.label: make_norm(spec.name, profile=profile, **spec.options) for spec in work.grid.norms}
    written = 0
    for run, result in train_frozen(frozen, unit.runs, norms):
        if is_finished(work.out, run):
            continue
        result.notes["seconds_of_all"] = time.perf_counter() - start
        result.notes["trained_together"] = len(unit.runs)
        write_run(work.out, run, unit.task, result)
        written += 1
    return written


def frozen_vectors(work: Work, base: Base, task: TextTask) -> tuple[Tensor, Tensor]:
    """The encoder's vectors of training and development rows, computed once and kept in the study's folder."""
    identity = task.identity()
    settings = [hash_weights(base.encoder.model), base.encoder.max_length, identity["train"], identity["dev"]]
    key = hash_text(canonical_json([*settings, identity["train_selection"], identity["dev_selection"]]))[:12]
    path = work.out / "vectors" / f"{key}.safetensors"
    if not path.is_file():
        tensors = {
            part: torch.from_numpy(next(iter(extract_vectors(base.encoder, texts, -1).values())))
            for part, texts in (("train", task.train), ("dev", task.dev))
        }
        with whole_file(path) as temporary:
            safetensors.torch.save_file(tensors, temporary)
    tensors = safetensors.torch.load_file(path)
    return tensors["train"], tensors["dev"]


def check_profile(profile: Profile, base: Base, task: TextTask) -> None:
    """Refuse a Profile that is not of these training rows, this encoder and its last layer.

    Raises
    ------
    OptionError
        Saying what differs.
    """
    provenance, encoder = profile.provenance, profile.provenance.encoder
    if encoder is None or encoder.weights_hash != hash_weights(base.encoder.model):
        raise OptionError(f"--profile: of other weights ({profile.encoder}) than the model's ({base.encoder.name})")
    if provenance.source != "cls":
        raise OptionError(f"--profile: of source {provenance.source!r}; fine-tuning reads 'cls'")
    if encoder.n_layers not in profile.layers:
        raise OptionError(f"--profile: without the last layer, {encoder.n_layers}")
    rows = sorted(row for part in provenance.parts for row in range(part.first, part.last + 1))
    hashes = {part.dataset for part in provenance.parts}
    if hashes != {task.train.hash} or not np.array_equal(rows, np.sort(task.train.row_id)):
        raise OptionError(
            f"--profile: of other rows ({profile.dataset}, {profile.n}) than those that {task.name} trains on "
            f"({task.train.identity.label}, {len(task.train)})"
        )


# -- processes -------------------------------------------------------------------------------------------------------

_process: dict[str, Any] = {}


def _begin(work: Work, threads: int) -> None:
    """Make a process ready: what all its units share is loaded once."""
    threading.Thread(target=_die_with_parent, args=(os.getppid(),), daemon=True).start()
    torch.set_num_threads(threads)
    grid = work.grid
    _process["work"], _process["base"] = work, Base.load(grid.model, head=grid.head, **grid.loading)


def _do_elsewhere(unit: _Unit) -> int:
    return _do(unit, _process["work"], _process["base"])


def _die_with_parent(parent: int) -> None:
    # A killed parent tells nobody; its workers would go on writing beside the next one's.
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


@contextmanager
def _threads(count: int | None) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _data(base: Base, task: Task, profile: Profile | None) -> Data:
    """The tokens of a task, kept until another one comes."""
    key = canonical_json(task.identity())
    if _process.get("task") != key or _process["data"].train.encoder is not base.encoder:
        _process["task"], _process["data"] = key, Data.of(base, task, profile)
    data: Data = _process["data"]
    return data
