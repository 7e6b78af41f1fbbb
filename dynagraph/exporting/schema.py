"""Programs as JSON, and back: names of ops and static values only.  Whoever reads a file builds the graph anew through the op
table, which checks dtypes and shapes.  A file holds no code, and names none but ops and NumPy's functions of the table of external
calls.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from importlib import import_module
from typing import Any, ClassVar

import numpy as np

from dynagraph.doors.numpy.external_calls import ROWS
from dynagraph.errors import DynagraphError, ExportError
from dynagraph.exporting.program import ExportedProgram, InputSpec
from dynagraph.exporting.sizes import Binding, SizeRange
from dynagraph.exporting.trees import CONSTANTS, LEAVES, Tree, leaves_of
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.intexpr import Apply, IntExpr, Symbol, apply
from dynagraph.ir.ops import OPS, Walk
from dynagraph.ir.optable.call_gradients import GRADIENTS
from dynagraph.ir.shapes import Relation, ShapeEnv, SymInt, expr_of
from dynagraph.location import Location

VERSION = 1
MOST_NODES = 1_000_000
SMALL = 64  # bytes of constants that stand in the JSON

OWN = {  # functions of this package that programs call, by the names that files have for them
    "own.attention": "dynagraph.torch.core.attention:attention",
    "own.recurrent_forward": "dynagraph._core._dispatch:recurrent_forward",
    "own.recurrent_cell": "dynagraph._core._dispatch:recurrent_cell",
}


def _own_name(function: Any) -> str | None:
    place = f"{getattr(function, '__module__', '')}:{getattr(function, '__name__', '')}"
    return next((name for name, known in OWN.items() if known == place), None)


# -- writing ----------------------------------------------------------------------------------------------------------------------
def as_dict(program: ExportedProgram) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """A program as JSON, and the arrays that it refers to by name."""
    graph = program.graph
    number = {node: k for k, node in enumerate(graph.nodes)}
    arrays = {f"state.{name}": array for name, array in program.state.items()}
    arrays |= {f"graph.{name}": array for name, array in graph.constants.items()}
    locations: dict[str, int] = {}
    nodes = [_node(node, number, locations) for node in graph.nodes if node.kind != "output"]
    inputs = [[s.name, s.role, s.target, s.persistent] for s in program.inputs]
    relations = program.env.relations.items()
    return {
        "version": VERSION,
        "name": program.name,
        "inputs": inputs,
        "parameters": list(program.parameters),
        "in_tree": _value(program.in_tree),
        "out_tree": _value(program.out_tree),
        "mutations": list(program.mutations),
        "aliases": program.aliases,
        "sizes": {symbol: [r.name, r.low, r.high, program.env.values[symbol]] for symbol, r in program.ranges.items()},
        "bindings": [[b.symbol, b.position, b.axis] for b in program.bindings],
        "relations": [[r.op, _expr(r.left), _expr(r.right), r.holds, _place(p, locations)] for r, p in relations],
        "large": [_expr(expr) for expr in program.env.large or ()],
        "nodes": nodes,
        "outputs": [number[node] for node in graph.outputs],
        "n_checks": graph.n_checks,
        "files": list(locations),
    }, arrays


def _node(node: Node, number: dict[Node, int], locations: dict[str, int]) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": node.name, "op": node.op.name if node.kind == "call_function" else node.kind}
    if node.args:
        entry["args"] = [number[a] for a in node.args]
    if node.kind == "get_attr":
        entry["constant"] = node.target
    if node.kind == "call_function" and node.given_attrs:
        entry["attrs"] = {name: _value(value) for name, value in node.given_attrs.items()}
    entry["dtype"] = node.dtype.name
    entry["shape"] = [_value(d) for d in node.shape]
    if node.location is not None:
        entry["at"] = _place(node.location, locations)
    return entry


def _place(location: Location | None, files: dict[str, int]) -> list[int] | None:
    """Of files the name only: their folders are nobody's business."""
    if location is None:
        return None
    return [files.setdefault(location.filename.rsplit("/", 1)[-1], len(files)), location.line]


def _value(value: Any) -> Any:
    """A static value: what JSON has not is a dict of one key, with a dollar sign, that says what it is."""
    if value is None or type(value) in (bool, int, str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, complex):
        return {"$complex": [_value(value.real), _value(value.imag)]}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, tuple):
        return [_value(v) for v in value]
    if isinstance(value, DType):
        return {"$dtype": value.name}
    if isinstance(value, SymInt):
        return {"$size": _expr(value.expr)}
    if isinstance(value, Walk):
        return {"$walk": [value.axes, value.chunk, value.tree]}
    if isinstance(value, Slot):
        return {"$slot": value.position}
    if isinstance(value, np.generic):
        return {"$scalar": [value.dtype.name, _value(value.item())]}
    if isinstance(value, FunctionCall) and (isinstance(value.function, str) or _own_name(value.function)):
        warns = None if value.warns_if is None else value.warns_if.position
        rest = [value.takes_out, value.optional, _value(value.each)]
        name = value.function if isinstance(value.function, str) else _own_name(value.function)
        return {"$call": [name, _value(value.args), _value(value.kwargs), warns, *rest]}
    raise ExportError(f"save: {getattr(value, 'name', repr(value))} is a function of this process, which no file can hold")


def _expr(expr: IntExpr) -> Any:
    """A polynomial: its terms, each a coefficient and atoms; an atom is a symbol, or a function of two of these."""
    return [[coefficient, *map(_atom, monomial)] for monomial, coefficient in expr.terms.items()]


def _atom(atom: Symbol | Apply) -> Any:
    return atom.name if isinstance(atom, Symbol) else [atom.function, _expr(atom.left), _expr(atom.right)]


# -- reading ----------------------------------------------------------------------------------------------------------------------
class Reader:
    """Builds a program of what `as_dict` gave; raises ExportError that says what is wrong with it."""

    def __init__(self, data: Any, arrays: dict[str, np.ndarray], where: str):
        self.data, self.arrays, self.where = data, arrays, where
        self.env = ShapeEnv()
        self.symbols: dict[str, IntExpr] = {}

    def program(self) -> ExportedProgram:
        try:
            return self._program()
        except ExportError:
            raise
        except (DynagraphError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
            raise self._wrong(f"{type(error).__name__}: {error}") from None

    def _wrong(self, why: str) -> ExportError:
        return ExportError(f"{self.where}: not a program that can be loaded: {why}")

    def _program(self) -> ExportedProgram:
        data = self.data
        if not isinstance(data, dict) or "version" not in data:
            raise self._wrong("it has no version")
        if data["version"] != VERSION:
            raise ExportError(f"{self.where}: is of version {data['version']!r}, and this dynagraph reads version {VERSION}")
        if len(data["nodes"]) > MOST_NODES:
            raise self._wrong(f"it has {len(data['nodes'])} nodes")
        ranges = self._sizes(data["sizes"])
        files = list(map(str, data["files"]))
        for op, left, right, holds, place in data["relations"]:
            left, right = self._int(left), self._int(right)
            if self.env.decide(op, left, right) is not holds:
                raise self._wrong("its relations between sizes contradict its sizes")
            relation = Relation(op, left, right, holds)
            if relation in self.env.relations and place is not None:
                self.env.relations[relation] = Location(files[place[0]], int(place[1]))
        self.env.large = dict.fromkeys(map(self._int, data["large"]))
        graph, nodes = self._graph(str(data["name"]), data["nodes"], files)
        graph.output([nodes[k] for k in data["outputs"]], (), _count(data["n_checks"], len(data["outputs"])))
        inputs = tuple(InputSpec(str(n), str(role), str(target), bool(kept)) for n, role, target, kept in data["inputs"])
        program = ExportedProgram(
            graph, inputs, tuple(map(str, data["parameters"])), self._tree(data["in_tree"]), self._tree(data["out_tree"]),
            tuple(_count(k, len(inputs)) for k in data["mutations"]), {}, ranges,
            tuple(Binding(str(s), _count(p, len(inputs)), _count(a, 65)) for s, p, a in data["bindings"]), self.env,
            str(data["name"]), {str(k): str(v) for k, v in data["aliases"].items()},
        )  # fmt: skip
        graph.lint()
        self._check(program)
        return program

    def _sizes(self, said: dict[str, Any]) -> dict[str, SizeRange]:
        ranges = {}
        for symbol, (name, low, high, hint) in said.items():
            if symbol != f"s{len(self.symbols)}" or not all(type(k) is int for k in (low, high, hint)):
                raise self._wrong(f"size {symbol!r}")
            made = self.env.symbol(hint)
            self.symbols[symbol] = expr_of(made)
            ranges[symbol] = SizeRange(str(name), low, high)
        return ranges

    def _graph(self, name: str, said: list[Any], files: list[str]) -> tuple[Graph, list[Node]]:
        graph = Graph(name)
        nodes: list[Node] = []
        for entry in said:
            at = entry.get("at")
            graph.location = None if at is None else Location(files[at[0]], int(at[1]))
            node = self._made(graph, entry, [nodes[_count(k, len(nodes))] for k in entry.get("args", [])])
            shape = tuple(self._read(d) for d in entry["shape"])
            if node.dtype.name != entry["dtype"] or [str(d) for d in node.shape] != [str(d) for d in shape]:
                raise self._wrong(f"{entry['name']} is {node.meta}, and was {entry['dtype']}{list(shape)}")
            nodes.append(node)
        graph.location = None
        return graph, nodes

    def _made(self, graph: Graph, entry: dict[str, Any], args: list[Node]) -> Node:
        op, name = entry["op"], str(entry["name"])
        if op == "placeholder":
            shape = tuple(self._read(d) for d in entry["shape"])
            if not all(isinstance(d, SymInt) or (type(d) is int and 0 <= d < 1 << 62) for d in shape):
                raise self._wrong(f"input {name} has the shape {shape}")
            return graph.placeholder(name, Meta(dtypes.BY_NAME[entry["dtype"]], shape))
        if op == "get_attr":
            return graph.constant(self.arrays[f"graph.{entry['constant']}"], name)
        if op not in OPS:
            raise self._wrong(f"there is no op {str(op)[:80]!r}")
        return graph.call(OPS[op], *args, **{str(k): self._read(v) for k, v in entry.get("attrs", {}).items()})

    def _check(self, program: ExportedProgram) -> None:
        """What the runner takes for granted."""
        placeholders = program.graph.placeholders
        if [spec.name for spec in program.inputs] != [node.name for node in placeholders]:
            raise self._wrong("its inputs are not those of its graph")
        roles = [spec.role for spec in program.inputs]
        if not set(roles) <= {"parameter", "buffer", "constant", "input"} or roles != sorted(roles, key=lambda r: r == "input"):
            raise self._wrong("its inputs have no known roles")
        n_results = len(program.graph.outputs) - program.graph.n_checks - len(program.mutations)
        for tree, n in ((program.in_tree, roles.count("input")), (program.out_tree, n_results)):
            if any(not 0 <= leaf[1] < n for leaf in leaves_of(tree)):
                raise self._wrong("its arguments or results are not those of its graph")
        if len(leaves_of(program.in_tree)) != roles.count("input") or program.in_tree[0] != "tuple":
            raise self._wrong("its arguments are not those of its graph")
        args, kwargs = program.in_tree[-1]
        if args[0] != "tuple" or kwargs[0] != "dict":
            raise self._wrong("its arguments are not those of a call")
        for position, node in zip(program.mutations, program.graph.outputs):
            if placeholders[position].dtype is not node.dtype or str(placeholders[position].shape) != str(node.shape):
                raise self._wrong(f"{node.name} cannot be written to {placeholders[position].name}")
        bound = {b.symbol for b in program.bindings}
        if bound != set(self.symbols) or any(b.axis >= placeholders[b.position].ndim for b in program.bindings):
            raise self._wrong("its sizes are not those of its inputs")
        self._take_state(program)

    def _take_state(self, program: ExportedProgram) -> None:
        for k, (spec, node) in enumerate(zip(program.inputs, program.graph.placeholders)):
            if spec.role == "input":
                continue
            array = self.arrays[f"state.{spec.target}"]
            if dtypes.from_numpy(array.dtype) is not node.dtype or array.shape != node.shape:
                raise self._wrong(f"{spec.target} is {array.dtype}{list(array.shape)}, and the graph takes {node.meta}")
            program.state[spec.target] = array.copy() if k in program.mutations else array

    # -- values ---------------------------------------------------------------------------------------------------------------
    def _int(self, said: Any) -> IntExpr:
        total = IntExpr.of(0)
        for coefficient, *atoms in said:
            if type(coefficient) is not int:
                raise self._wrong(f"a size of {coefficient!r}")
            term = IntExpr.of(coefficient)
            for atom in atoms:
                term = term * (self.symbols[atom] if isinstance(atom, str) else self._applied(*atom))
            total = total + term
        return total

    def _applied(self, function: str, left: Any, right: Any) -> IntExpr:
        if function not in ("//", "%", "min", "max"):
            raise self._wrong(f"sizes have no function {str(function)[:20]!r}")
        return IntExpr.of(apply(function, self._int(left), self._int(right)))

    def _read(self, said: Any) -> Any:
        if isinstance(said, list):
            return tuple(map(self._read, said))
        if not isinstance(said, dict):
            return said
        (what, value), = said.items()
        return self._KINDS[what](self, value)

    def _size(self, value: Any) -> Any:
        expr = self._int(value)
        return SymInt(expr, self.env) if expr.constant is None else expr.constant

    def _call(self, value: Any) -> FunctionCall:
        function, args, kwargs, warns, takes_out, optional, each = value
        if isinstance(function, str) and function in OWN:
            module, name = OWN[function].split(":")
            function = getattr(import_module(module), name)
        elif function not in ROWS and function not in GRADIENTS:
            raise self._wrong(f"{str(function)[:80]!r} is no function that programs call")
        slot = None if warns is None else Slot(int(warns))
        more = tuple((str(k), v) for k, v in self._read(kwargs))
        return FunctionCall(function, self._read(args), more, slot, bool(takes_out), bool(optional), self._read(each))

    _KINDS: ClassVar[dict[str, Callable[["Reader", Any], Any]]] = {
        "$float": lambda self, value: float(value),
        "$complex": lambda self, value: complex(self._read(value[0]), self._read(value[1])),
        "$bytes": lambda self, value: base64.b64decode(value),
        "$dtype": lambda self, value: dtypes.BY_NAME[value],
        "$size": _size,
        "$walk": lambda self, value: Walk(int(value[0]), None if value[1] is None else int(value[1]), bool(value[2])),
        "$slot": lambda self, value: Slot(int(value)),
        "$scalar": lambda self, value: dtypes.BY_NAME[value[0]].numpy.type(self._read(value[1])),
        "$call": _call,
    }

    def _tree(self, said: Any) -> Tree:
        """Arguments or results as data."""
        what, *rest = said
        if what in LEAVES:
            return (what, _count(rest[0], MOST_NODES))
        if what == "none":
            return ("none",)
        if what == "constant":
            value = self._read(rest[0])
            if type(value) not in CONSTANTS:
                raise self._wrong("a constant of no known type")
            return ("constant", value)
        items = tuple(map(self._tree, rest[-1]))
        if what in ("tuple", "list"):
            return (what, items)
        if what == "dict":
            return ("dict", self._read(rest[0]), items)
        name, fields = self._read(rest[0])
        if what != "namedtuple" or not all(isinstance(n, str) and n.isidentifier() for n in (name, *fields)):
            raise self._wrong("arguments or results of no known kind")
        return ("namedtuple", (name, tuple(fields)), items)


def _count(value: Any, limit: int) -> int:
    if type(value) is not int or not 0 <= value < max(limit, 1) + (limit == 0):
        raise ValueError(f"{value!r} is no number below {limit}")
    return value


__all__ = ["VERSION", "Reader", "as_dict"]
