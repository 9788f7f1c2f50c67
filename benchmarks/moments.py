"""``Moments`` with covariance against numpy.cov plus scipy's skew and kurtosis, on one array in memory.

    python benchmarks/moments.py [--rows 200000] [--dim 768] [--dtype float64] [--repeats 3]

CPU seconds with one thread, interleaved, best of several; and the memory ``Moments`` needs beyond the array.
"""

from __future__ import annotations

import argparse
import time
import tracemalloc

import numpy as np
import scipy.stats
from threadpoolctl import threadpool_limits

from cls_analysis import Moments


def ours(x: np.ndarray) -> tuple:
    moments = Moments(x.shape[1])
    moments.update(x)
    return moments.covariance, moments.skewness, moments.kurtosis_excess


def theirs(x: np.ndarray) -> tuple:
    return np.cov(x, rowvar=False, ddof=0), scipy.stats.skew(x), scipy.stats.kurtosis(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--dim", type=int, default=768)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    x = rng.standard_normal((options.rows, options.dim), dtype=np.float32).astype(options.dtype) + 1
    seconds: dict[str, list[float]] = {"Moments": [], "numpy.cov + scipy": []}
    with threadpool_limits(1):
        tracemalloc.start()
        ours(x)
        extra = tracemalloc.get_traced_memory()[1] / 2**20
        tracemalloc.stop()
        for _ in range(options.repeats):
            results = []
            for name, run in (("Moments", ours), ("numpy.cov + scipy", theirs)):
                start = time.process_time()
                results.append(run(x))
                seconds[name].append(time.process_time() - start)
    best = {name: min(times) for name, times in seconds.items()}
    print(f"{options.rows:,} × {options.dim} {options.dtype}, one thread, CPU seconds, best of {options.repeats}")
    for name, times in seconds.items():
        print(f"{name:20}{min(times):8.2f}{max(times):8.2f}{min(times) / best['Moments']:8.2f}")
    print(f"memory of Moments beyond the array: {extra:.0f} MiB")
    for what, a, b in zip(("covariance", "skewness", "kurtosis"), *results, strict=True):
        print(f"largest difference of {what}: {np.abs(a - b).max():.1e}")


if __name__ == "__main__":
    main()
