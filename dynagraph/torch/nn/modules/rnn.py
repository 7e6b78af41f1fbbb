"""Recurrent layers over sequences, and their cells."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

from dynagraph.torch.core.devices import device as Device
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions import creation, recurrent  # noqa: F401  (declare their functions)
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.functions.packed_sequences import first_size
from dynagraph.torch.functions.selection import index_select
from dynagraph.torch.functions.shapes import squeeze, unsqueeze
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.utils.rnn import PackedSequence

empty, zeros = NAMESPACES["torch"]["empty"], NAMESPACES["torch"]["zeros"]
_FUNCTIONS = {
    "RNN_TANH": NAMESPACES["torch"]["rnn_tanh"], "RNN_RELU": NAMESPACES["torch"]["rnn_relu"],
    "LSTM": NAMESPACES["torch"]["lstm"], "GRU": NAMESPACES["torch"]["gru"],
}  # fmt: skip
_GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}
_ONLY_LSTM = "proj_size argument is only supported for LSTM, not RNN or GRU"


def _draw(module: Module, hidden_size: int) -> None:
    """Weights that are uniform within one over the root of the hidden size."""
    bound = 1.0 / math.sqrt(hidden_size) if hidden_size > 0 else 0
    with no_grad():
        for weight in module.parameters():
            weight.uniform_(-bound, bound)  # type: ignore[attr-defined]


def _check_sizes(
    input_size: Any, hidden_size: Any, num_layers: int, bias: Any, batch_first: Any, dropout: Any, proj_size: int
) -> None:
    if not isinstance(dropout, numbers.Number) or isinstance(dropout, bool) or not 0 <= dropout <= 1:  # type: ignore[operator]
        raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
    if dropout > 0 and num_layers == 1:  # type: ignore[operator]
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater than "
            f"1, but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )
    for name, value, kind in (
        ("bias", bias, bool), ("batch_first", batch_first, bool), ("input_size", input_size, int),
        ("hidden_size", hidden_size, int),
    ):  # fmt: skip
        if not isinstance(value, kind):
            raise TypeError(f"{name} should be of type {kind.__name__}, got: {type(value).__name__}")
        if kind is int and value <= 0:
            raise ValueError(f"{name} must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")


class RNNBase(Module):
    """What `RNN`, `LSTM` and `GRU` have in common: their weights, and checks of what they are called with.

    The weights of layer k are ``weight_ih_lk``, ``weight_hh_lk``, ``bias_ih_lk``, ``bias_hh_lk`` and, with `proj_size`,
    ``weight_hr_lk``; those of the other direction end with ``_reverse``.
    """

    __constants__ = [  # noqa: RUF012
        "mode", "input_size", "hidden_size", "num_layers", "bias", "batch_first", "dropout", "bidirectional", "proj_size",
    ]  # fmt: skip
    __jit_unused_properties__ = ["all_weights"]  # noqa: RUF012
    mode: str
    input_size: int
    hidden_size: int
    num_layers: int
    bias: bool
    batch_first: bool
    dropout: float
    bidirectional: bool
    proj_size: int
    _flat_weights_names: list[str]
    _all_weights: list[list[str]]

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_sizes(input_size, hidden_size, num_layers, bias, batch_first, dropout, proj_size)
        if mode not in _GATES:
            raise ValueError("Unrecognized RNN mode: " + mode)
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout, self.bidirectional = bias, batch_first, float(dropout), bidirectional
        self.proj_size = proj_size
        self._flat_weights_names, self._all_weights = [], []
        for layer in range(num_layers):
            for suffix in ("", "_reverse")[: 2 if bidirectional else 1]:
                self._add_weights(layer, suffix, device, dtype)
        self.reset_parameters()

    def _add_weights(self, layer: int, suffix: str, device: Any, dtype: Any) -> None:
        rows, outputs = _GATES[self.mode] * self.hidden_size, self.proj_size or self.hidden_size
        inputs = self.input_size if layer == 0 else outputs * (2 if self.bidirectional else 1)
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (rows, inputs), "weight_hh": (rows, outputs)}
        if self.bias:
            shapes.update(bias_ih=(rows,), bias_hh=(rows,))
        if self.proj_size:
            shapes["weight_hr"] = (self.proj_size, self.hidden_size)
        names = [f"{name}_l{layer}{suffix}" for name in shapes]
        for name, shape in zip(names, shapes.values()):
            setattr(self, name, Parameter(empty(shape, device=device, dtype=dtype)))
        self._flat_weights_names.extend(names)
        self._all_weights.append(names)

    @property
    def _flat_weights(self) -> list[Any]:
        return [getattr(self, name, None) for name in self._flat_weights_names]

    @_flat_weights.setter
    def _flat_weights(self, weights: list[Any]) -> None:
        for name, weight in zip(self._flat_weights_names, weights):
            if weight is not getattr(self, name, None):
                setattr(self, name, weight)

    @property
    def all_weights(self) -> list[list[Any]]:
        """The weights of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    def flatten_parameters(self) -> None:
        """Nothing: weights are laid out for the products at each call."""

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        _draw(self, self.hidden_size)

    def _file_state(self) -> dict[str, Any]:
        return {"_flat_weights": self._flat_weights}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        state.pop("_flat_weights", None)  # of PyTorch's own modules
        state.setdefault("proj_size", 0)
        super().__setstate__(state)

    # -- checks -------------------------------------------------------------------------------------------------------------
    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Errors where the input has another dtype or size than the weights ask for."""
        weight = getattr(self, self._flat_weights_names[0])
        if input.dtype is not weight.dtype:
            raise ValueError(
                f"RNN input dtype ({input.dtype}) does not match weight dtype ({weight.dtype}). Convert input: "
                f"input.to({weight.dtype}), or convert model: model.to({input.dtype})"
            )
        ndim = 3 if batch_sizes is None else 2
        if input._array.ndim != ndim:
            raise RuntimeError(f"input must have {ndim} dimensions, got {input._array.ndim}")
        if input._array.shape[-1] != self.input_size:
            raise RuntimeError(
                f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {input._array.shape[-1]}"
            )

    def _batch(self, input: Tensor, batch_sizes: Tensor | None) -> int:
        return input._array.shape[0 if self.batch_first else 1] if batch_sizes is None else first_size(batch_sizes)

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of hidden states."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        return count, self._batch(input, batch_sizes), self.proj_size or self.hidden_size

    def check_hidden_size(self, hx: Tensor, expected_hidden_size: Any, msg: str = "Expected hidden size {}, got {}") -> None:
        """RuntimeError where states have another shape."""
        if hx._array.shape != expected_hidden_size:
            raise RuntimeError(msg.format(expected_hidden_size, list(hx._array.shape)))

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Errors where the input or the states do not fit."""
        self.check_input(input, batch_sizes)
        self.check_hidden_size(hidden, self.get_expected_hidden_size(input, batch_sizes))

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """States in another order of the sequences."""
        return hx if permutation is None else index_select(hx, 1, permutation)

    # -- calls --------------------------------------------------------------------------------------------------------------
    def _check_dims(self, hx: Tensor, ndim: int) -> None:
        """RuntimeError where states have another number of dimensions than go with an input of `ndim`."""
        if hx._array.ndim != ndim:
            kind = "batched" if ndim == 3 else "unbatched"
            raise RuntimeError(f"For {kind} {ndim}-D input, hx should also be {ndim}-D but got {hx._array.ndim}-D tensor")

    def _with_batch(self, hx: Any) -> Any:
        return unsqueeze(hx, 1)

    def _without_batch(self, hx: Any) -> Any:
        return squeeze(hx, 1)

    def _initial(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        """States of zeros."""
        return zeros(self.get_expected_hidden_size(input, batch_sizes), dtype=input.dtype, device=input.device)

    def _result(self, found: tuple[Tensor, ...]) -> Any:
        return found[1]

    def _run(self, input: Tensor, hx: Any, batch_sizes: Tensor | None) -> tuple[Tensor, ...]:
        function, weights = _FUNCTIONS[self.mode], self._flat_weights
        about = (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        if batch_sizes is None:
            return function(input, hx, weights, *about, self.batch_first)  # type: ignore[no-any-return]
        return function(input, batch_sizes, hx, weights, *about)  # type: ignore[no-any-return]

    def forward(self, input: Any, hx: Any = None) -> Any:
        """The outputs of the last layer at all steps, and the last states of all layers."""
        if isinstance(input, PackedSequence):
            data, batch_sizes, order, back = input
            states = self._initial(data, batch_sizes) if hx is None else self.permute_hidden(hx, order)
            self.check_forward_args(data, states, batch_sizes)
            found = self._run(data, states, batch_sizes)
            return PackedSequence(found[0], batch_sizes, order, back), self.permute_hidden(self._result(found), back)
        ndim = input._array.ndim
        if ndim not in (2, 3):
            end = "D tensor instead" if self.mode.startswith("RNN") else "D instead"
            raise ValueError(f"{self.mode.partition('_')[0]}: Expected input to be 2D or 3D, got {ndim}{end}")
        x = input if ndim == 3 else unsqueeze(input, 0 if self.batch_first else 1)
        if hx is None:
            states = self._initial(x, None)
        else:
            self._check_dims(hx, ndim)
            states = hx if ndim == 3 else self._with_batch(hx)
        self.check_forward_args(x, states, None)
        found = self._run(x, states, None)
        if ndim == 3:
            return found[0], self._result(found)
        return squeeze(found[0], 0 if self.batch_first else 1), self._without_batch(self._result(found))

    def extra_repr(self) -> str:
        """The sizes, and options that are not the default."""
        parts = [f"{self.input_size}, {self.hidden_size}"]
        for name, default in (
            ("proj_size", 0), ("num_layers", 1), ("bias", True), ("batch_first", False), ("dropout", 0), ("bidirectional", False),
        ):  # fmt: skip
            if getattr(self, name) != default:
                parts.append(f"{name}={getattr(self, name)}")
        return ", ".join(parts)


class RNN(RNNBase):
    """Layers of ``h = tanh(w_ih @ x + b_ih + w_hh @ h + b_hh)`` over the steps of sequences; `nonlinearity`: "tanh" or "relu"."""

    nonlinearity: str

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError(_ONLY_LSTM)
        if len(args) > 3:
            nonlinearity, args = args[3], args[:3] + args[4:]
        else:
            nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{nonlinearity.upper()}", *args, **kwargs)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Layers of long short-term memory over the steps of sequences; with `proj_size` their outputs are projected to that size."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of the cells' states."""
        count = self.num_layers * (2 if self.bidirectional else 1)
        return count, self._batch(input, batch_sizes), self.hidden_size

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Errors where the input or the states do not fit."""
        self.check_input(input, batch_sizes)
        sizes = self.get_expected_hidden_size(input, batch_sizes), self.get_expected_cell_size(input, batch_sizes)
        for k, size in enumerate(sizes):
            self.check_hidden_size(hidden[k], size, f"Expected hidden[{k}] size {{}}, got {{}}")

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """States in another order of the sequences."""
        return hx if permutation is None else (index_select(hx[0], 1, permutation), index_select(hx[1], 1, permutation))

    def _check_dims(self, hx: Any, ndim: int) -> None:
        dims = hx[0]._array.ndim, hx[1]._array.ndim
        if dims != (ndim, ndim):
            kind = "batched" if ndim == 3 else "unbatched"
            raise RuntimeError(
                f"For {kind} {ndim}-D input, hx and cx should also be {ndim}-D but got ({dims[0]}-D, {dims[1]}-D) tensors"
            )

    def _with_batch(self, hx: Any) -> Any:
        return unsqueeze(hx[0], 1), unsqueeze(hx[1], 1)

    def _without_batch(self, hx: Any) -> Any:
        return squeeze(hx[0], 1), squeeze(hx[1], 1)

    def _initial(self, input: Tensor, batch_sizes: Tensor | None) -> Any:
        sizes = self.get_expected_hidden_size(input, batch_sizes), self.get_expected_cell_size(input, batch_sizes)
        return tuple([zeros(size, dtype=input.dtype, device=input.device) for size in sizes])

    def _result(self, found: tuple[Tensor, ...]) -> Any:
        return found[1], found[2]


class GRU(RNNBase):
    """Layers of gated recurrent units over the steps of sequences."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if "proj_size" in kwargs:
            raise ValueError(_ONLY_LSTM)
        super().__init__("GRU", *args, **kwargs)


# -- cells --------------------------------------------------------------------------------------------------------------------


class RNNCellBase(Module):
    """What cells have in common: ``weight_ih``, ``weight_hh``, ``bias_ih`` and ``bias_hh``, for `num_chunks` gates."""

    __constants__ = ["input_size", "hidden_size", "bias"]  # noqa: RUF012
    input_size: int
    hidden_size: int
    bias: bool
    weight_ih: Tensor
    weight_hh: Tensor

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool,
        num_chunks: int,
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        self.weight_ih = Parameter(empty((rows, input_size), device=device, dtype=dtype))
        self.weight_hh = Parameter(empty((rows, hidden_size), device=device, dtype=dtype))
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, Parameter(empty(rows, device=device, dtype=dtype)) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew."""
        _draw(self, self.hidden_size)

    def extra_repr(self) -> str:
        """The sizes, and options that are not the default."""
        text = f"{self.input_size}, {self.hidden_size}"
        if self.bias is not True:
            text += f", bias={self.bias}"
        nonlinearity = self.__dict__.get("nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"

    def _check_dims(self, what: str, x: Tensor) -> None:
        if x._array.ndim not in (1, 2):
            raise ValueError(f"{type(self).__name__}: Expected {what} to be 1D or 2D, got {x._array.ndim}D instead")

    def _initial(self, input: Tensor) -> Tensor:
        return zeros((input._array.shape[0], self.hidden_size), dtype=input.dtype, device=input.device)

    def _step(self, name: str, input: Tensor, hx: Tensor | None) -> Tensor:
        """One step by the function of that name, of a cell with one state."""
        self._check_dims("input", input)
        if hx is not None:
            self._check_dims("hidden", hx)
        single = input._array.ndim == 1
        x = unsqueeze(input, 0) if single else input
        state = self._initial(x) if hx is None else unsqueeze(hx, 0) if single else hx
        found: Tensor = NAMESPACES["torch"][name](x, state, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return squeeze(found, 0) if single else found


class RNNCell(RNNCellBase):
    """One step of an `RNN`; `nonlinearity`: "tanh" or "relu"."""

    __constants__ = ["input_size", "hidden_size", "bias", "nonlinearity"]  # noqa: RUF012
    nonlinearity: str

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device | str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The state after the step."""
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        return self._step("rnn_tanh_cell" if self.nonlinearity == "tanh" else "rnn_relu_cell", input, hx)


class LSTMCell(RNNCellBase):
    """One step of an `LSTM`."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device | str | None = None, dtype: DType | None = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """The states after the step."""
        self._check_dims("input", input)
        if hx is not None:
            self._check_dims("hx[0]", hx[0])
            self._check_dims("hx[1]", hx[1])
        single = input._array.ndim == 1
        x = unsqueeze(input, 0) if single else input
        if hx is None:
            initial = self._initial(x)
            hx = (initial, initial)
        elif single:
            hx = (unsqueeze(hx[0], 0), unsqueeze(hx[1], 0))
        h, c = NAMESPACES["torch"]["lstm_cell"](x, hx, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return (squeeze(h, 0), squeeze(c, 0)) if single else (h, c)


class GRUCell(RNNCellBase):
    """One step of a `GRU`."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, device: Device | str | None = None, dtype: DType | None = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        """The state after the step."""
        return self._step("gru_cell", input, hx)


__all__ = ["GRU", "LSTM", "RNN", "GRUCell", "LSTMCell", "RNNBase", "RNNCell", "RNNCellBase"]
