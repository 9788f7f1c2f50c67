"""``diagnose``: from targets on the command line to diagnoses and their report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from cls_analysis.checkpoints import find_checkpoint
from cls_analysis.diagnosis.document import diagnosis_document, to_json, weights_document
from cls_analysis.diagnosis.findings import SEVERITIES, rank
from cls_analysis.diagnosis.rules import rule_codes
from cls_analysis.diagnosis.thresholds import Limits, parse_override, read_limits
from cls_analysis.diagnosis.verdict import Diagnosis, diagnose
from cls_analysis.errors import LoadingError, OptionError, unknown_name
from cls_analysis.matrices import READERS, profile_matrix
from cls_analysis.profiles import Profile
from cls_analysis.report.markdown import render_markdown
from cls_analysis.report.text import render_text, render_weights_text
from cls_analysis.texts import Texts
from cls_analysis.weights import LayerNorm, layer_norms
from cls_analysis.workflows.options import EncoderOptions, Progress, TextOptions, load_all, silent
from cls_analysis.workflows.runs import PROFILE_ENDING, load_profiles

VECTORS = "vectors:"
FORMATS = ("text", "json", "html", "markdown")
#: Format by the ending of --out, where none is given.
ENDINGS = {".json": "json", ".html": "html", ".htm": "html", ".md": "markdown", ".txt": "text"}


@dataclass(frozen=True)
class DiagnoseOptions:
    """How to judge: the layer a classifier reads, limits, and whether to ask how many rows are enough."""

    layer: int = -1
    limits: Limits = field(default_factory=Limits)
    how_many: bool = False


@dataclass(frozen=True)
class _Case:
    """One Profile to diagnose, with what is known beside it."""

    profile: Profile
    texts: Texts | None = None
    norms: Sequence[LayerNorm] = ()


def diagnose_targets(
    targets: Sequence[str],
    data: Sequence[str] = (),
    *,
    options: DiagnoseOptions = DiagnoseOptions(),
    text_options: TextOptions = TextOptions(),
    encoder_options: EncoderOptions = EncoderOptions(),
    progress: Progress = silent,
    note: Callable[[str], None] = lambda _: None,
) -> list[Diagnosis]:
    """Diagnose each target: a model on ``data``, a Profile, a RUN, or ``vectors:FILE``.

    Raises
    ------
    ClsAnalysisError
        If a target, its data or an option is wrong.
    """
    loaded = load_all(data, text_options)
    cases: list[_Case] = []
    for target in targets:
        if target.startswith(VECTORS):
            cases.append(_stored_case(profile_matrix(target.removeprefix(VECTORS)), loaded, note))
        elif _holds_profiles(target):
            cases += [_stored_case(profile, loaded, note) for profile in load_profiles([Path(target)])]
        else:
            cases += _model_cases(target, loaded, options.layer, encoder_options, progress, note)
    return [
        diagnose(
            case.profile,
            layer=options.layer,
            texts=case.texts,
            limits=options.limits,
            layer_norms=case.norms,
            how_many=options.how_many,
        )
        for case in cases
    ]


def read_norms(targets: Sequence[str], encoder_options: EncoderOptions) -> dict[str, list[LayerNorm]]:
    """The output LayerNorms of each model, without torch and without any text."""
    norms = {}
    for target in targets:
        checkpoint = find_checkpoint(target, encoder_options.revision, trust_remote_code=False)
        norms[checkpoint.name] = layer_norms(checkpoint)
    return norms


def make_limits(thresholds: Sequence[str], file: Path | None, ignore: Sequence[str]) -> Limits:
    """Limits from the command line, on top of those of a file."""
    overrides, ignored = ({}, []) if file is None else read_limits(file)
    overrides |= dict(parse_override(text) for text in thresholds)
    return Limits.of(overrides, [*ignored, *ignore], rule_codes())


def resolve_format(form: str | None, out: Path | None) -> str:
    """The format asked for, or that of ``out``'s ending, or text.

    Raises
    ------
    OptionError
        If the format is unknown, or ``out`` is a folder.
    """
    if out is not None and out.is_dir():
        raise OptionError(f"{out}: a folder; --out takes the name of a file")
    if form is None:
        return ENDINGS.get(out.suffix.lower(), "text") if out else "text"
    if form not in FORMATS:
        raise OptionError(unknown_name("format", form, FORMATS))
    return form


def check_fail_on(level: str | None) -> None:
    """Raise ``OptionError`` for a severity that --fail-on does not know."""
    if level is not None and level not in SEVERITIES[1:]:
        raise OptionError(unknown_name("value of --fail-on", level, SEVERITIES[1:]))


def fails(diagnoses: Sequence[Diagnosis], level: str | None) -> bool:
    """Whether any finding is as bad as ``level``."""
    return level is not None and any(rank(diagnosis.worst_severity) >= rank(level) for diagnosis in diagnoses)


def render(diagnoses: Sequence[Diagnosis], limits: Limits, form: str, *, colour: bool = False) -> str:
    """The report in one of ``FORMATS``."""
    if form == "json":
        return to_json(diagnosis_document(diagnoses, limits))
    if form == "markdown":
        return render_markdown(diagnoses)
    if form == "html":
        # Figures take their time to import; the other forms need none.
        from cls_analysis.report.page import render_page  # noqa: PLC0415

        return render_page(diagnoses, limits)
    return render_text(diagnoses, colour=colour)


def render_weights(norms: Mapping[str, Sequence[LayerNorm]], form: str, *, colour: bool = False) -> str:
    """The LayerNorm outliers as text or JSON."""
    if form == "json":
        return to_json(weights_document(norms))
    if form != "text":
        raise OptionError(f"--weights-only prints text or json, not {form}")
    return "\n".join(render_weights_text(name, of_model, colour=colour) for name, of_model in norms.items())


def _holds_profiles(target: str) -> bool:
    """Whether a target is a Profile or a RUN rather than a model; a folder with a config.json is a model."""
    path = Path(target)
    if path.is_file() and path.suffix != PROFILE_ENDING and path.suffix in READERS:
        raise OptionError(f"{target}: not a Profile; a file of vectors is given as {VECTORS}{target}")
    is_run = path.is_dir() and not (path / "config.json").is_file()
    return path.is_file() or is_run or path.suffix == PROFILE_ENDING


def _stored_case(profile: Profile, loaded: Sequence[Texts], note: Callable[[str], None]) -> _Case:
    """A stored Profile, with those of the loaded texts that it is of, if any."""
    held = {dataset.hash for dataset in profile.provenance.datasets}
    found = next((texts for texts in loaded if {texts.hash} == held), None)
    if loaded and found is None:
        note(f"--data left out for {profile.dataset}: none of it holds the texts that this Profile is of")
    return _Case(profile, found)


def _model_cases(
    target: str,
    loaded: Sequence[Texts],
    layer: int,
    encoder_options: EncoderOptions,
    progress: Progress,
    note: Callable[[str], None],
) -> list[_Case]:
    """Extract a model's Profile on each data set."""
    if not loaded:
        find_checkpoint(target, encoder_options.revision, encoder_options.trust_remote_code)
        raise OptionError(f"{target} is a model: give texts with --data (sample:sentiment, a file), or --weights-only")
    # torch is needed from here on only.
    from cls_analysis.encoder import Encoder  # noqa: PLC0415
    from cls_analysis.extraction import compute_profile  # noqa: PLC0415

    encoder = Encoder.from_pretrained(target, **asdict(encoder_options))
    encoder.resolve_layers(layer)  # better refused now than after the extraction
    try:
        norms = layer_norms(find_checkpoint(target, encoder_options.revision, encoder_options.trust_remote_code))
    except LoadingError as error:
        norms = []
        note(f"LayerNorm weights left out: {error}")
    cases = []
    for texts in loaded:
        with progress(len(texts), texts.identity.label) as callback:
            cases.append(_Case(compute_profile(encoder, texts, progress=callback), texts, norms))
    return cases
