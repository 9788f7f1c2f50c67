"""What removing the worst dimensions changes: cosines and neighbours, counted one by one."""

from __future__ import annotations

import numpy as np
import pytest
from planted import SIGNS, gaussian, profile_of, shifted, stretched

from cls_analysis.diagnosis.effects.removal import NEIGHBOURS, removal_table, worst_dimensions
from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.statistics.normalizers import NORMALIZERS


def planted(n: int = 150, d: int = 12) -> np.ndarray:
    """Isotropic rows with means of 9, −6 and 4 in dimensions 5, 2 and 8."""
    x = gaussian(n, d, seed=2)
    x[:, [5, 2, 8]] += [9, -6, 4]
    return x


def table_of(x):
    return removal_table(Evidence(profile_of(x), -1)).set_index("change")


def average_cosine(x) -> float:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return float((unit @ unit.T)[np.triu_indices(len(x), 1)].mean())


def rms_cosine(x) -> float:
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    return float(np.sqrt(((unit @ unit.T)[np.triu_indices(len(x), 1)] ** 2).mean()))


def neighbours(x) -> list[set[int]]:
    """The ten nearest other rows of each by cosine."""
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    order = [[other for other in np.argsort(-(unit @ row)) if other != number] for number, row in enumerate(unit)]
    return [set(others[:10]) for others in order]


def changed(before, after) -> float:
    return float(np.mean([len(a - b) / 10 for a, b in zip(neighbours(before), neighbours(after), strict=True)]))


# -- which dimensions ------------------------------------------------------------------------------------------------


def test_worst_dimensions_are_the_outliers_of_most_energy():
    assert worst_dimensions(Evidence(profile_of(shifted({3: 8, 9: -6})), -1), k=2) == (3, 9)
    both = shifted({3: 8})
    both[:, 20] *= 10
    assert worst_dimensions(Evidence(profile_of(both), -1), k=2) == (20, 3)
    assert worst_dimensions(Evidence(profile_of(both), -1), k=1) == (20,)


def test_filled_up_with_the_next_by_energy():
    x = shifted({3: 8})
    x[:, [7, 11]] *= [1.2, 1.3]
    assert worst_dimensions(Evidence(profile_of(x), -1)) == (3, 11, 7)
    x = gaussian(200, 20)
    assert worst_dimensions(Evidence(profile_of(x), -1)) == tuple(np.argsort(-(x**2).mean(axis=0))[:3])


# -- what it changes -------------------------------------------------------------------------------------------------


def test_rows_of_the_table():
    table = table_of(planted())
    assert list(table.index) == [
        "none",
        "without 5",
        "without 5, 2",
        "without 5, 2, 8",
        "without 3 random ones",
        "center",
        "standardize",
        "whiten",
        "all-but-the-top",
    ]
    assert list(table) == ["average_cosine", "rms_cosine", "neighbours_changed"]


@pytest.mark.parametrize(
    ("change", "dimensions"),
    [("none", []), ("without 5", [5]), ("without 5, 2", [5, 2]), ("without 5, 2, 8", [5, 2, 8])],
)
def test_removing_dimensions(change, dimensions):
    x = planted()
    rest = np.delete(x, dimensions, axis=1)
    row = table_of(x).loc[change]
    assert row["average_cosine"] == pytest.approx(average_cosine(rest), rel=1e-9)
    assert row["rms_cosine"] == pytest.approx(rms_cosine(rest), rel=1e-9)
    assert row["neighbours_changed"] == pytest.approx(changed(x, rest), abs=1e-12)


@pytest.mark.parametrize("name", ["center", "standardize", "whiten", "all-but-the-top"])
def test_normalising(name):
    x = planted()
    profile = profile_of(x)
    after = NORMALIZERS[name](profile[-1])(x)
    if name == "center":
        np.testing.assert_allclose(after, x - x.mean(axis=0), atol=1e-12)
    row = table_of(x).loc[name]
    assert row["average_cosine"] == pytest.approx(average_cosine(after), abs=1e-9)
    assert row["rms_cosine"] == pytest.approx(rms_cosine(after), rel=1e-9)
    assert row["neighbours_changed"] == pytest.approx(changed(x, after), abs=1e-12)


def test_a_planted_dimension_makes_the_cosine():
    """With it every two rows look alike; the random ones do nothing."""
    table = table_of(shifted({3: 12})[:200])
    assert table.loc["none", "average_cosine"] > 0.7
    assert abs(table.loc["without 3", "average_cosine"]) < 0.02
    control = table.loc["without 3 random ones"]
    assert control["average_cosine"] > table.loc["none", "average_cosine"]


def test_a_wide_dimension_makes_the_neighbours():
    table = table_of(np.where(np.arange(20) == 4, 10, 1) * gaussian(120, 20))
    assert table.loc["without 4", "neighbours_changed"] > 0.6
    assert table.loc["without 3 random ones", "neighbours_changed"] < table.loc["without 4", "neighbours_changed"]
    assert table.loc["none", "neighbours_changed"] == 0


def test_control_takes_other_living_dimensions():
    """Of six that live three are the worst: only the other three are left."""
    x = gaussian(80, 7, seed=1)
    x[:, [0, 2, 4]] += [9, -6, 4]
    x[:, 5] = 0
    table = table_of(x)
    rest = np.delete(x, [1, 3, 6], axis=1)
    assert table.loc["without 3 random ones", "average_cosine"] == pytest.approx(average_cosine(rest), rel=1e-9)
    assert table.equals(table_of(x))


# -- edges -----------------------------------------------------------------------------------------------------------


def test_only_the_sampled_rows():
    x = gaussian(1_200, 6)
    x[:, 0] += 5
    profile = profile_of(x)
    sample = profile[-1].sample
    assert len(sample) == 1_024
    row = removal_table(Evidence(profile, -1)).set_index("change").loc["without 0"]
    assert row["average_cosine"] == pytest.approx(average_cosine(sample[:, 1:]), rel=1e-9)


def test_zero_rows_are_left_out():
    x = planted(60)
    with_zeros = np.insert(x, [0, 30], 0.0, axis=0)
    before, after = table_of(x), table_of(with_zeros)
    for change in ("none", "without 5", "without 5, 2, 8"):
        assert after.loc[change].to_list() == pytest.approx(before.loc[change].to_list(), rel=1e-9)


def test_a_row_that_becomes_zero_has_no_neighbours():
    x = np.abs(planted(60)) + 1
    x[7] = np.where(np.arange(12) == 5, 10, 0)
    row = table_of(x).loc["without 5"]
    assert np.isnan(row["neighbours_changed"])
    rest = np.delete(np.delete(x, 7, axis=0), 5, axis=1)
    assert row["average_cosine"] == pytest.approx(average_cosine(rest), rel=1e-9)


@pytest.mark.parametrize(("d", "changes"), [(1, []), (2, ["1"]), (3, ["1", "2"]), (4, ["1", "2", "3"])])
def test_few_dimensions_are_never_all_removed(d, changes):
    table = table_of(gaussian(50, d))
    named = [change for change in table.index if change.startswith("without") and "random" not in change]
    assert [len(change.removeprefix("without ").split(", ")) for change in named] == [int(count) for count in changes]
    assert ("without 1 random ones" in table.index) == (d == 4)


def test_fewer_rows_than_neighbours():
    """Five rows have four others each, whatever is removed."""
    table = table_of(planted(5))
    assert (table["neighbours_changed"] == 0).all()
    assert NEIGHBOURS == 10


def test_a_collapsed_layer_has_no_effects():
    table = removal_table(Evidence(profile_of(np.full((20, 8), 0.3)), -1))
    assert table.empty
    assert list(table) == ["change", "average_cosine", "rms_cosine", "neighbours_changed"]


def test_isotropic_signs_lose_nothing():
    """Their cosines are 0 on average; without a dimension still."""
    table = table_of(SIGNS)
    assert np.abs(table["average_cosine"]).max() < 3e-3
    assert np.isfinite(table["rms_cosine"]).all()
    stretched_table = table_of(stretched({4: 8}))
    assert stretched_table.loc["none", "rms_cosine"] > 2 * stretched_table.loc["without 4", "rms_cosine"]
