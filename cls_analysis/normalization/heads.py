"""The study's own head: norm → dropout → one linear layer on the raw [CLS], for any encoder, without a pooler.

It is the setting of Zhou, Du and Ren 2019. Every architecture gets the same head, and arms differ in the norm alone.
"""

from __future__ import annotations

import copy
import inspect
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional
from transformers.modeling_outputs import SequenceClassifierOutput

from cls_analysis.encoder.limits import takes_global_attention
from cls_analysis.encoder.loading import bare_class, takes_pooling_layer

#: Where the configuration of such a checkpoint says what the head is; also the layer's name.
HEAD_KEY = "cls_head"
#: Names under which architectures keep the dropout of their classifier, the most specific first.
DROPOUTS = (
    "classifier_dropout",
    "classifier_dropout_prob",
    "cls_dropout",
    "seq_classif_dropout",
    "summary_last_dropout",
    "hidden_dropout_prob",
    "dropout",
)


class LinearHeadClassifier(nn.Module):
    """An encoder and one linear layer on its [CLS]; called as a Hugging Face sequence classifier is.

    Parameters
    ----------
    encoder : bare transformers model
    num_labels : int
        1 for regression (mean squared error), else classes (cross-entropy).
    cls_token_id : int, optional
        Id of the token that is read, wherever it stands; the first token where there is none.
    dropout : float, optional
        Of the vector, behind any norm; by default the architecture's own for its classifier.
    """

    def __init__(
        self, encoder: Any, num_labels: int, *, cls_token_id: int | None = None, dropout: float | None = None
    ) -> None:
        super().__init__()
        if takes_pooling_layer(type(encoder)):
            encoder.pooler = None  # never read here; it would stay untrained and be saved
        self.encoder = encoder
        self.config = encoder.config
        self.cls_token_id = cls_token_id
        p = classifier_dropout(encoder.config) if dropout is None else dropout
        self.dropout = nn.Dropout(p)
        self.cls_head = new_linear(encoder.config.hidden_size, num_labels, initial_std(encoder.config))
        self.config.num_labels = num_labels
        setattr(self.config, HEAD_KEY, {"num_labels": num_labels, "cls_token_id": cls_token_id, "dropout": p})
        self._global_attention = takes_global_attention(encoder)
        self._segments = "token_type_ids" in inspect.signature(encoder.forward).parameters

    @classmethod
    def from_config(cls, config: Any) -> LinearHeadClassifier:
        """One with random weights, as the configuration of a saved one describes it."""
        config = copy.deepcopy(config)
        encoder = bare_model(config)
        return cls(encoder, **getattr(config, HEAD_KEY))

    @property
    def base_model(self) -> Any:
        """The encoder, by the name that Hugging Face classifiers give it."""
        return self.encoder

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.cls_head.weight.device

    def get_input_embeddings(self) -> Any:
        """The encoder's."""
        return self.encoder.get_input_embeddings()

    def stock_name(self) -> str:
        """Name of the architecture's own sequence classifier."""
        return type(self.encoder).__name__.removesuffix("Model") + "ForSequenceClassification"

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> SequenceClassifierOutput:
        """Logits (rows, num_labels), and the mean loss where labels are given."""
        position = self.positions(input_ids)
        rows = torch.arange(len(input_ids), device=input_ids.device)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if self._segments and token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        if self._global_attention:
            mask = torch.zeros_like(input_ids)
            mask[rows, position] = 1
            inputs["global_attention_mask"] = mask
        vectors = self.encoder(**inputs, return_dict=True).last_hidden_state[rows, position]
        logits = self.cls_head(self.dropout(vectors))
        return SequenceClassifierOutput(loss=None if labels is None else mean_loss(logits, labels), logits=logits)

    def positions(self, input_ids: Tensor) -> Tensor:
        """Index of the token that is read, shape (rows,)."""
        if self.cls_token_id is None:
            return torch.zeros(len(input_ids), dtype=torch.long, device=input_ids.device)
        return (input_ids == self.cls_token_id).int().argmax(dim=1)

    def save_pretrained(self, folder: str | Path, **options: Any) -> None:
        """Save the encoder as ``AutoModel`` reads it, and the head's tensors beside its."""
        head = {f"{HEAD_KEY}.{key}": tensor for key, tensor in self.cls_head.state_dict().items()}
        self.encoder.save_pretrained(folder, state_dict=self.encoder.state_dict() | head, **options)

    def load_saved(self, tensors: dict[str, Tensor]) -> None:
        """Take the weights that ``save_pretrained`` wrote, all of them, else ``RuntimeError``."""
        head = {key: tensor for key, tensor in tensors.items() if key.startswith(f"{HEAD_KEY}.")}
        encoder = {f"encoder.{key}": tensor for key, tensor in tensors.items() if key not in head}
        self.load_state_dict(encoder | head)


def new_linear(dim: int, num_labels: int, std: float) -> nn.Linear:
    """A fresh head: weights from N(0, std²), biases 0, as Hugging Face makes its classifiers."""
    linear = nn.Linear(dim, num_labels)
    nn.init.normal_(linear.weight, std=std)
    nn.init.zeros_(linear.bias)
    return linear


def initial_std(config: Any) -> float:
    """Standard deviation of an architecture's first weights."""
    return float(getattr(config, "initializer_range", 0.02))


def mean_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean squared error for one column of logits, else cross-entropy; float32 inside autocast."""
    if logits.shape[1] == 1:
        return functional.mse_loss(logits[:, 0].float(), labels.float())
    return functional.cross_entropy(logits.float(), labels)


def classifier_dropout(config: Any) -> float:
    """The dropout that an architecture puts in front of its classifier."""
    named = (getattr(config, name, None) for name in DROPOUTS)
    return float(next((p for p in named if p is not None), 0.1))


def bare_model(config: Any) -> Any:
    """A bare model with random weights, without a pooler where the architecture can do without."""
    options = {"add_pooling_layer": False} if takes_pooling_layer(bare_class(config)) else {}
    auto: Any = transformers.AutoModel
    return auto.from_config(config, **options)
