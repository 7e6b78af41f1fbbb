"""Kernels that differ in numbers only are one function: the same bits as a function for each, and far less to compile."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends.c import merge_functions as sharing
from dynagraph.backends.c.backend import lower_graph
from dynagraph.backends.c.merge_functions import share
from dynagraph.backends.c.reductions import lane_plan
from dynagraph.ir.passes.pipeline import run as run_passes

pytestmark = pytest.mark.sampled(2)

RNG = np.random.default_rng(5)


def kernels(compiled: Callable) -> str:
    (program,) = compiled.programs
    return program.executable.artifacts["kernels"]


def functions(compiled: Callable) -> list[str]:
    return sorted(set(re.findall(r"(?:noinline\)\)|DG_KERNEL) void (\w+)_range\(", kernels(compiled))))


# -- each loop has turns that are alike but for offsets, lengths, strides or literals ------------------------------------------


def eliminate(a, k):
    a[k + 1 :, k + 1 :] -= a[k + 1 :, k, None] * a[k, k + 1 :]
    a[k, k:] *= 0.5
    return a


def offsets_and_sizes(a):
    return functools.reduce(eliminate, range(20), a / 8)


def sums_of_rows(a):  # lengths on both sides of every choice of lanes
    return np.array([a.reshape(-1)[:k].sum() for k in range(1, 90)] + [np.cumsum(a[0, : k + 3])[-1] for k in range(20)])


def sums_of_columns(a):
    rows = [a[k:].sum(0) for k in range(12)] + [a[: 2 * k + 5, 3:].max(0, initial=0.0) for k in range(12)]
    return [np.exp(r) for r in rows]


def positions_at(a, k):
    return np.argmax(np.abs(a[k:, k])) + k, a[k, k:].argmin()


def positions(a):
    return list(map(functools.partial(positions_at, a), range(24)))  # a loop would become machine code


def strides(a):
    flat = a.reshape(-1)
    return [flat[k::k] * 2 for k in range(1, 20)] + [flat[::-k] + 1 for k in range(1, 20)]


def literals(a, i):
    small, large = i.astype(np.int8), i.astype(np.uint64)
    whole = [(small[k:] + np.int8(k), large[k:] * np.uint64(2**63 - 7 + k), np.maximum(i[k:], -k) == k) for k in range(12)]
    fixed = [(i[k:] // (k + 2), np.abs(i[k:]) ** k, i[k:] % 7 - k, i[k:] << k) for k in range(12)]
    real = [(a[k] * (k - 0.5), np.where(a[k, k:] < k / 9, a[k, k:], -0.0 if k % 2 else np.nan), a[k] / (k + 1)) for k in range(12)]
    return whole, fixed, real, [a.astype(t)[k] + t(k / 3) for k in range(8) for t in (np.float32, np.float16, np.complex64)]


def swap_at(a, p, k):
    q = p[k]
    a[[k, q]] = a[[q, k]]


def add_at(a, k):
    a[[k, k + 3, 2]] += 1  # known places: constants that differ


def swaps(a, p):
    a = a.copy()
    list(map(functools.partial(swap_at, a, p), range(16)))
    list(map(functools.partial(add_at, a), range(12)))
    return a


def shapes(a):  # loops that stay, and that the outer axes divide
    return [(a[None, k:, :] - a[:, None, k, None]).sum(1) for k in range(10)], [a[k:].T.copy() for k in range(10)]


A = RNG.standard_normal((30, 41))
I64 = RNG.integers(-99, 99, 33)
CASES = {
    "offsets-and-sizes": (offsets_and_sizes, (A,)),
    "sums-of-rows": (sums_of_rows, (A,)),
    "sums-of-columns": (sums_of_columns, (A,)),
    "positions": (positions, (A,)),
    "strides": (strides, (A,)),
    "literals": (literals, (A, I64)),
    "swaps": (swaps, (A, RNG.integers(0, 30, 16))),
    "shapes": (shapes, (A,)),
}


def leaves(value):
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def run(function: Callable, arguments: tuple, dynamic: bool | None = None):
    compiled = dg.compile(function, backend="c", dynamic=dynamic)
    result = list(leaves(compiled(*arguments)))
    assert compiled.stats.fallbacks == 0 and len(compiled.programs) == 1, compiled.stats.breaks
    return compiled, result


@pytest.mark.sampled(8)
@pytest.mark.parametrize("dynamic", (None, True), ids=("static", "symbolic"))
@pytest.mark.parametrize("name", CASES)
def test_shared_functions_give_the_same_bits(name: str, dynamic: bool | None, monkeypatch: pytest.MonkeyPatch) -> None:
    function, arguments = CASES[name]
    if dynamic and name == "sums-of-columns":
        arguments = (RNG.standard_normal((40, 41)),)
    monkeypatch.setattr(sharing, "SHARED_FROM", 2)
    shared, got = run(function, arguments, dynamic)
    monkeypatch.setattr(sharing, "SHARED_FROM", 10**9)
    alone, expected = run(function, arguments, dynamic)
    assert len(functions(shared)) < len(functions(alone))
    for ours, theirs, numpys in zip(got, expected, leaves(function(*arguments)), strict=True):
        np.testing.assert_array_equal(ours, theirs, strict=True)
        np.testing.assert_allclose(ours, numpys, rtol=1e-12, atol=1e-12)


def test_an_unrolled_loop_has_few_functions_and_each_call_names_its_line() -> None:
    def step(a, k):
        a[k + 1 :, k:] -= a[k + 1 :, k, None] / a[k, k] * a[k, k:]
        return a

    def eliminate(a):
        functools.reduce(step, range(64), a)

    compiled = dg.compile(eliminate, backend="c")
    a = RNG.standard_normal((65, 65)) + 20 * np.eye(65)
    expected = a.copy()
    eliminate(expected)
    compiled(a)
    np.testing.assert_allclose(a, expected, rtol=1e-10)
    text = kernels(compiled)
    assert len(functions(compiled)) <= 12
    calls = re.findall(r"^ *(?:dg_launch\(rt, \w+|\w+_range)\(?", text.partition("int dg_entry")[2], re.MULTILINE)
    assert len(calls) >= 128
    assert text.count("test_sharing.py:") >= len(calls)


def test_few_alike_kernels_are_functions_of_their_own() -> None:
    def f(a):
        return [a[k:].sum(0) for k in range(sharing.SHARED_FROM - 1)]

    compiled = dg.compile(f, backend="c")
    compiled(A)
    assert "int64_t p0" not in kernels(compiled) and "kernels like" not in kernels(compiled)


def test_shared_functions_run_on_threads() -> None:
    def f(x):
        return [np.sqrt(x[k:] * x[: len(x) - k] + k) for k in range(1, 9)]

    x = RNG.random(300_000)
    for dynamic in (None, True):
        compiled = dg.compile(f, backend="c", dynamic=dynamic)
        for ours, theirs in zip(compiled(x), f(x), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert re.search(r"dg_launch\(rt, \w+, \(void \*const\[\]\)", kernels(compiled))


def test_symbolic_sizes_reach_shared_functions() -> None:
    def f(x):
        return [(x[k:] + k).sum() for k in range(1, 9)]

    compiled = dg.compile(f, backend="c", dynamic=True)
    for n in (20, 300, 100_000):
        np.testing.assert_allclose(compiled(np.arange(float(n))), f(np.arange(float(n))), rtol=1e-14)
    assert len(functions(compiled)) < 8


def test_kernels_of_one_function_agree_in_what_the_printer_chooses() -> None:
    """Lanes of a sum depend on its length, and its bits on the lanes."""
    compiled = dg.compile(sums_of_rows, backend="c")
    compiled(A)
    (found,) = compiled.programs
    program = lower_graph(run_passes(found.captured.graph))
    calls = share(program, lane_plan)
    assert calls
    for kernel, call in calls.items():
        plans = [[lane_plan(s) for s in k.body if isinstance(s, sharing.Reduce)] for k in (kernel, call.shared.kernel)]
        assert plans[0] == plans[1]
