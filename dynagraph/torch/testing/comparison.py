"""`assert_close`: tensors, numbers and containers of them, equal within what their dtypes hold."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dynagraph.torch.core import dtypes
from dynagraph.torch.core.dtypes import dtype
from dynagraph.torch.core.layouts import strided
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import cast
from dynagraph.torch.functions.creation import as_tensor

# dtype -> rtol, atol
_TOLERANCES = {
    dtypes.float16: (1e-3, 1e-5), dtypes.bfloat16: (1.6e-2, 1e-5), dtypes.float32: (1.3e-6, 1e-5), dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5), dtypes.complex128: (1e-7, 1e-7),
}  # fmt: skip
_NUMBERS = (int, float, complex, np.number)
_BOOLS = (bool, np.bool_)
Path = tuple[Any, ...]
Message = str | Callable[[str], str] | None


@dataclass(frozen=True)
class _Options:
    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    check_device: bool
    check_dtype: bool
    check_layout: bool
    check_stride: bool

    def tolerances(self, *kinds: dtype) -> tuple[float, float]:
        """rtol and atol: as they were given, or the larger ones of the dtypes'."""
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        known = [_TOLERANCES.get(kind, (0.0, 0.0)) for kind in kinds]
        return max(k[0] for k in known), max(k[1] for k in known)


def assert_close(
    actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None, atol: float | None = None,
    equal_nan: bool = False, check_device: bool = True, check_dtype: bool = True, check_layout: bool = True,
    check_stride: bool = False, msg: Message = None,
) -> None:  # fmt: skip
    """AssertionError where values differ by more than ``atol + rtol * abs(expected)``, or in shape, dtype, device or layout.

    Compares tensors, arrays, numbers, None, and sequences and mappings of these.  The tolerances are both given, or both left to
    the dtype: 1.3e-6 and 1e-5 of float32, 1e-7 and 1e-7 of float64.

    >>> from dynagraph import torch
    >>> torch.testing.assert_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5]))
    Traceback (most recent call last):
        ...
    AssertionError: Tensor-likes are not close!
    <BLANKLINE>
    Mismatched elements: 1 / 2 (50.0%)
    Greatest absolute difference: 0.5 at index (1,) (up to 1e-05 allowed)
    Greatest relative difference: 0.20000000298023224 at index (1,) (up to 1.3e-06 allowed)
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    options = _Options(allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride)
    pairs = list(_pairs(actual, expected, options, (), msg))
    for path, compare in pairs:
        told = compare()
        if told is not None:
            raise _failure(told, path, msg)


def assert_allclose(actual: Any, expected: Any, rtol: Any = None, atol: Any = None, equal_nan: bool = True, msg: str = "") -> None:
    """The older name of `assert_close`; dtypes and devices may differ."""
    warnings.warn("`torch.testing.assert_allclose()` is deprecated; use `torch.testing.assert_close()`", FutureWarning, 2)
    actual, expected = as_tensor(actual), as_tensor(expected)
    if rtol is None and atol is None:
        rtol, atol = _Options(True, None, None, True, False, False, False, False).tolerances(actual.dtype, expected.dtype)
    assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=equal_nan, check_device=True, check_dtype=False, check_stride=False,
        msg=msg or None,
    )  # fmt: skip


def _failure(told: str, path: Path, msg: Message) -> AssertionError:
    if isinstance(msg, str):
        return AssertionError(msg)
    if path:
        told += f"\n\nThe failure occurred for item {''.join(str([item]) for item in path)}"
    return AssertionError(msg(told) if callable(msg) else told)


def _pairs(
    actual: Any, expected: Any, options: _Options, path: Path, msg: Message
) -> Iterator[tuple[Path, Callable[[], str | None]]]:
    """What is to be compared, each with where it stands and a function that says how it differs."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            lines = ["The keys of the mappings do not match:"]
            missing, additional = sorted(expected.keys() - actual.keys()), sorted(actual.keys() - expected.keys())
            lines += [f"Missing keys in the actual mapping: {missing}"] * bool(missing)
            lines += [f"Additional keys in the actual mapping: {additional}"] * bool(additional)
            raise _failure("\n".join(lines), path, msg)
        for key in expected:
            yield from _pairs(actual[key], expected[key], options, (*path, key), msg)
    elif _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            raise _failure(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", path, msg)
        for k, (a, e) in enumerate(zip(actual, expected)):
            yield from _pairs(a, e, options, (*path, k), msg)
    else:
        yield path, _comparison(actual, expected, options)


def _is_sequence(x: Any) -> bool:
    return isinstance(x, Sequence) and not isinstance(x, (str, bytes))


def _comparison(actual: Any, expected: Any, options: _Options) -> Callable[[], str | None]:
    if actual is None or expected is None:
        return lambda: None if actual is expected else f"None mismatch: {actual} is not {expected}"
    if isinstance(actual, _BOOLS) and isinstance(expected, _BOOLS):
        return lambda: None if bool(actual) is bool(expected) else f"Booleans mismatch: {bool(actual)} is not {bool(expected)}"
    if isinstance(actual, _NUMBERS) and isinstance(expected, _NUMBERS):
        return lambda: _compare_numbers(actual, expected, options)
    related = isinstance(actual, type(expected)) or isinstance(expected, type(actual))
    if related and (options.allow_subclasses or type(actual) is type(expected)) and not isinstance(actual, (str, bytes)):
        try:
            tensors = as_tensor(actual), as_tensor(expected)
        except Exception:
            related = False
        else:
            return lambda: _compare_tensors(*tensors, options)
    raise TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.")


def _python_number(x: Any) -> Any:
    return x.item() if isinstance(x, np.number) else x


def _compare_numbers(actual: Any, expected: Any, options: _Options) -> str | None:
    actual, expected = _python_number(actual), _python_number(expected)
    if options.check_dtype and type(actual) is not type(expected):
        return f"The (d)types do not match: {type(actual)} != {type(expected)}."
    rtol, atol = options.tolerances(*(_KINDS[type(x)] for x in (actual, expected)))
    if actual == expected or (options.equal_nan and actual != actual and expected != expected):
        return None
    difference = abs(actual - expected)
    if math.isfinite(difference) and difference <= atol + rtol * abs(expected):
        return None
    return _of_scalars(actual, expected, rtol, atol)


_KINDS = {bool: dtypes.bool, int: dtypes.int64, float: dtypes.float64, complex: dtypes.complex128}


def _of_scalars(actual: Any, expected: Any, rtol: float, atol: float) -> str:
    absolute = abs(actual - expected)
    relative = absolute / abs(expected) if expected else math.inf
    equal = rtol == 0 and atol == 0
    limits = ("", "") if equal else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    return (
        f"Scalars are not {'equal' if equal else 'close'}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {absolute}{limits[0]}\nRelative difference: {relative}{limits[1]}"
    )


def _compare_tensors(actual: Tensor, expected: Tensor, options: _Options) -> str | None:
    checks = [("shape", True, lambda t: t.shape), ("layout", options.check_layout, lambda t: getattr(t, "layout", strided))]
    checks += [("device", options.check_device, lambda t: t.device), ("dtype", options.check_dtype, lambda t: t.dtype)]
    checks += [("stride()", options.check_stride, lambda t: t.stride())]
    for name, wanted, of in checks:
        if wanted and of(actual) != of(expected):
            return f"The values for attribute '{name}' do not match: {of(actual)} != {of(expected)}."
    rtol, atol = options.tolerances(actual.dtype, expected.dtype)
    common = dtypes.promote_types(actual.dtype, expected.dtype)
    a, e = (cast(t.detach().cpu(), common)._array for t in (actual, expected))
    with np.errstate(all="ignore"):
        return _compare_arrays(a, e, rtol, atol, options.equal_nan)


def _compare_arrays(actual: np.ndarray, expected: np.ndarray, rtol: float, atol: float, equal_nan: bool) -> str | None:
    if actual.dtype.kind == "b":
        actual, expected = actual.astype(np.int64), expected.astype(np.int64)
    equal = actual == expected
    if equal_nan:
        equal = equal | ((actual != actual) & (expected != expected))
    whole = actual.dtype.kind in "iu"
    absolute = np.where(actual > expected, actual - expected, expected - actual) if whole else np.abs(actual - expected)
    wide = absolute.astype(np.float64)
    close = equal | (np.isfinite(wide) & (wide <= atol + rtol * np.abs(expected).astype(np.float64)))
    if close.all():
        return None
    if not actual.ndim:
        return _of_scalars(actual.item(), expected.item(), rtol, atol)
    zero = absolute.dtype.type(0)
    floats = np.float32 if absolute.dtype.kind in "iu" else absolute.dtype
    relative = np.where(close, floats(0) if floats is np.float32 else zero, (absolute / np.abs(expected)).astype(floats))
    absolute = np.where(close, zero, absolute)
    wrong = int(close.size - np.count_nonzero(close))
    exact = rtol == 0 and atol == 0
    lines = [
        f"Tensor-likes are not {'equal' if exact else 'close'}!\n",
        f"Mismatched elements: {wrong} / {close.size} ({wrong / close.size:.1%})",
    ]
    for name, differences, limit in (("absolute", absolute, atol), ("relative", relative, rtol)):
        place = np.unravel_index(int(np.argmax(differences)), differences.shape)
        allowed = "" if exact else f" (up to {limit} allowed)"
        lines.append(f"Greatest {name} difference: {differences[place].item()} at index {tuple(map(int, place))}{allowed}")
    return "\n".join(lines)


__all__ = ["assert_allclose", "assert_close"]
