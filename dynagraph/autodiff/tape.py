"""The gradient tape: tracers, which note what plain Python code does with them.

A `Tracer` is an array, or a NumPy scalar, that depends on what a gradient is taken by.  NumPy computes its values; what NumPy's
functions, operators and methods mean for them is said by the same tables that captures ask, as nodes of the tape's graph, and
gradients are those of that graph (ir/passes/backward.py).  So whatever a capture takes is differentiated here too, and Python may
do between the steps what no capture follows.

A tracer never becomes a plain array by itself: what would lose its gradient raises GradientError.
"""

from __future__ import annotations

import contextlib
import operator
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from dynagraph.doors import bfloat16 as bfloat16_door
from dynagraph.doors.numpy import Unsupported
from dynagraph.errors import GradientError
from dynagraph.frontend.bytecode.decode import decode
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import Raised, said
from dynagraph.frontend.executor.executor import Executor
from dynagraph.frontend.guards.profile import Profile
from dynagraph.frontend.kinds.aliasing import way_to
from dynagraph.frontend.kinds.slots import binary, in_place, load_attribute, store, subscript, unary
from dynagraph.frontend.kinds.values import Array, Const, Dict, Method, Slice, Taped, Value
from dynagraph.frontend.kinds.values import Sequence as SequenceValue
from dynagraph.ir.graph import Node
from dynagraph.location import Location, users_line
from dynagraph.python_operators import BINARY, UNARY

_UFUNCS = frozenset(name for name, function in vars(np).items() if isinstance(function, np.ufunc) and function.nin == 1)
_MEMORY = (bytes, bytearray, memoryview, np.flatiter, np.nditer)  # what holds an array's numbers, and is none
_LIKE = (np.zeros_like, np.ones_like, np.empty_like, np.full_like)  # make arrays that values are written to
_alive: weakref.WeakSet[Tape] = weakref.WeakSet()
_thread = threading.local()  # `tape`: a weak reference to the one that is open


def _nothing() -> None:
    """The function whose call a tape's executor is in."""


class Tape:
    """What was done with tracers since the first level was opened: a graph, and the values of its nodes as they were then."""

    def __init__(self) -> None:
        self.ex = Executor(_nothing, decode(_nothing.__code__), (), Profile(False))  # type: ignore[arg-type]
        self.ex.of_bfloat16 = bfloat16_door.ON_TAPE
        self.ex.builder.observed = self.value_of
        self.frame = self.ex.main
        self.frame.ip = 1
        self.values: dict[Node, np.ndarray] = {}
        self.held: dict[int, list[Node]] = {}  # by the object whose memory their values lie in
        self.tracers: weakref.WeakValueDictionary[int, Tracer] = weakref.WeakValueDictionary()  # by id of their arrays
        self.levels: dict[Node, frozenset[int]] = {}  # whose variables a node depends on
        self.open: set[int] = set()  # levels by whose variables values may still be differentiated
        self.is_symbolic = False  # while tangents and Jacobians are taken, which are gradients by other seeds than those given
        self.n_levels = 0
        self.n_alive = 0

    def close(self) -> None:
        _alive.discard(self)
        self.values.clear()
        self.held.clear()
        self.levels.clear()
        self.ex.graph.custom.clear()
        self.ex.release()

    # -- what depends on what -------------------------------------------------------------------------------------------
    def is_active(self, node: Node) -> bool:
        """Whether a value depends on the variable of a level that is still open."""
        return node.dtype.is_inexact and not self.open.isdisjoint(self.levels_of(node))

    def levels_of(self, node: Node) -> frozenset[int]:
        known = self.levels
        stack = [node]
        while stack:
            top = stack[-1]
            custom = self.ex.graph.custom.get(top)
            operands = top.args if custom is None else custom.operands
            missing = [a for a in operands if a not in known]
            if missing:
                stack += missing
                continue
            stack.pop()
            flows = top.dtype.is_inexact and not top.is_op("stop_gradient")
            known.setdefault(top, frozenset().union(*(known[a] for a in operands)) if flows else frozenset())
        return known[node]

    # -- values ---------------------------------------------------------------------------------------------------------
    def value_of(self, node: Node) -> np.ndarray:
        """What a node gives: as NumPy gave it when the step was run, or computed now."""
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [] if top in self.values else [a for a in top.args if a not in self.values]
            if missing:
                stack += missing
                continue
            stack.pop()
            if top not in self.values:
                self.values[top] = self._computed(top)
        return self.values[node]

    def _computed(self, node: Node) -> np.ndarray:
        if node.kind == "get_attr":
            return self.ex.graph.constants[node.target]
        with np.errstate(all="ignore"):
            return np.asarray(node.op.eager(np, *(self.values[a] for a in node.args), **node.attrs))

    def note(self, node: Node, value: Any) -> None:
        """Keep what NumPy gave for a node."""
        array = np.asarray(value)
        self.values[node] = array
        self.held.setdefault(id(owner_of(array)), []).append(node)
        if not self.is_active(node):
            self.ex.builder.tell(node, array)

    def keep_before_write(self, owner: Any) -> None:
        """Copy the values that lie in memory which is written to now: gradients want them as they were."""
        for node in self.held.pop(id(owner), ()):
            if node in self.values:
                self.values[node] = self.values[node].copy()

    # -- between Python and the tables --------------------------------------------------------------------------------------
    def to_value(self, obj: Any) -> Any:
        """A Python object as the tables take it."""
        kind = type(obj)
        if kind is Tracer:
            if obj.tape is self:
                return obj.array
            obj = obj.value  # of a tape that has ended: a plain number
            kind = type(obj)
        if kind is np.ndarray:
            if obj.dtype.hasobject:
                return self.to_value(obj.tolist()) if obj.ndim else self.to_value(obj.item())
            return self.ex.own(Array(self.ex.graph.constant(obj)))
        if issubclass(kind, np.generic):
            node = self.ex.builder.as_node(obj)
            self.ex.scalars.add(node)
            return self.ex.own(Array(node, is_scalar=True))
        if kind in (tuple, list):
            return SequenceValue(kind, [self.to_value(item) for item in obj])
        if kind is dict:
            return Dict({key: self.to_value(item) for key, item in obj.items()})
        if kind is slice:
            start, stop, step = (self.to_value(part) for part in (obj.start, obj.stop, obj.step))
            return Slice((start, stop, step))
        return Const(obj)

    def call(self, function: Value, args: Iterable[Any], kwargs: dict[str, Any]) -> Value:
        """What a call of a function means."""
        given, named = [self.to_value(a) for a in args], {k: self.to_value(v) for k, v in kwargs.items()}
        return call(self.frame, function, given, named)

    def traced(self, value: Any, real: Any, always: bool = False) -> Any:
        """What NumPy gave, in tracers where it depends on a variable, or always; `value` says what it is in the graph."""
        if isinstance(value, Array) and isinstance(real, (np.ndarray, np.generic)):
            node = self.ex.memories.present(value)
            if node not in self.values:
                self.note(node, real)
            return self.tracer(value, real) if always or self.is_active(node) else real
        if isinstance(value, SequenceValue) and isinstance(real, (tuple, list)):
            items = [self.traced(v, r) for v, r in zip(value.items, real)]
            return type(real)(*items) if hasattr(real, "_fields") else type(real)(items)
        if isinstance(real, _MEMORY):
            raise GradientError(f"{users_line()}: no gradient passes through a {type(real).__name__}; keep to arrays")
        return real

    def tracer(self, array: Any, real: Any) -> Tracer:
        known = self.tracers.get(id(array))
        if known is not None and known.value is real:
            return known
        made = self.tracers[id(array)] = Tracer(self, array, real)
        return made

    # -- one step -------------------------------------------------------------------------------------------------------
    def step(
        self, meaning: Callable[[], Value], real: Callable[[], Any], what: str, args: Iterable[Any] = (), tracers: bool = False
    ) -> Any:
        """Do `real`, as the user's code does it, and note what it means.  `what` names it, `args` may be written to, `tracers`: the
        result is a tracer though nothing depends on it yet.
        """
        if not self.open:
            return real()
        ex = self.ex
        place = ex.graph.location = users_line()
        before = {id(memory): memory.value for memory in ex.memories}
        try:
            value = meaning()
        except (Break, Unsupported, Raised) as stop:
            return self._without_meaning(stop, real, what, place)
        finally:
            ex.builder.checks.clear()
            ex.effects.clear()
        written = [memory for memory in ex.memories if before.get(id(memory), memory.base) is not memory.value]
        for arg in args:
            if type(arg) is Tracer and arg.tape is self and ex.memories.of.get(way_to(arg.array.node)[1]) in written:
                self.keep_before_write(owner_of(np.asarray(arg.value)))
        return self.traced(value, real(), tracers)

    def _without_meaning(self, stop: Exception, real: Callable[[], Any], what: str, place: Location | None) -> Any:
        result = real()  # raises what NumPy raises
        if result is None and isinstance(stop, Break) and stop.reason.name == "IN_PLACE_WRITE":
            raise GradientError(
                f"{place}: {what} writes a value that is being differentiated into a plain array; "
                "make the array of one that is differentiated: np.zeros_like(x)"
            ) from None
        if result is not None and not _holds_inexact(result):
            return result
        reason = said(stop.value) if isinstance(stop, Raised) else str(stop).split("\n")[0]
        raise GradientError(
            f"{place}: no gradient passes through {what}: {reason}; write the step with other functions, "
            "or take it out of the gradient with dg.stop_gradient"
        ) from None

    # -- gradients ----------------------------------------------------------------------------------------------------------
    def node_of(self, obj: Any) -> Node:
        value = self.to_value(obj)
        return self.ex.builder.as_node(self.ex.to_door(value))

    def result(self, node: Node, scalar: bool) -> Any:
        """A node as a value of its own."""
        real = self.value_of(node)
        real = real[()] if scalar else real.copy()
        if not self.is_active(node):
            return real
        made = self.ex.builder.call("copy", node)
        self.note(made, real)
        return self.tracer(self.ex.from_door(made, "value" if scalar else "array"), real)

    def or_zeros(self, node: Node | None, like: Node) -> Node:
        return node or self.ex.builder.call("full", shape=like.shape, value=0, dtype=like.dtype)

    def variable_like(self, node: Node, scalar: bool) -> Any:
        """A node in a tracer, whether it depends on a variable or not: what is done with it is noted."""
        made = self.ex.builder.call("copy", node)
        self.levels[made] = self.levels_of(node) | {min(self.open)}
        real = self.value_of(node)
        real = real[()] if scalar else real.copy()
        self.note(made, real)
        return self.tracer(self.ex.from_door(made, "value" if scalar else "array"), real)

    @contextlib.contextmanager
    def reopened(self, level: Level) -> Iterator[None]:
        """A level that has been left is open again while gradients are taken: backward functions of users note what they do."""
        is_open = level.number in self.open
        self.open.add(level.number)
        try:
            yield
        finally:
            if not is_open:
                self.open.discard(level.number)

    @contextlib.contextmanager
    def symbolic(self) -> Iterator[None]:
        before, self.is_symbolic = self.is_symbolic, True
        try:
            yield
        finally:
            self.is_symbolic = before


def current_tape() -> Tape | None:
    """The tape of this thread, which may have been closed."""
    reference = getattr(_thread, "tape", None)
    return reference() if reference is not None else None


class Level:
    """What one gradient is taken in.  A tape lives as long as one of its levels."""

    def __init__(self) -> None:
        tape = current_tape()
        if tape is None or not tape.n_alive:
            tape = Tape()
            _alive.add(tape)
            _thread.tape = weakref.ref(tape)
        self.tape = tape
        self.tape.n_alive += 1
        self.tape.n_levels += 1
        self.number = self.tape.n_levels
        self.tape.open.add(self.number)

    def __del__(self) -> None:
        self.tape.open.discard(self.number)
        self.tape.n_alive -= 1
        if not self.tape.n_alive:
            self.tape.close()


_CURE = (
    "use NumPy's functions on it; write it into an array that is made of one: np.zeros_like(x); or take dg.stop_gradient of it"
)


# -- tracers -----------------------------------------------------------------------------------------------------------------------


class Tracer(Taped):
    """An array, or a NumPy scalar, whose gradient is asked for: it does what the array does, and the tape notes it."""

    __slots__ = ("__weakref__", "array", "tape", "value")

    def __init__(self, tape: Tape, array: Array, value: Any):
        self.tape, self.array, self.value = tape, array, value

    @property  # type: ignore[misc]
    def __class__(self) -> type:  # type: ignore[override]
        """To isinstance it is what it stands for."""
        return type(self.value)

    def _lives(self) -> bool:
        return bool(self.tape.open) and self.tape.is_active(self.tape.ex.memories.present(self.array))

    def _plain(self, what: str, cure: str) -> Any:
        """The plain value, for what cannot keep a gradient."""
        if self._lives():
            raise GradientError(f"{users_line()}: {what} of a value that is being differentiated would lose its gradient; {cure}")
        return self.value

    # -- NumPy's protocols ----------------------------------------------------------------------------------------------
    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        outs = kwargs.get("out")
        if isinstance(outs, tuple) and len(outs) == 1:
            kwargs["out"] = outs[0]
        elif outs is None:
            kwargs.pop("out", None)
        return _called(ufunc if method == "__call__" else getattr(ufunc, method), ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return _called(function, function, "__call__", args, kwargs)

    # -- items ----------------------------------------------------------------------------------------------------------
    def __getitem__(self, key: Any) -> Any:
        tape = self.tape
        return tape.step(
            lambda: subscript(tape.frame, self.array, tape.to_value(key)), lambda: self.value[plain_of(key)], "this way of indexing"
        )

    def __setitem__(self, key: Any, item: Any) -> None:
        tape = self.tape

        def meaning() -> Value:
            store(tape.frame, self.array, tape.to_value(key), tape.to_value(item))
            return Const(None)

        def real() -> None:
            self.value[plain_of(key)] = plain_of(item)

        self._check_own("written")
        tape.step(meaning, real, "this assignment", [self])

    def _check_own(self, what: str) -> None:
        if self.tape.open and way_to(self.array.node)[1].is_op("variable"):
            raise GradientError(
                f"{users_line()}: an argument by which a gradient is taken is {what}; write to a copy of it: x = x.copy()"
            )

    def __len__(self) -> int:
        return len(self.value)

    def __iter__(self) -> Iterator[Any]:
        return (self[k] for k in range(len(self)))

    def __contains__(self, item: Any) -> bool:
        return plain_of(item) in self.value

    # -- attributes -----------------------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what others ask to make plain arrays of it
            raise AttributeError(f"{type(self.value).__name__!r} object that is being differentiated has no attribute {name!r}")
        if name in _UFUNCS and not hasattr(self.value, name):  # NumPy asks elements of arrays of objects
            return lambda: getattr(np, name)(self)
        real = getattr(self.value, name)
        if isinstance(real, np.flatiter) and self.value.flags.c_contiguous:
            return self.reshape(-1)
        tape = self.tape
        if not tape.open:
            return real
        if callable(real):
            try:
                return _TracerMethod(self, name, load_attribute(tape.frame, self.array, name))
            except (Break, Unsupported, Raised) as stop:
                return _TracerMethod(self, name, stop.with_traceback(None))  # which would hold the tracer
        return tape.step(lambda: load_attribute(tape.frame, self.array, name), lambda: real, f".{name}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in Tracer.__slots__:
            raise GradientError(f"{users_line()}: .{name} of a value that is being differentiated is set; make a new array")
        object.__setattr__(self, name, value)

    # -- as other things ------------------------------------------------------------------------------------------------
    def __bool__(self) -> bool:
        return bool(self.value)

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self._plain("float()", _CURE))

    def __complex__(self) -> complex:
        return complex(self._plain("complex()", _CURE))

    def __index__(self) -> int:
        return operator.index(self.value)

    def __round__(self, digits: int | None = None) -> Any:
        return round(self.value) if digits is None else np.round(self, digits)

    def __copy__(self) -> Any:
        return self.copy()

    def __deepcopy__(self, memo: Any) -> Any:
        return self.copy()

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._plain("a pickle", "take dg.stop_gradient of it").__reduce_ex__(protocol)

    def __hash__(self) -> int:
        return hash(self.value)

    def __repr__(self) -> str:
        return f"<being differentiated: {self.value!r}>"

    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, specification: str) -> str:
        return format(self.value, specification)


class _TracerMethod:
    """``tracer.name``, to be called."""

    def __init__(self, tracer: Tracer, name: str, meaning: Any):
        self.tracer, self.name, self.meaning = tracer, name, meaning

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        tracer, tape = self.tracer, self.tracer.tape

        def meaning() -> Value:
            if isinstance(self.meaning, Exception):
                raise self.meaning
            return tape.call(self.meaning, args, kwargs)

        def real() -> Any:
            return getattr(tracer.value, self.name)(*plain_of(args), **plain_of(kwargs))

        return tape.step(meaning, real, f".{self.name}()", [tracer, *_arrays_in((args, kwargs))])


def tapes_alive() -> bool:
    """Whether there are tracers at all: most programs never have any."""
    return bool(_alive)


def holds_tracers(value: Any, depth: int = 5) -> bool:
    """Whether a value is a tracer, or a plain container that holds one: asks no object of the user's anything."""
    kind = type(value)
    if kind in (tuple, list, dict) and depth:
        items = value.values() if kind is dict else value
        return any(holds_tracers(item, depth - 1) for item in items)
    return kind is Tracer


def is_tracer(value: Any) -> bool:
    """Whether a value is being differentiated on a tape, whatever class it says that it is of."""
    return type(value) is Tracer


def _called(function: Any, owner: Any, method: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """A call of a function of NumPy's, or of a method of a ufunc."""
    tape = next((a.tape for a in _arrays_in((args, kwargs)) if type(a) is Tracer and a.tape.open), None)
    if tape is None:
        return function(*plain_of(args), **plain_of(kwargs))
    name = f"np.{getattr(owner, '__name__', owner)}" + ("" if method == "__call__" else f".{method}")
    written = _arrays_in((args, kwargs))
    for out in _arrays_in(kwargs.get("out")):
        if type(out) is Tracer:
            out._check_own("written")
        elif isinstance(out, np.ndarray):
            raise GradientError(
                f"{users_line()}: {name} writes a value that is being differentiated into a plain array; leave out= away"
            )

    def meaning() -> Value:
        target = Const(owner) if method == "__call__" else Method(method, Const(owner))
        return tape.call(target, args, kwargs)

    return tape.step(meaning, lambda: function(*plain_of(args), **plain_of(kwargs)), name, written, function in _LIKE)


def _operator(symbol: str, real: Callable[[Any, Any], Any], swapped: bool = False) -> Callable[[Tracer, Any], Any]:
    def operate(self: Tracer, other: Any) -> Any:
        tape = self.tape
        if not isinstance(other, (np.ndarray, np.generic, int, float, complex, list, tuple)):
            return NotImplemented
        if not tape.open and type(other) is Tracer:
            tape = other.tape
        left, right = (other, self) if swapped else (self, other)
        return tape.step(
            lambda: binary(tape.frame, symbol, tape.to_value(left), tape.to_value(right)),
            lambda: real(plain_of(left), plain_of(right)),
            f"the operator {symbol}",
        )

    return operate


def _operator_in_place(symbol: str, real: Callable[[Any, Any], Any]) -> Callable[[Tracer, Any], Any]:
    def operate(self: Tracer, other: Any) -> Any:
        tape = self.tape
        if not self.array.is_scalar:
            self._check_own("written")
        return tape.step(
            lambda: in_place(tape.frame, symbol, self.array, tape.to_value(other)),
            lambda: real(self.value, plain_of(other)),
            f"the operator {symbol}=",
            [self],
        )

    return operate


def _unary_operator(name: str, real: Callable[[Any], Any]) -> Callable[[Tracer], Any]:
    def operate(self: Tracer) -> Any:
        tape = self.tape
        return tape.step(lambda: unary(tape.frame, name, self.array), lambda: real(self.value), f"the operator {name}")

    return operate


for _row in BINARY.values():
    setattr(Tracer, _row.method, _operator(_row.symbol, _row.function))
    if not _row.mirrored:
        setattr(Tracer, _row.reflected, _operator(_row.symbol, _row.function, swapped=True))
    if _row.in_place is not None:
        setattr(Tracer, f"__i{_row.name}__", _operator_in_place(_row.symbol, _row.in_place))
for _row in UNARY.values():
    setattr(Tracer, _row.method, _unary_operator(_row.symbol, _row.function))


# -- helpers ---------------------------------------------------------------------------------------------------------------------


def plain_of(obj: Any) -> Any:
    """An argument as NumPy takes it: without tracers."""
    kind = type(obj)
    if kind is Tracer:
        return obj.value
    if kind in (tuple, list):
        return kind(plain_of(item) for item in obj)
    if kind is dict:
        return {key: plain_of(item) for key, item in obj.items()}
    if kind is slice:
        return slice(plain_of(obj.start), plain_of(obj.stop), plain_of(obj.step))
    if kind is np.ndarray and obj.dtype.hasobject and any(type(item) is Tracer for item in obj.flat):
        return np.array(plain_of(obj.tolist()))
    return obj


def _arrays_in(obj: Any) -> list[Any]:
    if type(obj) is Tracer or isinstance(obj, np.ndarray):
        return [obj]
    items = obj.values() if isinstance(obj, dict) else obj if isinstance(obj, (tuple, list)) else ()
    return [array for item in items for array in _arrays_in(item)]


def _holds_inexact(obj: Any) -> bool:
    """Whether a result holds numbers that a gradient could be lost of."""
    if isinstance(obj, (tuple, list)):
        return any(map(_holds_inexact, obj))
    if isinstance(obj, (np.ndarray, np.generic)):
        return obj.dtype.kind in "fcOV"
    return isinstance(obj, (float, complex, *_MEMORY))


def owner_of(array: np.ndarray) -> Any:
    """The object whose memory an array lies in."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array if array.base is None else array.base


__all__ = [
    "Level", "Tape", "Tracer", "current_tape", "holds_tracers", "is_tracer", "owner_of", "plain_of", "tapes_alive",
]  # fmt: skip
