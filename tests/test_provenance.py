"""Where numbers come from: settings that must agree, ranges of rows, hashes and keys."""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import blake2b

import numpy as np
import pytest
import scipy.stats

from cls_analysis.errors import ProfileError
from cls_analysis.provenance import (
    DatasetIdentity,
    EncoderIdentity,
    Part,
    Provenance,
    canonical_json,
    hash_arrays,
    hash_text,
    hash_texts,
    join_parts,
    parts_of,
    row_keys,
    slug,
    versions,
)

ENCODER = EncoderIdentity("tiny", "weights", "tokenizer", "BertModel", 4, 6, "cls", 512, "sdpa", "none")
DATASET = DatasetIdentity("glue/cola", "dev", "aaaa")
PROVENANCE = Provenance(
    encoder=ENCODER,
    layers=(0, 6),
    datasets=(DATASET,),
    parts=(Part("aaaa", 0, 9),),
    rows_cut=2,
    rows_empty=1,
    threads=(4,),
    devices=("cpu",),
    versions={"numpy": ("2.0.0",)},
)
OTHER = replace(PROVENANCE, parts=(Part("aaaa", 10, 19),))

# -- JSON ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("provenance", [PROVENANCE, replace(PROVENANCE, encoder=None), replace(PROVENANCE, parts=())])
def test_json_round_trip(provenance):
    text = provenance.to_json()
    assert Provenance.from_json(text) == provenance
    assert Provenance.from_json(text).to_json() == text


def test_json_is_one_line_with_sorted_keys():
    text = PROVENANCE.to_json()
    assert "\n" not in text
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    assert set(json.loads(text)) == {
        "encoder", "layers", "datasets", "parts", "dtype", "rows_cut", "rows_empty", "block_rows", "sample_seed",
        "sample_rows", "threads", "devices", "versions", "schema_version",
    }  # fmt: skip


def test_canonical_json_refuses_nan():
    assert canonical_json({"b": 1, "a": "σ"}) == '{"a":"\\u03c3","b":1}'
    with pytest.raises(ValueError, match="JSON"):
        canonical_json(float("nan"))


def test_newer_schema_is_refused():
    with pytest.raises(ProfileError, match=r"newer cls-analysis \(schema 99, this one reads up to 1\)"):
        Provenance.from_json(replace(PROVENANCE, schema_version=99).to_json())


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '"x"', "{}", '{"schema_version": 0}'])
def test_what_is_no_provenance_is_refused(text):
    with pytest.raises(ProfileError, match="metadata"):
        Provenance.from_json(text)


@pytest.mark.parametrize("field", sorted(json.loads(PROVENANCE.to_json())))
def test_missing_field_is_refused(field):
    values = json.loads(PROVENANCE.to_json())
    del values[field]
    with pytest.raises(ProfileError, match="metadata"):
        Provenance.from_json(json.dumps(values))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("encoder", "bert"),
        ("encoder", {}),
        ("layers", "x"),
        ("layers", None),
        ("datasets", [1]),
        ("parts", [1]),
        ("dtype", None),
        ("rows_cut", "many"),
        ("rows_empty", None),
        ("block_rows", [1]),
        ("sample_seed", "x"),
        ("sample_rows", None),
        ("threads", None),
        ("versions", []),
        ("schema_version", "1"),
        ("surplus", 1),
    ],
)
def test_field_of_another_type_is_refused(field, value):
    values = json.loads(PROVENANCE.to_json()) | {field: value}
    with pytest.raises(ProfileError, match="metadata"):
        Provenance.from_json(json.dumps(values))


# -- merging ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("weights_hash", "w2"),
        ("tokenizer_hash", "t2"),
        ("architecture", "RobertaModel"),
        ("hidden_size", 8),
        ("n_layers", 12),
        ("source", "mean"),
        ("max_length", 128),
        ("attention", "eager"),
        ("final_norm", "applied"),
    ],
)
def test_other_encoder_is_refused_by_name(field, value):
    other = replace(OTHER, encoder=replace(ENCODER, **{field: value}))
    for a, b in ((PROVENANCE, other), (other, PROVENANCE)):
        with pytest.raises(ProfileError, match=f"do not belong together: {field} is"):
            a.merge(b)


@pytest.mark.parametrize(
    ("field", "value", "name"),
    [
        ("layers", (6,), "layers"),
        ("dtype", "bfloat16", "dtype"),
        ("block_rows", 8, "block size"),
        ("sample_seed", 1, "sample seed"),
        ("sample_rows", 8, "sample size"),
    ],
)
def test_other_setting_is_refused_by_name(field, value, name):
    with pytest.raises(ProfileError, match=f"do not belong together: {name} is"):
        PROVENANCE.merge(replace(OTHER, **{field: value}))


def test_with_and_without_encoder_is_refused():
    without = replace(OTHER, encoder=None)
    for a, b in ((PROVENANCE, without), (without, PROVENANCE)):
        with pytest.raises(ProfileError, match="do not belong together"):
            a.merge(b)


def test_weights_decide_not_the_name():
    other = replace(OTHER, encoder=replace(ENCODER, name="copy", revision="abc"))
    assert PROVENANCE.merge(other).parts == (Part("aaaa", 0, 19),)


def test_merge_adds_counts_and_keeps_what_was_seen():
    other = replace(OTHER, threads=(2, 4), devices=("cuda",), versions={"numpy": ("2.1.0",), "torch": ("2.6",)})
    merged = PROVENANCE.merge(other)
    assert merged == other.merge(PROVENANCE)
    assert (merged.rows_cut, merged.rows_empty) == (4, 2)
    assert merged.threads == (2, 4)
    assert merged.devices == ("cpu", "cuda")
    assert merged.versions == {"numpy": ("2.0.0", "2.1.0"), "torch": ("2.6",)}


# -- parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "joined"),
    [
        ([], []),
        ([("a", 0, 9), ("a", 10, 19)], [("a", 0, 19)]),
        ([("a", 10, 19), ("a", 0, 9)], [("a", 0, 19)]),
        ([("a", 0, 9), ("a", 11, 19)], [("a", 0, 9), ("a", 11, 19)]),
        ([("b", 0, 9), ("a", 0, 9)], [("a", 0, 9), ("b", 0, 9)]),
        ([("a", 4, 4), ("a", 3, 3), ("a", 5, 5)], [("a", 3, 5)]),
    ],
)
def test_join_parts(parts, joined):
    assert join_parts(Part(*part) for part in parts) == tuple(Part(*part) for part in joined)


@pytest.mark.parametrize(
    ("parts", "twice"),
    [
        ([("a", 0, 9), ("a", 9, 12)], "rows 9 to 9"),
        ([("a", 0, 9), ("a", 3, 5)], "rows 3 to 5"),
        ([("a", 2, 9), ("a", 0, 4)], "rows 2 to 4"),
        ([("a", 0, 9), ("a", 0, 9)], "rows 0 to 9"),
        ([("a", 0, 3), ("a", 4, 9), ("a", 8, 20)], "rows 8 to 9"),
    ],
)
def test_rows_held_twice_are_named(parts, twice):
    with pytest.raises(ProfileError, match=twice):
        join_parts(Part(*part) for part in parts)


@pytest.mark.parametrize(
    ("ids", "ranges"),
    [([], []), ([7], [(7, 7)]), ([0, 1, 2], [(0, 2)]), ([0, 2, 3, 9], [(0, 0), (2, 3), (9, 9)])],
)
def test_parts_of(ids, ranges):
    assert parts_of("a", np.array(ids, dtype=np.int64)) == tuple(Part("a", *r) for r in ranges)


# -- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("identity", "label"),
    [
        (DatasetIdentity("a", None, "h"), "a"),
        (DatasetIdentity("glue/cola", "dev", "h"), "glue/cola@dev"),
        (DatasetIdentity("a", None, "h", "first 10"), "a (first 10)"),
    ],
)
def test_label(identity, label):
    assert identity.label == label


def test_names_of_a_merged_profile():
    two = replace(PROVENANCE, datasets=(DATASET, DatasetIdentity("b", None, "bbbb"), DATASET))
    assert two.dataset_name == "glue/cola@dev+b"
    assert (two.encoder_name, two.source) == ("tiny", "cls")
    assert replace(two, encoder=None).encoder_name == replace(two, encoder=None).source == "vectors"


@pytest.mark.parametrize(
    ("name", "expected"),
    [("glue/cola", "glue-cola"), ("A b_c", "a-b-c"), ("../x", "x"), ("ä/ö", "unnamed-cdb13b"), ("v1.2-b", "v1.2-b")],
)
def test_slug(name, expected):
    assert slug(name) == expected


def test_versions_name_what_moves_numbers():
    assert versions()["numpy"] == (np.__version__,)
    assert {"cls-analysis", "torch", "transformers", "tokenizers"} <= set(versions())


# -- hashes ----------------------------------------------------------------------------------------------------------


def test_hash_text_is_plain_blake2b():
    assert hash_text("σ") == blake2b("σ".encode(), digest_size=16).hexdigest()
    assert len(hash_text("\ud800")) == 32  # a lone surrogate does not stop it


def test_hash_texts_tells_rows_apart():
    rows = [
        (["ab", "c"], None),
        (["a", "bc"], None),
        (["c", "ab"], None),
        (["ab", "c", ""], None),
        (["ab", "c"], ["", ""]),
        (["", ""], ["ab", "c"]),
        (["ab", "c"], ["c", "ab"]),
    ]
    assert len({hash_texts(text, pair) for text, pair in rows}) == len(rows)
    assert hash_texts(("ab", "c"), None) == hash_texts(["ab", "c"], None)


def test_hash_arrays():
    a, b = np.arange(6.0).reshape(2, 3), np.empty((0, 3))
    reference = hash_arrays([("a", a), ("b", b)])
    assert hash_arrays([("b", b), ("a", a)]) == reference
    assert hash_arrays([("a", np.asfortranarray(a)), ("b", b)]) == reference
    others = [("c", a), ("a", a.astype(np.float32)), ("a", a.reshape(3, 2)), ("a", a + 1)]
    assert len({reference, *(hash_arrays([other, ("b", b)]) for other in others)}) == 5


# -- row keys --------------------------------------------------------------------------------------------------------


def splitmix64(seed: int, dataset: str, row: int) -> int:
    """SplitMix64 in Python's unbounded integers."""
    mask = 2**64 - 1
    start = int.from_bytes(blake2b(f"{seed}|{dataset}".encode(), digest_size=8).digest(), "little")
    z = (row * 0x9E3779B97F4A7C15 + start) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


@pytest.mark.parametrize("seed", [0, 7])
def test_row_keys_are_splitmix64(seed):
    rows = [0, 1, 2, 4_095, 4_096, 10**9, 2**40 + 3]
    keys = row_keys(seed, "aaaa", np.array(rows, dtype=np.int64))
    assert keys.tolist() == [splitmix64(seed, "aaaa", row) for row in rows]


def test_row_keys_do_not_depend_on_what_they_are_asked_with():
    rows = np.arange(100)
    keys = row_keys(0, "a", rows)
    np.testing.assert_array_equal(row_keys(0, "a", rows[::-7]), keys[::-7])
    assert not np.isin(row_keys(1, "a", rows), keys).any()
    assert not np.isin(row_keys(0, "b", rows), keys).any()


@pytest.mark.parametrize("seed", range(3))
def test_smallest_keys_are_a_uniform_sample(seed):
    chosen = np.argsort(row_keys(seed, "aaaa", np.arange(50_000)))[:1_024]
    assert scipy.stats.kstest(chosen / 50_000, "uniform").pvalue > 1e-3
    assert scipy.stats.chisquare(np.bincount(chosen % 8, minlength=8)).pvalue > 1e-3


def test_names_that_lose_letters_or_are_long_stay_apart():
    names = ["日本", "中文", "é" * 120, "a" * 245, "a" * 246]
    slugs = [slug(name) for name in names]
    assert len(set(slugs)) == len(names)
    assert all(len(short) <= 107 and set(short) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-") for short in slugs)
