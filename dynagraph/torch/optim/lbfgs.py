"""``torch.optim.lbfgs``: a quasi-Newton method of limited memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dynagraph.torch.core.arrays import is_on_gpu, library_of_array
from dynagraph.torch.core.tensor import Tensor, made
from dynagraph.torch.functions.joining import cat
from dynagraph.torch.functions.products import DOT
from dynagraph.torch.functions.splitting import view_as_real
from dynagraph.torch.optim.optimizer import Optimizer, ParamsT, called, check_lr, hyper, without_grad

BLOCK = 1 << 14  # elements of a vector that are combined with another one's at once
SUFFICIENT_DECREASE, CURVATURE = 1e-4, 0.9  # constants of the strong Wolfe conditions
_KEPT = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")


class LBFGS(Optimizer):
    """L-BFGS (D. Liu and J. Nocedal, 1989) of all parameters as one vector; `step` needs a closure, which it calls several times.

    `line_search_fn`: None, steps of length `lr`, or "strong_wolfe".

    >>> from dynagraph import torch
    >>> w = torch.tensor([3.0, -1.0], requires_grad=True)
    >>> optimizer = torch.optim.LBFGS([w], line_search_fn="strong_wolfe")
    >>> def closure():
    ...     optimizer.zero_grad()
    ...     loss = ((w - torch.tensor([1.0, 2.0])) ** 2).sum()
    ...     loss.backward()
    ...     return loss
    >>> optimizer.step(closure)
    tensor(13., grad_fn=<SumBackward0>)
    >>> w.detach().round()
    tensor([1., 2.])
    """

    def __init__(
        self, params: ParamsT, lr: float | Tensor = 1, max_iter: int = 20, max_eval: int | None = None,
        tolerance_grad: float = 1e-7, tolerance_change: float = 1e-9, history_size: int = 100, line_search_fn: str | None = None,
    ) -> None:  # fmt: skip
        check_lr(lr)
        defaults = {
            "lr": lr, "max_iter": max_iter, "max_eval": max_iter * 5 // 4 if max_eval is None else max_eval,
            "tolerance_grad": tolerance_grad, "tolerance_change": tolerance_change, "history_size": history_size,
            "line_search_fn": line_search_fn,
        }  # fmt: skip
        super().__init__(params, defaults)
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")
        self._params: list[Tensor] = self.param_groups[0]["params"]

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._params = self.param_groups[0]["params"]

    # -- all parameters as one vector --

    def _gather_flat_grad(self) -> Tensor:
        rows = []
        for param in self._params:
            grad: Any = param.grad
            if grad is None:
                grad = param.detach().clone().zero_()
            elif grad.is_sparse:
                grad = grad.to_dense()
            rows.append((view_as_real(grad) if grad.is_complex() else grad).reshape(-1))
        return cat(rows, 0)

    def _move(self, length: Any, direction: Tensor) -> None:
        start = 0
        for param in self._params:
            part: Any = view_as_real(param) if param.is_complex() else param
            part.add_(direction[start : start + part.numel()].view_as(part), alpha=length)
            start += part.numel()

    # -- a step --

    @without_grad
    def step(self, closure: Callable[[], Any]) -> Any:  # type: ignore[override]
        """Change the parameters by up to `max_iter` iterations; `closure` computes the loss anew, with its gradients."""
        if closure is None:
            raise TypeError("LBFGS.step() missing 1 required positional argument: 'closure'")
        if len(self.param_groups) != 1:
            raise AssertionError(f"Expected exactly one param_group, but got {len(self.param_groups)}")
        group, state = self.param_groups[0], self.state[self._params[0]]
        lr = hyper(group["lr"])
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        first = called(closure)
        loss, grad, evaluations = float(first), self._gather_flat_grad(), 1
        state["func_evals"] += 1
        if _most(grad) <= group["tolerance_grad"]:
            return first
        kept = {name: state.get(name) for name in _KEPT}  # goes into the state when the step has ended
        for iteration in range(1, group["max_iter"] + 1):
            state["n_iter"] += 1
            self._choose_direction(state, kept, grad, group["history_size"])
            direction = kept["d"]
            previous = kept["prev_flat_grad"] = grad.clone()
            kept["prev_loss"] = loss
            length = 1.0 / max(1.0, float(grad.abs().sum())) * lr if state["n_iter"] == 1 else lr
            kept["t"] = length
            slope = float(previous.dot(direction))
            if slope > -group["tolerance_change"]:
                break
            calls = 0
            if group["line_search_fn"] is not None:
                if group["line_search_fn"] != "strong_wolfe":
                    raise RuntimeError("only 'strong_wolfe' is supported")
                found, calls = self._search(closure, length, direction, Point(0.0, loss, grad, slope), group, evaluations)
                length, loss, grad = found.length, found.loss, found.grad
                kept["t"] = length
                self._move(length, direction)
            else:
                self._move(length, direction)
                if iteration != group["max_iter"]:  # else nobody needs to know
                    loss, grad, calls = float(called(closure)), self._gather_flat_grad(), 1
            evaluations += calls
            state["func_evals"] += calls
            if iteration == group["max_iter"] or evaluations >= group["max_eval"] or _most(grad) <= group["tolerance_grad"]:
                break
            if _most(direction) * abs(length) <= group["tolerance_change"]:
                break
            if abs(loss - kept["prev_loss"]) < group["tolerance_change"]:
                break
        state.update(kept)
        return first

    def _choose_direction(self, state: dict[str, Any], kept: dict[str, Any], grad: Tensor, history_size: int) -> None:
        """The product of the approximate inverse Hessian and the gradient, by the two-loop recursion."""
        if state["n_iter"] == 1:
            kept.update(d=grad.neg(), old_dirs=[], old_stps=[], ro=[], H_diag=1)
            return
        changes, steps, inverses = kept["old_dirs"], kept["old_stps"], kept["ro"]
        change, step = grad.sub(kept["prev_flat_grad"]), kept["d"].mul(kept["t"])
        curvature = change.dot(step)
        if curvature > 1e-10:
            if len(changes) == history_size:
                for history in (changes, steps, inverses):
                    history.pop(0)
            changes.append(change)
            steps.append(step)
            inverses.append(1.0 / curvature)
            kept["H_diag"] = curvature / change.dot(change)
        factors = state.setdefault("al", [None] * history_size)
        kept["d"] = two_loops(grad, changes, steps, inverses, kept["H_diag"], factors)

    def _search(
        self, closure: Callable[[], Any], length: float, direction: Tensor, start: Point, group: dict[str, Any], evaluations: int
    ) -> tuple[Point, int]:
        before = [param.clone() for param in self._params]

        def evaluate(length: float) -> Point:
            self._move(length, direction)
            loss = float(called(closure))
            grad = self._gather_flat_grad()
            for param, value in zip(self._params, before):
                param.copy_(value)
            return Point(length, loss, grad, float(grad.dot(direction)))

        most = group["max_eval"] - evaluations
        return strong_wolfe(evaluate, start, length, _most(direction), group["tolerance_change"], most)


def two_loops(
    grad: Tensor, changes: list[Tensor], steps: list[Tensor], inverses: list[Tensor], scale: Any, factors: list[Any]
) -> Tensor:
    """Minus the approximate inverse Hessian times the gradient (J. Nocedal and S. Wright, Numerical Optimization, algorithm 7.4).

    `changes`, `steps`: of gradients and parameters, the oldest first; `inverses`: one by the scalar products of these; `scale`: of
    the first approximation.  `factors` receives the first loop's.  A loop's turn is a product, and one pass of blocks that stay in
    the cache.
    """
    product = DOT.forward
    history = [(change._array, step._array, inverse._array) for change, step, inverse in zip(changes, steps, inverses)]
    direction = grad.neg()
    q = direction._array
    room = library_of_array(q).empty(q.size if is_on_gpu(q) else min(q.size, BLOCK), q.dtype)
    found: list[Any] = [None] * len(history)
    for k in reversed(range(len(history))):
        change, step, inverse = history[k]
        found[k] = product(step, q) * inverse
        _combine(np.subtract, q, change, found[k], room)
    direction = direction.mul(scale)
    r = direction._array
    for k, (change, step, inverse) in enumerate(history):
        _combine(np.add, r, step, found[k] - product(change, r) * inverse, room)
    factors[: len(found)] = [made(factor) for factor in found]
    return direction


def _combine(ufunc: Any, total: Any, vector: Any, factor: Any, room: Any) -> None:
    """``total = ufunc(total, vector * factor)``, as many elements at once as there is room for."""
    n = room.size
    if n == total.size:
        ufunc(total, np.multiply(vector, factor, out=room), out=total)
        return
    for start in range(0, total.size, n):
        part = total[start : start + n]
        ufunc(part, np.multiply(vector[start : start + n], factor, out=room[: part.size]), out=part)


class Point(NamedTuple):
    """A point of the line along which is searched."""

    length: float
    loss: float
    grad: Tensor
    slope: float


def _most(vector: Tensor) -> float:
    return float(vector.abs().max())


def strong_wolfe(
    evaluate: Callable[[float], Point], start: Point, length: float, size: float, tolerance: float, most: int
) -> tuple[Point, int]:
    """A point that fulfils the strong Wolfe conditions, or the best one after `most` trials, and how many there were.

    First steps grow until two points hold one between them, then these move together (J. Nocedal and S. Wright, Numerical
    Optimization, algorithms 3.5 and 3.6).  `size`: of the direction's greatest element.
    """
    trials, low, high, is_found = 0, start, evaluate(length), False
    evaluations = 1
    while trials < most:
        if _is_too_high(high, start) or (trials > 1 and high.loss >= low.loss):
            break
        if abs(high.slope) <= -CURVATURE * start.slope:
            low, is_found = high, True
            break
        if high.slope >= 0:
            break
        bounds = high.length + 0.01 * (high.length - low.length), high.length * 10
        low, high = high, evaluate(minimum_of_cubic(low, high, bounds))
        evaluations += 1
        trials += 1
    if trials == most and not is_found:
        low = start
    if not is_found:
        low, further = _narrowed(evaluate, start, low, high, size, tolerance, most - trials)
        evaluations += further
    return low, evaluations


def _strong_wolfe(
    obj_func: Callable[..., tuple[float, Tensor]], x: Any, t: float, d: Tensor, f: float, g: Tensor, gtd: Any,
    c1: float = SUFFICIENT_DECREASE, c2: float = CURVATURE, tolerance_change: float = 1e-9, max_ls: int = 25,
) -> tuple[float, Tensor, float, int]:  # fmt: skip
    """`strong_wolfe` as libraries call PyTorch's: ``obj_func(x, t, d)`` gives loss and gradient at ``x + t * d``."""
    if (c1, c2) != (SUFFICIENT_DECREASE, CURVATURE):
        raise ValueError(f"_strong_wolfe: c1={c1}, c2={c2}: expected {SUFFICIENT_DECREASE} and {CURVATURE}")

    def evaluate(length: float) -> Point:
        loss, grad = obj_func(x, length, d)
        return Point(length, float(loss), grad, float(grad.dot(d)))

    start = Point(0.0, float(f), g, float(gtd))
    point, trials = strong_wolfe(evaluate, start, float(t), _most(d), tolerance_change, max_ls)
    return point.loss, point.grad, point.length, trials


def _cubic_interpolate(
    x1: Any, f1: Any, g1: Any, x2: Any, f2: Any, g2: Any, bounds: tuple[Any, Any] | None = None
) -> float:  # fmt: skip
    """`minimum_of_cubic` as libraries call PyTorch's: two points with losses and slopes."""
    first, second = (Point(float(x), float(f), g1, float(g)) for x, f, g in ((x1, f1, g1), (x2, f2, g2)))
    return minimum_of_cubic(first, second, None if bounds is None else (float(bounds[0]), float(bounds[1])))


def _is_too_high(point: Point, start: Point) -> bool:
    return point.loss > start.loss + SUFFICIENT_DECREASE * point.length * start.slope


def _narrowed(
    evaluate: Callable[[float], Point], start: Point, first: Point, second: Point, size: float, tolerance: float, most: int
) -> tuple[Point, int]:
    """The point between two that fulfils the conditions, as far as it is found."""
    low, high = (first, second) if first.loss <= second.loss else (second, first)
    is_slow = False
    for trial in range(most):
        left, right = min(low.length, high.length), max(low.length, high.length)
        if (right - left) * size < tolerance:
            return low, trial
        length, margin = minimum_of_cubic(low, high), 0.1 * (right - left)
        if min(right - length, length - left) < margin:
            if is_slow or length >= right or length <= left:
                length = right - margin if abs(length - right) < abs(length - left) else left + margin
                is_slow = False
            else:
                is_slow = True
        else:
            is_slow = False
        point = evaluate(length)
        if _is_too_high(point, start) or point.loss >= low.loss:
            low, high = (low, point) if low.loss <= point.loss else (point, low)
            continue
        if abs(point.slope) <= -CURVATURE * start.slope:
            return point, trial + 1
        if point.slope * (high.length - low.length) >= 0:
            high = low
        low = point
    return low, most


def minimum_of_cubic(first: Point, second: Point, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic polynomial with two points' losses and slopes is least, within bounds (or between the points).

    Of a straight line that is a bound; the middle where there is no minimum, or a loss that is no number.
    """
    a, b = (first, second) if first.length <= second.length else (second, first)
    low, high = bounds if bounds is not None else (a.length, b.length)
    width = b.length - a.length
    middle = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.length - b.length)
    square = middle * middle - a.slope * b.slope
    if not square >= 0:  # or it is NaN
        return (low + high) / 2
    root = square**0.5
    with np.errstate(all="ignore"):  # a quotient by 0 is infinite
        part = float(np.divide(b.slope + root - middle, b.slope - a.slope + 2 * root))
    return min(max(b.length - width * part, low), high)


__all__ = ["LBFGS"]
