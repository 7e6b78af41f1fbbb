"""Whether operations are recorded for gradients: a state of each thread, set by contexts that are decorators too."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from typing import Any

from dynagraph._core._dispatch import GradModes

mode = GradModes()  # attributes of the current thread: grad, inference, anomaly, check_nan, hooked, those of autocast
Hook = tuple[Callable[[Any], Any], Callable[[Any], Any]]


class _Hooks(threading.local):
    pairs: tuple[Hook, ...] = ()


_hooks = _Hooks()


def saved_hooks() -> tuple[Hook, ...]:
    """The (pack, unpack) hooks of saved tensors in this thread, innermost last; `mode.hooked`: whether there are any."""
    return _hooks.pairs if mode.hooked else ()


def set_saved_hooks(pairs: tuple[Hook, ...]) -> None:
    """Set the hooks of this thread."""
    _hooks.pairs = pairs
    mode.hooked = bool(pairs)


def is_grad_enabled() -> bool:
    """Whether operations on tensors that require gradients are recorded."""
    return mode.grad


def is_inference_mode_enabled() -> bool:
    """Whether `inference_mode` is on."""
    return mode.inference


class _Switch:
    """A context that sets the mode and is a decorator, of functions, generators and classes' methods alike."""

    def __enter__(self) -> None:
        raise NotImplementedError

    def __exit__(self, *_: Any) -> None:
        raise NotImplementedError

    def _again(self) -> _Switch:
        """One that does the same, for each call of what is decorated."""
        return type(self)()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.isgeneratorfunction(function):
            return self._of_generator(function)

        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return wrapped

    def _of_generator(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            generator = function(*args, **kwargs)
            step: Callable[[], Any] = lambda: next(generator)  # noqa: E731
            while True:
                try:
                    with self._again():
                        item = step()
                except StopIteration as stop:
                    return stop.value
                try:
                    sent = yield item
                except GeneratorExit:
                    with self._again():
                        generator.close()
                    raise
                except BaseException as error:
                    step = functools.partial(generator.throw, error)
                else:
                    step = functools.partial(generator.send, sent)

        return wrapped


class no_grad(_Switch):
    """Operations within are not recorded, and nothing is kept for gradients.

    >>> from dynagraph import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        made = super().__new__(cls)
        return made if function is None else made(function)

    def __init__(self, function: None = None) -> None:
        self.before = True

    def __enter__(self) -> None:
        self.before, mode.grad = mode.grad, False

    def __exit__(self, *_: Any) -> None:
        mode.grad = self.before


class enable_grad(_Switch):
    """Operations within are recorded, also inside `no_grad`."""

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        made = super().__new__(cls)
        return made if function is None else made(function)

    def __init__(self, function: None = None) -> None:
        self.before = True

    def __enter__(self) -> None:
        self.before, mode.grad = mode.grad, True

    def __exit__(self, *_: Any) -> None:
        mode.grad = self.before


class set_grad_enabled(_Switch):
    """Set whether operations are recorded: at once, until the context that it is ends."""

    def __init__(self, mode: bool) -> None:
        self.on = bool(mode)
        self.before = _set_grad(self.on)

    def __enter__(self) -> None:
        _set_grad(self.on)

    def __exit__(self, *_: Any) -> None:
        _set_grad(self.before)

    def _again(self) -> _Switch:
        return set_grad_enabled(self.on)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        _set_grad(self.before)  # as a decorator it sets nothing by itself
        return super().__call__(function)


def _set_grad(on: bool) -> bool:
    before, mode.grad = mode.grad, on
    return before


class inference_mode(_Switch):
    """As `no_grad`, and tensors made within can never be used where gradients are recorded."""

    def __new__(cls, mode: Any = True) -> Any:
        if callable(mode):
            return cls()(mode)
        return super().__new__(cls)

    def __init__(self, mode: bool = True) -> None:
        self.on = mode
        self.before = (True, False)

    def __enter__(self) -> None:
        self.before = mode.grad, mode.inference
        mode.inference = self.on
        mode.grad = not self.on

    def __exit__(self, *_: Any) -> None:
        mode.grad, mode.inference = self.before

    def _again(self) -> _Switch:
        return inference_mode(self.on)


__all__ = [
    "enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "mode", "no_grad", "saved_hooks",
    "set_grad_enabled", "set_saved_hooks",
]  # fmt: skip
