"""The report for a terminal."""

from __future__ import annotations

import re

import numpy as np
import pytest
from cases import HOSTILE, LONG, MAKERS, collapsed, diagnoses, probed, vectors

from cls_analysis.report.text import render_text, render_weights_text
from cls_analysis.weights import LayerNorm

CODE = re.compile("\x1b\\[[0-9;]*m")


def blocks(text: str) -> dict[str, list[str]]:
    """Lines of each part by its title, as far as the titles differ."""
    parts = [part.splitlines() for part in text.strip().split("\n\n")]
    return {lines[0]: lines[1:] for lines in parts}


@pytest.mark.parametrize("name", MAKERS)
def test_plain_is_plain_and_colours_change_nothing_else(name):
    plain, coloured = render_text(diagnoses(name)), render_text(diagnoses(name), colour=True)
    assert "\x1b" not in plain
    assert CODE.sub("", coloured) == plain
    assert len(CODE.findall(coloured)) > 4
    assert plain.endswith("\n")
    assert not plain.endswith("\n\n")


@pytest.mark.parametrize("name", MAKERS)
def test_lines_are_short(name):
    """But for a long name, and the two tables that grow with the codes found and with the Profiles."""
    parts = render_text(diagnoses(name)).split("\n\n")
    lines = [line for part in parts if not part.startswith(("All layers", "Comparison")) for line in part.splitlines()]
    assert [line for line in lines if len(line) > 140 and LONG not in line and HOSTILE not in line] == []


@pytest.mark.parametrize("name", MAKERS)
def test_no_line_ends_in_spaces(name):
    assert not re.search(r"[ \t]$", render_text(diagnoses(name)), flags=re.MULTILINE)


def test_verdict_first():
    (diagnosis,) = diagnoses("vectors")
    heading, *verdict = render_text([diagnosis]).split("\n\n")[0].splitlines()
    assert heading.startswith("vectors: n = 60, d = 16")
    assert " ".join(line.strip() for line in verdict) == f"the vectors: {diagnosis.verdict()}"


def test_findings_with_evidence_and_remedy():
    (diagnosis,) = diagnoses("vectors")
    text = " ".join(render_text([diagnosis]).split())
    for finding in diagnosis.findings:
        assert f"{finding.code} {finding.name}" in text
        assert finding.evidence[1:] in text
        assert (f"→ {finding.remedy}" in text) == (finding.severity != "note")


def test_columns_of_numbers_stand_to_the_right_and_others_to_the_left():
    head, first, *_ = blocks(render_text(diagnoses("vectors")))["Figures of the vectors"]
    assert first.startswith("common mean share ")
    assert head.index("value") + len("value") == first.index(re.findall(r"\d\.\d+", first)[0]) + 5
    assert head.index("95 %") == re.search(r"\d\.\d+ to", first).start()


def test_nothing_found():
    text = render_text(diagnoses("nothing found"))
    assert "the vectors: near isotropic: nothing to normalise." in text
    assert "Findings (the vectors: nothing found)\n\nFigures" in text


def test_collapsed_vectors_have_no_tables_of_their_shape():
    text = render_text([collapsed()])
    assert "collapsed: all texts have the same vector." in text
    assert "Figures of" not in text
    assert "Condition number" not in text
    assert "Too few rows to say" in text
    assert "linear classifier" not in text


def test_probe_or_why_there_is_none():
    assert "not measured: no labels were given." in render_text([vectors()])
    text = render_text([probed(vectors())])
    assert "n = 1,234, 2 classes, majority 50.0%" in text
    assert "+25.0 [+10.0, +40.0]" in text


def test_condition_numbers_need_more_rows_than_dimensions():
    assert "Condition number after normalising" in render_text([vectors(60)])
    assert "Condition number after normalising" not in render_text([vectors(9)])


def test_how_many_rows_only_where_asked():
    assert "How many rows?" not in render_text([vectors()])
    assert "n = 60\n" in render_text(diagnoses("layers, probe, how many"))


def test_comparison_only_of_several():
    assert "Comparison" not in render_text(diagnoses("vectors"))
    text = render_text(diagnoses("three encoders"))
    head = text.split("\nComparison\n")[1].splitlines()[0]
    assert re.split("  +", head) == ["figure", "bert-a", "bert-b #2", "bert-b #3", "comparable"]
    assert "not comparable" not in text
    assert "(not comparable: another isotropic value" in render_text(diagnoses("hostile and long names"))


# -- LayerNorm weights -------------------------------------------------------------------------------------------------


def norms(outliers: int, *, on_output: bool = True) -> list[LayerNorm]:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((3, 768)) * 0.01 + 1
    weights[1, :outliers] += 9
    return [LayerNorm(i + 1, f"layer.{i}", row, on_output=on_output) for i, row in enumerate(weights)]


def test_weights_name_the_outliers_and_cut_long_lists():
    text = render_weights_text("bert-x", norms(12))
    assert text.startswith("bert-x: LayerNorm weights of 3 layers, d = 768\n")
    (line,) = [line for line in text.splitlines() if line.startswith("layer 2 ")]
    assert len(re.findall(r"\d+ \([+-]\d", line)) == 8
    assert line.endswith("and 4 more")
    assert max(map(len, text.splitlines())) <= 140


def test_weights_say_that_a_pre_norm_model_is_one():
    assert "pre-norm" in render_weights_text("x", norms(1, on_output=False))
    assert "pre-norm" not in render_weights_text("x", norms(1))


def test_weights_without_outliers():
    flat = [LayerNorm(1, "layer.0", np.tile([1.0, -1.0], 8))]
    assert "no entry lies beyond three standard deviations" in render_weights_text("x", flat)
