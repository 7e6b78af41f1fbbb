"""Recipes: what the dispatcher does after the graph has run: effects in order, objects, the result.

It decides what the graph's outputs are.  A view of an argument or of another output is given as a view of the same memory; an
argument is given as itself; what is mentioned twice is one object.  Objects made by the captured code are built in their last
state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dynagraph.array_libraries import NUMPY
from dynagraph.doors.numpy.layout import Order, order_of
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.executor import Executor
from dynagraph.frontend.executor.recipes import WHEN_FILLED, CannotBuild, DeviceView, Recipe, Recipes
from dynagraph.frontend.executor.state import Lazy, Step
from dynagraph.frontend.guards.sources import Returned
from dynagraph.frontend.kinds.aliasing import STORING, is_broadcast, way_to
from dynagraph.frontend.kinds.slots import slots_of
from dynagraph.frontend.kinds.values import (
    Array,
    Cell,
    Const,
)
from dynagraph.frontend.library.registry import at_ending
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import OPS, Strided, memory_of
from dynagraph.ir.shapes import SymInt, expr_of
from dynagraph.ir.size_programs import size_program

Effect = tuple[Any, tuple[Any, ...]]
HANDED_ON = (int, float, str, bytes, list)  # arguments that what goes on is given unseen: programs for all values of theirs


class Results(Recipes):
    """Builds the recipe of a capture's effects and values, collecting the nodes that the graph must output."""

    def __init__(self, ex: Executor):
        self.ex = ex
        self.nodes: list[Node] = []
        self.scalars: list[bool] = []
        self.arrays_of_scalars: dict[Node, Node] = {}
        self.transposed: dict[Node, Recipe] = {}  # outputs that do not lie in C order
        self.into: list[int | None] = []  # for each node the input whose memory it is written to
        self._uses: dict[int, int] = {}
        self._circular: set[int] = set()
        self._memos: dict[int, Recipe] = {}
        self._n_memos = 0
        self._returned: dict[Returned, Recipe] = {}
        self._handed: set[Returned] = set()  # what the recipe gives of it
        self._pending: list[tuple[Recipe, Any, tuple[Any, ...]]] = []  # what completes objects that were made empty

    def prologue(self) -> tuple[tuple[Any, ...], ...]:
        """The calls before the program, as a plan takes them."""
        return tuple(self._step(step) for step in self.ex.prologue)

    def _step(self, step: Step) -> tuple[Any, ...]:
        called = ("call", step.made.function, tuple(self.build(a) for a in step.args))
        made = self._returned[step.made] = ("memo", self._new_memo(), called)
        if step.node is None:
            return (made,)
        node = step.node
        shape = tuple(size_program(expr_of(d)) for d in node.shape)
        slot = self.ex.graph.placeholders.index(node)
        return made, slot, node.dtype.numpy, shape, self.ex.arrays[node].is_scalar if node in self.ex.arrays else True

    def program(self, values: list[Any], finish: Callable[[list[Recipe]], Recipe]) -> Recipe:
        """The effects, then what `finish` makes of the recipes of `values`."""
        at_ending(self.ex, values)
        self.ex.effects[:] = last_stores(self.ex.effects)
        roots = [value for _, args in self.ex.effects for value in args] + values
        for value in roots:
            self._count(value, set())
        effects, at_last = self._effects()
        result = finish([self.build(v) for v in values])
        fills = []
        while self._pending:
            owner, function, args = self._pending.pop(0)
            fills.append(("make", function, (owner, *(self.build(a) for a in args))))
        self._write_inputs()
        before = [*effects, *fills, *at_last]
        return ("do", tuple(before), result) if before else result

    def _effects(self) -> tuple[list[Recipe], list[Recipe]]:
        """The effects in their order, and those that look at objects that are made here, which are then filled."""
        effects: list[Recipe] = []
        at_last: list[Recipe] = []
        for function, args in self.ex.effects:
            (at_last if any(function is each for each in WHEN_FILLED) else effects).append(self._effect(function, args))
        return effects, at_last

    def _write_inputs(self) -> None:
        """Memory of the caller's gets its last value."""
        inputs = self.ex.graph.placeholders
        for memory in self.ex.memories.written_inputs():
            source = self.ex.arrays[memory.base].source
            if isinstance(source, Returned) and source not in self._handed:
                continue  # nobody sees it
            self.nodes.append(memory.value)
            self.scalars.append(False)
            self.into.append(inputs.index(memory.base))
        self.ex.builder.join_checks()
        for check in self.ex.builder.checks:
            self.nodes.append(check)
            self.scalars.append(True)
            self.into.append(None)

    def _effect(self, function: Any, args: tuple[Any, ...]) -> Recipe:
        built = tuple(self.build(a) for a in args)
        if not isinstance(function, Returned):
            return ("call", function, built)
        made = self._returned[function] = ("memo", self._new_memo(), ("call", function.function, built))
        return made

    def _count(self, value: Any, above: set[int]) -> None:
        if type(value) is Lazy and type(value.obj) in HANDED_ON and value.source not in self.ex.wrapped:
            return
        value = self.ex.resolve(value)
        if id(value) in above:
            self._circular.add(id(value))
            return
        self._uses[id(value)] = self._uses.get(id(value), 0) + 1
        if self._uses[id(value)] > 1 or getattr(value, "source", None) is not None:
            return
        above = above | {id(value)}
        for part in slots_of(value).parts(value):
            self._count(part, above)

    # -- recipes --------------------------------------------------------------------------------------------------------
    def build(self, value: Any) -> Recipe:
        """The recipe of one value."""
        if type(value) is Lazy and value.source not in self.ex.wrapped:
            return ("arg", self.ex.guards.register(value.source))  # handed on unseen
        value = self.ex.resolve(value)
        source = getattr(value, "source", None)
        if isinstance(value, Const):
            return self._constant(value.value)
        if isinstance(value, Cell) and source is not None:
            return ("const", value.real) if value.owner is None else ("arg", self.ex.guards.register(value.owner))
        if isinstance(source, Returned):
            return self._given(source)
        if source is not None:
            return ("arg", self.ex.guards.register(source))
        known = self._memos.get(id(value))
        if known is not None:
            return known
        kind = slots_of(value)
        if kind.is_filled_later(value) or id(value) in self._circular:
            return self._made_empty(value)
        if self._uses.get(id(value), 0) > 1 and not self._is_output(value):
            number = self._new_memo()
            made = self._memos[id(value)] = ("memo", number, kind.recipe(self, value))
            return made
        return kind.recipe(self, value)

    def _given(self, source: Returned) -> Recipe:
        self._handed.add(source)
        return self._returned[source]

    def _new_memo(self) -> int:
        self._n_memos += 1
        return self._n_memos - 1

    def _constant(self, value: Any) -> Recipe:
        if isinstance(value, SymInt):
            return ("size", size_program(expr_of(value)))
        return ("const", value)

    def _made_empty(self, value: Any) -> Recipe:
        """An object that is made empty first, and filled when all others are there: others may refer to it."""
        number = self._new_memo()
        made, fills = slots_of(value).empty(self, value)
        recipe = self._memos[id(value)] = ("memo", number, made)
        self._pending += [(recipe, function, args) for function, args in fills]
        return recipe

    def _is_output(self, value: Any) -> bool:
        return isinstance(value, Array) and (value.is_scalar or memory_of(value.node) is None)

    def remade(self, value: Any) -> Recipe:
        """What says itself how it is made."""
        rebuilt = getattr(value, "rebuilt", None) or getattr(value, "remade", None)
        if rebuilt is None:
            raise CannotBuild("an iterator", value.born)
        try:
            function, args = rebuilt()
        except CannotBuild:
            raise
        except Break as stop:
            raise CannotBuild(stop.detail, value.born) from None
        return ("make", function, tuple(self.build(a) for a in args))

    # -- arrays -----------------------------------------------------------------------------------------------------------
    def array(self, array: Array) -> Recipe:
        found = None if array.is_scalar else memory_of(array.node)
        if found is None:
            return self.output(array.node, True) if array.is_scalar else self._base(array.node)
        base, strided = found
        for view in way_to(array.node)[0]:
            if view in self.ex.warning:
                detail = "what np.broadcast_arrays stretched, which warns when it is written to; use np.broadcast_to"
                raise CannotBuild(detail, self.ex.warning[view])
        owner = self._base(base)
        if self.ex.library is not NUMPY:
            return self._device_view(owner, array.node)
        return ("view", owner, array.node.dtype.numpy, *_layout(strided), not is_broadcast(array.node))

    def _device_view(self, owner: Recipe, node: Node) -> Recipe:
        """A view that the library itself makes of the owner, step by step."""
        sizes = tuple(("size", (("s", k),)) for k in range(len(self.ex.env.values)))
        steps = DeviceView(self.ex.library, tuple((n.op.eager, dict(n.attrs)) for n in way_to(node)[0]))
        return ("make", steps, (owner, ("tuple", sizes)))

    def _base(self, base: Node) -> Recipe:
        """The array whose memory a value lies in."""
        owner = self.ex.arrays.get(base)
        if base.kind == "placeholder" and owner is not None and owner.source is not None and not owner.is_scalar:
            made = isinstance(owner.source, Returned)
            return self._given(owner.source) if made else ("arg", self.ex.guards.register(owner.source))  # type: ignore[arg-type]
        if base.kind == "placeholder" and base in self.ex.scalars:
            if base not in self.arrays_of_scalars:  # what np.reshape and its like make of a NumPy scalar before they view it
                self.arrays_of_scalars[base] = self.ex.builder.call("copy", base)
            return self.output(self.arrays_of_scalars[base], False)
        memory = self.ex.memories.of.get(base)
        return self.output(base if memory is None else memory.value, False)

    def output(self, node: Node, scalar: bool) -> Recipe:
        order = None if scalar or self.ex.library is NUMPY else order_in_memory(node)
        if order is None:
            return self._output(node, scalar)
        if node not in self.transposed:  # by the library; of NumPy's arrays the plan does so
            turned = self._output(self.ex.graph.call(OPS["transpose"], node, axes=order), False)
            steps = DeviceView(self.ex.library, ((OPS["transpose"].eager, {"axes": tuple(map(order.index, range(node.ndim)))}),))
            self.transposed[node] = ("memo", self._new_memo(), ("make", steps, (turned, ("tuple", ()))))
        return self.transposed[node]

    def _output(self, node: Node, scalar: bool) -> Recipe:
        for position, (known, is_scalar) in enumerate(zip(self.nodes, self.scalars)):
            if known is node and is_scalar is scalar:
                return ("out", position)
        self.nodes.append(node)
        self.scalars.append(scalar)
        self.into.append(None)
        return ("out", len(self.nodes) - 1)




def last_stores(effects: list[Effect]) -> list[Effect]:
    """Effects without what is stored to attributes that are set again before anything can look: it need not be made then.

    The first store is given the last value, so that attributes come into a ``__dict__`` in the order of the code.
    """
    left: list[Effect] = []
    places: dict[tuple[int, str], int] = {}
    for function, args in effects:
        place = (id(args[0]), args[1].value) if function is object.__setattr__ and isinstance(args[1], Const) else None
        if place is None and not any(function is each for each in STORING):
            places.clear()
        if place in places:
            left[places[place]] = function, args
            continue
        if place is not None:
            places[place] = len(left)
        left.append((function, args))
    return left


def order_in_memory(node: Node) -> Order | None:
    """The order of its axes in memory in which NumPy would have made an array; None: C order."""
    strides = node.meta.strides if node.kind == "call_function" else None
    return None if strides is None else order_of(node.shape, strides)


def _layout(strided: Strided) -> tuple[Any, Any, Any]:
    return (
        tuple(size_program(expr_of(d)) for d in strided.shape),
        tuple(size_program(expr_of(s)) for s in strided.strides),
        size_program(expr_of(strided.offset)),
    )


__all__ = ["CannotBuild", "Recipe", "Results", "order_in_memory"]
