"""Transforms, regions, and the registries of transforms to regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.torch.distributions.cases.distributions import tried
from tests.torch.table import Case, T, program

MADE: dict[str, tuple[Callable[..., Any], tuple[int, ...]]] = {
    "exp": (lambda torch, d: d.ExpTransform(), (2, 3)),
    "power": (lambda torch, d: d.ComposeTransform([d.ExpTransform(), d.PowerTransform(torch.tensor(1.5).double())]), (2, 3)),
    "sigmoid": (lambda torch, d: d.SigmoidTransform(), (2, 3)),
    "softplus": (lambda torch, d: d.SoftplusTransform(), (2, 3)),
    "tanh": (lambda torch, d: d.TanhTransform(), (2, 3)),
    "abs": (lambda torch, d: d.AbsTransform(), (2, 3)),
    "affine": (lambda torch, d: d.AffineTransform(1.0, -2.0), (2, 3)),
    "affine of vectors": (lambda torch, d: d.AffineTransform(torch.zeros(3).double(), torch.full((3,), -2.0).double(), 1), (2, 3)),
    "softmax": (lambda torch, d: d.SoftmaxTransform(), (2, 3)),
    "sticks": (lambda torch, d: d.StickBreakingTransform(), (2, 3)),
    "correlations": (lambda torch, d: d.CorrCholeskyTransform(), (2, 6)),
    "triangles": (lambda torch, d: d.LowerCholeskyTransform(), (2, 3, 3)),
    "definite": (lambda torch, d: d.PositiveDefiniteTransform(), (2, 3, 3)),
    "reshape": (lambda torch, d: d.ReshapeTransform((6,), (2, 3)), (4, 6)),
    "independent": (lambda torch, d: d.IndependentTransform(d.ExpTransform(), 1), (2, 3)),
    "identity": (lambda torch, d: d.identity_transform, (2, 3)),
    "inverse": (lambda torch, d: d.SigmoidTransform().inv.inv, (2, 3)),
    "composed": (lambda torch, d: d.ComposeTransform([d.AffineTransform(0.5, 2.0), d.TanhTransform(), d.ExpTransform()]), (2, 3)),
    "of vectors": (
        lambda torch, d: d.ComposeTransform([d.ExpTransform(), d.ExpTransform().inv, d.StickBreakingTransform()]), (2, 3),
    ),
    "cat": (lambda torch, d: d.CatTransform([d.ExpTransform(), d.AffineTransform(0.0, 3.0)], dim=1, lengths=[1, 2]), (2, 3)),
    "cat of vectors": (lambda torch, d: d.CatTransform([d.SoftmaxTransform(), d.ExpTransform()], dim=0, lengths=[1, 1]), (2, 3)),
    "stack": (lambda torch, d: d.StackTransform([d.ExpTransform(), d.TanhTransform()], dim=0), (2, 3)),
    "distribution": (lambda torch, d: d.CumulativeDistributionTransform(d.Normal(0.5, 2.0)), (2, 3)),
}  # fmt: skip


def transform(name: str) -> Callable[..., Any]:
    """What it makes of a tensor and back, its determinant, regions and shapes."""

    def run(torch: Any, x: Any) -> Any:
        made = MADE[name][0](torch, torch.distributions)
        y = made(x)
        facts = [y, tried(lambda: made.inv(y)), tried(lambda: made.log_abs_det_jacobian(x, y)), tried(lambda: made.sign)]
        facts += [repr(made), repr(made.inv), tried(lambda: bool(made.bijective)), tried(lambda: made.event_dim)]
        facts += [tried(lambda: made.domain.event_dim), tried(lambda: made.codomain.event_dim), tried(lambda: repr(made.domain))]
        facts += [tried(lambda: made.forward_shape(x.shape)), tried(lambda: made.inverse_shape(y.shape))]
        facts += [tried(lambda: bool(made.codomain.check(y).all())), made == MADE[name][0](torch, torch.distributions)]
        again = tried(lambda: made.with_cache(1))
        if not isinstance(again, str):
            facts += [again.with_cache(1) is again, tried(lambda: again.inv(again(x)) is x)]
        return facts

    return run


REGIONS: dict[str, Callable[..., Any]] = {
    **{name: (lambda torch, c, name=name: getattr(c, name)) for name in (
        "real", "positive", "nonnegative", "unit_interval", "boolean", "nonnegative_integer", "positive_integer", "real_vector",
        "simplex", "one_hot", "lower_triangular", "lower_cholesky", "corr_cholesky", "square", "symmetric", "positive_semidefinite",
        "positive_definite", "dependent",
    )},
    "greater_than": lambda torch, c: c.greater_than(0.5),
    "greater_than_eq": lambda torch, c: c.greater_than_eq(torch.tensor(0.5).double()),
    "less_than": lambda torch, c: c.less_than(0.5),
    "interval": lambda torch, c: c.interval(-0.5, 1.5),
    "half_open_interval": lambda torch, c: c.half_open_interval(0.0, 1.0),
    "integer_interval": lambda torch, c: c.integer_interval(0, 2),
    "multinomial": lambda torch, c: c.multinomial(3),
    "independent": lambda torch, c: c.independent(c.positive, 1),
    "cat": lambda torch, c: c.cat([c.positive, c.real], 0, [1, 2]),
    "stack": lambda torch, c: c.stack([c.positive, c.real, c.unit_interval], 0),
    "mixture": lambda torch, c: c.MixtureSameFamilyConstraint(c.positive),
}  # fmt: skip


def region(name: str) -> Callable[..., Any]:
    """What is in it, and the transforms to it."""

    def run(torch: Any, x: Any) -> Any:
        d = torch.distributions
        made = REGIONS[name](torch, d.constraints)
        values = (x, x.abs().floor(), torch.eye(3, dtype=x.dtype), x @ x.mT, torch.softmax(x, -1), x.tril().abs())
        facts = [tried(lambda v=v: made.check(v)) for v in values]
        facts += [repr(made), tried(lambda: made.event_dim), tried(lambda: made.is_discrete), d.constraints.is_dependent(made)]
        for registry in (d.biject_to, d.transform_to):
            facts.append(tried(lambda registry=registry: registry(made)(x)))
        return facts

    return run


def registered(torch: Any, x: Any) -> Any:
    d = torch.distributions

    class Even(d.constraints.Constraint):  # type: ignore[name-defined, misc]
        pass

    registry = type(d.biject_to)()
    registry.register(Even, lambda c: d.ExpTransform())
    decorated = registry.register(d.constraints.real)(lambda c: d.identity_transform)
    return registry(Even())(x), decorated(None) is d.identity_transform, tried(lambda: registry.register(3, 4)), repr(Even())


CASES: list[Case] = [
    *(program(f"{name}", transform(name), T(*shape), _dtypes="", _second=False, _strides=False, _shares=False)
      for name, (_, shape) in MADE.items()),
    *(program(f"in {name}", region(name), T(3, 3), _dtypes="", _second=False, _strides=False, _shares=False) for name in REGIONS),
    program("registered", registered, T(3), _dtypes=""),
]  # fmt: skip
