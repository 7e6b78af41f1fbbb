"""Whether a signal's handler raised an exception, whatever kind of callable the handler is."""

from __future__ import annotations

import functools
import signal
from typing import Any

import pytest

from dynagraph._core import _dispatch
from dynagraph.driver.signals import is_of_signal


def plain(number: int, frame: Any) -> None:
    raise OSError("from a handler")


def of_three(reason: str, number: int, frame: Any) -> None:
    raise OSError(reason)


class Handler:
    def __call__(self, number: int, frame: Any) -> None:
        raise OSError("from an object")

    def method(self, number: int, frame: Any) -> None:
        raise OSError("from a method")


HANDLERS = (plain, functools.partial(of_three, "from a part"), functools.partial(Handler()), Handler(), Handler().method)


@pytest.mark.parametrize("handler", HANDLERS, ids=["function", "partial", "partial of an object", "object", "method"])
def test_what_a_handler_raises_is_of_a_signal(handler: Any) -> None:
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(OSError) as raised:
            signal.raise_signal(signal.SIGUSR1)
        assert is_of_signal(raised.value)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not is_of_signal(raised.value)  # it handles no signal any longer


def test_what_tells_of_signals_must_be_callable() -> None:
    with pytest.raises(TypeError, match=r"^set_of_signal: expected a function of an exception, got 3$"):
        _dispatch.set_of_signal(3)
