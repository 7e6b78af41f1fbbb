"""Gradients of long loops, which run as machine code forward and backward, against those of the same steps on the tape."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.frontend.loops.loop_calls import Code, LoopFunction, LoopGradient

R = np.random.default_rng(16)


def decay(k):
    y = 1.0
    for _ in range(60):
        y = y - 0.001 * k * y
    return y


def differences(x):
    s = 0.0
    for i in range(1, len(x)):
        s += (x[i] - x[i - 1]) ** 2
    return s


def branches(r):
    x = 0.3
    total = 0.0
    for _ in range(40):
        x = r * x * (1 - x)
        total = total + np.sin(x) if x > 0.5 else total - x**3
    return total


def average(x, a):
    out = np.zeros_like(x)
    m = x[0]
    for i in range(x.size):
        m = a * x[i] + (1 - a) * m
        out[i] = m
    return np.sum(out * out)


def heat(u, k):
    u = u.copy()
    for _ in range(5):
        new = u.copy()
        for i in range(1, len(u) - 1):
            new[i] = u[i] + k * (u[i - 1] - 2 * u[i] + u[i + 1])
        u = new
    return (u**2).mean()


def heat_of_slices(u, k):
    u = u.copy()
    for _ in range(30):
        u[1:-1] = u[1:-1] + k * (u[:-2] - 2 * u[1:-1] + u[2:])
    return (u**2).sum()


def gauss_seidel(b):
    x = np.zeros(b.size)
    for _ in range(6):
        for i in range(1, b.size - 1):
            x[i] = 0.5 * (b[i] + x[i - 1] + x[i + 1])
    return np.sum(x**2)


def newton_until(a):
    x, error = a, 1.0
    while error > 1e-12:
        new = 0.5 * (x + a / x)
        error = abs(new - x)
        x = new
    return x


def power_iteration(a):
    v = np.ones(a.shape[0])
    for _ in range(60):
        v = a @ v
        v = v / np.linalg.norm(v)
    return v @ a @ v


def recurrent(w, u, x):
    h = np.zeros(w.shape[0])
    for t in range(x.shape[0]):
        h = np.tanh(w @ h + u @ x[t])
    return (h**2).sum()


def descent(w, x, y):
    for _ in range(60):
        w = w - 0.01 * (x.T @ (x @ w - y)) / len(y)
    return np.sum(w**2)


def matrices(a):
    b = np.eye(3)
    for _ in range(30):
        b = b @ a
        b = b / b.max()
    return b.sum() - b.min()


def predator_and_prey(p):
    x, y = 1.0, 0.5
    for _ in range(40):
        dx = p[0] * x - p[1] * x * y
        dy = p[2] * x * y - p[3] * y
        x += 0.01 * dx
        y += 0.01 * dy
    return x * x + y


def leaves_early(x):
    s = 0.0
    for i in range(x.size):
        s += x[i] * x[i]
        if s > 20.0:
            return s
    return -s


def history(x):
    hist = np.empty(x.size)
    v = 0.0
    for i in range(x.size):
        v = 0.9 * v + x[i]
        hist[i] = v
    return hist[-1] * hist.sum()


def what_follows_is_not_native(x):
    s = np.zeros(3)
    for i in range(x.size):
        s[i % 3] += x[i]
    values, _ = np.linalg.eigh(np.outer(s, s) + np.eye(3))
    return values.sum()


def of_single_precision(x):
    s = np.float32(0)
    for i in range(x.size):
        s = s + x[i] * x[i] + x[i] ** 3
    return s


def pairs(a, b):
    s = 0.0
    for u, v in zip(a, b):
        s += u * v if u > v else u - v
    return s


def numbered(a):
    s = 0.0
    for k, u in enumerate(a):
        s += k * u
    return s


def written(x, out):
    for i in range(len(x)):
        out[i] = x[i] * out[i]
    return out.sum() + x[0]


def clipped(x):
    s = np.zeros(4)
    for i in range(x.shape[0]):
        s = np.maximum(s * 0.5, x[i])
    return s.sum()


def gated(w, x):
    n = w.shape[0] // 2
    h = np.zeros(n)
    for t in range(x.shape[0]):
        z = w @ np.concatenate((h, x[t]))
        gate = 1 / (1 + np.exp(-z[:n]))
        h = np.where(z[n:] > 0, gate * h + z[n:], gate * h + 0.1 * z[n:])
    return h.sum()


def of_whole_arrays(u, a, k):
    u = u.copy()
    for t in range(12):
        u[:-1] = u[1:] * np.tanh(k * u[:-1])  # each element is stored before the next one is computed
        u[1:, ::2] = 0.5 * u[:-1, ::2] + a[t % 3]  # none is
        u = np.where(u > 0.1, u * a[0], u) + 0.1 * k
    return (u * u).sum()


def n(*shape: int) -> np.ndarray:
    return R.normal(size=shape)


PROGRAMS: list[tuple[Callable[..., Any], tuple[Any, ...], tuple[int, ...]]] = [
    (decay, (0.5,), (0,)),
    (differences, (n(50),), (0,)),
    (branches, (3.7,), (0,)),
    (average, (n(40), 0.3), (0, 1)),
    (heat, (n(12), 0.2), (0, 1)),
    (heat_of_slices, (n(9), 0.2), (0, 1)),
    (gauss_seidel, (n(12),), (0,)),
    (newton_until, (3.0,), (0,)),
    (power_iteration, (n(5, 5) + 5 * np.eye(5),), (0,)),
    (recurrent, (n(6, 6) * 0.3, n(6, 3), n(30, 3)), (0, 1, 2)),
    (descent, (n(4), n(20, 4), n(20)), (0, 1, 2)),
    (matrices, (n(3, 3),), (0,)),
    (predator_and_prey, (np.array([1.1, 0.4, 0.1, 0.4]),), (0,)),
    (leaves_early, (n(60),), (0,)),
    (history, (n(40),), (0,)),
    (what_follows_is_not_native, (n(50),), (0,)),
    (of_single_precision, (n(60).astype(np.float32),), (0,)),
    (pairs, (n(40), n(40)), (0, 1)),
    (numbered, (n(60),), (0,)),
    (written, (n(40), n(40)), (0, 1)),
    (clipped, (n(40, 4),), (0,)),
    (of_whole_arrays, (n(4, 5), n(3), 0.7), (0, 1, 2)),
    (gated, (n(8, 7) * 0.3, n(20, 3)), (0, 1)),
]


def loops_called(program: Any) -> list[str]:
    """The kinds of what the graphs of a transformation call for loops."""
    graphs = [p.captured.graph for p in program.decorated.programs]
    calls = [node.attrs["call"].function for graph in graphs for node in graph.nodes if node.is_op("external_call")]
    return sorted({type(c).__name__ for c in calls if isinstance(c, (LoopFunction, LoopGradient))})


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("function", "arguments", "by"), PROGRAMS, ids=[f.__name__ for f, _, _ in PROGRAMS])
def test_equal_to_the_tape(function: Any, arguments: tuple, by: tuple[int, ...]) -> None:
    transform = dg.value_and_grad(function, by)
    given = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
    if function is written:  # an argument by which a gradient is taken is not written
        transform, by = dg.value_and_grad(function, 0), (0,)
    value, gradients = transform(*given)
    assert "LoopGradient" in loops_called(transform.program), transform.program.stats.breaks
    assert not transform.program.stats.fallbacks

    on_tape = dg.value_and_grad(dg.compile(function, backend="numpy"), by if function is not written else 0)
    again = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
    want, wanted = on_tape(*again)
    assert value == want or abs(value - want) <= 1e-15 * abs(want)  # sums of products may be taken in another order
    tolerance = 1e-5 if function is of_single_precision else 1e-12
    for got, expected in zip((gradients,) if function is written else gradients, (wanted,) if function is written else wanted):
        assert np.asarray(got).dtype == np.asarray(expected).dtype
        np.testing.assert_allclose(got, expected, rtol=tolerance, atol=tolerance * np.max(np.abs(expected)))
    for mine, its in zip(given, again):
        np.testing.assert_array_equal(mine, its)


def test_array_expressions_are_kept_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of what is read, and the gradient by what is made: 16 bytes an element and turn."""
    taken: list[int] = []
    run = Code.run

    def watched(code: Code, arguments: Any) -> Any:
        found = run(code, arguments)
        if code.name.endswith("_gradient"):
            taken.append(int(found[-1]))
        return found

    def cubes(u):
        for _ in range(60):
            u = u - 0.1 * u * u * u
        return u.sum()

    monkeypatch.setattr(Code, "run", watched)
    u = R.uniform(size=1000)
    gradient = dg.grad(cubes)(u)
    dg.check_grads(cubes, (u[:5],), order=1)
    np.testing.assert_allclose(gradient[:5], dg.grad(cubes)(u[:5]), rtol=1e-14)
    assert 16 * 60 * 1000 < taken[0] < 1.5 * 16 * 60 * 1000


# -- other transformations, arguments and ends ---------------------------------------------------------------------------------


def test_sizes_change() -> None:
    gradient = dg.grad(differences)
    for size in (50, 51, 60, 200):
        x = R.normal(size=size)
        steps = np.diff(x)
        want = np.zeros(size)
        want[1:] += 2 * steps
        want[:-1] -= 2 * steps
        np.testing.assert_allclose(gradient(x), want, atol=1e-14)
    assert gradient.program.stats.compiles == 2
    assert loops_called(gradient.program) == ["LoopFunction", "LoopGradient"]


def test_arrays_that_lie_otherwise_in_memory() -> None:
    a = n(40, 30)

    def f(a):
        s = 0.0
        for i in range(a.shape[0]):
            for j in range(a.shape[1]):
                s += a[i, j] * a[i, j] * (i + j)
        return s

    gradient = dg.grad(f)
    weight = 2.0 * (np.arange(40)[:, None] + np.arange(30))
    for given in (a, np.asfortranarray(a), a[::-1], np.repeat(a, 2, axis=1)[:, ::2]):
        np.testing.assert_allclose(gradient(given), weight * given, rtol=1e-15)


def test_an_error_is_raised_at_the_users_line() -> None:
    def f(x):
        s = 0.0
        for i in range(500):
            s += x[i] * 2
        return s

    gradient = dg.grad(f)
    with pytest.raises(IndexError, match="index 300 is out of bounds"):
        gradient(np.ones(300))
    np.testing.assert_array_equal(gradient(np.ones(500)), np.full(500, 2.0))


def test_within_a_compiled_function() -> None:
    @dg.compile
    def train(x):
        for _ in range(4):
            x = x - 0.01 * dg.grad(differences)(x)
        return x

    x = want = n(50)
    for _ in range(4):
        want = want - 0.01 * dg.grad(differences)(want)
    np.testing.assert_allclose(train(x), want, rtol=1e-14)


def test_vjp_and_jacobian() -> None:
    def f(b):
        x = np.zeros(b.size)
        for _ in range(40):
            for i in range(1, b.size - 1):
                x[i] = 0.5 * (b[i] + x[i - 1] + x[i + 1])
        return x

    b = n(6)
    value, pull = dg.vjp(f, b)
    np.testing.assert_array_equal(value, f(b))
    rows = np.array([pull(row)[0] for row in np.eye(6)])
    np.testing.assert_allclose(dg.jacobian(f, mode="rev")(b), rows, atol=1e-14)


def relaxed(b):
    x = np.zeros(b.size)
    for _ in range(20):
        for i in range(1, b.size - 1):
            x[i] = 0.5 * (b[i] + x[i - 1] + x[i + 1])
    return x


def test_jacobians_and_batches_of_changing_sizes() -> None:
    rows = dg.jacobian(relaxed, mode="rev")
    for size in (5, 6, 7, 8, 3, 1):
        b = n(size)
        want = np.array([relaxed(e) for e in np.eye(size)]).T  # it is linear
        np.testing.assert_allclose(rows(b), want, atol=1e-14)
    gradient = dg.grad(lambda b: (relaxed(b) ** 2).sum())
    many = dg.vmap(gradient)
    for count in (3, 4, 5):
        examples = n(count, 9)
        np.testing.assert_array_equal(many(examples), [gradient(b) for b in examples])
    for program in (rows.program, many.program):
        assert program.stats.fallbacks == 0 and not program.stats.breaks
        assert loops_called(program) == ["LoopFunction", "LoopGradient"]


def test_what_the_loop_deletes_is_not_bound_behind_it() -> None:
    matrix = np.array([[2.0, 1.0], [0.5, 3.0]])

    def f(x):
        t = x
        s = 0.0
        i = 0
        while True:
            s += t * i
            i += 1
            if i >= 60:
                del t
                break
        z = np.linalg.inv(matrix * s)[0, 0]
        return z * t

    gradient = dg.grad(f)
    for x in (1.0, 2.0):
        with pytest.raises(UnboundLocalError, match="'t'"):
            gradient(x)


def test_loops_in_checkpoints_of_numbers_that_change() -> None:
    def inner(x):
        for _ in range(300):
            x = x * 0.5 + np.sin(x)
        return x

    def outer(x):
        for _ in range(3):
            x = dg.checkpoint(inner)(x)
        return x

    def flat(x):
        for _ in range(900):
            x = x * 0.5 + np.sin(x)
        return x

    gradient, its = dg.grad(outer), dg.grad(flat)
    for x in (1.0, 1.25, 1.5):
        assert gradient(x) == its(x)
    assert loops_called(gradient.program) == ["LoopFunction", "LoopGradient"]
    assert gradient.program.stats.compiles == 2 and not gradient.program.stats.breaks


def test_what_settles_does_not_change() -> None:
    def f(x):
        for _ in range(60):
            x = 0.5 * (x + 3.0 / x)
        return x * x * x

    assert dg.grad(f)(2.0) == pytest.approx(0.0, abs=1e-12)


def test_handlers_of_signals_run_meanwhile() -> None:
    def f(x):
        s = 0.0
        for _ in range(3_000_000):
            s = s * 0.999 + x
        return s

    gradient = dg.grad(f)
    want = gradient(1.0)
    seen = []
    before = signal.signal(signal.SIGALRM, lambda *_: seen.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        assert gradient(1.0) == want
        assert seen
        signal.signal(signal.SIGALRM, _interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        with pytest.raises(KeyboardInterrupt):
            gradient(1.0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert gradient(1.0) == want


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt


def chosen(x):
    if x.sum() > 0:
        return (x**2).sum()
    return (x**3).sum()


def clipped_by_hand(x):
    y = np.sin(x)
    m = y.max()
    if m > 0.5 and y.min() < 0.2:
        y = y * 2
    elif m > 0.1:
        y = y * 3
    return np.sum(y)


def shortened(x):
    t = 1.0
    while ((x - t * 2 * x) ** 2).sum() > 0.5:
        t = t * 0.5
    return t * (x**2).sum()



@pytest.mark.parametrize("function", [chosen, clipped_by_hand, shortened])
def test_branches_on_data(function: Any) -> None:
    gradient = dg.grad(function)
    for x in (np.linspace(-1, 2, 6), -np.linspace(-1, 2, 6), np.linspace(-1, 1, 6) * 0.2):
        with dg.disable():
            want = dg.grad(function)(x)
        np.testing.assert_allclose(gradient(x), want, rtol=1e-14)
    assert not gradient.program.stats.breaks
    assert loops_called(gradient.program) == ["LoopFunction", "LoopGradient"]


def test_functions_of_the_math_module() -> None:
    def f(x):
        s = 0.0
        for i in range(x.size):
            v = math.exp(-x[i] ** 2) + math.sin(x[i]) * math.sqrt(abs(x[i]) + 1.0) + math.atan2(x[i], 2.0) + x[i] % 0.7
            s += max(v, 0.1) + min(x[i], 0.3) + np.hypot(x[i], 1.0) ** 1.5
        return s

    x = n(60)
    got = dg.grad(f)(x)
    for k in range(0, 60, 7):
        step = np.zeros(60)
        step[k] = 1e-6
        assert got[k] == pytest.approx((f(x + step) - f(x - step)) / 2e-6, rel=1e-5, abs=1e-7)


def test_what_gets_no_gradient_passes_none_back() -> None:
    def f(x):
        s = 0.0
        for i in range(x.size):
            root = np.sqrt(x[i])
            s += root if x[i] > 0 else 0.0
        return s

    x = np.zeros(100)
    x[1::2] = 4.0
    np.testing.assert_array_equal(dg.grad(f)(x), np.where(x > 0, 0.25, 0.0))
