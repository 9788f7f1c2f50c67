"""How figures look: sizes for papers, embedded fonts, colours that survive colour blindness and grey print.

Figures are made with matplotlib's objects and the Agg canvas: no pyplot state, no display, the caller's settings
untouched.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter, StrMethodFormatter
from numpy.typing import ArrayLike, NDArray

from cls_analysis.errors import OptionError, unknown_name
from cls_analysis.files import whole_file

#: Widths in inches: one column of a two-column paper, and its full text width (the ACL format's).
COLUMN, TEXT = 3.03, 6.30
#: Okabe and Ito 2008, without yellow (too light on white) and black, and wine of Tol 2021.
#: Told apart in grey by line style and marker.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#882255")
# Dotted is kept for nulls.
LINES = ("-", "--", "-.", (0, (3, 1, 1, 1)), (0, (6, 1)), (0, (8, 2, 2, 2)), (0, (3, 1, 1, 1, 1, 1)))
#: Bars have no line style: their hatching tells them apart in grey.
HATCHES = ("", "////", "....", "xxx", "----", "ooo", "+++")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
#: Nulls, axes at zero, and what is not the data.
GREY = "#6e6e6e"
FORMATS = ("pdf", "png", "svg")
PNG_DPI = 200
#: Pixels a heat map has room for across the text width at the PNG's resolution.
HEATMAP_CELLS = int(TEXT * PNG_DPI)

# Any: matplotlib's stubs list every key as a Literal.
RC: Any = {
    "font.size": 8,
    "axes.titlesize": 8,
    "axes.labelsize": 8,
    "xtick.labelsize": 7,
    "ytick.labelsize": 7,
    "legend.fontsize": 7,
    "figure.titlesize": 8,
    "font.family": "DejaVu Sans",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.unicode_minus": True,
    # Names of data sets are no formulas, whatever they hold.
    "text.parse_math": False,
    "lines.linewidth": 1.1,
    "lines.markersize": 3.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "figure.dpi": 100,
    "savefig.facecolor": "white",
    # TrueType in vector files: publishers refuse the default Type 3.
    "pdf.fonttype": 42,
    "ps.fonttype": 42,
    "svg.fonttype": "path",
    "svg.hashsalt": "cls_analysis",
    "path.simplify": True,
}


@contextmanager
def paper_style() -> Iterator[None]:
    """The settings above, for the figure being drawn or saved only."""
    with mpl.rc_context(RC):
        yield


def new_figure(width: float, height: float) -> Figure:
    """An empty figure on the Agg canvas, laid out so that nothing overlaps."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels(n: int, *, height: float, **options: Any) -> tuple[Figure, list[Axes]]:
    """One panel per profile: a single one at column width, several in two columns at text width."""
    columns = 1 if n == 1 else 2
    rows = -(-n // columns)
    figure = new_figure(COLUMN if n == 1 else TEXT, height * rows + 0.4)
    axes = figure.subplots(rows, columns, squeeze=False, **options).ravel().tolist()
    for unused in axes[n:]:
        unused.set_axis_off()
    return figure, axes[:n]


def look(index: int) -> dict[str, Any]:
    """Colour, line style and marker of the ``index``-th profile."""
    # After one round the colours come back with other lines and markers.
    shifted = index + index // len(COLOURS)
    return {
        "color": COLOURS[index % len(COLOURS)],
        "linestyle": LINES[shifted % len(LINES)],
        "marker": MARKERS[shifted % len(MARKERS)],
    }


def line_look(index: int) -> dict[str, Any]:
    """Colour and line style only, for lines of many points."""
    return {key: value for key, value in look(index).items() if key != "marker"}


def label_dimensions(axes: Axes, x: ArrayLike, y: ArrayLike, names: ArrayLike) -> None:
    """Write the dimension's number beside each point; a label that would overlap one written before is left out."""
    low, high = axes.get_xlim()
    bottom, top = axes.get_ylim()
    placed: list[tuple[float, float]] = []
    points = np.column_stack([np.asarray(column, dtype=float) for column in (x, y, names)])
    for position, value, name in points.tolist():
        at = (position - low) / (high - low), (value - bottom) / (top - bottom)
        if any(abs(at[0] - other[0]) < 0.09 and abs(at[1] - other[1]) < 0.12 for other in placed):
            continue
        placed.append(at)
        right = at[0] < 0.88
        axes.annotate(
            f"{name:.0f}",
            (position, value),
            xytext=(3 if right else -3, 0),
            textcoords="offset points",
            ha="left" if right else "right",
            va="center",
            fontsize=7,
        )


def title(figure: Figure, what: str, shown: str) -> None:
    """The figure's title: what it is of, and which vectors; on as many lines as its width asks for."""
    characters = int(16.5 * figure.get_figwidth())
    figure.suptitle(textwrap.fill(f"{what}: {shown}", characters, break_on_hyphens=False))


def say(axes: Axes, text: str) -> None:
    """Write ``text`` in the middle of an empty panel."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", va="center", color=GREY)


def log_scale(axes: Axes, which: Literal["x", "y"]) -> None:
    """Make an axis logarithmic, labelled 1, 10, 100: powers would need the formula parser, which is off for names."""
    (axes.set_xscale if which == "x" else axes.set_yscale)("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axis.set_minor_formatter(NullFormatter())


def legend_label(name: str) -> str:
    """``name`` for a legend; matplotlib hides labels that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name


def legend_below(figure: Figure, axes: Axes) -> None:
    """The legend of ``axes`` for the whole figure, under it, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    columns = 4 if figure.get_figwidth() > COLUMN and max(map(len, labels)) < 24 else 2
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, handlelength=2.5)


def pool_columns(matrix: NDArray[Any], cells: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Reduce the columns of a matrix to at most ``cells``, keeping of each group the value with the largest |x|.

    Returns the pooled matrix and the first column of each group. Averaging, or leaving the choice to the renderer,
    would hide a single hot column.
    """
    edges = np.unique(np.linspace(0, matrix.shape[1], min(cells, matrix.shape[1]) + 1).astype(np.int64))
    groups = [matrix[:, a:b] for a, b in itertools.pairwise(edges)]
    pooled = [np.take_along_axis(g, np.abs(g).argmax(axis=1)[:, None], axis=1)[:, 0] for g in groups]
    return np.stack(pooled, axis=1), edges[:-1]


def save_figure(figure: Figure, path: Path, formats: Sequence[str], description: str) -> list[Path]:
    """Write ``path.pdf``, ``path.png``, …, each whole and without a date, so that the same figure gives the same bytes.

    Raises
    ------
    OptionError
        If a format is unknown.
    """
    check_formats(formats)
    written = []
    for name in formats:
        target = path.with_suffix(f".{name}")
        with paper_style(), whole_file(target) as temporary:
            figure.savefig(temporary, format=name, dpi=PNG_DPI, metadata=_metadata(name, description))
        written.append(target)
    return written


def check_formats(formats: Sequence[str]) -> None:
    """Raise ``OptionError`` for a format that figures are not written in."""
    for name in formats:
        if name not in FORMATS:
            raise OptionError(unknown_name("format", name, FORMATS))


def _metadata(name: str, description: str) -> dict[str, Any]:
    if name == "pdf":
        return {"Subject": description, "CreationDate": None, "Creator": "cls_analysis"}
    if name == "svg":
        return {"Description": description, "Date": None, "Creator": "cls_analysis"}
    return {"Description": description, "Software": "cls_analysis"}
