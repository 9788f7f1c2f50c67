"""A linear layer on frozen vectors, trained for all seeds, arms and learning rates of a grid together.

The encoder's vectors are computed once. What the runs of a seed share is then shared: the rows of a batch and the
dropout mask by all arms, the normalised rows by all learning rates of an arm. Each run is the one that a loop of its
own over ``torch.optim`` would give, with the same first weights, rows and masks.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from cls_analysis.finetuning.batches import plan_steps, rate_factor
from cls_analysis.finetuning.records import RunResult, count_explosions
from cls_analysis.finetuning.settings import RunSettings
from cls_analysis.normalization.heads import new_linear
from cls_analysis.normalization.norms import FixedNorm, Norm, TrackedNorm
from cls_analysis.tasks import TextTask

#: Steps at which gradients at the encoder's output are measured: the first ones, then evenly.
FIRST_LOGGED, LOGGED = 10, 50
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8
#: Largest dimensions whose share of the gradient is recorded.
TOP = 10


@dataclass(frozen=True)
class Frozen:
    """A task's rows as vectors of a frozen encoder.

    Attributes
    ----------
    task : TextTask
    train, dev : float32 tensors (n, d)
    dropout : float
        Of the vector, behind the norm.
    std : float
        Standard deviation of the head's first weights.
    """

    task: TextTask
    train: Tensor
    dev: Tensor
    dropout: float
    std: float


def train_frozen(
    frozen: Frozen, runs: Sequence[RunSettings], norms: dict[str, Norm]
) -> Iterator[tuple[RunSettings, RunResult]]:
    """Train runs that differ in seed, norm, optimizer, clipping and learning rate alone.

    Parameters
    ----------
    frozen : Frozen
    runs : sequence of RunSettings
        Every (norm, optimizer) among them with the same seeds, clips and rates.
    norms : dict of norm label -> Norm
        As they are before training.
    """
    seeds = sorted({run.seed for run in runs})
    shared = _Shared(frozen, runs, seeds)
    banks: dict[str, list[_Bank]] = {}
    for label in dict.fromkeys(run.norm for run in runs):
        of_norm = [run for run in runs if run.norm == label]
        banks[label] = [
            _Bank([run for run in of_norm if run.optimizer == name], seeds, shared)
            for name in dict.fromkeys(run.optimizer for run in of_norm)
        ]
    seeded = {label: _SeededNorm(norms[label], len(seeds)) for label in banks}
    for step in range(shared.n_steps):
        h, target, mask = shared.batch(step)
        log = step in shared.logged
        for label, of_norm_banks in banks.items():
            if log:
                h = h.detach().requires_grad_()
            with torch.set_grad_enabled(log):
                normalised = seeded[label](h)
            z = normalised.detach() * mask if mask is not None else normalised.detach()
            for bank in of_norm_banks:
                bank.step(step, z, target, _Graph(h, normalised, mask) if log else None)
    for label, of_norm_banks in banks.items():
        dev = seeded[label].on_dev(frozen.dev)
        plans = [plan_steps(len(frozen.dev), shared.recipe.batch_size, 1, run.seed_order) for run in shared.of_seed]
        by_batches = seeded[label].on_dev_by_batches(frozen.dev, plans)
        for bank in of_norm_banks:
            yield from bank.results(dev, by_batches)


class _Shared:
    """What all arms of a seed share: first weights, rows of each step, dropout masks."""

    def __init__(self, frozen: Frozen, runs: Sequence[RunSettings], seeds: Sequence[int]) -> None:
        recipe = runs[0].recipe
        self.frozen, self.recipe = frozen, recipe
        #: A run of each seed.
        self.of_seed = of_seed = [next(run for run in runs if run.seed == seed) for seed in seeds]
        self.plans = [
            plan_steps(len(frozen.train), recipe.batch_size, recipe.epochs, run.seed_order, recipe.steps)
            for run in of_seed
        ]
        self.n_steps = len(self.plans[0])
        self.warmup = int(np.ceil(recipe.warmup * self.n_steps))
        self.dropout = [torch.Generator().manual_seed(run.seed_dropout) for run in of_seed]
        self.target = _as_target(frozen.task)
        evenly = np.linspace(0, self.n_steps - 1, LOGGED).astype(int).tolist()
        self.logged = sorted({*range(min(FIRST_LOGGED, self.n_steps)), *evenly})
        heads = []
        for run in of_seed:
            torch.manual_seed(run.seed_head)
            heads.append(new_linear(frozen.train.shape[1], frozen.task.num_labels, frozen.std).weight.detach())
        #: First weights, shape (seeds, d, classes); biases begin at 0.
        self.heads = torch.stack(heads).transpose(1, 2)

    def batch(self, step: int) -> tuple[Tensor, Tensor, Tensor | None]:
        """Vectors (seeds, rows, d), targets (seeds, rows), and dropout's factors or None."""
        rows = torch.from_numpy(np.stack([plan[step] for plan in self.plans]))
        h = self.frozen.train[rows]
        p = self.frozen.dropout
        if p == 0.0:
            return h, self.target[rows], None
        mask = torch.empty_like(h)
        for seed, generator in enumerate(self.dropout):
            mask[seed].bernoulli_(1.0 - p, generator=generator)
        return h, self.target[rows], mask.div_(1.0 - p)


class _SeededNorm:
    """A norm for each seed: one that follows batches has a state for each, the others serve all."""

    def __init__(self, norm: Norm, seeds: int) -> None:
        tracked = isinstance(norm, TrackedNorm)
        self.norms = [copy.deepcopy(norm).train() for _ in range(seeds if tracked else 1)]
        # A product with a matrix rounds by the number of rows in it: seed by seed, so that none depends on the others.
        self.one_by_one = tracked or (isinstance(norm, FixedNorm) and norm.gain.ndim == 2)

    def __call__(self, h: Tensor) -> Tensor:
        """Normalise (seeds, rows, d)."""
        if self.one_by_one:
            return torch.stack([norm.forward(rows) for norm, rows in zip(itertools.cycle(self.norms), h, strict=False)])
        return self.norms[0].forward(h.reshape(-1, h.shape[2])).reshape(h.shape)

    @torch.no_grad()
    def on_dev(self, x: Tensor) -> list[Tensor]:
        """Development rows as each seed's norm has them in evaluation."""
        return [norm.eval().forward(x) for norm in self.norms]

    @torch.no_grad()
    def on_dev_by_batches(self, x: Tensor, plans: Sequence[list[NDArray[np.int64]]]) -> list[Tensor] | None:
        """Development rows with the statistics of the batches of each seed's plan; None where that is the same."""
        if not self.norms[0].modes_differ:
            return None
        found = [torch.empty_like(x) for _ in self.norms]
        for norm, plan, rows_out in zip(self.norms, plans, found, strict=True):
            training = copy.deepcopy(norm).train()
            for rows in plan:
                rows_out[rows] = training.forward(x[rows])
        return found


@dataclass(frozen=True)
class _Graph:
    """What gradients at the encoder's output are computed from."""

    h: Tensor
    normalised: Tensor
    mask: Tensor | None


class _Bank:
    """Linear layers of one norm and optimizer, for all seeds, clips and rates; weights (seeds, d, columns).

    A column is one class of one variant, a variant a clip and a rate.
    """

    def __init__(self, runs: Sequence[RunSettings], seeds: Sequence[int], shared: _Shared) -> None:
        self.shared, self.seeds = shared, seeds
        self.runs = {(run.seed, run.clip, run.learning_rate): run for run in runs}
        self.variants = list(dict.fromkeys((run.clip, run.learning_rate) for run in runs))
        self.classes = shared.frozen.task.num_labels
        self.adamw = runs[0].optimizer == "adamw"
        v = len(self.variants)
        self.weight = shared.heads.repeat(1, 1, v).contiguous()
        self.bias = torch.zeros(len(seeds), 1, v * self.classes)
        self.rates = torch.tensor([rate for _, rate in self.variants]).repeat_interleave(self.classes)
        self.clips = torch.tensor([float("inf") if clip is None else clip for clip, _ in self.variants])
        self.state = [torch.zeros_like(tensor) for tensor in (self.weight, self.weight, self.bias, self.bias)]
        self.updates = torch.zeros(len(seeds), v, dtype=torch.long)
        self.losses = torch.empty(shared.n_steps, len(seeds), v)
        self.norms = torch.empty(shared.n_steps, len(seeds), v)
        self.logged: list[dict[str, Any]] = []

    @torch.no_grad()
    def step(self, step: int, z: Tensor, target: Tensor, graph: _Graph | None) -> None:
        """One step of all runs on rows ``z`` (seeds, rows, d), with targets (seeds, rows)."""
        logits = torch.baddbmm(self.bias, z, self.weight)
        losses, residual = _loss(self._by_variant(logits), target)
        self.losses[step] = losses.mean(dim=1)
        residual = residual.reshape(logits.shape)
        gradients = torch.bmm(z.transpose(1, 2), residual), residual.sum(dim=1, keepdim=True)
        norms = self._norms(*gradients)
        self.norms[step] = norms
        factor = rate_factor(step, self.shared.n_steps, self.shared.warmup)
        measured = None if graph is None else self._measure(step, factor, graph, residual, norms)
        before = (self.weight.clone(), self.bias.clone()) if measured else (self.weight, self.bias)
        self._update(gradients, norms, factor)
        if measured is not None:
            size = self._norms(*before)
            measured["update_ratio_head"] = self._norms(self.weight - before[0], self.bias - before[1]) / size
            measured["gradient_ratio_head"] = norms / size
            self.logged.append(measured)

    def _update(self, gradients: tuple[Tensor, Tensor], norms: Tensor, factor: float) -> None:
        finite = torch.isfinite(norms)
        everything = (self.weight, self.bias, *self.state)
        kept = None if bool(finite.all()) else [tensor.clone() for tensor in everything]
        # As torch.nn.utils.clip_grad_norm_ does.
        shares = (self.clips / (norms + 1e-6)).clamp(max=1.0).repeat_interleave(self.classes, dim=1)[:, None]
        self.updates += finite
        rates = self.rates * factor
        decay = 1.0 - rates * self.shared.recipe.weight_decay
        if self.adamw:
            self.weight *= decay
            for parameter, gradient, mean, square in (
                (self.weight, gradients[0], self.state[0], self.state[1]),
                (self.bias, gradients[1], self.state[2], self.state[3]),
            ):
                self._adam(parameter, gradient * shares, mean, square, rates)
        else:
            # torch.optim.SGD adds the decay to the gradient, behind clipping.
            self.weight *= decay
            self.weight -= gradients[0] * shares * rates
            self.bias -= gradients[1] * shares * rates
        if kept is not None:
            columns = finite.repeat_interleave(self.classes, dim=1)[:, None]
            for tensor, old in zip(everything, kept, strict=True):
                tensor.copy_(torch.where(columns, tensor, old))

    def _adam(self, parameter: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, rates: Tensor) -> None:
        """AdamW with bias correction (Loshchilov and Hutter 2019), as torch's; the decay is done."""
        mean.lerp_(gradient, 1.0 - BETA1)
        square.mul_(BETA2).addcmul_(gradient, gradient, value=1.0 - BETA2)
        # A run whose step was skipped has made fewer.
        made = self.updates.clamp_min(1).repeat_interleave(self.classes, dim=1)[:, None].double()
        first = (rates.double() / (1.0 - BETA1**made)).float()
        second = torch.sqrt(1.0 - BETA2**made).float()
        parameter -= mean / (square.sqrt() / second + EPS) * first

    def _measure(self, step: int, factor: float, graph: _Graph, residual: Tensor, norms: Tensor) -> dict[str, Any]:
        """Gradients at the linear layer's input and at the encoder's output, per example (times the batch size)."""
        rows = graph.h.shape[1]
        size = graph.h.detach().square().sum(dim=2).mean(dim=1).sqrt()
        std = graph.h.detach().std(dim=1, correction=0)
        at_layer, at_output, share = [], [], []
        for v in range(len(self.variants)):
            columns = slice(v * self.classes, (v + 1) * self.classes)
            gradient = torch.bmm(residual[:, :, columns], self.weight[:, :, columns].transpose(1, 2)) * rows
            at_layer.append(gradient.norm(dim=2).mean(dim=1))
            if graph.mask is not None:
                gradient = gradient * graph.mask
            with torch.enable_grad():
                (at_h,) = torch.autograd.grad(graph.normalised, graph.h, gradient, retain_graph=True)
            at_output.append(at_h.norm(dim=2).mean(dim=1))
            share.append(top_share(at_h, std))
        h_gradient = torch.stack(at_output, dim=1)
        return {
            "step": step,
            "rate_factor": factor,
            "h_gradient": h_gradient,
            "z_gradient": torch.stack(at_layer, dim=1),
            "h_gradient_scaled": h_gradient * size[:, None],
            "top10_share": torch.stack(share, dim=1),
        }

    def results(
        self, dev: Sequence[Tensor], by_batches: Sequence[Tensor] | None
    ) -> Iterator[tuple[RunSettings, RunResult]]:
        """Predictions and measures of each run; ``dev`` has one tensor, or one a seed, and so has ``by_batches``."""
        exploded = count_explosions(self.norms.reshape(self.shared.n_steps, -1).numpy()).reshape(self.norms.shape[1:])
        steps = self._step_arrays()
        for s, seed in enumerate(self.seeds):
            logits = self._logits(s, dev)
            logits_by_batches = None if by_batches is None else self._logits(s, by_batches)
            for v, (clip, rate) in enumerate(self.variants):
                columns = slice(v * self.classes, (v + 1) * self.classes)
                of_batches = None if logits_by_batches is None else _predictions(logits_by_batches[:, columns])
                norms = self.norms[:, s, v].numpy()
                counts = {
                    "steps": self.shared.n_steps,
                    "examples": sum(len(rows) for rows in self.shared.plans[s]),
                    "skipped": int((~np.isfinite(norms)).sum()),
                    "exploded": int(exploded[s, v]),
                    "clipped_share": 0.0 if clip is None else float((norms > clip).mean()),
                    "max_cls_gradient_norm": float(np.nanmax(steps["h_gradient"][:, s, v])),
                }
                table = pd.DataFrame({name: values[:, s, v] for name, values in steps.items()})
                table.insert(0, "learning_rate", rate * np.array([each["rate_factor"] for each in self.logged]))
                table.insert(0, "step", [each["step"] for each in self.logged])
                result = RunResult(_predictions(logits[:, columns]), table, counts, by_batches=of_batches)
                yield self.runs[seed, clip, rate], result

    def _logits(self, seed: int, rows: Sequence[Tensor]) -> Tensor:
        return rows[seed if len(rows) > 1 else 0] @ self.weight[seed] + self.bias[seed]

    def _step_arrays(self) -> dict[str, NDArray[Any]]:
        """Measures at the logged steps, each (logged, seeds, variants); the loss is the mean since the one before."""
        marks = [each["step"] for each in self.logged]
        starts = [0, *(mark + 1 for mark in marks[:-1])]
        means = [self.losses[a : b + 1].mean(dim=0) for a, b in zip(starts, marks, strict=True)]
        arrays = {"loss": torch.stack(means).numpy(), "gradient_norm": self.norms[marks].numpy()}
        for name in ("h_gradient", "z_gradient", "h_gradient_scaled", "top10_share"):
            arrays[name] = torch.stack([each[name] for each in self.logged]).numpy()
        for name in ("gradient_ratio_head", "update_ratio_head"):
            arrays[name] = torch.stack([each[name] for each in self.logged]).numpy()
        return arrays

    def _by_variant(self, logits: Tensor) -> Tensor:
        return logits.reshape(*logits.shape[:2], len(self.variants), self.classes)

    def _norms(self, weight: Tensor, bias: Tensor) -> Tensor:
        """Norm over the weights and biases of each run, shape (seeds, variants)."""
        squares = weight.square().sum(dim=1, keepdim=True) + bias.square()
        return self._by_variant(squares).sum(dim=(1, 3)).sqrt()


def top_share(gradient: Tensor, std: Tensor) -> Tensor:
    """Share of the ten largest dimensions in Σ_i g_i²σ_i², g_i the root mean square over rows; reduces (…, rows, d)."""
    energy = gradient.square().mean(dim=-2) * std.square()
    top = energy.topk(min(TOP, energy.shape[-1]), dim=-1).values.sum(dim=-1)
    return top / energy.sum(dim=-1)


def _loss(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of each row, (seeds, rows, variants), and the gradient of the mean loss at the logits (…, classes)."""
    rows = logits.shape[1]
    if logits.shape[3] == 1:
        difference = logits - target[:, :, None, None]
        return difference[..., 0].square(), 2.0 * difference / rows
    log_p = torch.log_softmax(logits, dim=3)
    index = target[:, :, None, None].expand(-1, -1, logits.shape[2], 1)
    losses = -log_p.gather(3, index)[..., 0]
    return losses, log_p.exp().scatter_add_(3, index, torch.full_like(losses[..., None], -1.0)).div_(rows)


def _as_target(task: TextTask) -> Tensor:
    target = torch.from_numpy(task.train_target)
    return target.float() if task.classes is None else target


def _predictions(logits: Tensor) -> NDArray[Any]:
    if logits.shape[1] == 1:
        return logits[:, 0].double().numpy()
    return logits.argmax(dim=1).numpy()
