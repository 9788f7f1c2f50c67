"""Vectors on disk: resumed block by block, never mixed with other work, the same bytes every time."""

from __future__ import annotations

import csv
import shutil

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import tiny

from cls_analysis import extract_vectors, load_texts
from cls_analysis.errors import ClsAnalysisError, DataError, ProfileError
from cls_analysis.extraction import Extraction, blocks, profile_blocks
from cls_analysis.provenance import Provenance
from cls_analysis.store import MANIFEST, StoredBlock, VectorStore, load_vectors, store_key
from cls_analysis.workflows.extract import _stored, extract
from cls_analysis.workflows.options import EncoderOptions, TextOptions

TEXTS = tiny.words(*[4, 9, 1, 6, 3] * 3)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Blocks of four rows: fifteen rows make four."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 4)


@pytest.fixture
def encoded(monkeypatch):
    """Numbers of the blocks that were encoded, in order."""
    numbers, block = [], Extraction.block

    def counted(self, number):
        numbers.append(number)
        return block(self, number)

    monkeypatch.setattr(Extraction, "block", counted)
    return numbers


def store_vectors(folder, encoder, texts=TEXTS, layers="all", **options):
    """What a run does with a folder; gives the Profile."""
    work = Extraction(encoder, texts if hasattr(texts, "row_id") else load_texts(texts), layers)
    return profile_blocks(work, _stored(work, VectorStore(folder, work.provenance(), **options)))


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


# -- what is stored --------------------------------------------------------------------------------------------------


def test_what_is_stored_is_what_was_extracted(tiny_encoder, tmp_path):
    encoder = tiny_encoder("bert")
    store_vectors(tmp_path / "v", encoder)
    expected = extract_vectors(encoder, TEXTS, "all")
    for layer in range(4):
        vectors, ids = load_vectors(tmp_path / "v", layer)
        assert np.array_equal(vectors, expected[layer])
        assert vectors.dtype == np.float32
        assert ids.tolist() == list(range(15))
    assert sorted(contents(tmp_path / "v")) == [*(f"block-00000{i}.safetensors" for i in range(4)), MANIFEST]


def test_reruns_give_the_same_bytes(tiny_encoder, tmp_path):
    profiles = []
    for name in ("one", "two"):
        store_vectors(tmp_path / name, tiny_encoder("bert")).save(tmp_path / f"{name}.safetensors")
        profiles.append((tmp_path / f"{name}.safetensors").read_bytes())
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert profiles[0] == profiles[1]


@pytest.mark.parametrize("folder", ["nothing", "layer"])
def test_what_cannot_be_read_is_said(tiny_encoder, tmp_path, folder):
    store_vectors(tmp_path / "layer", tiny_encoder("bert"), layers=[1, -1])
    message = {"nothing": "no stored vectors", "layer": r"no layer 2; it holds \[1, 3\]"}[folder]
    with pytest.raises(DataError, match=message):
        load_vectors(tmp_path / folder, 2)


# -- resuming --------------------------------------------------------------------------------------------------------


def test_only_missing_blocks_are_encoded(tiny_encoder, tmp_path, encoded):
    first = store_vectors(tmp_path, tiny_encoder("bert", max_length=8))
    before = contents(tmp_path)
    assert encoded == [0, 1, 2, 3]
    (tmp_path / "block-000001.safetensors").unlink()
    encoded.clear()
    second = store_vectors(tmp_path, tiny_encoder("bert", max_length=8))
    assert encoded == [1]
    assert contents(tmp_path) == before
    assert second.provenance == first.provenance
    assert second.provenance.rows_cut == 3
    for layer in first.layers:
        assert np.array_equal(second[layer].moments.covariance, first[layer].moments.covariance)


@pytest.mark.parametrize("kept", [0, 100, -4])
def test_a_damaged_block_is_encoded_again(tiny_encoder, tmp_path, encoded, kept):
    store_vectors(tmp_path, tiny_encoder("bert"))
    before = contents(tmp_path)
    path = tmp_path / "block-000002.safetensors"
    path.write_bytes(path.read_bytes()[:kept])
    with pytest.raises(DataError, match=r"block-000002.safetensors: not a readable block"):
        load_vectors(tmp_path, 3)
    encoded.clear()
    store_vectors(tmp_path, tiny_encoder("bert"))
    assert encoded == [2]
    assert contents(tmp_path) == before


def test_a_run_that_was_killed_leaves_whole_blocks_only(tiny_encoder, tmp_path, encoded, monkeypatch):
    save = safetensors.numpy.save_file

    def killed(tensors, path, **options):
        if len(encoded) == 3:
            path.write_bytes(b"half")
            raise KeyboardInterrupt
        save(tensors, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(safetensors.numpy, "save_file", killed)
        with pytest.raises(KeyboardInterrupt):
            store_vectors(tmp_path, tiny_encoder("bert"))
    assert sorted(contents(tmp_path)) == ["block-000000.safetensors", "block-000001.safetensors", MANIFEST]
    store_vectors(tmp_path, tiny_encoder("bert"))
    assert len(load_vectors(tmp_path, 3)[0]) == 15


def test_shards_fill_one_folder(tiny_encoder, tmp_path):
    for i in range(2):
        work = Extraction(tiny_encoder("bert"), load_texts(TEXTS), -1, shard=(i, 2))
        profile_blocks(work, _stored(work, VectorStore(tmp_path, work.provenance())))
    vectors, ids = load_vectors(tmp_path, 3)
    assert ids.tolist() == list(range(15))
    assert np.abs(vectors - extract_vectors(tiny_encoder("bert"), TEXTS)[3]).max() <= 1e-5


# -- other work ------------------------------------------------------------------------------------------------------


def change_a_weight(encoder):
    encoder.model.encoder.layer[1].output.dense.bias[0] += 1.0
    return encoder


def test_case_41_other_work_is_refused_and_replaced_only_if_asked(tiny_encoder, tmp_path):
    store_vectors(tmp_path, tiny_encoder("bert"))
    before, old = contents(tmp_path), load_vectors(tmp_path, 3)[0]
    others = [
        {"encoder": change_a_weight(tiny_encoder("bert"))},
        {"encoder": tiny_encoder("bert", max_length=20)},
        {"encoder": tiny_encoder("bert", source="mean")},
        {"encoder": tiny_encoder("bert"), "layers": -1},
        {"encoder": tiny_encoder("bert"), "texts": TEXTS[:-1]},
        {"encoder": tiny_encoder("bert"), "texts": load_texts(TEXTS).first(4)},
    ]
    for other in others:
        with pytest.raises(DataError, match=r"another encoder, setting or text.*--overwrite"):
            store_vectors(tmp_path, **other)
        assert contents(tmp_path) == before
    store_vectors(tmp_path, change_a_weight(tiny_encoder("bert")), overwrite=True)
    assert np.abs(load_vectors(tmp_path, 3)[0] - old).max() > 0.01
    store_vectors(tmp_path, tiny_encoder("bert"), TEXTS[:5], overwrite=True)
    assert len(load_vectors(tmp_path, 3)[0]) == 5


def test_case_41_a_manifest_that_cannot_be_read_is_refused(tiny_encoder, tmp_path):
    store_vectors(tmp_path, tiny_encoder("bert"))
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(DataError, match="--overwrite"):
        store_vectors(tmp_path, tiny_encoder("bert"))


def test_case_41_blocks_of_other_work_are_never_joined(tiny_encoder, tmp_path):
    """Without the manifest the folder looks empty; what other work left in it must not be read as this work's."""
    store_vectors(tmp_path, change_a_weight(tiny_encoder("bert")))
    (tmp_path / MANIFEST).unlink()
    try:
        store_vectors(tmp_path, tiny_encoder("bert"), TEXTS[:4])
        vectors, ids = load_vectors(tmp_path, 3)
    except ClsAnalysisError:
        return
    assert ids.tolist() == [0, 1, 2, 3]
    assert len(vectors) == 4


@pytest.mark.parametrize("kind", ["taken", "missing"])
def test_case_41_a_stored_block_of_other_rows_is_not_taken_for_these(tiny_encoder, tmp_path, kind):
    """Two selections of one data set may share key and block number."""
    if kind == "taken":
        one, other = load_texts(TEXTS).take([0, 1, 2]), load_texts(TEXTS).take([5, 6, 7])
    else:
        one, other = (load_texts(["a", None, "b"], on_missing=what) for what in ("empty", "drop"))
    store_vectors(tmp_path, tiny_encoder("bert"), one)
    try:
        profile = store_vectors(tmp_path, tiny_encoder("bert"), other)
    except ClsAnalysisError:
        return
    assert profile[3].sample_ids.tolist() == other.row_id.tolist()


def test_the_key_depends_on_the_selection_and_not_on_the_name(tiny_encoder):
    def key(texts):
        return store_key(Extraction(tiny_encoder("bert"), texts).provenance())

    texts = load_texts(TEXTS)
    assert key(texts) == key(load_texts(list(TEXTS)))
    assert len({key(texts), key(texts.first(4)), key(texts.sample(4)), key(texts.sample(4, seed=1))}) == 4


# -- the command's own run -------------------------------------------------------------------------------------------


@pytest.fixture
def run(tiny_folder, tmp_path):
    """Runs ``extract`` on one file into one folder; the model may be changed between runs."""
    folder = shutil.copytree(tiny_folder("bert"), tmp_path / "bert")
    data = tmp_path / "data.csv"
    with data.open("w", newline="") as file:
        csv.writer(file).writerows([["text"], *([text] for text in TEXTS)])

    def once(**options):
        max_length = options.pop("max_length", None)
        (done,) = extract(
            str(folder),
            [str(data)],
            tmp_path / "run",
            text_options=TextOptions(),
            encoder_options=EncoderOptions(device="cpu", max_length=max_length),
            **options,
        )
        return done

    return once


def test_a_run_with_vectors_writes_profile_vectors_and_record(run):
    done = run(vectors=True)
    assert done.path.name == "data.safetensors"
    assert done.path.parent.name == "bert"
    assert done.report.rows == done.profile.n == 15
    assert np.array_equal(load_vectors(done.vectors, 3)[1], np.arange(15))
    assert done.path.with_suffix(".run.json").is_file()


@pytest.mark.parametrize("vectors", [False, True])
def test_case_41_the_same_run_again_encodes_nothing(run, encoded, vectors):
    first = run(vectors=vectors)
    before = first.path.read_bytes()
    encoded.clear()
    again = run(vectors=vectors)
    assert encoded == []
    assert again.report is None
    assert again.path.read_bytes() == before


@pytest.mark.parametrize("missing", ["one block", "all blocks"])
def test_a_profile_without_all_of_its_vectors_is_not_done(run, encoded, missing):
    """A run for the vectors may have been killed after an earlier one left the Profile."""
    done = run(vectors=True)
    before = contents(done.vectors)
    for path in sorted(done.vectors.glob("block-*"))[1 if missing == "one block" else 0 :][
        : 1 if "one" in missing else 4
    ]:
        path.unlink()
    encoded.clear()
    run(vectors=True)
    assert encoded == ([1] if missing == "one block" else [0, 1, 2, 3])
    assert contents(done.vectors) == before


def test_vectors_can_be_asked_for_after_the_profile(run):
    profile = run().path.read_bytes()
    done = run(vectors=True)
    assert len(load_vectors(done.vectors, 3)[0]) == 15
    assert done.path.read_bytes() == profile


def test_case_41_other_settings_are_refused_and_replaced_only_if_asked(run):
    before = run(max_length=20).path.read_bytes()
    with pytest.raises(ProfileError, match=r"max_length.*--overwrite"):
        run(max_length=8)
    with pytest.raises(ProfileError, match=r"layers.*--overwrite"):
        run(max_length=20, layers=[-1])
    done = run(max_length=8, overwrite=True)
    assert done.path.read_bytes() != before
    assert done.profile.provenance.rows_cut == 3


def test_case_41_one_changed_weight_is_other_work(run, tmp_path):
    old = load_vectors(run(vectors=True).vectors, 3)[0]
    path = tmp_path / "bert" / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    weights["encoder.layer.1.output.dense.bias"][0] += 1.0
    safetensors.torch.save_file(weights, path, metadata={"format": "pt"})
    with pytest.raises(ProfileError, match=r"weights_hash.*--overwrite"):
        run(vectors=True)
    done = run(vectors=True, overwrite=True)
    assert np.abs(load_vectors(done.vectors, 3)[0] - old).max() > 0.01


def test_progress_of_a_resumed_run_adds_up(run):
    """Blocks that lie there already are done too: a bar must reach its total."""
    from contextlib import contextmanager

    shown = {}

    @contextmanager
    def bar(total, title):
        shown["total"], shown["done"] = total, 0

        def advance(rows, tokens):
            shown["done"] += rows

        yield advance

    done = run(vectors=True)
    done.path.unlink()
    (done.vectors / "block-000001.safetensors").unlink()
    run(vectors=True, progress=bar)
    assert shown == {"total": 15, "done": 15}


def test_a_missing_block_between_others_is_named(tmp_path):
    store = VectorStore(tmp_path, Provenance(encoder=None, layers=(3,), datasets=(), parts=()))
    for number in (0, 2):
        rows = np.full((2, 4), number, dtype=np.float32)
        store.write(number, StoredBlock(np.arange(2, dtype=np.int64) + 2 * number, {3: rows}, 0))
    with pytest.raises(DataError, match="block 1 is missing"):
        load_vectors(tmp_path, 3)
