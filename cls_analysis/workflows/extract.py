"""``extract``: from texts to Profiles on disk, and, if asked, their vectors."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from cls_analysis.encoder import Encoder
from cls_analysis.errors import ProfileError
from cls_analysis.extraction import Block, Extraction, ExtractionReport, profile_blocks
from cls_analysis.files import locked, write_text
from cls_analysis.profiles import Profile
from cls_analysis.provenance import Part, Provenance, parts_of
from cls_analysis.store import StoredBlock, VectorStore
from cls_analysis.workflows.options import EncoderOptions, Progress, TextOptions, load_all, silent
from cls_analysis.workflows.runs import VECTORS_ENDING, profile_path


@dataclass(frozen=True)
class Extracted:
    """One data set done: where its Profile lies, and what it took; ``report`` is None where it was there already."""

    path: Path
    profile: Profile
    report: ExtractionReport | None
    vectors: Path | None


def extract(
    model: str,
    data: Sequence[str],
    out: Path,
    *,
    layers: str | Sequence[int] = "all",
    text_options: TextOptions = TextOptions(),
    encoder_options: EncoderOptions = EncoderOptions(),
    vectors: bool = False,
    batch_tokens: int | None = None,
    shard: tuple[int, int] = (0, 1),
    overwrite: bool = False,
    progress: Progress = silent,
) -> Iterator[Extracted]:
    """Profile each data set under ``out``; yields each one as it is done.

    Raises
    ------
    ClsAnalysisError
        If texts, model or options are wrong, or a file with other settings is in the way.
    """
    loaded = load_all(data, text_options)
    encoder = Encoder.from_pretrained(model, **asdict(encoder_options))
    names = [profile_path(out, encoder.name, texts, shard, with_hash=False) for texts in loaded]
    for texts, name in zip(loaded, names, strict=True):
        clash = sum(other == name and texts.hash != more.hash for other, more in zip(names, loaded, strict=True)) > 0
        path = profile_path(out, encoder.name, texts, shard, with_hash=True) if clash else name
        extraction = Extraction(encoder, texts, layers, batch_tokens=batch_tokens, shard=shard)
        with locked(path.parent):
            yield _extract_one(extraction, path, vectors=vectors, overwrite=overwrite, progress=progress)


def _extract_one(
    extraction: Extraction, path: Path, *, vectors: bool, overwrite: bool, progress: Progress
) -> Extracted:
    planned = extraction.provenance()
    folder = path.with_suffix(VECTORS_ENDING) if vectors else None
    existing = None if overwrite else _existing(path, planned, _planned_parts(extraction))
    store = VectorStore(folder, planned, overwrite=overwrite) if folder else None
    if existing and (store is None or all(store.path(block).is_file() for block in extraction.blocks)):
        return Extracted(path, existing, None, folder)
    with progress(extraction.n_rows, extraction.texts.identity.label) as callback:
        extraction.progress = callback
        profile = profile_blocks(extraction, _stored(extraction, store) if store else extraction)
    profile.save(path)
    write_text(path.with_suffix(".run.json"), _run_json(extraction, profile))
    return Extracted(path, profile, extraction.report, folder)


def _stored(extraction: Extraction, store: VectorStore) -> Iterator[Block]:
    """All blocks of an extraction: read where stored, else computed and stored."""
    for number in extraction.blocks:
        stored = store.read(number)
        wanted = extraction.texts.row_id[extraction.positions(number)]
        if stored is not None and np.array_equal(stored.row_ids, wanted):
            if extraction.progress:
                extraction.progress(len(wanted), 0)
            extraction.report.rows_stored += len(wanted)
            yield Block.of_arrays(number, stored.row_ids, stored.vectors, stored.rows_cut)
            continue
        block = extraction.block(number)
        store.write(number, StoredBlock(block.row_ids, block.arrays(), block.rows_cut))
        yield block


def _existing(path: Path, planned: Provenance, parts: tuple[Part, ...]) -> Profile | None:
    """The Profile that lies at ``path`` if it is of the same work; other work there is an error."""
    if not path.exists():
        return None
    profile = Profile.load(path)
    found = profile.provenance
    for name, mine, theirs in (
        *((key, planned.settings()[key], found.settings().get(key)) for key in planned.settings()),
        ("selection of rows", planned.datasets[0].selection, found.datasets[0].selection),
        ("text", planned.datasets[0].hash, found.datasets[0].hash),
        ("range of rows", parts, found.parts),
    ):
        if mine != theirs:
            raise ProfileError(
                f"{path}: there already, with another {name}; --overwrite replaces it, or give another --out"
            )
    return profile


def _planned_parts(extraction: Extraction) -> tuple[Part, ...]:
    rows = [int(i) for block in extraction.blocks for i in extraction.positions(block)]
    return parts_of(extraction.texts.hash, extraction.texts.row_id[rows])


def _run_json(extraction: Extraction, profile: Profile) -> str:
    """What the Profile itself leaves out, so that the same work gives the same bytes: times, speed and machine."""
    report = extraction.report
    record = asdict(report) | {"padding_share": report.padding_share}
    record = {key: value for key, value in record.items() if value == value}  # noqa: PLR0124 (NaN is not equal to itself)
    machine = {
        "platform": platform.platform(),
        "python": platform.python_version(),
        "device": str(extraction.encoder.device),
    }
    everything = {
        "n": profile.n,
        "rows_cut": profile.provenance.rows_cut,
        "extraction": record,
        "machine": machine,
    }
    return json.dumps(everything, indent=1, sort_keys=True, allow_nan=False) + "\n"
