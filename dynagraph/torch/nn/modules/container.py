"""Containers: modules one after the other, and lists and dicts of modules and parameters."""

from __future__ import annotations

import operator
import warnings
from collections import OrderedDict
from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, ValuesView
from itertools import chain, islice
from typing import Any, TypeVar

from dynagraph.torch.core.parameter import Parameter
from dynagraph.torch.core.tensor import Tensor
from dynagraph.torch.nn.modules.module import Module, _indented

_Numbered = TypeVar("_Numbered", bound="_NumberedModules")


class Container(Module):
    """Deprecated: a Module that is given its submodules by name."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__()
        text = "nn.Container is deprecated. All of it's functionality is now implemented in nn.Module. Subclass that instead."
        warnings.warn(text, FutureWarning, stacklevel=2)
        for key, value in kwargs.items():
            self.add_module(key, value)


def _position(idx: Any, size: int) -> int:
    """An index as one from the front; IndexError where there is none."""
    number = operator.index(idx)
    if not -size <= number < size:
        raise IndexError(f"index {number} is out of range")
    return number % size


class _NumberedModules(Module):
    """What lists of modules have: submodules under the names "0", "1", ..."""

    _modules: dict[str, Module]  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __delitem__(self, idx: int | slice) -> None:
        keys = list(self._modules)
        for key in keys[idx] if isinstance(idx, slice) else (keys[_position(idx, len(keys))],):
            delattr(self, key)
        self._modules = {str(k): module for k, module in enumerate(self._modules.values())}

    def pop(self, key: int | slice) -> Any:
        """Take out a module, or those of a slice."""
        found = self[key]
        del self[key]
        return found

    def append(self: _Numbered, module: Module) -> _Numbered:
        """Add a module behind the others."""
        self.add_module(str(len(self)), module)
        return self

    def _make_room(self, index: int, module: Module) -> None:
        for k in range(len(self._modules), index, -1):
            self._modules[str(k)] = self._modules[str(k - 1)]
        self._modules[str(index)] = module


class Sequential(_NumberedModules):
    """Modules one after the other: each gets what the one before gave.

    They are arguments, or the values of one OrderedDict whose keys are their names.

    >>> from dynagraph import torch
    >>> nn = torch.nn
    >>> nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))[1:]
    Sequential(
      (1): ReLU()
      (2): Linear(in_features=3, out_features=1, bias=True)
    )
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], OrderedDict):
            for key, module in args[0].items():
                self.add_module(key, module)
        else:
            for k, module in enumerate(args):
                self.add_module(str(k), module)

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)
        return input

    def _key(self, idx: Any) -> str:
        return next(islice(self._modules, _position(idx, len(self)), None))

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(OrderedDict(list(self._modules.items())[idx]))
        return self._modules[self._key(idx)]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._key(idx), module)

    def __add__(self, other: Any) -> Sequential:
        _check_sequential(other)
        return Sequential(*self, *other)

    def __iadd__(self, other: Any) -> Any:
        _check_sequential(other)
        for k, module in enumerate(list(other), len(self)):
            self.add_module(str(k), module)
        return self

    def _check_factor(self, other: Any) -> None:
        if not isinstance(other, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(other)}")
        if other <= 0:
            raise ValueError(f"Non-positive multiplication factor {other} for {type(self)}")

    def __mul__(self, other: int) -> Sequential:
        self._check_factor(other)
        return Sequential(*(module for _ in range(other) for module in self))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Any:
        self._check_factor(other)
        own = list(self)
        for k in range(len(own), len(own) * other):
            self.add_module(str(k), own[k % len(own)])
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put a module at a place; those from there on move one further."""
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        size = len(self)
        if not -size <= index <= size:
            raise IndexError(f"Index out of range: {index}")
        self._make_room(index + size if index < 0 else index, module)
        return self

    def extend(self, sequential: Iterable[Module]) -> Any:
        """Add modules behind the others."""
        for module in sequential:
            self.append(module)
        return self


def _check_sequential(other: Any) -> None:
    if not isinstance(other, Sequential):
        raise ValueError(f"add operator supports only objects of Sequential class, but {type(other)} is given.")


class ModuleList(_NumberedModules):
    """A list of modules, which are registered.  It computes nothing by itself.

    >>> from dynagraph import torch
    >>> torch.nn.ModuleList(torch.nn.Linear(2, 2) for _ in range(3))
    ModuleList(
      (0-2): 3 x Linear(in_features=2, out_features=2, bias=True)
    )
    """

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def _get_abs_string_index(self, idx: Any) -> str:
        return str(_position(idx, len(self)))

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)(list(self._modules.values())[idx])
        return self._modules[self._get_abs_string_index(idx)]

    def __setitem__(self, idx: int, module: Module) -> None:
        setattr(self, self._get_abs_string_index(idx), module)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList(chain(self, other))

    def __iadd__(self, modules: Iterable[Module]) -> Any:
        return self.extend(modules)

    def __repr__(self) -> str:
        lines = [
            f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            for first, last, text in _runs(map(repr, self))
        ]
        return f"{self._get_name()}(\n  " + "\n  ".join(map(_indented, lines)) + "\n)" if lines else f"{self._get_name()}()"

    def insert(self, index: int, module: Module) -> None:
        """Put a module at a place; those from there on move one further."""
        self._make_room(index, module)

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add modules behind the others."""
        if not isinstance(modules, Iterable):
            raise TypeError(f"ModuleList.extend should be called with an iterable, but got {type(modules).__name__}")
        for k, module in enumerate(modules, len(self)):
            self.add_module(str(k), module)
        return self


def _runs(texts: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """Equal texts one after the other: first and last place, and the text."""
    first, before = 0, None
    last = -1
    for last, text in enumerate(texts):
        if text != before:
            if before is not None:
                yield first, last - 1, before
            first, before = last, text
    if before is not None:
        yield first, last, before


def _pairs(kind: str, given: Any) -> Iterator[tuple[str, Any]]:
    """The pairs of an iterable that `update` is given; TypeError or ValueError where it has others."""
    for k, pair in enumerate(given):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{kind} update sequence element #{k} should be Iterable; is{type(pair).__name__}")
        if len(pair) != 2:
            raise ValueError(f"{kind} update sequence element #{k} has length {len(pair)}; 2 is required")
        yield pair[0], pair[1]


class ModuleDict(Module):
    """A dict of modules, which are registered.  It computes nothing by itself."""

    _modules: dict[str, Module]  # type: ignore[assignment]

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        """Take out all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Take out a module."""
        return self._modules.pop(key)

    def keys(self) -> KeysView[str]:
        """The keys."""
        return self._modules.keys()

    def items(self) -> ItemsView[str, Module]:
        """The keys with their modules."""
        return self._modules.items()

    def values(self) -> ValuesView[Module]:
        """The modules."""
        return self._modules.values()

    def update(self, modules: Any) -> None:
        """Add the modules of a mapping, or of pairs of key and module."""
        if not isinstance(modules, Iterable):
            raise TypeError(
                f"ModuleDict.update should be called with an iterable of key/value pairs, but got {type(modules).__name__}"
            )
        is_mapping = isinstance(modules, (Mapping, ModuleDict))
        for key, module in modules.items() if is_mapping else _pairs("ModuleDict", modules):
            self[key] = module


# -- of parameters ----------------------------------------------------------------------------------------------------


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _described(key: Any, value: Any, kind: Any) -> str:
    """A line of the containers' `repr`; `kind` is how it names the type of a tensor."""
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    what = "Parameter" if isinstance(value, Parameter) else "Tensor"
    where = f" ({value.device})" if value.device.type == "cuda" else ""
    return f"  ({key}): {what} containing: [{kind(value)} of size {'x'.join(map(str, value.shape))}{where}]"


class ParameterList(Module):
    """A list of parameters, which are registered; tensors become parameters, other values are just kept."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _get_abs_string_index(self, idx: Any) -> str:
        return str(_position(idx, self._size))

    def __getitem__(self, idx: int | slice) -> Any:
        if isinstance(idx, slice):
            return type(self)([self[k] for k in range(self._size)[idx]])
        return getattr(self, self._get_abs_string_index(idx))

    def __setitem__(self, idx: int, param: Any) -> None:
        setattr(self, self._get_abs_string_index(idx), _as_parameter(param))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[k] for k in range(self._size)])

    def __iadd__(self, parameters: Iterable[Any]) -> Any:
        return self.extend(parameters)

    def append(self, value: Any) -> Any:
        """Add a value behind the others."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Any:
        """Add values behind the others."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise TypeError(f"ParameterList.extend should be called with an iterable, but got {type(values).__name__}")
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_described(k, value, lambda t: t.dtype) for k, value in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("ParameterList should not be called.")


class ParameterDict(Module):
    """A dict of parameters, which are registered; tensors become parameters, other values are just kept."""

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _key_to_attr(self, key: str) -> str:
        if not isinstance(key, str):
            raise TypeError(
                "Index given to ParameterDict cannot be used as a key as it is not a string (type is "
                f"'{type(key).__name__}'). Open an issue on github if you need non-string keys."
            )
        return key

    def __getitem__(self, key: str) -> Any:
        return getattr(self, self._key_to_attr(key))

    def __setitem__(self, key: str, value: Any) -> None:
        self._keys[key] = None
        setattr(self, self._key_to_attr(key), _as_parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._key_to_attr(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """Another dict with the same values."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value at a key, which is set before where there is none."""
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take out all values."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take out a value."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Take out the last value; with its key."""
        key, _ = self._keys.popitem()
        self._keys[key] = None
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value at a key, or the default."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A dict of these keys, all with the same value."""
        return ParameterDict((key, default) for key in keys)

    def keys(self) -> KeysView[str]:
        """The keys."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """The keys with their values."""
        return ((key, self[key]) for key in self._keys)

    def values(self) -> Iterable[Any]:
        """The values."""
        return (self[key] for key in self._keys)

    def update(self, parameters: Any) -> None:
        """Add the values of a mapping (a plain one's in the order of its keys), or of pairs of key and value."""
        if not isinstance(parameters, Iterable):
            raise TypeError(
                f"ParametersDict.update should be called with an iterable of key/value pairs, but got {type(parameters).__name__}"
            )
        if isinstance(parameters, (OrderedDict, ParameterDict)):
            pairs: Any = parameters.items()
        elif isinstance(parameters, Mapping):
            pairs = sorted(parameters.items())
        else:
            pairs = _pairs("ParameterDict", parameters)
        for key, value in pairs:
            self[key] = value

    def extra_repr(self) -> str:
        return "\n".join(_described(key, value, lambda t: t.type()) for key, value in self.items())

    def __call__(self, input: Any) -> Any:
        raise RuntimeError("ParameterDict should not be called.")

    def __or__(self, other: ParameterDict) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: ParameterDict) -> ParameterDict:
        made = other.copy()
        made.update(self)
        return made

    def __ior__(self, other: ParameterDict) -> Any:
        self.update(other)
        return self


__all__ = ["Container", "ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]
