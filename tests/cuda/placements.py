"""Random graphs and machines to place, all placements of a graph, and devices that are none but know what lies on them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from dynagraph.backends.executable import Backend, Executable
from dynagraph.backends.native_call import native_call
from dynagraph.ir import dtypes, optable
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.machine_model import CLASSES, Device, Link, Machine
from dynagraph.ir.ops import OPS
from dynagraph.ir.passes.place import Seconds
from dynagraph.ir.placement import Placement

assert optable.__all__  # importing the package fills OPS

NAMES = ("cpu", "cuda:0", "cuda:1")


def call(graph: Graph, name: str, *args: Node, **attrs: Any) -> Node:
    return graph.call(OPS[name], *args, **attrs)


def device(name: str, **fields: Any) -> Device:
    rates = dict.fromkeys(CLASSES, 1e9)
    plain = {"bandwidth": 1e9, "additions": rates, "products": rates, "launch_seconds": 0.0}
    return Device(name, name.split(":")[0], **{**plain, **fields})


def random_machine(rng: random.Random, n_devices: int) -> Machine:
    """Links that differ in each direction, some fast and some slow."""
    names = NAMES[:n_devices]
    links = {
        (a, b): Link(rng.choice([1e6, 1e7, 1e8]), rng.choice([0.0, 1e-6, 1e-5])) for a in names for b in names if a != b
    }
    return Machine(tuple(map(device, names)), links)


def random_graph(rng: random.Random, n_nodes: int, names: Sequence[str]) -> tuple[Graph, dict[Node, str]]:
    """A graph of small arrays of several sizes, inputs at random places, and some nodes that are fixed."""
    graph = Graph()
    nodes = [graph.placeholder(f"x{k}", Meta(dtypes.float64, (rng.choice([1, 4, 16]),))) for k in range(rng.randint(1, 3))]
    fixed = {node: rng.choice(names) for node in nodes}
    nodes.append(graph.placeholder("scale", Meta(dtypes.float64, ())))
    for _ in range(n_nodes):
        node = _random_node(rng, graph, nodes)
        nodes.append(node)
        if rng.random() < 0.1:
            fixed[node] = rng.choice(names)
    unused = [node for node in nodes if not node.users and node.kind != "placeholder"]
    graph.output(unused + rng.choices(nodes, k=rng.randint(0, 2)) or nodes[:1])
    return graph, fixed


def _random_node(rng: random.Random, graph: Graph, nodes: Sequence[Node]) -> Node:
    x, y = rng.choice(nodes), rng.choice(nodes[-4:])
    kind = rng.choice(["exp", "add", "add", "multiply", "concatenate", "slice", "sum", "cumsum", "iota", "constant"])
    if kind in ("add", "multiply"):
        if x.ndim and y.ndim and x.shape != y.shape and 1 not in (*x.shape, *y.shape):
            return call(graph, "tanh", y)
        return call(graph, kind, x, y)
    if kind == "iota":
        return call(graph, "add", x, call(graph, "full", shape=x.shape, value=2.0, dtype=dtypes.float64))
    if kind == "constant":
        return call(graph, "multiply", x, graph.constant(np.full(x.shape, 0.5)))
    if kind == "exp" or x.ndim == 0:
        return call(graph, "tanh", x)
    if kind == "concatenate":
        return call(graph, kind, x, x, axis=0)
    if kind == "slice":
        return call(graph, kind, x, starts=(0,), steps=(1,), shape=((int(x.shape[0]) + 1) // 2,))
    return call(graph, kind, x, **({"axis": (0,), "keepdims": True} if kind == "sum" else {"axis": 0}))


def random_seconds(seed: int, names: Sequence[str], fixed: Mapping[Node, str], impossible: float = 0.2) -> Seconds:
    """Costs that have nothing to do with the nodes; a device cannot run some groups, unless they are fixed to it."""

    def seconds(nodes: Sequence[Node], on: Device) -> float:
        rng = random.Random(f"{seed} {nodes[-1].name}")
        costs = {name: math.inf if rng.random() < impossible else rng.randint(0, 20) * 1e-6 for name in names}
        able = next((fixed[node] for node in nodes if node in fixed), rng.choice(list(names)))
        return {**costs, able: rng.randint(0, 20) * 1e-6}[on.name]

    return seconds


def model_cost(placement: Placement, devices: Sequence[str], wanted: Sequence[str | None]) -> float:
    """What the groups cost on these devices with a copy for each value and other device, counted from the graph alone."""
    at = dict(placement.homes)
    total = 0.0
    for group, name in zip(placement.groups, devices, strict=True):
        total += group.seconds[name]
        at.update(dict.fromkeys(group.nodes, name))
    copies: set[tuple[Node, str]] = set()
    for node in placement.graph.nodes:
        if node.kind == "call_function" and node in at:
            copies |= {(arg, at[node]) for arg in node.args if arg in at}
    copies |= {(node, name) for node, name in zip(placement.graph.outputs, wanted) if name is not None}
    return total + sum(placement.machine.copy_seconds(at[node], name, node.meta.hint_nbytes) for node, name in copies)


def all_costs(placement: Placement, wanted: Sequence[str | None]) -> Iterator[float]:
    """The costs of all assignments of the groups that are possible."""
    choices = [[name for name, seconds in group.seconds.items() if math.isfinite(seconds)] for group in placement.groups]
    for devices in itertools.product(*choices):
        yield model_cost(placement, devices, wanted)


def structure(placement: Placement) -> str:
    """All that was decided, as text."""
    return placement.describe() + "\n" + "\n".join(map(str, placement.segments()))


# -- devices that are none --------------------------------------------------------------------------------------------------------
class Fleet:
    """Backends for devices, on the host's memory: programs bail out for arrays that lie on another device; moves are noted."""

    def __init__(self, backends: Mapping[str, Backend]):
        self.lies: dict[int, tuple[np.ndarray, str]] = {}  # by id; the arrays are kept, or others would get their ids
        self.moves: list[tuple[str, str, int]] = []
        self.ran: list[str] = []
        self.backends = {name: self._backend(name, backend) for name, backend in backends.items()}

    def put(self, array: np.ndarray, name: str) -> np.ndarray:
        self.lies[id(array)] = (array, name)
        return array

    def where(self, array: np.ndarray) -> str:
        return self.lies[id(array)][1]

    def move(self, array: np.ndarray, source: str, destination: str) -> np.ndarray:
        assert self.where(array) == source != destination
        self.moves.append((source, destination, array.nbytes))
        return self.put(np.array(array, order="C"), destination)

    def _backend(self, name: str, backend: Backend) -> Backend:
        def compile_graph(graph: Graph) -> Executable:
            graph.lint()
            assert all(node.meta.device in (name, "cpu") for node in graph.placeholders)
            return Executable(self._checked(name, native_call(graph, backend(graph))))

        return compile_graph

    def _checked(self, name: str, program: Callable[..., tuple[np.ndarray, ...]]) -> Callable[..., tuple[np.ndarray, ...]]:
        def run(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
            self.ran.append(name)
            assert all(a.ndim == 0 or self.where(a) == name for a in arrays)
            return tuple(self.put(result, name) for result in program(*arrays))

        return run


__all__ = [
    "NAMES", "Fleet", "all_costs", "call", "device", "model_cost", "random_graph", "random_machine", "random_seconds", "structure",
]  # fmt: skip
