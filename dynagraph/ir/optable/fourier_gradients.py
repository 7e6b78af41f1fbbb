"""Gradients of Fourier transforms: linear functions, whose adjoints are transforms of the other direction.

A transform takes so many elements along each of its axes, cut off or filled up with zeros, and is scaled by ``norm``.  Those of
real data know one half of a spectrum: in its middle each element stands for two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.ir.dtypes import DType
from dynagraph.ir.optable.call_gradients import called, gradient_of, refusal
from dynagraph.ir.shapes import Dim, Shape, normalize_axis, same_dim
from dynagraph.ir.terms import Differentiated, Term, counted

One = tuple["Term"]

# the unscaled adjoint of the unscaled transform is the other one, scaled by nothing
ADJOINT_NORM = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}
INVERSE = {"fft.fft": "fft.ifft", "fft.ifft": "fft.fft", "fft.fftn": "fft.ifftn", "fft.ifftn": "fft.fftn",
           "fft.fft2": "fft.ifftn", "fft.ifft2": "fft.fftn"}  # fmt: skip


def _fitted(x: Term, shape: Shape) -> Term:
    """With the elements that the transform did not look at, whose gradient is zero, and without the zeros that it added."""
    for axis, (have, want) in enumerate(zip(x.shape, shape)):
        if same_dim(have, want):
            continue
        if want < have:
            x = x.part((0,) * x.ndim, (*x.shape[:axis], want, *x.shape[axis + 1 :]))
        else:
            x = x.call("pad", widths=tuple((0, want - have if k == axis else 0) for k in range(x.ndim)), value=0)
    return x


def _along(function: str, x: Term, axis: int, n: Dim, norm: Any, size: Dim, dtype: DType) -> Term:
    shape = (*x.shape[:axis], size, *x.shape[axis + 1 :])
    return called(function, x, shape=shape, dtype=dtype, out=True, n=n, axis=axis, norm=ADJOINT_NORM[norm])


def _in_the_middle(x: Term, axis: int, n: Dim, factor: float) -> Term:
    """One half of a spectrum of n elements, times the factor but for its first element, and the last one where n is even."""
    size = x.shape[axis]
    place = counted(x, size).reshape((size,) + (1,) * (x.ndim - 1 - axis))
    alone = place.equals(0).call("logical_or", (place * 2).equals(n))
    return x * x.number(1).where(alone, factor)


@gradient_of("fft.fft", "fft.ifft")
def _fft(d: Differentiated, g: Term, a: Term, n: Any = None, axis: int = -1, norm: Any = None) -> One:
    at = normalize_axis(axis, a.ndim, "fft")
    back = _along(INVERSE[d.attrs["call"].function], g, at, g.shape[at], norm, g.shape[at], g.dtype)
    return (_fitted(back, a.shape),)


@gradient_of("fft.rfft")
def _rfft(d: Differentiated, g: Term, a: Term, n: Any = None, axis: int = -1, norm: Any = None) -> One:
    at = normalize_axis(axis, a.ndim, "rfft")
    size = a.shape[at] if n is None else n
    back = _along("fft.irfft", _in_the_middle(g, at, size, 0.5), at, size, norm, size, g.dtype.real)
    return (_fitted(back, a.shape),)


@gradient_of("fft.irfft")
def _irfft(d: Differentiated, g: Term, a: Term, n: Any = None, axis: int = -1, norm: Any = None) -> One:
    at = normalize_axis(axis, a.ndim, "irfft")
    size = g.shape[at]
    back = _along("fft.rfft", g, at, size, norm, size // 2 + 1, g.dtype.complex)
    return (_fitted(_in_the_middle(back, at, size, 2), a.shape),)


@gradient_of("fft.hfft")
def _hfft(d: Differentiated, g: Term, a: Term, n: Any = None, axis: int = -1, norm: Any = None) -> One:
    """``irfft`` of the conjugate, scaled as the other direction."""
    (back,) = _irfft(d, g, a, n, axis, ADJOINT_NORM[norm])
    return (back.conj,)


@gradient_of("fft.ihfft")
def _ihfft(d: Differentiated, g: Term, a: Term, n: Any = None, axis: int = -1, norm: Any = None) -> One:
    """The conjugate of ``rfft``, scaled as the other direction."""
    return _rfft(d, g.conj, a, n, axis, ADJOINT_NORM[norm])


# -- over several axes ----------------------------------------------------------------------------------------------------


def _over(d: Differentiated, axes: Any, rank: int) -> tuple[int, ...]:
    named = tuple(range(rank)) if axes is None else tuple(normalize_axis(k, rank, "fft") for k in axes)
    if len(set(named)) != len(named):
        raise refusal(d, "name each axis once")
    return named


def _over_axes(function: str, x: Term, axes: Sequence[int], sizes: Shape, norm: Any, last: Dim, dtype: DType) -> Term:
    shape = tuple(last if k == axes[-1] else size for k, size in enumerate(x.shape))
    return called(function, x, shape=shape, dtype=dtype, s=sizes, axes=tuple(axes), norm=ADJOINT_NORM[norm])


@gradient_of("fft.fftn", "fft.ifftn")
def _fftn(d: Differentiated, g: Term, a: Term, s: Any = None, axes: Any = None, norm: Any = None) -> One:
    over = _over(d, axes, a.ndim)
    sizes = tuple(g.shape[k] for k in over)
    back = _over_axes(INVERSE[d.attrs["call"].function], g, over, sizes, norm, sizes[-1], g.dtype)
    return (_fitted(back, a.shape),)


@gradient_of("fft.rfftn")
def _rfftn(d: Differentiated, g: Term, a: Term, s: Any = None, axes: Any = None, norm: Any = None) -> One:
    over = _over(d, axes, a.ndim)
    last = a.shape[over[-1]] if s is None or s[-1] in (None, -1) else s[-1]
    sizes = (*(g.shape[k] for k in over[:-1]), last)
    back = _over_axes("fft.irfftn", _in_the_middle(g, over[-1], last, 0.5), over, sizes, norm, last, g.dtype.real)
    return (_fitted(back, a.shape),)


@gradient_of("fft.irfftn")
def _irfftn(d: Differentiated, g: Term, a: Term, s: Any = None, axes: Any = None, norm: Any = None) -> One:
    over = _over(d, axes, a.ndim)
    sizes = tuple(g.shape[k] for k in over)
    back = _over_axes("fft.rfftn", g, over, sizes, norm, sizes[-1] // 2 + 1, g.dtype.complex)
    return (_fitted(_in_the_middle(back, over[-1], sizes[-1], 2), a.shape),)


@gradient_of("fft.fft2", "fft.ifft2")
def _fft2(d: Differentiated, g: Term, a: Term, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> One:
    return _fftn(d, g, a, s, axes, norm)


@gradient_of("fft.rfft2")
def _rfft2(d: Differentiated, g: Term, a: Term, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> One:
    return _rfftn(d, g, a, s, axes, norm)


@gradient_of("fft.irfft2")
def _irfft2(d: Differentiated, g: Term, a: Term, s: Any = None, axes: Any = (-2, -1), norm: Any = None) -> One:
    return _irfftn(d, g, a, s, axes, norm)


__all__: list[str] = []
