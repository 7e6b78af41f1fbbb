"""``fully_shard``: modules that gather their parameters before forward and backward, and divide them again afterwards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dynagraph.torch import distributed as dist
from dynagraph.torch.core.engine import queue_callback
from dynagraph.torch.core.grad_mode import is_grad_enabled
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.distributed.fsdp.parameters import MixedPrecisionPolicy, OffloadPolicy, ParameterGroup
from dynagraph.torch.distributed.tensor.sharded import DTensor
from dynagraph.torch.nn.modules.module import Module
from dynagraph.torch.utils._pytree import tree_map


class _State:
    """What a `fully_shard`-ed module knows: its group of parameters, and how far a step is."""

    def __init__(self, group: ParameterGroup | None, policy: MixedPrecisionPolicy, reshards: bool | int | None):
        self.group, self.policy = group, policy
        self.reshards_after_forward = reshards  # None: unless it is the outermost module
        self.root: _Root | None = None  # set by the first forward


class _Root:
    """An outermost module, with those inside."""

    def __init__(self, module: Any, state: _State):
        self.state = state
        self.groups: list[ParameterGroup] = []
        for inner in module.modules():
            if isinstance(inner, FSDPModule):
                inner._fsdp_state.root = self
                group = inner._fsdp_state.group
                if group is not None and group not in self.groups:
                    self.groups.append(group)

    def begin_backward(self) -> None:
        queue_callback(self.end_backward, self)

    def end_backward(self) -> None:
        """Backward has ended: what has not been reduced is, and all parameters are divided."""
        for group in self.groups:
            if group.syncs and group.has_gradients():
                group.after_backward()
            group.arrived = 0
            if group.reshards:
                group.reshard()
        for group in self.groups:
            group.finish()


def _casts(dtype: Any, values: Any) -> Any:
    if dtype is None:
        return values
    return tree_map(lambda v: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v, values)


def _tensors(value: Any) -> Iterator[Tensor]:
    found: list[Tensor] = []
    tree_map(lambda v: found.append(v) if isinstance(v, Tensor) else None, value)
    yield from found


def find_root(module: Any, state: _State) -> None:
    """Where a module is the first one that is called, it is the outermost one.  Captures do this before the program runs."""
    if state.root is None:
        _Root(module, state)


def _before(module: Any, state: _State, args: Any, kwargs: Any) -> Any:
    find_root(module, state)
    if state.policy.cast_forward_inputs:
        args = _casts(state.policy.param_dtype, args)
        kwargs = _casts(state.policy.param_dtype, kwargs)
    if state.group is not None:
        state.group.unshard()
    return args, kwargs


def _after(state: _State, output: Any) -> Any:
    root, group = state.root, state.group
    assert root is not None
    keeps = root.state is state if state.reshards_after_forward is None else not state.reshards_after_forward
    if group is not None and (not keeps or not is_grad_enabled()):
        group.reshard()
    output = _casts(state.policy.output_dtype, output)
    if is_grad_enabled():
        for tensor in _tensors(output):
            if tensor.requires_grad:
                tensor.register_hook(functools.partial(_before_backward, state, root))
    return output


def _before_backward(state: _State, root: _Root, grad: Tensor) -> None:
    root.begin_backward()
    if state.group is not None:
        state.group.unshard()


class UnshardHandle:
    """An `unshard` that was started."""

    def wait(self) -> None:
        """Wait until the parameters are whole: they are."""


class FSDPModule:
    """What `fully_shard` adds to a module's class."""

    _fsdp_state: _State

    def _states(self, recurse: bool = True) -> list[_State]:
        found: Any = self.modules() if recurse else [self]  # type: ignore[attr-defined]
        return [module._fsdp_state for module in found if isinstance(module, FSDPModule)]

    def _groups(self, recurse: bool = True) -> list[ParameterGroup]:
        return [state.group for state in self._states(recurse) if state.group is not None]

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gather this module's own parameters."""
        for group in self._groups(recurse=False):
            group.unshard()
        return UnshardHandle() if async_op else None

    def reshard(self) -> None:
        """Divide this module's own parameters."""
        for group in self._groups(recurse=False):
            group.reshard()

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Whether backward reduces gradients; without it they add up, whole, until a backward that does."""
        for group in self._groups(recurse):
            group.syncs = requires_gradient_sync

    def set_requires_all_reduce(self, requires_all_reduce: bool, *, recurse: bool = True) -> None:
        """Of meshes of two dimensions; there is one here."""

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Whether another backward follows: sums are waited for in each."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether parameters are divided between forward and backward."""
        for state in self._states(recurse):
            state.reshards_after_forward = reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether parameters are divided after backward."""
        for group in self._groups(recurse):
            group.reshards = reshard_after_backward

    def set_modules_to_forward_prefetch(self, modules: Sequence[Any]) -> None:
        """A hint: parameters are gathered when they are needed."""

    def set_modules_to_backward_prefetch(self, modules: Sequence[Any]) -> None:
        """A hint: parameters are gathered when they are needed."""

    def set_gradient_divide_factor(self, factor: float) -> None:
        """By what sums of gradients are divided, in place of the number of ranks."""
        for group in self._groups():
            group.divisor = float(factor)

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        self.reshard()
        return super()._apply(*args, **kwargs)  # type: ignore[misc]


@functools.cache
def _class_of(kind: type) -> type:
    return type(f"FSDP{kind.__name__}", (FSDPModule, kind), {})


def _own_parameters(modules: Sequence[Module], ignored: Any) -> list[tuple[Tensor, list[tuple[Any, str]]]]:
    """The parameters of modules that no `fully_shard` has yet, and which modules have them by which name."""
    found: dict[int, tuple[Tensor, list[tuple[Any, str]]]] = {}
    skipped = {id(p) for p in ignored or ()}
    for root in modules:
        for module in root.modules():
            for name, parameter in module._parameters.items():
                if parameter is not None and not isinstance(parameter, DTensor) and id(parameter) not in skipped:
                    found.setdefault(id(parameter), (parameter, []))[1].append((module, name))
    return list(found.values())


def fully_shard(
    module: Any, *, mesh: Any = None, reshard_after_forward: bool | int | None = None, shard_placement_fn: Any = None,
    mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(), offload_policy: OffloadPolicy = OffloadPolicy(),  # noqa: B008
    ignored_params: Any = None, dp_mesh_dims: Any = None,
) -> Any:  # fmt: skip
    """Divide a module's parameters, gradients and thereby optimizer states among ranks; gives the module, changed in place.

    The parameters that no submodule has divided before make one group: whole from the module's forward to its end, and again in its
    backward.  So call it for the layers of a model, then for the model; then make the optimizer.

    mesh: of one dimension; None: all ranks.  reshard_after_forward: False keeps the parameters whole until backward has ended:
    more memory, one exchange less (gradients and states are divided all the same).  None is False of the outermost module alone.
    """
    if isinstance(module, (list, tuple)):
        modules = list(module)
    else:
        modules = [module]
    for each in modules:
        if isinstance(each, FSDPModule):
            raise AssertionError(f"Each distinct composable distributed API can only be applied to a module once: {type(each)}")
    if shard_placement_fn is not None or dp_mesh_dims is not None:
        raise NotImplementedError("fully_shard: parameters are divided along their first dimension, on a mesh of one dimension")
    if mesh is not None and mesh.ndim != 1:
        raise NotImplementedError(f"fully_shard: only meshes of one dimension are supported, not {mesh}")
    group = None if mesh is None else mesh.get_group()
    if group is None and not dist.is_initialized():
        raise ValueError("Default process group has not been initialized, please make sure to call init_process_group.")
    found = _own_parameters(modules, ignored_params)
    state = _State(
        ParameterGroup(found, group, mesh, mp_policy) if found else None, mp_policy, reshard_after_forward
    )  # fmt: skip
    for each in modules:
        each.__class__ = _class_of(type(each))
        each._fsdp_state = state
        each.register_forward_pre_hook(lambda own, args, kwargs: _before(own, state, args, kwargs), prepend=True, with_kwargs=True)
        each.register_forward_hook(lambda _, args, output: _after(state, output))
        each.register_state_dict_pre_hook(lambda own, *_: own.reshard())
        each.register_load_state_dict_pre_hook(lambda own, *_: own.reshard())
    return module


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Have another method gather and divide parameters as `forward` does."""
    if not isinstance(module, FSDPModule):
        return
    method: Callable[..., Any] = getattr(module, method_name)
    state = module._fsdp_state

    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _before(module, state, args, kwargs)
        return _after(state, method(*args, **kwargs))

    setattr(module, method_name, wrapped)


__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]
