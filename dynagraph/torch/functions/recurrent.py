"""Recurrent networks as functions: `torch.rnn_tanh`, `rnn_relu`, `lstm`, `gru` over sequences, and their cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import put_beside
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.tensor import Tensor, wrap
from dynagraph.torch.functions.common import cast, check_tensor, function
from dynagraph.torch.functions.dropout import dropout
from dynagraph.torch.functions.joining import cat, stack
from dynagraph.torch.functions.linear import linear
from dynagraph.torch.functions.recurrent_layers import KINDS, Kind, cell, layer
from dynagraph.torch.functions.selection import index_select
from dynagraph.torch.functions.shapes import transpose
from dynagraph.torch.functions.splitting import narrow, select


def _weights(params: Sequence[Tensor], biased: bool, projected: bool, count: int) -> list[list[Tensor]]:
    """Those of each layer and direction: w_ih, w_hh, the biases, the projection."""
    each = 2 + 2 * biased + projected
    if len(params) % each:
        raise RuntimeError(f"ArrayRef: size {len(params)} not divisible by {each}")
    if len(params) < count * each:
        raise RuntimeError("Expected more weights in stacked_rnn")
    return [list(params[k * each : (k + 1) * each]) for k in range(count)]


def _check(kind: Kind, x: Tensor, states: Sequence[Tensor], weights: list[list[Tensor]], packed: bool, directions: int) -> None:
    """RuntimeError where sizes or dtypes do not fit."""
    ndim = 2 if packed else 3
    if x._array.ndim != ndim:
        raise RuntimeError(f"input must have {ndim} dimensions, got {x._array.ndim}")
    for state in states:
        if state._array.ndim != 3:
            raise RuntimeError(f"hidden states must have 3 dimensions, got {state._array.ndim}")
        if state._array.shape[0] < len(weights):
            raise RuntimeError("Expected more hidden states in stacked_rnn")
    inputs = x._array.shape[-1]
    for k, (w_ih, w_hh, *_) in enumerate(weights):
        for w in (w_ih, w_hh, *states):
            if w._array.dtype != x._array.dtype:
                names = [dtypes.scalar_name(t.dtype) for t in (x, w)]
                raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {names[0]} and {names[1]}")
        if k and k % directions == 0:
            inputs = weights[k - 1][1]._array.shape[1] * directions
        rows, columns = w_ih._array.shape
        if columns != inputs:
            raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied (...x{inputs} and {columns}x{rows})")
        outputs = w_hh._array.shape[1]
        hidden = w_hh._array.shape[0] // kind.gates
        for state, size in zip(states, (outputs, hidden)):
            if state._array.shape[2] != size:
                raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied (...x{state._array.shape[2]} and {size}x{rows})")
            if not packed and state._array.shape[1] != x._array.shape[1]:
                raise RuntimeError(
                    f"The size of tensor a ({state._array.shape[1]}) must match the size of tensor b ({x._array.shape[1]}) at "
                    "non-singleton dimension 0"
                )


def _last_rows(counts: Tensor, batch: int) -> Tensor:
    """Where the last row of each packed sequence is."""
    array = counts._array
    lengths = np.sum(array[:, None] > np.arange(batch), axis=0)
    return wrap((np.cumsum(array) - array)[lengths - 1] + np.arange(batch))


def _network(
    kind: Kind, x: Tensor, states: Sequence[Tensor], params: Sequence[Tensor], has_biases: bool, num_layers: int, p: float,
    train: bool, bidirectional: bool, counts: Tensor | None = None,
) -> tuple[Tensor, ...]:
    """The outputs of the last layer, and the last states of all."""
    directions = 2 if bidirectional else 1
    projected = kind.has_cell and states[0]._array.shape[-1] != states[1]._array.shape[-1]
    weights = _weights(params, has_biases, projected, num_layers * directions)
    _check(kind, x, states, weights, counts is not None, directions)
    if not x._array.shape[0]:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    dtype = x.dtype
    if is_half(x._array.dtype):
        x, *states = (cast(t, dtypes.float32) for t in (x, *states))
        weights = [[cast(t, dtypes.float32) for t in each] for each in weights]
    last = None if counts is None else wrap(put_beside(_last_rows(counts, states[0]._array.shape[1])._array, x._array))
    ends: list[list[Tensor]] = [[] for _ in states]
    for number in range(num_layers):
        outputs = []
        for direction in range(directions):
            k = number * directions + direction
            w_ih, w_hh, *more = weights[k]
            operands = [x, *(select(state, 0, k) for state in states), w_ih, w_hh, *more]
            if counts is not None:
                operands.append(counts)
            out, cells = layer(
                operands, kind=kind.name, reverse=direction == 1, biased=has_biases, projected=projected, packed=counts is not None
            )
            outputs.append(out)
            for end, found in zip(ends, (out, cells)):
                end.append(_end(found, direction == 1, counts, last, states[0]._array.shape[1]))  # type: ignore[arg-type]
        x = outputs[0] if directions == 1 else cat(outputs, -1)
        if p and train and number < num_layers - 1:
            x = dropout(x, p, True)
    results: tuple[Tensor, ...] = (x, *map(stack, ends))
    return results if x.dtype is dtype else tuple(cast(t, dtype) for t in results)


def _end(found: Tensor, reverse: bool, counts: Tensor | None, last: Tensor | None, batch: int) -> Tensor:
    """The last states of a direction."""
    if counts is None or last is None:
        return select(found, 0, 0 if reverse else -1)
    return narrow(found, 0, 0, batch) if reverse else index_select(found, 0, last)


def _declare(name: str, kind: Kind) -> None:
    """The function over sequences of tensors, or packed ones."""

    def compute(input: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, ...]:
        if kwargs or len(args) != 8:
            return of_sequences(input, *args, **kwargs)
        x = check_tensor(input, name, "input")
        if isinstance(args[2], (list, tuple)):  # (batch_sizes, hx, params, ...)
            return _of_packed(x, *args)
        return of_sequences(x, *args)

    def states_of(hx: Any) -> Sequence[Tensor]:
        if not kind.has_cell:
            return (check_tensor(hx, name, "hx", 2),)
        if len(hx) != 2:
            raise RuntimeError("lstm expects two hidden states")
        return tuple(hx)

    def of_sequences(
        input: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> tuple[Tensor, ...]:
        x = transpose(input, 0, 1) if batch_first else input
        out, *ends = _network(kind, x, states_of(hx), params, has_biases, num_layers, dropout, train, bidirectional)
        return (transpose(out, 0, 1) if batch_first else out, *ends)

    def _of_packed(
        data: Tensor, batch_sizes: Tensor, hx: Any, params: Sequence[Tensor], has_biases: bool, num_layers: int, dropout: float,
        train: bool, bidirectional: bool,
    ) -> tuple[Tensor, ...]:
        return _network(kind, data, states_of(hx), params, has_biases, num_layers, dropout, train, bidirectional, batch_sizes)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = (
        f"``{name}(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)``: the outputs of all "
        f"steps and the last states; of packed sequences ``{name}(data, batch_sizes, hx, params, has_biases, num_layers, dropout, "
        "train, bidirectional)``."
    )
    function(name, method=False)(compute)


for _name, _kind in (("rnn_tanh", "tanh"), ("rnn_relu", "relu"), ("lstm", "lstm"), ("gru", "gru")):
    _declare(_name, KINDS[_kind])


# -- cells --------------------------------------------------------------------------------------------------------------------


def _check_cell(kind: Kind, x: Tensor, states: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor) -> None:
    hidden = states[0]._array.shape[-1]
    if x._array.shape[1] != w_ih._array.shape[1]:
        raise RuntimeError(f"input has inconsistent input_size: got {x._array.shape[1]} expected {w_ih._array.shape[1]}")
    for k, state in enumerate(states):
        if state._array.shape[0] != x._array.shape[0]:
            raise RuntimeError(
                f"Input batch size {x._array.shape[0]} doesn't match hidden{k} batch size {state._array.shape[0]}"
            )
        if state._array.shape[-1] != w_hh._array.shape[1]:
            raise RuntimeError(
                f"hidden{k} has inconsistent hidden_size: got {state._array.shape[-1]}, expected {w_hh._array.shape[1]}"
            )
    for name, w in (("ih", w_ih), ("hh", w_hh)):
        if w._array.shape[0] != kind.gates * hidden:
            raise RuntimeError(
                f"weight_{name} first dim must be {kind.gates} * hidden_size = {kind.gates * hidden}, but got {w._array.shape[0]}"
            )


def _cell(name: str, kind: Kind) -> None:
    def compute(
        input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
    ) -> Any:
        x = check_tensor(input, name, "input")
        states = tuple(hx) if kind.has_cell else (check_tensor(hx, name, "hx", 2),)
        if len(states) != 1 + kind.has_cell:
            raise RuntimeError("lstm_cell expects two hidden states")
        _check_cell(kind, x, states, w_ih, w_hh)
        gates, of_state = linear(x, w_ih, b_ih), linear(states[0], w_hh, b_hh)
        h, c = cell(kind.name, gates, of_state, states[0], states[1] if kind.has_cell else None)
        return (h, c) if kind.has_cell else h

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = "One step of a recurrent network: the states after it."
    function(name, method=False)(compute)


for _name, _kind in (("rnn_tanh_cell", "tanh"), ("rnn_relu_cell", "relu"), ("lstm_cell", "lstm"), ("gru_cell", "gru")):
    _cell(_name, KINDS[_kind])

__all__: list[str] = []
