"""From texts to vectors and Profiles, block by block.

A block of 4,096 consecutive rows is tokenised, sorted by length, cut into batches by a budget of tokens, encoded, and
put back in order. Nothing outside a block influences its numbers, so one process, shards and workers agree.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cls_analysis.encoder import Encoder
from cls_analysis.encoder.tokens import Tokenized
from cls_analysis.errors import DataError, OptionError
from cls_analysis.moments import Moments
from cls_analysis.profiles import Profile, ProfileBuilder, RowSums
from cls_analysis.provenance import BLOCK_ROWS, Provenance, versions
from cls_analysis.texts import Texts, load_texts

#: Tokens of a batch, padding included. On a CPU more does not pay: it only adds padding.
BATCH_TOKENS = {"cpu": 1_024, "cuda": 65_536}

#: Called after each batch with the rows and tokens done since the last call.
ProgressCallback = Callable[[int, int], None]


@dataclass
class ExtractionReport:
    """What an extraction did and what it cost; ``rows_stored`` were there already, from an earlier run."""

    rows: int = 0
    rows_stored: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    rows_cut: int = 0
    rows_cut_first: int = 0
    rows_cut_second: int = 0
    seconds: float = 0.0
    peak_mebibytes: float = 0.0

    @property
    def padding_share(self) -> float:
        """Share of the computed tokens that were padding, 0 to 1."""
        return 1.0 - self.tokens / self.padded_tokens if self.padded_tokens else 0.0

    def __str__(self) -> str:
        rate = self.rows / self.seconds if self.seconds else 0.0
        speed = self.tokens / self.seconds if self.seconds else 0.0
        cut = f"{self.rows_cut} rows cut"
        if self.rows_cut_second:
            cut += f" ({self.rows_cut_first} in the first text, {self.rows_cut_second} in the second)"
        stored = f", {self.rows_stored:,} more were stored" if self.rows_stored else ""
        return (
            f"{self.rows:,} rows in {self.seconds:.1f} s: {rate:,.0f} rows/s, {speed:,.0f} tokens/s, "
            f"{self.padding_share:.1%} padding, {cut}, peak {self.peak_mebibytes:,.0f} MiB{stored}"
        )


@dataclass(frozen=True)
class Block:
    """Vectors of consecutive rows: layer number -> float32 tensor (rows, d) on the encoder's device, in row order."""

    number: int
    row_ids: NDArray[np.int64]
    vectors: dict[int, torch.Tensor]
    rows_cut: int

    @classmethod
    def of_arrays(
        cls, number: int, row_ids: NDArray[np.int64], vectors: Mapping[int, NDArray[np.float32]], rows_cut: int
    ) -> Block:
        """Make a block of vectors that were stored."""
        return cls(number, row_ids, {layer: torch.from_numpy(rows) for layer, rows in vectors.items()}, rows_cut)

    def arrays(self) -> dict[int, NDArray[np.float32]]:
        """Copy the vectors to the CPU."""
        return {layer: rows.cpu().numpy() for layer, rows in self.vectors.items()}


class Extraction:
    """One pass of texts through an encoder; iterate over it for its blocks.

    Parameters
    ----------
    encoder : Encoder
    texts : Texts
    layers : "all", int or list of int
        Which layers to keep, all computed in one pass.
    batch_tokens : int, optional
        Tokens of a batch, padding included.
    shard : (i, n), default (0, 1)
        Do the i-th of n contiguous runs of blocks.
    progress : callable (rows, tokens), optional
        Called after each batch.
    """

    def __init__(
        self,
        encoder: Encoder,
        texts: Texts,
        layers: str | int | Iterable[int] = "all",
        *,
        batch_tokens: int | None = None,
        shard: tuple[int, int] = (0, 1),
        progress: ProgressCallback | None = None,
    ) -> None:
        self.encoder = encoder
        self.texts = texts
        self.layers = encoder.resolve_layers(layers)
        default = BATCH_TOKENS.get(encoder.device.type, BATCH_TOKENS["cpu"])
        self.batch_tokens = default if batch_tokens is None else batch_tokens
        if self.batch_tokens < 1:
            raise OptionError(f"batch tokens must be at least 1, got {batch_tokens}")
        self.blocks = shard_blocks(len(texts), shard)
        self.report = ExtractionReport()
        self.progress = progress
        self._checked = False

    @property
    def n_rows(self) -> int:
        """Rows this shard will do."""
        return sum(len(self.positions(block)) for block in self.blocks)

    def positions(self, block: int) -> NDArray[np.int64]:
        """Positions in ``texts`` of the rows of a block."""
        return np.arange(block * BLOCK_ROWS, min((block + 1) * BLOCK_ROWS, len(self.texts)), dtype=np.int64)

    def __iter__(self) -> Iterator[Block]:
        for number in self.blocks:
            yield self.block(number)

    def block(self, number: int) -> Block:
        """Encode one block.

        Raises
        ------
        DataError
            If a row cannot be encoded or its vector is not finite; the message has its row number.
        """
        start = time.perf_counter()
        rows = self.texts.take(self.positions(number))
        tokenized = self.encoder.tokenize(rows.text, rows.pair, rows.row_id.tolist())
        _check_marks(self.encoder, tokenized, rows.row_id)
        if not self._checked:
            self.encoder.self_check(tokenized)
            self._checked = True
        shape = (len(rows), self.encoder.hidden_size)
        vectors = {layer: torch.empty(shape, dtype=torch.float32, device=self.encoder.device) for layer in self.layers}
        with self.encoder.evaluating():
            for batch in plan_batches(tokenized.lengths, self.batch_tokens):
                self._encode(tokenized, batch, vectors)
        _check_finite(vectors, rows.row_id)
        self._count(tokenized, time.perf_counter() - start)
        return Block(number, rows.row_id, vectors, tokenized.n_cut)

    def _encode(self, tokenized: Tokenized, rows: NDArray[np.int64], vectors: dict[int, torch.Tensor]) -> None:
        encoded = None
        try:
            encoded = self.encoder.vectors(self.encoder.collate(tokenized, rows), self.layers)
        except torch.OutOfMemoryError:
            if len(rows) == 1:
                raise
        # Outside the handler, whose traceback would keep the failed pass's tensors.
        if encoded is None:
            torch.cuda.empty_cache()
            for half in np.array_split(rows, 2):
                self._encode(tokenized, half, vectors)
            return
        where = torch.from_numpy(rows).to(self.encoder.device)
        for layer, rows_of_layer in encoded.items():
            vectors[layer][where] = rows_of_layer
        lengths = tokenized.lengths[rows]
        self.report.padded_tokens += int(lengths.max()) * len(rows)
        if self.progress:
            self.progress(len(rows), int(lengths.sum()))

    def _count(self, tokenized: Tokenized, seconds: float) -> None:
        report = self.report
        report.rows += len(tokenized.lengths)
        report.tokens += int(tokenized.lengths.sum())
        report.rows_cut += tokenized.n_cut
        report.rows_cut_first += int(tokenized.cut.sum())
        report.rows_cut_second += int(tokenized.cut_pair.sum())
        report.seconds += seconds
        report.peak_mebibytes = peak_memory()

    def provenance(self) -> Provenance:
        """Origin of the vectors, as a Profile records it; parts and counts are added while they are made."""
        return Provenance(
            encoder=self.encoder.identity(),
            layers=self.layers,
            datasets=(self.texts.identity,),
            parts=(),
            dtype=self.encoder.dtype,
            rows_empty=sum(self.texts.take(self.positions(block)).n_empty for block in self.blocks),
            threads=(torch.get_num_threads(),),
            devices=(self.encoder.device.type,),
            versions=versions(),
        )


def compute_profile(
    encoder: Encoder,
    texts: Any,
    layers: str | int | Iterable[int] = "all",
    *,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> Profile:
    """The Profile of an encoder on texts; memory does not grow with the number of rows.

    Parameters
    ----------
    encoder : Encoder
    texts : Texts, or whatever ``load_texts`` takes
    layers : "all", int or list of int, default "all"

    Raises
    ------
    DataError
        If a row cannot be encoded or its vector is not finite.
    """
    extraction = Extraction(encoder, _as_texts(texts), layers, batch_tokens=batch_tokens, progress=progress)
    return profile_blocks(extraction, extraction)


def profile_blocks(extraction: Extraction, blocks: Iterable[Block]) -> Profile:
    """The Profile of ``blocks`` of an extraction, wherever they come from (computed now, or stored)."""
    builder = ProfileBuilder(extraction.provenance())
    rows_cut = 0
    for block in blocks:
        sums = {layer: reduce_rows(vectors) for layer, vectors in block.vectors.items()}
        builder.add(sums, block.row_ids, _taker(block))
        rows_cut += block.rows_cut
    return builder.finish(rows_cut=rows_cut)


def _taker(block: Block) -> Callable[[int, NDArray[np.int64]], NDArray[np.float32]]:
    def take(layer: int, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        vectors = block.vectors[layer]
        return np.asarray(vectors[torch.from_numpy(positions).to(vectors.device)].cpu().numpy())

    return take


def extract_vectors(
    encoder: Encoder,
    texts: Any,
    layers: str | int | Iterable[int] = (-1,),
    *,
    batch_tokens: int | None = None,
    progress: ProgressCallback | None = None,
) -> dict[int, NDArray[np.float32]]:
    """The vectors themselves.

    Returns
    -------
    dict of resolved layer number -> float32 array (n, d)
        Row i is text i; each array owns its data.
    """
    texts = _as_texts(texts)
    extraction = Extraction(encoder, texts, layers, batch_tokens=batch_tokens, progress=progress)
    shape = (len(texts), encoder.hidden_size)
    result = {layer: np.empty(shape, dtype=np.float32) for layer in extraction.layers}
    done = 0
    for block in extraction:
        for layer, rows in block.arrays().items():
            result[layer][done : done + len(rows)] = rows
        done += len(block.row_ids)
    if done != len(texts):
        raise DataError(f"{done} vectors for {len(texts)} texts")
    return result


# -- pieces ----------------------------------------------------------------------------------------------------------


def plan_batches(lengths: NDArray[np.int64], budget: int) -> list[NDArray[np.int64]]:
    """Positions of rows, longest first, cut into batches of at most ``budget`` tokens with their padding.

    A single row longer than the budget is a batch of its own. Longest first, so that memory runs out at once or never.
    """
    order = np.argsort(-lengths, kind="stable")
    batches = []
    start = 0
    while start < len(order):
        size = max(1, budget // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + size])
        start += size
    return batches


def shard_blocks(n_rows: int, shard: tuple[int, int]) -> range:
    """The blocks of shard ``i`` of ``n``: contiguous, so that its rows are one range.

    Raises
    ------
    OptionError
        If there is no such shard, or it has no rows.
    """
    index, count = shard
    if count < 1 or not 0 <= index < count:
        raise OptionError(f"shard {index}/{count}: the first number counts from 0 to one less than the second")
    blocks = -(-n_rows // BLOCK_ROWS)
    # Rounded up, so that with fewer blocks than shards the first shards have them.
    chosen = range(-(-index * blocks // count), -(-(index + 1) * blocks // count))
    if not chosen:
        raise OptionError(
            f"shard {index}/{count} has no rows: {n_rows} rows are {blocks} block{'s' if blocks > 1 else ''} of "
            f"{BLOCK_ROWS}; use at most {blocks} shard{'s' if blocks > 1 else ''}"
        )
    return chosen


def reduce_rows(x: torch.Tensor) -> RowSums:
    """The sums of rows where they lie: NumPy on the CPU, float64 on a GPU, on the CPU where the device has none."""
    if x.device.type == "cuda":
        return _reduce_on_device(x)
    return RowSums.of(x.cpu().numpy())


def _reduce_on_device(x: torch.Tensor) -> RowSums:
    """``RowSums.of`` in torch; hands over d- and d×d-sized sums."""
    rows = x.double()
    origin = rows[0]
    deviations = rows - origin
    shift = deviations.mean(dim=0)
    deviations -= shift
    squares = deviations * deviations
    mean = origin + shift
    products = deviations.T @ deviations
    arrays = {
        "n": torch.tensor([len(rows)]),
        "mean": mean,
        "mean_low": (origin - mean) + shift,
        "m2": squares.sum(dim=0),
        "m3": (squares * deviations).sum(dim=0),
        "m4": (squares * squares).sum(dim=0),
        "minimum": rows.amin(dim=0),
        "maximum": rows.amax(dim=0),
        "products": (products + products.T) / 2,
    }
    moments = Moments.from_arrays({name: tensor.cpu().numpy() for name, tensor in arrays.items()})
    largest = rows.abs().amax(dim=1, keepdim=True)
    zero = largest[:, 0] == 0
    unit = rows[~zero] / largest[~zero]
    unit = unit / unit.norm(dim=1, keepdim=True)
    return RowSums(
        moments, unit.sum(dim=0).cpu().numpy(), (unit * unit).sum(dim=0).cpu().numpy(), int(zero.sum().item())
    )


def peak_memory() -> float:
    """Most memory this process has used so far, in MiB; NaN where the system does not say (Windows)."""
    try:
        import resource  # noqa: PLC0415
    except ImportError:
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return float(peak) / (1024 * 1024 if sys.platform == "darwin" else 1024)


def _as_texts(texts: Any) -> Texts:
    return texts if isinstance(texts, Texts) else load_texts(texts)


def _check_marks(encoder: Encoder, tokenized: Tokenized, row_ids: NDArray[np.int64]) -> None:
    """Every row must hold exactly one [CLS]: a text that spells the token out would make two."""
    if encoder.source not in ("cls", "pooler"):
        return
    mark = encoder.tokenizer.cls_token_id
    for ids, row in zip(tokenized.ids, row_ids, strict=True):
        if (count := ids.count(mark)) != 1:
            token = encoder.tokenizer.cls_token
            raise DataError(f"row {int(row)}: {count} {token} tokens where one was expected; does the text contain it?")


def _check_finite(vectors: dict[int, torch.Tensor], row_ids: NDArray[np.int64]) -> None:
    for layer, rows in vectors.items():
        finite = torch.isfinite(rows).all(dim=1)
        if not bool(finite.all()):
            row = int(row_ids[int((~finite).nonzero()[0])])
            raise DataError(
                f"row {row} non-finite: its vector at layer {layer} holds NaN or infinity; "
                "in float16 values beyond 65,504 overflow, use float32 or bfloat16"
            )
