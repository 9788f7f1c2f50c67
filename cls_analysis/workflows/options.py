"""Options that several commands share: how texts are read, how an encoder is loaded, how progress is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cls_analysis.errors import OptionError
from cls_analysis.texts import Texts, load_texts

#: Called with the rows and tokens done since the last call.
Callback = Callable[[int, int], None]
#: Opens a progress display for a total number of rows and a title; its context gives the callback.
Progress = Callable[[int, str], Any]


@dataclass(frozen=True)
class TextOptions:
    """How data sets are read; the same for all of them."""

    data_dir: Path | None = None
    text_column: str | None = None
    pair_column: str | None = None
    label_column: str | None = None
    encoding: str = "utf-8"
    on_missing: str = "error"
    limit: int | None = None
    first: int | None = None


@dataclass(frozen=True)
class EncoderOptions:
    """How the encoder is loaded."""

    source: str = "cls"
    dtype: str = "float32"
    device: str = "auto"
    max_length: int | None = None
    revision: str | None = None
    trust_remote_code: bool = False
    apply_final_norm: bool = False


def load_all(data: Sequence[str], options: TextOptions) -> list[Texts]:
    """Load and check every data set, before any model is loaded.

    Raises
    ------
    OptionError
        If both a sample and the beginning are asked for.
    """
    if options.limit is not None and options.first is not None:
        raise OptionError("give --limit (a sample) or --first (the beginning), not both")
    reading = {key: value for key, value in asdict(options).items() if key not in ("limit", "first")}
    loaded = []
    for source in data:
        texts = load_texts(source, limit=options.limit, **reading)
        loaded.append(texts if options.first is None else texts.first(options.first))
    return loaded


@contextmanager
def silent(total: int, title: str) -> Iterator[Callback | None]:
    """A progress display that shows nothing."""
    yield None
