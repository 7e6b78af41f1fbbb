"""Native loops and plans ask for better code now and then, and go on in it."""

from __future__ import annotations

import gc
import signal
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from dynagraph._core._dispatch import CompiledFunction, Entry, NativeLoop, NativePlan
from tests.core import native
from tests.core.test_native_loop import F8, library, loop

EXITS = (("return", ("const", "first")), ("return", ("const", "second")))
ADDRESS = ("array", 0, F8, 1, True)


class Code:
    """Keeps nothing loaded; but weak references tell when it goes."""


def numbered(better: Any, **options: Any) -> NativeLoop:
    """Gives "first" or "second", as its argument says; its better code always gives "first"."""
    return loop("numbered", (("int", 0),), EXITS, better=better, **options)


def until_asked() -> None:
    time.sleep(0.003)


def test_better_code_takes_the_place_of_what_ran() -> None:
    answers: list[Any] = [None, None, (library().address("nothing"), library())]
    f = numbered(lambda: answers.pop(0))
    assert f(1) == "second" and len(answers) == 2
    assert f(1) == "second" and len(answers) == 2  # not asked at each call
    until_asked()
    assert f(1) == "second" and len(answers) == 1
    until_asked()
    assert f(1) == "first" and not answers
    until_asked()
    assert f(1) == "first"  # nobody is asked any more
    assert f.exits_taken == (2, 3) and f.calls == 5


def test_nobody_is_asked_after_never() -> None:
    answers: list[Any] = [False]
    f = numbered(lambda: answers.pop(0))
    for _ in range(3):
        assert f(1) == "second"
        until_asked()
    assert not answers


def test_code_stays_loaded_while_a_call_runs_it() -> None:
    old, better, flag = Code(), [], np.zeros(1)
    f = NativeLoop(
        library().address("waits"), old, (ADDRESS,), 8, (("return", ("none",)),) * 3, None, None,
        better=lambda: better.pop() if better else None,
    )  # fmt: skip
    gone, answers = weakref.ref(old), []
    thread = threading.Thread(target=lambda: answers.append(f(flag)))
    thread.start()
    while not f.calls:
        time.sleep(0.001)
    del old
    until_asked()
    better.append((library().address("nothing"), None))
    assert f(flag) is None and not better  # it would wait in the old code
    gc.collect()
    assert gone() is not None
    flag[0] = 1
    thread.join()
    assert gone() is None and answers == [None]


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (3, TypeError, "better"),
        ((1,), TypeError, "better"),
        ((0, None), ValueError, "the address of the code is null"),
        ((None, None), ValueError, "no int"),
        ((2**80, None), OverflowError, "too large"),
    ],
    ids=repr,
)
def test_malformed_answers(answer: Any, error: type[Exception], words: str) -> None:
    f = numbered(lambda: answer)
    with pytest.raises(error, match=words):
        f(1)
    until_asked()


def test_better_is_callable_or_none() -> None:
    with pytest.raises(TypeError, match=r"^NativeLoop: better=3 is neither callable nor None"):
        numbered(3)
    assert numbered(None)(1) == "second"


def test_what_the_answer_raises_is_raised_before_the_loop() -> None:
    asked = []

    def fails() -> None:
        asked.append(1)
        if len(asked) == 1:
            raise ValueError("no code")

    f = numbered(fails)
    with pytest.raises(ValueError, match="no code"):
        f(1)
    assert f.exits_taken == (0, 0)
    assert f(1) == "second"


@pytest.mark.usefixtures("sigint")
def test_a_signal_that_comes_meanwhile_is_raised_once_it_has_answered() -> None:
    asked = []

    def answer() -> None:
        asked.append(len(asked))
        if len(asked) == 1:
            signal.raise_signal(signal.SIGINT)

    f = numbered(answer)
    with pytest.raises(KeyboardInterrupt):
        f(1)
        time.sleep(1.0)
    assert asked == [0, 1]


def test_cycles_through_it_are_collected() -> None:
    def made() -> weakref.ref[Code]:
        code = Code()
        code.loop = numbered(lambda: code and None)  # type: ignore[attr-defined]
        return weakref.ref(code)

    gone = made()
    gc.collect()
    assert gone() is None


# -- plans ------------------------------------------------------------------------------------------------------------------


def plan(better: Any, keepalive: Any = None) -> NativePlan:
    """Gives 1.5 - 2.5j; what `second` gives as better code is 0j."""
    outputs = ((np.dtype(complex), (), True),)
    return NativePlan(native.address("imaginary"), keepalive, 0, outputs, 0, ("out", 0), False, 0, better=better)


FIRST = 1.5 - 2.5j


def second() -> tuple[int, object]:
    return native.address("gives_nothing"), native.library()


def test_a_plan_goes_on_in_better_code() -> None:
    old, answers = Code(), [second(), None, None]
    gone = weakref.ref(old)
    entry = Entry((), 0, plan(lambda: answers.pop(), old))
    del old
    assert entry.run(()) == FIRST and len(answers) == 2
    until_asked()
    assert entry.run(()) == FIRST and gone() is not None
    until_asked()
    assert entry.run(()) == 0 and gone() is None and not answers
    until_asked()
    assert entry.run(()) == 0  # nobody is asked any more


def test_what_a_plan_is_answered() -> None:
    with pytest.raises(TypeError, match=r"^NativePlan: better=3 is neither callable nor None"):
        plan(3)
    with pytest.raises(TypeError, match=r"^NativePlan: better\(\) gave 3, which is neither"):
        Entry((), 0, plan(lambda: 3)).run(())
    with pytest.raises(ZeroDivisionError):
        Entry((), 0, plan(lambda: 1 // 0)).run(())


def test_calls_are_not_timed_while_better_code_may_come() -> None:
    answers: list[Any] = [None]
    f = CompiledFunction(lambda: "plain", lambda *_: "missed")
    f.add_entry(Entry((), 0, plan(lambda: answers[0]), None, True))
    assert {f() for _ in range(50)} == {FIRST}
    answers[0] = False
    until_asked()
    assert {f() for _ in range(50)} == {FIRST, "plain"}


@pytest.mark.usefixtures("sigint")
def test_a_signal_while_a_plan_asks_is_raised_once_it_has_answered() -> None:
    asked = []

    def answer() -> None:
        asked.append(len(asked))
        if len(asked) == 1:
            signal.raise_signal(signal.SIGINT)

    entry = Entry((), 0, plan(answer))
    with pytest.raises(KeyboardInterrupt):
        entry.run(())
        time.sleep(1.0)
    assert asked == [0, 1]


def test_cycles_through_a_plan_are_collected() -> None:
    def made() -> weakref.ref[Code]:
        code = Code()
        code.entry = Entry((), 0, plan(lambda: code and None))  # type: ignore[attr-defined]
        return weakref.ref(code)

    gone = made()
    gc.collect()
    assert gone() is None
