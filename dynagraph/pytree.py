"""Pytrees: nested tuples, lists, dicts, named tuples and dataclasses of arrays.

Plain Python that captures follow.  None holds nothing; what is not a container is a leaf.

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
    found: list[Any] = []
    waiting = [tree]
    while waiting:
        item = waiting.pop()
        parts = parts_of(item)
        if parts is None:
            found.append(item)
        else:
            waiting += [part for _, part in reversed(parts)]
    return found


def named_leaves(tree: Any, name: str) -> list[tuple[str, Any]]:
    """As `leaves`, each with how it is read from a tree of that name.

    >>> named_leaves({"w": (1.0, 2.0)}, "params")
    [("params['w'][0]", 1.0), ("params['w'][1]", 2.0)]
    """
    found: list[tuple[str, Any]] = []
    waiting = [(name, tree)]
    while waiting:
        here, item = waiting.pop()
        parts = parts_of(item)
        if parts is None:
            found.append((here, item))
        else:
            waiting += [(here + behind, part) for behind, part in reversed(parts)]
    return found


def rebuilt(tree: Any, values: Any) -> Any:
    """A tree like this one with the next of the values, an iterator, in place of each leaf."""
    done: list[Any] = []
    waiting: list[tuple[Any, int | None]] = [(tree, None)]
    while waiting:
        item, n_parts = waiting.pop()
        if n_parts is not None:  # they are done
            first = len(done) - n_parts
            done[first:] = [_with_parts(item, done[first:])]
            continue
        parts = parts_of(item)
        if parts is None:
            done.append(next(values))
        else:
            waiting.append((item, len(parts)))
            waiting += [(part, None) for _, part in reversed(parts)]
    return done[0]


def _with_parts(tree: Any, parts: list[Any]) -> Any:
    """A container like this one that holds these parts, in the order of `parts_of`."""
    kind = type(tree)
    if tree is None:
        return None
    if kind is tuple or kind is list:
        return kind(parts)
    if kind in DICTS:
        new = copy.copy(tree)
        new.update(zip(tree, parts))
        return new
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind(*parts)
    made = copy.copy(tree)
    for field, part in zip(dataclasses.fields(kind), parts):
        object.__setattr__(made, field.name, part)
    return made


def mapped(function: Callable[[Any], Any], tree: Any) -> Any:
    """A tree like this one with `function` of each leaf in its place."""
    return rebuilt(tree, iter([function(leaf) for leaf in leaves(tree)]))


__all__ = ["leaves", "mapped", "named_leaves", "parts_of", "rebuilt"]
