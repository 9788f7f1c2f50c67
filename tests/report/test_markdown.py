"""The fragment for a model card."""

from __future__ import annotations

import html
import re

import pytest
from cases import HOSTILE, LONG, MAKERS, diagnoses, probed, vectors

from cls_analysis import __version__
from cls_analysis.report import wording
from cls_analysis.report.markdown import SHOWN, escape, render_markdown


def tables(text: str) -> list[list[list[str]]]:
    """Cells of each table, row by row; a pipe after a backslash ends no cell."""
    found: list[list[list[str]]] = []
    previous = ""
    for line in text.splitlines():
        if line.startswith("|"):
            if not previous.startswith("|"):
                found.append([])
            assert re.search(r"(?<!\\)(\\\\)*\|$", line), line
            found[-1].append([cell.strip() for cell in re.findall(r"((?:\\.|[^|\\])*)\|", line[1:])])
        previous = line
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_tables_have_as_many_cells_in_every_row(name):
    found = tables(render_markdown(diagnoses(name)))
    assert found or name in ("collapsed", "collapsed last layer")
    for head, rule, *rows in found:
        assert {len(head)} == {len(row) for row in [rule, *rows]}
        assert {cell.strip("-") for cell in rule} <= {"", ":"}
        assert rows


@pytest.mark.parametrize("name", MAKERS)
def test_one_section_of_level_two(name):
    """A card has one heading of level 1 already."""
    text = render_markdown(diagnoses(name))
    levels = [len(line.split(" ")[0]) for line in text.splitlines() if line.startswith("#")]
    several = len(diagnoses(name)) > 1
    assert levels == [2] + [3] * (len(diagnoses(name)) + several)
    assert text.startswith("## ")
    assert text.endswith("\n")
    assert "\n\n\n" not in text


@pytest.mark.parametrize("name", MAKERS)
def test_a_markdown_parser_shows_every_text_as_it_is(name):
    """markdown-it, an implementation of CommonMark: no name is taken for markup."""
    markdown_it = pytest.importorskip("markdown_it")
    page = (
        markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(render_markdown(diagnoses(name)))
    )
    assert set(re.findall(r"<(\w+)", page)) <= {
        *("h2", "h3", "p", "ul", "li", "strong", "em", "code"),
        *("table", "thead", "tbody", "tr", "th", "td"),
    }
    shown = html.unescape(re.sub(r"<[^>]*>", "", page))
    for diagnosis in diagnoses(name):
        assert wording.heading(diagnosis.profile) in shown
        assert diagnosis.verdict() in shown
        for finding in diagnosis.of_layer(diagnosis.layer):
            assert finding.evidence in shown
    assert page.count("<table>") == len(tables(render_markdown(diagnoses(name))))


@pytest.mark.parametrize(
    "text", [HOSTILE, LONG, "a|b", "\\|", "*_`<[]>&amp;", "1. # - +", "~~a~~ $x$", "a_b_c", "![i](j)"]
)
def test_escaped_text_is_shown_as_it_is(text):
    markdown_it = pytest.importorskip("markdown_it")
    parser = markdown_it.MarkdownIt("commonmark").enable(["table", "strikethrough"])
    heading = parser.render(f"### {escape(text)}")
    assert html.unescape(heading.removeprefix("<h3>").removesuffix("</h3>\n")) == text
    cell = parser.render(f"| a |\n|---|\n| {escape(text)} |")
    assert html.unescape(cell.split("<td>")[1].split("</td>")[0]) == text


def test_escaped_text_stays_on_its_line():
    assert escape("a\n# b\r\n| c") == "a # b \\| c"


def test_figures_that_a_card_has_room_for():
    (diagnosis,) = diagnoses("vectors")
    table = tables(render_markdown([diagnosis]))[0]
    assert len(table) == 2 + len(SHOWN)
    assert table[0] == ["figure", "value", "95 % interval", "isotropic", "rows"]
    assert table[1] == ["---", "---:", "---", "---:", "---:"]
    assert "mean \\|correlation\\|" in {row[0] for row in table}


def test_verdict_and_findings():
    (diagnosis,) = diagnoses("vectors")
    lines = render_markdown([diagnosis]).splitlines()
    assert lines[4] == f"the vectors: {escape(diagnosis.verdict())}"
    assert [line for line in lines if line.startswith("- ")] == [
        f"- **{finding.severity}** {finding.code} {finding.name}"
        + (f" ({wording.listed_dimensions(finding.dimensions)})" if finding.dimensions else "")
        + f": {escape(finding.evidence)}."
        for finding in diagnosis.findings
    ]
    assert lines[-1] == f"Measured with `cls_analysis` {__version__} before any fine-tuning."


def test_nothing_found():
    assert "\n- nothing found\n" in render_markdown(diagnoses("nothing found"))


def test_collapsed_vectors_have_no_table():
    text = render_markdown(diagnoses("collapsed"))
    assert tables(text) == []
    assert "collapsed: all texts have the same vector" in text


def test_probe():
    text = render_markdown([probed(vectors())])
    assert "A linear classifier on 1,234 labelled rows (majority 50.0%):" in text
    assert tables(text)[1][2][0] == "at its optimum"
    assert "linear classifier" not in render_markdown([vectors()])
