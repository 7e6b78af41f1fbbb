"""The frame hook: looks at frames as they start, and the code swapped in, leave no trace in the interpreter."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import threading
import traceback
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dynagraph._core import _frame_hook
from dynagraph._core._frame_hook import call_watched, is_active, set_watcher
from dynagraph.backends.loader import load
from dynagraph.backends.toolchain import toolchain
from dynagraph.frontend.bytecode.assemble import call_instead
from tests.frame_hook.watching import watch_one


class Thing:
    pass


def unchanged(function: Any, code: Any, values: Any) -> None:
    return None


def swapping_in(callable: Callable[[tuple], Any]) -> Callable[..., types.CodeType]:
    return lambda function, code, values: call_instead(code, callable)


def all_kinds(a, b, /, c=30, *args, k=3, **kw):
    local = "own"
    return local, a, b, c, args, k, kw


def test_callback_sees_the_bound_parameters() -> None:
    seen = []

    def callback(function, code, values):
        seen.append((function, code, values, is_active()))

    assert watch_one(all_kinds, callback, 1, 2, z=4) == ("own", 1, 2, 30, (), 3, {"z": 4})
    assert seen == [(all_kinds, all_kinds.__code__, (1, 2, 30, 3, (), {"z": 4}), False)]
    assert not is_active()


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((1, 2), {}),
        ((1, 2, 3), {"k": 9}),
        ((1, 2, 3, 4, 5), {"k": 9, "x": 1}),
        ((1, 2), {"c": 5, "a": 7}),
    ],
)
def test_calls_of_all_kinds(args: tuple, kwargs: dict) -> None:
    expected = all_kinds(*args, **kwargs)
    assert watch_one(all_kinds, unchanged, *args, **kwargs) == expected
    _, a, b, c, rest, k, kw = expected
    assert watch_one(all_kinds, swapping_in(lambda values: values), *args, **kwargs) == (a, b, c, k, rest, kw)


OTHER_EVALUATOR = """
extern void *_PyEval_EvalFrameDefault(void *, void *, int);
int n_frames;
void *count_frames(void *thread, void *frame, int throwflag)
{
    ++n_frames;
    return _PyEval_EvalFrameDefault(thread, frame, throwflag);
}
"""


@pytest.fixture
def other_evaluator() -> Iterator[tuple[ctypes.c_int, Callable[[], int | None]]]:
    """An evaluator that another tool has set: its count of frames, and what tells which evaluator is set."""
    library = load(toolchain().compile(OTHER_EVALUATOR))
    python = ctypes.pythonapi
    python.PyInterpreterState_Get.restype = ctypes.c_void_p
    python._PyInterpreterState_GetEvalFrameFunc.restype = ctypes.c_void_p
    python._PyInterpreterState_GetEvalFrameFunc.argtypes = [ctypes.c_void_p]
    python._PyInterpreterState_SetEvalFrameFunc.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    python._PyInterpreterState_SetEvalFrameFunc.restype = None
    interpreter = python.PyInterpreterState_Get()
    before = python._PyInterpreterState_GetEvalFrameFunc(interpreter)
    python._PyInterpreterState_SetEvalFrameFunc(interpreter, library.address("count_frames"))
    yield (
        ctypes.c_int.from_address(library.address("n_frames")),
        lambda: python._PyInterpreterState_GetEvalFrameFunc(interpreter),
    )
    python._PyInterpreterState_SetEvalFrameFunc(interpreter, before)


def test_another_tools_evaluator_stays(other_evaluator: tuple[ctypes.c_int, Callable[[], int | None]]) -> None:
    frames, evaluator = other_evaluator
    its = evaluator()
    seen = []

    def f(a):
        return a

    def generator():
        yield 1

    for _ in range(3):
        before = frames.value
        assert watch_one(f, swapping_in(lambda values: (evaluator() != its, *values)), 5) == (True, 5)
        assert frames.value > before and evaluator() == its
        assert watch_one(f, lambda *_: seen.append(evaluator()), 5) == 5 and evaluator() == its
        assert list(watch_one(generator, unchanged)) == [1] and evaluator() == its
        with pytest.raises(TypeError):
            watch_one(f, unchanged)
        assert evaluator() == its
        with pytest.raises(ZeroDivisionError):
            watch_one(f, lambda *_: 1 / 0, 5)
        assert evaluator() == its
    assert seen == [its] * 3  # ours is unset while the watcher is asked


def test_the_callbacks_own_calls_and_later_ones_are_not_looked_at() -> None:
    count = [0]

    def callback(function, code, values):
        if function is fib:
            count[0] += 1
            assert fib(3) == 2

    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    set_watcher(callback)
    assert call_watched(lambda: fib(12)) == 144
    assert count == [465]
    assert fib(10) == 55 and count == [465]


def test_the_function_object_counts_not_its_code() -> None:
    def make(n):
        def inner(x):
            return x + n

        return inner

    one, two = make(1), make(2)

    def outer(x):
        return two(x)

    assert one.__code__ is two.__code__
    seen = []
    set_watcher(lambda f, c, v: seen.append(f))
    call_watched(lambda: outer(1))
    assert seen == [outer, two]
    seen.clear()
    assert call_watched(one, 1) == 2 and seen == []  # the watched function
    assert call_watched(one, two(1)) == 4 and seen == []
    assert watch_one(one, swapping_in(lambda v: ("new", v[0], two(1))), 1) == ("new", 1, 3)
    assert one(1) == 2 and two(1) == 3


def test_nested_calls_that_are_watched() -> None:
    log = []

    def inner(x):
        return x * 2

    def outer(x):
        return watch_one(inner, lambda f, c, v: log.append("in the body"), x) + 1

    def callback(function, code, values):
        log.append(watch_one(inner, lambda f, c, v: log.append("in the callback"), 5))
        assert not is_active()

    assert watch_one(outer, callback, 1) == 3
    assert log == ["in the callback", 10, "in the body"]
    assert not is_active()


def test_wrong_calls_raise_the_functions_own_error() -> None:
    def f(a):
        return a

    with pytest.raises(TypeError) as own:
        f()
    with pytest.raises(TypeError) as other:
        watch_one(f, unchanged)
    assert str(own.value) == str(other.value)
    assert not is_active()


def test_exceptions_of_the_callback_are_the_frames() -> None:
    thing = Thing()
    before = sys.getrefcount(thing)

    def f(a):
        try:
            return a
        except ValueError:
            return "caught inside"  # the frame had not got here
        finally:
            pass

    def callback(function, code, values):
        raise ValueError("from the callback")

    for _ in range(50):
        with pytest.raises(ValueError, match="from the callback"):
            watch_one(f, callback, thing)
        assert not is_active()
    gc.collect()
    assert sys.getrefcount(thing) == before


TWO = call_instead((lambda a, b: a).__code__, len)


@pytest.mark.parametrize("answer", [5, "code", "skip", (lambda a: a), (), (TWO,), (TWO, 1, 2), (None, 1), (TWO.co_code, 1)])
def test_answers_that_are_none(answer: Any) -> None:
    with pytest.raises(TypeError, match="call_watched: the watcher must return a code object"):
        watch_one(lambda a, b: a, lambda *_: answer, 1, 2)


@pytest.mark.parametrize(
    "code",
    [
        (lambda a, b, c: a).__code__,
        (lambda *a: a).__code__,
        (lambda a, *, b: a).__code__,
        (lambda a, b, /: a).__code__,
        (lambda a, b: (yield)).__code__,
        compile("1", "x", "eval"),
    ],
)
def test_answers_that_do_not_fit(code: types.CodeType) -> None:
    for answer in (code, (code, 1)):
        with pytest.raises(TypeError, match=r"call_watched: .* has other parameters"):
            watch_one(lambda a, b: a, lambda *_, answer=answer: answer, 1, 2)


def test_free_variables_must_agree() -> None:
    n = 5
    with pytest.raises(TypeError, match="free variables"):
        watch_one(lambda a: a + n, lambda *_: (lambda a: a).__code__, 1)


def test_values_come_behind_the_parameters() -> None:
    def f(a, *rest, k=3):
        local = [a]
        return local.pop()

    code = call_instead(f.__code__)
    things = (Thing(), code, lambda values: (things[0], *values), f.__code__)
    before = [sys.getrefcount(x) for x in things]
    for _ in range(200):
        assert watch_one(f, lambda *_: (code, things[2]), 1, 2) == (things[0], 1, 3, (2,))
        assert watch_one(f, lambda *_: (f.__code__, things[0]), 1) == 1  # to be overwritten
        with pytest.raises(TypeError, match="'Thing' object is not callable"):
            watch_one(f, lambda *_: (code, things[0]), 1)
        with pytest.raises(TypeError, match="no local variable for the value"):
            watch_one(f, lambda *_: (call_instead(code, len), things[0]), 1)
    gc.collect()
    assert [sys.getrefcount(x) for x in things] == before


def test_exceptions_of_what_was_swapped_in() -> None:
    def f(a):
        return a

    thing = Thing()
    before = sys.getrefcount(thing)
    for _ in range(20):
        with pytest.raises(KeyError) as info:
            watch_one(f, swapping_in(lambda values: {}[values[0]]), thing)
        names = [frame.name for frame in traceback.extract_tb(info.tb)]
        assert names[-2:] == ["f", "<lambda>"]
        assert [frame.lineno for frame in traceback.extract_tb(info.tb)][-2] == f.__code__.co_firstlineno
        tb = info.tb
        while tb.tb_frame.f_code.co_name != "f":
            tb = tb.tb_next
        assert tb.tb_frame.f_locals == {"a": thing}
        del info, tb
    gc.collect()
    assert sys.getrefcount(thing) == before


def test_closures_and_cells() -> None:
    n, m = 10, 20

    def f(a, b):
        def inner():
            return a + b + n

        return inner() + m

    assert watch_one(f, unchanged, 1, 2) == 33
    assert watch_one(f, swapping_in(lambda values: values), 1, 2) == (1, 2)
    held = []
    watch_one(f, swapping_in(lambda values: held.append(sys._getframe(1))), 1, 2)
    assert held[0].f_locals == {"a": 1, "b": 2, "n": 10, "m": 20}

    def other(x, y):
        return [m - n for _ in range(x)], (lambda: y)()

    assert watch_one(f, lambda *_: other.__code__, 2, 7) == ([10, 10], 7)


def test_class_cell() -> None:
    class Base:
        def method(self, x):
            return x

    class Derived(Base):
        def method(self, x):
            return super().method(x) + 1

    instance = Derived()
    assert watch_one(Derived.method, unchanged, instance, 3) == 4
    assert watch_one(Derived.method, swapping_in(lambda v: v[1:]), instance, 3) == (3,)


def bigger(a, b):
    table = [i * a for i in range(b)]
    try:
        c = 1 / 0
    except ZeroDivisionError:
        c = 7
    return {"table": table, "c": c, "many": (a, b, a, b, a, b, a, b, a, b, a, b, a, b)}


def test_bigger_frames() -> None:
    def small(a, b):
        return a

    before = _frame_hook.counters()["swapped"]
    for _ in range(100):
        assert watch_one(small, lambda *_: bigger.__code__, 2, 3) == bigger(2, 3)
    assert _frame_hook.counters()["swapped"] == before + 100


def test_frames_that_find_no_room_run_as_they_are() -> None:
    namespace: dict[str, Any] = {}
    lines = "\n".join(f"    v{k} = a" for k in range(3000))
    exec(f"def huge(a):\n{lines}\n    return 'swapped', v2999", namespace)

    def small(a):
        return "own", a

    before = _frame_hook.counters()["without_room"]
    answers = {watch_one(small, lambda *_: namespace["huge"].__code__, 1)[0] for _ in range(3)}
    if answers == {"own"}:
        assert _frame_hook.counters()["without_room"] == before + 3
    assert small(1) == ("own", 1)


def test_deep_stacks_of_swapped_frames() -> None:
    def f(n):
        return n

    def step(values):
        n = values[0]
        return 0 if n == 0 else 1 + watch_one(f, swapping_in(step), n - 1)

    def swapped_in(n):
        """How many frames are swapped; one without room on its chunk of the stack gives n itself, and is the last."""
        before = _frame_hook.counters()
        assert watch_one(f, swapping_in(step), n) == n
        after = _frame_hook.counters()
        return after["swapped"] - before["swapped"], after["without_room"] > before["without_room"]

    swapped, full = swapped_in(40)
    assert swapped == 41 or (full and 0 < swapped < 41)
    swapped, full = swapped_in(200)
    assert 40 < swapped < 160 or full  # too deep to watch


def test_frame_objects_outlive_the_frame() -> None:
    def f(a):
        return a

    thing = Thing()
    held = []
    watch_one(f, swapping_in(lambda values: held.append(sys._getframe(1))), thing)
    frame = held.pop()
    assert frame.f_locals == {"a": thing} and frame.f_code.co_name == "f"
    reference = weakref.ref(thing)
    del frame, thing
    gc.collect()
    assert reference() is None


def test_generators_and_coroutines_just_run() -> None:
    seen = []

    def callback(function, code, values):
        seen.append(function)

    def generator(n):
        try:
            yield from range(n)
        except ValueError:
            yield "caught"

    async def coroutine():
        return 5

    async def asynchronous():
        yield 1

    def root():
        assert list(generator(3)) == [0, 1, 2]
        running = generator(3)
        assert next(running) == 0 and running.throw(ValueError) == "caught"
        with pytest.raises(StopIteration) as stop:
            coroutine().send(None)
        assert stop.value.value == 5
        with pytest.raises(StopIteration) as stop:
            asynchronous().asend(None).send(None)
        assert stop.value.value == 1

    set_watcher(callback)
    call_watched(root)
    assert not {generator, coroutine, asynchronous} & set(seen)
    running = call_watched(generator, 3)
    assert next(running) == 0 and not is_active()


def test_generators_made_by_the_frame() -> None:
    def f(n):
        return tuple(i * i for i in range(n)), [i * n for i in range(n)], dict.fromkeys(range(n), n)

    assert watch_one(f, unchanged, 3) == f(3)


def test_reference_counts() -> None:
    def f(a, b):
        return a

    new = call_instead(f.__code__, len)
    thing = Thing()
    things = (thing, f.__code__, new, f, bigger.__code__)
    before = [sys.getrefcount(x) for x in things]
    for _ in range(1000):
        watch_one(f, unchanged, thing, thing)
        watch_one(f, lambda *_: new, thing, thing)
        watch_one(f, lambda *_: f.__code__, thing, b=thing)
        watch_one(f, lambda *_: bigger.__code__, 1, b=2)
    gc.collect()
    assert [sys.getrefcount(x) for x in things] == before


def resident_kilobytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_no_memory_leaks() -> None:
    def f(a, b):
        return a

    def boom(values):
        raise ValueError

    def once():
        watch_one(f, unchanged, 1, 2)
        watch_one(f, swapping_in(len), 1, 2)
        watch_one(f, lambda *_: bigger.__code__, 2, 3)
        watch_one(f, lambda *_: (call_instead(f.__code__), len), 2, 3)
        try:
            watch_one(f, swapping_in(boom), 1, 2)
        except ValueError:
            pass

    for _ in range(3000):
        once()
    gc.collect()
    before = resident_kilobytes()
    for _ in range(20000):
        once()
    gc.collect()
    assert resident_kilobytes() - before < 1000


@pytest.mark.parametrize("when", ["before", "as the frame starts"])
def test_settrace_sees_one_call_and_one_return(when: str) -> None:
    def f(a):
        b = a
        return b + a

    def events(answer: types.CodeType | None) -> list[tuple]:
        seen: list[tuple] = []

        def tracer(frame, event, arg):
            if frame.f_code.co_name == "f":
                seen.append((event, frame.f_lineno - f.__code__.co_firstlineno))
            return tracer

        def callback(function, code, values):
            assert when != "before"  # a thread that is traced runs its own code
            sys.settrace(tracer)
            return answer

        old = sys.gettrace()
        sys.settrace(tracer if when == "before" else old)
        try:
            watch_one(f, callback, 1)
        finally:
            sys.settrace(old)
        return seen

    own = [("call", 0), ("line", 1), ("line", 2), ("return", 2)]
    assert events(None) == own
    swapped = events(call_instead(f.__code__, len))
    assert swapped == own if when == "before" else swapped[0] == ("call", 0) and swapped[-1] == ("return", 0)
    assert all(event == "line" for event, _ in swapped[1:-1])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
@pytest.mark.parametrize("tool", range(6))
def test_monitoring_events_are_paired(tool: int) -> None:
    def f(a):
        return a

    def boom(values):
        raise ValueError

    monitoring = sys.monitoring
    seen: list[str] = []

    def note(name):
        return lambda code, *rest: seen.append(name) if code.co_name == "f" else None

    monitoring.use_tool_id(tool, "test")
    events = monitoring.events
    try:
        for name in ("PY_START", "PY_RETURN", "PY_UNWIND"):
            monitoring.register_callback(tool, getattr(events, name), note(name))
        monitoring.set_events(tool, events.PY_START | events.PY_RETURN | events.PY_UNWIND)
        watch_one(f, unchanged, 1)
        watch_one(f, swapping_in(len), 1)
        try:
            watch_one(f, swapping_in(boom), 1)
        except ValueError:
            pass
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    if tool in (monitoring.DEBUGGER_ID, monitoring.COVERAGE_ID):  # it is shown the user's own code
        assert seen == ["PY_START", "PY_RETURN"] * 3
    else:
        assert seen == ["PY_START", "PY_RETURN", "PY_START", "PY_RETURN", "PY_START", "PY_UNWIND"]


def test_profilers() -> None:
    def f(a):
        return a

    seen = []
    sys.setprofile(lambda frame, event, arg: seen.append(event) if frame.f_code.co_name == "f" else None)
    try:
        assert watch_one(f, swapping_in(len), 5) == 1
    finally:
        sys.setprofile(None)
    assert [e for e in seen if not e.startswith("c_")] == ["call", "return"]


def test_threads_see_only_their_own_calls() -> None:
    problems = []

    def f(a):
        return ("own", a)

    def work(number):
        for k in range(3000):
            seen: list = []
            result = watch_one(
                f, lambda fn, c, v, seen=seen: (seen.append(v), call_instead(c, lambda v: ("new", *v)))[1], (number, k)
            )
            if result != ("new", (number, k)) or seen != [((number, k),)]:
                problems.append((number, k, result, seen))

    def bystander():
        for k in range(20000):
            if f(k) != ("own", k):
                problems.append(k)

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(3)] + [threading.Thread(target=bystander)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(old)
    assert problems == [] and not is_active()


def test_recursion_limit() -> None:
    def f(n):
        return 1 + f(n)

    for callback in (unchanged, swapping_in(lambda values: f(values[0]))):
        with pytest.raises(RecursionError):
            watch_one(f, callback, 1)
        assert not is_active()


def test_in_a_fresh_process_until_exit() -> None:
    code = (
        "from dynagraph._core._frame_hook import call_watched, set_watcher\n"
        "def f(x): return x\n"
        "def stop(*a): raise SystemExit(7)\n"
        "set_watcher(stop)\n"
        "call_watched(lambda: f(1))"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 7
