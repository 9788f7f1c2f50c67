"""Data sets from the Hugging Face hub (or a local folder in its format), through the optional package ``datasets``."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cls_analysis.errors import LoadingError, MissingPackageError, one_line
from cls_analysis.texts.glue import choose_split


def load_hub_split(name: str, config: str | None, split: str | None) -> tuple[Any, str]:
    """Load one split of a hub data set; returns it and the split's name.

    Raises
    ------
    MissingPackageError
        Without the package ``datasets``.
    LoadingError
        If it is not found, gated, needs a configuration or a script, or the hub cannot be reached.
    OptionError
        If no split is given where several exist, or an unknown one.
    """
    try:
        import datasets
    except ImportError:
        raise MissingPackageError("datasets", "hub", f"reading hub:{name}") from None
    label = f"hub:{name}" + (f":{config}" if config else "")
    with _quiet(datasets):
        try:
            loaded = datasets.load_dataset(name, config, **_reading(datasets, name, config))
        except Exception as error:
            raise LoadingError(f"{label}: {explain(error)}") from None
    chosen = choose_split(label, split, list(loaded))
    return loaded[chosen], chosen


def _reading(datasets: Any, name: str, config: str | None) -> dict[str, Any]:
    """For CSV files: cells as they are, since by default "NA" and its like would become missing."""
    builder = datasets.load_dataset_builder(name, config)
    return {"keep_default_na": False} if hasattr(getattr(builder, "config", None), "keep_default_na") else {}


def explain(error: BaseException) -> str:
    """The cause of a failed load in one line with what to do."""
    if type(error).__name__ == "DatasetGenerationError" and error.__cause__ is not None:
        error = error.__cause__
    name, message = type(error).__name__, one_line(error)
    if name in ("GatedRepoError", "DatasetNotFoundError") and "gated" in message:
        return "gated: accept its terms on the hub and log in (hf auth login)"
    if "scripts are no longer supported" in message or "trust_remote_code" in message:
        return "it is a loading script, which datasets no longer runs; look for a copy of it in Parquet"
    if "Config name is missing" in message or "BuilderConfig" in message:
        return f"name one of its configurations, as in hub:NAME:CONFIG ({message[:160]})"
    if name in ("OfflineModeIsEnabled", "ConnectionError", "ConnectError", "LocalEntryNotFoundError"):
        import datasets

        return f"not in the local cache {datasets.config.HF_DATASETS_CACHE}, and the hub cannot be reached (offline)"
    if name in ("DatasetNotFoundError", "RepositoryNotFoundError", "FileNotFoundError", "DataFilesNotFoundError"):
        return f"not found: {message[:200]}"
    return f"{name}: {message[:200]}"


@contextmanager
def _quiet(datasets: Any) -> Iterator[None]:
    """No progress bars of ``datasets`` where this tool shows its own."""
    shown = datasets.is_progress_bar_enabled()
    level = datasets.logging.get_verbosity()
    datasets.disable_progress_bars()
    datasets.logging.set_verbosity(logging.CRITICAL + 1)
    try:
        yield
    finally:
        datasets.logging.set_verbosity(level)
        if shown:
            datasets.enable_progress_bars()
