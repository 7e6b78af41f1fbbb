"""Loops within a gradient: one step of the graph, machine code, whose gradient is machine code, too.

A capture in which a gradient is taken cannot end at a loop, as others do that leave it to native code.  A long one, and what
follows up to the function's return or to an instruction that native code cannot do, becomes an external call of a `LoopFunction`;
its gradient calls a `LoopGradient`, which runs the loop again and then backward (ir/passes/reverse_regions.py); these have
tangents and gradients of their own (frontend/loops/derivatives.py).  Where control would leave by another exit the program bails
out, and Python runs the call, with a tape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from dynagraph.doors.numpy import Unsupported
from dynagraph.driver import deadline
from dynagraph.frontend.bytecode.decode import JUMPS
from dynagraph.frontend.bytecode.liveness import start_of
from dynagraph.frontend.executor.breaks import Break
from dynagraph.frontend.executor.exceptions import Raised
from dynagraph.frontend.executor.executor import Frame as CapturedFrame
from dynagraph.frontend.kinds.aliasing import way_to
from dynagraph.frontend.kinds.values import NULL as EMPTY
from dynagraph.frontend.kinds.values import Array as ArrayValue
from dynagraph.frontend.kinds.values import Const, Number
from dynagraph.frontend.kinds.values import Sequence as SequenceValue
from dynagraph.frontend.loops import fields
from dynagraph.frontend.loops.builder import Restart, TooMany, Way, live_at
from dynagraph.frontend.loops.capture import MOST_WRITTEN_OUT, Derived, Maker, NativeLoop, is_long, loops
from dynagraph.frontend.loops.derivatives import Leaf, LoopCall, LoopProgram, row_of
from dynagraph.frontend.loops.exits import names_of
from dynagraph.frontend.loops.loop_calls import WORTH, Code, Compile, Given, Interrupted, LoopFunction
from dynagraph.frontend.loops.sharing import shared_iterator
from dynagraph.frontend.loops.sites import Sites
from dynagraph.frontend.loops.types import Array, Bool, Float, Int, Known, Nothing, Null, Scalar, Tuple, Value
from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr
from dynagraph.ir.external_calls import Slot
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.passes.reverse_regions import NotReversible
from dynagraph.ir.passes.tidy_regions import tidied
from dynagraph.ir.region_loops import reached_from
from dynagraph.ir.region_memory import written_parameters
from dynagraph.ir.regions import Exit, Interruptible, Leave, slots_of
from dynagraph.ir.shapes import hint_of, numel

MOST_SITES = 8
MOST_LEVELS = 2  # of derivatives of derivatives: each has about twice as much code
MOST_OF_SMALL = 250  # instructions that are written out where arrays are small; gradients of each have a few nodes
LARGE = 10_000  # elements: fused kernels of what is written out are faster than the loop's own


class _Refused(Exception):
    """The loop is no step of a graph; why."""


# -- from a frame to nodes -------------------------------------------------------------------------------------------------------


def do_natively(frame: CapturedFrame, compile: Compile) -> bool:
    """Do what follows in the frame as one step of the graph, where it is a loop that a gradient is taken of; else do nothing.

    The frame has then returned, or stands at the instruction up to which that is done.
    """
    ex = frame.ex
    at = frame.ip
    if at in frame.refused_steps or ex.handling or ex.library.name != "numpy" or not _is_asked(frame):
        return False
    frame.refused_steps.add(at)
    if shared_iterator(frame, frame.program, list(range(len(frame.instructions)))):
        return False
    if not 1 <= len(ex.open_levels) <= MOST_LEVELS:
        return False
    varied = _varied(ex.graph, [variable for variables in ex.open_levels for variable in variables])
    deadline.leave(WORTH)
    sites = Sites()
    sites.widens = False
    for _ in range(MOST_SITES):
        maker = Maker(frame, sites, False, fields.Fields())
        maker.builder.carries = False  # what is behind the loop has one type
        try:
            loop = maker.made()
            if not (loops(loop.region) or frame.ex.steps_from_start) or loop.region.holds_gil or loop.region.functions:
                return False
            made = _Nodes(frame, maker, loop, varied, compile).made()
            deadline.leave(WORTH)
            return made
        except Restart as restart:
            sites.learn(restart.found)
        except (fields.Carried, TooMany, _Refused, NotReversible, Break, Raised, Unsupported):
            return False
    return False


def _is_asked(frame: CapturedFrame) -> bool:
    i = frame.instructions[frame.ip]
    arrays = (v.node for v in frame.locals.values() if isinstance(v, ArrayValue))
    are_large = any(hint_of(numel(node.shape)) > LARGE for node in arrays)
    again = frame.ex.steps_from_start
    if again and frame.ip == start_of(frame.program):
        return not are_large and any(i.op in JUMPS for i in frame.instructions)  # else it is written out
    most = MOST_WRITTEN_OUT if are_large else MOST_OF_SMALL
    if i.op != "FOR_ITER":
        return again or not are_large or is_long(frame, frame.jumps_back + 1, most)
    return any(frame.ip < head < i.value for head in frame.step_heads) or is_long(frame, 1, most)


def _varied(graph: Graph, variables: Sequence[Node]) -> set[Node]:
    """What depends on the variables of a gradient."""
    found = set(variables)
    for node in graph.nodes:
        if node.kind == "call_function" and node.dtype.is_inexact and any(a in found for a in node.args):
            found.add(node)
    return found


@dataclass(eq=False)
class _Nodes:
    frame: CapturedFrame
    maker: Any
    loop: NativeLoop
    varied: set[Node]
    compile: Compile
    leaves: list[Leaf] = field(default_factory=list)

    def made(self) -> bool:
        loop = self.loop
        self._take_arguments()
        for exit, way in zip(loop.region.exits, self.maker.builder.exits):
            exit.state = [part for v in _values_of(way) for part in v.parts] if self._is_main(way) else []
        self.region = tidied(loop.region)
        mains = self._main_exits()
        builds = [self._values(way, n) for n, way in mains]
        shapes = [[(leaf.kind == "made", leaf.dtype, leaf.sizes) for leaf in leaves] for _, leaves, _ in builds]
        if any(s != shapes[0] for s in shapes) or any(key != builds[0][2] for _, _, key in builds):
            raise _Refused("it ends in several ways")
        # an np.float64 where it is a float or one of these, by data
        state, self.leaves, _ = next((b for b in builds if any(leaf.kind == "scalar" for leaf in b[1])), builds[0])
        written = self._written()
        ends = {n: self._state(n, leaves) for (n, _), (_, leaves, _) in zip(mains, builds)}
        name = loop.region.name
        signals = (i.exit for i in loop.region.instructions() if isinstance(i, Interruptible))
        errors = {e.number: Interrupted for e in signals if isinstance(e, Exit)}
        function = LoopFunction(Code(name, self.compile, loop.region, loop.rows, ends, errors), self.given, written)
        nodes = self._append(function, {n: leaves for (n, _), (_, leaves, _) in zip(mains, builds)})
        self._go_on(mains[0][1], state, nodes)
        return True

    # -- arguments -------------------------------------------------------------------------------------------------------------
    def _take_arguments(self) -> None:
        """Operands of the call, and its other arguments."""
        ex = self.frame.ex
        self.operands: list[Node] = []
        self.call_args: list[Any] = []
        self.given: list[Given] = []
        self.values: dict[int, Any] = {}  # by the position of an argument of the call
        self.at_slot: dict[int, tuple[int, str]] = {}  # for the first slot of each argument
        self.is_array: set[int] = set()
        known: dict[int, int] = {}
        for row, value in zip(self.loop.rows, self.loop.arguments):
            kind = row[0]
            if kind == "unused":
                self.given.append(Given("unused"))
                continue
            if isinstance(value, Derived):
                at = len(self.call_args)
                self.call_args += [self._static(v) for v in value.values]
                self.given.append(Given("int", at, value.function, len(value.values)))
                self.at_slot[row[1]] = (-1, "derived")
                continue
            value = ex.resolve(value)
            at = known.get(id(value), -1)
            if at < 0 or kind not in ("array", "object"):
                at = known[id(value)] = len(self.call_args)
                self.values[at] = value
                self.call_args.append(self._argument(value))
            if kind not in ("float", "int", "uint", "bool", "complex", "scalar", "array", "object"):
                raise _Refused(f"an argument that is {kind}")
            if kind in ("array", "object"):
                self.is_array.add(at)
            self.at_slot[row[1]] = (at, kind)
            self.given.append(Given(kind, at))

    def _argument(self, value: Any) -> Any:
        ex = self.frame.ex
        if isinstance(value, ArrayValue):
            node = ex.memories.present(value)
        elif isinstance(value, Number):
            node = value.node
        else:
            return self._static(value)
        self.operands.append(node)
        return Slot(len(self.operands) - 1)

    def _static(self, value: Any) -> Any:
        value = self.frame.ex.resolve(value)
        if not isinstance(value, Const):
            raise _Refused("an argument that is no number")
        return value.value

    def _parameter_at(self, name: str) -> tuple[int, str, int]:
        """The position of the argument that a parameter is of, what that gives, and which of its slots it is; -1: of none."""
        slot = 0
        for p in self.loop.region.parameters:
            if p == name:
                first = max(s for s in self.at_slot if s <= slot)
                return (*self.at_slot[first], slot - first)
            kind = self.loop.region.variables[p]
            slot += 1 if isinstance(kind, str) else slots_of(kind)
        return -1, "", 0

    # -- exits -----------------------------------------------------------------------------------------------------------------
    def _main_exits(self) -> list[tuple[int, Way]]:
        """The exits by which control leaves when all is done, where that is one place."""
        reachable = {b.end.exit.number: b for b in self.region.blocks if isinstance(b.end, Leave)}
        found = [(n, way) for n, way in enumerate(self.maker.builder.exits) if n in reachable and self._is_main(way)]
        behind = self._behind_loops()
        late = [(n, way) for n, way in found if reachable[n] in behind]
        found = late or found
        if not found:
            raise _Refused("it has no end that native code comes to")
        places = {self._place_of(way) for _, way in found}
        if len(places) > 1:
            raise _Refused("it ends in several places")
        return found

    def _is_main(self, way: Way) -> bool:
        if way.returned is not None:
            return True
        if len(way.frames) != 1 or way.again or not way.reason or way.reason.startswith("it raises"):
            return False
        frame = way.frames[0]
        instructions = frame.program.instructions
        if instructions[frame.ip].op in ("RAISE_VARARGS", "RERAISE") or frame.ip <= self.frame.ip:
            return False
        jumps = ((k, i.value) for k, i in enumerate(instructions) if i.op in JUMPS and i.op != "SEND" and i.value <= k)
        return not any(head <= frame.ip <= k and head >= self.frame.ip for k, head in jumps)

    @staticmethod
    def _place_of(way: Way) -> Any:
        return "return" if way.returned is not None else way.frames[0].ip

    def _behind_loops(self) -> set[Any]:
        """Blocks that control comes to after a turn of a loop."""
        seen: set[Any] = set()
        for block in self.region.blocks:
            if block not in seen and block in (behind := reached_from(block)):
                seen |= behind
        return seen

    def _values(self, way: Way, number: int) -> tuple[Any, list[Leaf], Any]:
        """How the executor's values are made of nodes, the leaves that these are of, and what tells one way from another."""
        leaves: list[Leaf] = []
        parts = iter(self.region.exits[number].state)
        built = [self._value(Value(v.type, tuple(next(parts) for _ in v.parts)), leaves) for v in _values_of(way)]
        if way.returned is not None:
            return ("return", built[0]), leaves, _key(built[0])
        frame = way.frames[0]
        names = names_of(frame)
        state = ("go on", frame.ip, dict(zip(names, built)), built[len(names) :])
        return state, leaves, _key((tuple(names), *built))

    def _value(self, value: Value, leaves: list[Leaf]) -> Any:
        kind = value.type
        if isinstance(kind, Null):
            return ("known", EMPTY)
        if isinstance(kind, Nothing):
            return ("known", None)
        if isinstance(kind, Known):
            return ("value", kind.value)
        if isinstance(kind, Tuple):
            return ("tuple", tuple(self._value(v, leaves) for v in value.items()))
        if isinstance(kind, Float):
            return self._leaf(Leaf("float", value.only, dtypes.float64), leaves)
        if isinstance(kind, Scalar) and not kind.dtype.is_half:
            return self._leaf(Leaf("scalar", value.only, kind.dtype), leaves)
        if isinstance(kind, (Int, Bool)):
            return ("number", self._dim(value.only), type(kind).__name__)
        if isinstance(kind, Array) and not kind.is_view:
            if not kind.made:
                at, what, _ = self._parameter_at(str(value.owner.value)) if value.owner.op == "var" else (-1, "", 0)
                if what == "object":
                    return ("value", self.values[at])
            else:
                sizes = tuple(self._dim(n) for n in value.sizes)
                return self._leaf(Leaf("made", value.owner, kind.dtype, sizes), leaves)
        raise _Refused(f"it gives a {type(kind).__name__}")

    @staticmethod
    def _leaf(leaf: Leaf, leaves: list[Leaf]) -> Any:
        for k, known in enumerate(leaves):
            if known.part == leaf.part and known.kind == leaf.kind:
                return ("leaf", k)
        leaves.append(leaf)
        return ("leaf", len(leaves) - 1)

    def _dim(self, e: Expr) -> Any:
        """An int that is known before the loop."""
        if e.op == "const":
            return e.value
        if e.op == "var":
            at, what, part = self._parameter_at(str(e.value))
            value = self.values.get(at)
            if isinstance(value, Const):
                return value.value
            if isinstance(value, ArrayValue) and what == "array" and 1 <= part <= value.node.ndim:
                return value.node.shape[part - 1]
        raise _Refused("it gives an int, or an array of a size, that depends on data")

    def _written(self) -> list[int]:
        """The positions of arrays that the loop writes."""
        found: dict[int, None] = {}
        for p in written_parameters(self.region):
            at, what, _ = self._parameter_at(p)
            if what == "array":
                found[at] = None
        bases: dict[Any, int] = {}
        for at in sorted(self.is_array):
            base = way_to(self.values[at].node)[1]
            other = bases.setdefault(base, at)
            if other != at and (other in found or at in found):
                raise _Refused("two views of one array, which is written")
        for at in found:
            self.frame.ex.memories.check(self.values[at])
        self.given = [Given(g.kind, g.at, g.function, g.count, g.kind in ("array", "object") and g.at in found) for g in self.given]
        return sorted(found)

    def _state(self, number: int, leaves: Sequence[Leaf]) -> tuple[Any, ...]:
        """What the exit stores, and how that becomes objects."""
        self.loop.region.exits[number].state = [leaf.part for leaf in leaves]
        self.region.exits[number].state = [leaf.part for leaf in leaves]
        return row_of(leaves)

    # -- nodes ---------------------------------------------------------------------------------------------------------------------
    def _append(self, function: LoopFunction, ends: dict[int, list[Leaf]]) -> list[Node]:
        ex = self.frame.ex
        places = {p: self._parameter_at(p) for p in self.region.parameters}
        program = LoopProgram(
            function, self.region, ends, self.leaves,
            {p: at for p, (at, kind, part) in places.items() if at >= 0 and kind != "object" and part == 0},
            {p: at for p, (at, kind, part) in places.items() if kind == "object" and part == 0},
            {at: self.values[at].node.dtype.numpy for at in self.is_array if isinstance(self.values[at], ArrayValue)},
            len(self.call_args),
        )  # fmt: skip
        by = [at for at in dict.fromkeys(program.arguments.values()) if self._is_varied(self.call_args[at])]
        if not by:
            raise _Refused("no gradient is asked for")
        program.gradient(tuple(by))
        if len(ex.open_levels) > 1:
            program.tangent(tuple(by)).gradient(tuple(by))
        nodes = LoopCall(program, tuple(self.call_args), tuple(self.operands)).append()
        for at, node in zip(function.written, nodes[len(self.leaves) :]):
            ex.memories.write(self.values[at], node)
        return nodes

    def _is_varied(self, arg: Any) -> bool:
        return isinstance(arg, Slot) and self.operands[arg.position] in self.varied

    def _go_on(self, way: Way, state: Any, nodes: Sequence[Node]) -> None:
        frame, ex = self.frame, self.frame.ex
        made: dict[int, Any] = {}

        def build(what: Any) -> Any:
            kind = what[0]
            if kind == "known":
                return what[1] if what[1] is EMPTY else Const(what[1])
            if kind == "value":
                return what[1]
            if kind == "tuple":
                return SequenceValue(tuple, [build(item) for item in what[1]])
            if kind == "number":
                return Const(bool(what[1]) if what[2] == "Bool" else what[1])
            k = what[1]
            if k not in made:
                leaf, node = self.leaves[k], nodes[k]
                returns = "array" if leaf.kind == "made" else "value"
                made[k] = Number(node) if leaf.kind == "float" else ex.from_door(node, returns)
            return made[k]

        if state[0] == "return":
            frame.result = build(state[1])
            return
        _, ip, names, stack = state
        for name in live_at(frame.program, ip) - names.keys():  # not bound there
            frame.locals.pop(name, None)
        frame.locals.update({name: build(what) for name, what in names.items()})
        frame.stack[:] = [build(what) for what in stack]
        frame.ip = ip


def _values_of(way: Way) -> list[Value]:
    """What is given where control leaves."""
    if way.returned is not None:
        return [way.returned]
    frame = way.frames[0]
    return [*(frame.locals[n] for n in names_of(frame)), *frame.stack]


def _key(build: Any) -> Any:
    """What a built value is, but for the parts of leaves."""
    if isinstance(build, tuple):
        return tuple(map(_key, build))
    return build if isinstance(build, (str, int, float, bool, type(None))) else id(build)


__all__ = ["do_natively"]
