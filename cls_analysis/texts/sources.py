"""``load_texts``: the one place where rows come from, whatever form they have."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cls_analysis.errors import DataError, OptionError, unknown_name
from cls_analysis.files import bundled
from cls_analysis.texts import glue
from cls_analysis.texts.columns import choose_columns
from cls_analysis.texts.formats import RawTable, decode, read_file, read_text, split_lines
from cls_analysis.texts.hub import load_hub_split
from cls_analysis.texts.table import Texts, check_count, is_missing, make_texts

#: The labelled samples that ship with the package.
SAMPLES = ("acceptability", "paraphrase", "questions", "sentiment")
#: TREC's official files (Li and Roth 2002): ``COARSE:fine`` and the question, latin-1.
TREC_FILES = {"train": "train_5500.label", "test": "TREC_10.label"}


def load_texts(
    source: Any,
    *,
    split: str | None = None,
    text_column: str | None = None,
    pair_column: str | None = None,
    label_column: str | None = None,
    data_dir: str | Path | None = None,
    encoding: str = "utf-8",
    on_missing: str = "error",
    limit: int | None = None,
) -> Texts:
    """Load rows of text from anything that holds them.

    Parameters
    ----------
    source
        A list of strings, or of pairs (two strings each); a pandas DataFrame or Series; a ``datasets`` data set or
        column; a ``Texts``; or a string: the path of a csv, tsv, jsonl, parquet or txt file, ``-`` (lines of standard
        input), ``sample:NAME``, ``glue/TASK[@SPLIT]``, ``trec:DIR[@SPLIT]`` or ``hub:NAME[:CONFIG][@SPLIT]``.
    split : str, optional
        ``train``, ``dev`` (also ``validation``) or ``test``, where the source has splits and none stands behind ``@``.
    text_column, pair_column, label_column : str, optional
        Columns to read; otherwise guessed (``text``, ``sentence``, ``sentence1``/``sentence2``, …, ``label``).
    data_dir : path, optional
        Folder of GLUE's official TSV files; ``glue/…`` then reads there instead of from the hub.
    encoding : str, default "utf-8"
        Encoding of text files.
    on_missing : {"error", "drop", "empty"}, default "error"
        What to do with rows whose text is missing. An empty text (``""``) is not missing.
    limit : int, optional
        Take a seeded sample of so many rows, stratified by label, in their order.

    Returns
    -------
    Texts
        Checked rows with their ids.

    Raises
    ------
    DataError
        If a file is missing or malformed, or rows cannot be used; the message names them.
    OptionError
        If the split or a name is unknown, or options contradict each other.
    LoadingError
        If a hub data set cannot be loaded.
    """
    if limit is not None:
        check_count("limit", limit)
    names = {"text_column": text_column, "pair_column": pair_column, "label_column": label_column}
    if isinstance(source, Texts):
        texts = source
        if split is not None and texts.split not in (None, split):
            raise OptionError(f"{texts.name} is split {texts.split!r}, not {split!r}")
    elif isinstance(source, (str, Path)):
        texts = _from_string(str(source), split, names, Path(data_dir) if data_dir else None, encoding, on_missing)
    else:
        texts = _from_object(source, names, on_missing, split)
    if split is not None and texts.split is None:
        raise OptionError(f"{texts.name} has no splits; split={split!r} belongs to hub:, glue/ and trec: sources")
    return texts if limit is None else texts.sample(limit)


def _from_string(
    source: str,
    split: str | None,
    names: Mapping[str, str | None],
    data_dir: Path | None,
    encoding: str,
    on_missing: str,
) -> Texts:
    if source == "-":
        return make_texts("stdin", _stdin_lines(encoding), on_missing=on_missing)
    kind, rest = _kind(source)
    if kind == "file":
        return _from_table(read_file(Path(source), encoding), Path(source).stem, source, names, on_missing)
    place, behind = _split_at(rest)
    if behind is not None and split is not None:
        raise OptionError(f"{source}: the split is given twice (@{behind} and split={split!r})")
    chosen = behind or split
    if kind == "glue" and data_dir is not None:
        return glue.read_official(place, chosen, data_dir, on_missing)
    if kind in ("glue", "hub"):
        return _from_hub(kind, place, chosen, names, on_missing)
    read = _from_sample if kind == "sample" else _from_trec
    return read(place, chosen, on_missing)


def _kind(source: str) -> tuple[str, str]:
    """Which kind of source a string names, and the rest of it; an existing file wins over ``glue/…``."""
    try:
        if Path(source).is_file():
            return "file", source
    except OSError as error:
        raise DataError(f"{source[:60]}: no such file ({error.strerror})") from None
    for prefix, kind in (("sample:", "sample"), ("trec:", "trec"), ("hub:", "hub"), ("glue/", "glue")):
        if source.startswith(prefix):
            return kind, source.removeprefix(prefix)
    return "file", source


def _split_at(rest: str) -> tuple[str, str | None]:
    """``name@split`` taken apart."""
    place, at, behind = rest.rpartition("@")
    return (place, behind) if at and behind and "/" not in behind else (rest, None)


def _stdin_lines(encoding: str) -> list[str]:
    return split_lines(decode(sys.stdin.buffer.read(), "standard input", encoding))


def _from_table(
    table: RawTable,
    name: str,
    where: str,
    names: Mapping[str, str | None],
    on_missing: str,
) -> Texts:
    columns = choose_columns(where, table.names, **names)
    return make_texts(
        name,
        table[columns.text],
        table[columns.pair] if columns.pair else None,
        table[columns.label] if columns.label else None,
        where=where,
        on_missing=on_missing,
    )


def _from_sample(name: str, split: str | None, on_missing: str) -> Texts:
    if name not in SAMPLES:
        raise OptionError(unknown_name("sample", name, SAMPLES))
    if split is not None:
        raise OptionError(f"sample:{name} has no splits, found @{split}")
    path = bundled(f"samples/{name}.csv")
    no_names: dict[str, str | None] = {}
    return _from_table(read_file(path, "utf-8"), f"sample:{name}", str(path), no_names, on_missing)


def _from_trec(place: str, split: str | None, on_missing: str) -> Texts:
    folder = Path(place)
    files = {name: folder / file for name, file in TREC_FILES.items() if (folder / file).is_file()}
    if not files:
        raise DataError(f"{folder}: none of TREC's files is here ({', '.join(TREC_FILES.values())})")
    chosen = glue.choose_split(f"trec:{folder}", split, list(files))
    label, text = [], []
    for row, line in enumerate(split_lines(read_text(files[chosen], "latin-1"))):
        kind, _, question = line.partition(" ")
        coarse, colon, _ = kind.partition(":")
        if not colon or not question:
            raise DataError(f"{files[chosen]}: row {row}: expected 'COARSE:fine question', found {line[:60]!r}")
        label.append(coarse)
        text.append(question)
    return make_texts("trec", text, None, label, where=str(files[chosen]), split=chosen, on_missing=on_missing)


def _from_hub(kind: str, place: str, split: str | None, names: Mapping[str, str | None], on_missing: str) -> Texts:
    if kind == "glue":
        key, task = glue.find_task(place)
        dataset, chosen = load_hub_split(glue.HUB_NAME, key, split)
        columns = dict(zip(("text_column", "pair_column"), task.hub_columns, strict=False))
        return _from_columns(dataset, f"glue/{key}", columns, on_missing, glue.SPLIT_ALIASES.get(chosen, chosen))
    name, colon, config = place.partition(":")
    dataset, chosen = load_hub_split(name, config if colon else None, split)
    return _from_columns(dataset, Path(name).name if Path(name).is_dir() else name, names, on_missing, chosen)


def _from_columns(
    dataset: Any, name: str, names: Mapping[str, str | None], on_missing: str, split: str | None = None
) -> Texts:
    """Read a ``datasets`` data set (anything with ``column_names`` and ``features``)."""
    dataset = dataset.with_format(None)
    columns = choose_columns(name, list(dataset.column_names), **names)
    feature = dataset.features.get(columns.label) if columns.label and dataset.features else None
    label_names = getattr(feature, "names", None)
    return make_texts(
        name,
        list(dataset[columns.text]),
        list(dataset[columns.pair]) if columns.pair else None,
        list(dataset[columns.label]) if columns.label else None,
        split=split,
        label_names=tuple(label_names) if label_names else None,
        on_missing=on_missing,
    )


def _from_object(source: Any, names: Mapping[str, str | None], on_missing: str, split: str | None) -> Texts:
    if isinstance(source, Mapping) and hasattr(source, "column_names"):
        chosen = glue.choose_split("dataset", split, list(source))
        return _from_columns(source[chosen], "dataset", names, on_missing, chosen)
    if hasattr(source, "column_names") and hasattr(source, "features"):
        return _from_columns(source, "dataset", names, on_missing)
    if hasattr(source, "columns") and hasattr(source, "to_dict"):
        table = RawTable([str(column) for column in source.columns], [source[c].tolist() for c in _unique(source)])
        return _from_table(table, "dataframe", "the DataFrame", names, on_missing)
    if isinstance(source, (bytes, Mapping, set, frozenset)) or not hasattr(source, "__iter__"):
        raise DataError(
            f"texts come as a list of strings or pairs, a table, or a source's name, not {_kind_of(source)}"
        )
    rows = source.tolist() if hasattr(source, "tolist") else list(source)
    pairs = [isinstance(row, (list, tuple)) for row in rows]
    if not any(pairs):
        return make_texts("texts", rows, on_missing=on_missing)
    return _from_pairs(rows, pairs, on_missing)


def _from_pairs(rows: Sequence[Any], pairs: Sequence[bool], on_missing: str) -> Texts:
    for row, (value, is_pair) in enumerate(zip(rows, pairs, strict=True)):
        if not is_pair and not is_missing(value):
            raise DataError(f"row {row}: a single text among pairs; give only pairs, or only texts")
        if is_pair and len(value) != 2:
            raise DataError(f"row {row}: expected a pair of two texts, found {len(value)} of them")
    first = [value[0] if is_pair else None for value, is_pair in zip(rows, pairs, strict=True)]
    second = [value[1] if is_pair else None for value, is_pair in zip(rows, pairs, strict=True)]
    return make_texts("texts", first, second, on_missing=on_missing)


def _unique(frame: Any) -> Sequence[Any]:
    repeated = frame.columns[frame.columns.duplicated()].unique().tolist()
    if repeated:
        raise DataError(f"the DataFrame: repeated column names {', '.join(map(repr, repeated))}")
    return list(frame.columns)


def _kind_of(source: Any) -> str:
    return type(source).__name__
