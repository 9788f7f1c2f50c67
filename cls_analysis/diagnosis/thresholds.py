"""The one table of limits that findings rest on, each with its source, and how a user overrides them."""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cls_analysis.diagnosis.findings import SEVERITIES
from cls_analysis.errors import OptionError, one_line, unknown_name
from cls_analysis.statistics.outliers import FACTOR


@dataclass(frozen=True)
class Threshold:
    """A limit: ``value``, what is compared with it, whether higher is worse, and where the number comes from."""

    value: float
    what: str
    source: str
    higher_is_worse: bool = True


OURS = "ours"
#: ``CODE.severity`` -> limit. A finding has the worst severity whose limit its value reaches.
THRESHOLDS: dict[str, Threshold] = {
    "CLS101.warning": Threshold(0.1, "common mean share", f"{OURS}: a tenth of the length says nothing of the text"),
    "CLS101.severe": Threshold(0.5, "common mean share", f"{OURS}: more of the length is common than is not"),
    "CLS102.warning": Threshold(0.05, "energy share of one dimension", f"{OURS}: 19 even shares at d = 384"),
    "CLS102.severe": Threshold(0.25, "energy share of one dimension", f"{OURS}: a quarter of the length in one number"),
    "CLS103.warning": Threshold(FACTOR, "μ_i² over the even share E‖x‖²/d", "after Rudman et al. 2023, for the mean"),
    "CLS104.note": Threshold(1.5, "RMS cosine after centring over its null", OURS, higher_is_worse=False),
    "CLS201.warning": Threshold(2.0, "largest over median std, over its null", f"{OURS}: variances differ fourfold"),
    "CLS201.severe": Threshold(5.0, "largest over median std, over its null", f"{OURS}: variances differ 25-fold"),
    "CLS202.warning": Threshold(0.05, "energy share of one dimension", f"{OURS}: as CLS102"),
    "CLS202.severe": Threshold(0.25, "energy share of one dimension", f"{OURS}: as CLS102"),
    "CLS203.warning": Threshold(FACTOR, "Var_i over the mean variance", "Rudman et al. 2023"),
    "CLS301.warning": Threshold(0.1, "mean |r| minus its null", OURS),
    "CLS301.severe": Threshold(0.3, "mean |r| minus its null", OURS),
    "CLS302.warning": Threshold(0.5, "effective rank over its null", f"{OURS}: half", higher_is_worse=False),
    "CLS302.severe": Threshold(0.1, "effective rank over its null", f"{OURS}: a tenth", higher_is_worse=False),
    "CLS303.warning": Threshold(0.25, "EV3 minus its null", f"{OURS}: IsoBN 2021 reports EV1 to EV3 without a limit"),
    "CLS303.severe": Threshold(0.5, "EV3 minus its null", f"{OURS}: most of the variance in three directions"),
    "CLS304.warning": Threshold(
        1e2, "condition number over its null", f"{OURS}: 100 times the steps of gradient descent"
    ),
    "CLS304.severe": Threshold(1e4, "condition number over its null", OURS),
    "CLS401.note": Threshold(3.0, "excess kurtosis of the worst dimension", f"{OURS}: a Laplace distribution has 3"),
    "CLS401.warning": Threshold(0.05, "share of dimensions of excess kurtosis above 3", OURS),
    "CLS402.warning": Threshold(
        0.1, "share of pooler values beyond ±0.99", f"{OURS}: tanh passes 2 % of the gradient there"
    ),
    "CLS402.severe": Threshold(0.5, "share of pooler values beyond ±0.99", OURS),
    "CLS501.note": Threshold(
        10.0, "rows per dimension", f"{OURS}: IsoScore of isotropic vectors is 0.91 there", higher_is_worse=False
    ),
    "CLS501.warning": Threshold(
        2.0, "rows per dimension", f"{OURS}: IsoScore of isotropic vectors is 0.67 there", higher_is_worse=False
    ),
    "CLS502.note": Threshold(0.0, "share of rows cut", "any"),
    "CLS502.warning": Threshold(0.05, "share of rows cut", OURS),
    "CLS503.note": Threshold(0.0, "share of dimensions that are dead", "any"),
    "CLS503.warning": Threshold(0.05, "share of dimensions that are dead", OURS),
    "CLS504.severe": Threshold(1.0, "share of dimensions that are dead", "all of them"),
    "CLS505.note": Threshold(0.0, "share of rows that are zero", "any"),
    "CLS505.warning": Threshold(0.01, "share of rows that are zero", OURS),
    "CLS601.note": Threshold(0.1, "largest |x| over 65,504", "IEEE 754 half precision; a tenth leaves room for sums"),
    "CLS601.severe": Threshold(1.0, "largest |x| over 65,504", "IEEE 754 half precision overflows"),
    "CLS602.note": Threshold(1.0, "bfloat16 step at the mean over the std", f"{OURS}: a step as wide as the spread"),
    "CLS602.warning": Threshold(0.1, "share of living dimensions with such a step", OURS),
}


@dataclass(frozen=True)
class Limits:
    """The limits in force: the table, what the user overrides, and the rules that are switched off."""

    overrides: Mapping[str, float] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()

    def __getitem__(self, key: str) -> float:
        return self.overrides.get(key, THRESHOLDS[key].value)

    def reached(self, code: str, value: float, *, certain: bool = True) -> tuple[str, float] | None:
        """The worst severity of ``code`` whose limit ``value`` reaches, and that limit; None if none, or NaN."""
        if not certain or math.isnan(value):
            return None
        for severity in reversed(SEVERITIES):
            key = f"{code}.{severity}"
            if key in THRESHOLDS and _beyond(value, self[key], THRESHOLDS[key].higher_is_worse):
                return severity, self[key]
        return None

    @classmethod
    def of(cls, overrides: Mapping[str, Any], ignored: Iterable[str], known_codes: Iterable[str]) -> Limits:
        """Checked limits.

        Raises
        ------
        OptionError
            If a key or code is unknown, a value is no finite number, or a severe limit is milder than its warning.
        """
        codes, off = sorted(known_codes), frozenset(ignored)
        for code in sorted(off):
            if code not in codes:
                raise OptionError(unknown_name("rule", code, codes))
        checked: dict[str, float] = {}
        for key, value in overrides.items():
            if key not in THRESHOLDS:
                raise OptionError(unknown_name("threshold", key, THRESHOLDS))
            checked[key] = _number(key, value)
        limits = cls(checked, off)
        for code in codes:
            limits._check_order(code)
        return limits

    def _check_order(self, code: str) -> None:
        keys = [f"{code}.{severity}" for severity in SEVERITIES if f"{code}.{severity}" in THRESHOLDS]
        for mild, grave in itertools.pairwise(keys):
            same_measure = THRESHOLDS[mild].what == THRESHOLDS[grave].what
            if same_measure and not _beyond(self[grave], self[mild], THRESHOLDS[mild].higher_is_worse):
                direction = "above" if THRESHOLDS[mild].higher_is_worse else "below"
                raise OptionError(f"threshold {grave} = {self[grave]:g} must lie {direction} {mild} = {self[mild]:g}")


def parse_override(text: str) -> tuple[str, float]:
    """``CLS101.warning=0.2`` as a key and a number."""
    key, equals, value = text.partition("=")
    if not equals:
        raise OptionError(f"a threshold has the form CLS101.warning=0.2, got {text!r}")
    return key.strip(), _number(key.strip(), value.strip())


def read_limits(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Overrides and switched-off rules from a TOML file: a table ``[thresholds]`` and a list ``ignore``.

    Raises
    ------
    OptionError
        If the file is missing, is no TOML, or holds anything else.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OptionError(f"{path}: not a readable TOML file of thresholds ({one_line(error, 120)})") from None
    unknown = sorted(set(content) - {"thresholds", "ignore"})
    if unknown:
        raise OptionError(f"{path}: {unknown_name('key', unknown[0], ('thresholds', 'ignore'))}")
    table, ignore = content.get("thresholds", {}), content.get("ignore", [])
    if not isinstance(table, dict) or not isinstance(ignore, list):
        raise OptionError(f'{path}: expected a table [thresholds] and a list ignore = ["CLS503"]')
    # An unquoted CLS101.warning = 0.2 is a table in TOML; both spellings mean the same.
    flat: dict[str, Any] = {}
    for key, value in table.items():
        flat |= (
            {f"{key}.{inner}": number for inner, number in value.items()} if isinstance(value, dict) else {key: value}
        )
    return flat, [str(code) for code in ignore]


def _beyond(value: float, limit: float, higher_is_worse: bool) -> bool:
    """Whether a limit is reached; one of zero is reached by what lies above it."""
    if higher_is_worse:
        return value > 0.0 if limit == 0.0 else value >= limit
    return value <= limit


def _number(key: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or isinstance(value, bool):
        raise OptionError(f"threshold {key}: expected a finite number, got {value!r}")
    return number
