"""Seconds of ``describe`` plus ``summarize`` for a Profile of 13 layers of 768 dimensions, first call and second.

python benchmarks/tables.py
"""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

import cls_analysis as ca


def main() -> None:
    rng = np.random.default_rng(0)
    layers = {}
    for number in range(13):
        profile = ca.profile_vectors(rng.standard_normal((2_000, 768), dtype=np.float32) + 1, layer=number)
        layers[number] = profile[number]
    profile = ca.Profile(layers, replace(profile.provenance, layers=tuple(layers)))
    for call in ("first call, nulls drawn", "second call, nulls cached"):
        wall, cpu = time.perf_counter(), time.process_time()
        ca.describe(profile)
        ca.summarize(profile)
        print(f"{call}: {time.perf_counter() - wall:.2f} s ({time.process_time() - cpu:.2f} CPU s)")


if __name__ == "__main__":
    main()
