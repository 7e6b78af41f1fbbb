"""Modules as functions of their parameters and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.functions.joining import stack


def _owner(module: Any, name: str) -> tuple[dict[str, Any], str]:
    """The dict of a submodule that a parameter or buffer stands in, and its name there; KeyError where there is none."""
    path, _, own = name.rpartition(".")
    for part in path.split(".") if path else ():
        module = module._modules[part]
    for table in (module._parameters, module._buffers):
        if own in table:
            return table, own
    raise KeyError(name)


def _with_tied(module: Any, given: dict[str, Any]) -> dict[str, Any]:
    """What was given for one name of a tensor, for its other names too."""
    names: dict[int, list[str]] = {}
    for named in (module.named_parameters, module.named_buffers):
        for name, tensor in named(remove_duplicate=False):
            names.setdefault(id(tensor), []).append(name)
    found = dict(given)
    for tied in names.values():
        values = {id(given[name]): given[name] for name in tied if name in given}
        if len(values) > 1:
            raise ValueError(
                f"functional_call got multiple values for keys {sorted(tied)}, which are tied. Consider using tie_weights=False"
            )
        for value in values.values():
            found.update(dict.fromkeys(tied, value))
    return found


def functional_call(
    module: Any, parameter_and_buffer_dicts: Any, args: Any = None, kwargs: dict[str, Any] | None = None, *,
    tie_weights: bool = True, strict: bool = False,
) -> Any:  # fmt: skip
    """Call a module with other parameters and buffers in place of its own: a dict by name, or several dicts."""
    if isinstance(parameter_and_buffer_dicts, dict):
        given = parameter_and_buffer_dicts
    elif isinstance(parameter_and_buffer_dicts, Sequence):
        if not all(isinstance(d, dict) for d in parameter_and_buffer_dicts):
            raise ValueError("Expected all elements of parameter_and_buffer_dicts to be dictionaries")
        given = {}
        for each in parameter_and_buffer_dicts:
            repeated = given.keys() & each.keys()
            if repeated:
                raise ValueError(f"{sorted(repeated)} appeared in multiple dictionaries; behavior of functional call is ambiguous")
            given.update(each)
    else:
        raise ValueError(
            "Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got "
            f"{type(parameter_and_buffer_dicts)}"
        )
    values = _with_tied(module, given) if tie_weights else dict(given)
    if strict:
        _check_names(module, values)
    replaced: list[tuple[dict[str, Any], str, str, Any]] = []
    try:
        for name, value in values.items():
            try:
                table, own = _owner(module, name)
            except KeyError:
                if strict or name in given:
                    raise AttributeError(f"'{type(module).__name__}' object has no attribute '{name}'") from None
                continue
            replaced.append((table, own, name, table[own]))
            table[own] = value
        arguments = () if args is None else args if isinstance(args, tuple) else (args,)
        return module(*arguments, **(kwargs or {}))
    finally:
        for table, own, name, before in reversed(replaced):
            if name in given and own in table:  # buffers that the module has set anew
                given[name] = table[own]
            table[own] = before


def _check_names(module: Any, given: dict[str, Any]) -> None:
    own = {name for named in (module.named_parameters, module.named_buffers) for name, _ in named(remove_duplicate=False)}
    missing, unexpected = sorted(own - given.keys()), sorted(given.keys() - own)
    problems = []
    if missing:
        problems.append(f"Missing key(s): {', '.join(map(repr, missing))}.")
    if unexpected:
        problems.append(f"Unexpected key(s): {', '.join(map(repr, unexpected))}.")
    if problems:
        name = type(module).__name__
        raise RuntimeError("\n\t".join([f"Error(s) in reparametrizing for {name}:", *problems]))


def stack_module_state(models: Any) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters of modules of one kind, stacked by name, and their buffers: for `vmap` over `functional_call`."""
    if not len(models):
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or all(not m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = _stacked([dict(m.named_parameters()) for m in models], True)
    return parameters, _stacked([dict(m.named_buffers()) for m in models], False)


def _stacked(states: list[dict[str, Tensor]], are_parameters: bool) -> dict[str, Tensor]:
    found = {}
    for name in states[0]:
        tensors = [state[name] for state in states]
        requires = [t.requires_grad for t in tensors]
        if any(requires) and not all(requires):
            raise RuntimeError("Expected parameters from different models to have the same requires_grad state.")
        made = stack(tensors)
        found[name] = made.detach().requires_grad_(requires[0]) if are_parameters else made
    return found


__all__ = ["functional_call", "stack_module_state"]
