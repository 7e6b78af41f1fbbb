"""Reductions and scans."""

from __future__ import annotations

from tests.torch.table import A, Case, T, case, error, program

SUMS = "sum mean nansum nanmean prod amax amin".split()
SPREADS = "var std var_mean std_mean".split()
PLACES = "argmax argmin".split()
TRUTHS = "any all count_nonzero".split()
SCANS = "cumsum cumprod cummax cummin logcumsumexp".split()

CASES: list[Case] = [
    *(case(name, T(5), 0) for name in [*SUMS, *SPREADS, *PLACES, *TRUTHS, *SCANS, "max", "min", "logsumexp"]),
    *(case(name, T(5), 0, keepdim=True) for name in [*SUMS, *SPREADS, *PLACES, "any", "all", "max", "min", "logsumexp"]),
    *(case(name, T(3, 4)) for name in [*SUMS, *SPREADS, *PLACES, *TRUTHS, "max", "min", "aminmax"]),
    *(case(name, T(3, 4), 1) for name in [*SUMS, *SPREADS, *PLACES, *TRUTHS, *SCANS, "max", "min", "logsumexp"]),
    *(case(name, T(3, 4), -2, keepdim=True) for name in [*SUMS, *SPREADS, *PLACES, "any", "all", "max", "min", "logsumexp"]),
    *(case(name, T(2, 3, 4), (0, -1)) for name in [*SUMS, *SPREADS, *TRUTHS, "logsumexp"] if name != "prod"),
    *(case(name, T(2, 3, 4), (0, 2), keepdim=True) for name in [*SUMS, *SPREADS, "any", "all", "logsumexp"] if name != "prod"),
    *(case(name, T(2, 3, 4), dim=[1]) for name in [*SUMS, *SPREADS, *TRUTHS, "logsumexp"] if name != "prod"),
    *(case(name, T(2, 3), dim=()) for name in ("sum", "mean", "amax", "any", "nansum")),
    *(case(name, T(2, 3), dim=None) for name in ("sum", "mean", "prod", "any", "argmax", "nansum", "std") if name != "prod"),
    *(case(name, T()) for name in [*SUMS, *PLACES, *TRUTHS, "max", "min", "std"] if name != "std"),
    case("std", T(), unbiased=False),
    *(case(name, T(), 0) for name in [*SUMS, *PLACES, *SCANS, "max", "min", "any", "logsumexp"]),
    *(case(name, T(), -1, keepdim=True) for name in ("sum", "mean", "max", "argmax", "any", "amax", "prod", "logsumexp")),
    *(case(name, T(0, 3)) for name in ("sum", "mean", "nansum", "prod", "any", "all", "count_nonzero", "var", "std")),
    *(case(name, T(0, 3), 0) for name in ("sum", "mean", "prod", "any", "all", "var", "logsumexp", "cumsum", "cumprod", "cummax")),
    *(case(name, T(0, 3), 1) for name in ("sum", "mean", "prod", "any", "all", "amax", "max", "argmax", "cumsum", "logsumexp")),
    *(error(name, T(0, 3)) for name in ("max", "min", "amax", "amin", "argmax", "argmin", "aminmax")),
    *(error(name, T(0, 3), 0) for name in ("max", "min", "amax", "amin", "argmax", "argmin")),
    *(case(name, T(3, 4, kind="special"), *a, _grad=False, _inplace=False, _out=False, _dtypes="float32 bfloat16")
      for name in [*SUMS, *SPREADS, *PLACES, *TRUTHS, "max", "min", "aminmax"] for a in ((), (1,))
      if not (a and name in ("aminmax", "var_mean", "std_mean"))),
    *(case(name, T(3, 4, kind="special"), 1, _grad=False, _inplace=False, _out=False, _dtypes="") for name in [*SCANS, "logsumexp"]),
    *(case(name, T(3, 4, kind="ints"), *a, _inplace=False, _out=False)
      for name in ("prod", "amax", "amin", "max", "min", "argmax", "argmin") for a in ((), (1,))),
    *(case(name, T(3, 4, kind="ints"), 1, _inplace=False) for name in [*SCANS, "logsumexp"]),
    *(case(name, T(3, 5, kind="zeros")) for name in ("prod", "std", "var", "amax", "max", "any", "all")),
    *(case("cumprod", T(3, 4, kind=kind), 1) for kind in ("zeros", "positive")),
    *(case("cumprod", T(n, kind="zeros"), 0, _dtypes="") for n in (1, 2, 7)),
    *(case(name, T(3, 4, layout=layout), 0, _dtypes="") for name in ("sum", "amax", "cumsum", "max", "argmax", "prod")
      for layout in ("T", "step", "expand")),
    *(case(name, T(2, 3, 4, layout="T"), (0, 2), _dtypes="") for name in ("sum", "mean", "amax")),
    case("sum", T(2, 3, 4, 5, layout="channels_last"), 2, _dtypes=""),
    *(case("sum", T(3, 4), dtype=A(d), _grad=d.startswith("float")) for d in ("float32", "int64", "float64", "complex128")),
    *(case(name, T(3, 4, dtype="int32"), dtype=A("float32")) for name in ("sum", "mean", "prod", "nansum")),
    *(case(name, T(3, 4, dtype="int32"), 0, dtype=A("float64")) for name in ("cumsum", "cumprod", "mean")),
    *(case(name, T(3, 4), unbiased=False) for name in SPREADS),
    *(case(name, T(3, 4), 1, unbiased=False) for name in SPREADS),
    *(case(name, T(3, 4), False) for name in SPREADS),
    *(case(name, T(3, 4), 1, False, True) for name in SPREADS),
    *(case(name, T(3, 4), dim=1, correction=0) for name in SPREADS),
    *(case(name, T(3, 4), dim=(0, 1), correction=2, keepdim=True) for name in SPREADS),
    *(case(name, T(1, 4), 0, _grad=False) for name in SPREADS),
    *(case(name, T(3, 4, kind="ones"), 0) for name in SPREADS),
    case("argmax", T(3, 4), None, True),
    case("argmin", T(3, 4), dim=0, keepdim=True),
    case("aminmax", T(3, 4), dim=1),
    case("aminmax", T(3, 4), dim=0, keepdim=True),
    case("max", T(3, 4), T(4)),
    case("min", T(3, 4), T(4)),
    case("max", T(3, 4), dim=1, keepdim=True),
    case("norm", T(3, 4)),
    *(case("norm", T(3, 4), p, 1) for p in (1, 2, 0.5, 3, float("inf"), float("-inf"))),
    case("norm", T(3, 4), "fro", (0, 1), True),
    case("norm", T(3, 4, kind="zeros"), 2, 1, _second=False),
    case("norm", T(3, 4, dtype="float32"), dtype=A("float64")),
    case("sum", T(1000, dtype="bfloat16", kind="ones"), _grad=False),
    case("sum", T(3000, dtype="float16", kind="ones"), 0, _grad=False),
    case("mean", T(3000, dtype="float16", kind="ones"), 0, _grad=False),
    case("diff", T(3, 5)),
    case("diff", T(3, 5), 2, 0),
    case("diff", T(5), prepend=T(1), append=T(2)),
    case("cov", T(3, 5)),
    case("cov", T(5)),
    case("cov", T(3, 5), correction=0),
    case("corrcoef", T(3, 5)),
    case("trapezoid", T(3, 5)),
    case("trapezoid", T(3, 5), T(5)),
    case("trapezoid", T(3, 5), dx=0.5, dim=0),
    case("trapz", T(3, 5)),
    case("cumulative_trapezoid", T(3, 5)),
    case("cumulative_trapezoid", T(3, 5), T(5)),
    case("std", T(2, 3, dtype="complex128"), 0, _second=False),
    *(case(name, T(2, 3), dim=0, correction=n) for name in ("std", "var", "var_mean") for n in (2, 3)),
    case("var", T(1, 3), dim=0),
    program("max of NaNs", lambda torch, x: torch.max(x * torch.tensor([float("nan"), 1, float("nan")], dtype=x.dtype)), T(3), _dtypes="", _second=False),
    error("sum", T(3, 4), 5, _text=True),
    error("sum", T(3, 4), (0, 0), _text=True),
    error("sum", T(3, 4), 1.5),
    error("sum", T(3, 4), "a"),
    error("sum", 3),
    error("mean", T(3, dtype="int64"), _text=True),
    error("std", T(3, dtype="int64"), _text=True),
    error("prod", T(3, 4), (0, 1)),
    error("max", T(3, 4), (0, 1)),
    error("max", T(3, 4), 2),
    error("cumsum", T(3, 4), 2, _text=True),
    error("cumsum", T(3, 4)),
    error("logsumexp", T(3, 4), 3),
    error("argmax", T(3, 4), 2, _text=True),
    error("max", T(3, dtype="complex128")),
    *(program(f"{name} in the dtype of out", lambda torch, x, name=name, d=d: _into(torch, name, x, d), T(3, 4, grad=False), _grad=False)
      for name in ("sum", "mean", "prod", "nansum", "cumsum", "cumprod") for d in ("float64", "float32", "float16", "complex64")),
    *(program(f"{name} as ints", lambda torch, x, name=name, d=d: _into(torch, name, x, d), T(3, 4, grad=False), _grad=False)
      for name in ("sum", "prod", "nansum", "cumsum", "argmax") for d in ("int64", "int8")),
    *(program(f"{name} in a dtype other than that of out", lambda torch, x, name=name: _into(torch, name, x, "float64", dtype=torch.float32),
              T(3, 4, grad=False), _grad=False, _dtypes="int64") for name in ("sum", "mean", "cumsum")),
    *(program(f"{name} whose result is written to", lambda torch, x, name=name, n=n: _changed_result(torch, name, x, n), T(*shape), _grad=False,
              _dtypes="") for name in ("prod", "cumprod") for shape in ((1,), (3,), (2, 1)) for n in (0, -1)),
    program("prod of a number whose result is written to", lambda torch, x: _changed_result(torch, "prod", x), T(), _grad=False, _dtypes=""),
    program("gradients need distinct outs", lambda torch, x: _out_of(torch, x), T(3), _grad=False, _dtypes="float32 complex128"),
]


def _into(torch, name, x, into, **given):  # type: ignore[no-untyped-def]
    try:
        return getattr(torch, name)(x, 0, out=torch.empty(0, dtype=getattr(torch, into)), **given)
    except (RuntimeError, NotImplementedError) as error:
        return str(error) if "Expected out" in str(error) else type(error).__name__


def _changed_result(torch, name, x, *dim):  # type: ignore[no-untyped-def]
    result = getattr(torch, name)(x * 1, *dim)
    result.add_(1)
    try:
        result.sum().backward()
    except RuntimeError as error:
        return str(error)[:200]
    return "nothing"


def _out_of(torch, x):  # type: ignore[no-untyped-def]
    target = torch.zeros((), dtype=x.dtype, requires_grad=x.dtype.is_floating_point)
    try:
        torch.sum(x, 0, out=target)
    except RuntimeError as error:
        return str(error)
    return "nothing"
