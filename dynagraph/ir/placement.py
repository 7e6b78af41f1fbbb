"""Placement of a graph: which device runs each part, the copies between them, and the parts as graphs of their own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dynagraph.driver.forks import cached_property
from dynagraph.ir import dtypes
from dynagraph.ir.device_segments import Order, best_order, makespan
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.interpreter import symbols_in
from dynagraph.ir.machine_model import Machine
from dynagraph.ir.shapes import expr_of
from dynagraph.ir.text import align

LIBRARIES = {"cpu": "numpy", "cuda": "cupy"}  # whose arrays the graphs for a kind of device take


@dataclass(frozen=True)
class PlacedGroup:
    """Nodes that stay together, in order; `seconds`: the estimate for each device, infinite where they cannot run."""

    nodes: tuple[Node, ...]
    device: str
    seconds: Mapping[str, float]

    def __str__(self) -> str:
        return ", ".join(node.name for node in self.nodes)


@dataclass(frozen=True)
class Copy:
    """A value that is carried to another device, once for all that use it there."""

    value: Node
    source: str
    destination: str
    nbytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.value.name}: {self.source} -> {self.destination}"


@dataclass(frozen=True)
class Segment:
    """Nodes that run one after another on one device, in order.

    inputs: values of other places (placeholders, other segments' results), in the graph's order, host scalars among them
    outputs: values that others or the caller want; one that the caller wants several times stands several times
    symbols: symbolic sizes that the nodes use and no input's shape says: 0-d inputs after the others
    """

    number: int
    device: str
    nodes: tuple[Node, ...]
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Placement:
    """The device of every node of a graph.

    `homes`: where the inputs lie.  `everywhere`: inputs and nodes that every device has without a copy: constants, which are laid
    there once, what kernels make in place, and scalars of the host, which are arguments of kernels.  `delivered`: for each output
    the device on which the caller gets it.  `exact`: whether no placement of the groups is cheaper by the model, which counts the
    seconds of all groups and copies as if they came one after another.
    """

    graph: Graph
    machine: Machine
    groups: tuple[PlacedGroup, ...]  # in an order in which they can run
    homes: Mapping[Node, str]
    everywhere: frozenset[Node]
    delivered: tuple[str, ...]
    copies: tuple[Copy, ...]
    exact: bool
    unshared: float | None = None  # what `makespan` was before GPUs were given parts of each other's work (split_across_gpus.py)

    @cached_property
    def device(self) -> dict[Node, str]:
        """The device of each node but those that are everywhere."""
        return {**self.homes, **{node: group.device for group in self.groups for node in group.nodes}}

    @property
    def busy(self) -> dict[str, float]:
        """Predicted seconds of computing on each device."""
        return {name: sum(g.seconds[name] for g in self.groups if g.device == name) for name in self.machine.names}

    @property
    def copy_seconds(self) -> float:
        """Predicted seconds of copies: what the cut costs."""
        return sum(copy.seconds for copy in self.copies)

    @property
    def seconds(self) -> float:
        """What the model counts: computing and copies, one after another."""
        return sum(self.busy.values()) + self.copy_seconds

    @cached_property
    def order(self) -> Order:
        """The numbers of the groups of each segment."""
        return best_order(self)

    @property
    def makespan(self) -> float:
        """Predicted seconds until all is done, where devices and links work at the same time."""
        return makespan(self, self.order)

    def segments(self) -> list[Segment]:
        """The graph in parts that each run on one device, in an order in which they can run.

        Every node stands in exactly one, but those that are everywhere.  There are as few as possible, unless more are predicted to
        be faster (`segments.best_order`).
        """
        parts = [[self.groups[k] for k in numbers] for numbers in self.order]
        position = {node: k for k, node in enumerate(self.graph.nodes)}
        made = [(part[0].device, sorted((n for g in part for n in g.nodes), key=position.__getitem__)) for part in parts]
        returned = self._returned_inputs()
        for device in dict.fromkeys(device for device, _ in returned):
            if all(d != device for d, _ in made):
                made.append((device, []))
        last = {device: k for k, (device, _) in enumerate(made)}
        segments = []
        for k, (device, nodes) in enumerate(made):
            passed = [node for d, node in returned if d == device and last[d] == k]
            inputs = self._inputs(nodes, passed, position)
            segments.append(
                Segment(k, device, tuple(nodes), inputs, (*self._outputs(nodes), *passed), self._symbols(nodes, inputs))
            )
        return segments

    def segment_graph(self, segment: Segment) -> Graph:
        """A segment as a graph of its own: its inputs and then its symbols are the placeholders, its outputs the outputs.

        What comes from another device lies in C order.  `Meta.device` says where an input lies: scalars and symbols on the host.
        """
        new = Graph(f"{self.graph.name}_{segment.number}", library=LIBRARIES[self.machine.device(segment.device).kind])
        made: dict[Node, Node] = {}
        for node in segment.inputs:
            strides = node.meta.strides if self.homes.get(node) == segment.device else None
            lies = self.machine.host if node in self.everywhere else segment.device
            made[node] = new.placeholder(node.name, Meta(node.dtype, node.shape, strides, lies), node.attrs.get("symbol"))
        for symbol in segment.symbols:
            new.placeholder(symbol, Meta(dtypes.int64, (), device=self.machine.host), symbol)
        for node in (*self._shared(segment.nodes), *segment.nodes):
            if node not in made:
                made[node] = new.adopt(node, [made[a] for a in node.args])
        new.output([made[node] for node in segment.outputs])
        return new

    def with_groups_on(self, devices: Sequence[str]) -> "Placement":
        """The same graph with its groups on other devices, which can run them, and the copies that follow.

        Outputs are delivered where they were.  `exact` is False.
        """
        groups = tuple(replace(group, device=device) for group, device in zip(self.groups, devices, strict=True))
        at = {**self.homes, **{node: group.device for group in groups for node in group.nodes}}
        wanted: dict[Node, dict[str, None]] = {node: {} for node in at}
        for node, device in at.items():
            for arg in node.args:
                if arg in wanted:
                    wanted[arg][device] = None
        for node, device in zip(self.graph.outputs, self.delivered):
            if node in wanted:
                wanted[node][device] = None
        copies = []
        for node, source in at.items():
            for destination in sorted(wanted[node].keys() - {source}):
                nbytes = node.meta.hint_nbytes
                seconds = self.machine.copy_seconds(source, destination, nbytes)
                copies.append(Copy(node, source, destination, nbytes, seconds))
        return replace(self, groups=groups, copies=tuple(copies), exact=False)

    # -- what they take and give ------------------------------------------------------------------------------------
    def _returned_inputs(self) -> list[tuple[str, Node]]:
        """Outputs that are inputs of the graph and stay where they are: with the device, on which a copy is made."""
        pairs = zip(self.graph.outputs, self.delivered)
        return [(device, node) for node, device in pairs if self.homes.get(node) == device]

    def _shared(self, nodes: Iterable[Node]) -> list[Node]:
        """What the nodes use of what is made everywhere."""
        used = dict.fromkeys(a for node in nodes for a in node.args)
        return [a for a in used if a in self.everywhere and a.kind != "placeholder"]

    def _inputs(self, nodes: Sequence[Node], passed: Iterable[Node], position: Mapping[Node, int]) -> tuple[Node, ...]:
        inside = {*nodes, *self._shared(nodes)}
        found = {a for node in nodes for a in node.args if a not in inside} | set(passed)
        return tuple(sorted(found, key=position.__getitem__))

    def _outputs(self, nodes: Sequence[Node]) -> list[Node]:
        inside = set(nodes)
        found = []
        for node in nodes:
            here = sum(n is node and d == self.device[node] for n, d in zip(self.graph.outputs, self.delivered))
            used = any(user not in inside for user in node.users)  # the graph's output is a user
            found += [node] * max(here, int(used))
        return found

    def _symbols(self, nodes: Iterable[Node], inputs: Iterable[Node]) -> tuple[str, ...]:
        nodes = [*self._shared(nodes), *nodes]
        used = {s.name for node in nodes for value in (node.shape, *node.attrs.values()) for s in symbols_in(value)}
        used |= {s.name for node in inputs for s in symbols_in(node.shape)}
        said = {node.attrs["symbol"] for node in inputs if "symbol" in node.attrs}
        sizes = [expr_of(dim) for node in inputs for dim in node.shape]
        said |= {symbol.name for size in sizes for symbol in size.symbols() if size.terms == {(symbol,): 1}}
        return tuple(sorted(used - said))

    # -- as text ----------------------------------------------------------------------------------------------------
    def describe(self) -> str:
        """What runs where, what it would take on each device, and what is copied; for ``dump --placement``."""
        best = "no placement is cheaper by this model" if self.exact else "the best that was found"
        if self.unshared is not None:
            best = f"shared among GPUs, else overlapped {time_text(self.unshared)}"
        many = f"{len(self.copies)} cop{'y' if len(self.copies) == 1 else 'ies'}"
        names = self.machine.names
        parts = [
            f"placed on {', '.join(names)} by costs {self.machine.origin}: computing {time_text(sum(self.busy.values()))}, "
            f"{many} {time_text(self.copy_seconds)}, together {time_text(self.seconds)}, "
            f"overlapped {time_text(self.makespan)}; {best}",
            align([("group", "lines", "device", *(f"on {name}" for name in names), "nodes"), *self._group_rows()]),
        ]
        if self.copies:
            rows = [(c.value.name, c.source, c.destination, f"{c.nbytes}", time_text(c.seconds)) for c in self.copies]
            parts.append(align([("copied", "from", "to", "bytes", "takes"), *rows]))
        rows = [(str(s.number), s.device, str(len(s.nodes)), _names(s.inputs), _names(s.outputs)) for s in self.segments()]
        return "\n\n".join([*parts, align([("segment", "device", "nodes", "takes", "gives"), *rows])])

    def _group_rows(self) -> Iterator[tuple[str, ...]]:
        for k, group in enumerate(self.groups):
            lines = ", ".join(dict.fromkeys(str(n.location) for n in group.nodes if n.location))
            yield (str(k), lines, group.device, *(time_text(group.seconds[name]) for name in self.machine.names), str(group))


def _names(nodes: Iterable[Node]) -> str:
    return ", ".join(node.name for node in nodes) or "nothing"


def time_text(seconds: float) -> str:
    """Seconds to read.

    >>> time_text(1.25e-5), time_text(math.inf), time_text(0.0)
    ('12.5 us', 'never', '0')
    """
    if seconds == 0 or math.isinf(seconds):
        return "0" if seconds == 0 else "never"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


__all__ = ["Copy", "PlacedGroup", "Placement", "Segment", "time_text"]
