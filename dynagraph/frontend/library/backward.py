"""Backward of dynagraph.torch in captures: the order in which recorded operations run is found without following the engine.

What an operation, its hooks and the leaves make of gradients is followed as it is written; `tests/torch/test_captures.py` compares.
"""

from __future__ import annotations

import heapq
import sys
from collections.abc import Sequence as Values
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.array_libraries import NUMPY
from dynagraph.frontend.executor.calls import UNKNOWN, call, follow, known_at_capture
from dynagraph.frontend.executor.exceptions import refuse
from dynagraph.frontend.executor.executor import Frame
from dynagraph.frontend.executor.wrapping import load_global
from dynagraph.frontend.guards.sources import Trusted
from dynagraph.frontend.kinds.grad_modes import mode_of
from dynagraph.frontend.kinds.lookup import guard_type
from dynagraph.frontend.kinds.slots import items_of, key_of, length, load_attribute, store, store_attribute, truth
from dynagraph.frontend.kinds.values import Array, Const, Count, Function, Object, Sequence, Value
from dynagraph.frontend.library.registry import meaning, package

NONE = Const(None)
MOST_FROM_OUTSIDE = 16  # operations: each is followed with all that it saved, whose guards make a program for this graph alone


def is_none(value: Any) -> bool:
    return isinstance(value, Const) and value.value is None


@dataclass(eq=False)
class _Target:
    """A node, or a leaf, that gradients come to."""

    value: Any
    edges: list[tuple["_Target", int] | None]  # of a node
    number: int = 0  # of a node: later ones have lower numbers
    left: int = 0  # gradients that are still to come
    grads: list[Any] | None = None  # that have come so far
    is_node: bool = False


@package("dynagraph.torch.core.engine")
def _register() -> None:
    engine: Any = sys.modules["dynagraph.torch.core.engine"]
    leaf_in_python, counted_in_python, run_in_python, node_class = engine._Run.leaf, engine._counted, engine._Run.run, engine.Node
    release_in_python = node_class.release

    def in_python(frame: Frame, function: Any, *args: Any) -> Value:
        wrapped = frame.ex.wrap(function, Trusted(function, function.__qualname__))
        assert isinstance(wrapped, Function)
        return follow(frame, wrapped, [*args], {})

    def own(frame: Frame, name: str) -> Any:
        return load_global(frame.ex, vars(engine), name)

    def from_outside(frame: Frame, roots: Any) -> set[Any]:
        """The operations recorded outside that backward comes to: all, or more than those that are followed."""
        found: set[Any] = set()
        seen: set[int] = set()
        stack = list(items_of(frame, roots))
        while stack and len(found) <= MOST_FROM_OUTSIDE:
            node = stack.pop()
            if isinstance(node, node_class):  # a real one
                if node not in found:
                    found.add(node)
                    stack += [edge[0] for edge in node.edges if edge is not None]
                continue
            value = frame.ex.resolve(node) if not isinstance(node, engine.Tensor) else None
            if not isinstance(value, Object) or id(value) in seen:
                continue
            seen.add(id(value))
            if value.source is not None:
                stack += [value.value] if isinstance(value.value, node_class) else []
            elif "edges" in value.fields:
                edges = [frame.ex.resolve(edge) for edge in items_of(frame, value.fields["edges"])]
                stack += [items_of(frame, edge)[0] for edge in edges if not is_none(edge)]
        return found

    @meaning(counted_in_python)
    def counted(frame: Frame, roots: Any, wanted: Any) -> Value:
        """Backward through a long graph that was recorded outside (turns of a loop, one by one) is left to the engine."""
        if len(from_outside(frame, roots)) > MOST_FROM_OUTSIDE:
            refuse("GRAPH_FROM_OUTSIDE", f"more than {MOST_FROM_OUTSIDE} operations")
        return in_python(frame, counted_in_python, roots, wanted)

    def recorded_here(frame: Frame, roots: Values[Any]) -> dict[Any, _Target] | None:
        """What backward from these comes to, by identity; None where a node was recorded outside, or its number is not known."""
        targets: dict[Any, _Target] = {}
        counter: Any = None

        def found(value: Any) -> _Target | None:
            nonlocal counter
            value = frame.ex.resolve(value)
            if not isinstance(value, Object):
                return None
            guard_type(frame, value)
            key = key_of(frame, value)
            target = targets.get(key)
            if target is not None:
                return target
            target = targets[key] = _Target(value, [])
            if issubclass(value.kind, node_class):
                number = frame.ex.resolve(load_attribute(frame, value, "sequence"))
                if value.source is not None or not isinstance(number, Count) or number.counter != (counter or number.counter):
                    return None
                counter, target.number, target.is_node = number.counter, number.added, True
                waiting.append(target)
            return target

        waiting: list[_Target] = []
        if any(found(root) is None for root in roots):
            return None
        while waiting:
            target = waiting.pop()
            for edge in items_of(frame, load_attribute(frame, target.value, "edges")):
                if is_none(frame.ex.resolve(edge)):
                    target.edges.append(None)
                    continue
                value, number = items_of(frame, edge)
                following, place = found(value), known_at_capture(frame, number)
                if following is None or place is UNKNOWN:
                    return None
                following.left += 1
                target.edges.append((following, place))
        return targets

    def is_sparse(frame: Frame, grad: Any) -> bool:
        value = frame.ex.resolve(grad)
        return isinstance(value, Object) and value.kind is engine.SparseGradient

    def add(frame: Frame, target: _Target, number: int, grad: Value) -> None:
        """Add to the gradients that have come for a node or a leaf."""
        if target.grads is None:
            count = length(frame.ex, load_attribute(frame, target.value, "output_metas")) if target.is_node else 1
            target.grads = [NONE] * count
        before = target.grads[number]
        if not is_none(before) and (is_sparse(frame, before) or is_sparse(frame, grad)):
            both = [call(frame, own(frame, "tensor_of"), [g], {}) for g in (before, grad)]
            grad = call(frame, own(frame, "value_of"), [call(frame, own(frame, "plus"), both, {})], {})
        elif not is_none(before):
            total = call(frame, frame.ex.wrap(np.add, Trusted(np.add, "add")), [before, grad], {})
            grad = total if isinstance(total, Array) and not total.is_scalar else call(frame, own(frame, "as_array"), [total], {})
        target.grads[number] = grad

    def arrive(frame: Frame, run: Object, target: _Target) -> None:
        """All gradients by a leaf have come."""
        leaf, grads, target.grads = target.value, target.grads, None
        if grads is None or is_none(grads[0]):
            return
        if truth(frame, load_attribute(frame, leaf, "_hooks")) or not is_none(load_attribute(frame, leaf, "_accumulator")):
            store(frame, load_attribute(frame, run, "buffers"), leaf, Sequence(list, grads))
            call(frame, load_attribute(frame, run, "arrive"), [leaf], {})
        elif truth(frame, load_attribute(frame, run, "accumulate")):
            call(frame, load_attribute(frame, run, "leaf"), [leaf, grads[0]], {})

    @meaning(leaf_in_python)
    def leaf(frame: Frame, self: Any, variable: Any, grad: Any) -> Value:
        """The first gradient of a leaf that lies in order in NumPy's memory; what else there is, is followed."""
        names = ("_array", "_grad", "_post_hooks")
        array, before, hooks = (frame.ex.resolve(load_attribute(frame, variable, name)) for name in names)
        is_first = is_none(before) and not truth(frame, load_attribute(frame, self, "create"))
        is_first = is_first and truth(frame, load_attribute(frame, variable, "_requires_grad")) and not truth(frame, hooks)
        is_plain = isinstance(array, Array) and not array.is_scalar and frame.ex.library is NUMPY
        in_order = is_plain and truth(frame, load_attribute(frame, load_attribute(frame, array, "flags"), "c_contiguous"))
        if not (is_first and in_order) or is_sparse(frame, grad):
            return in_python(frame, leaf_in_python, self, variable, grad)
        made = call(frame, frame.ex.wrap(np.empty_like, Trusted(np.empty_like, "empty_like")), [array], {})
        store(frame, made, Const(Ellipsis), grad)
        store_attribute(frame, variable, "_grad", call(frame, own(frame, "wrap"), [made], {}))
        return NONE

    def results_of(frame: Frame, run: Object, target: _Target) -> list[Any]:
        """The gradients that a node gives; none where none has come to it."""
        node, grads, target.grads = target.value, target.grads, None
        if grads is None:
            return []
        if truth(frame, load_attribute(frame, node, "hooked")) or truth(frame, load_attribute(frame, node, "posthooks")):
            return items_of(frame, call(frame, load_attribute(frame, run, "step"), [node, Sequence(list, grads)], {}))
        return items_of(frame, call(frame, load_attribute(frame, node, "pull"), [Sequence(list, grads)], {}))

    @meaning(run_in_python)
    def run(frame: Frame, self: Any, roots: Any) -> Value:
        options = [load_attribute(frame, self, name) for name in ("create", "wanted", "keep")]
        begun = [items_of(frame, root) for root in items_of(frame, roots)]
        targets = None
        if not (truth(frame, options[0]) or not is_none(frame.ex.resolve(options[1])) or mode_of(frame, "anomaly")):
            targets = recorded_here(frame, [root[0] for root in begun])
        numbers = [known_at_capture(frame, root[1]) for root in begun]
        if targets is None or any(number is UNKNOWN for number in numbers):
            return in_python(frame, run_in_python, self, roots)
        keeps = truth(frame, options[2])
        first = [targets[key_of(frame, root[0])] for root in begun]
        for target, number, root in zip(first, numbers, begun):
            add(frame, target, number, root[2])
        waiting: list[tuple[int, int, _Target]] = []  # nodes whose gradients have all come, a heap: latest first
        pushed = 0
        for target in dict.fromkeys(first):
            if not target.left and target.is_node:
                pushed += 1
                heapq.heappush(waiting, (target.number, pushed, target))
            elif not target.left:
                arrive(frame, self, target)
        while waiting:
            target = heapq.heappop(waiting)[2]
            results = results_of(frame, self, target)
            for k, edge in enumerate(target.edges):
                if edge is None:
                    continue
                following, number = edge
                if results and not is_none(frame.ex.resolve(results[k])):
                    add(frame, following, number, results[k])
                following.left -= 1
                if not following.left and following.is_node:
                    pushed += 1
                    heapq.heappush(waiting, (following.number, pushed, following))
                elif not following.left:
                    arrive(frame, self, following)
            if results and not keeps:
                release(frame, target.value)
        return NONE

    def release(frame: Frame, node: Object) -> None:
        kind: Any = node.kind
        if kind.release is not release_in_python:
            call(frame, load_attribute(frame, node, "release"), [], {})
            return
        for name in ("saved", "saved_out"):
            if truth(frame, load_attribute(frame, node, name)):
                store_attribute(frame, node, name, NONE)


__all__: list[str] = []
