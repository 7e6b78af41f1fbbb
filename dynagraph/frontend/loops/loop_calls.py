"""What graphs call for loops within a gradient: machine code of a loop, and of its gradient.

Both only read their operands: arrays that the loop writes are copied, and are results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.regions import Region

Compile = Callable[[Region], Any]
Row = tuple[Any, ...]
WORTH = 10.0  # seconds for machine code, at most: on a tape the hundreds of operations of such a loop take a millisecond each
MOST_INTERRUPTS = 100  # of one run, by signals with a handler in Python
ARRAYS = ("array", "object", "flat")
NUMBERS: dict[str, Callable[[Any], Any]] = {"float": float, "int": int, "uint": int, "bool": bool, "complex": complex}


class LoopLeft(Exception):
    """A loop within a gradient has come to what its machine code cannot do: the program bails out, and Python runs the call."""


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

    `rows` and `row`: of its parameters, and of the exits `ends`, as the dispatcher's NativeLoop takes them; by `interrupts` it is
    left for signals' handlers.
    """

    name: str
    compile: Compile
    region: Region
    rows: Sequence[Row]
    row: Row
    ends: frozenset[int]
    interrupts: frozenset[int]
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
            exits = tuple(self.row if e.number in self.ends else ("tail", ()) for e in self.region.exits)
            self.native = _dispatch.NativeLoop(
                code.address, code.keepalive, tuple(self.rows), code.n_slots, exits, self._left, None, True,
                better=code.better,
            )

    def _left(self, number: int) -> Callable[[], Any]:
        error = Interrupted if number in self.interrupts else LoopLeft

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
        """The native loop's arguments, and copies of the arrays that it writes."""
        arrays: dict[int, np.ndarray] = {}
        for g in self.given:
            if g.kind in ARRAYS and g.at not in arrays:
                array = np.array(args[g.at], order="C", copy=True if g.is_written else None)
                arrays[g.at] = array
        return [self._argument(g, args, arrays) for g in self.given], {at: arrays[at] for at in self.written}

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
        written: dict[int, np.ndarray] = {}

        def arguments() -> Sequence[Any]:
            made, copies = self.arguments(args)
            written.update(copies)
            return made

        numbers = self.code.run(arguments)
        return (*numbers, *(written[at] for at in self.written))


@dataclass(eq=False)
class LoopGradient:
    """``f(*args, *cotangents)``: gradients.

    `n_args`: of the loop.  `shadows`: the positions of the arrays by which gradients are computed; `by`: what is given, either such
    an array's gradient ("array", position), or ("number", which of those that the code gives).
    """

    of: LoopFunction
    code: Code
    n_args: int
    shadows: Sequence[int]
    by: Sequence[tuple[str, int]]

    @property
    def __name__(self) -> str:  # type: ignore[override]
        return self.code.name

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        operands, cotangents = args[: self.n_args], args[self.n_args :]
        n_leaves = len(cotangents) - len(self.of.written)
        of_written = dict(zip(self.of.written, cotangents[n_leaves:]))
        leaves = [np.array(c, order="C").reshape(-1) if np.ndim(c) else np.asarray(c)[()] for c in cotangents[:n_leaves]]
        shadows: dict[int, np.ndarray] = {}

        def arguments() -> Sequence[Any]:
            for at in self.shadows:
                like = np.asarray(operands[at])
                seed = of_written.get(at)
                shadows[at] = np.zeros(like.shape, like.dtype) if seed is None else np.array(seed, order="C")
            return [*self.of.arguments(operands)[0], *leaves, *(shadows[at].reshape(-1) for at in self.shadows)]

        numbers = self.code.run(arguments)
        return tuple(shadows[at] if kind == "array" else numbers[at] for kind, at in self.by)


def codes_of(graph: Graph) -> list[Code]:
    """The machine code that a graph needs for loops that it calls."""
    calls = [node.attrs["call"] for node in graph.nodes if node.is_op("external_call") and (node.users or _is_needed(node))]
    found = (call.function.code for call in calls if isinstance(call.function, (LoopFunction, LoopGradient)))
    return list(dict.fromkeys(found))


def _is_needed(node: Node) -> bool:
    return not node.attrs["call"].optional


__all__ = ["WORTH", "Code", "Compile", "Given", "LoopFunction", "LoopGradient", "codes_of"]
