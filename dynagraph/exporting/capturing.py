"""Export: capture one call, and make a program of it that needs neither the function nor its module.

The capture is that of `dg.compile`, whole and without native loops.  Which input of the graph is which argument, parameter or buffer
is told by the identity of the arrays that guards have found.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagraph._core._dispatch import CompiledFunction
from dynagraph.errors import ExportError
from dynagraph.exporting.calls import traced
from dynagraph.exporting.dims import MOST, Derived, Dim, DimHint, Size, sizes_of
from dynagraph.exporting.program import ExportedProgram, InputSpec
from dynagraph.exporting.sizes import Binding, SizeRange, holds, said
from dynagraph.exporting.trees import LEAVES, TENSOR, Tree, array_of, kind_of, tensor_class, tree_of
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.capture import Captured, capture
from dynagraph.frontend.guards.guards import InputArray, InputScalar, SymbolicSize, value_at
from dynagraph.frontend.guards.profile import SMALLEST, Profile
from dynagraph.frontend.guards.sources import Source
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.shapes import settled
from dynagraph.pytree import leaves, rebuilt


def export(
    model: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, *, dynamic_shapes: Any = None, strict: bool = True
) -> ExportedProgram:
    """Capture one call as a program that runs without the function: ``export(f, (x, y)).save("f.dgx")``.

    model: a function of arrays or tensors, or an nn.Module, whose parameters and buffers become inputs by their names.
    args, kwargs: what it is called with; their sizes, dtypes and numbers are what the program takes.
    dynamic_shapes: which sizes may change, as in torch.export: a dict by parameter or a sequence, with a dict by axis in place of
    each array, whose values are `Dim`, ``Dim.AUTO``, ``Dim.DYNAMIC`` or None.
    strict: taken for PyTorch's sake; every export captures bytecode.

    Arrays that the function reads from elsewhere are constants of the program.  Arrays that it writes to, buffers of a module too,
    are written to by calls of the program.  Raises ExportError where the call cannot be captured whole, with line and cure; where it
    draws random numbers, or changes other objects of the caller's; and where a named size turns out to be fixed.

    >>> import numpy as np, dynagraph as dg
    >>> program = dg.export(lambda x: np.tanh(x) + 1, (np.zeros((4, 3)),), dynamic_shapes={"x": {0: dg.Dim("batch")}})
    >>> program(np.zeros((7, 3))).shape, program.range_constraints
    ((7, 3), {'batch': (2, 2147483647)})
    """
    if not isinstance(args, tuple):
        raise ExportError(f"export: args must be a tuple of the call's arguments, got {type(args).__name__}; write (x,)")
    return _Export(model, args, dict(kwargs or {}), dynamic_shapes).program()


class _Asked(Profile):
    """Sizes are symbolic where the export asks for it, and nothing else is."""

    def __init__(self, axes: Mapping[int, Mapping[int, Size]]):
        super().__init__(False)
        self.axes = axes  # by identity of arrays

    def symbolic_axes(self, source: Source, array: Any) -> list[bool]:
        asked = self.axes.get(id(array), {})
        return [axis in asked for axis in range(array.ndim)]


@dataclass
class _Leaf:
    """An array of the call: `value` is what the capture is given in its place."""

    role: str
    target: str
    value: Any
    sizes: Mapping[int, Size] = field(default_factory=dict)
    persistent: bool = True

    @property
    def array(self) -> Any:
        return array_of(self.value)


class _Export:
    def __init__(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any], shapes: Any):
        self.function = model.__wrapped__ if isinstance(model, CompiledFunction) else model
        self.name = getattr(model, "__name__", None) or type(model).__name__
        self.module = _module_of(self.function)
        self.parameters = _parameters(self.function)
        names = self._names(args, kwargs)
        found: list[tuple[str, Any]] = []
        trees = [tree_of(value, name, found) for name, value in names.items()]
        n = len(args)
        self.in_tree: Tree = ("tuple", (("tuple", tuple(trees[:n])), ("dict", tuple(kwargs), tuple(trees[n:]))))
        sizes = [s for s, leaf in zip(self._sizes(shapes, args, kwargs, names), leaves((args, kwargs))) if kind_of(leaf)]
        self.hints = _hints([(leaf, said) for (_, leaf), said in zip(found, sizes)])
        self.leaves = self._state()
        seen = {id(leaf.array) for leaf in self.leaves}
        given = []
        for (name, leaf), said_of in zip(found, sizes):
            value = _example(leaf, said_of, self.hints, seen)
            seen.add(id(array_of(value)))
            given.append(_Leaf("input", name, value, said_of))
        self.leaves += given
        replaced = iter(given)
        everything = [next(replaced).value if kind_of(leaf) else leaf for leaf in leaves((args, kwargs))]
        self.args, self.kwargs = rebuilt((args, kwargs), iter(everything))

    # -- what is given --------------------------------------------------------------------------------------------------------
    def _names(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by what they are called, those by position first."""
        names = [*self.parameters[: len(args)], *(f"argument_{k}" for k in range(len(self.parameters), len(args)))]
        twice = set(names) & kwargs.keys()
        if twice:
            raise ExportError(f"export: {self.name} gets the argument {', '.join(sorted(twice))} twice")
        return dict(zip(names, args)) | kwargs

    def _sizes(self, shapes: Any, args: tuple[Any, ...], kwargs: dict[str, Any], names: dict[str, Any]) -> list[dict[int, Size]]:
        return sizes_of(shapes, (args, kwargs), names)

    def _state(self) -> list[_Leaf]:
        """Parameters and buffers, one for each array; the others of its names are `self.aliases`."""
        self.aliases: dict[str, str] = {}
        if self.module is None:
            return []
        found: dict[int, _Leaf] = {}
        rows = [("parameter", *row, True) for row in self.module.named_parameters(remove_duplicate=False)]
        rows += [("buffer", name, b, _is_persistent(self.module, name)) for name, b in self.module.named_buffers(remove_duplicate=False)]
        for role, name, tensor, persistent in rows:
            first = found.setdefault(id(tensor._array), _Leaf(role, name, tensor, {}, persistent))
            if first.target != name:
                self.aliases[name] = first.target
        return list(found.values())

    def _buffers(self) -> tuple[tuple[Any, str], ...]:
        """Where each buffer stands: the dict, and its name in it."""
        if self.module is None:
            return ()
        places = []
        for leaf in self.leaves:
            if leaf.role == "buffer":
                path, _, own = leaf.target.rpartition(".")
                places.append((self.module.get_submodule(path)._buffers, own))
        return tuple(places)

    # -- the capture ----------------------------------------------------------------------------------------------------------
    def program(self) -> ExportedProgram:
        profile = _Asked({id(leaf.array): leaf.sizes for leaf in self.leaves})
        values = (self.function, self.args, self.kwargs, tensor_class(), self._buffers())
        try:
            captured = capture(traced, values, profile=profile)
        except Break as stop:
            raise ExportError(f"export: {self.name} cannot be captured whole\n  {stop}") from None
        return _Ending(self, captured, values).program()


def _module_of(function: Any) -> Any:
    """The nn.Module that is exported, itself or as the owner of a method."""
    owner = getattr(function, "__self__", function)
    return owner if hasattr(owner, "named_parameters") and hasattr(owner, "named_buffers") else None


def _parameters(function: Any) -> tuple[str, ...]:
    """The names of the parameters that take arguments by position."""
    target = function.forward if _module_of(function) is function and hasattr(function, "forward") else function
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD))


def _is_persistent(module: Any, name: str) -> bool:
    path, _, own = name.rpartition(".")
    return own not in module.get_submodule(path)._non_persistent_buffers_set


def _root(size: Size) -> Dim | None:
    return size if isinstance(size, Dim) else size.root if isinstance(size, Derived) else None


def _at(size: Size, root: int) -> int:
    return size.factor * root + size.shift if isinstance(size, Derived) else root


def _hints(leaves: list[tuple[Any, Mapping[int, Size]]]) -> dict[str, int]:
    """For each named size what the capture takes it to be: what it is in the example, unless that is 0 or 1."""
    taken = {size for leaf, _ in leaves for size in array_of(leaf).shape}
    hints: dict[str, int] = {}
    bounds: dict[str, Dim] = {}
    for leaf, said_of in leaves:
        for axis, size in said_of.items():
            root, given = _root(size), array_of(leaf).shape[axis]
            if root is None:
                continue
            if bounds.setdefault(root.name, root) != root:
                raise ExportError(f"export: Dim {root.name!r} is given with different bounds")
            value = given
            if isinstance(size, Derived):
                value, rest = divmod(given - size.shift, size.factor)
                if rest:
                    raise ExportError(f"export: {size.factor}*{root.name} + {size.shift} cannot be {given}, as it is in the example")
            if hints.setdefault(root.name, value) != value:
                raise ExportError(f"export: {root.name} is {hints[root.name]} and {value} in the example; it must be one size")
            if not root.lowest <= value <= root.highest:
                raise ExportError(f"export: {root.name} is {value} in the example, and is to be from {root.lowest} to {root.highest}")
    for name, value in hints.items():
        if value < SMALLEST:
            hints[name] = next((k for k in range(SMALLEST, bounds[name].highest + 1) if k not in taken), SMALLEST)
            taken.add(hints[name])
            if bounds[name].highest < SMALLEST:
                raise ExportError(f"export: {name} may be {bounds[name].highest} at most: leave it out of dynamic_shapes")
    return hints


def _example(leaf: Any, sizes: Mapping[int, Size], hints: Mapping[str, int], seen: set[int]) -> Any:
    """What the capture is given in place of an argument: in C order, no array twice, sizes that are symbolic at least 2."""
    array = array_of(leaf)
    shape = list(array.shape)
    for axis, size in sizes.items():
        root = _root(size)
        shape[axis] = max(shape[axis], SMALLEST) if root is None else _at(size, hints[root.name])
        if shape[axis] < SMALLEST:
            raise ExportError(f"export: axis {axis}, which is symbolic, must be at least {SMALLEST} in the example")
    if tuple(shape) != array.shape:
        array = np.resize(array, shape) if array.size else np.zeros(shape, array.dtype)
    elif id(array) in seen or (kind_of(leaf) != "scalar" and not array.flags.c_contiguous):
        array = np.array(array, order="C")
    if array is array_of(leaf):
        return leaf
    if kind_of(leaf) != "tensor":
        return array if kind_of(leaf) == "array" else array[()]
    made = sys.modules[TENSOR].wrap(array)
    return made.requires_grad_() if leaf.requires_grad else made


@dataclass
class _Ending:
    """From a capture to the program."""

    of: _Export
    captured: Captured
    values: tuple[Any, ...]

    def program(self) -> ExportedProgram:
        captured, name = self.captured, self.of.name
        if captured.prologue:
            raise ExportError(
                f"export: {name} draws random numbers, which a program has no generator for; pass them as arguments, or export a "
                "model after model.eval()"
            )
        if captured.graph.library != "numpy":
            raise ExportError(f"export: {name} computes with arrays of {captured.graph.library}; export it with arrays on the host")
        self.leaves = list(self.of.leaves)
        self.slots = self._slots()
        ranges, bindings = self._ranges()
        new = Graph(name)
        made = self._placeholders(new)
        for node in captured.graph.nodes:
            if node.kind not in ("placeholder", "output"):
                made[node] = new.adopt(node, [made[a] for a in node.args])
        outputs, mutations, out_tree = self._outputs(new, made)
        checks = captured.graph.outputs[len(captured.graph.outputs) - captured.graph.n_checks :]
        new.output([*outputs, *(made[c] for c in checks)], (), len(checks))
        new.eliminate_dead_code()
        specs = tuple(
            InputSpec(node.target, leaf.role, leaf.target, leaf.persistent) for node, leaf in zip(new.placeholders, self.leaves)
        )
        state = {leaf.target: np.ascontiguousarray(leaf.array) for leaf in self.leaves if leaf.role != "input"}
        for position in mutations:  # calls of the program do not change the model
            if specs[position].role != "input":
                state[specs[position].target] = np.array(state[specs[position].target])
        return ExportedProgram(
            new, specs, self.of.parameters, self.of.in_tree, out_tree, mutations, state, ranges, bindings, captured.env, name,
            dict(self.of.aliases),
        )  # fmt: skip

    # -- inputs ---------------------------------------------------------------------------------------------------------------
    def _slots(self) -> dict[int, int]:
        """For each input of the captured graph the leaf that it is; arrays from elsewhere become constants."""
        known = {id(leaf.value if kind_of(leaf.value) == "scalar" else leaf.array): k for k, leaf in enumerate(self.leaves)}
        found: dict[int, int] = {}
        n_state = sum(leaf.role != "input" for leaf in self.leaves)
        constants: list[_Leaf] = []
        for guard in self.captured.guards.each():
            if isinstance(guard, (InputArray, InputScalar)):
                value = value_at(guard.source, self.values)
                position = known.get(id(value))
                if position is None:
                    constants.append(_Leaf("constant", self._constant_name(guard.source.label, constants), value))
                    found[guard.slot] = -len(constants)
                else:
                    found[guard.slot] = position
        self.leaves[n_state:n_state] = constants
        n = len(constants)
        return {
            slot: n_state - k - 1 if k < 0 else k + n * (self.of.leaves[k].role == "input") for slot, k in found.items()
        }

    def _constant_name(self, label: str, constants: list[_Leaf]) -> str:
        label = label.removesuffix("__array")
        taken = {leaf.target for leaf in (*self.leaves, *constants)}
        return next(name for name in (label, *(f"{label}_{k}" for k in range(1, 1 + len(taken)))) if name not in taken)

    def _placeholders(self, graph: Graph) -> dict[Node, Node]:
        captured = {self.slots[slot]: node for slot, node in enumerate(self.captured.graph.placeholders)}
        made: dict[Node, Node] = {}
        for k, leaf in enumerate(self.leaves):
            array = np.asarray(leaf.array)
            dtype = dtypes.from_numpy(array.dtype)
            if dtype is None:
                raise ExportError(f"export: {leaf.target} is of {array.dtype}, which programs do not have")
            node = captured.get(k)
            shape = tuple(map(settled, node.shape)) if node is not None else array.shape
            new = graph.placeholder(leaf.target, Meta(dtype, shape))
            new.target = new.name
            if node is not None:
                made[node] = new
        return made

    # -- sizes ----------------------------------------------------------------------------------------------------------------
    def _ranges(self) -> tuple[dict[str, SizeRange], tuple[Binding, ...]]:
        """The bounds of each symbol, and where it is read; raises ExportError where a size is not what was asked for."""
        env = self.captured.env
        ranges: dict[str, SizeRange] = {}
        bindings: list[Binding] = []
        roots: dict[str, Any] = {}
        asked: dict[str, tuple[Size, str]] = {}
        for guard in self.captured.guards.each():
            if isinstance(guard, SymbolicSize):
                position, symbol = self.slots[guard.slot], f"s{guard.symbol}"
                leaf = self.leaves[position]
                size = leaf.sizes[guard.axis]
                bindings.append(Binding(symbol, position, guard.axis))
                asked[symbol] = size, f"axis {guard.axis} of {leaf.target}"
                if isinstance(size, Dim):
                    roots.setdefault(size.name, IntExpr.symbol(symbol, low=SMALLEST))
                ranges[symbol] = _range(size, f"{leaf.target}_{guard.axis}")
        for symbol, (size, where) in asked.items():
            root = _root(size)
            if root is None:
                continue
            if root.name not in roots:
                raise ExportError(f"export: {where} is derived from {root.name}, which no argument has itself")
            factor, shift = (size.factor, size.shift) if isinstance(size, Derived) else (1, 0)
            if not env.decide("==", IntExpr.symbol(symbol, low=SMALLEST), roots[root.name] * factor + shift):
                raise ExportError(f"export: {where} is not {root.name}")
        self._check_asked(asked, ranges)
        return ranges, tuple(bindings)

    def _check_asked(self, asked: dict[str, tuple[Size, str]], ranges: dict[str, SizeRange]) -> None:
        env = self.captured.env
        owners: dict[str, tuple[str, str]] = {}
        for symbol, (size, where) in asked.items():
            if size is DimHint.AUTO:
                continue
            name = ranges[symbol].name
            expr = env.resolve(IntExpr.symbol(symbol, low=SMALLEST))
            if expr.constant is not None:
                cure = "make the code depend on no size there, or leave the axis out of dynamic_shapes, or give Dim.AUTO"
                raise ExportError(f"export: {where}, {name}, was fixed to {expr.constant}{self._place(symbol)}: {cure}")
            root = _root(size)
            other, there = owners.setdefault(str(expr), (name, where))
            if root is not None and other != name:
                raise ExportError(f"export: {where}, {name}, must be equal to {there}, {other}{self._place(symbol)}: use one Dim")
        for relation, place in env.relations.items():
            for symbol in relation.left.symbols() | relation.right.symbols():
                root = _root(asked[symbol.name][0]) if isinstance(asked[symbol.name][0], Dim) else None
                for bound in () if root is None else (root.min, root.max):
                    at = dict(env.values) | {symbol.name: bound}
                    if bound is not None and bound >= SMALLEST and not holds(relation, at):
                        rule = said(relation, ranges)
                        raise ExportError(f"export: {root.name} may be {bound}, and the code needs {rule}" + (f" ({place})" if place else ""))

    def _place(self, symbol: str) -> str:
        """Where it was decided what a symbol is equal to."""
        for relation, place in self.captured.env.relations.items():
            names = {s.name for s in relation.left.symbols() | relation.right.symbols()}
            if relation.op == "==" and relation.holds and symbol in names and place is not None:
                return f" at {place}"
        return ""

    # -- outputs --------------------------------------------------------------------------------------------------------------
    def _outputs(self, graph: Graph, made: dict[Node, Node]) -> tuple[list[Node], tuple[int, ...], Tree]:
        captured = self.captured.graph
        result, buffers = self._data(self.captured.result)
        nodes = [made[n].args[0] if n.is_op("copy") else made[n] for n in captured.outputs]
        inputs = graph.placeholders
        mutated: dict[int, Node] = {}
        for k, into in enumerate(captured.into):
            if into is not None and self.leaves[self.slots[into]].role != "buffer":
                mutated[self.slots[into]] = nodes[k]
        places = [k for k, leaf in enumerate(self.leaves) if leaf.role == "buffer"]
        for position, (kind, out) in zip(places, buffers):
            node = nodes[out.number] if isinstance(out, _Out) else None
            if kind != "tensor" or node is None or node.meta != inputs[position].meta:
                raise ExportError(f"export: buffer {self.leaves[position].target} is set to what is not of its dtype and shape")
            if node is not inputs[position]:
                mutated[position] = node
        found: list[Node] = []
        tree = self._tree(result, nodes, found)
        return [*mutated.values(), *found], tuple(mutated), tree

    def _tree(self, said_of: Any, nodes: list[Node], found: list[Node]) -> Tree:
        """The tree of a result as `described` gives it; its nodes are added to `found`, each once."""
        what, *rest = said_of
        if what in LEAVES:
            node = nodes[rest[0].number]
            if node not in found:
                found.append(node)
            return (what, found.index(node))
        if what == "other":
            raise ExportError(f"export: {self.of.name} gives a {rest[0]}; results are arrays, tensors, numbers, strings and None, "
                              "in tuples, lists, dicts and named tuples")  # fmt: skip
        if what in ("none", "constant"):
            return tuple(said_of)
        return (what, *rest[:-1], tuple(self._tree(item, nodes, found) for item in rest[-1]))

    def _data(self, recipe: Any) -> Any:
        """What a recipe gives, with `_Out` for outputs."""
        what, *rest = recipe
        if what == "do":
            for step in rest[0]:
                self._check_effect(step)
            return self._data(rest[1])
        if what == "memo":
            return self._data(rest[1])
        if what == "const":
            return rest[0]
        if what == "out":
            return _Out(rest[0])
        if what == "tuple":
            return tuple(map(self._data, rest[0]))
        if what == "arg":
            return self._at_register(rest[0])
        raise ExportError(f"export: {self.of.name} gives what a program cannot hold ({what})")

    def _at_register(self, register: int) -> Any:
        source = self.captured.guards.source_of(register)
        return self.values[register] if source is None else value_at(source, self.values)

    def _check_effect(self, step: Any) -> None:
        """Raise ExportError where an effect reaches objects of the caller's, other than buffers, which are outputs."""
        function, args = step[1], step[2]
        owner = args[0] if args else ("const", None)
        if owner[0] == "memo" or (owner[0] == "const" and owner[1] is None):
            return
        changed = self._at_register(owner[1]) if owner[0] == "arg" else owner[1] if owner[0] == "const" else None
        if any(changed is held for held, _ in self.of._buffers()):
            return
        name = args[1][1] if len(args) > 1 and args[1][0] == "const" else ""
        if name in getattr(type(changed), "__dynagraph_counters__", ()):
            return
        source = self.captured.guards.source_of(owner[1]) if owner[0] == "arg" else None
        what = f"{source}.{name}" if source is not None and isinstance(name, str) and name else getattr(function, "__name__", "an object")
        raise ExportError(
            f"export: {self.of.name} changes what is outside of it ({what}); return the new value instead, or make it a buffer"
        )


@dataclass(frozen=True)
class _Out:
    number: int


def _range(size: Size, unnamed: str) -> SizeRange:
    root = _root(size)
    if root is None:
        return SizeRange(unnamed, SMALLEST, MOST)
    low, high = (_at(size, bound) for bound in (max(root.lowest, SMALLEST), root.highest))
    if isinstance(size, Derived):
        name = f"{size.factor}*{root.name}" if size.factor != 1 else root.name
        return SizeRange(f"{name}{size.shift:+d}" if size.shift else name, low, min(high, MOST))
    return SizeRange(root.name, low, high)


__all__ = ["export"]
