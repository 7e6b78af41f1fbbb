"""Optimizers whose step is one formula for each element of a parameter (multi_tensor.py): most of them.

A subclass says which states there are, which numbers a step needs, and the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from dynagraph._core._dispatch import fill_numbers, step_rows
from dynagraph.markers import is_compiling
from dynagraph.torch.core.arrays import any_wrong, none_is_set
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.splitting import view_as_real
from dynagraph.torch.optim.multi_tensor import Formula, OfTensors, computed_in, store, store_all
from dynagraph.torch.optim.optimizer import Optimizer, called, hyper, scalar_dtype, without_grad
from dynagraph.torch.optim.states import filled, number_state, prepare


class PerElement(Optimizer):
    """An optimizer with a formula.  `formula(xp, arrays, numbers, *flags)`: as multi_tensor.py has it."""

    formula: ClassVar[Formula]
    _counters: tuple[str, ...] = ("step",)  # states that are one number: they count steps, or are averages of what does
    _sparse_text = ""  # what an error says of sparse gradients; "": the class does not support them

    # -- what subclasses say --

    def _tensors(self, group: dict[str, Any]) -> tuple[str, ...]:
        """The names of the states that are tensors of the parameter's shape, in the formula's order."""
        raise NotImplementedError

    def _flags(self, group: dict[str, Any]) -> tuple[Any, ...]:
        """What the formula does, apart from numbers."""
        raise NotImplementedError

    def _numbers(
        self, group: dict[str, Any], rounded: Callable[[Any], Any], *counters: Any
    ) -> tuple[tuple[Any, ...], Sequence[Any]]:
        """The counters' next values, and the formula's numbers.  `rounded`: as a counter is stored.

        Numbers are floats, or in captured code arrays of no dimensions: it uses arithmetic alone, and NumPy's functions.
        """
        raise NotImplementedError

    def _make_state(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        self._make_counter(group, param, state)
        self._make_tensors(group, param, state)

    def _make_tensors(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        for name in self._tensors(group):
            state[name] = filled(param, 0)

    def _make_counter(
        self, group: dict[str, Any], param: Tensor, state: dict[str, Any], name: str = "step", value: float = 0.0
    ) -> None:
        fused = bool(group.get("fused"))
        there = param if fused or group.get("capturable") else None
        state[name] = number_state(value, scalar_dtype(fused), there)

    def _has_sparse_states(self, group: dict[str, Any]) -> bool:
        """Whether steps with sparse gradients read states.  Those do not make what is missing as dense ones do."""
        return False

    def _step_sparse(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]) -> None:
        """A step of a parameter whose gradient is sparse."""
        raise RuntimeError(self._sparse_text or f"{type(self).__name__} does not support sparse gradients")

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            for name, value in self._added_options.items():
                group.setdefault(name, value)
            for param in group["params"]:
                found = self.state.get(param, ())
                for name in self._counters:
                    if found and name in found and not isinstance(found[name], Tensor):
                        value = float(found[name])
                        self._make_counter(group, param, found, name, value)

    # options that dicts of earlier versions lack
    _added_options: ClassVar[dict[str, Any]] = {
        "maximize": False, "foreach": None, "capturable": False, "differentiable": False,
    }  # fmt: skip

    # -- steps --

    @without_grad
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients; `closure` computes the loss anew, with its gradients."""
        loss = called(closure)
        if not self._unscale():
            return loss
        for number, group in enumerate(self.param_groups):
            if is_compiling() and not group.get("differentiable"):
                self._step_captured(number, group)
            else:
                self._step_plainly(group)
        return loss

    def _unscale(self) -> bool:
        """Divide gradients by a GradScaler's factor; whether there is a step, that is, whether all of them are finite."""
        found, scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        if found is not None and not none_is_set([found._array]):
            return False
        if scale is not None:
            for group in self.param_groups:
                for param in group["params"]:
                    if param.grad is not None:
                        param.grad.div_(scale)
        return True

    def _step_plainly(self, group: dict[str, Any]) -> None:
        names, flags, formula = self._tensors(group), self._flags(group), type(self).formula
        if group.get("differentiable"):
            for param in group["params"]:
                if param.grad is not None:
                    self._step_one(group, param, names, flags, formula)
            return
        groups, rest = step_rows(group["params"], self._states, names, self._counters)
        for dtype, counted, counters, rows in groups:
            values, numbers = self._numbers_of(group, dtype, counted, counters[0])
            fill_numbers(counters, values)
            store_all(formula, flags, rows, numbers)
        for param in rest:
            self._step_one(group, param, names, flags, formula)

    def _step_one(
        self, group: dict[str, Any], param: Tensor, names: tuple[str, ...], flags: tuple[Any, ...], formula: Formula
    ) -> None:
        """A step of one parameter: a first one, one that is recorded, or one of arrays that kernels do not take."""
        grad: Any = param.grad
        if grad.is_sparse:
            self._step_sparse(group, param, grad, self._states[param] if self._has_sparse_states(group) else {})
            return
        state = self._states[param] if names or self._counters else {}
        if not self._is_ready(group, state) and self._make_first(group, param, grad, state):
            return
        counters = [state[name] for name in self._counters]
        tensors = [param, grad, *[state[name] for name in names]]
        counted = tuple([counter._array.item() for counter in counters])
        if group.get("differentiable"):
            values, numbers = self._numbers(group, _rounding(counters), *counted)
            _store_tensors(formula, flags, tensors, [n if isinstance(n, Tensor) else float(n) for n in numbers])
        else:
            parts = [view_as_real(t) for t in tensors] if param.is_complex() else tensors
            row = tuple([part._array for part in parts])
            values, numbers = self._numbers_of(group, row[0].dtype, counted, counters)
            if all(type(array) is np.ndarray for array in row):
                store_all(formula, flags, [row], numbers)
            else:
                store(formula, flags, row, [number.item() for number in numbers])
            for t in (param, *tensors[2:]):
                t._storage.version += 1
        for counter, value in zip(counters, values):
            counter._array.fill(value)
            counter._storage.version += 1

    def _make_first(self, group: dict[str, Any], param: Tensor, grad: Tensor, state: dict[str, Any]) -> bool:
        """Make a state before the first step; whether it has taken that step, too."""
        self._make_state(group, param, state)
        return False

    def _numbers_of(
        self, group: dict[str, Any], dtype: np.dtype, counted: tuple[float, ...], counters: Sequence[Any]
    ) -> tuple[Any, Any]:
        values, numbers = self._numbers(group, _rounding(counters), *counted)
        return values, np.array(numbers, computed_in(dtype))

    def _step_captured(self, number: int, group: dict[str, Any]) -> None:
        params = group["params"]
        chosen: list[int] = []
        sparse: list[int] = []
        for k, param in enumerate(params):
            grad: Any = param.grad
            if grad is not None:
                (sparse if grad.is_sparse else chosen).append(k)
        names, flags, formula = self._tensors(group), self._flags(group), type(self).formula
        bare = sparse if self._has_sparse_states(group) else []
        dense = chosen if names or self._counters else []
        alike, states = prepared(self, number, dense, bare) if dense or bare else ([], [{}] * len(params))
        for k in sparse:
            self._step_sparse(group, params[k], params[k].grad, states[k])
        if chosen and not dense:
            rows = [[params[k], params[k].grad] for k in chosen]
            self._store_captured(formula, flags, rows, self._numbers(group, float)[1])
        for some in alike:
            if not self._is_ready(group, states[some[0]]):
                for k in some:
                    self._first_captured(group, params[k], states[k])
                continue
            counters = [[states[k][name] for k in some] for name in self._counters]
            first = [_agreed([t._array for t in tensors]) for tensors in counters]
            values, numbers = self._numbers(group, _in_single_captured, *[array.astype(np.float64) for array in first])
            for tensors, value in zip(counters, values):
                for t in tensors:
                    t._array[...] = value
                    t._storage.version += 1
            rows = [[params[k], params[k].grad, *[states[k][name] for name in names]] for k in some]
            self._store_captured(formula, flags, rows, numbers)

    def _first_captured(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        """A first step that makes the state, where `_can_prepare` says that none can be made before."""
        raise NotImplementedError

    def _store_captured(self, formula: Formula, flags: tuple[Any, ...], rows: list[list[Tensor]], numbers: Sequence[Any]) -> None:
        calls = []
        for row in rows:
            calls.append([view_as_real(t)._array if t._array.dtype.kind == "c" else t._array for t in row])
        store_captured(formula, flags, calls, numbers)
        for row in rows:
            row[0]._storage.version += 1
            for t in row[2:]:
                t._storage.version += 1


def prepared(optimizer: PerElement, number: int, chosen: list[int], bare: Sequence[int] = ()) -> tuple[list[list[int]], list[Any]]:
    """As `prepare`, and the states.  Captures call `prepare` itself: the states are there before the program runs."""
    return prepare(optimizer, number, chosen, bare), optimizer._places[number + 1]


def store_captured(formula: Formula, flags: tuple[Any, ...], calls: list[list[Any]], numbers: Sequence[Any]) -> None:
    """Apply a formula to the arrays of many parameters in captured code; captures follow `computed` for one of a kind."""
    for arrays in calls:
        for array, value in zip((arrays[0], *arrays[2:]), computed(formula, flags, arrays, numbers)):
            array[...] = value


def computed(formula: Formula, flags: tuple[Any, ...], arrays: list[Any], numbers: Sequence[Any]) -> tuple[Any, ...]:
    """What a formula gives for the arrays of one parameter, in captured code."""
    dtype = computed_in(arrays[0].dtype)
    return formula(np, [array.astype(dtype, copy=False) for array in arrays], cast_numbers(numbers, dtype), *flags)


def cast_numbers(numbers: Sequence[Any], dtype: np.dtype) -> list[Any]:
    """Numbers of captured code in the dtype in which parameters are computed; Python's own take part in any."""
    return [number if type(number) in (int, float) else number.astype(dtype) for number in numbers]


def _agreed(arrays: list[Any]) -> Any:
    """The number that all of these are: a program that finds others leaves the call to Python."""
    if len(arrays) > 1:
        together = np.stack(arrays)
        if any_wrong(together != together[0]):
            raise RuntimeError("parameters that were stepped together have counts of steps of their own by now")
    return arrays[0]


def _rounding(counters: Sequence[Any]) -> Callable[[Any], Any]:
    """How numbers are rounded when they are stored in counters, arrays or tensors."""
    return _in_single if counters and counters[0].dtype.itemsize == 4 else float


def _in_single(number: float) -> float:
    return float(np.float32(number))


def _in_single_captured(number: Any) -> Any:
    return number.astype(np.float32).astype(np.float64)


def _store_tensors(formula: Formula, flags: tuple[Any, ...], tensors: list[Tensor], numbers: Sequence[Any]) -> None:
    """A step that is recorded: gradients go through it."""
    parts: list[Any] = [view_as_real(t) for t in tensors] if tensors[0].is_complex() else list(tensors)
    read = [part if k == 1 else part.clone() for k, part in enumerate(parts)]  # gradients need what is written over here
    values = formula(OfTensors, read, numbers, *flags)
    for part, value in zip((parts[0], *parts[2:]), values):
        part.copy_(value)


def decay_of(group: dict[str, Any]) -> str:
    """How weights decay: "" (not at all), "gradient" (into the gradient) or "weight" (by themselves)."""
    if isinstance(group["weight_decay"], (int, float)) and group["weight_decay"] == 0:
        return ""
    return "weight" if group.get("decoupled_weight_decay") else "gradient"


def decay_number(group: dict[str, Any], lr: Any) -> Any:
    """The number of `decayed`."""
    decay = hyper(group["weight_decay"], group.get("differentiable", False))
    return 1 - lr * decay if decay_of(group) == "weight" else decay


def decayed(p: Any, g: Any, number: Any, maximize: bool, decay: str) -> tuple[Any, Any]:
    """The parameter and the gradient that a step begins with."""
    if maximize:
        g = -g
    if decay == "gradient":
        g = g + p * number
    elif decay == "weight":
        p = p * number
    return p, g


__all__ = ["PerElement", "cast_numbers", "computed", "decay_number", "decay_of", "decayed", "prepared", "store_captured"]
