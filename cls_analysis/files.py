"""Files that appear whole or not at all, locks on folders, and the files that ship with the package."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from cls_analysis.errors import ClsAnalysisError, DataError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside ``path``; on success it is renamed to ``path``, else removed.

    A reader, or a run that was killed, therefore never meets a half-written file.
    """
    make_folder(path.parent)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=f".part{path.suffix}", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes the file private; a result is as readable as any file that this user makes.
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"{path}: cannot be written ({error.strerror or error})") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> Path:
    """Write ``text`` as UTF-8, whole."""
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")
    return path


def make_folder(path: Path) -> Path:
    """Make ``path`` and its parents; an error names what stands in the way."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be made a folder ({error.strerror or error})") from error
    return path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold ``folder`` for one process; a second one is refused at once rather than mixed in."""
    make_folder(folder)
    lock = filelock.FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        raise ClsAnalysisError(
            f"{folder}: another process is writing here; wait for it, or give another folder"
        ) from None
    try:
        yield
    finally:
        lock.release()


def bundled(name: str) -> Path:
    """Path of a file that ships with the project: ``data/`` of a checkout, ``cls_analysis/data`` of a wheel."""
    package = Path(__file__).parent
    for root in (package / "data", package.parent / "data"):
        if (root / name).exists():
            return root / name
    raise DataError(f"{name}: not among the bundled files (looked beside {package})")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
