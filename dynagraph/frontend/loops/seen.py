"""What became of each loop, and why native loops were left: for `dump`, `explain` and `f.stats.side_exits`."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dynagraph.frontend.bytecode.decode import JUMPS, Program
from dynagraph.frontend.bytecode.liveness import loop_heads, reachable, successors
from dynagraph.frontend.executor.breaks import Break, Reason
from dynagraph.frontend.loops.builder import Frame, Way
from dynagraph.frontend.loops.capture import NativeLoop, NotMade
from dynagraph.frontend.loops.reasons import NOT_NATIVE, OTHER_TYPE, RAISES, SIDE_EXITS
from dynagraph.ir.passes.parallel_regions import with_copies
from dynagraph.ir.passes.tidy_regions import tidied
from dynagraph.ir.region_loops import natural_loops, reached_from
from dynagraph.ir.regions import CHECKED, CallFunction, Checked, Exit, Interruptible, Position, Region, Require
from dynagraph.location import Location

WAYS = {
    "native": "runs as machine code",
    "unrolled": "is unrolled",
    "outlined": "stays in Python, and its body is compiled once for all turns",
    "hosted": "goes from turn to turn in C, and its body is compiled once for all turns",
    "python": "stays in Python",
}


@dataclass(frozen=True)
class LoopSeen:
    """A loop of the user's program.  `way`: one of WAYS; `detail`: what there is to say of it."""

    location: Location
    way: str
    reason: Reason | None = None
    detail: str = ""

    @property
    def sentence(self) -> str:
        text = linecache.getline(self.location.filename, self.location.line).strip()
        what = f"`{text}` " if text else "the loop "
        why = ": ".join(filter(None, [self.reason.what if self.reason is not None else "", self.detail]))
        return f"{self.location}: {what}{WAYS[self.way]}{f'; {why}' if why else ''}"


def line_of(program: Program, head: int) -> int:
    """The line of a loop's statement: of a while loop, that of the test with which a turn ends."""
    first = program.instructions[head]
    back = [program.instructions[k].line for k in _jumps_back(program, head)]
    return first.line if first.op == "FOR_ITER" else min([first.line, *back])


def _jumps_back(program: Program, head: int) -> list[int]:
    return [k for k, i in enumerate(program.instructions) if k > head and i.op in JUMPS and i.value == head]


def _is_in(program: Program, head: int, index: int) -> bool:
    """Whether an instruction stands in a loop."""
    return head <= index <= max(_jumps_back(program, head), default=head)


# -- loops -----------------------------------------------------------------------------------------------------------------


def loops_seen(
    program: Program, refused: Mapping[int, NotMade], outlined: int | None, stopped_at: tuple[int, Break] | None
) -> list[LoopSeen]:
    """The loops that a capture came to and that are not native.

    `refused`: by their heads.  `outlined`: the head of that which runs in Python with a compiled body.  `stopped_at`: the
    instruction where the capture ended.
    """
    found = []
    for head, made in refused.items():
        where = Location(program.code.co_filename, line_of(program, head))
        if head == outlined:
            way = "hosted" if made.reason.name == "ON_DEVICE" else "outlined"
            found.append(LoopSeen(where, way, made.reason, made.detail))
        elif stopped_at is not None and _is_in(program, head, stopped_at[0]):
            short = made.reason.name in ("FEW_TURNS", "ITEMS")
            found.append(LoopSeen(where, "python", NOT_NATIVE["AROUND_BREAK"] if short else made.reason, stopped_at[1].happened))
        else:
            found.append(LoopSeen(where, "unrolled", made.reason, made.detail))
    return found


def native_loops_seen(loop: NativeLoop) -> list[LoopSeen]:
    """The loops of a region, those of calls that it inlines included."""
    heads = {number: frame for number, frame in loop.heads.items() if frame.ip in loop_heads(frame.program)}
    places = {number: _place(frame, line_of(frame.program, frame.ip)) for number, frame in heads.items()}
    copies = with_copies(tidied(loop.region)).copies
    native: dict[Location, list[str]] = {places[n]: [] for n in _cyclic(loop.region) if n in places}
    for numbers in _own_blocks(loop.region):
        for where in {places[n] for n in numbers if n in places}:
            native.setdefault(where, []).extend(copies[n] for n in sorted(numbers) if n in copies)
    found = {}
    for number, frame in heads.items():
        where, left = places[number], _of_turns(frame, loop.ways)
        called = _of_turns(frame, loop.calls_at)
        if where in native:
            rare = f"Python does {', '.join(left)}" if left else ""
            calls = f"calls {', '.join(called)} out" if called else ""
            found[where] = LoopSeen(where, "native", None, "; ".join(filter(None, dict.fromkeys([*native[where], calls, rare]))))
        elif left:
            found[where] = LoopSeen(where, "python", NOT_NATIVE["EACH_TURN_LEAVES"], ", ".join(left))
        else:
            found[where] = LoopSeen(where, "unrolled")
    return [found[where] for where in sorted(found, key=lambda w: (w.filename, w.line))]


def _of_turns(head: Frame, ways: Iterable[Way]) -> list[str]:
    """What Python does of a loop's turns, as these say."""
    reasons: dict[int, dict[str, None]] = {}
    for way in ways:
        if way.reason in ("", OTHER_TYPE, RAISES):
            continue
        for frame in way.frames:
            if frame.program is head.program and _is_in(head.program, head.ip, frame.ip):
                reasons.setdefault(_place_of(way).line, {})[way.reason] = None
    return [f"line {line} ({', '.join(reasons[line])})" for line in sorted(reasons)]


def _cyclic(region: Region) -> set[int]:
    """The blocks that control may come back to, in loops that are entered at several places too."""
    return {b.number for b in region.blocks if b in reached_from(b)}


def _own_blocks(region: Region) -> list[set[int]]:
    """The blocks of each loop that are in no loop within it."""
    loops = [{b.number for b in found.blocks} for found in natural_loops(region)]
    return [inside - {n for other in loops if other < inside for n in other} for inside in loops]


# -- exits -----------------------------------------------------------------------------------------------------------------


def side_exits(loop: NativeLoop, taken: Iterable[int]) -> Counter[str]:
    """How often a native loop was left from within, by line and reason."""
    counts: Counter[str] = Counter()
    reasons = _reasons_of(loop.region)
    for exit, way, n in zip(loop.region.exits, loop.ways, taken):
        if n and _is_side_exit(way):
            found = list(dict.fromkeys(SIDE_EXITS[name].what for name in reasons.get(exit, ())))
            counts[f"{_place_of(way)}: {way.reason or ', or '.join(found)}"] += n
    return counts


def calls_out(loop: NativeLoop, made: Iterable[int]) -> Counter[str]:
    """How often a native loop called a Python function, by line and what that did."""
    counts: Counter[str] = Counter()
    for way, n in zip(loop.calls_at, made):
        if n:
            counts[f"{_place_of(way)}: {way.reason}"] += n
    return counts


def _reasons_of(region: Region) -> dict[Exit, list[str]]:
    found: dict[Exit, list[str]] = {}
    for i in region.instructions():
        name = ""
        if isinstance(i, Checked):
            name = CHECKED[i.function].exit
        elif isinstance(i, Position):
            name = "INDEX"
        elif isinstance(i, Require):
            name = "CONDITION"
        elif isinstance(i, CallFunction):
            name = "CALL"
        elif isinstance(i, Interruptible):
            name = "SIGNAL"
        exit: Any = getattr(i, "exit", None)
        if name and isinstance(exit, Exit):
            found.setdefault(exit, []).append(name)
    return found


def _place_of(way: Way) -> Location:
    frame = way.frames[-1]
    return _place(frame, frame.program.instructions[frame.ip].line)


def _place(frame: Frame, line: int) -> Location:
    return Location(frame.program.code.co_filename, line)


def _is_side_exit(way: Way) -> bool:
    """Whether the loop goes on after it: not for its end, nor for what comes behind it."""
    return any(_may_come_back(frame) for frame in way.frames)


def _may_come_back(frame: Frame) -> bool:
    program = frame.program
    return frame.ip in reachable(program, *successors(program, frame.ip))


__all__ = ["LoopSeen", "calls_out", "loops_seen", "native_loops_seen", "side_exits"]
