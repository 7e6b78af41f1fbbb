"""Aliasing: for arrays that captured code writes to, what their memory holds now, for all views of it.

The graph knows values only.  A `Memory` is what a value and its views look at; a write gives it a new value, in which the part that
was written is replaced, and whoever looks at it later reads from that one.  The last value of an input's memory is an output of the
graph, meant for the input itself.
"""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.graph_state import GraphState
from dynagraph.frontend.guards.sources import Source
from dynagraph.frontend.kinds.extents import Extents
from dynagraph.frontend.kinds.values import Array, Const, Number, Object
from dynagraph.ir.graph import Node, with_strides
from dynagraph.ir.ops import Strided, may_be_view, memory_of, strided_of
from dynagraph.ir.shapes import same_dim, same_shape


@dataclass(eq=False)
class Memory:
    """`base`: the value that it held first, of which views are views; `value`: what it holds now."""

    base: Node
    value: Node
    seen: dict[Node, Node] = field(default_factory=dict)  # views of the base as views of the present value


class Memories:
    """All memory that is written to in one capture."""

    def __init__(self, ex: GraphState):
        self.ex = ex
        self.of: dict[Node, Memory] = {}  # by each value that it held
        self._inputs: Extents[Node] = Extents()  # where the caller's arrays lie
        self._known: list[Node] = []  # the placeholders that were asked where they lie
        self._harmless: list[Any] = []  # the effects that look at no array

    def __iter__(self) -> Any:
        return iter(dict.fromkeys(self.of.values()))

    def written_inputs(self) -> list[Memory]:
        """Those of the caller's arrays."""
        return [memory for memory in self if memory.base.kind == "placeholder"]

    # -- reading --------------------------------------------------------------------------------------------------------
    def present(self, array: Array) -> Node:
        """The node of what an array holds now."""
        if not self.of or array.is_scalar:
            return array.node
        way, base = way_to(array.node)
        memory = self.of.get(base)
        if memory is None or memory.value is base:
            return array.node
        node = self._again(way, memory.value, memory.seen)
        self.ex.arrays.setdefault(node, array)
        return node

    def rebased(self, node: Node) -> Node:
        """What is a view of the present values of arrays, as that view of what was there first: by this its place is known.

        What NumPy copies, because the memory lies in another way than its present value, is a copy; later views are views of that.
        """
        way: list[Node] = []
        seen = node
        while seen not in self.ex.arrays and seen not in self.of:
            if not may_be_view(seen):
                return node
            way.insert(0, seen)
            seen = seen.args[0]
        place = self.of[seen].base if seen in self.of else self.ex.arrays[seen].node
        if place is seen:
            return node
        base, again = way_to(place)[1], place
        for k, view in enumerate(way):
            again = self._again([view], again, {})
            if way_to(again)[1] is not base:
                return self._again(way[k + 1 :], self.ex.builder.call("copy", view), {})
        return again

    def _again(self, way: list[Node], base: Node, seen: dict[Node, Node]) -> Node:
        for view in way:
            if view not in seen:
                seen[view] = self.ex.graph.call(view.op, base, **view.attrs)
            base = seen[view]
        return base

    # -- writing ----------------------------------------------------------------------------------------------------------
    def write(self, array: Array, new: Node) -> None:
        """Have the array hold what `new` gives, of its dtype and shape."""
        self.check(array)
        way, base = way_to(array.node)
        memory = self.of.get(base)
        if memory is None:
            memory = self.of[base] = Memory(base, base)
        held = [memory.value]
        for view in way[:-1]:
            held.append(self._again([view], held[-1], memory.seen))
        for view, before in zip(reversed(way), reversed(held)):
            new = self._put_back(view, before, new)
        memory.value = self._own(new)
        memory.value.meta = with_strides(memory.value.meta, base.meta.strides)
        memory.seen = {}
        self.of[memory.value] = memory

    def _put_back(self, view: Node, before: Node, new: Node) -> Node:
        """What was viewed, with the view's elements replaced."""
        build = self.ex.builder.call
        if view.is_op("reshape"):
            return build("reshape", new, shape=before.shape)
        if view.is_op("transpose"):
            axes = view.attrs["axes"]
            return build("transpose", new, axes=tuple(axes.index(k) for k in range(len(axes))))
        if view.is_op("slice"):
            starts, steps = view.attrs["starts"], view.attrs["steps"]
            if same_shape(view.shape, before.shape) and all(same_dim(s, 1) for s in steps):
                return new
            return build("update_slice", before, new, starts=starts, steps=steps)
        if view.is_op("real"):
            return build("complex", new, build("imag", before))
        if view.is_op("imag"):
            return build("complex", build("real", before), new)
        return refuse("IN_PLACE_WRITE", f"through a view that {view.op.name} gives")

    def _own(self, node: Node) -> Node:
        """A value that is nothing else."""
        known = node in self.ex.arrays or node in self.of or node in self.ex.scalars
        if known or node.kind != "call_function" or memory_of(node) is not None:
            return self.ex.builder.call("copy", node)
        return node

    # -- what may be written to ---------------------------------------------------------------------------------------------
    def check(self, array: Array) -> None:
        """Refuse a write that has another meaning, or none."""
        _, base = way_to(array.node)
        if is_broadcast(array.node):
            refuse("WOULD_RAISE", "a view that is read-only is written")
        if array.is_scalar or base in self.ex.scalars or base.kind == "get_attr":
            refuse("IN_PLACE_WRITE", "a value that cannot change")
        if base.is_op("variable"):
            refuse("IN_PLACE_WRITE", "an argument by which a gradient is taken")
        owner = self.ex.arrays.get(base)
        if base.kind == "placeholder" and (owner is None or owner.source is None):
            refuse("IN_PLACE_WRITE", "what NumPy makes of a Python number that changes")
        if base.kind == "placeholder":
            self._check_input(base)
        self.check_effects()

    def check_effects(self) -> None:
        """Refuse a write after an effect that may have looked at what is written."""
        effects, n = self.ex.effects, len(self._harmless)
        if n > len(effects) or (n and effects[n - 1] is not self._harmless[-1]):  # some were taken back
            n = 0
        if any(shows(function) and not all(map(_is_plain, args)) for function, args in effects[n:]):
            refuse("IN_PLACE_WRITE", "after an effect that may look at the array")
        self._harmless[n:] = effects[n:]

    def _check_input(self, base: Node) -> None:
        given = self.object_of(base)
        if given is None or base in self.of:  # what came after its first write was checked then
            return
        library = self.ex.library
        if not library.is_writeable(given):
            refuse("WOULD_RAISE", "an array that is read-only is written")
        if _overlaps_itself(given):
            refuse("IN_PLACE_WRITE", "an array whose elements share memory is written")
        for node in self._sharing(given):
            if node is not base:
                refuse("OVERLAP", f"{self.ex.arrays[base].source} and {self.ex.arrays[node].source}")

    def check_new_input(self, given: Any, source: Source) -> None:
        """An array that is looked at only now shares nothing with those that were written to."""
        for node in self._sharing(given) if self.of else ():
            if node in self.of:
                refuse("OVERLAP", f"{self.ex.arrays[node].source} and {source}")

    def _sharing(self, given: Any) -> list[Node]:
        """The inputs that may share memory with an array of the caller's."""
        inputs, n = self.ex.graph.placeholders, len(self._known)
        if n > len(inputs) or (n and inputs[n - 1] is not self._known[-1]):  # some were taken back
            n, self._inputs = 0, Extents()
        for node in inputs[n:]:
            other = None if node in self.ex.scalars else self.object_of(node)
            if other is not None:
                self._inputs.add(self.ex.library.place_of(other), node)
        self._known[n:] = inputs[n:]
        return self._inputs.overlapping(self.ex.library.place_of(given))

    def is_writeable(self, array: Array) -> bool:
        """What ``array.flags.writeable`` says."""
        _, base = way_to(array.node)
        given = self.object_of(base) if base.kind == "placeholder" and base not in self.ex.scalars else None
        read_only = any(view.is_op("broadcast_to") and view not in self.ex.warning for view in way_to(array.node)[0])
        return not read_only and (given is None or self.ex.library.is_writeable(given))

    def object_of(self, node: Node) -> Any:
        """The caller's array that a placeholder stands for; None for a number, and for what the entry makes anew."""
        owner = self.ex.arrays.get(node)
        return None if owner is None or owner.source is None else self.ex.objects.get(owner.source)


def way_to(node: Node) -> tuple[list[Node], Node]:
    """The views, outermost last, by which a node looks at another one's memory; and that node."""
    found = memory_of(node)
    if found is None:
        return [], node
    way: list[Node] = []
    while node is not found[0]:
        way.append(node)
        node = node.args[0]
    way.reverse()
    return way, node


def is_broadcast(node: Node) -> bool:
    """Whether a view goes through np.broadcast_to, whose results are read-only."""
    return any(view.is_op("broadcast_to") for view in way_to(node)[0])


def same_place(left: Node, right: Node) -> bool:
    """Whether two nodes look at the same elements in the same memory."""
    (base, one), (other_base, other) = _place(left), _place(right)
    return base is other_base and same_shape(one.shape, other.shape) and same_shape(one.strides, other.strides) and (
        same_dim(one.offset, other.offset)
    )


def _place(node: Node) -> tuple[Node, Strided]:
    return memory_of(node) or (node, strided_of(node))


def _overlaps_itself(array: Any) -> bool:
    """Whether two elements may lie at one place (a window view, a broadcast array)."""
    reach = array.itemsize
    for stride, dim in sorted((abs(s), d) for s, d in zip(array.strides, array.shape) if d > 1):
        if stride < reach:
            return True
        reach = stride * (dim - 1) + reach
    return False


CACHED = type(functools.lru_cache(bool))


STORING: list[Any] = []  # effects in Python that only store


def shows(function: Any) -> bool:
    """Whether an effect looks into its arguments, rather than storing them; a function with a cache gives what it holds."""
    called = function.func if isinstance(function, functools.partial) else function
    if any(called is each for each in STORING):
        return False
    return not isinstance(called, (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, CACHED))


def _is_plain(value: Any) -> bool:
    """Whether a value holds no array."""
    if isinstance(value, Object):
        return value.kind is np.errstate
    return isinstance(value, (Const, Number)) or (isinstance(value, Array) and value.is_scalar)


__all__ = ["STORING", "Memories", "Memory", "is_broadcast", "same_place", "shows", "way_to"]
