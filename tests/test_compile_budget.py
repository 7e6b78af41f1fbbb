"""What compiling may cost: plain calls have to earn what exceeds the allowance (`config.compile_budget`)."""

from __future__ import annotations

import functools
import gc
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph as dg
from dynagraph.backends import toolchain
from dynagraph.backends.registry import get_backend
from dynagraph.driver import budget as accounts
from dynagraph.driver import deadline, loading
from dynagraph.driver.budget import Account, Ledger, Needs, ledger_of
from dynagraph.driver.compilation import LONGEST_REST, REST, Compilation
from dynagraph.frontend.kinds.iterators import Numbers

X = np.arange(4.0)
LATE = 0.25  # seconds by which work may end behind its deadline


@pytest.fixture(autouse=True, scope="module")
def others_left_out() -> None:
    """Garbage collections leave out what tests before this module keep alive: one of all that would take half a second."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def budget(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """The default of half a second, and a process that has compiled nothing so far; a call makes it that again."""
    loading.compiler()  # whose time counts for the process

    def begin() -> None:
        monkeypatch.setattr(accounts, "PROCESS", Ledger(accounts.FUNCTIONS_WORTH))
        monkeypatch.setattr(accounts, "_of_code", {})

    begin()
    with dg.config.override(compile_budget=0.5), warnings.catch_warnings():
        warnings.simplefilter("ignore", dg.CompileBudgetWarning)
        yield begin


def step(x: Any, k: int) -> Any:
    return np.abs(x) * 0.5 - x[::-1] / (k + 2)


def unrolled(x: Any, n: int) -> Any:
    """Takes long to compile: every call is another step."""
    return functools.reduce(step, range(n), x)


def left_in_python(x: Any, n: int) -> Any:
    for k in range(n):
        x = step(x, k)
    return x


def edit_distance(a: str, b: str) -> Any:
    d = np.zeros((len(a) + 1, len(b) + 1))
    d[:, 0] = np.arange(len(a) + 1)
    d[0] = np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
    return d[-1, -1]


def descent(x: Any, y: Any, steps: int) -> Any:
    w = np.zeros(x.shape[1])
    for _ in range(steps):
        w = w - 0.1 * x.T @ (x @ w - y) / len(y)
    return w


def durbin(r: Any) -> Any:
    y = np.zeros_like(r)
    alpha, beta, y[0] = -r[0], 1.0, -r[0]
    for k in range(1, len(r)):
        beta = (1 - alpha * alpha) * beta
        alpha = -(r[k] + r[k - 1 :: -1][:k] @ y[:k]) / beta
        y[:k] = y[:k] + alpha * y[k - 1 :: -1][:k]
        y[k] = alpha
    return y


def cpu_seconds() -> float:
    """Of this process and the compilers that it has run: what others do on this machine takes none."""
    return sum(os.times()[:4])


def new_strings(k: int) -> tuple[str, str]:
    rng = np.random.default_rng(k)
    return "".join(rng.choice(list("abcd"), 8 + k % 7)), "".join(rng.choice(list("abcd"), 9))


def data(k: int) -> tuple[Any, Any, int]:
    rng = np.random.default_rng(k)
    return rng.random((20, 3)), rng.random(20), 1000


CASES: dict[str, tuple[Callable[..., Any], Callable[[int], tuple], int]] = {
    "strings of changing lengths": (edit_distance, new_strings, 300),
    "a thousand steps": (descent, data, 20),
    "a recursion over changing lengths": (durbin, lambda k: (0.5 ** np.arange(1.0, 35 + k % 9),), 100),
    "an unrolled loop of changing length": (unrolled, lambda k: (X, 700 + k), 50),
    "a loop left in Python, of changing length": (left_in_python, lambda k: (X, 700 + k), 50),
}


def extra_cost(name: str) -> tuple[float, str]:
    """The most seconds by which calls of a compiled function have taken more than twice its plain calls."""
    function, arguments, n = CASES[name]
    compiled = dg.compile(function)
    spent = plain = worst = 0.0
    for k in range(n):
        args = arguments(k)
        start = cpu_seconds()
        got = compiled(*args)
        between = cpu_seconds()
        want = function(*args)
        plain += cpu_seconds() - between
        spent += between - start
        worst = max(worst, spent - 2 * plain)
        np.testing.assert_allclose(got, want, rtol=1e-9)
    return worst, f"{spent:.2f} s against {plain:.2f} s, {compiled.stats}"


@pytest.mark.parametrize("name", CASES)
def test_a_compiled_function_costs_at_most_twice_the_plain_calls_and_half_a_second(name: str, budget: Callable[[], None]) -> None:
    costs = [extra_cost(name)]
    if costs[0][0] >= 0.5 + LATE:  # compilers of other tests may have ended meanwhile, and count: what costs too much does so again
        budget()
        costs.append(extra_cost(name))
    assert min(costs)[0] < 0.5 + LATE, costs


def test_what_takes_too_long_is_put_off_and_said_once() -> None:
    compiled = dg.compile(unrolled)
    with dg.config.override(compile_budget=0.05), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            compiled(X, 1000)
    stats = compiled.stats
    assert stats.compiles == 0 and stats.hits == 0 and stats.put_off >= 1 and stats.compile_seconds < 0.05 + 4 * LATE
    assert [w.category for w in said] == [dg.CompileBudgetWarning]
    assert "unrolled: compiling would cost more than its calls have taken so far" in str(said[0].message)
    assert "mode='max'" in str(said[0].message)
    assert any("compiling takes longer than plain calls have earned" in reason for reason in stats.breaks)


def test_what_was_put_off_is_compiled_when_it_is_earned() -> None:
    compiled = dg.compile(lambda x: unrolled(x, 60))
    with dg.config.override(compile_budget=0.03, stay_eager=False):
        compiled(X)
        assert compiled.stats.compiles == 0
        end = time.perf_counter() + 60
        while not compiled.stats.compiles and time.perf_counter() < end:
            compiled(X)
    assert compiled.stats.compiles == 1
    assert compiled.stats.compile_seconds < compiled.stats.earned_seconds + 0.03 + 4 * LATE


def test_looking_whether_it_is_time_takes_a_small_part_of_short_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[float] = []

    def timed(self: Compilation, function: Any, values: tuple) -> Any:
        start = time.perf_counter()
        try:
            return entry_for(self, function, values)
        finally:
            looks.append(time.perf_counter() - start)

    entry_for = Compilation.entry_for
    monkeypatch.setattr(Compilation, "entry_for", timed)
    compiled = dg.compile(unrolled)
    with dg.config.override(compile_budget=0.05):
        start = time.perf_counter()
        for _ in range(800):
            compiled(X, 40)
        plain = time.perf_counter() - start - sum(looks)
    assert compiled.stats.compiles == 0
    looks = [look for look in looks if look < accounts.LEAST]  # no attempts
    assert 1 < len(looks) < 160
    assert sum(looks) < plain / 15


def test_looks_at_the_frames_of_a_broken_part_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[tuple[Any, ...]] = []

    def noted(*asked: Any) -> Any:
        looks.append(asked)
        return on_frame(*asked)

    def short(x: Any, k: int) -> Any:
        return x * k

    def calls(x: Any, n: int) -> list[Any]:
        time.time()  # not captured
        return [short(x, k) for k in range(n)]

    def broken(x: Any, n: int) -> list[Any]:
        time.time()
        return calls(x, n)

    on_frame = Compilation.on_frame
    monkeypatch.setattr(Compilation, "on_frame", noted)
    compiled = dg.compile(broken)
    with dg.config.override(compile_budget=None, stay_eager=False):
        compiled(X, 0)
    with dg.config.override(compile_budget=0.05):
        accounts.PROCESS.spent = 1e3  # nothing is left
        for _ in range(50):
            compiled(X, 200)
        of_short = [asked for asked in looks if asked[1] is short]
        assert 0 < len(of_short) <= len(looks) < 500  # of 10,000 calls

        # an attempt that took long is followed by no longer rest
        monkeypatch.setattr(Compilation, "entry_for", lambda *_: time.sleep(1.2 * LONGEST_REST / REST))
        assert on_frame(*of_short[0]) == LONGEST_REST


def test_nothing_limits_mode_max() -> None:
    compiled = dg.compile(unrolled, mode="max")
    with dg.config.override(compile_budget=0.001):
        np.testing.assert_array_equal(compiled(X, 30), unrolled(X, 30))
    assert compiled.stats.compiles == 1 and compiled.stats.put_off == 0


def test_nothing_limits_where_the_budget_is_unlimited() -> None:
    compiled = dg.compile(unrolled)
    with dg.config.override(compile_budget=None):
        compiled(X, 31)
    assert compiled.stats.compiles == 1


def test_an_abandoned_attempt_leaves_nothing() -> None:
    """The state of a program that was given up is that of one that was never begun."""
    compiled = dg.compile(unrolled)
    with dg.config.override(compile_budget=0.04):
        for _ in range(3):
            np.testing.assert_array_equal(compiled(X, 500), unrolled(X, 500))
    compilation = compiled.decorated.compilation
    assert compiled.stats.fallbacks == 0 and not compiled.entries and not compiled.programs and not compilation.parts
    assert deadline.seconds_left() == float("inf")
    with dg.config.override(compile_budget=None):
        end = time.perf_counter() + 60
        while not compiled.stats.compiles and time.perf_counter() < end:  # it still rests for some calls
            np.testing.assert_array_equal(compiled(X, 20), unrolled(X, 20))
    assert compiled.stats.compiles == 1


def test_closures_of_one_code_have_one_allowance() -> None:
    def closure(n: int) -> Callable[..., Any]:
        return dg.compile(lambda x: unrolled(x, n))

    start = cpu_seconds()
    with dg.config.override(compile_budget=0.1):
        for k in range(30):
            closure(300 + k)(X)
    assert cpu_seconds() - start < 0.1 + 4 * LATE


def test_each_function_that_is_transformed_has_an_allowance() -> None:
    first, second = dg.grad(lambda x: x * 2.0), dg.grad(lambda x: x * 3.0)
    accounts = [f.program.decorated.account for f in (first, second)]
    assert accounts[0].ledger is not accounts[1].ledger
    assert accounts[0].ledger is dg.grad(first.__wrapped__).program.decorated.account.ledger


def test_all_functions_of_a_process_have_one_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Ledger(accounts.FUNCTIONS_WORTH, spent=100.0)
    monkeypatch.setattr(accounts, "PROCESS", process)
    compiled = dg.compile(lambda x: x + 1)
    compiled(X)
    assert compiled.stats.compiles == 0 and compiled.stats.put_off == 1
    process.earned += 100.0
    while not compiled.stats.compiles:
        compiled(X)


def test_fullgraph_is_put_off_too() -> None:
    compiled = dg.compile(unrolled, fullgraph=True)
    with dg.config.override(compile_budget=0.03):
        np.testing.assert_array_equal(compiled(X, 800), unrolled(X, 800))
    assert compiled.stats.put_off == 1


def test_plain_calls_within_one_another_earn_once() -> None:
    def nap(n: int, x: Any) -> Any:
        time.sleep(0.01)
        return compiled(n - 1, x) if n else x + 1

    compiled = dg.compile(nap)
    with dg.config.override(compile_budget=1e-6):
        start = time.perf_counter()
        compiled(5, X)
        took = time.perf_counter() - start
    assert 0.05 < compiled.stats.earned_seconds <= took


def test_a_probe_of_the_compiler_that_ends_at_a_deadline_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    if toolchain.find_compiler() is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(toolchain, "_answered", {})
    command = toolchain.toolchain().command
    attempts = 0
    while attempts < 200:
        attempts += 1
        try:
            with deadline.within(0.02 * attempts):
                found = toolchain._probe(command, None)
            break
        except deadline.OutOfTime:
            continue
    assert found.flags == toolchain.toolchain().flags and not toolchain._answered and attempts > 1


def test_a_loop_that_cannot_be_captured_in_time_is_given_up_after_a_few_turns() -> None:
    compiled = dg.compile(lambda x: unrolled(x, 19000))
    with dg.config.override(compile_budget=2.0, unroll_limit=20000):
        np.testing.assert_array_equal(compiled(X), unrolled(X, 19000))
    given = 0.8 * 2.0
    assert compiled.stats.put_off == 1 and compiled.stats.compile_seconds < given / 2
    # the next attempt comes when it would have come if this one had used up its time
    assert max(compiled.decorated.compilation.needs._seconds.values()) >= 1.9 * given


def test_the_pace_of_a_loop() -> None:
    pace = deadline.Pace()
    with deadline.within(1.0):
        with pytest.raises(deadline.OutOfTime):
            for _ in range(deadline.TURNS):
                time.sleep(0.002)
                pace.turn(100_000)
        deadline.check()  # once
    quick = deadline.Pace()
    with deadline.within(60.0):
        for k in range(200):
            quick.turn(200 - k)
    pace.turn(10**9)  # there is no deadline


@pytest.mark.parametrize("numbers", [range(5), range(9, 2, -3), range(0), range(10**30), range(3, 3, -1), range(0, 10, 4)], ids=str)
def test_how_many_numbers_of_a_range_are_left(numbers: range) -> None:
    assert Numbers(numbers).left() == (10**30 if numbers.stop == 10**30 else len(numbers))


# -- the parts ---------------------------------------------------------------------------------------------------------


def test_a_deadline_passes_once() -> None:
    with deadline.within(0.0):
        with pytest.raises(deadline.OutOfTime):
            deadline.check()
        deadline.check()  # what cleans up is not disturbed
    deadline.check()


def test_needs_double_where_attempts_fail_and_where_programs_serve_nobody() -> None:
    class Entry:
        hits = 0

    needs = Needs()
    assert needs.wait(("kind",)) and not needs.wait(("kind",))
    needs.exceeded(("kind",), 0.4)
    assert needs.of(("kind",)) == 0.8
    first, second, third = Entry(), Entry(), Entry()
    needs.made(("kind",), first, 0.5)  # type: ignore[arg-type]
    needs.made(("kind",), second, 0.5)  # type: ignore[arg-type]
    assert needs.of(("kind",)) == 1.0
    second.hits = 3
    needs.made(("kind",), third, 0.5)  # type: ignore[arg-type]
    assert needs.of(("kind",)) == 0.5


def test_programs_that_are_dropped_take_no_credit_away() -> None:
    account = Account(ledger_of(unrolled.__code__.replace(co_name="another")), True)
    before = account.ledger.earned
    account.settle(2.0)
    account.settle(0.5)  # after a reset
    account.settle(0.75)
    assert account.ledger.earned - before == 2.25


@pytest.mark.fuzz
@pytest.mark.parametrize("option", [(), ("--together",)], ids=["alone", "together"])
def test_the_budget_holds_for_every_program(option: tuple[str, ...]) -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("DYNAGRAPH_COMPILE_BUDGET", "DYNAGRAPH_STAY_EAGER")}
    script = Path(__file__).resolve().parent.parent / "benchmarks" / "compile_budget.py"
    done = subprocess.run([sys.executable, script, *option], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_program_of_one_graph_is_measured_and_calls_its_effects_once(fullgraph: bool) -> None:
    seen: list[float] = []

    @dg.compile(fullgraph=fullgraph)
    def f(x: Any, log: list) -> Any:
        log.append(x.shape[0])  # once for each call, whichever way it goes
        return np.sqrt(x) + 1

    with dg.config.override(stay_eager=True, compile_budget=None):
        for _ in range(10):
            np.testing.assert_array_equal(f(X, seen), np.sqrt(X) + 1)
    assert f.stats.misses == 1 and f.stats.stayed_eager >= 1 and f.stats.hits + f.stats.stayed_eager == 9
    assert len(f.entries) == 1 and seen == [4] * 10


def test_random_streams_are_the_same_whichever_way_calls_go() -> None:
    def draw(rng: Any) -> Any:
        return np.sqrt(rng.random(5)) + rng.normal(size=5)

    compiled = dg.compile(draw)
    mine, other = np.random.default_rng(7), np.random.default_rng(7)
    with dg.config.override(stay_eager=True, compile_budget=None):
        for _ in range(30):
            np.testing.assert_allclose(compiled(mine), draw(other), rtol=1e-12)
    assert mine.bit_generator.state == other.bit_generator.state and compiled.stats.stayed_eager >= 1


def test_backends_that_were_named_are_used() -> None:
    for backend in ("reference", lambda graph, inputs: get_backend("reference")(graph)):
        compiled = dg.compile(lambda x: x + 1, backend=backend)
        with dg.config.override(stay_eager=True, compile_budget=None):
            for _ in range(20):
                compiled(X)
        assert compiled.stats.stayed_eager == 0
