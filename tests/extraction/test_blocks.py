"""Extraction: row i is text i, whatever the batches, blocks and shards; every row counted once."""

from __future__ import annotations

import os
import weakref
from itertools import chain

import numpy as np
import pytest
import tiny
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cls_analysis import compute_profile, extract_vectors, load_texts
from cls_analysis.encoder.tokens import positions_of
from cls_analysis.errors import ClsAnalysisError, DataError, OptionError
from cls_analysis.extraction import Extraction, blocks, plan_batches, profile_blocks, shard_blocks
from cls_analysis.profiles import RowSums

LENGTHS = (3, 11, 1, 7, 7, 19, 2, 5, 13, 4, 6, 1, 17, 9, 3, 8, 2, 14, 10, 5, 3, 12)


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of four rows."""
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 4)


@pytest.fixture
def bert(tiny_encoder):
    """A tiny BERT that a test may change."""
    return tiny_encoder("bert")


def one_by_one(encoder, texts, pairs=None):
    """The reference: each row encoded alone, shape (layers, rows, d)."""
    rows = []
    for i, text in enumerate(texts):
        tokenized = encoder.tokenize([text], None if pairs is None else [pairs[i]])
        layers = encoder.cls_rows(encoder.collate(tokenized, [0]))
        rows.append(np.concatenate([layers[layer] for layer in sorted(layers)]))
    return np.stack(rows, axis=1)


def difference(vectors, expected):
    actual = np.stack([vectors[layer] for layer in sorted(vectors)])
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def count_calls(encoder, monkeypatch):
    """Rows of each batch that the encoder is asked for from now on."""
    sizes, vectors = [], encoder.vectors

    def counted(batch, layers):
        sizes.append(len(batch["input_ids"]))
        return vectors(batch, layers)

    monkeypatch.setattr(encoder, "vectors", counted)
    return sizes


# -- order and count -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", tiny.NAMES)
def test_case_39_row_i_is_text_i(tiny_encoder, name):
    encoder, texts = tiny_encoder(name), tiny.words(*LENGTHS)
    vectors = extract_vectors(encoder, texts, "all", batch_tokens=60)
    assert list(vectors) == [0, 1, 2, 3]
    assert difference(vectors, one_by_one(encoder, texts)) <= 1e-5


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet"])
def test_case_39_row_i_is_pair_i(tiny_encoder, name):
    encoder, texts = tiny_encoder(name), tiny.words(*LENGTHS)
    pairs = tiny.words(*LENGTHS[::-1], seed=1)
    vectors = extract_vectors(encoder, list(zip(texts, pairs, strict=True)), "all", batch_tokens=90)
    assert difference(vectors, one_by_one(encoder, texts, pairs)) <= 1e-5


@pytest.mark.parametrize("source", ["mean", "first", "last", "pooler"])
def test_every_source_keeps_the_order(tiny_encoder, source):
    encoder, texts = tiny_encoder("bert", source=source), tiny.words(*LENGTHS)
    vectors = extract_vectors(encoder, texts, -1, batch_tokens=60)
    assert difference(vectors, one_by_one(encoder, texts)[-1:]) <= 1e-5


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 22])
def test_case_39_every_row_counts_once(bert, n):
    texts = tiny.words(*LENGTHS[:n])
    vectors = extract_vectors(bert, texts)
    assert {key: rows.shape for key, rows in vectors.items()} == {3: (n, tiny.HIDDEN)}
    profile = compute_profile(bert, texts)
    assert profile.n == n
    assert profile[3].sample_ids.tolist() == list(range(n))
    assert profile[3].moments.mean == pytest.approx(vectors[3].mean(axis=0, dtype=np.float64), abs=1e-6)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_follow_the_rows(bert):
    texts = tiny.words(*LENGTHS)
    blocks = list(Extraction(bert, load_texts(texts), "all", batch_tokens=40))
    assert [block.number for block in blocks] == list(range(6))
    assert [len(block.row_ids) for block in blocks] == [4, 4, 4, 4, 4, 2]
    assert np.concatenate([block.row_ids for block in blocks]).tolist() == list(range(22))
    joined = {layer: np.concatenate([block.vectors[layer] for block in blocks]) for layer in range(4)}
    assert difference(joined, one_by_one(bert, texts)) <= 1e-5


def test_case_9_the_same_batches_give_the_same_bits_and_others_rounding(bert):
    texts = tiny.words(*LENGTHS)
    first, again, other = (extract_vectors(bert, texts, "all", batch_tokens=size) for size in (60, 60, 25))
    assert all(np.array_equal(first[layer], again[layer]) for layer in first)
    assert difference(first, np.stack(list(other.values()))) <= 1e-5


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_all_layers_end_in_the_last_alone(tiny_encoder, name):
    encoder, texts = tiny_encoder(name), tiny.words(*LENGTHS)
    assert np.array_equal(extract_vectors(encoder, texts, "all")[3], extract_vectors(encoder, texts, [-1])[3])


def test_case_40_the_arrays_own_their_data(bert):
    for rows in extract_vectors(bert, tiny.words(3, 1), "all").values():
        assert rows.base is None
        assert rows.flags.owndata
        assert rows.dtype == np.float32


def test_case_12_a_pair_is_not_two_texts(bert):
    pair, two = extract_vectors(bert, [["a b", "c"]])[3], extract_vectors(bert, ["a b", "c"])[3]
    assert (pair.shape, two.shape) == ((1, tiny.HIDDEN), (2, tiny.HIDDEN))
    assert np.abs(pair[0] - two[0]).max() > 0.1


def test_rows_keep_the_ids_of_their_data_set(bert):
    texts = load_texts(["a", None, "b", "[CLS]"], on_missing="drop")
    assert compute_profile(bert, texts.take([0, 1]))[3].sample_ids.tolist() == [0, 2]
    with pytest.raises(DataError, match=r"^row 3"):
        compute_profile(bert, texts)


# -- shards ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("count", [2, 3, 6])
def test_case_39_shards_merged_are_one_process(tiny_encoder, count):
    texts = load_texts([*tiny.words(*LENGTHS[:20]), "", ""])
    whole = compute_profile(tiny_encoder("bert", max_length=12), texts)
    shards = []
    for i in range(count):
        part = Extraction(tiny_encoder("bert", max_length=12), texts, "all", shard=(i, count))
        shards.append(profile_blocks(part, part))
    assert sum(shard.n for shard in shards) == whole.n == 22
    merged = shards[0]
    for shard in shards[1:]:
        merged = merged.merge(shard)
    for layer in whole.layers:
        mine, theirs = whole[layer].moments, merged[layer].moments
        assert theirs.covariance == pytest.approx(mine.covariance, rel=1e-10, abs=1e-12)
        assert merged[layer].unit_sum == pytest.approx(whole[layer].unit_sum, rel=1e-10, abs=1e-12)
        assert np.array_equal(merged[layer].sample, whole[layer].sample)
        assert np.array_equal(merged[layer].sample_ids, whole[layer].sample_ids)
    assert merged.provenance == whole.provenance
    assert whole.provenance.rows_empty == 2


@pytest.mark.usefixtures("small_blocks")
def test_shards_are_contiguous_and_complete():
    for n in (1, 4, 22, 40):
        blocks = -(-n // 4)
        for count in range(1, blocks + 1):
            runs = [list(shard_blocks(n, (i, count))) for i in range(count)]
            assert list(chain(*runs)) == list(range(blocks))
            assert all(runs)


@pytest.mark.parametrize("shard", [(1, 1), (-1, 2), (0, 0), (3, 2)])
def test_a_shard_without_rows_is_refused(shard):
    with pytest.raises(OptionError, match=f"shard {shard[0]}/{shard[1]}"):
        shard_blocks(22, shard)


def test_with_fewer_blocks_than_shards_the_first_shards_have_them():
    assert list(shard_blocks(22, (0, 2))) == [0]
    with pytest.raises(OptionError, match=r"shard 1/2 has no rows: .* use at most 1 shard$"):
        shard_blocks(22, (1, 2))


# -- batches ---------------------------------------------------------------------------------------------------------


@settings(deadline=None)
@given(lengths=st.lists(st.integers(1, 300), min_size=1, max_size=80), budget=st.integers(1, 2_000))
def test_a_batch_keeps_to_its_budget_of_tokens(lengths, budget):
    lengths = np.array(lengths)
    batches = plan_batches(lengths, budget)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) == 1 or lengths[batch].max() * len(batch) <= budget
    assert (np.diff(lengths[np.concatenate(batches)]) <= 0).all()


@pytest.mark.parametrize("batch_tokens", [0, -1])
def test_a_budget_below_one_token_is_refused(bert, batch_tokens):
    with pytest.raises(OptionError, match="batch tokens"):
        extract_vectors(bert, ["a"], batch_tokens=batch_tokens)


def test_the_report_counts_rows_tokens_and_padding(bert):
    batches = Extraction(bert, load_texts(tiny.words(1, 3, 8)), batch_tokens=16)
    list(batches)
    report = batches.report
    # Two marks a row. The longest row fills a batch; the other two share one, padded to five tokens.
    assert (report.rows, report.tokens, report.padded_tokens) == (3, 3 + 5 + 10, 10 + 2 * 5)
    assert report.padding_share == pytest.approx(0.1)
    assert report.seconds > 0
    assert "3 rows" in str(report)
    assert "10.0% padding" in str(report)


@pytest.mark.usefixtures("small_blocks")
def test_progress_adds_up(bert):
    calls = []
    compute_profile(bert, tiny.words(*LENGTHS), batch_tokens=30, progress=lambda *done: calls.append(done))
    assert np.sum(calls, axis=0).tolist() == [22, sum(LENGTHS) + 2 * 22]
    assert len(calls) > 6


def test_case_29_rows_cut_are_counted_by_side(tiny_encoder):
    encoder = tiny_encoder("bert", max_length=9)
    texts = list(zip(tiny.words(9, 2, 9, 3, 8), tiny.words(2, 9, 9, 3, 1, seed=1), strict=True))
    pass_ = Extraction(encoder, load_texts(texts))
    profile = profile_blocks(pass_, pass_)
    assert (pass_.report.rows_cut, pass_.report.rows_cut_first, pass_.report.rows_cut_second) == (4, 3, 2)
    assert profile.provenance.rows_cut == 4
    assert "4 rows cut (3 in the first text, 2 in the second)" in str(pass_.report)


@pytest.mark.usefixtures("small_blocks")
def test_case_7_rows_cut_of_all_blocks_are_recorded(tiny_encoder):
    profile = compute_profile(tiny_encoder("bert", max_length=12), tiny.words(*LENGTHS))
    assert profile.provenance.rows_cut == sum(length > 10 for length in LENGTHS)
    assert profile.provenance.encoder.max_length == 12


# -- rows that cannot be ---------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("lengths", [[5] * 9, [9, 9, 9, 9, 9, 9, 9, 1, 9]], ids=["one length", "shortest"])
def test_case_13_a_vector_that_is_not_finite_names_its_row(bert, value, lengths):
    texts = [text.replace("q", "r") for text in tiny.words(*lengths)]
    texts[7] = " ".join("q" * lengths[7])
    poison = bert.tokenizer.convert_tokens_to_ids("q")
    bert.model.embeddings.word_embeddings.weight[poison] = value
    with pytest.raises(DataError, match=r"^row 7 non-finite.*layer"):
        extract_vectors(bert, texts, "all")


@pytest.mark.parametrize("row", [0, 1])
def test_case_13_the_rows_of_the_first_check_are_named_too(bert, row):
    """The check encodes two rows twice; NaN is not equal to itself, which is not randomness."""
    texts = ["a b c", "d e f"]
    texts[row] = "q"
    bert.model.embeddings.word_embeddings.weight[bert.tokenizer.convert_tokens_to_ids("q")] = float("nan")
    with pytest.raises(DataError, match=f"^row {row} non-finite"):
        extract_vectors(bert, texts)


def test_case_13_infinity_in_one_layer_names_row_and_layer(bert):
    def overflow(module, inputs, output):
        states = output[0] if isinstance(output, tuple) else output
        if states.shape[1] == 9:
            states[:, 0, 4] = float("inf")

    bert.model.encoder.layer[0].register_forward_hook(overflow)
    with pytest.raises(DataError, match=r"^row 2 non-finite: .*layer 1 .*float16"):
        extract_vectors(bert, tiny.words(3, 3, 7), "all", batch_tokens=9)


@pytest.mark.parametrize("rows", [["a", "b [CLS] c"], [("a", "b"), ("c", "[CLS]")]], ids=["text", "pair"])
def test_case_25_a_text_that_spells_cls_names_its_row(bert, rows):
    with pytest.raises(DataError, match=r"^row 1: 2 \[CLS\] tokens.*text"):
        extract_vectors(bert, rows)


def test_case_25_that_text_is_fine_where_cls_is_not_read(tiny_encoder):
    assert extract_vectors(tiny_encoder("bert", source="mean"), ["b [CLS] c"])[3].shape == (1, tiny.HIDDEN)


@pytest.mark.usefixtures("small_blocks")
def test_case_6_a_row_without_tokens_names_its_row(tiny_encoder):
    with pytest.raises(DataError, match=r"^row 5: no tokens"):
        compute_profile(tiny_encoder("gpt2"), ["a", "b", "c", "d", "e", "", "f"])


def test_case_1_a_model_that_ignores_the_mask_is_warned_of_once(bert):
    forward = bert.model.forward
    bert.model.forward = lambda attention_mask=None, **inputs: forward(**inputs)
    with pytest.warns(UserWarning, match="attention mask") as caught:
        extract_vectors(bert, tiny.words(*LENGTHS))
    assert len(caught) == 1


def test_case_3_a_model_that_draws_random_numbers_is_refused(bert):
    bert.model.embeddings.register_forward_hook(lambda *args: args[-1] + torch.rand_like(args[-1]))
    with pytest.raises(ClsAnalysisError, match="two passes"):
        compute_profile(bert, tiny.words(3, 5))


def test_case_3_the_mode_of_each_module_is_put_back(bert):
    texts = tiny.words(*LENGTHS)
    expected = extract_vectors(bert, texts)[3]
    bert.model.train()
    bert.model.pooler = None
    bert.model.encoder.layer[1].eval()
    modes = [module.training for module in bert.model.modules()]
    assert np.array_equal(extract_vectors(bert, texts)[3], expected)
    assert [module.training for module in bert.model.modules()] == modes


# -- memory ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("small_blocks")
def test_case_40_statistics_alone_keep_no_vectors(bert, monkeypatch):
    alive, most = [], 0
    encode = Extraction.block

    def watched(self, number):
        nonlocal most
        most = max(most, sum(reference() is not None for reference in alive))
        block = encode(self, number)
        alive.extend(weakref.ref(vectors) for vectors in block.vectors.values())
        return block

    monkeypatch.setattr(Extraction, "block", watched)
    compute_profile(bert, tiny.words(*[2] * 200), "all")
    assert len(alive) == 50 * 4
    assert most <= 4  # the block before, no more


def test_memory_that_runs_out_halves_the_batch(bert, monkeypatch):
    texts = tiny.words(*LENGTHS)
    expected = extract_vectors(bert, texts, "all")
    vectors, sizes = bert.vectors, []

    def small(batch, layers):
        sizes.append(len(batch["input_ids"]))
        if sizes[-1] > 2:
            raise torch.OutOfMemoryError
        return vectors(batch, layers)

    monkeypatch.setattr(bert, "vectors", small)
    done = []
    found = extract_vectors(bert, texts, "all", progress=lambda rows, tokens: done.append(rows))
    assert max(sizes) > 2
    assert sum(done) == 22
    assert difference(found, np.stack(list(expected.values()))) <= 1e-5


def test_memory_that_runs_out_is_free_before_the_next_try(bert, monkeypatch):
    """A traceback keeps the tensors of the pass that failed; the halves must not run beside them."""
    vectors, failed = bert.vectors, []

    def leaky(batch, layers):
        assert all(reference() is None for reference in failed)
        if len(batch["input_ids"]) > 2:
            activations = torch.zeros(8)
            failed.append(weakref.ref(activations))
            raise torch.OutOfMemoryError
        return vectors(batch, layers)

    monkeypatch.setattr(bert, "vectors", leaky)
    assert len(extract_vectors(bert, tiny.words(3, 3, 3, 3))[3]) == 4
    assert failed


def test_memory_that_runs_out_for_one_row_is_an_error(bert, monkeypatch):
    def never(batch, layers):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(bert, "self_check", lambda tokenized: None)
    monkeypatch.setattr(bert, "vectors", never)
    with pytest.raises(torch.OutOfMemoryError):
        extract_vectors(bert, ["a", "b"])


# -- sums on a device ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["plain", "far from zero", "one row", "zeros", "constant", "huge"])
def test_sums_on_a_device_are_those_on_the_cpu(case):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(50, 8)).astype(np.float32)
    rows = {
        "plain": rows,
        "far from zero": rows + np.float32(1e4),
        "one row": rows[:1],
        "zeros": np.where(np.arange(50)[:, None] % 7, rows, 0),
        "constant": np.where(np.arange(8) == 3, np.float32(14.3), rows),
        "huge": rows * np.float32(1e30),
    }[case].astype(np.float32)
    expected, found = RowSums.of(rows), blocks._reduce_on_device(torch.from_numpy(rows))
    assert found.n_zero == expected.n_zero
    arrays = [
        (sums.moments.to_arrays() | {"u": sums.unit_sum, "uu": sums.unit_square_sum}) for sums in (expected, found)
    ]
    assert arrays[0].keys() == arrays[1].keys()
    for name, array in arrays[0].items():
        scale = np.abs(array).max()
        assert np.abs(arrays[1][name] - array).max() <= 1e-12 * scale, name
    if case == "constant":
        assert found.moments.constant.tolist() == [False, False, False, True, False, False, False, False]


# -- provenance and processes ----------------------------------------------------------------------------------------


def test_a_profile_says_where_it_comes_from(tiny_encoder):
    encoder = tiny_encoder("xlnet", max_length=30, dtype="bfloat16")
    provenance = compute_profile(encoder, load_texts(["a", "", "b"]), [1, -1]).provenance
    assert (provenance.layers, provenance.dtype, provenance.rows_empty, provenance.rows_cut) == (
        (1, 3),
        "bfloat16",
        1,
        0,
    )
    assert provenance.encoder == encoder.identity()
    assert provenance.threads == (torch.get_num_threads(),)
    assert provenance.devices == ("cpu",)
    assert {"torch", "transformers", "tokenizers", "numpy", "cls-analysis"} == set(provenance.versions)
    assert [(part.first, part.last) for part in provenance.parts] == [(0, 2)]


@pytest.mark.parametrize("value", [None, "true", "false"])
def test_case_48_nothing_forks_and_the_users_variable_stays(bert, monkeypatch, value):
    monkeypatch.delenv("TOKENIZERS_PARALLELISM", raising=False)
    if value:
        monkeypatch.setenv("TOKENIZERS_PARALLELISM", value)
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("forked"))
    compute_profile(bert, tiny.words(*LENGTHS))
    assert os.environ.get("TOKENIZERS_PARALLELISM") == value


def test_no_rows_are_refused(bert):
    with pytest.raises(DataError):
        compute_profile(bert, [])


def test_the_mark_is_looked_for_where_it_is_attended():
    batch = {"input_ids": torch.tensor([[9, 2, 5, 2]]), "attention_mask": torch.tensor([[1, 1, 1, 0]])}
    assert positions_of(2, "[CLS]", batch).tolist() == [1]
