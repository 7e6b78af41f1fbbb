"""The table of NumPy calls whose gradients are tested: each a function with arguments at which it is smooth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_rng = np.random.default_rng(7)
SPREAD = np.linspace(-1.7, 1.9, 24)  # no ties, none near a kink at 0 or 1


def distinct(*shape: int) -> np.ndarray:
    """Numbers in (-2, 2) that are well apart from one another."""
    size = np.prod(shape, dtype=int)
    return _rng.permutation(SPREAD[:size] if size > 12 else SPREAD[::2][:size]).reshape(shape)


v, u = distinct(5), distinct(5) + 0.031
m, n = distinct(3, 4), distinct(3, 4) + 0.029
t = distinct(2, 3, 4)
row = distinct(4)
column = distinct(3, 1)
p, q = np.abs(v) + 0.3, np.abs(m) + 0.4
small = 0.4 * v / np.max(np.abs(v))
unit = small + 1.7
square = distinct(3, 3) + 2.5 * np.eye(3)
spd = square @ square.T + np.eye(3)
stack = np.stack([square, square.T + 0.1 * np.eye(3)])
z = v + 1j * u
zm = m[:, :3] + 1j * n[:, :3] + 2 * np.eye(3)
s, r = np.float64(0.7), np.float64(1.3)
mask = np.array([True, False, True, True, False])
where = m > -0.5
perm = np.array([2, 0, 2, 4])
deep = np.array([[0, 2], [1, 1]])

Row = tuple[Any, ...]

ELEMENTWISE: dict[str, Row] = {
    "add": (lambda x, y: np.add(x, y), m, row),
    "subtract": (lambda x, y: np.subtract(x, y), m, column),
    "multiply": (lambda x, y: np.multiply(x, y), column, row),
    "divide": (lambda x, y: np.divide(x, y), m, np.abs(row) + 0.5),
    "true_divide of scalars": (lambda x, y: x / y, s, r),
    "floor_divide": (lambda x, y: x + x // y, v, p),
    "remainder": (lambda x, y: np.remainder(x, y), v, p),
    "mod": (lambda x: x % 0.63, v),
    "fmod": (lambda x, y: np.fmod(x, y), v, p),
    "divmod": (lambda x, y: divmod(x, y)[1], v, p),
    "power": (lambda x, y: np.power(x, y), p, v),
    "power of an integer": (lambda x: x**3 + x**-2, p),
    "power of a half": (lambda x: x**0.5 + x**1.5, p),
    "power to the": (lambda y: 2.5**y, v),
    "float_power": (lambda x, y: np.float_power(x, y), p, v),
    "negative": (lambda x: np.negative(x), v),
    "positive": (lambda x: np.positive(x) * x, v),
    "abs": (lambda x: np.abs(x) * x, v),
    "fabs": (lambda x: np.fabs(x) * x, v),
    "sign": (lambda x: np.sign(x) * x**2, v),
    "copysign": (lambda x, y: np.copysign(x, y) ** 3, p, v),
    "exp": (lambda x: np.exp(x), v),
    "exp2": (lambda x: np.exp2(x), v),
    "expm1": (lambda x: np.expm1(x), v),
    "log": (lambda x: np.log(x), p),
    "log2": (lambda x: np.log2(x), p),
    "log10": (lambda x: np.log10(x), p),
    "log1p": (lambda x: np.log1p(x), p),
    "sqrt": (lambda x: np.sqrt(x), p),
    "cbrt": (lambda x: np.cbrt(x), p),
    "square": (lambda x: np.square(x), v),
    "reciprocal": (lambda x: np.reciprocal(x), p),
    "sin": (lambda x: np.sin(x), v),
    "cos": (lambda x: np.cos(x), v),
    "tan": (lambda x: np.tan(x), small),
    "arcsin": (lambda x: np.arcsin(x), small),
    "arccos": (lambda x: np.arccos(x), small),
    "arctan": (lambda x: np.arctan(x), v),
    "arctan2": (lambda x, y: np.arctan2(x, y), v, p),
    "hypot": (lambda x, y: np.hypot(x, y), v, p),
    "sinh": (lambda x: np.sinh(x), v),
    "cosh": (lambda x: np.cosh(x), v),
    "tanh": (lambda x: np.tanh(x), v),
    "arcsinh": (lambda x: np.arcsinh(x), v),
    "arccosh": (lambda x: np.arccosh(x), unit + 0.5),
    "arctanh": (lambda x: np.arctanh(x), small),
    "degrees": (lambda x: np.degrees(x) * x, v),
    "deg2rad": (lambda x: np.deg2rad(x) * x, v),
    "sinc": (lambda x: np.sinc(x), v),
    "i0": (lambda x: np.exp(-np.i0(x)), v),
    "logaddexp": (lambda x, y: np.logaddexp(x, y), v, u),
    "logaddexp2": (lambda x, y: np.logaddexp2(x, y), v, u),
    "maximum": (lambda x, y: np.maximum(x, y) ** 2, m, row + 0.01),
    "minimum": (lambda x, y: np.minimum(x, 0.02) * y, v, u),
    "fmax": (lambda x, y: np.fmax(x, y) ** 2, v, u[::-1].copy()),
    "fmin": (lambda x, y: np.fmin(x, y) ** 2, v, u[::-1].copy()),
    "clip": (lambda x: np.clip(x, -0.51, 0.83) * x, v),
    "clip between arrays": (lambda x, y: np.clip(x, y - 1, y + 0.5), v, u[::-1].copy()),
    "heaviside": (lambda x: np.heaviside(x, 0.5) * x**2, v),
    "floor": (lambda x: np.floor(x) * x, v),
    "round": (lambda x: np.round(x, 1) * x, v + 0.017),
    "trunc": (lambda x: x - np.trunc(x), v),
    "modf": (lambda x: np.modf(x)[0] * x, v),
    "frexp": (lambda x: np.frexp(x)[0] * x, v + 0.01),
    "ldexp": (lambda x: np.ldexp(x, np.array([1, 2, -1, 0, 3])) ** 2, v),
    "nan_to_num": (lambda x: np.nan_to_num(x) ** 2, v),
    "where": (lambda x, y: np.where(x > 0.1, x * y, y**2), m, row),
    "where of a mask": (lambda x, y: np.where(where, x, y) ** 2, m, n),
    "select": (lambda x: np.select([x < -0.5, x < 0.7], [x**2, np.sin(x)], x**3), v),
    "piecewise of masks": (lambda x: (x > 0.1) * x**2 + (x <= 0.1) * np.exp(x), v),
    "choose": (lambda x, y: np.choose(np.array([0, 1, 1, 0, 1]), [x, x * y]), v, u),
    "interp": (lambda x, y: np.interp(np.array([0.3, 1.2, 2.7]), np.arange(5.0), x * y), v, u),
    "interp of places": (lambda x: np.interp(x, np.linspace(-3, 3, 8), np.linspace(-3, 3, 8) ** 2) * x, v),
    "polyval": (lambda c, x: np.polyval(c, x), v, small),
    "astype": (lambda x: x.astype(np.float64) ** 2 + x.astype("f4").astype("f8") * 0, v),
    "float32": (lambda x: np.sin(x) * x, v.astype(np.float32)),
    "mixed precision": (lambda x, y: (x * y) ** 2, v.astype(np.float32), u),
    "operators": (lambda x, y: -x * y + x / (2 + y**2) - (3 - x) * +y, v, u),
}

REDUCTIONS: dict[str, Row] = {
    "sum": (lambda x: np.sum(x**2), m),
    "sum along": (lambda x: np.sum(x**2, axis=1), t),
    "sum over two": (lambda x: np.sum(x**2, axis=(0, -1), keepdims=True), t),
    "sum where": (lambda x: np.sum(x**2, axis=0, where=where), m),
    "sum with initial": (lambda x: x.sum(initial=2.0) ** 2, v),
    "mean": (lambda x: np.mean(x) ** 2, m),
    "mean along": (lambda x: np.mean(x**2, axis=-1, keepdims=True), t),
    "mean where": (lambda x: np.mean(x**2, where=where), m),
    "average": (lambda x, w: np.average(x, weights=w), v, p),
    "average along": (lambda x, w: np.average(x, axis=0, weights=w), m, np.abs(column[:, 0]) + 1),
    "prod": (lambda x: np.prod(x), v),
    "prod along": (lambda x: np.prod(x, axis=1), m),
    "max": (lambda x: np.max(x**3), v),
    "max along": (lambda x: np.max(x, axis=0) ** 2, m),
    "min": (lambda x: x.min(axis=1, keepdims=True) * x, m),
    "ptp": (lambda x: np.ptp(x, axis=1) ** 2, m),
    "var": (lambda x: np.var(x), m),
    "var along": (lambda x: np.var(x, axis=1, ddof=1), m),
    "std": (lambda x: np.std(x), m),
    "std along": (lambda x: x.std(axis=0, ddof=1, keepdims=True), m),
    "var where": (lambda x: np.var(x, where=where), m),
    "median": (lambda x: np.median(x) ** 2, v),
    "median along": (lambda x: np.median(x, axis=1) ** 2, m),
    "percentile": (lambda x: np.percentile(x, 30) ** 2, v),
    "percentiles": (lambda x: np.percentile(x, [20, 70], axis=1) ** 2, m),
    "quantile": (lambda x: np.quantile(x, 0.35, axis=0) ** 2, m),
    "nansum": (lambda x: np.nansum(x**2, axis=0), m),
    "nanmean": (lambda x: np.nanmean(x**2), m),
    "nanvar": (lambda x: np.nanvar(x, axis=1), m),
    "nanmax": (lambda x: np.nanmax(x, axis=1) ** 2, m),
    "cumsum": (lambda x: np.cumsum(x) ** 2, v),
    "cumsum along": (lambda x: np.cumsum(x, axis=1) ** 2, m),
    "cumprod": (lambda x: np.cumprod(x), v),
    "cumprod along": (lambda x: x.cumprod(axis=0), m),
    "diff": (lambda x: np.diff(x) ** 2, v),
    "diff twice": (lambda x: np.diff(x, n=2, axis=1) ** 2, m),
    "ediff1d": (lambda x: np.ediff1d(x) ** 2, v),
    "gradient": (lambda x: np.gradient(x) ** 2, v),
    "trapezoid": (lambda x: np.trapezoid(x**2, dx=0.5), v),
    "trapezoid of places": (lambda y, x: np.trapezoid(y, x), v, np.array([0.0, 0.4, 1.1, 1.7, 2.0])),
    "maximum.accumulate": (lambda x: np.maximum.accumulate(x) ** 2, v),
    "minimum.accumulate": (lambda x: np.minimum.accumulate(x, axis=1) ** 2, m),
    "add.reduce": (lambda x: np.add.reduce(x**2, axis=1), m),
    "multiply.reduce": (lambda x: np.multiply.reduce(x, axis=0), m),
    "maximum.reduce": (lambda x: np.maximum.reduce(x, axis=None) ** 2, m),
    "add.accumulate": (lambda x: np.add.accumulate(x) ** 2, v),
    "logaddexp.reduce": (lambda x: np.logaddexp.reduce(x), v),
    "add.reduceat": (lambda x: np.add.reduceat(x, [0, 2, 3]) ** 2, v),
    "multiply.outer": (lambda x, y: np.multiply.outer(x, y), v, row),
    "subtract.outer": (lambda x, y: np.subtract.outer(x, y) ** 2, v, row),
    "logsumexp": (lambda x: np.log(np.sum(np.exp(x - np.max(x, axis=1, keepdims=True)), axis=1)) + np.max(x, axis=1), m),
    "softmax": (lambda x: np.exp(x) / np.sum(np.exp(x), axis=-1, keepdims=True), m),
    "cov": (lambda x: np.cov(x), m),
    "corrcoef": (lambda x: np.corrcoef(x), m),
}

INDEXING: dict[str, Row] = {
    "an element": (lambda x: x[2] * x[-1], v),
    "a row": (lambda x: x[1] ** 2, m),
    "a slice": (lambda x: x[1:4] * x[:3], v),
    "a slice backwards": (lambda x: x[::-2] ** 2, v),
    "slices of two axes": (lambda x: x[1:, ::2] ** 2, m),
    "newaxis": (lambda x: x[:, None] * x[None], v),
    "ellipsis": (lambda x: x[..., 1] ** 2, t),
    "an array of places": (lambda x: x[perm] ** 2, v),
    "a list of places": (lambda x: x[[0, 0, 3]] ** 2, v),
    "places of two axes": (lambda x: x[deep, deep[::-1]] ** 2, m),
    "places and a slice": (lambda x: x[1:, perm % 3] ** 2, m),
    "places of rows": (lambda x: x[deep] ** 2, m),
    "np.ix_": (lambda x: x[np.ix_([0, 2], [1, 3])] ** 2, m),
    "a mask": (lambda x: np.sum(x[mask] ** 3), v),
    "a mask of its own": (lambda x: np.sum(x[x > 0.2] ** 2), v),
    "a mask of an array": (lambda x: (x[where] ** 2).sum(), m),
    "take": (lambda x: np.take(x, perm) ** 2, v),
    "take along": (lambda x: x.take([2, 0], axis=1) ** 2, m),
    "take_along_axis": (lambda x: np.take_along_axis(x, np.argsort(x, axis=1), axis=1) ** 3, m),
    "compress": (lambda x: np.compress([True, False, True], x, axis=0) ** 2, m),
    "diagonal": (lambda x: np.diagonal(x) ** 2, square),
    "diag of a vector": (lambda x: np.diag(x) @ np.diag(x), v),
    "diag of a matrix": (lambda x: np.diag(x, 1) ** 2, square),
    "trace": (lambda x: np.trace(x @ x), square),
    "tril": (lambda x: np.tril(x) ** 2, square),
    "triu": (lambda x: np.triu(x, 1) ** 2, square),
    "sort": (lambda x: np.sort(x) * np.arange(5.0) * x, v),
    "sort along": (lambda x: np.sort(x, axis=0) ** 3, m),
    "argsort": (lambda x: x[np.argsort(x)] * np.arange(5.0) ** 2 * x, v),
    "argmax": (lambda x: x[np.argmax(x)] ** 2, v),
    "partition": (lambda x: np.sum(np.partition(x, 2)[:2] ** 2), v),
    "searchsorted": (lambda x: x ** (1.0 + np.searchsorted(np.array([-1.0, 0.5]), x)), p),
    "put in place": (lambda x, y: _written(x, slice(1, 3), y[:2] ** 2) ** 2, v, u),
    "put at places": (lambda x, y: _written(x, np.array([3, 1]), y[:2]) ** 2, v, u),
    "put at a mask": (lambda x, y: _written(x, mask, 2.0) * y, v, u),
    "add at places": (lambda x, y: _added(x, perm, y[:4] ** 2) ** 2, v, u),
    "iteration": (lambda x: sum([row * row[0] for row in x]), m),
    "unpacking": (lambda x: _unpacked(x), v),
    "squeeze": (lambda x: np.squeeze(x, 1) ** 2, column),
}

SHAPES: dict[str, Row] = {
    "reshape": (lambda x: np.reshape(x, (4, 3)) ** 2, m),
    "reshape in F order": (lambda x: x.reshape(2, -1, order="F") ** 2, m),
    "ravel": (lambda x: np.ravel(x) ** 2, m),
    "flatten": (lambda x: x.flatten() ** 2, m),
    "T": (lambda x: x.T @ x, m),
    "transpose": (lambda x: np.transpose(x, (2, 0, 1)) ** 2, t),
    "swapaxes": (lambda x: np.swapaxes(x, 0, 2) ** 2, t),
    "moveaxis": (lambda x: np.moveaxis(x, 0, -1) ** 2, t),
    "rollaxis": (lambda x: np.rollaxis(x, 2) ** 2, t),
    "expand_dims": (lambda x: np.expand_dims(x, (0, 2)) ** 2, v),
    "broadcast_to": (lambda x: np.broadcast_to(x, (3, 4)) ** 2, row),
    "broadcast_arrays": (lambda x, y: np.broadcast_arrays(x, y)[0] * y, column, row),
    "atleast_2d": (lambda x: np.atleast_2d(x) ** 2, v),
    "concatenate": (lambda x, y: np.concatenate([x, y * x[:1], x]) ** 2, v, u),
    "concatenate along": (lambda x, y: np.concatenate((x, y), axis=1) ** 2, m, column),
    "stack": (lambda x, y: np.stack([x, y, x * y], axis=1) ** 2, v, u),
    "vstack": (lambda x, y: np.vstack([x, y]) ** 2, m, row),
    "hstack": (lambda x, y: np.hstack([x, y]) ** 2, m, column),
    "dstack": (lambda x, y: np.dstack([x, y]) ** 2, m, n),
    "column_stack": (lambda x, y: np.column_stack([x, y]) ** 2, v, u),
    "block": (lambda x, y: np.block([[x, x], [y, -x]]) ** 2, m, n),
    "append": (lambda x, y: np.append(x, y) ** 2, v, row),
    "insert": (lambda x: np.insert(x, 2, x[0]) ** 2, v),
    "delete": (lambda x: np.delete(x, 1) ** 2, v),
    "split": (lambda x: np.split(x, 2, axis=1)[1] ** 2, m),
    "array_split": (lambda x: np.array_split(x, 2)[0] ** 2, v),
    "tile": (lambda x: np.tile(x, (2, 2)) ** 2, v),
    "repeat": (lambda x: np.repeat(x, 3) ** 2, v),
    "roll": (lambda x: np.roll(x, 2) * x, v),
    "roll of axes": (lambda x: np.roll(x, (1, -1), axis=(0, 1)) * x, m),
    "flip": (lambda x: np.flip(x) * x, m),
    "fliplr": (lambda x: np.fliplr(x) * x, m),
    "rot90": (lambda x: np.rot90(x) ** 2, m),
    "pad": (lambda x: np.pad(x, 2) ** 2, v),
    "pad edge": (lambda x: np.pad(x, ((1, 0), (0, 2)), mode="edge") ** 2, m),
    "pad reflect": (lambda x: np.pad(x, 2, mode="reflect") ** 2, v),
    "pad wrap": (lambda x: np.pad(x, (1, 2), mode="wrap") ** 2, v),
    "array of elements": (lambda x: np.array([x[0] * x[1], x[2], 1.0]) ** 2, v),
    "array of rows": (lambda x: np.array([x, x**2]), v),
    "asarray": (lambda x: np.asarray(x) ** 2, v),
    "copy": (lambda x: x.copy() ** 2, v),
    "full_like": (lambda x: np.full_like(x, x[0]) * x, v),
    "full": (lambda x: np.full((2, 5), x) * x, v),
    "meshgrid": (lambda x, y: np.meshgrid(x, y)[0] * np.meshgrid(x, y)[1], v, row),
    "sliding_window_view": (lambda x: np.lib.stride_tricks.sliding_window_view(x, 3).sum(axis=1) ** 2, v),
    "vander": (lambda x: np.vander(x, 4), v),
}

LINEAR: dict[str, Row] = {
    "matmul": (lambda x, y: x @ y, m, n.T),
    "matmul of stacks": (lambda x, y: np.matmul(x, y), t, distinct(4, 2)),
    "matrix times vector": (lambda x, y: x @ y, m, row),
    "vector times matrix": (lambda x, y: y @ x, m, column[:, 0]),
    "vector times vector": (lambda x, y: x @ y, v, u),
    "dot": (lambda x, y: np.dot(x, y), m, n.T),
    "dot of stacks": (lambda x, y: np.dot(x, y), t, distinct(4, 2)),
    "vdot": (lambda x, y: np.vdot(x, y), m, n),
    "inner": (lambda x, y: np.inner(x, y), m, n),
    "outer": (lambda x, y: np.outer(x, y), v, row),
    "kron": (lambda x, y: np.kron(x, y), m, square[:2]),
    "tensordot": (lambda x, y: np.tensordot(x, y, axes=([2, 1], [1, 0])), t, m),
    "tensordot of one": (lambda x, y: np.tensordot(x, y, 1), t, distinct(4, 2)),
    "cross": (lambda x, y: np.cross(x, y), square, square[::-1] + 0.1),
    "einsum ij,jk": (lambda x, y: np.einsum("ij,jk->ik", x, y), m, n.T),
    "einsum ijk,ik": (lambda x, y: np.einsum("ijk,ik->j", x, y), t, distinct(2, 4)),
    "einsum of three": (lambda x, y, w: np.einsum("ij,kj,j->ik", x, y, w), m, n, row),
    "einsum ...": (lambda x, y: np.einsum("...ij,...j->...i", x, y), t, row),
    "einsum ii": (lambda x: np.einsum("ii", x), square),
    "einsum iij->ij": (lambda x, y: np.einsum("ii,ij->ij", x, x * y), square, square.T),
    "einsum of lists": (lambda x, y: np.einsum(x, [0, 1], y, [1, 2]), m, n.T),
    "einsum of lists, with output": (lambda x, y: np.einsum(x, [0, 1], y, [1, 2], [2, 0]), m, n.T),
    "einsum by a path": (lambda x, y: np.einsum("ij,kj->ik", x, y, optimize=True), m, n),
    "einsum of three by a path": (lambda x, y, w: np.einsum("ij,kj,j->ik", x, y, w, optimize="optimal"), m, n, row),
    "linspace": (lambda x: np.linspace(x[0], x[1], 4), v),
    "linspace of arrays": (lambda x, y: np.linspace(x, y, 5, axis=1), m[0], row),
    "linspace without its end": (lambda x: np.linspace(x, 2.0, 4, endpoint=False), m),
    "step of linspace": (lambda x: np.linspace(0.0, x, 4, retstep=True)[1], m),
    "repeat by counts": (lambda x: np.repeat(x, [1, 0, 2], axis=0) ** 2, m),
    "repeat by counts, flat": (lambda x: x.repeat(np.arange(x.size)) ** 2, v),
    "einsum outer": (lambda x, y: np.einsum("i,j->ji", x, y), v, row),
    "convolve": (lambda x, y: np.convolve(x, y[:3]), v, u),
    "convolve same": (lambda x, y: np.convolve(x, y[:3], "same"), v, u),
    "convolve valid": (lambda x, y: np.convolve(x, y[:3], mode="valid"), v, u),
    "correlate": (lambda x, y: np.correlate(x, y[:3], "full"), v, u),
    "norm": (lambda x: np.linalg.norm(x), v),
    "norm of a matrix": (lambda x: np.linalg.norm(x), m),
    "norm 1": (lambda x: np.linalg.norm(x, 1) ** 2, v),
    "norm inf": (lambda x: np.linalg.norm(x, np.inf) ** 2, v),
    "norm 3": (lambda x: np.linalg.norm(x, 3), v),
    "norm along": (lambda x: np.linalg.norm(x, axis=1, keepdims=True), m),
    "norm fro": (lambda x: np.linalg.norm(x, "fro"), m),
    "norm nuc": (lambda x: np.linalg.norm(x, "nuc"), square),
    "norm 2 of a matrix": (lambda x: np.linalg.norm(x, 2), square),
    "inv": (lambda x: np.linalg.inv(x), square),
    "inv of a stack": (lambda x: np.linalg.inv(x), stack),
    "det": (lambda x: np.linalg.det(x), square),
    "slogdet": (lambda x: np.linalg.slogdet(x)[1], square),
    "solve": (lambda a, b: np.linalg.solve(a, b), square, column[:, 0]),
    "solve of columns": (lambda a, b: np.linalg.solve(a, b), square, m),
    "solve of a stack": (lambda a, b: np.linalg.solve(a, b), stack, m),
    "cholesky": (lambda x: np.linalg.cholesky(x @ x.T + np.eye(3)), square),
    "eigh": (lambda x: np.linalg.eigh(x + x.T)[0], square),
    "eigvalsh": (lambda x: np.linalg.eigvalsh(x + x.T), square),
    "eigenvectors": (lambda x: np.abs(np.linalg.eigh(x + x.T)[1]), square),
    "svd values": (lambda x: np.linalg.svd(x, compute_uv=False), m),
    "svd": (lambda x: np.abs(np.linalg.svd(x)[0]), square),
    "qr": (lambda x: np.linalg.qr(x)[1], square),
    "pinv": (lambda x: np.linalg.pinv(x), m),
    "lstsq": (lambda a, b: np.linalg.lstsq(a, b)[0], m.T, row),
    "matrix_power": (lambda x: np.linalg.matrix_power(x, 3), square),
    "multi_dot": (lambda x, y: np.linalg.multi_dot([x, y, x]), m, n.T),
}

COMPLEX: dict[str, Row] = {
    "complex multiply": (lambda x, y: x * y, z, z[::-1] + 0.3),
    "complex divide": (lambda x, y: x / y, z, z[::-1] + 0.3),
    "complex exp": (lambda x: np.exp(x), z),
    "complex log": (lambda x: np.log(x), z),
    "complex sqrt": (lambda x: np.sqrt(x), z),
    "complex sin": (lambda x: np.sin(x), z),
    "complex tanh": (lambda x: np.tanh(x), z),
    "complex power": (lambda x: x**3, z),
    "complex abs": (lambda x: np.abs(x), z),
    "angle": (lambda x: np.angle(x), z),
    "real": (lambda x: x.real * np.imag(x), z),
    "conj": (lambda x: np.conj(x) * x**2, z),
    "complex sum": (lambda x: np.sum(x**2), z),
    "complex matmul": (lambda x, y: x @ y, zm, zm.T),
    "complex inv": (lambda x: np.linalg.inv(x), zm),
    "complex of reals": (lambda x, y: np.exp(1j * x) * y, v, u),
    "real and imaginary parts": (lambda x: np.abs(x + 1j * x**2), v),
    "fft": (lambda x: np.fft.fft(x), z),
    "fft of reals": (lambda x: np.abs(np.fft.fft(x)), v),
    "ifft": (lambda x: np.fft.ifft(x), z),
    "rfft": (lambda x: np.fft.rfft(x), v),
    "rfft of even length": (lambda x: np.fft.rfft(x), row),
    "irfft": (lambda x: np.fft.irfft(x), z),
    "irfft of odd length": (lambda x: np.fft.irfft(x, 5), z[:3]),
    "fft2": (lambda x: np.fft.fft2(x), m),
    "fftn": (lambda x: np.fft.fftn(x, axes=(0, 2)), t),
    "fft along": (lambda x: np.fft.fft(x, axis=0), m),
    "fft padded": (lambda x: np.fft.fft(x, 8), v),
    "fft orthonormal": (lambda x: np.fft.fft(x, norm="ortho"), v),
    "fftshift": (lambda x: np.fft.fftshift(x) * x, v),
    "spectrum": (lambda x: np.sum(np.abs(np.fft.rfft(x)) ** 2), v),
}


OTHERS: dict[str, Row] = {
    "unwrap": (lambda x: np.unwrap(x * 3) ** 2, v),
    "resize": (lambda x: np.resize(x, (2, 4)) ** 2, v),
    "lexsort": (lambda x: x[np.lexsort((x,))] ** 2 * x, v),
    "digitize": (lambda x: np.digitize(x, [-0.5, 0.9]) * x**2, v),
    "extract": (lambda x: np.sum(np.extract(mask, x) ** 2), v),
    "nonzero": (lambda x: np.sum(x[np.nonzero(mask)] ** 2), v),
    "put": (lambda x: _changed(x, lambda y: np.put(y, [0, 2], x[:2] ** 2)), v),
    "place": (lambda x: _changed(x, lambda y: np.place(y, mask, x[:3] ** 2)), v),
    "copyto": (lambda x: _changed(x, lambda y: np.copyto(y, x**2, where=mask)), v),
    "put_along_axis": (lambda x: _changed(x, lambda y: np.put_along_axis(y, np.array([[1], [2], [0]]), x[:, :1] ** 2, 1)), m),
    "fill_diagonal": (lambda x: _changed(x, lambda y: np.fill_diagonal(y, x[0, 0] ** 2)), square),
    "fill": (lambda x: _changed(x, lambda y: y.fill(x[0] ** 2)), v),
    "sort in place": (lambda x: _changed(x, lambda y: y.sort()) * x, v),
    "cond": (lambda x: np.linalg.cond(x), square),
    "tensorinv": (lambda x: np.linalg.tensorinv(x, ind=1), square),
    "vector_norm": (lambda x: np.linalg.vector_norm(x), v),
    "nanmedian": (lambda x: np.nanmedian(x) ** 2, v),
    "nanpercentile": (lambda x: np.nanpercentile(x, 30) ** 2, v),
    "nanprod": (lambda x: np.nanprod(x), v),
    "nancumsum": (lambda x: np.nancumsum(x) ** 2, v),
    "cumulative_sum": (lambda x: np.cumulative_sum(x) ** 2, v),
    "vecdot": (lambda x, y: np.vecdot(x, y), m, n),
    "matvec": (lambda x, y: np.matvec(x, y), m, row),
    "unstack": (lambda x: np.unstack(x)[1] ** 2, m),
    "hfft": (lambda x: np.fft.hfft(x), v),
    "bincount": (lambda x: np.bincount([0, 1, 1, 2, 0], weights=x, minlength=4) ** 2, v),
    "np.c_": (lambda x, y: np.c_[x, y] ** 2, v, u),
    "np.r_": (lambda x, y: np.r_[x, 1.0, y] ** 2, v, u),
    "triu_indices": (lambda x: x[np.triu_indices(3)] ** 2, square),
    "diag_indices": (lambda x: x[np.diag_indices(3)] ** 2, square),
    "flat": (lambda x: x.flat[3] * sum(number**2 for number in x.flat), m),
    "ndenumerate": (lambda x: sum(number**2 * place[0] for place, number in np.ndenumerate(x)), m),
    "as_strided": (lambda x: np.lib.stride_tricks.as_strided(x, (3, 2), (8, 8)) ** 2, v),
    "vectorize": (lambda x: np.vectorize(lambda number: number**2)(x), v),
    "apply_along_axis": (lambda x: np.apply_along_axis(np.prod, 0, x), m),
    "polynomial": (lambda c: np.polynomial.polynomial.polyval(0.3, c) ** 2, v),
    "chebval": (lambda x: np.polynomial.chebyshev.chebval(x, [1.0, 2.0, 0.5]), v),
}


def _written(x: Any, key: Any, value: Any) -> Any:
    y = x.copy()
    y[key] = value
    return y


def _added(x: Any, places: Any, value: Any) -> Any:
    y = x * 1.0
    np.add.at(y, places, value)
    return y


def _changed(x: Any, change: Callable[[Any], None]) -> Any:
    y = x * 1.0
    change(y)
    return y * y


def _unpacked(x: Any) -> Any:
    first, *rest, last = x
    return first * last + sum(rest)


ROWS: dict[str, Row] = {**ELEMENTWISE, **REDUCTIONS, **INDEXING, **SHAPES, **LINEAR, **COMPLEX, **OTHERS}

# what no gradient passes through, and what the error says
WITHOUT: dict[str, Row] = {
    "nextafter": (lambda x: np.nextafter(x, 1.0), v),
    "spacing": (lambda x: np.spacing(x), v),
    "histogram": (lambda x: np.histogram(np.arange(5.0), weights=x)[0], v),
    "bincount": (lambda x: np.bincount([0, 1, 1, 2, 0], weights=x), v),
    "eig": (lambda x: np.linalg.eig(x)[0].real, square),
    "eigvals": (lambda x: np.linalg.eigvals(x).real, square),
    "roots": (lambda x: np.roots(x).real, v),
    "polyfit": (lambda x: np.polyfit(np.arange(5.0), x, 1), v),
    "frompyfunc": (lambda x: np.frompyfunc(lambda number: number * 2, 1, 1)(x), v),
    "arange": (lambda x: np.arange(0.0, x[0], 0.5), p),
    "unique": (lambda x: np.unique(x) ** 2, v),
    "tolist": (lambda x: np.array(x.tolist()), v),
    "item": (lambda x: x[0].item() * x, v),
    "bytes": (lambda x: np.frombuffer(x.tobytes()), v),
    "view": (lambda x: x.view(np.float32), v),
    "multiply.at": (lambda x: _changed(x, lambda y: np.multiply.at(y, [0, 0, 1], x[:3])), v),
    "float": (lambda x: x * float(x[0]), v),
}
