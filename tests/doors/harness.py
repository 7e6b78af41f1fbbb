"""Run one Python expression twice: on NumPy arrays, and on traced arrays that go through the door.

A `Traced` stands where an array stood.  NumPy's own protocols (``__array_ufunc__``, ``__array_function__``) bring its
calls to the door, as the executor will; the graph is then interpreted: values, dtypes, shapes and 0-d-ness must agree.
With operands that lie in memory in many ways, results must lie there as NumPy's, and be views of what NumPy's are views of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.doors.numpy import ATTRIBUTES, Builder, Door, Unsupported, lookup, method, operator_door
from dynagraph.doors.numpy.arguments import is_contiguous, is_fortran
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.interpreter import concrete, interpret
from dynagraph.ir.ops import view_of
from dynagraph.ir.shapes import ShapeEnv, SymInt

DTYPES = tuple(d.name for d in dtypes.ALL)
REASONS = {
    "UNSUPPORTED_FUNCTION",
    "UNSUPPORTED_ARGUMENT",
    "UNSUPPORTED_DTYPE",
    "UNSUPPORTED_INDEX",
    "NUMPY_ERROR",
    "DATA_DEPENDENT",
    "IN_PLACE_WRITE",
    "AMBIGUOUS_TRUTH",
}


class Trace:
    """One graph being built, and which of its 0-d nodes are NumPy scalars."""

    def __init__(self) -> None:
        self.scalars: set[Node] = set()
        self.builder = Builder(Graph(), self.scalars.__contains__)

    def call(self, door: Door | None, who: object, *args: Any, **kwargs: Any) -> Any:
        if door is None:
            raise Unsupported("UNSUPPORTED_FUNCTION", f"{who}: not in the table")
        opened = open_(args)
        first = opened[0] if opened else None
        result = door(self.builder, *opened, **open_(kwargs))
        return self.close(result, door.returns, isinstance(first, Node) and first in self.scalars)

    def close(self, result: Any, returns: str, first_is_scalar: bool) -> Any:
        if isinstance(result, (tuple, list)):
            return type(result)(self.close(r, returns, first_is_scalar) for r in result)
        if not isinstance(result, Node):
            return result
        if result.ndim == 0 and (returns == "value" or (returns == "same" and first_is_scalar)):
            self.scalars.add(result)
        return Traced(self, result)


def open_(value: Any) -> Any:
    """With nodes in the place of traced arrays."""
    if isinstance(value, Traced):
        return value._node
    if isinstance(value, (tuple, list)):
        return type(value)(open_(v) for v in value)
    if isinstance(value, dict):
        return {k: open_(v) for k, v in value.items()}
    return value


class Traced:
    """An array that is a node."""

    def __init__(self, trace: Trace, node: Node):
        self._trace = trace
        self._node = node

    def __array_ufunc__(self, ufunc: np.ufunc, how: str, *inputs: Any, **kwargs: Any) -> Any:
        function = ufunc if how == "__call__" else getattr(ufunc, how)
        return self._trace.call(lookup(function), function, *inputs, **kwargs)

    def __array_function__(self, function: Callable[..., Any], types: Any, args: Any, kwargs: Any) -> Any:
        return self._trace.call(lookup(function), function, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # NumPy asks for more protocols
        if name in ATTRIBUTES:
            return self._trace.close(
                ATTRIBUTES[name](self._trace.builder, self._node), "same", self._node in self._trace.scalars
            )
        return lambda *args, **kwargs: self._trace.call(method(name), name, self, *args, **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self._trace.call(operator_door("getitem"), "getitem", self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._trace.call(operator_door("setitem"), "setitem", self, key, value)

    def __len__(self) -> int:
        return self._trace.call(operator_door("len"), "len", self)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return self._trace.call(operator_door("bool"), "bool", self)

    def __neg__(self) -> Any:
        return self._trace.call(operator_door("neg"), "neg", self)

    def __pos__(self) -> Any:
        return self._trace.call(operator_door("pos"), "pos", self)

    def __abs__(self) -> Any:
        return self._trace.call(operator_door("abs"), "abs", self)

    def __invert__(self) -> Any:
        return self._trace.call(operator_door("invert"), "invert", self)


def _add_operators() -> None:
    names = {
        "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
        "<<": "lshift", ">>": "rshift", "&": "and", "|": "or", "^": "xor", "divmod": "divmod",
    }  # fmt: skip
    compare = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
    for symbol, name in {**names, **compare}.items():
        setattr(Traced, f"__{name}__", lambda self, other, s=symbol: self._trace.call(operator_door(s), s, self, other))
    for symbol, name in names.items():
        setattr(
            Traced, f"__r{name}__", lambda self, other, s=symbol: self._trace.call(operator_door(s), s, other, self)
        )
        if symbol != "divmod":
            setattr(
                Traced,
                f"__i{name}__",
                lambda self, other, s=f"{symbol}=": self._trace.call(operator_door(s), s, self, other),
            )


_add_operators()


def call(function: Any, *args: Any, **kwargs: Any) -> Any:
    """``function(*args)`` for functions that no protocol of NumPy's brings here: np.array, np.zeros, np.float32..."""
    traced = next((a for a in _leaves((args, kwargs)) if isinstance(a, Traced)), None)
    trace = traced._trace if traced is not None else _current[-1] if _current else None
    return function(*args, **kwargs) if trace is None else trace.call(lookup(function), function, *args, **kwargs)


_current: list[Trace] = []  # the trace under way, for functions without array arguments


def _leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for v in value for leaf in _leaves(v)]
    if isinstance(value, dict):
        return [leaf for v in value.values() for leaf in _leaves(v)]
    return [value]


def trace_through_door(
    function: Callable[..., Any], inputs: Sequence[Any], symbolic: bool = False
) -> tuple[Trace, Any, ShapeEnv]:
    """The trace and the result (traced arrays in it) of a call; raises Unsupported."""
    trace, env = Trace(), ShapeEnv()
    dims: dict[int, SymInt] = {}

    def dim(size: int) -> Any:
        if not symbolic or size < 2:
            return size
        return dims.setdefault(size, env.symbol(size)) if size not in dims else dims[size]

    arguments = []
    for k, value in enumerate(inputs):
        if not isinstance(value, (np.ndarray, np.generic)):
            arguments.append(value)
            continue
        dtype = dtypes.from_numpy(value.dtype)
        assert dtype is not None
        strides = None if value.flags.c_contiguous else tuple(s // value.itemsize for s in value.strides)
        node = trace.builder.graph.placeholder(f"x{k}", Meta(dtype, tuple(map(dim, value.shape)), strides))
        if isinstance(value, np.generic):
            trace.scalars.add(node)
        arguments.append(Traced(trace, node))
    _current.append(trace)
    try:
        return trace, function(*arguments), env
    finally:
        _current.pop()


def run_through_door(function: Callable[..., Any], inputs: Sequence[Any], symbolic: bool = False) -> Any:
    """What the call gives through the door: the graph is interpreted."""
    trace, result, env = trace_through_door(function, inputs, symbolic)
    found = [leaf for leaf in _leaves(result) if isinstance(leaf, Traced)]
    graph = trace.builder.graph
    checks = trace.builder.checks
    graph.output([*(t._node for t in found), *checks])
    graph.lint()
    with np.errstate(all="ignore"):
        values = interpret(graph, [np.asarray(x) for x in inputs if isinstance(x, (np.ndarray, np.generic))])
    if any(values[len(found) :]):
        raise Unsupported("DATA_DEPENDENT", "the program bails out")
    filled = iter(v[()] if t._node in trace.scalars else v for t, v in zip(found, values))
    return _filled(result, filled, env.values)


def _filled(result: Any, values: Any, sizes: dict[str, int]) -> Any:
    if isinstance(result, Traced):
        return next(values)
    if isinstance(result, (tuple, list)):
        return type(result)(_filled(r, values, sizes) for r in result)
    return concrete(result, sizes)


def check(function: Callable[..., Any], *inputs: Any, exact: bool = True, symbolic: bool = False) -> Any:
    """The call through the door equals the plain call."""
    with np.errstate(all="ignore"):
        expected = function(*inputs)
    assert_same(run_through_door(function, inputs, symbolic), expected, exact)
    check_layouts(function, inputs, symbolic)
    return expected


def check_or_declined(function: Callable[..., Any], *inputs: Any, exact: bool = True) -> str | None:
    """Either the door gives NumPy's result or it declines; what NumPy rejects it declines.  Gives the reason."""
    try:
        with np.errstate(all="ignore"):
            expected = function(*inputs)
    except Exception:  # whatever NumPy raises on the user's behalf
        return declined(function, *inputs)
    try:
        given = run_through_door(function, inputs)
    except Unsupported as refusal:
        assert refusal.reason in REASONS and refusal.reason != "NUMPY_ERROR", refusal
        return refusal.reason
    assert_same(given, expected, exact)
    check_layouts(function, inputs)
    return None


# -- how results lie in memory ----------------------------------------------------------------------------------------


def _permuted(x: np.ndarray) -> np.ndarray:
    """With the last axis outermost in memory, then the first."""
    return np.moveaxis(np.moveaxis(x, -1, 0).copy(), 0, -1)


def _apart(x: np.ndarray) -> np.ndarray:
    """With gaps along the last axis, and backwards along the first."""
    room = np.zeros((*x.shape[:-1], 2 * x.shape[-1] + 1), x.dtype)
    room[::-1, ..., : 2 * x.shape[-1] : 2] = x
    return room[::-1, ..., : 2 * x.shape[-1] : 2]


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "permuted": _permuted,
    "apart": _apart,
    "rows": lambda x: np.broadcast_to(x[:1], x.shape),
    "columns": lambda x: np.broadcast_to(x[..., :1], x.shape),
}


def check_layouts(function: Callable[..., Any], inputs: Sequence[Any], symbolic: bool = False) -> None:
    """Results lie in memory as NumPy's do, however the operands lie."""
    arrays = [x for x in inputs if isinstance(x, np.ndarray)]
    if any(x.dtype.name not in ("float64", "int32", "bool") for x in arrays):  # other dtypes lie as these do
        return
    matrices = [k for k, x in enumerate(inputs) if isinstance(x, np.ndarray) and x.ndim > 1 and x.size > 0]
    for names in {(name,) * len(matrices) for name in LAYOUTS} | {("F", "C", "C"), ("C", "F", "F"), ("permuted", "F", "C")}:
        given = list(inputs)
        for k, name in zip(matrices, names):
            given[k] = LAYOUTS[name](given[k])
        check_layout(function, given, symbolic and all(name == "C" for name in names))


def check_layout(function: Callable[..., Any], inputs: Sequence[Any], symbolic: bool = False) -> int:
    """Gives how many results were compared."""
    try:
        with np.errstate(all="ignore"):
            expected = function(*inputs)
        trace, result, env = trace_through_door(function, inputs, symbolic)
    except Exception:  # what NumPy rejects, and what the door declines: other checks ask for them
        return 0
    arrays = [x for x in inputs if isinstance(x, np.ndarray)]
    pairs = [(made, plain) for made, plain in zip(_leaves(result), _leaves(expected)) if isinstance(made, Traced)]
    pairs = [(made, plain) for made, plain in pairs if isinstance(plain, np.ndarray) and plain.size > 1]
    for made, plain in pairs:
        assert_same_layout(trace.builder, made._node, plain, arrays, env.values)
    return len(pairs)


def assert_same_layout(b: Builder, node: Node, plain: np.ndarray, inputs: Sequence[np.ndarray], sizes: dict[str, int]) -> None:
    found = [concrete(s, sizes) * plain.itemsize for s in b.layout(node).strides]
    long = [k for k, d in enumerate(plain.shape) if d > 1]
    assert [found[k] for k in long] == [plain.strides[k] for k in long], f"strides {found}, NumPy's are {plain.strides}"
    assert is_contiguous(b, node) is plain.flags.c_contiguous and is_fortran(b, node) is plain.flags.f_contiguous
    base = (view_of(node) or (node, None))[0]
    shared = any(np.may_share_memory(plain, x) for x in inputs)
    assert (base.kind == "placeholder") is shared, f"{node.describe()}: a view of an operand here, or in NumPy"


def declined(function: Callable[..., Any], *inputs: Any) -> str:
    """The reason why the door does not take the call."""
    try:
        result = run_through_door(function, inputs)
    except Unsupported as refusal:
        assert refusal.reason in REASONS, refusal
        return refusal.reason
    raise AssertionError(f"the door took the call and gave {result!r}")


def assert_same(given: Any, expected: Any, exact: bool = True) -> None:
    if isinstance(expected, (tuple, list)):
        assert type(given) is type(expected) and len(given) == len(expected), (given, expected)
        for g, e in zip(given, expected):
            assert_same(g, e, exact)
        return
    assert type(given) is type(expected), f"{type(given)} is not {type(expected)}: {given!r}, {expected!r}"
    if not isinstance(expected, (np.ndarray, np.generic)):
        assert given == expected
        return
    assert given.dtype == expected.dtype, f"{given.dtype} is not {expected.dtype}"
    assert given.shape == expected.shape, f"{given.shape} is not {expected.shape}"
    if exact:
        given, expected = _but_for_fused_products(given, expected)
        np.testing.assert_array_equal(given, expected, strict=True)
        if expected.dtype.kind in "fc":
            for got, want in ((np.real(given), np.real(expected)), (np.imag(given), np.imag(expected))):
                zero = np.asarray(want) == 0
                np.testing.assert_array_equal(np.signbit(got)[zero], np.signbit(want)[zero])
    else:
        tolerance = 1e-5 if expected.dtype in (np.float32, np.complex64) else 1e-12
        np.testing.assert_allclose(given, expected, rtol=tolerance, atol=tolerance, equal_nan=True)


def _but_for_fused_products(given: Any, expected: Any) -> tuple[Any, Any]:
    """Without the complex numbers that agree but for rounding: NumPy's loops fuse products and sums, its scalars do not."""
    if expected.dtype.kind != "c":
        return given, expected
    with np.errstate(all="ignore"):
        near = np.isfinite(expected) & (abs(given - expected) <= 8 * np.finfo(expected.dtype).eps * abs(expected))
    near &= (given != 0) & (expected != 0)
    return np.asarray(given)[~near], np.asarray(expected)[~near]


def sample(shape: tuple[int, ...], dtype: str, seed: int = 0) -> np.ndarray:
    """Values with zeros, signs and repetitions among them; floats with NaN and infinities where there is room."""
    rng = np.random.default_rng([seed, *shape])
    values = np.asarray(rng.integers(0 if dtype.startswith("uint") else -4, 9, shape))
    if dtype.startswith("complex"):
        return np.asarray((values + rng.random(shape) + 1j * rng.permutation(values.ravel()).reshape(shape)).astype(dtype))
    if not dtype.startswith("float"):
        return values.astype(dtype) if dtype != "bool" else np.asarray(values % 2 == 0)
    return np.asarray((values + rng.random(shape)).astype(dtype))


__all__ = [
    "DTYPES",
    "REASONS",
    "Trace",
    "Traced",
    "assert_same",
    "call",
    "check",
    "check_layout",
    "check_or_declined",
    "declined",
    "run_through_door",
    "sample",
    "trace_through_door",
]
