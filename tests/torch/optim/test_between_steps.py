"""What happens to parameters, gradients and states between two steps: the step of all at once sees it, bit for bit as steps of
each parameter by itself do.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dynagraph.torch as torch
from dynagraph.driver.background import WORK

SHAPES = ((40, 50), (40, 50), (2000,), (40, 50), (7, 9), (2000,), (40, 50))  # alike, and not
OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("Adam", {}), ("Adam", {"amsgrad": True, "weight_decay": 0.1}), ("SGD", {"lr": 0.1, "momentum": 0.9}), ("RMSprop", {}),
    ("Adagrad", {}), ("NAdam", {}), ("Rprop", {}),
]  # fmt: skip


def random(rng: Any, shape: tuple[int, ...]) -> Any:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


class Pair:
    """One optimizer of all parameters, and one for each copy of a parameter."""

    def __init__(self, name: str, options: dict[str, Any]):
        rng = np.random.default_rng(0)
        self.rng, self.make = rng, lambda params: getattr(torch.optim, name)(params, **options)
        self.params = [random(rng, shape).requires_grad_() for shape in SHAPES]
        self.others = [p.detach().clone().requires_grad_() for p in self.params]
        self.all, self.each = self.make(self.params), [self.make([p]) for p in self.others]

    def pairs(self) -> list[tuple[Any, Any]]:
        return list(zip(self.params, self.others, strict=True))

    def step(self) -> None:
        self.all.step()
        for one in self.each:
            one.step()
        for p, q in self.pairs():
            assert (p.detach().numpy() == q.detach().numpy()).all()
        for p, q, one in zip(self.params, self.others, self.each, strict=True):
            theirs = one.state[q]
            assert list(self.all.state[p]) == list(theirs)
            for name, value in self.all.state[p].items():
                assert np.array_equal(value.numpy(), theirs[name].numpy()), name

    def new_gradients(self) -> None:
        for p, q in self.pairs():
            p.grad = random(self.rng, tuple(p.shape))
            q.grad = p.grad.clone()


def replaced_gradients(pair: Pair) -> None:
    pair.new_gradients()


def gradients_in_another_order(pair: Pair) -> None:
    for p, q in pair.pairs():
        if p.dim() == 2:
            p.grad = p.grad.t().contiguous().t()
            q.grad = p.grad.clone()


def a_missing_gradient(pair: Pair) -> None:
    pair.params[1].grad = pair.others[1].grad = None


def moved_storages(pair: Pair) -> None:
    for p, q in pair.pairs()[::2]:
        p.data, q.data = p.data.clone(), q.data.clone()


def a_transposed_parameter(pair: Pair) -> None:
    for p in (pair.params[3], pair.others[3]):
        p.data = p.data.t().contiguous().t()


def another_shape(pair: Pair) -> None:
    """With its gradient and state: all but the optimizer's list of parameters is new."""
    for p, optimizer in ((pair.params[2], pair.all), (pair.others[2], pair.each[2])):
        p.data, p.grad = p.data[:300].clone(), p.grad[:300].clone()
        del optimizer.state[p]


def a_gradient_that_is_the_parameter(pair: Pair) -> None:
    for p in (pair.params[0], pair.others[0]):
        p.grad = p.detach()


def gradients_of_one_memory(pair: Pair) -> None:
    pair.params[1].grad = pair.params[0].grad
    pair.others[1].grad = pair.others[0].grad


def a_group_more(pair: Pair) -> None:
    more = [random(pair.rng, shape).requires_grad_() for shape in SHAPES[:3]]
    pair.all.add_param_group({"params": more, "lr": 0.05})
    pair.params += more
    for p in more:
        q = p.detach().clone().requires_grad_()
        pair.others.append(q)
        pair.each.append(pair.make([q]))
        pair.each[-1].param_groups[0]["lr"] = 0.05
    pair.new_gradients()


def a_deleted_state(pair: Pair) -> None:
    del pair.all.state[pair.params[4]]
    del pair.each[4].state[pair.others[4]]


def a_replaced_state(pair: Pair) -> None:
    for p, optimizer in ((pair.params[5], pair.all), (pair.others[5], pair.each[5])):
        state = optimizer.state[p]
        for name, value in state.items():
            if value.dim():
                state[name] = value.clone() * 2


def loaded_states(pair: Pair) -> None:
    pair.all.load_state_dict(copy.deepcopy(pair.all.state_dict()))
    for one in pair.each:
        one.load_state_dict(copy.deepcopy(one.state_dict()))


def another_rate(pair: Pair) -> None:
    for optimizer in (pair.all, *pair.each):
        for group in optimizer.param_groups:
            group["lr"] *= 0.5


CHANGES: list[Callable[[Pair], None]] = [
    replaced_gradients, gradients_in_another_order, a_missing_gradient, moved_storages, a_transposed_parameter, another_shape,
    a_gradient_that_is_the_parameter, gradients_of_one_memory, a_group_more, a_deleted_state, a_replaced_state, loaded_states,
    another_rate,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=lambda value: value if isinstance(value, str) else "-".join(value))
def test_a_change_between_steps(name: str, options: dict[str, Any], change: Callable[[Pair], None]) -> None:
    pair = Pair(name, options)
    for _ in range(3):
        pair.new_gradients()
        pair.step()
        WORK.wait()  # until the kernel is there
    change(pair)
    for _ in range(2):
        pair.step()
    pair.new_gradients()
    pair.step()


def test_versions_count_each_step() -> None:
    pair = Pair("Adam", {})
    pair.new_gradients()
    for k in range(1, 4):
        pair.step()
        assert [p._version for p in pair.params] == [k] * len(SHAPES)
        assert [state["exp_avg"]._version for state in pair.all.state.values()] == [k] * len(SHAPES)
