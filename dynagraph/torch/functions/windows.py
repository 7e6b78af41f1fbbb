"""Windows that functions are given: how many elements they have, how far apart they are, and what PyTorch says of bad ones."""

from __future__ import annotations

from typing import Any

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import integer
from dynagraph.torch.functions.convolution import Sizes

_NUMBER_WORDS = {1: "one", 2: "two", 3: "three"}
_POSITIONS = {"kernel_size": 2, "stride": 3, "padding": 4, "dilation": 5}


def given_sizes(value: Any, n: int, who: str, what: str) -> Sizes:
    """A size for each of so many dimensions."""
    value = integer(value)
    if isinstance(value, int):
        return (value,) * n
    bad = next((k for k, size in enumerate(value) if isinstance(size, (float, str))), None) if _has_sizes(value) else 0
    if bad == 0:  # PyTorch looks at the first size to tell what it was given
        position = f" (position {_POSITIONS[what]})" if what == "kernel_size" or ("max" in who and what in _POSITIONS) else ""
        given = f"but found element of type {type(value[0]).__name__} at pos 0" if _has_sizes(value) else ""
        kind = given or f"not {type(value).__name__}"
        raise TypeError(f"{who}(): argument '{what}'{position} must be tuple of ints, {kind}")
    if bad is not None:
        raise TypeError(
            f"{who}(): argument '{what}' failed to unpack the object at pos {bad + 1} with error "
            f'"type must be tuple of ints,but got {type(value[bad]).__name__}"'
        )
    sizes = tuple(int(v) for v in value)
    if len(sizes) == 1:
        return sizes * n
    if len(sizes) != n:
        if what == "dilation":
            choices = "must be either a single int, or"
        else:
            either = "" if who == "avg_pool3d" else "either "
            choices = f"must {either}be {'omitted, ' if what == 'stride' else ''}a single int, or"
        raise RuntimeError(f"{who}: {what} {choices} a tuple of {_NUMBER_WORDS[n]} ints")
    return sizes


def _has_sizes(value: Any) -> bool:
    return value is not None and not isinstance(value, (float, str))


def how_many(size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """How many windows: with `ceil_mode` one may reach behind the border, if it begins before that."""
    room = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    return count - 1 if ceil_mode and (count - 1) * stride >= size + padding else count


def given_windows(who: str, n: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any) -> dict[str, Sizes]:
    """Sizes for each dimension; where no stride is given it is the kernel's size."""
    kernel = given_sizes(kernel_size, n, who, "kernel_size")
    by_kernel = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    steps = kernel if by_kernel else given_sizes(stride, n, who, "stride")
    pads, gaps = given_sizes(padding, n, who, "padding"), given_sizes(dilation, n, who, "dilation")
    return {"kernel": kernel, "stride": steps, "padding": pads, "dilation": gaps}


def placed_windows(who: str, x: Tensor, windows: dict[str, Sizes], ceil_mode: bool) -> dict[str, Any]:
    """Windows with how many there are in a tensor, once it is known that they fit."""
    kernel, steps, pads, gaps = windows.values()
    n, shape = len(kernel), x._array.shape
    if len(shape) not in (n + 1, n + 2):
        raise RuntimeError(f"non-empty {n + 1}D or {n + 2}D (batch mode) tensor expected for input")
    for k, s, p, d in zip(kernel, steps, pads, gaps):
        if s == 0:
            raise RuntimeError("stride should not be zero")
        if p < 0:
            raise RuntimeError(f"pad must be non-negative, but got pad: {p}")
        if p > max((d * (k - 1) + 1) // 2, 0):
            raise RuntimeError(
                f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and dilation={d}"
            )
    for what, letter, sizes in (("kernel size", "k", kernel), ("stride", "d", steps), ("dilation", "dilation", gaps)):
        if any(size <= 0 for size in sizes):
            raise RuntimeError(f"{what} should be greater than zero, but got {_axes(letter, sizes)}")
    _check_elements(who, shape, n)
    inner = shape[len(shape) - n :]
    if who == "avg_pool3d" and any(size < k for size, k in zip(inner, kernel)):
        raise RuntimeError(f"input image ({_axes('', inner)}) smaller than kernel size ({_axes('k', kernel)})")
    _check_padding(kernel, pads)
    places = tuple(how_many(*sizes, ceil_mode) for sizes in zip(inner, kernel, steps, pads, gaps))
    if any(count < 1 for count in places):
        channels = shape[len(shape) - n - 1]
        raise RuntimeError(
            f"Given input size: {_across((channels, *inner))}. Calculated output size: {_across((channels, *places))}. Output size "
            "is too small"
        )
    return {**windows, "places": places}


def _check_elements(who: str, shape: Sizes, n: int) -> None:
    """That no size but a batch's is 0."""
    if 0 not in shape[len(shape) - n - 1 :]:
        return
    if n == 3:
        name = "max_pool3d_with_indices_out_cpu_template" if "max" in who else who
        raise RuntimeError(
            f"{name}(): Expected input's non-batch dimensions to have positive length, but input has a shape of {listed(shape)} "
            "and non-batch dimension 0 has length zero!"
        )
    raise RuntimeError(
        f"Expected {n + 1}D or {n + 2}D (batch mode) tensor with optional 0 dim batch size for input, but got:{listed(shape)}"
    )


def _check_padding(kernel: Sizes, pads: Sizes) -> None:
    """That windows without gaps would have an element of the tensor."""
    if all(p <= k // 2 for p, k in zip(pads, kernel)):
        return
    if len(kernel) == 3:
        (t, h, w), (pt, ph, pw) = kernel, pads
        found = f"kT: {t} kW: {w} kH: {h} padT: {pt} padW: {pw} padH: {ph}"
    else:
        found = f"padW = {pads[-1]}, padH = {pads[0]}, kW = {kernel[-1]}, kH = {kernel[0]}"
    raise RuntimeError(f"pad should be smaller than or equal to half of kernel size, but got {found}")


def _axes(letter: str, sizes: Any) -> str:
    return " ".join(f"{letter}{axis}: {size}" for axis, size in zip("THW"[-len(sizes) :], sizes))


def _across(values: Any) -> str:
    return "(" + "x".join(map(str, values)) + ")"


def listed(shape: Any) -> str:
    return "[" + ", ".join(map(str, shape)) + "]"


def check_rank_1(x: Tensor, who: str) -> None:
    if x._array.ndim not in (2, 3):
        raise RuntimeError(
            f"Expected 2 to 3 dimensions, but got {x._array.ndim}-dimensional tensor for argument #1 'self' (while checking "
            f"arguments for {who})"
        )


def only_size(value: Any, who: str, what: str) -> int:
    """The only size of a function of one dimension."""
    value = integer(value)
    if isinstance(value, int):
        return value
    if not isinstance(value, (tuple, list)):
        raise TypeError(f"{who}(): argument '{what}' (position 2) must be tuple of ints, not {type(value).__name__}")
    if len(value) != 1:
        raise RuntimeError(f"{who}() argument '{what}' should contain one int (got {len(value)})")
    return int(value[0])


def refuse_bools(x: Tensor, kernel: str) -> None:
    if x._array.dtype.kind in "bc":
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtypes.scalar_name(x.dtype)}'")


__all__ = ["check_rank_1", "given_sizes", "given_windows", "how_many", "listed", "only_size", "placed_windows", "refuse_bools"]
