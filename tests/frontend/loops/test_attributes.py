"""Attributes and dict items that native loops set: the same values, objects and orders as plain Python leaves, after each exit."""

# ruff: noqa: B007, B010  (as people write them)

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import dynagraph as dg

Case = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]
PROGRAMS: list[Case] = []
LEFT: list[Case] = []  # of which Python does each turn, or what sets attributes


def program(arguments: Callable[[], tuple[Any, ...]], to: list[Case] = PROGRAMS) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        to.append((function, arguments))
        return function

    return register


def described(value: Any, seen: dict[int, int] | None = None) -> Any:
    """A value with the type of each part, attributes in their order, and which objects are the same."""
    seen = {} if seen is None else seen
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if value is None or isinstance(value, (bool, int, float, complex, str, np.generic)):
        return type(value).__name__, repr(value)
    if id(value) in seen:
        return "again", seen[id(value)]
    seen[id(value)] = len(seen)
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [described(v, seen) for v in value]
    if isinstance(value, dict):
        return type(value).__name__, [(k, described(v, seen)) for k, v in value.items()]
    names = [*getattr(value, "__dict__", {}), *(n for k in type(value).__mro__ for n in vars(k).get("__slots__", ()))]
    return type(value).__name__, [(n, described(getattr(value, n, "unset"), seen)) for n in names]


def outcome(function: Callable, args: Any) -> Any:
    """What a call gives or raises, with the lines that it was raised at."""
    try:
        return described(function(*args))
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        return type(error).__name__, str(error), [(f.name, f.line) for f in frames if f.filename == __file__][1:]


def check(function: Callable, arguments: Callable[[], tuple[Any, ...]], native: bool = True) -> Any:
    compiled = dg.compile(function, backend="c")
    for _ in range(3):
        plainly, given = arguments(), arguments()
        want, got = outcome(function, plainly), outcome(compiled, given)
        assert got == want
        assert described(given) == described(plainly)
    assert compiled.stats.fallbacks == 0, compiled.stats.last_error
    assert bool(compiled.stats.native_loops) or not native, dict(compiled.stats.breaks)
    return compiled


# -- classes ----------------------------------------------------------------------------------------------------------------------


class Particle:
    def __init__(self, x=1.0, v=0.5):
        self.x, self.v, self.steps = x, v, 0

    def step(self, dt):
        self.v -= self.x * dt
        self.x += self.v * dt
        self.steps += 1

    def energy(self):
        return 0.5 * (self.x**2 + self.v**2)

    @property
    def speed(self):
        return abs(self.v)


class Slotted:
    __slots__ = ("count", "total")

    def __init__(self):
        self.count, self.total = 0, 0.0


@dataclasses.dataclass
class Account:
    balance: float = 100.0
    moves: int = 0
    last: Any = None


class Nested:
    def __init__(self):
        self.at, self.grid, self.log = Particle(), np.zeros((4, 5)), []
        self.old, self.new = np.arange(6.0), np.zeros(6)


class Rate(NamedTuple):
    up: float
    down: float


class Random:
    def __init__(self, seed=42):
        self.state = seed

    def next(self):
        self.state = (1103515245 * self.state + 12345) % 2**31
        return self.state

    def uniform(self):
        return self.next() / 2**31


# -- programs ---------------------------------------------------------------------------------------------------------------------


@program(lambda: (Particle(), 50))
def direct(p, n):
    for k in range(n):
        p.x += 0.25 * k
        p.steps += 1
    return p.x


@program(lambda: (Particle(), 50))
def by_method(p, n):
    for k in range(n):
        p.step(0.01)
    return p.energy()


@program(lambda: (Random(), 200))
def generator_class(r, n):
    inside = 0
    for k in range(n):
        x, y = r.uniform(), r.uniform()
        if x * x + y * y < 1.0:
            inside += 1
    return inside, r.state


@program(lambda: (Slotted(), np.arange(30.0)))
def slots(s, x):
    for v in x:
        s.count += 1
        s.total += v
    return s


@program(lambda: (Account(), 30))
def dataclass(a, n):
    for k in range(n):
        if k % 3:
            a.balance -= 1.5 * k
        else:
            a.balance *= 1.01
        a.moves += 1
        a.last = k
    return a.balance


@program(lambda: (Nested(), 40))
def nested(o, n):
    for k in range(n):
        o.at.x += 1.0
        o.grid[k % 4, k % 5] += o.at.x
        o.log.append(o.at.x)
    return o.at.x


@program(lambda: (Nested(), 31))
def double_buffers(o, n):
    for k in range(n):
        for j in range(1, 5):
            o.new[j] = 0.5 * (o.old[j - 1] + o.old[j + 1])
        o.old, o.new = o.new, o.old


@program(lambda: (Account(), 31))
def types_change(a, n):
    for k in range(n):
        if a.last is None:
            a.last = 1
        elif k > 15:
            a.last = a.last * 0.5
        else:
            a.last += k
    return a.last


@program(lambda: (Account(moves=2**61), 31))
def ints_grow_past_64_bits(a, n):
    for k in range(n):
        a.moves += 2**60
    return a.moves


@program(lambda: (Particle(), Particle(3.0), 40))
@program(lambda: (p := Particle(), p, 40))
def two_names(p, q, n):
    for k in range(n):
        p.x += q.v
        q.v -= 0.01 * p.x
        q.x += 1.0
    return p, q


@program(lambda: (Particle(), Rate(1.5, 0.5), 40))
def named_tuples_are_read(p, rate, n):
    for k in range(n):
        p.x += rate.up
        p.v *= rate.down
    return p


@program(lambda: (10, 40))
def made_here(seed, n):
    r, p = Random(seed), Particle()
    for k in range(n):
        p.x += r.uniform()
        p.steps = k
    return p, r


@program(lambda: (Particle(), 60))
def flags(p, n):
    p.done = False
    k = 0
    while not p.done and k < n:
        p.x *= 0.9
        if p.x < 0.1:
            p.done = True
        k += 1
    return k, p.done


@program(lambda: (Particle(), 40), to=LEFT)
def comprehensions_read_it(p, n):
    s = 0.0
    for k in range(n):
        p.x += 1.0
        s += sum(p.x * j for j in range(3))
    return s


@program(lambda: (Particle(), 40))
def returns_from_within(p, n):
    for k in range(n):
        p.x += 1.0
        if p.x > 20.0:
            return p.x, k
    return None


@program(lambda: (Particle(), 40))
def nothing_is_used_after_it(p, n):
    for k in range(n):
        p.x += 1.0


@program(lambda: (Particle(), 0))
@program(lambda: (Particle(), 1))
def few_turns(p, n):
    for k in range(n):
        p.x = k
    return p.x


@program(lambda: (Particle(), 40))
def several_loops(p, n):
    for k in range(n):
        p.x += 1.0
    before = p.x
    for k in range(n):
        p.x -= 0.5
        p.v = before
    return before


# -- dicts ------------------------------------------------------------------------------------------------------------------------


@program(lambda: ({"pos": 0, "neg": 0, "sum": 0.0}, np.sin(np.arange(50.0))))
def counters(state, x):
    for k in range(len(x)):
        if x[k] > 0:
            state["pos"] += 1
        else:
            state["neg"] += 1
        state["sum"] += x[k]
    return state


@program(lambda: ({1: 0, 2: 0, "a": 7}, 40))
def int_keys(d, n):
    for k in range(n):
        d[1] += k
        d[2] = d[1] - d["a"]
    return d


@program(lambda: (40,))
def dicts_made_here(n):
    d = {"t": 0.0, "n": 0}
    for k in range(n):
        d["t"] += 0.1
        d["n"] += 1
    return d


@program(lambda: ({"p": Particle(), "d": {"k": 1}}, 40))
def dicts_in_dicts(d, n):
    for k in range(n):
        d["p"].x += 1.0
        d["d"]["k"] += 2
    return d["p"].x


@program(lambda: ((d := {"n": 0}), d, 40))
@program(lambda: ({"n": 0}, {"n": 5}, 40))
def two_names_of_dicts(a, b, n):
    for k in range(n):
        a["n"] += 1
        b["n"] += a["n"]
    return a, b


# -- left to Python ---------------------------------------------------------------------------------------------------------------


class Checked(Particle):
    @property
    def x(self):
        return self._x

    @x.setter
    def x(self, value):
        self._x = min(value, 5.0)


class Hooked(Particle):
    def __setattr__(self, name, value):
        object.__setattr__(self, name, value * 2)


class Answering(Particle):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return 3.0


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: float = 1.0


class Default:
    total = 0.0


for made in (Checked, Hooked, Answering, Particle):
    program(lambda made=made: (made(), 30), to=LEFT)(direct)
    program(lambda made=made: (made(), 30), to=LEFT)(by_method)


@program(lambda: (Particle(), 30))
def properties_are_asked_anew(p, n):
    s = 0.0
    for k in range(n):
        p.v -= 0.125
        s += p.speed
    return s


@program(lambda: (Answering(), 30), to=LEFT)
def missing_attributes(p, n):
    s = 0.0
    for k in range(n):
        p.x += p.other
        s += p.x
    return s


@program(lambda: (Frozen(), 30), to=LEFT)
def frozen(p, n):
    s = 0.0
    for k in range(n):
        s += 1.0
        if s > 20:
            p.x = s
    return s


@program(lambda: (Default(), 30), to=LEFT)
def not_there_yet(o, n):
    for k in range(n):
        o.total += 1.5
        o.more = k
    return o.total


@program(lambda: (Particle(), 30), to=LEFT)
def deleted(p, n):
    for k in range(n):
        p.x += 1.0
        if k == 20:
            del p.x
    return p


@program(lambda: (Particle(), 30), to=LEFT)
def seen_otherwise(p, n):
    found = []
    for k in range(n):
        p.x += 1.0
        if k % 7 == 0:
            found.append((vars(p)["x"], getattr(p, "x"[:1]), p.__dict__["x"]))
            setattr(p, "x", p.x - 0.5)
    return found


@program(lambda: ({"a": 1}, 30), to=LEFT)
def keys_that_are_added(d, n):
    for k in range(n):
        d["a"] += 1
        d["b"] = k
    return d, list(d)


@program(lambda: (collections.Counter(), 30), to=LEFT)
@program(lambda: (collections.defaultdict(int, a=1), 30), to=LEFT)
@program(lambda: (collections.OrderedDict(a=1, b=2), 30), to=LEFT)
def other_dicts(d, n):
    for k in range(n):
        d["a"] += 1
        d["b"] = d["a"] - 1
    return d


@program(lambda: ({"a": 1, "b": 2}, 30), to=LEFT)
def whole_dicts(d, n):
    s = 0
    for k in range(n):
        d["a"] += 1
        s += sum(d.values()) + len(d) + ("a" in d) + d.get("a")
    return s


@program(lambda: (Particle(), 30), to=LEFT)
def recursion_reads_it(p, n):
    def depth(k):
        return p.x if k == 0 else depth(k - 1) + 1.0

    s = 0.0
    for k in range(n):
        p.x += 1.0
        s += depth(3)
    return s


@program(lambda: ([Particle(k) for k in range(5)], 30))
@program(lambda: ([p := Particle(2.0), Particle(), p], 30))
def many_objects(ps, n):
    for k in range(n):
        for p in ps:
            p.step(0.01)
    return ps, p


@program(lambda: ([Particle(k, 0.1 * k) for k in range(3)], 30))
def pairs(ps, n):
    for k in range(n):
        for p in ps:
            for q in ps:
                if p is not q:
                    p.v += (q.x - p.x) * 0.001
            p.x += p.v * 0.01
        ps[0].steps += len(ps)


@program(lambda: ([Particle(k) for k in range(4)], 30))
def left_within_a_list(ps, n):
    for k in range(n):
        for p in ps:
            p.x = 1 / (60 - p.steps - k)
            p.steps += 1


@program(lambda: ([Particle(k) for k in range(4)], 30), to=LEFT)
def a_list_that_grows(ps, n):
    for k in range(n):
        for p in ps:
            p.x += 1.0
            if p.steps == 20 and len(ps) < 6:
                ps.append(Particle())
            p.steps += 1
    return ps


@program(lambda: ([Particle(k) for k in range(30)], 30), to=LEFT)
def long_lists_of_objects(ps, n):
    for k in range(n):
        for p in ps:
            p.x += 1.0


@program(lambda: (Nested(), 30))
def arrays_in_place(o, n):
    for k in range(n):
        o.grid += 0.5
        o.old *= 1.01
        o.old[1:] -= o.new[:-1]
        o.new[k % 6] = o.old[0]


class Limited(Particle):
    limit = 20.0

    @property
    def full(self):
        return self.x >= self.limit

    @property
    def noted(self):
        self.steps += 1
        return self.steps

    @property
    def inverse(self):
        return 1 / (15.0 - self.x)


@program(lambda: (Limited(), 60))
def properties(p, n):
    k = 0
    while not p.full and k < n:
        p.x += 0.5
        k += 1
    return k


@program(lambda: (Limited(), 60), to=LEFT)
def properties_that_set(p, n):
    s = 0
    for k in range(n):
        s += p.noted
    return s


@program(lambda: (Limited(), 60))
def errors_in_properties(p, n):
    s = 0.0
    for k in range(n):
        p.x += 1.0
        s += p.inverse
    return s


@program(lambda: (Particle(), 30), to=LEFT)
def on_the_class(p, n):
    Default.total = 0.0
    for k in range(n):
        Default.total += 1.0
        p.x += Default.total
    return p.x, Default.total


# -- exceptions -------------------------------------------------------------------------------------------------------------------


@program(lambda: (Particle(), np.arange(20.0)))
def index_error(p, x):
    for k in range(30):
        p.steps = k
        p.x += x[k]
        p.v = -1.0


@program(lambda: (Particle(), 30))
def zero_division(p, n):
    for k in range(n):
        p.steps += 1
        p.x = 1 / (20 - k)
        p.v += p.x


class Failing(Particle):
    def fail(self, k):
        self.x += 1.0
        self.v = 1 / (17 - k)
        self.steps += 1


@program(lambda: (Failing(), 30))
def error_in_a_method(p, n):
    for k in range(n):
        p.fail(k)


@program(lambda: (Failing(), 30))
def caught(p, n):
    seen = []
    for k in range(n):
        try:
            p.fail(k)
        except ZeroDivisionError:
            seen.append((k, p.x, p.steps))
    return seen


@program(lambda: (Account(), 30))
def type_error(a, n):
    for k in range(n):
        a.moves += 1
        if k == 20:
            a.balance += "no"
        a.last = k


def name_of(case: Case) -> str:
    return case[0].__name__


@pytest.mark.sampled(8)
@pytest.mark.parametrize("case", PROGRAMS, ids=name_of)
def test_state_is_that_of_plain_python(case: Case) -> None:
    check(*case)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", LEFT, ids=name_of)
def test_what_is_left_to_python_is_right(case: Case) -> None:
    check(*case, native=False)


@pytest.mark.parametrize("function", [by_method, generator_class, dataclass, double_buffers, counters, slots])
def test_loops_are_not_left_in_each_turn(function: Any) -> None:
    arguments = next(make for f, make in PROGRAMS if f is function)
    compiled = check(function, arguments)
    assert not compiled.stats.side_exits, dict(compiled.stats.side_exits)
    assert compiled.stats.compiles == 1


def test_one_program_for_all_values_of_attributes() -> None:
    compiled = dg.compile(by_method, backend="c")
    for x in (1.0, 2.5, -3.0):
        one, other = Particle(x, 2 * x), Particle(x, 2 * x)
        one.steps = other.steps = int(x)
        assert compiled(one, 40) == by_method(other, 40)
        assert described(one) == described(other)
    assert compiled.stats.compiles == 1


def pairs_of(same_one: bool) -> tuple[Any, ...]:
    p = Particle()
    return (p, p if same_one else Particle(2.0), 30)


def children_of(same_one: bool) -> tuple[Any, ...]:
    a, b = Nested(), Particle(3.0)
    a.at = b if same_one else Particle(2.0)
    return a, b, 30


def of_a_child(a, b, n):
    for k in range(n):
        a.at.x += 1.0
        b.x *= 1.5
    return a.at.x


@pytest.mark.parametrize(("function", "arguments"), [(two_names, pairs_of), (of_a_child, children_of)])
def test_objects_that_are_the_same_in_some_calls(function: Any, arguments: Any) -> None:
    compiled = dg.compile(function, backend="c")
    for same_one in (False, True, False, True):
        plainly, given = arguments(same_one), arguments(same_one)
        assert outcome(compiled, given) == outcome(function, plainly)
        assert described(given) == described(plainly)
    assert compiled.stats.compiles == 2


def test_attributes_and_items_that_are_not_there_in_some_calls() -> None:
    one, other = dg.compile(counters, backend="c"), dg.compile(direct, backend="c")
    x = np.sin(np.arange(30.0))
    for held in ({"pos": 0, "neg": 0, "sum": 0.0}, {"pos": 0, "neg": 0}, {"pos": 1.5, "neg": 0, "sum": 0, "z": 1}, {}):
        plainly, given = dict(held), dict(held)
        assert outcome(one, (given, x)) == outcome(counters, (plainly, x))
        assert described(given) == described(plainly)
    for value in (1.0, None, 2, "text", np.float64(3.0), np.arange(3.0), 2**70):
        plain, own = Particle(value), Particle(copy.copy(value))
        if value is None:
            del plain.x, own.x
        assert outcome(other, (own, 30)) == outcome(direct, (plain, 30))
        assert described(own) == described(plain)


def test_calls_that_are_left_see_the_state() -> None:
    seen: list[Any] = []

    def f(p, n):
        for k in range(n):
            p.x += 1.0
            if k % 10 == 9:
                note(p)
        return p.x

    @dg.disable
    def note(p):
        seen.append((p.x, p.steps))
        p.x -= 0.25
        p.steps += 1

    compiled = dg.compile(f, backend="c")
    p, q = Particle(), Particle()
    assert compiled(p, 45) == f(q, 45)
    assert seen[:4] == seen[4:] and len(seen) == 8
    assert described(p) == described(q)


class Machine:
    def __init__(self):
        self.t = 0.0
        self.k = 0

    @dg.compile
    def run(self, n):
        while self.k < n:
            self.k += 1
            self.t += 0.5
        return self.t


def test_compiled_methods() -> None:
    machine = Machine()
    for n in (20, 40, 60):
        assert machine.run(n) == 0.5 * n
    assert vars(machine) == {"t": 30.0, "k": 60}


def test_objects_keep_their_references() -> None:
    """Nothing is held by the program, and no attribute is lost."""
    import sys

    compiled = dg.compile(double_buffers, backend="c")
    o = Nested()
    old, new = o.old, o.new
    compiled(o, 30)
    compiled(o, 31)
    assert o.old is new and o.new is old
    before = sys.getrefcount(old), sys.getrefcount(o)
    for _ in range(10):
        compiled(o, 30)
    assert (sys.getrefcount(old), sys.getrefcount(o)) == before


class Handled(Exception):
    pass


@contextlib.contextmanager
def on_alarm(handler: Any, after: float) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, after)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def endless(p, n):
    for k in range(n):
        p.steps = k
        p.x = k + 1.0
        p.v = k + 2.0


def test_a_signal_finds_the_state_of_a_whole_turn() -> None:
    compiled = dg.compile(endless, backend="c")
    compiled(Particle(), 50)
    p = Particle()
    seen: list[Any] = []

    def handler(*_: Any) -> None:
        seen.append((p.steps, p.x, p.v))
        raise Handled

    with on_alarm(handler, 0.05), pytest.raises(Handled) as caught_:
        compiled(p, 2**31 - 10)
    assert seen == [(p.steps, p.x, p.v)]
    assert p.steps > 1000 and (p.x, p.v) == (p.steps + 1.0, p.steps + 2.0)
    assert any(f.name == "endless" for f in traceback.extract_tb(caught_.value.__traceback__))


def test_other_threads_come_to_see_the_state() -> None:
    compiled = dg.compile(endless, backend="c")
    compiled(Particle(), 50)
    p = Particle()
    stop = threading.Event()
    seen: list[int] = []

    def watch() -> None:
        while not stop.is_set():
            seen.append(p.steps)
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        compiled(p, 30_000_000)
    finally:
        stop.set()
        watcher.join()
    assert p.steps == 30_000_000 - 1
    assert sorted(seen) == seen
