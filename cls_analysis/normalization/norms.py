"""The normalisations as modules from (batch, d) to (batch, d): all state in buffers, float32 inside autocast.

For each: its formula and source, what it does in evaluation, and whether it is affine there, so that it can be folded.

Fixed ones have their statistics from a Profile; tracked ones follow the batches, and use their running statistics in
evaluation, where a batch has one row, and where it is not finite.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cls_analysis.errors import DataError, OptionError
from cls_analysis.statistics.normalizers import ISOBN_BETA, ISOBN_EPS

#: Share of a new batch in the running statistics: torch's for batch norm, IsoBN's released code for its own.
MOMENTUM, ISOBN_MOMENTUM = 0.1, 0.05
EPS = 1e-5
#: What a norm that follows batches warns of in evaluation before the first one.
UNSEEN = "has seen no batch yet: it evaluates with the statistics it began with"


class Norm(nn.Module, ABC):
    """A normalisation of vectors.

    Attributes
    ----------
    name : str
        As ``make_norm`` takes it.
    dim : int
        Number of dimensions d.
    modes_differ : bool
        Whether training normalises by other statistics than evaluation does.
    """

    name: str
    modes_differ = False

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        """Normalise vectors, shape (batch, d).

        Raises
        ------
        DataError
            If the shape is another.
        """
        if x.ndim != 2 or x.shape[1] != self.dim:
            raise DataError(f"{self.name} of dimension {self.dim} takes (batch, {self.dim}), got {tuple(x.shape)}")
        # Half precision has too few digits for a mean that is longer than the spread.
        with torch.autocast(x.device.type, enabled=False):
            return self.normalize(x if x.dtype == torch.float64 else x.float()).to(x.dtype)

    @abstractmethod
    def normalize(self, x: Tensor) -> Tensor:
        """The same in float32 or float64."""

    def affine(self) -> tuple[Tensor, Tensor] | None:
        """Shift (d,) and gain (d,) or (d, d) of y = (x − shift)·gain in evaluation; None where it is not affine."""
        return None

    def options(self) -> dict[str, Any]:
        """What ``make_norm`` takes beside name, dimension and Profile to make it again."""
        return {}

    def extra_repr(self) -> str:
        """What ``print(model)`` shows."""
        return ", ".join(f"{key}={value}" for key, value in {"dim": self.dim, **self.options()}.items())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        # model.half() moves everything; statistics stay in float32 and only follow to the device.
        def keep(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            return tensor.to(moved.device) if moved.dtype in (torch.float16, torch.bfloat16) else moved

        return super()._apply(keep, recurse)  # type: ignore[no-untyped-call]


class NoNorm(Norm):
    """``none``: the vectors as they are, bit for bit, in training and evaluation; affine."""

    name = "none"

    def forward(self, x: Tensor) -> Tensor:
        """Give ``x`` itself."""
        return x

    def normalize(self, x: Tensor) -> Tensor:
        """Give ``x`` itself."""
        return x

    def affine(self) -> tuple[Tensor, Tensor]:
        """Shift 0, gain 1."""
        return torch.zeros(self.dim), torch.ones(self.dim)


class FixedNorm(Norm):
    """``scale``, ``standardize``, ``whiten`` or ``all-but-the-top``: y = (x − shift)·gain, from a Profile.

    The same in training and evaluation, and affine. The formulas and their sources stand in
    ``statistics.normalizers``: ``scale`` x·√(d/E‖x‖²); ``standardize`` (x − μ)/σ; ``whiten`` (Su et al. 2021) and
    ``all-but-the-top`` (Mu and Viswanath 2018) along principal components, their spectrum shrunk. Dead dimensions give
    0, with gain 0, except in ``scale``: fine-tuning could have revived them. ``origin`` says which vectors the
    statistics are of.
    """

    shift: Tensor
    gain: Tensor

    def __init__(self, name: str, shift: Tensor, gain: Tensor, origin: dict[str, Any] | None = None) -> None:
        super().__init__(len(shift))
        self.name = name
        self.origin = origin
        self.register_buffer("shift", shift)
        self.register_buffer("gain", gain)

    def normalize(self, x: Tensor) -> Tensor:
        """Apply it."""
        centred = x - self.shift
        return centred * self.gain if self.gain.ndim == 1 else centred @ self.gain.to(x.dtype)

    def affine(self) -> tuple[Tensor, Tensor]:
        """As it is in training, too."""
        return self.shift, self.gain


class LayerNorm(Norm):
    """``layernorm``: (x − mean)/√(variance + ε) over the dimensions of each row (Ba, Kiros and Hinton 2016).

    The same in training and evaluation. Not affine: each row has a mean and a length of its own.
    """

    name = "layernorm"

    def __init__(self, dim: int, *, eps: float = EPS, affine: bool = False) -> None:
        super().__init__(dim)
        self.eps = check_positive("eps", eps)
        self.weight = nn.Parameter(torch.ones(dim)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim)) if affine else None

    def options(self) -> dict[str, Any]:
        """``eps`` and ``affine``."""
        return {"eps": self.eps, "affine": self.weight is not None}

    def normalize(self, x: Tensor) -> Tensor:
        """The same in training and evaluation."""
        return functional.layer_norm(x, (self.dim,), self.weight, self.bias, self.eps)


class L2Norm(Norm):
    """``l2norm``: x/‖x‖; rows of zeros stay zero.

    The same in training and evaluation. Not affine. Its output has length 1, not √d: the scale that tells normalised
    from rescaled is 1/√E‖x‖² here.
    """

    name = "l2norm"

    def normalize(self, x: Tensor) -> Tensor:
        """The same in training and evaluation."""
        return functional.normalize(x, dim=1, eps=torch.finfo(x.dtype).tiny)


class TrackedNorm(Norm):
    """A normalisation by statistics of the batches, which it follows by exponential averages.

    A batch of one row in training uses the running statistics and leaves them as they are, and so does one that is not
    finite (half precision overflowed): ``n_skipped`` counts those. With gradient accumulation, or on several devices, a
    batch is what one forward pass sees: two halves of a batch are normalised, and followed, one after the other.
    """

    n_updates: Tensor
    n_skipped: Tensor

    def __init__(self, dim: int, momentum: float) -> None:
        super().__init__(dim)
        if not 0.0 < momentum <= 1.0:
            raise OptionError(f"momentum must lie in (0, 1], got {momentum}")
        self.momentum = momentum
        self.register_buffer("n_updates", torch.zeros((), dtype=torch.long))
        self.register_buffer("n_skipped", torch.zeros((), dtype=torch.long))

    def options(self) -> dict[str, Any]:
        """``momentum``."""
        return {"momentum": self.momentum}

    def normalize(self, x: Tensor) -> Tensor:
        """With the batch's statistics in training, with the running ones in evaluation."""
        if not self.training or len(x) < 2:
            if not self.training and not bool(self.n_updates):
                warnings.warn(f"{self.name} {UNSEEN}", stacklevel=3)
            return self.by_running(x)
        with torch.no_grad():
            # Chosen by torch.where, so that no device has to wait for the answer.
            # One value that is not finite makes the sum so, too.
            finite = torch.isfinite(x.sum())
            self.update(x, finite)
            self.n_updates += finite
            self.n_skipped += ~finite
        return self.by_batch(x)

    @abstractmethod
    def update(self, x: Tensor, finite: Tensor) -> None:
        """Move the running statistics towards those of ``x``, if it is ``finite``."""

    @abstractmethod
    def by_running(self, x: Tensor) -> Tensor:
        """Normalise with the running statistics."""

    def by_batch(self, x: Tensor) -> Tensor:
        """Normalise with the batch's own; by default with the running ones, which have just seen it."""
        return self.by_running(x)

    def follow(self, buffer: Tensor, value: Tensor, finite: Tensor) -> None:
        """Buffer ← buffer + momentum·(value − buffer), in place, if ``finite``."""
        buffer.lerp_(torch.where(finite, value.to(buffer.dtype), buffer), self.momentum)


class Center(TrackedNorm):
    """``center``: minus the batch's mean; in evaluation minus the running mean (0 before the first batch), affine."""

    name = "center"
    modes_differ = True
    running_mean: Tensor

    def __init__(self, dim: int, *, momentum: float = MOMENTUM) -> None:
        super().__init__(dim, momentum)
        self.register_buffer("running_mean", torch.zeros(dim))

    def update(self, x: Tensor, finite: Tensor) -> None:
        """Follow the mean."""
        self.follow(self.running_mean, x.mean(dim=0), finite)

    def by_running(self, x: Tensor) -> Tensor:
        """Subtract the running mean."""
        return x - self.running_mean

    def by_batch(self, x: Tensor) -> Tensor:
        """Subtract the batch's mean; the gradient passes through it."""
        return x - x.mean(dim=0)

    def affine(self) -> tuple[Tensor, Tensor]:
        """Shift by the running mean."""
        return self.running_mean, torch.ones_like(self.running_mean)


class BatchNorm(TrackedNorm):
    """``batchnorm``: (x − mean)/√(variance + ε) of the batch (Ioffe and Szegedy 2015); running ones in evaluation.

    Affine in evaluation. As torch's: the batch's variance is the population's (over n), the running one the sample's
    (over n − 1); 0 and 1 before the first batch.
    """

    name = "batchnorm"
    modes_differ = True
    running_mean: Tensor
    running_var: Tensor

    def __init__(self, dim: int, *, momentum: float = MOMENTUM, eps: float = EPS, affine: bool = False) -> None:
        super().__init__(dim, momentum)
        self.eps = check_positive("eps", eps)
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))
        self.weight = nn.Parameter(torch.ones(dim)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim)) if affine else None

    def options(self) -> dict[str, Any]:
        """``momentum``, ``eps`` and ``affine``."""
        return {"momentum": self.momentum, "eps": self.eps, "affine": self.weight is not None}

    def update(self, x: Tensor, finite: Tensor) -> None:
        """Follow mean and variance."""
        # In two passes: torch.var_mean is several times slower over rows.
        mean = x.mean(dim=0)
        variance = (x - mean).square_().sum(dim=0) / (len(x) - 1)
        self.follow(self.running_mean, mean, finite)
        self.follow(self.running_var, variance, finite)

    def by_running(self, x: Tensor) -> Tensor:
        """Normalise with the running mean and variance."""
        return functional.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, False, eps=self.eps
        )

    def by_batch(self, x: Tensor) -> Tensor:
        """Normalise with the batch's; the gradient passes through both."""
        return functional.batch_norm(x, None, None, self.weight, self.bias, True, eps=self.eps)

    def affine(self) -> tuple[Tensor, Tensor]:
        """The running statistics, and the learned weight and bias where there are any."""
        gain = torch.rsqrt(self.running_var + self.eps)
        if self.weight is None or self.bias is None:
            return self.running_mean, gain
        gain = gain * self.weight
        # A bias behind the gain is a shift before it; where the weight is 0 no shift can say it.
        if bool((gain == 0).any()):
            raise OptionError("batchnorm with a learned weight of 0 cannot be written as a shift and a gain")
        return self.running_mean - self.bias / gain, gain


class IsoBN(TrackedNorm):
    """``isobn``: x·θ by running standard deviations and correlations, the mean stays (Zhou, Lin and Ren 2021).

    The same formula in training and evaluation, with running statistics in both; affine in evaluation.
    θ_i = (γ_i σ_i + ε)^−β with γ_i the mean squared correlation of dimension i, rescaled so that the total running
    variance stays. Both averages begin at 0, as in the released code, so that correlations are too large during the
    first fifty batches; ``bias_correction=True`` divides that out. No gradient passes through θ. Identity before the
    first batch, where the released code divides 0 by 0; a correlation with a dead dimension counts as 0.
    """

    name = "isobn"
    covariance: Tensor
    std: Tensor

    def __init__(
        self,
        dim: int,
        *,
        momentum: float = ISOBN_MOMENTUM,
        beta: float = ISOBN_BETA,
        eps: float = ISOBN_EPS,
        bias_correction: bool = False,
    ) -> None:
        super().__init__(dim, momentum)
        self.beta, self.eps = check_positive("beta", beta), check_positive("eps", eps)
        self.bias_correction = bias_correction
        self.register_buffer("covariance", torch.zeros(dim, dim))
        self.register_buffer("std", torch.zeros(dim))

    def options(self) -> dict[str, Any]:
        """``momentum``, ``beta``, ``eps`` and ``bias_correction``."""
        return {
            "momentum": self.momentum,
            "beta": self.beta,
            "eps": self.eps,
            "bias_correction": self.bias_correction,
        }

    def update(self, x: Tensor, finite: Tensor) -> None:
        """Follow covariance and standard deviation, both over n."""
        centred = x - x.mean(dim=0)
        covariance = centred.T @ centred / len(x)
        self.follow(self.covariance, covariance, finite)
        self.follow(self.std, covariance.diagonal().clamp_min(0.0).sqrt(), finite)

    def by_running(self, x: Tensor) -> Tensor:
        """Multiply by θ."""
        return x * self.theta().to(x.dtype)

    @torch.no_grad()
    def theta(self) -> Tensor:
        """The factor of each dimension, shape (d,); 1 before the first batch."""
        covariance, std = self.covariance, self.std
        if self.bias_correction:
            seen = (1.0 - (1.0 - self.momentum) ** self.n_updates.clamp_min(1).to(std.dtype)).to(std.dtype)
            covariance, std = covariance / seen, std / seen
        # Of a standard deviation whose square vanishes, the inverse might be infinite.
        inverse = torch.where(std.square() > 0, 1.0 / std, 0.0)
        correlation = (covariance * inverse).mul_(inverse[:, None]).clamp_(-1.0, 1.0)
        theta = (correlation.square_().mean(dim=1) * std + self.eps) ** -self.beta
        variance = covariance.diagonal()
        theta = theta * torch.sqrt(variance.sum() / ((variance * theta.square()).sum() + self.eps))
        return torch.where(self.n_updates > 0, theta, torch.ones_like(theta))

    def affine(self) -> tuple[Tensor, Tensor]:
        """Gain θ, no shift."""
        return torch.zeros_like(self.std), self.theta()


def check_positive(option: str, value: Any) -> float:
    """``value`` as a positive float, else ``OptionError``."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise OptionError(f"{option} must be a positive number, got {value!r}")
    return float(value)
