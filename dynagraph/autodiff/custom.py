"""Gradients as the user wants them: `stop_gradient`, `checkpoint` and `custom_vjp`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import numpy as np

from dynagraph.autodiff.arguments import ended, fitting, is_inexact, name_of, outline, replaced
from dynagraph.autodiff.primitives import begin_part, stop_gradient_of
from dynagraph.autodiff.transforms import check_callable, presented
from dynagraph.errors import GradientError
from dynagraph.pytree import leaves, mapped

F = TypeVar("F", bound=Callable[..., Any])


def stop_gradient(x: Any) -> Any:
    """The same value, or tree of values, taken as a constant by gradients.

    >>> import numpy as np, dynagraph as dg
    >>> dg.grad(lambda x: x * dg.stop_gradient(x))(3.0)
    np.float64(3.0)
    """
    return mapped(stop_gradient_of, x)


def _gradients_of(who: str, args: Sequence[Any], found: Any) -> list[Any]:
    """What a user's function gave as gradients by arguments: one for each differentiable leaf of these."""
    if type(found) is not tuple or len(found) != len(args):
        raise GradientError(f"{who}: backward must return a tuple of {len(args)}, one for each argument, got {outline(found)}")
    gradients: list[Any] = []
    for argument, gradient in zip(args, found):
        if gradient is None:
            gradients.extend([np.zeros_like(leaf) for leaf in leaves(argument) if is_inexact(leaf)])
        else:
            gradients.extend(fitting(who, "gradient", "argument", argument, gradient))
    return gradients


def checkpoint(f: F) -> F:
    """The same function, of which gradients compute anew what they need rather than keep it: less memory, more arithmetic.

    >>> import numpy as np, dynagraph as dg
    >>> block = dg.checkpoint(lambda x: np.sin(np.exp(x)))
    >>> dg.grad(lambda x: np.sum(block(block(x))))(np.zeros(2)).round(6)
    array([-0.853417, -0.853417])
    """
    check_callable("checkpoint", f)

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        begun = begin_part()
        return ended(begun, "dg.checkpoint", f(*args, **kwargs))

    return cast(F, presented(checkpointed, None, f, "checkpoint"))


def custom_vjp(f: Callable[..., Any]) -> Any:
    """A function whose gradient is not that of its steps, but what ``f.defvjp(forward, backward)`` says.

    ``forward(*args)`` gives ``(value, kept)``, the value nested as `f` has it; ``backward(kept, cotangent)`` gives a tuple: for
    each argument the gradient, nested and shaped as the argument is, or None where it has none.  Both are NumPy code, which is
    captured like all other; gradients of gradients go through it.  Arguments are passed by position.

    Raises GradientError where no `defvjp` was called, where gradients do not fit the arguments, and where `f` uses a value that is
    being differentiated and is not among its arguments.

    >>> import numpy as np, dynagraph as dg
    >>> @dg.custom_vjp
    ... def clipped(x):  # the gradient passes as if nothing were clipped
    ...     return np.clip(x, -1.0, 1.0)
    >>> clipped.defvjp(lambda x: (np.clip(x, -1.0, 1.0), None), lambda kept, g: (g,))
    >>> dg.grad(lambda x: np.sum(3 * clipped(x)))(np.array([0.5, 2.0]))
    array([3., 3.])
    """
    check_callable("custom_vjp", f)
    rules: list[Any] = []
    who = f"custom_vjp of {name_of(f)}"

    def function(*args: Any) -> Any:
        if not rules:
            raise GradientError(f"{who}: say what its gradient is: {name_of(f)}.defvjp(forward, backward)")
        begun = begin_part()
        inexact = [leaf for leaf in leaves(args) if is_inexact(leaf)]

        def pull(of: Any, cotangents: Any) -> Any:
            value, kept = rules[0](*replaced(args, is_inexact, of))
            found = rules[1](kept, replaced(value, is_inexact, cotangents))
            return _gradients_of(who, args, found)

        return ended(begun, who, f(*args), inexact, pull)

    def defvjp(forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        check_callable("defvjp", forward)
        check_callable("defvjp", backward)
        rules[:] = [forward, backward]

    made = presented(function, None, f, "custom_vjp")
    made.defvjp = defvjp
    return made


__all__ = ["checkpoint", "custom_vjp", "stop_gradient"]
