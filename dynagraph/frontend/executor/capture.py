"""Capture one call of a function: bytecode -> graph, guards, and a recipe for effects and result.

Tracing is speculative: it runs nothing for effect.  At an instruction that cannot be followed it starts again, to end right before
it; the recipe then hands the frame's state to a continuation (resume.py), which executes the instruction and goes on.
"""

from __future__ import annotations

import contextlib
import itertools
import types
from collections import Counter
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Union

import numpy as np

from dynagraph import config
from dynagraph._core._dispatch import CompiledFunction
from dynagraph.array_libraries import NUMPY
from dynagraph.driver import deadline
from dynagraph.driver.decorated import Options
from dynagraph.frontend import handlers  # noqa: F401  (importing them registers what they mean)
from dynagraph.frontend.bytecode.decode import UndecodableCode
from dynagraph.frontend.bytecode.liveness import loop_heads
from dynagraph.frontend.bytecode.resume import BreakPoint, Resumes, Target, break_point, resume_target
from dynagraph.frontend.executor.breaks import Break, Reason, bare
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.executor.results import CannotBuild, Recipe, Results, order_in_memory
from dynagraph.frontend.executor.state import Lazy, Preparation
from dynagraph.frontend.guards.guards import Disjoint, GuardList, HasType, NoFloatingPointErrors, SizeRelation
from dynagraph.frontend.guards.profile import Profile
from dynagraph.frontend.guards.sources import Source
from dynagraph.frontend.kinds import (  # noqa: F401  (importing them registers what values do)
    arrays,
    constants,
    counters,
    functions,
    grad_modes,
    instances,
    mappings,
    methods,
    numbers,
    others,
    sequences,
    sets,
)
from dynagraph.frontend.kinds.values import Array, Cell, Const
from dynagraph.frontend.loops import nodes
from dynagraph.frontend.loops.capture import RANGE_ITERATOR, Derived, NativeLoop, NotMade, is_long, native_loop, outline_at
from dynagraph.frontend.loops.exits import Later, call_unwatched, target_of
from dynagraph.frontend.loops.outline import OutlinedLoop, outline
from dynagraph.frontend.loops.over_arrays import most_written_out
from dynagraph.frontend.loops.plain_cells import AT_ONCE
from dynagraph.frontend.loops.reasons import NOT_NATIVE
from dynagraph.frontend.loops.seen import LoopSeen, loops_seen, native_loops_seen
from dynagraph.frontend.loops.sites import Sites
from dynagraph.ir.external_calls import FunctionCall
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import OPS, may_be_view
from dynagraph.ir.regions import Region
from dynagraph.ir.shapes import ShapeEnv, expr_of, settled
from dynagraph.ir.size_programs import size_program

Output = tuple[np.dtype, tuple[Any, ...], bool, int, tuple[int, ...]]
OUTLINED = ("LOOP_IN_PYTHON", "LOOP_ON_DEVICE")  # why a capture ends at a loop whose body is compiled by itself
MAX_ATTEMPTS = 20  # captures of one call: each ends earlier than the one before


@dataclass(eq=False)
class LoopCall:
    """Stands in a recipe for the native loop that it calls.

    `otherwise`: what is called instead with arguments that native code does not take.
    """

    loop: NativeLoop
    otherwise: Callable[..., Any]
    make_target: Callable[[int], Callable[..., Any]]

    def in_recipe(self, recipe: Recipe, native: Any) -> Recipe:
        """A recipe that calls machine code."""
        if recipe is self:
            return native  # type: ignore[no-any-return]
        return tuple(self.in_recipe(part, native) for part in recipe) if type(recipe) is tuple else recipe


@dataclass(frozen=True)
class Captured:
    """A call, or its part up to a break, as a graph.

    `outputs`: dtype, shape as size programs, whether it is given as a NumPy scalar, the input that it is written to, or -1, and
    the axes by which it is transposed in memory, or ().
    `prologue`: calls before the program, as plans take them.  `stop`: why the capture ends before the return.
    `joined`: whether operations that were recorded for gradients are one node; `not_joined`: why they are not.
    `preparations`: what was done to the caller's objects before the program can serve.
    `of_process`: what it depends on that each process has anew: it serves no other.
    """

    graph: Graph
    guards: GuardList
    result: Recipe
    outputs: tuple[Output, ...]
    n_inputs: int
    n_symbols: int
    target: Target
    stop: Break | None = None
    prologue: tuple[Any, ...] = ()
    loop: "LoopCall | None" = None
    loops: tuple[LoopSeen, ...] = ()  # that are not native
    joined: bool = False
    not_joined: str = ""
    of_process: str = ""
    preparations: tuple[Preparation, ...] = ()
    env: ShapeEnv = field(default_factory=ShapeEnv)  # what was decided about sizes, and where

    def loops_seen(self) -> list[LoopSeen]:
        """What became of each loop that the capture came to."""
        native = native_loops_seen(self.loop.loop) if self.loop is not None else []
        return sorted([*self.loops, *native], key=lambda seen: seen.location.line)

    @property
    def has_operations(self) -> bool:
        return bool(self.outputs)

    def bytecode(self) -> str:
        """The normalised instructions that were run, for ``dump --bytecode``."""
        lines = []
        for index, i in enumerate(self.target.program.instructions):
            operand = "" if i.value is None else repr(i.value) if not isinstance(i.value, types.CodeType) else i.value.co_name
            lines.append(f"{i.line:5d} {index:5d}  {i.op:24s} {operand}")
        return "\n".join(lines)


def capture(
    function: Union[types.FunctionType, Target],
    values: tuple[Any, ...],
    *,
    dynamic: bool | None = None,
    profile: Profile | None = None,
    resumes: Resumes | None = None,
    run_watched: Callable[..., Any] | None = None,
    native_loops: bool = False,
    compile_loop: Callable[[Region], Any] | None = None,
    device: str | None = None,
    learned: dict[int, Sites] | None = None,
    options: Options | None = None,
    gives_up_at: frozenset[str] = frozenset(),
) -> Captured:
    """Capture the call of `function` with these bound parameters, in order of ``co_varnames``.

    Runs nothing of the user's program for effect.  Without `resumes` it raises Break where the call cannot be captured whole; with
    them, the part before the break is captured, unless no continuation can be made.  `run_watched(function, *args)` calls a
    continuation.  `native_loops`: loops may be left to native code, where they can be.  `compile_loop`: makes machine code of those
    that a gradient is taken of.  `device`: where graphs of NumPy arrays run; native loops are the host's.  `learned`: of loops, by
    their heads, what an attempt that was given up has found, and this one finds.  `options`: of the compiled function, for others
    that are compiled for it later.  `gives_up_at`: names of reasons at which nothing is
    captured, as the next call may come further.

    >>> def f(x):
    ...     return x + 1
    >>> print(capture(f, (np.zeros(3),)).graph)
    x = placeholder[x] : float64[3]
    constant = constant(value=1.0, dtype=float64) : float64[]   # <doctest dynagraph.frontend.executor.capture.capture[0]>:2
    add = add(x, constant) : float64[3]   # <doctest dynagraph.frontend.executor.capture.capture[0]>:2
    return add
    """
    target = function if isinstance(function, Target) else _target(function)
    profile = profile or Profile(dynamic)
    stop_at: int | None = None
    stop: Break | None = None
    suspects: _Suspects | None = None
    do_natively = None if compile_loop is None else partial(nodes.do_natively, compile=compile_loop)
    on_loop = _LoopPolicy(target, {} if learned is None else learned) if native_loops and resumes is not None else None
    first: Break | None = None
    hosting, mixed_at = False, 0  # `mixed_at`: the step that arrays of two libraries were met at first
    restless = profile.restless() if resumes is not None else set()
    profile.specialised -= restless
    for _ in range(MAX_ATTEMPTS):
        if on_loop is not None:
            on_loop.begin()
        ex = Executor(target.function, target.program, values, profile, stop_at, on_loop, do_natively)
        ex.steps_from_start, ex.wanted_device, ex.may_break = first is not None, device, resumes is not None
        ex.hosting = hosting
        ex.options = options
        try:
            native = None
            try:
                value = ex.run()
            except Break as reason:
                if on_loop is None or on_loop.native is None or reason.reason.name in gives_up_at:
                    raise
                value, native, stop = None, on_loop.native, bare(reason)
            captured = _Ending(ex, target, stop, resumes, run_watched, native, on_loop).captured(value)
            return captured if on_loop is None else replace(captured, loops=on_loop.seen(ex.main, stop))
        except CannotBuild as refusal:
            if stop is None and hosting and refusal.born <= mixed_at:
                hosting = False
                continue
            if resumes is None or not 0 < refusal.born < (stop_at or ex.steps):
                raise stop or refusal from None
            stop_at, stop = refusal.born, bare(refusal)
        except Break as reason:
            if reason.reason.name in gives_up_at:
                raise
            if stop is None and ex.is_mixed and not mixed_at:
                hosting, mixed_at = True, ex.steps  # once more: arrays of NumPy's that were made so far may be for the device
                continue
            if stop is None and hosting and ex.steps <= mixed_at:
                hosting = False
                continue
            if first is None and do_natively is not None and ex.open_levels:
                first = reason  # once more: what is differentiated may be native from its start on
                continue
            floats = ex.symbolic_floats - restless
            if suspects is None and floats and reason.reason.name != "LOOP_IN_CALL":
                suspects = _Suspects(profile, floats, ex.steps, reason.reason)
                continue
            if suspects is not None:
                suspects.acquit_if_same(ex.steps, reason.reason)
            if resumes is None or stop is not None:
                raise reason if first is None or stop is not None else first from None
            stop_at, stop = ex.steps, bare(reason)
        except deadline.OutOfTime:
            if suspects is not None:
                suspects.acquit()
            raise
        finally:
            ex.release()
    raise stop or Break("RECURSION", None, "too many attempts")


class _LoopPolicy:
    """Which loops are left to native code: those of which it can do whole turns."""

    def __init__(self, target: Target, learned: dict[int, Sites]) -> None:
        self.target, self.learned = target, learned
        self.refused: dict[int, NotMade] = {}  # by the instruction at the loop's head
        self.begin()

    def begin(self) -> None:
        """A capture begins."""
        self.native: NativeLoop | None = None  # at which the capture ends as it is: no other loop was tried, and left its traces
        self.is_first = True
        self.arrivals: Counter[tuple[types.CodeType, int]] = Counter()
        self.passed: dict[int, NotMade] = {}

    def seen(self, frame: Frame, stop: Break | None) -> tuple[LoopSeen, ...]:
        """The loops that the capture came to and that are not native; `stop`: why it ended where the frame stands."""
        if stop is not None and stop.reason.name in OUTLINED:
            return tuple(loops_seen(frame.program, {**self.passed, frame.ip: self.refused[frame.ip]}, frame.ip, None))
        ended = None if stop is None or stop.reason.name == "NATIVE_LOOP" else (frame.ip, stop)
        return tuple(loops_seen(frame.program, self.passed, None, ended))

    def __call__(self, frame: Frame) -> str:
        return self._in_call(frame) if frame.depth else self._in_main(frame)

    def _in_call(self, frame: Frame) -> str:
        """A long loop of a function that is called: native code begins with the call, or Python calls the function."""
        ex = frame.ex
        if ex.open_levels or ex.elsewhere or frame is not ex.running[-1] or not all(f.is_users for f in ex.running):
            return ""
        if frame.depth == 1 and frame.code.co_name in AT_ONCE:  # from Python 3.12 on it is the captured function's own
            return ""
        return "LOOP_IN_CALL" if self._is_long(frame) else ""

    def _is_long(self, frame: Frame) -> bool:
        self.arrivals[frame.code, frame.ip] += 1
        return is_long(frame, self.arrivals[frame.code, frame.ip], most_written_out(frame))

    def _in_main(self, frame: Frame) -> str:
        is_head = frame.ip in loop_heads(frame.program)
        if frame.ip not in self.refused and (is_head or _begins_natively(frame) or _calls_itself(self.target.function)):
            made = self.made(frame)
            if isinstance(made, NativeLoop) and (is_head or _begins_natively(frame) or made.region.functions):
                self.native = made if self.is_first else None
                return "NATIVE_LOOP"
            self.is_first = False
            self.refused[frame.ip] = made if isinstance(made, NotMade) else NotMade(NOT_NATIVE["NOT_FOLLOWED"])
        if not is_head:
            return ""
        self.passed[frame.ip] = self.refused[frame.ip]
        if frame.ex.elsewhere:
            return ""  # as one graph, its turns hand on arrays that stay on the device
        if not self._is_long(frame) or outline_at(frame) is None:
            return ""
        return "LOOP_IN_PYTHON" if frame.ex.library is NUMPY else "LOOP_ON_DEVICE"


    def made(self, frame: Frame) -> NativeLoop | NotMade:
        return native_loop(frame, self.target, self.learned.setdefault(frame.ip, Sites()))


def _begins_natively(frame: Frame) -> bool:
    """Whether a function is asked from its start on whether it can be native: it has lists or text, or no arrays."""
    kinds = [type(v.obj) for v in frame.locals.values() if isinstance(v, Lazy)]
    return any(k in (list, str, bytes) for k in kinds) or not any(issubclass(k, np.ndarray) for k in kinds)


def _calls_itself(function: types.FunctionType) -> bool:
    """Whether a function names itself: it is native as a whole, or its calls, most of which are short, are captured one by one."""
    named: list[Any] = [function.__globals__.get(name) for name in function.__code__.co_names]
    for cell in function.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty
            named.append(cell.cell_contents)
    plain = (f.__wrapped__ if isinstance(f, CompiledFunction) else f for f in named)
    return any(isinstance(f, types.FunctionType) and f.__code__ is function.__code__ for f in plain)


class _Suspects:
    """Floats that change, where a capture ended: as constants, they are tried again."""

    def __init__(self, profile: Profile, floats: set[Source], step: int, reason: Reason):
        self.profile, self.floats, self.step, self.reason = profile, floats, step, reason
        profile.specialised |= floats

    def acquit_if_same(self, step: int, reason: Reason) -> None:
        """They were not the cause if the capture ends at the same step as constants, too."""
        if step == self.step and reason is self.reason:
            self.acquit()

    def acquit(self) -> None:
        self.profile.specialised -= self.floats


def _target(function: types.FunctionType) -> Target:
    try:
        return Target.of(function)
    except UndecodableCode as error:
        raise Break("UNKNOWN_OPCODE", None, str(error)) from None


@dataclass
class _Ending:
    """What is left to do when the executor has come to the return or to the break."""

    ex: Executor
    target: Target
    stop: Break | None
    resumes: Resumes | None
    run_watched: Callable[..., Any] | None
    native: NativeLoop | None = None  # of the loop at its end, if it is made already
    on_loop: _LoopPolicy | None = None
    prologue: tuple[Any, ...] = ()
    loop: LoopCall | None = None

    def captured(self, value: Any) -> Captured:
        ex, graph = self.ex, self.ex.graph
        graph.location = None
        graph.custom.clear()
        results = Results(ex)
        self.prologue = results.prologue()
        if value is not None:
            recipe = results.program([value], lambda parts: parts[0])
        else:
            recipe = self._at_break(results)
        ex.separate_written()
        return self._finish(results, recipe, None if value is not None else self.stop)

    def _at_break(self, results: Results) -> Recipe:
        assert self.stop is not None and self.resumes is not None
        if self.stop.reason.name == "NATIVE_LOOP":
            return self._at_loop(results)
        if self.stop.reason.name in OUTLINED:
            return self._at_outlined_loop(results)
        if self.stop.reason.name == "LOOP_IN_CALL" and self.on_loop is not None:
            made = self.on_loop.made(self.ex.main)
            if isinstance(made, NativeLoop):
                self.native = made
                return self._at_loop(results)
        point = break_point(self.target, self.ex.main, self.stop)
        if not any(n.kind == "call_function" for n in self.ex.graph.nodes) and not any(map(_may_hold_arrays, point.parameters)):
            raise self.stop
        if len(self.resumes.made) >= config.break_limit:
            raise self.stop
        return results.program(point.parameters, lambda parts: self._continue(point, parts))

    def _at_loop(self, results: Results) -> Recipe:
        """Native code goes on from here; with arguments that it does not take, the plain rest of the function."""
        assert self.stop is not None and self.resumes is not None and self.on_loop is not None
        frame = self.ex.main
        found = self.native or self.on_loop.made(frame)
        if not isinstance(found, NativeLoop):
            raise self.stop
        loop, target, resumes, run_watched = found, self.target, self.resumes, self.run_watched
        point = break_point(target, frame, self.stop, alone=False)
        rest = Later(partial(resume_target, target, point.index, tuple(point.shape), tuple(point.names)))
        for one in loop.rests:
            one.go_on_with(resumes, run_watched)
        n = len(loop.arguments)
        arguments = [*loop.arguments, *point.parameters]
        loop.arguments.clear()  # the program keeps the loop, and must not keep them
        loop.rows += [("unused", 0)] * len(point.parameters)
        given = [a.values if isinstance(a, Derived) else (a,) for a in arguments]
        for value in itertools.chain(*given):
            if isinstance(value, Lazy):
                self.ex.guards.require(HasType(value.source, type(value.obj)))
        self.loop = LoopCall(
            loop,
            lambda *args: rest.function(*args[n:]),
            # frames of the compiler are not captured where an exit is in the extent of a broken part
            lambda e: call_unwatched(target_of, loop.ways[e], target, resumes, run_watched),
        )
        self.stop = None

        def finish(parts: list[Recipe]) -> Recipe:
            built = iter(parts)
            rows = [tuple(next(built) for _ in values) for values in given]
            calls = (("make", a.function, row) if isinstance(a, Derived) else row[0] for a, row in zip(arguments, rows))
            return ("call", self.loop, tuple(calls))

        return results.program(list(itertools.chain(*given)), finish)

    def _at_outlined_loop(self, results: Results) -> Recipe:
        """The loop runs in Python from here, its body as a compiled function."""
        assert self.stop is not None and self.resumes is not None
        point = break_point(self.target, self.ex.main, self.stop, alone=False)
        loop = outline(self.target.original, point.index, tuple(point.names))
        if loop is None or any(isinstance(v, Cell) for v in point.values):
            raise self.stop
        key = (self.target.root, id(self.target.original.code), point.index, tuple(point.shape), loop.names, loop.n_bound)
        run = self.resumes.loops.get(key)
        if run is None:
            run = self.resumes.loops[key] = OutlinedLoop(loop, self.target, point.at_rest(), self.resumes)
        return results.program(point.parameters, lambda parts: ("call", run, tuple(parts)))

    def _continue(self, point: BreakPoint, parts: list[Recipe]) -> Recipe:
        assert self.resumes is not None
        continuation = self.resumes.continuation(point)
        if self.run_watched is None:
            return ("call", continuation, tuple(parts))
        return ("call", self.run_watched, (("const", continuation), *parts))

    def _finish(self, results: Results, recipe: Recipe, stop: Break | None) -> Captured:
        ex, graph = self.ex, self.ex.graph
        orders = [None if into is not None else order_in_memory(n) for n, into in zip(results.nodes, results.into)]
        nodes = [n if order is None else graph.call(OPS["transpose"], n, axes=order) for n, order in zip(results.nodes, orders)]
        _settle(graph)
        effects = [n for n in graph.nodes if n.has_effect] if ex.builder.committed else ()
        if effects:
            graph.bring_before(effects[0], ex.builder.checks)
        if any(n.attrs["awaited"] and not n.users and n not in nodes for n in effects):
            raise Break("SIDE_EFFECT", None, "a collective is started, and nothing waits for it")
        graph.output(nodes, results.into, len(ex.builder.checks), () if ex.library is NUMPY else results.scalars)
        outputs = tuple(
            (
                n.dtype.numpy,
                tuple(size_program(expr_of(d)) for d in n.shape),
                scalar,
                -1 if into is None else into,
                () if order is None else tuple(map(order.index, range(n.ndim))),
            )
            for n, scalar, into, order in zip(nodes, results.scalars, results.into, orders)
        )
        if ex.builder.can_bail_out and not ex.builder.may_bail_out:
            raise Break("RANDOM_DRAW", None, "a step that may have to be taken back")
        drawn = [row[1] for row in self.prologue if len(row) > 1]
        written = tuple(into for into in results.into if into is not None and into not in drawn)
        if stop is None and self.loop is None and not any(n.kind == "call_function" for n in graph.nodes):
            raise Break("NOTHING_TO_COMPILE", None, self.target.function.__qualname__)
        calls = [n for n in graph.nodes if n.kind == "call_function"]
        computed = [n for n in calls if not may_be_view(n)]  # what only moves elements warns of nothing
        errors = any(_may_set_error_state(n, ex.scalars) for n in computed)
        last = [*ex.sizes, *map(SizeRelation, ex.env.relations)]
        if written and ex.n_inputs > 1:
            last.append(Disjoint(written))
        if errors or self.loop is not None:
            last.append(NoFloatingPointErrors())
        ex.guards.finish(last)
        n_symbols = len(ex.env.values)
        return Captured(
            graph, ex.guards, recipe, outputs, ex.n_inputs, n_symbols, self.target, stop, self.prologue, self.loop,
            joined=ex.joined, not_joined=ex.not_joined, of_process=ex.of_process, env=ex.env,
            preparations=tuple(ex.preparations),
        )  # fmt: skip


def _may_set_error_state(node: Node, scalars: AbstractSet[Node]) -> bool:
    """Whether NumPy tells np.errstate of what happens in an op: of floats in any one, of integers in few."""
    if any(x.dtype.is_inexact for x in (node, *node.args)):
        return True
    return node.dtype.is_integer and (node.op.divides or (node in scalars and node.op.overflows))


def _settle(graph: Graph) -> None:
    """From here on nodes are values, which backends lay out as they like, and sizes are what the guards came to say of them."""
    for node in graph.nodes:
        deadline.check()
        strides = None if node.kind == "call_function" else _settled(node.meta.strides)
        node.meta = replace(node.meta, shape=_settled(node.shape), strides=strides)
        node.attrs = {name: _settled(value) for name, value in node.attrs.items()}


def _settled(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_settled, value))
    return value.map(settled) if isinstance(value, FunctionCall) else settled(value)


def _may_hold_arrays(value: Any) -> bool:
    """Whether it is worth while to go on after a break with this."""
    if isinstance(value, Lazy):
        return not issubclass(type(value.obj), (int, float, str, bytes, complex, type(None), RANGE_ITERATOR))
    return isinstance(value, Array) or not (isinstance(value, Const) or getattr(value, "kind", None) is RANGE_ITERATOR)


__all__ = ["Captured", "capture"]
