"""Graph breaks: make the functions that execute the breaking instruction and go on after it.

A *continuation* takes the stack and the locals of the frame at the break, executes the breaking instruction as it is, and returns
`Tail(resume function, the stack and locals after it)`; the dispatcher calls that, flat.  A *resume function* is the rest of the
original code after a prologue that puts the stack back; it is a compiled function in its own right.  Both are made from the
original code, never from one another.
"""

from __future__ import annotations

import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dynagraph._core import _dispatch
from dynagraph.frontend.bytecode.assemble import assemble, skip
from dynagraph.frontend.bytecode.decode import JUMPS, VERSION, Instruction, Program, Region, Same, decode
from dynagraph.frontend.bytecode.liveness import live_names_of, reachable, sees_frame
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.guards.sources import STACK_SLOT
from dynagraph.frontend.kinds.values import NULL, Const, Opaque, Outer

HANDLED = "handled"  # in a shape: what the interpreter keeps on the stack while an exception is handled, which the slot holds
NO_SIGNALS = 2  # RESUME's operand behind a "yield from": nothing is handled there
CALLABLE_FIRST = VERSION >= (3, 13)  # [f, NULL] on the stack rather than [NULL, f]

# instruction -> (values taken from the stack, values put there); what is not here cannot be executed on its own
EFFECTS: dict[str, tuple[int, int]] = {
    "BINARY_OP": (2, 1), "COMPARE_OP": (2, 1), "BINARY_SUBSCR": (2, 1), "BINARY_SLICE": (3, 1), "STORE_SUBSCR": (3, 0),
    "STORE_SLICE": (4, 0), "DELETE_SUBSCR": (2, 0), "UNARY_NEGATIVE": (1, 1), "UNARY_POSITIVE": (1, 1), "UNARY_INVERT": (1, 1),
    "UNARY_NOT": (1, 1), "TO_BOOL": (1, 1), "LOAD_ATTR": (1, 1), "LOAD_METHOD": (1, 2), "STORE_ATTR": (2, 0), "DELETE_ATTR": (1, 0),
    "LOAD_GLOBAL": (0, 1), "LOAD_NAME": (0, 1), "STORE_GLOBAL": (1, 0), "DELETE_GLOBAL": (0, 0), "LOAD_DEREF": (0, 1),
    "STORE_DEREF": (1, 0), "DELETE_DEREF": (0, 0), "GET_ITER": (1, 1), "LIST_EXTEND": (1, 0), "LIST_APPEND": (1, 0),
    "SET_UPDATE": (1, 0), "SET_ADD": (1, 0), "DICT_UPDATE": (1, 0), "DICT_MERGE": (1, 0), "MAP_ADD": (2, 0),
    "FORMAT_SIMPLE": (1, 1), "FORMAT_WITH_SPEC": (2, 1), "CONVERT_VALUE": (1, 1), "IMPORT_NAME": (2, 1), "IMPORT_FROM": (0, 1),
    "CONTAINS_OP": (2, 1), "IS_OP": (2, 1), "BEFORE_WITH": (1, 2), "MATCH_SEQUENCE": (0, 1), "MATCH_MAPPING": (0, 1),
    "MATCH_KEYS": (0, 1), "MATCH_CLASS": (3, 1), "GET_LEN": (0, 1), "LOAD_BUILD_CLASS": (0, 1), "LIST_TO_TUPLE": (1, 1),
    "LOAD_ASSERTION_ERROR": (0, 1), "BUILD_CONST_KEY_MAP": (0, 1), "SET_FUNCTION_ATTRIBUTE": (2, 1), "LOAD_FAST": (0, 1),
    "LOAD_FAST_CHECK": (0, 1), "CHECK_EXC_MATCH": (1, 1), "WITH_EXCEPT_START": (0, 1),
}  # fmt: skip


def stack_effect(i: Instruction) -> tuple[int, int] | None:
    """How many values an instruction takes and puts; None where it cannot stand on its own."""
    n = i.value
    if i.op == "CALL":
        return n + 2, 1
    if i.op == "CALL_KW":
        return n[0] + 2, 1
    if i.op == "CALL_FUNCTION_EX":
        return 3 + (n & 1), 1
    if i.op in ("BUILD_TUPLE", "BUILD_LIST", "BUILD_SET", "BUILD_STRING", "BUILD_SLICE"):
        return n, 1
    if i.op == "BUILD_MAP":
        return 2 * n, 1
    if i.op == "BUILD_CONST_KEY_MAP":
        return n + 1, 1
    if i.op == "UNPACK_SEQUENCE":
        return 1, n
    if i.op == "UNPACK_EX":
        return 1, (n & 0xFF) + 1 + (n >> 8)
    if i.op == "FORMAT_VALUE":
        return 1 + bool(n & 4), 1
    if i.op == "LOAD_SUPER_ATTR":
        return 3, 1 + bool(n[1])
    if i.op == "MAKE_FUNCTION":
        return 1 + (sum(bool(n & flag) for flag in (1, 2, 4, 8)) if VERSION < (3, 13) else 0), 1
    return EFFECTS.get(i.op)


@dataclass
class Target:
    """What is captured: a function, its program, and where in the original program its instructions stand.

    `index_of[k]` is the original index of instruction k of `program`, or -1 in a prologue.
    """

    function: types.FunctionType
    program: Program
    original: Program
    index_of: list[int]
    root: types.FunctionType
    is_body: bool = False  # of one turn of a loop

    @classmethod
    def of(cls, function: types.FunctionType) -> "Target":
        program = decode(function.__code__)
        return cls(function, program, program, list(range(len(program.instructions))), function)


@dataclass
class BreakPoint:
    """The state of the main frame before the breaking instruction: what the continuation takes."""

    target: Target
    index: int  # in the original program
    stack: list[Any]
    names: list[str]  # locals and cells that are handed over
    values: list[Any]
    handled: list[Any]  # the exceptions that are being handled

    @property
    def parameters(self) -> list[Any]:
        handled = iter(self.handled)
        return self.values + [next(handled) if isinstance(v, Outer) else v for v in self.stack if v is not NULL]

    @property
    def shape(self) -> list[Any]:
        """What there is on the stack: True for a value, False for NULL, or HANDLED."""
        return [HANDLED if isinstance(v, Outer) else v is not NULL for v in self.stack]

    def at_rest(self) -> "BreakPoint":
        """Without its values, which whatever stays must not keep."""
        stack = [v if v is NULL or isinstance(v, Outer) else Const(None) for v in self.stack]
        return BreakPoint(self.target, self.index, stack, self.names, [Const(None)] * len(self.names), [])


def break_point(target: Target, frame: Frame, stop: Break, alone: bool = True) -> BreakPoint:
    """The break point at the frame's next instruction; raises `stop` where no continuation can be made.

    `alone`: the instruction is executed by itself.
    """
    index = target.index_of[frame.ip]
    program = target.original
    opaque = any(isinstance(v, Opaque) and not isinstance(v, Outer) for v in frame.stack)
    if index < 0 or opaque or len(frame.stack) > 200:
        raise stop
    i = program.instructions[index]
    if alone and i.op != "FOR_ITER" and (stack_effect(i) is None or i.op in JUMPS):
        raise stop
    if (stop.reason.raises or stop.reason.whole) and program.handlers[index] is None:
        raise stop
    if sees_frame(program):
        raise stop
    live = live_names_of(program)
    wanted = live[index] | live[index + 1] | (live[i.value] if i.op == "FOR_ITER" else frozenset())
    names, values = [], []
    first = program.code.co_varnames[:1]
    for name in sorted(wanted, key=lambda n: (n not in first, n)):  # super() looks at the first local
        if name in frame.cells and name in program.code.co_freevars and name not in program.code.co_cellvars:
            continue
        value = frame.cells.get(name) or frame.locals.get(name, NULL)
        if value is not NULL:
            names.append(name)
            values.append(value)
    return BreakPoint(target, index, [_stand_in(v) for v in frame.stack], names, values, list(frame.ex.handling))


STAND_INS: dict[Any, Any] = {}  # functions that look at who calls them: what continuations call in their place


def _stand_in(value: Any) -> Any:
    if isinstance(value, Const) and isinstance(value.value, types.BuiltinFunctionType):
        return Const(STAND_INS.get(value.value, value.value))
    return value


# -- generated code ---------------------------------------------------------------------------------------------------------------


class Resumes:
    """The resume functions of one compiled function; `compile` makes a compiled function of a Target.

    `compilation` is what frames that a continuation enters are captured for.  `measured`: loops whose bodies are compiled may run
    plainly, if that is faster.
    """

    def __init__(self, compile: Any, compilation: Any = None, measured: bool = False):
        self.compile = compile
        self.compilation = compilation
        self.measured = measured
        self.made: dict[tuple, Any] = {}
        self.loops: dict[tuple, Any] = {}  # those that run in Python, with a body that is compiled

    def continuation(self, point: BreakPoint, in_call: bool = False) -> types.FunctionType:
        """The function that takes `point.parameters`, executes the instruction and gives the Tail.

        `in_call`: the instruction is a call that is under way: signals are handled in what it calls, not before.
        """
        i = point.target.original.instructions[point.index]
        builder = FunctionBuilder(point.target.original, i.line)
        builder.reload(point.shape, NO_SIGNALS if in_call else 0)
        return self._function(builder, point, self._execute(builder, point, i, point.shape))

    def pause(self, point: BreakPoint) -> types.FunctionType:
        """The function that takes `point.parameters`, lets signals be handled there, and gives the Tail that goes on."""
        program = point.target.original
        builder = FunctionBuilder(program, program.instructions[point.index].line)
        builder.reload(point.shape)
        end = len(builder.instructions)
        builder.leave(self, point, point.index, point.shape)
        return self._function(builder, point, end)

    def raising(self, point: BreakPoint) -> types.FunctionType:
        """The function that takes `point.parameters`, and in the place of the instruction calls the last one, which raises."""
        i = point.target.original.instructions[point.index]
        builder = FunctionBuilder(point.target.original, i.line)
        builder.reload(point.shape, NO_SIGNALS)
        builder.add("PUSH_NULL", None)
        if not CALLABLE_FIRST:
            builder.add("SWAP", 2)
        builder.add("CALL", 0, i.positions)
        end = len(builder.instructions)
        builder.add("RETURN_VALUE", None)  # it is not come to
        return self._function(builder, point, end)

    def _function(self, builder: "FunctionBuilder", point: BreakPoint, end: int) -> types.FunctionType:
        """`end`: behind what an exception handler of the original covers."""
        program, shape = point.target.original, point.shape
        # where signals are handled is within the user's try block too
        start = next(k for k, i in enumerate(builder.instructions) if i.op == "RESUME")
        region = program.handlers[point.index]
        if region is not None and program.instructions[region.target].op == "PUSH_EXC_INFO" and not region.push_lasti:
            builder.regions.append(Region(start, end, len(builder.instructions), region.depth, False))
            self._leave_to_handler(builder, point, region, shape)
        elif region is not None:
            builder.append_rest(program, [region.target], Region(start, end, region.target, region.depth, region.push_lasti))
        # in defaults, not constants: the garbage collector does not see what code objects hold
        parameters = point.names + _slots(shape) + [_goes_on(k + 1) for k in range(len(builder.goes_on))]
        made = builder.function(point.target.root, parameters)
        made.__defaults__ = tuple(builder.goes_on)
        made.compilation = self.compilation  # type: ignore[attr-defined]
        if skip is not None:
            skip(made.__code__)  # where a call of it is watched: a frame of the user's goes on in it
        return made

    def _execute(self, builder: "FunctionBuilder", point: BreakPoint, i: Instruction, shape: list[Any]) -> int:
        """The instruction and what follows it; gives the index after what an exception handler of the original covers."""
        if i.op == "FOR_ITER":
            return self._execute_for_iter(builder, point, i, shape)
        effect = stack_effect(i)
        assert effect is not None
        taken, put = effect
        after = shape[: len(shape) - taken]
        if i.op in ("LOAD_METHOD", "LOAD_SUPER_ATTR") and put == 2:
            builder.load_callable(i)
            after += [True, False] if CALLABLE_FIRST else [False, True]
        else:
            builder.add(i.op, i.value, i.positions)
            after += [True] * put
        end = len(builder.instructions)
        builder.leave(self, point, point.index + 1, after)
        return end

    def _leave_to_handler(self, builder: "FunctionBuilder", point: BreakPoint, region: Region, shape: list[Any]) -> None:
        """Where the instruction raises: go on after the PUSH_EXC_INFO of the handler."""
        builder.add("PUSH_EXC_INFO", None)
        builder.add("COPY", 1)
        builder.add("STORE_FAST", _slot(region.depth))
        builder.leave(self, point, region.target + 1, [*shape[: region.depth], HANDLED, True])

    def _execute_for_iter(self, builder: "FunctionBuilder", point: BreakPoint, i: Instruction, shape: list[Any]) -> int:
        at = builder.add("FOR_ITER", None)
        end = len(builder.instructions)
        builder.leave(self, point, point.index + 1, [*shape, True])
        if point.target.original.instructions[i.value - 1].op == "END_FOR":
            builder.add("END_FOR", None)
        builder.aim(at, len(builder.instructions))
        builder.leave(self, point, i.value, shape[:-1])
        return end

    def resume(self, point: BreakPoint, index: int, shape: tuple[Any, ...], names: tuple[str, ...]) -> Any:
        """The compiled function that goes on at `index` of the original program."""
        # functions of one code have closures of their own, and a function may be given other code
        key = (point.target.root, Same(point.target.original.code), index, shape, names)
        found = self.made.get(key)
        if found is None:
            found = self.made[key] = self.compile(resume_target(point.target, index, shape, names))
        return found


def _slot(k: int) -> str:
    return f"{STACK_SLOT}{k}"


def _goes_on(k: int) -> str:
    return f"resume {k}"


def _slots(shape: Iterable[Any]) -> list[str]:
    return [_slot(k) for k, there in enumerate(shape) if there]


def resume_target(target: Target, index: int, shape: tuple[Any, ...], names: tuple[str, ...]) -> Target:
    program = target.original
    builder = FunctionBuilder(program, program.instructions[index].line)
    builder.reload(list(shape))
    at, region = len(builder.instructions) - 1, program.handlers[index]
    signals = None if region is None else Region(at, at + 1, region.target, region.depth, region.push_lasti)
    builder.append_rest(program, [index], signals, jump_to=index)
    parameters = list(names) + _slots(shape)
    function = builder.function(target.root, parameters)
    made = builder.program(function.__code__)
    return Target(function, made, program, builder.index_of, target.root)


class FunctionBuilder:
    """Collects the instructions of a generated function."""

    def __init__(self, program: Program, line: int):
        self.code = program.code
        self.line = line
        self.instructions: list[Instruction] = []
        self.index_of: list[int] = []
        self.regions: list[Region] = []
        self.goes_on: list[Any] = []  # compiled functions that the function leaves to
        if program.code.co_freevars:
            self.add("COPY_FREE_VARS", len(program.code.co_freevars))

    def add(self, op: str, value: Any, positions: Any = None) -> int:
        self.instructions.append(Instruction(op, value, self.line, positions))
        self.index_of.append(-1)
        return len(self.instructions) - 1

    def aim(self, at: int, target: int) -> None:
        old = self.instructions[at]
        self.instructions[at] = Instruction(old.op, target, old.line, old.positions)

    def reload(self, shape: list[Any], resume: int = 0) -> None:
        """Put the stack back, and then begin; False stands for NULL.  An exception that is being handled is so again."""
        for k, there in enumerate(shape):
            if there:
                self.add("LOAD_FAST", _slot(k))
            else:
                self.add("PUSH_NULL", None)
            if there == HANDLED:
                self.add("PUSH_EXC_INFO", None)
                self.add("POP_TOP", None)
        self.add("RESUME", resume)

    def load_callable(self, i: Instruction) -> None:
        """LOAD_METHOD and its like, so that it is known which of the two values is NULL."""
        if i.op == "LOAD_METHOD":
            self.add("LOAD_ATTR", i.value, i.positions)
        else:
            self.add(i.op, (i.value[0], False, i.value[2]), i.positions)
        self.add("PUSH_NULL", None)
        if not CALLABLE_FIRST:
            self.add("SWAP", 2)

    def leave(self, resumes: Resumes, point: BreakPoint, index: int, shape: list[Any]) -> None:
        """Return a Tail that goes on at `index` with what is on the stack, and with the locals."""
        for k in reversed(range(len(shape))):
            if shape[k] == HANDLED:
                self.add("POP_EXCEPT", None)
            else:
                self.add("STORE_FAST", _slot(k))
        live = live_names_of(point.target.original)[index]
        names = tuple(n for n in point.names if n in live)
        resume = resumes.resume(point, index, tuple(shape), names)
        parameters = list(names) + _slots(shape)
        self.goes_on.append(resume)
        self.add("LOAD_CONST", _dispatch.tails)  # no call: signals would be handled after it, outside of the user's try block
        for name in (_goes_on(len(self.goes_on)), *parameters):
            self.add(self._load_of(name), name)
        self.add("BUILD_TUPLE", 1 + len(parameters))
        self.add("BINARY_SUBSCR", None)
        if HANDLED in shape:  # whose traceback may hold this frame
            for name in _slots(shape):
                self.add("LOAD_CONST", None)
                self.add("STORE_FAST", name)
        self.add("RETURN_VALUE", None)

    def _load_of(self, name: str) -> str:
        return "LOAD_CLOSURE" if name in self.code.co_cellvars else "LOAD_FAST"

    def append_rest(self, program: Program, starts: list[int], extra: Region | None = None, jump_to: int | None = None) -> None:
        """The original instructions that control may come to; `extra`: a region of what stands here, with an original target."""
        jump = None if jump_to is None else self.add("JUMP", None)
        kept = reachable(program, *starts)
        new = {old: len(self.instructions) + k + (jump is not None and old >= jump_to) for k, old in enumerate(kept)}  # type: ignore[operator]
        for old in kept:
            i = program.instructions[old]
            if old == jump_to:  # 3.13 finds the handler of a call that fails by the instruction before it
                self.add("NOP", None)
            self.instructions.append(Instruction(i.op, new[i.value], i.line, i.positions) if i.op in JUMPS else i)
            self.index_of.append(old)
        if jump is not None:
            self.aim(jump, new[jump_to])  # type: ignore[index]
        for r in program.regions:
            inside = [new[old] for old in range(r.start, r.end) if old in new]
            if inside:
                first = inside[0] - (jump_to is not None and inside[0] == new[jump_to])
                self.regions.append(Region(first, inside[-1] + 1, new[r.target], r.depth, r.push_lasti))
        if extra is not None:
            self.regions.append(Region(extra.start, extra.end, new[extra.target], extra.depth, extra.push_lasti))

    def function(self, root: types.FunctionType, parameters: list[str]) -> types.FunctionType:
        code = assemble(self.instructions, self.regions, self.code, parameters=parameters)
        made = types.FunctionType(code, root.__globals__, root.__name__, None, root.__closure__)
        made.__qualname__, made.__module__ = root.__qualname__, root.__module__
        return made

    def program(self, code: types.CodeType) -> Program:
        handlers: list[Region | None] = [None] * len(self.instructions)
        for r in self.regions:
            handlers[r.start : r.end] = [r] * (r.end - r.start)
        return Program(code, tuple(self.instructions), tuple(self.regions), tuple(handlers))
