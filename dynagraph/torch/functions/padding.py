"""Borders: of a constant, reflected, replicated and circular."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import library_of_array, put_beside
from dynagraph.torch.core.autocast import autocasting
from dynagraph.torch.core.primitives import PRIMITIVES, define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.common import check_tensor, function

Pairs = tuple[tuple[int, int], ...]

# -- a constant; negative widths cut off -------------------------------------------------------------------------------


def _cut(n: int, a: int, b: int) -> tuple[slice, slice]:
    """What of a dimension is kept, and where it stands in the result."""
    start, stop = max(-a, 0), n - max(-b, 0)
    return slice(start, stop), slice(max(a, 0), max(a, 0) + stop - start)


def _constant_pad(x: Any, pads: Pairs, value: Any) -> Any:
    shape = tuple(n + a + b for n, (a, b) in zip(x.shape, pads))
    parts = [_cut(n, a, b) for n, (a, b) in zip(x.shape, pads)]
    made = library_of_array(x).full(shape, value, x.dtype)
    made[tuple(to for _, to in parts)] = x[tuple(of for of, _ in parts)]
    return made


CONSTANT = define(
    "constant_pad",
    _constant_pad,
    (lambda d, g: g.call("constant_pad", pads=tuple((-a, -b) for a, b in d.attrs["pads"]), value=0),),
    ("",),
    backward="ConstantPadNdBackward0",
)

# -- what the input itself gives -----------------------------------------------------------------------------------------


def _sources(n: int, a: int, b: int, mode: str) -> Any:
    """For each place of the result, that of the input."""
    places = np.arange(-a, n + b)
    if mode == "replicate":
        return np.minimum(np.maximum(places, 0), n - 1)
    if mode == "circular":  # around what is kept
        low, high = max(-a, 0), n - max(-b, 0)
        return low + (places - low) % max(high - low, 1)
    return n - 1 - np.abs(n - 1 - np.abs(places))


def _bordered(x: Any, pads: Pairs, mode: str, shape: Any = None) -> Any:
    if not any(map(any, pads)):
        return x.copy()  # results are memory of their own
    for k, (a, b) in enumerate(pads):
        axis = x.ndim - len(pads) + k
        if a or b:
            x = np.take(x, put_beside(_sources(x.shape[axis], a, b, mode), x), axis=axis)
    return x


def _bordered_back(g: Any, pads: Pairs, mode: str, shape: tuple[int, ...]) -> Any:
    for k, (a, b) in enumerate(pads):
        axis = g.ndim - len(pads) + k
        if not (a or b):
            continue
        n = shape[axis]
        along = (slice(None),) * axis
        sources = _sources(n, a, b, mode)
        first, last = max(a, 0), max(a, 0) + n - max(-a, 0) - max(-b, 0)  # where the input stands in the result
        made = library_of_array(g).zeros((*g.shape[:axis], n, *g.shape[axis + 1 :]), g.dtype)
        made[(*along, slice(max(-a, 0), n - max(-b, 0)))] = g[(*along, slice(first, last))]
        for place in (*range(first), *range(last, g.shape[axis])):
            made[(*along, int(sources[place]))] += g[(*along, place)]
        g = made
    return g


def _bordered_vjp(d: Any, g: Any) -> Any:
    return g.call("bordered_back", pads=d.attrs["pads"], mode=d.attrs["mode"], shape=d.x.shape)


define(
    "bordered_back",
    _bordered_back,
    (lambda d, g: g.call("circular_pad", pads=d.attrs["pads"], mode=d.attrs["mode"]),),
    ("",),
)
for _name, _node in (("reflect", "ReflectionPad{}DBackward0"), ("replicate", "ReplicationPad{}DBackward0")):
    for _n in (1, 2, 3):
        define(f"{_name}_pad{_n}d", _bordered, (_bordered_vjp,), ("",), backward=_node.format(_n))
define("circular_pad", _bordered, (_bordered_vjp,), ("",), backward="CopySlices")

# -- the function -------------------------------------------------------------------------------------------------------


def _check_constant(x: Tensor, pads: list[int]) -> None:
    for k, n in enumerate(reversed(x._array.shape)):
        if 2 * k + 1 < len(pads):
            a, b = pads[2 * k], pads[2 * k + 1]
            if n + min(a, 0) + min(b, 0) < 0:
                raise RuntimeError("narrow(): length must be non-negative.")
            if n + a + b < 0:
                raise RuntimeError(
                    f"The input size {n}, plus negative padding {a} and {b} resulted in a negative output size, which is invalid. "
                    f"Check dimension {x._array.ndim - k - 1} of your input."
                )


def _pairs(pads: list[int], count: int) -> Pairs:
    """For each of the last dimensions, in order."""
    given = [(pads[2 * k], pads[2 * k + 1]) for k in range(len(pads) // 2)]
    return (*((0, 0),) * (count - len(given)), *reversed(given))


_MODES = ("reflect", "replicate", "circular")
_COMBINATIONS = """
Supported combinations for non-constant padding:
  - 2D or 3D input: padding size = 2 (pads last dimension)
  - 3D or 4D input: padding size = 4 (pads last 2 dimensions)
  - 4D or 5D input: padding size = 6 (pads last 3 dimensions)"""


def _check_not_empty(x: Tensor, n: int) -> None:
    shape = x._array.shape
    if 0 in shape[len(shape) - n - (1 if len(shape) > n else 0) :]:
        raise RuntimeError(
            f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
            f"input, but got: {list(shape)}"
        )


def _check_reflect(x: Tensor, pads: list[int], n: int) -> None:
    shape = x._array.shape
    for k in range(n):
        size = shape[len(shape) - k - 1]
        a, b = pads[2 * k], pads[2 * k + 1]
        if a >= size or b >= size:
            raise RuntimeError(
                f"Argument #{4 + 2 * k}: Padding size should be less than the corresponding input dimension, but got: padding "
                f"({a}, {b}) at dimension {len(shape) - k - 1} of input {list(shape)}"
            )


def _check_sizes(x: Tensor, pads: list[int], n: int) -> None:
    shape = x._array.shape
    for k in range(n):
        size = shape[len(shape) - k - 1]
        if size + pads[2 * k] + pads[2 * k + 1] < 1:
            sizes = [shape[len(shape) - j - 1] for j in range(n)]
            made = [m + pads[2 * j] + pads[2 * j + 1] for j, m in enumerate(sizes)]
            words = " ".join(f"{letter}: {m}" for letter, m in zip("WHD", sizes))
            results = " ".join(f"{letter}: {m}" for letter, m in zip("WHD", made))
            raise RuntimeError(f"input ({words}) is too small. Calculated output {results}")


def _check_circular(x: Tensor, pads: list[int], n: int) -> None:
    shape = x._array.shape
    for k in range(n):
        size = shape[len(shape) - k - 1]
        a, b = pads[2 * k], pads[2 * k + 1]
        if a > size or b > size:
            raise RuntimeError("Padding value causes wrapping around more than once.")
        if size + a + b < 0:
            raise RuntimeError("Negative padding value is resulting in an empty dimension")


_WITHOUT_CONSTANT = {
    (mode, n): autocasting(functools.partial(apply, PRIMITIVES[f"{mode}_pad{n}d"]), f"{name}_pad{n}d", "functional")
    for mode, name in (("reflect", "reflection"), ("replicate", "replication"))
    for n in (1, 2, 3)
}


def constant(x: Tensor, widths: list[int], value: Any) -> Tensor:
    """With borders of a number."""
    _check_constant(x, widths)
    filled = np.asarray(value).astype(x._array.dtype)[()]
    return apply(CONSTANT, x, pads=_pairs(widths, x._array.ndim), value=filled)


@function(method=False, namespace="functional")
def pad(input: Tensor, pad: Any, mode: str = "constant", value: float | None = None) -> Tensor:
    """With borders: widths before and after the last dimension, then before and after the one in front of it, and so on."""
    x = check_tensor(input, "pad", "input")
    if isinstance(pad, int):
        raise TypeError("pad(): argument 'pad' (position 2) must be tuple of ints, not int")
    if isinstance(value, complex):
        raise TypeError("pad(): argument 'value' (position 4) must be float, not complex")
    widths = [int(n) for n in pad]
    if len(widths) % 2:
        raise RuntimeError("Padding length must be divisible by 2")
    if len(widths) > 2 * x._array.ndim:
        raise RuntimeError("Padding length should be less than or equal to two times the input dimension but got padding length "
                           f"{len(widths)} and input of dimension {x._array.ndim}")  # fmt: skip
    if mode == "constant":
        return constant(x, widths, 0 if value is None else value)
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    n = len(widths) // 2
    if mode not in _MODES:
        raise NotImplementedError(f"Unrecognised padding mode {mode}")
    if x._array.ndim not in (n + 1, n + 2) or n not in (1, 2, 3):
        raise NotImplementedError(f"Padding size {2 * n} is not supported for {x._array.ndim}D input tensor.{_COMBINATIONS}")
    if x._array.dtype.kind == "b" and mode != "circular":
        kind = {"reflect": "reflection", "replicate": "replication"}[mode]
        raise NotImplementedError(f"\"{kind}_pad{n}d\" not implemented for '{dtypes.scalar_name(x.dtype)}'")
    if mode == "circular":
        _check_circular(x, widths, n)
        return apply(PRIMITIVES["circular_pad"], x, pads=_pairs(widths, n), mode=mode)
    _check_not_empty(x, n)
    if mode == "reflect":
        _check_reflect(x, widths, n)
    _check_sizes(x, widths, n)
    return _WITHOUT_CONSTANT[mode, n](x, pads=_pairs(widths, n), mode=mode)
