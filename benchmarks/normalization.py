"""What a norm costs: against a training step, against the bare formula of IsoBN, and attached ``none`` against nothing.

    python benchmarks/normalization.py [--layers 6] [--hidden 384] [--batch 32] [--tokens 16] [--repeats 15]

Wall seconds with one thread, interleaved; medians. The encoder is a BERT of that size with random weights.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import transformers

import cls_analysis as ca
from cls_analysis.normalization.making import NAMES


def medians(runs: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each, taken in turns, the first turn left out."""
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(times[1:]) for name, times in seconds.items()}


def many(run: Callable[[], object], times: int) -> Callable[[], object]:
    """``run`` several times, so that short ones can be timed."""
    return lambda: [run() for _ in range(times)]


def training_step(model: torch.nn.Module, batch: dict[str, torch.Tensor]) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()

    return step


def through(norm: torch.nn.Module, x: torch.Tensor) -> Callable[[], object]:
    """A norm's forward and backward pass."""
    given = x.clone().requires_grad_()
    ones = torch.ones_like(x)

    def run() -> None:
        given.grad = None
        norm(given).backward(ones)

    return run


def bare_isobn(x: torch.Tensor) -> Callable[[], object]:
    """Covariance, correlations and scale of IsoBN (Zhou et al. 2021), and nothing else."""
    covariance, std = torch.zeros(x.shape[1], x.shape[1]), torch.zeros(x.shape[1])

    def run() -> torch.Tensor:
        with torch.no_grad():
            y = x - x.mean(dim=0)
            covariance.lerp_(y.T @ y / len(y), 0.05)
            std.lerp_(y.square().mean(dim=0).sqrt(), 0.05)
            correlation = (covariance / torch.outer(std, std)).clamp(-1.0, 1.0)
            theta = (correlation.square().mean(dim=1) * std + 1e-3) ** -0.5
            variance = covariance.diagonal()
            return theta * torch.sqrt(variance.sum() / ((variance * theta.square()).sum() + 1e-3))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=384)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        num_hidden_layers=options.layers,
        hidden_size=options.hidden,
        intermediate_size=4 * options.hidden,
        num_attention_heads=12,
    )
    batch = {
        "input_ids": torch.randint(1_000, 20_000, (options.batch, options.tokens)),
        "labels": torch.randint(0, 2, (options.batch,)),
    }
    stock = transformers.BertForSequenceClassification(config).train()
    with torch.no_grad():
        stock.bert.pooler.dense.bias.normal_()
    attached = transformers.BertForSequenceClassification(config).train()
    attached.load_state_dict(stock.state_dict())
    ca.attach_norm(attached, ca.make_norm("none", dim=options.hidden))
    steps = medians({"stock": training_step(stock, batch), "none": training_step(attached, batch)}, options.repeats)
    print(f"{options.layers} layers, d = {options.hidden}, {options.batch} × {options.tokens} tokens, one thread")
    ratio = steps["none"] / steps["stock"]
    print(f"training step: {1e3 * steps['stock']:.0f} ms; with none attached {ratio:.3f} times")

    x = torch.randn(options.batch, options.hidden) + 1
    profile = ca.profile_vectors(np.random.default_rng(0).standard_normal((1_000, options.hidden), dtype=np.float32))
    norms = {name: ca.make_norm(name, profile=profile).train() for name in NAMES}
    times = medians({name: many(through(norm, x), 20) for name, norm in norms.items()}, options.repeats)
    print("forward and backward pass of a norm, share of the step:")
    for name, seconds in times.items():
        print(f"  {name:18}{1e6 * seconds / 20:8.0f} µs {seconds / 20 / steps['stock']:8.3%}")

    wide = torch.randn(32, 768) + 1
    isobn = ca.make_norm("isobn", dim=768).train()
    pair = medians({"isobn": many(through(isobn, wide), 5), "bare": many(bare_isobn(wide), 5)}, options.repeats)
    ratio = pair["isobn"] / pair["bare"]
    print(f"isobn at (32, 768): {ratio:.2f} times its bare formula ({1e3 * pair['bare'] / 5:.1f} ms)")


if __name__ == "__main__":
    main()
