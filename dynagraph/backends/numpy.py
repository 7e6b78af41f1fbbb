"""The NumPy backend, for machines without a C compiler: the optimised graph through NumPy, with buffer reuse.

Which value takes over whose memory is planned once; the buffers themselves are made anew in each call, so that calls
from several threads never meet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dynagraph.backends.executable import Executable
from dynagraph.backends.reference import own_results
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.interpreter import Effects, bind_sizes, concrete_attrs
from dynagraph.ir.ops import Elementwise, Library, may_be_view
from dynagraph.ir.passes.pipeline import run as run_passes
from dynagraph.ir.shapes import same_shape


@dataclass
class Step:
    """One node: its operands and result are positions in the table of values."""

    node: Node
    operands: tuple[int, ...]
    result: int
    ufunc: np.ufunc | None  # None: run the row's eager function, which makes its own memory
    reused: int | None = None  # the dead value whose memory the result takes
    dead: list[int] = field(default_factory=list)  # values to let go of afterwards


@dataclass
class Plan:
    """Steps in order over a table of values."""

    steps: list[Step]
    inputs: list[int]
    constants: dict[int, np.ndarray]
    outputs: list[int]
    size: int  # of the table
    checks: tuple[int, ...] = ()  # those of the outputs that are checks


def compile_graph(graph: Graph) -> Executable:
    """A program that runs the graph through NumPy."""
    optimised = run_passes(graph)
    plan = make_plan(optimised)

    def call(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        sizes = bind_sizes(optimised, arrays)
        with np.errstate(all="ignore"), Effects() as effects:
            results = run_plan(plan, arrays, sizes, effects)
            return own_results(results, [*arrays, *plan.constants.values()])

    return Executable(call, artifacts={"plan": describe(plan)})


# -- planning -------------------------------------------------------------------------------------------------------


def make_plan(graph: Graph) -> Plan:
    """Decide which results take the memory of values that nothing needs any more."""
    nodes = [n for n in graph.nodes if n.kind != "output"]
    number = {node: k for k, node in enumerate(nodes)}
    steps = [
        Step(n, tuple(number[a] for a in n.args), number[n], _ufunc_of(n)) for n in nodes if n.kind == "call_function"
    ]
    plan = Plan(
        steps,
        inputs=[number[n] for n in graph.placeholders],
        constants={number[n]: graph.constants[n.target] for n in nodes if n.kind == "get_attr"},
        outputs=[number[n] for n in graph.outputs],
        size=len(nodes),
        checks=tuple(number[n] for n in graph.outputs[len(graph.outputs) - graph.n_checks :]),
    )
    _reuse_memory(plan, nodes)
    return plan


def _ufunc_of(node: Node) -> np.ufunc | None:
    if not isinstance(node.op.lowering, (Elementwise, Library)):
        return None
    function = getattr(np, node.op.name, None)
    return function if isinstance(function, np.ufunc) else None


def _reuse_memory(plan: Plan, nodes: Sequence[Node]) -> None:
    owners = _owners(plan, nodes)
    dying_at: dict[int, list[int]] = defaultdict(list)
    for owner, position in _last_uses(plan, owners).items():
        dying_at[position].append(owner)
    free: list[int] = []  # dead owners of memory
    for position, step in enumerate(plan.steps):
        dying = dying_at[position]
        elementwise = isinstance(step.node.op.lowering, Elementwise)  # may write where an operand dies
        if step.ufunc is not None:
            candidates = free + dying if elementwise else free
            step.reused = next((v for v in reversed(candidates) if _fits(nodes[v], step.node)), None)
        free = [v for v in free + dying if v != step.reused]
    _let_go(plan)


def _owners(plan: Plan, nodes: Sequence[Node]) -> list[set[int]]:
    """For each value the values whose memory it may lie in."""
    owners: list[set[int]] = [{k} for k in range(len(nodes))]
    for step in plan.steps:
        if may_be_view(step.node):
            owners[step.result] = set().union({step.result}, *(owners[k] for k in step.operands))
    return owners


def _last_uses(plan: Plan, owners: Sequence[set[int]]) -> dict[int, int]:
    """Where reusable memory is needed for the last time; that of inputs, constants, views and outputs is left out."""
    last: dict[int, int] = {}
    for position, step in enumerate(plan.steps):
        for operand in (*step.operands, step.result):
            for owner in owners[operand]:
                last[owner] = position
    kept = {*plan.inputs, *plan.constants, *(o for k in plan.outputs for o in owners[k])}
    kept |= {step.result for step in plan.steps if may_be_view(step.node)}
    return {owner: position for owner, position in last.items() if owner not in kept}


def _fits(have: Node, want: Node) -> bool:
    return have.dtype is want.dtype and same_shape(have.shape, want.shape)


def _let_go(plan: Plan) -> None:
    """Drop each value after its last use, but memory that a later step takes only there."""
    taken_at = {step.reused: position for position, step in enumerate(plan.steps) if step.reused is not None}
    last_read = {k: position for position, step in enumerate(plan.steps) for k in (*step.operands, step.result)}
    for value, position in last_read.items():
        if value not in plan.outputs:
            plan.steps[max(position, taken_at.get(value, 0))].dead.append(value)


# -- running --------------------------------------------------------------------------------------------------------


def run_plan(plan: Plan, arrays: Sequence[np.ndarray], sizes: dict[str, int], effects: Effects) -> Iterator[np.ndarray]:
    """The outputs' values; they may be views of inputs or of one another."""
    values: list[Any] = [None] * plan.size
    for position, array in zip(plan.inputs, arrays):
        values[position] = array
    for position, array in plan.constants.items():
        values[position] = array
    for step in plan.steps:
        if step.node.has_effect:
            effects.begin([values[position] for position in plan.checks])
        values[step.result] = _run_step(step, values, sizes)
        for position in step.dead:
            values[position] = None
    return (values[position] for position in plan.outputs)


def _run_step(step: Step, values: list[Any], sizes: dict[str, int]) -> np.ndarray:
    node = step.node
    operands = [values[k] for k in step.operands]
    if "walk" in node.op.attrs and len(node.attrs["axis"]) == operands[0].ndim:
        walk = node.attrs.get("walk")
        if walk is None or walk.axes == operands[0].ndim:  # all as one, in the order of the axes
            operands[0] = np.asarray(operands[0], order="C")
    if step.ufunc is None:
        return np.asarray(node.op.eager(np, *operands, **concrete_attrs(node, sizes)))
    # in the order of NumPy's own choice where an operand lies otherwise: sums add up elements as they lie in memory
    reused = None if step.reused is None else values[step.reused]
    is_plain = reused is not None and all(a.flags.c_contiguous for a in (*operands, reused))
    return np.asarray(step.ufunc(*operands, out=reused if is_plain else None), node.dtype.numpy)


def describe(plan: Plan) -> str:
    """One line per step, saying what memory it writes to."""
    names = {step.result: step.node.name for step in plan.steps}
    lines = []
    for step in plan.steps:
        memory = "" if step.reused is None else f"   # in the memory of {names[step.reused]}"
        lines.append(step.node.describe() + memory)
    return "\n".join(lines)


__all__ = ["compile_graph", "make_plan", "run_plan"]
