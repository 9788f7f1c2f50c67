"""Diagnoses of every kind that a report meets, small enough to be made anew in every run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pandas as pd

from cls_analysis import Diagnosis, Profile, diagnose, profile_vectors
from cls_analysis.provenance import DatasetIdentity, EncoderIdentity

#: A name that would be markup, and one that is too long for any line.
HOSTILE = "<script>alert(1)</script> \"quoted\" & 'x' | *b* _i_ `c` [l](http://e.org) &lt; ~~s~~ \\"
LONG = "reviews_" + "of_a_name_without_any_space_" * 4 + ".parquet"


def cloud(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Skewed vectors with outlier dimensions of both kinds."""
    x = np.random.default_rng(seed).gamma(2.0, size=(n, d))
    x[:, d // 2] += 9 * np.sqrt(d)
    x[:, d // 3] *= 9
    return x


def with_layers(
    layers: dict[int, np.ndarray], *, encoder: str = "bert-tiny", dataset: str = "cola", depth: int = 2
) -> Profile:
    """A Profile as if an encoder of ``depth`` blocks had made it."""
    held = {number: profile_vectors(rows)[-1] for number, rows in layers.items()}
    first = profile_vectors(next(iter(layers.values())))
    identity = EncoderIdentity(encoder, "w" * 32, "t" * 32, "BertModel", first.dim, depth, "cls", 512, "sdpa", "none")
    datasets = (DatasetIdentity(dataset, "dev", first.provenance.datasets[0].hash),)
    return Profile(held, replace(first.provenance, encoder=identity, datasets=datasets, layers=tuple(layers)))


def three_layers(**names: str) -> Profile:
    """Three layers, the first the same vector for every text."""
    return with_layers({0: np.ones((60, 16)), 1: cloud(60, 16, 1), 2: cloud(60, 16, 2)}, **names)


def judged(profile: Profile, **options: object) -> Diagnosis:
    """A diagnosis without intervals, which take most of the time."""
    return diagnose(profile, **{"intervals": False} | options)


def probed(diagnosis: Diagnosis) -> Diagnosis:
    """``diagnosis`` with what a probe could have found."""
    records = [
        ("optimum", "none", 0.5, 0.0, 0.0, 0.0, 0.65, "reference"),
        ("optimum", "center", 0.5, -0.0001, -0.0004, 0.0004, 0.65, "harmless"),
        ("sgd", "whiten", 0.75, 0.25, 0.1, 0.4, 0.3, "better"),
        ("adamw", "whiten", 0.4, -0.1, -0.2, 0.02, 0.9, "cannot be told apart"),
    ]
    columns = ["optimizer", "normalization", "accuracy", "difference", "low", "high", "train_loss", "verdict"]
    table = pd.DataFrame(records, columns=columns)
    return replace(diagnosis, probe=SimpleNamespace(table=table, n=1234, n_classes=2, majority=0.5, steps=200))


def vectors(n: int = 60, name: str = "vectors", d: int = 16, **options: object) -> Diagnosis:
    return judged(profile_vectors(cloud(n, d, n), name=name), **options)


def isotropic() -> Diagnosis:
    return judged(profile_vectors(np.random.default_rng(0).standard_normal((1000, 8)), name="isotropic"))


def collapsed() -> Diagnosis:
    return judged(profile_vectors(np.full((9, 16), 14.3), name="collapsed"), how_many=True)


#: The reports of the tests, by what is special about them.
MAKERS: dict[str, Callable[[], list[Diagnosis]]] = {
    "vectors": lambda: [vectors(intervals=True)],
    "layers, probe, how many": lambda: [probed(judged(three_layers(), how_many=True))],
    "one layer": lambda: [judged(with_layers({2: cloud(60, 16)}))],
    "collapsed": lambda: [collapsed()],
    "collapsed last layer": lambda: [judged(with_layers({1: cloud(60, 16), 2: np.ones((60, 16))}))],
    "nothing found": lambda: [isotropic()],
    "too few to say": lambda: [vectors(9, how_many=True)],
    "hostile and long names": lambda: [vectors(name=HOSTILE), vectors(70, name=LONG)],
    "three encoders": lambda: [judged(three_layers(encoder=name)) for name in ("bert-a", "bert-b", "bert-b")],
    "one collapsed of two": lambda: [collapsed(), vectors(d=8)],
}
#: Those whose pages have every picture: drawing takes most of the time.
DRAWN = ("layers, probe, how many", "collapsed", "hostile and long names")


@cache
def diagnoses(name: str) -> list[Diagnosis]:
    """The diagnoses of one report."""
    return MAKERS[name]()
