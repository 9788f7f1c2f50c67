"""Layers of an encoder that are trained, that are still, and that are cut off."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from cls_analysis.encoder.limits import final_norm
from cls_analysis.errors import OptionError
from cls_analysis.finetuning.settings import Layers


def choose_trained(model: Any, train: str, frozen: int | None = None) -> None:
    """Leave gradients on for what is trained alone.

    Parameters
    ----------
    model : classifier
    train : str
        ``all``, ``head``, or ``top-K``, the last K blocks and the head. A pooler belongs to the head: it lies behind
        the norm.
    frozen : int, optional
        Freeze the embeddings and blocks 1 to ``frozen`` instead, with whatever else serves them.

    Raises
    ------
    OptionError
        If the model has no such blocks of its own to choose from.
    """
    base = model.base_model
    if frozen is not None:
        check_frozen(base, frozen)
        _leave(base, int(base.config.num_hidden_layers) - frozen, f"--freeze {frozen}")
    elif train == "head":
        _leave(base, 0, "")
    elif train != "all":
        _leave(base, top_blocks(train), f"--train {train}", also_norm=False)


def _leave(base: Any, wanted: int, option: str, *, also_norm: bool = True) -> None:
    """Train the last ``wanted`` blocks alone, and what comes behind them."""
    blocks = blocks_of(base)
    depth = int(base.config.num_hidden_layers)
    if wanted and blocks is None and wanted == depth:
        # Layers that share one block can move together.
        trained: list[Any] = [module for name, module in base.named_children() if "embedding" not in name]
    elif wanted and (blocks is None or wanted > len(blocks)):
        count = 0 if blocks is None else len(blocks)
        raise OptionError(
            f"{option}: {type(base).__name__} has {count} blocks with weights of their own"
            + (" (ALBERT's share theirs)" if base.config.model_type == "albert" else "")
        )
    else:
        trained = [] if blocks is None or not wanted else list(blocks[len(blocks) - wanted :])
    base.requires_grad_(False)
    norm = final_norm(base) if wanted and also_norm else None
    for module in (*trained, norm, getattr(base, "pooler", None)):
        if isinstance(module, nn.Module):
            module.requires_grad_(True)


def check_frozen(base: Any, k: int) -> None:
    """Refuse to freeze blocks 1 to ``k`` of an encoder that has not so many, or whose layers share one.

    Raises
    ------
    OptionError
        Saying which there are.
    """
    depth = int(base.config.num_hidden_layers)
    if not 0 <= k <= depth:
        raise OptionError(f"--freeze {k}: {type(base).__name__} has blocks 1 to {depth}")
    if 0 < k < depth and blocks_of(base) is None:
        raise OptionError(
            f"--freeze {k}: the {depth} layers of {type(base).__name__} share their weights; give none, 0 or {depth}"
        )


def top_blocks(train: str) -> int:
    """K of ``top-K``.

    Raises
    ------
    OptionError
        If it is spelled otherwise.
    """
    match = re.fullmatch(r"top-([1-9]\d*)", train)
    if match is None:
        raise OptionError(f"--train takes all, head or top-K (the last K blocks and the head), got {train!r}")
    return int(match[1])


def blocks_of(base: Any) -> nn.ModuleList | None:
    """The blocks of an encoder, one a layer; None where layers share one."""
    depth = getattr(base.config, "num_hidden_layers", None)
    lists = (module for module in base.modules() if isinstance(module, nn.ModuleList) and len(module) == depth)
    return None if base.config.model_type == "albert" else next(lists, None)


def without_dropout(model: Any, train: str, layers: Layers) -> None:
    """Put into evaluation mode what must have no dropout, as a Trainer puts everything in training mode."""
    base = model.base_model
    if train == "head" or not layers.dropout:
        base.eval()
    elif layers.frozen is not None:
        base.eval()
        for part in blocks_of(base) or base.children():
            part.train(any(parameter.requires_grad for parameter in part.parameters()))


def frozen_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Name and value of everything in the encoder that is not trained."""
    for name, parameter in model.base_model.named_parameters():
        if not parameter.requires_grad:
            yield name, parameter


def truncated_config(config: Any, k: int) -> Any:
    """The configuration of the same architecture with ``k`` blocks.

    Raises
    ------
    OptionError
        If it has fewer.
    """
    depth = int(config.num_hidden_layers)
    if not 1 <= k <= depth:
        raise OptionError(f"--truncate {k}: {config.model_type} has blocks 1 to {depth}")
    short = copy.deepcopy(config)
    # Lists with an entry a layer: kinds of attention, widths of windows.
    for name, value in vars(short).items():
        if isinstance(value, list) and len(value) == depth:
            setattr(short, name, value[:k])
    short.num_hidden_layers = k
    return short
