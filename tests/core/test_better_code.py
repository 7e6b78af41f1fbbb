"""A native loop asks for better code now and then, and goes on in it."""

from __future__ import annotations

import gc
import signal
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

from dynagraph._core._dispatch import NativeLoop
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
    def fails() -> None:
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
