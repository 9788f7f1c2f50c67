"""``demo``: the whole path on the embedded encoder and the bundled samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from cls_analysis.files import write_text
from cls_analysis.profiles import Profile
from cls_analysis.statistics import describe_all, summarize_all
from cls_analysis.texts import SAMPLES
from cls_analysis.workflows.extract import Extracted, extract
from cls_analysis.workflows.figures import Drawn, draw_figures
from cls_analysis.workflows.options import Progress, silent

ENCODER = "embedded"


def extract_samples(out: Path, *, progress: Progress = silent) -> Iterator[Extracted]:
    """Profile every bundled sample; those that are there already are not done again."""
    return extract(ENCODER, [f"sample:{name}" for name in SAMPLES], out / "run", progress=progress)


def write_tables(profiles: list[Profile], out: Path) -> list[Path]:
    """``layers.csv`` and ``dimensions.csv`` of all profiles."""
    return [
        write_text(out / "tables" / "layers.csv", summarize_all(profiles).to_csv(index=False)),
        write_text(out / "tables" / "dimensions.csv", describe_all(profiles).to_csv(index=False)),
    ]


def draw_all(profiles: list[Profile], out: Path) -> list[Drawn]:
    """Every figure."""
    return draw_figures(profiles, out / "figures")
