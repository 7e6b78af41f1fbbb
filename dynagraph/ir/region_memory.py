"""What the variables of a region that hold addresses may point into, at each place."""

from __future__ import annotations

from collections.abc import Iterator

from dynagraph.ir.expr import Expr
from dynagraph.ir.regions import Address, Block, Hold, Instruction, NewMemory, Region, Require, Set, Store

Roots = frozenset[str]  # memory that an address may be of: a parameter's, or what an instruction makes
Pointers = dict[str, Roots]
NONE: Roots = frozenset()


class Memory:
    """What each variable that holds an address may point into, at each place."""

    def __init__(self, region: Region):
        self.variables = region.variables
        self.parameters = frozenset(p for p in region.parameters if self.is_address(p))
        entry = region.blocks[0]
        self.before: dict[Block, Pointers] = {entry: {p: frozenset(region.roots.get(p, (p,))) for p in self.parameters}}
        waiting = [entry]
        while waiting:
            block = waiting.pop()
            after = dict(self.before[block])
            for i in block.body:
                self.step(after, i)
            for following in block.successors():
                if self._join(following, after):
                    waiting.append(following)
        self.written = {root for i, at in self.walk(region) for root in self._written(i, at)}

    def is_address(self, name: str) -> bool:
        return isinstance(self.variables.get(name), str)

    def walk(self, region: Region) -> Iterator[tuple[Instruction, Pointers]]:
        """All instructions, and what pointers hold before them."""
        for block in region.blocks:
            at = dict(self.before[block])
            for i in block.body:
                yield i, at
                self.step(at, i)

    def step(self, at: Pointers, i: Instruction) -> None:
        if isinstance(i, NewMemory):
            at[i.name] = _made_by(i)
        elif isinstance(i, Address):
            at[i.name] = self.roots(at, i.place.base)
        elif isinstance(i, (Set, Hold)) and self.is_address(i.name):
            at[i.name] = _made_by(i) if i.value.op == "memory" else self.roots(at, i.value)

    def roots(self, at: Pointers, e: Expr) -> Roots:
        if e.op == "var":
            return at.get(str(e.value), NONE)
        return frozenset().union(*(self.roots(at, a) for a in e.args)) if e.op in ("select", "data_of") else NONE

    def _join(self, block: Block, more: Pointers) -> bool:
        known = self.before.get(block)
        if known is None:
            self.before[block] = dict(more)
            return True
        changed = False
        for name, roots in more.items():
            if not roots <= known.get(name, NONE):
                known[name] = known.get(name, NONE) | roots
                changed = True
        return changed

    def _written(self, i: Instruction, at: Pointers) -> Roots:
        if isinstance(i, Store):
            return self.roots(at, i.place.base)
        if isinstance(i, Require) and i.test.op == "matmul":
            return self.roots(at, i.test.args[0])
        return _made_by(i) if isinstance(i, NewMemory) else NONE


def _made_by(i: NewMemory | Set | Hold) -> Roots:
    """The memory that an instruction makes, by the variable that no other makes memory for."""
    return frozenset((f"made for {i.name}",))


def written_parameters(region: Region) -> list[str]:
    """The parameters that are addresses of what the region writes."""
    written = Memory(region).written
    return [p for p in region.parameters if p in written]


__all__ = ["Memory", "Pointers", "Roots", "written_parameters"]
