"""How profiles are called in titles and legends: by what tells them apart."""

from __future__ import annotations

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
    """Data sets where the encoder is one, encoders where the data set is one, else both; numbered where still alike."""
    encoders, datasets = {p.encoder for p in profiles}, {p.dataset for p in profiles}
    if len(encoders) == 1:
        names = [p.dataset for p in profiles]
    elif len(datasets) == 1:
        names = [p.encoder for p in profiles]
    else:
        names = [f"{p.encoder}, {p.dataset}" for p in profiles]
    return [name if names.count(name) == 1 else f"{name} #{i + 1}" for i, name in enumerate(names)]


def panel_name(name: str, n: int) -> str:
    """Title of one profile's panel: its name and its number of rows."""
    return f"{name} (n = {n:,})"


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
    return ", ".join(parts)
