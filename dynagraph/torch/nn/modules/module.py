"""The Module: what layers and models are derived from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from dynagraph.torch import compiler
from dynagraph.torch.core import devices
from dynagraph.torch.core.dtypes import dtype as DType
from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.nodes import Removable
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.common import NAMESPACES
from dynagraph.torch.missing import getattr_of
from dynagraph.torch.nn.modules import compiled, hooks, states
from dynagraph.torch.nn.modules.hooks import ALL, Hook, ModuleHooks

Self = TypeVar("Self", bound="Module")
_MEMBERS = ("_parameters", "_buffers", "_modules")


def _no_forward(self: Any, *args: Any) -> None:
    """What the module computes: every subclass has its own."""
    raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')


def _table(name: str) -> property:
    """One of the tables of hooks, under PyTorch's name."""

    def get(self: Any) -> Any:
        return getattr(self._own_hooks(), name)

    return property(get)


class Module:
    """The base of layers and models: their parameters, buffers and submodules are what is set as attributes.

    A subclass calls ``super().__init__()`` first, and defines ``forward``.

    >>> from dynagraph import torch
    >>> class Scale(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.factor = torch.nn.Parameter(torch.tensor(2.0))
    ...     def forward(self, x):
    ...         return x * self.factor
    >>> Scale()(torch.ones(2))
    tensor([2., 2.], grad_fn=<MulBackward0>)
    """

    __dynagraph_by_identity__ = True  # captured code may have it in a set without depending on which module it is
    dump_patches = False
    _version = 1
    call_super_init = False
    training: bool
    _parameters: dict[str, Parameter | None]
    _buffers: dict[str, Tensor | None]
    _modules: dict[str, Module | None]
    _non_persistent_buffers_set: set[str]
    # what few modules have stands in their `__dict__`; this is what the others have
    _hooks: ModuleHooks | None = None
    _compiled_call_impl: Callable[..., Any] | None = None

    forward: Callable[..., Any] = _no_forward

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            problem = f"got an unexpected keyword argument '{next(iter(kwargs))}'" if kwargs else (
                f"takes 1 positional argument but {len(args) + 1} were given"
            )  # fmt: skip
            raise TypeError(f"{type(self).__name__}.__init__() {problem}")
        self.__dict__.update(
            training=True, _parameters={}, _buffers={}, _non_persistent_buffers_set=set(), _modules={}
        )  # not by __setattr__, which asks what is there already
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    # -- calls --------------------------------------------------------------------------------------------------------------
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._compiled_call_impl is not None:
            return self._compiled_call_impl(*args, **kwargs)
        if self._hooks is None and ALL.hooks is None:
            return self.forward(*args, **kwargs)
        return hooks.call(self, args, kwargs)

    def _call_impl(self, *args: Any, **kwargs: Any) -> Any:
        """A call that is not compiled."""
        if self._hooks is None and ALL.hooks is None:
            return self.forward(*args, **kwargs)
        return hooks.call(self, args, kwargs)

    __dynagraph_function__ = staticmethod(_call_impl)  # what `dg.compile(module)` compiles

    def __dynagraph_view__(self, function: Callable[..., Any]) -> Any:
        return compiled.view_of(self, function)

    _wrapped_call_impl = __call__

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Have calls of this module compiled, by the arguments of `torch.compile`."""
        self._compiled_call_impl = compiler.compile(self._call_impl, *args, **kwargs)

    # -- attributes ---------------------------------------------------------------------------------------------------------
    def __getattr__(self, name: str) -> Any:
        own = self.__dict__
        if "_parameters" in own:
            if name in own["_parameters"]:
                return own["_parameters"][name]
            if name in own["_buffers"]:
                return own["_buffers"][name]
            if name in own["_modules"]:
                return own["_modules"][name]
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def __setattr__(self, name: str, value: Any) -> None:
        own = self.__dict__
        if isinstance(value, Tensor):
            self._set_tensor(own, name, value)
        elif isinstance(value, Module):
            self._needs_init("module")
            self._forget(name, "_modules")
            own["_modules"][name] = value if ALL.registrations is None else hooks.registered("module", self, name, value)
        elif "_parameters" not in own:
            object.__setattr__(self, name, value)
        elif name in own["_parameters"]:
            self._check_none(name, value, "parameter", "torch.nn.Parameter or None expected")
            own["_parameters"][name] = None
        elif name in own["_modules"]:
            self._check_none(name, value, "child module", "torch.nn.Module or None expected")
            own["_modules"][name] = None
        elif name in own["_buffers"]:
            self._check_none(name, value, "buffer", "torch.nn.Buffer, torch.Tensor or None expected")
            own["_buffers"][name] = None
        else:
            object.__setattr__(self, name, value)

    def _set_tensor(self, own: dict[str, Any], name: str, value: Tensor) -> None:
        is_buffer = value._is_buffer
        if type(value) is not Tensor and isinstance(value, Parameter):  # captures cannot ask this of tensors that they compute
            self._needs_init("parameters")
            self._forget(name, "_parameters")
            self.register_parameter(name, value)
        elif "_parameters" not in own:
            if is_buffer:
                self._needs_init("buffer")
            object.__setattr__(self, name, value)
        elif name in own["_parameters"]:
            self._check_none(name, value, "parameter", "torch.nn.Parameter or None expected")
        elif name in own["_modules"]:
            self._check_none(name, value, "child module", "torch.nn.Module or None expected")
        elif is_buffer:
            persistent = getattr(value, "persistent", True)
            self._forget(name, "_buffers")
            self.register_buffer(name, value, persistent)
        elif name in own["_buffers"]:
            own["_buffers"][name] = value if ALL.registrations is None else hooks.registered("buffer", self, name, value)
        else:
            object.__setattr__(self, name, value)

    def _needs_init(self, what: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")

    def _check_none(self, name: str, value: Any, what: str, expected: str) -> None:
        if value is not None:
            raise TypeError(f"cannot assign '{_type_name(value)}' as {what} '{name}' ({expected})")

    def _forget(self, name: str, kept: str) -> None:
        """Before something of this name is registered: what is there of other kinds goes."""
        own = self.__dict__
        own.pop(name, None)
        for table in _MEMBERS:
            if table != kept:
                own[table].pop(name, None)
        if kept != "_buffers":
            own["_non_persistent_buffers_set"].discard(name)

    def __delattr__(self, name: str) -> None:
        for table in _MEMBERS:
            if name in self.__dict__.get(table, ()):
                del self.__dict__[table][name]
                self._non_persistent_buffers_set.discard(name)
                return
        super().__delattr__(name)

    def __dir__(self) -> list[str]:
        names = [*dir(type(self)), *self.__dict__, *self._parameters, *self._modules, *self._buffers]
        return sorted(name for name in names if not name[0].isdigit())

    def _check_name(self, name: Any, what: str, table: str) -> None:
        if "_parameters" not in self.__dict__:
            raise AttributeError(f"cannot assign {what} before Module.__init__() call")
        if not isinstance(name, str):
            raise TypeError(f"{what} name should be a string. Got {_type_name(name)}")
        if "." in name:
            raise KeyError(f'{what} name can\'t contain "."')
        if name == "":
            raise KeyError(f'{what} name can\'t be empty string ""')
        if hasattr(self, name) and name not in getattr(self, table):
            raise KeyError(f"attribute '{name}' already exists")

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter, or None in the place of one."""
        self._check_name(name, "parameter", "_parameters")
        if param is not None:
            if not isinstance(param, Parameter):
                raise TypeError(
                    f"cannot assign '{_type_name(param)}' object to parameter '{name}' (torch.nn.Parameter or None required)"
                )
            if param.grad_fn is not None:
                raise ValueError(
                    f"Cannot assign non-leaf Tensor to parameter '{name}'. Model parameters must be created explicitly. To express "
                    f"'{name}' as a function of another Tensor, compute the value in the forward() method."
                )
            param = hooks.registered("parameter", self, name, param)
        self._parameters[name] = param

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a buffer: a tensor that is state, but no parameter.  Persistent ones stand in state dicts."""
        self._check_name(name, "buffer", "_buffers")
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{_type_name(tensor)}' object to buffer '{name}' (torch Tensor or None required)")
        self._buffers[name] = tensor if tensor is None else hooks.registered("buffer", self, name, tensor)
        if persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a submodule."""
        if not isinstance(module, Module) and module is not None:
            raise TypeError(f"{_type_name(module)} is not a Module subclass")
        if not isinstance(name, str):
            raise TypeError(f"module name should be a string. Got {_type_name(name)}")
        if hasattr(self, name) and name not in self._modules:
            raise KeyError(f"attribute '{name}' already exists")
        if "." in name:
            raise KeyError(f'module name can\'t contain ".", got: {name}')
        if name == "":
            raise KeyError('module name can\'t be empty string ""')
        self._modules[name] = module if module is None else hooks.registered("module", self, name, module)

    register_module = add_module

    # -- by path ------------------------------------------------------------------------------------------------------------
    def get_submodule(self, target: str) -> Any:
        """The submodule at a path such as ``"encoder.layers.0"``; "" is the module itself."""
        module: Any = self
        for part in target.split(".") if target else ():
            if not hasattr(module, part):
                raise AttributeError(f"{module._get_name()} has no attribute `{part}`")
            module = getattr(module, part)
            if not isinstance(module, Module):
                raise AttributeError(f"`{part}` is not an nn.Module")
        return module

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put a submodule at a path; `strict`: there has to be one already."""
        if target == "":
            raise ValueError("Cannot set the submodule without a target name!")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if not isinstance(module, Module):
            raise ValueError(f"Submodule {module!r} is not a nn.Module")
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{parent._get_name()} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a path."""
        found = self._at(target)
        if not isinstance(found, Parameter):
            raise AttributeError(f"`{target.rpartition('.')[2]}` is not an nn.Parameter")
        return found

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a path."""
        path, _, name = target.rpartition(".")
        found = self._at(target)
        if name not in self.get_submodule(path)._buffers:
            raise AttributeError(f"`{name}` is not a buffer")
        return found

    def _at(self, target: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{module._get_name()} has no attribute `{name}`")
        return getattr(module, name)

    # -- all of them --------------------------------------------------------------------------------------------------------
    def named_modules(
        self, memo: set[Module] | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """The module and all submodules with their paths, each once."""
        if memo is None:
            memo = set()
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def modules(self, remove_duplicate: bool = True) -> Iterator[Module]:
        """The module and all submodules, each once."""
        for _, module in self.named_modules(remove_duplicate=remove_duplicate):
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The submodules of this module itself, with their names."""
        seen: set[Module] = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def children(self) -> Iterator[Module]:
        """The submodules of this module itself."""
        for _, module in self.named_children():
            yield module

    def _named_members(
        self, get_members_fn: Callable[[Any], Any], prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Any]]:
        seen: set[Any] = set()
        modules = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for path, module in modules:
            for name, value in get_members_fn(module):
                if value is None or value in seen:
                    continue
                if remove_duplicate:
                    seen.add(value)
                yield f"{path}.{name}" if path else name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """The parameters with their paths, those of submodules too (`recurse`)."""
        return self._named_members(lambda module: module._parameters.items(), prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters, those of submodules too (`recurse`), each once."""
        for _, parameter in self.named_parameters(recurse=recurse):
            yield parameter

    def named_buffers(self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True) -> Iterator[tuple[str, Tensor]]:
        """The buffers with their paths, those of submodules too (`recurse`)."""
        return self._named_members(lambda module: module._buffers.items(), prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers, those of submodules too (`recurse`), each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    # -- changes ------------------------------------------------------------------------------------------------------------
    def apply(self: Self, fn: Callable[[Module], Any]) -> Self:
        """Call a function with every submodule, and with the module last."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self: Self, mode: bool = True) -> Self:
        """Set the module and all submodules to training, or not: dropout and batch norm compute otherwise then."""
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: Self) -> Self:
        """``train(False)``"""
        return self.train(False)

    def requires_grad_(self: Self, requires_grad: bool = True) -> Self:
        """Have gradients recorded for all parameters, or not."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the parameters' gradients, or set them to zeros."""
        for parameter in self.parameters():
            if set_to_none:
                parameter.grad = None  # asked for nothing, so that compiled steps do not depend on what it was
            elif parameter.grad is not None:
                grad = parameter.grad
                if grad.grad_fn is not None:
                    grad.detach_()
                else:
                    grad.requires_grad_(False)
                grad.zero_()

    def share_memory(self: Self) -> Self:
        """Move parameters and buffers to shared memory."""
        return self._apply(lambda t: t.share_memory_())

    def _apply(self: Self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Replace every parameter, its gradient and every buffer by what a function makes of them; parameters stay the objects
        that they are."""
        if recurse:
            for module in self.children():
                module._apply(fn)
        for name, parameter in self._parameters.items():
            if parameter is None:
                continue
            with no_grad():
                made = fn(parameter)
            grad = parameter.grad
            if isinstance(made, Parameter) and made is not parameter:
                self._parameters[name] = parameter = made
            else:
                parameter.data = made
            if grad is not None:
                with no_grad():
                    grad.data = fn(grad)  # who holds the gradient sees it converted, too
                parameter.grad = grad
        for name, buffer in self._buffers.items():
            if buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self: Self, *args: Any, **kwargs: Any) -> Self:
        """Move parameters and buffers to a device, and those of floating point to a dtype: ``to(device)``, ``to(dtype)``,
        ``to(device, dtype)``, ``to(tensor)``, ``to(memory_format=...)``."""
        device, dtype, layout = _destination(*args, **kwargs)

        def convert(t: Tensor) -> Tensor:
            kind = dtype if t.is_floating_point() or t.is_complex() else None
            if layout is not None and t.dim() in (4, 5):
                return t.to(device=device, dtype=kind, memory_format=layout)
            return t.to(device=device, dtype=kind)

        return self._apply(convert)

    def to_empty(self: Self, *, device: Any, recurse: bool = True) -> Self:
        """Move to a device without the values: memory as it is there."""
        return self._apply(lambda t: NAMESPACES["torch"]["empty_like"](t, device=device), recurse)

    def cpu(self: Self) -> Self:
        """Move to the host's memory."""
        return self._apply(lambda t: t.cpu())

    def cuda(self: Self, device: Any = None) -> Self:
        """Move to a CUDA device."""
        return self._apply(lambda t: t.cuda(device))

    def type(self: Self, dst_type: Any) -> Self:
        """Convert all parameters and buffers to a dtype."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self: Self) -> Self:
        """Convert what is of floating point to float32."""
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self: Self) -> Self:
        """Convert what is of floating point to float64."""
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self: Self) -> Self:
        """Convert what is of floating point to float16."""
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self: Self) -> Self:
        """Convert what is of floating point to bfloat16."""
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    # -- state dicts --------------------------------------------------------------------------------------------------------
    def get_extra_state(self) -> Any:
        """State that is neither parameter nor buffer, for state dicts: subclasses that have some define this."""
        raise RuntimeError(
            f"{type(self).__name__} has no extra state: a module that has some defines get_extra_state and set_extra_state"
        )

    def set_extra_state(self, state: Any) -> None:
        """Take what `get_extra_state` gave."""
        raise RuntimeError(
            f"{type(self).__name__} has no extra state: a module that has some defines get_extra_state and set_extra_state"
        )

    _no_extra_state, _no_set_extra_state = get_extra_state, set_extra_state

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        states.save_own(self, destination, prefix, keep_vars)

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> Any:
        """Parameters and persistent buffers of the module and its submodules by path, as detached tensors on the same memory
        (`keep_vars`: as the parameters themselves)."""
        if args:  # as older code has them
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 and keep_vars is False else keep_vars
        return states.saved(self, destination, prefix, keep_vars)

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, strict: bool, missing_keys: list[str],
        unexpected_keys: list[str], error_msgs: list[str],
    ) -> None:  # fmt: skip
        states.load_own(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Copy a state dict's tensors into the module's.

        strict: names that lack, and names that the module does not know, are errors.  assign: take the tensors themselves.
        Gives the missing and the unexpected names; RuntimeError lists all that does not fit.
        """
        return states.load(self, state_dict, strict, assign)

    # -- hooks --------------------------------------------------------------------------------------------------------------
    def _own_hooks(self) -> ModuleHooks:
        if self._hooks is None:
            self.__dict__["_hooks"] = ModuleHooks()
        found = self._hooks
        assert found is not None
        return found

    for _name in hooks.TABLES:
        locals()[_name] = _table(_name)
    del _name

    def register_forward_pre_hook(self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False) -> Removable:
        """Call ``hook(module, args)`` (or with kwargs) before forward; it may give other arguments."""
        own = self._own_hooks()
        handle = own.put("_forward_pre_hooks", hook, prepend)
        if with_kwargs:
            own.with_kwargs.add(handle.id)
        return handle

    def register_forward_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> Removable:
        """Call ``hook(module, args, output)`` (or with kwargs) after forward; it may give another output.

        always_call: also where forward raises an error.
        """
        return hooks.put_forward(self._own_hooks(), hook, prepend, with_kwargs, always_call)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> Removable:
        """Call ``hook(module, grad_output)`` before the module's gradients are computed; it may give another gradient."""
        return self._own_hooks().put("_backward_pre_hooks", hook, prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> Removable:
        """Call ``hook(module, grad_input, grad_output)`` when the gradients of the inputs are there; it may give others."""
        return hooks.put_backward(self._own_hooks(), hook, True, prepend, "a single Module")

    def register_backward_hook(self, hook: Hook) -> Removable:
        """The older form of `register_full_backward_hook`, with the gradients of the last operation's inputs."""
        return hooks.put_backward(self._own_hooks(), hook, False, False, "a single Module")

    def register_state_dict_pre_hook(self, hook: Hook) -> Removable:
        """Call ``hook(module, prefix, keep_vars)`` before `state_dict`."""
        return self._own_hooks().put("_state_dict_pre_hooks", hook)

    def register_state_dict_post_hook(self, hook: Hook) -> Removable:
        """Call ``hook(module, state_dict, prefix, local_metadata)`` after `state_dict`; it may change the dict."""
        own = self._own_hooks()
        handle = own.put("_state_dict_hooks", hook)
        own.with_module.add(handle.id)
        return handle

    def _register_state_dict_hook(self, hook: Hook) -> Removable:
        if getattr(hook, "_from_public_api", False):
            raise RuntimeError("Cannot register the same function as the state dict post hook that was previously registered via "
                               "register_state_dict_post_hook")  # fmt: skip
        return self._own_hooks().put("_state_dict_hooks", hook)

    def register_load_state_dict_pre_hook(self, hook: Hook) -> Removable:
        """Call ``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`` before the
        module's own state is loaded."""
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Hook, with_module: bool = False) -> Removable:
        own = self._own_hooks()
        handle = own.put("_load_state_dict_pre_hooks", hook)
        if with_module:
            own.with_module.add(handle.id)
        return handle

    def register_load_state_dict_post_hook(self, hook: Hook) -> Removable:
        """Call ``hook(module, incompatible_keys)`` after the state is loaded; it may change the lists."""
        return self._own_hooks().put("_load_state_dict_post_hooks", hook)

    # -- copies and texts ---------------------------------------------------------------------------------------------------
    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        state.pop("_compiled_call_impl", None)
        return state

    def _reduced_for_files(self, protocol: int) -> Any:
        """How `torch.save` pickles it: with its hooks in PyTorch's tables."""
        kind = type(self)
        if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
            return NotImplemented
        make, args, state, *rest = tuple(self.__reduce_ex__(protocol))
        if not isinstance(state, dict) or "_parameters" not in state:  # of a __getstate__ of its class's own
            return make, args, state, *rest
        own = state.get("_hooks") or hooks.NONE
        tables = {name: getattr(own, name) for name in hooks.TABLES}
        state = {name: value for name, value in state.items() if name != "_hooks"} | self._file_state()
        state |= {name: table for name, table in tables.items() if table or name in ("_forward_hooks", "_backward_hooks")}
        return make, args, state if own is hooks.NONE else state | own.options(), *rest

    def _file_state(self) -> dict[str, Any]:
        """What stands in files beside `__getstate__`: attributes that PyTorch's module has and this one computes."""
        return {}

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        stored = {name: state.pop(name) for name in hooks.TABLES if name in state}  # of a module that is saved in a file
        options = {name: state.pop(name) for name in hooks.OPTIONS if name in state}
        self.__dict__.update(state)
        for name, table in stored.items():
            if table:
                getattr(self._own_hooks(), name).update(table)
        if any(stored.values()):
            self._own_hooks().set_options(options)

    def _replicate_for_data_parallel(self) -> Any:
        """A module of the same class whose tables of members are copies."""
        replica = self.__new__(type(self))
        replica.__dict__.update(self.__dict__)
        replica.__dict__.update(_parameters={}, _buffers=self._buffers.copy(), _modules=self._modules.copy(), _is_replica=True)
        return replica

    def _get_name(self) -> str:
        return type(self).__name__

    def extra_repr(self) -> str:
        """What `repr` shows of the module itself, between its parentheses."""
        return ""

    def __repr__(self) -> str:
        extra = self.extra_repr()
        first = extra.split("\n") if extra else []
        children = [f"({name}): {_indented(repr(module))}" for name, module in self._modules.items()]
        lines = first + children
        if not lines:
            return f"{self._get_name()}()"
        if len(first) == 1 and not children:
            return f"{self._get_name()}({first[0]})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines) + "\n)"


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _type_name(value: Any) -> str:
    if isinstance(value, Tensor):
        return value.type()
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _destination(
    *args: Any, device: Any = None, dtype: Any = None, non_blocking: bool = False, memory_format: Any = None
) -> tuple[Any, Any, Any]:
    for arg in args:
        if isinstance(arg, DType):
            dtype = arg
        elif isinstance(arg, Tensor):
            dtype, device = arg.dtype, arg.device
        elif arg is not None and not isinstance(arg, bool):
            device = arg
    if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
        raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got desired dtype={dtype}")
    return None if device is None else devices.device(device), dtype, memory_format


# what PyTorch has in this module, too
_ELSEWHERE = dict.fromkeys((name for name in vars(hooks) if name.startswith("register_module_")), hooks.__name__)
__getattr__ = getattr_of(__name__, {**_ELSEWHERE, "_IncompatibleKeys": states.__name__})
__all__ = ["Module"]
