"""Batching (vmap): evaluate a part of a graph for many values of some of its nodes at once.

Each node that depends on what varies is made again, with one more axis in front of its value; what it takes besides stays as it
is.  The rules go by lowering: what broadcasts is aligned, axes named by attributes move by one, a row of data movement says itself
what becomes of its attributes, and external calls stand in a table.  What has no rule is applied to one
item after the other.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from dynagraph.errors import GraphError
from dynagraph.ir import dtypes
from dynagraph.ir.external_calls import FunctionCall, Slot, function_of
from dynagraph.ir.graph import Graph, Node
from dynagraph.ir.ops import OPS, Composite, Elementwise, Gather, Library, Movement, Reduction, Scan, Scatter
from dynagraph.ir.optable import pooling
from dynagraph.ir.passes.decompose import expansion
from dynagraph.ir.shapes import Dim, Shape, SymInt, numel, same_dim, same_shape
from dynagraph.ir.terms import Term


class NotBatched(GraphError):
    """An op has no rule for many items, and there are too many, or nobody knows how many, to apply it to each."""


def append_batched(
    graph: Graph, outputs: Sequence[Node], over: Mapping[Node, Node], most_each: int = sys.maxsize
) -> list[Node]:
    """The nodes `outputs` as they would be with each key of `over` replaced by one item after the other of its value.

    A key of shape s has a value of shape (n, *s) and of its dtype, n the same for all: the items lie along the first axis.  The
    results have a leading axis of n; what does not depend on the keys is broadcast to it.  Values are those of a loop; sums,
    products of matrices and solutions, which may be of all items at once, are rounded in another order.

    Needs: a graph that is not legalized yet.  New nodes stand before the output; the others are left as they are, the ones that
    nothing uses any more too (see `erase_dependents`).  The graph's checks (`Graph.output`, `n_checks`) say nothing of the items:
    where they depend on the keys, name them among `outputs`.

    `most_each`: items that an op without a rule is applied to, one after the other.

    Raises GraphError where `over` does not fit, and NotBatched where an op without a rule meets a symbolic n, or more items than
    that.

    >>> from dynagraph.ir import dtypes, optable
    >>> from dynagraph.ir.graph import Meta
    >>> g = Graph()
    >>> x, y = (g.placeholder(name, Meta(dtypes.float64, (3,))) for name in "xy")
    >>> total = g.call(OPS["sum"], g.call(OPS["multiply"], x, y), axis=(0,))
    >>> many = g.placeholder("many", Meta(dtypes.float64, (5, 3)))
    >>> append_batched(g, [total], {x: many})[0].describe()
    'sum_1 = sum(multiply_1, axis=(1,), keepdims=False) : float64[5]'
    """
    n = _count(over)
    with graph.before_output():
        if same_dim(n, 0):
            return [graph.call(OPS["full"], shape=(0, *node.shape), value=0, dtype=node.dtype) for node in outputs]
        batch = _Batch(graph, n, {key: Term(value) for key, value in over.items()}, most_each)
        for node in _between(graph, outputs, over):
            graph.location = node.location
            batch.made[node] = _again(batch, node)
        return [batch.whole(node).node for node in outputs]


def erase_dependents(graph: Graph, keys: Iterable[Node]) -> None:
    """Erase what depends on the keys and has no use.

    Dead code elimination leaves calls that may raise; those of seeds that `append_batched` has replaced were nobody's program.
    """
    dependent = set(keys)
    for node in graph.nodes:
        if any(a in dependent for a in node.args):
            dependent.add(node)
    for node in reversed(list(graph.nodes)):
        if node in dependent and node.kind == "call_function" and not node.users:
            graph.erase(node)


def _count(over: Mapping[Node, Node]) -> Dim:
    """How many items there are."""
    if not over:
        raise GraphError("append_batched: needs a node that is replaced")
    n = next((value.shape[0] for value in over.values() if value.shape), 1)
    for key, value in over.items():
        if "symbol" in key.attrs:
            raise GraphError(f"append_batched: {key.name} is a size, and sizes are the same for all items")
        if value.dtype is not key.dtype or not same_shape(value.shape, (n, *key.shape)):
            raise GraphError(f"append_batched: the values of {key.name} must be {key.dtype}{[n, *key.shape]}, got {value.meta}")
    return n


def _between(graph: Graph, outputs: Sequence[Node], over: Mapping[Node, Node]) -> list[Node]:
    """What depends on the keys and is needed for the outputs, in order."""
    nodes, needed = list(graph.nodes), set(outputs)
    for node in reversed(nodes):
        if node in needed and node not in over:
            needed.update(node.args)
    varies = set(over)
    between: list[Node] = []
    for node in nodes:
        if node in needed and node not in over and any(a in varies for a in node.args):
            varies.add(node)
            between.append(node)
    return between


@dataclass(frozen=True)
class _Batch:
    """The values for `n` items of each node that depends on the item."""

    graph: Graph
    n: Dim
    made: dict[Node, Term]
    most_each: int

    def whole(self, node: Node) -> Term:
        """The values for all items, where these are all the same too."""
        return self.made[node] if node in self.made else Term(node).call("broadcast_to", shape=(self.n, *node.shape))

    def aligned(self, node: Node, rank: int) -> Term:
        """The value as it broadcasts to items of that rank."""
        return _aligned(self.made[node], rank) if node in self.made else Term(node)

    def item(self, node: Node, k: int) -> Node:
        if node not in self.made:
            return node
        rest = node.ndim
        part = self.made[node].call("slice", starts=(k,) + (0,) * rest, steps=(1,) * (1 + rest), shape=(1, *node.shape))
        return part.reshape(node.shape).node

    def numbers(self, shape: Shape) -> Term:
        """For each place of arrays of all items the item's number."""
        counted = Term(self.graph.call(OPS["iota"], shape=(self.n,), start=0, step=1, dtype=dtypes.int64))
        return _aligned(counted, len(shape)).call("broadcast_to", shape=(self.n, *shape))


def _aligned(x: Term, rank: int) -> Term:
    """With axes of size 1 after the first, as many as make the items' rank."""
    added = (1,) * (rank + 1 - x.ndim)
    return x.reshape((x.shape[0], *added, *x.shape[1:])) if added else x


def _move_axis(x: Term, source: int, to: int) -> Term:
    axes = list(range(x.ndim))
    axes.insert(to, axes.pop(source))
    return x if source == to else x.call("transpose", axes=tuple(axes))


def _behind(axes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(a + 1 for a in axes)


# -- rules ----------------------------------------------------------------------------------------------------------------


def _again(b: _Batch, node: Node) -> Term:
    if node.is_op("block_reduce"):
        raise GraphError(f"append_batched: {node.name}: graphs are legalized after this pass")
    return _RULES[type(node.op.lowering)](b, node)


def _broadcasting(b: _Batch, node: Node) -> Term:
    first, *others = (b.aligned(a, node.ndim) for a in node.args)
    return first.call(node.op.name, *others, **node.attrs)


def _reduced(b: _Batch, node: Node) -> Term:
    if any(a.ndim == 0 and a in b.made for a in node.args[1:]):  # what it begins with
        return _each(b, node)
    first, *others = (Term(a) if k and a.ndim == 0 else b.whole(a) for k, a in enumerate(node.args))
    return first.call(node.op.name, *others, **{**node.attrs, "axis": _behind(node.attrs["axis"])})


def _scanned(b: _Batch, node: Node) -> Term:
    return b.made[node.args[0]].call(node.op.name, **{**node.attrs, "axis": node.attrs["axis"] + 1})


def _moved(b: _Batch, node: Node) -> Term:
    lowering = node.op.lowering
    assert isinstance(lowering, Movement)
    if lowering.batched is None:
        return _each(b, node)
    first, *others = map(b.whole, node.args)
    if node.is_op("broadcast_to"):  # whose new axes come after that of the items
        first = _aligned(first, node.ndim)
    return first.call(node.op.name, *others, **{**node.attrs, **lowering.batched(node.attrs, b.n)})


def _by_parts(b: _Batch, node: Node) -> Term:
    """An op that is made of others."""
    before = b.graph.latest
    value = expansion(node)
    for part in b.graph.since(before):
        if any(a in b.made for a in part.args):
            b.made[part] = _again(b, part)
    return b.whole(value)


def _gathered(b: _Batch, node: Node) -> Term:
    x, *places = node.args
    axes, at = node.attrs["axes"], node.attrs["at"]
    if not any(p in b.made for p in places):
        return b.made[x].call("gather", *map(Term, places), axes=_behind(axes), at=at + 1)
    wholes = list(map(b.whole, places))
    if x not in b.made:
        return _move_axis(Term(x).call("gather", *wholes, axes=axes, at=at), at, 0)
    found = b.made[x].call("gather", b.numbers(places[0].shape), *wholes, axes=(0, *_behind(axes)), at=at)
    return _move_axis(found, at, 0)


def _scattered(b: _Batch, node: Node) -> Term:
    """Items have places of their own in the result: of each the order of its stores stays."""
    x, values, *places = node.args
    axes, at, combine = node.attrs["axes"], node.attrs["at"], node.attrs["combine"]
    whole, stored = b.whole(x), b.whole(values)
    if not any(p in b.made for p in places):
        return whole.call("scatter", stored, *map(Term, places), axes=_behind(axes), at=at + 1, combine=combine)
    wholes = (b.numbers(places[0].shape), *map(b.whole, places))
    return whole.call("scatter", _move_axis(stored, 0, at), *wholes, axes=(0, *_behind(axes)), at=at, combine=combine)


def _run_by_library(b: _Batch, node: Node) -> Term:
    lowering = node.op.lowering
    assert isinstance(lowering, Library)
    return _ROUTINES.get(lowering.routine, _each)(b, node)


def _multiplied(b: _Batch, node: Node) -> Term:
    """Of matrices; where the items' rows meet one and the same matrix as one product, which is much faster than many small ones."""
    left, right = node.args
    if right not in b.made and right.ndim == 2:
        return _rows_times(node, b.made[left], Term(right))
    if left not in b.made and left.ndim == 2 and same_dim(right.shape[-1], 1):
        rows = b.made[right].reshape(b.made[right].shape[:-1])  # columns lie in memory as rows do
        product = _rows_times(node, rows, Term(left).transposed)
        return product.reshape((*product.shape, 1))
    return _broadcasting(b, node)


def _rows_times(node: Node, x: Term, matrix: Term) -> Term:
    rows = x.reshape((numel(x.shape[:-1]), x.shape[-1]))
    return rows.call(node.op.name, matrix).reshape((*x.shape[:-1], matrix.shape[-1]))


def _convolved(b: _Batch, node: Node) -> Term:
    """Where all items have the same filters their images are one batch; else their channels are groups of their own."""
    images, filters = node.args
    if filters not in b.made:
        x = b.made[images]
        found = x.reshape((numel(x.shape[:2]), *x.shape[2:])).call(node.op.name, Term(filters), **node.attrs)
        return found.reshape((*x.shape[:2], *found.shape[1:]))
    each = b.whole(filters)
    merged = each.reshape((numel(each.shape[:2]), *each.shape[2:]))
    found = _beside(b, images).call(node.op.name, merged, **{**node.attrs, "groups": b.n * node.attrs["groups"]})
    return _move_axis(found.reshape((node.shape[0], b.n, *node.shape[1:])), 1, 0)


def _convolved_for_filters(b: _Batch, node: Node) -> Term:
    first, second = (_beside(b, a) for a in node.args)
    found = first.call(node.op.name, second, **{**node.attrs, "groups": b.n * node.attrs["groups"]})
    return found.reshape((b.n, *node.shape))


def _pooled(b: _Batch, node: Node) -> Term:
    """Boxes of all items are boxes."""
    first, *others = map(b.whole, node.args)
    axis = {"axis": node.attrs["axis"] + 1} if "axis" in node.attrs else {}
    return first.call(node.op.name, *others, **{**node.attrs, **axis})  # type: ignore[no-any-return]


def _beside(b: _Batch, images: Node) -> Term:
    """The channels of all items side by side."""
    x = _move_axis(b.whole(images), 0, 1)
    return x.reshape((x.shape[0], numel(x.shape[1:3]), *x.shape[3:]))


def _each(b: _Batch, node: Node) -> Term:
    """One item after the other: for what has no rule."""
    is_call = node.is_op("external_call")
    if is_call and (isinstance(b.n, SymInt) or callable(node.attrs["call"].function)):  # else each has its second gradient
        call: FunctionCall = node.attrs["call"]
        stacked = tuple(k for k, a in enumerate(node.args) if a in b.made)
        first, *others = (b.made.get(a, Term(a)) for a in node.args)
        call = replace(call, each=(stacked, *call.each), takes_out=False)
        return _call(first, *others, node=node, shape=(b.n, *node.shape), call=call)
    what = node.attrs["call"] if is_call else node.op.name
    if isinstance(b.n, SymInt):
        raise NotBatched(f"append_batched: {node.name}: {what} is applied to one item after the other, whose number must be known")
    if b.n > b.most_each:
        raise NotBatched(f"append_batched: {node.name}: {what} is applied to one item after the other, and there are {b.n}")
    items = [b.graph.call(node.op, *(b.item(a, k) for a in node.args), **node.attrs) for k in range(b.n)]
    first, *others = (Term(item).reshape((1, *node.shape)) for item in items)
    return first.call("concatenate", *others, axis=0) if others else first


# -- external calls ---------------------------------------------------------------------------------------------------------


def _external_call(b: _Batch, node: Node) -> Term:
    if node.has_effect:
        raise NotBatched(f"append_batched: {node.name}: {node.attrs['call']} has effects: it is called once, not for each item")
    call = node.attrs["call"]
    rule = None if call.each else _CALLS.get(call.function)
    made = None if rule is None else rule(b, node)
    return _each(b, node) if made is None else made


def _call(first: Term, *others: Term, node: Node, shape: Shape, call: FunctionCall | None = None) -> Term:
    """The call of a node with other operands."""
    attrs = {**node.attrs, "shape": shape} | ({} if call is None else {"call": call})
    return first.call("external_call", *others, **attrs)


def _of_matrices(b: _Batch, node: Node) -> Term | None:
    """A function of the matrices in the last two dimensions of its one operand."""
    if len(node.args) > 1 or node.args[0].ndim < 2:
        return None
    return _call(b.made[node.args[0]], node=node, shape=(b.n, *node.shape))


def _solved(b: _Batch, node: Node) -> Term | None:
    """Vectors on the right are matrices of one column; what one and the same matrix meets are the columns of one matrix."""
    if node.attrs["call"] != FunctionCall("linalg.solve", (Slot(0), Slot(1))):
        return None
    matrix, right = node.args
    is_vector = right.ndim == 1
    sides = b.made.get(right, Term(right))
    result = node.shape
    if is_vector:
        sides, result = sides.reshape((*sides.shape, 1)), (*result, 1)
    if matrix in b.made:
        sides = _aligned(sides, len(result)) if right in b.made else sides
        found = _call(_aligned(b.made[matrix], len(result)), sides, node=node, shape=(b.n, *result))
    else:
        beside = _move_axis(sides, 0, sides.ndim - 2)
        columns = beside.reshape((*beside.shape[:-2], numel(beside.shape[-2:])))
        solved = _call(Term(matrix), columns, node=node, shape=(*result[:-1], columns.shape[-1]))
        found = _move_axis(solved.reshape((*result[:-1], b.n, result[-1])), len(result) - 1, 0)
    return found.reshape((b.n, *node.shape)) if is_vector else found


def _bound(call: FunctionCall) -> inspect.BoundArguments:
    """A call's arguments by the names of the function's parameters."""
    return inspect.signature(function_of(np, call.function)).bind(*call.args, **dict(call.kwargs))


def _along(name: str, b: _Batch, node: Node) -> Term | None:
    """A function of one array along axes, which the parameter of that name tells: one or several, or None for all.

    `axis`: all elements are taken in a row; `axes`: along each axis of all.
    """
    bound = _bound(node.attrs["call"])
    arrays = [value for value in bound.arguments.values() if isinstance(value, Slot)]
    axes = bound.arguments.get(name, bound.signature.parameters[name].default)
    if arrays != [Slot(0)] or node.args[0].ndim == 0 or (axes is None and bound.arguments.get("s") is not None):
        return None
    x, shape = b.whole(node.args[0]), (b.n, *node.shape)
    if axes is None and name == "axis":
        x, axes, shape = x.reshape((b.n, numel(x.shape[1:]))), -1, (b.n, numel(node.shape)) if node.ndim else (b.n,)
    elif axes is None:
        axes = tuple(range(1 - x.ndim, 0))
    bound.arguments[name] = tuple(map(_moved_axis, axes)) if isinstance(axes, tuple) else _moved_axis(axes)
    call = replace(node.attrs["call"], args=bound.args, kwargs=tuple(sorted(bound.kwargs.items())))
    warnings = (b.made[w].call("any", axis=(0,)) if w in b.made else Term(w) for w in node.args[1:])
    found = _call(x, *warnings, node=node, shape=shape, call=call)
    return found if len(shape) == node.ndim + 1 else found.reshape((b.n, *node.shape))


def _moved_axis(axis: int) -> int:
    return axis + 1 if axis >= 0 else axis


def _at_each(name: str, b: _Batch, node: Node) -> Term | None:
    """A function of each element of one parameter, where the others are the same for all items."""
    slot = _bound(node.attrs["call"]).arguments[name]
    if [k for k, a in enumerate(node.args) if a in b.made] != [slot.position]:
        return None
    first, *others = (b.made.get(a, Term(a)) for a in node.args)
    return _call(first, *others, node=node, shape=(b.n, *node.shape))


_Rule = Callable[[_Batch, Node], Term]

_CALLS: dict[str, Callable[[_Batch, Node], Term | None]] = {
    **dict.fromkeys((
        "linalg.inv", "linalg.pinv", "linalg.det", "linalg.slogdet", "linalg.cholesky", "linalg.qr", "linalg.svd", "linalg.svdvals",
        "linalg.eigh", "linalg.eigvalsh", "linalg.eig", "linalg.eigvals", "linalg.matrix_rank", "linalg.cond",
    ), _of_matrices),
    "linalg.solve": _solved,
    **dict.fromkeys((
        "fft.fft", "fft.ifft", "fft.rfft", "fft.irfft", "fft.hfft", "fft.ihfft",
        "sort", "argsort", "partition", "argpartition", "median", "nanmedian",
    ), partial(_along, "axis")),
    **dict.fromkeys((
        "fft.fftn", "fft.ifftn", "fft.rfftn", "fft.irfftn", "fft.fft2", "fft.ifft2", "fft.rfft2", "fft.irfft2",
    ), partial(_along, "axes")),
    "searchsorted": partial(_at_each, "v"), "digitize": partial(_at_each, "x"), "interp": partial(_at_each, "x"),
}  # fmt: skip

_ROUTINES: dict[str, _Rule] = {
    "matmul": _multiplied, "external_call": _external_call, "conv": _convolved, "conv_input": _convolved,
    "conv_weight": _convolved_for_filters, **dict.fromkeys(pooling.ROUTINES, _pooled),
}  # fmt: skip

_RULES: dict[type, _Rule] = {  # but of Creation, which depends on nothing
    Elementwise: _broadcasting, Reduction: _reduced, Scan: _scanned, Movement: _moved, Gather: _gathered, Scatter: _scattered,
    Library: _run_by_library, Composite: _by_parts,
}  # fmt: skip


__all__ = ["NotBatched", "append_batched", "erase_dependents"]
