"""Arguments and results of transforms: which of their leaves are differentiable, and whether gradients fit them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.autodiff.primitives import end_part, is_part, variable
from dynagraph.errors import GradientError
from dynagraph.pytree import leaves, mapped, named_leaves, rebuilt


def name_of(f: Any) -> str:
    return getattr(f, "__qualname__", None) or repr(f)


def has_derivatives(dtype: Any) -> bool:
    """Whether numbers of NumPy's dtype are floating point, real or complex; bfloat16 is void to NumPy."""
    return dtype.kind in "fc" or dtype.name == "bfloat16"


def is_differentiable(who: str, name: str, leaf: Any) -> bool:
    """Whether a gradient by this leaf is taken; texts, functions and the like are passed on as they are."""
    dtype = getattr(leaf, "dtype", None)
    if dtype is None:
        if type(leaf) is int or type(leaf) is bool:
            raise GradientError(f"{who}: {name} is {leaf!r}, and integers have no derivatives; pass a float, or leave it out")
        return type(leaf) is float or type(leaf) is complex
    if not has_derivatives(dtype):
        raise GradientError(
            f"{who}: {name} has dtype {dtype}, which has no derivatives; pass {name}.astype(np.float64), or leave it out"
        )
    return True


def variables_of(at: Any, who: str, positions: Sequence[int], args: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The arguments with variables in place of what is differentiated, and these variables."""
    given, found = list(args), []
    for position in positions:
        new = []
        for name, leaf in named_leaves(args[position], f"argument {position}"):
            if is_differentiable(who, name, leaf):
                leaf = variable(at, leaf)
                found.append(leaf)
            new.append(leaf)
        given[position] = rebuilt(args[position], iter(new))
    return given, found


def shaped_like(trees: Sequence[Any], of_leaves: Sequence[Any]) -> list[Any]:
    """Trees of gradients, one for each differentiable leaf in order; None in place of what is none."""
    gradients = iter(of_leaves)
    values = [next(gradients) if is_number(leaf) else None for leaf in leaves(list(trees))]
    return rebuilt(list(trees), iter(values))


def is_number(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") or type(leaf) is float or type(leaf) is complex


def positions_of(who: str, argnums: Any, n: int) -> list[int]:
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


def check_argnums(who: str, argnums: Any) -> None:
    if not all(type(position) is int for position in (argnums if type(argnums) is tuple else (argnums,))):
        raise GradientError(f"{who}: argnums={argnums!r}: expected an integer or a tuple of integers")


def ones_for(who: str, value: Any) -> Any:
    """The cotangent of a result of which a gradient is taken."""
    dtype = getattr(value, "dtype", None)
    if dtype is None and type(value) is not float:
        raise GradientError(f"{who}: the function must return a real number, got {kind_of(value)}; for several results use dg.vjp")
    if np.ndim(value) != 0:
        raise GradientError(
            f"{who}: the function must return a real number, got an array of shape {np.shape(value)}; "
            "sum it, or use dg.jacobian or dg.vjp"
        )
    if dtype is not None and (dtype.kind == "c" or not has_derivatives(dtype)):
        raise GradientError(f"{who}: the function must return a real number, got {dtype}; take its real part, or cast it")
    return (np.float64 if dtype is None else dtype.type)(1)  # a scalar goes with arrays of any library


def kind_of(value: Any) -> str:
    return f"a {value.__class__.__name__}"


def count_of(arrays: Any) -> int:
    return sum([np.size(array) for array in arrays])


def kind_of_leaf(leaf: Any) -> str:
    return f"of dtype {leaf.dtype}" if hasattr(leaf, "dtype") else repr(leaf)


def is_inexact(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return type(leaf) is float or type(leaf) is complex if dtype is None else has_derivatives(dtype)


def fitting(who: str, what: str, like: str, trees: Any, given: Any) -> list[Any]:
    """The leaves of `given` that belong to differentiable leaves of `trees`, checked against these and of their dtypes."""
    wanted, found = named_leaves(trees, ""), named_leaves(given, "")
    if [name for name, _ in wanted] != [name for name, _ in found]:
        raise GradientError(f"{who}: the {what}s must be nested as the {like}s are, {outline(trees)}, got {outline(given)}")
    fitting = []
    for (name, leaf), (_, other) in zip(wanted, found):
        if not is_inexact(leaf):
            continue
        if np.shape(other) != np.shape(leaf):
            raise GradientError(f"{who}: the {what} {name} has shape {np.shape(other)}, and its {like} has shape {np.shape(leaf)}")
        dtype = dtype_of(leaf)
        if dtype_of(other).kind == "c" and dtype.kind != "c":
            raise GradientError(f"{who}: the {what} {name} is complex, and its {like} is {dtype}; take its real part")
        if not hasattr(other, "dtype"):
            other = np.asarray(other, dtype)
        fitting.append(other if other.dtype == dtype else other.astype(dtype))
    return fitting


def dtype_of(leaf: Any) -> np.dtype:
    return leaf.dtype if hasattr(leaf, "dtype") else np.dtype(type(leaf))


def outline(tree: Any) -> str:
    return str(mapped(lambda leaf: f"array{list(np.shape(leaf))}" if is_number(leaf) else type(leaf).__name__, tree))


def replaced(tree: Any, is_replaced: Callable[[Any], bool], values: Sequence[Any]) -> Any:
    """A tree with the next of the values in place of each leaf that is replaced."""
    rest = iter(values)
    return rebuilt(tree, iter([next(rest) if is_replaced(leaf) else leaf for leaf in leaves(tree)]))


def ended(begun: Any, name: str, result: Any, args: Any = (), pull: Any = None) -> Any:
    """A part's result, with its gradient coming in another way."""
    if not is_part(begun):
        return result
    inexact = [leaf for leaf in leaves(result) if is_inexact(leaf)]
    return replaced(result, is_inexact, end_part(begun, name, tuple(inexact), tuple(args), pull))
