"""ONNX in: a model as a module of dynagraph.torch's operators."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph import torch
from dynagraph.errors import ExportError
from dynagraph.onnx.package import DTYPES, package
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.nn.modules import Module
from dynagraph.torch.onnx.model import CONTROL, Call, OnnxModel, Plan
from dynagraph.torch.onnx.operators import OPERATORS

LEAST, MOST = 9, 28  # opsets
COERCED = ("Softmax", "LogSoftmax", "Hardmax")  # before opset 13 they are along all axes from one on
MOST_NUMBERS = 256  # elements: lists of int64 up to that are sizes, where they are used as such
ASKS_FOR_COUNT = ("Split", "MaxPool")  # operators that depend on how many outputs are wanted


def load(model: Any) -> OnnxModel:
    """Read an ONNX model: from a file's path, its bytes, or a ``ModelProto``.

    The result is an nn.Module.  Floating-point weights are its parameters, other arrays its buffers; gradients pass through it, and
    `dg.compile` and `dg.export` take it.

    Raises ExportError where the package onnx is not installed, where this is no valid model, and where it has operators that there
    is no row for: one error for all.
    """
    onnx = package("dynagraph.onnx.load")
    proto, folder = _proto(onnx, model)
    versions = {o.domain: o.version for o in proto.opset_import}
    opset = versions.get("", versions.get("ai.onnx", 0))
    if not LEAST <= opset <= MOST:
        raise ExportError(f"onnx.load: the model is of opset {opset}; known ones are {LEAST} to {MOST}")
    _check_operators(proto.graph)
    for given in proto.graph.input:
        if given.type.HasField("tensor_type") and given.type.tensor_type.elem_type not in DTYPES:
            number = given.type.tensor_type.elem_type
            raise ExportError(f"onnx.load: the input {given.name} is of ONNX's element type {number}, which arrays do not have")
    try:
        return _Loader(onnx, opset, folder).model(proto.graph)
    except KeyError as error:
        raise ExportError(f"onnx.load: not a valid ONNX model: nothing gives the value {error}") from None


def _proto(onnx: Any, model: Any) -> tuple[Any, str]:
    if isinstance(model, onnx.ModelProto):
        return model, ""
    folder = ""
    if not isinstance(model, (bytes, bytearray, memoryview)):
        path = os.fspath(model)
        folder = os.path.dirname(os.path.abspath(path))
        with open(path, "rb") as file:
            model = file.read()
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(bytes(model))
    except Exception as error:  # of a class of protobuf's
        raise ExportError(f"onnx.load: not a valid ONNX model: {str(error)[:300]}") from None
    if not proto.graph.node and not proto.graph.output:
        raise ExportError("onnx.load: not a valid ONNX model: it has no graph")
    return proto, folder


def _nodes(graph: Any) -> list[Any]:
    """All nodes, those of inner graphs among them."""
    found = []
    for node in graph.node:
        found.append(node)
        for attribute in node.attribute:
            found += _nodes(attribute.g) if attribute.HasField("g") else []
    return found


def _check_operators(graph: Any) -> None:
    missing: Counter[str] = Counter()
    for node in _nodes(graph):
        known = node.op_type in OPERATORS or node.op_type in CONTROL or node.op_type == "Constant"
        if node.domain not in ("", "ai.onnx") or not known:
            missing[f"{node.domain + '.' if node.domain else ''}{node.op_type}"] += 1
    if missing:
        said = ", ".join(name if n == 1 else f"{name} ({n} times)" for name, n in sorted(missing.items()))
        raise ExportError(f"onnx.load: the model has operators that dynagraph does not know: {said}")


class _Loader:
    def __init__(self, onnx: Any, opset: int, folder: str):
        self.onnx, self.opset, self.folder = onnx, opset, folder

    def model(self, graph: Any) -> OnnxModel:
        scope: dict[str, int] = {}
        arrays: dict[str, np.ndarray] = {}
        plan = self._plan(graph, scope, 0, arrays)
        inputs = [i.name for i in graph.input if i.name not in arrays]
        optional = [i.name for i in graph.input if i.name in arrays]
        sizes = {number for number, _ in plan.constants}
        weights = [(scope[name], name) for name in arrays if scope[name] not in sizes]
        paths = _paths([name for _, name in weights])
        outputs = [o.name for o in graph.output]
        made = OnnxModel(plan, [(n, paths[name]) for n, name in weights], [*inputs, *optional], optional, outputs)
        for _, name in weights:
            _register(made, paths[name], arrays[name])
        return made

    def _plan(self, graph: Any, outer: dict[str, int], first: int, arrays: dict[str, np.ndarray] | None) -> Plan:
        """`outer`: the numbers of the values that the graph sees; it is added to.  `first`: the first free number."""
        scope = outer
        count = first

        def new(name: str) -> int:
            nonlocal count
            scope[name] = count
            count += 1
            return count - 1

        constants: list[tuple[int, Any]] = []
        given = {i.name for i in graph.initializer}
        inputs = [new(i.name) for i in graph.input if i.name not in given]
        for tensor in graph.initializer:
            array = self._array(tensor)
            number = new(tensor.name)
            if tensor.name in {i.name for i in graph.input}:
                inputs.append(number)
            value = _as_numbers(array)
            if value is not None or arrays is None:
                constants.append((number, torch.from_numpy(array) if value is None else value))
            if arrays is not None:
                arrays[tensor.name] = array
        calls: list[Call] = []
        for node in graph.node:
            if node.op_type == "Constant":
                array = self._constant(node)
                value = _as_numbers(array)
                constants.append((new(node.output[0]), torch.from_numpy(np.array(array)) if value is None else value))
                continue
            attributes = {a.name: self._attribute(a) for a in node.attribute if not a.HasField("g")}
            operands = tuple(scope[name] if name else None for name in node.input)
            bodies: dict[str, Plan] = {}
            for attribute in node.attribute:
                if attribute.HasField("g"):
                    bodies[attribute.name] = self._plan(attribute.g, dict(scope), count, None)
                    count = bodies[attribute.name].n_values  # numbers of their own: all constants are there from the start
            outputs = tuple(new(name) if name else None for name in node.output)
            if node.op_type in COERCED and self.opset < 13:
                attributes = {"axis": attributes.get("axis", 1), "coerced": True}
            if node.op_type in ASKS_FOR_COUNT and not (node.op_type == "Split" and "num_outputs" in attributes):
                attributes["n_outputs"] = len(outputs)
            calls.append(Call(node.op_type, operands, outputs, attributes, bodies, node.name))
        return Plan(count, tuple(inputs), tuple(constants), tuple(calls), tuple(scope[o.name] for o in graph.output))

    def _array(self, tensor: Any) -> np.ndarray:
        if tensor.data_type not in DTYPES:
            raise ExportError(f"onnx.load: {tensor.name} is of ONNX's element type {tensor.data_type}, which arrays do not have")
        try:
            return np.array(self.onnx.numpy_helper.to_array(tensor, self.folder))
        except (OSError, ValueError, self.onnx.checker.ValidationError) as error:
            raise ExportError(f"onnx.load: the weights {tensor.name} cannot be read: {error}") from None

    def _constant(self, node: Any) -> np.ndarray:
        (attribute,) = node.attribute
        value = self._attribute(attribute, plain=True)
        if isinstance(value, np.ndarray):
            return value
        return np.array(value, np.int64 if attribute.name in ("value_int", "value_ints") else np.float32)

    def _attribute(self, attribute: Any, plain: bool = False) -> Any:
        value = self.onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, self.onnx.TensorProto):
            array = self._array(value)
            return array if plain else torch.from_numpy(array)
        if isinstance(value, (list, tuple)) or hasattr(value, "append"):
            return [v.decode() if isinstance(v, bytes) else v for v in value]
        return value


def _as_numbers(array: np.ndarray) -> Any:
    """Sizes, which stay Python's."""
    if array.dtype != np.int64 or array.ndim > 1 or array.size > MOST_NUMBERS:
        return None
    return tuple(array.tolist()) if array.ndim else int(array)


def _paths(names: Sequence[str]) -> dict[str, str]:
    """Where each weight stands: under its own name, unless a part of that is another weight's."""
    taken = set(names)
    found = {}
    for name in names:
        parts = name.split(".")
        inner = any(".".join(parts[:k]) in taken for k in range(1, len(parts))) or "" in parts
        found[name] = name.replace(".", "_") if inner else name
    return found


def _register(model: Module, path: str, array: np.ndarray) -> None:
    *modules, name = path.split(".")
    owner = model
    for module in modules:
        if module not in owner._modules:
            owner._modules[module] = Module()
        owner = owner._modules[module]  # type: ignore[assignment]
    tensor = torch.from_numpy(array)
    if tensor.is_floating_point():
        owner._parameters[name] = Parameter(tensor)
    else:
        owner._buffers[name] = tensor


__all__ = ["load"]
