"""RSA and CKA of two sets of vectors against what they cannot do without: cosine matrices, products of features.

    python benchmarks/similarity.py [--rsa-rows 5000] [--cka-rows 100000] [--dim 768] [--repeats 3]

Wall seconds with all cores, interleaved, best of several; and the memory beyond the arrays.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Callable

import numpy as np

from cls_analysis.comparison.similarity import debiased_cka, linear_cka, rsa_pearson


def plain_rsa(x: np.ndarray, y: np.ndarray) -> float:
    """Both cosine matrices whole, and numpy's correlation of their upper triangles."""
    unit = [rows / np.linalg.norm(rows, axis=1, keepdims=True) for rows in (x, y)]
    upper = np.triu_indices(len(x), 1)
    return float(np.corrcoef(*((rows @ rows.T)[upper] for rows in unit))[0, 1])


def products(x: np.ndarray, y: np.ndarray) -> float:
    """The three products of features, on the arrays as they are."""
    return float(sum((a.T @ b)[0, 0] for a, b in ((x, x), (y, y), (x, y))))


def compare(title: str, runs: dict[str, Callable[[], object]], repeats: int) -> None:
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - start)
    base = min(seconds[next(iter(runs))])
    print(title)
    for name, run in runs.items():
        tracemalloc.start()
        run()
        extra = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        print(f"  {name:34}{min(seconds[name]):7.2f} s{min(seconds[name]) / base:7.2f}{extra:8.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rsa-rows", type=int, default=5_000)
    parser.add_argument("--cka-rows", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal((options.rsa_rows, options.dim), dtype=np.float32) + 1 for _ in "xy")
    compare(
        f"{options.rsa_rows:,} × {options.dim}, seconds, ratio, memory",
        {
            "cosine matrices and numpy.corrcoef": lambda: plain_rsa(x, y),
            "rsa_pearson": lambda: rsa_pearson(x, y, count=0),
            "rsa_pearson with its interval": lambda: rsa_pearson(x, y),
            "debiased_cka with its interval": lambda: debiased_cka(x, y),
        },
        options.repeats,
    )
    x, y = (rng.standard_normal((options.cka_rows, options.dim)) + 1 for _ in "xy")
    compare(
        f"{options.cka_rows:,} × {options.dim} float64",
        {"three products of features": lambda: products(x, y), "linear_cka": lambda: linear_cka(x, y)},
        options.repeats,
    )


if __name__ == "__main__":
    main()
