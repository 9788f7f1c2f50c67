"""``merge``: Profiles of one encoder and settings joined into one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cls_analysis.errors import ProfileError
from cls_analysis.profiles import Profile


def merge_profiles(paths: Sequence[Path], out: Path) -> Profile:
    """Join Profiles of one encoder and settings into one file.

    Raises
    ------
    ProfileError
        If they do not belong together, or share rows.
    """
    profile = Profile.load(paths[0])
    for path in paths[1:]:
        try:
            profile = profile.merge(Profile.load(path))
        except ProfileError as error:
            raise ProfileError(f"{path}: {error}") from None
    profile.save(out)
    return profile
