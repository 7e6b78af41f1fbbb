"""Whether a program that was captured with sizes of at least 2 is right for sizes of 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dynagraph.errors import ExportError
from dynagraph.exporting.examples import Leaf, like, root_of, size_at
from dynagraph.exporting.program import ExportedProgram
from dynagraph.exporting.sizes import holds
from dynagraph.exporting.trees import kind_of
from dynagraph.frontend.guards.profile import SMALLEST
from dynagraph.ir.interpreter import interpret
from dynagraph.pytree import leaves, rebuilt


def with_ones(asked: Any, program: ExportedProgram) -> ExportedProgram:
    """The program with sizes of 1 admitted, where it gives for them what a capture of its own gives.

    Captures take sizes for at least 2: what has one element may be broadcast, or be squeezed away.
    """
    roots = {root.name: root for leaf in asked.leaves for size in leaf.sizes.values() if (root := root_of(size)) is not None}
    ones = [name for name, root in roots.items() if root.lowest < SMALLEST]
    together = [[name] for name in ones] + ([ones] if len(ones) > 1 else [])
    agree = {name for names in together[: len(ones)] if _agrees_at_one(asked, program, names) for name in names}
    if len(ones) > 1 and agree == set(ones) and not _agrees_at_one(asked, program, ones):
        agree = set()
    wanted = [name for name in ones if name not in agree and roots[name].min == 1]
    if wanted:
        raise ExportError(
            f"export: {', '.join(wanted)} of 1 would need another program, as the code treats a size of 1 in a way of its own; "
            "give min=2, or export a program for 1 by itself"
        )
    for symbol, size in asked.size_of.items():
        root = root_of(size)
        if root is not None and root.name in agree:
            program.ranges[symbol] = replace(program.ranges[symbol], low=size_at(size, 1))
    return program


def _agrees_at_one(asked: Any, program: ExportedProgram, names: Sequence[str]) -> bool:
    sizes = {**asked.hints, **dict.fromkeys(names, 1)}
    given = iter([leaf for leaf in asked.leaves if leaf.role == "input"])
    everything = [_cut(next(given), sizes) if kind_of(leaf) else leaf for leaf in leaves((asked.args, asked.kwargs))]
    args, kwargs = rebuilt((asked.args, asked.kwargs), iter(everything))
    try:
        own = type(asked)(asked.function, args, kwargs, None).program()
    except ExportError:
        return False
    arrays = [np.asarray(leaf) for leaf in (*own.state.values(), *own.arrays_of(args, kwargs))]
    if own.mutations != program.mutations or own.out_tree != program.out_tree or len(own.inputs) != len(program.inputs):
        return False
    at = {b.symbol: arrays[b.position].shape[b.axis] for b in program.bindings}
    if not all(holds(relation, at) for relation in program.env.relations):
        return False
    with np.errstate(all="ignore"):
        pairs = list(zip(interpret(program.graph, arrays), interpret(own.graph, arrays), strict=True))
    return all(_are_close(a, b) for a, b in pairs)


def _cut(leaf: Leaf, sizes: dict[str, int]) -> Any:
    """An example of other sizes."""
    array = leaf.array
    for axis, size in leaf.sizes.items():
        root = root_of(size)
        if root is not None:
            array = array.take(np.arange(size_at(size, sizes[root.name])) % array.shape[axis], axis=axis)
    return leaf.value if array is leaf.array else like(leaf.value, array)


def _are_close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if a.dtype.kind not in "fc":
        return bool(np.array_equal(a, b))
    tolerance = float(np.finfo(a.dtype).eps) ** 0.5
    return bool(np.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True))


__all__ = ["with_ones"]
