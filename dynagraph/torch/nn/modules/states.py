"""State dicts of modules: what is saved, and how it is put back."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Mapping
from typing import Any

from dynagraph.torch.core.grad_mode import no_grad
from dynagraph.torch.core.parameter import Parameter, is_lazy
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn.modules.hooks import NONE

EXTRA = "_extra_state"


class _IncompatibleKeys(namedtuple("_IncompatibleKeys", ("missing_keys", "unexpected_keys"))):
    """What `load_state_dict` gives: the names that it lacked, and those that it did not know."""

    __slots__ = ()

    def __repr__(self) -> str:
        return super().__repr__() if self.missing_keys or self.unexpected_keys else "<All keys matched successfully>"

    __str__ = __repr__


def own_states(module: Any) -> dict[str, Any]:
    """A module's own parameters and persistent buffers by name, without those that are None."""
    found = {name: value for name, value in module._parameters.items() if value is not None}
    skipped = module._non_persistent_buffers_set
    found.update((name, value) for name, value in module._buffers.items() if value is not None and name not in skipped)
    return found


def save_own(module: Any, destination: Any, prefix: str, keep_vars: bool) -> None:
    """Put a module's own state into a dict."""
    for name, value in own_states(module).items():
        destination[prefix + name] = value if keep_vars else value.detach()
    if type(module).get_extra_state is not type(module)._no_extra_state:
        destination[prefix + EXTRA] = module.get_extra_state()


def saved(module: Any, destination: Any, prefix: str, keep_vars: bool) -> Any:
    """The state dict of a module and its submodules."""
    if destination is None:
        destination = OrderedDict()
        destination._metadata = OrderedDict()
    own_metadata = {"version": module._version}
    if hasattr(destination, "_metadata"):
        destination._metadata[prefix[:-1]] = own_metadata
    hooks = module._hooks or NONE
    for hook in tuple(hooks._state_dict_pre_hooks.values()):
        hook(module, prefix, keep_vars)
    module._save_to_state_dict(destination, prefix, keep_vars)
    for name, child in module._modules.items():
        if child is not None:
            child.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
    for number, hook in tuple(hooks._state_dict_hooks.items()):
        result = hook(module, destination, prefix, own_metadata)
        if number in hooks.with_module:  # of register_state_dict_post_hook, which may not replace it
            if result is not None:
                raise RuntimeError("state_dict post-hook must return None")
        elif result is not None:
            destination = result
    return destination


def load_own(
    module: Any, state: Any, prefix: str, metadata: Any, strict: bool, missing: list[str], unexpected: list[str], errors: list[str]
) -> None:
    """Take a module's own parameters and buffers out of a state dict; what does not fit is added to the lists."""
    hooks = module._hooks or NONE
    for number, hook in tuple(hooks._load_state_dict_pre_hooks.items()):
        first = (module,) if number in hooks.with_module else ()
        hook(*first, state, prefix, metadata, strict, missing, unexpected, errors)
    assign = metadata.get("assign_to_params_buffers", False)
    own = own_states(module)
    for name, value in own.items():
        key = prefix + name
        if key in state:
            _load_one(module, name, key, value, state[key], assign, errors)
        elif strict:
            missing.append(key)
    extra = prefix + EXTRA
    if type(module).set_extra_state is not type(module)._no_set_extra_state:
        if extra in state:
            module.set_extra_state(state[extra])
        elif strict:
            missing.append(extra)
    elif strict and extra in state:
        unexpected.append(extra)
    if strict:
        for key in state:
            if key.startswith(prefix) and key != extra:
                first_part, *rest = key[len(prefix) :].split(".", 1)
                if first_part not in module._modules if rest else first_part not in own:
                    unexpected.append(key)


def _load_one(module: Any, name: str, key: str, value: Any, given: Any, assign: bool, errors: list[str]) -> None:
    if not isinstance(given, Tensor):
        errors.append(
            f'While copying the parameter named "{key}", expected torch.Tensor or Tensor-like object from checkpoint but received '
            f"{type(given)}"
        )
        return
    lazy = is_lazy(value)
    if not lazy and value.dim() == 0 and given.dim() == 1 and len(given) == 1:  # as scalars were saved once
        given = given[0]
    if not lazy and given.shape != value.shape:
        errors.append(
            f"size mismatch for {key}: copying a param with shape {given.shape} from checkpoint, the shape in current model is "
            f"{value.shape}."
        )
        return
    try:
        with no_grad():
            if not assign:
                value.copy_(given)
                return
            if isinstance(value, Parameter):
                if not isinstance(given, Parameter):
                    given = Parameter(given, requires_grad=value.requires_grad)
                else:
                    given.requires_grad_(value.requires_grad)
            setattr(module, name, given)
    except Exception as error:
        where = "" if lazy else f"whose dimensions in the model are {value.size()} and "
        errors.append(
            f'While copying the parameter named "{key}", {where}whose dimensions in the checkpoint are {given.size()}, an '
            f"exception occurred : {error.args}."
        )


def load(module: Any, state_dict: Any, strict: bool, assign: bool) -> _IncompatibleKeys:
    """Put a state dict into a module and its submodules; RuntimeError names all that does not fit."""
    if not isinstance(state_dict, Mapping):
        raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}.")
    missing: list[str] = []
    unexpected: list[str] = []
    errors: list[str] = []
    metadata = getattr(state_dict, "_metadata", None)
    state: Any = OrderedDict(state_dict)
    if metadata is not None:
        state._metadata = metadata
    _load_tree(module, state, "", metadata, strict, assign, (missing, unexpected, errors))
    if strict:
        if unexpected:
            errors.insert(0, f"Unexpected key(s) in state_dict: {', '.join(_quoted(unexpected))}. ")
        if missing:
            errors.insert(0, f"Missing key(s) in state_dict: {', '.join(_quoted(missing))}. ")
    if errors:
        lines = "\n\t".join(errors)
        raise RuntimeError(f"Error(s) in loading state_dict for {type(module).__name__}:\n\t{lines}")
    return _IncompatibleKeys(missing, unexpected)


def _quoted(names: list[str]) -> list[str]:
    return [f'"{name}"' for name in names]


def _load_tree(module: Any, state: Any, prefix: str, metadata: Any, strict: bool, assign: bool, lists: Any) -> None:
    missing, unexpected, errors = lists
    own_metadata = {} if metadata is None else metadata.get(prefix[:-1], {})
    if assign:
        own_metadata["assign_to_params_buffers"] = assign
    module._load_from_state_dict(state, prefix, own_metadata, True, missing, unexpected, errors)
    for name, child in module._modules.items():
        if child is not None:
            inner = f"{prefix}{name}."
            part = {key: value for key, value in state.items() if key.startswith(inner)}
            _load_tree(child, part, inner, metadata, strict, assign, lists)
    result = _IncompatibleKeys(missing, unexpected)
    for hook in tuple((module._hooks or NONE)._load_state_dict_post_hooks.values()):
        if hook(module, result) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values, if "
                "incompatible_keys need to be modified, it should be done inplace."
            )


__all__ = ["EXTRA", "_IncompatibleKeys", "load", "load_own", "own_states", "save_own", "saved"]
