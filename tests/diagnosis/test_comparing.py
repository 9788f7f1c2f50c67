"""Several Profiles side by side: names, the best and the worst, and what may be compared."""

from __future__ import annotations

import numpy as np
import pytest
from planted import SIGNS, correlated, gaussian, profile_of, shifted, stretched

from cls_analysis import diagnose, load_texts
from cls_analysis.diagnosis.comparing import comparison_table, names_of
from cls_analysis.diagnosis.measures import FIGURES
from cls_analysis.errors import OptionError
from cls_analysis.statistics.intervals import BIASED_BY_N

#: Where only names count.
ROWS = gaussian(20, 4)


def diagnosed(x, name: str = "encoder", texts=None):
    return diagnose(profile_of(x, source="cls", name=name, texts=texts) if name else profile_of(x), intervals=False)


@pytest.fixture(scope="module")
def several():
    """Nothing, a mean, a scale and directions."""
    cases = {"clean": SIGNS, "mean": shifted({3: 8}), "scale": stretched({4: 8}), "directions": correlated(1)}
    return [diagnosed({1: x}, name) for name, x in cases.items()]


def test_a_row_for_each_figure_and_a_column_for_each_profile(several):
    table = comparison_table(several)
    assert list(table) == ["figure", "label", "clean", "mean", "scale", "directions", "best", "worst", "comparable"]
    assert table["figure"].tolist() == [kind.name for kind in FIGURES]
    for diagnosis in several:
        values = diagnosis.figures.set_index("figure")["value"]
        np.testing.assert_array_equal(table[diagnosis.profile.encoder], values[table["figure"]])
    assert table["comparable"].all()


@pytest.mark.parametrize(
    ("figure", "best", "worst"),
    [
        ("common_mean_share", "clean", "mean"),  # lower is better
        ("top1_energy_share", "clean", "mean"),  # 65 of 96, 64 of 95
        ("std_ratio", "clean", "scale"),
        ("mean_abs_correlation", "clean", "directions"),
        ("isoscore", "clean", "scale"),  # higher is better
        ("effective_rank", "clean", "scale"),
        ("condition_number", "clean", "mean"),  # 65, 64, 33
        ("average_cosine_centred", "", ""),  # says nothing
        ("twonn_dimension", "", ""),
        ("max_kurtosis_excess", "", ""),
    ],
)
def test_best_and_worst_by_direction(several, figure, best, worst):
    row = comparison_table(several).set_index("figure").loc[figure]
    better = next(kind.better for kind in FIGURES if kind.name == figure)
    values = row[["clean", "mean", "scale", "directions"]].astype(float)
    if better:
        low, high = values.idxmin(), values.idxmax()
        assert (row["best"], row["worst"]) == ((high, low) if better > 0 else (low, high))
        assert values[row["best"]] == pytest.approx(values[best])
    assert row["worst"] == worst
    assert (row["best"] == "") == (best == "")


def test_equal_values_have_no_best(several):
    table = comparison_table([several[1], several[1]])
    assert (table["best"] == "").all()
    assert (table["worst"] == "").all()


def test_rounding_makes_none_the_best():
    """A mean moves the spectrum of the covariance by rounding alone."""
    x = gaussian(300, 16)
    table = comparison_table([diagnosed(x, "centred"), diagnosed(x + 8.0 * (np.arange(16) == 3), "shifted")])
    table = table.set_index("figure")
    for figure in ("isoscore", "effective_rank", "ev1", "std_ratio", "mean_abs_correlation"):
        assert table.loc[figure, "centred"] == pytest.approx(table.loc[figure, "shifted"], rel=1e-9)
        assert table.loc[figure, ["best", "worst"]].tolist() == ["", ""], figure
    assert table.loc["common_mean_share", ["best", "worst"]].tolist() == ["centred", "shifted"]


def test_unequal_n_compares_no_biased_figure():
    """IsoScore of 100 isotropic rows is lower than of 1,000 by n alone."""
    table = comparison_table([diagnosed(gaussian(100, 16), "few"), diagnosed(gaussian(1_000, 16), "many")])
    table = table.set_index("figure")
    for figure, row in table.iterrows():
        assert row["comparable"] == (figure not in BIASED_BY_N), figure
        if figure in BIASED_BY_N:
            assert (row["best"], row["worst"]) == ("", ""), figure
    assert table.loc["isoscore", "few"] < table.loc["isoscore", "many"] - 0.05
    assert table.loc["average_cosine", "comparable"]
    assert {"isoscore", "effective_rank", "ev1", "common_mean_share", "mean_abs_correlation"} <= BIASED_BY_N


def test_a_collapsed_profile_has_no_values(several):
    collapsed = diagnosed({1: np.full_like(SIGNS, 0.3)}, "one vector")
    table = comparison_table([collapsed, several[1], several[0]]).set_index("figure")
    assert table["one vector"].isna().all()
    assert table.loc["common_mean_share", ["best", "worst"]].tolist() == ["clean", "mean"]
    alone = comparison_table([collapsed, several[1]])
    assert (alone["best"] == "").all()


@pytest.mark.parametrize("count", [0, 1])
def test_a_comparison_needs_two(several, count):
    with pytest.raises(OptionError, match="at least two Profiles"):
        comparison_table(several[:count])


def test_names():
    one, other = load_texts(["a", "b"]), load_texts(["a", "c"])
    a, b = (diagnosed({1: ROWS}, name) for name in ("A", "B"))
    assert names_of([a]) == ["A"]
    assert names_of([a, b]) == ["A", "B"]
    assert names_of([a, a, b]) == ["A #1", "A #2", "B"]
    texts = [diagnosed({1: ROWS}, "A", texts) for texts in (one, other)]
    assert names_of(texts) == ["A #1", "A #2"]  # both are called texts


def test_names_by_data_set_and_by_both(tmp_path):
    datasets = []
    for name in ("x", "y"):
        (tmp_path / f"{name}.txt").write_text(f"{name}\n")
        datasets.append(load_texts(tmp_path / f"{name}.txt"))
    first, second = (diagnosed({1: ROWS}, "A", texts) for texts in datasets)
    assert names_of([first, second]) == [texts.identity.label for texts in datasets]
    third = diagnosed({1: ROWS}, "B", datasets[1])
    labels = [texts.identity.label for texts in datasets]
    assert names_of([first, third]) == [f"A on {labels[0]}", f"B on {labels[1]}"]
    assert names_of([diagnosed(ROWS, "")]) == ["vectors"]
