"""A norm in front of a linear layer of a Hugging Face classifier: attached, looked up, detached.

The norm becomes a child of that layer, and one hook, which every such layer shares, looks it up there: copies, pickles
and replicas carry both. The names of the stock parameters stay as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cls_analysis.encoder.encoder import hash_weights
from cls_analysis.errors import OptionError, unknown_name
from cls_analysis.normalization.norms import FixedNorm, NoNorm, Norm
from cls_analysis.normalization.sites import POSITIONS, Site, find_sites
from cls_analysis.provenance import versions

#: Name of the norm in its linear layer, of the settings in the model's configuration, and part of the keys in a
#: checkpoint.
KEY = "cls_norm"
#: A buffer that every attached norm has, so that a checkpoint shows that there was one.
MARKER = "attached"


class DeferredDropout(nn.Dropout):
    """A Dropout that lets a norm come before it: what it hands on remembers its input and its mask."""

    def forward(self, x: Tensor) -> Tensor:
        """Drop as ``nn.Dropout`` does, with the same random numbers."""
        if not self.training or self.p == 0.0:
            return x
        mask = functional.dropout(torch.ones_like(x), self.p)
        dropped = x * mask
        dropped.before_dropout = (x, mask)  # type: ignore[attr-defined]
        return dropped


def attach_norm(model: Any, norm: Norm, position: str = "cls", *, label: str | None = None) -> Any:
    """Put a norm in front of a classifier's linear layer, in place.

    Parameters
    ----------
    model : transformers sequence classifier
        Any whose head reads the last hidden state of one token.
    norm : Norm
        As ``make_norm`` gives it.
    position : {"cls", "pooled"}, default "cls"
        ``cls``: what the head's first linear layer reads, the raw vector; ``pooled``: what its second one reads, after
        the activation. A dropout in front of that layer is applied behind the norm instead.
    label : str, optional
        What to call it in tables; recorded in ``config.cls_norm``.

    Returns
    -------
    model
        The same one.

    Raises
    ------
    OptionError
        If there is no such place or it is taken, the width differs, or the norm is made of a Profile of other weights,
        another layer or another source.
    """
    if position not in POSITIONS:
        raise OptionError(unknown_name("position", position, POSITIONS))
    sites = find_sites(model)
    if position in attached_norms(model):
        raise OptionError(f"there is a norm at {position!r} already; detach_norm(model) takes it away")
    if position not in sites:
        raise OptionError(f"{type(model).__name__}: its head is one linear layer, there is no position {position!r}")
    site = sites[position]
    _check_origin(model, norm, position)
    if untrained := untrained_pooler(model, sites["cls"]):
        warnings.warn(f"{untrained}: the pooler's bias is all zero, so it was never trained", stacklevel=2)
    place_norm(model, norm, site)
    settings = dict(getattr(model.config, KEY, None) or {})
    settings[position] = {
        "name": norm.name,
        "label": label or norm.name,
        "linear": site.linear,
        "dropout": site.dropout,
        "dim": norm.dim,
        "options": norm.options(),
        "origin": norm.origin if isinstance(norm, FixedNorm) else None,
        "version": versions()["cls-analysis"][0],
    }
    setattr(model.config, KEY, settings)
    return model


def place_norm(model: Any, norm: Norm, site: Site) -> None:
    """Make the norm a child of the layer of a site, and hook it in.

    Raises
    ------
    OptionError
        If the layer reads vectors of another width.
    """
    linear = model.get_submodule(site.linear)
    if linear.in_features != norm.dim:
        raise OptionError(f"{site.linear} reads {linear.in_features} dimensions, the norm has {norm.dim}")
    norm.register_buffer(MARKER, torch.ones(()))
    setattr(linear, KEY, norm.to(linear.weight.device).train(model.training))
    linear.register_forward_pre_hook(apply_norm)
    if site.dropout is not None and not isinstance(norm, NoNorm):
        model.get_submodule(site.dropout).__class__ = DeferredDropout


def apply_norm(linear: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
    """Give a linear layer its input normalised; a deferred dropout comes behind the norm."""
    norm = getattr(linear, KEY)
    if isinstance(norm, NoNorm):
        return None
    deferred = getattr(args[0], "before_dropout", None)
    if deferred is None:
        return (norm(args[0]), *args[1:])
    x, mask = deferred
    return (norm(x) * mask, *args[1:])


def detach_norm(model: Any, position: str | None = None) -> Any:
    """Take away the norm at a position, or all of them, in place; what ``attach_norm`` changed is put back.

    Raises
    ------
    OptionError
        If there is none.
    """
    found = attached_norms(model)
    if not found or (position is not None and position not in found):
        raise OptionError(f"{type(model).__name__} has no attached norm" + (f" at {position!r}" if position else ""))
    settings = dict(getattr(model.config, KEY))
    for place in [position] if position else list(found):
        site = site_of(place, settings.pop(place))
        linear = model.get_submodule(site.linear)
        delattr(linear, KEY)
        for key, hook in list(linear._forward_pre_hooks.items()):
            if hook is apply_norm:
                del linear._forward_pre_hooks[key]
        if site.dropout is not None and all(site.dropout != other["dropout"] for other in settings.values()):
            model.get_submodule(site.dropout).__class__ = nn.Dropout
    if settings:
        setattr(model.config, KEY, settings)
    else:
        delattr(model.config, KEY)
    return model


def attached_norms(model: Any) -> dict[str, tuple[nn.Linear, Norm]]:
    """The linear layer and the norm at each position where there is one."""
    settings = getattr(model.config, KEY, None) or {}
    layers = {position: model.get_submodule(settings[position]["linear"]) for position in settings}
    return {position: (layer, getattr(layer, KEY)) for position, layer in layers.items() if hasattr(layer, KEY)}


def site_of(position: str, settings: Mapping[str, Any]) -> Site:
    """The site that an entry of ``config.cls_norm`` names."""
    return Site(position, settings["linear"], settings["dropout"])


def untrained_pooler(model: Any, site: Site) -> str | None:
    """The layer at ``cls`` if it is the encoder's pooler and its bias all zero: training would have moved it."""
    linear = model.get_submodule(site.linear)
    of_encoder = any(module is linear for module in model.base_model.modules())
    untrained = of_encoder and linear.bias is not None and not bool(linear.bias.any())
    return site.linear if untrained else None


def _check_origin(model: Any, norm: Norm, position: str) -> None:
    """Refuse statistics of other vectors than those that will come."""
    origin = norm.origin if isinstance(norm, FixedNorm) else None
    if not origin or not origin.get("weights_hash"):
        return  # made of vectors whose encoder is not known
    expected = "pooler" if position == "pooled" else "cls"
    if origin["source"] != expected:
        raise OptionError(
            f"{norm.name} is made of a Profile of source {origin['source']!r}, but position {position!r} has the "
            f"vectors of source {expected!r}"
        )
    if origin["layer"] != origin["n_layers"]:
        raise OptionError(
            f"{norm.name} is made of layer {origin['layer']} of a Profile; the head reads the last one, "
            f"{origin['n_layers']}"
        )
    if origin["weights_hash"] != hash_weights(model.base_model, pooler=expected == "pooler"):
        raise OptionError(f"{norm.name} is made of a Profile of other weights than this model's ({origin['encoder']})")
