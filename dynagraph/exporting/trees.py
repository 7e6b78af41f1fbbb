"""Arguments and results as trees: what is static of them, and where each array stands.

A tree is nested tuples whose first item says what it is:

    ("array" | "tensor" | "scalar" | "number", k)   the k-th array
    ("none",)  ("constant", value)                  what was given at the export
    ("tuple" | "list", items)  ("dict", keys, items)  ("namedtuple", (name, fields), items)
"""

from __future__ import annotations

import collections
import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from dynagraph.errors import ExportError
from dynagraph.pytree import DICTS

Tree = tuple[Any, ...]
LEAVES = ("array", "tensor", "scalar", "number")
CONSTANTS = (bool, int, float, complex, str, bytes)
TENSOR = "dynagraph.torch.core.tensor"


def tensor_class() -> Any:
    """dynagraph.torch's Tensor, if it is loaded: otherwise nobody has one."""
    module = sys.modules.get(TENSOR)
    return None if module is None else module.Tensor


def array_of(leaf: Any) -> Any:
    """The array that a leaf is or holds."""
    return leaf._array if _is_tensor(leaf) else leaf


def _is_tensor(value: Any) -> bool:
    tensor = tensor_class()
    return tensor is not None and isinstance(value, tensor)


def kind_of(leaf: Any) -> str | None:
    """What of a leaf of arguments the program takes; None: nothing, it is a constant."""
    if _is_tensor(leaf):
        return "tensor"
    if type(leaf) is np.ndarray:
        return "array"
    return "scalar" if isinstance(leaf, np.generic) else None


def tree_of(value: Any, name: str, found: list[tuple[str, Any]]) -> Tree:
    """The tree of an argument; its arrays are added to `found`, each with how it is reached from the argument."""
    kind = kind_of(value)
    if kind is not None:
        found.append((name, value))
        return (kind, len(found) - 1)
    cls = type(value)
    if value is None:
        return ("none",)
    if cls in CONSTANTS:
        return ("constant", value)
    if cls is tuple or cls is list:
        return (cls.__name__, tuple(tree_of(item, f"{name}[{k}]", found) for k, item in enumerate(value)))
    if issubclass(cls, tuple) and hasattr(cls, "_fields"):
        items = zip(cls._fields, value)
        return ("namedtuple", (cls.__name__, tuple(cls._fields)), tuple(tree_of(item, f"{name}.{k}", found) for k, item in items))
    if cls in DICTS and all(type(key) in CONSTANTS for key in value):
        return ("dict", tuple(value), tuple(tree_of(item, f"{name}[{key!r}]", found) for key, item in value.items()))
    raise ExportError(
        f"export: {name} is of type {cls.__name__}; arguments are arrays, tensors, numbers, strings and None, "
        "in tuples, lists, dicts and named tuples"
    )


def flattened(tree: Tree, value: Any, name: str) -> Iterator[Any]:
    """The arrays of an argument, which must be like the tree; raises ExportError that says what is not."""
    what = tree[0]
    if what in LEAVES:
        yield value
        return
    if what in ("none", "constant"):
        expected = tree[1] if what == "constant" else None
        if type(value) is not type(expected) or (value != expected and value == value):
            raise ExportError(f"{name} was {expected!r} when the program was exported, and is part of it; got {value!r}")
        return
    parts = _parts(tree, value)
    if parts is None:
        raise ExportError(f"{name} must be {described(tree)}, got {_called(value)}")
    for (key, part), item in zip(parts, tree[-1]):
        yield from flattened(item, part, name + key)


def _parts(tree: Tree, value: Any) -> list[tuple[str, Any]] | None:
    what, items = tree[0], tree[-1]
    if what == "dict":
        if not isinstance(value, dict) or set(value) != set(tree[1]):
            return None
        return [(f"[{key!r}]", value[key]) for key in tree[1]]
    if not isinstance(value, list if what == "list" else tuple) or len(value) != len(items):
        return None
    names = [f".{field}" for field in tree[1][1]] if what == "namedtuple" else [f"[{k}]" for k in range(len(items))]
    return list(zip(names, value))


def _called(value: Any) -> str:
    return f"a {type(value).__name__} of {len(value)}" if isinstance(value, (tuple, list, dict)) else f"a {type(value).__name__}"


def described(tree: Tree) -> str:
    """A tree in words."""
    what = tree[0]
    if what == "dict":
        return f"a dict with the keys {', '.join(map(repr, tree[1])) or 'none'}"
    return f"a {tree[1][0] if what == 'namedtuple' else what} of {len(tree[-1])}" if what not in LEAVES else "an array"


def built(tree: Tree, arrays: Sequence[Any]) -> Any:
    """The value that a tree describes."""
    what = tree[0]
    if what in LEAVES:
        return _BUILD[what](arrays[tree[1]])
    if what in ("none", "constant"):
        return tree[1] if what == "constant" else None
    items = [built(item, arrays) for item in tree[-1]]
    if what == "dict":
        return dict(zip(tree[1], items))
    if what == "namedtuple":
        return named_tuple(*tree[1])(*items)
    return tuple(items) if what == "tuple" else items


@functools.lru_cache(maxsize=256)
def named_tuple(name: str, fields: tuple[str, ...]) -> Any:
    """A class of that name and fields: files hold no more of it."""
    return collections.namedtuple(name, fields)  # type: ignore[misc]


def _tensor(array: np.ndarray) -> Any:
    return import_module(TENSOR).wrap(array)


_BUILD: dict[str, Callable[[np.ndarray], Any]] = {
    "array": lambda array: array,
    "tensor": _tensor,
    "scalar": lambda array: array[()],
    "number": lambda array: array.item(),
}


def leaves_of(tree: Tree) -> list[Tree]:
    """Its leaves, from left to right."""
    if tree[0] in LEAVES:
        return [tree]
    return [] if tree[0] in ("none", "constant") else [leaf for item in tree[-1] for leaf in leaves_of(item)]


__all__ = [
    "CONSTANTS", "LEAVES", "Tree", "array_of", "built", "described", "flattened", "kind_of", "leaves_of", "named_tuple",
    "tensor_class", "tree_of",
]  # fmt: skip
