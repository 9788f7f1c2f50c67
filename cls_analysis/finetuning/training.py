"""One run: a model trained by transformers' ``Trainer``, its steps measured."""

from __future__ import annotations

import copy
import math
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from cls_analysis.encoder.encoder import hash_tensors, hash_weights
from cls_analysis.encoder.loading import quiet_transformers
from cls_analysis.finetuning.answering import AnswerRows
from cls_analysis.finetuning.batches import plan_steps, rate_factor
from cls_analysis.finetuning.layers import blocks_of, choose_trained, frozen_weights, without_dropout
from cls_analysis.finetuning.measures import UPDATE_EVERY, BlockNorms, GradientWatch, moments_of
from cls_analysis.finetuning.models import Base
from cls_analysis.finetuning.parsing import BiaffineParser, TreeRows
from cls_analysis.finetuning.prefix import BlockForm, Injection, Prefix
from cls_analysis.finetuning.records import RunResult, count_explosions
from cls_analysis.finetuning.rows import Rows, TextRows, predict
from cls_analysis.finetuning.settings import RunSettings
from cls_analysis.matrices import profile_vectors
from cls_analysis.normalization import attach_norm, attached_norms, make_norm
from cls_analysis.normalization.making import OF_PROFILE
from cls_analysis.normalization.norms import UNSEEN, Norm
from cls_analysis.normalization.sites import Site, evaluating, find_sites
from cls_analysis.profiles import Profile
from cls_analysis.provenance import canonical_json, hash_text
from cls_analysis.tasks import AnsweringTask, ParsingTask, Task, TextTask

#: How often in a run the vectors' moments are measured, and on how many development rows.
MOMENT_POINTS, MOMENT_ROWS = 10, 256


@dataclass(frozen=True)
class Data:
    """A task's rows, tokenised, and the Profile that replaces the measured one at ``cls``, if one is given.

    ``watched`` are the development rows whose moments are followed; none where a task does not read [CLS].
    """

    task: Task
    train: Rows
    dev: Rows
    watched: Rows | None = None
    profile: Profile | None = None

    @classmethod
    def of(cls, base: Base, task: Task, profile: Profile | None = None) -> Data:
        """Tokenise a task."""
        if isinstance(task, ParsingTask):
            return cls(task, TreeRows(base, task, task.train), TreeRows(base, task, task.dev))
        if isinstance(task, AnsweringTask):
            return cls(task, AnswerRows(base, task.train), AnswerRows(base, task.dev))
        assert isinstance(task, TextTask)
        evenly = np.unique(np.linspace(0, len(task.dev) - 1, MOMENT_ROWS).astype(int))
        watched = TextRows(base, task.dev.take(evenly), task.dev_target[evenly])
        train, dev = TextRows(base, task.train, task.train_target), TextRows(base, task.dev, task.dev_target)
        return cls(task, train, dev, watched, profile)

    def rows(self) -> dict[str, Rows]:
        """All of them, by what they are for."""
        named = {"train": self.train, "dev": self.dev, "watched": self.watched}
        return {name: rows for name, rows in named.items() if rows is not None}


def train_run(base: Base, data: Data, settings: RunSettings, scratch: Path | None = None) -> tuple[Any, RunResult]:
    """Train one run; gives the model, in evaluation mode, and what came out.

    Parameters
    ----------
    base : Base
        The whole encoder; what a run cuts off, it cuts off here.
    data : Data
    settings : RunSettings
    scratch : Path, optional
        Folder for the states of a frozen prefix, where runs share them.
    """
    start = time.perf_counter()
    layers = settings.layers
    if layers.kept is not None:
        base = base.truncated(layers.kept)
    model = make_model(base, data.task, settings.seed_head)
    # The check below runs in the model as it is before anything is trained.
    choose_trained(model, settings.train, layers.frozen)
    before = hash_tensors(frozen_weights(model))
    norm = None
    own = tempfile.TemporaryDirectory(prefix="cls-analysis-")
    with own, quiet_transformers(), warnings.catch_warnings():
        # The untrained pooler is told once for the whole grid; moments are measured before the first step, too.
        warnings.filterwarnings("ignore", message=f".*never trained|.*{UNSEEN}")
        site, positions = None, {}
        if isinstance(data.task, TextTask):
            positions = find_sites(model)
            site = positions["cls"]
        with frozen_prefix(base, model, data, layers.frozen, scratch or Path(own.name)):
            if positions:
                norm = make_run_norm(model, positions[settings.position], data, settings)
                attach_norm(model, norm, settings.position, label=settings.norm)
            trainer, steps = _trainer(model, data, settings, site)
            trainer.args.output_dir = own.name
            trainer.train()
            model.eval()
            predicted = steps.best if steps.best is not None else predict(model, data.dev)
            by_batches = None
            if norm is not None and norm.modes_differ and steps.best is None:
                by_batches = predict_by_batches(model, data.dev, settings)
    if (after := hash_tensors(frozen_weights(model))) != before:
        raise RuntimeError(f"{settings.run_id}: frozen weights have moved")
    counts, table = steps.finish()
    notes = {
        "seconds": time.perf_counter() - start,
        "untrained": list(base.untrained),
        "threads": torch.get_num_threads(),
        "trained_parameters": sum(weight.numel() for weight in model.parameters() if weight.requires_grad),
        "frozen_parameters": sum(weight.numel() for _, weight in frozen_weights(model)),
        "frozen_weights": before,
        "frozen_weights_after": after,
    } | {f"lost_{name}": rows.n_lost for name, rows in data.rows().items() if rows.n_lost}
    moments = pd.DataFrame(steps.moments) if steps.moments else None
    return model, RunResult(predicted, table, counts, moments, notes, by_batches)


def make_model(base: Base, task: Task, seed: int) -> Any:
    """A fresh model for a kind of task: classifier, parser, or one that marks answers."""
    if isinstance(task, ParsingTask):
        return BiaffineParser(base.fresh_encoder(), len(task.relations), seed).to(base.encoder.device)
    if isinstance(task, AnsweringTask):
        return base.answerer(seed)
    assert isinstance(task, TextTask)
    return base.classifier(task.num_labels, seed)


@contextmanager
def frozen_prefix(base: Base, model: Any, data: Data, k: int | None, scratch: Path) -> Iterator[None]:
    """Inside, blocks 1 to k are not computed: their states, the same at each step, are read from ``scratch``."""
    blocks = blocks_of(base.encoder.model)
    if not k or blocks is None:
        yield
        return
    for name, rows in data.rows().items():
        rows.prefix = Prefix.of(base.encoder, rows.tokens, k, scratch / f"{prefix_key(base, rows)}-{k}-{name}.npy")
    injection = Injection(model, list(blocks_of(model.base_model) or [])[:k], BlockForm.of(base.encoder, blocks[0]))
    try:
        yield
    finally:
        injection.remove()
        for rows in data.rows().values():
            rows.prefix = None


def prefix_key(base: Base, rows: Rows) -> str:
    """What the states of rows depend on, beside the number of blocks, as a short hash."""
    tokens = canonical_json([rows.tokens.ids, rows.tokens.segments])
    return hash_text(hash_weights(base.encoder.model) + base.encoder.dtype + tokens)[:12]


def make_run_norm(model: Any, site: Site, data: Data, settings: RunSettings) -> Norm:
    """The norm of a run; one that needs a Profile is made of the training rows where it will stand."""
    name, dim = settings.norm_name, model.get_submodule(site.linear).in_features
    if name not in OF_PROFILE:
        return make_norm(name, dim=dim, **settings.norm_options)
    if data.profile is not None and settings.position == "cls":
        return make_norm(name, profile=data.profile, **settings.norm_options)
    return make_norm(name, profile=profile_vectors(vectors_at(model, site, data.train)), **settings.norm_options)


def vectors_at(model: Any, site: Site, rows: Rows) -> NDArray[np.float32]:
    """What the linear layer of a site is given for each row, in evaluation mode, shape (n, d)."""
    found = np.empty((len(rows), model.get_submodule(site.linear).in_features), dtype=np.float32)
    seen: list[Tensor] = []
    hook = model.get_submodule(site.linear).register_forward_pre_hook(
        lambda module, args: seen.append(args[0].detach().float().cpu()), prepend=True
    )
    try:
        with evaluating(model):
            for batch, _ in rows.outputs(model):
                found[batch] = seen.pop().numpy()
    finally:
        hook.remove()
    return found


def predict_by_batches(model: Any, rows: Rows, settings: RunSettings) -> NDArray[Any]:
    """Predictions with each batch normalised by its own statistics, as in training; the norm's are left as they are.

    Batches are drawn as training's are: of rows in their order, or by length, statistics would be others.
    """
    norm = attached_norms(model)[settings.position][1]
    state = copy.deepcopy(norm.state_dict())
    plan = plan_steps(len(rows), settings.recipe.batch_size, 1, settings.seed_order)
    try:
        with evaluating(model):
            norm.train()
            return rows.predictions(model, plan)
    finally:
        norm.load_state_dict(state)


def _trainer(model: Any, data: Data, settings: RunSettings, site: Site | None) -> tuple[Any, _Steps]:
    recipe = settings.recipe
    plan = plan_steps(len(data.train), recipe.batch_size, recipe.epochs, settings.seed_order, recipe.steps)
    warmup = math.ceil(recipe.warmup * len(plan))
    arguments = transformers.TrainingArguments(
        output_dir="unused",
        learning_rate=settings.learning_rate,
        weight_decay=recipe.weight_decay,
        max_grad_norm=settings.clip or 0.0,
        optim="adamw_torch_fused" if settings.optimizer == "adamw" else "sgd",
        num_train_epochs=1,
        per_device_train_batch_size=recipe.batch_size,
        lr_scheduler_type="constant",
        bf16=settings.dtype == "bfloat16",
        seed=settings.seed_dropout,
        use_cpu=data.train.encoder.device.type == "cpu",
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_pin_memory=False,
    )
    if arguments.n_gpu > 1:
        arguments._n_gpu = 1  # one run, one device: replicas would each normalise a part of the batch
    steps = _Steps(model, data, settings, site, len(plan), warmup)
    trainer = _Trainer(model=model, args=arguments, plan=plan, rows=data.train, steps=steps, callbacks=[steps])
    trainer.remove_callback(transformers.PrinterCallback)
    return trainer, steps


class _Trainer(transformers.Trainer):
    """Trains on a plan of rows instead of a data set, and lets each step be measured before the gradient is clipped."""

    def __init__(self, *, plan: list[NDArray[np.int64]], rows: Rows, steps: _Steps, **options: Any) -> None:
        self._plan, self._rows, self._steps = plan, rows, steps
        super().__init__(train_dataset=range(len(rows)), **options)

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Batches of the plan, all epochs in one."""
        numbers: Any = range(len(self._rows))
        plan: Any = self._plan
        return DataLoader(numbers, batch_sampler=plan, collate_fn=self._rows.batch)

    def create_scheduler(self, num_training_steps: int, optimizer: Any = None) -> Any:
        """Linear rise and fall, as heads on frozen vectors have it."""
        chosen: Any = optimizer or self.optimizer
        total, warmup = self._steps.total, self._steps.warmup
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(chosen, lambda step: rate_factor(step, total, warmup))
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """The mean loss of the task's kind."""
        settings = self._steps.settings
        # The Trainer has just put everything in training mode; dropout in a frozen encoder would move its vectors.
        without_dropout(self._steps.model, settings.train, settings.layers)
        loss, outputs = self._rows.loss(model, inputs)
        return (loss, outputs) if return_outputs else loss

    def training_step(self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """Forward and backward; then the step is measured, and its gradient dropped if it is not finite."""
        rows = len(inputs["input_ids"])
        self._steps.begin()
        loss: Tensor = super().training_step(model, inputs, None)
        self._steps.measure(float(loss), rows)
        return loss


class _Steps(transformers.TrainerCallback):
    """Measures of each step of a run, moments at intervals, and early stopping."""

    def __init__(
        self, model: Any, data: Data, settings: RunSettings, site: Site | None, total: int, warmup: int
    ) -> None:
        self.model, self.data, self.settings, self.site = model, data, settings, site
        self.total, self.warmup = total, warmup
        self.watch = None if site is None else GradientWatch(model, site)
        self.blocks = BlockNorms(model)
        self.records: list[dict[str, float]] = []
        self.moments: list[dict[str, float]] = []
        self.examples = self.skipped = self.clipped = 0
        self.best: NDArray[Any] | None = None
        self.best_score, self.since_best = -math.inf, 0
        self.moment_steps = set(np.linspace(0, total, MOMENT_POINTS + 1).astype(int).tolist())
        self.per_epoch = len(plan_steps(len(data.train), settings.recipe.batch_size, 1, 0))

    def begin(self) -> None:
        """Before a step's forward pass; dropout begins at its own seed, whatever the Trainer has drawn before."""
        if self.watch is not None:
            self.watch.clear()
        if not self.records:
            torch.manual_seed(self.settings.seed_dropout)

    def measure(self, loss: float, rows: int) -> None:
        """Behind the backward pass, before clipping."""
        norm = self.blocks.total()
        record = {"step": len(self.records), "loss": loss, "gradient_norm": norm}
        if self.watch is not None:
            record |= self.watch.measures()
        record |= self.blocks.gradient_ratios()
        self.records.append(record)
        self.examples += rows
        clip = self.settings.clip
        self.clipped += clip is not None and norm > clip
        if not math.isfinite(norm):
            # clip_grad_norm_ would turn an infinite gradient into NaN weights.
            self.skipped += 1
            for parameter in self.blocks.parameters:
                parameter.grad = None
        if (len(self.records) - 1) % UPDATE_EVERY == 0:
            self.blocks.remember()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Before the first step."""
        self._follow_moments(0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Behind the update."""
        self.records[-1]["learning_rate"] = self.settings.learning_rate * rate_factor(
            state.global_step - 1, self.total, self.warmup
        )
        if self.blocks.before:
            self.records[-1] |= self.blocks.update_ratios()
        self._follow_moments(state.global_step)
        patience = self.settings.recipe.early_stopping
        if patience is not None and state.global_step % self.per_epoch == 0:
            control.should_training_stop |= self._is_enough(patience)

    def finish(self) -> tuple[dict[str, float], pd.DataFrame]:
        """Counts and the table of steps."""
        table = pd.DataFrame(self.records)
        norms = table["gradient_norm"].to_numpy()
        counts = {
            "steps": len(table),
            "examples": self.examples,
            "skipped": self.skipped,
            "exploded": int(count_explosions(norms[:, None])[0]),
            "clipped_share": self.clipped / len(table),
            "max_cls_gradient_norm": float(table["h_gradient"].max()) if "h_gradient" in table else math.nan,
        }
        return counts, table

    def _follow_moments(self, step: int) -> None:
        if self.site is not None and self.data.watched is not None and step in self.moment_steps:
            with torch.random.fork_rng([]):
                vectors = vectors_at(self.model, self.site, self.data.watched)
            self.moments.append({"step": step} | moments_of(torch.from_numpy(vectors)))

    def _is_enough(self, patience: int) -> bool:
        """Judge an epoch by the selecting half; keep the best one's predictions. Not-a-number is worst."""
        predicted = predict(self.model, self.data.dev)
        score = self.data.task.scores(predicted, self.data.task.metrics[0])[0]
        if self.best is None or score > self.best_score:
            self.best, self.since_best = predicted, 0
            self.best_score = score if math.isfinite(score) else -math.inf
        else:
            self.since_best += 1
        return self.since_best >= patience
