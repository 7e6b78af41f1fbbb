"""Device placement: choose a device for each part of a graph, by a minimum cut over costs of computing and copies.

Comes after the passes of `pipeline`; gives a `Placement`, whose segments are compiled and run by `backends/multi_device.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from dynagraph.errors import PlacementError
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.machine_model import Device, Machine
from dynagraph.ir.ops import Elementwise, Movement, Reduction, view_of
from dynagraph.ir.passes.estimate import can_run, is_made_in_place, seconds_on
from dynagraph.ir.passes.labeling import EXACT_ITEMS, Problem, Value, assign, crossings
from dynagraph.ir.placement import Copy, PlacedGroup, Placement
from dynagraph.ir.rewrite import call_key

UNIT = 1e-12  # seconds: costs are compared in whole picoseconds
SPLIT_BYTES = 1 << 18  # what a link carries in the time of its latency: a group is not cut to save less

Seconds = Callable[[Sequence[Node], Device], float]


def place(
    graph: Graph,
    machine: Machine,
    fixed: Mapping[Node, str] | None = None,
    outputs: Sequence[str | None] | None = None,
    seconds: Seconds = seconds_on,
    exact_groups: int = EXACT_ITEMS,
) -> Placement:
    """Assign a device to each group of nodes; changes no graph.

    Needs: a decomposed graph without dead code.  Leaves: every node with a device that can run it.

    fixed: inputs by where they lie (else `Meta.device` says it), nodes by where they have to run
    outputs: for each output where the caller wants it; None: where it is made.  The graph decides first: an output that is written
        into an input is delivered there, checks and NumPy scalars on the host
    seconds: what a group takes on a device: estimates, or measurements

    Nodes are grouped before (`grouped`), and the cost of a placement is the seconds of all groups on their devices, and of a
    copy for each value and other device that uses it.  By this model, of all assignments of the groups:

    - two devices: the result is the cheapest, by one minimum cut;
    - three or more: the cheapest where `exact_groups` groups or fewer have a choice, by branch and bound.  Else minimum cuts let
      the groups of two devices at a time choose between these until that helps no more: a local optimum, which usually is the best.

    What the model does not know: that devices and links work at the same time, and how much memory is left.  Of equally cheap
    placements that with fewer copies, then that with more on the machine's first devices is taken: the same always.

    Raises PlacementError where no device can run a group, and for devices and nodes that are not there.

    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Meta
    >>> from dynagraph.ir.machine_model import on_paper
    >>> from dynagraph.ir.ops import OPS
    >>> g = Graph()
    >>> x = g.placeholder("x", Meta(dtypes.float32, (4096, 4096), device="cuda:0"))
    >>> y = g.call(OPS["matmul"], x, x)
    >>> _ = g.output([y])
    >>> place(g, on_paper()).device[y]
    'cuda:0'
    """
    fixed = dict(fixed or {})
    for node, name in fixed.items():
        machine.device(name)
        if node.graph is not graph:
            raise PlacementError(f"place: {node.name} is fixed to {name}, but is not a node of graph {graph.name!r}")
    return _Placer(graph, machine, fixed, outputs, seconds, exact_groups).run()


def grouped(graph: Graph, fixed: Mapping[Node, str], apart: frozenset[Node] = frozenset()) -> list[list[Node]]:
    """The nodes that stay on one device, in an order in which the groups can run; `apart`: nodes that are left out.

    An elementwise node or a movement joins the group of all its users, if these are elementwise, movements or reductions (a view:
    also products), as fusion would join them; but not where it has much less to carry than its operands: there a cut would pay.  It
    is in nobody's way: all paths that leave it enter that group at once.  The results of one external call are one group.
    """
    group: dict[Node, list[Node]] = {}
    calls: dict[object, list[Node]] = {}
    groups: list[tuple[int, list[Node]]] = []
    nodes = [node for node in graph.nodes if node.kind != "placeholder" and node.kind != "output" and node not in apart]
    position = {node: k for k, node in enumerate(nodes)}
    for node in nodes:
        key = call_key(node)
        if key is not None:
            calls.setdefault((node.args, key, fixed.get(node)), []).append(node)
    for same in calls.values():
        groups.append((position[same[0]], same))
        group.update(dict.fromkeys(same, same))
    for node in reversed(nodes):
        if node not in group:
            users = [group.get(user) for user in node.users]
            joined = users[0] if users and all(g is users[0] for g in users) else None
            if joined is None or fixed.get(node) != fixed.get(joined[0]) or not _joins(node, apart):
                joined = []
                groups.append((position[node], joined))
            joined.append(node)
            group[node] = joined
    return [sorted(members, key=position.__getitem__) for _, members in sorted(groups, key=lambda pair: pair[0])]


def _joins(node: Node, apart: frozenset[Node]) -> bool:
    """Whether a node's users and it are one kernel, and nothing is lost if they are never cut apart."""
    if node.kind != "call_function" or not isinstance(node.op.lowering, (Elementwise, Movement)):
        return False
    view = view_of(node) is not None
    for user in node.users:
        fuses = user.kind == "call_function" and isinstance(user.op.lowering, (Elementwise, Movement, Reduction))
        if not fuses and not (view and user.is_op("matmul", "own_matmul")):
            return False
    read = sum(a.meta.hint_nbytes for a in dict.fromkeys(node.args) if a not in apart)
    return read - node.meta.hint_nbytes < SPLIT_BYTES


class _Placer:
    """The items that are assigned are the inputs, which are where they are, the groups, and the places where outputs are wanted."""

    def __init__(
        self, graph: Graph, machine: Machine, fixed: Mapping[Node, str], outputs: Sequence[str | None] | None,
        seconds: Seconds, exact_groups: int,
    ):  # fmt: skip
        self.graph, self.machine, self.fixed, self.exact_groups = graph, machine, fixed, exact_groups
        self.names = machine.names
        self.wanted = self._wanted(outputs)
        self.everywhere = frozenset(node for node in graph.nodes if self._is_everywhere(node))
        self.inputs = [node for node in graph.placeholders if node not in self.everywhere]
        self.groups = grouped(graph, fixed, self.everywhere)
        self.seconds = [{d.name: self._seconds_of(nodes, d, seconds) for d in machine.devices} for nodes in self.groups]

    def run(self) -> Placement:
        problem, made = self._problem()
        labels, exact = assign(problem, self.exact_groups)
        n = len(self.inputs)
        groups = [
            PlacedGroup(tuple(nodes), self.names[labels[n + k]], self.seconds[k]) for k, nodes in enumerate(self.groups)
        ]
        copies = []
        for number, label in crossings(problem, labels):
            node, source, destination = made[number], self.names[labels[problem.values[number].source]], self.names[label]
            nbytes = node.meta.hint_nbytes
            copies.append(Copy(node, source, destination, nbytes, self.machine.copy_seconds(source, destination, nbytes)))
        homes = {node: self._home(node) for node in self.inputs}
        device = {**homes, **{node: group.device for group in groups for node in group.nodes}}
        delivered = tuple(name or device[node] for node, name in zip(self.graph.outputs, self.wanted))
        return Placement(self.graph, self.machine, tuple(groups), homes, self.everywhere, delivered, tuple(copies), exact)

    # -- what is given ----------------------------------------------------------------------------------------------
    def _home(self, node: Node) -> str:
        name = self.fixed.get(node, node.meta.device)
        if name not in self.names:
            raise PlacementError(
                f"place: input {node.name} lies on {name!r}; the machine has {', '.join(self.names)}: say by `fixed` where it lies"
            )
        return name

    def _wanted(self, outputs: Sequence[str | None] | None) -> list[str | None]:
        """Where each output has to be; the graph's own reasons come first."""
        n, inputs = len(self.graph.outputs), self.graph.placeholders
        wanted: list[str | None] = [None] * n if outputs is None else list(outputs)
        if len(wanted) != n:
            raise PlacementError(f"place: `outputs` says {len(wanted)} devices for the {n} outputs of graph {self.graph.name!r}")
        for k, (into, scalar) in enumerate(zip(self.graph.into, self.graph.scalars)):
            if into is not None:
                wanted[k] = self._home(inputs[into])
            elif scalar or k >= n - self.graph.n_checks:
                wanted[k] = self.machine.host
            elif wanted[k] is not None:
                self.machine.device(str(wanted[k]))
        return wanted

    def _is_everywhere(self, node: Node) -> bool:
        if any(user.kind == "output" for user in node.users) or (node in self.fixed and node.kind != "placeholder"):
            return False
        if node.kind == "placeholder":
            return node.ndim == 0 and self.machine.device(self._home(node)).kind == "cpu"
        return node.kind == "get_attr" or is_made_in_place(node)

    def _seconds_of(self, nodes: Sequence[Node], device: Device, seconds: Seconds) -> float:
        if any(self.fixed.get(node, device.name) != device.name for node in nodes):
            return math.inf
        return seconds(nodes, device)

    # -- the problem ------------------------------------------------------------------------------------------------
    def _problem(self) -> tuple[Problem, list[Node]]:
        """The problem, and the node of each of its values."""
        costs: list[tuple[int | None, ...]] = [self._only(self._home(node)) for node in self.inputs]
        for nodes, seconds in zip(self.groups, self.seconds):
            costs.append(tuple(_units(seconds[name]) for name in self.names))
            if all(cost is None for cost in costs[-1]):
                raise self._nowhere(nodes)
        item = {node: k for k, node in enumerate(self.inputs)}
        item |= {node: len(self.inputs) + k for k, nodes in enumerate(self.groups) for node in nodes}
        consumers: dict[Node, dict[int, None]] = {node: {} for node in item}
        for node, k in item.items():
            for arg in node.args:
                if arg in item and item[arg] != k:
                    consumers[arg][k] = None
        caller: dict[str, int] = {}
        for node, name in zip(self.graph.outputs, self.wanted):
            if name is not None:
                if name not in caller:
                    caller[name] = len(costs)
                    costs.append(self._only(name))
                consumers[node][caller[name]] = None
        made = [node for node in item if consumers[node]]
        values = [Value(item[node], tuple(sorted(consumers[node])), self._copy_costs(node)) for node in made]
        return Problem(tuple(costs), tuple(values)), made

    def _only(self, name: str) -> tuple[int | None, ...]:
        return tuple(0 if name == other else None for other in self.names)

    def _copy_costs(self, node: Node) -> tuple[tuple[int, ...], ...]:
        nbytes = node.meta.hint_nbytes
        return tuple(tuple(round(self.machine.copy_seconds(a, b, nbytes) / UNIT) for b in self.names) for a in self.names)

    def _nowhere(self, nodes: Sequence[Node]) -> PlacementError:
        node = next((n for n in nodes if not any(can_run(n, d) for d in self.machine.devices)), nodes[0])
        fixed = self.fixed.get(node)
        who = f"no device of {', '.join(self.names)} can run" if fixed is None else f"{fixed}, to which it is fixed, cannot run"
        return PlacementError(
            f"place: {who} {node.name}; it needs a device with its routine and enough memory\n  {node.describe()}"
        )


def _units(seconds: float) -> int | None:
    return None if math.isinf(seconds) else round(seconds / UNIT)


__all__ = ["Seconds", "grouped", "place"]
