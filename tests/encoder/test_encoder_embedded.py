"""The numbers of a real network, as published threads met them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cls_analysis import Encoder

TEXTS = ["a cat", "x", "hello world " * 30]


def batch_of(encoder, text, pair=None):
    return encoder.collate(encoder.tokenize(text, pair), range(len(text)))


def last_of(encoder, batch):
    return encoder.cls_rows(batch, -1)[encoder.n_layers]


def test_sizes(embedded):
    assert (embedded.hidden_size, embedded.n_layers, embedded.name) == (384, 6, "embedded")


def test_case_1_mask(embedded):
    batch = batch_of(embedded, TEXTS)
    rows = last_of(embedded, batch)
    alone = np.concatenate([last_of(embedded, batch_of(embedded, [text])) for text in TEXTS])
    assert np.abs(rows - alone).max() <= 1e-5
    unmasked = last_of(embedded, batch | {"attention_mask": torch.ones_like(batch["attention_mask"])})
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(unmasked, axis=1)
    cosine = (rows * unmasked).sum(axis=1) / norms
    assert cosine == pytest.approx([0.77, 0.67, 1.0], abs=0.01)


def test_case_2_cls_is_the_last_state_at_index_0(embedded):
    batch = batch_of(embedded, TEXTS)
    with torch.no_grad():
        states = embedded.model(**batch, output_hidden_states=True)
    assert np.abs(last_of(embedded, batch) - states.last_hidden_state[:, 0].numpy()).max() <= 1e-6
    assert len(states.hidden_states) == 7


def test_case_3_dropout(embedded):
    batch = batch_of(embedded, TEXTS)
    embedded.model.train()
    try:
        torch.manual_seed(0)
        once, again = last_of(embedded, batch), last_of(embedded, batch)
        with torch.no_grad():
            raw = [embedded.model(**batch).last_hidden_state[:, 0] for _ in range(2)]
    finally:
        embedded.model.eval()
    assert np.array_equal(once, again)
    assert float((raw[0] - raw[1]).abs().max()) > 0.3


def test_case_7_602_tokens_never_reach_the_network(embedded):
    text = ["hello " * 600]
    assert embedded.max_length == 512
    batch = batch_of(embedded, text)
    assert batch["input_ids"].shape == (1, 512)
    ids = embedded.tokenizer(text, return_tensors="pt", verbose=False)["input_ids"]
    assert ids.shape == (1, 602)
    with pytest.raises(RuntimeError, match="602"), torch.no_grad():
        embedded.model(input_ids=ids)


def test_case_9_batch_size_moves_vectors_by_rounding_only(embedded):
    texts = [*TEXTS[:2], "the film was long", "no", "why is the sky blue at noon and red at dusk"]
    tokenized = embedded.tokenize(texts)

    def in_batches_of(size):
        groups = [list(range(i, min(i + size, 5))) for i in range(0, 5, size)]
        return np.concatenate([last_of(embedded, embedded.collate(tokenized, rows)) for rows in groups])

    one, two, five = in_batches_of(1), in_batches_of(2), in_batches_of(5)
    assert max(np.abs(one - two).max(), np.abs(one - five).max()) <= 1e-5 * np.abs(one).max()
    assert np.array_equal(in_batches_of(5), five)
    embedded.self_check(tokenized)


def test_case_9_bfloat16_is_another_size_of_difference(embedded):
    half = Encoder(embedded.model, embedded.tokenizer, dtype="bf16", device="cpu")
    batch = batch_of(embedded, TEXTS[:2])
    difference = np.abs(last_of(half, batch) - last_of(embedded, batch)).max()
    assert 3e-3 < difference < 0.3
    assert half.dtype == "bfloat16"


def test_case_12_segments_of_a_pair(embedded):
    batch = batch_of(embedded, ["one two three four five six"], ["a b c"])
    zeros = torch.zeros_like(batch["token_type_ids"])
    assert np.abs(last_of(embedded, batch) - last_of(embedded, batch | {"token_type_ids": zeros})).max() > 0.03


def test_case_29_truncation_of_a_pair(embedded):
    short = Encoder(embedded.model, embedded.tokenizer, max_length=8, device="cpu")
    tokenized = short.tokenize(["one two three four five six"], ["a b c"])
    assert short.tokenizer.decode(tokenized.ids[0]) == "[CLS] one two three [SEP] a b [SEP]"
    assert tokenized.segments == [[0, 0, 0, 0, 0, 1, 1, 1]]
    assert (tokenized.cut.tolist(), tokenized.cut_pair.tolist()) == ([True], [True])


def test_case_42_a_fully_masked_row_is_refused_where_attention_kinds_would_disagree(embedded):
    from cls_analysis.errors import DataError

    with pytest.raises(DataError, match=r"^row 0: no token attended"):
        embedded.cls_rows({"input_ids": [[101, 102]], "attention_mask": [[0, 0]]})
