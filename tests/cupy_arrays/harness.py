"""A function on CuPy's arrays, called plainly and compiled: results, what they are views of, what the arguments hold, errors.

Op by op, results must agree bit for bit, as both runs call the same functions; by kernels up to rounding.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import dynagraph as dg
from dynagraph.array_libraries import library_of
from dynagraph.backends.cuda.driver import driver_of
from tests.cupy_arrays import stand_in


@dataclass
class Run:
    """What a call gave."""

    arguments: tuple[Any, ...]
    result: Any = None
    error: BaseException | None = None


def has_kernels(cp: Any) -> bool:
    """Whether programs run by kernels of our own, which round otherwise than the library's functions."""
    library = library_of(cp.ndarray)
    return library is not None and driver_of(library) is not None


def by_turns(cp: Any, choices: Sequence[str], name: str) -> Sequence[str]:
    """All of them; on a real device, where each kernel of CuPy's and ours is compiled anew, one: another one for another name."""
    return choices if cp.ndarray is stand_in.ndarray or not choices else [choices[zlib.crc32(name.encode()) % len(choices)]]


def put(cp: Any, values: Any, device: int = 0) -> Any:
    """An array of CuPy's that lies as `values` does; what is no NumPy array stays what it is."""
    if isinstance(values, (list, tuple)):
        return type(values)(put(cp, v) for v in values)
    if not isinstance(values, np.ndarray):
        return values
    if cp.ndarray is stand_in.ndarray:
        return stand_in.laid(values, device)
    whole = values.base if isinstance(values.base, np.ndarray) else values
    owner = cp.asarray(whole)
    if whole is values:
        return owner
    offset = values.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return cp.ndarray(values.shape, values.dtype, owner.data + offset, values.strides)


def run(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Run:
    try:
        return Run(arguments, function(*arguments))
    except Exception as error:
        return Run(arguments, error=error)


def check(
    cp: Any,
    function: Callable[..., Any],
    *values: Any,
    breaks: str | None = None,
    whole: bool = True,
    calls: int = 2,
    device: int = 0,
    **options: Any,
) -> Any:
    """Compare plain and compiled calls; gives the compiled function.

    `breaks`: the slug of the reason that must be among the breaks.  Without it, and with `whole`, the call must be one program.
    """
    compiled = dg.compile(function, **options)
    for _ in range(calls):
        plain = run(function, tuple(put(cp, v, device) if isinstance(v, np.ndarray) else put(cp, v) for v in values))
        ours = run(compiled, tuple(put(cp, v, device) if isinstance(v, np.ndarray) else put(cp, v) for v in values))
        assert_same_run(cp, ours, plain)
    stats = compiled.stats
    assert stats.fallbacks == 0, stats.last_error
    if breaks is not None:
        assert any(f"[{breaks}]" in text for text in stats.breaks), dict(stats.breaks)
    elif whole:
        assert not stats.breaks and stats.refusals == 0, (dict(stats.breaks), stats)
        assert stats.compiles >= 1, "nothing was compiled"
    return compiled


def assert_same_run(cp: Any, ours: Run, plain: Run) -> None:
    assert type(ours.error) is type(plain.error), (ours.error, plain.error)
    if plain.error is not None:
        assert _text(ours.error) == _text(plain.error)
    assert_same(cp, ours.result, plain.result)
    for mine, theirs in zip(ours.arguments, plain.arguments):
        assert_same(cp, mine, theirs)
    assert places(cp, ours) == places(cp, plain)


def _text(error: BaseException) -> str:
    """What it says, but for the temporary files in which CuPy compiles."""
    return re.sub(r"\S*/tmp\w+/\w+", "", str(error))


def assert_same(cp: Any, ours: Any, plain: Any) -> None:
    assert type(ours) is type(plain), (type(ours), type(plain))
    if isinstance(plain, (list, tuple)):
        assert len(ours) == len(plain)
        for mine, theirs in zip(ours, plain):
            assert_same(cp, mine, theirs)
    elif isinstance(plain, dict):
        assert list(ours) == list(plain)
        assert_same(cp, list(ours.values()), list(plain.values()))
    elif isinstance(plain, cp.ndarray):
        assert (ours.dtype, ours.shape) == (plain.dtype, plain.shape)
        for size, mine, theirs in zip(plain.shape, ours.strides, plain.strides):
            assert plain.size == 0 or size == 1 or mine == theirs  # which mean nothing otherwise
        assert ours.device.id == plain.device.id
        same_values(ours.get(), plain.get(), exact=not has_kernels(cp))
    elif isinstance(plain, (np.generic, np.ndarray)):
        same_values(np.asarray(ours), np.asarray(plain), exact=True)
    elif isinstance(plain, float):
        assert repr(ours) == repr(plain)
    elif not callable(plain):
        assert ours == plain


def same_values(ours: np.ndarray, plain: np.ndarray, exact: bool) -> None:
    assert ours.dtype == plain.dtype
    if exact or plain.dtype.kind not in "fc":
        np.testing.assert_array_equal(ours, plain)
        if plain.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(ours)[~np.isnan(plain)], np.signbit(plain)[~np.isnan(plain)])
    else:
        scale = {"e": 1e-2, "f": 1e-5, "F": 1e-5}.get(plain.dtype.char, 1e-12)
        np.testing.assert_allclose(ours, plain, rtol=scale, atol=scale)


def places(cp: Any, run: Run) -> list[tuple[int, int]]:
    """Which arrays of a run begin within the memory of which others: arguments first, then results."""
    library = library_of(cp.ndarray)
    assert library is not None
    found: list[Any] = []
    _collect(cp, run.arguments, found)
    _collect(cp, run.result, found)
    pairs = []
    for k, one in enumerate(found):
        for m, other in enumerate(found[:k]):
            if one is other:
                pairs.append((k, -1 - m))
            elif one.size and other.size and library.may_share_memory(one, other):
                pairs.append((k, m))
    return pairs


def _collect(cp: Any, value: Any, found: list[Any]) -> None:
    if isinstance(value, cp.ndarray):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _collect(cp, item, found)
    elif isinstance(value, dict):
        _collect(cp, list(value.values()), found)
