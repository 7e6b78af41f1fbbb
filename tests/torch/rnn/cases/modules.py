"""Recurrent modules, and sequences that are packed and padded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.torch.table import Case, T, program

OPTIONS: dict[str, Any] = {"_dtypes": "", "_shares": False}


def _given(torch: Any, module: Any) -> Any:
    """A module whose weights are the same numbers in both."""
    module = module.to(torch.float64)
    with torch.no_grad():
        for k, p in enumerate(module.parameters()):
            p.copy_(torch.sin(torch.arange(p.numel(), dtype=torch.float64) * (1.3 + k)).reshape(p.shape))
    return module


def _parts(found: Any) -> list[Any]:
    """All tensors of a result, packed sequences included."""
    if isinstance(found, tuple):
        return [t for part in found for t in _parts(part)]
    return [] if found is None else [found]


def _module(name: str, shape: tuple[int, ...], *states: Any, **about: Any) -> Case:
    def run(torch: Any, x: Any, *hx: Any) -> Any:
        module = _given(torch, getattr(torch.nn, name)(4, 5, **about))
        found = module(x, *((hx if "LSTM" in name else hx[0],) if hx else ()))
        grads = torch.autograd.grad(sum((t * t).sum() for t in _parts(found)), list(module.parameters()))
        return [*_parts(found), *grads, list(module.state_dict()), repr(module)]

    return program(f"{name} {shape} {about}", run, T(*shape), *states, **OPTIONS, _tolerance=20, _second=False)


def _packed(name: str, **about: Any) -> Case:
    def run(torch: Any, *sequences: Any) -> Any:
        pack = torch.nn.utils.rnn.pack_sequence(list(sequences), enforce_sorted=False)
        module = _given(torch, getattr(torch.nn, name)(4, 5, **about))
        out, states = module(pack)
        hx = tuple(s * 0.5 for s in states) if isinstance(states, tuple) else states * 0.5
        again, _ = module(pack, hx)
        padded, lengths = torch.nn.utils.rnn.pad_packed_sequence(again, batch_first=True, padding_value=-1.0, total_length=5)
        return [*_parts(out), *_parts(states), padded, lengths]

    return program(f"{name} packed {about}", run, T(2, 4), T(4, 4), T(1, 4), **OPTIONS, _tolerance=20)


def _rnn(name: str, function: Callable[..., Any], *args: Any, raises: bool = False, text: bool = True, **more: Any) -> Case:
    made = program(name, lambda torch, *given: function(torch, torch.nn.utils.rnn, *given), *args, **{**OPTIONS, **more})
    made.raises = raises
    made.options["text"] = text and raises
    return made


def _error(name: str, function: Callable[..., Any], text: bool = True) -> Case:
    made = program(name, lambda torch: function(torch.nn, torch.ones, torch), **OPTIONS)
    made.raises, made.options["text"] = True, text
    return made


def _drawn(torch: Any) -> Any:
    """Initial weights: the order in which they are drawn."""
    before = torch.get_rng_state()
    compatible = getattr(torch.random, "torch_compatible", None)
    scope = compatible(True) if compatible else torch.no_grad()
    with scope:
        torch.manual_seed(5)
        modules = [
            torch.nn.LSTM(3, 4, 2, bidirectional=True, proj_size=2), torch.nn.GRU(3, 4, bias=False), torch.nn.RNN(3, 4),
            torch.nn.LSTMCell(3, 4), torch.nn.GRUCell(3, 4), torch.nn.RNNCell(3, 4, bias=False),
        ]  # fmt: skip
    torch.set_rng_state(before)
    return [p.detach() for m in modules for p in m.parameters()]


X = T(4, 3, 2)

CASES: list[Case] = [
    *(_module(name, (3, 2, 4), **about) for name in ("RNN", "LSTM", "GRU")
      for about in ({}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "batch_first": True})),
    _module("RNN", (3, 2, 4), nonlinearity="relu"),
    _module("LSTM", (3, 2, 4), proj_size=3, num_layers=2),
    *(_module(name, (3, 4), **about) for name in ("RNN", "LSTM", "GRU") for about in ({}, {"batch_first": True})),
    _module("GRU", (3, 4), T(2, 5), num_layers=2),
    _module("LSTM", (3, 4), T(2, 5), T(2, 5), bidirectional=True),
    _module("LSTM", (3, 2, 4), T(1, 2, 3), T(1, 2, 5), proj_size=3),
    *(_module(f"{name}Cell", shape) for name in ("RNN", "LSTM", "GRU") for shape in ((2, 4), (4,))),
    _module("RNNCell", (2, 4), T(2, 5), nonlinearity="relu", bias=False),
    _module("LSTMCell", (4,), T(5), T(5)),
    _module("GRUCell", (4,), T(5)),
    *(_packed(name, **about) for name in ("RNN", "LSTM", "GRU") for about in ({}, {"num_layers": 2, "bidirectional": True})),
    _packed("LSTM", proj_size=2, batch_first=True),
    program("initial weights", _drawn, **OPTIONS),
    # packing and padding
    _rnn("pack", lambda t, r, x: tuple(r.pack_padded_sequence(x, [4, 2, 1])), X),
    _rnn("pack batch first", lambda t, r, x: tuple(r.pack_padded_sequence(x, t.tensor([3, 3]), batch_first=True)), T(2, 3, 2)),
    _rnn("pack shorter", lambda t, r, x: tuple(r.pack_padded_sequence(x, [2, 2, 1])), X),
    _rnn("pack unsorted", lambda t, r, x: tuple(r.pack_padded_sequence(x, [1, 4, 2], enforce_sorted=False)), X),
    _rnn("pack integers", lambda t, r: tuple(r.pack_padded_sequence(t.arange(6).reshape(3, 2), [3, 1]))),
    _rnn("pad", lambda t, r, x: r.pad_packed_sequence(r.pack_padded_sequence(x, [4, 2, 1])), X),
    _rnn("pad unsorted", lambda t, r, x: r.pad_packed_sequence(
        r.pack_padded_sequence(x, [1, 4, 2], enforce_sorted=False), True, 7.0, 6), X),
    _rnn("pad_sequence", lambda t, r, *xs: r.pad_sequence(list(xs)), T(2, 3), T(4, 3), T(1, 3)),
    _rnn("pad_sequence left", lambda t, r, *xs: r.pad_sequence(xs, True, 9.0, "left"), T(2), T(4), T(1)),
    _rnn("pack_sequence", lambda t, r, *xs: tuple(r.pack_sequence(list(xs))), T(4, 3), T(2, 3)),
    _rnn("unpack", lambda t, r, *xs: r.unpack_sequence(r.pack_sequence(list(xs), enforce_sorted=False)), T(2, 3), T(4, 3)),
    _rnn("unpad", lambda t, r, x: r.unpad_sequence(x * 1, t.tensor([2, 3, 1])), T(3, 3, 2)),
    _rnn("invert", lambda t, r: r.invert_permutation(t.tensor([2, 0, 1]))),
    _rnn("to float", lambda t, r, x: tuple(r.pack_padded_sequence(x, [4, 2, 1]).float()), X, _grad=False),
    *(_rnn(f"pack of lengths {lengths}", lambda t, r, x, given=lengths: r.pack_padded_sequence(x, given), X, raises=True)
      for lengths in ([4, 3, 0], [4, 3], [3, 4, 1])),
    _rnn("pack of a matrix of lengths", lambda t, r, x: r.pack_padded_sequence(x, t.tensor([[4, 3, 1]])), X, raises=True),
    _rnn("pack of nothing", lambda t, r: r.pack_padded_sequence(t.zeros(0, 2, 2), [0, 0]), raises=True),
    _rnn("pad to less", lambda t, r, x: r.pad_packed_sequence(r.pack_padded_sequence(x, [4, 2, 1]), total_length=3), X, raises=True),
    _rnn("pad_sequence of nothing", lambda t, r: r.pad_sequence([]), raises=True),
    _rnn("pad_sequence of a number", lambda t, r: r.pad_sequence(3), raises=True),
    _rnn("pad_sequence up", lambda t, r, x: r.pad_sequence([x], padding_side="up"), T(2), raises=True),
    _rnn("pad_sequence of two widths", lambda t, r, *xs: r.pad_sequence(list(xs)), T(2, 3), T(2, 2), raises=True, text=False),
    # errors of modules
    _error("input size", lambda nn, ones, t: nn.LSTM(3, 4)(ones(2, 3, 4))),
    _error("input dtype", lambda nn, ones, t: nn.GRU(3, 4)(ones(2, 3, 3, dtype=t.float64))),
    _error("input 4-D", lambda nn, ones, t: nn.RNN(3, 4)(ones(2, 3, 3, 3))),
    _error("LSTM input 4-D", lambda nn, ones, t: nn.LSTM(3, 4)(ones(2, 3, 3, 3))),
    _error("hidden size", lambda nn, ones, t: nn.LSTM(3, 4)(ones(2, 3, 3), (ones(1, 3, 5), ones(1, 3, 4)))),
    _error("cell size", lambda nn, ones, t: nn.LSTM(3, 4)(ones(2, 3, 3), (ones(1, 3, 4), ones(1, 3, 5)))),
    _error("GRU hidden size", lambda nn, ones, t: nn.GRU(3, 4)(ones(2, 3, 3), ones(1, 2, 4))),
    _error("hidden of a batch", lambda nn, ones, t: nn.GRU(3, 4)(ones(2, 3), ones(1, 3, 4))),
    _error("LSTM hidden without batch", lambda nn, ones, t: nn.LSTM(3, 4)(ones(2, 3, 3), (ones(1, 4), ones(1, 4)))),
    _error("no step", lambda nn, ones, t: nn.RNN(3, 4)(ones(0, 2, 3))),
    _error("LSTMCell 3-D", lambda nn, ones, t: nn.LSTMCell(3, 4)(ones(2, 2, 3))),
    _error("GRUCell hidden 3-D", lambda nn, ones, t: nn.GRUCell(3, 4)(ones(2, 3), ones(1, 2, 4))),
    _error("RNNCell nonlinearity", lambda nn, ones, t: nn.RNNCell(3, 4, nonlinearity="sin")(ones(2, 3))),
    *(_error(f"{name} {about}", lambda nn, ones, t, name=name, about=about: getattr(nn, name)(3, 4, **about))
      for name, about in (
          ("GRU", {"proj_size": 2}), ("LSTM", {"proj_size": 4}), ("LSTM", {"proj_size": -1}), ("LSTM", {"num_layers": 0}),
          ("LSTM", {"dropout": 2}), ("LSTM", {"bias": 1}), ("LSTM", {"batch_first": 0}), ("RNN", {"nonlinearity": "sin"}))),
    _error("LSTM without sizes", lambda nn, ones, t: nn.LSTM(0, 4)),
    _error("LSTM with a float size", lambda nn, ones, t: nn.LSTM(3, 4.0)),
]  # fmt: skip
