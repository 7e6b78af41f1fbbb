"""Export: capture one call, and make a program of it that needs neither the function nor its module.

The capture is that of `dg.compile`, whole and without native loops.  Which input of the graph is which argument, parameter or
buffer is told by the identity of the arrays that guards have found.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph._core._dispatch import CompiledFunction
from dynagraph.dims import MOST, Derived, Dim, DimHint, Size, sizes_of
from dynagraph.errors import ExportError
from dynagraph.exporting.calls import traced
from dynagraph.exporting.examples import Leaf, example_of, hints_of, root_of, size_at
from dynagraph.exporting.ones import with_ones
from dynagraph.exporting.program import ExportedProgram, InputSpec
from dynagraph.exporting.sizes import Binding, SizeRange, holds, said
from dynagraph.exporting.trees import LEAVES, Tree, array_of, kind_of, tensor_class, tree_of
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.capture import Captured, capture
from dynagraph.frontend.guards.guards import Holds, InputArray, InputScalar, SymbolicHeld, SymbolicSize, value_at
from dynagraph.frontend.guards.profile import SMALLEST, Profile
from dynagraph.frontend.guards.sources import Source
from dynagraph.frontend.kinds.numbers import OF_FLOATS, Careful
from dynagraph.ir import dtypes
from dynagraph.ir.graph import Graph, Meta, Node
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.shapes import SymInt, settled
from dynagraph.pytree import leaves, rebuilt

RECORDED = ("_grad_fn", "_requires_grad", "_output_nr", "_attr_version")  # of tensors: a program records nothing for gradients


def export(
    model: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None, dynamic_shapes: Any = None
) -> ExportedProgram:
    """What `dynagraph.export` gives."""
    if not isinstance(args, tuple):
        raise ExportError(f"export: args must be a tuple of the call's arguments, got {type(args).__name__}; write (x,)")
    asked = _Export(model, args, dict(kwargs or {}), dynamic_shapes)
    return with_ones(asked, asked.program())


class _Asked(Profile):
    """Sizes are symbolic where the export asks for it, and nothing else is."""

    floats_of_sizes = True

    def __init__(self, axes: Mapping[int, Mapping[int, Size]]):
        super().__init__(False)
        self.axes = axes  # by identity of arrays

    def symbolic_axes(self, source: Source, array: Any) -> list[bool]:
        asked = self.axes.get(id(array), {})
        return [axis in asked for axis in range(array.ndim)]


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
        self.size_of: dict[str, Size] = {}  # by symbol
        self.hints = hints_of([(leaf, said) for (_, leaf), said in zip(found, sizes)])
        self.leaves = self._state()
        seen = {id(leaf.array) for leaf in self.leaves}
        given = []
        for (name, leaf), said_of in zip(found, sizes):
            value = example_of(leaf, said_of, self.hints, seen)
            seen.add(id(array_of(value)))
            given.append(Leaf("input", name, value, said_of))
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

    def _state(self) -> list[Leaf]:
        """Parameters and buffers, one for each array; the others of its names are `self.aliases`."""
        self.aliases: dict[str, str] = {}
        if self.module is None:
            return []
        found: dict[int, Leaf] = {}
        rows = [("parameter", *row, True) for row in self.module.named_parameters(remove_duplicate=False)]
        buffers = self.module.named_buffers(remove_duplicate=False)
        rows += [("buffer", name, buffer, _is_persistent(self.module, name)) for name, buffer in buffers]
        for role, name, tensor, persistent in rows:
            first = found.setdefault(id(tensor._array), Leaf(role, name, tensor, {}, persistent))
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
            captured = capture(traced, values, profile=profile)  # type: ignore[arg-type]
        except Break as stop:
            if stop.reason.name == "NOTHING_TO_COMPILE":
                raise ExportError(f"export: {self.name} computes nothing with arrays") from None
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


@dataclass
class _Ending:
    """From a capture to the program."""

    of: _Export
    captured: Captured
    values: tuple[Any, ...]

    def program(self) -> ExportedProgram:
        captured, name = self.captured, self.of.name
        drawn = [step for step in captured.prologue if not _is_of_number(step)]
        if captured.prologue and not drawn:
            raise ExportError(
                f"export: {name} has Python compute a number of a size ({_called(captured.prologue[-1])}), which programs leave to "
                "it; compute it with arrays (np.sqrt), or give the size as it is"
            )
        if drawn:
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
        state = {leaf.target: np.asarray(leaf.array, order="C") for leaf in self.leaves if leaf.role != "input"}
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
        constants: list[Leaf] = []
        for guard in self.captured.guards.each():
            if isinstance(guard, (InputArray, InputScalar)):
                value = value_at(guard.source, self.values)
                position = known.get(id(value))
                if position is None:
                    constants.append(Leaf("constant", self._constant_name(guard.source.label, constants), value))
                    found[guard.slot] = -len(constants)
                else:
                    found[guard.slot] = position
        self.leaves[n_state:n_state] = constants
        n = len(constants)
        return {
            slot: n_state - k - 1 if k < 0 else k + n * (self.of.leaves[k].role == "input") for slot, k in found.items()
        }

    def _constant_name(self, label: str, constants: list[Leaf]) -> str:
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
            if isinstance(guard, (SymbolicHeld, Holds)):
                raise ExportError(
                    f"export: {self.of.name} takes a size from what {self.leaves[self.slots[guard.slot]].target} holds (the "
                    f"{guard.how} of it), which exported programs cannot; give sequences padded to one length, or packed ones"
                )
            if isinstance(guard, SymbolicSize):
                position, symbol = self.slots[guard.slot], f"s{guard.symbol}"
                leaf = self.leaves[position]
                size = leaf.sizes[guard.axis]
                bindings.append(Binding(symbol, position, guard.axis))
                asked[symbol] = size, f"axis {guard.axis} of {leaf.target}"
                self.of.size_of[symbol] = size
                if isinstance(size, Dim):
                    roots.setdefault(size.name, IntExpr.symbol(symbol, low=SMALLEST))
                ranges[symbol] = _range(size, f"{leaf.target}_{guard.axis}")
        for symbol, (size, where) in asked.items():
            root = root_of(size)
            if root is None:
                continue
            if root.name not in roots:
                raise ExportError(f"export: {where} is derived from {root.name}, which no argument has itself")
            factor, shift = (size.factor, size.shift) if isinstance(size, Derived) else (1, 0)
            own, wanted = (env.resolve(e) for e in (IntExpr.symbol(symbol, low=SMALLEST), roots[root.name] * factor + shift))
            if not env.decide("==", own, wanted):
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
            root = root_of(size)
            other, there = owners.setdefault(str(expr), (name, where))
            if root is not None and other != name:
                raise ExportError(f"export: {where}, {name}, must be equal to {there}, {other}{self._place(symbol)}: use one Dim")
        for relation, place in env.relations.items():
            for name in {s.name for s in relation.left.symbols() | relation.right.symbols()}:
                named = asked[name][0]
                for bound in (named.min, named.max) if isinstance(named, Dim) else ():
                    if bound is None or bound < SMALLEST:
                        continue
                    at = {s: size_at(size, bound) for s, (size, _) in asked.items() if root_of(size) == named}
                    if not holds(relation, {**env.values, **at}):
                        where = f" ({place})" if place else ""
                        raise ExportError(f"export: {named} may be {bound}, and the code needs {said(relation, ranges)}{where}")

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
            if what == "number" and node.is_op("constant") and not isinstance(node.attrs["value"], SymInt):
                return ("constant", node.attrs["value"])
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
        if owner[0] == "memo" or owner == ("const", None):
            return
        register = owner[1] if owner[0] == "arg" else None
        changed = owner[1] if owner[0] == "const" else None if register is None else self._at_register(register)
        if any(changed is held for held, _ in self.of._buffers()):
            return
        name = args[1][1] if len(args) > 1 and args[1][0] == "const" else ""
        if name in getattr(type(changed), "__dynagraph_counters__", ()) or (name in RECORDED and kind_of(changed) == "tensor"):
            return
        source = None if register is None else self.captured.guards.source_of(register)
        what = f"{source}.{name}" if source is not None and name else getattr(function, "__name__", "an object")
        raise ExportError(
            f"export: {self.of.name} changes what is outside of it ({what}); return the new value instead, or make it a buffer"
        )


def _called(step: Any) -> str:
    """The function of a step before the program."""
    function = step[0][2][1]
    return str(getattr(function.function if isinstance(function, Careful) else function, "__name__", "a function"))


def _is_of_number(step: Any) -> bool:
    function = step[0][2][1]
    return isinstance(function, Careful) or function in OF_FLOATS


@dataclass(frozen=True)
class _Out:
    number: int


def _range(size: Size, unnamed: str) -> SizeRange:
    root = root_of(size)
    if root is None:
        return SizeRange(unnamed, SMALLEST, MOST)
    low, high = (size_at(size, bound) for bound in (max(root.lowest, SMALLEST), root.highest))
    if isinstance(size, Derived):
        name = f"{size.factor}*{root.name}" if size.factor != 1 else root.name
        return SizeRange(f"{name}{size.shift:+d}" if size.shift else name, low, min(high, MOST))
    return SizeRange(root.name, low, high)


__all__ = ["export"]
