"""Every callable that the tables of `doors/cupy.py` name: compiled against the library called plainly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dynagraph.doors import cupy as cupy_door
from tests.cupy_arrays.harness import by_turns, check
from tests.cupy_arrays.stand_in import NAMES

pytestmark = pytest.mark.sampled(20)

DTYPES = ("bool", "int8", "int64", "uint16", "float16", "float32", "float64", "complex64")


def values(dtype: str, shape: tuple[int, ...] = (3, 4), seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (rng.integers(0, 4, shape) + (rng.random(shape) if np.dtype(dtype).kind in "fc" else 0)).astype(dtype)


def takes(name: str, dtypes: tuple[str, ...]) -> bool:
    """Whether NumPy has a loop for the dtypes, and CuPy's result is of the same dtype."""
    ufunc = getattr(np, name)
    try:
        resolved = ufunc.resolve_dtypes((*map(np.dtype, dtypes), *[None] * ufunc.nout))
    except TypeError:
        return False
    # of bfloat16, which NumPy has no character for, test_bfloat16.py
    loops = [loop.split("->") for loop in NAMES["ufuncs"][name][2].split() if "E" not in loop]
    fits = (out for given, out in loops if all(np.can_cast(d, c) for d, c in zip(dtypes, given)))
    return next(fits, None) == "".join(d.char for d in resolved[ufunc.nin :])


@pytest.mark.sampled(40)
@pytest.mark.parametrize("name", sorted(cupy_door.UFUNCS))
def test_a_ufunc_gives_what_it_gives_plainly(cp: Any, name: str) -> None:
    """By CuPy's name and by NumPy's, on arrays and, where it takes two, on an array and a number."""
    nin = getattr(np, name).nin
    for dtype in by_turns(cp, [d for d in DTYPES if takes(name, (d,) * nin)], name):
        arrays = [values(dtype, seed=k + 1) for k in range(nin)]
        for library in by_turns(cp, ["cp", "np"], name):
            function = getattr({"cp": cp, "np": np}[library], name)
            if name == "power" and np.dtype(dtype).kind in "bi":  # of exponents that may be negative, which NumPy refuses
                check(cp, lambda x, y, function=function: function(x, y), *arrays, breaks="data-dependent")
            elif nin == 1:
                check(cp, lambda x, function=function: (function(x), function(x[:, 1]), function(x[0, 0])), *arrays)
            else:
                check(cp, lambda x, y, function=function: (function(x, y), function(x[0], y), function(x[0, 0], y[0, 0])), *arrays)


@pytest.mark.parametrize("symbol", cupy_door.BINARY)
def test_an_operator_gives_what_it_gives_plainly(cp: Any, symbol: str) -> None:
    scope: dict[str, Any] = {}
    exec(f"def both(x, y): return x {symbol} y\ndef left(x, y): return x {symbol} 2\ndef right(x, y): return 2 {symbol} y", scope)
    name = {"<<": "left_shift", ">>": "right_shift", "&": "bitwise_and", "|": "bitwise_or", "^": "bitwise_xor"}.get(symbol, "add")
    refused = {"//": "c", "%": "c", "-": "b", "**": "b", "@": "b"}.get(symbol, "")
    taken = [d for d in ("bool", "int8", "int64", "float32", "float64", "complex64") if takes(name, (d, d))]
    for dtype in by_turns(cp, [d for d in taken if np.dtype(d).kind != refused], symbol):
        kind = np.dtype(dtype).kind
        x, y = values(dtype, (4, 4), 1), values(dtype, (4, 4), 2)
        negative = symbol == "**" and kind in "i"  # exponents that are data may be negative, which NumPy refuses
        check(cp, scope["both"], x, y, breaks="data-dependent" if negative else None)
        if kind != "b" and symbol != "@":
            check(cp, scope["left"], x, y)
            check(cp, scope["right"], x, y, breaks="data-dependent" if negative else None)


@pytest.mark.parametrize("symbol", ["-", "~", "abs"])
def test_a_unary_operator_gives_what_it_gives_plainly(cp: Any, symbol: str) -> None:
    function: Callable[..., Any] = {"-": lambda x: -x, "~": lambda x: ~x, "abs": lambda x: abs(x)}[symbol]
    check(cp, function, values("int32"))


PRODUCTS = ("dot", "matmul", "tensordot", "outer")  # of bools are not captured
SAMPLES: dict[str, Callable[[Any, Any, Any], Any]] = {
    **{
        name: lambda xp, x, y, name=name: (
            getattr(xp, name)(x), getattr(xp, name)(x, 0), getattr(xp, name)(x, axis=-1, keepdims=True), getattr(xp, name)(x[0]),
        )
        for name in ("sum", "prod", "max", "amax", "min", "amin", "any", "all", "mean", "var", "std", "argmax", "argmin")
    },
    "cumsum": lambda xp, x, y: (xp.cumsum(x), xp.cumsum(x, axis=1)),
    "cumprod": lambda xp, x, y: xp.cumprod(x, axis=0),
    "where": lambda xp, x, y: (xp.where(x > 1, x, y), xp.where(x > 1, x, 0)),
    "matmul": lambda xp, x, y: (xp.matmul(x, y.T), xp.matmul(x[0], y[0])),
    "dot": lambda xp, x, y: (xp.dot(x, y.T), xp.dot(x[0], y[1]), xp.dot(x, y[0])),
    "outer": lambda xp, x, y: xp.outer(x[0], y[0]),
    "tensordot": lambda xp, x, y: xp.tensordot(x, y, axes=([0, 1], [0, 1])),
    "reshape": lambda xp, x, y: (xp.reshape(x, (4, 3)), xp.reshape(x, -1), xp.reshape(x[:2], (2, 2, 2))),
    "ravel": lambda xp, x, y: xp.ravel(x),
    "transpose": lambda xp, x, y: (xp.transpose(x), xp.transpose(x, (1, 0))),
    "swapaxes": lambda xp, x, y: xp.swapaxes(x, 0, 1),
    "moveaxis": lambda xp, x, y: xp.moveaxis(x, 0, -1),
    "expand_dims": lambda xp, x, y: xp.expand_dims(x, 1),
    "squeeze": lambda xp, x, y: xp.squeeze(x[:1]),
    "broadcast_to": lambda xp, x, y: xp.broadcast_to(x, (2, 3, 4)),
    "concatenate": lambda xp, x, y: (xp.concatenate([x, y]), xp.concatenate((x, y), axis=1)),
    "stack": lambda xp, x, y: xp.stack([x, y], axis=1),
    "vstack": lambda xp, x, y: xp.vstack([x, y]),
    "hstack": lambda xp, x, y: xp.hstack([x, y]),
    "roll": lambda xp, x, y: (xp.roll(x, 1), xp.roll(x, -1, axis=1)),
    "tile": lambda xp, x, y: xp.tile(x, (2, 1)),
    "repeat": lambda xp, x, y: xp.repeat(x, 2, axis=0),
    "take": lambda xp, x, y: (xp.take(x, (x > 1).astype(np.int64) * 17 - 3), xp.take(x, (x > 1).astype(np.int32), axis=1)),
    "tril": lambda xp, x, y: xp.tril(x),
    "triu": lambda xp, x, y: xp.triu(x, 1),
    "copy": lambda xp, x, y: xp.copy(x),
    "shape": lambda xp, x, y: (xp.shape(x), x + 1),
    "ndim": lambda xp, x, y: (xp.ndim(x), x + 1),
    "zeros": lambda xp, x, y: (xp.zeros(3), xp.zeros((2, 2), np.float32) + 1),
    "ones": lambda xp, x, y: xp.ones(x.shape, dtype=x.dtype),
    "full": lambda xp, x, y: (xp.full((2, 2), 1.5), xp.full(3, 7)),
    "empty": lambda xp, x, y: (xp.empty((2, 3), np.float32).shape, xp.empty(3).dtype),
    "empty_like": lambda xp, x, y: (xp.empty_like(x).shape, xp.empty_like(x, np.int8, shape=(2,)).dtype),
    "zeros_like": lambda xp, x, y: xp.zeros_like(x),
    "ones_like": lambda xp, x, y: xp.ones_like(x, dtype=np.int8),
    "full_like": lambda xp, x, y: xp.full_like(x, 2),
    "eye": lambda xp, x, y: (xp.eye(3), xp.eye(2, 3, k=1, dtype=np.float32)),
    "identity": lambda xp, x, y: xp.identity(3),
    "arange": lambda xp, x, y: (xp.arange(5), xp.arange(2, 10, 3), xp.arange(x.shape[0]) * 2),
    "linspace": lambda xp, x, y: xp.linspace(0, 1, 5),
    "array": lambda xp, x, y: (xp.array(x), xp.array([1.0, 2.0]), xp.array(3)),
    "asarray": lambda xp, x, y: (xp.asarray(x), xp.asarray([1, 2, 3])),
}


def test_every_function_has_a_sample() -> None:
    assert set(SAMPLES) == set(cupy_door.FUNCTIONS) - set(cupy_door.CALLED)  # of which test_called.py has cases


@pytest.mark.parametrize("name", sorted(SAMPLES))
def test_a_function_gives_what_it_gives_plainly(cp: Any, name: str) -> None:
    sample = SAMPLES[name]
    for dtype in by_turns(cp, ["int32", "float32", "float64", *([] if name in PRODUCTS else ["bool"])], name):
        x, y = values(dtype, seed=1), values(dtype, seed=2)
        check(cp, lambda x, y: sample(cp, x, y), x, y)
        if name in cupy_door.OWN_DISPATCH:
            check(cp, lambda x, y: sample(np, x, y), x, y)


OF_METHODS: dict[str, Callable[[Any], Any]] = {
    **{
        name: lambda x, name=name: (getattr(x, name)(), getattr(x, name)(0), getattr(x, name)(axis=1, keepdims=True))
        for name in ("sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "argmax", "argmin")
    },
    "cumsum": lambda x: x.cumsum(1), "cumprod": lambda x: x.cumprod(axis=0),
    "reshape": lambda x: (x.reshape(4, 3), x.reshape((2, -1)), x.reshape(-1)[1:]),
    "transpose": lambda x: (x.transpose(), x.transpose(1, 0), x.transpose((1, 0))), "swapaxes": lambda x: x.swapaxes(0, 1),
    "ravel": lambda x: x.ravel(), "flatten": lambda x: x.flatten(), "squeeze": lambda x: (x[:1].squeeze(), x[:1].squeeze(0)),
    "astype": lambda x: (x.astype(np.float32), x.astype("int64")), "copy": lambda x: x.copy(), "dot": lambda x: x.dot(x.T),
    "repeat": lambda x: x.repeat(2), "fill": lambda x: x.fill(1),
    "take": lambda x: (x.take((x > 1).astype("int64") * 17 - 3), x.take((x > 1).astype("int32"), axis=0)),
}  # fmt: skip


def test_every_method_has_a_sample() -> None:
    assert set(OF_METHODS) == set(cupy_door.METHODS)


@pytest.mark.parametrize("name", sorted(OF_METHODS))
def test_a_method_gives_what_it_gives_plainly(cp: Any, name: str) -> None:
    for dtype in by_turns(cp, ["int32", "float64", *([] if name in PRODUCTS else ["bool"])], name):
        check(cp, OF_METHODS[name], values(dtype))


def test_arguments_by_name_alone(cp: Any) -> None:
    check(cp, lambda x: (x.var(ddof=1), x.std(ddof=1, keepdims=True), x.sum(keepdims=True)), values("float32"))
    check(cp, lambda x: (cp.var(x, ddof=1), cp.sum(keepdims=True, a=x), np.sum(x, keepdims=True)), values("float64"))
    check(cp, lambda x: (cp.repeat(x, axis=1, repeats=2), cp.zeros(dtype=np.int8, shape=3), cp.eye(3, k=1)), values("int32"))
    check(cp, lambda x: (cp.full(fill_value=2, shape=2), cp.arange(4, dtype=np.int8), x + 1), values("int32"))


@pytest.mark.parametrize("name", cupy_door.ATTRIBUTES)
def test_an_attribute_gives_what_it_gives_plainly(cp: Any, name: str) -> None:
    check(cp, lambda x: (getattr(x, name), x + 1), values("complex64"))


INDICES: dict[str, Callable[[Any], Any]] = {
    "int": lambda x: (x[0], x[-1], x[1, 2], x[0][1]),
    "slice": lambda x: (x[1:], x[:, ::2], x[::-1], x[1:2, 1:]),
    "none": lambda x: (x[None], x[:, None, 1], x[..., None]),
    "ellipsis": lambda x: (x[...], x[..., 0], x[0, ...]),
    "list": lambda x: (x[[0, 2]], x[:, [1, 0, -1]]),
    "loop": lambda x: [row.sum() for row in x],
    "unpack": lambda x: (lambda a, b, c: (c, a + b))(*x),
    "transposed": lambda x: (x.T, x.T[1:], x.T[0], x.T[None]),
}


@pytest.mark.parametrize("name", INDICES)
def test_an_index_gives_what_it_gives_plainly(cp: Any, name: str) -> None:
    def function(x: Any) -> Any:
        return INDICES[name](x), x * 2

    check(cp, function, values("float64"))
    check(cp, function, values("int32", (6, 4))[::2], breaks="unsupported-argument" if name == "list" else None)
