"""Capture one call of a function: bytecode -> graph, guards, and a recipe for effects and result.

Tracing is speculative: it runs nothing for effect.  At an instruction that cannot be followed it starts again, to end right before
it; the recipe then hands the frame's state to a continuation (resume.py), which executes the instruction and goes on.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Union

import numpy as np

from dynagraph import config, deadline
from dynagraph.array_libraries import NUMPY
from dynagraph.frontend import gradients, handlers  # noqa: F401  (importing them registers what they mean)
from dynagraph.frontend.breaks import Break, Reason, bare
from dynagraph.frontend.executor import Executor
from dynagraph.frontend.guards import GuardList
from dynagraph.frontend.numpy_door.layout import Order, order_of
from dynagraph.frontend.profile import Profile
from dynagraph.frontend.program import UndecodableCode
from dynagraph.frontend.results import CannotBuild, Recipe, Results
from dynagraph.frontend.resume import BreakPoint, Resumes, Target, break_point
from dynagraph.frontend.source import Source
from dynagraph.frontend.values import Array, Const
from dynagraph.frontend.wrapping import Lazy
from dynagraph.ir.callouts import FunctionCall
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import OPS, may_be_view
from dynagraph.ir.shapes import expr_of, settled
from dynagraph.ir.size_programs import size_program

Output = tuple[np.dtype, tuple[Any, ...], bool, int, tuple[int, ...]]
MAX_ATTEMPTS = 20  # captures of one call: each ends earlier than the one before


@dataclass(frozen=True)
class Captured:
    """A call, or its part up to a break, as a graph.

    `outputs`: dtype, shape as size programs, whether it is given as a NumPy scalar, the input that it is written to, or -1, and
    the axes by which it is transposed in memory, or ().
    `prologue`: calls before the program, as plans take them.  `stop`: why the capture ends before the return.
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
) -> Captured:
    """Capture the call of `function` with these bound parameters, in order of ``co_varnames``.

    Runs nothing of the user's program for effect.  Without `resumes` it raises Break where the call cannot be captured whole; with
    them, the part before the break is captured, unless no continuation can be made.  `run_watched(function, *args)` calls a
    continuation.

    >>> def f(x):
    ...     return x + 1
    >>> print(capture(f, (np.zeros(3),)).graph)
    x = placeholder[x] : float64[3]
    constant = constant(value=1.0, dtype=float64) : float64[]   # <doctest dynagraph.frontend.capture.capture[0]>:2
    add = add(x, constant) : float64[3]   # <doctest dynagraph.frontend.capture.capture[0]>:2
    return add
    """
    target = function if isinstance(function, Target) else _target(function)
    profile = profile or Profile(dynamic)
    stop_at: int | None = None
    stop: Break | None = None
    suspects: _Suspects | None = None
    for _ in range(MAX_ATTEMPTS):
        ex = Executor(target.function, target.program, values, profile, stop_at)
        try:
            return _Ending(ex, target, stop, resumes, run_watched).captured(ex.run())
        except CannotBuild as refusal:
            if resumes is None or not 0 < refusal.born < (stop_at or ex.steps):
                raise stop or refusal from None
            stop_at, stop = refusal.born, bare(refusal)
        except Break as reason:
            if suspects is None and ex.symbolic_floats:
                suspects = _Suspects(profile, set(ex.symbolic_floats), ex.steps, reason.reason)
                continue
            if suspects is not None:
                suspects.acquit_if_same(ex.steps, reason.reason)
            if resumes is None or stop is not None:
                raise
            stop_at, stop = ex.steps, bare(reason)
        except deadline.OutOfTime:
            if suspects is not None:
                suspects.acquit()
            raise
        finally:
            ex.release()
    raise stop or Break("RECURSION", None, "too many attempts")


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
    prologue: tuple[Any, ...] = ()

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
        point = break_point(self.target, self.ex.main, self.stop)
        if not any(n.kind == "call_function" for n in self.ex.graph.nodes) and not any(map(_may_hold_arrays, point.parameters)):
            raise self.stop
        if len(self.resumes.made) >= config.break_limit:
            raise self.stop
        return results.program(point.parameters, lambda parts: self._continue(point, parts))

    def _continue(self, point: BreakPoint, parts: list[Recipe]) -> Recipe:
        assert self.resumes is not None
        continuation = self.resumes.continuation(point)
        if self.run_watched is None:
            return ("call", continuation, tuple(parts))
        return ("call", self.run_watched, (("const", continuation), *parts))

    def _finish(self, results: Results, recipe: Recipe, stop: Break | None) -> Captured:
        ex, graph = self.ex, self.ex.graph
        orders = [None if into is not None else _order(n) for n, into in zip(results.nodes, results.into)]
        nodes = [n if order is None else graph.call(OPS["transpose"], n, axes=order) for n, order in zip(results.nodes, orders)]
        _settle(graph)
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
        if ex.builder.refuses and not ex.builder.may_refuse:
            raise Break("RANDOM_DRAW", None, "a step that may have to be taken back")
        drawn = [row[1] for row in self.prologue if len(row) > 1]
        written = tuple(into for into in results.into if into is not None and into not in drawn)
        if stop is None and not any(n.kind == "call_function" for n in graph.nodes):
            raise Break("NOTHING_TO_COMPILE", None, self.target.function.__qualname__)
        calls = [n for n in graph.nodes if n.kind == "call_function"]
        computed = [n for n in calls if not may_be_view(n)]  # what only moves elements warns of nothing
        errors = any(_may_set_error_state(n, ex.scalars) for n in computed)
        ex.guards.finish(ex.dims, list(ex.env.relations), errors, written if ex.n_inputs > 1 else ())
        return Captured(graph, ex.guards, recipe, outputs, ex.n_inputs, len(ex.env.values), self.target, stop, self.prologue)


DIVISIONS = frozenset(("floor_divide", "floor_divide_accumulate", "remainder", "fmod", "reciprocal"))  # of integers by zero
OVERFLOWS = frozenset(("add", "subtract", "multiply", "negative", "absolute", "square", "power_int"))  # of NumPy's scalars only


def _may_set_error_state(node: Node, scalars: AbstractSet[Node]) -> bool:
    """Whether NumPy tells np.errstate of what happens in an op: of floats in any one, of integers in few."""
    if any(x.dtype.is_inexact for x in (node, *node.args)):
        return True
    return node.dtype.is_integer and (node.op.name in DIVISIONS or (node in scalars and node.op.name in OVERFLOWS))


def _order(node: Node) -> Order | None:
    """The order of its axes in memory in which NumPy would have made an array; None: C order."""
    strides = node.meta.strides if node.kind == "call_function" else None
    return None if strides is None else order_of(node.shape, strides)


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
    """Whether it is worth while to go on behind a break with this."""
    if isinstance(value, Lazy):
        return not issubclass(type(value.obj), (int, float, str, bytes, complex, type(None)))
    return isinstance(value, Array) or not isinstance(value, Const)


__all__ = ["Captured", "capture"]
