"""The base of all optimizers: groups of parameters, states, hooks, dicts of states."""

from __future__ import annotations

import collections
import copy
import functools
import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any

from dynagraph.markers import is_compiling
from dynagraph.torch.core import dtypes
from dynagraph.torch.core.grad_mode import mode
from dynagraph.torch.core.nodes import Removable
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.optim.states import States

RemovableHandle = Removable
ParamsT = Iterable[Any]


class _Required:
    """The default of an option that every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()

# -- hooks of all optimizers --------------------------------------------------------------------------------------------------

hooks_of_all: tuple[tuple[Any, ...], tuple[Any, ...]] = ((), ())  # those before steps, those after
__dynagraph_mutable__ = ("hooks_of_all",)


class _HooksOfAll(OrderedDict):  # type: ignore[type-arg]
    """Hooks that `hooks_of_all` tells of."""

    def __setitem__(self, key: Any, hook: Any) -> None:
        super().__setitem__(key, hook)
        _tell()

    def pop(self, *args: Any) -> Any:
        found = super().pop(*args)
        _tell()
        return found


_before, _after = _HooksOfAll(), _HooksOfAll()


def _tell() -> None:
    global hooks_of_all
    hooks_of_all = (tuple(_before.values()), tuple(_after.values()))


def _put(hooks: Any, hook: Any, prepend: bool = False) -> Removable:
    handle = Removable(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def register_optimizer_step_pre_hook(hook: Callable[..., Any]) -> Removable:
    """Call ``hook(optimizer, args, kwargs)`` before the steps of all optimizers."""
    return _put(_before, hook)


def register_optimizer_step_post_hook(hook: Callable[..., None]) -> Removable:
    """Call ``hook(optimizer, args, kwargs)`` after the steps of all optimizers."""
    return _put(_after, hook)


def _with_hooks(step: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(step)
    def hooked(*args: Any, **kwargs: Any) -> Any:
        optimizer = args[0]
        before, after = hooks_of_all
        if not (before or after or optimizer._optimizer_step_pre_hooks or optimizer._optimizer_step_post_hooks):
            return step(*args, **kwargs)
        for hook in (*before, *optimizer._optimizer_step_pre_hooks.values()):
            changed = hook(optimizer, args, kwargs)
            if changed is not None:
                if not (isinstance(changed, tuple) and len(changed) == 2):
                    raise RuntimeError(f"{step} must return None or a tuple of (new_args, new_kwargs), but got {changed}.")
                args, kwargs = changed
        result = step(*args, **kwargs)
        optimizer._optimizer_step_code()
        for hook in (*optimizer._optimizer_step_post_hooks.values(), *after):
            hook(optimizer, args, kwargs)
        return result

    hooked.hooked = True  # type: ignore[attr-defined]
    return hooked


def without_grad(step: Callable[..., Any]) -> Callable[..., Any]:
    """A step whose operations are recorded only if the optimizer was made with ``differentiable=True``."""

    @functools.wraps(step)
    def switched(self: Any, closure: Any = None) -> Any:
        before, mode.grad = mode.grad, bool(self.defaults.get("differentiable", False))
        try:
            return step(self, closure)
        finally:
            mode.grad = before

    return switched


def called(closure: Callable[[], Any] | None) -> Any:
    """What a closure gives, with gradients; None without one."""
    if closure is None:
        return None
    before, mode.grad = mode.grad, True
    try:
        return closure()
    finally:
        mode.grad = before


_HOOKS = (
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks",
)  # fmt: skip


class Optimizer:
    """What all optimizers have: `param_groups`, a list of dicts of parameters and options; `state`, a dict by parameter.

    `params`: tensors, pairs of names and tensors, or dicts of them (key "params") and of options, whose defaults are `defaults`.
    """

    _optimizer_step_pre_hooks: OrderedDict[int, Any]
    _optimizer_step_post_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_state_dict_post_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_pre_hooks: OrderedDict[int, Any]
    _optimizer_load_state_dict_post_hooks: OrderedDict[int, Any]

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self._make_hooks()
        if isinstance(params, Tensor):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got " + _typename(params)
            )
        self.state = States()
        self.param_groups: list[dict[str, Any]] = []
        groups = list(params)
        if len(groups) == 0:
            raise ValueError("optimizer got an empty parameter list")
        for group in groups if isinstance(groups[0], dict) else [{"params": groups}]:
            self.add_param_group(group)

    def _make_hooks(self) -> None:
        for name in _HOOKS:
            if name not in self.__dict__:
                setattr(self, name, OrderedDict())
        self._patch_step_function()

    def _patch_step_function(self) -> None:
        """Let the class's steps call hooks; wrappers that are no optimizers themselves call it for their own steps."""
        step = type(self).step
        if not getattr(step, "hooked", False):
            type(self).step = _with_hooks(step)  # type: ignore[method-assign]

    @property
    def state(self) -> Any:
        """A dict by parameter of what is kept of it from step to step: a dict of tensors and numbers by name."""
        return self._states

    @state.setter
    def state(self, value: Any) -> None:
        self._states = value if isinstance(value, States) else States(dict, value)
        self._places = self._states.places

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        given = dict(state)
        if "state" in given:
            self.state = given.pop("state")
        self.__dict__.update(given)
        self._make_hooks()
        self.defaults.setdefault("differentiable", False)

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for k, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {k}")
            lines += [f"    {name}: {group[name]}" for name in sorted(group) if name != "params"]
        return "\n".join(lines) + "\n)"

    # -- hooks --

    def register_step_pre_hook(self, hook: Callable[..., Any]) -> Removable:
        """Call ``hook(optimizer, args, kwargs)`` before each step; it may give other arguments and keyword arguments."""
        return _put(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable[..., None]) -> Removable:
        """Call ``hook(optimizer, args, kwargs)`` after each step."""
        return _put(self._optimizer_step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable[[Optimizer], None], prepend: bool = False) -> Removable:
        """Call ``hook(optimizer)`` before a `state_dict` is made."""
        return _put(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Removable:
        """Call ``hook(optimizer, state_dict)`` after a `state_dict` was made; it may give another one."""
        return _put(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., Any], prepend: bool = False) -> Removable:
        """Call ``hook(optimizer, state_dict)`` before one is loaded; it may give another one."""
        return _put(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable[[Optimizer], None], prepend: bool = False) -> Removable:
        """Call ``hook(optimizer)`` after a `state_dict` was loaded."""
        return _put(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def _optimizer_step_code(self) -> None:
        """Called after each step that has hooks, for subclasses."""

    # -- dicts of states --

    def state_dict(self) -> dict[str, Any]:
        """The states by numbers of parameters, and the groups with numbers in place of parameters."""
        for before in self._optimizer_state_dict_pre_hooks.values():
            before(self)
        numbers: dict[int, int] = {}
        groups: list[dict[str, Any]] = []
        for group in self.param_groups:
            start = sum(len(g["params"]) for g in groups)
            for k, param in enumerate(group["params"], start):
                numbers.setdefault(id(param), k)
            packed = {name: value for name, value in group.items() if name != "params"}
            packed["params"] = [numbers[id(param)] for param in group["params"]]
            groups.append(packed)
        states = {numbers[id(key)] if isinstance(key, Tensor) else key: value for key, value in self.state.items()}
        found: dict[str, Any] = {"state": states, "param_groups": groups}
        for after in self._optimizer_state_dict_post_hooks.values():
            changed = after(self, found)
            if changed is not None:
                found = changed
        return found

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over states and options of a `state_dict`; states get the dtypes of their parameters."""
        state_dict = state_dict.copy()
        for before in self._optimizer_load_state_dict_pre_hooks.values():
            changed = before(self, state_dict)
            if changed is not None:
                state_dict = changed
        groups, saved = self.param_groups, copy.deepcopy(state_dict["param_groups"])
        if len(groups) != len(saved):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(group["params"]) != len(other["params"]) for group, other in zip(groups, saved)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        pairs = [(number, (param, other)) for g, other in zip(groups, saved) for number, param in zip(other["params"], g["params"])]
        param_of = dict(pairs)
        states: Any = collections.defaultdict(dict)
        for key, value in state_dict["state"].items():
            if key in param_of:
                param, options = param_of[key]
                states[param] = _loaded(param, options, value)
            else:
                states[key] = value
        for group, other in zip(groups, saved):
            other["params"] = group["params"]
            if "param_names" in group and "param_names" not in other:
                other["param_names"] = group["param_names"]
        self.__setstate__({"state": states, "param_groups": saved})
        for after in self._optimizer_load_state_dict_post_hooks.values():
            after(self)

    # -- parameters --

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Take the gradients of all parameters off, or set them to zero."""
        for group in self.param_groups:
            for param in group["params"]:
                if set_to_none:  # whether there is one or not: captured code need not know
                    param.grad = None
                    continue
                grad = param.grad
                if grad is None:
                    continue
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients; `closure` computes the loss anew, with its gradients."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own, such as layers that begin to learn later."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        _unpack_params(param_group)
        for param in param_group["params"]:
            if not isinstance(param, Tensor):
                raise TypeError("optimizer can only optimize Tensors, but one of the params is " + _typename(param))
            if not self.defaults.get("differentiable", None) and not (param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        own = set(param_group["params"])
        if len(own) != len(param_group["params"]):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will cause an error; see "
                "github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        for group in self.param_groups:
            if ("param_names" in param_group) != ("param_names" in group):
                which = "with names" if "param_names" in param_group else "without names"
                raise ValueError(
                    "all optimizer param groups should be with/without names. "
                    f"cannot add param group {which} to the optimizer"
                )
        if any(param in own for group in self.param_groups for param in group["params"]):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)
        self.state.changed()

    # -- what captures need of optimizers whose states they prepare (states.py) --

    _counters: tuple[str, ...] = ()

    def _is_ready(self, group: dict[str, Any], state: Any) -> bool:
        """Whether a parameter has its state."""
        return bool(state)

    def _can_prepare(self, group: dict[str, Any]) -> bool:
        """Whether a state may be made before the first step."""
        return True

    def _make_state(self, group: dict[str, Any], param: Tensor, state: dict[str, Any]) -> None:
        """Fill the state of a parameter before its first step."""


def _unpack_params(group: dict[str, Any]) -> None:
    """Parameters as a list of tensors, and their names, where they have any, as another one."""
    params = group["params"]
    if isinstance(params, set):
        raise TypeError(
            "optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets will change "
            "between runs. Please use a list instead."
        )
    given = [params] if isinstance(params, Tensor) else list(params)
    names = [param[0] for param in given if isinstance(param, tuple)]
    group["params"] = [param[1] if isinstance(param, tuple) else param for param in given]
    if names:
        if len(names) != len(given):
            raise ValueError("all optimizer params should be with/without names. Some param names are missing")
        group["param_names"] = names


def _loaded(param: Tensor, options: dict[str, Any], value: Any, name: Any = None) -> Any:
    """A part of a state for a parameter: tensors on its device, and but for counts of steps in its dtype."""
    if isinstance(value, Tensor):
        if name == "step":
            counts = options.get("capturable", False) or options.get("fused", False)
            return value.to(dtype=dtypes.float32, device=param.device) if counts else value
        if param.is_floating_point():
            return value.to(dtype=param.dtype, device=param.device)
        return value.to(device=param.device)
    if isinstance(value, dict):
        return {key: _loaded(param, options, item, key) for key, item in value.items()}
    if isinstance(value, Iterable):
        return type(value)(_loaded(param, options, item) for item in value)  # type: ignore[call-arg]
    return value


def _typename(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(value.type())
    kind = type(value)
    module = "" if kind.__module__ in ("builtins", "__builtin__") else f"{kind.__module__}."
    return f"{module}{kind.__qualname__}"


def scalar_dtype(fused: bool = False) -> dtypes.dtype:
    """The dtype of counts of steps."""
    default = dtypes.get_default_dtype()
    return default if not fused and default is dtypes.float64 else dtypes.float32


def check_lr(lr: Any, text: str = "Invalid learning rate") -> None:
    """ValueError where this is no learning rate."""
    if isinstance(lr, Tensor) and lr.numel() != 1:
        raise ValueError("Tensor lr must be 1-element")
    if not lr >= 0.0:
        raise ValueError(f"{text}: {lr}")


def check_not_negative(**options: Any) -> None:
    """ValueError where one of these numbers is negative."""
    for name, value in options.items():
        if not value >= 0.0:
            raise ValueError(f"Invalid {name} value: {value}")


def check_eps(eps: float) -> None:
    """ValueError where this is no small number."""
    if not eps >= 0.0:
        raise ValueError(f"Invalid epsilon value: {eps}")


def check_betas(betas: Any) -> None:
    """ValueError where these are not averages' factors."""
    for k in range(2):
        if not 0.0 <= betas[k] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {k}: {betas[k]}")


def check_fused(optimizer: Any, fused: Any, foreach: Any, differentiable: bool) -> None:
    """RuntimeError for options that exclude each other."""
    if fused:
        if differentiable:
            raise RuntimeError("`fused` does not support `differentiable`")
        optimizer._step_supports_amp_scaling = True
        if foreach:
            raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


def hyper(value: Any, keeps: bool = False) -> Any:
    """An option as a number: where it is a tensor, its item, in captured code a 0-d array; or the tensor (`keeps`)."""
    if not isinstance(value, Tensor):
        return value
    if keeps:
        return value.squeeze() if value.dim() else value
    return value._array.reshape(()).astype("d") if is_compiling() else value.item()


def betas_of(group: dict[str, Any], keeps: bool = False) -> tuple[Any, Any]:
    """The factors of averages of a group, as `hyper` has them."""
    first, second = group["betas"]
    return hyper(first, keeps), hyper(second, keeps)


def all_params(optimizer: Optimizer) -> Iterable[Tensor]:
    """The parameters of all groups."""
    return itertools.chain.from_iterable(group["params"] for group in optimizer.param_groups)


__all__ = [
    "Optimizer", "ParamsT", "all_params", "betas_of", "called", "check_betas", "check_eps", "check_fused", "check_lr",
    "check_not_negative", "hyper", "register_optimizer_step_post_hook", "register_optimizer_step_pre_hook", "required",
    "scalar_dtype", "without_grad",
]  # fmt: skip
