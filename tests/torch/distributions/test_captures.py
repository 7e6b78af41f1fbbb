"""Distributions made within a compiled function: one program with the plain call's values, draws and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import dynagraph as dg
import dynagraph.torch as torch

D = torch.distributions
USES: dict[str, Callable[[Any, Any], Any]] = {
    "normal": lambda m, s: D.Normal(m, s).rsample() + D.Normal(m, s).entropy(),
    "kl of normals": lambda m, s: D.kl_divergence(D.Normal(m, s), D.Normal(torch.zeros_like(m), 1.0)),
    "independent": lambda m, s: D.Independent(D.Normal(m, s), 1).log_prob(s),
    "categorical": lambda m, s: D.Categorical(logits=m).log_prob(torch.tensor([0, 2, 1, 0])) + D.Categorical(s).entropy(),
    "kl of categoricals": lambda m, s: D.kl_divergence(D.Categorical(logits=m), D.Categorical(s)),
    "draws of a categorical": lambda m, s: m.gather(1, D.Categorical(s).sample().unsqueeze(1)),
    "bernoulli": lambda m, s: D.Bernoulli(logits=m).log_prob((s > 1).float()),
    "gamma": lambda m, s: D.Gamma(s, s).log_prob(s) + D.Beta(s, s).log_prob(s / 2),
    "uniform": lambda m, s: D.Uniform(s, s + 1).log_prob(s + 0.5),
    "multivariate normal": lambda m, s: D.MultivariateNormal(m, torch.eye(3) * s.sum()).log_prob(s),
    "transformed": lambda m, s: D.TransformedDistribution(D.Normal(m, s), [D.transforms.TanhTransform()]).log_prob(m.tanh()),
    "mixture": lambda m, s: D.MixtureSameFamily(D.Categorical(logits=m), D.Normal(m, s)).log_prob(s[:, 0]),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", USES)
def test_uses_are_captured_whole(name: str) -> None:
    use = USES[name]

    def step(m: Any, s: Any) -> Any:
        found = use(m, s)
        return found, *torch.autograd.grad(found.sin().sum(), (m, s), allow_unused=True)

    def results(function: Callable[..., Any]) -> list[Any]:
        torch.manual_seed(3)
        m, s = (torch.linspace(0.3, 1.5, 12).reshape(4, 3).sin().requires_grad_() for _ in range(2))
        return [None if t is None else t.detach() for t in function(m, s)]

    compiled = dg.compile(step, mode="max", backend="numpy", fullgraph=True)
    for got, expected in zip(results(compiled), results(step), strict=True):
        assert (got is None) == (expected is None)
        assert got is None or torch.allclose(got, expected, rtol=1e-6, atol=1e-7)


def test_parameters_are_checked_in_programs() -> None:
    compiled = dg.compile(lambda m, s: D.Normal(m, s).log_prob(m), mode="max", backend="numpy", fullgraph=True)
    m, s = torch.zeros(3), torch.ones(3)
    compiled(m, s)
    with pytest.raises(ValueError, match="Expected parameter scale"):
        compiled(m, -s)
