"""Branches between two short arms of int operations become selects: both arms are computed, and one is taken.

Which arm comes next is often not to be foretold (``n // 2 if n % 2 == 0 else 3 * n + 1``), and a wrong guess costs the processor
more than a few operations.  The arms themselves stay, for what leaves the region: where a check in either fails, or a signal
waits, control goes on at the branch as it was, and nothing has happened yet.

Where an arm's checks are about one variable, a test that it is not large stands for all of them: products and sums then need not
wait for one another's checks.
"""

from __future__ import annotations

from dataclasses import replace

from dynagraph.ir import dtypes
from dynagraph.ir.expr import BY_POWERS_OF_TWO, Expr, power_of_two, var
from dynagraph.ir.region_liveness import Reads, live_variables
from dynagraph.ir.region_loops import natural_loops, predecessors, reverse_postorder
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
    with_operands,
)

CHEAP = (
    "var", "const", "add", "sub", "mul", "and", "or", "xor", "invert", "negative", "cast", "select",
    "eq", "ne", "lt", "le", "gt", "ge", "exact_add", "exact_sub", "exact_mul",
)  # fmt: skip
SHIFTS = ("int_lshift", "int_rshift")
MOST = 4  # operations of an arm
BOUNDS = (2**59, 2**30)  # below which a variable's products and sums may all fit in 64 bits: the first that does is taken
UNCHECKED = {"int_add": "add", "int_sub": "sub", "int_mul": "mul"}


def select_arms(region: Region) -> None:
    """Changes the region, within loops: elsewhere a wrong guess is one of few."""
    within = {block for loop in natural_loops(region) for block in loop.blocks}
    before = predecessors(region.blocks)
    number = max(b.number for b in region.blocks) + 1
    live: dict[Block, frozenset[str]] | None = None
    for block in region.blocks:
        if block in within and _is_wanted(region, block, before):
            live = live_variables(region.blocks[0], Reads()) if live is None else live
            _select(region, block, number, live)
            number += 1
    if live is not None:
        region.blocks = reverse_postorder(region.blocks[0])


def _is_wanted(region: Region, block: Block, before: dict[Block, list[Block]]) -> bool:
    end = block.end
    if not isinstance(end, Branch) or end.then is end.otherwise:
        return False
    arms = (end.then, end.otherwise)
    if any(before[arm] != [block] or not arm.body or not isinstance(arm.end, Jump) for arm in arms):
        return False
    if end.then.end.block is not end.otherwise.end.block:  # type: ignore[union-attr]
        return False
    computed = [arm.body[:-1] if _look(arm) else arm.body for arm in arms]
    return bool(_look(arms[0])) == bool(_look(arms[1])) and all(
        len(body) <= MOST and all(_is_cheap(region, i) for i in body) for body in computed
    )


def _look(arm: Block) -> Interruptible | None:
    """The look for signals at the end of an arm that ends a turn."""
    last = arm.body[-1]
    return last if isinstance(last, Interruptible) else None


def _is_cheap(region: Region, i: Instruction) -> bool:
    name = assigned(i)
    if name is None or region.variables[name] not in (dtypes.int64, dtypes.bool_):
        return False
    if isinstance(i, Set):
        return _all_cheap(i.value)
    if not isinstance(i, Checked) or not all(map(_all_cheap, i.args)):
        return False
    return i.function in UNCHECKED or (i.function in SHIFTS and i.args[1].op == "const")


def _all_cheap(e: Expr) -> bool:
    return all(part.dtype in (dtypes.int64, dtypes.bool_) and _cheap(part) for part in e.walk())


def _cheap(e: Expr) -> bool:
    return e.op in CHEAP or (e.op in BY_POWERS_OF_TWO and power_of_two(e.args[1]) is not None)


def _select(region: Region, block: Block, number: int, live: dict[Block, frozenset[str]]) -> None:
    end = block.end
    assert isinstance(end, Branch) and isinstance(end.then.end, Jump)
    behind = end.then.end.block
    test = _fresh(region, dtypes.bool_)
    as_it_was = Block(number, block.line, [], Branch(test, end.then, end.otherwise))
    region.blocks.append(as_it_was)
    block.body.append(Set(str(test.value), end.test))
    then, otherwise = (_computed(region, block, arm, as_it_was) for arm in (end.then, end.otherwise))
    if look := _look(end.then):
        block.body.append(replace(look, exit=as_it_was))
    for name in sorted({*then, *otherwise} & live[behind]):
        kept = var(name, region.variables[name])  # type: ignore[arg-type]
        chosen = Expr("select", (test, then.get(name, kept), otherwise.get(name, kept)), kept.dtype)
        block.body.append(Set(name, chosen))
    block.end = Jump(behind)


def _computed(region: Region, block: Block, arm: Block, as_it_was: Block) -> dict[str, Expr]:
    """An arm's operations, with variables of their own.  Gives what stands for the arm's variables at its end."""
    values: dict[str, Expr] = {}
    bounded = _bounded(region, arm)
    if bounded is not None:
        block.body.append(Require(bounded, as_it_was))
    for i in arm.body:
        if isinstance(i, Interruptible):
            continue
        of, name = substituted(values), assigned(i)
        made = with_operands(i, lambda e, of=of: _wrapping(of(e)))  # type: ignore[misc]
        assert name is not None
        own = _fresh(region, region.variables[name])  # type: ignore[arg-type]
        if isinstance(made, Checked) and bounded is not None and made.function in UNCHECKED:
            block.body.append(Set(str(own.value), Expr(UNCHECKED[made.function], made.args, dtypes.int64)))
        elif isinstance(made, Checked):
            block.body.append(replace(made, name=str(own.value), exit=as_it_was))
        elif isinstance(made, Set):
            block.body.append(replace(made, name=str(own.value)))
        values = {**values, name: own}
    return values


def _bounded(region: Region, arm: Block) -> Expr | None:
    """A test that none of the arm's sums and products overflows, where it is cheaper than checks of each."""
    checks = [i for i in arm.body if isinstance(i, Checked) and i.function in UNCHECKED]
    names = {assigned(i) for i in arm.body}
    outside = {str(part.value) for i in checks for e in i.args for part in e.walk() if part.op == "var"} - names
    if len(outside) != 1 or not (len(checks) > 1 or any(i.function == "int_mul" for i in checks)):
        return None
    (name,) = outside
    most = next((most for most in BOUNDS if _fit(checks, name, most)), None)
    if most is None or region.variables[name] is not dtypes.int64:
        return None
    low, high = (Expr("const", (), dtypes.int64, k) for k in (-most, most))
    operand = var(name, dtypes.int64)
    tests = (Expr("ge", (operand, low), dtypes.bool_), Expr("le", (operand, high), dtypes.bool_))
    return Expr("and", tests, dtypes.bool_)


def _fit(checks: list[Checked], name: str, most: int) -> bool:
    """Whether results of all checks fit in 64 bits where the variable is at most so large; they may use one another's."""
    largest = {name: most}
    for i in checks:
        sizes = [largest.get(str(e.value)) if e.op == "var" else abs(int(e.value)) if e.op == "const" else None for e in i.args]  # type: ignore[call-overload]
        if None in sizes:
            return False
        x, y = sizes
        largest[i.name] = x * y if i.function == "int_mul" else x + y  # type: ignore[operator]
    return max(largest.values()) < 2**63


def _wrapping(e: Expr) -> Expr:
    """In an arm that is not taken ints may leave 64 bits, although they never do where it is."""
    return Expr(e.op.removeprefix("exact_"), tuple(map(_wrapping, e.args)), e.dtype, e.value)


def _fresh(region: Region, dtype: dtypes.DType) -> Expr:
    name = f"a{len(region.variables)}"
    region.variables[name] = dtype
    return var(name, dtype)
