"""The HTML report: its structure, and what a real browser makes of it."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from typing import Any

import pytest
from browser import Browser
from cases import HOSTILE, LONG, MAKERS, cloud, diagnoses, judged, vectors, with_layers

from cls_analysis.diagnosis import Limits
from cls_analysis.diagnosis.thresholds import THRESHOLDS
from cls_analysis.report import page
from cls_analysis.report.page import CAPTIONS, prose, render_page

#: Elements of HTML that have no end tag.
VOID = {"meta", "link", "br", "hr", "img", "input", "wbr"}
SHAPE_TABLES = [
    "Main figures",
    "Removing the worst dimensions, or normalising",
    "Effect on a linear classifier",
    "Condition number",
    "Contributions to the average cosine",
    "Outlier dimensions by definition",
    "Which definitions agree",
]
ALL = list(CAPTIONS)
OF_ONE_LAYER = [name for name in ALL if name != "layers"]


# -- a parser ----------------------------------------------------------------------------------------------------------


@dataclass
class Element:
    """One element: its attributes, its children, and its text with that of its children."""

    tag: str
    attributes: dict[str, str | None]
    children: list[Element] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    def all(self, *tags: str) -> list[Element]:
        """The elements below this one, in the order of the page; all of them, or those with one of the tags."""
        found = []
        for child in self.children:
            if not tags or child.tag in tags:
                found.append(child)
            found += child.all(*tags)
        return found

    @property
    def text(self) -> str:
        return " ".join("".join(self.texts).split())


class Strict(HTMLParser):
    """Refuses what a browser would have to mend: tags that do not match, attributes given twice, stray signs."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), (tag, names)
        element = Element(tag, dict(attrs))
        self.open[-1].children.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert any(element.tag == "svg" for element in self.open) or tag in VOID, f"<{tag}/> is no HTML"
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> ends <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.texts.append(data)


def parse(page: str) -> Element:
    parser = Strict()
    parser.feed(page)
    parser.close()
    assert parser.open == [parser.root]
    return parser.root


@pytest.fixture(scope="module")
def tree_of(page_of, request):
    """Gives the parsed page of a report by its name."""
    trees: dict[str, Element] = {}

    def tree(name: str) -> Element:
        if name not in trees:
            page = request.getfixturevalue("embedded_page") if name == "embedded" else page_of(name)
            trees[name] = parse(page)
        return trees[name]

    return tree


def sections(tree: Element) -> list[str]:
    return [heading.text for heading in tree.all("h2")]


def titles(tree: Element, section: str = "Tables") -> list[str]:
    """Titles of the tables of a section."""
    found, inside = [], False
    for heading in tree.all("h2", "h3"):
        if heading.tag == "h2":
            inside = heading.text == section
        elif inside:
            found.append(heading.text)
    return found


def pictures(tree: Element) -> list[str]:
    return [figure.attributes["id"].removeprefix("figure-") for figure in tree.all("figure")]


# -- every page --------------------------------------------------------------------------------------------------------

EVERY = pytest.mark.parametrize("name", [*MAKERS, "embedded"])


@EVERY
def test_the_page_is_valid(name, tree_of, page_of):
    tree = tree_of(name)
    (html,) = tree.children
    assert (html.tag, html.attributes) == ("html", {"lang": "en"})
    assert [child.tag for child in html.children] == ["head", "body"]
    (title,) = html.children[0].all("title")
    assert title.text == tree.all("h1")[0].text
    assert {"charset": "utf-8"} in [meta.attributes for meta in tree.all("meta")]
    # A block within a paragraph or a heading ends it.
    blocks = {"p", "div", "table", "ul", "dl", "figure", "section", "details", "pre", "h1", "h2", "h3"}
    for element in tree.all("p", "h1", "h2", "h3", "summary", "figcaption"):
        assert not blocks & {child.tag for child in element.all()}


@EVERY
def test_ids_are_unique_and_every_reference_resolves(name, tree_of):
    ids = Counter(element.attributes["id"] for element in tree_of(name).all() if "id" in element.attributes)
    assert {key: count for key, count in ids.items() if count > 1} == {}
    references = set()
    for element in tree_of(name).all():
        for key, value in element.attributes.items():
            if key in ("href", "xlink:href") and value.startswith("#"):
                references.add(value.removeprefix("#"))
            references |= set(re.findall(r"url\(#([^)]*)\)", value or ""))
    assert references
    assert references - set(ids) == set()


@EVERY
def test_nothing_is_run_and_nothing_is_fetched(name, tree_of):
    tree = tree_of(name)
    assert tree.all("script", "iframe", "object", "embed", "base", "form", "img", "audio", "video") == []
    assert [link.attributes for link in tree.all("link")] == [{"rel": "icon", "href": "data:,"}]
    for element in tree.all():
        for key, value in element.attributes.items():
            assert not key.startswith("on"), key
            if key in ("href", "xlink:href", "src", "srcset", "data", "action", "poster"):
                assert value.startswith(("#", "data:")), value
            elif not key.startswith("xmlns"):
                assert "//" not in (value or ""), (element.tag, key, value)
            assert set(re.findall(r"url\((.)", value or "")) <= {"#"}
    for style in tree.all("style"):
        assert not re.search(r"@import|url\(|//|expression", style.text)


@EVERY
def test_headings_are_in_order(name, tree_of):
    levels = [int(heading.tag[1]) for heading in tree_of(name).all("h1", "h2", "h3", "h4", "h5", "h6")]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


@EVERY
def test_the_verdict_comes_first_and_then_all_in_its_order(name, tree_of):
    tree = tree_of(name)
    first = tree.all("div")[0]
    assert first.attributes["class"].startswith("verdict ")
    kinds = [re.sub(r":.*", "", heading) for heading in sections(tree)]
    order = ["Findings", "Comparison", "Figures", "Tables", "Definitions and sources", "Provenance", "How to cite"]
    assert list(dict.fromkeys(kinds)) == [kind for kind in order if kind in kinds]
    assert kinds.count("Findings") == len(tree.all("div")) - len(
        [div for div in tree.all("div") if not div.attributes.get("class", "").startswith("verdict")]
    )
    assert {"Findings", "Figures", "Definitions and sources", "Provenance", "How to cite"} <= set(kinds)


@EVERY
def test_every_figure_says_what_it_shows(name, tree_of):
    figures = tree_of(name).all("figure")
    assert figures
    for figure in figures:
        (svg,) = figure.all("svg")
        (caption,) = figure.all("figcaption")
        assert svg.attributes["role"] == "img"
        assert svg.attributes["aria-label"] == caption.text == CAPTIONS[figure.attributes["id"].split("-")[1]]
        assert {"width", "height"} & set(svg.attributes) == set()
        assert "viewbox" in svg.attributes
        assert svg.all("text", "title", "metadata") == []


@EVERY
def test_tables_have_scopes_and_as_many_cells_in_every_row(name, tree_of):
    tables = tree_of(name).all("table")
    assert tables
    for table in tables:
        (head,), (body,) = table.all("thead"), table.all("tbody")
        (columns,) = head.all("tr")
        assert {cell.attributes["scope"] for cell in columns.children} == {"col"}
        assert body.children
        for row in body.children:
            assert len(row.children) == len(columns.children)
            assert [cell.tag for cell in row.children] == ["th", *["td"] * (len(row.children) - 1)]
            assert row.children[0].attributes["scope"] == "row"
            assert [cell.attributes.get("class") == "number" for cell in row.children] == [
                cell.attributes.get("class") == "number" for cell in columns.children
            ]


@EVERY
def test_nothing_of_the_template_or_of_python_is_left(name, tree_of):
    text = tree_of(name).all("body")[0].text
    assert not re.search(r"\{\{|\{%|\bNone\b|\bTrue\b|\bFalse\b|\bundefined_|<bound|\bMarkup\(|\.\.(?!\.)", text)
    assert not re.search(r"\bnan\b|\binf\b", text)


# -- what each page holds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("layers, probe, how many", ALL),
        ("hostile and long names", OF_ONE_LAYER),
        ("collapsed", ["mean", "values"]),
        ("embedded", ALL),
        # Of these, no others are drawn in the tests.
        ("one layer", ["mean"]),
        ("collapsed last layer", ["mean", "layers"]),
        ("one collapsed of two", ["mean"]),
    ],
)
def test_pictures(name, expected, tree_of):
    assert pictures(tree_of(name)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vectors", SHAPE_TABLES),
        (
            "layers, probe, how many",
            [SHAPE_TABLES[0], "All layers", *SHAPE_TABLES[1:], "How many rows?", "Figures against n"],
        ),
        ("one layer", SHAPE_TABLES),
        ("collapsed", []),
        ("collapsed last layer", ["All layers"]),
        # Nine rows cannot have a condition number in 16 dimensions.
        ("too few to say", [*(title for title in SHAPE_TABLES if title != "Condition number"), "How many rows?"]),
    ],
)
def test_tables(name, expected, tree_of):
    tree = tree_of(name)
    assert titles(tree) == expected
    assert ("Tables" in sections(tree)) == bool(expected)
    assert ("Tables" in [link.text for link in tree.all("nav")[0].all("a")]) == bool(expected)


@EVERY
def test_verdict_findings_and_provenance_of_every_diagnosis(name, tree_of):
    if name == "embedded":
        return
    tree = tree_of(name)
    verdicts = [div for div in tree.all("div") if div.attributes.get("class", "").startswith("verdict")]
    articles = iter(tree.all("article"))
    for diagnosis, verdict, source in zip(diagnoses(name), verdicts, tree.all("pre"), strict=True):
        found = diagnosis.of_layer(diagnosis.layer)
        assert " ".join(diagnosis.verdict().split()) in verdict.text
        tone = found[0].severity if found else "none"
        assert verdict.attributes["class"] == f"verdict {'notice' if tone == 'note' else tone}"
        for finding in found:
            article = next(articles).text
            assert f"{finding.code} {finding.name}" in article
            for text in (finding.evidence[1:], finding.meaning, finding.remedy, finding.verify, finding.source):
                assert " ".join(text.replace("`", "").split())[1:] in article
        assert json.loads("".join(source.texts)) == json.loads(diagnosis.profile.provenance.to_json())
    assert next(articles, None) is None


def test_nothing_found(tree_of):
    tree = tree_of("nothing found")
    assert tree.all("article") == []
    assert "Nothing found." in tree.text
    assert "near isotropic: nothing to normalise." in tree.all("header")[0].text


def test_effect_on_a_classifier(tree_of, monkeypatch):
    table = next(table for table in tree_of("layers, probe, how many").all("table") if "classifier" in table.text)
    assert [cell.text for cell in table.all("tr")[3].children] == [
        "200 steps of SGD",
        "whiten",
        "75.0%",
        "+25.0 [+10.0, +40.0]",
        "0.300",
        "better",
    ]
    assert "Cross-validated on 1,234 labelled rows, majority 50.0%" in tree_of("layers, probe, how many").text
    assert "Not measured: no labels were given." in tree_of("vectors").text
    reason = replace(vectors(), no_probe="only one class <has> rows")
    monkeypatch.setattr(page, "CAPTIONS", {})
    assert "Not measured: only one class <has> rows." in parse(render_page([reason], Limits())).text


def test_several_are_told_apart_and_compared(tree_of):
    tree = tree_of("three encoders")
    names = ["bert-a", "bert-b #2", "bert-b #3"]
    assert [heading for heading in sections(tree) if ":" in heading] == [
        f"{kind}: {name}" for kind in ("Findings", "Tables") for name in names
    ]
    (section,) = tree.all("section")
    columns = [cell.text for cell in section.all("thead")[0].all("th")]
    assert columns == ["figure", *names, "comparable"]
    assert "not comparable" not in section.text
    assert "not comparable" in tree_of("hostile and long names").all("section")[0].text
    assert tree_of("vectors").all("section") == []


def test_names_are_text(tree_of, page_of):
    tree = tree_of("hostile and long names")
    assert tree.all("h1")[0].text == f"Diagnosis of {HOSTILE} and {LONG}"
    headings = sections(tree)
    assert f"Findings: {HOSTILE}" in headings
    assert f"Tables: {HOSTILE}" in headings
    assert HOSTILE in [cell.text for cell in tree.all("section")[0].all("th")]
    page = page_of("hostile and long names")
    assert "<script" not in page
    # Pictures draw their texts as paths, and have no comments that repeat them.
    assert "<!--" not in page


def test_limits_in_force(monkeypatch):
    monkeypatch.setattr(page, "CAPTIONS", {})
    limits = Limits.of({"CLS101.severe": 0.875}, ["CLS501", "CLS102"], ["CLS501", "CLS102"])
    tree = parse(render_page([vectors()], limits))
    table = next(table for table in tree.all("table") if "CLS101.severe" in table.text)
    rows = [[cell.text for cell in row.children] for row in table.all("tbody")[0].children]
    assert [row[0] for row in rows] == list(THRESHOLDS)
    assert next(row[2] for row in rows if row[0] == "CLS101.severe") == "0.875"
    assert "Limits in force; left out: CLS102, CLS501" in tree.text


def test_same_diagnosis_same_bytes(page_of):
    name = "layers, probe, how many"
    assert render_page(MAKERS[name](), Limits()) == page_of(name)


@pytest.mark.parametrize("text", ["a `b` c", "<b> `x < y` & \"q\" 'r'", "no code", "one ` only"])
def test_prose(text):
    element = parse(f"<p>{prose(text)}</p>")
    assert element.text == (text.replace("`", "") if text.count("`") == 2 else text)
    assert [code.text for code in element.all("code")] == re.findall("`(.*?)`", text)


# -- the layer that is drawn -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("depths", "layers", "drawn"),
    [
        ((2, 2), (2, 2), [2, 2]),
        ((2, 3), (-1, -1), [2, 3]),
        ((2, 3), (-2, -2), [1, 2]),
        ((2, 3), (1, 1), [1, 1]),
        # No number names both: better no picture than one of another layer.
        ((2, 3), (2, 1), None),
    ],
)
def test_pictures_are_of_the_judged_layers(depths, layers, drawn, monkeypatch):
    seen = []

    def table(profiles, layer):
        seen.append([profile.resolve_layer(layer) for profile in profiles])
        return kind.table(profiles, layer)

    kind = page.FIGURES["mean"]
    monkeypatch.setattr(page, "FIGURES", page.FIGURES | {"mean": replace(kind, table=table)})
    names = ("mean", "layers") if drawn is None else ("mean",)
    monkeypatch.setattr(page, "CAPTIONS", {name: CAPTIONS[name] for name in names})
    several = [
        judged(
            with_layers(
                {number: cloud(30, 4, number) for number in range(1, depth + 1)}, encoder=f"e{depth}", depth=depth
            ),
            layer=layer,
        )
        for depth, layer in zip(depths, layers, strict=True)
    ]
    tree = parse(render_page(several, Limits()))
    assert seen == ([] if drawn is None else [drawn])
    assert pictures(tree) == (["layers"] if drawn is None else ["mean"])


# -- in a browser ------------------------------------------------------------------------------------------------------

WIDTHS = (375, 1100)
LOOK = """(() => {
  const box = element => element.getBoundingClientRect();
  const page = document.documentElement;
  return {
    width: page.scrollWidth, room: page.clientWidth, mode: document.compatMode,
    elements: document.querySelectorAll("*").length, scripts: document.scripts.length,
    title: document.title, heading: document.querySelector("h1").textContent,
    verdict: box(document.querySelector(".verdict")).bottom,
    pictures: [...document.querySelectorAll("figure svg")].map(svg => [box(svg).width, box(svg).height]),
    images: [...document.querySelectorAll("svg image")].map(image => [box(image).width, box(image).height]),
    hidden: [...document.querySelectorAll("h1, h2, h3, p, dd, figcaption, summary, .scroll")]
      .filter(element => element.checkVisibility() && box(element).right > page.clientWidth + 0.5)
      .map(element => element.tagName + ": " + element.textContent.slice(0, 40)),
    squeezed: [...document.querySelectorAll("th, td")]
      .filter(cell => cell.checkVisibility() && cell.textContent.trim() && box(cell).width < 8)
      .map(cell => cell.textContent),
  };
})()"""
SHOWN = ["embedded", "layers, probe, how many", "collapsed", "hostile and long names"]
#: A page with all that a report must not have.
BAD = """<!doctype html><html lang="en"><head><title>x</title><link rel="stylesheet" href="https://css.example.org/a.css">
<style>@font-face { font-family: q; src: url(http://font.example.org/q.woff) }
body { font-family: q } div { width: 3000px; background: url(http://background.example.org/a.png) }</style></head>
<body><h1 class="verdict">x</h1><div>text</div><figure><svg width="0" height="0"></svg></figure>
<svg><image href="http://svg.example.org/c.png"/></svg><iframe src="http://frame.example.org/"></iframe>
<script>console.warn("careful"); throw new Error("broken")</script></body></html>"""


@dataclass
class Seen:
    """What the browser made of a page at one width."""

    requests: list[str]
    console: list[str]
    look: dict[str, Any]
    pdf: bytes


def visit(chromium: str, folder, pages: dict[str, str]) -> tuple[dict[tuple[str, int], Seen], list[str]]:
    """Open every page at every width, print it, and read the browser's log of the network."""
    seen = {}
    browser = Browser(chromium, folder)
    try:
        for number, (name, text) in enumerate(pages.items()):
            path = folder / f"{number}.html"
            path.write_text(text, encoding="utf-8")
            for width in WIDTHS:
                page = browser.open(path, width)
                # Paper has its own width.
                pdf = page.pdf() if width == WIDTHS[0] else b""
                seen[name, width] = Seen(page.requests, page.console, page.ask(LOOK), pdf)
        return seen, browser.close()
    finally:
        browser.kill()


@pytest.fixture(scope="module")
def visited(chromium, page_of, embedded_page, tmp_path_factory):
    """Every page in the browser, and what the browser's log has of the network."""
    pages = {name: embedded_page if name == "embedded" else page_of(name) for name in SHOWN}
    return visit(chromium, tmp_path_factory.mktemp("browser"), pages)


IN_BROWSER = pytest.mark.parametrize(("name", "width"), [(name, width) for name in SHOWN for width in WIDTHS])


@IN_BROWSER
def test_opens_from_disk_without_a_word_and_asks_for_nothing(name, width, visited):
    seen = visited[0][name, width]
    assert seen.console == []
    own, *others = seen.requests
    assert own.startswith("file://")
    assert {address.split(",")[0] for address in others} <= {"data:image/png;base64"}


def test_the_browsers_own_log_has_no_request_of_a_page(visited):
    assert visited[1] == []


@IN_BROWSER
def test_the_browser_mends_nothing(name, width, visited, tree_of):
    """It makes as many elements as the page has tags: none implied, moved or dropped."""
    look = visited[0][name, width].look
    assert look["mode"] == "CSS1Compat"
    assert look["elements"] == len(tree_of(name).all())
    assert look["scripts"] == 0
    assert look["title"] == look["heading"]


@IN_BROWSER
def test_every_picture_is_there(name, width, visited, tree_of):
    look = visited[0][name, width].look
    assert len(look["pictures"]) == len(pictures(tree_of(name)))
    assert min(min(size) for size in look["pictures"]) > 100
    assert len(look["images"]) >= 1
    assert min(min(size) for size in look["images"]) > 1


@IN_BROWSER
def test_no_page_is_wider_than_its_window(name, width, visited):
    look = visited[0][name, width].look
    assert look["room"] == width
    assert look["width"] == width
    assert look["hidden"] == []
    assert look["squeezed"] == []


@pytest.mark.parametrize("name", SHOWN)
def test_the_verdict_is_seen_without_scrolling(name, visited):
    assert visited[0][name, 1100].look["verdict"] < 800


@pytest.mark.parametrize("name", SHOWN)
def test_prints(name, visited):
    pdf = visited[0][name, WIDTHS[0]].pdf
    assert pdf.startswith(b"%PDF-")
    assert pdf.rstrip().endswith(b"%%EOF")
    assert 4 <= len(re.findall(rb"/Type\s*/Page\b", pdf)) <= 40


def test_these_checks_see_what_is_wrong(chromium, tmp_path):
    seen, log = visit(chromium, tmp_path, {"bad": BAD})
    narrow = seen["bad", 375]
    hosts = {"css", "font", "background", "svg", "frame"}
    assert {address.split("/")[2].split(".")[0] for address in narrow.requests if address.startswith("http")} == hosts
    assert {address.split("/")[2].split(".")[0] for address in log} == hosts
    console = "\n".join(narrow.console)
    assert "careful" in console
    assert "broken" in console
    assert "ERR_NAME_NOT_RESOLVED" in console
    assert narrow.look["width"] > 3000
    assert narrow.look["pictures"] == [[0, 0]]
    assert narrow.look["elements"] != len(parse("<html><body></body></html>").all())


@pytest.mark.parametrize("required", ["", "1"])
def test_without_a_browser_the_tests_skip_or_fail_where_it_is_required(required, monkeypatch):
    import browser

    monkeypatch.setattr(browser, "find_browser", lambda: None)
    monkeypatch.setenv("CLS_ANALYSIS_REQUIRE_BROWSER", required)
    outcome = pytest.fail.Exception if required else pytest.skip.Exception
    with pytest.raises(outcome, match="no browser to open the report in"):
        browser.browser_or_skip()
