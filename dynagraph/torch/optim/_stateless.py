"""``torch.optim._stateless``: an optimizer's steps on other parameters and states, for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.optimizer import Optimizer
from dynagraph.torch.optim.states import States

_NAME = "swap_in_optimizer_params_and_state"


def _checked(optimizer: Optimizer, given: Any, n_params: int) -> tuple[dict[Any, Any], list[dict[str, Any]]]:
    """The states by number, and the groups, of a state dict that fits the optimizer."""
    if not optimizer.state:
        raise RuntimeError(f"{_NAME} requires initialized optimizer state.")
    if not isinstance(given, dict):
        raise RuntimeError(f"{_NAME} requires a DCP-style optimizer state_dict.")
    states, groups = given.get("state"), given.get("param_groups")
    if not isinstance(states, dict):
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['state'] to be a dict mapping packed parameter ids to per-param state dicts, "
            f"got {type(states).__name__}."
        )
    if any(isinstance(key, Tensor) for key in states):
        raise RuntimeError(f"{_NAME} requires optimizer.state_dict()-style state keyed by packed parameter ids.")
    if any(isinstance(key, int) and not isinstance(value, dict) for key, value in states.items()):
        raise RuntimeError(f"{_NAME} requires per-parameter optimizer state entries to be dictionaries.")
    if not isinstance(groups, list):
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['param_groups'] to be a list of param-group dicts, "
            f"got {type(groups).__name__}."
        )
    if len(optimizer.param_groups) != len(groups):
        raise RuntimeError("swapin_optim_state has a different number of parameter groups than the live optimizer.")
    for k, (own, other) in enumerate(zip(optimizer.param_groups, groups)):
        n_params -= len(_numbers(k, own, other))
        if n_params < 0:
            raise RuntimeError(f"{_NAME} requires the explicit parameter state to match optimizer.param_groups ordering.")
    known = {number for group in groups for number in group["params"]}
    extra = [key for key in states if key not in known]
    if extra:
        raise RuntimeError(
            f"{_NAME} requires swapin_optim_state['state'] to be keyed only by packed parameter ids from "
            f"param_groups[*]['params']; got extra keys {extra!r}."
        )
    return states, groups


def _numbers(k: int, own: dict[str, Any], other: Any) -> list[int]:
    if not isinstance(other, dict):
        raise RuntimeError(f"{_NAME} requires each optimizer param group to be a dictionary.")
    numbers = other.get("params")
    if not isinstance(numbers, list) or not all(isinstance(number, int) for number in numbers):
        raise RuntimeError(
            f"{_NAME} requires optimizer.state_dict()-style param_groups[*]['params'] entries keyed by packed parameter ids."
        )
    if len(own["params"]) != len(numbers):
        raise RuntimeError(
            f"swapin_optim_state param group {k} has a different number of params than the live optimizer param group."
        )
    theirs, ours = [name for name in other if name not in own], [name for name in own if name not in other]
    if theirs or ours:
        raise RuntimeError(
            f"{_NAME} requires optimizer.state_dict()-style param group keys to exactly match the live optimizer group keys for "
            f"group {k}. Keys only in swap-in: {theirs}. Keys only in live: {ours}."
        )
    return numbers


@contextlib.contextmanager
def swap_in_optimizer_params_and_state(
    optimizer: Optimizer, swapin_parameters: dict[str, Tensor], swapin_optim_state: dict[str, Any]
) -> Iterator[None]:
    """Within the context the optimizer steps these parameters, in the order of its own, with states and options of a state dict.

    Only writes to the tensors stay.
    """
    given, groups = _checked(optimizer, swapin_optim_state, len(swapin_parameters))
    state, kept, params = optimizer.state, [dict(group) for group in optimizer.param_groups], iter(swapin_parameters.values())
    try:
        states = States()
        for own, other in zip(optimizer.param_groups, groups):
            own.update(other)
            own["params"] = [next(params) for _ in other["params"]]
            for param, number in zip(own["params"], other["params"]):
                states[param] = dict(given.get(number, {}))
        optimizer.state = states
        yield
    finally:
        for own, before in zip(optimizer.param_groups, kept):
            own.clear()
            own.update(before)
        optimizer.state = state


__all__ = ["swap_in_optimizer_params_and_state"]
