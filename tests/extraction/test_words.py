"""Vectors of words: against a sentence alone through transformers, piece by piece; lost words; batches."""

from __future__ import annotations

import numpy as np
import pytest
import tiny
import torch

import cls_analysis as ca
from cls_analysis.errors import DataError, OptionError

SENTENCES = [["a", "b", "c"], ["d"], ["e", "f", "g", "h", "i", "j", "k"]]


@pytest.fixture(scope="module")
def minilm():
    return ca.Encoder.from_pretrained("embedded", device="cpu")


@pytest.mark.parametrize("pieces", ["mean", "first", "all"])
def test_words_of_a_real_encoder(minilm, pieces):
    sentences = [["Unbelievably", "anti-establishment", "!"], ["the", "cat", "supercalifragilistic", "sat"]]
    found = ca.extract_tokens(minilm, sentences, pieces=pieces)
    assert list(found.vectors) == list(range(7))
    if pieces != "all":
        assert found.sentence.tolist() == [0, 0, 0, 1, 1, 1, 1]
        assert found.word.tolist() == [0, 1, 2, 0, 1, 2, 3]
    # The sentence alone, its words given apart.
    for number, words in enumerate(sentences):
        encoded = minilm.tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            states = minilm.model(**encoded, output_hidden_states=True).hidden_states
        ids = encoded.word_ids()
        for word in range(len(words)):
            tokens = [place for place, each in enumerate(ids) if each == word]
            rows = np.flatnonzero((found.sentence == number) & (found.word == word))
            for layer, state in enumerate(states):
                expected = state[0, tokens]
                if pieces != "all":
                    expected = expected.mean(dim=0, keepdim=True) if pieces == "mean" else expected[:1]
                np.testing.assert_allclose(found.vectors[layer][rows], expected.numpy(), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet", "longformer", "albert", "modernbert"])
def test_other_architectures(name, tiny_folder):
    encoder = ca.Encoder.from_pretrained(tiny_folder(name), device="cpu")
    found = ca.extract_tokens(encoder, SENTENCES, layers=[1, -1])
    alone = ca.extract_tokens(encoder, SENTENCES[:1], layers=[1, -1])
    assert len(found.word) == 11
    for layer, rows in alone.vectors.items():
        np.testing.assert_allclose(found.vectors[layer][:3], rows, atol=1e-4 * np.abs(rows).max())


def test_batches_do_not_matter(minilm):
    sentences = [["word"] * k for k in (1, 9, 3, 30, 2)]
    whole, parts = (ca.extract_tokens(minilm, sentences, [-1], batch_tokens=budget) for budget in (10_000, 1))
    assert np.array_equal(whole.word, parts.word)
    np.testing.assert_allclose(whole.vectors[6], parts.vectors[6], atol=2e-5)


def test_only_some_words(minilm):
    everything = ca.extract_tokens(minilm, SENTENCES, [0, 6])
    rows = np.array([1, 3, 9])
    found = ca.extract_tokens(minilm, SENTENCES, [0, 6], only=(everything.sentence[rows], everything.word[rows]))
    assert np.array_equal(found.word, everything.word[rows])
    assert np.array_equal(found.vectors[6], everything.vectors[6][rows])


def test_words_of_pairs_are_read_as_a_classifier_reads_them(minilm):
    found = ca.extract_tokens(minilm, [["a", "cat"]], [6], pairs=[["it", "purrs"]])
    with torch.no_grad():
        state = minilm.model(**minilm.tokenizer("a cat", "it purrs", return_tensors="pt")).last_hidden_state
    np.testing.assert_allclose(found.vectors[6][:3], state[0, [1, 2, 4]].numpy(), atol=2e-5)


def test_lost_words_are_counted_and_left_out(minilm):
    found = ca.extract_tokens(minilm, [["Hello", "", "unbelievable", "\u200b", "!"]], [0, 6])
    assert found.word.tolist() == [0, 2, 4]
    assert (found.n_empty, found.n_cut) == (2, 0)
    short = ca.Encoder.from_pretrained("embedded", device="cpu", max_length=4)
    found = ca.extract_tokens(short, [["a", "b", "c", "d"], ["e"]], [-1])
    assert found.sentence.tolist() == [0, 0, 1]
    assert found.n_cut == 2


def test_layer_0_is_the_word_alone(minilm):
    found = ca.extract_tokens(minilm, [["cat", "cat"], ["cat"]], [0, 6])
    first, second, third = found.vectors[0]
    assert np.array_equal(first, third)  # the same token at the same place
    assert not np.array_equal(first, second)  # another place
    assert not np.allclose(found.vectors[6][0], found.vectors[6][2])


def test_what_cannot_be_done(minilm):
    with pytest.raises(DataError, match="none of 2 words has a piece"):
        ca.extract_tokens(minilm, [["", "\u200b"]])
    with pytest.raises(OptionError, match="unknown pieces 'last'"):
        ca.extract_tokens(minilm, SENTENCES, pieces="last")


def test_vectors_that_are_not_finite(tmp_path):
    model = tiny.make_model("bert")
    with torch.no_grad():
        model.encoder.layer[1].output.LayerNorm.bias[3] = float("nan")
    encoder = ca.Encoder.from_pretrained(tiny.save(model, tiny.make_tokenizer("bert"), tmp_path / "m"), device="cpu")
    with pytest.raises(DataError, match="layer 2: the vector of a word of sentence 0 is not finite"):
        ca.extract_tokens(encoder, SENTENCES)
