"""``diagnose``: what it says of planted faults, isotropic vectors, too few rows, one text, and a real encoder."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import scipy.linalg
from planted import SIGNS, correlated, findings_of, gaussian, of_code, profile_of, shifted, stretched

import cls_analysis as ca
from cls_analysis import diagnose, load_texts, profile_vectors, summarize
from cls_analysis.diagnosis.findings import SEVERITIES, SHAPE_AXES, above_note
from cls_analysis.diagnosis.rules import rule_codes
from cls_analysis.diagnosis.thresholds import Limits
from cls_analysis.errors import DataError, OptionError, ProfileError

#: The dimensions in which faults are planted, the worst first.
WORST = (7, 77, 200)


def base() -> np.ndarray:
    """2,000 rows of 384 dimensions of N(0, 0.5²)."""
    return np.random.default_rng(0).normal(0.0, 0.5, (2_000, 384))


def directions(n: int, d: int) -> np.ndarray:
    """N(0, 0.5²) and three orthogonal directions ±1/√d of standard deviation 5."""
    block = d & -d  # the largest power of two in d: sign vectors of that length, repeated
    v = np.tile(scipy.linalg.hadamard(block)[:3], d // block) / np.sqrt(d)
    assert np.allclose(v @ v.T, np.eye(3))
    rng = np.random.default_rng(1)
    return rng.normal(0.0, 0.5, (n, d)) + 5.0 * rng.standard_normal((n, 3)) @ v


@pytest.fixture(scope="module")
def by_mean():
    """+8, −5 and +4 in three means."""
    x = base()
    x[:, WORST] += [8, -5, 4]
    return diagnose(profile_vectors(x), intervals=False)


@pytest.fixture(scope="module")
def by_variance():
    """400, 144 and 100 times the variance in the same dimensions."""
    x = base()
    x[:, WORST] *= [20, 12, 10]
    return diagnose(profile_vectors(x), intervals=False)


@pytest.fixture(scope="module")
def by_spectrum():
    """Three directions that are no dimensions."""
    return diagnose(profile_vectors(directions(2_000, 384)), intervals=False)


@pytest.fixture(scope="module")
def isotropic():
    """Nothing planted."""
    return diagnose(profile_vectors(base()), intervals=False)


def on(diagnosis, *axes):
    return [finding for finding in diagnosis.findings if finding.axis in axes]


def codes(findings) -> set[str]:
    return {finding.code for finding in findings}


# -- planted faults --------------------------------------------------------------------------------------------------


def test_planted_means(by_mean):
    named = [finding.dimensions for finding in on(by_mean, "mean") if finding.dimensions]
    assert named == [WORST] * 3
    assert {"CLS101", "CLS102", "CLS103"} <= codes(on(by_mean, "mean"))
    assert on(by_mean, "variance", "spectrum") == []
    assert by_mean.findings[0].axis == "mean"
    assert by_mean.worst_severity == "severe"


def test_planted_variances(by_variance):
    named = [finding.dimensions for finding in on(by_variance, "variance") if finding.dimensions]
    assert named == [WORST] * 3
    assert {"CLS201", "CLS202", "CLS203"} <= codes(on(by_variance, "variance"))
    assert on(by_variance, "mean", "spectrum") == []
    assert by_variance.worst_severity == "severe"


def test_planted_directions(by_spectrum):
    assert {"CLS301", "CLS302", "CLS303"} <= codes(on(by_spectrum, "spectrum"))
    assert on(by_spectrum, "mean", "variance") == []
    assert all(finding.dimensions == () for finding in by_spectrum.findings)


def test_nothing_planted(isotropic):
    (finding,) = isotropic.findings
    assert (finding.code, finding.severity) == ("CLS501", "note")
    assert isotropic.verdict() == "near isotropic: nothing to normalise."
    assert repr(isotropic).endswith(", layer -1: 'near isotropic: nothing to normalise.')")


@pytest.mark.parametrize("name", ["by_mean", "by_variance", "by_spectrum", "isotropic"])
def test_findings_are_those_without_the_tables(request, name):
    """What the other tests look at."""
    diagnosis = request.getfixturevalue(name)
    assert list(diagnosis.findings) == findings_of(diagnosis.profile)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("by_mean", "center"),
        ("by_variance", "standardize"),
        ("by_spectrum", "all-but-the-top"),  # 2,000 rows are too few to whiten 384 dimensions with
        ("isotropic", "none"),
    ],
)
def test_recommended(request, name, expected):
    diagnosis = request.getfixturevalue(name)
    assert diagnosis.recommended_normalization == expected
    assert diagnosis.recommendation.why


@pytest.mark.parametrize(
    ("x", "expected"),
    [
        (shifted({3: 8}), "center"),
        (stretched({4: 8}), "standardize"),
        (stretched({4: 8}) + 2, "standardize"),  # a mean, too
        (correlated(1), "whiten"),  # 16 rows a dimension
        (correlated(1)[:300], "all-but-the-top"),
        (correlated(1)[:300] + 3, "all-but-the-top"),
        # Correlated, and three components hold much only because one dimension is wide: removing those would not help.
        (correlated(1 / 4)[:300] * np.where(np.arange(32) == 4, 12, 1), "standardize"),
        (SIGNS, "none"),
        (np.full((50, 32), 0.3), "none"),
        (np.zeros((50, 32)), "none"),
    ],
)
def test_recommended_for_small_cases(x, expected):
    diagnosis = diagnose(profile_of(x), intervals=False)
    assert diagnosis.recommended_normalization == expected
    assert (f"Try {expected}: " in diagnosis.verdict()) == (expected != "none")


def test_whiten_needs_ten_rows_a_dimension():
    assert diagnose(profile_vectors(directions(640, 64)), intervals=False).recommended_normalization == "whiten"
    few = diagnose(profile_vectors(directions(639, 64)), intervals=False)
    assert few.recommended_normalization == "all-but-the-top"
    assert "from 640 on" in few.recommendation.why


def test_centring_proves_nothing_and_standardising_mends(by_variance, by_spectrum):
    """The condition numbers say what the recommendation says."""
    after = by_variance.conditions.set_index("normalization")["condition_number"]
    assert after["center"] > 0.9 * after["none"]
    assert after["standardize"] < after["none"] / 30
    after = by_spectrum.conditions.set_index("normalization")["condition_number"]
    assert after["standardize"] > 0.9 * after["none"]
    assert after["all-but-the-top"] < after["none"] / 5


# -- isotropic vectors, and few of them ------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("n", "d"), [(500, 384), (2_000, 384), (2_000, 768)])
def test_isotropic_vectors_raise_nothing(n, d, seed):
    findings = findings_of(profile_vectors(gaussian(n, d, seed)))
    assert codes(above_note(findings)) <= {"CLS501"}
    assert of_code(findings, "CLS501").severity == ("warning" if n < 2 * d else "note")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("n", [100, 20])
def test_few_isotropic_rows_raise_only_that(n, seed):
    """100 rows of 384 look anisotropic: effective rank 85, every correlation 0.08."""
    profile = profile_vectors(base()[seed * n : (seed + 1) * n])
    row = summarize(profile).iloc[0]
    assert row["effective_rank"] < 0.3 * 384
    assert row["mean_abs_correlation"] > 0.07
    findings = findings_of(profile)
    assert codes(above_note(findings)) == {"CLS501"}
    assert of_code(findings, "CLS501").value == pytest.approx(n / 384)
    assert not [finding for finding in findings if finding.axis in SHAPE_AXES]


# -- collapse --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def encoder(embedded):
    """The embedded encoder on one thread: short texts gain nothing by a second one."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield embedded
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def one_text(encoder):
    """One text 200 times, twenty to a batch, beside another that pads it to another width each time."""
    rows = []
    for length in range(2, 32, 3):
        batch = encoder.collate(encoder.tokenize(["a cat sat"] * 20 + ["word " * length]), range(21))
        rows.append(encoder.cls_rows(batch, -1)[encoder.n_layers][:20])
    return np.concatenate(rows)


def test_one_text_in_differently_padded_batches_is_a_collapse(one_text):
    assert len(one_text) == 200
    assert (one_text != one_text[0]).any()  # rounding
    profile = profile_vectors(one_text)
    diagnosis = diagnose(profile, how_many=True)
    assert codes(diagnosis.findings) == {"CLS504", "CLS501"}
    assert (diagnosis.findings[0].code, diagnosis.findings[0].severity) == ("CLS504", "severe")
    assert diagnosis.recommended_normalization == "none"
    assert diagnosis.verdict() == "collapsed: all texts have the same vector."
    for table in (diagnosis.figures, diagnosis.conditions, diagnosis.contributions, diagnosis.removal):
        assert table.empty
    assert diagnosis.definitions == []
    assert diagnosis.sufficiency.answers.empty
    row = summarize(profile).iloc[0]
    shape = ["average_cosine", "isoscore", "effective_rank", "ev1", "std_ratio", "mean_abs_correlation"]
    assert row[[*shape, *(f"{name}_null" for name in shape), "condition_number", "max_kurtosis_excess"]].isna().all()
    assert row["n_constant"] == 384


# -- layers ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sentiment(encoder):
    """The embedded encoder on a bundled sample."""
    return diagnose(ca.compute_profile(encoder, "sample:sentiment"), intervals=False)


def test_embedded_is_led_by_dimension_99(sentiment):
    assert (sentiment.layer, sentiment.findings[0].layer) == (6, 6)
    assert sentiment.findings[0].dimensions[0] == 99
    assert {finding.axis for finding in above_note(sentiment.of_layer(6), SHAPE_AXES)} == {"mean"}
    assert sentiment.recommended_normalization == "center"
    assert "led by dimensions 99, 125, 29" in sentiment.verdict()
    assert of_code(sentiment.of_layer(6), "CLS503").dimensions == (127, 223, 319)


def test_embedded_layer_0_raises_nothing(sentiment):
    assert sentiment.profile[0].collapsed
    assert sentiment.of_layer(0) == []
    assert {finding.layer for finding in sentiment.findings} == {1, 2, 3, 4, 5, 6}


def test_centring_takes_the_average_cosine_and_leaves_the_rms_cosine(sentiment):
    figures = sentiment.figures.set_index("figure")["value"]
    x = sentiment.profile[-1].sample.astype(np.float64)
    for name, rows in (("", x), ("_centred", x - x.mean(axis=0))):
        unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        pairs = (unit @ unit.T)[np.triu_indices(len(x), 1)]
        assert figures[f"average_cosine{name}"] == pytest.approx(pairs.mean(), abs=1e-6)
        assert figures[f"rms_cosine{name}"] == pytest.approx(np.sqrt((pairs**2).mean()), rel=1e-6)
    assert figures["average_cosine"] > 0.6
    assert abs(figures["average_cosine_centred"]) < 0.01
    assert figures["rms_cosine_centred"] > 1.5 / 384**0.5


def test_findings_come_layer_by_layer_the_worst_first(sentiment):
    assert list(dict.fromkeys(finding.layer for finding in sentiment.findings)) == [6, 5, 4, 3, 2, 1]
    for layer in range(7):
        ranks = [SEVERITIES.index(finding.severity) for finding in sentiment.of_layer(layer)]
        assert ranks == sorted(ranks, reverse=True)


def layered():
    """[CLS] before any block, a mean in the middle, a wide dimension on top."""
    layers = {0: np.full_like(SIGNS, 0.3), 1: shifted({3: 8}), 2: stretched({4: 8})}
    return profile_of({number: x[:300] for number, x in layers.items()}, source="cls", rows_cut=5)


def test_the_layer_asked_for_comes_first():
    profile = layered()
    last, inner = diagnose(profile, intervals=False), diagnose(profile, layer=1, intervals=False)
    assert (last.layer, inner.layer) == (2, 1)
    assert (last.recommended_normalization, inner.recommended_normalization) == ("standardize", "center")
    assert last.findings[0].layer == 2
    assert inner.findings[0].layer == 1
    # What is about the rows is said once.
    for diagnosis in (last, inner):
        for code in ("CLS501", "CLS502"):
            assert [finding.layer for finding in diagnosis.findings if finding.code == code] == [diagnosis.layer]
    assert codes(last.of_layer(1)) == codes(inner.of_layer(1)) - {"CLS501", "CLS502"}


def test_the_other_layers_come_from_the_top():
    profile = profile_of(dict.fromkeys(range(4), shifted({3: 8})), source="mean")
    found = diagnose(profile, layer=2, intervals=False).findings
    assert list(dict.fromkeys(finding.layer for finding in found)) == [2, 3, 1, 0]


def test_layer_0_is_one_vector_by_construction():
    diagnosis = diagnose(layered(), layer=0)
    assert codes(diagnosis.of_layer(0)) == {"CLS501", "CLS502"}
    assert diagnosis.verdict().startswith("one vector for all texts, by construction")
    assert diagnosis.recommended_normalization == "none"
    assert diagnosis.figures.empty


def test_layer_0_of_tokens_is_judged():
    profile = profile_of({0: np.full_like(SIGNS, 0.3), 1: SIGNS}, source="mean")
    assert [(finding.layer, finding.code) for finding in diagnose(profile, intervals=False).findings] == [(0, "CLS504")]


def test_one_row():
    diagnosis = diagnose(profile_of(SIGNS[:1]), how_many=True)
    assert diagnosis.verdict() == "one row only: no figure of shape is defined."
    assert codes(diagnosis.findings) == {"CLS501"}
    assert diagnosis.figures.empty


def test_a_collapse_is_no_near_isotropy_even_if_its_rule_is_off():
    limits = Limits.of({}, ["CLS504"], rule_codes())
    assert diagnose(profile_of(np.full((50, 8), 0.3)), limits=limits).verdict().startswith("collapsed")


def test_a_layer_that_is_not_there():
    with pytest.raises(ProfileError, match=r"layer 3 is not in this Profile.*holds \[0, 1, 2\]"):
        diagnose(layered(), layer=3)


def test_verdict_names_axis_severity_and_leading_dimensions():
    verdict = diagnose(profile_of(shifted({3: -5, 9: 6})), intervals=False).verdict()
    assert verdict.startswith("mean severe, led by dimensions 9, 3 (common-mean, dominating-dimension-by-mean, ")
    assert verdict.endswith("Try center: of what a normalisation can mend, only the mean is beyond its limits.")
    both = diagnose(profile_of(stretched({4: 8}) + 2), intervals=False).verdict()
    assert both.startswith("mean severe (common-mean); variance severe, led by dimension 4 (unequal-variances, ")


def test_worst_severity():
    assert diagnose(profile_of(SIGNS), intervals=False).worst_severity is None
    assert diagnose(profile_of(SIGNS[:320]), intervals=False).worst_severity == "note"
    assert diagnose(layered(), layer=0, intervals=False).worst_severity == "severe"  # of any layer


# -- options ---------------------------------------------------------------------------------------------------------


def test_limits_reach_the_rules():
    limits = Limits.of({"CLS101.warning": 0.9, "CLS101.severe": 0.95}, ["CLS103"], rule_codes())
    diagnosis = diagnose(profile_of(shifted({3: 8})), limits=limits, intervals=False)
    assert codes(diagnosis.findings) == {"CLS102", "CLS104"}


def test_intervals_can_be_left_out():
    profile = profile_of(gaussian(100, 8))
    with_them, without = diagnose(profile).figures, diagnose(profile, intervals=False).figures
    pd.testing.assert_frame_equal(with_them.drop(columns=["low", "high"]), without.drop(columns=["low", "high"]))
    assert without[["low", "high"]].isna().all(axis=None)
    row = with_them.set_index("figure").loc["average_cosine"]
    assert row["low"] < row["value"] < row["high"]
    assert with_them["low"].notna().sum() == 12


def test_how_many_only_if_asked():
    profile = profile_of(gaussian(40, 8))
    assert diagnose(profile, intervals=False).sufficiency is None
    assert not diagnose(profile, intervals=False, how_many=True).sufficiency.answers.empty


# -- labels ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def probed(monkeypatch):
    """What the probe is asked for, which takes seconds itself."""
    calls = []
    monkeypatch.setattr(
        "cls_analysis.diagnosis.effects.probe.probe", lambda rows, labels: calls.append((rows, labels)) or "it"
    )
    return calls


def labelled(n: int):
    texts = load_texts([f"text {row}" for row in range(n)])
    return replace(texts, label=[row % 3 for row in range(n)])


def test_labels_go_to_their_rows(probed):
    """The sample holds 1,024 of 1,100 rows, each of which says its number."""
    x = gaussian(1_100, 4)
    x[:, 0] = np.arange(1_100)
    texts = labelled(1_100)
    diagnosis = diagnose(profile_of(x, texts=texts), texts=texts, intervals=False)
    ((rows, labels),) = probed
    assert (diagnosis.probe, diagnosis.no_probe) == ("it", "")
    assert rows.shape == (1_024, 4)
    assert labels == [int(number) % 3 for number in rows[:, 0]]


def test_no_labels_no_probe(probed):
    texts = replace(labelled(40), label=None)
    diagnosis = diagnose(profile_of(gaussian(40, 4), texts=texts), texts=texts, intervals=False)
    assert (diagnosis.probe, diagnosis.no_probe) == (None, "the texts have no labels")
    diagnosis = diagnose(profile_of(gaussian(40, 4), texts=texts), intervals=False)
    assert (diagnosis.probe, diagnosis.no_probe) == (None, "")
    assert probed == []


def test_why_there_is_no_probe(monkeypatch):
    def refuse(rows, labels):
        raise DataError("every label is 0")

    monkeypatch.setattr("cls_analysis.diagnosis.effects.probe.probe", refuse)
    texts = labelled(40)
    diagnosis = diagnose(profile_of(gaussian(40, 4), texts=texts), texts=texts, intervals=False)
    assert (diagnosis.probe, diagnosis.no_probe) == (None, "every label is 0")


def test_other_texts_are_refused(probed):
    profile = profile_of(gaussian(40, 4), texts=labelled(40))
    with pytest.raises(OptionError, match=r"the Profile is of .*, the texts given are"):
        diagnose(profile, texts=labelled(41), intervals=False)
    with pytest.raises(OptionError, match=r"lack row 10 of the Profile \(another --limit or --first\?\)"):
        diagnose(profile, texts=labelled(40).first(10), intervals=False)
    assert probed == []


def test_a_collapsed_layer_is_not_probed(probed):
    texts = labelled(40)
    assert diagnose(profile_of(np.ones((40, 4)), texts=texts), texts=texts).probe is None
    assert probed == []
