"""Texts to token ids: limits, truncation, padding, and batches that cannot be right."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch

from cls_analysis import Encoder
from cls_analysis.errors import DataError


def built(name, *, tokenizer_options=None, max_length=None, source=None, **config):
    model, tokenizer = tiny.make_model(name, **config), tiny.make_tokenizer(name, **tokenizer_options or {})
    source = source or tiny.ARCHITECTURES[name].source
    return Encoder(model, tokenizer, device="cpu", max_length=max_length, source=source)


# -- length ----------------------------------------------------------------------------------------------------------


def test_case_7_robertas_positions_start_behind_the_padding_id():
    encoder = built("roberta", max_position_embeddings=20)
    assert encoder.max_length == 18
    text = tiny.words(30)
    tokenized = encoder.tokenize(text)
    assert tokenized.lengths.tolist() == [18]
    assert np.isfinite(encoder.cls_rows(encoder.collate(tokenized, [0]))[3]).all()
    ids = encoder.tokenizer(text, return_tensors="pt")["input_ids"][:, :19]
    with pytest.raises((IndexError, RuntimeError)), torch.no_grad():
        encoder.model(input_ids=ids)


def test_case_7_a_tokenizer_without_a_limit_takes_the_models():
    encoder, text = built("bert"), tiny.words(600)
    assert encoder.tokenizer.model_max_length > 1e29
    assert len(encoder.tokenizer(text, truncation=True)["input_ids"][0]) == 602
    assert encoder.tokenize(text).lengths.tolist() == [64]


@pytest.mark.parametrize(
    ("tokenizer", "wanted", "used"), [(32, None, 32), (32, 16, 16), (512, None, 64), (512, 64, 64)]
)
def test_case_7_the_least_limit_counts(tokenizer, wanted, used):
    encoder = built("bert", tokenizer_options={"model_max_length": tokenizer}, max_length=wanted)
    assert encoder.max_length == used


def test_case_7_what_was_cut_is_counted():
    encoder = built("bert", max_length=8)
    tokenized = encoder.tokenize(tiny.words(6, 7, 3, 20))
    assert tokenized.cut.tolist() == [False, True, False, True]
    assert tokenized.n_cut == 2


# -- pairs -----------------------------------------------------------------------------------------------------------


def test_case_29_the_longer_text_is_cut_first():
    encoder = built("bert", max_length=8)
    tokenized = encoder.tokenize(["o t h f i s"], ["a b c"])
    assert encoder.tokenizer.decode(tokenized.ids[0]) == "[CLS] o t h [SEP] a b [SEP]"
    assert tokenized.segments == [[0, 0, 0, 0, 0, 1, 1, 1]]


def test_case_29_each_side_is_counted():
    encoder = built("bert", max_length=9)
    tokenized = encoder.tokenize(tiny.words(9, 2, 9, 3), tiny.words(2, 9, 9, 3, seed=1))
    assert tokenized.cut.tolist() == [True, False, True, False]
    assert tokenized.cut_pair.tolist() == [False, True, True, False]
    assert tokenized.n_cut == 3


@pytest.mark.parametrize("name", ["bert", "roberta"])
@pytest.mark.parametrize("max_length", [3, 4])
def test_case_29_a_side_lost_whole_is_an_error_that_names_the_row(name, max_length):
    encoder = built(name, max_length=max_length)
    with pytest.raises(DataError, match="row 17"):
        encoder.tokenize(["a b c"], ["d e f"], row_ids=[17])


@pytest.mark.parametrize("name", tiny.WITH_CLS)
@pytest.mark.parametrize("max_length", [6, 7])
def test_no_row_is_longer_than_the_limit(name, max_length):
    encoder = built(name, max_length=max_length)
    lengths = encoder.tokenize(tiny.words(1, 6, 9), tiny.words(1, 2, 9, seed=1)).lengths
    assert lengths.max() <= max_length


@pytest.mark.parametrize("name", ["roberta", "distilbert", "modernbert"])
def test_case_12_segments_never_reach_a_model_without_them(name):
    encoder = built(name)
    batch = encoder.collate(encoder.tokenize(["a b"], ["c d"]), [0])
    assert "token_type_ids" not in batch
    ones = torch.ones_like(batch["input_ids"])
    if name == "roberta":  # one segment: the raw network has no row for a second
        with pytest.raises(IndexError), torch.no_grad():
            encoder.model(**batch, token_type_ids=ones)
    assert np.array_equal(encoder.cls_rows(batch)[3], encoder.cls_rows(batch | {"token_type_ids": ones})[3])


@pytest.mark.parametrize("name", ["albert", "xlnet", "big_bird"])
def test_case_12_segments_are_asked_for_where_the_tokenizer_would_leave_them_out(name):
    encoder = built(name)
    assert "token_type_ids" not in encoder.tokenizer("a", "b")
    segments = encoder.tokenize(["a b"], ["c"]).segments
    assert segments == [[0, 0, 0, 1, 1, 2] if name == "xlnet" else [0, 0, 0, 0, 1, 1]]


@pytest.mark.parametrize(("name", "pair"), [("albert", "c d"), ("big_bird", "c d"), ("xlnet", "c d"), ("xlnet", None)])
def test_case_12_a_batch_without_segment_ids_is_no_silent_error(name, pair):
    """As these tokenizers make it by default: the right vector or an error, nothing else."""
    encoder, pairs = built(name), None if pair is None else [pair]
    batch = encoder.tokenizer(["a b"], pairs, return_tensors="pt")
    assert "token_type_ids" not in batch
    expected = encoder.cls_rows(encoder.collate(encoder.tokenize(["a b"], pairs), [0]))[3]
    try:
        found = encoder.cls_rows(batch)[3]
    except DataError:
        return
    assert np.abs(found - expected).max() <= 1e-5


# -- rows without tokens ---------------------------------------------------------------------------------------------


def test_case_6_an_empty_text_is_legal_where_it_has_marks_and_an_error_where_it_has_none():
    bert = built("bert")
    rows = bert.cls_rows(bert.collate(bert.tokenize([""]), [0]))[3]
    assert rows.shape == (1, tiny.HIDDEN)
    assert np.isfinite(rows).all()
    with pytest.raises(DataError, match=r"^row 4: no tokens"):
        built("gpt2").tokenize(["a", "", "b"], row_ids=[3, 4, 5])


# -- batches ---------------------------------------------------------------------------------------------------------


def test_case_1_padding_without_a_mask_is_refused():
    encoder = built("bert")
    batch = encoder.collate(encoder.tokenize(tiny.words(2, 9)), [0, 1])
    with pytest.raises(DataError, match=r"^row 0: .*padding.*attention_mask"):
        encoder.cls_rows({"input_ids": batch["input_ids"]})
    whole = {"input_ids": batch["input_ids"][1:]}
    assert np.abs(encoder.cls_rows(whole)[3] - encoder.cls_rows(batch)[3][1:]).max() <= 1e-5


@pytest.mark.parametrize("method", ["cls_rows", "token_rows"])
def test_case_42_a_row_that_attends_to_nothing_is_refused(method):
    encoder = built("bert")
    batch = encoder.collate(encoder.tokenize(tiny.words(2, 9)), [0, 1])
    batch["attention_mask"][0] = 0
    with pytest.raises(DataError, match=r"^row 0: no token attended"):
        getattr(encoder, method)(batch)


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        ([[5, 6, 3]], [[1, 1, 1]], r"^row 0: 0 \[CLS\]"),
        ([[2, 5, 3], [2, 2, 3]], [[1, 1, 1]] * 2, r"^row 1: 2 \[CLS\]"),
        ([[2, 5, 3]], [[0, 1, 1]], r"^row 0: 0 \[CLS\]"),
        ([2, 5, 3], [1, 1, 1], "shape"),
    ],
    ids=["none", "two", "masked", "flat"],
)
def test_case_25_one_attended_cls_in_each_row(ids, mask, message):
    with pytest.raises(DataError, match=message):
        built("bert").cls_rows({"input_ids": ids, "attention_mask": mask})


def test_a_batch_of_the_tokenizer_is_taken_as_it_is():
    encoder = built("bert")
    batch = encoder.tokenizer(["a b", "c d e f"], padding=True, return_tensors="np")
    assert encoder.cls_rows(batch)[3].shape == (2, tiny.HIDDEN)
    with pytest.raises(DataError, match="input_ids"):
        encoder.cls_rows({"attention_mask": [[1]]})


def test_collate_pads_on_the_right_with_the_padding_id():
    encoder = built("roberta")
    batch = encoder.collate(encoder.tokenize(["a", "a b c"]), [1, 0])
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]]
    assert batch["input_ids"][1, 3:].tolist() == [1, 1]


def test_case_26_a_tokenizer_without_a_padding_token_still_batches():
    encoder = built("gpt2")
    assert encoder.tokenizer.pad_token is None
    rows = encoder.cls_rows(encoder.collate(encoder.tokenize(tiny.words(2, 9)), [0, 1]))
    alone = encoder.cls_rows(encoder.collate(encoder.tokenize(tiny.words(2, 9)), [0]))
    assert np.abs(rows[3][:1] - alone[3]).max() <= 1e-5


@pytest.mark.parametrize("name", ["bert", "roberta"])
def test_case_7_a_batch_longer_than_the_positions_names_its_row(name):
    encoder = built(name)
    longer = encoder.tokenizer(tiny.words(2, 70), padding=True, return_tensors="pt")
    with pytest.raises(DataError, match="row 1"):
        encoder.cls_rows(longer)


def test_a_token_that_the_network_has_no_vector_for_names_its_row():
    model, tokenizer = tiny.make_model("bert"), tiny.make_tokenizer("bert")
    tokenizer.add_tokens(["zebra"])
    encoder = Encoder(model, tokenizer, device="cpu")
    with pytest.raises(DataError, match="row 1"):
        encoder.cls_rows(encoder.collate(encoder.tokenize(["a", "a zebra"]), [0, 1]))
