"""Where numbers come from: what was measured, on what, with which settings; hashes, keys and names of files."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cls_analysis.errors import ProfileError

#: Rows that are sorted, batched, repeated and resumed together. Part of a Profile's settings.
BLOCK_ROWS = 4_096
#: Rows kept of every Profile, those with the smallest hash of (seed, data set, row id).
SAMPLE_ROWS = 1_024
#: Longest name of a file made from a name, before endings and hashes.
SLUG_CHARACTERS = 100
#: Version of the Profile file; a reader refuses a newer one.
SCHEMA_VERSION = 1
#: Fields of Provenance that are whole numbers.
COUNTS = ("rows_cut", "rows_empty", "block_rows", "sample_seed", "sample_rows", "schema_version")
#: Packages whose version can move a number.
VERSIONED = ("cls-analysis", "numpy", "torch", "transformers", "tokenizers")


@dataclass(frozen=True)
class EncoderIdentity:
    """One encoder with everything that its vectors depend on."""

    name: str
    weights_hash: str
    tokenizer_hash: str
    architecture: str
    hidden_size: int
    n_layers: int
    source: str
    max_length: int
    attention: str
    final_norm: str
    revision: str | None = None


@dataclass(frozen=True)
class DatasetIdentity:
    """One set of texts: a name to show and the hash of all its rows, selected or not."""

    name: str
    split: str | None
    hash: str
    selection: str = "all"

    @property
    def label(self) -> str:
        """``glue/cola@dev``, with the selection in brackets where it is not the whole."""
        name = f"{self.name}@{self.split}" if self.split else self.name
        return name if self.selection == "all" else f"{name} ({self.selection})"


@dataclass(frozen=True)
class Part:
    """Rows ``first`` to ``last`` (inclusive) of the data set with hash ``dataset``."""

    dataset: str
    first: int
    last: int


@dataclass(frozen=True)
class Provenance:
    """Everything a Profile knows of its origin. Without times, speeds, host or paths: those go to ``run.json``."""

    encoder: EncoderIdentity | None
    layers: tuple[int, ...]
    datasets: tuple[DatasetIdentity, ...]
    parts: tuple[Part, ...]
    dtype: str = "float32"
    rows_cut: int = 0
    rows_empty: int = 0
    block_rows: int = BLOCK_ROWS
    sample_seed: int = 0
    sample_rows: int = SAMPLE_ROWS
    threads: tuple[int, ...] = ()
    devices: tuple[str, ...] = ()
    versions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    schema_version: int = SCHEMA_VERSION

    @property
    def encoder_name(self) -> str:
        """The encoder's name, or ``vectors`` where the vectors came without one."""
        return self.encoder.name if self.encoder else "vectors"

    @property
    def source(self) -> str:
        """Which vector of a row this is: ``cls``, ``pooler``, ``mean``, ``first``, ``last`` or ``vectors``."""
        return self.encoder.source if self.encoder else "vectors"

    @property
    def dataset_name(self) -> str:
        """The labels of all data sets, joined by ``+``."""
        return "+".join(dict.fromkeys(dataset.label for dataset in self.datasets))

    def merge(self, other: Provenance) -> Provenance:
        """The provenance of the rows of both.

        Raises
        ------
        ProfileError
            Naming the first setting in which they differ, or the rows that both hold.
        """
        mine, theirs = self.settings(), other.settings()
        differing = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        if differing:
            name = differing[0]
            raise ProfileError(
                f"these Profiles do not belong together: {name} is {mine.get(name)!r} in one, "
                f"{theirs.get(name)!r} in the other"
            )
        return replace(
            self,
            datasets=_unique(self.datasets + other.datasets),
            parts=join_parts(self.parts + other.parts),
            rows_cut=self.rows_cut + other.rows_cut,
            rows_empty=self.rows_empty + other.rows_empty,
            threads=tuple(sorted({*self.threads, *other.threads})),
            devices=tuple(sorted({*self.devices, *other.devices})),
            versions=_merge_versions(self.versions, other.versions),
        )

    def settings(self) -> dict[str, Any]:
        """What must agree before two Profiles may be merged; weights before names, so that the cause comes first."""
        settings: dict[str, Any] = {"encoder": "known" if self.encoder else "none"}
        if self.encoder:
            identity = asdict(self.encoder)
            # One checkpoint may be known by several names and revisions: its weights decide.
            settings |= {key: identity[key] for key in identity if key not in ("name", "revision")}
        return settings | {
            "layers": list(self.layers),
            "dtype": self.dtype,
            "block size": self.block_rows,
            "sample seed": self.sample_seed,
            "sample size": self.sample_rows,
        }

    def to_json(self) -> str:
        """One line of JSON with sorted keys: the same work gives the same bytes."""
        return canonical_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Provenance:
        """Read what ``to_json`` wrote.

        Raises
        ------
        ProfileError
            If it is not JSON, comes from a newer version, or lacks a field or holds one of another type.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ProfileError(f"the metadata is not JSON ({error})") from None
        if not isinstance(values, dict):
            raise ProfileError("the metadata is not a JSON object")
        version = values.get("schema_version")
        if not isinstance(version, int) or version < 1:
            raise ProfileError(f"the metadata has no valid schema_version (found {version!r})")
        if version > SCHEMA_VERSION:
            raise ProfileError(
                f"written by a newer cls-analysis (schema {version}, this one reads up to {SCHEMA_VERSION}): upgrade"
            )
        try:
            return cls._from_values(values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ProfileError(f"the metadata is incomplete or damaged ({type(error).__name__}: {error})") from None

    @classmethod
    def _from_values(cls, values: dict[str, Any]) -> Provenance:
        expected = {field.name for field in fields(cls)}
        if values.keys() != expected:
            raise ValueError(f"fields {sorted(values.keys() ^ expected)} are missing or unknown")
        for name, kind in (("dtype", str), *((count, int) for count in COUNTS)):
            if type(values[name]) is not kind:
                raise TypeError(f"{name} is {values[name]!r}, expected {kind.__name__}")
        encoder = values.pop("encoder")
        return cls(
            encoder=None if encoder is None else EncoderIdentity(**encoder),
            layers=tuple(int(layer) for layer in values.pop("layers")),
            datasets=tuple(DatasetIdentity(**dataset) for dataset in values.pop("datasets")),
            parts=tuple(Part(str(p["dataset"]), int(p["first"]), int(p["last"])) for p in values.pop("parts")),
            threads=tuple(int(count) for count in values.pop("threads")),
            devices=tuple(str(device) for device in values.pop("devices")),
            versions={str(k): tuple(map(str, v)) for k, v in values.pop("versions").items()},
            **values,
        )


def join_parts(parts: Iterable[Part]) -> tuple[Part, ...]:
    """Sort ``parts`` and join adjacent ones; overlapping ones raise ``ProfileError`` naming the rows held twice."""
    joined: list[Part] = []
    for part in sorted(parts, key=lambda p: (p.dataset, p.first)):
        if joined and joined[-1].dataset == part.dataset:
            last = joined[-1]
            if part.first <= last.last:
                end = min(last.last, part.last)
                raise ProfileError(
                    f"both Profiles hold rows {part.first} to {end} of data set {part.dataset[:12]}: "
                    "counted twice they would look like structure"
                )
            if part.first == last.last + 1:
                joined[-1] = replace(last, last=part.last)
                continue
        joined.append(part)
    return tuple(joined)


def parts_of(dataset: str, row_ids: NDArray[np.int64]) -> tuple[Part, ...]:
    """The ranges of consecutive ids in ``row_ids``, which must ascend."""
    if len(row_ids) == 0:
        return ()
    breaks = np.flatnonzero(np.diff(row_ids) != 1) + 1
    return tuple(Part(dataset, int(run[0]), int(run[-1])) for run in np.split(row_ids, breaks))


# -- hashes and keys -------------------------------------------------------------------------------------------------


def hash_texts(text: Sequence[str], pair: Sequence[str] | None) -> str:
    """Hash of all rows of a data set in order, 32 hex digits. Labels do not count: no vector depends on them."""
    digest = hashlib.blake2b(b"pairs" if pair is not None else b"texts", digest_size=16)
    for column in (text, pair or ()):
        for value in column:
            data = value.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
    return digest.hexdigest()


def hash_arrays(arrays: Iterable[tuple[str, NDArray[Any]]]) -> str:
    """Hash of named arrays (name, dtype, shape and bytes), 32 hex digits, whatever their order."""
    digest = hashlib.blake2b(digest_size=16)
    for name, array in sorted(arrays, key=lambda item: item[0]):
        digest.update(array_header(name, array.dtype, array.shape))
        digest.update(np.ascontiguousarray(array).data.cast("B") if array.size else b"")
    return digest.hexdigest()


def array_header(name: str, dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """What ``hash_arrays`` puts before the bytes of an array."""
    return f"{name}|{dtype.str}|{shape}|".encode()


def hash_text(text: str) -> str:
    """Hash of one string, 32 hex digits."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def row_keys(seed: int, dataset: str, row_ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """A pseudo-random 64-bit number for each row of a data set, the same wherever and whenever it is asked for.

    The rows with the smallest numbers are a uniform sample that does not depend on order or sharding. SplitMix64
    (Steele, Lea and Flood 2014) of the id, started from a hash of the seed and the data set.
    """
    start = int.from_bytes(hashlib.blake2b(f"{seed}|{dataset}".encode(), digest_size=8).digest(), "little")
    # In 64-bit arithmetic overflow is what makes it a hash; arrays wrap silently, scalars would warn.
    z = np.asarray(row_ids).astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.full(1, start, dtype=np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def canonical_json(value: Any) -> str:
    """JSON on one line, keys sorted, ASCII, without NaN."""
    return json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


@functools.cache
def versions() -> dict[str, tuple[str, ...]]:
    """Versions of the packages that can move a number, as the set of values seen so far (one each)."""
    found: dict[str, tuple[str, ...]] = {}
    for package in VERSIONED:
        try:
            found[package] = (importlib.metadata.version(package),)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def slug(name: str) -> str:
    """``name`` reduced to ``[a-z0-9.-]`` for a file name: ``glue/cola`` becomes ``glue-cola``.

    Names that lose letters or are cut get six characters of their hash, so that different ones stay different.
    """
    reduced = re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-.") or "unnamed"
    if name.isascii() and len(reduced) <= SLUG_CHARACTERS:
        return reduced
    return f"{reduced[:SLUG_CHARACTERS].strip('-.')}-{hash_text(name)[:6]}"


def _unique(datasets: Sequence[DatasetIdentity]) -> tuple[DatasetIdentity, ...]:
    return tuple(sorted(set(datasets), key=lambda d: (d.hash, d.name, d.split or "", d.selection)))


def _merge_versions(a: Mapping[str, tuple[str, ...]], b: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {package: tuple(sorted({*a.get(package, ()), *b.get(package, ())})) for package in sorted({*a, *b})}
