"""A norm as it is written on a command line and in a table: ``[label=]name[(option=value,…)]``."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cls_analysis.errors import OptionError, unknown_name
from cls_analysis.normalization.making import NAMES, OF_PROFILE, make_norm

_FORM = re.compile(r"(?:(?P<label>[^=(),]+)=)?(?P<name>[^=(),]+)(?:\((?P<options>[^()]*)\))?")
#: A comma that is not inside brackets.
_COMMA = re.compile(r",(?![^(]*\))")


@dataclass(frozen=True)
class NormSpec:
    """A norm that is to be made: what tables call it, its name and its options."""

    label: str
    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def needs_profile(self) -> bool:
        """Whether it is made of statistics of the training rows."""
        return self.name in OF_PROFILE

    @property
    def needs_batches(self) -> bool:
        """Whether it follows the statistics of batches, which one row does not have."""
        return self.name in ("center", "batchnorm", "isobn")


def parse_norms(values: Sequence[str]) -> list[NormSpec]:
    """The norms that an option names, repeated or separated by commas.

    Raises
    ------
    OptionError
        If one is spelled wrongly or unknown, takes no such option, or two have the same label.
    """
    specs = [parse_norm(text.strip()) for value in values for text in _COMMA.split(value) if text.strip()]
    labels = [spec.label for spec in specs]
    if repeated := next((label for label in labels if labels.count(label) > 1), None):
        raise OptionError(f"two norms are called {repeated!r}; give one a label, as in again={repeated}")
    return specs


def parse_norm(text: str) -> NormSpec:
    """One norm, as in ``none``, ``plain=none`` or ``isobn(bias_correction=true)``; its options are tried out.

    Raises
    ------
    OptionError
        If it is spelled wrongly or unknown, or takes no such option.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise OptionError(f"a norm is written [label=]name[(option=value,…)], got {text!r}")
    name = match["name"].strip()
    if name not in NAMES:
        raise OptionError(unknown_name("normalization", name, NAMES))
    pairs = [pair for pair in (match["options"] or "").split(",") if pair.strip()]
    options = dict(_option(text, pair) for pair in pairs)
    label = (match["label"] or (text if options else name)).strip()
    if name not in OF_PROFILE:
        make_norm(name, dim=1, **options)
    elif options:
        raise OptionError(f"{name} takes no options, got {', '.join(options)}")
    return NormSpec(label, name, options)


def _option(text: str, pair: str) -> tuple[str, Any]:
    key, equals, value = (part.strip() for part in pair.partition("="))
    if not (key and equals and value):
        raise OptionError(f"options of a norm are written option=value, got {pair!r} in {text!r}")
    words = {"true": True, "false": False, "none": None}
    if value.lower() in words:
        return key, words[value.lower()]
    try:
        return key, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return key, value
