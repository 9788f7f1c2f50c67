"""Structural probes: scores by hand, and trees that are written into the vectors found again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from cls_analysis.comparison.structural import ProbeData, ProbeRecipe, squared_distances, structural_scores
from cls_analysis.comparison.trees import (
    Gold,
    depth_spearman,
    distance_spearman,
    root_accuracy,
    spanning_edges,
    undirected_attachment,
)
from cls_analysis.errors import DataError
from cls_analysis.extraction import WordVectors
from cls_analysis.texts.conllu import Sentence


def sentence(heads, tags=None):
    k = len(heads)
    return Sentence("s", None, ("w",) * k, tags or ("X",) * k, tuple(heads), ("dep",) * k)


def gold(heads, tags=None):
    return Gold.of(sentence(heads, tags), np.arange(len(heads)))


def random_heads(k, rng):
    """A tree whose words hang on earlier ones, in shuffled order."""
    order = rng.permutation(k)
    heads = np.zeros(k, dtype=int)
    for place in range(1, k):
        heads[order[place]] = order[rng.integers(0, place)] + 1
    return heads.tolist()


# -- scores ----------------------------------------------------------------------------------------------------------


def test_a_spanning_tree_by_hand():
    distances = np.array([[0, 1, 4, 5], [1, 0, 2, 6], [4, 2, 0, 3], [5, 6, 3, 0]], dtype=float)
    everything = np.ones(4, dtype=bool)
    assert spanning_edges(distances, everything) == {(0, 1), (1, 2), (2, 3)}
    assert spanning_edges(distances, np.array([True, False, True, True])) == {(0, 2), (2, 3)}
    assert spanning_edges(distances, np.array([True, False, False, False])) == set()
    distances[0, 1] = distances[1, 0] = 0.0  # an edge of length 0 is one
    assert (0, 1) in spanning_edges(distances, everything)


def test_gold_distances_score_1():
    rng = np.random.default_rng(0)
    trees = [gold(random_heads(k, rng)) for k in range(2, 30)]
    distances = [tree.distances.astype(float) for tree in trees]
    depths = [tree.depths.astype(float) for tree in trees]
    assert undirected_attachment(trees, distances) == 1.0
    assert distance_spearman(trees, distances) == pytest.approx(1.0)
    assert depth_spearman(trees, depths) == pytest.approx(1.0)
    assert root_accuracy(trees, depths) == 1.0


def test_scores_count_edges_and_roots():
    chain, star = gold([0, 1, 2, 3]), gold([0, 1, 1, 1])
    # The chain's tree predicted for both: of the star's edges, (0, 1) alone is right.
    predicted = [chain.distances.astype(float)] * 2
    assert undirected_attachment([chain, star], predicted) == pytest.approx(4 / 6)
    assert root_accuracy([chain, star], [np.array([0.0, 1, 2, 3]), np.array([2.0, 1, 3, 4])]) == 0.5


def test_punctuation_is_left_out():
    tree = gold([2, 0, 2, 2], ("NOUN", "VERB", "NOUN", "PUNCT"))
    distances = tree.distances.astype(float)
    distances[3, :3] = distances[:3, 3] = 0.1  # near to all: it would draw every edge to itself
    assert undirected_attachment([tree], [distances]) == 1.0
    assert root_accuracy([tree], [np.array([1.0, 0.5, 2.0, 0.0])]) == 1.0
    alone = gold([0, 1], ("PUNCT", "NOUN"))
    assert np.isnan(root_accuracy([alone], [np.array([0.0, 1.0])]))
    assert np.isnan(undirected_attachment([alone], [alone.distances.astype(float)]))


def test_spearman_averages_words_then_lengths():
    import scipy.stats

    rng = np.random.default_rng(1)
    trees = [gold(random_heads(k, rng)) for k in (4, 6, 6, 9, 60)]  # 4 is too short, 60 too long
    noisy = [tree.distances + rng.uniform(0, 3, tree.distances.shape) for tree in trees]
    of_length = {6: [], 9: []}
    for tree, distances in zip(trees, noisy, strict=True):
        if len(tree) in of_length:
            of_length[len(tree)] += [
                scipy.stats.spearmanr(a, b).statistic for a, b in zip(distances, tree.distances, strict=True)
            ]
    expected = np.mean([np.mean(values) for values in of_length.values()])
    assert distance_spearman(trees, noisy) == pytest.approx(expected)
    assert np.isnan(distance_spearman(trees[:1], noisy[:1]))


def test_words_without_vectors_keep_their_distances():
    # c hangs on b, b on a: without b, c is still two edges from a.
    tree = Gold.of(sentence([0, 1, 2]), np.array([0, 2]))
    assert tree.distances.tolist() == [[0, 2], [2, 0]]
    assert tree.depths.tolist() == [0, 2]


# -- probes ----------------------------------------------------------------------------------------------------------


def written(n, seed, dim=12, turned=True):
    """Words have a 1 for each edge on their path to the root, turned: ‖x_i − x_j‖² is the number of edges between."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(np.random.default_rng(99).standard_normal((dim, dim)))[0] if turned else np.eye(dim)
    vectors, trees = [], []
    for _ in range(n):
        heads = random_heads(int(rng.integers(6, dim)), rng)
        x = np.zeros((len(heads), dim))
        for word in range(len(heads)):
            place = word
            while heads[place]:
                x[word, place] = 1.0
                place = heads[place] - 1
        vectors.append(torch.from_numpy((x @ turn).astype(np.float32)))
        trees.append(gold(heads))
    return ProbeData(vectors, trees)


def test_trees_written_into_the_vectors_are_found():
    train, dev, test = written(200, 0), written(30, 1), written(30, 2)
    found = structural_scores(train, dev, test, recipe=ProbeRecipe(learning_rate=0.01))
    assert (found.uuas, found.root_accuracy) == (1.0, 1.0)
    # Below 1, since a tree has many equal distances, and fitted ones are never quite equal.
    assert found.distance_spearman > 0.94
    assert found.depth_spearman > 0.9


def test_vectors_that_are_paths_have_the_trees_distances():
    data = written(40, 3, turned=False)
    distances = [squared_distances(x[None])[0].double().numpy() for x in data.vectors]
    for found, tree in zip(distances, data.gold, strict=True):
        assert np.array_equal(found, tree.distances)
    assert undirected_attachment(data.gold, distances) == 1.0
    assert distance_spearman(data.gold, distances) == pytest.approx(1.0, abs=1e-12)


def test_vectors_without_a_tree_give_none():
    train, dev, test = written(60, 0), written(10, 1), written(30, 2)
    noise = [torch.randn(x.shape, generator=torch.Generator().manual_seed(i)) for i, x in enumerate(test.vectors)]
    found = structural_scores(train, dev, ProbeData(noise, test.gold), recipe=ProbeRecipe(epochs=3))
    assert found.uuas < 0.5
    assert abs(found.distance_spearman) < 0.4


def test_one_seed_gives_one_probe():
    data = written(60, 0), written(10, 1), written(20, 2)
    recipe = ProbeRecipe(epochs=2)
    first, again, other = (structural_scores(*data, seed=seed, recipe=recipe) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_sentences_meet_their_vectors():
    sentences = [sentence([0, 1, 2]), sentence([0]), sentence([2, 0])]
    words = WordVectors(
        {3: np.arange(10, dtype=np.float32).reshape(5, 2)}, np.array([0, 0, 1, 2, 2]), np.array([0, 2, 0, 0, 1]), 1, 0
    )
    data = ProbeData.of(sentences, words, 3)
    assert [x.tolist() for x in data.vectors] == [[[0, 1], [2, 3]], [[6, 7], [8, 9]]]
    assert data.gold[0].distances.tolist() == [[0, 2], [2, 0]]
    with pytest.raises(DataError, match="no sentence has two words"):
        ProbeData.of(sentences[1:2], WordVectors({3: np.ones((1, 2))}, np.array([0]), np.array([0]), 0, 0), 3)
