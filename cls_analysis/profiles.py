"""``Profile``: the streaming, mergeable description of the [CLS] vectors of one encoder on one set of texts.

A Profile of a billion rows is as small as one of a thousand. Tables, figures and the diagnosis are functions of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

from cls_analysis.errors import ClsAnalysisError, DataError, ProfileError, one_line
from cls_analysis.files import whole_file
from cls_analysis.moments import CHUNK, ROUNDINGS, Array, Moments
from cls_analysis.provenance import Part, Provenance, join_parts, parts_of, row_keys

#: Distance from 1 to the next number of each dtype an encoder may run in.
EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
#: The one key of the file's header under which the metadata stands.
METADATA_KEY = "cls_analysis"


@dataclass(frozen=True)
class RowSums:
    """What a set of rows adds to a layer: moments of x and the sums of u = x/‖x‖, zero vectors left out."""

    moments: Moments
    unit_sum: Array
    unit_square_sum: Array
    n_zero: int

    @classmethod
    def of(cls, x: NDArray[Any]) -> RowSums:
        """Reduce the rows of ``x``, shape (n, d), to sums in float64."""
        moments = Moments(x.shape[1])
        moments.update(x)
        unit_sum, unit_square_sum, n_zero = np.zeros(x.shape[1]), np.zeros(x.shape[1]), 0
        for start in range(0, len(x), CHUNK):
            rows = x[start : start + CHUNK].astype(np.float64)
            # Scaling by the largest value first keeps tiny and huge vectors from vanishing or overflowing when squared.
            largest = np.abs(rows).max(axis=1, keepdims=True)
            zero = largest[:, 0] == 0
            rows = rows[~zero] / largest[~zero]
            rows /= np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]
            unit_sum += rows.sum(axis=0)
            unit_square_sum += np.einsum("ij,ij->j", rows, rows)
            n_zero += int(zero.sum())
        return cls(moments, unit_sum, unit_square_sum, n_zero)

    def merge(self, other: RowSums) -> RowSums:
        """The sums over the rows of both."""
        return RowSums(
            self.moments.merge(other.moments),
            self.unit_sum + other.unit_sum,
            self.unit_square_sum + other.unit_square_sum,
            self.n_zero + other.n_zero,
        )


@dataclass(frozen=True)
class LayerProfile:
    """One layer of a Profile.

    Attributes
    ----------
    moments : Moments
        Moments of x to the fourth, with the covariance.
    unit_sum, unit_square_sum : float64 arrays, shape (d,)
        Σu and Σu² over the rows with x ≠ 0, u = x/‖x‖.
    n_zero : int
        Rows with x = 0.
    sample : array, shape (m, d), m ≤ 1,024
        The vectors of the sampled rows, in the order of ``sample_ids``.
    sample_ids : int64 array, shape (m,)
        Their row ids; ``sample_datasets`` says of which data set.
    dtype : str
        The dtype the encoder ran in; its rounding decides which dimensions are dead.
    """

    moments: Moments
    unit_sum: Array
    unit_square_sum: Array
    n_zero: int
    sample: NDArray[Any]
    sample_ids: NDArray[np.int64]
    sample_datasets: NDArray[np.int64]
    dtype: str = "float32"

    @property
    def n(self) -> int:
        """Number of rows."""
        return self.moments.n

    @property
    def dim(self) -> int:
        """Number of dimensions."""
        return self.moments.dim

    @cached_property
    def dead(self) -> NDArray[np.bool_]:
        """Dimensions that do not vary, shape (d,).

        max = min, or a standard deviation of at most 1e-6 of the layer's median one, or of at most 16 roundings of the
        dtype that the encoder ran in. Where that holds for most dimensions, and the vectors as a whole spread by no
        more than 16 roundings of their length, the rest is rounding too: one text in differently padded batches.
        """
        m = self.moments
        std = m.std
        roundings = ROUNDINGS * EPSILON[self.dtype]
        magnitude = np.maximum(np.abs(m.minimum), np.abs(m.maximum))
        median = float(np.median(std)) if m.n else 0.0
        dead = np.asarray(m.constant | (std <= 1e-6 * median) | (std <= roundings * magnitude))
        one_vector = dead.mean() > 0.5 and bool(m.variance.sum() <= roundings**2 * m.energy.sum())
        return np.ones_like(dead) if one_vector else dead

    @property
    def living(self) -> NDArray[np.bool_]:
        """Dimensions that vary, shape (d,)."""
        return ~self.dead

    @property
    def collapsed(self) -> bool:
        """Whether no dimension varies: every row is the same vector."""
        return bool(self.dead.all())


class Profile:
    """The vectors of one encoder on one set of texts, layer by layer, with where they came from.

    ``profile.layers`` lists the layers, ``profile[layer]`` gives one (negative numbers count from the encoder's last),
    ``profile.n`` the number of rows, ``profile.provenance`` the origin. Made by ``compute_profile``,
    ``profile_vectors``, ``profile_matrix``, ``Profile.load`` or ``merge``.
    """

    def __init__(self, layers: Mapping[int, LayerProfile], provenance: Provenance) -> None:
        self._layers = dict(sorted(layers.items()))
        self.provenance = provenance

    @property
    def layers(self) -> tuple[int, ...]:
        """The layers' numbers, ascending."""
        return tuple(self._layers)

    @property
    def n(self) -> int:
        """Number of rows."""
        return next(iter(self._layers.values())).n

    @property
    def dim(self) -> int:
        """Number of dimensions of a vector."""
        return next(iter(self._layers.values())).dim

    @property
    def encoder(self) -> str:
        """Name of the encoder."""
        return self.provenance.encoder_name

    @property
    def dataset(self) -> str:
        """Name of the data set or sets."""
        return self.provenance.dataset_name

    def resolve_layer(self, layer: int) -> int:
        """The number under which ``layer`` is held; negative ones count from the encoder's last layer.

        Raises
        ------
        ProfileError
            If this Profile does not hold the layer.
        """
        if layer in self._layers:
            return layer
        encoder = self.provenance.encoder
        resolved = encoder.n_layers + 1 + layer if encoder and layer < 0 else layer
        if resolved not in self._layers:
            raise ProfileError(f"layer {layer} is not in this Profile of {self.encoder}; it holds {list(self.layers)}")
        return resolved

    def __getitem__(self, layer: int) -> LayerProfile:
        return self._layers[self.resolve_layer(layer)]

    def __repr__(self) -> str:
        return f"Profile({self.encoder!r} on {self.dataset!r}: n={self.n}, dim={self.dim}, layers={list(self.layers)})"

    def merge(self, other: Profile) -> Profile:
        """A new Profile of the rows of both; the two stay as they are.

        Raises
        ------
        ProfileError
            If they differ in weights, tokenizer, source, layers, dtype, length, attention or sampling, or share rows.
        """
        provenance = self.provenance.merge(other.provenance)
        keep = _Selection.of(self, provenance).join(_Selection.of(other, provenance), provenance.sample_rows)
        layers = {}
        for layer in self.layers:
            mine, theirs = self[layer], other[layer]
            if mine.dim != theirs.dim:
                raise ProfileError(
                    f"layer {layer} has {mine.dim} dimensions in one Profile and {theirs.dim} in the other"
                )
            sums = _sums(mine).merge(_sums(theirs))
            sample = np.concatenate([mine.sample, theirs.sample])[keep.order]
            layers[layer] = _layer(sums, sample, keep, provenance.dtype)
        return Profile(layers, provenance)

    # -- disk ----------------------------------------------------------------------------------------------------

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file, whole; the same Profile gives the same bytes."""
        first = next(iter(self._layers.values()))
        tensors: dict[str, NDArray[Any]] = {
            "sample_ids": first.sample_ids,
            "sample_datasets": first.sample_datasets,
        }
        for number, layer in self._layers.items():
            prefix = f"layer.{number}."
            tensors |= {prefix + name: array for name, array in layer.moments.to_arrays().items()}
            tensors[prefix + "unit_sum"] = layer.unit_sum
            tensors[prefix + "unit_square_sum"] = layer.unit_square_sum
            tensors[prefix + "n_zero"] = np.array([layer.n_zero], dtype=np.int64)
            tensors[prefix + "sample"] = layer.sample
        contiguous = {name: np.ascontiguousarray(tensor) for name, tensor in tensors.items()}
        with whole_file(Path(path)) as temporary:
            safetensors.numpy.save_file(contiguous, temporary, metadata={METADATA_KEY: self.provenance.to_json()})
        return Path(path)

    @classmethod
    def load(cls, path: str | Path) -> Profile:
        """Read a Profile and check it.

        Raises
        ------
        ProfileError
            If the file is missing, is no Profile, comes from a newer version, or does not fit together.
        """
        path = Path(path)
        provenance, tensors = _read(path)
        try:
            return cls._from_tensors(provenance, tensors)
        except KeyError as error:
            raise ProfileError(f"{path}: not a whole Profile (tensor {error} is missing)") from None
        except ClsAnalysisError as error:
            raise ProfileError(f"{path}: {error}") from None

    @classmethod
    def _from_tensors(cls, provenance: Provenance, tensors: Mapping[str, NDArray[Any]]) -> Profile:
        if not provenance.layers:
            raise ProfileError("it holds no layer")
        selection = _Selection.stored(tensors["sample_ids"], tensors["sample_datasets"], provenance)
        layers = {}
        for number in provenance.layers:
            prefix = f"layer.{number}."
            own = {name.removeprefix(prefix): array for name, array in tensors.items() if name.startswith(prefix)}
            if own["n_zero"].size != 1:
                raise ProfileError(f"layer {number}: n_zero is not one number")
            n_zero = int(own["n_zero"].reshape(-1)[0])
            sums = RowSums(Moments.from_arrays(own), own["unit_sum"], own["unit_square_sum"], n_zero)
            layers[number] = _layer(sums, own["sample"], selection, provenance.dtype)
        profile = cls(layers, provenance)
        profile._check()
        return profile

    def _check(self) -> None:
        origin = self.provenance
        if origin.dtype not in EPSILON:
            raise ProfileError(f"its dtype {origin.dtype!r} is none of {', '.join(EPSILON)}")
        unlisted = {part.dataset for part in origin.parts} - {dataset.hash for dataset in origin.datasets}
        if unlisted:
            raise ProfileError(f"its parts name a data set that is not listed ({min(unlisted)[:12]})")
        join_parts(origin.parts)
        rows = sum(part.last - part.first + 1 for part in origin.parts)
        self._check_sample(rows)
        for number, layer in self._layers.items():
            if layer.n != rows:
                raise ProfileError(f"layer {number} counts {layer.n} rows, its parts {rows}")
            shapes = {layer.unit_sum.shape, layer.unit_square_sum.shape}
            if shapes != {(layer.dim,)} or not 0 <= layer.n_zero <= layer.n:
                raise ProfileError(f"layer {number}: the sums of unit vectors do not fit its {layer.dim} dimensions")
            if layer.sample.shape != (len(layer.sample_ids), layer.dim) or not layer.moments.has_covariance:
                raise ProfileError(
                    f"layer {number}: the sample or the covariance does not fit its {layer.dim} dimensions"
                )
            for values in (layer.unit_sum, layer.unit_square_sum, layer.sample):
                if values.dtype.kind != "f" or not np.isfinite(values).all():
                    raise ProfileError(f"layer {number}: the sums of unit vectors or the sample are not finite numbers")

    def _check_sample(self, rows: int) -> None:
        origin = self.provenance
        first = self[self.layers[0]]
        if len(first.sample_ids) != min(rows, origin.sample_rows):
            raise ProfileError(f"the sample has {len(first.sample_ids)} rows, not the smaller of {rows} and its size")
        chosen = list(zip(first.sample_datasets.tolist(), first.sample_ids.tolist(), strict=True))
        if len(set(chosen)) != len(chosen):
            raise ProfileError("the sample holds a row twice")
        for number, dataset in enumerate(origin.datasets):
            ids = first.sample_ids[first.sample_datasets == number]
            held = [part for part in origin.parts if part.dataset == dataset.hash]
            inside = np.zeros(len(ids), dtype=bool)
            for part in held:
                inside |= (ids >= part.first) & (ids <= part.last)
            if not inside.all():
                raise ProfileError(f"the sample holds row {int(ids[~inside][0])}, which is in none of its parts")


class ProfileBuilder:
    """Collects blocks of vectors into a Profile; memory does not grow with the number of rows."""

    def __init__(self, provenance: Provenance) -> None:
        if provenance.dtype not in EPSILON:
            raise DataError(f"vectors of dtype {provenance.dtype} have no known rounding; known: {', '.join(EPSILON)}")
        self._provenance = provenance
        self._dataset = provenance.datasets[0].hash
        self._sums: dict[int, RowSums] = {}
        self._samples: dict[int, NDArray[Any]] = {}
        self._selection = _Selection.empty()
        self._parts: tuple[Part, ...] = ()

    def add(self, sums: Mapping[int, RowSums], row_ids: NDArray[np.int64], take: Any) -> None:
        """Add one block.

        Parameters
        ----------
        sums : dict of layer number -> RowSums
            The block, reduced.
        row_ids : int64 array, shape (m,)
            Ids of its rows, ascending.
        take : callable (layer number, int array of positions) -> array (k, d)
            Gives the vectors of a few rows of the block; only sampled rows are ever asked for.
        """
        offered = _Selection.offered(row_ids, self._dataset, self._provenance)
        selection = self._selection.join(offered, self._provenance.sample_rows)
        old = len(self._selection.keys)
        from_block = selection.order[selection.order >= old] - old
        for layer, block in sums.items():
            self._sums[layer] = self._sums[layer].merge(block) if layer in self._sums else block
            fresh = np.asarray(take(layer, from_block))
            kept = self._samples.get(layer, np.empty((0, fresh.shape[1]), dtype=fresh.dtype))
            # Only the chosen rows were fetched: place them behind the kept ones and sort by the selection's order.
            sample = np.empty((len(selection.order), fresh.shape[1]), dtype=fresh.dtype)
            sample[selection.order >= old] = fresh
            sample[selection.order < old] = kept[selection.order[selection.order < old]]
            self._samples[layer] = sample
        self._selection = selection
        self._parts = join_parts(self._parts + parts_of(self._dataset, np.asarray(row_ids, dtype=np.int64)))

    def finish(self, **counts: Any) -> Profile:
        """The Profile of all blocks added; ``counts`` are fields of Provenance known only at the end."""
        if not self._sums:
            raise DataError("no rows: a Profile needs at least one")
        provenance = replace(self._provenance, parts=self._parts, layers=tuple(sorted(self._sums)), **counts)
        layers = {
            layer: _layer(sums, self._samples[layer], self._selection, provenance.dtype)
            for layer, sums in self._sums.items()
        }
        return Profile(layers, provenance)


@dataclass(frozen=True)
class _Selection:
    """Sampled rows, sorted by (data set, id), with the keys they were chosen by.

    ``order`` says where each one stood in what the selection was made from (the old rows, then the new).
    """

    keys: NDArray[np.uint64]
    ids: NDArray[np.int64]
    datasets: NDArray[np.int64]
    order: NDArray[np.int64]

    @classmethod
    def empty(cls) -> _Selection:
        none = np.empty(0, dtype=np.int64)
        return cls(np.empty(0, dtype=np.uint64), none, none, none)

    @classmethod
    def offered(cls, row_ids: NDArray[np.int64], dataset: str, provenance: Provenance) -> _Selection:
        ids = np.asarray(row_ids, dtype=np.int64)
        number = [d.hash for d in provenance.datasets].index(dataset)
        keys = row_keys(provenance.sample_seed, dataset, ids)
        return cls(keys, ids, np.full(len(ids), number, dtype=np.int64), np.arange(len(ids)))

    @classmethod
    def stored(cls, ids: NDArray[np.int64], datasets: NDArray[np.int64], provenance: Provenance) -> _Selection:
        if ids.shape != datasets.shape or ids.ndim != 1:
            raise ProfileError("the sample's ids and data sets have different lengths")
        keys = np.empty(len(ids), dtype=np.uint64)
        for number, dataset in enumerate(provenance.datasets):
            chosen = datasets == number
            keys[chosen] = row_keys(provenance.sample_seed, dataset.hash, ids[chosen])
        if len(ids) and (datasets.min() < 0 or datasets.max() >= len(provenance.datasets)):
            raise ProfileError("the sample names a data set that the metadata does not")
        return cls(keys, ids, datasets, np.arange(len(ids)))

    @classmethod
    def of(cls, profile: Profile, merged: Provenance) -> _Selection:
        """The sample of ``profile``, its data sets numbered as in ``merged``."""
        layer = profile[profile.layers[0]]
        numbers = np.array([_first(merged, d.hash) for d in profile.provenance.datasets])
        datasets = numbers[layer.sample_datasets] if len(layer.sample_datasets) else layer.sample_datasets
        return cls.stored(layer.sample_ids, datasets, merged)

    def join(self, other: _Selection, size: int) -> _Selection:
        """The ``size`` rows of both with the smallest keys."""
        keys = np.concatenate([self.keys, other.keys])
        ids = np.concatenate([self.ids, other.ids])
        datasets = np.concatenate([self.datasets, other.datasets])
        smallest = np.lexsort((ids, datasets, keys))[:size]
        order = smallest[np.lexsort((ids[smallest], datasets[smallest]))]
        return _Selection(keys[order], ids[order], datasets[order], order)


def _first(provenance: Provenance, dataset: str) -> int:
    """Number of the first entry with this hash; one data set may stand there under several names."""
    return [d.hash for d in provenance.datasets].index(dataset)


def _sums(layer: LayerProfile) -> RowSums:
    return RowSums(layer.moments, layer.unit_sum, layer.unit_square_sum, layer.n_zero)


def _layer(sums: RowSums, sample: NDArray[Any], selection: _Selection, dtype: str) -> LayerProfile:
    return LayerProfile(
        sums.moments,
        sums.unit_sum,
        sums.unit_square_sum,
        sums.n_zero,
        sample,
        selection.ids,
        selection.datasets,
        dtype,
    )


def _read(path: Path) -> tuple[Provenance, dict[str, NDArray[Any]]]:
    if not path.is_file():
        raise ProfileError(f"{path}: no such file")
    try:
        with safetensors.safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except (safetensors.SafetensorError, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ProfileError(f"{path}: not a safetensors file ({one_line(error, 120)})") from None
    if METADATA_KEY not in metadata:
        raise ProfileError(f"{path}: a safetensors file, but no Profile (its header has no {METADATA_KEY!r})")
    try:
        provenance = Provenance.from_json(metadata[METADATA_KEY])
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from None
    return provenance, tensors
