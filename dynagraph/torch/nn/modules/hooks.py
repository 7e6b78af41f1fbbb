"""Hooks of modules: where they are kept, and calls of modules that have some.

A module without hooks has no `ModuleHooks`, so that a plain call asks for two attributes and no more.
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from dynagraph.torch.autograd.function import Function
from dynagraph.torch.core.grad_mode import is_grad_enabled
from dynagraph.torch.core.nodes import Removable
from dynagraph.torch.core.tensor import Tensor

Hook = Callable[..., Any]
# PyTorch's names of a module's tables of hooks
TABLES = (
    "_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks", "_state_dict_pre_hooks", "_state_dict_hooks",
    "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks",
)  # fmt: skip
# and of what is said of these hooks
OPTIONS = (
    "_is_full_backward_hook", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks_with_kwargs",
)  # fmt: skip


class ModuleHooks:
    """The hooks of a module, or of all modules: for each kind a table from numbers to functions.

    `with_kwargs`, `always_called`, `with_module`: the numbers of forward and state dict hooks that were put on with these options.
    """

    def __init__(self) -> None:
        for table in TABLES:
            setattr(self, table, OrderedDict())
        self.with_kwargs: set[int] = set()
        self.always_called: set[int] = set()
        self.with_module: set[int] = set()
        self.is_full_backward: bool | None = None

    def put(self, table: str, hook: Hook, prepend: bool = False) -> Removable:
        """Add a hook, behind the others or before them; the handle takes it off."""
        hooks = getattr(self, table)
        handle = Removable(hooks)
        hooks[handle.id] = hook
        if prepend:
            hooks.move_to_end(handle.id, last=False)
        return handle

    def has_forward(self) -> bool:
        """Whether calls of the module ask for any of them."""
        return bool(self._forward_pre_hooks or self._forward_hooks or self._backward_pre_hooks or self._backward_hooks)

    def options(self) -> dict[str, Any]:
        """The options of its hooks, by the names of PyTorch's tables."""
        kwargs, always = self.with_kwargs, self.always_called
        return {
            "_is_full_backward_hook": self.is_full_backward,
            "_forward_hooks_with_kwargs": OrderedDict((k, True) for k in self._forward_hooks if k in kwargs),
            "_forward_hooks_always_called": OrderedDict((k, True) for k in self._forward_hooks if k in always),
            "_forward_pre_hooks_with_kwargs": OrderedDict((k, True) for k in self._forward_pre_hooks if k in kwargs),
        }

    def set_options(self, options: dict[str, Any]) -> None:
        """Take what `options` gives."""
        self.is_full_backward = options.get("_is_full_backward_hook")
        self.with_kwargs.update(options.get("_forward_hooks_with_kwargs", ()), options.get("_forward_pre_hooks_with_kwargs", ()))
        self.always_called.update(options.get("_forward_hooks_always_called", ()))

    _forward_pre_hooks: OrderedDict[int, Hook]
    _forward_hooks: OrderedDict[int, Hook]
    _backward_pre_hooks: OrderedDict[int, Hook]
    _backward_hooks: OrderedDict[int, Hook]
    _state_dict_pre_hooks: OrderedDict[int, Hook]
    _state_dict_hooks: OrderedDict[int, Hook]
    _load_state_dict_pre_hooks: OrderedDict[int, Hook]
    _load_state_dict_post_hooks: OrderedDict[int, Hook]


def forget_if_empty(module: Any) -> None:
    """Let a module whose last hook has been taken off be one without hooks again: its calls are plain."""
    own = module._hooks
    if own is not None and not any(getattr(own, table) for table in TABLES):
        del module.__dict__["_hooks"]


class AllModules:
    """Hooks of all modules, and those that are called when something is registered in a module; None: there have been none."""

    hooks: ModuleHooks | None = None
    registrations: dict[str, OrderedDict[int, Hook]] | None = None


ALL = AllModules()
NONE = ModuleHooks()


def _of_all() -> ModuleHooks:
    if ALL.hooks is None:
        ALL.hooks = ModuleHooks()
    return ALL.hooks


def registered(kind: str, module: Any, name: str, value: Any) -> Any:
    """What a module registers: the value, or what the hooks of registrations give for it."""
    if ALL.registrations is not None:
        for hook in ALL.registrations[kind].values():
            result = hook(module, name, value)
            if result is not None:
                value = result
    return value


def _put_registration(kind: str, hook: Hook) -> Removable:
    if ALL.registrations is None:
        ALL.registrations = {each: OrderedDict() for each in ("buffer", "module", "parameter")}
    handle = Removable(ALL.registrations[kind])
    ALL.registrations[kind][handle.id] = hook
    return handle


def register_module_buffer_registration_hook(hook: Hook) -> Removable:
    """Call ``hook(module, name, buffer)`` whenever a buffer is registered; it may give another one."""
    return _put_registration("buffer", hook)


def register_module_module_registration_hook(hook: Hook) -> Removable:
    """Call ``hook(module, name, submodule)`` whenever a submodule is registered; it may give another one."""
    return _put_registration("module", hook)


def register_module_parameter_registration_hook(hook: Hook) -> Removable:
    """Call ``hook(module, name, parameter)`` whenever a parameter is registered; it may give another one."""
    return _put_registration("parameter", hook)


def register_module_forward_pre_hook(hook: Hook) -> Removable:
    """Call ``hook(module, args)`` before every module's forward; it may give other arguments."""
    return _of_all().put("_forward_pre_hooks", hook)


def register_module_forward_hook(hook: Hook, *, with_kwargs: bool = False, always_call: bool = False) -> Removable:
    """Call ``hook(module, args, output)`` after every module's forward; it may give another output."""
    return put_forward(_of_all(), hook, False, with_kwargs, always_call)


def register_module_full_backward_pre_hook(hook: Hook) -> Removable:
    """Call ``hook(module, grad_output)`` before the gradients of every module are computed."""
    return _of_all().put("_backward_pre_hooks", hook)


def register_module_full_backward_hook(hook: Hook) -> Removable:
    """Call ``hook(module, grad_input, grad_output)`` whenever the gradients of a module's inputs are there."""
    return put_backward(_of_all(), hook, True, False, "global Modules")


def register_module_backward_hook(hook: Hook) -> Removable:
    """The older form of `register_module_full_backward_hook`, with the gradients of the last operation's inputs."""
    return put_backward(_of_all(), hook, False, False, "global Modules")


def put_forward(hooks: ModuleHooks, hook: Hook, prepend: bool, with_kwargs: bool, always_call: bool) -> Removable:
    handle = hooks.put("_forward_hooks", hook, prepend)
    if with_kwargs:
        hooks.with_kwargs.add(handle.id)
    if always_call:
        hooks.always_called.add(handle.id)
    return handle


def put_backward(hooks: ModuleHooks, hook: Hook, full: bool, prepend: bool, where: str) -> Removable:
    if hooks._backward_hooks and hooks.is_full_backward is not None and hooks.is_full_backward is not full:
        raise RuntimeError(
            f"Cannot use both regular backward hooks and full backward hooks on {where}. Please use only one of them."
        )
    hooks.is_full_backward = full
    return hooks.put("_backward_hooks", hook, prepend)


# -- calls ------------------------------------------------------------------------------------------------------------


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def call(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a module's forward with its hooks and those of all modules, these first."""
    every, own = ALL.hooks or NONE, module._hooks or NONE
    if not (every.has_forward() or own.has_forward()):
        return module.forward(*args, **kwargs)
    called: set[tuple[bool, int]] = set()
    result: Any = None
    try:
        for hooks in (every, own):
            for number, hook in tuple(hooks._forward_pre_hooks.items()):
                args, kwargs = _before(module, hook, number in hooks.with_kwargs, args, kwargs)
        backward = _backward_of(module, every, own)
        if backward is not None:
            args = backward.on_inputs(args)
        result = module.forward(*args, **kwargs)
        for hooks in (every, own):
            for number, hook in tuple(hooks._forward_hooks.items()):
                if number in hooks.always_called:
                    called.add((hooks is every, number))
                result = _after(module, hook, number in hooks.with_kwargs, args, kwargs, result)
        if backward is not None:
            result = backward.on_outputs(result)
        _older_backward(module, every, own, args, result)
        return result
    except Exception:
        for hooks in (every, own):
            for number, hook in tuple(hooks._forward_hooks.items()):
                if number in hooks.always_called and (hooks is every, number) not in called:
                    try:
                        result = _after(module, hook, number in hooks.with_kwargs, args, kwargs, result)
                    except Exception as error:
                        kind = "global module forward hook" if hooks is every else "module forward hook"
                        warnings.warn(f"{kind} with ``always_call=True`` raised an exception that was silenced as another "
                                      f"error was raised in forward: {error}", stacklevel=3)  # fmt: skip
        raise


def _before(
    module: Any, hook: Hook, with_kwargs: bool, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if not with_kwargs:
        found = hook(module, args)
        return (args if found is None else _tuple(found)), kwargs
    found = hook(module, args, kwargs)
    if found is None:
        return args, kwargs
    if isinstance(found, tuple) and len(found) == 2:
        return found
    raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {found}.")


def _after(module: Any, hook: Hook, with_kwargs: bool, args: Any, kwargs: Any, result: Any) -> Any:
    found = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
    return result if found is None else found


# -- backward ---------------------------------------------------------------------------------------------------------


class _Through(Function):
    """Tensors as they are: a node that a module's gradients go through."""

    @staticmethod
    def forward(ctx: Any, *tensors: Any) -> Any:
        ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads


def _through(values: tuple[Any, ...], note: Callable[[Any, list[int]], None]) -> tuple[Any, ...]:
    """With the tensors handed through one node, if any has a gradient; `note` is given the node and the tensors' places."""
    places = [k for k, value in enumerate(values) if isinstance(value, Tensor)]
    if not (is_grad_enabled() and any(values[k].requires_grad for k in places)):
        return values
    made = _Through.apply(*[values[k] for k in places])
    nodes = [t.grad_fn for t in made if t.grad_fn is not None]
    note(nodes[0], places)
    changed = list(values)
    for k, tensor in zip(places, made):
        changed[k] = tensor
    return tuple(changed)


class _Backward:
    """The backward hooks of one call of a module."""

    def __init__(self, module: Any, hooks: list[Hook], pre_hooks: list[Hook]):
        self.module, self.hooks, self.pre_hooks = module, hooks, pre_hooks
        self.grad_outputs: Any = None
        self.inputs: tuple[int, list[int]] | None = None  # how many arguments there are, and which are tensors

    @staticmethod
    def _spread(grads: Any, count: int, places: list[int]) -> tuple[Any, ...]:
        found = [None] * count
        for k, grad in zip(places, grads):
            found[k] = grad
        return tuple(found)

    def on_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        def note(node: Any, places: list[int]) -> None:
            self.inputs = len(args), places
            node.register_hook(self._reached)

        return _through(args, note)

    def _reached(self, grad_inputs: Any, _: Any) -> Any:
        """Backward has come to the inputs: their gradients are there."""
        if self.grad_outputs is None:  # the outputs have not been reached: the gradient comes by another way
            return None
        assert self.inputs is not None
        count, places = self.inputs
        grads = self._spread(grad_inputs, count, places)
        for hook in self.hooks:
            found = hook(self.module, grads, self.grad_outputs)
            if found is not None:
                found = _tuple(found)
                if len(found) != len(grads):
                    raise RuntimeError(
                        f"Backward hook returned an invalid number of grad_input, got {len(found)}, but expected {len(grads)}"
                    )
                grads = found
        self.grad_outputs = None
        return tuple(grads[k] for k in places)

    def on_outputs(self, result: Any) -> Any:
        values = _tuple(result)

        def note(node: Any, places: list[int]) -> None:
            def arrived(grad_outputs: Any) -> Any:
                grads = self._spread(grad_outputs, len(values), places)
                for hook in self.pre_hooks:
                    found = hook(self.module, grads)
                    if found is not None:
                        found = _tuple(found)
                        if len(found) != len(grads):
                            raise RuntimeError(
                                "Backward pre hook returned an invalid number of grad_output, "
                                f"got {len(found)}, but expected {len(grads)}"
                            )
                        grads = found
                self.grad_outputs = grads
                if self.inputs is None:  # no input has a gradient: nothing else will call the hooks
                    for hook in self.hooks:
                        if hook(self.module, (), grads) is not None:
                            raise RuntimeError(
                                "Backward hook for Modules where no input requires gradient should always return None or None for "
                                "all gradients."
                            )
                    self.grad_outputs = None
                return tuple(grads[k] for k in places)

            node.register_prehook(arrived)

        changed = _through(values, note)
        return changed if isinstance(result, tuple) else changed[0]


def _backward_of(module: Any, every: ModuleHooks, own: ModuleHooks) -> _Backward | None:
    full = [hook for hooks in (every, own) if hooks.is_full_backward for hook in hooks._backward_hooks.values()]
    first = [hook for hooks in (every, own) for hook in hooks._backward_pre_hooks.values()]
    return _Backward(module, full, first) if full or first else None


def _older_backward(module: Any, every: ModuleHooks, own: ModuleHooks, args: Any, result: Any) -> None:
    """The hooks of `register_backward_hook`: on the node of the last operation."""
    older = [hook for hooks in (every, own) if hooks.is_full_backward is False for hook in hooks._backward_hooks.values()]
    if not older:
        return
    value = result
    while not isinstance(value, Tensor):
        value = next(v for v in value.values() if isinstance(v, Tensor)) if isinstance(value, dict) else value[0]
    node = value.grad_fn
    if node is None:
        return
    warnings.warn(
        "Using a non-full backward hook when the forward contains multiple autograd Nodes is deprecated and will be removed in "
        "future versions. This hook will be missing some grad_input. Please use register_full_backward_hook to get the documented "
        "behavior.",
        FutureWarning,
        stacklevel=4,
    )
    for hook in older:
        node.register_hook(lambda grad_inputs, grad_outputs, hook=hook: hook(module, grad_inputs, grad_outputs))


__all__ = [
    "ALL",
    "NONE",
    "TABLES",
    "Hook",
    "ModuleHooks",
    "call",
    "forget_if_empty",
    "put_backward",
    "put_forward",
    "register_module_backward_hook",
    "register_module_buffer_registration_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
    "register_module_module_registration_hook",
    "register_module_parameter_registration_hook",
    "registered",
]  # fmt: skip
