"""``layers``: a task tuned with its encoder's first blocks frozen, or its last ones cut off."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd

from cls_analysis.errors import OptionError
from cls_analysis.files import write_text
from cls_analysis.finetuning.curves import LAYER_COLUMNS, NONE, Curves, layer_columns, layer_curves
from cls_analysis.finetuning.layers import check_frozen, truncated_config
from cls_analysis.finetuning.records import COLUMNS, read_rows
from cls_analysis.finetuning.settings import Layers
from cls_analysis.plotting.layers import CURVES, curve_numbers, draw_curve
from cls_analysis.plotting.style import save_figure
from cls_analysis.workflows.finetuning import Study, plan_study
from cls_analysis.workflows.grids import FinetuneOptions

LAYERS_TABLE, CURVES_TABLE = "layers.csv", "curves.csv"
#: Learning rates that are tried for every point where none are given: a head alone needs larger ones.
RATES = (1e-4, 1e-3)


class LayerStudy(Study):
    """A grid over layers; its table of runs says which."""

    file = LAYERS_TABLE

    def table(self) -> pd.DataFrame:
        """``layers.csv`` as far as runs are finished."""
        columns = [*COLUMNS[:-1], *LAYER_COLUMNS, COLUMNS[-1]]
        return read_rows(self.out, self.runs, self.known, more=layer_columns, columns=columns)


@dataclass(frozen=True)
class Written:
    """The curves, and the files that were written."""

    curves: Curves
    files: tuple[Path, ...]


def plan_layers(
    model: str,
    tasks: Sequence[str],
    out: Path,
    *,
    freeze: Sequence[str] = (),
    truncate: Sequence[str] = (),
    options: FinetuneOptions = FinetuneOptions(),
    **others: Any,
) -> LayerStudy:
    """Check everything that the runs need, and load tasks and encoder.

    Parameters
    ----------
    model, tasks, out, options, others
        As ``plan_study`` takes them.
    freeze : list of str
        ``none``, and numbers k: the embeddings and blocks 1 to k are frozen.
    truncate : list of str
        Numbers k: blocks 1 to k are kept.

    Raises
    ------
    ClsAnalysisError
        If an option is wrong, or the encoder has no such blocks.
    """
    if not freeze and not truncate:
        raise OptionError("give --freeze (none and numbers, as in none,0,2,4) or --truncate (numbers), or both")
    frozen, kept = _numbers("--freeze", freeze), _numbers("--truncate", truncate)
    rates = options.learning_rates or RATES
    study = plan_study(model, tasks, out, options=replace(options, norms=("none",), learning_rates=rates), **others)
    encoder = study.base.encoder.model
    for k in frozen:
        check_frozen(encoder, k)
    for k in kept:
        truncated_config(encoder.config, k)
    grid = replace(study.grid, layers=_points(frozen, kept, study.base.encoder.n_layers))
    work = replace(study.work, grid=grid)
    return LayerStudy(grid, study.base, work, grid.runs(study.base))


def write_curves(study: LayerStudy) -> Written:
    """Tables and figures of finished runs: ``curves.csv``, the figures ``freezing`` and ``truncation`` with numbers."""
    depth = study.base.encoder.n_layers
    found = layer_curves(study.table(), depth)
    files = [study.out / study.file, write_text(study.out / CURVES_TABLE, found.curves.to_csv(index=False))]
    origin = json.dumps(study.description(), sort_keys=True)
    for curve in CURVES:
        if curve not in set(found.curves["curve"]):
            continue
        numbers = curve_numbers(found.curves, found.scores, curve)
        path = study.out / "figures" / curve
        files += save_figure(draw_curve(numbers, curve, study.base.encoder.name), path, ("pdf", "png"), origin)
        files.append(write_text(path.with_suffix(".csv"), numbers.to_csv(index=False, float_format="%.6g")))
    return Written(found, tuple(files))


#: What the terminal shows of ``curves.csv``.
SHOWN = (
    "task",
    "metric",
    "curve",
    "k",
    "dropout",
    "learning_rate",
    "n_seeds",
    "mean",
    "std",
    "difference",
    "share_kept",
)


def summary(done: Written) -> str:
    """The curves of each task's first metric, a point a line."""
    table = done.curves.curves
    first = table.groupby("task", sort=False)["metric"].transform("first")
    shown = table.loc[table["metric"] == first, list(SHOWN)]
    text = shown.to_string(index=False, float_format=lambda value: f"{value:.4g}", na_rep="–")
    if shown["share_kept"].isna().all():
        text += "\nshare_kept needs --freeze none and all blocks, two seeds, and a gain above two standard errors"
    return text


def _points(frozen: Sequence[int], kept: Sequence[int], depth: int) -> tuple[Layers, ...]:
    """All arms; training everything is always among them, since all is compared with it.

    Frozen blocks have no dropout: where there are any, everything is trained without it, too.
    """
    whole = [Layers(), Layers(dropout=False)] if frozen else [Layers()]
    return (*whole, *(Layers(frozen=k) for k in frozen), *(Layers(kept=k) for k in kept if k != depth))


def _numbers(option: str, values: Sequence[str]) -> list[int]:
    """Numbers of layers, ascending; ``none`` stands for training everything, which is always done."""
    allowed = (*([NONE] if option == "--freeze" else []), "numbers")
    wanted = [value for value in values if not (option == "--freeze" and value == NONE)]
    if bad := next((value for value in wanted if not value.isdigit()), None):
        raise OptionError(f"{option} takes {' and '.join(allowed)} separated by commas, got {bad!r}")
    return sorted({int(value) for value in wanted})
