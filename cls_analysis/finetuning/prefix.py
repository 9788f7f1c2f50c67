"""The first blocks of an encoder, frozen: what they give is computed once, and training starts behind them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from cls_analysis.encoder import Encoder
from cls_analysis.encoder.tokens import Batch, Tokenized
from cls_analysis.extraction.blocks import BATCH_TOKENS, plan_batches
from cls_analysis.files import whole_file

#: Name of the states in a batch.
STATES = "prefix_states"


@dataclass(frozen=True)
class Prefix:
    """Hidden states behind a block, for every token of every row.

    Attributes
    ----------
    states : float32 array (tokens, d)
        Row after row, without padding; on disk.
    starts : int64 array (n + 1,)
        Where each row begins.
    """

    states: NDArray[np.float32]
    starts: NDArray[np.int64]

    @classmethod
    def of(cls, encoder: Encoder, tokens: Tokenized, k: int, path: Path) -> Prefix:
        """States behind block ``k`` of the frozen encoder, in evaluation mode; read from ``path`` if they are there."""
        starts = np.concatenate([[0], np.cumsum(tokens.lengths)])
        if not path.is_file():
            with whole_file(path) as temporary:
                shape = (int(starts[-1]), encoder.hidden_size)
                states = np.lib.format.open_memmap(temporary, mode="w+", dtype=np.float32, shape=shape)
                for rows, state in _states(encoder, tokens, k):
                    for row, of_row in zip(rows.tolist(), state, strict=True):
                        states[starts[row] : starts[row + 1]] = of_row[: tokens.lengths[row]].cpu().numpy()
                states.flush()
        return cls(np.load(path, mmap_mode="r"), starts)

    def batch(self, rows: Sequence[int] | NDArray[np.int64], width: int) -> Batch:
        """States of some rows, shape (rows, width, d), 0 where there is padding."""
        padded = np.zeros((len(rows), width, self.states.shape[1]), dtype=np.float32)
        for place, row in enumerate(rows):
            of_row = self.states[self.starts[row] : self.starts[row + 1]]
            padded[place, : len(of_row)] = of_row
        return {STATES: torch.from_numpy(padded)}


def _states(encoder: Encoder, tokens: Tokenized, k: int) -> Any:
    with encoder.evaluating():
        for rows in plan_batches(tokens.lengths, BATCH_TOKENS.get(encoder.device.type, BATCH_TOKENS["cpu"])):
            yield rows, encoder.states(encoder.collate(tokens, rows), (k,))[k].float()


class Injection:
    """Lets blocks 1 to k of a model pass on what a batch brings along as ``STATES``, instead of computing it.

    The blocks stay where they are, with their weights; ``remove`` gives them their work back.
    """

    def __init__(self, model: Any, blocks: Sequence[Any], form: BlockForm) -> None:
        self.form, self.blocks = form, list(blocks)
        self.states: Tensor | None = None
        self.hook = model.register_forward_pre_hook(self._take, with_kwargs=True)
        for block in self.blocks:
            block.forward = self._skip
        self.blocks[-1].forward = self._inject

    def remove(self) -> None:
        """Let the blocks compute again."""
        self.hook.remove()
        for block in self.blocks:
            del block.forward

    def _take(self, model: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        self.states = kwargs.pop(STATES)
        return args, kwargs

    def _skip(self, *args: Any, **kwargs: Any) -> Any:
        return self.form.output(_hidden(args, kwargs))

    def _inject(self, *args: Any, **kwargs: Any) -> Any:
        assert self.states is not None
        return self.form.output(self.form.fit(self.states, _hidden(args, kwargs)))


@dataclass(frozen=True)
class BlockForm:
    """What the blocks of an architecture take and give.

    Attributes
    ----------
    outputs : int
        0 for a tensor alone, else the length of the tuple that it is the first of.
    tokens_first : bool
        Whether states are (tokens, rows, d), as XLNet's.
    """

    outputs: int
    tokens_first: bool

    @classmethod
    def of(cls, encoder: Encoder, block: Any) -> BlockForm:
        """Seen in one short pass."""
        seen: list[BlockForm] = []

        def look(module: Any, args: Any, kwargs: dict[str, Any], output: Any) -> None:
            count = len(output) if isinstance(output, tuple) else 0
            seen.append(cls(count, _hidden(args, kwargs).shape[0] != 1))

        hook = block.register_forward_hook(look, with_kwargs=True)
        try:
            with encoder.evaluating():
                encoder.states(encoder.collate(encoder.tokenize(["a"]), [0]), (encoder.n_layers,))
        finally:
            hook.remove()
        return seen[0]

    def output(self, states: Tensor) -> Any:
        """``states`` as a block gives them."""
        return (states, *[None] * (self.outputs - 1)) if self.outputs else states

    def fit(self, states: Tensor, like: Tensor) -> Tensor:
        """``states`` (rows, tokens, d) as a block would have them: Longformer adds padding of its own."""
        states = states.to(like.dtype)
        if self.tokens_first:
            return states.transpose(0, 1).contiguous()
        missing = like.shape[1] - states.shape[1]
        return torch.nn.functional.pad(states, (0, 0, 0, missing)) if missing else states


def _hidden(args: Any, kwargs: dict[str, Any]) -> Tensor:
    states: Tensor = args[0] if args else kwargs["hidden_states"]
    return states
