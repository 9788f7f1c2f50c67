"""Vectors on disk: one folder per data set, one safetensors file per block, resumable.

A block's file appears whole; it carries the key of the work it belongs to. Another encoder, setting or text gives
another key, and what the folder holds is refused rather than mixed in.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy
import torch
from numpy.typing import NDArray

from cls_analysis.errors import DataError, one_line
from cls_analysis.extraction import Block, Extraction
from cls_analysis.files import make_folder, whole_file, write_text
from cls_analysis.provenance import Provenance, hash_text

MANIFEST = "manifest.json"


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

    def write(self, block: Block) -> None:
        """Store one block, whole."""
        tensors = {f"layer.{layer}": vectors.cpu().numpy() for layer, vectors in block.vectors.items()}
        tensors["row_ids"] = block.row_ids
        tensors["rows_cut"] = np.array([block.rows_cut], dtype=np.int64)
        with whole_file(self.path(block.number)) as temporary:
            safetensors.numpy.save_file(tensors, temporary, metadata={"key": self.key})

    def read(self, number: int) -> Block | None:
        """A stored block, or None where it is not there, belongs to other work, or cannot be read."""
        path = self.path(number)
        if not path.is_file():
            return None
        try:
            tensors = _read(path, self.key)
        except DataError:
            return None
        vectors = {
            int(name.removeprefix("layer.")): torch.from_numpy(array)
            for name, array in tensors.items()
            if name.startswith("layer.")
        }
        return Block(number, tensors["row_ids"], vectors, int(tensors["rows_cut"][0]))

    def blocks(self, extraction: Extraction) -> Iterator[Block]:
        """All blocks of an extraction: read where stored, else computed and stored."""
        for number in extraction.blocks:
            block = self.read(number)
            if block is None:
                block = extraction.block(number)
                self.write(block)
            yield block

    def _found_key(self) -> str | None:
        path = self.folder / MANIFEST
        if not path.is_file():
            return None
        try:
            return str(json.loads(path.read_text(encoding="utf-8"))["key"])
        except (OSError, ValueError, KeyError, TypeError):
            return "unreadable"


def load_vectors(folder: str | Path, layer: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Vectors of one layer and their row ids, in row order.

    Raises
    ------
    DataError
        If the folder is no vector store, or does not hold the layer.
    """
    folder = Path(folder)
    paths = sorted(folder.glob("block-*.safetensors"))
    if not paths:
        raise DataError(f"{folder}: no stored vectors (expected block-000000.safetensors, …)")
    rows, ids = [], []
    for path in paths:
        tensors = _read(path, None)
        if f"layer.{layer}" not in tensors:
            held = sorted(int(name.removeprefix("layer.")) for name in tensors if name.startswith("layer."))
            raise DataError(f"{path}: no layer {layer}; it holds {held}")
        rows.append(tensors[f"layer.{layer}"])
        ids.append(tensors["row_ids"])
    return np.concatenate(rows), np.concatenate(ids)


def store_key(provenance: Provenance) -> str:
    """Key of the work: weights, tokenizer, source, layers, dtype, length, attention, texts and selection."""
    return hash_text(json.dumps([provenance.settings(), [d.hash + d.selection for d in provenance.datasets]]))


def _read(path: Path, key: str | None) -> dict[str, NDArray[np.float32]]:
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            found = (file.metadata() or {}).get("key")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise DataError(f"{path}: not a readable block of vectors ({one_line(error, 120)})") from None
    if key is not None and found != key:
        raise DataError(f"{path}: belongs to other work")
    return tensors
