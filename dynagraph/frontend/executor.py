"""The symbolic executor: runs a function's bytecode on values that are known or followed, and builds the graph.

It executes nothing of the user's program for effect: what is not known to be pure stops the capture with a `Break`.
"""

from __future__ import annotations

import builtins
import inspect
import types
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy as np

from dynagraph import config
from dynagraph._core import _dispatch
from dynagraph.frontend.breaks import Break
from dynagraph.frontend.decode import Instruction, decode
from dynagraph.frontend.guards import GuardList, describe_value
from dynagraph.frontend.numpy_door import Builder, Door, Unsupported, lookup
from dynagraph.frontend.source import Attribute, Closure, DictEntry, Item, Key, Known, Local, Source
from dynagraph.frontend.source import Cell as CellSource
from dynagraph.frontend.values import NULL, Array, Cell, Const, Dict, Function, Iter, Object, Sequence, Slice, Value
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Location, Meta, Node
from dynagraph.ir.ops import view_of
from dynagraph.ir.shapes import Dim, ShapeEnv, SymInt

Handler = Callable[["Frame", Instruction], None]
HANDLERS: dict[str, Handler] = {}

SINGLETONS = (None, True, False, Ellipsis, NotImplemented)
VALUES = (int, float, complex, str, bytes)  # constants that are guarded by value
IDENTITIES = (
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    np.ufunc,
    types.FunctionType,
    _dispatch.CompiledFunction,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    type(np.where),
)
MAX_NODES = 20000


def handler(*ops: str) -> Callable[[Handler], Handler]:
    """Register the handler of normalised opcodes."""

    def register(function: Handler) -> Handler:
        for op in ops:
            HANDLERS[op] = function
        return function

    return register


class Frame:
    """One call: the captured function's, or one that is inlined into it."""

    def __init__(self, ex: "Executor", function: Function, arguments: dict[str, Value], depth: int):
        self.ex = ex
        self.function = function
        self.code = function.code
        self.depth = depth
        self.stack: list[Any] = []
        self.instructions = decode(function.code)
        self.ip = 0
        self.jumps_back = 0
        self.keyword_names: tuple[str, ...] = ()
        self.result: Value | None = None
        self.locals: dict[str, Value] = {k: v for k, v in arguments.items() if k not in function.code.co_cellvars}
        self.cells: dict[str, Cell] = {name: Cell(arguments.get(name, NULL)) for name in function.code.co_cellvars}
        self.cells.update(zip(function.code.co_freevars, function.closure))

    def run(self) -> Value:
        while self.result is None:
            instruction = self.instructions[self.ip]
            self.ip += 1
            self.step(instruction)
        return self.result

    def step(self, instruction: Instruction) -> None:
        location = self.ex.graph.location = Location(self.code.co_filename, instruction.line)
        found = HANDLERS.get(instruction.op)
        if found is None:
            raise Break("UNKNOWN_OPCODE", location, instruction.op)
        try:
            found(self, instruction)
        except Unsupported as refusal:
            raise Break(refusal.reason, location, refusal.detail) from None
        except Break as stop:
            if stop.location is None:
                raise Break(stop.reason.name, location, stop.detail) from None
            raise

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        return self.stack.pop()

    def popn(self, n: int) -> list[Any]:
        if n == 0:
            return []
        items = self.stack[-n:]
        del self.stack[-n:]
        return items

    def jump(self, target: int) -> None:
        if target < self.ip:
            self.jumps_back += 1
            if self.jumps_back > config.unroll_limit:
                raise Break("UNROLL_LIMIT", None, f"more than {config.unroll_limit} iterations")
        self.ip = target


class Executor:
    """One capture: the graph, the guards, and how Python objects become values."""

    def __init__(self, function: types.FunctionType, values: tuple[Any, ...], dynamic: bool | None):
        self.function = function
        self.values = values
        self.dynamic = bool(dynamic)
        self.graph = Graph(function.__name__)
        self.builder = Builder(self.graph, lambda node: node in self.scalars)
        self.guards = GuardList(len(values))
        self.env = ShapeEnv()
        self.dims: list[tuple[int, int, int]] = []  # symbol, input slot, axis
        self.scalars: set[Node] = set()
        self.arrays: dict[Node, Array] = {}  # which value a node is the current one of
        self.viewed: set[Node] = set()  # whose memory some other value looks at
        self.wrapped: dict[Source, Value] = {}
        self.objects: dict[Source, Any] = {}  # the caller's objects that were wrapped
        self.n_inputs = 0

    # -- running ------------------------------------------------------------------------------------------------------
    def run(self) -> Value:
        """The value that the captured function returns."""
        code = self.function.__code__
        names = inspect.getargs(code)
        parameters = [*names.args]
        parameters += [name for name in (names.varargs, names.varkw) if name is not None]
        # co_varnames order: positional, keyword-only, *args, **kwargs
        arguments = {
            name: _LazyLocal(self, value, Local(index, name)) for index, (name, value) in enumerate(zip(parameters, self.values))
        }
        closure = tuple(
            Cell(source=Closure(k, name), real=cell)
            for k, (name, cell) in enumerate(zip(code.co_freevars, self.function.__closure__ or ()))
        )
        main = Function(code, self.function.__globals__, self.function.__qualname__, closure=closure)
        return Frame(self, main, arguments, 0).run()  # type: ignore[arg-type]

    def inline(self, function: Function, arguments: dict[str, Value], depth: int) -> Value:
        """The value of a call of a Python function."""
        if depth > config.inline_depth:
            raise Break("RECURSION", None, function.name)
        if function.code.co_flags & (inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR):
            raise Break("GENERATOR", None, function.name)
        if len(self.scalars) + len(self.arrays) > MAX_NODES:
            raise Break("UNROLL_LIMIT", None, f"more than {MAX_NODES} operations")
        location = self.graph.location
        result = Frame(self, function, arguments, depth).run()
        self.graph.location = location
        return result

    # -- Python objects as values ---------------------------------------------------------------------------------------
    def wrap(self, obj: Any, source: Source) -> Value:
        """The value of an object that the program read from `source`, guarded as far as it is known from now on."""
        found = self.wrapped.get(source)
        if found is None:
            found = self.wrapped[source] = self._wrap(obj, source)
            self.objects[source] = obj
        return found

    def constant(self, value: Any) -> Value:
        """A literal of the code."""
        if type(value) is tuple:
            return Sequence(tuple, [self.constant(v) for v in value])
        return Const(value)

    def _wrap(self, obj: Any, source: Source) -> Value:
        kind = type(obj)
        if any(obj is s for s in SINGLETONS):
            self.guards.add("is", source, obj, says=f" is {obj!r}")
            return Const(obj, source)
        if kind in VALUES:
            self.guards.add("equal", source, obj, says=f" is {obj!r}")
            return Const(obj, source)
        if kind is np.ndarray:
            return self._array_input(obj, source)
        if isinstance(obj, np.ndarray):
            raise Break("UNSUPPORTED_INPUT", None, f"{source} is {describe_value(obj)}, a subclass of np.ndarray")
        if isinstance(obj, np.generic):
            return self._scalar_input(obj, source)
        if kind in (tuple, list):
            self.guards.add("type", source, kind, says=f" is a {kind.__name__}")
            self.guards.add("len", source, len(obj), says=f" has {len(obj)} items")
            items = [_LazyItem(self, item, Item(source, k)) for k, item in enumerate(obj)]
            return Sequence(kind, items, source)
        if kind is dict:
            self.guards.add("type", source, dict, says=" is a dict")
            return Dict({}, source, obj)
        if kind is types.FunctionType:
            return self._function(obj, source)
        if isinstance(obj, (*IDENTITIES, np.dtype)) or lookup(obj) is not None:
            self.guards.add("is", source, obj, says=f" is {_short(obj)}")
            return Const(obj, source)
        return Object(obj, source)

    def _array_input(self, array: np.ndarray, source: Source) -> Array:
        dtype = dtypes.from_numpy(array.dtype)
        if dtype is None or array.dtype.metadata:
            raise Break("UNSUPPORTED_INPUT", None, f"{source} has dtype {array.dtype}")
        if not array.flags.aligned or array.ndim > 8:
            raise Break("UNSUPPORTED_INPUT", None, f"{source} is not aligned, or has more than 8 dimensions")
        slot = self.n_inputs
        if slot >= 200:
            raise Break("UNSUPPORTED_INPUT", None, "more than 200 arrays")
        contiguous = array.flags.c_contiguous
        if not contiguous and any(s % array.itemsize for s in array.strides):
            raise Break("UNSUPPORTED_INPUT", None, f"{source} has strides that are no multiple of its item size")
        strides = None if contiguous else tuple(s // array.itemsize for s in array.strides)
        shape, guarded = self._dims(array, slot, contiguous)
        self.n_inputs += 1
        self.guards.add(
            "array",
            source,
            slot,
            array.dtype,
            array.ndim,
            guarded,
            strides,
            bool(array.flags.writeable),
            says=f": {describe_value(array)}" + ("" if array.flags.writeable else " read-only"),
        )
        node = self.graph.placeholder(_name_of(source), Meta(dtype, shape, strides))
        return self._own(Array(node, source=source))

    def _dims(self, array: np.ndarray, slot: int, contiguous: bool) -> tuple[tuple[Dim, ...], tuple[int | None, ...]]:
        if not self.dynamic or not contiguous:
            return array.shape, array.shape
        shape: list[Dim] = []
        guarded: list[int | None] = []
        for axis, size in enumerate(array.shape):
            if size < 2 or len(self.dims) >= 60:
                shape.append(size)
                guarded.append(size)
            else:
                self.dims.append((len(self.env.values), slot, axis))
                shape.append(self.env.symbol(size))
                guarded.append(None)
        return tuple(shape), tuple(guarded)

    def _scalar_input(self, scalar: np.generic, source: Source) -> Array:
        dtype = dtypes.from_numpy(scalar.dtype)
        if dtype is None or type(scalar) is not dtype.numpy.type:
            raise Break("UNSUPPORTED_INPUT", None, f"{source} is a {type(scalar).__name__}")
        slot = self.n_inputs
        self.n_inputs += 1
        self.guards.add("scalar", source, slot, type(scalar), says=f" is a np.{type(scalar).__name__}")
        node = self.graph.placeholder(_name_of(source), Meta(dtype, ()))
        self.scalars.add(node)
        return self._own(Array(node, is_scalar=True, source=source))

    def _function(self, obj: types.FunctionType, source: Source) -> Function:
        """A function of the user's: identity, and what identity does not fix."""
        self.guards.add("is", source, obj, says=f" is the function {obj.__qualname__}")
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            value = getattr(obj, name)
            self.guards.add("is", Attribute(source, name), value, says=" is the same object")
        defaults = Attribute(source, "__defaults__")
        keyword_defaults = Attribute(source, "__kwdefaults__")
        return Function(
            obj.__code__,
            obj.__globals__,
            obj.__qualname__,
            tuple(_LazyItem(self, d, Item(defaults, k)) for k, d in enumerate(obj.__defaults__ or ())),
            {k: _LazyItem(self, d, Key(keyword_defaults, k)) for k, d in (obj.__kwdefaults__ or {}).items()},
            tuple(
                Cell(source=CellSource(cell, name), real=cell)
                for name, cell in zip(obj.__code__.co_freevars, obj.__closure__ or ())
            ),
            source,
            obj,
        )

    def class_function(self, function: types.FunctionType, owner: type, name: str) -> Function:
        """A function that stands in a class whose version is guarded: its code and defaults may still be replaced."""
        source = Known(function, f"{owner.__name__}.{name}")
        found = self.wrapped.get(source)
        if found is None:
            found = self.wrapped[source] = self._function(function, source)
            self.objects[source] = function
        assert isinstance(found, Function)
        return found

    def load_global(self, owner: dict[str, Any], name: str) -> Value:
        """A global of a function, or a builtin."""
        if name in owner:
            return self.wrap(owner[name], DictEntry(owner, name))
        self.guards.absent(owner, name)
        scope = owner.get("__builtins__", builtins)
        entries = scope if isinstance(scope, dict) else vars(scope)
        if name not in entries:
            raise Break("WOULD_RAISE", None, f"name {name!r} is not defined")
        return self.wrap(entries[name], DictEntry(entries, name, "builtin"))

    def load_cell(self, cell: Cell) -> Value:
        if cell.source is not None and cell.value is NULL:
            try:
                cell.value = self.wrap(cell.real.cell_contents, cell.source)
            except ValueError:
                raise Break("WOULD_RAISE", None, f"{cell.source} is not set yet") from None
        if cell.value is NULL:
            raise Break("WOULD_RAISE", None, "a free variable is not set yet")
        return self.resolve(cell.value)

    # -- arrays ---------------------------------------------------------------------------------------------------------
    def _own(self, array: Array) -> Array:
        self.arrays[array.node] = array
        return array

    def call_door(self, door: Door, args: Iterable[Value], kwargs: dict[str, Value] | None = None) -> Value:
        """What a NumPy function gives for values."""
        given = [self.to_door(a) for a in args]
        named = {k: self.to_door(v) for k, v in (kwargs or {}).items()}
        result = door(self.builder, *given, **named)
        kind = door.returns
        if kind == "same":
            first = next((x for x in (*given, *named.values()) if isinstance(x, Node)), None)
            kind = "value" if first is not None and first in self.scalars else "array"
        return self.from_door(result, kind)

    def to_door(self, value: Value) -> Any:
        """A value as the door takes it."""
        value = self.resolve(value)
        if isinstance(value, Array):
            return value.node
        if isinstance(value, Const):
            return value.value
        if isinstance(value, Sequence):
            return value.kind(self.to_door(i) for i in value.items)
        if isinstance(value, Slice):
            return slice(*(self.to_door(p) for p in value.parts))
        if isinstance(value, Object):
            raise Break("UNSUPPORTED_VALUE", None, f"{value.source} is {describe_value(value.value)}")
        raise Break("UNSUPPORTED_VALUE", None, f"a {type(value).__name__.lower()} as an argument of a NumPy function")

    def from_door(self, result: Any, returns: str) -> Value:
        """What a door gave, as a value."""
        if isinstance(result, Node):
            return self._from_node(result, returns)
        if isinstance(result, (tuple, list)):
            return Sequence(type(result) if type(result) in (tuple, list) else tuple, [self.from_door(r, returns) for r in result])
        return Const(result)

    def _from_node(self, node: Node, returns: str) -> Array:
        known = self.arrays.get(node)
        if known is not None:
            return known  # np.asarray(x) is x
        found = view_of(node)
        scalar = returns == "value" and node.ndim == 0
        if scalar:
            self.scalars.add(node)
        elif found is not None:
            self.viewed.add(found[0])
        return self._own(Array(node, is_scalar=scalar))

    def write_in_place(self, array: Array, result: Array) -> bool:
        """Give `array` the value of `result`, where nobody else sees its memory; False where that is not known."""
        node = array.node
        if array.source is not None or array.is_scalar or node.kind != "call_function" or node in self.viewed:
            return False
        if view_of(node) is not None or not _same_static_shape(node, result.node):
            return False
        if not np.can_cast(result.node.dtype.numpy, node.dtype.numpy, "same_kind"):
            return False
        new = self.builder.cast(result.node, node.dtype)
        if new is result.node and (new in self.arrays and self.arrays[new] is not result):
            new = self.builder.call("copy", new)
        array.node = new
        self.arrays[new] = array
        return True

    # -- laziness ---------------------------------------------------------------------------------------------------------
    def resolve(self, value: Any) -> Any:
        """The value itself, where it is one of the caller's that nothing has looked at yet."""
        return value.force() if isinstance(value, (_LazyLocal, _LazyItem)) else value


class _Lazy:
    """An object of the caller's that is guarded when it is first used."""

    def __init__(self, ex: Executor, obj: Any, source: Source):
        self.ex, self.obj, self.source = ex, obj, source

    def force(self) -> Value:
        return self.ex.wrap(self.obj, self.source)


class _LazyLocal(_Lazy):
    pass


class _LazyItem(_Lazy):
    pass


def _same_static_shape(a: Node, b: Node) -> bool:
    return a.ndim == b.ndim and all(x == y for x, y in zip(a.shape, b.shape))


def _name_of(source: Source) -> str:
    if isinstance(source, (Attribute, Item, Key)):
        tail = source.name if isinstance(source, Attribute) else source.index if isinstance(source, Item) else source.key
        return f"{_name_of(source.base)}_{tail}"
    return source.key if isinstance(source, DictEntry) else source.name.replace(".", "_")


def _short(obj: Any) -> str:
    text = getattr(obj, "__qualname__", None) or getattr(obj, "__name__", None) or repr(obj)
    return f"{'module ' if isinstance(obj, types.ModuleType) else ''}{text}"


def refuse(reason: str, detail: str) -> NoReturn:
    """Stop the capture at the current line."""
    raise Break(reason, None, detail)


__all__ = ["HANDLERS", "NULL", "Executor", "Frame", "Iter", "SymInt", "handler", "refuse"]
