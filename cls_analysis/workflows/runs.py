"""A RUN: the folder that ``extract`` fills. Names of its files, and the Profiles found in one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cls_analysis.errors import ProfileError
from cls_analysis.profiles import Profile
from cls_analysis.provenance import slug
from cls_analysis.texts import Texts

PROFILE_ENDING = ".safetensors"
VECTORS_ENDING = ".vectors"
SHARD_MARK = ".shard-"


def profile_path(run: Path, encoder: str, texts: Texts, shard: tuple[int, int], *, with_hash: bool) -> Path:
    """``RUN/<encoder>/<dataset>[-<split>].safetensors``, with six characters of the text hash where names clash."""
    name = slug(f"{texts.name}-{texts.split}" if texts.split else texts.name)
    if with_hash:
        name += f"-{texts.hash[:6]}"
    if shard[1] > 1:
        name += f"{SHARD_MARK}{shard[0]}-of-{shard[1]}"
    return run / slug(encoder) / (name + PROFILE_ENDING)


def find_profiles(targets: Sequence[Path]) -> list[Path]:
    """The Profile files that ``targets`` name: files themselves, and all in a RUN but stored vectors and shards.

    Raises
    ------
    ProfileError
        If a target is not there, or a folder holds no Profile.
    """
    found: list[Path] = []
    for target in targets:
        if target.is_file():
            found.append(target)
        elif target.is_dir():
            found.extend(_in_folder(target))
        else:
            raise ProfileError(
                f"{target}: no such file or folder; expected a Profile, or the folder given to extract --out"
            )
    return list(dict.fromkeys(found))


def load_profiles(targets: Sequence[Path]) -> list[Profile]:
    """The Profiles that ``targets`` name, in that order."""
    return [Profile.load(path) for path in find_profiles(targets)]


def _in_folder(folder: Path) -> list[Path]:
    files = [
        path
        for path in sorted(folder.rglob(f"*{PROFILE_ENDING}"))
        if path.parent.suffix != VECTORS_ENDING and not path.name.startswith(".")
    ]
    whole = [path for path in files if SHARD_MARK not in path.name]
    if files and not whole:
        raise ProfileError(f"{folder}: holds only shards; join them first with: cls-analysis merge … --out FILE")
    if not whole:
        raise ProfileError(f"{folder}: no Profile here (*{PROFILE_ENDING})")
    return whole
