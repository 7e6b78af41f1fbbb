"""`vmap`: a function of one example as a function of many at once.

As the gradient transforms it is plain Python over one primitive, `of_all_examples`: a capture follows the function for one example
and batches what it does (mapping_meanings.py); where the function cannot be captured, the primitive is a loop in Python.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.array_libraries import NUMPY, library_of
from dynagraph.autodiff.arguments import kind_of, name_of
from dynagraph.autodiff.transforms import check_callable, compiled_plan, presented
from dynagraph.errors import ShapeError
from dynagraph.pytree import leaves, named_leaves, parts_of, rebuilt

NUMBERS = (bool, int, float, complex)


def vmap(f: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0) -> Callable[..., Any]:
    """A function that applies `f` to each example along axes of its arguments, and stacks the results.

    in_axes: the axis of every array of the arguments along which the examples lie, or None for arguments that all examples share;
    a tuple has an entry for each positional argument, and an entry may be nested as its argument is, or as the outer part of it.
    Arguments given by keyword are mapped along axis 0.  out_axes: where the examples lie in the results, nested likewise; None for
    what is the same for all of them.  Negative axes count from the end.  All mapped axes have one size.

    What it gives is ``np.stack([f(example) for each example], out_axes)``, for arguments and results that are nested containers of
    arrays, too; sums and products of matrices may be rounded in another order.  `f` is captured for one example, and becomes a
    program that works on all of them at once.  What cannot be captured so (branches on data, random draws, effects, loops that are
    too long to be written out) is called for each example in turn, each drawing its own numbers: ``vmap(f).program.stats.breaks``
    tells why.  It composes with the other transforms and with `dg.compile` in any order.

    Raises TypeError for leaves that are no arrays, ShapeError (a ValueError) for axes and sizes that do not fit, ValueError where
    nothing is mapped.

    >>> import numpy as np, dynagraph as dg
    >>> dot = dg.vmap(np.dot, in_axes=(0, None))
    >>> dot(np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([1.0, 10.0]))
    array([21., 43.])
    >>> dg.vmap(dg.grad(lambda x: np.sum(x ** 3)), out_axes=1)(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[ 3., 27.],
           [12., 48.]])
    """
    check_callable("vmap", f)
    who = f"vmap of {name_of(f)}"
    _check_axes(who, "in_axes", in_axes)
    _check_axes(who, "out_axes", out_axes)

    def plan(f: Any, args: Any, kwargs: Any) -> Any:
        given = (args, kwargs)
        axes = [*_axes_of_arguments(who, in_axes, args), *[0 for _ in leaves(kwargs)]]
        n, along = _examples_of(who, in_axes, _named(args, kwargs), axes)

        def of_one(values: Any) -> Any:
            args, kwargs = rebuilt(given, iter(values))
            result = f(*args, **kwargs)
            _check_results(who, result)
            values = leaves(result)
            return result, tuple(values), tuple(_axes_of_results(who, out_axes, result))

        result, found = of_all_examples(who, of_one, tuple(leaves(given)), tuple(along), n)
        return rebuilt(result, iter(found))

    program = compiled_plan(plan, f, "vmap", _key(in_axes), _key(out_axes))

    def mapped_function(*args: Any, **kwargs: Any) -> Any:
        return program(f, args, kwargs)

    return presented(mapped_function, program, f, "vmap")  # type: ignore[no-any-return]


# -- axes -------------------------------------------------------------------------------------------------------------------------


def _is_axis(axes: Any) -> bool:
    return axes is None or type(axes) is int


def _check_axes(who: str, what: str, axes: Any) -> None:
    """Axes are ints and None, in containers or by themselves."""
    waiting = [axes]
    while waiting:
        item = waiting.pop()
        if _is_axis(item):
            continue
        parts = parts_of(item)
        if parts is None:
            raise TypeError(f"{who}: {what}={axes!r}: expected an int, None, or containers of these, got {kind_of(item)}")
        waiting += [part for _, part in parts]


def _key(axes: Any) -> Any:
    """Axes as something that can be a key."""
    parts = None if _is_axis(axes) else parts_of(axes)
    return axes if parts is None else (type(axes), tuple([(name, _key(part)) for name, part in parts]))


def _spread(who: str, what: str, axes: Any, tree: Any, name: str) -> list[Any]:
    """An axis for each leaf of a tree, of axes that are nested as the outer part of it is."""
    if _is_axis(axes):
        return [axes for _ in leaves(tree)]
    wanted, there = parts_of(axes), parts_of(tree)
    if wanted is None or there is None or [part for part, _ in wanted] != [part for part, _ in there]:
        raise ValueError(f"{who}: {what} has {axes!r} for {name}, which is {kind_of(tree)}; nest it as {name} is, or give one axis")
    found: list[Any] = []
    for (part, below), (_, item) in zip(wanted, there):
        found += _spread(who, what, below, item, name + part)
    return found


def _axes_of_arguments(who: str, in_axes: Any, args: Any) -> list[Any]:
    if _is_axis(in_axes):
        return [in_axes for _ in leaves(args)]
    if type(in_axes) is not tuple and type(in_axes) is not list:
        raise ValueError(f"{who}: in_axes={in_axes!r}: expected an int, None, or a tuple of an entry for each positional argument")
    if len(in_axes) != len(args):
        raise ValueError(
            f"{who}: in_axes={in_axes!r} has {len(in_axes)} entries, and the call has {len(args)} positional arguments; "
            "give an entry for each of them"
        )
    found: list[Any] = []
    for position, (axes, arg) in enumerate(zip(in_axes, args)):
        found += _spread(who, "in_axes", axes, arg, f"argument {position}")
    return found


def _axes_of_results(who: str, out_axes: Any, result: Any) -> list[Any]:
    axes = _spread(who, "out_axes", out_axes, result, "the result")
    found: list[Any] = []
    for (name, leaf), axis in zip(named_leaves(result, "the result"), axes):
        rank = np.ndim(leaf) + 1
        if axis is not None and not -rank <= axis < rank:
            raise ShapeError(
                f"{who}: out_axes has axis {axis} for {name}, of shape {np.shape(leaf)} for one example; "
                f"the axis of the examples must be from {-rank} to {rank - 1}"
            )
        found.append(axis if axis is None else axis % rank)
    return found


def _named(args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for position, arg in enumerate(args):
        found += named_leaves(arg, f"argument {position}")
    for name in kwargs:
        found += named_leaves(kwargs[name], f"argument {name!r}")
    return found


def _examples_of(who: str, in_axes: Any, named: Sequence[tuple[str, Any]], axes: Sequence[Any]) -> tuple[Any, list[Any]]:
    """How many examples there are, and the axis of each leaf, none of them negative."""
    n: Any = None
    first = ("", 0)
    along: list[Any] = []
    for (name, leaf), axis in zip(named, axes):
        if axis is None:
            along.append(None)
            continue
        if not hasattr(leaf, "dtype") or not hasattr(leaf, "shape"):
            raise TypeError(
                f"{who}: {name} is {kind_of(leaf)}, and only arrays are mapped; "
                "pass an array of all examples, or give None for it in in_axes"
            )
        rank = len(leaf.shape)
        if not -rank <= axis < rank:
            rule = f"an axis must be from {-rank} to {rank - 1}" if rank else "which has no axes: give None for it in in_axes"
            raise ShapeError(f"{who}: in_axes has axis {axis} for {name}, of shape {leaf.shape}; {rule}")
        axis = axis % rank
        along.append(axis)
        size = leaf.shape[axis]
        if n is None:
            n, first = size, (name, axis)
        elif size != n:
            one = f"{first[0]} has {n} along axis {first[1]}"
            raise ShapeError(f"{who}: all mapped axes must have one size, but {one}, and {name} has {size} along axis {axis}")
    if n is None:
        raise ValueError(f"{who}: nothing is mapped, with in_axes={in_axes!r}; give at least one array an axis")
    return n, along


def _check_results(who: str, result: Any) -> None:
    for name, leaf in named_leaves(result, "the result"):
        if not hasattr(leaf, "dtype") and type(leaf) not in NUMBERS:
            raise TypeError(f"{who}: {name} is {kind_of(leaf)}, and only arrays and numbers are stacked; leave it out")


# -- one example after the other --------------------------------------------------------------------------------------------------


def of_all_examples(who: str, of_one: Any, given: Sequence[Any], along: Sequence[Any], n: int) -> tuple[Any, Sequence[Any]]:
    """``of_one(values)`` for each of n examples, which lie along an axis of some of the given leaves: the result of one of them,
    and its leaves for all, stacked.

    `of_one` gives its result, the leaves of that, and the axis along which each is stacked (None: it is the same for all).
    """
    if n == 0:
        raise ShapeError(f"{who}: there are no examples, and what cannot be captured is called for one; check the size first")
    results = [of_one(tuple([_example(leaf, axis, k) for leaf, axis in zip(given, along)])) for k in range(n)]
    tree, _, axes = results[0]
    names = [name for name, _ in named_leaves(tree, "the result")]
    for k, (other, _, _) in enumerate(results):
        if [name for name, _ in named_leaves(other, "the result")] != names:
            raise ValueError(f"{who}: the results of example 0 and of example {k} are nested differently; nest them alike")
    stacked = [_stacked(who, name, [found[j] for _, found, _ in results], axes[j]) for j, name in enumerate(names)]
    return tree, stacked


def _example(leaf: Any, axis: int | None, k: int) -> Any:
    return leaf if axis is None else leaf[(slice(None),) * axis + (k,)]


def _stacked(who: str, name: str, values: Sequence[Any], axis: int | None) -> Any:
    first = values[0]
    for k, value in enumerate(values):
        if np.shape(value) != np.shape(first):
            raise ShapeError(
                f"{who}: {name} has shape {np.shape(first)} for example 0 and {np.shape(value)} for example {k}; "
                "all examples must give one shape"
            )
        if axis is None and not _same(value, first):
            raise ValueError(
                f"{who}: out_axes is None for {name}, which differs between example 0 and example {k}; give it an axis"
            )
    if axis is None:
        return first
    library = library_of(type(first)) or NUMPY
    return library.module.stack(list(values), axis)


def _same(one: Any, other: Any) -> bool:
    return one is other or np.array_equal(one, other) or bool(np.all((one == other) | ((one != one) & (other != other))))


__all__ = ["vmap"]
