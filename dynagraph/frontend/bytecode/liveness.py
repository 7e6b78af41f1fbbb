"""Liveness analysis: the local names and cells that are still read from an instruction on."""

from __future__ import annotations

from dynagraph.frontend.bytecode.decode import JUMPS, Program

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
    if any(i.op in NAMES and i.value == KEEPS_ALL_LOCALS for i in program.instructions):
        everything = frozenset(code.co_varnames + code.co_cellvars)
        return [everything] * (len(program.instructions) + 1)
    bits: dict[str, int] = {}  # sets of names as the bits of ints
    live = [0] * (len(program.instructions) + 1)
    steps = [_step(program, index, bits) for index in range(len(program.instructions) - 1, -1, -1)]
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
    sets = {found: frozenset(name for name, bit in bits.items() if found & bit) for found in set(live)}
    return [sets[found] for found in live]


def _step(program: Program, index: int, bits: dict[str, int]) -> tuple[int, list[int], int, int | None, int]:
    """An instruction, where control may go from it, what it leaves as it is, its handler, which finds all so, and what it reads."""
    i, handler = program.instructions[index], program.handlers[index]
    named = i.op == "STORE_FAST" or i.op in READS
    bit = bits.setdefault(i.value, 1 << len(bits)) if named else 0
    kept, reads = (~bit, 0) if i.op == "STORE_FAST" else (-1, bit)
    return index, successors(program, index), kept, None if handler is None else handler.target, reads
