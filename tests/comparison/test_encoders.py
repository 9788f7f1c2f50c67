"""Stimuli and pairs of encoders: the same words for all, what cannot be compared, random twins, weights apart."""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny
import torch

import cls_analysis as ca
from cls_analysis.comparison.encoders import check_comparable, random_twin, weight_distances
from cls_analysis.comparison.layers import similarity_table
from cls_analysis.comparison.stimuli import Stimuli
from cls_analysis.errors import DataError


@pytest.fixture(scope="module")
def texts():
    return ca.load_texts(tiny.words(*[3, 4, 5, 6] * 10, seed=0))


@pytest.fixture(scope="module")
def bert(tiny_folder):
    return ca.Encoder.from_pretrained(tiny_folder("bert"), device="cpu")


@pytest.fixture(scope="module")
def moved(bert, tmp_path_factory):
    """The same network, its second block moved a little."""
    model = tiny.make_model("bert")
    with torch.no_grad():
        for parameter in model.encoder.layer[1].parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    folder = tiny.save(model, tiny.make_tokenizer("bert"), tmp_path_factory.mktemp("moved"))
    return ca.Encoder.from_pretrained(folder, device="cpu")


def test_stimuli_are_two_words_a_text_and_the_same_for_a_seed(bert, texts, tmp_path):
    stimuli = Stimuli.draw(bert, texts, seed=1)
    assert np.bincount(stimuli.sentence).tolist() == [2] * 40
    assert all(word < len(texts.text[row].split()) for row, word in zip(stimuli.sentence, stimuli.word, strict=True))
    again, other = Stimuli.draw(bert, texts, seed=1), Stimuli.draw(bert, texts, seed=2)
    assert np.array_equal(stimuli.word, again.word)
    assert not np.array_equal(stimuli.word, other.word)
    few = Stimuli.draw(bert, texts, words=20, seed=1)
    assert len(few.word) == 20
    saved = json.loads(stimuli.save(tmp_path / "stimuli.json").read_text())
    assert saved["words"][:2] == [[0, int(stimuli.word[0])], [0, int(stimuli.word[1])]]
    assert (saved["seed"], saved["hash"]) == (1, texts.hash)
    with pytest.raises(DataError, match="6 words to compare; at least 8"):
        Stimuli.draw(bert, texts.first(3))


def test_vectors_of_stimuli(bert, texts):
    stimuli = Stimuli.draw(bert, texts)
    cls, words = stimuli.cls_vectors(bert), stimuli.word_vectors(bert)
    assert list(cls) == list(range(1, tiny.LAYERS + 1))
    assert list(words) == list(range(tiny.LAYERS + 1))
    assert all(len(rows) == 40 for rows in cls.values())
    assert all(len(rows) == 80 for rows in words.values())
    everything = ca.extract_tokens(bert, [text.split() for text in texts.text])
    row = np.flatnonzero((everything.sentence == stimuli.sentence[7]) & (everything.word == stimuli.word[7]))
    np.testing.assert_allclose(words[1][7], everything.vectors[1][row[0]], atol=1e-5)


def test_words_of_pairs(bert):
    pairs = ca.load_texts(list(zip(tiny.words(*[3] * 20, seed=0), tiny.words(*[4] * 20, seed=1), strict=True)))
    stimuli = Stimuli.draw(bert, pairs)
    assert stimuli.word.max() > 3  # of second texts, too
    assert len(stimuli.word_vectors(bert)[0]) == 40


def test_a_change_of_one_block_shows_from_there_on(bert, moved, texts):
    check_comparable(bert, moved)
    stimuli = Stimuli.draw(bert, texts)
    table = similarity_table(
        stimuli.word_vectors(bert),
        stimuli.word_vectors(moved),
        names=("base", "moved"),
        dataset="made",
        stimuli="tokens",
        count=0,
    )
    cka = table[table["measure"] == "cka"].set_index("layer")["value"]
    assert cka[[0, 1]].tolist() == pytest.approx([1.0, 1.0], abs=1e-9)
    assert cka[2] < 0.999


def test_weights_apart(bert, moved):
    found = weight_distances(bert, moved).set_index("block")["distance"]
    assert found["layer0"] == found["embeddings"] == 0.0
    ours, theirs = (
        torch.cat([p.detach().ravel() for p in encoder.model.encoder.layer[1].parameters()]).double()
        for encoder in (bert, moved)
    )
    assert found["layer1"] == pytest.approx(float((theirs - ours).norm() / ours.norm()), rel=1e-6)
    assert 0 < found["all"] < found["layer1"]


def test_a_random_twin_has_the_shape_alone(bert, texts):
    before = torch.get_rng_state()
    twin, again, other = (random_twin(bert, seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    check_comparable(bert, twin)
    first, second, third, ours = (
        ca.extract_vectors(each, texts, [-1])[tiny.LAYERS] for each in (twin, again, other, bert)
    )
    assert np.array_equal(first, second)
    assert not np.allclose(first, third)
    assert not np.allclose(first, ours)
    assert twin.name == "random (0)"


def test_what_cannot_be_compared(bert, tiny_folder, tmp_path):
    short = ca.Encoder.from_pretrained(tiny_folder("bert"), device="cpu", max_length=8)
    with pytest.raises(DataError, match=r"tokens at most, .* 8: they cannot be compared"):
        check_comparable(bert, short)
    deeper = tiny.save(
        tiny.make_model("bert", num_hidden_layers=tiny.LAYERS + 1), tiny.make_tokenizer("bert"), tmp_path / "deeper"
    )
    with pytest.raises(DataError, match=f"has {tiny.LAYERS} layers, .* {tiny.LAYERS + 1}: they cannot"):
        check_comparable(bert, ca.Encoder.from_pretrained(deeper, device="cpu"))
    cased = tiny.save(tiny.make_model("bert"), tiny.make_tokenizer("bert", do_lower_case=False), tmp_path / "cased")
    with pytest.raises(DataError, match="have other tokenizers"):
        check_comparable(bert, ca.Encoder.from_pretrained(cased, device="cpu"))
