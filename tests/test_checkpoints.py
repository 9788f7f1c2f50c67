"""Where a checkpoint is: the cache first, one request at most, one line for whatever goes wrong. No network."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import huggingface_hub
import pytest
from fake_hub import COMMIT, NAME, ConnectTimeout, Files, http_error, put
from huggingface_hub import errors, utils

from cls_analysis import checkpoints
from cls_analysis.checkpoints import find_checkpoint, find_file, no_weights, read_config
from cls_analysis.errors import LoadingError, MissingPackageError


def find(name=NAME, revision=None):
    return find_checkpoint(name, revision, trust_remote_code=False)


def refused(match, work=find, *arguments, **options):
    """The one-line message with which something is refused."""
    with pytest.raises(LoadingError, match=match) as caught:
        work(*arguments, **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


@pytest.fixture
def downloads(monkeypatch, tiny_folder):
    """The hub's files, those of the tiny BERT."""
    files = Files(tiny_folder("bert"))
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", files)
    return files


# -- finding ---------------------------------------------------------------------------------------------------------


def test_case_46_offline_and_not_cached(hub_cache):
    start = time.monotonic()
    message = refused(f"^{NAME}: .*HF_HUB_OFFLINE")
    assert str(hub_cache) in message
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
def test_case_46_whatever_the_hub_says_is_one_line_after_one_request(hub, hub_cache, error, message):
    hub.error = error
    text = refused(f"^{NAME}: .*{message}", revision="v9")
    assert len(hub.calls) == 1
    url, options = hub.calls[0]
    assert NAME in url
    assert "v9" in url
    assert 0 < options["timeout"] <= 10
    assert options.get("retry_on_errors", False) is False
    if "reached" in message:
        assert str(hub_cache) in text


@pytest.mark.parametrize("revision", [None, "main", COMMIT], ids=["default", "branch", "commit"])
def test_what_is_cached_asks_nobody(hub, hub_cache, tiny_folder, revision):
    put(hub_cache, tiny_folder("bert"))
    checkpoint = find(revision=revision)
    assert (checkpoint.name, checkpoint.location, checkpoint.options["local_files_only"]) == (NAME, NAME, True)
    assert not checkpoint.is_folder
    assert hub.calls == []


def test_what_is_not_cached_may_be_fetched_after_one_request(hub, hub_cache):
    checkpoint = find(revision="v2")
    assert checkpoint.options == {"trust_remote_code": False, "local_files_only": False, "revision": "v2"}
    assert len(hub.calls) == 1


def test_another_revision_than_the_cached_one_is_asked_for(hub, hub_cache, tiny_folder):
    put(hub_cache, tiny_folder("bert"))
    hub.error = http_error(errors.RevisionNotFoundError)
    refused("no revision 'v2'", revision="v2")
    assert len(hub.calls) == 1


def test_a_folder_of_the_same_name_without_a_model_hides_nothing(hub_cache, tiny_folder, tmp_path, monkeypatch):
    put(hub_cache, tiny_folder("bert"))
    (tmp_path / NAME).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert Path(find().location) == hub_cache / f"models--{NAME.replace('/', '--')}" / "snapshots" / COMMIT


def test_the_embedded_model_needs_its_package(monkeypatch):
    assert (Path(find("embedded").location) / "model.safetensors").is_file()
    monkeypatch.setattr(checkpoints, "EMBEDDED_PACKAGE", "no_such_package")
    with pytest.raises(MissingPackageError, match=r"cls-analysis\[demo\]"):
        find("embedded")


# -- files -----------------------------------------------------------------------------------------------------------


def test_the_first_file_that_a_folder_has(tiny_folder):
    folder = tiny_folder("bert")
    assert find_file(find(folder), "nothing.json", "config.json", "model.safetensors") == folder / "config.json"
    assert find_file(find(folder), "nothing.json") is None


def test_no_name_leads_out_of_the_folder(tiny_folder):
    folder = tiny_folder("bert")
    other = tiny_folder("roberta") / "config.json"
    assert other.is_file()
    assert find_file(find(folder), f"../{other.parent.name}/config.json", str(other)) is None


def test_a_cached_file_asks_nobody(hub, hub_cache, tiny_folder, downloads):
    put(hub_cache, tiny_folder("bert"), names=["config.json"])
    path = find_file(find(), "nothing.json", "config.json")
    assert path.read_bytes() == (tiny_folder("bert") / "config.json").read_bytes()
    assert hub.calls == downloads.given == []


def test_a_file_that_is_not_cached_is_fetched_after_one_request(hub, hub_cache, tiny_folder, downloads):
    put(hub_cache, tiny_folder("bert"), names=["config.json"])
    checkpoint = find()
    assert find_file(checkpoint, "nothing.json", "model.safetensors") == tiny_folder("bert") / "model.safetensors"
    assert find_file(checkpoint, "tokenizer.json") == tiny_folder("bert") / "tokenizer.json"
    assert find_file(checkpoint, "nothing.json") is None
    assert len(hub.calls) == 1
    assert downloads.given == ["model.safetensors", "tokenizer.json"]


def test_a_file_that_is_not_cached_offline_says_so(hub_cache, tiny_folder):
    put(hub_cache, tiny_folder("bert"), names=["config.json"])
    message = refused(f"^{NAME}: .*HF_HUB_OFFLINE", find_file, find(), "model.safetensors")
    assert str(hub_cache) in message


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (http_error(errors.GatedRepoError, 403), "gated.*hf auth login"),
        (http_error(errors.HfHubHTTPError, 500), "the hub refused.*500"),
        (errors.LocalEntryNotFoundError("no connection,\nnot cached"), "config.json cannot be fetched.*no connection"),
        (ConnectTimeout("timed\nout"), "config.json cannot be fetched.*timed out"),
        (OSError(28, "No space left on device"), "config.json cannot be fetched.*No space left"),
    ],
    ids=["gated", "server", "offline", "timeout", "disk"],
)
def test_whatever_stops_a_download_is_one_line(hub, hub_cache, downloads, error, message):
    downloads.error = error
    refused(f"^{NAME}: .*{message}", read_config, find())


@pytest.mark.parametrize("off", [True, False])
def test_a_download_leaves_the_hubs_progress_bars_alone(hub, hub_cache, downloads, off):
    before = utils.are_progress_bars_disabled()
    try:
        (utils.disable_progress_bars if off else utils.enable_progress_bars)()
        read_config(find())
        assert utils.are_progress_bars_disabled() is off
    finally:
        (utils.disable_progress_bars if before else utils.enable_progress_bars)()


# -- what they hold --------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tiny_folder, tmp_path):
    """A copy of the tiny BERT to break."""
    return Path(shutil.copytree(tiny_folder("bert"), tmp_path / "broken"))


def test_the_configuration(folder):
    assert read_config(find(folder))["model_type"] == "bert"


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"{", "not JSON"), (b"\xff\xfe", "not JSON"), (b"[1]", "no JSON object")],
    ids=["cut", "bytes", "list"],
)
def test_a_damaged_configuration(folder, content, message):
    checkpoint = find(folder)
    (folder / "config.json").write_bytes(content)
    refused(f"^broken: config.json .*{message}", read_config, checkpoint)


def test_a_configuration_that_went_away(folder):
    checkpoint = find(folder)
    (folder / "config.json").unlink()
    refused("^broken: no config.json", read_config, checkpoint)


def test_why_there_are_no_weights(folder, hub, hub_cache):
    (folder / "model.safetensors").unlink()
    assert no_weights(find(folder)) == "the folder holds no model.safetensors"
    (folder / "training_args.bin").write_bytes(b"")
    (folder / "pytorch_model.bin").write_bytes(b"")
    assert no_weights(find(folder)).startswith("only pickled weights (pytorch_model.bin), which can run code")
    assert no_weights(find()).startswith("no safetensors weights, and pickled ones can run code")
