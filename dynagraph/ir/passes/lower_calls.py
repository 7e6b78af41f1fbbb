"""Lower library calls and external calls: matrix products, and NumPy functions that are called as they are."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from dynagraph.ir.graph import Node
from dynagraph.ir.intexpr import IntExpr
from dynagraph.ir.loops import ExternalCall, LibraryCall, Operand, RoutineCall, Step
from dynagraph.ir.ops import Library
from dynagraph.ir.optable import pooling
from dynagraph.ir.optable.convolution import ROUTINES, operations
from dynagraph.ir.passes.buffers import Buffers
from dynagraph.ir.passes.fuse import FusionPlan, Group, operand_strided
from dynagraph.ir.shapes import Dim, contiguous_strides, expr_of, hint_numel, hint_of, numel, same_dim

GEMM_FLOPS_PER_NANOSECOND = 60.0
EXTERNAL_CALL_COST = 5000.0  # nanoseconds: what Python needs for a call; how long the function runs is its own affair


def library_step(group: Group, plan: FusionPlan, buffers: Buffers) -> Step:
    """The call of a library, or of a Python function, that a group is."""
    first = group.members[0]
    assert isinstance(first.op.lowering, Library)
    operands = tuple(_operand(first, arg, buffers) for arg in first.args)
    comment = first.name + (f"  ({first.location})" if first.location else "")
    routine = first.op.lowering.routine
    if routine == "external_call" or routine in pooling.ROUTINES:
        wanted = [m for m in group.members if m in plan.stored]
        outs = tuple(_result(m, buffers) for m in wanted)
        results = tuple(m.attrs.get("result") for m in wanted)
        if routine in pooling.ROUTINES:
            touched = sum(hint_numel(o.shape) for o in (*operands, *outs)) * 1.0
            return RoutineCall(routine, results, outs, operands, first.attrs, comment, touched)
        return ExternalCall(first.attrs["call"], results, outs, operands, comment, EXTERNAL_CALL_COST, first.has_effect)
    if routine in ROUTINES:
        attrs = {name: first.attrs[name] for name in ("stride", "padding", "dilation", "groups")}
        cost = operations(first) / GEMM_FLOPS_PER_NANOSECOND
        return LibraryCall(routine, _result(first, buffers), operands, comment, cost, attrs=attrs)
    depth: Dim = first.args[0].shape[-1]
    flops = 2.0 * hint_numel(first.shape) * hint_of(depth)
    out, operands = _without_batch(_result(first, buffers), *operands)
    cost, own = flops / GEMM_FLOPS_PER_NANOSECOND, first.op.lowering.own
    return LibraryCall(routine, out, operands, comment, cost, own=own)


def _without_batch(out: Operand, left: Operand, right: Operand) -> tuple[Operand, tuple[Operand, Operand]]:
    """Products of many matrices that lie one after another with a single one are one product.

    Products with a vector stay as they are: NumPy's, too, are one by one.
    """
    single = all(same_dim(d, 1) for d in right.shape[:-2]) and not any(same_dim(d, 1) for d in out.shape[-2:])
    if len(out.shape) < 3 or len(left.shape) != len(out.shape) or not single or not _rows_lie_as_one(left):
        return out, (left, right)
    rows = numel(out.shape[:-1])
    out = replace(out, shape=(rows, out.shape[-1]), strides=out.strides[-2:])
    left = replace(left, shape=(rows, left.shape[-1]), strides=left.strides[-2:])
    return out, (left, replace(right, shape=right.shape[-2:], strides=right.strides[-2:]))


def _rows_lie_as_one(matrices: Operand) -> bool:
    """Whether each row, of whichever matrix, is as far from the one before it."""
    shape, strides = matrices.shape, matrices.strides
    steps = pairwise(range(len(shape) - 1))
    return same_dim(strides[-1], 1) and all(same_dim(strides[a], strides[b] * shape[b]) for a, b in steps)


def _operand(node: Node, arg: Node, buffers: Buffers) -> Operand:
    base, shape, strides, offset = operand_strided(node, arg)
    return Operand(buffers.of[base].name, base.dtype, shape, strides, expr_of(offset))  # type: ignore[arg-type]


def _result(node: Node, buffers: Buffers) -> Operand:
    return Operand(buffers.of[node].name, node.dtype, node.shape, contiguous_strides(node.shape), IntExpr.of(0))
