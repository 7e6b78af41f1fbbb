"""The frame hook: one look at a frame's start, and the code swapped in, leave no trace in the interpreter."""

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
from dynagraph._core._frame_hook import call_captured, is_active
from dynagraph.backends.kernel_cache import Library
from dynagraph.backends.toolchain import toolchain
from dynagraph.frontend.assemble import call_instead


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

    assert call_captured(all_kinds, callback, (1, 2), {"z": 4}) == ("own", 1, 2, 30, (), 3, {"z": 4})
    assert seen == [(all_kinds, all_kinds.__code__, (1, 2, 30, 3, (), {"z": 4}), False)]
    assert not is_active()


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((1, 2), None),
        ((1, 2), {}),
        ((1, 2, 3), {"k": 9}),
        ((1, 2, 3, 4, 5), {"k": 9, "x": 1}),
        ((1, 2), {"c": 5, "a": 7}),
    ],
)
def test_calls_of_all_kinds(args: tuple, kwargs: dict | None) -> None:
    expected = all_kinds(*args, **(kwargs or {}))
    assert call_captured(all_kinds, unchanged, args, kwargs) == expected
    _, a, b, c, rest, k, kw = expected
    assert call_captured(all_kinds, swapping_in(lambda values: values), args, kwargs) == (a, b, c, k, rest, kw)


def test_the_hook_is_off_in_the_body() -> None:
    def f():
        return is_active()

    assert call_captured(f, unchanged, (), None) is False
    assert call_captured(f, swapping_in(lambda values: is_active()), (), None) is False


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
    library = Library(toolchain().compile(OTHER_EVALUATOR), from_cache=False)
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
        ctypes.c_int.in_dll(library._library, "n_frames"),
        lambda: python._PyInterpreterState_GetEvalFrameFunc(interpreter),
    )
    python._PyInterpreterState_SetEvalFrameFunc(interpreter, before)


def test_another_tools_evaluator_stays(other_evaluator: tuple[ctypes.c_int, Callable[[], int | None]]) -> None:
    frames, evaluator = other_evaluator
    its = evaluator()

    def f(a):
        return a

    def generator():
        yield 1

    for _ in range(3):
        before = frames.value
        assert call_captured(f, swapping_in(lambda values: values), (5,), None) == (5,)
        assert frames.value > before and evaluator() == its
        assert call_captured(f, unchanged, (5,), None) == 5 and evaluator() == its
        assert list(call_captured(generator, unchanged, (), None)) == [1] and evaluator() == its
        with pytest.raises(TypeError):
            call_captured(f, unchanged, (), None)
        assert evaluator() == its
        with pytest.raises(ZeroDivisionError):
            call_captured(f, lambda *_: 1 / 0, (5,), None)
        assert evaluator() == its


def test_only_this_call_is_looked_at() -> None:
    count = [0]

    def callback(function, code, values):
        count[0] += 1
        assert fib(3) == 2

    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert call_captured(fib, callback, (12,), None) == 144
    assert count == [1]
    assert fib(10) == 55 and count == [1]


def test_the_function_object_counts_not_its_code() -> None:
    def make(n):
        def inner(x):
            return x + n

        return inner

    one, two = make(1), make(2)

    def outer(x):
        return two(x)

    seen = []
    call_captured(outer, lambda f, c, v: seen.append(f), (1,), None)
    assert seen == [outer]
    assert call_captured(one, swapping_in(lambda v: ("new", *v)), (1,), None) == ("new", 1)
    assert two(1) == 3


def test_nested_captures() -> None:
    log = []

    def inner(x):
        return x * 2

    def outer(x):
        return call_captured(inner, lambda f, c, v: log.append("in the body"), (x,), None) + 1

    def callback(function, code, values):
        log.append(call_captured(inner, lambda f, c, v: log.append("in the callback"), (5,), None))

    assert call_captured(outer, callback, (1,), None) == 3
    assert log == ["in the callback", 10, "in the body"]
    assert not is_active()


def test_wrong_calls_raise_the_functions_own_error() -> None:
    def f(a):
        return a

    with pytest.raises(TypeError) as own:
        f()
    with pytest.raises(TypeError) as other:
        call_captured(f, unchanged, (), None)
    assert str(own.value) == str(other.value)
    assert not is_active()


@pytest.mark.parametrize(
    "args",
    [
        (),
        (len, unchanged, (), None),
        (unchanged, 5, (), None),
        (unchanged, unchanged, [], None),
        (unchanged, unchanged, (), 3),
    ],
)
def test_arguments_of_other_types(args: tuple) -> None:
    with pytest.raises(TypeError, match="call_captured"):
        call_captured(*args)


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
            call_captured(f, callback, (thing,), None)
        assert not is_active()
    gc.collect()
    assert sys.getrefcount(thing) == before


@pytest.mark.parametrize(
    "answer",
    [
        5,
        "code",
        (lambda a: a),
        (lambda a, b, c: a).__code__,
        (lambda *a: a).__code__,
        (lambda a, *, b: a).__code__,
        (lambda a, b: (yield)).__code__,
        compile("1", "x", "eval"),
    ],
)
def test_answers_that_do_not_fit(answer: Any) -> None:
    with pytest.raises(TypeError, match="call_captured"):
        call_captured(lambda a, b: a, lambda *_: answer, (1, 2), None)


def test_free_variables_must_agree() -> None:
    n = 5
    with pytest.raises(TypeError, match="free variables"):
        call_captured(lambda a: a + n, lambda *_: (lambda a: a).__code__, (1,), None)


def test_exceptions_of_what_was_swapped_in() -> None:
    def f(a):
        return a

    thing = Thing()
    before = sys.getrefcount(thing)
    for _ in range(20):
        with pytest.raises(KeyError) as info:
            call_captured(f, swapping_in(lambda values: {}[values[0]]), (thing,), None)
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

    assert call_captured(f, unchanged, (1, 2), None) == 33
    assert call_captured(f, swapping_in(lambda values: values), (1, 2), None) == (1, 2)
    held = []
    call_captured(f, swapping_in(lambda values: held.append(sys._getframe(1))), (1, 2), None)
    assert held[0].f_locals == {"a": 1, "b": 2, "n": 10, "m": 20}

    def other(x, y):
        return [m - n for _ in range(x)], (lambda: y)()

    assert call_captured(f, lambda *_: other.__code__, (2, 7), None) == ([10, 10], 7)


def test_class_cell() -> None:
    class Base:
        def method(self, x):
            return x

    class Derived(Base):
        def method(self, x):
            return super().method(x) + 1

    instance = Derived()
    assert call_captured(Derived.method, unchanged, (instance, 3), None) == 4
    assert call_captured(Derived.method, swapping_in(lambda v: v[1:]), (instance, 3), None) == (3,)


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
        assert call_captured(small, lambda *_: bigger.__code__, (2, 3), None) == bigger(2, 3)
    assert _frame_hook.counters()["swapped"] == before + 100


def test_frames_that_find_no_room_run_as_they_are() -> None:
    namespace: dict[str, Any] = {}
    lines = "\n".join(f"    v{k} = a" for k in range(3000))
    exec(f"def huge(a):\n{lines}\n    return 'swapped', v2999", namespace)

    def small(a):
        return "own", a

    before = _frame_hook.counters()["without_room"]
    answers = {call_captured(small, lambda *_: namespace["huge"].__code__, (1,), None)[0] for _ in range(3)}
    if answers == {"own"}:
        assert _frame_hook.counters()["without_room"] == before + 3
    assert small(1) == ("own", 1)


def test_deep_stacks_of_swapped_frames() -> None:
    def f(n):
        return n

    def step(values):
        n = values[0]
        return 0 if n == 0 else 1 + call_captured(f, swapping_in(step), (n - 1,), None)

    assert call_captured(f, swapping_in(step), (100,), None) == 100


def test_frame_objects_outlive_the_frame() -> None:
    def f(a):
        return a

    thing = Thing()
    held = []
    call_captured(f, swapping_in(lambda values: held.append(sys._getframe(1))), (thing,), None)
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

    assert list(call_captured(generator, callback, (3,), None)) == [0, 1, 2]
    running = call_captured(generator, callback, (3,), None)
    assert next(running) == 0 and running.throw(ValueError) == "caught"
    with pytest.raises(StopIteration) as stop:
        call_captured(coroutine, callback, (), None).send(None)
    assert stop.value.value == 5
    call_captured(asynchronous, callback, (), None)
    assert seen == [] and not is_active()


def test_generators_made_by_the_frame() -> None:
    def f(n):
        return tuple(i * i for i in range(n)), [i * n for i in range(n)], dict.fromkeys(range(n), n)

    assert call_captured(f, unchanged, (3,), None) == f(3)


def test_reference_counts() -> None:
    def f(a, b):
        return a

    new = call_instead(f.__code__, len)
    thing = Thing()
    things = (thing, f.__code__, new, f, bigger.__code__)
    before = [sys.getrefcount(x) for x in things]
    for _ in range(1000):
        call_captured(f, unchanged, (thing, thing), None)
        call_captured(f, lambda *_: new, (thing, thing), {})
        call_captured(f, lambda *_: f.__code__, (thing,), {"b": thing})
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
        call_captured(f, unchanged, (1, 2), None)
        call_captured(f, swapping_in(len), (1, 2), {})
        call_captured(f, lambda *_: bigger.__code__, (2, 3), None)
        try:
            call_captured(f, swapping_in(boom), (1, 2), None)
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


def test_settrace_sees_one_call_and_one_return() -> None:
    def f(a):
        b = a
        return b + a

    def events(callback) -> list[tuple]:
        seen: list[tuple] = []

        def tracer(frame, event, arg):
            if frame.f_code.co_name == "f":
                seen.append((event, frame.f_lineno - f.__code__.co_firstlineno))
            return tracer

        old = sys.gettrace()
        sys.settrace(tracer)
        try:
            call_captured(f, callback, (1,), None)
        finally:
            sys.settrace(old)
        return seen

    assert events(unchanged) == [("call", 0), ("line", 1), ("line", 2), ("return", 2)]
    swapped = events(swapping_in(len))
    assert swapped[0] == ("call", 0) and swapped[-1] == ("return", 0)
    assert all(event == "line" for event, _ in swapped[1:-1])


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring is new in 3.12")
def test_monitoring_events_are_paired() -> None:
    def f(a):
        return a

    def boom(values):
        raise ValueError

    monitoring = sys.monitoring
    seen: list[str] = []

    def note(name):
        return lambda code, *rest: seen.append(name) if code.co_name == "f" else None

    tool = next(k for k in range(6) if monitoring.get_tool(k) is None)
    monitoring.use_tool_id(tool, "test")
    events = monitoring.events
    try:
        for name in ("PY_START", "PY_RETURN", "PY_UNWIND"):
            monitoring.register_callback(tool, getattr(events, name), note(name))
        monitoring.set_events(tool, events.PY_START | events.PY_RETURN | events.PY_UNWIND)
        call_captured(f, unchanged, (1,), None)
        call_captured(f, swapping_in(len), (1,), None)
        try:
            call_captured(f, swapping_in(boom), (1,), None)
        except ValueError:
            pass
    finally:
        monitoring.set_events(tool, 0)
        monitoring.free_tool_id(tool)
    assert seen == ["PY_START", "PY_RETURN", "PY_START", "PY_RETURN", "PY_START", "PY_UNWIND"]


def test_profilers() -> None:
    def f(a):
        return a

    seen = []
    sys.setprofile(lambda frame, event, arg: seen.append(event) if frame.f_code.co_name == "f" else None)
    try:
        call_captured(f, swapping_in(len), (1,), None)
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
            result = call_captured(
                f,
                lambda fn, c, v, seen=seen: (seen.append(v), call_instead(c, lambda v: ("new", *v)))[1],
                ((number, k),),
                None,
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

    with pytest.raises(RecursionError):
        call_captured(f, unchanged, (1,), None)
    assert not is_active()


def test_in_a_fresh_process_until_exit() -> None:
    code = (
        "from dynagraph._core._frame_hook import call_captured\n"
        "def f(x): return x\n"
        "def stop(*a): raise SystemExit(7)\n"
        "call_captured(f, stop, (1,), None)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 7
