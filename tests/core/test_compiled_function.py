"""The callable: binding, methods, misses, re-entrancy, the garbage collector."""

from __future__ import annotations

import copy
import gc
import inspect
import os
import pickle
import subprocess
import sys
import threading
import time
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dynagraph._core import _dispatch
from dynagraph._core._dispatch import MAX_ARRAYS, PLAINLY, CompiledFunction, Entry, PythonPlan, bind, note_compiling, set_clock
from tests.sampling import examples


def eagerly(cf: CompiledFunction, args: tuple, kwargs: dict | None) -> Any:
    return cf.__wrapped__(*args, **(kwargs or {}))


def no_miss(cf: CompiledFunction, args: tuple, kwargs: dict | None) -> Any:
    raise AssertionError("a miss")


def giving(*registers: int, n_registers: int = 8, guards: tuple = ()) -> Entry:
    """An entry that returns a tuple of its registers."""
    return Entry(guards, n_registers, PythonPlan(lambda: (), 0, ("tuple", tuple(("arg", k) for k in registers))))


# -- binding -----------------------------------------------------------------------------------------------------------


@st.composite
def functions(draw: st.DrawFn) -> tuple[types.FunctionType, int]:
    posonly, plain, kwonly = (draw(st.integers(0, 3)) for _ in range(3))
    defaults = draw(st.integers(0, posonly + plain))
    names = [f"p{k}" for k in range(posonly)] + [f"q{k}" for k in range(plain)]
    first_default = len(names) - defaults
    parts = [f"{name}={k + 100}" if k >= first_default else name for k, name in enumerate(names)]
    if posonly:
        parts.insert(posonly, "/")
    if draw(st.booleans()):
        parts.append("*rest")
    elif kwonly:
        parts.append("*")
    parts += [f"k{k}" + (f"={k + 200}" if draw(st.booleans()) else "") for k in range(kwonly)]
    if draw(st.booleans()):
        parts.append("**more")
    namespace: dict = {}
    exec(f"def f({', '.join(parts)}): return locals()", namespace)
    return namespace["f"], len(namespace["f"].__code__.co_varnames)


keywords = st.dictionaries(
    st.sampled_from(["p0", "p1", "q0", "q1", "q2", "k0", "k1", "k2", "other", "rest", "more"]),
    st.integers(),
    max_size=5,
)


@given(functions(), st.lists(st.integers(), max_size=8), keywords)
@settings(max_examples=examples(1000), deadline=None)
def test_binding_agrees_with_the_interpreter(case: tuple[types.FunctionType, int], args: list[int], kwargs: dict[str, int]) -> None:
    f, n = case
    kwargs = {"".join([*name]): value for name, value in kwargs.items()}  # not interned
    cf = CompiledFunction(f, no_miss)
    cf.add_entry(giving(*range(n), n_registers=n))
    try:
        expected = tuple(f(*args, **kwargs).values())  # inspect's own bind is wrong where **more takes a positional-only name
    except TypeError:
        with pytest.raises(TypeError):
            bind(f, tuple(args), kwargs)
        with pytest.raises(TypeError) as ours:
            cf(*args, **kwargs)
        with pytest.raises(TypeError) as own:
            f(*args, **kwargs)
        assert str(ours.value) == str(own.value)
        return
    assert bind(f, tuple(args), kwargs) == expected
    assert cf(*args, **kwargs) == expected


def test_defaults_are_read_at_each_call() -> None:
    def f(a, b=1, *, c=2):
        raise AssertionError

    cf = CompiledFunction(f, no_miss)
    cf.add_entry(giving(0, 1, 2))
    assert cf(0) == (0, 1, 2)
    f.__defaults__, f.__kwdefaults__ = (5,), {"c": 6}
    assert cf(0) == (0, 5, 6)
    f.__kwdefaults__ = None
    with pytest.raises(TypeError, match="keyword-only"):
        cf(0)
    f.__defaults__ = (1, 2, 3, 4)[:2]
    f.__kwdefaults__ = {"c": 1}
    assert cf() == (1, 2, 1)


@pytest.mark.parametrize("arguments", [(), (len, ()), (lambda: 1, []), (lambda: 1, (), [])])
def test_bind_of_other_things(arguments: tuple) -> None:
    with pytest.raises(TypeError):
        bind(*arguments)


def test_bind_of_odd_keywords() -> None:
    class Text(str):
        pass

    def f(a, **more):
        return a, more

    assert bind(f, (), {Text("a"): 1, Text("b"): 2}) == (1, {"b": 2})
    with pytest.raises(TypeError, match="strings"):
        bind(f, (1,), {5: 1})
    assert bind(f, (1,), None) == (1, {})


def test_kwargs_are_a_dict_of_the_calls_own() -> None:
    cf = CompiledFunction(lambda **more: None, no_miss)
    cf.add_entry(giving(0))
    given = {"a": 1}
    assert cf(**given)[0] == given and cf(**given)[0] is not given


# -- calls -------------------------------------------------------------------------------------------------------------


def test_misses_get_the_arguments_as_they_are() -> None:
    seen = []

    def f(a, b=2, *args, **kwargs):
        raise AssertionError

    cf = CompiledFunction(f, lambda *call: seen.append(call) or "missed")
    assert cf(1) == cf(1, 2, 3) == cf(a=1, z=2) == "missed"
    assert seen == [(cf, (1,), None), (cf, (1, 2, 3), None), (cf, (), {"a": 1, "z": 2})]
    assert cf.counters() == {"hits": 0, "misses": 3, "refusals": 0, "stayed_eager": 0}


def test_exceptions_of_a_miss() -> None:
    def on_miss(*call):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        CompiledFunction(lambda: 1, on_miss)()


def test_entries_are_tried_most_recent_first() -> None:
    cf = CompiledFunction(lambda a: None, lambda cf, args, kwargs: "missed")
    entries = [giving(0, guards=(("equal", 0, k),)) for k in range(5)]
    for e in entries:
        cf.add_entry(e)
    assert cf.entries == [entries[k] for k in (4, 0, 1, 2, 3)]
    assert cf(2) == (2,)
    assert cf.entries == [entries[k] for k in (2, 0, 1, 3, 4)]
    assert [e.hits for e in entries] == [0, 0, 1, 0, 0]
    assert cf(9) == "missed" and cf.counters() == {"hits": 1, "misses": 1, "refusals": 0, "stayed_eager": 0}
    assert [cf(k) for k in (0, 4, 3, 1, 2, 2)] == [(0,), (4,), (3,), (1,), (2,), (2,)]
    assert [e.hits for e in entries] == [1, 1, 3, 1, 1]
    cf.clear()
    assert cf.entries == [] and cf(2) == "missed"


def test_disabled() -> None:
    cf = CompiledFunction(lambda a, *, b=2: (a, b), no_miss)
    cf.add_entry(giving(0))
    cf.enabled = False
    assert cf(1) == (1, 2) and cf(a=1, b=5) == (1, 5)
    cf.enabled = True
    assert cf(1) == (1,)
    assert cf.counters() == {"hits": 1, "misses": 0, "refusals": 0, "stayed_eager": 0}


def test_a_new_code_object_forgets_the_entries() -> None:
    def f(a):
        return "old"

    cf = CompiledFunction(f, eagerly)
    cf.add_entry(giving(0))
    assert cf(1) == (1,)
    f.__code__ = (lambda a: "new").__code__
    assert cf(1) == "new" and cf.entries == []


def test_methods_and_static_methods() -> None:
    class Thing:
        def method(self, x):
            raise AssertionError

        def plain(x):
            raise AssertionError

        plain = staticmethod(CompiledFunction(plain, no_miss))
        compiled = CompiledFunction(method, no_miss)
        of_class = classmethod(CompiledFunction(method, no_miss))

    vars(Thing)["compiled"].add_entry(giving(0, 1))
    vars(Thing)["plain"].__func__.add_entry(giving(0))
    vars(Thing)["of_class"].__func__.add_entry(giving(0, 1))
    thing = Thing()
    for _ in range(20):
        assert thing.compiled(5) == (thing, 5) and Thing.compiled(thing, x=5) == (thing, 5)
        assert thing.plain(5) == (5,) and Thing.plain(5) == (5,)
        assert thing.of_class(5) == (Thing, 5) == Thing.of_class(x=5)
    assert isinstance(thing.compiled, types.MethodType) and thing.compiled.__func__ is Thing.compiled
    assert thing.compiled == thing.compiled
    bound = thing.compiled
    assert list(map(bound, [1, 2])) == [(thing, 1), (thing, 2)]


def test_closure_guards_read_the_wrapped_functions_closure() -> None:
    n = 5

    def f():
        return n

    cf = CompiledFunction(f, lambda *call: "missed")
    cf.add_entry(giving(0, guards=(("closure", 0, 0), ("equal", 0, 5))))
    assert cf() == (5,)
    assert cf.entries[0].check(()) is None
    n = 6
    assert cf() == "missed"
    n = 5
    assert cf() == (5,)


def f_of_module(x: int) -> int:
    return x


f_of_module = CompiledFunction(f_of_module, eagerly)  # type: ignore[assignment]
f_of_module.__module__ = __name__
f_of_module.__qualname__ = "f_of_module"


def test_pickled_by_reference_and_copied_as_functions_are() -> None:
    assert pickle.loads(pickle.dumps(f_of_module)) is f_of_module
    assert copy.copy(f_of_module) is f_of_module and copy.deepcopy(f_of_module) is f_of_module


def test_it_looks_like_a_function() -> None:
    assert inspect.signature(f_of_module) == inspect.signature(f_of_module.__wrapped__)
    assert callable(f_of_module) and "f_of_module" in repr(f_of_module)
    f_of_module.anything = 5
    assert f_of_module.anything == 5 and f_of_module.__dict__["anything"] == 5
    assert weakref.ref(f_of_module)() is f_of_module
    with pytest.raises(AttributeError):
        f_of_module.__wrapped__ = None


@pytest.mark.parametrize("arguments", [(), (len, no_miss), (lambda: 1,), (lambda: 1, None), (5, 5)])
def test_constructors_that_are_refused(arguments: tuple) -> None:
    with pytest.raises(TypeError):
        CompiledFunction(*arguments)


def test_add_entry_takes_entries() -> None:
    with pytest.raises(TypeError, match="expected an Entry"):
        CompiledFunction(lambda: 1, no_miss).add_entry(5)


# -- re-entrancy -------------------------------------------------------------------------------------------------------


def running(callable: Callable[..., Any], n_inputs: int = 0, guards: tuple = (), result: tuple = ("out", 0)) -> Entry:
    return Entry(guards, 4, PythonPlan(callable, n_inputs, result))


def test_a_miss_that_clears_and_adds() -> None:
    def on_miss(cf, args, kwargs):
        cf.clear()
        for k in range(10):
            cf.add_entry(giving(0, guards=(("equal", 0, k),)))
        return cf(args[0] % 10)

    cf = CompiledFunction(lambda a: None, on_miss)
    assert cf(57) == (7,) and cf(99) == (9,) and cf(3) == (3,)


def test_a_plan_that_clears_its_own_function() -> None:
    def program():
        cf.clear()
        gc.collect()
        return ("result",)

    cf = CompiledFunction(lambda: None, eagerly)
    cf.add_entry(running(program))
    assert cf() == "result" and cf.entries == [] and cf() is None


def test_a_plan_that_calls_its_own_function() -> None:
    def program(x):
        return (x if x <= 0 else cf(float(x) - 1) + 1,)

    cf = CompiledFunction(lambda a: None, no_miss)
    cf.add_entry(running(program, 1, (("scalar", 0, 0, float),)))
    assert cf(20.0) == 20.0


def test_a_plan_whose_arguments_go_away() -> None:
    """What a guard loaded is held while the program runs."""
    box = [np.arange(3.0)]
    names = {"x": np.arange(4.0)}

    def program(first, second):
        box.clear()
        names.clear()
        gc.collect()
        trash = [np.full(k % 5, 77.0) for k in range(200)]
        return (first + 1, second + 1, len(trash))

    guards = (
        ("item", 1, 0, 0),
        ("global", 2, names, "x"),
        ("array", 1, 0, np.dtype(float), 1, (3,), None, None),
        ("array", 2, 1, np.dtype(float), 1, (4,), None, None),
    )
    result = ("tuple", (("out", 0), ("out", 1), ("arg", 1), ("arg", 2)))
    first, second, third, fourth = running(program, 2, guards, result).run((box,))
    assert first.tolist() == [1, 2, 3] and second.tolist() == [1, 2, 3, 4]
    assert third.tolist() == [0, 1, 2] and fourth.tolist() == [0, 1, 2, 3]


def test_an_errstate_check_that_clears_the_entries() -> None:
    umath = np._core.umath
    cf = CompiledFunction(lambda a: None, lambda *call: "missed")

    def clears():
        cf.clear()
        cf.add_entry(giving(0))
        return False

    try:
        _dispatch.set_errstate(None, clears)
        for _ in range(6):
            cf.add_entry(giving(0, guards=(("errstate",),)))
        assert cf(1) == "missed"
    finally:
        _dispatch.set_errstate(umath._extobj_contextvar, lambda: not {"raise", "call", "print", "log"} & {*np.geterr().values()})


def test_errors_of_programs() -> None:
    def boom(*inputs):
        raise KeyError("program")

    with pytest.raises(KeyError, match="program"):
        running(boom).run(())
    for type_ in (object, int):
        with pytest.raises(TypeError, match="tuple or list"):
            running(type_).run(())
    with pytest.raises(ValueError, match="no output 0"):
        running(lambda: ()).run(())
    with pytest.raises(ValueError, match="at most"):
        running(lambda: [1] * (MAX_ARRAYS + 1)).run(())


# -- threads and memory ------------------------------------------------------------------------------------------------


def test_threads_that_add_clear_and_call() -> None:
    cf = CompiledFunction(lambda a: ("eager", a), eagerly)
    problems = []
    stop = threading.Event()

    def change():
        while not stop.is_set():
            for k in range(7):
                cf.add_entry(giving(0, guards=(("equal", 0, k),)))
            cf.clear()

    def call(offset):
        for k in range(20000):
            value = (k + offset) % 8
            if cf(value) not in ((value,), ("eager", value)):
                problems.append(value)

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        callers = [threading.Thread(target=call, args=(n,)) for n in range(3)]
        changer = threading.Thread(target=change)
        for thread in [*callers, changer]:
            thread.start()
        for thread in callers:
            thread.join()
        stop.set()
        changer.join()
    finally:
        sys.setswitchinterval(old)
    assert problems == []


def test_cycles_are_collected() -> None:
    class Marker:
        pass

    def make() -> weakref.ref:
        marker = Marker()

        def f(a):
            return cf, marker

        def on_miss(*call):
            return cf

        def program(*inputs):
            return (cf, marker)

        cf = CompiledFunction(f, on_miss)
        cf.itself = cf
        guards = (("is_not", 0, cf), ("is_not", 0, marker), ("closure", 1, 0))
        for _ in range(3):
            cf.add_entry(Entry(guards, 4, PythonPlan(program, 0, ("tuple", (("const", cf), ("dict", ((marker, ("out", 0)),)))))))
        cf(1)
        cf.entries[0].run((1,))
        return weakref.ref(marker)

    reference = make()
    gc.collect()
    assert reference() is None


def test_calls_from_a_finalizer_within_a_dying_cycle() -> None:
    results = []

    class Last:
        def __init__(self, cf):
            self.cf = cf

        def __del__(self):
            results.append(self.cf(1))

    for _ in range(20):
        cf = CompiledFunction(lambda a: "eager", eagerly)
        cf.add_entry(giving(0))
        cf.last = Last(cf)
        del cf
        gc.collect()
    assert results == [(1,)] * 20


def test_calls_after_the_collector_has_cleared_it() -> None:
    """An object that comes back to life finds a callable that still works."""
    calls = []

    def make():
        cf = CompiledFunction(lambda a: ("eager", a), eagerly)
        cf.add_entry(giving(0))

        def after(reference, cf=cf):
            calls.append(cf(3))

        class Node:
            pass

        node = Node()
        cf.node, cf.callback = node, weakref.ref(node, after)

    for _ in range(5):
        make()
        gc.collect()
    assert all(c in ((3,), ("eager", 3)) for c in calls)


def resident_kilobytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_leaks_in_many_calls() -> None:
    def f(a, b=2, *args, k=3, **kwargs):
        return a

    cf = CompiledFunction(f, eagerly)
    array, thing = np.zeros(3), object()
    cf.add_entry(
        Entry(
            (("array", 0, 0, array.dtype, 1, (3,), None, None), ("is", 1, thing)),
            8,
            PythonPlan(lambda x: (x,), 1, ("memo", 0, ("list", (("out", 0), ("arg", 1))))),
        )
    )

    def once():
        cf(array, thing)
        cf(array, b=thing, z=1)
        cf(array, thing, 5, 6, k=1)
        cf(5)
        try:
            cf()
        except TypeError:
            pass

    for _ in range(3000):
        once()
    gc.collect()
    before = resident_kilobytes(), sys.getrefcount(array), sys.getrefcount(thing), sys.getrefcount(cf)
    for _ in range(25000):
        once()
    gc.collect()
    after = resident_kilobytes(), sys.getrefcount(array), sys.getrefcount(thing), sys.getrefcount(cf)
    assert after[1:] == before[1:]
    assert after[0] - before[0] < 1000 or "ASAN_OPTIONS" in os.environ  # which keeps back what is freed


# -- the faster way ---------------------------------------------------------------------------------------------------------------


class Clock:
    """By which calls are timed: it goes on by what a way is said to take."""

    def __init__(self) -> None:
        self.now = 1.0
        self.calls: list[str] = []
        self.seconds = {"plain": 0.0, "compiled": 0.0}

    def __call__(self) -> float:
        return self.now

    def spend(self, way: str) -> str:
        self.calls.append(way)
        self.now += self.seconds[way]
        return way


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    set_clock(clock)
    yield clock
    set_clock(None)


def measured(clock: Clock, unasked: int = 0, guards: tuple = (), **seconds: float) -> CompiledFunction:
    """A function whose only entry is measured; it and the entry take their time."""
    clock.seconds = seconds

    def f(*args: object) -> str:
        return clock.spend("plain")

    cf = CompiledFunction(f, lambda *_: "missed")
    plan = PythonPlan(lambda: (), 0, ("call", clock.spend, (("const", "compiled"),)))
    cf.add_entry(Entry(guards, 1, plan, None, True, unasked))
    return cf


@pytest.mark.parametrize("faster, slower", [("plain", "compiled"), ("compiled", "plain")])
def test_a_measured_entry_takes_the_faster_way(clock: Clock, faster: str, slower: str) -> None:
    cf = measured(clock, **{faster: 2e-2, slower: 1e-1})
    for _ in range(300):
        cf()
    assert clock.calls[:2] == ["plain", "compiled"] and clock.calls[2:] == [faster] * 298
    assert clock.calls.count("plain") == cf.counters()["stayed_eager"]
    assert [entry.stays_eager for entry in cf.entries] == [faster == "plain"]


def test_functions_that_stay_eager_ask_their_guards_seldom(clock: Clock) -> None:
    cf = measured(clock, unasked=3, guards=(("len", 0, 0),), plain=2e-2, compiled=1e-1)
    for _ in range(3):  # plain, compiled, and the first that stays eager
        cf()
    assert [cf(1) for _ in range(4)] == ["plain"] * 3 + ["missed"]
    assert [cf()] + [cf(1) for _ in range(4)] == ["plain"] * 4 + ["missed"]
    for _ in range(1000):
        cf()
    assert clock.calls.count("compiled") > 1  # it is measured again
    assert clock.calls.count("plain") == cf.counters()["stayed_eager"]
    cf()
    cf.add_entry(giving(n_registers=1, guards=(("len", 0, 1),)))
    assert cf(1) == ()  # another entry may serve
    with pytest.raises(ValueError, match="unasked=3; at least 0, and 0 where it is not measured"):
        Entry((), 1, PythonPlan(lambda: (), 0, ("const", 1)), None, False, 3)


def test_guards_that_go_on_to_hold_are_asked_ever_more_seldom(clock: Clock) -> None:
    cf = measured(clock, unasked=3, guards=(("len", 0, 0),), plain=2e-2, compiled=1e-1)
    for _ in range(2):  # plain, compiled
        cf()
    for n in (3, 6, 12, 24, 24):
        assert cf() == "plain"  # which is asked
        assert [cf(1) for _ in range(n)] == ["plain"] * n
    assert cf(1) == "missed"
    assert cf() == "plain" and [cf(1) for _ in range(4)] == ["plain"] * 3 + ["missed"]  # from the beginning


def test_what_is_nearly_as_fast_is_measured_a_few_times(clock: Clock) -> None:
    cf = measured(clock, plain=1e-3, compiled=1.2e-3)
    for _ in range(100):
        cf()
    assert clock.calls == ["plain", "compiled"] * 5 + ["plain"] * 90


@pytest.mark.parametrize("faster, slower", [("plain", "compiled"), ("compiled", "plain")])
@pytest.mark.parametrize("ratio", [1.1, 3])
@pytest.mark.parametrize("microseconds, burst", [(0.1, 16), (5, 16), (40, 3), (200, 1)])
def test_short_calls_go_one_way_several_times_in_a_row(
    clock: Clock, faster: str, slower: str, ratio: float, microseconds: float, burst: int
) -> None:
    """The first call that goes another way than the one before is slower; a fifth of all are disturbed."""
    cf = measured(clock)
    rng = np.random.default_rng(5)
    for _ in range(170):
        calls = len(clock.calls)
        for way, factor in ((faster, 1), (slower, ratio)):
            switched = calls and clock.calls[-1] != way and microseconds < 10
            disturbed = rng.random() < 0.2 and burst > 1
            clock.seconds[way] = 1e-6 * microseconds * factor * (3 if switched else 1) + 4e-3 * disturbed
        cf()
    assert clock.calls[-1] == faster and cf.entries[0].stays_eager == (faster == "plain")
    assert 1 <= clock.calls.index("compiled") <= burst


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="processes cannot be kept on one processor here")
@pytest.mark.parametrize("faster", ["plain", "compiled"])
def test_the_time_of_others_on_the_processor_does_not_count(faster: str) -> None:
    seconds = {"plain": 9e-3, "compiled": 9e-3, faster: 6.5e-3}

    def work(way: str) -> None:
        end = time.thread_time() + seconds[way]
        while time.thread_time() < end:
            pass

    cf = CompiledFunction(lambda: work("plain"), lambda *_: "missed")
    plan = PythonPlan(lambda: (), 0, ("call", work, (("const", "compiled"),)))
    cf.add_entry(Entry((), 1, plan, None, True))
    allowed = os.sched_getaffinity(0)
    others = []
    try:
        os.sched_setaffinity(0, {min(allowed)})
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
        time.sleep(0.1)
        for _ in range(12):
            cf()
    finally:
        os.sched_setaffinity(0, allowed)
        for other in others:
            other.kill()
            other.wait()
    assert cf.entries[0].stays_eager == (faster == "plain")
    assert cf.earned == pytest.approx(12 * seconds["plain"], rel=0.25)


@pytest.mark.parametrize("disturbed", ["plain", "compiled"])
def test_one_disturbed_sample_is_asked_for_again_at_once(clock: Clock, disturbed: str) -> None:
    cf = measured(clock, plain=1e-3, compiled=1e-3)
    clock.seconds[disturbed] = 5e-3
    cf()
    if disturbed == "compiled":
        cf()
    clock.seconds[disturbed] = 0.5e-3
    for _ in range(20):
        cf()
    assert clock.calls[-10:] == [disturbed] * 10


@pytest.mark.parametrize("faster, slower", [("plain", "compiled"), ("compiled", "plain")])
def test_one_burst_while_the_processor_runs_slowly_does_not_decide(clock: Clock, faster: str, slower: str) -> None:
    cf = measured(clock, **{faster: 4e-6, slower: 2e-6})  # the whole first burst of the faster way
    while clock.calls.count(faster) < 16:
        cf()
    clock.seconds[faster] = 1e-6
    for _ in range(100):
        cf()
    assert clock.calls[-20:] == [faster] * 20


@pytest.mark.parametrize("way, slower", [("plain", "compiled"), ("compiled", "plain")])
@pytest.mark.parametrize("disturbed", [5, 100])
def test_a_disturbed_sample_does_not_decide_for_ever(clock: Clock, way: str, slower: str, disturbed: int) -> None:
    cf = measured(clock, **{slower: 1e-2, way: disturbed * 1e-2})
    for _ in range(2):
        cf()
    clock.seconds[way] = 1e-3
    for _ in range(100):
        cf()
    assert clock.calls[2:102] == [slower] * 100
    for _ in range(200 * disturbed):
        cf()
    assert clock.calls[-100:] == [way] * 100


@pytest.mark.parametrize("slower, faster", [("plain", "compiled"), ("compiled", "plain")])
@pytest.mark.parametrize("ratio", [2, 5, 50])
def test_measuring_again_costs_little(clock: Clock, slower: str, faster: str, ratio: int) -> None:
    cf = measured(clock, **{slower: ratio * 1e-6, faster: 1e-6})
    n = 100_000
    for _ in range(n):
        cf()
    assert clock.now - 1.0 < 1e-6 * (1.02 * n + 100)


def test_what_is_much_faster_twice_is_never_asked_again(clock: Clock) -> None:
    cf = measured(clock, plain=1e-3, compiled=1e-6)
    for _ in range(500_000):
        cf()
    assert clock.calls.count("plain") == 2


def test_sizes_are_measured_by_themselves(clock: Clock) -> None:
    """Of symbolic sizes: the program is faster for long arrays, the plain call for short ones."""
    clock.seconds = {"compiled": 1e-3}

    def f(x: np.ndarray) -> str:
        clock.seconds["plain"] = 1e-4 * len(x)
        return clock.spend("plain")

    guards = (("array", 0, 0, np.dtype(float), 1, (None,), None, None), ("dim", 0, 0, 0))
    plan = PythonPlan(lambda x: (), 1, ("call", clock.spend, (("const", "compiled"),)), 1)
    cf = CompiledFunction(f, lambda *_: "missed")
    cf.add_entry(Entry(guards, 1, plan, None, True))
    for _ in range(20):
        cf(np.zeros(3)), cf(np.zeros(100))
    assert clock.calls[-10:] == ["plain", "compiled"] * 5
    assert cf(np.zeros(2)) == "plain" and cf(np.zeros(120)) == "compiled" and cf.entries[0].stays_eager


@pytest.mark.parametrize(
    "sizes, way",
    [
        (tuple(range(1024, 2048)), "compiled"),  # never the same
        ((3,), "plain"),
        ((*range(1024, 1100), 1024), "plain"),  # from where they stay the same
    ],
)
def test_times_of_the_same_sizes_are_compared_as_they_are(clock: Clock, sizes: tuple[int, ...], way: str) -> None:
    """The program takes 1.1 times as long: of other sizes of the same class that says nothing."""
    clock.seconds = {"plain": 0.9e-3, "compiled": 1e-3}
    guards = (("array", 0, 0, np.dtype(float), 1, (None,), None, None), ("dim", 0, 0, 0))
    plan = PythonPlan(lambda x: (), 1, ("call", clock.spend, (("const", "compiled"),)), 1)
    cf = CompiledFunction(lambda x: clock.spend("plain"), lambda *_: "missed")
    cf.add_entry(Entry(guards, 1, plan, None, True))
    for k in range(1000):
        cf(np.zeros(sizes[min(k, len(sizes) - 1)]))
    assert clock.calls[-10:] == [way] * 10


def test_compiling_is_not_counted(clock: Clock) -> None:
    """A part of the function is compiled in its plain run: that was no plain run's time."""

    def f() -> str:
        clock.now += 0.5
        note_compiling(0.5)
        return clock.spend("plain")

    clock.seconds = {"plain": 1e-2, "compiled": 2e-2}
    cf = CompiledFunction(f, lambda *_: "missed")
    cf.add_entry(Entry((), 1, PythonPlan(lambda: (), 0, ("call", clock.spend, (("const", "compiled"),))), None, True))
    cf(), cf()
    assert cf.entries[0].stays_eager and cf.earned == pytest.approx(2e-2)


def test_calls_that_are_put_off_run_plainly_and_earn(clock: Clock) -> None:
    clock.seconds = {"plain": 0.25}
    asked: list[int] = []

    def on_miss(cf: CompiledFunction, args: tuple, kwargs: dict | None) -> Any:
        asked.append(len(clock.calls))
        cf.put_off(1.0)
        return PLAINLY

    cf = CompiledFunction(lambda x, *, y=0: clock.spend("plain"), on_miss)
    for k in range(11):
        assert cf(1, y=k) == "plain"
    assert asked == [0, 4, 8] and cf.earned == pytest.approx(11 * 0.25)


def test_plain_calls_within_plain_calls_earn_once(clock: Clock) -> None:
    clock.seconds = {"plain": 1.0}

    def f(n: int) -> None:
        clock.spend("plain")
        if n:
            cf(n - 1)

    cf = CompiledFunction(f, lambda *_: PLAINLY)
    cf(5)
    assert cf.earned == pytest.approx(6.0)


def test_an_entry_that_is_not_measured_serves_always() -> None:
    cf = CompiledFunction(lambda: "plain", lambda *_: "missed")
    cf.add_entry(Entry((), 1, PythonPlan(lambda: (time.sleep(0.0002),), 0, ("const", "compiled"))))
    assert {cf() for _ in range(100)} == {"compiled"}
    assert cf.counters() == {"hits": 100, "misses": 0, "refusals": 0, "stayed_eager": 0}
