"""Notes: what was done on a tape as a graph, for what arrays alone do not tell.

NumPy computes the values of each step; what it means is said by the tables that captures ask, as nodes of the notes' graph.  Writes
into arrays, tangents, Jacobians and parts with a gradient of their own are taken from it (ir/passes/backward.py).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any

import numpy as np

from dynagraph.autodiff.tracers import Operand, Tracer, holds_inexact, owner_of, refuse_memory
from dynagraph.autograd.nodes import Node as ArrayNode
from dynagraph.autograd.nodes import Value as ArrayValue
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
from dynagraph.frontend.kinds.values import Array, Const, Dict, Slice, Value
from dynagraph.frontend.kinds.values import Sequence as SequenceValue
from dynagraph.ir.graph import Node, with_strides
from dynagraph.ir.ops import may_be_view
from dynagraph.location import Location, users_line


def _nothing() -> None:
    """The function whose call an executor of notes is in."""


class Notes:
    """A graph, and the values of its nodes as they were then.

    `tape`: whose notes they are.  `open`: the levels by whose variables values may still be differentiated.  `operands`: what an
    `Operand` stands for.
    """

    def __init__(self, tape: Any, open_levels: Set[int]):
        self.tape = tape
        self.ex = Executor(_nothing, decode(_nothing.__code__), (), Profile(False))  # type: ignore[arg-type]
        self.ex.of_bfloat16 = bfloat16_door.ON_TAPE
        self.ex.builder.observed = self.value_of
        self.frame = self.ex.main
        self.frame.ip = 1
        self.open = open_levels
        self.values: dict[Node, np.ndarray] = {}
        self.held: dict[int, list[Node]] = {}  # by the object whose memory their values lie in
        self.tracers: weakref.WeakValueDictionary[int, Tracer] = weakref.WeakValueDictionary()  # by id of their arrays
        self.levels: dict[Node, frozenset[int]] = {}  # whose variables a node depends on
        self.operands: list[Array] = []
        self.made: dict[ArrayNode, Node] = {}  # of what was recorded before
        self.start = self.ex.graph.latest

    def close(self) -> None:
        for node in self.made:
            if node.part is not None:
                node.part.results.clear()  # a cycle
        for container in (self.values, self.held, self.levels, self.operands, self.made, self.ex.graph.custom):
            container.clear()  # type: ignore[attr-defined]
        self.ex.release()

    # -- what was recorded before ---------------------------------------------------------------------------------------
    def take_over(self, nodes: Sequence[ArrayNode]) -> None:
        """Note what was recorded, as if it had been noted step by step."""
        graph = self.ex.graph
        for node in nodes:
            graph.location = node.location
            made = graph.call(node.op, *map(self._node_of_value, node.inputs), **node.attrs)
            value = node.value
            if value is not None and not value.flags.c_contiguous and not may_be_view(made):
                made.meta = with_strides(made.meta, tuple(stride // value.itemsize for stride in value.strides))
            self.levels[made] = node.levels
            if value is not None:
                self.note(made, value)
            self.made[node] = made
            part = node.part
            if part is not None and node is part.results[-1]:
                results = [self.made[result] for result in part.results]
                captured = frozenset(self.made[x] for x in part.captured)
                self.ex.graph.custom.update(
                    dict.fromkeys(results, part.noted(self.tape, results, list(map(self._node_of_value, part.operands)), captured))
                )

    def _node_of_value(self, value: ArrayValue) -> Node:
        return self.made[value] if type(value) is ArrayNode else self.ex.graph.constant(value)  # type: ignore[arg-type]

    def array_of(self, tracer: Tracer) -> Array:
        """What stands for a tracer that was made before."""
        array = self.ex.from_door(self.made[tracer.node], "value" if isinstance(tracer.value, np.generic) else "array")
        self.tracers[id(array)] = tracer
        return array  # type: ignore[return-value]

    # -- what depends on what -------------------------------------------------------------------------------------------
    def is_active(self, node: Node) -> bool:
        """Whether a value depends on the variable of a level that is still open."""
        return node.dtype.is_inexact and bool(self.open & self.levels_of(node))

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
        if kind is Operand:
            return self.operands[obj.at]
        if kind is Tracer:
            if obj.tape.is_noted_in(self):
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
        refuse_memory(real)
        return real

    def tracer(self, array: Any, real: Any) -> Tracer:
        known = self.tracers.get(id(array))
        if known is not None and known.value is real:
            return known
        made = self.tracers[id(array)] = Tracer(self.tape, None, real, array)
        return made

    # -- one step -------------------------------------------------------------------------------------------------------
    def step(
        self, meaning: Callable[[], Value], real: Callable[[], Any], what: str, args: Iterable[Any] = (), tracers: bool = False
    ) -> Any:
        """Do `real`, as the user's code does it, and note what it means.  `what` names it, `args` may be written to, `tracers`: the
        result is a tracer though nothing depends on it yet.
        """
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
            if type(arg) is Tracer and arg.tape.is_noted_in(self) and ex.memories.of.get(way_to(arg.array.node)[1]) in written:
                self.keep_before_write(owner_of(np.asarray(arg.value)))
        return self.traced(value, real(), tracers)

    def _without_meaning(self, stop: Exception, real: Callable[[], Any], what: str, place: Location | None) -> Any:
        result = real()  # raises what NumPy raises
        if result is None and isinstance(stop, Break) and stop.reason.name == "IN_PLACE_WRITE":
            raise GradientError(
                f"{place}: {what} writes a value that is being differentiated into a plain array; "
                "make the array of one that is differentiated: np.zeros_like(x)"
            ) from None
        if result is not None and not holds_inexact(result):
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
        self.levels[made] = self.levels_of(node) | {self.tape.taken}
        real = self.value_of(node)
        real = real[()] if scalar else real.copy()
        self.note(made, real)
        return self.tracer(self.ex.from_door(made, "value" if scalar else "array"), real)


__all__ = ["Notes"]
