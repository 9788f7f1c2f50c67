"""Encoders by hub name: what is cached loads without a request, what is half cached is taken up again."""

from __future__ import annotations

import pytest
import tiny
from fake_hub import COMMIT, NAME, put

from cls_analysis import Encoder
from cls_analysis.errors import LoadingError


def refused(match, name=NAME, **options):
    with pytest.raises(LoadingError, match=match) as caught:
        Encoder.from_pretrained(name, device="cpu", **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return str(caught.value)


@pytest.mark.parametrize("revision", [None, "main", COMMIT], ids=["default", "branch", "commit"])
def test_a_cached_model_asks_nobody(hub, hub_cache, tiny_folder, revision):
    put(hub_cache, tiny_folder("bert"))
    encoder = Encoder.from_pretrained(NAME, device="cpu", revision=revision)
    assert hub.calls == []
    assert (encoder.name, encoder.hidden_size) == (NAME, tiny.HIDDEN)
    assert encoder.identity().revision == revision


def test_a_cached_model_loads_offline(hub_cache, tiny_folder):
    put(hub_cache, tiny_folder("bert"))
    assert Encoder.from_pretrained(NAME, device="cpu").n_layers == tiny.LAYERS


def test_a_folder_of_the_same_name_without_a_model_hides_nothing(hub, hub_cache, tiny_folder, tmp_path, monkeypatch):
    """Results of a model are easily kept in a folder of its name."""
    put(hub_cache, tiny_folder("bert"))
    (tmp_path / NAME).mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert Encoder.from_pretrained(NAME, device="cpu").hidden_size == tiny.HIDDEN
    assert hub.calls == []


@pytest.mark.parametrize(
    "kept",
    [
        ("config.json",),
        ("config.json", "tokenizer.json", "tokenizer_config.json"),
        ("config.json", "model.safetensors"),
    ],
    ids=["configuration", "no weights", "no tokenizer"],
)
def test_a_download_that_was_interrupted_is_taken_up_again(hub, hub_cache, tiny_folder, kept):
    """The configuration is cached, the rest is not: what is missing must be asked for."""
    put(hub_cache, tiny_folder("bert"), names=kept)
    hub.error = ConnectionError("no route")
    refused("cannot be reached")
    assert len(hub.calls) == 1


@pytest.mark.parametrize("missing", ["tokenizer", "model"])
def test_half_a_model_offline_says_so(hub_cache, tiny_folder, missing):
    names = [path.name for path in tiny_folder("bert").iterdir() if not path.name.startswith(missing)]
    put(hub_cache, tiny_folder("bert"), names=names)
    assert str(hub_cache) in refused(f"^{NAME}: .*HF_HUB_OFFLINE")
