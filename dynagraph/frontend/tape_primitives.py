"""What transformations are made of (primitives.py), for code that runs as plain Python: on a tape.

Captures know these functions by themselves (gradients.py), and never run them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.errors import GradientError
from dynagraph.frontend.numpy_door.layout import copy_order
from dynagraph.frontend.tape import Box, Level, Tape, current_tape, is_box, owner_of, plain_of, users_line
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Node, copy_into
from dynagraph.ir.interpreter import interpret
from dynagraph.ir.ops import OPS
from dynagraph.ir.passes.backward import CustomGradient, append_gradients, append_tangents, recompute
from dynagraph.ir.passes.jacobian import append_jacobian_columns, append_jacobian_rows


def level() -> Level:
    """Open a level: it ends with the last reference to it."""
    return Level()


def variable(level: Level, x: Any) -> Any:
    """The same array, NumPy scalar or Python float, as something of its own by which gradients can be taken."""
    tape = level.tape
    ex = tape.ex
    value = x if type(x) is Box else np.float64(x) if type(x) is float else np.complex128(x) if type(x) is complex else x
    scalar = value.array.is_scalar if type(value) is Box else isinstance(value, np.generic)
    real = value.value if type(value) is Box else value
    _check_plain(real)
    if not scalar:
        real = real.view()
        real.flags.writeable = False
    node = tape.node_of(value)
    made = ex.builder.call("variable", node)
    if not scalar:
        ex.builder.lay(made, copy_order(ex.builder.layout(node)))
    tape.levels[made] = tape.levels_of(node) | {level.number}
    tape.note(made, real)
    return tape.box(ex.from_door(made, "value" if scalar else "array"), real)


def _check_plain(array: Any) -> None:
    """Refuse what a capture does not take either."""
    if type(array) is not np.ndarray and not isinstance(array, np.generic):
        kind = f"{type(array).__module__}.{type(array).__qualname__}"
        raise GradientError(f"{users_line()}: a gradient by a {kind} is asked for; pass a plain array: np.asarray(x)")
    if dtypes.from_numpy(array.dtype) is None:
        raise GradientError(
            f"{users_line()}: a gradient by an array of dtype {array.dtype} is asked for; pass x.astype(np.float64)"
        )


def pull_back(level: Level, values: Sequence[Any], cotangents: Sequence[Any], variables: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients of ``sum(sum(c * v) for c, v in zip(cotangents, values))`` by the variables."""
    tape = level.tape
    seeds = [(tape.node_of(v), tape.node_of(c)) for v, c in zip(values, cotangents)]
    with tape.reopened(level):
        found = append_gradients(tape.ex.graph, seeds, [v.array.node for v in variables])
    return tuple(_result(tape, node, v.array.node, v.array.is_scalar) for node, v in zip(found, variables))


@dataclass(eq=False)
class Kept:
    """How gradients are computed from values that a program has kept for it, and cotangents.

    `graph` takes these and gives the gradients; `places` says for each variable which result its gradient is (None: it is zero),
    and its shape, its dtype, and whether it is a scalar.
    """

    graph: Graph
    places: tuple[tuple[int | None, tuple[Any, ...], np.dtype, bool], ...]
    program: Any = None  # that runs the graph, once it has been asked for


def keep(level: Level, values: Sequence[Any], variables: Sequence[Any]) -> tuple[tuple[Any, ...], Kept | None]:
    """What gradients of the values by the variables need later: values, and a `Kept`; or else None, and what `pull_back` takes.

    What is computed from now on does not depend on the variables, and memory that the caller sees may be written to.
    """
    tape = level.tape
    tape.open.discard(level.number)
    for box in (*values, *variables):
        if type(box) is Box:
            tape.keep_before_write(owner_of(np.asarray(box.value)))
    return (level, values, variables), None


def spliced(graph: Graph, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What a graph gives for inputs that fit it."""
    boxes = [x for x in inputs if type(x) is Box]
    if not boxes:
        return interpret(graph, inputs)
    tape = boxes[0].tape
    found = copy_into(tape.ex.graph, graph, [tape.node_of(x) for x in inputs])
    return tuple(tape.result(node, False) for node in found)


def push_forward(level: Level, values: Sequence[Any], variables: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """How the values change where the variables change by the tangents."""
    tape = level.tape
    given = [(v.array.node, tape.node_of(t)) for v, t in zip(variables, tangents)]
    of = [tape.node_of(v) for v in values]
    with tape.reopened(level), tape.symbolic():
        found = append_tangents(tape.ex.graph, given, of)
    scalars = [tape.to_value(v).is_scalar for v in values]
    return tuple(_result(tape, node, like, scalar) for node, like, scalar in zip(found, of, scalars))


def jacobian_rows(level: Level, value: Any, variables: Sequence[Any]) -> tuple[Any, ...]:
    """The derivatives of a value by each variable, of the value's shape and then the variable's, by gradients."""
    tape = level.tape
    with tape.reopened(level), tape.symbolic():
        found = append_jacobian_rows(tape.ex.graph, tape.node_of(value), [v.array.node for v in variables])
    return tuple(tape.result(node, False) for node in found)


def jacobian_columns(level: Level, values: Sequence[Any], variable: Any) -> tuple[Any, ...]:
    """The derivatives of each value by a variable, of the value's shape and then the variable's, by tangents."""
    tape = level.tape
    with tape.reopened(level), tape.symbolic():
        found = append_jacobian_columns(tape.ex.graph, [tape.node_of(v) for v in values], variable.array.node)
    return tuple(tape.result(node, False) for node in found)


def gathered(level: Level, value: Any) -> Any:
    """A result as one array, where NumPy has made an array of objects of boxes."""
    if type(value) is not np.ndarray or not value.dtype.hasobject or not any(type(item) is Box for item in value.flat):
        return value
    tape = level.tape
    return tape.boxed(tape.ex.from_door(tape.node_of(value), "array"), plain_of(value))


def released(level: Level, value: Any) -> Any:
    """A result as the caller of this level sees it: plain, unless it depends on a variable of another open level."""
    if type(value) is not Box or value.tape is not level.tape:
        return value
    tape = level.tape
    node = tape.ex.memories.present(value.array)
    tape.levels[node] = tape.levels_of(node) - {level.number}
    if tape.is_active(node):
        return value
    real = value.value
    if isinstance(real, np.ndarray) and not real.flags.writeable:
        return real.copy(order="K")  # a variable or a part of one, which lies in the caller's array
    return real


def begin_part() -> Any:
    """The place where a part of the computation begins whose gradient comes in another way; None where no gradient is taken."""
    tape = current_tape()
    return (tape, tape.ex.graph.latest) if tape is not None and tape.open else None


def end_part(
    begun: Any, name: str, results: Sequence[Any], args: Sequence[Any], pull: Callable[..., Any] | None
) -> tuple[Any, ...]:
    """The results of a part, as those of which ``pull(args, cotangents)`` gives the gradients by the arguments.

    All are leaves; cotangents are arrays, zeros where nothing comes back.  Without `pull` the gradients are the part's own, which
    is computed again for them rather than kept.
    """
    tape, latest = begun
    graph = tape.ex.graph
    values = [tape.to_value(r) for r in results]
    nodes = [tape.node_of(r) for r in results]
    part = [node for node in graph.since(latest) if node.kind == "call_function"]
    made = [graph.call(OPS["copy"], node) for node in nodes]
    if pull is None:
        custom = recompute(made, part)
    else:
        operands = [tape.node_of(a) for a in args]
        captured = frozenset(a for node in part for a in node.args) - {*part, *operands}
        scalars = [tape.to_value(a).is_scalar for a in args]

        def pulled(operands: Sequence[Node], cotangents: Sequence[Node | None]) -> list[Node]:
            given = [tape.variable_like(n, s) for n, s in zip(operands, scalars)]
            seeds = [tape.variable_like(tape.or_zeros(c, n), v.is_scalar) for c, n, v in zip(cotangents, made, values)]
            return [tape.node_of(g) for g in pull(tuple(given), tuple(seeds))]

        custom = CustomGradient(name, made, operands, captured, pulled)
    graph.custom.update(dict.fromkeys(made, custom))
    boxed = []
    for node, value, result in zip(made, values, results):
        real = plain_of(result)
        tape.note(node, real if value.is_scalar else real.copy())
        boxed.append(tape.boxed(tape.ex.from_door(node, "value" if value.is_scalar else "array"), real))
    if pull is None:
        for node in part:
            tape.values.pop(node, None)
    return tuple(boxed)


def stop_gradient_of(x: Any) -> Any:
    if type(x) is not Box:
        return x
    tape = x.tape
    node = tape.ex.builder.call("stop_gradient", tape.ex.memories.present(x.array))
    real = x.value if x.array.is_scalar else x.value.copy()
    tape.note(node, real)
    return real


def _result(tape: Tape, node: Node | None, like: Node, scalar: bool) -> Any:
    return tape.result(tape.or_zeros(node, like), scalar)


__all__ = [
    "Kept", "begin_part", "end_part", "gathered", "is_box", "jacobian_columns", "jacobian_rows", "keep", "level", "pull_back",
    "push_forward", "released", "spliced", "stop_gradient_of", "variable",
]  # fmt: skip
