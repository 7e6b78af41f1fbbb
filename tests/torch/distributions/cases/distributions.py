"""torch.distributions: what each distribution computes on fixed parameters, its shapes, gradients and errors.

Random numbers are compared where they are PyTorch's own stream; of others the shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.torch.distributions.tools import seed, wrong
from tests.torch.table import Case, T, program

P, R, U = (lambda *s: T(*s, kind="positive")), (lambda *s: T(*s)), (lambda *s: T(*s, kind="unit"))  # positive, real, in (-1, 1)


def _half(x: Any) -> Any:
    return (x + 1) / 2


# name: [(parameters, what makes them of the inputs, a value of the support made of x, other arguments)]
Row = tuple[str, tuple[Any, ...], Callable[..., Any], Callable[..., Any]]
_SELF: Callable[..., Any] = lambda torch, x: x  # noqa: E731
_POSITIVE: Callable[..., Any] = lambda torch, x: x.exp()  # noqa: E731
_UNIT: Callable[..., Any] = lambda torch, x: torch.sigmoid(x)  # noqa: E731
_COUNT: Callable[..., Any] = lambda torch, x: (x.abs() * 3).floor()  # noqa: E731
_BOOL: Callable[..., Any] = lambda torch, x: (x > 0).to(x.dtype)  # noqa: E731


def _simplex(n: int) -> Callable[..., Any]:
    return lambda torch, x: torch.softmax(torch.stack([x * k for k in range(1, n + 1)], -1), -1)


def _vector(n: int) -> Callable[..., Any]:
    return lambda torch, x: torch.stack([x * k for k in range(1, n + 1)], -1)


def _make(name: str, *keys: str, **fixed: Any) -> Callable[..., Any]:
    return lambda torch, *inputs: getattr(torch.distributions, name)(**dict(zip(keys, inputs)), **fixed)


def _tril(torch: Any, x: Any) -> Any:
    return x.tril(-1) + torch.diag_embed(x.diagonal(dim1=-2, dim2=-1).abs() + 0.5)


def _mixture(torch: Any, weights: Any, loc: Any, scale: Any) -> Any:
    d = torch.distributions
    return d.MixtureSameFamily(d.Categorical(logits=weights), d.Normal(loc, scale))


def _transformed(torch: Any, loc: Any, scale: Any) -> Any:
    d = torch.distributions
    return d.TransformedDistribution(d.Normal(loc, scale), [d.TanhTransform(), d.AffineTransform(1.0, -2.0), d.ExpTransform()])


ROWS: list[Row] = [
    ("Normal", (R(2, 3), P(3)), _make("Normal", "loc", "scale"), _SELF),
    ("Normal of numbers", (), _make("Normal", loc=0.5, scale=2.0), _SELF),
    ("LogNormal", (R(3), P(3)), _make("LogNormal", "loc", "scale"), _POSITIVE),
    ("HalfNormal", (P(2, 3),), _make("HalfNormal", "scale"), _POSITIVE),
    ("Laplace", (R(2, 3), P(3)), _make("Laplace", "loc", "scale"), _SELF),
    ("Cauchy", (R(2, 3), P(3)), _make("Cauchy", "loc", "scale"), _SELF),
    ("HalfCauchy", (P(3),), _make("HalfCauchy", "scale"), _POSITIVE),
    ("Gumbel", (R(2, 3), P(3)), _make("Gumbel", "loc", "scale"), _SELF),
    ("Uniform", (P(3),), lambda torch, x: torch.distributions.Uniform(-x - 3, x + 3), _SELF),
    ("Exponential", (P(2, 3),), _make("Exponential", "rate"), _POSITIVE),
    ("Gamma", (P(2, 3), P(3)), _make("Gamma", "concentration", "rate"), _POSITIVE),
    ("InverseGamma", (P(2, 3), P(3)), lambda torch, a, b: torch.distributions.InverseGamma(a + 1, b), _POSITIVE),
    ("Chi2", (P(3),), _make("Chi2", "df"), _POSITIVE),
    ("Beta", (P(2, 3), P(3)), _make("Beta", "concentration1", "concentration0"), _UNIT),
    ("Beta of numbers", (), _make("Beta", concentration1=0.5, concentration0=2.0), _UNIT),
    ("Dirichlet", (P(2, 3, 4),), _make("Dirichlet", "concentration"), _simplex(4)),
    ("StudentT", (P(2, 3), R(3), P(3)), lambda torch, n, m, s: torch.distributions.StudentT(2 * n, m, s), _SELF),
    ("FisherSnedecor", (P(3), P(2, 3)), lambda torch, a, b: torch.distributions.FisherSnedecor(a * 2, b * 3), _POSITIVE),
    ("Weibull", (P(3), P(2, 3)), _make("Weibull", "scale", "concentration"), _POSITIVE),
    ("Pareto", (P(3), P(2, 3)), _make("Pareto", "scale", "alpha"), lambda torch, x: x.exp() + 3),
    ("Kumaraswamy", (P(3), P(2, 3)), _make("Kumaraswamy", "concentration1", "concentration0"), _UNIT),
    ("GeneralizedPareto", (R(3), P(3), U(2, 3)), _make("GeneralizedPareto", "loc", "scale", "concentration"),
     lambda torch, x: x.exp() * 0 + 0.1),
    ("VonMises", (R(3), P(2, 3)), _make("VonMises", "loc", "concentration"), _SELF),
    ("ContinuousBernoulli", (U(2, 3),), lambda torch, x: torch.distributions.ContinuousBernoulli(_half(x)), _UNIT),
    ("ContinuousBernoulli of logits", (R(3),), _make("ContinuousBernoulli", "logits"), _UNIT),
    ("Bernoulli", (U(2, 3),), lambda torch, x: torch.distributions.Bernoulli(_half(x)), _BOOL),
    ("Bernoulli of logits", (R(3),), _make("Bernoulli", "logits"), _BOOL),
    ("Geometric", (U(3),), lambda torch, x: torch.distributions.Geometric(_half(x)), _COUNT),
    ("Geometric of logits", (R(3),), _make("Geometric", "logits"), _COUNT),
    ("Binomial", (U(2, 3),), lambda torch, x: torch.distributions.Binomial(9, _half(x)), _COUNT),
    ("Binomial of logits", (R(3),), _make("Binomial", "logits", total_count=9), _COUNT),
    ("NegativeBinomial", (P(2, 3), U(3)), lambda torch, n, x: torch.distributions.NegativeBinomial(n, _half(x)), _COUNT),
    ("Poisson", (P(2, 3),), _make("Poisson", "rate"), _COUNT),
    ("Categorical", (P(2, 3, 4),), _make("Categorical", "probs"), lambda torch, x: (x.abs() * 2).long() % 4),
    ("Categorical of logits", (R(4),), _make("Categorical", "logits"), lambda torch, x: (x.abs() * 2).long() % 4),
    ("OneHotCategorical", (P(3, 4),), _make("OneHotCategorical", "probs"),
     lambda torch, x: torch.nn.functional.one_hot((x.abs() * 2).long() % 4, 4).to(x.dtype)),
    ("OneHotCategoricalStraightThrough", (R(3, 4),), _make("OneHotCategoricalStraightThrough", "logits"),
     lambda torch, x: torch.nn.functional.one_hot((x.abs() * 2).long() % 4, 4).to(x.dtype)),
    ("Multinomial", (P(3, 4),), _make("Multinomial", "probs", total_count=6),
     lambda torch, x: 2 * torch.nn.functional.one_hot((x.abs() * 2).long() % 4, 4).to(x.dtype)),
    ("RelaxedBernoulli", (P(), U(3)), lambda torch, t, x: torch.distributions.RelaxedBernoulli(t, _half(x)), _UNIT),
    ("RelaxedOneHotCategorical", (P(), P(3, 4)), _make("RelaxedOneHotCategorical", "temperature", "probs"), _simplex(4)),
    ("LogisticNormal", (R(3, 2), P(2)), _make("LogisticNormal", "loc", "scale"), _simplex(3)),
    ("MultivariateNormal", (R(3, 2), T(2, 2, kind="psd")), _make("MultivariateNormal", "loc", "covariance_matrix"), _vector(2)),
    ("MultivariateNormal of factors", (R(2), R(3, 2, 2)),
     lambda torch, m, x: torch.distributions.MultivariateNormal(m, scale_tril=_tril(torch, x)), _vector(2)),
    ("MultivariateNormal of precisions", (R(3, 2), T(2, 2, kind="psd")),
     lambda torch, m, x: torch.distributions.MultivariateNormal(m, precision_matrix=x), _vector(2)),
    ("LowRankMultivariateNormal", (R(3, 4), R(4, 2), P(4)), _make("LowRankMultivariateNormal", "loc", "cov_factor", "cov_diag"),
     _vector(4)),
    ("Wishart", (P(3), T(2, 2, kind="psd")), lambda torch, n, x: torch.distributions.Wishart(n + 4, x),
     lambda torch, x: torch.eye(2, dtype=x.dtype) * x.exp()[..., None, None]),
    ("LKJCholesky", (P(3),), lambda torch, x: torch.distributions.LKJCholesky(3, x),
     lambda torch, x: torch.eye(3, dtype=x.dtype).expand(*x.shape, 3, 3)),
    ("MixtureSameFamily", (R(3, 4), R(3, 4), P(3, 4)), _mixture, _SELF),
    ("TransformedDistribution", (R(3), P(3)), _transformed, lambda torch, x: torch.sigmoid(x) + 0.5),
    ("Independent", (R(2, 3), P(3)), lambda torch, m, s: torch.distributions.Independent(torch.distributions.Normal(m, s), 1),
     lambda torch, x: x),
]  # fmt: skip
DEFINED = ("mean", "mode", "variance", "stddev")
OF_VALUE = ("log_prob", "cdf", "icdf")


def tried(compute: Callable[[], Any]) -> Any:
    """What it gives, or the kind of its error."""
    try:
        return compute()
    except (NotImplementedError, AttributeError, RuntimeError, ValueError, AssertionError, IndexError, TypeError) as error:
        return type(error).__name__


def about(make: Callable[..., Any]) -> Callable[..., Any]:
    """Shapes, text, moments and entropy."""

    def run(torch: Any, *inputs: Any) -> Any:
        d = make(torch, *inputs)
        wide = d.expand((5, *d.batch_shape))
        facts = [d.batch_shape, d.event_shape, d.has_rsample, d.has_enumerate_support, repr(d)]
        facts += [wide.batch_shape, wide.event_shape, tried(lambda: repr(d.support)), tried(lambda: d.support.event_dim)]
        if type(d).__name__ != "Multinomial":  # which cannot be asked for its entropy in PyTorch, once it is expanded
            facts.append(tried(lambda: wide.entropy().shape))
        facts.append(tried(lambda: wide.mean.shape))
        return [*facts, *(tried(lambda name=name: getattr(d, name)) for name in DEFINED), tried(d.entropy), tried(d.perplexity)]

    return run


def of_value(make: Callable[..., Any], value_of: Callable[..., Any], name: str) -> Callable[..., Any]:
    def run(torch: Any, x: Any, *inputs: Any) -> Any:
        d = make(torch, *inputs)
        value = torch.sigmoid(x) if name == "icdf" else value_of(torch, x)
        return tried(lambda: getattr(d, name)(value))

    return run


def enumerated(make: Callable[..., Any]) -> Callable[..., Any]:
    def run(torch: Any, *inputs: Any) -> Any:
        d = make(torch, *inputs)
        return tried(d.enumerate_support), tried(lambda: d.enumerate_support(expand=False))

    return run


def drawn(make: Callable[..., Any]) -> Callable[..., Any]:
    """Shapes of samples, and whether they are in the support and have gradients."""

    def run(torch: Any, *inputs: Any) -> Any:
        d = make(torch, *inputs)
        sample = d.sample((4, 2))
        facts = [sample.shape, sample.dtype, sample.requires_grad, bool(tried(lambda: d.support.check(sample).all()))]
        if d.has_rsample:
            sample = d.rsample((4,))
            facts += [sample.shape, sample.requires_grad]
        return [*facts, d.sample().shape]

    return run


# numbers themselves: of those that are made of PyTorch's own stream by the same steps
EXACT = {
    "Normal", "Normal of numbers", "LogNormal", "HalfNormal", "Laplace", "Uniform", "Exponential", "Gumbel", "Cauchy", "Weibull",
    "Pareto", "Kumaraswamy", "GeneralizedPareto", "ContinuousBernoulli", "RelaxedBernoulli", "RelaxedOneHotCategorical",
    "LogisticNormal", "MultivariateNormal", "LowRankMultivariateNormal", "Bernoulli", "Geometric", "TransformedDistribution",
    "Independent",
}  # fmt: skip


def numbers(make: Callable[..., Any]) -> Callable[..., Any]:
    def run(torch: Any, *inputs: Any) -> Any:
        d = make(torch, *inputs)
        with seed(torch, 5):
            return d.rsample((3,)) if d.has_rsample else d.sample((3,))

    return run


def gamma_gradient(torch: Any, a: Any, x: Any) -> Any:
    return torch._standard_gamma_grad(a, x), torch._dirichlet_grad(torch.sigmoid(x), a, a + 1.5)


def with_checks(torch: Any, x: Any) -> Any:
    """Checks that are off, or on by default."""
    d = torch.distributions
    off = d.Normal(x, -x.abs(), validate_args=False)
    d.Distribution.set_default_validate_args(False)
    try:
        default = d.Exponential(-x.abs()).log_prob(x)
    finally:
        d.Distribution.set_default_validate_args(True)
    return off.log_prob(x), default


class _Own:
    """A distribution of somebody's own, and one registered divergence."""

    def __init__(self, torch: Any):
        d = torch.distributions

        class Mine(d.Normal):  # type: ignore[name-defined, misc]
            def __init__(self, loc: Any):
                super().__init__(loc, 1.0)

        class Plain(d.Normal):  # type: ignore[name-defined, misc]
            pass

        self.mine, self.plain = Mine, Plain


def own(torch: Any, x: Any) -> Any:
    kinds, d = _Own(torch), torch.distributions
    a, b = kinds.plain(x, 1.0), kinds.mine(x)
    return (
        type(a.expand((2, *x.shape))).__name__, tried(lambda: b.expand((2, *x.shape))), d.kl_divergence(a, b),
        d.kl_divergence(b, d.Normal(0.0, 2.0)),
    )  # fmt: skip


def bad(**about: Any) -> Callable[..., Any]:
    name = about.pop("name")
    value = about.pop("value", None)

    def run(torch: Any) -> Any:
        made = {k: torch.tensor(v) if isinstance(v, (list, float)) and k != "total_count" else v for k, v in about.items()}
        d = getattr(torch.distributions, name)(**made)
        return d if value is None else d.log_prob(torch.tensor(value) if isinstance(value, list) else value)

    return run


WRONG: list[dict[str, Any]] = [
    {"name": "Normal", "loc": [0.0, 1.0], "scale": [1.0, -1.0]},
    {"name": "Normal", "loc": [float("nan")], "scale": 1.0},
    {"name": "Normal", "loc": "a", "scale": 1.0},
    {"name": "Normal", "loc": [0.0, 1.0], "scale": 1.0, "value": [1.0, 2.0, 3.0]},
    {"name": "Normal", "loc": [0.0, 1.0], "scale": 1.0, "value": [1.0, float("nan")]},
    {"name": "Normal", "loc": 0.0, "scale": 1.0, "value": 3.0},
    {"name": "Uniform", "low": [0.0, 2.0], "high": [1.0, 1.0]},
    {"name": "Uniform", "low": 0.0, "high": 1.0, "value": [2.0]},
    {"name": "Bernoulli"},
    {"name": "Bernoulli", "probs": 0.5, "logits": 0.5},
    {"name": "Bernoulli", "probs": [0.5, 1.5]},
    {"name": "Bernoulli", "probs": 0.5, "value": [0.5]},
    {"name": "Categorical", "probs": 0.5},
    {"name": "Categorical", "logits": 0.5},
    {"name": "Categorical", "probs": [0.5, -0.5, 1.0]},
    {"name": "Categorical", "probs": [0.5, 0.5], "value": [2]},
    {"name": "OneHotCategorical", "probs": [0.5, 0.5], "value": [1.0, 1.0]},
    {"name": "Dirichlet", "concentration": 1.0},
    {"name": "Dirichlet", "concentration": [1.0, 0.0]},
    {"name": "Dirichlet", "concentration": [1.0, 2.0], "value": [0.5, 0.6]},
    {"name": "Multinomial", "total_count": [2], "probs": [0.5, 0.5]},
    {"name": "Multinomial", "total_count": 2, "probs": [0.5, 0.5], "value": [2.0, 1.0]},
    {"name": "MultivariateNormal", "loc": [0.0, 1.0], "covariance_matrix": [[1.0, 2.0], [2.0, 1.0]]},
    {"name": "MultivariateNormal", "loc": [0.0, 1.0]},
    {"name": "MultivariateNormal", "loc": 0.0, "scale_tril": [[1.0]]},
    {"name": "MultivariateNormal", "loc": [0.0], "scale_tril": [1.0]},
    {"name": "MultivariateNormal", "loc": [0.0], "covariance_matrix": [[1.0]], "value": [1.0, 2.0]},
    {"name": "LowRankMultivariateNormal", "loc": [0.0, 1.0], "cov_factor": [[1.0]], "cov_diag": [1.0, 1.0]},
    {"name": "LowRankMultivariateNormal", "loc": [0.0, 1.0], "cov_factor": [[1.0], [1.0]], "cov_diag": [1.0]},
    {"name": "LKJCholesky", "dim": 1},
    {"name": "Geometric", "probs": [0.0, 0.5]},
    {"name": "Poisson", "rate": 1.0, "value": [1.5]},
    {"name": "Binomial", "total_count": 3, "probs": 0.5, "value": [4.0]},
    {"name": "Wishart", "df": 1.0, "covariance_matrix": [[1.0, 0.0], [0.0, 1.0]]},
    {"name": "Wishart", "df": 3.0},
    {"name": "LogNormal", "loc": 0.0, "scale": 1.0, "value": [-1.0]},
]


def classes(torch: Any) -> Any:
    d = torch.distributions
    normal, mixture = d.Normal(torch.zeros(3), 1.0), d.Categorical(torch.ones(2))
    return [
        tried(lambda: d.Independent(normal, 2)), tried(lambda: d.TransformedDistribution(normal, 3)),
        tried(lambda: d.TransformedDistribution(normal, [3])), tried(lambda: d.MixtureSameFamily(normal, normal)),
        tried(lambda: d.MixtureSameFamily(mixture, normal)), tried(lambda: d.MixtureSameFamily(mixture, 3)),
        tried(lambda: d.Distribution().mean), tried(lambda: d.Distribution(validate_args=False).mode),
        tried(lambda: d.StickBreakingTransform()(torch.zeros(()))), tried(lambda: d.kl_divergence(mixture, normal)),
        repr(d.Independent(normal, 1)), repr(d.MixtureSameFamily(
            d.Categorical(torch.ones(3)), normal)),
    ]  # fmt: skip


CASES: list[Case] = [
    *(program(f"{name}: about", about(make), *inputs, _dtypes="float32", _tolerance=30, _strides=False, _shares=False,
              _second=False) for name, inputs, make, _ in ROWS),
    *(program(f"{name}.{which}", of_value(make, value, which), T(2, 3), *inputs, _dtypes="float32", _tolerance=30, _strides=False,
              _second=which == "log_prob") for name, inputs, make, value in ROWS for which in OF_VALUE),
    *(program(f"{name}.enumerate_support", enumerated(make), *inputs, _dtypes="", _grad=False, _strides=False)
      for name, inputs, make, _ in ROWS if name.startswith(("Bern", "Bin", "Cat", "OneHotCategorical", "Normal"))),
    *(program(f"{name}.sample", drawn(make), *inputs, _dtypes="", _second=False) for name, inputs, make, _ in ROWS),
    *(program(f"{name}: numbers", numbers(make), *inputs, _dtypes="", _second=False, _strides=False)
      for name, inputs, make, _ in ROWS if name in EXACT),
    program("gradients of gamma numbers", gamma_gradient, P(30), P(30), _dtypes="", _grad=False, _tolerance=1e6),
    program("checks that are off", with_checks, P(3), _dtypes=""),
    program("subclasses", own, R(3), _dtypes=""),
    program("classes", classes),
    *(wrong(f"wrong {dict(row)}", bad(**row)) for row in WRONG),
]  # fmt: skip
