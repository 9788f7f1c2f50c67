"""The batched training of heads against one loop a run over torch.optim, and its independence of who trains beside."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

import cls_analysis as ca
from cls_analysis.finetuning.batches import plan_steps, rate_factor
from cls_analysis.finetuning.frozen import Frozen, train_frozen
from cls_analysis.finetuning.settings import Recipe, RunSettings
from cls_analysis.tasks import TextTask

DIM = 12


def make_task(n=66, n_dev=20, classes=3, seed=0):
    rng = np.random.default_rng(seed)
    draw = (lambda m: rng.integers(0, classes, m)) if classes > 1 else rng.standard_normal
    texts = ca.load_texts([f"row {i}" for i in range(n)])
    dev = ca.load_texts([f"dev {i}" for i in range(n_dev)])
    names = tuple("abcdef"[:classes]) if classes > 1 else None
    metrics = ("accuracy",) if names else ("pearson",)
    return TextTask("made", metrics, names, texts, draw(n), dev, draw(n_dev), np.arange(n_dev) % 2 == 0)


def make_frozen(task, dropout=0.1, seed=0):
    rng = np.random.default_rng(seed)
    signal = np.eye(6)[np.asarray(task.train_target, dtype=int) % 6] if task.classes else task.train_target[:, None]
    x = rng.standard_normal((len(task.train), DIM)) * np.geomspace(0.2, 4, DIM) + 2
    x[:, : signal.shape[1]] += signal
    dev = rng.standard_normal((len(task.dev), DIM)) + 2
    return Frozen(task, *(torch.from_numpy(a.astype(np.float32)) for a in (x, dev)), dropout, 0.02)


def make_runs(task, norms, *, rates=(0.01, 0.1), seeds=(0, 1), optimizers=("adamw",), clips=(1.0,), recipe=None):
    return [
        RunSettings("m", "w", task.identity(), "linear", "head", norm, norm, {}, "cls", optimizer, clip, rate, seed)
        if recipe is None
        else RunSettings(
            "m", "w", task.identity(), "linear", "head", norm, norm, {}, "cls", optimizer, clip, rate, seed, recipe
        )
        for norm in norms
        for optimizer in optimizers
        for clip in clips
        for rate in rates
        for seed in seeds
    ]


def make_norms(frozen, names):
    profile = ca.profile_vectors(frozen.train.numpy())
    return {name: ca.make_norm(name, profile=profile) for name in names}


def by_hand(frozen, run, norm):
    """One run as anybody would write it; gives loss and gradient norm by step, and the development logits.

    Those come twice: in evaluation, and with torch's batch norm, or the mean alone, by the batches of a plan.
    """
    task, recipe = frozen.task, run.recipe
    norm = copy.deepcopy(norm).train()
    torch.manual_seed(run.seed_head)
    linear = nn.Linear(DIM, task.num_labels)
    nn.init.normal_(linear.weight, std=0.02)
    nn.init.zeros_(linear.bias)
    groups = [
        {"params": [linear.weight], "weight_decay": recipe.weight_decay},
        {"params": [linear.bias], "weight_decay": 0.0},
    ]
    if run.optimizer == "adamw":
        optimizer = torch.optim.AdamW(groups, lr=run.learning_rate)
    else:
        optimizer = torch.optim.SGD(groups, lr=run.learning_rate)
    plan = plan_steps(len(frozen.train), recipe.batch_size, recipe.epochs, run.seed_order)
    warmup = int(np.ceil(recipe.warmup * len(plan)))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_factor(step, len(plan), warmup))
    torch.manual_seed(run.seed_dropout)
    losses, norms, outputs = [], [], []
    for rows in plan:
        h = frozen.train[rows].requires_grad_()
        logits = linear(nn.functional.dropout(norm(h), frozen.dropout))
        target = torch.from_numpy(task.train_target[rows])
        if task.classes:
            loss = nn.functional.cross_entropy(logits, target)
        else:
            loss = nn.functional.mse_loss(logits[:, 0], target.float())
        optimizer.zero_grad()
        loss.backward()
        limit = float("inf") if run.clip is None else run.clip
        norms.append(float(nn.utils.clip_grad_norm_(linear.parameters(), limit)))
        outputs.append(float((h.grad * len(rows)).norm(dim=1).mean()))
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    with torch.no_grad():
        by_batches = torch.empty(len(frozen.dev), task.num_labels)
        for rows in plan_steps(len(frozen.dev), recipe.batch_size, 1, run.seed_order):
            h = frozen.dev[rows]
            scaled = (
                nn.functional.batch_norm(h, None, None, training=True) if run.norm == "batchnorm" else h - h.mean(0)
            )
            by_batches[rows] = linear(scaled)
        return losses, norms, outputs, linear(norm.eval()(frozen.dev)), by_batches


ALL = ("none", "scale", "center", "standardize", "batchnorm", "layernorm", "l2norm", "isobn", "whiten")


@pytest.mark.parametrize("classes", [3, 1], ids=["classes", "values"])
@pytest.mark.parametrize("optimizer", ["adamw", "sgd"])
def test_every_run_is_the_one_that_its_own_loop_gives(classes, optimizer):
    task = make_task(classes=classes)
    frozen = make_frozen(task)
    recipe = Recipe(epochs=4, batch_size=16)
    norms = make_norms(frozen, ALL)
    rates = (0.003, 0.03) if optimizer == "adamw" else (0.0003, 0.003)
    runs = make_runs(task, ALL, recipe=recipe, clips=(0.5, None), optimizers=(optimizer,), rates=rates)
    results = {run: result for run, result in train_frozen(frozen, runs, norms) for run in [run.run_id]}
    assert len(results) == len(runs)
    for run in runs:
        losses, gradients, outputs, logits, by_batches = by_hand(frozen, run, norms[run.norm])
        result = results[run.run_id]
        assert result.counts["steps"] == len(losses)
        at = result.steps["step"].to_numpy()
        np.testing.assert_allclose(result.steps["gradient_norm"], np.array(gradients)[at], rtol=2e-3, atol=1e-5)
        np.testing.assert_allclose(result.steps["h_gradient"], np.array(outputs)[at], rtol=2e-3, atol=1e-6)
        starts = [0, *(at[:-1] + 1)]
        means = [np.mean(losses[a : b + 1]) for a, b in zip(starts, at, strict=True)]
        np.testing.assert_allclose(result.steps["loss"], means, rtol=1e-3, atol=1e-6)
        if classes > 1:
            assert np.array_equal(result.predictions, logits.argmax(dim=1).numpy())
        else:
            np.testing.assert_allclose(result.predictions, logits[:, 0].numpy(), rtol=1e-3, atol=1e-4)
        assert (result.by_batches is not None) == (run.norm in ("center", "batchnorm"))
        if result.by_batches is not None and classes > 1:
            assert np.array_equal(result.by_batches, by_batches.argmax(dim=1).numpy())
        elif result.by_batches is not None:
            np.testing.assert_allclose(result.by_batches, by_batches[:, 0].numpy(), rtol=1e-3, atol=1e-4)
        share = float(np.mean(np.array(gradients) > run.clip)) if run.clip else 0.0
        assert result.counts["clipped_share"] == pytest.approx(share)


def test_a_run_does_not_depend_on_what_is_trained_beside_it():
    task = make_task()
    frozen = make_frozen(task)
    norms = make_norms(frozen, ALL)
    runs = make_runs(task, ALL, seeds=(0, 1, 2), recipe=Recipe(epochs=2, batch_size=16))
    together = {run.run_id: result for run, result in train_frozen(frozen, runs, norms)}
    for chosen in ([r for r in runs if r.seed == 1], [r for r in runs if r.norm in ("batchnorm", "none")]):
        for run, result in train_frozen(frozen, chosen, norms):
            other = together[run.run_id]
            assert np.array_equal(result.predictions, other.predictions)
            assert result.steps.equals(other.steps)


def test_two_names_of_one_norm_give_the_same_bits():
    task = make_task()
    frozen = make_frozen(task)
    norm = make_norms(frozen, ["none"])["none"]
    results = {
        (run.norm, run.seed, run.learning_rate): result
        for run, result in train_frozen(frozen, make_runs(task, ["a", "b"]), {"a": norm, "b": norm})
    }
    for (label, seed, rate), result in results.items():
        if label == "a":
            assert result.steps.equals(results["b", seed, rate].steps)
            assert np.array_equal(result.predictions, results["b", seed, rate].predictions)


def test_33_rows_in_batches_of_16():
    # hardcase 18: 33 = 16 + 17, no row alone, none left out.
    plan = plan_steps(33, 16, 2, seed=0)
    assert [len(rows) for rows in plan] == [16, 17, 16, 17]
    for epoch in (plan[:2], plan[2:]):
        assert sorted(np.concatenate(epoch).tolist()) == list(range(33))
    assert not np.array_equal(plan[0], plan[2])
    assert [len(rows) for rows in plan_steps(34, 16, 1, seed=0)] == [16, 16, 2]
    assert [len(rows) for rows in plan_steps(5, 1, 1, seed=0)] == [1] * 5
    assert [len(rows) for rows in plan_steps(1, 16, 1, seed=0)] == [1]
    task = make_task(n=33)
    frozen = make_frozen(task)
    runs = make_runs(task, ALL, recipe=Recipe(epochs=2, batch_size=16))
    counts = {
        (result.counts["steps"], result.counts["examples"])
        for _, result in train_frozen(frozen, runs, make_norms(frozen, ALL))
    }
    assert counts == {(4, 66)}


def test_rate_rises_and_falls():
    # transformers' linear schedule with warm-up
    from transformers import get_linear_schedule_with_warmup

    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = get_linear_schedule_with_warmup(optimizer, 3, 17)
    for step in range(17):
        assert rate_factor(step, 17, 3) == pytest.approx(schedule.get_last_lr()[0])
        optimizer.step()
        schedule.step()


def test_a_gradient_that_is_not_finite_skips_the_step():
    task = make_task()
    frozen = make_frozen(task, dropout=0.0)
    frozen.train[5] = float("inf")
    runs = make_runs(task, ["none"], recipe=Recipe(epochs=3, batch_size=16), optimizers=("adamw", "sgd"))
    for run, result in train_frozen(frozen, runs, make_norms(make_frozen(task), ["none"])):
        assert result.counts["skipped"] == 3, run
        assert result.counts["exploded"] >= 3
        assert np.isfinite(result.steps["gradient_norm"].iloc[-1]) or 5 in plan_steps(66, 16, 3, run.seed_order)[-1]
        assert len(set(result.predictions.tolist())) > 1


def test_explosions_are_counted():
    from cls_analysis.finetuning.records import count_explosions

    norms = np.ones((60, 3))
    norms[30, 0] = 10.5
    norms[31, 0] = 9.5
    norms[5, 1] = 100.0  # no median yet
    norms[40, 2] = np.inf
    norms[41, 2] = np.nan
    assert count_explosions(norms).tolist() == [1, 0, 2]
