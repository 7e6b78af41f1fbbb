"""Functions x layouts of the operand x dtypes: values, signs of zeros, shape, dtype, type, strides, flags, errors of the results.

The expressions of one operand are a few compiled functions; one that differs is looked at alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

EXPRESSIONS = """
x.imag; x.real; np.imag(x); np.round(x); np.round(x, 1); np.round(x, -1); x.round(2); np.unwrap(x)
np.broadcast_arrays(x, np.zeros(3)); [a.flags.writeable for a in np.broadcast_arrays(x, np.zeros(3))]
np.broadcast_arrays(x, x[:1]); np.median(x, keepdims=True); np.percentile(x, 40, keepdims=True)
np.percentile(x, [40], keepdims=True); np.nanmedian(x, keepdims=True); np.var(x, dtype=complex); np.std(x, dtype=complex)
np.mean(x, dtype=complex); x.var(axis=-1); x.max(axis=-1); x.argmax(axis=0); np.ptp(x, axis=0); np.dot(x, 0.0); np.dot(x, -1.0)
np.dot(-0.0, x); np.inner(x, 0.0); np.einsum("...->...", x); np.einsum("...,->...", x, -1.0); np.einsum("i...->...", x)
np.einsum("...,...->...", x, x * 0); np.einsum("...,->...", x, 1j); np.einsum("...,...->...", x.astype(complex), x)
np.einsum("...,...->...", x, x.astype("c16", "C")); np.einsum("...i,->i...", np.atleast_1d(x), 2.5)
np.isreal(x); np.iscomplex(x); np.real_if_close(x); np.nan_to_num(x); np.clip(x, 0, 1)
np.clip(x, x * 0, 1); np.maximum(x, 0); np.sort(x); np.cumsum(x, axis=0); np.diff(x); np.angle(x); np.sinc(x); np.fix(x)
np.copysign(x.real, -1); np.where(x.real > 0, x, 0); x.astype(np.float32); x.astype(complex); x.copy(); x.copy("K")
np.float32(x); np.complex128(x); np.ascontiguousarray(x); np.asfortranarray(x); np.zeros_like(x); np.full_like(x, 3)
np.ones_like(x, dtype=int); np.array(x); np.array(x, order="K"); np.array(x, dtype=complex); np.asarray(x); np.flip(x)
np.rot90(x); np.atleast_3d(x); np.expand_dims(x, 0); np.squeeze(x); x.conj(); np.conj(x); np.abs(x); -x; x + x; x * 2; x + x.T
np.outer(x, x); np.tile(x, 2); np.repeat(x, 2); np.concatenate([x, x]); np.stack([x, x]); np.take(x, [0, 1]); np.pad(x, 1)
np.roll(x, 1); np.gradient(x); np.interp(x.real, [0.0, 1], [0.0, 1]); np.logical_not(x); np.isfinite(x); np.sign(x)
np.ediff1d(x); np.nancumsum(x); np.trapezoid(x); np.kron(x, x); np.mod(x.real, 2); np.modf(x.real); np.frexp(x.real)
np.divmod(x.real, 2); np.select([x.real > 0], [x], 5); np.triu(x); np.apply_along_axis(np.sum, 0, x); np.moveaxis(x, 0, -1)
np.ravel(x); np.ravel(x, order="K"); x.flatten("F"); x.reshape(-1); np.diag(x); np.argsort(x, axis=0)
np.searchsorted([0.0, 1], x.real); np.count_nonzero(x, axis=0); np.average(x, axis=-1); x.mean(keepdims=True)
np.nanmax(x, axis=0); np.vander(np.ravel(x).real); x.sum(axis=0); np.prod(x, axis=-1); np.meshgrid(x, x)
"""
TABLE = [e.strip() for e in EXPRESSIONS.replace("\n", ";").split(";") if e.strip()]
EMPTY = """
np.zeros((0, 0)).max(axis=0); np.zeros((0, 3)).max(axis=1); np.zeros((0, 0)).min(axis=()); np.fmax.reduce(np.zeros((0, 0)))
np.nanmax(np.zeros((0, 0)), axis=1); np.ptp(np.zeros((0, 0)), axis=0); np.zeros((0, 0)).argmin(axis=0)
np.zeros((0, 0), bool).any(axis=0); np.zeros((0, 0)).max(axis=0, initial=1); np.subtract.reduce(np.zeros((0, 0)))
np.hypot.reduce(np.zeros((0, 0))); np.zeros((0, 0)).max(); np.maximum.accumulate(np.zeros((0, 0)))
np.maximum.reduceat(np.zeros((3, 0)), [0]); np.zeros((0, 0), int).max(axis=0); np.zeros((0, 0)).prod(axis=0)
np.logaddexp.reduce(np.zeros((0, 0))); np.zeros((2, 0, 0)).min(axis=(1, 2)); np.divide.reduce(np.zeros((0, 2)))
"""
BASE = np.arange(24.0).reshape(4, 6) - 7.5


def unaligned(x: np.ndarray) -> np.ndarray:
    room = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    room[...] = x
    return room


def read_only(x: np.ndarray) -> np.ndarray:
    x = x.copy()
    x.flags.writeable = False
    return x


LAYOUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "C": lambda x: x[:2, :3].copy(),
    "F": lambda x: np.asfortranarray(x[:2, :3]),
    "broadcast rows": lambda x: np.broadcast_to(x[:1, :3].copy(), (2, 3)),
    "0-d": lambda x: x[2, 3].copy(),
    "permuted": lambda x: x.reshape(2, 3, 4).transpose(2, 0, 1),
    "rows reversed": lambda x: x[:2, :3].copy()[::-1],
    "columns reversed": lambda x: x[:2, :3].copy()[:, ::-1],
    "strided": lambda x: x[::2, ::2],
    "broadcast columns": lambda x: np.broadcast_to(x[:2, :1].copy(), (2, 3)),
    "transposed": lambda x: x[:3, :2].copy().T,
    "empty": lambda x: x[:2, :0].copy(),
    "1-d": lambda x: x[0, :4].copy(),
    "1-d reversed": lambda x: x[0, :4].copy()[::-1],
    "3-d Fortran": lambda x: np.asfortranarray(x.reshape(2, 3, 4)),
    "one row": lambda x: x[:1, :3].copy(),
    "unaligned": lambda x: unaligned(x[:2, :3]),
    "read-only": lambda x: read_only(x[:2, :3]),
}
OFTEN = [("F", "float64"), ("broadcast rows", "float64"), ("permuted", "float64"), ("F", "complex128"), ("0-d", "float64")]
OFTEN += [("broadcast rows", "float32")]
DTYPES = ("bool", "int8", "int64", "uint8", "uint64", "float16", "float32", "float64", "complex64", "complex128")
AT_ONCE = 10  # several breaks end a capture, and what follows is NumPy's


def operand(layout: str, dtype: str) -> np.ndarray:
    values = BASE * (1 - 2j) if dtype.startswith("complex") else abs(BASE) if dtype.startswith("u") else BASE
    return np.asarray(LAYOUTS[layout](values.astype(dtype)))


def seen(x: Any) -> Any:
    if isinstance(x, (list, tuple)):
        return type(x), tuple(map(seen, x))
    if isinstance(x, np.ndarray):
        strides = tuple(s for s, d in zip(x.strides, x.shape) if d > 1) if x.size else ()
        flags = x.flags.writeable, x.flags.c_contiguous, x.flags.f_contiguous
        return np.ndarray, x.dtype, x.dtype.char, x.shape, strides, flags, values(x)
    return (type(x), x.dtype, values(x)) if isinstance(x, np.generic) else (type(x), repr(x))


def values(x: Any) -> tuple:
    """Inexact ones without their last digits, of which other tests take care, but with the signs of zeros."""
    if x.dtype.kind not in "fc":
        return (x.tolist(),)
    parts = [np.asarray(x.real), np.asarray(x.imag)]
    digits = 3 if x.dtype.itemsize // len(parts) == 2 else 5 if x.dtype.itemsize < 8 else 11
    return tuple([(f"{v:.{digits}g}", bool(np.signbit(v)) and not np.isnan(v)) for v in p.ravel().tolist()] for p in parts)


def outcome(f: Callable, *args: Any) -> Any:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            return seen(f(*args))
        except Exception as error:  # whatever NumPy raises
            return type(error), str(error)


def function(expressions: Sequence[str]) -> Callable:
    return eval(f"lambda x: [{', '.join(expressions)}]", {"np": np})


def differ(expressions: Sequence[str], x: np.ndarray) -> tuple | None:
    want, compiled = outcome(function(expressions), x), dg.compile(function(expressions), backend="reference")
    with dg.config.override(strict=True):
        got = outcome(compiled, x)
    return None if got == want else (got, want)


def differences(expressions: Sequence[str], x: np.ndarray) -> dict[str, Any]:
    raising = [e for e in expressions if issubclass(outcome(function([e]), x)[0], Exception)]
    groups = [[e] for e in raising]
    rest = [e for e in expressions if e not in raising]
    groups += [rest[k : k + AT_ONCE] for k in range(0, len(rest), AT_ONCE)]
    suspects = [e for group in groups if differ(group, x) for e in group]
    return {e: found for e in suspects if (found := differ([e], x))}


@pytest.mark.parametrize(("layout", "dtype"), OFTEN)
def test_results_lie_in_memory_as_numpys(layout: str, dtype: str) -> None:
    assert differences(TABLE, operand(layout, dtype)) == {}


@pytest.mark.parametrize("expression", [e.strip() for e in EMPTY.replace("\n", ";").split(";") if e.strip()])
def test_reductions_over_empty_axes(expression: str) -> None:
    assert differ([expression + " + x"], np.array(1)) is None


@pytest.mark.fuzz
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_layouts_and_dtypes(layout: str, dtype: str) -> None:
    assert differences(TABLE, operand(layout, dtype)) == {}


def test_integers_beyond_64_bits_are_objects_to_ufuncs_of_one_operand() -> None:
    names = sorted(n for n, f in vars(np).items() if isinstance(f, np.ufunc) and f.nin == 1)
    for value in (2**64, -(2**63) - 1, 2**63, -(2**63)):
        wrong = {}
        for name in names:
            want = outcome(lambda x: getattr(np, name)(value), None)
            expression = eval(f"lambda x: np.{name}({value})", {"np": np})
            got = outcome(dg.compile(expression, backend="reference"), None)
            if got != want:
                wrong[name] = got, want
        assert wrong == {}
