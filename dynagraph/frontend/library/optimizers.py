"""Steps of ``torch.optim`` in captures: states are made before the call; a formula is captured once, for all parameters.

What a scheduler decides by data is an effect.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from dynagraph.driver import deadline
from dynagraph.frontend.executor.calls import call, follow
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.recipes import WHEN_FILLED
from dynagraph.frontend.executor.state import Lazy, Preparation
from dynagraph.frontend.guards.guards import HasType
from dynagraph.frontend.guards.sources import Key, Trusted
from dynagraph.frontend.kinds.aliasing import STORING
from dynagraph.frontend.kinds.numbers import before_program
from dynagraph.frontend.kinds.slots import items_of, load_attribute, plain, subscript
from dynagraph.frontend.kinds.values import Array, Const, Dict, Number, Object, Opaque, Sequence, Value
from dynagraph.frontend.library.registry import meaning, package
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import Elementwise
from dynagraph.ir.shapes import same_shape


@package("dynagraph.torch.optim.per_element")
def _register() -> None:
    per_element: Any = sys.modules["dynagraph.torch.optim.per_element"]
    states: Any = sys.modules["dynagraph.torch.optim.states"]

    @meaning(per_element.prepared)
    def prepared(frame: Frame, optimizer: Any, number: Any, chosen: Any, bare: Any = None) -> Value:
        own = frame.ex.resolve(optimizer)
        if not isinstance(own, Object) or own.value is None:
            refuse("UNSUPPORTED_VALUE", "a step of an optimizer that the function itself makes")
        lists = [chosen] if bare is None else [chosen, bare]
        k, given = plain(frame, number), [tuple(plain(frame, each) for each in items_of(frame, some)) for some in lists]
        alike = states.prepare(own.value, k, *given)
        places: Any = frame.ex.resolve(load_attribute(frame, own, "_places"))
        if own.source is not None:
            frame.ex.preparations.append(Preparation(own.source, states.prepare, (k, *given), places.source))
        found = subscript(frame, places, Const(k + 1))
        return Sequence(tuple, [Sequence(list, [Sequence(list, [Const(p) for p in each]) for each in alike]), found])

    @meaning(states.zeros)
    def zeros(frame: Frame, shape: Any, dtype: Any) -> Value:
        return call(frame, frame.ex.wrap(np.zeros, Trusted(np.zeros, "zeros")), [shape, dtype], {})

    @meaning(per_element.store_captured)
    def store_captured(frame: Frame, formula: Any, flags: Any, calls: Any, numbers: Any) -> Value:
        ex = frame.ex
        computed = ex.wrap(per_element.computed, Trusted(per_element.computed, "computed"))
        known: dict[Any, Formula] = {}  # by the dtypes of a parameter's arrays
        for given in items_of(frame, calls):
            deadline.check()
            arrays: list[Any] = [ex.resolve(a) for a in items_of(frame, given)]
            nodes = [ex.memories.present(a) for a in arrays]
            kind = tuple(node.dtype for node in nodes)
            if kind in known and _are_alike(nodes):
                results = known[kind].again(ex.graph, nodes)
            else:
                values = items_of(frame, call(frame, computed, [formula, flags, given, numbers], {}))
                results = [ex.resolve(v).node for v in values]  # type: ignore[union-attr]
                captured = Formula(nodes, results)
                if _are_alike(nodes) and captured.is_elementwise:
                    known[kind] = captured
            for array, node in zip((arrays[0], *arrays[2:]), results, strict=True):
                ex.memories.write(Array(array.node), ex.builder.cast(node, array.node.dtype))
        return Const(None)


@package("dynagraph.torch.optim.schedules.combined")
def _register_schedulers() -> None:
    combined: Any = sys.modules["dynagraph.torch.optim.schedules.combined"]

    @meaning(combined.take)
    def take(frame: Frame, scheduler: Any, measured: Any) -> Value:
        """A decision by data is an effect, which Python makes when the program has run; what it sets is unknown until then."""
        ex, own = frame.ex, frame.ex.resolve(scheduler)
        found = load_attribute(frame, load_attribute(frame, own, "optimizer"), "param_groups")
        groups = [ex.resolve(group) for group in items_of(frame, found)]
        known = isinstance(own, Object) and own.source is not None and own.entries is None
        if not known or not all(isinstance(group, Dict) and group.source is not None for group in groups):
            refuse("DATA_DEPENDENT", "ReduceLROnPlateau of a scheduler or an optimizer that the function itself makes")
        if not all(_is_a_number(frame, group, "lr") for group in groups):
            refuse("DATA_DEPENDENT", "ReduceLROnPlateau of a learning rate that is a tensor")
        ex.effect(combined.take, own, _measured(frame, combined.as_number, measured))
        unknown = Opaque("what ReduceLROnPlateau has decided by data")
        for name in combined.ReduceLROnPlateau.DECIDED:
            own.fields[name] = unknown
        for group in groups:
            group.items["lr"] = unknown
        for changed in (own, *groups):
            ex.writes(changed)
        return Const(None)


@package("dynagraph.torch.optim.sparse_rows")
def _register_sparse_states() -> None:
    rows: Any = sys.modules["dynagraph.torch.optim.sparse_rows"]
    chosen_afterwards = rows.chosen_afterwards

    STORING.append(chosen_afterwards)  # of what only the state holds
    WHEN_FILLED.append(chosen_afterwards)

    @meaning(chosen_afterwards)
    def chosen(frame: Frame, state: Any) -> Value:
        """An effect where a program does not know how many values a sparse state has."""
        own = frame.ex.resolve(state)
        counts = frame.ex.resolve(load_attribute(frame, own, "_counts"))
        if not (isinstance(counts, Const) and counts.value is None):
            frame.ex.effect(chosen_afterwards, own)
        return Const(None)


@package("dynagraph.torch.optim.sparse_adam")
def _register_counts() -> None:
    module: Any = sys.modules["dynagraph.torch.optim.sparse_adam"]
    counted_in_python = module.counted
    STORING.append(counted_in_python)

    @meaning(counted_in_python)
    def counted(frame: Frame, state: Any) -> Value:
        """Python reads the number before the program, and counts after it: no program is for one number alone."""
        ex, own = frame.ex, frame.ex.resolve(state)
        done = sum(function is counted_in_python and args[0] is own for function, args in ex.effects)
        known = isinstance(own, Dict) and own.source is not None and own.object is not None
        if not known or type(own.object.get("step")) is not int or (not done and "step" in own.items):
            wrapped: Any = ex.wrap(counted_in_python, Trusted(counted_in_python, "counted"))
            return follow(frame, wrapped, [state], {})
        ex.guards.require(HasType(Key(own.source, "step"), int))
        number = before_program(ex, module.number_after, (own, Const(done)), finite=True)
        ex.effect(counted_in_python, own)
        own.items["step"] = Opaque("how many steps SparseAdam has made, which is counted when the program has run")
        ex.writes(own)
        return number


def _is_a_number(frame: Frame, group: Dict, name: str) -> bool:
    """Whether an item is a number of Python's, of which no more than that is asked."""
    if name in group.items or group.object is None or group.source is None:
        return isinstance(frame.ex.resolve(subscript(frame, group, Const(name))), (Const, Number, Opaque))
    kind = type(group.object.get(name))
    frame.ex.guards.require(HasType(Key(group.source, name), kind))
    return kind in (int, float)


def _measured(frame: Frame, as_number: Any, given: Any) -> Any:
    """A number of Python's as it is, unseen; an array of a tensor's."""
    if type(given) is Lazy and type(given.obj) in (int, float):
        frame.ex.guards.require(HasType(given.source, type(given.obj)))
        return given
    value = frame.ex.resolve(given)
    if isinstance(value, (Const, Number)):
        return value
    array = load_attribute(frame, value, "_array") if isinstance(value, Object) else None
    if not isinstance(array, Array) or array.node.dtype.kind != "f" or any(size != 1 for size in array.node.shape):
        refuse("DATA_DEPENDENT", "ReduceLROnPlateau of a number that is no real floating point tensor of one element")
    return call(frame, frame.ex.wrap(as_number, Trusted(as_number, "as_number")), [value], {})


def _are_alike(nodes: list[Node]) -> bool:
    return nodes[0].ndim > 0 and all(same_shape(node.shape, nodes[0].shape) for node in nodes)


class Formula:
    """The nodes that compute `results` from `inputs`, in their order, and whether each does element by element."""

    def __init__(self, inputs: list[Node], results: list[Node]):
        self.inputs, self.results = inputs, results
        depends: dict[Node, bool] = dict.fromkeys(inputs, True)
        self.nodes: list[Node] = []
        stack = list(results)
        while stack:
            node = stack[-1]
            missing = [arg for arg in node.args if arg not in depends] if node not in depends else []
            if missing:
                stack += missing
                continue
            stack.pop()
            if node not in depends:
                depends[node] = any(depends[arg] for arg in node.args)
                if depends[node]:
                    self.nodes.append(node)
        self.is_elementwise = all(isinstance(node.op.lowering, Elementwise) for node in self.nodes)

    def again(self, graph: Graph, inputs: list[Node]) -> list[Node]:
        """The same of other inputs: new nodes, but for those that depend on none of them."""
        made = dict(zip(self.inputs, inputs))
        for node in self.nodes:
            made[node] = graph.call(node.op, *(made.get(arg, arg) for arg in node.args), **node.attrs)
        return [made.get(node, node) for node in self.results]


__all__: list[str] = []
