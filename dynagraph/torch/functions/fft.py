"""``torch.fft``: discrete Fourier transforms.  NumPy's transforms keep float32; halves have none.

The gradients are those of the op table's external calls (`ir/optable/fourier_gradients.py`): the transforms of the other direction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.nodes import is_half
from dynagraph.torch.core.primitives import Primitive, define
from dynagraph.torch.core.tensor import Tensor, apply
from dynagraph.torch.functions.common import cast, check_tensor, dim_of, floating, function
from dynagraph.torch.functions.creation import finish
from dynagraph.torch.functions.lapack import by_rule
from dynagraph.torch.functions.rearrangements import roll

_NORMS = ("forward", "backward", "ortho")
_SWAPPED = {"forward": "backward", "backward": "forward", "ortho": "ortho"}


def _transform(name: str, transform: Callable[..., Any], node: str) -> Primitive:
    return define(f"fft_{name}", lambda x, s, axes, norm: transform(x, s, axes, norm), by_rule(f"fft.{name}"), "", backward=node)


FFT, IFFT = _transform("fftn", np.fft.fftn, "FftC2CBackward0"), _transform("ifftn", np.fft.ifftn, "FftC2CBackward0")
RFFT, IRFFT = _transform("rfftn", np.fft.rfftn, "FftR2CBackward0"), _transform("irfftn", np.fft.irfftn, "FftC2RBackward0")
# of real tensors, both halves of the spectrum
FFT_OF_REAL = define("fft_of_real", FFT.forward, FFT.vjp, "", backward="FftR2CBackward0")
IFFT_OF_REAL = define("ifft_of_real", IFFT.forward, IFFT.vjp, "", backward="FftR2CBackward0")


# -- arguments --------------------------------------------------------------------------------------------------------


def _norm(norm: Any) -> str:
    if norm is None:
        return "backward"
    if norm not in _NORMS:
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    return str(norm)


def _input(x: Any, who: str, real: bool = False, text: str = "a real") -> Tensor:
    """A tensor of floating point or complex numbers; integers as the default dtype."""
    check_tensor(x, who, "input")
    if real and x._array.dtype.kind == "c":
        raise RuntimeError(f"{who} expects {text} input tensor, but got {dtypes.scalar_name(x.dtype)}")
    if is_half(x._array.dtype):
        raise RuntimeError(f"Unsupported dtype {dtypes.scalar_name(x.dtype)}")
    return floating(x)


def _complex(x: Tensor) -> Tensor:
    return x if x._array.dtype.kind == "c" else cast(x, dtypes.of_numpy(np.result_type(x._array.dtype, np.complex64)))


def _one(x: Tensor, n: int | None, dim: int, complex_to_real: bool = False) -> tuple[tuple[int], tuple[int]]:
    """The size and the dimension of a transform along one."""
    if not x._array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    k = dim_of(dim, x._array.ndim)
    if n is None or n == -1:
        n = x._array.shape[k] if not complex_to_real else 2 * (x._array.shape[k] - 1)
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return (int(n),), (k,)


def _several(x: Tensor, s: Any, dim: Any, complex_to_real: bool = False) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The sizes and dimensions of a transform along several."""
    ndim = x._array.ndim
    given = None if s is None else [s] if isinstance(s, (int, np.integer)) else list(s)
    if dim is not None:
        dims = [dim] if isinstance(dim, (int, np.integer)) else list(dim)
        axes = [dim_of(d, ndim) for d in dims]
        if len(set(axes)) != len(axes):
            raise RuntimeError("FFT dims must be unique")
        if given is not None and len(given) != len(axes):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    elif given is not None:
        if len(given) > ndim:
            raise RuntimeError(f"Got shape with {len(given)} values but input tensor only has {ndim} dimensions.")
        axes = list(range(ndim - len(given), ndim))
    else:
        axes = list(range(ndim))
    sizes = [x._array.shape[k] if given is None or given[j] == -1 else int(given[j]) for j, k in enumerate(axes)]
    if complex_to_real and axes and (given is None or given[-1] == -1):
        sizes[-1] = 2 * (x._array.shape[axes[-1]] - 1)
    for n in sizes:
        if n < 1:
            raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return tuple(sizes), tuple(axes)


def _dims_checked(axes: Sequence[int], who: str) -> None:
    if not axes:
        raise RuntimeError(f"{who} must transform at least one axis")


def _forward(x: Tensor, s: Any, axes: Any, norm: str) -> Tensor:
    return apply(FFT if x._array.dtype.kind == "c" else FFT_OF_REAL, x, s=s, axes=axes, norm=norm)


def _inverse(x: Tensor, s: Any, axes: Any, norm: str) -> Tensor:
    return apply(IFFT if x._array.dtype.kind == "c" else IFFT_OF_REAL, x, s=s, axes=axes, norm=norm)


# -- along one dimension ----------------------------------------------------------------------------------------------


@function("fft", namespace="fft", method=False, out=True)
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The Fourier transform along a dimension, of its first `n` elements, or filled up with zeros to as many."""
    x = _input(input, "fft")
    return _forward(x, *_one(x, n, dim), _norm(norm))


@function("ifft", namespace="fft", method=False, out=True)
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `fft`."""
    x = _input(input, "ifft")
    return _inverse(x, *_one(x, n, dim), _norm(norm))


@function("rfft", namespace="fft", method=False, out=True)
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """One half of the Fourier transform of real numbers; the other is its conjugate."""
    x = _input(input, "rfft", real=True)
    s, axes = _one(x, n, dim)
    return apply(RFFT, x, s=s, axes=axes, norm=_norm(norm))


@function("irfft", namespace="fft", method=False, out=True)
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `rfft`: `n` real numbers, by default an even number."""
    x = _complex(_input(input, "irfft"))
    s, axes = _one(x, n, dim, complex_to_real=True)
    return apply(IRFFT, x, s=s, axes=axes, norm=_norm(norm))


@function("hfft", namespace="fft", method=False, out=True)
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The real Fourier transform of a signal of which one half is given, the other being its conjugate."""
    x = _complex(_input(input, "hfft"))
    s, axes = _one(x, n, dim, complex_to_real=True)
    return apply(IRFFT, x.conj(), s=s, axes=axes, norm=_SWAPPED[_norm(norm)])  # type: ignore[attr-defined]


@function("ihfft", namespace="fft", method=False, out=True)
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of `hfft`."""
    x = _input(input, "ihfft", real=True)
    s, axes = _one(x, n, dim)
    return apply(RFFT, x, s=s, axes=axes, norm=_SWAPPED[_norm(norm)]).conj()


# -- along several ----------------------------------------------------------------------------------------------------


@function("fftn", namespace="fft", method=False, out=True)
def fftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The Fourier transform along several dimensions, by default along all."""
    x = _input(input, "fftn")
    sizes, axes = _several(x, s, dim)
    return _forward(x, sizes, axes, _norm(norm)) if axes else _complex(x).clone()  # type: ignore[attr-defined]


@function("ifftn", namespace="fft", method=False, out=True)
def ifftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `fftn`."""
    x = _input(input, "ifftn")
    sizes, axes = _several(x, s, dim)
    return _inverse(x, sizes, axes, _norm(norm)) if axes else _complex(x).clone()  # type: ignore[attr-defined]


@function("rfftn", namespace="fft", method=False, out=True)
def rfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The Fourier transform of real numbers along several dimensions; along the last one half of it."""
    x = _input(input, "rfftn", real=True, text="a real-valued")
    sizes, axes = _several(x, s, dim)
    _dims_checked(axes, "rfftn")
    return apply(RFFT, x, s=sizes, axes=axes, norm=_norm(norm))


@function("irfftn", namespace="fft", method=False, out=True)
def irfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `rfftn`."""
    x = _complex(_input(input, "irfftn"))
    sizes, axes = _several(x, s, dim, complex_to_real=True)
    _dims_checked(axes, "irfftn")
    return apply(IRFFT, x, s=sizes, axes=axes, norm=_norm(norm))


@function("hfftn", namespace="fft", method=False, out=True)
def hfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The real Fourier transform along several dimensions of a signal, of which one half along the last is given."""
    x = _complex(_input(input, "hfftn"))
    sizes, axes = _several(x, s, dim, complex_to_real=True)
    _dims_checked(axes, "hfftn")
    scale = _norm(norm)
    if len(axes) > 1:
        x = _forward(x, sizes[:-1], axes[:-1], scale)
    return apply(IRFFT, x.conj(), s=sizes[-1:], axes=axes[-1:], norm=_SWAPPED[scale])  # type: ignore[attr-defined]


@function("ihfftn", namespace="fft", method=False, out=True)
def ihfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of `hfftn`."""
    x = _input(input, "ihfftn", real=True, text="a real-valued")
    sizes, axes = _several(x, s, dim)
    _dims_checked(axes, "ihfftn")
    scale = _norm(norm)
    half = apply(RFFT, x, s=sizes[-1:], axes=axes[-1:], norm=_SWAPPED[scale]).conj()
    return _inverse(half, sizes[:-1], axes[:-1], scale) if len(axes) > 1 else half


def _of_two(name: str, general: Callable[..., Tensor]) -> None:
    def compute(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
        return general(input, s, dim, norm)

    compute.__name__ = compute.__qualname__ = f"{name}2"
    compute.__doc__ = f"`{name}n` along two dimensions, by default the last."
    function(f"{name}2", namespace="fft", method=False, out=True)(compute)


for _name, _general in (("fft", fftn), ("ifft", ifftn), ("rfft", rfftn), ("irfft", irfftn), ("hfft", hfftn), ("ihfft", ihfftn)):
    _of_two(_name, _general)


# -- frequencies and order --------------------------------------------------------------------------------------------


def _frequencies(name: str, numbers: Callable[[int], Any]) -> None:
    def compute(
        n: int, d: float = 1.0, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
        pin_memory: bool = False,
    ) -> Tensor:  # fmt: skip
        if n < 0:
            raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
        kind = dtype or dtypes.get_default_dtype()
        return finish((numbers(n) * (1.0 / (n * d) if n else 0)).astype(kind.numpy), device, requires_grad, pin_memory)

    compute.__name__ = compute.__qualname__ = name
    compute.__doc__ = f"The frequencies of `{name[:-4]}`'s results, for samples that are `d` apart."
    function(name, namespace="fft", method=False, out=True)(compute)


_frequencies("fftfreq", lambda n: np.concatenate([np.arange((n + 1) // 2), np.arange(-(n // 2), 0)]))
_frequencies("rfftfreq", lambda n: np.arange(n // 2 + 1))


def _moved(x: Tensor, dim: Any, back: bool) -> Tensor:
    dims = range(x._array.ndim) if dim is None else [dim] if isinstance(dim, (int, np.integer)) else dim
    axes = [dim_of(d, x._array.ndim) for d in dims]
    if not axes:
        return x.clone()  # type: ignore[attr-defined]
    sizes = [x._array.shape[k] for k in axes]
    return roll(x, [(n + 1) // 2 if back else n // 2 for n in sizes], axes)


@function("fftshift", namespace="fft", method=False)
def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """With the frequency zero in the middle."""
    return _moved(check_tensor(input, "fftshift", "input"), dim, False)


@function("ifftshift", namespace="fft", method=False)
def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _moved(check_tensor(input, "ifftshift", "input"), dim, True)


__all__ = ["FFT", "IFFT", "IRFFT", "RFFT", "fft", "fftn", "ifft", "irfft", "rfft"]
