"""Samples of all families have the moments of their distributions, and gradients that are those of the means."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
import dynagraph.torch as torch

D = torch.distributions
MATRIX = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
FAMILIES: dict[str, Callable[[], Any]] = {
    "Normal": lambda: D.Normal(1.0, 2.0),
    "LogNormal": lambda: D.LogNormal(0.1, 0.5),
    "HalfNormal": lambda: D.HalfNormal(2.0),
    "Laplace": lambda: D.Laplace(1.0, 2.0),
    "Gumbel": lambda: D.Gumbel(1.0, 2.0),
    "Uniform": lambda: D.Uniform(-1.0, 3.0),
    "Exponential": lambda: D.Exponential(0.7),
    "Gamma": lambda: D.Gamma(torch.tensor([0.1, 0.7, 1.0, 30.0]), 2.0),
    "InverseGamma": lambda: D.InverseGamma(6.0, 2.0),
    "Chi2": lambda: D.Chi2(3.0),
    "Beta": lambda: D.Beta(torch.tensor([0.2, 1.0, 5.0]), torch.tensor([0.3, 2.0, 7.0])),
    "Dirichlet": lambda: D.Dirichlet(torch.tensor([0.5, 1.0, 4.0])),
    "StudentT": lambda: D.StudentT(9.0, 1.0, 2.0),
    "FisherSnedecor": lambda: D.FisherSnedecor(5.0, 20.0),
    "Weibull": lambda: D.Weibull(2.0, 1.5),
    "Pareto": lambda: D.Pareto(1.0, 9.0),
    "Kumaraswamy": lambda: D.Kumaraswamy(2.0, 3.0),
    "GeneralizedPareto": lambda: D.GeneralizedPareto(1.0, 2.0, torch.tensor([-0.5, 0.0, 0.1])),
    "ContinuousBernoulli": lambda: D.ContinuousBernoulli(torch.tensor([0.1, 0.5, 0.8])),
    "Bernoulli": lambda: D.Bernoulli(0.3),
    "Geometric": lambda: D.Geometric(0.3),
    "Binomial": lambda: D.Binomial(torch.tensor([5, 100]), torch.tensor([0.3, 0.6])),
    "NegativeBinomial": lambda: D.NegativeBinomial(5.0, 0.3),
    "Poisson": lambda: D.Poisson(torch.tensor([0.5, 40.0])),
    "OneHotCategorical": lambda: D.OneHotCategorical(torch.tensor([0.5, 1.0, 4.0])),
    "Multinomial": lambda: D.Multinomial(7, torch.tensor([0.5, 1.0, 4.0])),
    "MultivariateNormal": lambda: D.MultivariateNormal(torch.zeros(2, dtype=torch.float64), MATRIX),
    "LowRankMultivariateNormal": lambda: D.LowRankMultivariateNormal(torch.zeros(2), torch.ones(2, 1), torch.ones(2)),
    "Wishart": lambda: D.Wishart(5.0, MATRIX),
    "MixtureSameFamily": lambda: D.MixtureSameFamily(
        D.Categorical(torch.tensor([1.0, 3.0])), D.Normal(torch.tensor([-2.0, 4.0]), torch.tensor([1.0, 0.5]))
    ),
}
COUNT, FEW = 20_000, 3_000


@pytest.mark.parametrize("name", FAMILIES)
def test_samples_have_the_moments_of_the_distribution(name: str) -> None:
    torch.manual_seed(sum(map(ord, name)))
    d = FAMILIES[name]()
    drawn = np.asarray(d.sample((COUNT,)), np.float64)
    mean, variance = (np.asarray(m.detach(), np.float64) for m in (d.mean, d.variance))
    assert np.allclose(drawn.mean(0), mean, rtol=0, atol=5 * np.sqrt(variance.max() / COUNT) + 1e-6)
    assert np.allclose(drawn.var(0), variance, rtol=0.2, atol=1e-3)


def test_angles_and_correlations() -> None:
    torch.manual_seed(1)
    d = D.VonMises(torch.tensor(0.5), torch.tensor(3.0))
    x = d.sample((FEW,))
    length = np.abs(np.exp(1j * np.asarray(x, np.float64)).mean())
    assert abs(1 - length - d.variance.item()) < 0.02
    factors = D.LKJCholesky(3, 2.0).sample((FEW,))
    assert D.constraints.corr_cholesky.check(factors).all()
    correlations = np.asarray(factors @ factors.mT, np.float64)
    assert abs(correlations[:, 0, 1].mean()) < 0.03
    assert abs(correlations[:, 0, 1].var() - 1 / (2 * (2.0 + 0.5) + 1)) < 0.02  # a symmetric beta number, from -1 to 1


@pytest.mark.parametrize("name, parameter, mean_slope", [
    ("Gamma", (0.7, 2.0), (1 / 2.0, -0.7 / 4)),
    ("Gamma", (12.0, 2.0), (1 / 2.0, -12.0 / 4)),
    ("Beta", (0.5, 2.0), (2.0 / 6.25, -0.5 / 6.25)),
    ("Beta", (30.0, 20.0), (20.0 / 2500, -30.0 / 2500)),
    ("Normal", (1.0, 2.0), (1.0, 0.0)),
    ("StudentT", (9.0, 1.0), (0.0, 1.0)),
])  # fmt: skip
def test_gradients_of_samples_are_those_of_the_mean(name: str, parameter: Any, mean_slope: Any) -> None:
    torch.manual_seed(3)
    leaves = [torch.tensor(p, dtype=torch.float64, requires_grad=True) for p in parameter]
    getattr(D, name)(*leaves).rsample((FEW,)).mean().backward()
    for leaf, expected in zip(leaves, mean_slope):
        assert abs(leaf.grad.item() - expected) < 0.06 * max(1, abs(expected))


# by mpmath with 30 digits: shape, number, slope; and number, parameters, slope divided by what is left
GAMMA_SLOPES = [
    (0.01, 0.003, 1.580045159278725),
    (0.1, 1e-12, 2.720726617554303e-10),
    (0.3, 0.5, 1.9920848433114757),
    (1, 1, 1.1735630272247268),
    (1, 20, 3.6206664839514846),
    (4, 0.5, 0.3077872888711457),
    (4, 3, 0.8995215859245937),
    (60, 40, 0.8131734151224038),
    (60, 90, 1.219762399673867),
    (1000, 1010, 1.0051509296765344),
]
BETA_SLOPES = [
    (0.01, 0.05, 0.05, 2.9072657045247587),
    (0.9, 0.3, 0.4, 5.340799787653165),
    (0.5, 1, 1, 0.6931471805599453),
    (0.2, 3, 20, 0.057399091721654326),
    (0.98, 20, 0.5, 0.050113013337967284),
    (0.5, 300, 300, 0.0016685197524965736),
    (0.97, 300, 20, 0.0031836618662555763),
]


def test_slopes_are_the_derivatives_at_fixed_probabilities() -> None:
    a, x, expected = (torch.tensor(column, dtype=torch.float64) for column in zip(*GAMMA_SLOPES))
    np.testing.assert_allclose(torch._standard_gamma_grad(a, x), expected, rtol=1e-9)
    x, a, b, expected = (torch.tensor(column, dtype=torch.float64) for column in zip(*BETA_SLOPES))
    np.testing.assert_allclose(torch._dirichlet_grad(x, a, a + b), expected, rtol=1e-9)


def loss(x: Any, loc: Any, spread: Any) -> Any:
    """What a variational autoencoder asks of normal numbers."""
    posterior = D.Normal(loc, torch.nn.functional.softplus(spread))
    z = posterior.rsample()
    prior = D.Normal(torch.zeros_like(loc), torch.ones_like(loc))
    evidence = D.Independent(D.Normal(z, 1.0), 1).log_prob(x)
    return (D.kl_divergence(posterior, prior).sum(-1) - evidence).mean()


def step(x: Any, loc: Any, spread: Any) -> Any:
    loc.grad = spread.grad = None
    value = loss(x, loc, spread)
    value.backward()
    return value.detach()


@pytest.mark.parametrize("validate", [False, True])
def test_a_step_compiled_is_as_the_plain_one(validate: bool) -> None:
    rng = np.random.default_rng(0)
    x, loc, spread = (torch.from_numpy(rng.standard_normal((4, 3)).astype(np.float32)) for _ in range(3))
    found = []
    D.Distribution.set_default_validate_args(validate)
    try:
        for call in (step, torch.compile(step, mode="max-autotune")):
            leaves = [t.clone().requires_grad_() for t in (loc, spread)]
            values = []
            for seed in (1, 2, 3):
                torch.manual_seed(seed)
                values += [call(x, *leaves), leaves[0].grad.clone(), leaves[1].grad.clone()]
            found.append([np.asarray(v) for v in values])
            if call is not step:
                assert not sum(call.stats.breaks.values()), call.stats
    finally:
        D.Distribution.set_default_validate_args(True)
    for a, b in zip(*found):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_what_is_out_of_its_region_is_refused_by_programs() -> None:
    compiled = torch.compile(lambda scale, y: D.Normal(0.0, scale).log_prob(y), mode="max-autotune")
    one = torch.ones(3)
    for _ in range(2):
        np.testing.assert_allclose(compiled(one, one), np.full(3, -0.5 - 0.5 * np.log(2 * np.pi)), rtol=1e-6)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        compiled(-one, one)
    with pytest.raises(ValueError, match="Expected value argument"):
        compiled(one, one * float("nan"))
    assert not sum(compiled.stats.breaks.values())


def test_choices_compiled() -> None:
    @dg.compile
    def policy(logits: Any, action: Any) -> Any:
        d = D.Categorical(logits=logits, validate_args=False)
        return d.log_prob(action).sum() + d.entropy().sum()

    logits = torch.randn(5, 3)
    action = torch.tensor([0, 1, 2, 0, 1])
    expected = policy.__wrapped__(logits, action)
    for _ in range(2):
        np.testing.assert_allclose(policy(logits, action).item(), expected.item(), rtol=1e-5)
