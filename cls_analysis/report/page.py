"""A diagnosis as one self-contained HTML page: no script, no network, opens from disk, prints."""

from __future__ import annotations

import importlib.metadata
import io
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jinja2
import pandas as pd
from markupsafe import Markup, escape
from matplotlib.figure import Figure

from cls_analysis.diagnosis.agreement import agreement_table
from cls_analysis.diagnosis.comparing import names_of
from cls_analysis.diagnosis.findings import SEVERITIES, listed
from cls_analysis.diagnosis.measures import FIGURES as MEASURES
from cls_analysis.diagnosis.rules import all_rules
from cls_analysis.diagnosis.thresholds import THRESHOLDS, Limits
from cls_analysis.diagnosis.verdict import Diagnosis
from cls_analysis.errors import OptionError
from cls_analysis.plotting import FIGURES
from cls_analysis.plotting.style import COLUMN, paper_style
from cls_analysis.report import wording

#: Figures from which a report draws what its data allow, with what a reader should see in them. In this order those of
#: column width stand in pairs.
CAPTIONS = {
    "mean": "Mean of each dimension. Isotropic vectors have means near zero; marked ones dominate.",
    "std": "Standard deviations of the dimensions; the grey band is what equal ones would give.",
    "concentration": "How few dimensions hold the length.",
    "spectrum": "Variance of the principal components; thin, what isotropic vectors of the same n and d give.",
    "correlation": "Correlations of the dimensions.",
    "kurtosis": "Excess kurtosis of each dimension; the band holds 95 % of Gaussian ones.",
    "values": "The vectors themselves: vertical lines are dimensions that are alike for all texts.",
    "layers": "How the bias grows through the network; dotted, what isotropic vectors give.",
}
#: Those that show something where all vectors are the same.
OF_COLLAPSED = ("mean", "values")


@dataclass(frozen=True)
class _Table:
    """A table of the page: its title, what to know about it, its columns, which hold numbers, and its rows as text.

    Without rows the note says why there is no table.
    """

    title: str
    note: str
    columns: list[tuple[str, bool]]
    rows: list[list[str]]

    @classmethod
    def of(cls, title: str, table: pd.DataFrame, note: str = "") -> _Table:
        rows = table.astype(str).to_numpy().tolist()
        cells = list(zip(*rows, strict=True)) or [()] * len(table.columns)
        columns = [(str(name), wording.is_numeric(of)) for name, of in zip(table.columns, cells, strict=True)]
        return cls(title, note, columns, rows)


@dataclass(frozen=True)
class _Picture:
    """A figure of the page."""

    name: str
    caption: str
    svg: Markup
    wide: bool


def render_page(diagnoses: Sequence[Diagnosis], limits: Limits) -> str:
    """The page as a string; the same diagnoses give the same bytes."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("cls_analysis.report", "."),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"prose": prose, "sentence": wording.sentence}
    return environment.get_template("page.html").render(
        title=" and ".join(dict.fromkeys(_subject(diagnosis) for diagnosis in diagnoses)),
        version=importlib.metadata.version("cls-analysis"),
        sections=[_section(diagnosis, name) for diagnosis, name in zip(diagnoses, names_of(diagnoses), strict=True)],
        comparison=_comparison(diagnoses),
        pictures=_pictures(diagnoses),
        definitions=[(kind.label, kind.definition) for kind in MEASURES],
        rules=sorted(all_rules(), key=lambda rule: rule.code),
        limits=_limits(limits),
        severities=SEVERITIES,
        ignored=sorted(limits.ignored),
        number=wording.number,
        listed=wording.listed_dimensions,
    )


def _subject(diagnosis: Diagnosis) -> str:
    profile = diagnosis.profile
    return profile.encoder if profile.provenance.encoder else profile.dataset


def _section(diagnosis: Diagnosis, name: str) -> dict[str, Any]:
    """What the template shows of one diagnosis."""
    return {
        "name": name,
        "heading": wording.heading(diagnosis.profile),
        "where": wording.layer_name(diagnosis.profile, diagnosis.layer),
        "verdict": diagnosis.verdict(),
        "severity": diagnosis.of_layer(diagnosis.layer)[0].severity if diagnosis.of_layer(diagnosis.layer) else "none",
        "counts": wording.severity_counts(diagnosis),
        "findings": diagnosis.of_layer(diagnosis.layer),
        "tables": _tables(diagnosis),
        "provenance": _provenance(diagnosis),
    }


def _provenance(diagnosis: Diagnosis) -> str:
    """JSON, with lists of numbers or names on one line each."""
    text = json.dumps(json.loads(diagnosis.profile.provenance.to_json()), indent=1, ensure_ascii=False)
    return re.sub(r"\[\n[^\[\]{}]*\n *\]", lambda found: re.sub(r"\n *", " ", found[0]), text)


def _tables(diagnosis: Diagnosis) -> list[_Table]:
    several = len(diagnosis.profile.layers) > 1
    layers = [_Table.of("All layers", wording.layer_overview(diagnosis), LAYERS_NOTE)] if several else []
    if diagnosis.figures.empty:
        return layers
    tables = [
        _Table.of("Main figures", wording.figure_rows(diagnosis), COSINE_NOTE),
        *layers,
        _Table.of("Removing the worst dimensions, or normalising", wording.readable(diagnosis.removal), REMOVAL_NOTE),
    ]
    if diagnosis.probe is None:
        note = f"Not measured: {diagnosis.no_probe or 'no labels were given'}."
    else:
        note = PROBE_NOTE.format(n=diagnosis.probe.n, majority=diagnosis.probe.majority)
    tables.append(_Table.of("Effect on a linear classifier", wording.probe_rows(diagnosis), note))
    if diagnosis.conditions["condition_number"].notna().any():
        tables.append(_Table.of("Condition number", wording.readable(diagnosis.conditions), CONDITION_NOTE))
    tables += [
        _Table.of("Contributions to the average cosine", wording.readable(diagnosis.contributions), CONTRIBUTION_NOTE),
        _Table.of("Outlier dimensions by definition", _definitions(diagnosis), AGREEMENT_NOTE),
        _Table.of("Which definitions agree", _agreement(diagnosis), "The dimensions that most definitions name."),
    ]
    if diagnosis.sufficiency is not None:
        answer = wording.sentence(diagnosis.sufficiency.sentence())
        tables.append(_Table.of("How many rows?", wording.sufficiency_rows(diagnosis), answer))
        if len(diagnosis.sufficiency.curve):
            tables.append(_Table.of("Figures against n", wording.curve_rows(diagnosis), "In brackets: isotropic."))
    return tables


LAYERS_NOTE = "The worst severity on each axis. Layer 0 is one vector for all texts at [CLS], by construction."
COSINE_NOTE = (
    "Centring brings the average cosine of any vectors to about 0; the RMS cosine shows what is left. Intervals by "
    "half-sampling; those of figures that n biases are for the value at this n."
)
REMOVAL_NOTE = "Neighbours: share of each text's ten nearest by cosine that are others afterwards."
COMPARISON_NOTE = (
    "Figures that are not comparable have other isotropic values at another n or d; read them against those."
)
PROBE_NOTE = (
    "Cross-validated on {n:,} labelled rows, majority {majority:.1%}. The normalisation is fitted on training rows "
    "only; differences to none in points, with 95 % intervals; harmless: the whole interval lies within ±1 point."
)
CONDITION_NOTE = "Of E[y yᵀ] after the normalisation. It slows plain gradient descent; AdamW only in part."
CONTRIBUTION_NOTE = (
    "What each dimension adds to the average cosine of the sampled rows (Timkey and van Schijndel 2021)."
)
AGREEMENT_NOTE = (
    "The definitions of the literature disagree. Those by three standard deviations fire on isotropic data, too: the "
    "last column is how many dimensions chance gives them."
)


def _definitions(diagnosis: Diagnosis) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "definition": [definition.name for definition in diagnosis.definitions],
            "reads": [definition.reads for definition in diagnosis.definitions],
            "dimensions": [listed(definition.dimensions, 12) or "none" for definition in diagnosis.definitions],
            "source": [definition.source for definition in diagnosis.definitions],
            "by chance": [wording.number(definition.expected) for definition in diagnosis.definitions],
        }
    )


def _agreement(diagnosis: Diagnosis) -> pd.DataFrame:
    """One row a definition, one column a dimension: names of definitions would make wide columns."""
    table = agreement_table(diagnosis.definitions).set_index("dimension").T.map(wording.cell)
    return table.rename(index={"definitions": "in all"}).rename_axis(index="definition").reset_index()


def _limits(limits: Limits) -> _Table:
    rows = [(key, limit.what, wording.number(limits[key]), limit.source) for key, limit in THRESHOLDS.items()]
    return _Table.of("Limits in force", pd.DataFrame(rows, columns=["limit", "of", "value", "source"]))


def _comparison(diagnoses: Sequence[Diagnosis]) -> _Table | None:
    if len(diagnoses) < 2:
        return None
    table = wording.comparison_rows(diagnoses)
    shown = _Table.of("Comparison", table, COMPARISON_NOTE if "no" in set(table.iloc[:, -1]) else "")
    # "(best)" stands beside some numbers of a column: all are set to the left.
    return replace(shown, columns=[(name, False) for name, _ in shown.columns])


def _pictures(diagnoses: Sequence[Diagnosis]) -> list[_Picture]:
    profiles = [diagnosis.profile for diagnosis in diagnoses]
    layer = _common_layer(diagnoses)
    collapsed = all(diagnosis.profile[diagnosis.layer].collapsed for diagnosis in diagnoses)
    pictures = []
    for name, caption in CAPTIONS.items():
        if name != "layers" and (layer is None or (collapsed and name not in OF_COLLAPSED)):
            continue
        kind, at = FIGURES[name], -1 if layer is None else layer
        try:
            figure = kind.draw(kind.table(profiles, at), profiles, at)
        except OptionError:
            continue  # one layer alone has no curve over layers
        pictures.append(_Picture(name, caption, inline_svg(figure, name, caption), figure.get_figwidth() > COLUMN))
    return pictures


def _common_layer(diagnoses: Sequence[Diagnosis]) -> int | None:
    """The one number that names the judged layer of every Profile, from either end; None without one."""
    numbers = {diagnosis.layer for diagnosis in diagnoses}
    if len(numbers) == 1:
        return numbers.pop()
    encoders = [diagnosis.profile.provenance.encoder for diagnosis in diagnoses]
    from_last = {
        diagnosis.layer - encoder.n_layers - 1 if encoder else diagnosis.layer
        for diagnosis, encoder in zip(diagnoses, encoders, strict=True)
    }
    return from_last.pop() if len(from_last) == 1 else None


def prose(text: str) -> Markup:
    """Text as HTML, with what stands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))  # noqa: S704 (escaped just before)


def inline_svg(figure: Figure, name: str, label: str) -> Markup:
    """The figure as an ``svg`` element called ``label``, whose ids begin with ``name``: several stand in one page."""
    buffer = io.StringIO()
    with paper_style():
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    # Comments repeat the texts that are drawn as paths.
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->\n? *", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    # Scales with the page instead of keeping its size in points.
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', rf'\1 role="img" aria-label="{escape(label)}"', svg, count=1)
    return Markup(svg)  # noqa: S704 (made by matplotlib from our own figure; texts in it are drawn as paths)
