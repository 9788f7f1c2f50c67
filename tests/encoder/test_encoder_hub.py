"""Hub names: the cache first, one request at most, one line for whatever goes wrong. Nothing reaches the network."""

from __future__ import annotations

import shutil
import time
from types import SimpleNamespace

import huggingface_hub
import pytest
import tiny
from huggingface_hub import constants, errors

from cls_analysis import Encoder
from cls_analysis.errors import LoadingError

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
        raise self.error


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def hub(cache, monkeypatch):
    """The hub, allowed to be asked."""
    hub = Hub()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", hub)
    return hub


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


def refused(match, name=NAME, **options):
    with pytest.raises(LoadingError, match=match) as caught:
        Encoder.from_pretrained(name, device="cpu", **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


def test_case_46_offline_and_not_cached(cache):
    start = time.monotonic()
    message = refused(f"^{NAME}: .*HF_HUB_OFFLINE")
    assert str(cache) in message
    assert time.monotonic() - start < 5.0


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (http_error(errors.GatedRepoError, 403), "gated.*hf auth login"),
        (http_error(errors.RepositoryNotFoundError, 401), "not on the hub, or private"),
        (http_error(errors.RevisionNotFoundError), "no revision 'v9'"),
        (http_error(errors.RemoteEntryNotFoundError), "without a config.json"),
        (http_error(errors.HfHubHTTPError, 500), "the hub refused.*500"),
        (ConnectTimeout("timed\nout"), "cannot be reached.*timed out"),
        (ConnectionError("no route"), "cannot be reached.*no route"),
        (TimeoutError("read timed out"), "cannot be reached"),
        (OSError("proxy"), "cannot be reached"),
    ],
    ids=["gated", "not found", "revision", "entry", "server", "timeout", "connection", "read timeout", "system"],
)
def test_case_46_whatever_the_hub_says_is_one_line_after_one_request(hub, cache, error, message):
    hub.error = error
    text = refused(f"^{NAME}: .*{message}", revision="v9")
    assert len(hub.calls) == 1
    url, options = hub.calls[0]
    assert NAME in url
    assert "v9" in url
    assert 0 < options["timeout"] <= 10
    assert options.get("retry_on_errors", False) is False
    if "reached" in message:
        assert str(cache) in text


@pytest.mark.parametrize("revision", [None, "main", COMMIT], ids=["default", "branch", "commit"])
def test_a_cached_model_asks_nobody(hub, cache, tiny_folder, revision):
    put(cache, tiny_folder("bert"))
    encoder = Encoder.from_pretrained(NAME, device="cpu", revision=revision)
    assert hub.calls == []
    assert (encoder.name, encoder.hidden_size) == (NAME, tiny.HIDDEN)
    assert encoder.identity().revision == revision


def test_a_cached_model_loads_offline(cache, tiny_folder):
    put(cache, tiny_folder("bert"))
    assert Encoder.from_pretrained(NAME, device="cpu").n_layers == tiny.LAYERS


def test_a_folder_of_the_same_name_without_a_model_hides_nothing(hub, cache, tiny_folder, tmp_path, monkeypatch):
    """Results of a model are easily kept in a folder of its name."""
    put(cache, tiny_folder("bert"))
    (tmp_path / NAME).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert Encoder.from_pretrained(NAME, device="cpu").hidden_size == tiny.HIDDEN
    assert hub.calls == []


def test_another_revision_than_the_cached_one_is_asked_for(hub, cache, tiny_folder):
    put(cache, tiny_folder("bert"))
    hub.error = http_error(errors.RevisionNotFoundError)
    refused("no revision 'v2'", revision="v2")
    assert len(hub.calls) == 1


@pytest.mark.parametrize(
    "kept",
    [
        ("config.json",),
        ("config.json", "tokenizer.json", "tokenizer_config.json"),
        ("config.json", "model.safetensors"),
    ],
    ids=["configuration", "no weights", "no tokenizer"],
)
def test_a_download_that_was_interrupted_is_taken_up_again(hub, cache, tiny_folder, kept):
    """The configuration is cached, the rest is not: what is missing must be asked for."""
    put(cache, tiny_folder("bert"), names=kept)
    hub.error = ConnectionError("no route")
    refused("cannot be reached")
    assert len(hub.calls) == 1


@pytest.mark.parametrize("missing", ["tokenizer", "model"])
def test_half_a_model_offline_says_so(cache, tiny_folder, missing):
    names = [path.name for path in tiny_folder("bert").iterdir() if not path.name.startswith(missing)]
    put(cache, tiny_folder("bert"), names=names)
    assert str(cache) in refused(f"^{NAME}: .*HF_HUB_OFFLINE")
