"""Creation, reductions, movement and indexing in ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.ir import dtypes
from dynagraph.ir.external_calls import FunctionCall, Slot
from dynagraph.ir.graph import Node
from dynagraph.ir.interpreter import concrete_attrs
from dynagraph.ir.shapes import Dim, SymInt, hint_numel, numel, same_dim
from dynagraph.onnx.writer import NoOperator, Row, Writer, row

MOST_WRITTEN = 1 << 16  # elements of what is written out, rather than computed
FIRST = -(1 << 63) + 1  # where a slice that goes backwards to the first element ends


# -- creation ---------------------------------------------------------------------------------------------------------------------


def _written_out(w: Writer, node: Node) -> str | None:
    """An array of static attributes and sizes as it is."""
    symbolic = any(isinstance(d, SymInt) for d in (*node.shape, *node.attrs.values()))
    if symbolic or hint_numel(node.shape) > MOST_WRITTEN:
        return None
    return w.constant(np.asarray(node.op.eager(np, **concrete_attrs(node, {}))))


@row("constant")
def _constant(w: Writer, node: Node) -> str:
    return w.number(node.attrs["value"], node.dtype)


@row("full")
def _full(w: Writer, node: Node) -> str:
    value = node.attrs["value"]
    if hint_numel(node.shape) <= 1 and not any(isinstance(d, SymInt) for d in node.shape):
        return _written_out(w, node) or w.expand(w.number(value, node.dtype), node.shape)
    return w.expand(w.number(value, node.dtype), node.shape)


@row("iota")
def _iota(w: Writer, node: Node) -> str:
    written = _written_out(w, node)
    if written is not None:
        return written
    zero, one = w.scalar(0, dtypes.int64), w.scalar(1, dtypes.int64)
    count = w.op("Range", zero, w.number(node.shape[0], dtypes.int64), one)
    start, step = node.attrs["start"], node.attrs["step"]
    wide = dtypes.int64 if node.dtype.is_integer else dtypes.float64
    if wide is not dtypes.int64:
        count = w.cast(count, wide)
    if not same_dim(step, 1) if isinstance(step, (int, SymInt)) else step != 1:
        count = w.op("Mul", count, w.number(step, wide))
    if not same_dim(start, 0) if isinstance(start, (int, SymInt)) else start != 0:
        count = w.op("Add", count, w.number(start, wide))
    return count if node.dtype is wide else w.cast(count, node.dtype)


@row("eye")
def _eye(w: Writer, node: Node) -> str:
    written = _written_out(w, node)
    if written is not None:
        return written
    rows, columns = (_positions(w, d) for d in node.shape)
    shifted = w.op("Add", w.unsqueeze(rows, 1), w.number(node.attrs["k"], dtypes.int64))
    return w.cast(w.op("Equal", shifted, w.unsqueeze(columns, 0)), node.dtype)


def _positions(w: Writer, size: Dim) -> str:
    """0, 1, 2... up to the size."""
    if not isinstance(size, SymInt):
        return w.constant(np.arange(size))
    return w.op("Range", w.scalar(0, dtypes.int64), w.number(size, dtypes.int64), w.scalar(1, dtypes.int64))


@row("linspace")
def _linspace(w: Writer, node: Node) -> str:
    written = _written_out(w, node)
    if written is None:
        raise NoOperator("linspace of a symbolic size")
    return written


# -- reductions -------------------------------------------------------------------------------------------------------------------


def _reduction(name: str, operator: str) -> None:
    @row(name)
    def write(w: Writer, node: Node, x: str) -> str:
        return w.reduce(operator, x, node.attrs["axis"], node.attrs["keepdims"])


for _name, _operator in (("sum", "ReduceSum"), ("prod", "ReduceProd"), ("mean", "ReduceMean")):
    _reduction(_name, _operator)


def _extreme(name: str, operator: str) -> None:
    """Of bools through integers: `any` is their greatest."""

    @row(*name.split())
    def write(w: Writer, node: Node, x: str) -> str:
        axes, keepdims = node.attrs["axis"], node.attrs["keepdims"]
        if not node.args[0].dtype.is_bool:
            return w.reduce(operator, x, axes, keepdims)
        return w.cast(w.reduce(operator, w.cast(x, dtypes.int32), axes, keepdims), dtypes.bool_)


_extreme("max any", "ReduceMax")
_extreme("min all", "ReduceMin")


def _place(name: str, operator: str) -> None:
    @row(name)
    def write(w: Writer, node: Node, x: str) -> str:
        axes, operand = node.attrs["axis"], node.args[0]
        if operand.dtype.is_bool:
            x = w.cast(x, dtypes.int32)
        if len(axes) == 1:
            return w.op(operator, x, axis=axes[0], keepdims=int(node.attrs["keepdims"]))
        kept = [k for k in range(operand.ndim) if k not in axes]
        moved = w.transpose(x, (*kept, *axes))
        flat = w.reshape(moved, None, (*(operand.shape[k] for k in kept), numel(operand.shape[k] for k in axes)))
        found = w.op(operator, flat, axis=len(kept), keepdims=0)
        return w.unsqueeze(found, *axes) if node.attrs["keepdims"] else found


_place("argmax", "ArgMax")
_place("argmin", "ArgMin")


@row("sum_where")
def _sum_where(w: Writer, node: Node, x: str, mask: str, start: str) -> str:
    kept = w.op("Where", mask, x, w.scalar(0, node.dtype))
    return w.op("Add", w.reduce("ReduceSum", kept, node.attrs["axis"], node.attrs["keepdims"]), start)


@row("cumsum", "add_accumulate")
def _cumsum(w: Writer, node: Node, x: str) -> str:
    return w.op("CumSum", x, w.scalar(_only(node.attrs["axis"]), dtypes.int64))


def _only(axis: Any) -> int:
    return axis[0] if isinstance(axis, tuple) else axis


# -- movement ---------------------------------------------------------------------------------------------------------------------


@row("reshape")
def _reshape(w: Writer, node: Node, x: str) -> str:
    return w.reshape(x, node.args[0].shape, node.shape)


@row("transpose")
def _transpose(w: Writer, node: Node, x: str) -> str:
    return w.transpose(x, node.attrs["axes"])


@row("broadcast_to")
def _broadcast_to(w: Writer, node: Node, x: str) -> str:
    return w.expand(x, node.shape)


@row("slice")
def _slice(w: Writer, node: Node, x: str) -> str:
    starts: list[Dim] = []
    stops: list[Dim] = []
    axes, steps = [], []
    for axis, (start, step, size, whole) in enumerate(
        zip(node.attrs["starts"], node.attrs["steps"], node.shape, node.args[0].shape)
    ):
        if isinstance(step, SymInt):
            raise NoOperator("slice with a symbolic step")
        if same_dim(start, 0) and step == 1 and same_dim(size, whole):
            continue
        stop = start + step * size
        if step < 0 and isinstance(stop, SymInt):
            raise NoOperator("slice that goes backwards from a symbolic place")
        starts.append(start)
        stops.append(FIRST if step < 0 and stop < 0 else stop)
        axes.append(axis)
        steps.append(step)
    if not axes:
        return x
    more = () if all(s == 1 for s in steps) else (w.ints(*steps),)
    return w.op("Slice", x, w.shape(starts), w.shape(stops), w.ints(*axes), *more)


@row("windows")
def _windows(w: Writer, node: Node, x: str) -> str:
    """One axis after the other is replaced by two: where a window begins, and the place in it, which then goes to the end."""
    rank = node.args[0].ndim
    for done, (axis, size) in enumerate(zip(node.attrs["axes"], node.attrs["sizes"])):
        if isinstance(size, SymInt):
            raise NoOperator("windows of a symbolic size")
        whole = node.shape[axis]
        places = w.op("Add", w.unsqueeze(_positions(w, whole), 1), w.constant(np.arange(size)[None]))
        x = w.op("Gather", x, places, axis=axis)
        n = rank + done + 1
        x = w.transpose(x, [*(k for k in range(n) if k != axis + 1), axis + 1])
    return x


@row("diagonal")
def _diagonal(w: Writer, node: Node, x: str) -> str:
    *batch, n = node.shape
    flat = w.reshape(x, node.args[0].shape, (*batch, n * n))
    places = w.op("Mul", _positions(w, n), w.number(n + 1, dtypes.int64))
    return w.op("Gather", flat, places, axis=len(batch))


@row("roll")
def _roll(w: Writer, node: Node, x: str) -> str:
    axis, whole = node.attrs["axis"], node.shape[node.attrs["axis"]]
    if isinstance(whole, SymInt) or isinstance(node.attrs["shift"], SymInt):
        begin = w.op("Mod", w.op("Neg", w.size(node.attrs["shift"])), w.size(whole))
        first = w.op("Slice", x, begin, w.size(whole), w.ints(axis))
        return w.op("Concat", first, w.op("Slice", x, w.ints(0), begin, w.ints(axis)), axis=axis)
    back = -node.attrs["shift"] % whole if whole else 0
    return x if back == 0 else w.op("Concat", w.slice(x, axis, back, whole), w.slice(x, axis, 0, back), axis=axis)


@row("repeat")
def _repeat(w: Writer, node: Node, x: str) -> str:
    axis, before = node.attrs["axis"], node.args[0].shape
    copies = w.expand(w.unsqueeze(x, axis + 1), (*before[: axis + 1], node.attrs["repeats"], *before[axis + 1 :]))
    return w.reshape(copies, None, node.shape)


@row("tile")
def _tile(w: Writer, node: Node, x: str) -> str:
    return w.op("Tile", x, w.shape(node.attrs["reps"]))


@row("update_slice")
def _update_slice(w: Writer, node: Node, x: str, part: str) -> str:
    """Along the first axis where part and whole differ: what is before it, the part in what is there, what is behind it."""
    axes = list(zip(node.attrs["starts"], node.attrs["steps"], node.args[1].shape, node.shape))
    return _updated(w, x, part, axes, 0, node.args[1].shape)


def _updated(w: Writer, x: str, part: str, axes: Sequence[Any], axis: int, shape: Sequence[Dim]) -> str:
    while axis < len(axes) and _is_whole(*axes[axis]):
        axis += 1
    if axis == len(axes):
        return part
    start, step, size, whole = axes[axis]
    if isinstance(step, SymInt):
        raise NoOperator("update_slice with a symbolic step")
    if step == 1:
        inner = w.slice(x, axis, start, start + size)
        pieces = [] if same_dim(start, 0) else [w.slice(x, axis, 0, start)]
        pieces.append(_updated(w, inner, part, axes, axis + 1, shape))
        if not same_dim(start + size, whole):
            pieces.append(w.slice(x, axis, start + size, whole))
        return w.op("Concat", *pieces, axis=axis)
    positions = w.op("Add", w.op("Mul", _positions(w, size), w.scalar(step, dtypes.int64)), w.number(start, dtypes.int64))
    inner = w.op("Gather", x, positions, axis=axis)
    new = _updated(w, inner, part, axes, axis + 1, shape)
    rank = len(axes)
    spread = w.unsqueeze(positions, *(k for k in range(rank) if k != axis)) if rank > 1 else positions
    return w.op("ScatterElements", x, w.op("Expand", spread, w.op("Shape", new)), new, axis=axis)


def _is_whole(start: Dim, step: Dim, size: Dim, whole: Dim) -> bool:
    return same_dim(start, 0) and same_dim(step, 1) and same_dim(size, whole)


@row("concatenate")
def _concatenate(w: Writer, node: Node, *operands: str) -> str:
    return w.op("Concat", *operands, axis=node.attrs["axis"])


@row("pad")
def _pad(w: Writer, node: Node, x: str) -> str:
    widths = node.attrs["widths"]
    if not widths:
        return x
    if node.dtype.is_bool:
        padded = w.op("Pad", w.cast(x, dtypes.int32), w.shape([n for k in (0, 1) for n in (p[k] for p in widths)]),
                      w.scalar(int(node.attrs["value"]), dtypes.int32))  # fmt: skip
        return w.cast(padded, dtypes.bool_)
    pads = w.shape([n for k in (0, 1) for n in (pair[k] for pair in widths)])
    return w.op("Pad", x, pads, w.scalar(node.attrs["value"], node.dtype))


# -- places that are computed -----------------------------------------------------------------------------------------------------


def _in_front(axes: Sequence[int], rank: int) -> list[int]:
    return [*axes, *(k for k in range(rank) if k not in axes)]


def _stacked(w: Writer, places: Sequence[str], rank: int) -> str:
    return w.op("Concat", *(w.unsqueeze(p, rank) for p in places), axis=rank)


def _counted_from_the_front(w: Writer, x: Node, axes: Sequence[int], places: Sequence[str]) -> list[str]:
    """Negative places name elements from the end: ScatterND takes them, where runtimes do."""
    zero = w.scalar(0, dtypes.int64)
    wholes = [w.number(x.shape[a], dtypes.int64) for a in axes]
    return [w.op("Where", w.op("Less", p, zero), w.op("Add", p, n), p) for p, n in zip(places, wholes)]


@row("gather")
def _gather(w: Writer, node: Node, x: str, *places: str) -> str:
    axes, at, rank = node.attrs["axes"], node.attrs["at"], node.args[0].ndim
    n = node.args[1].ndim
    if len(axes) == 1:
        found, here = w.op("Gather", x, places[0], axis=axes[0]), axes[0]
    else:
        found = w.op("GatherND", w.transpose(x, _in_front(axes, rank)), _stacked(w, places, n))
        here = 0
    rest = [k for k in range(node.ndim) if not here <= k < here + n]
    return w.transpose(found, [*rest[:at], *range(here, here + n), *rest[at:]])


_COMBINE = {"": "none", "add": "add", "multiply": "mul", "maximum": "max", "minimum": "min"}


@row("scatter")
def _scatter(w: Writer, node: Node, x: str, values: str, *places: str) -> str:
    axes, at, combine = node.attrs["axes"], node.attrs["at"], node.attrs["combine"]
    n, order = node.args[2].ndim, _in_front(axes, node.ndim)
    if combine not in _COMBINE:
        raise NoOperator(f"scatter that combines by {combine}")
    inside = _counted_from_the_front(w, node.args[0], axes, places)
    given = w.transpose(values, [*range(at, at + n), *range(at), *range(at + n, node.args[1].ndim)])
    stored = w.op("ScatterND", w.transpose(x, order), _stacked(w, inside, n), given, reduction=_COMBINE[combine])
    return w.transpose(stored, [order.index(k) for k in range(node.ndim)])


# -- external calls ---------------------------------------------------------------------------------------------------------------

CALLS: dict[str, Row] = {}  # by the name of the function that is called


def called(*names: str) -> Callable[[Row], Row]:
    def register(function: Row) -> Row:
        CALLS.update(dict.fromkeys(names, function))
        return function

    return register


@row("external_call")
def _external_call(w: Writer, node: Node, *operands: str) -> str:
    """`operands` go to the places of the call's arguments."""
    call: FunctionCall = node.attrs["call"]
    how = CALLS.get(call.function.__name__ if callable(call.function) else call.function)
    if how is None or call.each:
        raise NoOperator(call.name)
    given = [operands[a.position] if isinstance(a, Slot) else a for a in call.args]
    return how(w, node, *given, **{k: operands[v.position] if isinstance(v, Slot) else v for k, v in call.kwargs})


def _sorting(name: str, result: int) -> None:
    @called(name)
    def sort(w: Writer, node: Node, x: str, axis: Any = -1, *more: Any, **named: Any) -> str:
        if not isinstance(axis, int):
            raise NoOperator(f"np.{name} along {axis}")
        return w.ops("TopK", x, w.size(node.shape[axis]), outputs=2, axis=axis % node.ndim, largest=0, sorted=1)[result]


_sorting("sort", 0)
_sorting("argsort", 1)


@called("linalg.det")
def _det(w: Writer, node: Node, x: str) -> str:
    return w.op("Det", x)


@called("attention")
def _attention(
    w: Writer, node: Node, q: str, k: str, v: str, mask: Any, seed: Any, offset: Any, scale: Any, causal: bool, dropout: Any,
    order: tuple[int, ...], other: Any = None,
) -> str:  # fmt: skip
    """As the operator, where there is one; its result then in the order of axes that it is given in."""
    if node.attrs["result"] != 0 or seed is not None:
        raise NoOperator("attention with dropout" if seed is not None else "attention's sums of exponentials")
    nodes = node.args
    rank = nodes[0].ndim
    if w.opset >= 23 and rank == 4 and isinstance(scale, float) and other is None:
        inputs = (q, k, v) if mask is None else (q, k, v, mask)
        return w.transpose(w.op("Attention", *inputs, scale=scale, is_causal=int(causal)), order)
    factor = w.scalar(scale, node.dtype) if isinstance(scale, (int, float)) else w.cast(scale, node.dtype)
    heads = nodes[0].shape[-3] if rank > 2 else 1
    k, v = (_heads(w, name, nodes[place], heads) for name, place in ((k, 1), (v, 2)))
    scores = w.op("MatMul", w.op("Mul", q, factor), w.op("Transpose", k, perm=[*range(rank - 2), rank - 1, rank - 2]))
    hidden = w.scalar(-np.inf, node.dtype)
    if causal:
        rows, columns = _positions(w, nodes[0].shape[-2]), _positions(w, nodes[1].shape[-2])
        scores = w.op("Where", w.op("LessOrEqual", columns, w.unsqueeze(rows, 1)), scores, hidden)
    places = [node.attrs["call"].args[n] for n, m in ((3, mask), (10, other)) if m is not None]
    for name, place in zip([m for m in (mask, other) if m is not None], places):
        is_bool = nodes[place.position].dtype.is_bool
        scores = w.op("Where", name, scores, hidden) if is_bool else w.op("Add", scores, name)
    weights = w.op("Softmax", scores, axis=-1)
    if places:  # rows of which nothing is seen give nothing
        weights = w.op("Where", w.op("IsNaN", weights), w.scalar(0, node.dtype), weights)
    return w.transpose(w.op("MatMul", weights, v), order)


def _heads(w: Writer, name: str, node: Node, heads: Dim) -> str:
    """Keys or values once for each head of the queries."""
    own = node.shape[-3] if node.ndim > 2 else 1
    if same_dim(own, heads):
        return name
    if isinstance(own, SymInt) or isinstance(heads, SymInt):
        raise NoOperator("attention with a symbolic number of heads")
    *batch, _, rows, columns = node.shape
    spread = w.expand(w.unsqueeze(name, node.ndim - 2), (*batch, own, heads // own, rows, columns))
    return w.reshape(spread, None, (*batch, heads, rows, columns))


# -- recurrent layers: gates in ONNX's order, and one direction --------------------------------------------------------------------

ORDERS = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "tanh": (0,), "relu": (0,)}  # ONNX's gates among ours
RECURRENT: dict[str, tuple[str, dict[str, Any]]] = {
    "lstm": ("LSTM", {}), "gru": ("GRU", {"linear_before_reset": 1}), "tanh": ("RNN", {}),
    "relu": ("RNN", {"activations": ["Relu"]}),
}  # fmt: skip


@called("recurrent_forward")
def _recurrent_forward(
    w: Writer, node: Node, kind: str, reverse: bool, gates: str, h0: str, c0: Any, weights: str, bias: Any, bias_of_state: Any,
    projection: Any, counts: Any, room: Any = None,
) -> str:  # fmt: skip
    """The operator multiplies the inputs itself: they are what the gates' part is a product of."""
    if projection is not None or counts is not None or node.attrs["result"] > (kind == "lstm"):
        raise NoOperator("a recurrent layer with a projection, of packed sequences, or whose gates are wanted")
    places = [a.position for a in node.attrs["call"].args if isinstance(a, Slot)]
    product = _factors(node.args[places[0]])
    if product is None:
        raise NoOperator("a recurrent layer of gates that are no product")
    x, matrix = (w.values[factor] for factor in product)
    key = (kind, reverse, x, matrix, h0, c0, weights, bias, bias_of_state)
    if key not in w.made:
        operator, more = RECURRENT[kind]
        biases = "" if bias is None else w.unsqueeze(
            w.op("Concat", _in_order(w, bias, kind), _in_order(w, bias_of_state, kind), axis=0), 0
        )  # fmt: skip
        inputs = [x, *(w.unsqueeze(_in_order(w, m, kind), 0) for m in (w.transpose(matrix, (1, 0)), weights)), biases, ""]
        inputs += [w.unsqueeze(state, 0) for state in (h0, c0) if state is not None]
        about = {"hidden_size": int(node.shape[2]), "direction": "reverse" if reverse else "forward"}
        w.made[key] = w.ops(operator, *inputs, outputs=3 if kind == "lstm" else 2, **about, **more)
    if node.attrs["result"] == 0:
        return w.op("Squeeze", w.made[key][0], w.ints(1))
    last = 0 if reverse else node.shape[0] - 1
    if not all(u.is_op("slice") and same_dim(u.attrs["starts"][0], last) and same_dim(u.shape[0], 1) for u in node.users):
        raise NoOperator("the cells of all steps of an LSTM")
    return w.expand(w.made[key][2], node.shape)  # of which the last ones are taken


def _in_order(w: Writer, value: str, kind: str) -> str:
    """Rows of gates in ONNX's order."""
    order = ORDERS[kind]
    if len(order) == 1:
        return value
    parts = w.ops("Split", value, outputs=len(order), axis=0, num_outputs=len(order))
    return w.op("Concat", *(parts[k] for k in order), axis=0)


def _factors(gates: Node) -> tuple[Node, Node] | None:
    """The inputs (steps, batch, columns) and the matrix that they are multiplied with."""
    product = gates.args[0] if gates.is_op("reshape") else gates
    if not product.is_op("matmul", "own_matmul"):
        return None
    rows, matrix = product.args
    x = rows.args[0] if rows.is_op("reshape") and rows.ndim == 2 else rows
    return (x, matrix) if x.ndim == 3 and matrix.ndim == 2 else None


# -- convolutions -----------------------------------------------------------------------------------------------------------------


def _about(node: Node) -> dict[str, Any]:
    befores, afters = zip(*node.attrs["padding"])
    return {
        "strides": list(node.attrs["stride"]), "dilations": list(node.attrs["dilation"]), "pads": [*befores, *afters],
        "group": node.attrs["groups"],
    }  # fmt: skip


@row("conv")
def _conv(w: Writer, node: Node, x: str, weight: str) -> str:
    result = w.op("Conv", x, weight, **_about(node))
    for axis, size in enumerate(node.attrs["places"] or (), start=2):  # fewer than there are
        result = w.slice(result, axis, 0, size)
    return result


@row("conv_input")
def _conv_input(w: Writer, node: Node, x: str, weight: str) -> str:
    """A transposed convolution: behind what the windows reach, the result goes on with zeros."""
    sizes, kernel = node.args[0].shape[2:], node.args[1].shape[2:]
    more = []
    for n, k, size, stride, dilation, (before, after) in zip(
        sizes, kernel, node.shape[2:], node.attrs["stride"], node.attrs["dilation"], node.attrs["padding"]
    ):
        rest = size - ((n - 1) * stride - before - after + dilation * (k - 1) + 1)
        if isinstance(rest, SymInt) or not 0 <= rest < max(stride, dilation):
            raise NoOperator("a transposed convolution to that size")
        more.append(int(rest))
    return w.op("ConvTranspose", x, weight, output_padding=more, **_about(node))


__all__ = ["CALLS", "called"]
