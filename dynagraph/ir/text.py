"""Graphs as text: a table to read, Python to run, Graphviz to look at, JSON for other programs.

Printers only read. `dynagraph dump` shows what they give.
"""

from __future__ import annotations

import builtins
import json
import keyword
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dynagraph.ir.dtypes import DType
from dynagraph.ir.external_calls import FunctionCall
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.intexpr import Symbol
from dynagraph.ir.ops import Composite, Creation, Elementwise, Library, Movement, Reduction, Scan
from dynagraph.ir.shapes import SymInt, same_dim

MAX_INLINE_ELEMENTS = 16  # larger constants are not written out


# -- table -------------------------------------------------------------------------------------------------------------
def table(graph: Graph) -> str:
    """Aligned columns: name, op, operands and attributes, dtype and shape, source line.

    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Meta
    >>> g = Graph()
    >>> x = g.placeholder("x", Meta(dtypes.float64, (3,)))
    >>> _ = g.output([g.call(OPS["exp"], x)])
    >>> print(table(g))
    name    op           arguments  value       source
    x       placeholder             float64[3]
    exp     exp          x          float64[3]
    output  output       exp
    """
    rows = [("name", "op", "arguments", "value", "source")]
    rows += [(n.name, _op_name(n), _arguments(n), _or_empty(n.meta), _or_empty(n.location)) for n in graph.nodes]
    return align(rows)


def align(rows: Sequence[Sequence[str]]) -> str:
    """Columns of text, two spaces apart."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)


def _or_empty(value: object) -> str:
    return "" if value is None else str(value)


def _op_name(node: Node) -> str:
    return node.op.name if node.kind == "call_function" else node.kind


def _arguments(node: Node) -> str:
    if node.kind == "get_attr":
        return str(node.target)
    if node.is_op("external_call", "effect_call"):
        return _spell_external_call(node, [a.name for a in node.args])
    return ", ".join([a.name for a in node.args] + [f"{k}={v!r}" for k, v in node.given_attrs.items()])


# -- Python ------------------------------------------------------------------------------------------------------------
def python_code(graph: Graph) -> str:
    """A module with one function over NumPy that computes the graph: inputs in order, a tuple of outputs.

    Constants of more than 16 elements come from ``constants``, a dict of arrays that the module must be given
    (`python_function` does).

    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Meta
    >>> g = Graph("f")
    >>> x = g.placeholder("x", Meta(dtypes.float32, (2, 3)))
    >>> _ = g.output([g.call(OPS["sum"], x, axis=(1,))])
    >>> print(python_code(g))
    import numpy as np
    from numpy import inf, nan
    <BLANKLINE>
    <BLANKLINE>
    def f(x):
        sum_ = np.sum(x, axis=(1,), keepdims=False, dtype=np.float32)
        return (sum_,)
    <BLANKLINE>
    """
    return _PythonPrinter(graph).module()


def python_function(graph: Graph) -> Callable[..., tuple[Any, ...]]:
    """The function that `python_code` prints."""
    printer = _PythonPrinter(graph)
    namespace: dict[str, Any] = {"constants": dict(graph.constants)}
    exec(compile(printer.module(), f"<{graph.name}>", "exec"), namespace)
    return namespace[printer.function]  # type: ignore[no-any-return]


_TAKEN = frozenset({"np", "inf", "nan", "constants", "OPS", "BY_NAME", *keyword.kwlist, *dir(builtins)})


class _PythonPrinter:
    def __init__(self, graph: Graph):
        self.graph = graph
        self.taken = set(_TAKEN) | {s.name for s in _symbols(graph)}
        self.function = self._free_name(graph.name)
        self.names = {node: self._free_name(node.name) for node in graph.nodes}

    def _free_name(self, wanted: str) -> str:
        name = "".join(c if c.isalnum() or c == "_" else "_" for c in wanted)
        name = name if name.isidentifier() else f"f_{name}"
        while name in self.taken:
            name += "_"
        self.taken.add(name)
        return name

    def module(self) -> str:
        lines = [f"    {line}" for line in self._body()]
        parameters = ", ".join(self.names[p] for p in self.graph.placeholders)
        imports = ["import numpy as np", "from numpy import inf, nan"]
        if any("OPS[" in line for line in lines):
            imports.append("from dynagraph.ir.ops import OPS")
        if any("BY_NAME[" in line for line in lines):
            imports.append("from dynagraph.ir.dtypes import BY_NAME")
        return "\n".join([*imports, "", "", f"def {self.function}({parameters}):", *lines, ""])

    def _body(self) -> Iterator[str]:
        yield from self._sizes()
        for node in self.graph.nodes:
            where = f"  # {node.location}" if node.location else ""
            if node.kind == "get_attr":
                yield f"{self.names[node]} = {self._constant(node)}"
            elif node.kind == "call_function":
                yield f"{self.names[node]} = {self._call(node)}{where}"
            elif node.kind == "output":
                yield f"return {_tuple([self.names[a] for a in node.args])}"

    def _sizes(self) -> Iterator[str]:
        """Symbols are read off the inputs whose sizes they are."""
        bound: set[str] = set()
        for node in self.graph.placeholders:
            for axis, dim in enumerate(node.shape):
                if isinstance(dim, SymInt) and str(dim) in {s.name for s in dim.expr.symbols()} - bound:
                    bound.add(str(dim))
                    yield f"{dim} = {self.names[node]}.shape[{axis}]"

    def _constant(self, node: Node) -> str:
        array = self.graph.constants[node.target]
        if array.size <= MAX_INLINE_ELEMENTS:
            return f"np.array({array.tolist()!r}, dtype=np.{array.dtype.name}).reshape({array.shape!r})"
        return f"constants[{node.target!r}]"

    def _call(self, node: Node) -> str:
        operands = [self.names[a] for a in node.args]
        spell = _SPELLING.get(node.op.name)
        if spell is not None:
            return spell(node, operands)
        if isinstance(node.op.lowering, Elementwise) and not node.attrs and hasattr(np, node.op.name):
            return f"np.{node.op.name}({', '.join(operands)})"
        attrs = [f"{k}={_python_value(v)}" for k, v in node.attrs.items()]
        return f"OPS[{node.op.name!r}].eager({', '.join(['np', *operands, *attrs])})"


def _symbols(graph: Graph) -> Iterator[Symbol]:
    for node in graph.nodes:
        if node.kind != "output":
            for value in (node.shape, *node.attrs.values()):
                for dim in _flat(value):
                    if isinstance(dim, SymInt):
                        yield from dim.expr.symbols()


def _flat(value: Any) -> Iterable[Any]:
    if isinstance(value, (tuple, list)):
        for v in value:
            yield from _flat(v)
    elif isinstance(value, FunctionCall):
        yield from _flat((value.args, value.kwargs))
    else:
        yield value


def _python_value(value: Any) -> str:
    """An attribute as Python: sizes by their symbols, dtypes of the IR by name."""
    if isinstance(value, tuple):
        return _tuple([_python_value(v) for v in value])
    if isinstance(value, DType):
        return f"BY_NAME[{value.name!r}]"
    return str(value) if isinstance(value, SymInt) else repr(value)


def _tuple(parts: Sequence[str]) -> str:
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


Spelling = Callable[[Node, list[str]], str]


def _spell_external_call(node: Node, operands: list[str]) -> str:
    result = node.attrs["result"]
    return node.attrs["call"].spelled(operands) + ("" if result is None else f"[{result}]")


def _numpy(name: str, *attrs: str, dtype: bool = False) -> Spelling:
    """``np.name(operands, attributes by name)``, with the node's dtype where the function takes one."""

    def spell(node: Node, operands: list[str]) -> str:
        parts = [*operands, *(f"{k}={_python_value(node.attrs[k])}" for k in attrs)]
        if dtype:
            parts.append(f"dtype=np.{_numpy_dtype(node)}")
        return f"np.{name}({', '.join(parts)})"

    return spell


def _numpy_dtype(node: Node) -> str:
    return "bool_" if node.dtype.is_bool else node.dtype.name


def _spell_position(name: str) -> Spelling:
    return lambda node, operands: (
        f"np.{name}({operands[0]}, axis={node.attrs['axis'][0]}, keepdims={node.attrs['keepdims']})"
    )


def _spell_slice(node: Node, operands: list[str]) -> str:
    parts = [_slice_text(*axis) for axis in zip(node.attrs["starts"], node.attrs["steps"], node.shape)]
    return f"{operands[0]}[{', '.join(parts) or '...'}]"


def _slice_text(start: Any, step: Any, size: Any) -> str:
    if same_dim(size, 0):
        return "0:0"
    stop = start + step * size
    if isinstance(step, SymInt) or (isinstance(stop, SymInt) and step < 0):
        return f"slice({start}, {stop} if {stop} >= 0 else None, {step})"  # a negative stop would count from the end
    end = "" if not isinstance(stop, SymInt) and stop < 0 else str(stop)
    return f"{start}:{end}" if same_dim(step, 1) else f"{start}:{end}:{step}"


def _spell_pad(node: Node, operands: list[str]) -> str:
    if not node.shape:
        return f"np.array({operands[0]})"  # np.pad takes no 0-d array
    return f"np.pad({operands[0]}, {_python_value(node.attrs['widths'])}, constant_values={node.attrs['value']!r})"


_SPELLING: dict[str, Spelling] = {
    "power_int": _numpy("power"),
    "cast": lambda node, operands: f"{operands[0]}.astype(np.{_numpy_dtype(node)})",
    **{name: _numpy(name, "axis", "keepdims", dtype=True) for name in ("sum", "prod")},
    **{name: _numpy(name, "axis", "keepdims") for name in ("max", "min", "any", "all", "mean")},
    **{name: _numpy(name, "axis", "keepdims", "ddof") for name in ("var", "std")},
    **{name: _numpy(name, "axis", dtype=True) for name in ("cumsum", "cumprod")},
    "argmax": _spell_position("argmax"),
    "argmin": _spell_position("argmin"),
    "matmul": _numpy("matmul"),
    "own_matmul": lambda node, operands: f"products.matmul({', '.join(operands)})",
    "external_call": _spell_external_call, "effect_call": _spell_external_call,
    "constant": lambda node, operands: f"np.{_numpy_dtype(node)}({_python_value(node.attrs['value'])})",
    "full": lambda node, operands: (
        f"np.full({_python_value(node.shape)}, {_python_value(node.attrs['value'])}, dtype=np.{_numpy_dtype(node)})"
    ),
    "reshape": lambda node, operands: f"np.reshape({operands[0]}, {_python_value(node.shape)})",
    "transpose": lambda node, operands: f"np.transpose({operands[0]}, {_python_value(node.attrs['axes'])})",
    "broadcast_to": lambda node, operands: f"np.broadcast_to({operands[0]}, {_python_value(node.shape)})",
    "slice": _spell_slice,
    "diagonal": lambda node, operands: f"np.diagonal({operands[0]}, axis1=-2, axis2=-1)",
    "concatenate": lambda node, operands: f"np.concatenate([{', '.join(operands)}], axis={node.attrs['axis']})",
    "pad": _spell_pad,
    "roll": _numpy("roll", "shift", "axis"),
    "repeat": _numpy("repeat", "repeats", "axis"),
    "tile": _numpy("tile", "reps"),
    "copy": lambda node, operands: f"np.array({operands[0]})",
}


# -- Graphviz ----------------------------------------------------------------------------------------------------------
_COLOURS: list[tuple[type, str]] = [
    (Elementwise, "#dcebfa"), (Reduction, "#fbe3c8"), (Scan, "#fbe3c8"), (Movement, "#e6e6e6"), (Creation, "#e3f4d7"),
    (Library, "#f6d5dc"), (Composite, "#ffffff"),
]


def dot(graph: Graph) -> str:
    """Graphviz text: one box per node, coloured by kind of op; render it with ``dot -Tsvg``."""
    lines = [f"digraph {_quoted(graph.name)} {{", '  node [shape=box, style="rounded,filled", fontname="monospace"];']
    for node in graph.nodes:
        label = [f"{node.name} = {_op_name(node)}" if node.name != _op_name(node) else node.name]
        label += [f"{k}={v!r}" for k, v in node.given_attrs.items()]
        label += [str(node.meta)] if node.meta is not None else []
        tooltip = f", tooltip={_quoted(str(node.location))}" if node.location else ""
        text = _quoted("\n".join(label))
        lines.append(f"  {_quoted(node.name)} [label={text}, fillcolor={_quoted(_colour(node))}{tooltip}];")
    for node in graph.nodes:
        lines += [f"  {_quoted(arg.name)} -> {_quoted(node.name)};" for arg in node.args]
    return "\n".join([*lines, "}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _colour(node: Node) -> str:
    if node.kind != "call_function":
        return "#f7f2b8"
    return next((colour for kind, colour in _COLOURS if isinstance(node.op.lowering, kind)), "#ffffff")


# -- JSON --------------------------------------------------------------------------------------------------------------
def to_json(graph: Graph, indent: int | None = 2) -> str:
    """The graph as JSON: symbolic sizes, NaN and infinities as strings; constants by dtype and shape only."""
    return json.dumps(as_dict(graph), indent=indent, allow_nan=False)


def as_dict(graph: Graph) -> dict[str, Any]:
    """What `to_json` writes."""
    return {
        "name": graph.name,
        "nodes": [_node_dict(n) for n in graph.nodes],
        "constants": {k: {"dtype": v.dtype.name, "shape": list(v.shape)} for k, v in graph.constants.items()},
    }


def _node_dict(node: Node) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": node.name, "kind": node.kind, "args": [a.name for a in node.args]}
    if node.kind != "output":
        entry["target"] = _op_name(node) if node.kind == "call_function" else node.target
        entry["attrs"] = {k: _json_value(v) for k, v in node.given_attrs.items()}
        entry["dtype"] = node.dtype.name
        entry["shape"] = [_json_value(d) for d in node.shape]
        entry["strides"] = None if node.meta.strides is None else [_json_value(s) for s in node.meta.strides]
        entry["device"] = node.meta.device
    entry["source"] = None if node.location is None else {"file": node.location.filename, "line": node.location.line}
    return entry


def _json_value(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [_json_value(v) for v in value]
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    return str(value)


__all__ = ["align", "as_dict", "dot", "python_code", "python_function", "table", "to_json"]
