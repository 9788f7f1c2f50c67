"""Heads on frozen vectors: a whole grid trained together, against a loop that batches the seeds of one arm and rate.

    python benchmarks/heads.py [--rows 8551] [--dim 384] [--seeds 25] [--rates 5] [--epochs 10] [--processes 2]

Wall seconds; the vectors are random. The plain loop is timed over 100 steps, in turns with nothing else, and stands for
all arms and rates one after the other.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import torch

import cls_analysis as ca
from cls_analysis.finetuning.frozen import Frozen, train_frozen
from cls_analysis.finetuning.settings import Recipe, RunSettings
from cls_analysis.tasks import TextTask

NORMS = ("none", "scale", "center", "standardize", "batchnorm", "layernorm", "l2norm")


def make(rows: int, dim: int) -> Frozen:
    rng = np.random.default_rng(0)
    x = torch.from_numpy((0.3 * rng.standard_normal((rows, dim)) + 1).astype(np.float32))
    train, dev = ca.load_texts(["a"] * rows), ca.load_texts(["a"] * 1_000)
    target = rng.integers(0, 2, rows)
    task = TextTask("made", ("accuracy",), ("a", "b"), train, target, dev, target[:1_000], np.arange(1_000) % 2 == 0)
    return Frozen(task, x, x[:1_000], 0.1, 0.02)


def part(options: argparse.Namespace, seeds: list[int]) -> int:
    """The runs of some seeds, in a process of its own."""
    torch.set_num_threads(1)
    frozen = make(options.rows, options.dim)
    profile = ca.profile_vectors(frozen.train.numpy())
    norms = {name: ca.make_norm(name, profile=profile) for name in NORMS}
    recipe = Recipe(epochs=options.epochs)
    rates = np.geomspace(1e-4, 1e-2, options.rates).tolist()
    runs = [
        RunSettings("m", "w", {}, "linear", "head", name, name, {}, "cls", "adamw", 1.0, rate, seed, recipe)
        for name in NORMS
        for rate in rates
        for seed in seeds
    ]
    return sum(1 for _ in train_frozen(frozen, runs, norms))


def plain_step(options: argparse.Namespace) -> float:
    """Seconds of a step of 25 heads with autograd, torch.bmm and torch.optim.AdamW."""
    frozen = make(options.rows, options.dim)
    weight = torch.zeros(options.seeds, options.dim, 2, requires_grad=True)
    bias = torch.zeros(options.seeds, 1, 2, requires_grad=True)
    optimizer = torch.optim.AdamW([weight, bias], lr=1e-3)
    target = torch.from_numpy(frozen.task.train_target)
    start = time.perf_counter()
    for _ in range(100):
        rows = torch.randint(0, options.rows, (options.seeds, 32))
        z = torch.nn.functional.dropout(frozen.train[rows], 0.1)
        logits = torch.baddbmm(bias, z, weight)
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, 2), target[rows].reshape(-1))
        optimizer.zero_grad()
        (loss * options.seeds).backward()
        optimizer.step()
    return (time.perf_counter() - start) / 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8_551)
    parser.add_argument("--dim", type=int, default=384)
    parser.add_argument("--seeds", type=int, default=25)
    parser.add_argument("--rates", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    plain = min(plain_step(options) for _ in range(3))
    chunks = [list(range(options.seeds))[i :: options.processes] for i in range(options.processes)]
    start = time.perf_counter()
    with ProcessPoolExecutor(options.processes, mp_context=get_context("spawn")) as pool:
        runs = sum(pool.map(part, [options] * len(chunks), chunks))
    seconds = time.perf_counter() - start
    steps = -(-options.rows // 32) * options.epochs
    loop = plain * steps * len(NORMS) * options.rates
    print(
        f"{runs} runs of {steps} steps on {options.rows:,} × {options.dim}, {options.processes} processes of one thread"
    )
    print(f"together {seconds:.0f} s ({1e3 * seconds / steps:.0f} ms a step); a plain loop of {1e3 * plain:.1f} ms for")
    print(f"{options.seeds} seeds of one arm and rate would take {loop:.0f} s: {loop / seconds:.1f} times as long")


if __name__ == "__main__":
    main()
