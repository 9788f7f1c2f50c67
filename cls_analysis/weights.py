"""The weights of a checkpoint, read with NumPy alone: tensors by name, and the LayerNorm that each block ends in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors

from cls_analysis.checkpoints import Checkpoint, find_file, no_weights, read_config, read_json
from cls_analysis.errors import LoadingError, one_line
from cls_analysis.moments import Array

#: The names that transformers looks for, in its order; a configuration may name another.
SAFETENSORS = ("model.safetensors", "model.safetensors.index.json")
#: How each dtype of a safetensors file lies on the disk. NumPy knows no bfloat16: its bits are read instead.
DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
#: Last part of a tensor's name -> the part it plays; checkpoints from TensorFlow say gamma and beta.
PARTS = {"weight": "weight", "gamma": "weight", "bias": "bias", "beta": "bias"}
#: Names under which configurations keep the number of blocks and the width of a vector.
COUNTS = ("num_hidden_layers", "n_layers", "n_layer", "num_layers")
WIDTHS = ("hidden_size", "dim", "d_model", "n_embd")


@dataclass(frozen=True)
class LayerNorm:
    """The norm that the output of a block passes.

    Attributes
    ----------
    layer : int
        Number of the layer, 1 to L; layer i is the output of the i-th block.
    key : str
        Its name in the checkpoint.
    weight : float64 array, shape (d,)
        Scale of each dimension.
    bias : float64 array, shape (d,), or None
        Shift of each dimension; None where the architecture has none.
    uses : int
        Layers in a row, from ``layer`` on, that share it: 1, but for ALBERT.
    on_output : bool
        Whether the layer's vectors are what it gives. False for the inner layers of pre-norm models (ModernBERT,
        GPT-2, T5), where it scales what the next block reads and leaves the vectors themselves alone.
    """

    layer: int
    key: str
    weight: Array
    bias: Array | None = None
    uses: int = 1
    on_output: bool = True


@dataclass(frozen=True)
class Naming:
    """How an architecture names the norm that a block's output passes.

    ``block`` holds {n} where the number of the block stands. Post-norm models have that norm at the end of the block
    itself. In pre-norm models, which have ``final``, it is the first norm of the next block, and ``final`` after the
    last. ``shared`` blocks serve several layers each.
    """

    block: str
    final: str | None = None
    shared: bool = False

    def find(self, modules: Iterable[str]) -> dict[str, dict[int, str]]:
        """Prefix -> number of the block -> name of its norm; decoders are not looked into."""
        block = re.escape(self.block).replace(r"\{n\}", r"(\d+)")
        pattern = re.compile(rf"((?:.+\.)?){block}")
        found: dict[str, dict[int, str]] = {}
        for module in modules:
            match = pattern.fullmatch(module)
            if match and not re.search(r"decoder\.", match[1]):
                found.setdefault(match[1], {})[int(match[2])] = module
        return found

    def by_layer(self, prefix: str, blocks: Mapping[int, str], count: int) -> dict[int, str | None]:
        """Layer 1 to ``count`` -> name of the norm; None where the checkpoint lacks it."""
        layers = range(1, count + 1)
        if self.shared:  # layer i of L, from 0, runs group ⌊i/(L/groups)⌋
            return {layer: blocks.get(int((layer - 1) / (count / (max(blocks) + 1)))) for layer in layers}
        if self.final is None:
            return {layer: blocks.get(layer - 1) for layer in layers}
        return {layer: blocks.get(layer) for layer in layers} | {count: prefix + self.final}


#: Which norm is which, by architecture. Embedding and attention LayerNorms are left out (Kovaleva et al. 2021,
#: Puccetti et al. 2022); what a GPT-2 block gives meets the next block's ln_1 (Timkey and van Schijndel 2021).
NAMINGS = (
    Naming("encoder.layer.{n}.output.LayerNorm"),  # BERT, RoBERTa, ELECTRA, DeBERTa, BigBird, Longformer, MPNet
    Naming("transformer.layer.{n}.output_layer_norm"),  # DistilBERT
    Naming("encoder.albert_layer_groups.{n}.albert_layers.0.full_layer_layer_norm", shared=True),
    Naming("layer.{n}.ff.layer_norm"),  # XLNet
    Naming("layers.{n}.attn_norm", final="final_norm"),  # ModernBERT
    Naming("h.{n}.ln_1", final="ln_f"),  # GPT-2
    Naming("encoder.block.{n}.layer.0.layer_norm", final="encoder.final_layer_norm"),  # T5
)

#: DeBERTa-v2's convolution over the embeddings joins what the first block gives; their sum passes this norm.
CONVOLUTION = "encoder.conv.LayerNorm"


@dataclass(frozen=True)
class Weights:
    """The tensors of a checkpoint's safetensors; ``files`` says which file holds each name.

    ``config`` is what config.json says.
    """

    checkpoint: Checkpoint
    config: Mapping[str, Any]
    files: Mapping[str, str]

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Weights:
        """Find the files, one or several, without reading a tensor; from the hub, fetch what is not cached.

        Raises
        ------
        LoadingError
            If there are none (or only pickled ones), they are damaged, or they cannot be fetched.
        """
        config = read_config(checkpoint)
        names = _file_names(checkpoint, config)
        path = find_file(checkpoint, *names)
        if path is None:
            raise LoadingError(f"{checkpoint.name}: {no_weights(checkpoint)}")
        if path.suffix != ".json":
            return cls(checkpoint, config, dict.fromkeys(_header(checkpoint, path)[0], names[0]))
        files = read_json(checkpoint, path).get("weight_map")
        if not isinstance(files, dict) or not all(isinstance(file, str) for file in files.values()):
            raise LoadingError(f"{checkpoint.name}: {path.name} holds no weight_map of file names")
        return cls(checkpoint, config, files)

    def read(self, names: Iterable[str]) -> dict[str, Array]:
        """The tensors of these names, as float64 arrays; no other byte of the files is read.

        Raises
        ------
        LoadingError
            If a tensor or its file is missing, or of another dtype than float64, float32, float16 and bfloat16.
        """
        by_file: dict[str, list[str]] = {}
        for name in names:
            if name not in self.files:
                raise LoadingError(f"{self.checkpoint.name}: the checkpoint has no tensor {name}")
            by_file.setdefault(self.files[name], []).append(name)
        return {name: array for file, held in by_file.items() for name, array in self._read_file(file, held)}

    def _read_file(self, file: str, names: Iterable[str]) -> Iterator[tuple[str, Array]]:
        path = find_file(self.checkpoint, file)
        if path is None:
            raise LoadingError(f"{self.checkpoint.name}: {file} is missing, one of its several weight files")
        header, start = _header(self.checkpoint, path)
        for name in names:
            if name not in header:
                raise LoadingError(f"{self.checkpoint.name}: {file} lacks the tensor {name}")
            dtype = header[name]["dtype"]
            if dtype not in DTYPES:
                known = ", ".join(DTYPES)
                raise LoadingError(f"{self.checkpoint.name}: {name} is stored as {dtype}; expected one of {known}")
            yield name, _floats(path, start + header[name]["data_offsets"][0], dtype, header[name]["shape"])


def layer_norms(checkpoint: Checkpoint) -> list[LayerNorm]:
    """The norm that each block's output passes, in the order of the layers.

    Layers 1 to L, as many as config.json says. Blocks that serve several layers (ALBERT) are given once, at the first
    of them, so that nothing counts their one LayerNorm as evidence from many layers.

    Raises
    ------
    LoadingError
        If the weights cannot be read, the architecture is not known, a layer's norm is missing, or a norm is no vector
        of finite numbers as wide as the model.
    """
    weights = Weights.of(checkpoint)
    modules: dict[str, dict[str, str]] = {}
    for name in weights.files:
        module, _, part = name.rpartition(".")
        if part in PARTS:
            modules.setdefault(module, {})[PARTS[part]] = name
    places = _places(checkpoint, {module for module in modules if "weight" in modules[module]}, weights.config)
    tensors = weights.read(name for place in places for name in modules[place.key].values())
    norms = [place.filled({part: tensors[name] for part, name in modules[place.key].items()}) for place in places]
    _check(checkpoint, norms, _first_number(weights.config, WIDTHS))
    return norms


@dataclass(frozen=True)
class _Place:
    """A LayerNorm before it is read."""

    layer: int
    key: str
    uses: int
    on_output: bool

    def filled(self, parts: Mapping[str, Array]) -> LayerNorm:
        return LayerNorm(self.layer, self.key, parts["weight"], parts.get("bias"), self.uses, self.on_output)


def _places(checkpoint: Checkpoint, modules: set[str], config: Mapping[str, Any]) -> list[_Place]:
    naming, prefix, blocks = _recognize(checkpoint, modules, config)
    count = _first_number(config, COUNTS) or max(blocks) + 1
    by_layer = naming.by_layer(prefix, blocks, count)
    missing = [layer for layer, key in by_layer.items() if key is None]
    if missing:
        raise LoadingError(
            f"{checkpoint.name}: the checkpoint lacks the LayerNorms of {len(missing)} of its {count} layers "
            f"(layer {missing[0]} first)"
        )
    layers: dict[str, list[int]] = {}
    for layer, key in by_layer.items():
        layers.setdefault(str(key), []).append(layer)
    last = None if naming.final is None else prefix + naming.final
    return [_Place(held[0], key, len(held), last in (None, key)) for key, held in layers.items()]


def _recognize(
    checkpoint: Checkpoint, modules: set[str], config: Mapping[str, Any]
) -> tuple[Naming, str, dict[int, str]]:
    """The naming that the checkpoint follows, the prefix of its names, and the norm of each block."""
    # X-MOD says pre_norm where that name stands before the feed-forward part; an ALBERT with several inner blocks
    # (Google's have one) takes turns between them.
    known = () if config.get("pre_norm") or config.get("inner_group_num", 1) != 1 else NAMINGS
    for naming in known:
        found = naming.find(modules)
        if naming.final is not None:
            found = {prefix: blocks for prefix, blocks in found.items() if prefix + naming.final in modules}
        if len(found) > 1:
            raise LoadingError(f"{checkpoint.name}: holds several encoders ({', '.join(map(repr, sorted(found)))})")
        for prefix, blocks in found.items():
            convolution = prefix + CONVOLUTION
            return naming, prefix, blocks | ({0: convolution} if convolution in modules else {})
    looked_for = ", ".join(naming.block for naming in NAMINGS)
    raise LoadingError(
        f"{checkpoint.name}: no LayerNorm behind the blocks of this {config.get('model_type')} by a known name "
        f"({looked_for}); name its dimensions from vectors instead (--data)"
    )


def _check(checkpoint: Checkpoint, norms: Iterable[LayerNorm], width: int | None) -> None:
    for norm in norms:
        for array in (norm.weight, norm.weight if norm.bias is None else norm.bias):
            width = array.size if width is None else width
            if array.shape != (width,):
                # MobileBERT's blocks end in a narrower norm, which their output does not pass.
                raise LoadingError(
                    f"{checkpoint.name}: {norm.key} has shape {array.shape}, expected ({width},), the width of a "
                    "vector; name dimensions from vectors instead (--data)"
                )
            if not np.isfinite(array).all():
                raise LoadingError(f"{checkpoint.name}: {norm.key} holds values that are not finite")


def _first_number(config: Mapping[str, Any], names: Iterable[str]) -> int | None:
    numbers = (config.get(name) for name in names)
    return next((number for number in numbers if isinstance(number, int) and number > 0), None)


def _file_names(checkpoint: Checkpoint, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the safetensors file or of the index of several, the first of which counts, as in transformers."""
    named = config.get("transformers_weights")
    if named is None:
        return SAFETENSORS
    if not isinstance(named, str) or not named.endswith((".safetensors", ".safetensors.index.json")):
        raise LoadingError(f"{checkpoint.name}: config.json names the weights {named!r}; expected a safetensors file")
    return (named,)


def _header(checkpoint: Checkpoint, path: Path) -> tuple[dict[str, Any], int]:
    """What a safetensors file says of each tensor, and where in the file their bytes begin."""
    try:
        # Opening it maps the file and checks header, sizes and offsets, so that they can be trusted here.
        with safetensors.safe_open(path, framework="numpy"):
            pass
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(length))
    except (safetensors.SafetensorError, OSError, ValueError) as error:
        raise LoadingError(f"{checkpoint.name}: {path.name} is damaged ({one_line(error, 120)})") from None
    header.pop("__metadata__", None)
    return header, 8 + length


def _floats(path: Path, offset: int, dtype: str, shape: Iterable[int]) -> Array:
    raw = np.fromfile(path, DTYPES[dtype], count=int(np.prod(tuple(shape), dtype=np.int64)), offset=offset)
    if dtype == "BF16":  # the upper half of a float32
        raw = (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
    with np.errstate(invalid="ignore"):  # some NaNs make a cast complain
        return raw.reshape(tuple(shape)).astype(np.float64)
