"""ONNX out: an exported program as an ONNX model, by one table from ops to operators."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynagraph.errors import ExportError
from dynagraph.exporting import Dim, ExportedProgram
from dynagraph.exporting import export as export_program
from dynagraph.ir.graph import Node
from dynagraph.ir.shapes import SymInt
from dynagraph.onnx import arrays, elementwise, pools
from dynagraph.onnx.package import NUMBERS, number_of, package
from dynagraph.onnx.patterns import recognise
from dynagraph.onnx.prepare import prepared
from dynagraph.onnx.writer import NoOperator, Writer, write
from dynagraph.pytree import named_leaves

assert None not in (arrays, elementwise, pools)  # their import fills ROWS
OPSETS = range(18, 24)
MOST_IN_ONE_FILE = 1 << 31  # bytes: what protocol buffers can hold


def export(
    model: Any, args: Any = (), path: Any = None, *, kwargs: dict[str, Any] | None = None, opset_version: int = 20,
    input_names: Sequence[str] | None = None, output_names: Sequence[str] | None = None, dynamic_shapes: Any = None,
    dynamic_axes: Mapping[str, Any] | None = None, external_data: bool = False,
) -> Any:  # fmt: skip
    """Write a function, an nn.Module or an exported program as an ONNX model; gives the ``ModelProto``.

    args, kwargs, dynamic_shapes: as `dynagraph.export` takes them; none for an exported program.
    path: the file that it is written to; None: nowhere.
    opset_version: 18 to 23.  What newer operators do is written with older ones.
    input_names, output_names: of the graph's inputs and outputs, in order; otherwise inputs go by the names of the arguments.
    dynamic_axes: which axes of which inputs may change, by input name: ``{"x": {0: "batch"}}`` or ``{"x": [0]}``.
    external_data: write the weights to a file beside the model; models of 2 GB and more do so by themselves.

    Raises ExportError where the package onnx is not installed, and where there is no ONNX operator for an op: one error for all.
    """
    onnx = package("dynagraph.onnx.export")
    if opset_version not in OPSETS:
        raise ExportError(f"onnx.export: opset_version must be from {OPSETS[0]} to {OPSETS[-1]}, got {opset_version}")
    if not isinstance(model, ExportedProgram):
        given = args if isinstance(args, tuple) else (args,)
        model = _exported(model, given, kwargs, dynamic_shapes, dynamic_axes, input_names)
    proto, large = _Exporter(onnx, model, opset_version, input_names, output_names).model()
    if path is not None:
        _save(onnx, proto, large, path, external_data)
    return proto


def _exported(
    model: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None, shapes: Any, axes: Mapping[str, Any] | None, names: Any
) -> ExportedProgram:
    if axes is None:
        return export_program(model, args, kwargs, dynamic_shapes=shapes)
    if shapes is not None:
        raise ExportError("onnx.export: give dynamic_shapes or dynamic_axes, not both")
    static = export_program(model, args, kwargs)
    inputs = [s.target for s in static.inputs if s.role == "input"]
    known = dict(zip(names or inputs, inputs)) | dict(zip(inputs, inputs))
    wanted: dict[str, dict[int, Any]] = {}
    for name, said in axes.items():
        if name in known:  # outputs have the sizes that they have
            entries = said if isinstance(said, Mapping) else {axis: f"{name}_dynamic_axes_{axis + 1}" for axis in said}
            wanted[known[name]] = {axis: Dim(str(size)) for axis, size in entries.items()}
    arguments = dict(zip(static.parameters, args)) | dict(kwargs or {})
    leaves = {way: array for name, value in arguments.items() for way, array in named_leaves(value, name)}
    if not set(wanted) <= set(leaves):
        raise ExportError(f"onnx.export: dynamic_axes names what is no argument; inputs are {', '.join(inputs)}")
    simple = {name: wanted[name] for name in wanted if name in arguments}
    if len(simple) != len(wanted):
        raise ExportError("onnx.export: dynamic_axes of arrays within containers: give dynamic_shapes")
    return export_program(model, args, kwargs, dynamic_shapes=simple)


class _Exporter:
    def __init__(self, onnx: Any, program: ExportedProgram, opset: int, inputs: Any, outputs: Any):
        self.onnx, self.program, self.opset = onnx, program, opset
        if program.mutations:
            written = ", ".join(program.inputs[k].target for k in program.mutations)
            raise ExportError(
                f"onnx.export: {program.name} writes to {written}, which ONNX has no way to say; export after model.eval()"
            )
        self.graph = prepared(program.graph)
        self.input_names = self._named(inputs, program.input_names, "input_names")
        n_results = len(self.graph.outputs) - self.graph.n_checks
        own = tuple(f"output_{k}" if n_results > 1 else "output" for k in range(n_results))
        self.output_names = self._named(outputs, own, "output_names")

    def _named(self, given: Sequence[str] | None, own: Sequence[str], what: str) -> list[str]:
        if given is not None and len(given) > len(own):
            raise ExportError(f"onnx.export: {what} has {len(given)} names for {len(own)} ({', '.join(own)})")
        return [*(given or ()), *own[len(given or ()) :]]

    def model(self) -> tuple[Any, dict[str, np.ndarray]]:
        """The model, and the arrays of its initializers, which it does not hold yet where they are large."""
        program, graph, helper = self.program, self.graph, self.onnx.helper
        given = iter(self.input_names)
        names = [next(given) if spec.role == "input" else spec.target for spec in program.inputs]
        places: dict[str, tuple[str, int]] = {}
        for b in program.bindings:
            places.setdefault(b.symbol, (names[b.position], b.axis))
        w = Writer(self.onnx, self.opset, places)
        for name in (*names, *self.output_names):
            w.name(name)
        values = w.values = dict(zip(graph.placeholders, names))
        constants = {names[k]: program.state[spec.target] for k, spec in enumerate(program.inputs) if spec.role != "input"}
        self._write(w, values)
        results = graph.outputs[: len(self.output_names)]
        for node, name in zip(results, self.output_names):
            w.nodes.append(helper.make_node("Identity", [values[node]], [name], name=name))
        self._prune(w)
        self._short(w)
        used = {name for node in w.nodes for name in node.input}
        arrays = {name: array for name, array in (constants | w.initializers).items() if name in used}
        inputs = [n for n, spec in zip(graph.placeholders, program.inputs) if spec.role == "input"]
        proto = helper.make_graph(
            w.nodes, program.name, [self._info(values[n], n) for n in inputs],
            [self._info(name, node) for name, node in zip(self.output_names, results)],
        )  # fmt: skip
        opsets = [helper.make_opsetid("", self.opset)]
        version = helper.find_min_ir_version_for(opsets)
        model = helper.make_model(proto, opset_imports=opsets, producer_name="dynagraph", ir_version=version)
        total = sum(array.nbytes for array in arrays.values())
        if total < MOST_IN_ONE_FILE - (1 << 20):
            proto = model.graph
            proto.initializer.extend(self.onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
            return model, {}
        return model, arrays

    def _write(self, w: Writer, values: dict[Node, str]) -> None:
        """All nodes; what has no operator is one error."""
        found = recognise(self.graph, self.opset)
        wanted = self._needed(found)
        missing: Counter[str] = Counter()
        for node in self.graph.nodes:
            if node.kind == "get_attr":
                values[node] = w.constant(self.graph.constants[node.target], node.name)
            if node.kind != "call_function" or node not in wanted:
                continue
            w.prefix = node.name
            try:
                match = found.get(node)
                if any(a not in values for a in (node.args if match is None else match.operands)):
                    continue  # of what has none
                if match is not None:
                    values[node] = match.write(w, *(values[a] for a in match.operands))
                else:
                    values[node] = write(w, node, [values[a] for a in node.args])
            except NoOperator as what:
                missing[f"{what}" + (f" ({node.location})" if node.location else "")] += 1
        if missing:
            rows = "".join(f"\n  {what}" + (f", {n} times" if n > 1 else "") for what, n in sorted(missing.items()))
            raise ExportError(f"onnx.export: {self.program.name} computes what ONNX has no operator for:{rows}")

    def _needed(self, found: dict[Node, Any]) -> set[Node]:
        """The nodes that results depend on; inner nodes of a recognised pattern only where others use them."""
        wanted: set[Node] = set()
        waiting = list(self.graph.outputs[: len(self.output_names)])
        while waiting:
            node = waiting.pop()
            if node not in wanted:
                wanted.add(node)
                waiting += node.args if node not in found else found[node].operands
        return wanted

    def _prune(self, w: Writer) -> None:
        """Take out nodes that nothing uses: parts of what became one operator."""
        used = set(self.output_names)
        kept = []
        for node in reversed(w.nodes):
            if used.intersection(node.output):
                used.update(node.input)
                kept.append(node)
        w.nodes = kept[::-1]

    def _short(self, w: Writer) -> None:
        """Give results the outputs' names without an Identity, where nothing else has a say."""
        last = {node.output[0]: node.input[0] for node in w.nodes[-len(self.output_names) :]}
        sources = Counter(last.values())
        made = {name: node for node in w.nodes[: -len(self.output_names)] for name in node.output}
        for output, source in last.items():
            if sources[source] > 1 or source not in made:
                continue
            maker = made[source]
            maker.output[list(maker.output).index(source)] = output
            for node in w.nodes:
                for k, name in enumerate(node.input):
                    if name == source:
                        node.input[k] = output
            w.nodes = [n for n in w.nodes if not (n.op_type == "Identity" and list(n.input) == list(n.output))]

    def _info(self, name: str, node: Node) -> Any:
        ranges = self.program.ranges
        shape: list[Any] = []
        for dim in node.shape:
            symbols = dim.expr.symbols() if isinstance(dim, SymInt) else ()
            known = {s.name: ranges[s.name].name for s in symbols}
            text = str(dim)
            for symbol in sorted(known, key=len, reverse=True):
                text = text.replace(symbol, known[symbol])
            shape.append(dim if isinstance(dim, int) else text)
        if node.dtype.name not in NUMBERS:
            raise ExportError(f"onnx.export: {name} is of {node.dtype}")
        return self.onnx.helper.make_tensor_value_info(name, number_of(node.dtype), shape)


def _save(onnx: Any, proto: Any, large: dict[str, np.ndarray], path: Any, external: bool) -> None:
    path = os.fspath(path)
    if not large and not external:
        with open(path, "wb") as file:
            file.write(proto.SerializeToString())
        return
    name = os.path.basename(path) + ".data"
    whole = type(proto)()
    whole.CopyFrom(proto)
    arrays = large or {t.name: onnx.numpy_helper.to_array(t) for t in whole.graph.initializer}
    del whole.graph.initializer[:]
    with open(os.path.join(os.path.dirname(path), name), "wb") as file:
        for key, array in arrays.items():
            file.write(b"\0" * (-file.tell() % 64))
            tensor = whole.graph.initializer.add()
            tensor.name, tensor.data_type = key, onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            tensor.dims.extend(array.shape)
            tensor.data_location = onnx.TensorProto.EXTERNAL
            for entry, value in (("location", name), ("offset", str(file.tell())), ("length", str(array.nbytes))):
                tensor.external_data.add(key=entry, value=value)
            file.write(np.ascontiguousarray(array).data if array.ndim else array.tobytes())
    with open(path, "wb") as file:
        file.write(whole.SerializeToString())


__all__ = ["OPSETS", "export"]
