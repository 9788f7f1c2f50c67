"""Limits: the table, overrides from the command line and from files, and that they change what is found."""

from __future__ import annotations

import re

import pytest
from planted import D, correlated, findings_of, gaussian, of_code, profile_of, shifted, stretched

from cls_analysis import Limits
from cls_analysis.diagnosis.rules import rule_codes
from cls_analysis.diagnosis.thresholds import THRESHOLDS, parse_override, read_limits
from cls_analysis.errors import OptionError

NAN = float("nan")


def limits_of(overrides=None, ignored=()) -> Limits:
    return Limits.of(overrides or {}, ignored, rule_codes())


# -- the table -------------------------------------------------------------------------------------------------------


def test_every_limit_belongs_to_a_rule_and_every_rule_has_one():
    assert all(re.fullmatch(r"CLS\d{3}\.(note|warning|severe)", key) for key in THRESHOLDS)
    assert {key.partition(".")[0] for key in THRESHOLDS} == set(rule_codes())
    assert all(limit.what and limit.source for limit in THRESHOLDS.values())


def test_defaults_are_in_order():
    limits_of()
    assert Limits()["CLS101.severe"] == THRESHOLDS["CLS101.severe"].value


@pytest.mark.parametrize(
    ("code", "value", "expected"),
    [
        ("CLS101", 0.0999, None),
        ("CLS101", 0.1, ("warning", 0.1)),
        ("CLS101", 0.4999, ("warning", 0.1)),
        ("CLS101", 0.5, ("severe", 0.5)),
        ("CLS101", NAN, None),
        # Lower is worse.
        ("CLS302", 0.5001, None),
        ("CLS302", 0.5, ("warning", 0.5)),
        ("CLS302", 0.1, ("severe", 0.1)),
        ("CLS302", NAN, None),
        # A limit of zero is reached by what lies above it.
        ("CLS502", 0.0, None),
        ("CLS502", 1e-9, ("note", 0.0)),
        ("CLS502", 0.05, ("warning", 0.05)),
    ],
)
def test_reached(code, value, expected):
    assert Limits().reached(code, value) == expected


def test_reached_only_if_certain():
    assert Limits().reached("CLS101", 0.9, certain=False) is None


# -- overrides change findings ---------------------------------------------------------------------------------------

SHIFTED = shifted({3: 8**0.5})  # share 0.2; 9 of 40 of the energy; 6.4 even shares


@pytest.mark.parametrize(
    ("x", "override", "code", "before", "after"),
    [
        (SHIFTED, {"CLS101.warning": 0.201}, "CLS101", "warning", None),
        (SHIFTED, {"CLS101.severe": 0.2}, "CLS101", "warning", "severe"),
        (shifted({3: 3**0.5}), {"CLS101.warning": 0.08}, "CLS101", None, "warning"),
        (SHIFTED, {"CLS102.warning": 0.23}, "CLS102", "warning", None),
        (SHIFTED, {"CLS102.severe": 0.22}, "CLS102", "warning", "severe"),
        (SHIFTED, {"CLS103.warning": 6.5}, "CLS103", "warning", None),
        # Below the factor of the outlier columns of the tables, too.
        (shifted({3: 5**0.5}), {"CLS103.warning": 4}, "CLS103", None, "warning"),
        (shifted({3: 8}), {"CLS104.note": 0.9}, "CLS104", "note", None),
        (stretched({4: 3}), {"CLS201.warning": 3}, "CLS201", "warning", None),
        (stretched({4: 2}), {"CLS201.warning": 1.5}, "CLS201", None, "warning"),
        (stretched({4: 3}), {"CLS202.severe": 0.2}, "CLS202", "warning", "severe"),
        (stretched({4: 3}), {"CLS203.warning": 8}, "CLS203", "warning", None),
        (stretched({4: 2}), {"CLS203.warning": 3}, "CLS203", None, "warning"),
        (correlated(1), {"CLS301.severe": 0.5}, "CLS301", "severe", "warning"),
        (correlated(1), {"CLS302.warning": 0.3}, "CLS302", "warning", None),
        (correlated(1), {"CLS302.severe": 0.4}, "CLS302", "warning", "severe"),
        (correlated(1), {"CLS303.warning": 0.49}, "CLS303", "warning", None),
        (correlated(1), {"CLS304.warning": 10}, "CLS304", None, "warning"),
        (gaussian(16 * D, D), {"CLS501.note": 20}, "CLS501", None, "note"),
        (gaussian(16 * D, D), {"CLS501.note": 20, "CLS501.warning": 16}, "CLS501", None, "warning"),
        (shifted({3: 200}), {"CLS602.note": 2}, "CLS602", "note", None),
        (shifted({3: 200}), {"CLS602.warning": 0.03}, "CLS602", "note", "warning"),
        (shifted({3: 6_500}), {"CLS601.note": 0.09}, "CLS601", None, "note"),
    ],
)
def test_an_override_changes_the_finding(x, override, code, before, after):
    profile = profile_of(x)
    default, changed = (of_code(findings_of(profile, limits=limits), code) for limits in (None, limits_of(override)))
    assert (default.severity if default else None) == before
    assert (changed.severity if changed else None) == after
    if after is not None:
        assert changed.threshold == override.get(f"{code}.{after}", THRESHOLDS[f"{code}.{after}"].value)


def test_a_lower_limit_finds_no_chance():
    """Among 32 isotropic dimensions some mean is two standard errors from zero, some variance above the mean one."""
    x = gaussian(40, D, seed=1)
    low = limits_of({"CLS103.warning": 0.01, "CLS203.warning": 1.01, "CLS101.warning": 1e-3, "CLS102.warning": 1e-3})
    assert (x.mean(axis=0) ** 2).max() * D > 0.01 * (x**2).mean(axis=0).sum()
    assert x.var(axis=0).max() > 1.01 * x.var(axis=0).mean()
    assert not {"CLS101", "CLS102", "CLS103", "CLS203"} & {
        finding.code for finding in findings_of(profile_of(x), limits=low)
    }


def test_outliers_by_a_lower_limit_are_those_beyond_it():
    x = shifted({3: -2, 9: 1, 20: 1.5})  # 32 + 7.25: ratios 3.26, 0.82, 1.83
    finding = of_code(findings_of(profile_of(x), limits=limits_of({"CLS103.warning": 1})), "CLS103")
    assert finding.dimensions == (3, 20)
    assert finding.value == pytest.approx(4 * D / 39.25)
    x = stretched({4: 2, 5: 1.2, 6: 3})
    finding = of_code(findings_of(profile_of(x), limits=limits_of({"CLS203.warning": 2})), "CLS203")
    assert finding.dimensions == (6, 4)


def test_ignored_rules_say_nothing():
    profile = profile_of(SHIFTED)
    codes = {finding.code for finding in findings_of(profile)}
    assert codes == {"CLS101", "CLS102", "CLS103", "CLS104"}
    rest = findings_of(profile, limits=limits_of(ignored=["CLS101", "CLS103"]))
    assert {finding.code for finding in rest} == codes - {"CLS101", "CLS103"}
    # What concludes sees what is left.
    assert findings_of(profile, limits=limits_of(ignored=["CLS101", "CLS102", "CLS103"])) == []


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "ignored", "message"),
    [
        ({"CLS101.warnings": 1}, [], r"unknown threshold 'CLS101\.warnings': did you mean 'CLS101\.warning'\?"),
        ({"CLS999.warning": 1}, [], "unknown threshold 'CLS999.warning'"),
        ({"CLS101": 1}, [], "unknown threshold 'CLS101'"),
        ({"CLS101.warning": "much"}, [], "threshold CLS101.warning: expected a finite number, got 'much'"),
        ({"CLS101.warning": None}, [], "expected a finite number, got None"),
        ({"CLS101.warning": True}, [], "expected a finite number, got True"),
        ({"CLS101.warning": NAN}, [], "expected a finite number, got nan"),
        ({"CLS101.warning": float("-inf")}, [], "expected a finite number, got -inf"),
        ({"CLS101.warning": {"a": 1}}, [], "expected a finite number"),
        ({"CLS101.severe": 0.05}, [], r"CLS101\.severe = 0\.05 must lie above CLS101\.warning = 0\.1"),
        ({"CLS101.warning": 0.6}, [], r"CLS101\.severe = 0\.5 must lie above CLS101\.warning = 0\.6"),
        ({"CLS302.severe": 0.7}, [], r"CLS302\.severe = 0\.7 must lie below CLS302\.warning = 0\.5"),
        ({"CLS501.warning": 11}, [], r"CLS501\.warning = 11 must lie below CLS501\.note = 10"),
        ({}, ["CLS110"], "unknown rule 'CLS110': did you mean 'CLS10"),
        ({}, ["common-mean"], "unknown rule 'common-mean'"),
    ],
)
def test_refused(overrides, ignored, message):
    with pytest.raises(OptionError, match=message) as caught:
        limits_of(overrides, ignored)
    assert "\n" not in str(caught.value)


def test_limits_of_different_measures_need_no_order():
    """The note of CLS401 is a kurtosis, its warning a share of the dimensions."""
    assert limits_of({"CLS401.warning": 0.9, "CLS401.note": 0.5})["CLS401.note"] == 0.5


def test_moving_both_is_allowed():
    limits = limits_of({"CLS101.warning": 0.6, "CLS101.severe": 0.8})
    assert (limits["CLS101.warning"], limits["CLS101.severe"], limits["CLS102.severe"]) == (0.6, 0.8, 0.25)


def test_ignored_codes_from_any_iterable():
    assert limits_of(ignored=(code for code in ["CLS503", "CLS501"])).ignored == {"CLS501", "CLS503"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("CLS101.warning=0.2", 0.2), (" CLS101.warning = 2e-1 ", 0.2), ("CLS101.warning=1", 1.0)],
)
def test_parse_override(text, expected):
    assert parse_override(text) == ("CLS101.warning", expected)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CLS101.warning", "has the form CLS101.warning=0.2, got 'CLS101.warning'"),
        ("CLS101.warning=", "expected a finite number, got ''"),
        ("CLS101.warning=x", "expected a finite number, got 'x'"),
        ("CLS101.warning=nan", "expected a finite number"),
    ],
)
def test_parse_override_refuses(text, message):
    with pytest.raises(OptionError, match=message):
        parse_override(text)


# -- files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "content",
    [
        '[thresholds]\n"CLS101.warning" = 0.2\n"CLS302.severe" = 0.05\n',
        "[thresholds]\nCLS101.warning = 0.2\nCLS302.severe = 0.05\n",
        "[thresholds.CLS101]\nwarning = 0.2\n[thresholds.CLS302]\nsevere = 0.05\n",
        'thresholds = {"CLS101.warning" = 0.2, CLS302 = {severe = 0.05}}\n',
    ],
)
def test_spellings_of_a_file(tmp_path, content):
    (tmp_path / "limits.toml").write_text('ignore = ["CLS503"]\n' + content)
    overrides, ignored = read_limits(tmp_path / "limits.toml")
    assert overrides == {"CLS101.warning": 0.2, "CLS302.severe": 0.05}
    assert ignored == ["CLS503"]
    assert limits_of(overrides, ignored)["CLS302.severe"] == 0.05


def test_an_empty_file_changes_nothing(tmp_path):
    (tmp_path / "limits.toml").write_text("")
    assert read_limits(tmp_path / "limits.toml") == ({}, [])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"thresholds = [", "not a readable TOML file of thresholds"),
        (b"\xff\xfe", "not a readable TOML file"),
        (b"[threshold]\nx = 1\n", "unknown key 'threshold': did you mean 'thresholds'"),
        (b"thresholds = 3\n", r"expected a table \[thresholds\]"),
        (b"ignore = 'CLS503'\n", r"a list ignore"),
    ],
)
def test_a_file_that_is_refused(tmp_path, content, message):
    path = tmp_path / "limits.toml"
    path.write_bytes(content)
    with pytest.raises(OptionError, match=message) as caught:
        read_limits(path)
    assert str(caught.value).startswith(str(path))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(OptionError, match="not a readable TOML file"):
        read_limits(tmp_path / "nowhere.toml")


def test_numbers_in_a_file_are_checked_like_others(tmp_path):
    (tmp_path / "limits.toml").write_text('[thresholds]\nCLS101.warning = "0.2"\nCLS101.severe = true\n')
    overrides, _ = read_limits(tmp_path / "limits.toml")
    with pytest.raises(OptionError, match=r"CLS101\.severe: expected a finite number, got True"):
        limits_of(overrides)
    assert limits_of({"CLS101.warning": overrides["CLS101.warning"]})["CLS101.warning"] == 0.2
