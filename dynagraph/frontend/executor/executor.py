"""The symbolic executor: runs a function's bytecode on values that are known or followed, and builds the graph.

It executes nothing of the user's program for effect: what is not known to be pure is noted as an effect, or stops the capture.
"""

from __future__ import annotations

import enum
import inspect
import sys
import types
from collections.abc import Callable, Iterable
from itertools import takewhile
from typing import Any

import numpy as np

from dynagraph import config
from dynagraph.array_libraries import NUMPY
from dynagraph.doors import bfloat16 as bfloat16_door
from dynagraph.doors import cupy as cupy_door
from dynagraph.doors.numpy import Chosen, Door, Unsupported, WeakFloat
from dynagraph.doors.numpy.builder import leaves
from dynagraph.driver import deadline
from dynagraph.frontend.bytecode.decode import Program, Region
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.exceptions import Raised, may_catch, refuse, said, throw
from dynagraph.frontend.executor.numpy_errors import numpy_error_of
from dynagraph.frontend.executor.numpy_source import DEFINITIONS, is_numpys, is_own
from dynagraph.frontend.executor.opcodes import HANDLERS, Code, code_of, handler
from dynagraph.frontend.executor.state import CaptureState, Lazy
from dynagraph.frontend.executor.wrapping import (
    MAX_DIMS,
    acts_as_array,
    cell_value,
    guard_cells,
    guard_length,
    held_value,
    wrap,
)
from dynagraph.frontend.guards.guards import Distinct, Is, describe_value
from dynagraph.frontend.guards.profile import Profile
from dynagraph.frontend.guards.sources import Closure, Contents, Local, Returned, Source
from dynagraph.frontend.kinds import array_writes, masks
from dynagraph.frontend.kinds.values import (
    NULL,
    Array,
    Cell,
    Const,
    Dict,
    Function,
    HostArray,
    Iterator,
    Masked,
    Number,
    Object,
    Sequence,
    Slice,
    Value,
    source_of,
)
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import SymInt, nowhere
from dynagraph.location import Location
from dynagraph.markers import OPEN_MODULES

MAX_NODES = 20000
STEPS_BETWEEN_CHECKS = 16  # of the deadline
MAX_ITERATIONS_OF_NUMPY = 64  # of a loop in NumPy's own code: what takes more is better left to NumPy
NO_HEADS: frozenset[int] = frozenset()
SUSPENDS = inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE


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
        if function.decoded is None:
            function.decoded = code_of(function.code) if program is None else Code(program)
        code = function.decoded
        self.program = code.program
        self.instructions, self.handlers = code.program.instructions, code.handlers
        self.ip = 0
        self.jumps_back = 0
        module = function.globals.get("__name__")
        self.is_own = is_own(function.globals)
        self.is_ours = depth > 0 and (self.is_own or module in OPEN_MODULES)  # the user's line is its caller's
        self.is_hidden = not self.is_own and module in DEFINITIONS  # the function that is called is written in C, and has no frame
        is_of_numpy = not self.is_own and is_numpys(function.globals)
        self.is_of_library = is_of_numpy or self.is_own
        # whether it is the code of dynagraph.torch, or of NumPy's that this calls: on CuPy's arrays it goes by NumPy's doors
        self.is_package: bool = self.is_own or (is_of_numpy and depth > 0 and ex.running[-1].is_package)
        self.most_jumps_back = MAX_ITERATIONS_OF_NUMPY if is_of_numpy and not self.is_hidden else sys.maxsize
        self.result: Value | None = None
        self.suspended = False  # at a yield, whose value `result` is
        self.locals: dict[str, Value] = dict(arguments)
        self.cells: dict[str, Cell] = dict(zip(function.code.co_freevars, function.closure))
        self.is_users = not (self.is_ours or self.is_hidden or is_of_numpy)
        self.heads = self.step_heads = NO_HEADS
        if self.is_users or depth == 0:
            heads, start = code.heads
            if ex.on_loop is not None:
                self.heads = heads if depth else heads | start
            if ex.do_natively is not None and depth:
                self.step_heads = heads | start if ex.steps_from_start else heads
        self.refused_steps: set[int] = set()
        self.namespace: Dict | None = None  # what locals() gave, where it gives one dict for each frame

    # -- running ----------------------------------------------------------------------------------------------------------
    def run(self) -> Value:
        """Run to the return, or to the next yield."""
        self.result, self.suspended = None, False
        ex, counts, handlers, instructions = self.ex, self.depth == 0, self.handlers, self.instructions
        looks = counts or bool(self.heads) or bool(self.step_heads)
        says_where = not self.is_ours
        while self.result is None:
            if looks:
                if counts:
                    ex.count_step()
                if self.ip in self.heads and ex.on_loop is not None and (reason := ex.on_loop(self)):
                    raise Break(reason, Location(self.code.co_filename, self.instructions[self.ip].line))
                if self.ip in self.step_heads and ex.do_natively is not None and ex.do_natively(self):
                    continue
            index = self.ip
            self.ip = index + 1
            ex.checked -= 1
            if not ex.checked:
                ex.checked = STEPS_BETWEEN_CHECKS
                deadline.check()
            if says_where:
                ex.graph.location = Location(self.code.co_filename, instructions[index].line)
            try:
                handlers[index](self, instructions[index])
            except Raised as raised:
                if not self._handles(index, raised):
                    raise  # here, where no variable stays with it: a cycle would keep the caller's objects
            except Unsupported as refusal:
                raise Break(refusal.reason, ex.graph.location, refusal.detail) from None
            except Break as stop:
                if stop.location is None:
                    raise Break(stop.reason.name, ex.graph.location, stop.detail) from None
                raise
        return self.result

    def _handles(self, index: int, raised: Raised) -> bool:
        """Whether the code goes on in a handler of the exception that an instruction raised."""
        instruction = self.instructions[index]
        again = instruction.op == "RERAISE" or (instruction.op == "RAISE_VARARGS" and instruction.value == 0)
        if raised.value.source is None and not again and not self.is_hidden:
            raised.value.raised_at.append((self.code, instruction.line, self.function.globals))
        if not raised.chained:
            raised.chained = True
            self.ex.chain(raised.value)
        return self.unwind(raised.value, self.program.handlers[index])

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
        value = self.stack.pop()
        return value.force() if type(value) is Lazy else value

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
            if self.is_users:
                self.ex.count_iteration()
            elif self.jumps_back > self.most_jumps_back:
                raise Break("UNROLL_LIMIT", None, f"more than {self.most_jumps_back} iterations")
        self.ip = target


class Executor(CaptureState):
    """One capture: its frames, and how Python objects become values and calls of doors.

    `stop_at`: the step of the main frame before which the capture ends, or None for the function's return.
    `on_loop`: asked at the head of each of the user's loops whether the capture shall end there: why, or nothing.
    `do_natively`: asked at the heads of loops of other frames to do what follows as one step; whether it has.
    """

    def __init__(
        self,
        function: types.FunctionType,
        program: Program,
        values: tuple[Any, ...],
        profile: Profile,
        stop_at: int | None = None,
        on_loop: Callable[[Frame], str] | None = None,
        do_natively: Callable[[Frame], bool] | None = None,
    ):
        super().__init__(function, values, profile)
        self.stop_at = stop_at
        self.on_loop = on_loop
        self.do_natively = do_natively
        self.iterations = 0  # of the user's loops, one after the other
        self.checked = 1  # steps until the deadline is looked at
        self.steps_from_start = False  # they may begin with functions, too
        self.may_break = False  # whether Python can do what is not captured
        self.wanted_device: str | None = None  # where graphs of NumPy arrays run
        self.elsewhere = ""  # what of loops' is placed there: "all" operations of whole arrays, or "products" of matrices
        self.open_levels: list[list[Node]] = []  # of gradients that are being taken: the variables of each
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
        # behind RESUME it is inlined comprehensions that make cells of their own
        made_here = {i.value for i in takewhile(lambda i: i.op != "RESUME", program.instructions) if i.op == "MAKE_CELL"}
        for name in set(code.co_cellvars) - made_here:  # handed over at a break: the argument is the cell
            lazy: Any = frame.locals.pop(name, None)
            if lazy is not None:
                frame.cells[name] = cell_value(self, lazy.obj, Contents(lazy.source), lazy.source)
        return frame

    def running_globals(self) -> dict[str, Any]:
        return self.running[-1].function.globals

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
        self.env.place = nowhere
        held: list[Any] = [self.wrapped, self.objects, self.by_identity, self.arrays, self.stored, self.effects, self.prologue]
        for container in (*held, self.written, self.caches, self.handling, self.computed_before):
            container.clear()

    def count_step(self) -> None:
        self.steps += 1
        if self.steps == self.stop_at:
            raise Stopped

    def count_iteration(self) -> None:
        """Of a loop of the user's, in whichever frame."""
        self.iterations += 1
        if self.iterations > config.unroll_limit:
            raise Break("UNROLL_LIMIT", None, f"more than {config.unroll_limit} iterations")

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

    def in_try(self) -> bool:
        """Whether an exception that is raised now is seen by the captured code."""
        return any(frame.program.handlers[frame.ip - 1] is not None for frame in self.running)

    def separate_written(self) -> None:
        """Guard that what effects change is none of the other objects that the capture has looked at."""
        changed = [*self.written.values(), *self.keys]
        for kind in {type(v) for v in changed} - {Cell}:
            followed = [v for v in self.by_identity.values() if type(v) is kind and _is_followed(v)]
            written = [v for v in dict.fromkeys(changed) if type(v) is kind and _is_followed(v)]
            others = [v for v in followed if v not in written]
            if written and len(written) + len(others) > 1:
                self.guards.require(Distinct(tuple(map(source_of, written)), tuple(map(source_of, others))))
        for value in self.written.values():
            if isinstance(value, Cell):
                for cell in self.cells.values():
                    if cell is not value:
                        guard_cells(self, value, cell.real, cell.owner, False)

    # -- arrays ---------------------------------------------------------------------------------------------------------
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
        if door.has_effect and any(frame.is_users and may_catch(frame) for frame in self.running):
            raise Unsupported("SIDE_EFFECT", "a collective in a try or with block, which may see the error that it raises")
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
            by_package = self.running[-1].is_package
            if name is None:
                if by_package:
                    return "array"
                raise Unsupported("UNSUPPORTED_FUNCTION", f"CuPy: {door.name}")
            assert own is not None
            if not by_package:
                cupy_door.check_operands(name, given, self.scalars.__contains__)
                cupy_door.check_result(name, result)
            if name in cupy_door.BINARY or name in cupy_door.UNARY or name in cupy_door.UFUNCS:
                cupy_door.check_loop(own, name, given, self.scalars.__contains__, result)
            return "array"
        if self.running[-1].is_package and not self.running[-1].is_own:
            return "array"  # made by a function of NumPy's that works on CuPy's arrays
        if any(isinstance(x, Node) and (x.ndim or kind != "value") for x in leaves(result)) or isinstance(result, Chosen):
            raise Unsupported("MIXED_LIBRARIES", f"np.{door.name} makes an array of NumPy's")
        return kind

    def check_op(self, name: str, operands_in_c_order: Callable[[], bool], rank: int) -> None:
        """Arrays that the package's own code makes may lie otherwise than in its plain run: nothing there depends on it."""
        cupy_door.check_op(name, (lambda: True) if self.running[-1].is_package else operands_in_c_order, rank)

    def to_door(self, value: Value) -> Any:
        """A value as the door takes it."""
        value = self.resolve(value)
        if isinstance(value, Array):
            return self.memories.present(value)
        if isinstance(value, Const):
            return value.value
        if isinstance(value, Masked):
            refuse("DATA_DEPENDENT", "what a mask chooses, where its size matters")
        if isinstance(value, HostArray):
            return value.array if isinstance(value.array, np.generic) else refuse("MIXED_LIBRARIES", "an array of NumPy's")
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
            self.guards.require(Is(value.source, value.value, called=repr(value.value)))
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


def _is_followed(value: Any) -> bool:
    return value.source is not None and type(value.source) is not Returned


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


__all__ = ["HANDLERS", "NULL", "Executor", "Frame", "Generator", "SymInt", "handler", "refuse"]
