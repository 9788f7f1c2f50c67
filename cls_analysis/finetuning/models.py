"""A fresh model for each seed on one pre-trained encoder: the same encoder under a new head."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers
from torch import Tensor

from cls_analysis.checkpoints import find_checkpoint
from cls_analysis.encoder import Encoder
from cls_analysis.encoder.limits import use_whole_attention
from cls_analysis.encoder.loading import quiet_transformers
from cls_analysis.errors import LoadingError, one_line
from cls_analysis.finetuning.layers import truncated_config
from cls_analysis.normalization.heads import LinearHeadClassifier, bare_model


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

    def fresh_encoder(self) -> Any:
        """A copy of the bare encoder, all of it to be trained."""
        encoder = copy.deepcopy(self.encoder.model)
        return encoder.requires_grad_(True)

    def truncated(self, k: int) -> Base:
        """The same with the first ``k`` blocks alone.

        Raises
        ------
        OptionError
            If there are fewer.
        """
        whole = self.encoder
        model = bare_model(truncated_config(whole.model.config, k))
        missing, _ = model.load_state_dict(whole.model.state_dict(), strict=False)
        assert not missing, missing
        encoder = Encoder(
            model.to(whole.device),
            whole.tokenizer,
            source=whole.source,
            dtype=whole.dtype,
            device=str(whole.device),
            max_length=whole.max_length,
            name=whole.name,
        )
        config = None if self.stock is None else truncated_config(self.stock_config, k)
        return replace(self, encoder=encoder, stock_config=config)

    def answerer(self, seed_head: int) -> Any:
        """The architecture's own model that marks an answer's first and last token, its head random.

        Raises
        ------
        LoadingError
            If the architecture has none.
        """
        auto: Any = transformers.AutoModelForQuestionAnswering
        torch.manual_seed(seed_head)
        try:
            model = auto.from_config(copy.deepcopy(self.encoder.model.config))
        except ValueError as error:
            raise LoadingError(
                f"{self.encoder.name}: no model that answers questions ({one_line(error, 160)})"
            ) from None
        missing, _ = model.base_model.load_state_dict(self.encoder.model.state_dict(), strict=False)
        assert all("pooler" in name for name in missing), missing
        use_whole_attention(model.base_model)
        return model.to(self.encoder.device)

    def classifier(self, num_labels: int, seed_head: int, *, dropout: float | None = None) -> Any:
        """A classifier with a head of its own; the same seed gives the same one."""
        if self.stock is None:
            encoder = self.fresh_encoder()
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
