"""Classifiers with a norm on disk: what ``save_pretrained`` writes, read back whole and checked."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
import torch
import transformers
from torch import Tensor

from cls_analysis.encoder.loading import quiet_transformers
from cls_analysis.errors import ClsAnalysisError, DataError, LoadingError, one_line
from cls_analysis.files import make_folder
from cls_analysis.normalization.attaching import KEY, MARKER, place_norm, site_of
from cls_analysis.normalization.heads import HEAD_KEY, LinearHeadClassifier
from cls_analysis.normalization.making import restore_norm
from cls_analysis.normalization.sites import dummy_logits

WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"


def save_classifier(model: Any, folder: str | Path) -> Path:
    """Save a classifier with its norms, and check that it comes back.

    Parameters
    ----------
    model : transformers sequence classifier, or LinearHeadClassifier
        With or without attached norms.
    folder : path
        Filled by ``save_pretrained``: any reader of Hugging Face models finds the stock weights there, and reports
        ``cls_norm`` as unexpected.

    Raises
    ------
    ClsAnalysisError
        If what is read back gives other logits.
    """
    folder = Path(folder)
    make_folder(folder.parent)
    # Beside the target, so that a folder appears whole.
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    try:
        with quiet_transformers():
            model.save_pretrained(part)
        like = next(model.parameters())
        again = load_classifier(part).to(like.device, like.dtype)
        if not torch.equal(dummy_logits(again), dummy_logits(model)):
            raise ClsAnalysisError(f"{folder}: the saved classifier gives other logits than the one in memory")
        if folder.exists():
            shutil.copytree(part, folder, dirs_exist_ok=True)
        else:
            part.rename(folder)
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return folder


def load_classifier(folder: str | Path) -> Any:
    """A classifier with its norms, as ``save_classifier``, ``save_pretrained`` or a Trainer's checkpoint left it.

    Returns
    -------
    model
        In evaluation mode, float32.

    Raises
    ------
    LoadingError
        If there is none, or a weight is missing or unexpected.
    """
    folder = Path(folder)
    if not (folder / "config.json").is_file():
        raise LoadingError(f"{folder}: no config.json; expected a folder that save_classifier wrote")
    config = _read_config(folder)
    if getattr(config, HEAD_KEY, None):
        return _load_linear_head(folder, config)
    try:
        with quiet_transformers():
            model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
                folder,
                dtype=torch.float32,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, KeyError) as error:
        raise LoadingError(f"{folder}: no classifier can be loaded ({one_line(error, 200)})") from None
    norms = _all_tensors(folder, only_norms=True)
    unexpected = {str(key) for key in info.get("unexpected_keys", ())} - set(norms)
    wrong = sorted({str(key) for key in info.get("missing_keys", ())} | unexpected)
    if wrong:
        raise LoadingError(f"{folder}: {len(wrong)} weights are missing or unexpected ({', '.join(wrong[:3])})")
    _restore_norms(folder, model, norms)
    return model.eval()


def _load_linear_head(folder: Path, config: Any) -> Any:
    model = LinearHeadClassifier.from_config(config)
    tensors = _all_tensors(folder)
    norms = {key: tensor for key, tensor in tensors.items() if _is_of_norm(key)}
    try:
        model.load_saved({key: tensor for key, tensor in tensors.items() if key not in norms})
    except RuntimeError as error:
        raise LoadingError(f"{folder}: the weights do not fit ({one_line(error, 200)})") from None
    _restore_norms(folder, model, norms)
    return model.eval()


def _restore_norms(folder: Path, model: Any, tensors: Mapping[str, Tensor]) -> None:
    settings = getattr(model.config, KEY, None) or {}
    left = dict(tensors)
    for position, entry in settings.items():
        prefix = f"{entry['linear']}.{KEY}."
        state = {key.removeprefix(prefix): left.pop(key) for key in list(left) if key.startswith(prefix)}
        if state.pop(MARKER, None) is None:
            raise LoadingError(f"{folder}: config.json names a norm at {position!r}, the weights have none")
        norm = restore_norm(entry["name"], entry["dim"], entry["options"], entry["origin"], state)
        place_norm(model, norm, site_of(position, entry))
    if left:
        raise LoadingError(f"{folder}: weights of a norm that config.json does not name ({next(iter(left))})")


def _read_config(folder: Path) -> Any:
    try:
        with quiet_transformers():
            return transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        raise LoadingError(f"{folder}: config.json cannot be read ({one_line(error, 160)})") from None


def _is_of_norm(key: str) -> bool:
    return KEY in key.split(".")


def _all_tensors(folder: Path, *, only_norms: bool = False) -> dict[str, Tensor]:
    """Tensors by name, from one file or from the parts that an index lists."""
    files = [WEIGHTS]
    try:
        if (folder / INDEX).is_file():
            index = json.loads((folder / INDEX).read_text(encoding="utf-8"))
            files = sorted(set(index["weight_map"].values()))
        tensors: dict[str, Tensor] = {}
        for name in files:
            with safetensors.safe_open(folder / name, framework="pt") as file:
                keys = [key for key in file.keys() if not only_norms or _is_of_norm(key)]  # noqa: SIM118 (not a mapping)
                tensors |= {key: file.get_tensor(key) for key in keys}
    except (OSError, ValueError, KeyError, safetensors.SafetensorError) as error:
        raise LoadingError(f"{folder}: the weights cannot be read ({one_line(error, 160)})") from None
    return tensors
