"""The exported program: a graph of one call, what its inputs and outputs are, and the values of those that belong to the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagraph.errors import ExportError
from dynagraph.exporting.running import Runner
from dynagraph.exporting.sizes import Binding, SizeRange, check_sizes
from dynagraph.exporting.trees import Tree, array_of, built, flattened, kind_of
from dynagraph.ir.graph import Graph
from dynagraph.ir.shapes import ShapeEnv

STATE = ("parameter", "buffer", "constant")


@dataclass(frozen=True)
class InputSpec:
    """An input of the graph.  `role`: parameter, buffer, constant or input.

    `target`: its name in the state dict, or how it is reached from the arguments; `persistent`: of a buffer, whether it is in the
    state dict.
    """

    name: str
    role: str
    target: str
    persistent: bool = True


@dataclass(repr=False)
class ExportedProgram:
    """One call of a function or model, as a graph that runs without it.

    `graph` takes the inputs of `inputs` in order.  Its outputs are first the new values of the inputs at `mutations`, then the
    arrays of the result, whose tree is `out_tree`, then checks: where one is true, an index is out of bounds.
    `state`: the arrays of parameters, buffers and constants, by `InputSpec.target`.
    `ranges`: what is known of the symbolic sizes, by symbol; `bindings`: which size of which input each symbol is.
    """

    graph: Graph
    inputs: tuple[InputSpec, ...]
    parameters: tuple[str, ...]  # of the function
    in_tree: Tree
    out_tree: Tree
    mutations: tuple[int, ...]
    state: dict[str, np.ndarray]
    ranges: dict[str, SizeRange]
    bindings: tuple[Binding, ...]
    env: ShapeEnv
    name: str = "program"
    aliases: dict[str, str] = field(default_factory=dict)  # further names of the state's arrays: tied weights
    extra: dict[str, str] = field(default_factory=dict)  # texts that its file holds
    _runner: Runner | None = field(default=None, compare=False)

    # -- what it is -----------------------------------------------------------------------------------------------------------
    @property
    def state_dict(self) -> dict[str, Any]:
        """The parameters and persistent buffers by name, as tensors in the program's own memory."""
        kept = [s for s in self.inputs if s.role == "parameter" or (s.role == "buffer" and s.persistent)]
        named = {spec.target: built(("tensor", 0), [self.state[spec.target]]) for spec in kept}
        return named | {name: named[target] for name, target in self.aliases.items() if target in named}

    @property
    def input_names(self) -> tuple[str, ...]:
        """How the arrays of a call are reached from its arguments."""
        return tuple(spec.target for spec in self.inputs if spec.role == "input")

    @property
    def range_constraints(self) -> dict[str, tuple[int, int]]:
        """The least and greatest value of each symbolic size by its name."""
        return {r.name: (r.low, r.high) for r in self.ranges.values()}

    @property
    def constraints(self) -> tuple[str, ...]:
        """What the captured code decided about symbolic sizes: calls for which it does not hold are refused."""
        return tuple(map(str, self.env.relations))

    def __repr__(self) -> str:
        return f"<exported program {self.name}: {len(self.inputs)} inputs, {len(self.graph)} nodes>"

    def __str__(self) -> str:
        lines = [f"{s.name}: {s.role} {s.target}" for s in self.inputs]
        lines += [f"{name} in [{low}, {high}]" for name, (low, high) in self.range_constraints.items()]
        return "\n".join([f"exported program {self.name}", *lines, *self.constraints, "", str(self.graph)])

    # -- calls ----------------------------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As the function was called at the export; raises ExportError where arguments do not fit the program."""
        return self.run([*self._state(), *self.arrays_of(args, kwargs)])

    def module(self) -> "ExportedModule":
        """A callable with the program's parameters and buffers, which its calls use and update."""
        return ExportedModule(self)

    def _state(self) -> list[np.ndarray]:
        return [self.state[spec.target] for spec in self.inputs if spec.role in STATE]

    def arrays_of(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[np.ndarray]:
        """The arrays of a call, checked and in order."""
        args, kwargs = self._placed(args, kwargs)
        expected_args, expected_kwargs = self.in_tree[-1]
        leaves: list[Any] = []
        for name, tree, value in self._named(expected_args, args, expected_kwargs, kwargs):
            leaves += flattened(tree, value, f"{self.name}: {name}")
        specs = [spec for spec in self.inputs if spec.role == "input"]
        return [self._checked(spec, leaf) for spec, leaf in zip(specs, leaves, strict=True)]

    def _placed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments where they were at the export: by position or by name."""
        n, names = len(self.in_tree[-1][0][-1]), self.in_tree[-1][1][1]
        more = dict(kwargs)
        while len(args) < n and len(args) < len(self.parameters) and self.parameters[len(args)] in more:
            args = (*args, more.pop(self.parameters[len(args)]))
        for position in range(n, min(len(args), len(self.parameters))):
            if self.parameters[position] in names:
                more.setdefault(self.parameters[position], args[position])
        args = args[:n] if len(more) == len(names) and len(args) <= len(self.parameters) else args
        if len(args) != n or set(more) != set(names):
            expected = [*(self.parameters[k] if k < len(self.parameters) else f"argument {k}" for k in range(n)), *names]
            given = f"{len(args)} by position" + (f" and {', '.join(more)}" if more else "")
            raise ExportError(f"{self.name}: takes the arguments {', '.join(expected) or 'none'}, got {given}")
        return args, more

    def _named(self, args_tree: Tree, args: tuple[Any, ...], kwargs_tree: Tree, kwargs: dict[str, Any]) -> Any:
        for k, (tree, value) in enumerate(zip(args_tree[-1], args)):
            yield self.parameters[k] if k < len(self.parameters) else f"argument {k}", tree, value
        for name, tree in zip(kwargs_tree[1], kwargs_tree[-1]):
            yield name, tree, kwargs[name]

    def _checked(self, spec: InputSpec, leaf: Any) -> np.ndarray:
        if kind_of(leaf) is None:
            raise ExportError(f"{self.name}: {spec.target} must be an array or a tensor, got {type(leaf).__name__}")
        array = array_of(leaf)
        if not isinstance(array, (np.ndarray, np.generic)):
            raise ExportError(f"{self.name}: {spec.target} must lie on the host, got a {type(array).__name__}")
        return np.asarray(array)

    def run(self, arrays: Sequence[np.ndarray]) -> Any:
        """The result for the arrays of all inputs in order, state included, into which new values are written."""
        if self._runner is None:
            self._runner = Runner(self.graph, self.bindings, self.env, self.ranges)
        results = self._runner(arrays)
        if results is None:
            check_sizes(self, arrays)
            results = self._runner.slowly(arrays, self.name)
        n = len(self.mutations)
        for position, new in zip(self.mutations, results):
            arrays[position][...] = new
        return built(self.out_tree, results[n:])


class ExportedModule:
    """An exported program as a callable: a model without its Python."""

    def __init__(self, program: ExportedProgram):
        self.program = program
        self.state = program.state

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.program(*args, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """The parameters and persistent buffers by name, as tensors in the program's own memory."""
        return self.program.state_dict

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take other values of the same dtypes and shapes."""
        known = {name: array_of(value) for name, value in self.program.state_dict.items()}
        if state.keys() != known.keys():
            wrong = ", ".join(sorted(state.keys() ^ known.keys()))
            raise ExportError(f"load_state_dict: names that are on one side only: {wrong}")
        arrays = {name: np.asarray(array_of(value)) for name, value in state.items()}
        for name, array in arrays.items():
            if array.shape != known[name].shape or array.dtype != known[name].dtype:
                expected = f"{known[name].dtype}{list(known[name].shape)}"
                raise ExportError(f"load_state_dict: {name} must be {expected}, got {array.dtype}{list(array.shape)}")
        for name, array in arrays.items():
            self.program.state[self.program.aliases.get(name, name)] = np.array(array, order="C")


__all__ = ["STATE", "ExportedModule", "ExportedProgram", "InputSpec"]
