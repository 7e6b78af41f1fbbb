"""How NumPy's functions run on arrays of examples: the table of `batching.py`.  What is not here is done example by example."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.torch.core.batching import (
    FUNCTIONS,
    WRITE,
    BatchedArray,
    Unbatchable,
    aligned,
    examples,
    filled,
    looped_function,
    matmul,
    padded,
    shifted_axis,
    size_at,
)


def rule(*functions: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare how functions of NumPy run on batched arrays."""

    def put(run: Callable[..., Any]) -> Callable[..., Any]:
        for function in functions:
            FUNCTIONS[function] = run
        return run

    return put


def _wrapped(result: Any, level: int) -> Any:
    if isinstance(result, (tuple, list)):
        return type(result)(*(BatchedArray(r, level) for r in result)) if hasattr(result, "_fields") else tuple(
            BatchedArray(r, level) for r in result
        )  # fmt: skip
    return BatchedArray(result, level)


def _along_axis(function: Any, flat: bool) -> None:
    """Functions ``f(x, axis=...)`` of one array.  `flat`: without an axis they run on the flattened array."""

    def run(level: int, x: Any, axis: Any = None, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, BatchedArray) or args or kwargs.get("out") is not None:
            return looped_function(function, (x, axis, *args), kwargs)
        if axis is None and flat:
            x, axis = x.reshape(-1), 0
        return _wrapped(function(x.physical, axis=shifted_axis(axis, x.ndim), **kwargs), level)

    FUNCTIONS[function] = run


for _function in (
    np.sum, np.prod, np.mean, np.std, np.var, np.max, np.min, np.amax, np.amin, np.any, np.all, np.nansum, np.nanmean, np.nanmax,
    np.nanmin, np.count_nonzero, np.median, np.nanmedian, np.ptp, np.flip, np.expand_dims, np.squeeze,
):  # fmt: skip
    _along_axis(_function, False)
for _function in (np.argmax, np.argmin, np.cumsum, np.cumprod, np.nanargmax, np.nanargmin):
    _along_axis(_function, True)


def _along_last(function: Any) -> None:
    """Functions ``f(x, axis=-1)``."""

    def run(level: int, x: Any, axis: Any = -1, **kwargs: Any) -> Any:
        if axis is None or not isinstance(x, BatchedArray):
            return looped_function(function, (x,), {"axis": axis, **kwargs})
        return _wrapped(function(x.physical, axis=shifted_axis(axis, x.ndim), **kwargs), level)

    FUNCTIONS[function] = run


for _function in (np.sort, np.argsort):
    _along_last(_function)


def _of_examples(function: Any, least: int) -> None:
    """Functions of one array's last dimensions, which NumPy runs over the leading ones."""

    def run(level: int, x: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(x, BatchedArray) or x.ndim < least:
            return looped_function(function, (x, *args), kwargs)
        return _wrapped(function(x.physical, *args, **kwargs), level)

    FUNCTIONS[function] = run


for _function in (
    np.linalg.inv, np.linalg.det, np.linalg.slogdet, np.linalg.cholesky, np.linalg.qr, np.linalg.svd, np.linalg.eigh, np.linalg.eig,
    np.linalg.eigvals, np.linalg.eigvalsh, np.linalg.matrix_power, np.tril, np.triu,
):  # fmt: skip
    _of_examples(_function, 2)
for _function in (
    np.real, np.imag, np.conj, np.angle, np.round, np.around, np.nan_to_num, np.i0, np.sinc, np.isposinf, np.isneginf, np.copy,
):  # fmt: skip
    _of_examples(_function, 0)


@rule(np.zeros_like, np.ones_like, np.empty_like)
def _like(level: int, x: Any, dtype: Any = None, **kwargs: Any) -> Any:
    kwargs.pop("order", None), kwargs.pop("subok", None)
    shape = kwargs.pop("shape", None)
    sizes = x.shape if shape is None else (shape,) if isinstance(shape, int) else tuple(shape)
    return BatchedArray(np.zeros_like(x.physical, dtype=dtype, shape=(x.physical.shape[0], *sizes)), level)


def _ones_like(level: int, x: Any, dtype: Any = None, **kwargs: Any) -> Any:
    made = _like(level, x, dtype, **kwargs)
    made.physical[...] = 1
    return made


FUNCTIONS[np.ones_like] = _ones_like


@rule(np.full_like)
def _full_like(level: int, x: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    made = _like(level, x, dtype, **kwargs) if isinstance(x, BatchedArray) else _like(level, BatchedArray(
        examples(x, level, size_at((fill_value,), level)), level), dtype, **kwargs)  # fmt: skip
    made[...] = fill_value
    return made


@rule(np.copyto)
def _copyto(level: int, dst: Any, src: Any, casting: str = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, BatchedArray) or dst.level < level:
        raise Unbatchable(WRITE)
    src, where = aligned((src, where), level, dst.ndim)
    np.copyto(dst.physical, src, casting=casting, where=where)


@rule(np.reshape)
def _reshape(level: int, x: Any, /, shape: Any = None, order: str = "C", *, newshape: Any = None, copy: Any = None) -> Any:
    sizes = shape if shape is not None else newshape
    sizes = (sizes,) if isinstance(sizes, (int, np.integer)) else tuple(sizes)
    full = (x.physical.shape[0], *filled(sizes, x.size))
    return BatchedArray(np.reshape(x.physical, full, order=order, copy=copy), level)


@rule(np.ravel)
def _ravel(level: int, x: Any, order: str = "C") -> Any:
    return x.reshape(-1)


@rule(np.transpose, np.permute_dims)
def _transpose(level: int, x: Any, axes: Any = None) -> Any:
    return x.transpose(axes) if axes is not None else x.transpose()


@rule(np.swapaxes)
def _swapaxes(level: int, x: Any, axis1: int, axis2: int) -> Any:
    return x.swapaxes(axis1, axis2)


@rule(np.moveaxis)
def _moveaxis(level: int, x: Any, source: Any, destination: Any) -> Any:
    return BatchedArray(np.moveaxis(x.physical, shifted_axis(source, x.ndim), shifted_axis(destination, x.ndim)), level)


@rule(np.broadcast_to)
def _broadcast_to(level: int, x: Any, shape: Any, subok: bool = False) -> Any:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    physical = padded(x.physical, len(sizes))
    return BatchedArray(np.broadcast_to(physical, (physical.shape[0], *sizes)), level)


@rule(np.broadcast_arrays)
def _broadcast_arrays(level: int, *arrays: Any, subok: bool = False) -> Any:
    shape = np.broadcast_shapes(*(np.shape(a) for a in arrays))
    return tuple(np.broadcast_to(a, shape) for a in arrays)


@rule(np.shape)
def _shape(level: int, x: Any) -> Any:
    return x.shape


@rule(np.ndim)
def _ndim(level: int, x: Any) -> Any:
    return x.ndim


@rule(np.size)
def _size(level: int, x: Any, axis: Any = None) -> Any:
    return x.size if axis is None else x.shape[axis]


@rule(np.iscomplexobj)
def _iscomplexobj(level: int, x: Any) -> Any:
    return x.dtype.kind == "c"


@rule(np.isrealobj)
def _isrealobj(level: int, x: Any) -> Any:
    return x.dtype.kind != "c"


@rule(np.result_type)
def _result_type(level: int, *values: Any) -> Any:
    return np.result_type(*(v.dtype if isinstance(v, BatchedArray) else v for v in values))


@rule(np.can_cast)
def _can_cast(level: int, value: Any, to: Any, casting: str = "safe") -> Any:
    return np.can_cast(value.dtype if isinstance(value, BatchedArray) else value, to, casting)


@rule(np.may_share_memory, np.shares_memory)
def _share(level: int, a: Any, b: Any, max_work: Any = None) -> Any:
    return np.may_share_memory(*(v.physical if isinstance(v, BatchedArray) else v for v in (a, b)))


@rule(np.concatenate)
def _concatenate(level: int, arrays: Sequence[Any], axis: Any = 0, out: Any = None, **kwargs: Any) -> Any:
    count = size_at((tuple(arrays),), level)
    if out is not None:
        raise Unbatchable(WRITE)
    if axis is None:
        return looped_function(np.concatenate, (tuple(arrays),), {"axis": axis, **kwargs})
    each = [examples(a, level, count) for a in arrays]
    return BatchedArray(np.concatenate(each, axis=axis + 1 if axis >= 0 else axis, **kwargs), level)


@rule(np.stack)
def _stack(level: int, arrays: Sequence[Any], axis: int = 0, out: Any = None, **kwargs: Any) -> Any:
    if out is not None:
        raise Unbatchable(WRITE)
    count = size_at((tuple(arrays),), level)
    each = [examples(a, level, count) for a in arrays]
    return BatchedArray(np.stack(each, axis=axis + 1 if axis >= 0 else axis, **kwargs), level)


@rule(np.where)
def _where(level: int, condition: Any, *values: Any) -> Any:
    if not values:
        raise Unbatchable("vmap: We do not support batching operators that can output dynamic shape.")
    return BatchedArray(np.where(*aligned((condition, *values), level)), level)


@rule(np.nonzero, np.flatnonzero, np.argwhere, np.unique, np.bincount)
def _nonzero(level: int, *_: Any, **__: Any) -> Any:
    raise Unbatchable(
        "vmap: It looks like you're attempting to use a Tensor operation that has dynamic output shape. We do not support batching "
        "operators that can output dynamic shape."
    )


@rule(np.clip)
def _clip(level: int, x: Any, a_min: Any = None, a_max: Any = None, out: Any = None, **kwargs: Any) -> Any:
    low, high = kwargs.pop("min", a_min), kwargs.pop("max", a_max)
    found = x if low is None else np.maximum(x, low)
    return found if high is None else np.minimum(found, high)


@rule(np.diagonal)
def _diagonal(level: int, x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    found = np.diagonal(x.physical, offset, *(a + 1 if a >= 0 else a for a in (axis1, axis2)))
    if isinstance(found, np.ndarray) and not found.flags.writeable and x.physical.flags.writeable:
        found.flags.writeable = True
    return BatchedArray(found, level)


@rule(np.trace)
def _trace(level: int, x: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, **kwargs: Any) -> Any:
    return BatchedArray(np.trace(x.physical, offset, *(a + 1 if a >= 0 else a for a in (axis1, axis2)), **kwargs), level)


@rule(np.roll)
def _roll(level: int, x: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return np.roll(x.reshape(-1), shift, 0).reshape(x.shape)
    return BatchedArray(np.roll(x.physical, shift, shifted_axis(axis, x.ndim)), level)


@rule(np.repeat)
def _repeat(level: int, x: Any, repeats: Any, axis: Any = None) -> Any:
    if isinstance(repeats, BatchedArray):
        raise Unbatchable("vmap: We do not support batching operators that can output dynamic shape.")
    if axis is None:
        x, axis = x.reshape(-1), 0
    return BatchedArray(np.repeat(x.physical, repeats, shifted_axis(axis, x.ndim)), level)


@rule(np.tile)
def _tile(level: int, x: Any, reps: Any) -> Any:
    sizes = (reps,) if isinstance(reps, int) else tuple(reps)
    sizes = (1,) * (x.ndim - len(sizes)) + sizes
    return BatchedArray(np.tile(padded(x.physical, len(sizes)), (1, *sizes)), level)


@rule(np.take_along_axis)
def _take_along_axis(level: int, x: Any, indices: Any, axis: Any = -1) -> Any:
    if axis is None:
        return looped_function(np.take_along_axis, (x, indices, axis), {})
    count = size_at((x, indices), level)
    each, places = (examples(a, level, count) for a in (x, indices))
    return BatchedArray(np.take_along_axis(each, places, shifted_axis(axis, x.ndim)), level)


@rule(np.put_along_axis)
def _put_along_axis(level: int, x: Any, indices: Any, values: Any, axis: Any) -> None:
    if not isinstance(x, BatchedArray) or x.level < level:
        raise Unbatchable(WRITE)
    count = x.physical.shape[0]
    placed = aligned((values,), level, indices.ndim)[0]
    np.put_along_axis(x.physical, examples(indices, level, count), placed, shifted_axis(axis, x.ndim))


@rule(np.dot)
def _dot(level: int, a: Any, b: Any, out: Any = None) -> Any:
    if max(a.ndim, b.ndim) > 2 or not a.ndim or not b.ndim:
        return looped_function(np.dot, (a, b), {})
    return matmul(level, a, b)


@rule(np.outer)
def _outer(level: int, a: Any, b: Any, out: Any = None) -> Any:
    return a.reshape(-1)[:, None] * b.reshape(-1)[None, :]


@rule(np.tensordot)
def _tensordot(level: int, a: Any, b: Any, axes: Any = 2) -> Any:
    pairs = (list(range(a.ndim - axes, a.ndim)), list(range(axes))) if isinstance(axes, int) else [
        [k] if isinstance(k, int) else list(k) for k in axes
    ]  # fmt: skip
    left, right = ([k % v.ndim for k in p] for p, v in zip(pairs, (a, b)))
    names = "abcdefghijklmnopqrstuvwxyz"
    first = list(names[: a.ndim])
    second = list(names[a.ndim : a.ndim + b.ndim])
    for i, j in zip(left, right):
        second[j] = first[i]
    out = [c for k, c in enumerate(first) if k not in left] + [c for k, c in enumerate(second) if k not in right]
    return np.einsum(f"{''.join(first)},{''.join(second)}->{''.join(out)}", a, b)


@rule(np.einsum)
def _einsum(level: int, equation: Any, *operands: Any, **kwargs: Any) -> Any:
    if not isinstance(equation, str) or "..." in equation or "->" not in equation:
        return looped_function(np.einsum, (equation, *operands), kwargs)
    inputs, output = equation.replace(" ", "").split("->")
    free = next(c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz" if c not in equation)
    parts = [
        free + part if isinstance(x, BatchedArray) and x.level == level else part for part, x in zip(inputs.split(","), operands)
    ]
    physical = [x.physical if isinstance(x, BatchedArray) and x.level == level else x for x in operands]
    return BatchedArray(np.einsum(f"{','.join(parts)}->{free}{output}", *physical, **kwargs), level)


@rule(np.linalg.solve)
def _solve(level: int, a: Any, b: Any) -> Any:
    if b.ndim == 1:
        return np.linalg.solve(a, b[:, None])[..., 0]
    return BatchedArray(np.linalg.solve(*aligned((a, b), level)), level)


@rule(np.pad)
def _pad(level: int, x: Any, pad_width: Any, mode: str = "constant", **kwargs: Any) -> Any:
    widths = np.broadcast_to(np.asarray(pad_width), (x.ndim, 2)).tolist()
    return BatchedArray(np.pad(x.physical, [(0, 0), *widths], mode, **kwargs), level)


def _transforms(function: Any) -> None:
    """Fourier transforms along an axis."""

    def run(level: int, x: Any, n: Any = None, axis: int = -1, norm: Any = None, **kwargs: Any) -> Any:
        return BatchedArray(function(x.physical, n, shifted_axis(axis, x.ndim), norm, **kwargs), level)

    FUNCTIONS[function] = run


for _function in (np.fft.fft, np.fft.ifft, np.fft.rfft, np.fft.irfft, np.fft.hfft, np.fft.ihfft):
    _transforms(_function)


def _shifts(function: Any) -> None:
    def run(level: int, x: Any, axes: Any = None) -> Any:
        return BatchedArray(function(x.physical, shifted_axis(axes, x.ndim)), level)

    FUNCTIONS[function] = run


for _function in (np.fft.fftshift, np.fft.ifftshift):
    _shifts(_function)

__all__ = ["rule"]
