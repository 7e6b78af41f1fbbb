"""A model that was read from ONNX: a module whose forward runs the operators in order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dynagraph import torch
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn.modules import Module
from dynagraph.torch.onnx.operators import OF_NUMBERS, OPERATORS, is_number, tensor_of


@dataclass(frozen=True)
class Call:
    """One node: values are numbered; None is an input that is left out.  `body`: the graphs of If, Loop and Scan by attribute."""

    kind: str
    inputs: tuple[int | None, ...]
    outputs: tuple[int | None, ...]
    attributes: Mapping[str, Any]
    bodies: Mapping[str, "Plan"]
    name: str = ""


@dataclass(frozen=True)
class Plan:
    """A graph: the numbers of its inputs, constants and results among `n_values`, and its nodes in order."""

    n_values: int
    inputs: tuple[int, ...]
    constants: tuple[tuple[int, Any], ...]  # ints and tuples of ints stand for tensors of sizes
    calls: tuple[Call, ...]
    outputs: tuple[int, ...]


class OnnxModel(Module):
    """A model read from ONNX.  Its weights are parameters and buffers under their names there.

    It is called with tensors or arrays, in the order of `input_names` or by these names, and gives a tensor, or a tuple of them.
    """

    def __init__(
        self, plan: Plan, weights: Sequence[tuple[int, str]], inputs: Sequence[str], optional: Sequence[str], outputs: Sequence[str]
    ):
        super().__init__()
        self.plan, self.weights = plan, tuple(weights)
        self.input_names, self.output_names, self.optional = tuple(inputs), tuple(outputs), frozenset(optional)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        given = self._given(args, kwargs)
        values: list[Any] = [None] * self.plan.n_values
        for number, path in self.weights:
            values[number] = self._weight(path)
        for number, value in zip(self.plan.inputs, given):
            if value is not None:
                values[number] = value if isinstance(value, Tensor) else torch.as_tensor(value)
        run(self.plan, values)
        results = [tensor_of(values[k]) for k in self.plan.outputs]
        return results[0] if len(results) == 1 else tuple(results)

    def _given(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
        unknown = [name for name in kwargs if name not in self.input_names]
        if len(args) > len(self.input_names) or unknown:
            also = ", ".join(unknown) or "none by name"
            raise TypeError(f"the model takes the inputs {', '.join(self.input_names)}, got {len(args)} and {also}")
        given = [*args, *(kwargs.get(name) for name in self.input_names[len(args) :])]
        missing = [name for name, value in zip(self.input_names, given) if value is None and name not in self.optional]
        if missing:
            raise TypeError(f"the model's inputs {', '.join(missing)} are missing")
        return given

    def _weight(self, path: str) -> Any:
        owner: Any = self
        *modules, name = path.split(".")
        for module in modules:
            owner = owner._modules[module]
        return owner._parameters[name] if name in owner._parameters else owner._buffers[name]


def run(plan: Plan, values: list[Any]) -> None:
    """Run a graph's nodes: `values` holds its inputs, and gets the rest."""
    for number, constant in plan.constants:
        if values[number] is None:
            values[number] = constant
    for call in plan.calls:
        results = _call(call, [None if k is None else values[k] for k in call.inputs], values)
        for number, result in zip(call.outputs, results):
            if number is not None:
                values[number] = result


def _call(call: Call, given: list[Any], values: list[Any]) -> Sequence[Any]:
    if call.bodies:
        return _CONTROL[call.kind](call, given, values)
    if call.kind in OF_NUMBERS and all(is_number(v) for v in given if v is not None):
        known = OF_NUMBERS[call.kind](*given, **call.attributes)
        if known is not NotImplemented:
            return (known,)
    row = OPERATORS[call.kind]
    if row.host is not None:
        given = [v if k in row.host else tensor_of(v) for k, v in enumerate(given)]
    results = row.function(*given, **call.attributes)
    return results if (type(results) is tuple and len(call.outputs) != 1) or _gives_several(call, results) else (results,)


def _gives_several(call: Call, results: Any) -> bool:
    """Whether a tuple is several results, of which the model wants one, and not a list of sizes."""
    return type(results) is tuple and bool(results) and isinstance(results[0], Tensor)


# -- control flow -----------------------------------------------------------------------------------------------------------------


def _body(plan: Plan, values: list[Any], inputs: Sequence[Any]) -> list[Any]:
    """A graph within another, whose values it sees."""
    inner = values + [None] * (plan.n_values - len(values))
    for number, value in zip(plan.inputs, inputs):
        inner[number] = value
    run(plan, inner)
    return [inner[k] for k in plan.outputs]


def _if(call: Call, given: list[Any], values: list[Any]) -> Sequence[Any]:
    return _body(call.bodies["then_branch" if bool(tensor_of(given[0])) else "else_branch"], values, ())


def _loop(call: Call, given: list[Any], values: list[Any]) -> Sequence[Any]:
    most, going, *carried = given
    plan = call.bodies["body"]
    limit = None if most is None else int(tensor_of(most))
    n, scanned = len(carried), [[] for _ in range(len(plan.outputs) - 1 - len(carried))]  # type: ignore[var-annotated]
    going = going is None or bool(tensor_of(going))
    turn = 0
    while going and (limit is None or turn < limit):
        condition, *results = _body(plan, values, (turn, torch.tensor(True), *carried))
        carried = results[:n]
        for rows, row in zip(scanned, results[n:]):
            rows.append(tensor_of(row))
        going = bool(tensor_of(condition))
        turn += 1
    return [*map(tensor_of, carried), *(torch.stack(rows, 0) if rows else torch.zeros(0) for rows in scanned)]


def _scan(call: Call, given: list[Any], values: list[Any]) -> Sequence[Any]:
    plan, n_scanned = call.bodies["body"], call.attributes["num_scan_inputs"]
    n = len(given) - n_scanned
    states, sequences = list(map(tensor_of, given[:n])), list(map(tensor_of, given[n:]))
    axes = call.attributes.get("scan_input_axes") or [0] * n_scanned
    backwards = call.attributes.get("scan_input_directions") or [0] * n_scanned
    outs: list[list[Any]] = [[] for _ in range(len(plan.outputs) - n)]
    count = sequences[0].shape[axes[0]]
    for k in range(count):
        rows = [s.select(axis, count - 1 - k if back else k) for s, axis, back in zip(sequences, axes, backwards)]
        results = _body(plan, values, (*states, *rows))
        states = results[:n]
        for found, row in zip(outs, results[n:]):
            found.append(tensor_of(row))
    out_axes = call.attributes.get("scan_output_axes") or [0] * len(outs)
    turned = call.attributes.get("scan_output_directions") or [0] * len(outs)
    stacked = [torch.stack(found[::-1] if back else found, axis) for found, axis, back in zip(outs, out_axes, turned)]
    return [*states, *stacked]


_CONTROL = {"If": _if, "Loop": _loop, "Scan": _scan}
CONTROL = frozenset(_CONTROL)

__all__ = ["CONTROL", "Call", "OnnxModel", "Plan", "run"]
