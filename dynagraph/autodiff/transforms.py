"""Gradients of NumPy functions: `grad`, `value_and_grad`, `vjp`, `jvp`, `hvp` and what steers them.

Each transformation is plain Python over a few functions (autodiff/primitives.py): open a level, make variables of the arguments,
call the function, pull cotangents back.  Captures follow that Python and put the gradients into their graph; where a function
cannot be captured, the same Python runs, and the tape notes what the function does.  So transformations are functions like all
others: of one another, and of compiled functions.

Arguments and results are arrays, NumPy scalars, floats, or nested containers of these (pytree.py).
"""

from __future__ import annotations

import dataclasses
import functools
import types
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.api import compile_as
from dynagraph.autodiff.arguments import (
    check_argnums,
    count_of,
    ended,
    fitting,
    is_inexact,
    kind_of,
    kind_of_leaf,
    name_of,
    ones_for,
    positions_of,
    replaced,
    shaped_like,
    variables_of,
)
from dynagraph.autodiff.primitives import (
    begin_part,
    called,
    check_apart,
    gathered,
    is_captured,
    is_tracer,
    jacobian_columns,
    jacobian_rows,
    keep,
    level,
    pull_back,
    push_forward,
    released,
    spliced,
    variable,
)
from dynagraph.driver.decorated import Options
from dynagraph.errors import GradientError
from dynagraph.markers import OPEN_MODULES
from dynagraph.pytree import leaves, mapped, named_leaves, rebuilt

# -- plans: what programs are made of -------------------------------------------------------------------------------------------


def _result_of(at: Any, f: Any, args: Any, kwargs: Any) -> Any:
    return mapped(lambda leaf: gathered(at, leaf), called(at, f, args, kwargs))


def _value_and_gradients(who: str, f: Any, argnums: Any, has_aux: bool, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    positions = positions_of(who, argnums, len(args))
    at = level()
    given, variables = variables_of(at, who, positions, args)
    value = _result_of(at, f, given, kwargs)
    aux = None
    if has_aux:
        if type(value) is not tuple or len(value) != 2:
            raise GradientError(f"{who}: with has_aux=True the function must return (value, aux), got {kind_of(value)}")
        value, aux = value
    found = pull_back(at, (value,), (ones_for(who, value),), tuple(variables))
    trees = shaped_like([args[p] for p in positions], [released(at, leaf) for leaf in found])
    gradients = trees[0] if type(argnums) is int else tuple(trees)
    return released(at, value), mapped(lambda leaf: released(at, leaf), aux), gradients


def _changes(who: str, f: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """What `f` gives, and how it changes where its arguments change by the tangents."""
    at = level()
    given, variables = variables_of(at, who, list(range(len(primals))), primals)
    ways = fitting(who, "tangent", "primal", list(primals), list(tangents))
    result = _result_of(at, f, given, {})
    changing = [leaf for leaf in leaves(result) if is_inexact(leaf)]
    found = iter(push_forward(at, tuple(changing), tuple(variables), tuple(ways)))
    changes = [released(at, next(found)) if is_inexact(leaf) else None for leaf in leaves(result)]
    return mapped(lambda leaf: released(at, leaf), result), rebuilt(result, iter(changes))


def _jacobians(who: str, f: Any, argnums: Any, mode: str, args: Any, kwargs: Any) -> Any:
    """For each leaf of the result, trees like the chosen arguments of its derivatives by their leaves."""
    positions = positions_of(who, argnums, len(args))
    at = level()
    given, variables = variables_of(at, who, positions, args)
    result = _result_of(at, f, given, kwargs)
    values = []
    for name, leaf in named_leaves(result, "the result"):
        if not is_inexact(leaf):
            raise GradientError(f"{who}: {name} is {kind_of_leaf(leaf)}, which has no derivatives; cast it, or leave it out")
        values.append(leaf)
    if mode == "rev" or (mode == "auto" and count_of(values) <= count_of(variables)):
        rows: list[Any] = [jacobian_rows(at, value, tuple(variables)) for value in values]
    else:
        columns = [jacobian_columns(at, tuple(values), of) for of in variables]
        rows = [[column[k] for column in columns] for k in range(len(values))]
    trees = [shaped_like([args[p] for p in positions], [released(at, leaf) for leaf in row]) for row in rows]
    return rebuilt(result, iter([tree[0] if type(argnums) is int else tuple(tree) for tree in trees]))


# -- programs: compiled plans ---------------------------------------------------------------------------------------------------

_programs: weakref.WeakKeyDictionary[Any, dict[Any, Any]] = weakref.WeakKeyDictionary()  # by code, or class, of the function


def compiled_plan(plan: Any, f: Any, *key: Any, static: bool = False) -> Any:
    """The plan as a compiled function, the same one for all functions of one code; in a capture the plan itself.

    `static`: sizes are those of the call, and so are Python's numbers.
    """
    inner, options, made_by = _innermost(f)
    if static:
        options = dataclasses.replace(options, dynamic=False)
    known = _programs.setdefault(inner.__code__ if isinstance(inner, types.FunctionType) else type(inner), {})
    key = (*key, *made_by, options.key)
    if key not in known:
        known[key] = compile_as(plan, dataclasses.replace(options, whole=True))
    return known[key]


def _innermost(f: Any) -> tuple[Any, Options, list[Any]]:
    """The function that transformations, partials and methods are made of, the options that it is compiled with, and what they
    are: ufuncs and transformations have one class, and one code, each.
    """
    options = Options()
    made_by: list[Any] = []
    while True:
        if isinstance(f, _dispatch.CompiledFunction):
            f, options = f.__wrapped__, f.decorated.options
        elif isinstance(f, types.MethodType):
            f = f.__func__
        elif isinstance(f, functools.partial):
            f = f.func
        elif isinstance(f, types.FunctionType) and f.__module__ in OPEN_MODULES and hasattr(f, "__wrapped__"):
            made_by.append(f.__code__)
            f = f.__wrapped__
        else:
            break
    if isinstance(f, (np.ufunc, types.BuiltinFunctionType)):
        made_by.append(f)
    return f, options, made_by


def check_callable(who: str, f: Any) -> None:
    if not callable(f):
        raise TypeError(f"{who}: expected a function, got {f!r} of type {type(f).__name__}")


def presented(made: Any, program: Any, f: Any, prefix: str) -> Any:
    """A transformation's result, named after the function."""
    made.__name__ = f"{prefix}_{getattr(f, '__name__', 'function')}"
    made.__qualname__ = f"{prefix}({name_of(f)})"
    made.__wrapped__ = f
    made.program = program
    return made



# -- public ---------------------------------------------------------------------------------------------------------------------


def value_and_grad(f: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives ``(value, gradient)``: what `f` gives, a real number, and its gradient by argument `argnums`.

    argnums: the position of the argument, or a tuple of several: then the gradient is a tuple, too.  The argument may be a nested
    container of arrays (tuples, lists, dicts, dataclasses); its gradient is nested likewise, each array of its argument's shape and
    dtype.  has_aux: `f` returns ``(value, aux)``; the result is ``((value, aux), gradient)``.

    Of complex arguments the gradient is that by the real part plus i times that by the imaginary part (PyTorch's convention): a
    step against it descends.  At ties the gradient is shared: max, min, maximum, minimum; abs has 0 at 0.

    The first call of each kind of arguments is captured and compiled, forward and backward as one program; what cannot be captured
    runs as plain Python, and is differentiated step by step.  Inside a compiled function it becomes part of that one's program.

    Raises GradientError where a gradient is asked by integers, of something that is not a real number, or through a function that
    has none; what `f` raises, it raises.

    >>> import numpy as np, dynagraph as dg
    >>> dg.value_and_grad(lambda x: np.sum(x ** 2))(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    check_callable("value_and_grad", f)
    who = f"value_and_grad of {name_of(f)}"
    check_argnums(who, argnums)

    def plan(f: Any, args: Any, kwargs: Any) -> Any:
        value, aux, gradients = _value_and_gradients(who, f, argnums, has_aux, args, kwargs)
        return ((value, aux), gradients) if has_aux else (value, gradients)

    program = compiled_plan(plan, f, "value_and_grad", argnums, has_aux)

    def value_and_gradient(*args: Any, **kwargs: Any) -> Any:
        return program(f, args, kwargs)

    return presented(value_and_gradient, program, f, "value_and_grad")


def grad(f: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradient of `f`, a function of one real result, by argument `argnums`.

    With has_aux, `f` returns ``(value, aux)`` and the result is ``(gradient, aux)``.  All else is as for `value_and_grad`.

    >>> import numpy as np, dynagraph as dg
    >>> dg.grad(np.tanh)(0.0), dg.grad(dg.grad(lambda x: x ** 3))(2.0)
    (np.float64(1.0), np.float64(12.0))
    """
    check_callable("grad", f)
    who = f"grad of {name_of(f)}"
    check_argnums(who, argnums)

    def plan(f: Any, args: Any, kwargs: Any) -> Any:
        _, aux, gradients = _value_and_gradients(who, f, argnums, has_aux, args, kwargs)
        return (gradients, aux) if has_aux else gradients

    program = compiled_plan(plan, f, "grad", argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        return program(f, args, kwargs)

    return presented(gradient, program, f, "grad")


def jvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
    """``(value, change)``: what `f` gives for the arguments `primals`, and how that changes where they change by `tangents`.

    Both are tuples of arguments; tangents are nested as primals are, of their shapes.  Raises what `grad` raises.

    >>> import numpy as np, dynagraph as dg
    >>> dg.jvp(np.sin, (0.0,), (2.0,))
    (np.float64(0.0), np.float64(2.0))
    """
    check_callable("jvp", f)
    who = f"jvp of {name_of(f)}"
    if type(primals) not in (tuple, list) or type(tangents) not in (tuple, list):
        given = f"{kind_of(primals)} and {kind_of(tangents)}"
        raise GradientError(f"{who}: primals and tangents must be tuples of arguments, got {given}")

    def plan(f: Any, primals: Any, tangents: Any) -> Any:
        return _changes(who, f, primals, tangents)

    return compiled_plan(plan, f, "jvp")(f, primals, tangents)


MODES = ("auto", "fwd", "rev")


def jacobian(f: Callable[..., Any], argnums: int | tuple[int, ...] = 0, *, mode: str = "auto") -> Callable[..., Any]:
    """A function that gives the derivatives of each element of what `f` gives by each element of argument `argnums`.

    For a result of shape r and an argument of shape a, an array of shape r + a; for nested ones, a tree like the result in which
    each leaf is a tree like the argument (a tuple of these for a tuple of argnums).  mode: "rev" takes a gradient for each element
    of the result, "fwd" a tangent for each element of the arguments, all of them at once in either case; "auto" what is less.

    Raises what `grad` raises, ValueError for an unknown mode.

    >>> import numpy as np, dynagraph as dg
    >>> dg.jacobian(lambda x: np.array([x[0] * x[1], x[0] + x[1]]))(np.array([2.0, 3.0]))
    array([[3., 2.],
           [1., 1.]])
    """
    check_callable("jacobian", f)
    _check_mode(mode)
    who = f"jacobian of {name_of(f)}"
    check_argnums(who, argnums)

    def plan(f: Any, args: Any, kwargs: Any) -> Any:
        return _jacobians(who, f, argnums, mode, args, kwargs)

    program = compiled_plan(plan, f, "jacobian", argnums, mode)

    def derivatives(*args: Any, **kwargs: Any) -> Any:
        return program(f, args, kwargs)

    return presented(derivatives, program, f, "jacobian")


def _check_mode(mode: str) -> None:
    if mode not in MODES:
        raise ValueError(f"jacobian: mode={mode!r}: expected {' or '.join(map(repr, MODES))}")


def hessian(f: Callable[..., Any], argnums: int | tuple[int, ...] = 0) -> Callable[..., Any]:
    """A function that gives the second derivatives of `f`, a function of one real result: tangents of its gradient.

    For an argument of shape a, an array of shape a + a; nested as `jacobian` of `grad` is.

    >>> import numpy as np, dynagraph as dg
    >>> dg.hessian(lambda x: x[0] ** 2 * x[1])(np.array([1.0, 3.0]))
    array([[6., 2.],
           [2., 0.]])
    """
    return jacobian(grad(f, argnums), argnums, mode="fwd")


def hvp(f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The Hessian of `f`, a function of one real result, times the tangents: how its gradient changes along these.

    `primals` and `tangents` are tuples of arguments; so is the result.  Costs about as much as two gradients, and no matrix.

    >>> import numpy as np, dynagraph as dg
    >>> dg.hvp(lambda x: np.sum(x ** 3), (np.array([1.0, 2.0]),), (np.array([1.0, 0.5]),))
    (array([6., 6.]),)
    """
    if type(primals) not in (tuple, list):
        raise GradientError(f"hvp of {name_of(f)}: primals and tangents must be tuples of arguments, got {kind_of(primals)}")
    return jvp(grad(f, tuple(range(len(primals)))), primals, tangents)[1]


def vjp(f: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[[Any], tuple[Any, ...]]]:
    """``(value, pull)``: what `f` gives for the arguments, and a function that takes cotangents back to them.

    ``pull(cotangent)``, with a cotangent nested as the value is and of its shapes, gives a tuple: for each argument the gradient of
    ``sum(cotangent * value)``.  Raises what `grad` raises.

    >>> import numpy as np, dynagraph as dg
    >>> value, pull = dg.vjp(lambda x, y: x * y, np.array([1.0, 2.0]), 3.0)
    >>> pull(np.array([1.0, 10.0]))
    (array([ 3., 30.]), np.float64(21.0))
    """
    check_callable("vjp", f)
    who = f"vjp of {name_of(f)}"

    def plan(f: Any, primals: Any) -> Any:
        at = level()
        given, variables = variables_of(at, who, list(range(len(primals))), primals)
        result = _result_of(at, f, given, {})
        kept, gradients = keep(at, tuple([leaf for leaf in leaves(result) if is_inexact(leaf)]), tuple(variables))
        return mapped(lambda leaf: released(at, leaf), result), kept, gradients

    primals = mapped(lambda leaf: np.float64(leaf) if type(leaf) is float else leaf, primals)
    value, kept, gradients = compiled_plan(plan, f, "vjp", static=True)(f, primals)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        seeds = fitting(who, "cotangent", "value", value, cotangent)
        if gradients is None:
            at, of, variables = kept
            found = [released(at, g) for g in pull_back(at, of, tuple(seeds), variables)]
        else:
            found = _gradients_from(gradients, kept, seeds)
        return tuple(shaped_like(primals, found))

    return value, pull


def call_on_tape(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a compiled function with values that are being differentiated: one program forward, and one backward.

    Within several gradients at once it is differentiated step by step, as its gradient has to be differentiated, too; and so it is
    where it cannot be captured, or where its results are not all that comes of it.
    """
    tracers = [leaf for leaf in leaves((args, kwargs)) if is_tracer(leaf)]
    tape = tracers[0].tape
    if len(tape.open) != 1 or tape.is_symbolic:
        return f.__wrapped__(*args, **kwargs)
    which = tuple([is_tracer(leaf) for leaf in leaves((args, kwargs))])
    who = f"the gradient of {name_of(f)}"

    def plan(f: Any, args: Any, kwargs: Any) -> Any:
        if not is_captured():
            return None, None, None
        at = level()
        chosen = iter(which)
        given = [variable(at, leaf) if next(chosen) else leaf for leaf in leaves((args, kwargs))]
        variables = [leaf for leaf, is_variable in zip(given, which) if is_variable]
        args, kwargs = rebuilt((args, kwargs), iter(given))
        before = named_leaves((args, kwargs), "")
        result = _result_of(at, f, args, kwargs)
        check_apart(tuple(leaves(result)), before, named_leaves((args, kwargs), ""))
        kept, gradients = keep(at, tuple([leaf for leaf in leaves(result) if is_inexact(leaf)]), tuple(variables))
        return mapped(lambda leaf: released(at, leaf), result), kept, gradients

    begun = begin_part()
    plain = replaced((args, kwargs), is_tracer, [tracer.value for tracer in tracers])
    value, kept, gradients = compiled_plan(plan, f, "on a tape", which, static=True)(f, *plain)
    if gradients is None:
        return f.__wrapped__(*args, **kwargs)

    def pull(of: Any, cotangents: Any) -> Any:
        seeds = cotangents if tape.is_symbolic else [c.value if is_tracer(c) else c for c in cotangents]
        return _gradients_from(gradients, kept, seeds)

    return ended(begun, who, value, tracers, pull)


def _gradients_from(gradients: Any, kept: Sequence[Any], seeds: Sequence[Any]) -> list[Any]:
    """The gradients by all variables from what was kept."""
    if gradients.program is None:
        graph = gradients.graph

        def backward(inputs: Any) -> Any:
            return spliced(graph, inputs)

        gradients.program = compile_as(backward, Options(dynamic=False, whole=True))
    results = gradients.program((*kept, *seeds))
    found = [np.zeros(shape, dtype) if k is None else results[k] for k, shape, dtype, _ in gradients.places]
    return [g[()] if scalar else g for g, (*_, scalar) in zip(found, gradients.places)]


def pulled_back(f: Callable[..., Any], primals: Sequence[Any], cotangent: Any) -> tuple[Any, ...]:
    """``vjp(f, *primals)[1](cotangent)``, as one program."""

    def plan(f: Any, primals: Any, cotangent: Any) -> Any:
        return vjp(f, *primals)[1](cotangent)

    return compiled_plan(plan, f, "pulled_back")(f, primals, cotangent)


__all__ = ["grad", "hessian", "hvp", "jacobian", "jvp", "value_and_grad", "vjp"]
