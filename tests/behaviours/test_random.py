"""Random numbers: every stream is that of the plain run, in order, whatever breaks, raises or is refused in between.

Each test compares calls, one after the other: results, the generators' states after each of them, and how many graphs broke.
"""

from __future__ import annotations

import copy
import functools
import pickle
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import dynagraph as dg

GENERATOR = np.random.Generator
LEGACY = np.random.RandomState
ONE, BREAKS = 0, None  # how many breaks are admitted; None: any number


@pytest.fixture(autouse=True)
def the_global_streams() -> Iterator[None]:
    """np.random and random as they were."""
    state, other = np.random.get_state(), random.getstate()
    np.random.seed(5)
    random.seed(5)
    yield
    np.random.set_state(state)
    random.setstate(other)


class Holder:
    def __init__(self, **fields: Any):
        vars(self).update(fields)


def state_of(value: Any) -> Any:
    """A value in a form that is equal for equal streams."""
    if isinstance(value, GENERATOR):
        return state_of(value.bit_generator.state)
    if isinstance(value, LEGACY):
        return state_of(value.get_state(legacy=False))
    if isinstance(value, random.Random):
        return value.getstate()
    if isinstance(value, (tuple, list)):
        return [type(value).__name__, *map(state_of, value)]
    if isinstance(value, dict):
        return {k: state_of(v) for k, v in value.items()}
    if isinstance(value, Holder):
        return state_of(vars(value))
    if isinstance(value, np.ndarray):
        return [value.dtype.str, value.shape, value.flags.writeable, value.tobytes()]
    return [type(value).__name__, repr(value)]


def outcome(function: Callable, args: tuple) -> Any:
    try:
        return function(*args)
    except Exception as error:
        return [type(error).__name__, str(error)]


def observed(function: Callable, args: tuple, calls: int) -> list[Any]:
    seen = []
    for _ in range(calls):
        result = outcome(function, args)
        seen.append(state_of([result, list(args), np.random.get_state(legacy=False), random.getstate()]))
    return seen


def check(function: Callable, make: Callable[[], tuple] = lambda: (), breaks: int | None = ONE, calls: int = 4,
          backend: str = "reference", whole: bool = True) -> Any:
    """Compare plain calls with compiled ones, each on arguments of its own; `whole`: whether there is a program at all."""
    before, other = np.random.get_state(), random.getstate()
    want = observed(function, make(), calls)
    np.random.set_state(before)
    random.setstate(other)
    compiled = dg.compile(function, backend=backend)
    with dg.config.override(strict=True):
        got = observed(compiled, make(), calls)
    for number, (a, b) in enumerate(zip(want, got), 1):
        assert a == b, f"call {number}"
    reasons = "\n".join(compiled.stats.breaks)
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error
    assert breaks is None or sum(compiled.stats.breaks.values()) <= breaks, reasons
    assert not whole or compiled.programs, reasons
    return compiled


def fresh() -> tuple:
    return (np.random.default_rng(11),)


def legacy() -> tuple:
    return (np.random.RandomState(11),)


# -- every method -----------------------------------------------------------------------------------------------------------------

DISTRIBUTIONS: dict[str, tuple] = {
    "beta": (2.0, 3.0), "binomial": (10, 0.3), "chisquare": (2.0,), "dirichlet": ([1.0, 2.0, 3.0],), "exponential": (2.0,),
    "f": (2.0, 3.0), "gamma": (2.0, 0.5), "geometric": (0.3,), "gumbel": (0.5, 2.0), "hypergeometric": (5, 6, 4),
    "laplace": (0.5, 2.0), "logistic": (0.5, 2.0), "lognormal": (0.1, 0.5), "logseries": (0.5,),
    "multinomial": (10, [0.2, 0.3, 0.5]), "multivariate_normal": ([0.0, 1.0], [[1.0, 0.5], [0.5, 2.0]]),
    "negative_binomial": (5, 0.4), "noncentral_chisquare": (2.0, 1.0), "noncentral_f": (2.0, 3.0, 1.0), "normal": (1.0, 2.0),
    "pareto": (3.0,), "poisson": (3.0,), "power": (2.0,), "rayleigh": (2.0,), "standard_cauchy": (), "standard_exponential": (),
    "standard_gamma": (2.0,), "standard_normal": (), "standard_t": (3.0,), "triangular": (0.0, 1.0, 3.0), "uniform": (-1.0, 2.0),
    "vonmises": (0.5, 2.0), "wald": (1.0, 2.0), "weibull": (2.0,), "zipf": (3.0,), "random": (), "choice": (7,),
}  # fmt: skip
OF_GENERATOR = {**DISTRIBUTIONS, "integers": (3, 9), "multivariate_hypergeometric": ([5, 6, 7], 4)}
OF_LEGACY = {**DISTRIBUTIONS, "randint": (3, 9), "random_sample": (), "tomaxint": ()}
NO_DRAWS = {
    "bytes", "permutation", "permuted", "shuffle", "spawn", "bit_generator", "get_state", "set_state", "seed", "rand", "randn",
    "random_integers",
}  # fmt: skip


@pytest.mark.parametrize("kind, rows", [(GENERATOR, OF_GENERATOR), (LEGACY, OF_LEGACY)])
def test_the_tables_hold_every_method(kind: type, rows: dict) -> None:
    assert {name for name in vars(kind) if name[0] != "_"} == set(rows) | (NO_DRAWS & set(dir(kind)))


def forms(name: str, args: tuple) -> Callable:
    """Draws of several sizes, among arithmetic."""

    def f(rng, x):
        draw = getattr(rng, name)
        several, table = draw(*args, size=3), draw(*args, size=(2, x.shape[0]))
        none = draw(*args, size=0)
        point = draw(*args, size=())
        return several * x[0], table + 1, none, table, point

    return f


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", OF_GENERATOR)
def test_method_of_a_generator(name: str) -> None:
    point_is_whole = name not in ("dirichlet", "multinomial")
    check(forms(name, OF_GENERATOR[name]), lambda: (*fresh(), np.arange(4.0)), ONE if point_is_whole else BREAKS)


@pytest.mark.parametrize("name", OF_LEGACY)
def test_method_of_a_legacy_generator(name: str) -> None:
    check(forms(name, OF_LEGACY[name]), lambda: (*legacy(), np.arange(4.0)), ONE)


@pytest.mark.parametrize("name", sorted(OF_LEGACY.keys() - {"tomaxint"}))
def test_function_of_the_module(name: str) -> None:
    draws = forms(name, OF_LEGACY[name])

    def f(x):
        return draws(np.random, x)

    check(f, lambda: (np.arange(4.0),))


@pytest.mark.parametrize("kind", ["generator", "legacy"])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_single_draw(name: str, kind: str) -> None:
    args = DISTRIBUTIONS[name]

    def f(rng, x):
        return x + 1, getattr(rng, name)(*args)

    drawn = type(getattr(np.random.default_rng(0), name)(*args))
    make = fresh if kind == "generator" else legacy
    check(f, lambda: (*make(), np.arange(3.0)), BREAKS if drawn is int or kind == "legacy" else ONE)


def test_dtypes_methods_and_keywords() -> None:
    def f(rng, x):
        return (
            rng.random(3, dtype=np.float32) * x, rng.standard_normal((2, 3), "float32"),
            rng.standard_exponential(size=3, method="inv"),
            rng.standard_gamma(2.0, 3, dtype="f"), rng.integers(5, size=3, dtype=np.int32), rng.integers(0, 5, 3, endpoint=True),
            rng.integers(low=2, high=9, size=(3,), dtype="uint8"),
            rng.normal(scale=2.0, size=3), rng.normal(size=[3], loc=1), rng.choice(9, size=(2, 2), replace=False, shuffle=False),
            rng.choice(4, 3, p=[0.1, 0.2, 0.3, 0.4]), rng.choice([1.5, 2.5, 3.5], 3), rng.choice((3, 4), 2),
            rng.multivariate_normal([0.0, 1.0], [[1.0, 0.0], [0.0, 1.0]], 3, method="cholesky"), rng.permutation(5),
            rng.normal([0.0, 10.0, 20.0], 1.0) + x, rng.normal([0.0, 10.0], [[1.0], [2.0]], (2, 2)), rng.random() + x,
            rng.integers(5) + x, rng.integers(3, dtype=np.int16) + x,
        )  # fmt: skip

    for backend in ("reference", "c", "numpy"):
        check(f, lambda: (*fresh(), np.arange(3.0)), backend=backend)


def test_dtypes_and_keywords_of_the_legacy_generator() -> None:
    def f(rng, x):
        return (
            rng.randint(5, size=3, dtype=np.int32) + x, rng.randint(low=2, high=9, size=(3,)), rng.rand(2, 3), rng.randn(3) * x,
            rng.choice(9, (2, 2), False), rng.choice(4, 3, p=[0.1, 0.2, 0.3, 0.4]), rng.permutation(6), rng.rand() * x,
            rng.randn() + x, rng.normal(size=x.shape), rng.random_sample() * x, rng.standard_normal(),
        )  # fmt: skip

    check(f, lambda: (*legacy(), np.arange(3.0)))


# -- where generators come from ---------------------------------------------------------------------------------------------------

module_generator = np.random.default_rng(3)


def test_generators_of_a_global_an_attribute_a_closure_and_a_container() -> None:
    def f(holder, held, x):
        global module_generator
        a = module_generator.random(3) + holder.rng.random(3)
        return a * inner.normal(size=3) + held[0].random() + held[1]["r"].rand(3) + x, module_generator

    def make() -> tuple:
        global module_generator
        nonlocal inner
        module_generator, inner = np.random.default_rng(3), np.random.default_rng(4)
        return Holder(rng=np.random.default_rng(5)), (np.random.default_rng(6), {"r": np.random.RandomState(7)}), np.ones(3)

    inner = np.random.default_rng(4)
    check(f, make)


def test_generators_may_be_others_in_later_calls() -> None:
    compiled = dg.compile(lambda a, b, x: (a.random(2) + x, b.random(2) + x, a.random(2)), backend="reference")
    plain = compiled.__wrapped__
    one, other = np.random.default_rng(1), np.random.Generator(np.random.MT19937(2))
    mine, its = copy.deepcopy((one, other))
    for a, b, c, d in ((one, other, mine, its), (other, one, its, mine), (one, one, mine, mine), (one, other, mine, its)):
        assert state_of(compiled(a, b, np.ones(2))) == state_of(plain(c, d, np.ones(2)))
        assert state_of((one, other)) == state_of((mine, its))
    assert not compiled.stats.breaks


def test_made_inside() -> None:
    def f(x):
        rng, old = np.random.default_rng(7), np.random.RandomState(8)
        other = np.random.Generator(np.random.MT19937(9))
        return rng.normal(size=3) * x + old.rand(3) + other.random(), rng.integers(0, 9, 4)

    check(f, lambda: (np.ones(3),))
    check(f, lambda: (np.ones(3),), backend="c")


def test_made_inside_and_handed_out() -> None:
    def f(holder, x):
        rng = np.random.default_rng(7)
        holder.rng = rng
        holder.first = rng.random(3)
        first = holder.first
        first *= 2
        return rng, [rng], x * first, first, first[1:]

    compiled = check(f, lambda: (Holder(), np.ones(3)))
    holder = Holder()
    rng, held, _, first, part = compiled(holder, np.ones(3))
    assert rng is held[0] is holder.rng and first is holder.first and part.base is first
    assert compiled(holder, np.ones(3))[0] is not rng


def test_made_inside_without_a_seed() -> None:
    compiled = dg.compile(lambda x: np.random.default_rng().random(3) + x, backend="reference")
    results = {compiled(np.zeros(3)).tobytes() for _ in range(4)}
    assert len(results) == 4 and not compiled.stats.breaks


def test_seeds_that_change() -> None:
    def f(seed, x):
        rng = np.random.default_rng(seed)
        np.random.seed(seed)
        old = np.random.RandomState(seed + 1)
        return rng.normal(size=x.shape) + old.rand(len(x)) + np.random.rand(len(x)) * x

    compiled = dg.compile(f, backend="reference")
    for seed in (4, 9, 4, 12, 0, 33):
        assert state_of(compiled(seed, np.ones(3))) == state_of(f(seed, np.ones(3)))
    assert not compiled.stats.breaks and compiled.stats.compiles <= 3


def test_a_generator_or_a_seed() -> None:
    def f(rng, x):
        rng = np.random.default_rng(rng)
        return rng.random(3) + x, isinstance(rng, np.random.Generator), rng is None, rng

    check(f, lambda: (*fresh(), np.ones(3)))
    check(f, lambda: (3, np.ones(3)))


def test_seeding() -> None:
    def f(rng, x):
        rng.seed(4)
        np.random.seed(5)
        a = rng.rand(3) + np.random.rand(3)
        np.random.seed(6)
        return a * x, np.random.normal(size=2)

    check(f, lambda: (*legacy(), np.ones(3)))


# -- order ------------------------------------------------------------------------------------------------------------------------


def test_loops_sizes_and_functions() -> None:
    def walk(rng, n):
        total = np.zeros(n)
        for _ in range(5):
            total = total + rng.standard_normal(n)
        return total

    def f(rng, x):
        steps = [rng.random() for _ in range(3)]
        places = [rng.integers(0, len(x), 2) for _ in range(2)]
        return walk(rng, len(x)) * x + steps[0] + steps[1], places, rng.permutation(len(x)), steps

    plainly, compiledly = fresh()[0], fresh()[0]
    compiled = dg.compile(f, backend="reference")
    for n in (3, 4, 7, 9, 4, 1):
        assert state_of(compiled(compiledly, np.ones(n))) == state_of(f(plainly, np.ones(n)))
        assert state_of(compiledly) == state_of(plainly)
    assert not compiled.stats.breaks and compiled.stats.compiles <= 4


def test_the_sum_of_floats_that_are_drawn() -> None:
    """From 3.12 on it is not what additions give."""
    check(lambda rng, x: x * sum([rng.random() * 1e9, rng.random(), rng.random() * 1e-8]), lambda: (*fresh(), np.ones(2)), BREAKS)


def test_many_draws_in_a_loop() -> None:
    def f(rng, x):
        total = 0.0
        for _ in range(230):
            total = total + rng.random()
        return x + total

    check(f, lambda: (*fresh(), np.ones(2)), BREAKS)


def test_choices_among_as_many_as_there_are() -> None:
    def f(rng, x, k):
        return x + 1, rng.choice(len(x), k), rng.choice(len(x), k, replace=False), rng.integers(1, len(x), size=k)

    plainly, compiledly = fresh()[0], fresh()[0]
    compiled = dg.compile(f, backend="reference")
    for n, k in ((5, 3), (6, 4), (9, 9), (4, 5), (5, 2), (8, 7)):
        assert state_of(outcome(compiled, (compiledly, np.ones(n), k))) == state_of(outcome(f, (plainly, np.ones(n), k)))
        assert state_of(compiledly) == state_of(plainly)


def test_breaks_between_draws() -> None:
    def f(rng, x):
        a = rng.random(3)
        state = rng.bit_generator.state["state"]
        b = rng.random(3) * x
        if b.sum() > 1.5:
            b = b + rng.normal()
        rng.shuffle(x)
        c = rng.normal(b, 1.0)
        d = rng.poisson(3.0)
        return a + b + c, state, rng.permutation(x), d + rng.random(), pickle.dumps(rng), rng.spawn(1)[0].random()

    check(f, lambda: (*fresh(), np.arange(3.0)), BREAKS)


def test_states_of_the_legacy_generator_between_draws() -> None:
    def f(rng, x):
        a = rng.randn(3) * x
        state = rng.get_state(legacy=False)
        b = rng.randn(3)
        rng.set_state(state)
        outer = np.random.get_state(legacy=False)
        c = np.random.rand(2)
        np.random.set_state(outer)
        return a, b, rng.randn(3) + x, c, np.random.rand(2), state

    check(f, lambda: (*legacy(), np.ones(3)), BREAKS)


def test_an_unknown_function_draws_in_between() -> None:
    def f(rng, x):
        a = rng.random(3) * x
        b = sorted([0.5], key=lambda _: 0)[0] + eager(rng)
        return a + b + rng.random(3)

    eager = dg.disable(lambda rng: rng.random())
    check(f, lambda: (*fresh(), np.ones(3)), BREAKS)


def test_effects_that_may_draw_come_first() -> None:
    class Output:
        def write(self, text: str) -> None:
            seen.append(rng.random())

        def flush(self) -> None:
            pass

    def f(x):
        y = x + rng.random()
        print("a line", file=output)
        return y * rng.random()

    seen: list[float] = []
    rng, output = np.random.default_rng(1), Output()

    def make() -> tuple:
        nonlocal rng
        rng = np.random.default_rng(1)
        seen.clear()
        return (np.ones(2),)

    check(f, make, BREAKS)


def test_copies_comparisons_and_texts() -> None:
    def f(rng, x):
        a = rng.random(3) * x
        made = np.random.default_rng(3)
        made.random()
        other, twin = copy.deepcopy(rng), copy.copy(made)
        text = f"{made}"[:9] + str(rng)[:9] + repr(made)[:9]
        same = made is rng, made == rng, made in [rng, made], {made: 1}[made], bool(made), made is not None, id(made) == id(made)
        return a, rng.random() + x, other.random(), twin.random(), text, same, hasattr(made, "random"), callable(made.random)

    check(f, lambda: (*fresh(), np.ones(3)), BREAKS)


def test_bound_methods_as_values() -> None:
    def f(rng, x):
        draw, normal = rng.random, functools.partial(rng.normal, 1.0, size=3)
        made = np.random.default_rng(3).random
        return draw(3) * x + normal() + made(), list(map(rng.random, (1, 2)))

    check(f, lambda: (*fresh(), np.ones(3)))


def test_draws_that_are_written_to() -> None:
    def f(rng, x):
        a, b, c = rng.random(4), rng.random((2, 2)), rng.random(4)
        a[1:] = x
        a += 1
        b[0] *= 2
        view = b[1]
        view[0] = 7
        c[0] = 5
        x[0] = c.sum()
        return a, b, view, a, x

    for backend in ("reference", "c", "numpy"):
        compiled = check(f, lambda: (*fresh(), np.ones(3)), backend=backend)
    a, b, view, again, _ = compiled(*fresh(), np.ones(3))
    assert a is again and view.base is b


# -- errors -----------------------------------------------------------------------------------------------------------------------


def test_an_index_out_of_bounds_behind_a_draw() -> None:
    def f(rng, x, places):
        a = rng.random(3)
        return x[places] + a.sum(), x[rng.integers(0, 5, 3)]

    rng = np.random.default_rng(1)
    compiled, twin = dg.compile(f, backend="reference"), np.random.default_rng(1)
    for places in ([0, 1], [4, 4], [1, 9], [2, 3]):
        given = np.arange(5.0), np.array(places)
        assert state_of(outcome(compiled, (rng, *given))) == state_of(outcome(f, (twin, *given)))
        assert state_of(rng) == state_of(twin)


def test_an_index_out_of_bounds_before_a_draw() -> None:
    def f(rng, x, places):
        y = x[places]
        np.random.seed(7)
        return y + rng.random(2) + np.random.rand(2)

    rng = np.random.default_rng(1)
    compiled, twin = dg.compile(f, backend="reference"), np.random.default_rng(1)
    for places in ([0, 1], [4, 4], [1, 9], [2, 3]):
        given = np.arange(5.0), np.array(places)
        np.random.seed(1)
        want = outcome(f, (twin, *given)), np.random.get_state(legacy=False)
        np.random.seed(1)
        got = outcome(compiled, (rng, *given)), np.random.get_state(legacy=False)
        assert state_of(got) == state_of(want)
        assert state_of(rng) == state_of(twin)


def test_generators_made_inside_do_not_hinder_indices() -> None:
    def f(x, places):
        rng = np.random.default_rng(3)
        np.random.seed(4)
        return x[places] + rng.random() + np.random.rand(), rng

    compiled = dg.compile(f, backend="reference")
    for places in ([0, 1], [4, 4], [1, 9], [2, 3]):
        given = np.arange(5.0), np.array(places)
        assert state_of(outcome(compiled, given)) == state_of(outcome(f, given))
    assert not compiled.stats.breaks and compiled.stats.refusals == 1


def test_functions_of_numpy_that_raise_around_draws() -> None:
    """An external call may raise, and then the whole call runs eagerly: it must not draw twice."""

    def f(rng, x):
        made = np.random.default_rng(3).random(2)
        low = np.linalg.cholesky(x)
        a = np.sort(rng.random(2) @ low)
        return a, np.linalg.inv(x - 1) @ rng.random(2), made

    def own(rng, x):
        made = np.random.default_rng(3)
        return made.random(2) @ np.linalg.cholesky(x), made.random()

    rng, twin = np.random.default_rng(1), np.random.default_rng(1)
    for function in (f, own):
        compiled = dg.compile(function, backend="reference")
        for x in (np.eye(2) * 4, np.eye(2) * 9, -np.eye(2), np.ones((2, 2)) + np.eye(2), np.eye(2) + 1, np.eye(2) * 4):
            assert state_of(outcome(compiled, (rng, x))) == state_of(outcome(function, (twin, x)))
            assert state_of(rng) == state_of(twin)
    assert not compiled.stats.breaks and compiled.stats.refusals == 1


def test_a_legacy_generator_that_is_sometimes_the_global_one() -> None:
    def f(rng, x, places):
        np.random.seed(4)
        a = rng.rand()
        return x[places] + a

    compiled = dg.compile(f, backend="reference")
    hidden = np.random.mtrand._rand
    for rngs, places in (((hidden, hidden), [0]), (legacy() * 2, [9]), ((hidden, hidden), [9]), (legacy() * 2, [1])):
        ours, theirs = rngs[0], rngs[1] if rngs[1] is hidden else copy.deepcopy(rngs[1])
        given = np.arange(5.0), np.array(places)
        want = state_of([outcome(f, (theirs, *given)), theirs])
        assert state_of([outcome(compiled, (ours, *given)), ours]) == want


@pytest.mark.parametrize("bad", [
    lambda rng: rng.normal(0.0, -1.0), lambda rng: rng.integers(5, 5), lambda rng: rng.random((2, -1)), lambda rng: rng.random("3"),
    lambda rng: rng.choice(3, 5, replace=False), lambda rng: rng.choice(3, p=[1.0, 1.0, 1.0]), lambda rng: rng.binomial(3, 1.5),
    lambda rng: rng.normal(size=3, scale=None), lambda rng: rng.nothing(), lambda rng: rng.random(3, 4, 5, 6, 7),
    lambda rng: rng.normal(scale=1.0, size=(2.5,)), lambda rng: np.random.default_rng(-1), lambda rng: np.random.default_rng("a"),
    lambda rng: np.random.seed(-1), lambda rng: np.random.RandomState(1 << 40), lambda rng: np.random.Generator(3),
])  # fmt: skip
def test_what_a_draw_raises(bad: Callable) -> None:
    def outside(rng, seen, x):
        y = x + rng.random()
        seen.append(1)
        return y + bad(rng) + rng.random()

    def inside(rng, seen, x):
        y = x + rng.random()
        seen.append(1)
        try:
            bad(rng)
        except Exception as error:
            seen.append(type(error).__name__)
        return y + rng.random()

    check(outside, lambda: (*fresh(), [], np.ones(2)), BREAKS, whole=False)
    check(inside, lambda: (*fresh(), [], np.ones(2)), BREAKS)


def test_errors_of_values_that_change() -> None:
    def f(rng, scale, x):
        x[0] += 1
        return rng.normal(0.0, scale, 2) + x

    compiled, rng, twin = dg.compile(f, backend="reference"), *fresh(), *fresh()
    mine, its = np.zeros(2), np.zeros(2)
    for scale in (1.0, 2.0, 3.5, -1.0, 0.25, 7.0, -2.0, 8.0, 9.0, 10.0, 11.0):
        assert state_of(outcome(compiled, (rng, scale, mine))) == state_of(outcome(f, (twin, scale, its)))
        assert state_of((rng, mine)) == state_of((twin, its))
    assert compiled.stats.compiles < 8


def test_an_exception_behind_a_draw() -> None:
    def f(rng, x, fail):
        y = rng.random(2) + x
        if fail:
            raise ValueError("afterwards")
        return y

    rng, twin = np.random.default_rng(1), np.random.default_rng(1)
    compiled = dg.compile(f, backend="reference")
    for fail in (False, True, False, True, True, False):
        assert state_of(outcome(compiled, (rng, np.ones(2), fail))) == state_of(outcome(f, (twin, np.ones(2), fail)))
        assert state_of(rng) == state_of(twin)


def test_no_draw_for_nothing() -> None:
    """A call whose guards fail, or that is captured and cannot be compiled, has drawn nothing."""
    def failing(graph: Any, example_inputs: Any) -> Any:
        raise RuntimeError("no backend")

    rng, twin = np.random.default_rng(1), np.random.default_rng(1)
    f = lambda rng, x: rng.random(2) + x  # noqa: E731
    compiled = dg.compile(f, backend=failing)
    assert state_of(compiled(rng, np.ones(2))) == state_of(f(twin, np.ones(2)))
    assert state_of(rng) == state_of(twin)


def test_subclasses_of_generators() -> None:
    class Doubled(np.random.Generator):
        def random(self, size=None):
            return 2 * super().random(size)

    def f(rng, x):
        return rng.random(3) * x, rng.normal(size=2)

    check(f, lambda: (Doubled(np.random.PCG64(1)), np.ones(3)), BREAKS, whole=False)


# -- module random ----------------------------------------------------------------------------------------------------------------


def test_functions_of_module_random() -> None:
    def f(x, own):
        y = x * random.random() + random.uniform(1, 2) + random.gauss(0.0, 1.0) + own.random() + own.betavariate(2.0, 3.0)
        z = random.lognormvariate(0.0, 1.0), random.vonmisesvariate(0.0, 1.0), random.gammavariate(2.0, 3.0), own.paretovariate(3.0)
        return y, random.normalvariate(0, 1), random.expovariate(2.0), random.triangular(0, 1, 0.5), random.weibullvariate(1, 2), z

    check(f, lambda: (np.ones(2), random.Random(3)))


def test_seeds_of_module_random() -> None:
    def f(x):
        random.seed(4)
        own = random.Random(5)
        return x * random.random() + own.gauss(0.0, 1.0), own

    check(f, lambda: (np.ones(2),))


def test_what_module_random_makes_of_objects() -> None:
    def f(x, items):
        y = x * random.random()
        random.shuffle(items)
        return y + random.randint(1, 6), random.choice(items), random.sample(items, 2), random.random() + x, random.getrandbits(5)

    check(f, lambda: (np.ones(2), [1, 2, 3]), BREAKS)


def test_subclasses_of_random() -> None:
    class Fixed(random.Random):
        def random(self):
            return 0.25

    check(lambda x, own: x * own.random() + own.uniform(1, 3), lambda: (np.ones(2), Fixed(3)), BREAKS)
