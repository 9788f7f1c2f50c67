"""Tiny sequence classifiers of every architecture whose head reads one token, and batches for them."""

from __future__ import annotations

import tiny
import torch

KINDS = {
    "bert": "BertForSequenceClassification",
    "roberta": "RobertaForSequenceClassification",
    "distilbert": "DistilBertForSequenceClassification",
    "electra": "ElectraForSequenceClassification",
    "albert": "AlbertForSequenceClassification",
    "deberta-v2": "DebertaV2ForSequenceClassification",
    "xlnet": "XLNetForSequenceClassification",
    "modernbert": "ModernBertForSequenceClassification",
    "big_bird": "BigBirdForSequenceClassification",
    "longformer": "LongformerForSequenceClassification",
}
OPTIONS = {"modernbert": {"classifier_pooling": "cls"}, "deberta-v2": {"pooler_dropout": 0.2}}
NAMES = tuple(KINDS)


def make_classifier(name, *, num_labels=3, seed=0, **options):
    model = tiny.make_model(
        name, kind=KINDS[name], num_labels=num_labels, seed=seed, **OPTIONS.get(name, {}), **options
    )
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "pooler" in key and key.endswith("bias"):
                parameter.normal_(0.0, 0.1)  # as training would have left it
    return model


def make_batch(name, *, pairs=False, rows=6, seed=0):
    """Padded rows with labels; XLNet's tokenizer pads on the left, as its users do."""
    tokenizer = tiny.make_tokenizer(name)
    segments = tiny.ARCHITECTURES[name].segments
    texts = tiny.words(*range(2, 2 + rows), seed=seed)
    second = tiny.words(*range(rows, 0, -1), seed=seed + 1) if pairs else None
    batch = dict(tokenizer(texts, second, padding=True, return_tensors="pt", return_token_type_ids=segments))
    return batch | {"labels": torch.arange(rows) % 3}
