"""``compare``: a base encoder and tuned ones on the same texts, layer by layer."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pandas as pd

from cls_analysis.comparison.encoders import check_comparable, random_twin, weight_distances
from cls_analysis.comparison.layers import similarity_table
from cls_analysis.comparison.similarity import SUBSAMPLES
from cls_analysis.comparison.stimuli import WORDS, Stimuli
from cls_analysis.encoder import Encoder
from cls_analysis.errors import DataError, OptionError
from cls_analysis.files import make_folder, write_text
from cls_analysis.plotting.similarity import draw_similarity
from cls_analysis.plotting.style import save_figure
from cls_analysis.provenance import slug
from cls_analysis.workflows.options import EncoderOptions, TextOptions, load_all

#: What is compared, and how many texts of a data set where no ``--limit`` says otherwise.
STIMULI, TEXTS = ("cls", "tokens"), 2_500


@dataclass(frozen=True)
class Compared:
    """Tables of a comparison, and the files that were written."""

    similarity: pd.DataFrame
    distances: pd.DataFrame
    files: tuple[Path, ...]


def compare_encoders(
    base: str,
    tuned: Sequence[str],
    data: Sequence[str],
    out: Path,
    *,
    stimuli: Sequence[str] = STIMULI,
    words: int = WORDS,
    subsamples: int = SUBSAMPLES,
    seed: int = 0,
    control: bool = True,
    text_options: TextOptions = TextOptions(),
    encoder_options: EncoderOptions = EncoderOptions(),
    note: Callable[[str], None] = lambda _: None,
) -> Compared:
    """Compare encoders, and write ``similarity.csv``, ``weights.csv``, the stimuli and the figure.

    Parameters
    ----------
    base, tuned : str
        Models; what classifiers have on top of the encoder is left away.
    data : list of str
        Data sets; [CLS] of each text, and two words of each, are compared.
    out : Path
    control : bool
        Compare the base with a random network of its shape, too.

    Raises
    ------
    ClsAnalysisError
        If a data set cannot be read, an encoder not loaded, or two of them cannot be compared.
    """
    for name in stimuli:
        if name not in STIMULI:
            raise OptionError(f"unknown stimuli {name!r}; expected {' or '.join(STIMULI)}")
    if text_options.limit is None and text_options.first is None:
        text_options = replace(text_options, limit=TEXTS)
    texts = load_all(data, text_options)
    _check_labels([each.identity.label for each in texts])
    encoders = [Encoder.from_pretrained(name, **asdict(encoder_options)) for name in (base, *tuned)]
    if control:
        encoders.append(random_twin(encoders[0], seed))
    first, others = encoders[0], encoders[1:]
    names = _names(encoders)
    for other in others:
        check_comparable(first, other)
    make_folder(out)
    tables, files = [], []
    for each in texts:
        chosen = Stimuli.draw(first, each, words=words, seed=seed)
        files.append(chosen.save(out / "stimuli" / f"{slug(each.identity.label)}.json"))
        for which in stimuli:
            ours = chosen.cls_vectors(first) if which == "cls" else chosen.word_vectors(first)
            for other, name in zip(others, names[1:], strict=True):
                note(f"{each.identity.label}, {which}: {names[0]} and {name}")
                theirs = chosen.cls_vectors(other) if which == "cls" else chosen.word_vectors(other)
                tables.append(
                    similarity_table(
                        ours,
                        theirs,
                        names=(names[0], name),
                        dataset=each.identity.label,
                        stimuli=which,
                        count=subsamples,
                        seed=seed,
                    )
                )
    similarity = pd.concat(tables, ignore_index=True)
    if similarity.empty:
        raise DataError("nothing to compare: at every layer all vectors are the same (is every text the same?)")
    distances = pd.concat(
        [
            weight_distances(first, other).assign(base=names[0], tuned=name)
            for other, name in zip(others, names[1:], strict=True)
        ],
        ignore_index=True,
    )[["base", "tuned", "block", "distance"]]
    files += [
        write_text(out / "similarity.csv", similarity.to_csv(index=False)),
        write_text(out / "weights.csv", distances.to_csv(index=False)),
    ]
    origin = json.dumps({"base": names[0], "tuned": names[1:], "data": [each.identity.label for each in texts]})
    figure = draw_similarity(similarity, f"{names[0]} and what it became")
    files += save_figure(figure, out / "figures" / "similarity", ("pdf", "png"), origin)
    return Compared(similarity, distances, tuple(files))


def _check_labels(labels: Sequence[str]) -> None:
    if repeated := next((label for label in labels if labels.count(label) > 1), None):
        raise OptionError(f"two data sets are called {repeated!r}; tables could not tell them apart")


def _names(encoders: Sequence[Encoder]) -> list[str]:
    """Names that differ: a repeated one is numbered."""
    names: list[str] = []
    for encoder in encoders:
        count = sum(1 for name in names if name.split(" #")[0] == encoder.name)
        names.append(f"{encoder.name} #{count + 1}" if count else encoder.name)
    return names


#: Measures that ``summary`` shows.
SHOWN = ("rsa_pearson", "rsa_pearson_without_top5", "cka", "procrustes")


def summary(done: Compared) -> str:
    """One line for each tuned encoder, data set, kind of stimuli and measure: its value at every layer."""
    shown = done.similarity[done.similarity["measure"].isin(SHOWN)]
    index = ["tuned", "dataset", "stimuli", "measure"]
    wide = shown.pivot_table(index=index, columns="layer", values="value", sort=False, dropna=False)
    wide = wide.dropna(how="all").sort_index(axis=1).reset_index()
    return str(wide.to_string(index=False, float_format=lambda value: f"{value:.3f}", na_rep="–"))
