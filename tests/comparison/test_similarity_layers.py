"""The table of similarity by layer: columns, collapsed layers, and the twins that outlier dimensions do not rule."""

from __future__ import annotations

import numpy as np
import pytest

from cls_analysis.comparison.layers import COLUMNS, MEASURES, similarity_table
from cls_analysis.comparison.twins import Twins
from cls_analysis.errors import DataError

NAMES = {"names": ("base", "tuned"), "dataset": "made", "stimuli": "cls"}


def vectors(n=200, d=24, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d))
    x[:, 7] = 20 + 5 * rng.standard_normal(n)  # an outlier in mean and spread
    return x.astype(np.float32)


def at(table, measure, layer=1):
    (found,) = table[(table["measure"] == measure) & (table["layer"] == layer)].to_dict("records")
    return found


def test_a_model_with_itself():
    x = {layer: vectors(seed=layer) for layer in (1, 2)}
    table = similarity_table(x, x, **NAMES)
    assert tuple(table.columns) == COLUMNS
    assert len(table) == 2 * len(MEASURES)
    for layer in x:
        for measure in MEASURES:
            expected = 0.0 if measure == "procrustes" else 1.0
            assert at(table, measure, layer)["value"] == pytest.approx(expected, abs=1e-6), measure
    assert (table["n"] == 200).all()
    with_interval = table[table["ci_low"].notna()]
    assert set(with_interval["measure"]) == {
        "rsa_pearson",
        "rsa_pearson_standardized",
        "rsa_pearson_without_top5",
        "cka",
    }
    assert (with_interval["ci_low"] <= with_interval["value"] + 1e-12).all()
    spectrum = np.linalg.eigvalsh(np.cov(x[1].T.astype(float)))
    rank = spectrum.sum() ** 2 / (spectrum**2).sum()
    assert at(table, "cka_biased")["null"] == pytest.approx(rank / 199, rel=1e-6)


def test_a_change_of_outliers_alone_shows_in_raw_rsa_alone():
    base, tuned = vectors(), vectors()
    tuned[:, 7] = vectors(seed=1)[:, 7] * np.sign(np.arange(200) % 2 - 0.5)
    table = similarity_table({1: base}, {1: tuned}, **NAMES)
    assert at(table, "rsa_pearson")["value"] < 0.5
    assert at(table, "rsa_pearson_without_top5")["value"] == pytest.approx(1.0, abs=1e-9)


def test_twins_are_the_bases():
    x = vectors()
    twins = Twins.of(x)
    assert twins.largest[0] == 7
    energy = (x.astype(float) ** 2).mean(axis=0)
    assert set(twins.largest) == set(np.argsort(energy)[-5:])
    np.testing.assert_allclose(twins.standardized(x), (x - x.mean(0)) / x.std(0), atol=1e-4)
    assert np.array_equal(twins.without_largest(x), np.delete(x, twins.largest, axis=1))
    assert Twins.of(np.ones((5, 3))) is None


def test_a_collapsed_layer_has_no_rows():
    x = {0: np.ones((200, 24), dtype=np.float32), 1: vectors()}
    assert set(similarity_table(x, x, **NAMES)["layer"]) == {1}
    assert set(similarity_table({0: vectors(), 1: vectors()}, x, **NAMES)["layer"]) == {1}


def test_other_layers_and_rows_are_refused():
    x = {1: vectors()}
    with pytest.raises(DataError, match=r"base has the layers \[1\], tuned \[1, 2\]"):
        similarity_table(x, x | {2: vectors()}, **NAMES)
    with pytest.raises(DataError, match="200 rows against 199"):
        similarity_table(x, {1: vectors()[:-1]}, **NAMES)
