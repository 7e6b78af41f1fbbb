"""One layer of a recurrent network over all steps, in one direction: a primitive, whose steps are a loop in C.

The input's part in the gates is one product for all steps.  What is left (`recurrent_forward`, in `dynagraph/_core/recurrent`) goes
step by step, and keeps what the gates were; backward does the same in the other direction, and gives the gradients by the gates of
all steps, from which those of all weights are one product each.

`composed` is the same layer in plain operations.  Arrays of other libraries and transforms take it, and so does the primitive's
gradient where that is to be differentiated itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph._core._dispatch import (
    recurrent_backward,
    recurrent_before,
    recurrent_cell,
    recurrent_cell_backward,
    recurrent_forward,
)
from dynagraph.products import matmul
from dynagraph.torch.core.engine import TensorTerm
from dynagraph.torch.core.engine import grad as gradients_of
from dynagraph.torch.core.grad_mode import enable_grad
from dynagraph.torch.core.primitives import Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.core.terms import ArrayTerm
from dynagraph.torch.functions.activations import relu
from dynagraph.torch.functions.arithmetic import add, mul, sub
from dynagraph.torch.functions.elementary import sigmoid, tanh
from dynagraph.torch.functions.joining import cat, stack
from dynagraph.torch.functions.linear import linear
from dynagraph.torch.functions.shapes import view_as
from dynagraph.torch.functions.splitting import chunk, narrow, select


@dataclass(frozen=True)
class Kind:
    """What kinds of layers differ in."""

    name: str  # "tanh", "relu", "lstm", "gru"
    gates: int  # how many times the hidden size the weights have rows
    has_cell: bool = False


KINDS = {kind.name: kind for kind in (Kind("tanh", 1), Kind("relu", 1), Kind("lstm", 4, True), Kind("gru", 3))}

# Operands: x (steps, batch, inputs), or of packed sequences (rows, inputs); h0; c0 of an LSTM; w_ih; w_hh; two biases if `biased`;
# w_hr if `projected`; the counts of rows of each step if `packed`.


def _parts(kind: Kind, operands: Sequence[Any], biased: bool, projected: bool, packed: bool) -> tuple[Any, ...]:
    """x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, counts; None where there is none."""
    k = 3 if kind.has_cell else 2
    c0 = operands[2] if kind.has_cell else None
    b_ih, b_hh = (operands[k + 2], operands[k + 3]) if biased else (None, None)
    w_hr = operands[k + 4 if biased else k + 2] if projected else None
    return operands[0], operands[1], c0, operands[k], operands[k + 1], b_ih, b_hh, w_hr, operands[-1] if packed else None


def _rows(x: Any) -> Any:
    return x if x.ndim == 2 else x.reshape(x.shape[0] * x.shape[1], x.shape[2])


def _forward(*operands: Any, kind: str, reverse: bool, biased: bool, projected: bool, packed: bool) -> tuple[Any, ...]:
    x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, counts = _parts(KINDS[kind], operands, biased, projected, packed)
    gates = matmul(_rows(x), w_ih.T).reshape(*x.shape[:-1], w_ih.shape[0])
    room = (None, None, gates) if kind == "lstm" else None
    return recurrent_forward(kind, reverse, gates, h0, c0, w_hh, b_ih, b_hh, w_hr, counts, room)


def _only(*operands: Any, **attrs: Any) -> Any:
    return _forward(*operands, **attrs)[0]


def _states_before(out: Any, h0: Any, counts: Any, reverse: bool) -> Any:
    """The states before each step, as rows."""
    if counts is not None:
        return recurrent_before(reverse, out, h0, counts)[0]
    first = h0.reshape(1, *h0.shape)
    return _rows(np.concatenate((out[1:], first) if reverse else (first, out[:-1])))


def _back(d: Any, g: Any) -> list[Any]:
    attrs = d.attrs
    kind = KINDS[attrs["kind"]]
    by_out, by_cells = g[:2] if kind.has_cell else (g if kind.gates == 1 else g[0], None)
    if isinstance(by_out if by_out is not None else by_cells, TensorTerm):
        return _recorded(d, composed, by_out, by_cells)
    operands = [term.array for term in d.operands]
    x, h0, c0, w_ih, w_hh, b_ih, _, w_hr, counts = _parts(kind, operands, attrs["biased"], attrs["projected"], attrs["packed"])
    outs = [d.out.array] if kind.gates == 1 else [term.array for term in d.outs]
    out, cells, gates = outs[0], outs[1] if kind.has_cell else None, None if kind.gates == 1 else outs[-1]
    found = recurrent_backward(
        kind.name, attrs["reverse"], None if by_out is None else by_out.array, None if by_cells is None else by_cells.array,
        out, cells, gates, h0, c0, w_hh, w_hr, counts,
    )  # fmt: skip
    rows = _rows(found[0])
    of_state = _rows(found[2]) if kind.name == "gru" else rows
    results = [matmul(rows, w_ih).reshape(x.shape) if d.needs(0) else None, found[1]]
    if kind.has_cell:
        results.append(found[2])
    results += [matmul(rows.T, _rows(x)), matmul(of_state.T, _states_before(out, h0, counts, attrs["reverse"]))]
    if b_ih is not None:
        total = rows.sum(0)
        results += [total, total if of_state is rows else of_state.sum(0)]
    if w_hr is not None:
        results.append(matmul(_rows(found[3]).T, _rows(found[4])))
    if counts is not None:
        results.append(None)
    return [None if array is None else ArrayTerm(array) for array in results]


def _recorded(d: Any, function: Any, *grads: Any) -> list[Any]:
    """The gradients as tensors with their history: those of the same in plain operations."""
    given = [term.tensor for term in d.operands]
    with enable_grad():
        own = [view_as(t, t) for t in given]  # so that an operand that stands in two places has two gradients
        results = function(*own, **d.attrs)
        ends = [(t, g.tensor) for t, g in zip(results, grads) if g is not None]
        wanted = [k for k in range(len(own)) if d.node.needs(k)]
        found = gradients_of(
            [t for t, _ in ends], [own[k] for k in wanted], [g for _, g in ends], create_graph=True, allow_unused=True
        )
    by_place = dict(zip(wanted, found))
    return [None if by_place.get(k) is None else TensorTerm(by_place[k]) for k in range(len(own))]  # type: ignore[arg-type]


_PLAIN = define("recurrent", _only, _back, "*o", backward="RecurrentBackward0")
_GRU = define("recurrent_gru", _forward, _back, "*op", backward="RecurrentGruBackward0", outputs=2, differentiable=(0,))
_LSTM = define("recurrent_lstm", _forward, _back, "*opq", backward="RecurrentLstmBackward0", outputs=3, differentiable=(0, 1))
_PRIMITIVES: dict[str, Primitive] = {"tanh": _PLAIN, "relu": _PLAIN, "gru": _GRU, "lstm": _LSTM}


def layer(operands: Sequence[Tensor], **attrs: Any) -> tuple[Tensor, Tensor | None]:
    """The outputs of all steps, and an LSTM's cells."""
    if type(operands[0]._array) is not np.ndarray:
        return composed(*operands, **attrs)
    found = apply(_PRIMITIVES[attrs["kind"]], *operands, **attrs)
    if attrs["kind"] == "lstm":
        return found[0], found[1]
    return (found[0] if attrs["kind"] == "gru" else found), None


# -- one step -----------------------------------------------------------------------------------------------------------------


def _cell(gates: Any, of_state: Any, before: Any, kind: str) -> tuple[Any, ...]:
    return recurrent_cell(kind, gates, of_state, before)


def _cell_back(d: Any, g: Any) -> list[Any]:
    kind, is_lstm = d.attrs["kind"], d.attrs["kind"] == "lstm"
    by_h, by_c = g[0], g[1] if is_lstm else None
    if isinstance(by_h if by_h is not None else by_c, TensorTerm):
        return _recorded(d, pointwise, by_h, by_c)
    kept = d.outs
    found = recurrent_cell_backward(
        kind, None if by_h is None else by_h.array, None if by_c is None else by_c.array, kept[1].array if is_lstm else None,
        kept[-1].array, d.operand(2).array,
    )  # fmt: skip
    by_gates = ArrayTerm(found[0])
    return [by_gates, by_gates if is_lstm else ArrayTerm(found[2]), ArrayTerm(found[1])]


_LSTM_CELL = define("lstm_cell", _cell, _cell_back, "*pq", backward="LstmCellBackward0", outputs=3, differentiable=(0, 1))
_GRU_CELL = define("gru_cell", _cell, _cell_back, "*p", backward="GruCellBackward0", outputs=2, differentiable=(0,))


def cell(kind: str, gates: Tensor, of_state: Tensor, h: Tensor, c: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The states after a step, of both parts in the gates and the states before."""
    before = h if c is None else c
    if kind in ("tanh", "relu") or type(gates._array) is not np.ndarray or gates._array.dtype.char not in "fd":
        return pointwise(gates, of_state, before, kind=kind)
    found = apply(_LSTM_CELL if kind == "lstm" else _GRU_CELL, gates, of_state, before, kind=kind)
    return found[0], found[1] if kind == "lstm" else None


# -- the same in plain operations ---------------------------------------------------------------------------------------------


def pointwise(gates: Tensor, of_state: Tensor, before: Tensor, kind: str) -> tuple[Tensor, Tensor | None]:
    """As `cell`; `before` is an LSTM's cells, of other kinds the state."""
    h, c = before, before
    if kind == "gru":
        reset, update, new = chunk(gates, 3, -1)
        reset_too, update_too, part = chunk(of_state, 3, -1)
        new = tanh(add(new, mul(sigmoid(add(reset, reset_too)), part)))
        return add(new, mul(sigmoid(add(update, update_too)), sub(h, new))), None
    total = add(gates, of_state)
    if kind != "lstm":
        return (tanh(total) if kind == "tanh" else relu(total)), None
    entering, forget, new, shown = chunk(total, 4, -1)
    cell = add(mul(sigmoid(forget), c), mul(sigmoid(entering), tanh(new)))
    return mul(sigmoid(shown), tanh(cell)), cell


def _counts(x: Tensor, counts: Tensor | None) -> list[int]:
    shape = x._array.shape
    return [shape[1]] * shape[0] if counts is None else [int(n) for n in counts._array.tolist()]


def composed(
    *operands: Tensor, kind: str, reverse: bool, biased: bool, projected: bool, packed: bool
) -> tuple[Tensor, Tensor | None]:
    """The outputs of all steps, and an LSTM's cells."""
    x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, counts = _parts(KINDS[kind], operands, biased, projected, packed)
    gates = linear(x, w_ih, b_ih)
    steps, start, outputs, cells = [], 0, [], []
    for count in _counts(x, counts):
        steps.append((start, count))
        start += count
    h, c, place = h0, c0, 0
    for place, (start, count) in reversed([*enumerate(steps)]) if reverse else enumerate(steps):
        before, cells_before = _of_rows(h, h0, count), None if c is None else _of_rows(c, c0, count)
        rows = narrow(gates, 0, start, count) if packed else select(gates, 0, place)
        h, c = pointwise(rows, linear(before, w_hh, b_hh), before if cells_before is None else cells_before, kind)
        h = h if w_hr is None else linear(h, w_hr)
        outputs.append(h)
        cells.append(c)
    if reverse:
        outputs.reverse()
        cells.reverse()
    join = cat if packed else stack
    return join(outputs), join(cells) if c0 is not None else None


def _of_rows(state: Tensor, initial: Tensor, count: int) -> Tensor:
    """The states of the first rows: of those that begin only now, the initial ones."""
    known = state._array.shape[0]
    if known == count:
        return state
    return narrow(state, 0, 0, count) if known > count else cat((state, narrow(initial, 0, known, count - known)))


__all__ = ["KINDS", "Kind", "cell", "composed", "layer"]
