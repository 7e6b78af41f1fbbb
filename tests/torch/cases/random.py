"""Random tensors: shapes, dtypes, gradients and errors; their numbers are in tests/torch/test_random.py."""

from __future__ import annotations

from typing import Any

from tests.torch.table import A, Case, T, case, error, program

META: dict[str, Any] = {"_compare": "meta"}


def _drawn(name: str, *args: Any) -> Any:
    """Of a tensor with history that is filled: what is left of it, and of its gradient."""

    def run(torch: Any, x: Any) -> Any:
        y = x * 2
        result = getattr(y, name)(*args)
        (gradient,) = torch.autograd.grad(y.sum(), x)
        return result is y, y._version, y.grad_fn.name(), gradient

    return run


FILLS: list[tuple[str, tuple[Any, ...]]] = [
    ("uniform_", ()), ("normal_", ()), ("exponential_", ()), ("geometric_", (0.4,)), ("cauchy_", ()), ("log_normal_", ()),
    ("random_", (4,)), ("bernoulli_", ()),
]  # fmt: skip
CASES: list[Case] = [
    *(case(name, 2, 3, **META) for name in ("rand", "randn")),
    *(case(name, (2, 0), dtype=A(d), **META) for name in ("rand", "randn") for d in ("float64", "float16", "complex64")),
    *(case(name, [3], requires_grad=True, **META) for name in ("rand", "randn")),
    case("rand", size=(2,), **META),
    case("rand", (), **META),
    error("rand"),
    case("randint", 5, (2, 3), **META),
    case("randint", -2, 5, (3,), dtype=A("int16"), **META),
    case("randint", 2, 5, size=(3,), dtype=A("float32"), **META),
    case("randint", high=5, low=2, size=(3,), **META),
    case("randperm", 0, **META),
    case("randperm", 7, dtype=A("int32"), **META),
    case("randperm", 7, dtype=A("float32"), **META),
    case("normal", 0.0, 1.0, (2, 3), **META),
    case("normal", T(2, 3), 2.0, _out=False, **META),
    case("normal", T(2, 3), _out=False, **META),
    case("normal", 1.0, T(2, 3, kind="positive"), _dtypes="float32", **META),
    case("normal", T(2, 1), T(3, kind="positive"), _dtypes="float32 float16", **META),
    *(case(name, T(2, 3, 4, layout=lay), **META) for name in ("rand_like", "randn_like") for lay in ("", "T", "expand", "step")),
    case("rand_like", T(2, 3, layout="T"), dtype=A("float32"), memory_format=A("contiguous_format"), **META),
    case("randint_like", T(2, 3), 4, **META),
    case("randint_like", T(2, 3), -4, 4, **META),
    case("bernoulli", T(2, 3, kind="zeros"), _inplace=False),
    case("bernoulli", T(2, 3, kind="ones", layout="T"), _inplace=False),
    case("bernoulli", T(2, 3), 0.5, **META),
    case("bernoulli", T(2, 3), p=1.0, _inplace=False),
    case("poisson", T(2, 3, kind="positive"), _dtypes="float32 float16", **META),
    case("poisson", T(2, 3, kind="zeros")),
    case("binomial", T(3, 2, kind="ones"), T(2, kind="ones"), _dtypes="float32"),
    case("multinomial", T(4, kind="positive"), 2, _dtypes="float32 float16", **META),
    case("multinomial", T(3, 4, kind="positive"), 5, True, _dtypes="float32", **META),
    case("multinomial", T(3, 4, kind="positive"), 1, _dtypes="float32", **META),
    *(program(f"gradients of {name}", _drawn(name, *args), T(2, 3), _dtypes="", **META) for name, args in FILLS),
    *(case(f"Tensor.{name}", T(2, 3, grad=False), *args, _grad=False, **META) for name, args in FILLS),
    *(case(f"Tensor.{name}", T(0, grad=False), *args, _grad=False, _dtypes="", **META) for name, args in FILLS),
    case("Tensor.random_", T(3, grad=False), 3, 4, _grad=False, _dtypes="float32 int64 uint8"),
    case("Tensor.uniform_", T(3, grad=False), 2, 2, _grad=False, _dtypes="float32"),
    case("Tensor.normal_", T(3, grad=False), 2, 0, _grad=False, _dtypes="float32"),
    case("Tensor.bernoulli_", T(3, grad=False), T(3, kind="ones"), _grad=False, _dtypes="float32 int64"),
    error("rand", 2, -3),
    error("rand", 2, dtype=A("int64")),
    error("rand", 2.5),
    error("randint", 5, 5, (2,), _text=True),
    error("randint", 0, 300, (2,), dtype=A("uint8")),
    error("randperm", -1),
    error("normal", 0.0, -1.0, (2,), _text=True),
    error("normal", T(3), -1.0),
    error("normal", T(3), T(3)),
    error("bernoulli", T(3, kind="ints")),
    error("bernoulli", T(3), 1.5, _text=True),
    error("bernoulli", T(3, dtype="int64")),
    error("poisson", T(3, kind="ints")),
    error("multinomial", T(2, 2, 2, kind="ones"), 1, _text=True),
    error("multinomial", T(3, kind="ones"), 4, _text=True),
    error("multinomial", T(3, kind="ones"), 0, _text=True),
    error("multinomial", T(3, kind="zeros"), 1, _text=True),
    error("multinomial", T(3, kind="special"), 1, _text=True),
    error("multinomial", T(3, dtype="int64"), 1, _text=True),
    error("Tensor.uniform_", T(3, grad=False), 1, 0, _text=True),
    error("Tensor.normal_", T(3, grad=False), 1, -1, _text=True),
    error("Tensor.exponential_", T(3, grad=False), 0, _text=True),
    error("Tensor.exponential_", T(3, dtype="int64"), _text=True),
    error("Tensor.geometric_", T(3, grad=False), 1, _text=True),
    error("Tensor.geometric_", T(3, grad=False)),
    error("Tensor.cauchy_", T(3, grad=False), 0, 0, _text=True),
    error("Tensor.log_normal_", T(3, grad=False), 0, 0, _text=True),
    error("Tensor.random_", T(3, grad=False), 5, 5, _text=True),
    error("Tensor.random_", T(3, dtype="uint8"), 0, 257, _text=True),
    error("Tensor.bernoulli_", T(3, grad=False), 2, _text=True),
    error("Tensor.uniform_", T(3, layout="expand", grad=False)),
    error("Tensor.uniform_", T(3, grad=False), 0, 1, 2),
]
