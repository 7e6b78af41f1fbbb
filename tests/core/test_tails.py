"""Tails and the trampoline: calls made one after the other, which hold nothing longer than it is needed."""

from __future__ import annotations

import _thread
import gc
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dynagraph._core._dispatch import CompiledFunction, Entry, NativePlan, PythonPlan, Tail


def no_miss(cf: CompiledFunction, args: tuple, kwargs: dict | None) -> Any:
    raise AssertionError("a miss")


def plan(recipe: tuple, n_inputs: int = 0) -> NativePlan:
    return NativePlan(0, None, n_inputs, (), 0, recipe, False, 0)


def continuing(function: Callable, *parts: tuple, guards: tuple = (), n_registers: int = 4, n_inputs: int = 0) -> Entry:
    """An entry whose plan calls a continuation."""
    return Entry(guards, n_registers, plan(("call", function, parts), n_inputs))


def compiled(function: Any, *entries: Entry, on_miss: Callable = no_miss) -> CompiledFunction:
    cf = CompiledFunction(function, on_miss)
    for entry in entries:
        cf.add_entry(entry)
    return cf


# -- the type ----------------------------------------------------------------------------------------------------------


def test_a_tail_has_a_function_and_arguments() -> None:
    tail = Tail(len, 1, "a")
    assert tail.function is len and tail.args == (1, "a") and Tail(len).args == ()


@pytest.mark.parametrize("args, kwargs", [((), {}), ((5,), {}), ((len,), {"a": 1})])
def test_tails_that_are_refused(args: tuple, kwargs: dict) -> None:
    with pytest.raises(TypeError, match="Tail: expected a callable"):
        Tail(*args, **kwargs)


def test_tails_are_collected() -> None:
    class Thing:
        pass

    thing = Thing()
    thing.tail = Tail(len, thing)
    reference = weakref.ref(thing)
    del thing
    gc.collect()
    assert reference() is None


# -- the trampoline ----------------------------------------------------------------------------------------------------


def countdown() -> CompiledFunction:
    """A loop of graph breaks: each call asks for the next one."""

    def step(n: int) -> Any:
        return "done" if n == 0 else Tail(cf, n - 1)

    cf = compiled(lambda n: None, continuing(step, ("arg", 0)))
    return cf


def test_long_chains_are_flat() -> None:
    cf = countdown()
    assert cf(100_000) == "done" and cf.counters() == {"hits": 100_001, "misses": 0, "refusals": 0, "stayed_eager": 0}


def test_depth_does_not_grow() -> None:
    depths = []

    def step(n: int) -> Any:
        frame, depth = sys._getframe(), 0
        while frame := frame.f_back:
            depth += 1
        depths.append(depth)
        return None if n == 0 else Tail(cf, n - 1)

    cf = compiled(lambda n: None, continuing(step, ("arg", 0)))
    cf(10)
    assert len(depths) == 11 and len(set(depths)) == 1


def test_run_gives_tails_and_call_follows_them() -> None:
    entry = continuing(lambda n: Tail(divmod, n, 7), ("arg", 0))
    tail = entry.run((23,))
    assert type(tail) is Tail and tail.function is divmod and tail.args == (23, 7)
    assert entry.call((23,)) == (3, 2)
    with pytest.raises(ZeroDivisionError):
        continuing(lambda: Tail(divmod, 1, 0)).call(())
    with pytest.raises(TypeError, match="expected a tuple"):
        entry.call(5)


def test_tails_of_misses_and_of_plain_functions() -> None:
    def plain(n: int) -> Any:
        return Tail(other, n) if n < 3 else ("plain", n)

    seen: list = []

    def on_miss(cf: CompiledFunction, args: tuple, kwargs: dict | None) -> Any:
        seen.append((cf, args, kwargs))
        return Tail(plain, args[0] + 1)

    other = compiled(plain, on_miss=on_miss)
    assert other(0) == ("plain", 3)
    assert seen == [(other, (k,), None) for k in range(3)]
    other.enabled = False
    assert continuing(lambda: Tail(other, 5)).call(()) == ("plain", 5) and len(seen) == 3


def test_parameters_of_all_kinds() -> None:
    def f(a, b=5, *rest, c=6, **more):
        raise AssertionError("called")

    cf = compiled(f, Entry((), 8, plan(("tuple", tuple(("arg", k) for k in range(5))))))
    assert continuing(lambda: Tail(cf, 1)).call(()) == (1, 5, 6, (), {})
    assert continuing(lambda: Tail(cf, 1, 2, 3)).call(()) == (1, 2, 6, (3,), {})
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        continuing(lambda: Tail(cf)).call(())


def test_tails_that_a_plan_makes_itself() -> None:
    cf = compiled(lambda a, b: None, Entry((), 2, plan(("do", (), ("call", Tail, (("const", divmod), ("arg", 0), ("arg", 1)))))))
    assert cf(17, 5) == (3, 2)


def test_python_plans_continue_too() -> None:
    calls = ("call", lambda a, b: Tail(min, a, b), (("out", 0), ("out", 1)))
    assert Entry((), 2, PythonPlan(lambda: (4, 3), 0, calls)).call(()) == 3


def test_exceptions_leave_the_chain() -> None:
    def step(n: int) -> Any:
        if n == 0:
            raise KeyError("end")
        return Tail(cf, n - 1)

    cf = compiled(lambda n: None, continuing(step, ("arg", 0)))
    with pytest.raises(KeyError, match="end"):
        cf(10)
    with pytest.raises(AssertionError, match="a miss"):
        continuing(lambda: Tail(compiled(lambda: None))).call(())


# -- lifetimes ---------------------------------------------------------------------------------------------------------


class Thing:
    pass


def test_a_plan_lets_go_of_its_arguments_before_it_continues() -> None:
    array = np.ones(3)
    guards = (("array", 0, 0, np.dtype(float), 1, (3,), None, None), ("is_not", 1, None))

    def check(kept: Any) -> Any:
        return array_reference(), thing_reference(), kept

    end = compiled(lambda a, b: None, continuing(check, ("const", "kept"), guards=guards, n_inputs=1))
    thing = Thing()
    array_reference, thing_reference = weakref.ref(array), weakref.ref(thing)

    def start(a: Any, b: Any) -> Any:
        return Tail(end, a, b)

    tail = start(array, thing)
    assert end(array, thing)[:2] == (array, thing)  # the caller holds them
    box = [tail]
    del array, thing, tail
    assert continuing(lambda: box.pop()).call(()) == (None, None, "kept")


def test_what_a_continuation_is_given_dies_with_its_frame() -> None:
    references: list = []

    def first() -> Any:
        thing = Thing()
        references.append(weakref.ref(thing))
        return Tail(middle, thing)

    def second(thing: Thing) -> Any:
        assert references[0]() is thing
        return Tail(end)

    middle = compiled(lambda thing: None, continuing(second, ("arg", 0)))
    end = compiled(lambda: None, continuing(lambda: references[0]()))
    assert continuing(first).call(()) is None


def test_outputs_and_shared_objects_are_dropped_before_the_call() -> None:
    references: list = []

    class Array(np.ndarray):
        pass

    def make() -> tuple:
        output = np.zeros(3).view(Array)
        references.append(weakref.ref(output))
        return (output,)

    shared = ("memo", 0, ("list", (("out", 0),)))
    steps = (("call", len, (shared,)), ("call", len, (shared,)))
    recipe = ("do", steps, ("call", lambda n: (n, references[0]()), (("call", len, (shared,)),)))
    assert Entry((), 0, PythonPlan(make, 0, recipe)).run(()) == (1, None)


def test_a_miss_holds_the_arguments_and_not_the_tail() -> None:
    def on_miss(cf: CompiledFunction, args: tuple, kwargs: dict | None) -> Any:
        return sys.getrefcount(args[0])  # that of the tuple, and its own

    cf = compiled(lambda a: None, on_miss=on_miss)
    assert continuing(lambda: Tail(cf, Thing())).call(()) == 2


def test_a_tail_that_somebody_keeps_stays_whole() -> None:
    cf = countdown()
    tail = Tail(cf, 3)
    assert continuing(lambda: tail).call(()) == "done" and continuing(lambda: tail).call(()) == "done" and tail.args == (3,)


def test_a_function_that_only_its_tail_holds() -> None:
    def fresh(n: int) -> Any:
        cf = compiled(lambda n: None, continuing(lambda n: fresh(n - 1) if n else "done", ("arg", 0)))
        return Tail(cf, n)

    assert continuing(fresh, ("const", 50)).call(()) == "done"
    gc.collect()


def test_nothing_leaks() -> None:
    thing = Thing()
    cf = compiled(lambda n, x: None)

    def step(n: int, x: Any) -> Any:
        if n == 5:
            raise ValueError
        return Tail(cf, n - 1, x) if n else x

    cf.add_entry(continuing(step, ("arg", 0), ("arg", 1)))
    objects = (thing, step, cf, Tail)

    def rounds() -> list[int]:
        for _ in range(200):
            assert cf(4, thing) is thing
            with pytest.raises(ValueError):
                cf(8, thing)
        gc.collect()
        return [sys.getrefcount(x) for x in objects]

    assert rounds() == rounds()


# -- endless and deep --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("sigint")
@pytest.mark.parametrize("in_python", [True, False])
def test_an_endless_chain_can_be_interrupted(in_python: bool) -> None:
    cf = compiled(lambda: None)
    if in_python:
        cf.add_entry(continuing(lambda: Tail(cf)))
    else:
        cf.add_entry(Entry((), 0, plan(("const", Tail(cf)))))

    def interrupt() -> None:
        time.sleep(0.1)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        cf()
    thread.join()


def test_recursion_within_plans_ends() -> None:
    cf = compiled(lambda: None)
    cf.add_entry(Entry((), 0, plan(("call", cf, ()))))
    with pytest.raises(RecursionError):
        cf()


def test_recursion_through_continuations() -> None:
    def step(n: int) -> int:
        return 0 if n == 0 else 1 + cf(n - 1)

    cf = compiled(lambda n: None, continuing(step, ("arg", 0)))
    assert cf(600) == 600
    with pytest.raises(RecursionError):
        cf(10**6)
