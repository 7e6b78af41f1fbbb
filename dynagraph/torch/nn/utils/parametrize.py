"""Parametrizations: parameters and buffers of modules that are computed of others.

    register_parametrization(layer, "weight", Symmetric())

makes ``layer.weight`` what the module `Symmetric` gives for the tensor that stands at ``layer.parametrizations.weight.original``.
Several follow one another.
"""

from __future__ import annotations

import copy
import copyreg
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn.modules.container import ModuleDict, ModuleList
from dynagraph.torch.nn.modules.module import Module


class _Cache:
    """What parametrizations gave within `cached`, by module and name."""

    depth = 0
    tensors: dict[tuple[int, str], Tensor] | None = None


_CACHE = _Cache()


@contextmanager
def cached() -> Iterator[None]:
    """Within this context a parametrized tensor is computed once, when it is first used."""
    _CACHE.depth += 1
    if _CACHE.tensors is None:
        _CACHE.tensors = {}
    try:
        yield
    finally:
        _CACHE.depth -= 1
        if not _CACHE.depth:
            _CACHE.tensors = None


def _register(module: Module, name: str, value: Tensor) -> None:
    if isinstance(value, Parameter):
        module.register_parameter(name, value)
    else:
        module.register_buffer(name, value)


def _must_be_tensor(value: Any) -> None:
    if not isinstance(value, Tensor):
        raise ValueError(f"A parametrization must return a tensor. Got {type(value).__name__}.")


def _must_be_alike(text: str, what: str, before: tuple[str, Any], after: tuple[str, Any]) -> None:
    """ValueError where what a text names has changed."""
    if before[1] != after[1]:
        raise ValueError(f"{text.format(what)}\n{before[0]}.{what}: {before[1]}\n{after[0]}.{what}: {after[1]}")


def _without_flag(article: str) -> str:
    return f"Registering a parametrization may not change the {{}} of the tensor, unless {article}`unsafe` flag is enabled."


class ParametrizationList(ModuleList):
    """The parametrizations of one tensor, and what they compute it of: `original`, or `original0`, `original1`...

    These are what the parametrizations' ``right_inverse`` give for the tensor, the last first; without that the tensor itself.
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not len(modules):
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        shape, dtype = original.shape, original.dtype
        new: Any = original
        with no_grad():
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    try:
                        new = module.right_inverse(new)
                    except NotImplementedError:
                        pass  # it says so where there is no inverse: the tensor is taken as it is
        if not isinstance(new, (Tensor, Sequence)):
            raise ValueError(
                "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). " f"Got {type(new).__name__}"
            )
        self.is_tensor = isinstance(new, Tensor)
        self.ntensors = 1 if self.is_tensor else len(new)
        if self.is_tensor:
            text = "When `right_inverse` outputs one tensor, it may not change the {}."
            for what in ("dtype", "device"):
                then = "right_inverse(original)", getattr(new, what)
                _must_be_alike(text, what, ("original", getattr(original, what)), then)
            with no_grad():
                original.set_(new)
            _register(self, "original", original)
        else:
            self._take_several(original, new)
        if not unsafe:
            result = self()
            _must_be_tensor(result)
            for what, before in (("dtype", dtype), ("shape", shape)):
                after = getattr(result, what)
                if after != before:
                    raise ValueError(
                        f"{_without_flag('').format(what)}\nunparametrized {what}: {before}\nparametrized {what}: {after}"
                    )

    def _take_several(self, original: Tensor, new: Any) -> None:
        for k, each in enumerate(new):
            if not isinstance(each, Tensor):
                raise ValueError(
                    "'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got element "
                    f"{k} of the sequence with type {type(each).__name__}."
                )
            own = Parameter(each, original.requires_grad) if isinstance(original, Parameter) else each
            own.requires_grad_(original.requires_grad)
            _register(self, f"original{k}", own)

    def right_inverse(self, value: Any) -> None:
        """Set the originals so that the parametrizations give a value, by their ``right_inverse``, the last first."""
        with no_grad():
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                value = module.right_inverse(value)
            if self.is_tensor:
                if not isinstance(value, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(value).__name__}")
                if value.dtype != self.original.dtype:
                    raise ValueError(
                        f"The tensor returned by `right_inverse` has dtype {value.dtype} while `original` has dtype "
                        f"{self.original.dtype}"
                    )
                self.original.set_(value)
            else:
                self._set_several(value)

    def _set_several(self, values: Any) -> None:
        if not isinstance(values, Sequence):
            raise ValueError(f"'right_inverse' must return a sequence of tensors. Got {type(values).__name__}.")
        if len(values) != self.ntensors:
            raise ValueError(
                f"'right_inverse' must return a sequence of tensors of length {self.ntensors}. Got a sequence of length "
                f"{len(values)}."
            )
        for k, each in enumerate(values):
            if not isinstance(each, Tensor):
                raise ValueError(
                    "'right_inverse' must return a sequence of tensors or reference-type opaques. Got element "
                    f"{k} of type {type(each).__name__}."
                )
            own = getattr(self, f"original{k}")
            if own.dtype != each.dtype:
                raise ValueError(
                    f"Tensor {k} returned by `right_inverse` has dtype {each.dtype} while `original{k}` has dtype {own.dtype}"
                )
            own.set_(each)

    def forward(self) -> Tensor:
        modules = self._modules
        if self.is_tensor:
            x = modules["0"](self.original)
        else:
            x = modules["0"](*[getattr(self, f"original{k}") for k in range(self.ntensors)])
        for k in range(1, len(modules)):
            x = modules[str(k)](x)
        return x


# -- classes of parametrized modules ----------------------------------------------------------------------------------


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    found = memo.get(id(self))
    if found is None:
        found = memo[id(self)] = self.__new__(type(self))
        found.__dict__ = copy.deepcopy(self.__dict__, memo)
        for slot in copyreg._slotnames(type(self)):  # type: ignore[attr-defined]
            if hasattr(self, slot):
                setattr(found, slot, copy.deepcopy(getattr(self, slot), memo))
    return found


def _getstate(self: Any) -> Any:
    raise RuntimeError(
        "Serialization of parametrized modules is only supported through state_dict(). See:\n"
        "https://pytorch.org/tutorials/beginner/saving_loading_models.html"
        "#saving-loading-a-general-checkpoint-for-inference-and-or-resuming-training"
    )


def _give_own_class(module: Module) -> None:
    """Make the module the only one of a class, which can have properties in its name."""
    kind = type(module)
    members: dict[str, Any] = {"__getstate__": _getstate}
    if not hasattr(kind, "__deepcopy__"):
        members["__deepcopy__"] = _deepcopy
    module.__class__ = type(f"Parametrized{kind.__name__}", (kind,), members)


def _add_property(module: Module, name: str) -> None:
    """Make reading the name compute the tensor, and writing it set the originals."""
    assert not hasattr(module, name)

    def get(self: Any) -> Any:
        parametrization = self.parametrizations._modules[name]
        tensors = _CACHE.tensors
        if tensors is None:
            return parametrization()
        key = (id(self), name)
        if key not in tensors:
            tensors[key] = parametrization()
        return tensors[key]

    def put(self: Any, value: Any) -> None:
        self.parametrizations[name].right_inverse(value)

    setattr(type(module), name, property(get, put))


# -- functions --------------------------------------------------------------------------------------------------------


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether a module has parametrizations; or the tensor of this name has."""
    found = getattr(module, "parametrizations", None)
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def type_before_parametrizations(module: Module) -> type:
    """The class that a module had before it was parametrized."""
    return type(module).__bases__[0] if is_parametrized(module) else type(module)


def _check_another(module: Module, name: str, parametrization: Any) -> None:
    """ValueError where a further parametrization gives what does not fit."""
    own = getattr(module, name)
    given = parametrization(own)
    _must_be_tensor(given)
    for what in ("dtype", "shape"):
        then = f"parametrization(module.{name})", getattr(given, what)
        _must_be_alike(_without_flag("the "), what, (f"module.{name}", getattr(own, what)), then)
    if not hasattr(parametrization, "right_inverse"):
        return
    try:
        back = parametrization.right_inverse(given)
    except NotImplementedError:
        return
    if not isinstance(back, Tensor):
        raise ValueError(f"parametrization.right_inverse must return a tensor. Got: {type(back).__name__}")
    text = (
        f"The tensor returned by parametrization.right_inverse must have the same {{}} as module.{name}, unless the `unsafe` flag "
        "is enabled."
    )
    for what in ("dtype", "shape"):
        before, after = getattr(own, what), getattr(back, what)
        if before != after:
            raise ValueError(f"{text.format(what)}\nmodule.{name}.{what}: {before}\nreturned {what}: {after}")


def register_parametrization(module: Module, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Module:
    """Have a parameter or buffer of a module computed by another module.

    unsafe: it may have another dtype or shape, which otherwise are checked.

    >>> from dynagraph import torch
    >>> class Symmetric(torch.nn.Module):
    ...     def forward(self, x):
    ...         return x.triu() + x.triu(1).mT
    >>> layer = torch.nn.utils.parametrize.register_parametrization(torch.nn.Linear(2, 2), "weight", Symmetric())
    >>> bool((layer.weight == layer.weight.mT).all()), [name for name, _ in layer.named_parameters()]
    (True, ['bias', 'parametrizations.weight.original'])
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        if not unsafe:
            _check_another(module, tensor_name, parametrization)
        own = module.parametrizations[tensor_name]
        own.append(parametrization)
        own.unsafe |= unsafe
    elif tensor_name in module._buffers or tensor_name in module._parameters:
        own = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
        delattr(module, tensor_name)
        if not is_parametrized(module):
            _give_own_class(module)
            module.parametrizations = ModuleDict()
        _add_property(module, tensor_name)
        module.parametrizations[tensor_name] = own
    else:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'"
        )
    return module


def remove_parametrizations(module: Module, tensor_name: str, leave_parametrized: bool = True) -> Module:
    """Make a tensor a parameter or buffer again: with the value that it has; or that of its original, where there is one."""
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    own = module.parametrizations[tensor_name]
    if own.is_tensor:
        original = own.original
        if leave_parametrized:
            with no_grad():
                original.set_(getattr(module, tensor_name))
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        original = Parameter(value) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of "
            "tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    _register(module, tensor_name, original)
    if not is_parametrized(module):
        del module.parametrizations
        module.__class__ = type(module).__bases__[0]
    return module


def transfer_parametrizations_and_params(from_module: Module, to_module: Module, tensor_name: str | None = None) -> Module:
    """Give a module the parametrizations of another one, and their originals: all of them, or those of one tensor."""
    if not is_parametrized(from_module):
        return to_module
    for name in from_module.parametrizations if tensor_name is None else [tensor_name]:
        theirs = from_module.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(getattr(from_module, name)))
        for parametrization in theirs:
            register_parametrization(to_module, name, parametrization)
        own = to_module.parametrizations[name]
        for each in ("original",) if theirs.is_tensor else (f"original{k}" for k in range(theirs.ntensors)):
            setattr(own, each, getattr(theirs, each))
    return to_module


__all__ = [
    "ParametrizationList", "cached", "is_parametrized", "register_parametrization", "remove_parametrizations",
    "transfer_parametrizations_and_params", "type_before_parametrizations",
]  # fmt: skip
