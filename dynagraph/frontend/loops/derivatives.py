"""Derivatives of loops that are steps of a graph: gradients and tangents, and those of these, each a step of the graph, too.

A `LoopProgram` is a region that a graph calls, and what its arguments and results are.  It has gradients, and a tangent, which is
a program like others (ir/passes/tangent_regions.py), made when a graph asks for it.  That is all that derivatives of any order
need: with y = f(x), J its Jacobian and v, w tangents and cotangents,

- the gradient of ``f(x)`` is ``J(x)^T w``: `LoopGradient` of f;
- that of ``J(x)^T w`` by w, which c comes back to, is ``J(x) c``: the tangent of f, g;
- that of ``J(x)^T w`` by x is the gradient by x of ``w . J(x) c``: `LoopGradient` of g;
- ``J(x) v`` and the gradient by x of ``w . J(x) v`` are linear in v: the gradient of the former by v is ``J(x)^T w``, and that of
  the latter, which c comes back to, is the gradient by x of ``w . J(x) c``, for second derivatives are symmetric.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from dynagraph.frontend.loops.loop_calls import Code, Given, LoopFunction, LoopGradient, TapeFull
from dynagraph.frontend.loops.loop_pieces import LoopPieces
from dynagraph.ir import dtypes
from dynagraph.ir.dtypes import DType
from dynagraph.ir.expr import Expr, const, var
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Node
from dynagraph.ir.ops import OPS
from dynagraph.ir.optable.call_gradients import OnlyOnce
from dynagraph.ir.passes.active_regions import NotReversible
from dynagraph.ir.passes.backward import CustomGradient
from dynagraph.ir.passes.resumable_regions import Resumable, resumable
from dynagraph.ir.passes.reverse_regions import Output, Reversed, reversed_region
from dynagraph.ir.passes.tangent_regions import tangent_region
from dynagraph.ir.passes.tidy_regions import tidied
from dynagraph.ir.region_memory import written_parameters
from dynagraph.ir.regions import POINTER, Region, slots_of
from dynagraph.ir.shapes import Dim


@dataclass(eq=False)
class Leaf:
    """A result of the loop: a number, or a new array."""

    kind: str  # "float", "scalar" or "made"
    part: Expr
    dtype: DType
    sizes: tuple[Dim, ...] = ()


@dataclass(eq=False)
class LoopProgram:
    """What a graph calls.  `region`: what is differentiated; `ends`: what it gives, by the exits at which it is done.

    `arguments`: for parameters that are numbers, or addresses of arrays' data, the positions of the call's arguments; `objects`:
    for those that are arrays as objects.  `arrays`: the dtypes of arguments that are arrays.  `n_args`: of the call.

    Of a tangent: it is that of the program `of`; `directions`: for each argument that is a tangent the position of the argument
    whose tangent that is; `results`: for each result of `of` which one here is its tangent.
    """

    function: LoopFunction
    region: Region
    ends: dict[int, list[Leaf]]
    leaves: Sequence[Leaf]
    arguments: dict[str, int]
    objects: dict[str, int]
    arrays: dict[int, np.dtype]
    n_args: int
    of: LoopProgram | None = None
    directions: dict[int, int] = field(default_factory=dict)
    results: Sequence[int | None] = ()
    _gradients: dict[tuple[int, ...], LoopGradient] = field(default_factory=dict)
    _tangents: dict[tuple[int, ...], LoopProgram] = field(default_factory=dict)

    def gradient(self, by: tuple[int, ...]) -> LoopGradient:
        """The gradients by the arguments at some positions.  Raises NotReversible."""
        if by not in self._gradients:
            self._gradients[by] = _gradient(self, by)
        return self._gradients[by]

    def tangent(self, by: tuple[int, ...]) -> LoopProgram:
        """The tangents of the results, given those of the arguments at some positions.  Raises NotReversible."""
        if by not in self._tangents:
            self._tangents[by] = _tangent(self, by)
        return self._tangents[by]

    def position(self, parameter: str) -> int:
        return self.arguments[parameter] if parameter in self.arguments else self.objects[parameter]


def row_of(leaves: Sequence[Leaf]) -> tuple[Any, ...]:
    """How an exit's state, the leaves' parts, becomes objects: as the dispatcher's NativeLoop takes it."""
    boxes: list[tuple[Any, ...]] = []
    slot = 0
    for leaf in leaves:
        boxes.append(("made", slot) if leaf.kind == "made" else ("scalar", slot, leaf.dtype.numpy))
        slot += slots_of(leaf.part.dtype)
    return ("return", ("tuple", tuple(boxes)))


# -- programs of derivatives -----------------------------------------------------------------------------------------------------


class _Parameters:
    """Further parameters of a region, and rows for all of its parameters."""

    def __init__(self, region: Region, rows: Iterable[tuple[Any, ...]], slot: int):
        self.region = region
        self.rows = list(rows)
        self.slot = slot
        self.more: dict[str, Any] = {}

    def number(self, name: str, dtype: DType) -> tuple[Expr, ...]:
        self.more[name] = dtype
        self.row("scalar", slots_of(dtype), dtype.numpy)
        return (var(name, dtype),)

    def array(self, name: str, dtype: DType) -> tuple[Expr, ...]:
        """Where its elements lie, and how many they are."""
        names = [f"{name}_{part}" for part in ("p", "n", "s", "w")]
        self.more |= dict(zip(names, (POINTER, dtypes.int64, dtypes.int64, dtypes.int64)))
        self.row("array", 4, dtype.numpy, 1, True)
        return (var(names[0], dtypes.int64), var(names[1], dtypes.int64))

    def row(self, kind: str, width: int, *rest: Any) -> None:
        self.rows.append((kind, self.slot, *rest))
        self.slot += width

    def cotangents(self, leaves: Sequence[Leaf]) -> list[tuple[Expr, ...]]:
        return [(self.array if x.kind == "made" else self.number)(f"c{k}", x.dtype) for k, x in enumerate(leaves)]


def _outputs(program: LoopProgram, cotangents: Sequence[tuple[Expr, ...]]) -> dict[int, list[Output]]:
    return {n: [Output(leaf.part, c, leaf.dtype) for leaf, c in zip(leaves, cotangents)] for n, leaves in program.ends.items()}


def _code_of(reverse: Reversed, like: Code, rows: Sequence[tuple[Any, ...]]) -> Code:
    """Of a gradient: it gives those by numbers, and how many bytes its tape took."""
    made = reverse.region
    kinds = [made.variables[p] for p in reverse.numbers]
    boxes = [("scalar", k, kind.numpy) for k, kind in enumerate(kinds) if isinstance(kind, DType)]
    end, no_memory = made.exits[-2:]
    row = ("return", ("tuple", (*boxes, ("int", len(boxes)))))
    return Code(made.name, like.compile, made, rows, {end.number: row}, {**like.errors, no_memory.number: TapeFull})


def _gradient(program: LoopProgram, by: tuple[int, ...]) -> LoopGradient:
    region, code = program.region, program.function.code
    wanted = {p: at for p, at in program.arguments.items() if at in by}
    parameters = _Parameters(region, code.rows, region.n_parameter_slots)
    results = _outputs(program, parameters.cotangents(program.leaves))
    reverse = reversed_region(region, wanted, results, parameters.more)
    shadows = [program.position(p) for p in reverse.shadows]
    for at in shadows:
        parameters.row("array", 4, program.arrays[at], 1, True)
    parameters.row("int", 1)
    order = {p: ("number", k) for k, p in enumerate(reverse.numbers)}
    found = {at: ("array", at) if at in program.arrays else order[p] for p, at in wanted.items()}
    backward = _code_of(reverse, code, parameters.rows)

    @functools.cache
    def pieces() -> LoopPieces | None:
        try:
            return _pieces(program, wanted)
        except NotReversible:
            return None

    def in_pieces(operands: Sequence[Any], leaves: Sequence[Any], seeds: Mapping[int, Any]) -> Any:
        made = pieces()
        return None if made is None else made(operands, leaves, seeds)

    return LoopGradient(program.function, backward, program.n_args, shadows, [found[at] for at in by], in_pieces)


def _pieces(program: LoopProgram, wanted: Mapping[str, int]) -> LoopPieces:
    """The gradient by checkpoints.  Raises NotReversible."""
    code = program.function.code
    made = resumable(program.region, wanted)
    region = made.region
    begun = _Parameters(region, code.rows, program.region.n_parameter_slots)
    for _ in ("where", "turns"):
        begun.row("int", 1)
    for c in made.numbers:
        begun.row("scalar", slots_of(c.dtype), c.dtype.numpy)
    for _ in made.pointers:
        begun.row("int", 1)
    for c in made.owners:
        at = begun.slot + 1
        begun.row("either", 6, (("none", at), ("given", at, c.dtype.numpy, 1, True)))
    forward = tidied(region)
    forward.name += "_pieces"
    stops = {pause.exit: _row_of_stop(made, k + 1) for k, pause in enumerate(made.pauses)}
    for exit in forward.exits:
        if exit.number not in stops:
            exit.state = []
    ends = {**dict.fromkeys(program.ends, ("return", ("const", None))), **stops}
    runs = Code(forward.name, code.compile, forward, begun.rows, ends, code.errors)

    parameters = _Parameters(region, begun.rows, begun.slot)
    results = _outputs(program, parameters.cotangents(program.leaves))
    active = [c for c in made.numbers if c.is_active]
    names = {c.name: c.given for c in active} | {p: p for p in made.constants}
    kinds = {name: kind for name in names if isinstance(kind := region.variables[name], DType)}
    of_numbers = {name: parameters.number(f"{name}_c", kind) for name, kind in kinds.items()}
    of_owners = {c.name: parameters.array(f"{c.name}_c", c.dtype) for c in made.owners if c.is_active}
    for pause in made.pauses:
        passed = [Output(var(n, kinds[n]), c, kinds[n]) for n, c in of_numbers.items() if n in pause.carried or n in made.constants]
        for c in made.owners:
            if c.is_active and c.name in pause.carried:
                passed.append(Output(var(c.name, dtypes.int64), of_owners[c.name], c.dtype))
        results[pause.exit] = passed
    reverse = reversed_region(region, [*wanted, *(c.given for c in active)], results, parameters.more)
    shadows: list[tuple[str, int]] = []
    places = {c.given: ("pointer", k) for k, c in enumerate(made.pointers)}
    places |= {c.given: ("owner", k) for k, c in enumerate(made.owners)}
    for p in reverse.shadows:
        shadows.append(places.get(p) or ("array", program.position(p)))
        if p in places:
            parameters.row("int", 4)
        else:
            parameters.row("array", 4, program.arrays[shadows[-1][1]], 1, True)
    parameters.row("int", 1)
    return LoopPieces(
        program.function, runs, _code_of(reverse, code, parameters.rows),
        [c.dtype.numpy.type(0) for c in made.numbers], len(made.pointers), [(c.dtype.numpy, c.is_active) for c in made.owners],
        [frozenset(k for k, c in enumerate(made.owners) if c.name in pause.read) for pause in made.pauses],
        reverse.numbers, [(names[n], kind.numpy) for n, kind in kinds.items()],
        sum(p in wanted for p in reverse.numbers), shadows,
    )  # fmt: skip


def _row_of_stop(made: Resumable, where: int) -> tuple[Any, ...]:
    """How the state at a pause becomes where that is, numbers, addresses and arrays."""
    slot = 0
    numbers: list[tuple[Any, ...]] = []
    for c in made.numbers:
        numbers.append(("scalar", slot, c.dtype.numpy))
        slot += slots_of(c.dtype)
    pointers = [("int", slot + k) for k in range(len(made.pointers))]
    slot += len(pointers)
    owners = [("choose", slot + 2 * k, (("none",), ("made", slot + 2 * k + 1))) for k in range(len(made.owners))]
    parts = [("const", where), *(("tuple", tuple(boxes)) for boxes in (numbers, pointers, owners))]
    return ("return", ("tuple", tuple(parts)))


def _tangent(program: LoopProgram, by: tuple[int, ...]) -> LoopProgram:
    code, function = program.function.code, program.function
    varied = [p for p, at in program.arguments.items() if at in by]
    made = tangent_region(program.region, varied, {n: [leaf.part for leaf in leaves] for n, leaves in program.ends.items()})
    region = made.region
    names = {**made.numbers, **made.arrays}
    own = {p: program.position(p) for p in names}
    new = {at: program.n_args + k for k, at in enumerate(dict.fromkeys(own.values()))}
    written = {new[own[p]] for p, name in made.arrays.items() if name in written_parameters(region)}
    rows, given, slot = list(code.rows), list(function.given), program.region.n_parameter_slots
    arguments, arrays = dict(program.arguments), dict(program.arrays)
    for p, name in names.items():
        at, kind = new[own[p]], region.variables[name]
        arguments[name] = at
        if isinstance(kind, DType):
            rows.append(("scalar", slot, kind.numpy))
            given.append(Given("scalar", at))
            slot += slots_of(kind)
        else:
            arrays[at] = program.arrays[own[p]]
            rows.append(("array", slot, arrays[at], 1, True))
            given.append(Given("flat", at, is_written=at in written))
            slot += 4
    kept = [k for k in range(len(program.leaves)) if any(found[k] is not None for found in made.ends.values())]
    ends: dict[int, list[Leaf]] = {}
    for number, found in made.ends.items():
        ends[number] = [_tangent_leaf(program.ends[number][k], found[k]) for k in kept]
        region.exits[number].state = [leaf.part for leaf in ends[number]]
    changed = [at for at in function.written if at in new]
    leaves = next(iter(ends.values()), [])
    forward = Code(region.name, code.compile, region, rows, dict.fromkeys(ends, row_of(leaves)), code.errors)
    results = [kept.index(k) if k in kept else None for k in range(len(program.leaves))]
    results += [len(kept) + changed.index(at) if at in changed else None for at in function.written]
    return LoopProgram(
        LoopFunction(forward, given, [new[at] for at in changed]), region, ends, leaves, arguments, program.objects, arrays,
        program.n_args + len(new), program, {at: of for of, at in new.items()}, results,
    )  # fmt: skip


def _tangent_leaf(leaf: Leaf, tangent: Expr | None) -> Leaf:
    if tangent is None and leaf.kind == "made":
        raise NotReversible("an array that changes by one way only")
    return replace(leaf, part=const(0, leaf.dtype) if tangent is None else tangent)


# -- in graphs -------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LoopCall:
    """A call of a program in a graph: its arguments, static values and slots of the operands."""

    program: LoopProgram
    args: tuple[Any, ...]
    operands: Sequence[Node]

    def append(self, optional: bool = False) -> list[Node]:
        """Nodes for what it gives: leaves, and arrays that it writes.  Their gradients are calls of machine code, too."""
        call = FunctionCall(self.program.function, self.args, optional=optional)
        graph = self.operands[0].graph
        nodes = [
            graph.call(OPS["external_call"], *self.operands, call=call, result=k, dtype=dtype, shape=shape)
            for k, (dtype, shape) in enumerate(self.metas())
        ]
        _differentiate(nodes, self.operands, lambda *given: self._pulled(nodes, *given))
        return nodes

    def append_gradient(self, by: Sequence[int], given: Sequence[Node], optional: bool) -> dict[int, Node]:
        """The gradients by the arguments at the positions `by`, from those by the results."""
        gradient = self._made(lambda: self.program.gradient(tuple(by)))
        n = len(self.operands)
        call = FunctionCall(gradient, (*self.args, *(Slot(n + k) for k in range(len(given)))), optional=optional)
        likes = [self.operand(at) for at in by]
        graph, operands = self.operands[0].graph, (*self.operands, *given)
        nodes = [
            graph.call(OPS["external_call"], *operands, call=call, result=k, dtype=like.dtype, shape=like.shape)
            for k, like in enumerate(likes)
        ]
        _differentiate(nodes, operands, lambda *given: self._gradient_pulled(by, nodes, *given))
        return dict(zip(by, nodes))

    def operand(self, at: int) -> Node:
        return self.operands[self.args[at].position]

    def metas(self) -> list[tuple[DType, tuple[Dim, ...]]]:
        """Dtypes and shapes of what it gives."""
        metas: list[tuple[DType, tuple[Dim, ...]]] = [(leaf.dtype, leaf.sizes) for leaf in self.program.leaves]
        return metas + [(self.operand(at).dtype, self.operand(at).shape) for at in self.program.function.written]

    def tangent(self, directions: Mapping[int, Node]) -> LoopCall:
        """The call that gives the tangents of the results along directions, of arguments at some positions."""
        made: LoopProgram = self._made(lambda: self.program.tangent(tuple(directions)))
        n = len(self.operands)
        more = [directions[of] if of in directions else _zeros(self.operand(of)) for of in made.directions.values()]
        return LoopCall(made, (*self.args, *(Slot(n + k) for k in range(len(more)))), (*self.operands, *more))

    def _of(self) -> LoopCall:
        """Of a tangent: the call that it is the tangent of."""
        program = self.program
        assert program.of is not None
        n = len(self.operands) - len(program.directions)
        return LoopCall(program.of, self.args[: program.of.n_args], self.operands[:n])

    def _made(self, make: Callable[[], Any]) -> Any:
        try:
            return make()
        except NotReversible as error:
            where = self.operands[0].graph.location or self.program.function.__name__
            raise OnlyOnce(f"{where}: {error}, which is differentiated step by step") from error

    # -- how gradients come back ---------------------------------------------------------------------------------------------
    def _pulled(
        self, nodes: Sequence[Node], operands: Sequence[Node], cotangents: Sequence[Node | None], wanted: Sequence[bool]
    ) -> list[Node | None]:
        """From the results to the operands."""
        call = LoopCall(self.program, self.args, operands)
        optional = _pass_duty(nodes)
        found = _Found(len(operands))
        by, linear = call._wanted(wanted)
        if by:
            found.add(call, call.append_gradient(by, _whole(cotangents, call.metas(), operands[0]), optional))
        if linear:
            of, results = call._of(), self.program.results
            given = _whole([None if r is None else cotangents[r] for r in results], of.metas(), operands[0])
            gradients = of.append_gradient(list(linear.values()), given, optional or bool(by))
            found.add(call, {at: gradients[to] for at, to in linear.items()})
        return found.nodes

    def _gradient_pulled(
        self,
        by: Sequence[int],
        nodes: Sequence[Node],
        operands: Sequence[Node],
        cotangents: Sequence[Node | None],
        wanted: Sequence[bool],
    ) -> list[Node | None]:
        """From gradients to the operands, and to the gradients that these came from."""
        n = len(self.operands)
        call, given = LoopCall(self.program, self.args, operands[:n]), operands[n:]
        optional = _pass_duty(nodes)
        found = _Found(len(operands))
        directions = {at: c for at, c in zip(by, cotangents) if c is not None}
        others, linear = call._wanted(wanted)
        tangent = call.tangent(directions) if others or any(wanted[n:]) else call
        if any(wanted[n:]):
            made = tangent.append(optional)
            optional = True
            found.nodes[n:] = [None if r is None else made[r] for r in tangent.program.results]
        if others:
            kept = [c for c, r in zip(given, tangent.program.results) if r is not None]
            found.add(call, tangent.append_gradient(others, kept, optional))
            optional = True
        if linear:
            of = call._of().tangent(directions)
            kept = _whole([None] * len(of.metas()), of.metas(), operands[0])
            for r, here in zip(of.program.results, self.program.results):
                if r is not None and here is not None:
                    kept[r] = given[here]
            gradients = of.append_gradient(list(linear.values()), kept, optional)
            found.add(call, {at: gradients[to] for at, to in linear.items()})
        return found.nodes

    def _wanted(self, wanted: Sequence[bool]) -> tuple[list[int], dict[int, int]]:
        """The positions of arguments by which gradients are wanted; of those that it is linear in: what they are tangents of."""
        args, directions = self.args, self.program.directions
        places = dict.fromkeys(self.program.arguments.values())
        found = [at for at in places if isinstance(args[at], Slot) and wanted[args[at].position]]
        return [at for at in found if at not in directions], {at: directions[at] for at in found if at in directions}


class _Found:
    """Gradients by operands."""

    def __init__(self, n: int):
        self.nodes: list[Node | None] = [None] * n

    def add(self, call: LoopCall, gradients: Mapping[int, Node]) -> None:
        for at, node in gradients.items():
            position = call.args[at].position
            known = self.nodes[position]
            self.nodes[position] = node if known is None else node.graph.call(OPS["add"], known, node)


def _differentiate(nodes: Sequence[Node], operands: Sequence[Node], pull: Any) -> None:
    if nodes:
        custom = CustomGradient(nodes[0].attrs["call"].name, nodes, operands, frozenset(), pull)
        nodes[0].graph.custom.update(dict.fromkeys(nodes, custom))


def _zeros(like: Node) -> Node:
    return like.graph.call(OPS["full"], shape=like.shape, value=0, dtype=like.dtype)


def _whole(cotangents: Sequence[Node | None], metas: Iterable[tuple[DType, tuple[Dim, ...]]], node: Node) -> list[Node]:
    return [
        node.graph.call(OPS["full"], shape=shape, value=0, dtype=dtype) if c is None else c
        for c, (dtype, shape) in zip(cotangents, metas)
    ]


def _pass_duty(nodes: Sequence[Node]) -> bool:
    """Derivatives come to whatever the loop would raise: they are called whether they are used or not, if nodes were; these are not
    any more.  Gives whether derivatives need not be called, either.
    """
    optional = bool(nodes[0].attrs["call"].optional)
    for node in nodes:
        node.attrs = {**node.attrs, "call": replace(node.attrs["call"], optional=True)}
    return optional


__all__ = ["Leaf", "LoopCall", "LoopProgram", "row_of"]
