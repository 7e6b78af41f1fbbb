"""``np.array([...])`` and its kin in native loops: NumPy's dtypes, shapes and errors, and lists that stay lists elsewhere."""

from __future__ import annotations

import itertools
import traceback

import numpy as np
import pytest

import dynagraph as dg
from tests.frontend.loops.test_new_arrays import same

RNG = np.random.default_rng(11)
ITEMS = (
    "k", "k + 0.5", "k > 2", "1j * k", "x[k]", "np.float32(k)", "np.int8(k)", "np.uint64(k)", "np.bool_(k)", "np.uint8(200)",
    "-0.0", "2**40 + k",
)  # fmt: skip


def compiled_of(source):
    found = {"np": np}
    exec(source, found)
    return found["f"], dg.compile(found["f"])


def program(expression):
    return compiled_of(f"def f(x, y, n):\n    for k in range(n):\n        z = {expression}\n    return z\n")


@pytest.mark.sampled(6)
@pytest.mark.parametrize("first", ITEMS)
def test_dtypes_are_numpys(first):
    x = RNG.random(12)
    for second in ITEMS:
        plain, compiled = program(f"np.array([{first}, {second}])")
        same(compiled(x, x, 11), plain(x, x, 11))
        assert not compiled.stats.fallbacks and not compiled.stats.side_exits and not compiled.stats.calls_out, (first, second)


EXPRESSIONS = (
    "np.array([])", "np.array([[], []])", "np.array([1.0, 2.0, 3.0])", "np.array([[1, 2, 3], [4, 5, 6]])",
    "np.array([[x[k], k], [1.5, y[0]]])", "np.array(((k, 2), [3, x[k]]))", "np.array((x[0], k))", "np.array([x, x + k])",
    "np.array([x, np.arange(12)])", "np.array([[x, y], [y, x * 2]])", "np.array([x[1:4], y[::-1][2:5]])",
    "np.array([x[:0], y[:0]])", "np.array([x > 0.5, y < k])", "np.asarray([k, 1.5])", "np.asarray(x)", "np.asarray(x + k)",
    "np.asarray(x, dtype=np.float32)", "np.array(x, dtype=np.int64)", "np.array([k, 1], dtype=np.float32)",
    "np.array([x, y], dtype=np.float32)", "np.array([k + 0.75, -k - 0.75], dtype=int)", "np.array([k, 0], dtype=bool)",
    "np.array([float('nan'), x[k]])", "np.array([[[k]], [[x[k]]]])", "np.concatenate([x, x[:k]])", "np.hstack([x, y])",
    "np.zeros([2, k])", "np.vstack([x, y])", "np.stack([x, y])", "np.array([k for _ in range(k + 1)])",
    "np.array([x[k] * j for j in range(3)])", "np.array([1, 2] + [k])", "np.array([[1, 2][k % 2], k])", "np.array([k, [1, 2][1]])",
    "np.array([k] * 3)", "np.array([len([k, 1]), max([k, 3])])", "np.array([k, 1.5 if k % 2 else 2])", "np.array([x[k], None][:1])",
    "np.array([[k, 1], [x[k], 2]]) @ np.array([k, 1.5])", "np.array([[x[k]], [y[k]]]) + np.array([1, 2, 3])",
    "np.linalg.norm([x[k], 3.0])", "np.dot([1.0, k], [x[k], 2.0])", "np.max([k, 3])", "np.array([k, 2]).tolist()",
    "np.array([k, 2])[1]", "[k, 2.5]", "([x[k], 2], [k])", "np.array([np.array([k, 1]), np.array([1.5, k])])",
    "np.array([np.array([k, 1]), [1, 2]])",
)  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_displays(expression):
    plain, compiled = program(expression)
    for x, y in ((RNG.random(12), RNG.random(12)), (RNG.random(24)[::-2], np.full(12, -0.0))):
        same(compiled(x, y, 11), plain(x, y, 11))
    assert not compiled.stats.fallbacks


BAD = (
    "np.array([x, y])", "np.array([k, 300], dtype=np.uint8)", "np.array([-k], dtype=np.uint64)",
    "np.array([x[k], 1e300], dtype=int)",
    "np.array([1j, k], dtype=float)", "np.array([[k, 1], [2]])", "np.array([x, 1.5])", "np.array([np.nan, k], dtype=int)",
    "np.array([x[:1], x[:3]])", "np.array([x[k], x[k + 8]])",
)  # fmt: skip


def outcome(f, *args):
    try:
        return f(*args)
    except Exception as error:
        return type(error), str(error), traceback.extract_tb(error.__traceback__)[-1].lineno


@pytest.mark.parametrize("expression", BAD)
def test_errors_are_numpys(expression):
    plain, compiled = program(expression)
    for _ in range(2):
        got, want = (outcome(f, np.ones(18), np.ones(17), 11) for f in (compiled, plain))
        same(got, want)


def test_arrays_are_new_each_time():
    def keeps(x, n):
        first = last = np.array([0.0, x[0]])
        for k in range(n):
            last = np.array([k, x[k]])
            if k == 2:
                first = last
            last[0] += 1
        return first, last, first is last

    compiled = dg.compile(keeps)
    for n in (10, 13, 19):
        same(compiled(np.arange(19.0), n), keeps(np.arange(19.0), n))


def test_an_exit_between_the_items():
    def f(x, n):
        seen = []
        for k in range(n):
            z = np.array([[k, 1.5], [x[k], seen.append(k) or len(str(k))], [x.sum(), 10 // (k + 1)]])
        return z, seen

    compiled = dg.compile(f)
    for _ in range(3):
        got, want = compiled(np.arange(20.0), 20), f(np.arange(20.0), 20)
        same(got[0], want[0])
        assert got[1] == want[1]

    def divides(x, n):
        for k in range(n):
            z = np.array([[k, 1.5], [1 / x[k].item(), 2]])
        return z

    compiled = dg.compile(divides)
    x = np.ones(20)
    x[13] = 0
    for _ in range(2):
        assert outcome(compiled, x, 20) == outcome(divides, x, 20)


def test_a_shadowed_array_function():
    def array(items):
        items.append(3)
        return items

    class Np:
        pass

    Np.array = staticmethod(array)
    plain, _ = program("np.array([k, 2])")
    plain.__globals__["np"] = Np
    assert dg.compile(plain)(1, 2, 3) == [2, 2, 3]


def test_gradients_go_through_displays():
    gradient = dg.grad(rotates)
    x = np.array([0.3, -0.2])
    step = 1e-6
    for k in range(2):
        d = np.zeros(2)
        d[k] = step
        want = (rotates(x + d, 30) - rotates(x - d, 30)) / (2 * step)
        np.testing.assert_allclose(gradient(x, 30)[k], want, rtol=1e-5)


def rotates(y, n):
    for _ in range(n):
        y = y + 0.1 * np.array([y[1], -y[0] - 0.1 * y[1]])
    return (y * y).sum()


def test_all_pairs_of_leaves():
    """Leaves of arrays and numbers: what NumPy makes of them, or its error."""
    leaves = ("x", "y[:1]", "k", "[x[0], k]", "x[None]")
    for a, b in itertools.product(leaves, leaves):
        plain, compiled = program(f"np.array([{a}, {b}])")
        x, y = RNG.random(11), RNG.random(11)
        same(outcome(compiled, x, y, 11), outcome(plain, x, y, 11))
