"""Cases of dynagraph.torch: what they are.  outcomes.py runs them under one torch or the other, and compares.

A row is one call.  It is run by real torch and by dynagraph.torch, in all forms that real torch has, and everything must agree:

    case("cumsum", T(3, 4), dim=1)                      # torch.cumsum, Tensor.cumsum, Tensor.cumsum_, torch.cumsum(out=)
    case("add", T(2, 3), T(3), alpha=2)
    case("cat", [T(2, 3), T(4, 3)], 0)                  # lists and tuples may hold inputs
    case("log", T(5, kind="positive"))                  # class T says what inputs there are
    case("sum", T(3, 4, layout="T"), (0, -1), keepdim=True)
    case("nn.functional.relu", T(3, 4))                 # dotted names: that function alone (and its `inplace=True`, by hand)
    case("Tensor.view", T(3, 4), 2, 6)                  # the method alone
    case("zeros", 2, 3, dtype=A("int64"))               # A("int64") is torch.int64; A("float32") and so on
    case("gather", T(3, 4), 1, T(3, 2, kind="index:4")) # places below 4, int64
    error("cat", [T(2, 3), T(2, 4)], 0)                 # torch must raise, and dynagraph.torch the same type
    error("view", T(2, 3), 7, _text=True)               # with the same text, too
    program("write to a view", lambda torch, x: x.clone()[0].mul_(2), T(2, 3))   # any function of torch and the inputs

A module under `tests/torch/cases/` has a list ``CASES`` of rows; it is found by its being there.

What is compared
- The result, or each of several: type, values (NaNs where there are NaNs), dtype, shape, strides (of dimensions of more than one
  element), whether it is an input or shares memory with one, `requires_grad`.  What is no tensor by value.
- Gradients by all floating and complex inputs, with fixed random cotangents; and gradients of these gradients.
- The method, where torch has it and the first argument is a `T`.
- The in-place form ``name_``, where torch's Tensor has it: result, that it is its first argument, `_version`, gradients, and that
  int64 gives the same error or values.
- ``out=``, where torch's function takes it: into an empty tensor, and into a transposed one of the right shape.
- Inputs whose dtype is not given are float64 at first; then in each of `DTYPES`: results, and gradients once for halves and complex
  numbers.  Where torch has no such kernel ("not implemented for 'Half'") anything goes; other errors must agree in type.

Options begin with an underscore:
    _grad=False      no gradients; _second=False: no gradients of gradients
    _inplace=False, _out=False, _method=False, _function=False     not in this form
    _dtypes="float32 int64"       only these; "" none besides the base
    _compare="close" (default), "meta" (dtype and shape only: random numbers), "sorted" (values in any order)
    _tolerance=10    so many times the usual one
    _strides=False   strides of results are not compared; _shares=False: nor is whose memory they have
    _grad_fn=True    names of `grad_fn` are compared
    _text=True       of errors: the text

How to run
    python -m tests.torch pointwise     prints what differs, of a module of cases; a second word: only rows with it in their text
    python -m pytest tests/torch/test_conformance.py -k cumsum
    python -m tests.torch.random_rows 0 5000    rows whose arguments are random, by their numbers
    python -m tests.torch.record                records the sample that runs without torch
Packages below `tests/torch` have `cases` and samples of their own: ``python -m tests.torch.distributions``,
``python -m tests.torch.record tests.torch.distributions``.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DTYPES = ("float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool", "complex128")


class T:
    """An input.  `dtype`: by default the one of the variant; `grad`: whether it requires gradients, where its dtype can.

    kind: normal; positive (0.2 to 3); unit (-0.9 to 0.9); ints (few values: ties); distinct (no two are equal); special (with NaN,
    infinities, zeros of both signs); bool; index:N (0 to N-1); psd (positive definite matrices); zeros; ones.
    layout: "" contiguous; T (dimensions reversed); step (every other element of the last dimension); expand (the first dimension
    has stride 0); offset (it begins inside its storage); channels_last.
    """

    def __init__(self, *shape: int, dtype: str = "", kind: str = "normal", layout: str = "", grad: bool = True):
        self.shape, self.dtype, self.kind, self.layout, self.grad = shape, dtype, kind, layout, grad
        if kind.startswith("index") or kind == "bool":
            self.dtype = dtype or ("bool" if kind == "bool" else "int64")

    def __repr__(self) -> str:
        about = list(map(str, self.shape))
        about += [f"{n}={getattr(self, n)}" for n in ("kind", "layout") if getattr(self, n) not in ("", "normal")]
        if self.dtype and self.kind != "bool" and not self.kind.startswith("index"):
            about.append(self.dtype)
        return f"T({', '.join(about)})"


class A:
    """What torch has under a name: ``A("float32")`` is torch.float32."""

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return self.name


@dataclass
class Case:
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    options: dict[str, Any] = field(default_factory=dict)
    raises: bool = False
    function: Callable[..., Any] | None = None  # of torch and the inputs

    def __str__(self) -> str:
        """Its name as a test: the same in each process, or workers that share the tests refuse them all."""
        parts = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.kwargs.items())]
        name = f"{'error ' if self.raises else ''}{self.name}({', '.join(parts)})"
        return re.sub(r" at 0x[0-9a-f]+", "", name)

    def option(self, name: str, default: Any) -> Any:
        return self.options.get(name, default)


_OPTIONS = {
    "grad", "second", "inplace", "out", "method", "function", "dtypes", "compare", "tolerance", "strides", "shares",
    "grad_fn", "text",
}  # fmt: skip


def case(name: str, *args: Any, **kwargs: Any) -> Case:
    """A row: see this module's docstring."""
    options = {k[1:]: kwargs.pop(k) for k in list(kwargs) if k.startswith("_")}
    if unknown := set(options) - _OPTIONS:
        raise TypeError(f"case {name}: no option _{unknown.pop()}")
    return Case(name, args, kwargs, options)


def error(name: str, *args: Any, **kwargs: Any) -> Case:
    """A row that must raise."""
    made = case(name, *args, **kwargs)
    made.raises = True
    return made


def program(name: str, function: Callable[..., Any], *args: Any, **options: Any) -> Case:
    """A row that calls any function of torch and the inputs."""
    made = case(name, *args, **options)
    made.function = function
    return made


def families(only: str = "", package: str = "tests.torch") -> dict[str, list[Case]]:
    """All rows of a package, by the module of its `cases` that they stand in; or those of one module."""
    cases = importlib.import_module(f"{package}.cases")
    names = [m.name for m in pkgutil.iter_modules(cases.__path__) if only in ("", m.name)]
    return {name: importlib.import_module(f"{cases.__name__}.{name}").CASES for name in names}


# -- inputs -----------------------------------------------------------------------------------------------------------


def values_of(spec: T, dtype: str, seed: str) -> np.ndarray:
    """The numbers of an input: the same in every run."""
    rng = np.random.default_rng(zlib.crc32(f"{seed} {spec!r}".encode()))
    shape, kind = spec.shape, spec.kind
    if kind.startswith("index"):
        return np.asarray(rng.integers(0, int(kind.partition(":")[2]), shape))
    if kind in ("zeros", "ones"):
        return np.full(shape, 1.0 if kind == "ones" else 0.0)
    if dtype == "bool":
        return np.asarray(rng.integers(0, 2, shape).astype(bool))
    if kind == "distinct":
        return np.asarray(rng.permutation(math.prod(shape)).reshape(shape) - math.prod(shape) // 3, np.float64)
    if dtype.startswith(("int", "uint")):
        low, high = (1, 9) if kind == "positive" else (0, 9) if dtype.startswith("uint") else (-5, 6)
        return np.asarray(rng.integers(low, high, shape))
    if kind == "ints":
        return np.asarray(rng.integers(-3, 4, shape), np.float64)
    if kind == "special":
        odd = [0.0, -0.0, 1.0, -1.0, 2.5, -0.5, np.inf, -np.inf, np.nan]
        return np.asarray(rng.choice(odd, shape))
    if kind == "psd":
        a = rng.standard_normal(shape)
        return np.asarray(a @ np.swapaxes(a, -1, -2) + np.eye(shape[-1]) * shape[-1])

    def real() -> np.ndarray:
        if kind == "positive":
            return np.asarray(rng.uniform(0.2, 3, shape))
        return np.asarray(rng.uniform(-0.9, 0.9, shape) if kind == "unit" else rng.standard_normal(shape))

    return real() + 1j * real() if dtype.startswith("complex") else real()


def tensor_of(torch: Any, spec: T, base: str, seed: str, grad: bool) -> Any:
    """An input as a leaf."""
    dtype = spec.dtype or base
    values = values_of(spec, dtype, seed)
    order = values
    if spec.layout == "T":
        order = values.transpose()
    elif spec.layout == "channels_last":
        order = np.moveaxis(values, 1, -1)
    elif spec.layout == "step":
        order = np.stack([values, values + 1], -1).reshape(*values.shape[:-1], -1)
    elif spec.layout == "expand":
        order = values[:1]
    elif spec.layout == "offset":
        order = np.concatenate([np.zeros(3), values.reshape(-1)])
    flat = torch.from_numpy(np.array(order, order="C"))
    x = flat.to(getattr(torch, dtype))
    if spec.layout == "T":
        x = x.permute(tuple(reversed(range(len(spec.shape)))))
    elif spec.layout == "channels_last":
        x = x.permute((0, len(spec.shape) - 1, *range(1, len(spec.shape) - 1)))
    elif spec.layout == "step":
        x = x[..., ::2]
    elif spec.layout == "expand":
        x = x.expand(spec.shape)
    elif spec.layout == "offset":
        x = x[3:].view(spec.shape)
    x = x.detach()
    if grad and spec.grad and (dtype.startswith(("float", "bfloat", "complex"))):
        x.requires_grad_(True)
    return x


class Inputs:
    """The arguments of a case for one torch; `leaves` are its tensors."""

    def __init__(self, torch: Any, case: Case, dtype: str, grad: bool):
        self.torch, self.case, self.dtype, self.grad = torch, case, dtype, grad
        self.leaves: list[Any] = []
        self.args = [self._resolved(a) for a in case.args]
        self.kwargs = {k: self._resolved(v) for k, v in case.kwargs.items()}

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, T):
            made = tensor_of(self.torch, value, self.dtype, f"{self.case} {len(self.leaves)}", self.grad)
            self.leaves.append(made)
            return made
        if isinstance(value, A):
            return attribute(self.torch, value.name)
        if isinstance(value, slice):
            return slice(*map(self._resolved, (value.start, value.stop, value.step)))
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._resolved, value))
        if isinstance(value, dict):
            return {k: self._resolved(v) for k, v in value.items()}
        return value


def attribute(torch: Any, name: str) -> Any:
    found = torch
    for part in name.split("."):
        found = getattr(found, part)
    return found


def specs(case: Case) -> Iterator[Any]:
    stack = [*case.args, *case.kwargs.values()]
    while stack:
        value = stack.pop()
        if isinstance(value, (list, tuple)):
            stack += value
        else:
            yield value
