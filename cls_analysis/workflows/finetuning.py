"""``finetune``: a grid of runs, and what came out of it."""

from __future__ import annotations

import json
import os
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import pandas as pd

from cls_analysis.errors import DataError, OptionError, one_line, unknown_name
from cls_analysis.files import locked, write_text
from cls_analysis.finetuning.grid import Grid, Work, check_profile, do_runs
from cls_analysis.finetuning.models import Base, top_blocks
from cls_analysis.finetuning.outcomes import DevRows, evaluate
from cls_analysis.finetuning.records import read_predictions, read_rows, read_steps
from cls_analysis.finetuning.rendering import outcomes_latex, outcomes_markdown
from cls_analysis.finetuning.settings import HEADS, OPTIMIZERS, Recipe, RunSettings, clip_name
from cls_analysis.normalization.sites import POSITIONS
from cls_analysis.normalization.spelling import parse_norms
from cls_analysis.plotting.outcomes import draw_outcomes, draw_training, outcomes_table, training_table
from cls_analysis.plotting.style import save_figure
from cls_analysis.profiles import Profile
from cls_analysis.provenance import slug
from cls_analysis.tasks import Task, load_task
from cls_analysis.workflows.options import EncoderOptions, Progress, TextOptions, silent

RUNS, RATES, GRID = "runs.csv", "rates.csv", "grid.json"
#: Seconds between two writings of ``runs.csv`` while runs are done.
WRITE_EVERY = 20.0


@dataclass(frozen=True)
class FinetuneOptions:
    """A grid as it is asked for; lists as options and a TOML file give them."""

    norms: tuple[str, ...] = ("none", "standardize", "batchnorm")
    positions: tuple[str, ...] = ("cls",)
    learning_rates: tuple[float, ...] = ()
    optimizer: tuple[str, ...] = ("adamw",)
    clip: tuple[str, ...] = ("1.0",)
    seeds: int = 5
    first_seed: int = 0
    head: str = "stock"
    train: str = "all"
    epochs: int = 10
    batch_size: int = 32
    weight_decay: float = 0.01
    warmup: float = 0.1
    early_stopping: int | None = None
    metric: str | None = None


@dataclass(frozen=True)
class Study:
    """A grid with its encoder loaded: what is to be done, and where."""

    grid: Grid
    base: Base
    work: Work
    runs: list[RunSettings] = field(repr=False)
    known: dict[str, Any] = field(default_factory=dict, repr=False)

    @property
    def out(self) -> Path:
        """The study's folder."""
        return self.work.out

    def table(self) -> pd.DataFrame:
        """``runs.csv`` as far as runs are finished."""
        return read_rows(self.out, self.runs, self.known)


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
    if default is not None and type(value) is not type(default):
        raise OptionError(f"{where}: {key} takes a value of type {type(default).__name__}, got {value!r}")
    return value


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
    _check(options)
    norms = tuple(parse_norms(options.norms))
    if text_options.first is not None:
        raise OptionError("finetune takes --limit (a sample of training rows), not --first")
    reading = {key: value for key, value in asdict(text_options).items() if key != "first"}
    loaded = tuple(load_task(name, metric=options.metric, **reading) for name in tasks)
    _check_names(loaded)
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
        clips=tuple(_clip(text) for text in options.clip),
        learning_rates=options.learning_rates,
        chosen_rates={} if rates_from is None else _pilot_rates(rates_from),
        recipe=Recipe(options.epochs, options.batch_size, options.weight_decay, options.warmup, options.early_stopping),
        dtype=encoder_options.dtype,
        loading=loading,
    )
    grid.check()
    if save_models and grid.is_frozen:
        raise OptionError("--save-models keeps whole classifiers; with --train head --head linear there are none")
    base = Base.load(model, head=options.head, **loading)
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
        write_text(study.out / GRID, json.dumps(_description(study), indent=1, sort_keys=True) + "\n")
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
        yield (
            f"{task.name}: {len(task.train)} rows to train, {int((~task.report).sum())} to select, "
            f"{int(task.report.sum())} to report"
        )


@dataclass(frozen=True)
class Written:
    """The outcomes as text for the terminal, and the files that were written."""

    text: str
    files: tuple[Path, ...]


def write_outcomes(study: Study) -> Written:
    """Tables and figures of a finished grid.

    ``outcomes.csv``, ``.md`` and ``.tex``; ``rates.csv``, the whole sweep; ``expected_best.csv``; the figures
    ``training`` and ``outcomes``, one of each for every condition but the task, with their numbers.
    """
    out, runs = study.out, study.table()
    dev = {task.name: DevRows(task.dev_target, task.report) for task in study.grid.tasks}
    result = evaluate(runs, lambda run: read_predictions(out, run), dev)
    text = outcomes_markdown(result)
    files = [
        out / RUNS,
        write_text(out / "outcomes.csv", result.outcomes.to_csv(index=False)),
        write_text(out / "outcomes.md", text),
        write_text(out / "outcomes.tex", outcomes_latex(result)),
        write_text(out / RATES, result.rates.to_csv(index=False)),
        write_text(out / "expected_best.csv", result.expected_best.to_csv(index=False)),
    ]
    origin = json.dumps(_description(study), sort_keys=True)
    conditions = result.outcomes.drop_duplicates(list(SAME_FIGURE))[list(SAME_FIGURE)].to_dict("records")
    for condition in conditions:
        name = _figure_name(condition, conditions)
        subtitle = _subtitle(condition)
        scores, outcomes = (_rows_of(table, condition) for table in (result.scores, result.outcomes))
        dots = outcomes_table(scores, outcomes)
        curves = training_table(_steps_of(study, scores))
        for kind, table, figure in (
            ("outcomes", dots, draw_outcomes(dots, subtitle)),
            ("training", curves, draw_training(curves, subtitle)),
        ):
            path = out / "figures" / f"{kind}{name}"
            files += save_figure(figure, path, ("pdf", "png"), origin)
            files.append(write_text(path.with_suffix(".csv"), table.to_csv(index=False, float_format="%.6g")))
    return Written(text, tuple(files))


#: Runs that agree in these share a figure, one panel a task.
SAME_FIGURE = ("model", "head", "train", "position", "optimizer", "clip")


def _rows_of(table: pd.DataFrame, condition: dict[Any, Any]) -> pd.DataFrame:
    same = pd.Series(True, index=table.index)
    for name, value in condition.items():
        same &= table[name] == value
    return table[same]


def _figure_name(condition: dict[Any, Any], conditions: Sequence[dict[Any, Any]]) -> str:
    """What tells this condition's figures from the others', as the end of a file's name."""
    differing = [name for name in SAME_FIGURE if len({each[name] for each in conditions}) > 1]
    parts = [f"clip-{condition[name]}" if name == "clip" else str(condition[name]) for name in differing]
    return "".join(f"-{slug(part)}" for part in parts)


def _subtitle(condition: dict[Any, Any]) -> str:
    clip = "no clipping" if condition["clip"] == "off" else f"clip {condition['clip']}"
    trained = {"all": "all trained", "head": "head alone"}.get(condition["train"], condition["train"])
    return (
        f"{condition['model']}, {condition['head']} head, {trained}, norm at {condition['position']}, "
        f"{condition['optimizer']}, {clip}"
    )


def _steps_of(study: Study, scores: pd.DataFrame) -> pd.DataFrame:
    """Steps of the runs whose scores are reported."""
    wanted = set(scores[["task", "norm", "learning_rate", "seed"]].itertuples(index=False, name=None))
    condition = scores.iloc[0]
    tables = [
        read_steps(study.out, run).assign(task=run.task["name"], norm=run.norm, seed=run.seed)
        for run in study.runs
        if (run.task["name"], run.norm, run.learning_rate, run.seed) in wanted
        and (run.position, run.optimizer, clip_name(run.clip))
        == (condition["position"], condition["optimizer"], condition["clip"])
    ]
    return pd.concat(tables, ignore_index=True)


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
    write_text(study.out / RUNS, table.to_csv(index=False))
    return table


def _description(study: Study) -> dict[str, Any]:
    """What ``grid.json`` says: the grid, its rows and its seeds."""
    grid = study.grid
    return {
        "model": study.base.encoder.name,
        "tasks": [task.identity() | {"n_train": len(task.train), "n_dev": len(task.dev)} for task in grid.tasks],
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
        "dtype": grid.dtype,
        "runs": len(study.runs),
        "untrained": list(study.base.untrained),
    }


def _check(options: FinetuneOptions) -> None:
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
    for name in ("seeds", "epochs", "batch_size"):
        if getattr(options, name) < 1:
            raise OptionError(f"--{name.replace('_', '-')} must be at least 1, got {getattr(options, name)}")
    if bad := [rate for rate in options.learning_rates if not rate > 0]:
        raise OptionError(f"--learning-rates must be positive, got {bad[0]}")
    if not 0 <= options.warmup < 1:
        raise OptionError(f"--warmup is a share of the steps, from 0 to below 1, got {options.warmup}")


def _check_names(tasks: Sequence[Task]) -> None:
    names = [task.name for task in tasks]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise OptionError(f"two tasks are called {repeated!r}; tables could not tell them apart")


def _clip(text: str) -> float | None:
    """A largest gradient norm, or None for ``off``."""
    if text == "off":
        return None
    try:
        clip = float(text)
    except ValueError:
        clip = 0.0
    if not clip > 0:
        raise OptionError(f"--clip takes a positive gradient norm or off, got {text!r}")
    return clip


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
    check_profile(profile, base, grid.tasks[0])
    return profile


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


def merge_options(flags: dict[str, Any], file: dict[str, Any]) -> FinetuneOptions:
    """Options of a file, where no flag says otherwise."""
    given = {key: value for key, value in flags.items() if value is not None and value != ()}
    names = {each.name for each in fields(FinetuneOptions)}
    return replace(FinetuneOptions(), **{key: value for key, value in (file | given).items() if key in names})
