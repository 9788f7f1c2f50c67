"""``demo``: the whole path on the embedded encoder and the bundled samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from cls_analysis.checkpoints import find_checkpoint
from cls_analysis.diagnosis import Diagnosis, Limits, diagnose
from cls_analysis.files import write_text
from cls_analysis.profiles import Profile
from cls_analysis.statistics import describe_all, summarize_all
from cls_analysis.texts import SAMPLES, load_texts
from cls_analysis.weights import layer_norms
from cls_analysis.workflows.diagnosing import render
from cls_analysis.workflows.extract import Extracted, extract
from cls_analysis.workflows.figures import Drawn, draw_figures
from cls_analysis.workflows.options import Progress, silent

ENCODER = "embedded"
#: The sample whose labels are probed: a linear classifier on the frozen vectors is far above chance there.
PROBED = "questions"


def extract_samples(out: Path, *, progress: Progress = silent) -> Iterator[Extracted]:
    """Profile every bundled sample; those that are there already are not done again."""
    return extract(ENCODER, [f"sample:{name}" for name in SAMPLES], out / "run", progress=progress)


def write_tables(profiles: list[Profile], out: Path) -> list[Path]:
    """``layers.csv`` and ``dimensions.csv`` of all profiles."""
    return [
        write_text(out / "tables" / "layers.csv", summarize_all(profiles).to_csv(index=False)),
        write_text(out / "tables" / "dimensions.csv", describe_all(profiles).to_csv(index=False)),
    ]


def diagnose_all(profiles: Sequence[Profile]) -> list[Diagnosis]:
    """Diagnose every sample; the labels of one say whether normalising matters to a linear classifier."""
    norms = layer_norms(find_checkpoint(ENCODER, None, trust_remote_code=False))
    probed = load_texts(f"sample:{PROBED}")
    return [
        diagnose(
            profile, texts=probed if profile.provenance.datasets == (probed.identity,) else None, layer_norms=norms
        )
        for profile in profiles
    ]


def write_reports(diagnoses: Sequence[Diagnosis], out: Path) -> list[Path]:
    """``report.html`` of all samples side by side, ``diagnosis.json`` and ``model-card.md``."""
    return [
        write_text(out / "report.html", render(diagnoses, Limits(), "html")),
        write_text(out / "diagnosis.json", render(diagnoses, Limits(), "json")),
        write_text(out / "model-card.md", render(diagnoses, Limits(), "markdown")),
    ]


def draw_all(profiles: list[Profile], out: Path) -> list[Drawn]:
    """Every figure."""
    return draw_figures(profiles, out / "figures")
