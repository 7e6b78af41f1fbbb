"""kl_divergence: all pairs of distributions of numbers, of vectors, and of what is made of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.torch.distributions.cases.distributions import tried
from tests.torch.table import Case, T, program

# of two positive inputs a and b
NUMBERS: dict[str, Callable[..., Any]] = {
    "Bernoulli": lambda d, a, b: d.Bernoulli(a / (a + b)),
    "Beta": lambda d, a, b: d.Beta(a, b),
    "Binomial": lambda d, a, b: d.Binomial(5, a / (a + b)),
    "Cauchy": lambda d, a, b: d.Cauchy(a - b, b),
    "ContinuousBernoulli": lambda d, a, b: d.ContinuousBernoulli(a / (a + b)),
    "Exponential": lambda d, a, b: d.Exponential(a),
    "Gamma": lambda d, a, b: d.Gamma(a, b),
    "Chi2": lambda d, a, b: d.Chi2(a),
    "Geometric": lambda d, a, b: d.Geometric(a / (a + b)),
    "Gumbel": lambda d, a, b: d.Gumbel(a - b, b),
    "HalfNormal": lambda d, a, b: d.HalfNormal(a),
    "HalfCauchy": lambda d, a, b: d.HalfCauchy(a),
    "Laplace": lambda d, a, b: d.Laplace(a - b, b),
    "LogNormal": lambda d, a, b: d.LogNormal(a - b, b),
    "Normal": lambda d, a, b: d.Normal(a - b, b),
    "Pareto": lambda d, a, b: d.Pareto(a, 2 * b),
    "Poisson": lambda d, a, b: d.Poisson(a),
    "StudentT": lambda d, a, b: d.StudentT(a),
    "Uniform": lambda d, a, b: d.Uniform(a / 9, a / 9 + b / 9),
    "Uniform of more": lambda d, a, b: d.Uniform(-a - b, a + b + 3),
    "Independent": lambda d, a, b: d.Independent(d.Normal(a - b, b), 1),
}
VECTORS: dict[str, Callable[..., Any]] = {
    "Categorical": lambda torch, d, a, b: d.Categorical(a),
    "Categorical with zeros": lambda torch, d, a, b: d.Categorical((a - 1).clamp(min=0) + torch.eye(2, dtype=a.dtype)[0]),
    "OneHotCategorical": lambda torch, d, a, b: d.OneHotCategorical(a),
    "Dirichlet": lambda torch, d, a, b: d.Dirichlet(a),
    "MultivariateNormal": lambda torch, d, a, b: d.MultivariateNormal(a - b, torch.diag_embed(b) + 0.1),
    "MultivariateNormal of one covariance": lambda torch, d, a, b: d.MultivariateNormal(a, torch.eye(2, dtype=a.dtype) + 0.3),
    "LowRankMultivariateNormal": lambda torch, d, a, b: d.LowRankMultivariateNormal(a - b, a.unsqueeze(-1), b),
    "Wishart": lambda torch, d, a, b: d.Wishart(a[..., 0] + 3, torch.diag_embed(b) + 0.1),
}


def of_numbers(p: str) -> Callable[..., Any]:
    """The divergence of each from one."""

    def run(torch: Any, *inputs: Any) -> Any:
        a, b, c, e = inputs
        d = torch.distributions
        first = NUMBERS[p](d, a, b)
        return [tried(lambda q=q: d.kl_divergence(first, q(d, c, e))) for q in NUMBERS.values()]

    return run


def of_vectors(p: str) -> Callable[..., Any]:
    def run(torch: Any, *inputs: Any) -> Any:
        a, b, c, e = inputs
        d = torch.distributions
        first = VECTORS[p](torch, d, a, b)
        return [tried(lambda q=q: d.kl_divergence(first, q(torch, d, c, e))) for q in VECTORS.values()]

    return run


CASES: list[Case] = [
    *(program(f"from {p}", of_numbers(p), *(T(2, 3, kind="positive") for _ in range(4)), _dtypes="", _second=False, _strides=False)
      for p in NUMBERS),
    *(program(f"from {p}", of_vectors(p), *(T(3, 2, kind="positive") for _ in range(4)), _dtypes="", _second=False, _strides=False)
      for p in VECTORS),
]  # fmt: skip
