"""``make_norm``: a normalisation by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch

from cls_analysis.errors import LoadingError, OptionError, one_line, unknown_name
from cls_analysis.normalization.norms import BatchNorm, Center, FixedNorm, IsoBN, L2Norm, LayerNorm, NoNorm, Norm
from cls_analysis.profiles import Profile
from cls_analysis.provenance import hash_text
from cls_analysis.statistics.normalizers import NORMALIZERS, Affine

#: Names of buffers and parameters, and their values.
State = Mapping[str, torch.Tensor]
#: Made of a number of dimensions: they need no statistics, or follow those of the batches.
OF_DIMENSION: dict[str, Callable[..., Norm]] = {
    "none": NoNorm,
    "center": Center,
    "batchnorm": BatchNorm,
    "layernorm": LayerNorm,
    "l2norm": L2Norm,
    "isobn": IsoBN,
}
#: Made of a Profile.
OF_PROFILE = ("scale", "standardize", "whiten", "all-but-the-top")
NAMES = ("none", "scale", "center", "standardize", "batchnorm", "layernorm", "l2norm", "isobn", *OF_PROFILE[2:])


def make_norm(
    name: str, *, dim: int | None = None, profile: Profile | None = None, layer: int = -1, **options: Any
) -> Norm:
    """A normalisation as a module, (batch, d) to (batch, d).

    Parameters
    ----------
    name : {"none", "scale", "center", "standardize", "batchnorm", "layernorm", "l2norm", "isobn", "whiten", \
"all-but-the-top"}
    dim : int, optional
        Number of dimensions d; taken from the Profile where one is given.
    profile : Profile, optional
        Where ``scale``, ``standardize``, ``whiten`` and ``all-but-the-top`` have their statistics from.
    layer : int, default -1
        Its layer.
    **options
        ``momentum`` of ``center``, ``batchnorm`` and ``isobn``; ``eps`` of ``batchnorm``, ``layernorm`` and ``isobn``;
        ``affine`` of ``batchnorm`` and ``layernorm``; ``beta`` and ``bias_correction`` of ``isobn``.

    Raises
    ------
    OptionError
        If the name or an option is unknown, or what the normalisation is made of is missing.
    """
    if name not in NAMES:
        raise OptionError(unknown_name("normalization", name, NAMES))
    if name in OF_PROFILE:
        if profile is None:
            raise OptionError(f"{name} is made of a Profile: make_norm({name!r}, profile=…)")
        _check_options(name, options, ())
        _check_dim(name, dim, profile)
        return _fixed(name, profile, layer)
    _check_dim(name, dim, profile)
    if dim is None and profile is None:
        raise OptionError(f"{name} needs the number of dimensions: make_norm({name!r}, dim=…)")
    make = OF_DIMENSION[name]
    known = [p for p in inspect.signature(make).parameters if p not in ("dim", "self")]
    _check_options(name, options, known)
    return make(profile.dim if dim is None and profile else dim, **options)


def _fixed(name: str, profile: Profile, layer: int) -> FixedNorm:
    held = profile[layer]
    if held.collapsed:
        raise OptionError(f"{name}: layer {profile.resolve_layer(layer)} is one vector for all texts")
    made = NORMALIZERS[name](held)
    assert isinstance(made, Affine)
    shift, gain = (torch.from_numpy(array.astype("float32")) for array in (made.shift, made.gain))
    return FixedNorm(name, shift, gain, _origin(profile, layer))


def _origin(profile: Profile, layer: int) -> dict[str, Any]:
    """Which vectors the statistics are of; the encoder is None where it is not known."""
    provenance = profile.provenance
    encoder = provenance.encoder
    return {
        "encoder": encoder.name if encoder else None,
        "weights_hash": encoder.weights_hash if encoder else None,
        "source": provenance.source,
        "layer": profile.resolve_layer(layer),
        "n_layers": encoder.n_layers if encoder else None,
        "n": profile.n,
        "profile": hash_text(provenance.to_json()),
    }


def restore_norm(name: str, dim: int, options: dict[str, Any], origin: dict[str, Any] | None, state: State) -> Norm:
    """A norm as it was saved.

    Raises
    ------
    LoadingError
        If the state is not that of such a norm.
    """
    try:
        if name in OF_PROFILE:
            norm: Norm = FixedNorm(name, torch.zeros_like(state["shift"]), torch.zeros_like(state["gain"]), origin)
        else:
            norm = make_norm(name, dim=dim, **options)
        norm.load_state_dict(state)
    except (KeyError, RuntimeError) as error:
        raise LoadingError(f"the saved state is not that of the norm {name!r} ({one_line(error, 160)})") from None
    return norm


def _check_dim(name: str, dim: int | None, profile: Profile | None) -> None:
    if profile is not None and dim is not None and dim != profile.dim:
        raise OptionError(f"{name}: dim={dim}, but the Profile has {profile.dim} dimensions")
    if dim is not None and dim < 1:
        raise OptionError(f"{name}: dim must be at least 1, got {dim}")


def _check_options(name: str, options: dict[str, Any], known: list[str] | tuple[str, ...]) -> None:
    for option in options:
        if option not in known:
            raise OptionError(
                unknown_name(f"option of {name}", option, known)
                if known
                else f"{name} takes no options, got {option!r}"
            )
