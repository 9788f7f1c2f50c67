"""How numbers and tables are worded."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from cases import HOSTILE, LONG, collapsed, diagnoses, judged, probed, three_layers, vectors

from cls_analysis import profile_vectors
from cls_analysis.diagnosis.measures import LABELS
from cls_analysis.report import wording

# -- numbers -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0, "0"),
        (-0.0, "0"),
        (1e-300, "1.0e-300"),
        (1e-5, "1.0e-05"),
        (-3.456e-4, "-3.5e-04"),
        (0.001, "0.00100"),
        (0.0634, "0.0634"),
        (0.05, "0.0500"),
        (0.099996, "0.100"),
        (0.5, "0.500"),
        (-0.25, "-0.250"),
        (1, "1"),
        (1.0, "1"),
        (1.25, "1.250"),
        (9.99, "9.990"),
        (9.9996, "10.0"),
        (10.04, "10.0"),
        (99.94, "99.9"),
        (99.95, "100"),
        (-99.95, "-100"),
        (384, "384"),
        (999.6, "1,000"),
        (1234, "1,234"),
        (99_999.4, "99,999"),
        (99_999.6, "1.00e+05"),
        (1e6, "1.00e+06"),
        (-1.5e7, "-1.50e+07"),
        (float("inf"), "inf"),
        (float("nan"), "–"),
        (None, "–"),
    ],
)
def test_number(value, shown):
    assert wording.number(value) == shown
    if value is not None:
        assert wording.number(np.float64(value)) == shown


def test_a_number_keeps_its_size_in_few_signs():
    sizes = 10.0 ** np.arange(-12, 12, 0.003)
    for value in [*sizes, *-sizes]:
        shown = wording.number(value)
        assert float(shown.replace(",", "")) == pytest.approx(value, rel=0.05 if abs(value) < 0.001 else 0.005)
        assert len(shown) <= 9
        assert wording.is_numeric([shown])


def test_digits_are_enough_to_tell_an_interval_from_a_point():
    assert wording.number(0.0328) != wording.number(0.0331)


@pytest.mark.parametrize(
    ("cells", "numeric"),
    [
        (["0.5", "–", ""], True),
        (["1,234", "-1.0e-05", "54.5%"], True),
        (["+0.1 [-0.2, 0.3]"], False),
        (["0.974 (best)"], False),
        (["1", "two"], False),
        (["–", ""], False),
        ([], False),
        (["CLS101"], False),
        (["."], False),
    ],
)
def test_columns_of_numbers(cells, numeric):
    assert wording.is_numeric(cells) is numeric


@pytest.mark.parametrize(
    ("value", "shown"), [(True, "yes"), (np.True_, "yes"), (np.False_, ""), (0.5, "0.500"), (3, "3"), ("a", "a")]
)
def test_cell(value, shown):
    assert wording.cell(value) == shown


@pytest.mark.parametrize(("text", "shown"), [("a b", "A b."), ("Done.", "Done."), ("μ = 1", "μ = 1.")])
def test_sentence(text, shown):
    assert wording.sentence(text) == shown


@pytest.mark.parametrize(
    ("dimensions", "shown"),
    [
        ((), ""),
        ((7,), "dimension 7"),
        ((7, 3), "dimensions 7, 3"),
        (tuple(range(14)), f"dimensions {', '.join(map(str, range(12)))} and 2 more"),
    ],
)
def test_dimensions(dimensions, shown):
    assert wording.listed_dimensions(dimensions) == shown


# -- what was looked at ------------------------------------------------------------------------------------------------


def test_heading_and_layer_of_vectors_without_an_encoder():
    profile = vectors().profile
    assert wording.heading(profile) == "vectors: n = 60, d = 16, given vectors, float64"
    assert wording.layer_name(profile, -1) == "the vectors"


def test_heading_and_layer_of_an_encoder():
    profile = three_layers()
    assert wording.heading(profile) == "bert-tiny on cola@dev: n = 60, d = 16, cls, float64"
    assert wording.layer_name(profile, 2) == "layer 2"


def test_heading_says_what_was_cut():
    profile = three_layers()
    profile.provenance = replace(profile.provenance, rows_cut=1200, rows_empty=3)
    assert wording.heading(profile).endswith("float64, 1,200 rows cut, 3 empty texts")


def test_severities_are_counted():
    diagnosis = vectors()
    severities = [finding.severity for finding in diagnosis.of_layer(-1)]
    assert wording.severity_counts(diagnosis).startswith(f"{severities.count('severe')} severe, ")
    assert wording.severity_counts(replace(diagnosis, findings=())) == "nothing found"
    warnings = [replace(diagnosis.findings[0], severity=severity) for severity in ("warning", "warning", "note")]
    assert wording.severity_counts(replace(diagnosis, findings=tuple(warnings))) == "2 warnings, 1 note"


# -- tables ------------------------------------------------------------------------------------------------------------


def test_main_figures_have_their_values_intervals_and_nulls():
    diagnosis = diagnoses("vectors")[0]
    table = wording.figure_rows(diagnosis)
    assert list(table.columns) == ["figure", "value", "95 % interval", "isotropic", "rows"]
    assert table["figure"].tolist() == list(LABELS.values())
    row = diagnosis.figures.set_index("figure").loc["common_mean_share"]
    shown = table.set_index("figure").loc["common mean share"]
    low, high = wording.number(row["low"]), wording.number(row["high"])
    assert shown["value"] == wording.number(row["value"])
    assert shown["95 % interval"] == f"{low} to {high} at this n"
    assert shown["isotropic"] == wording.number(1 / 60)


def test_intervals_that_were_not_asked_for_are_empty():
    assert set(wording.figure_rows(judged(profile_vectors(np.eye(5))))["95 % interval"]) == {""}


def test_layers_from_the_top_with_the_worst_severity_on_each_axis():
    diagnosis = judged(three_layers())
    table = wording.layer_overview(diagnosis)
    assert table["layer"].tolist() == ["2", "1", "0"]
    assert table["mean"].tolist() == ["severe", "severe", ""]
    assert table["findings"].iloc[-1] == ""
    assert table["findings"].iloc[0].split(", ")[0] == diagnosis.of_layer(2)[0].code


def test_comparison_marks_both_ends_and_keeps_names_as_they_are():
    several = [*diagnoses("hostile and long names"), *diagnoses("nothing found")]
    table = wording.comparison_rows(several)
    assert list(table.columns) == ["figure", HOSTILE, LONG, "isotropic", "comparable"]
    row = table.set_index("figure").loc["average cosine"]
    assert row["isotropic"].endswith(" (best)")
    assert [row[HOSTILE].endswith(" (worst)"), row[LONG].endswith(" (worst)")].count(True) == 1
    assert row["comparable"] == "yes"
    # What n biases has no best where n differs.
    assert table.set_index("figure").loc["IsoScore", "comparable"] == "no"
    assert not any("(" in cell for cell in table.set_index("figure").loc["IsoScore"])


def test_comparison_with_a_profile_called_like_one_of_our_columns():
    table = wording.comparison_rows([vectors(name="comparable"), vectors(70, name="null")])
    assert list(table.columns) == ["figure", "comparable", "null", "comparable"]
    assert set(table.iloc[:, 3]) == {"yes", "no"}


def test_differences_of_the_probe_are_in_points_and_zero_has_no_minus():
    table = wording.probe_rows(probed(vectors()))
    assert table["classifier"].tolist() == ["at its optimum"] * 2 + ["200 steps of SGD", "200 steps of AdamW"]
    assert table["difference (points)"].tolist() == [
        "",
        "+0.0 [+0.0, +0.0]",
        "+25.0 [+10.0, +40.0]",
        "-10.0 [-20.0, +2.0]",
    ]
    assert table["accuracy"].tolist() == ["50.0%", "50.0%", "75.0%", "40.0%"]
    assert wording.probe_rows(vectors()).empty


def test_rows_that_are_enough():
    diagnosis = diagnoses("layers, probe, how many")[0]
    table = wording.sufficiency_rows(diagnosis)
    answers = diagnosis.sufficiency.answers
    assert table["figure"].tolist() == [LABELS[name] for name in answers["figure"]]
    assert table["enough"].tolist() == ["yes" if enough else "no" for enough in answers["enough"]]
    curve = wording.curve_rows(diagnosis)
    assert curve["figure (isotropic)"].tolist() == table["figure"].tolist()
    assert list(curve.columns)[-1] == "n = 60"
    assert curve.set_index("figure (isotropic)").loc["average cosine", "n = 60"].endswith(" (0)")


@pytest.mark.parametrize("diagnosis", [vectors(), collapsed(), vectors(9, how_many=True)])
def test_no_answer_where_none_was_asked_for_or_can_be_given(diagnosis):
    assert wording.sufficiency_rows(diagnosis).empty
    assert wording.curve_rows(diagnosis).empty


def test_headings_of_columns():
    table = wording.readable(pd.DataFrame({"interval": [0.5], "neighbours_changed": [True], "some_name": ["a_b"]}))
    assert list(table.columns) == ["95 % interval", "neighbours changed", "some name"]
    assert table.iloc[0].tolist() == ["0.500", "yes", "a_b"]
