"""Gradients of loops that are too long for one tape: by checkpoints.

The loop runs forward, and stops every so many turns; what it held there is kept.  Then the pieces between are run once more, last
one first, each forward with a tape and backward.  (Griewank and Walther, Evaluating Derivatives, 2008, chapter 12.)  The number of
turns is not known before: where checkpoints come to take more memory than the tape of a piece, every second one is dropped, and
pieces are twice as long from there.  So T turns whose state takes s bytes, and whose tape t bytes a turn, take about
2 * sqrt(T * s * t) bytes, and one more run forward.

What is kept of memory are copies; addresses are kept by where in which array they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dynagraph.frontend.loops.loop_calls import UNLIMITED, Code, Gradients, LoopFunction, shadow_of

FIRST_TURNS = 8  # of a piece
OF_OBJECTS = 1000  # bytes that a checkpoint takes besides arrays, about
ENDLESS = 2**63 - 1  # turns: to the end


@dataclass(frozen=True)
class Checkpoint:
    """What the loop held.

    `where`: it goes on there, 0: it begins; `numbers`.  `arrays`: that it had made; `owners`: which of them each owner holds, -1:
    none; `pointers`: which of them each address is in, and where there; -1: in none, and the address.  `written`: what was in the
    arrays that it was given, and writes to.
    """

    where: int
    numbers: Sequence[Any]
    arrays: Sequence[np.ndarray]
    owners: Sequence[int]
    pointers: Sequence[tuple[int, int]]
    written: Mapping[int, np.ndarray]

    @property
    def nbytes(self) -> int:
        return OF_OBJECTS + sum(a.nbytes for a in (*self.arrays, *self.written.values()))


@dataclass(frozen=True)
class Piece:
    """So many turns from a checkpoint on."""

    start: Checkpoint
    turns: int


@dataclass(eq=False)
class LoopPieces:
    """Gradients of a loop, in pieces.

    `forward`: the loop from a checkpoint on, for some turns; it gives what a checkpoint is made of, None at its end.  `backward`:
    gradients of such a piece by `gradients`, parameters; those by `chained` are cotangents of the piece before, those by the first
    `n_numbers` are those of the loop.

    `begins`: for numbers that are carried, some value of their types.  `owners`: for each, the dtype of its array, and whether
    gradients go through it.  `live`: for each place where the loop stops, the owners that it reads there.  `shadows`: of what there
    are gradients by elements: ("array", position of an argument), ("pointer" or "owner", which one).
    """

    of: LoopFunction
    forward: Code
    backward: Code
    begins: Sequence[Any]
    n_pointers: int
    owners: Sequence[tuple[np.dtype, bool]]
    live: Sequence[frozenset[int]]
    gradients: Sequence[str]
    chained: Sequence[tuple[str, np.dtype]]
    n_numbers: int
    shadows: Sequence[tuple[str, int]]

    def __call__(self, operands: Sequence[Any], leaves: Sequence[Any], seeds: Mapping[int, Any]) -> tuple[Any, ...]:
        given, arrays = self.of.arguments(operands)
        run = _Run(self, given, arrays, leaves)
        shadows = {at: shadow_of(operands[at], seeds.get(at)) for kind, at in self.shadows if kind == "array"}
        return *run.backward(run.forward(), shadows), run.taken


@dataclass(eq=False)
class _Run:
    pieces: LoopPieces
    given: Sequence[Any]  # to the loop; arrays that it writes are copies
    arrays: Mapping[int, np.ndarray]
    leaves: Sequence[Any]
    taken: int = 0

    # -- forward ----------------------------------------------------------------------------------------------------------------
    def forward(self) -> list[Piece]:
        pieces = self.pieces
        start = Checkpoint(0, pieces.begins, (), [-1] * len(pieces.owners), [(-1, 0)] * pieces.n_pointers, self._written())
        done: list[Piece] = []
        turns, size, tape = FIRST_TURNS, 0, 0.0
        while True:
            piece = Piece(start, turns)
            stopped = pieces.forward.run(partial(self._to_resume, piece))
            if stopped is None:
                return [*done, Piece(start, ENDLESS)]
            done.append(piece)
            size += start.nbytes
            start = self._checkpoint(*stopped)
            if len(done) == 1:
                tape = self._tape_of(piece) / turns
            elif size > turns * tape:
                done = [Piece(first.start, first.turns + sum(p.turns for p in more)) for first, *more in _pairs(done)]
                size = sum(p.start.nbytes for p in done)
                turns *= 2

    def _tape_of(self, piece: Piece) -> int:
        """How many bytes the tape of a piece takes."""
        shadows = {at: np.zeros_like(self.arrays[at]) for kind, at in self.pieces.shadows if kind == "array"}
        numbers, _ = self._back(piece, [np.zeros_like(c)[()] for c in self.leaves], shadows, None)
        return int(numbers[-1])

    def _checkpoint(self, where: int, numbers: Sequence[Any], pointers: Sequence[int], owners: Sequence[Any]) -> Checkpoint:
        """Where it has stopped.  Nobody else has the owners' arrays; those that are not read any more are let go."""
        held = [0 if array is None else address_of(array) for array in owners]
        found = {at: array.reshape(-1, order="A") for at, array in zip(held, owners) if array is not None}
        within = [self._array_of(pointer, found) for pointer in pointers]
        read = {held[k] for k in self.pieces.live[where - 1]}.union(within)
        place = {at: k for k, at in enumerate(at for at in found if at in read)}
        return Checkpoint(
            where,
            numbers,
            [found[at] for at in place],
            [place.get(at, -1) for at in held],
            [(place[at], p - at) if at in place else (-1, p) for at, p in zip(within, pointers)],
            self._written(),
        )

    def _array_of(self, pointer: int, found: Mapping[int, np.ndarray]) -> int:
        """Where that of the arrays lies which an address is in, 0: in none.  One of no elements may point behind an array."""
        for at, array in found.items():
            if at <= pointer < at + array.nbytes:
                return at
        given = [(address_of(array), array.nbytes) for array in self.arrays.values()]
        if not any(at <= pointer < at + size for at, size in given):
            for at, array in found.items():
                if pointer == at + array.nbytes:
                    return at
        return 0

    def _written(self) -> dict[int, np.ndarray]:
        return {g.at: self.arrays[g.at].copy() for g in self.pieces.of.given if g.is_written}

    def _to_resume(self, piece: Piece) -> list[Any]:
        return self._resumed(piece)[0]

    def _resumed(self, piece: Piece) -> tuple[list[Any], list[np.ndarray]]:
        """The arguments with which it goes on, and the arrays among these that it had made."""
        start = piece.start
        for at, held in start.written.items():
            np.copyto(self.arrays[at], held)
        arrays = [a.copy() for a in start.arrays]
        bases = [address_of(a) for a in arrays]
        pointers = [at if k < 0 else bases[k] + at for k, at in start.pointers]
        owners = [None if k < 0 else arrays[k] for k in start.owners]
        return [*self.given, start.where, piece.turns, *start.numbers, *pointers, *owners], arrays

    # -- backward ---------------------------------------------------------------------------------------------------------------
    def backward(self, done: list[Piece], shadows: dict[int, np.ndarray]) -> Gradients:
        behind: _Behind | None = None
        while done:
            piece = done.pop()
            numbers, behind = self._back(piece, self.leaves, shadows, behind)
            shadows = behind.shadows
            self.taken += int(numbers[-1])
        return numbers[: self.pieces.n_numbers], shadows

    def _back(
        self, piece: Piece, leaves: Sequence[Any], shadows: Mapping[int, np.ndarray], behind: _Behind | None
    ) -> tuple[Sequence[Any], _Behind]:
        pieces, start = self.pieces, piece.start
        found: dict[str, Any] = {}

        def arguments() -> list[Any]:
            given, arrays = self._resumed(piece)
            own = {at: shadow.copy() for at, shadow in shadows.items()}
            of_made = [np.zeros_like(a) for a in arrays]
            found.update(own=own, of_made=of_made)
            places = {"owner": self._owners(start, of_made), "pointer": self._pointers(start, own, of_made)}
            more = [own[k].reshape(-1) if kind == "array" else places[kind][k] for kind, k in pieces.shadows]
            return [*given, *leaves, *self._cotangents(behind), *more, UNLIMITED]

        numbers = pieces.backward.run(arguments)
        by = dict(zip(pieces.gradients, numbers))
        return numbers, _Behind(start, by, found["of_made"], found["own"])

    def _cotangents(self, behind: _Behind | None) -> list[Any]:
        """What the gradients by a checkpoint are to the piece before it; None: the loop ends with that."""
        pieces = self.pieces
        nothing = [np.empty(0, dtype) for dtype, is_active in pieces.owners if is_active]
        if behind is None:
            return [*(dtype.type(0) for _, dtype in pieces.chained), *nothing]
        arrays: list[np.ndarray] = []
        passed: set[int] = set()
        for k, (dtype, is_active) in zip(behind.start.owners, pieces.owners):
            if is_active:  # what several hold is passed once
                arrays.append(np.empty(0, dtype) if k < 0 or k in passed else behind.of_made[k])
                passed.add(k)
        return [*(behind.numbers[name] for name, _ in pieces.chained), *arrays]

    @staticmethod
    def _owners(start: Checkpoint, of_made: Sequence[np.ndarray]) -> list[int]:
        return [0 if k < 0 else address_of(of_made[k]) for k in start.owners]

    def _pointers(self, start: Checkpoint, own: Mapping[int, np.ndarray], of_made: Sequence[np.ndarray]) -> list[int]:
        """Where the gradients lie by the elements that addresses are of."""
        spans = [(address_of(self.arrays[at]), shadow) for at, shadow in own.items()]
        found = []
        for k, at in start.pointers:
            if k >= 0:
                found.append(address_of(of_made[k]) + at)
            else:
                inside = [address_of(s) + at - low for low, s in spans if low <= at < low + s.nbytes]
                found.append(inside[0] if inside else 0)
        return found


@dataclass(frozen=True)
class _Behind:
    """Gradients by what a checkpoint holds: numbers, arrays that the loop had made, arrays that it was given."""

    start: Checkpoint
    numbers: Mapping[str, Any]
    of_made: Sequence[np.ndarray]
    shadows: dict[int, np.ndarray]


def address_of(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def _pairs(pieces: Sequence[Piece]) -> list[Sequence[Piece]]:
    return [pieces[k : k + 2] for k in range(0, len(pieces), 2)]


__all__ = ["LoopPieces"]
