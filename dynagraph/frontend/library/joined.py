"""Where a capture ends that has recorded operations of dynagraph.torch: one node of the autograd graph in place of theirs.

Nothing of the operations' nodes leaves the capture then, but what `Joined` (dynagraph/torch/core/joined.py) says of all its calls,
and what a call keeps for backward.  Where the nodes are not all that is to be known (hooks, functions with a backward of the
user's, saved memory that was written to...), they are built one by one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Union

from dynagraph.array_libraries import NUMPY
from dynagraph.driver.deadline import check
from dynagraph.driver.decorated import Options
from dynagraph.frontend.executor.executor import Executor
from dynagraph.frontend.executor.state import Lazy
from dynagraph.frontend.guards.sources import Returned
from dynagraph.frontend.kinds.aliasing import shows, way_to
from dynagraph.frontend.kinds.grad_modes import mode_of
from dynagraph.frontend.kinds.slots import load_attribute, slots_of
from dynagraph.frontend.kinds.values import Array, Const, Count, Dict, Number, Object, Sequence, Slice
from dynagraph.frontend.library.registry import ending
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.interpreter import symbols_in
from dynagraph.ir.intexpr import IntExpr, Symbol
from dynagraph.ir.ops import memory_of
from dynagraph.ir.passes.partition import computed_again, kept_for
from dynagraph.ir.shapes import SymInt

Place = tuple[int, Union[int, None]]  # a step, and an operand or result of its
FEWEST = 2  # operations that are worth a node of their own
FIELDS = {"attrs", "edges", "metas", "output_metas", "saved", "saved_out", "sequence"}  # of a node that nothing was done to
ZERO = Const(0)


class Refused(Exception):
    """The nodes stay as they are: why."""


def register() -> None:
    """Have captures join nodes from now on: dynagraph.torch is there."""
    joined: Any = sys.modules["dynagraph.torch.core.joined"]
    nodes: Any = sys.modules["dynagraph.torch.core.nodes"]
    tensors: Any = sys.modules["dynagraph.torch.core.tensor"]

    @ending
    def join(ex: Executor, values: list[Any]) -> None:
        if any(args and isinstance(args[0], Object) and args[0].value is nodes.NUMBERS for _, args in ex.effects):
            try:
                _Join(ex, joined, nodes, tensors).replace(values)
            except Refused as reason:
                ex.not_joined = str(reason)


class _Join:
    """One capture's nodes, and how they become one."""

    def __init__(self, ex: Executor, joined: Any, nodes: Any, tensors: Any):
        self.ex, self.frame, self.joined, self.of, self.tensors = ex, ex.main, joined, nodes, tensors
        self.select = joined.primitive("select")
        self.results: list[Object] = []  # tensors whose history is recorded here
        self.seen: set[int] = set()
        self.visible: set[Node] = set()  # values of memory that is handed on
        self.storages: list[Any] = []  # that are handed on
        self.moved: dict[tuple[int, int], tuple[Object, int]] = {}  # the new place of outputs of nodes
        self._begin([])

    def _begin(self, group: list[Object]) -> None:
        """What is known of the nodes that are joined now."""
        self.position = {id(node): k for k, node in enumerate(group)}
        self.values: dict[Node, set[Place]] = {}  # that are saved, and who reads them
        self.saved_tensors: dict[int, tuple[Object, Any]] = {}
        self.inputs: dict[tuple[int, int], tuple[Any, int]] = {}
        self.outer: list[Object] = []
        self.versions: dict[int, tuple[Any, Any, Any, set[Place]]] = {}  # by storage: which version, of which array, who reads it

    # -- what there is --------------------------------------------------------------------------------------------------
    def replace(self, values: list[Any]) -> None:
        """Join the nodes that the values, and what effects store, come from."""
        ex = self.ex
        for value in [value for _, args in ex.effects for value in args if not self._is_new_node(value)] + values:
            self._look(value)
        rebound = self._rebound()
        ends = [*self.results, *rebound]
        recorded = self._recorded([self._history(tensor) for tensor in ends])
        if len(recorded) < FEWEST:
            return
        if ex.library is not NUMPY:
            raise Refused("arrays on a device")
        if mode_of(self.frame, "hooked") or mode_of(self.frame, "anomaly"):
            raise Refused("hooks of saved tensors, or anomaly detection")
        for group, outputs in self._groups(recorded, dict.fromkeys(map(self._output_of, ends))):
            self._begin(group)
            steps = [self._step(node, group[0]) for node in group]
            kept, anyway = self._choose(steps, [(self.position[node], k) for node, k in outputs])
            made = self._node(group, steps, outputs, kept, anyway)
            self.moved.update((output, (made, number)) for number, output in enumerate(outputs))
        for tensor in self.results:
            made, number = self.moved[self._output_of(tensor)]
            tensor.fields["_grad_fn"] = made
            if number or "_output_nr" in tensor.fields:
                tensor.fields["_output_nr"] = Const(number)
        for tensor in rebound:
            made, number = self.moved[self._output_of(tensor)]
            for name, value in (("_grad_fn", made), ("_output_nr", Const(number))):
                ex.effects[:] = [e for e in ex.effects if not _stores(e, tensor, name)]
                ex.effect(object.__setattr__, tensor, Const(name), value)
                tensor.fields[name] = value
        self._count_at_once()
        ex.joined = True

    def _groups(self, recorded: list[Object], exposed: dict[Any, None]) -> list[tuple[list[Object], list[tuple[int, int]]]]:
        """The nodes that become one, the earliest first, and which of their outputs others see.

        What is handed on and has others computed from it in the call is an output of a node before theirs: its gradient, and its
        hooks, have what comes by way of these.
        """
        depths = {id(node): 0 for node in recorded}
        for node in recorded:
            for target, number in filter(None, self._edges(node)):
                if id(target) in depths:
                    beyond = depths[id(node)] + ((id(target), number) in exposed)
                    depths[id(target)] = max(depths[id(target)], beyond)
        seen = dict(exposed)
        for node in recorded:
            for target, number in filter(None, self._edges(node)):
                if id(target) in depths and depths[id(target)] != depths[id(node)]:
                    seen[id(target), number] = None
        found = []
        for depth in range(max(depths.values()), -1, -1):
            group = [node for node in recorded if depths[id(node)] == depth]
            found.append((group, [output for output in seen if depths[output[0]] == depth]))
        return found

    def _is_node(self, value: Any) -> bool:
        return isinstance(value, Object) and issubclass(value.kind, self.of.Node)

    def _is_new_node(self, value: Any) -> bool:
        return self._is_node(value) and value.source is None

    def _look(self, root: Any) -> None:
        """Note the tensors, arrays and storages that a value holds."""
        waiting = [root]
        while waiting:
            value = waiting.pop()
            if type(value) is Lazy and value.source not in self.ex.wrapped:
                continue
            value = self.ex.resolve(value)
            if id(value) in self.seen:
                continue
            self.seen.add(id(value))
            if self._is_new_node(value):
                raise Refused("a node of the graph is handed on by itself")
            if isinstance(value, Array):
                self.visible.add(self._memory_of(value))
            if getattr(value, "source", None) is not None:
                continue
            if isinstance(value, Object) and issubclass(value.kind, self.tensors.Tensor):
                if value.entries is not None:
                    raise Refused("the __dict__ of a tensor is used")
                if self._is_new_node(value.fields.get("_grad_fn")):
                    self.results.append(value)
                waiting += [field for name, field in value.fields.items() if name != "_grad_fn" or not self._is_new_node(field)]
                continue
            if isinstance(value, Object) and value.kind is self.tensors.Storage:
                self.storages.append(value)
            waiting += slots_of(value).parts(value)

    def _rebound(self) -> list[Object]:
        """Tensors of the caller's that were written to, and have a history now that was recorded here."""
        found: dict[int, Object] = {}
        for function, args in self.ex.effects:
            if not any(map(self._is_new_node, args)):
                if found and shows(function):
                    raise Refused("an effect may look at a tensor that is written to")
                continue
            tensor, name = args[0], args[1]
            if function is not object.__setattr__ or not isinstance(tensor, Object) or _known(name) != "_grad_fn":
                raise Refused("a node of the graph is handed on by itself")
            found[id(tensor)] = tensor
        if any(not self._is_new_node(tensor.fields["_grad_fn"]) for tensor in found.values()):
            raise Refused("the history of a tensor of the caller's is set and taken away")
        return list(found.values())

    def _history(self, tensor: Object) -> Object:
        return tensor.fields["_grad_fn"]  # type: ignore[return-value]

    def _output_of(self, tensor: Object) -> tuple[int, int]:
        number = tensor.fields.get("_output_nr", ZERO)
        return id(self._history(tensor)), _number(number)

    def _recorded(self, roots: list[Object]) -> list[Object]:
        """The nodes that were made here and that some come from, the latest first."""
        found: dict[int, Object] = {}
        waiting = list(roots)
        while waiting:
            node = waiting.pop()
            if id(node) in found:
                continue
            check()
            found[id(node)] = node
            kind: Any = node.kind
            if set(node.fields) != FIELDS or node.entries is not None or kind.pull is not self.of.Node.pull:
                raise Refused(f"{node.kind.__name__} has hooks, or a gradient of its own")
            for target, _ in filter(None, self._edges(node)):
                if self._is_new_node(target):
                    waiting.append(target)
        return sorted(found.values(), key=lambda node: _count(node.fields["sequence"]))

    def _edges(self, node: Object) -> Iterator[tuple[Any, int] | None]:
        for edge in self._items(node.fields["edges"]):
            if _is_none(edge):
                yield None
            else:
                target, number = self._items(edge)
                yield self.ex.resolve(target), _number(self.ex.resolve(number))

    def _items(self, value: Any) -> list[Any]:
        value = self.ex.resolve(value)
        if not isinstance(value, Sequence):
            raise Refused("a node that was changed")
        return [self.ex.resolve(item) for item in value.items]

    # -- one operation ----------------------------------------------------------------------------------------------------
    def _step(self, node: Object, latest: Object) -> Any:
        fields, at = node.fields, self.position[id(node)]
        attrs = self._plain(self._places_as_arrays(node), (at, None))
        ways = tuple(None if edge is None else self._way(*edge) for edge in self._edges(node))
        saved = self._items(fields["saved"]) if not _is_none(fields["saved"]) else []
        results = {} if _is_none(fields["saved_out"]) else fields["saved_out"].items  # type: ignore[union-attr]
        metas, outputs = (tuple(self._plain(fields[name], (at, None))) for name in ("metas", "output_metas"))
        return self.joined.Step(
            node.kind, attrs, any(map(self._holds_arrays, attrs.values())), ways, metas, outputs,
            tuple(None if _is_none(entry) else self._saved(entry, (at, k)) for k, entry in enumerate(saved)),
            tuple((number, self._result(self._items(entry), (at, -1 - number))) for number, entry in results.items()),
            _count(fields["sequence"]) - _count(latest.fields["sequence"]), _is_none(fields["saved"]),
        )  # fmt: skip

    def _holds_arrays(self, spec: Any) -> bool:
        if isinstance(spec, (list, tuple)) and type(spec) is not self.joined.Held:
            return any(map(self._holds_arrays, spec))
        return type(spec) is self.joined.Held

    def _places_as_arrays(self, node: Object) -> Any:
        """The attributes of an operation.

        The place of a `select` becomes an array where it is an int that changes, as a loop's turn: backward is one program for all.
        """
        attrs = self.ex.resolve(node.fields["attrs"])
        index = self.ex.resolve(attrs.items["index"]) if isinstance(attrs, Dict) and "index" in attrs.items else None
        if not isinstance(index, Const) or not isinstance(index.value, SymInt) or node.kind is not self.select.node_class:
            return attrs
        if not all(symbol.name in self.ex.integers for symbol in index.value.expr.symbols()):
            return attrs
        place = self.ex.from_door(self.ex.builder.scalar(index.value, dtypes.int64), "array")
        return Dict({**attrs.items, "index": place})

    def _plain(self, value: Any, place: Place) -> Any:
        """What a step is given, as a Python object; arrays are values."""
        value = self.ex.resolve(value)
        if isinstance(value, Array):
            return self.joined.Held(self._value(value, place))
        if isinstance(value, Number):
            raise Refused("a number that changes from call to call says what an operation does")
        if isinstance(value, Const):
            return value.value
        if isinstance(value, Sequence) and value.kind in (list, tuple):
            return value.kind(self._plain(item, place) for item in value.items)
        if isinstance(value, Dict) and value.kind is dict and value.complete:
            return {key: self._plain(item, place) for key, item in value.items.items()}
        if isinstance(value, Slice):
            return slice(*(self._plain(part, place) for part in value.parts))
        raise Refused(f"a step is given a {type(value).__name__.lower()}")

    def _way(self, target: Any, number: int) -> tuple[int, int]:
        if id(target) in self.position:
            return self.position[id(target)], number
        target, number = self.moved.get((id(target), number), (target, number))
        known = self.inputs.setdefault((id(target), number), (target, number))
        return -1, list(self.inputs.values()).index(known)

    def _value(self, value: Any, place: Place) -> int:
        """The number of an array that is saved."""
        if not isinstance(value, Array):
            raise Refused("what an operation has saved is no array")
        node = self.ex.memories.present(value)
        self.values.setdefault(node, set()).add(place)
        return list(self.values).index(node)

    def _memory_of(self, array: Array) -> Node:
        """What the memory that an array lies in holds now."""
        base = way_to(array.node)[1]
        memory = self.ex.memories.of.get(base)
        return base if memory is None else memory.value

    def _saved(self, entry: Any, place: Place) -> tuple[int, int]:
        parts = self._items(entry)
        if len(parts) == 3:
            self._note_version(parts[1], parts[2], parts[0], place)
            return self._value(parts[0], place), -1
        tensor, version = parts
        array, storage = (self.ex.resolve(load_attribute(self.frame, tensor, name)) for name in ("_array", "_storage"))
        if not isinstance(array, Array):
            raise Refused("a tensor of another kind is saved")
        self._note_version(storage, version, array, place)
        value = self._value(array, place)
        if id(tensor) not in self.saved_tensors:
            self.saved_tensors[id(tensor)] = (tensor, value)
        return value, list(self.saved_tensors).index(id(tensor))

    def _result(self, entry: list[Any], place: Place) -> int:
        array, storage, version = entry
        self._note_version(storage, version, array, place)
        return self._value(array, place)

    def _note_version(self, storage: Any, version: Any, array: Any, place: Place) -> None:
        """Memory that others can write to must not have been written to when gradients read it."""
        if _is_none(storage):
            return
        now = self.ex.resolve(load_attribute(self.frame, storage, "version"))
        if not _same_count(now, self.ex.resolve(version)):
            raise Refused("what an operation has saved was written to")
        if storage.source is not None or any(s is storage for s in self.storages):
            self.versions.setdefault(id(storage), (storage, version, array, set()))[3].add(place)

    # -- the node ---------------------------------------------------------------------------------------------------------
    def _choose(self, steps: list[Any], outputs: list[tuple[int, int]]) -> tuple[list[Node], set[Node]]:
        """What is kept; and which of that lies in memory of others, whose versions are checked, and need not be copied.

        Such memory may be written to by a caller who goes back through steps only that have not saved it: these read none of it.
        """
        reached = [self._reached(steps, {position}) for position, _ in outputs]
        memories: dict[Node, list[set[Place]]] = {}
        for _, _, array, at in self.versions.values():
            memories.setdefault(self._memory_of(array), []).append(at)
        anyway = set(memories)
        while True:
            kept = kept_for(self.ex.graph, list(self.values), anyway, self.ex.integers)
            readers = self._readers(kept, anyway)
            unsafe = {
                node for node, places in readers.items()
                if any(r & _steps(places) and not r & _steps(memories[node][0]) for r in reached)
            }  # fmt: skip
            if not unsafe:
                break
            anyway -= unsafe
        for node, found in readers.items():
            for at in memories[node]:
                at |= found
        return kept, anyway

    def _reached(self, steps: list[Any], found: set[int]) -> set[int]:
        for position, step in enumerate(steps):  # the latest first
            if position in found:
                found.update(way[0] for way in step.ways if way is not None and way[0] >= 0)
        return found

    def _readers(self, kept: list[Node], anyway: set[Node]) -> dict[Node, set[Place]]:
        """Of some of the kept nodes who reads what is computed from them."""
        stops = set(kept)
        origins: dict[Node, frozenset[Node]] = {node: frozenset({node} & anyway) for node in kept}
        found: dict[Node, set[Place]] = {node: set() for node in kept if node in anyway}
        for node in self.ex.graph.nodes:
            if node not in stops:
                origins[node] = frozenset().union(*(origins[a] for a in node.args)) if node.args else frozenset()
            for origin in origins[node] if node in self.values else ():
                found[origin] |= self.values[node]
        return found

    def _kept(self, node: Node, anyway: set[Node]) -> Any:
        """The array that is kept of a value: one that lies in memory which nobody else writes to, or of which versions tell."""
        ex = self.ex
        array = ex.arrays.get(node)
        placeholder = node.kind == "placeholder" and not (array is not None and isinstance(array.source, Returned))
        if node not in ex.scalars and (node in anyway or not (placeholder or node in self.visible)) and memory_of(node) is None:
            if array is None and node.kind != "placeholder" and node not in ex.memories.of:
                return ex.from_door(node, "array")
            if array is not None and not array.is_scalar and ex.memories.present(array) is node:
                return array
        return ex.from_door(ex.builder.call("copy", node), "array")

    def _node(
        self, recorded: list[Object], steps: list[Any], outputs: list[tuple[int, int]], kept: list[Node], anyway: set[Node]
    ) -> Object:
        ex, joined = self.ex, self.joined
        graph = computed_again(ex.graph, kept, list(self.values))
        used = {symbol.name for symbol in _symbols_of([graph, *steps])}
        symbols = tuple(name for name in ex.env.values if name in used)
        tensors = tuple(self._saved_tensor(tensor, value) for tensor, value in self.saved_tensors.values())
        places = [(self.position[node], number) for node, number in outputs]
        about = joined.Joined(
            graph, tuple(steps), tensors, tuple(places), len(self.inputs), symbols, ex.options or Options(), len(steps) >= FEWEST
        )
        versions = [
            Sequence(tuple, [storage, version, ex.constant(self._described(storage, array, outputs)), Const(tuple(at))])
            for storage, version, array, at in self.versions.values()
        ]
        made = Object(joined.CompiledFunctionBackward)
        metas = {way: meta for step in recorded for way, meta in zip(*self._ways_and_metas(step))}
        made.fields = {
            "attrs": Dict({}), "edges": Sequence(list, [Sequence(tuple, [t, Const(k)]) for t, k in self.inputs.values()]),
            "metas": Sequence(list, [metas[-1, k] for k in range(len(self.inputs))]),
            "output_metas": Sequence(list, [self._items(recorded[p].fields["output_metas"])[k] for p, k in places]),
            "saved": Sequence(tuple, [self._kept(node, anyway) for node in kept]), "saved_out": Const(None),
            "sequence": recorded[0].fields["sequence"], "joined": Const(about), "outer": Sequence(tuple, list(self.outer)),
            "sizes": Sequence(tuple, [Const(SymInt(IntExpr.symbol(name, low=2), ex.env)) for name in symbols]),
            "versions": Sequence(tuple, list(versions)), **({"freed": Const(about.gone)} if about.gone else {}),
        }  # fmt: skip
        return made

    def _ways_and_metas(self, node: Object) -> tuple[list[Any], list[Any]]:
        ways = [None if edge is None else self._way(*edge) for edge in self._edges(node)]
        return ways, self._items(node.fields["metas"])

    def _saved_tensor(self, tensor: Object, value: int) -> Any:
        """How a tensor that is saved is made again where gradients are recorded."""
        history = self.ex.resolve(load_attribute(self.frame, tensor, "_grad_fn"))
        is_leaf = _is_none(history)
        if tensor.source is not None or (is_leaf and not _is_false(tensor.fields.get("_requires_grad"))):
            self.outer.append(tensor)
            return self.joined.SavedTensor(outer=len(self.outer) - 1)
        if is_leaf:
            return self.joined.SavedTensor(value=value)
        number = _number(self.ex.resolve(load_attribute(self.frame, tensor, "_output_nr")))
        if id(history) in self.position:
            return self.joined.SavedTensor(value=value, position=self.position[id(history)], number=number)
        history, number = self.moved.get((id(history), number), (history, number))
        if (id(history), number) not in self.inputs:
            raise Refused("a tensor is saved whose history was cut off")
        return self.joined.SavedTensor(value=value, input=list(self.inputs).index((id(history), number)))

    def _described(self, storage: Any, array: Array, outputs: list[tuple[int, int]]) -> tuple[Any, ...]:
        """What errors of writes say of memory: the name of its dtype, its shape, and which output it is, -1 if it is none."""
        places = [self._output_of(tensor) for tensor in self.results if tensor.fields["_storage"] is storage]
        known = [place for place in places if place in outputs or place in self.moved]
        numbers = [outputs.index(place) if place in outputs else self.moved[place][1] for place in known]
        dtype = self.tensors.dtypes.of_numpy(array.node.dtype.numpy)
        return dtype.legacy, array.node.shape, numbers[0] if numbers else -1

    def _count_at_once(self) -> None:
        """Store the number of the last node once, where nothing looks at it in between."""
        effects = self.ex.effects
        stores = [e for e in effects if e[1] and isinstance(e[1][0], Object) and e[1][0].value is self.of.NUMBERS]
        if not any(shows(function) for function, _ in effects):
            effects[:] = [e for e in effects if not any(e is s for s in stores[:-1])]


def _symbols_of(specs: list[Any]) -> set[Symbol]:
    """The symbols in graphs, and in what steps are."""
    found: set[Symbol] = set()
    waiting = list(specs)
    while waiting:
        spec = waiting.pop()
        if isinstance(spec, Graph):
            waiting += [part for node in spec.nodes if node.kind != "output" for part in (node.shape, *node.attrs.values())]
        elif isinstance(spec, (tuple, list)):
            waiting += spec
        elif isinstance(spec, dict):
            waiting += spec.values()
        elif isinstance(spec, slice):
            waiting += (spec.start, spec.stop, spec.step)
        else:
            found |= symbols_in(spec)
    return found


def _steps(places: set[Place]) -> set[int]:
    return {position for position, _ in places}


def _stores(effect: tuple[Any, Any], tensor: Object, name: str) -> bool:
    function, args = effect
    return function is object.__setattr__ and args[0] is tensor and _known(args[1]) == name


def _known(value: Any) -> Any:
    return value.value if isinstance(value, Const) else None


def _is_none(value: Any) -> bool:
    return isinstance(value, Const) and value.value is None


def _is_false(value: Any) -> bool:
    return value is None or (isinstance(value, Const) and value.value is False)


def _number(value: Any) -> int:
    if isinstance(value, Const) and type(value.value) is int:
        return value.value
    raise Refused("a node that was changed")


def _count(value: Any) -> int:
    """A counter's number by what was added to it: only such of one counter are compared."""
    if isinstance(value, Count):
        return value.added
    raise Refused("the number of a node is looked at")


def _same_count(left: Any, right: Any) -> bool:
    if isinstance(left, Count) and isinstance(right, Count):
        return left.counter == right.counter and left.added == right.added
    return isinstance(left, Const) and isinstance(right, Const) and left.value == right.value


__all__ = ["register"]
