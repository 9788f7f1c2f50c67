"""How profiles are called in titles and legends: by what tells them apart."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from cls_analysis.profiles import Profile

SOURCE_NAMES = {
    "cls": "[CLS]",
    "pooler": "pooler output",
    "mean": "mean over tokens",
    "first": "first token",
    "last": "last token",
    "vectors": "vectors",
}


def legend_names(profiles: Sequence[Profile]) -> list[str]:
    """Encoder, data set and source, as far as they differ, else the data set; numbered where still alike."""
    columns = [
        [profile.encoder for profile in profiles],
        [profile.dataset for profile in profiles],
        [SOURCE_NAMES[profile.provenance.source] for profile in profiles],
    ]
    differing = [column for column in columns if len(set(column)) > 1] or [columns[1]]
    names = [", ".join(parts) for parts in zip(*differing, strict=True)]
    return [name if names.count(name) == 1 else f"{name} #{i + 1}" for i, name in enumerate(names)]


def panel_name(name: str, n: int) -> str:
    """Title of one profile's panel: its name and its number of rows."""
    # A panel holds two lines of about 44 characters; the CSV beside the figure has the whole name.
    return textwrap.fill(f"{name} (n = {n:,})", 44, max_lines=2, placeholder=" …", break_on_hyphens=False)


def what_is_shown(profiles: Sequence[Profile], layer: int | None) -> str:
    """Encoder, source and layer where they are common: the figure's title."""
    encoders = sorted({p.encoder for p in profiles})
    sources = sorted({SOURCE_NAMES[p.provenance.source] for p in profiles})
    parts = ["/".join(sources)]
    if len(encoders) == 1:
        parts.insert(0, encoders[0])
    if layer is not None:
        numbers = sorted({p.resolve_layer(layer) for p in profiles})
        # A negative number is that of vectors which came without an encoder: no layer is known.
        if numbers[-1] >= 0:
            parts.append(f"layer {'/'.join(map(str, numbers))}")
    # A number alone on the next line would be read as a title's end.
    return ", ".join(dict.fromkeys(parts)).replace("layer ", "layer\N{NO-BREAK SPACE}")
