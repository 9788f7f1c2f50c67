"""How figures are made: no state left behind, fonts that publishers take, the same bytes every time."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from cls_analysis.errors import OptionError
from cls_analysis.plotting.style import (
    COLUMN,
    FORMATS,
    TEXT,
    label_dimensions,
    line_look,
    look,
    new_figure,
    panels,
    paper_style,
    pool_columns,
    save_figure,
)


def sketch():
    with paper_style():
        figure = new_figure(COLUMN, 2)
        axes = figure.subplots()
        axes.plot([1, 2, 3], label="σ")
        axes.imshow(np.eye(3), rasterized=True)
        axes.legend()
        return figure


# -- pooling ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [5.0, -5.0])
@pytest.mark.parametrize("hot", [0, 12_345, 29_999])
def test_case_45_one_hot_column_survives(hot, value):
    """Case 45: 4 × 30,000 on 600 pixels; left to the renderer, no pixel shows the column."""
    matrix = np.zeros((4, 30_000))
    matrix[:, hot] = value
    pooled, first = pool_columns(matrix, 600)
    assert pooled.shape == (4, 600)
    assert first.tolist() == list(range(0, 30_000, 50))
    cells = np.flatnonzero(pooled[0])
    assert cells.tolist() == [hot // 50]
    assert (pooled[:, cells] == value).all()


@pytest.mark.parametrize(("d", "cells"), [(1, 600), (7, 7), (8, 7), (1_500, 1_260), (700, 600)])
def test_pooling_keeps_the_extreme_of_each_group(d, cells):
    matrix = np.random.default_rng(0).standard_normal((3, d))
    pooled, first = pool_columns(matrix, cells)
    assert pooled.shape == (3, min(d, cells))
    for cell, (start, end) in enumerate(zip(first, [*first[1:], d], strict=True)):
        for row in range(3):
            assert pooled[row, cell] == max(matrix[row, start:end], key=abs)


# -- state -----------------------------------------------------------------------------------------------------------


def test_case_45_callers_settings_are_untouched(tmp_path):
    """Case 45: also where drawing fails."""
    before = dict(mpl.rcParams)
    save_figure(sketch(), tmp_path / "a", FORMATS, "")
    with pytest.raises(ZeroDivisionError), paper_style():
        _ = 1 / 0
    assert dict(mpl.rcParams) == before


def test_case_45_no_pyplot_figures():
    """Case 45: pyplot warns from the twenty-first figure on; ours are none of its."""
    figures = [sketch() for _ in range(30)]
    assert all(isinstance(figure.canvas, FigureCanvasAgg) for figure in figures)
    assert plt.get_fignums() == []


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMATS)
def test_same_bytes_twice(tmp_path, form):
    first, second = (save_figure(sketch(), tmp_path / name, [form], "from here") for name in "ab")
    assert [path.name for path in first] == [f"a.{form}"]
    assert first[0].read_bytes() == second[0].read_bytes()
    assert b"from here" in first[0].read_bytes()


def test_case_45_truetype_whatever_the_caller_set(tmp_path):
    """Case 45: publishers refuse Type 3 fonts, matplotlib's default."""
    with mpl.rc_context({"pdf.fonttype": 3}):
        data = save_figure(sketch(), tmp_path / "a", ["pdf"], "")[0].read_bytes()
    assert b"/Type3" not in data
    assert b"/FontFile2" in data


def test_unknown_format_writes_nothing(tmp_path):
    with pytest.raises(OptionError, match=r"unknown format 'pgn': did you mean 'png'\?"):
        save_figure(sketch(), tmp_path / "a", ["pdf", "pgn"], "")
    assert list(tmp_path.iterdir()) == []


# -- looks -----------------------------------------------------------------------------------------------------------


def test_profiles_are_told_apart_without_colour():
    looks = [look(index) for index in range(7)]
    for key in ("color", "linestyle", "marker"):
        assert len({str(each[key]) for each in looks}) == 7
    assert look(7)["color"] == look(0)["color"]
    assert look(7)["linestyle"] != look(0)["linestyle"]
    assert set(line_look(1)) == {"color", "linestyle"}


@pytest.mark.parametrize(("n", "width", "shape"), [(1, COLUMN, 1), (2, TEXT, 2), (3, TEXT, 4)])
def test_panels(n, width, shape):
    figure, axes = panels(n, height=1)
    assert figure.get_figwidth() == width
    assert (len(axes), len(figure.axes)) == (n, shape)
    assert [ax.axison for ax in figure.axes] == [True] * n + [False] * (shape - n)


def test_labels_do_not_overlap():
    axes = new_figure(COLUMN, 2).subplots()
    axes.set(xlim=(0, 100), ylim=(0, 1))
    label_dimensions(axes, [10, 12, 50, 95], [0.5, 0.52, 0.5, 0.5], [10, 12, 50, 95])
    assert [(text.get_text(), text.get_ha()) for text in axes.texts] == [
        ("10", "left"),
        ("50", "left"),
        ("95", "right"),
    ]
