"""What graphs call for loops within a gradient: machine code of a loop, and of its gradient.

Both only read their operands: arrays that the loop writes are copied, and are results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph import config
from dynagraph._core import _dispatch
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.regions import Region

Compile = Callable[[Region], Any]
Row = tuple[Any, ...]
Gradients = tuple[Sequence[Any], dict[int, np.ndarray]]  # by numbers; by arrays, by their positions
InPieces = Callable[..., Any]  # of operands, leaves and seeds: gradients, and the bytes of all tapes; None: it is not done so
WORTH = 10.0  # seconds for machine code, at most: on a tape the hundreds of operations of such a loop take a millisecond each
MOST_INTERRUPTS = 100  # of one run, by signals with a handler in Python
UNLIMITED = 2**63 - 1  # bytes
ARRAYS = ("array", "object", "flat")
NUMBERS: dict[str, Callable[[Any], Any]] = {"float": float, "int": int, "uint": int, "bool": bool, "complex": complex}


class LoopLeft(Exception):
    """A loop within a gradient has come to what its machine code cannot do: the program bails out, and Python runs the call."""


class TapeFull(LoopLeft):
    """A gradient's tape would take more memory than it may, or than there is."""


class Interrupted(Exception):
    """It was left for a signal's handler."""


@dataclass(frozen=True)
class Given:
    """How an argument of the native loop is made of the call's: of the one at a position, or by a function of several from there.

    `kind`: that of its row; "unused": there is none; "flat": an array, as a vector of its elements in C order.
    """

    kind: str
    at: int = -1
    function: Callable[..., Any] | None = None
    count: int = 1
    is_written: bool = False


@dataclass(eq=False)
class Code:
    """Machine code of a region, made when it is first asked for.

    `rows` and `ends`: of its parameters, and of the exits by which it ends, as the dispatcher's NativeLoop takes them; `errors`:
    what others raise, if not `LoopLeft`.
    """

    name: str
    compile: Compile
    region: Region
    rows: Sequence[Row]
    ends: Mapping[int, Row]
    errors: Mapping[int, type[Exception]]
    begun: Any = None
    native: Any = None

    def begin(self) -> None:
        """Have the C compiler begin."""
        if self.begun is None:
            self.begun = self.compile(self.region)

    def finish(self) -> None:
        """Wait for the C compiler."""
        self.begin()
        if self.native is None:
            code = self.begun
            exits = tuple(self.ends.get(e.number, ("tail", ())) for e in self.region.exits)
            self.native = _dispatch.NativeLoop(
                code.address, code.keepalive, tuple(self.rows), code.n_slots, exits, self._left, None, True,
                better=code.better,
            )

    def _left(self, number: int) -> Callable[[], Any]:
        error = self.errors.get(number, LoopLeft)

        def leave() -> Any:
            raise error(self.name)

        return leave

    def run(self, arguments: Callable[[], Sequence[Any]]) -> Any:
        """What it gives for arguments, which are made anew where a signal's handler had to run meanwhile."""
        self.finish()
        for _ in range(MOST_INTERRUPTS):
            result = self.native(*arguments())
            if not isinstance(result, _dispatch.Tail):
                return result
            try:
                result.function()
            except Interrupted:
                continue
        raise LoopLeft(f"{self.name}: too many signals")


@dataclass(eq=False)
class LoopFunction:
    """``f(*args)``: a tuple of what the loop gives, numbers and new arrays, and of the arrays at the positions `written`."""

    code: Code
    given: Sequence[Given]
    written: Sequence[int]

    @property
    def __name__(self) -> str:  # type: ignore[override]
        return self.code.name

    def arguments(self, args: Sequence[Any]) -> tuple[list[Any], dict[int, np.ndarray]]:
        """The native loop's arguments, and the arrays among these, by the positions of the call's: copies of what it writes."""
        arrays: dict[int, np.ndarray] = {}
        for g in self.given:
            if g.kind in ARRAYS and g.at not in arrays:
                array = np.array(args[g.at], order="C", copy=True if g.is_written else None)
                arrays[g.at] = array
        return [self._argument(g, args, arrays) for g in self.given], arrays

    @staticmethod
    def _argument(g: Given, args: Sequence[Any], arrays: dict[int, np.ndarray]) -> Any:
        if g.kind == "unused":
            return None
        if g.function is not None:
            return g.function(*args[g.at : g.at + g.count])
        if g.kind in ARRAYS:
            return arrays[g.at].reshape(-1) if g.kind == "flat" else arrays[g.at]
        return np.asarray(args[g.at])[()] if g.kind == "scalar" else NUMBERS[g.kind](args[g.at])

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        arrays: dict[int, np.ndarray] = {}

        def arguments() -> Sequence[Any]:
            made, given = self.arguments(args)
            arrays.update(given)
            return made

        numbers = self.code.run(arguments)
        return (*numbers, *(arrays[at] for at in self.written))


@dataclass(eq=False)
class LoopGradient:
    """``f(*args, *cotangents)``: gradients.

    `n_args`: of the loop.  `shadows`: the positions of the arrays by which gradients are computed; `by`: what is given, either such
    an array's gradient ("array", position), or ("number", which of those that the code gives).

    Where the tape would take more than `config.tape_limit`, `in_pieces` does it, if it can.
    """

    of: LoopFunction
    code: Code
    n_args: int
    shadows: Sequence[int]
    by: Sequence[tuple[str, int]]
    in_pieces: InPieces
    is_large: bool = False  # the tape of the last call was

    @property
    def __name__(self) -> str:  # type: ignore[override]
        return self.code.name

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        operands, cotangents = args[: self.n_args], args[self.n_args :]
        n_leaves = len(cotangents) - len(self.of.written)
        leaves = [np.array(c, order="C").reshape(-1) if np.ndim(c) else np.asarray(c)[()] for c in cotangents[:n_leaves]]
        seeds = dict(zip(self.of.written, cotangents[n_leaves:]))
        numbers, shadows = self._gradients(operands, leaves, seeds)
        return tuple(shadows[at] if kind == "array" else numbers[at] for kind, at in self.by)

    def _gradients(self, operands: Sequence[Any], leaves: Sequence[Any], seeds: Mapping[int, Any]) -> Gradients:
        limit = config.tape_limit
        if limit and not self.is_large:
            try:
                return self._at_once(operands, leaves, seeds, limit)
            except TapeFull:
                self.is_large = True
        found = self.in_pieces(operands, leaves, seeds)
        if found is None:
            return self._at_once(operands, leaves, seeds, UNLIMITED)
        numbers, shadows, taken = found
        self.is_large = taken > limit
        return numbers, shadows

    def _at_once(self, operands: Sequence[Any], leaves: Sequence[Any], seeds: Mapping[int, Any], most: int) -> Gradients:
        shadows: dict[int, np.ndarray] = {}

        def arguments() -> Sequence[Any]:
            shadows.update({at: shadow_of(operands[at], seeds.get(at)) for at in self.shadows})
            return [*self.of.arguments(operands)[0], *leaves, *(shadows[at].reshape(-1) for at in self.shadows), most]

        return self.code.run(arguments), shadows


def shadow_of(array: Any, seed: Any) -> np.ndarray:
    """Where the gradient by an array will be: it begins as that by what the array holds at the end."""
    array = np.asarray(array)
    return np.zeros(array.shape, array.dtype) if seed is None else np.array(seed, order="C")


def codes_of(graph: Graph) -> list[Code]:
    """The machine code that a graph needs for loops that it calls."""
    calls = [node.attrs["call"] for node in graph.nodes if node.is_op("external_call") and (node.users or _is_needed(node))]
    found = (call.function.code for call in calls if isinstance(call.function, (LoopFunction, LoopGradient)))
    return list(dict.fromkeys(found))


def _is_needed(node: Node) -> bool:
    return not node.attrs["call"].optional


__all__ = [
    "UNLIMITED",
    "WORTH",
    "Code",
    "Compile",
    "Given",
    "Interrupted",
    "LoopFunction",
    "LoopGradient",
    "LoopLeft",
    "TapeFull",
    "codes_of",
    "shadow_of",
]
