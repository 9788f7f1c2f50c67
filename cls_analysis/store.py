"""Vectors on disk: one folder per data set, one safetensors file per block, resumable.

A block's file appears whole; it carries the key of the work it belongs to. Another encoder, setting or text gives
another key, and what the folder holds is refused rather than mixed in.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from cls_analysis.errors import DataError, one_line
from cls_analysis.files import make_folder, whole_file, write_text
from cls_analysis.provenance import Provenance, hash_text

MANIFEST = "manifest.json"
LAYER = "layer."


@dataclass(frozen=True)
class StoredBlock:
    """Vectors of consecutive rows: layer number -> float32 array (rows, d), in row order."""

    row_ids: NDArray[np.int64]
    vectors: Mapping[int, NDArray[np.float32]]
    rows_cut: int


class VectorStore:
    """A folder of vectors.

    Parameters
    ----------
    folder : Path
    provenance : Provenance
        What the vectors are; decides the key.
    overwrite : bool
        Whether blocks of other work found here are removed instead of refused.

    Raises
    ------
    DataError
        If the folder holds vectors of other work.
    """

    def __init__(self, folder: Path, provenance: Provenance, *, overwrite: bool = False) -> None:
        self.folder = folder
        self.key = store_key(provenance)
        found = self._found_key()
        if found is not None and found != self.key:
            if not overwrite:
                raise DataError(
                    f"{folder}: holds vectors of another encoder, setting or text; --overwrite replaces them"
                )
            for path in folder.glob("block-*.safetensors"):
                path.unlink()
        make_folder(folder)
        manifest = {"key": self.key, "provenance": json.loads(provenance.to_json())}
        write_text(folder / MANIFEST, json.dumps(manifest, indent=1, sort_keys=True) + "\n")

    def path(self, number: int) -> Path:
        """File of a block."""
        return self.folder / f"block-{number:06d}.safetensors"

    def write(self, number: int, block: StoredBlock) -> None:
        """Store one block, whole."""
        tensors: dict[str, NDArray[Any]] = {f"{LAYER}{layer}": rows for layer, rows in block.vectors.items()}
        tensors["row_ids"] = block.row_ids
        tensors["rows_cut"] = np.array([block.rows_cut], dtype=np.int64)
        with whole_file(self.path(number)) as temporary:
            safetensors.numpy.save_file(tensors, temporary, metadata={"key": self.key})

    def read(self, number: int) -> StoredBlock | None:
        """Give a stored block, or None where it is not there, belongs to other work, or cannot be read."""
        path = self.path(number)
        if not path.is_file():
            return None
        try:
            tensors = _read(path, self.key)
        except DataError:
            return None
        vectors = {_layer(name): rows for name, rows in tensors.items() if name.startswith(LAYER)}
        return StoredBlock(tensors["row_ids"], vectors, int(tensors["rows_cut"][0]))

    def _found_key(self) -> str | None:
        return _key_in(self.folder)


def load_vectors(folder: str | Path, layer: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Vectors of one layer and their row ids, in row order.

    Raises
    ------
    DataError
        If the folder is no vector store, lacks a block between others, or does not hold the layer.
    """
    folder = Path(folder)
    paths = sorted(folder.glob("block-*.safetensors"))
    key = _key_in(folder)
    if not paths or key is None:
        raise DataError(f"{folder}: no stored vectors (expected {MANIFEST} and block-000000.safetensors, …)")
    numbers = [int(path.stem.removeprefix("block-")) for path in paths]
    if absent := sorted(set(range(numbers[0], numbers[-1])) - set(numbers)):
        raise DataError(f"{folder}: block {absent[0]} is missing; extract again to complete it")
    rows, ids = [], []
    for path in paths:
        tensors = _read(path, key)
        if f"{LAYER}{layer}" not in tensors:
            held = sorted(_layer(name) for name in tensors if name.startswith(LAYER))
            raise DataError(f"{path}: no layer {layer}; it holds {held}")
        rows.append(tensors[f"{LAYER}{layer}"])
        ids.append(tensors["row_ids"])
    return np.concatenate(rows), np.concatenate(ids)


def _key_in(folder: Path) -> str | None:
    path = folder / MANIFEST
    if not path.is_file():
        return None
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["key"])
    except (OSError, ValueError, KeyError, TypeError):
        return "unreadable"


def _layer(name: str) -> int:
    return int(name.removeprefix(LAYER))


def store_key(provenance: Provenance) -> str:
    """Key of the work: weights, tokenizer, source, layers, dtype, length, attention, texts and selection."""
    return hash_text(json.dumps([provenance.settings(), [d.hash + d.selection for d in provenance.datasets]]))


def _read(path: Path, key: str | None) -> dict[str, NDArray[Any]]:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            found = (file.metadata() or {}).get("key")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable block of vectors ({one_line(error, 120)})") from None
    if key is not None and found != key:
        raise DataError(f"{path}: belongs to other work")
    return tensors
