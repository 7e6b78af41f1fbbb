"""Calls out of native loops: Python does an instruction of the loop, which goes on with what it gives."""

from __future__ import annotations

import copy
import math
import random
import signal
import threading
import traceback
import warnings
import weakref

import numpy as np
import pytest

import dynagraph as dg


@pytest.fixture(autouse=True)
def calls_cost_nothing(monkeypatch):
    """Loops call out even where that gains nothing."""
    monkeypatch.setattr("dynagraph.frontend.loops.calls_out.LOST", 0)


def outcome(f, *args):
    """What a call gives or raises, and what its arguments then hold."""
    args = copy.deepcopy(args)
    try:
        result = f(*args)
    except Exception as error:
        result = (type(error), str(error), [frame.lineno for frame in traceback.extract_tb(error.__traceback__)][1:])
    return result, args


def same(a, b):
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.random.Generator):
        return repr(a.bit_generator.state) == repr(b.bit_generator.state)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.strides == b.strides and a.tobytes() == b.tobytes()
    return repr(a) == repr(b)


def check(f, *args, exits=0, native=True):
    """Plain and compiled agree, twice; gives the compiled function."""
    compiled = dg.compile(f)
    for _ in range(2):
        plain, made = outcome(f, *args), outcome(compiled, *args)
        assert same(plain, made), (plain, made)
    if native:
        assert any("runs as machine code" in loop for p in compiled.programs for loop in p.loops), [
            p.loops for p in compiled.programs
        ]
        assert sum(compiled.stats.side_exits.values()) == exits, compiled.stats.side_exits
    return compiled


X = np.array([3.0, 1.0, 2.0, 0.5])
A = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 5.0]])


# -- values ----------------------------------------------------------------------------------------------------------------


def sorts(x, n):
    s = 0.0
    for i in range(n):
        y = np.sort(x)
        order = np.argsort(x)
        s += y[0] * i + order[1]
        x[i % 3] += s
    return s, y, order


def solves(A, n):
    x = np.ones(3)
    for _ in range(n):
        x = np.linalg.solve(A, x)
        x = x / np.abs(x).max()
    return x


def chooses(x, n):
    total = 0.0
    for i in range(n):
        y = np.where(x >= i * 0.1, x, -x)
        x = np.clip(y, -2.0, 2.5)
        total += np.interp(0.3 * i, np.arange(4), x)
    return total, x


def fancy(x, n):
    picked = np.array([2, 0, 1])
    for i in range(n):
        y = x[picked]
        x[picked] = y[::-1] + i
        x[x > 3] -= 1.5
    return x, y


def along_axis(A, n):
    total = np.zeros(3)
    for i in range(n):
        total += A.sum(axis=0) * np.max(A, axis=i % 2)
        A[i % 3] = np.cumsum(total)[::-1] * 0.01
    return total, np.outer(total, total)


def several(A, n):
    q = 0
    for i in range(n):
        rows, columns = np.nonzero(A - i * 0.2 > 0)
        q += rows.sum() * 10 + columns[0]
        whole, rest = divmod(A[i % 3], 2.0)
        q += whole[0] + rest[1]
    return q


def numbers(x, n):
    s = 0.0
    for i in range(n):
        s += math.comb(5, i % 6) + math.hypot(x[0], x[1]) + round(s, 3)
        s += complex(i, 1) / complex(2, s) != 0
    return s


def of_lists(x, n):
    s = 0.0
    for i in range(n):
        pair = np.array([float(x[0]), float(i), s])
        s = float(np.median(pair))
    return s


@pytest.mark.sampled(2)
@pytest.mark.parametrize("f", [sorts, chooses, fancy, numbers, of_lists])
def test_vectors(f):
    check(f, X, 20)


@pytest.mark.parametrize("f", [solves, along_axis, several])
def test_matrices(f):
    check(f, A, 20)


def test_an_array_that_is_given_stays_the_same_object():
    def f(x, n):
        y = x
        for i in range(n):
            y = np.asarray(x)
            x[0] += i
        return y is x, y

    check(f, X, 12)


def test_arrays_are_freed_as_the_loop_goes_on():
    alive = []

    def f(x, n):
        s = 0.0
        for _ in range(n):
            s += np.sort(x)[0]
        return s

    compiled = dg.compile(f)
    x = np.arange(2_000_000.0)
    compiled(x, 10)
    assert compiled(x, 100) == 0.0
    y = np.arange(3.0)
    alive.append(weakref.ref(y))
    compiled(y, 10)
    del y
    assert alive[0]() is None


def test_arrays_of_the_loop_are_seen_by_functions_that_it_calls_later():
    def f(x, n):
        made = x * 2
        for i in range(n):
            total = np.cumsum(made)
            made[0] = total[-1] * 0.01 + i
            made = np.roll(made, 1) if i % 3 else made * 0.5
        return made, total

    check(f, X, 20)


def test_a_function_writes_to_arrays_of_the_loop():
    def f(x, n):
        for i in range(n):
            x[i % 4] = -i
            x.sort()
            np.add(x, 0.5, out=x)
            np.copyto(x[1:3], x[0])
        return x[0]

    check(f, X, 10)


# -- draws -------------------------------------------------------------------------------------------------------------------


def walk(rng, n):
    x = 0.0
    for _ in range(n):
        x += rng.normal() * rng.standard_normal() + rng.uniform(-1.0, 1.0) + rng.random()
        x += rng.integers(0, 6) + rng.integers(10)
    return x


def draws_arrays(rng, n):
    s = np.zeros(3)
    for i in range(n):
        s += rng.normal(size=3) * rng.random(3)
        s[rng.integers(3)] = rng.choice(s) + i
        rng.shuffle(s)
    return s


@pytest.mark.sampled(2)
@pytest.mark.parametrize("f", [walk, draws_arrays])
@pytest.mark.parametrize("generator", [np.random.PCG64, np.random.MT19937])
def test_draws_advance_the_generator(f, generator):
    compiled = check(f, np.random.Generator(generator(3)), 30, native=False)
    one, other = (np.random.Generator(generator(5)) for _ in range(2))
    assert same(f(one, 40), compiled(other, 40))
    assert one.random() == other.random()


def test_draws_of_the_modules():
    def f(n):
        s = 0.0
        for i in range(n):
            s += random.random() + random.gauss(0.0, 1.0) + random.randint(1, 6) + random.uniform(0.0, i)
            s += np.random.rand() + np.random.randn() + np.random.randint(5) + np.random.normal(0.0, 2.0)
        return s

    compiled, results = dg.compile(f), []
    for g in (f, compiled, compiled):
        random.seed(3)
        np.random.seed(3)
        results.append((g(25), random.random(), np.random.random()))
    assert results[0] == results[1] == results[2]
    assert not compiled.stats.side_exits


# -- exceptions -----------------------------------------------------------------------------------------------------------


def test_an_exception_is_raised_at_the_users_line():
    def f(A, n):
        x = np.ones(3)
        for i in range(n):
            A[2] -= 0.1 * i
            x[0] = i
            if i == 7:
                A[1] = A[0]
            x = np.linalg.solve(A, x)
        return x

    check(f, A, 20, exits=2)


def test_a_handler_around_the_call_sees_it_once():
    def f(A, n):
        x, failed, after = np.ones(3), 0, 0
        for i in range(n):
            try:
                x[0] += 1.0
                x = np.linalg.solve(A, x)
                after += 1
            except np.linalg.LinAlgError:
                failed += 1
                A[1, 1] = 3.0
            if i % 5 == 3:
                A[1] = A[0]
        return x, failed, after

    compiled = check(f, A, 20, exits=8)
    assert any("a call raises" in key for key in compiled.stats.side_exits)


def inverted(A):
    scaled = A * 2.0
    return np.linalg.inv(scaled)


def test_an_exception_within_an_inlined_call():
    def f(A, n):
        x = np.ones(3)
        for i in range(n):
            x = inverted(A) @ x
            if i == 6:
                A[1] = A[0]
        return x

    check(f, A, 20, exits=2)


def test_an_exception_keeps_its_context_and_frames():
    def f(A, n):
        for i in range(n):
            A = np.linalg.inv(A) * float(i - 5)
        return A

    errors = []
    for g in (f, dg.compile(f)):
        with pytest.raises(np.linalg.LinAlgError) as caught:
            try:
                raise KeyError("before")
            except KeyError:
                g(A.copy(), 20)
        errors.append(caught.value)
    compiled = errors[1]
    assert isinstance(compiled.__context__, KeyError)
    names = [[frame.name for frame in traceback.extract_tb(e.__traceback__)][1:] for e in errors]
    assert names[0] == names[1]
    assert f.__name__ in names[0]


# -- other types ------------------------------------------------------------------------------------------------------------


def test_a_result_of_another_type_leaves_the_loop_behind_the_call():
    def f(x, n):
        s = 0
        for i in range(n):
            k = math.comb(4 * i, 2 * i)
            s += k * x[0]
        return s, k

    check(f, X, 20, exits=6)

    def g(A, n):
        s = 0.0
        for i in range(n):
            A[0, 0] = i - 5.0
            w = np.emath.sqrt(A[0])
            s = s + w[0]
        return s

    check(g, A, 12, native=False)


def test_a_result_of_another_type_is_stored_next():
    def f(h, n):
        best = 0
        for i in range(n):
            x = math.comb(int(h[i]), 33)
            best = x
        return best, x

    check(f, np.array([40, 70, 80, 40, 70, 71, 72, 50, 80, 40]), 10, exits=12)


def test_a_result_of_another_type_within_an_inlined_call():
    def middle(k):
        return math.comb(2 * k, k) + 1

    def f(x, n):
        s = 0
        for i in range(n):
            s += middle(i + 30) % 5 * x[0]
        return s

    check(f, X, 12, exits=10)


# -- warnings, threads ----------------------------------------------------------------------------------------------------


def test_warnings_name_the_users_line():
    def f(x, n):
        s = 0.0
        for i in range(n):
            x[0] = 2.0 - i
            s += np.linalg.norm(np.sqrt(x), axis=0)
        return s

    found = []
    for g in (f, dg.compile(f)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            g(X.copy(), 2)
        found.append([(w.category, w.filename, w.lineno) for w in caught])
    assert found[0] == found[1]


def test_other_threads_have_their_turn():
    def f(x, n):
        s = 0.0
        for _ in range(n):
            s += np.sort(x)[0]
        return s

    compiled = dg.compile(f)
    compiled(X, 10)
    turns, done = [0], threading.Event()

    def count():
        while not done.is_set():
            turns[0] += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        assert compiled(X, 200_000) == f(X, 1) * 200_000
    finally:
        done.set()
        thread.join()
    assert turns[0] > 10


def test_lists_that_others_see_are_not_left_behind():
    def f(given, x, n):
        for i in range(n):
            given.append(float(i))
            x = np.sort(x)
            given[0] += x[0]
        return x

    check(f, [0.0], X, 12, native=False)


def test_calls_out_are_named_and_counted():
    compiled = check(sorts, X, 20)
    first = sorts.__code__.co_firstlineno
    assert compiled.stats.calls_out == {
        f"test_calls_out.py:{first + 3}: a call of sort": 40,
        f"test_calls_out.py:{first + 4}: a call of argsort": 40,
    }
    (loop,) = compiled.programs[0].loops
    assert f"calls line {first + 3} (a call of sort), line {first + 4} (a call of argsort) out" in loop
    assert "Python does" not in loop


stopped = False


def test_what_a_signals_handler_sets_is_seen():
    def f(x, most):
        n = 0
        while not stopped and n < most:
            x = np.sort(x) * 0.5 + 1.0
            n += 1
        return n

    def handle(*_):
        global stopped
        stopped = True

    global stopped
    compiled = dg.compile(f)
    before = signal.signal(signal.SIGALRM, handle)
    try:
        compiled(X, 30)
        assert not stopped
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        assert compiled(X, 10**9) < 10**9
    finally:
        signal.signal(signal.SIGALRM, before)
        stopped = False


@pytest.mark.parametrize("name", ["resize", "setflags", "tofile", "dump"])
def test_methods_that_change_more_than_elements_are_not_called_out(name, tmp_path):
    arguments = {"resize": "((3, 2), refcheck=False)", "setflags": "(write=False)"}.get(name, f"({str(tmp_path / 'file')!r})")
    space = {}
    exec(f"def f(x, n):\n    for i in range(n):\n        x.{name}{arguments}\n    return x.shape, x.flags.writeable", space)
    compiled = dg.compile(space["f"])
    assert compiled(np.zeros(6), 12) == space["f"](np.zeros(6), 12)
    assert not compiled.stats.calls_out
