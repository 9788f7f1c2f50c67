"""Fixtures of the tests of texts."""

from __future__ import annotations

from contextlib import contextmanager

import pytest


@pytest.fixture
def write(tmp_path):
    """Write a file (text as UTF-8, or bytes as they are) and return its path as a string."""

    def write_file(name: str, data: str | bytes) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return str(path)

    return write_file


@pytest.fixture
def refused():
    """Like ``pytest.raises``, and the message is one line that holds all the parts."""

    @contextmanager
    def check(error: type[Exception], *parts: str):
        with pytest.raises(error) as caught:
            yield
        message = str(caught.value)
        assert caught.type is error
        assert len(message.splitlines()) == 1
        assert [part for part in parts if part not in message] == [], message

    return check
