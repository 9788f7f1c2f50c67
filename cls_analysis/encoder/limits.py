"""What an architecture can take: usable length, segment ids, half precision, global attention."""

from __future__ import annotations

import inspect
from typing import Any

import torch

from cls_analysis.errors import OptionError

#: A tokenizer's limit above this means "none": transformers writes int(1e30) where the checkpoint is silent.
NO_LIMIT = 1_000_000
#: Length for models that name no limit themselves (XLNet and other fully relative ones).
DEFAULT_LENGTH = 512
#: Architectures whose activations overflow float16 (hidden values beyond 65,504).
OVERFLOWS_FLOAT16 = ("deberta", "deberta-v2", "t5", "mt5", "umt5", "longt5")
#: Architectures with relative segments: they take segment ids but have no table of them to count.
RELATIVE_SEGMENTS = ("xlnet",)
#: Attributes under which pre-norm models keep the norm that only the last output passes.
FINAL_NORMS = ("final_norm", "final_layer_norm", "ln_f", "norm")


def usable_length(model: Any, tokenizer: Any, wanted: int | None) -> int:
    """Longest input in tokens: the least of what is wanted, what the tokenizer and what the positions allow.

    RoBERTa's positions start behind the padding id, so two of its 514 cannot be used.

    Raises
    ------
    OptionError
        If more is wanted than the model has positions for, or less than the special tokens take.
    """
    available = positions(model)
    limits = [length for length in (tokenizer.model_max_length, available) if length and length < NO_LIMIT]
    limit = min(limits, default=max(wanted or 0, DEFAULT_LENGTH))
    if wanted is None:
        return int(limit)
    if wanted < tokenizer.num_special_tokens_to_add() + 1:
        raise OptionError(f"max length {wanted} leaves no room for text beside the special tokens")
    if available and available < NO_LIMIT and wanted > available:
        raise OptionError(f"max length {wanted} is more than the model's {available} positions")
    return int(min(wanted, limit))


def positions(model: Any) -> int | None:
    """Tokens that the model has positions for; None where any number will do."""
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, torch.nn.Embedding):
            offset = 0 if module.padding_idx is None else module.padding_idx + 1
            return int(module.num_embeddings - offset)
    named = getattr(model.config, "max_position_embeddings", None)
    return int(named) if named and named > 0 else None


def takes_segments(model: Any) -> bool:
    """Whether the model tells the two texts of a pair apart by segment ids."""
    if "token_type_ids" not in inspect.signature(model.forward).parameters:
        return False
    segments = getattr(model.config, "type_vocab_size", None)
    return model.config.model_type in RELATIVE_SEGMENTS if segments is None else segments > 1


def takes_global_attention(model: Any) -> bool:
    """Whether [CLS] sees the whole text only if it is asked for (Longformer)."""
    return "global_attention_mask" in inspect.signature(model.forward).parameters


def use_whole_attention(model: Any) -> None:
    """Let BigBird attend to everything: it does so for short batches and never switches back.

    Fixed, no row depends on which rows came before it.
    """
    if getattr(model.config, "attention_type", None) == "block_sparse":
        model.set_attention_type("original_full")


def final_norm(model: Any) -> Any | None:
    """The norm that only the last layer's output passes, in pre-norm models (ModernBERT, GPT-2); else None."""
    for name in FINAL_NORMS:
        module = getattr(model, name, None)
        if isinstance(module, torch.nn.Module):
            return module
    return None


def attention_kind(model: Any) -> str:
    """How attention is computed, in words that a Profile records."""
    kind = str(getattr(model.config, "_attn_implementation", None) or "eager")
    # BigBird's configuration keeps the type it was saved with; the model has the one in use.
    if attention := getattr(model, "attention_type", None) or getattr(model.config, "attention_type", None):
        return f"{kind}, {attention}"
    return f"{kind}, global on the vector's token" if takes_global_attention(model) else kind
