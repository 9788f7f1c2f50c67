"""What a training step does: gradients at the encoder's output and by block, and the vectors' moments as they move."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cls_analysis.finetuning.frozen import top_share
from cls_analysis.matrices import profile_vectors
from cls_analysis.normalization.sites import Site
from cls_analysis.statistics.intervals import main_figures

#: Steps between two measures of the update's size, which take a copy of the weights.
UPDATE_EVERY = 10
#: Figures of the vectors that are followed.
MOMENTS = ("common_mean_share", "average_cosine", "top1_energy_share", "std_ratio", "isoscore", "mean_abs_correlation")


class GradientWatch:
    """Keeps the vector that a norm is given, what the linear layer is given, and the gradients at both.

    The vector h is taken before any dropout in front of the layer. Nothing is changed, except that a vector without a
    history (of a frozen encoder) is given one, so that it has a gradient.
    """

    def __init__(self, model: Any, site: Site) -> None:
        self.h: Tensor | None = None
        self.h_gradient: Tensor | None = None
        self.z_gradient: Tensor | None = None
        linear = model.get_submodule(site.linear)
        # The dropout in front of the layer sees h first; RoBERTa's is called again later on.
        if site.dropout is not None:
            model.get_submodule(site.dropout).register_forward_pre_hook(self._take_h)
        else:
            linear.register_forward_pre_hook(self._take_h, prepend=True)
        linear.register_forward_pre_hook(self._take_z)

    def clear(self) -> None:
        """Forget the last step's."""
        self.h = self.h_gradient = self.z_gradient = None

    def measures(self) -> dict[str, float]:
        """Of the last backward pass, per example: the gradient of the mean loss times the batch size."""
        if self.h is None or self.h_gradient is None or self.z_gradient is None:
            raise RuntimeError("no backward pass has been seen")
        h, rows = self.h.float(), len(self.h)
        gradient = self.h_gradient.float() * rows
        length = float(gradient.norm(dim=1).mean())
        share = top_share(gradient, h.std(dim=0, correction=0))
        return {
            "h_gradient": length,
            "z_gradient": float((self.z_gradient.float() * rows).norm(dim=1).mean()),
            "h_gradient_scaled": length * float(h.square().sum(dim=1).mean().sqrt()),
            "top10_share": float(share),
        }

    def _take_h(self, module: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        if self.h is not None or not torch.is_grad_enabled():
            return None
        x = args[0]
        given = x if x.requires_grad else x.detach().requires_grad_()
        self.h = given.detach()
        _on_gradient(given, self._take_h_gradient)
        return None if given is x else (given, *args[1:])

    def _take_z(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        if args[0].requires_grad:
            _on_gradient(args[0], self._take_z_gradient)

    def _take_h_gradient(self, gradient: Tensor) -> None:
        self.h_gradient = gradient.detach()

    def _take_z_gradient(self, gradient: Tensor) -> None:
        self.z_gradient = gradient.detach()


class BlockNorms:
    """Sizes of gradients and updates against the weights', by block: embeddings, each layer, head."""

    def __init__(self, model: nn.Module) -> None:
        self.blocks: dict[str, list[nn.Parameter]] = {}
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                self.blocks.setdefault(block_of(name), []).append(parameter)
        self.before: dict[str, list[Tensor]] = {}

    def total(self) -> float:
        """Norm of the whole gradient, before clipping."""
        return _norm([p.grad for p in self.parameters if p.grad is not None])

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All that is trained."""
        return [parameter for block in self.blocks.values() for parameter in block]

    def gradient_ratios(self) -> dict[str, float]:
        """Gradient norm over weight norm of each block."""
        return {
            f"gradient_ratio_{name}": _norm([p.grad for p in block if p.grad is not None]) / _norm(block)
            for name, block in self.blocks.items()
        }

    @torch.no_grad()
    def remember(self) -> None:
        """Keep the weights as they are before a step."""
        self.before = {name: [p.detach().clone() for p in block] for name, block in self.blocks.items()}

    @torch.no_grad()
    def update_ratios(self) -> dict[str, float]:
        """Norm of the change since ``remember`` over that of the weights then, of each block."""
        ratios = {
            f"update_ratio_{name}": _norm([p - old for p, old in zip(self.blocks[name], before, strict=True)])
            / _norm(before)
            for name, before in self.before.items()
        }
        self.before = {}
        return ratios


def block_of(name: str) -> str:
    """The block of a parameter by its name: ``embeddings``, ``layer0``, …, else ``head``."""
    if match := re.search(r"(?:^|\.)(?:layers?|albert_layers|block|h)\.(\d+)\.", name):
        return f"layer{match[1]}"
    return "embeddings" if "embedding" in name else "head"


def moments_of(vectors: Tensor) -> dict[str, float]:
    """Main figures of vectors (n, d), and the lengths of their mean and of themselves."""
    rows = vectors.double().cpu().numpy()
    layer = profile_vectors(vectors.float().cpu().numpy())[-1]
    figures: Mapping[str, float] = main_figures(rows, layer.living) if not layer.collapsed else {}
    return {
        "norm_of_mean": float(np.linalg.norm(rows.mean(axis=0))),
        "rms_norm": float(np.sqrt((rows**2).sum(axis=1).mean())),
        **{name: figures.get(name, float("nan")) for name in MOMENTS},
    }


def _norm(tensors: Sequence[Tensor]) -> float:
    if not tensors:
        return 0.0
    return float(torch.linalg.vector_norm(torch.stack(torch._foreach_norm([tensor.detach() for tensor in tensors]))))


def _on_gradient(tensor: Any, call: Callable[[Tensor], None]) -> None:
    tensor.register_hook(call)
