"""Where a classifier reads the vector of a text: found by watching one dummy batch, not by a table of model names."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from cls_analysis.encoder.loading import quiet_transformers
from cls_analysis.errors import OptionError, one_line
from cls_analysis.normalization.norms import UNSEEN

#: ``cls``: the raw vector, before any dropout in front of the head's first linear layer; ``pooled``: what the next
#: linear layer reads, after the head's activation.
POSITIONS = ("cls", "pooled")
#: Rows and tokens of the dummy batch; no other size of a network is likely to be 3.
ROWS, TOKENS = 3, 8


@dataclass(frozen=True)
class Site:
    """A linear layer of the head, by its name in the model, and the Dropout whose output it reads, if one does."""

    position: str
    linear: str
    dropout: str | None


@dataclass(frozen=True)
class _Call:
    """A linear layer was called with ``x``, a copy of its input."""

    name: str
    module: nn.Linear
    x: Tensor
    dropout: str | None


def find_sites(model: Any) -> dict[str, Site]:
    """The linear layers of a classifier's head, by position.

    In evaluation mode a dummy batch is passed through the model. The layers whose 2-D input changes the logits when it
    is perturbed form the head; ``cls`` is the one whose input is one token's row of the last hidden state, ``pooled``
    the next one, if there is one.

    Raises
    ------
    OptionError
        If no linear layer reads the vector of one token, or the model is no sequence classifier.
    """
    name = type(model).__name__
    if not hasattr(model, "config") or not hasattr(model, "base_model"):
        raise OptionError(f"{name}: expected a sequence classifier of transformers")
    with _watching(model) as run:
        try:
            calls, states, logits = _trace(model, run)
        except (AttributeError, TypeError, ValueError, RuntimeError) as error:
            raise OptionError(
                f"{name}: expected a sequence classifier of transformers; a batch of {ROWS} rows of {TOKENS} tokens "
                f"did not give logits ({one_line(error, 160)})"
            ) from error
        head = [call for call in calls if _reaches(call, run, logits)]
    first = next((i for i, call in enumerate(head) if _is_token(call.x, states)), None)
    if first is None:
        raise OptionError(
            f"{name}: none of its linear layers reads the last hidden state of one token, as [CLS] is "
            "read (does it average over tokens, or classify each?); a norm has no place there"
        )
    return {
        position: Site(position, call.name, call.dropout)
        for position, call in zip(POSITIONS, head[first:], strict=False)
    }


def dummy_logits(model: Any) -> Tensor:
    """Logits of the dummy batch in evaluation mode: two models that agree on them are taken for the same."""
    with _watching(model) as run:
        logits: Tensor = run().logits
        return logits.clone()


@contextmanager
def _watching(model: Any) -> Iterator[Callable[[], Any]]:
    """Gives a function that passes the dummy batch; modes, random state and attention are put back afterwards."""
    device = next(model.parameters()).device
    attention = getattr(model.base_model, "attention_type", None)
    ids = _dummy_ids(model).to(device)
    devices = [device] if device.type == "cuda" else []
    with (
        evaluating(model),
        torch.no_grad(),
        quiet_transformers(),
        torch.random.fork_rng(devices),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message=f".*{UNSEEN}")  # the dummy batch is no evaluation
        try:
            yield lambda: model(input_ids=ids)
        finally:
            if attention is not None and model.base_model.attention_type != attention:
                # BigBird switches to full attention for short batches and never back; its modules are new ones then.
                model.base_model.set_attention_type(attention)


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Evaluation mode; the mode of every module is put back afterwards."""
    modes = {name: module.training for name, module in model.named_modules()}
    model.eval()
    try:
        yield
    finally:
        for name, module in model.named_modules():
            module.training = modes.get(name, model.training)


def _dummy_ids(model: Any) -> Tensor:
    """Token ids without padding, shape (rows, tokens)."""
    size = model.get_input_embeddings().num_embeddings
    known = [i for i in range(min(size, 1_000)) if i != model.config.pad_token_id]
    # The same token at the first place of each row, as [CLS] is, and others behind it.
    ids = torch.tensor(
        [[known[(7 * row + 11 * token + 3) % len(known)] for token in range(TOKENS)] for row in range(ROWS)]
    )
    ids[:, 0] = getattr(model, "cls_token_id", None) or known[0]
    return ids


def _trace(model: Any, run: Callable[[], Any]) -> tuple[list[_Call], Tensor, Tensor]:
    """Calls of linear layers with one row for each text, the last hidden state (rows, tokens, d), and the logits."""
    calls: list[_Call] = []
    states: list[Tensor] = []
    dropped: dict[int, tuple[str, Tensor]] = {}

    def on_dropout(name: str) -> Callable[..., Tensor]:
        def copy(module: nn.Module, args: Any, output: Tensor) -> Tensor:
            # In evaluation a dropout gives its input on: a copy tells its output from it.
            copied = output.clone()
            dropped[copied.data_ptr()] = (name, copied)
            return copied

        return copy

    def on_linear(name: str) -> Callable[..., None]:
        def note(module: nn.Linear, args: tuple[Tensor, ...]) -> None:
            x = args[0]
            if x.ndim == 2 and len(x) == ROWS:
                from_dropout, source = dropped.get(x.data_ptr(), (None, None))
                same = source is not None and source.shape == x.shape
                calls.append(_Call(name, module, x.clone(), from_dropout if same else None))

        return note

    hooks = [model.base_model.register_forward_hook(lambda module, args, output: states.append(output[0].clone()))]
    for name, module in model.named_modules():
        if isinstance(module, nn.Dropout):
            hooks.append(module.register_forward_hook(on_dropout(name)))
        elif isinstance(module, nn.Linear):
            # Before the hook of a norm that is attached already: what the layer is given counts.
            hooks.append(module.register_forward_pre_hook(on_linear(name), prepend=True))
    try:
        logits = run().logits.clone()
    finally:
        for hook in hooks:
            hook.remove()
    return calls, states[-1], logits


def _reaches(call: _Call, run: Callable[[], Any], logits: Tensor) -> bool:
    """Whether the logits change when the layer reads something else."""
    noise = torch.linspace(0.5, 1.5, call.x.shape[1], device=call.x.device, dtype=call.x.dtype)
    hook = call.module.register_forward_pre_hook(lambda module, args: (args[0] + noise,))
    try:
        return not torch.equal(run().logits, logits)
    finally:
        hook.remove()


def _is_token(x: Tensor, states: Tensor) -> bool:
    """Whether ``x`` holds the same token's row of each text."""
    if states.ndim != 3 or states.shape[0] != len(x) or states.shape[2] != x.shape[1]:
        return False
    return any(torch.equal(x, states[:, token]) for token in range(states.shape[1]))
