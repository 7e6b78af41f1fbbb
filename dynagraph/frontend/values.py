"""The kinds of values that the executor follows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any, Union

from dynagraph.frontend.source import Source
from dynagraph.ir.graph import Node


class Null:
    """The NULL of the interpreter's stack, and an unset local."""


NULL = Null()


@dataclass(eq=False)
class Const:
    """A Python object that is known: by value (numbers, strings) or by identity (modules, functions, types).

    Sizes that are symbolic are constants that hold a `SymInt`.
    """

    value: Any
    source: Source | None = None


@dataclass(eq=False)
class Array:
    """An array or, with `is_scalar`, a NumPy scalar.  Writing in place gives it another node: all who hold it see that."""

    node: Node
    is_scalar: bool = False
    source: Source | None = None


@dataclass(eq=False)
class Sequence:
    """A list or tuple; `source` where it is one of the caller's, whose items are wrapped when they are read."""

    kind: type
    items: list[Any]
    source: Source | None = None


@dataclass(eq=False)
class Dict:
    """A dict made here (`items`), or one of the caller's (`source` and `object`), which is only read."""

    items: dict[Any, Any]
    source: Source | None = None
    object: dict[Any, Any] | None = None


@dataclass(eq=False)
class Cell:
    """A variable shared by functions: one made here, or (`source`) one of a real function, read when it is asked for."""

    value: Any = NULL
    source: Source | None = None
    real: Any = None  # the cell object behind `source`


@dataclass(eq=False)
class Function:
    """A Python function: the user's, or one made by the captured code."""

    code: CodeType
    globals: dict[str, Any]
    name: str
    defaults: tuple[Any, ...] = ()
    kwdefaults: dict[str, Any] = field(default_factory=dict)
    closure: tuple[Cell, ...] = ()
    source: Source | None = None
    object: Any = None


@dataclass(eq=False)
class Method:
    """A function with its first argument: `function` is a Function, or the name of a method of a followed value."""

    function: Union[Function, str, Any]
    owner: Any


@dataclass(eq=False)
class Partial:
    """``functools.partial`` made by the captured code."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(eq=False)
class Object:
    """Any other object, known by its type; attributes are read with guards."""

    value: Any
    source: Source


@dataclass(eq=False)
class Iter:
    """An iterator over values that are all known."""

    items: Iterator[Any]


@dataclass(eq=False)
class Slice:
    """``slice(start, stop, step)`` of values."""

    parts: tuple[Any, Any, Any]


Value = Union[Null, Const, Array, Sequence, Dict, Cell, Function, Method, Partial, Object, Iter, Slice]
