"""Single random numbers that native loops draw by NumPy's own functions, and by Python's twister."""

from __future__ import annotations

import random
import threading

import numpy as np
import pytest

import dynagraph as dg


def floats(rng, n):
    s = np.zeros(n)
    for i in range(n):
        s[i] = rng.random() + rng.normal() * rng.standard_normal() - rng.normal(1, 0.5) + rng.standard_exponential()
        s[i] += rng.uniform() + rng.uniform(-2, i + 1.0) * rng.exponential() / rng.exponential(2.0)
    return s


def ints(rng, n):
    s = 0
    for i in range(n):
        s = 3 * s % 1000003 + rng.integers(6) * rng.integers(-5, 6) + rng.integers(0, 2**40) % 11 + rng.integers(i, i + 1)
        s += int(rng.integers(-(2**63), 2**63 - 1)) % 7 + int(rng.integers(2**32)) % 5
    return s


def legacy(rng, n):
    s = 0.0
    for _ in range(n):
        s += rng.random() + rng.rand() * rng.random_sample() + rng.uniform(-1.0, 3.0) + rng.randint(6) + rng.randint(-3, 100000)
    return s


def walks(rng, n):
    x = 0.0
    for _ in range(n):
        if rng.random() < 0.5:
            x += rng.random()
    return x


def state_of(rng):
    if isinstance(rng, np.random.Generator):
        return repr(rng.bit_generator.state)
    return repr(rng.getstate() if isinstance(rng, random.Random) else rng.get_state())


MAKERS = {
    "PCG64": lambda: np.random.Generator(np.random.PCG64(3)),
    "MT19937": lambda: np.random.Generator(np.random.MT19937(3)),
    "Philox": lambda: np.random.Generator(np.random.Philox(3)),
    "RandomState": lambda: np.random.RandomState(3),
    "Random": lambda: random.Random(3),
}


@pytest.mark.parametrize(
    ("f", "makers"),
    [
        (floats, ("PCG64", "MT19937", "Philox")),
        (ints, ("PCG64", "MT19937", "Philox")),
        (legacy, ("RandomState",)),
        (walks, tuple(MAKERS)),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_draws_are_those_of_plain_python(f, makers):
    compiled = dg.compile(f)
    for maker in makers:
        one, other = MAKERS[maker](), MAKERS[maker]()
        for n in (50, 0, 1, 400):
            wanted, got = f(one, n), compiled(other, n)
            assert type(wanted) is type(got)
            assert np.array_equal(wanted, got), (maker, n)
            assert state_of(one) == state_of(other)
    assert any("runs as machine code" in loop for p in compiled.programs for loop in p.loops)
    assert not compiled.stats.side_exits


def test_draws_of_the_modules_and_of_generators_that_are_made_in_the_function():
    def f(n):
        random.seed(4)
        np.random.seed(4)
        rng = np.random.default_rng(4)
        s = 0.0
        for _ in range(n):
            s += random.random() + np.random.rand() + rng.normal() + np.random.randint(9)
        return s, random.random(), np.random.random(), rng.random()

    compiled = dg.compile(f)
    for n in (30, 31, 0, 700):
        assert compiled(n) == f(n)
    assert not compiled.stats.side_exits


@pytest.mark.parametrize("scale", [1.0, 0.0, -1.0, float("nan")])
def test_what_a_draw_raises(scale):
    def f(rng, scale, n):
        s = 0.0
        for i in range(n):
            s += rng.normal(0.0, scale if i > 5 else 1.0)
            s += rng.uniform(0.0, float("inf") if i > 8 and scale == 0.0 else 1.0)
            s += rng.integers(0, 9 - i if scale == 1.0 else 3)
        return s

    compiled, found = dg.compile(f), []
    for g in (f, compiled, compiled):
        rng = np.random.default_rng(2)
        try:
            result = repr(g(rng, scale, 20))
        except (ValueError, OverflowError) as error:
            result = repr(error), error.__traceback__.tb_next.tb_lineno
        found.append((result, rng.random()))
    assert found[0] == found[1] == found[2]


def test_draws_and_calls_out_take_turns():
    def f(rng, n):
        s = np.zeros(4)
        for i in range(n):
            s[i % 4] += rng.normal()
            s += rng.normal(size=4)
            s[rng.integers(4)] = 0.0
        return s

    compiled = dg.compile(f)
    one, other = np.random.default_rng(1), np.random.default_rng(1)
    for n in (20, 33):
        assert np.array_equal(f(one, n), compiled(other, n))
        assert state_of(one) == state_of(other)


def test_threads_share_a_generator():
    """Each draw is made once, whoever makes it."""

    @dg.compile
    def f(rng, out):
        for i in range(len(out)):
            out[i] = rng.random()

    rng, n = np.random.default_rng(7), 20_000
    f(rng, np.zeros(5))
    outs = [np.zeros(n) for _ in range(4)]
    threads = [threading.Thread(target=f, args=(rng, out)) for out in outs]
    drawn = [np.zeros(0)]

    def fill():
        drawn[0] = np.concatenate([rng.random(2_000) for _ in range(20)])

    threads.append(threading.Thread(target=fill))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = np.sort(np.concatenate([*outs, *drawn]))
    other = np.random.default_rng(7)
    other.random(5)
    assert np.array_equal(found, np.sort(other.random(len(found))))


def test_a_draw_is_not_moved_out_of_the_loop():
    def f(rng, out, n):
        for i in range(n):
            out[i] = 1.0 / float(rng.integers(0, 50) - 1)
        return out

    compiled, found = dg.compile(f), []
    for g in (f, compiled, compiled):
        rng, out = np.random.default_rng(12), np.zeros(200)
        with pytest.raises(ZeroDivisionError):
            g(rng, out, 200)
        found.append((out.tolist(), rng.random()))
    assert found[0] == found[1] == found[2]


def module_functions(n):
    random.seed(n)
    s = 0.0
    for i in range(n):
        s += random.uniform(-1.0, i) + random.gauss(0.5, 2.0) + random.expovariate(1.5) + random.triangular(0.0, 2.0, 0.5)
        s += random.randint(1, 6) + random.randrange(1 + i) * random.randint(-5, 2**33) + random.getrandbits(1 + i % 62) % 7
    return s, random.getstate()


def methods(rng, n):
    s = 0.0
    for i in range(n):
        s += rng.uniform(-1.0, i) * rng.random() + rng.gauss(0.0, 1.0) + rng.normalvariate(0.0, 1.0) + rng.randint(0, i)
        s += rng.getrandbits(40) % 9 + rng.betavariate(2.0, 3.0)
    return s, rng.getstate()


def test_functions_of_random_that_python_has():
    compiled = dg.compile(module_functions)
    for n in (30, 0, 5, 500):
        assert compiled(n) == module_functions(n)
    compiled = dg.compile(methods)
    for n in (30, 0, 5, 500):
        assert compiled(random.Random(n), n) == methods(random.Random(n), n)


def test_what_functions_of_random_raise():
    def f(n):
        random.seed(3)
        s = 0
        for i in range(n):
            s += random.randint(i, 12)
        return s

    compiled = dg.compile(f)
    assert compiled(10) == f(10)
    found = []
    for g in (f, compiled, compiled):
        with pytest.raises(ValueError, match="empty range"):
            g(20)
        found.append(random.random())
    assert found[0] == found[1] == found[2]
