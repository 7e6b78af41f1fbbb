"""Results that are equal in type, dtype, shape and every bit; of NaNs the payload and the sign are free."""

from __future__ import annotations

from typing import Any

import numpy as np


def check_same(got: Any, want: Any, rtol: float = 0.0) -> None:
    """With `rtol`, floats may differ by that, relative to the largest of an array: what cancels has the errors of its terms."""
    assert type(got) is type(want), f"a {type(got)} for a {type(want)}"
    if isinstance(want, (tuple, list)):
        assert len(got) == len(want), f"{len(got)} elements for {len(want)}"
        kinds = set(map(type, want))
        if len(kinds) == 1 and kinds == set(map(type, got)) and issubclass(next(iter(kinds)), (float, np.generic)):  # long ones
            got, want = [np.array(got)], [np.array(want)]
        for a, b in zip(got, want):
            check_same(a, b, rtol)
    elif isinstance(want, dict):
        check_same(list(got.items()), list(want.items()), rtol)
    elif isinstance(want, (np.ndarray, np.generic, float, complex)):
        a, b = np.asarray(got), np.asarray(want)
        assert (a.dtype, a.shape) == (b.dtype, b.shape), f"{a.dtype}{a.shape} for {b.dtype}{b.shape}"
        if rtol and b.dtype.kind in "fc":
            largest = np.max(np.abs(b), initial=0.0, where=np.isfinite(b))
            np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * largest)
        else:
            np.testing.assert_array_equal(a, b, strict=True)
            for part in ("real", "imag") if b.dtype.kind in "fc" else ():
                x, y = getattr(a, part), getattr(b, part)
                np.testing.assert_array_equal(np.signbit(x) & ~np.isnan(x), np.signbit(y) & ~np.isnan(y), "signs of zeros")
    else:
        assert got == want, f"{got!r} for {want!r}"


def places(result: Any, arguments: tuple) -> list[int]:
    """Which arguments a result is, or holds: itself, not equal ones."""
    parts = result if isinstance(result, tuple) else (result,)
    return [next((k for k, a in enumerate(arguments) if a is part and a is not None), -1) for part in parts
            if isinstance(part, (np.ndarray, list))]
