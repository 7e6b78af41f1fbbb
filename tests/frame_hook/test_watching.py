"""Watching: every frame that starts in the extent of a call is offered, but for those that were marked."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dynagraph._core import _frame_hook
from dynagraph._core._frame_hook import SKIP, call_unwatched, call_watched, is_active, set_watcher, skip, skipped
from dynagraph.frontend.bytecode.assemble import call_instead


@pytest.fixture
def offered() -> Iterator[list]:
    """The names of the functions that were offered; all frames run as they are, with no garbage collection meanwhile."""
    seen: list = []
    set_watcher(lambda function, code, values: seen.append(function.__name__))
    gc.disable()
    yield seen
    gc.enable()


def fresh(body: str, name: str = "f", **names: Any) -> Any:
    """A function with a code object of its own, which no other test has marked."""
    exec(f"def {name}(*args):\n {body}", names)
    return names[name]


def inner(a=0):
    return a


def outer(a=0):
    return inner(a) + inner(a)


def test_frames_that_start_are_offered(offered: list) -> None:
    def root(a, *, b):
        return outer(a) + b

    assert call_watched(root, 1, b=5) == 7
    assert offered == ["outer", "inner", "inner"]
    root(1, b=5)
    assert len(offered) == 3


def test_the_watched_function_is_never_offered(offered: list) -> None:
    def root(n):
        return inner(n) if n == 0 else root(n - 1)

    call_watched(root, 3)
    assert offered == ["inner"]
    del offered[:]
    assert call_watched(len, [1]) == 1
    assert call_watched(sorted, [2, 1], key=inner) == [1, 2] and offered == ["inner", "inner"]


def test_what_the_callback_is_given() -> None:
    seen = []
    set_watcher(lambda *given: seen.append((*given, is_active())))

    def taking(a, b=2, *rest, c=3, **more):
        return locals()

    call_watched(lambda: taking(1, c=5, d=6))
    assert seen == [(taking, taking.__code__, (1, 2, 5, (), {"d": 6}), False)]


def test_answers_swap_the_code() -> None:
    set_watcher(lambda function, code, values: call_instead(code, lambda v: inner(*v) * 10) if function is outer else None)
    assert call_watched(lambda: outer(3)) == 30
    assert outer(3) == 6


def test_watching_goes_on_in_swapped_frames() -> None:
    seen = []

    def callback(function, code, values):
        seen.append(function.__name__)
        return call_instead(code, lambda v: inner(*v)) if function is outer else None

    set_watcher(callback)
    call_watched(lambda: outer(3))
    assert seen[0] == "outer" and seen[-1] == "inner"


def test_exceptions_of_the_callback() -> None:
    def callback(function, code, values):
        raise KeyError("watching")

    set_watcher(callback)

    def root():
        try:
            inner()
        except KeyError:
            return "caught", is_active()

    assert call_watched(root) == ("caught", True)


def test_the_answer_skip_is_kept() -> None:
    f, seen = fresh("return inner()", inner=inner), []

    def callback(function, code, values):
        seen.append(function.__name__)
        return SKIP if function is f else None

    set_watcher(callback)
    call_watched(lambda: (f(), f()))
    assert seen == ["f", "inner", "inner"]
    assert skipped(f.__code__) and not skipped(inner.__code__)


def test_frames_are_left_alone_for_the_seconds_that_are_answered() -> None:
    f, seen = fresh("return inner()", inner=inner), []

    def callback(function, code, values):
        seen.append(function.__name__)
        return 3600.0 if function is f else 0.0

    set_watcher(callback)
    call_watched(lambda: (f(), f()))
    assert seen == ["f", "inner", "inner"]  # what they call is offered
    assert not skipped(f.__code__)
    skip(f.__code__)
    assert skipped(f.__code__)

    short = fresh("return None")
    set_watcher(lambda function, code, values: seen.append(function.__name__) or 1e-3)
    call_watched(lambda: (short(), time.sleep(2e-3), short()))
    assert seen == ["f", "inner", "inner", short.__name__, short.__name__]


def test_skipped_code_is_not_offered(offered: list) -> None:
    f = fresh("return inner()", inner=inner)
    assert not skipped(f.__code__)
    skip(f.__code__)
    skip(f.__code__, deep=False)
    assert skipped(f.__code__)
    call_watched(lambda: f())
    assert offered == ["inner"]


def test_deep_marks_cover_what_is_called(offered: list) -> None:
    f = fresh("return outer(), active()", outer=outer, active=is_active)
    skip(f.__code__, deep=True)
    assert call_watched(lambda: (f(), inner(), is_active())) == ((0, False), 0, True)
    assert offered == ["inner"]


def test_a_deep_mark_made_by_the_callback() -> None:
    f, seen = fresh("return outer()", outer=outer), []

    def callback(function, code, values):
        seen.append(function.__name__)
        if function is f:
            skip(code, deep=True)

    set_watcher(callback)
    call_watched(lambda: (f(), f(), inner()))
    assert seen == ["f", "inner"]


def test_deep_marks_on_generators(offered: list) -> None:
    generator = fresh("yield inner(); yield outer()", inner=inner, outer=outer)
    assert call_watched(lambda: list(generator())) == [0, 0] and offered == ["inner", "outer", "inner", "inner"]
    del offered[:]
    skip(generator.__code__, deep=True)

    def root():
        values = []
        for value in generator():
            values.append((value, inner()))
        return values

    assert call_watched(root) == [(0, 0), (0, 0)] and offered == ["inner", "inner"]


def test_generators_classes_and_modules_are_not_offered(offered: list) -> None:
    def generator():
        yield 1

    async def coroutine():
        return 1

    def root():
        class C:
            x = inner()

        exec("y = inner()", {"inner": inner})
        coroutine().close()
        return [*generator()], [*(k for k in range(2))], C.x

    assert call_watched(root) == ([1], [0, 1], 0)
    assert offered == ["inner", "inner"]


def test_nothing_is_watched_within_call_unwatched(offered: list) -> None:
    def root():
        return call_unwatched(outer, a=2), inner(), call_unwatched(is_active)

    assert call_watched(root) == (4, 0, False) and offered == ["inner"]
    assert call_unwatched(outer, 3) == 6
    assert call_watched(lambda: call_unwatched(lambda: call_watched(lambda: inner()))) == 0 and offered == ["inner", "inner"]


def test_exceptions_restore_the_state(offered: list) -> None:
    def fail():
        raise ValueError

    f = fresh("fail()", fail=fail)
    skip(f.__code__, deep=True)

    def root():
        for broken in (f, lambda: call_unwatched(fail), lambda: call_watched(fail)):
            with pytest.raises(ValueError):
                broken()
            assert is_active()
            inner()
        fail()

    skip(root.__code__)
    skip(pytest.raises.__code__, deep=True)
    del offered[:]
    with pytest.raises(ValueError):
        call_watched(root)
    assert offered.count("inner") == 3 and not is_active()


def test_nested_watches(offered: list) -> None:
    def root():
        call_watched(outer)
        return outer()

    call_watched(root)
    assert offered == ["inner", "inner", "outer", "inner", "inner"]


def test_the_watcher_before_is_returned() -> None:
    def one(function, code, values):
        return None

    before = sys.getrefcount(one)
    assert [set_watcher(w) for w in (one, len, one, None, None)] == [None, one, len, one, None]
    with pytest.raises(TypeError):
        set_watcher(5)
    assert set_watcher(None) is None and sys.getrefcount(one) == before


def test_without_a_watcher_calls_just_run() -> None:
    assert call_watched(outer, 2) == 4 and not is_active()


def test_a_watcher_that_goes_while_it_is_asked() -> None:
    def install() -> None:
        def callback(function, code, values):
            set_watcher(None)
            gc.collect()
            seen.append(function)

        set_watcher(callback)

    seen: list = []
    install()
    call_watched(lambda: outer())
    assert seen == [outer]


def test_threads_watch_for_themselves() -> None:
    seen: list = []
    problems: list = []

    def callback(function, code, values):
        if function is mine:  # callbacks of the garbage collector are offered too
            seen.append((threading.get_ident(), values))

    set_watcher(callback)

    def mine(k):
        return k

    def watching():
        for k in range(2000):
            if call_watched(lambda k=k: mine(k)) != k:
                problems.append(k)

    def bystander():
        for k in range(20000):
            if mine(-k) != -k:
                problems.append(k)

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=watching) for _ in range(3)] + [threading.Thread(target=bystander)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert problems == [] and len(seen) == 6000 and all(values[0] >= 0 for _, values in seen)
    assert len({thread for thread, _ in seen}) <= 3


def test_threads_that_a_watched_call_starts(offered: list) -> None:
    thread = threading.Thread(target=inner)

    def root():
        thread.start()
        thread.join()

    call_watched(root)
    assert "inner" not in offered


def test_recursion_ends(offered: list) -> None:
    def down(n):
        return down(n + 1)

    with pytest.raises(RecursionError):
        call_watched(lambda: down(0))


def test_reference_counts() -> None:
    thing = object()
    set_watcher(lambda function, code, values: new if function is f else None)

    def f(a):
        return outer()

    new = call_instead(f.__code__, len)
    things = (thing, f, f.__code__, new, outer.__code__, SKIP)

    def rounds() -> list[int]:
        for _ in range(500):
            call_watched(f, thing)
            call_watched(lambda: f(thing))
            with pytest.raises(TypeError):
                call_watched(f)
        gc.collect()
        return [sys.getrefcount(x) for x in things]

    assert rounds() == rounds()


@pytest.mark.parametrize(
    "call", [call_watched, call_unwatched, lambda: set_watcher(5), lambda: skip(5), lambda: skip(inner), lambda: skipped(None)]
)
def test_arguments_of_other_types(call: Callable) -> None:
    with pytest.raises(TypeError):
        call()


def test_counters(offered: list) -> None:
    before = _frame_hook.counters()
    call_watched(lambda: outer())
    after = _frame_hook.counters()
    assert after["offered"] - before["offered"] == 3 and after["swapped"] == before["swapped"]
