"""Every kind of figure from every kind of Profile, and the numbers beside it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import cache

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scipy.stats

from cls_analysis import Profile, profile_vectors, summarize
from cls_analysis.errors import OptionError
from cls_analysis.plotting import FIGURES
from cls_analysis.plotting.names import legend_names
from cls_analysis.provenance import DatasetIdentity, EncoderIdentity
from cls_analysis.workflows.figures import draw_figures

KINDS = ["mean", "values", "std", "kurtosis", "concentration", "correlation", "spectrum", "layers"]
OF_ONE_LAYER = KINDS[:-1]


def cloud(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Skewed vectors with outlier dimensions of both kinds."""
    x = np.random.default_rng(seed).gamma(2.0, size=(n, d))
    x[:, d // 2] += 9 * np.sqrt(d)
    x[:, d // 3] *= 9
    return x


def named(profile: Profile, *, encoder: str = "bert-tiny", dataset: str = "cola") -> Profile:
    """``profile`` as if it came from an encoder."""
    identity = EncoderIdentity(encoder, "w" * 32, "t" * 32, "BertModel", profile.dim, 2, "cls", 512, "sdpa", "none")
    datasets = (DatasetIdentity(dataset, "dev", profile.provenance.datasets[0].hash),)
    return Profile(
        {number: profile[number] for number in profile.layers},
        replace(profile.provenance, encoder=identity, datasets=datasets, layers=profile.layers),
    )


@cache
def with_layers(encoder: str = "bert-tiny", dataset: str = "cola") -> Profile:
    """Three layers, the first the same vector for every text."""
    layers = [np.ones((40, 8)), cloud(40, 8, 1), cloud(40, 8, 2)]
    held = {number: profile_vectors(x)[-1] for number, x in enumerate(layers)}
    return named(Profile(held, profile_vectors(layers[0]).provenance), encoder=encoder, dataset=dataset)


@cache
def vectors_of(n: int, d: int, name: str = "vectors", seed: int = 0) -> Profile:
    return profile_vectors(cloud(n, d, seed), name=name)


COLLAPSED = profile_vectors(np.full((9, 384), 14.3), name="collapsed")
SETS = {
    "three of d = 384, one collapsed": lambda: [vectors_of(60, 384), vectors_of(50, 384, "b", 1), COLLAPSED],
    "d = 1500": lambda: [vectors_of(60, 1_500)],
}
EDGES = {
    "d = 8": lambda: [with_layers()],
    "collapsed": lambda: [profile_vectors(np.full((9, 8), 14.3))],
    "one row": lambda: [vectors_of(1, 8)],
    "two rows, two dimensions": lambda: [vectors_of(2, 2)],
    "equal spreads": lambda: [profile_vectors(np.random.default_rng(0).permuted([np.arange(30) ** 0.5] * 8, axis=1).T)],
}


def draw(name: str, profiles, layer: int = -1):
    kind = FIGURES[name]
    return kind.draw(kind.table(profiles, layer), profiles, layer)


def numbers(name: str, profiles, folder) -> pd.DataFrame:
    """The CSV beside a figure."""
    draw_figures(profiles, folder, only=[name], formats=[])
    return pd.read_csv(folder / f"{name}.csv")


# -- every figure ----------------------------------------------------------------------------------------------------


def test_kinds():
    assert list(FIGURES) == KINDS


@pytest.mark.parametrize("which", SETS)
@pytest.mark.parametrize("name", OF_ONE_LAYER)
def test_case_45_every_figure_without_warning_or_type_3(tmp_path, name, which):
    """Case 45: warnings are errors here; fonts are TrueType; heat maps are rasterised."""
    (drawn,) = draw_figures(SETS[which](), tmp_path, only=[name], formats=["pdf"])
    pdf, csv = drawn.files
    assert (pdf.name, csv.name, drawn.skipped) == (f"{name}.pdf", f"{name}.csv", None)
    assert b"/Type3" not in pdf.read_bytes()
    assert pdf.stat().st_size < 300_000
    assert csv.read_text().startswith("profile,")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([pdf.name, csv.name, "provenance.json"])


@pytest.mark.parametrize("which", EDGES)
@pytest.mark.parametrize("name", OF_ONE_LAYER)
def test_every_figure_of_little_data_without_warning(name, which):
    draw(name, EDGES[which]()).canvas.draw()


@pytest.mark.parametrize("name", KINDS)
def test_no_label_shows_its_markup(name):
    """Numbers on logarithmic axes are formulas to matplotlib, and names of data sets must not be."""
    figure = draw(name, [with_layers()])
    figure.canvas.draw()
    assert not [text.get_text() for text in figure.findobj(mpl.text.Text) if "$" in text.get_text()]


@pytest.mark.parametrize("several", [False, True])
def test_figure_of_layers(tmp_path, several):
    profiles = [with_layers(), with_layers("other")] if several else [with_layers()]
    (drawn,) = draw_figures(profiles, tmp_path, only=["layers"], formats=["pdf"])
    assert b"/Type3" not in drawn.files[0].read_bytes()


def test_collapsed_layer_is_not_drawn_and_named():
    profile = with_layers()
    moved = Profile({0: profile[1], 1: profile[0], 2: profile[2]}, profile.provenance)
    for held, collapsed in ((profile, 0), (moved, 1)):
        figure = draw("layers", [held])
        assert f"layer {collapsed} " in figure.get_suptitle()
        drawn = [list(line.get_xdata()) for line in figure.axes[0].lines]
        assert drawn
        assert all(collapsed not in line for line in drawn)


def test_single_layer_leaves_out_the_figure_of_layers(tmp_path):
    profile = vectors_of(40, 8)
    drawn = {figure.name: figure for figure in draw_figures([profile], tmp_path, formats=[])}
    assert list(drawn) == KINDS
    assert "several layers" in drawn["layers"].skipped
    assert not drawn["layers"].files
    for name in OF_ONE_LAYER:
        assert [path.name for path in drawn[name].files] == [f"{name}.csv"]
    with pytest.raises(OptionError, match="several layers"):
        draw_figures([profile], tmp_path, only=["layers"])


def test_same_bytes_twice(tmp_path):
    for folder in ("a", "b"):
        draw_figures([vectors_of(30, 8)], tmp_path / folder, only=["values"], formats=["png", "pdf", "svg"])
    files = sorted((tmp_path / "a").iterdir())
    assert len(files) == 5
    for path in files:
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_every_figure_carries_its_provenance(tmp_path):
    profile = with_layers()
    (drawn,) = draw_figures([profile], tmp_path, only=["mean"], formats=["png", "pdf", "svg"])
    for path in drawn.files[:3]:
        assert profile.provenance.encoder.weights_hash.encode() in path.read_bytes()
    assert json.loads((tmp_path / "provenance.json").read_text()) == [json.loads(profile.provenance.to_json())]


# -- state -----------------------------------------------------------------------------------------------------------


def test_case_45_callers_state_is_untouched():
    """Case 45: settings stay, and pyplot holds no figure after thirty of ours."""
    before = dict(mpl.rcParams)
    for name in OF_ONE_LAYER:
        draw(name, [vectors_of(30, 8)])
    for _ in range(30):
        draw("mean", [vectors_of(30, 8)])
    assert dict(mpl.rcParams) == before
    assert plt.get_fignums() == []


def test_case_45_without_display_and_without_torch(tmp_path):
    """Case 45: TkAgg asked for in the environment, and no display."""
    code = (
        "import sys, pathlib, numpy\n"
        "from cls_analysis import profile_vectors\n"
        "from cls_analysis.workflows.figures import draw_figures\n"
        "profile = profile_vectors(numpy.random.default_rng(0).normal(size=(20, 8)))\n"
        "draw_figures([profile], pathlib.Path(sys.argv[1]), only=['std', 'values'], formats=['png'])\n"
        "assert not {'torch', 'transformers'} & set(sys.modules)\n"
    )
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "WAYLAND_DISPLAY")}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment | {"MPLBACKEND": "TkAgg"}, check=True)
    assert (tmp_path / "std.png").stat().st_size > 1_000


# -- names and options -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("only", [(), ("mean",)])
def test_unknown_format(tmp_path, only):
    with pytest.raises(OptionError, match=r"unknown format 'pfd': did you mean 'pdf'\?"):
        draw_figures([vectors_of(30, 8)], tmp_path, only=only, formats=["pfd"])


def test_unknown_figure(tmp_path):
    with pytest.raises(OptionError, match=r"unknown figure 'spektrum': did you mean 'spectrum'\?"):
        draw_figures([vectors_of(30, 8)], tmp_path, only=["mean", "spektrum"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([("bert", "cola")], ["cola@dev"]),
        ([("bert", "cola"), ("bert", "rte")], ["cola@dev", "rte@dev"]),
        ([("bert", "cola"), ("roberta", "cola")], ["bert", "roberta"]),
        ([("bert", "cola"), ("roberta", "rte")], ["bert, cola@dev", "roberta, rte@dev"]),
        ([("bert", "cola"), ("bert", "cola")], ["cola@dev #1", "cola@dev #2"]),
        ([("bert", "cola"), ("bert", "rte"), ("bert", "cola")], ["cola@dev #1", "rte@dev", "cola@dev #3"]),
    ],
)
def test_profiles_are_called_by_what_tells_them_apart(pairs, expected):
    assert legend_names([with_layers(*pair) for pair in pairs]) == expected


def test_profiles_alike_in_name_keep_their_own_panels(tmp_path):
    profiles = [vectors_of(30, 8, seed=1), vectors_of(40, 8, seed=2)]
    titles = [ax.get_title() for ax in draw("mean", profiles).axes]
    assert titles == ["vectors #1 (n = 30)", "vectors #2 (n = 40)"]
    assert numbers("mean", profiles, tmp_path)["profile"].unique().tolist() == ["vectors #1", "vectors #2"]


@pytest.mark.parametrize("name", ["_underscore", r"costs $\frac$", "50%_off^{x}"])
def test_names_are_shown_as_they_are(tmp_path, name):
    profiles = [vectors_of(30, 8, name), vectors_of(30, 8, "plain", 1)]
    draw_figures(profiles, tmp_path, only=["mean"], formats=["png"])
    legend = draw("concentration", profiles).legends[0]
    assert [text.get_text().strip().replace(r"\$", "$") for text in legend.get_texts()][:2] == [name, "plain"]


# -- numbers ---------------------------------------------------------------------------------------------------------


def eigenvalue_shares(x) -> np.ndarray:
    values = np.linalg.eigvalsh(np.cov(x.T))[::-1]
    return values / values.sum()


@pytest.mark.parametrize(
    ("name", "column", "expected"),
    [
        ("mean", "mean", lambda x: x.mean(axis=0)),
        ("mean", "std", lambda x: x.std(axis=0)),
        ("std", "std", lambda x: x.std(axis=0)),
        ("kurtosis", "skewness", scipy.stats.skew),
        ("kurtosis", "kurtosis_excess", scipy.stats.kurtosis),
        ("spectrum", "variance_share", eigenvalue_shares),
        ("spectrum", "explained_variance", lambda x: eigenvalue_shares(x).cumsum()),
        ("concentration", "energy_share_of_top_k", lambda x: np.sort((x**2).sum(0))[::-1].cumsum() / (x**2).sum()),
        ("concentration", "dimension", lambda x: np.argsort(-(x**2).sum(axis=0))),
        ("values", "value", lambda x: x[[round(i * (len(x) - 1) / 23) for i in range(24)]].ravel()),
    ],
)
def test_numbers_beside_a_figure(tmp_path, name, column, expected):
    clouds = {"a": cloud(40, 8, 1), "b": cloud(50, 8, 2)}
    table = numbers(name, [profile_vectors(x, name=key) for key, x in clouds.items()], tmp_path)
    for key, x in clouds.items():
        np.testing.assert_allclose(table[table["profile"] == key][column], expected(x), rtol=1e-5)


def test_numbers_of_the_correlations(tmp_path):
    x = cloud(40, 8)
    x[:, 3] = 7  # dead
    table = numbers("correlation", [profile_vectors(x)], tmp_path)
    assert len(table) == 7 * 8 / 2
    assert 3 not in set(table["dimension_1"]) | set(table["dimension_2"])
    expected = np.abs(np.corrcoef(np.delete(x, 3, axis=1).T))
    position = {dimension: i for i, dimension in enumerate(np.delete(np.arange(8), 3))}
    for row in table.itertuples():
        i, j = position[row.dimension_1], position[row.dimension_2]
        assert row.mean_absolute_correlation == pytest.approx(expected[i, j], abs=1e-4)


def test_pooled_correlations_are_means_over_cells(tmp_path):
    """Two blocks of copies: whatever the order within, cells show 1 inside a block and |r| between."""
    pair = np.random.default_rng(0).standard_normal((30, 2))
    table = numbers("correlation", [profile_vectors(np.repeat(pair, [400, 600], axis=1))], tmp_path)
    assert table["position_1"].max() == 383
    between = round(abs(np.corrcoef(pair.T)[0, 1]), 4)
    values = table["mean_absolute_correlation"]
    assert (((values - 1).abs() < 1e-3) | ((values - between).abs() < 1e-3)).mean() > 0.98


def test_numbers_of_the_layers(tmp_path):
    table = numbers("layers", [with_layers()], tmp_path).drop(columns="profile")
    pd.testing.assert_frame_equal(table, summarize(with_layers()), rtol=1e-5, check_dtype=False)


def test_layer_is_chosen(tmp_path):
    draw_figures([with_layers()], tmp_path, only=["mean"], formats=[], layer=1)
    table = pd.read_csv(tmp_path / "mean.csv")
    assert set(table["layer"]) == {1}
    np.testing.assert_allclose(table["mean"], cloud(40, 8, 1).mean(axis=0), rtol=1e-5)


# -- what is drawn ---------------------------------------------------------------------------------------------------


def test_case_45_one_hot_dimension_shows_in_a_wide_heat_map():
    """Case 45: pooled by the largest |x|, drawn without smoothing."""
    x = np.random.default_rng(0).uniform(-0.1, 0.1, size=(4, 2_600))
    x[:, 1_234] = 50
    figure = draw("values", [profile_vectors(x)])
    figure.canvas.draw()
    (image,) = figure.axes[0].images
    assert (np.asarray(image.get_array()).max(axis=1) == 50).all()
    assert image.get_rasterized()
    left, right = image.get_extent()[:2]
    column = np.asarray(image.get_array())[0].argmax()
    assert left + (column + 0.5) * (right - left) / image.get_array().shape[1] == pytest.approx(1_234, abs=3)


def test_rows_of_two_data_sets_are_all_drawn():
    """Row ids begin at 0 in each data set; rows that share one are still two rows."""
    merged = vectors_of(10, 8, "a", 1).merge(vectors_of(12, 8, "b", 2))
    (image,) = draw("values", [merged]).axes[0].images
    np.testing.assert_array_equal(image.get_array(), merged[-1].sample)


def test_dominant_dimensions_carry_their_number():
    figure = draw("mean", [vectors_of(60, 384)])
    assert [text.get_text() for text in figure.axes[0].texts] == ["192"]


@pytest.mark.parametrize("n", [4, 10, 400])
def test_band_of_gaussian_kurtoses(n):
    """It holds 95 % of Gaussian dimensions of the same n."""
    axes = draw("kurtosis", [vectors_of(n, 8)]).axes[0]
    (low, high) = axes.transData.inverted().transform(axes.patches[0].get_window_extent())[:, 1]
    g2 = scipy.stats.kurtosis(np.random.default_rng(0).standard_normal((n, 20_000)))
    assert ((low <= g2) & (g2 <= high)).mean() == pytest.approx(0.95, abs=0.015)
