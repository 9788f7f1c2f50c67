"""A norm merged into the linear layer behind it: the plain Hugging Face model with the same logits."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from cls_analysis.errors import ClsAnalysisError, OptionError
from cls_analysis.normalization.attaching import attached_norms, detach_norm
from cls_analysis.normalization.heads import LinearHeadClassifier
from cls_analysis.normalization.norms import Norm
from cls_analysis.normalization.sites import dummy_logits

#: Largest difference of logits, as a share of the largest one, that rounding may make.
TOLERANCE = 1e-5


def fold_norm(model: Any) -> Any:
    """A new, plain Hugging Face model without norms and with the same logits in evaluation.

    For y = (x − shift)·gain, the layer's weight W becomes W·diag(gain), or W·gainᵀ, and its bias b − W'·shift. A model
    in half precision is folded, and given, in float32.

    Raises
    ------
    OptionError
        If no norm is attached, or one is not affine in evaluation (``layernorm``, ``l2norm``); if a layer has no bias
        to take a shift and its configuration no switch for one; if the head is not the architecture's own.
    ClsAnalysisError
        If the logits differ by more than 1e-5 of the largest one.
    """
    if isinstance(model, LinearHeadClassifier):
        raise OptionError(
            "the head is one linear layer on the raw [CLS], which no stock class has: "
            f"{model.stock_name()} reads it through layers of its own; fine-tune with --head stock to fold"
        )
    found = attached_norms(model)
    if not found:
        raise OptionError(f"{type(model).__name__} has no attached norm to fold")
    affine = {position: _affine(norm) for position, (_, norm) in found.items()}
    if next(model.parameters()).dtype in (torch.float16, torch.bfloat16):
        model = copy.deepcopy(model).float()
    folded = detach_norm(copy.deepcopy(model)).eval()
    for position, (shift, gain) in affine.items():
        name = model.config.cls_norm[position]["linear"]
        _fold(folded, name, shift, gain)
    before, after = dummy_logits(model), dummy_logits(folded)
    difference = float((before - after).abs().max() / before.abs().max().clamp_min(1e-30))
    if not difference <= TOLERANCE:
        raise ClsAnalysisError(f"folding moved the logits by {difference:.1e} of the largest one; nothing was changed")
    return folded


def _affine(norm: Norm) -> tuple[Tensor, Tensor]:
    affine = norm.affine()
    if affine is None:
        raise OptionError(
            f"{norm.name} divides each vector by a length of its own, so no linear layer can do it: it cannot be folded"
        )
    shift, gain = affine
    return shift.double().cpu(), gain.double().cpu()


def _fold(model: Any, name: str, shift: Tensor, gain: Tensor) -> None:
    linear = model.get_submodule(name)
    weight = linear.weight.detach().double().cpu()
    weight = weight * gain if gain.ndim == 1 else weight @ gain.T
    moved = -(weight @ shift)
    if linear.bias is None and bool(moved.any()):
        _switch_bias_on(model, name)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if linear.bias is not None:
            linear.bias.copy_(linear.bias.double().cpu() + moved)


def _switch_bias_on(model: Any, name: str) -> None:
    """Give a layer a bias of zeros, if a switch of the configuration gives it, and only it, one."""
    stock = set(model.state_dict())
    for key, value in vars(model.config).items():
        if "bias" not in key or value is not False:
            continue
        config = copy.deepcopy(model.config)
        setattr(config, key, True)
        with torch.device("meta"):
            names = set(type(model)(config).state_dict())
        if names - stock == {f"{name}.bias"}:
            setattr(model.config, key, True)
            linear = model.get_submodule(name)
            linear.bias = nn.Parameter(torch.zeros(linear.out_features, dtype=linear.weight.dtype))
            linear.bias.data = linear.bias.data.to(linear.weight.device)
            return
    raise OptionError(
        f"{name} has no bias to take the norm's shift, and no switch of {type(model.config).__name__} gives it one; "
        "fold a norm without a shift (scale, isobn)"
    )
