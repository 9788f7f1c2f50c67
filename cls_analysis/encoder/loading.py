"""Loading a model and tokenizer: what is cached first, then the rest; safetensors only, one-line errors."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers

from cls_analysis.checkpoints import Checkpoint, fetch_rest, no_weights, pickled_weights, quiet_hub
from cls_analysis.errors import LoadingError, one_line


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence bars, warnings and load reports of transformers; what they say is read from the loading info instead."""
    log: Any = transformers.utils.logging
    verbosity, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    with quiet_hub():  # outermost: transformers switches the hub's bars as well
        log.set_verbosity(logging.CRITICAL)
        log.disable_progress_bar()
        try:
            yield
        finally:
            log.set_verbosity(verbosity)
            if bars:
                log.enable_progress_bar()


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
    if takes_pooling_layer(bare_class(config)):
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


def bare_class(config: Any) -> Any:
    """The class of the bare model, as ``AutoModel`` chooses it; None for code from a model's repository."""
    try:
        architecture: Any = transformers.MODEL_MAPPING[type(config)]
    except KeyError:
        return None
    return architecture[0] if isinstance(architecture, (list, tuple)) else architecture


def takes_pooling_layer(architecture: Any) -> bool:
    """Whether the class can be built without a pooler."""
    return architecture is not None and "add_pooling_layer" in inspect.signature(architecture).parameters


def _load(checkpoint: Checkpoint, load: Any, **options: Any) -> Any:
    try:
        with quiet_transformers():
            return load(checkpoint.location, **checkpoint.options, **options)
    except Exception as error:
        if not isinstance(error, OSError) or checkpoint.is_folder or not checkpoint.options["local_files_only"]:
            raise LoadingError(f"{checkpoint.name}: {_explain(checkpoint, error)}") from error
    fetch_rest(checkpoint)
    return _load(checkpoint, load, **options)


def _explain(checkpoint: Checkpoint, error: Exception) -> str:
    message = one_line(error)
    if "trust_remote_code" in message or "custom code" in message:
        return "it needs code from its repository to run; if you trust it, pass --trust-remote-code"
    bare = checkpoint.is_folder and not list(Path(checkpoint.location).glob("*.safetensors"))
    if bare and ("safetensors" in message or "no file named" in message or pickled_weights(checkpoint)):
        return no_weights(checkpoint)
    if "safetensors" in message and ("does not appear to have" in message or "no file named" in message):
        return no_weights(checkpoint)
    if "size mismatch" in message or "ignore_mismatched_sizes" in message:
        return "the weights do not fit the configuration (other shapes); was config.json edited?"
    return f"cannot be loaded ({type(error).__name__}: {message[:200]})"
