"""The normalisations against torch's own, published formulas and hand calculations."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn

from cls_analysis import make_norm, profile_vectors
from cls_analysis.errors import DataError, OptionError
from cls_analysis.normalization.making import NAMES, OF_PROFILE

DIM = 6


@pytest.fixture(scope="module")
def vectors():
    """Biased, unequal, correlated; the last dimension is dead."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((400, DIM)) @ rng.standard_normal((DIM, DIM)) * np.geomspace(0.1, 3, DIM) + 4
    x[:, -1] = 2.5
    return x


@pytest.fixture(scope="module")
def profile(vectors):
    return profile_vectors(vectors)


@pytest.fixture
def batch(vectors):
    return torch.from_numpy(vectors[:32].astype(np.float32))


def make(name, profile, **options):
    return make_norm(name, profile=profile, **options)


@pytest.mark.filterwarnings("ignore:.*has seen no batch yet")
@pytest.mark.parametrize("name", NAMES)
def test_finite_before_any_update_forward_and_backward(name, profile, batch):
    for training in (True, False):
        norm = make(name, profile).train(training)
        x = batch.clone().requires_grad_()
        norm(x).square().sum().backward()
        assert torch.isfinite(norm(batch)).all()
        assert torch.isfinite(x.grad).all()


@pytest.mark.filterwarnings("ignore:.*has seen no batch yet")
@pytest.mark.parametrize("name", NAMES)
def test_gradients(name, profile, vectors):
    norm = make(name, profile).double().eval()
    x = torch.from_numpy(vectors[:4]).requires_grad_()
    assert torch.autograd.gradcheck(norm, (x,))


@pytest.mark.parametrize("name", NAMES)
def test_state_lives_in_buffers_and_survives(name, profile, batch):
    norm = make(name, profile).train()
    norm(batch)
    norm.eval()
    assert not list(norm.parameters())
    again = make(name, profile)
    again.load_state_dict(norm.state_dict())
    for other in (again.eval(), copy.deepcopy(norm), pickle.loads(pickle.dumps(norm))):
        assert torch.equal(other(batch), norm(batch))


@pytest.mark.parametrize("name", NAMES)
def test_affine_says_what_evaluation_does(name, profile, batch):
    norm = make(name, profile).train()
    norm(batch)
    norm.eval()
    if (affine := norm.affine()) is None:
        assert name in ("layernorm", "l2norm")
        return
    shift, gain = affine
    expected = (batch - shift) * gain if gain.ndim == 1 else (batch - shift) @ gain
    torch.testing.assert_close(norm(batch), expected)


@pytest.mark.parametrize("name", NAMES)
def test_float32_inside_autocast(name, profile, batch):
    norm = make(name, profile).train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        half = norm(batch.bfloat16())
    assert half.dtype == torch.bfloat16
    for buffer in norm.buffers():
        assert buffer.dtype in (torch.float32, torch.int64)


def test_none_is_the_same_object(batch):
    assert make_norm("none", dim=DIM)(batch) is batch


def test_scale_gives_mean_square_one(profile, vectors):
    out = make("scale", profile)(torch.from_numpy(vectors))
    assert out.square().mean().item() == pytest.approx(1, rel=1e-6)
    np.testing.assert_allclose(out.numpy() / vectors, out[0, 0].item() / vectors[0, 0], rtol=1e-6)


def test_standardize_gives_unit_variance_and_zero_where_dead(profile, vectors):
    out = make("standardize", profile)(torch.from_numpy(vectors)).numpy()
    np.testing.assert_allclose(out[:, :-1].mean(axis=0), 0, atol=1e-6)
    np.testing.assert_allclose(out[:, :-1].std(axis=0), 1, rtol=1e-6)
    assert (out[:, -1] == 0).all()


def test_whiten_uncorrelates(profile, vectors):
    out = make("whiten", profile)(torch.from_numpy(vectors)).numpy()
    covariance = np.cov(out[:, :-1].T, bias=True)
    assert np.abs(covariance - np.diag(np.diag(covariance))).max() < 1e-6
    assert (out[:, -1] == 0).all()


def test_l2norm_of_zeros_is_zero():
    norm = make_norm("l2norm", dim=2)
    torch.testing.assert_close(norm(torch.tensor([[3.0, 4.0], [0.0, 0.0]])), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))


@pytest.mark.parametrize("affine", [False, True])
def test_layernorm_is_torchs(batch, affine):
    torch.testing.assert_close(
        make_norm("layernorm", dim=DIM, affine=affine)(batch), nn.LayerNorm(DIM, elementwise_affine=affine)(batch)
    )


@pytest.mark.parametrize("affine", [False, True])
def test_batchnorm_is_torchs(batch, affine):
    mine, torchs = make_norm("batchnorm", dim=DIM, affine=affine), nn.BatchNorm1d(DIM, affine=affine)
    for start in (0, 8, 16):
        torch.testing.assert_close(mine(batch[start : start + 8]), torchs(batch[start : start + 8]))
    torch.testing.assert_close(mine.running_mean, torchs.running_mean)
    torch.testing.assert_close(mine.running_var, torchs.running_var)
    torch.testing.assert_close(mine.eval()(batch), torchs.eval()(batch))


def test_case_19_batchnorm_by_hand():
    norm = make_norm("batchnorm", dim=1)
    x = torch.tensor([[3.0], [5.0], [7.0]])
    torch.testing.assert_close(norm(x).ravel(), torch.tensor([-1.224745, 0, 1.224745]), atol=1e-5, rtol=0)
    assert (norm.running_mean.item(), norm.running_var.item()) == pytest.approx((0.5, 1.3))
    expected = torch.tensor([2.192637, 3.946747, 5.700855])
    torch.testing.assert_close(norm.eval()(x).ravel(), expected, atol=1e-4, rtol=0)


def test_case_37_halves_of_a_batch_are_normalised_one_after_the_other():
    x = torch.tensor([[0.0], [2.0], [10.0], [12.0]])
    whole, halves = make_norm("batchnorm", dim=1), make_norm("batchnorm", dim=1)
    expected = torch.tensor([-1.1767, -0.7845, 0.7845, 1.1767])
    torch.testing.assert_close(whole(x).ravel(), expected, atol=1e-4, rtol=0)
    assert (whole.running_mean.item(), whole.running_var.item()) == pytest.approx((0.6, 4.366667))
    torch.testing.assert_close(
        torch.cat([halves(x[:2]), halves(x[2:])]).ravel(), torch.tensor([-1.0, 1, -1, 1]), atol=1e-4, rtol=0
    )
    assert (halves.running_mean.item(), halves.running_var.item()) == pytest.approx((1.19, 1.19))
    assert halves.n_updates == 2


def test_batchnorm_with_learned_weights_is_affine(batch):
    norm = make_norm("batchnorm", dim=DIM, affine=True)
    norm(batch)
    nn.init.uniform_(norm.weight, 0.5, 2)
    nn.init.uniform_(norm.bias, -1, 1)
    shift, gain = norm.eval().affine()
    torch.testing.assert_close((batch - shift) * gain, norm(batch), atol=1e-5, rtol=1e-4)


def test_center_follows_the_mean(batch):
    norm = make_norm("center", dim=DIM)
    torch.testing.assert_close(norm(batch), batch - batch.mean(dim=0))
    torch.testing.assert_close(norm.running_mean, 0.1 * batch.mean(dim=0))
    torch.testing.assert_close(norm.eval()(batch), batch - 0.1 * batch.mean(dim=0))


def isobn_by_hand(batches, beta=0.5, eps=1e-3, momentum=0.05, *, corrected=False):
    """IsoBN's published algorithm in NumPy, float64."""
    d = batches[0].shape[1]
    covariance, std = np.zeros((d, d)), np.zeros(d)
    for x in batches:
        y = x - x.mean(axis=0)
        covariance += momentum * (y.T @ y / len(x) - covariance)
        std += momentum * (np.sqrt((y**2).mean(axis=0)) - std)
    if corrected:
        seen = 1 - (1 - momentum) ** len(batches)
        covariance, std = covariance / seen, std / seen
    rho = np.clip(covariance / np.outer(std, std), -1, 1)
    theta = ((rho**2).mean(axis=1) * std + eps) ** -beta
    variance = np.diag(covariance)
    return theta * np.sqrt(variance.sum() / ((variance * theta**2).sum() + eps))


@pytest.mark.parametrize("corrected", [False, True])
def test_isobn_is_the_published_formula(vectors, corrected):
    living = vectors[:, :-1]
    norm = make_norm("isobn", dim=DIM - 1, bias_correction=corrected).double()
    batches = [living[start : start + 16] for start in range(0, 80, 16)]
    for x in batches:
        out = norm(torch.from_numpy(x))
    theta = isobn_by_hand(batches, corrected=corrected)
    np.testing.assert_allclose(out.numpy(), batches[-1] * theta, rtol=1e-9)
    np.testing.assert_allclose(norm.eval()(torch.from_numpy(living)).numpy(), living * theta, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:.*has seen no batch yet")
def test_case_35_isobn_before_its_first_batch_is_the_identity(batch):
    """The released code gives 0/0."""
    assert torch.equal(make_norm("isobn", dim=DIM).eval()(batch), batch)


def test_isobn_lets_no_gradient_through_its_factor(batch):
    norm = make_norm("isobn", dim=DIM)
    x = batch.clone().requires_grad_()
    norm(x).sum().backward()
    torch.testing.assert_close(x.grad, norm.theta().expand_as(x))


@pytest.mark.parametrize("name", ["center", "batchnorm", "isobn"])
def test_one_row_uses_the_running_statistics_and_leaves_them(name, batch):
    norm = make_norm(name, dim=DIM)
    norm(batch)
    before = copy.deepcopy(norm.state_dict())
    out = norm(batch[:1])
    assert all(torch.equal(before[key], value) for key, value in norm.state_dict().items())
    torch.testing.assert_close(out, norm.eval()(batch[:1]))


@pytest.mark.parametrize("name", ["center", "batchnorm", "isobn"])
def test_case_38_a_batch_that_is_not_finite_leaves_the_statistics(name, batch):
    norm = make_norm(name, dim=DIM)
    norm(batch)
    before = {key: value.clone() for key, value in norm.state_dict().items()}
    broken = batch.clone()
    broken[3, 2] = torch.inf
    norm(broken)
    after = norm.state_dict()
    assert after.pop("n_skipped").item() == 1
    assert all(torch.equal(before[key], value) for key, value in after.items())


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("batchnrom",), {"dim": 3}, "did you mean 'batchnorm'"),
        (("standardize",), {"dim": 3}, "standardize is made of a Profile"),
        (("center",), {}, "needs the number of dimensions"),
        (("center",), {"dim": 3, "eps": 1}, "unknown option of center 'eps': known: momentum"),
        (("none",), {"dim": 3, "eps": 1}, "none takes no options"),
        (("batchnorm",), {"dim": 3, "momentum": 0}, r"momentum must lie in \(0, 1\]"),
        (("isobn",), {"dim": 3, "beta": -1}, "beta must be a positive number"),
        (("center",), {"dim": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_made(arguments, options, message):
    with pytest.raises(OptionError, match=message):
        make_norm(*arguments, **options)


@pytest.mark.parametrize("name", OF_PROFILE)
def test_a_collapsed_layer_has_no_statistics(name):
    with pytest.raises(OptionError, match="one vector for all texts"):
        make_norm(name, profile=profile_vectors(np.ones((5, 3))))


def test_other_shapes_are_refused(profile):
    with pytest.raises(OptionError, match="dim=5, but the Profile has 6"):
        make_norm("standardize", dim=5, profile=profile)
    with pytest.raises(DataError, match=r"takes \(batch, 6\), got \(2, 5\)"):
        make("standardize", profile)(torch.zeros(2, 5))


@pytest.mark.parametrize("name", ["center", "batchnorm", "isobn"])
def test_case_35_evaluation_before_the_first_batch_warns(name, batch):
    norm = make_norm(name, dim=DIM).eval()
    with pytest.warns(UserWarning, match=f"{name} has seen no batch yet"):
        norm(batch)
    norm.train()(batch)
    norm.eval()(batch)  # an error if it warned


@pytest.mark.parametrize("name", ["standardize", "whiten", "all-but-the-top"])
def test_three_dead_dimensions_of_a_real_encoder(name, embedded):
    """Naive code divides by a standard deviation of 0 there, and by eigenvalues of 0."""
    from cls_analysis import compute_profile, extract_vectors

    texts = ["a short text", "another one, somewhat longer", "and a third", "the fourth is about nothing"] * 30
    texts = [f"{text} {i}" for i, text in enumerate(texts)]
    profile = compute_profile(embedded, texts, layers=[-1])
    layer = profile[-1]
    assert np.flatnonzero(layer.dead).tolist() == [127, 223, 319]
    norm = make_norm(name, profile=profile)
    x = torch.from_numpy(extract_vectors(embedded, texts[:32])[6]).requires_grad_()
    y = norm(x)
    (y**2).sum().backward()
    assert torch.isfinite(y).all()
    assert torch.isfinite(x.grad).all()
    assert (x.grad[:, [127, 223, 319]] == 0).all()
    assert (x.grad[:, [0, 99]] != 0).all()
