"""Fewer variables and blocks: constants and parameters in the place of variables that hold only these, chains of blocks joined."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from dynagraph.ir.expr import Expr
from dynagraph.ir.region_loops import predecessors, reverse_postorder
from dynagraph.ir.regions import (
    Block,
    Branch,
    Exit,
    Interruptible,
    Jump,
    Region,
    Set,
    assigned,
    substituted,
    with_operands,
)


def tidied(region: Region) -> Region:
    """A copy with the same exits by number; the blocks of the given one stay as they are."""
    made = _copy(region)
    while values := _settled(made):
        _substitute(made, values)
    _skip_empty(made)
    _join_chains(made)
    for block in made.blocks:
        _put_look_last(block)
    used = {name for block in made.blocks for i in block.body if (name := assigned(i))}
    made.variables = {n: kind for n, kind in made.variables.items() if n in used or n in made.parameters}
    return made


def _copy(region: Region) -> Region:
    blocks = reverse_postorder(region.blocks[0])
    copies = {b: Block(b.number, b.line, list(b.body)) for b in blocks}
    for block, copy in copies.items():
        end = block.end
        if isinstance(end, Jump):
            copy.end = Jump(copies[end.block])
        elif isinstance(end, Branch):
            copy.end = Branch(end.test, copies[end.then], copies[end.otherwise])
        else:
            copy.end = end
    exits = [replace(e, state=list(e.state)) for e in region.exits]
    made = [copies[b] for b in blocks]
    variables, parameters = dict(region.variables), list(region.parameters)
    return replace(region, variables=variables, parameters=parameters, blocks=made, exits=exits, copies={}, turns=[], lanes={})


def _settled(region: Region) -> dict[str, Expr]:
    """What stands for each variable that only ever holds one constant, or one parameter that is never set."""
    held: dict[str, Expr | None] = {}
    for i in region.instructions():
        name = assigned(i)
        if name is None:
            continue
        value = i.value if isinstance(i, Set) and i.value.op in ("const", "var") else None
        held[name] = value if name not in held or held[name] == value else None
    found = {}
    for name, value in held.items():
        if value is None or name in region.parameters:
            continue
        if value.op == "const" or (value.value in region.parameters and value.value not in held):
            found[name] = value
    return found


def _substitute(region: Region, values: dict[str, Expr]) -> None:
    of = substituted(values)
    for block in region.blocks:
        block.body = [with_operands(i, of) for i in block.body if assigned(i) not in values]
        if isinstance(block.end, Branch):
            block.end = Branch(of(block.end.test), block.end.then, block.end.otherwise)
    for exit in region.exits:
        exit.state = [of(part) for part in exit.state]


def _skip_empty(region: Region) -> None:
    """Go on directly at what follows an empty block."""
    entry = region.blocks[0]

    def behind(block: Block) -> Block:
        seen = {block}
        while not block.body and isinstance(block.end, Jump) and block.end.block not in seen:
            block = block.end.block
            seen.add(block)
        return block

    for block in region.blocks:
        if isinstance(block.end, Jump):
            block.end = Jump(behind(block.end.block))
        elif isinstance(block.end, Branch):
            block.end = Branch(block.end.test, behind(block.end.then), behind(block.end.otherwise))
    region.blocks = reverse_postorder(entry)


def _join_chains(region: Region) -> None:
    """Join each block with the only one that it is entered from."""
    entries = Counter({b: len(p) for b, p in predecessors(region.blocks).items()})
    gone: set[Block] = set()
    for block in region.blocks:
        if block in gone:
            continue
        while isinstance(block.end, Jump) and entries[block.end.block] == 1 and block.end.block not in (block, region.blocks[0]):
            following = block.end.block
            gone.add(following)
            block.body += following.body
            block.line = block.line or following.line
            block.end = following.end
    region.blocks = [b for b in region.blocks if b not in gone]


def _put_look_last(block: Block) -> None:
    """A look for signals behind what sets variables that the exit does not have: so it ends a turn."""
    at = next((k for k, i in enumerate(block.body) if isinstance(i, Interruptible) and isinstance(i.exit, Exit)), len(block.body))
    behind = block.body[at + 1 :]
    if not behind or not all(isinstance(i, Set) for i in behind):
        return
    look = block.body[at]
    assert isinstance(look, Interruptible) and isinstance(look.exit, Exit)
    names = {str(e.value) for part in look.exit.state for e in part.walk() if e.op == "var"}
    if names.isdisjoint(assigned(i) for i in behind):
        block.body[at:] = [*behind, look]
