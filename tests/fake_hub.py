"""A hub that no test reaches: its cache is a folder, its one request is counted and answered by the test."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

NAME = "someone/tiny-bert"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def http_error(kind, status=404):
    response = SimpleNamespace(status_code=status, headers={}, request=None, text="")
    return kind(f"{status} refused\nby the hub", response=response)


class ConnectTimeout(Exception):
    """What an HTTP library raises; its classes are none that a caller could know."""


class Hub:
    """Stands for the one request; counts calls and raises what a test wants."""

    def __init__(self):
        self.calls = []
        self.error = None

    def __call__(self, url, **options):
        self.calls.append((url, options))
        if self.error is not None:
            raise self.error


class Files:
    """Stands for downloads: gives the files of a folder, raises what a test wants, and notes what it gave."""

    def __init__(self, folder):
        self.folder = folder
        self.error = None
        self.given = []

    def __call__(self, name, file, **options):
        from huggingface_hub import errors

        if self.error is not None:
            raise self.error
        if not (self.folder / file).is_file():
            raise http_error(errors.RemoteEntryNotFoundError)
        self.given.append(file)
        return str(self.folder / file)


def put(cache, folder, *, names=None, revision="main"):
    """Lay a model into the cache as a download would."""
    repo = cache / f"models--{NAME.replace('/', '--')}"
    (repo / "refs").mkdir(parents=True, exist_ok=True)
    (repo / "refs" / revision).write_text(COMMIT)
    snapshot = repo / "snapshots" / COMMIT
    snapshot.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if names is None or path.name in names:
            shutil.copy(path, snapshot)
