"""Cost model: how long nodes take on a device, by memory traffic, arithmetic and launches.

Estimates for placement, from the op table and the numbers of a `Machine`: no queue, no cache, no overlap.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from dynagraph.ir import dtypes
from dynagraph.ir.graph import Node
from dynagraph.ir.machine_model import Device, rate_class
from dynagraph.ir.ops import Creation, Gather, Library, Movement, Reduction, view_of
from dynagraph.ir.optable.convolution import ROUTINES, operations
from dynagraph.ir.passes.fuse import op_cost
from dynagraph.ir.shapes import hint_numel, hint_of

COMPLEX_SUM = 2.0  # additions of real numbers in one of complex numbers
COMPLEX_PRODUCT = 4.0  # ... and multiply-adds in one of theirs


def seconds_on(nodes: Sequence[Node], device: Device) -> float:
    """What the nodes of one group take on a device as one kernel or routine; infinite where it cannot run one of them.

    Values between the nodes stay in registers; operands are read and results written once.  A view takes nothing.  Infinite too
    where operands and results do not fit into the device's memory.
    """
    if not all(can_run(node, device) for node in nodes):
        return math.inf
    if all(view_of(node) is not None for node in nodes):
        return 0.0
    moved = bytes_read(nodes) + sum(node.meta.hint_nbytes for node in results_of(nodes))
    if moved > device.memory:
        return math.inf
    calls = device.call_seconds if any(node.is_op("external_call", "effect_call") for node in nodes) else 0.0
    return device.launch_seconds + calls + max(moved / device.bandwidth, sum(arithmetic_seconds(n, device) for n in nodes))


def can_run(node: Node, device: Device) -> bool:
    """Whether a device has what a node needs."""
    if node.kind != "call_function" or not isinstance(node.op.lowering, Library):
        return True
    if node.is_op("external_call", "effect_call"):
        return device.calls(node.attrs["call"].function)
    return device.runs(node.op.lowering.routine)


def results_of(nodes: Collection[Node]) -> list[Node]:
    """The nodes whose values are used beyond the group."""
    inside = set(nodes)
    return [node for node in nodes if any(user not in inside for user in node.users)]


def bytes_read(nodes: Collection[Node]) -> int:
    """What a group reads of other values: of what it only takes parts of, these."""
    inside = set(nodes)
    read: dict[Node, int] = {}
    for node in nodes:
        for operand in dict.fromkeys(node.args):
            if operand not in inside and not is_made_in_place(operand):
                part = isinstance(node.op.lowering, (Movement, Gather))
                amount = node.meta.hint_nbytes if part else operand.meta.hint_nbytes
                read[operand] = min(operand.meta.hint_nbytes, read.get(operand, 0) + amount)
    return sum(read.values())


def is_made_in_place(node: Node) -> bool:
    """Whether kernels compute the elements of a value where they want them, from no array at all."""
    return node.kind == "call_function" and not node.args and isinstance(node.op.lowering, Creation)


def arithmetic_seconds(node: Node, device: Device) -> float:
    """What the arithmetic of a node takes, its operands at hand."""
    if node.kind != "call_function" or view_of(node) is not None:
        return 0.0
    if node.is_op("matmul", "own_matmul"):
        terms = hint_numel(node.shape) * hint_of(node.args[0].shape[-1])
        times = COMPLEX_PRODUCT if node.dtype.is_complex else 1.0
        return 2.0 * terms * times / device.products[rate_class(node.dtype)]
    if isinstance(node.op.lowering, Library) and node.op.lowering.routine in ROUTINES:
        return operations(node) / device.products[rate_class(node.dtype)]
    operand = node.args[0] if node.args else node
    space = operand.shape if isinstance(node.op.lowering, Reduction) or node.is_op("block_reduce") else node.shape
    dtype = operand.dtype if node.dtype is dtypes.bool_ else node.dtype  # comparisons are of their operands' dtype
    times = COMPLEX_SUM if dtype.is_complex else 1.0
    return op_cost(node) * hint_numel(space) * times / device.additions[rate_class(dtype)]


__all__ = ["arithmetic_seconds", "bytes_read", "can_run", "is_made_in_place", "results_of", "seconds_on"]
