"""``finetune``: a grid of runs planned, and done as far as it is not."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from cls_analysis.errors import DataError, OptionError, one_line
from cls_analysis.files import locked, write_text
from cls_analysis.finetuning.grid import Grid, Work, check_profile, do_runs
from cls_analysis.finetuning.models import Base
from cls_analysis.finetuning.records import read_rows
from cls_analysis.finetuning.settings import RunSettings
from cls_analysis.normalization.spelling import parse_norms
from cls_analysis.profiles import Profile
from cls_analysis.tasks import Task, TextTask, load_task
from cls_analysis.workflows.grids import NORMS, FinetuneOptions, check_options, parse_clip
from cls_analysis.workflows.options import EncoderOptions, Progress, TextOptions, silent

RUNS, RATES, GRID = "runs.csv", "rates.csv", "grid.json"
#: Seconds between two writings of ``runs.csv`` while runs are done.
WRITE_EVERY = 20.0


@dataclass(frozen=True)
class Study:
    """A grid with its encoder loaded: what is to be done, and where."""

    grid: Grid
    base: Base
    work: Work
    runs: list[RunSettings] = field(repr=False)
    known: dict[str, Any] = field(default_factory=dict, repr=False)

    #: The file that keeps ``table``.
    file = RUNS

    @property
    def out(self) -> Path:
        """The study's folder."""
        return self.work.out

    def table(self) -> pd.DataFrame:
        """``runs.csv`` as far as runs are finished."""
        return read_rows(self.out, self.runs, self.known)

    def description(self) -> dict[str, Any]:
        """What ``grid.json`` says: the grid, its rows and its seeds."""
        grid = self.grid
        return {
            "model": self.base.encoder.name,
            "tasks": [task.identity() | {"n_train": task.n_train, "n_dev": task.n_dev} for task in grid.tasks],
            "norms": [asdict(norm) for norm in grid.norms],
            "head": grid.head,
            "train": grid.train,
            "positions": list(grid.positions),
            "learning_rates": "each arm's own, chosen by a pilot"
            if grid.chosen_rates
            else {name: list(grid.rates(name)) for name in grid.optimizers},
            "clips": list(grid.clips),
            "seeds": list(grid.seeds),
            "recipe": asdict(grid.recipe),
            "layers": [asdict(layers) for layers in grid.layers],
            "dtype": grid.dtype,
            "runs": len(self.runs),
            "untrained": list(self.base.untrained),
        }


def plan_study(
    model: str,
    tasks: Sequence[str],
    out: Path,
    *,
    options: FinetuneOptions = FinetuneOptions(),
    text_options: TextOptions = TextOptions(),
    encoder_options: EncoderOptions = EncoderOptions(),
    profile: Path | None = None,
    rates_from: Path | None = None,
    save_models: bool = False,
) -> Study:
    """Check everything that a grid needs, and load its tasks and encoder.

    Raises
    ------
    ClsAnalysisError
        If a task, norm, option or the Profile is wrong, or the encoder cannot be loaded.
    """
    check_options(options)
    if text_options.first is not None:
        raise OptionError("finetune takes --limit (a sample of training rows), not --first")
    reading = {key: value for key, value in asdict(text_options).items() if key != "first"}
    loaded = tuple(load_task(name, metric=options.metric, **reading) for name in tasks)
    _check_names(loaded)
    of_cls = any(isinstance(task, TextTask) for task in loaded)
    norms = tuple(parse_norms(options.norms or (NORMS if of_cls else NORMS[:1])))
    loading = {key: value for key, value in asdict(encoder_options).items() if key != "apply_final_norm"}
    grid = Grid(
        model=model,
        tasks=loaded,
        norms=norms,
        seeds=tuple(range(options.first_seed, options.first_seed + options.seeds)),
        head=options.head,
        train=options.train,
        positions=options.positions,
        optimizers=options.optimizer,
        clips=tuple(parse_clip(text) for text in options.clip),
        learning_rates=options.learning_rates,
        chosen_rates={} if rates_from is None else _pilot_rates(rates_from),
        recipe=options.recipe(),
        dtype=encoder_options.dtype,
        loading=loading,
    )
    grid.check()
    if save_models and grid.is_frozen:
        raise OptionError("--save-models keeps whole classifiers; with --train head --head linear there are none")
    base = Base.load(model, head=grid.head if grid.reads_cls else "linear", **loading)
    given = None if profile is None else _given_profile(profile, base, grid)
    return Study(grid, base, Work(grid, out, given, save_models), grid.runs(base))


def run_study(
    study: Study,
    *,
    jobs: int | None = None,
    progress: Progress = silent,
    note: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """Do what is missing of a grid, keeping ``runs.csv`` up to date; gives that table.

    Raises
    ------
    ClsAnalysisError
        If another process is writing in the folder.
    """
    with locked(study.out):
        write_text(study.out / GRID, json.dumps(study.description(), indent=1, sort_keys=True) + "\n")
        pending = len(study.work.pending(study.runs))
        table = _write_runs(study)
        if pending:
            note(f"{len(study.runs) - pending} of {len(study.runs)} runs are finished, {pending} to do")
            with progress(pending, "runs") as callback:
                keeper = _Keeper(study, pending, callback, note)
                do_runs(study.work, study.base, study.runs, jobs=jobs or _jobs(study), done=keeper)
            table = _write_runs(study)
    return table


def remarks(study: Study) -> Iterator[str]:
    """What a user should know before the runs begin."""
    if study.base.untrained:
        yield f"not in the checkpoint, so random by seed: {', '.join(study.base.untrained)}"
    for task in study.grid.tasks:
        yield task.remark()


class _Keeper:
    """Told of finished runs: moves the bar, writes ``runs.csv`` now and then, and says how long it will take."""

    def __init__(self, study: Study, pending: int, callback: Any, note: Callable[[str], None]) -> None:
        self.study, self.pending, self.callback, self.note = study, pending, callback, note
        self.done = 0
        self.start = self.written = time.monotonic()

    def __call__(self, runs: int) -> None:
        self.done += runs
        if self.callback:
            self.callback(runs, 0)
        now = time.monotonic()
        if now - self.written > WRITE_EVERY:
            self.written = now
            _write_runs(self.study)
            if not self.callback:
                left = (now - self.start) / max(1, self.done) * (self.pending - self.done)
                self.note(f"{self.done} of {self.pending} runs, about {_duration(left)} left")


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5_400 else f"{seconds / 3600:.1f} h"


def _jobs(study: Study) -> int:
    """Processes, where none are asked for: heads on frozen vectors take a core each, whole models all of them."""
    if not study.grid.is_frozen:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _write_runs(study: Study) -> pd.DataFrame:
    table = study.table()
    write_text(study.out / study.file, table.to_csv(index=False))
    return table


def _check_names(tasks: Sequence[Task]) -> None:
    names = [task.name for task in tasks]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise OptionError(f"two tasks are called {repeated!r}; tables could not tell them apart")


def _pilot_rates(folder: Path) -> dict[tuple[str, str, str, str], float]:
    """The rate that a finished study chose for each arm."""
    path = folder / RATES
    try:
        table = pd.read_csv(path, dtype={"norm": str, "task": str})
        chosen = table[table["chosen"]].drop_duplicates(["task", "norm", "position", "optimizer"])
        keys = zip(chosen["task"], chosen["norm"], chosen["position"], chosen["optimizer"], strict=True)
        return dict(zip(keys, chosen["learning_rate"].tolist(), strict=True))
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"{path}: no table of rates ({one_line(error, 120)}); --rates-from takes a study's folder"
        ) from None


def _given_profile(path: Path, base: Base, grid: Grid) -> Profile:
    if len(grid.tasks) > 1:
        raise OptionError("--profile is of one task's training rows; give one task")
    profile = Profile.load(path)
    task = grid.tasks[0]
    if not isinstance(task, TextTask):
        raise OptionError(f"--profile: {task.name} has no norm that could use it")
    check_profile(profile, base, task)
    return profile
