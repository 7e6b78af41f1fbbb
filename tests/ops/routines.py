"""What routines of the runtime's give, by their definitions: window by window, element by element."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

Place = tuple[int, ...]


def _elements(kernel: Any, stride: Any, before: Any, dilation: Any, sizes: Any, window: Place) -> Iterator[tuple[Place, Place]]:
    """The elements of a window that lie within the array: where in the window, and where in the array."""
    for tap in np.ndindex(*kernel):
        at = tuple(q * s - p + t * d for q, s, p, t, d in zip(window, stride, before, tap, dilation))
        if all(0 <= k < size for k, size in zip(at, sizes)):
            yield tap, at


def _convolution(routine: str, a: np.ndarray, b: np.ndarray, out: np.ndarray, attrs: Any) -> np.ndarray:
    """The sum over elements of windows of image x filter x result, by whichever of these is asked for."""
    images, filters, results = {"conv": (a, b, out), "conv_input": (out, b, a), "conv_weight": (a, out, b)}[routine]
    befores = [pair[0] for pair in attrs["padding"]]
    ins, outs = filters.shape[1], results.shape[1] // attrs["groups"]
    for window in np.ndindex(*results.shape[2:]):
        for tap, at in _elements(
            filters.shape[2:], attrs["stride"], befores, attrs["dilation"], images.shape[2:], window
        ):
            for image, o, i in np.ndindex(images.shape[0], results.shape[1], ins):
                x, w, y = (image, o // outs * ins + i, *at), (o, i, *tap), (image, o, *window)
                if routine == "conv":
                    out[y] += a[x] * b[w]
                elif routine == "conv_input":
                    out[x] += a[y] * b[w]
                else:
                    out[w] += a[x] * b[y]
    return out


def _bounds(size: int, count: int, number: int) -> tuple[int, int]:
    return number * size // count, ((number + 1) * size + count - 1) // count


def _windows(routine: str, sizes: Any, counts: Any, attrs: Any) -> Iterator[tuple[Place, list[Place]]]:
    for window in np.ndindex(*counts):
        if routine == "max_pool":
            geometry = (attrs[name] for name in ("kernel", "stride", "padding", "dilation"))
            yield window, [at for _, at in _elements(*geometry, sizes, window)]
        else:
            ranges = [_bounds(*of_one) for of_one in zip(sizes, counts, window)]
            yield window, [tuple(a + k for (a, _), k in zip(ranges, at)) for at in np.ndindex(*(b - a for a, b in ranges))]


def _maxima(routine: str, x: np.ndarray, out: np.ndarray, attrs: Any) -> np.ndarray:
    """The first of the greatest, but of NaNs the last."""
    n = len(attrs["places"] if routine == "max_pool" else attrs["counts"])
    sizes, counts = x.shape[x.ndim - n :], out.shape[out.ndim - n :]
    for box in np.ndindex(*x.shape[: x.ndim - n]):
        for window, elements in _windows(routine, sizes, counts, attrs):
            best, where = -np.inf, -1
            for at in elements:
                value = x[(*box, *at)]
                if value > best or where < 0 or np.isnan(value):
                    best, where = value, int(np.ravel_multi_index(at, sizes))
            out[(*box, *window)] = where if attrs["result"] else best
    return out


def _put(g: np.ndarray, places: np.ndarray, out: np.ndarray, n: int) -> np.ndarray:
    front = g.shape[: g.ndim - n]
    flat = out.reshape(*front, -1) if out.size else out
    for box in np.ndindex(*front):
        for value, place in zip(g[box].ravel(), places[box].ravel()):
            if place >= 0:
                flat[(*box, place)] += value
    return out


def _means(x: np.ndarray, out: np.ndarray, axis: int, back: bool) -> np.ndarray:
    size, count = (out.shape[axis], x.shape[axis]) if back else (x.shape[axis], out.shape[axis])
    given, made = np.moveaxis(x, axis, 0), np.moveaxis(out, axis, 0)
    for j in range(count):
        a, b = _bounds(size, count, j)
        if back:
            made[a:b] += given[j] / x.dtype.type(b - a)
        else:
            made[j] = given[a:b].sum(0) / x.dtype.type(b - a)
    return out


def _averages(x: np.ndarray, out: np.ndarray, attrs: Any, back: bool) -> np.ndarray:
    """Axis by axis, the last one first, in the dtype of `x`: where sums overflow depends on the order."""
    n = len(attrs["kernel"])
    sizes, counts = ((a.shape[a.ndim - n :]) for a in ((out, x) if back else (x, out)))
    divisors = np.empty(counts, x.dtype)
    for window in np.ndindex(*counts):
        divisor = attrs["divisor"]
        if divisor is None:
            reach = [p if attrs["whole"] else 0 for p in attrs["padding"]]
            starts = [q * s - p for q, s, p in zip(window, attrs["stride"], attrs["padding"])]
            divisor = math.prod(
                min(start + k, size + r) - max(start, -r) for start, k, size, r in zip(starts, attrs["kernel"], sizes, reach)
            )
        divisors[window] = divisor
    with np.errstate(all="ignore"):
        made = x / divisors if back else x
        for k in range(n) if back else reversed(range(n)):
            about = (attrs[name][k] for name in ("kernel", "stride", "padding"))
            made = _average_axis(made, x.ndim - n + k, sizes[k], counts[k], *about, back)
        return made if back else made / divisors


def _average_axis(
    x: np.ndarray, axis: int, size: int, count: int, kernel: int, stride: int, padding: int, back: bool
) -> np.ndarray:
    """Sums of windows along an axis, or the way back."""
    x = np.moveaxis(x, axis, 0)
    wide = np.zeros((max(size + 2 * padding, (count - 1) * stride + kernel), *x.shape[1:]), x.dtype)
    if not back:
        wide[padding : padding + size] = x
    parts = [wide[k : k + (count - 1) * stride + 1 : stride] for k in range(kernel)]
    if not back:
        return np.moveaxis(sum(parts[1:], parts[0]), 0, axis)
    for part in parts:
        part += x
    return np.moveaxis(wide[padding : padding + size], 0, axis)


def run_routine(routine: str, operands: Any, attrs: Any, out: np.ndarray) -> np.ndarray:
    """What a routine makes of operands; `out`: zeros for it."""
    if routine.startswith("conv"):
        return _convolution(routine, *operands, out.astype(np.float64), attrs).astype(out.dtype)
    if routine in ("max_pool", "adaptive_max_pool"):
        return _maxima(routine, *operands, out, attrs)
    if routine.startswith("avg_pool"):
        return _averages(*operands, out, attrs, routine == "avg_pool_back")
    if routine == "max_pool_back":
        return _put(*operands, out, len(attrs["sizes"]))
    return _means(*operands, out, attrs["axis"], routine == "adaptive_mean_back")
