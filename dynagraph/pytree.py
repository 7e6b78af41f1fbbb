"""Nested containers of arrays: tuples, lists, dicts, named tuples and dataclasses, and what stands in them.

Plain Python that captures follow.  None holds nothing; what is no container is a leaf.

>>> leaves({"w": (1.0, 2.0), "b": [3.0, None]})
[1.0, 2.0, 3.0]
>>> mapped(lambda x: 2 * x, {"w": (1.0, 2.0), "b": [3.0, None]})
{'w': (2.0, 4.0), 'b': [6.0, None]}
"""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

DICTS = (dict, collections.OrderedDict, collections.defaultdict)


def parts_of(tree: Any) -> list[tuple[str, Any]] | None:
    """What a container holds, each with the text behind it that reads it: ``[0]``, ``['w']``, ``.w``; None of a leaf."""
    kind = type(tree)
    if tree is None:
        return []
    if kind is tuple or kind is list:
        return [(f"[{k}]", item) for k, item in enumerate(tree)]
    if kind in DICTS:
        return [(f"[{key!r}]", tree[key]) for key in tree]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return [(f".{name}", item) for name, item in zip(kind._fields, tree)]
    if dataclasses.is_dataclass(kind):
        return [(f".{field.name}", getattr(tree, field.name)) for field in dataclasses.fields(kind)]
    return None


def leaves(tree: Any) -> list[Any]:
    """What stands in a tree, from left to right; dicts in their own order."""
    parts = parts_of(tree)
    if parts is None:
        return [tree]
    found: list[Any] = []
    for _, part in parts:
        found.extend(leaves(part))
    return found


def named_leaves(tree: Any, name: str) -> list[tuple[str, Any]]:
    """As `leaves`, each with how it is read from a tree of that name.

    >>> named_leaves({"w": (1.0, 2.0)}, "params")
    [("params['w'][0]", 1.0), ("params['w'][1]", 2.0)]
    """
    parts = parts_of(tree)
    if parts is None:
        return [(name, tree)]
    found: list[tuple[str, Any]] = []
    for behind, part in parts:
        found.extend(named_leaves(part, name + behind))
    return found


def rebuilt(tree: Any, values: Any) -> Any:
    """A tree like this one with the next of the values, an iterator, in place of each leaf."""
    kind = type(tree)
    if tree is None:
        return None
    if kind is tuple or kind is list:
        return kind([rebuilt(item, values) for item in tree])
    if kind in DICTS:
        new = copy.copy(tree)
        for key in tree:
            new[key] = rebuilt(tree[key], values)
        return new
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*[rebuilt(item, values) for item in tree])
    if dataclasses.is_dataclass(kind):
        made = copy.copy(tree)
        for field in dataclasses.fields(kind):
            object.__setattr__(made, field.name, rebuilt(getattr(tree, field.name), values))
        return made
    return next(values)


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree like this one with `function` of each leaf in its place."""
    return rebuilt(tree, iter([function(leaf) for leaf in leaves(tree)]))


__all__ = ["leaves", "mapped", "named_leaves", "parts_of", "rebuilt"]
