"""A fresh classifier for each seed on one pre-trained encoder: its head, what of it is trained, batches for it."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn

from cls_analysis.checkpoints import find_checkpoint
from cls_analysis.encoder import Encoder
from cls_analysis.encoder.limits import use_whole_attention
from cls_analysis.encoder.loading import quiet_transformers
from cls_analysis.encoder.tokens import Batch, Tokenized
from cls_analysis.errors import LoadingError, OptionError, one_line
from cls_analysis.normalization.heads import LinearHeadClassifier
from cls_analysis.texts import Texts

#: Rows of a batch in evaluation are chosen by a budget of tokens, padding included.
BATCH_TOKENS = 4_096


@dataclass(frozen=True, eq=False)
class Base:
    """A pre-trained encoder, and what its architecture's own classifier takes over from it.

    Attributes
    ----------
    encoder : Encoder
        Frozen; classifiers get copies.
    stock : dict of str -> Tensor, or None
        Pre-trained weights of the stock classifier's base model, where the stock head is asked for.
    untrained : tuple of str
        Weights of the base model that the checkpoint lacks: the pooler's, as a rule.
    """

    encoder: Encoder
    stock: dict[str, Tensor] | None
    stock_config: Any
    untrained: tuple[str, ...]

    @classmethod
    def load(cls, name: str, *, head: str, **options: Any) -> Base:
        """Load an encoder by hub name, folder or ``embedded``; options as ``Encoder.from_pretrained`` takes them.

        Raises
        ------
        LoadingError
            If it cannot be loaded, or has no sequence classifier.
        """
        encoder = Encoder.from_pretrained(name, **options)
        if head == "linear":
            return cls(encoder, None, None, ())
        checkpoint = find_checkpoint(name, options.get("revision"), options.get("trust_remote_code", False))
        try:
            with quiet_transformers():
                model, info = transformers.AutoModelForSequenceClassification.from_pretrained(
                    checkpoint.location,
                    **checkpoint.options,
                    dtype=torch.float32,
                    use_safetensors=True,
                    output_loading_info=True,
                    # A classifier of other classes in the checkpoint is not used: heads are always fresh.
                    ignore_mismatched_sizes=True,
                )
        except (OSError, ValueError, RuntimeError, KeyError) as error:
            raise LoadingError(f"{name}: no sequence classifier can be made of it ({one_line(error, 160)})") from None
        prefix = f"{model.base_model_prefix}."
        missing = tuple(sorted(key.removeprefix(prefix) for key in info["missing_keys"] if str(key).startswith(prefix)))
        state = {key: tensor for key, tensor in model.base_model.state_dict().items() if key not in missing}
        return cls(encoder, state, model.config, missing)

    @property
    def pads_left(self) -> bool:
        """Whether the stock head reads the last token, so that padding must come before the text (XLNet)."""
        return self.stock is not None and self.encoder.tokenizer.padding_side == "left"

    def classifier(self, num_labels: int, seed_head: int, *, dropout: float | None = None) -> Any:
        """A classifier with a head of its own; the same seed gives the same one."""
        if self.stock is None:
            encoder = copy.deepcopy(self.encoder.model)
            for parameter in encoder.parameters():
                parameter.requires_grad_(True)
            torch.manual_seed(seed_head)
            return LinearHeadClassifier(
                encoder, num_labels, cls_token_id=self.encoder.tokenizer.cls_token_id, dropout=dropout
            )
        config = copy.deepcopy(self.stock_config)
        config.num_labels = num_labels
        torch.manual_seed(seed_head)
        auto: Any = transformers.AutoModelForSequenceClassification
        model = auto.from_config(config)
        model.base_model.load_state_dict(self.stock, strict=False)
        use_whole_attention(model.base_model)
        return model


def choose_trained(model: Any, train: str) -> None:
    """Leave gradients on for what is trained alone: ``all``, ``head``, or ``top-K``, the last K blocks and the head.

    A pooler belongs to the head: it lies behind the norm.

    Raises
    ------
    OptionError
        If the model has no K blocks of its own to choose from.
    """
    base = model.base_model
    if train == "all":
        return
    base.requires_grad_(False)
    pooler = getattr(base, "pooler", None)
    if isinstance(pooler, nn.Module):
        pooler.requires_grad_(True)
    if train == "head":
        return
    wanted = top_blocks(train)
    blocks = blocks_of(base)
    if blocks is None or wanted > len(blocks):
        count = 0 if blocks is None else len(blocks)
        raise OptionError(
            f"--train {train}: {type(base).__name__} has {count} blocks with weights of their own"
            + (" (ALBERT's share theirs)" if base.config.model_type == "albert" else "")
        )
    for block in blocks[len(blocks) - wanted :]:
        block.requires_grad_(True)


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


@dataclass(frozen=True)
class Rows:
    """Tokenised rows with their targets, and how they become batches."""

    encoder: Encoder
    tokens: Tokenized
    target: Tensor
    pads_left: bool

    @classmethod
    def of(cls, base: Base, texts: Texts, target: NDArray[Any]) -> Rows:
        """Tokenise the rows of a task."""
        tokens = base.encoder.tokenize(texts.text, texts.pair, texts.row_id.tolist())
        values = torch.from_numpy(target)
        return cls(base.encoder, tokens, values.float() if values.is_floating_point() else values, base.pads_left)

    def __len__(self) -> int:
        return len(self.target)

    def batch(self, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """A padded batch with ``labels``."""
        batch = self.encoder.collate(self.tokens, rows)
        if self.pads_left:
            batch = {name: _to_the_right(tensor, batch["attention_mask"]) for name, tensor in batch.items()}
        return batch | {"labels": self.target[np.asarray(rows)]}

    def by_length(self) -> list[NDArray[np.int64]]:
        """All rows in batches of similar length."""
        order = np.argsort(-self.tokens.lengths, kind="stable")
        batches, start = [], 0
        while start < len(order):
            size = max(1, BATCH_TOKENS // int(self.tokens.lengths[order[start]]))
            batches.append(order[start : start + size])
            start += size
        return batches


def _to_the_right(tensor: Tensor, mask: Tensor) -> Tensor:
    """Rows moved behind their padding."""
    width = mask.shape[1]
    order = (torch.arange(width) + mask.sum(dim=1, keepdim=True)) % width
    return tensor.gather(1, order)
