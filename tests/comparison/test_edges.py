"""Edge probing: targets from trees and files, spans as pieces, F1 by hand, and what a probe finds and cannot find."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from cls_analysis.comparison.edges import EdgeData, EdgeProbe, EdgeRecipe, micro_f1, train_edge_probe
from cls_analysis.comparison.targets import (
    Targets,
    control_labels,
    dependency_relation,
    part_of_speech,
    read_spans,
    shuffled_labels,
)
from cls_analysis.errors import DataError
from cls_analysis.extraction import WordVectors
from cls_analysis.texts.conllu import Sentence

QUICK = EdgeRecipe(learning_rate=3e-3, validate_every=60, validations=8, projection=32)


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def sentence(words, tags, heads=None, relations=None):
    k = len(words)
    heads = heads or [0] + [1] * (k - 1)
    return Sentence("s", None, tuple(words), tuple(tags), tuple(heads), tuple(relations or ["dep"] * k))


def one_piece_each(sentences, vector, layers=(1,)):
    """Vectors of words that are one piece each."""
    row = np.concatenate([np.full(len(words), place) for place, words in enumerate(sentences)])
    word = np.concatenate([np.arange(len(words)) for words in sentences])
    x = np.stack([vector(w) for words in sentences for w in words]).astype(np.float32)
    return WordVectors(dict.fromkeys(layers, x), row, word, 0, 0)


# -- targets ---------------------------------------------------------------------------------------------------------


def test_targets_of_trees():
    trees = [
        sentence(["the", "cat", "sat"], ["DET", "NOUN", "VERB"], [2, 3, 0], ["det", "nsubj", "root"]),
        sentence(["go"], ["VERB"], [0], ["root"]),
    ]
    tags, relations = part_of_speech(trees), dependency_relation(trees)
    assert tags.labels == [("DET",), ("NOUN",), ("VERB",), ("VERB",)]
    assert tags.second is None
    assert tags.sentence.tolist() == [0, 0, 0, 1]
    assert tags.first.tolist() == [[0, 1], [1, 2], [2, 3], [0, 1]]
    assert relations.labels == [("det",), ("nsubj",), ("root",), ("root",)]
    assert relations.second.tolist() == [[1, 2], [2, 3], [2, 3], [0, 1]]  # the head; a root's is itself
    assert relations.words(0) == ("the", "cat")
    assert relations.names() == ("det", "nsubj", "root")


def test_span_files(tmp_path):
    path = tmp_path / "spans.jsonl"
    lines = [
        {"text": "a b c d", "targets": [{"span1": [0, 2], "label": "X"}, {"span1": [3, 4], "label": ["X", "Y"]}]},
        {"text": "e", "targets": []},
        {"text": "f g", "targets": [{"span1": [1, 2], "label": "Z", "info": {}}]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    found = read_spans(path)
    assert found.sentence.tolist() == [0, 0, 2]
    assert found.first.tolist() == [[0, 2], [3, 4], [1, 2]]
    assert found.labels == [("X",), ("X", "Y"), ("Z",)]
    assert found.words(0) == ("a b",)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "line 2: expected an object with text and targets"),
        ('{"text": "a"}', "line 2: expected an object"),
        ('{"text": "a", "targets": [{"span1": [0, 2], "label": "X"}]}', r"line 2: span \[0, 2\] is none of 1 words"),
        ('{"text": "a", "targets": [{"span1": [0, 0], "label": "X"}]}', r"span \[0, 0\] is none"),
        ('{"text": "a", "targets": [{"span1": [0, 1], "span2": [0, 1], "label": "X"}]}', "others have none"),
    ],
)
def test_span_files_that_are_wrong(line, message, tmp_path):
    path = tmp_path / "spans.jsonl"
    path.write_text('{"text": "a", "targets": [{"span1": [0, 1], "label": "X"}]}\n' + line)
    with pytest.raises(DataError, match=message):
        read_spans(path)


def test_a_file_without_targets(tmp_path):
    path = tmp_path / "spans.jsonl"
    path.write_text('{"text": "a", "targets": []}\n')
    with pytest.raises(DataError, match="no target"):
        read_spans(path)


def test_control_labels_go_by_word_in_every_split():
    words = [f"w{i}" for i in range(300)]
    tags = ["A"] * 240 + ["B"] * 60
    train, test = part_of_speech([sentence(words, tags)]), part_of_speech([sentence(words[::-1], tags)])
    first, second = control_labels(train, train, 0), control_labels(test, train, 0)
    assert first.labels == second.labels[::-1]
    assert 0.7 < np.mean([labels == ("A",) for labels in first.labels]) < 0.9  # as the labels are distributed
    assert control_labels(train, train, 1).labels != first.labels
    twice = part_of_speech([sentence(["x", "y", "x"], ["A", "B", "B"])])
    assert control_labels(twice, train, 0).labels[0] == control_labels(twice, train, 0).labels[2]


def test_shuffled_labels_keep_their_counts():
    targets = part_of_speech([sentence(["w"] * 50, ["A"] * 30 + ["B"] * 20)])
    again = shuffled_labels(targets, 0)
    assert sorted(again.labels) == sorted(targets.labels)
    assert again.labels != targets.labels


# -- spans as pieces -------------------------------------------------------------------------------------------------


def test_spans_become_ranges_of_pieces():
    # Sentence 0: words of 1, 3 and 2 pieces; sentence 1: its word 1 is lost.
    found = WordVectors(
        {4: np.arange(16, dtype=np.float32).reshape(8, 2)},
        np.array([0] * 6 + [1] * 2),
        np.array([0, 1, 1, 1, 2, 2, 0, 2]),
        0,
        1,
    )
    targets = Targets(
        [["a", "b", "c"], ["d", "e", "f"]],
        np.array([0, 0, 1, 1, 1]),
        np.array([[1, 2], [0, 3], [0, 1], [1, 2], [0, 3]]),
        None,
        [("X",), ("Y",), ("X", "new"), ("Y",), ("X",)],
    )
    data = EdgeData.of(targets, found, [4], ("X", "Y"))
    assert data.spans[0].tolist() == [[1, 4], [0, 6], [6, 7]]
    assert data.labels.tolist() == [[1, 0], [0, 1], [1, 0]]
    assert (data.n_lost, data.n_unknown) == (2, 1)
    with pytest.raises(DataError, match="none of 5 targets has vectors"):
        EdgeData.of(targets, WordVectors({4: found.vectors[4][:1]}, np.array([9]), np.array([0]), 0, 0), [4], ("X",))


def test_pooling_looks_at_the_span_alone():
    rng = np.random.default_rng(0)
    found = WordVectors({1: rng.standard_normal((9, 4)).astype(np.float32)}, np.array([0] * 9), np.arange(9), 0, 0)
    targets = Targets([list("abcdefghi")], np.zeros(2, dtype=int), np.array([[2, 4], [5, 9]]), None, [("X",), ("Y",)])
    data = EdgeData.of(targets, found, [1], ("X", "Y"))
    probe = EdgeProbe(data, EdgeRecipe()).eval()
    rows = torch.arange(2)
    before = probe(data, rows)
    outside = data.pieces.clone()
    outside[[0, 1, 4]] += 100.0
    changed = EdgeData(outside, data.spans, data.labels, 0, 0)
    assert torch.equal(before, probe(changed, rows))
    inside = data.pieces.clone()
    inside[3] += 1.0
    after = probe(EdgeData(inside, data.spans, data.labels, 0, 0), rows)
    assert not torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    torch.testing.assert_close(probe(data, rows[1:]), before[1:])  # padding does not matter


def test_micro_f1_by_hand():
    found = one_piece_each([list("abcd")], lambda word: np.ones(2))
    targets = Targets(
        [list("abcd")],
        np.zeros(4, dtype=int),
        np.array([[0, 1], [1, 2], [2, 3], [3, 4]]),
        None,
        [("X",), ("Y",), ("X", "Y"), ("new",)],
    )
    data = EdgeData.of(targets, found, [1], ("X", "Y"))

    class Fixed(torch.nn.Module):
        def forward(self, data, rows):
            return torch.tensor([[1.0, 1], [-1, -1], [1, -1], [-1, -1]])[rows]

    # Named 3, right 2, wanted 5.
    assert micro_f1(Fixed(), data) == pytest.approx(2 * 2 / (3 + 5))


# -- probes ----------------------------------------------------------------------------------------------------------

TYPES = [f"w{i}" for i in range(40)]
TAG = {word: "ABCD"[i % 4] for i, word in enumerate(TYPES)}


def made(n, seed, types=40):
    rng = np.random.default_rng(seed)
    sentences = [rng.choice(TYPES[:types], rng.integers(2, 9)).tolist() for _ in range(n)]
    return [sentence(words, [TAG[word] for word in words]) for words in sentences]


def one_hot(word):
    return np.eye(len(TYPES))[TYPES.index(word)] * 3


def probed(train, dev, names):
    data = [EdgeData.of(targets, one_piece_each(targets.sentences, one_hot), [1], names) for targets in (train, dev)]
    return micro_f1(train_edge_probe(data[0], data[1], seed=0, recipe=QUICK), data[1])


def test_words_that_tell_their_tag_are_read_and_so_is_any_label_of_words():
    train, dev = (part_of_speech(made(n, seed)) for n, seed in ((300, 0), (60, 1)))
    names = train.names()
    real = probed(train, dev, names)
    control = probed(control_labels(train, train, 5), control_labels(dev, train, 5), names)
    assert real == 1.0
    assert abs(real - control) < 0.02  # a selectivity of 0: the words are known by heart
    floor = probed(shuffled_labels(train, 0), shuffled_labels(dev, 1), names)
    majority = max(np.bincount([names.index(label) for (label,) in dev.labels])) / len(dev)
    assert floor <= majority + 0.02


def test_pairs_need_both_words():
    # The label is whether the two words have the same tag: neither word alone tells.
    def relations(trees):
        targets = dependency_relation(trees)
        labels = [("same" if TAG[a] == TAG[b] else "other",) for a, b in map(targets.words, range(len(targets)))]
        return Targets(targets.sentences, targets.sentence, targets.first, targets.second, labels)

    train, dev = relations(made(500, 0, 8)), relations(made(60, 1, 8))
    assert probed(train, dev, ("other", "same")) > 0.97


def test_a_mix_finds_the_layer_that_tells():
    train, dev = (part_of_speech(made(n, seed)) for n, seed in ((200, 0), (40, 1)))
    data = []
    for targets in (train, dev):
        found = one_piece_each(targets.sentences, one_hot, layers=(0, 1, 2))
        rng = np.random.default_rng(0)
        noise = {layer: rng.standard_normal(found.vectors[1].shape).astype(np.float32) for layer in (0, 2)}
        data.append(
            EdgeData.of(
                targets, WordVectors(found.vectors | noise, found.sentence, found.word, 0, 0), [0, 1, 2], "ABCD"
            )
        )
    probe = train_edge_probe(*data, seed=0, recipe=EdgeRecipe(learning_rate=0.01, validate_every=100, validations=8))
    weights = probe.layer_weights()
    assert weights.sum() == pytest.approx(1.0)
    assert weights.argmax() == 1
    assert micro_f1(probe, data[1]) > 0.95


def test_one_seed_gives_one_probe_and_leaves_torchs_random_state():
    train, dev = (part_of_speech(made(n, seed)) for n, seed in ((60, 0), (20, 1)))
    data = [EdgeData.of(each, one_piece_each(each.sentences, one_hot), [1], "ABCD") for each in (train, dev)]
    recipe = EdgeRecipe(validate_every=5, validations=2)
    before = torch.get_rng_state()
    first, again, other = (train_edge_probe(*data, seed=seed, recipe=recipe).state_dict() for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not all(torch.equal(first[key], other[key]) for key in first)
    with pytest.raises(DataError, match="other labels or other layers"):
        train_edge_probe(data[0], EdgeData.of(dev, one_piece_each(dev.sentences, one_hot), [1], "ABC"), seed=0)
