"""Every rule: data on which it must fire, with values worked out by hand, and data on which it must not."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
import pytest
import scipy.special
import scipy.stats
from planted import (
    SIGNS,
    D,
    N,
    condition,
    constant,
    correlated,
    drawn,
    effective_rank,
    ev3,
    findings_of,
    gaussian,
    heavy,
    of_code,
    profile_of,
    shifted,
    std_ratio,
    stretched,
    zeroed,
)

from cls_analysis import diagnose
from cls_analysis.diagnosis.evidence import Evidence
from cls_analysis.diagnosis.findings import AXES, SEVERITIES, Finding, Judgement
from cls_analysis.diagnosis.rules import Rule, all_rules, catalogue, rule_codes
from cls_analysis.diagnosis.thresholds import THRESHOLDS, Limits

RULES_PAGE = Path(__file__).parents[2] / "docs" / "rules.md"
NAN = float("nan")


@dataclass(frozen=True)
class Case:
    """What a rule must say of some vectors; a value that needs a null is drawn when asked for."""

    code: str
    what: str
    x: np.ndarray
    severity: str
    axis: str
    dimensions: tuple[int, ...]
    value: float | Callable[[], float]
    null: float | None
    origin: dict[str, object] | None = None


def mean_r_null() -> float:
    """E|r| of independent Gaussians: r² ~ Beta(½, (n − 2)/2)."""
    return float(scipy.special.beta(1, (N - 2) / 2) / scipy.special.beta(0.5, (N - 2) / 2))


def rank_null() -> float:
    return drawn(effective_rank)


def rank_of(*values: float) -> float:
    """Effective rank of these eigenvalues, and of 1 for all further dimensions."""
    share = np.array([*values, *[1.0] * (D - len(values))])
    share /= share.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def saturated(k: int) -> np.ndarray:
    """``k`` dimensions at the ends of tanh."""
    return 0.5 * SIGNS * np.where(np.arange(D) < k, 1.998, 1.0)


FOUR_MEANS = shifted({3: -200, 5: 300, 7: 150, 9: 140})
# Shifting a dimension by a adds a² to the squared length, which is 32 without; stretching it by s makes its share s².
FIRES = [
    Case("CLS101", "a fifth of the length", shifted({3: 8**0.5}), "warning", "mean", (3,), 8 / 40, 1 / N),
    Case("CLS101", "spread over all dimensions", SIGNS + 0.5, "warning", "mean", (), 8 / 40, 1 / N),
    Case("CLS101", "most of the length", shifted({3: 8}), "severe", "mean", (3,), 64 / 96, 1 / N),
    Case("CLS101", "two, the larger first", shifted({3: -5, 9: 6}), "severe", "mean", (9, 3), 61 / 93, 1 / N),
    Case("CLS102", "a fifth of the energy", shifted({3: 8**0.5}), "warning", "mean", (3,), 9 / 40, 1 / D),
    Case("CLS102", "two, the larger first", shifted({3: -5, 9: 6}), "severe", "mean", (9, 3), 37 / 93, 1 / D),
    Case("CLS103", "one", shifted({3: 8**0.5}), "warning", "mean", (3,), 8 / 40 * D, 1 / N),
    Case("CLS103", "two, the larger first", shifted({3: -5, 9: 6}), "warning", "mean", (9, 3), 36 / 93 * D, 1 / N),
    # Cosines of rows of an orthogonal array: their squares sum to n²/d, the diagonal of n included.
    Case("CLS104", "a mean alone", shifted({3: 8}), "note", "mean", (), ((N - D) / (N - 1)) ** 0.5, 1.0),
    Case("CLS201", "3", stretched({4: 3}), "warning", "variance", (4,), lambda: 3 / drawn(std_ratio), 1.0),
    Case("CLS201", "8 and 6", stretched({4: 6, 20: 8}), "severe", "variance", (20, 4), lambda: 8 / drawn(std_ratio), 1),
    Case("CLS202", "a fifth of the energy", stretched({4: 3}), "warning", "variance", (4,), 9 / 40, 1 / D),
    Case("CLS202", "two, the larger first", stretched({4: 6, 20: 8}), "severe", "variance", (20, 4), 64 / 130, 1 / D),
    Case("CLS203", "one", stretched({4: 3}), "warning", "variance", (4,), 9 / 40 * D, 1.0),
    Case("CLS203", "two, the wider first", stretched({4: 6, 20: 8}), "warning", "variance", (20, 4), 64 / 130 * D, 1),
    Case("CLS301", "r = 0.2", correlated(1 / 4), "warning", "spectrum", (), lambda: 1 / 5 - mean_r_null(), 0.0),
    Case("CLS301", "r = 0.5", correlated(1), "severe", "spectrum", (), lambda: 1 / 2 - mean_r_null(), 0.0),
    Case("CLS302", "λ = 33", correlated(1), "warning", "spectrum", (), lambda: rank_of(33) / rank_null(), 1.0),
    Case("CLS302", "λ = 257", correlated(8), "severe", "spectrum", (), lambda: rank_of(257) / rank_null(), 1.0),
    Case(
        "CLS302",
        "scales",
        stretched({4: 16}),
        "severe",
        "variance",
        (),
        lambda: rank_of(256) / drawn(effective_rank),
        1,
    ),
    Case("CLS303", "λ = 33", correlated(1), "warning", "spectrum", (), lambda: 35 / 64 - drawn(ev3), 0.0),
    Case("CLS303", "λ = 257", correlated(8), "severe", "spectrum", (), lambda: 259 / 288 - drawn(ev3), 0.0),
    Case("CLS303", "scales", stretched({4: 6}), "warning", "variance", (), lambda: 38 / 67 - drawn(ev3), 0.0),
    Case("CLS304", "by the mean", shifted({3: 20}), "warning", "mean", (), lambda: 401 / drawn(condition), 1.0),
    Case("CLS304", "by scales", stretched({4: 20}), "warning", "variance", (), lambda: 400 / drawn(condition), 1.0),
    Case("CLS304", "by directions", correlated(20), "warning", "spectrum", (), lambda: 641 / drawn(condition), 1.0),
    Case("CLS304", "far", correlated(2_000), "severe", "spectrum", (), lambda: 64_001 / drawn(condition), 1.0),
    Case("CLS401", "one dimension", heavy({5: 8}), "note", "tails", (5,), 61, None),
    Case("CLS401", "two of 32", heavy({5: 16, 11: 8}), "warning", "tails", (11, 5), 2 / D, 0.0),
    Case("CLS402", "an eighth", saturated(4), "warning", "tails", (0, 1, 2, 3), 4 / D, 0.0, {"source": "pooler"}),
    Case("CLS402", "most", saturated(20), "severe", "tails", tuple(range(20)), 20 / D, 0.0, {"source": "pooler"}),
    Case("CLS501", "ten a dimension", SIGNS[: 10 * D], "note", "sample", (), 10, NAN),
    Case("CLS501", "two a dimension", SIGNS[: 2 * D], "warning", "sample", (), 2, NAN),
    Case("CLS502", "one row", SIGNS, "note", "sample", (), 1 / N, 0.0, {"rows_cut": 1}),
    Case("CLS502", "an eighth", SIGNS, "warning", "sample", (), 1 / 8, 0.0, {"rows_cut": 64, "source": "cls"}),
    Case("CLS503", "one", constant([6]), "note", "sample", (6,), 1 / D, 0.0),
    Case("CLS503", "two", constant([6, 2]), "warning", "sample", (2, 6), 2 / D, 0.0),
    Case("CLS504", "one vector", np.full((9, D), 0.3), "severe", "sample", (), 1.0, 0.0),
    Case("CLS504", "zeros", np.zeros((9, D)), "severe", "sample", (), 1.0, 0.0),
    Case("CLS505", "few", zeroed(1), "note", "sample", (), 1 / N, 0.0),
    Case("CLS505", "many", zeroed(16), "warning", "sample", (), 16 / N, 0.0),
    Case("CLS601", "a tenth", shifted({3: -8_000, 5: 7_000}), "note", "precision", (3, 5), 8_001 / 65_504, 0.0),
    Case("CLS601", "beyond", shifted({3: 69_999}), "severe", "precision", (3,), 70_000 / 65_504, 0.0),
    # A step of bfloat16 at the mean is 2⁻⁷ of it.
    Case("CLS602", "one", shifted({3: 200}), "note", "precision", (3,), 200 / 128, 0.0),
    Case(
        "CLS602",
        "four of 32",
        shifted({3: -200, 5: 300, 7: 150, 9: 140}),
        "warning",
        "precision",
        (5, 3, 7, 9),
        1 / 8,
        0,
    ),
]

SILENT = [
    ("CLS101", "a twelfth", profile_of(shifted({3: 3**0.5}))),
    # 1/n of the length is a mean by chance: an eighth of eight rows.
    *(("CLS101", f"eight rows, {seed}", profile_of(gaussian(8, 64, seed))) for seed in range(5)),
    ("CLS102", "energy of the variance", profile_of(stretched({3: 8}))),
    ("CLS102", "more variance than mean", profile_of(stretched({3: 8}) + 6 * (np.arange(D) == 3))),
    ("CLS103", "four times the even share", profile_of(shifted({3: 5**0.5}))),
    ("CLS104", "no mean", profile_of(SIGNS)),
    # RMS cosine still 1.2 times its null.
    ("CLS104", "scales, too", profile_of(shifted({3: 8}) * np.where(np.arange(D) == 4, 2.3, 1))),
    ("CLS104", "directions, too", profile_of(correlated(1) + 1)),
    ("CLS201", "twice the median", profile_of(stretched({4: 2}))),
    *(("CLS201", f"nine rows, {seed}", profile_of(gaussian(9, 64, seed))) for seed in range(5)),
    ("CLS202", "energy of the mean", profile_of(shifted({4: 8}))),
    ("CLS202", "more mean than variance", profile_of(stretched({4: 6}) + 8 * (np.arange(D) == 4))),
    ("CLS203", "four times the mean variance", profile_of(stretched({4: 2}))),
    ("CLS301", "r = 1/17", profile_of(correlated(1 / 16))),
    *(("CLS301", f"nine rows, {seed}", profile_of(gaussian(9, 64, seed))) for seed in range(5)),
    ("CLS302", "all directions", profile_of(SIGNS)),
    *(("CLS302", f"nine rows, {seed}", profile_of(gaussian(9, 64, seed))) for seed in range(5)),
    ("CLS303", "λ = 9", profile_of(correlated(1 / 4))),
    *(("CLS303", f"nine rows, {seed}", profile_of(gaussian(9, 64, seed))) for seed in range(5)),
    ("CLS304", "65", profile_of(shifted({3: 8}))),
    ("CLS304", "fewer rows than dimensions", profile_of(correlated(2_000)[:20])),
    ("CLS401", "signs", profile_of(SIGNS)),
    # Kurtosis of 26/4 − 3 = 3.5 is above 3, and not beyond what chance gives 26 rows.
    ("CLS401", "few rows", profile_of(np.insert(gaussian(26, 31, seed=1), 5, heavy({5: 4})[:26, 5], axis=1))),
    ("CLS402", "no pooler", profile_of(saturated(20), source="cls")),
    ("CLS402", "three of 32", profile_of(saturated(3), source="pooler")),
    ("CLS501", "16 rows a dimension", profile_of(SIGNS)),
    ("CLS502", "no row cut", profile_of(SIGNS, source="cls")),
    ("CLS503", "all live", profile_of(SIGNS)),
    ("CLS504", "vectors that differ", profile_of(SIGNS)),
    ("CLS504", "a single row", profile_of(SIGNS[:1])),
    ("CLS504", "[CLS] before any block", profile_of({0: np.full((9, D), 0.3), 1: SIGNS[:9]}, source="cls")),
    ("CLS505", "no zero", profile_of(SIGNS)),
    ("CLS601", "just below a tenth", profile_of(shifted({3: 6_500}))),
    ("CLS602", "just below a step", profile_of(shifted({3: 127}))),
]


@pytest.mark.parametrize("case", FIRES, ids=lambda case: f"{case.code}: {case.what}")
def test_fires(case):
    profile = profile_of(case.x, **(case.origin or {}))
    finding = of_code(findings_of(profile, profile.layers[-1]), case.code)
    assert finding is not None
    assert (finding.severity, finding.axis, finding.dimensions) == (case.severity, case.axis, case.dimensions)
    expected = case.value() if callable(case.value) else case.value
    # Nulls of the spectrum are means over draws, theirs and ours.
    assert finding.value == pytest.approx(expected, rel=0.03 if callable(case.value) else 1e-9)
    if case.null is not None:
        assert finding.null == pytest.approx(case.null, rel=1e-9, nan_ok=True)
    assert finding.threshold == THRESHOLDS[f"{case.code}.{case.severity}"].value
    assert finding.layer == profile.layers[-1]


@pytest.mark.parametrize(("code", "what", "profile"), SILENT, ids=[f"{code}: {what}" for code, what, _ in SILENT])
def test_does_not_fire(code, what, profile):
    assert of_code(findings_of(profile, profile.layers[-1]), code) is None


def test_every_rule_has_both():
    assert {case.code for case in FIRES} == {code for code, *_ in SILENT} == set(rule_codes())


def test_every_limit_is_reached_by_some_case():
    assert {f"{case.code}.{case.severity}" for case in FIRES} == set(THRESHOLDS)


def test_null_of_the_largest_kurtosis():
    """At most one Gaussian matrix in twenty has a dimension beyond it."""
    finding = of_code(findings_of(profile_of(heavy({5: 8}))), "CLS401")
    rng = np.random.default_rng(0)
    largest = [scipy.stats.kurtosis(rng.standard_normal((N, D))).max() for _ in range(400)]
    assert 0.005 < np.mean(np.array(largest) > finding.null) < 0.06


def test_clean_slate():
    assert findings_of(profile_of(SIGNS)) == []


# -- texts of the rules ----------------------------------------------------------------------------------------------


def test_codes_and_names_are_unique_and_in_their_family():
    rules = all_rules()
    assert len({rule.code for rule in rules}) == len({rule.name for rule in rules}) == len(rules)
    assert rule_codes() == sorted(rule.code for rule in rules)
    for rule in rules:
        assert rule.axis == AXES[int(rule.code[3]) - 1], rule.code
        assert type(rule).__module__ == f"cls_analysis.diagnosis.rules.{rule.axis}"


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.code)
def test_texts(rule):
    for text in (rule.measures, rule.source, rule.meaning, rule.remedy, rule.verify, rule.name):
        assert text.strip() == text != ""
        assert "  " not in text
    for text in (rule.meaning, rule.remedy, rule.verify):
        assert text.endswith("."), text


def test_rules_that_conclude_come_last():
    order = [rule.code for rule in all_rules()]
    assert order[-1] == "CLS104"
    assert order[:-1] == sorted(order[:-1])


def test_page_of_rules_is_the_catalogue():
    """Made by ``make docs``."""
    page = RULES_PAGE.read_text(encoding="utf-8")
    assert page == catalogue()
    for rule in all_rules():
        heading, _, rest = page.partition(f"## {rule.code} {rule.name}\n")
        assert heading != page, rule.code
        paragraph = rest.split("\n\n")[0].strip()
        for text in (rule.measures, rule.meaning, rule.remedy, rule.verify, rule.source):
            assert text in paragraph, rule.code
    for key, limit in THRESHOLDS.items():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| {key} |")]
        assert f"{limit.value:g} | {limit.what} | {limit.source} |" in line


def test_fields_of_a_finding():
    """The contract's, and one sentence of evidence."""
    contract = [
        "code", "name", "axis", "severity", "layer", "dimensions", "value", "null", "threshold", "source", "meaning",
        "remedy", "verify",
    ]  # fmt: skip
    names = [field.name for field in fields(Finding)]
    assert [name for name in names if name != "evidence"] == contract
    (finding,) = findings_of(profile_of(SIGNS[: 10 * D]))
    rule = next(rule for rule in all_rules() if rule.code == "CLS501")
    values = asdict(finding)
    assert {name: values[name] for name in ("code", "name", "source", "meaning", "remedy", "verify")} == {
        name: getattr(rule, name) for name in ("code", "name", "source", "meaning", "remedy", "verify")
    }
    assert finding.severity in SEVERITIES
    assert finding.evidence.startswith("320 rows for 32 dimensions")


@pytest.mark.parametrize("case", FIRES, ids=lambda case: f"{case.code}: {case.what}")
def test_evidence_names_what_it_found(case):
    profile = profile_of(case.x, **(case.origin or {}))
    finding = of_code(findings_of(profile, profile.layers[-1]), case.code)
    assert "\n" not in finding.evidence
    assert not finding.evidence.endswith(".")
    assert "nan" not in finding.evidence
    if case.code in ("CLS102", "CLS103", "CLS202", "CLS203", "CLS401", "CLS503", "CLS602"):
        assert all(str(dimension) in finding.evidence for dimension in case.dimensions[:3])


def test_evidence_of_few_rows_says_what_suffers():
    (text,) = [finding.evidence for finding in findings_of(profile_of(gaussian(20, 32))) if finding.code == "CLS501"]
    assert "condition number needs more than 32 rows" in text
    assert "rough below 100 rows" in text
    (text,) = [finding.evidence for finding in findings_of(profile_of(gaussian(200, 32))) if finding.code == "CLS501"]
    assert "condition number" not in text
    assert "rough" not in text


# -- rules of users --------------------------------------------------------------------------------------------------


def test_a_users_rule_is_picked_up():
    class LongVectors(Rule):
        """Vectors of more than a length of 5."""

        code = "OWN101"
        name = "long-vectors"
        axis = "mean"
        measures, source, meaning, remedy, verify = "‖x‖", "a user", "Long.", "Shorten.", "Measure."

        def judge(self, evidence, limits, found):
            length = evidence.figure("rms_norm")
            return Judgement("note", length, 5.0, f"a length of {length:.2f}") if length > 5.0 else None

    try:
        (finding,) = diagnose(profile_of(SIGNS), intervals=False).findings
        assert (finding.code, finding.axis, finding.meaning) == ("OWN101", "mean", "Long.")
        assert finding.value == pytest.approx(32**0.5)
        assert "## OWN101 long-vectors" in catalogue()
        limits = Limits.of({}, ["OWN101"], rule_codes())
        assert findings_of(profile_of(SIGNS), limits=limits) == []
    finally:
        del LongVectors
        gc.collect()
    assert "OWN101" not in rule_codes()


def test_a_rule_that_specializes_another_takes_its_place():
    common_mean = next(type(rule) for rule in all_rules() if rule.code == "CLS101")

    class Harmless(common_mean):
        """The same, never reported."""

        def judge(self, evidence, limits, found):
            return None

    try:
        assert of_code(findings_of(profile_of(shifted({3: 8}))), "CLS101") is None
        assert rule_codes().count("CLS101") == 1
    finally:
        del Harmless
        gc.collect()
    assert of_code(findings_of(profile_of(shifted({3: 8}))), "CLS101") is not None


def test_every_judgement_can_be_made_from_evidence_alone():
    """What ``diagnose`` does with a rule, in three lines."""
    rule = next(rule for rule in all_rules() if rule.code == "CLS103")
    finding = rule.finding(Evidence(profile_of(shifted({3: 8})), -1), Limits(), [])
    assert (finding.dimensions, finding.null) == ((3,), 1 / N)
    assert rule.finding(Evidence(profile_of(SIGNS), -1), Limits(), []) is None
