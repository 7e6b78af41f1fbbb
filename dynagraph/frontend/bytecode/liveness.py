"""Liveness analysis: the local names and cells that are still read from an instruction on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dynagraph.frontend.bytecode.decode import JUMPS, Instruction, Program

CELL_OPS = frozenset({"LOAD_DEREF", "STORE_DEREF", "DELETE_DEREF", "LOAD_CLOSURE", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"})
READS = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"}) | CELL_OPS
ENDS = frozenset({"RETURN_VALUE", "RAISE_VARARGS", "RERAISE", "JUMP"})
KEEPS_ALL_LOCALS = "super"  # without arguments it looks for the first local and a cell
DEBUGS = frozenset({"breakpoint", "set_trace", "settrace", "setprofile"})
SEES_FRAME = frozenset({"locals", "eval", "exec", "_getframe", "currentframe"}) | DEBUGS
SEES_FRAME_WITHOUT_ARGUMENTS = frozenset({"vars", "dir"})
NAMES = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD"})


def successors(program: Program, index: int) -> list[int]:
    """Where control may go from an instruction, by exceptions too."""
    i = program.instructions[index]
    found = [] if i.op in ENDS else [index + 1]
    if i.op in JUMPS:
        found.append(i.value)
        if i.op == "FOR_ITER" and program.instructions[i.value - 1].op == "END_FOR":
            found.append(i.value - 1)  # the marker that the interpreter wants to find there
    handler = program.handlers[index]
    if handler is not None:
        found.append(handler.target)
    return [s for s in found if s < len(program.instructions)]


def loop_heads(program: Program) -> frozenset[int]:
    """The instructions that a jump goes back to."""
    instructions = program.instructions
    return frozenset(i.value for k, i in enumerate(instructions) if i.op in JUMPS and i.op != "SEND" and i.value <= k)


def computed_in_loops(program: Program) -> dict[int, frozenset[str]]:
    """By the heads of loops: the local variables that the loop sets to what it has just computed, such as counters."""
    instructions = program.instructions
    found: dict[int, frozenset[str]] = {}
    for last, jump in enumerate(instructions):
        if jump.op in JUMPS and jump.op != "SEND" and jump.value <= last:
            stores = (k for k in range(jump.value + 1, last) if instructions[k].op == "STORE_FAST")
            names = {instructions[k].value for k in stores if instructions[k - 1].op == "BINARY_OP"}
            found[jump.value] = found.get(jump.value, frozenset()) | names
    return found


@dataclass(frozen=True)
class OfLoop:
    """Local variables of a loop: `read` where a turn may do so before it sets them; `left`: set, and not read before that.

    `sums`: those of the former that are only read to add to them, to subtract or to multiply.
    """

    read: frozenset[str]
    left: frozenset[str]
    sums: frozenset[str]


_of_loops: dict[int, tuple[Program, dict[int, OfLoop]]] = {}


def left_by_loops(program: Program) -> dict[int, OfLoop]:
    """By the heads of loops, looked up once; none where all locals are looked at."""
    found = _of_loops.get(id(program))
    if found is None or found[0] is not program:
        if len(_of_loops) > 256:
            _of_loops.clear()
        made = {} if _keeps_all(program) else {head: _of_loop(program, head) for head in loop_heads(program)}
        found = _of_loops[id(program)] = (program, made)
    return found[1]


def _of_loop(program: Program, head: int) -> OfLoop:
    inside = _natural_loop(program, head)
    bits: dict[str, int] = {}
    steps = [_step(program, index, bits) for index in sorted(inside, reverse=True)]
    within = [(at, [s for s in on if s in inside], k, None if h not in inside else h, reads) for at, on, k, h, reads in steps]
    live = _solved(within, len(program.instructions))
    read = frozenset(name for name, bit in bits.items() if live[head] & bit)
    stores = {index: i.value for index in inside if (i := program.instructions[index]).op == "STORE_FAST"}
    added = Counter(name for index, name in stores.items() if _adds(program.instructions[index - 1]))
    reads = Counter(i.value for index in inside if (i := program.instructions[index]).op in READS)
    return OfLoop(read, frozenset(stores.values()) - read, frozenset(n for n in read if n in added and added[n] == reads[n]))


def _adds(i: Instruction) -> bool:
    return i.op == "BINARY_OP" and str(i.value).removesuffix("=") in ("+", "-", "*")


def _natural_loop(program: Program, head: int) -> set[int]:
    """The instructions from which control may come back to a loop's head."""
    before: dict[int, list[int]] = {}
    for index in range(len(program.instructions)):
        for following in successors(program, index):
            before.setdefault(following, []).append(index)
    inside = {head}
    waiting = [k for k in before.get(head, ()) if k >= head]
    while waiting:
        index = waiting.pop()
        if index not in inside:
            inside.add(index)
            waiting += before.get(index, ())
    return inside


def start_of(program: Program) -> int:
    """The first instruction after those that set up the frame."""
    instructions = program.instructions
    index = 1 + next((k for k, i in enumerate(instructions) if i.op == "RESUME"), -1)
    while instructions[index].op == "JUMP":
        index = instructions[index].value
    return index


def reachable(program: Program, *starts: int) -> list[int]:
    """The instructions that control may come to, in order."""
    seen: set[int] = set()
    waiting = list(starts)
    while waiting:
        index = waiting.pop()
        if index not in seen:
            seen.add(index)
            waiting += successors(program, index)
    return sorted(seen)


def sees_frame(program: Program) -> bool:
    """Whether code may look at its own frame, so that no other can stand in for it."""
    for index, i in enumerate(program.instructions):
        if i.op in NAMES and i.value in SEES_FRAME:
            return True
        asks = i.op == "LOAD_GLOBAL" and i.value in SEES_FRAME_WITHOUT_ARGUMENTS
        if asks and any(j.op == "CALL" and j.value == 0 for j in program.instructions[index + 1 : index + 3]):
            return True
    return False


_live: dict[int, tuple[Program, list[frozenset[str]]]] = {}


def live_names_of(program: Program) -> list[frozenset[str]]:
    """`live_names`, looked up once."""
    found = _live.get(id(program))
    if found is None or found[0] is not program:
        if len(_live) > 256:
            _live.clear()
        found = _live[id(program)] = (program, live_names(program))
    return found[1]


def live_names(program: Program) -> list[frozenset[str]]:
    """For each instruction, the locals and cells that may be read before they are set, from it on."""
    code = program.code
    if _keeps_all(program):
        everything = frozenset(code.co_varnames + code.co_cellvars)
        return [everything] * (len(program.instructions) + 1)
    bits: dict[str, int] = {}  # sets of names as the bits of ints
    steps = [_step(program, index, bits) for index in range(len(program.instructions) - 1, -1, -1)]
    live = _solved(steps, len(program.instructions))
    sets = {found: frozenset(name for name, bit in bits.items() if found & bit) for found in set(live)}
    return [sets[found] for found in live]


def _keeps_all(program: Program) -> bool:
    return any(i.op in NAMES and i.value == KEEPS_ALL_LOCALS for i in program.instructions)


Step = tuple[int, list[int], int, "int | None", int]


def _solved(steps: list[Step], length: int) -> list[int]:
    """What is live before each of so many instructions."""
    live = [0] * (length + 1)
    changed = True
    while changed:
        changed = False
        for index, following, kept, handler, reads in steps:
            now = 0
            for s in following:
                now |= live[s]
            now = now & kept | reads | (live[handler] if handler is not None else 0)
            if now != live[index]:
                live[index], changed = now, True
    return live


def _step(program: Program, index: int, bits: dict[str, int]) -> Step:
    """An instruction, where control may go from it, what it leaves as it is, its handler, which finds all so, and what it reads."""
    i, handler = program.instructions[index], program.handlers[index]
    named = i.op == "STORE_FAST" or i.op in READS
    bit = bits.setdefault(i.value, 1 << len(bits)) if named else 0
    kept, reads = (~bit, 0) if i.op == "STORE_FAST" else (-1, bit)
    return index, successors(program, index), kept, None if handler is None else handler.target, reads
