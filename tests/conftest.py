"""Fixtures that several rooms' tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# No test may reach the network, whatever it loads.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("HF_DATASETS_OFFLINE", "1")

#: Public data sets, if they lie beside the checkout; set CLS_ANALYSIS_DATA to name another folder.
DATA = Path(os.environ.get("CLS_ANALYSIS_DATA", Path(__file__).parents[2] / "shared" / "data"))


@pytest.fixture(scope="session")
def glue_dir() -> Path:
    """Folder of GLUE's official TSV files."""
    if not (DATA / "glue" / "CoLA" / "dev.tsv").is_file():
        pytest.skip(f"GLUE's official files are not in {DATA / 'glue'} (set CLS_ANALYSIS_DATA)")
    return DATA / "glue"


@pytest.fixture(scope="session")
def trec_dir() -> Path:
    """Folder of TREC's official files."""
    if not (DATA / "trec" / "TREC_10.label").is_file():
        pytest.skip(f"TREC's files are not in {DATA / 'trec'} (set CLS_ANALYSIS_DATA)")
    return DATA / "trec"


@pytest.fixture(scope="session")
def embedded():
    """The embedded encoder: a real 6-layer BERT."""
    from cls_analysis import Encoder

    return Encoder.from_pretrained("embedded")


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """Gives the folder of a tiny network by the name of its architecture; each is made once."""
    import tiny
    import torch

    torch.set_num_threads(1)  # products this small gain nothing by a second one, and wait for it where others work
    root = tmp_path_factory.mktemp("tiny")
    made: dict[str, Path] = {}

    def folder(name: str) -> Path:
        if name not in made:
            made[name] = tiny.make_folder(name, root / name)
        return made[name]

    return folder


@pytest.fixture
def tiny_encoder(tiny_folder):
    """Loads a tiny network as an Encoder of its own, which a test may change."""
    import tiny

    from cls_analysis import Encoder

    def load(name: str, **options) -> Encoder:
        return Encoder.from_pretrained(
            tiny_folder(name), **{"source": tiny.ARCHITECTURES[name].source, "device": "cpu"} | options
        )

    return load


@pytest.fixture
def hub_cache(tmp_path, monkeypatch):
    """An empty cache of the hub."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.fixture
def hub(hub_cache, monkeypatch):
    """The hub, allowed to be asked; what it answers is the test's."""
    import huggingface_hub
    from fake_hub import Hub
    from huggingface_hub import constants

    hub = Hub()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", hub)
    return hub
