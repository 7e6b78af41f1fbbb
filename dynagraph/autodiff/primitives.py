"""The primitives of gradient transforms: levels, variables, and taking gradients by these.

What they mean on a tape, for code that runs as plain Python, and to captures, which never run them, comes with the compiler:
primitive_meanings.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from dynagraph.driver import loading
from dynagraph.errors import GradientError

F = TypeVar("F", bound=Callable[..., Any])


def _primitive(declared: F) -> F:
    name = declared.__name__

    @functools.wraps(declared)
    def call(*args: Any, **kwargs: Any) -> Any:
        return loading.compiler().TAPE[name](*args, **kwargs)

    return cast(F, call)


@_primitive
def level() -> Any:
    """Open a level: it ends with the last reference to it."""


@_primitive
def variable(level: Any, x: Any) -> Any:
    """The same array, NumPy scalar or Python float, as something of its own by which gradients can be taken."""


@_primitive
def pull_back(level: Any, values: Sequence[Any], cotangents: Sequence[Any], variables: Sequence[Any]) -> tuple[Any, ...]:
    """The gradients of ``sum(sum(c * v) for c, v in zip(cotangents, values))`` by the variables."""


@_primitive
def keep(level: Any, values: Sequence[Any], variables: Sequence[Any]) -> tuple[tuple[Any, ...], Any | None]:
    """What gradients of the values by the variables need later: values, and a `Kept`; or else None, and what `pull_back` takes.

    What is computed from now on does not depend on the variables, and memory that the caller sees may be written to.
    """


@_primitive
def spliced(graph: Any, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What a graph gives for inputs that fit it."""


@_primitive
def push_forward(level: Any, values: Sequence[Any], variables: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, ...]:
    """How the values change where the variables change by the tangents."""


@_primitive
def jacobian_rows(level: Any, value: Any, variables: Sequence[Any]) -> tuple[Any, ...]:
    """The derivatives of a value by each variable, of the value's shape and then the variable's, by gradients."""


@_primitive
def jacobian_columns(level: Any, values: Sequence[Any], variable: Any) -> tuple[Any, ...]:
    """The derivatives of each value by a variable, of the value's shape and then the variable's, by tangents."""


@_primitive
def gathered(level: Any, value: Any) -> Any:
    """A result as one array, where NumPy has made an array of objects of tracers."""


@_primitive
def released(level: Any, value: Any) -> Any:
    """A result as the caller of this level sees it: plain, unless it depends on a variable of another open level."""


@_primitive
def end_part(
    begun: Any, name: str, results: Sequence[Any], args: Sequence[Any], pull: Callable[..., Any] | None
) -> tuple[Any, ...]:
    """The results of a part, as those of which ``pull(args, cotangents)`` gives the gradients by the arguments.

    All are leaves; cotangents are arrays, zeros where nothing comes back.  Without `pull` the gradients are the part's own, which
    is computed again for them rather than kept.
    """


# -- what needs no tape -----------------------------------------------------------------------------------------------------


def called(level: Any, f: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the function that is differentiated gives.  Where it raises, the level is left."""
    try:
        return f(*args, **kwargs)
    except BaseException as error:
        level.tape.open.discard(level.number)
        if isinstance(error, (TypeError, ValueError)) and isinstance(error.__cause__, GradientError):  # NumPy asked for a float
            raise error.__cause__ from None
        raise


def is_captured() -> bool:
    """Whether a capture follows this."""
    return False


def check_apart(results: Sequence[Any], before: Sequence[tuple[str, Any]], after: Sequence[tuple[str, Any]]) -> None:
    """End a capture in which the results are not all that comes of a function, or share memory with one another or with others.

    `before` and `after` are what its arguments hold.
    """


def begin_part() -> Any:
    """The place where a part of the computation begins whose gradient comes in another way; None where no gradient is taken."""
    compiler = loading.loaded()
    return None if compiler is None else compiler.TAPE["begin_part"]()


def is_part(begun: Any) -> bool:
    """Whether what `begin_part` gave is a place."""
    return begun is not None


def stop_gradient_of(x: Any) -> Any:
    """The same value, taken as a constant by gradients."""
    compiler = loading.loaded()
    return x if compiler is None else compiler.TAPE["stop_gradient_of"](x)


def is_tracer(value: Any) -> bool:
    """Whether a value is being differentiated on a tape, whatever class it says that it is of."""
    compiler = loading.loaded()
    return compiler is not None and compiler.TAPE["is_tracer"](value)


__all__ = [
    "begin_part", "called", "check_apart", "end_part", "gathered", "is_captured", "is_part", "is_tracer",
    "jacobian_columns", "jacobian_rows", "keep", "level", "pull_back", "push_forward", "released", "spliced",
    "stop_gradient_of", "variable",
]  # fmt: skip
