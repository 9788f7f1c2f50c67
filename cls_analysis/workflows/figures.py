"""``figures``: pictures of Profiles, each with its numbers as CSV beside it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cls_analysis.errors import OptionError, unknown_name
from cls_analysis.files import write_text
from cls_analysis.plotting import FIGURES
from cls_analysis.plotting.style import check_formats, save_figure
from cls_analysis.profiles import Profile


@dataclass(frozen=True)
class Drawn:
    """One figure: the files written, or why there are none."""

    name: str
    files: tuple[Path, ...]
    skipped: str | None = None


def draw_figures(
    profiles: Sequence[Profile],
    out: Path,
    *,
    only: Sequence[str] = (),
    formats: Sequence[str] = ("pdf", "png"),
    layer: int = -1,
) -> list[Drawn]:
    """Draw the figures ``only`` names, or all that the Profiles allow, into ``out``.

    Raises
    ------
    OptionError
        If a name or format is unknown, or a figure asked for by name cannot be drawn from these Profiles.
    """
    check_formats(formats)
    for name in only:
        if name not in FIGURES:
            raise OptionError(unknown_name("figure", name, FIGURES))
    origin = json.dumps([json.loads(profile.provenance.to_json()) for profile in profiles], sort_keys=True)
    drawn = []
    for name in only or FIGURES:
        try:
            drawn.append(_draw(name, profiles, out, formats, layer, origin))
        except OptionError as error:
            if only:
                raise
            drawn.append(Drawn(name, (), str(error)))
    write_text(out / "provenance.json", json.dumps(json.loads(origin), indent=1, sort_keys=True) + "\n")
    return drawn


def _draw(name: str, profiles: Sequence[Profile], out: Path, formats: Sequence[str], layer: int, origin: str) -> Drawn:
    kind = FIGURES[name]
    table = kind.table(profiles, layer)
    figure = kind.draw(table, profiles, layer)
    files = save_figure(figure, out / name, formats, origin)
    numbers = write_text(out / f"{name}.csv", table.to_csv(index=False, float_format="%.6g"))
    return Drawn(name, (*files, numbers))
