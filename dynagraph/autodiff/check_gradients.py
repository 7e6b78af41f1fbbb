"""`check_grads`: gradients against finite differences, in random directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dynagraph.autodiff.transforms import jvp, pulled_back
from dynagraph.errors import GradientError
from dynagraph.pytree import leaves, mapped, named_leaves, rebuilt

# step and relative tolerance by the precision of the numbers: central differences of fourth order, whose error is
# step**4 * fifth derivative / 30 + rounding / step
STEPS = {2: (0.2, 5e-2), 4: (2e-2, 2e-3), 8: (1e-3, 1e-6)}
WEIGHTS = ((2, -1 / 12), (1, 8 / 12), (-1, -8 / 12), (-2, 1 / 12))


def check_grads(
    f: Callable[..., Any],
    args: Sequence[Any],
    *,
    order: int = 2,
    modes: Sequence[str] = ("fwd", "rev"),
    rtol: float | None = None,
    step: float | None = None,
    seed: int = 0,
) -> None:
    """Check the derivatives of `f` at the arguments `args`, a tuple, up to that order, against differences of values.

    f takes and gives arrays, numbers, or nested containers of them; every float among the arguments is moved, in one random
    direction.  modes: "fwd" checks tangents (`jvp`), "rev" gradients (`vjp`); higher orders check all their combinations.
    rtol: the error allowed, relative to the size of the derivative: 1e-6 for float64, 2e-3 for float32.  step: of the
    differences; take a smaller one near a kink.

    Raises AssertionError that says which derivative differs, and by how much; ValueError for an unknown mode or order.

    >>> import numpy as np, dynagraph as dg
    >>> dg.check_grads(lambda x: np.sum(np.sin(x) ** 2), (np.array([0.5, 2.0]),))
    """
    if type(order) is not int or order < 1:
        raise ValueError(f"check_grads: order={order!r}: expected an integer of at least 1")
    if not modes or not set(modes) <= {"fwd", "rev"}:
        raise ValueError(f"check_grads: modes={modes!r}: expected 'fwd', 'rev' or both")
    if type(args) not in (tuple, list):
        raise TypeError(f"check_grads: args must be a tuple of arguments, got a {type(args).__name__}")
    rng = np.random.default_rng(seed)
    name = getattr(f, "__name__", "function")
    if not all(_moves(leaf) for leaf in leaves(tuple(args))):
        f, args = _of_floats(f, tuple(args))
    _check(f, tuple(args), order, tuple(modes), rtol, step, rng, name)


def _check(f: Any, args: Any, order: int, modes: Any, rtol: Any, step: Any, rng: Any, what: str) -> None:
    way = mapped(lambda leaf: _direction(rng, leaf), args)
    value = f(*args)
    allowed = rtol or max([_row(leaf)[1] for leaf in leaves((args, value)) if _moves(leaf)], default=0)
    numeric = _difference(f, args, way, step)
    weight = mapped(lambda leaf: _direction(rng, leaf), value)
    if "fwd" in modes:
        _, change = jvp(f, args, way)
        for (name, got), want in zip(named_leaves(change, "the tangent"), leaves(numeric)):
            _compare(got, want, allowed, f"{name} of {what}")
        if order > 1:
            tangent = _made_of(f, lambda *x: jvp(f, x, way)[1])
            _check(tangent, args, order - 1, modes, rtol, step, rng, f"the tangent of {what}")
    if "rev" in modes:
        gradients = pulled_back(f, args, weight)
        of_gradients = _products(gradients, way)
        of_numbers = _products(weight, numeric)
        scale = sum(map(abs, of_gradients)) + sum(map(abs, of_numbers))
        if not abs(sum(of_gradients) - sum(of_numbers)) <= allowed * max(scale, 1e-3):
            raise AssertionError(
                f"the gradient of {what} along a random direction is {sum(of_gradients)}, and {sum(of_numbers)} by differences"
            )
        if order > 1:
            gradient = _made_of(f, lambda *x: pulled_back(f, x, weight))
            _check(gradient, args, order - 1, modes, rtol, step, rng, f"the gradient of {what}")


def _of_floats(f: Any, args: Any) -> tuple[Any, Any]:
    """A function of the floats among the arguments, and these."""
    moves = tuple([_moves(leaf) for leaf in leaves(args)])

    def of_floats(*moved: Any) -> Any:
        rest = iter(moved)
        return f(*rebuilt(args, iter([next(rest) if is_moved else leaf for is_moved, leaf in zip(moves, leaves(args))])))

    return _made_of(f, of_floats), [leaf for leaf in leaves(args) if _moves(leaf)]


def _made_of(f: Any, made: Any) -> Any:
    """A function that is compiled as `f` is."""
    made.__wrapped__ = f
    return made


def _moves(leaf: Any) -> bool:
    return np.result_type(leaf).kind in "fc" if isinstance(leaf, (np.ndarray, np.generic, float, complex)) else False


def _row(leaf: Any) -> tuple[float, float]:
    dtype = np.result_type(leaf)
    return STEPS[dtype.itemsize // (2 if dtype.kind == "c" else 1)]


def _direction(rng: np.random.Generator, leaf: Any) -> Any:
    """Of the leaf's shape and dtype, each number about 1."""
    if not _moves(leaf):
        return leaf
    dtype, shape = np.result_type(leaf), np.shape(leaf)
    real = rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 1.5, shape)
    if dtype.kind == "c":
        real = real + 1j * rng.normal(size=shape)
    return np.asarray(real, dtype)[()]


def _difference(f: Any, args: Any, way: Any, step: float | None) -> Any:
    """How the value changes along a direction."""
    moving = [leaf for leaf in leaves(args) if _moves(leaf)]
    if not moving:
        raise GradientError("check_grads: there is no float among the arguments")
    step = step or max(_row(leaf)[0] for leaf in moving)

    def at(distance: float) -> list[Any]:
        pairs = zip(leaves(args), leaves(way))
        moved = [_moved(leaf, direction, distance * step) for leaf, direction in pairs]
        return leaves(f(*rebuilt(args, iter(moved))))

    sums: list[Any] = [0.0] * len(leaves(f(*args)))
    for distance, weight in WEIGHTS:
        for k, leaf in enumerate(at(distance)):
            sums[k] = sums[k] + weight / step * _wide(leaf) if _moves(leaf) else leaf
    return rebuilt(f(*args), iter(sums))


def _wide(leaf: Any) -> Any:
    return np.asarray(leaf, np.result_type(leaf, np.float64))


def _moved(leaf: Any, direction: Any, distance: float) -> Any:
    if not _moves(leaf):
        return leaf
    moved = np.asarray(leaf + np.asarray(distance, np.result_type(leaf)) * direction, np.result_type(leaf))
    return moved if isinstance(leaf, np.ndarray) else moved[()]


def _products(left: Any, right: Any) -> list[float]:
    """The real inner product of each pair of leaves."""
    pairs = zip(leaves(left), leaves(right))
    return [float(np.sum(np.real(np.conj(_wide(a)) * _wide(b)))) for a, b in pairs if _moves(a) and _moves(b)]


def _compare(got: Any, want: Any, rtol: float, what: str) -> None:
    if not _moves(got):
        return
    scale = max(np.max(np.abs(want), initial=0), np.max(np.abs(got), initial=0), 1e-3)
    error = np.max(np.abs(_wide(got) - want), initial=0)
    if not error <= rtol * scale:
        raise AssertionError(f"{what} along a random direction is {got}, and {want} by differences")


__all__ = ["check_grads"]
