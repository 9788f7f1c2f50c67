"""``Encoder``: a frozen model and its tokenizer, and the vector it has for a text."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from cls_analysis.checkpoints import find_checkpoint
from cls_analysis.encoder import limits, tokens, words
from cls_analysis.encoder.loading import load_config, load_model, load_tokenizer, quiet_transformers
from cls_analysis.encoder.tokens import Batch, Tokenized
from cls_analysis.errors import ClsAnalysisError, LoadingError, OptionError, unknown_name
from cls_analysis.provenance import EncoderIdentity, hash_arrays, hash_text

#: Which vector stands for a text.
SOURCES = ("cls", "pooler", "mean", "first", "last")
#: Sources for encoders without a [CLS] token.
ALTERNATIVES = ("mean", "first", "last")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
DTYPE_ALIASES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "half": "float16"}
#: A row alone and in a batch may differ by rounding; by more than this share of the largest value, something is wrong.
BATCH_TOLERANCE = 1e-3


class Encoder:
    """A frozen encoder.

    Parameters
    ----------
    model, tokenizer
        A bare transformers model (as ``AutoModel`` gives it) and its tokenizer. Encoder-decoders use their encoder. The
        model is frozen and its weights are made float32, in place.
    source : {"cls", "pooler", "mean", "first", "last"}, default "cls"
        Which vector stands for a text: the hidden state of the [CLS] token, wherever the tokenizer puts it; the
        pooler's output; the mean over all attended tokens; the first or last attended token.
    dtype : {"float32", "bfloat16", "float16"}, default "float32"
        The dtype to compute in; below float32 as autocast over float32 weights.
    device : str, default "auto"
        A torch device; ``auto`` takes a GPU if there is one.
    max_length : int, optional
        Longest input in tokens; otherwise what tokenizer and positions allow.
    name : str, optional
        What to call it in tables and figures.
    apply_final_norm : bool, default False
        In pre-norm models, pass the inner layers through the final norm as well, so that curves over layers compare.

    Attributes
    ----------
    model, tokenizer, source, dtype, max_length, name
        As above; ``max_length`` is the length in use.
    hidden_size, n_layers : int
        Width of a vector; number of blocks L (layers are 0 to L, 0 the embedding output).
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        source: str = "cls",
        dtype: str = "float32",
        device: str = "auto",
        max_length: int | None = None,
        name: str | None = None,
        revision: str | None = None,
        apply_final_norm: bool = False,
    ) -> None:
        # Encoder-decoders, and their encoders saved alone, keep the encoder as a model of its own.
        if isinstance(getattr(model, "encoder", None), PreTrainedModel):
            model = model.encoder
        model = model.float()
        self.source = check_source(source, tokenizer, name or model.config.model_type)
        self.dtype = check_dtype(dtype, model.config.model_type)
        self.device = _device(device)
        self.model = model.to(self.device)
        self.tokenizer = tokenizer
        self.name = name or model.config.model_type
        self.revision = revision
        self.max_length = limits.usable_length(model, tokenizer, max_length)
        limits.use_whole_attention(model)
        self._segments = limits.takes_segments(model)
        self._vocabulary = int(model.get_input_embeddings().num_embeddings)
        self._global_attention = limits.takes_global_attention(model)
        self._final_norm = limits.final_norm(model)
        self._apply_final_norm = apply_final_norm
        self._pad_id = next(
            (i for i in (tokenizer.pad_token_id, tokenizer.eos_token_id, tokenizer.unk_token_id) if i is not None), 0
        )
        for parameter in model.parameters():
            parameter.requires_grad_(False)
        model.eval()
        self.n_layers, self.hidden_size = self._measure()

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str | Path,
        *,
        source: str = "cls",
        dtype: str = "float32",
        device: str = "auto",
        max_length: int | None = None,
        revision: str | None = None,
        trust_remote_code: bool = False,
        apply_final_norm: bool = False,
    ) -> Encoder:
        """Load an encoder by hub name, folder, or ``embedded``.

        The local cache is asked first; only what is not there is fetched. Weights are read from safetensors alone, in
        float32 whatever the checkpoint's dtype.

        Raises
        ------
        LoadingError
            If it cannot be found or loaded, or would run on untrained weights; one line with the cause.
        OptionError
            If it has no vector of that source, or must not run in that dtype.
        """
        checkpoint = find_checkpoint(name_or_path, revision, trust_remote_code)
        config = load_config(checkpoint)
        tokenizer = load_tokenizer(checkpoint)
        check_source(source, tokenizer, checkpoint.name)
        check_dtype(dtype, config.model_type)
        model = load_model(checkpoint, config, pooler=source == "pooler", dtype=torch.float32)
        return cls(
            model,
            tokenizer,
            source=source,
            dtype=dtype,
            device=device,
            max_length=max_length,
            name=checkpoint.name,
            revision=checkpoint.options.get("revision"),
            apply_final_norm=apply_final_norm,
        )

    def __repr__(self) -> str:
        return (
            f"Encoder({self.name!r}, source={self.source!r}, {self.n_layers} layers of {self.hidden_size}, "
            f"max_length={self.max_length}, {self.dtype} on {self.device})"
        )

    # -- layers --------------------------------------------------------------------------------------------------

    def resolve_layers(self, layers: str | int | Iterable[int]) -> tuple[int, ...]:
        """Layer numbers 0 to L for ``"all"``, one number or several; negative ones count from the end.

        Raises
        ------
        OptionError
            If a layer does not exist, or the source is the pooler, which has only the last.
        """
        last = self.n_layers
        if isinstance(layers, str):
            if layers != "all":
                raise OptionError(f"layers must be 'all' or numbers from {-last - 1} to {last}, got {layers!r}")
            numbers = [last] if self.source == "pooler" else list(range(last + 1))
        else:
            try:
                numbers = [operator.index(layer) for layer in (layers if np.iterable(layers) else [layers])]
            except TypeError:
                raise OptionError(
                    f"layers must be 'all' or numbers from {-last - 1} to {last}, got {layers!r}"
                ) from None
        resolved = sorted({last + 1 + number if number < 0 else number for number in numbers})
        if not resolved or resolved[0] < 0 or resolved[-1] > last:
            raise OptionError(f"{self.name} has layers 0 to {last} (or -{last + 1} to -1), got {numbers}")
        if self.source == "pooler" and resolved != [last]:
            raise OptionError(f"the pooler sits on layer {last} alone, got {numbers}")
        return tuple(resolved)

    # -- rows ----------------------------------------------------------------------------------------------------

    def tokenize(
        self, text: Sequence[str], pair: Sequence[str] | None = None, row_ids: Sequence[int] | None = None
    ) -> Tokenized:
        """Token ids of rows, truncated to ``max_length``; errors name rows by ``row_ids``."""
        row_ids = range(len(text)) if row_ids is None else row_ids
        tokenized = tokens.tokenize(
            self.tokenizer, text, pair, max_length=self.max_length, segments=self._segments, row_ids=row_ids
        )
        tokens.check_range(tokenized.ids, row_ids, None, self._vocabulary)
        return tokenized

    def tokenize_words(
        self, sentences: Sequence[Sequence[str]], pairs: Sequence[Sequence[str]] | None = None
    ) -> words.WordPieces:
        """Sentences of words as tokens, and the pieces of each word; see ``words.tokenize_words``."""
        pieces = words.tokenize_words(
            self.tokenizer, sentences, pairs, max_length=self.max_length, segments=self._segments
        )
        tokens.check_range(pieces.tokenized.ids, range(len(sentences)), None, self._vocabulary)
        return pieces

    def collate(self, tokenized: Tokenized, rows: Sequence[int] | NDArray[np.int64]) -> Batch:
        """A right-padded batch of ``rows``."""
        pad_segment = getattr(self.tokenizer, "pad_token_type_id", 0)
        return tokens.collate(tokenized, rows, self._pad_id, pad_segment)

    def cls_rows(
        self, batch: Mapping[str, Any], layers: str | int | Iterable[int] = "all"
    ) -> dict[int, NDArray[np.float32]]:
        """The vector of each row of a batch.

        Parameters
        ----------
        batch : mapping
            ``input_ids`` (rows, tokens) with ``attention_mask`` and, if the model has segments, ``token_type_ids``.
        layers : "all", int or list of int
            Which layers.

        Returns
        -------
        dict of layer number -> float32 array (rows, hidden_size)

        Raises
        ------
        DataError
            If padding is not masked, a row attends to nothing, or does not hold exactly one [CLS].
        """
        checked = self._check(batch)
        with self.evaluating():
            vectors = self.vectors(checked, self.resolve_layers(layers))
        return {layer: vector.cpu().numpy() for layer, vector in vectors.items()}

    def token_rows(
        self, batch: Mapping[str, Any], layers: str | int | Iterable[int] = "all"
    ) -> dict[int, NDArray[np.float32]]:
        """The vectors of all attended tokens of a batch, row after row.

        Returns
        -------
        dict of layer number -> float32 array (attended tokens, hidden_size)
            In the order of ``attention_mask.nonzero()``, special tokens included.
        """
        checked = self._check(batch)
        attended = checked["attention_mask"].bool()
        with self.evaluating():
            states = self.states(checked, self.resolve_layers(layers))
            width = attended.shape[1]
            return {
                layer: state[:, :width][attended.to(state.device)].float().cpu().numpy()
                for layer, state in states.items()
            }

    def _check(self, batch: Mapping[str, Any]) -> Batch:
        """A batch from outside, as tensors, if the network can take it."""
        checked = tokens.check_batch(batch, self.tokenizer.pad_token_id)
        if self._segments:
            relative = self.model.config.model_type in limits.RELATIVE_SEGMENTS
            tokens.check_segments(checked, self.tokenizer.sep_token_id, relative)
        attended = [
            row[mask != 0].tolist() for row, mask in zip(checked["input_ids"], checked["attention_mask"], strict=True)
        ]
        tokens.check_range(attended, range(len(attended)), limits.positions(self.model), self._vocabulary)
        return checked

    def vectors(self, batch: Batch, layers: Sequence[int]) -> dict[int, torch.Tensor]:
        """The vector of each row, on the device, float32; copies, so that no view keeps a batch alive.

        Call it inside ``evaluating()``.
        """
        if self.source == "pooler":
            return {layers[-1]: self._forward(batch, False).pooler_output.float().clone()}
        states = self.states(batch, layers)
        if self.source == "mean":
            mask = batch["attention_mask"].to(self.device)[..., None]
            width = mask.shape[1]
            return {layer: (h[:, :width].float() * mask).sum(1) / mask.sum(1) for layer, h in states.items()}
        position = self._positions(batch).to(self.device)
        rows = torch.arange(len(position), device=self.device)
        return {layer: state[rows, position].float() for layer, state in states.items()}

    def states(self, batch: Batch, layers: Sequence[int]) -> dict[int, torch.Tensor]:
        """Hidden states (rows, tokens, hidden_size) of the layers asked for, on the device.

        Call it inside ``evaluating()``.
        """
        inner = [layer for layer in layers if layer < self.n_layers]
        output = self._forward(batch, bool(inner))
        states = {layer: output.hidden_states[layer] for layer in inner}
        if self._apply_final_norm and self._final_norm is not None:
            states = {layer: self._final_norm(state) for layer, state in states.items()}
        if self.n_layers in layers:
            states[self.n_layers] = output.last_hidden_state
        return states

    def _forward(self, batch: Batch, hidden_states: bool) -> Any:
        inputs = {name: tensor.to(self.device) for name, tensor in batch.items()}
        if not self._segments:
            inputs.pop("token_type_ids", None)
        if self._global_attention:
            mask = torch.zeros_like(inputs["input_ids"])
            position = self._positions(batch).to(self.device)
            mask[torch.arange(len(mask), device=self.device), position] = 1
            inputs["global_attention_mask"] = mask
        half = self.dtype != "float32"
        context = torch.autocast(self.device.type, DTYPES[self.dtype]) if half else nullcontext()
        with context:
            return self.model(**inputs, output_hidden_states=hidden_states, return_dict=True)

    def _positions(self, batch: Batch) -> torch.Tensor:
        """Index of each row's token: [CLS] by its id, or the first or last attended one."""
        if self.source in ("cls", "pooler"):
            return tokens.positions_of(self.tokenizer.cls_token_id, self.tokenizer.cls_token, batch)
        mask = batch["attention_mask"]
        if self.source == "last":
            return mask.shape[1] - 1 - mask.flip(1).argmax(dim=1)
        return mask.argmax(dim=1)

    # -- state ---------------------------------------------------------------------------------------------------

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Evaluation mode without gradients; the mode of every module is put back afterwards."""
        modes = [(module, module.training) for module in self.model.modules()]
        self.model.eval()
        try:
            with torch.inference_mode():
                yield
        finally:
            for module, mode in modes:
                module.training = mode

    def self_check(self, tokenized: Tokenized) -> None:
        """Encode two rows twice, and each alone: the same numbers must come out.

        Raises
        ------
        ClsAnalysisError
            If two passes differ on the CPU. A row that differs alone and in a batch is warned of.
        """
        order = np.argsort(tokenized.lengths, kind="stable")
        # The shortest row and the median one, or the next longer: only unequal lengths make padding.
        longer = int((tokenized.lengths == tokenized.lengths[order[0]]).sum())
        rows = np.unique([order[0], order[min(max(longer, len(order) // 2), len(order) - 1)]])
        last = (self.n_layers,)
        with self.evaluating():
            first = self.vectors(self.collate(tokenized, rows), last)[self.n_layers]
            second = self.vectors(self.collate(tokenized, rows), last)[self.n_layers]
            alone = torch.cat([self.vectors(self.collate(tokenized, [row]), last)[self.n_layers] for row in rows])
        # What is not finite is named with its row by the scan of every block.
        if self.device.type == "cpu" and not torch.equal(first.nan_to_num(), second.nan_to_num()):
            raise ClsAnalysisError(
                f"{self.name}: two passes over one batch differ; does the model draw random numbers?"
            )
        scale = float(first.abs().max())
        difference = float((first - alone).abs().max())
        if self.dtype == "float32" and difference > BATCH_TOLERANCE * scale:
            warnings.warn(
                f"{self.name}: a row alone and in a batch differ by {difference / scale:.1e} of the largest value; "
                "the model may ignore the attention mask",
                stacklevel=2,
            )

    def identity(self) -> EncoderIdentity:
        """Everything that the vectors depend on; the weights are hashed anew each time, since they may have changed."""
        if self._final_norm is None:
            norm = "every layer's own"
        else:
            norm = "applied to all layers" if self._apply_final_norm else "last layer only"
        return EncoderIdentity(
            name=self.name,
            weights_hash=hash_weights(self.model, pooler=self.source == "pooler"),
            tokenizer_hash=hash_tokenizer(self.tokenizer),
            architecture=type(self.model).__name__,
            hidden_size=self.hidden_size,
            n_layers=self.n_layers,
            source=self.source,
            max_length=self.max_length,
            attention=limits.attention_kind(self.model),
            final_norm=norm,
            revision=self.revision,
        )

    def _measure(self) -> tuple[int, int]:
        """Number of blocks and width, from one short pass: configurations name them in too many ways."""
        batch = self.collate(self.tokenize(["a"]), [0])
        with self.evaluating(), quiet_transformers():
            output = self._forward(batch, True)
        if self.source == "pooler" and getattr(output, "pooler_output", None) is None:
            raise LoadingError(f"{self.name}: a {type(self.model).__name__} has no pooler; use source cls")
        return len(output.hidden_states) - 1, int(output.last_hidden_state.shape[-1])


def check_source(source: str, tokenizer: Any, name: str) -> str:
    """``source`` if the encoder can give it.

    Raises
    ------
    OptionError
        If it is unknown, or [CLS] of a model without one: index 0 of a causal model has seen nothing of the text.
    """
    if source not in SOURCES:
        raise OptionError(unknown_name("source", source, SOURCES))
    if source in ("cls", "pooler") and tokenizer.cls_token_id is None:
        others = "|".join(ALTERNATIVES)
        raise OptionError(f"{name} has no [CLS] token; give --source {others} to analyse another vector")
    return source


def check_dtype(dtype: str, model_type: str) -> str:
    """``dtype`` by its full name if the architecture may run in it."""
    full = DTYPE_ALIASES.get(dtype, dtype)
    if full not in DTYPES:
        raise OptionError(unknown_name("dtype", dtype, DTYPES))
    if full == "float16" and model_type in limits.OVERFLOWS_FLOAT16:
        raise OptionError(f"{model_type} overflows in float16 (values beyond 65,504); use float32 or bfloat16")
    return full


def hash_weights(model: Any, *, pooler: bool = False) -> str:
    """Hash of the weights that the vectors depend on; the pooler's count only for source ``pooler``."""
    return hash_tensors(
        (name, tensor) for name, tensor in model.state_dict().items() if pooler or "pooler" not in name.split(".")
    )


def hash_tensors(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """Hash of named tensors: names, types, shapes and values."""
    arrays = []
    for name, tensor in tensors:
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
        arrays.append((f"{name}|{tensor.dtype}|{tuple(tensor.shape)}", raw))
    return hash_arrays(arrays)


def hash_tokenizer(tokenizer: Any) -> str:
    """Hash of what decides the token ids: the fast tokenizer's own description, else vocabulary and special tokens."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
        return hash_text(
            f"{type(tokenizer).__name__}{vocabulary}{tokenizer.special_tokens_map}{tokenizer.truncation_side}"
        )
    # The last call's padding and truncation are part of the description; they are settings of this tool instead.
    clean = type(backend).from_str(backend.to_str())
    clean.no_padding()
    clean.no_truncation()
    return hash_text(clean.to_str() + tokenizer.truncation_side)


def _device(device: str) -> torch.device:
    try:
        if device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        torch.empty(0, device=device)
        return torch.device(device)
    except (RuntimeError, AssertionError) as error:
        raise OptionError(f"device {device!r} cannot be used here ({str(error).splitlines()[0][:120]})") from None
