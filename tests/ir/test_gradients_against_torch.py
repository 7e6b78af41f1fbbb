"""Gradients of the op table's rows and of external calls against PyTorch's, where it is installed: of developers only."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph.ir.optable  # noqa: F401  (fills OPS)
from dynagraph.ir.ops import OPS
from dynagraph.ir.terms import Term
from tests.ir.gradients import Program, gradients_of
from tests.ir.test_gradients import DIFFERENTIABLE, chosen, is_smooth, program_of
from tests.ir.test_gradients_of_calls import call, normal, of, of_hermitian
from tests.ops.cases import Case, cases

torch = pytest.importorskip("torch")
Torch = Callable[..., Any]


def part_of(x: Any, starts: Any, steps: Any, shape: Any) -> tuple[Any, ...]:
    """An index that takes what the op `slice` does: PyTorch has no negative steps."""
    every = [torch.arange(n) * step + start for start, step, n in zip(starts, steps, shape)]
    return torch.meshgrid(*every, indexing="ij")


def places_of(x: Any, places: list[Any], axes: tuple[int, ...], at: int) -> tuple[Any, list[int], Any]:
    """x with the indexed axes in front, and how to move the places' dimensions of the result to where they belong."""
    others = [k for k in range(x.ndim) if k not in axes]
    n = places[0].ndim
    back = [*range(n, n + at), *range(n), *range(n + at, n + len(others))]
    return x.permute([*axes, *others]), back, tuple(places)


def gather(x: Any, *places: Any, axes: tuple[int, ...], at: int) -> Any:
    moved, back, index = places_of(x, list(places), axes, at)
    return moved[index].permute(back)


def scatter(x: Any, values: Any, *places: Any, axes: tuple[int, ...], at: int, combine: str) -> Any:
    moved, back, index = places_of(x, list(places), axes, at)
    values = values.permute([back.index(k) for k in range(len(back))])
    values = -values if combine == "subtract" else values
    result = moved.clone().index_put(index, values, accumulate=combine != "")
    order = [*axes, *(k for k in range(x.ndim) if k not in axes)]
    return result.permute([order.index(k) for k in range(x.ndim)])


def update_slice(x: Any, part: Any, starts: Any, steps: Any) -> Any:
    return x.clone().index_put(part_of(x, starts, steps, part.shape), part) if x.ndim else part.clone()


def windows(x: Any, sizes: Any, axes: Any) -> Any:
    for size, axis in zip(sizes, axes):
        x = x.unfold(axis, size, 1)
    return x


def over(function: Torch) -> Torch:
    """A reduction; PyTorch reduces all axes where none is named."""
    return lambda x, axis, keepdims, **more: function(x, dim=axis, keepdim=keepdims, **more) if axis else x.clone()


def sum_where(x: Any, mask: Any, start: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    return over(torch.sum)(torch.where(mask, x, torch.zeros((), dtype=x.dtype)), axis, keepdims) + start


def prod(x: Any, axis: tuple[int, ...], keepdims: bool) -> Any:
    for k in reversed(axis):
        x = x.prod(dim=k, keepdim=keepdims)
    return x


def pad(x: Any, widths: Any, value: Any = 0) -> Any:
    return torch.nn.functional.pad(x, [w for pair in reversed(widths) for w in pair], value=value) if widths else x.clone()


def conv(x: Any, w: Any, *, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    function = getattr(torch.nn.functional, f"conv{len(stride)}d")
    return function(pad(x, padding), w, None, stride, 0, dilation, groups)


def conv_input(g: Any, w: Any, *, shape: Any, **about: Any) -> Any:
    x = torch.zeros(g.shape[0], w.shape[1] * about["groups"], *shape, dtype=g.dtype, requires_grad=True)
    return torch.autograd.grad(conv(x, w, **about), x, g, create_graph=True)[0]


def conv_weight(x: Any, g: Any, *, kernel: Any, **about: Any) -> Any:
    w = torch.zeros(g.shape[1], x.shape[1] // about["groups"], *kernel, dtype=g.dtype, requires_grad=True)
    return torch.autograd.grad(conv(x, w, **about), w, g, create_graph=True)[0]


def boxes(x: Any, n: int) -> Any:
    """As (boxes, 1, *sizes)."""
    return x.reshape(-1, 1, *x.shape[x.ndim - n :])


def max_pool(x: Any, *, kernel: Any, stride: Any, padding: Any, dilation: Any, places: Any, result: int) -> Any:
    """With a border of the smallest numbers, for windows that reach beyond the array."""
    n = len(kernel)
    reaches = [(c - 1) * s + d * (k - 1) + 1 for c, s, d, k in zip(places, stride, dilation, kernel)]
    widths = [(p, max(reach - size - p, 0)) for p, reach, size in zip(padding, reaches, x.shape[x.ndim - n :])]
    found = getattr(torch.nn.functional, f"max_pool{n}d")(pad(boxes(x, n), widths, -float("inf")), kernel, stride, 0, dilation)
    return found.reshape(*x.shape[: x.ndim - n], *places)


def max_pool_back(g: Any, places: Any, *, sizes: Any) -> Any:
    n = len(sizes)
    flat, at = (a.flatten(g.ndim - n) for a in (g, places))
    stands = at >= 0
    made = torch.zeros(*flat.shape[:-1], math.prod(sizes), dtype=g.dtype).scatter_add(-1, at.clamp(min=0), flat * stands)
    return made.reshape(*g.shape[: g.ndim - n], *sizes)


def adaptive_max_pool(x: Any, *, counts: Any, result: int) -> Any:
    n = len(counts)
    found = getattr(torch.nn.functional, f"adaptive_max_pool{n}d")(boxes(x, n), counts)
    return found.reshape(*x.shape[: x.ndim - n], *counts)


def adaptive_mean(x: Any, *, axis: int, count: int) -> Any:
    if not x.numel():
        return x.sum(axis, keepdim=True).expand(*x.shape[:axis], count, *x.shape[axis + 1 :])
    return torch.nn.functional.adaptive_avg_pool1d(x.movedim(axis, -1).reshape(1, -1, x.shape[axis]), count).reshape(
        *x.shape[:axis], *x.shape[axis + 1 :], count
    ).movedim(-1, axis)


def adaptive_mean_back(g: Any, *, axis: int, size: int) -> Any:
    x = torch.zeros(*g.shape[:axis], size, *g.shape[axis + 1 :], dtype=g.dtype, requires_grad=True)
    return torch.autograd.grad(adaptive_mean(x, axis=axis, count=g.shape[axis]), x, g, create_graph=True)[0]


def avg_pool(x: Any, *, kernel: Any, stride: Any, padding: Any, places: Any, whole: bool, divisor: int | None) -> Any:
    """Sums of windows by a convolution, divided by those of ones."""
    n = len(kernel)
    reaches = [(c - 1) * s + k for c, s, k in zip(places, stride, kernel)]
    sizes = x.shape[x.ndim - n :]
    widths = [(p, max(reach - size - p, 0)) for p, reach, size in zip(padding, reaches, sizes)]
    filters = torch.ones(1, 1, *kernel, dtype=x.dtype)
    sums = getattr(torch.nn.functional, f"conv{n}d")
    ones = torch.ones(1, 1, *(size + 2 * p * whole for size, p in zip(sizes, padding)), dtype=x.dtype)
    around = [(0 if whole else low, max(high - p * whole, 0)) for (low, high), p in zip(widths, padding)]
    found = sums(pad(boxes(x, n), widths, 0.0), filters, stride=stride)
    counts = sums(pad(ones, around, 0.0), filters, stride=stride)
    counts = counts[(..., *(slice(0, c) for c in places))]
    return (found / (divisor or counts)).reshape(*x.shape[: x.ndim - n], *places)


def avg_pool_back(g: Any, *, sizes: Any, **about: Any) -> Any:
    n = len(sizes)
    x = torch.zeros(*g.shape[: g.ndim - n], *sizes, dtype=g.dtype, requires_grad=True)
    return torch.autograd.grad(avg_pool(x, places=g.shape[g.ndim - n :], **about), x, g, create_graph=True)[0]


def along(function: Torch) -> Torch:
    return lambda x, axis: function(x, dim=axis)


ROWS: dict[str, Torch] = {
    "add": torch.add, "subtract": torch.sub, "multiply": torch.mul, "divide": torch.div, "remainder": torch.remainder,
    "fmod": torch.fmod, "power": torch.pow, "negative": torch.neg, "absolute": torch.abs, "sign": torch.sgn,
    "reciprocal": torch.reciprocal, "square": torch.square, "maximum": torch.maximum, "minimum": torch.minimum,
    "fmax": torch.fmax, "fmin": torch.fmin, "copysign": torch.copysign, "hypot": torch.hypot, "arctan2": torch.atan2,
    "logaddexp": torch.logaddexp, "logaddexp2": torch.logaddexp2, "ldexp": lambda x, exponent: x * 2.0**exponent,
    "frexp_mantissa": lambda x: torch.frexp(x).mantissa, "conjugate": torch.conj_physical, "real": torch.real, "imag": torch.imag,
    "complex": lambda x, y: torch.complex(*torch.broadcast_tensors(x, y)), "sqrt": torch.sqrt, "exp": torch.exp,
    "cbrt": lambda x: torch.sgn(x) * torch.abs(x) ** (1 / 3), "exp2": torch.exp2, "expm1": torch.expm1, "log": torch.log,
    "log2": torch.log2, "log10": torch.log10, "log1p": torch.log1p, "sin": torch.sin, "cos": torch.cos, "tan": torch.tan,
    "arcsin": torch.asin, "arccos": torch.acos, "arctan": torch.atan, "sinh": torch.sinh, "cosh": torch.cosh, "tanh": torch.tanh,
    "arcsinh": torch.asinh, "arccosh": torch.acosh, "arctanh": torch.atanh, "erf": torch.erf, "floor": torch.floor,
    "ceil": torch.ceil, "trunc": torch.trunc, "rint": torch.round, "where": torch.where,
    "cast": lambda x, dtype: x.to(getattr(torch, dtype.name)), "sum": over(torch.sum), "sum_where": sum_where, "prod": prod,
    "max": over(torch.amax),
    "min": over(torch.amin),
    "mean": over(torch.mean), "cumsum": along(torch.cumsum), "cumprod": along(torch.cumprod),
    "var": lambda x, axis, keepdims, ddof: torch.var(x, dim=axis, keepdim=keepdims, correction=ddof),
    "std": lambda x, axis, keepdims, ddof: torch.std(x, dim=axis, keepdim=keepdims, correction=ddof),
    "add_accumulate": along(torch.cumsum), "multiply_accumulate": along(torch.cumprod),
    "logaddexp_accumulate": along(torch.logcumsumexp), "maximum_accumulate": lambda x, axis: torch.cummax(x, dim=axis).values,
    "minimum_accumulate": lambda x, axis: torch.cummin(x, dim=axis).values, "gather": gather, "scatter": scatter,
    "conv": conv, "conv_input": conv_input, "conv_weight": conv_weight, "max_pool": max_pool, "max_pool_back": max_pool_back,
    "avg_pool": avg_pool, "avg_pool_back": avg_pool_back,
    "adaptive_max_pool": adaptive_max_pool, "adaptive_mean": adaptive_mean, "adaptive_mean_back": adaptive_mean_back,
    "matmul": torch.matmul, "own_matmul": torch.matmul,
    "reshape": lambda x, shape: x.reshape(shape), "transpose": lambda x, axes: x.permute(axes),
    "broadcast_to": lambda x, shape: x.broadcast_to(shape), "windows": windows, "diagonal": lambda x: x.diagonal(dim1=-2, dim2=-1),
    "slice": lambda x, starts, steps, shape: x[part_of(x, starts, steps, shape)] if x.ndim else x.clone(),
    "update_slice": update_slice, "concatenate": lambda *xs, axis: torch.cat(xs, dim=axis), "pad": pad,
    "roll": lambda x, shift, axis: torch.roll(x, shift, axis), "tile": lambda x, reps: x.repeat(reps),
    "repeat": lambda x, repeats, axis: x.repeat_interleave(repeats, dim=axis),
    "copy": torch.clone, "variable": torch.clone, "optimization_barrier": torch.clone,
}  # fmt: skip
# what PyTorch has no gradient of, or not at all
WITHOUT = {"floor_divide", "heaviside", *(f"{name}_accumulate" for name in ("subtract", "fmax", "fmin", "hypot", "logaddexp2"))}
REALS_ONLY = {
    "maximum", "minimum", "fmax", "fmin", "max", "min", "maximum_accumulate", "minimum_accumulate", "rint", "frexp_mantissa",
}  # fmt: skip


def theirs(program: Torch, operands: list[np.ndarray], seed: np.ndarray) -> list[np.ndarray]:
    """Gradients by the inexact operands, zeros where there is none."""
    tensors = [torch.tensor(x) for x in operands]
    by = [t.requires_grad_() for t in tensors if t.is_floating_point() or t.is_complex()]
    value = program(*tensors)
    assert tuple(value.shape) == seed.shape
    if not value.requires_grad:
        return [np.zeros(t.shape, t.detach().numpy().dtype) for t in by]
    found = torch.autograd.grad(value, by, torch.tensor(seed), allow_unused=True, materialize_grads=True)
    return [g.detach().numpy(force=True) for g in found]


def value_of(case: Case) -> np.ndarray:
    bound = case.op.bind_attrs(case.attrs)
    return np.asarray(case.op.eager(np, *case.operands, **bound))


def agree(ours: list[np.ndarray], want: list[np.ndarray], who: str) -> None:
    for got, other in zip(ours, want, strict=True):
        assert got.dtype == other.dtype, who
        np.testing.assert_allclose(got, other, rtol=1e-6, atol=1e-9 * (1 + np.abs(other).max(initial=0)), err_msg=who)


def stores_otherwise(case: Case) -> bool:
    """Twice at one place, where PyTorch gives the gradient to both; or the larger one."""
    if case.op.name != "scatter" or case.attrs["combine"] in ("add", "subtract"):
        return False
    if case.attrs["combine"]:
        return True
    x, _, *places = case.operands
    stored = np.stack([p.ravel() % max(x.shape[a], 1) for p, a in zip(places, case.attrs["axes"])])
    return np.unique(stored, axis=1).shape != stored.shape


@pytest.mark.filterwarnings("ignore:.*degrees of freedom is <= 0")  # of no elements at all
@pytest.mark.parametrize("op", [op for op in DIFFERENTIABLE if op.name not in WITHOUT], ids=lambda op: op.name)
def test_rows(op: Any) -> None:
    for case in chosen(op, 80):
        if stores_otherwise(case) or (op.name in REALS_ONLY and any(x.dtype.kind == "c" for x in case.operands)):
            continue
        value = value_of(case)
        seed = normal(*value.shape, kind=value.dtype.kind, seed=5)
        want = theirs(lambda *xs, case=case: ROWS[case.op.name](*xs, **case.attrs), case.operands, seed)
        agree(gradients_of(program_of(case), *case.operands, seed=seed), want, str(case))


def test_every_row_is_compared() -> None:
    assert {op.name for op in DIFFERENTIABLE} == ROWS.keys() | WITHOUT and not ROWS.keys() & WITHOUT


@pytest.mark.parametrize("name", [
    "absolute", "sign", "maximum", "minimum", "sqrt", "power", "prod", "cumprod", "max", "min", "reciprocal", "multiply", "tanh",
    "exp", "log",
])  # fmt: skip
def test_special_operands(name: str) -> None:
    """Zeros, ties and ones, but for infinities and NaN: the same subgradients."""
    op = OPS[name]
    for case in cases(op):
        plain = all(x.dtype == np.float64 and np.isfinite(x).all() and (abs(x) < 1e100).all() for x in case.operands)
        if plain and not is_smooth(case):
            value = value_of(case)
            if not np.isfinite(value).all():
                continue
            seed = normal(*value.shape, seed=5)
            want = theirs(lambda *xs, case=case: ROWS[name](*xs, **case.attrs), case.operands, seed)
            agree(gradients_of(program_of(case), *case.operands, seed=seed), want, str(case))


# -- external calls: ours, PyTorch's, shapes ---------------------------------------------------------------------------


def squares(program: Program) -> Program:
    """Of absolute values: without signs and phases, which each library chooses for itself."""

    def squared(*terms: Term) -> Term:
        return program(*terms).call("absolute").call("square")

    return squared


def torch_hermitian(x: Any) -> Any:
    return x @ x.mH + torch.eye(x.shape[-1], dtype=x.dtype)


def square(x: Any) -> Any:
    return x.abs() ** 2


linalg, fft = torch.linalg, torch.fft
MATRICES: dict[str, tuple[Program, Torch, tuple[tuple[int, ...], ...]]] = {
    "solve": (of("linalg.solve"), linalg.solve, ((2, 3, 3), (2, 3, 2))),
    "solve-vector": (of("linalg.solve"), linalg.solve, ((3, 3), (3,))),
    "inv": (of("linalg.inv"), linalg.inv, ((2, 3, 3),)),
    "det": (of("linalg.det"), linalg.det, ((2, 3, 3),)),
    "slogdet-sign": (of("linalg.slogdet", result=0), lambda a: linalg.slogdet(a)[0], ((2, 3, 3),)),
    "slogdet": (of("linalg.slogdet", result=1), lambda a: linalg.slogdet(a)[1], ((2, 3, 3),)),
    "cholesky": (of_hermitian("linalg.cholesky"), lambda a: linalg.cholesky(torch_hermitian(a)), ((2, 3, 3),)),
    "cholesky-upper": (
        of_hermitian("linalg.cholesky", upper=True), lambda a: linalg.cholesky(torch_hermitian(a), upper=True), ((2, 3, 3),)
    ),
    "pinv": (of("linalg.pinv"), linalg.pinv, ((2, 4, 3),)),
    "pinv-wide": (of("linalg.pinv"), linalg.pinv, ((3, 4),)),
    "lstsq": (of("linalg.lstsq", result=0), lambda a, b: linalg.lstsq(a, b).solution, ((4, 3), (4, 2))),
    "qr-q": (of("linalg.qr", result=0), lambda a: linalg.qr(a)[0], ((2, 4, 3),)),
    "qr-r": (of("linalg.qr", result=1), lambda a: linalg.qr(a)[1], ((2, 4, 3),)),
    "qr-wide-q": (of("linalg.qr", result=0), lambda a: linalg.qr(a)[0], ((2, 3, 5),)),
    "qr-wide-r": (of("linalg.qr", result=1), lambda a: linalg.qr(a)[1], ((2, 3, 5),)),
    "svd-u": (squares(of("linalg.svd", False, result=0)), lambda a: square(linalg.svd(a, False)[0]), ((2, 4, 3),)),
    "svd-s": (of("linalg.svd", False, result=1), lambda a: linalg.svd(a, False)[1], ((2, 4, 3),)),
    "svd-v": (squares(of("linalg.svd", False, result=2)), lambda a: square(linalg.svd(a, False)[2]), ((2, 4, 3),)),
    "svd-wide-u": (squares(of("linalg.svd", False, result=0)), lambda a: square(linalg.svd(a, False)[0]), ((3, 4),)),
    "svd-wide-v": (squares(of("linalg.svd", False, result=2)), lambda a: square(linalg.svd(a, False)[2]), ((3, 4),)),
    "svdvals": (of("linalg.svdvals"), linalg.svdvals, ((3, 4),)),
    "norm-2": (of("linalg.norm", 2), lambda a: linalg.matrix_norm(a, 2), ((3, 4),)),
    "norm-nuclear": (of("linalg.norm", "nuc"), lambda a: linalg.matrix_norm(a, "nuc"), ((3, 4),)),
    "cond": (of("linalg.cond"), linalg.cond, ((2, 3, 3),)),
    "eigh-w": (of_hermitian("linalg.eigh", result=0), lambda a: linalg.eigh(torch_hermitian(a))[0], ((2, 3, 3),)),
    "eigh-v": (squares(of_hermitian("linalg.eigh", result=1)), lambda a: square(linalg.eigh(torch_hermitian(a))[1]), ((2, 3, 3),)),
    "eigvalsh": (of_hermitian("linalg.eigvalsh"), lambda a: linalg.eigvalsh(torch_hermitian(a)), ((2, 3, 3),)),
}
COMPLEX: dict[str, tuple[Program, Torch, tuple[tuple[int, ...], ...]]] = {
    "eigvals": (of("linalg.eigvals"), linalg.eigvals, ((2, 3, 3),)),
    "eig-w": (of("linalg.eig", result=0), lambda a: linalg.eig(a)[0], ((2, 3, 3),)),
    "eig-v": (squares(of("linalg.eig", result=1)), lambda a: square(linalg.eig(a)[1]), ((2, 3, 3),)),
}


def compare(program: Program, other: Torch, operands: list[np.ndarray], who: str) -> None:
    with torch.no_grad():
        value = other(*map(torch.tensor, operands))
    seed = normal(*value.shape, kind="c" if value.is_complex() else "f", seed=7)
    agree(gradients_of(program, *operands, seed=seed), theirs(other, operands, seed), who)


@pytest.mark.parametrize("name, kind", [(n, k) for n in MATRICES for k in "fc"] + [(n, "c") for n in COMPLEX])
def test_linear_algebra(name: str, kind: str) -> None:
    program, other, shapes = (MATRICES | COMPLEX)[name]
    compare(program, other, [normal(*s, kind=kind, seed=k + 2) for k, s in enumerate(shapes)], name)


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
def test_transforms(name: str) -> None:
    x = normal(4, 6, kind="f" if name in ("rfft", "ihfft") else "c")
    for n, axis, norm in [(None, -1, None), (5, -1, "ortho"), (4, 0, "forward"), (9, 1, "backward")]:
        other = getattr(fft, name)
        compare(of(f"fft.{name}", n, axis, norm), lambda t: other(t, n, axis, norm), [x], f"{name} {n} {axis} {norm}")


@pytest.mark.parametrize("name", ["fft2", "ifft2", "fftn", "ifftn", "rfft2", "rfftn", "irfft2", "irfftn"])
def test_transforms_of_several_axes(name: str) -> None:
    x = normal(2, 4, 6, kind="f" if name.startswith("r") else "c")
    for s, axes, norm in [(None, (1, 2), None), ((5, 7), (2, 1), "ortho"), ((3, 4), (0, 2), "forward")]:
        other = getattr(fft, name)
        compare(of(f"fft.{name}", s, axes, norm), lambda t: other(t, s, axes, norm), [x], f"{name} {s} {axes} {norm}")


X, Q = normal(4, 6), np.array([0.21, 0.77, 0.43])
OTHERS: dict[str, tuple[Program, Torch, list[np.ndarray]]] = {
    "sort": (of("sort", 0), lambda x: torch.sort(x, dim=0).values, [X]),
    "median": (of("median", axis=1), lambda x: torch.quantile(x, 0.5, dim=1), [X]),
    "quantile": (of("quantile", 0.3), lambda x: torch.quantile(x, 0.3), [X]),
    "quantiles": (call("quantile", X, Q, 0), lambda x, q: torch.quantile(x, q, dim=0), [X, Q]),
    "convolve": (
        of("convolve"),
        lambda a, v: torch.nn.functional.conv1d(a[None, None], v.flip(0)[None, None], padding=len(v) - 1)[0, 0],
        [normal(7), normal(4)],
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_calls(name: str) -> None:
    compare(*OTHERS[name], name)


def test_of_norms_of_zeros() -> None:
    """Zero, as PyTorch's."""
    x = np.zeros((2, 3))
    compare(lambda t: (t * t).sum(1).call("sqrt"), lambda t: linalg.vector_norm(t, dim=1), [x], "norm")
    compare(lambda t: t.call("std", axis=(1,), keepdims=False, ddof=0), lambda t: torch.std(t, dim=1, correction=0), [x], "std")
    assert math.isinf(gradients_of(lambda t: t.call("sqrt"), np.zeros(1))[0][0])
