"""Gradients of NumPy functions: `grad`, `value_and_grad`, `vjp`, `jvp`, `hvp` and what steers them.

Each transformation is plain Python over a few functions (primitives.py): open a level, make variables of the arguments,
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
from typing import Any, TypeVar, cast

import numpy as np

from dynagraph._core import _dispatch
from dynagraph.api import compile_as
from dynagraph.decorated import Options
from dynagraph.errors import GradientError
from dynagraph.markers import OPEN_MODULES
from dynagraph.primitives import (
    begin_part,
    called,
    check_apart,
    end_part,
    gathered,
    is_box,
    is_captured,
    is_part,
    jacobian_columns,
    jacobian_rows,
    keep,
    level,
    pull_back,
    push_forward,
    released,
    spliced,
    stop_gradient_of,
    variable,
)
from dynagraph.pytree import leaves, mapped, named_leaves, rebuilt

F = TypeVar("F", bound=Callable[..., Any])

# -- what is differentiable ---------------------------------------------------------------------------------------------------


def _name(f: Any) -> str:
    return getattr(f, "__qualname__", None) or repr(f)


def _has_derivatives(dtype: Any) -> bool:
    """Whether numbers of NumPy's dtype are floating point, real or complex; bfloat16 is void to NumPy."""
    return dtype.kind in "fc" or dtype.name == "bfloat16"


def _is_differentiable(who: str, name: str, leaf: Any) -> bool:
    """Whether a gradient by this leaf is taken; texts, functions and the like are passed on as they are."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        if type(leaf) is int or type(leaf) is bool:
            raise GradientError(f"{who}: {name} is {leaf!r}, and integers have no derivatives; pass a float, or leave it out")
        return type(leaf) is float or type(leaf) is complex
    if not _has_derivatives(dtype):
        raise GradientError(
            f"{who}: {name} has dtype {dtype}, which has no derivatives; pass {name}.astype(np.float64), or leave it out"
        )
    return True


def _variables(at: Any, who: str, positions: Sequence[int], args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The arguments with variables in place of what is differentiated, and these variables."""
    given, found = list(args), []
    for position in positions:
        new = []
        for name, leaf in named_leaves(args[position], f"argument {position}"):
            if _is_differentiable(who, name, leaf):
                leaf = variable(at, leaf)
                found.append(leaf)
            new.append(leaf)
        given[position] = rebuilt(args[position], iter(new))
    return given, found


def _like(trees: Sequence[Any], of_leaves: Sequence[Any]) -> list[Any]:
    """Trees of gradients, one for each differentiable leaf in order; None in place of what is none."""
    gradients = iter(of_leaves)
    values = [next(gradients) if _is_number(leaf) else None for leaf in leaves(list(trees))]
    return rebuilt(list(trees), iter(values))


def _is_number(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") or type(leaf) is float or type(leaf) is complex


def _positions(who: str, argnums: Any, n: int) -> list[int]:
    """The positions that argnums names, none of them negative."""
    given: list[Any] = [*argnums] if type(argnums) is tuple else [argnums]
    for position in given:
        if not -n <= position < n:
            raise GradientError(
                f"{who}: argnums={argnums!r}, but the call has {n} positional argument{'s' if n != 1 else ''}; "
                "pass what is differentiated by position"
            )
    found = [position % n for position in given]
    if len(set(found)) < len(found) or not found:
        raise GradientError(f"{who}: argnums={argnums!r} names {'an argument twice' if found else 'no argument'}")
    return found


def _check_argnums(who: str, argnums: Any) -> None:
    if not all(type(position) is int for position in (argnums if type(argnums) is tuple else (argnums,))):
        raise GradientError(f"{who}: argnums={argnums!r}: expected an integer or a tuple of integers")


def _ones(who: str, value: Any) -> Any:
    """The cotangent of a result of which a gradient is taken."""
    dtype = getattr(value, "dtype", None)
    if dtype is None and type(value) is not float:
        raise GradientError(f"{who}: the function must return a real number, got {_kind(value)}; for several results use dg.vjp")
    if np.ndim(value) != 0:
        raise GradientError(
            f"{who}: the function must return a real number, got an array of shape {np.shape(value)}; "
            "sum it, or use dg.jacobian or dg.vjp"
        )
    if dtype is not None and (dtype.kind == "c" or not _has_derivatives(dtype)):
        raise GradientError(f"{who}: the function must return a real number, got {dtype}; take its real part, or cast it")
    return (np.float64 if dtype is None else dtype.type)(1)  # a scalar goes with arrays of any library


def _kind(value: Any) -> str:
    return f"a {value.__class__.__name__}"


# -- plans: what programs are made of -------------------------------------------------------------------------------------------


def _result_of(at: Any, f: Any, args: Any, kwargs: Any) -> Any:
    return mapped(lambda leaf: gathered(at, leaf), called(at, f, args, kwargs))


def _value_and_gradients(who: str, f: Any, argnums: Any, has_aux: bool, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
    positions = _positions(who, argnums, len(args))
    at = level()
    given, variables = _variables(at, who, positions, args)
    value = _result_of(at, f, given, kwargs)
    aux = None
    if has_aux:
        if type(value) is not tuple or len(value) != 2:
            raise GradientError(f"{who}: with has_aux=True the function must return (value, aux), got {_kind(value)}")
        value, aux = value
    found = pull_back(at, (value,), (_ones(who, value),), tuple(variables))
    trees = _like([args[p] for p in positions], [released(at, leaf) for leaf in found])
    gradients = trees[0] if type(argnums) is int else tuple(trees)
    return released(at, value), mapped(lambda leaf: released(at, leaf), aux), gradients


def _changes(who: str, f: Any, primals: Any, tangents: Any) -> tuple[Any, Any]:
    """What `f` gives, and how it changes where its arguments change by the tangents."""
    at = level()
    given, variables = _variables(at, who, list(range(len(primals))), primals)
    ways = _fitting(who, "tangent", "primal", list(primals), list(tangents))
    result = _result_of(at, f, given, {})
    changing = [leaf for leaf in leaves(result) if _is_inexact(leaf)]
    found = iter(push_forward(at, tuple(changing), tuple(variables), tuple(ways)))
    changes = [released(at, next(found)) if _is_inexact(leaf) else None for leaf in leaves(result)]
    return mapped(lambda leaf: released(at, leaf), result), rebuilt(result, iter(changes))


def _jacobians(who: str, f: Any, argnums: Any, mode: str, args: Any, kwargs: Any) -> Any:
    """For each leaf of the result, trees like the chosen arguments of its derivatives by their leaves."""
    positions = _positions(who, argnums, len(args))
    at = level()
    given, variables = _variables(at, who, positions, args)
    result = _result_of(at, f, given, kwargs)
    values = []
    for name, leaf in named_leaves(result, "the result"):
        if not _is_inexact(leaf):
            raise GradientError(f"{who}: {name} is {_kind_of_leaf(leaf)}, which has no derivatives; cast it, or leave it out")
        values.append(leaf)
    if mode == "rev" or (mode == "auto" and _count(values) <= _count(variables)):
        rows: list[Any] = [jacobian_rows(at, value, tuple(variables)) for value in values]
    else:
        columns = [jacobian_columns(at, tuple(values), of) for of in variables]
        rows = [[column[k] for column in columns] for k in range(len(values))]
    trees = [_like([args[p] for p in positions], [released(at, leaf) for leaf in row]) for row in rows]
    return rebuilt(result, iter([tree[0] if type(argnums) is int else tuple(tree) for tree in trees]))


def _count(arrays: Any) -> int:
    return sum([np.size(array) for array in arrays])


def _kind_of_leaf(leaf: Any) -> str:
    return f"of dtype {leaf.dtype}" if hasattr(leaf, "dtype") else repr(leaf)


def _is_inexact(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return type(leaf) is float or type(leaf) is complex if dtype is None else _has_derivatives(dtype)


def _fitting(who: str, what: str, like: str, trees: Any, given: Any) -> list[Any]:
    """The leaves of `given` that belong to differentiable leaves of `trees`, checked against these and of their dtypes."""
    wanted, found = named_leaves(trees, ""), named_leaves(given, "")
    if [name for name, _ in wanted] != [name for name, _ in found]:
        raise GradientError(f"{who}: the {what}s must be nested as the {like}s are, {_outline(trees)}, got {_outline(given)}")
    fitting = []
    for (name, leaf), (_, other) in zip(wanted, found):
        if not _is_inexact(leaf):
            continue
        if np.shape(other) != np.shape(leaf):
            raise GradientError(f"{who}: the {what} {name} has shape {np.shape(other)}, and its {like} has shape {np.shape(leaf)}")
        dtype = _dtype(leaf)
        if _dtype(other).kind == "c" and dtype.kind != "c":
            raise GradientError(f"{who}: the {what} {name} is complex, and its {like} is {dtype}; take its real part")
        if not hasattr(other, "dtype"):
            other = np.asarray(other, dtype)
        fitting.append(other if other.dtype == dtype else other.astype(dtype))
    return fitting


def _dtype(leaf: Any) -> np.dtype:
    return leaf.dtype if hasattr(leaf, "dtype") else np.dtype(type(leaf))


def _outline(tree: Any) -> str:
    return str(mapped(lambda leaf: f"array{list(np.shape(leaf))}" if _is_number(leaf) else type(leaf).__name__, tree))


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
    made.__qualname__ = f"{prefix}({_name(f)})"
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

    Raises GradientError where a gradient is asked by integers, of something that is no real number, or through a function that has
    none; what `f` raises, it raises.

    >>> import numpy as np, dynagraph as dg
    >>> dg.value_and_grad(lambda x: np.sum(x ** 2))(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    check_callable("value_and_grad", f)
    who = f"value_and_grad of {_name(f)}"
    _check_argnums(who, argnums)

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
    who = f"grad of {_name(f)}"
    _check_argnums(who, argnums)

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
    who = f"jvp of {_name(f)}"
    if type(primals) not in (tuple, list) or type(tangents) not in (tuple, list):
        raise GradientError(f"{who}: primals and tangents must be tuples of arguments, got {_kind(primals)} and {_kind(tangents)}")

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
    who = f"jacobian of {_name(f)}"
    _check_argnums(who, argnums)

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
        raise GradientError(f"hvp of {_name(f)}: primals and tangents must be tuples of arguments, got {_kind(primals)}")
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
    who = f"vjp of {_name(f)}"

    def plan(f: Any, primals: Any) -> Any:
        at = level()
        given, variables = _variables(at, who, list(range(len(primals))), primals)
        result = _result_of(at, f, given, {})
        kept, gradients = keep(at, tuple([leaf for leaf in leaves(result) if _is_inexact(leaf)]), tuple(variables))
        return mapped(lambda leaf: released(at, leaf), result), kept, gradients

    primals = mapped(lambda leaf: np.float64(leaf) if type(leaf) is float else leaf, primals)
    value, kept, gradients = compiled_plan(plan, f, "vjp", static=True)(f, primals)

    def pull(cotangent: Any) -> tuple[Any, ...]:
        seeds = _fitting(who, "cotangent", "value", value, cotangent)
        if gradients is None:
            at, of, variables = kept
            found = [released(at, g) for g in pull_back(at, of, tuple(seeds), variables)]
        else:
            found = _gradients_from(gradients, kept, seeds)
        return tuple(_like(primals, found))

    return value, pull


def call_on_tape(f: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a compiled function with values that are being differentiated: one program forward, and one backward.

    Within several gradients at once it is differentiated step by step, as its gradient has to be differentiated, too; and so it is
    where it cannot be captured, or where its results are not all that comes of it.
    """
    boxes = [leaf for leaf in leaves((args, kwargs)) if is_box(leaf)]
    tape = boxes[0].tape
    if len(tape.open) != 1 or tape.is_symbolic:
        return f.__wrapped__(*args, **kwargs)
    which = tuple([is_box(leaf) for leaf in leaves((args, kwargs))])
    who = f"the gradient of {_name(f)}"

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
        kept, gradients = keep(at, tuple([leaf for leaf in leaves(result) if _is_inexact(leaf)]), tuple(variables))
        return mapped(lambda leaf: released(at, leaf), result), kept, gradients

    begun = begin_part()
    plain = _replaced((args, kwargs), is_box, [box.value for box in boxes])
    value, kept, gradients = compiled_plan(plan, f, "on a tape", which, static=True)(f, *plain)
    if gradients is None:
        return f.__wrapped__(*args, **kwargs)

    def pull(of: Any, cotangents: Any) -> Any:
        seeds = cotangents if tape.is_symbolic else [c.value for c in cotangents]
        return _gradients_from(gradients, kept, seeds)

    return _ended(begun, who, value, boxes, pull)


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


def stop_gradient(x: Any) -> Any:
    """The same value, or tree of values, taken as a constant by gradients.

    >>> import numpy as np, dynagraph as dg
    >>> dg.grad(lambda x: x * dg.stop_gradient(x))(3.0)
    np.float64(3.0)
    """
    return mapped(stop_gradient_of, x)


def _replaced(tree: Any, is_replaced: Callable[[Any], bool], values: Sequence[Any]) -> Any:
    """A tree with the next of the values in place of each leaf that is replaced."""
    rest = iter(values)
    return rebuilt(tree, iter([next(rest) if is_replaced(leaf) else leaf for leaf in leaves(tree)]))


def _ended(begun: Any, name: str, result: Any, args: Any = (), pull: Any = None) -> Any:
    """A part's result, with its gradient coming in another way."""
    if not is_part(begun):
        return result
    inexact = [leaf for leaf in leaves(result) if _is_inexact(leaf)]
    return _replaced(result, _is_inexact, end_part(begun, name, tuple(inexact), tuple(args), pull))


def _gradients_of(who: str, args: Sequence[Any], found: Any) -> list[Any]:
    """What a user's function gave as gradients by arguments: one for each differentiable leaf of these."""
    if type(found) is not tuple or len(found) != len(args):
        raise GradientError(f"{who}: backward must return a tuple of {len(args)}, one for each argument, got {_outline(found)}")
    gradients: list[Any] = []
    for argument, gradient in zip(args, found):
        if gradient is None:
            gradients.extend([np.zeros_like(leaf) for leaf in leaves(argument) if _is_inexact(leaf)])
        else:
            gradients.extend(_fitting(who, "gradient", "argument", argument, gradient))
    return gradients


def checkpoint(f: F) -> F:
    """The same function, of which gradients compute anew what they need rather than keep it: less memory, more arithmetic.

    >>> import numpy as np, dynagraph as dg
    >>> block = dg.checkpoint(lambda x: np.sin(np.exp(x)))
    >>> dg.grad(lambda x: np.sum(block(block(x))))(np.zeros(2)).round(6)
    array([-0.8638 , -0.8638 ])
    """
    check_callable("checkpoint", f)

    def checkpointed(*args: Any, **kwargs: Any) -> Any:
        begun = begin_part()
        return _ended(begun, "dg.checkpoint", f(*args, **kwargs))

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
    who = f"custom_vjp of {_name(f)}"

    def function(*args: Any) -> Any:
        if not rules:
            raise GradientError(f"{who}: say what its gradient is: {_name(f)}.defvjp(forward, backward)")
        begun = begin_part()
        inexact = [leaf for leaf in leaves(args) if _is_inexact(leaf)]

        def pull(of: Any, cotangents: Any) -> Any:
            value, kept = rules[0](*_replaced(args, _is_inexact, of))
            found = rules[1](kept, _replaced(value, _is_inexact, cotangents))
            return _gradients_of(who, args, found)

        return _ended(begun, who, f(*args), inexact, pull)

    def defvjp(forward: Callable[..., Any], backward: Callable[..., Any]) -> None:
        check_callable("defvjp", forward)
        check_callable("defvjp", backward)
        rules[:] = [forward, backward]

    made = presented(function, None, f, "custom_vjp")
    made.defvjp = defvjp
    return made


__all__ = ["checkpoint", "custom_vjp", "grad", "hessian", "hvp", "jacobian", "jvp", "stop_gradient", "value_and_grad", "vjp"]
