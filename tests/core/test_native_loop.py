"""Native loops: values become slots, the code leaves by an exit, slots become values."""

from __future__ import annotations

import contextlib
import functools
import gc
import re
import signal
import sys
import threading
import traceback
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dynagraph
from dynagraph._core import _dispatch, _frame_hook
from dynagraph._core._dispatch import CompiledFunction, Entry, Library, NativeLoop, PythonPlan, Tail
from dynagraph.backends.loader import load
from dynagraph.backends.toolchain import toolchain

_dispatch.set_pending_signals(_frame_hook.pending_signals())  # as the compiler does

SOURCE = r"""
#include <time.h>
#define LOOP(name) int32_t name(dg_slot *state, const dg_runtime *rt, dg_stop *stop)

LOOP(nothing) { return 0; }
LOOP(numbered) { return (int32_t)state[0].i; }
LOOP(fails) { return -1; }
LOOP(version) { state[0].i = rt->version; return 0; }

/* the sum of an array that begins at slot 0, into slot 4 */
LOOP(sum) {
    for (int64_t k = 0; k < state[1].i; ++k)
        state[4].d += *(double *)((char *)state[0].p + k * state[2].i);
    return 0;
}

/* slot 1 becomes the owner of a new reference to the object of slot 0; the GIL is held */
LOOP(owns) { ++*(int64_t *)state[0].p; state[1] = state[0]; return 0; }

/* waits until the number at the address in slot 0 is not 0, for ten seconds at most; exit 1: a signal came, 2: nothing did */
LOOP(waits) {
    for (int turn = 0; turn < 10000; ++turn) {
        if (*(volatile double *)state[0].p)
            return 0;
        if (dg_stops(stop))
            return 1;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return 2;
}
"""
F8, F4, I8 = np.dtype("f8"), np.dtype("f4"), np.dtype("i8")
KEEP = object()


@functools.cache
def library() -> Library:
    header = (Path(dynagraph.__file__).parent / "_core" / "runtime.h").read_text()
    return load(toolchain().compile(header + SOURCE))


def loop(name: str, parameters: tuple, exits: tuple, n_slots: int = 8, **options: Any) -> NativeLoop:
    options = {"make_target": None, "otherwise": None, "release_gil": False, **options}
    return NativeLoop(library().address(name), library(), parameters, n_slots, exits, **options)


def through(parameter: tuple, box: tuple, value: Any) -> Any:
    """What a value is after it was a slot's."""
    return loop("nothing", (parameter,), (("return", box),))(value)


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)


# -- parameters --------------------------------------------------------------------------------------------------------------


class Int(int):
    pass


class Float(float):
    pass


class Array(np.ndarray):
    pass


def misaligned() -> np.ndarray:
    return np.zeros(33, np.int8)[1:].view(F8)


FITS: list[tuple[tuple, tuple, Any]] = [
    (("int", 0), ("int", 0), 2**63 - 1),
    (("int", 7), ("int", 7), -(2**63)),
    (("int", 0), ("uint", 0), 5),
    (("uint", 0), ("uint", 0), 2**64 - 1),
    (("uint", 0), ("int", 0), 0),
    (("bool", 0), ("bool", 0), True),
    (("bool", 0), ("bool", 0), False),
    (("float", 0), ("float", 0), -0.0),
    (("complex", 0), ("complex", 0), complex(-0.0, float("nan"))),
    (("complex", 6), ("complex", 6), 1 + 2j),
    (("none", 0), ("none",), None),
    (("unused", 0), ("parameter", 0), "anything"),
    (("object", 0), ("object", 0), "anything"),
    *(
        (("scalar", 2, np.dtype(c)), ("scalar", 2, np.dtype(c)), np.dtype(c).type(1))
        for c in "?bBhHiIlLqQefdgFDG"
    ),
    (("scalar", 0, F8), ("scalar", 0, F8), np.float64(-0.0)),
    (("scalar", 0, np.dtype("?")), ("scalar", 0, np.dtype("?")), np.False_),
    (("scalar", 0, np.dtype("M8[s]")), ("scalar", 0, np.dtype("M8[s]")), np.datetime64(3, "s")),
    (("scalar", 0, np.dtype("m8[us]")), ("scalar", 0, np.dtype("m8[us]")), np.timedelta64(3, "us")),
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("parameter", "box", "value"), FITS, ids=str)
def test_what_fits_comes_back(parameter: tuple, box: tuple, value: Any) -> None:
    assert same(through(parameter, box, value), value)


MISFITS: list[tuple[tuple, Any]] = [
    *((("int", 0), value) for value in (2**63, -(2**63) - 1, True, Int(3), 1.0, np.int64(3), None)),
    *((("uint", 0), value) for value in (-1, 2**64, True, Int(3), 1.0, np.uint64(3))),
    *((("bool", 0), value) for value in (1, np.True_, None)),
    *((("float", 0), value) for value in (1, Float(1.0), np.float64(1.0), np.float32(1.0), True)),
    *((("complex", 0), value) for value in (1.0, np.complex128(1j), 1)),
    *((("none", 0), value) for value in (0, False, ())),
    *((("scalar", 0, F8), value) for value in (1.0, np.float32(1.0), np.array(1.0), np.longdouble(1.0))),
    (("scalar", 0, np.dtype("l")), np.longlong(1)),
    (("scalar", 0, np.dtype("q")), np.dtype("l").type(1)),
    (("scalar", 0, np.dtype("M8[s]")), np.datetime64(3, "ms")),
    (("scalar", 0, np.dtype("M8[s]")), np.timedelta64(3, "s")),
    *(
        (("array", 0, F8, 1, False), value)
        for value in (
            [1.0], np.zeros(3, F4), np.zeros(3, ">f8"), np.zeros((1, 3)), np.array(1.0), np.float64(1.0), np.zeros(3).view(Array),
            misaligned(), np.zeros(3, object), None,
        )
    ),
    (("array", 0, np.dtype("l"), 1, False), np.zeros(3, "q")),
    (("array", 0, F8, 1, True), np.zeros(6)[::2]),
    (("array", 0, F8, 1, True), np.zeros(6)[::-1]),
    (("array", 0, F8, 2, True), np.zeros((3, 3)).T),
]  # fmt: skip


@pytest.mark.parametrize(("parameter", "value"), MISFITS, ids=str)
def test_what_does_not_fit_goes_elsewhere(parameter: tuple, value: Any) -> None:
    assert misaligned().flags.aligned is False
    made = loop("nothing", (parameter, ("unused", 0)), (("return", ("none",)),), 16, otherwise=print)
    tail = made(value, KEEP)
    assert isinstance(tail, Tail) and tail.function is print
    assert tail.args[0] is value and tail.args[1] is KEEP
    assert made.calls == 1 and made.exits_taken == (0,)
    alone = loop("nothing", (("unused", 0), parameter), (("return", ("none",)),), 16)
    words = f"NativeLoop: argument 1, of type {type(value).__name__}, does not fit a parameter of kind '{parameter[0]}'"
    with pytest.raises(TypeError, match=f"^{re.escape(words.split(', of')[0])}.*{re.escape(words.split(', does')[1])}$"):
        alone(KEEP, value)


def test_bfloat16() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    dtype = np.dtype(bfloat16)
    assert same(through(("scalar", 0, dtype), ("scalar", 0, dtype), bfloat16(1.5)), bfloat16(1.5))
    with pytest.raises(TypeError, match="does not fit"):
        through(("scalar", 0, dtype), ("none",), np.float16(1.5))


def test_other_numbers_of_arguments() -> None:
    made = loop("nothing", (("int", 0),), (("return", ("none",)),))
    for args in ((), (1, 2)):
        with pytest.raises(TypeError, match=rf"^NativeLoop: expected 1 arguments, got {len(args)}$"):
            made(*args)
    with pytest.raises(TypeError, match=r"^NativeLoop: takes no keyword arguments, got \('x',\)$"):
        made(1, x=2)  # type: ignore[call-arg]
    tail = loop("nothing", (("int", 0),), (("return", ("none",)),), otherwise=print)(1, 2)
    assert (tail.function, tail.args) == (print, (1, 2))


def layout(array: np.ndarray, contiguous: bool) -> tuple[int, ...]:
    """The slots of an array: address, shape, strides, whether it is writeable."""
    n = 2 + 2 * array.ndim
    boxes = tuple(("int", k) for k in range(n + 1))
    slots = loop("nothing", (("array", 0, array.dtype, array.ndim, contiguous),), (("return", ("tuple", boxes)),), n + 1)(array)
    assert slots[n] == 0
    return slots[:n]


def test_a_number_of_one_of_several_types():
    item = ("either", 0, (("float", 1), ("int", 2), ("scalar", 1, F8)))
    back = ("choose", 0, (("float", 1), ("int", 2), ("scalar", 1, F8)))
    made = loop("nothing", (item,), (("return", back),), 3)
    for value in (1.5, -7, np.float64(2.5)):
        assert repr(made(value)) == repr(value)
    for value in (True, 2**63, np.float32(1), None, 1j):
        with pytest.raises(TypeError, match="does not fit a parameter of kind 'either'"):
            made(value)


def read_only(array: np.ndarray) -> np.ndarray:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "array",
    [
        np.zeros((2, 3)), np.zeros((4, 6), F4)[::2], np.array(1.0), np.zeros(3, "?"), np.zeros(3, "e"),
        read_only(np.zeros(3)), np.zeros(3, "M8[s]"), np.zeros((2,) * 12),
    ],
    ids=lambda a: f"{a.dtype}{a.shape}",
)  # fmt: skip
@pytest.mark.parametrize("contiguous", [False, True])
def test_slots_of_arrays(array: np.ndarray, contiguous: bool) -> None:
    assert layout(array, contiguous) == (array.ctypes.data, *array.shape, *array.strides, array.flags.writeable)


def test_strides_of_arrays_that_are_not_contiguous() -> None:
    array = np.zeros((4, 6))[::-1, ::2]
    assert layout(array, False)[3:5] == (-48, 16)
    for one in (np.zeros(6)[::2][:1], np.zeros(6)[::2][:0], np.zeros((6, 6))[:0, ::2], np.zeros((0, 3))):
        assert layout(one, False)[-2] == one.strides[-1]
        assert layout(one, True)[-2] == 8  # it is never used


# -- boxes -------------------------------------------------------------------------------------------------------------------


def test_further_slots_are_zero() -> None:
    for n in (9, 256, 257, 5000):  # on the stack, elsewhere
        made = loop("nothing", (("int", 0),), (("return", ("tuple", tuple(("uint", k) for k in range(n)))),), n)
        for _ in range(3):
            assert made(-1) == (2**64 - 1, *(0,) * (n - 1))


def test_nested_boxes() -> None:
    box = (
        "tuple",
        (
            ("list", (("int", 0), ("list", ()), ("tuple", ()))),
            ("const", KEEP),
            ("call", max, (("float", 1), ("int", 0))),
            ("call", list, ()),
            ("parameter", 2),
            ("tuple", (("scalar", 1, F8), ("bool", 0))),
        ),
    )
    made = loop("nothing", (("array", 4, F8, 1, True), ("float", 1), ("unused", 0), ("int", 0)), (("return", box),))
    given = made(np.arange(3.0), 7.5, "x", 5)
    assert repr(given) == repr(([5, [], ()], KEEP, 7.5, [], "x", (np.float64(7.5), True)))


def test_views() -> None:
    a = np.arange(24.0).reshape(4, 6)
    plain = a[1:3, ::2]
    rows = (("object", 0), *(("int", k) for k in range(1, 7)))
    made = loop("nothing", rows, (("return", ("view", 0, F8, 2)),), 7)
    view = made(a, plain.ctypes.data, *plain.shape, *plain.strides, 1)
    assert view.tobytes() == plain.tobytes() and view.strides == plain.strides and str(view.flags) == str(plain.flags)
    assert view.base is plain.base is a.base
    view = made(a.base, plain.ctypes.data, *plain.shape, *plain.strides, 0)
    assert view.base is a.base and not view.flags.writeable


def test_code_computes() -> None:
    made = loop("sum", (("array", 0, F8, 1, False),), (("return", ("float", 4)),))
    assert made(np.arange(10.0)[::3]) == 18.0


def test_choices() -> None:
    box = ("choose", 0, (("int", 1), ("float", 1), ("none",), ("tuple", (("int", 0),))))
    made = loop("nothing", (("int", 0), ("float", 1)), (("return", box),))
    assert same(made(0, 1.0), 0x3FF0000000000000)
    assert same(made(1, 1.0), 1.0)
    assert made(2, 1.0) is None
    assert made(3, 1.0) == (3,)
    for number in (-1, 4, 2**62):
        with pytest.raises(SystemError, match=rf"^NativeLoop: the code chose box {number} of 4$"):
            made(number, 1.0)


@pytest.mark.parametrize("kind", ["object", "owned"])
def test_slots_without_an_object(kind: str) -> None:
    with pytest.raises(SystemError, match=r"^NativeLoop: the code left no object in slot 3, which an exit reads$"):
        loop("nothing", (), (("return", (kind, 3)),))()


# -- exits -------------------------------------------------------------------------------------------------------------------


def test_exits() -> None:
    asked: list[int] = []

    def target(*_: Any) -> None: ...

    def make_target(number: int) -> Any:
        asked.append(number)
        return target

    exits = (("return", ("float", 1)), ("tail", (("float", 1), ("parameter", 0))), ("tail", ()), ("return", ("const", KEEP)))
    made = loop("numbered", (("int", 0), ("float", 1)), exits, make_target=make_target)
    assert made.targets == (None,) * 4
    assert made(0, 2.5) == 2.5
    for _ in range(2):
        tail = made(1, 2.5)
        assert isinstance(tail, Tail) and tail.function is target and tail.args == (2.5, 1)
        assert made(2, 2.5).args == ()
    assert made(3, 2.5) is KEEP
    assert asked == [1, 2]
    assert made.exits_taken == (1, 2, 2, 1) and made.calls == 6
    assert made.targets == (None, target, target, None)
    with pytest.raises(SystemError, match=r"^NativeLoop: the code took exit 4 of 4$"):
        made(4, 2.5)
    with pytest.raises(MemoryError):
        made(-1, 2.5)
    with pytest.raises(MemoryError):
        loop("fails", (), ())()
    assert made.exits_taken == (1, 2, 2, 1)


def test_what_is_done_before_an_exit() -> None:
    seen: list[Any] = []
    before = (("call", seen.append, (("int", 0),)), ("call", seen.append, (("parameter", 1),)))
    exits = (("return after", ("float", 1), before), ("tail after", (("int", 0),), before), ("tail after", (), ()))
    made = loop("numbered", (("int", 0), ("float", 1)), exits, make_target=lambda n: seen.append("target") or print)
    assert made(0, 2.5) == 2.5 and seen == [0, 2.5]
    assert made(1, 1.5).args == (1,) and seen[2:] == [1, 1.5, "target"]
    assert made(2, 0.5).args == () and seen[5:] == ["target"]


@pytest.mark.parametrize("is_tail", [False, True])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_what_is_done_before_an_exit_may_fail(at: int, is_tail: bool) -> None:
    before: list[Any] = [("call", id, (("owned", 1),)), ("call", id, (("object", 0),))]
    before.insert(at, ("call", fails, ()))
    exit_ = ("tail after", (("object", 0),), tuple(before)) if is_tail else ("return after", ("object", 0), tuple(before))
    made = loop("owns", (("object", 0),), (exit_,), make_target=lambda _: print)
    value = object()
    count = sys.getrefcount(value)
    for _ in range(100):
        with pytest.raises(ZeroDivisionError):
            made(value)
    assert sys.getrefcount(value) == count


def test_the_code_is_given_the_runtime() -> None:
    header = (Path(dynagraph.__file__).parent / "_core" / "runtime.h").read_text()
    assert f"#define DG_RUNTIME_VERSION {loop('version', (), (('return', ('int', 0)),))()}\n" in header


def test_targets_that_fail() -> None:
    answers: list[Any] = [KeyError("no target"), 3, print]

    def make_target(number: int) -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    made = loop("owns", (("object", 0),), (("tail", (("owned", 1),)),), make_target=make_target)
    value = object()
    before = sys.getrefcount(value)
    with pytest.raises(KeyError, match="no target"):
        made(value)
    with pytest.raises(TypeError, match=r"^NativeLoop: make_target\(0\) gave 3, which is not callable$"):
        made(value)
    assert sys.getrefcount(value) == before and made.targets == (None,)
    assert made(value).function is print


def test_the_first_target_stays() -> None:
    """A target may be made while another is."""
    targets = [lambda: 1, lambda: 2]

    def make_target(number: int) -> Any:
        target = targets.pop(0)
        if targets:
            assert made().function is not target
        return target

    made = loop("nothing", (), (("tail", ()),), make_target=make_target)
    made()
    assert made.targets[0]() == 2  # type: ignore[misc]


def test_a_compiled_function_follows_the_tails() -> None:
    """As a loop's entry has it: the recipe's last call is the loop, its exit's target the rest."""

    def rest(s: float, a: np.ndarray) -> tuple:
        return s, a

    made = loop("sum", (("array", 0, F8, 1, False),), (("tail", (("float", 4), ("parameter", 0))),), make_target=lambda _: rest)
    f = CompiledFunction(lambda a: None, lambda *_: pytest.fail("an entry serves it"))
    f.add_entry(Entry((), 8, PythonPlan(lambda: (), 0, ("call", made, (("arg", 0),)))))
    a = np.arange(4.0)
    s, b = f(a)
    assert s == 6.0 and b is a


# -- references --------------------------------------------------------------------------------------------------------------


def fails(*_: Any) -> Any:
    raise ZeroDivisionError


BOXES_OF_OWNED: dict[str, tuple] = {
    "owned": ("owned", 1),
    "object and owned": ("tuple", (("object", 0), ("object", 1), ("owned", 1))),
    "twice": ("list", (("owned", 1), ("owned", 1))),
    "fails before": ("tuple", (("int", 1), ("call", fails, ()), ("tuple", (("owned", 1),)))),
    "fails after": ("list", (("tuple", (("owned", 1),)), ("call", fails, ()))),
    "fails with": ("tuple", (("call", fails, (("owned", 1), ("object", 0))),)),
    "chosen": ("choose", 3, (("owned", 1), ("int", 1))),
    "chosen after": ("tuple", (("call", fails, ()), ("choose", 3, (("owned", 1), ("int", 1))))),
}


@pytest.mark.parametrize("name", BOXES_OF_OWNED)
@pytest.mark.parametrize("is_tail", [False, True])
def test_owned_references_are_given_up_once(name: str, is_tail: bool) -> None:
    box = BOXES_OF_OWNED[name]
    exits = (("tail", (("parameter", 0), box)) if is_tail else ("return", box),)
    made = loop("owns", (("object", 0),), exits, make_target=lambda _: print)
    value = object()
    before = sys.getrefcount(value)
    for _ in range(100):
        with contextlib.suppress(ZeroDivisionError, SystemError):
            result = made(value)
            assert name not in ("twice",) and not name.startswith("fails")
            del result
    assert sys.getrefcount(value) == before


def test_an_owned_slot_gives_one_reference() -> None:
    made = loop("owns", (("object", 0),), (("return", BOXES_OF_OWNED["twice"]),))
    with pytest.raises(SystemError, match="left no object in slot 1"):
        made(object())


def test_nothing_leaks() -> None:
    value, constant, a = object(), object(), np.arange(3.0)
    boxes = (("int", 1), ("parameter", 0), ("const", constant), ("scalar", 2, F8), ("list", (("object", 0),)))
    exits = (("return", ("tuple", boxes)), ("tail", boxes), ("return", ("call", fails, boxes)), ("return", ("choose", 1, boxes)))
    parameters = (("object", 0), ("int", 1), ("float", 2), ("array", 3, F8, 1, True))
    loops = [loop("nothing", parameters, (one,), make_target=lambda _: print, otherwise=print) for one in exits]

    def calls(n: int) -> None:
        for _ in range(n):
            for one in loops:
                with contextlib.suppress(ZeroDivisionError, SystemError):
                    one(value, 1 << 40, 2.5, a)
                one(value, 1.5, a)

    calls(10)
    gc.collect()
    counted = (value, constant, a, F8, print, fails)
    before, blocks = [sys.getrefcount(o) for o in counted], sys.getallocatedblocks()
    calls(1000)
    gc.collect()
    assert [sys.getrefcount(o) for o in counted] == before
    assert sys.getallocatedblocks() - blocks < 100


def test_constructors_leave_no_references() -> None:
    constant = object()

    def target(number: int) -> Any: ...

    good = (("return", ("tuple", (("const", constant), ("scalar", 0, F8)))),)
    before = [sys.getrefcount(o) for o in (constant, target, F8)]
    for exits in (good, (*good, ("return", ("tuple", (("const", constant), ("call", 3, ()))))), (*good, None)):
        for _ in range(10):
            with contextlib.suppress(TypeError):
                loop("nothing", (("scalar", 0, F8),), exits, make_target=target)  # type: ignore[arg-type]
    assert [sys.getrefcount(o) for o in (constant, target, F8)] == before


class Member:
    """Part of a cycle with a loop."""

    loop: NativeLoop

    def __call__(self, *_: Any) -> Any:
        return self


def loop_with(member: Any, way: str) -> NativeLoop:
    def one(here: str) -> Any:
        return member if way == here else print

    def make_target(number: int) -> Any:
        return one("target")

    boxes = (("const", one("constant")), ("call", one("callable"), ()))
    return loop(
        "nothing", (), (("tail", boxes),), make_target=member if way == "make_target" else make_target, otherwise=one("otherwise")
    )


@pytest.mark.parametrize("way", ["target", "make_target", "otherwise", "constant", "callable"])
def test_cycles_are_collected(way: str, capsys: Any) -> None:
    member = Member()
    member.loop = loop_with(member, way)
    member.loop()
    gone = weakref.ref(member)
    del member
    gc.collect()
    assert gone() is None


def test_the_code_stays_loaded_while_the_loop_lives() -> None:
    class Code:
        pass

    code = Code()
    made = NativeLoop(library().address("nothing"), code, (), 0, (("return", ("none",)),), None, None)
    gone = weakref.ref(code)
    del code
    assert gone() is not None
    del made
    assert gone() is None


# -- signals and threads -----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def on_alarm(handler: Any) -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class Handled(KeyboardInterrupt):
    pass


def raises(*_: Any) -> None:
    raise Handled


def waiting(release_gil: bool) -> NativeLoop:
    exits = (("return", ("const", "done")), ("tail", (("parameter", 0),)), ("return", ("const", "neither")))
    return loop("waits", (("array", 0, F8, 1, True),), exits, make_target=lambda _: go_on, release_gil=release_gil)


def go_on(a: np.ndarray) -> None:
    for _ in range(1000):
        pass  # here Python looks for signals


@pytest.mark.parametrize("release_gil", [False, True])
def test_a_signal_is_an_exit(release_gil: bool) -> None:
    made, a = waiting(release_gil), np.zeros(1)
    with on_alarm(signal.default_int_handler), pytest.raises(KeyboardInterrupt):
        made(a)  # and then Python looks for signals
    assert made.exits_taken == (0, 1, 0)


def test_a_signal_is_handled_where_the_exit_leads() -> None:
    made, a = waiting(True), np.zeros(1)
    f = CompiledFunction(lambda a: None, lambda *_: pytest.fail("an entry serves it"))
    f.add_entry(Entry((), 8, PythonPlan(lambda: (), 0, ("call", made, (("arg", 0),)))))
    with on_alarm(signal.default_int_handler), pytest.raises(KeyboardInterrupt) as raised:
        f(a)
    assert go_on.__code__ in [frame.f_code for frame, _ in traceback.walk_tb(raised.value.__traceback__)]
    assert made.exits_taken == (0, 1, 0)


def test_a_signal_while_values_are_built_waits() -> None:
    """What the loop computed is not lost for it."""
    made_values: list[float] = []

    def value(x: float) -> float:
        made_values.append(x)
        if len(made_values) == 1:
            signal.raise_signal(signal.SIGALRM)
        return x

    def rest(x: float) -> float:
        return -x

    made = loop("nothing", (("float", 0),), (("tail", (("call", value, (("float", 0),)),)),), make_target=lambda _: rest)
    f = CompiledFunction(lambda a: None, lambda *_: pytest.fail("an entry serves it"))
    f.add_entry(Entry((), 8, PythonPlan(lambda: (), 0, ("call", made, (("arg", 0),)))))
    with on_alarm(raises), pytest.raises(Handled) as raised:
        f(2.5)
    assert rest.__code__ in [frame.f_code for frame, _ in traceback.walk_tb(raised.value.__traceback__)]
    assert f(2.5) == -2.5


def test_no_signal_stops_other_threads() -> None:
    made, a, seen = waiting(True), np.zeros(1), []
    thread = threading.Thread(target=lambda: seen.append(made(a)))
    with on_alarm(lambda *_: a.fill(1.0)):
        thread.start()
        thread.join(20)
    assert seen == ["done"]


def test_no_signal_stops_where_there_is_no_flag() -> None:
    made, a = waiting(True), np.zeros(1)
    _dispatch.set_pending_signals(0)
    try:
        with on_alarm(lambda *_: None):
            threading.Timer(0.2, a.fill, (1.0,)).start()
            assert made(a) == "done"
    finally:
        _dispatch.set_pending_signals(_frame_hook.pending_signals())


def test_the_gil_is_released() -> None:
    made, a = waiting(True), np.zeros(1)
    threading.Timer(0.05, a.fill, (1.0,)).start()
    assert made(a) == "done"


def test_threads_have_their_own_state() -> None:
    exits = (("tail", (("float", 4), ("parameter", 0))),)
    made = loop("sum", (("array", 0, F8, 1, False),), exits, make_target=lambda _: print, release_gil=True)
    wrong = []

    def run(n: int) -> None:
        a = np.full(n, 1.0)
        for _ in range(500):
            s, given = made(a).args
            if given is not a or s != n:
                wrong.append((n, s))

    threads = [threading.Thread(target=run, args=(n,)) for n in (1, 10, 1000, 3000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and made.calls == made.exits_taken[0] == 2000


# -- malformed rows ----------------------------------------------------------------------------------------------------------

MALFORMED: list[tuple[Any, Any, Any, str]] = [  # parameters, exits, an error and the beginning of what it says
    ((("int",),), (), ValueError, "a parameter of this kind is ('int', slot), not ('int',)"),
    ((("array", 0, F8, 1),), (), ValueError, "a parameter of this kind is ('array', slot, dtype, ndim, contiguous), not"),
    ((("long", 0),), (), ValueError, "a parameter begins with the name of its kind, as ('int', slot) does, which ('long', 0)"),
    (((),), (), ValueError, "a parameter begins with the name of its kind"),
    (((3, 0),), (), ValueError, "a parameter begins with the name of its kind"),
    ((["int", 0],), (), TypeError, "a parameter is a tuple like ('int', slot), not ['int', 0]"),
    ((("int", "0"),), (), TypeError, "in ('int', '0') the slot is not an int"),
    ((("int", -1),), (), ValueError, "in ('int', -1) the slot is not within 0.."),
    ((("int", 2**70),), (), ValueError, "in ('int', "),
    ((("int", 8),), (), ValueError, "('int', 8) needs 1 slots from slot 8 on, but n_slots is 8"),
    ((("none", 9),), (), ValueError, "('none', 9) needs 0 slots from slot 9 on"),
    ((("complex", 7),), (), ValueError, "('complex', 7) needs 2 slots"),
    ((("scalar", 7, np.dtype("D")),), (), ValueError, "('scalar', 7, dtype('complex128')) needs 2 slots"),
    ((("scalar", 6, np.dtype("G")),), (), ValueError, "('scalar', 6, dtype('complex256')) needs 4 slots"),
    ((("array", 1, F8, 3, False),), (), ValueError, "('array', 1, dtype('float64'), 3, False) needs 8 slots"),
    ((("array", 0, F8, -1, False),), (), ValueError, "in ('array', 0, dtype('float64'), -1, False) ndim is not within 0..64"),
    ((("array", 0, F8, 65, False),), (), ValueError, "in ('array', 0, dtype('float64'), 65, False) ndim is not within 0..64"),
    ((("array", 0, F8, 1.0, False),), (), TypeError, "in ('array', 0, dtype('float64'), 1.0, False) ndim is not an int"),
    ((("scalar", 0, None),), (), TypeError, "None is no dtype"),
    ((("complex", 0), ("int", 1)), (), ValueError, "parameter 1, ('int', 1), takes slot 1, which an earlier one has"),
    ((), (None,), TypeError, "an exit is a tuple like ('return', box), not None"),
    ((), (("leave", ()),), ValueError, "an exit begins with the name of its kind"),
    ((), (("return",),), ValueError, "an exit of this kind is ('return', box)"),
    ((), (("return", 3),), TypeError, "a box is a tuple like ('int', slot), not 3"),
    ((), (("tail", (3,)),), TypeError, "a box is a tuple like ('int', slot), not 3"),
    ((), (("tail", ("int", 0)),), TypeError, "a box is a tuple like ('int', slot), not 'int'"),
    ((), (("tail", [("int", 0)]),), TypeError, "boxes are a tuple, not [('int', 0)]"),
    ((), (("return", ("complex", 7)),), ValueError, "('complex', 7) needs 2 slots from slot 7 on, but n_slots is 8"),
    ((), (("return", ("scalar", 7, np.dtype("g"))),), ValueError, "('scalar', 7, dtype('float128')) needs 2 slots"),
    ((), (("return", ("none", 0)),), ValueError, "a box of this kind is ('none',), not ('none', 0)"),
    ((), (("return", ("const",)),), ValueError, "a box of this kind is ('const', object), not ('const',)"),
    ((), (("return", ("parameter", 0)),), ValueError, "('parameter', 0), but there are no parameters"),
    ((("unused", 0),), (("return", ("parameter", 1)),), ValueError, "in ('parameter', 1) the parameter is not within 0..0"),
    ((), (("return", ("call", 3, ())),), TypeError, "a box calls 3, which is not callable"),
    ((), (("return", ("call", max, 3)),), TypeError, "boxes are a tuple, not 3"),
    ((), (("return", ("tuple", (("int", 0), ("int",)))),), ValueError, "a box of this kind is ('int', slot)"),
    ((), (("return", ("view", 4, F8, 1)),), ValueError, "('view', 4, dtype('float64'), 1) needs 5 slots from slot 4 on, but"),
    ((), (("return", ("view", 0, F8, 65)),), ValueError, "in ('view', 0, dtype('float64'), 65) the number of axes is not within"),
    ((), (("return", ("choose", 0, ())),), ValueError, "'choose' needs at least one box"),
    ((), (("return", ("choose", 8, (("none",),))),), ValueError, "('choose', 8, (('none',),)) needs 1 slots"),
    ((), (("tail", ()),), TypeError, "exit 0 is a tail, but make_target is None"),
    ((), (("tail after", (), ()),), TypeError, "exit 0 is a tail, but make_target is None"),
    ((), (("return after", ("none",)),), ValueError, "an exit of this kind is ('return after', box, boxes), not"),
    ((), (("return after", ("none",), 3),), TypeError, "boxes are a tuple, not 3"),
]  # fmt: skip


@pytest.mark.parametrize(("parameters", "exits", "error", "words"), MALFORMED, ids=lambda v: v if isinstance(v, str) else "")
def test_malformed_rows(parameters: Any, exits: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=f"^NativeLoop: {re.escape(words)}"):
        loop("nothing", parameters, exits)


def test_dtypes_that_are_not_taken() -> None:
    for dtype in (">f8", "O", "S3", "V8", [("a", int)]):
        for parameters, exits in (
            ((("array", 0, np.dtype(dtype), 1, True),), ()),
            ((), (("return", ("scalar", 0, np.dtype(dtype))),)),
        ):
            with pytest.raises(ValueError, match="only numbers, bools and times in native byte order are taken"):
                loop("nothing", parameters, exits)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"address": 0}, ValueError, "NativeLoop: the address of the code is null"),
        ({"address": "f"}, TypeError, ""),
        ({"address": 2**80}, OverflowError, ""),
        ({"n_slots": -1}, ValueError, "NativeLoop: n_slots=-1 is not within 0..1048576"),
        ({"n_slots": 2**20 + 1}, ValueError, "NativeLoop: n_slots=1048577 is not within"),
        ({"n_slots": 2**40}, OverflowError, ""),
        ({"parameters": []}, TypeError, ""),
        ({"exits": []}, TypeError, ""),
        ({"make_target": 3}, TypeError, "NativeLoop: make_target=3 is neither callable nor None"),
        ({"otherwise": 3}, TypeError, "NativeLoop: otherwise=3 is neither callable nor None"),
    ],
    ids=str,
)
def test_malformed_arguments(changed: dict[str, Any], error: type[Exception], words: str) -> None:
    good: dict[str, Any] = {
        "address": library().address("nothing"), "keepalive": library(), "parameters": (), "n_slots": 2**20, "exits": (),
        "make_target": None, "otherwise": None,
    }  # fmt: skip
    NativeLoop(**good)
    with pytest.raises(error, match=f"^{re.escape(words)}"):
        NativeLoop(**{**good, **changed})


def test_boxes_within_boxes_without_end() -> None:
    box: tuple = ("none",)
    for _ in range(100_000):
        box = ("tuple", (box,))
    with pytest.raises(RecursionError):
        loop("nothing", (), (("return", box),))
    while len(box) > 1:  # from the outside: deallocating it whole nests too
        box = box[1][0]
