"""``torch.distributed.checkpoint.state_dict``: states of models and optimizers by parameters' names.

Names are those of the model itself, whether DistributedDataParallel or `fully_shard` wraps it or nothing does, so that any of these
reads what another one has written.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dynagraph.torch import distributed as dist
from dynagraph.torch.core import devices
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.distributed.tensor.sharded import DTensor, sharded
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.nn.parallel.distributed import DistributedDataParallel
from dynagraph.torch.utils._pytree import tree_map


@dataclass
class StateDictOptions:
    """full_state_dict: whole tensors in place of this rank's parts.  cpu_offload: in the host's memory, and of whole tensors on the
    first rank alone.  ignore_frozen_params: no parameters without gradients.  strict: all names must be there.
    broadcast_from_rank0: the first rank has the whole tensors that are set, the others take them from it.
    """

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"

    def __post_init__(self) -> None:
        if self.flatten_optimizer_state_dict:
            raise NotImplementedError("StateDictOptions: flatten_optimizer_state_dict is not supported")
        if self.broadcast_from_rank0 and not self.full_state_dict:
            raise ValueError("full_state_dict must be True when broadcast_from_rank0 is True.")


def _inner(model: Module) -> Module:
    return model.module if isinstance(model, DistributedDataParallel) else model


def _listed(optimizers: Any) -> list[Any]:
    return list(optimizers) if isinstance(optimizers, Iterable) else [optimizers]


def _chosen(state: dict[str, Any], options: StateDictOptions) -> dict[str, Any]:
    """Whole tensors, and on the host, where that is asked for."""
    if options.full_state_dict:
        state = tree_map(lambda v: v.full_tensor() if isinstance(v, DTensor) else v, state)
        if options.cpu_offload and dist.is_initialized() and dist.get_rank() != 0:
            return {}
    if options.cpu_offload:
        state = tree_map(lambda v: v.to(devices.CPU) if isinstance(v, Tensor) and not isinstance(v, DTensor) else v, state)
    return state


def get_model_state_dict(
    model: Module, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """A model's state dict, without the prefixes of wrappers."""
    options = options or StateDictOptions()
    inner = _inner(model)
    state: dict[str, Any] = dict(inner.state_dict())
    if options.ignore_frozen_params:
        frozen = {name for name, p in inner.named_parameters(remove_duplicate=False) if not p.requires_grad}
        state = {name: value for name, value in state.items() if name not in frozen}
    return _chosen(state, options)


def set_model_state_dict(model: Module, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None) -> Any:
    """Load what `get_model_state_dict` gave, parts or whole tensors."""
    options = options or StateDictOptions()
    if options.broadcast_from_rank0:
        model_state_dict = _from_first(model_state_dict)
    return _inner(model).load_state_dict(model_state_dict, strict=options.strict)


def _from_first(state: Any) -> Any:
    given = [state if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(given, src=0)
    return given[0]


# -- optimizers -------------------------------------------------------------------------------------------------------


def _make_states(optimizer: Any) -> None:
    """Have an optimizer make its states, by a step that changes no parameter."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    if optimizer.state or any(p.grad is not None for p in params):
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    try:
        with no_grad():
            for group in optimizer.param_groups:
                group["lr"] = NAMESPACES["torch"]["tensor"](0.0) if isinstance(group["lr"], Tensor) else 0.0
            for param in params:
                if param.requires_grad:
                    param.grad = NAMESPACES["torch"]["zeros_like"](param.to_local() if isinstance(param, DTensor) else param)
            optimizer.step()
    finally:
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate
        optimizer.zero_grad(set_to_none=True)


def _names_of(model: Module) -> dict[int, str]:
    names: dict[int, str] = {}
    for name, parameter in _inner(model).named_parameters():
        names[id(parameter)] = name
    return names


def get_optimizer_state_dict(
    model: Module, optimizers: Any, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> dict[str, Any]:
    """The states of a model's optimizers by names of parameters; states of divided parameters are DTensors.

    An optimizer that has made no step makes its states, so that a checkpoint can be read into them.
    """
    options = options or StateDictOptions()
    names = _names_of(model)
    state: dict[str, Any] = {}
    groups: list[dict[str, Any]] = []
    for optimizer in _listed(optimizers):
        _make_states(optimizer)
        for group in optimizer.param_groups:
            packed = {name: value for name, value in group.items() if name not in ("params", "param_names")}
            groups.append({**packed, "params": [names[id(p)] for p in group["params"]]})
            for param in group["params"]:
                if param in optimizer.state:
                    found = optimizer.state[param].items()
                    state[names[id(param)]] = {name: _divided_as(param, value) for name, value in found}
    return _chosen({"state": state, "param_groups": groups}, options)


def _divided_as(param: Tensor, value: Any) -> Any:
    is_part = isinstance(param, DTensor) and isinstance(value, Tensor) and not isinstance(value, DTensor) and value.dim() > 0
    if is_part and value.shape == param.to_local().shape:  # type: ignore[attr-defined]
        return sharded(value, param.shape, param._group, param._mesh)  # type: ignore[attr-defined]
    return value


def _part_for(param: Tensor, value: Any) -> Any:
    """This rank's part of a state, which is one, or is whole."""
    if isinstance(value, DTensor):
        return value.to_local() if isinstance(param, DTensor) else value.full_tensor()
    if isinstance(param, DTensor) and isinstance(value, Tensor) and value.dim() and value.shape == param.shape:
        begin, end = param.rows()
        return value[begin:end].clone()
    return value


def set_optimizer_state_dict(
    model: Module, optimizers: Any, optim_state_dict: dict[str, Any], *, options: StateDictOptions | None = None
) -> None:
    """Load what `get_optimizer_state_dict` gave, parts or whole tensors."""
    options = options or StateDictOptions()
    if options.broadcast_from_rank0:
        optim_state_dict = _from_first(optim_state_dict)
    names = _names_of(model)
    group_of = {name: group for group in optim_state_dict["param_groups"] for name in group["params"]}
    for optimizer in _listed(optimizers):
        own = optimizer.state_dict()
        states: dict[int, Any] = {}
        for group, packed in zip(optimizer.param_groups, own["param_groups"]):
            for param, number in zip(group["params"], packed["params"]):
                name = names[id(param)]
                if name not in group_of and options.strict:
                    raise RuntimeError(f"Missing optimizer state of {name}")
                packed.update((key, value) for key, value in group_of.get(name, {}).items() if key != "params")
                if name in optim_state_dict["state"]:
                    found = optim_state_dict["state"][name].items()
                    states[number] = {key: _part_for(param, value) for key, value in found}
        optimizer.load_state_dict({"state": states, "param_groups": own["param_groups"]})


def get_state_dict(
    model: Module, optimizers: Any, *, submodules: set[Module] | None = None, options: StateDictOptions | None = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of a model and of its optimizers."""
    model_states = get_model_state_dict(model, submodules=submodules, options=options)
    return model_states, get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options)


def set_state_dict(
    model: Module, optimizers: Any, *, model_state_dict: dict[str, Any], optim_state_dict: dict[str, Any],
    options: StateDictOptions | None = None,
) -> Any:  # fmt: skip
    """Load the states of a model and of its optimizers."""
    found = set_model_state_dict(model, model_state_dict, options=options)
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return found


__getattr__: Any = getattr_of(__name__)
__all__ = [
    "StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
    "set_optimizer_state_dict", "set_state_dict",
]  # fmt: skip
