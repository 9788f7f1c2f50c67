"""From texts to token ids: truncation that is counted, segment ids where the model has them, right padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from cls_analysis.errors import DataError, list_rows

#: A batch: ``input_ids``, ``attention_mask`` and, where the model has them, ``token_type_ids``.
Batch = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Tokenized:
    """Rows as token ids.

    Attributes
    ----------
    ids, segments : list of lists of int
        Token ids and segment ids of each row, without padding.
    lengths : int64 array
        Tokens of each row after truncation.
    cut, cut_pair : bool arrays
        Whether the first, the second text of the row lost tokens.
    """

    ids: list[list[int]]
    segments: list[list[int]] | None
    lengths: NDArray[np.int64]
    cut: NDArray[np.bool_]
    cut_pair: NDArray[np.bool_]

    @property
    def n_cut(self) -> int:
        """Rows that lost tokens."""
        return int((self.cut | self.cut_pair).sum())


def tokenize(
    tokenizer: Any,
    text: Sequence[str],
    pair: Sequence[str] | None,
    *,
    max_length: int,
    segments: bool,
    row_ids: Sequence[int] | NDArray[np.int64],
) -> Tokenized:
    """Tokenise rows, truncating the longer text of a pair first.

    Raises
    ------
    DataError
        If a row has no tokens at all, or loses one of its texts whole; named by ``row_ids``.
    """
    encoded = _encode(tokenizer, text, pair, segments)
    ids = [list(row) for row in encoded["input_ids"]]
    segment_ids = [list(row) for row in encoded["token_type_ids"]] if segments else None
    cut, cut_pair = np.zeros(len(ids), dtype=bool), np.zeros(len(ids), dtype=bool)
    long = [i for i, row in enumerate(ids) if len(row) > max_length]
    if long:
        # Only rows over the limit are encoded again, so that what each side lost is known exactly.
        short = _encode(
            tokenizer, [text[i] for i in long], None if pair is None else [pair[i] for i in long], segments, max_length
        )
        for k, i in enumerate(long):
            before, after = _side_lengths(encoded, i), _side_lengths(short, k)
            cut[i], cut_pair[i] = after[0] < before[0], after[1] < before[1]
            # Where the marks alone fill the limit, a tokenizer leaves the row as long as it was.
            whole = len(short["input_ids"][k]) > max_length
            if whole or (before[0] and not after[0]) or (before[1] and not after[1]):
                raise DataError(f"row {int(row_ids[i])}: max length {max_length} leaves nothing of one of its texts")
            ids[i] = list(short["input_ids"][k])
            if segment_ids is not None:
                segment_ids[i] = list(short["token_type_ids"][k])
    lengths = np.array([len(row) for row in ids], dtype=np.int64)
    if (lengths == 0).any():
        empty = [int(row_ids[i]) for i in np.flatnonzero(lengths == 0).tolist()]
        raise DataError(f"{list_rows(empty)}: no tokens; this tokenizer makes none of an empty text")
    return Tokenized(ids, segment_ids, lengths, cut, cut_pair)


def _encode(
    tokenizer: Any, text: Sequence[str], pair: Sequence[str] | None, segments: bool, max_length: int | None = None
) -> Any:
    return tokenizer(
        list(text),
        None if pair is None else list(pair),
        truncation="longest_first" if max_length else False,
        max_length=max_length,
        padding=False,
        return_attention_mask=False,
        return_token_type_ids=segments,
        verbose=False,
    )


def _side_lengths(encoded: Any, row: int) -> tuple[int, int]:
    """Tokens of the first and of the second text in a row; a slow tokenizer only knows their sum."""
    if not encoded.is_fast:
        return len(encoded["input_ids"][row]), 0
    sides = encoded.sequence_ids(row)
    return sides.count(0), sides.count(1)


def collate(tokenized: Tokenized, rows: Sequence[int] | NDArray[np.int64], pad_id: int, pad_segment: int) -> Batch:
    """Pad ``rows`` on the right to the longest of them; right, because absolute positions count from the left."""
    width = int(tokenized.lengths[rows].max())
    shape = (len(rows), width)
    ids = np.full(shape, pad_id, dtype=np.int64)
    mask = np.zeros(shape, dtype=np.int64)
    segments = None if tokenized.segments is None else np.full(shape, pad_segment, dtype=np.int64)
    for k, row in enumerate(rows):
        length = tokenized.lengths[row]
        ids[k, :length] = tokenized.ids[row]
        mask[k, :length] = 1
        if segments is not None and tokenized.segments is not None:
            segments[k, :length] = tokenized.segments[row]
    batch = {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}
    return batch if segments is None else batch | {"token_type_ids": torch.from_numpy(segments)}


def check_batch(batch: Mapping[str, Any], pad_id: int | None) -> Batch:
    """A batch as tensors, its mask checked, its padding on the right.

    Raises
    ------
    DataError
        If ``input_ids`` hold padding and no mask says so, or a row has no attended token.
    """
    if "input_ids" not in batch:
        raise DataError(f"a batch needs input_ids, found {sorted(batch)}")
    tensors = {name: torch.as_tensor(value) for name, value in batch.items()}
    ids = tensors["input_ids"]
    if ids.ndim != 2:
        raise DataError(f"input_ids must have shape (rows, tokens), got {tuple(ids.shape)}")
    if "attention_mask" not in tensors:
        padded = (ids == pad_id).any(dim=1).nonzero().flatten().tolist() if pad_id is not None else []
        if padded:
            raise DataError(f"{list_rows(padded)}: input_ids hold the padding id but there is no attention_mask")
        tensors["attention_mask"] = torch.ones_like(ids)
    unattended = (tensors["attention_mask"].sum(dim=1) == 0).nonzero().flatten().tolist()
    if unattended:
        raise DataError(f"{list_rows(unattended)}: no token attended (the attention mask is all 0)")
    # Absolute positions count from the left: padding there would shift them.
    leading = (tensors["attention_mask"] != 0).int().argmax(dim=1, keepdim=True)
    if bool(leading.any()):
        order = (torch.arange(ids.shape[1], device=ids.device) + leading) % ids.shape[1]
        tensors = {name: t.gather(1, order) if t.shape == ids.shape else t for name, t in tensors.items()}
    return tensors


def check_segments(batch: Batch, sep_id: int | None, relative: bool) -> None:
    """Raise unless a batch of pairs says which token belongs to which text.

    Raises
    ------
    DataError
        If there are no segment ids and a row holds a pair, or the model's segments are relative.
    """
    if "token_type_ids" in batch:
        return
    pairs = (batch["input_ids"].eq(-1 if sep_id is None else sep_id).sum(dim=1) > 1) | relative
    if rows := pairs.nonzero().flatten().tolist():
        raise DataError(
            f"{list_rows(rows)}: the batch has no token_type_ids, and this model tells texts apart by them; "
            "call the tokenizer with return_token_type_ids=True"
        )


def check_range(ids: Sequence[Any], row_ids: Sequence[int], positions: int | None, vocabulary: int) -> None:
    """Raise unless the network has a position and a vector for each token.

    Raises
    ------
    DataError
        Naming the rows that are too long or hold an unknown id.
    """
    if positions and (long := [row for row, tokens in zip(row_ids, ids, strict=True) if len(tokens) > positions]):
        raise DataError(f"{list_rows(long)}: more tokens than the model's {positions} positions")
    unknown = [row for row, tokens in zip(row_ids, ids, strict=True) if len(tokens) and max(tokens) >= vocabulary]
    if unknown:
        raise DataError(f"{list_rows(unknown)}: a token beyond the model's {vocabulary} vectors; another tokenizer's?")


def positions_of(token_id: int, token: str, batch: Batch) -> torch.Tensor:
    """Index of the one attended ``token_id`` of each row, shape (rows,).

    Raises
    ------
    DataError
        If a row has none, or several.
    """
    found = (batch["input_ids"] == token_id) & (batch["attention_mask"] != 0)
    counts = found.sum(dim=1)
    wrong = (counts != 1).nonzero().flatten().tolist()
    if wrong:
        count = int(counts[wrong[0]])
        reason = "does the text itself contain it?" if count else "was the batch made without special tokens?"
        raise DataError(f"{list_rows(wrong)}: {count} {token} tokens where one was expected; {reason}")
    return found.int().argmax(dim=1)
