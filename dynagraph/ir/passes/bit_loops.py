"""Loops that count bits do all their turns but the last one at once.

A turn takes the lowest bit off a positive int (``k &= k - 1``) or shifts it (``k >>= 1``), and adds constants to other ints; the
loop ends when none is left.  The turns before the last one are as many as other bits are set, or as it has other digits.  None of
them leaves by an exit, as sums that grow step by step fit in 64 bits where the last one does.  The last turn is as the loop has it.
"""

from __future__ import annotations

from dataclasses import dataclass

from dynagraph.ir import dtypes
from dynagraph.ir.expr import Expr, call, const, power_of_two, var
from dynagraph.ir.passes.fast_loops import redirect
from dynagraph.ir.region_liveness import Reads, live_variables
from dynagraph.ir.region_loops import Loop, innermost_loops, predecessors, reverse_postorder
from dynagraph.ir.regions import (
    Block,
    Branch,
    Checked,
    Instruction,
    Interruptible,
    Jump,
    Region,
    Require,
    Set,
    assigned,
    substituted,
)

I64 = dtypes.int64
SUMS = {"int_add": 1, "add": 1, "exact_add": 1, "int_sub": -1, "sub": -1, "exact_sub": -1}
MOST_STEP = 2**50  # so that 63 steps fit in 64 bits


@dataclass(frozen=True)
class BitLoop:
    """`bits`: the variable that loses bits, by shifts where `shifts` says so; `steps`: what is added to others in each turn."""

    bits: Expr
    shifts: bool
    steps: dict[Expr, Expr]
    tests_at_end: bool


def hasten_bit_loops(region: Region) -> None:
    """Changes the region."""
    loops = innermost_loops(region)
    found = [(loop, bits) for loop in loops if (bits := _bit_loop(region, loop)) is not None]
    before = predecessors(region.blocks)
    for loop, bits in found:
        ahead = _ahead(region, loop, bits)
        for block in set(before[loop.header]) - set(loop.latches):
            redirect(block, {loop.header: ahead})
        region.blocks.append(ahead)
    if found:
        region.blocks = reverse_postorder(region.blocks[0])


def _bit_loop(region: Region, loop: Loop) -> BitLoop | None:
    """What the loop is, where it is one."""
    body = [i for block in loop.blocks for i in block.body]
    if len(loop.latches) != 1 or loop.header is region.blocks[0] or not all(map(_only_computes, body)):
        return None
    ends = [block.end for block in loop.blocks if isinstance(block.end, Branch)]
    if len(ends) != 1:  # one way through the turn, and one out of it
        return None
    values: dict[str, Expr] = {}
    tests = [test for block in loop.blocks if (test := _run(block, values, loop)) is not None]
    carried = {assigned(i) for i in body} & live_variables(loop.header, Reads())[loop.header]
    changed = {var(n, region.variables[n]): values[n] for n in carried if n is not None}  # type: ignore[arg-type]
    bits = [v for v, value in changed.items() if _shrinks(v, value)]
    if len(bits) != 1 or tests[0] not in _tests(bits[0]) + _tests(changed[bits[0]]):
        return None
    steps = {v: value for v, value in changed.items() if v != bits[0]}
    if not all(v.dtype is I64 and _step(v, value) is not None for v, value in steps.items()):
        return None
    return BitLoop(bits[0], changed[bits[0]].op != "and", steps, tests[0] in _tests(changed[bits[0]]))


def _only_computes(i: Instruction) -> bool:
    return isinstance(i, (Set, Checked, Interruptible)) and not isinstance(getattr(i, "exit", None), Block)


def _run(block: Block, values: dict[str, Expr], loop: Loop) -> Expr | None:
    """Goes through a block: what variables become, of those that the turn began with.  Gives what is tested for another turn."""
    of = substituted(values)
    for i in block.body:
        made = _made(i, of)
        if made is not None:
            values[str(assigned(i))] = made
            of = substituted(values)
    if not isinstance(block.end, Branch):
        return None
    test = of(block.end.test)
    return test if block.end.then in loop.blocks else Expr("not", (test,), dtypes.bool_)


def _made(i: Instruction, of: object) -> Expr | None:
    if isinstance(i, Set):
        return of(i.value)  # type: ignore[operator,no-any-return]
    return Expr(i.function, tuple(map(of, i.args)), I64) if isinstance(i, Checked) else None  # type: ignore[call-overload]


def _shrinks(bits: Expr, value: Expr) -> bool:
    if bits.dtype is not I64 or len(value.args) != 2:
        return False
    x, y = value.args
    if value.op == "and":
        return any(a == bits and _step(bits, b) == -1 for a, b in ((x, y), (y, x)))
    shifted = value.op in ("shr", "int_rshift") and y.op == "const" and y.value == 1
    return x == bits and (shifted or (value.op in ("floordiv", "int_floordiv") and power_of_two(y) == 1))


def _tests(bits: Expr) -> list[Expr]:
    """Ways to ask whether there are bits left."""
    zero = const(0, I64)
    return [call("ne", bits, zero), call("gt", bits, zero), Expr("not", (call("eq", bits, zero),), dtypes.bool_)]


def _step(v: Expr, value: Expr) -> int | None:
    """What is added to a variable."""
    if value == v:
        return 0
    sign = SUMS.get(value.op)
    if sign is None or len(value.args) != 2:
        return None
    x, y = value.args if value.args[0] == v or sign < 0 else value.args[::-1]
    step = y.value if x == v and y.op == "const" and y.dtype is I64 else None
    return sign * step if isinstance(step, int) and abs(step) < MOST_STEP else None


# -- ahead of the loop ---------------------------------------------------------------------------------------------------


def _ahead(region: Region, loop: Loop, found: BitLoop) -> Block:
    """Does turns, or none where it cannot do all of them, and then goes on with the loop."""
    header, bits = loop.header, found.bits
    block = Block(max(b.number for b in region.blocks) + 1, header.line, [], Jump(header))
    block.body.append(Require(call("gt", bits, const(0, I64)), header))
    count = Expr("bit_length" if found.shifts else "bit_count", (bits,), I64)
    turns = _set(region, block, Expr("sub", (count, const(1, I64)), I64))
    after = {v: _advanced(region, block, v, value, turns, header) for v, value in found.steps.items() if value != v}
    last = const(1, I64) if found.shifts else Expr("highest_bit", (bits,), I64)
    for v, value in {**after, bits: last}.items():
        block.body.append(Set(str(v.value), value))
    if found.tests_at_end:
        _finish(loop, block)
    return block


def _finish(loop: Loop, ahead: Block) -> None:
    """The last turn, which need not ask whether there is another one."""
    at = loop.header
    ahead.body += at.body
    while isinstance(at.end, Jump):
        at = at.end.block
        ahead.body += at.body
    assert isinstance(at.end, Branch)
    ahead.end = Jump(at.end.otherwise if at.end.then in loop.blocks else at.end.then)


def _advanced(region: Region, block: Block, v: Expr, value: Expr, turns: Expr, header: Block) -> Expr:
    added = Expr("mul", (turns, const(_step(v, value) or 0, I64)), I64)
    if not value.op.startswith("int_"):
        return _set(region, block, Expr("add", (v, added), I64))
    made = _fresh(region)
    block.body.append(Checked(str(made.value), "int_add", (v, added), header))
    return made


def _set(region: Region, block: Block, value: Expr) -> Expr:
    made = _fresh(region)
    block.body.append(Set(str(made.value), value))
    return made


def _fresh(region: Region) -> Expr:
    name = f"s{len(region.variables)}"
    region.variables[name] = I64
    return var(name, I64)
