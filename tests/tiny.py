"""Tiny networks of every architecture, with random weights, and their own fast tokenizers, saved as folders.

Every word of one letter is one token, so that lengths in tokens can be read off the texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import torch
import transformers as hf

HIDDEN = 32
LAYERS = 3
POSITIONS = 64
SIZES = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": POSITIONS,
}
#: RoBERTa's positions start behind the padding id 1.
SHIFTED = SIZES | {"max_position_embeddings": POSITIONS + 2, "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}
BERT_MARKS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ROBERTA_MARKS = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


@dataclass(frozen=True)
class Architecture:
    """What to build and what to expect of it."""

    model: str
    config: dict[str, Any]
    tokenizer: str
    vocab: Any
    source: str = "cls"
    segments: bool = False
    usable: int = POSITIONS
    cls_last: bool = False
    special: int = 2


def _pieces(*marks: str, mark: str = "▁") -> list[tuple[str, float]]:
    return [(token, 0.0) for token in marks] + [(mark + letter, -3.0) for letter in ascii_lowercase] + [(mark, -9.0)]


def _words(*marks: str) -> dict[str, int]:
    return {token: i for i, token in enumerate([*marks, *ascii_lowercase])}


def _bytes(*marks: str) -> dict[str, int]:
    tokens = [*marks, "Ġ", *ascii_lowercase, *("Ġ" + letter for letter in ascii_lowercase)]
    return {token: i for i, token in enumerate(tokens)}


ARCHITECTURES = {
    "bert": Architecture("BertModel", SIZES, "BertTokenizer", _words(*BERT_MARKS), segments=True),
    "roberta": Architecture(
        "RobertaModel", SHIFTED | {"type_vocab_size": 1}, "RobertaTokenizer", _bytes(*ROBERTA_MARKS)
    ),
    "albert": Architecture(
        "AlbertModel",
        SIZES | {"embedding_size": 16},
        "AlbertTokenizer",
        _pieces("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
        segments=True,
    ),
    "distilbert": Architecture(
        "DistilBertModel",
        {"dim": HIDDEN, "n_layers": LAYERS, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": POSITIONS},
        "BertTokenizer",
        _words(*BERT_MARKS),
    ),
    "electra": Architecture(
        "ElectraModel", SIZES | {"embedding_size": 16}, "BertTokenizer", _words(*BERT_MARKS), segments=True
    ),
    "deberta": Architecture(
        "DebertaModel",
        SIZES | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0},
        "DebertaTokenizer",
        _bytes("[CLS]", "[PAD]", "[SEP]", "[UNK]", "[MASK]"),
    ),
    "deberta-v2": Architecture(
        "DebertaV2Model",
        SIZES
        | {
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 8,
            "position_biased_input": False,
            "share_att_key": True,
            "norm_rel_ebd": "layer_norm",
            "conv_kernel_size": 3,
            "conv_act": "gelu",
            "type_vocab_size": 0,
        },
        "DebertaV2Tokenizer",
        _pieces("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    ),
    "xlnet": Architecture(
        "XLNetModel",
        {"d_model": HIDDEN, "n_layer": LAYERS, "n_head": 4, "d_inner": 48},
        "XLNetTokenizer",
        _pieces("<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"),
        segments=True,
        usable=512,
        cls_last=True,
    ),
    "modernbert": Architecture(
        "ModernBertModel",
        SIZES
        | {
            "local_attention": 8,
            "global_attn_every_n_layers": 2,
            "pad_token_id": 0,
            "bos_token_id": 2,
            "eos_token_id": 3,
            "cls_token_id": 2,
            "sep_token_id": 3,
        },
        "BertTokenizer",
        _words(*BERT_MARKS),
    ),
    "big_bird": Architecture(
        "BigBirdModel",
        SIZES | {"attention_type": "block_sparse", "block_size": 4, "num_random_blocks": 1, "sep_token_id": 5},
        "BigBirdTokenizer",
        _pieces("<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"),
        segments=True,
    ),
    "longformer": Architecture(
        "LongformerModel",
        SHIFTED | {"type_vocab_size": 1, "attention_window": 8},
        "RobertaTokenizer",
        _bytes(*ROBERTA_MARKS),
    ),
    "gpt2": Architecture(
        "GPT2Model",
        {"n_embd": HIDDEN, "n_layer": LAYERS, "n_head": 4, "n_positions": POSITIONS, "bos_token_id": 0}
        | {"eos_token_id": 0},
        "GPT2Tokenizer",
        _bytes("<|endoftext|>"),
        source="last",
        special=0,
    ),
    "t5": Architecture(
        "T5Model",
        {"d_model": HIDDEN, "num_layers": LAYERS, "num_heads": 4, "d_kv": 8, "d_ff": 48},
        "T5Tokenizer",
        _pieces("<pad>", "</s>", "<unk>"),
        source="mean",
        usable=512,
        special=1,
    ),
}
NAMES = tuple(ARCHITECTURES)
WITH_CLS = tuple(name for name, architecture in ARCHITECTURES.items() if architecture.source == "cls")


def make_tokenizer(name: str, **options: Any) -> Any:
    """The architecture's own fast tokenizer."""
    architecture = ARCHITECTURES[name]
    if isinstance(architecture.vocab, dict) and "Ġ" in architecture.vocab:
        options["merges"] = [("Ġ", letter) for letter in ascii_lowercase]
    if name == "t5":
        options["extra_ids"] = 0
    vocab = architecture.vocab
    return getattr(hf, architecture.tokenizer)(vocab=type(vocab)(vocab), **options)


def make_model(name: str, *, kind: str | None = None, seed: int = 0, **options: Any) -> Any:
    """A network with weights large enough that every token moves every other."""
    architecture = ARCHITECTURES[name]
    kind = kind or architecture.model
    config_class = getattr(hf, kind).config_class
    config = config_class(**{"vocab_size": len(make_tokenizer(name))} | architecture.config | options)
    torch.manual_seed(seed)
    model = getattr(hf, kind)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.3)
    return model


def save(model: Any, tokenizer: Any, folder: Path) -> Path:
    """A folder as ``save_pretrained`` makes it."""
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def make_folder(name: str, folder: Path, **options: Any) -> Path:
    """Network and tokenizer of an architecture in one folder."""
    return save(make_model(name, **options), make_tokenizer(name), folder)


def words(*lengths: int, seed: int = 0) -> list[str]:
    """Texts of one-letter words: that many tokens each, special ones not counted."""
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(list(ascii_lowercase), length)) for length in lengths]
