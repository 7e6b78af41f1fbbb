"""The symbolic executor: runs a function's bytecode on values that are known or followed, and builds the graph.

It executes nothing of the user's program for effect: what is not known to be pure is noted as an effect, or stops the capture.
"""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph import config, deadline
from dynagraph.array_libraries import NUMPY, ArrayLibrary
from dynagraph.frontend import array_writes, bfloat16_door, cupy_door, masks
from dynagraph.frontend.breaks import Break
from dynagraph.frontend.exceptions import Raised, refuse, said, throw
from dynagraph.frontend.guards import GuardList, describe_value
from dynagraph.frontend.memory import Memories
from dynagraph.frontend.numpy_door import Builder, Chosen, Door, Unsupported, WeakFloat
from dynagraph.frontend.numpy_door.builder import leaves
from dynagraph.frontend.numpy_errors import numpy_error_of
from dynagraph.frontend.numpy_source import is_numpys
from dynagraph.frontend.profile import Profile
from dynagraph.frontend.program import Instruction, Program, Region, UndecodableCode, decode
from dynagraph.frontend.source import Closure, Contents, Local, Returned, Source
from dynagraph.frontend.values import (
    NULL,
    Array,
    Cell,
    Const,
    Dict,
    Function,
    Identity,
    Iterator,
    Masked,
    Number,
    Object,
    ObjectKey,
    Sequence,
    Set,
    Slice,
    Sourced,
    Value,
    source_of,
)
from dynagraph.frontend.wrapping import MAX_DIMS, Lazy, acts_as_array, cell_value, guard_cells, guard_length, held_value, wrap
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.shapes import ShapeEnv, SymInt
from dynagraph.location import Location
from dynagraph.markers import OPEN_MODULES

Handler = Callable[["Frame", Instruction], None]
HANDLERS: dict[str, Handler] = {}
MAX_NODES = 20000
MAX_ITERATIONS_OF_NUMPY = 64  # of a loop in NumPy's own code: what takes more is better left to NumPy
SUSPENDS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


def handler(*ops: str) -> Callable[[Handler], Handler]:
    """Register the handler of normalised opcodes."""

    def register(function: Handler) -> Handler:
        for op in ops:
            HANDLERS[op] = function
        return function

    return register


@dataclass(eq=False)
class Step:
    """A call that an entry makes when its guards hold, before the program runs.

    `node`: the input of the program that it gives, if any.
    """

    made: Returned  # what is called, and the source of what it gives
    args: tuple[Value, ...]
    node: Node | None = None


class Stopped(Exception):
    """The main frame has come to the step at which this capture ends."""


class Frame:
    """One call: the captured function's, or one that is inlined into it."""

    def __init__(
        self, ex: "Executor", function: Function, arguments: dict[str, Value], depth: int, program: Program | None = None
    ):
        self.ex = ex
        self.function = function
        self.code = function.code
        self.depth = depth
        self.stack: list[Any] = []
        self.program = program or _decoded(function.code)
        self.instructions = self.program.instructions
        self.ip = 0
        self.jumps_back = 0
        self.most_jumps_back = MAX_ITERATIONS_OF_NUMPY if is_numpys(function.globals) else config.unroll_limit
        self.is_ours = depth > 0 and function.globals.get("__name__") in OPEN_MODULES  # the user's line is its caller's
        self.result: Value | None = None
        self.suspended = False  # at a yield, whose value `result` is
        self.locals: dict[str, Value] = dict(arguments)
        self.cells: dict[str, Cell] = dict(zip(function.code.co_freevars, function.closure))
        self.namespace: Dict | None = None  # what locals() gave, where it gives one dict for each frame

    # -- running ----------------------------------------------------------------------------------------------------------
    def run(self) -> Value:
        """Run to the return, or to the next yield."""
        self.result, self.suspended = None, False
        while self.result is None:
            if self.depth == 0:
                self.ex.count_step()
            index = self.ip
            self.ip += 1
            self.step(index)
        return self.result

    def step(self, index: int) -> None:
        deadline.check()
        instruction = self.instructions[index]
        graph = self.ex.graph
        location = graph.location if self.is_ours else Location(self.code.co_filename, instruction.line)
        graph.location = location
        found = HANDLERS.get(instruction.op)
        if found is None:
            raise Break("UNKNOWN_OPCODE", location, instruction.op)
        try:
            found(self, instruction)
        except Raised as raised:
            again = instruction.op == "RERAISE" or (instruction.op == "RAISE_VARARGS" and instruction.value == 0)
            if raised.value.source is None and not again:
                raised.value.raised_at.append((self.code, instruction.line, self.function.globals))
            if not raised.chained:
                raised.chained = True
                self.ex.chain(raised.value)
            if not self.unwind(raised.value, self.program.handlers[index]):
                raise  # here, where no variable stays with it: a cycle would keep the caller's objects
        except Unsupported as refusal:
            raise Break(refusal.reason, location, refusal.detail) from None
        except Break as stop:
            if stop.location is None:
                raise Break(stop.reason.name, location, stop.detail) from None
            raise

    def unwind(self, error: Object, region: Region | None) -> bool:
        """Go on in the handler of the region that an exception was raised in; False where there is none."""
        if region is None:
            return False
        del self.stack[region.depth :]
        if region.push_lasti:
            self.stack.append(Const(0))  # where a reraise says it came from: no captured code looks at it
        self.stack.append(error)
        self.ip = region.target
        return True

    # -- the stack ----------------------------------------------------------------------------------------------------------
    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self) -> Any:
        """The top of the stack, guarded if it is an object of the caller's that nothing has looked at yet."""
        return self.ex.resolve(self.stack.pop())

    def pop_unseen(self) -> Any:
        """The top of the stack, as it is."""
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
            if self.jumps_back > self.most_jumps_back:
                raise Break("UNROLL_LIMIT", None, f"more than {self.most_jumps_back} iterations")
        self.ip = target


class Executor:
    """One capture: the graph, the guards, the effects, and how Python objects become values.

    `stop_at`: the step of the main frame before which the capture ends, or None for the function's return.
    """

    def __init__(
        self,
        function: types.FunctionType,
        program: Program,
        values: tuple[Any, ...],
        profile: Profile,
        stop_at: int | None = None,
    ):
        self.function = function
        self.values = values
        self.profile = profile
        self.stop_at = stop_at
        self.steps = 0
        self.graph = Graph(function.__name__)
        self.builder = Builder(self.graph, lambda node: node in self.scalars, lambda node: self.memories.rebased(node))
        self.guards = GuardList(len(values))
        self.env = ShapeEnv()
        self.dims: list[tuple[int, int, int]] = []  # symbol, input slot, axis
        self.scalars: set[Node] = set()
        self.arrays: dict[Node, Array] = {}  # which value a node is the current one of
        self.memories = Memories(self)  # of arrays that are written to
        self.wrapped: dict[Source, Value] = {}
        self.objects: dict[Source, Any] = {}  # the caller's objects that were wrapped
        self.cells: dict[int, Cell] = {}  # the real ones: one value each
        self.by_identity: dict[int, Sourced] = {}  # the caller's mutable objects: one value each
        self.stored: dict[tuple[int, str], Any] = {}  # globals set by the captured code
        self.class_attributes: dict[tuple[int, str], Value] = {}  # those set by the captured code
        self.effects: list[tuple[Any, tuple[Value, ...]]] = []
        self.prologue: list[Step] = []
        self.fresh: set[Any] = set()  # sources of random generators whose state the captured code has set itself
        self.written: dict[int, Sourced] = {}  # the caller's objects that effects change
        self.handling: list[Object] = []  # exceptions that are being handled, innermost last
        self.error_state: dict[str, str] = {}  # what the captured code has set of NumPy's (error_state.py)
        self.symbolic_floats: set[Source] = set()
        self.warning: dict[Node, int] = {}  # views that warn when they are written to, and the steps that made them
        self.computed: dict[Any, Number] = {}  # numbers that are computed before the program (numbers.py)
        self.integers: dict[str, Source] = {}  # by symbol: those of the caller's numbers that change
        self.caches: dict[int, Any] = {}  # of functions under lru_cache: caches.Cache by wrapper
        self.n_inputs = 0
        self.creating = False  # while a function of CuPy's makes an array of none
        self.library = NUMPY  # whose arrays the capture is of
        self.device = -1  # where these lie, once one has been seen
        self.of_bfloat16 = bfloat16_door.IN_NUMPY  # which doors are open to NumPy's arrays of bfloat16
        self.shown: set[int] = set()  # objects whose repr is under way
        self.main = self._main_frame(program)
        self.running = [self.main]  # the frames that run, innermost last

    def _main_frame(self, program: Program) -> Frame:
        code = self.function.__code__
        names = inspect.getargs(code)
        parameters = [*names.args]
        parameters += [name for name in (names.varargs, names.varkw) if name is not None]
        # co_varnames order: positional, keyword-only, *args, **kwargs
        arguments: dict[str, Any] = {
            name: Lazy(self, value, Local(index, name)) for index, (name, value) in enumerate(zip(parameters, self.values))
        }
        closure = tuple(
            cell_value(self, cell, Closure(k, name))
            for k, (name, cell) in enumerate(zip(code.co_freevars, self.function.__closure__ or ()))
        )
        main = Function(code, self.function.__globals__, self.function.__qualname__, closure=closure)
        frame = Frame(self, main, arguments, 0, program)
        made_here = {i.value for i in program.instructions if i.op == "MAKE_CELL"}
        for name in set(code.co_cellvars) - made_here:  # handed over at a break: the argument is the cell
            lazy: Any = frame.locals.pop(name, None)
            if lazy is not None:
                frame.cells[name] = cell_value(self, lazy.obj, Contents(lazy.source), lazy.source)
        return frame

    # -- running ------------------------------------------------------------------------------------------------------
    def run(self) -> Value | None:
        """The value that the captured function returns; None where the capture stops before."""
        try:
            return self.main.run()
        except Stopped:
            return None
        except Raised as raised:
            raise Break("WOULD_RAISE", self.graph.location, said(raised.value)) from None

    def release(self) -> None:
        """Let go of the caller's objects now: what refers to the executor itself would keep them until the next collection."""
        self.main = self.running = self.builder = self.values = self.memories = None  # type: ignore[assignment]
        held: list[Any] = [self.wrapped, self.objects, self.by_identity, self.arrays, self.stored, self.effects, self.prologue]
        for container in (*held, self.written, self.caches, self.handling):
            container.clear()

    def count_step(self) -> None:
        self.steps += 1
        if self.steps == self.stop_at:
            raise Stopped

    def inline(self, function: Function, arguments: dict[str, Value], depth: int) -> Value:
        """The value of a call of a Python function."""
        if depth > config.inline_depth:
            raise Break("RECURSION", None, function.name)
        flags = function.code.co_flags
        if flags & SUSPENDS:
            raise Break("GENERATOR", None, function.name)
        if len(self.arrays) > MAX_NODES:
            raise Break("UNROLL_LIMIT", None, f"more than {MAX_NODES} operations")
        frame = Frame(self, function, arguments, depth)
        if flags & inspect.CO_GENERATOR:
            return Generator(frame, self.steps)
        location, handling = self.graph.location, len(self.handling)
        self.running.append(frame)
        try:
            return frame.run()
        finally:
            self.running.pop()
            self.graph.location = location
            del self.handling[handling:]

    # -- Python objects as values ---------------------------------------------------------------------------------------
    def wrap(self, obj: Any, source: Source) -> Value:
        """The value of an object that the program read from `source`, guarded as far as it is known from now on."""
        return wrap(self, obj, source)

    def resolve(self, value: Any) -> Any:
        """The value itself, where it is one of the caller's that nothing has looked at yet."""
        return value.force() if type(value) is Lazy else value

    def constant(self, value: Any) -> Value:
        """A literal of the code, or a result of pure Python."""
        kind = type(value)
        if kind is tuple or kind is list:
            return Sequence(kind, [self.constant(v) for v in value])
        if kind is frozenset or kind is set:
            return Set(kind, kind(value))
        if kind is dict:
            return Dict({k: self.constant(v) for k, v in value.items()})
        if kind is ObjectKey:
            return value.value
        return value if kind is Identity else Const(value)

    def in_try(self) -> bool:
        """Whether an exception that is raised now is seen by the captured code."""
        return any(frame.program.handlers[frame.ip - 1] is not None for frame in self.running)

    def chain(self, error: Object) -> None:
        """Give an exception that is raised its context: the one that is being handled, which then has it not in its own chain."""
        link = self.handling[-1] if self.handling else error
        if link is error or error.source is not None:
            return
        first, seen = link, {id(link)}
        while isinstance(context := self.resolve(link.fields.get("__context__")), Object) and id(context) not in seen:
            if context is error:
                if link.source is not None:
                    refuse("SIDE_EFFECT", "the context of an exception that was made outside is cut off")
                link.fields["__context__"] = Const(None)
                break
            seen.add(id(context))
            link = context
        error.fields["__context__"] = first

    # -- effects ----------------------------------------------------------------------------------------------------------
    def effect(self, function: Any, *args: Value) -> None:
        """Have the program call `function` when the graph has run."""
        self.effects.append((function, args))

    def precede(self, function: Any, name: str, *args: Value, seen: bool, lasts: bool) -> Step:
        """Have the entry call `function` before the program runs.

        `seen`: it changes what others see, so that no program refuses the call at a place before this one.
        `lasts`: nor behind it, as a plain run of the call would make the change twice.
        """
        if seen and self.builder.refuses:
            refuse("RANDOM_DRAW", "behind a step that may raise an error")
        step = Step(Returned(function, name), args)
        self.prologue.append(step)
        self.builder.may_refuse = self.builder.may_refuse and not lasts
        return step

    def writes(self, value: Sourced) -> None:
        """Note that an effect changes one of the caller's objects: others must be known to be others."""
        self.written.setdefault(id(value), value)

    def separate_written(self) -> None:
        """Guard that what effects change is none of the other objects that the capture has looked at."""
        for value in self.written.values():
            for other in self.by_identity.values():
                both_followed = all(v.source is not None and type(v.source) is not Returned for v in (value, other))
                if other is not value and both_followed and type(other) is type(value):
                    self.guards.relate("not_same", source_of(value), source_of(other), "is not")
            if isinstance(value, Cell):
                for cell in self.cells.values():
                    if cell is not value:
                        guard_cells(self, value, cell.real, cell.owner, "is not")

    # -- arrays ---------------------------------------------------------------------------------------------------------
    def known(self, array: Array) -> np.ndarray | None:
        """What an array holds, if that depends on no input."""
        if self.library is not NUMPY:
            return None  # NumPy would compute it, perhaps to other bits
        return self.builder.known(self.memories.present(array))

    def claim(self, library: ArrayLibrary, device: int | None = None) -> None:
        """Take part in the capture with arrays of a library, on a device: all are of one, as CuPy raises where they are not."""
        if library is not self.library:
            if self.library is not NUMPY or any(not array.is_scalar for array in self.arrays.values()):
                refuse("MIXED_LIBRARIES", f"of {self.library.name} and of {library.name}")
            if not self.builder.may_refuse:
                refuse("RANDOM_DRAW", f"before arrays of {library.name}")
            self.library = library
            self.graph.library = library.name
            self.builder.check_op = cupy_door.check_op
        if device is not None and library is not NUMPY:
            if self.device not in (-1, device):
                refuse("MIXED_LIBRARIES", f"on the devices {self.device} and {device}")
            self.device = device

    def own(self, array: Array) -> Array:
        if self.library is not NUMPY and isinstance(array.source, Returned) and not array.is_scalar:
            refuse("MIXED_LIBRARIES", f"{array.source} gives an array of NumPy's")
        self.arrays[array.node] = array
        return array

    def call_door(self, door: Door, args: Iterable[Value], kwargs: dict[str, Value] | None = None) -> Value:
        """What a NumPy function gives for values."""
        args, kwargs = [self.resolve(a) for a in args], {k: self.resolve(v) for k, v in (kwargs or {}).items()}
        if array_writes.asks_for_array(self, kwargs):
            return array_writes.as_array(self, self.call_door(door, args, {k: v for k, v in kwargs.items() if k != "out"}))
        if array_writes.has_out(self, door, args, kwargs):
            return array_writes.call_with_out(self, door, args, kwargs)
        if any(isinstance(v, Masked) for v in (*args, *kwargs.values())):
            return masks.call_door(self, door, args, kwargs)
        return self.from_door(*self.open_door(door, args, kwargs))

    def open_door(self, door: Door, args: list[Value], kwargs: dict[str, Value]) -> tuple[Any, str]:
        """What a door gives, and what its 0-d results are: "value" or "array"."""
        given = [self.to_door(a) for a in args]
        named = {k: self.to_door(v) for k, v in kwargs.items()}
        try:
            result = door(self.builder, *given, **named)
        except Unsupported as refusal:
            raised_here = refusal.reason == "NUMPY_ERROR" and self.in_try() and self.library is NUMPY
            error = numpy_error_of(self, door, given, named) if raised_here else None
            if error is None:
                raise
            throw(error)
        taken = (*given, *named.values())
        of_bfloat16 = self.of_bfloat16 if self.library is NUMPY else bfloat16_door.ON_DEVICE
        bfloat16_door.check(door, taken, result, of_bfloat16, self.scalars.__contains__)
        kind = door.returns
        if kind == "same":
            first = next((x for x in taken if isinstance(x, Node)), None)
            kind = "value" if first is not None and first in self.scalars else "array"
        return result, kind if self.library is NUMPY else self._kind_on_device(door, taken, result, kind)

    def _kind_on_device(self, door: Door, given: tuple[Any, ...], result: Any, kind: str) -> str:
        """What 0-d results of CuPy are; NumPy scalars among themselves stay NumPy's affair."""
        own = cupy_door.names()
        name = None if own is None else own.doors.get(door)
        nodes = [x for x in leaves(given) if isinstance(x, Node)]
        if self.creating or any(n not in self.scalars for n in nodes):
            if name is None:
                raise Unsupported("UNSUPPORTED_FUNCTION", f"CuPy: {door.name}")
            assert own is not None
            cupy_door.check_operands(name, given, self.scalars.__contains__)
            cupy_door.check_result(name, result)
            if name in cupy_door.BINARY or name in cupy_door.UNARY or name in cupy_door.UFUNCS:
                cupy_door.check_loop(own, name, given, self.scalars.__contains__, result)
            return "array"
        if any(isinstance(x, Node) and (x.ndim or kind != "value") for x in leaves(result)) or isinstance(result, Chosen):
            raise Unsupported("MIXED_LIBRARIES", f"np.{door.name} makes an array of NumPy's")
        return kind

    def to_door(self, value: Value) -> Any:
        """A value as the door takes it."""
        value = self.resolve(value)
        if isinstance(value, Array):
            return self.memories.present(value)
        if isinstance(value, Const):
            return value.value
        if isinstance(value, Masked):
            refuse("DATA_DEPENDENT", "what a mask chooses, where its size matters")
        if isinstance(value, Number):
            return WeakFloat(value.node)
        if isinstance(value, Sequence) and value.kind in (list, tuple):
            if not value.sized:
                guard_length(self, value)
            return value.kind(self.to_door(i) for i in value.items)
        if isinstance(value, Slice):
            return slice(*(self.index_number(p) for p in value.parts))
        if isinstance(value, Object) and self.library is NUMPY:  # CuPy takes exact numbers
            if isinstance(value.value, enum.Enum) and isinstance(value.value, int):
                return self.builder.scalar(self.index_number(value), dtypes.int64)  # to NumPy no weak number
            held = self.held_number(value)
            if held is not None:
                return self.builder.scalar(held, dtypes.int64 if type(held) is int else dtypes.float64)
        if isinstance(value, Object):
            raise Break("UNSUPPORTED_VALUE", None, f"{value.source} is {describe_value(value.value)}")
        raise Break("UNSUPPORTED_VALUE", None, f"a {type(value).__name__.lower()} as an argument of a NumPy function")

    def held_number(self, value: Object) -> int | float | None:
        """What an instance of a subclass of int or float is to NumPy; None for anything else."""
        if acts_as_array(value.kind):
            return None
        held = held_value(self, value)
        fits = held is not None and (type(held.value) is float or (type(held.value) is int and -(2**63) <= held.value < 2**63))
        return held.value if held is not None and fits else None

    def index_number(self, value: Value) -> Any:
        """What stands for a bound or an index: of a member of an enum of integers, the integer."""
        value = self.resolve(value)
        if isinstance(value, Object) and isinstance(value.value, enum.Enum) and isinstance(value.value, int) and value.source:
            self.guards.add("is", value.source, value.value, says=f" is {value.value!r}")
            return int(value.value)
        return self.to_door(value)

    def from_door(self, result: Any, returns: str) -> Value:
        """What a door gave, as a value."""
        if isinstance(result, Node):
            return self._from_node(result, returns)
        if isinstance(result, Chosen):
            if self.library is not NUMPY:
                refuse("DATA_DEPENDENT", "what a mask chooses of an array of CuPy's")
            return masks.masked(self, result)
        if isinstance(result, (tuple, list)):
            return Sequence(type(result), [self.from_door(r, returns) for r in result])
        return Number(result.node) if isinstance(result, WeakFloat) else Const(result)

    def _from_node(self, node: Node, returns: str) -> Array:
        known = self.arrays.get(node)
        if known is not None:
            return known  # np.asarray(x) is x
        if node.kind == "placeholder":  # a number that changes, of which NumPy makes an array or scalar
            node = self.builder.call("copy", node)
        if node.ndim > MAX_DIMS:
            refuse("UNSUPPORTED_VALUE", f"an array of more than {MAX_DIMS} dimensions")
        scalar = returns == "value" and node.ndim == 0
        if scalar:
            self.scalars.add(node)
            return self.own(Array(node, is_scalar=True))
        array = self.own(Array(self.memories.rebased(node)))
        self.arrays[node] = array
        if node in self.builder.warning:
            self.warning[array.node] = self.steps
        return array


class Generator(Iterator):
    """A generator of the captured code: a frame that waits at a yield."""

    def __init__(self, frame: Frame, born: int):
        self.frame: Frame | None = frame
        self.born = born
        self.started = False
        self.running = False
        self.handling: list[Object] = []  # exceptions that it handles where it waits
        self.arguments: dict[str, Any] = dict(frame.locals)
        self.returned: Value = Const(None)

    def step(self, frame: Frame) -> Any:
        return self.send(Const(None))

    def send(self, value: Value) -> Any:
        """The next value that is yielded, or NULL; `returned` then holds what the generator returned."""
        return self._go(lambda own: own.push(value) if self.started else None)

    def throw(self, error: Object) -> Any:
        """Raise an exception where the generator waits."""
        own = self.frame
        if own is None or not self.started:
            self.frame = None
            raise Raised(error)

        def raise_there(own: Frame) -> None:
            own.push(NULL)
            own.ex.chain(error)
            if not own.unwind(error, own.program.handlers[own.ip - 1]):
                raise Raised(error, chained=True)

        return self._go(raise_there)

    def _go(self, prepare: Callable[[Frame], None]) -> Any:
        own = self.frame
        if own is None:
            return NULL
        if self.running:
            refuse("GENERATOR", "a generator that is already running")
        location, handling = own.ex.graph.location, own.ex.handling
        own.ex.handling = [*handling, *self.handling]
        own.ex.running.append(own)
        self.running = True
        try:
            prepare(own)
            self.started = True
            result = own.run()
        except Raised as raised:
            self.frame = None
            if issubclass(raised.value.kind, StopIteration):
                refuse("GENERATOR", "StopIteration raised inside a generator")
            raise
        finally:
            self.running = False
            own.ex.running.pop()
            self.handling = own.ex.handling[len(handling) :]
            own.ex.handling = handling
            own.ex.graph.location = location
        if own.suspended:
            return result
        self.frame, self.returned = None, result
        return NULL


def _decoded(code: types.CodeType) -> Program:
    try:
        return decode(code)
    except UndecodableCode as error:
        raise Break("UNKNOWN_OPCODE", None, str(error)) from None


__all__ = ["HANDLERS", "NULL", "Executor", "Frame", "Generator", "SymInt", "handler", "refuse"]
