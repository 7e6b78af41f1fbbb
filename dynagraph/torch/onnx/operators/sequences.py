"""Recurrent layers, attention, losses and quantisation of ONNX."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from dynagraph import torch
from dynagraph.torch.nn import functional as F
from dynagraph.torch.onnx.operators.registry import operator
from dynagraph.torch.onnx.operators.types import dtype_of

# -- recurrent layers: gates in ONNX's order, i o f c and z r h -------------------------------------------------------------------

ACTIVATIONS: dict[str, Callable[..., Any]] = {
    "Sigmoid": lambda x, a, b: torch.sigmoid(x), "Tanh": lambda x, a, b: torch.tanh(x), "Relu": lambda x, a, b: torch.relu(x),
    "Affine": lambda x, a, b: x * (1.0 if a is None else a) + (0.0 if b is None else b),
    "LeakyRelu": lambda x, a, b: F.leaky_relu(x, 0.01 if a is None else a),
    "ThresholdedRelu": lambda x, a, b: torch.where(x > (1.0 if a is None else a), x, torch.zeros_like(x)),
    "ScaledTanh": lambda x, a, b: a * torch.tanh(b * x), "Elu": lambda x, a, b: F.elu(x, 1.0 if a is None else a),
    "HardSigmoid": lambda x, a, b: torch.clamp((0.2 if a is None else a) * x + (0.5 if b is None else b), 0, 1),
    "Softsign": lambda x, a, b: F.softsign(x), "Softplus": lambda x, a, b: F.softplus(x),
}  # fmt: skip


def _activations(names: Sequence[str] | None, default: Sequence[str], directions: int, alpha: Any, beta: Any) -> list[list[Any]]:
    """The functions of each direction."""
    given = list(names or default * directions)
    n = len(default)
    found = []
    for k, name in enumerate(given):
        function = next((f for known, f in ACTIVATIONS.items() if known.lower() == name.lower()), None)
        if function is None:
            raise NotImplementedError(f"the activation {name}")
        a, b = (None if v is None or k >= len(v) else v[k] for v in (alpha, beta))
        found.append(lambda x, function=function, a=a, b=b: function(x, a, b))
    return [found[d * n : (d + 1) * n] for d in range(directions)]


def _recurrent(
    step: Callable[..., tuple[Any, ...]], x: Any, lengths: Any, states: Sequence[Any], direction: str, layout: int
) -> tuple[Any, ...]:
    """All steps of each direction; ``step(d, x, states) -> states``, the first of which is the output."""
    if layout:
        x, states = x.transpose(0, 1), [s.transpose(0, 1) for s in states]
    n = x.shape[0]
    outputs, lasts = [], []
    directions = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]
    for d, backwards in enumerate(directions):
        now = [s[d] for s in states]
        found: list[Any] = [None] * n
        for k in reversed(range(n)) if backwards else range(n):
            new = step(d, x[k], now)
            if lengths is not None:
                there = (lengths > k).unsqueeze(-1)
                found[k] = torch.where(there, new[0], torch.zeros_like(new[0]))
                now = [torch.where(there, a, b) for a, b in zip(new, now)]
            else:
                found[k], now = new[0], list(new)
        outputs.append(torch.stack(found, 0))
        lasts.append(now)
    whole = torch.stack(outputs, 1)
    ends = [torch.stack([last[k] for last in lasts], 0) for k in range(len(states))]
    if layout:
        whole, ends = whole.permute(2, 0, 1, 3), [e.transpose(0, 1) for e in ends]
    return whole, *ends


def _start(x: Any, given: Any, w: Any, hidden: int, layout: int) -> Any:
    if given is not None:
        return given
    batch = x.shape[0] if layout else x.shape[1]
    shape = (batch, w.shape[0], hidden) if layout else (w.shape[0], batch, hidden)
    return torch.zeros(shape, dtype=x.dtype)


def _clipped(value: Any, clip: float | None) -> Any:
    return value if clip is None else torch.clamp(value, -clip, clip)


@operator("RNN")
def rnn(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, hidden_size: int | None = None,
    direction: str = "forward", activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: float | None = None, layout: int = 0,
) -> Any:  # fmt: skip
    functions = _activations(activations, ["Tanh"], w.shape[0], activation_alpha, activation_beta)
    hidden = r.shape[-1]

    def step(d: int, x: Any, states: Sequence[Any]) -> tuple[Any, ...]:
        total = torch.matmul(x, w[d].t()) + torch.matmul(states[0], r[d].t())
        if b is not None:
            total = total + b[d][:hidden] + b[d][hidden:]
        return (functions[d][0](_clipped(total, clip)),)

    return _recurrent(step, x, lengths, [_start(x, h, w, hidden, layout)], direction, layout)


@operator("GRU")
def gru(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, hidden_size: int | None = None,
    direction: str = "forward", activations: Any = None, activation_alpha: Any = None, activation_beta: Any = None,
    clip: float | None = None, layout: int = 0, linear_before_reset: int = 0,
) -> Any:  # fmt: skip
    functions = _activations(activations, ["Sigmoid", "Tanh"], w.shape[0], activation_alpha, activation_beta)
    n = r.shape[-1]

    def step(d: int, x: Any, states: Sequence[Any]) -> tuple[Any, ...]:
        (h,), (f, g) = states, functions[d]
        wb, rb = (torch.zeros(3 * n, dtype=x.dtype),) * 2 if b is None else (b[d][: 3 * n], b[d][3 * n :])
        inputs = torch.matmul(x, w[d].t()) + wb
        before = torch.matmul(h, r[d][: 2 * n].t()) + rb[: 2 * n]
        z = f(_clipped(inputs[:, :n] + before[:, :n], clip))
        reset = f(_clipped(inputs[:, n : 2 * n] + before[:, n:], clip))
        if linear_before_reset:
            more = reset * (torch.matmul(h, r[d][2 * n :].t()) + rb[2 * n :])
        else:
            more = torch.matmul(reset * h, r[d][2 * n :].t()) + rb[2 * n :]
        new = g(_clipped(inputs[:, 2 * n :] + more, clip))
        return ((1 - z) * new + z * h,)

    return _recurrent(step, x, lengths, [_start(x, h, w, n, layout)], direction, layout)


@operator("LSTM")
def lstm(
    x: Any, w: Any, r: Any, b: Any = None, lengths: Any = None, h: Any = None, c: Any = None, p: Any = None,
    hidden_size: int | None = None, direction: str = "forward", activations: Any = None, activation_alpha: Any = None,
    activation_beta: Any = None, clip: float | None = None, input_forget: int = 0, layout: int = 0,
) -> Any:  # fmt: skip
    functions = _activations(activations, ["Sigmoid", "Tanh", "Tanh"], w.shape[0], activation_alpha, activation_beta)
    n = r.shape[-1]

    def step(d: int, x: Any, states: Sequence[Any]) -> tuple[Any, ...]:
        (h, c), (f, g, last) = states, functions[d]
        gates = torch.matmul(x, w[d].t()) + torch.matmul(h, r[d].t())
        if b is not None:
            gates = gates + b[d][: 4 * n] + b[d][4 * n :]
        i, o, forget, cell = (gates[:, k * n : (k + 1) * n] for k in range(4))
        if p is not None:
            i, forget = i + p[d][:n] * c, forget + p[d][2 * n :] * c
        i = f(_clipped(i, clip))
        forget = 1 - i if input_forget else f(_clipped(forget, clip))
        c = forget * c + i * g(_clipped(cell, clip))
        o = f(_clipped(o if p is None else o + p[d][n : 2 * n] * c, clip))
        return o * last(c), c

    start = [_start(x, state, w, n, layout) for state in (h, c)]
    return _recurrent(step, x, lengths, start, direction, layout)


# -- attention --------------------------------------------------------------------------------------------------------------------


@operator("Attention")
def attention(
    q: Any, k: Any, v: Any, mask: Any = None, past_key: Any = None, past_value: Any = None, lengths: Any = None, is_causal: int = 0,
    kv_num_heads: int | None = None, left_window_size: int = -1, q_num_heads: int | None = None, qk_matmul_output_mode: int = 0,
    right_window_size: int = -1, scale: float | None = None, softcap: float = 0.0, softmax_precision: int | None = None,
) -> Any:  # fmt: skip
    flat = q.ndim == 3
    if flat:
        assert q_num_heads is not None and kv_num_heads is not None
        q, k, v = (t.reshape(t.shape[0], t.shape[1], n, -1).transpose(1, 2)
                   for t, n in ((q, q_num_heads), (k, kv_num_heads), (v, kv_num_heads)))  # fmt: skip
    offset = _offset(q, past_key, lengths)
    if past_key is not None:
        k, v = torch.cat([past_key, k], 2), torch.cat([past_value, v], 2)
    present = k, v
    if k.shape[1] != q.shape[1]:
        k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    root = math.sqrt(1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    products = torch.matmul(q * root, (k * root).transpose(-1, -2))
    capped = softcap * torch.tanh(products / softcap) if softcap else products
    bias = _bias(mask, q, k.shape[2], lengths, offset, bool(is_causal), left_window_size, right_window_size)
    masked = capped if bias is None else capped + bias
    wide = masked if softmax_precision is None else masked.to(dtype_of(softmax_precision))
    weights = F.softmax(wide, -1)
    if bias is not None:  # rows that see nothing give nothing
        weights = torch.where(torch.amax(bias, -1, True) == float("-inf"), torch.zeros_like(weights), weights)
    weights = weights.to(q.dtype)
    result = torch.matmul(weights, v)
    if flat:
        result = result.transpose(1, 2).reshape(result.shape[0], result.shape[2], -1)
    return result, *present, (products, capped, masked, weights)[qk_matmul_output_mode]


def _offset(q: Any, past_key: Any, lengths: Any) -> Any:
    """How many keys come before the first query: a number, or one for each item."""
    if past_key is not None:
        return past_key.shape[2]
    return 0 if lengths is None else (lengths - q.shape[2]).reshape(-1, 1, 1, 1)


def _bias(mask: Any, q: Any, n_keys: int, lengths: Any, offset: Any, causal: bool, left: int, right: int) -> Any:
    """What is added to the products: minus infinity where a query does not see a key.  None: each sees all."""
    bias = None if mask is None else _hidden(mask, q.dtype) if mask.dtype == torch.bool else mask
    if bias is not None and bias.shape[-1] < n_keys:
        bias = F.pad(bias, [0, n_keys - bias.shape[-1]], value=float("-inf"))
    ahead = torch.arange(n_keys) - (torch.arange(q.shape[2]).unsqueeze(1) + offset)
    conditions = [ahead <= 0] if causal else []
    conditions += [ahead >= -left] if left >= 0 else []
    conditions += [ahead <= right] if right >= 0 else []
    if lengths is not None:
        conditions.append(torch.arange(n_keys) < lengths.reshape(-1, 1, 1, 1))
    for condition in conditions:
        hidden = _hidden(condition, q.dtype)
        bias = hidden if bias is None else bias + hidden
    return bias


def _hidden(seen: Any, dtype: Any) -> Any:
    nothing = torch.zeros((), dtype=dtype)
    return torch.where(seen, nothing, nothing + float("-inf"))


@operator("RotaryEmbedding")
def rotary_embedding(
    x: Any, cos: Any, sin: Any, positions: Any = None, interleaved: int = 0, num_heads: int = 0, rotary_embedding_dim: int = 0
) -> Any:
    shape = x.shape
    if x.ndim == 3:
        x = x.reshape(shape[0], shape[1], num_heads, -1).transpose(1, 2)
    n = rotary_embedding_dim or x.shape[-1]
    turned, rest = x[..., :n], x[..., n:]
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    cos, sin = cos.unsqueeze(1)[..., : n // 2], sin.unsqueeze(1)[..., : n // 2]
    a, b = (turned[..., ::2], turned[..., 1::2]) if interleaved else (turned[..., : n // 2], turned[..., n // 2 :])
    real, imaginary = cos * a - sin * b, sin * a + cos * b
    together = torch.stack([real, imaginary], -1).flatten(-2) if interleaved else torch.cat([real, imaginary], -1)
    result = torch.cat([together, rest], -1) if rest.shape[-1] else together
    return result.transpose(1, 2).reshape(shape) if len(shape) == 3 else result


# -- losses -----------------------------------------------------------------------------------------------------------------------


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood(x: Any, target: Any, weight: Any = None, ignore_index: int = -(2**31), reduction: str = "mean") -> Any:
    return F.nll_loss(x, target.to(torch.int64), weight, ignore_index=ignore_index, reduction=reduction)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy(x: Any, target: Any, weight: Any = None, ignore_index: int = -(2**31), reduction: str = "mean") -> Any:
    logarithms = F.log_softmax(x, 1)
    return negative_log_likelihood(logarithms, target, weight, ignore_index, reduction), logarithms


# -- quantisation -----------------------------------------------------------------------------------------------------------------


def _spread(parameter: Any, like: Any, axis: int, block_size: int) -> Any:
    """A scale or zero point for each element."""
    if block_size:
        spread = parameter.repeat_interleave(block_size, axis)
        return spread.narrow(axis, 0, like.shape[axis])
    if parameter.numel() == 1:
        return parameter.reshape(())
    shape = [1] * like.ndim
    shape[axis] = -1
    return parameter.reshape(shape)


@operator("QuantizeLinear")
def quantize(
    x: Any, scale: Any, zero: Any = None, axis: int = 1, block_size: int = 0, output_dtype: int = 0, precision: int = 0,
    saturate: int = 1,
) -> Any:  # fmt: skip
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype) if output_dtype else torch.uint8
    info = torch.iinfo(dtype)
    whole = torch.round(x / _spread(scale, x, axis, block_size))
    if zero is not None:
        whole = whole + _spread(zero, x, axis, block_size).to(whole.dtype)
    return torch.clamp(whole, info.min, info.max).to(dtype)


@operator("DequantizeLinear")
def dequantize(x: Any, scale: Any, zero: Any = None, axis: int = 1, block_size: int = 0, output_dtype: int = 0) -> Any:
    apart = x.to(scale.dtype)
    if zero is not None:
        apart = apart - _spread(zero, x, axis, block_size).to(scale.dtype)
    return apart * _spread(scale, x, axis, block_size)


@operator("DynamicQuantizeLinear")
def dynamic_quantize(x: Any) -> Any:
    nothing = torch.zeros((), dtype=x.dtype)
    low, high = torch.minimum(x.min(), nothing), torch.maximum(x.max(), nothing)
    scale = (high - low) / 255
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    zero = torch.clamp(torch.round(-low / scale), 0, 255).to(torch.uint8)
    return torch.clamp(torch.round(x / scale) + zero.to(x.dtype), 0, 255).to(torch.uint8), scale, zero


__all__: list[str] = []
