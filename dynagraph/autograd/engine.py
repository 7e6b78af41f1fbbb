"""Backward: from values to the variables that they were computed from, latest node first; no node recurses.

Gradients are arrays, by the `vjp` column of the op table.  Those that are differentiated again are recorded, by the same functions
(`RecordedTerm`).  Conventions are those of `ir/passes/backward.py`.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.autograd.nodes import Node, Part, Record, Recorded, array_of
from dynagraph.autograd.terms import ZERO, RecordedTerm, Value, ValueTerm
from dynagraph.errors import GradientError
from dynagraph.ir.ops import Elementwise
from dynagraph.ir.shares import Share, of_dtype, of_shape, total_of

_KEEPS_PLACES = ("copy", "variable", "optimization_barrier")


def gradients(
    seeds: Sequence[tuple[Node, Value]], by: Sequence[Node], level: int, record: Record | None = None
) -> list[Value | None]:
    """The gradients of ``sum(sum(seed * value) for value, seed in seeds)`` by variables of a level; None where one is zero.

    They are recorded where there is a `record`.  Raises GradientError where a gradient would pass through what has none.
    """
    run = _Run(level, record)
    for node, seed in seeds:
        if level in node.levels:
            run.add(node, RecordedTerm(seed, record) if record is not None else ValueTerm(seed))
    with np.errstate(all="ignore"):
        run.run(set(by))
    return [run.done.get(node) for node in by]


class _Run:
    """One backward.  `found`: what has come for each node so far: a term, or shares; `done`: the gradients by what is wanted."""

    __slots__ = ("cotangents", "done", "found", "level", "outside", "record", "waiting")

    def __init__(self, level: int, record: Record | None):
        self.level, self.record = level, record
        self.found: dict[Node, Any] = {}
        self.done: dict[Node, Value] = {}
        self.waiting: list[tuple[int, Node]] = []
        self.cotangents: dict[Part, dict[Node, Any]] = {}  # of parts, by their results
        self.outside = np.geterr()  # what users' functions run under

    def run(self, wanted: set[Node]) -> None:
        found, waiting = self.found, self.waiting
        while waiting:
            node = heapq.heappop(waiting)[1]
            if node.part is not None:
                self.through_part(node, node.part)
                continue
            whole = found.pop(node)
            if type(whole) is list:
                whole = total_of(whole)
                if not whole.within:
                    whole = whole.term
            if node in wanted:
                self.done[node] = (whole.cleaned().term if type(whole) is Share else whole).value
            self.through(node, whole)

    def add(self, node: Node, share: Any) -> None:
        """Add a term, or a share, to what has come for a node."""
        before = self.found.get(node)
        if before is None:
            self.found[node] = share
            heapq.heappush(self.waiting, (node.number, node))
        elif type(before) is list:
            before.append(share if type(share) is Share else Share(share))
        elif type(before) is Share or type(share) is Share:
            self.found[node] = [s if type(s) is Share else Share(s) for s in (before, share)]
        else:
            self.found[node] = before + share

    def through_part(self, node: Node, part: Part) -> None:
        """Note what has come for a result of a part; with the first result, which is the last to come, add what the part gives."""
        given = self.cotangents.setdefault(part, {})
        whole: Any = self.found.pop(node, None)
        if whole is not None:
            whole = total_of(whole) if type(whole) is list else whole
            given[node] = array_of((whole.cleaned().term if type(whole) is Share else whole).value)
        if node is not part.results[0]:
            heapq.heappush(self.waiting, (part.results[0].number, part.results[0]))
            return
        if not given:
            return  # it has been done
        if any(self.level in x.levels for x in part.captured):
            raise GradientError(
                f"{node.location}: {node.name}: {part.name} uses a value that is being differentiated and is none of its "
                "arguments; pass it as an argument"
            )
        with np.errstate(**self.outside):
            by = part.pull([given.get(result) for result in part.results])
        given.clear()
        for x, gradient in zip(part.operands, by, strict=True):
            if type(x) is Node and self.level in x.levels:
                self.add(x, of_shape(Share(of_dtype(ValueTerm(gradient), x.dtype)), x.shape).term)

    def through(self, node: Node, whole: Any) -> None:
        """Add to the gradients of a node's inputs what comes through the node."""
        level, op = self.level, node.op
        wanted = [k for k, x in enumerate(node.inputs) if type(x) is Node and level in x.levels]
        if not wanted:
            return
        if op.vjp is None:
            raise GradientError(
                f"{node.location}: {op.name}: no gradient passes through {op.name}; write the step with other functions, "
                "or keep what it depends on out of the gradient"
            )
        within: Any = ()
        is_clean = True
        if type(whole) is Share:
            if isinstance(op.lowering, Elementwise) or op.name in _KEEPS_PLACES:
                is_clean = whole.is_clean and (op.finite_slope or not whole.within)
                within, whole = whole.within, whole.term
            else:
                whole = whole.cleaned().term
        d: Any = node if self.record is None else Recorded(node, self.record)
        terms = None if op.vjps else op.vjp(d, whole)
        for k in wanted:
            term = op.vjps[k](d, whole) if terms is None else terms[k]
            if term is None:
                continue
            x: Any = node.inputs[k]
            mark = term.mark
            if within or (mark is not None and mark is not ZERO):
                own = () if mark is None or mark is ZERO or term is whole else (mark,)
                share = Share(of_dtype(term, x.dtype), (*within, *own), is_clean)
                self.add(x, of_shape(share, x.shape))
                continue
            if term.dtype is not x.dtype:
                term = of_dtype(term, x.dtype)
            if term.shape != x.shape:
                term = of_shape(Share(term), x.shape).term
            self.add(x, term)


__all__ = ["gradients"]
