"""The meaning of the gradient primitives (autodiff/primitives.py says what each is for): on a tape, for code that runs as
plain Python, and to a capture, in whose graph gradients are nodes.  A *rule* says both at once; what differs stands in `OnTape` and
`InCapture`.  Also what our other marks mean to a capture.

The variable of a gradient is a node of its own, so that gradients within gradients keep apart what each is taken by.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagraph import markers
from dynagraph.autodiff import primitives, transforms
from dynagraph.autodiff.tape import Level, Tape, Tracer, current_tape, is_tracer, owner_of, plain_of
from dynagraph.autodiff.tracers import of_array
from dynagraph.autograd.terms import ir_dtype
from dynagraph.doors.numpy.layout import copy_order
from dynagraph.errors import GradientError
from dynagraph.frontend.executor.calls import call
from dynagraph.frontend.executor.exceptions import refuse, throw
from dynagraph.frontend.executor.executor import Executor, Frame
from dynagraph.frontend.kinds.mappings import entries_of
from dynagraph.frontend.kinds.slots import items_of
from dynagraph.frontend.kinds.values import Array, Const, Dict, Number, Opaque, Value
from dynagraph.frontend.kinds.values import Sequence as SequenceValue
from dynagraph.frontend.library.registry import meaning
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Node, copy_into
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS, memory_of
from dynagraph.ir.optable.call_gradients import OnlyOnce
from dynagraph.ir.passes.backward import CustomGradient, append_gradients, append_tangents, recompute
from dynagraph.ir.passes.batch import NotBatched, erase_dependents
from dynagraph.ir.passes.jacobian import append_jacobian_columns, append_jacobian_rows
from dynagraph.ir.passes.partition import split
from dynagraph.location import users_line

# what the primitives do for plain Python, by name
TAPE: dict[str, Callable[..., Any]] = {"is_tracer": is_tracer, "level": Level}


class OnTape:
    """Values are arrays, or tracers where they depend on a variable; nodes are those of the tape's notes."""

    items = tuple_of = tuple

    def __init__(self, tape: Tape):
        self.tape, self.notes = tape, tape.notes
        self.ex, self.node_of = self.notes.ex, self.notes.node_of

    def is_scalar(self, value: Any) -> bool:
        return bool(self.notes.to_value(value).is_scalar)

    def variable_node(self, value: Any) -> Node:
        node: Node = value.array.node
        return node

    def append(self, level: Level, append: Callable[..., Any], *args: Any) -> Any:
        symbolic = contextlib.nullcontext() if append is append_gradients else self.tape.symbolic()
        with self.tape.reopened(level), symbolic:
            return append(self.ex.graph, *args)

    def result(self, node: Node | None, like: Node, scalar: bool) -> Any:
        return self.notes.result(self.notes.or_zeros(node, like), scalar)

    def leaf(self, node: Node | None, like: Node, scalar: bool) -> Any:
        return self.notes.variable_like(self.notes.or_zeros(node, like), scalar)

    def call(self, function: Any, *args: Any) -> Any:
        return function(*args)


class InCapture:
    """Values are the executor's."""

    def __init__(self, frame: Frame):
        self.frame, self.ex = frame, frame.ex

    def items(self, values: Value) -> list[Value]:
        return items_of(self.frame, values)

    def tuple_of(self, values: Iterable[Value]) -> Value:
        return SequenceValue(tuple, list(values))

    def node_of(self, value: Any) -> Node:
        return _node_of(self.ex, value)

    def is_scalar(self, value: Any) -> bool:
        value = self.ex.resolve(value)
        return not isinstance(value, Array) or value.is_scalar

    def variable_node(self, value: Any) -> Node:
        array = self.ex.resolve(value)
        assert isinstance(array, Array) and array.node.is_op("variable")
        return array.node

    def append(self, level: Value, append: Callable[..., Any], *args: Any) -> Any:
        """What a pass gives; the captured code raises what it raises."""
        try:
            return append(self.ex.graph, *args)
        except (NotBatched, OnlyOnce) as error:
            refuse("GRADIENT_BY_STEPS", str(error))
        except GradientError as error:
            return throw(error)

    def result(self, node: Node | None, like: Node, scalar: bool) -> Value:
        """A gradient as a value of its own."""
        ex = self.ex
        if node is None:
            node = ex.builder.call("full", shape=like.shape, value=0, dtype=like.dtype)
        if node in ex.arrays or node in ex.scalars or node.kind != "call_function" or memory_of(node) is not None:
            node = ex.builder.call("copy", node)
        return ex.from_door(node, "value" if scalar else "array")

    leaf = result

    def call(self, function: Value, *args: Value) -> Value:
        return call(self.frame, function, list(args), {})


def _node_of(ex: Executor, value: Any) -> Node:
    value = ex.resolve(value)
    if not isinstance(value, (Array, Number, Const)):
        refuse("UNSUPPORTED_VALUE", f"a {type(value).__name__.lower()} in a gradient")
    return ex.builder.as_node(ex.to_door(value))


def _rule(rule: Callable[..., Any]) -> Callable[..., Any]:
    """Register what the primitive of this name means in both: ``(on, level, *args)``."""
    TAPE[rule.__name__] = lambda level, *args: rule(OnTape(level.tape), level, *args)
    meaning(getattr(primitives, rule.__name__))(lambda frame, *args: rule(InCapture(frame), *args))
    return rule


def _on_tape(rule: Callable[..., Any]) -> Callable[..., Any]:
    TAPE[rule.__name__.lstrip("_")] = rule
    return rule


# -- variables ----------------------------------------------------------------------------------------------------------------


def _new_variable(ex: Executor, node: Node, scalar: bool) -> tuple[Node, Value]:
    made = ex.builder.call("variable", node)
    if not scalar:
        ex.builder.lay(made, copy_order(ex.builder.layout(node)))
    return made, ex.from_door(made, "value" if scalar else "array")


@_on_tape
def _variable(level: Level, x: Any) -> Any:
    tape = level.tape
    value = x if type(x) is Tracer else np.float64(x) if type(x) is float else np.complex128(x) if type(x) is complex else x
    real = value.value if type(value) is Tracer else value
    scalar = isinstance(real, np.generic)
    _check_plain(real)
    if not scalar:
        real = real.view()
        real.flags.writeable = False
    if not tape.has_notes and ir_dtype(real.dtype) is not None:
        return tape.variable(level.number, value, real)
    notes = tape.notes
    node = notes.node_of(value)
    made, array = _new_variable(notes.ex, node, scalar)
    notes.levels[made] = notes.levels_of(node) | {level.number}
    notes.note(made, real)
    return notes.tracer(array, real)


def _check_plain(array: Any) -> None:
    """Refuse what a capture does not take either."""
    if type(array) is not np.ndarray and not isinstance(array, np.generic):
        kind = f"{type(array).__module__}.{type(array).__qualname__}"
        raise GradientError(f"{users_line()}: a gradient by a {kind} is asked for; pass a plain array: np.asarray(x)")
    if dtypes.from_numpy(array.dtype) is None:
        raise GradientError(
            f"{users_line()}: a gradient by an array of dtype {array.dtype} is asked for; pass x.astype(np.float64)"
        )


@dataclass(eq=False)
class _Level(Opaque):
    """What one gradient is taken in, in a capture."""

    variables: list[Node] = field(default_factory=list)


@meaning(primitives.level)
def _captured_level(frame: Frame) -> Value:
    made = _Level("a level of gradients")
    frame.ex.open_levels.append(made.variables)
    return made


@meaning(primitives.variable)
def _captured_variable(frame: Frame, level: Value, x: Value) -> Value:
    scalar = InCapture(frame).is_scalar(x)
    node, value = _new_variable(frame.ex, _node_of(frame.ex, x), scalar)
    made_in = frame.ex.resolve(level)
    assert isinstance(made_in, _Level)
    made_in.variables.append(node)
    return value


@meaning(primitives.released)
def _released_in_capture(frame: Frame, level: Value, value: Value) -> Value:
    ex = frame.ex
    done = ex.resolve(level)
    if isinstance(done, _Level):  # else one that was kept for later, which is open no more
        ex.open_levels[:] = [variables for variables in ex.open_levels if variables is not done.variables]
    return ex.resolve(value)


@_on_tape
def _stop_gradient_of(x: Any) -> Any:
    if type(x) is not Tracer:
        return x
    tape = x.tape
    real = x.value if isinstance(x.value, np.generic) else x.value.copy()
    if tape.has_notes and tape.open:
        notes = tape.notes
        notes.note(notes.ex.builder.call("stop_gradient", notes.ex.memories.present(x.array)), real)
    return real


@meaning(primitives.stop_gradient_of)
def _stop_captured_gradient(frame: Frame, x: Value) -> Value:
    ex, value = frame.ex, frame.ex.resolve(x)
    if not isinstance(value, (Array, Number)):
        return value
    made = ex.builder.call("stop_gradient", _node_of(ex, value))
    return Number(made) if isinstance(value, Number) else ex.from_door(made, "value" if value.is_scalar else "array")


# -- gradients ----------------------------------------------------------------------------------------------------------------


@_rule
def pull_back(on: Any, level: Any, values: Any, cotangents: Any, variables: Any) -> Any:
    seeds = [(on.node_of(v), on.node_of(c)) for v, c in zip(on.items(values), on.items(cotangents))]
    by = on.items(variables)
    nodes = [on.variable_node(v) for v in by]
    found = on.append(level, append_gradients, seeds, nodes)
    return on.tuple_of(on.result(node, like, on.is_scalar(v)) for node, like, v in zip(found, nodes, by))


@_on_tape
def _pull_back(level: Level, values: Any, cotangents: Any, variables: Any) -> Any:
    tape = level.tape
    if not tape.has_notes:
        with tape.reopened(level):
            found = tape.pull_back(level.number, values, cotangents, variables)
        if found is not NotImplemented:
            return found
    return pull_back(OnTape(tape), level, values, cotangents, variables)


@_rule
def push_forward(on: Any, level: Any, values: Any, variables: Any, tangents: Any) -> Any:
    given = [(on.variable_node(v), on.node_of(t)) for v, t in zip(on.items(variables), on.items(tangents))]
    results = on.items(values)
    of = [on.node_of(v) for v in results]
    found = on.append(level, append_tangents, given, of)
    return on.tuple_of(on.result(node, like, on.is_scalar(v)) for node, like, v in zip(found, of, results))


@_rule
def jacobian_rows(on: Any, level: Any, value: Any, variables: Any) -> Any:
    by = [on.variable_node(v) for v in on.items(variables)]
    return _derivatives(on, on.append(level, append_jacobian_rows, on.node_of(value), by))


@_rule
def jacobian_columns(on: Any, level: Any, values: Any, variable: Any) -> Any:
    of = [on.node_of(v) for v in on.items(values)]
    return _derivatives(on, on.append(level, append_jacobian_columns, of, on.variable_node(variable)))


def _derivatives(on: Any, nodes: Iterable[Node]) -> Any:
    return on.tuple_of(on.result(node, node, False) for node in nodes)


@dataclass(eq=False)
class Kept:
    """How gradients are computed from values that a program has kept for it, and cotangents.

    `graph` takes these and gives the gradients; `places` says for each variable which result its gradient is (None: it is zero),
    and its shape, its dtype, and whether it is a scalar.
    """

    graph: Graph
    places: tuple[tuple[int | None, tuple[Any, ...], np.dtype, bool], ...]
    program: Any = None  # that runs the graph, once it has been asked for


@_on_tape
def _keep(level: Level, values: Sequence[Any], variables: Sequence[Any]) -> tuple[tuple[Any, ...], Kept | None]:
    tape = level.tape
    tape.open.discard(level.number)
    if not tape.has_notes:
        tape.keep_apart((*values, *variables))
        return (level, values, variables), None
    for tracer in (*values, *variables):
        if type(tracer) is Tracer:
            tape.notes.keep_before_write(owner_of(np.asarray(tracer.value)))
    return (level, values, variables), None


@meaning(primitives.keep)
def _keep_in_program(frame: Frame, level: Value, values: Value, variables: Value) -> Value:
    ex, on = frame.ex, InCapture(frame)
    of, by = on.items(values), on.items(variables)
    if frame is not ex.main or ex.env.values:  # a part of another program is differentiated in that
        return on.tuple_of([on.tuple_of([Const(None), on.tuple_of(of), on.tuple_of(by)]), Const(None)])
    taken_by = [on.variable_node(v) for v in by]
    nodes = [on.node_of(v) for v in of]
    seeds = [ex.builder.call("full", shape=n.shape, value=0, dtype=n.dtype) for n in nodes]
    found = on.append(level, append_gradients, list(zip(nodes, seeds)), taken_by)
    backward = split(ex.graph, seeds, [g for g in found if g is not None])
    erase_dependents(ex.graph, seeds)
    position = itertools.count()
    places = tuple(
        (None if g is None else next(position), n.shape, n.dtype.numpy, on.is_scalar(v)) for g, n, v in zip(found, taken_by, by)
    )
    return on.tuple_of([_derivatives(on, backward.kept), Const(Kept(backward.graph, places))])


@_on_tape
def _spliced(graph: Graph, inputs: Sequence[Any]) -> tuple[Any, ...]:
    tracers = [x for x in inputs if type(x) is Tracer]
    if not tracers:
        return interpret(graph, inputs)
    found: tuple[Any, ...] = splice(OnTape(tracers[0].tape), graph, inputs)
    return found


def splice(on: Any, graph: Graph, inputs: Any) -> Any:
    return _derivatives(on, copy_into(on.ex.graph, graph, [on.node_of(x) for x in on.items(inputs)]))


meaning(primitives.spliced)(lambda frame, graph, inputs: splice(InCapture(frame), frame.ex.resolve(graph).value, inputs))


# -- what a transformation gives ----------------------------------------------------------------------------------------------


@_on_tape
def _gathered(level: Level, value: Any) -> Any:
    if type(value) is not np.ndarray or not value.dtype.hasobject or not any(type(item) is Tracer for item in value.flat):
        return value
    return level.tape.step(of_array, None, (value,), lambda: plain_of(value), "an array of objects")


@_on_tape
def _released(level: Level, value: Any) -> Any:
    if type(value) is not Tracer or value.tape is not level.tape:
        return value
    tape = level.tape
    if tape.has_notes:
        notes = tape.notes
        node = notes.ex.memories.present(value.array)
        notes.levels[node] = notes.levels_of(node) - {level.number}
        if notes.is_active(node):
            return value
    elif not value.node.levels.isdisjoint(tape.open - {level.number}):
        return value
    real = value.value
    if isinstance(real, np.ndarray) and not real.flags.writeable:
        return real.copy(order="K")  # a variable or a part of one, which lies in the caller's array
    return real


@meaning(primitives.called)
def _called(frame: Frame, level: Value, f: Value, args: Value, kwargs: Value) -> Value:
    named = frame.ex.resolve(kwargs)
    assert isinstance(named, Dict)
    return call(frame, f, items_of(frame, args), entries_of(frame, named))


@meaning(primitives.check_apart)
def _check_apart(frame: Frame, results: Value, before: Value, after: Value) -> Value:
    ex = frame.ex
    what = "of a function that is differentiated as one step"
    seen: set[Node] = set()
    for value in map(ex.resolve, items_of(frame, results)):
        if not isinstance(value, (Array, Number, Const)):
            refuse("UNSUPPORTED_VALUE", f"a result, no number and no array, {what}")
        if not isinstance(value, Array) or value.is_scalar:
            continue
        node = ex.memories.present(value)
        if node in seen or node.kind != "call_function" or node.is_op("variable") or memory_of(node) is not None:
            refuse("UNSUPPORTED_VALUE", f"a result that shares memory, {what}")
        seen.add(node)
    if ex.effects or ex.stored or ex.written or ex.memories.written_inputs():
        refuse("UNSUPPORTED_VALUE", f"effects {what}")
    if not _are_same(frame, before, after):
        refuse("UNSUPPORTED_VALUE", f"changes of an argument {what}")
    return Const(None)


def _are_same(frame: Frame, before: Value, after: Value) -> bool:
    """Whether two lists of names and values are the same."""
    pairs = [[items_of(frame, frame.ex.resolve(item)) for item in items_of(frame, side)] for side in (before, after)]
    flat = [[frame.ex.resolve(part) for pair in side for part in pair] for side in pairs]
    return len(flat[0]) == len(flat[1]) and all(
        a is b or (isinstance(a, Const) and isinstance(b, Const) and (a.value is b.value or a.value == b.value))
        for a, b in zip(*flat)
    )


# -- parts whose gradient comes in another way --------------------------------------------------------------------------------


@_on_tape
def _begin_part() -> Any:
    tape = current_tape()
    if tape is None or not tape.open:
        return None
    return tape, tape.notes.ex.graph.latest if tape.has_notes else len(tape.nodes)


@dataclass(eq=False)
class _Part(Opaque):
    """Where a part began whose gradient comes in another way."""

    latest: Node | None = None


meaning(primitives.begin_part)(lambda frame: _Part("the beginning of a part", frame.ex.graph.latest))


def _part_ended(on: Any, latest: Node | None, name: Any, results: Any, args: Any, pull: Any) -> tuple[list[Node], list[Node]]:
    """The results of a part as leaves with a gradient of their own, and the nodes that are the part."""
    graph, values = on.ex.graph, on.items(results)
    nodes = [on.node_of(v) for v in values]
    part = [node for node in graph.since(latest) if node.kind == "call_function"]
    made = [graph.call(OPS["copy"], node) for node in nodes]
    if pull is None:
        custom = recompute(made, part)
    else:
        given = on.items(args)
        operands = [on.node_of(a) for a in given]
        captured = frozenset(a for node in part for a in node.args) - {*part, *operands}

        custom = _custom(on, name, made, list(map(on.is_scalar, values)), operands, list(map(on.is_scalar, given)), captured, pull)
    graph.custom.update(dict.fromkeys(made, custom))
    return made, part


def _custom(
    on: Any, name: Any, made: Sequence[Node], scalars: Sequence[bool], operands: Sequence[Node], scalar_operands: Sequence[bool],
    captured: frozenset[Node], pull: Any,
) -> CustomGradient:  # fmt: skip
    def pulled(operands: Iterable[Node], cotangents: Iterable[Node | None], _: Iterable[bool]) -> list[Node]:
        again = [on.leaf(n, n, scalar) for n, scalar in zip(operands, scalar_operands)]
        seeds = [on.leaf(c, n, scalar) for c, n, scalar in zip(cotangents, made, scalars)]
        return [on.node_of(g) for g in on.items(on.call(pull, on.tuple_of(again), on.tuple_of(seeds)))]

    return CustomGradient(name, made, operands, captured, pulled)


@_on_tape
def _end_part(begun: Any, name: str, results: Sequence[Any], args: Sequence[Any], pull: Any) -> tuple[Any, ...]:
    tape, latest = begun
    if pull is not None and not tape.has_notes:
        scalars, scalar_args = ([not isinstance(plain_of(x), np.ndarray) for x in xs] for xs in (results, args))

        def noted(tape: Tape, made: list[Node], operands: list[Node], captured: frozenset[Node]) -> CustomGradient:
            return _custom(OnTape(tape), name, made, scalars, operands, scalar_args, captured, pull)

        found: tuple[Any, ...] = tape.end_part(latest, name, results, args, pull, noted)
        return found
    on = OnTape(tape)
    if type(latest) is int:  # the tape has changed over since
        recorded = list(on.notes.made)
        if pull is None:
            for step in recorded[latest:]:
                step.value = None  # computed again
        latest = on.notes.made[recorded[latest - 1]] if latest else on.notes.start
    made, part = _part_ended(on, latest, name, results, args, pull)
    traced = []
    for node, result in zip(made, results):
        real, scalar = plain_of(result), on.is_scalar(result)
        on.notes.note(node, real if scalar else real.copy())
        traced.append(on.notes.traced(on.ex.from_door(node, "value" if scalar else "array"), real))
    if pull is None:
        for node in part:
            on.notes.values.pop(node, None)
    return tuple(traced)


@meaning(primitives.end_part)
def _end_captured_part(frame: Frame, begun: Any, name: Value, results: Value, args: Value, pull: Any) -> Value:
    ex, on = frame.ex, InCapture(frame)
    pull = ex.resolve(pull)
    backward = None if isinstance(pull, Const) else pull
    made, _ = _part_ended(on, ex.resolve(begun).latest, ex.resolve(name).value, results, args, backward)
    scalars = map(on.is_scalar, on.items(results))
    return on.tuple_of(ex.from_door(node, "value" if scalar else "array") for node, scalar in zip(made, scalars))


# -- what a capture knows by itself -------------------------------------------------------------------------------------------

meaning(primitives.is_part)(lambda frame, begun: Const(True))
meaning(primitives.is_captured)(lambda frame: Const(True))
meaning(primitives.gathered)(lambda frame, level, value: frame.ex.resolve(value))
meaning(transforms.compiled_plan)(lambda frame, plan, f, *key, **options: plan)
meaning(transforms.presented)(lambda frame, made, *rest: made)
meaning(transforms.check_callable)(lambda frame, who, f: frame.ex.constant(None))
meaning(markers.graph_break)(lambda frame: refuse("GRAPH_BREAK", ""))
meaning(markers.is_compiling)(lambda frame: Const(True))
