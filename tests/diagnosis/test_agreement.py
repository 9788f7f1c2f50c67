"""Outlier dimensions by every definition: on planted vectors, on LayerNorms made by hand, and by chance."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.stats
from planted import SIGNS, D, findings_of, gaussian, profile_of, shifted, stretched

from cls_analysis import diagnose, profile_vectors
from cls_analysis.diagnosis.agreement import (
    RANKED,
    TAIL,
    agreement_table,
    definitions,
    layer_norm_definitions,
    layer_norm_table,
)
from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.weights import LayerNorm

WIDTH = 64


def by_name(x, norms=()) -> dict:
    return {found.name: found for found in definitions(Evidence(profile_of(x), -1), norms)}


def dimensions(x) -> dict[str, tuple[int, ...]]:
    return {name: found.dimensions for name, found in by_name(x).items()}


def norm(layer: int, weight=(), bias=(), **options) -> LayerNorm:
    """A LayerNorm of ones and zeros in which these dimensions stick out, by 9, 10, 11, …"""
    vectors = []
    for value, chosen in ((1.0, weight), (0.0, bias)):
        vector = np.full(WIDTH, value)
        vector[list(chosen)] += 9 + np.arange(len(chosen))
        vectors.append(vector)
    return LayerNorm(layer, f"norm.{layer}", *vectors, **options)


# -- definitions that read vectors -----------------------------------------------------------------------------------


def test_every_definition_says_where_it_comes_from():
    found = definitions(Evidence(profile_of(SIGNS), -1), [norm(1)])
    assert len({definition.name for definition in found}) == len(found) == 10
    assert [definition.reads for definition in found] == ["moments"] * 5 + ["sample"] * 3 + ["weights"] * 2
    assert all(definition.source for definition in found)


def test_a_planted_mean():
    found = dimensions(shifted({3: 8, 9: -6}))
    for name in ("mean-dominant", "mean beyond 3σ", "extreme in half of the rows", "|x| ≥ 6 (LLM.int8)"):
        assert found[name] == (3, 9), name
    assert found["3 largest cosine contributions"][:2] == (3, 9)
    assert found["variance-dominant"] == found["std beyond 3σ"] == found["massive activation"] == ()


def test_a_planted_scale():
    found = dimensions(stretched({4: 7, 20: 8}))
    assert found["variance-dominant"] == found["std beyond 3σ"] == (20, 4)
    assert found["|x| ≥ 6 (LLM.int8)"] == (20, 4)
    assert found["mean-dominant"] == found["mean beyond 3σ"] == found["massive activation"] == ()
    # Smallest in a half of the rows, and largest in the other.
    assert found["extreme in half of the rows"] == (20,)


def test_a_massive_activation():
    """Median magnitude 1: beyond 1,000 of those."""
    found = dimensions(shifted({3: 1_200, 9: 900, 11: -2_000}))
    assert found["massive activation"] == (11, 3)
    assert found["|x| ≥ 6 (LLM.int8)"] == (11, 3, 9)


def test_largest_cosine_contributions():
    """The three largest, whatever the data."""
    for x in (gaussian(60, 8), shifted({3: 2, 5: -1, 7: 1.5})[:60]):
        unit = x / np.linalg.norm(x, axis=1, keepdims=True)
        contributions = np.mean([a * b for a, b in combinations(unit, 2)], axis=0)
        expected = np.argsort(-contributions)[:RANKED]
        found = by_name(x)["3 largest cosine contributions"]
        assert found.dimensions == tuple(expected)
        assert found.expected == 3


@pytest.mark.parametrize("seed", range(3))
def test_three_sigma_rules(seed):
    """Entries further than 3·s from the mean of all, s over d − 1; the one with the largest |μ| or σ first."""
    x = gaussian(100, 400, seed)
    found = by_name(x)
    for name, values in (("mean beyond 3σ", x.mean(axis=0)), ("std beyond 3σ", x.std(axis=0))):
        beyond = np.flatnonzero(np.abs(values - values.mean()) > 3 * values.std(ddof=1))
        expected = sorted(beyond, key=lambda i, values=values: -abs(values[i]))
        assert found[name].dimensions == tuple(expected)


def test_none_of_isotropic_vectors_but_by_three_sigma():
    for seed in range(5):
        found = dimensions(gaussian(400, D, seed))
        named = {name for name, found in found.items() if found}
        assert named <= {"mean beyond 3σ", "std beyond 3σ", "3 largest cosine contributions"}


def test_a_collapsed_layer_has_no_outliers():
    assert definitions(Evidence(profile_of(np.full((30, 8), 0.3)), -1), [norm(1)]) == []


# -- what chance gives -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "d"), [(60, 384), (500, 100)])
def test_expected_numbers_of_the_three_sigma_rules(n, d):
    found = by_name(gaussian(n, d))
    rng = np.random.default_rng(1)
    counts = {"mean beyond 3σ": [], "std beyond 3σ": []}
    for _ in range(300):
        # σ̂² of n rows is χ² with n − 1 degrees of freedom, over n.
        draws = rng.standard_normal(d) / np.sqrt(n), np.sqrt(rng.chisquare(n - 1, d) / n)
        for count, values in zip(counts.values(), draws, strict=True):
            count.append((np.abs(values - values.mean()) > 3 * values.std(ddof=1)).sum())
    for name, count in counts.items():
        assert found[name].expected == pytest.approx(np.mean(count), abs=4 * np.std(count) / 300**0.5 + 0.1)


def test_a_three_sigma_rule_alone_raises_no_finding():
    """Isotropic vectors on which it fires, and a small mean that stands out from smaller ones."""
    hits = 0
    for seed in range(12):
        profile = profile_vectors(gaussian(200, 384, seed))
        found = {each.name: each.dimensions for each in definitions(Evidence(profile, -1))}
        if found["mean beyond 3σ"] or found["std beyond 3σ"]:
            hits += 1
            assert {finding.code for finding in findings_of(profile)} == {"CLS501"}
    assert hits >= 6
    x = shifted({3: 0.5})
    assert dimensions(x)["mean beyond 3σ"] == (3,)
    assert findings_of(profile_of(x)) == []


# -- definitions that read weights -----------------------------------------------------------------------------------


def weights(norms) -> dict[str, tuple[int, ...]]:
    kovaleva, puccetti = layer_norm_definitions(norms)
    assert (kovaleva.source, puccetti.source) == ("Kovaleva et al. 2021", "Puccetti et al. 2022")
    return {"half": kovaleva.dimensions, "over 3": puccetti.dimensions}


def test_in_half_of_the_layers():
    """5 in two scales of four, 9 in two shifts; 11 in one of each, which does not add up."""
    norms = [norm(1, weight=[5, 11], bias=[9]), norm(2, weight=[5], bias=[9, 11]), norm(3), norm(4)]
    assert weights(norms) == {"half": (5, 9), "over 3": ()}
    assert weights([*norms, norm(5)]) == {"half": (), "over 3": ()}


def test_in_more_than_three_layers():
    """Four of twelve layers are not half, three of four not more than three; two scales and two shifts are not four."""
    norms = [norm(layer, weight=[7] if layer <= 4 else [], bias=[8] if layer <= 3 else []) for layer in range(1, 11)]
    norms += [norm(layer, weight=[11], bias=[11]) for layer in (11, 12)]
    assert weights(norms) == {"half": (), "over 3": (7,)}
    assert weights(norms[:4]) == {"half": (7, 8), "over 3": (7,)}
    assert weights(norms[:3]) == {"half": (7, 8), "over 3": ()}


def test_those_with_more_hits_come_first():
    norms = [norm(layer, weight=[3, 7], bias=[7]) for layer in range(1, 5)]
    assert weights(norms) == {"half": (7, 3), "over 3": (7, 3)}


def test_a_shared_norm_counts_in_each_of_its_layers():
    assert weights([norm(1, weight=[5], uses=12)]) == {"half": (5,), "over 3": (5,)}
    assert weights([norm(1, weight=[5], uses=3), norm(4, uses=9)]) == {"half": (), "over 3": ()}


def test_norms_without_a_bias():
    norms = [LayerNorm(layer, "norm", norm(layer, weight=[5]).weight) for layer in range(1, 5)]
    assert weights(norms) == {"half": (5,), "over 3": (5,)}


def test_flat_norms_have_none():
    assert weights([norm(layer) for layer in range(1, 7)]) == {"half": (), "over 3": ()}
    assert layer_norm_definitions([]) == []


@pytest.mark.parametrize("layers", [1, 2, 6, 12])
def test_chance_is_binomial(layers):
    """Layers, scales and shifts as if independent."""
    half, four = layer_norm_definitions([norm(layer) for layer in range(1, layers + 1)])
    tail = 2 * scipy.stats.norm.sf(3)
    assert pytest.approx(tail, rel=1e-12) == TAIL
    for found, least in ((half, -(-layers // 2)), (four, 4)):
        expected = 2 * WIDTH * scipy.stats.binom.sf(least - 1, layers, tail)
        assert found.expected == pytest.approx(expected, rel=1e-6, abs=1e-15)


def test_chance_of_one_norm_that_serves_twelve_layers():
    """It hits in all of them or in none."""
    for found in layer_norm_definitions([norm(1, uses=12)]):
        assert found.expected == pytest.approx(2 * WIDTH * TAIL, rel=1e-9)
    half, four = layer_norm_definitions([norm(1, uses=3), norm(4, uses=3)])
    assert half.expected == pytest.approx(2 * WIDTH * (1 - (1 - TAIL) ** 2), rel=1e-9)
    assert four.expected == pytest.approx(2 * WIDTH * TAIL**2, rel=1e-9)


def test_chance_without_a_bias():
    half, _ = layer_norm_definitions([LayerNorm(1, "norm", np.ones(WIDTH))])
    assert half.expected == pytest.approx(WIDTH * TAIL, rel=1e-9)


def test_chance_agrees_with_draws():
    rng = np.random.default_rng(0)
    counts = []
    for _ in range(400):
        norms = [LayerNorm(layer, "norm", *rng.standard_normal((2, 768))) for layer in (1, 2)]
        counts.append(len(layer_norm_definitions(norms)[0].dimensions))
    assert layer_norm_definitions(norms)[0].expected == pytest.approx(np.mean(counts), rel=0.1)


def test_norms_come_along_in_a_diagnosis():
    diagnosis = diagnose(profile_of(SIGNS), layer_norms=[norm(1, weight=[5])], intervals=False)
    found = {definition.name: definition.dimensions for definition in diagnosis.definitions}
    assert found["LayerNorm beyond 3σ in half of the layers"] == (5,)


# -- tables ----------------------------------------------------------------------------------------------------------


def test_layer_norm_table():
    """One 9 above 63 ones: 63/64·9 over s = 9/8 is 7.875; of two, the larger first."""
    table = layer_norm_table([norm(1, weight=[5]), norm(2), norm(3, bias=[8, 2])])
    assert list(table) == ["layer", "part", "dimension", "value", "deviations", "expected"]
    assert table[["layer", "part", "dimension"]].to_numpy().tolist() == [
        [1, "weight", 5],
        [3, "bias", 2],
        [3, "bias", 8],
    ]
    assert table["value"].tolist() == [10, 10, 9]
    assert table["deviations"].iloc[0] == pytest.approx(7.875)
    vector = np.zeros(WIDTH)
    vector[[2, 8]] = [10, 9]
    assert table["deviations"].iloc[1:].tolist() == pytest.approx(scipy.stats.zscore(vector, ddof=1)[[2, 8]].tolist())
    assert table["expected"].unique() == pytest.approx([WIDTH * 2 * scipy.stats.norm.sf(3)])


def test_layer_norm_table_of_low_entries_and_of_none():
    low = LayerNorm(1, "norm", 1.0 - 0.9 * np.eye(1, WIDTH)[0])
    assert layer_norm_table([low])["deviations"].tolist() == pytest.approx([-7.875])
    both = np.zeros(WIDTH)
    both[[2, 8]] = [9, -10]
    assert layer_norm_table([LayerNorm(1, "norm", both)])["dimension"].tolist() == [8, 2]
    assert list(layer_norm_table([norm(1)])) == list(layer_norm_table([low]))
    assert layer_norm_table([norm(1)]).empty


def test_agreement_table():
    found = definitions(Evidence(profile_of(shifted({3: 8, 9: -6})), -1))
    table = agreement_table(found)
    assert table["dimension"].tolist()[:2] == [3, 9]
    assert list(table) == ["dimension", *(definition.name for definition in found), "definitions"]
    row = table.set_index("dimension").loc[3]
    assert row["definitions"] == 5 == sum(3 in definition.dimensions for definition in found)
    assert bool(row["mean-dominant"])
    assert not row["variance-dominant"]
    assert agreement_table(found, k=1)["dimension"].tolist() == [3]
    assert agreement_table([]).empty
