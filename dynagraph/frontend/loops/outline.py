"""Loops whose body becomes a function of its own: the loop stays in Python, and the body is compiled once for all turns.

The function takes the item and the variables that turns hand on, and gives the number of the way by which it leaves, 0 for the next
turn, and the variables.  It is compiled like any other: as a graph, with native loops inside, or in parts.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, repeat
from operator import length_hint
from typing import Any, Union

from dynagraph._core._dispatch import HostLoop, Tail
from dynagraph.frontend.bytecode.decode import JUMPS, Instruction, Program
from dynagraph.frontend.bytecode.liveness import ENDS, live_names_of, sees_frame, successors
from dynagraph.frontend.bytecode.resume import BreakPoint, FunctionBuilder, Resumes, Target
from dynagraph.frontend.kinds.values import Const
from dynagraph.frontend.loops.exits import call_unwatched

ITEM = "item "  # a parameter's name that no Python code can have
UNSUITABLE = frozenset(
    {"YIELD_VALUE", "SEND", "BEFORE_WITH", "RETURN_GENERATOR", "DELETE_FAST", "MAKE_CELL", "STORE_DEREF", "LOAD_CLOSURE"}
)
Label = Union[int, str]  # an instruction of the original, or a way out
Run = tuple[Union[int, None], Sequence[Any]]
FAR = 2**31
MOST_IN_VAIN = 4  # bursts for which programs had to be made, one after the other
LONG_BURST = 1e-3  # seconds


@dataclass(frozen=True, eq=False)
class Outline:
    """A loop and its body.

    `head`: where a turn begins: a FOR_ITER, or the first instruction of a while's turn.  `inside`: the instructions of a turn.
    `ways`: where control goes from these, the next turn first.  `names`: the variables that turns hand on; `n_bound` of these, the
    first ones, are set before the first turn.
    """

    program: Program
    head: int
    inside: tuple[int, ...]
    ways: tuple[int, ...]
    names: tuple[str, ...]
    n_bound: int

    @property
    def is_for(self) -> bool:
        return self.program.instructions[self.head].op == "FOR_ITER"

    @property
    def end(self) -> int:
        """Where a for loop goes on when there are no more items."""
        return int(self.program.instructions[self.head].value)

    def body(self, target: Target) -> Target:
        """The function of one turn."""
        return replace(Target.of(self._function(target, False)), is_body=True)  # what comes after a break in it ends with the turn

    def whole(self, target: Target) -> types.FunctionType:
        """The function of all turns.  A for loop's takes the iterator in the item's place; way 0: there are no more items."""
        return self._function(target, True)

    def _function(self, target: Target, whole: bool) -> types.FunctionType:
        program = self.program
        builder = FunctionBuilder(program, program.instructions[self.head].line)
        placed: dict[Label, int] = {}
        jumps: list[tuple[int, Label]] = []
        holds_iterator = whole and self.is_for

        def label(to: int) -> Label:
            return f"way {self.ways.index(to)}" if to in self.ways and not (whole and to == self.head) else to

        def jump(to: Label) -> None:
            jumps.append((builder.add("JUMP", None), to))

        if self.is_for:
            builder.add("LOAD_FAST", ITEM)
        builder.add("RESUME", 0)
        if holds_iterator:
            first = program.instructions[self.head]
            placed[self.head] = builder.add("FOR_ITER", None, first.positions)
            jumps.append((placed[self.head], "way 0"))
        jump(self.head + self.is_for)
        for old in self.inside:
            if old in placed:
                continue
            i = program.instructions[old]
            placed[old] = len(builder.instructions)
            if i.op in JUMPS:
                jumps.append((len(builder.instructions), label(i.value)))
            builder.instructions.append(i)
            builder.index_of.append(old)
            if i.op not in ENDS and (old + 1 not in self.inside or old + 1 == self.head):
                jump(label(old + 1))
        for k in range(len(self.ways)):
            if holds_iterator and k == 0 and program.instructions[self.end - 1].op == "END_FOR":
                builder.add("END_FOR", None)
            placed[f"way {k}"] = len(builder.instructions)
            if holds_iterator and k:
                builder.add("POP_TOP", None)
            builder.add("LOAD_CONST", k)
            for name in self.names:
                builder.add("LOAD_FAST", name)
            builder.add("BUILD_TUPLE", 1 + len(self.names))
            builder.add("RETURN_VALUE", None)
        for at, to in jumps:
            builder.aim(at, placed[to])
        return builder.function(target.root, [ITEM, *self.names] if self.is_for else list(self.names))


def outline(program: Program, head: int, bound: tuple[str, ...]) -> Outline | None:
    """The loop at `head`, with these names set before its first turn; None where its body cannot be a function of its own."""
    if sees_frame(program) or program.code.co_cellvars:
        return None
    first = program.instructions[head]
    start = head + (first.op == "FOR_ITER")
    inside = _turn(program, head, start)
    instructions = {k: program.instructions[k] for k in inside}
    if any(i.op in UNSUITABLE or program.handlers[k] is not None for k, i in instructions.items()):
        return None
    if any(i.op == "FOR_ITER" and (i.value not in inside or i.value == head) for i in instructions.values()):
        return None
    ways = [head]
    for k in sorted(inside):
        ways += [s for s in successors(program, k) if s not in inside and s not in ways]
    live = live_names_of(program)
    ends = [live[w] for w in ways] + ([live[first.value]] if first.op == "FOR_ITER" else [])
    stored = {i.value for i in instructions.values() if i.op == "STORE_FAST"}
    wanted = frozenset().union(*ends)
    new = sorted((stored & wanted) - set(bound))
    if new and (set(new) & live[start] or not set(new) <= _always_set(program, inside, head, start, set(bound))):
        return None  # a variable that may have no value
    return Outline(program, head, tuple(sorted(inside)), tuple(ways), (*bound, *new), len(bound))


def _turn(program: Program, head: int, start: int) -> set[int]:
    """The instructions from which control may come back to the head, without passing it."""
    reached: set[int] = set()
    waiting = [start]
    before: dict[int, list[int]] = {}
    while waiting:
        k = waiting.pop()
        if k in reached or (k == head and k != start):
            continue
        reached.add(k)
        for s in successors(program, k):
            before.setdefault(s, []).append(k)
            if s != head:
                waiting.append(s)
    inside: set[int] = set()
    waiting = list(before.get(head, []))
    while waiting:
        k = waiting.pop()
        if k in inside or k not in reached:
            continue
        inside.add(k)
        if k != start:
            waiting += before.get(k, [])
    return inside


def _always_set(program: Program, inside: set[int], head: int, start: int, bound: set[str]) -> set[str]:
    """The names that have a value wherever control leaves a turn."""
    known: dict[int, set[str]] = {start: set(bound)}
    waiting, leaving = [start], []
    while waiting:
        k = waiting.pop()
        i: Instruction = program.instructions[k]
        after = known[k] | {i.value} if i.op == "STORE_FAST" else known[k]
        for s in successors(program, k):
            if s not in inside or s == head:
                leaving.append((s, after))
            elif s not in known or not known[s] <= after:
                known[s] = known[s] & after if s in known else set(after)
                waiting.append(s)
    found = None
    for _, names in leaving:
        found = names if found is None else found & names
    return found or set()


class Choice:
    """Which way the turns of a loop go: plain and compiled ones follow one another in bursts of the same length, until one way is
    seen to be faster.  Bursts in which a program had to be made do not count; where that does not end, turns go plainly.
    """

    def __init__(self, body: Any):
        self.body = body
        self.loops = 16  # for which the next choice holds
        self._begin()

    def _begin(self) -> None:
        self.chosen: bool | None = None
        self.plainly, self.turns, self.in_vain = False, 1, 0
        self.spent, self.bursts = [0.0, 0.0], 0
        self.hits = self._hits()

    def _hits(self) -> int:
        return sum(entry.hits for entry in self.body.entries)

    def next(self, left: int) -> tuple[bool, int | None]:
        """Whether to go plainly, and for how many turns; None: all that are `left`."""
        if self.chosen is None:
            self.hits = self._hits()
            return (self.plainly, self.turns) if self.turns < left else (False, None)
        self.left -= 1
        if self.left < 0:
            self.loops *= 2
            self._begin()
            return False, 1
        return self.chosen, None

    def note(self, plainly: bool, turns: int, took: float) -> None:
        """A burst."""
        if not plainly and self._hits() - self.hits < turns:
            self.in_vain += 1
            if self.in_vain == MOST_IN_VAIN:
                self._choose(True)
            return
        self.spent[plainly] += took
        self.plainly = not plainly
        if not plainly:
            return
        self.bursts += 1
        compiled, plain = self.spent
        ratio = max(compiled, plain) / max(min(compiled, plain), 1e-9)
        if self.bursts >= 6 or ratio > (1.5 if self.bursts >= 3 else 4 if compiled + plain > LONG_BURST else 1e9):
            self._choose(plain < compiled)
        elif took < LONG_BURST:
            self.turns *= 2

    def _choose(self, plainly: bool) -> None:
        self.chosen, self.left = plainly, self.loops


class OutlinedLoop:
    """Runs a loop whose body is a compiled function.  Called with the variables and the stack at the loop's head.

    Where it is measured, some turns run plainly, and the faster way takes the rest.
    """

    def __init__(self, loop: Outline, target: Target, point: BreakPoint, resumes: Resumes):
        self.loop, self.point, self.resumes = loop, point, resumes
        body = loop.body(target)
        self.body: Callable[..., Any] = resumes.compile(body)
        self.host = HostLoop(self.body)
        self.pause = resumes.pause(replace(point, names=list(loop.names), values=[Const(None)] * len(loop.names)))
        self.plain_body, self.plain_loop = body.function, loop.whole(target)
        for function in (self.plain_body, self.plain_loop):
            vars(function)["__dynagraph_disabled__"] = True  # where a call of it is watched, as a call of the user's
        self.choice = Choice(self.body) if resumes.measured else None
        self.targets: dict[tuple[int, bool], tuple[Any, list[int]]] = {}

    def __call__(self, *given: Any) -> Any:
        loop = self.loop
        stack = given[loop.n_bound :]
        turns = self._for if loop.is_for else self._while
        way, state = turns(given[: loop.n_bound], stack)
        if way is None:
            return self._leave(loop.end, state, stack[:-1], len(state) == len(loop.names))
        return self._leave(loop.ways[way], state, stack, True)

    def _for(self, state: Sequence[Any], stack: tuple[Any, ...]) -> Run:
        """All turns.  The way by which they were left, None where there are no more items, and the variables."""
        choice, iterator = self.choice, stack[-1]
        for item in iterator:
            state += (None,) * (len(self.loop.names) - len(state))  # type: ignore[operator]  # set before anybody reads them
            way, *state = self.body(item, *state)
            if way:
                return way, state
            break
        else:
            return None, state
        while True:
            plainly, turns = (False, None) if choice is None else choice.next(length_hint(iterator, FAR))
            start = time.perf_counter()
            if plainly:
                items = iterator if turns is None else islice(iterator, turns)
                way, *state = self.plain_loop(items, *state)
                done = turns
            else:
                way, done, *state = self._run(iterator, state, turns, stack)
            if way:
                return way, state
            if turns is None or choice is None or done != turns:
                return None, state
            choice.note(plainly, turns, time.perf_counter() - start)

    def _run(self, items: Any, state: Sequence[Any], turns: int | None, stack: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.host.run(items, tuple(state), -1 if turns is None else turns, self.pause, stack)

    def _while(self, state: Sequence[Any], stack: tuple[Any, ...]) -> Run:
        choice = self.choice
        state += (None,) * (len(self.loop.names) - len(state))  # type: ignore[operator]  # set before anybody reads them
        while True:
            plainly, turns = (False, None) if choice is None else choice.next(FAR)
            start = time.perf_counter()
            if not plainly:
                way, _, *state = self._run(None, state, turns, stack)
            elif turns is None:
                way, *state = self.plain_loop(*state)
            else:
                for _ in repeat(None, turns):
                    way, *state = self.plain_body(*state)
                    if way:
                        break
            if way:
                return way, state
            assert choice is not None and turns is not None
            choice.note(plainly, turns, time.perf_counter() - start)

    def _leave(self, index: int, state: Sequence[Any], stack: tuple[Any, ...], turned: bool) -> Tail:
        """Go on behind the loop; `turned`: there was a turn."""
        found = self.targets.get((index, turned))
        if found is None:  # the compiler's own calls are not the user's
            found = self.targets[index, turned] = call_unwatched(self._target, index, turned)
        resume, kept = found
        return Tail(resume, *(state[k] for k in kept), *stack)

    def _target(self, index: int, turned: bool) -> tuple[Any, list[int]]:
        """What goes on behind the loop, and which of the variables it takes."""
        live = live_names_of(self.loop.program)[index]
        names = self.loop.names if turned else self.loop.names[: self.loop.n_bound]
        kept = [k for k, name in enumerate(names) if name in live]
        shape = list(self.point.shape)
        if self.loop.is_for and index == self.loop.end:
            shape.pop()
        return self.resumes.resume(self.point, index, tuple(shape), tuple(names[k] for k in kept)), kept


__all__ = ["Outline", "OutlinedLoop", "outline"]
