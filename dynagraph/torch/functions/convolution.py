"""Convolutions of one to three dimensions, transposed ones, and `unfold` and `fold`.

Three primitives are the convolution and its two gradients, rows of the op table; each one's gradients are the others.  Of dtypes
and devices for which there are no kernels all multiply matrices whose columns are the windows of the input.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dynagraph.ir.ops import OPS
from dynagraph.ir.optable.convolution import conv, conv_input, conv_weight, places_of
from dynagraph.markers import at_capture, is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.arrays import in_c_order, is_on_gpu, library_of_array, strided
from dynagraph.torch.core.primitives import define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.activations import in_single
from dynagraph.torch.functions.common import as_sequence, check_tensor, function, integer
from dynagraph.torch.functions.shapes import permute, unsqueeze

Sizes = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]

# -- windows ----------------------------------------------------------------------------------------------------------


def padded(x: Any, padding: Pairs, value: Any = 0) -> Any:
    """With a border around the last dimensions."""
    if not any(a or b for a, b in padding):
        return x
    front = x.ndim - len(padding)
    shape = x.shape[:front] + tuple(a + n + b for n, (a, b) in zip(x.shape[front:], padding))
    library = library_of_array(x)
    made = library.zeros(shape, x.dtype) if value == 0 else library.full(shape, value, x.dtype)
    made[(Ellipsis, *(slice(a, a + n) for n, (a, _) in zip(x.shape[front:], padding)))] = x
    return made


def windows(x: Any, kernel: Sizes, stride: Sizes, dilation: Sizes) -> Any:
    """The windows of the last dimensions, as a view: ``(..., *kernel, *places)``."""
    count = len(kernel)
    front = x.ndim - count
    axes = tuple(range(front, x.ndim))
    extents = tuple(d * (k - 1) + 1 for k, d in zip(kernel, dilation))
    if is_on_gpu(x) and not is_compiling():
        shape = (*x.shape[:front], *(n - e + 1 for n, e in zip(x.shape[front:], extents)), *extents)
        found = strided(x, shape, (*x.strides, *x.strides[front:]))
    else:
        found = sliding_window_view(x, extents, axis=axes)
    found = found[(Ellipsis, *(slice(None, None, s) for s in stride), *(slice(None, None, d) for d in dilation))]
    return found.transpose(*range(front), *range(front + count, front + 2 * count), *range(front, front + count))


def unwindowed(columns: Any, shape: Sizes, stride: Sizes, dilation: Sizes, padding: Pairs) -> Any:
    """The sum of what windows hold, at the places that they were taken of: ``(..., *kernel, *places)`` gives ``(..., *shape)``."""
    count = len(shape)
    front = columns.ndim - 2 * count
    kernel, places = columns.shape[front : front + count], columns.shape[front + count :]
    whole = tuple(a + n + b for n, (a, b) in zip(shape, padding))
    made = library_of_array(columns).zeros((*columns.shape[:front], *whole), columns.dtype)
    for offset in np.ndindex(*kernel):
        at = tuple(slice(o * d, o * d + s * (n - 1) + 1, s) for o, d, s, n in zip(offset, dilation, stride, places))
        made[(Ellipsis, *at)] += columns[(slice(None),) * front + offset]
    if any(a or b for a, b in padding):
        made = in_c_order(made[(Ellipsis, *(slice(a, a + n) for n, (a, _) in zip(shape, padding)))])
    return made


# -- primitives: of floats on the CPU by kernels, of what else there is by products of matrices ----------------------


def _has_kernels(x: Any, y: Any, bias: Any = None) -> bool:
    plain = type(x) is type(y) is np.ndarray and (bias is None or type(bias) is np.ndarray)
    return plain and x.dtype.kind == "f" and x.dtype.itemsize in (4, 8)


def _conv(
    x: Any, weight: Any, bias: Any = None, *, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int, places: Any = None
) -> Any:
    if _has_kernels(x, weight, bias):
        return conv(x, weight, bias, stride=stride, padding=padding, dilation=dilation, groups=groups, places=places)
    kernel, outs = weight.shape[2:], weight.shape[0]
    found = windows(padded(x, padding), kernel, stride, dilation)
    if places is not None:  # of a transposed one that pads its result by more than a stride
        found = found[(Ellipsis, *(slice(0, n) for n in places))]
    batch, places = x.shape[0], found.shape[2 + len(kernel) :]
    depth = weight.shape[1] * math.prod(kernel)
    columns = found.reshape(batch, groups, depth, math.prod(places))
    result = np.matmul(weight.reshape(groups, outs // groups, depth), columns).reshape(batch, outs, *places)
    return result if bias is None else result + bias.reshape(-1, *(1,) * len(kernel))


def _conv_input(
    g: Any, weight: Any, bias: Any = None, *, shape: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int
) -> Any:
    """What `_conv` takes to `g`, transposed; `shape`: of its result's last dimensions."""
    if _has_kernels(g, weight, bias):
        return conv_input(g, weight, bias, shape=shape, stride=stride, padding=padding, dilation=dilation, groups=groups)
    kernel, outs, batch, places = weight.shape[2:], weight.shape[0], g.shape[0], g.shape[2:]
    depth = weight.shape[1] * math.prod(kernel)
    matrices = weight.reshape(groups, outs // groups, depth).swapaxes(1, 2)
    columns = np.matmul(matrices, g.reshape(batch, groups, outs // groups, math.prod(places)))
    columns = columns.reshape(batch, groups * weight.shape[1], *kernel, *places)
    result = unwindowed(columns, shape, stride, dilation, padding)
    return result if bias is None else result + bias.reshape(-1, *(1,) * len(kernel))


def _conv_weight(x: Any, g: Any, *, kernel: Sizes, stride: Sizes, padding: Pairs, dilation: Sizes, groups: int) -> Any:
    if _has_kernels(x, g):
        return conv_weight(x, g, kernel=kernel, stride=stride, padding=padding, dilation=dilation, groups=groups)
    found = windows(padded(x, padding), kernel, stride, dilation)
    n = len(kernel)
    batch, outs, inner = x.shape[0], g.shape[1], x.shape[1] // groups
    places = math.prod(g.shape[2:])
    found = found[(Ellipsis, *(slice(0, m) for m in g.shape[2:]))]
    columns = found.transpose(1, *range(2, 2 + n), 0, *range(2 + n, 2 + 2 * n)).reshape(
        groups, inner * math.prod(kernel), batch * places
    )
    rows = g.reshape(batch, groups, outs // groups, places).transpose(1, 2, 0, 3).reshape(groups, outs // groups, batch * places)
    return np.matmul(rows, columns.swapaxes(1, 2)).reshape(outs, inner, *kernel)


def _bias_vjp(d: Any, g: Any) -> Any:
    return g.sum(0, *range(2, g.ndim))


CONV = define(
    "conv",
    in_single(_conv),
    (*OPS["conv"].vjps, _bias_vjp),
    ("y", "x", ""),
    backward="ConvolutionBackward0",
)
CONV_TRANSPOSE = define(
    "conv_input",
    in_single(_conv_input),
    (*OPS["conv_input"].vjps, _bias_vjp),
    ("y", "x", ""),
    backward="ConvolutionBackward0",
)
define(
    "conv_weight",
    _conv_weight,
    OPS["conv_weight"].vjps,
    ("y", "x"),
)

# -- functions --------------------------------------------------------------------------------------------------------


@at_capture
def sizes(value: Any, count: int, what: str, who: str = "convolution") -> Sizes:
    """One size for each of so many dimensions: given, or one for all of them."""
    given = tuple(int(v) for v in as_sequence(value))
    if len(given) == 1:
        return given * count
    if len(given) != count:
        raise RuntimeError(
            f"expected {what} to be a single integer value or a list of {count} values to match the convolution dimensions, but "
            f"got {what}={list(given)}"
        )
    return given


def _checked(
    who: str, x: Tensor, w: Tensor, bias: Tensor | None, count: int, stride: Any, dilation: Any, groups: int
) -> tuple[Tensor, Sizes, Sizes]:
    """The input with a batch, strides and dilations; errors that do not need the padding."""
    check_tensor(x, who, "input")
    check_tensor(w, who, "weight", 2)
    if x._array.ndim not in (count + 1, count + 2):
        raise RuntimeError(
            f"Expected {count + 1}D (unbatched) or {count + 2}D (batched) input to {who}, but got input of size: "
            f"{list(x._array.shape)}"
        )
    if bias is not None:
        check_tensor(bias, who, "bias", 3)
        if bias._array.dtype != x._array.dtype:
            names = [_type_name(t) for t in (x, bias)]
            raise RuntimeError(f"Input type ({names[0]}) and bias type ({names[1]}) should be the same")
    if groups <= 0:
        raise RuntimeError("non-positive groups is not supported")
    steps = sizes(stride, w._array.ndim - 2, "stride")
    gaps = sizes(dilation, w._array.ndim - 2, "dilation")
    if w._array.ndim != count + 2:
        raise RuntimeError(
            f"Expected {w._array.ndim}-dimensional input for {w._array.ndim}-dimensional weight {list(w._array.shape)}, but got "
            f"{count + 2}-dimensional input of size {list(x._array.shape)} instead"
        )
    if x._array.dtype != w._array.dtype:
        names = [dtypes.scalar_name(t.dtype) for t in (x, w)]
        raise RuntimeError(f"expected scalar type {names[0]} but found {names[1]}")
    if any(s <= 0 for s in steps):
        raise RuntimeError("non-positive stride is not supported")
    if any(d <= 0 for d in gaps):
        raise RuntimeError(f"dilation should be greater than zero, but got {list(gaps)}")
    if w._array.shape[0] < groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size "
            f"{list(w._array.shape)} instead"
        )
    if w._array.shape[0] % groups:
        raise RuntimeError(
            f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but got weight of size "
            f"[{list(w._array.shape)}] instead"
        )
    if x._array.dtype.kind == "b":
        raise NotImplementedError("\"slow_conv2d_cpu\" not implemented for 'Bool'")
    return (x if x._array.ndim == count + 2 else unsqueeze(x, 0)), steps, gaps


def _type_name(x: Tensor) -> str:
    return x.dtype.other_name or x.dtype.name


def _check_channels(x: Tensor, w: Tensor, given: str, wanted: int) -> None:
    shape = x._array.shape
    if shape[1] != wanted:
        raise RuntimeError(
            f"Given {given}, weight of size {list(w._array.shape)}, expected input{list(shape)} to have {wanted} channels, but got "
            f"{shape[1]} channels instead"
        )


def _check_bias(w: Tensor, bias: Tensor | None, given: str, wanted: int) -> None:
    if bias is not None and bias._array.shape != (wanted,):
        raise RuntimeError(
            f"Given {given}weight of size {list(w._array.shape)}, expected bias to be 1-dimensional with {wanted} elements, but "
            f"got bias of size {list(bias._array.shape)} instead"
        )


def _same(kernel: Sizes, steps: Sizes, gaps: Sizes) -> Pairs:
    """The padding with which results have the input's size: an odd one goes to the end."""
    if any(s != 1 for s in steps):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    totals = [d * (k - 1) for k, d in zip(kernel, gaps)]
    return tuple((n // 2, n - n // 2) for n in totals)


@at_capture
def _pairs(padding: Any, kernel: Sizes, steps: Sizes, gaps: Sizes) -> Pairs:
    if isinstance(padding, str):
        if padding == "same":
            return _same(kernel, steps, gaps)
        if padding == "valid":
            return ((0, 0),) * len(kernel)
        raise RuntimeError(f"Invalid padding string: '{padding}'")
    given = sizes(padding, len(kernel), "padding")
    if any(p < 0 for p in given):
        raise RuntimeError("negative padding is not supported")
    return tuple((p, p) for p in given)


@at_capture
def _check_extents(shape: Sizes, kernel: Sizes, gaps: Sizes, pads: Pairs) -> None:
    whole = [n + a + b for n, (a, b) in zip(shape, pads)]
    extents = [d * (k - 1) + 1 for k, d in zip(kernel, gaps)]
    if any(n < k for n, k in zip(whole, extents)):
        raise RuntimeError(
            f"Calculated padded input size per channel: {_across(whole)}. Kernel size: {_across(extents)}. Kernel size can't "
            "be greater than actual input size"
        )


def _across(values: Any) -> str:
    return "(" + " x ".join(map(str, values)) + ")"


def _convolution(count: int) -> Callable[..., Tensor]:
    who = f"conv{count}d"

    def compute(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        x, steps, gaps = _checked(who, input, weight, bias, count, stride, dilation, groups)
        kernel = weight._array.shape[2:]
        pads = _pairs(padding, kernel, steps, gaps)
        _check_channels(x, weight, f"groups={groups}", weight._array.shape[1] * groups)
        _check_bias(weight, bias, "", weight._array.shape[0])
        _check_extents(x._array.shape[2:], kernel, gaps, pads)
        operands = (x, weight) if bias is None else (x, weight, bias)
        result = apply(CONV, *operands, stride=steps, padding=pads, dilation=gaps, groups=groups)
        return result if input._array.ndim == count + 2 else result.squeeze(0)

    compute.__name__ = compute.__qualname__ = who
    compute.__doc__ = f"Convolution over {count} dimension{'s' * (count > 1)}; `padding` may be \"same\" or \"valid\"."
    function(who, method=False)(compute)
    return function(who, method=False, namespace="functional")(compute)


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))


def _transposed(count: int) -> Callable[..., Tensor]:
    who = f"conv_transpose{count}d"

    def compute(
        input: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        dilation: Any = 1,
    ) -> Tensor:
        if isinstance(padding, str):
            raise TypeError(f"{who}(): argument 'padding' must be tuple of ints, not str")
        x, steps, gaps = _checked(who, input, weight, bias, count, stride, dilation, groups)
        kernel = weight._array.shape[2:]
        pads = _pairs(padding, kernel, steps, gaps)
        more = sizes(output_padding, count, "output_padding")
        _check_channels(x, weight, "transposed=1", weight._array.shape[0])
        outs = weight._array.shape[1] * groups
        _check_bias(weight, bias, "transposed=1, ", outs)
        if any(m >= s and m >= d for m, s, d in zip(more, steps, gaps)):
            raise RuntimeError(_too_much_output_padding(more, steps, gaps))
        shape = tuple(
            (n - 1) * s - a - b + d * (k - 1) + m + 1
            for n, s, (a, b), d, k, m in zip(x._array.shape[2:], steps, pads, gaps, kernel, more)
        )
        if any(n <= 0 for n in shape):
            raise RuntimeError(
                f"Given input size per channel: {_across(x._array.shape[2:])}. Calculated output size per channel: "
                f"{_across(shape)}. Output size is too small"
            )
        operands = (x, weight) if bias is None else (x, weight, bias)
        result = apply(CONV_TRANSPOSE, *operands, shape=shape, stride=steps, padding=pads, dilation=gaps, groups=groups)
        return result if input._array.ndim == count + 2 else result.squeeze(0)

    compute.__name__ = compute.__qualname__ = who
    compute.__doc__ = f"Transposed convolution over {count} dimension{'s' * (count > 1)}."
    function(who, method=False)(compute)
    return function(who, method=False, namespace="functional")(compute)


def _too_much_output_padding(more: Sizes, steps: Sizes, gaps: Sizes) -> str:
    names = ("depth", "height", "width")[-len(more) :]
    parts = [f"{what}_{n}: {v}" for what, values in (("output_padding", more), ("stride", steps), ("dilation", gaps))
             for n, v in zip(names, values)]  # fmt: skip
    return "output padding must be smaller than either stride or dilation, but got " + " ".join(parts)


conv_transpose1d, conv_transpose2d, conv_transpose3d = map(_transposed, (1, 2, 3))


@function(method=False)
@function(method=False, namespace="functional")
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """`conv1d` of (time, batch, channels) with weights (width, channels, results)."""
    x, w = check_tensor(input, "conv_tbc", "input"), check_tensor(weight, "conv_tbc", "weight", 2)
    check_tensor(bias, "conv_tbc", "bias", 3)
    if x._array.ndim != 3 or w._array.ndim != 3 or bias._array.ndim != 1:
        raise RuntimeError("Input must have 3 dims: time, batch, in_channel" if x._array.ndim != 3 else
                           "Weight tensor must have 3 dims: kernel_width, in_channels, out_channels." if w._array.ndim != 3 else
                           "Bias must be 1-D")  # fmt: skip
    return permute(conv1d(permute(x, (1, 2, 0)), permute(w, (2, 1, 0)), bias, padding=pad), (2, 0, 1))

# -- windows as columns -----------------------------------------------------------------------------------------------


def _columns(x: Any, kernel: Sizes, stride: Sizes, dilation: Sizes, padding: Pairs, shape: Any = None) -> Any:
    found = windows(padded(x, padding), kernel, stride, dilation)
    return found.reshape(x.shape[0], x.shape[1] * math.prod(kernel), math.prod(found.shape[2 + len(kernel) :]))


def _from_columns(x: Any, kernel: Sizes, stride: Sizes, dilation: Sizes, padding: Pairs, shape: Sizes) -> Any:
    places = tuple(map(places_of, shape, kernel, stride, dilation, padding))
    parts = x.reshape(x.shape[0], x.shape[1] // math.prod(kernel), *kernel, *places)
    return unwindowed(parts, shape, stride, dilation, padding)


def _with_shape(d: Any) -> dict[str, Any]:
    return {**d.attrs, "shape": d.x.shape[2:]}


IM2COL = define("im2col", _columns, (lambda d, g: g.call("col2im", **_with_shape(d)),), ("",), backward="Im2ColBackward0")
COL2IM = define(
    "col2im", in_single(_from_columns), (lambda d, g: g.call("im2col", **d.attrs),), ("",), backward="Col2ImBackward0"
)


def _block(value: Any, what: str) -> Sizes:
    value = integer(value)
    given = (value, value) if isinstance(value, int) else tuple(value)
    return given * 2 if len(given) == 1 else given


def _window_attrs(kernel_size: Any, dilation: Any, padding: Any, stride: Any) -> dict[str, Any]:
    kernel, gaps, pads, steps = (_block(v, "size") for v in (kernel_size, dilation, padding, stride))
    for what, given in (("kernel size", kernel), ("dilation", gaps), ("stride", steps)):
        if any(v <= 0 for v in given):
            names = [f"{what.split()[0]}_{side}: {v}" for side, v in zip(("height", "width"), given)]
            raise RuntimeError(f"{what} should be greater than zero, but got {' '.join(names)}")
    if any(p < 0 for p in pads):
        raise RuntimeError(f"padding should be non-negative, but got pad_height: {pads[0]} pad_width: {pads[1]}")
    return {"kernel": kernel, "dilation": gaps, "padding": tuple((p, p) for p in pads), "stride": steps}


@function(method=False, namespace="functional")
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """The windows of images, as columns: (N, C, H, W) gives (N, C * kernel, windows)."""
    x = check_tensor(input, "im2col", "input")
    if x._array.ndim not in (3, 4) or 0 in x._array.shape[1:]:
        raise RuntimeError(
            "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but got: "
            f"{list(x._array.shape)}"
        )
    about = _window_attrs(kernel_size, dilation, padding, stride)
    shape = x._array.shape[-2:]
    places = tuple(map(places_of, shape, about["kernel"], about["stride"], about["dilation"], about["padding"]))
    if any(n <= 0 for n in places):
        pads = tuple(a for a, _ in about["padding"])
        raise RuntimeError(
            f"Given input with spatial size {_tuple(shape)}, kernel_size={_tuple(about['kernel'])}, dilation="
            f"{_tuple(about['dilation'])}, padding={_tuple(pads)}, calculated shape of the array of "
            f"sliding blocks as {_tuple(places)}, but its components must be at least one."
        )
    if x._array.ndim == 4:
        return apply(IM2COL, x, **about)
    return apply(IM2COL, unsqueeze(x, 0), **about).squeeze(0)


def _tuple(values: Any) -> str:
    return "(" + ", ".join(map(str, values)) + ")"


@function(method=False, namespace="functional")
def fold(input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """Images of columns of windows; where these overlap, their sum."""
    x = check_tensor(input, "col2im", "input")
    about = _window_attrs(kernel_size, dilation, padding, stride)
    shape = _block(output_size, "output_size")
    if x._array.ndim not in (2, 3) or 0 in x._array.shape[-2:]:
        raise RuntimeError(
            "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero dimensions for input, but "
            f"got: {list(x._array.shape)}"
        )
    rows, columns = x._array.shape[-2:]
    if rows % math.prod(about["kernel"]):
        raise RuntimeError(
            "Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got input.size(1)="
            f"{rows} and kernel_size={_tuple(about['kernel'])}."
        )
    places = tuple(map(places_of, shape, about["kernel"], about["stride"], about["dilation"], about["padding"]))
    if math.prod(places) != columns or any(n < 0 for n in places):
        pads = tuple(a for a, _ in about["padding"])
        raise RuntimeError(
            f"Given output_size={_tuple(shape)}, kernel_size={_tuple(about['kernel'])}, dilation={_tuple(about['dilation'])}, "
            f"padding={_tuple(pads)}, stride={_tuple(about['stride'])}, expected size of input's dimension 2 to match the "
            f"calculated number of sliding blocks {places[0]} * {places[1]} = {math.prod(places)}, but got input.size(2)={columns}."
        )
    if x._array.ndim == 3:
        return apply(COL2IM, x, shape=shape, **about)
    return apply(COL2IM, unsqueeze(x, 0), shape=shape, **about).squeeze(0)


__all__ = ["conv1d", "conv2d", "conv3d", "padded", "places_of", "sizes", "unwindowed", "windows"]
