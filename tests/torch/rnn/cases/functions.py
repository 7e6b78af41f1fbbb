"""``torch.rnn_tanh``, ``rnn_relu``, ``lstm``, ``gru`` and their cells."""

from __future__ import annotations

import itertools
from typing import Any

from tests.torch.table import Case, T, case, error, program

GATES = {"rnn_tanh": 1, "rnn_relu": 1, "lstm": 4, "gru": 3}
FORMS: dict[str, Any] = {"_method": False, "_inplace": False, "_out": False, "_dtypes": "float32", "_tolerance": 20}
STEPS, BATCH, INPUTS, HIDDEN = 3, 2, 2, 3


def _weights(name: str, layers: int, directions: int, biased: bool, projected: int = 0, dtype: str = "") -> list[T]:
    rows, outputs = GATES[name] * HIDDEN, projected or HIDDEN
    found = []
    for k in range(layers):
        for _ in range(directions):
            found += [T(rows, outputs * directions if k else INPUTS, dtype=dtype), T(rows, outputs, dtype=dtype)]
            found += [T(rows, dtype=dtype), T(rows, dtype=dtype)] if biased else []
            found += [T(projected, HIDDEN, dtype=dtype)] if projected else []
    return found


def _states(name: str, count: int, batch: int = BATCH, projected: int = 0) -> Any:
    h = T(count, batch, projected or HIDDEN)
    return (h, T(count, batch, HIDDEN)) if name == "lstm" else h


def _sequences(name: str, layers: int, directions: int, biased: bool, batch_first: bool, projected: int = 0, **more: Any) -> Case:
    x = T(BATCH, STEPS, INPUTS) if batch_first else T(STEPS, BATCH, INPUTS)
    weights = _weights(name, layers, directions, biased, projected)
    states = _states(name, layers * directions, projected=projected)
    return case(name, x, states, weights, biased, layers, 0.0, False, directions == 2, batch_first, **{**FORMS, **more})


def _packed(name: str, layers: int, directions: int, biased: bool, projected: int = 0) -> Case:
    def run(torch: Any, x: Any, states: Any, weights: Any) -> Any:
        sizes = torch.tensor([3, 2, 2, 1], device="cpu")
        return getattr(torch, name)(x, sizes, states, weights, biased, layers, 0.0, False, directions == 2)

    weights = _weights(name, layers, directions, biased, projected)
    states = _states(name, layers * directions, 3, projected)
    options: dict[str, Any] = {"_dtypes": "float32", "_tolerance": 20}
    return program(f"packed {name} {layers} {directions} {biased} {projected}", run, T(8, INPUTS), states, weights, **options)


def _cell(name: str, biased: bool, batch: int = BATCH) -> Case:
    kind = name.removesuffix("_cell")
    rows = GATES[kind] * HIDDEN
    h = T(batch, HIDDEN)
    weights = [T(rows, INPUTS), T(rows, HIDDEN), *([T(rows), T(rows)] if biased else [])]
    return case(name, T(batch, INPUTS), (h, T(batch, HIDDEN)) if kind == "lstm" else h, *weights, **FORMS)


def _wrong(name: str, x: T, states: Any, weights: list[T], biased: bool = True, layers: int = 1, **more: Any) -> Case:
    return error(name, x, states, weights, biased, layers, 0.0, False, False, False, **{**FORMS, "_dtypes": "", **more})


X, H = T(STEPS, BATCH, INPUTS), T(1, BATCH, HIDDEN)

CASES: list[Case] = [
    *(_sequences(name, layers, directions, biased, batch_first)
      for name in GATES
      for layers, directions, biased, batch_first in itertools.product((1, 2), (1, 2), (True, False), (False, True))
      if layers == 1 or batch_first == biased),
    *(_sequences("lstm", layers, directions, True, False, projected=2) for layers in (1, 2) for directions in (1, 2)),
    _sequences("lstm", 1, 1, False, True, projected=2),
    *(_packed(name, layers, directions, directions == 1) for name in GATES for layers in (1, 2) for directions in (1, 2)),
    *(_packed("lstm", 1, directions, True, 2) for directions in (1, 2)),
    # odd sizes: one step, one row, no row; strides
    *(case(name, T(1, 1, INPUTS), _states(name, 1, 1), _weights(name, 1, 1, True), True, 1, 0.0, False, False, False, **FORMS)
      for name in GATES),
    *(case(name, T(3, 0, INPUTS), _states(name, 1, 0), _weights(name, 1, 1, True), True, 1, 0.0, False, False, False,
           **{**FORMS, "_dtypes": "", "_strides": False})
      for name in GATES),
    *(case(name, T(STEPS, BATCH, INPUTS, layout="step"), _states(name, 1), _weights(name, 1, 1, True), True, 1, 0.0, False, False,
           False, **{**FORMS, "_dtypes": ""})
      for name in GATES),
    *(_sequences(name, 1, 1, True, False, _dtypes="bfloat16 float16", _grad=False, _tolerance=20) for name in GATES),
    # errors
    *(_wrong(name, T(0, BATCH, INPUTS), _states(name, 1), _weights(name, 1, 1, True), _text=True) for name in GATES),
    _wrong("lstm", X, [H], _weights("lstm", 1, 1, True), _text=True),
    _wrong("gru", X, T(1, 3, HIDDEN), _weights("gru", 1, 1, True), _text=True),
    _wrong("gru", X, T(1, BATCH, HIDDEN + 1), _weights("gru", 1, 1, True)),
    _wrong("gru", T(STEPS, BATCH, INPUTS + 1), H, _weights("gru", 1, 1, True)),
    _wrong("gru", X, H, _weights("gru", 1, 1, True, dtype="float32"), _text=True),
    _wrong("gru", X, T(2, BATCH, HIDDEN), _weights("gru", 1, 1, True), layers=2, _text=True),
    _wrong("gru", X, H, _weights("gru", 1, 1, True)[:3]),
    # cells
    *(_cell(f"{name}_cell", biased) for name in GATES for biased in (True, False)),
    *(_cell(f"{name}_cell", True, batch) for name in GATES for batch in (1, 0)),
    error("lstm_cell", T(2, 4), [T(2, 5)], T(20, 4), T(20, 5), **{**FORMS, "_text": True, "_dtypes": ""}),
    error("gru_cell", T(2, 4), T(1, 5), T(15, 4), T(15, 5), **{**FORMS, "_text": True, "_dtypes": ""}),
    error("gru_cell", T(2, 3), T(2, 5), T(15, 4), T(15, 5), **{**FORMS, "_text": True, "_dtypes": ""}),
    error("gru_cell", T(2, 4), T(2, 5), T(20, 4), T(20, 5), **{**FORMS, "_text": True, "_dtypes": ""}),
]  # fmt: skip
