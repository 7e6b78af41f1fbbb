"""Random programs of tensors: views, writes in place, indexing, gradients, under both torches.

A program is a list of steps, plain data: a name and random numbers.  What a step does depends on the tensors that there are
by then, so any part of a program is a program, which is how a failing one is made small:

    python -m tests.torch.programs 1234      a program by its number, made small if it fails
    python -m tests.torch.programs 0 5000    those from one number to another
"""

from __future__ import annotations

import random
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

LARGEST = 40  # elements: larger results are dropped
MOST = 12  # tensors: the oldest results go


@dataclass
class Step:
    name: str
    numbers: tuple[int, ...]
    no_grad: bool = False

    def __str__(self) -> str:
        return f"{'no_grad ' if self.no_grad else ''}{self.name}{self.numbers}"


class State:
    """The tensors of a program under one torch."""

    def __init__(self, torch: Any):
        self.torch = torch
        self.tensors: list[Any] = []
        self.made = 0

    def pick(self, number: int) -> Any:
        return self.tensors[number % len(self.tensors)]

    def number(self, number: int) -> float:
        return ((number * 37) % 41 - 20) / 8

    def fresh(self, shape: tuple[int, ...], seed: int, dtype: str = "float64") -> Any:
        rng = np.random.default_rng(seed)
        values = rng.integers(-4, 5, shape) if dtype == "int64" else rng.integers(-16, 17, shape) / 8
        return self.torch.from_numpy(np.asarray(values)).to(getattr(self.torch, dtype))

    # What test_compiled_programs.py replaces: choices that are no part of a program of tensors.

    def key(self, x: Any, a: int, b: int, c: int) -> Any:
        return _key(x, a, b, c)

    def places(self, x: Any, a: int, b: int) -> Any:
        return _places(self, x, a, b)

    def like(self, x: Any, a: int, b: int) -> Any:
        return _like(self, x, a, b)

    def apart(self, x: Any, other: Any) -> Any:
        return _apart(x, other)


def _dim(x: Any, number: int) -> int:
    return number % (2 * max(x.ndim, 1)) - max(x.ndim, 1)


SHAPES: list[tuple[int, ...]] = [(), (3,), (2, 3), (3, 1), (2, 2, 2), (4,), (1, 3), (3, 3), (0,), (2, 0)]


def _leaf(s: State, a: int, b: int, c: int) -> Any:
    dtype = ("float64", "float64", "float64", "float32", "int64")[b % 5]
    x = s.fresh(SHAPES[a % len(SHAPES)], c, dtype)
    return x.requires_grad_() if c % 3 and dtype != "int64" else x


def _key(x: Any, a: int, b: int, c: int) -> Any:
    """A key that is all views."""
    rng = random.Random(a * 7919 + b * 31 + c)
    key: list[Any] = []
    for n in list(x.shape)[: rng.randrange(x.ndim + 1)]:
        kind = rng.randrange(5)
        if kind == 0 and n:
            key.append(rng.randrange(-n, n))
        elif kind == 1:
            key.append(slice(rng.randrange(n + 1), None))
        elif kind == 2:
            key.append(slice(None, None, 2))
        elif kind == 3:
            key.append(None)
            key.append(slice(None))
        else:
            key.append(slice(None))
    if rng.random() < 0.2:
        key.append(...)
    return tuple(key)


def _places(s: State, x: Any, a: int, b: int) -> Any:
    """A key with places or a mask."""
    rng = random.Random(a * 977 + b)
    kind = rng.randrange(4)
    if not x.ndim or kind == 0:
        return x > s.number(b)
    n = x.shape[0]
    places = [rng.randrange(-n, n) for _ in range(rng.randrange(1, 4))] if n else []
    if kind == 1 or x.ndim == 1:
        return s.torch.tensor(places, dtype=s.torch.int64)
    if kind == 2:
        m = x.shape[1]
        return (s.torch.tensor(places, dtype=s.torch.int64), slice(None) if not m else rng.randrange(m))
    m = x.shape[1]
    return (slice(None), s.torch.tensor([rng.randrange(m) for _ in range(2)] if m else [], dtype=s.torch.int64))


def _reshaped(x: Any, a: int) -> tuple[int, ...]:
    n = x.numel()
    shapes = [(n,), (-1, 1), (1, n)]
    shapes += [(k, n // k) for k in range(2, n) if n % k == 0]
    return shapes[a % len(shapes)]


def _like(s: State, x: Any, a: int, b: int) -> Any:
    """Another tensor that broadcasts to `x`, one of the program's where possible."""
    fits = [t for t in s.tensors if t.ndim <= x.ndim and all(m in (1, n) for m, n in zip(reversed(t.shape), reversed(x.shape)))]
    return fits[a % len(fits)] if fits and b % 3 else s.fresh(tuple(x.shape)[a % (x.ndim + 1) :], a)


UNARY = (
    "sin", "cos", "tanh", "sigmoid", "neg", "abs", "exp", "square", "clone", "floor", "sign", "reciprocal", "relu", "detach",
    "contiguous",
)  # fmt: skip
CHANGES = ("sin_", "tanh_", "neg_", "abs_", "zero_", "square_", "sigmoid_", "floor_", "exp_")
REDUCTIONS = ("sum", "mean", "amax", "prod", "cumsum", "cumprod", "logsumexp")


def _guarded(x: Any) -> Any:
    return x if x.numel() <= LARGEST else x.reshape(-1)[:LARGEST]


def _backward(s: State, a: int, b: int, c: int) -> Any:
    x = s.pick(a)
    gradient = None if not x.ndim else s.fresh(tuple(x.shape), b, str(x.dtype).removeprefix("torch."))
    x.backward(gradient, retain_graph=bool(c % 3))


def _grad(s: State, a: int, b: int, c: int) -> Any:
    x, y = s.pick(a), s.pick(b)
    weights = s.fresh(tuple(x.shape), c, str(x.dtype).removeprefix("torch."))
    (found,) = s.torch.autograd.grad([x], [y], [weights], create_graph=bool(c % 2), retain_graph=True, allow_unused=True)
    if found is not None and c % 2 and x.dtype == found.dtype:
        found = found + x.sum() * 0  # that it requires gradients does not depend on what a gradient is made of
    return found


def _hook(s: State, a: int) -> None:
    x = s.pick(a)
    x.register_hook(lambda g: g * 2)


class _Skip(Exception):
    """A step whose result is not defined: it writes to what it reads."""


def _apart(x: Any, other: Any) -> Any:
    """An operand of a write to `x`."""
    if other is not x and x.numel() and other.numel():
        (low, high), (start, stop) = _reach(x), _reach(other)
        if low < stop and start < high:
            raise _Skip
    return other


def _reach(x: Any) -> tuple[int, int]:
    return x.data_ptr(), x.data_ptr() + (sum((n - 1) * s for n, s in zip(x.shape, x.stride())) + 1) * x.element_size()


def _other(s: State, a: int, b: int, c: int) -> Any:
    return s.apart(s.pick(a), s.like(s.pick(a), b, c))


def _set_apart(s: State, x: Any, key: Any, d: int) -> None:
    _set(x, key, s.apart(x.detach(), s.pick(d)))


def _set(x: Any, key: Any, value: Any) -> None:
    x[key] = value


_BINARY: list[Callable[..., Any]] = [lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x - y, lambda x, y: x / (y * y + 1)]
_WITH_NUMBER: list[Callable[..., Any]] = [
    lambda x, n: x + n, lambda x, n: x * n, lambda x, n: n - x, lambda x, n: x / 3, lambda x, n: x**2, lambda x, n: x.clamp(-1, n),
]  # fmt: skip
STEPS: dict[str, tuple[int, Callable[..., Any]]] = {
    "leaf": (6, _leaf),
    "unary": (6, lambda s, a, b: getattr(s.pick(a), UNARY[b % len(UNARY)])()),
    "binary": (8, lambda s, a, b, c, d: [*_BINARY, s.torch.maximum][c % 5](s.pick(a), s.like(s.pick(a), b, d))),
    "number": (4, lambda s, a, b, c: _WITH_NUMBER[c % 6](s.pick(a), s.number(b))),
    "where": (2, lambda s, a, b, c: s.torch.where(s.pick(a) > s.number(b), s.pick(a), s.like(s.pick(a), c, b))),
    "reduce": (4, lambda s, a, b, c: _reduce(s.pick(a), REDUCTIONS[b % len(REDUCTIONS)], _dim(s.pick(a), c))),
    "sum": (3, lambda s, a: s.pick(a).sum()),
    "extreme": (1, lambda s, a, b: s.pick(a).max(_dim(s.pick(a), b))[0]),
    "key": (8, lambda s, a, b, c, d: s.pick(a)[s.key(s.pick(a), b, c, d)]),
    "places": (4, lambda s, a, b, c: s.pick(a)[s.places(s.pick(a), b, c)]),
    "transpose": (3, lambda s, a, b, c: s.pick(a).transpose(_dim(s.pick(a), b), _dim(s.pick(a), c))),
    "permute": (1, lambda s, a: s.pick(a).permute(tuple(range(s.pick(a).ndim))[::-1])),
    "view": (3, lambda s, a, b: s.pick(a).view(_reshaped(s.pick(a), b))),
    "reshape": (3, lambda s, a, b: s.pick(a).reshape(_reshaped(s.pick(a), b))),
    "expand": (2, lambda s, a: _guarded(s.pick(a).expand(2, *s.pick(a).shape))),
    "unsqueeze": (1, lambda s, a, b: s.pick(a).unsqueeze(b % (s.pick(a).ndim + 1))),
    "squeeze": (1, lambda s, a: s.pick(a).squeeze()),
    "narrow": (2, lambda s, a, b, c: s.pick(a).narrow(_dim(s.pick(a), b), 0, c % 3)),
    "select": (2, lambda s, a, b, c: s.pick(a).select(_dim(s.pick(a), b), c % 3)),
    "diagonal": (2, lambda s, a, b: s.pick(a).diagonal(b % 3 - 1)),
    "unfold": (1, lambda s, a, b: s.pick(a).unfold(_dim(s.pick(a), b), 2, 1)),
    "split": (3, lambda s, a, b, c: s.pick(a).split(b % 2 + 1)[c % 2]),
    "unbind": (2, lambda s, a, b, c: s.pick(a).unbind(_dim(s.pick(a), b))[c % 2]),
    "chunk": (1, lambda s, a, b, c: s.pick(a).chunk(2, _dim(s.pick(a), b))[c % 2]),
    "data": (1, lambda s, a: s.pick(a).data),
    "cat": (2, lambda s, a, b, c: _guarded(s.torch.cat([s.pick(a), s.pick(b)], c % 2))),
    "stack": (1, lambda s, a, b: _guarded(s.torch.stack([s.pick(a), s.pick(a) * 2], b % 2))),
    "matmul": (2, lambda s, a, b: s.pick(a) @ s.pick(b)),
    "cast": (1, lambda s, a, b: s.pick(a).to([s.torch.float32, s.torch.float64, s.torch.int64][b % 3])),
    # writes
    "change": (6, lambda s, a, b: getattr(s.pick(a), CHANGES[b % len(CHANGES)])()),
    "add_": (6, lambda s, a, b, c: s.pick(a).add_(_other(s, a, b, c))),
    "mul_": (5, lambda s, a, b, c: s.pick(a).mul_(_other(s, a, b, c))),
    "mul_ by a number": (2, lambda s, a, b: s.pick(a).mul_(s.number(b))),
    "copy_": (4, lambda s, a, b, c: s.pick(a).copy_(_other(s, a, b, c))),
    "fill_": (2, lambda s, a, b: s.pick(a).fill_(s.number(b))),
    "clamp_": (1, lambda s, a, b: s.pick(a).clamp_(max=s.number(b))),
    "masked_fill_": (2, lambda s, a, b: s.pick(a).masked_fill_(s.pick(a) > s.number(b), 2.0)),
    "set key": (6, lambda s, a, b, c, d: _set(s.pick(a), s.key(s.pick(a), b, c, d), s.number(d))),
    "set key to a tensor": (6, lambda s, a, b, c, d: _set_apart(s, s.pick(a), s.key(s.pick(a), b, c, d), d)),
    "set places": (4, lambda s, a, b, c: _set(s.pick(a), s.places(s.pick(a), b, c), s.number(c))),
    "set places to a tensor": (3, lambda s, a, b, c, d: _set(s.pick(a), s.places(s.pick(a), b, c), s.apart(s.pick(a), s.pick(d)))),
    "geometry": (1, lambda s, a, b: [lambda x: x.unsqueeze_(0), lambda x: x.squeeze_(), lambda x: x.t_()][b % 3](s.pick(a))),
    # gradients
    "backward": (6, _backward),
    "grad": (4, _grad),
    "hook": (1, _hook),
    "retain_grad": (1, lambda s, a: s.pick(a).retain_grad()),
    "requires_grad_": (2, lambda s, a: s.pick(a).requires_grad_()),
    "detach_": (1, lambda s, a: s.pick(a).detach_()),
    "clear": (1, lambda s, a: setattr(s.pick(a), "grad", None)),
}


def _reduce(x: Any, name: str, dim: int) -> Any:
    if name.endswith("prod") and (not x.ndim or not x.numel()):
        name = "sum"  # PyTorch keeps the product of one number or of none, and asks for it unchanged
    return getattr(x, name)(dim)


WRITES = {name for name in STEPS if name.endswith("_") or name.startswith(("set", "change", "mul_"))}
WRITES -= {"requires_grad_", "detach_"}


def _overlaps(x: Any) -> bool:
    """Whether elements share memory in another way than by strides of zero."""
    reach = 0
    for stride, n in sorted((s, n) for n, s in zip(x.shape, x.stride()) if n > 1 and s):
        if stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


def program(seed: int) -> list[Step]:
    """A program by its number."""
    rng = random.Random(seed)
    names = list(STEPS)
    weights = [STEPS[name][0] for name in names]
    steps = [Step("leaf", tuple(rng.randrange(1000) for _ in range(3))) for _ in range(rng.randrange(1, 4))]
    for name in rng.choices(names, weights, k=rng.randrange(4, 24)):
        numbers = tuple(rng.randrange(1000) for _ in range(_arguments(STEPS[name][1])))
        steps.append(Step(name, numbers, rng.random() < 0.08))
    return steps


def _arguments(function: Callable[..., Any]) -> int:
    return function.__code__.co_argcount - 1


# -- running and comparing --------------------------------------------------------------------------------------------


def _values(x: Any) -> np.ndarray:
    return np.array(x.detach().numpy(force=True))


def _about(x: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"dtype": str(x.dtype), "shape": tuple(x.shape)}
    try:
        found |= {"requires_grad": x.requires_grad, "leaf": x.is_leaf}
    except RuntimeError as error:
        found["refused"] = type(error).__name__
    found["grad"] = _values(x.grad) if found.get("leaf", True) and x.grad is not None else None
    found["values"] = _values(x)
    return found


def run(torch: Any, steps: list[Step]) -> list[Any]:
    """What each step gave: an error's type, or all tensors as plain data."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _run(torch, steps)


def _run(torch: Any, steps: list[Step]) -> list[Any]:
    state = State(torch)
    trace: list[Any] = []
    for step in steps:
        if not state.tensors and step.name != "leaf":
            trace.append(None)
            continue
        function = STEPS[step.name][1]
        if step.name in WRITES and _overlaps(state.pick(step.numbers[0])):
            trace.append(None)  # what is written where is not defined
            continue
        try:
            with torch.set_grad_enabled(not step.no_grad):
                result = function(state, *step.numbers)
        except _Skip:
            trace.append(None)
            continue
        except Exception as error:
            trace.append((type(error), str(error)))
            continue
        if isinstance(result, torch.Tensor) and not any(result is t for t in state.tensors):
            state.tensors.append(result)
            if len(state.tensors) > MOST:
                del state.tensors[0]
        trace.append([_about(x) for x in state.tensors])
    return trace


# Errors that depend on strides: PyTorch looks at those of dimensions of one element, too, and results of operands that lie in
# memory in different orders are in that of the first, not in NumPy's.  From there on the two differ.
_LAYOUTS = ("some elements of the input tensor and", "view size is not compatible")


def difference(real: Any, own: Any, steps: list[Step]) -> str:
    """The first difference between the two, in words; "" where they agree."""
    for k, (a, b) in enumerate(zip(run(real, steps), run(own, steps))):
        if isinstance(a, list) and any(x["dtype"] == "torch.int64" and x.get("requires_grad") for x in a):
            return ""  # PyTorch lets integers require gradients, where they are written to
        found = _compared(a, b)
        if found and any(isinstance(t, tuple) and any(text in t[1] for text in _LAYOUTS) for t in (a, b)):
            return ""
        if found:
            return f"step {k}, {steps[k]}: {found}"
    return ""


def _compared(a: Any, b: Any) -> str:
    if a is None or b is None:
        return ""
    if isinstance(a, tuple):
        if not isinstance(b, tuple):
            return f"torch raises {a[0].__name__}: {a[1][:300]}; got a result"
        if "another view of its base" in a[1]:  # which of several errors comes first
            return ""
        if a[0].__name__ not in [c.__name__ for c in b[0].__mro__]:
            return f"torch raises {a[0].__name__}: {a[1][:200]}; got {b[0].__name__}: {b[1][:200]}"
        return ""
    if isinstance(b, tuple):
        return f"got {b[0].__name__}: {b[1][:300]}; torch gives a result"
    if len(a) != len(b):
        return "another number of tensors: a result is one of the tensors there were"
    for k, (x, y) in enumerate(zip(a, b)):
        for name in x:
            if not _same(x[name], y.get(name)):
                return f"{name} of tensor {k}: torch {_text(x[name])}, got {_text(y.get(name))}"
    return ""


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, np.ndarray):
        if not isinstance(b, np.ndarray) or a.shape != b.shape or a.dtype != b.dtype:
            return False
        tolerance = 1e-3 if a.dtype == np.float32 else 1e-5  # what was computed from float32 is in float64, too
        with np.errstate(all="ignore"):
            is_huge = a.dtype.kind == "f" and bool((np.abs(a) > 1e12).any())
            return is_huge or bool(np.allclose(a, b, tolerance, tolerance, equal_nan=True))
    return not isinstance(b, np.ndarray) and bool(a == b)


def _text(value: Any) -> str:
    return repr(value.tolist()) if isinstance(value, np.ndarray) else repr(value)


def made_small(real: Any, own: Any, steps: list[Step]) -> list[Step]:
    """A shorter program that still differs."""
    k = len(steps) - 1
    while k >= 0:
        fewer = steps[:k] + steps[k + 1 :]
        if fewer and difference(real, own, fewer):
            steps = fewer
            k = min(k, len(steps))
        k -= 1
    return steps


def main(first: str, last: str = "", most: str = "5") -> int:
    import torch  # here, as nothing else in this module needs it

    import dynagraph.torch as own

    wrong = 0
    for seed in range(int(first), int(last or int(first) + 1)):
        steps = program(seed)
        if difference(torch, own, steps):
            wrong += 1
            if wrong <= int(most):
                small = made_small(torch, own, steps)
                print(f"program {seed}: {difference(torch, own, small)}")
                print("    " + "; ".join(map(str, small)))
    print(f"{wrong} programs differ")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
